"""Where the time of a training step goes: PyTorch's own profiler, on one process or on every rank of many.

Three steps are recorded after two that are not. Each rank writes a trace for https://ui.perfetto.dev or chrome://tracing
where the platform brings it back (SageMaker: output.tar.gz), and rank 0 prints the table.

    trainwright run IMAGE step_profile.py --output kept             # kept/algo-1/output/data/trace-0.json.gz
    trainwright run IMAGE step_profile.py --output kept-2 --nodes 2 # one from each host
"""

import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function, schedule

RANK, WORLD = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
DATA = Path(os.environ.get("SM_OUTPUT_DATA_DIR", "/opt/ml/output/data"))
# Steps: the first one compiles, allocates and connects, and says nothing of the others.
SKIPPED, WARM, RECORDED = 1, 1, 3


def main() -> None:
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0))) if cuda else torch.device("cpu")
    if WORLD > 1:
        dist.init_process_group("nccl" if cuda else "gloo")
    model: nn.Module = nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 512)).to(device)
    if WORLD > 1:
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.Adam(model.parameters())
    DATA.mkdir(parents=True, exist_ok=True)
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if cuda else [])]
    with profile(activities=activities, schedule=schedule(wait=SKIPPED, warmup=WARM, active=RECORDED)) as profiler:
        for _ in range(SKIPPED + WARM + RECORDED):
            with record_function("load"):  # names of your own appear in trace and table
                inputs = torch.randn(256, 512, device=device)
            with record_function("forward"):
                loss = nn.functional.mse_loss(model(inputs), inputs)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            profiler.step()
    profiler.export_chrome_trace(str(DATA / f"trace-{RANK}.json.gz"))
    if RANK == 0:
        order = "self_cuda_time_total" if cuda else "self_cpu_time_total"
        print(profiler.key_averages().table(sort_by=order, row_limit=12, max_name_column_width=40), flush=True)
    if WORLD > 1:
        dist.barrier()  # no rank leaves while another one still writes
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
