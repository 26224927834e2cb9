"""Test commands with damaged data files: each ends with a documented code, names the file, and writes nothing.

BAD_BYTES=500 tries that many examples of each kind, different ones in each run; without it the tests try a few, always
the same.
"""

import contextlib
import io
import json
import os
import random
import shutil
import sys
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import tomlkit
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st
from logs import log
from unit.graft.records import rendered

from trainwright import cli as command_line
from trainwright.build import programs
from trainwright.core import mirrors, toml
from trainwright.core.errors import TrainwrightError
from trainwright.gate import baseline, passed
from trainwright.gate.find import model as find_model
from trainwright.graft import found as graft_found
from trainwright.image import inputs, templates
from trainwright.inspect import parent
from trainwright.inspect.vulnerabilities import settings as vulnerability_settings
from trainwright.jobs import request
from trainwright.matrix.matrix import Recipe, load_intent
from trainwright.matrix.records import Check, Image, Proof
from trainwright.registry import settings as registry_settings

ROOT = Path(__file__).parents[3]
EXAMPLES = int(os.environ.get("BAD_BYTES", "6"))
AGREED = {0, *range(2, 11)}
CPU = "pytorch-2.13-cpu-py311-sagemaker"
GPU = "pytorch-2.15-cu132-py313-sagemaker-distro"
KEPT = {"2.13": [""], "2.15": ["distro"]}  # releases of PyTorch and flavours: all that the small checkout has
IMAGE = f"out/{CPU}/image.json"
DIGEST = "sha256:" + "a" * 64
Reader = tuple[str, ...] | Callable[[Path], object]  # a command; a function where commands first ask a registry

INTENT: list[Reader] = [("list", GPU), ("explain", GPU), ("lock", "--check")]
LOCK: list[Reader] = [("find", "--has", "nccl"), ("affected", "--by", "torch"), ("plan",), ("lock", "--check")]
LOG: list[Reader] = [("judge", "log.txt"), ("diagnose", "log.txt"), ("watch", "log.txt")]
JUDGED: list[Reader] = [("judge", "log.txt", "--instance", "p4d.24xlarge", "--nodes", "2")]
SLURM = ("emit", CPU, "train.py", "--nodes", "2", "--on")
GATE = ("gate", f"host.example/x@{DIGEST}", "--nodes", "2", "--instance", "p5.48xlarge", "--dry-run", "--on")


def _on_top(root: Path) -> object:
    """Render what `build --with` renders after locking."""
    intent = load_intent(root)
    context = {"pins": {}, "variant": intent.variants[0], "sdists": {"added": []}, "compiled": [], "imports": []}
    context |= {"left_out": {}, "cut": {}}
    return templates.fill(intent, "with/image.j2", {**context, "epoch": 0, "parent_key": "b" * 64})


def _grafted(root: Path) -> object:
    """Render what `graft` renders."""
    return rendered(load_intent(root))


def _with_mirrors(root: Path) -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(mirrors.SETTING, str(root / "mirrors.toml"))
        return mirrors.table()


# Which files are of one kind, one of them to damage, and what reads it. None: read by nobody, or by no code of ours.
KINDS: dict[str, tuple[str, list[Reader]]] = {
    "dockerfiles/matrix.toml": ("", [*INTENT, ("matrix",), ("find", "--has", "nccl")]),
    "dockerfiles/bases.toml": ("", INTENT),
    "dockerfiles/tools.toml": ("", INTENT),
    "dockerfiles/compat.toml": ("", INTENT),
    "dockerfiles/instances.toml": ("", [*INTENT, *JUDGED]),
    "dockerfiles/layers/*.toml": ("dockerfiles/layers/nccl.toml", INTENT),
    "dockerfiles/layers/*.j2": ("dockerfiles/layers/nccl.j2", [("render", GPU), ("list", GPU)]),
    "dockerfiles/frameworks/*.j2": ("dockerfiles/frameworks/pytorch.j2", [("render", GPU), ("list", GPU)]),
    "dockerfiles/graft/*.j2": ("dockerfiles/graft/image.j2", [_grafted]),
    "dockerfiles/with/*.j2": (
        "dockerfiles/with/image.j2",
        [_on_top],
    ),
    "dockerfiles/graft/*.py": ("", []),  # a program of the build; tests/unit/graft/test_with_file.py
    "dockerfiles/with/*.py": ("", []),  # a program that compilations run; tests/unit/image/test_device_code.py
    "dockerfiles/locks/*.toml": (f"dockerfiles/locks/{GPU}.toml", [*LOCK, ("render", GPU)]),
    "dockerfiles/locks/*.packages": ("dockerfiles/locks/debian-13.packages", [*LOCK, ("explain", GPU)]),
    "dockerfiles/locks/*.build.packages": ("dockerfiles/locks/debian-13.build.packages", [*LOCK, ("explain", GPU)]),
    "dockerfiles/proofs/*.toml": (f"dockerfiles/proofs/{CPU}.toml", [("list",)]),
    "dockerfiles/gates/*.toml": (f"dockerfiles/gates/{GPU}.toml", [lambda root: passed.read(root, GPU)]),
    "dockerfiles/baselines/*.toml": ("dockerfiles/baselines/known.toml", [("baseline", "list")]),
    "dockerfiles/releases/*.toml": ("dockerfiles/releases/2026.11.0.toml", [("affected", "--by", "nccl")]),
    "dockerfiles/causes/*.toml": ("dockerfiles/causes/memory.toml", LOG),
    "dockerfiles/diagnose-job.toml": ("", [("diagnose", "job.txt")]),
    "dockerfiles/diagnose.toml": ("", [("diagnose", "log.txt"), ("watch", "log.txt")]),
    "dockerfiles/floors.toml": ("", [*JUDGED, ("estimate", "--parameters", "7B", "--instance", "p5.48xlarge")]),
    "dockerfiles/follow.toml": ("", [("watch", "log.txt")]),
    "dockerfiles/stragglers.toml": ("", [("watch", "log.txt")]),
    "dockerfiles/gate.toml": ("", [(*GATE, "slurm"), (*GATE, "kubernetes")]),
    "dockerfiles/find.toml": ("", [find_model.load_settings]),
    "dockerfiles/graft.toml": ("", [graft_found.settings]),
    "dockerfiles/clusters.toml": ("", [(*SLURM, "slurm"), (*SLURM, "pytorchjob"), (*SLURM, "hyperpod-eks")]),
    "dockerfiles/launch.toml": ("", [request.load_settings]),
    "dockerfiles/preflight.toml": ("", [("render", CPU), ("list", CPU)]),
    "dockerfiles/publish.toml": ("", [registry_settings.publication]),
    "dockerfiles/ci.toml": ("", [("ci", "github"), ("ci", "codebuild")]),
    "dockerfiles/host.toml": ("", [("plan", CPU), ("push", CPU, "--dry-run")]),
    "dockerfiles/additions.toml": ("", [("lock", "--check", CPU, "--with", "requirements.txt")]),
    "dockerfiles/registry/packages.toml": (
        "",
        [lambda root: toml.load(root / "dockerfiles/registry/packages.toml", programs.Pieces)],
    ),
    "dockerfiles/cosign/packages.toml": (
        "",
        [lambda root: toml.load(root / "dockerfiles/cosign/packages.toml", programs.Pieces)],
    ),
    "dockerfiles/registry/*": ("", []),  # the engine's, and the registry's own
    "dockerfiles/rootfs/*": ("dockerfiles/rootfs/common/opt/trainwright/launcher/worlds.py", [("list", CPU)]),
    "dockerfiles/licences.toml": ("", [("explain", GPU)]),
    "dockerfiles/vulnerabilities.toml": ("", [vulnerability_settings.settings]),
    "dockerfiles/recipes/*": ("", []),  # requirements files and their locks, as "requirements.txt" below
    "dockerfiles/hadolint.yaml": ("", []),  # hadolint's own; `lint` shows what that says of it
    "dockerfiles/*/README.md": ("", []),  # for people
    # beside dockerfiles/
    IMAGE: ("", [(*SLURM, "slurm"), ("ci", "exports"), ("judge", "log.txt", "--pins", IMAGE)]),
    "log.txt": ("", LOG),
    "job.txt": ("", LOG),
    "table.json": ("", [("judge", "table.json"), ("diagnose", "table.json"), ("watch", "table.json")]),
    "requirements.txt": ("", [("lock", "--check", CPU, "--with", "requirements.txt")]),
    "hosts.txt": ("", [(*GATE, "ssh", "--hosts", "hosts.txt")]),
    "mirrors.toml": ("", [_with_mirrors]),
    "derived.toml": ("", [parent.read_project]),
}  # fmt: skip
READ = [glob for glob, (_, readers) in KINDS.items() if readers]


def kind_of(name: str) -> list[str]:
    """List the kinds of a file; a narrower glob precedes a wider one."""
    return sorted((glob for glob in KINDS if fnmatch(name, glob)), key=len, reverse=True)


def damaged_file(glob: str) -> str:
    return KINDS[glob][0] or glob


# --- a small checkout ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    shared = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    folder = Path(shared or tmp_path_factory.mktemp("bytes")) / f"trainwright-bytes-{os.getpid()}"
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def checkout(root: Path) -> Path:
    """Make a consistent checkout with three images and one file of every kind."""
    skipped = shutil.ignore_patterns("__pycache__")  # each example lists all files, twice
    shutil.copytree(ROOT / "dockerfiles", root / "dockerfiles", ignore=skipped)
    shutil.copytree(ROOT / "scripts", root / "scripts", ignore=skipped)
    _keep_few(root / "dockerfiles")
    (root / "log.txt").write_text(log("07").read_text())
    (root / "job.txt").write_text("0: [rank0]: ValueError: bad\n1: [rank1]: Connection reset by peer\n")
    (root / "train.py").write_text("print()\n")
    (root / "hosts.txt").write_text("one\ntwo\n")
    (root / "requirements.txt").write_text("einops==0.8.1\nrich>=13\n")
    (root / "mirrors.toml").write_text('debian = "https://mirror.example/debian"\npython = "/srv/simple"\n')
    _write_records(root)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRAINWRIGHT_STORE", str(root / "store"))
        patch.chdir(root)
        found = inputs.load(Recipe(load_intent(root), next(one for one in load_intent(root).variants if one.id == CPU)))
        _write_image(root / "out" / CPU, found.key)
    return root


def _keep_few(folder: Path) -> None:
    matrix = tomllib.loads((folder / "matrix.toml").read_text())
    framework = matrix["frameworks"]["pytorch"]
    framework["rows"] = [
        row
        for row in framework["rows"]
        if row.get("flavour", "") in KEPT.get(row["release"], []) and "arm64" not in str(row)
    ]
    for row in framework["rows"]:
        row["targets"] = ["sagemaker"]
    matrix |= {"frameworks": {"pytorch": framework}, "tested": {"make-test": [CPU], "ci": []}}
    used = {row["stack"] for row in framework["rows"]}
    matrix["stacks"] = {name: stack for name, stack in matrix["stacks"].items() if name in used}
    tables = [matrix["common"], matrix["devel"], matrix["targets"]["sagemaker"]]
    tables += [framework, *framework["rows"], *matrix["stacks"].values()]
    pinned = {name for table in tables for name in table["pins"]}
    gone = {path.stem for path in (folder / "layers").glob("*.toml")} - pinned
    for name in gone:
        (folder / f"layers/{name}.toml").unlink()
    compat = tomllib.loads((folder / "compat.toml").read_text())
    compat["rules"] = [row for row in compat["rules"] if not gone & {row["a"], row.get("b"), *row.get("when", {})}]
    for row in compat["rules"]:
        row["unless"] = [name for name in row.get("unless", []) if name not in gone]
    compat["interfaces"] = [row for row in compat["interfaces"] if row["component"] not in gone]
    for path in (*folder.glob("locks/*.toml"), *folder.glob("proofs/*.toml")):
        if not any(path.stem.startswith(f"pytorch-{release}-") for release in KEPT):
            path.unlink()
    for name, data in (("matrix", matrix), ("compat", compat)):
        (folder / f"{name}.toml").write_text(tomlkit.dumps(data))


def _write_records(root: Path) -> None:
    day, sums = date(2026, 11, 22), {"log.txt": "a" * 64}
    gate = passed.Gate(
        id=GPU,
        digest=DIGEST,
        day=day,
        instance="p5.48xlarge",
        nodes=2,
        collectives=["all_reduce"],
        peak_busbw=1.5,
        logs=sums,
    )
    point = baseline.Point(collective="all_reduce", algorithm="any", size=1 << 30, out_of_place=1.5, in_place=1.5)
    known = baseline.Baseline(
        name="known", instance="p5.48xlarge", nodes=2, digest=DIGEST, day=day, proved=True, logs=sums, points=[point]
    )
    shipped = {"key": "b" * 64, "digest": DIGEST, "repository": "trainwright/pytorch"}
    train = {"name": "2026.11.0", "date": "2026-11-22", "commit": "c" * 40, "images": {CPU: shipped}}
    parent = {"id": CPU, "key": "b" * 64, "digest": DIGEST, "uri": f"host.example/x@{DIGEST}"}
    side = {"time": 10737.418240, "alg_bw": 100.0, "bus_bw": 187.5, "nwrong": 0.0}
    row = {
        "size": 1 << 30,
        "count": 1 << 28,
        "type": "float",
        "redop": "sum",
        "root": "-1",
        "out_of_place": side,
        "in_place": side,
    }
    devices = [{"rank": rank, "group": 0, "hostname": f"h{rank // 8}"} for rank in range(16)]
    table = {
        "args": ["all_reduce_perf"],
        "nccl_version": 23007,
        "config": {
            "minimum_bytes": 1 << 30,
            "maximum_bytes": 1 << 30,
            "step_factor": 2,
            "validation": 1,
            "devices": devices,
        },
        "results": [row],
        "out_of_bounds": {"count": 0, "okay": "true"},
        "average_bus_bandwidth": {"bandwidth": 187.5, "okay": "true"},
        "end_time": "x",
    }
    for name, data in (
        (f"dockerfiles/gates/{GPU}.toml", gate.model_dump(exclude_none=True)),
        ("dockerfiles/baselines/known.toml", known.model_dump(exclude_none=True)),
        ("dockerfiles/releases/2026.11.0.toml", train),
        ("derived.toml", {"name": "x", "parent": parent}),
    ):
        (root / name).write_text(tomlkit.dumps(data))
    (root / "table.json").write_text(json.dumps(table, indent=1))


def _write_image(out: Path, key: str) -> None:
    passed = Check(state="passed")
    image = Image(
        id=CPU,
        key=key,
        digest=DIGEST,
        uri=f"host.example/pytorch@{DIGEST}",
        versions={"torch": "2.13.0", "nccl": "2.30.7"},
        proof=Proof(image=DIGEST, probe=passed, tests=passed),
    )
    out.mkdir(parents=True)
    (out / "image.json").write_text(image.model_dump_json(by_alias=True, indent=2))


# --- damage ----------------------------------------------------------------------------------------------------------

Damage = Callable[[bytes, random.Random], bytes | None]  # None: a folder takes the place of the file
DEEP = 5000


def _on_lines(change: Callable[[list[bytes], int, int], object]) -> Damage:
    def damage(content: bytes, rng: random.Random) -> bytes:
        lines = content.splitlines(keepends=True) or [b""]
        change(lines, rng.randrange(len(lines)), rng.randrange(len(lines)))
        return b"".join(lines)

    return damage


def _swap(lines: list[bytes], one: int, other: int) -> None:
    lines[one], lines[other] = lines[other], lines[one]


def _inserted(what: bytes) -> Damage:
    def damage(content: bytes, rng: random.Random) -> bytes:
        at = rng.randrange(len(content) + 1)
        return content[:at] + what + content[at:]

    return damage


def _flip(content: bytes, rng: random.Random) -> bytes:
    found = bytearray(content)
    for at in rng.sample(range(len(found)), min(len(found), rng.choice([1, 1, 3, 20]))):
        found[at] ^= 1 << rng.randrange(8)
    return bytes(found)


def _long_number(content: bytes, rng: random.Random) -> bytes:
    """Replace one number by a very long one."""
    places = [at for at, byte in enumerate(content) if 48 <= byte <= 57] or [0]
    at = rng.choice(places)
    return content[:at] + b"9" * rng.choice([20, 400, 5000]) + content[at:]


VALUES: list[Any] = [
    0, -1, 1, 2**70, 10**400, 1e308, float("inf"), float("nan"), True, date(2026, 1, 1),
    "", "x", "x y", "\0", "..", "/", "é", "9" * 5000, "(", "[a-", "*", "{", "{{", "{%", "1 x", "1.2.x", ">=", "==",
    [], [[]], [1], [""], ["x"], {}, {"x": 1}, {"": ""}, [{}],
    "sha256:x", "2026-13-01", "x" * 100000,
]  # fmt: skip


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each container of a document with each of its keys."""
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield value, key
        yield from _places(inner)


def _in_data(change: Callable[[Any, Any, random.Random], object]) -> Damage:
    """Return a damage that changes a file's data and rewrites the file; other formats stay unchanged."""

    def damage(content: bytes, rng: random.Random) -> bytes:
        for loads, dumps in ((json.loads, json.dumps), (tomllib.loads, tomlkit.dumps)):
            try:
                data = loads(content.decode())
            except ValueError:
                continue
            if places := list(_places(data)):
                change(*rng.choice(places), rng)
            return dumps(data).encode()
        return content

    return damage


def _replace(holder: Any, key: Any, rng: random.Random) -> None:
    holder[key] = rng.choice(VALUES)


def _remove(holder: Any, key: Any, rng: random.Random) -> None:
    del holder[key]


def _misspell(holder: Any, key: Any, rng: random.Random) -> None:
    if isinstance(holder, dict):
        holder[rng.choice([f"{key}x", key.upper(), "", "a.b", key[::-1]])] = holder.pop(key)
    else:
        holder.append(holder[key])


DAMAGES: dict[str, Damage] = {
    "bytes flipped": _flip,
    "no UTF-8": _inserted(b"\xff"),
    "half a character": _inserted(b"\xc3"),
    "NUL": _inserted(b"\0"),
    "BOM": lambda content, _: b"\xef\xbb\xbf" + content,
    "UTF-16": lambda content, _: content.decode(errors="replace").encode("utf-16"),
    "Windows": lambda content, _: content.replace(b"\n", b"\r\n"),
    "line cut": _on_lines(lambda lines, one, _: lines.pop(one)),
    "line doubled": _on_lines(lambda lines, one, _: lines.insert(one, lines[one])),
    "lines swapped": _on_lines(_swap),
    "merge": _on_lines(lambda lines, one, _: lines.insert(one, b"<<<<<<< HEAD\n")),
    "truncated": lambda content, rng: content[: rng.randrange(len(content) + 1)],
    "emptied": lambda *_: b"",
    "a folder": lambda *_: None,
    "long number": _long_number,
    "nested": lambda content, rng: _inserted(b"[" * DEEP)(content, rng),
    "nested value": lambda content, _: content + b"\nx = " + b"[" * DEEP + b"]" * DEEP + b"\n",
    "nested JSON": lambda content, _: content.rstrip()[:-1] + b', "x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "other value": _in_data(_replace),
    "another value": _in_data(_replace),
    "key removed": _in_data(_remove),
    "key misspelt": _in_data(_misspell),
}


def unreadable(name: str, content: bytes | None) -> tuple[str, int] | None:
    """Return the file and line that a reader must name for bytes that are not text, TOML or JSON; None if valid."""
    if name.endswith(".py"):
        return None  # bytes to us, and one file less where it is a folder
    if content is None:
        return name, 0
    if name in ("log.txt", "job.txt", "table.json"):
        return None  # bytes to us
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        return name, content.count(b"\n", 0, error.start) + 1
    try:
        if name.endswith(".toml"):
            tomllib.loads(text)
        elif name == IMAGE:
            json.loads(text)
    except (ValueError, RecursionError):
        return name, -1
    return None


# --- the property ----------------------------------------------------------------------------------------------------


@dataclass
class Ended:
    code: int
    said: str


def run(root: Path, reader: Reader) -> Ended:
    """Run a command in this process; return its exit code and output."""
    said = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        if isinstance(reader, tuple):
            sys.argv = ["trainwright", *reader]
            try:
                command_line.main()
                code = 0
            except SystemExit as ended:
                code = int(ended.code or 0)
        else:
            code = 0
            try:
                reader(root)
            except TrainwrightError as error:
                code = error.exit_code
                print(error.what, error.where, error.why, error.fix)
    return Ended(code, said.buffer.getvalue().decode(errors="replace"))


def listing(root: Path) -> dict[str, tuple[int, int]]:
    """List the files of a checkout with size and time, except texts and the store, which commands may write.

    By os.walk(), because pathlib took more time than the commands.
    """
    found, out, store = dict[str, tuple[int, int]](), str(root / "out"), str(root / "store")
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if f"{folder}/{name}" != store]
        texts = folder == out or folder.startswith(f"{out}/")
        for name in names:
            if name != ".lock" and (name == "image.json" or not texts):
                about = os.lstat(path := f"{folder}/{name}")
                found[path] = (about.st_size, about.st_mtime_ns)
    return found


@contextlib.contextmanager
def in_place_of(path: Path, content: bytes | None) -> Iterator[None]:
    """Replace a file by this content, or by a folder for None, and restore it afterwards."""
    whole = path.read_bytes()
    path.unlink()
    path.mkdir() if content is None else path.write_bytes(content)
    try:
        yield
    finally:
        path.rmdir() if content is None else path.unlink()
        path.write_bytes(whole)


@pytest.fixture
def here(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(checkout)
    monkeypatch.setenv("TRAINWRIGHT_STORE", str(checkout / "store"))
    monkeypatch.setattr(sys, "argv", sys.argv)
    return checkout


def test_every_data_file_is_of_a_kind() -> None:
    """A new file in dockerfiles/ is given a row, and with it a command that reads it."""
    names = [str(path.relative_to(ROOT)) for path in (ROOT / "dockerfiles").rglob("*") if path.is_file()]
    assert [name for name in names if "__pycache__" not in name and not kind_of(name)] == []
    assert [glob for glob in KINDS if glob.startswith("dockerfiles") and damaged_file(glob).startswith("*")] == []


@pytest.mark.waits
def test_the_small_checkout_is_whole(here: Path) -> None:
    """Otherwise commands would end early, before they read what is damaged."""
    every = dict.fromkeys(reader for _, readers in KINDS.values() for reader in readers)  # many files have the same
    ended = {reader: run(here, reader) for reader in every}
    early = [f"{reader}: {one.code}, {one.said}" for reader, one in ended.items() if one.code in (1, 2, 3)]
    assert not early, "\n".join(early)


@pytest.mark.parametrize("glob", READ)
def test_each_command_reads_its_file(glob: str, here: Path) -> None:
    """And says which line is not text: a row of KINDS whose command never opens the file would prove nothing."""
    name = damaged_file(glob)
    if not unreadable(name, b"\xff"):
        return
    with in_place_of(here / name, b"\n\n\xff\n"):
        for reader in KINDS[glob][1]:
            ended = run(here, reader)
            assert "Traceback" not in ended.said, (reader, ended.said[-2000:])
            assert f"{name}:3" in ended.said or f"{Path(name).name}:3" in ended.said, (reader, ended.said[-2000:])


@pytest.mark.parametrize("glob", READ)
def test_damage_is_told(glob: str, here: Path) -> None:
    name, readers = damaged_file(glob), KINDS[glob][1]
    whole = (here / name).read_bytes()

    @settings(
        max_examples=EXAMPLES,
        derandomize="BAD_BYTES" not in os.environ,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.sampled_from(sorted(DAMAGES)), st.integers(0, 2**32), st.sampled_from(readers))
    def check(damage: str, seed: int, reader: Reader) -> None:
        content = DAMAGES[damage](whole, random.Random(seed))
        with in_place_of(here / name, content):
            before = listing(here)
            ended = run(here, reader)
            after = listing(here)
        note(f"{name}: {damage}, seed {seed}; {reader}: {ended.code}\n{ended.said[-3000:]}")
        assert "Traceback" not in ended.said
        assert ended.code in AGREED
        assert after == before
        if expected := unreadable(name, content):
            file, line = expected
            assert Path(file).name in ended.said
            assert line <= 0 or f"{Path(file).name}:{line}" in ended.said

    check()
