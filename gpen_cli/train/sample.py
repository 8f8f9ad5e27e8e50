"""What the data side hands to the training side; no torch."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray


class Sample(NamedTuple):
    """One face to learn from, RGB.

    degraded, original: (S, S, 3) uint8. weight: (S, S) uint8, 1 where the loss counts, 0 where the crop shows no
    photo (padding outside it). name: the file, for messages and sheets.
    """

    degraded: NDArray[np.uint8]
    original: NDArray[np.uint8]
    weight: NDArray[np.uint8]
    name: str


class Samples(Protocol):
    """An endless, random-access sequence: sample ``number`` is the same in every run with the same settings."""

    def sample(self, number: int) -> Sample:
        """The sample with this number, counted from 0. Raises PhotoError when its file cannot be read any more."""
        ...

    def __len__(self) -> int:
        """How many different photos there are."""
        ...
