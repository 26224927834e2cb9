"""Run `trainwright-check`: verify that the image still matches its declaration, and that the host can run the job.

Both checks run at the same time, because importing a framework takes seconds. The report goes to stderr, worst finding
first; with --json it goes to stdout. Exit codes: 5 for an image that differs from its declaration, 10 for a host that
lacks something, 2 for an invalid setting. TRAINWRIGHT_PREFLIGHT and TRAINWRIGHT_STARTUP_CHECK are refuse, warn or off.
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
    """Load startup_check.py, the check of the image, which can also run alone."""
    spec = spec_from_file_location("startup_check", OWN / "startup_check.py")
    if spec is None or spec.loader is None:
        raise ImportError(f"{OWN}/startup_check.py does not exist")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def read(path: Path) -> Any:
    return json.loads(path.read_text())


def resources() -> dict[str, Any]:
    """Return SageMaker's resourceconfig.json, or {} if it does not exist or is invalid."""
    with suppress(OSError, ValueError):
        found = read(RESOURCES)
        return found if isinstance(found, dict) else {}
    return {}


def on_host(chosen: Settings, data: dict[str, Any]) -> tuple[Case | str, float]:
    """Collect the facts of this host except its peers' addresses. Returns them, or an error text, and the seconds."""
    began = time.monotonic()
    components = read(OWN / "declared.json")["components"]
    try:
        facts = gather(chosen, components, read(OWN / "libraries.json"), data)
    except Exception as error:  # a defect of the preflight must not stop a job, but is reported as unknown, never as ok
        return f"the preflight itself failed: {type(error).__name__}: {error}", 0
    return Case(facts, components, data), time.monotonic() - began


def several(chosen: Settings) -> bool:
    return len(chosen.hosts) > 1 and chosen.mode != "off"


def lines(findings: list[Finding], seconds: float) -> list[str]:
    """Return the report: one row of level, check and text for each finding, then the totals."""
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
            raise SettingError(f"expected --json or no argument, found {' '.join(words)}")
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
            stop.set()  # this host will not start the job, so it need not wait for its peers' names
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
        report.append("preflight: TRAINWRIGHT_PREFLIGHT=warn starts the job nevertheless")
    # SageMaker's FailureReason shows only the beginning of this text, so the reason comes first.
    ordered = [*said, *report] if differences else [*report, *said]
    print("\n".join(ordered), file=sys.stderr, flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
