"""Tell which rank or host wrote a log, and which two files are of one process, by the names of files and folders."""

import re
from collections.abc import Callable, Iterable

from trainwright.diagnose.writers import HOST, NO_HOST

ENDS = r"(?:\.(?:log|out|err|txt|stdout|stderr|gz|zst|bz2|xz))*$"
RANK = re.compile(rf"(?:^|[/_.-])(?:rank|task|proc|r)?[_.-]?(\d{{1,6}}){ENDS}")
NAMED_RANK = re.compile(r"(?:^|[/_.-])(?:rank|task|global_rank)[_.=-]?(\d{1,6})(?![\d])")
ADDRESS = re.compile(rf"(?:^|[/_-])((?:\d{{1,3}}\.){{3}}\d{{1,3}}){ENDS}")
NAMED_HOST = re.compile(rf"(?:^|/)((?:node|host|algo|worker|master|pod|ip)[\w]*-[\w.-]*?){ENDS}")
# Paths of tools that keep the logs of several hosts or pods.
PLACES = tuple(
    map(
        re.compile,
        (
            r"/pods/[a-z0-9-]{1,63}_([a-z0-9.-]{1,253})_[0-9a-f-]{32,36}/",  # /var/log/pods of a node of Kubernetes
            r"(?:^|/)([a-z0-9.-]{1,253})_[a-z0-9-]{1,63}_[a-z0-9-]{1,63}-[0-9a-f]{64}\.log",  # /var/log/containers
            r"/pods/([a-z0-9][a-z0-9.-]{0,252})/",  # must-gather of OpenShift, support bundles
            r"(?:^|[/-])(algo-\d{1,6})-\d{10}(?:/|$)",  # CloudWatch Logs, exported to S3
        ),
    )
)
DIGITS = re.compile(r"\d+")
HOST_BEHIND = re.compile(r"(?:node|host|gpu|dgx|hgx|compute|cn|nid|ip|worker|server|vm)[\w-]{0,40}\d$", re.IGNORECASE)
WORDS = re.compile(r"[/_.]")
NAME = re.compile(rf"{NO_HOST}(?:{HOST})", re.IGNORECASE)
# What hosts are mostly called; any other name must stand in each of the logs, too.
USUAL = re.compile(
    r"(?:(?:node|host|dgx|hgx|worker|master|compute|server)-?\d[\w-]*|(?:cn|nid|vm|ip|algo)-?\d[\d-]*|i-[0-9a-f]{8,17}"
    r"|.{1,60}-(?:st|dy)-.{1,60}|(?:dgx|hgx)-[\w-]{1,60})$",
    re.IGNORECASE,
)
# Of one process, each a file; what stands behind it is the same for both.
STREAM = re.compile(r"(?P<before>(?:^|/)std|\.(?:std)?)(?P<stream>out|err)(?P<behind>(?:\.\w{1,4})?)$")


def of_file(name: str) -> tuple[str, int | None]:
    """Return the host and the rank that a log's name says."""
    parts = name.split("/")
    if len(parts) > 1 and parts[-1] in ("stdout.log", "stderr.log", "error.json") and parts[-2].isdigit():
        return "", int(parts[-2])  # torchrun --log-dir
    short = "/".join(parts[-2:])
    if found := NAMED_RANK.search(short):
        return "", int(found[1])
    if found := ADDRESS.search(name) or NAMED_HOST.search(name):
        return found[1], None
    return "", None


def hosts(names: list[str], says: Callable[[str, str], bool]) -> dict[str, str]:
    """Return the host of each file, where one word of their names or folders tells hosts apart; else nothing.

    `says` returns whether a log holds a word.
    """
    for place in PLACES:
        found = {name: match[1] for name in names if (match := place.search(name))}
        if len(found) == len(names) and len(set(found.values())) > 1:
            return found
    words = [WORDS.split(re.sub(ENDS, "", name)) for name in names]
    if len(names) < 2 or len({len(one) for one in words}) != 1:
        return {}
    for column in zip(*words, strict=True):
        different = set(column)
        alike = len(different) > 1 and all(map(NAME.fullmatch, different))
        if alike and (all(map(USUAL.match, different)) or all(map(says, names, column))):
            return dict(zip(names, column, strict=True))
    return {}


def numbered(names: Iterable[str], of_hosts: bool = False) -> dict[str, int]:
    """Return the ranks of files whose names differ in one last number alone; those of hosts must begin at 0.

    A rank may have two files, of standard output and standard error.
    """
    every = list(names)
    found = {name: int(match[1]) for name in every if (match := RANK.search(name)) and not ADDRESS.search(name)}
    stems = {stem(name) for name in found}
    of_hosts = of_hosts or any(NAMED_HOST.search(name) for name in every)
    files = {(number, name.rpartition(".")[2]) for name, number in found.items()}
    ranks = sorted(set(found.values()))
    if len(found) != len(every) or len(every) != len(files) or len(ranks) < 2:
        return {}
    if len(stems) > 1:  # %j-%N-%t of Slurm: hosts differ in a number, too, and all ranks are there
        alike = len({DIGITS.sub("#", one) for one in stems}) == 1 and all(map(HOST_BEHIND.search, stems))
        return found if alike and ranks == [*range(len(ranks))] else {}
    return {} if of_hosts and ranks[0] else found


def stem(name: str) -> str:
    """Return a name without its last number and what follows it. The files of one job's ranks share this stem."""
    return RANK.sub("", name)


def of_one_process(names: Iterable[str]) -> list[list[str]]:
    """Put standard output and standard error of one process together: two files whose names differ in that alone."""
    found = dict[str, dict[str, str]]()
    for name in names:
        match = STREAM.search(name)
        key = STREAM.sub(r"\g<before>\g<behind>", name) if match else name
        found.setdefault(key, {})[match["stream"] if match else name] = name
    return [[*group.values()] for group in found.values()]
