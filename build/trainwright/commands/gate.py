"""The command that runs a gate, or writes it as a file to be run elsewhere."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trainwright.commands.options import (
    Account,
    Cluster,
    Efa,
    EfaBy,
    GpusPerNode,
    HugePages,
    Json,
    Namespace,
    NodeSelector,
    Partition,
    PriorityClass,
    PullSecret,
    Qos,
    Queue,
    Reservation,
    ServiceAccount,
    Topology,
    app,
    find_root,
)

if TYPE_CHECKING:
    from trainwright.gate.interleave import Pair
    from trainwright.gate.spec import Run

SCRIPT = "scripts/gate.sh"


@app.command()
def gate(
    image: Annotated[
        str, typer.Argument(metavar="IMAGE", help="Id or reference of an image; default: the software of the hosts.")
    ] = "",
    on: Annotated[str, typer.Option("--on", help="Launcher: docker, ssh, slurm, kubernetes or sagemaker.")] = "docker",
    nodes: Annotated[int | None, typer.Option(min=1, help="Number of hosts.")] = None,
    instance: Annotated[
        str, typer.Option(metavar="TYPE", help="Instance type, such as p5.48xlarge: sets GPUs, EFA and floors.")
    ] = "",
    gpus: Annotated[int | None, typer.Option(min=1, help="GPUs per host; default: all that the type has.")] = None,
    efa: Efa = None,
    cluster: Cluster = "",
    gpus_per_node: GpusPerNode = None,
    mpi_type: Annotated[
        str,
        typer.Option(metavar="TYPE", help="Slurm: type of srun --mpi; without it pmix; the word default: MpiDefault."),
    ] = "",
    huge_pages: HugePages = None,
    efa_by: EfaBy = "",
    namespace: Namespace = "",
    queue: Queue = "",
    topology: Topology = "",
    priority_class: PriorityClass = "",
    service_account: ServiceAccount = "",
    pull_secret: PullSecret = "",
    node_selector: NodeSelector = None,
    partition: Partition = "",
    account: Account = "",
    qos: Qos = "",
    reservation: Reservation = "",
    hosts: Annotated[Path | None, typer.Option(metavar="FILE", help="For ssh: file with one host per line.")] = None,
    collective: Annotated[list[str] | None, typer.Option(help="Run only this collective; repeat for more.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, metavar="SECONDS", help="Time limit of each collective.")] = None,
    against: Annotated[str, typer.Option(metavar="IMAGE", help="Run this image in turn with IMAGE, and compare.")] = "",
    runs: Annotated[int | None, typer.Option(min=1, help="Runs of each image, with --against.")] = None,
    find: Annotated[
        bool, typer.Option("--find", help="Find the host that is slow or fails, by rounds of pairs.")
    ] = False,
    folder: Annotated[
        Path | None, typer.Option(metavar="DIR", help="With --find: folder of its runs; goes on from those in it.")
    ] = None,
    racks: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="With --find: topology.conf, or JSON of EC2's topology or of nodes."),
    ] = None,
    baseline: Annotated[
        str, typer.Option(metavar="NAME", help="With --find: compare all pairs with this baseline, too.")
    ] = "",
    emit: Annotated[
        str, typer.Option(metavar="FILE", help="Write the job instead of running it; - is standard output.")
    ] = "",
    role: Annotated[str, typer.Option(metavar="ARN", help="For sagemaker: IAM role of the job.")] = "",
    output: Annotated[str, typer.Option(metavar="s3://...", help="For sagemaker: location of the job's output.")] = "",
    subnet: Annotated[
        list[str] | None, typer.Option(metavar="subnet-...", help="For sagemaker: subnet of your VPC; repeat for more.")
    ] = None,
    security_group: Annotated[
        list[str] | None, typer.Option(metavar="sg-...", help="For sagemaker: security group; repeat for more.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would run, without running it.")] = False,
    as_json: Json = False,
) -> None:
    """Run nccl-tests on GPU hosts, and judge the result. With --on slurm, kubernetes, sagemaker: writes a file."""
    from trainwright.core import console, project
    from trainwright.core.errors import ConfigError
    from trainwright.gate import interleave, read
    from trainwright.gate import run as gate_run
    from trainwright.gate.find import prepare
    from trainwright.gate.reports import verdicts
    from trainwright.schedulers import placement
    from trainwright.schedulers.clusters import Asked

    root, here = find_root(), on in gate_run.HERE
    project.make_out(root)
    asked = Asked(cluster=cluster, huge_pages=huge_pages, gpus_per_node=gpus_per_node, mpi_type=mpi_type, efa_by=efa_by)
    where = placement.make(
        on,
        gate_run.SCHEDULED.get(on, ""),
        node_selector or [],
        namespace=namespace,
        queue=queue,
        topology=topology,
        priority_class=priority_class,
        service_account=service_account,
        pull_secret=pull_secret,
        partition=partition,
        account=account,
        qos=qos,
        reservation=reservation,
    )
    if runs is not None and not against:
        raise ConfigError("--runs requires --against", where="--runs", fix="--against IMAGE")
    gate_run.refuse_stray(
        on, {"--role": role, "--output": output, "--subnet": subnet, "--security-group": security_group}
    )
    if find:
        unused: dict[str, object] = {"--limit": limit, "--collective": collective}
        if on == "slurm":
            of_sbatch = {"--partition": partition, "--account": account, "--qos": qos, "--reservation": reservation}
            unused |= {**of_sbatch, "--gpus-per-node": gpus_per_node}
        prepare.check(on, nodes, {"--emit": emit, "--against": against}, unused)
        if on == "slurm" and not (dry_run and nodes):
            nodes = len(prepare.allocated(nodes))
    else:
        gate_run.refuse_without_find({"--folder": folder, "--racks": racks, "--baseline": baseline})
    count = interleave.check(root, on, runs) if against else 0
    if on == "docker" and not (emit or dry_run):
        there = gate_run.gpus_here()
        gpus = gpus or (None if instance else there)
    for one in filter(None, (image, against)):
        gate_run.check_image(root, one)
    what = gate_run.subject(root, image, on)

    def prepared(one: gate_run.Subject) -> "Run":
        return gate_run.prepare(
            root,
            one,
            on,
            instance=instance,
            nodes=nodes,
            gpus=gpus,
            hosts=hosts,
            collectives=collective or [],
            limit=limit,
            efa=efa,
            asked=asked,
            placement=where,
        )

    def emitted(secret: bool) -> str:
        return gate_run.emit(root, run, on, role, output, secret, subnet, security_group)

    run = prepared(what)
    if find:
        _find(root, run, on, folder, racks, baseline, dry_run, as_json)
        return
    if against:
        both = interleave.pair(run, prepared(gate_run.subject(root, against, on)), count)
        _in_turn(root, both, on, emit, dry_run, as_json)
        return
    if dry_run:
        _shown("command" if here else "text", gate_run.command(run, on) if here else emitted(False), as_json)
        return
    if emit or not here:
        gate_run.must_not_show_a_key(run, on, emit)
        mode = 0o600 if on == "sagemaker" else 0o755 if here else 0o644
        text, name = emitted(True), "FILE" if emit in ("", "-") else shlex.quote(emit)
        _written(emit, text, mode, gate_run.advice(run, on, what, name), as_json)
        return
    log, code = gate_run.execute(root, run, on, lambda line: typer.echo(line, err=True))
    found = gate_run.judged(root, run, what, log, code)
    if as_json:
        console.data([verdict.model_dump() for verdict in found])
    else:
        verdicts.show(found)
    again = gate_run.advice(run, on, what, "").splitlines()[-1].replace(log.name, str(log), 1)
    typer.echo(console.pasteable(again), err=True)
    if run.nodes > 2 and any(verdict.verdict == "fail" for verdict in found):
        typer.echo("the same command with --find says which host it is", err=True)
    read.refuse(found)


def _find(
    root: Path, run: "Run", on: str, folder: Path | None, file: Path | None, baseline: str, dry_run: bool, as_json: bool
) -> None:
    """Search the guilty host, or say what that takes."""
    from contextlib import ExitStack

    from trainwright.core import console
    from trainwright.core.files import write_named
    from trainwright.gate import run as gate_run
    from trainwright.gate.find import forecast, model, page, prepare, report
    from trainwright.gate.find.search import Search, find

    settings = model.load_settings(root)
    expected = prepare.expected(root, baseline, run, settings) if baseline else None
    if dry_run:
        cluster, _ = prepare.cluster(run, on, file, prepare.named(run, on))
        _shown("text", "\n".join(forecast.lines(cluster, settings, 1 if on == "docker" else run.gpus)), as_json)
        return
    with ExitStack() as stack:
        job, pods = "", dict[str, str]()
        if on == "kubernetes":
            job, pods = stack.enter_context(prepare.pods(run, settings, lambda line: typer.echo(line, err=True)))
        if on == "slurm" and run.image:
            stack.enter_context(prepare.containers(run, settings))
        hosts = prepare.allocated() if on == "slurm" else list(pods)
        cluster, racks = prepare.cluster(run, on, file, hosts)
        place = prepare.folder(root, run.name, folder)
        search = Search(root, run, on, cluster, settings, place, gate_run.script(root), job, pods)
        try:
            found = find(search, lambda line: typer.echo(line, err=True))
        except KeyboardInterrupt:
            typer.echo(f"interrupted; --folder {place} goes on from its runs", err=True)
            raise
    picture = place / "find.html"
    write_named(picture, page.html(found, settings, on, racks, expected))
    if as_json:
        console.data(report.data(found, settings, racks, expected))
    else:
        typer.echo("\n".join(report.lines(found, settings, on, racks, expected)))
    typer.echo(f"runs and picture: {picture}", err=True)
    report.refuse(found, str(place), racks)


def _shown(kind: str, text: str, as_json: bool) -> None:
    """Print the result of a dry run; `kind` is its key in JSON."""
    from trainwright.core import console

    if as_json:
        console.data({kind: text})
    else:
        typer.echo(text.removesuffix("\n"))


def _written(file: str, text: str, mode: int, advice: str, as_json: bool) -> None:
    """Write to a file, or for "" and "-" to standard output; print the advice on how to use it."""
    from trainwright.core import console
    from trainwright.core.files import write_named

    here, advice = file in ("", "-"), console.pasteable(advice)
    if not here:
        write_named(Path(file), text)
        Path(file).chmod(mode)
    if as_json:
        console.data({**({"text": text} if here else {"file": file}), "advice": advice.splitlines()})
        return
    if here:
        typer.echo(text, nl=False)
    typer.echo(advice, err=True)


def _in_turn(root: Path, both: "Pair", on: str, emit: str, dry_run: bool, as_json: bool) -> None:
    """Run two images here and compare them, or write their runs as a file."""
    from trainwright.commands.compare import show
    from trainwright.core import console
    from trainwright.gate import interleave, measure, run

    if dry_run:
        _shown("text", interleave.emit(root, both, on, f"# {SCRIPT}\n"), as_json)
        return
    if emit or on not in run.HERE:
        name = "FILE" if emit in ("", "-") else shlex.quote(emit)
        _written(emit, interleave.emit(root, both, on), 0o755, interleave.advice(both, on, name), as_json)
        return
    folder = interleave.execute(root, both, on, lambda line: typer.echo(line, err=True))
    found = interleave.compared(root, both, on, folder)
    if as_json:
        console.data(found.model_dump())
    else:
        show(found)
    typer.echo(f"logs: {folder}", err=True)
    measure.refuse(found)
