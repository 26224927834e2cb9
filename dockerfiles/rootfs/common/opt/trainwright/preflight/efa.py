"""Can the hosts of a job talk EFA, where they have it?"""

from __future__ import annotations

from findings import ALLOW_TCP, IMAGE, OK, REFUSED, UNKNOWN, WARNING, Case, Facts, Finding, stricter


def check_efa(case: Case) -> list[Finding]:
    """Several hosts that could talk EFA must not fall back to TCP unless somebody says so."""
    facts, wanted = case.facts, case.interfaces_of_efa
    if not case.several:
        return [Finding("efa", OK, "one host: nothing goes over the network")]
    hosts = f"{len(facts.hosts)} hosts"
    if wanted is None:
        name = facts.instance or "an instance type that nothing says"
        ways = "TRAINWRIGHT_EFA=1 or 0 says whether it has EFA"
        return [Finding("efa", UNKNOWN, f"{hosts} of {name}: not among those with EFA that this image knows. {ways}")]
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
    return f"{facts.instance} has no EFA" if facts.instance else f"no instance of EC2 ({facts.told_by})"


def _lacks(case: Case) -> list[Finding]:
    """An image that cannot talk EFA whatever the host has."""
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
            f"one that talks EFA, for {len(case.facts.hosts)} hosts on {case.name}",
            "declared.json",
            f"take an image that carries aws-ofi-nccl, or say {ALLOW_TCP}=1 for slow training over TCP",
        )
    ]


def _forced(case: Case) -> list[Finding]:
    """Settings that send everything over TCP."""
    found = []
    for name, values in case.data["tcp"].items():
        value = case.facts.environment.get(name, "")
        if value.lower() in values:
            fix = f"unset {name}, or say {ALLOW_TCP}=1"
            found.append(Finding("efa", stricter(case), f"{name}={value}", "hosts that talk EFA", "environment", fix))
    return found


def _devices(case: Case, wanted: int) -> list[Finding]:
    facts = case.facts
    expected = f"{wanted} EFA interfaces for {len(facts.hosts)} hosts on {case.name}"
    if len(facts.uverbs) >= wanted:
        return []
    if facts.uverbs:
        fix = "attach the others, too (Kubernetes: vpc.amazonaws.com/efa), or go on with what they carry"
        return [Finding("efa", WARNING, f"{len(facts.uverbs)}", expected, "/dev/infiniband", fix)]
    if facts.efa_devices:
        found = f"none in this container, and {len(facts.efa_devices)} on the host"
        fix = "docker run --device=/dev/infiniband (Kubernetes: resources.limits vpc.amazonaws.com/efa)"
    else:
        found, fix = "no /dev/infiniband/uverbs*", "start the instances with EFA interfaces, and hand them in"
    where = f"type: {facts.told_by}" if facts.told_by else "TRAINWRIGHT_EFA"
    return [Finding("efa", stricter(case), found, expected, where, f"{fix}; or say {ALLOW_TCP}=1")]


def _provider(case: Case) -> list[Finding]:
    """Whether libfabric knows EFA: without an interface it never says that it does."""
    facts, expected = case.facts, "libfabric's provider efa"
    if not facts.uverbs:
        return []
    if facts.providers is None or facts.efa_answer is None:
        return [Finding("provider", UNKNOWN, "fi_info did not answer")]
    if "efa" not in facts.providers:
        fix = f"take an image with the EFA installer's libfabric, or say {ALLOW_TCP}=1"
        return [Finding("provider", stricter(case), ", ".join(facts.providers) or "none", expected, "fi_info -l", fix)]
    if facts.efa_answer:
        fix = f"see that the host's driver `efa` is of this generation (modinfo efa), or say {ALLOW_TCP}=1"
        return [Finding("provider", stricter(case), facts.efa_answer, expected, "fi_info -p efa", fix)]
    return [Finding("provider", OK, "efa, and it finds interfaces")]


def check_plugin(case: Case) -> list[Finding]:
    """NCCL says nothing where its plugin does not load, and takes TCP."""
    if "aws-ofi-nccl" not in case.components:
        return []
    found = []
    fix = "undo what moved or removed that library: a step on top of the image, or LD_LIBRARY_PATH"
    for path, message in sorted(case.facts.plugins.items()):
        if message is None:
            found.append(Finding("plugin", UNKNOWN, f"{path}: the loader did not answer"))
        elif message:
            found.append(Finding("plugin", REFUSED, message, "a plugin that loads", path, fix, IMAGE))
    if not case.facts.plugins:
        found.append(Finding("plugin", REFUSED, "no file of it", "aws-ofi-nccl", "libraries.json", fix, IMAGE))
    if case.facts.cudart:
        wanted = "libcudart.so by its bare name, as the plugin opens it"
        found.append(Finding("plugin", REFUSED, case.facts.cudart, wanted, "", fix, IMAGE))
    return found or [Finding("plugin", OK, "aws-ofi-nccl loads")]
