"""Check the limits for locked memory, open files, processes and shared memory."""

from __future__ import annotations

from findings import OK, REFUSED, UNKNOWN, UNLIMITED, WARNING, Case, Finding, Json


def check_memlock(case: Case) -> list[Finding]:
    """Check the limit of locked memory: EFA registers memory, which locks it."""
    facts = case.facts
    if facts.memlock is None:
        return [Finding("memlock", UNKNOWN, "the limit could not be read")]
    if facts.memlock == UNLIMITED or facts.pins_anything:
        return [Finding("memlock", OK, "unlimited" if facts.memlock == UNLIMITED else "CAP_IPC_LOCK")]
    found = size(facts.memlock)
    if not case.several or not case.interfaces_of_efa or facts.allow_tcp:
        return [Finding("memlock", OK, f"{found}, which is enough without EFA")]
    level = REFUSED if facts.memlock < case.data["memlock"]["least"] << 20 else WARNING
    fix = "docker run --ulimit memlock=-1 (a daemon's default: default-ulimits in its configuration)"
    return [Finding("memlock", level, found, "unlimited, for EFA", "ulimit -l", fix)]


def check_nofile(case: Case) -> list[Finding]:
    number, limit = case.facts.nofile, case.data["nofile"]
    fix = "docker run --ulimit nofile=65536, or `ulimit -n` in what starts the job"
    return [counted("nofile", number, limit, "open files", "ulimit -n", fix)]


def check_tasks(case: Case) -> list[Finding]:
    left, limit = case.facts.tasks_left, case.data["processes"]
    each = left if left in (None, UNLIMITED) else left // case.facts.processes
    fix = "docker run --pids-limit=-1 --ulimit nproc=-1 (Kubernetes: podPidsLimit of the kubelet)"
    return [counted("nproc", each, limit, "further tasks per process of the job", "ulimit -u, pids.max", fix)]


def counted(check: str, number: int | None, limit: Json, what: str, where: str, fix: str) -> Finding:
    """Compare a number with `least`, below which jobs fail, and `wanted`, below which the finding is a warning."""
    if number is None:
        return Finding(check, UNKNOWN, "the limit could not be read")
    if number == UNLIMITED:
        return Finding(check, OK, "unlimited")
    if number >= limit["wanted"]:
        return Finding(check, OK, f"{number} {what}")
    refused = number < limit["least"]
    level, wanted = (REFUSED, limit["least"]) if refused else (WARNING, limit["wanted"])
    return Finding(check, level, str(number), f"{wanted} {what}, or more", where, fix)


def check_shm(case: Case) -> list[Finding]:
    """Check the free space of /dev/shm, which ranks of one host and DataLoader workers use to exchange data."""
    free, limit, processes = case.facts.shm, case.data["shm"], case.facts.processes
    if free is None:
        return [Finding("shm", UNKNOWN, "the free space of /dev/shm could not be read")]
    each = free // processes
    found = f"{size(free)} for {processes} process{'es' if processes > 1 else ''}"
    if each >= limit["wanted"] << 20:
        return [Finding("shm", OK, found)]
    # A single process, or ranks that communicate over loopback, may never use it.
    needed = processes > 1 and (case.trains_on_gpus or case.facts.distribution == "mpi")
    refused = needed and each < limit["least"] << 20
    wanted = (limit["least"] if refused else limit["wanted"]) * processes
    fix = f"docker run --shm-size={limit['wanted'] * processes}m (Kubernetes: an emptyDir of medium Memory on /dev/shm)"
    level = REFUSED if refused else WARNING
    return [Finding("shm", level, found, f"{size(wanted << 20)} or more", "/dev/shm", fix)]


def size(count: int) -> str:
    """Format a number of bytes with a unit, such as 1.5 GiB."""
    for unit, shift in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if count >= 1 << shift:
            return f"{count / (1 << shift):.1f}".removesuffix(".0") + f" {unit}"
    return f"{count} bytes"
