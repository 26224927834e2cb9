"""Are the GPUs there that the instance type has, and does the host's driver go with the image's CUDA?"""

from __future__ import annotations

from findings import OK, REFUSED, UNKNOWN, WARNING, Case, Finding


def numbers(version: str) -> tuple[int, ...]:
    """A version as numbers, as far as it has any: never compared as text."""
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
        fix = "take an image with CUDA, or instances without GPUs"
        return [Finding("gpus", WARNING, "an image without CUDA", f"one for the {named} GPUs of {case.name}", "", fix)]
    if facts.gpus is None:
        return [Finding("gpus", UNKNOWN, "/dev did not say how many there are")]
    fix = "docker run --gpus all (Kubernetes: resources.limits nvidia.com/gpu), and a driver on the host"
    if not facts.gpus:
        expected = f"the {named} GPUs of {case.name}" if named else "a GPU, for an image with CUDA"
        return [Finding("gpus", REFUSED if named else WARNING, "no /dev/nvidia*", expected, facts.told_by, fix)]
    if named and facts.gpus < named:
        return [Finding("gpus", WARNING, str(facts.gpus), f"the {named} of {case.name}", "/dev/nvidia*", fix)]
    if facts.gpus < facts.processes:
        expected = f"one for each of {facts.processes} processes"
        return [Finding("gpus", WARNING, str(facts.gpus), expected, "/dev/nvidia*", "start as many as there are GPUs")]
    return [Finding("gpus", OK, str(facts.gpus))]


def check_driver(case: Case) -> list[Finding]:
    """Within one major version of CUDA any driver will do that was made for it: minor-version compatibility.

    libcuda knows best: it may be a newer one than the kernel module's, for forward compatibility.
    """
    facts = case.facts
    if "cuda" not in case.components or not facts.gpus:
        return []
    cuda, least = case.components["cuda"]["says"], case.data["driver"]
    fix = f"a driver of {least} or newer on the host, or an image with an older CUDA: trainwright list"
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
            "let the NVIDIA container toolkit bring the host's libcuda.so.1: NVIDIA_DRIVER_CAPABILITIES=compute,utility"
        )
        return [Finding("driver", REFUSED, facts.libcuda_said, "the driver's libcuda.so.1", "", fix)]
    return [Finding("driver", UNKNOWN, f"{module}, and libcuda did not answer")]


def check_gdrcopy(case: Case) -> list[Finding]:
    """Only where the image has the library and the host its module; nothing needs either."""
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
        return [Finding("gdrcopy", WARNING, "no /dev/gdrdrv", "the host's module in this container, too", "", fix)]
    library = case.components["gdrcopy"]["says"]
    return [Finding("gdrcopy", OK, f"library {library}, module {facts.gdrdrv}")]
