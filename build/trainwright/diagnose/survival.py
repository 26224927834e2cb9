"""Tell whether a program, or what was run after it, went on after an error: by what its log says from there on."""

import re
from functools import lru_cache
from itertools import pairwise

from trainwright.diagnose.reader import BURST, Reader
from trainwright.diagnose.tracebacks import CHAINED

LONG = 5 * BURST  # lines after an error line, with nothing said to fail after it, which show that the program went on
FAR = 2000  # lines after a cause, with nothing said to fail in them, which show that the program went on
# Lines at the end of one process's log, without a complaint, which show that it survived an error before them.
CALM_FATAL = 130  # after what seldom leaves a program alive: a tracker's summary alone may have more than a hundred
CALM_SOFT = 20  # after what a script often survives
QUIET = BURST  # the same of several processes
CALM_STATED = 40  # after an error line that no row knows and no rank wrote: a stack trace may follow, or nvidia-smi
NEAR = 40  # lines between the exceptions of one failure: those of other ranks, of other threads, of a chain
PRINTED = 2  # lines below a prompt which show that what was started there ran
BEGUN = 20  # lines of a run that may not have come to its failure yet


def said_to_fail(reader: Reader, since: int = 0) -> bool:
    """Return whether a line near `since` or after it says that the job failed. Far behind, it counts if several write.

    It may stand a little before, because two streams are mixed. Of each such sentence the first and the last count.
    """
    numbers = [number for number in failed_lines(reader) if number > since - BURST]
    return bool(numbers) and (min(numbers) - since <= FAR or since == 0 or several(reader))


def failed_lines(reader: Reader) -> list[int]:
    """Return the first and the last line of each sentence that says that the job failed."""
    return [
        number
        for text in reader.settings.failed
        if (met := reader.conditions.at(text))
        for number in (met.number, reader.conditions.last(text)[0])
    ]


def went_on(reader: Reader, number: int, most: int) -> bool:
    """Return whether a log goes on for more than so many lines after one, and does not say that the job failed."""
    return reader.lines - number > most and not said_to_fail(reader, number)


def calm_since(reader: Reader, number: int, most: int) -> bool:
    """Return whether a log ends with more than so many lines without a complaint, all of them behind one line.

    Of several processes, one goes on after another has failed: there QUIET lines count, and complaints within NEAR
    lines are of the same failure.
    """
    if several(reader):
        return reader.lines - number > QUIET and reader.complaint <= number + NEAR
    return reader.lines - max(number, reader.complaint) > most


def closes(reader: Reader, number: int) -> bool:
    """Return whether the only process of a log says after a line what it has done."""
    return not several(reader) and (last_met(reader, reader.settings.closing) or 0) > number


def complains(reader: Reader) -> bool:
    """Return whether one of the last BURST lines looks like an error, as where one error led to the next."""
    return reader.complaint > 0 and reader.lines - reader.complaint <= BURST


def recovers(reader: Reader, text: str) -> bool:
    """Return whether a line says itself that the program does something else instead, and goes on."""
    return bool(_any(tuple(reader.settings.recovered)).search(text))


def informs(reader: Reader, text: str) -> bool:
    """Return whether a line says itself that it only informs."""
    return bool(_any(tuple(reader.settings.informative)).search(text))


def warns(reader: Reader, text: str) -> bool:
    """Return whether a line says itself that it only warns."""
    return bool(re.search(reader.settings.warning, text))


def last_run(reader: Reader) -> int:
    """Return the line with which the last of several runs in one log begins; one that only began does not count."""
    ends = (_after_another_job(reader, text) for text in reader.settings.job_ends)
    begins = (_last_job(reader, text) for text in reader.settings.job_begins)
    again = (_started_again(reader, text) for text in reader.settings.prompts)
    return max(_repeated_head(reader), *ends, *begins, *again, 0)


def last_met(reader: Reader, texts: list[str]) -> int | None:
    """Return the number of the last line that meets one of the conditions; None if none does."""
    return max((reader.conditions.last(text)[0] for text in texts if reader.conditions.at(text)), default=None)


def last_success(reader: Reader) -> int:
    """Return the last line that shows that a later try succeeded, or that a server is up; 0 for none."""
    return last_met(reader, [*reader.settings.later_success, *reader.settings.serving]) or 0


def _named(reader: Reader, text: str) -> list[tuple[int, str]]:
    """Return the numbers of the last lines that meet a condition, backwards, and of the first, each with its group.

    Without a group each line has a name of its own.
    """
    if (met := reader.conditions.at(text)) is None:
        return []
    expression = re.compile(text)
    found = ((number, expression.search(line)) for number, _, line in met.latest(expression))
    return [(number, one[1] if expression.groups else str(number)) for number, one in found if one]


def _after_another_job(reader: Reader, text: str) -> int:
    """Return the line after the last one that names another job than the last of all which ended; 0 for none."""
    named = _named(reader, text)
    return next((number + 1 for number, job in named if job != named[0][1]), 0)


def _last_job(reader: Reader, text: str) -> int:
    """Return the first line that names the last job, if an earlier one names another; 0 for none."""
    named = _named(reader, text)
    return next((after for (after, _), (_, job) in pairwise(named) if job != named[0][1]), 0)


def _started_again(reader: Reader, text: str) -> int:
    """Return the line in which a person started the same script as in the prompt before; 0 for none.

    It must have printed something since.
    """
    named = [one for one in _named(reader, text) if reader.lines - one[0] >= PRINTED]
    again = ((number, other) for (number, script), (other, before) in pairwise(named) if script == before)
    return next((number for number, other in again if other < number), 0)  # two words may find one line twice


def _repeated_head(reader: Reader) -> int:
    if reader.runs and reader.lines - reader.runs[-1] > BEGUN:
        return reader.runs[-1]
    return reader.runs[-2] if len(reader.runs) > 1 else 0


def several(reader: Reader) -> bool:
    """Return whether several processes of one job write into a log, so that one goes on after another has failed."""
    if reader.seen.processes or any(one.rank for one in reader.tracebacks.found):
        return True
    return any(reader.conditions.at(text) for text in reader.settings.several)


def last_failure(reader: Reader) -> int:
    """Return the first line of the last failure in a log; 0 if the whole log may be one failure.

    One process ends with an uncaught exception. If it prints on and raises another one, the first was caught, or a
    later run wrote the second: most likely if both end the same program at its top level, with other output between.
    Several ranks prove nothing of the kind, because one goes on after another has failed.
    """
    if several(reader):
        return 0
    only_passes_on = _any((*reader.settings.wrappers, reader.settings.raised_again))
    late = reader.settings.late
    found = [one for one in reader.tracebacks.found if not only_passes_on.search(one.text) and one.kind not in late]
    since = 0
    found.sort(key=lambda one: one.begun)
    for before, one in pairwise(found):
        again = one.program and one.program == before.program
        apart = CHAINED if again else NEAR
        if again and before.kind == "KeyboardInterrupt":  # Ctrl-C ended the program, whatever comes next
            apart = 1
        if one.begun - before.number > apart and one.text != before.text and not reader.tracebacks.follows(one.begun):
            since = before.number + 1
    return since


@lru_cache(maxsize=8)
def _any(texts: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{text})" for text in texts) or r"(?!)")
