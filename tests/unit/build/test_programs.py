"""Test programs from the store: they run only from places where no other user can write."""

from collections.abc import Callable
from pathlib import Path

import pytest

from trainwright.build import programs
from trainwright.core import store
from trainwright.core.errors import EnvironmentProblem

ROOT = Path(__file__).parents[3]
FILES = ROOT / "dockerfiles/cosign"


@pytest.fixture
def unpacked(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Return a list of the folders into which a program was unpacked; a stand-in is unpacked."""
    places: list[Path] = []

    def unpack(_root: Path, _files: Path, folder: Path, *_: str) -> None:
        places.append(folder)
        folder.mkdir(mode=0o755)
        (folder / "cosign").write_text("ours")

    monkeypatch.setattr(programs, "unpack", unpack)
    return places


def run() -> Path:
    return Path(programs.words(ROOT, FILES, "cosign")[-1])


def test_a_program_is_unpacked_once(unpacked: list[Path]) -> None:
    assert not programs.held(FILES)
    assert [run().read_text(), run().read_text(), len(unpacked)] == ["ours", "ours", 1]
    assert programs.held(FILES)


@pytest.mark.parametrize("level", [0, 1])
@pytest.mark.parametrize("mode", [0o775, 0o757])
def test_what_others_could_have_written_is_unpacked_anew(unpacked: list[Path], level: int, mode: int) -> None:
    place = run()
    place.write_text("theirs")
    place.parents[level].chmod(mode)
    assert [run().read_text(), len(unpacked)] == ["ours", 2]
    assert run().parents[level].stat().st_mode & 0o022 == 0


@pytest.mark.parametrize("level", [0, 1])
def test_a_program_of_another_user_is_one_clear_error(
    unpacked: list[Path], foreign: Callable[[Path], None], level: int
) -> None:
    foreign(run().parents[level])
    with pytest.raises(EnvironmentProblem, match="belongs to another user") as error:
        run()
    assert "TRAINWRIGHT_STORE" in error.value.fix
    assert len(unpacked) == 1
    assert store.root() in Path(error.value.where).parents
