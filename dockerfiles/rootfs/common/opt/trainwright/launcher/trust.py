"""Authenticate the hosts of a job: all were given the same secret, and each pair proves to each other that it has it.

The secret is never sent, and never appears in an argument, a log or the environment of the training script. Job name,
ARN, host names and the image are public, so they prove nothing.

    member -> main    hello, version, job, host, nonce, whether it has a secret
    main   -> member  nonce, whether it has a secret         | refused, why
    member -> main    HMAC(secret, "member proves", all of the above)
    main   -> member  HMAC(secret, "main proves", the same)  | refused, why

The keys of later messages, one for each direction, are further HMACs over the same fields. Without a secret the proofs
are empty; a host with a secret never continues with a host without one.

Both sides are generators: the caller sends what they yield, and sends them the reply.
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
MADE = "TRAINWRIGHT_JOB_SECRET_MADE"  # the file that hand_over() or start.sh made, and that take() removes
MAKE = "python3 -c 'import secrets; print(secrets.token_hex(32))'"
BITS = 128
NONCE = re.compile("[0-9a-f]{64}")
Keys = tuple[bytes | None, bytes | None]  # keys of this side's messages and of the peer's

# Why a connection is refused: the text on the member, and the text on the main host.
REFUSALS = {
    "version": ("{main} speaks another version of this protocol", "{host} speaks another version of this protocol"),
    "job": ("{main} runs another job", "{host} belongs to another job"),
    "stranger": ("{main} was started with a list of hosts without {host}", "{host} is not a host of this job"),
    "taken": ("{main} already has a connection from {host}", "{host} has already joined from another connection"),
    "secret": ("this host and {main} have different job secrets", "{host} and this host have different job secrets"),
    "wants secret": (
        "{main} has a job secret, but this host has none",
        "{host} has no job secret, but this host has one",
    ),
    "no secret": ("this host has a job secret, but {main} has none", "{host} has a job secret, but this host has none"),
    "impostor": ("the process that answers as {main} does not know the secret of this job", ""),
}
# Refusals that a later try may not meet: DNS still gives another job's address, or the main host has not yet noticed
# that this host's earlier connection broke.
PASSING = {"job", "taken"}
FIX_SECRET = f"give all hosts of the job the same {VARIABLE} or {FILE}"


class Refused(Exception):
    """Raised if one side ends the handshake. `code`: a key of REFUSALS; `host`: the member."""

    def __init__(self, code: str, host: str) -> None:
        super().__init__(code)
        self.code, self.host = code, host


class Secret:
    """Hold the secret of the job so that it can be used but not printed or copied."""

    __slots__ = ("__key",)

    def __init__(self, key: str) -> None:
        self.__key = key.encode()

    def mac(self, role: str, *fields: str) -> bytes:
        """Return HMAC-SHA256 (32 bytes) of the role and the fields, with the secret as key."""
        return hmac.new(self.__key, json.dumps([role, *fields]).encode(), "sha256").digest()

    def __repr__(self) -> str:
        return "Secret(...)"

    def __reduce__(self) -> str:
        raise TypeError("a secret cannot be copied")


def take(environ: MutableMapping[str, str]) -> Secret | None:
    """Take the job's secret out of the environment, so that the script does not inherit it. None if none was given.

    Raises LauncherError for an invalid secret, because continuing without one would silently weaken the job.
    """
    _wipe(environ)
    said, path, made = (environ.pop(name, None) for name in (VARIABLE, FILE, MADE))
    if said is None and path is None:
        return None
    if said is not None and path is not None:
        raise LauncherError(f"both {VARIABLE} and {FILE} are set", "only one of them can be the secret", "unset one")
    where = VARIABLE if path is None else f"{FILE} ({path})"
    if path is not None:
        try:
            said = Path(path).read_text("ascii")
        except (OSError, ValueError) as problem:
            why = problem.strerror if isinstance(problem, OSError) else "it is not ASCII text"
            fix = "mount the file there, or correct the path"
            raise LauncherError(f"the job's secret cannot be read: {where}", str(why), fix) from None
        if path == made:
            with contextlib.suppress(OSError):
                Path(path).unlink()
                Path(path).parent.rmdir()  # fails, and leaves the folder, if it holds other files
    key = (said or "").strip()
    if strength(key) < BITS:
        why = f"it has {len(key)} characters; at least {BITS} random bits are required, such as 32 hexadecimal digits"
        raise LauncherError(f"the job's secret is too short: {where}", why, f"make one with: {MAKE}")
    return Secret(key)


def hand_over(environ: MutableMapping[str, str]) -> None:
    """Move the secret from its variable to a file that take() removes.

    SageMaker's toolkit runs other programs, like pip, before the launcher; they must not inherit the secret.
    Raises OSError if the file cannot be written; the variable then stays.
    """
    if VARIABLE in environ and FILE not in environ:
        path = Path(tempfile.mkdtemp(prefix="trainwright-secret-")) / "secret"
        path.touch(0o600)
        path.write_text(environ[VARIABLE])
        _wipe(environ)
        del environ[VARIABLE]
        environ[FILE] = environ[MADE] = str(path)


def _wipe(environ: MutableMapping[str, str]) -> None:
    """Overwrite the secret in this process's memory: /proc/<pid>/environ shows it even after the variable is unset."""
    if environ is os.environ and VARIABLE in environ:
        libc = ctypes.CDLL(None)
        libc.getenv.restype = ctypes.c_void_p
        place = libc.getenv(VARIABLE.encode())
        if place:
            environ[VARIABLE] = environ[VARIABLE]  # a fresh copy, because the memory to be wiped may back the variable
            ctypes.memset(place, 0, len(ctypes.string_at(place)))


def strength(key: str) -> int:
    """Return the most bits that a key of this length and alphabet can hold; 0 for fewer than 8 different characters."""
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
        raise WireError("a message without a valid nonce")
    return nonce


def _flag(message: Message) -> bool:
    if not isinstance(message.get("secret"), bool):
        raise WireError("a message without the field secret")
    return bool(message["secret"])


def _stop_if_refused(reply: Message, host: str) -> None:
    if "refused" in reply:
        code = text(reply, "refused", 64)
        raise Refused(code if code in REFUSALS else "version", host)


def enter(secret: Secret | None, job: str, main: str, host: str) -> Generator[Message, Message, Keys]:
    """Run the member's side of the handshake; returns its keys. Raises Refused, and WireError for an invalid reply."""
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
    """Run the main host's side of the handshake; returns the member's name, the keys, and the last message to send.

    Raises Refused, whose code the caller sends to the member, and WireError for an invalid message.
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
    if taken(host):  # checked last, so that an unauthenticated peer does not learn which hosts have joined
        raise Refused("taken", host)
    return host, (agreed["main speaks"], agreed["member speaks"]), {"proof": _hex(agreed["main proves"])}
