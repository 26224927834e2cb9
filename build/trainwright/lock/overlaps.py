"""Judge paths that two wheels claim with different bytes: refuse them, unless compat.toml names a winner."""

from collections.abc import Iterable, Mapping
from itertools import combinations

from trainwright.core.errors import IncompatibleError
from trainwright.matrix.compat import FILE, Winner
from trainwright.matrix.model import Overlap, PythonFile

# The groups of a lock that meet in one virtual environment, in the order in which an image installs them. Of two wheels
# in one step, the installer's threads decide which file is written last.
STEPS = ("framework", "toolkit", "devel", "added")


def compare(claims: Mapping[str, Mapping[str, str]]) -> list[Overlap]:
    """Return each pair of packages that claim a path with different bytes. `claims` map package to path to digest."""
    owners: dict[str, list[str]] = {}
    for name, paths in sorted(claims.items()):
        for path in paths:
            owners.setdefault(path, []).append(name)
    found: dict[tuple[str, str], list[str]] = {}
    for path, names in owners.items():
        for one, other in combinations(names, 2):
            if claims[one][path] != claims[other][path]:
                found.setdefault((one, other), []).append(path)
    return [Overlap(wheels=pair, files=len(paths), such_as=min(paths)) for pair, paths in sorted(found.items())]


def losers(overlaps: Iterable[Overlap], winners: Iterable[Winner]) -> set[str]:
    """Return the packages whose files a later step replaces."""
    pairs = {row.wheels for row in overlaps}
    return {row.loser for row in winners if tuple(sorted((row.winner, row.loser))) in pairs}


def check(
    identity: str, where: str, python: Iterable[PythonFile], overlaps: Iterable[Overlap], winners: Iterable[Winner]
) -> None:
    """Check that each overlap has a winner, and that the steps of the image install it after the loser.

    `python` are all packages of the image. Raises IncompatibleError.
    """
    overlaps, winners = list(overlaps), list(winners)
    held = {entry.name: entry for entry in python if entry.group in STEPS}
    lost = losers(overlaps, winners)
    refused = [(row, why) for row in overlaps if (why := _refused(row, winners, lost, held))]
    if not refused:
        return
    (first, why), (one, other) = refused[0], refused[0][0].wheels
    also = [f"also: {_sentence(row, held)}" for row, _ in refused[1:]]
    raise IncompatibleError(
        f"{identity}: {_sentence(first, held)}",
        where=where,
        why="\n".join([why, *also]),
        fix=f"remove one of the two; or a row of [[winners]] in {FILE} with the evidence: "
        f'winner = "{one}", loser = "{other}", or the other way round',
    )


def _sentence(row: Overlap, held: Mapping[str, PythonFile]) -> str:
    one, other = (f"{name} {held[name].version}" if name in held else name for name in row.wheels)
    more = f" and {row.files - 1} more" if row.files > 1 else ""
    return f"{one} and {other} claim {row.such_as}{more} with different bytes"


def _refused(row: Overlap, winners: Iterable[Winner], lost: set[str], held: Mapping[str, PythonFile]) -> str:
    """Return why an overlap is refused; "" if it has a winner that the image is certain to get."""
    chosen = next((each for each in winners if tuple(sorted((each.winner, each.loser))) == row.wheels), None)
    if chosen is None:
        return "which of the two files an image gets depends on the order of the installer's threads"
    steps = {name: STEPS.index(held[name].group) for name in row.wheels}
    # A loser among the framework's packages gets a step of its own before all others (lock/wheels.py).
    movable = held[chosen.loser].group == "framework" and chosen.winner not in lost
    if movable or steps[chosen.loser] < steps[chosen.winner]:
        return ""
    return (
        f"{FILE} names {chosen.winner} as the winner, but no step installs it after {chosen.loser}: "
        f"they are of the groups {held[chosen.winner].group} and {held[chosen.loser].group}"
        + f", and {chosen.winner} loses against another wheel"
        * (chosen.winner in lost)
    )
