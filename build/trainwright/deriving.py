"""Write a project that starts from an image, or bring an existing Dockerfile to do so; overwrites nothing unasked."""

from pathlib import Path

from trainwright import derived
from trainwright.derived import Parent
from trainwright.errors import ConfigError
from trainwright.files import write


def write_project(folder: Path, name: str, parent: Parent) -> list[str]:
    """The files that were written. Raises ConfigError where one of them is there already, and writes none."""
    files = derived.project(name, parent)
    if there := [file for file in files if (folder / file).exists()]:
        raise ConfigError(
            f"{folder} holds a project already",
            why=f"there is {', '.join(there)}",
            fix=f"another --into, or trainwright derive {parent.uri} --dockerfile {folder / 'Dockerfile'}",
        )
    for file, text in files.items():
        write(folder / file, text)
    return list(files)


def rewrite(dockerfile: Path, name: str, parent: Parent, wanted: bool) -> str:
    """How its FROM would change; "" where it starts from the parent already. With `wanted` it is changed.

    derived.toml beside it is written then, too; one that names another parent is replaced. Raises ConfigError.
    """
    try:
        old = dockerfile.read_text()
    except (FileNotFoundError, IsADirectoryError):
        raise ConfigError(f"there is no Dockerfile {dockerfile}", fix="trainwright derive <id> --into DIR") from None
    new = derived.rewritten(old, parent.uri, str(dockerfile))
    if wanted:
        if new != old:
            write(dockerfile, new)
        write(dockerfile.parent / derived.FILE, derived.toml(name, parent))
    return derived.difference(old, new, str(dockerfile))
