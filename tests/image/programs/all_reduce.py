"""Under torchrun: every rank contributes its number, every rank must see the sum."""

import sys

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
value = torch.full((1000,), float(dist.get_rank() + 1))
dist.all_reduce(value)
sys.stdout.write(
    f"rank {dist.get_rank()} of {dist.get_world_size()}: {value.min().item()} {value.max().item()}\n"
)  # print() writes twice, and ranks mix
dist.destroy_process_group()
