"""Run apt for a host without it, in a container of the first packages of a locked base: apt and its dependencies."""

import shlex
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from http import HTTPStatus
from pathlib import Path

from trainwright.core import mirrors, store
from trainwright.core.errors import EnvironmentProblem, TrainwrightError
from trainwright.docker import engine
from trainwright.image import bootstrap, inputs
from trainwright.lock.lockfile import digest
from trainwright.matrix.matrix import Intent
from trainwright.resolve import apt
from trainwright.resolve.apt import Apt

NAME = "trainwright/apt"
LABEL = "io.trainwright.workplace"
LIMIT_SECONDS = 3600  # a container that was left behind ends after this time


def apt_of(intent: Intent, base: str) -> Apt | None:
    """Return None if this host resolves the base's packages, else a function that enters a container with apt.

    The container's image is created if needed. Raises EnvironmentProblem if neither is possible.
    """
    if apt.has_apt(intent.components.bases[base]):
        return None
    return inside(image(intent, base))


def inside(image: str) -> Apt:
    """Return a function that enters a container of an image, with this host's proxy."""
    return partial(workplace, image, env=mirrors.proxies())


def image(intent: Intent, base: str) -> str:
    """Return the name of an image with apt and the distribution's keyring: the first packages of a base like this one.

    Because apt resolves for any architecture and release of its distribution, any locked base that runs on this engine
    fits; the base itself comes first. Raises EnvironmentProblem if none fits.
    """
    bases, definition = intent.components.bases, intent.components.bases[base]
    machine = str(engine.client().version()["Arch"])
    fit = [
        name
        for name in sorted(bases, key=lambda name: (name != base, bases[name].suite != definition.suite, name))
        if (bases[name].distribution, bases[name].architecture) == (definition.distribution, machine)
        and bases[name].provider == "packages"
        and inputs.packages_path(intent, name).exists()
    ]
    if not fit:
        raise EnvironmentProblem(
            f"the packages of {base} cannot be resolved on this host",
            why=f"this host has no apt-get with {apt.keyring(definition)}, and no {definition.distribution} base for "
            f"{machine} is locked yet, in which apt could run",
            fix=f"trainwright lock   # once, on a {definition.distribution} host",
        )
    state = inputs.read_distribution(intent, fit[0], as_locked=True)
    locked = state.as_locked
    held = [locked[name] for name in bootstrap.first(state.locked)]
    name = f"{NAME}:{digest([bootstrap.FORMAT, state.epoch, *(package.sha256 for package in held)])[:16]}"
    if engine.image_id(name) is None:
        lost = store.fetch(apt.wanted(bases[fit[0]], held, state.epoch))
        if lost:
            raise EnvironmentProblem(
                f"the packages of {base} cannot be resolved on this host",
                why=f"this host has no apt-get; apt could run in a container of {fit[0]}, but {len(lost)} of its "
                f"locked packages cannot be fetched: {next(iter(lost.values()))}",
                fix=f"trainwright lock --update --write   # on a {definition.distribution} host",
            )
        with store.scratch() as folder:
            bootstrap.first_tar(state.locked, state.epoch, folder / "first.tar")
            with engine.told(f"the image {name} cannot be created"):
                engine.client().api.import_image_from_file(str(folder / "first.tar"), *name.split(":"))
    return name


@contextmanager
def workplace(
    image: str, files: Iterable[Path], folders: Iterable[Path], env: Mapping[str, str]
) -> Iterator[Callable[..., str]]:
    """Run a container in this host's network; yield a function that runs a command in it as root, like process.run().

    `files` (a folder: with all its content) are copied to the same path in the container, so that the engine may be on
    another machine; `folders` are mounted read-only at their own path. The container is removed afterwards with all its
    content, including credentials; if this process was killed, it is removed when its time limit ends.
    """
    import docker

    packed = tempfile.TemporaryFile()  # noqa: SIM115  # closed below; hundreds of packages do not fit into memory
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for file in files:
            archive.add(file, filter=lambda entry: entry.replace(uid=0, gid=0, uname="", gname="", deep=False))
    packed.seek(0)

    def run_there(
        command: Sequence[str | Path], *, error: type[TrainwrightError], what: str = "", fix: str = ""
    ) -> str:
        words = [str(word) for word in command]
        done = made.exec_run(words, demux=True)
        out, err = ((part or b"").decode(errors="replace") for part in done.output)
        if done.exit_code:
            last = "\n".join((err or out).strip().splitlines()[-15:])
            raise error(
                what or f"{words[0]} failed with exit code {done.exit_code}",
                where=f"{shlex.join(words)}, in a container of {image}",
                why=last,
                fix=fix,
            )
        return out

    with packed, engine.told(f"{image} cannot be run"):
        made = engine.client().containers.create(
            image,
            entrypoint=["sleep", str(LIMIT_SECONDS)],
            command=[],
            user="0",
            network_mode="host",
            environment=dict(env),
            volumes={str(folder): {"bind": str(folder), "mode": "ro"} for folder in folders},
            labels={LABEL: ""},
            security_opt=["label=disable"],  # otherwise SELinux requires the folders relabelled
            auto_remove=True,
        )
        try:
            made.put_archive("/", packed)
            made.start()
            yield run_there
        finally:
            try:
                made.remove(force=True, v=True)
            except docker.errors.APIError as error:  # its time limit ended: it is gone, or the engine is removing it
                if error.status_code not in (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT):
                    raise
