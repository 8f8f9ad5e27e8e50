"""uint8 RGB in and out, around any net of torch: the one place where pictures become tensors and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor, nn

from gpen_cli.data import UInt8Image

HALF_RANGE = 127.5
"""uint8 0..255 and the nets' [-1, 1]: x / 127.5 − 1."""

Pass = Callable[[Tensor], tuple[Tensor, Tensor]]
"""(N, S, S, 3) uint8 on the device -> (N, T, T, 3) uint8 and a boolean: whether every number was finite."""


@runtime_checkable
class OverlappingPass(Protocol):
    """A ``Pass`` of which one may be on its way while another is prepared."""

    def __call__(self, crops: Tensor) -> tuple[Tensor, Tensor]: ...

    def begin(self, crops: Tensor) -> Callable[[], tuple[Tensor, Tensor]]:
        """As the call, without waiting for it; what it gives waits."""
        ...


def begin_pass(run: Pass, crops: Tensor) -> Callable[[], tuple[Tensor, Tensor]]:
    """``run`` in two parts: sent on its way, then waited for. Where passes do not overlap all is done in the first."""
    if isinstance(run, OverlappingPass):
        return run.begin(crops)
    outputs = run(crops)
    return lambda: outputs


class UInt8Pass(nn.Module):
    """A net between uint8 pictures, all of it on the device: what a compiler fuses and a graph captures as one piece."""

    def __init__(self, net: nn.Module, dtype: torch.dtype) -> None:
        super().__init__()
        self.net = net
        self.dtype = dtype

    def forward(self, crops: Tensor) -> tuple[Tensor, Tensor]:
        faces = self.net(normalised(crops, self.dtype))
        return levels(faces), torch.isfinite(faces).all()


def normalised(crops: Tensor, dtype: torch.dtype) -> Tensor:
    """(N, S, S, 3) uint8 -> (N, 3, S, S) in [-1, 1], channels last. Computed in float32, then taken to ``dtype``."""
    planes = crops.permute(0, 3, 1, 2)  # a channels-last view: no copy
    return (planes.float() / HALF_RANGE - 1.0).to(dtype)


def levels(faces: Tensor) -> Tensor:
    """(N, 3, T, T) about [-1, 1] -> (N, T, T, 3) uint8, clamped and rounded to nearest. Finite values only."""
    rounded = ((faces.float() + 1.0) * HALF_RANGE).round().clamp(0, 255).to(torch.uint8)
    return rounded.permute(0, 2, 3, 1).contiguous()


def on_device(crops: UInt8Image, device: torch.device) -> Tensor:
    """(N, S, S, 3) uint8 on ``device``."""
    return torch.from_numpy(np.require(crops, requirements=["C", "W"])).to(device)  # torch warns of read-only arrays


def to_tensor(crops: UInt8Image, device: torch.device, dtype: torch.dtype) -> Tensor:
    """``normalised`` of an array."""
    return normalised(on_device(crops, device), dtype)


def to_uint8(faces: Tensor) -> UInt8Image:
    """``levels`` as an array."""
    return levels(faces).cpu().numpy()
