"""torchaudio: transforms, and an operator that it has compiled against this PyTorch."""

from typing import Any

import pytest

pytestmark = pytest.mark.component("torchaudio")

SPECTRUM = """
import math, torch, torchaudio
tone = torch.sin(2 * math.pi * 1000 * torch.arange(8000) / 8000)[None]
print(torchaudio.transforms.Spectrogram(n_fft=80)(tone)[0].mean(1).argmax().item())
"""
ALIGN = """
import torch, torchaudio
sure = torch.tensor([[[0.1, 0.8, 0.1], [0.8, 0.1, 0.1], [0.1, 0.1, 0.8]]]).log()
path, _ = torchaudio.functional.forced_align(sure, torch.tensor([[1, 2]], dtype=torch.int32))
print(*path[0].tolist())
"""


def test_a_tone_is_where_it_belongs(host: Any) -> None:
    assert host.check_output(f"python -c '{SPECTRUM}'") == "10"


def test_operator(host: Any) -> None:
    assert host.check_output(f"python -c '{ALIGN}'") == "1 0 2"
