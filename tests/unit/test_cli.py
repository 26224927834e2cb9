"""The contract that others script against: fields, exit codes, data on stdout, errors on stderr, no traceback."""

import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

Edit = Callable[[Path, str, str], None]
Cli = Callable[..., Any]
ROOT = Path(__file__).parents[2]
DEFAULT = "pytorch-2.13-cpu-py311-sagemaker"
TRAINWRIGHT = Path(sys.executable).with_name("trainwright")


def test_list(cli: Cli, tree: Path) -> None:
    ended = cli(tree, "list", "--json")
    said = json.loads(ended.out)
    rows = said["images"]
    assert ended.code == 0
    assert ended.err == ""
    assert sum(said["counts"][state] for state in ("proved", "unproved", "blocked")) == said["counts"]["all"]
    assert said["counts"]["all"] == len(rows)
    for row in rows:
        assert row.keys() >= {"id", "framework", "accelerator", "target", "default"}
    assert len([row for row in rows if row["default"]]) == len({row["framework"] for row in rows})
    assert next(row for row in rows if row["id"] == DEFAULT) == {
        "id": DEFAULT,
        "framework": "pytorch",
        "accelerator": "cpu",
        "target": "sagemaker",
        "default": True,
        "tested": "make test",
        "state": "unproved",
        "reason": "no proof of it is recorded",
        "digest": "",
    }


def test_what_only_looks_starts_without_http() -> None:
    """A third of what `list` takes would go into it."""
    program = "import sys; from trainwright import cli, overview, proofs; sys.exit('httpx' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0


def test_plan_without_engine_and_registry_says_unknown(cli: Cli, tree: Path) -> None:
    ended = cli(tree, "plan", "--framework", "pytorch", "--json")
    (row,) = json.loads(ended.out)
    assert ended.code == 0
    assert row.keys() == {"id", "action", "reason", "key", "warnings"}
    assert (row["id"], row["action"]) == (DEFAULT, "build")
    assert "engine: unknown" in row["reason"]
    assert "registry: unknown" in row["reason"]
    assert len(row["key"]) == 64


@pytest.mark.parametrize("host", ["tcp://127.0.0.1:1", "nonsense", "unix:///nowhere"])
def test_plan_with_an_engine_that_is_nowhere(cli: Cli, tree: Path, monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    monkeypatch.setenv("DOCKER_HOST", host)
    ended = cli(tree, "plan", "--framework", "pytorch", "--json")
    assert ended.code == 0, ended.err
    assert "engine: unknown" in json.loads(ended.out)[0]["reason"]


def test_plan_with_a_registry_that_refuses(
    cli: Cli, tree: Path, monkeypatch: pytest.MonkeyPatch, site: Any, faults: Any
) -> None:
    """A registry answers, and does not say whether it has the image: unknown, too."""
    site.offer("v2/", b"{}")
    monkeypatch.setenv("TRAINWRIGHT_REGISTRY_PORT", site.address.rpartition(":")[2])
    (row,) = json.loads(cli(tree, "plan", "--framework", "pytorch", "--json").out)
    assert "registry: unknown" not in row["reason"]
    tag = f"{DEFAULT}-{row['key'][:12]}"
    site.offer(f"v2/trainwright/pytorch/manifests/{tag}", b"", *[faults.fails(403)] * 9)
    ended = cli(tree, "plan", "--framework", "pytorch", "--json")
    assert ended.code == 0, ended.err
    assert "registry: unknown" in json.loads(ended.out)[0]["reason"]


def test_render(cli: Cli, tree: Path) -> None:
    ended = cli(tree, "render", "--only", DEFAULT, "--json")
    (row,) = json.loads(ended.out)
    out = tree / row["folder"]
    assert (out / "Dockerfile").read_text().startswith(f"# {DEFAULT}:")
    assert json.loads((out / "docker-bake.json").read_text())["group"]["default"]["targets"] == ["image"]
    assert not (tree / "out/pytorch-2.13-cpu-py311-ec2").exists()


def test_lock_check_shows_every_lock_and_not_only_the_first_that_is_wrong(cli: Cli, tree: Path, edit: Edit) -> None:
    ended = cli(tree, "lock", "--check", "--json")
    assert ended.code == 0, ended.err
    rows = json.loads(ended.out)
    assert {row["state"] for row in rows} == {"current", "blocked"}
    assert {row["state"] for row in rows if row["why"]} == {"blocked"}
    assert [row["lock"] for row in rows] == list(dict.fromkeys(row["lock"] for row in rows)), "twins share a lock"
    edit(tree / "dockerfiles/matrix.toml", r"2\.13\.0", "2.13.1")
    (tree / "dockerfiles/locks/pytorch-2.15-cu132-py313-ec2.toml").unlink()
    ended = cli(tree, "lock", "--check", "--json")
    assert ended.code == 4
    after, error = json.loads(ended.out), json.loads(ended.err)
    assert [row["lock"] for row in after] == [row["lock"] for row in rows]
    states = {row["lock"]: row["state"] for row in after if row["state"] not in ("current", "blocked")}
    stale = dict.fromkeys([DEFAULT, "pytorch-2.13-cpu-py311-ec2"], "stale")
    assert states == {**stale, "pytorch-2.15-cu132-py313-ec2": "missing"}
    assert "has changed since" in next(row["why"] for row in after if row["lock"] == DEFAULT)
    assert (error["error"].split(" of ")[0], error["fix"], error["exit_code"]) == ("3", "trainwright lock", 4)
    ended = cli(tree, "lock", "--check")
    assert (ended.code, len(ended.out.splitlines())) == (4, 1 + len(rows))
    assert ended.err.count("fix:") == 1


def test_lock_check_blames_the_lock_that_is_wrong(cli: Cli, tree: Path) -> None:
    """Where the packages' lock is stale, that of an image over them is not."""
    (tree / "dockerfiles/locks/debian-12.packages").unlink()
    ended = cli(tree, "lock", "--check", "--only", "pytorch-2.13-*-py311-*", "--json")
    assert ended.code == 4
    rows = {row["lock"]: row["state"] for row in json.loads(ended.out)}
    assert rows == {"debian-12": "missing", "pytorch-2.13-cpu-py311-ec2": "current", DEFAULT: "current"}


COMMANDS = ("prune", "list", "lock", "fetch", "plan", "render", "build", "test", "push")


@pytest.mark.parametrize("command", COMMANDS)
def test_unknown_framework(cli: Cli, tree: Path, command: str) -> None:
    ended = cli(tree, command, "--framework", "pytroch")
    assert (ended.code, ended.out) == (2, "")
    assert "did you mean 'pytorch'? valid: " in ended.err
    assert "the same command with --framework pytorch" in ended.err  # `make build` would begin to build


@pytest.mark.parametrize("command", COMMANDS)
def test_empty_framework(cli: Cli, tree: Path, command: str) -> None:
    ended = cli(tree, command, "--framework", "")
    assert (ended.code, ended.out) == (2, "")
    assert "FRAMEWORK is empty" in ended.err


@pytest.mark.parametrize("command", ["build", "test", "push"])
def test_nothing_asked_for_is_never_everything(cli: Cli, tree: Path, command: str) -> None:
    ended = cli(tree, command)
    assert (ended.code, ended.out) == (2, "")
    assert "nothing was asked for" in ended.err
    assert "the same command with --framework" in ended.err


@pytest.mark.parametrize(
    ("words", "fix"),
    [
        ("release", "trainwright release --help"),
        ("list --nonsense", "trainwright list --help"),
        ("nonsense", "trainwright --help"),
    ],
)
def test_wrong_usage_names_the_help_of_that_command(cli: Cli, tree: Path, words: str, fix: str) -> None:
    assert f"{fix}\n" in cli(tree, *words.split()).err


def test_unused_pin(cli: Cli, tree: Path, edit: Edit) -> None:
    edit(tree / "dockerfiles/layers/libfabric.j2", r"\{\{ pins.libfabric \}\}", "1")
    for command in ("plan", "render", "fetch", "build", "lock"):
        ended = cli(tree, command, "--only", DEFAULT)
        assert (ended.code, ended.out) == (2, ""), command
        assert "pin 'libfabric'" in ended.err


def test_malformed_toml(cli: Cli, tree: Path, edit: Edit) -> None:
    path = tree / "dockerfiles/matrix.toml"
    line = path.read_text().splitlines().index("[common.pins]") + 1
    edit(path, r"^\[common.pins\]", "[common.pins")
    ended = cli(tree, "list")
    assert (ended.code, ended.out) == (2, "")
    assert f"dockerfiles/matrix.toml:{line}" in ended.err


def test_missing_pin_in_the_lock(cli: Cli, tree: Path, edit: Edit) -> None:
    edit(tree / f"dockerfiles/locks/{DEFAULT}.toml", r'^name = "mpi4py"', 'name = "mpi5py"')
    ended = cli(tree, "build", "--framework", "pytorch")
    assert (ended.code, ended.out) == (4, "")
    assert "pin mpi4py is missing from the lock" in ended.err


def test_flipped_checksum(
    cli: Cli, tree: Path, edit: Edit, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, wheel: Callable[..., str]
) -> None:
    """The real fetch, by real uv from a real folder: packages are there, one wheel is not what the lock says."""
    from trainwright import indexes, inputs, store
    from trainwright.matrix import load_intent

    intent = load_intent(tree)
    found = inputs.load(intent, intent.variants[0])
    entry = next(entry for entry in found.lock.python if entry.name == "filelock")
    for digest in [package.sha256 for package in found.distribution.packages().values()] + [
        other.sha256 for other in found.lock.python if other is not entry
    ]:
        store.path_of(digest).parent.mkdir(parents=True, exist_ok=True)
        store.path_of(digest).touch()  # what is there is not asked for again
    wheel(tmp_path, "filelock", entry.version)
    (tmp_path / "pip.conf").write_text(f"[global]\nno-index = true\nfind-links = {tmp_path}\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    indexes.pip_settings.cache_clear()
    ended = cli(tree, "fetch", "--only", found.variant.id)
    assert (ended.code, ended.out) == (5, "")
    assert f"the checksum of {entry.file} does not match" in ended.err
    assert not list(store.root().glob(".partial*"))
    assert not store.has(entry.sha256)


@pytest.mark.parametrize(
    "words",
    [("--nonsense",), ("nonsense",), ("list", "--nonsense"), ("list", "extra"), ("list", "--only"), ("plann",)],
)
def test_wrong_usage(cli: Cli, tree: Path, words: tuple[str, ...]) -> None:
    ended = cli(tree, *words)
    assert (ended.code, ended.out) == (2, "")
    assert "Traceback" not in ended.err


def test_errors_as_json(cli: Cli, tree: Path) -> None:
    ended = cli(tree, "list", "--framework", "x", "--json")
    assert ended.out == ""
    error = json.loads(ended.err)
    assert error.keys() == {"error", "where", "why", "fix", "exit_code"}
    assert error["exit_code"] == ended.code == 2


def test_wrong_usage_as_json(cli: Cli, tree: Path) -> None:
    ended = cli(tree, "list", "--nonsense", "--json")
    assert json.loads(ended.err)["exit_code"] == ended.code == 2


def test_no_checkout(cli: Cli, tmp_path: Path) -> None:
    ended = cli(tmp_path, "list")
    assert ended.code == 2
    assert "no checkout here" in ended.err


def test_from_a_folder_below(cli: Cli, tree: Path) -> None:
    assert DEFAULT in cli(tree / "dockerfiles/layers", "list").out


def test_port_that_is_none(cli: Cli, tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINWRIGHT_REGISTRY_PORT", "many")
    ended = cli(tree, "plan")
    assert ended.code == 2
    assert "TRAINWRIGHT_REGISTRY_PORT" in ended.err


def test_aws_account_is_no_reason_to_publish_on_loopback(cli: Cli, tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "work")
    ended = cli(tree, "push", "--framework", "pytorch")
    assert (ended.code, ended.out) == (8, "")
    assert "AWS_PROFILE" in ended.err


def test_push_without_a_registry(cli: Cli, tree: Path) -> None:
    ended = cli(tree, "push", "--framework", "pytorch")
    assert ended.code == 8
    assert "make registry" in ended.err


def test_help_lists_every_command(cli: Cli, tree: Path) -> None:
    ended = cli(tree, "--help")
    assert ended.code == 0
    assert all(command in ended.out for command in (*COMMANDS, "doctor"))


@pytest.mark.parametrize("command", [*COMMANDS, "doctor"])
def test_every_command_has_json(cli: Cli, tree: Path, command: str) -> None:
    assert "--json" in cli(tree, command, "--help").out


# --- real processes ------------------------------------------------------------------------------------------------


def test_version() -> None:
    ended = subprocess.run([TRAINWRIGHT, "--version"], capture_output=True, text=True, check=True)
    from trainwright import __version__

    assert ended.stdout == f"{__version__}\n"


def test_a_reader_that_hangs_up_gets_no_traceback() -> None:
    """`trainwright list | head -0`."""
    read, write = os.pipe()
    os.close(read)
    ended = subprocess.run([TRAINWRIGHT, "list"], stdout=write, stderr=subprocess.PIPE, cwd=ROOT)
    os.close(write)
    assert ended.stderr == b""


def on_a_terminal(**environment: str) -> str:
    """Standard error of a command that fails, where that is a terminal."""
    here, there = pty.openpty()
    env = {**os.environ, "TERM": "xterm", **environment}
    subprocess.run([TRAINWRIGHT, "list", "--framework", "x"], stderr=there, cwd=ROOT, env=env)
    os.close(there)
    said = os.read(here, 10_000).decode()
    os.close(here)
    return said


def test_colour_on_a_terminal_only(cli: Cli, tree: Path) -> None:
    assert "\033[" in on_a_terminal()
    assert "\033[" not in cli(tree, "list", "--framework", "x").err
    assert "\033[" not in cli(tree, "list").out


def test_no_color_is_honoured() -> None:
    """https://no-color.org; our scripts do so already."""
    assert "\033[" not in on_a_terminal(NO_COLOR="1")


def test_sigterm_ends_it_also_where_ctrl_c_is_ignored(tree: Path) -> None:
    """A build under nohup ignores SIGINT; a CI system that gives up sends SIGTERM."""
    (tree / "out").mkdir()
    with FileLock(tree / "out/.lock"):
        child = subprocess.Popen(
            ["sh", "-c", 'trap "" INT; exec "$0" "$@"', TRAINWRIGHT, "build", "--framework", "pytorch"],
            cwd=tree,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert child.stderr
        assert "waiting for it" in child.stderr.readline()
        child.terminate()
        said = child.communicate(timeout=10)[1]
    assert child.returncode == 130
    assert "interrupted" in said
