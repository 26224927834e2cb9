"""Test logins for mpirun that are refused before sshd is asked; tests/image/programs/logins.py uses a real sshd."""

import os
import pwd
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ssh
import trust
from errors import LauncherError
from worlds import World

MAIN, WORKER = "127.0.0.1", "127.0.0.2"
WORLD = World("test", "job", (MAIN, WORKER), MAIN, 1, "lo")
KEY = "ssh-ed25519 " + "A" * 68


def test_mpi_over_hosts_wants_a_secret_or_the_users_word() -> None:
    with pytest.raises(LauncherError, match="requires a secret") as failed:
        ssh.refuse_untrusted(WORLD, None, {"TRAINWRIGHT_TRUST": "yes"})
    assert trust.VARIABLE in failed.value.fix
    assert trust.MAKE in failed.value.fix
    assert "TRAINWRIGHT_TRUST=network" in failed.value.fix
    ssh.refuse_untrusted(WORLD, None, {"TRAINWRIGHT_TRUST": "network"})
    ssh.refuse_untrusted(WORLD, trust.take({trust.VARIABLE: "0123456789abcdef" * 2}), {})
    ssh.refuse_untrusted(replace(WORLD, hosts=(MAIN,)), None, {})


@pytest.mark.parametrize("missing", ["sshd", "ssh-keygen"])
def test_a_program_that_is_missing_is_named(missing: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in {"sshd", "ssh-keygen"} - {missing}:
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setattr(ssh, "SYSTEM", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LauncherError, match=f"requires {missing}, which this image lacks") as failed:
        ssh.make_keys({"program_seconds": 30})
    assert "torchrun" in failed.value.fix


def test_a_key_that_is_never_made_leaves_no_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As where a file system hangs."""
    for name in ("sshd", "ssh-keygen"):
        (tmp_path / name).write_text("#!/bin/sh\nexec sleep 600\n")
        (tmp_path / name).chmod(0o755)
    made = tmp_path / "made"
    made.mkdir()
    monkeypatch.setattr(ssh, "SYSTEM", f"{tmp_path}:{ssh.SYSTEM}")
    monkeypatch.setattr(ssh, "_private_folder", lambda: made)
    with pytest.raises(LauncherError, match=r"ssh-keygen did not end within 0\.2 s"):
        ssh.make_keys({"program_seconds": 0.2})
    assert not made.exists()


@pytest.mark.parametrize(
    "card",
    [
        {},
        {ssh.CARD: 1},
        {ssh.CARD: ""},
        {ssh.CARD: f'{KEY}\ncommand="x" {KEY}'},
        {ssh.CARD: f'command="x" {KEY}'},
        {ssh.CARD: f"{KEY}\n"},
        {ssh.CARD: "ssh-rsa " + "A" * 68},
    ],
)
def test_a_card_that_is_more_than_a_key_is_refused(card: dict[str, Any]) -> None:
    met: Any = SimpleNamespace(cards={WORKER: card})
    with pytest.raises(LauncherError, match="sent no ssh key"):
        ssh._public(met, WORKER)


@pytest.mark.parametrize(
    ("user", "why"),
    [(None, "has no name"), (SimpleNamespace(pw_name="nobody", pw_shell="/usr/sbin/nologin"), "cannot log in")],
)
def test_a_user_that_sshd_would_let_in_nowhere(user: Any, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def find(number: int) -> Any:
        if user:
            return user
        raise KeyError(number)

    monkeypatch.setattr(pwd, "getpwuid", find)
    with pytest.raises(LauncherError, match=why):
        ssh._user()


# Environments that ended the one command of a login, or changed it: name, value.
HOSTILE = {
    "a letter that no shell knows": ("é", "1"),
    "a digit that Python alone knows": ("x\u0663", "1"),
    "bash's own": ("UID", "5"),
    "bash's options": ("SHELLOPTS", "errexit"),
    "dash's number": ("OPTIND", "abc"),
    "bytes that are no text": ("BYTES", "a\udcffb"),
    "a line of its own": ("LINES_", "a\nexit 3\n"),
    "an end of the quotes": ("QUOTES", "'; exit 4; '"),
    "a function": ("BASH_FUNC_exit%%", "() { echo no; }"),
    "a name that is a command": ("a=1; exit 5; b", "1"),
    "what is asked for": ("SSH_ORIGINAL_COMMAND", "exit 6"),
    "what divides words": ("IFS", "h"),
}


@pytest.mark.parametrize("shell", ["dash", "bash"])
@pytest.mark.parametrize(("name", "value"), HOSTILE.values(), ids=HOSTILE)
def test_no_variable_ends_a_login_or_changes_its_command(name: str, value: str, shell: str, tmp_path: Path) -> None:
    """As sshd runs it: /bin/sh is dash in Debian and bash, by the name of sh, in Amazon Linux."""
    (tmp_path / "sh").symlink_to(shutil.which(shell) or pytest.skip(f"not run: this host has no {shell}"))
    ssh._write(tmp_path / "login", ssh.login({name: value, "zz": "is whole"}))
    done = subprocess.run(
        [tmp_path / "sh", tmp_path / "login"],
        env={"SSH_ORIGINAL_COMMAND": 'echo "$zz" && env && exit 7', "PATH": os.environ["PATH"]},
        capture_output=True,
    )
    assert (done.returncode, done.stderr) == (7, b"")
    assert done.stdout.startswith(b"is whole\n")
    if name in ("BYTES", "LINES_", "QUOTES"):
        assert os.fsencode(f"\n{name}={value}\n") in done.stdout
