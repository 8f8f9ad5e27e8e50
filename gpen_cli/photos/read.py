"""Bytes of any picture file to an upright ``Photo``. Python has read the bytes; no decoder ever sees a path."""

from __future__ import annotations

import io
import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageFile

from gpen_cli.colour import hide_transparent, rgb_from_foreign, srgb_view
from gpen_cli.data import Metadata, Photo, PhotoPixels, SourceFormat
from gpen_cli.errors import PhotoError, TooManyPixelsError
from gpen_cli.options import ReadOptions
from gpen_cli.photos import opening
from gpen_cli.photos.captions import captions_of
from gpen_cli.photos.decode16 import decode_deep_png, deep_tiff, png_is_deep
from gpen_cli.photos.metadata import EXIF_PREFIX, read_orientation
from gpen_cli.photos.salvage import SALVAGEABLE, completed, only_end_missing
from gpen_cli.photos.tiff import check_tiff

TRUNCATED = "its end is missing: what was there was restored, the rest is flat (--allow-truncated)."
"""The warning, in log and report, of a photo that was cut off."""

_BITS = 258  # TIFF tag

# TIFF tags that describe the photo rather than how its pixels are stored; the others are not carried over.
_DESCRIPTIVE = (
    269,
    270,
    271,
    272,
    282,
    283,
    285,
    296,
    305,
    306,
    315,
    316,
    33432,
    34665,
    34853,
    40091,
    40092,
    40093,
    40094,
)
_DIRECTORIES = (34665, 34853)  # EXIF, GPS

# How a stored array is turned upright, by EXIF orientation (EXIF 2.32, tag 274).
_UPRIGHT: dict[int, Any] = {
    2: lambda a: a[:, ::-1],
    3: lambda a: a[::-1, ::-1],
    4: lambda a: a[::-1],
    5: lambda a: a.swapaxes(0, 1),
    6: lambda a: a[::-1].swapaxes(0, 1),
    7: lambda a: a[::-1, ::-1].swapaxes(0, 1),
    8: lambda a: a[:, ::-1].swapaxes(0, 1),
}


@dataclass(frozen=True)
class _Decoded:
    """samples: (H, W, C) as stored; C: 1 gray, 2 gray + alpha, 3 RGB, 4 RGB + alpha; orientation: still to apply."""

    samples: PhotoPixels
    metadata: Metadata
    source: SourceFormat
    orientation: int = 1
    warnings: tuple[str, ...] = ()


def read_photo(data: bytes, name: str, options: ReadOptions) -> Photo:
    """Decodes a whole, single picture; the content decides its format. ``name`` is what messages call it.

    Raises ``PhotoError``, one sentence, for anything that is not such a picture: empty, no picture, of an unknown
    format, cut off, damaged, animated, of several pages, over ``options.max_pixels``, too large for memory.
    """
    kind = opening.identify(data, name)
    try:
        try:
            return _read(data, kind, name, options)
        except opening.CutOffError as error:
            if kind == "JPEG" and (finished := only_end_missing(data)) is not None:
                return _read(finished, kind, name, options)
            if not options.allow_truncated:
                raise
            photo = _read_what_is_there(data, kind, name, options, error)
            return replace(photo, warnings=(*photo.warnings, TRUNCATED))
    except MemoryError as error:
        raise PhotoError(f"{name} does not fit into memory; make it smaller, or close other programs.") from error


def _read(data: bytes, kind: str, name: str, options: ReadOptions) -> Photo:
    with opening.explained(data, kind, name):
        decode = _decode_heif if kind == "HEIF" else _decode
        decoded = decode(data, kind, name, options)
    return _photo(decoded, options)


def _read_what_is_there(data: bytes, kind: str, name: str, options: ReadOptions, fault: PhotoError) -> Photo:
    """The picture of a file that is cut off, its missing part flat."""
    filled = None
    if kind in SALVAGEABLE:
        try:
            with opening.explained(data, kind, name):
                size = opening.open_picture(data, kind).size
        except opening.CutOffError:
            size = (0, 0)  # not even the header is whole
        _check_size(size, name, options, least=0)
        filled = completed(data, kind, pixels=size[0] * size[1])
    if filled is None:
        raise PhotoError(
            f"{name} is cut off, and nothing of it can be read without its end ({', '.join(SALVAGEABLE)} files can, "
            "unless compressed as TIFF); copy or download it again."
        ) from fault
    return _read(filled, kind, name, options)


def _photo(decoded: _Decoded, options: ReadOptions) -> Photo:
    upright = _UPRIGHT.get(decoded.orientation, lambda a: a)(decoded.samples)
    channels = upright.shape[2]
    gray, alpha = channels <= 2, None
    if channels in (2, 4):
        alpha = np.ascontiguousarray(upright[..., -1])
    pixels = np.repeat(upright[..., :1], 3, axis=2) if gray else upright[..., :3]
    if options.channel_order == "bgr" and not gray:
        pixels = pixels[..., ::-1]
    pixels = np.ascontiguousarray(pixels)
    view = srgb_view(pixels, gray=gray, icc=decoded.metadata.icc)
    return Photo(
        pixels=pixels,
        shown=hide_transparent(view.shown, alpha),
        alpha=alpha,
        gray=gray,
        metadata=replace(decoded.metadata, icc=view.icc),
        source_format=decoded.source,
        warnings=decoded.warnings + view.warnings,
    )


def _check_size(size: tuple[int, int], name: str, options: ReadOptions, *, least: int = 1) -> None:
    width, height = size
    if width < least or height < least:
        raise PhotoError(f"{name} has no pixels ({width}x{height}); get another copy of it.")
    if width * height > options.max_pixels:
        raise TooManyPixelsError(
            f"{name} has {width}x{height} = {width * height} pixels, more than the limit of {options.max_pixels}; "
            "make it smaller, or raise --max-pixels."
        )


def _decode(data: bytes, kind: str, name: str, options: ReadOptions) -> _Decoded:
    early = opening.webp_size(data[:32]) if kind == "WEBP" else None
    if early is not None:
        _check_size(early, name, options)
    deep = deep_tiff(data) if kind == "TIFF" else None
    picture: Any = opening.open_picture(data if deep is None else deep.as_gray, kind)
    _check_size(picture.size if deep is None else deep.size, name, options)
    if kind == "TIFF":
        check_tiff(picture, name)
    elif getattr(picture, "n_frames", 1) > 1:
        raise PhotoError(f"{name} is animated ({picture.n_frames} frames); save the frame you want as a picture.")
    if opening.is_zero_filled(data, kind):
        raise opening.CutOffError(name, kind)
    exif = _tiff_exif(picture) if kind == "TIFF" else None  # before load, which closes the file it lies in
    captions = captions_of(picture, kind) if kind == "TIFF" else {}
    picture.load()
    if deep is not None:
        samples, orientation = deep.samples(np.asarray(picture)), deep.orientation
        warnings: tuple[str, ...] = ()
    else:
        samples, warnings = _samples(data, kind, picture, name)
        exif = exif if kind == "TIFF" else _exif(picture.info)
        orientation = 1 if kind == "TIFF" else read_orientation(exif)  # Pillow turns a TIFF while loading it
    converted = picture.mode in ("CMYK", "LAB")
    icc = None if converted else picture.info.get("icc_profile") or None
    captions = captions or captions_of(picture, kind)  # of a PNG after load: texts may follow the pixels
    metadata = Metadata(exif=exif, xmp=_xmp(picture.info), icc=icc, dpi=_dpi(picture.info), captions=captions)
    tables = picture.quantization if kind == "JPEG" else None
    source = SourceFormat(kind, tables or None)
    return _Decoded(samples, metadata, source, orientation, _second_picture(picture) + warnings)


def _samples(data: bytes, kind: str, picture: Any, name: str) -> tuple[PhotoPixels, tuple[str, ...]]:
    """(H, W, C) samples of a loaded picture, CMYK and LAB turned into sRGB; and warnings."""
    if kind == "PNG" and png_is_deep(data):
        return decode_deep_png(data, transparent=picture.info.get("transparency")), ()
    if picture.mode.startswith("I;16"):  # 12-bit TIFF, BigTIFF
        bits = picture.tag_v2.get(_BITS, (16,))[0]
        deep = np.asarray(picture).astype(np.uint16)
        return ((deep << 16 - bits) | (deep >> 2 * bits - 16) if bits < 16 else deep)[..., None], ()
    if picture.mode in ("I", "F"):
        raise PhotoError(f"{name} holds 32-bit values, not a photo's; save it as a 16-bit TIFF or PNG.")
    if picture.mode in ("CMYK", "LAB"):
        rgb, warnings = rgb_from_foreign(picture, picture.info.get("icc_profile"))
        return np.array(rgb), warnings
    samples = np.array(_simple(picture))
    shallow = kind == "TIFF" and 16 in picture.tag_v2.get(_BITS, ())  # a BigTIFF in colour
    warnings = (
        ("its 16-bit values were read as 8-bit ones; save it as a classic TIFF to keep them.",) if shallow else ()
    )
    return (samples[..., None] if samples.ndim == 2 else samples), warnings


def _simple(picture: Image.Image) -> Image.Image:
    """Any 8-bit mode as L, LA, RGB or RGBA."""
    transparent = "transparency" in picture.info
    if picture.mode in ("1", "L"):
        return picture.convert("LA" if transparent else "L")
    if picture.mode in ("P", "RGB"):
        return picture.convert("RGBA" if transparent or _palette_alpha(picture) else "RGB")
    if picture.mode in ("LA", "RGBA"):
        return picture
    return picture.convert({"La": "LA", "PA": "RGBA", "RGBa": "RGBA"}.get(picture.mode, "RGB"))


def _palette_alpha(picture: Image.Image) -> bool:
    return picture.mode == "P" and picture.palette is not None and picture.palette.mode == "RGBA"


def _second_picture(picture: ImageFile.ImageFile) -> tuple[str, ...]:
    """What a JPEG carries behind its first picture (MPO; Ultra HDR's and Apple's gain maps), none of it kept."""
    segments = [content for _, content in getattr(picture, "applist", [])]
    marks = (b"hdrgm:", b"urn:iso:std:iso:ts:21496", b"HDRGainMap")
    if any(mark in content for content in segments for mark in marks):
        return ("its HDR gain map was dropped; the result is the standard (SDR) picture.",)
    if "mp" in picture.info:
        return ("it holds more than one picture (MPO); the first one was taken.",)
    return ()


def _exif(info: dict[Any, Any]) -> bytes | None:
    block = info.get("exif")
    if block is None and isinstance(info.get("Raw profile type exif"), str):  # as old ImageMagick put it into PNG
        block = bytes.fromhex("".join(info["Raw profile type exif"].split("\n")[3:]))
    return bytes(block).removeprefix(EXIF_PREFIX) or None if isinstance(block, bytes) else None


def _tiff_exif(picture: ImageFile.ImageFile) -> bytes | None:
    """The descriptive tags of a TIFF as an EXIF block of its own."""
    source, exif = picture.getexif(), Image.Exif()
    for tag in _DESCRIPTIVE:
        if tag in source:
            exif[tag] = source.get_ifd(tag) if tag in _DIRECTORIES else source[tag]
    return exif.tobytes().removeprefix(EXIF_PREFIX) if len(exif) else None


def _xmp(info: dict[Any, Any]) -> bytes | None:
    packet = info.get("xmp") or info.get("XML:com.adobe.xmp")
    if isinstance(packet, str):
        packet = packet.encode("utf-8", "surrogateescape")
    return packet.rstrip(b"\0") or None if isinstance(packet, bytes) else None


def _dpi(info: dict[Any, Any]) -> tuple[float, float] | None:
    try:
        x, y = (float(value) for value in info.get("dpi", ()))
    except (TypeError, ValueError, ZeroDivisionError):  # missing, or a rational of 0/0
        return None
    return (
        (x, y) if all(math.isfinite(v) and 1 < v < 1e5 for v in (x, y)) else None
    )  # 1: Pillow's, of a TIFF that says nothing


def _decode_heif(data: bytes, kind: str, name: str, options: ReadOptions) -> _Decoded:
    heif = opening.heif_library(name)
    picture = heif.open_heif(io.BytesIO(data), convert_hdr_to_8bit=False)
    _check_size(picture.size, name, options)
    info, many = picture.info, len(picture)
    warnings = (f"it holds {many} pictures; the main one was taken.",) if many > 1 else ()
    samples: npt.NDArray[Any] = np.array(picture)
    if samples.dtype == np.uint16:  # libheif shifts 10 and 12 bits up; full white must become 65535
        samples |= samples >> int(info.get("bit_depth", 16))
    samples = samples[..., None] if samples.ndim == 2 else samples
    metadata = Metadata(exif=_exif(info), xmp=_xmp(info), icc=info.get("icc_profile") or None, dpi=None)
    return _Decoded(samples, metadata, SourceFormat(kind), 1, warnings)  # libheif has turned it upright
