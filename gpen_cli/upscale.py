"""How large the output is, and the background at that size."""

from __future__ import annotations

import math

import cv2
import numpy as np

from gpen_cli.data import PhotoPixels
from gpen_cli.options import Options

AUTO_LIMIT = 2000
"""Longest side, in pixels, that ``--upscale auto`` still doubles: larger photos print well as they are."""


def choose_scale(options: Options, size: tuple[int, int]) -> float:
    """What is asked for; or (auto) 1 for crops and in place, else 2 when the long side is at most 2000 px."""
    asked = options.compose.upscale
    if asked is not None:
        return asked
    if options.run.aligned or options.run.in_place:
        return 1.0
    return 2.0 if max(size) <= AUTO_LIMIT else 1.0


def canvas_size(size: tuple[int, int], scale: float) -> tuple[int, int]:
    """(width, height) times ``scale``, each rounded half up."""
    return math.floor(size[0] * scale + 0.5), math.floor(size[1] * scale + 0.5)


def enlarge(pixels: PhotoPixels, size: tuple[int, int]) -> PhotoPixels:
    """A new array of ``size`` (width, height): a copy at the same size, else Lanczos. (H, W) or (H, W, C), uint8 or uint16."""
    height, width = pixels.shape[:2]
    if (width, height) == size:
        return pixels.copy()
    return np.asarray(cv2.resize(pixels, size, interpolation=cv2.INTER_LANCZOS4), pixels.dtype)
