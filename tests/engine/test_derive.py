"""Test derived images: a harmless project passes, and `verify` names each kind of change to the parent."""

import gzip
import hashlib
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import tls_index
from tiny import ID, built_in_this_run, store_of_this_run, trainwright
from wheel import wheel

from trainwright.docker import engine

pytestmark = [pytest.mark.engine, pytest.mark.slow]
LIBRARY, VERSION = "/opt/foo/libfoo.so", "/opt/foo/version"
OUTPUT = "type=image,oci-mediatypes=false,name="
# What a compiled library that ranks talk through would be declared as.
FOO = {
    "version": "1.0",
    "says": "1.0",
    "position": "compiled",
    "compiled": True,
    "probe": {"code": f"print('version', open('{VERSION}').read())", "pattern": r"version (\S+)"},
    "at_start": True,
    "libraries": ["libfoo.so*"],
    "symbol": "",
    "variables": {"FOO_PLUGIN": ["{value}", "lib{value}.so"]},
}
PARENT = """\
FROM {image}
COPY libfoo.so version /opt/foo/
COPY declared.json /opt/trainwright/declared.json
COPY foo /opt/trainwright/files/foo
RUN trainwright-check --record
LABEL io.trainwright.test="{label}"
ENTRYPOINT ["/usr/bin/env"]
"""


@pytest.fixture(scope="module")
def tree() -> Iterator[Path]:
    with store_of_this_run():
        yield built_in_this_run()


@pytest.fixture(scope="module")
def label() -> Iterator[str]:
    """Yield a label for every image of this module; remove the images with it afterwards."""
    value = uuid4().hex
    yield value
    own = ["docker", "images", "--quiet", "--filter", f"label=io.trainwright.test={value}"]
    names = set(subprocess.run(own, capture_output=True, text=True, check=True).stdout.split())
    subprocess.run(["docker", "rmi", "--force", *names], capture_output=True)


def docker_build(folder: Path, name: str, more: str = "") -> str:
    """Build with plain buildx; return the image's digest."""
    said = folder.parent / f"{folder.name}.json"
    words = ["--provenance=false", "--sbom=false", f"--output={OUTPUT}{name}{more}", f"--metadata-file={said}"]
    done = subprocess.run(
        [engine.buildx(), "build", "--progress=plain", *words, folder], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return str(json.loads(said.read_text())["containerimage.digest"])


@pytest.fixture(scope="module")
def parent(tree: Path, registry: str, label: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Push an image with an additional library to a registry; return repository@digest."""
    image = json.loads((tree / "out" / ID / "docker-bake.json").read_text())["target"]["image"]["tags"][0]
    declared = json.loads((tree / "out" / ID / "requirements/declared.json").read_text())
    declared["components"]["foo"] = FOO
    folder = tmp_path_factory.mktemp("parent")
    files = {"libfoo.so": "a library\n", "version": "1.0\n", "declared.json": json.dumps(declared)}
    files["foo"] = f"{hashlib.sha256(files['libfoo.so'].encode()).hexdigest()}  {LIBRARY}\n"
    files["Dockerfile"] = PARENT.format(image=image, label=label)
    for name, text in files.items():
        (folder / name).write_text(text)
    repository = f"{registry}/trainwright/tiny"
    return f"{repository}@{docker_build(folder, f'{repository}:parent', ',push=true')}"


@pytest.fixture
def project(tree: Path, parent: str, tmp_path: Path) -> Path:
    """Write a project with `derive`, from the parent's address."""
    folder = tmp_path / "project"
    done = trainwright(tree, "derive", parent, "--into", str(folder), "--name", f"tiny-child-{uuid4().hex[:8]}")
    assert done.returncode == 0, done.stderr
    return folder


def built(project: Path, label: str, *steps: str) -> Path:
    file = project / "Dockerfile"
    file.write_text("\n".join([file.read_text(), f'LABEL io.trainwright.test="{label}"', *steps, ""]))
    name = next(line.split('"')[1] for line in (project / "derived.toml").read_text().splitlines() if "name" in line)
    docker_build(project, name)
    return project


def verify(tree: Path, project: Path) -> tuple[int, dict[str, Any], str]:
    done = trainwright(tree, "verify", str(project), "--json")
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout), done.stderr


def test_a_harmless_project(tree: Path, project: Path, parent: str, label: str) -> None:
    file, packed = wheel("harmless", "1.0")
    (project / file).write_bytes(packed)
    (project / "requirements.txt").write_text(f"--no-index\n/src/{file}\n")
    (project / ".dockerignore").unlink()
    text = (project / "Dockerfile").read_text()
    (project / "Dockerfile").write_text(text.replace("RUN --mount", "RUN --mount=type=bind,target=/src --mount", 1))
    code, said, errors = verify(tree, built(project, label))
    assert code == 0, errors
    assert said["unchanged"]
    assert (said["parent"], said["id"]) == (parent, ID)
    assert said["checkout"] == "this checkout builds the parent with the same key"
    states = {row["what"]: (row["state"], row["now"]) for row in said["rows"]}
    assert states["foo"] == ("unchanged", "1.0")
    assert states["Python packages"] == ("added", "harmless 1.0")


@pytest.mark.parametrize(
    ("step", "what", "told"),
    [
        (f"RUN echo more >> {LIBRARY}", "foo", f"foo is changed: {LIBRARY}"),
        (f"RUN rm {LIBRARY}", "foo", f"foo is changed: {LIBRARY} is gone"),
        (f"RUN echo 2.0 > {VERSION}", "foo", "foo is changed (1.0 -> 2.0)"),
        (f"RUN rm {VERSION}", "foo", "foo is removed (1.0 -> none)"),
        (f"RUN mkdir /opt/x && cp {LIBRARY} /opt/x", "foo", "foo has a second copy: /opt/x/libfoo.so"),
        ("RUN echo > /opt/trainwright/constraints.txt", "constraints", "constraints is changed"),
        ("RUN rm /etc/pip.conf", "file of trainwright", "is removed"),
        ("RUN echo {} > /opt/trainwright/declared.json", "declaration", "declaration is changed"),
    ],
)
def test_what_is_refused(tree: Path, project: Path, label: str, step: str, what: str, told: str) -> None:
    code, said, errors = verify(tree, built(project, label, "RUN true > /opt/harmless", step))
    assert code == 5
    assert told in errors
    (row,) = [row for row in said["rows"] if row["refused"]]
    assert row["what"] == what
    assert row["by"] == step or "version" in step


@pytest.mark.parametrize(
    ("step", "what", "told"),
    [
        ("ENV UV_CONSTRAINT=", "variable UV_CONSTRAINT", "variable UV_CONSTRAINT is changed"),
        ("ENV PATH=/opt/x:$PATH", "variable PATH", "append to the parent's value"),
        ("ENV A=1 PIP_CONFIG_FILE=/dev/null", "variable PIP_CONFIG_FILE", "do not set PIP_CONFIG_FILE"),
        ("ENV LD_PRELOAD=", "variable LD_PRELOAD", "do not set LD_PRELOAD"),
        ("ENV FOO_PLUGIN=/opt/x.so", "variable FOO_PLUGIN", "foo would load another library"),
        ('ENTRYPOINT ["false"]', "entrypoint", "let it start with /usr/bin/env"),
        ("ENTRYPOINT []", "entrypoint", "let it start with /usr/bin/env"),
        ("USER nobody", "user", "user is changed (root -> nobody)"),
    ],
)
def test_what_no_layer_shows_is_refused(tree: Path, project: Path, label: str, step: str, what: str, told: str) -> None:
    code, said, errors = verify(tree, built(project, label, "ENV OWN=1", step))
    assert code == 5
    assert told in errors
    (row,) = [row for row in said["rows"] if row["refused"]]
    assert row["what"] == what
    assert row["by"].split("=")[0] == step.split("=")[0]


def test_layers_that_were_squashed(tree: Path, project: Path, label: str) -> None:
    """The same files, and nothing that shows where they come from."""
    text = (project / "Dockerfile").read_text().replace("\nLABEL", " AS all\nLABEL", 1)
    (project / "Dockerfile").write_text(text + "\nFROM scratch\nCOPY --from=all / /\n")
    code, _, errors = verify(tree, built(project, label, "ENV PATH=/opt/venv/bin:/usr/bin:/bin:/usr/sbin:/sbin"))
    assert code == 5
    assert "stack of layers is changed" in errors


def test_the_check_before_a_job_refuses_it_too(project: Path, label: str) -> None:
    built(project, label, f"RUN echo more >> {LIBRARY}")
    name = next(line.split('"')[1] for line in (project / "derived.toml").read_text().splitlines() if "name" in line)
    done = subprocess.run(["docker", "run", "--rm", name, "trainwright-check"], capture_output=True, text=True)
    assert done.returncode == 5, done.stderr
    assert "library of foo: declared sha256" in done.stderr


def test_an_image_that_says_nothing_of_a_parent(tree: Path, label: str, tmp_path: Path) -> None:
    folder = tmp_path / "none"
    folder.mkdir()
    (folder / "Dockerfile").write_text(f'FROM scratch\nLABEL io.trainwright.test="{label}"\nCOPY Dockerfile /\n')
    name = f"tiny-none-{uuid4().hex[:8]}"
    docker_build(folder, name)
    done = trainwright(tree, "verify", name)
    assert done.returncode == 7
    assert "--parent" in done.stderr


def test_an_image_whose_parent_has_no_digest(tree: Path, label: str, tmp_path: Path) -> None:
    """Its label is a bare name: a registry that everybody writes to would answer."""
    folder = tmp_path / "named"
    folder.mkdir()
    labels = f'LABEL io.trainwright.test="{label}" io.trainwright.parent="pytorch-x"'
    (folder / "Dockerfile").write_text(f"FROM scratch\n{labels}\nCOPY Dockerfile /\n")
    name = f"tiny-named-{uuid4().hex[:8]}"
    docker_build(folder, name)
    done = trainwright(tree, "verify", name)
    assert done.returncode == 2, done.stderr
    assert "'pytorch-x' does not name a parent by its digest" in done.stderr
    assert "pulling" not in done.stderr
    itself = trainwright(tree, "verify", name, "--parent", name)
    assert itself.returncode == 2
    assert "there is nothing to compare" in itself.stderr


def test_a_corporate_index_reaches_a_build_and_no_layer(
    tree: Path, project: Path, label: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)  # this machine's own have no say
    for name in ("PIP_CERT", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "TRAINWRIGHT_MIRRORS", "TRAINWRIGHT_CA"):
        monkeypatch.delenv(name, raising=False)
    requirement = (
        f"trainwright-corporate==1.0  # {label}\n"  # a step that an earlier run of this test left cached asks no index
    )
    (project / "requirements.txt").write_text(requirement)
    with (project / "Dockerfile").open("a") as file:
        file.write(f'LABEL io.trainwright.test="{label}"\n')
    with tls_index.serving(tmp_path, "trainwright-corporate") as index:
        monkeypatch.setenv("PIP_INDEX_URL", index.address)
        done = trainwright(tree, "derive", "--build", str(project))
        assert done.returncode == 5, done.stderr
        assert "CERTIFICATE_VERIFY_FAILED" in done.stderr
        done = trainwright(tree, "derive", "--build", str(project), "--json", TRAINWRIGHT_CA=str(index.ca))
        assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)
    words = ["docker", "run", "--rm", "--network=none", row["image"], "python", "-c"]
    subprocess.run([*words, "import trainwright_corporate_marker"], check=True)
    saved = tmp_path / "saved"
    engine.save_as_it_is(row["image"], saved)
    blobs = [path.read_bytes() for path in saved.rglob("*") if path.is_file()]
    blobs = [gzip.decompress(blob) if blob.startswith(b"\x1f\x8b") else blob for blob in blobs]
    certificate = index.ca.read_bytes().splitlines()[1]
    for secret in (tls_index.PASSWORD.encode(), certificate):
        assert not [blob for blob in blobs if secret in blob]
    code, _, errors = verify(tree, project)
    assert code == 0, errors
