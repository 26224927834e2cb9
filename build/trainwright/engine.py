"""The Docker engine: docker's SDK inspects, runs and saves; `docker-buildx bake` builds (the SDK cannot)."""

import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

from trainwright import builders
from trainwright.bake import IMAGE_OUTPUT
from trainwright.builders import Builder
from trainwright.errors import BuildError, EnvironmentProblem, NotRunError
from trainwright.process import run

if TYPE_CHECKING:
    from docker import DockerClient

BAD_REQUEST = 400
CONTAINERD_FIX = 'set {"features": {"containerd-snapshotter": true}} in the daemon\'s configuration, and restart it'
PING_SECONDS, CALL_SECONDS = 5, 600  # an engine that says nothing, and the longest silence while it works

# Where docker clients look for plugins. We call the plugin itself, so that a bare client in front of PATH does
# not matter.
PLUGINS = (
    "~/.docker/cli-plugins",
    "/usr/local/libexec/docker/cli-plugins",
    "/usr/local/lib/docker/cli-plugins",
    "/usr/libexec/docker/cli-plugins",
    "/usr/lib/docker/cli-plugins",
)


@cache
def client() -> "DockerClient":
    """A connected SDK client. Raises EnvironmentProblem when no engine answers."""
    import docker  # lazily: it costs more than everything else on the way to "nothing to do"

    try:
        docker.from_env(timeout=PING_SECONDS).ping()
        connected = docker.from_env(timeout=CALL_SECONDS)
    except (docker.errors.DockerException, OSError) as error:
        raise EnvironmentProblem(
            "no Docker engine answers",
            where=os.environ.get("DOCKER_HOST", "the default socket"),
            why=str(error).splitlines()[0],
            fix="unset DOCKER_HOST" if "DOCKER_HOST" in os.environ else "make engine",
        ) from None
    return connected


@contextmanager
def patient() -> Iterator["DockerClient"]:
    """A client for what may be silent for hours, as a training job is. Raises EnvironmentProblem when none answers."""
    import docker

    client()
    with closing(docker.from_env(timeout=None)) as waiting:
        yield waiting


def answers() -> bool:
    try:
        client()
    except EnvironmentProblem:
        return False
    return True


@cache
def buildx() -> Path:
    """The buildx plugin. Raises EnvironmentProblem when there is none."""
    config = os.environ.get("DOCKER_CONFIG")
    for folder in ([f"{config}/cli-plugins"] if config else []) + list(PLUGINS):
        plugin = Path(folder, "docker-buildx").expanduser()
        if os.access(plugin, os.X_OK):
            return plugin
    raise EnvironmentProblem("buildx is not installed", why=f"looked in {', '.join(PLUGINS)}", fix="make engine")


def buildx_version() -> str:
    """Of the plugin that we call; "" where it says none. Raises EnvironmentProblem where it does not run."""
    plugin = buildx()
    words = run([plugin, "version"], error=EnvironmentProblem, fix=f"mv {plugin} /tmp/ && make engine").split()
    return words[1].removeprefix("v") if len(words) > 1 else ""


def facts() -> dict[str, Any]:
    """What the engine says of itself: version, image store, root folder."""
    info = client().info()
    containerd = any("containerd" in str(row) for row in info.get("DriverStatus") or [])
    return {
        "version": info["ServerVersion"],
        "image_store": "containerd" if containerd else info["Driver"],
        "root": info["DockerRootDir"],
    }


def image_id(name: str) -> str | None:
    """The engine's id of an image; None where it holds none of that name."""
    import docker

    try:
        return str(client().images.get(name).id)
    except docker.errors.ImageNotFound:
        return None
    except docker.errors.APIError as error:
        if error.status_code == BAD_REQUEST:  # of a name that can be none
            return None
        raise


def labels(name: str) -> dict[str, str]:
    """Labels of an image that the engine holds."""
    return dict(client().images.get(name).labels or {})


def layers(name: str) -> list[str]:
    """Digests of an image's unpacked layers, lowest first."""
    return [str(digest) for digest in client().images.get(name).attrs["RootFS"].get("Layers") or []]


def config(name: str) -> dict[str, Any]:
    """What an image tells the engine of its processes: Env, Entrypoint, User and more."""
    return dict(client().images.get(name).attrs["Config"] or {})


def pull_only(uri: str, who: tuple[str, str] | None = None) -> None:
    """An image from a registry, under no other name. `who` is user and password; None: what docker knows itself.

    Raises EnvironmentProblem.
    """
    with told(f"{uri} cannot be pulled"):
        client().images.pull(uri, auth_config=_login(who))


def _login(who: tuple[str, str] | None) -> dict[str, str] | None:
    return {"username": who[0], "password": who[1]} if who else None


def read_file(reference: str, path: str) -> str:
    """One file of an image, pulled if need be; nothing of it runs. Raises EnvironmentProblem."""
    with told(f"{path} of {reference} cannot be read"):
        client().images.pull(reference)
        made = client().containers.create(reference, command="none")
        try:
            packed = b"".join(made.get_archive(path)[0])
        finally:
            made.remove(force=True)
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        member = archive.extractfile(Path(path).name)
        return member.read().decode() if member else ""


def pull(uri: str, name: str, who: tuple[str, str] | None = None) -> str:
    """An image from a registry, under the name it would have had if it were built here; its id."""
    with told(f"{uri} cannot be pulled"):
        pulled = client().images.pull(uri, auth_config=_login(who))
        pulled.tag(name)
    return str(pulled.id)


def must_keep_layers() -> None:
    """Raises EnvironmentProblem for another image store than containerd's.

    Only that one keeps the compressed layers, and with them the digest that an image will have.
    """
    if (store := facts()["image_store"]) != "containerd":
        raise EnvironmentProblem(
            "this engine cannot say which digest an image will have",
            why=f"its image store is {store}; a push by digest needs the containerd image store",
            fix=CONTAINERD_FIX,
        )


@cache
def builder() -> Builder:
    """The builder that buildx takes: BUILDX_BUILDER's, that of the docker context, or the engine's own."""
    what = "buildx cannot be asked who builds"
    try:
        said = run([buildx(), "--debug", "inspect", "--bootstrap"], error=NotRunError, what=what)
    except NotRunError:  # an older buildx tells no features
        said = run([buildx(), "inspect", "--bootstrap"], error=EnvironmentProblem, what=what, fix=builders.FIX)
    return builders.parse(said)


def builds_itself() -> bool:
    """Whether the builder is the BuildKit of the very engine that we ask for images."""
    import docker

    found = builder()
    if found.driver != "docker":
        return False
    if found.endpoint == "default":
        return True
    try:
        place = docker.ContextAPI.get_context(found.endpoint)
        other = docker.DockerClient(base_url=place.Host, tls=place.TLSConfig or False, timeout=PING_SECONDS)
        return bool(other.info()["ID"] == client().info()["ID"])
    except (AttributeError, docker.errors.DockerException, OSError):
        return False  # then what it builds is brought here


def bake(folder: Path, name: str = "", words: Sequence[str] = ()) -> None:
    """Build out/<id>/ as it lies there; with `name`, the image gets that name instead of its own.

    An image that another builder made is loaded into the engine. Raises BuildError; BuildKit's own progress goes to
    standard error. `words` go to bake.
    """
    client()
    target = json.loads((folder / "docker-bake.json").read_text())["target"]["image"]
    makes_image, here = target["output"] == [IMAGE_OUTPUT], builds_itself()
    if not here:
        scheme = "docker-image://"
        held = (place.removeprefix(scheme) for place in target["contexts"].values() if place.startswith(scheme))
        builders.must_hold(builder(), held)
    own = [*words, *(["--set", f"image.tags={name}"] if name else [])]
    with tempfile.TemporaryDirectory(dir=folder, prefix=".built-") as made:
        brought = Path(made) / "image.tar" if makes_image and not here else None
        if brought:
            output = f"type=docker,oci-mediatypes=false,dest={brought.relative_to(folder)}"
            own += ["--set", f"image.output={output}"]
        run(
            [buildx(), "bake", "--file", "docker-bake.json", *own],
            cwd=folder,
            error=BuildError,
            what=f"the build of {folder.name} failed",
            fix=f"cd {folder} && docker buildx bake",
            show=True,
        )
        if brought:
            with told(f"what the builder {builder().name} made cannot be loaded"), brought.open("rb") as file:
                client().images.load(file)


def tag(image: str, name: str) -> None:
    """One more name for an image that the engine holds."""
    with told(f"{image} cannot be called {name}"):
        client().images.get(image).tag(name)


def remove(name: str) -> None:
    """Take a name of an image away, and the image with its last name; nothing where there is none."""
    import docker

    with told(f"{name} cannot be removed"), suppress(docker.errors.ImageNotFound):
        client().images.remove(name, force=True)


def check(dockerfile: Path, contexts: Iterable[str], args: Mapping[str, str]) -> dict[str, Any]:
    """What BuildKit's own check says of a Dockerfile: "warnings", and "buildError" where it is not even valid.

    Nothing is built, pulled or tagged: an empty folder stands in for every context, and an image that a stage starts
    from is a context, too. (`bake --call=check` exports: it gives an empty image the real one's name.)
    Raises EnvironmentProblem where no answer comes.
    """
    with tempfile.TemporaryDirectory() as empty:
        words: list[str | Path] = [
            buildx(),
            "build",
            "--call=check,format=json",
            "--progress=plain",
            "--file",
            dockerfile,
        ]
        for context in contexts:
            words.append(f"--build-context={context}={empty}")
        for name, value in args.items():
            words.append(f"--build-arg={name}={value}")
        said = run([*words, empty], error=EnvironmentProblem, accept=(0, 1), what="BuildKit's check cannot be run")
    try:
        return dict(json.loads(said))
    except ValueError:
        raise EnvironmentProblem("BuildKit's check gave no answer", why=said[-500:] or "it printed nothing") from None


@contextmanager
def told(what: str) -> Iterator[None]:
    """What the engine says no to, or does not answer, as an EnvironmentProblem."""
    import docker
    import requests

    try:
        yield
    except (docker.errors.DockerException, requests.RequestException) as error:
        why = getattr(error, "explanation", None) or str(error)
        raise EnvironmentProblem(what, why=str(why), fix="make doctor") from None


@contextmanager
def container(name: str, **options: Any) -> Iterator[Any]:
    """A running container of an image, gone afterwards whatever happens."""
    started = client().containers.run(name, detach=True, **options)
    try:
        yield started
    finally:
        started.remove(force=True, v=True)


def ask(name: str, script: str, *words: str, entrypoint: list[str] | None = None) -> Any:
    """What a Python script prints, as JSON, when root runs it inside an image with these arguments. Raises BuildError.

    `entrypoint` is taken instead of the image's own; an empty one is none.
    """
    with (
        told(f"{name} cannot be asked"),
        container(
            name,
            command=["python", "-c", script, *words],
            entrypoint=entrypoint,
            user="0",
            network_mode="none",
        ) as running,
    ):
        status = running.wait(timeout=600)["StatusCode"]
        printed = running.logs(stdout=True, stderr=False).decode()
        if status:
            raise BuildError(
                f"{name} cannot be probed",
                why=running.logs(stdout=False, stderr=True).decode()[-2000:],
                fix=f"docker run --rm -it {name} python",
            )
    try:
        return json.loads(printed)
    except ValueError:
        raise BuildError(f"{name} cannot be probed", why=f"it printed {printed[-2000:]!r}") from None


def save(name: str, target: Path) -> None:
    """The image as an OCI layout in a folder, layers as the engine compressed them. Raises EnvironmentProblem."""
    must_keep_layers()
    target.mkdir()
    with told(f"{name} cannot be saved"), tempfile.TemporaryFile() as said:
        unpack = subprocess.Popen(["tar", "-x", "-C", target], stdin=subprocess.PIPE, stderr=said)
        try:
            with suppress(BrokenPipeError), cast(IO[bytes], unpack.stdin) as pipe:  # broken: tar has died, and says why
                for chunk in client().images.get(name).save(chunk_size=1 << 20, named=True):
                    pipe.write(chunk)
            unpack.wait()
        finally:
            unpack.kill()
            unpack.wait()
        if unpack.returncode:
            said.seek(0)
            why = said.read().decode(errors="replace")
            raise EnvironmentProblem(f"{name} cannot be saved", where=str(target), why=why, fix="df -h")


def sbom(layout: Path, target: Path, name: str) -> None:
    """A CycloneDX SBOM of a saved image, by syft; it names no folder of this host. Raises BuildError."""
    run(
        [
            *(Path(sys.executable).with_name("syft"), "scan", f"oci-dir:{layout}", "--source-name", name),
            *("--output", f"cyclonedx-json={target}"),
        ],
        env={
            "SYFT_CHECK_FOR_APP_UPDATE": "false",
            "SYFT_FORMAT_PRETTY": "true",
            "SYFT_FILE_METADATA_SELECTION": "none",
        },
        error=BuildError,
        what="no SBOM could be made",
        fix="make build: it installs syft",
    )
