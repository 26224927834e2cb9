"""Packages of Debian's format, written with ar and tar alone: hosts without dpkg run these tests, too."""


def deb(data: bytes) -> bytes:
    """A package whose files are in `data`, a tar packed with xz; its control part is read by no test."""
    parts = {"debian-binary": b"2.0\n", "control.tar.xz": data, "data.tar.xz": data}
    made = b"!<arch>\n"
    for part, held in parts.items():
        made += f"{part:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(held):<10}`\n".encode() + held + b"\n" * (len(held) % 2)
    return made
