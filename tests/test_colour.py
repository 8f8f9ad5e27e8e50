"""Colour management: what the nets see, and what of their work goes back into the photo's own space."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from PIL import Image, ImageCms

from gpen_cli import colour

# -- profiles made by hand, from published numbers (ICC.1:2022): none is copied from a vendor's file --


def _s15(value: float) -> bytes:
    return struct.pack(">i", round(value * 65536))


def _xyz(*values: float) -> bytes:
    return b"XYZ \0\0\0\0" + b"".join(map(_s15, values))


def _parametric(*values: float) -> bytes:
    form = {1: 0, 3: 1, 4: 2, 5: 3, 7: 4}[len(values)]
    return b"para\0\0\0\0" + struct.pack(">HH", form, 0) + b"".join(map(_s15, values))


def _gamma(value: float) -> bytes:
    return b"curv\0\0\0\0" + struct.pack(">IH", 1, round(value * 256)) + b"\0\0"


def _sampled(curve) -> bytes:
    values = np.rint(curve(np.linspace(0, 1, 1024)) * 65535).astype(">u2")
    return b"curv\0\0\0\0" + struct.pack(">I", len(values)) + values.tobytes()


def _text(text: str) -> bytes:
    encoded = text.encode("utf-16-be")
    return b"mluc\0\0\0\0" + struct.pack(">II4sII", 1, 12, b"enUS", len(encoded), 28) + encoded


def make_profile(tags: dict[bytes, bytes], space: bytes = b"RGB ") -> bytes:
    tags = {b"desc": _text("test"), b"cprt": _text("none"), b"wtpt": _xyz(0.9642, 1, 0.8249), **tags}
    table, body = struct.pack(">I", len(tags)), b""
    for name, value in tags.items():
        padded = value + b"\0" * (-len(value) % 4)
        table += struct.pack(">4sII", name, 132 + 12 * len(tags) + len(body), len(value))
        body += padded
    head = struct.pack(">I4sI4s4s4s", 128 + len(table) + len(body), b"lcms", 0x04300000, b"mntr", space, b"XYZ ")
    head += struct.pack(">6H", 2024, 1, 1, 0, 0, 0) + b"acspAPPL" + bytes(24)
    head += _s15(0.9642) + _s15(1) + _s15(0.8249)
    return head.ljust(128, b"\0") + table + body


SRGB_CURVE = _parametric(2.4, 1 / 1.055, 0.055 / 1.055, 1 / 12.92, 0.04045)
P3_COLOURS = {
    b"rXYZ": _xyz(0.51512, 0.2412, -0.00105),
    b"gXYZ": _xyz(0.29198, 0.69225, 0.04189),
    b"bXYZ": _xyz(0.1571, 0.06657, 0.78407),
}
ADOBE_COLOURS = {
    b"rXYZ": _xyz(0.60974, 0.31111, 0.01947),
    b"gXYZ": _xyz(0.20528, 0.62567, 0.06087),
    b"bXYZ": _xyz(0.14919, 0.06322, 0.74457),
}


def rgb_profile(colours: dict[bytes, bytes], curve: bytes) -> bytes:
    return make_profile({**colours, b"rTRC": curve, b"gTRC": curve, b"bTRC": curve})


P3 = rgb_profile(P3_COLOURS, SRGB_CURVE)
ADOBE = rgb_profile(ADOBE_COLOURS, _gamma(2.19921875))
SAMPLED = rgb_profile(P3_COLOURS, _sampled(lambda x: x**1.8))
GRAY_22 = make_profile({b"kTRC": _gamma(2.2)}, b"GRAY")
SRGB = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
DAMAGED = P3[:200]


def _forms() -> dict[str, bytes]:
    return {
        "gamma": _parametric(2.0),
        "with a branch": _parametric(2.2, 1.02, -0.02),
        "with a branch and a lift": _parametric(2.2, 1.02, -0.02, 0.0),
        "all seven": _parametric(2.4, 1 / 1.055, 0.055 / 1.055, 1 / 12.92, 0.04045, 0.0, 0.0),
    }


def lcms(profile: bytes, pixels: np.ndarray, *, mode: str = "RGB", back: bool = False) -> np.ndarray:
    """The reference: lcms itself, at its 8 bits. back: from the profile to sRGB."""
    own, srgb = colour._open_profile(profile), colour._named("sRGB")
    transform = colour._transform(own, srgb, mode, "RGB") if back else colour._transform(srgb, own, "RGB", mode)
    return colour._applied(transform, pixels)


@pytest.fixture(scope="module")
def random_pixels() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (256, 256, 3), dtype=np.uint8)


# -- the view --


def test_a_picture_without_profile_is_its_own_view(random_pixels):
    assert colour.srgb_view(random_pixels, gray=False, icc=None).shown is random_pixels


def test_an_srgb_profile_is_kept_and_changes_nothing(random_pixels):
    view = colour.srgb_view(random_pixels, gray=False, icc=SRGB)
    assert view.shown is random_pixels
    assert view.icc == SRGB
    assert not view.warnings


def test_a_p3_photo_is_shown_in_srgb(random_pixels):
    view = colour.srgb_view(random_pixels, gray=False, icc=P3)
    assert view.icc == P3
    assert np.array_equal(view.shown, lcms(P3, random_pixels, back=True))
    assert np.abs(view.shown.astype(int) - random_pixels).max() > 20


@pytest.mark.parametrize("icc", [DAMAGED, b"", b"not a profile" * 20, GRAY_22], ids=["cut", "empty", "junk", "gray"])
def test_a_profile_that_cannot_apply_is_dropped_with_a_warning(random_pixels, icc):
    view = colour.srgb_view(random_pixels, gray=False, icc=icc)
    assert view.shown is random_pixels
    assert view.icc is None
    assert len(view.warnings) == 1


def test_a_gray_photo_with_a_gray_profile_is_shown_in_srgb():
    ramp = np.repeat(np.arange(256, dtype=np.uint8).reshape(1, 256, 1), 3, axis=2)
    view = colour.srgb_view(ramp, gray=True, icc=GRAY_22)
    assert view.icc == GRAY_22
    light = (np.arange(256) / 255) ** 2.2
    wanted = np.where(light <= 0.0031308, 12.92 * light, 1.055 * light ** (1 / 2.4) - 0.055) * 255
    assert np.abs(view.shown[0, :, 0] - wanted).max() < 1.5


@given(hnp.arrays(np.uint16, (3, 5, 3)))
@settings(max_examples=50, deadline=None)
def test_sixteen_bits_are_rounded_to_eight(pixels):
    assert np.array_equal(colour.eight_bit(pixels), np.rint(pixels / 257).astype(np.uint8))


def test_hidden_colours_are_not_shown(random_pixels):
    alpha = np.full((256, 256), 255, np.uint8)
    assert colour.hide_transparent(random_pixels, alpha) is random_pixels
    alpha[:10], alpha[10:20] = 0, 1
    before = random_pixels.copy()
    shown = colour.hide_transparent(random_pixels, alpha)
    assert (shown[:10] == colour.NEUTRAL).all()
    assert np.array_equal(shown[10:], before[10:])
    assert np.array_equal(random_pixels, before)


# -- the way back --


@pytest.mark.parametrize("icc", [None, SRGB, DAMAGED])
def test_without_another_space_the_change_is_a_difference(random_pixels, icc):
    after = random_pixels.astype(np.float32) * 0.5 + 3.25
    assert np.array_equal(colour.delta_in_photo_space(random_pixels, after, icc), after - random_pixels)


@pytest.mark.parametrize("icc", [P3, ADOBE, SAMPLED, GRAY_22], ids=["p3", "adobe", "sampled", "gray"])
@given(st.integers(0, 2**31), st.integers(1, 40), st.integers(1, 40))
@settings(max_examples=20, deadline=None)
def test_unchanged_pixels_get_exactly_nothing(icc, seed, height, width):
    rng = np.random.default_rng(seed)
    before = rng.integers(0, 256, (height, width, 3), dtype=np.uint8)
    after = before.astype(np.float32)
    changed = rng.random((height, width)) < 0.3
    after[changed] += 1.5
    delta = colour.delta_in_photo_space(before, after, icc)
    assert delta.dtype == np.float32
    assert (delta[~changed] == 0).all()


@pytest.mark.parametrize(
    ("icc", "worst"), [(P3, 0.7), (ADOBE, 2.5), (SAMPLED, 2.5)], ids=["p3", "adobe", "sampled gamma 1.8"]
)
def test_the_arithmetic_agrees_with_lcms(random_pixels, icc, worst):
    """Measured: mean 0.25 of 255 levels, which is lcms's own rounding; at most ``worst``, in the darkest values."""
    space = colour.colour_space(icc)
    assert space.own_from_srgb.__qualname__.startswith("_arithmetic")
    difference = np.abs(space.own_from_srgb(random_pixels.astype(np.float32)) - lcms(icc, random_pixels))
    assert difference.mean() < 0.27
    assert difference.max() < worst


@pytest.mark.parametrize("form", _forms())
def test_every_parametric_curve_is_read_as_lcms_reads_it(random_pixels, form):
    icc = rgb_profile(P3_COLOURS, _forms()[form])
    space = colour.colour_space(icc)
    assert space.own_from_srgb.__qualname__.startswith("_arithmetic")
    difference = np.abs(space.own_from_srgb(random_pixels.astype(np.float32)) - lcms(icc, random_pixels))
    assert difference.mean() < 0.4


def test_a_profile_the_arithmetic_reads_differently_goes_through_the_table(random_pixels):
    """Its black is not black, so lcms shifts it (black point compensation): seen at construction, not by the user."""
    icc = rgb_profile(P3_COLOURS, _parametric(2.2, 0.9, 0.1))
    space = colour.colour_space(icc)
    assert space.own_from_srgb.__qualname__.startswith("_table")
    difference = np.abs(space.own_from_srgb(random_pixels.astype(np.float32)) - lcms(icc, random_pixels))
    assert difference.mean() < 0.5


@pytest.mark.parametrize("icc", [P3, ADOBE], ids=["p3", "adobe"])
def test_changes_are_smooth_and_finer_than_a_level(icc):
    """A ramp of 0.05 level a pixel must come back as a ramp: no step of more than a quarter level, so no banding."""
    before = np.full((1, 2000, 3), 120, np.uint8)
    after = before + np.linspace(0, 100, 2000, dtype=np.float32)[None, :, None]
    delta = colour.delta_in_photo_space(before, after, icc)
    assert np.abs(np.diff(delta, axis=1)).max() < 0.25
    assert np.abs(np.diff(delta, n=2, axis=1)).max() < 0.1


def test_the_table_for_other_profiles_stays_close_to_the_arithmetic(random_pixels):
    """Measured: mean 0.16, 99.9 % within 0.5 of a level (P3)."""
    transform = colour._transform(colour._named("sRGB"), colour._open_profile(P3), "RGB", "RGB")
    table = colour._table(transform, "RGB")(random_pixels.astype(np.float32))
    exact = colour.colour_space(P3).own_from_srgb(random_pixels.astype(np.float32))
    difference = np.abs(table - exact)
    assert difference.mean() < 0.2
    assert np.percentile(difference, 99.9) < 0.6


def test_a_wished_colour_arrives(astronaut):
    """View, change, change back into P3, view again: the wish, up to rounding, where sRGB can show the photo."""
    own = lcms(P3, astronaut)
    before = colour.srgb_view(own, gray=False, icc=P3).shown
    wish = np.clip(before.astype(np.float32) * 0.9 + 10, 0, 255)
    changed = np.clip(np.rint(own + colour.delta_in_photo_space(before, wish, P3)), 0, 255).astype(np.uint8)
    after = colour.srgb_view(changed, gray=False, icc=P3).shown
    difference = np.abs(after - wish)
    assert difference.mean() < 0.5
    assert np.percentile(difference, 99.9) < 3


# -- CMYK and LAB --


def test_cmyk_without_or_with_a_broken_profile_is_converted_plainly(astronaut):
    cmyk = Image.fromarray(astronaut).convert("CMYK")
    plain, warnings = colour.rgb_from_foreign(cmyk, None)
    assert not warnings
    assert np.array_equal(np.asarray(plain), np.asarray(cmyk.convert("RGB")))
    again, warnings = colour.rgb_from_foreign(cmyk, P3)  # an RGB profile on CMYK
    assert len(warnings) == 1
    assert np.array_equal(np.asarray(again), np.asarray(plain))


def test_lab_is_converted_through_colour_management(astronaut):
    to_lab = colour._transform(colour._named("sRGB"), colour._named("LAB"), "RGB", "LAB")
    rgb, _ = colour.rgb_from_foreign(to_lab.apply(Image.fromarray(astronaut)), None)
    assert np.abs(np.asarray(rgb).astype(int) - astronaut).mean() < 2
