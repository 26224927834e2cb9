"""Fail on a GPU in the way that the first argument names, with the framework's own message."""

import sys

import torch

way = sys.argv[1]
if way == "out-of-memory":
    torch.empty(1 << 50, dtype=torch.uint8, device="cuda")
elif way == "invalid-device":
    torch.ones(1, device=f"cuda:{torch.cuda.device_count()}")
elif way == "illegal-index":
    torch.ones(4, device="cuda")[torch.tensor([9], device="cuda")].sum().item()
else:
    raise SystemExit(f"{way}: out-of-memory, invalid-device or illegal-index")
