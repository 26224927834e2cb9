"""Look into an image without trusting it: pull it, read its configuration, and run one script in a closed container."""

import json
import platform
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from pydantic import ValidationError

from trainwright.core.errors import BuildError, EnvironmentProblem, IncompatibleError, RegistryError
from trainwright.core.progress import Say
from trainwright.docker import engine
from trainwright.graft.found import MACHINES, Found, Inside, Settings, config_of, settings
from trainwright.matrix.matrix import Intent
from trainwright.registry import auth, client

SCRIPT = "scripts/look.py"
# Start the script with the first Python that can run it. The image's own names come first, because they are quickest.
START = """
for python in python3 python /usr/bin/python3 /usr/local/bin/python3 /opt/conda/bin/python3 /opt/*/bin/python3; do
    if "$python" -c 'import sys; sys.exit(sys.version_info < (3, 6))' 2>/dev/null; then
        exec "$python" -I -B -c "$@"
    fi
done
echo no python
for file in /lib/ld-musl-*; do [ ! -e "$file" ] || echo musl; done
while read -r line; do echo "$line"; done < /etc/os-release
"""
NOT_STARTED = ("no such file or directory", "permission denied", "exec format error", "not a directory")
# What engines say of a registry, in their two image stores.
OTHER_PLATFORM = ("no matching manifest", "does not match the specified platform", "cannot be used on this platform")
REFUSES = (
    "failed to resolve reference",
    "failed to do request",
    "manifest unknown",
    "not found",
    "connection refused",
    "no such host",
    "access denied",
    "unauthorized",
    "timeout",
    "unexpected status",
)
BELOW = "trainwright/below"  # names images in the engine that no registry has, by their digest


def architecture() -> str:
    """Return this machine's architecture, in the words of image platforms."""
    return MACHINES.get(platform.machine(), platform.machine())


def look(intent: Intent, reference: str, say: Say) -> Found:
    """Bring an image into the engine and describe it. The image's own code runs only in a closed container.

    Raises IncompatibleError for an index without this platform, RegistryError if a registry refuses or does not answer,
    EnvironmentProblem if this machine cannot hold it, BuildError if it answers what no image of this kind can answer.
    """
    if engine.image_id(reference) is None:
        say(f"pulling {reference}")
        _pull(reference)
    with engine.told(f"{reference} cannot be described"):
        attributes: dict[str, Any] = dict(engine.client().images.get(reference).attrs)
    pinned = _pinned(reference, attributes)
    known = settings(intent.root)
    lower = lower_manifest(pinned)
    config = config_of(attributes, [str(row.get("mediaType", "")) for row in (lower or {}).get("layers", [])])
    source = pinned if lower else f"{BELOW}:{pinned.rpartition(':')[2]}"
    names = list(known.frameworks)
    found = Found(reference=reference, pinned=pinned, source=source, config=config, frameworks=names)
    found = found.model_copy(update={"moved": moved(reference, pinned)})
    if (config.os, config.architecture) != ("linux", architecture()):
        return found.model_copy(update={"silent": f"it is for {config.os}/{config.architecture}"})
    say(f"looking into {pinned}")
    inside, silent = _inside(pinned if "@" in pinned else reference, intent, known)
    return found.model_copy(update={"inside": inside, "silent": silent})


def _pull(reference: str) -> None:
    try:
        engine.pull_only(reference, auth.credentials(reference))
    except EnvironmentProblem as error:
        said = error.why.lower()
        if any(sign in said for sign in OTHER_PLATFORM):
            raise IncompatibleError(
                f"{reference} has no image for this machine",
                why=error.why,
                fix=f"run the same command on another machine, or name an image for linux/{architecture()}",
            ) from None
        if "no space left on device" in said:
            fix = "df -h, then the same command again"
            raise EnvironmentProblem(error.what, where=reference, why=error.why, fix=fix) from None
        if any(sign in said for sign in REFUSES):
            host = reference.partition("/")[0]
            fix = f"check the name, that {host} answers, and docker login {host}; then the same command again"
            raise RegistryError(error.what, where=reference, why=error.why, fix=fix) from None
        raise


def _pinned(reference: str, attributes: Mapping[str, Any]) -> str:
    """Return repository@digest; of an image that no registry sent, the engine's id."""
    repository = reference.partition("@")[0]
    if "@" not in reference and ":" in repository.rpartition("/")[2]:
        repository = repository.rpartition(":")[0]
    named = [str(row) for row in attributes.get("RepoDigests") or []]
    own = [row for row in named if row.partition("@")[0].removeprefix("docker.io/") == repository]
    return next(iter([*own, *named]), str(attributes["Id"]))


def lower_manifest(pinned: str) -> dict[str, Any] | None:
    """Return the manifest of a pinned image for this machine, from its registry; None if that does not answer."""
    repository, _, digest = pinned.partition("@")
    if not digest or not re.search("[.:]", repository.partition("/")[0]):  # Docker Hub, or the engine alone
        return None
    with suppress(RegistryError, EnvironmentProblem):
        found = client.manifest(repository, digest)
        for row in found.get("manifests", []):
            place = row.get("platform") or {}
            if (place.get("os"), place.get("architecture")) == ("linux", architecture()):
                return client.image(repository, str(row["digest"]))
        return found if "layers" in found else None
    return None


def moved(reference: str, pinned: str) -> str:
    """Return the digest that a registry has under a tag now, if the engine holds another one; "" if it is the same."""
    repository, _, digest = pinned.partition("@")
    tag = reference.removeprefix(repository).removeprefix(":")
    if "@" in reference or not digest or not tag or not re.search("[.:]", repository.partition("/")[0]):
        return ""
    with suppress(RegistryError, EnvironmentProblem):
        now = client.resolve(repository, tag)
        return "" if now == digest else now
    return ""


def questions(intent: Intent, known: Settings) -> dict[str, Any]:
    """Return what scripts/look.py asks, from the declarations of components."""
    rows: dict[str, Any] = {}
    for name, one in intent.components.components.items():
        asked = one.probe.model_dump(include={"command", "code", "pattern"}, exclude_defaults=True)
        packages = known.frameworks.get(name, [])
        if packages or one.libraries:
            rows[name] = {**asked, "libraries": one.libraries, "packages": packages}
    rows |= {name: {"libraries": globs, "packages": []} for name, globs in known.libraries.items()}
    own = known.look
    return {"components": rows, "paths": own.paths, "pythons": own.pythons, "seconds": own.program_seconds}


def _inside(name: str, intent: Intent, known: Settings) -> tuple[Inside | None, str]:
    """Run the script; return its findings, or None and why nothing starts."""
    script = (intent.root / SCRIPT).read_text()
    said, why = ask(name, known, ["/bin/sh", "-c", START, "look"], [script, json.dumps(questions(intent, known))])
    if why:
        return None, why
    if said.startswith("no python\n"):
        return _without_python(said), ""
    try:
        return Inside.model_validate_json(said), ""
    except (ValidationError, ValueError, RecursionError) as error:
        raise BuildError(
            f"{name} cannot be probed",
            why=f"it printed {said[-500:]!r}, which is not an answer of {SCRIPT}: {str(error)[:300]}",
            fix=f"docker run --rm -it {name} sh",
        ) from None


def ask(name: str, known: Settings, entrypoint: list[str], words: list[str], user: str = "0") -> tuple[str, str]:
    """Run a program in a closed container and return what it printed, or "" and why it does not start.

    The container has no network, no capability but that of reading all files, a read-only file system, and limits of
    memory, processes, time and output. Raises EnvironmentProblem, BuildError if the program fails.
    """
    limits = known.look
    with engine.told(f"{name} cannot be probed"):
        made = engine.client().containers.create(
            name,
            command=words,
            entrypoint=entrypoint,
            user=user,
            working_dir="/",
            environment={"PYTHONDONTWRITEBYTECODE": "1", "HOME": "/tmp"},
            cap_drop=["ALL"],
            cap_add=["DAC_OVERRIDE"],  # to read files of other users
            security_opt=["no-new-privileges"],
            network_mode="none",
            read_only=True,
            tmpfs={"/tmp": "size=1g"},
            mem_limit=f"{limits.memory_gb}g",
            memswap_limit=f"{limits.memory_gb}g",
            pids_limit=limits.processes,
            healthcheck={"test": ["NONE"]},
            log_config={"Type": "json-file", "Config": {"max-size": f"{limits.answer_mb}m"}},
        )
        try:
            if why := _started(made):
                return "", why
            status = _ended(made, name, limits.seconds)
            printed = made.logs(stdout=True, stderr=False).decode(errors="replace")
            failed = made.logs(stdout=False, stderr=True).decode(errors="replace")[-2000:]
        finally:
            made.remove(force=True, v=True)
    if status:
        raise BuildError(
            f"{name} cannot be probed",
            why=f"exit code {status}: {failed or printed[-2000:]}",
            fix=f"docker run --rm -it {name} sh",
        )
    return printed, ""


def _ended(made: Any, name: str, seconds: int) -> int:
    """Wait for a container; return its exit code. Raises BuildError if it takes longer than it may."""
    import requests

    try:
        return int(made.wait(timeout=seconds)["StatusCode"])
    except requests.RequestException as error:
        if "timed out" not in str(error).lower():
            raise
        why = f"it did not end within {seconds} seconds"
        raise BuildError(f"{name} cannot be probed", why=why, fix=f"docker run --rm -it {name} sh") from None


def _started(made: Any) -> str:
    """Start a container; return "", or why its program does not exist. Raises any other error of the engine."""
    from docker.errors import APIError

    try:
        made.start()
    except APIError as error:
        why = str(error.explanation or error)
        if any(sign in why.lower() for sign in NOT_STARTED):
            return f"/bin/sh does not start: {why.rpartition('exec: ')[2] or why}"
        raise
    return ""


def _without_python(said: str) -> Inside:
    lines = said.splitlines()[1:]
    pairs = (line.partition("=") for line in lines)
    return Inside(
        os={name: value.strip("\"'") for name, sign, value in pairs if sign},
        machine=platform.machine(),
        libc="musl" if "musl" in lines else "unknown",
        managers=[],
        pythons=[],
        commands={},
        libraries={},
        loader={"missing": [], "preload": []},
        packages={},
        paths={},
    )
