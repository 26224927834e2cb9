"""Write Debian packages with ar and tar alone, because hosts without dpkg run these tests, too."""


def deb(data: bytes) -> bytes:
    """Make a package from `data`, a tar packed with xz; no test reads its control part."""
    parts = {"debian-binary": b"2.0\n", "control.tar.xz": data, "data.tar.xz": data}
    made = b"!<arch>\n"
    for part, held in parts.items():
        made += f"{part:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(held):<10}`\n".encode() + held + b"\n" * (len(held) % 2)
    return made
