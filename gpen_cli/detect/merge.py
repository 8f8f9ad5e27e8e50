"""From what several passes saw to one face a person. Pure NumPy, photo frame."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gpen_cli.data import Face, Float32Array
from gpen_cli.detect.retinaface import NMS_IOU, areas, intersections, suppress

IDEAL_SIDE = 190.0
"""Box side in net pixels where landmarks are most exact: the middle of 96 to 384, by ratio (docs/detection.md)."""

MAX_FACES = 2000
"""Of one photo, the best by score: a bound on time and report when a net goes wild (CodeFormer#90: 9764 faces)."""

NESTED_AREA = 0.25
"""A box with its centre in a bigger one of over four times its area is an eye or an ear, not a face (GFPGAN#86)."""

NESTED_SHARE = 0.7
"""A box that lies with so much of its area in a bigger one is a part of that face, or the same face seen badly."""


@dataclass(frozen=True)
class Sighting:
    """One answer of the detector. face: photo frame, finite, box not clipped; net_side: the box's side in the pixels
    the net saw; fault: why its landmarks cannot be used, or None."""

    face: Face
    net_side: float
    fault: str | None = None


def distinct(sightings: list[Sighting]) -> list[Sighting]:
    """Drop duplicates and boxes nested in a bigger one; at most MAX_FACES are looked at, the best by score.

    Of two finds of one face that one stays whose size suited the net better by an octave: scores are near 1 at every
    scale and would decide by noise, while landmarks are two to three times more exact at the right size. Within an
    octave the better score stays, of a box and a part of it the bigger. Largest first; equal input gives equal output.
    """
    best = sorted(sightings, key=lambda s: -s.face.score)[:MAX_FACES]
    if not best:
        return []
    best.sort(key=lambda s: _octaves_off(s.net_side))  # stable: then by score
    kept = [best[i] for i in suppress(_boxes(best), NMS_IOU)]
    kept.sort(key=lambda s: -float(areas(s.face.box[None])[0]))
    boxes = _boxes(kept)
    alone = np.ones(len(kept), bool)
    for i in range(len(kept)):
        if alone[i]:
            alone[i + 1 :] &= ~_nested(boxes[i + 1 :], boxes[i])
    return [sighting for sighting, is_alone in zip(kept, alone, strict=True) if is_alone]


def _octaves_off(net_side: float) -> int:
    return int(abs(math.log2(max(net_side, 1.0) / IDEAL_SIDE)))


def covered(sighting: Sighting, others: list[Sighting]) -> bool:
    """Whether this is the same as, or mostly a part of, one of ``others``."""
    if not others:
        return False
    box = sighting.face.box
    return bool((intersections(box, _boxes(others)) > NMS_IOU * max(areas(box[None])[0], 1e-6)).any())


def _boxes(sightings: list[Sighting]) -> Float32Array:
    return np.stack([sighting.face.box for sighting in sightings])


def _nested(boxes: Float32Array, bigger: Float32Array) -> npt.NDArray[np.bool_]:
    """Which of ``boxes`` (N, 4), none larger than ``bigger`` (4,), are parts of the face there."""
    box_areas = areas(boxes)
    x, y = (boxes[:, 0] + boxes[:, 2]) / 2, (boxes[:, 1] + boxes[:, 3]) / 2
    inside = (x > bigger[0]) & (x < bigger[2]) & (y > bigger[1]) & (y < bigger[3])
    small = box_areas < NESTED_AREA * areas(bigger[None])
    nested: npt.NDArray[np.bool_] = (inside & small) | (intersections(bigger, boxes) > NESTED_SHARE * box_areas)
    return nested
