"""`make bench`: how long people wait. Prints a table of medians, and writes results/<name>.json.

With --page the table is written into docs/speed.md, too. Each row of bench.toml that --rows names is run once to warm
up (not where it says `warm_up = false`), then so many times. With --against, a second checkout runs the same in turn
(A B A B ...), so that what else the machine does hits both. Nothing fails for being slow; a command that fails is said.
"""

import argparse
import json
import os
import platform
import shlex
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

from trainwright.core import host_settings

ROOT = Path(__file__).parents[1]
HERE = Path(__file__).parent
PARTS = ("dockerfiles", "scripts", "tests", "pyproject.toml", "requirements.lock")  # what a command of a copy reads
PAGE, MARK = ROOT / "docs/speed.md", "<!-- written by `make bench` -->"
FEW_LINES = 15  # of what a command that failed said last

Result = dict[str, Any]


@dataclass
class Row:
    id: str
    what: str
    command: str
    where: Literal["checkout", "scratch", "fresh", "clone"]
    runs: int
    warm_up: bool = True
    change: str = ""
    unchanged_first: bool = False
    setup: bool = True  # of a clone: its .venv is there before it is measured
    needs: str = ""
    full: bool = False

    def told(self, image: str, programs: str = "") -> str:
        """Fill in the words that the head of bench.toml explains; `programs` goes before the names of programs."""
        own = {name: f"{programs}{name}" for name in ("trainwright", "python")}
        return self.command.format(id=image, registry=host_settings.registry_address(ROOT), **own)


@dataclass
class Side:
    """One of the checkouts that are compared."""

    name: str
    root: Path

    @property
    def commit(self) -> str:
        try:
            return said(["git", "describe", "--always", "--dirty", "--abbrev=12"], self.root)
        except (OSError, subprocess.CalledProcessError):
            return "unknown"


class Failed(Exception):
    """A command did not end with 0."""


def said(words: Sequence[str], folder: Path = ROOT) -> str:
    return subprocess.run(words, cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


def settings() -> tuple[str, list[Row]]:
    data = tomllib.loads((HERE / "bench.toml").read_text())
    return data["image"], [Row(**row) for row in data["rows"]]


def machine() -> Result:
    pages = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cores": os.cpu_count(),
        "memory_gb": round(pages / 2**30),
        "architecture": platform.machine(),
        "python": platform.python_version(),
        "engine": engine() or "none answers",
    }


def engine() -> str:
    try:
        return said(["docker", "version", "--format", "{{.Server.Version}}"])
    except (OSError, subprocess.CalledProcessError):
        return ""


# --- where a command runs --------------------------------------------------------------------------------------------

Run = Callable[[], float]  # one run; its seconds


def run(command: str, folder: Path, environment: Mapping[str, str]) -> float:
    began = time.monotonic()
    with tempfile.TemporaryFile() as log:
        ended = subprocess.run(
            ["bash", "-c", command], cwd=folder, env={**os.environ, **environment}, stdout=log, stderr=log
        )
        seconds = time.monotonic() - began
        if ended.returncode:
            log.seek(0)
            last = log.read().decode(errors="replace").splitlines()[-FEW_LINES:]
            print(*last, sep="\n", file=sys.stderr)
            raise Failed(f"exit {ended.returncode}")
    return seconds


@contextmanager
def place(row: Row, side: Side, image: str) -> Iterator[Run]:
    """Somewhere to run a row; what was made for that is gone afterwards."""
    command = row.told(image, f"{side.root}/.venv/bin/")
    with ExitStack() as stack:
        if row.where == "checkout":
            yield lambda: run(command, side.root, {})
            return
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="trainwright-bench-")))
        if row.where == "clone":
            yield lambda: cloned(row, side, folder, command)
            return
        for part in PARTS:
            copy = shutil.copytree if (side.root / part).is_dir() else shutil.copy2
            copy(side.root / part, folder / part)
        environment = stack.enter_context(registry(side, folder))
        if row.where == "fresh":
            environment |= nothing_warm(folder)
        stack.callback(take_out, folder, image)
        if row.unchanged_first:
            run(command, folder, environment)

        def changed() -> float:
            if row.change:
                with (folder / row.change).open("a") as file:
                    file.write(f"\n# {uuid4()}\n")
            seconds = run(command, folder, environment)
            take_out(folder, image)
            return seconds

        yield changed


def cloned(row: Row, side: Side, folder: Path, command: str) -> float:
    """In a clean clone of the last commit, new for each run."""
    clone = folder / uuid4().hex
    said(["git", "clone", "--quiet", str(side.root), str(clone)])
    if row.setup:
        run("make setup", clone, {})
    try:
        return run(command, clone, {})
    finally:
        shutil.rmtree(clone)


@contextmanager
def registry(side: Side, folder: Path) -> Iterator[dict[str, str]]:
    """A registry of its own, empty; and who asks for it."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    own = {"TRAINWRIGHT_REGISTRY_PORT": port, "TRAINWRIGHT_REGISTRY_DATA": str(folder / "registry")}
    (folder / "registry").mkdir()
    run("make registry", side.root, own)
    try:
        yield {**own, "REGISTRY": f"127.0.0.1:{port}"}
    finally:
        run("make registry-stop", side.root, own)


def nothing_warm(folder: Path) -> dict[str, str]:
    """A store of its own, and a buildx that takes no step from the engine's cache."""
    real = next(
        path for path in said(["docker", "info", "--format", PLUGINS]).split() if path.endswith("/docker-buildx")
    )
    plugin = folder / "docker/cli-plugins/docker-buildx"
    plugin.parent.mkdir(parents=True)
    plugin.write_text(
        f'#!/bin/sh\n[ "$1" != bake ] || {{ shift; set -- bake --no-cache "$@"; }}\nexec {shlex.quote(real)} "$@"\n'
    )
    plugin.chmod(0o755)
    return {"DOCKER_CONFIG": str(folder / "docker"), "TRAINWRIGHT_STORE": str(folder / "store")}


PLUGINS = "{{range .ClientInfo.Plugins}}{{.Path}} {{end}}"


def take_out(folder: Path, image: str) -> None:
    """What a run left in the engine; its layers stay where other images have them."""
    path = folder / "out" / image / "image.json"
    if not path.exists():
        return
    about = json.loads(path.read_text())
    name = str(about.get("uri") or "").partition("@")[0].rpartition("/")[2]
    names = [about.get("uri"), *(f"trainwright/{name}:{tag}" for tag in about.get("tags", []))]
    subprocess.run(["docker", "image", "rm", "--force", *filter(None, names)], check=False, capture_output=True)


# --- measuring -------------------------------------------------------------------------------------------------------


def why_not(row: Row, full: bool) -> str:
    """Why a row cannot run here; "" where it can."""
    if row.full and not full:
        return "only with FULL=1"
    if row.needs == "no engine" and (version := engine()):
        return f"engine {version} answers here, and another one would have to take its place"
    if row.needs == "engine" and not engine():
        return "no engine answers"
    return ""


def measure(row: Row, sides: Sequence[Side], image: str, runs: int) -> dict[str, Result]:
    """Seconds of each side, in turn; a side whose command fails says so, and is not run again."""
    found: dict[str, Result] = {side.name: {"seconds": []} for side in sides}
    with ExitStack() as stack:
        ready = dict[str, Run]()
        for side in sides:
            try:
                ready[side.name] = stack.enter_context(place(row, side, image))
                if row.warm_up:
                    ready[side.name]()
            except (Failed, subprocess.CalledProcessError) as error:
                found[side.name]["failed"] = str(error)
        for _ in range(runs):
            for name, once in ready.items():
                if "failed" in found[name]:
                    continue
                try:
                    found[name]["seconds"].append(round(once(), 3))
                except (Failed, subprocess.CalledProcessError) as error:
                    found[name]["failed"] = str(error)
    for result in found.values():
        if seconds := result["seconds"]:
            result |= {"median": round(statistics.median(seconds), 3), "min": min(seconds), "max": max(seconds)}
    return found


@contextmanager
def other(against: str) -> Iterator[Side]:
    """The checkout to compare with: a folder, or a commit of this one, with a .venv of its own."""
    with tempfile.TemporaryDirectory(prefix="trainwright-against-") as folder:
        root = Path(against).absolute()
        if not root.is_dir():
            root = Path(folder, "checkout")
            said(["git", "clone", "--quiet", str(ROOT), str(root)])
            said(["git", "checkout", "--quiet", "--detach", said(["git", "rev-parse", f"{against}^{{commit}}"])], root)
        run("make setup", root, {})
        yield Side("before", root)


# --- tables ----------------------------------------------------------------------------------------------------------


def clock(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.2f} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d} min"


def table(result: Result) -> str:
    """A row for each; with two sides, the median of both and how often the second fits into the first."""
    names = [side["name"] for side in result["sides"]]
    heads = ["what", "command", "runs", *(["median", "min", "max"] if len(names) == 1 else [*names, "before / after"])]
    lines = [heads, ["---"] * len(heads)]
    for row in result["rows"]:
        start = [row["what"], f"`{row['command']}`"]
        if row.get("not_run"):
            lines.append([*start, "0", f"not run: {row['not_run']}", *[""] * (len(heads) - 4)])
            continue
        sides = [row["sides"][name] for name in names]
        runs = " and ".join(dict.fromkeys(str(len(side["seconds"])) for side in sides))
        cells = [clock(side["median"]) if side["seconds"] else f"failed: {side['failed']}" for side in sides]
        if len(names) == 1:
            cells += [clock(sides[0][name]) if sides[0]["seconds"] else "" for name in ("min", "max")]
        else:
            cells = [
                cell + (f" ({clock(s['min'])} to {clock(s['max'])})" if s["seconds"] else "")
                for cell, s in zip(cells, sides, strict=True)
            ]
            both = all(side["seconds"] for side in sides)
            cells.append(f"{sides[0]['median'] / sides[1]['median']:.2f}" if both else "")
        lines.append([*start, runs, *cells])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def about(result: Result) -> str:
    has, load = result["machine"], result["load"]
    commits = ", ".join(f"{side['name']} {side['commit']}" for side in result["sides"])
    return (
        f"{result['day']}; {has['cores']} cores, {has['memory_gb']} GB, {has['architecture']}, engine {has['engine']}; "
        f"{commits}. Load average {load['began']:.1f} when it began, {load['ended']:.1f} when it ended."
    )


def page(text: str, result: Result) -> str:
    """docs/speed.md with these results: all that stands behind the mark."""
    head, mark, _ = text.partition(MARK)
    if not mark:
        raise ValueError(f"docs/speed.md has no {MARK}")
    return f"{head}{MARK}\n{about(result)}\n\n{table(result)}\n"


def main() -> int:
    words = argparse.ArgumentParser(prog="make bench", description="How long people wait.")
    words.add_argument("--full", action="store_true", help="make test and .ci/run, too")
    words.add_argument("--against", metavar="CHECKOUT|COMMIT", help="run that in turn, and compare")
    words.add_argument("--rows", metavar="GLOB[,GLOB]", default="*", help="only rows with such ids")
    words.add_argument("--runs", type=int, help="of each row, instead of what bench.toml says")
    words.add_argument("--name", default="latest", help="of the file in benchmarks/results")
    words.add_argument("--page", action="store_true", help="put the table into docs/speed.md")
    asked = words.parse_args()
    image, rows = settings()
    chosen = [row for row in rows if any(fnmatchcase(row.id, glob) for glob in asked.rows.split(","))]
    if not chosen:
        words.error(f"no row is called {asked.rows}: {', '.join(row.id for row in rows)}")
    result: Result = {"day": datetime.now(UTC).date().isoformat(), "machine": machine()}
    result["load"] = {"began": os.getloadavg()[0]}
    with ExitStack() as stack:
        sides = [Side("now", ROOT)]
        if asked.against:
            sides = [stack.enter_context(other(asked.against)), Side("after", ROOT)]
        result["sides"] = [{"name": side.name, "commit": side.commit} for side in sides]
        result["rows"] = []
        for row in chosen:
            found: Result = {"id": row.id, "what": row.what, "command": row.told(image)}
            if why := why_not(row, asked.full):
                found["not_run"] = why
            else:
                found["load"] = os.getloadavg()[0]
                found["sides"] = measure(row, sides, image, asked.runs or row.runs)
            result["rows"].append(found)
            print(f"{row.id}: {why or found['sides']}", file=sys.stderr)
    result["load"]["ended"] = os.getloadavg()[0]
    path = HERE / "results" / f"{asked.name}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n")
    if asked.page:
        PAGE.write_text(page(PAGE.read_text(), result))
    print(f"{about(result)}\n\n{table(result)}")
    print(f"written: {path.relative_to(ROOT)}", file=sys.stderr)
    failed = [row["id"] for row in result["rows"] if any("failed" in side for side in row.get("sides", {}).values())]
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
