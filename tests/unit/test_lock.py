"""The lock: written and read back unchanged, and refused as soon as it does not answer the intent."""

from collections.abc import Callable
from pathlib import Path

import pytest

from trainwright import inputs, lock
from trainwright.config import parse
from trainwright.errors import LockError, TrainwrightError
from trainwright.matrix import Intent, load_intent
from trainwright.model import Lock, Variant

Edit = Callable[[Path, str, str], None]
ID = "pytorch-2.13-cpu-py311-sagemaker"
LOCK = f"dockerfiles/locks/{ID}.toml"
PACKAGES = "dockerfiles/locks/debian-12.packages"


def variant_of(intent: Intent) -> Variant:
    return next(variant for variant in intent.variants if variant.id == ID)


def load(root: Path) -> inputs.Inputs:
    intent = load_intent(root)
    return inputs.load(intent, variant_of(intent))


def refused(root: Path) -> LockError:
    with pytest.raises(LockError) as raised:
        load(root)
    assert raised.value.exit_code == 4
    assert raised.value.fix
    return raised.value


def without(path: Path, header: str, name: str, group: str = "") -> None:
    """Take entries out of a lock, as a bad merge would."""
    blocks = path.read_text().split(header)
    kept = [block for block in blocks if f'name = "{name}"\n' not in block or f'group = "{group}' not in block]
    assert len(kept) < len(blocks)
    path.write_text(header.join(kept))


def test_roundtrip(tree: Path) -> None:
    held = parse((tree / LOCK).read_text(), Lock, "lock")
    again = parse(lock.dump(held), Lock, "lock")
    assert sorted(again.python, key=str) == sorted(held.python, key=str)
    assert lock.dump(again) == (tree / LOCK).read_text()  # what is committed is what would be written


def test_written_in_one_order_whatever_came_first(tree: Path) -> None:
    held = parse((tree / LOCK).read_text(), Lock, "lock")
    backwards = held.model_copy(update={"python": held.python[::-1]})
    assert lock.dump(backwards) == lock.dump(held)


def test_the_locks_of_this_checkout_are_current(intent: Intent) -> None:
    for variant in intent.variants:
        inputs.load(intent, variant)


def test_no_lock(tree: Path) -> None:
    (tree / LOCK).unlink()
    assert "there is no lock" in refused(tree).what


def test_no_package_lock(tree: Path) -> None:
    (tree / PACKAGES).unlink()
    assert "there is no lock" in refused(tree).what


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
        packages = any(word in new for word in ("vim", "suite"))  # of a base: all its images share them
        assert error.fix == ("trainwright lock" if packages else f"trainwright lock --only {ID}")


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
    assert "taken out or edited" in refused(tree).why


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
