"""Check the number of GPUs, the host's driver against the image's CUDA, and GDRCopy."""

from __future__ import annotations

from findings import OK, REFUSED, UNKNOWN, WARNING, Case, Finding


def numbers(version: str) -> tuple[int, ...]:
    """Return the leading numbers of a version, for comparison: "535.104.05" is (535, 104, 5)."""
    found = []
    for part in version.split("."):
        if not part.isdigit():
            break
        found.append(int(part))
    return tuple(found)


def check_gpus(case: Case) -> list[Finding]:
    facts, named = case.facts, case.known[1] if case.known else None
    if "cuda" not in case.components:
        if not named:
            return []
        fix = "use an image with CUDA, or instances without GPUs"
        return [Finding("gpus", WARNING, "an image without CUDA", f"one for the {named} GPUs of {case.name}", "", fix)]
    if facts.gpus is None:
        return [Finding("gpus", UNKNOWN, "/dev could not be read")]
    fix = "docker run --gpus all (Kubernetes: resources.limits nvidia.com/gpu), and a driver on the host"
    if not facts.gpus:
        expected = f"the {named} GPUs of {case.name}" if named else "a GPU, for an image with CUDA"
        return [Finding("gpus", REFUSED if named else WARNING, "no /dev/nvidia*", expected, facts.told_by, fix)]
    if named and facts.gpus < named:
        return [Finding("gpus", WARNING, str(facts.gpus), f"the {named} of {case.name}", "/dev/nvidia*", fix)]
    if facts.gpus < facts.processes:
        expected = f"one for each of {facts.processes} processes"
        return [Finding("gpus", WARNING, str(facts.gpus), expected, "/dev/nvidia*", "start one process per GPU")]
    return [Finding("gpus", OK, str(facts.gpus))]


def check_driver(case: Case) -> list[Finding]:
    """Check the driver: any driver made for the image's major version of CUDA works (minor-version compatibility).

    libcuda's own answer counts more than the kernel module's version, because it may be a newer forward-compatibility
    libcuda.
    """
    facts = case.facts
    if "cuda" not in case.components or not facts.gpus:
        return []
    cuda, least = case.components["cuda"]["says"], case.data["driver"]
    fix = f"install driver {least} or newer, or use an image with older CUDA or with cuda-compat (trainwright list)"
    expected = f"a driver for CUDA {cuda}: {least} or newer"
    module = f"driver {facts.driver or 'unknown'}"
    if facts.cuda_of_driver is not None:
        major, minor = facts.cuda_of_driver // 1000, facts.cuda_of_driver % 1000 // 10
        found = f"{module}, whose libcuda is for CUDA {major}.{minor}"
        if major < numbers(cuda)[0]:
            return [Finding("driver", REFUSED, found, expected, "libcuda.so.1", fix)]
        return [Finding("driver", OK, f"{found}; the image has {cuda}")]
    if facts.driver and numbers(facts.driver) < numbers(least):
        return [Finding("driver", REFUSED, module, expected, "/proc/driver/nvidia/version", fix)]
    if facts.libcuda_said:
        fix = (
            "set both for the container, so that enroot or the NVIDIA container toolkit mounts the host's libcuda: "
            "NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility"
        )
        return [Finding("driver", REFUSED, facts.libcuda_said, "the driver's libcuda.so.1", "", fix)]
    return [Finding("driver", UNKNOWN, f"{module}, and libcuda did not answer")]


def check_gdrcopy(case: Case) -> list[Finding]:
    """Check GDRCopy if the image has its library and the host its module; both are optional."""
    facts = case.facts
    if "gdrcopy" not in case.components or not facts.gdrdrv:
        return []
    least = case.data["gdrcopy"]["module"]
    if numbers(facts.gdrdrv) < numbers(least):
        fix = f"install gdrdrv {least} or newer on the host; without it, small copies are slower"
        return [
            Finding("gdrcopy", WARNING, facts.gdrdrv, f"gdrdrv {least} or newer", "/sys/module/gdrdrv/version", fix)
        ]
    if not facts.gdrdrv_device:
        fix = "docker run --device=/dev/gdrdrv; without it, small copies are slower"
        return [Finding("gdrcopy", WARNING, "no /dev/gdrdrv", "the host's device in this container", "", fix)]
    library = case.components["gdrcopy"]["says"]
    return [Finding("gdrcopy", OK, f"library {library}, module {facts.gdrdrv}")]
