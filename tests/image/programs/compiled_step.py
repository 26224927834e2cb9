"""One training step, eager and through inductor's C++ backend, which needs the image's compiler and headers.

inductor tries each set of vector instructions of the processor, and where it can compile a program for none, it
silently generates scalar code. Here it takes the processor's word, so that the best set must compile.
"""

import copy
import json
import os
from pathlib import Path

cache = Path("/tmp/inductor")  # of this container alone: what lies there was compiled here
os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(cache)
os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = (
    "1"  # a pool of processes, each with an import of torch, for three kernels
)
os.environ["TORCHINDUCTOR_VEC_ISA_OK"] = "1"

import torch  # noqa: E402
from torch import nn  # noqa: E402

torch.manual_seed(0)
# As few kernels as a step has, one forward and one backward: g++ takes seconds for each.
eager = nn.Sequential(nn.Linear(64, 10, bias=False), nn.GELU())
compiled = copy.deepcopy(eager)
features, classes = torch.randn(16, 64), torch.randint(10, (16,))


def step(model, forward):
    loss = nn.functional.cross_entropy(forward(features), classes)
    loss.backward()
    return [loss.detach(), *(parameter.grad for parameter in model.parameters())]


results = zip(step(eager, eager), step(compiled, torch.compile(compiled, fullgraph=True)), strict=True)
print(
    json.dumps(
        {
            "error": max((one - other).abs().max().item() for one, other in results),
            "instructions": torch.backends.cpu.get_cpu_capability(),
            "vectorized": any("at::vec::Vectorized<" in path.read_text() for path in cache.rglob("*.cpp")),
        }
    )
)
