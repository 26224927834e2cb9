"""Let mpirun log in to the other hosts of an MPI job over ssh, with keys that are made for this job only.

mpirun starts its daemon on other hosts over ssh. Each host makes one key pair: the main host logs in with its key, a
worker uses its key as host key, and all exchange the public halves when they join. No key is in the image or in a
user's ~/.ssh, and all files are removed at the end. Jobs without MPI use none of this.
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
NAME = re.compile("[A-Za-z_][A-Za-z0-9_]*")  # a shell's variable name; str.isidentifier() accepts more
CARD = "ssh"  # the field of a host's card that holds its public key
TRUST, NETWORK = "TRAINWRIGHT_TRUST", "network"
SYSTEM = "/usr/sbin:/usr/bin:/sbin:/bin"
FIX_MISSING = 'use an image with openssh (dockerfiles/matrix.toml: openssh = "distro"), or --distribution torchrun'

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
    """Name the private folder with this host's key pair; `public` is sent to the other hosts."""

    folder: Path
    public: str


def refuse_untrusted(world: World, secret: trust.Secret | None, environ: Mapping[str, str]) -> None:
    """Require a secret for MPI over several hosts: without one, anyone who reaches a host could run code on it.

    Raises LauncherError if the job has none, unless TRAINWRIGHT_TRUST=network.
    """
    if world.host_count == 1 or secret or environ.get(TRUST) == NETWORK:
        return
    raise LauncherError(
        f"an MPI job of {world.host_count} hosts requires a secret, because its hosts log in to each other",
        "without one, a host cannot tell the job's hosts from other containers on the network",
        f"{trust.FIX_SECRET}, made with: {trust.MAKE}; or set {TRUST}={NETWORK} on a network of the job's hosts alone",
    )


def make_keys(settings: Settings) -> Keys:
    """Create this host's key pair. Raises LauncherError if sshd or ssh-keygen is missing or fails."""
    _program("sshd")
    maker, folder = _program("ssh-keygen"), _private_folder()
    words = [maker, "-q", "-t", "ed25519", "-N", "", "-C", "trainwright", "-f", str(folder / "key")]
    try:
        code, said = processes.run(words, settings["program_seconds"])
        if code:
            raise LauncherError("ssh-keygen failed", said, "check the free space: df -h /run /tmp")
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
            f"MPI over several hosts requires {name}, which this image lacks", "mpirun uses ssh", FIX_MISSING
        )
    return found


def _private_folder() -> Path:
    """Create a private folder, in /run if possible: sshd's StrictModes rejects keys below /tmp, where all may write."""
    for parent in ("/run", tempfile.gettempdir()):
        with contextlib.suppress(OSError):
            return Path(tempfile.mkdtemp(prefix="trainwright-ssh-", dir=parent))
    raise LauncherError(
        "the folder for ssh keys cannot be created", "neither /run nor /tmp is writable", "mount one of them as tmpfs"
    )


def _public(meeting: Meeting, host: str) -> str:
    """Return a host's public key, verified to be nothing but a key, because it becomes a line of ssh's files."""
    key = meeting.cards.get(host, {}).get(CARD)
    if not isinstance(key, str) or not PUBLIC.fullmatch(key):
        raise LauncherError(
            f"{host} sent no ssh key", "it was started with another distribution", "start all hosts the same way"
        )
    return key


def _write(path: Path, text: str) -> None:
    path.touch(0o600)
    path.write_bytes(os.fsencode(text))  # an environment variable may hold bytes that are not UTF-8


def _user() -> str:
    """Return the name of this process's user, the only one who may log in. Raises LauncherError if sshd would not."""
    try:
        user = pwd.getpwuid(os.getuid())
    except KeyError:
        user = None
    if user and not user.pw_shell.endswith(("/nologin", "/false")):
        return user.pw_name
    what = f"user {os.getuid()} cannot log in" if user else f"user {os.getuid()} has no name in /etc/passwd"
    why = f"mpirun starts ranks by ssh, and the shell is {user.pw_shell}" if user else "mpirun starts ranks by ssh"
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
        "strict": "yes" if keys.folder.parent == Path("/run") else "no",  # below /tmp, mkdtemp's mode 0700 protects it
    }


# --- a worker --------------------------------------------------------------------------------------------------------


def login(environ: Mapping[str, str]) -> str:
    """Return the script of every login: it exports this host's environment, then runs the requested command.

    sshd itself passes on almost no variables: no PATH of the virtual environment, LD_LIBRARY_PATH, SM_* or AWS_*.
    A shell refuses to set some names (UID in bash, a non-number in OPTIND in dash); `command` keeps it from exiting.
    """
    ours = {name: value for name, value in environ.items() if NAME.fullmatch(name) and name != "SSH_ORIGINAL_COMMAND"}
    said = [f"command export {name}={shlex.quote(value)} 2>/dev/null" for name, value in sorted(ours.items())]
    leave = "unset SSH_CONNECTION SSH_CLIENT SSH_TTY MAIL"
    return "\n".join(["#!/bin/sh", leave, *said, 'exec /bin/sh -c "$SSH_ORIGINAL_COMMAND"', ""])


def serve(
    keys: Keys, meeting: Meeting, environ: Mapping[str, str], log: IO[bytes] | None = None
) -> subprocess.Popen[bytes]:
    """Start sshd, which accepts the main host's key only and logs to stderr. Raises LauncherError on failure."""
    settings = meeting.settings
    sshd, port = _program("sshd"), settings["ssh_port"]
    if not os.getuid():
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # sshd's folder for privilege separation
    config, enter = keys.folder / "sshd_config", keys.folder / "login"
    _write(enter, login(environ))
    public = _public(meeting, meeting.world.main)
    _write(keys.folder / "authorized", f'restrict,command="/bin/sh {enter}" {public}\n')
    _write(config, SERVER.format(**_values(keys, settings)))
    code, said = processes.run([sshd, "-t", "-f", str(config)], settings["program_seconds"])
    if code:
        raise LauncherError("sshd rejects its configuration", said, "this is a defect of the image: report it")
    try:
        links.listen(port).close()
    except OSError as problem:
        why = problem.strerror or str(problem)
        fix = "stop the process that uses it on this host"
        raise LauncherError(f"port {port} cannot be opened for sshd", why, fix) from None
    return subprocess.Popen([sshd, "-D", "-e", "-f", str(config)], stdin=subprocess.DEVNULL, stderr=log)


# --- the first host --------------------------------------------------------------------------------------------------


def agent(keys: Keys, meeting: Meeting) -> str:
    """Return the ssh command for mpirun, once a login to every worker has succeeded.

    Raises LauncherError that names the workers whose login still fails after ssh_seconds.
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
        asking.shutdown(wait=False, cancel_futures=True)  # a signal must not wait for the threads; each has a timeout
    closed = [f"{host}: {why}" for host, why in reasons.items() if why]
    if closed:
        what = f"{', '.join(closed[:8])}"
        fix = f"read the log of that host; port {settings['ssh_port']} must be open between the hosts"
        raise LauncherError(f"mpirun cannot log in to all workers within {settings['ssh_seconds']:g} s", what, fix)
    return shlex.join(words)


def _ask(words: list[str], host: str, meeting: Meeting, end: float) -> str:
    """Try to log in until it succeeds or the time is over. Returns "", or the last reason for the failure."""
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
