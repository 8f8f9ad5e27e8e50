"""Templates, similarity and warps: exact where exactness is promised, at any size and angle."""

from __future__ import annotations

import math

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpen_cli import geometry

GPEN_512 = [(202.041, 242.884), (309.430, 242.290), (256.077, 303.959), (211.960, 366.828), (300.891, 366.336)]

angles = st.floats(-math.pi, math.pi)
scales = st.floats(0.05, 20)
shifts = st.floats(-5000, 5000)


def similarity_matrix(angle: float, scale: float, dx: float, dy: float) -> np.ndarray:
    a, b = scale * math.cos(angle), scale * math.sin(angle)
    return np.array([[a, -b, dx], [b, a, dy]])


def test_gpen_template_is_the_public_one():
    assert np.allclose(geometry.template_points("gpen", 512), GPEN_512, atol=1e-3)


def test_ffhq_crop_is_narrower_by_the_known_ratio():
    eyes = [np.ptp(geometry.template_points(name, 512)[:2, 0]) for name in ("gpen", "ffhq")]
    assert eyes[1] / eyes[0] == pytest.approx(125.92 / 107.39, rel=1e-3)


@given(angles, scales, shifts, shifts)
def test_similarity_recovers_any_rotation_scale_and_shift(angle, scale, dx, dy):
    matrix = similarity_matrix(angle, scale, dx, dy)
    source = geometry.template_points("gpen", 256)
    found = geometry.similarity(source, geometry.apply(matrix, source))
    assert np.allclose(found, matrix, atol=1e-6 * (1 + abs(dx) + abs(dy)) + 1e-6 * scale)


@given(st.integers(0, 2**32 - 1))
def test_similarity_is_least_squares(seed):
    rng = np.random.RandomState(seed)
    source, target = rng.uniform(0, 100, (5, 2)), rng.uniform(0, 100, (5, 2))
    best = geometry.similarity(source, target)

    def cost(matrix):
        return float(((geometry.apply(matrix, source) - target) ** 2).sum())

    for _ in range(5):
        a, b, dx, dy = best[0, 0], best[1, 0], best[0, 2], best[1, 2]
        a, b = a + rng.normal(0, 1e-3), b + rng.normal(0, 1e-3)
        other = np.array([[a, -b, dx + rng.normal(0, 0.1)], [b, a, dy + rng.normal(0, 0.1)]])
        assert cost(best) <= cost(other) + 1e-9


def test_coinciding_points_have_no_similarity():
    with pytest.raises(ValueError, match="coincide"):
        geometry.similarity([(3.0, 3.0)] * 5, GPEN_512)


@given(angles, scales, shifts, shifts)
def test_invert_undoes(angle, scale, dx, dy):
    matrix = similarity_matrix(angle, scale, dx, dy)
    both = geometry.compose(geometry.invert(matrix), matrix)
    assert np.allclose(both, [[1, 0, 0], [0, 1, 0]], atol=1e-6 * (1 + (abs(dx) + abs(dy)) / scale))


@given(st.integers(1, 4000), st.integers(1, 4000), st.floats(1, 4))
def test_scaling_keeps_the_pictures_edges(width, height, scale):
    size = (math.floor(width * scale + 0.5), math.floor(height * scale + 0.5))
    edges = geometry.apply(geometry.scaling((width, height), size), [(-0.5, -0.5), (width - 0.5, height - 0.5)])
    assert np.allclose(edges, [(-0.5, -0.5), (size[0] - 0.5, size[1] - 0.5)])


def drawn_dot(width: int, height: int, x: float, y: float, sigma: float) -> np.ndarray:
    ys, xs = np.mgrid[0:height, 0:width]
    spot = 200 * np.exp(-((xs - x) ** 2 + (ys - y) ** 2) / (2 * sigma**2)) + 20
    return np.repeat(np.rint(spot).astype(np.uint8)[..., None], 3, axis=2)


def centre_of(image: np.ndarray) -> tuple[float, float]:
    weight = np.clip(image.astype(np.float64) - 40, 0, None)
    ys, xs = np.mgrid[0 : image.shape[0], 0 : image.shape[1]]
    return float((weight * xs).sum() / weight.sum()), float((weight * ys).sum() / weight.sum())


@settings(deadline=None, max_examples=40)
@given(angles, st.floats(0.06, 3.0), st.floats(-20, 20), st.floats(-20, 20))
def test_a_dot_lands_where_the_matrix_says(angle, scale, dx, dy):
    size = 96
    sigma = max(3.0, 3.0 / scale)
    side = int(max(160, 160 / scale))
    x = y = side / 2
    photo = drawn_dot(side, side, x, y, sigma)
    a, b = scale * math.cos(angle), scale * math.sin(angle)
    target = np.array([size / 2 + dx, size / 2 + dy])
    shift = target - (a * x - b * y, b * x + a * y)
    crop = geometry.warp_crop(photo, np.array([[a, -b, shift[0]], [b, a, shift[1]]]), size)
    assert np.hypot(*(np.array(centre_of(crop[..., 0])) - target)) < 0.12


@pytest.mark.parametrize(("side", "most"), [(1024, 2), (1000, 40), (300, 90)])
def test_shrinking_averages_what_is_finer_than_a_pixel(side, most):
    stripes = np.zeros((side, side, 3), np.uint8)
    stripes[:, ::2] = 255
    matrix = geometry.scaling((side, side), (128, 128))
    crop = geometry.warp_crop(stripes, matrix, 128)[8:-8, 8:-8]
    assert np.ptp(crop.astype(int)) <= most  # plain warpAffine gives 255 at side 1000
    assert abs(float(crop.mean()) - 127.5) < 1.5


def test_a_crop_that_leaves_the_photo_is_reflected_not_black():
    photo = np.full((200, 200, 3), 180, np.uint8)
    matrix = geometry.translation(100, 60)  # half of the crop lies left of, and above, the photo
    crop = geometry.warp_crop(photo, matrix, 200)
    assert crop.min() == crop.max() == 180


@pytest.mark.parametrize("size", [(1, 1), (3, 200), (200, 3)])
def test_any_photo_size_can_be_cropped(size):
    photo = np.full((size[1], size[0], 3), 90, np.uint8)
    for shift in (-5000.0, 0.0, 5000.0):
        crop = geometry.warp_crop(photo, geometry.translation(shift, shift), 64)
        assert crop.shape == (64, 64, 3)
        assert crop.min() == crop.max() == 90


def test_warping_to_a_rectangle_equals_warping_to_the_canvas():
    rng = np.random.RandomState(0)
    image = cv2.GaussianBlur(rng.uniform(-50, 50, (64, 64, 3)).astype(np.float32), (0, 0), 2)
    matrix = similarity_matrix(0.3, 1.7, 40, 25)
    whole = geometry.warp_to_rect(image, matrix, (0, 0, 200, 200))
    rect = geometry.clip_rect(geometry.bounds(matrix, (64, 64)), (200, 200))
    assert rect is not None
    x0, y0, x1, y1 = rect
    assert np.allclose(geometry.warp_to_rect(image, matrix, rect), whole[y0:y1, x0:x1], atol=0.5)
