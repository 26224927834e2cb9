"""Test grafts on real images of others, which are made here and pulled from a registry on loopback."""

import hashlib
import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4
from zipfile import ZipFile

import pytest
import tomlkit
from tiny import ID, ROOT, built_in_this_run, store_of_this_run, trainwright

from trainwright.docker import engine
from trainwright.publish import sign
from trainwright.registry import client

pytestmark = [pytest.mark.engine, pytest.mark.slow]
SITE = "/usr/local/lib/python3.11/dist-packages"
TORCH = f"""\
RUN mkdir {SITE}/torch-2.99.0.dist-info \\
    && echo '__version__ = "2.99.0+cpu"' > {SITE}/torch.py \\
    && printf 'Metadata-Version: 2.1\\nName: torch\\nVersion: 2.99.0+cpu\\n' > {SITE}/torch-2.99.0.dist-info/METADATA
"""
# A distribution with Python, and nothing of trainwright: neither files nor layers nor labels.
FOREIGN = """\
FROM {tiny} AS clean
RUN rm -rf /opt/trainwright /opt/venv /usr/local/bin/trainwright-* /etc/pip.conf
FROM scratch
COPY --from=clean / /
LABEL io.trainwright.test="{label}"
"""
SETTINGS = """\
ENV NOTE='a "b"' HF_TOKEN=hf_0123456789abcdefghij
ENTRYPOINT ["/usr/bin/env"]
USER 1000
"""
Make = Callable[..., str]


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Make a checkout with the project's declarations, where grafts write their files."""
    with store_of_this_run():
        made = tmp_path_factory.mktemp("graft") / "tree"
        for name in ("dockerfiles", "scripts"):
            shutil.copytree(ROOT / name, made / name)
        yield made


@pytest.fixture(scope="module")
def label() -> Iterator[str]:
    """Yield a label for every image of this module; remove the images with it afterwards."""
    value = uuid4().hex
    yield value
    own = ["docker", "images", "--quiet", "--filter", f"label=io.trainwright.test={value}"]
    names = set(subprocess.run(own, capture_output=True, text=True, check=True).stdout.split())
    subprocess.run(["docker", "rmi", "--force", *names], capture_output=True)


@pytest.fixture(scope="module")
def made(registry: str, tree: Path, label: str, tmp_path_factory: pytest.TempPathFactory) -> Make:
    """Return a function that builds an image, pushes it, removes it from the engine, and returns repository@digest."""

    def make(text: str, *words: str, more: str = "") -> str:
        folder, name = tmp_path_factory.mktemp("foreign"), f"{registry}/team/train-{uuid4().hex[:8]}:1"
        (folder / "Dockerfile").write_text(text)
        output = f"--output=type=image,name={name},push=true,oci-mediatypes=true{more}"
        said = folder / "said.json"
        done = subprocess.run(
            [engine.buildx(), "build", "--provenance=false", output, f"--metadata-file={said}", *words, folder],
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        subprocess.run(["docker", "rmi", name], capture_output=True)
        return f"{name.rpartition(':')[0]}@{json.loads(said.read_text())['containerimage.digest']}"

    return make


@pytest.fixture(scope="module")
def distribution(made: Make, tree: Path, label: str) -> str:
    tiny = json.loads((built_in_this_run() / "out" / ID / "docker-bake.json").read_text())["target"]["image"]["tags"][0]
    return made(FOREIGN.format(tiny=tiny, label=label))


def graft(tree: Path, *words: str) -> tuple[int, dict[str, Any], str]:
    done = trainwright(tree, "graft", *words, "--json")
    return done.returncode, json.loads(done.stdout) if done.stdout else {}, done.stderr


def test_a_graft_is_the_image_below_and_one_layer(tree: Path, made: Make, distribution: str, registry: str) -> None:
    below = made(f"FROM {distribution}\n{TORCH}{SETTINGS}")
    code, said, errors = graft(tree, below, "--name", "team", "--push", "--registry", registry)
    assert code == 0, errors
    result = said["graft"]
    assert result["id"] == "pytorch-2.99-cpu-py311-ec2-team"
    assert result["base"] == below
    assert "matches its declaration" in result["checked"]
    lower, graft_ = (client.image(*uri.split("@"))["layers"] for uri in (below, result["uri"]))
    assert [layer["digest"] for layer in graft_[:-1]] == [layer["digest"] for layer in lower]
    assert client.resolve(result["uri"].split("@")[0], f"{result['id']}-{result['key'][:12]}") == result["digest"]
    config = engine.config(result["image"])
    assert (config["User"], config["Entrypoint"]) == ("1000", ["/usr/bin/env"])
    assert "hf_0123456789abcdefghij" not in json.dumps(said)
    # Its own user and entrypoint start a script with the Python that holds the framework.
    words = [
        "docker",
        "run",
        "--rm",
        "--network=none",
        "--env=HOME=/tmp",
        "--workdir=/tmp",
        result["image"],
        "sh",
        "-c",
    ]
    script = "echo 'import sys, torch; print(sys.executable, torch.__version__)' > t.py; trainwright-launch t.py"
    done = subprocess.run([*words, script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-2:] == ["/usr/bin/python3", "2.99.0+cpu"]
    # The same command again has the same result.
    code, again, errors = graft(tree, below, "--name", "team", "--push", "--registry", registry)
    assert code == 0, errors
    assert again["graft"]["digest"] == result["digest"]


def test_what_is_built_by_hand_is_the_same_image(tree: Path, made: Make, distribution: str) -> None:
    code, said, errors = graft(tree, made(f"FROM {distribution}\n{TORCH}"), "--name", "hand")
    assert code == 0, errors
    folder, name = tree / "out" / said["graft"]["id"], f"graft-by-hand:{uuid4().hex[:8]}"
    words = [str(engine.buildx()), "bake", "--no-cache", "--set", f"image.tags={name}"]
    subprocess.run(words, cwd=folder, check=True, capture_output=True)
    try:
        assert engine.image_id(name) == engine.image_id(said["graft"]["image"])
    finally:
        engine.remove(name)


@pytest.mark.parametrize(
    ("steps", "name"),
    [
        ("RUN true", "no framework"),
        (TORCH + "ONBUILD RUN false", "ONBUILD"),
        (TORCH + "VOLUME /opt", "VOLUME"),
        (TORCH + f"RUN echo 'raise OSError(1)' > {SITE}/torch.py", "framework does not start"),
        (TORCH + "RUN mkdir /opt/trainwright", "image of trainwright"),
        (TORCH + "RUN touch /lib/ld-musl-x86_64.so.1", "C library"),
        (TORCH + "RUN rm /bin/sh /usr/bin/dash", "nothing starts"),
    ],
)
def test_what_is_refused(tree: Path, made: Make, distribution: str, steps: str, name: str) -> None:
    if "rm /bin/sh" in steps:
        steps = steps.replace("RUN rm /bin/sh /usr/bin/dash", 'RUN ["/usr/bin/rm", "-f", "/usr/bin/sh", "/bin/sh"]')
    code, said, errors = graft(tree, made(f"FROM {distribution}\n{steps}\n"))
    assert code == 3, errors
    assert name in [trap["name"] for trap in said["plan"]["traps"] if trap["state"] == "refused"]
    assert name in errors
    assert not list(tree.glob("out/*-train-*"))


def test_a_user_who_cannot_start_the_images_python(tree: Path, made: Make, distribution: str) -> None:
    below = made(f"FROM {distribution}\n{TORCH}RUN chmod 0700 /usr/lib/python3.11\nUSER 1000\n")
    code, _, errors = graft(tree, below, "--name", "user")
    assert code == 5, errors
    assert "as the user 1000" in errors
    held = subprocess.run(["docker", "images", "--quiet", "trainwright/torch:*-user-*"], capture_output=True, text=True)
    assert not held.stdout


def test_layers_that_sagemaker_does_not_take(tree: Path, made: Make, distribution: str) -> None:
    below = made(f"FROM {distribution}\n{TORCH}", more=",compression=zstd,force-compression=true")
    code, _, errors = graft(tree, below, "--target", "sagemaker")
    assert code == 3, errors
    assert "zstd layers" in errors


def test_an_image_that_no_registry_holds(tree: Path, distribution: str, tmp_path: Path) -> None:
    name = f"graft-local-{uuid4().hex[:8]}"
    (tmp_path / "Dockerfile").write_text(f"FROM {distribution}\n{TORCH}")
    words = [str(engine.buildx()), "build", "--provenance=false", f"--output=type=image,name={name}", str(tmp_path)]
    subprocess.run(words, check=True, capture_output=True)
    code, said, errors = graft(tree, name)
    assert code == 0, errors
    assert said["graft"]["added_layers"] == 1
    assert "only this engine can build on it" in errors


def test_an_image_for_another_machine(tree: Path, made: Make, label: str) -> None:
    text = f'FROM scratch\nCOPY Dockerfile /\nLABEL io.trainwright.test="{label}"\n'
    code, _, errors = graft(tree, made(text, "--platform=linux/arm64"))
    assert code == 3, errors
    assert "linux/amd64" in errors or "arm64" in errors


def test_the_fabric_of_the_distribution(tree: Path, made: Make, distribution: str, registry: str) -> None:
    """Its user, shell and variables are those of the image below, though the build ran steps as root, with ldconfig."""
    below = made(
        f'FROM {distribution}\n{TORCH}{SETTINGS}SHELL ["/bin/bash", "-c"]\nENV PATH=/usr/local/bin:/usr/bin:/bin\n'
    )
    words = ("--fabric", "distro", "--name", "fabric", "--push", "--registry", registry)
    code, said, errors = graft(tree, below, *words)
    assert code == 0, errors
    result = said["graft"]
    lower, graft_ = (client.image(*uri.split("@"))["layers"] for uri in (below, result["uri"]))
    assert [layer["digest"] for layer in graft_[: len(lower)]] == [layer["digest"] for layer in lower]
    config = engine.config(result["image"])
    assert (config["User"], config["Shell"]) == ("1000", ["/bin/bash", "-c"])
    run = [
        "docker",
        "run",
        "--rm",
        "--network=none",
        "--env=HOME=/tmp",
        result["image"],
        "mpirun",
        "-np",
        "2",
        "hostname",
    ]
    assert len(subprocess.run(run, capture_output=True, text=True, check=True).stdout.splitlines()) == 2
    declared = json.loads(engine_file(result["image"], "/opt/trainwright/declared.json"))
    assert declared["components"]["openmpi"]["version"] == declared["packages"]["openmpi-bin"]
    assert "libmpi.so" in engine_file(result["image"], "/opt/trainwright/libraries.json")
    # The same command again takes the lock that is there, and has the same result.
    code, again, errors = graft(tree, below, *words)
    assert code == 0, errors
    assert again["graft"]["digest"] == result["digest"]
    assert "resolving" not in errors


def engine_file(image: str, path: str) -> str:
    words = ["docker", "run", "--rm", "--network=none", "--entrypoint=cat", image, path]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


INSTALLER = """\
#!/bin/bash -e
[[ $* == "-y --skip-kmod --skip-limit-conf --no-verify --mpi=openmpi4" ]]
mkdir -p /opt/amazon/efa/bin /opt/amazon/openmpi/bin /opt/amazon/openmpi/lib
echo "EFA installer version: {version}" > /opt/amazon/efa_installed_packages
printf '#!/bin/sh\\necho libfabric: 2.6.0amzn1.0\\n' > /opt/amazon/efa/bin/fi_info
printf '#!/bin/sh\\necho "mpirun (Open MPI) 4.1.7"\\n' > /opt/amazon/openmpi/bin/mpirun
chmod 0755 /opt/amazon/*/bin/*
"""


def test_efa_without_and_with_its_installer(tree: Path, made: Make, distribution: str, tmp_path: Path) -> None:
    below, words = made(f"FROM {distribution}\n{TORCH}"), ("--fabric", "efa", "--name", "efa")
    nowhere = "https://efa-installer.amazonaws.com=http://127.0.0.1:9"
    done = trainwright(tree, "graft", below, *words, "--json", TRAINWRIGHT_MIRRORS=nowhere)
    assert done.returncode == 10, done.stderr
    assert "was not reached from here" in done.stderr
    assert "https://efa-installer.amazonaws.com/aws-efa-installer-" in done.stderr
    (lock,) = tree.glob("out/*-efa/graft.lock.toml")  # everything else is locked
    assert 'name = "efa-installer"' in lock.read_text()
    # A stand-in of the installer, whose checksum takes the place of the real one's.
    version = str(
        tomlkit.parse((tree / "dockerfiles/matrix.toml").read_text())["stacks"]["efa"]["pins"]["efa-installer"]
    )
    (tmp_path / "aws-efa-installer").mkdir()
    script = tmp_path / "aws-efa-installer/efa_installer.sh"
    script.write_text(INSTALLER.format(version=version))
    script.chmod(0o755)
    tarball = tmp_path / f"aws-efa-installer-{version}.tar.gz"
    subprocess.run(["tar", "-czf", tarball, "-C", tmp_path, "aws-efa-installer"], check=True)
    file = tree / "dockerfiles/layers/efa-installer.toml"
    component = tomlkit.parse(file.read_text())
    component["releases"][version]["sha256"] = hashlib.sha256(tarball.read_bytes()).hexdigest()
    file.write_text(tomlkit.dumps(component))
    here = f"https://efa-installer.amazonaws.com={tmp_path.as_uri()}"
    done = trainwright(tree, "graft", below, *words, "--json", TRAINWRIGHT_MIRRORS=here)
    assert done.returncode == 0, done.stderr
    image = json.loads(done.stdout)["graft"]["image"]
    assert f"EFA installer version: {version}" in engine_file(image, "/opt/amazon/efa_installed_packages")
    assert engine.labels(image)["io.trainwright.version.openmpi"] == "4.1.7"


def test_an_image_without_a_package_manager(tree: Path, made: Make, distribution: str) -> None:
    below = made(f"FROM {distribution}\n{TORCH}RUN rm /usr/bin/apt-get\n")
    code, said, errors = graft(tree, below, "--fabric", "distro")
    assert code == 7, errors
    assert "which has none" in said["plan"]["lacking"][0]


def test_a_digest_that_the_registry_does_not_hold(tree: Path, distribution: str) -> None:
    code, _, errors = graft(tree, f"{distribution.partition('@')[0]}@sha256:{'0' * 64}")
    assert code == 8, errors
    assert "cannot be pulled" in errors


@pytest.fixture
def key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a signing key, which the commands use; return the public one."""
    monkeypatch.setenv(sign.PASSWORD, "ours")
    words = [*sign.program(), "generate-key-pair", "--output-key-prefix=ours"]
    subprocess.run(words, cwd=tmp_path, check=True, capture_output=True)
    monkeypatch.setenv(sign.KEY, str(tmp_path / "ours.key"))
    return tmp_path / "ours.pub"


@pytest.mark.parametrize("compression", ["gzip", "zstd"])
def test_a_graft_is_an_image_like_any_other(
    tree: Path, made: Make, distribution: str, registry: str, key: Path, tmp_path: Path, compression: str
) -> None:
    """It is verified, found, compared, explained and derived from by its id, whatever its layers are packed with."""
    below = made(f"FROM {distribution}\n{TORCH}", more=f",compression={compression},force-compression=true")
    code, said, errors = graft(
        tree, below, "--name", compression, "--push", "--registry", registry, "--twin", "--target", "ec2"
    )
    assert code == 0, errors
    result = said["graft"]
    assert result["signature"].startswith("passed")
    assert ("zstd already" in result["twin"]) == (compression == "zstd")
    addresses = [result["uri"], *([result["twin"]] if compression == "gzip" else [])]
    for address in addresses:
        verified = trainwright(tree, "verify", address, "--key", str(key), "--json")
        assert verified.returncode == 0, verified.stderr
        assert {row["state"] for row in json.loads(verified.stdout)["rows"]} == {"passed"}
    identity = result["id"]
    for words, told in (
        (("uri", identity, "--digest"), result["uri"]),
        (("list",), identity),
        (("explain", identity), "the image below"),
        (("find", "--has", "torch=2.99"), identity),
    ):
        done = trainwright(tree, *words)
        assert done.returncode == 0, done.stderr
        assert told in done.stdout
    done = trainwright(tree, "diff", identity, below, "--json")
    assert json.loads(done.stdout)["layers"]["shared"] == result["lower_layers"], done.stderr
    assert trainwright(tree, "derive", identity, "--into", str(tmp_path / "project")).returncode == 0
    assert f"FROM {result['uri']}\n" in (tmp_path / "project/Dockerfile").read_text()
    subprocess.run(["docker", "rmi", *addresses, result["image"]], capture_output=True)


def wheel(folder: Path, name: str, needs: str = "", **files: str) -> None:
    """Make a wheel with these modules in a folder, which only this host's pip knows."""
    info, head = f"{name}-1.0.dist-info", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\nLicense: MIT\n"
    said = {
        f"{info}/METADATA": head + (f"Requires-Dist: {needs}\n" if needs else ""),
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": f"[console_scripts]\n{name.replace('_', '-')} = {name}:main\n",
        **{f"{module}.py": text for module, text in files.items()},
    }
    with ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as packed:
        for path, text in {**said, f"{info}/RECORD": "".join(f"{path},,\n" for path in said)}.items():
            packed.writestr(path, text)


def test_the_packages_of_a_requirements_file(
    tree: Path, made: Make, distribution: str, registry: str, key: Path, tmp_path: Path
) -> None:
    """They go into the Python that holds the framework, beside what is there; signed, listed and verified with it."""
    wheel(tmp_path, "trainwright_first", "trainwright-second", trainwright_first="import trainwright_second\n")
    wheel(tmp_path, "trainwright_second", trainwright_second="answer = 42\n")
    wheel(tmp_path, "trainwright_third", theirs="answer = 0\n")
    below, file = made(f"FROM {distribution}\n{TORCH}RUN touch {SITE}/theirs.py\n{SETTINGS}"), tmp_path / "team.txt"
    words = ("graft", below, "--name", "more", "--with", str(file), "--push", "--registry", registry, "--json")

    def again(text: str) -> subprocess.CompletedProcess[str]:
        file.write_text(text)
        return trainwright(tree, *words, PIP_FIND_LINKS=str(tmp_path))

    done = again("trainwright-first\ntorch\n")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)["graft"]
    assert result["id"] == "pytorch-2.99-cpu-py311-ec2-more-with-team"
    assert result["added"] == ["trainwright-first 1.0", "trainwright-second 1.0"]
    lower, own = (client.image(*uri.split("@"))["layers"] for uri in (below, result["uri"]))
    assert [layer["digest"] for layer in own[: len(lower)]] == [layer["digest"] for layer in lower]
    script = "import torch, trainwright_first as one; print(torch.__version__, one.trainwright_second.answer)"
    run = ["docker", "run", "--rm", "--network=none", result["image"], "python3", "-c", script]
    assert subprocess.run(run, capture_output=True, text=True, check=True).stdout == "2.99.0+cpu 42\n"
    assert engine.config(result["image"])["User"] == "1000"
    assert "trainwright-second==1.0\n" in engine_file(result["image"], "/opt/trainwright/constraints.txt")
    verified = trainwright(tree, "verify", result["uri"], "--key", str(key), "--json")
    assert verified.returncode == 0, verified.stderr
    assert {row["state"] for row in json.loads(verified.stdout)["rows"]} == {"passed"}
    explained = trainwright(tree, "explain", result["id"])
    assert "required by trainwright-first" in explained.stdout, explained.stderr
    assert trainwright(tree, "derive", result["id"], "--into", str(tmp_path / "project")).returncode == 0
    # The same command again takes the lock that is there, and has the same result.
    done = again("# ours\ntrainwright-first\ntorch\n")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["graft"]["digest"] == result["digest"]
    assert "resolving" not in done.stderr
    # What would change the image is refused.
    done = again("torch==2.98\n")
    assert done.returncode == 3, done.stderr
    assert "torch==2.98 would change torch 2.99.0+cpu" in done.stderr
    done = again("trainwright-third\n")
    assert done.returncode == 3, done.stderr
    assert f"trainwright_third-1.0-py3-none-any.whl would replace {SITE}/theirs.py" in done.stderr
