"""How far the answers of one form of a net lie from those of another."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpen_cli.data import UInt8Image


@dataclass(frozen=True)
class Parity:
    """Two sets of restored faces. most_levels: of 255; changed: share of the values; psnr: of the worst face, dB."""

    faces: int
    batch: int
    most_levels: int
    changed: float
    psnr: float

    def sentence(self, reference: str = "PyTorch fp32") -> str:
        return (
            f"{self.faces} faces, {self.batch} a pass: at most {self.most_levels} level(s) from {reference}, "
            f"{self.changed:.3%} of the values differ, PSNR of the worst face {self.psnr:.1f} dB"
        )


def parity(expected: UInt8Image, given: UInt8Image, batch: int) -> Parity:
    """Of (N, S, S, 3) uint8 against the same; ``batch``: how many faces went through the net at once."""
    difference = np.abs(expected.astype(np.int16) - given)
    square = np.square(difference, dtype=np.float64).mean(axis=(1, 2, 3))
    worst = float(square.max())
    psnr = float(10 * np.log10(255.0**2 / worst)) if worst else float("inf")
    return Parity(len(expected), batch, int(difference.max()), float((difference > 0).mean()), psnr)
