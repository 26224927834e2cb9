"""Read the lines of logs of any size, also with gzip and from standard input, and remove the prefixes of launchers."""

import codecs
import gzip
import re
import shlex
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from hashlib import sha256
from io import BufferedReader, RawIOBase
from pathlib import Path
from typing import Any, BinaryIO, cast

import zstandard

from trainwright.core.errors import ConfigError, printable
from trainwright.diagnose import exports
from trainwright.diagnose.exports import ISO
from trainwright.diagnose.writers import ANSI, HOST, POD_LABEL, SERVICE_LABEL

try:
    import lzma
except ImportError:  # a Python that was built without it
    lzma = None  # type: ignore[assignment]

RAISING = r"(?=Traceback \(most|  File \"|    \S|[A-Za-z_][\w.]{0,80}(?:Error|Exception)\b)"  # before a traceback
SERVICE = r"[\w.-]{1,64} (?!kernel)[\w./@-]{1,60}"  # a host and a program of it
# Prefixes that launchers add to a line; the only group in them is a rank. A traceback's lines are known behind any
# other prefix, too. vLLM's serving_*.py write of one request; diagnose.toml knows such lines by that name, so it stays.
PREFIX = re.compile(
    "|".join(
        (
            # mpirun --tag-output (Open MPI 4, 5 and SageMaker's; horovodrun's)
            r"(?:[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4})?"
            r"\s*\[(?:[\w.-]+@)?(?:\d+,)?(?:mpirank:)?(\d+)(?:,[^\]]*)?\](?:\[[^\]\s]{1,200}\])?\s?<std\w+>:\s?",
            rf"\[(\d{{1,6}})\] {RAISING}",  # mpiexec -prepend-rank
            # tqdm's bar
            rf"[^|\[]{{0,80}}\d{{1,3}}%\|[^|]{{0,300}}\| {{0,3}}\d[^\[]{{0,40}}\[[^\]]{{5,80}}\]{RAISING}",
            r"\s*(\d+): (?!\[[\w.,/ :-]{1,2000}\]$)(?=.)",  # srun --label; else Horovod lists what a rank lacks
            # pdsh, clush, argo: a host's name with a digit, or its address
            r"(?!\S{1,80}(?:Error|Exception|Warning): |slurm|cv2\.error)"
            rf"(?:{HOST}): (?=.)",
            r"\s*\[pod/[^\]]+\] ",  # kubectl logs --prefix
            r"EVENTS\t\d{13}\t",  # aws logs --output text
            r"[\w.-]{1,200}/(?:algo-\d{1,4}-\d{10}|default/[0-9a-f]{3,40}) (?=.)",  # streams of CloudWatch
            r"\d{1,6}\.\ds[\t ]\d{1,7}[\t ](?=.)",  # Kaggle
            r"\s*[\w.@-]+ +\| ",  # docker compose, docker service
            r"\s+\| ",
            r"##\[error\] ?(?=.)",  # GitHub Actions
            r"#\d{1,4} \d{1,6}\.\d{1,3} ",  # docker build
            r" {0,6}\d{1,7}\t",  # cat -n
            r"[^\t]{1,200}\t[^\t]{1,200}\t(?=\d{4}-\d\d-\d\dT)",  # gh run view --log
            r"[A-Z]{4,9}\t\d{4}-\d\d-\d\d[T ][\d:. Z+-]{8,30}\t[^\t]{1,200}\t",  # Vertex AI
            # Airflow
            r"\[\d{4}-\d\d-\d\d[T ,]{1,2}[^\]]{8,24}\] \{[\w.]{1,80}:\d{1,6}\} [A-Z]{4,8} - (?:\[[\w-]{1,60}\] )?",
            r"\d\d:\d\d:\d\d\.\d{3} \| [A-Z]{4,8} {1,4}\| (?:Flow|Task) run '[^']{1,200}' - ",  # Prefect
            r"(?:[0-9a-f]{8} )?(?:\[rank=(\d+)\] )?\|\| ",  # Determined
            r"\s*(?:\d{1,7}:)?\[rank(\d+)\]: ?",  # PyTorch; behind the numbers of grep
            r"\s*(?:\d{1,7}:)?\[(default\d+|trainer\d+)\]: ?",  # torchrun: a rank of one host
            r"ERROR \d\d-\d\d \d\d:\d\d:\d\d \[?(?!serving_)[\w./]{1,80}:\d+\] "
            r"(?=Traceback| |[\w.]{1,80}(?:Error|Exception|Interrupt): )",  # vLLM
            r"(?:> ?){1,3}(?=[ \w\[/*(-])",  # a quotation
            r"\s*\([\w:<>. -]{1,60}(?:, rank=\d+)?,? pid=\d+(?:, ip=[\d.]+)?\) ",  # Ray, SkyPilot
            r"\s*\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?\]? "
            # behind a time: a node's files of Kubernetes, GitLab, syslog
            rf"(?:std(?:out|err) [FP] |[0-9a-f]{{2}}[OE][ +]|{SERVICE}\[\d{{1,9}}\]: {RAISING})?",
            r"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d (?=\[(?:rank|default|pod/)|\d{4}-\d\d-\d\d)",  # ts of moreutils
            rf"[A-Z][a-z]{{2}} [ \d]\d \d\d:\d\d:\d\d {SERVICE}(?:\[\d{{1,9}}\])?: {RAISING}",
        )
    )
)
GLOG = re.compile(r"\b[EFIW](?P<month>\d\d)(?P<day>\d\d) (?P<time>\d\d:\d\d:\d\d(?:\.\d{1,9})?)")
STAMP_WITHIN = 120  # characters of a line in which its time is looked for
Moment = tuple[str, float]  # the kind of a time stamp, and its seconds: only those of one kind compare
LOOKED_AT = 4096  # characters of a line: all patterns match within these, and more would cost time
LONGEST = 1 << 16  # characters of a line that are read
NUMBER = re.compile(r"\d{100,}")  # longer than any printed number: int() and float() reject it, or return infinity
WRITER = re.compile(f"{POD_LABEL}|{SERVICE_LABEL}")
DIGITS = re.compile(r"\d+")
NO_NUMBER = re.compile(r"[^\d\s]")  # what a prefix has, and a column of numbers has not
LONGEST_PREFIX = 300  # characters
# What packed files raise.
DAMAGED = (OSError, EOFError, zlib.error, zstandard.ZstdError, *((lzma.LZMAError,) if lzma else ()))
STANDARD_INPUT = "-"


@contextmanager
def opened(file: str) -> Iterator[BinaryIO]:
    """Open a log as a byte stream, that of an export as its messages. Raises ConfigError if it cannot be read."""
    with opened_unpacked(file) as stream:
        yield exports.unwrapped(stream)


@contextmanager
def opened_unpacked(file: str) -> Iterator[BinaryIO]:
    """Open a file as a byte stream, unpacked. Raises ConfigError if it cannot be read."""
    if file == STANDARD_INPUT:
        yield sys.stdin.buffer
        return
    if Path(file).is_dir():
        raise ConfigError(
            "expected a log file, found a folder",
            where=file,
            fix=f"name one of its files; all of them together: trainwright diagnose {file}",
        )
    try:
        with Path(file).open("rb") as raw, unpacked(raw) as stream:
            yield stream
    except DAMAGED as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ConfigError("the log cannot be read", where=file, why=why, fix=f"ls -l {shlex.quote(file)}") from None


def unpacked(raw: BufferedReader) -> BinaryIO:
    """Return a file's content: unpacked if it is of gzip, bzip2, xz or zstd, and as UTF-8 if it begins like UTF-16."""
    head = raw.peek(4)[:4]
    if head[:2] == b"\x1f\x8b":
        return cast(BinaryIO, gzip.open(raw))
    if head[:3] == b"BZh":
        import bz2

        return cast(BinaryIO, bz2.open(raw))
    if head == b"\xfd7zX" and lzma:
        return cast(BinaryIO, lzma.open(raw))
    if head == zstandard.FRAME_HEADER:
        reader = zstandard.ZstdDecompressor().stream_reader(raw, read_across_frames=True)
        return BufferedReader(cast(RawIOBase, reader))
    wide = head[:2] == codecs.BOM_UTF16_LE and head[3:] == b"\0" != head[2:3]
    if wide or (head[:2] == codecs.BOM_UTF16_BE and head[2:3] == b"\0" != head[3:]):  # its first character is of ASCII
        wider = codecs.EncodedFile(cast(Any, raw), "utf-8", "utf-16", errors="replace")
        return exports.buffered(iter(lambda: wider.read(LONGEST), b""))
    return raw


def moment(line: str) -> Moment | None:
    """Return when a line was written, if it says so near its beginning."""
    head = line[:STAMP_WITHIN]
    try:
        if found := ISO.search(head):
            return "iso", datetime.fromisoformat(found[0].replace(",", ".")).replace(tzinfo=UTC).timestamp()
        if found := GLOG.search(head):
            text = f"2000-{found['month']}-{found['day']}T{found['time']}"  # which has no year
            return "glog", datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()
    except ValueError:  # such as a 30th of February
        return None
    return None


def digest(file: str) -> str:
    """Return the sha256 of the unpacked content; "-" for standard input. Raises ConfigError."""
    if file == STANDARD_INPUT:
        return file
    with opened(file) as stream:
        found = sha256()
        while piece := stream.read(LONGEST):
            found.update(piece)
        return found.hexdigest()


def cut(stream: BinaryIO) -> Iterator[str]:
    """Yield each line, cut at LONGEST."""
    while piece := stream.readline(LONGEST):
        rest = piece
        while len(rest) == LONGEST and not rest.endswith(b"\n"):
            rest = stream.readline(LONGEST)
        if not piece.endswith(b"\n") and rest.endswith(b"\n"):
            piece += b"\n"
        yield NUMBER.sub("?", piece.decode(errors="replace"))


def lines(file: str) -> Iterator[str]:
    """Yield each line of a log in its present state, without its end. Raises ConfigError."""
    with opened(file) as stream:
        for line in cut(stream):
            yield line.rstrip("\n")


def last_drawn(raw: bytes) -> str:
    """Return what a line shows at its end, where a progress bar drew it anew; only its first LOOKED_AT bytes count.

    On Windows a line ends with a carriage return, too.
    """
    return raw[:LOOKED_AT].rstrip(b"\r").rpartition(b"\r")[2].decode(errors="replace")


def unprefixed(line: str) -> tuple[str, str]:
    """Return a line without the prefixes of launchers, and the rank that they name ("" for none)."""
    line, rank = line[:LOOKED_AT], ""
    text = printable((ANSI.sub("", line) if "\x1b" in line else line).rstrip())
    while match := PREFIX.match(text):
        text, rank = text[match.end() :], match[match.lastindex] if match.lastindex else rank
    return text, rank


def writer(line: str) -> str:
    """Return what the label of `kubectl logs --prefix` or `docker compose` names; "" for none."""
    found = WRITER.match(line)
    return found[1] or found[2] if found else ""


def like(before: str) -> re.Pattern[str] | None:
    """Return a pattern that matches this prefix of a line with other numbers, such as a later time; None for no prefix.

    Too many tools put something before each line of others (CI systems, schedulers of workflows, tails of logs) to know
    them all. An empty text, a text of numbers alone and a long text are not prefixes.
    """
    if not NO_NUMBER.search(before) or len(before) > LONGEST_PREFIX:
        return None
    return re.compile(r"\s*" + r"\d+".join(map(re.escape, DIGITS.split(before.lstrip()))))
