"""Test the lookup of known vulnerabilities: OSV's algorithm, Debian's tracker, damaged snapshots, and the lists."""

import json
import re
import zipfile
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from trainwright.core.errors import BuildError, ConfigError, NotRunError
from trainwright.inspect.vulnerabilities import contents, osv, report, snapshot
from trainwright.inspect.vulnerabilities.contents import Contents
from trainwright.inspect.vulnerabilities.model import Hit, NotCovered, Package, compare
from trainwright.inspect.vulnerabilities.settings import Accepted, Settings, settings
from trainwright.matrix.matrix import Intent

ROOT = Path(__file__).parents[3]
SAID = settings(ROOT)
DEFAULT = "pytorch-2.13-cpu-py311-sagemaker"
TODAY = date(2026, 11, 26)
TORCH = Package("PyPI", "torch", "2.13.0+cpu")
ZLIB = Package("Debian:12", "zlib", "1:1.2.13.dfsg-1")


def advisory(name: str, affected: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    return {"id": name, "modified": "2026-11-20T08:00:00Z", "affected": affected, **more}


def affected(package: Package, *events: dict[str, str], **more: Any) -> dict[str, Any]:
    ranges = [{"type": "ECOSYSTEM", "events": list(events)}] if events else []
    return {"package": {"ecosystem": package.ecosystem, "name": package.name}, "ranges": ranges, **more}


def packed(path: Path, *rows: dict[str, Any], **files: bytes) -> Path:
    """Write a zip as OSV serves it."""
    with zipfile.ZipFile(path / "all.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for row in rows:
            archive.writestr(f"{row['id']}.json", json.dumps(row))
        for name, content in files.items():
            archive.writestr(f"{name}.json", content)
    return path / "all.zip"


def looked_up(path: Path, *packages: Package, said: Settings = SAID) -> report.Report:
    held = Contents(DEFAULT, "lock", {package: [package.name] for package in packages}, [])
    return report.report([path], [held], said, TODAY)


# --- OSV's algorithm -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("events", "inside", "outside"),
    [
        ([{"introduced": "0"}], ["0", "1.0", "999"], []),
        ([{"introduced": "0"}, {"fixed": "1.0.2"}], ["1.0.1", "1.0.2rc1"], ["1.0.2", "2"]),
        ([{"introduced": "0"}, {"last_affected": "2.1"}], ["2.1", "2.1.0", "2.1+cpu"], ["2.1.1", "2.1.post1"]),
        (
            [{"fixed": "3.2.5"}, {"introduced": "3.0.0"}, {"fixed": "1.0.2"}, {"introduced": "1.0.0"}],  # any order
            ["1.0.0", "1.0.1", "3.0.0", "3.2.4"],
            ["0.9", "1.0.2", "2.0", "3.2.5"],
        ),
        ([{"introduced": "1.0"}, {"limit": "2.0"}], ["1.0", "1.9"], ["0.9", "2.0"]),
        ([{"introduced": "1.0"}, {"limit": "*"}], ["1.0", "9"], ["0.9"]),
        ([{"introduced": "1.10"}, {"fixed": "1.9"}], ["1.10"], ["1.9", "1.2"]),  # numbers, not strings
    ],
)
def test_a_range_of_pypi(events: list[dict[str, str]], inside: list[str], outside: list[str]) -> None:
    one = osv.Range(type="ECOSYSTEM", events=events)
    assert [text for text in inside if not osv.included(one, "PyPI", text)] == []
    assert [text for text in outside if osv.included(one, "PyPI", text)] == []


def test_a_range_of_debian() -> None:
    """An epoch, `~` and a rebuild count as dpkg says."""
    one = osv.Range(type="ECOSYSTEM", events=[{"introduced": "0"}, {"fixed": "1:1.2.13.dfsg-1+deb12u1"}])
    inside = ["0~", "9", "1:1.2.13.dfsg-1", "1:1.2.13.dfsg-1+deb12u1~bpo1"]
    assert all(osv.included(one, "Debian:12", text) for text in inside)
    assert not any(osv.included(one, "Debian:12", text) for text in ("1:1.2.13.dfsg-1+deb12u1", "2:0"))


def test_what_is_built_for_an_accelerator_is_the_public_version() -> None:
    assert compare("PyPI", "2.13.0+cpu", "2.13.0") == 0
    assert compare("PyPI", "2.13.0+cpu", "2.13.0+cu132") < 0  # if the bound has one itself


@pytest.mark.parametrize(
    ("part", "fixed", "why"),
    [
        (affected(TORCH, {"introduced": "0"}, {"fixed": "2.14.0"}), "2.14.0", ""),
        (affected(TORCH, versions=["2.12.0", "2.13.0"]), "", ""),
        (affected(TORCH, {"introduced": "1"}, {"fixed": "2"}, versions=["2.13.0"]), "", ""),  # listed is enough
        (affected(TORCH, {"introduced": "no version"}, versions=["2.13"]), "", ""),
        (affected(TORCH, {"introduced": "no version"}), None, "cannot be compared"),
        (affected(TORCH) | {"ranges": [{"type": "GIT", "events": [{"introduced": "0"}]}]}, None, "commits only"),
        (affected(TORCH), None, ""),
    ],
)
def test_an_affected_part(part: dict[str, Any], fixed: str | None, why: str) -> None:
    hit = osv.hit(osv.Record.model_validate(advisory("A", [part])), TORCH)
    if fixed is not None:
        assert hit
        assert (hit.fixed, hit.undetermined) == (fixed, "")
    elif why:
        assert hit
        assert why in hit.undetermined
    else:
        assert hit is None


def test_the_fix_is_of_the_same_branch() -> None:
    events = [{"introduced": "1"}, {"fixed": "1.9.1"}, {"introduced": "2.13"}, {"fixed": "2.13.2"}]
    hit = osv.hit(osv.Record.model_validate(advisory("A", [affected(TORCH, *events)])), TORCH)
    assert hit
    assert hit.fixed == "2.13.2"


@pytest.mark.parametrize(
    ("ecosystem", "name", "found"),
    [
        ("PyPI", "Torch", True),
        ("npm", "torch", False),
        ("Debian:12", "zlib", True),
        ("Debian", "zlib", True),
        ("Debian:13", "zlib", False),
        ("Debian:120", "zlib", False),
        ("Debian:12", "zlib1g", False),  # the binary package
        ("Ubuntu:24.04:LTS", "zlib", True),
        ("Ubuntu:Pro:24.04:LTS", "zlib", False),
    ],
)
def test_which_package_it_is_about(tmp_path: Path, ecosystem: str, name: str, found: bool) -> None:
    part = affected(Package(ecosystem, name, ""), {"introduced": "0"})
    wanted = [TORCH, ZLIB, Package("Ubuntu:24.04", "zlib", "1")]
    _, hits = snapshot.read(packed(tmp_path, advisory("A", [part])), wanted, SAID)
    assert bool(hits) == found


@pytest.mark.parametrize(
    ("more", "part", "word", "score"),
    [
        ({"database_specific": {"severity": "MODERATE"}}, {}, "medium", None),
        (
            {"severity": [{"type": "CVSS_V3", "score": "CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H"}]},
            {},
            "critical",
            9.8,
        ),
        ({"severity": [{"type": "CVSS_V3", "score": "no vector"}]}, {}, "", None),
        (
            {"database_specific": {"severity": "HIGH"}},
            {"ecosystem_specific": {"urgency": "unimportant"}},
            "unimportant",
            None,
        ),
        (
            {"database_specific": {"severity": "HIGH"}},
            {"ecosystem_specific": {"urgency": "not yet assigned"}},
            "high",
            None,
        ),
        ({}, {}, "", None),
    ],
)
def test_severity_where_the_snapshot_says_one(more: Any, part: Any, word: str, score: float | None) -> None:
    row = advisory("A", [affected(TORCH, {"introduced": "0"}, **part)], **more)
    hit = osv.hit(osv.Record.model_validate(row), TORCH)
    assert hit
    assert (hit.severity, hit.score) == (word, score)


# --- one problem, one row --------------------------------------------------------------------------------------------


def test_names_of_one_problem_are_one_row() -> None:
    rows = [
        Hit(id="PYSEC-2026-1", same=["CVE-2026-1"], fixed="2.14"),
        Hit(id="GHSA-x", same=["CVE-2026-1", "PYSEC-2026-1"], severity="high", fixed="2.14.1"),
        Hit(id="PYSEC-2026-2", same=["CVE-2026-2"]),
    ]
    one, other = report.merged(TORCH, rows)
    assert (one.id, one.aliases, one.severity) == ("CVE-2026-1", ["GHSA-x", "PYSEC-2026-1"], "high")
    assert one.fixed == "2.14.1"  # the version that every database calls corrected
    assert (other.id, other.fixed) == ("CVE-2026-2", "")


def test_names_that_only_a_third_advisory_connects() -> None:
    rows = [Hit(id="GHSA-a"), Hit(id="PYSEC-b"), Hit(id="CVE-c", same=["GHSA-a", "PYSEC-b"])]
    (found,) = report.merged(TORCH, rows)
    assert (found.id, found.aliases) == ("CVE-c", ["GHSA-a", "PYSEC-b"])


def test_an_advisory_of_a_distribution_covers_several_problems() -> None:
    rows = [
        Hit(id="DSA-1-1", covers=["CVE-2026-1", "CVE-2026-2"], fixed="2"),
        Hit(id="DEBIAN-CVE-2026-1", covers=["CVE-2026-1"], severity="low"),
    ]
    found = {one.id: one for one in report.merged(ZLIB, rows)}
    assert found.keys() == {"CVE-2026-1", "CVE-2026-2"}
    assert found["CVE-2026-1"].aliases == ["DSA-1-1", "DEBIAN-CVE-2026-1"]
    assert found["CVE-2026-2"].aliases == ["DSA-1-1"]


def test_withdrawn_advisories_are_left_out(tmp_path: Path) -> None:
    part = affected(TORCH, {"introduced": "0"})
    path = packed(tmp_path, advisory("A", [part], withdrawn="2026-01-01T00:00:00Z"), advisory("B", [part]))
    found = looked_up(path, TORCH)
    assert [one.id for one in found.images[0].findings] == ["B"]
    assert (found.snapshots[0].advisories, found.snapshots[0].withdrawn) == (1, 1)


def test_an_accepted_finding_is_shown_and_does_not_count_until_its_day(tmp_path: Path) -> None:
    path = packed(tmp_path, advisory("PYSEC-1", [affected(TORCH, {"introduced": "0"})], aliases=["CVE-1"]))
    for until, images, counted in (
        (date(2026, 11, 26), ["*"], 0),
        (date(2026, 11, 25), ["*"], 1),
        (TODAY, ["jax-*"], 1),
    ):
        row = Accepted(id="CVE-1", reason="not compiled in", until=until, images=images)
        found = looked_up(path, TORCH, said=SAID.model_copy(update={"accepted": [row]}))
        (image,) = found.images
        assert (len(image.findings), len(image.counted)) == (1, counted)
        assert ("not compiled in" in image.findings[0].accepted) == (counted == 0)
        assert bool(found.notes) == (until < TODAY)


# --- Debian's tracker ------------------------------------------------------------------------------------------------


def tracked(path: Path, **problems: Any) -> Path:
    (path / "json").write_text(json.dumps({"other": {}, "zlib": {k: {"releases": v} for k, v in problems.items()}}))
    return path / "json"


def release(status: str, fixed: str = "", urgency: str = "not yet assigned") -> dict[str, Any]:
    return {"bookworm": {"status": status, "urgency": urgency, **({"fixed_version": fixed} if fixed else {})}}


def test_debians_tracker(tmp_path: Path) -> None:
    path = tracked(
        tmp_path,
        open=release("open", urgency="low**"),
        later=release("resolved", "1:1.2.13.dfsg-2"),
        earlier=release("resolved", "1:1.2.13.dfsg-1"),
        never=release("resolved", "0"),
        unclear=release("undetermined"),
        elsewhere={"trixie": {"status": "open"}},
        nowhere=[],
    )
    found = looked_up(path, ZLIB)
    rows = {one.id: (one.fixed, one.severity, bool(one.undetermined)) for one in found.images[0].findings}
    assert rows == {"open": ("", "low", False), "later": ("1:1.2.13.dfsg-2", "", False), "unclear": ("", "", True)}
    assert report.cell(found.images[0]) == "2 known, 1 fixed"
    assert found.snapshots[0].ecosystems == ["Debian:12", "Debian:13"]
    assert "age is unknown" in found.notes[0]


def test_the_tracker_and_osv_together_are_one_row(tmp_path: Path) -> None:
    path = tracked(tmp_path, **{"CVE-2026-1": release("open")})
    part = affected(ZLIB, {"introduced": "0"}, {"fixed": "1:2"})
    osv_path = packed(tmp_path, advisory("DEBIAN-CVE-2026-1", [part], upstream=["CVE-2026-1"]))
    held = Contents(DEFAULT, "lock", {ZLIB: ["zlib1g"]}, [])
    (one,) = report.report([path, osv_path], [held], SAID, TODAY).images[0].findings
    assert (one.id, one.aliases, one.fixed, one.installed) == ("CVE-2026-1", ["DEBIAN-CVE-2026-1"], "1:2", ["zlib1g"])


# --- snapshots that are none -----------------------------------------------------------------------------------------


def refused(path: Path, said: Settings = SAID) -> ConfigError:
    with pytest.raises(ConfigError) as error:
        snapshot.read(path, [TORCH, ZLIB], said)
    assert error.value.fix
    return error.value


def limited(**more: int) -> Settings:
    return SAID.model_copy(update={"limits": SAID.limits.model_copy(update=more)})


GOOD = advisory("A", [affected(TORCH, {"introduced": "0"})])


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"not json", "it is not JSON"),
        (b"[" * 100_000, "nested too deeply"),
        (b'"text"', "no advisory in OSV's format"),
        (b'{"id": "A"}', "no advisory in OSV's format"),
        (b'{"id": "A", "modified": "2026", "affected": "x"}', "not what OSV's schema describes"),
        (b'{"id": "A", "modified": "2026", "affected": ["x"]}', "not what OSV's schema describes"),
        (
            b'{"id": "A", "modified": "2026",'
            b' "affected": [{"package": {"ecosystem": "PyPI", "name": "torch"}, "ranges": 1}]}',
            "affected.0.ranges: ",
        ),
    ],
)
def test_an_entry_that_is_no_advisory(tmp_path: Path, content: bytes, why: str) -> None:
    error = refused(packed(tmp_path, GOOD, broken=content))
    assert error.where == f"{tmp_path}/all.zip: broken.json"
    assert why in error.why


def test_a_truncated_zip(tmp_path: Path) -> None:
    path = packed(tmp_path, GOOD)
    whole = path.read_bytes()
    for part in (whole[: len(whole) // 2], whole[:60] + b"\0" * 20 + whole[80:]):
        path.write_bytes(part)
        assert "not a whole zip file" in refused(path).why


def test_a_zip_that_unpacks_to_too_much(tmp_path: Path) -> None:
    path = packed(tmp_path, GOOD, bomb=b" " * 3_000_000)
    assert path.stat().st_size < 10_000
    error = refused(path, limited(entry_bytes=1_000_000))
    assert (error.where, "3000000 bytes" in error.why) == (f"{path}: bomb.json", True)
    assert "unpacks to" in refused(path, limited(bytes=1_000_000)).why
    assert "2 entries" in refused(path, limited(entries=1)).why


def test_what_is_no_snapshot_at_all(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello")
    (tmp_path / "empty").mkdir()
    assert "neither a zip" in refused(tmp_path / "text").why
    assert "no .json" in refused(tmp_path / "empty").why
    assert "No such file" in refused(tmp_path / "missing").why
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as archive:
        archive.writestr("readme.txt", "")
    assert "no .json" in refused(tmp_path / "other.zip").why


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "not whole JSON"),
        ("{}", "empty"),
        ('{"zlib": {"CVE-1": {"releases": {}}}', "not whole JSON"),
        ('{"zlib": {"CVE-1": {"releases": {}}}} more', "not whole JSON"),
        ('{"zlib": {"CVE-1": {"releases": {}}},}', "not whole JSON"),
        ('{"zlib": {"CVE-1": {"releases": {}}}, "b": 1}', "b does not have what Debian's security tracker says"),
        ('{"zlib": {"CVE-1": {"releases": {"bookworm": {"status": "odd"}}}}}', "CVE-1.releases.bookworm.status"),
        ('{"bomFormat": "CycloneDX"}', "no advisory in OSV's format"),
        ('{"a": ' + "[" * 100_000, "nested too deeply"),
    ],
)
def test_json_that_is_no_snapshot(tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / "json").write_text(text)
    assert why in refused(tmp_path / "json").why


def test_a_tracker_that_is_too_large(tmp_path: Path) -> None:
    assert "the limit is 10" in refused(tracked(tmp_path, a=release("open")), limited(tracker_bytes=10)).why


def test_a_folder_of_files_and_zips(tmp_path: Path) -> None:
    """As osv-scanner lays out its databases, and as databases on GitHub are."""
    (tmp_path / "PyPI").mkdir()
    packed(tmp_path / "PyPI", GOOD)
    (tmp_path / "one.json").write_text(json.dumps(GOOD | {"id": "B"}))
    found = looked_up(tmp_path, TORCH)
    assert {one.id for one in found.images[0].findings} == {"A", "B"}
    (tmp_path / "B.json").write_text(json.dumps(GOOD | {"id": "B"}))
    assert looked_up(tmp_path / "B.json", TORCH).snapshots[0].advisories == 1


# --- what an image holds ---------------------------------------------------------------------------------------------


def test_a_lock_is_looked_up_by_source_packages(intent: Intent) -> None:
    found = contents.of_lock(intent.recipe(DEFAULT), SAID)
    debian = {
        package.name: (package.version, names) for package, names in found.packages.items() if package[0] == "Debian:12"
    }
    version, names = debian["glibc"]
    assert {"libc6", "libc-bin"} <= set(names)
    assert debian["bash"][0].endswith("-2")  # the lock has 5.2.15-2+b13, a rebuild of this source
    assert "util-linux" in debian  # by the packages that have its version, not by bsdutils
    assert not version.startswith("1:")
    assert {row.what for row in found.not_covered} == {"gcc-defaults", "libbpf"}
    assert any(package[:2] == ("PyPI", "torch") for package in found.packages)


def test_what_no_advisory_names_is_not_covered(intent: Intent) -> None:
    found = contents.of_lock(intent.recipe("pytorch-2.15-cu132-py313-ec2"), SAID)
    rows = {row.what.split()[0] for row in found.not_covered if row.why == contents.COMPILED}
    assert rows == {"efa-installer", "openmpi", "libfabric", "aws-ofi-nccl", "gdrcopy", "nccl-tests"}
    blocked = contents.of_lock(intent.recipe("pytorch-2.15-cu132-py312-ec2-amazonlinux-2023"), SAID)
    assert {row.what for row in blocked.not_covered if row.ecosystem} == {
        "Python packages",
        "packages of amazonlinux 2023",
    }


def component(purl: str) -> dict[str, Any]:
    return {"purl": purl, "name": "", "version": ""}


def test_an_sbom_says_source_packages_and_what_is_vendored(intent: Intent) -> None:
    bill = {
        "components": [
            component("pkg:deb/debian/gcc@4:12.2.0-3?arch=amd64&distro=debian-12&upstream=gcc-defaults%401.203"),
            component(
                "pkg:deb/debian/libcap2@1:2.66-4%2Bdeb12u3%2Bb1?distro=debian-12&upstream=libcap2%401:2.66-4%2Bdeb12u3"
            ),
            component("pkg:deb/debian/libc6@2.36-9?arch=amd64&distro=debian-12&upstream=glibc"),
            component("pkg:deb/debian/adduser@3.134?arch=all&distro=debian-12"),
            component("pkg:pypi/Jinja2@3.1.4"),
            component("pkg:pypi/torch@2.13.0%2Bcpu"),
            component("pkg:rpm/amzn/bash@5.2?distro=amzn-2023"),
            component("pkg:deb/raspbian/x@1?distro=raspbian-12"),
            {"name": "no purl"},
            "no component",
        ]
    }
    found = contents.of_sbom(DEFAULT, bill, intent.recipe(DEFAULT), SAID)
    assert set(found.packages) == {
        Package("Debian:12", "gcc-defaults", "1.203"),
        Package("Debian:12", "libcap2", "1:2.66-4+deb12u3"),
        Package("Debian:12", "glibc", "2.36-9"),
        Package("Debian:12", "adduser", "3.134"),
        Package("PyPI", "jinja2", "3.1.4"),
        Package("PyPI", "torch", "2.13.0+cpu"),
    }
    assert [row.what for row in found.not_covered] == ["x", "bash"]


def test_the_sbom_of_what_was_built_here_goes_before_the_lock(
    tree: Path, cli: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from trainwright.build import state
    from trainwright.image import inputs
    from trainwright.matrix.matrix import load_intent
    from trainwright.matrix.records import Image

    recipe = load_intent(tree).recipe(DEFAULT)
    out = state.out_folder(recipe)
    state.write_image(out, Image(id=DEFAULT, key=inputs.load(recipe).key))
    (out / "sbom.json").write_text(json.dumps({"components": [component("pkg:pypi/torch@2.13.0")]}))
    assert contents.of_recipe(recipe, SAID).source == "SBOM"
    state.write_image(out, Image(id=DEFAULT, key="0" * 64))  # of other inputs
    assert contents.of_recipe(recipe, SAID).source == "lock"


# --- for people ------------------------------------------------------------------------------------------------------


def test_what_no_snapshot_has_is_not_covered_and_never_none(tmp_path: Path) -> None:
    found = looked_up(packed(tmp_path, GOOD), TORCH, ZLIB, Package("PyPI", "odd", "not a version"))
    (image,) = found.images
    assert image.covered == {"PyPI": 1}
    assert report.cell(image) == "1 known, 0 fixed; not covered: Debian:12"
    assert {row.what for row in image.not_covered} == {"Debian:12", "odd not a version"}
    assert report.cell(looked_up(packed(tmp_path, GOOD), ZLIB).images[0]) == "not covered"


def test_an_old_snapshot_says_its_age(tmp_path: Path) -> None:
    old = looked_up(packed(tmp_path, GOOD | {"modified": "2026-11-01T00:00:00Z"}), TORCH)
    assert "is 25 days old: its newest entry is of 2026-11-01" in old.stale[0]
    assert looked_up(packed(tmp_path, GOOD), TORCH).stale == []


@pytest.mark.parametrize(
    ("events", "more", "error", "says"),
    [
        ([{"introduced": "0"}, {"fixed": "9"}], {}, BuildError, "A in torch 2.13.0+cpu, fixed in 9"),
        ([{"introduced": "0"}], {}, None, "1 known, 0 fixed, in 1 package of PyPI"),
        ([{"introduced": "9"}], {}, None, "0 known, 0 fixed"),
        ([{"introduced": "9"}], {"modified": "2020-01-01T00:00:00Z"}, NotRunError, "days old"),
    ],
)
def test_what_verify_judges(tmp_path: Path, events: Any, more: Any, error: Any, says: str) -> None:
    found = looked_up(packed(tmp_path, advisory("A", [affected(TORCH, *events)]) | more), TORCH)
    if error is None:
        assert says in report.judged(found, ROOT)
    else:
        with pytest.raises(error, match=re.escape(says)):
            report.judged(found, ROOT)


def test_verify_does_not_pass_by_half_a_snapshot(tmp_path: Path) -> None:
    found = looked_up(packed(tmp_path, advisory("A", [affected(TORCH, {"introduced": "9"})])), TORCH, ZLIB)
    with pytest.raises(NotRunError, match="Debian:12: no snapshot"):
        report.judged(found, ROOT)


def test_one_row_for_all_images_of_a_problem() -> None:
    (one,) = report.merged(TORCH, [Hit(id="CVE-1", fixed="9", severity="high", score=7.5)])
    images = [
        report.Image(
            id=name, source="lock", findings=[one], covered={"PyPI": 1}, not_covered=[NotCovered(what="a", why="b")]
        )
        for name in ("x", "y")
    ]
    (row,) = report.table(images)
    assert (row["advisory"], row["fixed in"], row["severity"], row["images"]) == ("CVE-1", "9", "high 7.5", "2 of 2")
    assert report.uncovered([*images, images[0].model_copy(update={"not_covered": []})]) == [
        "not covered: a (2 of 3 images): b"
    ]


def test_list_and_the_page(cli: Any, tree: Path, tmp_path: Path) -> None:
    path = packed(tmp_path, advisory("CVE-2026-1", [affected(TORCH, {"introduced": "0"}, {"fixed": "99"})]))
    ended = cli(tree, "list", DEFAULT, "--vulnerabilities", str(path))
    assert ended.code == 0, ended.err
    assert "1 known, 1 fixed; not covered: Debian:12" in ended.out
    assert "CVE-2026-1  torch" in ended.out
    assert "not covered: gcc-defaults" in ended.err
    said = json.loads(cli(tree, "list", DEFAULT, "--vulnerabilities", str(path), "--json").out)
    (row,) = said["images"]
    (finding,) = row["vulnerabilities"]["findings"]
    assert (finding["package"], finding["fixed"], row["vulnerabilities"]["source"]) == ("torch", "99", "lock")
    assert said["snapshots"][0]["newest"] == "2026-11-20"
    page = tmp_path / "page.html"
    assert cli(tree, "matrix", DEFAULT, "--vulnerabilities", str(path), "--html", str(page)).code == 0
    assert "1 known, 1 fixed" in page.read_text()
    assert f"<dt>CVE-2026-1</dt><dd>torch {finding['version']}, fixed in 99</dd>" in page.read_text()
    assert cli(tree, "matrix", DEFAULT, "--html", str(page)).code == 0
    assert "Known vulnerabilities" not in page.read_text()


def test_list_of_a_snapshot_that_is_none(cli: Any, tree: Path, tmp_path: Path) -> None:
    ended = cli(tree, "list", "--vulnerabilities", str(tmp_path / "missing.zip"))
    assert (ended.code, ended.out) == (2, "")
    assert "missing.zip cannot be read" in ended.err
