"""Does a face have more detail in the photo than its net's crop can hold? Then the photo's own face is the better one.

A 256 px net draws a 700 px portrait from its 256 px crop: if that portrait is sharp, whatever the net answers is a step back. The
measure looks at the face's strongest edges at twice the crop's resolution: in a sharp photo they are steeper than the crop's
edges enlarged; in a blurred one they are the same. Steepness is taken along the crop's own gradient, so that noise, which has
no direction, averages out; and a face whose plain skin is noisy is restored even though it is sharp.
Figures: benchmarks/sharpness.py, docs/quality.md.
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
BLURRED, SHARP = 1.05, 1.10
"""Steepness ratios, between which ``own_detail`` rises. 24 sharp faces of 512 px: 1.08 to 1.15 (5th to 95th percentile);
blurred by one crop pixel 1.01 to 1.02, and with noise of 15 levels 1.01 to 1.04."""
CLEAN, NOISY = 0.15, 0.30
"""Median gradient over that of the strongest edges, between which ``own_detail`` falls: how noisy plain skin is. The same
faces: 0.08 to 0.15; with noise of 15 levels 0.17 to 0.31."""
_FACE_ROWS, _FACE_COLUMNS = (0.20, 0.85), (0.22, 0.78)
"""Where the face lies in GPEN's crop, as shares of its side: hair and background must not decide."""


def own_detail(shown: UInt8Image, crop_from_photo: Float64Array, crop: UInt8Image) -> float:
    """0 (the net's crop holds all there is, or the face is noisy) to 1 (the photo's face is sharper than the crop)."""
    if 1.0 / geometry.scale_of(crop_from_photo) < LEAST_SHRINK:
        return 0.0
    measured = steepness_and_noise(shown, crop_from_photo, crop)
    if measured is None:
        return 0.0
    steepness, noise = measured
    sharp = np.clip((steepness - BLURRED) / (SHARP - BLURRED), 0.0, 1.0)
    clean = np.clip((NOISY - noise) / (NOISY - CLEAN), 0.0, 1.0)
    return float(sharp * clean)


def steepness_and_noise(
    shown: UInt8Image, crop_from_photo: Float64Array, crop: UInt8Image
) -> tuple[float, float] | None:
    """(edges in the photo over the crop's edges, noise over the crop's edges); None for a face without edges."""
    size = crop.shape[0]
    fine_size = FINER * size
    fine_from_photo = geometry.compose(geometry.scaling((size, size), (fine_size, fine_size)), crop_from_photo)
    fine_x, fine_y = _gradient(geometry.warp_crop(shown, fine_from_photo, fine_size))
    crop_x, crop_y = _gradient(cv2.resize(crop, (fine_size, fine_size), interpolation=cv2.INTER_CUBIC))
    length = np.hypot(crop_x, crop_y)
    edges = length >= max(float(np.quantile(length, 1.0 - STRONGEST)), FLAT_GRADIENT)
    if not edges.any():
        return None
    strength = float(length[edges].mean())
    along = (fine_x * crop_x + fine_y * crop_y)[edges] / length[edges]
    noise = float(np.median(np.hypot(fine_x, fine_y)))
    return float(along.mean()) / strength, noise / strength


def _gradient(image: UInt8Image) -> tuple[Float32Array, Float32Array]:
    """Horizontal and vertical Sobel response of the luma over the face's part of a crop."""
    size = image.shape[0]
    rows = slice(int(_FACE_ROWS[0] * size), int(_FACE_ROWS[1] * size))
    columns = slice(int(_FACE_COLUMNS[0] * size), int(_FACE_COLUMNS[1] * size))
    luma = image[rows, columns].astype(np.float32) @ LUMA
    return cv2.Sobel(luma, cv2.CV_32F, 1, 0), cv2.Sobel(luma, cv2.CV_32F, 0, 1)
