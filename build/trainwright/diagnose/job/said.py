"""Find the lines in which ranks and launchers speak of each other: who left, who was waited for, how many they are."""

import re
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from trainwright.core.toml import Model, load
from trainwright.diagnose.anchors import literals
from trainwright.diagnose.causes import LATER, Expression
from trainwright.diagnose.log_lines import LOOKED_AT, unprefixed
from trainwright.diagnose.reader import Block, Hit

FILE = "dockerfiles/diagnose-job.toml"
LAST = "step"  # the kind of which the last line of a rank counts alone


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
        self.words = [one.encode() for one in anchors]
        self._last = {  # of these the last one counts alone
            index for index, behind in enumerate(self._behind) if all(self._each[one][0] == LAST for one in behind)
        }

    def found(self, block: Block, hits: Iterable[Hit], first: int) -> Iterator[Said]:
        """Yield what the lines around words say; the words are numbered from `first` on."""
        seen, last, line = set[tuple[int, int]](), dict[int, deque[Hit]](), -1
        text = ""
        for index, at, to in hits:
            if index - first in self._last:
                last.setdefault(index, deque(maxlen=LATER)).append((index, at, to))
                continue
            start, end = block.line(at, to)
            if at - start > LOOKED_AT:
                continue
            if start != line:
                line, text = start, ""
            for one in self._behind[index - first]:
                if (start, one) not in seen:
                    seen.add((start, one))
                    text = text or _text(block, start, end)
                    if said := self._said(one, text, block, start):
                        yield said
        for index, at, to in sorted(chain.from_iterable(last.values()), key=lambda hit: hit[1]):
            start, end = block.line(at, to)
            for one in self._behind[index - first] if at - start <= LOOKED_AT else ():
                if said := self._said(one, _text(block, start, end), block, start):
                    yield said

    def _said(self, one: int, text: str, block: Block, start: int) -> Said | None:
        kind, expression = self._each[one]
        match = expression.search(text)
        if match is None:
            return None
        values = {name: value for name, value in match.groupdict().items() if value is not None}
        return Said(kind, block.number(start), values, text.strip()[:500])


def _text(block: Block, start: int, end: int) -> str:
    return unprefixed(block.data[start : min(end, start + LOOKED_AT)].decode(errors="replace"))[0]
