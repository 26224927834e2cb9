"""Read logs that another tool exported as records: Docker, CloudWatch, journald, Loki, Google Cloud, OpenSearch.

Each message becomes lines of its own, behind its time and the label of its writer, as `kubectl logs --prefix` writes
them. Every other log passes unchanged.
"""

import csv
import json
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from io import BufferedReader
from itertools import chain, islice, pairwise
from typing import Any, BinaryIO, cast

from trainwright.core.files import Pieces
from trainwright.diagnose import writers

PIECE = 1 << 16  # bytes that are read at once
LONGEST = 1 << 22  # bytes of a line that holds a record; a longer one is cut, and no record
LARGEST = 1 << 27  # bytes of a document that holds all records; a larger one passes unchanged
LARGEST_YAML = 1 << 24  # the same of YAML, which takes longer to read
BOM = b"\xef\xbb\xbf"  # at the beginning of a file
ISO = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?")
# Log streams of SageMaker (JOB/algo-1-1700000000) and of Container Insights name the host and the pod.
STREAM = re.compile(r"(?:^|/)(algo-\d{1,6})-\d{10}$|containers\.([^_]{1,253})_")
LONGEST_NAME = 253  # characters of a writer's name
BEGINS = re.compile(r"\S")
TRACEBACK = "Traceback (most recent call last):\n"
# The text output of `aws logs get-log-events` and `filter-log-events`; `aws logs tail` of a SageMaker job.
TEXTS = re.compile(
    r"EVENTS\t(?:\d+\t\d{13}\t(?P<stream>[^\t]+)|\d{13})\t(?P<message>.*)\t(?P<timestamp>\d{13})"
    r"|(?P<when>\d{4}-\d\d-\d\dT\S{8,40}) (?P<who>\S{1,300}/algo-\d{1,4}-\d{10}) (?P<text>.*)"
)
# A traceback on one line: its line ends became "\\n", or blanks, as in a pasted FailureReason of SageMaker.
FLAT = re.compile(
    r"Traceback \(most recent call last\):?(?: {1,8}|\\{1,2}n {0,8})File "
    r'|File "[^"]{1,300}", line \d{1,9}, in \S{1,80} .{1,300}? File "[^"]{1,300}", line \d'
)
ESCAPED = re.compile(
    r'\\{1,2}n(?=\s|\\|"|File |Traceback|During|$'
    r"|[A-Za-z_][\w.]{0,160}(?:Error|Exception|Interrupt|Exit|Warning)\b|(?:[A-Za-z_]\w{0,60}\.){1,8}[A-Z]\w{0,80}: )"
)
FRAME = re.compile(r'(\bFile \\{0,2}"[^"]{1,300}", line \d{1,9}, in \S{1,80}) +')
PARTS = re.compile(
    r'(?<! ) ++(?=File \\{0,2}"[^"]{1,300}", line \d|Traceback \(most recent|During handling of the above'
    r'|ErrorMessage "|Command "|[A-Za-z_][\w.]{0,80}(?:Error|Exception): )'
)
YAML = (b"---\ninsertId: ", b"---\nhttpRequest:", b"---\njsonPayload:")  # `gcloud logging read`
DEEPEST = 50  # lists and maps within each other; libyaml's loader ends the process where there are thousands
# What `kubectl logs --prefix --timestamps` and a node's files of Kubernetes put before a record.
BEFORE = re.compile(r"(\[pod/[^\]\s]{1,300}\] )?(?:\d{4}-\d\d-\d\dT\S{8,32} (?:std(?:out|err) F )?)?(?=\{)")
PEEKED = 1 << 13  # bytes that show whether a log may be an export
TIMES = "asctime ts time timestamp @timestamp"  # what loggers call the time
Record = dict[str, Any]


@dataclass(frozen=True)
class Envelope:
    """Where a tool puts a message, its time (the first of these fields) and who wrote it; a dot leads into a field."""

    has: tuple[str, ...]  # fields by which its records are known
    text: str
    when: str
    who: str = ""
    level: str = ""  # of a logger's record, whose other fields may say what was raised
    in_list: bool = False  # known only in a list of records, because loggers write such lines, too


ENVELOPES = (
    Envelope(("log", "kubernetes"), "log", "time", "kubernetes.pod_name"),  # Fluent Bit
    Envelope(("log", "stream", "time"), "log", "time"),  # Docker's json-file driver
    # CloudWatch Logs: filter-log-events, get-log-events, subscriptions, Logs Insights
    Envelope(("message", "timestamp", "logStreamName"), "message", "timestamp", "logStreamName"),
    Envelope(("message", "timestamp", "ingestionTime"), "message", "timestamp"),
    Envelope(("message", "timestamp", "id"), "message", "timestamp", in_list=True),
    Envelope(("@message",), "@message", "@timestamp", "@logStream"),
    Envelope(("MESSAGE", "__REALTIME_TIMESTAMP"), "MESSAGE", "__REALTIME_TIMESTAMP", "_HOSTNAME"),  # journalctl -o json
    Envelope(("line", "timestamp", "labels"), "line", "timestamp", "labels.pod"),  # logcli -o jsonl
    Envelope(("textPayload", "timestamp"), "textPayload", "timestamp", "resource.labels.pod_name"),  # gcloud logging
    Envelope(("jsonPayload.message", "timestamp"), "jsonPayload.message", "timestamp", "resource.labels.pod_name"),
    Envelope(("result._raw",), "result._raw", "result._time", "result.host"),  # Splunk
    Envelope(("attributes.message", "attributes.timestamp"), "attributes.message", "attributes.timestamp"),  # Datadog
    # OpenTelemetry
    Envelope(("body.stringValue", "timeUnixNano"), "body.stringValue", "timeUnixNano", "pod"),
    Envelope(("body.stringValue", "observedTimeUnixNano"), "body.stringValue", "observedTimeUnixNano", "pod"),
    # OpenSearch
    Envelope(("_source.message",), "_source.message", "_source.@timestamp", "_source.kubernetes.pod_name"),
    Envelope(("_source.log",), "_source.log", "_source.@timestamp", "_source.kubernetes.pod_name"),
    # Filebeat and others with the Elastic Common Schema
    Envelope(("message", "@timestamp", "kubernetes.pod.name"), "message", "@timestamp", "kubernetes.pod.name"),
    Envelope(("message", "@timestamp", "host.name"), "message", "@timestamp", "host.name"),
    # Loggers that write JSON: Python's, zap and logrus of Kubernetes' controllers, structlog, Google's, loguru, ECS
    Envelope(("levelname", "message"), "message", TIMES, level="levelname"),
    Envelope(("level", "msg"), "msg", TIMES, level="level"),
    Envelope(("level", "event"), "event", TIMES, level="level"),
    Envelope(("level", "message", "timestamp"), "message", TIMES, level="level"),
    Envelope(("level", "message", "time"), "message", TIMES, level="level"),
    Envelope(("severity", "message"), "message", TIMES, level="severity"),
    Envelope(("log_level", "errorMessage"), "errorMessage", TIMES, level="log_level"),  # Lambda's runtime
    Envelope(("log.level", "message"), "message", TIMES, level="log.level"),
    Envelope(("text", "record.level.name"), "text", "record.time.timestamp"),
    # torchrun's error.json: torch/distributed/elastic/multiprocessing/errors/error_handler.py
    Envelope(("message.extraInfo.py_callstack",), "message.extraInfo.py_callstack", "message.extraInfo.timestamp"),
    Envelope(("FailureReason", "TrainingJobName"), "FailureReason", "TrainingEndTime"),  # describe-training-job
)
# Columns of tables: the message, its time, who wrote it; in lower case. CloudWatch, Grafana, Datadog, Splunk, Azure.
COLUMNS = (
    ("@message", "message", "logmessage", "logentry", "textpayload", "_raw", "line", "content"),
    ("@timestamp", "timestamp", "timegenerated", "_time", "time", "date"),
    ("@logstream", "logstreamname", "podname", "pod_name", "pod", "host", "hostname", "_sourcehost", "source"),
)
MOST_ROWS = 100_000  # of a table; what follows passes unchanged
MESSAGES = ("message", "msg")  # of Google Cloud's records
CALM = ("INFO", "DEBUG", "TRACE")  # levels of a logger at which nothing failed
ERRORS = ("error", "err", "error.message", "err.message", "exception.message")  # fields that say what failed
RAISED = re.compile(r"\n|(?:Error|Exception)\b")  # in other fields of a logger's record: they belong to the message
# Fields of a document that hold the records, or lead to them.
LISTS = ("events", "logEvents", "results", "hits", "data", "result", "resourceLogs")
# A document that holds some, a record on several lines, or a notebook.
HOLDS = re.compile(f'"(?:{"|".join([*LISTS, *(one.has[0] for one in ENVELOPES)])}|cells)"'.encode())


def unwrapped(stream: BinaryIO) -> BinaryIO:
    """Return the messages of an export as lines, behind their writers; or the stream itself if it cannot be one."""
    peek = cast(BufferedReader, stream).peek
    if peek(len(BOM)).startswith(BOM):
        stream.read(len(BOM))
    head = peek(PEEKED)[:PEEKED].lstrip()
    may_be = (
        head.startswith((b"{", b"[", *YAML))
        or BEFORE.match(head.partition(b"\n")[0].decode(errors="replace"))
        or _columns(head.partition(b"\n")[0].decode(errors="replace"))
        or _has_aws_text(head)
        or writers.pattern(head, writers.SOME)
        or FLAT.search(head.decode(errors="replace"))
    )
    return buffered(_read(stream)) if may_be else stream


def buffered(pieces: Iterator[bytes]) -> BinaryIO:
    """Return pieces of bytes as a file."""
    return BufferedReader(Pieces(filter(None, pieces)), PIECE)


def of_line(line: str) -> list[str]:
    """Return the lines of the message that a line of an export holds, or the line itself."""
    if found := TEXTS.fullmatch(line):
        parts = found.groupdict(default="")
        who, when = parts["stream"] or parts["who"], parts["timestamp"] or parts["when"]
        return _labelled(parts["message"] or parts["text"], when, who)
    before = BEFORE.match(line)
    told = _of_record(_json(line[before.end() :])) if before else None
    return [line] if told is None or not before else [f"{before[1] or ''}{one}" if one else one for one in told]


def _read(stream: BinaryIO) -> Iterator[bytes]:
    head = stream.read(PIECE)
    pieces = chain([head], iter(lambda: stream.read(PIECE), b""))
    first = head.partition(b"\n")[0].decode(errors="replace")
    if of_line(first) != [first] or _has_aws_text(head):
        rows = _rows(pieces)
        times = [_when(_json(row.decode(errors="replace"))) for row in head.split(b"\n")[:-1]]
        for row in reversed(list(rows)) if _newest_first(times) else rows:
            yield _joined(of_line(row))
    elif columns := _columns(first):
        yield from map(_joined, _of_table(columns, _rows(pieces)))
    elif (pattern := writers.pattern(head)) and writers.several(pattern, head):
        for row in _rows(pieces):
            parts = writers.parted(pattern, row)
            yield _joined(_labelled(*parts) if parts else [row])
    elif first.lstrip()[:1] in ("{", "[") and HOLDS.search(head):
        yield from _of_document(pieces)
    elif head.startswith(YAML):
        yield from _of_yaml(pieces)
    elif FLAT.search(head[:PEEKED].decode(errors="replace")):
        yield from (_joined(_spread(row)) for row in _rows(pieces))
    else:
        yield from pieces


def _spread(line: str) -> list[str]:
    """Return the lines of a traceback that stands on one line."""
    if not FLAT.search(line):
        return [line]
    lines = ESCAPED.sub("\n", line).split("\n")
    return [part for row in lines for part in PARTS.sub("\n", FRAME.sub(r"\1\n    ", row)).split("\n")]


def _has_aws_text(head: bytes) -> bool:
    return any(map(TEXTS.fullmatch, head[:PEEKED].decode(errors="replace").splitlines()))


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


def _columns(first: str) -> Envelope | None:
    """Return where a table with commas has its messages, from its first line; None if that names no such columns."""
    try:
        names = next(csv.reader([first]), [])
    except csv.Error:
        return None
    text, when, who = [next((name for name in names if name.lower() in known), "") for known in COLUMNS]
    return Envelope((text,), text, when, who) if text and (when or text.startswith("@")) else None


def _of_table(columns: Envelope, rows: Iterator[str]) -> Iterator[list[str]]:
    """Yield the messages of a table with commas, the oldest first; a message may hold several lines."""
    cells, found, rest = csv.reader(f"{row}\n" for row in rows), list[tuple[str, list[str]]](), list[list[str]]()
    try:
        names = next(cells)
        for row in islice(cells, MOST_ROWS):
            record = dict(zip(names, row, strict=False))
            lines = _labelled(
                record.get(columns.text, ",".join(row)), record.get(columns.when), record.get(columns.who)
            )
            found.append((str(record.get(columns.when, "")), lines))
    except csv.Error as error:  # a message of more than 128 KB
        rest = [[f"a row of this export is not read: {error}"]]
    yield from _oldest_first(found)
    yield from rest
    yield from ([row] for row in rows)


def _oldest_first(found: list[tuple[str, list[str]]]) -> Iterator[list[str]]:
    """Yield the lines of records, which many consoles list with the newest first."""
    newest_first = _newest_first([when for when, _ in found])
    yield from (lines for _, lines in (reversed(found) if newest_first else found))


def _newest_first(times: list[str]) -> bool:
    try:
        compared: list[Any] = [float(time) for time in times]
    except ValueError:
        compared = times
    return all(times) and compared[:1] > compared[-1:] and all(one >= other for one, other in pairwise(compared))


def _of_document(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the messages of documents that hold lists of records, or all bytes unchanged."""
    text, rest = _document(pieces, LARGEST)
    yield from _of_records(text.decode(errors="replace")) if rest is None else chain([text], rest)


def _of_yaml(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the messages of records that are documents of YAML, or all bytes unchanged.

    The loader keeps each value as text. A document with aliases or deep nesting is refused: it could take all memory.
    """
    import yaml

    text, rest = _document(pieces, LARGEST_YAML)
    loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)  # PyYAML may have been built without libyaml
    records, depth = list[Any](), 0
    try:
        for event in yaml.parse(text, Loader=loader) if rest is None else ():
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > DEEPEST or isinstance(event, yaml.AliasEvent):
                break
        else:
            records += yaml.load_all(text, Loader=loader) if rest is None else ()
    except (yaml.YAMLError, ValueError):
        records = []
    yield from _told(records) or chain([text], rest or [])


def _told(records: list[Any], in_list: bool = False) -> list[bytes]:
    """Return the messages of records, the oldest first, and others as they are; nothing if none has a message."""
    found = [(_when(record), _of_record(record, in_list)) for record in records]
    if not any(lines is not None for _, lines in found):
        return []
    rows = [
        (when, lines if lines is not None else [json.dumps(record, default=str)])
        for (when, lines), record in zip(found, records, strict=True)
    ]
    return [*map(_joined, _oldest_first(rows))]


def _document(pieces: Iterable[bytes], most: int) -> tuple[bytes, Iterator[bytes] | None]:
    """Return all bytes of a document; or of one that is too large its beginning, and the rest."""
    read, every, size = list[bytes](), iter(pieces), 0
    for piece in every:
        read.append(piece)
        size += len(piece)
        if size > most:
            return b"".join(read), every
    return b"".join(read), None


def _of_records(text: str) -> Iterator[bytes]:
    """Yield the messages of one document, or of several in one file, and the rest of the file unchanged."""
    decoder, at, known = json.JSONDecoder(), 0, False
    while begins := BEGINS.search(text, at):
        try:
            value, end = decoder.raw_decode(text, begins.start())
        except (ValueError, RecursionError):
            break
        records = _of_notebook(value) or _listed(value)
        told = _told(records, in_list=True) if records else _told([value])
        known = known or bool(told)
        yield from told or [text[at:end].encode(errors="replace")]
        at = end
    rest = text[at:]
    yield rest.encode(errors="replace") if rest.strip() or not known else b""


def _when(record: Any) -> str:
    """Return a record's time, so that those of one export compare as texts."""
    if isinstance(record, list):
        record = _fields(record)
    times = [_first(record, one.when) for one in ENVELOPES] if isinstance(record, dict) else []
    return next((str(time) for time in times if time is not None), "")


def _fields(row: list[Any]) -> Record:
    """Return a result of Logs Insights, a list of fields, as one record."""
    return {str(one.get("field")): one.get("value") for one in row if isinstance(one, dict)}


def _listed(value: Any) -> list[Any]:
    """Return the records of a list that a document holds; a subscription names their log stream once."""
    stream = value.get("logStream") if isinstance(value, dict) else None
    if isinstance(stream, str) and isinstance(value.get("logEvents"), list):
        return [{"logStreamName": stream, **one} for one in value["logEvents"] if isinstance(one, dict)]
    while isinstance(value, dict) and (name := next((one for one in LISTS if one in value), "")):
        value = value[name]
    return [record for one in value for record in _below(one)] if isinstance(value, list) else []


def _below(one: Any) -> list[Any]:
    """Return the records of a group of them that names their pod once: of Loki's API, of OpenTelemetry."""
    if not isinstance(one, dict):
        return [one]
    if isinstance(values := one.get("values"), list) and "stream" in one:
        pairs = [pair for pair in values if isinstance(pair, list) and len(pair) > 1]
        return [{"timestamp": pair[0], "line": pair[1], "labels": one["stream"]} for pair in pairs]
    if isinstance(scopes := one.get("scopeLogs"), list):
        attributes = _field(one, "resource.attributes")
        named = [row for row in attributes if isinstance(row, dict)] if isinstance(attributes, list) else []
        names = {str(row.get("key")): _field(row, "value.stringValue") for row in named}
        pod = names.get("k8s.pod.name") or names.get("host.name")
        below = [record for scope in scopes if isinstance(scope, dict) for record in _list(scope.get("logRecords"))]
        return [{"pod": pod, **record} for record in below if isinstance(record, dict)]
    return [one]


def _of_notebook(value: Any) -> list[Any]:
    """Return what the cells of a notebook printed and raised, as records."""
    cells = value.get("cells") if isinstance(value, dict) and "nbformat" in value else None
    cells = [one for one in cells if isinstance(one, dict)] if isinstance(cells, list) else []
    outputs = [one for cell in cells for one in _list(cell.get("outputs")) if isinstance(one, dict)]
    raised = [
        "\n".join(map(str, one["traceback"])) if _list(one.get("traceback")) else one.get("text") for one in outputs
    ]
    return [{"@message": "".join(map(str, text)) if isinstance(text, list) else text} for text in raised if text]


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _of_record(record: Any, in_list: bool = False) -> list[str] | None:
    """Return the lines of a record's message, each behind its writer and time; None for a record of no tool."""
    if isinstance(record, list):  # Logs Insights: a list of fields
        record = _fields(record)
    if not isinstance(record, dict):
        return None
    if isinstance(payload := record.get("jsonPayload"), dict):  # Google Cloud: what a logger wrote, as a record
        calm = str(record.get("severity")).upper() in CALM
        raised = (
            [] if calm else [value for name, value in _flat(payload) if name not in MESSAGES and _raised(name, value)]
        )
        text = next((payload[name] for name in MESSAGES if isinstance(payload.get(name), str)), None)
        if text is not None or raised:
            record = {**record, "jsonPayload": {**payload, "message": "\n".join([*([text] if text else []), *raised])}}
    known = (one for one in ENVELOPES if in_list or not one.in_list)
    if not (one := next((one for one in known if _fits(one, record)), None)):
        return None
    text, who = _field(record, one.text), _field(record, one.who)
    if isinstance(text, list):  # journald: bytes that are not printable
        text = bytes(byte for byte in text if isinstance(byte, int) and 0 <= byte < 256).decode(errors="replace")
    if one.level:
        text = _logged(one, record)
    elif str(text).startswith("{") and (inner := _of_record(_json(str(text)))):  # Fluent Bit's record in CloudWatch's
        return inner
    return _labelled(str(text), _first(record, one.when), who)


def _first(record: Record, names: str) -> Any:
    return next((value for name in names.split() if (value := _field(record, name)) is not None), None)


def _logged(one: Envelope, record: Record) -> str:
    """Return a logger's message behind its level, with its other fields; what was raised stands below it."""
    record = {**record, **_tracebacks(record)}
    level = str(_field(record, one.level)).upper()
    known = (one.text, one.level, *one.when.split())
    others = [(name, value) for name, value in _flat(record) if name not in known]
    raised, beside = list[str](), list[str]()
    for name, value in others:
        if _raised(name, value):
            raised += [value] if level not in CALM else []
        elif isinstance(value, str | int | float) and value != "":
            beside.append(f"{name}={value}")
    return "\n".join([" ".join([f"{level}: {record[one.text]}", *beside]), *raised])


def _tracebacks(record: Record) -> Record:
    """Return the fields of a record that hold a traceback in parts, as Python prints it.

    structlog's dict_tracebacks has the last exception first, each with its frames; awslambdaric has frames as texts.
    """
    found = dict[str, Any]()
    if told := [_printed(one) for one in _list(record.get("exception")) if isinstance(one, dict) and "exc_type" in one]:
        found["exception"] = "\n\nThe above exception was the direct cause of the following exception:\n\n".join(
            told[::-1]
        )
    if (frames := _list(record.get("stackTrace"))) and (kind := record.get("errorType")):
        above = "".join(f"{str(frame).removesuffix(chr(10))}\n" for frame in frames)
        found["stackTrace"] = f"{TRACEBACK}{above}{kind}: {record.get('errorMessage')}"
    return found


def _printed(one: Record) -> str:
    frames = [frame for frame in _list(one.get("frames")) if isinstance(frame, dict)]
    lines = [
        f'  File "{frame.get("filename")}", line {frame.get("lineno")}, in {frame.get("name")}' for frame in frames
    ]
    return TRACEBACK + "\n".join([*lines, f"{one['exc_type']}: {one.get('exc_value')}"])


def _raised(name: str, value: Any) -> bool:
    """Return whether a field of a logger's record says what was raised."""
    return isinstance(value, str) and bool(value) and (name in ERRORS or bool(RAISED.search(value)))


def _flat(record: Record) -> Iterator[tuple[str, Any]]:
    """Yield the fields of a record, and those one level below with both names."""
    for name, value in record.items():
        inner = value.items() if isinstance(value, dict) else ()
        yield from ((f"{name}.{below}", one) for below, one in inner)
        yield name, value


def _labelled(text: str, when: Any, who: Any) -> list[str]:
    """Return the lines of a message behind its writer and its time."""
    before = (f"[pod/{_writer(who)}/export] " if isinstance(who, str) and who else "") + _time(when)
    return [f"{before}{line}" if line.strip() else "" for line in text.removesuffix("\n").split("\n")]


def _fits(one: Envelope, record: Record) -> bool:
    if one.level and not isinstance(_field(record, one.level), str):  # a number would look like a rank
        return False
    return isinstance(_field(record, one.text), str | list) and all(
        _field(record, name) is not None for name in one.has
    )


def _field(record: Record, name: str) -> Any:
    if name in record:
        return record[name]
    first, dot, rest = name.partition(".")
    below = record.get(first) if dot else None
    return _field(below, rest) if isinstance(below, dict) else None


def _writer(name: str) -> str:
    found = STREAM.search(name[-2 * LONGEST_NAME :])
    return re.sub(r"[\]/\s]", "-", found[1] or found[2] if found else name)[:LONGEST_NAME]


def _time(when: Any) -> str:
    """Return a time stamp and a space; "" for a time in no known form."""
    if isinstance(when, str) and (found := ISO.match(when)):
        return f"{found[0]}Z "
    try:
        seconds = float(when)
        if not math.isfinite(seconds):
            return ""
        while seconds > 1e11:  # milliseconds, microseconds, nanoseconds
            seconds /= 1000
        return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S.%f}Z "
    except (TypeError, ValueError, OverflowError, OSError):
        return ""
