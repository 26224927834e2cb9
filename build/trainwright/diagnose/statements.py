"""Find what a program itself said was wrong, where no row knows it: its own error line, quoted."""

import re
from collections.abc import Iterator
from functools import lru_cache

from trainwright.core.errors import masked
from trainwright.diagnose.causes import ANY, MOST_TEXT, SURVIVED, Cause, Finding
from trainwright.diagnose.log_lines import LOOKED_AT, moment, unprefixed
from trainwright.diagnose.reader import BURST, Reader, Settings

STATED = "stated"  # the row for what a program says and no other row knows
MOST_TOLD = 300  # characters of a line in the answer's sentence


def statement(reader: Reader, rows: list[Finding]) -> Finding | None:
    """Return the first error that a program stated and did not survive, unless a row shows a cause before it."""
    row = next((cause for cause in reader.signatures.causes if cause.id == STATED), None)
    if row is None:
        return None
    forms = _forms(tuple((form.who, form.line, form.weak) for form in reader.settings.statements))
    weak: Finding | None = None
    for number, raw, text, rank in _candidates(reader, min((one.number for one in rows), default=None)):
        form = next((form for form in forms if form[1].search(text)), None)
        if form is None or (form[2] and (weak or _long_before_the_end(reader, number))):
            continue
        found = Finding(_quoting(row, form[0], text), number, [(number, masked(text[:MOST_TEXT]))], rank, moment(raw))
        if not form[2]:
            return found
        weak = found
    return weak


def _long_before_the_end(reader: Reader, number: int) -> bool:
    """Return whether a log goes on for many lines after one, and never says that the job failed."""
    failed = any(reader.conditions.at(text) for text in reader.settings.failed)
    return not failed and reader.lines - number > BURST


def symptoms(rows: list[Finding]) -> bool:
    """Return whether all of these say only that something else failed."""
    return all(ANY in one.cause.follows for one in rows)


def _candidates(reader: Reader, before: int | None) -> Iterator[tuple[int, str, str, str]]:
    """Yield number, line, text without prefixes, and rank of the lines that may state an error."""
    prefix, silent = re.compile(rf"^{reader.settings.statement_prefix}"), _silent(_unsaid(reader.settings))
    for number, raw, progress in [*reader.suspects, *reader.last_suspects]:
        if before is not None and number >= before:
            return
        if reader.conditions.progress - progress >= SURVIVED or number + 1 in reader.tracebacks.begun:
            continue  # survived, or the heading of a traceback, which says more
        line = raw[:LOOKED_AT].rpartition(b"\r")[2].decode(errors="replace")
        text, rank = unprefixed(line)
        text = prefix.sub("", text.strip(), count=1)
        if not text.startswith("##") and not silent.search(text):
            yield number, line, text, rank


def _quoting(row: Cause, who: str, text: str) -> Cause:
    """Return the row with the speaker and the line in its sentence."""
    told = masked(text[:MOST_TEXT])[:MOST_TOLD] + ("..." if len(text) > MOST_TOLD else "")
    return row.model_copy(update={"what": row.what.format(who=who, told=told)})


def _unsaid(settings: Settings) -> tuple[str, ...]:
    return (*settings.harmless, *settings.consequences, *settings.failed, *settings.wrappers)


@lru_cache(maxsize=4)
def _forms(forms: tuple[tuple[str, str, bool], ...]) -> list[tuple[str, re.Pattern[str], bool]]:
    return [(who, re.compile(line), weak) for who, line, weak in forms]


@lru_cache(maxsize=4)
def _silent(texts: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{text})" for text in texts))
