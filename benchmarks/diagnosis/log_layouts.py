"""Write the lines of a job as the places where jobs run keep them: a file for each rank or host, or one with labels."""

from typing import Any

SIGNALS = {-9: "Killed", -15: "Terminated", -6: "Aborted", -7: "Bus error", -11: "Segmentation fault"}


def written(job: Any, lines: list[Any], codes: dict[int, int]) -> dict[str, str]:
    """Return the files of a job's layout."""
    lines = sorted(lines, key=lambda line: line.at)
    return LAYOUTS[job.layout](job, lines, codes)


def _joined(texts: list[str]) -> str:
    return "".join(f"{text}\n" for text in texts)


def ranks(job: Any, lines: list[Any], codes: dict[int, int]) -> dict[str, str]:
    """A file for each rank, as srun --output=job-%t.log writes them."""
    return {f"job-{rank}.log": _joined([line.text for line in lines if line.rank == rank]) for rank in range(job.ranks)}


def hosts(job: Any, lines: list[Any], codes: dict[int, int]) -> dict[str, str]:
    """A file for each host; its ranks write into it as they like."""
    return {
        f"node-{host}.log": _joined([line.text for line in lines if line.host == host]) for host in range(job.hosts)
    }


def srun(job: Any, lines: list[Any], codes: dict[int, int]) -> dict[str, str]:
    """One file with a label for each task, and srun's own words about those that failed."""
    found = [f"{line.rank}: {line.text}" for line in lines]
    for rank, code in codes.items():  # in the order in which they ended
        where = f"srun: error: node-{rank // job.each}: task {rank}: "
        if code in SIGNALS:
            found.append(where + SIGNALS[code])
        elif code:
            found.append(f"{where}Exited with exit code {code}")
    return {"slurm-4711.out": _joined(found)}


def kubectl(job: Any, lines: list[Any], codes: dict[int, int]) -> dict[str, str]:
    """The output of kubectl logs --prefix: a pod for each host, one after the other."""
    names = ["train-master-0", *(f"train-worker-{number}" for number in range(job.hosts - 1))]
    return {
        "pods.log": _joined(
            [
                f"[pod/{names[host]}/pytorch] {line.text}"
                for host in range(job.hosts)
                for line in lines
                if line.host == host
            ]
        )
    }


LAYOUTS = {"ranks": ranks, "hosts": hosts, "srun": srun, "kubectl": kubectl, "torchrun": hosts}
