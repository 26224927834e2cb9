"""Write verdicts as JUnit XML for tools that display test results: one suite per log, one case per check.

Because readers ignore skipped cases (`not applicable`), `not established` is written as an error.
"""

import re
from collections import Counter
from collections.abc import Sequence
from xml.etree import ElementTree

from trainwright.gate.judge import Verdict

ELEMENTS = {"fail": "failure", "not established": "error", "not applicable": "skipped"}
COUNTED = {"failures": "fail", "errors": "not established", "skipped": "not applicable"}
FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # in XML 1.0, also as a reference


def xml(found: Sequence[Verdict]) -> str:
    """Return the whole file."""
    suites = ElementTree.Element("testsuites", name="trainwright judge")
    total = Counter[str]()
    for verdict in found:
        states = Counter[str](check.state for check in verdict.checks)
        counts = {name: states[state] for name, state in COUNTED.items()} | {"tests": len(verdict.checks)}
        total.update(counts)
        suite = _under(suites, "testsuite", name=verdict.file, **{name: str(n) for name, n in counts.items()})
        said = {"verdict": verdict.verdict, "cause": verdict.cause or "", "image": verdict.image, "fix": verdict.fix}
        properties = _under(suite, "properties")
        for name, value in said.items():
            _under(properties, "property", name=name, value=value)
        for check in verdict.checks:
            case = _under(suite, "testcase", classname=verdict.file, name=check.name)
            if element := ELEMENTS.get(check.state):
                message = f"{check.state}: {check.evidence}"
                _under(case, element, message=message, type=check.state).text = printable(message)
            else:
                _under(case, "system-out").text = printable(check.evidence)
    suites.attrib.update({name: str(total[name]) for name in ("tests", *COUNTED)})
    ElementTree.indent(suites)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{ElementTree.tostring(suites, encoding="unicode")}\n'


def printable(text: str) -> str:
    """Replace characters that XML 1.0 forbids with U+FFFD."""
    return FORBIDDEN.sub("\ufffd", text)


def _under(parent: ElementTree.Element, tag: str, **attributes: str) -> ElementTree.Element:
    return ElementTree.SubElement(parent, tag, {name: printable(value) for name, value in attributes.items()})
