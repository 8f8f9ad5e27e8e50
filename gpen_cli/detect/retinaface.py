"""Priors, decoding and suppression for every RetinaFace net, in NumPy; no net lives here.

RetinaFace (Deng et al., arXiv:1905.00641) regresses boxes and five points against anchors laid out as in SSD (Liu et
al., arXiv:1512.02325); the MobileNet0.25 and the ResNet-50 net share one layout, so one decode serves both.
Net input: (1, 3, H, W) float32, BGR minus the ImageNet mean, sides multiples of 32. Net output, one row an anchor: box
offsets (N, 4), class probabilities (N, 2: background, face), point offsets (N, 10: x0, y0, x1, y1, …).
"""

from __future__ import annotations

from functools import lru_cache

import cv2
import numpy as np
import numpy.typing as npt

from gpen_cli.data import Face, Float32Array, UInt8Image

MEAN_RGB = (123, 117, 104)
"""Subtracted from 0..255 pixels; what the nets were trained on, and therefore the most neutral padding."""

STEPS = (8, 16, 32)
"""Strides of the three pyramid levels in input pixels."""

ANCHOR_SIDES = ((16, 32), (64, 128), (256, 512))
"""Sides of the two square anchors of each level's cells, in input pixels."""

VARIANCES = (0.1, 0.2)
"""SSD's scaling of centre and size offsets."""

NMS_IOU = 0.4
"""Two boxes that overlap more than this are one face (the value of RetinaFace's own evaluation)."""

TOP_K = 5000
"""At most so many anchors, the best by score, enter suppression: a bound on time when a net goes wild. A face has up to
ten anchors above the threshold."""

_EDGE = np.float32(0.5)  # from coordinates that count from the picture's edge to pixel centres at whole numbers
_MAX_LOG_GROWTH = 8.0  # exp() of more overflows into boxes of no use; no real face is e^8 times its anchor


def padded_side(side: int) -> int:
    """The next multiple of the coarsest stride: below it the three levels would not line up."""
    return -(-side // STEPS[-1]) * STEPS[-1]


@lru_cache(maxsize=16)
def priors(width: int, height: int) -> Float32Array:
    """(N, 4) float32 anchors of an input of that size: centre x, centre y, width, height in input pixels.

    Order as the nets put out: level, then row, then column, then the level's two sides. Here coordinates count from the
    picture's edge (a cell's anchor is centred in the cell); ``decode`` moves them to pixel centres. Read-only, cached.
    """
    levels = []
    for step, sides in zip(STEPS, ANCHOR_SIDES, strict=True):
        columns, rows = -(-width // step), -(-height // step)
        level = np.empty((rows, columns, len(sides), 4), np.float32)
        level[..., 0] = ((np.arange(columns) + 0.5) * step)[None, :, None]
        level[..., 1] = ((np.arange(rows) + 0.5) * step)[:, None, None]
        level[..., 2:] = np.array(sides, np.float32)[None, None, :, None]
        levels.append(level.reshape(-1, 4))
    anchors = np.concatenate(levels)
    anchors.flags.writeable = False
    return anchors


def net_input(pixels: UInt8Image) -> Float32Array:
    """(H, W, 3) uint8 RGB -> (1, 3, H', W') float32 BGR minus the mean; H', W' padded right and below with the mean."""
    height, width = pixels.shape[:2]
    planes = np.zeros((1, 3, padded_side(height), padded_side(width)), np.float32)
    for channel, plane in enumerate(reversed(cv2.split(pixels))):  # planes are read sooner than every third byte
        mean = np.float32(MEAN_RGB[2 - channel])
        np.subtract(plane, mean, out=planes[0, channel, :height, :width], dtype=np.float32)
    return planes


def decode(
    offsets: Float32Array,
    probabilities: Float32Array,
    point_offsets: Float32Array,
    *,
    input_size: tuple[int, int],
    threshold: float,
) -> list[Face]:
    """Faces with a score of at least ``threshold``, best first, suppressed among themselves.

    offsets (N, 4), probabilities (N, 2), point_offsets (N, 10) as the net put them out for an input of ``input_size``
    (width, height). Boxes and points leave in the input's pixels with pixel centres at whole numbers. The nets answer
    in coordinates that count from the picture's edge, half a pixel more: found by mirroring photos (docs/detection.md).
    Rows that are not finite are dropped here, they could not be compared.
    """
    scores = probabilities[:, 1]
    picked = np.flatnonzero(scores >= threshold)  # NaN is never picked
    if picked.size == 0:
        return []
    picked = picked[np.argsort(-scores[picked], kind="stable")][:TOP_K]
    anchors = priors(*input_size)[picked]
    centres, sides = anchors[:, :2], anchors[:, 2:]
    middle = centres + offsets[picked, :2] * VARIANCES[0] * sides
    half = 0.5 * sides * np.exp(np.minimum(offsets[picked, 2:] * VARIANCES[1], _MAX_LOG_GROWTH))
    boxes: Float32Array = np.concatenate([middle - half, middle + half], axis=1).astype(np.float32) - _EDGE
    points = point_offsets[picked].reshape(-1, 5, 2) * VARIANCES[0] * sides[:, None] + centres[:, None] - _EDGE
    points = points.astype(np.float32)
    finite = np.flatnonzero(np.isfinite(boxes).all(axis=1) & np.isfinite(points).all(axis=(1, 2)))
    kept = finite[suppress(boxes[finite], NMS_IOU)]
    return [Face(boxes[i], points[i], float(np.clip(scores[picked[i]], 0.0, 1.0))) for i in kept]


def suppress(boxes: Float32Array, iou: float) -> npt.NDArray[np.intp]:
    """Indices of the boxes that greedy non-maximum suppression keeps. boxes: (N, 4) x0, y0, x1, y1, best first.

    A box goes when its intersection over union with a kept, better one is more than ``iou``.
    """
    box_areas = areas(boxes)
    kept = []
    waiting = np.arange(len(boxes))
    while waiting.size:
        best, waiting = waiting[0], waiting[1:]
        kept.append(best)
        shared = intersections(boxes[best], boxes[waiting])
        waiting = waiting[shared <= iou * (box_areas[best] + box_areas[waiting] - shared)]
    return np.array(kept, np.intp)


def areas(boxes: Float32Array) -> Float32Array:
    """(N,) areas of (N, 4) boxes; 0 for those turned inside out."""
    sides: Float32Array = np.maximum(boxes[:, 2:] - boxes[:, :2], 0)
    return sides[:, 0] * sides[:, 1]


def intersections(box: Float32Array, others: Float32Array) -> Float32Array:
    """Areas that ``box`` (4,) shares with each of ``others`` (N, 4)."""
    width = np.minimum(others[:, 2], box[2]) - np.maximum(others[:, 0], box[0])
    height = np.minimum(others[:, 3], box[3]) - np.maximum(others[:, 1], box[1])
    shared: Float32Array = np.maximum(width, 0) * np.maximum(height, 0)
    return shared
