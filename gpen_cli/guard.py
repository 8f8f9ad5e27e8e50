"""Is this still the same person? A restorer may draw another face than the one in the photo.

A true restoration, blurred to what the photo really shows, is the photo. So the two crops are compared in two bands of luma
that a blurred, noisy or badly compressed face still has, around eyes, nose and mouth and over the whole face and its outline:
how much of the structure do they not share? Brightness, colour and contrast do not count (a band has no mean; one gain for
the whole face is fitted), nor does the photo's noise (measured, and taken off), nor the finer band where the photo shows little
of the restored face's contrast. Past the limit the face is blended back, and soon kept as it is in the photo.
What it sees and misses, and where the limits come from: docs/guard.md, benchmarks/guard.py.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import cv2
import numpy as np

from gpen_cli.data import Float32Array, UInt8Image

SIDE = 128
"""Px at which crops are compared, whatever their size: a face of 30 photo px has a crop of 50."""
BANDS = ((2.0, 4.0), (4.0, 8.0))
"""Sigmas of the two Gaussians whose difference is a band, px of SIDE: features, and the light and shape they lie in."""
NOISE_GAIN = tuple((1 / low**2 + 1 / high**2 - 4 / (low**2 + high**2)) / (4 * np.pi) for low, high in BANDS)
"""Variance left in a band by white noise of variance 1 a pixel: the integral of the band's squared kernel."""
NOISE_MARGIN = 3.0
"""Times the noise measured is forgiven: the windows hold few independent values, and JPEG hides part of the noise."""
LEAST_SIDE = 24
"""Photo px a crop below which noise is no longer told from the face itself."""
FLOOR = (2.0, 4.0)
"""Variance (levels²) added to each band's structure, so that plain skin, fog and black are not judged by what little is there."""
EVERYWHERE = 2.0
"""Times the difference of the most alike part is forgiven in the finer band too: what lies over all of the face there is noise
that JPEG or an earlier enlargement hid from the measure; another face shows in the coarser band."""
LEAST_GAIN, MOST_GAIN = 0.2, 3.0
"""Contrast of the photo over the restored face's, within which it is followed."""
BLURRED_AWAY, PRESENT = 0.6, 0.85
"""The same ratio in the finer band, between which that band begins to count: below, the photo is too blurred to have it."""
FINEST = (1.0, 2.0)
"""A band, as in BANDS, that is not compared: how much of it the photo still shows says how good the photo is."""
POOR, GOOD = 0.5, 0.8
"""The same ratio in the finest band, between which the limits sink to STRICT of themselves."""
SMALL, LARGE = 64.0, 96.0
"""Sides of the crop in photo px, between which the same: what is left of a small face after noise and JPEG is hard to know."""
STRICT = 0.5
"""A large face whose photo shows all of the restored one's detail is held to this share of the limits: nothing of the
difference can be the photo's fault. (Sharp originals as the answer to crops of 96 px and more: no score above 0.4 without it.)"""
DOUBT, WRONG = 1.0, 1.4
"""Scores up to which the restored face stays whole and from which the photo's own face is kept."""
CAUGHT_SHARE = 0.5
"""Share up to which a face counts as caught (half of the restorer's change, or less, is used)."""


Moments = tuple[Float32Array, Float32Array, Float32Array]


@dataclass(frozen=True)
class Part:
    """A part of an aligned crop. centre, spread: (x, y) as shares of its side; hole: spread of what is left out of its middle.

    limits: share of the structure that may differ, in the finer and the coarser band.
    """

    name: str
    centre: tuple[float, float]
    spread: tuple[float, float]
    limits: tuple[float, float]
    hole: tuple[float, float] | None = None


# Limits, on half a of the validation faces (docs/guard.md): above the 98th percentile of the true sharp face as the answer to
# crops of 27 to 256 px with blur, noise and JPEG; every kind of other person lies above at least one of them. Left and right
# as seen in the picture.
PARTS = (
    Part("left eye", (0.39, 0.46), (0.06, 0.06), (0.17, 0.14)),
    Part("right eye", (0.61, 0.46), (0.06, 0.06), (0.17, 0.14)),
    Part("nose", (0.50, 0.59), (0.05, 0.06), (0.20, 0.25)),
    Part("mouth", (0.50, 0.70), (0.09, 0.05), (0.20, 0.25)),
    Part("face", (0.50, 0.58), (0.16, 0.20), (0.17, 0.126)),
    Part("outline", (0.50, 0.55), (0.25, 0.30), (0.17, 0.126), hole=(0.12, 0.16)),
)
WHOLE = 4
"""Index of the part that the contrast is taken from."""


@dataclass(frozen=True)
class Verdict:
    """What to do with a restored face.

    share: 0..1 of the restorer's change that may stay (1 untouched, 0 the photo's own face); reason: why less than 1, or None;
    score: 0 (the same) upwards, DOUBT and WRONG are its limits; part: where it is highest.
    """

    share: float
    reason: str | None
    score: float
    part: str


def judge(crop: UInt8Image, restored: UInt8Image, *, shrink: float) -> Verdict:
    """Compares a crop before and after. crop: (S, S, 3), restored: (T, T, 3), uint8 sRGB, aligned to the template.

    shrink: photo pixels a crop pixel; below 1 the photo's face is smaller than the crop, which was enlarged from it.
    Nothing is kept between calls; threads may share it.
    """
    finest, finer, coarser = map(_moments, _bands(_luma(crop)), _bands(_luma(restored)))
    variance = NOISE_MARGIN * _noise(crop, shrink)
    good = _ramp(_contrast(finest), POOR, GOOD) * _ramp(crop.shape[0] * min(1.0, shrink), SMALL, LARGE)
    limit = 1.0 - (1.0 - STRICT) * good
    trust = _ramp(_contrast(finer), BLURRED_AWAY, PRESENT)
    everywhere = EVERYWHERE * max(0.0, float(_difference(finer).min()))
    features = trust * _unlike(finer, max(everywhere, variance * NOISE_GAIN[0]), FLOOR[0]) / _limits(0)
    shapes = _unlike(coarser, variance * NOISE_GAIN[1], FLOOR[1]) / _limits(1)
    each = np.maximum(features, shapes) / limit
    worst = int(each.argmax())
    score = float(each[worst])
    share = _share(score)
    return Verdict(share, _reason(share, PARTS[worst].name), score, PARTS[worst].name)


def _share(score: float) -> float:
    """1 up to DOUBT, 0 from WRONG, smooth between."""
    way = _ramp(score, DOUBT, WRONG)
    return 1.0 - way * way * (3.0 - 2.0 * way)


def _reason(share: float, part: str) -> str | None:
    if share == 1.0:
        return None
    done = "the photo's own face is kept" if share == 0.0 else f"{100 * share:.0f} % of the restoration is used"
    return f"the restored face differs from the photo's ({part}); {done}"


def _luma(image: UInt8Image) -> Float32Array:
    """(S, S, 3) -> (SIDE, SIDE) float32 levels; averaged when it shrinks."""
    gray = cv2.cvtColor(image, cv2.COLOR_RGB2GRAY).astype(np.float32)
    if gray.shape[0] == SIDE:
        return gray
    how = cv2.INTER_AREA if gray.shape[0] > SIDE else cv2.INTER_LINEAR
    return np.asarray(cv2.resize(gray, (SIDE, SIDE), interpolation=how), np.float32)


def _bands(luma: Float32Array) -> list[Float32Array]:
    """FINEST and BANDS of it."""
    blurred = {
        sigma: cv2.GaussianBlur(luma, (0, 0), sigma, borderType=cv2.BORDER_REFLECT_101)
        for sigma in sorted({sigma for band in (FINEST, *BANDS) for sigma in band})
    }
    return [np.asarray(blurred[low] - blurred[high]) for low, high in (FINEST, *BANDS)]


def _moments(before: Float32Array, after: Float32Array) -> Moments:
    """Variances before and after and their covariance, under each part's window: (parts,) each."""
    one, other = before.ravel(), after.ravel()
    powers = np.stack((one, other, one * one, other * other, one * other))
    # Not @: a BLAS may add up in another order with other threads, and a share decides bytes of the picture.
    mean_one, mean_other, square_one, square_other, product = np.einsum("kn,pn->kp", powers, _windows())
    return square_one - mean_one**2, square_other - mean_other**2, product - mean_one * mean_other


def _contrast(moments: Moments) -> float:
    """How much of the restored face's structure the photo shows: 1 all, 0 nothing (or another face's)."""
    _, after, both = moments
    return max(0.0, float(both[WHOLE])) / (float(after[WHOLE]) + 0.5)  # half a level: never a division by 0


def _expected(moments: Moments) -> Float32Array:
    """(parts,) variance of the restored face at the photo's contrast."""
    gain = _gain(moments)
    return gain * gain * moments[1]


def _gain(moments: Moments) -> float:
    return min(MOST_GAIN, max(LEAST_GAIN, _contrast(moments)))


def _difference(moments: Moments) -> Float32Array:
    """(parts,) variance of the photo less the restored face at the photo's contrast, levels²."""
    return moments[0] - 2.0 * _gain(moments) * moments[2] + _expected(moments)


def _unlike(moments: Moments, noise: float, floor: float) -> Float32Array:
    """(parts,) share of the structure that is not common: 0 for equal faces, about 1 for faces without likeness, at most 2."""
    structure = 0.5 * (moments[0] + _expected(moments)) + floor
    return np.clip(_difference(moments) - noise, 0.0, None) / structure


def _ramp(value: float, low: float, high: float) -> float:
    """0 up to ``low``, 1 from ``high``."""
    return min(1.0, max(0.0, (value - low) / (high - low)))


def _noise(crop: UInt8Image, shrink: float) -> float:
    """Variance of the photo's luma noise, as of white noise at SIDE px: a photo pixel that covers four counts fourfold.

    Measured at the photo's own resolution, where it is white, as the median response to Immerkær's mask (Fast Noise Variance
    Estimation, 1996), which edges and slopes do not move.
    """
    size = crop.shape[0]
    side = min(size, max(LEAST_SIDE, round(size * shrink)))
    gray = cv2.cvtColor(crop, cv2.COLOR_RGB2GRAY).astype(np.float32)
    if side < size:
        gray = cv2.resize(gray, (side, side), interpolation=cv2.INTER_AREA)
    response = np.abs(cv2.filter2D(gray, cv2.CV_32F, _IMMERKAER)[side // 5 : -side // 8, side // 5 : -side // 5])
    deviation = float(np.median(response)) / (0.6745 * 6.0)  # median to sigma of a Gaussian; the mask's norm is 6
    return deviation**2 * (SIDE / side) ** 2


_IMMERKAER = np.array([[1, -2, 1], [-2, 4, -2], [1, -2, 1]], np.float32)


@functools.cache
def _windows() -> Float32Array:
    """(parts, SIDE·SIDE) weights, each row summing to 1."""
    rows, columns = (np.mgrid[0:SIDE, 0:SIDE] + 0.5) / SIDE

    def bump(part: Part, spread: tuple[float, float]) -> np.ndarray:
        across, down = (columns - part.centre[0]) / spread[0], (rows - part.centre[1]) / spread[1]
        return np.exp(-0.5 * (across**2 + down**2))

    found = []
    for part in PARTS:
        weight = bump(part, part.spread)
        if part.hole is not None:
            weight = np.clip(weight - bump(part, part.hole), 0.0, None)
        found.append((weight / weight.sum()).ravel())
    return np.asarray(found, np.float32)


@functools.cache
def _limits(band: int) -> Float32Array:
    """(parts,)"""
    return np.array([part.limits[band] for part in PARTS], np.float32)
