"""Read the error counters of every network card before and after a run: those of EFA, InfiniBand and Ethernet."""

from collections.abc import Sequence

from trainwright.gate.find.evidence import Heard, absent
from trainwright.gate.find.model import Sign

NAME, ONCE = "nics", False
TITLE = "error counters of its network cards"
SHELL = r"""
found=
for port in "${GATE_SYS:-/sys}"/class/infiniband/*/ports/*; do
  line=
  for file in "$port"/hw_counters/* "$port"/counters/*; do
    { read -r value <"$file"; } 2>/dev/null && [[ $value =~ ^[0-9]+$ ]] && line+=" ${file##*/}=$value"
  done
  [ -z "$line" ] && continue
  device=${port%/ports/*} found=1
  echo "witness nics $when $host ${device##*/}/${port##*/}$line"
done
for card in "${GATE_SYS:-/sys}"/class/net/*; do
  [ -e "$card/device" ] || continue # a card, and no bridge
  line=
  for file in "$card"/statistics/{rx,tx,rx_crc,tx_carrier}_errors "$card"/carrier_changes; do
    { read -r value <"$file"; } 2>/dev/null && [[ $value =~ ^[0-9]+$ ]] && line+=" ${file##*/}=$value"
  done
  [ -z "$line" ] || { found=1 && echo "witness nics $when $host ${card##*/}$line"; }
done
[ -n "$found" ] || echo "witness nics $when $host none: no counters in /sys/class/infiniband or /sys/class/net"
"""
SHOWN = 3  # counters of a sentence


def counters(lines: Sequence[str]) -> dict[tuple[str, str], int]:
    """Return each counter of each card."""
    found = {}
    for line in lines:
        card, *pairs = line.split()
        for pair in pairs:
            name, _, value = pair.partition("=")
            if value.isdecimal():
                found[card, name] = int(value)
    return found


def signs(heard: Heard) -> list[Sign]:
    """Return how much the error counters of each host grew. Either end of a bad connection counts its errors."""
    found = list[Sign]()
    for host in heard.hosts:
        before, after = (heard.said[when].get(host, []) for when in ("before", "after"))
        if why := absent(before) or absent(after):
            found.append(Sign(source=NAME, host=host, state="not there", what=why))
            continue
        first, last = counters(before), counters(after)
        grown = {key: last[key] - first[key] for key in last if key in first and key[1] in heard.settings.events}
        if not grown:
            what = "none of its counters is one of errors that is known"
            found.append(Sign(source=NAME, host=host, state="not there", what=what))
            continue
        ranked = sorted(((more, *key) for key, more in grown.items() if more > 0), reverse=True)
        told = ", ".join(f"{card} {name} +{more}" for more, card, name in ranked[:SHOWN])
        events = sum(more for more, *_ in ranked)
        state = "bad" if events >= heard.settings.least else "fine"
        found.append(
            Sign(
                source=NAME, host=host, state=state, what=told or "no errors", own=len(heard.hosts) == 1, events=events
            )
        )
    return found
