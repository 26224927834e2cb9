"""Train a step on a GPU and say the losses before and after it."""

import torch

torch.manual_seed(0)
inputs, wanted = torch.randn(64, 32, device="cuda"), torch.randn(64, 1, device="cuda")
model = torch.nn.Linear(32, 1).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
losses = []
for _ in range(2):
    loss = torch.nn.functional.mse_loss(model(inputs), wanted)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
print("losses", *losses, flush=True)
