"""What the finished image must hold, and how it differs. The image answers scripts/probe.py; the judgement is here."""

from collections.abc import Iterable, Mapping

from debian.debian_support import NativeVersion
from packaging.utils import canonicalize_name

from trainwright.errors import BuildError
from trainwright.matrix import Intent
from trainwright.model import Lock, Model, Package, Variant


class Findings(Model):
    """What scripts/probe.py printed."""

    versions: dict[str, str]
    nccl: str | None
    libnccl: list[str]
    python_packages: dict[str, str]
    packages: dict[str, str]

    def components(self) -> dict[str, str]:
        """Component to version, NCCL's as the framework says it."""
        return self.versions | ({"nccl": self.nccl} if self.nccl else {})


def upstream_version(version: str) -> str:
    """The upstream part of a Debian version: `1:9.2p1-2+deb12u7` says that the program calls itself 9.2p1."""
    return str(NativeVersion(version).upstream_version)


def expected_versions(intent: Intent, pins: Mapping[str, str]) -> dict[str, str]:
    """Component to what its program or module should say of itself."""
    components = intent.components.components
    return {
        name: version if components[name].provider == "python" else upstream_version(version)
        for name, version in pins.items()
    }


def _differences(what: str, wanted: Mapping[str, str], found: Mapping[str, str]) -> Iterable[str]:
    for name in sorted(wanted.keys() | found.keys()):
        if name not in wanted:
            yield f"{what} {name} {found[name]} is in the image and not in the lock"
        elif name not in found:
            yield f"{what} {name} {wanted[name]} is in the lock and not in the image"
        elif wanted[name] != found[name]:
            yield f"{what} {name}: the lock says {wanted[name]}, the image holds {found[name]}"


def compare(
    intent: Intent, pins: Mapping[str, str], lock: Lock, packages: Mapping[str, Package], found: Findings
) -> list[str]:
    """Every difference between lock and image, one sentence each; empty means declared = shipped."""
    # What a probe may see of the base and nobody declared is left to the packages; an NCCL nobody declared is not.
    components = {name: version for name, version in found.components().items() if name in pins or name == "nccl"}
    python = {
        str(canonicalize_name(entry.name)): entry.version
        for entry in lock.python
        if entry.group in ("framework", "toolkit")
    }
    distribution = {name: package.version for name, package in packages.items()}
    differences = [
        *_differences("component", expected_versions(intent, pins), components),
        *_differences("Python package", python, found.python_packages),
        *_differences("distribution package", distribution, found.packages),
    ]
    if len(found.libnccl) > 1:
        differences.append(f"more than one libnccl: {', '.join(found.libnccl)}")
    return differences


def refuse(variant: Variant, differences: list[str]) -> None:
    """Raises BuildError, by name, for the first differences."""
    if differences:
        rest = f" (and {len(differences) - 5} more)" if len(differences) > 5 else ""
        raise BuildError(
            f"{variant.id} is not what its lock says: {differences[0]}",
            why="; ".join(differences[:5]) + rest,
            where=f"dockerfiles/locks/{variant.id}.toml",
            fix=f"trainwright lock --only {variant.id}, then trainwright build --only {variant.id}",
        )
