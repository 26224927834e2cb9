"""Jobs on a host whose driver is below CUDA's floor, in the real image, with a stand-in for NVIDIA's libcuda.

The layer of cuda-compat runs as it is rendered; the stand-in answers cuDriverGetVersion as the real library does.
"""

import io
import re
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import inside
import pytest

from trainwright.docker import engine
from trainwright.image import inputs
from trainwright.image.inputs import Inputs
from trainwright.matrix.matrix import load_intent

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.component("cuda"), pytest.mark.component("torch"), pytest.mark.component("openmpi")]
FLAVOUR = "pytorch-2.15-cu132-py313-sagemaker-compat"
FOLDER, RELEASE = "/usr/local/cuda/compat", "cuda_compat-linux-x86_64-1.2.3_cuda13.2-archive"
ENTRYPOINT = "/opt/trainwright/bin/with-cuda"
LIBRARY = "int cuDriverGetVersion(int *version) { *version = 13020; return 0; }"
# The version that libcuda reports, or that the loader finds none: without a GPU the host has brought none.
RANK = """
import ctypes
try:
    number = ctypes.c_int()
    ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(number))
    print("libcuda", number.value, flush=True)
except OSError:
    print("libcuda none", flush=True)
"""
SSHD = """set -e
ssh-keygen -q -t ed25519 -N '' -f /root/key && install -D -m 0600 /root/key.pub /root/.ssh/authorized_keys
ssh-keygen -A && mkdir -p /run/sshd && /usr/sbin/sshd
"""
SSH = "ssh -i /root/key -o StrictHostKeyChecking=no -o LogLevel=ERROR 127.0.0.1"


def layer() -> str:
    """Return the shell commands of the flavour's own layer."""
    text = inputs.load(load_intent(ROOT).recipe(FLAVOUR)).text["Dockerfile"]
    [run] = re.findall(r"^RUN [^\n]*source=cuda-compat,target=/sources \\\n(.*?[^\\])\n(?=[A-Z#])", text, re.M | re.S)
    return "set -e; export SOURCE_DATE_EPOCH=1\n" + str(run)


@pytest.fixture(scope="module")
def host(image: str, pack: Any) -> Iterator[Any]:
    """A container whose entrypoint reads the driver from a file of ours, with the layer of cuda-compat on top."""
    options = {"entrypoint": [], "command": ["sleep", "infinity"], "init": True, "network_mode": "none"}
    labels = {"io.trainwright.test": "driver"}
    with (
        engine.container(image, labels=labels, hostname="algo-1", **options) as running,
        inside.host(running.id) as host,
    ):
        running.put_archive("/", pack({"/tmp/libcuda.c": LIBRARY.encode(), "/tmp/rank.py": RANK.encode()}))
        host.check_output("gcc -shared -fPIC -o /tmp/libcuda.so.1.2.3 /tmp/libcuda.c")
        library = host.file("/tmp/libcuda.so.1.2.3").content
        running.put_archive("/", pack({f"/sources/{RELEASE}.tar.xz": packed(library)}))
        running.put_archive("/", pack({"/tmp/layer.sh": layer().encode(), "/tmp/sshd.sh": SSHD.encode()}))
        host.check_output("bash /tmp/layer.sh")
        host.check_output("bash /tmp/sshd.sh")
        host.check_output(f"sed -i s#/proc/driver/nvidia/version#/tmp/driver# {ENTRYPOINT}")
        yield host


def packed(library: bytes) -> bytes:
    """Pack the stand-in as NVIDIA packs its own: a folder of the release, and in it `compat`."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:xz") as archive:
        entry = tarfile.TarInfo(f"{RELEASE}/compat/libcuda.so.1.2.3")
        entry.size, entry.mode = len(library), 0o755
        archive.addfile(entry, io.BytesIO(library))
        for name, target in (("libcuda.so.1", "libcuda.so.1.2.3"), ("libcuda.so", "libcuda.so.1")):
            link = tarfile.TarInfo(f"{RELEASE}/compat/{name}")
            link.type, link.linkname = tarfile.SYMTYPE, target
            archive.addfile(link)
    return made.getvalue()


# What starts a rank without the image's entrypoint over it.
STARTS = {
    "launcher": "trainwright-launch --distribution plain /tmp/rank.py",
    "torchrun": "trainwright-launch --distribution torchrun --processes 2 /tmp/rank.py",
    "mpi": "trainwright-launch --distribution mpi --processes 2 /tmp/rank.py",
    "ssh": f"{SSH} /opt/venv/bin/python /tmp/rank.py",
    "mpirun over ssh": f"{SSH} mpirun --allow-run-as-root --oversubscribe -n 2 /opt/venv/bin/python /tmp/rank.py",
}


@pytest.fixture(params=STARTS)
def start(request: pytest.FixtureRequest) -> str:
    return STARTS[request.param]


def libcuda(host: Any, driver: str, start: str) -> set[str]:
    """Return what the ranks of a start say of their libcuda, on a host of this driver."""
    host.check_output(f"echo 'NVRM version: NVIDIA UNIX x86_64 Kernel Module  {driver}  Thu' > /tmp/driver")
    return set(re.findall(r"libcuda (\d+|none)", host.check_output(start)))


def below(declared: Inputs, host: Any) -> str:
    return f"{int(host.check_output('cat /opt/trainwright/cuda/driver-floor').split('.')[0]) - 1}.1.1"


def test_every_rank_uses_it_below_the_floor(host: Any, declared: Inputs, start: str) -> None:
    assert libcuda(host, below(declared, host), start) == {"13020"}


def test_no_rank_uses_it_with_a_newer_driver(host: Any, start: str) -> None:
    assert libcuda(host, "1000.1.1", start) == {"none"}


def test_it_is_said_once(host: Any, declared: Inputs) -> None:
    host.check_output(f"echo 'Kernel Module  {below(declared, host)}  Thu' > /tmp/driver")
    done = host.run(f"{ENTRYPOINT} {ENTRYPOINT} {STARTS['launcher']}")
    assert done.stderr.count("which CUDA") == 1, done.stderr
