"""Strength, colour, sharpening: what each promises, on the crop."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from gpen_cli import restoration, restore_crop
from gpen_cli.data import AlignedFace, Face, Photo
from gpen_cli.geometry import scaling, warp_crop
from gpen_cli.options import ComposeOptions
from gpen_cli.restore_crop import LUMA, residual_of
from gpen_cli.sharpness import own_detail

PLAIN = {"own_detail": 0.0, "color_fix": "none", "weight": 1.0, "sharpen": 0.0}


@pytest.fixture(scope="module")
def crop(astronaut) -> np.ndarray:
    return np.ascontiguousarray(astronaut[20:276, 100:356])


@pytest.fixture(scope="module")
def restored(crop) -> np.ndarray:
    """A made-up answer: sharper, warmer."""
    sharp = crop.astype(np.float32) * 2 - cv2.GaussianBlur(crop, (0, 0), 2)
    return np.clip(np.rint(sharp + (12, 0, -10)), 0, 255).astype(np.uint8)


def luma(image: np.ndarray) -> np.ndarray:
    return image.astype(np.float32) @ LUMA


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"color_fix": "lab"},
        {"color_fix": "hues"},
        {"color_fix": "tint"},
        {"own_detail": 0.5},
        {"weight": 0.5},
        {"weight": 2.0},
    ],
)
def test_no_change_by_the_net_is_no_change_at_all(crop, options):
    assert not residual_of(crop, crop.copy(), **{**PLAIN, **options}).any()


def test_strength_zero_changes_nothing_and_one_is_the_nets_face(crop, restored):
    assert not residual_of(crop, restored, **{**PLAIN, "weight": 0.0, "color_fix": "lab", "sharpen": 1.0}).any()
    assert np.array_equal(crop + residual_of(crop, restored, **PLAIN), restored)


def test_strength_between_is_a_blend(crop, restored):
    half = residual_of(crop, restored, **{**PLAIN, "weight": 0.5})
    assert np.allclose(half, 0.5 * residual_of(crop, restored, **PLAIN))


def test_strength_above_one_adds_detail_inside_the_local_range(crop, restored):
    plain = crop + residual_of(crop, restored, **PLAIN)
    strong = crop + residual_of(crop, restored, **{**PLAIN, "weight": 2.0})
    assert luma(strong).std() > luma(plain).std()
    low, high = (f(luma(plain), np.ones((5, 5), np.uint8)) for f in (cv2.erode, cv2.dilate))
    assert (luma(strong) >= low - 1e-2).all()
    assert (luma(strong) <= high + 1e-2).all()


def test_the_formula_of_strengths_above_one(crop, restored):
    change = luma(restored) - luma(crop)
    detail = change - cv2.GaussianBlur(change, (0, 0), crop.shape[0] / 128, borderType=cv2.BORDER_REFLECT_101)
    low, high = (f(luma(restored), np.ones((5, 5), np.uint8)) for f in (cv2.erode, cv2.dilate))
    expected = np.clip(luma(restored) + 0.5 * detail, low, high)
    result = crop + residual_of(crop, restored, **{**PLAIN, "weight": 1.5})
    assert np.allclose(luma(result), expected, atol=0.02)


def test_lab_keeps_the_photos_tone(crop, restored):
    def tone(image):
        lab = cv2.cvtColor(np.clip(image, 0, 255).astype(np.float32) / 255, cv2.COLOR_RGB2LAB)
        return lab[64:192, 64:192].mean(axis=(0, 1))

    kept = crop + residual_of(crop, restored, **{**PLAIN, "color_fix": "lab"})
    assert np.abs(tone(kept) - tone(crop)).max() < 1.0
    assert np.abs(tone(restored) - tone(crop)).max() > 4.0  # the answer was really warmer


def test_no_bright_line_is_drawn_around_dark_hair():
    """Dark hair on a light wall, and a net that overshoots at the edge; in the face the same overshoot stays."""
    crop = np.full((256, 256, 3), 200, np.uint8)
    crop[10:100, 60:196] = 20  # hair
    crop[120:140, 110:120] = 60  # an eye
    sharp = np.clip(crop.astype(np.float32) * 2 - cv2.GaussianBlur(crop, (0, 0), 3), 0, 255)
    overshoot = np.rint(sharp).astype(np.uint8)
    kept = crop + residual_of(crop, overshoot, **{**PLAIN, "color_fix": "lab"})
    assert overshoot[:110].max() == 255
    assert kept[:60].max() < 206
    assert kept[118:142, 105:125].min() < 45


@pytest.mark.parametrize("color_fix", ["hues", "lab"])
def test_dark_eyes_do_not_come_back_blue(color_fix):
    """A blurred brown face, in which the net draws irises that are darker, and blue."""
    crop = np.full((256, 256, 3), (170, 120, 100), np.uint8)
    crop[110:122, 80:96] = (90, 66, 58)
    answer = crop.copy()
    answer[112:120, 84:92] = (20, 40, 110)
    kept = crop + residual_of(crop, answer, **{**PLAIN, "color_fix": color_fix})
    iris = kept[112:120, 84:92].mean(axis=(0, 1))
    assert iris[0] > iris[2], "no bluer than the photo is there"
    if color_fix == "hues":
        assert np.allclose(luma(kept), luma(answer), atol=0.01), "as dark as the net drew it"


def test_hues_that_the_photo_has_within_a_few_pixels_are_free(crop):
    """Blocks of colour are evened out: the mean of a neighbourhood lies within its range."""
    blocks = crop.astype(np.float32) + 20 * np.random.RandomState(1).randn(64, 64, 3).repeat(4, 0).repeat(4, 1)
    blocks = np.clip(np.rint(blocks), 0, 255).astype(np.uint8)
    even = cv2.blur(blocks, (5, 5))
    assert (
        np.abs(residual_of(blocks, even, **{**PLAIN, "color_fix": "hues"}) - (even.astype(int) - blocks)).max() < 0.01
    )


@pytest.mark.parametrize("color_fix", ["lab", "tint"])
def test_a_sepia_print_keeps_its_one_tint_and_a_colour_photo_its_colours(crop, restored, color_fix):
    gray = luma(crop)[..., None]
    sepia = np.clip(np.rint(gray * (1.0, 0.86, 0.68)), 0, 255).astype(np.uint8)
    colourful = np.clip(
        np.rint(luma(restored)[..., None] + 30 * np.sin(np.arange(3) + crop[..., :1] / 20)), 0, 255
    ).astype(np.uint8)

    def chroma(image):
        return cv2.cvtColor(np.clip(image, 0, 255).astype(np.float32) / 255, cv2.COLOR_RGB2LAB)[..., 1:]

    kept = sepia + residual_of(sepia, colourful, **{**PLAIN, "color_fix": color_fix})
    inside = (kept > 2).all(axis=2) & (kept < 253).all(axis=2)  # where RGB can hold the colour
    assert np.abs(chroma(kept) - chroma(sepia))[inside].mean() < 1.0
    assert np.abs(chroma(colourful) - chroma(sepia)).mean() > 5.0
    changed = crop + residual_of(crop, colourful, **{**PLAIN, "color_fix": color_fix})
    assert np.abs(chroma(changed) - chroma(crop)).mean() > 2.0
    if color_fix == "tint":
        assert np.array_equal(changed, crop + residual_of(crop, colourful, **PLAIN)), "nothing else of lab"


def test_sharpen_steepens_edges_without_halos(crop, restored):
    plain = crop + residual_of(crop, restored, **PLAIN)
    sharp = crop + residual_of(crop, restored, **{**PLAIN, "sharpen": 1.0})
    assert cv2.Laplacian(luma(sharp), cv2.CV_32F).var() > 1.1 * cv2.Laplacian(luma(plain), cv2.CV_32F).var()
    assert luma(sharp).max() <= luma(plain).max() + 1e-2


def test_a_softer_answer_does_not_take_detail_from_a_large_face(crop):
    """The photo's face is sharper than the crop can hold: a blurred answer must not win."""
    soft = cv2.GaussianBlur(crop, (0, 0), 2)

    def energy(image):
        return cv2.Laplacian(luma(image), cv2.CV_32F)[40:-40, 40:-40].var()

    kept = crop + residual_of(crop, soft, **{**PLAIN, "own_detail": 0.4})
    assert energy(kept) > 0.9 * energy(crop)
    assert energy(soft) < 0.3 * energy(crop)


def test_noise_that_the_net_removed_does_not_come_back(crop):
    rng = np.random.RandomState(0)
    noisy = np.clip(crop + rng.normal(0, 25, crop.shape), 0, 255).astype(np.uint8)
    clean = cv2.GaussianBlur(crop, (0, 0), 1)
    wall = np.s_[10:60, 200:250]  # beside the astronaut
    noise = luma(noisy.astype(np.float32) - clean)[wall].std()
    protected = noisy + residual_of(noisy, clean, **{**PLAIN, "own_detail": 0.0})
    assert luma(protected - clean)[wall].std() < 0.01 * noise
    protected = noisy + residual_of(noisy, clean, **{**PLAIN, "own_detail": 0.1})
    assert luma(protected - clean)[wall].std() < 0.35 * noise


class TestOwnDetail:
    """Is the photo's face sharper than the crop can hold?"""

    matrix = scaling((1024, 1024), (256, 256))

    def detail(self, photo: np.ndarray) -> float:
        return own_detail(photo, self.matrix, warp_crop(photo, self.matrix, 256))

    @pytest.fixture(scope="class")
    def sharp(self, hopper) -> np.ndarray:
        """1024 px, sharp to the pixel: a photo shown larger would not be, so edges are drawn by thresholds."""
        large = cv2.resize(hopper[40:340, 100:400], (1024, 1024), interpolation=cv2.INTER_CUBIC)
        steps = np.digitize(luma(large), [60, 110, 160]).astype(np.float32) * 70 + 20
        return np.repeat(np.rint(steps)[..., None], 3, axis=2).astype(np.uint8)

    def test_sharp(self, sharp):
        assert self.detail(sharp) > 0.7

    @pytest.mark.parametrize("sigma", [4, 8, 16])
    def test_blurred_by_a_crop_pixel_or_more(self, sharp, sigma):
        assert self.detail(cv2.GaussianBlur(sharp, (0, 0), sigma)) < 0.3

    def test_noise_is_not_sharpness(self, sharp):
        blurred = cv2.GaussianBlur(sharp, (0, 0), 6)
        rng = np.random.RandomState(1)
        noisy = np.clip(blurred + rng.normal(0, 15, blurred.shape), 0, 255).astype(np.uint8)
        assert self.detail(noisy) < 0.2

    def test_a_sharp_face_with_noisy_skin_is_restored(self, sharp):
        rng = np.random.RandomState(2)
        noisy = np.clip(sharp + rng.normal(0, 60, sharp.shape), 0, 255).astype(np.uint8)
        assert self.detail(noisy) < 0.5 * self.detail(sharp)

    def test_flat_and_small(self):
        assert self.detail(np.full((1024, 1024, 3), 128, np.uint8)) == 0.0
        small = np.zeros((200, 200, 3), np.uint8)
        assert own_detail(small, scaling((200, 200), (256, 256)), np.zeros((256, 256, 3), np.uint8)) == 0.0


class TestKeptDetail:
    """How far the photo's own octave beyond the crop is trusted."""

    def test_nothing_changed_or_sharpened_is_trusted_and_noise_taken_out_is_not(self, crop):
        crop = crop.astype(np.float32)
        same = np.zeros_like(crop)
        assert (restore_crop.kept_detail(crop, same) == 1).all()
        blurred = cv2.GaussianBlur(crop, (0, 0), 1.5)
        assert np.median(restore_crop.kept_detail(crop, crop - blurred)) > 0.99
        noise = np.random.default_rng(3).normal(0, 12, crop.shape).astype(np.float32)
        cleaned = restore_crop.kept_detail(crop + noise, -noise)
        assert np.median(cleaned) < 0.2

    def test_an_aligned_file_larger_than_the_crop_keeps_what_the_net_left(self, astronaut):
        """A net that changes nothing changes no pixel of a 512 px file either."""
        pixels = np.ascontiguousarray(astronaut[:512, :512])
        photo = Photo(pixels, pixels)
        small = cv2.resize(pixels, (256, 256), interpolation=cv2.INTER_AREA)
        to_crop = scaling((512, 512), (256, 256))
        face = AlignedFace(
            Face(np.array([0, 0, 512, 512], np.float32), np.zeros((5, 2), np.float32), 1.0), "net", small, to_crop
        )
        canvas = restoration._aligned_canvas(photo, restoration.Crop(face, small), (512, 512), ComposeOptions())
        assert np.array_equal(canvas, pixels)
