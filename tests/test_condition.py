"""Warnings about faces that are hard to restore: for those, and not for others, whatever their size and roll."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
from stand_ins import face_at

from gpen_cli.condition import face_warnings, turn_of
from gpen_cli.covered import covering
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


@pytest.fixture(scope="module")
def crops(astronaut, hopper):
    """The package faces, aligned at 256 px."""
    detector = make_detector(FaceOptions(), r50_weights=None, device="cpu", threads=1)
    found = []
    for photo in (astronaut, hopper):
        (face,) = find_faces(detector, photo, FaceOptions()).faces
        found.append(warp_crop(photo, crop_from_photo(face.landmarks, "gpen", 256), 256))
    return found


def over(crop, colour, *ovals):
    """The crop with ovals (x, y, radius across, radius down, px) of a colour drawn over it."""
    picture = crop.copy()
    for x, y, across, down in ovals:
        cv2.ellipse(picture, (x, y), (across, down), 0, 0, 360, colour, -1, cv2.LINE_AA)
    return picture


GLASSES = ((100, 122, 27, 20), (156, 122, 27, 20))
COVERS = {
    "dark glasses": ("both eyes", (22, 22, 25), GLASSES),
    "a fringe": ("an eye", (35, 25, 20), (GLASSES[0],)),
    "a blue mask": ("the mouth", (140, 180, 210), ((128, 190, 55, 45),)),
    "a black mask": ("the mouth", (30, 30, 32), ((128, 190, 55, 45),)),
}


@pytest.mark.parametrize("blur", [0.0, 3.0])
@pytest.mark.parametrize("cover", COVERS)
def test_what_lies_over_a_face_is_told(crops, cover, blur):
    part, colour, ovals = COVERS[cover]
    for crop in crops:
        picture = over(crop, colour, *ovals)
        assert covering(cv2.GaussianBlur(picture, (0, 0), blur) if blur else picture) == part


@pytest.mark.parametrize("change", ["none", "blur", "dark", "bright", "gray", "small"])
def test_an_uncovered_face_is_left_in_peace(crops, change):
    ways = {
        "none": lambda crop: crop,
        "blur": lambda crop: cv2.GaussianBlur(crop, (0, 0), 4.0),
        "dark": lambda crop: (crop * 0.35).astype(np.uint8),
        "bright": lambda crop: (255 - (255 - crop.astype(int)) * 0.6).astype(np.uint8),
        "gray": lambda crop: np.repeat(crop.mean(axis=2, keepdims=True), 3, axis=2).astype(np.uint8),
        "small": lambda crop: cv2.resize(cv2.resize(crop, (32, 32), interpolation=cv2.INTER_AREA), (512, 512)),
    }
    assert [covering(ways[change](crop)) for crop in crops] == [None, None]


def test_the_warning_says_which_part_and_what_to_do(crops):
    face = face_at(300, 300, 200)
    picture = over(crops[0], COVERS["a blue mask"][1], *COVERS["a blue mask"][2])
    (warning,) = face_warnings(AlignedFace(face, "net", picture, crop_from_photo(face.landmarks, "gpen", 256)))
    assert "the mouth may be covered" in warning
    assert "--fidelity-weight" in warning
