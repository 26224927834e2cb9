"""Who belongs to a job: a secret that all of its hosts were given, and how two of them prove it to each other.

The secret never travels and is in no argument, log or environment of the training script. Neither side proves anything
to the other by what an outsider may know: job name, ARN, host names and the image are public.

    member -> main    hello, version, job, host, nonce, whether it has a secret
    main   -> member  nonce, whether it has a secret         | refused, why
    member -> main    HMAC(secret, "member proves", all of the above)
    main   -> member  HMAC(secret, "main proves", the same)  | refused, why

Keys for what follows, one for each direction, are further HMACs over the same. Without a secret the same is said with
empty proofs; a host that has one never goes on with one that has none.

Both sides are generators: what they yield is to be sent, what they are sent is what came.
"""

import contextlib
import ctypes
import hmac
import json
import os
import re
import secrets
import tempfile
from collections.abc import Callable, Generator, MutableMapping, Sequence
from pathlib import Path

from errors import LauncherError
from wire import Message, WireError, text

VERSION = 1
VARIABLE, FILE = "TRAINWRIGHT_JOB_SECRET", "TRAINWRIGHT_JOB_SECRET_FILE"
MADE = "TRAINWRIGHT_JOB_SECRET_MADE"  # the file that hand_over() or start.sh made: that one is ours to remove
MAKE = "python3 -c 'import secrets; print(secrets.token_hex(32))'"
BITS = 128
NONCE = re.compile("[0-9a-f]{64}")
Keys = tuple[bytes | None, bytes | None]  # what this side sends with, and what it receives with

# What is said where a connection is refused: on the member, and on the main host.
REFUSALS = {
    "version": ("{main} speaks another version of this protocol", "{host} speaks another version of this protocol"),
    "job": ("{main} runs another job", "{host} says that it is of another job"),
    "stranger": ("{main} knows no host {host}", "{host} is no host of this job"),
    "taken": ("{main} has a host {host} already", "somebody else came as {host}, which is in already"),
    "secret": ("the secret of this host is not the one of {main}", "the secret of {host} is not the one of this host"),
    "wants secret": ("{main} has a job secret, and this host has none", "{host} has no job secret, and this host has"),
    "no secret": ("this host has a job secret, and {main} has none", "{host} has a job secret, and this host has none"),
    "impostor": ("who answers as {main} does not know the secret of this job", ""),
}
PASSING = {"job", "taken"}  # another job's address that DNS still gives; a connection of ours that main has yet to miss
FIX_SECRET = f"give all hosts of the job the same {VARIABLE} or {FILE}"


class Refused(Exception):
    """One side does not go on; `code` is a key of REFUSALS, `host` the member."""

    def __init__(self, code: str, host: str) -> None:
        super().__init__(code)
        self.code, self.host = code, host


class Secret:
    """What all hosts of a job were given. It can only be used, not read: no text of it shows it."""

    __slots__ = ("__key",)

    def __init__(self, key: str) -> None:
        self.__key = key.encode()

    def mac(self, role: str, *fields: str) -> bytes:
        """32 bytes that only who has the secret can make, for these fields in this role."""
        return hmac.new(self.__key, json.dumps([role, *fields]).encode(), "sha256").digest()

    def __repr__(self) -> str:
        return "Secret(...)"

    def __reduce__(self) -> str:
        raise TypeError("a secret is not copied")


def take(environ: MutableMapping[str, str]) -> Secret | None:
    """The job's secret; None where none was given. Afterwards the environment, which a script inherits, has none.

    Raises LauncherError where one was given that is none: to go on without would be a silent downgrade.
    """
    _wipe(environ)
    said, path, made = (environ.pop(name, None) for name in (VARIABLE, FILE, MADE))
    if said is None and path is None:
        return None
    if said is not None and path is not None:
        raise LauncherError(f"both {VARIABLE} and {FILE} are set", "which one counts would be a guess", "unset one")
    where = VARIABLE if path is None else f"{FILE} ({path})"
    if path is not None:
        try:
            said = Path(path).read_text("ascii")
        except (OSError, ValueError) as problem:
            why = problem.strerror if isinstance(problem, OSError) else "it is no text in ASCII"
            raise LauncherError(f"the job's secret cannot be read: {where}", str(why), "mount it there") from None
        if path == made:
            with contextlib.suppress(OSError):
                Path(path).unlink()
                Path(path).parent.rmdir()  # where it holds anything else, that is not ours
    key = (said or "").strip()
    if strength(key) < BITS:
        why = f"it has {len(key)} characters; at least {BITS} random bits are asked for, 32 hexadecimal digits"
        raise LauncherError(f"the job's secret is too short: {where}", why, f"make one with: {MAKE}")
    return Secret(key)


def hand_over(environ: MutableMapping[str, str]) -> None:
    """For who starts the launcher later, and other programs before it: the variable becomes a file that take() removes.

    Raises OSError where no file can be written; the variable is then as it was.
    """
    if VARIABLE in environ and FILE not in environ:
        path = Path(tempfile.mkdtemp(prefix="trainwright-secret-")) / "secret"
        path.touch(0o600)
        path.write_text(environ[VARIABLE])
        _wipe(environ)
        del environ[VARIABLE]
        environ[FILE] = environ[MADE] = str(path)


def _wipe(environ: MutableMapping[str, str]) -> None:
    """What a process was started with stays readable in /proc/<pid>/environ, whatever it unsets later."""
    if environ is os.environ and VARIABLE in environ:
        libc = ctypes.CDLL(None)
        libc.getenv.restype = ctypes.c_void_p
        place = libc.getenv(VARIABLE.encode())
        if place:
            environ[VARIABLE] = environ[VARIABLE]  # a copy of its own, as the place may be what os.environ goes by
            ctypes.memset(place, 0, len(ctypes.string_at(place)))


def strength(key: str) -> int:
    """Bits that a text of this length and alphabet can hold at most; 0 where it is one character or word repeated."""
    bits = 4 if re.fullmatch("[0-9a-fA-F]*", key) else 6
    return bits * len(key) if len(set(key)) >= 8 else 0


def _agreed(secret: Secret | None, job: str, main: str, host: str, nonces: tuple[str, str]) -> dict[str, bytes | None]:
    roles = ("member proves", "main proves", "member speaks", "main speaks")
    fields = (str(VERSION), job, main, host, *nonces)
    return {role: secret.mac(role, *fields) if secret else None for role in roles}


def _hex(proof: bytes | None) -> str:
    return proof.hex() if proof else ""


def _proves(said: str, proof: bytes | None) -> bool:
    return hmac.compare_digest(said.encode(errors="replace"), _hex(proof).encode())


def _nonce(message: Message) -> str:
    nonce = text(message, "nonce", 64)
    if not NONCE.fullmatch(nonce):
        raise WireError("a message without a proper nonce")
    return nonce


def _flag(message: Message) -> bool:
    if not isinstance(message.get("secret"), bool):
        raise WireError("a message that does not say whether there is a secret")
    return bool(message["secret"])


def _stop_if_refused(reply: Message, host: str) -> None:
    if "refused" in reply:
        code = text(reply, "refused", 64)
        raise Refused(code if code in REFUSALS else "version", host)


def enter(secret: Secret | None, job: str, main: str, host: str) -> Generator[Message, Message, Keys]:
    """The member's side; returns its keys. Raises Refused, and WireError for what no main host says."""
    mine = secrets.token_hex(32)
    reply = yield {
        "hello": "trainwright",
        "version": VERSION,
        "job": job,
        "host": host,
        "nonce": mine,
        "secret": secret is not None,
    }
    _stop_if_refused(reply, host)
    if _flag(reply) != (secret is not None):
        raise Refused("no secret" if secret else "wants secret", host)
    agreed = _agreed(secret, job, main, host, (mine, _nonce(reply)))
    reply = yield {"proof": _hex(agreed["member proves"])}
    _stop_if_refused(reply, host)
    if not _proves(text(reply, "proof", 64), agreed["main proves"]):
        raise Refused("impostor", host)
    return agreed["member speaks"], agreed["main speaks"]


def admit(
    secret: Secret | None, job: str, main: str, hosts: Sequence[str], taken: Callable[[str], bool]
) -> Generator[Message | None, Message, tuple[str, Keys, Message]]:
    """The main host's side; returns who came, the keys, and the last message to send.

    Raises Refused, whose code the other side is to be told, and WireError for what no member says.
    """
    hello = yield None
    if hello.get("hello") != "trainwright":
        raise WireError("no hello")
    host = text(hello, "host", 256)
    if hello.get("version") != VERSION:
        raise Refused("version", host)
    if text(hello, "job", 1024) != job:
        raise Refused("job", host)
    if host not in hosts or host == main:
        raise Refused("stranger", host)
    if _flag(hello) != (secret is not None):
        raise Refused("wants secret" if secret else "no secret", host)
    mine = secrets.token_hex(32)
    agreed = _agreed(secret, job, main, host, (_nonce(hello), mine))
    answer = yield {"nonce": mine, "secret": secret is not None}
    if not _proves(text(answer, "proof", 64), agreed["member proves"]):
        raise Refused("secret", host)
    if taken(host):  # asked only now: who cannot prove anything is not told who is in
        raise Refused("taken", host)
    return host, (agreed["main speaks"], agreed["member speaks"]), {"proof": _hex(agreed["main proves"])}
