"""Test the cached byte code of templates: it saves time, and never changes a result."""

import shutil
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import jinja2
import pytest

from trainwright.core.errors import ConfigError
from trainwright.image import templates
from trainwright.matrix.matrix import Intent

NAME = "one.j2"
Foreign = Callable[[Path], None]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(templates, "folder", lambda: tmp_path / "byte code")
    (tmp_path / "dockerfiles").mkdir()
    (tmp_path / "dockerfiles" / NAME).write_text("{% if pins.cuda is within('>=13') %}cuda {{ pins.cuda }}{% endif %}")
    return tmp_path


def text(intent: Intent, root: Path) -> str:
    """Render a template as another command would."""
    return templates.fill(intent.model_copy(update={"root": root}), NAME, {"pins": {"cuda": "13.2"}})


def kept(root: Path) -> Path:
    (path,) = (root / "byte code").iterdir()
    return path


def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that gets the name of each template that is compiled from now on."""
    names: list[str] = []
    compile_ = jinja2.Environment.compile

    def noted(environment: jinja2.Environment, source: str, name: str, filename: str) -> object:
        names.append(name)
        return compile_(environment, source, name, filename)

    monkeypatch.setattr(jinja2.Environment, "compile", noted)
    return names


def test_the_next_command_compiles_nothing(intent: Intent, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = compiled(monkeypatch)
    assert [text(intent, root), text(intent, root)] == ["cuda 13.2", "cuda 13.2"]
    assert names == [NAME]


def test_another_checkout_with_the_same_text_compiles_nothing(
    intent: Intent, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And one with another text, as `changes` compares two commits, takes nothing from the first one."""
    names, other = compiled(monkeypatch), root / "another"
    shutil.copytree(root / "dockerfiles", other / "dockerfiles")
    assert [text(intent, root), text(intent, other)] == ["cuda 13.2", "cuda 13.2"]
    assert names == [NAME]
    (other / "dockerfiles" / NAME).write_text("{{ pins.cuda }}{{ pins.nccl }}")
    with pytest.raises(ConfigError) as raised:
        text(intent, other)
    assert raised.value.where == f"dockerfiles/{NAME}:1"
    assert text(intent, root) == "cuda 13.2"
    assert names == [NAME] * 2


def test_another_text_of_the_same_length_is_rendered(intent: Intent, root: Path) -> None:
    text(intent, root)
    path = root / "dockerfiles" / NAME
    path.write_text(path.read_text().replace("}cuda", "}CUDA"))
    assert text(intent, root) == "CUDA 13.2"


@pytest.mark.parametrize("at", [0, 40, 200, -1])
def test_a_damaged_file_is_replaced(intent: Intent, root: Path, monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    text(intent, root)
    whole = kept(root).read_bytes()
    damaged = bytearray(whole)
    damaged[at] ^= 1
    names = compiled(monkeypatch)
    for content in (bytes(damaged), whole[:at], b""):
        kept(root).write_bytes(content)
        assert text(intent, root) == "cuda 13.2"
        assert kept(root).read_bytes() == whole
    assert names == [NAME] * 3


def planted(root: Path) -> bytes:
    """Replace the byte code of NAME by valid byte code of another template; return the new bytes."""
    path = kept(root)
    code = path.read_bytes()[templates.HASH :].replace(b"cuda ", b"evil ")
    path.write_bytes(sha256(code).digest() + code)
    return path.read_bytes()


def test_byte_code_that_others_could_have_written_is_not_run(intent: Intent, root: Path, foreign: Foreign) -> None:
    text(intent, root)
    evil = planted(root)
    assert text(intent, root) == "evil 13.2"  # where nobody else can write, it is believed
    (root / "byte code").chmod(0o775)
    assert text(intent, root) == "cuda 13.2"
    assert ((root / "byte code").stat().st_mode & 0o022, kept(root).read_bytes() == evil) == (0, False)
    evil = planted(root)
    foreign(root / "byte code")
    assert text(intent, root) == "cuda 13.2"
    assert kept(root).read_bytes() == evil  # what is theirs is left alone


def test_an_imported_template_knows_nothing_of_who_imports_it(intent: Intent, root: Path) -> None:
    """It runs once for an image: else what it says to the second one would be what the first one told it."""
    folder = root / "dockerfiles"
    (folder / "shared.j2").write_text("{% set seen = pins.cuda %}{% macro text() %}{{ seen }} {{ own }}{% endmacro %}")
    imported = "{% set own = 'mine' %}{% import 'shared.j2' as shared with context %}"
    (folder / NAME).write_text(imported + "{{ shared.text() }}")
    with pytest.raises(ConfigError, match="a template uses an undefined variable") as raised:
        text(intent, root)
    assert raised.value.where == "dockerfiles/shared.j2:1"


def test_where_nothing_can_be_written(intent: Intent, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(templates, "folder", lambda: Path("/dev/null/no folder"))
    assert text(intent, root) == "cuda 13.2"


def test_another_jinja_takes_none_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # what conftest.py put in its place
    own = templates.folder()
    monkeypatch.setattr(jinja2, "__version__", "0")
    assert templates.folder() != own
