"""The command that writes a training job for a cluster's own scheduler."""

import shlex
from pathlib import Path
from typing import Annotated

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
    Zstd,
    app,
    find_root,
)
from trainwright.jobs.schedulers import NAMES

Words = list[str] | None


@app.command(context_settings={"ignore_unknown_options": True})
def emit(
    context: typer.Context,
    image: Annotated[str, typer.Argument(metavar="IMAGE", help="Id of a pushed image, or any reference.")],
    script: Annotated[
        str,
        typer.Argument(metavar="SCRIPT", help="Script: a local file, one in --code, or an absolute path in the image."),
    ],
    words: Annotated[
        Words,
        typer.Argument(
            metavar="[ARGUMENTS]...", help="Arguments of the script; put -- before one that is also an option."
        ),
    ] = None,
    on: Annotated[str, typer.Option("--on", help=f"One of {', '.join(NAMES)}.")] = "slurm",
    nodes: Annotated[int, typer.Option(min=1, help="Number of hosts.")] = 1,
    instance: Annotated[
        str, typer.Option(metavar="TYPE", help="Instance type, such as p5.48xlarge; CPU images need none.")
    ] = "",
    efa: Efa = None,
    cluster: Cluster = "",
    gpus_per_node: GpusPerNode = None,
    huge_pages: HugePages = None,
    efa_by: EfaBy = "",
    zstd: Zstd = None,
    processes: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Ranks per host; default: one per GPU.")
    ] = None,
    distribution: Annotated[
        str, typer.Option(help="torchrun, mpi, tensorflow or plain; default: what fits the image.")
    ] = "",
    code: Annotated[
        str, typer.Option(metavar="SOURCE", help="Location of the script: a claim[/folder]; for Slurm a shared folder.")
    ] = "",
    data: Annotated[
        Words,
        typer.Option(
            "--channel",
            metavar="[NAME=]SOURCE",
            help="Location of read-only input, given like --code; repeat for more.",
        ),
    ] = None,
    checkpoints: Annotated[
        str, typer.Option(metavar="SOURCE", help="Location of /opt/ml/checkpoints for all hosts, given like --code.")
    ] = "",
    model: Annotated[
        str,
        typer.Option(
            metavar="SOURCE", help="Location of /opt/ml/model, given like --code; without it, the model is lost."
        ),
    ] = "",
    env: Annotated[
        Words, typer.Option("--env", metavar="NAME=VALUE", help="Environment variable of the job; repeat for more.")
    ] = None,
    name: Annotated[str, typer.Option(help="Name of the job; default: the script's.")] = "",
    namespace: Namespace = "",
    hours: Annotated[int | None, typer.Option(min=1, help="Time limit of the job; Slurm's default: 24.")] = None,
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
    output: Annotated[str, typer.Option(metavar="FILE", help="File to write; default: standard output.")] = "",
    as_json: Json = False,
) -> None:
    """Write a training job for a cluster's scheduler. Supports Slurm, Kubernetes (MPIJob, PyTorchJob), HyperPod."""
    from trainwright.core import console
    from trainwright.core.files import write_named
    from trainwright.jobs import emit as jobs_emit
    from trainwright.jobs import schedulers, spec
    from trainwright.schedulers import placement
    from trainwright.schedulers.clusters import Asked

    jobs_emit.refuse_near(words or [], [one[2:] for param in context.command.params for one in param.opts])
    spec.check_on(on)
    where = placement.make(
        on,
        "kubernetes" if spec.on_kubernetes(on) else "slurm",
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
    job, said = jobs_emit.job(
        find_root(),
        image,
        script,
        words or [],
        on=on,
        code=code,
        nodes=nodes,
        instance=instance,
        processes=processes,
        distribution=distribution,
        data=data or [],
        checkpoints=checkpoints,
        model=model,
        environment=env or [],
        name=name,
        hours=hours,
        placement=where,
        efa=efa,
        asked=Asked(cluster=cluster, huge_pages=huge_pages, gpus_per_node=gpus_per_node, efa_by=efa_by, zstd=zstd),
    )
    text, here = schedulers.named(job.on).text(job), output in ("", "-")
    commands = schedulers.named(job.on).commands(job, "FILE" if here else shlex.quote(output))
    for sentence in said:
        typer.echo(sentence, err=True)
    if not here:
        write_named(Path(output), text)
    if as_json:
        console.data(
            {
                **({"text": text} if here else {"file": output}),
                "commands": commands,
                **job.model_dump(exclude={"settings", "devices", "script"}),
            }
        )
        return
    if here:
        typer.echo(text, nl=False)
    typer.echo("\n".join(commands), err=True)
