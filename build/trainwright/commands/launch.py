"""The command `trainwright launch`."""

from pathlib import Path
from typing import Annotated

import typer

from trainwright.commands.options import Json, OneRegion, Registry, StopOnCause, StopOnSilence, app, find_root

OURS = "TRAINWRIGHT_JOB"  # settings of launch
EXAMPLE = "trainwright launch IMAGE SCRIPT --instance ml.g5.xlarge --role ARN --output s3://..."
Words = list[str] | None


@app.command(context_settings={"ignore_unknown_options": True})
def launch(
    context: typer.Context,
    image: Annotated[str, typer.Argument(metavar="IMAGE", help="Id of the matrix, or a URI of Amazon ECR.")],
    script: Annotated[Path, typer.Argument(metavar="SCRIPT", help="Its folder becomes /opt/ml/code.")],
    words: Annotated[
        Words, typer.Argument(metavar="[--NAME VALUE]...", help="Hyperparameters; after -- where we have that, too.")
    ] = None,
    instance: Annotated[str, typer.Option(metavar="TYPE", help="ml.p5.48xlarge, or without ml.")] = "",
    hosts: Annotated[int, typer.Option(min=1, help="Instances.")] = 1,
    role: Annotated[str, typer.Option(envvar=f"{OURS}_ROLE", metavar="ARN", help="What the job may do.")] = "",
    output: Annotated[
        str, typer.Option(envvar=f"{OURS}_OUTPUT", metavar="s3://...", help="Gets source, model and output of the job.")
    ] = "",
    name: Annotated[str, typer.Option(metavar="NAME", help="Of the job; else the script's, and when.")] = "",
    source: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Instead of the script's own folder.")] = None,
    distribution: Annotated[str, typer.Option(help="torchrun, mpi, tensorflow, plain; else what the image has.")] = "",
    processes: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Ranks of each host; else its GPUs.")
    ] = None,
    hyperparameter: Annotated[
        Words, typer.Option(metavar="NAME=VALUE", help="As --NAME VALUE after the script, for any name.")
    ] = None,
    channel: Annotated[Words, typer.Option(metavar="NAME=s3://...", help="Input data; repeat.")] = None,
    environment: Annotated[
        Words, typer.Option("--environment", "--env", metavar="NAME=VALUE", help="Shown by DescribeTrainingJob.")
    ] = None,
    secret: Annotated[
        str, typer.Option(metavar="secretsmanager:NAME", help="Of several hosts; else a new one for this job alone.")
    ] = "",
    spot: Annotated[bool, typer.Option("--spot", help="On spare instances; wants --checkpoints.")] = False,
    checkpoints: Annotated[
        str, typer.Option(metavar="s3://...", help="/opt/ml/checkpoints; what is there comes back.")
    ] = "",
    max_run: Annotated[int | None, typer.Option(metavar="SECONDS", help="Else a day.")] = None,
    max_wait: Annotated[int | None, typer.Option(metavar="SECONDS", help="Of --spot, all in all.")] = None,
    keep_alive: Annotated[
        int | None, typer.Option(metavar="SECONDS", help="Instances stay that long for a next job; they cost.")
    ] = None,
    subnet: Annotated[Words, typer.Option(metavar="subnet-...", help="Of your VPC; repeat.")] = None,
    security_group: Annotated[Words, typer.Option(metavar="sg-...", help="Of your VPC; repeat.")] = None,
    encrypt_traffic: Annotated[bool, typer.Option("--encrypt-traffic", help="Between the hosts.")] = False,
    volume: Annotated[int | None, typer.Option(min=1, metavar="GB", help="Where a type has no disks.")] = None,
    kms_key: Annotated[str, typer.Option(metavar="KEY", help="Encrypts what we upload, and the output.")] = "",
    tag: Annotated[Words, typer.Option(metavar="NAME=VALUE", help="Of the job; repeat.")] = None,
    allow_tcp: Annotated[
        bool, typer.Option("--allow-tcp", help="Several hosts without EFA where there is EFA.")
    ] = False,
    training_compiler: Annotated[
        bool, typer.Option("--training-compiler", help="Of images that extend its containers; AWS ended it.")
    ] = False,
    training_compiler_debug: Annotated[bool, typer.Option("--training-compiler-debug", help="Its own log.")] = False,
    registry: Registry = "",
    region: OneRegion = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the request; nothing is sent.")] = False,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Follow the job, and end as it does.")] = True,
    stop_on_cause: StopOnCause = False,
    stop_on_silence: StopOnSilence = False,
    as_json: Json = False,
) -> None:
    """A training job of SageMaker from an image: checked, uploaded, begun and followed to its end (0, or 9)."""
    from trainwright.core import console
    from trainwright.core.errors import ConfigError
    from trainwright.jobs import begin
    from trainwright.jobs import launch as jobs_launch

    if not instance:
        raise ConfigError("on what?", where="--instance", why="SageMaker starts it on an instance type", fix=EXAMPLE)
    root = find_root()
    job = jobs_launch.prepare(
        root,
        image,
        script,
        words or [],
        [opt[2:] for param in context.command.params for opt in param.opts if opt.startswith("--")],
        instance=instance,
        hosts=hosts,
        role=role,
        output=output,
        registry=registry,
        region=region,
        name=name,
        source=source,
        distribution=distribution,
        processes=processes,
        hyperparameter=hyperparameter or [],
        channel=channel or [],
        environment=environment or [],
        tag=tag or [],
        secret=secret,
        spot=spot,
        checkpoints=checkpoints,
        max_run=max_run,
        max_wait=max_wait,
        keep_alive=keep_alive,
        subnet=subnet or [],
        security_group=security_group or [],
        encrypt_traffic=encrypt_traffic,
        volume=volume,
        kms_key=kms_key,
        allow_tcp=allow_tcp,
        compiler=training_compiler,
        compiler_debug=training_compiler_debug,
    )
    for note in job.notes:
        typer.echo(f"note: {note}", err=True)
    submission = job.submission
    files = "one file" if len(job.files) == 1 else f"{len(job.files)} files"
    typer.echo(f"{files}, {len(job.source) / 1e3:.1f} kB: {submission.source_uri}", err=True)
    if dry_run:
        rows = {"region": job.region, "request": job.request, "uploads": job.uploads, "files": job.files}
        console.data({**rows, "notes": job.notes} if as_json else job.request)
        return

    def say(line: str) -> None:
        typer.echo(line, err=True)

    arn = begin.begin(job, say)
    typer.echo(f"{submission.name}: {submission.hosts} x {submission.instance}, {submission.image}", err=True)
    again = f"trainwright attach {submission.name} --region {job.region}"
    if wait:
        from trainwright.commands.attach import ended, followed

        with ended(job.region, submission.name, submission.secret_uri if submission.secret else ""):
            followed(
                root,
                submission.name,
                job.region,
                stop_on_cause=stop_on_cause,
                stop_on_silence=stop_on_silence,
                as_json=as_json,
            )
        return
    lies = {"secret": submission.secret_uri} if submission.secret else {}
    if as_json:
        row = {"job": submission.name, "arn": arn, "region": job.region, "image": submission.image}
        console.data({**row, "source": submission.source_uri, **lies, "follow": again})
        return
    typer.echo(arn)
    typer.echo(f"follow it: {console.pasteable(again)}", err=True)
    if lies:
        typer.echo(f"its secret is removed by that, once the job has ended; or: aws s3 rm {lies['secret']}", err=True)
