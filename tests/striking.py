"""Kill commands, or fill their disk, at a moment that a seed decides; then check what must hold.

A checkout is set back to the start of a command, and the command is killed. Then the tests check everything that it
left. The tree holds complete files, old or new, and nothing else; each tag names a complete and proved image. Then the
same command runs again, undisturbed, and must end like one that was never killed.
"""

import hashlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from commits import begin
from registries import Registry, digest_of
from tiny import ID, trainwright

from trainwright.core.files import YOUNG

SOURCE = Path(__file__).with_name("striking.c")
FOLDERS = ("dockerfiles", "tests", "scripts")  # of a checkout, beside out/
COMMANDS = ("lock", "record", "release", "push")
AGREED = {2, 3, 4, 5, 6, 7, 8, 9, 10}  # exit codes of an expected failure
TRIED: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)  # command and attack: tried, failed
YEARS = 3 * 365 * 86400  # seconds
REPORT = """\
<?xml version="1.0" encoding="utf-8"?>
<testsuites><testsuite tests="1" failures="0" errors="0" skipped="0" timestamp="2026-01-01T00:00:00+00:00">
<testcase name="test_it"><properties>{rows}</properties></testcase></testsuite></testsuites>
"""


def shim(folder: Path) -> Path:
    """Compile the library that commands are preloaded with; skip without a C compiler."""
    compiler, made = shutil.which("cc") or shutil.which("gcc"), folder / "strike.so"
    if not compiler:
        pytest.skip("not run: no C compiler")
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", made, SOURCE, "-ldl"], check=True)
    return made


@dataclass
class Struck:
    """The end of a command that was struck."""

    code: int
    err: str
    moment: str  # for people: where it was struck


@dataclass
class Stage:
    """One command in its own checkout, which can be set back to the same start."""

    command: str
    tree: Path
    store: Path
    temporary: Path
    shim: Path
    registry: Registry
    words: list[str]
    held: dict[str, dict[str, bytes]] = field(default_factory=dict)  # name of a state to the files of the tree
    images: dict[str, tuple[dict[Any, Any], ...]] = field(default_factory=dict)  # and to what the registry held
    seconds: float = 0  # of a run that nobody struck
    changes: int = 0  # of files, that such a run makes

    # --- states ---

    def files(self) -> dict[str, bytes]:
        """Return every file of the checkout that a person or a later command may read, except the build's sources."""
        found = [path for name in FOLDERS for path in (self.tree / name).rglob("*")]
        out = self.tree / "out"
        found += [path for path in out.rglob("*") if len(path.relative_to(out).parts) <= 2]
        ignored = {"__pycache__", ".pytest_cache"}
        return {
            str(path.relative_to(self.tree)): path.read_bytes()
            for path in found
            if path.is_file() and not ignored & {*path.parts} and path.name != ".lock"
        }

    def note(self, name: str) -> None:
        self.held[name] = self.files()
        self.images[name] = (dict(self.registry.blobs), dict(self.registry.manifests), dict(self.registry.tags))

    def reset(self, name: str = "before") -> None:
        wanted, now = self.held[name], self.files()
        for path in now.keys() - wanted.keys():
            (self.tree / path).unlink()
        for path, content in wanted.items():
            if now.get(path) != content:
                (self.tree / path).parent.mkdir(parents=True, exist_ok=True)
                (self.tree / path).write_bytes(content)
        for held, kept in zip(("blobs", "manifests", "tags"), self.images[name], strict=True):
            setattr(self.registry, held, dict(kept))
        self.registry.uploads.clear()

    # --- running ---

    def environment(self, **more: str) -> dict[str, str]:
        own = {"TRAINWRIGHT_STORE": str(self.store), "TMPDIR": str(self.temporary), "REGISTRY": self.registry.address}
        return {**os.environ, **own, **more}

    def run(self, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
        return trainwright(self.tree, *(words or self.words), **self.environment(**more))

    def strike(self, kind: str, at: int, **more: str) -> Struck:
        """Run the command with the shim; its children have ended when this returns."""
        moment = f"{kind} at change {at} of {self.changes} {more or ''}".strip()
        struck = {"LD_PRELOAD": str(self.shim), "STRIKE": kind, "STRIKE_AT": str(at), **more}
        return self._wait(self._start(**struck), moment)

    def kill(self, seed: int) -> Struck:
        """Kill the command, alone or with its children, at a moment that the seed chooses."""
        chance = random.Random(seed)
        if chance.random() < 0.6:
            return self.strike("kill", chance.randint(1, self.changes))
        share, group = chance.random(), chance.random() < 0.5
        child = self._start()
        time.sleep(share * self.seconds)
        (os.killpg if group else os.kill)(child.pid, signal.SIGKILL)
        return self._wait(child, f"kill after {share:.0%} of its time, {'with' if group else 'without'} its children")

    def _start(self, **more: str) -> subprocess.Popen[str]:
        program = Path(sys.executable).with_name("trainwright")
        return subprocess.Popen(
            [program, *self.words],
            cwd=self.tree,
            env=self.environment(**more),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def _wait(self, child: subprocess.Popen[str], moment: str) -> Struck:
        err = child.communicate(timeout=300)[1]  # ends as the last of them closes it
        return Struck(child.returncode, err, moment)

    def measure(self) -> None:
        """Run the command undisturbed; record its duration, its changes and its result."""
        self.reset()
        told = self.temporary / "told"
        began = time.monotonic()
        ended = self.run(LD_PRELOAD=str(self.shim), STRIKE="count", STRIKE_TOLD=str(told))
        assert ended.returncode == 0, ended.stderr
        self.seconds, self.changes = time.monotonic() - began, int(told.read_text())
        told.unlink()
        self.note("after")

    # --- what must hold ---

    def inspect(self) -> None:
        """Check after a strike that files are complete and that no tag names something incomplete."""
        now, before, after = self.files(), self.held["before"], self.held["after"]
        for path, content in now.items():
            if path.startswith("out/"):
                if path.endswith(".json"):
                    json.loads(content)
            elif hidden(path):
                continue  # on its way; settled() wants none
            else:
                assert content in (before.get(path), after.get(path)), f"{path} is neither old nor new"
                if path.endswith(".toml"):
                    tomllib.loads(content.decode())
        for path in before.keys() & after.keys() - now.keys():
            assert path.startswith("out/"), f"{path} is gone"
        self.inspect_tags()

    def inspect_tags(self) -> None:
        """Check that each tag names a complete image, a key tag a tested one, and an alias a released one."""
        held = self.registry
        for (name, tag), digest in held.tags.items():
            content, _ = held.manifests[name, digest]
            assert digest_of(content) == digest
            said = json.loads(content)
            for row in [said["config"], *said["layers"]]:
                blob = held.blobs[name, row["digest"]]
                assert (digest_of(blob), len(blob)) == (row["digest"], row["size"])
            image = json.loads((self.tree / "out" / ID / "image.json").read_text())
            assert image["proof"]["tests"]["state"] == "passed", f"{tag} names what is not tested"
            assert image["proof"]["image"] == digest
            if tag.endswith("-latest"):
                (record,) = (self.tree / "dockerfiles/releases").glob("[!.]*.toml")
                assert digest in record.read_text()

    def settled(self) -> None:
        """Run the command again; check that it ends as an undisturbed one, and leaves no other files."""
        ended = self.run()
        assert ended.returncode == 0, ended.stderr
        now, after = self.files(), self.held["after"]
        assert now.keys() == after.keys(), f"left: {now.keys() - after.keys()}, gone: {after.keys() - now.keys()}"
        assert [path for path in now if not path.startswith("out/") and now[path] != after[path]] == []
        assert self.registry.tags == self.images["after"][2]
        self.inspect_tags()

    def debris(self) -> list[str]:
        """List what strikes left in the store, after it became old and a command used the store.

        Other modules use the store at the same time. So only temporary files that were there before the command
        count, and notes of uploads to this registry.
        """
        left = [path for path in self.store.rglob("*") if hidden(path.name)]
        for path in left:
            with suppress(FileNotFoundError):
                os.utime(path, (time.time() - 2 * YOUNG,) * 2)
        self.reset("published")
        self.registry.tags, self.registry.manifests, self.registry.blobs = {}, {}, {}
        ended = self.run("push", ID)
        assert ended.returncode == 0, ended.stderr
        found = [path for path in left if path.exists()]
        found += filter(self._of_this_registry, self.store.glob("uploads/*.json"))
        return sorted(str(path.relative_to(self.store)) for path in found)

    def _of_this_registry(self, path: Path) -> bool:
        """Return whether a note of an upload belongs to this registry."""
        with suppress(FileNotFoundError):
            return bool(json.loads(path.read_text())["repository"].startswith(self.registry.address))
        return False


def hidden(path: str) -> bool:
    """Return whether this is a temporary file, which gets its real name later."""
    name = path.rpartition("/")[2]
    return name.startswith(".") and name not in (".gitignore", ".gitattributes", ".dockerignore")


@contextmanager
def counted(command: str, attack: str) -> Iterator[None]:
    """Count one more attempt for the table after the tests."""
    TRIED[command, attack]["tried"] += 1
    try:
        yield
    except BaseException:
        TRIED[command, attack]["failed"] += 1
        raise


def refused(struck: Struck) -> None:
    """Check that the command ended with one error, a fix and a documented exit code, without traceback."""
    assert struck.code in AGREED, f"exit code {struck.code}: {struck.err[-1500:]}"
    assert "Traceback" not in struck.err, struck.err[-3000:]
    assert len(re.findall("^error: ", struck.err, re.MULTILINE)) == 1, struck.err[-1500:]
    assert "fix:" in struck.err, struck.err[-1500:]


def checkout(built: Path, folder: Path, registry: Registry) -> Stage:
    """Make a checkout whose image is built, tested and published, and which is committed."""
    tree, store = folder / "tree", folder / "store"
    (folder / "tmp").mkdir()
    shutil.copytree(built, tree, copy_function=_linked)
    shutil.copytree(Path(os.environ["TRAINWRIGHT_STORE"]), store, copy_function=_linked, ignore=_others)
    (tree / "tests/image/test_stub.py").write_text("def test_it(): pass\n")
    (tree / ".gitignore").write_text("/out/\n__pycache__/\n.pytest_cache/\n")
    made = Stage("push", tree, store, folder / "tmp", shim(folder), registry, ["push", ID])
    begin(tree)
    pushed = made.run()
    assert pushed.returncode == 0, pushed.stderr
    (tree / "out" / ID / "tests.xml").write_text(report_of(tree))
    made.note("published")
    return made


def stage(made: Stage, command: str) -> Stage:
    """Return the checkout as a command needs it, without what the command makes."""
    made.reset("published")
    words = [command, *(["2026.11.0"] if command == "release" else []), ID]
    own = replace(made, command=command, words=words, held=dict(made.held), images=dict(made.images))
    if command in BEFORE:
        BEFORE[command](own)
    own.note("before")
    own.measure()
    return own


def _linked(source: str, target: str) -> None:
    """Hard-link large files, which are never written to, and copy others."""
    if Path(source).stat().st_size > 100_000:
        Path(target).hardlink_to(source)
    else:
        shutil.copy2(source, target)


def _others(folder: str, names: list[str]) -> set[str]:
    return {name for name in names if name.startswith("tiny") or hidden(name)}


def _lock(made: Stage) -> None:
    """Make the image's lock stale, as after an edit of the intent; the package lock stays current."""
    path = made.tree / f"dockerfiles/locks/{ID}.toml"
    text = path.read_text()
    intent = next(line for line in text.splitlines() if line.startswith("intent"))
    path.write_text(text.replace(intent, f'intent = "{"0" * 64}"'))


def _push(made: Stage) -> None:
    made.registry.tags, made.registry.manifests, made.registry.blobs = {}, {}, {}
    image = made.tree / "out" / ID / "image.json"
    said = json.loads(image.read_text())
    said.update({"digest": None, "uri": None, "uris": [], "tags": []})
    image.write_text(json.dumps(said))


BEFORE: Mapping[str, Callable[[Stage], None]] = {
    "lock": _lock,
    "push": _push,
}


def report_of(tree: Path) -> str:
    """Return the report that the image tests of this image would have written."""
    from trainwright.build import proof_code
    from trainwright.matrix.matrix import load_intent

    intent = load_intent(tree)
    (recipe,) = intent.recipes
    image = json.loads((tree / "out" / ID / "image.json").read_text())
    rows = {"image": image["digest"], "code-image": proof_code.digest_of(recipe, "image")}
    rows |= {"architecture": "x86_64", "cpus": "2", "engine": "29.0"}
    return REPORT.format(rows="".join(f'<property name="{name}" value="{value}"/>' for name, value in rows.items()))


def seed_of(command: str, number: int) -> int:
    return int(hashlib.sha256(f"{command} {number}".encode()).hexdigest()[:8], 16)
