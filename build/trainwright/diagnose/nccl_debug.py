"""Parse the log output of NCCL and aws-ofi-nccl (NCCL_DEBUG=INFO): network, provider, NICs, GPUDirect, versions.

Sources of the lines: src/debug.cc, src/transport/ of NCCL 2.8 to 2.32; aws-ofi-nccl src/nccl_ofi_net.cpp of 1.0 to
1.21. Facts are kept once per process, so memory grows with the processes and not with the length of the log.
"""

import re
from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass, field

from trainwright.diagnose.causes import MOST_TEXT

# Because any line may be hostile, each repetition is bounded or starts at a word boundary.
PROCESS = re.compile(
    r"(?<![\w.-])(?P<host>[\w.-]{1,255}):(?P<pid>\d{1,10}):\d{1,10} (?:\[\d{1,10}\] )?"
    r"(?:[\w():*&:]{1,200}:\d{1,10} )?NCCL (?:INFO|WARN) "
)
NETWORK = re.compile(r"(?:^|NCCL INFO )\s*(?:Using network|Assigned NET plugin) ([\w ]{1,60}?)(?: to comm)?\s{0,20}$")
PROVIDER = re.compile(r"NET/OFI Selected [Pp]rovider is ([\w;.-]+)(?:, fabric is ([\w-]+))?(?: \(found (\d+) nics?\))?")
CHANNEL = re.compile(
    r" via (NET|P2P|SHM|direct|COLLNET)\b(?:/([A-Za-z][\w ]{0,40}?))?(/\d{1,10})?"
    r"((?:/\w{1,40}(?:\(\w{1,40}\))?){0,8})\s{0,20}$"
)
NODES = re.compile(r"\bnNodes (\d+)\b")
RANKS = re.compile(r"\bn[rR]anks (\d+)\b")
VERSION = re.compile(r"\bNCCL version (\d+)\.(\d+)\.(\d+)")
VARIABLE = re.compile(r"\b(NCCL_\w+) set (?:by environment )?to (\S+)")
SPEAKER = re.compile(r"\bNCCL (?:INFO|WARN|version)\b|\bnccl[A-Z]\w+Error\b|(?:ProcessGroup|Work)NCCL|^gate: ")
EXIT = re.compile(
    r"^\s*Exit code:\s+(\d+)$|\b(?:exited|terminated) with (?:exit )?(?:code|status) (\d+)\b|^exit status (\d+)$"
    r"|exited on signal (\d+)",
    re.IGNORECASE,
)
ERROR = re.compile(  # errors that end a test or a job; a warning alone does not
    r"Test (?:NCCL |CUDA )?failure|ncclUnhandledCudaError|ncclSystemError|ncclInternalError"
    r"|ncclInvalid(?:Usage|Argument)|ncclRemoteError|Segmentation fault|[Ss]ignal: Aborted|completed with error"
    r"|(?:prterun|mpirun) noticed that process|Job step aborted|DUE TO TIME LIMIT|collective operation timeout"
)
COUNTERS = re.compile(r"^efa-counters (before|after) (\S+) (\d+)$")
PLUGIN = re.compile(r"NET/OFI Initializing aws-ofi-nccl (?:GitHub-dev )?([\d.]+)")
STEP = re.compile(r"^gate: (\w+) (begins|exited with code \d+)$")
IMAGE = re.compile(r"^gate: image \S+@(sha256:[0-9a-f]{64})$")
SIGNAL = 128
MOST = 100_000  # processes; further ones share one entry
SOCKETS = ("Socket", "IPoIB")  # NCCL's own names
LIBFABRIC = ("AWS Libfabric", "Libfabric", "OFI")


@dataclass
class Process:
    """The facts that one process logged."""

    host: str = ""
    test: int = 0  # index of its test in the log
    networks: set[str] = field(default_factory=set)
    providers: set[str] = field(default_factory=set)
    nics: set[int] = field(default_factory=set)


@dataclass
class Seen:
    """The facts of one log; line numbers are those of the first occurrence."""

    processes: dict[Hashable, Process] = field(default_factory=dict)
    channels: Counter[str] = field(default_factory=Counter)  # NET/AWS Libfabric, P2P/IPC, SHM: how many
    direct: int = 0  # channels over the network with GPUDirect RDMA
    staged: int = 0  # channels over the network without GPUDirect RDMA
    nodes: set[int] = field(default_factory=set)
    ranks: set[int] = field(default_factory=set)
    versions: dict[tuple[int, int, int], int] = field(default_factory=dict)
    begun: Counter[str] = field(default_factory=Counter)  # collectives, as the gate script names them
    ended: Counter[str] = field(default_factory=Counter)
    interrupted: int = 0  # line
    test: int = 0  # index of the current test: the number of tests that have ended
    plugins: set[str] = field(default_factory=set)  # versions of aws-ofi-nccl
    images: set[str] = field(default_factory=set)  # digests that the gate script named
    variables: dict[str, str] = field(default_factory=dict)
    errors: tuple[int, str] | None = None  # the first line that reports a fatal error
    exits: dict[int, int] = field(default_factory=dict)
    counters: dict[str, dict[str, int]] = field(default_factory=dict)  # host: before, after; bytes sent over EFA
    lines: dict[str, tuple[int, str]] = field(default_factory=dict)
    nccl: bool = False  # whether any line is from NCCL or its plugin

    def feed(self, text: str, rank: str, number: int) -> None:
        """Parse one line without its prefix; `rank` is the rank that the prefix named."""
        if not self.nccl and ("NCCL" in text or "nccl" in text or "gate: " in text) and SPEAKER.search(text):
            self.nccl = True
        if "xit" in text and (found := EXIT.search(text)):
            code = next((int(said) for said in found.groups()[:3] if said), 0)
            self.exits.setdefault(SIGNAL + int(found[4]) if found[4] else code, number)
        if self.errors is None and "NCCL INFO" not in text and (found := ERROR.search(text)):
            self.errors = (number, text.strip()[:MOST_TEXT])
        if text.startswith("gate: "):
            self._of_runner(text, number)
        if text.startswith("efa-counters") and (found := COUNTERS.match(text)):
            self.counters.setdefault(found[2], {})[found[1]] = int(found[3])
        if "version" in text and "NCCL version" in text and (found := VERSION.search(text)):
            self.versions.setdefault((int(found[1]), int(found[2]), int(found[3])), number)
        if " set " in text and (found := VARIABLE.search(text)):
            self.variables.setdefault(found[1], found[2])
        if (" network " in text or " plugin " in text) and (found := NETWORK.search(text)):
            self._process(text, rank).networks.add(found[1])
            self._first(f"network {found[1]}", number, text)
        elif "rovider is" in text and (found := PROVIDER.search(text)):
            process = self._process(text, rank)
            process.providers.add(found[1])
            if found[3]:
                process.nics.add(int(found[3]))
            self._first(f"provider {found[1]}", number, text)
        elif " via " in text and (found := CHANNEL.search(text)):
            kind = f"{found[1]}/{found[2].strip()}" if found[2] else found[1]
            self.channels[kind] += 1
            if found[1] == "NET":
                with_gdr = "GDRDMA" in (found[4] or "")
                self.direct += with_gdr
                self.staged += not with_gdr
                self._first("GPUDirect" if with_gdr else "no GPUDirect", number, text)
            self._first(f"channel {kind}", number, text)
        if "NET/OFI Init" in text and (found := PLUGIN.search(text)):
            self.plugins.add(found[1].rstrip("."))
        if "nNodes" in text and (found := NODES.search(text)):
            self.nodes.add(int(found[1]))
        if "anks" in text and (found := RANKS.search(text)):
            self.ranks.add(int(found[1]))

    def _of_runner(self, text: str, number: int) -> None:
        if found := IMAGE.match(text):
            self.images.add(found[1])
        elif found := STEP.match(text):
            (self.begun if found[2] == "begins" else self.ended)[found[1]] += 1
        elif text == "gate: interrupted":
            self.interrupted = number

    def _process(self, text: str, rank: str) -> Process:
        found = PROCESS.search(text)
        key: Hashable = (self.test, found["host"], found["pid"]) if found else (self.test, rank)
        if key not in self.processes and len(self.processes) >= MOST:
            key = ""
        return self.processes.setdefault(key, Process(found["host"] if found else "", self.test))

    def _first(self, name: str, number: int, text: str) -> None:
        self.lines.setdefault(name, (number, text.strip()[:MOST_TEXT]))

    def evidence(self, name: str) -> str:
        """Return `line N: text`, or "" if it was not seen."""
        return "line {}: {}".format(*self.lines[name]) if name in self.lines else ""

    @property
    def networks(self) -> set[str]:
        return set[str]().union(*(process.networks for process in self.processes.values()))

    @property
    def providers(self) -> set[str]:
        return set[str]().union(*(process.providers for process in self.processes.values()))

    @property
    def hosts(self) -> set[str]:
        return {process.host for process in self.processes.values()} - {""}
