"""What is made of a sharp crop: the same for the same seed, tones on both sides, damage on one."""

from __future__ import annotations

import importlib.util
import random
import sys
from dataclasses import replace

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpen_cli.errors import DeviceError
from gpen_cli.train import basicsr_shim, old_photo
from gpen_cli.train.config import DegradationConfig
from gpen_cli.train.degradation import degrade_pair, motion_kernel

needs_basicsr = pytest.mark.skipif(importlib.util.find_spec("basicsr") is None, reason="basicsr is not installed")
DAMAGED = DegradationConfig(clean_chance=0.0, gray_chance=0.0, old_photo_chance=0.0, colour_shift=0.0)
UNTOUCHED = replace(
    DAMAGED, sigma=(0.01, 0.02), motion_chance=0.0, shrink=(1.0, 1.0), tiny_chance=0.0, noise=(0.0, 0.0), jpeg_chance=0.0,
    second_jpeg_chance=0.0,
)  # fmt: skip
"""Every step on, none doing anything."""


@pytest.fixture(scope="module")
def crop(astronaut: np.ndarray) -> np.ndarray:
    """(128, 128, 3) uint8: a face."""
    return np.ascontiguousarray(cv2.resize(astronaut[:256, 96:352], (128, 128), interpolation=cv2.INTER_AREA))


def rng(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def sharpness(picture: np.ndarray) -> float:
    return float(cv2.Laplacian(picture.astype(np.float32), cv2.CV_32F).var())


def is_gray(picture: np.ndarray) -> bool:
    return bool((picture == picture[..., :1]).all())


@needs_basicsr
def test_same_seed_same_bytes_whatever_others_do_with_the_global_states(crop: np.ndarray) -> None:
    """Another process: ``test_crops``."""
    options = DegradationConfig(old_photo_chance=0.5)
    first = [degrade_pair(crop, options, rng(seed)) for seed in range(12)]
    np.random.seed(99)
    random.seed(99)
    again = [degrade_pair(crop, options, rng(seed)) for seed in range(12)]
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not np.array_equal(first[0][0], first[1][0])


@needs_basicsr
def test_global_random_states_come_back_as_they_were(crop: np.ndarray) -> None:
    np.random.seed(5)
    random.seed(5)
    expected = np.random.random(), random.random()
    np.random.seed(5)
    random.seed(5)
    degrade_pair(crop, DAMAGED, rng(1))
    assert (np.random.random(), random.random()) == expected


@needs_basicsr
def test_crop_itself_is_not_written_to_and_sides_share_no_memory(crop: np.ndarray) -> None:
    before = crop.copy()
    for chance in (0.0, 1.0):
        degraded, original = degrade_pair(crop, replace(DAMAGED, clean_chance=chance), rng(2))
        assert not np.shares_memory(degraded, original)
        assert not np.shares_memory(original, crop)
        assert degraded.shape == original.shape == crop.shape
        assert degraded.dtype == original.dtype == np.uint8
    assert np.array_equal(crop, before)


@needs_basicsr
def test_clean_share_is_the_crop_on_both_sides(crop: np.ndarray) -> None:
    options = replace(DegradationConfig(), clean_chance=0.3)
    small = cv2.resize(crop, (64, 64), interpolation=cv2.INTER_AREA)
    same = [np.array_equal(*degrade_pair(small, options, rng(seed))) for seed in range(300)]
    assert 0.22 < np.mean(same) < 0.38


@needs_basicsr
def test_steps_that_do_nothing_change_nothing(crop: np.ndarray) -> None:
    degraded, original = degrade_pair(crop, UNTOUCHED, rng(3))
    assert np.array_equal(original, crop)
    assert np.array_equal(degraded, crop)


@needs_basicsr
@pytest.mark.parametrize(
    "step",
    [
        {"sigma": (8.0, 10.0)},
        {"motion_chance": 1.0, "motion_length": (25.0, 30.0)},
        {"shrink": (6.0, 8.0)},
        {"tiny_chance": 1.0, "tiny_side": (32, 33)},
    ],
)
def test_each_loss_of_sharpness_is_on_the_degraded_side_alone(crop: np.ndarray, step: dict) -> None:
    degraded, original = degrade_pair(crop, replace(UNTOUCHED, **step), rng(4))
    assert np.array_equal(original, crop)
    assert sharpness(degraded) < 0.5 * sharpness(original)


@needs_basicsr
def test_noise_has_the_deviation_asked_for() -> None:
    flat = np.full((128, 128, 3), 128, np.uint8)
    degraded, original = degrade_pair(flat, replace(UNTOUCHED, noise=(10.0, 10.0), noise_gray_chance=0.0), rng(5))
    assert np.array_equal(original, flat)
    assert degraded.astype(float).std() == pytest.approx(10.0, rel=0.05)
    assert not is_gray(degraded)
    assert is_gray(degrade_pair(flat, replace(UNTOUCHED, noise=(10.0, 10.0), noise_gray_chance=1.0), rng(5))[0])


@needs_basicsr
def test_gray_photo_is_gray_on_both_sides_through_noise_and_jpeg(crop: np.ndarray) -> None:
    options = replace(
        DegradationConfig(), clean_chance=0.0, gray_chance=1.0, old_photo_chance=0.5, second_jpeg_chance=1.0
    )
    for seed in range(12):
        degraded, original = degrade_pair(crop, options, rng(seed))
        assert is_gray(original)
        assert is_gray(degraded)


@needs_basicsr
def test_tones_are_on_both_sides(crop: np.ndarray) -> None:
    options = replace(UNTOUCHED, old_photo_chance=1.0, colour_shift=0.04)
    for seed in range(12):
        degraded, original = (side.astype(float) for side in degrade_pair(crop, options, rng(seed)))
        tone = np.abs(original.mean(axis=(0, 1)) - crop.mean(axis=(0, 1))).max()
        apart = np.abs(degraded.mean(axis=(0, 1)) - original.mean(axis=(0, 1))).max()
        assert tone > 3.0  # levels: it was toned
        assert apart < 0.5 * tone + 3.0  # and so was the other side; grain and scratches weigh little


@needs_basicsr
def test_colour_shift_alone_is_equal_on_both_sides_and_within_its_limit(crop: np.ndarray) -> None:
    degraded, original = degrade_pair(crop, replace(UNTOUCHED, colour_shift=0.04), rng(6))
    assert np.abs(degraded.astype(int) - original).max() <= 1
    assert 0 < np.abs(original.astype(int) - crop).max() <= round(0.04 * 255) + 1


@pytest.mark.parametrize("damage", [old_photo.grained, old_photo.scratched])
def test_damage_of_a_gray_print_stays_gray_and_in_range(crop: np.ndarray, damage) -> None:
    gray = old_photo.gray((crop / 255).astype(np.float32))
    damaged = damage(gray, rng(7))
    assert damaged.dtype == np.float32
    assert damaged.min() >= 0.0
    assert damaged.max() <= 1.0
    assert np.allclose(damaged, damaged[..., :1])
    assert not np.allclose(damaged, gray)


def test_tones_do_not_leave_the_range() -> None:
    ends = np.array([[[0, 0, 0], [1, 1, 1]]], np.float32)
    for seed in range(30):
        toned = old_photo.aged_tones(ends, rng(seed))
        assert toned.min() >= 0.0
        assert toned.max() <= 1.0
        assert (toned[0, 0] < toned[0, 1]).all()


@settings(max_examples=60, deadline=None)
@given(length=st.floats(0.2, 31.0), angle=st.floats(0.0, 3.15))
def test_motion_kernel_is_a_centred_line_of_its_length(length: float, angle: float) -> None:
    kernel = motion_kernel(length, angle).astype(float)
    side = kernel.shape[0]
    assert side % 2 == 1
    assert kernel.sum() == pytest.approx(1.0, abs=1e-5)
    at = np.arange(side) - side // 2
    x, y = np.meshgrid(at, at)
    assert abs((kernel * x).sum()) < 0.02
    assert abs((kernel * y).sum()) < 0.02
    along = ((kernel * (x * np.cos(angle) + y * np.sin(angle)) ** 2).sum()) ** 0.5
    assert along == pytest.approx(
        length / 12**0.5, abs=0.6
    )  # an even line's deviation; spreading over pixels adds a little


def test_absent_basicsr_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(DeviceError, match=r"basicsr.*pip install 'gpen-cli\[train\]'"):
        basicsr_shim.require_basicsr()


@needs_basicsr
def test_stand_in_for_torchvision_is_gone_after_loading() -> None:
    before = np.geterr()
    basicsr_shim.degradations.cache_clear()
    assert basicsr_shim.degradations().random_mixed_kernels
    assert "torchvision.transforms.functional_tensor" not in sys.modules
    assert np.geterr() == before


def likeness_of_neighbours(picture: np.ndarray) -> float:
    """Correlation of each value with its right neighbour's: 0 for noise that fell on these pixels."""
    values = picture.astype(np.float64) - picture.mean()
    return float((values[:, 1:] * values[:, :-1]).mean() / (values**2).mean())


@needs_basicsr
def test_noise_alone_may_fall_on_a_small_photo(crop: np.ndarray) -> None:
    """Nothing but noise then differs from the face at the small photo's size, and neighbours share it once enlarged."""
    light = replace(UNTOUCHED, light_chance=1.0, noise=(20.0, 20.0), jpeg=(100.0, 100.0), shrink=(8.0, 8.0))
    light = replace(light, sigma=(0.01, 0.02))
    large, small = (replace(light, light_small_chance=chance) for chance in (0.0, 1.0))
    gray = np.full_like(crop, 128)  # no detail to lose by shrinking
    seeds = [
        seed for seed in range(40)
        if (degrade_pair(gray, large, rng(seed))[0].astype(float) - 128).std() > 10
    ]  # fmt: skip
    assert 4 <= len(seeds) <= 20, "one fault of four"
    for seed in seeds:
        assert abs(likeness_of_neighbours(degrade_pair(gray, large, rng(seed))[0])) < 0.1
        assert likeness_of_neighbours(degrade_pair(gray, small, rng(seed))[0]) > 0.5
