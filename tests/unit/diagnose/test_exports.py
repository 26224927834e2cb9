"""Test logs that other tools exported as records: each tells what the plain log tells, of the same writers."""

import csv
import io
import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.diagnose import exports, log_lines, tail
from trainwright.diagnose.tracebacks import BEGIN

PLAIN = """\
Epoch 1 loss 0.5
\rstep 1\rstep 2

Traceback (most recent call last):
  File "/opt/ml/code/train.py", line 7, in main
    raise ValueError("3 channels, \\"RGB\\" expected\\tä")
ValueError: 3 channels, "RGB" expected\tä
""".removesuffix("\n").split("\n")
BEGAN = 1_790_000_000
STAMPS = [f"{datetime.fromtimestamp(BEGAN + number, UTC):%Y-%m-%dT%H:%M:%S}" for number in range(len(PLAIN))]
Record = dict[str, Any]


def records(of: Callable[[int, str], Record]) -> list[Record]:
    return [of(number, line) for number, line in enumerate(PLAIN)]


def rows(of: Callable[[int, str], Record]) -> str:
    return "".join(f"{json.dumps(one)}\n" for one in records(of))


def event(number: int, line: str) -> Record:
    """GetLogEvents of Amazon CloudWatch Logs."""
    return {"timestamp": (BEGAN + number) * 1000, "message": line, "ingestionTime": (BEGAN + 9) * 1000}


def of_stream(number: int, line: str) -> Record:
    """FilterLogEvents: it names the stream of each event."""
    return {"logStreamName": "train-7/algo-2-1790000000", **event(number, line), "eventId": f"{number}"}


def fields(number: int, line: str) -> list[Record]:
    """GetQueryResults of Logs Insights."""
    told = {"@timestamp": f"{STAMPS[number].replace('T', ' ')}.000", "@message": line, "@ptr": "Cl0"}
    return [{"field": name, "value": value} for name, value in told.items()]


def journal(number: int, line: str) -> Record:
    """journalctl -o json, which writes what it cannot print as bytes."""
    message: Any = line if line.isprintable() else [*line.encode()]
    return {"__REALTIME_TIMESTAMP": f"{(BEGAN + number) * 1_000_000}", "_HOSTNAME": "node-1", "MESSAGE": message}


def table() -> str:
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(["@timestamp", "@message"])
    writer.writerows([stamp.replace("T", " "), line] for stamp, line in zip(STAMPS, PLAIN, strict=True))
    return text.getvalue()


def texts(before: str) -> str:
    """The text output of the AWS command line."""
    lines = [f"{before}{line}\t{(BEGAN + number) * 1000}\n" for number, line in enumerate(PLAIN)]
    return "b/36\tf/37\n" + "".join(lines)


ALGO, POD = "algo-2", "trainer-0"
EXPORTS = {
    "docker": ("", rows(lambda n, line: {"log": f"{line}\n", "stream": "stderr", "time": f"{STAMPS[n]}.000000001Z"})),
    "fluent bit": (
        POD,
        rows(lambda n, line: {"log": line, "time": STAMPS[n], "kubernetes": {"pod_name": POD, "host": "n1"}}),
    ),
    "get-log-events": ("", json.dumps({"events": records(event), "nextForwardToken": "f/37"}, indent=4)),
    "get-log-events on one line": ("", json.dumps({"events": records(event)})),
    "pages of get-log-events": (
        "",
        "".join(json.dumps({"events": [one], "nextForwardToken": "f/37"}, indent=4) + "\n" for one in records(event)),
    ),
    "get-log-events --query events": ("", json.dumps(records(event), indent=4)),
    "filter-log-events": (ALGO, json.dumps({"events": records(of_stream), "searchedLogStreams": []}, indent=4)),
    "filter-log-events --output text": (ALGO, texts("EVENTS\t36\t1790000009000\ttrain-7/algo-2-1790000000\t")),
    "get-log-events --output text": ("", texts("EVENTS\t1790000009000\t")),
    "aws logs tail": (
        ALGO,
        "".join(
            f"{stamp}.123000+00:00 train-7/algo-2-1790000000 {line}\n"
            for stamp, line in zip(STAMPS, PLAIN, strict=True)
        ),
    ),
    "subscription": ("", json.dumps({"owner": "1", "logEvents": [{"id": "3", **event(0, one)} for one in PLAIN]})),
    "Logs Insights": ("", json.dumps({"results": [fields(*one) for one in enumerate(PLAIN)]})),
    "Logs Insights, CSV": ("", table()),
    "journald": ("node-1", rows(journal)),
    "journald, pretty": ("node-1", "\n".join(json.dumps(one, indent=8) for one in records(journal))),
    "Loki": (POD, rows(lambda n, line: {"labels": {"pod": POD}, "line": line, "timestamp": f"{STAMPS[n]}Z"})),
    "Google Cloud": (
        POD,
        json.dumps(
            records(
                lambda n, line: {
                    "textPayload": line,
                    "timestamp": f"{STAMPS[n]}Z",
                    "resource": {"labels": {"pod_name": POD}},
                }
            ),
            indent=2,
        ),
    ),
    "Vertex AI": (
        POD,
        json.dumps(
            records(
                lambda n, line: {
                    "jsonPayload": {"message": line, "levelname": "ERROR"},
                    "timestamp": f"{STAMPS[n]}Z",
                    "resource": {"labels": {"pod_name": POD}},
                }
            )[::-1],
            indent=2,
        ),
    ),
    "gcloud logging read": (
        POD,
        "".join(
            f"---\ninsertId: i{number}\nresource:\n  labels:\n    pod_name: {POD}\n"
            f"textPayload: {json.dumps(PLAIN[number])}\ntimestamp: '{STAMPS[number]}Z'\n"
            for number in reversed(range(len(PLAIN)))
        ),
    ),
    "OpenTelemetry": (
        POD,
        json.dumps(
            {
                "resourceLogs": [
                    {
                        "resource": {"attributes": [{"key": "k8s.pod.name", "value": {"stringValue": POD}}]},
                        "scopeLogs": [
                            {
                                "logRecords": records(
                                    lambda n, line: {
                                        "timeUnixNano": f"{(BEGAN + n) * 10**9}",
                                        "body": {"stringValue": line},
                                    }
                                )
                            }
                        ],
                    }
                ]
            }
        ),
    ),
    "Loki's API": (
        POD,
        json.dumps(
            {
                "status": "success",
                "data": {
                    "resultType": "streams",
                    "result": [
                        {
                            "stream": {"pod": POD},
                            "values": [[f"{(BEGAN + n) * 10**9}", line] for n, line in enumerate(PLAIN)][::-1],
                        }
                    ],
                },
            }
        ),
    ),
    "Splunk": (
        "n1",
        rows(
            lambda n, line: {
                "preview": False,
                "result": {"_raw": line, "_time": f"{STAMPS[n]}.000+00:00", "host": "n1"},
            }
        ),
    ),
    "Datadog": (
        "",
        json.dumps(
            {"data": records(lambda n, line: {"attributes": {"message": line, "timestamp": f"{STAMPS[n]}.000Z"}})}
        ),
    ),
    "OpenSearch": (
        "",
        json.dumps(
            {"hits": {"hits": records(lambda n, line: {"_source": {"message": line, "@timestamp": STAMPS[n]}})}}
        ),
    ),
}


def read(path: Path) -> list[str]:
    return list(log_lines.lines(str(path)))


def read_text(text: str, folder: Path) -> list[str]:
    (folder / "log").write_text(text)
    return read(folder / "log")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("name", EXPORTS)
def test_an_export_holds_the_lines_of_the_log(name: str, encoding: str, tmp_path: Path) -> None:
    writer, text = EXPORTS[name]
    (tmp_path / "export").write_text(text, encoding=encoding, newline="")
    lines = [line for line in read(tmp_path / "export") if line != "b/36\tf/37"]
    assert [log_lines.unprefixed(line) for line in lines] == [log_lines.unprefixed(line) for line in PLAIN]
    told = [(line, log_lines.moment(stamp)) for line, stamp in zip(lines, STAMPS, strict=True) if line]
    if writer:
        assert {line.partition(" ")[0] for line, _ in told} == {f"[pod/{writer}/export]"}
    if name != "subscription":
        assert [int((log_lines.moment(line) or ("", 0))[1]) for line, _ in told] == [
            int(when[1]) for _, when in told if when
        ]


def test_the_host_that_failed_first_is_named(cli: Any, tmp_path: Path) -> None:
    """The host that only lost its peer comes first in the export."""
    lost = "RuntimeError: Connection closed by peer [10.0.0.1]:99"
    other = {**of_stream(9, lost), "logStreamName": "train-7/algo-1-1790000000"}
    (tmp_path / "events.json").write_text(json.dumps({"events": [other, *records(of_stream)]}))
    done = cli(Path(__file__).parents[3], "diagnose", str(tmp_path / "events.json"))
    assert "algo-2 failed first: the program raised ValueError" in done.out


def test_a_log_that_is_watched(tmp_path: Path) -> None:
    """What Docker writes while a container runs comes in pieces of any size."""
    raw = EXPORTS["docker"][1].encode()
    lines = [*tail._whole(iter([raw[:50], b"", raw[50:]]))]
    assert lines[0] is None
    assert lines[1:] == read_text(EXPORTS["docker"][1], tmp_path)


def test_a_traceback_beside_a_message(tmp_path: Path) -> None:
    record = {
        "asctime": "2026-11-27 10:00:00,123",
        "levelname": "ERROR",
        "message": "failed",
        "exc_info": "\n".join(PLAIN),
    }
    lines = [log_lines.unprefixed(line)[0] for line in read_text(json.dumps(record) + "\nplain\n", tmp_path)]
    assert (lines[0], lines[-2:]) == ("ERROR: failed", [PLAIN[-1], "plain"])


@pytest.mark.parametrize(
    "record",
    [
        {"level": "error", "ts": "2026-11-27T10:00:00Z", "msg": "failed", "error": "no such image"},  # zap
        {"level": "error", "time": "2026-11-27T10:00:00Z", "msg": "failed", "error": "no such image"},  # logrus
        {"level": "error", "timestamp": "2026-11-27T10:00:00Z", "event": "failed", "exception": "E\nno such image"},
        {"level": "ERROR", "timestamp": "2026-11-27T10:00:00Z", "message": "failed", "stack": "E\nno such image"},
        {"level": "ERROR", "time": "2026-11-27T10:00:00Z", "message": "failed", "stack": "E\nno such image"},
        {"severity": "ERROR", "time": "2026-11-27T10:00:00Z", "message": "failed", "exc_info": "E\nno such image"},
        {
            "@timestamp": "2026-11-27T10:00:00Z",
            "log.level": "error",
            "message": "failed",
            "error": {"stack_trace": "E\nno such image"},
        },
    ],
)
def test_loggers_that_write_json(record: Record, tmp_path: Path) -> None:
    lines = [log_lines.unprefixed(line)[0] for line in read_text(json.dumps(record) + "\nplain\n", tmp_path)]
    assert (lines[0], lines[-2:]) == ("ERROR: failed", ["no such image", "plain"])


@pytest.mark.parametrize(
    "before",
    ["[pod/trainer-0/main] ", "2026-11-27T10:00:00.123Z ", "2026-11-27T10:00:00.123456789Z stderr F "],
)
def test_a_logger_behind_what_kubernetes_puts_there(before: str, cli: Any, tmp_path: Path) -> None:
    record = {"level": "error", "ts": "2026-11-27T10:00:00Z", "msg": "failed", "exc": "\n".join(PLAIN[3:])}
    (tmp_path / "log").write_text(f"{before}{json.dumps(record)}\n")
    out = cli(Path(__file__).parents[3], "diagnose", str(tmp_path / "log")).out
    assert 'raised ValueError: 3 channels, "RGB" expected' in out
    assert "/opt/ml/code/train.py:7 in main" in out
    label = before if before.startswith("[pod") else ""
    assert all(line.startswith(label) for line in read(tmp_path / "log") if line)


def test_google_cloud_keeps_what_a_logger_raised(cli: Any, tmp_path: Path) -> None:
    payload = {"message": "crashed", "exc_info": "\n".join(PLAIN[3:])}
    (tmp_path / "log").write_text(json.dumps([{"jsonPayload": payload, "timestamp": "2026-11-27T10:00:00Z"}]))
    assert "raised ValueError" in cli(Path(__file__).parents[3], "diagnose", str(tmp_path / "log")).out


FRAMES = ['  File "/job/a.py", line 9, in <module>\n    main()\n', '  File "/job/a.py", line 3, in load\n    d["b"]\n']
LAMBDA = {"stackTrace": FRAMES, "errorType": "KeyError", "errorMessage": "'b'"}


@pytest.mark.parametrize(
    ("record", "raised"),
    [
        (  # structlog 25, dict_tracebacks: the last exception first
            {
                **{"event": "failed", "level": "error", "timestamp": "2026-11-27T23:29:27.2Z", "step": 3},
                "exception": [
                    {
                        **{"exc_type": "ValueError", "exc_value": "no data", "is_cause": False},
                        "frames": [{"filename": "/job/a.py", "lineno": 9, "name": "main", "locals": {}}],
                    },
                    {
                        **{"exc_type": "KeyError", "exc_value": "'b'", "is_cause": True},
                        "frames": [{"filename": "/job/a.py", "lineno": 3, "name": "load", "locals": {}}],
                    },
                ],
            },
            "KeyError: 'b', at /job/a.py:3 in load, which led to ValueError: no data",
        ),
        # awslambdaric 3: the record of a logger; the record of an uncaught exception
        ({"timestamp": "2026-11-27T23:29:27Z", "level": "ERROR", "message": "failed", **LAMBDA}, "a.py:3 in load"),
        (
            {"timestamp": "2026-11-27T23:29:27Z", "log_level": "ERROR", **LAMBDA},
            "KeyError: 'b', at /job/a.py:3 in load",
        ),
    ],
)
def test_a_traceback_in_parts(record: Record, raised: str, cli: Any, tmp_path: Path) -> None:
    (tmp_path / "log").write_text(json.dumps(record) + "\n")
    assert raised in cli(Path(__file__).parents[3], "diagnose", str(tmp_path / "log")).out


def test_loguru(tmp_path: Path) -> None:
    record = {"level": {"name": "ERROR"}, "time": {"timestamp": BEGAN}, "message": "failed"}
    lines = read_text(json.dumps({"text": "\n".join(PLAIN[3:]) + "\n", "record": record}) + "\n", tmp_path)
    assert [log_lines.unprefixed(line)[0] for line in lines] == [log_lines.unprefixed(line)[0] for line in PLAIN[3:]]


def test_other_fields_of_a_logger_stand_beside_its_message(tmp_path: Path) -> None:
    record = {"level": "error", "ts": "2026-11-27T10:00:00Z", "msg": "failed", "rank": 3, "reason": "the disk is full"}
    below = {**record, "err": {"message": "CUDA out of memory", "code": 2}}
    lines = [log_lines.unprefixed(line)[0] for line in read_text(json.dumps(below) + "\n", tmp_path)]
    assert lines == ["ERROR: failed rank=3 reason=the disk is full err.code=2", "CUDA out of memory"]


def test_what_a_logger_only_informs_of_raised_nothing(cli: Any, tmp_path: Path) -> None:
    record = {"level": "info", "ts": "2026-11-27T10:00:00Z", "msg": "retrying", "error": "ConnectionError: refused"}
    (tmp_path / "log").write_text(json.dumps(record) + "\n")
    assert "unknown" in cli(Path(__file__).parents[3], "diagnose", str(tmp_path / "log")).out


def test_a_level_that_is_a_number_is_no_rank(tmp_path: Path) -> None:
    text = json.dumps({"level": 50, "time": "2026-11-27T10:00:00Z", "msg": "RuntimeError: x"})
    assert read_text(f"{text}\n", tmp_path) == [text]


def test_a_dotted_exception_on_one_line(tmp_path: Path) -> None:
    flat = f"{BEGIN}:\\n{PLAIN[4]}\\n    load()\\nmypkg.errors.BadConfig: no key foo"
    assert read_text(f"{flat}\n", tmp_path)[-1] == "mypkg.errors.BadConfig: no key foo"


@pytest.mark.parametrize(
    "text",
    [
        '{"resourceLogs":[{"scopeLogs":[{"logRecords":5}]}]}',
        '{"nbformat":4,"cells":[{"outputs":5}]}',
        '{"nbformat":4,"cells":[{"outputs":[{"traceback":5}]}]}',
    ],
)
def test_odd_lists_hold_no_record(text: str, tmp_path: Path) -> None:
    assert read_text(text, tmp_path) == [text]


def test_relative_times_are_numbers(tmp_path: Path) -> None:
    rows = [{"level": "info", "msg": word, "ts": time} for word, time in (("first", 9.5), ("second", 10.2))]
    lines = read_text("".join(f"{json.dumps(one)}\n" for one in rows), tmp_path)
    assert [line.rpartition(" ")[2] for line in lines] == ["first", "second"]


@pytest.mark.parametrize("attributes", [[1, 2], 5, [{"key": [1]}], None])
def test_odd_attributes_name_nobody(attributes: Any, tmp_path: Path) -> None:
    record = {"timeUnixNano": "1790000000000000000", "body": {"stringValue": "step 1"}}
    told = {
        "resource": {"attributes": attributes},
        "scopeLogs": [{"logRecords": [record, {"body": {"intValue": 7}}]}, 3],
    }
    lines = read_text(json.dumps({"resourceLogs": [told]}), tmp_path)
    assert (lines[0].endswith("step 1"), len(lines)) == (True, 2)
    assert '"intValue": 7' in lines[1]


def test_yaml_keeps_its_texts(tmp_path: Path) -> None:
    text = "---\ninsertId: a\ntextPayload: step 1\ntimestamp: 2026-11-27T10:00:00Z\nother: !!bool zz\n"
    assert read_text(text, tmp_path) == ["2026-11-27T10:00:00Z step 1"]


def test_yaml_with_aliases_passes_unchanged(tmp_path: Path) -> None:
    bomb = "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 9))
    text = f"---\ninsertId: a\na0: &a0 x\n{bomb}timestamp: *a8\ntextPayload: *a8\n"
    assert "\n".join(read_text(text, tmp_path)) == text.rstrip("\n")


@pytest.mark.parametrize("end", [" ", "\\n", "\\\\n"])
def test_a_traceback_on_one_line(end: str, tmp_path: Path) -> None:
    frame = f'  File "/opt/ml/code/train.py", line 7, in main{end}    work()'
    flat = f"{BEGIN}:{end}{frame}{end}ValueError: 3 channels expected"
    lines = [line.strip() for line in read_text(f'{{"other": 1, "what": "{flat}\n', tmp_path)]
    assert lines[-2:] == ["work()", "ValueError: 3 channels expected"]
    assert lines[-3].startswith('File "/opt/ml/code/train.py", line 7, in main')


@pytest.mark.parametrize(
    "text", ["---\ninsertId: [\n", "---\ninsertId: a\n", "---\ninsertId: " + "[" * 20_000 + "]" * 20_000]
)
def test_yaml_of_no_log_passes_unchanged(text: str, tmp_path: Path) -> None:
    assert "\n".join(read_text(text, tmp_path)) == text.rstrip("\n")


@pytest.mark.parametrize(
    "text",
    [
        "{'loss': 0.5}\n{'loss': 0.4}\n",
        '{"loss": 0.5}\n{"loss": 0.4}\n',
        '{"version": 2, "config": {"events": []}}',
        '{\n  "nccl_version": "2.28"\n}\n',
        "[1,0]<stdout>:hello\n",
        '{"events": [',
        '{"events": [{"message": "cut", "timestamp": 1, "ingestionTime',
        "[" * 100_000,
        '{"events":' * 50_000,
        "{",
    ],
    ids=range(10),
)
def test_what_is_no_export_passes_unchanged(text: str, tmp_path: Path) -> None:
    (tmp_path / "log").write_text(text)
    with log_lines.opened(str(tmp_path / "log")) as stream:
        assert stream.read().decode() == text


def test_a_cell_that_is_too_long_ends_a_table(tmp_path: Path) -> None:
    long = "a" * 200_000
    assert read_text(f"@message\nfirst\n{long}\nlast\n", tmp_path) == [
        "first",
        "a row of this export is not read: field larger than field limit (131072)",
        "last",
    ]
    assert read_text(f"@message{long}\nlast\n", tmp_path)[-1] == "last"


def test_a_record_that_is_cut_off_stays_as_it_is(tmp_path: Path) -> None:
    whole = json.dumps({"log": "first\n", "stream": "stderr", "time": ""})
    assert read_text(f"{whole}\n{whole[:20]}", tmp_path) == ["first", whole[:20]]


@given(
    st.dictionaries(
        st.sampled_from(["message", "timestamp", "ingestionTime", "log", "stream", "time", "MESSAGE", "levelname"]),
        st.one_of(st.none(), st.integers(), st.floats(), st.text(), st.lists(st.integers()), st.just({})),
    )
)
def test_fields_of_any_type(record: Record) -> None:
    assert exports.of_line(json.dumps(record))


def test_the_reason_of_a_training_job(cli: Any, tmp_path: Path) -> None:
    """aws sagemaker describe-training-job; the reason is that of SageMaker's toolkit."""
    reason = 'AlgorithmError: ExecuteUserScriptError:\nExitCode 1\nErrorMessage "ValueError: 3 channels"\nCommand "x"'
    described = {"TrainingJobName": "train-7", "TrainingJobStatus": "Failed", "FailureReason": reason}
    (tmp_path / "job.json").write_text(json.dumps(described, indent=4))
    assert (
        "the program raised ValueError: 3 channels\n"
        in cli(Path(__file__).parents[3], "diagnose", str(tmp_path / "job.json")).out
    )


def test_a_notebook_that_ran(cli: Any, tmp_path: Path) -> None:
    raised = [
        "-" * 75,
        "ValueError        Traceback (most recent call last)",
        "Cell In[1], line 5",
        "ValueError: 3 channels",
    ]
    outputs = [
        {"output_type": "stream", "name": "stdout", "text": ["step 1\n", "step 2\n"]},
        {"output_type": "error", "ename": "ValueError", "evalue": "3 channels", "traceback": raised},
    ]
    cells = [{"cell_type": "markdown", "source": ["# a"]}, {"cell_type": "code", "outputs": outputs, "source": ["f()"]}]
    (tmp_path / "a.ipynb").write_text(json.dumps({"cells": cells, "metadata": {}, "nbformat": 4}))
    assert (
        "the program raised ValueError: 3 channels"
        in cli(Path(__file__).parents[3], "diagnose", str(tmp_path / "a.ipynb")).out
    )


def test_the_error_files_of_torchrun(cli: Any, tmp_path: Path) -> None:
    """torchrun --log-dir writes one for each rank whose function is decorated with `record`."""
    lost = "Traceback (most recent call last):\nRuntimeError: Connection closed by peer [10.0.0.1]:99\n"
    for rank, raised in enumerate((lost, "\n".join(PLAIN))):
        error = {"message": "it failed", "extraInfo": {"py_callstack": raised, "timestamp": f"{BEGAN + 9 - rank}"}}
        (tmp_path / f"attempt_0/{rank}").mkdir(parents=True)
        (tmp_path / f"attempt_0/{rank}/error.json").write_text(json.dumps({"message": error}))
    done = cli(Path(__file__).parents[3], "diagnose", str(tmp_path))
    assert "rank 1 failed first: the program raised ValueError" in done.out


@pytest.mark.parametrize(
    "text",
    [
        '{"log":"x","stream":"s","time":"inf"}',
        '{"log":"x","stream":"s","time":1e999}',
        json.dumps({"log": "x", "stream": "s", "time": "9" * 400}),
        json.dumps({"message": "x", "timestamp": 1, "logStreamName": "containers." * 20_000}),
        '[{"field": []}]',
        '[[{"field": []}]]',
        '{\n"nbformat":4,"cells":5}',
        '{"nbformat":4,"cells":[{"outputs":null},{"outputs":[5,{"text":7}]}]}',
    ],
    ids=range(8),
)
def test_hostile_records(text: str, tmp_path: Path) -> None:
    assert all(len(line) < 1000 for line in read_text(f"{text}\n", tmp_path))


def test_what_follows_an_export_is_read(tmp_path: Path) -> None:
    described = json.dumps({"TrainingJobName": "t", "FailureReason": "AlgorithmError: see the log"}, indent=4)
    page = json.dumps({"events": records(event)}, indent=4)
    rest = "An error occurred (ThrottlingException) when calling the GetLogEvents operation"
    assert read_text(f"{described}\nplain\n", tmp_path)[-1] == "plain"
    assert [line for line in read_text(f"{page}\n{rest}\n", tmp_path) if line][-1] == rest
    cut = read_text(f"{page}\n{page[:-150]}", tmp_path)
    assert '"message": ' in "".join(cut[len(PLAIN) :])


def test_further_fields_of_a_logger_belong_to_its_message(tmp_path: Path) -> None:
    record = {"levelname": "ERROR", "message": "failed", "name": "train", "error": "torch.OutOfMemoryError: no memory"}
    assert read_text(json.dumps(record) + "\n", tmp_path) == [
        "ERROR: failed name=train",
        "torch.OutOfMemoryError: no memory",
    ]
    own = json.dumps({"timestamp": "x", "id": 7, "message": "failed", "traceback": "ValueError: 3 channels"})
    assert read_text(f"{own}\n", tmp_path) == [own]


def test_a_record_within_a_record(tmp_path: Path) -> None:
    """Container Insights hands on what Fluent Bit wrote."""
    inner = {"log": "ValueError: 3 channels", "stream": "stderr", "time": STAMPS[0], "kubernetes": {"pod_name": POD}}
    events = {"events": [{**of_stream(0, json.dumps(inner)), "logStreamName": "n-application"}]}
    assert read_text(json.dumps(events), tmp_path) == [f"[pod/{POD}/export] {STAMPS[0]}Z ValueError: 3 channels"]


@pytest.mark.parametrize(
    ("names", "who"),
    [
        (["@timestamp", "@message", "@logStream"], "train-7/algo-2-1790000000"),
        (["timestamp", "message"], ""),
        (["Date", "Host", "Message"], "algo-2"),
        (["_time", "host", "_raw"], "algo-2"),
        (["TimeGenerated", "PodName", "LogMessage"], "algo-2"),
    ],
    ids=["Logs Insights", "CloudWatch", "Datadog", "Splunk", "Azure"],
)
def test_a_table_with_the_newest_line_first(names: list[str], who: str, tmp_path: Path) -> None:
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(names)
    for stamp, line in reversed([*zip(STAMPS, PLAIN, strict=True)]):
        values = {"message": line, "_raw": line, "logmessage": line, "@message": line}
        hosts = dict.fromkeys(("@logstream", "host", "podname"), who)
        writer.writerow([{**values, **hosts}.get(name.lower(), stamp) for name in names])
    lines = read_text(text.getvalue(), tmp_path)
    assert [log_lines.unprefixed(line) for line in lines] == [log_lines.unprefixed(line) for line in PLAIN]
    assert {line.partition(" ")[0] for line in lines if line} == {f"[pod/{ALGO}/export]"} or not who


@pytest.mark.parametrize("of", [event, of_stream, fields], ids=["get", "filter", "Logs Insights"])
def test_a_document_with_the_newest_line_first(of: Callable[[int, str], Any], tmp_path: Path) -> None:
    lines = read_text(json.dumps({"events": records(of)[::-1]}), tmp_path)
    assert [log_lines.unprefixed(line) for line in lines] == [log_lines.unprefixed(line) for line in PLAIN]


def test_records_of_a_subscription_on_one_line(tmp_path: Path) -> None:
    """Firehose writes them to S3 without a line end between them."""
    page = {
        "messageType": "DATA_MESSAGE",
        "logStream": "train-7/algo-2-1790000000",
        "logEvents": [{"id": "1", **event(0, "a")}],
    }
    assert [line[-1:] for line in read_text(json.dumps(page) * 2, tmp_path)] == ["a", "a"]
    assert all(line.startswith("[pod/algo-2/export] ") for line in read_text(json.dumps(page) * 2, tmp_path))


def test_a_table_of_results_is_no_export(tmp_path: Path) -> None:
    text = "epoch,loss,message\n1,0.5,fine\n"
    assert read_text(text, tmp_path) == text.splitlines()


def test_lines_of_records_with_the_newest_first(tmp_path: Path) -> None:
    text = "".join(EXPORTS["Loki"][1].splitlines(keepends=True)[::-1])
    assert [log_lines.unprefixed(line) for line in read_text(text, tmp_path)] == [*map(log_lines.unprefixed, PLAIN)]


def test_filebeat(tmp_path: Path) -> None:
    record = {
        "@timestamp": f"{STAMPS[0]}.000Z",
        "log": {"offset": 7},
        "message": "x",
        "kubernetes": {"pod": {"name": POD}},
    }
    assert read_text(json.dumps(record), tmp_path) == [f"[pod/{POD}/export] {STAMPS[0]}.000Z x"]
