"""The paste: nothing changes where nothing was restored, no seam, no shift, at any size, depth and scale."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stand_ins import face_at, photo_from_crop

from gpen_cli import geometry
from gpen_cli.compose import FADE, PARSE_CLASSES, Patch, feather_mask, mask_picture, parsed_mask, paste
from gpen_cli.data import Face, Photo
from gpen_cli.restore_crop import residual_of
from gpen_cli.upscale import canvas_size, enlarge

SIZE = 256


def photo_of(pixels: np.ndarray, **fields) -> Photo:
    shown = pixels if pixels.dtype == np.uint8 else np.rint(pixels / 257).astype(np.uint8)
    return Photo(pixels, shown, **fields)


def patch_for(photo: Photo, face: Face, change, *, weight: float = 1.0, color_fix: str = "none") -> Patch:
    """What a restorer that answers ``change(crop)`` adds to the photo."""
    matrix = geometry.invert(photo_from_crop(face, SIZE))
    crop = geometry.warp_crop(photo.shown, matrix, SIZE)
    residual = residual_of(crop, change(crop), own_detail=0.0, color_fix=color_fix, weight=weight, sharpen=0.0)
    return Patch(residual, feather_mask(SIZE), matrix)


faces = st.builds(
    face_at, x=st.floats(-50, 350), y=st.floats(-50, 350), side=st.floats(20, 1500), angle=st.floats(-3.1, 3.1)
)


@settings(deadline=None, max_examples=30)
@given(st.lists(faces, min_size=1, max_size=3), st.sampled_from([np.uint8, np.uint16]), st.booleans())
def test_an_identity_restorer_gives_the_photo_back_exactly(many, dtype, gray):
    rng = np.random.RandomState(3)
    pixels = rng.randint(0, np.iinfo(dtype).max, (300, 320, 3)).astype(dtype)
    photo = photo_of(np.repeat(pixels[..., :1], 3, axis=2) if gray else pixels, gray=gray)
    patches = [patch_for(photo, face, lambda crop: crop, color_fix="lab") for face in many]
    assert np.array_equal(paste(photo, patches, photo.size), photo.pixels)


@settings(deadline=None, max_examples=20)
@given(faces, st.floats(1, 4))
def test_an_identity_restorer_changes_nothing_at_any_scale(face, scale):
    rng = np.random.RandomState(4)
    photo = photo_of(rng.randint(0, 256, (100, 130, 3)).astype(np.uint8))
    size = canvas_size(photo.size, scale)
    assert np.array_equal(paste(photo, [patch_for(photo, face, lambda crop: crop)], size), enlarge(photo.pixels, size))


def blob(shape: tuple[int, int], x: float, y: float, sigma: float) -> np.ndarray:
    ys, xs = np.mgrid[0 : shape[0], 0 : shape[1]]
    return np.exp(-((xs - x) ** 2 + (ys - y) ** 2) / (2 * sigma**2))


@pytest.mark.parametrize("scale", [1.0, 1.5, 2.0, 3.0])
@pytest.mark.parametrize("side", [90.0, 256.0, 700.0])
def test_what_the_net_draws_lands_within_a_twentieth_of_a_pixel(scale, side):
    """A restorer draws a blob at a known place of the crop; its centre in the output is where geometry says."""
    photo = photo_of(np.full((800, 820, 3), 100, np.uint8))
    face = face_at(411.3, 396.8, side, angle=0.2)
    at = (121.4, 131.7)
    sigma = max(4.0, 6 * SIZE / side)

    def draw(crop):
        drawn = crop.astype(np.float64) + 100 * blob(crop.shape[:2], *at, sigma)[..., None]
        return np.rint(drawn).astype(np.uint8)

    size = canvas_size(photo.size, scale)
    change = paste(photo, [patch_for(photo, face, draw)], size)[..., 0].astype(np.float64) - 100
    canvas_from_crop = geometry.compose(geometry.scaling(photo.size, size), photo_from_crop(face, SIZE))
    expected = geometry.apply(canvas_from_crop, [at])[0]
    ys, xs = np.mgrid[0 : size[1], 0 : size[0]]
    found = np.array([(change * xs).sum(), (change * ys).sum()]) / change.sum()
    assert np.hypot(*(found - expected)) < 0.05


@pytest.mark.parametrize("side", [64, 130, 300, 1000, 3000])
def test_a_brighter_face_on_gray_shows_no_seam(side):
    width = int(side * 1.3) + 40
    photo = photo_of(np.full((width, width, 3), 128, np.uint8))
    face = face_at(width / 2, width / 2, side)
    result = paste(photo, [patch_for(photo, face, lambda crop: crop + np.uint8(12))], photo.size)[..., 0].astype(int)
    steepest = max(np.abs(np.diff(result, axis=axis)).max() for axis in (0, 1))
    assert result.max() == 140
    assert steepest <= max(1, np.ceil(1.5 * 12 / (FADE * side)))  # what a smoothstep over the fade may rise in a pixel


def test_the_mask_is_exactly_zero_on_the_crops_edge():
    mask = feather_mask(SIZE)
    assert mask[[0, -1]].max() == mask[:, [0, -1]].max() == 0.0
    assert mask[SIZE // 2, SIZE // 2] == 1.0


def test_pixels_outside_the_masks_are_the_photos():
    rng = np.random.RandomState(5)
    photo = photo_of(rng.randint(0, 256, (400, 500, 3)).astype(np.uint8))
    patches = [patch_for(photo, face_at(x, y, 120), lambda crop: 255 - crop) for x, y in ((100, 120), (350, 250))]
    result = paste(photo, patches, photo.size)
    outside = mask_picture(photo, patches, photo.size) == 0
    margin = cv2.erode(outside.astype(np.uint8), np.ones((3, 3), np.uint8)) > 0
    assert np.array_equal(result[margin], photo.pixels[margin])
    assert not np.array_equal(result, photo.pixels)


def test_a_face_at_the_border_leaves_no_stripe():
    photo = photo_of(np.full((200, 200, 3), 90, np.uint8))
    result = paste(photo, [patch_for(photo, face_at(5, 8, 180), lambda crop: crop)], photo.size)
    assert np.array_equal(result, photo.pixels)


def test_overlapping_faces_meet_without_a_line():
    photo = photo_of(np.full((300, 500, 3), 120, np.uint8))
    patches = [patch_for(photo, face_at(x, 150, 220), lambda crop: crop + np.uint8(20)) for x in (180, 290)]
    result = paste(photo, patches, photo.size)[..., 0].astype(int)
    assert result.max() <= 141  # never more than one face's change (and a rounding)
    assert np.abs(np.diff(result[150])).max() <= 2


def test_the_order_of_faces_does_not_matter_beyond_rounding():
    rng = np.random.RandomState(6)
    photo = photo_of(cv2.GaussianBlur(rng.randint(0, 256, (300, 400, 3)).astype(np.uint8), (0, 0), 3))
    patches = [patch_for(photo, face_at(x, 150, 200), lambda crop: 255 - crop) for x in (150, 230)]
    one, other = (paste(photo, order, photo.size).astype(int) for order in (patches, patches[::-1]))
    assert np.abs(one - other).max() <= 1


def test_sixteen_bit_changes_by_the_same_share():
    deep = photo_of(np.full((200, 200, 3), 100 * 257 + 3, np.uint16))
    face = face_at(100, 100, 150)
    result = paste(deep, [patch_for(deep, face, lambda crop: crop + np.uint8(10))], deep.size)
    assert result.dtype == np.uint16
    assert result[100, 100, 0] == 110 * 257 + 3  # the photo's own fraction of a level survives
    assert result[0, 0, 0] == 100 * 257 + 3


def test_red_stays_red():
    photo = photo_of(np.full((200, 200, 3), (10, 10, 10), np.uint8))

    def redden(crop):
        out = crop.copy()
        out[..., 0] = 200
        return out

    centre = paste(photo, [patch_for(photo, face_at(100, 100, 150), redden)], photo.size)[100, 100]
    assert centre.tolist() == [200, 10, 10]


def test_gray_photos_stay_gray():
    photo = photo_of(np.full((200, 200, 3), 90, np.uint8), gray=True)

    def tint(crop):
        return np.clip(crop.astype(int) + (40, 10, -20), 0, 255).astype(np.uint8)

    result = paste(photo, [patch_for(photo, face_at(100, 100, 150), tint)], photo.size)
    assert np.array_equal(result[..., 0], result[..., 1])
    assert np.array_equal(result[..., 1], result[..., 2])
    assert result[100, 100, 0] > 90


@pytest.mark.parametrize(("hair", "inside"), [(False, {"skin", "nose"}), (True, {"skin", "nose", "hair"})])
def test_a_parsed_mask_holds_the_face_and_hair_only_when_asked(hair, inside):
    for name, number in PARSE_CLASSES.items():
        if name not in {"skin", "nose", "hair", "hat", "cloth", "background", "necklace"}:
            continue
        labels = np.full((512, 512), number, np.uint8)
        middle = parsed_mask(labels, SIZE, hair=hair)[SIZE // 2, SIZE // 2]
        assert middle == pytest.approx(1.0 if name in inside else 0.0), name


@pytest.mark.parametrize(
    ("size", "scale", "expected"), [((601, 397), 1.5, (902, 596)), ((3, 5), 1, (3, 5)), ((7, 1), 2.5, (18, 3))]
)
def test_output_sides_are_rounded_half_up(size, scale, expected):
    assert canvas_size(size, scale) == expected
