"""Test that a CUDA image asks for the host's GPUs: the hooks of enroot and of NVIDIA's runtime, applied to its ENV.

Docker's `--gpus` and Kubernetes' device plugin set these variables themselves. Slurm with pyxis does not, nor does a
runtime that reads the environment: they give an image without them no GPU.
"""

import re

import pytest

from trainwright.image import inputs
from trainwright.matrix.matrix import Intent

COMPUTE = {"compute", "utility"}  # libcuda and its helpers; nvidia-smi and NVML
KNOWN = {"compute", "compat32", "display", "graphics", "utility", "video"}


def enroot(environment: dict[str, str]) -> set[str] | None:
    """Return what enroot mounts, None for no GPU at all: NVIDIA/enroot conf/hooks/98-nvidia.sh at 8ea147d."""
    if environment.get("NVIDIA_VISIBLE_DEVICES", "void") in ("", "void"):
        return None
    asked = environment.get("NVIDIA_DRIVER_CAPABILITIES") or "utility"
    if asked == "all":
        return KNOWN
    assert set(asked.split(",")) <= KNOWN, "the hook ends the start of a container that asks for anything else"
    return set(asked.split(","))


def runtime(environment: dict[str, str]) -> set[str] | None:
    """Return what NVIDIA's runtime mounts where it reads the environment: its internal/config/image at d34b304."""
    legacy = bool(environment.get("CUDA_VERSION")) and not environment.get("NVIDIA_REQUIRE_CUDA")
    devices = {one.strip() for one in environment.get("NVIDIA_VISIBLE_DEVICES", "all" if legacy else "").split(",")}
    if devices == {""} or "void" in devices:
        return None
    asked = environment.get("NVIDIA_DRIVER_CAPABILITIES")
    if asked == "all" or (asked is None and legacy):
        return KNOWN
    return set(asked.split(",")) if asked else COMPUTE


def environment_of(text: str) -> dict[str, str]:
    """Return the variables of a Dockerfile's last stage, those of its base aside."""
    last = text.rpartition("\nFROM ")[2].replace("\\\n", " ")
    lines = re.findall(r"^ENV (.+)$", last, re.MULTILINE)
    return dict(pair.split("=", 1) for line in lines for pair in line.split())


@pytest.fixture(scope="module")
def cuda_images(intent: Intent) -> dict[str, dict[str, str]]:
    recipes = [one for one in inputs.held(intent) if "cuda" in one.pins and one.provider("cuda").kind != "base"]
    return {one.id: environment_of(inputs.load(one).text["Dockerfile"]) for one in recipes}


def test_every_cuda_image_gets_gpus_and_the_drivers_libraries(cuda_images: dict[str, dict[str, str]]) -> None:
    assert len(cuda_images) > 20
    for image, environment in cuda_images.items():
        assert (enroot(environment) or set()) >= COMPUTE, image
        assert (runtime(environment) or set()) >= COMPUTE, image


def test_no_image_refuses_a_host_before_it_starts(cuda_images: dict[str, dict[str, str]]) -> None:
    """With NVIDIA_REQUIRE_CUDA a hook ends the start, although the image may bring a libcuda for this driver."""
    for image, environment in cuda_images.items():
        assert not [name for name in environment if name.startswith("NVIDIA_REQUIRE_")], image


def test_an_image_without_cuda_asks_for_no_gpu(intent: Intent) -> None:
    environment = environment_of(inputs.load(intent.recipe("base-1.0-cpu-py313-sagemaker")).text["Dockerfile"])
    assert enroot(environment) is None
    assert runtime(environment) is None


@pytest.mark.parametrize("lost", ["NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES"])
def test_enroot_gives_less_without_either(cuda_images: dict[str, dict[str, str]], lost: str) -> None:
    for environment in cuda_images.values():
        left = {name: value for name, value in environment.items() if name != lost}
        assert not (enroot(left) or set()) >= COMPUTE
