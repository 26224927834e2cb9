"""The command `trainwright launch`."""

from pathlib import Path
from typing import Annotated

import typer

from trainwright.commands.options import (
    Distribution,
    Hyperparameter,
    Json,
    OneRegion,
    Registry,
    Script,
    StopOnCause,
    StopOnSilence,
    app,
    find_root,
)

OURS = "TRAINWRIGHT_JOB"  # settings of launch
EXAMPLE = "trainwright launch IMAGE SCRIPT --instance ml.g5.xlarge --role ARN --output s3://..."
Words = list[str] | None


@app.command(context_settings={"ignore_unknown_options": True})
def launch(
    context: typer.Context,
    image: Annotated[str, typer.Argument(metavar="IMAGE", help="Id of the matrix, or an Amazon ECR URI.")],
    script: Script,
    words: Annotated[
        Words,
        typer.Argument(metavar="[--NAME VALUE]...", help="Hyperparameters; put -- before one that is also an option."),
    ] = None,
    instance: Annotated[str, typer.Option(metavar="TYPE", help="Instance type: ml.p5.48xlarge, or without ml.")] = "",
    hosts: Annotated[int, typer.Option("--nodes", min=1, help="Number of hosts, which are instances.")] = 1,
    role: Annotated[str, typer.Option(envvar=f"{OURS}_ROLE", metavar="ARN", help="IAM role of the job.")] = "",
    output: Annotated[
        str, typer.Option(envvar=f"{OURS}_OUTPUT", metavar="s3://...", help="Location for source, model and output.")
    ] = "",
    name: Annotated[
        str, typer.Option(metavar="NAME", help="Name of the job; default: the script's, with the time.")
    ] = "",
    source: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Upload this folder instead of the script's.")
    ] = None,
    distribution: Distribution = "",
    processes: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Ranks per host; default: one per GPU.")
    ] = None,
    hyperparameter: Hyperparameter = None,
    channel: Annotated[Words, typer.Option(metavar="NAME=s3://...", help="Input data; repeat for more.")] = None,
    environment: Annotated[
        Words, typer.Option("--env", metavar="NAME=VALUE", help="Environment variable; DescribeTrainingJob shows it.")
    ] = None,
    secret: Annotated[
        str,
        typer.Option(
            metavar="secretsmanager:NAME", help="Secret that the hosts share; default: a new one for this job."
        ),
    ] = "",
    spot: Annotated[bool, typer.Option("--spot", help="Use spot instances; requires --checkpoints.")] = False,
    checkpoints: Annotated[
        str,
        typer.Option(metavar="s3://...", help="Location of /opt/ml/checkpoints; its files are restored at the start."),
    ] = "",
    max_run: Annotated[int | None, typer.Option(metavar="SECONDS", help="Time limit; default: one day.")] = None,
    max_wait: Annotated[
        int | None, typer.Option(metavar="SECONDS", help="With --spot: limit of waiting and training together.")
    ] = None,
    keep_alive: Annotated[
        int | None, typer.Option(metavar="SECONDS", help="Keep the instances, which are billed, for a next job.")
    ] = None,
    subnet: Annotated[Words, typer.Option(metavar="subnet-...", help="Subnet of your VPC; repeat for more.")] = None,
    security_group: Annotated[
        Words, typer.Option(metavar="sg-...", help="Security group of your VPC; repeat for more.")
    ] = None,
    encrypt_traffic: Annotated[
        bool, typer.Option("--encrypt-traffic", help="Encrypt the traffic between hosts.")
    ] = False,
    volume: Annotated[
        int | None, typer.Option(min=1, metavar="GB", help="Volume size, for types without disks.")
    ] = None,
    kms_key: Annotated[str, typer.Option(metavar="KEY", help="KMS key that encrypts the uploads and the output.")] = "",
    tag: Annotated[Words, typer.Option(metavar="NAME=VALUE", help="Tag of the job; repeat for more.")] = None,
    allow_tcp: Annotated[
        bool, typer.Option("--allow-tcp", help="Allow several hosts without EFA although the type has it.")
    ] = False,
    training_compiler: Annotated[
        bool,
        typer.Option("--training-compiler", help="Enable the discontinued Training Compiler, if the image has it."),
    ] = False,
    training_compiler_debug: Annotated[
        bool, typer.Option("--training-compiler-debug", help="Write the Training Compiler's log.")
    ] = False,
    registry: Registry = "",
    region: OneRegion = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the request, without sending it.")] = False,
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Follow the job to its end; exit with 9 if it fails.")
    ] = True,
    stop_on_cause: StopOnCause = False,
    stop_on_silence: StopOnSilence = False,
    as_json: Json = False,
) -> None:
    """Start a SageMaker training job, and follow it to its end. Checks and uploads it first; exits 9 if it fails."""
    from trainwright.core import console
    from trainwright.core.errors import ConfigError
    from trainwright.jobs import begin
    from trainwright.jobs import launch as jobs_launch

    if not instance:
        raise ConfigError(
            "no instance type was given", where="--instance", why="SageMaker starts the job on one", fix=EXAMPLE
        )
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
        typer.echo(f"that also removes its secret, once the job has ended; or: aws s3 rm {lies['secret']}", err=True)
