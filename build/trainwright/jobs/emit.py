"""Create a training job for a cluster's scheduler, from the command line's options to the emitted file."""

import difflib
import secrets
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from trainwright.core.errors import ConfigError
from trainwright.gate import run
from trainwright.gate import spec as gate_spec
from trainwright.graft import recorded
from trainwright.image import tags
from trainwright.jobs import contract, fit, prepare, source, submit
from trainwright.jobs import spec as jobs_spec
from trainwright.jobs.spec import Job, Script
from trainwright.matrix import instances
from trainwright.matrix.instances import Instance
from trainwright.matrix.matrix import Intent, load_intent
from trainwright.publish import twins, uri
from trainwright.schedulers.clusters import Asked


def job(
    root: Path,
    image: str,
    script: str,
    words: Sequence[str],
    *,
    on: str,
    instance: str = "",
    code: str = "",
    **options: Any,
) -> tuple[Job, list[str]]:
    """Return the job, and notes on it for a person. `options` are the further keywords of spec.make.

    Raises ConfigError; NotRunError for an image of the matrix that was not pushed.
    """
    jobs_spec.check_on(on)
    for said_as, name in (("IMAGE", image), ("SCRIPT", script)):
        if not name.isprintable():  # the emitted file has both in comments, too
            raise ConfigError(f"{name!r} has unprintable characters", where=said_as)
    settings, devices = jobs_spec.load_settings(root), gate_spec.load_settings(root).kubernetes
    intent = load_intent(root)
    what = _named(intent, run.subject(root, image, on, intent))
    run.check_hosts(what.reference, on, [])
    instance, row = _type(intent, what.id, instance.removeprefix("ml."))
    made = jobs_spec.make(
        settings,
        devices,
        row or _undescribed(instance),
        on=on,
        instance=instance,
        image=what.reference,
        components=what.pins,
        script=_script(settings, on, script, code),
        words=words,
        token=new_token(),
        here=str(Path.cwd()),
        **options,
    )
    made, said = _compressed(intent, image, made, options.get("asked"))
    said += _fit(intent, what.id, made, row)
    if needs := made.script.requirements:
        said.append(f"each host installs {needs}{', if it has one,' if code else ''} before the script starts")
    if left := _alone(made, script):
        said.append(f"only {made.script.path} is sent, not {', '.join(left)} beside it: --code CLAIM mounts a folder")
    if made.script.text is None and not made.script.code:
        said.append(f"{made.script.path} does not exist here: it is used as a path in the image")
    if made.script.code and not code and not made.kubernetes:
        said.append(f"every node must see the folder {made.script.code}: it is mounted as {settings.folders.code}")
    said += made.notes
    if "@sha256:" not in made.image and not tags.is_immutable(made.image):
        said.append(f"{made.image} has no digest: its tag may change between two starts")
    return made, said


def _compressed(intent: Intent, image: str, made: Job, asked: Asked | None) -> tuple[Job, list[str]]:
    """Return the job with the image's zstd twin if its nodes take that, else unchanged; and a note.

    Only an id names a twin, by what the last push recorded: an address is used as it is. Raises ConfigError,
    NotRunError if the user asks for a twin that is not known.
    """
    said, recipe = bool(asked and asked.zstd), recorded.find(intent, image)
    if recipe is None:
        if said and not tags.is_twin(made.image.rpartition(":")[2]):
            fix = "name the twin by its own address (trainwright uri ID --zstd), or leave --zstd out"
            raise ConfigError(
                "--zstd requires the id of an image", where="--zstd", why=f"{image} is an address", fix=fix
            )
        return made, []
    if not made.cluster.zstd:
        return made, []
    if twin := twins.known_address(recipe, made.image):
        return made.model_copy(update={"image": twin}), [
            f"the nodes pull the zstd twin of {image}: {twin}; --gzip: {made.image}"
        ]
    if said:
        again = twins.AGAIN if intent.find(image) else twins.GRAFT_AGAIN
        raise twins.none(image, f"out/{image}/twin.json", again)
    return made, []


def new_token() -> str:
    """Return what tells the objects of this submission from those of another one."""
    return secrets.token_hex(3)


def _named(intent: Intent, what: run.Subject) -> run.Subject:
    """Resolve a reference to an image of the matrix, or to a graft of this checkout, to its id, as `launch` does."""
    root, reference = intent.root, what.reference
    identity = what.id or uri.identity_of(root, intent, reference) or recorded.identity_of(root, reference)
    recipe = None if what.id else recorded.find(intent, identity)
    if recipe is None:
        return what
    pins = dict.fromkeys(recipe.pins, "")
    return what.model_copy(update={"id": identity, "pins": pins})


def _type(intent: Intent, identity: str, name: str) -> tuple[str, Instance | None]:
    """Resolve the instance type as `uri` and `launch` do; images for CPUs need none.

    A type that is known only by its name has no table row: None. Raises ConfigError for a missing or unknown type.
    """
    instances.refuse(intent.root, name)
    table = intent.instances
    if name in table:
        return name, table[name]
    if name:
        known = submit.known_types()
        if name not in known:
            raise instances.unknown(name, {**table, **dict.fromkeys(known)}, "--instance")
        return name, None
    recipe = recorded.find(intent, identity)
    if recipe and recipe.variant.accelerator == "cpu":
        return "", None
    why = (
        "the image uses GPUs, and the type sets their number per host" if recipe else "the image's contents are unknown"
    )
    why += "; only CPU images of the matrix need none"
    raise ConfigError("no instance type was given", where="--instance", why=why, fix="--instance p5.48xlarge")


def _undescribed(name: str) -> Instance:
    sagemaker = f"ml.{name}" if f"ml.{name}" in submit.instance_types() else ""
    return Instance(efa=0, architecture=instances.architecture(name), sagemaker=sagemaker)


def _fit(intent: Intent, identity: str, made: Job, row: Instance | None) -> list[str]:
    if not made.instance:
        return ["no --instance: the job requests neither an instance type nor devices"]
    if not identity:
        return [] if row else [fit.unknown(made.instance)]
    tcp = "" if made.environment.get(fit.ALLOW_TCP) == "1" else f"--env {fit.ALLOW_TCP}=1"
    recipe = recorded.find(intent, identity) or intent.recipe(identity)
    return fit.trains(recipe, made.instance, row, made.nodes, tcp)


def refuse_near(words: Iterable[str], options: Iterable[str]) -> None:
    """Refuse an argument of the user's script that looks like a misspelt option of this command. Raises ConfigError.

    Because a user who asks for four nodes must get four, a misspelt option is not passed on silently. A word with =
    always belongs to the script, and so does one of our options after --.
    """
    known = list(options)
    for word in words:
        match = contract.NAME.fullmatch(word)
        if word.startswith("--") and match and match[2] is None and match[1] not in known:
            near = difflib.get_close_matches(match[1], known, n=1, cutoff=contract.NEAR)
            if near:
                fix = f"--{near[0]}; if it belongs to the script: {word}=VALUE"
                raise ConfigError(f"unknown option {word}", why=f"did you mean --{near[0]}?", fix=fix)


def _script(settings: jobs_spec.Settings, on: str, script: str, code: str) -> Script:
    """Return where the hosts find the script: a local file is sent along (Kubernetes), or its folder is shared."""
    path = Path(script)
    if code:
        inside = script.removeprefix(f"{settings.folders.code}/")
        if inside.startswith("/") or ".." in Path(inside).parts:
            raise ConfigError(f"{script} is not in --code {code}", where="SCRIPT", fix="name a path in that folder")
        return Script(path=inside, code=code, requirements=prepare.REQUIREMENTS)
    if not path.is_file():
        if path.is_absolute():
            return Script(path=script)
        why = "a script is a local file, a path in --code, or an absolute path in the image or a mount"
        fix = "name the file, or --code SOURCE"
        raise ConfigError(f"script {script} does not exist", where=str(Path.cwd()), why=why, fix=fix)
    if not jobs_spec.on_kubernetes(on):
        whole, here = path.resolve(), Path.cwd().resolve()
        source.refuse_hiding(source.modules(whole.parent), path.parent)
        if path.is_absolute() or not whole.is_relative_to(here):
            here = whole.parent
        beside = whole.with_name(prepare.REQUIREMENTS)
        needs = str(beside.relative_to(here)) if beside.is_file() else ""
        return Script(path=str(whole.relative_to(here)), code=str(here), requirements=needs)
    if not jobs_spec.KEY.fullmatch(path.name):
        why = "the script is sent in a ConfigMap, whose keys have only ASCII letters, digits, . _ and -"
        raise ConfigError(
            f"{path.name!r} is not a valid name on Kubernetes", where=script, why=why, fix="rename it, or --code CLAIM"
        )
    beside = path.with_name(prepare.REQUIREMENTS)
    sent = {one.name: _text(one) for one in (path, beside) if one.is_file()}
    if len("".join(sent.values()).encode()) > (most := settings.kubernetes.script_bytes):
        why = f"a ConfigMap holds at most {most} bytes"
        raise ConfigError(f"{script} is too long to be sent", where=script, why=why, fix="--code CLAIM")
    prepare.refuse_other_files(sent.get(beside.name, "").splitlines(), str(beside))
    source.refuse_hiding([path.name], path.parent)
    text = sent.pop(path.name)
    return Script(path=path.name, text=text, requirements=next(iter(sent), ""), beside=sent)


def _text(path: Path) -> str:
    """Return a file exactly: a carriage return belongs to a script. Raises ConfigError."""
    try:
        return path.read_bytes().decode()
    except (UnicodeDecodeError, OSError) as error:
        raise ConfigError(
            f"{path} cannot be read as text", where=str(path), why=str(error), fix="--code CLAIM"
        ) from None


def _alone(job: Job, script: str) -> list[str]:
    """Return the modules beside a script that is sent alone: its imports of them would fail."""
    if job.script.text is None:
        return []
    return sorted(one.name for one in Path(script).parent.glob("*.py") if one.name != job.script.path)
