"""A region that the user points at: where it is looked, where what is found there lies, and what a request gets of it."""

from __future__ import annotations

import base64
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from pictures import saved
from PIL import Image

from gpen_cli.data import Face
from gpen_cli.detect.region import WINDOW_MARGIN, Region, lies_in, window
from gpen_cli.detect.search import find_in_region
from gpen_cli.options import FaceOptions
from serve.kit import FACE, pixels_of, png, problem, upload

BLUE = (40, 90, 160)
JSON = {"Accept": "application/json"}
POINTS = np.array([[-0.2, -0.2], [0.2, -0.2], [0, 0.02], [-0.16, 0.24], [0.16, 0.24]])
"""Of a frontal face, in units of its box's side, around the middle of the box."""

sizes = st.tuples(st.integers(1, 900), st.integers(1, 700))
places = st.floats(-1000, 1000)
lengths = st.floats(0.01, 1500)
regions = st.builds(Region, places, places, lengths, lengths)


class RedDetector:
    """Sees a frontal face where a picture is red."""

    name = "red"

    def __init__(self) -> None:
        self.views: list[tuple[int, ...]] = []

    def detect(self, pixels, threshold):
        self.views.append(pixels.shape)
        red = (pixels[..., 0] > 140) & (pixels[..., 1] < 60)
        if not red.any():
            return []
        rows, columns = np.flatnonzero(red.any(axis=1)), np.flatnonzero(red.any(axis=0))
        box = np.array([columns[0], rows[0], columns[-1] + 1, rows[-1] + 1], np.float32) - 0.5
        middle, side = (box[:2] + box[2:]) / 2, (box[2:] - box[:2]).max()
        return [Face(box, (POINTS * side + middle).astype(np.float32), 0.99)]


def photo_with(*squares: tuple[int, int, int], size: tuple[int, int]) -> np.ndarray:
    """A gray photo with red squares, each (x, y, side)."""
    photo = np.full((size[1], size[0], 3), 120, np.uint8)
    for x, y, side in squares:
        photo[y : y + side, x : x + side] = (255, 0, 0)
    return photo


# -- geometry ----------------------------------------------------------------------------------------------------------


@given(regions, sizes)
@example(Region(-10, -10, 10, 10), (5, 5))
@example(Region(4.9, 4.9, 0.01, 0.01), (5, 5))
def test_the_window_holds_what_the_photo_has_of_the_region_and_of_its_margin(region, size):
    part = window(region, size)
    left, top = max(0.0, region.x), max(0.0, region.y)
    right, bottom = min(size[0], region.x + region.width), min(size[1], region.y + region.height)
    assert (part is None) == (left >= right or top >= bottom)
    if part is None:
        return
    rows, columns = part
    for along, begin, end, length in ((columns, left, right, size[0]), (rows, top, bottom, size[1])):
        assert 0 <= along.start < along.stop <= length
        assert along.start <= begin
        assert end <= along.stop
        margin = WINDOW_MARGIN * region.side
        assert along.start == 0 or margin - 1e-6 <= begin - along.start <= margin + 1 + 1e-6
        assert along.stop == length or margin - 1e-6 <= along.stop - end <= margin + 1 + 1e-6


@settings(deadline=None, max_examples=80)
@given(st.data())
def test_a_face_found_in_a_region_lies_where_it_lies_in_the_photo(data):
    side = data.draw(st.integers(8, 160), "side")
    size = data.draw(st.tuples(st.integers(side, 1200), st.integers(side, 900)), "size")
    x, y = data.draw(st.integers(0, size[0] - side), "x"), data.draw(st.integers(0, size[1] - side), "y")
    around = data.draw(st.floats(0.8, 5), "around") * side
    shift = data.draw(st.tuples(st.floats(-0.3, 0.3), st.floats(-0.3, 0.3)), "shift")
    middle = np.array([x, y]) + side / 2
    region = Region(*(middle - around / 2 + np.array(shift) * around), around, around)
    options = FaceOptions(min_face=1)
    photo = photo_with((x, y, side), size=size)
    (face,) = find_in_region(RedDetector(), photo, region, options)
    blur = 2.0 + 0.05 * side  # a view's pixels are larger than the photo's where it is shrunk
    truth = np.array([x, y, x + side, y + side]) - 0.5
    assert np.abs(face.box - np.clip(truth, 0, [size[0] - 1, size[1] - 1] * 2)).max() <= blur
    assert np.abs(face.landmarks - (POINTS * side + middle - 0.5)).max() <= blur
    (again,) = find_in_region(RedDetector(), photo, region, options)
    assert again.box.tobytes() == face.box.tobytes()


@settings(deadline=None, max_examples=60)
@given(regions, st.integers(0, 180), st.integers(0, 130))
def test_nothing_is_found_but_what_lies_in_the_region(region, x, y):
    assume(region.side < 400)
    for face in find_in_region(RedDetector(), photo_with((x, y, 20), size=(200, 150)), region, FaceOptions()):
        assert lies_in(face, region)


@pytest.mark.parametrize("region", [Region(0, 0, 1e5, 1e5), Region(0, 0, 1e5, 0.01), Region(30, 30, 0.01, 0.01)])
def test_a_region_of_any_shape_costs_no_more_than_the_photo(region):
    detector = RedDetector()
    find_in_region(detector, photo_with((20, 20, 20), size=(3000, 40)), region, FaceOptions())
    assert all(np.prod(view[:2]) < 3e6 for view in detector.views)


def test_limits_hold_in_a_region_too():
    photo, region = photo_with((50, 50, 20), size=(200, 150)), Region(45, 45, 30, 30)
    assert len(find_in_region(RedDetector(), photo, region, FaceOptions(min_face=15))) == 1
    assert find_in_region(RedDetector(), photo, region, FaceOptions(min_face=30)) == ()
    assert find_in_region(RedDetector(), photo, region, FaceOptions(max_face=16)) == ()


# -- requests ----------------------------------------------------------------------------------------------------------


def patch_in_black(left: int = 400, top: int = 100, side: int = 128) -> bytes:
    """640x480, black in its middle, where the stand-in detector finds nothing; it finds a face in the patch seen alone."""
    picture = np.zeros((480, 640, 3), np.uint8)
    picture[top : top + side, left : left + side] = BLUE
    return png_of(picture)


def png_of(picture: np.ndarray) -> bytes:
    return saved(Image.fromarray(picture), "PNG")


def test_a_face_that_only_a_closer_look_shows_is_restored(serve):
    server = serve()
    data = patch_in_black()
    assert server.enhance(data).headers["x-gpen-faces"] == "0", "in the whole photo there is none"
    body = server.enhance(data, faces="400,100,128,128", headers=JSON).json()
    (face,) = body["report"]["faces"]
    assert body["report"]["status"] == "done"
    assert face["decision"] == "restored"
    assert face["box"] == pytest.approx(FACE.box * 2 + np.array([336, 36] * 2), abs=4), "of a window of 256 px"
    pixels = pixels_of(base64.b64decode(body["image"]))
    assert pixels[164, 464].tolist() == [255 - value for value in BLUE]
    assert not pixels[300:].any(), "the rest is the photo's"
    assert not pixels[:, :300].any()


def test_detect_answers_what_enhance_would_restore(serve):
    report = serve().client.post("/detect", files=upload(patch_in_black()), data={"faces": "400,100,128,128"}).json()
    assert [face["decision"] for face in report["faces"]] == ["planned"]


def test_a_region_without_a_face_gets_the_same_sentence_as_ever(serve):
    server = serve()
    body = server.enhance(patch_in_black(), faces="20,300,100,100", headers=JSON).json()
    assert body["report"]["status"] == "no_face"
    assert "no face found" in body["report"]["warnings"][0]
    assert "min_face" not in body["report"]["warnings"][0], "no form has that field"
    answer = server.enhance(patch_in_black(), faces="5000,5000,100,100")
    assert (answer.status_code, answer.headers["X-Gpen-Restored"]) == (200, "0")
    outside = {"faces": "5000,5000,100,100", "no_face": "fail"}
    assert "no face" in problem(server.enhance(patch_in_black(), **outside), 422, "no-face")
    assert "lies in the region" in problem(server.enhance(png(BLUE), **outside), 422, "no-face")


def test_a_face_that_was_found_is_not_looked_for_again(serve):
    detector = RedDetector()
    server = serve(detector=detector, warm=False)
    photo = png_of(photo_with((100, 100, 60), size=(400, 300)))
    server.enhance(photo, headers=JSON)
    looks = len(detector.views)
    body = server.enhance(photo, faces="90,90,80,80", headers=JSON).json()
    assert [face["decision"] for face in body["report"]["faces"]] == ["restored"]
    assert len(detector.views) == 2 * looks
    body = server.enhance(photo, faces="300,200,80,80", headers=JSON).json()
    assert [face["decision"] for face in body["report"]["faces"]] == ["skipped"]
    assert len(detector.views) > 3 * looks, "where there is none, it is"


def test_a_face_that_was_seen_badly_is_looked_at_again_and_reported_once(serve):
    class Doubtful(RedDetector):
        def detect(self, pixels, threshold):
            wide = pixels.shape[1] > 700  # the whole photo, in both passes
            return [
                replace(face, landmarks=face.landmarks[[1, 0, 2, 4, 3]]) if wide else face  # mirrored: a fault
                for face in super().detect(pixels, threshold)
            ]

    server = serve(detector=Doubtful(), warm=False, faces=FaceOptions(det_size=3200))
    photo = png_of(photo_with((100, 100, 60), size=(800, 600)))
    (face,) = server.enhance(photo, headers=JSON).json()["report"]["faces"]
    assert face["decision"] == "skipped"
    (face,) = server.enhance(photo, faces="95,95,70,70", headers=JSON).json()["report"]["faces"]
    assert face["decision"] == "restored"


def test_a_face_that_a_limit_leaves_out_stays_left_out(serve):
    detector = RedDetector()
    server = serve(detector=detector, warm=False, faces=FaceOptions(max_face=40))
    photo = png_of(photo_with((100, 100, 60), size=(400, 300)))
    body = server.enhance(photo, faces="90,90,80,80", headers=JSON).json()
    assert [face["decision"] for face in body["report"]["faces"]] == ["skipped"]
    assert len(detector.views) == 2, "no closer look gets around it"
