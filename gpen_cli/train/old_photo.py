"""What age does to a print. Tones (what the photo's colours have become) and damage (what lies on top) are kept apart.

A restored photo keeps its tones: nobody asked for colours that were never there, or for other whites. So tones are put
on both the degraded crop and the one the net shall answer with; damage only on the degraded one.
"""

from __future__ import annotations

import cv2
import numpy as np

from gpen_cli.data import Float32Array
from gpen_cli.restore_crop import LUMA

SEPIA_BRIGHT, SEPIA_DARK = (1.0, 0.93, 0.78), (0.20, 0.13, 0.08)
"""RGB that white and black become in a fully sepia print: warm paper, brown silver. By eye, after scans of 1900 to 1930."""
YELLOW = (1.0, 0.95, 0.76)
"""RGB that white paper becomes when it is yellow through and through."""
FADING = (0.15, 0.5)
"""Share of the contrast that is lost; towards a light gray, as dyes and silver go."""
FADED_TO = (0.55, 0.8)
GRAIN = (2.0, 12.0)
"""Standard deviation, levels of 255, of the grain in mid-tones."""
GRAIN_WIDTH = (0.5, 1.6)
"""Standard deviation of a grain's blur, pixels of a 512 px crop."""
SCRATCHES = (1, 7)
SCRATCH_WIDTH = (0.6, 2.5)
"""Pixels of a 512 px crop."""
SPECKS = (0, 40)
SPECK_RADIUS = (0.5, 2.5)
_SHIFT = 4
"""Fractional bits of the points given to OpenCV's drawing."""


def gray(picture: Float32Array) -> Float32Array:
    """(S, S, 3) 0..1 -> the same shape, the luma in all three channels."""
    return np.repeat((picture @ LUMA)[..., None], 3, axis=2).astype(np.float32)


def aged_tones(picture: Float32Array, rng: np.random.Generator) -> Float32Array:
    """Sepia or yellow paper, and often fading. (S, S, 3) float32, 0..1 -> the same."""
    if rng.random() < 0.5:
        picture = sepia(picture, float(rng.uniform(0.4, 1.0)))
    else:
        picture = yellowed(picture, float(rng.uniform(0.2, 1.0)))
    if rng.random() < 0.5:
        picture = faded(picture, float(rng.uniform(*FADING)), float(rng.uniform(*FADED_TO)))
    return picture


def sepia(picture: Float32Array, strength: float) -> Float32Array:
    """The luma as a scale from brown to warm white; strength 0 is plain gray, 1 the full tone."""
    luma = (picture @ LUMA)[..., None]
    dark, bright = (np.array(colour, np.float32) * strength for colour in (SEPIA_DARK, SEPIA_BRIGHT))
    bright = bright + np.float32(1.0 - strength)
    return (dark + luma * (bright - dark)).astype(np.float32)


def yellowed(picture: Float32Array, strength: float) -> Float32Array:
    """As seen through, or printed on, paper that has turned yellow by ``strength`` (0..1)."""
    return (picture * (1.0 - strength * (1.0 - np.array(YELLOW, np.float32)))).astype(np.float32)


def faded(picture: Float32Array, lost: float, towards: float) -> Float32Array:
    """``lost`` (0..1) of the contrast gone, towards the gray level ``towards``."""
    return (picture * (1.0 - lost) + lost * towards).astype(np.float32)


def damaged(picture: Float32Array, rng: np.random.Generator) -> Float32Array:
    """Grain, and mostly scratches and specks. (S, S, 3) float32, 0..1 -> the same."""
    picture = grained(picture, rng)
    if rng.random() < 0.7:
        picture = scratched(picture, rng)
    return picture


def grained(picture: Float32Array, rng: np.random.Generator) -> Float32Array:
    """Gray noise with a grain size, strongest in mid-tones as silver's is."""
    size = picture.shape[0]
    noise = rng.standard_normal((size, size), dtype=np.float32)
    noise = cv2.GaussianBlur(noise, (0, 0), float(rng.uniform(*GRAIN_WIDTH)) * size / 512 + 0.2)
    noise *= float(rng.uniform(*GRAIN)) / 255 / max(float(noise.std()), 1e-6)
    luma = picture @ LUMA
    strength = 4.0 * luma * (1.0 - luma) * 0.7 + 0.3
    return np.asarray(np.clip(picture + (noise * strength)[..., None], 0.0, 1.0), np.float32)


def scratched(picture: Float32Array, rng: np.random.Generator) -> Float32Array:
    """Thin, slightly bent lines and specks, light or dark, partly see-through."""
    size = picture.shape[0]
    unit = size / 512
    light, dark = (np.zeros((size, size), np.float32) for _ in range(2))
    for _ in range(int(rng.integers(SCRATCHES[0], SCRATCHES[1] + 1))):
        layer = light if rng.random() < 0.7 else dark  # emulsion scraped off shows the paper; dirt is rarer
        _draw_scratch(layer, rng, unit)
    for _ in range(int(rng.integers(SPECKS[0], SPECKS[1] + 1))):
        layer = light if rng.random() < 0.5 else dark
        centre = rng.uniform(0, size, 2)
        radius = max(float(rng.uniform(*SPECK_RADIUS)) * unit, 0.5)
        cv2.circle(layer, _fixed(centre), round(radius * 2**_SHIFT), _opacity(rng), -1, cv2.LINE_AA, _SHIFT)
    for layer, level in ((light, float(rng.uniform(0.8, 1.0))), (dark, float(rng.uniform(0.0, 0.2)))):
        cover = cv2.GaussianBlur(layer, (0, 0), 0.4)[..., None]
        picture = picture + cover * (level - picture)
    return np.asarray(np.clip(picture, 0.0, 1.0), np.float32)


def _draw_scratch(layer: Float32Array, rng: np.random.Generator, unit: float) -> None:
    """One bent line on the (S, S) cover, in place."""
    size = layer.shape[0]
    start = rng.uniform(-0.1 * size, 1.1 * size, 2)
    steep = rng.normal(0.0, 0.25) + (
        np.pi / 2 if rng.random() < 0.7 else 0.0
    )  # film and prints are pulled along one axis
    length = float(rng.uniform(0.2, 1.2)) * size
    along = np.array([np.cos(steep), np.sin(steep)]) * length
    bend = np.array([-along[1], along[0]]) * float(rng.normal(0.0, 0.04))
    at = np.linspace(0.0, 1.0, 9)[:, None]
    points = start + at * along + 4.0 * at * (1.0 - at) * bend
    width = max(1, round(float(rng.uniform(*SCRATCH_WIDTH)) * unit))
    line = np.round(points * 2**_SHIFT).astype(np.int32).reshape(-1, 1, 2)
    cv2.polylines(layer, [line], False, _opacity(rng), width, cv2.LINE_AA, _SHIFT)


def _opacity(rng: np.random.Generator) -> float:
    return float(rng.uniform(0.3, 0.95))


def _fixed(point: np.ndarray) -> tuple[int, int]:
    return round(float(point[0]) * 2**_SHIFT), round(float(point[1]) * 2**_SHIFT)
