"""Colour spaces: the 8-bit sRGB view the nets see, and their changes carried back into the photo's own space.

The photo's own pixels never go through a conversion: only the *change* a net made is converted, so depth, gamut and
untouched pixels stay exact, and 8-bit colour management (all Pillow offers) is enough.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import cast

import cv2
import numpy as np
import numpy.typing as npt
from PIL import Image, ImageCms

from gpen_cli.data import Float32Array, Float64Array, PhotoPixels, UInt8Image

NEUTRAL = 128
"""Level shown to detector and nets where a photo is fully transparent: no edge, no colour, nothing hidden."""

_PROFILE_FAILURES = (ImageCms.PyCMSError, OSError, ValueError, TypeError, struct.error)

# Linear sRGB to XYZ under the ICC's D50 (IEC 61966-2-1 primaries, Bradford-adapted; as in the ICC's sRGB profiles).
_XYZ_FROM_SRGB: Float64Array = np.array(
    [[0.4360747, 0.3850649, 0.1430804], [0.2225045, 0.7168786, 0.0606169], [0.0139322, 0.0971045, 0.7141733]]
)

ToOwn = Callable[[Float32Array], Float32Array]
"""(h, w, 3) float32 sRGB, 0..255, to the photo's own space, same shape and range."""


def eight_bit(pixels: PhotoPixels) -> UInt8Image:
    """uint16 to uint8, rounded (65535 / 255 = 257); uint8 is returned as it is."""
    if pixels.dtype == np.uint8:
        return pixels
    quotient, rest = np.divmod(pixels, np.uint16(257))
    return cast(UInt8Image, (quotient + (rest > 128)).astype(np.uint8))


@dataclass(frozen=True)
class View:
    """shown: (H, W, 3) uint8 sRGB; icc: the profile that still belongs to the pixels, or None; warnings: sentences."""

    shown: UInt8Image
    icc: bytes | None
    warnings: tuple[str, ...] = ()


def srgb_view(pixels: PhotoPixels, *, gray: bool, icc: bytes | None) -> View:
    """The view of (H, W, 3) pixels for the nets; ``pixels`` itself when it is 8-bit sRGB already.

    A profile that is damaged or belongs to another kind of picture is ignored, with a warning, and not kept.
    """
    shown = eight_bit(pixels)
    if icc is None:
        return View(shown, None)
    space = colour_space(icc)
    if space is None or (space.kind == "GRAY" and not gray):
        return View(shown, None, ("the colour profile is damaged or of another kind of picture; sRGB was assumed.",))
    if space.srgb:
        return View(shown, icc)
    picture = Image.fromarray(np.ascontiguousarray(shown[..., 0] if space.kind == "GRAY" else shown))
    return View(np.asarray(space.srgb_from_own.apply(picture)), icc)


def hide_transparent(shown: UInt8Image, alpha: PhotoPixels | None) -> UInt8Image:
    """The view with a neutral fill where alpha is 0: what a program left there must not be taken for a face."""
    if alpha is None or alpha.all():
        return shown
    filled = shown.copy()
    filled[alpha == 0] = NEUTRAL
    return filled


def rgb_from_foreign(picture: Image.Image, icc: bytes | None) -> tuple[Image.Image, tuple[str, ...]]:
    """A CMYK or LAB picture (Pillow's convention: 255 = full ink) as sRGB, through its profile when it has one."""
    if picture.mode == "LAB":
        return _transform(_named("LAB"), _named("sRGB"), "LAB", "RGB").apply(picture), ()
    if icc is None:
        return picture.convert("RGB"), ()
    try:
        to_srgb = _transform(_open_profile(icc), _named("sRGB"), "CMYK", "RGB")
        return to_srgb.apply(picture), ()
    except _PROFILE_FAILURES:
        return picture.convert("RGB"), ("the CMYK profile is damaged; colours were converted without it.",)


def delta_in_photo_space(before: UInt8Image, after: Float32Array, icc: bytes | None) -> Float32Array:
    """What to add to a photo's pixels, in its own space, so that its view turns from ``before`` into ``after``.

    before: (h, w, 3) uint8 sRGB, a rectangle of ``Photo.shown``; after: (h, w, 3) float32 sRGB, 0..255.
    Returns (h, w, 3) float32 in 8-bit units (times 257 for a 16-bit photo); exactly 0 wherever nothing changed.
    """
    start = before.astype(np.float32)
    space = colour_space(icc) if icc is not None else None
    if space is None or space.srgb:
        return after - start
    delta = space.own_from_srgb(np.clip(after, 0, 255)) - space.own_from_srgb(start)
    # The same value may round differently in another lane of a SIMD loop: unchanged pixels are set, not trusted.
    delta[(after == start).all(axis=2)] = 0
    return delta


@dataclass(frozen=True)
class ColourSpace:
    """A usable profile. kind: ``RGB`` | ``GRAY``; srgb: it is sRGB in all but name; the conversions both ways."""

    kind: str
    srgb: bool
    srgb_from_own: ImageCms.ImageCmsTransform
    own_from_srgb: ToOwn


@lru_cache(maxsize=8)  # a pure function of the bytes; lcms transforms may be used by many threads at once
def colour_space(icc: bytes) -> ColourSpace | None:
    """What the profile means, or None when it is damaged or neither an RGB nor a gray one."""
    try:
        profile = _open_profile(icc)
        kind = profile.profile.xcolor_space.strip()
        if kind not in ("RGB", "GRAY"):
            return None
        mode = "L" if kind == "GRAY" else "RGB"
        srgb_from_own = _transform(profile, _named("sRGB"), mode, "RGB")
        own_from_srgb = _transform(_named("sRGB"), profile, "RGB", mode)
        grid = _grid(np.arange(0, 256, 17) if kind == "RGB" else np.arange(256), kind)
        seen = _applied(srgb_from_own, grid[..., 0] if kind == "GRAY" else grid)
        srgb = int(np.abs(seen.astype(int) - grid).max()) <= 1  # 1: rounding inside lcms
        return ColourSpace(kind, srgb, srgb_from_own, _choose_inverse(icc, kind, own_from_srgb))
    except _PROFILE_FAILURES:
        return None


def _open_profile(icc: bytes) -> ImageCms.ImageCmsProfile:
    return ImageCms.ImageCmsProfile(io.BytesIO(icc))


def _named(name: str) -> ImageCms.ImageCmsProfile:
    return ImageCms.ImageCmsProfile(ImageCms.createProfile("LAB" if name == "LAB" else "sRGB"))


def _transform(
    source: ImageCms.ImageCmsProfile, target: ImageCms.ImageCmsProfile, source_mode: str, target_mode: str
) -> ImageCms.ImageCmsTransform:
    return ImageCms.ImageCmsTransform(
        source,
        target,
        source_mode,
        target_mode,
        ImageCms.Intent.RELATIVE_COLORIMETRIC,
        flags=ImageCms.Flags.BLACKPOINTCOMPENSATION,
    )


def _applied(transform: ImageCms.ImageCmsTransform, pixels: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    return np.asarray(transform.apply(Image.fromarray(np.ascontiguousarray(pixels))))


def _grid(levels: npt.NDArray[np.int64], kind: str) -> UInt8Image:
    """All triples of levels, or the gray ones, as an (n, m, 3) picture."""
    axes = np.meshgrid(levels, levels, levels, indexing="ij") if kind == "RGB" else [levels] * 3
    return np.stack(axes, axis=-1).astype(np.uint8).reshape(len(levels), -1, 3)


def _choose_inverse(icc: bytes, kind: str, transform: ImageCms.ImageCmsTransform) -> ToOwn:
    """Arithmetic for matrix profiles (P3, Adobe RGB, ProPhoto and nearly all gray ones), a table for the rest.

    The arithmetic is taken only if it agrees with lcms: mean difference under 1 of 255 levels (rounding gives 0.25;
    a wrong reading of a profile gives tens).
    """
    grid = _grid(np.arange(0, 256, 15) if kind == "RGB" else np.arange(256), kind)
    wanted = _applied(transform, grid)
    try:
        exact = _arithmetic(icc, kind)
    except (ValueError, struct.error, np.linalg.LinAlgError):
        return _table(transform, kind)
    got = exact(grid.astype(np.float32))
    difference = np.abs(got - wanted.reshape(*grid.shape[:2], -1))
    return exact if float(difference.mean()) < 1 else _table(transform, kind)


# -- matrix profiles: decode sRGB, one matrix, encode with the inverse of the profile's curves (ICC.1:2022, F.3) --

_DECODE_STEPS = 64  # per level: an input is read 1/128 level off at most
_ENCODE_STEPS = 16384  # over the square root of light, where encodings are nearly straight: 0.04 level at most (tested)

_BAND_ROWS = 32  # a few rows' intermediate values stay in the cache: 0.9 s instead of 2.6 s for 12 megapixels


def _srgb_light(levels: Float64Array) -> Float32Array:
    encoded = levels / 255
    return np.where(encoded <= 0.04045, encoded / 12.92, ((encoded + 0.055) / 1.055) ** 2.4).astype(np.float32)


def _arithmetic(icc: bytes, kind: str) -> ToOwn:
    tags = _tags(icc)
    if any(name in tags for name in (b"B2A0", b"B2A1", b"B2D0", b"B2D1")):
        raise ValueError("the profile is a table, which goes before its matrix")
    decode = _srgb_light(np.arange(255 * _DECODE_STEPS + 1) / _DECODE_STEPS)
    if kind == "GRAY":
        matrix = np.repeat(_XYZ_FROM_SRGB[1:2], 3, axis=0)  # light of the three channels to luminance, three times
        curves = [tags[b"kTRC"]] * 3
    else:
        own = np.stack([_xyz(tags[name]) for name in (b"rXYZ", b"gXYZ", b"bXYZ")], axis=1)
        matrix = np.linalg.inv(own) @ _XYZ_FROM_SRGB
        curves = [tags[name] for name in (b"rTRC", b"gTRC", b"bTRC")]
    matrix = (matrix / matrix.sum(axis=1, keepdims=True)).astype(np.float32)  # white is white, to the last digit
    encode = [_inverse(_curve(tag)) for tag in curves]

    def own_from_srgb(pixels: Float32Array) -> Float32Array:
        own = np.empty_like(pixels)
        for top in range(0, len(pixels), _BAND_ROWS):
            band = pixels[top : top + _BAND_ROWS]
            light = decode.take((band * _DECODE_STEPS + 0.5).astype(np.int32))
            light = cv2.transform(light, matrix)
            place = (np.sqrt(np.clip(light, 0, 1)) * (_ENCODE_STEPS - 1) + 0.5).astype(np.int32)
            for channel, table in enumerate(encode):
                own[top : top + _BAND_ROWS, :, channel] = table.take(place[..., channel])
        return own

    return own_from_srgb


def _tags(icc: bytes) -> dict[bytes, bytes]:
    (count,) = struct.unpack_from(">I", icc, 128)
    if count > 200:  # real profiles hold about 20
        raise ValueError("not a tag table")
    rows = (struct.unpack_from(">4sII", icc, 132 + 12 * row) for row in range(count))
    tags = {name: icc[start : start + length] for name, start, length in rows}
    needed = {b"kTRC"} if b"kTRC" in tags else {b"rXYZ", b"gXYZ", b"bXYZ", b"rTRC", b"gTRC", b"bTRC"}
    if not needed <= tags.keys():
        raise ValueError("no matrix profile")
    return tags


def _xyz(tag: bytes) -> Float64Array:
    return np.array(struct.unpack_from(">3i", tag, 8)) / 65536


def _curve(tag: bytes) -> Callable[[Float64Array], Float64Array]:
    """A tone curve: encoded value to light, both 0..1 (types ``curv`` and ``para``)."""
    if tag[:4] == b"curv":
        (count,) = struct.unpack_from(">I", tag, 8)
        if count == 0:
            return lambda x: x
        if count == 1:
            gamma = struct.unpack_from(">H", tag, 12)[0] / 256
            return lambda x: x**gamma
        samples = np.frombuffer(tag, ">u2", count, 12) / 65535
        return lambda x: np.interp(x, np.linspace(0, 1, count), samples)
    if tag[:4] != b"para":
        raise ValueError("unknown kind of curve")
    (form,) = struct.unpack_from(">H", tag, 8)
    if form > 4:
        raise ValueError("unknown parametric curve")
    values = [v / 65536 for v in struct.unpack_from(f">{(1, 3, 4, 5, 7)[form]}i", tag, 12)]
    g, a, b, c, d, e, f = values + [1.0, 0.0, 0.0, 0.0, 0.0, 0.0][len(values) - 1 :]
    if form in (
        1,
        2,
    ):  # the branch point is where the power's base turns positive; form 2 adds its fourth value to both
        c, d, e, f = 0.0, -b / a, (c if form == 2 else 0.0), (c if form == 2 else 0.0)
    if form == 0:
        d = 0.0
    return lambda x: np.where(x >= d, np.maximum(a * x + b, 0) ** g + e, c * x + f)


def _inverse(curve: Callable[[Float64Array], Float64Array]) -> Float32Array:
    """Table from the square root of light to levels 0..255, ``_ENCODE_STEPS`` long."""
    encoded = np.linspace(0, 1, 65536) ** 2  # close together where a power curve starts flat
    light = np.maximum.accumulate(curve(encoded))
    rising = np.concatenate([[True], np.diff(light) > 0])
    wanted = np.linspace(0, 1, _ENCODE_STEPS) ** 2
    return (np.interp(wanted, light[rising], encoded[rising]) * 255).astype(np.float32)


# -- other profiles: a table made with lcms, read with trilinear interpolation --

# Levels of the nodes: dense near black, where encodings are steep (Adobe RGB rises six levels over the first of sRGB).
_NODES = np.array([0, 1, 2, 3, 4, 6, 8, 11, 15, 20, 25, *range(32, 256, 8), 255])


def _table(transform: ImageCms.ImageCmsTransform, kind: str) -> ToOwn:
    nodes = _NODES if kind == "RGB" else np.arange(256)
    values = _applied(transform, _grid(nodes, kind)).astype(np.float32)
    if kind == "GRAY":
        return lambda pixels: _through_gray(pixels, values.ravel())
    cube = values.reshape(len(nodes), len(nodes), len(nodes), 3)
    return lambda pixels: _through_cube(pixels, cube)


def _through_gray(pixels: Float32Array, levels: Float32Array) -> Float32Array:
    luma = pixels @ np.array([0.299, 0.587, 0.114], np.float32)  # Rec. 601, as the writer folds a gray photo
    own = np.interp(luma, np.arange(256), levels).astype(np.float32)
    return np.repeat(own[..., None], 3, axis=2)


def _through_cube(pixels: Float32Array, cube: Float32Array) -> Float32Array:
    place = np.interp(pixels, _NODES, np.arange(len(_NODES))).astype(np.float32)
    low = np.minimum(place.astype(np.intp), len(_NODES) - 2)
    high_share = place - low
    result = np.zeros_like(pixels)
    for corner in range(8):
        step = np.array([corner >> 2 & 1, corner >> 1 & 1, corner & 1])
        share = np.where(step == 1, high_share, 1 - high_share).prod(axis=2, keepdims=True)
        red, green, blue = np.moveaxis(low + step, 2, 0)
        result += share * cube[red, green, blue]
    return result
