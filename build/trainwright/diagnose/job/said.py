"""Find the lines in which ranks and launchers speak of each other: who left, who was waited for, how many they are."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ahocorasick_rs import BytesAhoCorasick, Implementation

from trainwright.core.toml import Model, load
from trainwright.diagnose.anchors import literals
from trainwright.diagnose.causes import Expression
from trainwright.diagnose.log_lines import LOOKED_AT, unprefixed

FILE = "dockerfiles/diagnose-job.toml"


class Kind(Model):
    """Lines of one meaning; named groups of the expressions are what they say."""

    kind: str
    lines: list[Expression]


class Settings(Model):
    """The content of diagnose-job.toml."""

    consequences: list[str]  # ids of causes that tell what a rank noticed of another one
    kinds: list[Kind]


def load_settings(root: Path) -> Settings:
    return load(root / FILE, Settings)


@dataclass(frozen=True)
class Said:
    """One such line."""

    kind: str
    number: int  # in its stream
    values: dict[str, str]
    text: str


class Words:
    """The compiled expressions."""

    def __init__(self, settings: Settings) -> None:
        self._each = [(kind.kind, re.compile(text)) for kind in settings.kinds for text in kind.lines]
        anchors = dict[str, list[int]]()
        for number, (_, expression) in enumerate(self._each):
            for literal in literals(expression.pattern):
                anchors.setdefault(literal, []).append(number)
        self._behind = list(anchors.values())
        self._words = BytesAhoCorasick([one.encode() for one in anchors], implementation=Implementation.DFA)

    def found(self, data: bytes, before: int) -> Iterator[Said]:
        """Yield what whole lines say; `before` is the number of lines that came earlier."""
        counted, number, seen, end = 0, before + 1, set[int](), -1
        text = ""
        for index, at, to in self._words.find_matches_as_indexes(data, overlapping=True):
            if at >= end:
                start = data.rfind(b"\n", 0, at) + 1
                end = data.find(b"\n", to)
                end = len(data) if end < 0 else end
                number += data.count(b"\n", counted, start)
                counted, text, seen = start, "", set()
            if at - start > LOOKED_AT:
                continue
            for one in self._behind[index]:
                if one in seen:
                    continue
                seen.add(one)
                text = text or unprefixed(data[start : min(end, start + LOOKED_AT)].decode(errors="replace"))[0]
                kind, expression = self._each[one]
                if match := expression.search(text):
                    values = {name: value for name, value in match.groupdict().items() if value is not None}
                    yield Said(kind, number, values, text.strip()[:500])
