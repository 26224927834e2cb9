"""Read logs that another tool exported as records, or gathered from several hosts: CloudWatch, journald, pdsh, Ray.

Each message becomes lines of its own, behind its time and the label of its writer, as `kubectl logs --prefix` writes
them. What is no such export passes unchanged.
"""

import csv
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from io import BufferedReader, RawIOBase
from itertools import chain
from typing import Any, BinaryIO, cast

PIECE = 1 << 16  # bytes that are read at once
LONGEST = 1 << 22  # bytes of a record; a longer one passes unchanged
LARGEST = 1 << 27  # bytes of a document that holds all records; a larger one passes unchanged
BOM = b"\xef\xbb\xbf"  # at the beginning of a file
ISO = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d{1,9})?")
# Log streams of SageMaker (JOB/algo-1-1700000000) and of Container Insights name the host and the pod.
STREAM = re.compile(r"(?:.*/)?(algo-\d+)-\d{10}|.*containers\.([^_]+)_.+")
BEGINS = re.compile(r"\S")
# The text output of `aws logs get-log-events` and `filter-log-events`; `aws logs tail` of a SageMaker job.
TEXTS = re.compile(
    r"EVENTS\t(?:\d+\t\d{13}\t(?P<stream>[^\t]+)|\d{13})\t(?P<message>.*)\t(?P<timestamp>\d{13})"
    r"|(?P<when>\d{4}-\d\d-\d\dT\S{8,40}) (?P<who>\S{1,300}/algo-\d{1,4}-\d{10}) (?P<text>.*)"
)
# What stands before each line of a log that several hosts or processes wrote.
COUNTED = (
    "acc|batch|block|case|cuda|epoch|exp|fold|gpu|group|iter|layer|level|loss|model|phase|rank|round|run|seed|split|stage"
    "|step|task|test|top|trial"
)  # words before a number that is not a host's
WRITERS = tuple(
    re.compile(f"{before} (?P<text>.*)")
    for before in (
        # pdsh, clush, argo: a host's name with a digit, or its address
        rf"(?P<who>(?!(?:{COUNTED})[a-z]*[-_]?\d)[a-z][a-z-]*\d[\w.-]{{0,60}}|(?:\d{{1,3}}\.){{3}}\d+):",
        r"\((?P<who>head|worker\d+), rank=\d+, pid=\d+(?:, ip=[\d.]+)?\)",  # SkyPilot
        r"\((?P<who>\w{1,60} pid=\d+(?:, ip=[\d.]+)?)\)",  # Ray, vLLM
        # stern, kubetail: a pod of a set or of a job, and its container
        r"\[?(?P<who>[a-z][a-z0-9.-]{0,200}-(?:\d{1,4}|(?=[a-z]{0,4}\d)[a-z0-9]{5}))(?: [a-z0-9-]{1,63})?\]?",
        r"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d (?P<who>[\w.-]{1,64}) [\w./@-]{1,60}(?:\[\d{1,9}\])?:",  # journalctl
        # aws logs tail: AWS Batch, Container Insights
        r"(?P<when>\d{4}-\d\d-\d\dT\S{8,40}) (?P<who>\S{1,300}/default/[0-9a-f]{16,40}|\S{0,300}containers\.\S{1,300})",
    )
)
SAMPLE, MOSTLY, AGAIN = 400, 0.6, 3  # lines that show it, the part that names a writer, how often each is named
PEEKED = 1024  # bytes that show whether a log may be an export
Record = dict[str, Any]


@dataclass(frozen=True)
class Envelope:
    """Where a tool puts a message, its time and who wrote it; a dot leads into a field."""

    has: tuple[str, ...]  # fields by which its records are known
    text: str
    when: str
    who: str = ""


ENVELOPES = (
    Envelope(("log", "kubernetes"), "log", "time", "kubernetes.pod_name"),  # Fluent Bit
    Envelope(("log", "stream", "time"), "log", "time"),  # Docker's json-file driver
    # CloudWatch Logs: filter-log-events, get-log-events, subscriptions, Logs Insights
    Envelope(("message", "timestamp", "logStreamName"), "message", "timestamp", "logStreamName"),
    Envelope(("message", "timestamp", "ingestionTime"), "message", "timestamp"),
    Envelope(("message", "timestamp", "id"), "message", "timestamp"),
    Envelope(("@message",), "@message", "@timestamp", "@logStream"),
    Envelope(("MESSAGE", "__REALTIME_TIMESTAMP"), "MESSAGE", "__REALTIME_TIMESTAMP", "_HOSTNAME"),  # journalctl -o json
    Envelope(("line", "timestamp", "labels"), "line", "timestamp", "labels.pod"),  # logcli -o jsonl
    Envelope(("textPayload", "timestamp"), "textPayload", "timestamp", "resource.labels.pod_name"),  # gcloud logging
    # OpenSearch
    Envelope(("_source.message",), "_source.message", "_source.@timestamp", "_source.kubernetes.pod_name"),
    Envelope(("_source.log",), "_source.log", "_source.@timestamp", "_source.kubernetes.pod_name"),
    Envelope(("levelname", "message"), "message", "asctime"),  # loggers of Python that write JSON
    # torchrun's error.json: torch/distributed/elastic/multiprocessing/errors/error_handler.py
    Envelope(("message.extraInfo.py_callstack",), "message.extraInfo.py_callstack", "message.extraInfo.timestamp"),
    Envelope(("FailureReason", "TrainingJobName"), "FailureReason", "TrainingEndTime"),  # describe-training-job
)
FURTHER = ("exc_info", "exception", "stack_trace")  # fields with a traceback that belongs to the message
LISTS = ("events", "logEvents", "results", "hits")  # fields of a document that hold the records, or lead to them
HOLDS = re.compile(f'"(?:{"|".join(LISTS)}|cells)"'.encode())  # such a document, or a notebook


def plain(stream: BinaryIO) -> BinaryIO:
    """Return the messages of an export as lines, or the stream itself if it cannot be one."""
    peek = cast(BufferedReader, stream).peek
    if peek(len(BOM)).startswith(BOM):
        stream.read(len(BOM))
    head = peek(PEEKED)[:PEEKED].lstrip()
    may_be = head.startswith((b"{", b"[", b"@", b'"')) or _has_texts(head) or bool(_form(head))
    return buffered(_read(stream)) if may_be else stream


def buffered(pieces: Iterator[bytes]) -> BinaryIO:
    return BufferedReader(_Pieces(pieces), PIECE)


def of_line(line: str) -> list[str]:
    """Return the lines of the message that a line of an export holds, or the line itself."""
    if found := TEXTS.fullmatch(line):
        parts = found.groupdict(default="")
        who, when = parts["stream"] or parts["who"], parts["timestamp"] or parts["when"]
        return _told(parts["message"] or parts["text"], when, who)
    told = _of_record(_json(line)) if line.startswith("{") else None
    return [line] if told is None else told


class _Pieces(RawIOBase):
    """Pieces of bytes as a file."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces, self._rest = filter(None, pieces), b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._rest = self._rest or next(self._pieces, b"")
        taken, self._rest = self._rest[: len(buffer)], self._rest[len(buffer) :]
        buffer[: len(taken)] = taken
        return len(taken)


def _read(stream: BinaryIO) -> Iterator[bytes]:
    head = stream.read(PIECE)
    pieces = chain([head], iter(lambda: stream.read(PIECE), b""))
    first = head.partition(b"\n")[0].decode(errors="replace")
    if _of_record(_json(first)) is not None or _has_texts(head):
        for row in _rows(pieces):
            yield _joined(of_line(row))
    elif "@message" in first and first.lstrip('"').startswith("@"):
        yield from map(_joined, _of_table(_rows(pieces)))
    elif (form := _form(head)) and _several(form, head):
        for row in _rows(pieces):
            yield _joined(_of_writer(form, row))
    elif first.strip() in ("{", "[") or (first.lstrip()[:1] in ("{", "[") and HOLDS.search(head)):
        yield from _of_document(pieces)
    else:
        yield from pieces


def _has_texts(head: bytes) -> bool:
    return any(map(TEXTS.fullmatch, head[:PEEKED].decode(errors="replace").splitlines()))


def _form(head: bytes) -> re.Pattern[str] | None:
    """Return what most lines of a log's beginning begin with, if that names their writer."""
    lines = [line for line in head.decode(errors="replace").splitlines()[:SAMPLE] if line.strip()]
    return next((form for form in WRITERS if sum(map(bool, map(form.match, lines))) > MOSTLY * len(lines)), None)


def _several(form: re.Pattern[str], head: bytes) -> bool:
    found = [match["who"] for match in map(form.match, head.decode(errors="replace").splitlines()[:SAMPLE]) if match]
    return 1 < len(set(found)) <= len(found) / AGAIN


def _of_writer(form: re.Pattern[str], line: str) -> list[str]:
    if not (found := form.fullmatch(line)):
        return [line]
    parts = found.groupdict(default="")
    return _told(parts["text"], parts.get("when"), re.sub(r"[=, ]+", "-", parts["who"]))


def _joined(lines: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode(errors="replace")


def _rows(pieces: Iterable[bytes]) -> Iterator[str]:
    """Yield each line without its end; one that is longer than a record comes in parts."""
    rest = b""
    for piece in pieces:
        *whole, rest = (rest + piece).split(b"\n")
        yield from (row.decode(errors="replace") for row in whole)
        if len(rest) > LONGEST:
            yield rest.decode(errors="replace")
            rest = b""
    if rest:
        yield rest.decode(errors="replace")


def _of_table(rows: Iterator[str]) -> Iterator[list[str]]:
    """Yield the messages of a table with commas, as Logs Insights exports it; a message may hold several lines."""
    cells = csv.reader(f"{row}\n" for row in rows)
    names = next(cells)
    try:
        for row in cells:
            yield _of_record(dict(zip(names, row, strict=False))) or [",".join(row)]
    except csv.Error as error:  # a message of more than 128 KB
        yield [f"the rest of this export is not read: {error}"]


def _of_document(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the messages of documents that hold lists of records, or all bytes unchanged."""
    read, every = list[bytes](), iter(pieces)
    size = 0
    for piece in every:
        read.append(piece)
        size += len(piece)
        if size > LARGEST:
            yield from chain(read, every)
            return
    text = b"".join(read).decode(errors="replace")
    found = [lines for record in _records(text) if (lines := _of_record(record)) is not None]
    yield from map(_joined, found) if found else read


def _records(text: str) -> Iterator[Any]:
    """Yield the records of one document, or of several that stand behind each other."""
    decoder, at = json.JSONDecoder(), 0
    while begins := BEGINS.search(text, at):
        try:
            value, at = decoder.raw_decode(text, begins.start())
        except (ValueError, RecursionError):
            return
        while isinstance(value, dict) and (name := next((one for one in LISTS if one in value), "")):
            value = value[name]
        yield from value if isinstance(value, list) else _of_notebook(value) or [value]


def _of_notebook(value: Any) -> list[Record]:
    """Return what the cells of a notebook printed and raised, as records."""
    cells = value.get("cells") if isinstance(value, dict) and "nbformat" in value else None
    outputs = [one for cell in cells or () if isinstance(cell, dict) for one in cell.get("outputs", ())]
    texts = [one.get("traceback") or one.get("text") for one in outputs if isinstance(one, dict)]
    return [{"@message": "\n".join(map(str, text)) if isinstance(text, list) else text} for text in texts if text]


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _of_record(record: Any) -> list[str] | None:
    """Return the lines of a record's message, each behind its writer and time; None if it is no record of an export."""
    if isinstance(record, list):  # Logs Insights: a list of fields
        record = {one.get("field"): one.get("value") for one in record if isinstance(one, dict)}
    if not isinstance(record, dict):
        return None
    for one in ENVELOPES:
        if all(_field(record, name) is not None for name in one.has):
            break
    else:
        return None
    text = _field(record, one.text)
    if isinstance(text, list):  # journald: bytes that are not printable
        text = bytes(byte for byte in text if isinstance(byte, int) and 0 <= byte < 256).decode(errors="replace")
    level = f"{record['levelname']}: " if "levelname" in one.has else ""
    parts = [f"{level}{text}", *(more for name in FURTHER if isinstance(more := record.get(name), str))]
    return _told("\n".join(parts), _field(record, one.when), _field(record, one.who))


def _told(text: str, when: Any, who: Any) -> list[str]:
    before = (f"[pod/{_writer(who)}/export] " if isinstance(who, str) and who else "") + _time(when)
    return [f"{before}{line}" if line.strip() else "" for line in text.removesuffix("\n").split("\n")]


def _field(record: Record, name: str) -> Any:
    if name in record:
        return record[name]
    first, dot, rest = name.partition(".")
    below = record.get(first) if dot else None
    return _field(below, rest) if isinstance(below, dict) else None


def _writer(stream: str) -> str:
    found = STREAM.fullmatch(stream)
    name = (found[1] or found[2]) if found else stream
    return re.sub(r"[\]/\s]", "-", name)


def _time(when: Any) -> str:
    """Return a time stamp and a space; "" for a time in no known form."""
    if isinstance(when, str) and (found := ISO.match(when)):
        return f"{found[0]}Z "
    try:
        seconds = float(when)
        while seconds > 1e11:  # milliseconds, microseconds, nanoseconds
            seconds /= 1000
        return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S.%f}Z "
    except (TypeError, ValueError, OverflowError, OSError):
        return ""
