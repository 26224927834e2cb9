"""Find what a program itself said was wrong, where no row knows it: its own error line, quoted."""

import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from trainwright.core.errors import masked
from trainwright.diagnose.causes import ANY, MOST_TEXT, SURVIVED, Cause, Finding
from trainwright.diagnose.log_lines import last_drawn, moment, unprefixed
from trainwright.diagnose.reader import BURST, STRENGTHS, Reader, Settings, Strength, shape
from trainwright.diagnose.survival import (
    CALM_SOFT,
    CALM_STATED,
    LONG,
    QUIET,
    closes,
    failed_lines,
    last_failure,
    last_run,
    last_success,
    said_to_fail,
    several,
    went_on,
)

STATED = "stated"  # the row for what a program says and no other row knows
END = 8  # lines at the end of a log in which any complaint may be the reason
BEFORE = 25  # the same before a line that says that the job failed
OFTEN = 3  # so many error lines of one shape, far from each other, show that none of them ended the program
SAID = re.compile(r"[^\W\d_]{2,}")  # a word of any language; one alone is a level, and says nothing
WORDS = re.compile(r"(?<![\w-])(?:[A-Z]?[a-z]{2,}|[A-Z]{2,})(?![\w-])")
LOWERCASE = re.compile(r"(?<![\w-])[a-z]{2,}(?![\w-])")
MOST_TOLD = 300  # characters of a line in the answer's sentence
MORE, MOST_MORE = 2, 150  # further lines that are quoted with it, and characters of each in the sentence


class _Form(NamedTuple):
    who: str
    line: re.Pattern[str]
    strength: Strength


def statement(
    reader: Reader,
    rows: list[Finding],
    survived: list[Finding],
    strengths: tuple[Strength, ...] = STRENGTHS,
    since: int = 0,
) -> Finding | None:
    """Return the first error that a program stated and did not survive, unless a row shows a cause before it.

    `survived` are the causes that ended nothing: their lines are not quoted either. `strengths` are those of the forms
    that count, the strongest first; `since` is the line behind which one must stand.
    """
    row = next((cause for cause in reader.signatures.causes if cause.id == STATED), None)
    if row is None:
        return None
    forms = _compiled(tuple((form.who, form.line, form.strength) for form in reader.settings.statements))
    lists = _repeated(reader, END, _without_names)
    repeated = set[str]() if said_to_fail(reader) else _repeated(reader, BURST, _kind)
    found = defaultdict[str, list[Finding]](list)
    for number, raw, text, rank in _candidates(reader, since, min((one.number for one in rows), default=None)):
        whole, _ = unprefixed(raw)  # a form of the strength "last" leaves out lines with a clock of the kernel
        form = next((one for one in forms if one.line.search(whole if one.strength == "last" else text)), None)
        if form is None or _outlived(reader, number, form.strength, rank):
            continue
        if _without_names(text) in lists if form.strength == "last" else _kind(text) in repeated:
            continue
        if any(re.search(line, text) for one in survived for line in one.cause.lines[:1]):
            continue
        quoted = _quoting(row, form.who, text)
        found[form.strength].append(Finding(quoted, number, [(number, masked(text)[:MOST_TEXT])], rank, moment(raw)))
    first = next((one for strength in strengths if (one := _first_of_the_end(reader, found[strength]))), None)
    every = sorted((one for some in found.values() for one in some), key=lambda one: one.number)
    return _with_more(first, every) if first else None


def _with_more(first: Finding, found: list[Finding]) -> Finding:
    """Add the next complaints in other words to a finding, because each of them may be the reason."""
    kinds, more = {_kind(first.evidence[0][1])}, list[tuple[int, str]]()
    for one in found:
        number, text = one.evidence[0]
        said = " ".join(told for _, told in [*first.evidence, *more])
        if (
            number > first.number
            and len(more) < MORE
            and not said.endswith(text)
            and (kind := _kind(text)) not in kinds
        ):
            kinds.add(kind)
            more.append((number, text))
    if not more:
        return first
    told = "; ".join(text[:MOST_MORE] for _, text in more)
    cause = first.cause.model_copy(update={"what": f"{first.cause.what}; and then: {told}"})
    return replace(first, cause=cause, evidence=[*first.evidence, *more])


def _outlived(reader: Reader, number: int, strength: Strength, rank: str) -> bool:
    """Return whether the log shows that the program survived an error line.

    After a line with a rank's label the other ranks go on for a while, so more lines must follow.
    """
    if strength == "last":
        failed = any(number < line <= number + BEFORE for line in failed_lines(reader))
        return not failed and reader.lines - number > END
    if went_on(reader, number, BURST if strength == "weak" else LONG):
        return True
    most = QUIET if rank else CALM_SOFT if strength == "weak" else CALM_STATED
    calm = reader.lines - max(number, reader.complaint) > most
    over = calm or (strength == "weak" and closes(reader, number))
    return over and not said_to_fail(reader, number)


def _first_of_the_end(reader: Reader, found: list[Finding]) -> Finding | None:
    """Return the first of these, or, of a single process that said more long after it, the first of its last ones."""
    if several(reader):
        return found[0] if found else None
    first = None
    for one in reversed(found):
        if first and first.number - one.number > BURST:
            break
        first = one
    return first


def _repeated(reader: Reader, apart: int, kind: Callable[[str], str]) -> set[str]:
    """Return the kinds of suspicious lines that come again and again, over so many lines: none was the end."""
    numbers, since = defaultdict[str, list[int]](list), last_run(reader)
    for number, raw, _ in [*reader.suspects, *reader.last_suspects]:
        if number < since:
            continue
        numbers[kind(unprefixed(last_drawn(raw))[0])].append(number)
    return {one for one, all_ in numbers.items() if len(all_) >= OFTEN and all_[-1] - all_[0] > apart}


def _kind(text: str) -> str:
    """Return what a line has in common with others that differ from it in numbers and names."""
    head = WORDS.findall(text.partition(":")[0])
    words = head if len(head) > 2 else WORDS.findall(text)
    return " ".join(words) if len(words) > 1 else shape(text)


def _without_names(text: str) -> str:
    """Return the lowercase words of a line, which a list repeats with other names."""
    words = LOWERCASE.findall(text)
    return " ".join(words) if len(words) > 1 else shape(text)


def symptoms(rows: list[Finding]) -> bool:
    """Return whether all of these say only that something else failed."""
    return all(ANY in one.cause.follows for one in rows)


def _candidates(reader: Reader, behind: int, before: int | None) -> Iterator[tuple[int, str, str, str]]:
    """Yield number, line, text without prefixes, and rank of the lines between two that may state an error."""
    prefix, silent = re.compile(rf"^{reader.settings.statement_prefix}"), _silent(_unsaid(reader.settings))
    since = max(behind + 1, last_run(reader), last_failure(reader), 0 if several(reader) else last_success(reader))
    handled = [range(one.begun, one.number + 1) for one in reader.tracebacks.found if one.handled]
    for number, raw, progress in [*reader.suspects, *reader.last_suspects]:
        if before is not None and number >= before:
            return
        if number < since or number in reader.tracebacks.harmless or any(number in span for span in handled):
            continue
        if reader.conditions.progress - progress >= SURVIVED or number + 1 in reader.tracebacks.begun:
            continue  # survived, or the heading of a traceback, which says more
        line = last_drawn(raw)
        text, rank = unprefixed(line)
        text = prefix.sub("", text.strip(), count=1)
        # Nor what only says that another failed, or a level alone.
        if not text.startswith("##") and not silent.search(text) and len(SAID.findall(text)) > 1:
            yield number, line, text, rank


def _quoting(row: Cause, who: str, text: str) -> Cause:
    """Return the row with the speaker and the line in its sentence."""
    told = masked(text)[:MOST_TOLD] + ("..." if len(text) > MOST_TOLD else "")
    return row.model_copy(update={"what": row.what.format(who=who, told=told)})


def _unsaid(settings: Settings) -> tuple[str, ...]:
    return (
        *settings.harmless,
        *settings.recovered,
        *settings.consequences,
        *settings.failed,
        *settings.wrappers,
        settings.raised_again,
        *settings.informative,
    )


@lru_cache(maxsize=4)
def _compiled(forms: tuple[tuple[str, str, Strength], ...]) -> list[_Form]:
    return [_Form(who, re.compile(line), strength) for who, line, strength in forms]


@lru_cache(maxsize=4)
def _silent(texts: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{text})" for text in texts))
