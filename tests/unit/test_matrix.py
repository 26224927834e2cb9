"""Intent into variants: ids, defaults, selection, and names that lead nowhere."""

from collections.abc import Callable
from pathlib import Path

import pytest

from trainwright.errors import ConfigError
from trainwright.matrix import Intent, expand, image_id, load_intent, select
from trainwright.model import Framework, Matrix, Row, Target

Edit = Callable[[Path, str, str], None]
DEFAULT = "pytorch-2.13-cpu-py311-sagemaker"


def row(**changes: object) -> Row:
    axes = {
        "release": "2.13",
        "accelerators": ["cpu", "cu130"],
        "pythons": ["3.11", "3.12"],
        "targets": ["ec2"],
        "bases": ["debian-12", "ubuntu"],
        "pins": {"torch": "2.13.0", "pip": "2"},
    }
    return Row.model_validate(axes | changes)


def matrix(*rows: Row) -> Matrix:
    return Matrix(
        common=Target(pins={"pip": "1", "mpi": "1"}),
        targets={"ec2": Target(pins={"mpi": "2"})},
        frameworks={"pytorch": Framework(default="pytorch-2.13-cpu-py311-ec2", rows=list(rows))},
    )


def test_ids() -> None:
    assert image_id("pytorch", "2.13", "cpu", "3.11", "sagemaker", "") == DEFAULT
    assert image_id("pytorch", "2.13", "cu130", "3.12", "ec2", "dlc") == "pytorch-2.13-cu130-py312-ec2-dlc"


def test_every_cell_once() -> None:
    variants = list(expand(matrix(row())))
    assert len({variant.id for variant in variants}) == len(variants) == 8
    assert [variant.id for variant in variants if variant.default] == ["pytorch-2.13-cpu-py311-ec2"]
    assert {variant.id.endswith("-ubuntu") for variant in variants if variant.base == "ubuntu"} == {True}


def test_the_nearer_pin_wins() -> None:
    """A row speaks for its framework, a target for itself, both before what is common."""
    assert next(expand(matrix(row()))).pins == {"torch": "2.13.0", "pip": "2", "mpi": "2"}


def test_unknown_target() -> None:
    with pytest.raises(ConfigError, match="sagemakr"):
        list(expand(matrix(row(targets=["sagemakr"]))))


def test_this_checkout_has_one_default_a_framework(intent: Intent) -> None:
    for framework in intent.matrix.frameworks:
        assert len(select(intent.variants, framework, None)) == 1


def test_select(intent: Intent) -> None:
    def ids(framework: str | None, only: str | None) -> list[str]:
        return [variant.id for variant in select(intent.variants, framework, only)]

    everything = [variant.id for variant in intent.variants]
    assert ids("pytorch", None) == [DEFAULT]
    assert ids(None, None) == everything
    assert ids(None, DEFAULT) == [DEFAULT]
    assert ids(None, "*-sagemaker") == [DEFAULT]
    assert ids("pytorch", "*") == everything
    assert ids(None, "pytorch-*-ec2") == ["pytorch-2.13-cpu-py311-ec2"]


def test_unknown_framework_lists_the_valid_ones(intent: Intent) -> None:
    with pytest.raises(ConfigError, match="pytroch") as raised:
        select(intent.variants, "pytroch", None)
    assert raised.value.exit_code == 2
    assert "did you mean 'pytorch'" in raised.value.why
    assert raised.value.fix == "make build FRAMEWORK=pytorch"


@pytest.mark.parametrize("only", [None, "*"])
def test_empty_framework_is_an_error_and_never_everything(intent: Intent, only: str | None) -> None:
    with pytest.raises(ConfigError, match="FRAMEWORK is empty"):
        select(intent.variants, "", only)


@pytest.mark.parametrize("only", ["", "pytorch-2.13-cpu-py311-sagemakr"])
def test_no_such_image(intent: Intent, only: str) -> None:
    with pytest.raises(ConfigError) as raised:
        select(intent.variants, None, only)
    assert DEFAULT in raised.value.why


def test_select_in_a_matrix_without_frameworks() -> None:
    with pytest.raises(ConfigError):
        select([], "pytorch", None)


# --- what a checkout may get wrong ---------------------------------------------------------------------------


def refused(tree: Path) -> ConfigError:
    with pytest.raises(ConfigError) as raised:
        load_intent(tree)
    return raised.value


def test_duplicate_ids(tree: Path, edit: Edit) -> None:
    edit(
        tree / "dockerfiles/matrix.toml", r'^targets = \["ec2", "sagemaker"\]', 'targets = ["ec2", "ec2", "sagemaker"]'
    )
    assert "pytorch-2.13-cpu-py311-ec2" in refused(tree).what


def test_default_that_is_no_cell(tree: Path, edit: Edit) -> None:
    edit(tree / "dockerfiles/matrix.toml", "py311-sagemaker", "py312-sagemaker")
    assert DEFAULT in refused(tree).why


def test_default_of_another_framework(tree: Path) -> None:
    """It is a cell of the matrix, but FRAMEWORK=jax would then mean nothing at all."""
    path = tree / "dockerfiles/matrix.toml"
    text = path.read_text()
    rows = text[text.index("[[frameworks.pytorch.rows]]") :].replace("frameworks.pytorch", "frameworks.jax")
    path.write_text(f'{text}\n[frameworks.jax]\ndefault = "{DEFAULT}"\n{rows}')
    assert "jax" in refused(tree).what


def test_pin_that_names_no_component(tree: Path, edit: Edit) -> None:
    edit(tree / "dockerfiles/matrix.toml", r"^mpi4py = ", "mpi5py = ")
    error = refused(tree)
    assert "mpi5py" in error.what
    assert "did you mean 'mpi4py'" in error.why


def test_component_that_is_never_pinned(tree: Path, edit: Edit) -> None:
    edit(tree / "dockerfiles/matrix.toml", r"^mpi4py = .*\n", "")
    error = refused(tree)
    assert "'mpi4py' is declared and never pinned" in error.what
    assert error.exit_code == 2


def test_unknown_base(tree: Path, edit: Edit) -> None:
    edit(tree / "dockerfiles/matrix.toml", r'bases = \["debian-12"\]', 'bases = ["debian-13"]')
    assert "did you mean 'debian-12'" in refused(tree).why


def test_version_that_a_distro_component_cannot_honour(tree: Path, edit: Edit) -> None:
    """`openmpi = "5.0.6"` would be advertised nowhere, and 4.1.4 would ship: a pin that is ignored."""
    edit(tree / "dockerfiles/matrix.toml", r'^openmpi = "distro"', 'openmpi = "5.0.6"')
    assert "openmpi" in refused(tree).what


def test_python_component_without_a_version(tree: Path, edit: Edit) -> None:
    edit(tree / "dockerfiles/matrix.toml", r'^pip = "26.3"', 'pip = "distro"')
    assert "pip" in refused(tree).what


def test_requirement_with_an_unknown_placeholder(tree: Path, edit: Edit) -> None:
    edit(tree / "dockerfiles/components.toml", r"mpi4py==\{version\}", "mpi4py=={verison}")
    assert "mpi4py" in refused(tree).what
