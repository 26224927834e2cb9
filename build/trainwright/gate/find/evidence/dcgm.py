"""Ask NVIDIA's DCGM for its quick diagnostic (`dcgmi diag -r 1 -j`), once on each host that has it.

Read: output of DCGM 4 ("DCGM Diagnostic", results with entity_group and entity_id) and of DCGM 3 ("DCGM GPU
Diagnostic", results with gpu_id or gpu_ids). Its exit code is not 0 for a mere setting of the host either, so only
the text counts.
"""

import json
from collections.abc import Iterator
from typing import Any

from trainwright.core.progress import few
from trainwright.gate.find.evidence import Heard, absent
from trainwright.gate.find.model import Sign

NAME, ONCE = "dcgm", True
TITLE = "DCGM"
SHELL = r"""
if [ "$when" = before ]; then
  if command -v dcgmi >/dev/null 2>&1; then
    said=$(timeout 45 dcgmi diag -r 1 -j 2>&1 </dev/null) || [ $? != 124 ] || said='none: dcgmi did not end within 45 s'
    echo "witness dcgm $when $host $(tr '\r\n\t' '   ' <<<"$said")"
  else
    echo "witness dcgm $when $host none: no dcgmi on PATH"
  fi
fi
"""
ROOTS = ("DCGM Diagnostic", "DCGM GPU Diagnostic")
# A failure of this severity is a setting of the host (persistence mode, for one), which slows no collective.
SETTING = 5
SETTINGS = "Deployment"  # the category of such tests, for releases without severities
SHOWN = 3


def signs(heard: Heard) -> list[Sign]:
    """Return DCGM's verdict of each host that was asked in this run."""
    found = list[Sign]()
    for host in heard.hosts:
        lines = heard.said["before"].get(host, [])
        if not lines:
            continue  # asked in an earlier run
        state, what = ("not there", why) if (why := absent(lines)) else verdict(lines[0])
        found.append(Sign.model_validate({"source": NAME, "host": host, "state": state, "what": what}))
    return found


def verdict(text: str) -> tuple[str, str]:
    """Return the state and the sentence of one output."""
    try:
        start = text.index("{")
        data = json.JSONDecoder().raw_decode(text[start:])[0]
        root = next(data[name] for name in ROOTS if name in data)
        results = list(_results(root))
    except (ValueError, StopIteration, RecursionError, TypeError, AttributeError, KeyError):
        return "not there", f"dcgmi gave no result: {text.strip()[:160] or 'no output'}"
    if error := str(root.get("runtime_error", "")):
        return "not there", f"dcgmi gave no result: {error[:160]}"
    failed = [(name, one) for category, name, one in results if _fails(category, one)]
    if failed:
        return "bad", few([f"{name} {_entity(one)}: {_warning(one)}" for name, one in failed], SHOWN)
    passed = sum(str(one.get("status", "")).lower() == "pass" for *_, one in results)
    if not passed:
        return "not there", "dcgmi ran no test: all were skipped"
    return "fine", f"{passed} results passed"


def _results(root: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield category, test and each result; of a test without results its summary."""
    for category in root["test_categories"]:
        for test in category["tests"]:
            for one in test.get("results") or [test.get("test_summary") or {}]:
                yield str(category.get("category", "")), str(test.get("name", "")), one


def _fails(category: str, one: dict[str, Any]) -> bool:
    if str(one.get("status", "")).lower() != "fail":
        return False
    severities = [warning.get("error_severity") for warning in _warnings(one)]
    if None in severities or not severities:
        return category != SETTINGS
    return any(severity != SETTING for severity in severities)


def _warnings(one: dict[str, Any]) -> list[dict[str, Any]]:
    found = one.get("warnings") or []
    found = found if isinstance(found, list) else [found]
    return [warning if isinstance(warning, dict) else {"warning": str(warning)} for warning in found]


def _warning(one: dict[str, Any]) -> str:
    texts = [str(warning.get("warning", "")) for warning in _warnings(one)]
    return next(filter(None, texts), "failed")[:160]


def _entity(one: dict[str, Any]) -> str:
    number = one.get("entity_id", one.get("gpu_id", one.get("gpu_ids")))
    return f"{one.get('entity_group', 'GPU')} {number}" if number is not None else "of the host"
