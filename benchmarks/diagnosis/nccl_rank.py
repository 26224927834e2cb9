"""One rank of a job over NCCL: a script of this folder, on the one GPU that all ranks share.

nccl.py starts it. What the scripts do on CPUs they do on the GPU here, and some faults are those of GPUs.
"""

import ctypes
import importlib
import json
import os
import sys

RANK = int(os.environ["RANK"])
os.environ["NCCL_HOSTID"] = (
    f"host-{RANK}"  # two ranks of one host cannot share a GPU; those of two hosts talk over sockets
)

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import train  # noqa: E402


def out_of_memory():  # type: ignore[no-untyped-def]
    torch.empty(1 << 42, dtype=torch.uint8)


def asserted():  # type: ignore[no-untyped-def]
    torch.nn.functional.embedding(torch.tensor([5, 900]), torch.ones(10, 4)).sum().item()


def address():  # type: ignore[no-untyped-def]
    """Write far behind an array, in a kernel of our own."""
    import cupy

    code = r'extern "C" __global__ void scale(float* x){ x[(long long)threadIdx.x * 1000000000LL] = 1; }'
    cupy.RawKernel(code, "scale")((1,), (64,), (cupy.zeros(4, dtype=cupy.float32),))
    torch.cuda.synchronize()


def crash():  # type: ignore[no-untyped-def]
    ctypes.string_at(8)


def shape():  # type: ignore[no-untyped-def]
    torch.ones(8, 16) @ torch.ones(8, 16)


GPU = {"oom": out_of_memory, "assert": asserted, "address": address, "segv": crash, "shape": shape}


def on_the_gpu():  # type: ignore[no-untyped-def]
    """Change what the scripts call: tensors on the GPU, NCCL in place of Gloo, the watchdog's dumps."""
    torch.cuda.set_device(0)
    torch.set_default_device("cuda:0")
    begin, permute, now = dist.init_process_group, torch.randperm, train.Fault.now
    dist.init_process_group = lambda _, **how: begin("nccl", **how)
    torch.randperm = lambda count, **how: permute(count, **{"device": "cpu", **how})  # samplers want it there
    train.dump = train.dump_on_request = lambda *_: None

    def fails(self, kind, step):  # type: ignore[no-untyped-def]
        if kind == "slow-loader" and step == self.at and self.kind in GPU:  # each script asks for it once a step
            GPU[self.kind]()
        return now(self, kind, step)

    train.Fault.now = fails


def main() -> None:
    on_the_gpu()
    job = json.loads(os.environ["JOB"])
    try:
        importlib.import_module(job["script"]).main(job, RANK, int(os.environ["WORLD_SIZE"]))
    except BaseException:
        sys.excepthook(*sys.exc_info())
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1)  # as a process does that others wait for: no destructor waits for NCCL


if __name__ == "__main__":
    main()
