"""Encode and authenticate the messages between the hosts of a job, as pure functions without sockets or clocks.

A message is a JSON object on a line of its own, behind its MAC:

    <64 hexadecimal digits, or "-" without a key> <JSON>\\n

The MAC is HMAC-SHA256 over the number of messages that this key has sealed before, and the JSON. Each direction of a
connection has its own key, so a message that is replayed, redirected or reflected is rejected.
"""

import hmac
import json
from typing import Any

Message = dict[str, Any]
BARE = b"-"


class WireError(Exception):
    """Raised for input that is not a valid message, or not from the expected peer; the text is for a log."""


class Seal:
    """Seal or open the messages of one direction of a connection; without a key, only frame them."""

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
        content = json.dumps(message, separators=(",", ":")).encode()  # escaped ASCII, so it contains no line break
        return self._mac(content) + b" " + content + b"\n"

    def open(self, line: bytes) -> Message:
        """Verify the MAC, and only then parse the message. Raises WireError."""
        mac, _, content = line.partition(b" ")
        if not hmac.compare_digest(mac, self._mac(content)):
            raise WireError("a message with a wrong MAC" if self.key else "an invalid message")
        try:
            message = json.loads(content)
        except (ValueError, RecursionError):
            raise WireError("an invalid message") from None
        if not isinstance(message, dict):
            raise WireError("an invalid message")
        return message


class Lines:
    """Split received bytes into lines. `limit`: the longest line in bytes, so that a peer cannot fill the memory."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.kept = b""

    def feed(self, data: bytes) -> None:
        self.kept += data

    def next(self) -> bytes | None:
        """Return the next complete line without its line break, or None. Raises WireError for a line over the limit."""
        line, end, rest = self.kept.partition(b"\n")
        if len(line) > self.limit:
            raise WireError(f"a line of more than {self.limit} bytes")
        if not end:
            return None
        self.kept = rest
        return line


def text(message: Message, name: str, limit: int = 1 << 16) -> str:
    """Return a text field of at most `limit` characters. Raises WireError."""
    value = message.get(name)
    if not isinstance(value, str) or len(value) > limit:
        raise WireError(f"a message without a valid {name}")
    return value


def number(message: Message, name: str) -> int:
    """Return an integer field. Raises WireError."""
    value = message.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        raise WireError(f"a message without a valid {name}")
    return value


def shown(value: object, limit: int = 64) -> str:
    """Make text of an unauthenticated peer safe for a log: printable ASCII, at most `limit` characters."""
    return ascii(value)[1:-1][:limit] if isinstance(value, str) else "a value that is not text"
