"""Resolve the distribution's packages for a graft, on top of those that its image has: with apt, or with dnf.

The code is that of the locks of the matrix. apt runs on this host or in a container of our own; dnf runs in a container
of the image itself, because only the image has its repositories and the keys that these are signed with.
"""

from typing import NamedTuple

from trainwright.core.errors import LockError
from trainwright.core.progress import Progress, Say, counted
from trainwright.docker import engine
from trainwright.graft.found import Found
from trainwright.lock import packages
from trainwright.lock.packages import Stanzas
from trainwright.lock.rpms import rpm_name
from trainwright.matrix.matrix import Recipe
from trainwright.resolve import apt, apt_container, foreign
from trainwright.resolve.fetch import rpms_of
from trainwright.resolve.resolve import with_licences, with_signatures

STATUS = "/var/lib/dpkg/status"
NONE: Stanzas = {}
UPDATES = {"apt": "apt-get install --only-upgrade", "dnf": "dnf upgrade"}


class Resolved(NamedTuple):
    """Packages with the date of the index that they are of (RFC 1123); "" where no index was asked."""

    date: str
    stanzas: Stanzas


def resolved(
    recipe: Recipe, found: Found, names: list[str], tools: list[str], say: Say, progress: Progress
) -> tuple[Resolved, Resolved | None]:
    """Return all packages of the graft, and what compile stages add to them; None if nothing is compiled.

    Raises LockError with the solver's reason, or for a package without a valid signature; EnvironmentProblem if an
    index or a package cannot be had.
    """
    if not names and not tools:
        return Resolved("", NONE), None
    image = found.pinned if "@" in found.pinned else found.reference
    solve = _with_dnf if recipe.base.manager == "dnf" else _with_apt
    return solve(recipe, image, names, tools, say, progress)


def _told(recipe: Recipe, names: list[str], say: Say) -> None:
    say(f"{recipe.id}: resolving {counted(len(names), 'package')} of {recipe.base.distribution} {recipe.base.suite}")


def _with_apt(
    recipe: Recipe, image: str, names: list[str], tools: list[str], say: Say, progress: Progress
) -> tuple[Resolved, Resolved | None]:
    status = engine.read_file(image, STATUS, pull=False)
    whole, beyond = Resolved("", apt.installed(status)), None
    if names:
        header, stanzas = packages.parse(_apt(recipe, names, status, say, progress), recipe.variant.base)
        whole = Resolved(header["Date"], stanzas)
    if tools:
        _told(recipe, tools, say)
        inside = apt_container.apt_of(recipe.intent, recipe.variant.base)
        date, every = apt.resolve(recipe.base, tools, _with(status, whole.stanzas), inside)
        beyond = Resolved(date, {name: row for name, row in every.items() if row["SHA256"]})
        must_keep(recipe, whole.stanzas, beyond.stanzas)
    return whole, beyond


def _apt(recipe: Recipe, names: list[str], status: str, say: Say, progress: Progress) -> str:
    """Resolve packages on top of those in dpkg's status; return them with their licences, as the text of a lock."""
    base = recipe.variant.base
    _told(recipe, names, say)
    date, stanzas = apt.resolve(recipe.base, names, status, apt_container.apt_of(recipe.intent, base))
    text = packages.dump({"Intent": "", "Date": date}, stanzas)
    return with_licences(recipe.intent, base, text, NONE, say, progress)


def _with(status: str, whole: Stanzas) -> str:
    """Return dpkg's status after the packages of a lock have been installed on top of it."""
    new = {name: row for name, row in whole.items() if row["SHA256"]}
    kept = [text for text in status.split("\n\n") if text.strip() and _name(text) not in new]
    return "\n\n".join([*(text.strip("\n") for text in kept), packages.status(new)]) + "\n"


def _name(paragraph: str) -> str:
    first = next((line for line in paragraph.splitlines() if line.startswith("Package:")), "")
    return first.partition(":")[2].strip()


def _with_dnf(
    recipe: Recipe, image: str, names: list[str], tools: list[str], say: Say, progress: Progress
) -> tuple[Resolved, Resolved | None]:
    name, asked = recipe.variant.base, (recipe.root, recipe.base)
    inside, beyond = foreign.in_engine(image), None
    _told(recipe, names or tools, say)
    date, stanzas = rpms_of(*asked, names, NONE, inside)
    whole = Resolved(date, with_signatures(recipe.intent, name, stanzas, image, say, progress) if names else stanzas)
    if tools:
        if names:
            _told(recipe, tools, say)
        date, every = rpms_of(*asked, tools, whole.stanzas, inside)
        more = beyond_of(every, whole.stanzas)
        must_keep(recipe, whole.stanzas, more)
        beyond = Resolved(date, with_signatures(recipe.intent, name, more, image, say, progress))
    return whole, beyond


def beyond_of(every: Stanzas, below: Stanzas) -> Stanzas:
    """Return the packages that are fetched for compile stages alone: not those that the graft installs anyway."""
    held = {row["SHA256"] for row in below.values()}
    return {name: row for name, row in every.items() if row["SHA256"] and row["SHA256"] not in held}


def must_keep(recipe: Recipe, below: Stanzas, beyond: Stanzas) -> None:
    """Check that compile stages need no other version of a package than the graft has. Raises LockError."""
    held = dict[tuple[str, str], list[str]]()
    for row in below.values():
        held.setdefault((rpm_name(row), row["Architecture"]), []).append(row["Version"])
    for row in beyond.values():
        name, version = rpm_name(row), row["Version"]
        if version not in (has := held.get((name, row["Architecture"]), [version])):
            raise LockError(
                f"what is compiled for {recipe.id} needs {name} {version}",
                where=recipe.base.reference,
                why=f"the image has {' and '.join(has)}; what is compiled against another version may not run with it",
                fix=f"update {name} in the image: {UPDATES[recipe.base.manager]} {name}",
            )
