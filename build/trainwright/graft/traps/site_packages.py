"""Check whether packages can be installed where the framework lives: those of --with must be."""

from collections.abc import Iterator

from trainwright.graft.found import Found
from trainwright.graft.wanted import Trap, Wanted, handled, refused

WRITES = 0o222  # the right to write, of anyone


def check(found: Found, wanted: Wanted) -> Iterator[Trap]:
    python, inside = found.python, found.inside
    if python is None or inside is None:
        return
    if wanted.file and not python.site_exists:
        why = f"the packages of {wanted.file.path} go there"
        yield refused("site-packages", f"{python.site} does not exist", why, f"RUN mkdir -p {python.site} in the image")
    elif wanted.file and python.site_rights and not python.site_rights[2] & WRITES:
        why = f"the packages of {wanted.file.path} go there; a package manager such as Nix made the folder read-only"
        fix = f"put {found.framework or 'the framework'} into a virtual environment, or RUN chmod u+w {python.site}"
        yield refused("site-packages", f"{python.site} is read-only for every user", why, fix)
    elif not python.site_exists:
        fix = "the launcher installs nothing there"
        yield handled("site-packages", f"{python.site} does not exist", "packages cannot be installed", fix)
    elif python.site_rights and not _may_write(found.config.user, inside.users, python.site_rights):
        why = f"a job of the user {found.config.user} cannot install its requirements.txt there"
        yield handled(
            "site-packages", f"{python.site} is read-only", why, "it stays; the launcher installs nothing there"
        )


def _may_write(user: str, users: dict[str, list[int]], rights: list[int]) -> bool:
    """Return whether an image's user may write to a folder; True if its numbers are not known."""
    name, _, group = user.partition(":")
    if name in ("", "0", "root"):
        return True
    owner, owned_by, mode = rights
    numbers = [int(name), 0] if name.isdigit() else users.get(name, [])
    if not numbers:
        return True
    if name.isdigit():
        numbers = next((row for row in users.values() if row[0] == int(name)), numbers)
    own_group = int(group) if group.isdigit() else numbers[1]
    if numbers[0] == owner:
        return bool(mode & 0o200)
    return bool(mode & 0o020) if own_group == owned_by else bool(mode & 0o002)
