"""Does a face have more detail in the photo than its net's crop can hold? Then the photo's own face is the better one.

A 256 px net draws a 700 px portrait from its 256 px crop: if that portrait is sharp, whatever the net answers is a step back. The
measure looks at the face's strongest edges, seen at twice the crop's resolution: in a sharp photo they are steeper than
the crop's edges enlarged; in a blurred one they are the same. Strong edges stand far above noise and JPEG blocks, so those do
not pass for sharpness (figures: benchmarks/sharpness.py, docs/quality.md).
"""

from __future__ import annotations

import cv2
import numpy as np

from gpen_cli import geometry
from gpen_cli.data import Float32Array, Float64Array, UInt8Image
from gpen_cli.restore_crop import LUMA

FINER = 2
LEAST_SHRINK = 1.2
"""Photo pixels a crop pixel from which there can be detail beyond the crop."""
STRONGEST = 0.03
"""Share of the face's pixels whose edges are compared."""
FLAT_GRADIENT = 8.0
"""Sobel response (of 8-bit levels) below which a face has no edge to judge by."""
BLURRED, SHARP = 1.04, 1.12
"""Steepness ratios. Over the portraits of shared/faces/whole larger than the crop: sharp ones 1.09 to 1.22; blurred by one crop
pixel 0.99 to 1.04, with noise of 15 levels up to 1.06 (one 1.12)."""
_FACE_ROWS, _FACE_COLUMNS = (0.20, 0.85), (0.22, 0.78)
"""Where the face lies in GPEN's crop, as shares of its side: hair and background must not decide."""


def own_detail(shown: UInt8Image, crop_from_photo: Float64Array, crop: UInt8Image) -> float:
    """0 (the net's crop holds all there is) to 1 (the photo's face is sharper than the crop can hold)."""
    if 1.0 / geometry.scale_of(crop_from_photo) < LEAST_SHRINK:
        return 0.0
    size = crop.shape[0]
    fine_size = FINER * size
    fine_from_photo = geometry.compose(geometry.scaling((size, size), (fine_size, fine_size)), crop_from_photo)
    fine = _steepness(geometry.warp_crop(shown, fine_from_photo, fine_size))
    coarse = _steepness(cv2.resize(crop, (fine_size, fine_size), interpolation=cv2.INTER_CUBIC))
    limit = max(float(np.quantile(coarse, 1.0 - STRONGEST)), FLAT_GRADIENT)
    edges = coarse >= limit
    if not edges.any():
        return 0.0
    ratio = float(fine[edges].mean() / coarse[edges].mean())
    return float(np.clip((ratio - BLURRED) / (SHARP - BLURRED), 0.0, 1.0))


def _steepness(image: UInt8Image) -> Float32Array:
    """Gradient magnitude of the luma over the face's part of a crop."""
    size = image.shape[0]
    rows = slice(int(_FACE_ROWS[0] * size), int(_FACE_ROWS[1] * size))
    columns = slice(int(_FACE_COLUMNS[0] * size), int(_FACE_COLUMNS[1] * size))
    luma = image[rows, columns].astype(np.float32) @ LUMA
    return np.hypot(cv2.Sobel(luma, cv2.CV_32F, 1, 0), cv2.Sobel(luma, cv2.CV_32F, 0, 1))
