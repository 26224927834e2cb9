"""Tell the writers of one log apart: the hosts, pods or workers whose label a tool put before each line."""

import re

ANSI = re.compile(r"\x1b(?:\[[0-9;?]*[A-Za-z]|_bk;t=\d{1,20}\x07)")  # colours, and Buildkite's times
# Words that look like the name of a host: epoch1, fold-2 and gpu0, and the type of an exception at the start of a line.
NO_HOST = (
    r"(?!\S{1,80}(?:Error|Exception|Warning): |slurm|cv2\.error"
    r"|(?:acc|actor|agent|batch|block|case|client|env|epoch|exp|fold|group|iter|layer|level|loss|lr|model|phase|rank|round"
    r"|run|seed|split|stage|step|task|test|top|trial)[a-z]*[-_]?\d|(?:cuda|gpu)[-_:]?\d\b)"
)
HOST = r"[a-z][a-z-]*\d[\w.-]{0,60}|\d{1,3}(?:\.\d{1,3}){3}"  # a name with a digit, or an address
POD = r"[a-z][a-z0-9.-]{0,200}-(?:\d{1,4}|(?=[a-z]{0,4}\d)[a-z0-9]{5})"
PATTERNS = tuple(
    re.compile(f"{before} (?P<text>.*)")
    for before in (
        rf"{NO_HOST}(?P<who>{HOST}):",  # pdsh, clush, argo
        r"\((?P<who>head|worker\d+), rank=\d+, pid=\d+(?:, ip=[\d.]+)?\)",  # SkyPilot
        r"\((?P<who>\w{1,60} pid=\d+(?:, ip=[\d.]+)?)\)",  # Ray, vLLM
        # kubetail, Tekton and stern: a pod of a set or of a job, and its container
        rf"\[{NO_HOST}(?P<who>{POD})(?:(?: :)? [a-z0-9-]{{1,63}})?\]",
        rf"{NO_HOST}(?P<who>{POD}) (?P<container>[a-z0-9-]{{1,63}})",
        # journalctl, rsyslog
        r"(?:[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?:\.\d{1,9})?|(?P<when>\d{4}-\d\d-\d\dT\S{8,32}))"
        r" (?P<who>[\w.-]{1,64}) [\w./@-]{1,60}(?:\[\d{1,9}\])?:",
        # aws logs tail: AWS Batch, Container Insights
        r"(?P<when>\d{4}-\d\d-\d\dT\S{8,40}) (?P<who>\S{1,300}/default/[0-9a-f]{16,40}|\S{0,300}containers\.\S{1,300})",
    )
)
SOME = 0.2  # the part of the first few lines, of which some are often those of a batch script
POD_LABEL = r"\[pod/([^/\]\s]{1,253})/[^\]\s]{1,253}\] "  # kubectl logs --prefix
SERVICE_LABEL = r"([\w.@-]{1,253}) +\| "  # docker compose and service, SageMaker's local mode, `trainwright run`
MOSTLY, AGAIN = 0.6, 2  # the part of the lines that names a writer, and how often each one is named, on average
CONTAINERS = 2  # the most names of containers in one log; if more words follow a name, they belong to the text


def pattern(head: bytes, part: float = MOSTLY) -> re.Pattern[str] | None:
    """Return what so many lines of a log's beginning begin with, if it names who wrote them."""
    lines = [line for line in _lines(head) if line.strip()]
    return next((one for one in PATTERNS if sum(map(bool, map(one.match, lines))) > part * len(lines)), None)


def several(one: re.Pattern[str], head: bytes) -> bool:
    """Return whether it names more than one writer, and each again and again."""
    found = [match.groupdict() for match in map(one.match, _lines(head)) if match]
    if len({match.get("container") for match in found}) > CONTAINERS:
        return False
    return 1 < len({match["who"] for match in found}) <= len(found) / AGAIN


def parted(one: re.Pattern[str], line: str) -> tuple[str, str, str] | None:
    """Return text, time and writer of a line; None if it has no writer."""
    match = one.fullmatch(ANSI.sub("", line))
    if not match:
        return None
    parts = match.groupdict(default="")
    return parts["text"], parts.get("when", ""), re.sub(r"[=, ]+", "-", parts["who"])


def _lines(head: bytes) -> list[str]:
    return ANSI.sub("", head.decode(errors="replace")).splitlines()
