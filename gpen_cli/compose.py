"""Masks, and the paste of faces into the photo: a residual, under a mask, inside a rectangle.

canvas += mask · warp(restored − crop). A face that was not changed changes nothing, exactly; 16-bit and wide-gamut photos
keep their own values; outside the masks every pixel is the photo's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np

from gpen_cli import geometry
from gpen_cli.colour import delta_in_photo_space
from gpen_cli.data import Float32Array, Float64Array, Photo, PhotoPixels
from gpen_cli.restore_crop import LUMA
from gpen_cli.upscale import enlarge

FADE = 0.2
"""Width of the mask's fade, as a share of the crop's side, on each side: it grows with the face in the output."""

PARSE_CLASSES = {
    "background": 0, "skin": 1, "nose": 2, "glasses": 3, "left_eye": 4, "right_eye": 5, "left_brow": 6, "right_brow": 7,
    "left_ear": 8, "right_ear": 9, "mouth": 10, "upper_lip": 11, "lower_lip": 12, "hair": 13, "hat": 14, "earring": 15,
    "necklace": 16, "neck": 17, "cloth": 18,
}  # fmt: skip
"""ParseNet's classes: CelebAMask-HQ's (Lee et al., CVPR 2020)."""

_NOT_FACE = ("background", "hair", "hat", "necklace", "cloth")
PARSE_BLUR = 1 / 48
"""Blur of a parsed mask's outline, as a share of the crop's side."""


@dataclass(frozen=True)
class Patch:
    """A restored face, ready to be added. residual: (S, S, 3) float32 sRGB levels; mask: (S, S) float32, 0..1, 0 at the edge."""

    residual: Float32Array
    mask: Float32Array
    crop_from_photo: Float64Array


def feather_mask(size: int) -> Float32Array:
    """(size, size) float32: 1 in the middle, falling smoothly to exactly 0 on the outermost pixels."""
    position = np.arange(size, dtype=np.float32)
    distance = np.minimum(position, size - 1 - position) / np.float32(FADE * (size - 1))
    ramp = np.clip(distance, 0.0, 1.0)
    ramp = ramp * ramp * (3.0 - 2.0 * ramp)
    return np.outer(ramp, ramp).astype(np.float32)


def parsed_mask(labels: np.ndarray, size: int, *, hair: bool) -> Float32Array:
    """(size, size) float32 from ParseNet's (512, 512) labels: the face (with ``hair``, also the hair), under the feather."""
    left_out = [PARSE_CLASSES[name] for name in _NOT_FACE if not (hair and name == "hair")]
    face = (~np.isin(labels, left_out)).astype(np.float32)
    face = cv2.resize(face, (size, size), interpolation=cv2.INTER_AREA if size < face.shape[0] else cv2.INTER_LINEAR)
    face = cv2.GaussianBlur(face, (0, 0), PARSE_BLUR * size)
    return np.asarray(face, np.float32) * feather_mask(size)


def paste(photo: Photo, patches: Sequence[Patch], size: tuple[int, int]) -> PhotoPixels:
    """The photo at ``size`` (width, height) with every patch added: (H, W, 3) in the photo's type and space."""
    canvas = enlarge(photo.pixels, size)
    placed = [_place(patch, photo.size, size) for patch in patches]
    present = [item for item in placed if item is not None]
    shown = enlarge(photo.shown, size) if _has_own_space(photo) and present else None
    for index, (patch, canvas_from_crop, rect) in enumerate(present):
        weight = _weight_in(rect, index, present)
        residual = patch.residual
        if photo.gray:
            residual = np.repeat((residual @ LUMA)[..., None], 3, axis=2)
        delta = geometry.warp_to_rect(residual, canvas_from_crop, rect) * weight[..., None]
        add_shown(canvas, rect, delta, shown, photo)
    return canvas


def _has_own_space(photo: Photo) -> bool:
    """sRGB levels are the photo's own levels unless it is in another space: only then the nets' view is needed again."""
    return photo.metadata.icc is not None and photo.shown is not photo.pixels


_Placed = tuple[Patch, Float64Array, geometry.Rect]


def _place(patch: Patch, photo_size: tuple[int, int], size: tuple[int, int]) -> _Placed | None:
    side = patch.mask.shape[0]
    canvas_from_photo = geometry.scaling(photo_size, size)
    canvas_from_crop = geometry.compose(canvas_from_photo, geometry.invert(patch.crop_from_photo))
    rect = geometry.clip_rect(geometry.bounds(canvas_from_crop, (side, side)), size)
    return None if rect is None else (patch, canvas_from_crop, rect)


def _mask_in(rect: geometry.Rect, placed: _Placed) -> Float32Array:
    patch, canvas_from_crop, _ = placed
    return np.clip(geometry.warp_to_rect(patch.mask, canvas_from_crop, rect), 0.0, 1.0)


def _weight_in(rect: geometry.Rect, index: int, placed: Sequence[_Placed]) -> Float32Array:
    """The face's mask, shared with the masks of faces that overlap it: m / max(1, Σm) has no line where two faces meet."""
    own = _mask_in(rect, placed[index])
    total = own
    for other, item in enumerate(placed):
        overlap = _intersection(rect, item[2])
        if other == index or overlap is None:
            continue
        if total is own:
            total = own.copy()
        x0, y0, x1, y1 = overlap
        total[y0 - rect[1] : y1 - rect[1], x0 - rect[0] : x1 - rect[0]] += _mask_in(overlap, item)
    return own if total is own else np.asarray(own / np.maximum(total, 1.0), np.float32)


def _intersection(a: geometry.Rect, b: geometry.Rect) -> geometry.Rect | None:
    x0, y0, x1, y1 = max(a[0], b[0]), max(a[1], b[1]), min(a[2], b[2]), min(a[3], b[3])
    return (x0, y0, x1, y1) if x0 < x1 and y0 < y1 else None


def add_shown(
    canvas: PhotoPixels, rect: geometry.Rect, delta: Float32Array, shown: PhotoPixels | None, photo: Photo
) -> None:
    """Adds ``delta``, sRGB levels (of 255) over ``rect``, to the canvas in its own space and depth, rounding to nearest.

    shown: the canvas's sRGB view; needed only for a photo in another space than sRGB.
    """
    x0, y0, x1, y1 = rect
    if shown is not None and _has_own_space(photo):
        before = shown[y0:y1, x0:x1]
        delta = delta_in_photo_space(before, before.astype(np.float32) + delta, photo.metadata.icc)
    region = canvas[y0:y1, x0:x1]
    top = np.iinfo(canvas.dtype).max
    levels = region.astype(np.float32) + delta * np.float32(top / 255)
    # Pixels no mask reaches keep their value to the bit: float32 holds every uint16 exactly.
    region[...] = np.clip(np.rint(levels), 0, top).astype(canvas.dtype)


def mask_picture(photo: Photo, patches: Sequence[Patch], size: tuple[int, int]) -> np.ndarray:
    """(H, W) uint8: where the faces' masks lie on the output, for --debug-mask. White is all net, black all photo."""
    picture = np.zeros((size[1], size[0]), np.float32)
    for patch in patches:
        placed = _place(patch, photo.size, size)
        if placed is None:
            continue
        x0, y0, x1, y1 = placed[2]
        region = picture[y0:y1, x0:x1]
        np.maximum(region, _mask_in(placed[2], placed), out=region)
    return np.rint(picture * 255).astype(np.uint8)
