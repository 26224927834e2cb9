"""Test the judgement of a finished image: equality gives no message, and every kind of difference is named."""

import hashlib
import os
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from programs import imported

from trainwright.core.errors import BuildError
from trainwright.image import declared, inputs, probe
from trainwright.image.inputs import Inputs
from trainwright.image.probe import Findings
from trainwright.matrix.matrix import Intent, Recipe
from trainwright.matrix.model import IN_BASE, Lock, PythonFile

NOTHING: dict[str, Any] = {
    "versions": {},
    "libnccl": {},
    "mapped": {},
    "files": {},
    "python_packages": {},
    "packages": {},
}
ONE, OTHER = "/opt/venv/nccl/libnccl.so.2", "/usr/lib/libnccl.so.2"
PERF = "/opt/nccl-tests/bin/all_reduce_perf"


@pytest.fixture(scope="module")
def found(intent: Intent) -> Inputs:
    """Return a CPU image, because the default image may have more components."""
    return inputs.load(
        Recipe(intent, next(v for v in intent.variants if v.accelerator == "cpu" and v.target == "sagemaker"))
    )


def truthful(found: Inputs) -> dict[str, Any]:
    """Return what the probe prints of an image that matches its lock."""
    return NOTHING | {
        "versions": dict(found.versions),
        "python_packages": {
            entry.name: entry.version for entry in found.lock.python if entry.group in ("framework", "toolkit")
        },
        "packages": {name: package.version for name, package in found.distribution.packages().items()},
    }


def differences(intent: Intent, found: Inputs, printed: dict[str, Any]) -> list[str]:
    packages = found.distribution.packages()
    return probe.compare(
        Recipe(intent, found.variant), found.pins, found.lock, packages, Findings.model_validate(printed)
    )


def test_equal(intent: Intent, found: Inputs) -> None:
    assert differences(intent, found, truthful(found)) == []
    probe.refuse(found.recipe, [])


@pytest.mark.parametrize(
    ("part", "name", "value", "sentence"),
    [
        ("versions", "torch", "2.12.0+cpu", "component torch: the lock says {was}, the image holds 2.12.0+cpu"),
        ("versions", "openmpi", None, "component openmpi {was} is in the lock and not in the image"),
        ("python_packages", "numpy", "1.0", "Python package numpy: the lock says {was}, the image holds 1.0"),
        ("python_packages", "sympy", None, "Python package sympy {was} is in the lock and not in the image"),
        ("python_packages", "extra", "1", "Python package extra 1 is in the image and not in the lock"),
        ("packages", "libc6", "1", "distribution package libc6: the lock says {was}, the image holds 1"),
        ("packages", "libc6", None, "distribution package libc6 {was} is in the lock and not in the image"),
        ("packages", "vim", "1", "distribution package vim 1 is in the image and not in the lock"),
    ],
)
def test_one_difference(intent: Intent, found: Inputs, part: str, name: str, value: str | None, sentence: str) -> None:
    printed = truthful(found)
    was = printed[part].pop(name, None)
    if value is not None:
        printed[part][name] = value
    assert differences(intent, found, printed) == [sentence.format(was=was)]


def test_every_pin_is_asked_for(intent: Intent, found: Inputs) -> None:
    asked = probe.questions(found.recipe, found.pins)
    assert set(asked) == set(found.pins)
    for question in asked.values():
        assert {"pattern"} < set(question) < {"pattern", "command", "code"}
        assert re.compile(question["pattern"]).groups == 1


def test_what_the_base_brings_is_declared_and_was_not_compiled(intent: Intent) -> None:
    recipe = next(recipe for recipe in intent.recipes if recipe.made_by_others)
    components = declared.declaration(recipe, dict.fromkeys(recipe.pins, "1.2.3"), [], {})["components"]
    compiled = {name: row["compiled"] for name, row in components.items() if recipe.pins[name].provider == IN_BASE}
    assert set(compiled.values()) == {False}


def test_a_difference_of_any_kind_reaches_the_sum(intent: Intent, found: Inputs) -> None:
    printed = truthful(found) | {"libnccl": {ONE: "2.30.7"}, "files": {"x": {"/opt/x": ("a", "b")}}}
    assert differences(intent, found, printed) == [
        f"{ONE} (2.30.7; not mapped by any process) is in the image, NCCL is not in the lock",
        "component x: /opt/x is not the file that was built: a, in the image b",
    ]


@pytest.fixture(scope="module")
def stack(intent: Intent) -> Inputs:
    """Return the devel twin of an image whose components are mostly compiled."""
    return inputs.load(
        Recipe(
            intent,
            next(
                v
                for v in intent.variants
                if v.devel and v.pins["libfabric"].provider == "distro" and "nccl-tests" in v.pins
            ),
        ),
    )


def test_an_empty_image_lacks_everything(intent: Intent, stack: Inputs) -> None:
    """Each kind of question reaches the pins that it is about."""
    said = differences(intent, stack, NOTHING)
    nccl, tests = stack.pins["nccl"], stack.pins["nccl-tests"]
    assert f"component nccl-tests {tests} is in the lock and not in the image" in said
    assert f"libnccl {nccl} is in the lock and not in the image" in said
    assert f"a process that loads torch does not map libnccl, and the lock says {nccl}" in said
    assert f"no program of nccl-tests could be started to check that it maps libnccl {nccl}" in said
    for name in ("nccl-tests", "aws-ofi-nccl", "gdrcopy"):
        assert f"component {name} was compiled and lists no files" in said
    assert "component torch was compiled and lists no files" not in said
    devel = next(entry for entry in stack.lock.python if entry.group == "devel")
    assert f"Python package {devel.name} {devel.version} is in the lock and not in the image" in said


def test_a_source_distribution_that_is_compiled_lists_its_files(intent: Intent) -> None:
    held = inputs.load(Recipe(intent, next(v for v in intent.variants if "horovod" in v.pins)))
    assert "component horovod was compiled and lists no files" in differences(intent, held, NOTHING)


def test_only_a_package_of_the_distribution_has_a_revision(intent: Intent, stack: Inputs) -> None:
    pins = {"openssh": "1:10.0p1-7+deb13u4", "torch": "2.15.0-1"}
    assert probe.expected_versions(Recipe(intent, stack.variant), pins) == {"openssh": "10.0", "torch": "2.15.0-1"}


# --- packages that an installer registers itself --------------------------------------------------------------------


@pytest.fixture(scope="module")
def flagship(intent: Intent) -> Inputs:
    """Return an image with the EFA installer, which brings its own .deb packages."""
    return inputs.load(Recipe(intent, next(v for v in intent.variants if "efa-installer" in v.pins and not v.devel)))


# As /opt/amazon/efa_installed_packages names them (aws/aws-ofi-nccl#141), in versions of 1.49.0 and 1.50.0.
BROUGHT = {
    **dict.fromkeys(("libfabric1-aws", "libfabric-aws-bin", "libfabric-aws-dev"), "2.6.0amzn1.0"),
    **dict.fromkeys(
        ("ibacm", "ibverbs-providers", "libibverbs1", "librdmacm1t64", "rdma-core", "rdmacm-utils"), "63.0-1"
    ),
    **{"openmpi40-aws": "4.1.7-1", "libnccl-ofi": "1.21.1-1", "efa-profile": "1.7"},
}


def of_packages(intent: Intent, image: Inputs, packages: dict[str, str], below: dict[str, str]) -> list[str]:
    """Return the differences if the image has these packages, and its base's lock also has `below`."""
    printed = truthful(image)
    said = Findings.model_validate(printed | {"packages": printed["packages"] | packages})
    locked = image.distribution.packages()
    model = next(iter(locked.values()))
    locked |= {name: model.model_copy(update={"name": name, "version": version}) for name, version in below.items()}
    compared = probe.compare(Recipe(intent, image.variant), image.pins, image.lock, locked, said)
    return [line for line in compared if line.startswith("distribution package ")]


def test_packages_of_a_pinned_installer_are_no_differences(intent: Intent, flagship: Inputs) -> None:
    assert of_packages(intent, flagship, {}, {}) == []
    locked = {name: package.version for name, package in flagship.distribution.packages().items()}
    assert probe.installed_by_pins(Recipe(intent, flagship.variant), locked) == {}, (
        "tests/image/expected.toml says otherwise"
    )
    assert of_packages(intent, flagship, BROUGHT, {}) == []
    older = dict.fromkeys(("libibverbs1", "rdma-core"), "56.1-1")  # the distribution's, in whose place its own come
    assert of_packages(intent, flagship, BROUGHT, older) == []


@pytest.mark.parametrize("name", ["vim", "efa", "efa-config", "efa-nv-peermem", "openmpi50-aws", "libnccl-ofi-ngc-v3"])
def test_an_installer_brings_only_what_its_patterns_name(intent: Intent, flagship: Inputs, name: str) -> None:
    said = of_packages(intent, flagship, BROUGHT | {name: "1"}, {})
    assert said == [f"distribution package {name} 1 is in the image and not in the lock"]


def test_an_installer_changes_nothing_else_of_the_base(intent: Intent, flagship: Inputs) -> None:
    was = flagship.distribution.packages()["libc6"].version
    assert of_packages(intent, flagship, BROUGHT | {"libc6": "1"}, {"libibmad5": "56.1-1"}) == [
        f"distribution package libc6: the lock says {was}, the image holds 1",
        "distribution package libibmad5 56.1-1 is in the lock and not in the image",  # named, and gone
    ]


def test_without_the_installer_its_packages_are_differences(intent: Intent, found: Inputs, flagship: Inputs) -> None:
    """Neither in another image nor in the same without the pin; the components that it bundles do not stand for it."""
    own = {name: pin for name, pin in flagship.variant.pins.items() if name != "efa-installer"}
    pins = {name: version for name, version in flagship.pins.items() if name in own}
    recipe = Recipe(intent, flagship.variant.model_copy(update={"pins": own}))
    for image in (found, flagship.model_copy(update={"recipe": recipe, "pins": pins})):
        told = {line.split()[2].rstrip(":") for line in of_packages(intent, image, BROUGHT, {})}
        assert told == BROUGHT.keys()


def test_spelling_of_a_python_name_is_no_difference(intent: Intent, found: Inputs) -> None:
    entry = PythonFile(name="Typing_Extensions", version="1", file="a.whl", sha256="0" * 64, size=1, group="framework")
    held = Findings.model_validate(NOTHING | {"python_packages": {"typing-extensions": "1"}})
    lock = Lock(intent="0" * 64, entries="0" * 64, python=[entry])
    assert probe.compare(Recipe(intent, found.variant), {}, lock, {}, held) == []


def test_refusal_names_the_first_and_counts_the_rest(found: Inputs) -> None:
    with pytest.raises(BuildError, match="differs from its lock: one") as raised:
        probe.refuse(found.recipe, ["one", "two", "three", "four", "five", "six", "seven"])
    assert raised.value.exit_code == 5
    assert raised.value.why == "one; two; three; four; five and 2 more"


@pytest.mark.parametrize(
    ("version", "upstream"),
    [("1:9.2p1-2+deb12u7", "9.2p1"), ("4.1.4-3+b1", "4.1.4"), ("3.11.2-6+deb12u6", "3.11.2"), ("1.17", "1.17")],
)
def test_upstream_version(version: str, upstream: str) -> None:
    assert probe.upstream_version(version) == upstream


@pytest.mark.parametrize(
    ("pattern", "version", "looks"),
    [
        ("{version}", "13.2.2", "13.2.2"),
        ("{major}.{minor}", "13.2.2", "13.2"),
        ("v{major}", "13.2.2", "v13"),
        ("{release}", "10.0p1", "10.0"),
        ("{release}", "13.2.2", "13.2.2"),
    ],
)
def test_a_version_may_be_shown_in_another_way(pattern: str, version: str, looks: str) -> None:
    assert probe.shown(pattern, version) == looks


@pytest.mark.parametrize(
    ("pin", "said", "equal"),
    [
        ("2.15.0", "2.15.0", True),
        ("2.15.0", "2.15.0+cu132", True),  # as the wheel of the public index calls itself
        ("2.15.0", "2.15.0+cu130", False),  # another CUDA than the variant's
        ("2.15.0", "2.14.1+cu132", False),
        ("2.15.0+cu132", "2.15.0", False),
        ("2.15.0+cu132", "2.15.0+cu132", True),
        ("2.15.0+cpu", "2.15.0+cu132", False),
    ],
)
def test_local_part_of_a_version_names_the_accelerator(
    intent: Intent, found: Inputs, pin: str, said: str, equal: bool
) -> None:
    variant = found.variant.model_copy(update={"accelerator": "cu132"})
    assert (probe.version_differences(Recipe(intent, variant), {"torch": pin}, {"torch": said}) == []) is equal


# --- one NCCL ------------------------------------------------------------------------------------------------------


def nccl(wanted: str | None, tested: bool = True, **printed: Any) -> list[str]:
    held = Findings.model_validate(NOTHING | printed)
    return list(probe.nccl_differences(wanted, ["torch"] if wanted else [], tested, held))


EVERYBODY = {"torch": [ONE], PERF: [ONE]}


def test_one_nccl() -> None:
    assert nccl("2.30.7", libnccl={ONE: "2.30.7"}, mapped=EVERYBODY) == []


def test_one_nccl_without_nccl_tests() -> None:
    assert nccl("2.30.7", tested=False, libnccl={ONE: "2.30.7"}, mapped={"torch": [ONE]}) == []


def test_no_nccl_at_all() -> None:
    assert nccl(None, tested=False) == []


def test_two_copies_and_who_maps_which() -> None:
    said = nccl("2.30.7", libnccl={ONE: "2.30.7", OTHER: "2.30.7"}, mapped={"torch": [ONE], PERF: [OTHER]})
    assert said == [f"more than one libnccl: {ONE} (2.30.7; mapped by torch), {OTHER} (2.30.7; mapped by {PERF})"]


def test_two_versions() -> None:
    said = nccl("2.30.7", libnccl={ONE: "2.30.7", OTHER: "2.29.7"}, mapped=EVERYBODY)
    assert said == [
        f"more than one libnccl: {ONE} (2.30.7; mapped by {PERF}, torch), {OTHER} (2.29.7; not mapped by any process)",
        f"{OTHER} reports NCCL 2.29.7, the lock says 2.30.7; not mapped by any process",
    ]


@pytest.mark.parametrize(
    ("printed", "sentence"),
    [
        (
            {"libnccl": {ONE: "2.29.7"}, "mapped": EVERYBODY},
            f"{ONE} reports NCCL 2.29.7, the lock says 2.30.7; mapped by {PERF}, torch",
        ),
        (
            {"libnccl": {ONE: ""}, "mapped": EVERYBODY},
            f"{ONE} reports NCCL without a version, the lock says 2.30.7; mapped by {PERF}, torch",
        ),
        (
            {"libnccl": {ONE: "2.30.7"}, "mapped": {PERF: [ONE]}},
            "a process that loads torch does not map libnccl, and the lock says 2.30.7",
        ),
        ({"libnccl": {ONE: "2.30.7"}, "mapped": {"torch": [ONE], PERF: []}}, f"{PERF} refers to libnccl but maps none"),
        (
            {"libnccl": {ONE: "2.30.7"}, "mapped": {"torch": [ONE]}},
            "no program of nccl-tests could be started to check that it maps libnccl 2.30.7",
        ),
        (
            {"libnccl": {ONE: "2.30.7"}, "mapped": {"torch": [ONE], PERF: [OTHER]}},
            f"{PERF} maps {OTHER}, which is not a libnccl of the image",
        ),
    ],
)
def test_one_difference_of_nccl(printed: dict[str, Any], sentence: str) -> None:
    assert nccl("2.30.7", **printed) == [sentence]


def test_a_process_with_two() -> None:
    said = nccl("2.30.7", libnccl={ONE: "2.30.7", OTHER: "2.30.7"}, mapped={**EVERYBODY, "torch": [ONE, OTHER]})
    assert said[1:] == [f"torch maps more than one libnccl: {ONE}, {OTHER}"]


def test_nccl_that_is_gone() -> None:
    assert nccl("2.30.7", tested=False)[0] == "libnccl 2.30.7 is in the lock and not in the image"


def test_jax_loads_nccl_through_its_plugin(intent: Intent) -> None:
    recipe = next(one for one in intent.recipes if {"jax-cuda", "nccl"} <= one.pins.keys())
    found = inputs.load(recipe)

    def said(mapped: dict[str, list[str]]) -> list[str]:
        held = Findings.model_validate(NOTHING | {"libnccl": {ONE: found.pins["nccl"]}, "mapped": mapped})
        differences = probe.compare(recipe, found.pins, found.lock, {}, held)
        return [sentence for sentence in differences if "does not map libnccl" in sentence]

    loading = [name for name in found.pins if recipe.component(name).position == "framework"]
    everybody = {name: [ONE] for name in loading if name not in ("jax", "jaxlib")}
    assert said(everybody) == []
    del everybody["jax-cuda"]
    assert said(everybody) == [
        f"a process that loads jax-cuda does not map libnccl, and the lock says {found.pins['nccl']}"
    ]


# --- files of compiled components -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("files", "sentences"),
    [
        ({"a": {"/opt/a": ("1", "1")}}, []),
        ({"a": {"/opt/a": ("1", "")}}, ["component a: /opt/a is in its list of files and not in the image"]),
        ({"a": {"/opt/a": ("1", "2")}}, ["component a: /opt/a is not the file that was built: 1, in the image 2"]),
        (
            {"a": {"/opt/x": ("1", "1")}, "b": {"/opt/x": ("1", "1")}},
            ["two components claim /opt/x: a and b"],
        ),
        ({}, ["component a was compiled and lists no files"]),
        ({"a": {}}, ["component a was compiled and lists no files"]),
    ],
)
def test_files_of_compiled_components(files: dict[str, Any], sentences: list[str]) -> None:
    held = Findings.model_validate(NOTHING | {"files": files})
    assert list(probe.file_differences(["a"], held)) == sentences


# --- the script that runs in the image ------------------------------------------------------------------------------


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Import the probe with a PATH where the interpreter is called `python`, as in an image."""
    (tmp_path / "python").symlink_to(sys.executable)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return imported(Path(__file__).parents[3] / "scripts/probe.py")


def test_question_by_program_and_by_code(script: ModuleType) -> None:
    assert script.answer({"command": ["echo", "thing 1.2"], "pattern": r"thing (\S+)"}) == ("1.2", [])
    assert script.answer({"code": "print('thing 1.2')", "pattern": r"thing (\S+)"}) == ("1.2", [])
    assert script.answer({"command": ["no-such-program"], "pattern": "(.*)"})[0] in (None, "")
    assert script.answer({"code": "raise SystemExit('thing')", "pattern": r"version (\S+)"}) == (None, [])


def test_code_tells_what_its_process_maps(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """libc stands in for NCCL: every process maps that one."""
    monkeypatch.setattr(script, "NCCL", re.compile(r"libc[.-]"))
    _, mapped = script.answer({"code": "print('version 1')", "pattern": r"version (\S+)"})
    assert len(mapped) == 1


def test_program_that_would_end_at_once_is_seen(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script, "NCCL", re.compile(r"libc[.-]"))
    stands, seen = script.stands, list[bool]()

    def noted(process: object) -> bool:
        seen.append(stands(process))
        return seen[-1]

    monkeypatch.setattr(script, "stands", noted)
    assert [len(maps) for maps in script.mapped_by(["/bin/ls", "/bin/pwd"]).values()] == [1, 1]
    assert seen[-2:] == [True, True], "it was waited for in vain"


def test_full_pipe_takes_no_byte(script: ModuleType) -> None:
    reader, writer = script.full_pipe()
    assert os.get_blocking(writer), "a program would get an error instead of waiting"
    os.set_blocking(writer, False)
    with pytest.raises(BlockingIOError):
        os.write(writer, b"x")
    os.close(reader)
    os.close(writer)


def test_lists_of_files(script: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "there").write_text("x")
    digest = hashlib.sha256(b"x").hexdigest()
    (tmp_path / "lists").mkdir()
    (tmp_path / "lists/part").write_text(f"{digest}  {tmp_path}/there\n{digest}  {tmp_path}/gone\n")
    monkeypatch.setattr(script, "LISTS", tmp_path / "lists")
    assert script.claims() == {"part": {f"{tmp_path}/there": [digest, digest], f"{tmp_path}/gone": [digest, ""]}}
    monkeypatch.setattr(script, "LISTS", tmp_path / "no-such-folder")
    assert script.claims() == {}


def test_programs_that_name_nccl(script: ModuleType, tmp_path: Path) -> None:
    contents = {
        "run": b"\x7fELF libnccl.so.2",
        "lib.so": b"\x7fELF libnccl.so.2",
        "other": b"\x7fELF",
        "text": b"libnccl",
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
        (tmp_path / name).chmod(0o755)
    assert list(script.programs(str(tmp_path / name) for name in contents)) == [str(tmp_path / "run")]


@pytest.mark.parametrize(
    ("printed", "version"), [("23007", "2.30.7"), ("22907", "2.29.7"), ("", ""), ("Traceback", ""), ("0", "")]
)
def test_version_as_nccl_counts(script: ModuleType, printed: str, version: str) -> None:
    assert script.dotted(printed) == version


@pytest.mark.parametrize(
    ("path", "counts"),
    [
        ("/x/libnccl.so", True),
        ("/x/libnccl.so.2", True),
        ("/x/libnccl.so.2.30.7", True),
        ("/x/libnccl-1a2b3c4d.so.2", True),
        ("/x/libnccl-net-ofi.so", False),
        ("/x/libnccl-net.so", False),
        ("/x/libnccl-ofi-tuner.so", False),
    ],
)
def test_what_is_an_nccl(script: ModuleType, path: str, counts: bool) -> None:
    assert script.nccls([path]) == ([path] if counts else [])
