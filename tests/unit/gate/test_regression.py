"""Test the comparison of two images: it detects a slower one, gives no false alarm, and reports unclear results."""

import json
import random
import re
from collections import Counter
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any, Literal

import pytest
from hosts import slowed
from typer.testing import CliRunner

from trainwright.commands import compare as commands
from trainwright.commands.options import app
from trainwright.core.errors import ConfigError, NotRunError, TestError
from trainwright.gate import measure, regression
from trainwright.gate.case import Declared
from trainwright.gate.floors import load_floors
from trainwright.gate.regression import Compared, Run, abba, interleaved

ROOT = Path(__file__).parents[3]
LOGS = ROOT / "tests/unit/nccl-tests"
RULE = load_floors(ROOT).comparison
SIZES = [64 << 20 << n for n in range(5)]  # 64 MiB to 1 GiB: ten rows with both columns
RUNS = 10  # of each: what docs/gate.md names
TRIALS = 200


def runs(count: int, loss: float, noise: float, dice: random.Random, shared: bool, drift: float = 0.0) -> list[Run]:
    """Return interleaved runs, with noise per run or per number, and with drift over all of them."""
    found, images = list[Run](), abba(count)
    for number, image in enumerate(images):
        level = 100.0 * (1 - loss if image == "B" else 1) * (1 - drift * number / len(images))
        whole = dice.gauss(0, noise)
        values = {
            ("all_reduce", size, side): level * (1 + (whole if shared else dice.gauss(0, noise)))
            for size in SIZES
            for side in ("out of place", "in place")
        }
        which: Literal["A", "B"] = "A" if image == "A" else "B"
        found.append(Run(file=str(number), image=which, started=f"2026-01-01T00:{number:02}:00Z", busbw=values))
    return found


def verdicts(
    count: int, loss: float, noise: float, shared: bool, drift: float = 0.0, trials: int = TRIALS
) -> Counter[str]:
    dice = random.Random(20260101)
    large = {"all_reduce": SIZES[0]}
    return Counter(
        regression.compare(runs(count, loss, noise, dice, shared, drift), large, RULE).verdict for _ in range(trials)
    )


# --- what it finds ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shared", [True, False], ids=["whole runs vary", "each number varies"])
def test_ten_runs_find_a_loss_of_five_percent_behind_noise_of_two(shared: bool) -> None:
    assert verdicts(RUNS, 0.05, 0.02, shared)["regression"] >= 0.95 * TRIALS


@pytest.mark.parametrize("shared", [True, False], ids=["whole runs vary", "each number varies"])
@pytest.mark.parametrize("count", [4, RUNS])
def test_noise_is_no_regression(count: int, shared: bool) -> None:
    assert verdicts(count, 0.0, 0.02, shared)["regression"] <= 0.05 * TRIALS


def test_ten_runs_say_that_there_is_none() -> None:
    assert verdicts(RUNS, 0.0, 0.02, True)["no difference"] >= 0.95 * TRIALS
    assert verdicts(RUNS, -0.05, 0.02, True)["no difference"] >= 0.95 * TRIALS  # B is faster


def test_a_drift_of_the_cluster_is_no_regression() -> None:
    """It loses 5% while both run: without the order of ABBA that is half a regression."""
    assert verdicts(RUNS, 0.0, 0.005, True, drift=0.05)["regression"] == 0
    one_after_the_other = [
        run.model_copy(update={"image": "A" if number < RUNS else "B", "started": ""})
        for number, run in enumerate(runs(RUNS, 0.0, 0.005, random.Random(1), True, drift=0.1))
    ]
    assert regression.compare(one_after_the_other, {"all_reduce": 1}, RULE).verdict == "regression"


def test_great_noise_is_never_called_equal() -> None:
    """A loss of 5% behind noise of 8%: found or not, but no word that there is none."""
    assert verdicts(RUNS, 0.05, 0.08, True)["no difference"] <= 0.05 * TRIALS


def test_a_loss_that_is_sure_and_small_is_none() -> None:
    assert verdicts(RUNS, 0.01, 0.002, True, trials=20) == {"no difference": 20}


def test_one_column_of_one_size_is_enough() -> None:
    found = runs(RUNS, 0.0, 0.005, random.Random(1), True)
    key = ("all_reduce", SIZES[2], "in place")
    for run in found:
        run.busbw[key] *= 0.94 if run.image == "B" else 1
    said = compared(found)
    assert said.verdict == "regression"
    assert [(one.size, one.side) for one in said.differences if one.state == "regression"] == [key[1:]]


def compared(found: list[Run], **large: int) -> Compared:
    return regression.compare(found, large or {"all_reduce": SIZES[0]}, RULE)


def test_small_messages_decide_nothing() -> None:
    found = runs(RUNS, 0.3, 0.005, random.Random(1), True)
    said = compared(found, all_reduce=SIZES[-1] + 1)
    assert (said.verdict, said.why) == ("not established", "no large message was measured")
    assert {one.state for one in said.differences} == {"small message"}


# --- what it cannot say ----------------------------------------------------------------------------------------------


def test_too_few_runs_establish_nothing() -> None:
    said = compared(runs(3, 0.3, 0.001, random.Random(1), True))
    assert said.verdict == "not established"
    assert "3 runs of A and 3 of B; 4 of each are needed" in said.why


def test_what_did_not_run_interleaved_establishes_nothing() -> None:
    found = runs(RUNS, 0.3, 0.001, random.Random(1), True)
    apart = [run.model_copy(update={"image": "A" if n < RUNS else "B"}) for n, run in enumerate(found)]
    said = compared(apart)
    assert (said.verdict, said.order) == ("not established", "A" * RUNS + "B" * RUNS)
    unknown = [run.model_copy(update={"started": ""}) for run in found]
    assert (compared(unknown).verdict, compared(unknown).order) == ("regression", "")


def test_a_size_that_one_run_lacks_is_not_established() -> None:
    found = runs(RUNS, 0.0, 0.001, random.Random(1), True)
    del found[3].busbw[("all_reduce", SIZES[1], "in place")]
    said = compared(found)
    assert said.verdict == "not established"
    assert "19 of 20 runs have this size" in said.why


@pytest.mark.parametrize("image", ["A", "B"])
def test_a_size_that_one_image_lacks_is_missing_and_not_equal(image: str) -> None:
    found = runs(RUNS, 0.0, 0.001, random.Random(1), True)
    for run in found:
        if run.image == image:
            del run.busbw[("all_reduce", SIZES[1], "in place")]
    said = compared(found)
    (row,) = [one for one in said.differences if (one.size, one.side) == (SIZES[1], "in place")]
    assert (said.verdict, row.state, row.change) == ("not established", "not established", None)
    shown = commands._row(row)
    assert (shown["B against A"], shown[image]) == ("missing", "missing")


# --- its parts -------------------------------------------------------------------------------------------------------


def test_abba() -> None:
    assert "".join(abba(4)) == "ABBAABBA"
    for count in range(1, 21):
        order = abba(count)
        assert (order.count("A"), order.count("B")) == (count, count)
        assert interleaved("".join(order))
        if count % 2 == 0:  # a drift hits both alike
            places = {image: sum(n for n, one in enumerate(order) if one == image) for image in "AB"}
            assert places["A"] == places["B"]
    assert not interleaved("AAABBB")


@pytest.mark.parametrize(("n", "m"), [(1, 1), (2, 3), (4, 4), (5, 3), (6, 5)])
def test_the_distribution_of_u_is_exact(n: int, m: int) -> None:
    counted = Counter(sum(place - i for i, place in enumerate(places)) for places in combinations(range(n + m), n))
    assert regression.ways(n, m) == [counted[u] for u in range(n * m + 1)]


# p of scipy.stats.mannwhitneyu(b, a, method="exact") in SciPy 1.17.1, "less" and "greater", for what the test draws:
# its import takes two seconds.
SCIPY = {
    4: (0.7571428571428571, 0.34285714285714286),
    6: (0.12012987012987013, 0.9101731601731602),
    9: (0.1290415466886055, 0.8887906211435623),
}


@cache
def orders(count: int) -> Counter[int]:
    """Count for each U how many orders of so many values of each side have it, by trying all of them."""
    least = count * (count - 1) // 2
    return Counter(sum(places) - least for places in combinations(range(2 * count), count))


def exact(b: list[float], a: list[float], side: str) -> float:
    """Return how probable such a U of B, or one further to that side, is where A and B do not differ."""
    own, ways = sum(one > other for one in b for other in a), orders(len(a))
    further = [number for u, number in ways.items() if (u <= own if side == "less" else u >= own)]
    return sum(further) / ways.total()


def test_a_bound_is_where_the_test_of_mann_and_whitney_turns() -> None:
    dice = random.Random(7)
    for count, (less, greater) in SCIPY.items():
        a, b = ([dice.gauss(100, 2) for _ in range(count)] for _ in range(2))
        assert [exact(b, a, "less"), exact(b, a, "greater")] == pytest.approx([less, greater])
        _, low, high = regression.shift(a, b, 0.05, 0.05)
        assert low is not None
        assert high is not None
        for bound, side in ((high, "less"), (low, "greater")):
            moved = [value / (1 + bound) for value in b]
            for push, significant in ((-1e-9, side == "less"), (1e-9, side == "greater")):
                assert (exact([value * (1 + push) for value in moved], a, side) <= 0.05) == significant


# --- the commands, on logs -------------------------------------------------------------------------------------------


def written(folder: Path, loss: float, count: int = RUNS) -> tuple[str, str]:
    text, dice = (LOGS / "07_ok_p4d_2node_efa_old_error_column_interleaved_log.txt").read_text(), random.Random(3)
    for number, image in enumerate(abba(count)):
        factor = (1 - loss if image == "B" else 1) * (1 + dice.gauss(0, 0.01))
        path = folder / image.lower() / f"{number:02}.log"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"gate: started at 2026-01-01T00:{number:02}:00Z\n{slowed(text, factor)}")
    return str(folder / "a"), str(folder / "b")


def test_the_command_compares_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    a, b = written(tmp_path, loss=0.05)
    result = CliRunner().invoke(app, ["compare", "--a", a, "--b", b, "--json"])
    said = json.loads(result.stdout)
    assert isinstance(result.exception, TestError), result.output
    assert (said["verdict"], said["order"]) == ("regression", "".join(abba(RUNS)))
    assert {one["size"] for one in said["differences"] if one["state"] != "small message"} == {
        64 << 20 << n for n in range(7)
    }
    shown = CliRunner().invoke(app, ["compare", "--a", a, "--b", b]).stdout
    assert shown.count("regression\n") == 14
    assert "small message" not in shown
    assert "regression: B is" in shown
    same = CliRunner().invoke(app, ["compare", "--a", a, "--b", f"{a}/../a/*0.log", "--json"])
    assert same.exit_code != 0


def test_what_floors_name_is_what_decides(tmp_path: Path) -> None:
    a, b = written(tmp_path, loss=0.0)
    found = measure.compare(ROOT, [a], [b], Declared(instance="p4d.24xlarge", nodes=2))
    assert found.verdict == "no difference"
    assert {one.size for one in found.differences if one.state != "small message"} == {1 << 30, 2 << 30, 4 << 30}


@pytest.mark.parametrize(
    ("spoil", "error", "word"),
    [
        (lambda text: "3e+00".join(text.rsplit("5e-07", 1)), NotRunError, "wrong values"),
        (lambda text: text[: text.index("# Out of bounds")], NotRunError, "completion|footer"),
        (lambda text: text + "gate: all_reduce exited with code 7\n", NotRunError, "exit code"),
        (lambda text: text.replace("worker-0", "worker-9"), NotRunError, "hosts"),
    ],
)
def test_a_log_that_proves_nothing_is_not_compared(
    tmp_path: Path, spoil: Any, error: type[Exception], word: str
) -> None:
    a, b = written(tmp_path, loss=0.0, count=4)
    path = next(Path(b).iterdir())
    text = path.read_text()
    assert spoil(text) != text, text[-3000:]
    path.write_text(spoil(text))
    if word == "hosts":
        assert measure.compare(ROOT, [a], [b], Declared(), same_hosts=True).verdict == "no difference"
    with pytest.raises(error) as caught:
        measure.compare(ROOT, [a], [b], Declared())
    assert re.search(word, f"{caught.value} {getattr(caught.value, 'why', '')}")


def test_one_log_is_no_two_runs(tmp_path: Path) -> None:
    a, _ = written(tmp_path, loss=0.0, count=4)
    with pytest.raises(ConfigError, match="the same log was given twice"):
        measure.compare(ROOT, [a], [a], Declared())
    with pytest.raises(ConfigError, match="no log was found"):
        measure.compare(ROOT, [a], [f"{tmp_path}/nothing*.log"], Declared())
