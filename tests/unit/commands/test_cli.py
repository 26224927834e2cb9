"""Test the contract with scripts: fields, exit codes, data on stdout, errors on stderr, no traceback."""

import errno
import json
import os
import pty
import re
import resource
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock
from unit import forked
from unit.forked import Forked

from trainwright import cli as command_line
from trainwright.build import loopback
from trainwright.core import host_settings, progress
from trainwright.core.errors import ConfigError, EnvironmentProblem, NotRunError
from trainwright.core.files import only_one
from trainwright.gate import launchers
from trainwright.lock import additions
from trainwright.lock import lockfile as lock_module
from trainwright.matrix.matrix import Recipe, load_intent
from trainwright.resolve import with_packages

Edit = Callable[[Path, str, str], None]
Cli = Callable[..., Any]
ROOT = Path(__file__).parents[3]
DEFAULT = "pytorch-2.13-cpu-py311-sagemaker"
TRAINWRIGHT = Path(sys.executable).with_name("trainwright")


def test_list(cli: Cli, few: Path) -> None:
    ended = cli(few, "list", "--json")
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


@pytest.fixture
def engineless(tree: Path) -> Path:
    """Make a checkout whose engine script shows by its exit code that it ran."""
    (tree / "scripts/engine.py").write_text("import sys; sys.exit(len(sys.argv) + 40)")
    return tree


def published(cli: Cli, tree: Path, site: Any) -> str:
    """Publish the default image under its key in a plain registry; return the registry's host[:port]."""
    (row,) = json.loads(cli(tree, "plan", "--framework", "pytorch", "--json").out)
    config, layer = ({"size": size, "digest": f"sha256:{size:064}"} for size in (1, 2))
    manifest = json.dumps({"config": config, "layers": [layer]}).encode()
    digest = f"sha256:{sha256(manifest).hexdigest()}"
    for name in (f"{DEFAULT}-{row['key'][:12]}", digest):
        site.offer(f"v2/trainwright/pytorch/manifests/{name}", manifest)
    return str(site.address.removeprefix("http://"))


def test_what_is_published_needs_no_engine(cli: Cli, engineless: Path, site: Any) -> None:
    words = ("build", "--push", "--set-up", "--framework", "pytorch", "--registry", published(cli, engineless, site))
    ended = cli(engineless, *words)
    assert ended.code == 0, ended.err
    rows = [line for line in ended.out.splitlines() if line.startswith(DEFAULT)]
    assert ["published with this key as sha256:" in row for row in rows] == [True, True], "of build, and of push"
    (row,) = json.loads(cli(engineless, *words, "--json").out)
    assert row["action"] == "skip"


@pytest.mark.parametrize("words", [("build",), ("build", "--push")])
def test_what_is_not_published_has_the_engine_set_up_first(
    cli: Cli, engineless: Path, site: Any, words: tuple[str, ...]
) -> None:
    asked = (*words, "--framework", "pytorch", "--registry", site.address.removeprefix("http://"))
    ended = cli(engineless, *asked, "--set-up")
    assert (ended.code, ended.out) == (42, "")
    ended = cli(engineless, *asked)  # whoever does not ask for it is told instead
    assert (ended.code, ended.out) == (10, "")
    assert "no Docker engine answers" in ended.err


def test_the_registry_on_loopback_has_the_engine_set_up_where_it_does_not_run(
    cli: Cli, engineless: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("build", "--set-up", "--push", "--framework", "pytorch")
    assert cli(engineless, *words).code == 42
    started = []
    monkeypatch.setattr(loopback, "up", lambda *_: started.append("up"))
    (engineless / "scripts/engine.py").write_text("")
    assert cli(engineless, *words).code == 10  # the script found an engine, and ours is not there
    assert started == ["up"]
    monkeypatch.setenv("AWS_PROFILE", "work")  # then nobody said that loopback is meant
    cli(engineless, *words)
    assert started == ["up"]


def test_render(cli: Cli, tree: Path) -> None:
    ended = cli(tree, "render", DEFAULT, "--json")
    (row,) = json.loads(ended.out)
    out = tree / row["folder"]
    assert (out / "Dockerfile").read_text().startswith(f"# {DEFAULT}:")
    assert json.loads((out / "docker-bake.json").read_text())["group"]["default"]["targets"] == ["image"]
    assert not (tree / "out/pytorch-2.13-cpu-py311-ec2").exists()


def test_lock_check_shows_every_lock_and_not_only_the_first_that_is_wrong(cli: Cli, few: Path, edit: Edit) -> None:
    ended = cli(few, "lock", "--check", "--json")
    assert ended.code == 0, ended.err
    rows = json.loads(ended.out)
    assert {row["state"] for row in rows} == {"current", "blocked"}
    assert {row["state"] for row in rows if row["why"]} == {"blocked"}
    assert [row["lock"] for row in rows] == list(dict.fromkeys(row["lock"] for row in rows)), "twins share a lock"
    edit(few / "dockerfiles/matrix.toml", r"2\.13\.0", "2.13.1")
    (few / "dockerfiles/locks/pytorch-2.15-cu132-py313-ec2.toml").unlink()
    ended = cli(few, "lock", "--check", "--json")
    assert ended.code == 4
    after, error = json.loads(ended.out), json.loads(ended.err)
    assert [row["lock"] for row in after] == [row["lock"] for row in rows]
    states = {row["lock"]: row["state"] for row in after if row["state"] not in ("current", "blocked")}
    stale = dict.fromkeys([DEFAULT, "pytorch-2.13-cpu-py311-ec2"], "stale")
    assert states == {**stale, "pytorch-2.15-cu132-py313-ec2": "missing"}
    assert "has changed since" in next(row["why"] for row in after if row["lock"] == DEFAULT)
    assert (error["error"].split(" of ")[0], error["fix"], error["exit_code"]) == ("3", "trainwright lock", 4)
    ended = cli(few, "lock", "--check")
    assert (ended.code, len(ended.out.splitlines())) == (4, 1 + len(rows))
    assert ended.err.count("fix:") == 1


def test_lock_check_blames_the_lock_that_is_wrong(cli: Cli, tree: Path) -> None:
    """Where the packages' lock is stale, that of an image over them is not."""
    (tree / "dockerfiles/locks/debian-12.packages").unlink()
    ended = cli(tree, "lock", "--check", "pytorch-2.13-*-py311-*", "--json")
    assert ended.code == 4
    rows = {row["lock"]: row["state"] for row in json.loads(ended.out)}
    assert rows == {"debian-12": "missing", "pytorch-2.13-cpu-py311-ec2": "current", DEFAULT: "current"}
    assert json.loads(ended.err)["fix"] == f"trainwright lock pytorch-2.13-cpu-py311-ec2 {DEFAULT}"
    ended = cli(tree, "plan", DEFAULT, "--json")  # whose base's packages are not locked
    assert (ended.code, json.loads(ended.err)["fix"]) == (4, f"trainwright lock {DEFAULT}")


def test_a_missing_lock_is_mended_by_the_lock_of_that_image(cli: Cli, tree: Path) -> None:
    (tree / f"dockerfiles/locks/{DEFAULT}.toml").unlink()
    for words in (["plan"], ["render"], ["lock", "--check"]):
        error = json.loads(cli(tree, *words, DEFAULT, "--json").err)
        assert (error["exit_code"], error["fix"]) == (4, f"trainwright lock {DEFAULT}")


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
        ended = cli(tree, command, DEFAULT)
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
    from trainwright.core import store
    from trainwright.image import inputs
    from trainwright.matrix.matrix import Recipe, load_intent

    intent = load_intent(tree)
    found = inputs.load(Recipe(intent, intent.variants[0]))
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
    host_settings.pip_settings.cache_clear()
    ended = cli(tree, "fetch", found.variant.id)
    assert (ended.code, ended.out) == (5, "")
    assert f"the checksum of {entry.file} does not match" in ended.err
    assert not list(store.root().glob(".partial*"))
    assert not store.has(entry.sha256)


@pytest.mark.parametrize(
    "words",
    [("--nonsense",), ("nonsense",), ("list", "--nonsense"), ("plann",)],
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
    """The installed data is read; what would have to be written into it is refused."""
    ended = cli(tmp_path, "list", "base-1.0-cpu-py313-ec2", "--json")
    assert [row["id"] for row in json.loads(ended.out)["images"]] == ["base-1.0-cpu-py313-ec2"]
    ended = cli(tmp_path, "upgrade")
    assert ended.code == 2
    assert "this folder is not in a project" in ended.err


def test_logs_are_read_where_they_lie(cli: Cli, tmp_path: Path) -> None:
    """Outside of any checkout a command about logs takes the data of the checkout that it is installed from."""
    (tmp_path / "train.log").write_text("torch.OutOfMemoryError: CUDA out of memory.\n")
    ended = cli(tmp_path, "diagnose", "train.log")
    assert (ended.code, "out-of-memory" in ended.out) == (0, True)


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


def test_every_command_has_json(registered: dict[str, Any]) -> None:
    """But cosign: what it prints is cosign's own."""
    without = {name for name, one in registered.items() if not any("--json" in option.opts for option in one.params)}
    assert without == {"cosign"}


def test_the_page_of_commands_has_every_command(registered: dict[str, Any]) -> None:
    table = (ROOT / "docs/commands.md").read_text()
    cells = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    spans, said = [re.findall("`([^`]+)`", cell) for cell in cells], set[str]()
    names = registered.keys()
    groups = {name.partition(" ")[0] for name in names if " " in name}
    for first, *others in spans:  # `registry up`, `down`: the group is said once
        group = first.split()[0]
        for span in (first, *others):
            words = span.split()
            if words[0] in groups:
                said.add(" ".join(words[:2]))
            elif group in groups and f"{group} {words[0]}" in names:
                said.add(f"{group} {words[0]}")
            elif not span.startswith("-"):
                said.add(words[0])
    assert said == set(names)


# --- real processes ------------------------------------------------------------------------------------------------


def test_version() -> None:
    ended = subprocess.run([TRAINWRIGHT, "--version"], capture_output=True, text=True, check=True)
    from trainwright import __version__

    assert ended.stdout == f"{__version__}\n"


def test_a_reader_that_hangs_up_gets_no_traceback() -> None:
    """`trainwright list | head -0`, of one image."""
    read, write = os.pipe()
    os.close(read)
    words = ["list", "base-1.0-cpu-py313-ec2"]
    ended = subprocess.run([TRAINWRIGHT, *words], stdout=write, stderr=subprocess.PIPE, cwd=ROOT)
    os.close(write)
    assert ended.stderr == b""


def on_a_terminal(**environment: str) -> str:
    """Return the standard error of a command that fails, with a terminal as standard error."""
    here, there = pty.openpty()
    env = {**os.environ, "TERM": "xterm", **environment}
    subprocess.run([TRAINWRIGHT, "list", "--framework", "x"], stderr=there, cwd=ROOT, env=env)
    os.close(there)
    said = os.read(here, 10_000).decode()
    os.close(here)
    return said


def test_colour_on_a_terminal_only(cli: Cli, few: Path) -> None:
    assert "\033[" in on_a_terminal()
    assert "\033[" not in cli(few, "list", "--framework", "x").err
    assert "\033[" not in cli(few, "list").out


def test_no_color_is_honoured() -> None:
    """https://no-color.org; our scripts do so already."""
    assert "\033[" not in on_a_terminal(NO_COLOR="1")


def test_sigterm_ends_it_also_where_ctrl_c_is_ignored(tree: Path) -> None:
    """A build under nohup ignores SIGINT; a CI system that gives up sends SIGTERM."""
    (tree / "out").mkdir()
    with FileLock(tree / "out/.lock"):
        ignore = partial(signal.signal, signal.SIGINT, signal.SIG_IGN)
        child = Forked(["build", "--framework", "pytorch"], tree, ignore)
        assert "waiting for it" in child.stderr.readline()
        child.terminate()
        said = child.communicate()[1]
    assert child.returncode == 130
    assert b"interrupted" in said


@pytest.mark.waits
def test_who_only_reads_waits_for_nobody(tree: Path) -> None:
    """And who writes can say that it will not wait."""
    (tree / "out").mkdir()
    nobody = ["--registry", "127.0.0.1:1"]
    with only_one(tree / "out", print):
        for words in (
            ["release", "2026.11.0", "pytorch-2.13-cpu-py311-ec2", "--dry-run", *nobody],
            ["push", "pytorch-2.13-cpu-py311-ec2", "--dry-run", *nobody],
            ["rollback", "--to", "nosuch"],
            ["prune", *nobody],
            ["lock", "--check", "pytorch-2.13-cpu-py311-ec2"],
        ):
            done = forked.run(words, tree)
            assert done.returncode not in (0, 1, 10) or "127.0.0.1:1" in done.stderr or words[0] == "lock", done.stderr
            assert "another trainwright" not in done.stderr
        for words in (
            *([name, "--framework", "pytorch"] for name in ("build", "push", "lock", "record", "render")),
            ["prune", "--delete"],
        ):
            done = forked.run([*words, "--no-wait"], tree)
            assert done.returncode == 10, done.stderr
            assert f"process {os.getpid()} since 20" in done.stderr


@pytest.mark.waits
def test_what_cannot_be_written_is_one_error(tree: Path) -> None:
    """A folder that is a file, and a disk that takes nothing more, wherever a command writes."""
    (tree / "file").touch()
    (tree / "kept.md").write_text("of before")
    only = ["pytorch-2.13-cpu-py311-ec2"]
    nothing, all_of_it = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (0, 0)), int
    for words, limit, says in (
        (["matrix", *only, "--markdown", "file/matrix.md"], all_of_it, "file/matrix.md cannot be written"),
        (["matrix", *only, "--html", "file/matrix.html"], all_of_it, "file/matrix.html cannot be written"),
        (["matrix", *only, "--markdown", "kept.md"], nothing, "kept.md cannot be written"),
        (["render", *only], nothing, "cannot be written"),
        (
            ["emit", *only[1:], "train.py", "--on", "slurm", "--instance", "p5.48xlarge", "--output", "file/x"],
            all_of_it,
            "",
        ),
    ):
        done = forked.run(words, tree, limit)
        assert "Traceback" not in done.stderr, done.stderr
        assert done.stderr.startswith("error: "), done.stderr
        assert says in done.stderr
        assert done.returncode == 10 or not says, done.stderr
    assert (tree / "kept.md").read_text() == "of before"
    assert not list(tree.glob(".kept.md*"))


@pytest.mark.parametrize(
    ("number", "name", "says", "fix"),
    [
        (errno.ENOSPC, "there", "written", "df -h"),
        (errno.EEXIST, "there", "written", "ls -ld"),
        (errno.EACCES, "there", "written", "ls -ld"),
        (errno.EACCES, "not there", "written", "ls -ld"),
        (errno.EACCES, "secret", "read", "ls -ld"),
        (errno.EACCES, "closed/file", "used", "ls -ld"),
        (errno.EISDIR, "there", "used", "ls -ld"),
    ],
)
def test_what_cannot_be_done_with_a_file_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, name: str, says: str, fix: str
) -> None:
    """As somebody who is not root: `secret` may not be read, and `closed` not be entered."""
    (tmp_path / "closed").mkdir()
    for file in ("there", "secret", "closed/file"):
        (tmp_path / file).touch()

    def access(path: Path, mode: int) -> bool:
        if path.name == "closed" or (path.name == "secret" and mode == os.R_OK):
            return False
        return path.exists()

    monkeypatch.setattr(os, "access", access)
    problem = command_line._of_a_file(OSError(number, "no", str(tmp_path / name)))
    assert problem.what == f"a file cannot be {says}"
    assert problem.fix == f"{fix} {shlex.quote(str(tmp_path / name))}"


def test_cosign_has_the_cas_and_leaves_nothing(tree: Path, tmp_path: Path, authority: Path) -> None:
    for name in ("bin", "temporary"):
        (tmp_path / name).mkdir()
    (tmp_path / "bin/cosign").write_text('#!/bin/sh\ncat "$SSL_CERT_FILE"; exit 3\n')
    (tmp_path / "bin/cosign").chmod(0o755)
    env = {**os.environ, "TMPDIR": str(tmp_path / "temporary"), "TRAINWRIGHT_CA": str(authority / "ca.pem")}
    env["PATH"] = f"{tmp_path}/bin:{env['PATH']}"
    done = subprocess.run([TRAINWRIGHT, "cosign", "version"], cwd=tree, env=env, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (3, "")
    assert (authority / "ca.pem").read_text().strip() in done.stdout
    assert list((tmp_path / "temporary").iterdir()) == []


def test_a_lock_that_cannot_be_written_is_one_error(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(with_packages, "solved", lambda *_: None)
    monkeypatch.setattr(with_packages, "check_lock", lambda *_: ([], NotRunError("stale")))
    monkeypatch.setattr(additions, "lock_path", lambda _: tree / "file/team.lock.toml")
    monkeypatch.setattr(lock_module, "dump", lambda _: "")
    (tree / "file").touch()
    with pytest.raises(EnvironmentProblem, match="cannot be written"):
        with_packages.lock_additions(Recipe(load_intent(tree), load_intent(tree).variants[0]), print, lambda _: None)


def test_a_remedy_is_what_was_meant_and_a_refusal_has_a_reason(cli: Cli, tree: Path) -> None:
    said = cli(tree, "emit", "repository@sha256:" + "1" * 64, "train.py", "--on", "hyperpod-ek").err
    assert "did you mean 'hyperpod-eks'" in said
    assert "fix:   --on hyperpod-eks\n" in said
    with pytest.raises(ConfigError) as error:
        launchers.place("arn:aws:iam::123456789012:role/x", "s3://b/x", [], [])
    assert "3 to 63" in error.value.why
    assert [progress.counted(number, "requirement") for number in (1, 2)] == ["1 requirement", "2 requirements"]
