"""Test how the intent becomes variants: ids, defaults, selection, and unknown names."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from trainwright.build import lint
from trainwright.core.errors import ConfigError
from trainwright.matrix import validate
from trainwright.matrix.matrix import Intent, expand, image_id, load_intent, select
from trainwright.matrix.model import Component, Framework, Matrix, Pin, Probe, Provider, Row, Target, Variant

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
        common=Target(pins={"pip": "1", "mpi": "source 1"}),
        devel=Target(pins={"pip": "3"}),
        targets={"ec2": Target(pins={"mpi": "source 2"})},
        frameworks={"pytorch": Framework(default="pytorch-2.13-cpu-py311-ec2", rows=list(rows))},
    )


PROBE = Probe(command=["true"], pattern="(.*)")


def component(**providers: Provider) -> Component:
    return Component(licence="MIT", summary="", position="python", probe=PROBE, providers=providers)


WHEEL, PACKAGE, SOURCE = (
    Provider(requirement="x=={version}"),
    Provider(packages=["x"]),
    Provider(git="g", tag="{version}"),
)
COMPONENTS = {
    "torch": component(wheel=WHEEL),
    "pip": component(wheel=WHEEL),
    "mpi": component(distro=PACKAGE, source=SOURCE),
}


def expanded(*rows: Row) -> list[Variant]:
    return list(expand(matrix(*rows), COMPONENTS))


def test_ids() -> None:
    assert image_id("pytorch", "2.13", "cpu", "3.11", "sagemaker", "") == DEFAULT
    assert image_id("pytorch", "2.13", "cu130", "3.12", "ec2", "dlc") == "pytorch-2.13-cu130-py312-ec2-dlc"


def test_every_cell_once() -> None:
    variants = expanded(row())
    assert len({variant.id for variant in variants}) == len(variants) == 8
    assert [variant.id for variant in variants if variant.default] == ["pytorch-2.13-cpu-py311-ec2"]
    assert {variant.id.endswith("-ubuntu") for variant in variants if variant.base == "ubuntu"} == {True}


def test_the_nearer_pin_wins() -> None:
    """A row speaks for its framework, a target for itself, a twin for what it has more, all before what is common."""
    image, twin, *_ = expanded(row(devel=True))
    pins = {"torch": Pin(provider="wheel", version="2.13.0"), "mpi": Pin(provider="source", version="2")}
    assert image.pins == {**pins, "pip": Pin(provider="wheel", version="2")}
    assert twin.pins == {**pins, "pip": Pin(provider="wheel", version="3")}


def test_unknown_target() -> None:
    with pytest.raises(ConfigError, match="sagemakr"):
        expanded(row(targets=["sagemakr"]))


def test_this_checkout_has_one_default_a_framework(intent: Intent) -> None:
    for framework in intent.matrix.frameworks:
        assert len(select(intent, framework, None)) == 1


def test_lines_are_searched_only_for_errors(intent: Intent, monkeypatch: pytest.MonkeyPatch) -> None:
    """Because every command loads the matrix, and to find the lines took longer than all other checks of it."""

    def line_of(_: str, path: tuple[int | str, ...]) -> int:
        raise AssertionError(f"the line of {path} was searched")

    monkeypatch.setattr(validate, "line_of", line_of)
    assert len(load_intent(intent.root).variants) == len(intent.variants)


def test_select(intent: Intent) -> None:
    def ids(framework: str | None, only: str | None) -> list[str]:
        return [variant.id for variant in select(intent, framework, only)]

    everything = [variant.id for variant in intent.variants]
    assert ids("pytorch", None) == [DEFAULT]
    assert ids(None, None) == everything
    assert ids(None, DEFAULT) == [DEFAULT]
    assert ids(None, "*-2.13-*-py311-sagemaker") == [DEFAULT]
    assert ids("pytorch", "*") == ids(None, "pytorch-*")
    assert ids(None, "pytorch-2.15-*-ec2") == ["pytorch-2.15-cu132-py313-ec2"]
    assert "pytorch-2.15-cu132-py313-ec2-distro-devel" in ids(None, "*-devel")


def test_unknown_framework_lists_the_valid_ones(intent: Intent) -> None:
    with pytest.raises(ConfigError, match="pytroch") as raised:
        select(intent, "pytroch", None)
    assert raised.value.exit_code == 2
    assert "did you mean 'pytorch'" in raised.value.why
    assert raised.value.fix == "the same command with --framework pytorch (of make: FRAMEWORK=pytorch)"


@pytest.mark.parametrize("only", [None, "*"])
def test_empty_framework_is_an_error_and_never_everything(intent: Intent, only: str | None) -> None:
    with pytest.raises(ConfigError, match="FRAMEWORK is empty"):
        select(intent, "", only)


@pytest.mark.parametrize("only", ["", "pytorch-2.13-cpu-py311-sagemakr"])
def test_no_such_image(intent: Intent, only: str) -> None:
    with pytest.raises(ConfigError) as raised:
        select(intent, None, only)
    assert DEFAULT in raised.value.why or "names are valid" in raised.value.why


def test_select_in_a_matrix_without_frameworks(intent: Intent) -> None:
    with pytest.raises(ConfigError):
        select(intent.model_copy(update={"variants": []}), "pytorch", None)


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
    """It is a cell of the matrix, but FRAMEWORK=other would then mean nothing at all."""
    path = tree / "dockerfiles/matrix.toml"
    text = path.read_text()
    head = "[[frameworks.pytorch.rows]]"
    row = (head + text.split(head)[1]).replace("frameworks.pytorch", "frameworks.other")
    path.write_text(f'{text}\n[frameworks.other]\ndefault = "{DEFAULT}"\n{row}')
    assert "other" in refused(tree).what


def test_pin_that_names_no_component(tree: Path, edit: Edit) -> None:
    edit(tree / "dockerfiles/matrix.toml", r"^mpi4py = ", "mpi5py = ")
    error = refused(tree)
    assert "mpi5py" in error.what
    assert "did you mean 'mpi4py'" in error.why


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({"zzz.toml": ""}, "zzz.toml is not valid"),
        ({"zzz.toml": "licence = "}, "zzz.toml is not valid TOML"),
        ({"zzz.toml": "ninja.toml"}, "'zzz' has no template"),
        ({"zzz.toml": "ninja.toml", "zzz.j2": ""}, "'zzz' is declared and never pinned"),
    ],
)
def test_a_component_that_is_half_added_is_found_by_lint_and_stops_nothing_else(
    tree: Path, files: dict[str, str], says: str
) -> None:
    layers = tree / "dockerfiles/layers"
    for name, text in files.items():
        (layers / name).write_text((layers / text).read_text() if text.endswith(".toml") else text)
    intent = load_intent(tree)
    with pytest.raises(ConfigError) as raised:
        validate.check_components(tree, intent.variants)
    assert says in raised.value.what
    assert raised.value.where.startswith("dockerfiles/layers/zzz.toml")
    with pytest.raises(ConfigError, match=r"zzz"):
        lint.lint(intent, [])


def test_a_component_that_is_pinned_and_broken_is_an_error(tree: Path) -> None:
    (tree / "dockerfiles/layers/ninja.toml").write_text("")
    assert "ninja.toml" in refused(tree).what


def test_component_that_is_never_pinned(tree: Path, edit: Edit) -> None:
    edit(tree / "dockerfiles/matrix.toml", r"^mpi4py = .*\n", "")
    with pytest.raises(ConfigError, match="'mpi4py' is declared and never pinned"):
        validate.check_components(tree, load_intent(tree).variants)


def test_unknown_base(tree: Path, edit: Edit) -> None:
    edit(tree / "dockerfiles/matrix.toml", r'bases = \["debian-12"\]', 'bases = ["debian-21"]')
    assert "debian-12, debian-12-efa, debian-13, " in refused(tree).why


def test_component_without_a_template(tree: Path) -> None:
    """Whoever needs no Dockerfile goes on without it."""
    (tree / "dockerfiles/layers/mpi4py.j2").unlink()
    with pytest.raises(ConfigError) as error:
        validate.check_components(tree, load_intent(tree).variants)
    assert error.value.fix == "write dockerfiles/layers/mpi4py.j2"


# --- version, provider version, provider -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "provider", "version"),
    [
        ('pip = "26.3"', "wheel", "26.3"),
        ('pip = "wheel 26.3"', "wheel", "26.3"),
        ('pip = "wheel  26.3 "', "wheel", "26.3"),
        ('python = "distro"', "distro", ""),
        ('mpi = "source 1.0"', "source", "1.0"),
        ('mpi = "distro"', "distro", ""),
    ],
)
def test_what_a_pin_says(said: str, provider: str, version: str) -> None:
    name, text = said.replace('"', "").split(" = ")
    components = {**COMPONENTS, "python": component(distro=PACKAGE)}
    alone = matrix(row(pins={})).model_copy(
        update={"common": Target(pins={name: text}), "targets": {"ec2": Target(pins={})}}
    )
    held = next(expand(alone, components)).pins[name]
    assert held == Pin(provider=provider, version=version)


@pytest.mark.parametrize(
    ("pin", "what", "why", "fix"),
    [
        ('nccl = "whel 2.30.7"', "unknown provider 'whel' of nccl", "did you mean 'wheel'", 'nccl = "wheel 2.30.7"'),
        ('nccl = "2.30.7"', "does not name a provider", "source, wheel", 'nccl = "source 2.30.7"'),
        ('nccl = ""', "is empty", "source, wheel", "nccl = "),
        ('nccl = "wheel"', "is not a valid requirement", 'nccl = "wheel": it lacks a version', "an exact version"),
        ('nccl = "wheel 2.30.7 2.30.8"', "is not a valid requirement", "is not a version", "an exact version"),
        ('nccl = "wheel >=2.30"', "is not a valid requirement", 'nccl = "wheel >=2.30": ', "an exact version"),
        (
            'openmpi = "5.0.6"',
            "does not name a provider",
            'openmpi = "5.0.6": a provider of dockerfiles/layers/openmpi.toml belongs there; valid: distro, efa-ins',
            'openmpi = "distro" or "efa-installer"',
        ),
        (
            'mpi5py = "1"',
            "names an unknown component",
            "did you mean 'mpi4py'",
            "correct it, or add dockerfiles/layers/mpi5py",
        ),
        ('pip = "not one"', "unknown provider 'not' of pip", 'pip = "not one": ', 'pip = "wheel one"'),
        ('pip = "26.x"', "is not a valid requirement", "pip = \"26.x\": '26.x' is not a version", "an exact version"),
        ('openmpi = "distro 5.0.6"', "has a version, and its provider takes none", "the lock names", '"distro"'),
        ('openmpi = "efa-installer"', "takes openmpi from efa-installer", "efa-installer is not pinned", "pin efa-"),
    ],
)
def test_pin_of_a_component_with_several_providers(tree: Path, pin: str, what: str, why: str, fix: str) -> None:
    """Nobody is served by a pin that is ignored: what is advertised is what ships."""
    path = tree / "dockerfiles/matrix.toml"
    name = pin.split()[0]
    own = re.compile(rf'\b{name} = "[^"]*"')
    before, row, rest = path.read_text().partition('flavour = "single-node"')
    if not own.search(rest.split("]]")[0]):
        rest = rest.replace("pins = { ", f'pins = {{ {name} = "", ', 1)
    path.write_text(before + row + own.sub(lambda _: pin, rest, count=1))
    line = next(n for n, text in enumerate(path.read_text().splitlines(), 1) if pin in text and "pins = {" in text)
    error = refused(tree)
    assert error.exit_code == 2
    assert what in error.what
    assert why in error.why
    assert fix in error.fix
    assert error.where == f"dockerfiles/matrix.toml:{line}"
    assert error.fix.startswith(f"$EDITOR +{line} dockerfiles/matrix.toml   # ")


@pytest.mark.parametrize(
    ("pattern", "new", "what"),
    [
        (r'^openmpi = "efa-installer"', 'openmpi = "efa-installer 4.1.7"', "its provider takes none"),
        (r'^python = "distro"', 'python = "3.13"', "its provider takes none"),
        (r'^python = "distro"', 'python = ""', "is empty"),
        (r'^pip = "26.3"', 'pip = "distro"', "is not a valid requirement"),
        (r'^pip = "26.3"', 'pip = "distro 26.3"', "unknown provider 'distro' of pip"),
    ],
)
def test_version_that_a_provider_cannot_honour(tree: Path, edit: Edit, pattern: str, new: str, what: str) -> None:
    edit(tree / "dockerfiles/matrix.toml", pattern, new)
    assert what in refused(tree).what


def test_a_stack_that_no_row_names(tree: Path, edit: Edit) -> None:
    edit(
        tree / "dockerfiles/matrix.toml", r"^\[stacks.efa\]", '[stacks.spare.pins]\nopenmpi = "distro"\n\n[stacks.efa]'
    )
    error, text = refused(tree), (tree / "dockerfiles/matrix.toml").read_text()
    line = text.splitlines().index("[stacks.spare.pins]") + 1
    assert (error.what, error.where) == ("no row uses the stack 'spare'", f"dockerfiles/matrix.toml:{line}")


def test_an_unknown_stack(tree: Path, edit: Edit) -> None:
    edit(tree / "dockerfiles/matrix.toml", r'^stack = "single-node"', 'stack = "singel-node"')
    error, text = refused(tree), (tree / "dockerfiles/matrix.toml").read_text()
    line = text.splitlines().index('stack = "singel-node"') + 1
    assert (error.what, error.where) == ("unknown stack 'singel-node'", f"dockerfiles/matrix.toml:{line}")
    assert "did you mean 'single-node'" in error.why


def test_a_row_overrides_its_stack(tree: Path, edit: Edit) -> None:
    edit(
        tree / "dockerfiles/matrix.toml",
        r'^pins = \{ torch = "2.15.0",',
        'pins = { openmpi = "none", torch = "2.15.0",',
    )
    pins = {variant.id: variant.pins for variant in load_intent(tree).variants}
    assert "openmpi" not in pins["pytorch-2.15-cu132-py313-ec2-single-node"]
    assert "openmpi" in pins["pytorch-2.14-cu130-py313-ec2-single-node"]


def test_pins_of_a_framework_are_those_of_its_rows_alone_and_yield_to_stack_and_row(tree: Path, edit: Edit) -> None:
    path = tree / "dockerfiles/matrix.toml"
    edit(
        path, r"^\[frameworks.jax\]\n", '[frameworks.jax.pins]\nninja = "1.13.2"\nnumpy = "2.4.5"\n\n[frameworks.jax]\n'
    )
    edit(path, r"^\[stacks.distro.pins\]\n", '[stacks.distro.pins]\nninja = "none"\n')
    found = load_intent(tree)
    held = {variant.id: variant.pins.get("ninja") for variant in found.variants if not variant.devel}
    assert held["jax-0.12-cu132-py313-ec2"] == Pin(provider="wheel", version="1.13.2")
    assert held["jax-0.12-cpu-py313-ec2"] is None
    assert not any(pin for identity, pin in held.items() if not identity.startswith("jax"))
    variant = found.recipe("jax-0.12-cu132-py313-ec2").variant
    what, where = validate.declared(found.matrix, variant, "numpy", path.read_text())
    line = path.read_text().splitlines().index('numpy = "2.4.5"') + 1
    assert (what, where) == ("framework jax", f"dockerfiles/matrix.toml:{line}")


@pytest.mark.parametrize(
    ("pattern", "new"), [("p5en.48xlarge", "p5em.48xlarge"), ('"p4d.24xlarge",', '"p4d.24xlarge",\n"p5em.48xlarge",')]
)
def test_unknown_instance_type_is_named_by_its_row(tree: Path, edit: Edit, pattern: str, new: str) -> None:
    path = tree / "dockerfiles/matrix.toml"
    edit(path, re.escape(pattern), new)
    wrong = "p5em.48xlarge"
    line = next(n for n, text in enumerate(path.read_text().splitlines(), 1) if f'"{wrong}"' in text)
    error = refused(tree)
    assert f"unknown instance type '{wrong}'" in error.what
    assert error.where == f"dockerfiles/matrix.toml:{line}"
    assert error.why.count("xlarge") <= 3
    assert "dockerfiles/instances.toml" in error.fix


def test_instance_type_that_sagemaker_does_not_have(tree: Path, edit: Edit) -> None:
    edit(tree / "dockerfiles/matrix.toml", r'"c6i.32xlarge"', '"hpc7a.96xlarge"')
    error, lines = refused(tree), (tree / "dockerfiles/matrix.toml").read_text().splitlines()
    assert (
        "base-1.0-cpu-py313-sagemaker-mpi-efa is for hpc7a.96xlarge, which SageMaker does not offer for training"
        in error.what
    )
    file, _, line = error.where.partition(":")
    assert file == "dockerfiles/matrix.toml"
    assert '"hpc7a.96xlarge"' in lines[int(line) - 1]
    assert "c5n" in lines[int(line) - 1]
    assert f"$EDITOR +{line} {file}" in error.fix


def test_two_components_that_are_one_python_package(tree: Path, edit: Edit) -> None:
    layers = tree / "dockerfiles/layers"
    for suffix in ("toml", "j2"):
        (layers / f"cmake2.{suffix}").write_text((layers / f"cmake.{suffix}").read_text())
    edit(layers / "cmake2.toml", r'requirement = "cmake==', 'requirement = "CMake==')
    edit(tree / "dockerfiles/matrix.toml", r"^cmake = ", 'cmake2 = "4.4.4"\ncmake = ')
    error = refused(tree)
    assert error.exit_code == 2
    assert "the same Python package, 'cmake'" in error.what
    assert {"dockerfiles/layers/cmake.toml", "dockerfiles/layers/cmake2.toml"} <= set(error.where.split())


def test_installer_of_a_release_that_nobody_wrote_down(tree: Path, edit: Edit) -> None:
    edit(tree / "dockerfiles/matrix.toml", r'^efa-installer = ".*"', 'efa-installer = "9.9.9"')
    error, lines = refused(tree), (tree / "dockerfiles/matrix.toml").read_text().splitlines()
    assert "[releases.'9.9.9']" in error.why
    line = lines.index('efa-installer = "9.9.9"') + 1
    assert error.where == f"dockerfiles/matrix.toml:{line}"
    assert "add it to dockerfiles/layers/efa-installer.toml" in error.fix


def test_requirement_with_an_unknown_placeholder(tree: Path, edit: Edit) -> None:
    edit(tree / "dockerfiles/layers/mpi4py.toml", r"mpi4py==\{version\}", "mpi4py=={verison}")
    error, lines = refused(tree), (tree / "dockerfiles/layers/mpi4py.toml").read_text().splitlines()
    assert "mpi4py" in error.what
    line = next(n for n, text in enumerate(lines, 1) if "verison" in text)
    assert error.where == f"dockerfiles/layers/mpi4py.toml:{line}"


CPU, SINGLE = 'torch = "2.13.0" }', 'cuda = "13.2.2" }'
ROW = 'accelerators = ["cu132"]\npythons = ["3.13"]\ntargets = ["ec2", "sagemaker"]\nbases = ["debian-13"]\n'
ROW += 'stack = "distro-efa"\nflavour = "distro"'


@pytest.mark.parametrize(
    ("said", "new", "blamed", "what", "why"),
    [
        (
            ROW,
            ROW.replace("132", "130"),
            r'stack = "distro-efa".*? cuda = ',
            "-cu130-py313-ec2-distro pins cuda = '13.2.2'",
            "which is cu132",
        ),
        (SINGLE, 'cuda = "13.3" }', " cuda = ", "-ec2-single-node pins cuda = '13.3'", "another CUDA than the pin"),
        (SINGLE, 'cuda = "12.2.2" }', " cuda = ", "-ec2-single-node pins cuda = '12.2.2'", "which is cu122"),
        (CPU, CPU.replace(" }", ', cuda = "13.2.2" }'), " cuda = ", "-cpu-py311-ec2 pins cuda", "without a GPU"),
        (CPU, CPU.replace(" }", ', nccl = "source 2.29.7" }'), " nccl = ", "-cpu-py311-ec2 pins nccl", "without a GPU"),
    ],
    ids=["accelerator", "pin", "another major", "CUDA for the CPU", "NCCL for the CPU"],
)
def test_an_accelerator_and_the_pins_mean_one_cuda(
    tree: Path, edit: Edit, said: str, new: str, blamed: str, what: str, why: str
) -> None:
    path = tree / "dockerfiles/matrix.toml"
    edit(path, re.escape(said), new)
    text = path.read_text()
    found = re.search(blamed, text, re.DOTALL)
    assert found
    line = text.count("\n", 0, found.end()) + 1
    error = refused(tree)
    assert what in error.what
    assert why in error.why
    assert error.where == f"dockerfiles/matrix.toml:{line}"
    assert error.fix.startswith(f"$EDITOR +{line} dockerfiles/matrix.toml")
    assert error.exit_code == 2


def test_cuda_that_only_the_framework_says(tree: Path, edit: Edit) -> None:
    """No pin, no contradiction: whether its templates can do without is their affair."""
    edit(tree / "dockerfiles/matrix.toml", r', torchvision = "0.29.2", cuda = "13.2.2" \}', " }")
    assert load_intent(tree).variants
