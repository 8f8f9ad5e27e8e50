"""From a net's output to what is added to the photo: colour, strength, sharpness, all at the crop's own size.

Everything here is a change of the *residual* (restored − crop, in sRGB levels): where the net changed nothing, nothing is
changed, exactly. Order: keep what was sharp → colour → strength → sharpening.
"""

from __future__ import annotations

import functools

import cv2
import numpy as np

from gpen_cli.data import Float32Array, UInt8Image

LUMA = np.array([0.299, 0.587, 0.114], np.float32)  # Rec. 601, as JPEG's Y
COLOR_SIGMA = 1 / 16
"""Blur that parts skin tone from features, as a share of the crop: wider than an eye, narrower than a cheek."""
ONE_TINT = 2.1
"""Spread of a and b (CIELAB) about a curve of lightness, below which a crop has one tint. shared/faces/old: 0.0 to 1.7; the
colour portraits of whole: 2.6 (nearly gray ones) to 19."""
TINT_STEP = 4
"""Of the crop's rows and columns, which are smooth when the tint is looked for, every so many are enough."""
HALO_REACH = 1 / 48
"""Distance within which a value must occur in the photo to be drawn around the face, as a share of the crop's side."""
HALO_SLACK = 2.0
"""Levels (of 255) it may lie beyond."""
HUE_REACH, HUE_SLACK = 3 / 256, 1.5
"""As HALO_REACH and HALO_SLACK, of the colour alone, in the face as well: an iris of a blurred face is 4 to 8 px of 256 wide."""
FACE_CENTRE, FACE_RADII = (0.50, 0.57), (0.235, 0.32)
"""The face's oval in GPEN's crop, brows to chin and cheek to cheek, as shares of its side (by eye, on shared/faces/whole)."""
DETAIL_SIGMA = 1 / 128
"""Blur under which --fidelity-weight above 1 and --sharpen see detail (2 px of a 256 crop)."""
FINEST_SIGMA, FINEST_FLOOR = 1.0, 0.05
"""Pixels of the crop, and variance (levels²) that keeps plain skin from a division by nothing."""
KEPT_POWER = 6
"""Of 1, 3 and 6 the one with which heavy JPEG loses nothing (benchmarks/quality, docs/models.md)."""
LOCAL_RANGE = np.ones((5, 5), np.uint8)
"""Neighbourhood whose darkest and brightest luma bound added detail, so that no halo appears."""
SHARPEN_GAIN = 2.0
"""--sharpen 1 adds twice the detail: visible, not harsh (judged by eye)."""
WIDE_SIGMA, WIDE_SHRINK = 16.0, 4
"""Sigma in pixels from which a blur is done on a picture so many times smaller, where it still has 4."""
KEEP_SIGMA = 1 / 32
"""Neighbourhood over which the sharpness of crop and restored face is compared, as a share of the crop."""
KEEP_AGREEMENT = (0.2, 0.5)
"""Correlation of the two high bands from which they begin to be, and are, the same detail: noise that was removed lies below."""
KEEP_GAIN = 3.0
"""A third of the way to "sharp" already protects all of a softened face's detail."""


def residual_of(
    crop: UInt8Image, restored: UInt8Image, *, own_detail: float, color_fix: str, weight: float, sharpen: float
) -> Float32Array:
    """(S, S, 3) uint8 before and after -> (S, S, 3) float32, what to add to the crop, in sRGB levels.

    own_detail: 0..1, how far the photo's face is sharper than the crop (``AlignedFace``); at 1 nothing is added.
    color_fix: ``lab`` (the photo's tone, no halos, no new hues) | ``hues`` (the last alone) | ``tint`` (gray and sepia stay so) |
    ``none``;
    weight: --fidelity-weight, 0..2; sharpen: 0..1.
    """
    if weight == 0.0:
        return np.zeros(crop.shape, np.float32)
    before = crop.astype(np.float32)
    residual = restored.astype(np.float32) - before
    if own_detail > 0.0:
        residual = keep_sharp_detail(before, residual, own_detail)
    if color_fix == "lab":
        residual = without_halos(before, residual + photo_tone(before, before + residual))
    elif color_fix == "tint":
        residual = residual + one_tint(before, before + residual)
    if color_fix in ("lab", "hues"):
        residual = without_new_hues(before, residual)
    if weight < 1.0:
        residual = residual * np.float32(weight)
    elif weight > 1.0:
        residual = residual + stronger_detail(before, before + residual, weight)[..., None]
    if sharpen > 0.0:
        residual = residual + sharper(before + residual, sharpen)[..., None]
    return residual * np.float32(1.0 - own_detail)


def without_halos(before: Float32Array, residual: Float32Array) -> Float32Array:
    """Around the face (hair, background, shoulders) no channel leaves the range of the photo's surroundings.

    A net that draws too hard puts a bright line around dark hair, and a coloured one beside it. Out there it has little to
    restore, and an edge needs no value that is not within a few pixels already; in the face itself nothing is held back.
    Part of --color-fix lab, since both keep to the photo's levels.
    """
    excess = _excess(before + residual, before, HALO_REACH, HALO_SLACK)
    return residual - _around_the_face(before.shape[0])[..., None] * excess


def without_new_hues(before: Float32Array, residual: Float32Array) -> Float32Array:
    """No pixel is more red or more blue, for its luma, than the photo is within a few pixels of it. Luma is left as it is.

    What blur took away is drawn as it is most frequent in the training photos: dark eyes came back blue, teeth bluish
    (pretrained_models/MODEL_CARD.md). A photo that shows no blue there gives no reason for it; that noise and blocks of colour
    become even is not held back.
    """
    red_blue = before[..., ::2] - (before @ LUMA)[..., None]
    after = red_blue + residual[..., ::2] - (residual @ LUMA)[..., None]
    excess = _excess(after, red_blue, HUE_REACH, HUE_SLACK)
    green = -(excess @ LUMA[::2]) / LUMA[1]
    return residual - np.stack((excess[..., 0], green, excess[..., 1]), axis=-1)


def _excess(after: Float32Array, before: Float32Array, reach: float, slack: float) -> Float32Array:
    """How far ``after`` leaves the range that ``before`` has within ``reach`` (a share of the side), by more than ``slack``."""
    pixels = max(1, round(reach * before.shape[0]))
    window = np.ones((2 * pixels + 1, 2 * pixels + 1), np.uint8)
    return after - np.clip(after, cv2.erode(before, window) - slack, cv2.dilate(before, window) + slack)


@functools.cache
def _around_the_face(size: int) -> Float32Array:
    """(S, S): 0 in the face's oval of a GPEN crop, 1 well outside of it."""
    y, x = np.mgrid[0:size, 0:size].astype(np.float32) / np.float32(size - 1)
    distance = np.hypot((x - FACE_CENTRE[0]) / FACE_RADII[0], (y - FACE_CENTRE[1]) / FACE_RADII[1])
    return np.asarray(np.clip((distance - 0.85) / 0.15, 0.0, 1.0), np.float32)


def photo_tone(before: Float32Array, after: Float32Array) -> Float32Array:
    """The change of ``after`` that gives it the low frequencies of ``before`` in CIELAB: the photo's own skin tone and light.

    Returned as a difference of two conversions, so that it is exactly 0 where before equals after.
    """
    lab_before, lab_after = _lab(before), _lab(after)
    shift = _wide_blur(lab_before - lab_after, COLOR_SIGMA)
    if _is_tinted_monochrome(lab_before):
        shift[..., 1:] = lab_before[..., 1:] - lab_after[..., 1:]
    return _rgb(lab_after + shift) - _rgb(lab_after)


def one_tint(before: Float32Array, after: Float32Array) -> Float32Array:
    """The change of ``after`` that gives a gray or sepia ``before`` its own tint back; 0 for one in colour.

    The net, trained on colour, would draw pink lips, bluish teeth and gray hair into it.
    """
    lab_before, lab_after = _lab(before), _lab(after)
    if not _is_tinted_monochrome(lab_before):
        return np.zeros_like(before)
    tinted = np.concatenate((lab_after[..., :1], lab_before[..., 1:]), axis=2)
    return _rgb(tinted) - _rgb(lab_after)


def _is_tinted_monochrome(lab: Float32Array) -> bool:
    """Whether the chroma of a crop follows from its lightness, as in gray, sepia and yellowed prints."""
    smooth = _blur(lab, DETAIL_SIGMA)[::TINT_STEP, ::TINT_STEP].reshape(-1, 3)
    lightness = smooth[:, 0] / 100.0
    terms = np.stack((np.ones_like(lightness), lightness, lightness * lightness), axis=1)
    rest = smooth[:, 1:] - terms @ np.linalg.lstsq(terms, smooth[:, 1:], rcond=None)[0]
    return bool(rest.std(axis=0).max() < ONE_TINT)


def stronger_detail(before: Float32Array, after: Float32Array, weight: float) -> Float32Array:
    """(S, S) luma to add for a fidelity weight above 1: (W − 1)·H(Y_net − Y_photo), kept inside the local range of Y_net."""
    luma = after @ LUMA
    return _bounded(luma, (weight - 1.0) * _detail(luma - before @ LUMA))


def sharper(after: Float32Array, amount: float) -> Float32Array:
    """(S, S) luma to add: an unsharp mask kept inside the local range, so that edges steepen without halos."""
    luma = after @ LUMA
    return _bounded(luma, amount * SHARPEN_GAIN * _detail(luma))


def _bounded(luma: Float32Array, gain: Float32Array) -> Float32Array:
    low, high = cv2.erode(luma, LOCAL_RANGE), cv2.dilate(luma, LOCAL_RANGE)
    return np.clip(luma + gain, low, high) - luma


def keep_sharp_detail(before: Float32Array, residual: Float32Array, own_detail: float) -> Float32Array:
    """Where a sharp, large face came back softer, the crop's own detail stays.

    For faces that are sharper in the photo than the crop can hold, if only by a little: their crop is the photo averaged
    down, so its detail is real, and a net that draws it softer must not take it away. Where the net's face has less energy
    than the crop in the high band, and the two agree (the same detail drawn softer, not noise that was removed), the
    crop's high band comes back.
    """
    detail_before = _detail(before @ LUMA)
    detail_change = _detail(residual @ LUMA)
    detail_after = detail_before + detail_change
    energy_before = _blur(detail_before * detail_before, KEEP_SIGMA) + 1e-3
    energy_after = _blur(detail_after * detail_after, KEEP_SIGMA) + 1e-3
    shared = _blur(detail_before * detail_after, KEEP_SIGMA) / np.sqrt(energy_before * energy_after)
    agree = np.clip((shared - KEEP_AGREEMENT[0]) / (KEEP_AGREEMENT[1] - KEEP_AGREEMENT[0]), 0.0, 1.0)
    # Half the softening already earns the whole detail back: blending two versions of an edge costs contrast.
    softened = np.clip(2.0 * (1.0 - np.sqrt(energy_after / energy_before)), 0.0, 1.0)
    share = np.float32(min(1.0, KEEP_GAIN * own_detail)) * agree * softened
    return residual - (share * detail_change)[..., None]


def kept_detail(before: Float32Array, residual: Float32Array) -> Float32Array:
    """(S, S) 0..1: how far detail finer than the crop is to be trusted, from what the change leaves of the crop's finest.

    Its regression on what was there before, in a neighbourhood (the gain of a local Wiener filter), to the power KEPT_POWER: 1
    where nothing changed or detail was sharpened, towards 0 where noise and JPEG's blocks were taken out: finer, they are worse.
    """
    finest = FINEST_SIGMA / before.shape[0]
    fine = _detail(before @ LUMA, finest)
    energy = _blur(fine * fine, KEEP_SIGMA) + np.float32(FINEST_FLOOR)
    shared = energy + _blur(fine * _detail(residual @ LUMA, finest), KEEP_SIGMA)
    return np.asarray(np.clip(shared / energy, 0.0, 1.0) ** KEPT_POWER, np.float32)


def _detail(luma: Float32Array, share: float = DETAIL_SIGMA) -> Float32Array:
    return luma - _blur(luma, share)


def _blur(image: Float32Array, share: float, border: int = cv2.BORDER_REFLECT_101) -> Float32Array:
    """Gaussian whose sigma is ``share`` of the crop's side."""
    sigma = share * image.shape[0]
    return np.asarray(cv2.GaussianBlur(image, (0, 0), sigma, borderType=border), np.float32)


def _wide_blur(image: Float32Array, share: float) -> Float32Array:
    """``_blur`` for a sigma of many pixels, worked out at a quarter of the size: off by a hundredth of ``image``'s range."""
    size = image.shape[0]
    if share * size < WIDE_SIGMA or size % WIDE_SHRINK:
        return _blur(image, share)
    small = cv2.resize(image, (size // WIDE_SHRINK,) * 2, interpolation=cv2.INTER_AREA)
    blurred = _blur(small, share, cv2.BORDER_REFLECT)  # whose middle lies nearest to the full size's
    return np.asarray(cv2.resize(blurred, (size, size), interpolation=cv2.INTER_LINEAR), np.float32)


def _lab(rgb: Float32Array) -> Float32Array:
    """sRGB levels (0..255) -> CIELAB (L 0..100)."""
    scaled = np.clip(rgb, 0.0, 255.0) * np.float32(1 / 255)
    return np.asarray(cv2.cvtColor(scaled, cv2.COLOR_RGB2LAB), np.float32)


def _rgb(lab: Float32Array) -> Float32Array:
    return np.asarray(cv2.cvtColor(lab, cv2.COLOR_LAB2RGB), np.float32) * np.float32(255)
