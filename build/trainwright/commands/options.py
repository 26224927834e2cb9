"""Define what the commands share: the program itself, common options, and the choice of images."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trainwright.core.errors import ConfigError, did_you_mean

if TYPE_CHECKING:  # importing the matrix takes as long as --help itself
    from trainwright.image.inputs import Inputs
    from trainwright.matrix.matrix import Intent, Recipe

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Build, prove and publish training images for AWS accelerators.",
)

Framework = Annotated[str | None, typer.Option(help="Choose the default image of this framework.")]
Images = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="IMAGE", help="Ids or globs of images, see `trainwright list`; own: of this project's rows."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON to standard output.")]
Registry = Annotated[
    str,
    typer.Option(
        envvar="REGISTRY", help="Registry: host[:port][/prefix], or ecr[/prefix]; empty: the one on loopback."
    ),
]
Region = Annotated[
    str,
    typer.Option(envvar="TRAINWRIGHT_REGIONS", metavar="NAME,...", help="Regions of Amazon ECR; empty: the account's."),
]

WaiveGate = Annotated[
    str, typer.Option(metavar="'NAME: REASON'", help="Release without a gate result: who is responsible, and why.")
]

LicenceAllows = Annotated[
    list[str] | None,
    typer.Option(
        "--licence-allows",
        envvar="TRAINWRIGHT_LICENCE_ALLOWS",
        metavar="NAME",
        help="Publish although this licence of licences.toml restricts it: your contract allows it.",
    ),
]

NoWait = Annotated[bool, typer.Option("--no-wait", help="Fail at once if another trainwright works in this checkout.")]

With = Annotated[Path | None, typer.Option("--with", metavar="FILE", help="Add the packages of a requirements file.")]
Name = Annotated[str, typer.Option(metavar="NAME", help="With --with: call the image <id>-with-NAME.")]
StopOnCause = Annotated[bool, typer.Option("--stop-on-cause", help="Stop the job at a cause that no job survives.")]
StopOnSilence = Annotated[bool, typer.Option("--stop-on-silence", help="Stop the job when no host logs anything.")]
OneRegion = Annotated[
    str, typer.Option(envvar="AWS_REGION", metavar="NAME", help="Region of the job; default: the account's.")
]
Cluster = Annotated[
    str, typer.Option(metavar="KIND", help="Kind of cluster, a row of clusters.toml; default: what --on says.")
]
HugePages = Annotated[
    bool | None, typer.Option("--huge-pages/--no-huge-pages", help="Kubernetes: request huge pages for EFA.")
]
GpusPerNode = Annotated[
    bool | None,
    typer.Option("--gpus-per-node/--no-gpus-per-node", help="Slurm: request GPUs, if it counts them (GRES)."),
]
EfaBy = Annotated[str, typer.Option(metavar="WAY", help="Kubernetes: get EFA by device-plugin or dra.")]
Zstd = Annotated[
    bool | None,
    typer.Option("--zstd/--gzip", help="Name the image's zstd twin, or the image itself; default: the cluster's row."),
]
# Where a job or a gate runs, and in whose name.
Namespace = Annotated[
    str, typer.Option(help="Kubernetes namespace; default: kubectl's; of emit --on hyperpod-eks: kubeflow.")
]
Queue = Annotated[str, typer.Option(metavar="NAME", help="Kubernetes: Kueue's LocalQueue that admits the job.")]
Topology = Annotated[
    str, typer.Option(metavar="LABEL", help="Kubernetes: all pods in one domain of this node label; with --queue.")
]
PriorityClass = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="Kubernetes: PriorityClass of the pods; on HyperPod with --queue, Kueue's class of the job.",
    ),
]
ServiceAccount = Annotated[str, typer.Option(metavar="NAME", help="Kubernetes: ServiceAccount of the pods.")]
PullSecret = Annotated[str, typer.Option(metavar="NAME", help="Kubernetes: Secret for pulling the image.")]
NodeSelector = Annotated[
    list[str] | None,
    typer.Option(metavar="KEY=VALUE", help="Kubernetes: label that a node must have; repeat for more."),
]
Partition = Annotated[str, typer.Option(metavar="NAME", help="Slurm: partition.")]
Account = Annotated[str, typer.Option(metavar="NAME", help="Slurm: account.")]
Qos = Annotated[str, typer.Option(metavar="NAME", help="Slurm: quality of service.")]
Reservation = Annotated[str, typer.Option(metavar="NAME", help="Slurm: reservation.")]
Efa = Annotated[
    int | None, typer.Option(min=1, metavar="NUMBER", help="EFA interfaces per host, if fewer than the type has.")
]
Script = Annotated[Path, typer.Argument(metavar="SCRIPT", help="Script to run; its folder becomes /opt/ml/code.")]
Distribution = Annotated[str, typer.Option(help="torchrun, mpi, tensorflow or plain; default: the image's.")]
Hyperparameter = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=VALUE", help="Hyperparameter of any name, like --NAME VALUE after the script."),
]
Logs = Annotated[
    list[str], typer.Argument(metavar="LOG...", help="Output of nccl-tests, also of its -J; - is standard input.")
]
State = Annotated[
    str | None, typer.Option(metavar="STATE", help="Show only images in it: proved, unproved, blocked or error.")
]
Instance = Annotated[
    str | None, typer.Option(metavar="TYPE", help="Show only images for this type, such as p5.48xlarge.")
]
Vulnerabilities = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="SNAPSHOT",
        help="Look up known vulnerabilities in it: OSV's all.zip or a folder, or Debian's tracker; repeat for more.",
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would happen; change nothing.")]


_told: list[Path] = []  # the roots whose overrides this process printed


def find_root() -> Path:
    """Return the root of the data that the command reads: the checkout, or the installed data with a project's."""
    from trainwright.core import project

    root = project.find(Path.cwd())
    if "--json" not in sys.argv and not _told:
        _told.append(root)
        for row in project.overrides(root):
            was = f" (was: {row['was']})" if row["was"] else ""
            print(f"note: this project overrides {row['what']}{was}: {row['where']}", file=sys.stderr)
    return root


def chosen(
    framework: str | None, images: Sequence[str] | None, requirements: Path | None = None
) -> tuple["Intent", list["Recipe"]]:
    from trainwright.matrix.matrix import load_intent, select

    intent = load_intent(find_root())
    for name in images or ():
        _refuse_graft(intent, name, requirements)
    return intent, select(intent, framework, images)


def _refuse_graft(intent: "Intent", name: str, requirements: Path | None) -> None:
    """Raise ConfigError if a name is that of a graft of this checkout; the error names the commands that take one.

    An image of the matrix that got the id of an older graft is that image.
    """
    from trainwright.graft import results

    if intent.find(name) is None and results.is_graft(intent.root, name):
        if requirements:
            from trainwright.graft import recorded

            raise ConfigError(
                f"{name} is a graft, whose packages are added where it is made",
                where=f"out/{name}",
                why="they go into the Python of the image below, and are locked with what the graft adds",
                fix=recorded.command_of(intent.root, name, str(requirements))
                or f"trainwright graft IMAGE --with {requirements}",
            )
        raise ConfigError(
            f"{name} is a graft, and this command takes images of the matrix",
            where=f"out/{name}",
            why="what is in it comes from an image of others, and is locked there",
            fix="trainwright graft IMAGE to build it, also with --with FILE; "
            f"trainwright derive {name} --into DIR for a project on top; "
            "verify, run, emit, launch, gate, uri, diff and explain take it",
        )


def asked_for(
    framework: str | None, images: Sequence[str] | None, requirements: Path | None = None, name: str = ""
) -> tuple["Intent", list["Recipe"]]:
    """Return the chosen images for a command that takes hours: without a choice it fails instead of taking all."""
    intent, recipes = chosen(framework, images, requirements)
    if framework is None and images is None:
        raise ConfigError(
            "no image was chosen",
            why=did_you_mean("", {variant.framework for variant in intent.variants}),
            fix=f"the same command with --framework {intent.variants[0].framework} or '<id or glob>' "
            f"(of make: FRAMEWORK={intent.variants[0].framework})",
        )
    return intent, on_top(recipes, requirements, name) if requirements or name else recipes


def with_inputs(recipes: Sequence["Recipe"]) -> list["Inputs"]:
    """Return the images with their inputs, for commands that build or push. Raises LockError for a blocked recipe."""
    from trainwright.image import child
    from trainwright.lock import additions

    for recipe in recipes:
        if recipe.variant.requirements:
            additions.settings(recipe.root).refuse_blocked(recipe)
    return [child.load(recipe) for recipe in recipes]


def on_top(recipes: list["Recipe"], requirements: Path | None, name: str) -> list["Recipe"]:
    """Return the image that consists of another one and the packages of a requirements file."""
    from trainwright.lock import additions

    if requirements is None:
        raise ConfigError("--name requires --with", fix="trainwright build --help")
    if len(recipes) != 1:
        raise ConfigError(
            f"--with requires one image, but {len(recipes)} were chosen",
            why=", ".join(recipe.id for recipe in recipes[:5]),
            fix=f"name one: {recipes[0].id}",
        )
    if not requirements.exists() and (recipes[0].root / requirements).exists():  # as `list` names a recipe
        requirements = recipes[0].root / requirements
    return [additions.on_top(recipes[0], str(requirements), name)]
