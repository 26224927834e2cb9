"""May a process here open, start, pin and share as much as training takes?"""

from __future__ import annotations

from findings import OK, REFUSED, UNKNOWN, UNLIMITED, WARNING, Case, Finding, Json


def check_memlock(case: Case) -> list[Finding]:
    """Who talks EFA registers memory, which pins it."""
    facts = case.facts
    if facts.memlock is None:
        return [Finding("memlock", UNKNOWN, "no answer")]
    if facts.memlock == UNLIMITED or facts.pins_anything:
        return [Finding("memlock", OK, "unlimited" if facts.memlock == UNLIMITED else "CAP_IPC_LOCK")]
    found = size(facts.memlock)
    if not case.several or not case.interfaces_of_efa or facts.allow_tcp:
        return [Finding("memlock", OK, f"{found}: no memory is registered here")]
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
    return [counted("nproc", each, limit, "more processes for each of the job's", "ulimit -u, pids.max", fix)]


def counted(check: str, number: int | None, limit: Json, what: str, where: str, fix: str) -> Finding:
    """A number against the least that works and what is wanted."""
    if number is None:
        return Finding(check, UNKNOWN, "no answer")
    if number == UNLIMITED:
        return Finding(check, OK, "unlimited")
    if number >= limit["wanted"]:
        return Finding(check, OK, f"{number} {what}")
    refused = number < limit["least"]
    level, wanted = (REFUSED, limit["least"]) if refused else (WARNING, limit["wanted"])
    return Finding(check, level, str(number), f"{wanted} {what}, or more", where, fix)


def check_shm(case: Case) -> list[Finding]:
    """Ranks of one host, and a rank with its DataLoader's workers, talk through it."""
    free, limit, processes = case.facts.shm, case.data["shm"], case.facts.processes
    if free is None:
        return [Finding("shm", UNKNOWN, "no answer of /dev/shm")]
    each = free // processes
    found = f"{size(free)} for {processes} process{'es' if processes > 1 else ''}"
    if each >= limit["wanted"] << 20:
        return [Finding("shm", OK, found)]
    # One process alone, or ranks that talk over loopback, may never need it.
    needed = processes > 1 and (case.trains_on_gpus or case.facts.distribution == "mpi")
    refused = needed and each < limit["least"] << 20
    wanted = (limit["least"] if refused else limit["wanted"]) * processes
    fix = f"docker run --shm-size={limit['wanted'] * processes}m (Kubernetes: an emptyDir of medium Memory on /dev/shm)"
    level = REFUSED if refused else WARNING
    return [Finding("shm", level, found, f"{size(wanted << 20)} or more", "/dev/shm", fix)]


def size(count: int) -> str:
    """Bytes as people read them."""
    for unit, shift in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if count >= 1 << shift:
            return f"{count / (1 << shift):.1f}".removesuffix(".0") + f" {unit}"
    return f"{count} bytes"
