"""Runs inside a finished image, with its own Python, and prints as JSON what is really there. Judges nothing."""

import json
import platform
import re
import subprocess
from importlib.metadata import distributions
from pathlib import Path


def said(command, pattern):
    """What a program says its version is; None where it is not there or says nothing of the kind."""
    try:
        result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60)
    except OSError:
        return None
    found = re.search(pattern, result.stdout.decode(errors="replace"))
    return found.group(1) if found else None


def imported(module):
    """The version of a module as it says itself after a real import."""
    code = f"import {module}; print('version', {module}.__version__)"
    return said(["python", "-c", code], r"version (\S+)")


def python_packages():
    return {re.sub(r"[-_.]+", "-", found.metadata["Name"]).lower(): found.version for found in distributions()}


def distribution_packages():
    """dpkg's own list; empty where the distribution has no dpkg."""
    try:
        listed = subprocess.run(
            ["dpkg-query", "-W", "-f", "${Package} ${Version} ${db:Status-Abbrev}\n"],
            stdout=subprocess.PIPE,
            check=True,
        )
    except OSError:
        return {}
    rows = [line.split() for line in listed.stdout.decode().splitlines()]
    return {name: version for name, version, state in rows if state.startswith("ii")}


def nccl():
    """The NCCL that the framework was linked with; None for a build without one."""
    code = "import torch; print('version', '.'.join(map(str, torch.cuda.nccl.version())))"
    return said(["python", "-c", code], r"version ([\d.]+)") if imported("torch") else None


installed = python_packages()
COMPONENTS = {  # component of components.toml: how the image is asked
    "compiler": lambda: said(["g++", "-dumpfullversion"], r"([\d.]+)"),
    "libfabric": lambda: said(["fi_info", "--version"], r"libfabric: ([\w.]+)"),
    "mpi4py": lambda: imported("mpi4py"),
    "numpy": lambda: imported("numpy"),
    "openmpi": lambda: said(["mpirun", "--version"], r"\(Open MPI\) ([\w.]+)"),
    "openssh": lambda: said(["ssh", "-V"], r"OpenSSH_([\w.]+)"),
    "pip": lambda: said(["pip", "--version"], r"pip ([\w.]+)"),
    "python": platform.python_version,
    "sagemaker-training": lambda: said(
        [
            "python",
            "-c",
            "import sagemaker_training.trainer; from importlib.metadata import version as v;"
            " print('version', v('sagemaker-training'))",
        ],
        r"version (\S+)",
    ),
    "torch": lambda: imported("torch"),
}
ROOTS = ["/opt", "/usr", "/lib", "/lib64"]
versions = {name: ask() for name, ask in COMPONENTS.items()}
print(
    json.dumps(
        {
            "versions": {name: version for name, version in versions.items() if version is not None},
            "nccl": nccl(),
            "libnccl": sorted({str(path.resolve()) for root in ROOTS for path in Path(root).rglob("libnccl.so*")}),
            "python_packages": installed,
            "packages": distribution_packages(),
        }
    )
)
