"""In a container of its own: loads the model that a job wrote, and prints its accuracy."""

import sys
from pathlib import Path

import torch
from digits import accuracy, network

saved = torch.load(sys.argv[1], weights_only=True)
model = network(saved["hidden_size"])
model.load_state_dict(saved["weights"])
print(accuracy(model, Path(sys.argv[2])))
