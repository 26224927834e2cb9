"""Test how wheels are grouped into layers: few layers, none too large, and stable under small changes."""

from hashlib import sha256

from hypothesis import given
from hypothesis import strategies as st

from trainwright.image import render
from trainwright.lock.wheels import LIBRARIES, SDISTS, folders, parts
from trainwright.matrix.matrix import Intent, Recipe
from trainwright.matrix.model import LayerLimits, PythonFile, Variant

LIMITS = LayerLimits(most=1000, alone=100)


def wheel(name: str, size: int, version: str = "1", **more: object) -> PythonFile:
    fields = {"file": f"{name}-{version}-py3-none-any.whl", "sha256": sha256(name.encode()).hexdigest()}
    return PythonFile.model_validate(
        {"name": name, "version": version, "size": size, "group": "framework", **fields, **more}
    )


def names(found: list[list[PythonFile]]) -> list[list[str]]:
    return [[entry.name for entry in part] for part in found]


SIZES = st.lists(st.integers(1, 2500), min_size=1, max_size=12)


def test_first_fit_decreasing_and_what_is_pinned_comes_last() -> None:
    entries = [wheel("a", 300), wheel("b", 700), wheel("c", 500), wheel("d", 450), wheel("torch", 600), wheel("e", 20)]
    assert names(parts(entries, {"torch"}, LIMITS)) == [["a", "b"], ["c", "d"], ["torch"]]


def test_a_layer_that_is_full_to_the_byte() -> None:
    assert names(parts([wheel("a", 600), wheel("b", 400)], set(), LIMITS)) == [["a", "b"]]
    assert names(parts([wheel("a", 600), wheel("b", 401)], set(), LIMITS)) == [["a"], ["b"]]


def test_one_that_is_larger_than_a_layer_has_one_of_its_own() -> None:
    assert names(parts([wheel("a", 5000), wheel("b", 100)], set(), LIMITS)) == [["a"], ["b"]]


def test_a_source_distribution_is_in_no_large_layer() -> None:
    """It becomes a wheel in a stage of its own, which is installed with the small ones."""
    sdist = wheel("a", 500).model_copy(update={"file": "a-1.tar.gz"})
    assert folders([sdist], set(), set(), LIMITS, False, False)[LIBRARIES] == [sdist]


@given(SIZES, st.randoms(use_true_random=False), st.sets(st.integers(0, 11)))
def test_every_large_wheel_once_in_layers_within_the_limit(sizes: list[int], random: object, own: set[int]) -> None:
    entries = [wheel(f"w{number}", size) for number, size in enumerate(sizes)]
    pinned = {f"w{number}" for number in own}
    found = parts(entries, pinned, LIMITS)
    assert sorted(name for part in names(found) for name in part) == sorted(e.name for e in entries if e.size >= 100)
    for part in found:
        assert len(part) == 1 or sum(entry.size for entry in part) <= LIMITS.most
        assert len({entry.name in pinned for entry in part}) == 1
    rows = list(entries)
    random.shuffle(rows)  # type: ignore[attr-defined]
    assert parts(rows, pinned, LIMITS) == found


@given(SIZES)
def test_no_two_neighbours_would_fit_together(sizes: list[int]) -> None:
    """First fit: a layer is begun only where its first wheel had no room in any before it."""
    found = parts([wheel(f"w{number}", size) for number, size in enumerate(sizes)], set(), LIMITS)
    for number, part in enumerate(found):
        largest = max(entry.size for entry in part)
        for earlier in found[:number]:
            before = [entry.size for entry in earlier if entry.size >= largest]
            assert sum(before) + largest > LIMITS.most


@given(SIZES, st.integers(1, 99), st.integers(1, 99))
def test_a_small_wheel_that_moves_leaves_the_large_layers_alone(sizes: list[int], before: int, after: int) -> None:
    """What changes most often costs least: a job's new tqdm does not mean a new gigabyte."""
    large = [wheel(f"w{number}", size) for number, size in enumerate(sizes)]
    one = folders([*large, wheel("tqdm", before)], set(), set(), LIMITS, False, False)
    other = folders([*large, wheel("tqdm", after, "2"), wheel("more", 10)], set(), set(), LIMITS, False, False)
    assert one[LIBRARIES] != other[LIBRARIES]
    assert {**one, LIBRARIES: []} == {**other, LIBRARIES: []}


def test_what_the_image_compiles_itself_is_not_installed_as_a_wheel() -> None:
    """Two libnccl in one image are worse than none. What is compiled against it still has its headers."""
    entries = [wheel("nvidia-nccl", 500, compile=True), wheel("torch", 500)]
    held = folders(entries, set(), {"nvidia-nccl"}, LIMITS, False, True)
    assert held["framework-1"] == [entries[1]]
    assert LIBRARIES not in [folder for folder, found in held.items() if found]
    assert held["compile"] == [entries[0]]
    assert folders(entries, set(), {""}, LIMITS, False, True)["framework-1"] == entries


def test_what_is_compiled_against_all_others_is_in_no_layer_below_them() -> None:
    """It lies where its own stage finds it, and is installed as what that stage hands over."""
    sdist = wheel("horovod", 500).model_copy(update={"file": "horovod-1.tar.gz"})
    torch, small = wheel("torch", 500), wheel("numpy", 5)
    held = folders([sdist, torch, small], {"horovod"}, set(), LIMITS, False, True, {"horovod"})
    assert (held["framework-1"], held[LIBRARIES], held[SDISTS]) == ([torch], [small], [sdist])
    assert SDISTS not in folders([torch], set(), set(), LIMITS, False, True)


# --- of the images of this checkout ---------------------------------------------------------------------------------


def of(intent: Intent, identity: str) -> Variant:
    return next(variant for variant in intent.variants if variant.id == identity)


CUDA = "pytorch-2.15-cu132-py313-ec2"


def held(intent: Intent, identity: str, group: str = "devel", size: int = 40_000_000) -> dict[str, list[str]]:
    """Map each folder to the names in it, for an image with wheels for the twin alone, for compilers, and for both."""
    from trainwright.matrix.model import Lock

    entries = [
        wheel("torch", 900_000_000),
        wheel("numpy", 20_000_000),
        wheel("uv", 10, group="tools"),
        wheel("cmake", size, group="devel"),
        wheel("nvidia-cuda-nvcc", size, group=group, compile=True),
        wheel("nvidia-nccl-cu13", 200_000_000, compile=True),
    ]
    lock = Lock(intent="0" * 64, entries="0" * 64, python=entries)
    found = render.folders_of(Recipe(intent, of(intent, identity)), lock)
    return {folder: [entry.name for entry in files] for folder, files in found.items()}


def test_a_twins_compilers_are_not_its_images(intent: Intent) -> None:
    image, twin = held(intent, f"{CUDA}-distro"), held(intent, f"{CUDA}-distro-devel")
    assert {**image, "devel": ["cmake", "nvidia-cuda-nvcc"]} == twin
    assert "devel" not in image
    assert image["compile"] == ["nvidia-cuda-nvcc", "nvidia-nccl-cu13"]  # of a stage: nothing of it is shipped
    shipped = {name for folder, files in image.items() if folder not in ("compile", "tools") for name in files}
    assert shipped == {"torch", "numpy", "nvidia-nccl-cu13"}


def test_an_image_that_compiles_nothing_fetches_no_compiler(intent: Intent) -> None:
    assert "nvidia-cuda-nvcc" not in str(held(intent, f"{CUDA}-single-node"))
    assert "compile" not in held(intent, f"{CUDA}-single-node-devel")
    assert held(intent, f"{CUDA}-single-node-devel")["devel"] == ["cmake", "nvidia-cuda-nvcc"]


def test_pinned_wheels_are_above_what_they_bring(intent: Intent) -> None:
    found = held(intent, f"{CUDA}-distro")
    order = [folder for folder, files in found.items() if {"torch", "nvidia-nccl-cu13", "numpy"} & set(files)]
    assert [folder for folder in order if folder != "compile"] == ["framework-1", "framework-2", LIBRARIES]
