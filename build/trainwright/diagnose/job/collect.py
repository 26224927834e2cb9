"""Find what a job left behind: logs, recorder dumps and RAS output, in files, folders and labelled lines."""

import json
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from trainwright.core.errors import ConfigError
from trainwright.core.progress import counted
from trainwright.diagnose import log_lines
from trainwright.diagnose.job import file_names, ras, recorder
from trainwright.diagnose.job.ras import Ras
from trainwright.diagnose.job.recorder import Dump
from trainwright.diagnose.job.said import Words
from trainwright.diagnose.job.streams import Key, Splitter, Stream, resolved
from trainwright.diagnose.job.unpickle import LARGEST, Refused
from trainwright.diagnose.reader import Reader, blocks

MOST_FILES = 20_000
HEAD = 1 << 16
# The first line of the launcher's failure file.
REPORT = re.compile(r"([A-Za-z0-9][\w.-]{0,252}): exit code \d{1,3}\s*\n")
SAID = 1 << 20  # bytes of a log in which the name of its host is looked for
NOT_LOGS = re.compile(
    r"\.(?:py|ipynb|md|rst|toml|ya?ml|ini|cfg|lock|html|sh|sbatch|slurm|cc?|cpp|h|cu"
    r"|png|pdf|svg|pth?|bin|safetensors|npy|parquet|[ct]sv)$"
)


@dataclass
class Left:
    """What was found, by kind; `notes` has a sentence for each file that was not read."""

    logs: list[str] = field(default_factory=list)
    empty: list[str] = field(default_factory=list)  # files in folders without a word
    dumps: list[Dump] = field(default_factory=list)
    ras: list[Ras] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    folder: str = ""  # one of those that were named
    files: int = 0


def left(paths: Iterable[str]) -> Left:
    """Sort files, and those in folders, by what they hold. Raises ConfigError for a file that cannot be read."""
    found = Left()
    for path in paths:
        if path != log_lines.STANDARD_INPUT and Path(path).is_dir():
            found.folder = found.folder or path
            for file in _in_folder(path, found):
                try:
                    _sort(file, found, inside=True)
                except ConfigError as error:
                    found.notes.append(f"{file}: {error.why or error.what}")
        else:
            _sort(path, found, inside=False)
    found.logs = _without_copies(found.logs)
    if found.notes and not (found.folder or found.logs or found.dumps or found.ras):
        file, _, why = found.notes[0].partition(": ")
        raise ConfigError("this file is not read", where=file, why=why.removeprefix("not read: "), fix=f"file {file}")
    if found.folder and not (found.logs or found.dumps or found.ras):
        why = f"it has {counted(found.files, 'file')}, none of them a log" if found.files else "it is empty"
        raise ConfigError("no log in this folder", where=found.folder, why=why, fix="name the folder of the job's logs")
    return found


def _in_folder(path: str, found: Left) -> list[str]:
    files = list[str]()
    for folder, below, names in os.walk(path):
        below[:] = sorted(one for one in below if not one.startswith("."))
        files += [os.path.join(folder, name) for name in sorted(names) if not name.startswith(".")]  # noqa: PTH118
        if len(files) > MOST_FILES:
            found.notes.append(f"{path}: it has more than {MOST_FILES} files; the rest was not read")
            break
    found.files += len(files)
    return files[:MOST_FILES]


def _sort(file: str, found: Left, inside: bool) -> None:
    if file == log_lines.STANDARD_INPUT:
        found.logs.append(file)
        return
    if inside and (NOT_LOGS.search(file) or not Path(file).is_file()):
        return
    with log_lines.opened(file) as stream:
        head = stream.read(HEAD)
        try:
            if recorder.is_dump(head):
                found.dumps.append(recorder.dumped(head + stream.read(LARGEST), file))
                return
            if ras.is_ras(head):
                found.ras.append(ras.answered(head + stream.read(LARGEST), file))
                return
        except Refused as error:
            found.notes.append(f"{file}: not read: {error}")
            return
    if inside and (b"\0" in head[: log_lines.LOOKED_AT] or not head.strip()):
        found.notes.append(f"{file}: not read: {'it is not text' if head.strip() else 'it is empty'}")
        found.empty += [file] if not head.strip() else []
    elif not (inside and _is_json(head)):
        found.logs.append(file)


def _is_json(head: bytes) -> bool:
    """Return whether a file is JSON and no log: one value, not one on each line."""
    if not head.lstrip().startswith((b"{", b"[{")):
        return False
    try:
        json.loads(head.lstrip().splitlines()[0])
    except (ValueError, RecursionError):
        return True
    return head.count(b"\n") <= 1


def streams(logs: Iterable[str], empty: Iterable[str], reader: Reader, words: Words) -> list[Stream]:
    """Read the logs and split them by who wrote the lines. Raises ConfigError.

    Empty files that are named like the others show ranks that said nothing, if together they are numbered from 0.
    """
    every, names = list[Stream](), list(logs)
    for file in names:
        with log_lines.opened(file) as stream:
            every += Splitter(file, reader, words).read(blocks(stream))
    hosts = file_names.hosts(names, _says)
    hosts |= {file: host for file in names if (host := _reported(file)[0])}
    alike = {file_names.stem(name) for name in names}
    silent = [file for file in empty if file_names.RANK.search(file) and file_names.stem(file) in alike]
    ranks = file_names.numbered([*names, *silent], bool(hosts))
    if sorted(set(ranks.values())) != [*range(len(set(ranks.values())))]:
        ranks, silent = file_names.numbered(names, bool(hosts)), []
    every += [Stream(file, Key(), reader.fresh()) for file in silent]
    return list(resolved(every, ranks, hosts))


def _without_copies(logs: Iterable[str]) -> list[str]:
    """Keep one of several equal failure files, because the launcher writes the same one on every host.

    Prefer the file in the folder of the host that failed.
    """
    found = dict[tuple[str, bytes] | str, str]()
    for file in logs:
        host, text = _reported(file)
        key = (host, text) if host else file
        found[key] = file if host in Path(file).parts else found.get(key, file)
    return [*found.values()]


def _reported(file: str) -> tuple[str, bytes]:
    """Return the host that a failure file of the launcher names, and its beginning; nothing of any other file."""
    if Path(file).name != "failure":
        return "", b""
    with log_lines.opened(file) as stream:
        head = stream.read(HEAD)
    named = REPORT.match(head.decode(errors="replace"))
    return (named[1], head) if named else ("", b"")


def _says(file: str, word: str) -> bool:
    """Return whether the beginning of a log holds a word."""
    with log_lines.opened(file) as stream:
        return bool(re.search(rb"(?<![\w/.-])%s(?![\w/-])" % re.escape(word.encode()), stream.read(SAID)))
