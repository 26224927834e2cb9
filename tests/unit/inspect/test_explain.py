"""Test `explain` and `find` on a small checkout: why each version was chosen, and which images hold it."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trainwright.core.errors import ConfigError, IncompatibleError
from trainwright.image import inputs
from trainwright.inspect.explain import NOT_INCLUDED, as_tables
from trainwright.inspect.explain import explain as explain_image
from trainwright.inspect.find import Held, Query, find, query
from trainwright.lock import facts, lockfile, packages
from trainwright.matrix.matrix import Intent, Recipe, load_intent
from trainwright.matrix.model import Lock, Pin, PythonFile, Source

Cli = Callable[..., Any]
Edit = Callable[[Path, str, str], None]
EFA, DISTRO = "pytorch-2.15-cu132-py313-ec2", "pytorch-2.15-cu132-py313-ec2-distro"

MATRIX = """\
[common.pins]
pip = "26.3"
numpy = "2.4.6"

[devel.pins]
ninja = "1.13.0"
pip = "26.3"

[targets.ec2]
pins = { numpy = "2.4.7" }

[frameworks.pytorch]
default = "pytorch-2.15-cu132-py313-ec2"

[[frameworks.pytorch.rows]]
release = "2.15"
accelerators = ["cu132"]
pythons = ["3.13"]
targets = ["ec2"]
bases = ["debian-13"]
instances = ["p5.48xlarge", "p4d.24xlarge"]
devel = true

[frameworks.pytorch.rows.pins]
libfabric = "efa-installer" # torch = "2.14.1" had another
aws-ofi-nccl = "efa-installer"
efa-installer = "1.50.0"
torch = "2.15.0"

[[frameworks.pytorch.rows]]
release = "2.15"
accelerators = ["cu132"]
pythons = ["3.13"]
targets = ["ec2"]
bases = ["debian-13"]
flavour = "distro"
driver = "580.65.06"

[frameworks.pytorch.rows.pins]
libfabric = "distro"
aws-ofi-nccl = "source 1.21.0"
torch = "2.15.0"
nccl = "2.30.7"
"""

PROBE = '\n[probe]\ncommand = ["true"]\npattern = "(.*)"\n'
LAYERS = {
    "pip": '[providers.wheel]\nrequirement = "pip=={version}"',
    "numpy": '[providers.wheel]\nrequirement = "numpy=={version}"',
    "ninja": '[providers.wheel]\nrequirement = "ninja=={version}"',
    "torch": '[providers.wheel]\nrequirement = "torch=={version}"',
    "nccl": '[providers.wheel]\nrequirement = { "cu13*" = "nvidia-nccl-cu13=={version}" }',
    "libfabric": """\
[providers.distro]
packages = ["libfabric-bin"]
build_packages = ["libfabric-dev"]
[providers.efa-installer]
bundled_by = "efa-installer\"""",
    "efa-installer": """\
[providers.download]
url = "https://efa-installer.amazonaws.com/aws-efa-installer-{version}.tar.gz"
[releases."1.50.0"]
bundles = { libfabric = "2.6.0amzn1.0", aws-ofi-nccl = "1.21.1" }""",
    "aws-ofi-nccl": """\
[providers.source]
git = "https://github.com/aws/aws-ofi-nccl"
tag = "v{version}"
[providers.efa-installer]
bundled_by = "efa-installer"
[releases."1.21.0"]
[releases."1.21.1"]
commit = "2475c4c736907e68ebeadb3848f31231ee4a44d0\"""",
}

COMPAT = """\
[[rules]]
kind = "requires"
a = "aws-ofi-nccl"
a_range = ">=1.14"
b = "libfabric"
b_range = ">=1.22"
severity = "refuse"
rule = "the plugin needs libfabric 1.22"
evidence = "its release notes"
checked_on = 2026-11-21

[[rules]]
kind = "ban"
a = "aws-ofi-nccl"
a_range = "==1.21.0"
severity = "warn"
rule = "needs libcudart although it was built to do without"
evidence = "release notes of 1.21.1"
checked_on = 2026-11-20

[[rules]]
kind = "requires"
a = "torch"
a_range = "==2.15.0"
b = "nccl"
b_range = "==2.30.7"
severity = "refuse"
rule = "torch loads the NCCL of its own wheel"
evidence = "its metadata"
checked_on = 2026-11-21
"""

BASES = """\
[bases.debian-13]
provider = "packages"
distribution = "debian"
suite = "trixie"
glibc = "2.41"
archives = { debian = ["trixie"] }
"""

TOOLS = """\
[layers]
most = 1000000000
alone = 100000000
[python_tools]
uv = "0.13.9"
[sdist_build]
"""


def wheel(name: str, version: str, *needs: str, group: Any = "framework") -> PythonFile:
    sha256 = name.encode().hex().ljust(64, "0")[:64]
    file = f"{name.replace('-', '_')}-{version}-py3-none-any.whl"
    return PythonFile(name=name, version=version, file=file, sha256=sha256, size=1, group=group, needs=list(needs))


def stanza(name: str, version: str) -> dict[str, str]:
    return {
        **{"Package": name, "Version": version, "Architecture": "amd64", "Archive": "debian"},
        **{"Filename": f"pool/{name}.deb", "Size": "1", "SHA256": name.encode().hex().ljust(64, "0")[:64]},
    }


def settle(root: Path) -> None:
    """Write locks as `trainwright lock` would."""
    intent = load_intent(root)
    header = {"Date": "Fri, 20 Nov 2026 02:11:10 GMT"}
    for tools, held in (
        (False, [stanza("libfabric-bin", "2.1.0-1.1")]),
        (True, [stanza("libfabric-dev", "2.1.0-1.1")]),
    ):
        said = {"Intent": inputs.packages_intent(intent, "debian-13", tools), **header}
        path = inputs.packages_path(intent, "debian-13", tools)
        path.write_text(packages.dump(said, {entry["Package"]: entry for entry in held}))
    python = [wheel("pip", "26.3"), wheel("numpy", "2.4.7"), wheel("nvidia-nccl-cu13", "2.30.7")]
    python += [
        wheel("torch", "2.15.0+cu132", "nvidia-nccl-cu13"),
        wheel("ninja", "1.13.0", group="devel"),
        wheel("cmake", "4.1.0", group="devel"),
    ]
    python += [wheel("uv", "0.13.9", group="tools")]
    efa = Source(name="efa-installer", version="1.50.0", url="https://x/efa.tar.gz", sha256="fa" * 32, licence="x")
    plugin = Source(
        **{"name": "aws-ofi-nccl", "version": "1.21.0", "url": "https://github.com/aws/aws-ofi-nccl"},
        **{"tag": "v1.21.0", "commit": "24" * 20, "sha256": "00" * 32, "licence": "Apache-2.0"},
    )
    for variant, source in zip([v for v in intent.variants if not v.devel], [efa, plugin], strict=True):
        said_of = {
            "intent": lockfile.intent_digest(Recipe(intent, variant)),
            "entries": lockfile.entries_digest(python),
        }
        inputs.lock_path(Recipe(intent, variant)).write_text(
            lockfile.dump(Lock(**said_of, python=python, sources=[source]))
        )


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make one checkout for all tests, which only read it."""
    return plant(tmp_path_factory.mktemp("checkout"))


def plant(tmp_path: Path) -> Path:
    files = {"matrix.toml": MATRIX, "bases.toml": BASES, "tools.toml": TOOLS, "compat.toml": COMPAT}
    for name in ("additions.toml", "instances.toml", "licences.toml"):
        files[name] = (Path(__file__).parents[3] / "dockerfiles" / name).read_text()
    for name, text in LAYERS.items():
        files[f"layers/{name}.toml"] = f'licence = "L-{name}"\nsummary = ""\nposition = "system"\n{PROBE}{text}\n'
        files[f"layers/{name}.j2"] = ""
    (tmp_path / "dockerfiles/locks").mkdir(parents=True)
    (tmp_path / "dockerfiles/layers").mkdir()
    for name, text in files.items():
        (tmp_path / "dockerfiles" / name).write_text(text)
    settle(tmp_path)
    return tmp_path


@pytest.fixture
def explained(cli: Cli, checkout: Path) -> Callable[[str], dict[str, dict[str, Any]]]:
    def call(identity: str) -> dict[str, dict[str, Any]]:
        ended = cli(checkout, "explain", identity, "--json")
        assert (ended.code, ended.err) == (0, "")
        return {row["component"]: row for row in json.loads(ended.out)}

    return call


Explain = Callable[[str], dict[str, dict[str, Any]]]


# --- the facts that rules are judged on -----------------------------------------------------------------------------


def facts_of(root: Path, identity: str, locked: bool = True) -> dict[str, str]:
    intent = load_intent(root)
    variant = next(variant for variant in intent.variants if variant.id == identity)
    said = inputs.known(Recipe(intent, variant)) if locked else (None, {}, {})
    return facts.facts_of(Recipe(intent, variant), *said)


def test_facts_of_an_image(checkout: Path) -> None:
    assert facts_of(checkout, DISTRO) == {
        **{"pip": "26.3", "numpy": "2.4.7", "torch": "2.15.0+cu132", "nccl": "2.30.7", "libfabric": "2.1.0-1.1"},
        **{"aws-ofi-nccl": "1.21.0", "plugin-libfabric": "2.1.0-1.1", "base": "debian-13", "glibc": "2.41"},
        "driver": "580.65.06",
    }
    efa = facts_of(checkout, EFA)
    assert (efa["sm"], efa["highest-sm"], "driver" in efa) == ("80", "90", False)
    assert (efa["libfabric"], efa["plugin-libfabric"]) == ("2.6.0amzn1.0", "2.6.0amzn1.0")


def test_facts_without_locks_are_those_of_the_pins(checkout: Path) -> None:
    found = facts_of(checkout, DISTRO, locked=False)
    assert (found["torch"], found["aws-ofi-nccl"]) == ("2.15.0", "1.21.0")
    assert not found.keys() & {"libfabric", "plugin-libfabric"}


def test_a_plugin_from_source_over_an_installers_libfabric(checkout: Path) -> None:
    intent = load_intent(checkout)
    variant = next(variant for variant in intent.variants if variant.id == EFA)
    own = variant.model_copy(update={"pins": variant.pins | {"aws-ofi-nccl": Pin(provider="source", version="1.21.1")}})
    held = inputs.known(Recipe(intent, variant))  # the headers of the distribution are there, too, and are not those
    assert facts.facts_of(Recipe(intent, own), *held)["plugin-libfabric"] == "2.6.0amzn1.0"


def test_what_the_plugin_of_this_checkout_is_compiled_against(tree: Path, edit: Edit, cli: Cli) -> None:
    """Rule (b) of compat.toml: its libfabric is that of Debian's compile stages, and must not be the newer one."""
    rows = json.loads(cli(tree, "explain", DISTRO, "--json").out)
    rules = [rule for row in rows if row["component"] == "libfabric" for rule in row["rules"]]
    (rule,) = [rule for rule in rules if rule["a"]["name"] == "plugin-libfabric"]
    assert (rule["state"], rule["b"]["version"]) == ("holds", rule["a"]["version"])
    path = tree / "dockerfiles/locks/debian-13.build.packages"
    edit(path, r"^Package: libfabric-dev\nVersion: .*", "Package: libfabric-dev\nVersion: 2.6.0-1")
    ended = cli(tree, "plan", DISTRO)
    assert ended.code == 3
    assert (
        f"plugin-libfabric 2.6.0-1 (of >=0) requires libfabric >=2.6.0-1, and the image has {rule['b']['version']}"
        in (ended.err)
    )


def test_what_is_known_of_releases(checkout: Path) -> None:
    intent = load_intent(checkout)
    bundle, source = (facts.known_releases(intent.recipe(identity)) for identity in (EFA, DISTRO))
    assert (bundle["aws-ofi-nccl"], bundle["nccl"], bundle["libfabric"]) == (["1.21.0", "1.21.1"], ["2.30.7"], [])
    assert source["aws-ofi-nccl"] == ["1.21.1"]  # of the other one no commit is established
    assert bundle["efa-installer"] == []  # nor a sha256 of the one that is pinned
    brings = {"libfabric": "2.6.0amzn1.0", "aws-ofi-nccl": "1.21.1"}
    assert facts.bundles(intent) == {"efa-installer": {"1.50.0": brings}}


# --- explain --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("image", "component", "version", "provider", "resolved", "digest"),
    [
        (DISTRO, "pip", "26.3", "wheel", "pip-26.3-py3-none-any.whl", "sha256:706970"),
        (DISTRO, "libfabric", "2.1.0-1.1", "distro", "libfabric-bin 2.1.0-1.1", "sha256:6c6962"),
        (DISTRO, "aws-ofi-nccl", "1.21.0", "source", "https://github.com/aws/aws-ofi-nccl v1.21.0", "commit:242424"),
        (EFA, "efa-installer", "1.50.0", "download", "https://x/efa.tar.gz", "sha256:fafa"),
        (EFA, "aws-ofi-nccl", "1.21.1", "efa-installer", "bundled by efa-installer 1.50.0", "sha256:fafa"),
        (EFA, "nccl", "2.30.7", "wheel", "nvidia_nccl_cu13-2.30.7-py3-none-any.whl", "sha256:6e7669"),
    ],
)
def test_to_what_a_pin_was_resolved(
    explained: Explain, image: str, component: str, version: str, provider: str, resolved: str, digest: str
) -> None:
    row = explained(image)[component]
    assert (row["version"], row["provider"], row["resolved"]) == (version, provider, resolved)
    assert row["digest"].startswith(digest)
    assert row["licence"] == f"L-{component}"


@pytest.mark.parametrize(
    ("image", "component", "said", "line"),
    [
        (DISTRO, "pip", "common", 2),
        (f"{EFA}-devel", "pip", "devel", 7),
        (f"{EFA}-devel", "ninja", "devel", 6),
        (DISTRO, "numpy", "target ec2", 10),  # which overrules common
        (EFA, "efa-installer", "row 1 of pytorch", 27),  # not where another component names it
        (EFA, "torch", "row 1 of pytorch", 28),  # not where a comment does
        (DISTRO, "torch", "row 2 of pytorch", 42),
        (DISTRO, "nccl", "row 2 of pytorch", 43),  # not where a longer name ends like it
    ],
)
def test_where_a_pin_was_declared(explained: Explain, image: str, component: str, said: str, line: int) -> None:
    row = explained(image)[component]
    assert (row["declared"], row["where"]) == (said, f"dockerfiles/matrix.toml:{line}")


def test_what_came_along_says_who_requires_it(explained: Explain) -> None:
    row = explained(EFA)["nccl"]
    assert (row["declared"], row["where"]) == ("required by torch", "")
    assert "ninja" not in explained(EFA)


def test_rules_with_both_sides(explained: Explain) -> None:
    rows = explained(DISTRO)
    needs, banned = rows["aws-ofi-nccl"]["rules"]
    assert needs == {
        **{"row": 1, "state": "holds", "severity": "refuse"},
        "a": {"name": "aws-ofi-nccl", "version": "1.21.0", "range": ">=1.14"},
        "b": {"name": "libfabric", "version": "2.1.0-1.1", "range": ">=1.22"},
        **{"rule": "the plugin needs libfabric 1.22", "evidence": "its release notes", "checked_on": "2026-11-21"},
    }
    assert (banned["state"], banned["severity"], banned["a"]["range"]) == ("broken", "warn", "==1.21.0")
    assert rows["libfabric"]["rules"] == [needs]
    assert rows["pip"]["rules"] == []
    assert [rule["state"] for rule in explained(EFA)["aws-ofi-nccl"]["rules"]] == ["holds", "holds"]
    assert explained(EFA)["nccl"]["rules"][0]["a"]["version"] == "2.15.0+cu132"


@pytest.mark.parametrize("harm", ["missing", "stale"])
def test_without_a_current_lock_only_what_pins_say(cli: Cli, tmp_path: Path, harm: str) -> None:
    checkout = plant(tmp_path)
    path = checkout / f"dockerfiles/locks/{DISTRO}.toml"
    if harm == "missing":
        path.unlink()
    else:
        path.write_text(re.sub(r'(?m)^intent = ".*"$', f'intent = "{"0" * 64}"', path.read_text()))
    ended = cli(checkout, "explain", DISTRO, "--json")
    rows = {row["component"]: row for row in json.loads(ended.out)}
    assert ended.code == 0
    assert (rows["torch"]["version"], rows["torch"]["resolved"], rows["torch"]["digest"]) == (
        "2.15.0",
        "not locked",
        "",
    )
    assert f"trainwright lock {DISTRO}" in ended.err


def test_a_stale_package_lock_says_no_version(cli: Cli, tmp_path: Path) -> None:
    checkout = plant(tmp_path)
    path = checkout / "dockerfiles/locks/debian-13.packages"
    path.write_text(re.sub(r"(?m)^Intent: .*$", f"Intent: {'0' * 64}", path.read_text()))
    rows = {row["component"]: row for row in json.loads(cli(checkout, "explain", DISTRO, "--json").out)}
    assert (rows["libfabric"]["version"], rows["libfabric"]["resolved"]) == ("", "not locked")
    ended = cli(checkout, "explain", DISTRO)
    assert "libfabric     unknown" in ended.out
    assert f"trainwright lock {DISTRO}" in ended.err


@pytest.mark.parametrize(
    ("image", "left_out"),
    [
        ("pytorch-2.13-cpu-py311-ec2", {"torchaudio": "PyTorch for CPUs", "torchvision": "PyTorch for CPUs"}),
        ("pytorch-2.15-cu132-py313-ec2", {"torchaudio": "built for CUDA 13.0"}),
        ("pytorch-2.14-cu130-py313-ec2", {}),
        ("pytorch-2.12-cu132-py312-ec2-ngc", {}),  # what its base holds is not known
        ("jax-0.12-cpu-py313-ec2", {}),  # no image of this framework has them
    ],
)
def test_what_the_rules_keep_out_of_an_image_is_named_with_the_reason(
    intent: Intent, image: str, left_out: dict[str, str]
) -> None:
    rows = explain_image(intent.recipe(image), None, {}, {})
    found = {row.component: row.declared for row in rows if row.provider == NOT_INCLUDED}
    assert found.keys() == left_out.keys()
    assert all(left_out[name] in reason for name, reason in found.items()), found
    tables = as_tables(rows)
    assert [row[NOT_INCLUDED] for table in tables for row in table if NOT_INCLUDED in row] == [*left_out]
    assert not left_out.keys() & {row["component"] for row in tables[0]}


def test_for_people(cli: Cli, checkout: Path) -> None:
    out = cli(checkout, "explain", DISTRO).out
    assert out.startswith("component ")
    broken = out.index("broken (warn)  aws-ofi-nccl 1.21.0  not ==1.21.0")
    assert broken < out.index("holds          aws-ofi-nccl 1.21.0  libfabric 2.1.0-1.1 (>=1.22)")
    assert out.count("the plugin needs libfabric 1.22") == 1  # though it touches two components
    assert "row 2 of pytorch, matrix.toml:43" in out


def test_which_image_is_meant_must_be_clear(cli: Cli, checkout: Path) -> None:
    assert "explain requires one image, but 3 were chosen" in cli(checkout, "explain", "pytorch-*").err
    ended = cli(checkout, "explain", f"{DISTRO}x")
    assert ended.code == 2
    assert f"did you mean '{DISTRO}'" in ended.err


def test_a_refusal_points_at_the_pin(checkout: Path) -> None:
    intent = load_intent(checkout)
    variant = next(variant for variant in intent.variants if variant.id == DISTRO)
    facts.admit(Recipe(intent, variant), *inputs.known(Recipe(intent, variant)))
    old = {
        "libfabric-bin": packages.to_packages({"libfabric-bin": stanza("libfabric-bin", "1.17.0-3")})["libfabric-bin"]
    }
    with pytest.raises(IncompatibleError, match=r"requires libfabric >=1\.22, and the image has 1\.17\.0-3") as raised:
        facts.admit(Recipe(intent, variant), None, old, {})
    assert raised.value.where == "dockerfiles/matrix.toml:41"


# --- find ------------------------------------------------------------------------------------------------------------


def found(cli: Cli, checkout: Path, *has: str) -> set[tuple[str, ...]]:
    ended = cli(checkout, "find", *(word for text in has for word in ("--has", text)), "--json")
    assert ended.code == 0, ended.err
    return {(row["id"], row["what"], row["name"], row["version"]) for row in json.loads(ended.out)}


def ids(rows: set[tuple[str, ...]]) -> set[str]:
    return {row[0].removeprefix(EFA) for row in rows}


@pytest.mark.parametrize(
    "text", ["nccl=2.30", "nccl=2.30.7", "nccl=2", "nccl", "nccl==2.30.7", "nccl>=2.29,<3", "nccl~=2.30"]
)
def test_a_component_by_prefix_and_by_range(cli: Cli, checkout: Path, text: str) -> None:
    rows = found(cli, checkout, text)
    assert rows == {(image, "component", "nccl", "2.30.7") for image in (EFA, f"{EFA}-devel", DISTRO)}


@pytest.mark.parametrize("text", ["nccl=2.3", "nccl=2.30.70", "nccl==2.30", "nccl<2.30", "nccl=2.31"])
def test_a_version_that_is_nowhere(cli: Cli, checkout: Path, text: str) -> None:
    ended = cli(checkout, "find", "--has", text, "--json")
    assert (ended.code, json.loads(ended.out)) == (0, [])
    assert "nccl exists as 2.30.7" in ended.err


def test_versions_that_differ_per_image(cli: Cli, checkout: Path) -> None:
    assert (
        ids(found(cli, checkout, "libfabric=2.6"))
        == ids(found(cli, checkout, "libfabric=2.6.0amzn1.0"))
        == {"", "-devel"}
    )
    assert ids(found(cli, checkout, "libfabric=2.1")) == {"-distro"}
    ended = cli(checkout, "find", "--has", "libfabric=2.6.0amzn2.0")
    assert "libfabric exists as 2.1.0-1.1, 2.6.0amzn1.0" in ended.err


def test_what_only_the_twin_has(cli: Cli, checkout: Path) -> None:
    assert ids(found(cli, checkout, "ninja")) == ids(found(cli, checkout, "cmake=4")) == {"-devel"}


def test_python_and_distribution_packages(cli: Cli, checkout: Path) -> None:
    assert (EFA, "Python package", "nvidia-nccl-cu13", "2.30.7") in found(cli, checkout, "nvidia_nccl_cu13=2.30")
    assert (EFA, "distribution package", "libfabric-bin", "2.1.0-1.1") in found(cli, checkout, "libfabric-bin=2.1")


def test_a_component_that_is_a_python_package_is_one_thing(cli: Cli, checkout: Path) -> None:
    assert found(cli, checkout, "torch") == {
        (i, "component", "torch", "2.15.0+cu132") for i in (EFA, f"{EFA}-devel", DISTRO)
    }


def test_all_that_was_asked_for_must_be_in_one_image(cli: Cli, checkout: Path) -> None:
    rows = found(cli, checkout, "nccl=2.30", "libfabric>=2.6")
    assert ids(rows) == {"", "-devel"}
    assert {row[2] for row in rows} == {"nccl", "libfabric"}
    ended = cli(checkout, "find", "--has", "ninja", "--has", "libfabric=2.1")
    assert (ended.code, ended.out) == (0, "")
    assert "ninja exists as 1.13.0; libfabric exists as 2.1.0-1.1, 2.6.0amzn1.0" in ended.err


def test_a_tool_of_the_build_is_in_no_image(cli: Cli, checkout: Path) -> None:
    ended = cli(checkout, "find", "--has", "uv")
    assert ended.code == 2
    assert "no image holds anything named 'uv'" in ended.err


def test_a_recipe_is_in_no_image(cli: Cli, checkout: Path) -> None:
    ended = cli(checkout, "find", "--has", "deepspeed")
    assert ended.code == 2
    fix = "trainwright build pytorch-2.15-cu132-py313-sagemaker --with dockerfiles/recipes/deepspeed.txt"
    assert fix in re.sub(r"\s+", " ", ended.err)


def test_versions_that_exist_are_in_numeric_order() -> None:
    images = {v: [Held(id=v, what="component", name="x", version=v)] for v in ("1.100.0", "1.9.0", "1.44.0", "none")}
    assert find([query("x=2")], images, []) == ([], "x exists as 1.9.0, 1.44.0, 1.100.0")


def test_an_unknown_name(cli: Cli, checkout: Path) -> None:
    ended = cli(checkout, "find", "--has", "libfabrc-bin=2")
    assert ended.code == 2
    assert "did you mean 'libfabric-bin'" in ended.err
    assert "trainwright find --has libfabric-bin" in ended.err


def test_a_name_without_any_lock(cli: Cli, tmp_path: Path) -> None:
    checkout = plant(tmp_path)
    for path in (checkout / "dockerfiles/locks").iterdir():
        path.unlink()
    assert ids(found(cli, checkout, "torch=2.15")) == {"", "-devel", "-distro"}  # the pin says it
    assert ids(found(cli, checkout, "nccl")) == {"-distro"}  # elsewhere only a lock could
    assert find([query("x=1")], {EFA: []}, ["x"]) == ([], "no lock states a version of x")


@pytest.mark.parametrize("text", ["", "=2", "nccl=", "nccl=x", "nccl=>2", "nccl>=2.x", "nccl 2", "nccl>=3,<2"])
def test_a_question_that_asks_nothing(text: str) -> None:
    with pytest.raises(ConfigError) as raised:
        query(text)
    assert raised.value.fix == "trainwright find --has nccl=2.30"


def test_a_question_names_what_it_asks() -> None:
    assert query(" nccl = 2.30.* ") == Query("nccl", "==2.30.*")
    assert query("libstdc++6>=14") == Query("libstdc++6", ">=14")
    assert query("libfabric=2.6.0amzn1.0") == Query("libfabric", ">=0", "2.6.0amzn1.0")


def test_nothing_asked_is_a_usage_error(cli: Cli, checkout: Path) -> None:
    assert cli(checkout, "find").code == 2
