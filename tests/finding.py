"""Stand-ins for mpirun and nccl-tests on the hosts of a search: they print a recorded table, slowed, hang or die.

Each host has a file fault.HOST: "ok", "slow 0.5", "rail 1 0.5", "hang" or "dies". The mpirun reaches every host by ssh.
"""

import random
from pathlib import Path

from hosts import LOGS, slowed

RECORDED = "02_ok_p5_2node_efa_16rank_slurm.txt"
TABLES, NOISE = 12, 0.02
FACTORS = ("1", "0.8", "0.5")

RANK = """\
#!/bin/sh
# How fast this host is: a factor; or it hangs, or dies. $1: the GPU that is visible, if only one is.
host=${{ON_HOST:-$(hostname)}}
read -r kind one two <"{folder}/fault.$host"
# Its first network card counts errors.
if [ "$two" = errors ]; then
  counter="{folder}/sys/$host/class/infiniband/rdmap16s27/ports/1/hw_counters/retrans_timeout_events"
  echo $(($(cat "$counter") + 40)) >"$counter"
fi
case $kind in
  slow) echo "$one" ;;
  rail) [ -z "${{1:-}}" ] || [ "$1" = "$one" ] && echo "$two" || echo 1 ;;
  hang) sleep 1000 ;;
  dies) echo "NCCL WARN Test failure: unhandled cuda error" >&2; exit 3 ;;
  *) echo 1 ;;
esac
"""
TABLE = """\
#!/bin/sh
exec cat "{folder}/tables/$1-$(($$ % {tables})).txt"
"""
MPIRUN = """\
#!/bin/sh
worst=1
while [ $# -gt 0 ]; do case $1 in --host) list=$2; shift 2 ;; *) shift ;; esac; done
IFS=,
for host in $list; do
  command="GATE_RUN=${{GATE_RUN:-}} {folder}/rank ${{CUDA_VISIBLE_DEVICES:-}}"
  factor=$(ssh -o BatchMode=yes "${{host%%:*}}" "$command") || exit $?
  case $factor in 0.*) worst=$factor ;; esac
done
exec "{folder}/table" "$worst"
"""
ALONE = """\
#!/bin/sh
exec "{folder}/table" 1
"""
# An ssh that stays here, for tests without containers; a host with a file `away` does not answer.
SSH = """\
#!/bin/sh
while [ $# -gt 0 ]; do case $1 in -o | -F | -p) shift 2 ;; *) break ;; esac; done
host=$1 && shift
if [ -e "{folder}/away.$host" ]; then
  echo "ssh: connect to host $host port 22: Connection refused" >&2
  exit 255
fi
export ON_HOST=$host GATE_SYS={folder}/sys/$host
exec bash -c "$*"
"""


DCGMI = """\
#!/usr/bin/env bash
[ "$*" = "diag -r 1 -j" ] || exit 2
file={folder}/dcgm.${{ON_HOST:-$(hostname)}}.json
[ -e "$file" ] || file={folder}/dcgm.json
cat "$file"
case $file in */dcgm.json) ;; *) exit 226 ;; esac
"""
WITNESSES = Path(__file__).parent / "unit/gate/find/witnesses"


def write(folder: Path, inside: str = "", seed: int = 1) -> None:
    """Write the programs and tables to a folder, which the hosts see as `inside`."""
    draw, recorded = random.Random(seed), (LOGS / RECORDED).read_text().replace("\n0: ", "\n")
    (folder / "tables").mkdir(parents=True)
    for factor in FACTORS:
        for number in range(TABLES):
            text = slowed(recorded, float(factor) * (1 + draw.gauss(0, NOISE)))
            (folder / f"tables/{factor}-{number}.txt").write_text(text)
    (folder / "bin").mkdir()
    for name, text in (("rank", RANK), ("table", TABLE), ("bin/mpirun", MPIRUN), ("bin/all_reduce_perf", ALONE)):
        path = folder / name
        path.write_text(text.format(folder=inside or folder, tables=TABLES))
        path.chmod(0o755)


def write_ssh(folder: Path) -> None:
    (folder / "bin/ssh").write_text(SSH.format(folder=folder))
    (folder / "bin/ssh").chmod(0o755)


def write_witnesses(folder: Path, hosts: list[str], inside: str = "") -> None:
    """Give the hosts network cards with counters, and DCGM, which passes."""
    for host in hosts:
        for card, lines in cards().items():
            place = folder / "sys" / host / "class/infiniband" / card / "ports/1/hw_counters"
            place.mkdir(parents=True)
            for name, value in lines.items():
                (place / name).write_text(f"{value}\n")
                (place / name).chmod(0o666)
    (folder / "dcgm.json").write_text((WITNESSES / "dcgm-4.5-pass.json").read_text())
    (folder / "bin/dcgmi").write_text(DCGMI.format(folder=inside or folder))
    (folder / "bin/dcgmi").chmod(0o755)


def cards() -> dict[str, dict[str, int]]:
    """Return the counters of the cards of a p4d, as its driver names them."""
    names = (WITNESSES / "efa-hw-counters.txt").read_text().split()
    return {card: {name: 1000 + place for place, name in enumerate(names)} for card in ("rdmap16s27", "rdmap32s27")}
