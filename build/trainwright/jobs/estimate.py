"""Estimate the cost of synchronising gradients: bytes, seconds and efficiency of a ring all-reduce, over EFA and TCP.

Arithmetic: NVIDIA/nccl-tests doc/PERFORMANCE.md. Each of N ranks sends 2(N-1)/N times the gradients, at busbw.
"""

import re
from typing import Literal

from trainwright.core.errors import ConfigError
from trainwright.core.toml import Model
from trainwright.gate import floors as floor_rows
from trainwright.gate.floors import Floors
from trainwright.matrix.instances import Instance

PRECISIONS = {"fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2, "fp8": 1}  # bytes of one gradient
FACTORS = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9, "t": 10**12}
NUMBER = re.compile(r"(\d+(?:\.\d+)?)([kmbt]?)", re.IGNORECASE)


class Way(Model):
    """One transport of gradients."""

    over: str
    busbw: float  # GB/s
    seconds: float  # of one all-reduce of all gradients
    efficiency: float | None  # of one step, if no communication overlaps computation; None without the time of a step
    efficiency_overlapped: float | None  # the same if all of it overlaps
    basis: str


class Estimate(Model):
    """The communication of one step."""

    ranks: int
    gradients: int  # bytes
    sent: int  # bytes, by each rank
    ways: list[Way]


def parameters(text: str) -> int:
    """Parse a number of parameters: 7e9, 7B, 350M. Raises ConfigError."""
    found = NUMBER.fullmatch(text.replace("_", "").replace(",", ""))
    try:
        count = int(float(found[1]) * FACTORS[found[2].lower()]) if found else int(float(text))
    except (ValueError, OverflowError):
        count = 0
    if count < 1:
        raise ConfigError(f"{text!r} is not a number of parameters", fix="trainwright estimate --parameters 7B ...")
    return count


def estimate(
    count: int,
    precision: str,
    name: str,
    instance: Instance,
    nodes: int,
    table: Floors,
    measured: float | None = None,
    step: float | None = None,
) -> Estimate:
    """Estimate a step. `measured` is a busbw in GB/s in place of the floor, `step` the seconds of a step on one GPU.

    Raises ConfigError if the precision is unknown.
    """
    if precision not in PRECISIONS:
        raise ConfigError(f"unknown precision {precision!r}", why=f"valid: {', '.join(PRECISIONS)}")
    ranks = nodes * max(instance.count, 1)
    size = count * PRECISIONS[precision]
    sent = 2 * (ranks - 1) * size // ranks

    def way(over: str, busbw: float, basis: str) -> Way:
        seconds = sent / (busbw * 1e9)
        alone, hidden = (step / (step + seconds), step / max(step, seconds)) if step else (None, None)
        return Way(
            over=over,
            busbw=busbw,
            seconds=seconds,
            efficiency=alone,
            efficiency_overlapped=hidden,
            basis=basis,
        )

    kind: Literal["net", "nvlink"] = "net" if nodes > 1 else "nvlink"
    over = ("EFA" if instance.efa else "network") if nodes > 1 else "NVLink" if instance.nvlink else "PCIe"
    ways = []
    if ranks > 1:
        top = floor_rows.ceiling(kind, instance, table)
        found = floor_rows.rows(table, name, nodes, "all_reduce", "any")
        if measured:
            ways.append(way(over, measured, "measured"))
        elif found and top:
            ways.append(way(over, top * found[0].fraction, f"the floor: {found[0].fraction:.0%} of {top:g} GB/s"))
        elif top:
            ways.append(way(over, top, "the ceiling: no floor is known, the real busbw is lower"))
        if nodes > 1 and instance.efa:
            busbw = min(table.tcp.most, instance.net_gbits / floor_rows.GBIT if instance.net_gbits else table.tcp.most)
            ways.append(way("TCP", busbw, f"the highest busbw over sockets: {table.tcp.evidence}"))
    return Estimate(ranks=ranks, gradients=size, sent=sent, ways=ways)
