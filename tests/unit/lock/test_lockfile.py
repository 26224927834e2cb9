"""Test the lock: it is read back unchanged, and refused when it does not match the intent."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trainwright.core.errors import ConfigError, LockError, TrainwrightError
from trainwright.core.toml import parse
from trainwright.image import inputs, render
from trainwright.lock import lockfile
from trainwright.matrix.matrix import Intent, Recipe, load_intent
from trainwright.matrix.model import Lock, Pin, PythonFile, Variant

Edit = Callable[[Path, str, str], None]
ID = "pytorch-2.13-cpu-py311-sagemaker"
LOCK = f"dockerfiles/locks/{ID}.toml"
PACKAGES = "dockerfiles/locks/debian-12.packages"


def variant_of(intent: Intent) -> Variant:
    return next(variant for variant in intent.variants if variant.id == ID)


def load(root: Path) -> inputs.Inputs:
    intent = load_intent(root)
    return inputs.load(Recipe(intent, variant_of(intent)))


def refused(root: Path) -> LockError:
    with pytest.raises(LockError) as raised:
        load(root)
    assert raised.value.exit_code == 4
    assert raised.value.fix
    return raised.value


def without(path: Path, header: str, name: str, group: str = "") -> None:
    """Remove entries from a lock, as a bad merge would."""
    blocks = path.read_text().split(header)
    kept = [block for block in blocks if f'name = "{name}"\n' not in block or f'group = "{group}' not in block]
    assert len(kept) < len(blocks)
    path.write_text(header.join(kept))


def seal(path: Path) -> None:
    """Record a lock's present entries as its entries, as `trainwright lock` does."""
    held = parse(path.read_text(), Lock, path.name)
    path.write_text(lockfile.dump(held.model_copy(update={"entries": lockfile.entries_digest(held.python)})))


def test_roundtrip(tree: Path) -> None:
    held = parse((tree / LOCK).read_text(), Lock, "lock")
    again = parse(lockfile.dump(held), Lock, "lock")
    assert sorted(again.python, key=str) == sorted(held.python, key=str)
    assert lockfile.dump(again) == (tree / LOCK).read_text()  # what is committed is what would be written


def test_a_lock_without_python_packages_is_read_again(tree: Path) -> None:
    bare = parse((tree / LOCK).read_text(), Lock, "lock").model_copy(update={"python": [], "brought": {"git": "1"}})
    assert parse(lockfile.dump(bare), Lock, "lock") == bare


def test_written_in_one_order_whatever_came_first(tree: Path) -> None:
    held = parse((tree / LOCK).read_text(), Lock, "lock")
    backwards = held.model_copy(update={"python": held.python[::-1]})
    assert lockfile.dump(backwards) == lockfile.dump(held)


def test_the_locks_of_this_checkout_are_current(intent: Intent) -> None:
    for recipe in inputs.held(intent):
        inputs.load(recipe)


def test_no_lock(tree: Path) -> None:
    (tree / LOCK).unlink()
    assert "does not exist" in refused(tree).what


def test_no_package_lock(tree: Path) -> None:
    (tree / PACKAGES).unlink()
    assert "does not exist" in refused(tree).what


@pytest.mark.parametrize(
    ("file", "pattern", "new"),
    [
        ("matrix.toml", r'torch = "2.13.0"', 'torch = "2.13.1"'),
        ("matrix.toml", r'pythons = \["3.11"\]', 'pythons = ["3.11"] #'),
        ("layers/mpi4py.toml", r"mpi4py==\{version\}", "mpi4py=={version},!=4.1.0"),
        ("layers/torch.toml", r"download\.pytorch\.org", "elsewhere.invalid"),
        ("tools.toml", r'^uv = ".*"', 'uv = "0.0.1"'),
        ("tools.toml", r'^setuptools = ".*"', 'setuptools = "1"'),
        ("bases.toml", r'^glibc = "2.36"', 'glibc = "2.31"'),
        ("layers/openmpi.toml", r'"openmpi-bin"', '"openmpi-bin", "vim"'),
        ("bases.toml", r'^suite = "bookworm"', 'suite = "trixie"'),
        ("bases.toml", r'"less"', '"less", "vim"'),
    ],
)
def test_stale_intent(tree: Path, edit: Edit, file: str, pattern: str, new: str) -> None:
    edit(tree / "dockerfiles" / file, pattern, new)
    if new.endswith("#"):  # a comment is no intent
        load(tree)
    else:
        error = refused(tree)
        assert "stale" in error.what
        assert error.fix == f"trainwright lock {ID}"


@pytest.mark.parametrize("word", ["licence", "summary"])
def test_words_that_change_no_fact_make_nothing_stale(tree: Path, edit: Edit, word: str) -> None:
    edit(tree / "dockerfiles/layers/torch.toml", rf'^{word} = ".*"', f'{word} = "other"')
    load(tree)


@pytest.mark.parametrize("pin", ["torch", "numpy", "mpi4py", "pip", "sagemaker-training"])
def test_a_pin_is_missing(tree: Path, pin: str) -> None:
    without(tree / LOCK, "[[python]]", pin)
    assert pin in refused(tree).what


def test_a_transitive_requirement_is_missing(tree: Path) -> None:
    without(tree / LOCK, "[[python]]", "mpmath")
    error = refused(tree)
    assert "mpmath" in error.what
    assert "sympy" in error.why


def test_an_entry_is_missing_that_no_metadata_asks_for(tree: Path) -> None:
    """sagemaker-training comes as a source distribution, which does not say that it requires scipy."""
    without(tree / LOCK, "[[python]]", "scipy")
    assert "removed or edited" in refused(tree).why


@pytest.mark.parametrize(
    ("pattern", "new"),
    [
        (r'^sha256 = "0', 'sha256 = "1'),
        (r'^file = "mpi4py', 'file = "mpi5py'),
        (r"^size = 1", "size = 2"),
        (r"^compile = false", "compile = true"),
        (r'^licence = ".*"', 'licence = "MIT-0"'),
        (r"^needs = \[\]", 'needs = ["numpy"]'),
        (r'^group = "toolkit"', 'group = "framework"'),
    ],
)
def test_an_edited_entry(tree: Path, edit: Edit, pattern: str, new: str) -> None:
    """What nobody resolved and nobody fetched: no word of a lock is anybody's to change."""
    seal(tree / LOCK)
    edit(tree / LOCK, pattern, new)
    error = refused(tree)
    assert "was changed by hand" in error.what
    assert "removed or edited" in error.why


@pytest.mark.parametrize("group", ["framework", "sdist-build"])
def test_what_builds_does_not_stand_in_for_what_is_installed(tree: Path, group: str) -> None:
    """setuptools is locked twice: torch needs it in the image, and source distributions are built with it."""
    without(tree / LOCK, "[[python]]", "setuptools", group)
    assert "setuptools" in refused(tree).what


def test_the_build_tool_is_missing(tree: Path) -> None:
    without(tree / LOCK, "[[python]]", "uv")
    assert "uv" in refused(tree).what


@pytest.mark.parametrize("package", ["openmpi-bin", "python3.11", "git", "libc6"])
def test_a_distribution_package_is_missing(tree: Path, package: str) -> None:
    """Of a component, of the base's own list, and what those need in turn."""
    path = tree / PACKAGES
    blocks = path.read_text().split("\n\n")
    kept = [block for block in blocks if f"Package: {package}\n" not in block + "\n"]
    assert len(kept) == len(blocks) - 1
    path.write_text("\n\n".join(kept))
    assert package in refused(tree).what


def test_another_version_than_the_pin(tree: Path, edit: Edit) -> None:
    edit(tree / LOCK, r'^version = "2.13.0\+cpu"', 'version = "2.12.0+cpu"')
    assert "torch 2.13.0" in refused(tree).what


@pytest.mark.parametrize(
    ("file", "pattern", "new"),
    [
        (LOCK, r"^intent = ", "<<<<<<< ours\nintent = "),  # an unfinished merge
        (LOCK, r"^sha256 = .*", 'sha256 = "abc"'),
        (PACKAGES, r"^Intent: ", "<<<<<<< ours\nIntent: "),
        (PACKAGES, r"^Intent: .*\n", ""),
        (PACKAGES, r"^Date: .*\n", ""),
        (PACKAGES, r"^Date: .*", "Date: someday"),
        (PACKAGES, r"^Version: .*\n", ""),
        (PACKAGES, r"^Size: .*", "Size: big"),
        (PACKAGES, r"^SHA256: .*", "SHA256: abc"),
    ],
)
def test_malformed(tree: Path, edit: Edit, file: str, pattern: str, new: str) -> None:
    """Machine-written, so the remedy is to write it again: never a traceback, and `lock` must not trip over it."""
    edit(tree / file, pattern, new)
    with pytest.raises(TrainwrightError) as raised:
        load(tree)
    assert raised.value.exit_code == 4
    assert Path(file).name in raised.value.where
    assert "trainwright lock" in raised.value.fix


def test_empty_package_lock(tree: Path) -> None:
    (tree / PACKAGES).write_text("")
    assert "debian-12.packages" in refused(tree).where


def test_flipped_checksum_changes_the_key(tree: Path, edit: Edit) -> None:
    before = load(tree).key
    edit(tree / LOCK, r'^sha256 = "0', 'sha256 = "1')
    seal(tree / LOCK)
    flipped = load(tree).key
    edit(tree / PACKAGES, r"^SHA256: \w{8}", "SHA256: 00000000")
    assert len({before, flipped, load(tree).key}) == 3


def test_pin_versions(tree: Path) -> None:
    pins = load(tree).pins
    assert pins["torch"] == "2.13.0+cpu"
    assert pins["python"].startswith("3.11.")
    assert "distro" not in pins.values()


def test_the_address_of_an_index_is_in_no_lock(tree: Path) -> None:
    """A source is upstream's own address, as its component says it; a mirror of it is nowhere."""
    components = load_intent(tree).components.components
    for path in (tree / "dockerfiles/locks").iterdir():
        text = path.read_text()
        for source in parse(text, Lock, path.name).sources if path.suffix == ".toml" else []:
            said = {provider.git or provider.url for provider in components[source.name].providers.values()}
            assert source.url in {address.format(version=source.version) for address in said}
            text = text.replace(source.url, "")
        assert "://" not in text, path.name


# --- twins, compile stages, sources ----------------------------------------------------------------------------------

DISTRO = "pytorch-2.15-cu132-py313-ec2-distro"
SOURCES = f"dockerfiles/locks/{DISTRO}.toml"


def of(intent: Intent, identity: str) -> Variant:
    return next(variant for variant in intent.variants if variant.id == identity)


def test_twins_share_one_lock_and_differ_in_devel_only(intent: Intent) -> None:
    image, twin = (
        inputs.load(Recipe(intent, of(intent, DISTRO))),
        inputs.load(Recipe(intent, of(intent, f"{DISTRO}-devel"))),
    )
    assert inputs.lock_path(Recipe(intent, image.variant)) == inputs.lock_path(Recipe(intent, twin.variant))
    assert image.lock == twin.lock
    assert lockfile.intent_digest(Recipe(intent, image.variant)) == lockfile.intent_digest(Recipe(intent, twin.variant))
    more = {entry.name for entry in image.lock.python if entry.group == "devel"}
    assert {"cmake", "ninja", "nvidia-cuda-nvcc"} <= more
    assert {**image.wheels, "devel": twin.wheels["devel"]} == twin.wheels
    assert {entry.name for entry in twin.wheels["devel"]} == more
    constrained = [found.text["requirements/constraints.txt"].splitlines() for found in (image, twin)]
    assert {line.split("==")[0] for line in set(constrained[1]) - set(constrained[0])} == more
    assert image.pins.items() < twin.pins.items()
    assert image.distribution == twin.distribution


def test_a_twins_compilers_are_in_no_layer_of_its_image(intent: Intent) -> None:
    found = inputs.load(Recipe(intent, of(intent, DISTRO)))
    _, _, final = found.text["Dockerfile"].rpartition("\nFROM ")
    installed = {entry.name for folder, files in found.wheels.items() if f"from={folder}," in final for entry in files}
    assert "torch" in installed
    assert not {entry.name for entry in found.lock.python if entry.group == "devel"} & installed
    assert "nvcc" not in final


def test_which_groups_of_a_lock_an_image_has(intent: Intent) -> None:
    assert of(intent, DISTRO).groups == ("framework", "toolkit")
    assert of(intent, f"{DISTRO}-devel").groups == ("framework", "toolkit", "devel")


def test_what_twins_pin_is_intent_of_both(tree: Path, edit: Edit) -> None:
    """One lock answers both: a new CMake in the twin is a new resolution for the image, too."""
    edit(tree / "dockerfiles/matrix.toml", r'^cmake = ".*"', 'cmake = "4.0.0"')
    intent = load_intent(tree)
    for identity in (DISTRO, f"{DISTRO}-devel"):
        with pytest.raises(LockError, match="is stale"):
            inputs.load(Recipe(intent, of(intent, identity)))
    load(tree)  # an image without a twin has nothing to do with it


def test_compile_stages_have_a_package_lock_of_their_own(intent: Intent) -> None:
    found = inputs.load(Recipe(intent, of(intent, DISTRO)))
    assert found.tools
    names = found.tools.packages().keys()
    assert {"autoconf", "libhwloc-dev", "libfabric-dev"} <= names
    assert not names & found.distribution.packages().keys()
    assert "autoconf" not in found.text["requirements/packages.txt"]
    assert inputs.load(Recipe(intent, of(intent, ID))).tools is None
    assert inputs.load(Recipe(intent, of(intent, DISTRO.replace("-distro", "-single-node-devel")))).tools is None


def test_a_stale_package_lock_of_compile_stages(tree: Path, edit: Edit) -> None:
    edit(tree / "dockerfiles/layers/aws-ofi-nccl.toml", r'"automake"', '"automake", "bison"')
    intent = load_intent(tree)
    with pytest.raises(LockError, match=r"debian-13\.build is stale"):
        inputs.load(Recipe(intent, of(intent, DISTRO)))
    inputs.load(
        Recipe(intent, of(intent, DISTRO.replace("-distro", "-single-node")))
    )  # the same base, and nothing compiled


def test_a_lock_says_where_each_source_is_from(intent: Intent) -> None:
    locked = inputs.load(Recipe(intent, of(intent, "pytorch-2.15-cu132-py313-ec2"))).lock
    found = {source.name: source for source in locked.sources}
    assert found.keys() == {"efa-installer", "gdrcopy", "nccl-tests"}
    for name, source in found.items():
        component = intent.components.components[name]
        release = component.releases[source.version]
        assert source.url.startswith("https://")
        assert (source.commit, source.sha256) == (release.commit, release.sha256)
        assert bool(source.commit) != bool(source.sha256)
        assert source.licence.startswith(component.licence[:3])
    assert found["efa-installer"].file == "aws-efa-installer-1.50.0.tar.gz"
    assert found["gdrcopy"].tag == "v2.6"


@pytest.mark.parametrize(
    ("pattern", "new", "says"),
    [
        (r'^commit = "9', 'commit = "8', "source gdrcopy 2.6"),  # of another tree: nobody vouches for it
        (r"^commit = .*\n", "", "the lock has nothing"),
        (r'^version = "2.6"', 'version = "2.5.2"', "source gdrcopy 2.6"),
        (r'^name = "gdrcopy"', 'name = "gdrcpoy"', "source gdrcopy 2.6"),
        (r"\Z", '\n[[sources]]\nname = "x"\nversion = "1"\nurl = "y"\nlicence = "MIT"\n', "is not pinned: x"),
    ],
)
def test_a_source_that_is_not_the_one_of_its_component(
    tree: Path, edit: Edit, pattern: str, new: str, says: str
) -> None:
    path = tree / SOURCES
    before, header, rest = path.read_text().partition('name = "gdrcopy"')
    path.write_text(header + rest)
    edit(path, pattern, new)
    path.write_text(before + path.read_text())
    intent = load_intent(tree)
    with pytest.raises(LockError) as raised:
        inputs.load(Recipe(intent, of(intent, DISTRO)))
    assert says in f"{raised.value.what} {raised.value.why}"
    assert raised.value.fix == f"trainwright lock {DISTRO}"


def test_another_commit_for_the_same_version_makes_its_locks_stale(tree: Path, edit: Edit) -> None:
    edit(tree / "dockerfiles/layers/gdrcopy.toml", r'^commit = "9', 'commit = "8')
    intent = load_intent(tree)
    with pytest.raises(LockError, match="is stale"):
        inputs.load(Recipe(intent, of(intent, DISTRO)))


# --- what compile stages and twins have ---------------------------------------------------------------------------

SINGLE = "pytorch-2.15-cu132-py313-ec2-single-node"


@pytest.mark.parametrize(("accelerator", "nccl"), [("cu132", "nvidia-nccl-cu13"), ("cu126", "nvidia-nccl-cu12")])
def test_what_is_compiled_is_compiled_against_the_accelerators_wheels(
    intent: Intent, accelerator: str, nccl: str
) -> None:
    other = as_if(intent, DISTRO, accelerator=accelerator)
    assert f"{nccl}==2.30.7" in lockfile.build_requirements(Recipe(other, of(other, DISTRO)))
    assert not [
        text
        for text in lockfile.build_requirements(Recipe(other, of(other, DISTRO)))
        if "nccl" in text and nccl not in text
    ]
    pins = of(other, DISTRO).pins | {"nccl": Pin(provider="source", version="2.30.7")}
    own = of(as_if(other, DISTRO, pins=pins), DISTRO)
    wheels = [PythonFile(name=nccl, version="2.30.7", file="x.whl", sha256="0" * 64, size=1, group="framework")]
    held = Lock(intent="0" * 64, entries="0" * 64, python=wheels)
    found = render.folders_of(Recipe(other, own), held)
    assert [entry.name for name in found if name != "compile" for entry in found[name]] == []  # its place is taken


def test_build_requirements_of_nothing_compiled(intent: Intent) -> None:
    """The lock of an image that compiles nothing and has no twin is not to hold compilers."""
    assert lockfile.build_requirements(Recipe(intent, of(intent, SINGLE)))  # for its twin
    alone = intent.model_copy(update={"variants": [v for v in intent.variants if v.id in (SINGLE, DISTRO)]})
    assert lockfile.build_requirements(Recipe(alone, of(alone, SINGLE))) == []
    assert lockfile.build_requirements(Recipe(alone, of(alone, DISTRO)))  # for its own stages


def as_if(intent: Intent, identity: str, **said: Any) -> Intent:
    """Return the intent with only one image, which is declared differently."""
    variant = of(intent, identity).model_copy(update=said)
    return intent.model_copy(update={"variants": [variant]})


def test_parts_that_a_component_asks_another_one_for(tree: Path, edit: Edit) -> None:
    """Only where both are pinned, without the order mattering; and such a wish is intent."""
    layer = tree / "dockerfiles/layers/mpi4py.toml"
    edit(layer, r"^\[providers.wheel\]", '[providers.wheel]\nextras = { numpy = ["b", "a"], nccl = ["c"] }')
    variant = variant_of(load_intent(tree))
    wanted = lockfile.requirements(Recipe(load_intent(tree), variant))
    assert wanted["numpy"].startswith("numpy[a,b]==")
    assert "nccl" not in wanted
    assert "stale" in refused(tree).what
    edit(layer, r"numpy = \[", "numqy = [")
    with pytest.raises(ConfigError, match="'numqy', which is not a component") as raised:
        load_intent(tree)
    assert "did you mean 'numpy'" in raised.value.why


def test_a_package_of_the_same_content_is_refused_and_makes_nothing_stale(tree: Path, edit: Edit) -> None:
    edit(
        tree / "dockerfiles/layers/torch.toml",
        r"^index = ",
        'refuses = { cpu = "torch-gpu", "cu*" = "torch-cpu" }\nindex = ',
    )
    variant = variant_of(load_intent(tree))
    text = inputs.load(Recipe(load_intent(tree), variant)).text["requirements/constraints.txt"]
    assert text.splitlines()[-1] == "torch-gpu<0"
    assert "torch-cpu" not in text
