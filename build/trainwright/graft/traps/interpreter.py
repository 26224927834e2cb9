"""Check that a Python of the image holds a framework, imports it, and can run the launcher."""

from collections.abc import Iterator

from trainwright.graft.found import Found, older
from trainwright.graft.wanted import Trap, Wanted, handled, refused


def check(found: Found, wanted: Wanted) -> Iterator[Trap]:
    inside, python, least = found.inside, found.python, wanted.settings.limits.python
    if inside is None:
        return
    if python is None:
        yield refused(
            "no Python", "no interpreter starts", "launcher and framework require one", "install python3 in it"
        )
        return
    if not found.framework:
        names = ", ".join(sorted(wanted.settings.frameworks))
        why = f"{python.path} imports none of {names}"
        yield refused("no framework", "none", why, "install one in the image, or start from ours: trainwright list")
        return
    answer = python.components[found.framework]
    if not answer.version:
        why = f"importing it in {python.path} fails without network and GPU"
        fix = f"docker run --rm -it {found.pinned} {python.path} -c 'import {found.framework}'"
        yield refused("framework does not start", answer.error or "no version", why, fix)
    if older(python.version, least):
        why = f"the launcher requires Python {least} or newer, and starts with the framework's Python"
        fix = f"install {found.framework} in a newer Python of the image"
        yield refused("old Python", f"{python.path} {python.version}", why, fix)
    others = [one.path for one in inside.pythons if one is not python and set(one.components) & set(found.frameworks)]
    if others:
        why = f"PATH has {python.path} first, so its framework is used"
        yield handled(
            "several frameworks", ", ".join(others), why, "put another one first in PATH to graft for that one"
        )
