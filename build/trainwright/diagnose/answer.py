"""Decide what a log says: its first cause and what followed from it, that all went well, or that nothing is proved."""

import re
from dataclasses import dataclass, field, replace
from typing import Literal

from trainwright.core.errors import masked
from trainwright.core.progress import counted
from trainwright.diagnose.causes import ANY, MOST_TEXT, SURVIVED, Finding, ordered
from trainwright.diagnose.log_lines import last_drawn, unprefixed
from trainwright.diagnose.reader import BURST, STRENGTHS, Reader
from trainwright.diagnose.statements import STATED, statement, symptoms
from trainwright.diagnose.survival import (
    CALM_FATAL,
    CALM_SOFT,
    FAR,
    LONG,
    NEAR,
    calm_since,
    complains,
    failed_lines,
    informs,
    last_failure,
    last_met,
    last_run,
    last_success,
    recovers,
    said_to_fail,
    several,
    warns,
    went_on,
)
from trainwright.diagnose.tracebacks import CHAINED, Exception_, on_rank

EXCEPTION = "exception"  # the row for what a script raises and no other row knows
MOST_TOLD = 300  # characters of what a program said
SHOWN = 4  # suspicious lines
LAST = 3  # lines at the end of a log
WORD = 5  # the same, for the word of what ran the program; and lines before it in which a failure counts more
BEHIND = 20  # lines below an exception at a program's top level: the rest of its message, the last words of trackers
GONE_ON = 20  # lines after the training which show that a job was not over when it was cancelled
CLOSE = 5  # lines from a program's own word to the crash that it explains
SHORTLY = 10  # lines before an end from outside: a shell's error further above did not end the script
MOST_BELOW = 2  # lines that a decisive line leads to
MOST_THEN = 4  # consequences that are named


@dataclass
class Answer:
    """The answer for one log."""

    state: Literal["cause", "none", "unknown"]
    finding: Finding | None = None
    what: str = ""
    evidence: str = ""
    fix: str = ""
    place: str = ""
    then: list[str] = field(default_factory=list)


def answer(reader: Reader, hosts: int = 0, failed: bool = False) -> Answer:
    """Return the answer; `hosts` is the job's number of hosts if known, `failed` that it is known to have failed."""
    place = _place(reader)
    hosts = hosts or max(reader.seen.nodes, default=0)
    rows = found(reader, hosts)
    passed, broken = last_met(reader, reader.settings.passed), last_met(reader, reader.settings.failed)
    caught = 0 if several(reader) else last_success(reader)
    if broken is not None and (broken < max(last_run(reader), _retried(reader, rows), caught) or _goes_on(reader)):
        broken = None
    if passed is not None and (passed < last_run(reader) or any(_cut_short(reader, one, passed) for one in rows)):
        passed = None
    if broken is None and _ended_well(reader, rows):
        passed = reader.lines
    well = (
        passed is not None
        and not failed
        and (broken is None or broken < passed)
        and not _ends_in_traceback(reader, passed)
        and not any(_ended_by(reader, one, passed) for one in rows)
        and not _stated_behind(reader, rows, passed)
    )
    alive = [one for one in rows if not one.survived or one.cause.slows]
    if well:  # a cause that only slows a job is one all the same, and so is what no program survives
        alive = [one for one in alive if one.cause.slows or one.cause.stops]
    else:
        alive = _reasons(reader, rows, alive, broken, failed)
    if alive:
        first = alive[0]
        then = [f"{one.cause.id} (line {one.number})" for one in alive[1:] if one.cause.id != first.cause.id]
        return Answer(
            "cause",
            first,
            sentence(reader, first),
            _told_on(reader, first),
            first.cause.fixes.get(place, first.cause.fix),
            place,
            list(dict.fromkeys(then))[:MOST_THEN],
        )
    if well:
        return Answer("none", place=place)
    return _unknown(reader, place, broken is not None or failed)


def _told_on(reader: Reader, first: Finding) -> str:
    """Return the lines of a finding; if one ends in the middle of a sentence, also what stands right below it."""
    told, (number, text) = first.told, first.evidence[-1]
    below = {at: raw for at, raw, _ in [*reader.suspects, *reader.last_suspects]}
    for at in range(number + 1, number + 1 + MOST_BELOW):
        if not text.rstrip().endswith((":", " for")) or at not in below:
            break
        text = masked(unprefixed(last_drawn(below[at]))[0].strip())[:MOST_TEXT]
        told += f"; line {at}: {text}"
    return told


def raised_around(reader: Reader, one: Finding) -> Exception_ | None:
    """Return the exception in whose traceback a row's line stands, but not one that only passes on another."""
    around = (each for each in reader.tracebacks.found if each.begun <= one.number <= each.number)
    return next((each for each in around if not _passes_on(reader, each)), None)


def _passes_on(reader: Reader, one: Exception_) -> bool:
    return any(re.search(text, one.text) for text in reader.settings.wrappers)


def sentence(reader: Reader, one: Finding) -> str:
    """Return what a finding means and, for a row that knows an exception, where the script raised it."""
    within = raised_around(reader, one)
    if one.cause.id == EXCEPTION:  # its sentence says where
        return one.cause.what
    if not within or not within.where:
        return f"{one.cause.what}; {on_rank(one.rank)}" if one.rank else one.cause.what
    return f"{one.cause.what}; raised at {_on_rank(within.where, within.rank)}"


def _reasons(
    reader: Reader, rows: list[Finding], alive: list[Finding], broken: int | None, failed: bool
) -> list[Finding]:
    """Return what a log shows of a failure, the reason first; `alive` are the rows that the program did not survive."""
    survived = [one for one in rows if one.survived]
    if not alive and (failed or broken is not None):
        last = _lone(reader, rows)[-1:] or [one for one in [statement(reader, [], survived)] if one]
        alive = last or [one for one in rows if one.number >= last_run(reader)]
    if not alive:
        alive = _lone(reader, rows)[:1]
    elif broken is not None and symptoms(alive):
        # An exception without its traceback, before what others noticed, and the job is said to have failed after it.
        before = min(broken, *(one.number for one in alive))
        alive = [one for one in _lone(reader, rows) if one.number < before][-1:] + alive
    alive = sorted(alive, key=lambda one: _only_warned(reader, one, alive))
    if stated := _stated_before(reader, alive, survived):
        alive = [stated, *alive]
    return alive or _lone(reader, rows, again=True)[:1]


def _ended_well(reader: Reader, rows: list[Finding]) -> bool:
    """Return whether a log ends with the word of what ran the program: status 0, with no failure just before it.

    A pipeline ends with the status of its last part, so a traceback or fatal cause just before it counts more.
    """
    over = last_met(reader, reader.settings.ended)
    if over is None or reader.lines - over >= WORD or reader.complaint > over:
        return False
    fatal = (one for one in rows if one.cause.fatal and not one.survived and not one.cause.outside)
    ends = [(_last_line(reader, one)[0], WORD) for one in fatal]
    ends += [(one.number, BEHIND if one.program else WORD) for one in reader.tracebacks.found if not one.handled]
    return not any(over - most <= number < over for number, most in ends)


def _retried(reader: Reader, rows: list[Finding]) -> int:
    """Return the last line that shows a later try after a cause; 0 for none."""
    tries = ((last_met(reader, one.cause.until) or 0, _last_line(reader, one)[0]) for one in rows)
    return max((tried for tried, failed in tries if tried > failed), default=0)


def _goes_on(reader: Reader) -> bool:
    """Return whether the log of one process shows progress after the last line which says that the job failed."""
    failed = [text for text in reader.settings.failed if reader.conditions.at(text)]
    at = max((reader.conditions.last(text)[1] for text in failed), default=0)
    return not several(reader) and reader.conditions.progress - at >= SURVIVED


def _only_warned(reader: Reader, one: Finding, others: list[Finding]) -> bool:
    """Return whether a line says itself that it only warns, and the program failed for another reason after it."""
    return warns(reader, one.evidence[0][1]) and any(
        other.number > one.number and not warns(reader, other.evidence[0][1]) and not symptoms([other])
        for other in others
    )


def _stated_before(reader: Reader, alive: list[Finding], survived: list[Finding]) -> Finding | None:
    """Return the error that a program stated before causes which only follow, or shortly before one that may follow.

    An exception after a step of a job script had failed may follow, too: it lacks what that step did not write.
    """
    if symptoms(alive):
        return statement(reader, alive, survived)
    first = alive[0]
    if first.cause.id == EXCEPTION and re.search(reader.settings.lacking, first.told):
        within = raised_around(reader, first)
        ends = [line for line in failed_lines(reader) if line < (within.begun if within else first.number)]
    elif STATED in first.cause.follows:
        ends = [first.number]
    else:
        return None
    found = statement(reader, alive[:1], survived, STRENGTHS[:1])
    return found if found and any(0 < end - found.number <= CLOSE for end in ends) else None


def ends_in_failure(reader: Reader) -> bool:
    """Return whether a log ends with a traceback, or with a cause that ends programs in its last lines."""
    fatal = (
        one for one in found(reader) if one.cause.fatal and not one.survived and (one.cause.stops or one.cause.outside)
    )
    return _ends_in_traceback(reader, 0) or any(_ends(reader, 0, _last_line(reader, one)[0]) for one in fatal)


def _ends_in_traceback(reader: Reader, since: int) -> bool:
    """Return whether a log ends with a traceback that stands behind a line, and is the reason of something.

    What threads raise while the process ends, and what only passes on another failure, does not count. More may stand
    below one that ends a program at its top level: the rest of its message, trackers' last words.
    """
    return any(
        _ends(reader, since, one.number, BEHIND if one.program else 2 * LAST)
        and one.kind not in reader.settings.late
        and not one.handled
        and not _passes_on(reader, one)
        for one in reader.tracebacks.found
    )


def _stated_behind(reader: Reader, rows: list[Finding], passed: int) -> bool:
    """Return whether one of a log's last lines, behind the word that all went well, states an error."""
    if reader.complaint <= passed or reader.lines - reader.complaint >= WORD:
        return False
    survived = [one for one in rows if one.survived]
    return statement(reader, [], survived, STRENGTHS[:1], since=passed) is not None


def _ended_by(reader: Reader, one: Finding, since: int) -> bool:
    """Return whether a cause stands behind a line, and can have been the program's own end.

    What ended it from outside counts only where the program had gone on: a job that is over is often cancelled.
    """
    if not one.cause.fatal or one.survived:
        return False
    number = _last_line(reader, one)[0]
    return number > since + GONE_ON if one.cause.outside else _ends(reader, since, number, SHORTLY)


def _cut_short(reader: Reader, one: Finding, passed: int) -> bool:
    """Return whether what ended a program from outside stands right before its word that it is done."""
    return one.cause.outside and not one.survived and 0 < passed - _last_line(reader, one)[0] <= NEAR


def _ends(reader: Reader, since: int, number: int, most: int = LAST) -> bool:
    """Return whether a line is among a log's last ones, and behind another one."""
    return number > since and reader.lines - number < most


def found(reader: Reader, hosts: int = 0) -> list[Finding]:
    """Return all causes that the log shows, what came first first."""
    rows = [one for one in reader.signatures.findings if not (one.cause.network and hosts == 1)]
    raised = [*reader.tracebacks.begins_chain, *reader.tracebacks.found]
    judged = [_judged(reader, one) for one in [*rows, *_findings(reader, raised, rows)]]
    return ordered(_before_the_end(reader, judged))


def _ended_program(reader: Reader, one: Exception_) -> bool:
    """Return whether a log ends with a traceback that begins at a program's top level."""
    return bool(one.program) and reader.lines - one.number < BEHIND


def _of_last_run(reader: Reader, one: Finding) -> Finding:
    """Return a finding of an earlier run of the program as survived, and one of all runs with its line of the last."""
    since = max(last_run(reader), last_failure(reader))
    if one.number >= since:
        return one
    number, text = _last_line(reader, one)
    if number < since:
        return replace(one, survived=True)
    return replace(one, number=number, evidence=[(number, text), *one.evidence[1:]])


def _last_line(reader: Reader, one: Finding) -> tuple[int, str]:
    """Return the last line that decides a finding."""
    if not one.cause.lines:
        return one.evidence[0]
    number, _, text = reader.conditions.last(one.cause.lines[0])
    return number, text


def _judged(reader: Reader, one: Finding) -> Finding:
    """Return a finding as survived if its line says so itself, or much comes after it and says of no failure."""
    within = raised_around(reader, one)
    if within and within.handled and not one.cause.stops:
        later = raised_around(reader, replace(one, number=_last_line(reader, one)[0]))
        # It was the end, whatever the line above says, if nothing stands below it.
        if later and later.handled and (reader.conditions.progress > later.progress or reader.lines > later.number + 1):
            return replace(one, survived=True)
    if within and _ended_program(reader, within):  # what it printed before may stand behind its traceback
        one = replace(one, survived=False)
    one = _of_last_run(reader, one)
    behind = _last_line(reader, one)[0]
    if (last_met(reader, one.cause.until) or 0) > behind:
        return replace(one, survived=True)
    if one.cause.stops or one.cause.slows:
        return one
    # A server that a container starts after a program which ended at its top level proves nothing of that program.
    of_program = within is not None and bool(within.program)
    success = last_met(reader, reader.settings.later_success) if of_program else last_success(reader)
    if (success or 0) > behind and not several(reader):
        return replace(one, survived=True)
    last, text = _last_line(reader, one)
    if last - one.number > BURST and not several(reader):  # one process survived the first of them
        one = replace(one, number=last, evidence=[(last, text), *one.evidence[1:]], when=None)
    ended = within and _ended_program(reader, within)  # whatever the exception's own words say
    if not ended and recovers(reader, one.evidence[0][1]) and recovers(reader, text):
        return replace(one, survived=True)
    if said_to_fail(reader, last):
        return one
    only_informs = one.cause.fatal and informs(reader, one.evidence[0][1])
    soft = bool(within and within.caught) if one.cause.id == EXCEPTION else not one.cause.fatal
    calm = CALM_SOFT if soft else CALM_FATAL
    quiet = calm_since(reader, last, calm) or (went_on(reader, last, LONG) and not complains(reader))
    return replace(one, survived=True) if only_informs or quiet or went_on(reader, last, FAR) else one


def _before_the_end(reader: Reader, rows: list[Finding]) -> list[Finding]:
    """Return as survived what one process printed long before it was ended from outside: it still ran then.

    Of what a script may go on after, a few lines before are long before.
    """
    ends = [_last_line(reader, one)[0] for one in rows if one.cause.outside and not one.survived]
    if not ends or several(reader):
        return rows

    def long_before(one: Finding) -> int:
        within = raised_around(reader, one)
        soft = (within and within.caught) or (not one.cause.fatal and ANY in one.cause.follows)
        return SHORTLY if soft else BURST

    return [
        one
        if one.cause.outside or one.cause.slows or _last_line(reader, one)[0] > max(ends) - long_before(one)
        else replace(one, survived=True)
        for one in rows
    ]


def _unknown(reader: Reader, place: str, broken: bool) -> Answer:
    fix = next((one.next for one in reader.settings.places if one.id == place), reader.settings.otherwise)
    if reader.binary:
        return Answer("unknown", what="it is not text", fix="pass the log that the job wrote", place=place)
    if not reader.lines:
        return Answer("unknown", what="the log is empty", fix=fix, place=place)
    lines = reader.suspicious(SHOWN)
    evidence = "\n".join(f"line {number}: {text}" for number, text in lines)
    if lines:
        what = "no line proves a cause; these look most like the reason"
        if reader.lines - max(number for number, _ in lines) >= WORD and not broken:
            what += ", but the log goes on after them"
    elif broken:
        what = "no line proves a cause, but the log says that the job failed"
    else:
        what = f"of its {counted(reader.lines, 'line')} none reports an error, and none says that the job ended well"
    return Answer("unknown", what=what, evidence=evidence, fix=fix, place=place)


def _place(reader: Reader) -> str:
    for place in reader.settings.places:
        if any(reader.conditions.at(line) for line in place.lines):
            return place.id
    return ""


def _findings(reader: Reader, exceptions: list[Exception_], rows: list[Finding], again: bool = False) -> list[Finding]:
    """Return the exceptions that no row explains; with `again` also those that pass on another one."""
    row = next((cause for cause in reader.signatures.causes if cause.id == EXCEPTION), None)
    if row is None:
        return []
    texts = reader.conditions.texts
    explained = {texts.index(line) for one in rows for line in one.cause.lines}
    found = list[Finding]()
    passed_on = [*reader.settings.wrappers, *([] if again else [reader.settings.raised_again])]
    for one in exceptions:
        if any(re.search(text, one.text) for text in passed_on) or _explains(reader, explained, one):
            continue
        survived = reader.conditions.progress - one.progress >= SURVIVED
        led = _led_to(reader, one, exceptions)
        if (
            led
            and re.search(reader.settings.tried, one.text)
            and not any(re.search(text, led.text) for text in passed_on)
        ):
            continue  # what followed says more, and has an answer of its own
        told = _told(one) + (f", which led to {_said(led)}" if led and _said(led) != _said(one) else "")
        cause = row.model_copy(update={"what": row.what.format(told=told)})
        evidence = [(one.number, one.text)]
        found.append(Finding(cause, one.number, evidence, one.rank, one.when, survived))
    return found


def _lone(reader: Reader, rows: list[Finding], again: bool = False) -> list[Finding]:
    """Return the exceptions without a traceback that the program did not survive."""
    found = (_judged(reader, one) for one in _findings(reader, reader.tracebacks.lone, rows, again))
    return [one for one in found if not one.survived]


def _explains(reader: Reader, explained: set[int], one: Exception_) -> bool:
    """Return whether a found cause stands in the exception's traceback, its line, or the rest of its message.

    Ranks that raise the same exception at once write into each other's lines, so that a row knows only some of them.
    """
    if one.kind in reader.settings.telling:
        met = (met for number, met in reader.conditions.met.items() if number in explained)
        if any(one.kind in line.text and abs(line.number - one.number) <= NEAR for line in met):
            return True
    if any(reader.conditions.each[number].search(one.text) for number in explained):
        return True
    return any(
        one.begun <= met.number <= one.number for number, met in reader.conditions.met.items() if number in explained
    )


def _led_to(reader: Reader, one: Exception_, exceptions: list[Exception_]) -> Exception_ | None:
    """Return the last exception of the chain that begins with one: raised while another was handled."""
    last = one
    for other in exceptions:
        if other.rank != one.rank or other.begun <= last.number:
            continue
        if other.begun - last.number != CHAINED and not reader.tracebacks.follows(other.begun):
            break
        last = other
    return last if last is not one else None


def _said(one: Exception_) -> str:
    said = f"{one.kind}: {one.message}" if one.message else one.kind
    return said if len(said) <= MOST_TOLD else f"{said[:MOST_TOLD]}..."


def _told(one: Exception_) -> str:
    return _on_rank(", at ".join(filter(None, [_said(one), one.where])), one.rank)


def _on_rank(told: str, rank: str) -> str:
    return f"{told}, {on_rank(rank)}" if rank else told
