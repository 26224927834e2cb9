"""How the proxy before the tests' registry misbehaves."""

import threading
from typing import NamedTuple


class Faults:
    """How the proxy misbehaves: `method path-part` to how often it answers 500 before it works."""

    def __init__(self) -> None:
        self.left: dict[str, int] = {}
        self.hang = ""  # a request that is never answered
        self.hanging = threading.Event()
        self.over = threading.Event()
        self.lock = threading.Lock()

    def strikes(self, request: str) -> bool:
        with self.lock:
            for pattern, count in self.left.items():
                method, part = pattern.split(" ")
                if count and request.startswith(method) and part in request:
                    self.left[pattern] = count - 1
                    return True
        return False


class Flaky(NamedTuple):
    address: str  # host:port of the proxy
    faults: Faults
