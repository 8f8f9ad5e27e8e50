"""Priors, decoding and suppression, against what the papers say and against slow, obvious versions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpen_cli.detect import retinaface


def test_priors_count_and_order():
    anchors = retinaface.priors(640, 480)
    assert anchors.shape == (2 * (80 * 60 + 40 * 30 + 20 * 15), 4)
    assert anchors.dtype == np.float32
    # first cell of the finest level, both sides; then the next cell of the row
    np.testing.assert_array_equal(anchors[:3], [[4, 4, 16, 16], [4, 4, 32, 32], [12, 4, 16, 16]])
    # second row of the finest level; first of the second level; last of all
    np.testing.assert_array_equal(anchors[160], [4, 12, 16, 16])
    np.testing.assert_array_equal(anchors[9600], [8, 8, 64, 64])
    np.testing.assert_array_equal(anchors[-1], [640 - 16, 480 - 16, 512, 512])


def test_priors_are_remembered_and_cannot_be_spoilt():
    anchors = retinaface.priors(64, 96)
    assert retinaface.priors(64, 96) is anchors
    assert retinaface.priors.cache_info().maxsize is not None
    with pytest.raises(ValueError):
        anchors[0] = 0


def test_net_input_is_bgr_minus_the_mean_padded_with_the_mean():
    pixels = np.full((33, 40, 3), (200, 100, 50), np.uint8)
    planes = retinaface.net_input(pixels)
    assert planes.shape == (1, 3, 64, 64)
    assert planes.dtype == np.float32
    np.testing.assert_array_equal(planes[0, :, 0, 0], [50 - 104, 100 - 117, 200 - 123])
    assert not planes[:, :, 33:].any()
    assert not planes[:, :, :, 40:].any()


def _answers(size: tuple[int, int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A net that saw nothing: every anchor in place, no face."""
    count = len(retinaface.priors(*size))
    return np.zeros((count, 4), np.float32), np.tile([[1, 0]], (count, 1)).astype(np.float32), np.zeros((count, 10))


def test_decode_moves_and_grows_the_anchor():
    offsets, probabilities, points = _answers((64, 64))
    probabilities[1, 1] = 0.95  # the 32 px anchor centred on (4, 4), measured from the edge
    offsets[1] = [5, 0, np.log(2) / 0.2, 0]
    points[1] = [-2.5, 0, 2.5, 0, 0, 2.5, -1, 5, 1, 5]
    (face,) = retinaface.decode(offsets, probabilities, points, input_size=(64, 64), threshold=0.9)
    # centre 4 + 5 * 0.1 * 32 = 20, width 64, height 32, then half a pixel to pixel centres
    np.testing.assert_allclose(face.box, np.array([20 - 32, 4 - 16, 20 + 32, 4 + 16]) - 0.5, rtol=1e-6)
    np.testing.assert_allclose(face.landmarks[:3], np.array([[-4, 4], [12, 4], [4, 12]]) - 0.5, rtol=1e-6)
    assert face.score == pytest.approx(0.95)
    assert face.box.dtype == face.landmarks.dtype == np.float32


def test_decode_keeps_the_better_of_two_and_drops_what_is_no_number():
    offsets, probabilities, points = _answers((64, 64))
    probabilities[[0, 2, 4, 6], 1] = [0.91, 0.99, 0.95, np.nan]
    offsets[2, 0] = -5  # 16 px anchor at x = 12 moved onto the one at x = 4
    points[4, 3] = np.nan
    faces = retinaface.decode(offsets, probabilities, points, input_size=(64, 64), threshold=0.9)
    assert [round(face.score, 2) for face in faces] == [0.99]


def test_decode_of_wild_offsets_overflows_nowhere():
    offsets, probabilities, points = _answers((64, 64))
    probabilities[:, 1] = 1
    offsets[:] = 1e30
    with np.errstate(over="raise"):
        faces = retinaface.decode(offsets, probabilities, points, input_size=(64, 64), threshold=0.5)
    assert all(np.isfinite(face.box).all() for face in faces)


def _suppress_by_the_book(boxes: np.ndarray, iou: float) -> list[int]:
    def overlap(a: np.ndarray, b: np.ndarray) -> float:
        width = max(0.0, min(a[2], b[2]) - max(a[0], b[0]))
        height = max(0.0, min(a[3], b[3]) - max(a[1], b[1]))
        both = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - width * height
        return width * height / both if both > 0 else 0.0

    kept: list[int] = []
    for i in range(len(boxes)):
        if all(overlap(boxes[i], boxes[j]) <= iou for j in kept):
            kept.append(i)
    return kept


_box = st.tuples(*[st.integers(0, 40) for _ in range(2)], *[st.integers(1, 40) for _ in range(2)])


@settings(max_examples=200, deadline=None)
@given(st.lists(_box, max_size=40), st.sampled_from([0.01, 0.3, 0.39, 0.61, 0.9]))
def test_suppress_agrees_with_the_definition(corners: list[tuple[int, int, int, int]], iou: float):
    boxes = np.array([(x, y, x + w, y + h) for x, y, w, h in corners], np.float64).reshape(-1, 4)
    assert retinaface.suppress(boxes, iou).tolist() == _suppress_by_the_book(boxes, iou)


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 40_000))
def test_padded_side_is_the_next_multiple_of_32(side: int):
    padded = retinaface.padded_side(side)
    assert padded % 32 == 0
    assert 0 <= padded - side < 32
