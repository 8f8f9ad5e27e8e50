"""Warnings about faces that are hard to restore: for those, and not for others, whatever their size and roll."""

from __future__ import annotations

import numpy as np
import pytest
from stand_ins import face_at

from gpen_cli.condition import face_warnings, turn_of
from gpen_cli.data import AlignedFace, Face
from gpen_cli.detect import make_detector
from gpen_cli.detect.search import find_faces
from gpen_cli.geometry import crop_from_photo, warp_crop
from gpen_cli.options import FaceOptions


def aligned(face: Face, level: int = 120) -> AlignedFace:
    return AlignedFace(
        face, "net", np.full((256, 256, 3), level, np.uint8), crop_from_photo(face.landmarks, "gpen", 256)
    )


def turned(face: Face, share: float) -> Face:
    """The nose moved along the eye line by ``share`` eye distances."""
    points = face.landmarks.copy()
    points[2] += share * (points[1] - points[0])
    return Face(face.box, points, face.score)


@pytest.mark.parametrize("angle", [0.0, 0.7, -2.5])
@pytest.mark.parametrize("side", [90, 900])
def test_a_good_face_has_no_warning(angle, side):
    assert face_warnings(aligned(face_at(500, 500, side, angle=angle))) == ()


@pytest.mark.parametrize("angle", [0.0, 1.2])
def test_a_face_turned_away(angle):
    (warning,) = face_warnings(aligned(turned(face_at(300, 300, 200, angle=angle), 0.6)))
    assert "turned" in warning
    assert turn_of(turned(face_at(300, 300, 200, angle=angle), -0.6)) == pytest.approx(0.6, abs=0.02)


@pytest.mark.parametrize(("level", "word"), [(5, "black"), (245, "burnt"), (255, "burnt")])
def test_a_face_too_dark_or_bright(level, word):
    (warning,) = face_warnings(aligned(face_at(300, 300, 200), level))
    assert word in warning


def test_a_very_small_face():
    (warning,) = face_warnings(aligned(face_at(50, 50, 30)))
    assert "very small" in warning


def test_the_package_faces_have_none(astronaut, hopper):
    detector = make_detector(FaceOptions(), r50_weights=None, device="cpu", threads=1)
    for photo in (astronaut, hopper):
        for face in find_faces(detector, photo, FaceOptions()).faces:
            matrix = crop_from_photo(face.landmarks, "gpen", 256)
            assert face_warnings(AlignedFace(face, "net", warp_crop(photo, matrix, 256), matrix)) == ()
