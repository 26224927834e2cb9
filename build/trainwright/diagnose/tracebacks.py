"""Read Python's tracebacks line by line, those of each rank or pod apart: the exception, its message, file and line."""

import re
from dataclasses import dataclass

from trainwright.core.errors import masked
from trainwright.diagnose.log_lines import Moment, like

BEGIN = "Traceback (most recent call last)"
RUNPY = re.compile(r"\brunpy(?:\.py|>):")  # the first frames of what `python -m` starts
FRAMES = '  File "'  # some programs print the frames without that line, and some logs begin among them
IGNORED = "Exception ignored in"  # the interpreter goes on after it
HOOK = "Error in sys.excepthook"  # what a tracker raised while it noted the exception, which stands below it
LOGGING = "--- Logging error ---"  # so it does after this, of Python's module logging
FAULT = re.compile(r'", line \d{1,9} in ')  # a frame as faulthandler prints it, the last call first: no traceback
BEHIND = re.compile(r"\[(?:rank)?((?:default)?\d+)\]: ?Traceback \(most")  # what a progress bar left stands before it
LOCAL = re.compile(r"(?:default|trainer)(\d+)")  # a rank within its host
OF_RANK = re.compile(r"\(RANK (\d{1,6})\)\s*$")  # torch.distributed.checkpoint: rank 0 shows what another one raised
OTHER = re.compile(  # types that do not end like an exception
    r"(?:cv2|re|struct|zlib|socket|select|os|binascii|pickle)\.(?:error|timeout)"
    r"|(?:[A-Za-z_]\w*\.)+[A-Z]\w*|[A-Z][a-z]+[A-Z]\w*"
)
QUOTED = 'ErrorMessage "'  # SageMaker's reason for a failure
# Where that reason ends, if all of it is one line.
REASON_ENDS = re.compile(r' (?:During handling of the above|Traceback \(most recent|Command "|File ")')
CAUSED = "Caused by: "  # in a chain of Java's exceptions
FRAME = re.compile(r'\s*File "(?P<file>[^"]{1,500})", line (?P<line>\d{1,9})(?:, in (?P<name>.{1,200}))?')
BOXED = re.compile(
    r"│ (?P<file>\S{1,500}):(?P<line>\d{1,9}) in (?P<name>\S{1,200}) +│$"
)  # as the library rich draws it
BOX = ("│", "╭", "╰", "+", "|")  # what a line within a traceback may begin with, in a box or an ExceptionGroup
ALONE = re.compile(
    r"(?:E {2,6}|\*\*| (?=\S{1,200}: \S{1,200} \S)"
    rf"|{QUOTED}|{CAUSED})?"
    r"(?P<type>(?:[A-Za-z_]\w{0,60}\.){0,8}(?:[A-Z]\w{0,60}(?:Error|Exception)|Exception))"
    r"(?: \(see above for traceback\))?(?:: {1,4}(?P<message>\S.*)|\((?:\d{1,4}, )?[\"'](?P<said>.+)[\"'],?\))$"
)
RAISED = re.compile(r"(?P<type>[A-Za-z_][\w.]{1,200})(?:: ?(?P<message>.*))?$")
CARET = re.compile(r"\s*\^\s*$")  # below the place in the source that Triton cannot compile; the reason follows
AT = re.compile(r": at \d{1,6}:\d{1,6}:\s*$")  # Triton's message, up to that source
HEADS = re.compile(  # of a message that only introduces what stands below it
    "|".join(
        (
            r":\s*$",
            r"Failed to set up runtime environment\.\s*$",  # Ray
            r"\d root error\(s\) found\.\s*$",  # TensorFlow
            r"Exception encountered when calling \S.{0,200}\.\s*$",  # Keras
            r"error stack: .{0,400} failed\s*$",  # MPICH
            r"with body '\{(?: .{0,400}[{,])?\s*$",  # an answer of a cloud, in JSON
            r"\.(?:cuh?|cc|cpp|h)[: ]\d{1,6}$",  # a line of C++
        )
    )
)
LOGGED = re.compile(  # a logger's line, with a time or a place: no part of a message
    r"\[?(?:DEBUG|INFO|WARNING|ERROR|CRITICAL)\b.{0,40}?(?:\d\d:\d\d:\d\d|\[[\w./]{1,80}:\d{1,6}\])"
)
ROOT = re.compile(r"\s{0,8}\(\d{1,4}\) [A-Z][\w ]{2,40}: ")  # one of TensorFlow's root errors
USER_INDENT = "    "
USER_FRAME = re.compile(r"(?P<file>\S{1,500}\.py):(?P<line>\d{1,9}) (?P<name>\S{1,200})")  # until TensorFlow 2.6
USER_CODE = "in user code:"  # TensorFlow's message that holds another traceback, four characters further right
BETWEEN = re.compile(
    r"\s*$|Detected at node |<stack traces unavailable>|Node: |defined at \(most recent"
)  # TensorFlow's graph
EVERY = 64  # lines after which tracebacks that were cut off are looked for
WARNS = re.compile(r"\bW(?:ARN|ARNING|\d{4})\b")  # in such a prefix: the program goes on
NO_PREFIX = re.compile(r"[a-z](?:Error|Exception|Interrupt)\b")  # another exception, whose line end is lost
LIBRARY = ("/site-packages/", "/dist-packages/", "/lib/python", "<frozen ", "/lib64/python", "<string>")
MOST_LINES = 400  # of one traceback
MOST_OF_GRAPH = 4000  # of where the nodes of TensorFlow's graph were defined, in the middle of a message
MOST_FOREIGN = 8  # lines of others in the middle of one
MOST_MORE = 4  # lines of a message each of which ends with a colon
MOST_RANKS = 4096
MOST_TEXT = 1000
MOST_ALONE = 200  # exceptions without a traceback
CHAINED = 4  # lines from an exception to the traceback of the one that was raised while it was handled
JAVA_STACK = 60  # lines from one exception of such a chain to the next
KEPT = 32  # the first exceptions, and as many of the last


@dataclass
class Exception_:
    """One exception that ended a traceback."""

    kind: str  # its type, without the module
    message: str
    number: int  # of the line that names it
    begun: int  # of the traceback's first line
    rank: str
    where: str  # file:line in function, of the script's own code if it has a frame there
    text: str  # the whole line
    when: Moment | None = None
    progress: int = 0  # lines of progress before it
    program: str = ""  # the file that was started, if the traceback begins at its top level
    handled: bool = False  # the line above its traceback says what the program does instead
    caught: bool = False  # its traceback begins within the program's own code: the program caught and printed it


@dataclass
class _Open:
    begun: int
    when: Moment | None
    lines: int = 0
    foreign: int = 0
    ignored: bool = False
    handled: bool = False
    warned: bool = False  # the line above it only warns
    caught: bool = False
    rank: str = ""  # that its first line names
    indent: int = 0  # of all its lines, in the output of what prints another program's
    prefix: re.Pattern[str] | None = None  # what stands before each of its lines
    program: str = ""
    own: str = ""
    last: str = ""
    source: str = ""  # the line of code below the last frame
    ended: Exception_ | None = None  # its message goes on below
    more: int = 0  # lines of its message that were read
    graph: bool = False  # after a node of TensorFlow's graph, and where it was defined
    outer: Exception_ | None = None  # TensorFlow's, in whose message the traceback goes on
    caret: bool = False  # after the source that Triton cannot compile
    wrapped: str = ""  # the first part of a frame that a terminal broke in two


class Tracebacks:
    """Collect the exceptions of a log; memory does not grow with its length."""

    def __init__(self) -> None:
        self.first: list[Exception_] = []
        self.last: list[Exception_] = []
        self.lone: list[Exception_] = []
        self.chained: set[int] = set()  # lines which say that one exception followed from another, two lines above
        self.begun: set[int] = set()  # first lines of the first tracebacks, also of those that are cut off
        self._open: dict[str, _Open] = {}
        self._logging: set[str] = set()  # ranks that print where a call of logging failed: frames, but no traceback
        self._ignored: set[str] = set()  # ranks whose next traceback stops nothing
        self.harmless: set[int] = set()  # lines that ended such tracebacks

    @property
    def open(self) -> bool:
        return bool(self._open)

    @property
    def found(self) -> list[Exception_]:
        return [*self.first, *self.last]

    @property
    def begins_chain(self) -> list[Exception_]:
        """Return the exceptions whose traceback is not in the log, and which are the first of a chain."""
        numbers = {one.number for one in self.found}
        return [one for one in self.lone if one.number + 2 in self.chained and one.number not in numbers]

    def follows(self, begun: int) -> bool:
        """Return whether a sentence above a traceback says that its exception followed from the one before."""
        return not self.chained.isdisjoint((begun - 1, begun - 2))

    @property
    def wanted(self) -> bool:
        return len(self.lone) < MOST_ALONE

    def alone(self, text: str, number: int, rank: str, progress: int) -> bool:
        """Keep an exception whose traceback is not there, or cannot be put together; return whether a line is one."""
        if QUOTED in text:
            text = REASON_ENDS.split(text[text.index(QUOTED) :], maxsplit=1)[0]
        if number in self.harmless or not (raised := ALONE.match(text)):
            return False
        kind, said = raised["type"].rpartition(".")[2], (raised["message"] or raised["said"]).strip()
        message = _kept(said.removesuffix('"' if text.startswith(QUOTED) else ""))
        found = Exception_(kind, message, number, number, rank, "", _kept(text), None, progress)
        before = self.lone[-1] if self.lone else None
        if text.startswith(CAUSED) and before and before.rank == rank and number - before.number <= JAVA_STACK:
            self.lone.pop()  # what caused the exception stands below it
        self.lone.append(found)
        return True

    def goes_on(self, number: int) -> bool:
        """Return whether a line is an exception without its traceback, whose message goes on below."""
        return bool(self.lone) and self.lone[-1].number == number and bool(HEADS.search(self.lone[-1].text))

    def add(self, text: str) -> None:
        """Add a line to the message of the last exception without its traceback."""
        one = self.lone[-1]
        one.message = _kept(f"{one.message} {text}")
        one.text = _kept(f"{one.text} {text}")

    def begin(
        self, text: str, number: int, rank: str, when: Moment | None, handled: bool = False, warned: bool = False
    ) -> None:
        """Open a traceback at its first line, or at a frame if none of this rank is open.

        `handled` is that the line above it says what the program does instead, `warned` that it only warns; `handled`
        is true of the whole chain.
        """
        if behind := BEHIND.search(text):
            rank = behind[1]
        if IGNORED in text or LOGGING in text or HOOK in text:
            self._ignored.add(rank)
            if LOGGING in text:
                self._logging.add(rank)
            return
        if BEGIN in text and rank not in self._ignored:
            self._logging.discard(rank)
        if BEGIN in text and len(self.begun) < MOST_ALONE:
            self.begun.add(number)
        is_frame = FRAME.match(text) and not FAULT.search(text)
        if BEGIN not in text and (rank in self._open or rank in self._logging or not is_frame):
            return
        if len(self._open) < MOST_RANKS or rank in self._open:
            before = next((one for one in reversed(self.found) if one.rank == rank), None)
            handled |= bool(before and before.handled and self.follows(number))
            of_rank = named[1] if (named := OF_RANK.search(text)) else ""
            ignored = rank in self._ignored
            self._open[rank] = _Open(
                number, when, ignored=ignored, handled=handled, warned=warned, rank=of_rank, prefix=_prefix(text)
            )
            self._ignored.discard(rank)
            self.feed(text, number, rank)

    def feed(self, text: str, number: int, rank: str, progress: int = 0) -> None:
        """Process a line without its prefixes, if a traceback of its rank is open."""
        one = self._open.get(rank)
        if one is None:
            if number % EVERY == 0:  # a traceback that was cut off must not cost time for ever
                self._open = {key: other for key, other in self._open.items() if number - other.begun < MOST_OF_GRAPH}
            return
        one.lines += 1
        if one.prefix and (before := one.prefix.match(text)):
            one.ignored = one.ignored or (one.lines > 1 and bool(WARNS.search(before[0])))
            text = text[before.end() :]
        if one.indent and text[: one.indent].isspace():
            text = text[one.indent :]
        if one.ended:
            if _between(one, text):
                return
            if AT.search(one.ended.text) and one.lines < MOST_LINES:
                one.caret = one.caret or bool(CARET.match(text))
                if not one.caret or CARET.match(text):
                    return
            if LOGGED.match(text):
                del self._open[rank]
                return
            if text.strip() and HEADS.search(one.ended.text):
                one.ended.number, one.ended.text = number, _kept(f"{one.ended.text} {text.strip()}")
            one.ended.message = _kept(f"{one.ended.message} {text.strip()}".strip())
            one.more += 1
            if one.more >= MOST_MORE or not HEADS.search(one.ended.text) or not text.strip():
                del self._open[rank]
            return
        text, one.wrapped = one.wrapped + text, ""
        if text.lstrip().startswith('File "') and not FRAME.match(text) and len(text) < MOST_TEXT:
            one.wrapped = text
            return
        if one.lines > MOST_LINES or one.foreign > MOST_FOREIGN:
            del self._open[rank]
        elif frame := FRAME.match(text) or BOXED.match(text) or (one.outer and USER_FRAME.match(text)):
            place = f"{frame['file']}:{frame['line']}" + (f" in {frame['name'].strip()}" if frame["name"] else "")
            if not one.last:
                one.caught = _caught(frame)
                one.handled = one.handled or (one.warned and one.caught)
                one.indent = max(0, len(text) - len(text.lstrip()) - len("  "))
            if not one.last or RUNPY.search(one.last):
                one.program = frame["file"] if frame["name"] == "<module>" else ""
            one.last, one.source = place, ""
            if not any(part in frame["file"] for part in LIBRARY):
                one.own = place
        elif not text.strip() or text[0].isspace() or BEGIN in text or text.startswith(BOX):
            one.source = one.source or text.strip()
            return
        elif (raised := RAISED.match(text)) and (
            _named(raised["type"]) or (one.last and not one.foreign and OTHER.fullmatch(raised["type"]))
        ):
            if one.ignored:
                del self._open[rank]
                if len(self.harmless) < MOST_ALONE:
                    self.harmless.add(number)
                return
            if one.outer:  # the exception in TensorFlow's user code says more
                found = self._replace(one, raised, text, number)
            else:
                found = self._add(raised, one, text, number, rank, progress)
            if raised["message"] == USER_CODE:
                one.outer, one.indent, one.source = found, one.indent + len(USER_INDENT), ""
                return
            if HEADS.search(found.text):
                one.ended = found
            else:
                del self._open[rank]
        elif one.last and not one.source:  # code that lost its indent
            one.source = text
        else:
            one.foreign += 1

    def _replace(self, one: _Open, raised: re.Match[str], text: str, number: int) -> Exception_:
        """Put the exception in the message of another one in its place."""
        found, one.outer = one.outer, None
        assert found
        found.kind, found.message = (
            raised["type"].rpartition(".")[2],
            _kept((raised["message"] or "").strip()),
        )
        found.number, found.text, found.where = number, _kept(text), masked(one.own or one.last)
        return found

    def _add(self, raised: re.Match[str], one: _Open, text: str, number: int, rank: str, progress: int) -> Exception_:
        kind = raised["type"].rpartition(".")[2]
        message = _kept((raised["message"] or _asserted(kind, one.source)).strip())
        where, rank = (
            masked(one.own or one.last),
            one.rank or (rank if rank.isdecimal() or LOCAL.fullmatch(rank) else ""),
        )
        text = _kept(text)
        found = Exception_(
            kind,
            message,
            number,
            one.begun,
            rank,
            where,
            text,
            one.when,
            progress,
            one.program,
            one.handled,
            one.caught,
        )
        if len(self.first) < KEPT:
            self.first.append(found)
        else:
            self.last = [*self.last[1 - KEPT :], found]
        return found


def _caught(frame: re.Match[str]) -> bool:
    """Return whether a traceback that begins here was caught: one that ends a program or a thread begins at its top."""
    standard = "/lib/python" in frame["file"] and "-packages/" not in frame["file"]
    return bool(frame["name"]) and frame["name"] != "<module>" and not standard


def _kept(text: str) -> str:
    return masked(text)[:MOST_TEXT]


def on_rank(rank: str) -> str:
    """Return the words for a rank that a line names."""
    local = LOCAL.fullmatch(rank)
    return f"on local rank {local[1]}" if local else f"on rank {rank}"


def _prefix(text: str) -> re.Pattern[str] | None:
    """Return what stands before each line of a traceback, from its first line."""
    before, begin, _ = text.partition(BEGIN)
    return like(before) if begin and not NO_PREFIX.search(before) else None


def _asserted(kind: str, source: str) -> str:
    """Return what an assertion without words asserts: its line of code."""
    return source if kind == "AssertionError" and source.startswith("assert ") else ""


def _between(one: _Open, text: str) -> bool:
    """Return whether a line stands between an exception's first line and the rest of its message."""
    between = bool(BETWEEN.match(text))
    one.graph = one.graph or (between and bool(text.strip()))
    return one.lines < MOST_OF_GRAPH and (between or (one.graph and text[0].isspace() and not ROOT.match(text)))


def _named(kind: str) -> bool:
    return kind.endswith(("Error", "Exception", "Interrupt", "Exit", "Warning", "StopIteration", "StopAsyncIteration"))
