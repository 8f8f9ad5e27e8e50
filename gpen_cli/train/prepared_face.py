"""One face of a photo: is it fit to learn from, and what is known of its crop."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import cv2
import numpy as np
import numpy.typing as npt

from gpen_cli import geometry
from gpen_cli.condition import turn_of
from gpen_cli.data import Face, Float64Array, UInt8Image
from gpen_cli.detect.plausible import tilt
from gpen_cli.engine import crop_side
from gpen_cli.errors import UsageError
from gpen_cli.options import FaceOptions, ReadOptions
from gpen_cli.restore_crop import LUMA
from gpen_cli.train.duplicates import MIN_LIKENESS
from gpen_cli.train.jitter import Pad

SIZES = (64, 128, 256, 512, 1024)
LEAST_CLASS = 256
"""Pixels of the smallest size class; a smaller ``size`` has itself alone."""
MOST_ENLARGED = 1.25
"""A face may be enlarged so much to fill its crop (../shared/faces: up to 1.26); more, and the net would learn softness."""
TEMPLATE = "gpen"
_FACE_ROWS, _FACE_COLUMNS = (0.20, 0.85), (0.22, 0.78)
"""Where the face lies in GPEN's crop, in shares of its side: a sharp background must not speak for it."""


@dataclass(frozen=True)
class PrepareOptions:
    """What is kept, and how it is filed. size: pixels of a crop; a smaller face goes to half of that, down to 256.

    min_sharpness: variance of the luma's Laplacian over the face. Of 343 portraits of ../shared/faces the least had 58; blurred
    by 1 px, 95 % have under 38 (512 px) and 64 (256 px). max_roll: degrees the head leans in the photo. max_yaw: the nose's
    distance from the middle of the eyes, in eye distances (0.42 is about 45 degrees). max_outside: share of the crop beyond the
    photo's edge. min_likeness: from which two faces count as one photo (``duplicates``); over 1 keeps them all. source None: the
    photo's first folder below PHOTOS. split, licence, confidence: written into every row. Raises UsageError.
    """

    size: int = 512
    min_sharpness: float = 40.0
    max_roll: float = 25.0
    max_yaw: float = 0.30
    max_outside: float = 0.35
    min_likeness: float = MIN_LIKENESS
    format: str = "jpg"
    source: str | None = None
    split: str = "train"
    licence: str = ""
    confidence: str = ""
    faces: FaceOptions = field(default_factory=FaceOptions)
    read: ReadOptions = field(default_factory=ReadOptions)

    def __post_init__(self) -> None:
        if self.size not in SIZES:
            raise UsageError(f"--size {self.size} is no size of a net; choose one of: {', '.join(map(str, SIZES))}.")
        if self.format not in ("jpg", "png"):
            raise UsageError(f"--format {self.format!r} is not known; choose jpg or png.")
        if not 0.0 <= self.max_outside < 1.0:
            raise UsageError(f"--max-outside {self.max_outside} must be 0 or more, and under 1.")

    @property
    def classes(self) -> tuple[int, ...]:
        """Sizes of crops, from the largest."""
        sizes = [self.size]
        while sizes[-1] // 2 >= LEAST_CLASS:
            sizes.append(sizes[-1] // 2)
        return tuple(sizes)


@dataclass(frozen=True)
class PreparedFace:
    """A crop fit to learn from. pixels: (S, S, 3) RGB; side: pixels of the photo it shows; measures: columns of the index."""

    pixels: UInt8Image
    side: float
    measures: Mapping[str, str]


def prepared_face(shown: UInt8Image, face: Face, options: PrepareOptions) -> PreparedFace | str:
    """The aligned crop of a face in ``shown`` (H, W, 3), or why it is left out, as words to put after a number."""
    side = crop_side(face, TEMPLATE)
    size = next((size for size in options.classes if side * MOST_ENLARGED >= size), None)
    if size is None:
        return f"too small: their crop has under {options.classes[-1] / MOST_ENLARGED:.0f} px in the photo"
    roll = tilt(face)
    if abs(roll) > options.max_roll:
        return f"leaning by more than {options.max_roll:g} degrees"
    if turn_of(face) > options.max_yaw:
        return "turned too far to the side"
    matrix = geometry.crop_from_photo(face.landmarks, TEMPLATE, size)
    beyond = beyond_photo(matrix, size, (shown.shape[1], shown.shape[0]))
    if beyond.mean() > options.max_outside:
        return "too far over the photo's edge"
    pad = padding(beyond)
    points = geometry.apply(matrix, face.landmarks)
    if not _within(points, pad, size):
        return "cut by the photo's edge"
    pixels = geometry.warp_crop(shown, matrix, size)
    sharp = sharpness(pixels)
    if sharp < options.min_sharpness:
        return f"blurred: their sharpness is under {options.min_sharpness:g}"
    measures = {
        "size_class": str(size),
        "sharpness": f"{sharp:.1f}",
        "scale": f"{geometry.scale_of(matrix):.3f}",
        "outside": f"{beyond.mean():.3f}",
        **dict(zip(("pad_l", "pad_t", "pad_r", "pad_b"), map(str, pad), strict=True)),
        "yaw": f"{math.copysign(turn_of(face), points[2, 0] - points[:2, 0].mean()):.3f}",
        "roll": f"{roll:.1f}",
        "landmarks": " ".join(f"{x:.1f},{y:.1f}" for x, y in points),
    }
    return PreparedFace(pixels, side, measures)


def sharpness(crop: UInt8Image) -> float:
    """Variance of the Laplacian of the face's luma, levels² of a pixel of the crop."""
    size = crop.shape[0]
    rows, columns = (slice(int(low * size), int(high * size)) for low, high in (_FACE_ROWS, _FACE_COLUMNS))
    luma = crop[rows, columns].astype(np.float32) @ LUMA
    return float(cv2.Laplacian(luma, cv2.CV_32F).var())


def beyond_photo(crop_from_photo: Float64Array, size: int, photo_size: tuple[int, int]) -> npt.NDArray[np.bool_]:
    """(size, size): True where the crop's pixel lies outside the photo of ``photo_size`` (width, height)."""
    photo_from_crop = geometry.invert(crop_from_photo)
    at = np.arange(size, dtype=np.float64)
    x = photo_from_crop[0, 0] * at + photo_from_crop[0, 1] * at[:, None] + photo_from_crop[0, 2]
    y = photo_from_crop[1, 0] * at + photo_from_crop[1, 1] * at[:, None] + photo_from_crop[1, 2]
    width, height = photo_size
    return (x < -0.5) | (x > width - 0.5) | (y < -0.5) | (y > height - 0.5)


def padding(beyond: npt.NDArray[np.bool_]) -> Pad:
    """Left, top, right, bottom: what to cut off so that only photo is left. The side with the most padding moves in first."""
    left, top = 0, 0
    bottom, right = beyond.shape
    while left < right and top < bottom:
        shares = (
            beyond[top:bottom, left].mean(),
            beyond[top, left:right].mean(),
            beyond[top:bottom, right - 1].mean(),
            beyond[bottom - 1, left:right].mean(),
        )
        worst = int(np.argmax(shares))
        if shares[worst] == 0.0:
            break
        left, top = left + (worst == 0), top + (worst == 1)
        right, bottom = right - (worst == 2), bottom - (worst == 3)
    return left, top, beyond.shape[1] - right, beyond.shape[0] - bottom


def _within(points: Float64Array, pad: Pad, size: int) -> bool:
    left, top, right, bottom = pad
    return bool((points >= (left, top)).all() and (points <= (size - 1 - right, size - 1 - bottom)).all())
