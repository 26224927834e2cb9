"""Test the errors about invalid TOML: they show file, line, and a likely correction."""

from pathlib import Path

import pytest

from trainwright.core.errors import ConfigError, did_you_mean
from trainwright.core.toml import load, parse
from trainwright.matrix.model import Component, Matrix

MATRIX = """\
[common.pins]
pip = "26.3"

[targets.ec2.pins]

[frameworks.pytorch]
default = "pytorch-2.13-cpu-py311-ec2"

[[frameworks.pytorch.rows]]
release = "2.13"
accelerators = ["cpu"]
pythons = ["3.11"]
targets = ["ec2"]
bases = ["debian-12"]
pins = {}
"""


def complaint(text: str) -> ConfigError:
    with pytest.raises(ConfigError) as raised:
        parse(text, Matrix, "dockerfiles/matrix.toml")
    return raised.value


def test_it_parses() -> None:
    assert parse(MATRIX, Matrix, "matrix.toml").frameworks["pytorch"].rows[0].release == "2.13"


def test_malformed_toml_names_file_and_line() -> None:
    error = complaint(MATRIX.replace('release = "2.13"', 'release = "2.13'))
    assert error.exit_code == 2
    assert error.where == "dockerfiles/matrix.toml:10"
    assert "+10" in error.fix


def test_text_that_ends_too_early_names_the_last_line() -> None:
    assert complaint("[common.pins]\npip = [").where == "dockerfiles/matrix.toml:2"


def test_unknown_key_names_line_and_nearest() -> None:
    error = complaint(MATRIX.replace("pins = {}", 'pins = {}\ntarget = ["ec2"]'))
    assert error.where == "dockerfiles/matrix.toml:16"
    assert "did you mean 'targets'" in error.why


def test_misspelt_required_key_is_explained_by_its_spelling() -> None:
    """Both "release is missing" and "releese is unknown" are true; only the second one helps."""
    error = complaint(MATRIX.replace("release", "releese"))
    assert error.where == "dockerfiles/matrix.toml:10"
    assert "did you mean 'release'" in error.why


def test_wrong_type_names_the_line_of_the_second_row() -> None:
    row = MATRIX[MATRIX.index("[[") :]
    error = complaint(MATRIX + row.replace('accelerators = ["cpu"]', 'accelerators = "cpu"'))
    assert error.where == "dockerfiles/matrix.toml:18"
    assert "accelerators" in error.why


def test_a_key_that_a_row_lacks_has_the_line_of_its_row() -> None:
    """And not that of the same key in the next row."""
    row = MATRIX[MATRIX.index("[[") :]
    error = complaint(MATRIX.replace('bases = ["debian-12"]\n', "") + row)
    assert error.where == "dockerfiles/matrix.toml:9"
    assert error.why == "bases of this row of [[frameworks.pytorch.rows]]: Field required"
    below = "[frameworks.pytorch.rows.pins]\nnumpy = 1\n"  # a table of the row is part of it
    error = complaint(MATRIX.replace("pins = {}\n", below) + row)
    assert error.where == "dockerfiles/matrix.toml:16"
    assert error.why.startswith("pins.numpy of this row of [[frameworks.pytorch.rows]]: ")


def test_unknown_key_of_a_component(tmp_path: Path) -> None:
    path = tmp_path / "pip.toml"
    path.write_text(
        'licence = "MIT"\nsummary = ""\nposition = "python"\n[probe]\npattern = "(.*)"\n'
        '[providers.wheel]\nrequirment = "pip"\n'
    )
    with pytest.raises(ConfigError, match="is not valid") as raised:
        load(path, Component)
    assert raised.value.where.endswith("pip.toml:7")
    assert "did you mean 'requirement'" in raised.value.why


@pytest.mark.parametrize("name", ["matrix.toml", "layers/numpy.toml"])
@pytest.mark.parametrize(
    "content", [None, b"\xff\xfe", b"x = ", b"x = 1"], ids=["missing", "bytes", "no TOML", "no sense"]
)
def test_a_file_is_called_by_its_path_from_the_root(tmp_path: Path, name: str, content: bytes | None) -> None:
    """What is said can be pasted in the root of the checkout, wherever that is."""
    path = tmp_path / "dockerfiles/checkout/dockerfiles" / name
    path.parent.mkdir(parents=True)
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError) as raised:
        load(path, Matrix)
    error = raised.value
    for said in (error.what.split(" ")[0], error.where.split(":")[0], error.fix.split(" ")[-1]):
        assert said == f"dockerfiles/{name}"


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is missing"):
        load(tmp_path / "matrix.toml", Matrix)


def test_file_that_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "matrix.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match=r"matrix\.toml"):
        load(tmp_path / "matrix.toml", Matrix)


def test_did_you_mean() -> None:
    assert did_you_mean("pytroch", ["jax", "pytorch"]) == "did you mean 'pytorch'? valid: jax, pytorch"
    assert did_you_mean("x", ["jax", "pytorch"]) == "valid: jax, pytorch"
    assert did_you_mean("x", []) == "valid: none"
