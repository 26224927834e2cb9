"""Test commands that are killed, lack disk space, see the clock jump, or run twice at once; see striking.py.

Seeds decide the moments: two in each `make test`, two per command in `make test-slow`. To run one again, or any number:
`SEED=17 pytest tests/engine/test_strikes.py -k killed`, `STRIKES=50 pytest tests/engine/test_strikes.py -m slow`.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import at_once
import pytest
import striking
from registries import serving
from striking import COMMANDS, YEARS, Stage, Struck
from tiny import ID, add, built_in_this_run, store_of_this_run

pytestmark = [pytest.mark.engine, pytest.mark.registry]

ONE, ASKED = os.environ.get("SEED"), os.environ.get("STRIKES")
MANY = int(ASKED or 2)
FEW = ("release", "push")


@pytest.fixture(scope="module")
def on_stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Stage]]:
    """Return a function that returns a command's checkout before it starts; each is made once."""
    made: dict[str, Stage] = {}
    with store_of_this_run(), serving() as registry:
        checkout = striking.checkout(built_in_this_run(), tmp_path_factory.mktemp("checkout"), registry)

        def get(command: str) -> Stage:
            if command not in made:
                made[command] = striking.stage(checkout, command)
            return made[command]

        yield get


def strike(stage: Stage, struck: list[Callable[[], Struck]], *, says: bool) -> None:
    """Run each strike from the same start. Name all that failed, with their moments."""
    failed = []
    for one in struck:
        stage.reset()
        ended = one()
        try:
            with striking.counted(stage.command, "a full disk" if says else "kill -9"):
                if says and ended.code:
                    striking.refused(ended)
                stage.inspect()
                stage.settled()
        except AssertionError as error:
            failed.append(f"{stage.command}, {ended.moment}: {error}")
    assert not failed, "\n".join(failed)


def kills(stage: Stage, count: int) -> list[Callable[[], Struck]]:
    seeds = [int(ONE)] if ONE else [striking.seed_of(stage.command, number) for number in range(count)]
    print(f"{stage.command}: seeds {seeds}")
    return [lambda seed=seed: stage.kill(seed) for seed in seeds]  # type: ignore[misc]


def full(stage: Stage, count: int) -> list[Callable[[], Struck]]:
    """Return strikes by a full disk, spread evenly over the command's changes of files."""
    step = max(1, stage.changes // count)
    return [lambda at=at: stage.strike("full", at) for at in range(step // 2 + 1, stage.changes + 1, step)]  # type: ignore[misc]


@pytest.mark.parametrize("command", COMMANDS if ONE else FEW)
def test_killed_at_a_moment(command: str, on_stage: Callable[[str], Stage]) -> None:
    strike(on_stage(command), kills(on_stage(command), 1), says=False)


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_killed_at_many_moments(command: str, on_stage: Callable[[str], Stage]) -> None:
    """And nothing of it stays in the store, once it is old."""
    strike(on_stage(command), kills(on_stage(command), MANY), says=False)
    assert on_stage(command).debris() == []


@pytest.mark.parametrize("command", FEW)
def test_a_disk_that_is_full_from_a_moment_on(command: str, on_stage: Callable[[str], Stage]) -> None:
    strike(on_stage(command), full(on_stage(command), 1), says=True)


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_a_disk_that_is_full_from_each_moment_on(command: str, on_stage: Callable[[str], Stage]) -> None:
    strike(on_stage(command), full(on_stage(command), MANY), says=True)


@pytest.mark.slow
@pytest.mark.parametrize("ahead", [-10 * YEARS, 8 * YEARS])
@pytest.mark.parametrize("command", COMMANDS)
def test_a_clock_that_jumps_in_a_command(command: str, ahead: int, on_stage: Callable[[str], Stage]) -> None:
    """Back or ahead by years, from its 1st, 20th or 60th question on; a certificate may be of another time."""
    stage = on_stage(command)
    for question in (1, 20, 60):
        stage.reset()
        ended = stage.strike("clock", 0, STRIKE_CLOCK=str(ahead), STRIKE_CLOCK_FROM=str(question))
        with striking.counted(command, "a clock that jumps"):
            if ended.code:
                striking.refused(ended)
            stage.inspect_tags()
            again = stage.run()
            assert again.returncode == 0, again.stderr
            stage.inspect_tags()


@pytest.mark.slow
def test_two_builds_of_one_checkout_at_once(on_stage: Callable[[str], Stage]) -> None:
    """One waits for the other, and finds it published; one tag, of one image."""
    stage = on_stage("push")
    stage.reset()
    add(stage.tree, f'LABEL io.trainwright.round="{uuid4().hex}"')
    words: list[str | Path] = [Path(sys.executable).with_name("trainwright"), "build", "--push", ID]
    both = [
        subprocess.Popen(words, cwd=stage.tree, env=stage.environment(), stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    with striking.counted("build --push", "twice at once"):
        said = [errors for _, errors in at_once.outputs(both, 600)]
        assert [each.returncode for each in both] == [0, 0], said
        assert sum("waiting for it" in words for words in said) == 1
        assert len(stage.registry.tags) == 1
        stage.inspect_tags()
