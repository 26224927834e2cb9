"""Test the compatibility rules: each kind of rule, each shipped row, and rules from past failures."""

import re
import tomllib
from pathlib import Path

import pytest

from trainwright.core import versions
from trainwright.core.errors import ConfigError, IncompatibleError
from trainwright.matrix.compat import DERIVED, Compat, load_rules, violations
from trainwright.matrix.instances import architectures, load_instances
from trainwright.matrix.remedy import Bundles, nearest, refuse, sentence

ROOT = Path(__file__).parents[3]
# What rules may be about beside what follows from a variant; whether each is a component is asked of the matrix.
COMPONENTS = (
    *("aws-ofi-nccl", "efa-installer", "gdrcopy", "libfabric", "nccl", "nccl-tests"),
    *("tensorflow", "jax", "jaxlib", "jax-cuda", "numpy", "python", "horovod", "cuda-compat"),
    *("torchvision", "torchaudio"),
)
RULES = load_rules(ROOT, COMPONENTS)

ROW = """\
[[rules]]
kind = "{kind}"
a = "{a}"
a_range = "{a_range}"
{b}
severity = "{severity}"
rule = "one does not go with the other"
evidence = "upstream's changelog"
checked_on = 2026-11-21
"""


def row(a_range: str = ">=2", b_range: str = ">=3", kind: str = "requires", a: str = "nccl", **said: str) -> str:
    b = {"requires": f'b = "cuda"\nb_range = "{b_range}"', "ban": ""}.get(kind, 'b = "cuda"')
    return ROW.format(kind=kind, a=a, a_range=a_range, b=said.get("b", b), severity=said.get("severity", "refuse"))


def rules(tmp_path: Path, *rows: str) -> Compat:
    (tmp_path / "dockerfiles").mkdir(exist_ok=True)
    (tmp_path / "dockerfiles/compat.toml").write_text("\n".join(rows))
    return load_rules(tmp_path, COMPONENTS)


def broken(compat: Compat, **facts: str) -> list[str]:
    return [verdict.severity for verdict in violations(compat, {k.replace("_", "-"): v for k, v in facts.items()})]


# --- each kind of rule, broken and kept ---------------------------------------------------------------------


def test_requires(tmp_path: Path) -> None:
    compat = rules(tmp_path, row())
    assert broken(compat, nccl="2.1", cuda="2.9") == ["refuse"]
    assert broken(compat, nccl="2.1", cuda="3.0") == []
    assert broken(compat, nccl="1.9", cuda="2.9") == []  # not what the rule is about
    assert broken(compat, nccl="2.1") == broken(compat, cuda="2.9") == []  # half of it is not there


def test_ban(tmp_path: Path) -> None:
    compat = rules(tmp_path, row("==2.1", kind="ban", severity="warn"))
    assert broken(compat, nccl="2.1") == ["warn"]
    assert broken(compat, nccl="2.2") == broken(compat) == []


def test_not_older(tmp_path: Path) -> None:
    compat = rules(tmp_path, row(">=0", kind="not-older"))
    assert broken(compat, nccl="1.100.0", cuda="1.44.0") == ["refuse"]
    assert broken(compat, nccl="1.44.0", cuda="1.44.0amzn1.0") == broken(compat, nccl="1.9", cuda="1.44") == []


INTERFACE = (
    '[[interfaces]]\ncomponent = "{}"\nrange = "{}"\nfirst = {}\nlast = {}\nevidence = "x"\nchecked_on = 2026-11-21\n'
)


def test_overlap(tmp_path: Path) -> None:
    speaks = [INTERFACE.format("nccl", "<2", 2, 5), INTERFACE.format("nccl", ">=2,<3", 2, 6)]
    speaks += [INTERFACE.format("cuda", "<9", 6, 12)]
    compat = rules(tmp_path, row(">=0", kind="overlap"), *speaks)
    assert broken(compat, nccl="1.9", cuda="1") == ["refuse"]
    assert broken(compat, nccl="2.0", cuda="1") == []  # they meet in one version


def test_what_no_row_knows_is_said_and_not_passed(tmp_path: Path) -> None:
    compat = rules(tmp_path, row(">=0", kind="overlap"), INTERFACE.format("nccl", "<3", 2, 6))
    (verdict,) = violations(compat, {"nccl": "2.0", "cuda": "13.0"})
    assert (verdict.state, verdict.severity) == ("not established", "warn")
    assert "net versions unknown" in sentence(verdict)


def test_refusals_come_first(tmp_path: Path) -> None:
    compat = rules(tmp_path, row("==2.1", kind="ban", severity="warn"), row("==2.1", kind="ban"))
    assert broken(compat, nccl="2.1") == ["refuse", "warn"]


def test_when_is_a_condition(tmp_path: Path) -> None:
    compat = rules(tmp_path, row(b='b = "cuda"\nb_range = ">=3"\nwhen = { torch = ">=2" }'))
    assert broken(compat, nccl="2.1", cuda="2.9", torch="2.0") == ["refuse"]
    assert broken(compat, nccl="2.1", cuda="2.9", torch="1.9") == broken(compat, nccl="2.1", cuda="2.9") == []


def test_a_rule_about_a_distribution_reads_the_base(tmp_path: Path) -> None:
    compat = rules(tmp_path, row(">=13", a="debian"))
    assert broken(compat, base="debian-13", cuda="1") == broken(compat, base="debian-13-efa", cuda="1") == ["refuse"]
    assert broken(compat, base="debian-12-13", cuda="1") == broken(compat, base="fedora-13", cuda="1") == []
    assert broken(rules(tmp_path, row()), base="nccl-2", cuda="1") == []  # a base that is called like a component


def test_a_fact_that_is_no_version_is_an_error_and_no_traceback(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="row 1") as raised:
        broken(rules(tmp_path, row()), nccl="distro", cuda="13")
    assert "'distro'" in raised.value.why


# --- rows that cannot be read -------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", ["=>1.2", "1.x", ">=2,<1", "===2"])
@pytest.mark.parametrize(("field", "line"), [("a_range", 15), ("b_range", 17)])
def test_a_broken_range_names_file_line_and_row(tmp_path: Path, wrong: str, field: str, line: int) -> None:
    with pytest.raises(ConfigError) as raised:
        rules(tmp_path, row(), row(**{field: wrong}))
    assert raised.value.where == f"dockerfiles/compat.toml:{line}"
    assert f"{field} of this row of [[rules]]" in raised.value.why
    assert wrong in raised.value.why


def test_a_broken_range_of_an_interface_names_its_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as raised:
        rules(tmp_path, row(), INTERFACE.format("nccl", "<2", 2, 5), INTERFACE.format("nccl", "=>2", 2, 5))
    assert raised.value.where == "dockerfiles/compat.toml:22"


def test_a_name_that_nothing_has_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="'ncl', which is not a component") as raised:
        rules(tmp_path, row(), row(a="ncl"))
    assert raised.value.where == "dockerfiles/compat.toml:14"
    assert "did you mean 'nccl'" in raised.value.why


@pytest.mark.parametrize(
    "wrong",
    [
        row().replace('b_range = ">=3"\n', ""),
        row(kind="ban", b='b = "cuda"'),
        row(kind="undocumented"),  # and a refusal
        row(kind="overlap", b='b = "cuda"\nb_range = ">=3"'),
        row().replace("upstream's changelog", ""),
        row().replace("checked_on = 2026-11-21\n", ""),
        row(b='b = "cuda"\nb_range = ">=3"\nwhen = { torch = "1.x" }'),
    ],
)
def test_a_row_that_says_too_little_or_too_much_is_an_error(tmp_path: Path, wrong: str) -> None:
    with pytest.raises(ConfigError):
        rules(tmp_path, wrong)


# --- the shipped rows ---------------------------------------------------------------------------------------


def test_the_ranges_of_one_component_do_not_overlap() -> None:
    """The first that fits would win unseen."""
    for one in RULES.interfaces:
        for other in RULES.interfaces:
            if one is not other and one.component == other.component:
                with pytest.raises(ValueError, match="no version satisfies"):
                    versions.specifiers(f"{one.range},{other.range}")


def test_no_row_is_written_twice() -> None:
    rows = [rule.model_dump_json(exclude={"rule", "evidence", "checked_on", "severity"}) for rule in RULES.rules]
    assert sorted(set(rows)) == sorted(rows)


def test_every_letter_has_its_place() -> None:
    text = (ROOT / "dockerfiles/compat.toml").read_text()
    top = text[: text.index("[[rules]]")]
    assert re.findall(r"^#   \((\w)\)", top, re.M) == list("abcdefghijkl")


def test_forbidden_environment_is_where_the_comment_says() -> None:
    forbidden = tomllib.loads((ROOT / "tests/image/expected.toml").read_text())["forbidden_environment"]
    assert {"FI_PROVIDER", "FI_EFA_*", "RDMAV_FORK_SAFE", "NCCL_*", "LD_PRELOAD"} <= forbidden.keys()


FLAGSHIP = {
    **{"aws-ofi-nccl": "1.21.1", "efa-installer": "1.50.0", "libfabric": "2.6.0amzn1.0", "nccl": "2.30.7"},
    **{"plugin-libfabric": "2.6.0amzn1.0", "gdrcopy": "2.6", "nccl-tests": "2.19.6", "compiler": "4:14.2.0-1"},
    **{"cuda": "13.2.2", "torch": "2.15.0", "glibc": "2.41", "base": "debian-13", "sm": "80", "highest-sm": "103"},
    **{"driver": "580.65.06", "NCCL_ALGO": "1", "NCCL_PROTO": "1", "plugin-installer": "1.50.0"},
}


def test_the_flagship_breaks_nothing() -> None:
    assert violations(RULES, FLAGSHIP) == []


def test_the_flagship_with_the_libfabric_of_the_distribution_breaks_nothing() -> None:
    facts = {k: v for k, v in FLAGSHIP.items() if k != "efa-installer"}
    assert violations(RULES, facts | {"libfabric": "2.1.0-1.1", "plugin-libfabric": "2.1.0-1.1"}) == []


R, W = "refuse", "warn"
BUNDLED = {"efa-installer": "1.50.0", "plugin-installer": "1.50.0", "aws-ofi-nccl": "1.21.1"}


# Each case breaks a rule: how severe that is, the facts, and what the refusal says.
CASES: list[tuple[str, dict[str, str], str]] = [
    # (a)
    (R, {"nccl": "2.30.7", "aws-ofi-nccl": "1.4.0"}, "speaks net v2 to v5, nccl 2.30.7 net v6 to v12"),
    (R, {"nccl": "2.16.5", "aws-ofi-nccl": "1.21.1"}, "requires nccl >=2.17.1"),
    (W, {"nccl": "2.30.7", "aws-ofi-nccl": "1.22.0"}, "aws-ofi-nccl 1.22.0 speaks net versions unknown"),
    # (b)
    (R, {"plugin-libfabric": "2.6.0amzn1.0", "libfabric": "2.1.0-1.1"}, "requires libfabric >=2.6.0amzn1.0"),
    (
        R,
        {"aws-ofi-nccl": "1.14.0", "libfabric": "1.17.0-3"},
        "requires libfabric >=1.22, and the image has 1.17.0-3",
    ),
    (R, {"aws-ofi-nccl": "1.21.1", "libfabric": "1.17.0-3"}, "requires libfabric >=1.22"),
    (R, {"aws-ofi-nccl": "1.13.2", "libfabric": "1.17.0-3"}, "requires libfabric >=1.18"),
    (R, {"aws-ofi-nccl": "1.7.4", "libfabric": "1.9.1"}, "requires libfabric >=1.11"),
    (W, {"aws-ofi-nccl": "1.21.1", "libfabric": "2.1.0-1.1", "nccl": "2.31.2"}, "requires libfabric >=2.6"),
    (W, {"aws-ofi-nccl": "1.21.1", "gdrcopy": "2.4.4", "nccl": "2.31.2"}, "requires gdrcopy >=2.5"),
    # (c)
    (R, {"cuda": "13.2.2", "sm": "70"}, "requires sm >=75"),
    (R, {"cuda": "12.8.1", "sm": "70", "torch": "2.10.0"}, "requires sm >=75"),
    (R, {"cuda": "12.6.3", "highest-sm": "100"}, "requires cuda >=12.8"),
    (R, {"cuda": "12.8.1", "highest-sm": "103"}, "requires cuda >=12.9"),
    (R, {"nvcc": "12.9.1", "base": "debian-13"}, "requires debian <13"),
    (R, {"cuda": "13.0.3", "driver": "535.183.01"}, "requires driver >=580"),
    (R, {"cuda": "13.0.3", "cuda-compat": "595.71.05"}, "requires cuda ==13.2.*"),
    (R, {"cuda": "12.9.1", "driver": "515.105.01"}, "requires driver >=525"),
    (R, {"cuda": "11.8.0", "driver": "440.33"}, "requires driver >=450"),
    (R, {"cuda": "13.0.2", "aws-ofi-nccl": "1.17.0"}, "requires aws-ofi-nccl >=1.17.1"),
    # (d)
    (R, {"torch": "2.15.0", "nccl": "2.29.7"}, "requires nccl ==2.30.7"),
    (R, {"torch": "2.14.1", "nccl": "2.29.7"}, "requires nccl ==2.30.7"),
    (R, {"torch": "2.13.0+cu130", "nccl": "2.30.7"}, "requires nccl ==2.29.7"),  # what AWS declares for 2.13
    (R, {"torch": "2.12.1", "nccl": "2.26.2"}, "requires nccl ==2.29.7"),  # and for 2.12
    (R, {"torch": "2.11.0", "nccl": "2.26.2"}, "requires nccl ==2.28.9"),
    (R, {"torch": "2.10.0", "nccl": "2.27.3"}, "requires nccl ==2.27.5"),
    (R, {"torch": "2.9.1", "nccl": "2.27.3"}, "requires nccl ==2.27.5"),
    (R, {"torch": "2.8.0", "nccl": "2.27.5"}, "requires nccl ==2.27.3"),
    (R, {"torch": "2.7.1", "nccl": "2.27.5"}, "requires nccl ==2.26.2"),
    (R, {"torch": "2.6.0", "nccl": "2.20.5"}, "requires nccl ==2.21.5"),
    (R, {"torch": "2.4.1", "nccl": "2.21.5"}, "requires nccl ==2.20.5"),
    (W, {"torch": "2.15.0", "cuda": "13.0.3"}, "requires cuda ==13.2.*"),
    (W, {"torch": "2.13.0", "cuda": "13.2.2"}, "requires cuda ==13.0.*"),
    (W, {"torch": "2.10.0", "cuda": "12.6.3"}, "requires cuda ==12.8.*"),
    (W, {"torch": "2.7.1", "cuda": "12.8.1"}, "requires cuda ==12.6.*"),
    (W, {"torch": "2.6.0", "cuda": "12.1.1"}, "requires cuda ==12.4.*"),
    (W, {"torch": "2.4.1", "cuda": "12.4.1"}, "requires cuda ==12.1.*"),
    (R, {"nccl": "2.32.3", "glibc": "2.17"}, "requires glibc >=2.27"),
    # torchvision and torchaudio
    (R, {"torchvision": "0.28.0", "torch": "2.13.0+cpu"}, "banned range >=0"),
    (R, {"torchvision": "0.29.2", "torch": "2.13.0", "cuda": "13.2.2"}, "requires torch >=2.14"),
    (R, {"torchvision": "0.29.0", "torch": "2.14.1", "cuda": "13.0.3"}, "requires torch ==2.14.0"),
    (R, {"torchvision": "0.28.0", "torch": "2.14.1", "cuda": "13.0.3"}, "requires torch ==2.13.0"),
    (R, {"torchvision": "0.25.0", "torch": "2.11.0", "cuda": "12.8.90"}, "requires torch ==2.10.0"),
    (W, {"torchvision": "0.29.2", "cuda": "13.0.3"}, "requires cuda ==13.2.*"),
    (W, {"torchvision": "0.29.1", "cuda": "13.2.2"}, "requires cuda ==13.0.*"),
    (W, {"torchvision": "0.25.0", "cuda": "12.6.3"}, "requires cuda ==12.8.*"),
    (R, {"torchaudio": "2.11.0", "torch": "2.13.0+cpu"}, "banned range >=0"),
    (R, {"torchaudio": "2.10.0", "torch": "2.9.1", "cuda": "12.8.90"}, "requires torch ==2.10.0"),
    (R, {"torchaudio": "2.11.0", "torch": "2.10.0", "cuda": "13.0.2"}, "requires torch >=2.11"),
    (R, {"torchaudio": "2.11.0", "torch": "2.15.0", "cuda": "13.2.2"}, "requires cuda ==13.0.*"),
    # TensorFlow
    (R, {"tensorflow": "2.15.1", "nccl": "2.19.3"}, "requires nccl ==2.16.5"),
    (R, {"tensorflow": "2.17.1", "nccl": "2.30.7"}, "requires nccl ==2.19.3"),
    (R, {"tensorflow": "2.18.1", "nccl": "2.23.4"}, "requires nccl ==2.21.5"),
    (R, {"tensorflow": "2.19.1", "nccl": "2.21.5"}, "requires nccl ==2.23.4"),
    (R, {"tensorflow": "2.20.0", "nccl": "2.23.4"}, "requires nccl >=2.25.1,<3"),
    (R, {"tensorflow": "2.21.0", "nccl": "2.26.5"}, "requires nccl >=2.27.7,<3"),
    (R, {"tensorflow": "2.21.0", "cuda": "13.2.2"}, "requires cuda >=12.5.82,<13"),
    (R, {"tensorflow": "2.17.1", "numpy": "2.4.6"}, "requires numpy >=1.23.5,<2"),
    (R, {"tensorflow": "2.18.1", "numpy": "2.4.6"}, "requires numpy >=1.26,<2.1"),
    (R, {"tensorflow": "2.19.1", "numpy": "2.4.6"}, "requires numpy >=1.26,<2.2"),
    (W, {"tensorflow": "2.21.0", "highest-sm": "100"}, "requires highest-sm <100"),
    (R, {"tensorflow": "2.21.0", "python": "3.14.0-1"}, "requires python >=3.10,<3.14"),
    # JAX
    (R, {"jax": "0.11.2", "jaxlib": "0.12.0"}, "requires jax >=0.12.0"),
    (R, {"jax": "0.12.0.1", "jaxlib": "0.10.2"}, "requires jaxlib >=0.11.2"),
    (R, {"jax-cuda": "0.12.0.1", "jaxlib": "0.12.0"}, "requires jaxlib >=0.12.0.1"),
    (R, {"jaxlib": "0.12.0.1", "jax-cuda": "0.12.0"}, "requires jax-cuda >=0.12.0.1"),
    (R, {"jax-cuda": "0.12.0.1", "nccl": "2.26.5"}, "requires nccl >=2.27.7"),
    (R, {"jax-cuda": "0.12.0.1", "cuda": "12.9.79"}, "requires cuda >=13"),
    (R, {"jax": "0.12.0.1", "numpy": "2.1.3"}, "requires numpy >=2.2"),
    (R, {"jax": "0.11.2", "numpy": "2.0.2"}, "requires numpy >=2.1"),
    (R, {"jax": "0.12.0.1", "python": "3.11.2-1+b1"}, "requires python >=3.12"),
    # Horovod
    (R, {"horovod": "0.28.1", "torch": "2.16.0"}, "requires torch <2.16"),
    (W, {"horovod": "0.28.1", "torch": "2.12.1"}, "requires torch ==2.13.*"),
    (R, {"horovod": "0.28.1", "tensorflow": "2.21.0"}, "requires tensorflow <2.15"),
    (W, {"horovod": "0.28.1", "compiler": "4:15.1.0-1"}, "requires compiler >=12,<15"),
    (W, {"horovod": "0.28.1", "python": "3.14.0-1"}, "requires python >=3.11,<3.14"),
    # (g)
    (R, {"aws-ofi-nccl": "1.21.1", "compiler": "4:9.3.0-1ubuntu2"}, "requires compiler >=11"),
    (W, {"aws-ofi-nccl": "1.21.1", "compiler": "12.2.0-14+deb12u1"}, "requires compiler >=13"),
    (R, {"aws-ofi-nccl": "1.21.1", "base": "ubuntu-20.04"}, "requires ubuntu >=22.04"),
    # where the installer runs; 1.9.0 < 1.44.0 < 1.100.0
    (R, {"base": "debian-13", "efa-installer": "1.9.0"}, "requires efa-installer >=1.46.0"),
    (R, {"base": "debian-13", "efa-installer": "1.44.0"}, "requires efa-installer >=1.46.0"),
    (R, {"base": "debian-12", "efa-installer": "1.35.0"}, "requires efa-installer >=1.36.0"),
    (R, {"base": "debian-11", "efa-installer": "1.100.0"}, "requires efa-installer <1.51.0"),
    (R, {"base": "ubuntu-24.04", "efa-installer": "1.32.0"}, "requires efa-installer >=1.33.0"),
    (R, {"base": "ubuntu-20.04", "efa-installer": "1.43.0"}, "requires efa-installer <1.43.0"),
    (R, {"base": "amazonlinux-2", "efa-installer": "1.50.0"}, "requires efa-installer <1.50.0"),
    # what it brings, and where no source says so
    (R, BUNDLED | {"arm64": "1", "efa-installer": "1.39.0"}, "requires efa-installer >=1.40.0"),
    (
        W,
        BUNDLED | {"arm64": "1", "base": "debian-13-arm64-efa"},
        "not documented: aws-ofi-nccl 1.21.1 on debian 13",
    ),
    (W, BUNDLED | {"base": "debian-12-efa"}, "not documented: aws-ofi-nccl 1.21.1 on debian 12"),
    # (j)
    (R, {"aws-ofi-nccl": "1.18.0"}, "banned range ==1.18.0"),
    (R, {"efa-installer": "1.47.0"}, "banned range ==1.47.0"),
    (R, {"aws-ofi-nccl": "1.19.1"}, "banned range ==1.19.1"),
    (W, {"aws-ofi-nccl": "1.19.2"}, "doubtful range ==1.19.*"),
    (W, {"aws-ofi-nccl": "1.17.3"}, "doubtful range <1.20"),
    (W, {"aws-ofi-nccl": "1.17.2"}, "doubtful range <=1.17.2"),
    (W, {"aws-ofi-nccl": "1.21.0"}, "doubtful range ==1.21.0"),
    (R, {"nccl-tests": "2.19.6", "nccl": "2.28.7"}, "requires nccl !=2.28.7"),
    (R, {"nccl": "2.19.3", "efa-installer": "1.29.0"}, "requires efa-installer >=1.29.1"),
    # (k)
    (R, {"NCCL_ALGO": "1", "aws-ofi-nccl": "1.18.0"}, "NCCL_ALGO 1 (of >=1) requires aws-ofi-nccl >=1.20"),
    (R, {"NCCL_PROTO": "1", "aws-ofi-nccl": "1.19.2"}, "NCCL_PROTO 1 (of >=1) requires aws-ofi-nccl >=1.20"),
]


def test_every_rule_finds_what_it_is_about() -> None:
    for severity, facts, says in CASES:
        found = {sentence(verdict): verdict.severity for verdict in violations(RULES, facts)}
        assert [found[line] for line in found if says in line] == [severity], (facts, found)


def test_every_row_was_broken_by_one_of_them() -> None:
    """A row that no case can break may say anything."""
    seen = {verdict.row for _, facts, _ in CASES for verdict in violations(RULES, facts)}
    assert set(range(1, len(RULES.rules) + 1)) - seen == set()


@pytest.mark.parametrize(
    "facts",
    [
        {"cuda": "12.6.3", "sm": "70", "torch": "2.7.1"},
        {"cuda": "12.9.1", "sm": "70"},  # no torch: CUDA 12.9 itself still compiles for it
        {"cuda": "12.9.1", "driver": "535.183.01"},
        {"base": "debian-13", "efa-installer": "1.100.0"},  # as a string, older than 1.46.0
        {"NCCL_ALGO": "1", "aws-ofi-nccl": "1.20.0"},
        {"NCCL_ALGO": "1"},  # no plugin in the image
        {"aws-ofi-nccl": "1.20.0", "compiler": "9.4.0"},  # C++17
        {"torch": "2.15.0"},  # for a CPU: no NCCL
        {"tensorflow": "2.21.0", "numpy": "2.4.6", "python": "3.13.5-1", "nccl": "2.30.7", "cuda": "12.9.79"},
        {"jax": "0.12.0.1", "jaxlib": "0.12.0", "numpy": "2.4.6", "python": "3.13.5-1"},  # as jax itself allows
        {"horovod": "0.28.1", "torch": "2.13.0", "compiler": "12.2.0-14+deb12u1", "python": "3.11.2-1+b1"},
        {"horovod": "0.28.1", "torch": "2.13.1", "compiler": "4:14.2.0-1", "python": "3.13.5-1"},
        {"aws-ofi-nccl": "1.21.1", "libfabric": "2.1.0-1.1", "nccl": "2.30.7"},
        {"nccl": "2.18.5", "efa-installer": "1.29.0"},
        {"cuda": "12.8.1", "highest-sm": "120"},
        BUNDLED | {"base": "debian-13-efa", "compiler": "10.0"},  # what the installer brings is not compiled here
        BUNDLED | {"base": "ubuntu-24.04", "arm64": "1"},
        BUNDLED | {"base": "amazonlinux-2023", "arm64": "1"},
        {"base": "debian-12-efa", "efa-installer": "1.50.0", "aws-ofi-nccl": "1.21.1"},  # compiled
        {"base": "ubuntu-24.04", "arm64": "1", "efa-installer": "1.39.0"},  # MPI alone
    ],
)
def test_and_nothing_else(facts: dict[str, str]) -> None:
    assert violations(RULES, facts) == []


def test_an_image_with_a_libcuda_of_its_own_takes_an_older_driver() -> None:
    (found,) = violations(RULES, {"cuda": "13.2.2", "driver": "535.183.01", "cuda-compat": "595.71.05"})
    assert found.rule.startswith("awaits NVIDIA's archive of cuda-compat")


# --- what would work ----------------------------------------------------------------------------------------

KNOWN = {
    "aws-ofi-nccl": ["1.17.3", "1.18.0", "1.20.0", "1.9.2", "1.21.1"],
    "efa-installer": ["1.100.0", "1.46.0", "1.47.0", "1.48.0", "1.9.0"],
    "nccl": ["2.28.9", "2.29.7", "2.30.7", "2.31.2", "2.32.0rc1"],
}
BUNDLES: Bundles = {
    "efa-installer": {
        "1.46.0": {"aws-ofi-nccl": "1.17.2", "libfabric": "2.3.1amzn4.0"},
        "1.47.0": {"aws-ofi-nccl": "1.18.0", "libfabric": "2.4.0amzn1.0"},
        "1.48.0": {"aws-ofi-nccl": "1.19.1", "libfabric": "2.4.0amzn3.0"},
        "1.100.0": {"aws-ofi-nccl": "1.21.1", "libfabric": "2.6.0amzn1.0"},
    }
}


def mend(facts: dict[str, str], known: dict[str, list[str]] = KNOWN, bundles: Bundles | None = None) -> object:
    return nearest(RULES, facts, violations(RULES, facts)[0], known, bundles)


def test_the_nearest_is_the_smallest_step_to_a_newer_one() -> None:
    assert mend({"aws-ofi-nccl": "1.18.0"}) == ("aws-ofi-nccl", "1.20.0")


def test_an_older_one_where_no_newer_one_is_known() -> None:
    assert mend({"aws-ofi-nccl": "1.18.0"}, {"aws-ofi-nccl": ["1.9.2", "1.17.3"]}) == ("aws-ofi-nccl", "1.17.3")


def test_the_other_side_where_the_first_has_nothing_newer() -> None:
    """Not torch 2.13, which would go with that NCCL: newer before older."""
    facts = {"torch": "2.15.0", "nccl": "2.29.7"}
    assert mend(facts, KNOWN | {"torch": ["2.13.0", "2.15.0"]}) == ("nccl", "2.30.7")
    assert mend(facts, {"torch": ["2.13.0", "2.15.0"]}) == ("torch", "2.13.0")


def test_a_step_that_breaks_another_rule_is_no_way_out() -> None:
    """1.20.0 would mend the ban, and run into a libfabric that is too old; so would 1.17.3, and 1.9.2 does not."""
    facts = {"aws-ofi-nccl": "1.18.0", "libfabric": "1.22.0"}
    assert mend(facts) == ("aws-ofi-nccl", "1.20.0")
    assert nearest(RULES, facts | {"libfabric": "1.20.0"}, violations(RULES, facts)[0], KNOWN) == (
        "aws-ofi-nccl",
        "1.9.2",
    )
    facts = {"nccl-tests": "2.19.6", "nccl": "2.28.7", "torch": "2.12.1"}
    assert mend(facts) == ("nccl", "2.29.7")  # 2.28.9 is nearer, and not the one of torch's wheel


def test_what_an_installer_brought_is_changed_by_changing_the_installer() -> None:
    facts = {"efa-installer": "1.47.0", "aws-ofi-nccl": "1.18.0", "libfabric": "2.4.0amzn1.0"}
    for verdict in violations(RULES, facts):
        if verdict.severity == "refuse":  # 1.48.0 brings a banned plugin, too; as strings 1.100.0 would be older
            assert nearest(RULES, facts, verdict, KNOWN, BUNDLES) == ("efa-installer", "1.100.0")


def test_a_warning_has_a_way_out_too() -> None:
    assert mend({"aws-ofi-nccl": "1.17.3"}, {"aws-ofi-nccl": ["1.19.2", "1.20.0"]}) == ("aws-ofi-nccl", "1.20.0")


def test_a_base_is_no_obstacle() -> None:
    assert mend({"base": "debian-13", "efa-installer": "1.44.0"}) == ("efa-installer", "1.46.0")


def test_one_step_at_a_time_where_no_single_one_mends_all() -> None:
    facts = {"aws-ofi-nccl": "1.18.0", "cuda": "13.2.2", "driver": "535"}
    (banned,) = [v for v in violations(RULES, facts) if v.severity == "refuse" and v.b is None]
    assert nearest(RULES, facts, banned, KNOWN) == ("aws-ofi-nccl", "1.20.0")


def test_an_older_installer_brings_a_plugin_compiled_against_its_own_libfabric() -> None:
    facts = {"efa-installer": "1.48.0", "aws-ofi-nccl": "1.19.1", "libfabric": "2.4.0amzn3.0"}
    facts |= {"plugin-libfabric": "2.4.0amzn3.0"}
    known = {"efa-installer": ["1.46.0", "1.48.0"]}
    assert mend(facts, known, BUNDLES) == ("efa-installer", "1.46.0")


def test_no_known_release_helps() -> None:
    assert mend({"torch": "2.15.0", "nccl": "2.29.7"}, {}) is None
    pre_release = {"nccl": ["2.28.9rc1"]}  # nobody is sent there
    assert mend({"nccl": "2.28.7", "nccl-tests": "2.19.6"}, pre_release) is None


# --- the refusal --------------------------------------------------------------------------------------------


def refusal(facts: dict[str, str]) -> IncompatibleError:
    with pytest.raises(IncompatibleError) as raised:
        refuse("img", "dockerfiles/matrix.toml:12", violations(RULES, facts), lambda v: nearest(RULES, facts, v, KNOWN))
    return raised.value


def test_a_refusal_names_both_sides_the_rule_the_evidence_and_what_works() -> None:
    error = refusal({"torch": "2.15.0", "nccl": "2.29.7"})
    assert error.exit_code == 3
    assert error.what == "img: torch 2.15.0 (of ==2.15.0) requires nccl ==2.30.7, and the image has 2.29.7"
    assert error.where == "dockerfiles/matrix.toml:12"
    assert "the NCCL of its own wheel" in error.why
    assert "evidence: Requires-Dist of the x86_64 wheel (checked 2026-11-21)" in error.why
    assert "nearest that works: nccl 2.30.7" in error.why
    assert error.fix == '$EDITOR +12 dockerfiles/matrix.toml   # nccl = "2.30.7"'


def test_a_refusal_without_a_way_out_says_so() -> None:
    error = refusal({"cuda": "13.2.2", "sm": "70", "driver": "535"})
    assert "no known release of either one is compatible" in error.why
    assert "also: cuda 13.2.2 (of >=13) requires driver >=580, and the image has 535" in error.why
    assert error.fix == "$EDITOR +12 dockerfiles/matrix.toml"


def test_warnings_come_back() -> None:
    found = violations(RULES, {"aws-ofi-nccl": "1.21.0"})
    assert refuse("img", "x", found, lambda _: None) == found != []


# --- instance types -----------------------------------------------------------------------------------------


def test_architectures_are_unique_and_in_numeric_order() -> None:
    table = load_instances(ROOT)
    wanted = ["p6-b200.48xlarge", "p4d.24xlarge", "p5.48xlarge", "p4de.24xlarge"]
    assert architectures(wanted, table) == ["80", "90", "100"]
    assert architectures([], table) == []


def test_an_unknown_instance_type_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"'p4d\.24xlage'") as raised:
        architectures(["p4d.24xlage"], load_instances(ROOT))
    assert raised.value.why.startswith("did you mean 'p4d.24xlarge'")
    assert raised.value.why.count("xlarge") <= 3, "near names, and not the whole table"


def test_an_instance_type_that_is_like_none() -> None:
    with pytest.raises(ConfigError) as raised:
        architectures(["quantum"], load_instances(ROOT))
    assert "dockerfiles/instances.toml" in raised.value.why


def test_v100_and_cuda_13_meet_a_rule() -> None:
    (lowest, *_) = architectures(["p3dn.24xlarge", "p5.48xlarge"], load_instances(ROOT))
    assert [verdict.severity for verdict in violations(RULES, {"cuda": "13.2.2", "sm": lowest})] == ["refuse"]


def test_instance_types_are_what_sagemaker_and_nccl_call_them() -> None:
    import botocore.session

    service = botocore.session.get_session().get_service_model("sagemaker")
    names = set(service.shape_for("TrainingInstanceType").enum)  # type: ignore[attr-defined]
    for name, instance in load_instances(ROOT).items():
        assert instance.sagemaker == (f"ml.{name}" if f"ml.{name}" in names else ""), name
        assert instance.efa or instance.gpu, name
        assert min(instance.vcpus, instance.ram_gib) > 0, f"{name}: emitted pods request a share of both"
        assert bool(instance.gpu) == bool(instance.count) == bool(instance.sm) == bool(instance.memory_gib), name
    families = {"c5n", "g4dn", "g5", "g6", "g6e", "hpc7a", "p2", "p3", "p3dn", "p4d", "p5", "p5en", "p6-b200", "trn1"}
    assert families <= {name.partition(".")[0] for name in load_instances(ROOT)}


def test_names_that_follow_from_a_variant_are_no_components() -> None:
    assert not {*COMPONENTS} & {*DERIVED}
