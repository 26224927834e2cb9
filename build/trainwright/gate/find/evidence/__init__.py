"""What else speaks of a host than its speed: one module for each kind of evidence, found by its name.

A module has `SHELL`, text for bash that each host runs before and after a run ($when, $host), which prints lines
`witness NAME before|after HOST ...`; `ONCE`, whether that is asked of each host only once; `TITLE`, what people call
it; and `signs(heard)`, what a run says of its hosts. A host without such evidence gets the state "not there", which has
no weight.
"""

import importlib
import pkgutil
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from trainwright.gate.find.model import Evidence, Sign

MARK = "witnesses() { :; }"  # in gate.sh
LINE = re.compile(r"^witness (\w+) (before|after) (\S+) (.*)$")


@dataclass(frozen=True)
class Heard:
    """What the log of a run has for one kind of evidence."""

    hosts: list[str]
    said: dict[str, dict[str, list[str]]]  # before or after, host, its lines
    log: list[str]
    settings: Evidence


def kinds() -> dict[str, ModuleType]:
    """Return the modules of evidence by name."""
    names = sorted(one.name for one in pkgutil.iter_modules(__path__))
    return {name: importlib.import_module(f"{__name__}.{name}") for name in names}


def title(kind: str) -> str:
    """Return the title of a kind of evidence; of an unknown kind, from an older record, its name."""
    return str(kinds()[kind].TITLE) if kind in kinds() else kind


def asked(script: str, first: bool) -> str:
    """Return gate.sh with what the hosts are asked. `first`: these hosts were not asked before."""
    parts = [f"(\n{one.SHELL}) || true" for one in kinds().values() if one.SHELL and (first or not one.ONCE)]
    body = "\n".join(["witnesses() {", "local when=$1 host=${SLURMD_NODENAME:-$2}", *parts, "}"])
    return script.replace(MARK, body, 1)


def of_run(log: Path, hosts: Sequence[str], reached: Sequence[str], settings: Evidence) -> list[Sign]:
    """Return what the log of a run says of its hosts, which its lines call by `reached`, or by their host names."""
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    found = list[Sign]()
    for name, module in kinds().items():
        said: dict[str, dict[str, list[str]]] = {"before": {}, "after": {}}
        for line in lines:
            if (one := LINE.match(line)) and one[1] == name and (host := _host(one[3], hosts, reached)):
                said[one[2]].setdefault(host, []).append(one[4])
        found += module.signs(Heard(list(hosts), said, lines, settings))
    return found


def _host(word: str, hosts: Sequence[str], reached: Sequence[str]) -> str:
    """Return the host that a line is of: a single one has no other name than its own."""
    if len(hosts) == 1:
        return hosts[0]
    called = {name: [_plain(name), _short(name)] for name in (word, *hosts, *reached)}
    for form in (0, 1):
        for host, name in zip(hosts, reached, strict=True):
            if called[word][form] in (called[name][form], called[host][form]):
                return host
    return ""


def _plain(name: str) -> str:
    return name.rpartition("@")[2]


def _short(name: str) -> str:
    return _plain(name).partition(".")[0]


def absent(said: Iterable[str]) -> str:
    """Return why a host has nothing to say, if its first line says so."""
    line = next(iter(said), "none: it was not asked, or did not answer")
    return line.removeprefix("none: ") if line.startswith("none: ") else ""
