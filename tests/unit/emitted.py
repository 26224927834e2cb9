"""Provide what tests of `trainwright emit` share: an image, schedulers, and readers of the emitted files."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from unit import kube_models

from trainwright.jobs import schedulers

DIGEST = "sha256:" + "5" * 64
IMAGE = f"123456789012.dkr.ecr.us-east-1.amazonaws.com/trainwright/pytorch@{DIGEST}"
KUBERNETES = tuple(name for name in schedulers.NAMES if schedulers.named(name).KUBERNETES)
SLURM = ("slurm", "hyperpod-slurm")
TOKEN = "a1b2c3"  # of every submission in a test
Emit = Callable[..., Any]
Json = dict[str, Any]
TWO = ("--nodes", "2", "--instance", "p5.48xlarge")


# libyaml, which Kubernetes' own reader is a port of: it takes a tenth of the time of the reader in Python.
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read_all(text: str) -> list[Json]:
    """Return the documents of a YAML text."""
    return list(yaml.load_all(text, Loader=LOADER))


def documents(ended: Any) -> list[Json]:
    assert ended.code == 0, ended.err
    return read_all(ended.out)


def pods(job: Json) -> list[Json]:
    replicas = next(value for key, value in job["spec"].items() if key.endswith("ReplicaSpecs"))
    return [replica["template"]["spec"] for replica in replicas.values()]


# A stand-in for kubectl, which refuses a name that is taken, as the API server does.
KUBECTL = f"""\
#!{sys.executable}
import json, pathlib, re, sys

words = [word for word in sys.argv[1:]]
if words[0] == "-n":
    words = words[2:]
store = pathlib.Path("objects")
store.mkdir(exist_ok=True)


def create(kind, one):
    path = store / f"{{kind.lower()}}-{{one['metadata']['name']}}"
    if path.exists():
        sys.exit(f"Error from server (AlreadyExists): {{path.name}}")
    one["metadata"]["uid"] = f"uid-of-{{path.name}}"
    path.write_text(json.dumps(one))


def yaml(text):  # what it keeps is JSON: YAML would take most of the time
    import yaml

    return [*yaml.load_all(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))]


match words:
    case ["create", "secret", "generic", name, "--from-file=secret=/dev/stdin"]:
        assert re.fullmatch("[0-9a-f]{{64}}", sys.stdin.read().strip())
        create("secret", {{"metadata": {{"name": name}}}})
    case ["create", "-f", file]:
        for one in yaml(pathlib.Path(file).read_text()):
            create(one["kind"], one)
    case ["get", kind, name, "-o", "jsonpath={{.metadata.uid}}"]:
        print(json.loads((store / f"{{kind}}-{{name}}").read_text())["metadata"]["uid"], end="")
    case ["patch", one, "--type=merge", "--patch", patch]:
        path = store / one.replace("/", "-")
        held = json.loads(path.read_text())
        held["metadata"] |= yaml(patch)[0]["metadata"]
        path.write_text(json.dumps(held))
    case ["get", kind, name]:
        print((store / f"{{kind}}-{{name}}").read_text())
    case ["logs", "--follow", _]:
        pass
    case _:
        sys.exit(f"not a command that is printed: {{words}}")
"""


def program(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(text)
    (folder / name).chmod(0o755)


def ran(words: list[str], folder: Path, **variables: str) -> "subprocess.CompletedProcess[str]":
    """Run words where the stand-ins in `folder` come first on PATH."""
    environment = {"PATH": f"{folder}:/usr/bin:/bin", "SLURM_CPUS_ON_NODE": "96", "SLURM_JOB_ID": "17", **variables}
    return subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True)


def owners_are_right(folder: Path, jobs: int, others: int) -> None:
    """Check that the stand-in holds so many jobs, and that each other object is owned by one of them."""
    held = [json.loads(path.read_text()) for path in (folder / "objects").iterdir()]
    by_uid = {one["metadata"]["uid"]: one for one in held if one.get("kind", "").endswith("Job")}
    owned = [one for one in held if one["metadata"]["uid"] not in by_uid]
    assert (len(by_uid), len(owned)) == (jobs, others)
    for one in owned:
        (owner,) = one["metadata"]["ownerReferences"]
        assert kube_models.wrong(owner, "V1OwnerReference") == []
        job = by_uid[owner["uid"]]
        name = job["metadata"]["name"]
        assert (owner["apiVersion"], owner["kind"], owner["name"]) == (job["apiVersion"], job["kind"], name)
        assert one["metadata"]["name"].startswith(f"{name}-")
