"""Can a face be aligned by the five points a detector gave it? Pure geometry, in any frame, at any in-plane angle."""

from __future__ import annotations

import math

import numpy as np

from gpen_cli.data import Face, Float64Array

MIN_EYE_DISTANCE = 0.1
"""Of the box's side. Frontal faces have 0.36, three-quarter views 0.14 and more; below 0.1 all were full profiles,
where the net guesses the hidden half (measured on shared/faces/whole, docs/detection.md)."""

MIN_THICKNESS = 0.04
"""Root mean square distance of the points from their best line, of the box's side; frontal faces have about 0.15."""

BOX_SLACK = 0.3
"""Points may lie outside the box by so much of its side: the nose tip of turned heads does."""


def landmark_fault(face: Face) -> str | None:
    """Why this face's landmarks cannot be used, as a clause to put after "skipped:", or None.

    Faces at any in-plane angle and three-quarter views pass; mirrored points do not: no similarity puts them right.
    """
    box, points = face.box.astype(np.float64), face.landmarks.astype(np.float64)
    if not (np.isfinite(box).all() and np.isfinite(points).all()):
        return "its box or landmarks are not finite numbers"
    sides = box[2:] - box[:2]
    if sides.min() <= 0:
        return "its box is empty"
    side = float(sides.max())
    if (points < box[:2] - BOX_SLACK * side).any() or (points > box[2:] + BOX_SLACK * side).any():
        return "its landmarks lie far outside its box"
    if _thickness(points) < MIN_THICKNESS * side:
        return "its landmarks fall on one point or line"
    eyes, down = _axes(points)
    if math.hypot(*eyes) < MIN_EYE_DISTANCE * side:
        return "it is seen from the side, its eyes fall almost on one point"
    if eyes[0] * down[1] - eyes[1] * down[0] <= 0:
        return "its mouth lies above its eyes"
    return None


def tilt(face: Face) -> float:
    """Degrees, -180..180, by which the face is turned clockwise in its plane; 0 is upright.

    From the eyes and from the line eyes to mouth together: on a turned head the eyes alone are noisy.
    """
    eyes, down = _axes(face.landmarks.astype(np.float64))
    across = eyes[0] + down[1], eyes[1] - down[0]  # down, turned back by a quarter, points as the eyes do
    return math.degrees(math.atan2(across[1], across[0]))


def _axes(points: Float64Array) -> tuple[Float64Array, Float64Array]:
    """(2,) each: from the image-left to the image-right eye; from the middle of the eyes to that of the mouth."""
    return points[1] - points[0], points[3:].mean(axis=0) - points[:2].mean(axis=0)


def _thickness(points: Float64Array) -> float:
    """Root mean square distance of (N, 2) points from the line that fits them best; 0 when they are collinear."""
    offset = points - points.mean(axis=0)
    xx, yy, xy = (offset[:, 0] ** 2).mean(), (offset[:, 1] ** 2).mean(), (offset[:, 0] * offset[:, 1]).mean()
    least = (xx + yy) / 2 - math.hypot((xx - yy) / 2, xy)  # the smaller eigenvalue of the covariance
    return math.sqrt(max(float(least), 0.0))
