"""Where eyes, nostrils, skin and hair lie in a crop, and what is measured there.

Every region hangs on the original's five landmarks and is sized in eye distances, so it is the same for every version of a face.
"""

from __future__ import annotations

import functools

import cv2
import numpy as np

from gpen_cli.data import Face, Float32Array, UInt8Image
from gpen_cli.detect.bundled import BundledDetector
from gpen_cli.detect.retinaface import MEAN_RGB
from gpen_cli.geometry import template_points
from gpen_cli.restore_crop import LUMA

MARGIN = 32
"""Px of mean colour around the crop when the detector looks at it."""
LEAST_SCORE = 0.3
"""Of the detector's answers; those of a badly degraded face are low, and where to look is known."""
FARTHEST = 0.6
"""Eye distances (mean of the five points) from the template within which an answer is the crop's own face."""
STRONGEST = 0.1
"""Share of a region's pixels whose gradients count as its edges."""
EDGE_SIGMA = 1.0
"""Px of the Gaussian under which gradients are taken: noise of 15 levels has a mean gradient of 4 levels a px there, lids 20."""
WINDOW = 1 / 32
"""Side of the window of the local standard deviation, as a share of the crop's: 9 px of 256, 17 px of 512."""

Padding = tuple[int, int, int, int]


@functools.cache
def detector() -> BundledDetector:
    """One a process."""
    return BundledDetector(1)


def landmarks(picture: UInt8Image) -> Float32Array | None:
    """(5, 2) px of the crop's own face as the bundled detector sees it, or None.

    One pass at the crop's own size (faces of 150 and 300 px, where the detector is at its best), best score of those in place.
    """
    side = picture.shape[0]
    canvas = np.empty((side + 2 * MARGIN, side + 2 * MARGIN, 3), np.uint8)
    canvas[:] = MEAN_RGB
    canvas[MARGIN:-MARGIN, MARGIN:-MARGIN] = picture
    template = template_points("gpen", side)
    for face in detector().detect(canvas, LEAST_SCORE):
        points = _in_crop(face)
        if landmark_error(points, template) <= FARTHEST:
            return points
    return None


def _in_crop(face: Face) -> Float32Array:
    return np.asarray(face.landmarks - np.float32(MARGIN), np.float32)


def landmark_error(points: np.ndarray, true: np.ndarray) -> float:
    """Mean distance of five points, in the true ones' eye distances."""
    return float(np.hypot(*(points - true).T).mean() / eye_distance(true))


def eye_distance(points: np.ndarray) -> float:
    """Px between the eyes' middles."""
    return float(np.hypot(*(points[1] - points[0])))


def masks(points: np.ndarray, side: int, padding: Padding = (0, 0, 0, 0)) -> dict[str, np.ndarray]:
    """Region -> (S, S) bool: lids, nostrils, skin (cheeks and forehead), hair (the band above the forehead).

    points: the original's (5, 2). padding: px at left, top, right, bottom that show no photo and belong to no region.
    """
    unit = eye_distance(points)
    eyes, left_mouth, right_mouth = points[:2].mean(axis=0), points[3], points[4]
    cheeks = [
        (points[0] + left_mouth) / 2 - (0.06 * unit, 0.0),
        (points[1] + right_mouth) / 2 + (0.06 * unit, 0.0),
    ]
    boxes = {
        "lids": [(point, 0.32, 0.16) for point in points[:2]],
        "nostrils": [(points[2] + (0.0, 0.12 * unit), 0.32, 0.14)],
        "skin": [(cheek, 0.16, 0.16) for cheek in cheeks] + [(eyes - (0.0, 0.70 * unit), 0.35, 0.10)],
        "hair": [(eyes - (0.0, 1.35 * unit), 0.60, 0.22)],
    }
    shown = np.zeros((side, side), bool)
    left, top, right, bottom = padding
    shown[top : side - bottom, left : side - right] = True
    return {name: _inside(parts, unit, side) & shown for name, parts in boxes.items()}


def _inside(boxes: list[tuple[np.ndarray, float, float]], unit: float, side: int) -> np.ndarray:
    """Boxes given by centre (px), half width and half height (eye distances)."""
    y, x = np.mgrid[0:side, 0:side]
    found = np.zeros((side, side), bool)
    for (cx, cy), width, height in boxes:
        found |= (abs(x - cx) <= width * unit) & (abs(y - cy) <= height * unit)
    return found


def luma(picture: UInt8Image) -> Float32Array:
    """(H, W) levels of 255, Rec. 601."""
    return np.asarray(picture.astype(np.float32) @ LUMA, np.float32)


def lightness(picture: UInt8Image, region: np.ndarray) -> float:
    """CIE L*, 0 to 100, of the region's middle pixel: of the skin and of the light on it, which a photo does not tell apart."""
    if not region.any():
        return float("nan")
    lab = cv2.cvtColor(picture[region][None].astype(np.float32) / 255, cv2.COLOR_RGB2LAB)
    return float(np.median(lab[..., 0]))


def edge_strength(levels: Float32Array, region: np.ndarray) -> float:
    """Levels a px: mean gradient of the strongest tenth of a region's pixels, after a blur of 1 px; each picture's own tenth."""
    if not region.any():
        return float("nan")
    smooth = cv2.GaussianBlur(levels, (0, 0), EDGE_SIGMA)
    steep = np.hypot(cv2.Scharr(smooth, cv2.CV_32F, 1, 0), cv2.Scharr(smooth, cv2.CV_32F, 0, 1))[region] / 32.0
    return float(np.sort(steep)[-max(1, round(STRONGEST * steep.size)) :].mean())


def local_deviation(levels: Float32Array, region: np.ndarray) -> float:
    """Levels: root mean square, over the region, of the standard deviation in a window around each pixel."""
    if not region.any():
        return float("nan")
    size = 2 * round(WINDOW * levels.shape[0] / 2) + 1
    exact = levels.astype(np.float64)
    mean, square = cv2.blur(exact, (size, size)), cv2.blur(exact * exact, (size, size))
    return float(np.sqrt(np.clip(square - mean * mean, 0.0, None)[region].mean()))
