"""Talk to the Docker engine: frequent queries go to its socket, builds to buildx, everything else to docker's SDK.

The SDK cannot use BuildKit, and importing it takes longer than the rest of `plan` (`docker/engine_socket.py`).
"""

import io
import json
import os
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast
from urllib.parse import quote

from trainwright.core import store
from trainwright.core.errors import BuildError, EnvironmentProblem, NotRunError
from trainwright.core.files import PIECE, Pieces, unpack
from trainwright.core.process import run
from trainwright.docker import buildx as docker_buildx
from trainwright.docker import canonical
from trainwright.docker.buildx import Builder
from trainwright.docker.canonical import Packed
from trainwright.docker.engine_socket import get, silent

if TYPE_CHECKING:
    from docker import DockerClient

OK, BAD_REQUEST, NOT_FOUND = 200, 400, 404
# Limits for a script that runs in an image, which may be untrusted. In bytes: loading a framework takes less than a
# quarter of the memory; libraries start a thread per CPU; the output is a megabyte at most.
ASKED_MEMORY, ASKED_PROCESSES, ASKED_ANSWER = 8 << 30, 4096, "64m"
PING_SECONDS, CALL_SECONDS = 5, 600  # timeout of a ping; longest silence of a working engine

# Folders where docker clients look for plugins. The plugin is called directly, so a docker client without plugins
# earlier in PATH does not matter.
PLUGINS = (
    "~/.docker/cli-plugins",
    "/usr/local/libexec/docker/cli-plugins",
    "/usr/local/lib/docker/cli-plugins",
    "/usr/libexec/docker/cli-plugins",
    "/usr/lib/docker/cli-plugins",
)


@cache
def client() -> "DockerClient":
    """Return a connected SDK client. Raises EnvironmentProblem if no engine answers."""
    import docker  # imported lazily: it takes longer than everything else on the way to "nothing to do"

    try:
        docker.from_env(timeout=PING_SECONDS).ping()
        connected = docker.from_env(timeout=CALL_SECONDS)
    except (docker.errors.DockerException, OSError) as error:
        raise silent(error) from None
    return connected


@contextmanager
def patient() -> Iterator["DockerClient"]:
    """Yield a client without a read timeout, for hours of silence. Raises EnvironmentProblem if no engine answers."""
    import docker

    client()
    with closing(docker.from_env(timeout=None)) as waiting:
        yield waiting


def answers() -> bool:
    try:
        said = get("/_ping", PING_SECONDS)
        if said is None:
            client()
    except EnvironmentProblem:
        return False
    return said is None or said[0] == OK


@cache
def buildx() -> Path:
    """Return the path of the buildx plugin. Raises EnvironmentProblem if it is not installed."""
    config = os.environ.get("DOCKER_CONFIG")
    for folder in ([f"{config}/cli-plugins"] if config else []) + list(PLUGINS):
        plugin = Path(folder, "docker-buildx").expanduser()
        if os.access(plugin, os.X_OK):
            return plugin
    raise EnvironmentProblem("buildx is not installed", why=f"looked in {', '.join(PLUGINS)}", fix="make engine")


def buildx_version() -> str:
    """Return the version of the plugin in use; "" if it prints none. Raises EnvironmentProblem if it does not run."""
    plugin = buildx()
    words = run([plugin, "version"], error=EnvironmentProblem, fix=f"mv {plugin} /tmp/ && make engine").split()
    return words[1].removeprefix("v") if len(words) > 1 else ""


def facts() -> dict[str, Any]:
    """Return the engine's version, image store and root folder."""
    info = client().info()
    containerd = any("containerd" in str(row) for row in info.get("DriverStatus") or [])
    return {
        "version": info["ServerVersion"],
        "image_store": "containerd" if containerd else info["Driver"],
        "root": info["DockerRootDir"],
    }


def image_id(name: str) -> str | None:
    """Return the digest of an image's manifest, by which a registry names it; None where the engine has no such image.

    The containerd image store names an image by that digest. The older store names it by its configuration, and knows
    the manifest only of an image that trainwright packed or a registry sent: for any other one, the digest of the
    configuration is returned. Raises EnvironmentProblem.
    """
    if (said := _attributes(name)) is None:
        return None
    pulled = {str(row).partition("@")[2] for row in said.get("RepoDigests") or []}
    return canonical.digest_of(said["Id"]) or (pulled.pop() if len(pulled) == 1 else str(said["Id"]))


def _attributes(name: str) -> dict[str, Any] | None:
    """Return the engine's description of an image, or None if it has no such image. Raises EnvironmentProblem."""
    if said := get(f"/images/{quote(name, safe='/:')}/json", CALL_SECONDS):
        status, content = said
        if status in (BAD_REQUEST, NOT_FOUND):  # BAD_REQUEST: the name is invalid
            return None
        if status != OK:
            why = content.decode(errors="replace").strip()
            raise EnvironmentProblem(f"the engine cannot be queried for the image {name}", why=why, fix="docker info")
        return dict(json.loads(content))
    import docker

    try:
        return dict(client().images.get(name).attrs)
    except docker.errors.ImageNotFound:
        return None
    except docker.errors.APIError as error:
        if error.status_code == BAD_REQUEST:  # the name is invalid
            return None
        raise


def labels(name: str) -> dict[str, str]:
    """Return the labels of an image that the engine holds."""
    return dict(client().images.get(name).labels or {})


def layers(name: str) -> list[str]:
    """Return the digests of an image's unpacked layers, lowest first."""
    return [str(digest) for digest in client().images.get(name).attrs["RootFS"].get("Layers") or []]


def layers_of_images(pattern: str) -> Iterator[list[str]]:
    """Yield the digests of the unpacked layers, lowest first, of each image whose name fits a pattern."""
    import docker

    for row in client().api.images(filters={"reference": pattern}):
        with suppress(docker.errors.ImageNotFound):  # another process has removed it since the list was made
            yield layers(row["Id"])


def config(name: str) -> dict[str, Any]:
    """Return an image's configuration for containers: Env, Entrypoint, User and more."""
    return dict(client().images.get(name).attrs["Config"] or {})


def pull_only(uri: str, who: tuple[str, str] | None = None) -> None:
    """Pull an image without adding a name of ours. `who` is user and password; None: docker's own credentials.

    Raises EnvironmentProblem.
    """
    with told(f"{uri} cannot be pulled"):
        client().images.pull(uri, auth_config=_login(who))


def _login(who: tuple[str, str] | None) -> dict[str, str] | None:
    return {"username": who[0], "password": who[1]} if who else None


def read_file(reference: str, path: str, pull: bool = True) -> str:
    """Return one file of an image, which is pulled first by default; nothing in it runs. Raises EnvironmentProblem."""
    with told(f"{path} of {reference} cannot be read"):
        if pull:
            client().images.pull(reference)
        made = client().containers.create(reference, command="none")
        try:
            packed = b"".join(made.get_archive(path)[0])
        finally:
            made.remove(force=True)
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        member = archive.extractfile(Path(path).name)
        return member.read().decode(errors="replace") if member else ""


def pull(uri: str, name: str, who: tuple[str, str] | None = None) -> str:
    """Pull an image, tag it with the name it would have if built here, and return its id."""
    with told(f"{uri} cannot be pulled"):
        pulled = client().images.pull(uri, auth_config=_login(who))
        pulled.tag(name)
    return str(pulled.id)


@cache
def builder() -> Builder:
    """Return the builder that buildx uses: BUILDX_BUILDER's, that of the docker context, or the engine's own."""
    what = "buildx cannot describe its builder"
    try:
        said = run([buildx(), "--debug", "inspect", "--bootstrap"], error=NotRunError, what=what)
    except NotRunError:  # an older buildx lists no features
        said = run([buildx(), "inspect", "--bootstrap"], error=EnvironmentProblem, what=what, fix=docker_buildx.FIX)
    return docker_buildx.parse(said)


def builds_itself() -> bool:
    """Return whether the builder is the BuildKit of the same engine that is queried for images."""
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
        return False  # the builder counts as another engine, and its results are loaded into this one


def tag(image: str, name: str) -> None:
    """Add a name to an image that the engine holds."""
    with told(f"{image} cannot be tagged as {name}"):
        client().images.get(image).tag(name)


def remove(name: str) -> None:
    """Remove a name of an image, and the image with its last name; do nothing if the name does not exist."""
    import docker

    with told(f"{name} cannot be removed"), suppress(docker.errors.ImageNotFound):
        client().images.remove(name, force=True)


def prune_cache(limit: str) -> None:
    """Remove build cache, the longest unused first, until at most `limit` is left, such as 4GB or 0.

    Raises EnvironmentProblem.
    """
    words: list[str | Path] = [buildx(), "prune", "--all", "--force"]
    what, fix = "the build cache cannot be pruned", "docker buildx du"
    if limit == "0":
        run(words, error=EnvironmentProblem, what=what, fix=fix)
        return
    try:
        run([*words, "--max-used-space", limit], error=NotRunError)
    except NotRunError as error:
        if "unknown flag" not in error.why:
            raise EnvironmentProblem(what, where=error.where, why=error.why, fix=fix) from None
        run([*words, "--keep-storage", limit], error=EnvironmentProblem, what=what, fix=fix)  # an older buildx


def check(dockerfile: Path, contexts: Iterable[str], args: Mapping[str, str]) -> dict[str, Any]:
    """Return the result of BuildKit's check of a Dockerfile: "warnings", and "buildError" if it is not valid.

    Nothing is built, pulled or tagged: an empty folder replaces every context, including the images that stages start
    from. (`bake --call=check` is not used, because it exports: it gives an empty image the real one's name.) Raises
    EnvironmentProblem if the check gives no answer.
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
        raise EnvironmentProblem("BuildKit's check returned no JSON", why=said[-500:] or "it printed nothing") from None


@contextmanager
def told(what: str) -> Iterator[None]:
    """Convert errors and timeouts of the engine to EnvironmentProblem."""
    import docker
    import requests

    try:
        yield
    except (docker.errors.DockerException, requests.RequestException) as error:
        why = getattr(error, "explanation", None) or str(error)
        raise EnvironmentProblem(what, why=str(why), fix="make doctor") from None


@contextmanager
def container(name: str, **options: Any) -> Iterator[Any]:
    """Start a container of an image and yield it; remove it afterwards in every case."""
    started = client().containers.run(name, detach=True, **options)
    try:
        yield started
    finally:
        started.remove(force=True, v=True)


def ask(name: str, script: str, *words: str, entrypoint: list[str] | None = None) -> Any:
    """Run a Python script as root in an image with these arguments; return its parsed JSON output. Raises BuildError.

    The container has no network, no privilege but reading all files, and limits on memory, processes and output.
    `entrypoint` replaces the image's own; an empty list disables it.
    """
    with (
        told(f"{name} cannot be probed"),
        container(
            name,
            command=["python", "-c", script, *words],
            entrypoint=entrypoint,
            user="0",
            cap_drop=["ALL"],
            cap_add=["DAC_OVERRIDE"],  # to read files of other users
            security_opt=["no-new-privileges"],
            network_mode="none",
            mem_limit=ASKED_MEMORY,
            memswap_limit=ASKED_MEMORY,
            pids_limit=ASKED_PROCESSES,
            log_config={"Type": "json-file", "Config": {"max-size": ASKED_ANSWER}},  # beyond it, the log starts over
        ) as running,
    ):
        status = running.wait(timeout=CALL_SECONDS)["StatusCode"]
        printed = running.logs(stdout=True, stderr=False).decode(errors="replace")
        if status:
            raise BuildError(
                f"{name} cannot be probed",
                why=running.logs(stdout=False, stderr=True).decode(errors="replace")[-2000:],
                fix=f"docker run --rm -it {name} python",
            )
    try:
        return json.loads(printed)
    except (ValueError, RecursionError):
        raise BuildError(f"{name} cannot be probed", why=f"it printed {printed[-2000:]!r}") from None


def save(name: str, target: Path) -> None:
    """Write the image as an OCI layout to a folder, packed as it ships. Raises EnvironmentProblem, BuildError."""
    canonical.lay_out(packed(name), target)


def packed(name: str) -> Packed:
    """Return an image of the engine in the form in which it ships. Raises EnvironmentProblem, BuildError."""
    with told(f"{name} cannot be saved"):
        identity = str(client().images.get(name).id)
    if found := canonical.known(identity):
        return found
    with store.scratch() as folder:
        save_as_it_is(name, folder / "layout")
        return canonical.pack(folder / "layout", identity)


def save_as_it_is(name: str, target: Path) -> None:
    """Write the image as an OCI layout to a folder, as the engine exports it. Raises EnvironmentProblem."""
    target.mkdir()
    with told(f"{name} cannot be saved"):
        pieces = client().images.get(name).save(chunk_size=PIECE, named=True)
        try:
            with tarfile.open(fileobj=cast(IO[bytes], io.BufferedReader(Pieces(pieces), PIECE)), mode="r|") as archive:
                unpack(archive, target)
        except (OSError, tarfile.TarError) as error:
            raise EnvironmentProblem(
                f"{name} cannot be saved", where=str(target), why=str(error), fix="df -h"
            ) from None
