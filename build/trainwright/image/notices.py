"""Render /opt/trainwright/notices.txt: what others made in an image, under which licence, and where its source is."""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Protocol

from packaging.version import Version

from trainwright.lock.packages import LICENCE, Stanzas
from trainwright.lock.rpms import ADDRESS
from trainwright.matrix.matrix import Recipe
from trainwright.matrix.model import Base, Lock, PythonFile, Source

NOT_SAID = "not said"
HEAD = """\
What others made in {id}, from its locks.
Each line: name and version, licence as its makers state it, where its source is; separated by tabs."""
COMPONENTS = "Components that are compiled from source, or that an installer brings."
PACKAGES = """\
Packages of {distribution} {suite}. Licences in full: /usr/share/doc/NAME/copyright. The source of each, its .dsc and
archives, lies in the folder that is named, as it was a day after the lock's index; else in that of the day before."""
RPMS = """\
Packages of {distribution} {suite}. Licences in full: /usr/share/licenses/NAME. The source of each is the package of
the name that `rpm --query --queryformat '%{{SOURCERPM}}' NAME` prints; the distribution publishes that too."""
PYTHON = """\
Python packages. Licences in full: {site}/NAME-VERSION.dist-info.
pkg:pypi/NAME@VERSION is a package URL: that release on the Python Package Index has the source or its address."""


class Packages(Protocol):
    """The distribution's packages, as image/inputs.py reads them."""

    @property
    def locked(self) -> Stanzas: ...
    @property
    def effective(self) -> Stanzas: ...
    @property
    def epoch(self) -> int: ...
    @property
    def noted(self) -> dict[tuple[str, ...], str]: ...


def text(recipe: Recipe, lock: Lock, packages: Packages) -> str:
    """Return the notices of an image, from its locks alone: one line for each component and package."""
    base, site = recipe.base, f"/opt/venv/lib/python{recipe.variant.python}/site-packages"
    sections = [
        (HEAD.format(id=recipe.id), ""),
        (COMPONENTS, _lines(_components(recipe, {source.name: source for source in lock.sources}))),
        (
            (RPMS if base.manager == "dnf" else PACKAGES).format(distribution=base.distribution, suite=base.suite),
            _of_packages(base, packages),
        ),
        (PYTHON.format(site=site), _lines(_python(recipe.installed(lock).values()))),
    ]
    if base.provider == "image":
        sections[1:1] = [(f"The image starts from {base.reference}, whose own notices apply to what it holds.", "")]
    return "\n".join(f"{head}\n{rows}" for head, rows in sections)


def _lines(rows: Iterable[str]) -> str:
    return "".join(f"{row}\n" for row in rows)


def _line(*fields: str) -> str:
    return "\t".join(" ".join(field.split()) for field in fields)


def _components(recipe: Recipe, sources: dict[str, Source]) -> Iterator[str]:
    for name in sorted(recipe.pins):
        component = recipe.component(name)
        if source := sources.get(name):
            place = f"{source.url} commit {source.commit}" if source.commit else f"{source.url} sha256:{source.sha256}"
            yield _line(f"{name} {source.version}", source.licence, place)
            release = component.releases.get(source.version)
            brought = release.bundles if release else {}
            for part in component.parts:
                yield _line(f"{part.name} {brought.get(part.name, '')} of {name}", part.licence, part.source)
    if recipe.variant.devel and (toolkit := recipe.toolkit):
        yield _line("CUDA's compiler", recipe.component("cuda").licence, toolkit.reference)


def _of_packages(base: Base, packages: Packages) -> str:
    used = (base.reference, *(word for pair in base.snapshots.items() for word in pair))
    if used not in packages.noted:
        packages.noted[used] = _lines(_packages(base, packages))
    return packages.noted[used]


def _packages(base: Base, packages: Packages) -> Iterator[str]:
    # As the files are fetched: a snapshot is some hours older than its time, so the day after has what was new.
    day = datetime.fromtimestamp(packages.epoch, UTC) + timedelta(days=1)
    time = day.strftime("%Y%m%dT%H%M%SZ")
    for name, stanza in sorted(packages.effective.items()):
        folder, archive = stanza["Filename"].rpartition("/")[0], stanza["Archive"]
        if not stanza["SHA256"]:
            place = f"of the base image {base.reference}"
        elif ADDRESS in stanza:
            place = stanza[ADDRESS]
        elif archive in base.snapshots:
            place = base.snapshots[archive].format(time=time, filename=f"{folder}/")
        else:
            place = f"{archive}: {folder}/"
        # A package that replaced a locked one has no licence in the lock of the day; the same package had one.
        licence = stanza.get(LICENCE) or packages.locked.get(name, {}).get(LICENCE) or NOT_SAID
        yield _line(f"{name} {stanza['Version']}", licence, place)


def _python(installed: Iterable[PythonFile]) -> Iterator[str]:
    for entry in sorted(installed, key=lambda entry: entry.name):
        place = f"pkg:pypi/{entry.name}@{Version(entry.version).public}"
        yield _line(f"{entry.name} {entry.version}", entry.licence or NOT_SAID, place)
