"""Judge what a project lays over the installed data: components of another schema, and what each image is made of."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainwright.core import project
from trainwright.core.errors import ConfigError
from trainwright.core.toml import line_of, load
from trainwright.matrix.model import Component

if TYPE_CHECKING:
    from trainwright.matrix.matrix import Recipe

LAYERS, FRAMEWORKS, ROOTFS = "dockerfiles/layers/", "dockerfiles/frameworks/", "dockerfiles/rootfs/"
MATRIX = "dockerfiles/matrix.toml"
OF_A_ROW = ("release", "stack", "pins", "flavour", "instances")  # what each image of a row has of it


def check(root: Path) -> None:
    """Validate the components of a project. Raises ConfigError for one that overrides another of another schema."""
    said = project.overlay(root)
    for name in said.get("files", {}):
        if not (name.startswith(LAYERS) and name.endswith(".toml")):
            continue
        found = load(root / name, Component)
        if name in said["replaced"]:
            _check_override(root, name, load(project.installed() / name, Component), found)


def _check_override(root: Path, name: str, before: Component, found: Component) -> None:
    wrong: tuple[tuple[str, ...], str] | None = None
    if found.position != before.position:
        wrong = ("position",), f"its position is {found.position!r}, and {before.position!r} there"
    for provider, one in before.providers.items():
        if provider not in found.providers:
            wrong = ("providers",), f"it lacks the provider {provider!r}, which rows of the matrix may name"
        elif found.providers[provider].kind != one.kind:
            kinds = f"is of kind {found.providers[provider].kind}, and of kind {one.kind} there"
            wrong = ("providers", provider), f"its provider {provider!r} {kinds}"
    if wrong:
        path, why = wrong
        line = line_of((root / name).read_text(), path)
        component = Path(name).stem
        raise ConfigError(
            f"component {component!r} of the project has another schema than the installed one",
            where=f"{name}:{line}",
            why=why,
            fix=f"$EDITOR +{line} {name}   # keep what is there, or give your component a name of its own",
        )


def used_by(recipe: "Recipe", overridden: Sequence[str]) -> dict[str, Any]:
    """Return what an image is made of that a project says: files by sha256, values by their place; {} without any.

    `overridden` are the rules that a project overrides for this image. It is empty for an image that the project leaves
    as it is: that one keeps its key.
    """
    said = project.overlay(recipe.root)
    if not said:
        return {}
    found: dict[str, Any] = {name: sha256 for name, sha256 in said["files"].items() if _is_file_of(recipe, name)}
    for entry in said["entries"]:
        file, path = entry["file"].removeprefix("dockerfiles/"), entry["path"]
        if _is_entry_of(recipe, file, path):
            value = entry["value"]
            if file == "matrix.toml" and path[2:3] == ["rows"]:  # its number, and its other images, do not count
                path, value = path[:3], {key: value[key] for key in OF_A_ROW if key in value}
            found[f"{file}: {'.'.join(map(str, path))}"] = value
    if overridden:
        found["compat.toml"] = sorted(overridden)
    return found


def declares(recipe: "Recipe") -> bool:
    """Return whether a project's own file has the row of an image."""
    row = ["frameworks", recipe.variant.framework, "rows", recipe.variant.row]
    entries = project.overlay(recipe.root).get("entries", [])
    return any((entry["file"], entry["path"]) == (MATRIX, row) for entry in entries)


def _is_file_of(recipe: "Recipe", name: str) -> bool:
    if name.startswith(LAYERS):
        component = Path(name).stem
        shared = name.endswith(".j2") and component not in recipe.intent.components.components
        return shared or component in recipe.pins
    if name.startswith(FRAMEWORKS):
        return Path(name).stem in ("image", recipe.variant.framework)
    part = name.removeprefix(ROOTFS).partition("/")[0]
    return name.startswith(ROOTFS) and part in {"common", recipe.variant.target, *recipe.pins}


def _is_entry_of(recipe: "Recipe", file: str, path: Sequence[str | int]) -> bool:
    variant = recipe.variant
    if file == "matrix.toml":
        row = recipe.intent.matrix.frameworks[variant.framework].rows[variant.row]
        if list(path[:2]) == ["frameworks", variant.framework]:
            return path[2:3] == ["pins"] or list(path[2:4]) == ["rows", variant.row]
        if path[0] in ("targets", "stacks"):
            return path[1] == {"targets": variant.target, "stacks": row.stack}[str(path[0])]
        return path[0] == "common" or (path[0] == "devel" and variant.devel)
    if file == "bases.toml":
        return path[1] == variant.base
    if file == "instances.toml":
        return path[0] == "instances" and path[1] in variant.instances
    return file in ("tools.toml", "preflight.toml")
