"""No secret in any layer, and nothing of the machine of the build."""

import fnmatch
import re
from fnmatch import fnmatchcase
from typing import Any

import pytest

BUNDLE = "/etc/ssl/certs/ca-certificates.crt"
OWN_CERTIFICATES = """
from pathlib import Path

def certificates(path):
    text = Path(path).read_text()
    return {block.split("-----END")[0].strip() for block in text.split("-----BEGIN CERTIFICATE-----")[1:]}

own = set().union(*(certificates(path) for path in Path("/usr/share/ca-certificates").rglob("*.crt")))
print(len(own))
for path in Path("/etc/ssl/certs").iterdir():
    if not certificates(path) or certificates(path) - own:
        print(path)
"""


def test_no_secret_in_any_file(saved: Any, expected: dict[str, Any]) -> None:
    known = expected["known_secrets"]
    assert [line for line in sorted(saved.secrets) if not any(fnmatchcase(line, glob) for glob in known)] == []


@pytest.mark.exact("it may replace files; verify names those that matter")
def test_no_exception_is_left_over(saved: Any, expected: dict[str, Any]) -> None:
    """An exception that its file does not need any more is a hole."""
    names = [entry.name for layer in saved.layers for entry in layer]
    for line in expected["known_secrets"]:
        if fnmatch.filter(names, line.split(":")[0]):
            assert fnmatch.filter(saved.secrets, line), line


def test_no_forbidden_path(saved: Any, expected: dict[str, Any], derived: bool) -> None:
    names = {entry.name for layer in saved.layers for entry in layer if entry.type != "folder"}
    rules = (expected["forbidden_paths"] | ({} if derived else expected["forbidden_litter"])).items()
    globs = [fnmatch.translate("/" + glob.replace("**", "*")) for glob, _ in rules]
    assert len(names) > 1000, "the search has lost its object"
    forbidden = re.compile("|".join(f"(?:{glob})" for glob in globs))  # all at once: there are some ten thousand names
    assert sorted(name for name in names if forbidden.match("/" + name)) == [], dict(rules)


@pytest.mark.exact("it may trust more CAs")
def test_certificates_are_the_distributions_own(host: Any) -> None:
    """Not one CA of the host: the bundle and its folder hold what the signed package brought."""
    count, *foreign = host.check_output(f"python -c '{OWN_CERTIFICATES}'").split()
    assert int(count) > 100
    assert foreign == []
    said = host.run("dpkg --verify ca-certificates").stdout.splitlines()
    assert [
        line for line in said if not line.startswith("missing ")
    ] == []  # test_left_out.py says which may be missing
    assert host.run(f"openssl verify -CAfile {BUNDLE} /usr/share/ca-certificates/mozilla/ISRG_Root_X1.crt").rc == 0


@pytest.mark.exact("what it installs from a folder says so")
def test_no_address_of_the_build_machine(saved: Any) -> None:
    """Installers write down where a wheel came from: `pip freeze` would point at a folder of the build."""
    names = {entry.name for layer in saved.layers for entry in layer}
    assert [name for name in sorted(names) if name.endswith("/direct_url.json")] == []
