"""One training step, eager and through inductor's C++ backend, which needs the image's compiler and headers.

inductor takes the best instruction set for which it can compile and load a program, and where it can for none, it
silently generates scalar code. Here the best one that the processor has must compile, load and be used.
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

import torch  # noqa: E402
from torch import nn  # noqa: E402
from torch._inductor import config, cpu_vec_isa  # noqa: E402

with config.patch({"cpp.vec_isa_ok": True}):  # it takes the processor's word, and compiles none that is not used
    best = cpu_vec_isa.pick_vec_isa()
compiles = best.check_build(best._avx_code)
tried = set(cache.rglob("*.cpp"))

torch.manual_seed(0)
# As few kernels as a step has, one forward and one backward: g++ takes seconds for each.
eager = nn.Sequential(nn.Linear(64, 10, bias=False), nn.GELU())
compiled = copy.deepcopy(eager)
features, classes = torch.randn(16, 64), torch.randint(10, (16,))


def step(model, forward):
    loss = nn.functional.cross_entropy(forward(features), classes)
    loss.backward()
    return [loss.detach(), *(parameter.grad for parameter in model.parameters())]


results = list(zip(step(eager, eager), step(compiled, torch.compile(compiled, fullgraph=True)), strict=True))
kernels = set(cache.rglob("*.cpp")) - tried
print(
    json.dumps(
        {
            "error": max((one - other).abs().max().item() for one, other in results),
            "instructions": str(best),
            "compiles": compiles,
            "vectorized": len([path for path in kernels if "at::vec::Vectorized<" in path.read_text()]),
        }
    )
)
