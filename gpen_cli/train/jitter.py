"""A face as it is filed -> a sample of the training's size: mirrored, turned, scaled and shifted a little, then degraded."""

from __future__ import annotations

import math
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from gpen_cli import geometry
from gpen_cli.data import Float64Array, UInt8Image
from gpen_cli.train.config import DataConfig, DegradationConfig
from gpen_cli.train.degradation import degrade_pair
from gpen_cli.train.sample import Sample

Pad = tuple[int, int, int, int]
"""Left, top, right, bottom: pixels of the crop as filed that show no photo."""
_JITTER = 1
"""Third word of a sample's seed; the epoch's order has two words, so that no sample is drawn like an order."""


@dataclass(frozen=True)
class Jitter:
    """How a crop is moved about its middle. angle: radians; scale: times as large; shift: (x, y), shares of the side."""

    mirrored: bool
    angle: float
    scale: float
    shift: tuple[float, float]

    @property
    def only_mirrors(self) -> bool:
        """Nothing has to be resampled."""
        return self.angle == 0.0 and self.scale == 1.0 and self.shift == (0.0, 0.0)

    def matrix(self, side: int) -> Float64Array:
        """(2, 3) moved_from_filed, in pixels of a crop ``side`` px wide; mirrored first."""
        cosine, sine = self.scale * math.cos(self.angle), self.scale * math.sin(self.angle)
        turned = np.array([[cosine, -sine], [sine, cosine]])
        linear = turned @ np.diag([-1.0 if self.mirrored else 1.0, 1.0])
        middle = np.full(2, (side - 1) / 2)
        return np.column_stack((linear, middle + np.array(self.shift) * side - linear @ middle))


def make_sample(
    pixels: UInt8Image,
    pad: Pad,
    name: str,
    *,
    degraded: UInt8Image | None,
    data: DataConfig,
    degradation: DegradationConfig,
    size: int,
    seed: tuple[int, int],
) -> Sample:
    """The sample of a filed crop (F, F, 3), F any size; the same for the same ``seed`` (of the run, number of the sample).

    degraded: the other side of a pair, (any, any, 3), moved alike; None: it is made. Raises DeviceError (no basicsr).
    """
    rng = np.random.default_rng([*seed, _JITTER])
    jitter = draw_jitter(data, rng)
    original = moved_crop(pixels, jitter, size)
    weight = weights(pixels.shape[0], pad, jitter, size)
    if degraded is None:
        degraded, original = degrade_pair(original, degradation, rng)
    else:
        degraded = moved_crop(fitted(degraded, pixels.shape[0]), jitter, size)
    return Sample(degraded, original, weight, name)


def draw_jitter(data: DataConfig, rng: np.random.Generator) -> Jitter:
    """Evenly within the settings' limits; the scale evenly in its logarithm."""
    mirrored = bool(rng.random() < 0.5) and data.mirror
    angle = math.radians(rng.uniform(-data.max_rotation, data.max_rotation))
    scale = math.exp(rng.uniform(-1.0, 1.0) * math.log1p(data.max_scale))
    x, y = (float(value) for value in rng.uniform(-data.max_shift, data.max_shift, 2))
    return Jitter(mirrored, angle, scale, (x, y))


def moved_crop(pixels: UInt8Image, jitter: Jitter, size: int) -> UInt8Image:
    """(F, F, 3) as filed -> (size, size, 3). Moved at the filed size and shrunk then, so the one cubic warp costs the least."""
    side = pixels.shape[0]
    if jitter.only_mirrors:
        moved = np.ascontiguousarray(pixels[:, ::-1]) if jitter.mirrored else pixels
    else:
        matrix = jitter.matrix(side)
        moved = cv2.warpAffine(pixels, matrix, (side, side), flags=cv2.INTER_CUBIC, borderMode=geometry.BORDER)
    return fitted(np.asarray(moved, np.uint8), size)


def fitted(pixels: UInt8Image, side: int) -> UInt8Image:
    """(any, any, 3) -> (side, side, 3): averaged when it shrinks, bicubic when it grows, untouched at its own size."""
    if pixels.shape[:2] == (side, side):
        return pixels
    way = cv2.INTER_AREA if pixels.shape[0] > side else cv2.INTER_CUBIC
    return np.asarray(cv2.resize(pixels, (side, side), interpolation=way), np.uint8)


def weights(side: int, pad: Pad, jitter: Jitter, size: int) -> NDArray[np.uint8]:
    """(size, size) uint8: 1 where the moved crop shows photo alone, 0 where it was filled up, at filing or by moving."""
    left, top, right, bottom = pad
    shown = np.zeros((side, side), np.uint8)
    shown[top : side - bottom, left : side - right] = 255
    small_from_filed = geometry.compose(geometry.scaling((side, side), (size, size)), jitter.matrix(side))
    moved = cv2.warpAffine(shown, small_from_filed, (size, size), flags=cv2.INTER_LINEAR, borderValue=0)
    return (moved == 255).astype(np.uint8)
