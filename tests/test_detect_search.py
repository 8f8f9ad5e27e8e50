"""Scales, merging, limits and turned photos, with detectors whose answers are written down."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from gpen_cli.data import Face, UInt8Image
from gpen_cli.detect.retinaface import MEAN_RGB
from gpen_cli.detect.search import Found, find_faces
from gpen_cli.options import FaceOptions

POINTS = np.array([[-0.2, -0.2], [0.2, -0.2], [0, 0.02], [-0.16, 0.24], [0.16, 0.24]])
"""Of a frontal face, in units of its box's side, around the middle of the box."""

ONE_TO_ONE = FaceOptions(det_size=1000)
"""A photo of 1000x750 is shown as it is in the first pass."""


def face(x: float, y: float, side: float, score: float = 0.99, points: np.ndarray = POINTS) -> Face:
    """A face with its middle at (x, y)."""
    box = np.array([x - side / 2, y - side / 2, x + side / 2, y + side / 2], np.float32)
    return Face(box, (points * side + [x, y]).astype(np.float32), score)


class Scripted:
    """Answers with faces given in photo pixels, as a net would that sees them in the first pass alone."""

    name = "scripted"

    def __init__(self, *faces: Face) -> None:
        self.faces = faces
        self.shapes: list[tuple[int, ...]] = []

    def detect(self, pixels: UInt8Image, threshold: float) -> list[Face]:
        self.shapes.append(pixels.shape)
        if len(self.shapes) % 2 == 0:
            return []
        margin = 32
        return [
            replace(one, box=one.box + margin, landmarks=one.landmarks + margin)
            for one in self.faces
            if one.score >= threshold
        ]


def find(*faces: Face, size: tuple[int, int] = (1000, 750), **options: object) -> Found:
    photo = np.zeros((size[1], size[0], 3), np.uint8)
    return find_faces(Scripted(*faces), photo, replace(ONE_TO_ONE, **options))


def sides(found: Found) -> list[int]:
    return [round(one.side) for one in found.faces]


def reasons(found: Found) -> list[str]:
    return [reason for _, reason in found.rejected]


def test_a_face_comes_back_where_it_is():
    one = face(500, 300, 100)
    (found,) = find(one).faces
    np.testing.assert_allclose(found.box, one.box, atol=1e-3)
    np.testing.assert_allclose(found.landmarks, one.landmarks, atol=1e-3)
    assert found.box.dtype == found.landmarks.dtype == np.float32


@pytest.mark.parametrize("size", [(2001, 1503), (333, 517), (40, 30), (5000, 700)])
def test_pixel_centres_survive_both_scales(size: tuple[int, int]):
    """A blob drawn in the photo is found where it is, at any scale: mapping back adds no shift."""

    class BlobFinder:
        name = "blob"

        def detect(self, pixels: UInt8Image, threshold: float) -> list[Face]:
            bright = np.maximum(pixels.astype(np.float64).sum(axis=2) - sum(MEAN_RGB), 0)
            x = (bright.sum(axis=0) * np.arange(pixels.shape[1])).sum() / bright.sum()
            y = (bright.sum(axis=1) * np.arange(pixels.shape[0])).sum() / bright.sum()
            return [face(x, y, 60)]

    width, height = size
    middle = np.array([width / 4, height / 3])
    ys, xs = np.mgrid[:height, :width]
    blob = np.exp(-((xs - middle[0]) ** 2 + (ys - middle[1]) ** 2) / (2 * (min(size) / 20) ** 2))
    photo = np.round(np.array(MEAN_RGB) + 130 * blob[..., None]).astype(np.uint8)
    found = find_faces(BlobFinder(), photo, FaceOptions(min_face=1))
    eyes = [one.landmarks[:2].mean(axis=0) for one in found.faces]
    sides = [one.landmarks[1, 0] - one.landmarks[0, 0] for one in found.faces]  # 0.4 of the box
    for eye, side in zip(eyes, sides, strict=True):
        np.testing.assert_allclose(eye + np.array([0, side / 2]), middle, atol=0.25)


def test_one_pixel_more_changes_the_plan_by_a_pixel():
    shapes = []
    for width in range(301, 3000, 97):
        pair = []
        for side in (width, width + 1):  # the picture's content is of no matter
            detector = Scripted()
            find_faces(detector, np.zeros((side * 3 // 4, side, 3), np.uint8), FaceOptions())
            pair.append(detector.shapes)
        shapes.append(np.abs(np.array(pair[0]) - np.array(pair[1])).max())
    assert max(shapes) <= 4  # an enlarged photo grows by two pixels for one, and its height by rounding


@pytest.mark.parametrize("size", [(1, 1), (1, 5000), (33000, 64), (3, 2), (64, 33000), (300_000, 1)])
def test_strange_shapes_pass_quickly(size: tuple[int, int]):
    detector = Scripted()
    begin = time.perf_counter()
    found = find_faces(detector, np.zeros((size[1], size[0], 3), np.uint8), FaceOptions())
    assert found == Found(())
    assert time.perf_counter() - begin < 2
    assert max(height * width for height, width, _ in detector.shapes) < 3_000_000


def test_duplicates_are_one_face():
    assert sides(find(face(500, 300, 100), face(504, 302, 104, 0.95), face(497, 299, 97, 0.92))) == [100]


def test_both_passes_see_one_face_once_and_the_better_size_wins():
    class AtEveryScale:
        name = "every scale"

        def __init__(self) -> None:
            self.calls = 0

        def detect(self, pixels: UInt8Image, threshold: float) -> list[Face]:
            self.calls += 1
            fine = self.calls == 1
            return [face(532, 332, 800, 0.999)] if fine else [face(63 + 500 / 4, 63 + 300 / 4, 200, 0.95)]

    found = find_faces(AtEveryScale(), np.zeros((750, 1000, 3), np.uint8), ONE_TO_ONE)
    assert [one.score for one in found.faces] == [0.95]  # 200 px suits the net, 800 px does not


def test_nested_boxes_are_no_faces():
    eye, mouth, ear = face(460, 270, 30, 0.999), face(500, 345, 45, 0.99), face(545, 300, 49, 0.99)
    found = find(face(500, 300, 100, 0.91), eye, mouth, ear)
    assert sides(found) == [100]
    assert found.rejected == ()


def test_neighbours_are_faces():
    behind = face(590, 250, 60)  # overlaps, with its centre outside
    assert sides(find(face(500, 300, 160), behind, face(700, 300, 150))) == [160, 60, 150]


def test_faults_are_rejected_with_a_reason_and_hide_no_face():
    collapsed = face(500, 300, 200, 0.999, POINTS * 0)
    found = find(collapsed, face(510, 300, 90, 0.92), face(800, 300, 80, 0.95, POINTS * [1, -1]))
    assert sides(found) == [90]
    assert reasons(found) == ["its landmarks fall on one point or line", "its mouth lies above its eyes"]


def test_a_fault_seen_in_one_pass_is_no_matter_when_the_other_saw_well():
    assert find(face(500, 300, 100), face(502, 300, 100, 0.99, POINTS * 0)).rejected == ()


def test_numbers_that_are_none_do_not_reach_the_report():
    broken = face(500, 300, 100)
    broken = replace(broken, landmarks=broken.landmarks * np.float32(np.nan))
    found = find(broken, face(200, 200, 50))
    assert sides(found) == [50]
    ((rejected, reason),) = found.rejected
    assert "finite" in reason
    assert np.isfinite(rejected.landmarks).all()


def test_boxes_are_clipped_and_landmarks_are_not():
    found = find(face(20, 300, 100), face(995, 745, 100, points=POINTS))
    np.testing.assert_allclose(found.faces[0].box, [0, 250, 70, 350], atol=1e-3)
    np.testing.assert_allclose(found.faces[1].box, [945, 695, 999, 749], atol=1e-3)
    assert found.faces[1].landmarks.max() > 1000


def test_a_face_mostly_outside_is_rejected():
    assert reasons(find(face(-10, 300, 100))) == ["most of it lies outside the photo"]


CROWD = [face(100 + 200 * i, 300, side) for i, side in enumerate((20, 80, 40, 160))]


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ({}, [20, 80, 40, 160]),
        ({"min_face": 41}, [80, 160]),
        ({"max_face": 80}, [20, 80, 40]),
        ({"min_face": 21, "max_face": 79}, [40]),
        ({"max_faces": 3}, [80, 40, 160]),
        ({"max_faces": 1}, [160]),
        ({"only_largest": True}, [160]),
        ({"only_center": True}, [40]),
        ({"only_center": True, "min_face": 41}, [80]),
        ({"only_largest": True, "max_face": 100}, [80]),
        ({"only_center": True, "max_faces": 2}, [40]),
        ({"max_faces": 100}, [20, 80, 40, 160]),
    ],
)
def test_limits(options: dict[str, object], kept: list[int]):
    found = find(*CROWD, **options)
    assert sides(found) == kept
    assert len(found.rejected) == 4 - len(kept)
    assert all(reasons(found))


def test_reasons_name_the_flag_and_the_size():
    assert reasons(find(*CROWD, min_face=30, max_face=100)) == [
        "it is 20 px large, under --min-face 30",
        "it is 160 px large, over --max-face 100",
    ]


def test_order_does_not_depend_on_the_detector():
    assert find(*CROWD).faces[0].box.tolist() == find(*reversed(CROWD)).faces[0].box.tolist()
    assert sides(find(*CROWD)) == sides(find(*reversed(CROWD)))


def test_ten_thousand_boxes_are_quick_and_limited():
    grid = [face(8 + 10 * (i % 100), 5 + 7 * (i // 100), 6, 0.9 + 1e-6 * i) for i in range(10_000)]
    begin = time.perf_counter()
    found = find(*grid, min_face=1, max_faces=50)
    assert time.perf_counter() - begin < 1.5  # 0.5 s on a quiet machine
    assert len(found.faces) == 50
    assert all("--max-faces" in reason for reason in reasons(found))


class TurnedPhoto:
    """Sees a face only in photos turned so that the dark edge lies at the bottom."""

    name = "turned"

    def __init__(self, answer: Callable[[UInt8Image], list[Face]]) -> None:
        self.answer = answer
        self.calls = 0

    def detect(self, pixels: UInt8Image, threshold: float) -> list[Face]:
        self.calls += 1
        return self.answer(pixels) if self.calls % 2 else []


def _face_above_the_dark_edge(canvas: UInt8Image) -> list[Face]:
    photo = canvas[32:-32, 32:-32]
    if photo[-5:, 5:-5].mean() > 60 or photo[5:-5, :5].mean() < 60:
        return []
    return [face(32 + 100, 32 + 60, 80)]


@pytest.mark.parametrize("quarters", [0, 1, 2, 3])
def test_a_turned_photo_is_found_in_its_own_frame(quarters: int):
    upright = np.full((750, 1000, 3), 200, np.uint8)
    upright[-20:] = 0
    photo = np.ascontiguousarray(np.rot90(upright, quarters))  # has to be turned clockwise by as much
    detector = TurnedPhoto(_face_above_the_dark_edge)
    assert len(find_faces(TurnedPhoto(_face_above_the_dark_edge), photo, ONE_TO_ONE).faces) == (quarters == 0)
    found = find_faces(detector, photo, replace(ONE_TO_ONE, try_rotations=True))
    assert found.turned == 90 * quarters
    (one,) = found.faces
    # turn the photo's pixel grid with the photo: the face must sit on the pixels it was seen on
    ys, xs = np.mgrid[:750, :1000]
    grid = np.rot90(np.stack([xs, ys], axis=2), quarters)
    for point, expected in zip(one.landmarks, face(100, 60, 80).landmarks, strict=True):
        column, row = round(float(point[0])), round(float(point[1]))
        np.testing.assert_allclose(grid[row, column], expected, atol=0.8)
    assert one.box[2] - one.box[0] == pytest.approx(80, abs=0.1)


def test_no_turning_when_a_face_is_surely_upright():
    detector = Scripted(face(500, 300, 100, 0.9995))
    assert find_faces(detector, np.zeros((750, 1000, 3), np.uint8), replace(ONE_TO_ONE, try_rotations=True)).turned == 0
    assert len(detector.shapes) == 2


def test_turning_in_vain_finds_nothing():
    detector = Scripted()
    photo = np.zeros((75, 100, 3), np.uint8)
    assert find_faces(detector, photo, replace(ONE_TO_ONE, try_rotations=True)) == Found(())
    assert len(detector.shapes) == 8


class ShortOfMemory(Scripted):
    """Holds pictures up to so many pixels; in larger ones, and after that, it sees the faces that lie whole in what it is shown.

    It is told where its tiles lie by marks in the photo: pixel (x, y) holds x // 4 in red and y // 4 in green.
    """

    def __init__(self, *faces: Face, holds: int) -> None:
        super().__init__(*faces)
        self.holds = holds

    def detect(self, pixels: UInt8Image, threshold: float) -> list[Face]:
        self.shapes.append(pixels.shape)
        height, width = pixels.shape[:2]
        if height * width > self.holds:
            raise MemoryError("too large")
        if height * width < 200_000:  # the coarse pass, where the marks mean nothing
            return []
        middle = pixels[height // 2, width // 2].astype(int)
        left, top = 4 * middle[0] + 2 - width // 2, 4 * middle[1] + 2 - height // 2
        inside = [
            one
            for one in self.faces
            if (one.box[:2] - [left, top] >= 0).all() and (one.box[2:] - [left + width, top + height] <= 0).all()
        ]
        shift = np.array([left, top], np.float32)
        return [replace(one, box=one.box - np.tile(shift, 2), landmarks=one.landmarks - shift) for one in inside]


def test_a_photo_too_large_for_the_memory_is_looked_at_in_four_parts(caplog):
    photo = np.zeros((750, 1000, 3), np.uint8)
    photo[..., 0] = np.arange(1000) // 4
    photo[..., 1] = (np.arange(750) // 4)[:, None]
    faces = [face(150, 150, 120), face(850, 150, 120), face(150, 600, 120), face(500, 375, 200), face(850, 600, 120)]
    detector = ShortOfMemory(*faces, holds=500_000)
    found = find_faces(detector, photo, ONE_TO_ONE)
    middles = sorted((round(float(f.box[::2].mean()), -1), round(float(f.box[1::2].mean()), -1)) for f in found.faces)
    # the marks say where a tile lies within 4 px
    assert middles == sorted((round(float(f.box[::2].mean()), -1), round(float(f.box[1::2].mean()), -1)) for f in faces)
    assert caplog.text.count("looking in four parts") == 1


def test_when_the_parts_are_too_large_too_it_is_an_error():
    with pytest.raises(MemoryError):
        find_faces(ShortOfMemory(holds=1000), np.zeros((750, 1000, 3), np.uint8), ONE_TO_ONE)
