"""Check what an image's configuration does to a build on top, and to the files of the graft."""

from collections.abc import Iterator
from pathlib import PurePosixPath

from trainwright.graft.found import Found
from trainwright.graft.wanted import Trap, Wanted, handled, refused

WRITTEN = ("/opt/trainwright", "/usr/local/bin", "/etc/ssh/sshd_config.d")  # folders that a graft writes to
ROOT = ("", "0", "root", "0:0", "root:root")


def check(found: Found, wanted: Wanted) -> Iterator[Trap]:
    config = found.config
    if config.onbuild:
        why = "its triggers would run in the build of the graft, which runs nothing in the image"
        yield refused("ONBUILD", "; ".join(config.onbuild), why, "build the image without ONBUILD")
    site = (found.python.site,) if wanted.file and found.python else ()
    for volume in config.volumes:
        covered = [path for path in (*WRITTEN, *site) if PurePosixPath(path).is_relative_to(volume)]
        if covered:
            why = f"an engine puts a volume over {covered[0]}, and with it over the files of the graft"
            yield refused("VOLUME", volume, why, f"build the image without VOLUME {volume}")
        else:
            yield handled("VOLUME", volume, "the engine puts a volume there", "it stays")
    if config.user not in ROOT:
        why = "processes run without root's rights"
        yield handled("USER", config.user, why, "it stays; every user can read what the graft adds")
    if config.entrypoint:
        yield handled("ENTRYPOINT", " ".join(config.entrypoint), "the image starts with it", "it stays")
    if config.shell:
        yield handled("SHELL", " ".join(config.shell), "steps would use it", "it stays; the graft has no such step")
    if config.healthcheck:
        yield handled("HEALTHCHECK", " ".join(config.healthcheck), "the engine runs it", "it stays")
