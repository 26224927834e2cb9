"""`trainwright-check`: is this still what the image declares, and does the host offer what the job needs?

Both at once, because importing a framework takes seconds. The report goes to stderr, worst first; with --json it goes
to stdout. Ends with 5 where the image is not what it declares, with 10 where the host lacks something, with 2 for a
setting that says nothing sensible. TRAINWRIGHT_PREFLIGHT and TRAINWRIGHT_STARTUP_CHECK are refuse, warn or off.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import Counter
from contextlib import suppress
from dataclasses import asdict, replace
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from threading import Event
from types import ModuleType
from typing import Any

from findings import IMAGE, REFUSED, UNKNOWN, WARNING, WORST_FIRST, Case, Finding
from host_facts import background, gather, look_up
from job_settings import MODES, SettingError, Settings, one_of, settings
from judging import judge

OWN = Path(__file__).resolve().parent.parent  # /opt/trainwright
RESOURCES = Path("/opt/ml/input/config/resourceconfig.json")
BAD_SETTING = 2


def startup_check() -> ModuleType:
    """The other half of this command, which also runs alone."""
    spec = spec_from_file_location("startup_check", OWN / "startup_check.py")
    if spec is None or spec.loader is None:
        raise ImportError(f"no {OWN}/startup_check.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def read(path: Path) -> Any:
    return json.loads(path.read_text())


def resources() -> dict[str, Any]:
    """What SageMaker says of the job's hosts; {} where there is none of it."""
    with suppress(OSError, ValueError):
        found = read(RESOURCES)
        return found if isinstance(found, dict) else {}
    return {}


def on_host(chosen: Settings, data: dict[str, Any]) -> tuple[Case | str, float]:
    """What is there, but for other hosts' addresses, or why nobody knows; and the seconds that it took."""
    began = time.monotonic()
    components = read(OWN / "declared.json")["components"]
    try:
        facts = gather(chosen, components, read(OWN / "libraries.json"), data)
    except Exception as error:  # nothing was found out: no reason to stop a job, and none to call it good
        return f"it failed itself: {type(error).__name__}: {error}", 0
    return Case(facts, components, data), time.monotonic() - began


def several(chosen: Settings) -> bool:
    return len(chosen.hosts) > 1 and chosen.mode != "off"


def lines(findings: list[Finding], seconds: float) -> list[str]:
    """A table: level, check, what is said of it."""
    width = max((len(one.check) for one in findings), default=0)
    rows = [f"preflight: {one.level:<8} {one.check:<{width}}  {one.text()}" for one in findings]
    counted = Counter(one.level for one in findings)
    total = ", ".join(f"{counted[level]} {level}" for level in WORST_FIRST if counted[level])
    return [*rows, f"preflight: {total} ({seconds:.1f} s)"]


def main(words: list[str]) -> int:
    image = startup_check()
    if words[:1] in (["--record"], ["--libraries"]):
        return int(image.main(words))
    try:
        if words not in ([], ["--json"]):
            raise SettingError(f"it takes --json or nothing, not {' '.join(words)}")
        data = read(OWN / "preflight.json")
        chosen = settings(os.environ, resources(), data["local"], data["seconds"]["peers"])
        mode = one_of(os.environ, image.MODE, MODES)
    except SettingError as error:
        print(f"trainwright-check: {error}", file=sys.stderr)
        return BAD_SETTING
    began, stop = time.monotonic(), Event()
    host = background(lambda: on_host(chosen, data))
    names = background(lambda: look_up(chosen.peers, chosen.wait, data["seconds"], stop) if several(chosen) else None)
    differences, added = image.compare() if mode != "off" else ([], [])
    said, code = image.report(mode, differences, added, time.monotonic() - began)
    case, seconds = host()
    findings = []
    if isinstance(case, str):
        findings = [Finding("preflight", UNKNOWN, case)]
    elif chosen.mode != "off":
        refused_already = any(one.level == REFUSED for one in judge(case)) and chosen.mode == "refuse"
        if code or refused_already:
            stop.set()  # who is not going to start need not wait for others
        findings = judge(replace(case, facts=replace(case.facts, addresses=names())))
    if chosen.mode == "warn":
        findings = [replace(one, level=WARNING if one.level == REFUSED else one.level) for one in findings]
    refused = {one.code for one in findings if one.level == REFUSED}
    code = IMAGE if IMAGE in {code, *refused} else max(refused, default=code)
    if words:
        content = {
            "code": code,
            "findings": [asdict(one) for one in findings],
            "differences": differences,
            "seconds": round(seconds, 2),
        }
        print(json.dumps({**content, "added": added}, indent=1))
        return code
    report = lines(findings, seconds) if chosen.mode != "off" else ["preflight: not run, TRAINWRIGHT_PREFLIGHT=off"]
    if refused:
        report.append("preflight: TRAINWRIGHT_PREFLIGHT=warn starts it nevertheless")
    # Who reads only the start, as SageMaker's FailureReason does, reads why.
    ordered = [*said, *report] if differences else [*report, *said]
    print("\n".join(ordered), file=sys.stderr, flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
