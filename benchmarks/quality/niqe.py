"""NIQE, a picture's distance from undistorted photos, without an original (Mittal, Soundararajan, Bovik, 2013).

Written from the paper. The model of undistorted photos (mean and covariance of 36 features, window) is the authors' own, read
from the file that lies in the package basicsr; the package is never imported.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from importlib.util import find_spec
from math import ceil, gamma
from pathlib import Path

import cv2
import numpy as np
from PIL import Image

from gpen_cli.data import Float64Array, UInt8Image

BLOCK = 96
"""Px of a block, the authors' own."""
NEIGHBOURS = ((0, 1), (1, 0), (1, 1), (1, -1))
"""Rows and columns between the two coefficients of a product: right, below, and both diagonals."""
_SHAPES = np.arange(0.2, 10.001, 0.001)
_RATIOS = np.array([gamma(2 / a) ** 2 / (gamma(1 / a) * gamma(3 / a)) for a in _SHAPES])
"""The paper's ρ(α): E|x|² over E x² of a generalised Gaussian of that shape. Rises with the shape."""
LUMA_BT601 = np.array([65.481, 128.553, 24.966]) / 255.0
"""RGB levels to Y of 16..235, as the model was made."""


@dataclass(frozen=True)
class Undistorted:
    """mean: (36,), covariance: (36, 36), window: (7, 7)."""

    mean: Float64Array
    covariance: Float64Array
    window: Float64Array


@functools.cache
def undistorted() -> Undistorted | None:
    """The authors' model, or None where basicsr is not installed."""
    spec = find_spec("basicsr")  # of a package without a dot: finds it without running it
    if spec is None or not spec.submodule_search_locations:
        return None
    file = Path(spec.submodule_search_locations[0], "metrics", "niqe_pris_params.npz")
    if not file.is_file():
        return None
    with np.load(file) as model:
        return Undistorted(model["mu_pris_param"].ravel(), model["cov_pris_param"], model["gaussian_window"])


def niqe(picture: UInt8Image, model: Undistorted, *, cover: bool = True) -> float:
    """(H, W, 3) uint8 RGB, at least 96 px each way -> about 3 (natural) to 15 and more (distorted).

    cover: blocks overlap just so much that they cover the picture (16 more features of a face of 256 px than without, where
    its lower and right quarter is not seen); False: side by side from the top left, as in the authors' and basicsr's program.
    """
    luma = np.rint(picture.astype(np.float64) @ LUMA_BT601 + 16.0)
    rows, columns = (_starts(side, cover=cover) for side in luma.shape)
    if not cover:
        luma = luma[: rows[-1] + BLOCK, : columns[-1] + BLOCK]
    corners = [(row, column) for row in rows for column in columns]
    half = np.asarray(
        Image.fromarray(luma.astype(np.float32)).resize(
            (luma.shape[1] // 2, luma.shape[0] // 2), Image.Resampling.BICUBIC
        )
    )
    features = np.hstack([_features(luma, corners, 1, model.window), _features(half, corners, 2, model.window)])
    mean = np.nanmean(features, axis=0)
    sound = features[~np.isnan(features).any(axis=1)]
    covariance = np.cov(sound, rowvar=False) if len(sound) > 1 else np.zeros_like(model.covariance)
    away = model.mean - mean
    return float(np.sqrt(away @ np.linalg.pinv((model.covariance + covariance) / 2) @ away))


def _starts(side: int, *, cover: bool) -> list[int]:
    """First pixels of the blocks along one side; even, so that half of each is a pixel of the shrunk picture."""
    if not cover:
        return [BLOCK * index for index in range(side // BLOCK)]
    return [2 * round(start / 2) for start in np.linspace(0, (side - BLOCK) // 2 * 2, ceil(side / BLOCK))]


def _features(luma: np.ndarray, corners: list[tuple[int, int]], shrink: int, window: Float64Array) -> Float64Array:
    """(blocks, 18) of one scale."""
    levels = luma.astype(np.float64)
    mean = cv2.filter2D(levels, cv2.CV_64F, window, borderType=cv2.BORDER_REPLICATE)
    square = cv2.filter2D(levels * levels, cv2.CV_64F, window, borderType=cv2.BORDER_REPLICATE)
    normalised = (levels - mean) / (np.sqrt(np.abs(square - mean * mean)) + 1.0)
    size = BLOCK // shrink
    return np.array(
        [
            _block_features(
                normalised[row // shrink : row // shrink + size, column // shrink : column // shrink + size]
            )
            for row, column in corners
        ]
    )


def _block_features(block: Float64Array) -> list[float]:
    """18: shape and width of the coefficients; shape, mean, both widths of each product of neighbours."""
    shape, left, right = _asymmetric_gaussian(block)
    found = [shape, (left + right) / 2]
    for shift in NEIGHBOURS:
        shape, left, right = _asymmetric_gaussian(block * np.roll(block, shift, axis=(0, 1)))
        found += [shape, (right - left) * gamma(2 / shape) / gamma(1 / shape), left, right]
    return found


def _asymmetric_gaussian(values: Float64Array) -> tuple[float, float, float]:
    """Shape and the two widths of an asymmetric generalised Gaussian, by its moments; NaN for plain (constant) blocks."""
    below, above = values[values < 0], values[values > 0]
    if not below.size or not above.size:
        return float("nan"), float("nan"), float("nan")
    left, right = float(np.sqrt(np.mean(below**2))), float(np.sqrt(np.mean(above**2)))
    skew = left / right
    ratio = float(np.mean(np.abs(values)) ** 2 / np.mean(values**2))
    ratio *= (skew**3 + 1) * (skew + 1) / (skew**2 + 1) ** 2
    place = int(np.clip(np.searchsorted(_RATIOS, ratio), 1, len(_SHAPES) - 1))
    shape = float(_SHAPES[place - (ratio - _RATIOS[place - 1] < _RATIOS[place] - ratio)])
    spread = np.sqrt(gamma(1 / shape) / gamma(3 / shape))
    return shape, left * spread, right * spread
