"""torchvision: the operators that it has compiled against this PyTorch, and pictures as bytes."""

from typing import Any

import pytest

pytestmark = pytest.mark.component("torchvision")

# The second box overlaps the first, which has the better score; the third is elsewhere.
NMS = """
import torch, torchvision
boxes = torch.tensor([[0.0, 0, 10, 10], [1, 1, 11, 11], [20, 20, 30, 30]])
scores = torch.tensor([0.9, 0.8, 0.7])
print(*torchvision.ops.nms(boxes, scores, iou_threshold=0.5).tolist())
"""
JPEG = """
import torch
from torchvision.io import decode_jpeg, encode_jpeg
grey = torch.full((3, 16, 16), 128, dtype=torch.uint8)
print((decode_jpeg(encode_jpeg(grey)).int() - grey.int()).abs().max().item() < 3)
"""


def test_operator_on_the_cpu(host: Any) -> None:
    """On a GPU tests/gpu asks for it."""
    assert host.check_output(f"python -W error -c '{NMS}'") == "0 2"


def test_codec(host: Any) -> None:
    """A library of its own, which loads further libraries that the wheel brings."""
    assert host.check_output(f"python -c '{JPEG}'") == "True"
