"""Test how this host's apt sources are read, and which of them is an archive of the base."""

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trainwright.matrix.model import Base
from trainwright.resolve import apt_sources
from trainwright.resolve.apt_sources import Source

BASE = Base(
    provider="packages",
    distribution="debian",
    suite="bookworm",
    archives={"debian": ["bookworm", "bookworm-updates"], "debian-security": ["bookworm-security"]},
    glibc="2.36",
)
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
OTHER_KEY = "/etc/apt/keyrings/vendor.gpg"
BOTH = "deb http://own.invalid/debian bookworm main\ndeb http://own.invalid/debian bookworm-updates main\n"
Host = Callable[..., None]


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    """Return a function that gives apt these files, from name to text, and no index.

    "sources.list" is the main file.
    """

    def have(codename: str = "bookworm", distribution: str = "debian", **files: str) -> None:
        (tmp_path / "etc/parts").mkdir(parents=True)
        for name, text in files.items():
            file = name.replace("__", ".")
            (tmp_path / "etc" / ("" if file == "sources.list" else "parts") / file).write_text(text)
        said = f"LIST='{tmp_path}/etc/sources.list'\nPARTS='{tmp_path}/etc/parts/'"
        program = tmp_path / "bin/apt-config"
        program.parent.mkdir()
        program.write_text(f"#!/bin/sh\ncat <<'END'\n{said}\nEND\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
        system = {"ID": distribution, "VERSION_CODENAME": codename}
        monkeypatch.setattr("platform.freedesktop_os_release", lambda: system)

    return have


# --- the two formats -------------------------------------------------------------------------------------------------


WORD = st.from_regex(r"[a-z][a-z0-9-]{0,8}", fullmatch=True)
ADDRESS = st.builds(
    "{}://{}.invalid/{}{}".format, st.sampled_from(["http", "https"]), WORD, WORD, st.sampled_from(["", "/"])
)
SOURCE = st.builds(
    Source,
    addresses=st.lists(ADDRESS | st.just("file:/srv/mirror"), min_size=1, max_size=3),
    suites=st.lists(WORD, min_size=1, max_size=3, unique=True),
    components=st.lists(WORD, min_size=1, max_size=3, unique=True),
    architectures=st.lists(st.sampled_from(["amd64", "arm64"]), max_size=2, unique=True),
    signed_by=st.lists(st.sampled_from([KEYRING, OTHER_KEY]), max_size=1),
)
GAP = st.sampled_from([" ", "  ", "\t"])


def as_lines(source: Source, gap: str) -> str:
    options = [f"arch={','.join(source.architectures)}"] * bool(source.architectures)
    options += [f"signed-by={','.join(source.signed_by)}"] * bool(source.signed_by)
    said = f"[{gap}{' '.join(options)}{gap}]{gap}" if options else ""
    return "".join(
        f"{gap}deb{gap}{said}{address}{gap}{suite}{gap}{gap.join(source.components)}# a note\n"
        for address in source.addresses
        for suite in source.suites
    )


def as_stanza(source: Source, gap: str, upper: bool) -> str:
    fields = {
        "Types": ["deb-src", "deb"],
        "URIs": source.addresses,
        "Suites": source.suites,
        "Components": source.components,
        "Architectures": source.architectures,
        "Signed-By": source.signed_by,
    }
    rows = [
        f"{name.upper() if upper else name}:{gap}{gap.join(words)}\n# a note\n"
        for name, words in fields.items()
        if words
    ]
    return "".join(rows).replace(f"{gap}http", "\n http")  # one address a line


def one_signer(sources: list[Source]) -> bool:
    """Return whether each suite of an address has the same keys everywhere; else apt reads no source at all."""
    said = dict[tuple[str, str], list[str]]()
    return all(
        said.setdefault((address.rstrip("/"), suite), source.signed_by) == source.signed_by
        for source in sources
        for address in source.addresses
        for suite in source.suites
    )


def one_scheme(sources: list[Source]) -> bool:
    """Return whether each address has one scheme; apt keeps lists without it, so it reads one of two such addresses."""
    said = dict[str, str]()
    addresses = (address.rstrip("/").partition("://") for source in sources for address in source.addresses)
    return all(said.setdefault(rest, scheme) == scheme for scheme, _, rest in addresses)


@given(sources=st.lists(SOURCE, max_size=4).filter(one_signer).filter(one_scheme), gap=GAP, upper=st.booleans())
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_apt_reads_the_same(sources: list[Source], gap: str, upper: bool, tmp_path: Path) -> None:
    """What apt would download says which address, suite and component it read; it asks nobody for that."""
    if not shutil.which("apt-get"):
        pytest.skip("not run: apt-get is not on this host")
    shutil.rmtree(tmp_path / "etc", ignore_errors=True)
    (tmp_path / "etc/lists/partial").mkdir(parents=True)
    lines, stanzas = (tmp_path / "etc" / name for name in ("some.list", "some.sources"))
    off = "\nTypes: deb\nURIs: http://off.invalid/a\nSuites: b\nComponents: c\nEnabled: no\n"
    lines.write_text("# deb http://off.invalid/debian a b\n" + "".join(as_lines(source, gap) for source in sources[:2]))
    stanzas.write_text("\n".join(as_stanza(source, gap, upper) for source in sources[2:]) + off)
    options = {
        "Etc::SourceList": "/dev/null",
        "Etc::SourceParts": f"{tmp_path}/etc",
        "State::Lists": f"{tmp_path}/etc/lists",
    }
    words = [word for key, value in options.items() for word in ("-o", f"Dir::{key}={value}")]
    words += ["-o", "APT::Architecture=amd64", "-o", "APT::Architectures=amd64"]
    said = subprocess.run(["apt-get", *words, "update", "--print-uris"], capture_output=True, text=True)
    row = r"^'(.+?)/?/dists/(.+)/(.+)/binary-(?!all)(.+)/Packages"
    read = apt_sources.one_line(lines.read_text()) + apt_sources.deb822(stanzas.read_text())
    assert {
        (place.replace("file:/", "file:///"), *rest) for place, *rest in re.findall(row, said.stdout, re.MULTILINE)
    } == {
        (address, suite, component, architecture)
        for source in read
        for address in source.addresses
        for suite in source.suites
        for component in source.components
        for architecture in source.architectures or ["amd64"]
    }
    assert [source.signed_by for source in apt_sources.deb822(stanzas.read_text())] == [
        s.signed_by for s in sources[2:]
    ]


@given(text=st.text(st.sampled_from("deb [x=y] http://a/ b c\n\t#:Types URIs"), max_size=200) | st.text(max_size=50))
@settings(max_examples=200)
def test_whatever_a_file_holds_is_no_traceback(text: str) -> None:
    for source in apt_sources.one_line(text) + apt_sources.deb822(text):
        assert source.suites is not None


@pytest.mark.parametrize(
    "line",
    [
        "deb cdrom:[Debian GNU/Linux 12.0.0 _Bookworm_ - Official amd64 NETINST]/ bookworm main",
        "deb tor+http://own.invalid/debian bookworm main",
        "deb mirror+file:/nowhere/debian.list bookworm main",
        "deb mirror://own.invalid/list bookworm main",
        "deb-src http://own.invalid/debian bookworm main",
        "#deb http://own.invalid/debian bookworm main",
        "deb http://own.invalid/debian",
        "debs http://own.invalid/debian bookworm main",
    ],
)
def test_passed_over(line: str) -> None:
    assert [address for source in apt_sources.one_line(line) for address in source.addresses] == []


def test_a_file_of_addresses_as_cloud_images_have_it(host: Host, tmp_path: Path) -> None:
    listed = tmp_path / "debian.list"
    listed.write_text(f"# ours\nmirror+file:{listed}\nhttps://cdn.invalid/debian\tpriority:1\n")
    words = f"Types: deb\nURIs: mirror+file://{listed}\nSuites: bookworm\nComponents: main\nSigned-By: {KEYRING}\n"
    host(debian__sources=words)
    assert apt_sources.mirrors(BASE) == {"debian": "https://cdn.invalid/debian"}


# --- which of them is an archive of the base -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (BOTH + "deb http://own.invalid/debian-security bookworm-security main\n", {"debian", "debian-security"}),
        (BOTH, {"debian"}),
        ("deb http://own.invalid/debian bookworm main contrib\n", {"debian"}),  # as debootstrap leaves it
        (
            "deb http://own.invalid bookworm-security main\n",
            {"debian-security"},
        ),  # no path: nothing else has that suite
        (BOTH.replace("/debian", "/proxy/deb-remote"), {"debian"}),  # another name, and all of its suites
        (f"deb [signed-by={KEYRING}] http://own.invalid/deb bookworm main\n", {"debian"}),
        (f"deb [signed-by={KEYRING}] http://own.invalid/debian sid main\n", {"debian"}),
        # --- what is somebody else's, or of no use
        ("deb http://own.invalid/debian nodistro main\n", set()),
        ("deb http://own.invalid/debian bookworm stable\n", set()),
        ("deb http://own.invalid/vendor bookworm main\n", set()),
        ("deb http://own.invalid/mydebian bookworm main\n", set()),
        (f"deb [signed-by={OTHER_KEY}] http://own.invalid/debian bookworm main\n", set()),
        ("deb [arch=arm64] http://own.invalid/debian bookworm main\n", set()),
        ("deb http://own.invalid/ubuntu jammy main\n", set()),
        ("", set()),
    ],
)
def test_archives(host: Host, text: str, found: set[str]) -> None:
    host(sources__list=text)
    assert apt_sources.mirrors(BASE).keys() == found


@pytest.mark.parametrize("flipped", [False, True])
@pytest.mark.parametrize("own", [BOTH, f"deb [signed-by={KEYRING}] http://own.invalid/debian bookworm main\n"])
def test_a_third_party_that_says_the_same(host: Host, own: str, flipped: bool) -> None:
    """Without a key, of the same suite, section and last part of its address: the distribution's own says more."""
    vendor = "deb http://vendor.invalid/debian bookworm main\n"
    host(sources__list=own + vendor if flipped else vendor + own)
    assert apt_sources.mirrors(BASE) == {"debian": "http://own.invalid/debian"}


def test_a_host_of_another_release(host: Host) -> None:
    """Its mirror has every release."""
    host(codename="trixie", sources__list=BOTH.replace("bookworm", "trixie"))
    assert apt_sources.mirrors(BASE) == {"debian": "http://own.invalid/debian"}


def test_a_host_of_another_distribution(host: Host) -> None:
    noble = "deb [signed-by=/usr/share/keyrings/ubuntu-archive-keyring.gpg] http://own.invalid/ubuntu noble main\n"
    host(codename="noble", distribution="ubuntu", sources__list=noble + "deb http://own.invalid/debian noble main\n")
    assert apt_sources.mirrors(BASE) == {}


def test_files_that_apt_passes_over_or_a_user_may_not_read(host: Host, tmp_path: Path) -> None:
    vendor = BOTH.replace("own", "vendor")
    host(a__list__save=vendor, b__sources=vendor, debian__list=BOTH, **{"with space__list": vendor})
    (tmp_path / "etc/parts/c.list").mkdir()  # cannot be read, whoever tries
    assert apt_sources.mirrors(BASE) == {"debian": "http://own.invalid/debian"}


def test_without_apt_nothing_is_found(host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host(sources__list=BOTH)
    assert apt_sources.mirrors(BASE)
    (tmp_path / "bin/apt-config").write_text("#!/bin/sh\nexit 100\n")  # a configuration that apt itself refuses
    assert apt_sources.mirrors(BASE) == {}
    monkeypatch.setenv("PATH", str(tmp_path))
    assert apt_sources.mirrors(BASE) == {}
