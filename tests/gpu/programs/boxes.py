"""Let torchvision choose boxes on a GPU: the second overlaps the first, which has the better score."""

import torch
import torchvision

boxes = torch.tensor([[0.0, 0, 10, 10], [1, 1, 11, 11], [20, 20, 30, 30]], device="cuda")
scores = torch.tensor([0.9, 0.8, 0.7], device="cuda")
print("kept", *torchvision.ops.nms(boxes, scores, iou_threshold=0.5).tolist())
