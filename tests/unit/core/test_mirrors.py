"""Test the setting of mirrors: it decides where files are downloaded from, and changes nothing else."""

import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from trainwright.core import mirrors, store
from trainwright.core.errors import ConfigError, EnvironmentProblem, TrainwrightError
from trainwright.image import inputs
from trainwright.matrix.matrix import Intent
from trainwright.matrix.model import Base, Package
from trainwright.resolve import apt, apt_sources

Set = Callable[..., None]
BASE = Base(
    provider="packages",
    distribution="debian",
    suite="trixie",
    archives={"debian": ["trixie"], "debian-security": ["trixie-security"]},
    glibc="2.41",
)


@pytest.fixture
def mirrored(monkeypatch: pytest.MonkeyPatch) -> Set:
    def to(*words: str) -> None:
        monkeypatch.setenv("TRAINWRIGHT_MIRRORS", " ".join(words))

    return to


# --- the setting ---------------------------------------------------------------------------------------------------


def test_nothing_is_set() -> None:
    assert mirrors.table() == {}
    assert mirrors.named("debian") == ""
    assert mirrors.redirect("https://example.com/a?b=c") == "https://example.com/a?b=c"


def test_words(mirrored: Set) -> None:
    mirrored("debian=http://mirror.invalid/debian/\n\t", "https://example.com=https://other.invalid/x?a=b")
    assert mirrors.named("debian") == "http://mirror.invalid/debian"
    assert mirrors.table()["https://example.com"] == "https://other.invalid/x?a=b"


def test_file(mirrored: Set, tmp_path: Path) -> None:
    file = tmp_path / "a=b.toml"
    file.write_text('debian = "/srv/debian"\n"https://example.com/a" = "file:///srv/a b"\n')
    mirrored(str(file))
    assert mirrors.table() == {"debian": "file:///srv/debian", "https://example.com/a": "file:///srv/a b"}


@pytest.mark.parametrize(
    ("url", "asked"),
    [
        ("https://example.com/NVIDIA/nccl", "file:///srv/nccl"),
        ("https://example.com/NVIDIA/nccl.git", "file:///srv/nccl"),
        ("https://example.com/NVIDIA/nccl/archive/1.tar.gz", "file:///srv/nccl/archive/1.tar.gz"),
        (
            "https://example.com/NVIDIA/nccl-tests",
            "https://git.invalid/mirror/NVIDIA/nccl-tests",
        ),  # no part of its name
        ("https://example.com/other?a=b", "https://git.invalid/mirror/other?a=b"),
        ("https://example.com", "https://git.invalid/mirror"),
        ("https://example.com.invalid/a", "https://example.com.invalid/a"),
        ("http://example.com/NVIDIA/nccl", "http://example.com/NVIDIA/nccl"),  # another scheme is another address
        ("https://index:s3cret@example.com/a", "https://git.invalid/mirror/a"),  # not ours to hand on
    ],
)
@pytest.mark.parametrize("flipped", [False, True])
def test_the_longest_prefix_wins(mirrored: Set, url: str, asked: str, flipped: bool) -> None:
    words = ["https://example.com=https://git.invalid/mirror", "https://example.com/NVIDIA/nccl/=/srv/nccl"]
    mirrored(*(words[::-1] if flipped else words), "python=https://index.invalid")
    assert mirrors.redirect(url) == asked


@pytest.mark.parametrize(
    ("given", "where", "why"),
    [
        ("/nowhere/mirrors.toml", "/nowhere/mirrors.toml", "No such file"),
        ("debian", "debian", "No such file"),
        ("/", "/", "Is a directory"),
        ("debian=http://a.invalid another", "TRAINWRIGHT_MIRRORS", "'another'"),
        ("=http://a.invalid x=http://b.invalid", "TRAINWRIGHT_MIRRORS", "'=http"),
        ("debian=mirror.invalid/debian", "TRAINWRIGHT_MIRRORS", "https"),
        ("debian=ftp://mirror.invalid", "TRAINWRIGHT_MIRRORS", "https"),
        ("debian=", "TRAINWRIGHT_MIRRORS", "https"),
        ("debian=https://me:s3/cret@mirror.invalid", "TRAINWRIGHT_MIRRORS", "https"),
        ("debian=https://me:s3cret@mirror.invalid oops", "TRAINWRIGHT_MIRRORS", "oops"),
    ],
)
def test_what_is_no_setting(mirrored: Set, given: str, where: str, why: str) -> None:
    mirrored(given)
    with pytest.raises(ConfigError, match=r"TRAINWRIGHT_MIRRORS|the mirror of debian is not a valid address") as raised:
        mirrors.redirect("https://example.com")
    assert raised.value.exit_code == 2
    assert where in raised.value.where
    assert why in raised.value.why
    assert raised.value.fix
    assert "s3cret" not in str(raised.value.as_dict())
    assert "cret" not in str(raised.value.as_dict())


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('debian = "http://a.invalid"\nhttps://example.com = "http://b.invalid"\n', 2),
        ('debian = "http://a.invalid"\n"https://example.com" = 1\n', 2),
        ('[debian]\nurl = "http://a.invalid"\n', 1),
        ('debian = "http://a.invalid"\ndebian = "http://b.invalid"\n', 2),
    ],
)
def test_file_that_is_no_table_of_addresses(mirrored: Set, tmp_path: Path, text: str, line: int) -> None:
    (tmp_path / "m.toml").write_text(text)
    mirrored(str(tmp_path / "m.toml"))
    with pytest.raises(ConfigError) as raised:
        mirrors.table()
    assert raised.value.where == f"{tmp_path}/m.toml:{line}"


def test_file_that_is_no_text(mirrored: Set, tmp_path: Path) -> None:
    (tmp_path / "m.toml").write_bytes(b"\xff\xfe")
    mirrored(str(tmp_path / "m.toml"))
    with pytest.raises(ConfigError, match="cannot be read"):
        mirrors.table()


def test_misspelt_name(mirrored: Set) -> None:
    mirrored("debain=http://a.invalid", "https://example.com=http://b.invalid")
    with pytest.raises(ConfigError, match="debain") as raised:
        mirrors.check_names(["debian", "debian-security"])
    assert "did you mean 'debian'?" in raised.value.why
    mirrored("debian=http://a.invalid", "python=http://a.invalid", "https://example.com=http://b.invalid")
    mirrors.check_names(["debian", "debian-security"])


# --- what it is used for ---------------------------------------------------------------------------------------------


def test_archives_by_name(mirrored: Set, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host without apt needs nothing more."""
    mirrored(*(f"{name}=http://mirror.invalid/{name}" for name in BASE.archives))
    monkeypatch.setenv("PATH", "")
    assert apt.mirrors(BASE) == {name: f"http://mirror.invalid/{name}" for name in BASE.archives}


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that sets the address of each archive in this host's apt sources."""

    def to(**addresses: str) -> None:
        monkeypatch.setattr(apt_sources, "mirrors", lambda _: addresses)

    return to


def test_archives_that_this_hosts_apt_names(mirrored: Set, listed: Set) -> None:
    """apt's own addresses have their mirrors like any other; what has neither mirror nor snapshot is an error."""
    first, second = BASE.archives
    listed(**{first: f"http://own.invalid/{first}"})
    mirrored("http://own.invalid=http://me:s3cret@mirror.invalid/x", f"{second}=/srv/second")
    assert apt.mirrors(BASE) == {
        second: "file:///srv/second",
        first: f"http://me:s3cret@mirror.invalid/x/{first}",
    }
    mirrored("http://own.invalid=http://mirror.invalid/x")
    with pytest.raises(EnvironmentProblem, match=second) as raised:
        apt.mirrors(BASE)
    assert raised.value.fix == f"export TRAINWRIGHT_MIRRORS='{second}=<address of a mirror>'"
    snapshots = {second: "https://snapshot.invalid/{time}/{filename}"}
    assert apt.mirrors(BASE.model_copy(update={"snapshots": snapshots})).keys() == {first}


@pytest.fixture
def _hasty_apt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make apt ask only once, and use empty sources and lists."""
    if not shutil.which("apt-get"):
        pytest.skip("not run: apt-get is not on this host")
    own = "".join(f'Dir::{name} "{tmp_path}/own";' for name in ("Etc::SourceList", "State::Lists", "Etc::Preferences"))
    (tmp_path / "apt.conf").write_text(f'Acquire::Retries "0"; {own}')
    monkeypatch.setenv("APT_CONFIG", str(tmp_path / "apt.conf"))


def package(archive: str, body: bytes) -> Package:
    return Package(
        name=archive,
        version="1",
        architecture="all",
        archive=archive,
        filename=f"pool/{archive}.deb",
        size=len(body),
        sha256=sha256(body).hexdigest(),
    )


@pytest.mark.parametrize("held", ["the mirror", "the next day's snapshot", "the day's snapshot", "nobody"])
@pytest.mark.parametrize("setting", [True, False])
@pytest.mark.usefixtures("bare_network")
def test_a_locked_file_comes_from_the_mirror_else_from_the_snapshots_of_its_day(
    mirrored: Set, listed: Set, site: Any, held: str, setting: bool
) -> None:
    """Each archive by itself: here only one of the two has a mirror, by the setting or by apt's sources."""
    base = BASE.model_copy(
        update={"snapshots": {name: f"https://snapshot.invalid/{name}/{{time}}/{{filename}}" for name in BASE.archives}}
    )
    first, second = (package(name, name.encode()) for name in BASE.archives)
    address, snapshot = f"{site.address}/mirror", f"https://snapshot.invalid={site.address}/snapshot"
    mirrored(snapshot, *([f"{first.archive}={address}"] if setting else []))
    listed(**({} if setting else {first.archive: address}))
    places = {
        "the mirror": "mirror/{filename}",
        "the next day's snapshot": "snapshot/{archive}/20261121T021110Z/{filename}",
        "the day's snapshot": "snapshot/{archive}/20261120T021110Z/{filename}",
        "nobody": "nowhere",
    }
    for one in (first, second):
        site.offer(places[held].format(**one.model_dump()), one.archive.encode())
    lost = store.fetch(apt.wanted(base, [first, second], 1795140670))
    expected = {"the mirror": {second.sha256}, "nobody": {first.sha256, second.sha256}}.get(held, set())
    assert lost.keys() == expected
    assert store.has(first.sha256) == (first.sha256 not in expected)
    asked = [path for path, _ in site.asked if first.archive in path.rpartition("/")[2] and second.archive not in path]
    order = ["mirror", "snapshot/debian/20261121T021110Z", "snapshot/debian/20261120T021110Z"]
    assert asked == [
        f"/{place}/{first.filename}" for place in order[: 4 if held == "nobody" else list(places).index(held) + 1]
    ]


@pytest.mark.usefixtures("bare_network", "_hasty_apt")
def test_packages_are_resolved_from_the_snapshot_of_now_where_no_mirror_is_known(
    mirrored: Set, listed: Set, site: Any
) -> None:
    snapshots = {name: f"https://snapshot.invalid/{name}/{{time}}/{{filename}}" for name in BASE.archives}
    first, second = BASE.archives
    mirrored(f"https://snapshot.invalid={site.address}/snapshot")
    listed(**{second: f"{site.address}/mirror"})
    before = datetime.now(UTC).replace(microsecond=0)
    with pytest.raises(EnvironmentProblem, match="the package index cannot be fetched"):
        apt.resolve(BASE.model_copy(update={"snapshots": snapshots}), ["bash"])
    asked = {path.rpartition("/dists/")[0] for path, _ in site.asked}
    assert "/mirror" in asked
    (place,) = asked - {"/mirror"}
    stamp = datetime.strptime(place.removeprefix(f"/snapshot/{first}/"), "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    assert before <= stamp <= datetime.now(UTC)


def test_no_setting_reaches_a_rendered_file_or_a_key(
    mirrored: Set, intent: Intent, authority: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = [inputs.load(recipe) for recipe in inputs.held(intent)]
    mirrored(
        "debian=https://me:s3cret@mirror.invalid/debian",
        "python=https://me:s3cret@mirror.invalid/simple",
        "https://github.com=https://me:s3cret@mirror.invalid/git",
        "https://efa-installer.amazonaws.com=https://me:s3cret@mirror.invalid/efa",
    )
    settings = {"TRAINWRIGHT_CA": str(authority / "ca.pem"), "PIP_INDEX_URL": "https://me:s3cret@index.invalid/simple"}
    settings |= {f"{name}_PROXY": "http://me:s3cret@proxy.invalid:3128" for name in ("HTTP", "HTTPS", "ALL")}
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    after = [inputs.load(recipe) for recipe in inputs.held(intent)]
    assert [found.key for found in after] == [found.key for found in before]
    assert [found.text for found in after] == [found.text for found in before]
    assert not any("s3cret" in text or ".invalid" in text for found in after for text in found.text.values())


# --- proxies and passwords -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"HTTPS_PROXY": "http://p:1"}, {"https_proxy": "http://p:1"}),
        ({"HTTP_PROXY": "http://p:1", "NO_PROXY": "a,b"}, {"http_proxy": "http://p:1", "no_proxy": "a,b"}),
        (
            {"ALL_PROXY": "http://p:1", "https_proxy": "http://q:1"},
            {"http_proxy": "http://p:1", "https_proxy": "http://q:1", "all_proxy": "http://p:1"},
        ),
        ({"HTTPS_PROXY": "http://p:1", "https_proxy": "http://q:1"}, {"https_proxy": "http://q:1"}),
        ({}, {}),
    ],
)
@pytest.mark.usefixtures("bare_network")
def test_proxies_in_every_programs_words(
    given: dict[str, str], said: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    assert mirrors.proxies() == said


@pytest.mark.parametrize(
    "text",
    [
        "cannot reach https://me:s3cret@mirror.invalid/a",
        "cannot reach https://me:s3@cret@mirror.invalid/a and http://s3cret@b.invalid",
        "git fetch 'https://me:s3cret@mirror.invalid'",
        "https://mirror.invalid/a?X-Signature=s3cret&b=s3cret",
        "ssh://s3cret@mirror.invalid/a",
    ],
)
@pytest.mark.parametrize("field", ["what", "where", "why", "fix"])
def test_no_error_shows_a_password(text: str, field: str) -> None:
    words: dict[str, Any] = {"what": "", field: text}
    error = TrainwrightError(words.pop("what"), **words)
    assert "cret" not in str(error) + str(error.as_dict())
    assert ".invalid" in str(error.as_dict())


def test_what_is_no_password_is_shown() -> None:
    text = "apt-get install https://mirror.invalid/a '?essential' me@example.com https://b.invalid:80/@types/node"
    assert TrainwrightError(text).what == text


@pytest.mark.parametrize("how", ["https", "proxy", "netrc"])
@pytest.mark.usefixtures("bare_network", "_hasty_apt")
def test_apt_is_told_the_ca_the_proxy_and_the_password(
    mirrored: Set, tls_site: Any, site: Any, authority: Path, tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As far as a server without an archive shows it: apt gets through to be told that there is none."""

    def resolve() -> str:
        with pytest.raises(EnvironmentProblem, match="the package index cannot be fetched") as raised:
            apt.resolve(BASE, ["bash"])
        assert "s3cret" not in str(raised.value.as_dict())
        return raised.value.why

    if how == "https":
        mirrored(*(f"{name}={tls_site.address}/{name}" for name in BASE.archives))
        assert "certificate" in resolve()
        monkeypatch.setenv("TRAINWRIGHT_CA", str(authority / "ca.pem"))
        assert "does not have a Release file" in resolve()
    elif how == "proxy":
        mirrored(*(f"{name}=http://mirror.invalid/{name}" for name in BASE.archives))
        monkeypatch.setenv("HTTP_PROXY", site.address)
        assert "does not have a Release file" in resolve()
        assert any(path.startswith("http://mirror.invalid/debian/dists/trixie/") for path, _ in site.asked)
    else:
        sent: list[str] = []

        def note(handler: Any, body: bytes) -> None:
            sent.append(handler.headers.get("Authorization", ""))
            handler.send_error(404)

        for archive, suites in BASE.archives.items():
            for suite in suites:
                for file in ("InRelease", "Release"):
                    site.offer(f"{archive}/dists/{suite}/{file}", b"", *[note] * 3)
        mirrored(*(f"{name}={site.address}/{name}" for name in BASE.archives))
        host = site.address.removeprefix("http://")
        (tmp_path / ".netrc").write_text(f"machine http://{host} login me password s3cret\n")
        resolve()
        assert sent
        assert set(sent) == {"Basic bWU6czNjcmV0"}  # me:s3cret
