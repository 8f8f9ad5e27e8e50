"""Templates, similarity transforms and warps. Pure functions of arrays.

A matrix is named target_from_source and is (2, 3) float64: ``target = M[:, :2] @ source + M[:, 2]``. Pixel centres lie at whole
numbers, so scaling a picture by s maps x to (x + 0.5)·s − 0.5.
"""

from __future__ import annotations

import math
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from gpen_cli.data import Float32Array, Float64Array, UInt8Image

Rect = tuple[int, int, int, int]
"""x0, y0, x1, y1 in whole pixels; x1 and y1 are not included."""

_ARCFACE_96X112 = (
    (30.29459953, 51.69630051),
    (65.53179932, 51.50139999),
    (48.02519989, 71.73660278),
    (33.54930115, 92.3655014),
    (62.72990036, 92.20410156),
)
_FFHQ_512 = (
    (192.98138, 239.94708),
    (318.90277, 240.1936),
    (256.63416, 314.01935),
    (201.26117, 371.41043),
    (313.08905, 371.15118),
)
BORDER = cv2.BORDER_REFLECT
"""With the edge pixel repeated: OpenCV 5.0's warpAffine never returns from BORDER_REFLECT_101 on a photo one pixel wide."""
CUBIC_MARGIN = 3
"""Pixels a cubic kernel reads beyond its point, rounded up."""


def template_points(template: str, size: int) -> Float64Array:
    """(5, 2) landmarks of an aligned crop of ``size`` px: image-left eye, right eye, nose, left and right mouth corner.

    ``gpen``: the 96×112 ArcFace points, made square (+8, 0), with a quarter of 112 px around (+28, +28) of 168 px.
    ``ffhq``: the crop of the FFHQ data set at 512 px, as facexlib uses it; 1.116 times narrower than GPEN's.
    """
    if template == "gpen":
        return (np.array(_ARCFACE_96X112) + (8.0, 0.0) + 28.0) * (size / 168.0)
    if template == "ffhq":
        return np.array(_FFHQ_512) * (size / 512.0)
    raise ValueError(f"unknown template {template!r}")


def similarity(source: npt.ArrayLike, target: npt.ArrayLike) -> Float64Array:
    """The rotation, scale and shift that takes ``source`` (N, 2) nearest to ``target`` (N, 2) in least squares.

    As complex numbers w ≈ a·z + b the best a is Σ conj(z)·w / Σ|z|² of the centred points: no reflection is possible.
    Raises ValueError when the source points coincide.
    """
    z = np.asarray(source, np.float64) @ (1, 1j)
    w = np.asarray(target, np.float64) @ (1, 1j)
    zc, wc = z - z.mean(), w - w.mean()
    spread = float(np.vdot(zc, zc).real)
    if not math.isfinite(spread) or spread < 1e-9:
        raise ValueError("the points coincide; no similarity transform is defined")
    a = np.vdot(zc, wc) / spread
    b = w.mean() - a * z.mean()
    return np.array([[a.real, -a.imag, b.real], [a.imag, a.real, b.imag]])


def compose(target_from_middle: Float64Array, middle_from_source: Float64Array) -> Float64Array:
    """target_from_source."""
    linear = target_from_middle[:, :2] @ middle_from_source[:, :2]
    shift = target_from_middle[:, :2] @ middle_from_source[:, 2] + target_from_middle[:, 2]
    return np.column_stack((linear, shift))


def invert(target_from_source: Float64Array) -> Float64Array:
    """source_from_target."""
    inverse = np.linalg.inv(target_from_source[:, :2])
    return np.column_stack((inverse, -inverse @ target_from_source[:, 2]))


def apply(target_from_source: Float64Array, points: npt.ArrayLike) -> Float64Array:
    """Points (N, 2) in the source's frame -> (N, 2) in the target's."""
    return np.asarray(points, np.float64) @ target_from_source[:, :2].T + target_from_source[:, 2]


def scale_of(target_from_source: Float64Array) -> float:
    """Target pixels a source pixel: the square root of the area ratio."""
    return math.sqrt(abs(float(np.linalg.det(target_from_source[:, :2]))))


def scaling(source_size: tuple[int, int], target_size: tuple[int, int]) -> Float64Array:
    """target_from_source between two sizes (width, height) of the same picture, pixel-centre exact."""
    sx, sy = target_size[0] / source_size[0], target_size[1] / source_size[1]
    return np.array([[sx, 0.0, 0.5 * sx - 0.5], [0.0, sy, 0.5 * sy - 0.5]])


def translation(dx: float, dy: float) -> Float64Array:
    """target = source + (dx, dy)."""
    return np.array([[1.0, 0.0, dx], [0.0, 1.0, dy]])


def crop_from_photo(landmarks: npt.ArrayLike, template: str, size: int) -> Float64Array:
    """The transform that brings a face's five photo points onto the template of a crop of ``size`` px."""
    return similarity(landmarks, template_points(template, size))


def bounds(matrix: Float64Array, source_size: tuple[int, int], *, margin: int = 0) -> Rect:
    """The smallest rectangle of target pixels around all of the source's pixel centres, plus ``margin``."""
    right, bottom = source_size[0] - 1, source_size[1] - 1
    corners = apply(matrix, [(0, 0), (right, 0), (0, bottom), (right, bottom)])
    low, high = corners.min(axis=0), corners.max(axis=0)
    return (
        math.floor(low[0]) - margin,
        math.floor(low[1]) - margin,
        math.ceil(high[0]) + 1 + margin,
        math.ceil(high[1]) + 1 + margin,
    )


def clip_rect(rect: Rect, size: tuple[int, int]) -> Rect | None:
    """The part of ``rect`` inside a picture of ``size`` (width, height); None when nothing is."""
    x0, y0, x1, y1 = max(rect[0], 0), max(rect[1], 0), min(rect[2], size[0]), min(rect[3], size[1])
    return (x0, y0, x1, y1) if x0 < x1 and y0 < y1 else None


def warp_crop(photo: UInt8Image, crop_from_photo: Float64Array, size: int) -> UInt8Image:
    """The aligned (size, size, 3) crop, reflected where it leaves the photo, low-passed first when it shrinks.

    cv2.warpAffine alone aliases when it shrinks (peers.md, trap 5): whole factors are averaged by area, what is left of the
    factor (between 1 and 2) by a small Gaussian.
    """
    height, width = photo.shape[:2]
    shrink = 1.0 / scale_of(crop_from_photo)
    factor = max(1, int(shrink + 1e-6))  # a whole factor must not fall to the one below by a rounding
    margin = (CUBIC_MARGIN + 2) * factor
    wanted = bounds(invert(crop_from_photo), (size, size), margin=margin)
    rect = clip_rect(wanted, (width, height)) or _nearest_strip(wanted, (width, height))
    x0, y0, x1, y1 = rect
    region = np.ascontiguousarray(photo[y0:y1, x0:x1])
    region_from_photo = translation(-x0, -y0)
    if factor > 1:
        region, small_from_region = _shrink_by(region, factor)
        region_from_photo = compose(small_from_region, region_from_photo)
    left = shrink / factor
    if left > 1.05:
        sigma = 0.5 * math.sqrt(left * left - 1.0)
        region = cv2.GaussianBlur(region, (0, 0), sigma, borderType=BORDER)
    crop_from_region = compose(crop_from_photo, invert(region_from_photo))
    warped = cv2.warpAffine(region, crop_from_region, (size, size), flags=cv2.INTER_CUBIC, borderMode=BORDER)
    return np.asarray(warped, np.uint8)


def _nearest_strip(wanted: Rect, size: tuple[int, int]) -> Rect:
    """For a crop wholly outside the photo (landmarks can lie there): the photo's pixels nearest to it."""
    x0 = min(max(wanted[0], 0), size[0] - 1)
    y0 = min(max(wanted[1], 0), size[1] - 1)
    return x0, y0, max(x0 + 1, min(wanted[2], size[0])), max(y0 + 1, min(wanted[3], size[1]))


def _shrink_by(region: UInt8Image, factor: int) -> tuple[UInt8Image, Float64Array]:
    """Averages blocks of factor × factor pixels; the last block is filled up by repeating the edge."""
    height, width = region.shape[:2]
    region = cv2.copyMakeBorder(region, 0, -height % factor, 0, -width % factor, cv2.BORDER_REPLICATE)
    full = (region.shape[1], region.shape[0])
    small = (full[0] // factor, full[1] // factor)
    return np.asarray(cv2.resize(region, small, interpolation=cv2.INTER_AREA), np.uint8), scaling(full, small)


def warp_to_rect(image: Float32Array, canvas_from_crop: Float64Array, rect: Rect) -> Float32Array:
    """A crop-sized float image (S, S) or (S, S, C) resampled onto the canvas pixels of ``rect``; zero outside the crop."""
    x0, y0, x1, y1 = rect
    shrink = 1.0 / scale_of(canvas_from_crop)
    if shrink > 1.05:
        # The canvas has fewer pixels than the crop: low-pass, or fine residuals alias into the photo.
        image = cv2.GaussianBlur(image, (0, 0), 0.5 * math.sqrt(shrink * shrink - 1.0))
    rect_from_crop = compose(translation(-x0, -y0), canvas_from_crop)
    warped: Any = cv2.warpAffine(
        image,
        rect_from_crop,
        (x1 - x0, y1 - y0),
        flags=cv2.INTER_CUBIC,
        borderMode=cv2.BORDER_CONSTANT,
        borderValue=0,
    )
    return np.asarray(warped, np.float32)
