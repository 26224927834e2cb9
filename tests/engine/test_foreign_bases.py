"""Lock, build and probe rows whose base others made: an rpm distribution in miniature, and a base with Python.

The distribution is made here of Debian's rpm, dnf and createrepo_c (tests/engine/miniature). Its base lies in a
registry on loopback and is named by tag alone, its repositories lie on a server on loopback.
"""

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from uuid import uuid4

import pytest
import tomlkit
from tiny import COMPONENTS, ID, MATRIX, ROOT, plant, store_of_this_run, trainwright

from trainwright.docker import engine
from trainwright.lock import packages
from trainwright.registry import client

pytestmark = [pytest.mark.engine, pytest.mark.slow]
MINIATURE = Path(__file__).parent / "miniature"
TOOLS = ["apt", "ca-certificates", "tzdata", "rpm", "dnf", "createrepo-c", "gpg", "gpg-agent"]
LOCK = "dockerfiles/locks/base.packages"
ROW = """\
[bases.base]
provider = "image"
reference = "{reference}"
distribution = "mini"
suite = "1"
manager = "dnf"
glibc = "2.36"
archives = {{ mini = [] }}
packages = ["mini-tool", "mini-tool++"]
"""


def edited(tree: Path, change: Callable[[Any], None]) -> None:
    path = tree / "dockerfiles/bases.toml"
    document = tomlkit.parse(path.read_text())
    change(document["bases"])
    path.write_text(tomlkit.dumps(document))


def named(tree: Path) -> str:
    return str(json.loads((tree / "out" / ID / "docker-bake.json").read_text())["target"]["image"]["tags"][0])


@pytest.fixture(scope="module")
def label() -> Iterator[str]:
    """Yield a label for every image of this module; remove the images with it afterwards."""
    value = uuid4().hex
    yield value
    own = ["docker", "images", "--quiet", "--filter", f"label=io.trainwright.test={value}"]
    names = set(subprocess.run(own, capture_output=True, text=True, check=True).stdout.split())
    subprocess.run(["docker", "rmi", "--force", *names], capture_output=True)


def relabelled(tree: Path, label: str) -> None:
    """Give the images of a checkout the label of this module in place of their own."""
    path = tree / "dockerfiles/frameworks/image.j2"
    text = path.read_text()
    start = text.index('io.trainwright.test="') + len('io.trainwright.test="')
    path.write_text(text[:start] + label + text[text.index('"', start) :])


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory, label: str) -> Iterator[str]:
    """Build an image with rpm's tools, from Debian's packages, as any image of the matrix is built."""
    with store_of_this_run():
        tree = tmp_path_factory.mktemp("tools") / "tree"
        plant(tree)
        relabelled(tree, label)
        edited(tree, lambda bases: bases["debian-12"].update(packages=TOOLS))
        for words in (["lock"], ["build", "--framework", "tiny"]):
            done = trainwright(tree, *words)
            assert done.returncode == 0, done.stderr
        yield named(tree)


def built(folder: Path, *words: str) -> None:
    done = subprocess.run(
        [engine.buildx(), "build", "--provenance=false", *words, folder], capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def repositories(tools: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("repositories")
    built(MINIATURE, f"--build-arg=TOOLS={tools}", "--target=repositories", f"--output=type=local,dest={folder}")
    return folder


@pytest.fixture(scope="module")
def base(tools: str, registry: str, repositories: Path, label: str) -> str:
    """Push the base image; return its name in the registry, with a tag alone."""
    name = f"{registry}/mini/base:1"
    words = [f"--build-arg=TOOLS={tools}", f"--build-arg=LABEL={label}", "--target=base"]
    # The repositories come from the folder: to make them again, once the cache has let them go, would make other keys.
    words += [f"--build-context=repositories={repositories}", "--no-cache-filter=made"]
    built(MINIATURE, *words, f"--output=type=image,name={name},push=true")
    subprocess.run(["docker", "rmi", name], capture_output=True)
    return name


@pytest.fixture
def served(repositories: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Serve a copy of the repositories as the mirror of mini.invalid; yield its folder."""
    folder = tmp_path / "served"
    shutil.copytree(repositories, folder)

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("TRAINWRIGHT_MIRRORS", f"http://mini.invalid=http://127.0.0.1:{server.server_port}")
        yield folder
        server.shutdown()


@pytest.fixture
def tree(tmp_path: Path, base: str, label: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a checkout with a row on the miniature distribution, and a store of its own."""
    made = tmp_path / "tree"
    plant(made)
    relabelled(made, label)
    (made / "dockerfiles/bases.toml").write_text(ROW.format(reference=base))
    matrix = made / "dockerfiles/matrix.toml"
    matrix.write_text(matrix.read_text().replace('bases = ["debian-12"]', 'bases = ["base"]'))
    monkeypatch.setenv("TRAINWRIGHT_STORE", str(tmp_path / "store"))
    return made


def use(served: Path, name: str) -> None:
    """Serve another repository in place of the good one."""
    shutil.rmtree(served / "good")
    (served / name).rename(served / "good")


def test_rpm_packages_are_locked_built_offline_and_probed(tree: Path, served: Path, base: str) -> None:
    done = trainwright(tree, "lock")
    assert done.returncode == 0, done.stderr
    header, held = packages.parse((tree / LOCK).read_text(), "base")
    assert header["Image"].startswith(f"{base}@sha256:")
    assert held.keys() == {
        *("mini-release", "mini-old", "mini-libs", "mini-tool", "mini-tool++", "python3", "python3.11")
    }
    assert held["mini-libs"]["Version"] == "1:1.5-1.mini1"
    assert held["mini-old"]["Version"] == "2.0-1.mini1"  # that of the base is replaced
    assert (held["mini-release"]["Archive"], held["mini-release"]["SHA256"]) == ("image", "")
    tool = held["mini-tool"]
    assert (tool["Architecture"], tool["Index"], tool["Licence"]) == ("noarch", "signed", "MIT")
    assert tool["Address"] == "http://mini.invalid/good/mini-tool-2.0-1.mini1.noarch.rpm"
    assert len(tool["SHA256"]) == 64
    assert int(tool["Signed-By"], 16)
    assert held["mini-tool++"]["Filename"] == "mini-tool++-1%5E20260101-1.mini1.noarch.rpm"
    assert trainwright(tree, "lock", "--check").returncode == 0
    done = trainwright(tree, "lock", "--update")
    assert "no lock would change" in done.stderr, done.stderr
    shutil.rmtree(served)
    done = trainwright(tree, "build", "--framework", "tiny")
    assert done.returncode == 0, done.stderr
    image = json.loads((tree / "out" / ID / "image.json").read_text())
    assert image["packages"] == {name: stanza["Version"] for name, stanza in held.items()}
    assert image["proof"]["probe"]["state"] == "passed"
    assert image["proof"]["probe"]["detail"].startswith("7 rpm packages and ")
    listed = json.loads((tree / "out" / ID / "sbom.json").read_text())["components"]
    found = {row["name"]: row["version"] for row in listed if row.get("purl", "").startswith("pkg:rpm/")}
    assert found == image["packages"]
    notices = (tree / "out" / ID / "requirements/notices.txt").read_text()
    assert f"mini-tool 2.0-1.mini1\tMIT\t{tool['Address']}\n" in notices
    # A package that the lock does not know, put into the image by a later step.
    step = "RUN rpm --erase --nodeps mini-tool"
    text = (tree / "dockerfiles/frameworks/image.j2").read_text()
    (tree / "dockerfiles/frameworks/image.j2").write_text(text.replace('CMD ["bash"]', f'{step}\nCMD ["bash"]'))
    done = trainwright(tree, "build", "--framework", "tiny")
    assert done.returncode == 5, done.stderr
    assert "rpm package mini-tool: the lock says 2.0-1.mini1 noarch, the image holds nothing" in done.stderr


def refused(tree: Path, code: int, *said: str) -> None:
    done = trainwright(tree, "lock")
    assert done.returncode == code, done.stderr
    for text in said:
        assert text in done.stderr
    assert sum(line.startswith("error: ") for line in done.stderr.splitlines()) == 1
    assert not (tree / LOCK).exists()


def test_a_package_with_another_key_or_without_one_is_refused(tree: Path, served: Path, repositories: Path) -> None:
    use(served, "foreign")
    where = "http://mini.invalid/good/mini-tool-2.0-1.mini1.noarch.rpm"
    refused(tree, 4, "mini-tool-2.0-1.mini1.noarch.rpm of mini has no valid signature", where, "NOKEY")
    use(served, "bare")
    refused(tree, 4, "has no valid signature", "rpm finds no signature in it")
    use(served, "plain")  # an index without a signature is used, as the repository asks for none, and the lock says so
    done = trainwright(tree, "lock")
    assert done.returncode == 0, done.stderr
    assert "Index: without a signature" in (tree / LOCK).read_text()


def test_a_package_with_other_bytes_is_refused(tree: Path, served: Path) -> None:
    path = served / "good/mini-tool-2.0-1.mini1.noarch.rpm"
    content = bytearray(path.read_bytes())
    content[-100] ^= 1
    path.write_bytes(content)
    refused(tree, 5, "the checksum of mini-tool 2.0-1.mini1 does not match")


def test_an_index_that_was_changed_or_is_gone_is_refused(tree: Path, served: Path) -> None:
    index = served / "good/repodata/repomd.xml"
    text = index.read_text()
    index.write_text(text.replace("<revision>", "<revision>1"))
    refused(tree, 10, "the index of a repository of mini cannot be used", "signature")
    index.unlink()
    refused(tree, 10, "the index of a repository of mini cannot be used", "http://127.0.0.1:", "404")
    edited(tree, lambda bases: bases["base"].update(packages=["a-tool"]))
    index.write_text(text)
    refused(tree, 4, "no package is called a-tool: it is provided by mini-tool")
    edited(tree, lambda bases: bases["base"].update(archives={"extra": []}))
    refused(tree, 10, "the image has no repository called extra")


# --- grafts upon an image with rpm ------------------------------------------------------------------------------------

SITE = "/usr/local/lib/python3.11/dist-packages"
TORCH = """\
RUN mkdir -p {site}/torch-2.99.0.dist-info \\
    && echo '__version__ = "2.99.0{local}"' > {site}/torch.py \\
    && printf 'Metadata-Version: 2.1\\nName: torch\\nVersion: 2.99.0{local}\\n' > {site}/torch-2.99.0.dist-info/METADATA
"""
# A team's image on the miniature distribution; nothing of Debian's packages or of trainwright is seen in it.
BELOW = """\
FROM {base}
RUN rm -rf /usr/bin/apt* /usr/local/bin/trainwright-* /etc/pip.conf \\
    && printf 'ID=mini-os\\nVERSION_ID=1\\n' > /etc/os-release
"""
OWN_BASE = """
[bases.mini]
provider = "image"
reference = "mini.invalid/base@sha256:{digest}"
distribution = "mini"
suite = "1"
manager = "dnf"
glibc = "2.36"
archives = {{ mini = [] }}
"""
NAMES = {
    "libfabric": ["mini-fabric"],
    "openmpi": ["mini-mpi"],
    "openssh": ["mini-ssh", "mini-tool++"],
    "compiler": ["mini-cc"],
}
GRAFT = "pytorch-2.99-cpu-py311-ec2-rpm"
TOOL = "mini-mpi-4.1.7-1.mini1.noarch.rpm"


@pytest.fixture(scope="module")
def below(base: str, registry: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Push an image with rpm, Python and a stand-in for a framework; return repository@digest."""
    folder, name = tmp_path_factory.mktemp("below"), f"{registry}/mini/train:1"
    torch = TORCH.format(site=SITE, local="+cpu")
    (folder / "Dockerfile").write_text(BELOW.format(base=base) + torch)
    said = folder / "said.json"
    built(folder, f"--metadata-file={said}", f"--output=type=image,name={name},push=true,oci-mediatypes=true")
    subprocess.run(["docker", "rmi", name], capture_output=True)
    return f"{registry}/mini/train@{json.loads(said.read_text())['containerimage.digest']}"


@pytest.fixture(scope="module")
def grafting(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a checkout with this project's declarations, which know the miniature distribution and its packages."""
    made = tmp_path_factory.mktemp("graft") / "tree"
    for name in ("dockerfiles", "scripts"):
        shutil.copytree(ROOT / name, made / name)
    bases = made / "dockerfiles/bases.toml"
    bases.write_text(bases.read_text() + OWN_BASE.format(digest="0" * 64))
    settings = made / "dockerfiles/graft.toml"
    settings.write_text(settings.read_text().replace("[distributions]", '[distributions]\nmini-os = "mini"'))
    for name, packages_ in NAMES.items():
        path = made / f"dockerfiles/layers/{name}.toml"
        document = tomlkit.parse(path.read_text())
        said = document["providers"]["distro"]["packages"].unwrap()
        others = said if isinstance(said, dict) else {"*": said}
        document["providers"]["distro"]["packages"] = {"mini-*": packages_, **others}
        path.write_text(tomlkit.dumps(document))
    return made


@pytest.fixture
def grafted(grafting: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return that checkout without what another test built in it, and with an empty store."""
    shutil.rmtree(grafting / "out", ignore_errors=True)
    monkeypatch.setenv("TRAINWRIGHT_STORE", str(tmp_path / "store"))
    return grafting


def graft(tree: Path, *words: str) -> tuple[int, dict[str, Any], str]:
    done = trainwright(tree, "graft", *words, "--json")
    return done.returncode, json.loads(done.stdout) if done.stdout else {}, done.stderr


def test_a_graft_upon_an_image_with_rpm(grafted: Path, served: Path, below: str, registry: str) -> None:
    """What it adds is resolved by dnf in the image, built offline, listed by rpm, and pushed upon the same layers."""
    words = (below, "--fabric", "distro", "--name", "rpm", "--push", "--registry", registry)
    code, said, errors = graft(grafted, *words)
    assert code == 0, errors
    result, out = said["graft"], grafted / "out" / GRAFT
    assert result["id"] == GRAFT
    _, held = packages.parse((out / "graft.packages").read_text(), "graft")
    added = {name: row for name, row in held.items() if row["SHA256"]}
    assert added.keys() == {"mini-fabric", "mini-libs", "mini-mpi", "mini-old", "mini-ssh", "mini-tool++"}
    assert added["mini-mpi"]["Address"] == f"http://mini.invalid/good/{TOOL}"
    assert {row["Index"] for row in added.values()} == {"signed"}
    assert all(int(row["Signed-By"], 16) for row in added.values())
    image = json.loads((out / "image.json").read_text())
    assert image["packages"] == {name: row["Version"] for name, row in held.items()}
    assert image["packages"]["mini-libs"] == "1:1.5-1.mini1"
    listed = json.loads((out / "sbom.json").read_text())["components"]
    found = {row["name"]: row["version"] for row in listed if row.get("purl", "").startswith("pkg:rpm/")}
    assert found == image["packages"]
    assert "mini-mpi 4.1.7-1.mini1\tMIT\thttp://mini.invalid/good/" in (out / "graft.tar").read_bytes().decode()
    lower, own = (client.image(*uri.split("@"))["layers"] for uri in (below, result["uri"]))
    assert [layer["digest"] for layer in own[: len(lower)]] == [layer["digest"] for layer in lower]
    assert engine.labels(result["image"])["io.trainwright.version.openmpi"] == "4.1.7-1.mini1"
    # Without the repositories, and with the lock that is there.
    shutil.rmtree(served)
    verified = trainwright(grafted, "verify", result["uri"], "--json")
    rows = {row["check"]: row["state"] for row in json.loads(verified.stdout)["rows"]}
    assert (rows["contents"], rows["media types"]) == ("passed", "passed"), verified.stderr
    code, again, errors = graft(grafted, *words)
    assert code == 0, errors
    assert (again["graft"]["digest"], "resolving" in errors) == (result["digest"], False)
    # Without a fabric nothing is resolved, so no repository is asked.
    code, said, errors = graft(grafted, below, "--name", "rpm-alone")
    assert code == 0, errors
    assert said["graft"]["added_layers"] == 1
    subprocess.run(["docker", "rmi", result["uri"], result["image"], said["graft"]["image"]], capture_output=True)


def not_grafted(tree: Path, below: str, code: int, *said: str) -> None:
    done = trainwright(tree, "graft", below, "--fabric", "distro", "--name", "rpm")
    assert done.returncode == code, done.stderr
    for text in said:
        assert text in done.stderr
    assert sum(line.startswith("error: ") for line in done.stderr.splitlines()) == 1
    assert not list(tree.glob("out/*/graft.*"))


def test_packages_that_a_graft_does_not_take(grafted: Path, served: Path, repositories: Path, below: str) -> None:
    use(served, "foreign")
    where = f"http://mini.invalid/good/{TOOL}"
    not_grafted(grafted, below, 4, f"{TOOL} of mini has no valid signature", where, "NOKEY")
    use(served, "bare")
    not_grafted(grafted, below, 4, "has no valid signature", "rpm finds no signature in it")
    shutil.rmtree(served / "good")
    shutil.copytree(repositories / "good", served / "good")
    content = bytearray((served / "good" / TOOL).read_bytes())
    content[-100] ^= 1
    (served / "good" / TOOL).write_bytes(content)
    not_grafted(grafted, below, 5, "the checksum of mini-mpi 4.1.7-1.mini1 does not match")
    (served / "good/repodata/repomd.xml").unlink()
    not_grafted(grafted, below, 10, "the index of a repository of mini cannot be used", "http://127.0.0.1:", "404")


# --- a base with its own Python --------------------------------------------------------------------------------------

BROUGHT = f"""\
FROM {{tools}} AS clean
RUN rm -rf /opt/trainwright /opt/venv /usr/local/bin/trainwright-* /etc/pip.conf && ln -s python3 /usr/bin/python
FROM scratch
COPY --from=clean / /
LABEL io.trainwright.test="{{label}}"
{TORCH.format(site=SITE, local="")}"""


@pytest.fixture
def brought(tools: str, registry: str, label: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a checkout with a row on a base that brings Python and a framework."""
    name = f"{registry}/mini/brought:1"
    (tmp_path / "brought").mkdir()
    (tmp_path / "brought/Dockerfile").write_text(BROUGHT.format(tools=tools, label=label))
    built(tmp_path / "brought", f"--output=type=image,name={name},push=true")
    subprocess.run(["docker", "rmi", name], capture_output=True)
    made = tmp_path / "tree"
    plant(made)
    relabelled(made, label)
    for part in ("torch.toml", "torch.j2", "nccl.toml"):
        shutil.copy(ROOT / "dockerfiles/layers" / part, made / "dockerfiles/layers")
    assert COMPONENTS == ("python", "pip")
    text = MATRIX.replace('python = "distro"\npip = "{pip}"', 'python = "base 3.11"\ntorch = "base 2.99.0"')
    (made / "dockerfiles/matrix.toml").write_text(text.format(pip=""))
    edited(made, lambda bases: bases["debian-12"].update(provider="image", reference=name))
    monkeypatch.setenv("TRAINWRIGHT_STORE", str(tmp_path / "store"))
    return made


def test_what_the_python_of_a_base_holds_is_locked_and_starts_the_launcher(brought: Path) -> None:
    done = trainwright(brought, "lock", ID)
    assert done.returncode == 0, done.stderr
    lock = tomlkit.parse((brought / "dockerfiles/locks" / f"{ID}.toml").read_text()).unwrap()
    held = {row["name"]: row["version"] for row in lock["python"] if row["group"] == "base"}
    assert held["torch"] == "2.99.0"
    assert lock["brought"]["python"] == "3.11.2"
    done = trainwright(brought, "render", ID)
    assert done.returncode == 0, done.stderr
    assert "torch==2.99.0\n" in (brought / "out" / ID / "requirements/constraints.txt").read_text()
    done = trainwright(brought, "build", ID)
    assert done.returncode == 0, done.stderr
    words = ["docker", "run", "--rm", "--network=none", named(brought), "/opt/venv/bin/python3", "-c"]
    said = "import sys, torch; print(sys.executable, torch.__version__)"
    asked = subprocess.run([*words, said], capture_output=True, text=True)
    assert asked.stdout == "/usr/bin/python3 2.99.0\n", asked.stderr
    matrix = brought / "dockerfiles/matrix.toml"
    matrix.write_text(matrix.read_text().replace("base 2.99.0", "base 2.98.0"))
    done = trainwright(brought, "lock", ID)
    assert done.returncode == 4, done.stderr
    assert "is not what its row says: component torch: the lock says 2.98.0, the image holds 2.99.0" in done.stderr
