"""Read what nccl-tests write with -J, since 2.17.3: the same table as JSON. Grammar: src/util.cu up to 2.20.0."""

import math
from typing import Any

from trainwright.nccl_tests import Header, Printed, Row, Side, Table, collective


def of_json(data: dict[str, Any]) -> Table:
    """Return the table of a -J file. Raises ValueError if it is invalid."""
    try:
        config, header = data.get("config") or {}, Header()
        header.library, header.headers = int(data["nccl_version"]), 0
        header.least, header.most = int(config.get("minimum_bytes", 0)), int(config.get("maximum_bytes", 0))
        header.factor = "step_factor" in config
        header.step = int(config.get("step_factor", config.get("step_bytes", 0)))
        header.validated = bool(config.get("validation", 1))
        header.collective = collective(str((data.get("args") or [""])[0]).rpartition("/")[2])
        header.started = True
        for device in config.get("devices") or data.get("devices") or []:
            header.ranks[int(device["rank"])] = int(device["group"])
            header.hosts.add(str(device["hostname"]))
        table = Table(header, 1, concluded="end_time" in data and "average_bus_bandwidth" in data)
        table.rows = [_of_result(result) for result in data.get("results") or []]
        if bounds := data.get("out_of_bounds"):
            table.out_of_bounds = int(bounds["count"])
            table.refused = bounds["okay"] != "true"
        if average := data.get("average_bus_bandwidth"):
            table.average = _exact(average["bandwidth"])
            table.refused = table.refused or average["okay"] == "false"
        return table
    except (KeyError, TypeError, IndexError, AttributeError, OverflowError) as error:
        raise ValueError(f"it is no output of nccl-tests -J: {error!r}") from None


def _of_result(result: dict[str, Any]) -> Row:
    sides = [
        Side(
            _exact(side.get("time", side.get("cpu_time"))),
            _exact(side["alg_bw"]),
            _exact(side["bus_bw"]),
            None if side["nwrong"] is None else float(side["nwrong"]),
        )
        for side in (result["out_of_place"], result["in_place"])
    ]
    words = int(result["size"]), float(result["count"]), str(result["type"]), str(result["redop"]).strip()
    return Row(*words, int(str(result["root"])), (sides[0], sides[1]), 1)


def _exact(value: Any) -> Printed:
    """Return a number with the six decimals that %lf prints. Raises ValueError if it is not finite."""
    if not math.isfinite(number := float(value)):
        raise ValueError(f"{value} is not finite")
    return Printed(number, 0.5e-6)
