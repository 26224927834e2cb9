"""Make the distributions under foreign images: Debian 12 and 13 as bases of a matrix of their own, 11 by hand."""

import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import tiny
import tomlkit

SMALL = ["apt", "ca-certificates", "tzdata"]
# Base of a foreign image: the base of the matrix, Python, and what is special.
BASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "bookworm": ("debian-12", "3.11", {}),
    "bookworm-mpi": ("debian-12-mpi", "3.11", {"packages": [*SMALL, "ibverbs-providers", "libfabric1", "openmpi-bin"]}),
    "trixie": ("debian-13", "3.13", {}),
}
ROW = """
[[frameworks.tiny.rows]]
release = "1.0"
accelerators = ["cpu"]
pythons = ["{python}"]
targets = ["ec2"]
bases = ["{base}"]
flavour = "{flavour}"
pins = {{}}
"""
# A distribution with Python, and nothing of trainwright: neither files nor layers nor labels.
CLEAN = """\
FROM {name} AS {name}-clean
RUN rm -rf /opt/trainwright /opt/venv /usr/local/bin/trainwright-* /etc/pip.conf
FROM scratch AS {name}-base
COPY --from={name}-clean / /
LABEL io.trainwright.test="{label}"
"""
# Debian 11 has a Python that our own images no longer support, so its packages are unpacked as debootstrap does it.
OLD = "bullseye"
OLD_CHANGES = {
    "suite": OLD,
    "glibc": "2.31",
    "archives": {"debian": [OLD, f"{OLD}-updates"], "debian-security": [f"{OLD}-security"]},
}
UNPACKED = """\
FROM bookworm AS bullseye-files
RUN --network=none --mount=type=bind,from=own,source=bullseye,target=/packages \\
    mkdir /target \\
    && for file in /packages/*.deb; do dpkg-deb --fsys-tarfile $file | tar --extract --directory /target; done \\
    && ln -sf dash /target/bin/sh && cp /packages/status /target/var/lib/dpkg/status \\
    && cp /target/usr/share/base-passwd/passwd.master /target/etc/passwd && ldconfig -r /target
FROM scratch AS bullseye-base
COPY --from=bullseye-files /target /
LABEL io.trainwright.test="{label}"
"""


def plant(tree: Path, wanted: Iterable[str]) -> None:
    """Make a checkout of the small framework, with a row for each of these bases."""
    tiny.plant(tree)
    own = tomlkit.parse((tiny.ROOT / "dockerfiles/bases.toml").read_text())["bases"]
    file, matrix = tree / "dockerfiles/bases.toml", tree / "dockerfiles/matrix.toml"
    bases = tomlkit.parse(file.read_text())
    for name in wanted:
        base, python, changes = BASES[name]
        if name != "bookworm":
            start = own[base if base in own else "debian-12"].unwrap()
            bases["bases"][base] = start | {"packages": SMALL} | changes
            row = ROW.format(python=python, base=base, flavour=name)
            matrix.write_text(matrix.read_text() + row)
    file.write_text(tomlkit.dumps(bases))


def build(tree: Path) -> None:
    """Lock and build the bases of a checkout. Raises RuntimeError with what the command said."""
    for words in (["lock"], ["build", "tiny-*"]):
        command = [str(Path(sys.executable).with_name("trainwright")), *words]
        done = subprocess.run(command, cwd=tree, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(done.stderr)


def names(tree: Path) -> dict[str, str]:
    """Return the name in the engine of each base that a checkout has built."""
    found = {}
    for file in sorted(tree.glob("out/tiny-*/docker-bake.json")):
        name = json.loads(file.read_text())["target"]["image"]["tags"][0]
        flavour = file.parent.name.partition("-ec2")[2].removeprefix("-")
        if subprocess.run(["docker", "image", "inspect", name], capture_output=True).returncode == 0:
            found[flavour or "bookworm"] = name
    return found


def old_packages(folder: Path) -> None:
    """Bring the packages of Debian 11 with Python into a folder, verified by its mirror's signature."""
    import shutil

    from trainwright.core import store
    from trainwright.lock import packages
    from trainwright.matrix.matrix import load_intent
    from trainwright.resolve import apt

    definition = load_intent(tiny.ROOT).components.bases["debian-12"].model_copy(update=OLD_CHANGES)
    date, stanzas = apt.resolve(definition, [*SMALL, "python3"])
    held = [one for one in packages.to_packages(stanzas).values() if one.sha256]
    missing = [one for one in held if not store.has(one.sha256)]
    lost = store.fetch(apt.wanted(definition, missing, packages.epoch_of({"Date": date})), lambda *_: None)
    if lost:
        raise RuntimeError(next(iter(lost.values())))
    folder.mkdir()
    for one in held:
        shutil.copy(store.path_of(one.sha256), folder / Path(one.filename).name)
    (folder / "status").write_text(packages.status(stanzas))
