"""Test a requirements file line by line: what is accepted, and what is refused with its line."""

from pathlib import Path

import pytest

from trainwright.core.errors import ConfigError
from trainwright.lock import requirements

SUM = "a" * 64


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "requirements.txt"


def test_an_ordinary_file(file: Path) -> None:
    (file.parent / "more.txt").write_text("gamma\n")
    (file.parent / "held.txt").write_text("delta<3\n")
    file.write_text(
        "# a comment\n\nAlpha[x,y]>=1,<2  # why\nbeta==1.0 ; python_version < '3' \\\n"
        f"    --hash=sha256:{SUM} \\\n    --hash=sha256:{'b' * 64}\n-r more.txt\n--constraint held.txt\n"
    )
    found = requirements.read(file)
    assert [(line.name, line.where.rpartition("/")[2]) for line in found.lines] == [
        ("alpha", "requirements.txt:3"),
        ("beta", "requirements.txt:4"),
        ("gamma", "more.txt:1"),
    ]
    assert found.lines[0].text == "Alpha[x,y]>=1,<2"
    assert found.lines[1].text == "beta==1.0 ; python_version < '3'"
    assert found.lines[1].hashes == (SUM, "b" * 64)
    assert [line.text for line in found.constraints] == ["delta<3"]


def test_a_line_that_is_to_be_compiled(file: Path) -> None:
    file.write_text("alpha==1  # trainwright: compile MAX_JOBS=2 TORCH_CUDA_ARCH_LIST=8.0;9.0\nbeta\n")
    alpha, beta = requirements.read(file).lines
    assert (alpha.text, alpha.compile) == ("alpha==1", True)
    assert alpha.environment == {"MAX_JOBS": "2", "TORCH_CUDA_ARCH_LIST": "8.0;9.0"}
    assert (beta.compile, beta.environment) == (False, {})


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("git+https://git.invalid/a/b.git", "does not come from a package index"),
        ("https://files.invalid/a-1-py3-none-any.whl", "does not come from a package index"),
        ("a @ https://files.invalid/a-1-py3-none-any.whl", "does not come from a package index"),
        ("a@file:///a-1-py3-none-any.whl", "does not come from a package index"),
        ("a@https://files.invalid/a", "does not come from a package index"),
        ("./a", "does not come from a package index"),
        ("wheels/a-1-py3-none-any.whl", "does not come from a package index"),
        ("-e .", "does not come from a package index"),
        ("--editable=a", "does not come from a package index"),
        ("--index-url https://index.invalid/simple", "--index-url is not allowed in this file"),
        ("-f wheels", "-f is not allowed in this file"),
        ("a==1 --hash=md5:abc", "the hash is not a sha256"),
        ("a=1", "this is not a requirement"),
        ("a  # trainwright: compile -O2", "`# trainwright: compile` takes NAME=value"),
        ('a  # trainwright: compile CC="gcc;rm"', "`# trainwright: compile` takes NAME=value"),
        ("-r nowhere.txt", "nowhere.txt cannot be read"),
        ("-r requirements.txt", "a requirements file includes itself"),
    ],
)
def test_a_line_that_is_refused(file: Path, line: str, what: str) -> None:
    file.write_text(f"fine\n{line}\n")
    with pytest.raises(ConfigError) as raised:
        requirements.read(file)
    assert what in raised.value.what
    assert raised.value.where == (str(file.parent / "nowhere.txt") if "nowhere" in line else f"{file}:2")
    assert raised.value.exit_code == 2


@pytest.mark.parametrize("text", ["", "# nothing\n"])
def test_a_file_that_asks_for_nothing(file: Path, text: str) -> None:
    file.write_text(text)
    with pytest.raises(ConfigError, match="contains no requirement"):
        requirements.read(file)
