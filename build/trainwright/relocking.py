"""Resolve locks anew: report the changes, and write them on request."""

from contextlib import suppress
from pathlib import Path

from trainwright import differences, inputs, locking, packages
from trainwright.config import load, read
from trainwright.differences import Change
from trainwright.errors import ConfigError, LockError
from trainwright.files import write
from trainwright.matrix import Intent
from trainwright.model import Lock, Variant
from trainwright.progress import Progress, Say


def update(intent: Intent, variants: list[Variant], keep: bool, say: Say, progress: Progress) -> list[Change]:
    """Return how every lock would change if resolved anew. With `keep`, write the locks once all are resolved."""
    variants, _ = locking.waiting(intent, variants)
    locking.admit(intent, variants)
    texts: dict[Path, str] = {}
    fresh: dict[str, packages.Stanzas] = {}
    rows: list[Change] = []
    for base, tools in locking.bases_of(intent, variants):
        path, text = locking.lock_packages(intent, base, tools, fresh.get(base, {}), say)
        found = packages.parse(text, path.name)[1]
        fresh.setdefault(base, found)
        old: differences.Held = {}
        with suppress(LockError):  # a missing or broken lock has nothing to compare with
            old = differences.packages_held(packages.parse(read(path, error=LockError), path.name)[1])
        moved = differences.changes(path.stem, "distribution", old, differences.packages_held(found))
        # Because a new date alone would change the key, an unchanged lock stays. A comparison fetches no package.
        if keep and (moved or not locking.is_current(inputs.current_distribution, intent, base, tools)):
            texts[path] = locking.with_licences(intent, base, text, fresh[base], say, progress)
        rows += moved
    for variant in {variant.lock: variant for variant in variants}.values():
        path, solved, before = inputs.lock_path(intent, variant), locking.solve(intent, variant, say), None
        with suppress(ConfigError):
            before = load(path, Lock)
        new = {differences.python_name(o.name, group): (o.version, o.sha256) for group, _, o in solved}
        moved = differences.changes(path.stem, "python", differences.python_held(before) if before else {}, new)
        sources = differences.sources_held(locking.lock_sources(intent, variant))
        moved += differences.changes(
            path.stem, "source", differences.sources_held(before.sources) if before else {}, sources
        )
        rows += moved
        if keep and (moved or not locking.is_current(inputs.load, intent, variant)):
            texts[path] = locking.lock_python(intent, variant, solved, progress)[1]
    for path, text in texts.items():
        write(path, text)
    return rows
