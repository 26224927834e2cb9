"""Test a derive project: it is written once, names its parent by digest, and never replaces existing files."""

import errno
import json
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

import pytest

from trainwright.build import state
from trainwright.core import files
from trainwright.core.errors import ConfigError, EnvironmentProblem, NotRunError
from trainwright.core.toml import load
from trainwright.docker import buildx, engine
from trainwright.image import tags
from trainwright.inspect import derive, derived, parent
from trainwright.inspect.derived import Derived, Parent
from trainwright.matrix.matrix import Recipe, load_intent
from trainwright.matrix.records import Image

URI = "127.0.0.1:1/trainwright/pytorch@sha256:" + "1" * 64
OWN = Parent(id="pytorch-x", key="k" * 64, digest="sha256:" + "1" * 64, uri=URI)

Cli = Callable[..., Any]


def test_project_starts_from_the_digest_alone() -> None:
    files = derived.project("mine", OWN)
    lines = [line for line in files["Dockerfile"].splitlines() if line.startswith("FROM")]
    assert lines == [f"FROM {URI}"]
    assert f'LABEL io.trainwright.parent="{URI}"' in files["Dockerfile"]
    assert derived.rewritten(files["Dockerfile"], URI, "Dockerfile") == files["Dockerfile"]


def test_packages_go_where_the_framework_of_a_graft_is() -> None:
    """Its PATH may begin with another Python, which may be the distribution's; its user may not write there."""
    graft = OWN.model_copy(update={"python": "/opt/own/bin/python", "user": "1000:1000"})
    said = derived.project("mine", graft)
    lines = said["Dockerfile"].splitlines()
    assert "pip install" not in derived.project("mine", graft)["Dockerfile"].replace("/opt/own/bin/python -m pip", "")
    assert "PIP_BREAK_SYSTEM_PACKAGES=1 /opt/own/bin/python -m pip install" in lines[-2]
    assert lines.index("USER 0") < next(n for n, line in enumerate(lines) if line.startswith("RUN"))
    assert lines[-1] == "USER 1000:1000"
    assert "USER" not in derived.project("mine", OWN)["Dockerfile"]
    assert "/pip.conf pip install" in derived.project("mine", OWN)["Dockerfile"]
    assert "python" not in derived.project("mine", OWN)["derived.toml"]


def test_what_an_image_says_of_itself_writes_no_other_line_of_a_dockerfile() -> None:
    """Its Python is of a label and its user of the configuration: whoever made the image chose both."""
    odd = OWN.model_copy(update={"python": "/opt/my env/bin/python;id", "user": "app.user:1000"})
    said = derived.project("mine", odd)["Dockerfile"]
    assert "PIP_BREAK_SYSTEM_PACKAGES=1 '/opt/my env/bin/python;id' -m pip install" in said
    assert said.endswith("\nUSER app.user:1000\n")
    for field, text in (
        ("user", "0\nRUN id"),
        ("user", "$HOME"),
        ("user", "a b"),
        ("user", "a\\"),
        ("python", "/opt/python\nRUN id"),
        ("python", "python"),
    ):
        with pytest.raises(
            ConfigError, match=f"the {field} of pytorch-x cannot be written".replace("python", "Python", 1)
        ) as error:
            derived.project("mine", OWN.model_copy(update={field: text}))
        assert error.value.where == URI
        assert error.value.fix


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Set up a project and a builder outside the engine; record buildx's output option and what the engine loads."""
    builder = buildx.parse("Name: far\nDriver: docker-container\nEndpoint: far\nDocker exporter: true\n")
    said: dict[str, Any] = {"itself": False, "builder": builder, "loaded": b""}

    def run(words: list[Any], **_: Any) -> str:
        said["output"] = next(word for word in words if str(word).startswith("--output="))
        if dest := re.search("dest=([^,]+)", said["output"]):
            Path(dest[1]).write_bytes(b"an image")
        return ""

    def load(image: IO[bytes]) -> None:
        said["loaded"] = image.read()

    (tmp_path / "derived.toml").write_text(derived.toml("mine", OWN))
    monkeypatch.setattr(engine, "builds_itself", lambda: said["itself"])
    monkeypatch.setattr(engine, "builder", lambda: said["builder"])
    monkeypatch.setattr(engine, "buildx", lambda: Path("buildx"))
    monkeypatch.setattr(engine, "client", lambda: SimpleNamespace(images=SimpleNamespace(load=load)))
    monkeypatch.setattr(derive, "run", run)
    return said


def test_what_another_builder_made_is_brought_into_the_engine(tmp_path: Path, built: dict[str, Any]) -> None:
    """Its driver would keep it in a cache of its own, and the name that is printed would be nobody's."""
    assert derive.build(tmp_path) == "mine"
    assert "type=docker,dest=" in built["output"]
    assert built["loaded"] == b"an image"
    built |= {"itself": True, "loaded": b""}
    derive.build(tmp_path)
    assert "=type=image,name=mine," in built["output"]
    assert built["loaded"] == b""


def test_a_builder_that_hands_nothing_over_is_not_asked_to_build(tmp_path: Path, built: dict[str, Any]) -> None:
    built["builder"] = built["builder"].model_copy(update={"exports_images": False})
    with pytest.raises(EnvironmentProblem, match="cannot be loaded into this engine"):
        derive.build(tmp_path)
    assert "output" not in built


@pytest.mark.parametrize("said", ["pytorch-x", "trainwright/pytorch:tag", f"{URI}0", URI[:-1]])
def test_a_parent_without_a_digest_is_not_pulled(said: str) -> None:
    """A bare name would be anybody's image on a public registry."""
    with pytest.raises(ConfigError, match="by its digest"):
        parent.must_be_pinned(said)
    parent.must_be_pinned(URI)


def test_what_is_written_can_be_read(tmp_path: Path) -> None:
    (tmp_path / "derived.toml").write_text(derived.toml("mine", OWN))
    assert load(tmp_path / "derived.toml", Derived).parent == OWN


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("FROM debian\nRUN x\n", f"FROM {URI}\nRUN x\n"),
        (
            "ARG A=1\nfrom --platform=linux/amd64 torch:latest AS x\n",
            f"ARG A=1\nfrom --platform=linux/amd64 {URI} AS x\n",
        ),
        ("FROM golang AS build\nRUN go\nFROM debian\n", f"FROM golang AS build\nRUN go\nFROM {URI}\n"),
        (
            "FROM debian AS base\nFROM golang\nFROM base AS last\n",
            f"FROM {URI} AS base\nFROM golang\nFROM base AS last\n",
        ),
        ("FROM a AS Base\nFROM base\nRUN x", f"FROM {URI} AS Base\nFROM base\nRUN x"),
    ],
)
def test_the_last_stage_starts_from_the_parent(old: str, new: str) -> None:
    assert derived.rewritten(old, URI, "Dockerfile") == new


def test_a_dockerfile_without_from() -> None:
    with pytest.raises(ConfigError, match="has no FROM"):
        derived.rewritten("RUN x\n", URI, "Dockerfile")


# --- the command ----------------------------------------------------------------------------------------------------


@pytest.fixture
def published(tree: Path) -> str:
    """Record in out/<id>/image.json that an image of the matrix was pushed; return the image's id."""
    from trainwright.image import inputs

    intent = load_intent(tree)
    variant = next(variant for variant in intent.variants if variant.default)
    image = Image(id=variant.id, key=inputs.load(Recipe(intent, variant)).key, digest=OWN.digest, uri=URI)
    state.write_image(state.out_folder(Recipe(intent, variant)), image)
    return variant.id


def test_derive(tree: Path, published: str, tmp_path: Path, cli: Cli) -> None:
    folder = tmp_path / "mine"
    ended = cli(tree, "derive", published, "--into", str(folder), "--json")
    assert ended.code == 0, ended.err
    assert {Path(row["file"]).name for row in json.loads(ended.out)} == {path.name for path in folder.iterdir()}
    assert load(folder / "derived.toml", Derived).name == "mine"
    assert "ENTRYPOINT and USER stay" in (folder / "README.md").read_text()
    before = {path: path.read_text() for path in folder.iterdir()}
    again = cli(tree, "derive", published, "--into", str(folder), "--name", "other")
    assert again.code == 2
    assert "it has Dockerfile" in again.err
    assert {path: path.read_text() for path in folder.iterdir()} == before


def test_another_registry_than_the_one_that_was_pushed_to(tree: Path, published: str, tmp_path: Path, cli: Cli) -> None:
    """What somebody names is where the image must be: never the address of another registry instead."""
    assert cli(tree, "derive", published, "--into", str(tmp_path / "same"), "--registry", "127.0.0.1:1").code == 0
    ended = cli(tree, "derive", published, "--into", str(tmp_path / "mine"), "--registry", "127.0.0.1:1/team")
    assert ended.code in (1, 7, 8), ended.err
    assert not (tmp_path / "mine").exists()


def test_what_an_image_starts_from_is_in_the_registry_that_is_named(
    tree: Path, published: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainwright.docker.engine.image_id", lambda _: None)
    intent = load_intent(tree)
    image = state.read_image(tree / "out" / published)
    assert image
    labels = {tags.ID_LABEL: published, tags.KEY_LABEL: image.key}
    assert parent.reference(intent, labels, "") == URI
    assert parent.reference(intent, labels, "127.0.0.1:1") == URI
    for other in ("127.0.0.1:1/team", "127.0.0.1"):
        with pytest.raises(NotRunError, match="cannot determine the parent"):
            parent.reference(intent, labels, other)


def test_an_existing_dockerfile_is_changed_only_when_told(tree: Path, published: str, tmp_path: Path, cli: Cli) -> None:
    file = tmp_path / "Dockerfile"
    file.write_text("FROM debian:latest\nRUN true\n")
    shown = cli(tree, "derive", published, "--dockerfile", str(file))
    assert shown.code == 0, shown.err
    assert f"-FROM debian:latest\n+FROM {URI}\n" in shown.out
    assert file.read_text() == "FROM debian:latest\nRUN true\n"
    assert not (tmp_path / "derived.toml").exists()
    assert cli(tree, "derive", published, "--dockerfile", str(file), "--write").code == 0
    assert file.read_text() == f"FROM {URI}\nRUN true\n"
    assert load(tmp_path / "derived.toml", Derived).parent.uri == URI
    assert "starts from" in cli(tree, "derive", published, "--dockerfile", str(file)).out


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("pytorch", "--into", "x"), 2, "did you mean"),
        (("pytorch",), 2, "--into DIR"),
        (("pytorch", "--into", "x", "--dockerfile", "y"), 2, "--into DIR"),
        (("pytorch", "--into", "x", "--write"), 2, "--into DIR"),
    ],
)
def test_what_nobody_can_derive(tree: Path, words: tuple[str, ...], code: int, told: str, cli: Cli) -> None:
    ended = cli(tree, "derive", *words)
    assert ended.code == code
    assert told in ended.err + ended.out or "valid" in ended.err


def test_an_image_that_is_not_published(tree: Path, cli: Cli) -> None:
    identity = next(variant.id for variant in load_intent(tree).variants if variant.default)
    ended = cli(tree, "derive", identity, "--into", "x")
    assert ended.code in (7, 8)
    assert not (tree / "x").exists()


def test_a_folder_without_a_project(tree: Path, tmp_path: Path, cli: Cli) -> None:
    ended = cli(tree, "verify", str(tmp_path))
    assert ended.code == 2
    assert "derived.toml" in ended.err


def test_a_project_that_cannot_be_written_is_not_half_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(EnvironmentProblem, match="cannot be written"):
        derive.write_project(tmp_path / "file/mine", "mine", OWN)
    real, count = files.write, list[Path]()

    def full(path: Path, content: str | bytes) -> None:
        count.append(path)
        if len(count) > 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(path, content)

    monkeypatch.setattr(files, "write", full)
    with pytest.raises(EnvironmentProblem, match="cannot be written") as error:
        derive.write_project(tmp_path / "mine", "mine", OWN)
    assert error.value.why == "No space left on device"
    assert list((tmp_path / "mine").iterdir()) == []
    monkeypatch.setattr(files, "write", real)
    assert derive.write_project(tmp_path / "mine", "mine", OWN)  # the same command goes on
