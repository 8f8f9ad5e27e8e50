"""uint8 RGB in and out, around any net of torch: the one place where pictures become tensors and back."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from gpen_cli.data import UInt8Image

HALF_RANGE = 127.5
"""uint8 0..255 and the nets' [-1, 1]: x / 127.5 − 1."""


def to_tensor(crops: UInt8Image, device: torch.device, dtype: torch.dtype) -> Tensor:
    """(N, S, S, 3) uint8 -> (N, 3, S, S) in [-1, 1], channels last. Normalised in float32, then taken to ``dtype``."""
    pixels = torch.from_numpy(np.require(crops, requirements=["C", "W"])).to(device)  # torch warns of read-only arrays
    planes = pixels.permute(0, 3, 1, 2)  # a channels-last view: no copy
    return (planes.float() / HALF_RANGE - 1.0).to(dtype)


def to_uint8(faces: Tensor) -> UInt8Image:
    """(N, 3, T, T) about [-1, 1] -> (N, T, T, 3) uint8, clamped and rounded to nearest. Finite values only."""
    levels = (faces.float() + 1.0) * HALF_RANGE
    rounded = levels.round_().clamp_(0, 255).to(torch.uint8)
    return np.ascontiguousarray(rounded.permute(0, 2, 3, 1).cpu().numpy())
