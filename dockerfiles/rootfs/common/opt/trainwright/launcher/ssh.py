"""Logins between the hosts of an MPI job: keys of this container start alone, and an sshd that lets in one of them.

mpirun starts its daemon on other hosts over ssh. Every host makes one key: the first host's is what it logs in with, a
worker's is its host key; the hosts show each other the public halves when they meet. Nothing lies in the image or in
anybody's ~/.ssh, nothing is asked, and nothing is left afterwards. Jobs without MPI start none of this.
"""

import contextlib
import os
import pwd
import re
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import links
import processes
import trust
from errors import LauncherError
from meeting import Meeting, Settings
from worlds import World

PUBLIC = re.compile("ssh-ed25519 [A-Za-z0-9+/=]{68}")
NAME = re.compile("[A-Za-z_][A-Za-z0-9_]*")  # of a variable that a shell knows; Python's identifiers are more
CARD = "ssh"  # what a host's public key is called on its card
TRUST, NETWORK = "TRAINWRIGHT_TRUST", "network"
SYSTEM = "/usr/sbin:/usr/bin:/sbin:/bin"
FIX_MISSING = 'take an image with openssh (dockerfiles/matrix.toml: openssh = "distro"), or --distribution torchrun'

SERVER = """\
Port {port}
HostKey {folder}/key
AuthorizedKeysFile {folder}/authorized
AllowUsers {user}
AuthenticationMethods publickey
PubkeyAuthentication yes
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
PermitUserRC no
StrictModes {strict}
UsePAM no
UseDNS no
AllowTcpForwarding no
AllowStreamLocalForwarding no
AllowAgentForwarding no
X11Forwarding no
PermitTunnel no
PermitTTY no
PrintMotd no
PrintLastLog no
LoginGraceTime {grace}
MaxStartups {strangers}
ClientAliveInterval {silent}
ClientAliveCountMax {times}
PidFile none
LogLevel INFO
"""

CLIENT = """\
Host *
 Port {port}
 User {user}
 IdentityFile {folder}/key
 IdentitiesOnly yes
 IdentityAgent none
 PreferredAuthentications publickey
 UserKnownHostsFile {folder}/known_hosts
 GlobalKnownHostsFile /dev/null
 StrictHostKeyChecking yes
 CheckHostIP no
 UpdateHostKeys no
 BatchMode yes
 RequestTTY no
 ForwardAgent no
 ForwardX11 no
 ClearAllForwardings yes
 ConnectTimeout {grace}
 ServerAliveInterval {silent}
 ServerAliveCountMax {times}
 LogLevel ERROR
"""


@dataclass(frozen=True)
class Keys:
    """A folder that only this user reads, with this host's key; `public` is for the card."""

    folder: Path
    public: str


def refuse_untrusted(world: World, secret: trust.Secret | None, environ: Mapping[str, str]) -> None:
    """Raises LauncherError where an MPI job has no secret: whoever reaches its hosts could have code run on them."""
    if world.size == 1 or secret or environ.get(TRUST) == NETWORK:
        return
    raise LauncherError(
        f"an MPI job of {world.size} hosts needs a secret: its hosts let each other log in",
        "nothing else tells a host of the job from another container on the network",
        f"{trust.FIX_SECRET}, made with: {trust.MAKE}; or set {TRUST}={NETWORK} where nobody else reaches these hosts",
    )


def make_keys(settings: Settings) -> Keys:
    """Raises LauncherError where the programs are missing or a key cannot be made."""
    _program("sshd")
    maker, folder = _program("ssh-keygen"), _private_folder()
    words = [maker, "-q", "-t", "ed25519", "-N", "", "-C", "trainwright", "-f", str(folder / "key")]
    try:
        code, said = processes.said(words, settings["program_seconds"])
        if code:
            raise LauncherError("a key for ssh cannot be made", said, "df -h /run /tmp")
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    algorithm, key, *_ = (folder / "key.pub").read_text().split()
    return Keys(folder, f"{algorithm} {key}")


def remove(keys: Keys) -> None:
    shutil.rmtree(keys.folder, ignore_errors=True)


def _program(name: str) -> str:
    found = shutil.which(name, path=f"{SYSTEM}:{os.environ.get('PATH', '')}")
    if not found:
        raise LauncherError(
            f"MPI over several hosts needs {name}, and this image has none", "mpirun uses ssh", FIX_MISSING
        )
    return found


def _private_folder() -> Path:
    """In /run where this user may: sshd is strict about every folder above the keys, and /tmp belongs to all."""
    for parent in ("/run", tempfile.gettempdir()):
        with contextlib.suppress(OSError):
            return Path(tempfile.mkdtemp(prefix="trainwright-ssh-", dir=parent))
    raise LauncherError(
        "there is no folder for a key", "neither /run nor /tmp can be written", "mount one of them as tmpfs"
    )


def _public(meeting: Meeting, host: str) -> str:
    """A host's key as a line of a file of ssh's; one that is anything else could be more than a key there."""
    key = meeting.cards.get(host, {}).get(CARD)
    if not isinstance(key, str) or not PUBLIC.fullmatch(key):
        raise LauncherError(
            f"{host} showed no key for ssh", "it runs another distribution", "start all hosts the same way"
        )
    return key


def _write(path: Path, text: str) -> None:
    path.touch(0o600)
    path.write_bytes(os.fsencode(text))  # a variable may hold bytes that are no text


def _user() -> str:
    """Who may log in: who runs this. Raises LauncherError where sshd would let in nobody of this number."""
    try:
        user = pwd.getpwuid(os.getuid())
    except KeyError:
        user = None
    if user and not user.pw_shell.endswith(("/nologin", "/false")):
        return user.pw_name
    what = f"user {os.getuid()} cannot log in" if user else f"user {os.getuid()} has no name in /etc/passwd"
    why = f"mpirun starts ranks by ssh, and its shell is {user.pw_shell}" if user else "mpirun starts ranks by ssh"
    raise LauncherError(what, why, "run as root, or as a user with a name and a shell")


def _values(keys: Keys, settings: Settings) -> dict[str, object]:
    return {
        "folder": keys.folder,
        "port": settings["ssh_port"],
        "user": _user(),
        "grace": settings["ssh_connect_seconds"],
        "silent": settings["silent_seconds"],
        "times": settings["ssh_silent_times"],
        "strangers": settings["strangers"],
        "strict": "yes" if keys.folder.parent == Path("/run") else "no",  # mkdtemp's own 0700 is what keeps others out
    }


# --- a worker --------------------------------------------------------------------------------------------------------


def login(environ: Mapping[str, str]) -> str:
    """The one command that a login runs: what was asked for, in the environment that this host's ranks shall have.

    sshd itself would give them next to none: no PATH to a virtual environment, no LD_LIBRARY_PATH, no SM_*, no AWS_*.
    What a shell keeps for itself (UID in bash, a word in OPTIND in dash) it refuses, and by `command` it goes on then.
    """
    ours = {name: value for name, value in environ.items() if NAME.fullmatch(name) and name != "SSH_ORIGINAL_COMMAND"}
    said = [f"command export {name}={shlex.quote(value)} 2>/dev/null" for name, value in sorted(ours.items())]
    leave = "unset SSH_CONNECTION SSH_CLIENT SSH_TTY MAIL"
    return "\n".join(["#!/bin/sh", leave, *said, 'exec /bin/sh -c "$SSH_ORIGINAL_COMMAND"', ""])


def serve(
    keys: Keys, meeting: Meeting, environ: Mapping[str, str], log: IO[bytes] | None = None
) -> subprocess.Popen[bytes]:
    """sshd, for the first host's key alone; refusals go to stderr. Raises LauncherError where it cannot start."""
    settings = meeting.settings
    sshd, port = _program("sshd"), settings["ssh_port"]
    if not os.getuid():
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # where its unprivileged half is locked up
    config, enter = keys.folder / "sshd_config", keys.folder / "login"
    _write(enter, login(environ))
    public = _public(meeting, meeting.world.main)
    _write(keys.folder / "authorized", f'restrict,command="/bin/sh {enter}" {public}\n')
    _write(config, SERVER.format(**_values(keys, settings)))
    code, said = processes.said([sshd, "-t", "-f", str(config)], settings["program_seconds"])
    if code:
        raise LauncherError("sshd does not start", said, "this is a mistake of the image: report it")
    try:
        links.listen(port).close()
    except OSError as problem:
        why = problem.strerror or str(problem)
        raise LauncherError(f"port {port} cannot be opened for sshd", why, "end what uses it on this host") from None
    return subprocess.Popen([sshd, "-D", "-e", "-f", str(config)], stdin=subprocess.DEVNULL, stderr=log)


# --- the first host --------------------------------------------------------------------------------------------------


def agent(keys: Keys, meeting: Meeting) -> str:
    """What mpirun is to log in with, once every worker lets this host in.

    Raises LauncherError that names who does not within ssh_seconds.
    """
    settings, world = meeting.settings, meeting.world
    workers = [host for host in world.hosts if host != world.main]
    known = [f"[{host}]:{settings['ssh_port']} {_public(meeting, host)}" for host in workers]
    config = keys.folder / "config"
    _write(keys.folder / "known_hosts", "\n".join(known) + "\n")
    _write(config, CLIENT.format(**_values(keys, settings)))
    words = [_program("ssh"), "-F", str(config)]
    end = time.monotonic() + settings["ssh_seconds"]
    asking = ThreadPoolExecutor(settings["ssh_asked_at_once"], thread_name_prefix="trainwright-ssh")
    try:
        answers = [asking.submit(_ask, words, host, meeting, end) for host in workers]
        reasons = {host: answer.result() for host, answer in zip(workers, answers, strict=True)}
    finally:
        asking.shutdown(wait=False, cancel_futures=True)  # a signal must not wait for them; each has an end of its own
    closed = [f"{host}: {why}" for host, why in reasons.items() if why]
    if closed:
        what = f"{', '.join(closed[:8])}"
        fix = f"read the log of that host; port {settings['ssh_port']} must be open between the hosts"
        raise LauncherError(f"no login for mpirun within {settings['ssh_seconds']:g} s", what, fix)
    return shlex.join(words)


def _ask(words: list[str], host: str, meeting: Meeting, end: float) -> str:
    """ "" once the host lets us in; else the last reason why it does not."""
    why = "no answer"
    pause, patience = meeting.settings["retry_seconds"], 2 * meeting.settings["ssh_connect_seconds"]
    while time.monotonic() < end and not meeting.ends:
        try:
            done = subprocess.run(
                [*words, host, "true"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=patience
            )
        except subprocess.TimeoutExpired:
            why = f"no login within {patience:g} s"
            continue
        if not done.returncode:
            return ""
        why = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        time.sleep(pause)
    return meeting.ends or why
