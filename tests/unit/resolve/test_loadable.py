"""Test that wheels which need CUDA are refused for images without it, as torchvision of the public index is."""

from pathlib import Path
from zipfile import ZipFile

import pytest

from trainwright.core import store
from trainwright.core.errors import IncompatibleError
from trainwright.lock import additions
from trainwright.lock.requirements import Line
from trainwright.matrix.matrix import Intent, Recipe
from trainwright.matrix.model import PythonFile
from trainwright.resolve import loadable

ROOT = Path(__file__).parents[3]
LACKING = additions.settings(ROOT).lacking
LINES = [Line(text="vision", where="requirements.txt:3")]
NEEDS = b"\x7fELF" + b"x" * loadable.CHUNK + b"\0libtorch.so\0libtorch_cuda.so\0"


@pytest.fixture(autouse=True)
def _own_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINWRIGHT_STORE", str(tmp_path / "store"))


def put(folder: Path, name: str, members: dict[str, bytes]) -> PythonFile:
    """Make a wheel with these members in the store, and return its entry of a lock."""
    path = folder / f"{name}-1.0-py3-none-any.whl"
    with ZipFile(path, "w") as wheel:
        for member, content in members.items():
            wheel.writestr(member, content)
    entry = PythonFile(name=name, version="1.0", file=path.name, sha256=store.sha256_of(path), size=1, group="added")
    store.add(path, entry.sha256)
    return entry


def on_top(intent: Intent, image: str) -> Recipe:
    return additions.on_top(intent.recipe(image), "requirements.txt", "team")


CPU = "pytorch-2.13-cpu-py311-ec2"


def test_a_wheel_that_needs_torch_for_cuda_is_refused_for_torch_for_cpus(intent: Intent, tmp_path: Path) -> None:
    entry = put(tmp_path, "vision", {"vision/_C.so": NEEDS})
    with pytest.raises(IncompatibleError, match="does not load in the-image") as raised:
        loadable.check(on_top(intent, CPU), [entry], LINES, LACKING, "the-image")
    assert raised.value.where == "requirements.txt:3"
    assert "vision/_C.so of vision-1.0-py3-none-any.whl needs libtorch_cuda.so" in raised.value.why
    loadable.check(on_top(intent, "pytorch-2.14-cu130-py313-ec2"), [entry], LINES, LACKING, "the-image")


def test_a_name_in_two_reads_is_found(tmp_path: Path) -> None:
    mark = b"\0libtorch_cuda.so\0"
    for split in range(1, len(mark)):
        content = b"x" * (loadable.CHUNK - split) + mark
        entry = put(tmp_path, f"vision{split}", {"_C.so": content})
        assert loadable.asks_for(store.path_of(entry.sha256), entry.file, LACKING) == ("_C.so", "libtorch_cuda.so")


@pytest.mark.parametrize(
    "members",
    [
        {"vision/_C.so": b"\0libtorch.so\0libtorch_cuda.so.debug\0"},
        {"vision/notes.txt": NEEDS},
    ],
)
def test_others_are_not(intent: Intent, tmp_path: Path, members: dict[str, bytes]) -> None:
    loadable.check(on_top(intent, CPU), [put(tmp_path, "vision", members)], LINES, LACKING, "the-image")


def test_a_library_that_is_added_as_well_is_there(intent: Intent, tmp_path: Path) -> None:
    """A team puts PyTorch for CUDA on the image without a framework."""
    files = [
        put(tmp_path, "vision", {"vision/_C.so": NEEDS}),
        put(tmp_path, "torch", {"torch/lib/libtorch_cuda.so": b"", "a/libcudart.so.12": b"", "a/libcudart.so.13": b""}),
    ]
    loadable.check(on_top(intent, "base-1.0-cpu-py313-ec2"), files, LINES, LACKING, "the-image")
