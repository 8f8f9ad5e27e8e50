"""What the batcher asks of a net, whichever runtime carries it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

import numpy as np

from gpen_cli.data import UInt8Image
from gpen_cli.errors import GpenError, PhotoError


class NonFiniteOutputError(GpenError):
    """The net gave NaN or infinity for a face, in full precision: the photo's own face has to stay."""


class NetMemoryError(PhotoError):
    """The device's memory does not hold the pass; with fewer faces in one it may."""


class CropNet(Protocol):
    """A net over aligned crops. One thread at a time calls ``run``; equal faces give equal bytes, whatever is beside them."""

    name: str
    """For log and report, e.g. ``gpen-open-256``."""
    crop_size: int
    """S: side of the crops it takes, in pixels."""
    micro_batch: int
    """Faces in one forward pass; ``run`` takes any number from 1 to this."""

    def run(self, crops: UInt8Image) -> np.ndarray:
        """(N, S, S, 3) uint8 sRGB -> for a restorer (N, T, T, 3) uint8 sRGB, for a parser (N, T, T) uint8 labels.

        Raises NonFiniteOutputError, NetMemoryError, DeviceError.
        """
        ...

    def halve(self) -> bool:
        """After a NetMemoryError: half as many faces a pass from here on. False when it is one already."""
        ...


@runtime_checkable
class OverlappingNet(CropNet, Protocol):
    """A ``CropNet`` whose passes may overlap: the host prepares one while the device computes another."""

    overlaps: bool
    """Whether ``begin`` returns before the pass is done. Where it does not, ``run`` is the better call."""

    def begin(self, crops: UInt8Image) -> Callable[[], np.ndarray]:
        """As ``run``, in two parts: the pass is on its way when this returns, and what it gives is called once, for the answer.

        At most one pass may wait for its answer when the next one begins. Either part raises what ``run`` raises.
        """
        ...
