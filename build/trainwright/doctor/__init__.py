"""Run the checks of `trainwright doctor`, one file per check: every precondition on this machine. Change nothing."""

import re
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from trainwright.core.errors import NotRunError, TrainwrightError
from trainwright.doctor.context import Context, Finding

Check = Callable[[Context], Finding]

FIRST = ("engine", "buildx", "image_store", "tools")  # the others build on these


def _names() -> list[str]:
    names = {path.stem for path in Path(__file__).parent.glob("[a-z]*.py")} - {"context"}
    return sorted(names, key=lambda name: (FIRST.index(name) if name in FIRST else len(FIRST), name))


# Found in this folder, so that a new check is a new file and nothing else.
CHECKS: dict[str, Check] = {
    name.replace("_", " "): import_module(f"trainwright.doctor.{name}").check for name in _names()
}


def examine(root: Path, registry: str, ids: set[str] | None = None) -> list[Finding]:
    """Run all checks in this order, without a network.

    `registry` is REGISTRY, "" for the one on loopback; `ids` are the images to build, None for the default ones.
    """
    context = Context(root, registry, ids)
    return [_masked(_judge(name, check, context)) for name, check in CHECKS.items()]


def _judge(name: str, check: Check, context: Context) -> Finding:
    """Return one finding in any case: a check that raises must not hide the findings of the others."""
    try:
        return check(context)
    except TrainwrightError as error:
        state = "unknown" if isinstance(error, NotRunError) else "failed"
        found = ": ".join(filter(None, (error.what, error.where, error.why)))
        return Finding(check=name, state=state, found=found, fix=error.fix)
    except Exception as error:
        found = f"the check itself failed: {type(error).__name__}: {error}"
        return Finding(check=name, state="failed", found=found, fix="report it: this is a bug in trainwright")


def _masked(finding: Finding) -> Finding:
    """Return the finding on one line, without the credentials in addresses: user, password and query."""
    texts = {}
    for field in ("found", "fix"):
        line = " ".join(getattr(finding, field).split())
        texts[field] = re.sub(r"(://[^\s?]*)\?[^\s,]*", r"\1?***", re.sub(r"://\S*@", "://***@", line))
    return finding.model_copy(update=texts)
