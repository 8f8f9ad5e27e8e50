"""From a sharp crop to a pair: what the net is given, and what it shall answer.

The order is GPEN's and GFPGAN's (arXiv:2105.06070 eq. 6, arXiv:2101.04061 eq. 1): blur, shrink, noise, JPEG, enlarge; to it come
motion blur, a second JPEG, and what age does to prints. Tones (gray, sepia, yellow, faded, a shift of colour) are put on
both sides of the pair: restoring must neither colour a gray photo nor take away a tone that is wanted. Blur, loss of
resolution, noise, JPEG, grain and scratches are on the degraded side alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import cv2
import numpy as np

from gpen_cli.data import Float32Array, UInt8Image
from gpen_cli.train import old_photo
from gpen_cli.train.basicsr_shim import degradations, drawn_from
from gpen_cli.train.config import DegradationConfig

REFERENCE_SIDE = 512
"""Side of the crop whose pixels the settings count in."""
LEAST_SIDE = 8
"""Pixels; a smaller crop holds no face."""
SHRINKING = (cv2.INTER_AREA, cv2.INTER_LINEAR, cv2.INTER_CUBIC)
ENLARGING = (cv2.INTER_LINEAR, cv2.INTER_CUBIC, cv2.INTER_LANCZOS4)
_LIGHT_SIGMA, _LIGHT_MOTION = (0.1, 4.0), (2.0, 12.0)
"""Of a photo that is only a little out of focus, in the settings' pixels."""
_POINTS_PER_PIXEL = 8
"""Of a motion's path; the kernel is their mean, each spread over its four nearest pixels."""


@dataclass(frozen=True)
class _Tones:
    """The toned crop, (S, S, 3) float32 0..1; gray: its channels are equal; old: it is a print that may be damaged."""

    picture: Float32Array
    gray: bool
    old: bool


def degrade_pair(
    crop: UInt8Image, options: DegradationConfig, rng: np.random.Generator
) -> tuple[UInt8Image, UInt8Image]:
    """(S, S, 3) uint8 RGB -> (degraded, original), both of that shape; the same for the same state of ``rng``.

    Raises DeviceError when basicsr is not installed.
    """
    clean = rng.random() < options.clean_chance
    tones = _tone(crop, options, rng)
    original = _as_uint8(tones.picture)
    if clean:
        return original.copy(), original
    if rng.random() < options.light_chance:
        return _lightly(tones, options, rng), original
    picture = blurred(tones.picture, options, rng)
    if tones.old:
        picture = old_photo.damaged(picture, rng)
    picture = _shrunk(picture, options, rng)
    picture = _noisy(picture, options, rng, tones)
    small = _as_uint8(picture)
    if rng.random() < options.jpeg_chance:
        small = jpeg(small, float(rng.uniform(*options.jpeg)))
    degraded = _back(small, crop.shape[0], rng)
    if rng.random() < options.second_jpeg_chance:
        degraded = jpeg(degraded, float(rng.uniform(*options.jpeg)))
    return degraded, original


def _lightly(tones: _Tones, options: DegradationConfig, rng: np.random.Generator) -> UInt8Image:
    """One fault alone: what a net that only ever met all of them at once overdoes.

    Noise and JPEG may fall on a small photo, sharp for its size: who met them only in blurred or in large ones takes them for
    the face's own detail.
    """
    picture, size = tones.picture, tones.picture.shape[0]
    fault = int(rng.integers(4))
    if fault == 0:
        least = replace(options, sigma=_LIGHT_SIGMA, motion_length=_LIGHT_MOTION)
        return _as_uint8(blurred(picture, least, rng))
    if fault == 1:
        return _back(_as_uint8(_shrunk(picture, _less_shrunk(options, 1 / 2), rng)), size, rng)
    if rng.random() < options.light_small_chance:
        picture = _shrunk(picture, _less_shrunk(options, 3 / 4), rng)
    if fault == 2:
        return _back(_as_uint8(_noisy(picture, options, rng, tones)), size, rng)
    return _back(jpeg(_as_uint8(picture), float(rng.uniform(*options.jpeg))), size, rng)


def _less_shrunk(options: DegradationConfig, share: float) -> DegradationConfig:
    low, high = options.shrink
    return replace(options, tiny_chance=0.0, shrink=(low, max(low, share * high)))


def _back(small: UInt8Image, size: int, rng: np.random.Generator) -> UInt8Image:
    return small if small.shape[0] == size else _resized(small, size, ENLARGING, rng)


def _tone(crop: UInt8Image, options: DegradationConfig, rng: np.random.Generator) -> _Tones:
    """What both sides of the pair have in common."""
    picture = np.asarray(crop.astype(np.float32) / 255, np.float32)
    shift = rng.uniform(-options.colour_shift, options.colour_shift, 3).astype(np.float32)
    gray = bool(rng.random() < options.gray_chance)
    old = bool(rng.random() < options.old_photo_chance)
    if gray:
        picture = old_photo.gray(picture)
    else:
        picture = np.asarray(np.clip(picture + shift, 0.0, 1.0), np.float32)
    if old:
        toned = old_photo.aged_tones(picture, rng)
        picture = old_photo.gray(toned) if gray else toned  # a gray scan of a toned print
    return _Tones(picture, gray, old)


def blurred(picture: Float32Array, options: DegradationConfig, rng: np.random.Generator) -> Float32Array:
    """(S, S, 3) float32 -> the same, out of focus (a Gaussian, round or stretched) or moved along a line."""
    unit = picture.shape[0] / REFERENCE_SIDE
    if rng.random() < options.motion_chance:
        kernel = motion_kernel(float(rng.uniform(*options.motion_length)) * unit, float(rng.uniform(0.0, math.pi)))
    else:
        kernel = _focus_kernel(options, unit, rng)
    return np.asarray(cv2.filter2D(picture, -1, kernel, borderType=cv2.BORDER_REFLECT_101), np.float32)


def _focus_kernel(options: DegradationConfig, unit: float, rng: np.random.Generator) -> Float32Array:
    """basicsr's round and stretched Gaussians, evenly, as GFPGAN draws them."""
    side = 2 * max(1, round((options.kernel_size * unit - 1) / 2)) + 1
    sigma = (options.sigma[0] * unit, options.sigma[1] * unit)
    with drawn_from(rng):
        kernel = degradations().random_mixed_kernels(
            ("iso", "aniso"), (0.5, 0.5), side, sigma, sigma, (-math.pi, math.pi), noise_range=None
        )
    return np.asarray(kernel, np.float32)


def motion_kernel(length: float, angle: float) -> Float32Array:
    """(K, K) float32, K odd, sum 1: even motion over ``length`` pixels at ``angle`` radians, its ends anywhere between pixels."""
    half = math.ceil(length / 2)
    count = max(2, math.ceil(length * _POINTS_PER_PIXEL))
    along = (np.arange(count) + 0.5) / count * length - length / 2
    x, y = along * math.cos(angle) + half, along * math.sin(angle) + half
    left, top = np.floor(x).astype(int), np.floor(y).astype(int)
    right_share, bottom_share = x - left, y - top
    kernel = np.zeros((2 * half + 2, 2 * half + 2), np.float64)
    for row, column, share in (
        (top, left, (1 - right_share) * (1 - bottom_share)),
        (top, left + 1, right_share * (1 - bottom_share)),
        (top + 1, left, (1 - right_share) * bottom_share),
        (top + 1, left + 1, right_share * bottom_share),
    ):
        np.add.at(kernel, (row, column), share)
    inner = kernel[
        : 2 * half + 1, : 2 * half + 1
    ]  # the last row and column hold what a path exactly at the edge spills: nothing
    return (inner / inner.sum()).astype(np.float32)


def _shrunk(picture: Float32Array, options: DegradationConfig, rng: np.random.Generator) -> Float32Array:
    """(S, S, 3) -> (s, s, 3), s <= S: what is left of the face's resolution."""
    size = picture.shape[0]
    if rng.random() < options.tiny_chance:
        side = int(rng.integers(options.tiny_side[0], options.tiny_side[1] + 1))
    else:
        low, high = (math.log(value) for value in options.shrink)
        side = round(REFERENCE_SIDE / math.exp(rng.uniform(low, high)))
    side = min(max(side, LEAST_SIDE), size)
    return picture if side == size else _resized(picture, side, SHRINKING, rng)


def _resized(picture: np.ndarray, side: int, ways: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    return np.asarray(cv2.resize(picture, (side, side), interpolation=ways[int(rng.integers(len(ways)))]))


def _noisy(picture: Float32Array, options: DegradationConfig, rng: np.random.Generator, tones: _Tones) -> Float32Array:
    """Gaussian noise, sometimes the same in the three channels; always so where the crop is gray."""
    gray = bool(rng.random() < options.noise_gray_chance) or tones.gray
    sigma = float(rng.uniform(*options.noise))
    with drawn_from(rng):
        return np.asarray(degradations().add_gaussian_noise(picture, sigma, gray_noise=gray), np.float32)


def jpeg(picture: UInt8Image, quality: float) -> UInt8Image:
    """(S, S, 3) uint8 RGB, saved and opened again."""
    stored = cv2.imencode(".jpg", cv2.cvtColor(picture, cv2.COLOR_RGB2BGR), [cv2.IMWRITE_JPEG_QUALITY, round(quality)])
    return np.asarray(cv2.cvtColor(cv2.imdecode(stored[1], cv2.IMREAD_COLOR), cv2.COLOR_BGR2RGB), np.uint8)


def _as_uint8(picture: Float32Array) -> UInt8Image:
    return np.rint(np.clip(picture, 0.0, 1.0) * 255).astype(np.uint8)
