"""Start NCCL with every rank on GPU 0, which NCCL refuses."""

import torch
from torch import distributed

distributed.init_process_group("nccl", device_id=torch.device("cuda:0"))
distributed.all_reduce(torch.ones(1, device="cuda:0"))
