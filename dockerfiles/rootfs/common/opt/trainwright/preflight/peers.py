"""Check that the names of the job's hosts resolve, and that the named network interfaces exist."""

from __future__ import annotations

from findings import OK, REFUSED, UNKNOWN, WARNING, Case, Finding


def check_peers(case: Case) -> list[Finding]:
    facts = case.facts
    if not case.several:
        return []
    if facts.addresses is None:
        return [Finding("peers", UNKNOWN, "not waited for, because this host will not start the job")]
    missing = [host for host in facts.peers if not facts.addresses.get(host)]
    if missing:
        fix = "find out why they did not start, or correct the names; TRAINWRIGHT_PEER_WAIT=SECONDS waits longer"
        expected = f"addresses of {len(facts.peers)} host names after {facts.wait:.0f} s"
        return [Finding("peers", REFUSED, f"none for {', '.join(missing)}", expected, "DNS, /etc/hosts", fix)]
    looped = [host for host in facts.peers if all(_is_loopback(one) for one in facts.addresses[host])]
    if looped:
        fix = "remove that line from /etc/hosts: other hosts cannot reach a loopback address"
        found = f"only a loopback address for {', '.join(looped)}"
        return [Finding("peers", WARNING, found, "addresses that other hosts can reach", "DNS, /etc/hosts", fix)]
    return [Finding("peers", OK, f"addresses for {len(facts.peers)} of {len(facts.peers)}")]


def _is_loopback(address: str) -> bool:
    return address.startswith("127.") or address == "::1"


def check_interface(case: Case) -> list[Finding]:
    facts, found = case.facts, []
    there = ", ".join(facts.interfaces)
    if facts.interface and facts.interface not in facts.interfaces:
        fix = "name one of the interfaces found, or unset it"
        found.append(Finding("interface", WARNING, there, facts.interface, "TRAINWRIGHT_INTERFACE", fix))
    for name in ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"):
        value = facts.environment.get(name, "")
        if value and not chosen(value, facts.interfaces, prefixes=name.startswith("NCCL")):
            found.append(Finding("interface", WARNING, there, f"a match for {name}={value}", "", f"unset {name}"))
    if found or not facts.interface:
        return found
    return [Finding("interface", OK, facts.interface)]


def chosen(value: str, interfaces: tuple[str, ...], prefixes: bool) -> list[str]:
    """Return the interfaces that a value selects.

    NCCL's form (`prefixes`) is a list of prefixes; a leading `=` makes them exact names, a leading `^` excludes them.
    """
    others, exact = value.startswith("^"), not prefixes
    words = value.removeprefix("^")
    if prefixes and words.startswith("="):
        words, exact = words[1:], True
    names = [word.partition(":")[0] for word in words.split(",") if word]

    def meant(interface: str) -> bool:
        return any(interface == name if exact else interface.startswith(name) for name in names)

    return [one for one in interfaces if meant(one) != others]
