"""Test files of absurd size: each gives one error, before it is parsed or resolved."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trainwright.core import toml
from trainwright.core.errors import ConfigError
from trainwright.diagnose import causes
from trainwright.lock import requirements

ONE = "pytorch-2.13-cpu-py311-ec2"
MILLION = 1_000_000
LARGE = 2 * toml.LARGEST  # characters
REQUIREMENTS: dict[str, Callable[[], str]] = {
    "a million requirements": lambda: "".join(f"package-{number}==1.0\n" for number in range(MILLION)),
    "one requirement a million times": lambda: "idna==3.7\n" * MILLION,
    "one line, continued a million times": lambda: "\\\n" * MILLION,
    "a name of a million characters": lambda: "a" * MILLION,
    "an extra of a million characters": lambda: f"a[{'b' * MILLION}]",
    "a marker of a million characters": lambda: "a; " + "(" * MILLION,
    "an inclusion a million times": lambda: "-r other.txt\n" * MILLION,
}
TABLES: dict[str, Callable[[], str]] = {
    "a list of 20 MB": lambda: "x = [\n" + "  1,\n" * (LARGE // 5) + "]\n",
    "a word of 20 MB": lambda: f'x = "{"a" * LARGE}"\n',
    "keys of 20 MB": lambda: "k = 1\n" * (LARGE // 6),
    "blanks of 20 MB": lambda: " " * LARGE,
}
FILES = ["dockerfiles/matrix.toml", f"dockerfiles/locks/{ONE}.toml", "dockerfiles/causes/memory.toml"]


@pytest.mark.parametrize("attack", REQUIREMENTS)
def test_a_requirements_file_that_nobody_writes(attack: str, tmp_path: Path) -> None:
    (tmp_path / "other.txt").write_text("idna==3.7\n")
    (tmp_path / "requirements.txt").write_text(REQUIREMENTS[attack]())
    with pytest.raises(ConfigError) as refused:
        requirements.read(tmp_path / "requirements.txt")
    assert refused.value.where.startswith(str(tmp_path / "requirements.txt:"))
    assert refused.value.fix.startswith("$EDITOR +")
    assert len(str(refused.value.as_dict())) < 2000


@pytest.mark.parametrize("command", ["lock", "build"])
def test_the_commands_that_take_one(command: str, cli: Any, tree: Path) -> None:
    (tree / "requirements.txt").write_text(REQUIREMENTS["one requirement a million times"]())
    ended = cli(tree, command, ONE, "--with", "requirements.txt", "--name", "large")
    assert ended.code == 2
    assert "the requirements file is too long" in ended.err


@pytest.mark.parametrize("attack", TABLES)
def test_a_table_of_20_mb(attack: str) -> None:
    with pytest.raises(ConfigError, match="is too large"):
        toml.parse(TABLES[attack](), causes.Causes, "dockerfiles/causes/memory.toml")


@pytest.mark.parametrize("file", FILES)
def test_the_commands_that_read_one(file: str, cli: Any, tree: Path) -> None:
    (tree / "log").write_text("nothing\n")
    with (tree / file).open("a") as more:
        more.write(TABLES["a list of 20 MB"]())
    ended = cli(tree, *(["diagnose", "log"] if "causes" in file else ["plan", ONE]))
    assert ended.code == (4 if "locks" in file else 2)
    assert f"{file} is too large" in ended.err
