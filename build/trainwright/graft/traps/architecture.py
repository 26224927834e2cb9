"""Check that the image is for this machine, and that a process can start in it."""

from collections.abc import Iterator

from trainwright.graft.found import Found, older
from trainwright.graft.wanted import Trap, Wanted, refused


def check(found: Found, wanted: Wanted) -> Iterator[Trap]:
    config, limits = found.config, wanted.settings.limits
    if config.os != "linux":
        fix = "name an image for Linux"
        yield refused("operating system", config.os or "none", "training images are Linux images", fix)
    elif config.architecture != wanted.architecture:
        why = f"the image cannot be probed on this machine, which is {wanted.architecture}"
        fix = f"run the same command on a machine of {config.architecture}, or name the image for {wanted.architecture}"
        yield refused("architecture", config.architecture, why, fix)
    elif found.inside is None:
        fix = "name an image with /bin/sh and Python, which the launcher requires"
        yield refused("nothing starts", found.silent, "the image cannot be probed", fix)
    elif found.inside.libc == "musl":
        why = "wheels of frameworks, the EFA installer and the plugin require glibc"
        yield refused("C library", "musl", why, "name an image on Debian, Ubuntu or Amazon Linux")
    elif wanted.fabric != "none" and older(found.glibc, limits.glibc_efa):
        why = f"what a fabric adds requires glibc {limits.glibc_efa} or newer"
        yield refused(
            "C library", found.inside.libc, why, "use --fabric none, or name an image on a newer distribution"
        )
