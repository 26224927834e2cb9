"""Messages between the hosts of a job, as bytes. No socket, no clock: what is here can be tried without any.

A message is a JSON object on a line of its own, behind its MAC:

    <64 hexadecimal digits, or "-" where there is no key> <JSON>\\n

The MAC is HMAC-SHA256 over how many messages this key has sealed before, and the JSON. Each direction of a connection
has a key of its own, so what was said before, what was said to somebody else and what one said oneself opens nothing.
"""

import hmac
import json
from typing import Any

Message = dict[str, Any]
BARE = b"-"


class WireError(Exception):
    """What came is no message, or none of who should be at the other end; the text is for a log."""


class Seal:
    """One direction of one connection: seals what is sent, or opens what came; without a key it only frames."""

    def __init__(self, key: bytes | None) -> None:
        self.key = key
        self.count = 0

    def _mac(self, content: bytes) -> bytes:
        if self.key is None:
            return BARE
        mac = hmac.new(self.key, self.count.to_bytes(8, "big") + content, "sha256").hexdigest().encode()
        self.count += 1
        return mac

    def seal(self, message: Message) -> bytes:
        content = json.dumps(message, separators=(",", ":")).encode()  # ASCII, so that no line break is in it
        return self._mac(content) + b" " + content + b"\n"

    def open(self, line: bytes) -> Message:
        """Raises WireError; nothing of the line is parsed before its MAC is right."""
        mac, _, content = line.partition(b" ")
        if not hmac.compare_digest(mac, self._mac(content)):
            raise WireError("a message with a wrong MAC" if self.key else "something that is no message")
        try:
            message = json.loads(content)
        except (ValueError, RecursionError):
            raise WireError("something that is no message") from None
        if not isinstance(message, dict):
            raise WireError("something that is no message")
        return message


class Lines:
    """Bytes as they come, as lines; `limit` (bytes) is what the other end may have us keep."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.kept = b""

    def feed(self, data: bytes) -> None:
        self.kept += data

    def next(self) -> bytes | None:
        """The next whole line, without its end; None where it has not come yet. Raises WireError for one too long."""
        line, end, rest = self.kept.partition(b"\n")
        if len(line) > self.limit:
            raise WireError(f"a line of more than {self.limit} bytes")
        if not end:
            return None
        self.kept = rest
        return line


def text(message: Message, name: str, limit: int = 1 << 16) -> str:
    """A field that must be text. Raises WireError."""
    value = message.get(name)
    if not isinstance(value, str) or len(value) > limit:
        raise WireError(f"a message without a proper {name}")
    return value


def number(message: Message, name: str) -> int:
    """A field that must be a whole number. Raises WireError."""
    value = message.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        raise WireError(f"a message without a proper {name}")
    return value


def shown(value: object, limit: int = 64) -> str:
    """What a stranger said, fit for a log: printable, and short."""
    return ascii(value)[1:-1][:limit] if isinstance(value, str) else "something that is no text"
