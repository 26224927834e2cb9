"""Compare a CycloneDX SBOM with the lock: which image it is about, and whether it lists what the lock does."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from packaging.utils import canonicalize_name

from trainwright.image import probe
from trainwright.lock import rpms
from trainwright.lock.packages import Stanzas
from trainwright.matrix.model import Base

if TYPE_CHECKING:
    from trainwright.image.inputs import Inputs

TYPE = "https://cyclonedx.org/bom"
PUBLIC_KEY = "gpg-pubkey"  # a key that rpm trusts: it is in rpm's database, and no package of an SBOM
VENDORED = "/_vendor/"  # packages that other packages carry inside: they cannot be imported by their own names


def image(sbom: Mapping[str, Any]) -> str:
    """Return the digest of the image that the SBOM is about, or "" if it states none."""
    return str(((sbom.get("metadata") or {}).get("component") or {}).get("version", ""))


def kind_of(base: Base) -> str:
    """Return the type that the distribution's packages have in their purl."""
    return "rpm" if base.manager == "dnf" else "deb"


def packages(sbom: Mapping[str, Any], kind: str) -> dict[str, str]:
    """Return each package's version, by name, for this type in its purl; two versions of one package are both kept."""
    found: dict[str, set[str]] = {}
    for component in sbom.get("components") or []:
        if str(component.get("purl", "")).startswith(f"pkg:{kind}/") and not _vendored(component):
            name = unquote(str(component.get("name", "")))
            name = str(canonicalize_name(name)) if kind == "pypi" else name
            found.setdefault(name, set()).add(str(component.get("version", "")))
    return {name: " and ".join(sorted(versions)) for name, versions in found.items()}


def _vendored(component: Mapping[str, Any]) -> bool:
    places = [
        str(row.get("value"))
        for row in component.get("properties") or []
        if str(row.get("name", "")).startswith("syft:location:") and str(row.get("name")).endswith(":path")
    ]
    return bool(places) and all(VENDORED in place for place in places)


def differences(found: "Inputs", sbom: Mapping[str, Any], digest: str) -> list[str]:
    """List every difference between an SBOM and these inputs for the image with this digest, one sentence each."""
    problems = [] if (about := image(sbom)) == digest else [f"it is about {about or 'no image'}, not about {digest}"]
    recipe = found.recipe
    debs = packages(sbom, kind_of(recipe.base))
    wanted = versions(found.distribution.effective)
    wanted |= probe.installed_by_pins(recipe, debs)
    problems += _differ("distribution package", wanted, debs)
    python = {str(canonicalize_name(name)): one.version for name, one in recipe.installed(found.lock).items()}
    return problems + list(_differ("Python package", python, packages(sbom, "pypi")))


def versions(entries: Stanzas) -> dict[str, str]:
    """Return the versions of the distribution's packages by the names that an SBOM has for them."""
    known: dict[str, set[str]] = {}
    for stanza in entries.values():
        if (name := rpms.rpm_name(stanza)) != PUBLIC_KEY:
            known.setdefault(name, set()).add(stanza["Version"])
    return {name: " and ".join(sorted(versions)) for name, versions in known.items()}


def _differ(what: str, wanted: Mapping[str, str], found: Mapping[str, str]) -> Iterator[str]:
    for name in sorted(wanted.keys() | found.keys()):
        if (own := wanted.get(name)) != (other := found.get(name)):
            yield f"{what} {name}: the lock says {own or 'nothing'}, the SBOM {other or 'nothing'}"
