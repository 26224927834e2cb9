"""Resolve locks anew: report the changes, and write them on request."""

from contextlib import suppress
from pathlib import Path

from trainwright.core import project
from trainwright.core.errors import ConfigError, LockError
from trainwright.core.files import write
from trainwright.core.progress import Progress, Say
from trainwright.core.toml import load, read
from trainwright.image import inputs
from trainwright.lock import diff, packages
from trainwright.lock.diff import Change
from trainwright.matrix.matrix import Intent, Recipe
from trainwright.matrix.model import Lock
from trainwright.resolve import resolve
from trainwright.resolve.own_python import Look


def update(
    intent: Intent, recipes: list[Recipe], keep: bool, say: Say, progress: Progress, look: Look | None = None
) -> list[Change]:
    """Return how every lock would change if resolved anew. With `keep`, write the locks once all are resolved."""
    recipes, _ = resolve.waiting(recipes)
    resolve.admit(intent, recipes)
    texts: dict[Path, str] = {}
    fresh: dict[str, packages.Stanzas] = {}
    rows: list[Change] = []
    for base, tools in resolve.bases_of(recipes):
        path, text = resolve.lock_packages(intent, base, tools, fresh.get(base, {}), say)
        found = packages.parse(text, path.name)[1]
        fresh.setdefault(base, found)
        old: diff.Held = {}
        with suppress(LockError):  # a missing or broken lock has nothing to compare with
            old = diff.packages_held(packages.parse(read(path, error=LockError), path.name)[1])
        moved = diff.changes(path.stem, "distribution", old, diff.packages_held(found))
        # Because a new date alone would change the key, an unchanged lock stays. A comparison fetches no package.
        if keep and (moved or not resolve.is_current(inputs.current_distribution, intent, base, tools)):
            texts[path] = resolve.described(intent, base, text, fresh[base], say, progress)
        rows += moved
    for recipe in {recipe.variant.lock: recipe for recipe in recipes}.values():
        path, solved, before = inputs.lock_path(recipe), resolve.solve(recipe, say), None
        with suppress(ConfigError):
            before = load(path, Lock)
        new = {diff.python_name(o.name, group): (o.version, o.sha256) for group, _, o in solved}
        moved = diff.changes(path.stem, "python", diff.python_held(before) if before else {}, new)
        sources = diff.sources_held(resolve.lock_sources(recipe))
        moved += diff.changes(path.stem, "source", diff.sources_held(before.sources) if before else {}, sources)
        rows += moved
        if keep and (moved or not resolve.is_current(inputs.load, recipe)):
            texts[path] = resolve.lock_python(recipe, solved, progress, say, look)[1]
    for path, text in texts.items():
        write(project.place(path), text)
    return rows
