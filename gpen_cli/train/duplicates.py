"""The same photo twice: sent again, shrunk, cropped, saved once more. Told by the aligned face, not by the file.

A hash finds the few faces that look most alike, then each of those is laid over the new one and compared. The hash alone
cannot tell: on copies of a small photo the landmarks differ by a degree or two, which moves as many bits as another person does.
"""

from __future__ import annotations

from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from gpen_cli.data import Float32Array, UInt8Image
from gpen_cli.restore_crop import LUMA

CELLS = 16
_INNER = (0.15, 0.85)
"""What is compared, in shares of the side: around it there may be padding, which says nothing of the photo."""
MAX_HASH_DISTANCE = 0.30
CANDIDATES = 5
"""Faces that are laid over the new one: the nearest, by a hash of which at most so much (a share of its bits) differs."""
MIN_LIKENESS = 0.98
"""Correlation from which two faces are one photo, or of one burst. 686 crops of ../shared/faces: copies at half the size, JPEG 50
and landmarks moved by 2 degrees, 2 % and 1 % of the side (standard deviations) have 0.991 and more, other photos of the
same person up to 0.988, other people up to 0.965."""
_SIDE = 64
_STEPS = (cv2.TERM_CRITERIA_COUNT | cv2.TERM_CRITERIA_EPS, 30, 1e-4)
_SMOOTHING = 3  # pixels, odd


class FaceMark(NamedTuple):
    """What is remembered of a face. bits: (2 · CELLS²,) bool; small: (64, 64) uint8 luma."""

    bits: NDArray[np.bool_]
    small: UInt8Image


def face_mark(crop: UInt8Image) -> FaceMark:
    """Of an aligned crop (S, S, 3). A bit: is the cell brighter than the one to its left, than the one above it?"""
    size = crop.shape[0]
    luma = np.asarray(crop.astype(np.float32) @ LUMA, np.float32)
    small = np.rint(cv2.resize(luma, (_SIDE, _SIDE), interpolation=cv2.INTER_AREA)).astype(np.uint8)
    inner = slice(int(_INNER[0] * size), int(_INNER[1] * size))
    smooth = cv2.GaussianBlur(luma[inner, inner], (0, 0), size / 128)
    cells = cv2.resize(smooth, (CELLS + 1, CELLS + 1), interpolation=cv2.INTER_AREA)
    across = cells[:CELLS, 1:] > cells[:CELLS, :-1]
    down = cells[1:, :CELLS] > cells[:-1, :CELLS]
    return FaceMark(np.concatenate([across.ravel(), down.ravel()]), small)


def likeness(one: UInt8Image, other: UInt8Image) -> float:
    """Correlation, -1..1, of two (64, 64) faces once one is moved (affinely) to lie best on the other.

    Enhanced correlation maximisation (Evangelidis and Psarakis, PAMI 2008), as in OpenCV.
    """
    inner = np.zeros((_SIDE, _SIDE), np.uint8)
    inner[int(_INNER[0] * _SIDE) + 1 : int(_INNER[1] * _SIDE), int(_INNER[0] * _SIDE) + 1 : int(_INNER[1] * _SIDE)] = (
        255
    )
    start: Float32Array = np.eye(2, 3, dtype=np.float32)
    try:
        found, _ = cv2.findTransformECC(one, other, start, cv2.MOTION_AFFINE, _STEPS, inner, _SMOOTHING)
    except cv2.error:  # nothing to hold on to: flat, or too different to converge
        return -1.0
    return float(found)


class SeenFaces:
    """The faces met so far, numbered from 0 as they came."""

    def __init__(self) -> None:
        self._bits = np.empty((64, 2 * CELLS * CELLS), np.bool_)
        self._small: list[UInt8Image] = []

    def find(self, mark: FaceMark, min_likeness: float = MIN_LIKENESS) -> int | None:
        """The number of the most alike of at least ``min_likeness``; None when there is none."""
        distances = (self._bits[: len(self._small)] != mark.bits).mean(axis=1)
        nearest = [
            int(n) for n in np.argsort(distances, kind="stable")[:CANDIDATES] if distances[n] <= MAX_HASH_DISTANCE
        ]
        alike = [(likeness(mark.small, self._small[number]), -number) for number in nearest]
        best = max(alike, default=(-1.0, 0))
        return -best[1] if alike and best[0] >= min_likeness else None

    def add(self, mark: FaceMark) -> None:
        if len(self._small) == len(self._bits):
            self._bits = np.concatenate([self._bits, np.empty_like(self._bits)])
        self._bits[len(self._small)] = mark.bits
        self._small.append(mark.small)
