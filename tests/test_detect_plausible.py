"""Which landmarks can be aligned: any angle and three-quarter views, but no collapsed, mirrored or far-away points."""

from __future__ import annotations

import numpy as np
import pytest

from gpen_cli.data import Face
from gpen_cli.detect.plausible import landmark_fault, tilt

FRONTAL = np.array([[-20, -20], [20, -20], [0, 2], [-16, 24], [16, 24]], np.float64)
"""Of a face with a box of 100 px around (0, 0)."""


def face(points: np.ndarray, *, side: float = 100, at: tuple[float, float] = (300, 200)) -> Face:
    box = np.array([-0.5, -0.5, 0.5, 0.5]) * side + np.tile(at, 2)
    return Face(box.astype(np.float32), (points + at).astype(np.float32), 0.95)


def turned(points: np.ndarray, degrees: float) -> np.ndarray:
    """Clockwise in the picture, where y points down."""
    angle = np.radians(degrees)
    return points @ np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])


@pytest.mark.parametrize("degrees", range(-180, 180, 15))
def test_a_face_at_any_angle_passes_and_its_tilt_is_known(degrees: int):
    tilted = face(turned(FRONTAL, degrees))
    assert landmark_fault(tilted) is None
    assert (tilt(tilted) - degrees + 180) % 360 - 180 == pytest.approx(0, abs=0.01)


def test_a_three_quarter_view_passes():
    points = FRONTAL * [0.45, 1] + [12, 0]
    points[2] += [16, 0]
    assert landmark_fault(face(points)) is None


@pytest.mark.parametrize(
    ("points", "said"),
    [
        (FRONTAL * 0, "one point or line"),
        (FRONTAL * [0, 1], "one point or line"),
        (FRONTAL * [1, 0], "one point or line"),
        (turned(FRONTAL * [1, 0.01], 30), "one point or line"),
        (np.array([[-2, -20], [2, -20], [20, 2], [-10, 24], [5, 24]]), "from the side"),
        (FRONTAL * [1, -1], "mouth lies above"),
        (FRONTAL * [-1, 1], "mouth lies above"),
        (FRONTAL + np.array([90, 0]), "far outside"),
        (FRONTAL * 5, "far outside"),
        (FRONTAL * np.nan, "not finite"),
        (np.where(FRONTAL == 2, np.inf, FRONTAL), "not finite"),
    ],
)
def test_degenerate_landmarks_are_named(points: np.ndarray, said: str):
    with np.errstate(invalid="ignore"):
        assert said in (landmark_fault(face(points)) or "")


def test_an_empty_box_is_named():
    assert "empty" in (landmark_fault(face(FRONTAL, side=0)) or "")
