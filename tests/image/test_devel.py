"""The devel twin: what people need to compile their own extensions, and such an extension, loaded where they train."""

import io
import json
import tarfile
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from trainwright.docker import engine
from trainwright.image import inputs
from trainwright.image.inputs import Inputs
from trainwright.matrix.matrix import Intent, Recipe

pytestmark = pytest.mark.devel
BUILD = "/tmp/extension"


@pytest.fixture(scope="module")
def gpu(host: Any, programs: str, declared: Inputs, fleet: list[str]) -> str:
    """The architecture to compile for: the fleet's newest; where there is no fleet, the framework's own newest."""
    library = f"/opt/venv/lib/python{declared.variant.python}/site-packages/torch/lib/libtorch_cuda.so"
    built: list[str] = json.loads(host.check_output(f"python {programs}/architectures.py {library}"))[library]["sass"]
    return (fleet or built)[-1]


def number(declared: Inputs) -> int:
    """CUDA's version as its headers count: 13.2.2 is 13020."""
    major, minor, *_ = map(int, declared.pins["cuda"].split("."))
    return major * 1000 + minor * 10


def test_compiler_is_of_this_cuda(host: Any, declared: Inputs) -> None:
    short = ".".join(declared.pins["cuda"].split(".")[:2])
    assert f"release {short}," in host.check_output("nvcc --version")


def test_cuda_home_is_valid(host: Any) -> None:
    """As the framework's own build tools look at it, and as build systems do that know no Python."""
    home = host.check_output("printenv CUDA_HOME")
    found = host.check_output("python -c 'from torch.utils.cpp_extension import CUDA_HOME; print(CUDA_HOME)'")
    assert found == home
    for path in (
        "bin/nvcc",
        "include/cuda_runtime.h",
        "lib64/libcudart.so",
        "lib64/libcudart_static.a",
        "nvvm/bin/cicc",
    ):
        assert host.file(f"{home}/{path}").exists, path
    assert host.check_output("command -v nvcc") == f"{home}/bin/nvcc"


def test_headers_compile(host: Any, programs: str, declared: Inputs, nccl_number: int, gpu: str) -> None:
    """Without a flag that says where: CUDA's, cuDNN's and NCCL's are where the compiler looks."""
    build = f"nvcc -arch=sm_{gpu} {programs}/headers.cu -o /tmp/headers"
    result = host.run(f"{build} && /tmp/headers")
    assert result.rc == 0, result.stdout + result.stderr
    printed = json.loads(result.stdout.splitlines()[-1])
    assert (printed["cuda"], printed["nccl"]) == (number(declared), nccl_number)
    cudnn = {entry.name: entry.version for entry in declared.lock.python}[f"nvidia-cudnn-cu{declared.pins['cuda'][:2]}"]
    assert cudnn.startswith(printed["cudnn"] + ".") or cudnn == printed["cudnn"]


def test_cmake_finds_cuda_and_the_framework(host: Any, gpu: str) -> None:
    lists = "\n".join(
        [
            "cmake_minimum_required(VERSION 3.25)",
            "project(example LANGUAGES CXX CUDA)",
            "find_package(CUDAToolkit REQUIRED)",
            "find_package(Torch REQUIRED)",
        ]
    )
    prefix = "$(python -c 'import torch; print(torch.utils.cmake_prefix_path)')"
    result = host.run(
        f"mkdir -p /tmp/cmake && printf '%s\\n' '{lists}' > /tmp/cmake/CMakeLists.txt"
        f" && cmake -G Ninja -S /tmp/cmake -B /tmp/cmake/build -D CMAKE_PREFIX_PATH={prefix}"
        f" -D CMAKE_CUDA_ARCHITECTURES={gpu}"
    )
    assert result.rc == 0, result.stdout + result.stderr


@pytest.fixture(scope="module")
def extension(host: Any, container: Any, programs: str, gpu: str) -> tuple[str, bytes]:
    """File name and content of an extension, compiled here for one GPU."""
    result = host.run(
        f"mkdir -p {BUILD} && cp {programs}/build_doubled.py {programs}/doubled.cu {BUILD} && cd {BUILD}"
        f" && TORCH_CUDA_ARCH_LIST={gpu[:-1]}.{gpu[-1]} MAX_JOBS=2 python build_doubled.py build_ext --inplace"
    )
    assert result.rc == 0, result.stdout[-3000:] + result.stderr[-3000:]
    path = host.check_output(f"ls {BUILD}/doubled*.so")
    with tarfile.open(fileobj=io.BytesIO(b"".join(container.get_archive(path)[0]))) as archive:
        member = archive.extractfile(archive.getmembers()[0])
        assert member
        return path.rpartition("/")[2], member.read()


def test_extension_holds_code_for_that_gpu(host: Any, programs: str, extension: tuple[str, bytes], gpu: str) -> None:
    path = f"{BUILD}/{extension[0]}"
    built = json.loads(host.check_output(f"python {programs}/architectures.py {path}"))[path]
    assert built["sass"] == [gpu]


@pytest.fixture(scope="module")
def runtime(intent: Intent, declared: Inputs) -> Iterator[Any]:
    """A container of the image that this one is the twin of: same lock, no compiler of CUDA."""
    twin = next(variant for variant in intent.variants if variant.id == declared.variant.lock)
    name = inputs.load(Recipe(intent, twin)).name
    if engine.image_id(name) is None:
        pytest.skip(f"not run: the engine holds no image {name}; trainwright build {twin.id}")
    with engine.container(name, command=["sleep", "infinity"], init=True, network_mode="none") as running:
        yield running


def test_extension_loads_in_the_image_of_jobs(
    runtime: Any, extension: tuple[str, bytes], declared: Inputs, pack: Callable[[Mapping[str, bytes]], bytes]
) -> None:
    assert runtime.exec_run(["sh", "-c", "command -v nvcc"])[0] != 0, "this is no image without a compiler"
    runtime.put_archive("/", pack({f"/tmp/{extension[0]}": extension[1]}))
    code = "import torch, doubled; print(doubled.cuda); doubled.doubled(torch.ones(1))"
    status, printed = runtime.exec_run(["python", "-c", code], workdir="/tmp", demux=True)
    assert printed[0].split() == [str(number(declared)).encode()], printed[1]
    assert status == 1, "without a GPU it must say so"
    assert b"a tensor on a GPU is needed" in printed[1]
