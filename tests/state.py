"""Empty what modules of trainwright cache during a process, so that each test starts as a new process does.

These are found, not listed: every functools cache, and every container in a module whose name begins with one
underscore.
"""

import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any
from weakref import WeakSet

# Answers that follow from the arguments alone, which are the texts themselves: to forget them only costs time.
PURE = {
    *(
        "core.toml._parse",
        "image.inputs._distribution",
        "image.inputs._drift_name",
        "lock.lockfile.name_of",
        "lock.packages.parse",
    ),
    *("build.proof_code._imports", "build.proof_code._statements", "gate.regression.rank"),
    *("jobs.submit._types", "core.versions.parse", "core.versions.specifiers", "core.versions.within"),
}
# What an import puts there once: who knows credentials of registries that nobody registered.
FILLED_BY_IMPORT = {"registry.auth._recognised"}
CONTAINERS = (dict, list, set, WeakSet)


def modules() -> Iterator[tuple[str, ModuleType]]:
    for name, module in [*sys.modules.items()]:
        if name.startswith("trainwright.") and module:
            yield name.removeprefix("trainwright."), module


def held() -> Iterator[tuple[str, Any]]:
    """Yield each cache or container with its name, in the module that defines it."""
    for module, space in modules():
        for name, value in [*vars(space).items()]:
            if hasattr(value, "cache_clear"):
                if getattr(value, "__module__", "") == space.__name__:
                    yield f"{module}.{value.__name__}", value
            elif name.startswith("_") and not name.startswith("__") and isinstance(value, CONTAINERS):
                yield f"{module}.{name}", value


_found: tuple[int, list[Any]] = 0, []


def forget() -> None:
    """Empty the caches and containers, as in a new process."""
    global _found
    if _found[0] != len(sys.modules):
        _found = len(sys.modules), [value for name, value in held() if name not in PURE | FILLED_BY_IMPORT]
    for value in _found[1]:
        if hasattr(value, "cache_clear"):
            value.cache_clear()
        else:
            for one in value if isinstance(value, list) else ():
                if hasattr(one, "cleanup"):  # a temporary folder, which else complains that nobody removed it
                    one.cleanup()
            value.clear()
