"""Prepare a training job: convert command-line arguments to a SageMaker request."""

import re
import secrets
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import Field

from trainwright.core.errors import ConfigError, NotRunError, did_you_mean
from trainwright.core.pairs import pairs
from trainwright.core.toml import Model
from trainwright.gate import launchers
from trainwright.graft import recorded, results
from trainwright.image import training_compiler
from trainwright.jobs import contract, fit, submit
from trainwright.jobs import request as jobs_request
from trainwright.jobs import source as jobs_source
from trainwright.jobs.request import PLAIN, Submission
from trainwright.matrix.instances import load_instances, refuse
from trainwright.matrix.matrix import Recipe, load_intent
from trainwright.publish import twins
from trainwright.publish import uri as publish_uri
from trainwright.registry import aws, locations

DISTRIBUTIONS = ("torchrun", "mpi", "tensorflow", PLAIN)
MANAGER = "secretsmanager:"  # prefix of --secret


class Job(Model):
    """A job to begin, and the notes for the user."""

    submission: Submission
    region: str
    identity: str = ""  # id in the matrix, if known
    source: bytes = Field(repr=False)
    files: list[str]
    secret_name: str = ""  # in Secrets Manager; "": a new secret is generated
    notes: list[str] = Field(default=[])

    @property
    def request(self) -> dict[str, Any]:
        return jobs_request.request(self.submission)

    @property
    def uploads(self) -> list[dict[str, Any]]:
        """Return the objects uploaded to S3 before the job begins; of the secret, only the URI."""
        rows: list[dict[str, Any]] = [{"uri": self.submission.source_uri, "bytes": len(self.source)}]
        return [*rows, {"uri": self.submission.secret_uri, "bytes": None}] if self.submission.secret else rows


def fitting_notes(root: Path, identity: str, instance: str) -> list[str]:
    """Return notes on a matrix image on two hosts of an instance type. Raises ConfigError if it cannot train there."""
    intent = load_intent(root)
    recipe = recorded.find(intent, identity) or intent.recipe(identity)
    refuse(root, instance)
    name, row = fit.instance(instance, load_instances(root), submit.instance_types())
    return fit.fit(recipe, name, row, 2, allow_tcp=True)


def prepare(
    root: Path,
    image: str,
    script: Path,
    words: Sequence[str],
    options: Sequence[str] = (),
    *,
    instance: str,
    hosts: int,
    role: str,
    output: str,
    registry: str = "",
    region: str = "",
    name: str = "",
    source: Path | None = None,
    distribution: str = "",
    processes: int | None = None,
    hyperparameter: Sequence[str] = (),
    channel: Sequence[str] = (),
    environment: Sequence[str] = (),
    tag: Sequence[str] = (),
    secret: str = "",
    spot: bool = False,
    checkpoints: str = "",
    max_run: int | None = None,
    max_wait: int | None = None,
    keep_alive: int | None = None,
    subnet: Sequence[str] = (),
    security_group: Sequence[str] = (),
    encrypt_traffic: bool = False,
    volume: int | None = None,
    kms_key: str = "",
    allow_tcp: bool = False,
    compiler: bool = False,
    compiler_debug: bool = False,
) -> Job:
    """Validate all arguments before any upload. Raises ConfigError, NotRunError, and what uri.uris() raises."""
    intent, settings = load_intent(root), jobs_request.load_settings(root)
    at = launchers.place(role, output.rstrip("/"), list(subnet), list(security_group))
    folder, program = _program(script, source)
    refuse(root, instance)
    type_, row = fit.instance(instance, load_instances(root), submit.instance_types())
    if secret and hosts == 1:
        raise ConfigError("--secret requires several hosts", where="--secret", fix="leave --secret out")
    if secret and not (secret.startswith(MANAGER) and secret.removeprefix(MANAGER)):
        raise ConfigError(
            f"{secret!r} is not a location of a secret", where="--secret", fix=f"--secret {MANAGER}NAME, or omit it"
        )
    recipe = recorded.find(intent, image)
    uri, identity = image, image
    if recipe is None:
        if not re.search(r"[/:@]", image):
            intent.recipe(image)  # raises ConfigError with similar names
        ids = [*(variant.id for variant in intent.variants), *(one.id for one in results.results(root))]
        twins.refuse_for_sagemaker(root, ids, image)
        region, identity = _region_of(image, region), publish_uri.identity_of(root, intent, image)
        identity = identity or recorded.identity_of(root, image)
        recipe = recorded.find(intent, identity)
    notes = [f"the contents of {image} are unknown: not checked whether it can train on {type_}"]
    if recipe:
        notes = fit.fit(recipe, type_, row, hosts, allow_tcp)
    if compiler_debug and not compiler:
        raise ConfigError("--training-compiler-debug requires --training-compiler", where="--training-compiler-debug")
    started: dict[str, Any] = {}
    if compiler:
        if distribution:
            raise ConfigError(
                "the Training Compiler starts its ranks itself", where="--distribution", fix="leave --distribution out"
            )
        variant, families = recipe.variant if recipe else None, settings.training_compiler.families
        started = training_compiler.hyperparameters(identity or image, variant, type_, families, hosts, compiler_debug)
    else:
        known = recipe if recipe and (not recipe.made_by_others or intent.find(recipe.id) is None) else None
        kind = _distribution(distribution, known, hosts, row.count if row else 0, processes)
        started = jobs_request.distribution(kind, processes)
        if kind != PLAIN and not distribution:
            ranks = processes or (row.count if row and kind != "tensorflow" else 0) or 1
            notes.append(
                f"{kind} starts {ranks} {'rank' if ranks == 1 else 'ranks'} on each host; --distribution changes that"
            )
    left_out = [*settings.source.skip, *settings.source.credentials]
    packed, files = jobs_source.pack(folder, left_out, settings.most.source_bytes)
    if hidden := [file for file in files if any(part.startswith(".") for part in Path(file).parts)]:
        notes.append(f"hidden files are uploaded too: {', '.join(hidden)}")
    run = settings.defaults.max_run if max_run is None else max_run
    said = contract.hyperparameters(words, options)
    submission = Submission(
        name=name or new_name(Path(program).stem),
        token=secrets.token_hex(settings.begin.token_bytes),
        image=uri,
        instance=type_,
        hosts=hosts,
        role=at.role,
        output=at.output,
        program=program,
        hyperparameters={**started, **said, **pairs("--hyperparameter", hyperparameter)},
        channels=pairs("--channel", channel),
        environment={
            **pairs("--env", environment),
            **({fit.ALLOW_TCP: "1"} if allow_tcp else {}),
        },
        tags=pairs("--tag", tag),
        spot=spot,
        max_run=run,
        max_wait=run * settings.defaults.wait_factor if spot and max_wait is None else max_wait,
        keep_alive=keep_alive,
        checkpoints=checkpoints,
        subnets=at.subnets,
        security_groups=at.security_groups,
        encrypt_traffic=encrypt_traffic,
        volume_gb=volume or settings.defaults.volume_gb,
        kms_key=kms_key,
        secret=hosts > 1,
        settings=settings,
    )
    jobs_request.check(submission)
    if identity == image:  # last, because it may query a registry
        uri, region = _published(root, image, registry, region)
    submission = submission.model_copy(update={"image": uri, "region": region})
    return Job(
        submission=submission,
        region=region,
        identity=identity,
        source=packed,
        files=files,
        secret_name=secret.removeprefix(MANAGER),
        notes=notes,
    )


def new_name(stem: str) -> str:
    """Return a job name: the script's name, the time, and a random suffix that separates jobs of the same second."""
    word = re.sub(r"-+", "-", re.sub(r"[^A-Za-z0-9]", "-", stem)).strip("-")[:32].rstrip("-")
    return f"{word or 'train'}-{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


def _program(script: Path, source: Path | None) -> tuple[Path, str]:
    """Return the folder to pack, and the script's path in it. Raises ConfigError."""
    folder = source or script.parent
    if not folder.is_dir():
        raise ConfigError(f"{folder} is not a folder", where="--source", fix="--source FOLDER")
    inside = script if script.is_file() or source is None else folder / script
    if not inside.is_file():
        raise ConfigError(
            f"script {script} does not exist", where=str(Path.cwd()), fix="trainwright launch IMAGE SCRIPT"
        )
    try:
        return folder, str(inside.resolve().relative_to(folder.resolve()))
    except ValueError:
        raise ConfigError(
            f"{script} is not in {folder}", where="--source", why="the hosts get only the files of that folder"
        ) from None


def _distribution(asked: str, recipe: Recipe | None, hosts: int, gpus: int, processes: int | None) -> str:
    """Return the launcher of the ranks; `recipe` is None for an image whose contents are unknown.

    A graft's are known, because it was looked into. Raises ConfigError if the image lacks it, or if that is unknown.
    """
    if asked and asked not in DISTRIBUTIONS:
        raise ConfigError(
            f"unknown distribution {asked!r}", where="--distribution", why=did_you_mean(asked, DISTRIBUTIONS)
        )
    if asked == PLAIN and (processes or 1) > 1:
        raise ConfigError(
            f"{processes} processes are too many", where="--processes", why=f"{PLAIN} starts one on each host"
        )
    ranks = hosts * (processes or gpus or 1)
    if recipe is None:
        if not asked and ranks > 1:
            raise ConfigError(
                f"the launcher of {ranks} ranks is unknown",
                where="--distribution",
                why="the contents of this image are unknown",
                fix=f"--distribution {', '.join(DISTRIBUTIONS[:-1])} or {PLAIN}",
            )
        return asked or PLAIN
    kind = contract.distribution(
        "none" if asked == PLAIN else asked, dict.fromkeys(recipe.pins, ""), ranks, processes or 1
    )
    return PLAIN if kind == "none" else kind


def _region_of(uri: str, region: str) -> str:
    """Return the region of an image address. Raises ConfigError for an address that SageMaker does not accept."""
    found = publish_uri.region_of(uri)
    if not found:
        raise ConfigError(
            f"SageMaker does not pull from {uri.partition('/')[0]}", why=publish_uri.WHY, fix="make push REGISTRY=ecr"
        )
    if region and region != found:
        raise ConfigError(
            f"the image is in {found}, but the job is for {region}",
            where="--region",
            why="SageMaker only pulls from Amazon ECR in its own region",
            fix=f"--region {found}",
        )
    return found


def _published(root: Path, image: str, registry: str, region: str) -> tuple[str, str]:
    """Return a matrix image's URI by digest, and its region. Raises ConfigError, NotRunError, what uris() raises."""
    asks_ecr = not registry or locations.OWN.fullmatch(registry)
    found = publish_uri.uris(root, image, registry, region if asks_ecr else "", "", True, publish_uri.ECR)
    there = {one.region: one.uri for one in found if one.region}
    if not there:
        raise NotRunError(
            f"{image} is published where SageMaker cannot pull it",
            where=", ".join(one.registry for one in found),
            why=publish_uri.WHY,
            fix=f"make push ONLY={image} REGISTRY=ecr",
        )
    wanted = region or (next(iter(there)) if len(there) == 1 else aws.regions()[0])
    if wanted not in there:
        raise ConfigError(
            f"{image} is in {', '.join(there)}, not in {wanted}",
            where="--region",
            why="SageMaker only pulls from Amazon ECR in its own region",
            fix=f"--region {next(iter(there))}, or make push ONLY={image} REGISTRY=ecr TRAINWRIGHT_REGIONS={wanted}",
        )
    return there[wanted], wanted
