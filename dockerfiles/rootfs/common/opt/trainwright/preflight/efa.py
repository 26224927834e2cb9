"""Check that the hosts of a job can use EFA if they have it."""

from __future__ import annotations

from findings import ALLOW_TCP, IMAGE, OK, REFUSED, UNKNOWN, WARNING, Case, Facts, Finding, stricter


def check_efa(case: Case) -> list[Finding]:
    """Check that several hosts with EFA do not fall back to TCP unnoticed."""
    facts, wanted = case.facts, case.interfaces_of_efa
    if not case.several:
        return [Finding("efa", OK, "one host: nothing goes over the network")]
    hosts = f"{len(facts.hosts)} hosts"
    if wanted is None:
        name = facts.instance or "an unknown instance type"
        ways = "Set TRAINWRIGHT_EFA=1 or 0"
        return [Finding("efa", UNKNOWN, f"{hosts} of {name}: this image does not know whether it has EFA. {ways}")]
    if not wanted:
        return [Finding("efa", OK, f"{hosts} over TCP: {_no_efa(facts)}")]
    lacks = _lacks(case)
    if lacks:
        return lacks
    found = [*_forced(case), *_devices(case, wanted), *_provider(case)]
    if not any(finding.check == "efa" for finding in found):
        found.insert(0, Finding("efa", OK, f"{hosts}, {len(facts.uverbs)} interfaces here"))
    return found


def _no_efa(facts: Facts) -> str:
    if facts.efa_said is False:
        return "TRAINWRIGHT_EFA=0"
    return f"{facts.instance} has no EFA" if facts.instance else f"not an EC2 instance ({facts.told_by})"


def _lacks(case: Case) -> list[Finding]:
    """Report the components that the image lacks for EFA."""
    needed = ["libfabric", *(["aws-ofi-nccl"] if "nccl" in case.components else [])]
    missing = [name for name in needed if name not in case.components]
    if not missing:
        return []
    hard = "nccl" in case.components and case.trains_on_gpus
    return [
        Finding(
            "efa",
            stricter(case) if hard else WARNING,
            f"an image without {' and '.join(missing)}",
            f"one with EFA support, for {len(case.facts.hosts)} hosts on {case.name}",
            "declared.json",
            f"use an image with {' and '.join(missing)}, or set {ALLOW_TCP}=1 for slow training over TCP",
        )
    ]


def _forced(case: Case) -> list[Finding]:
    """Report variables that force all traffic over TCP."""
    found = []
    for name, values in case.data["tcp"].items():
        value = case.facts.environment.get(name, "")
        if value.lower() in values:
            fix = f"unset {name}, or set {ALLOW_TCP}=1"
            found.append(Finding("efa", stricter(case), f"{name}={value}", "EFA between hosts", "environment", fix))
    return found


def _devices(case: Case, wanted: int) -> list[Finding]:
    facts = case.facts
    expected = f"{wanted} EFA interfaces for {len(facts.hosts)} hosts on {case.name}"
    if len(facts.uverbs) >= wanted:
        return []
    if facts.uverbs:
        fix = "attach all interfaces (Kubernetes: vpc.amazonaws.com/efa), or accept the lower bandwidth"
        return [Finding("efa", WARNING, f"{len(facts.uverbs)}", expected, "/dev/infiniband", fix)]
    if facts.efa_devices:
        found = f"none in this container, and {len(facts.efa_devices)} on the host"
        fix = "docker run --device=/dev/infiniband (Kubernetes: resources.limits vpc.amazonaws.com/efa)"
    else:
        found = "no /dev/infiniband/uverbs*"
        fix = "start the instances with EFA interfaces, and pass the devices to the container"
    where = f"type: {facts.told_by}" if facts.told_by else "TRAINWRIGHT_EFA"
    return [Finding("efa", stricter(case), found, expected, where, f"{fix}; or set {ALLOW_TCP}=1")]


def _provider(case: Case) -> list[Finding]:
    """Check that libfabric has the provider efa. Without an interface it never lists the provider."""
    facts, expected = case.facts, "libfabric's provider efa"
    if not facts.uverbs:
        return []
    if facts.providers is None or facts.efa_answer is None:
        return [Finding("provider", UNKNOWN, "fi_info did not answer")]
    if "efa" not in facts.providers:
        fix = f"use an image with the EFA installer's libfabric, or set {ALLOW_TCP}=1"
        return [Finding("provider", stricter(case), ", ".join(facts.providers) or "none", expected, "fi_info -l", fix)]
    if facts.efa_answer:
        fix = f"check that the host's efa driver supports this instance type (modinfo efa), or set {ALLOW_TCP}=1"
        return [Finding("provider", stricter(case), facts.efa_answer, expected, "fi_info -p efa", fix)]
    return [Finding("provider", OK, "efa, and it finds interfaces")]


def check_plugin(case: Case) -> list[Finding]:
    """Check that NCCL's plugin loads: if it does not, NCCL falls back to TCP without a message."""
    if "aws-ofi-nccl" not in case.components:
        return []
    found = []
    fix = "undo the change that moved or hid the library: a step on top of the image, or LD_LIBRARY_PATH"
    for path, message in sorted(case.facts.plugins.items()):
        if message is None:
            found.append(Finding("plugin", UNKNOWN, f"{path}: the loader did not answer"))
        elif message:
            found.append(Finding("plugin", REFUSED, message, "a plugin that loads", path, fix, IMAGE))
    if not case.facts.plugins:
        found.append(Finding("plugin", REFUSED, "no library", "aws-ofi-nccl", "libraries.json", fix, IMAGE))
    if case.facts.cudart:
        wanted = "libcudart.so on the loader's path, because the plugin opens it by that name"
        found.append(Finding("plugin", REFUSED, case.facts.cudart, wanted, "", fix, IMAGE))
    return found or [Finding("plugin", OK, "aws-ofi-nccl loads")]
