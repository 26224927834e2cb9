"""What the commands that judge say: of what was declared, of what was not, and of files that are no log."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hosts import LOGS, ROOT

Cli = Callable[..., Any]
EFA = (
    "07_ok_p4d_2node_efa_old_error_column_interleaved_log.txt"  # 16 ranks on two p4d.24xlarge, of four interfaces each
)


# --- interfaces ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("found", "declared", "state", "evidence"),
    [
        (4, [], "pass", "4 on each of 16 ranks"),
        (3, [], "fail", "3 on each rank, p4d.24xlarge has 4"),
        (3, ["--nics", "3"], "pass", "3 on each of 16 ranks, and p4d.24xlarge has 4; 3 are declared"),
        (4, ["--nics", "3"], "fail", "4 on each rank, p4d.24xlarge has 4; 3 are declared"),
        (2, ["--nics", "3"], "fail", "2 on each rank, p4d.24xlarge has 4; 3 are declared"),
        (5, ["--nics", "5"], "fail", "5 on each rank, p4d.24xlarge has 4; 5 are declared"),
    ],
)
def test_fewer_interfaces_are_a_pass_where_they_are_declared(
    cli: Cli, tmp_path: Path, found: int, declared: list[str], state: str, evidence: str
) -> None:
    log = tmp_path / "log"
    text = (LOGS / EFA).read_text()
    log.write_text(text.replace("Selected Provider is efa", f"Selected Provider is efa (found {found} nics)"))
    ended = cli(ROOT, "judge", str(log), "--instance", "p4d.24xlarge", "--nodes", "2", *declared, "--json")
    (said,) = json.loads(ended.out)
    (check,) = [one for one in said["checks"] if one["name"] == "nics"]
    assert (check["state"], check["evidence"]) == (state, evidence)
