"""Test the page, the picture, JUnit's XML and the terminal: complete, escaped, and clear about what is unproved."""

import html.parser
import re
import sys
from importlib.util import find_spec
from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from trainwright.commands import register
from trainwright.commands.options import app
from trainwright.core.errors import ConfigError, EnvironmentProblem
from trainwright.gate import read
from trainwright.gate.case import Case, Declared
from trainwright.gate.judge import Check, Verdict
from trainwright.gate.reports import charts, junit, png
from trainwright.gate.reports import html as gate_html

ROOT = Path(__file__).parents[3]
LOGS = ROOT / "tests/unit/nccl-tests"
EVIL = "<script>alert(1)</script>&\"'\x1b[31m\x00$x^2$"
register(["judge"])


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def examined(name: str, instance: str = "", nodes: int | None = None) -> tuple[Verdict, Case]:
    (path,) = LOGS.glob(f"{name}*.txt")
    (found,) = read.examined(ROOT, [str(path)], Declared(instance=instance, nodes=nodes))
    return found


def page(*found: tuple[Verdict, Case]) -> str:
    return gate_html.html([(verdict, charts.panels(case)) for verdict, case in found])


def evil() -> tuple[Verdict, Case]:
    verdict, case = examined("05")
    checks = [
        Check(name="errors", state="fail", evidence=EVIL),
        Check(name="footer", state="not established", evidence=EVIL),
        Check(name="floor", state="not applicable", evidence=EVIL),
        Check(name="sizes", state="pass", evidence=EVIL),
    ]
    update = {"file": EVIL, "verdict": "fail", "cause": "shm", "why": EVIL, "fix": EVIL, "checks": checks}
    return verdict.model_copy(update=update), case


class Page(html.parser.HTMLParser):
    """The elements of a page, and those that are not closed."""

    VOID = ("meta", "br", "hr", "img", "input", "link")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


# --- what is drawn ---------------------------------------------------------------------------------------------------


def test_a_panel_has_what_was_asked() -> None:
    """p4d: 4 x 100 Gbit/s are 50 GB/s; the floor is 70% of it, from 1 GiB on."""
    (panel,) = charts.panels(examined("07", "p4d.24xlarge", 2)[1])
    assert (panel.title, len(panel.sides[0]), len(panel.sides[1])) == ("all_reduce", 30, 30)
    assert panel.sides[0][-1][0] == 4294967296
    assert panel.ceiling
    assert panel.ceiling.busbw == 50
    assert [(level.busbw, level.start) for level in panel.floors] == [(35, 1 << 30)]
    (one_node,) = charts.panels(examined("05", "p5.48xlarge", 1)[1])
    assert one_node.ceiling
    assert one_node.ceiling.busbw == 450
    (bare,) = charts.panels(examined("05")[1])
    assert (bare.ceiling, bare.floors, bare.absent) == (
        None,
        (),
        "no instance type is declared: ceiling and floor are unknown",
    )


def test_every_table_has_its_panel_and_a_log_without_one_has_none() -> None:
    assert len(charts.panels(examined("11")[1])) == 3
    assert charts.panels(examined("37")[1]) == []


def test_a_size_of_zero_is_not_drawn() -> None:
    (panel,) = charts.panels(examined("04")[1])
    assert min(size for size, _ in panel.sides[0]) > 0


@pytest.mark.parametrize(
    ("sizes", "shown"),
    [
        ([8, 1 << 34], ["32 B", "1 KiB", "32 KiB", "1 MiB", "32 MiB", "1 GiB"]),
        ([1 << 29, 1 << 33], ["512 MiB", "1 GiB", "2 GiB", "4 GiB", "8 GiB"]),
        ([1 << 20], ["1 MiB"]),
        ([1000], ["1000 B"]),
        ([], []),
    ],
)
def test_the_ticks_of_sizes_are_powers_of_two(sizes: list[int], shown: list[str]) -> None:
    assert [charts.size_text(size) for size in charts.size_ticks(sizes)] == shown


@pytest.mark.parametrize("highest", [0.003, 0.9, 1.0, 7.64, 50.0, 400.0, 846.82, 12345.0])
def test_the_ticks_of_busbw_reach_above_the_highest(highest: float) -> None:
    ticks = charts.busbw_ticks(highest)
    assert ticks[0] == 0
    assert highest < ticks[-1] < 2.1 * highest
    assert 3 <= len(ticks) <= 8


def test_points_stand_where_their_numbers_are() -> None:
    (panel,) = charts.panels(examined("07", "p4d.24xlarge", 2)[1])
    drawn = gate_html.drawn(panel)
    curve = next(dots for name, _, dots in drawn.curves if name == "side0")
    assert (curve[0][0], curve[-1][0]) == (gate_html.LEFT, gate_html.WIDTH - gate_html.RIGHT)
    assert drawn.ceiling is not None
    assert gate_html.TOP < drawn.ceiling < drawn.floors[0][1] < gate_html.HEIGHT - gate_html.BOTTOM
    at_one_gib = next(dot for dot in curve if dot[2].endswith("at 1 GiB"))
    assert at_one_gib[0] == drawn.floors[0][0]  # the floor begins at the message that it is of
    assert drawn.ceiling < at_one_gib[1] < drawn.floors[0][1]  # 42 GB/s: between 50 and 35


# --- the page --------------------------------------------------------------------------------------------------------


def test_the_page_is_whole_and_asks_for_nothing() -> None:
    found = [examined(name) for name in ("03", "04", "11", "30", "37")]
    text = page(*found)
    parsed = Page(text)
    assert parsed.open == []
    for tag, attributes in parsed.seen:
        assert tag not in ("link", "img", "iframe", "object", "embed", "base")
        assert not {"src", "srcset", "xlink:href", "data"} & attributes.keys()
        assert all(not name.startswith("on") for name in attributes)
        assert (attributes.get("href") or "#").startswith("#")
    assert not re.search(r"url\(|@import|https?://|fetch\(|XMLHttp", text)
    assert sum(tag == "section" for tag, _ in parsed.seen) == len(found)
    assert [verdict.file in text for verdict, _ in found] == [True] * len(found)


def test_a_log_cannot_write_into_the_page() -> None:
    text = page(evil(), evil())
    parsed = Page(text)
    assert sum(tag == "script" for tag, _ in parsed.seen) == 1  # ours
    assert "<script>alert" not in text
    assert "&lt;script&gt;alert(1)" in text
    assert not re.search(r"[\x00-\x08\x0b-\x1f]", text)


def test_what_is_not_established_never_looks_like_a_pass() -> None:
    verdict, case = examined("03", "p5.48xlarge", 2)  # it says nothing of transport, nics and gpudirect
    text = page((verdict, case))
    shown = re.findall(r'<th scope="row">([^<]+)</th><td><span class="badge ([\w-]+)">(.) ([\w ]+)</span>', text)
    assert {name: state for name, _, _, state in shown} == {check.name: check.state for check in verdict.checks}
    assert {(kind, sign) for _, kind, sign, state in shown if state == "pass"} == {("pass", "✓")}
    assert {(kind, sign) for _, kind, sign, state in shown if state == "not established"} == {("not-established", "?")}
    assert '<span class="badge incomplete">? incomplete</span>' in text
    green = re.findall(r"^\s*(.*\{[^}]*var\(--pass\).*)$", text, re.MULTILINE)
    assert [line.split("{")[0].strip() for line in green] == [".badge.pass"]


# --- the picture -----------------------------------------------------------------------------------------------------


needs_matplotlib = pytest.mark.skipif(find_spec("matplotlib") is None, reason="not run: no matplotlib")


@pytest.mark.png
@needs_matplotlib
def test_the_picture_is_one() -> None:
    found = [examined("07", "p4d.24xlarge", 2), examined("37"), evil()]
    drawn = [(verdict, charts.panels(case)) for verdict, case in found]
    picture = png.png(drawn)
    assert picture[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = (int.from_bytes(picture[at : at + 4], "big") for at in (16, 20))
    assert (width, height) == (1430, 3 * 506)


@pytest.mark.png
@needs_matplotlib
def test_a_picture_of_too_many_logs_is_refused() -> None:
    verdict, case = examined("05")
    with pytest.raises(ConfigError, match="too many"):
        png.png([(verdict, charts.panels(case))] * (png.MOST_ROWS + 1))


# --- JUnit -----------------------------------------------------------------------------------------------------------


def test_junit_has_one_case_a_check() -> None:
    found = [examined(name)[0] for name in ("03", "04", "30", "37")]
    suites = ElementTree.fromstring(junit.xml(found).encode())
    for verdict, suite in zip(found, suites, strict=True):
        assert suite.get("name") == verdict.file
        cases = {case.get("name"): case for case in suite.iter("testcase")}
        assert set(cases) == {check.name for check in verdict.checks}
        for check in verdict.checks:
            kinds = {child.tag for child in cases[check.name]}
            wanted = {"fail": "failure", "not established": "error", "not applicable": "skipped", "pass": "system-out"}
            assert kinds == {wanted[check.state]}
        for name, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            assert int(suite.get(name, "")) == len(list(suite.iter(tag)))
    assert int(suites.get("tests", "")) == sum(len(verdict.checks) for verdict in found)
    assert int(suites.get("errors", "")) > 0


def test_junit_holds_whatever_a_log_holds() -> None:
    suite = ElementTree.fromstring(junit.xml([evil()[0]]).encode())[0]
    assert suite.get("name") == EVIL.replace("\x1b", "\ufffd").replace("\x00", "\ufffd")


# --- the command -----------------------------------------------------------------------------------------------------


def test_a_picture_without_matplotlib_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    verdict, case = examined("05")
    with pytest.raises(EnvironmentProblem, match="--png requires matplotlib") as raised:
        png.png([(verdict, charts.panels(case))])
    assert "requirements-png.lock" in raised.value.fix


def test_the_command_writes_all_of_them_also_for_a_fail(tmp_path: Path) -> None:
    log = str(next(LOGS.glob("30*.txt")))
    files = {"--html": tmp_path / "a/b.html", "--junit": tmp_path / "b.xml"}
    options = [word for name, path in files.items() for word in (name, str(path))]
    result = CliRunner().invoke(app, ["judge", log, *options, "--json"])
    assert result.exit_code == 1  # the error, which main() turns into 6
    assert result.stdout.startswith("[")
    assert all(path.stat().st_size > 1000 for path in files.values())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b.xml"]  # no halves


@pytest.mark.png
@needs_matplotlib
def test_the_command_writes_the_picture(tmp_path: Path) -> None:
    log = str(next(LOGS.glob("30*.txt")))
    assert CliRunner().invoke(app, ["judge", log, "--png", str(tmp_path / "b.png")]).exit_code == 1
    assert [(path.name, path.stat().st_size > 1000) for path in tmp_path.iterdir()] == [("b.png", True)]


def test_the_table_names_every_check_and_no_colour_goes_into_a_pipe() -> None:
    log = str(next(LOGS.glob("30*.txt")))
    said = CliRunner().invoke(app, ["judge", log]).stdout
    assert said.startswith("✗ fail  ")
    assert "\x1b" not in said
    assert re.search(r"^  wrong values +✗ fail +line 14: ", said, re.MULTILINE)
    assert re.search(r"^  exit code +– not applicable +no exit code is known$", said, re.MULTILINE)
