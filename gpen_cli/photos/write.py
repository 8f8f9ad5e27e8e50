"""Finished pixels to the bytes of a file, and bytes to a file that is either whole or not there."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from gpen_cli.colour import eight_bit, srgb_view
from gpen_cli.data import Metadata, Photo, PhotoPixels
from gpen_cli.errors import OutputError, PhotoError
from gpen_cli.paths import is_dir
from gpen_cli.photos import lossless
from gpen_cli.photos.formats import FORMATS, Format, resolve_format
from gpen_cli.photos.metadata import EXIF_PREFIX, exif_for_output, xmp_for_output
from gpen_cli.photos.temporary import temporary_beside

_JPEG_SEGMENT_BYTES = 65533  # what an application segment can hold (a 16-bit length that counts itself)
_JPEG_XMP_BYTES = _JPEG_SEGMENT_BYTES - len(b"http://ns.adobe.com/xap/1.0/\0")
_BMP_BYTES = 2**32 - 2**16  # a BMP's length is a 32-bit number


@dataclass(frozen=True)
class Encoded:
    """An encoded picture. suffix: with its dot; warnings: what the format could not hold, as sentences."""

    data: bytes
    suffix: str
    warnings: tuple[str, ...] = ()


def encode_photo(
    photo: Photo,
    pixels: PhotoPixels,
    alpha: PhotoPixels | None,
    *,
    format_name: str,
    quality: int | None,
    strip_metadata: bool = False,
) -> Encoded:
    """Encodes a finished canvas with what belongs to its source photo.

    photo: the source, for metadata, gray and format. pixels: (uH, uW, 3) uint8 or uint16 in the photo's own space;
    alpha: (uH, uW) of the same type, or None. format_name: a key of ``FORMATS`` or ``same`` (a JPEG source keeps its
    quantisation tables unless a quality is given, or they are coarser than the default's: those would undo what was
    restored). quality: 1 to 100, or None for the format's default.
    strip_metadata: nothing goes along but the colour profile, without which the colours would be others.
    Raises ``PhotoError`` when the format cannot hold a picture of this size.
    """
    row = FORMATS[resolve_format(format_name, photo.source_format)]
    height, width = pixels.shape[:2]
    _check_sides(row, width, height)
    metadata, warnings = _metadata_for(row, photo, (width, height))
    if strip_metadata:
        metadata, warnings = Metadata(icc=metadata.icc), ()
    samples, more = _samples_for(row, pixels, alpha, gray=photo.gray)
    warnings += more
    if photo.gray and not row.gray:  # WebP: colour channels, to which a gray profile would not apply
        view = srgb_view(np.repeat(samples[..., :1], 3, axis=2), gray=True, icc=metadata.icc)
        samples, metadata = np.dstack([view.shown, samples[..., 1:]]), replace(metadata, icc=None)
    if row.name == "png":
        data = lossless.png(samples, metadata)
    elif row.name == "tiff":
        try:
            data = lossless.tiff(samples, metadata)
        except ValueError as error:
            raise PhotoError(f"a TIFF cannot hold {width}x{height} pixels of this kind (4 GB); write png.") from error
    else:
        tables = photo.source_format.quantization if photo.source_format and format_name == "same" else None
        if tables and _coarseness(tables) > _coarseness(_default_tables()):
            tables = None
        data = _with_pillow(row, samples, metadata, quality, tables)
    return Encoded(data, row.suffixes[0], warnings)


def _check_sides(row: Format, width: int, height: int) -> None:
    if max(width, height) > row.max_side:
        raise PhotoError(
            f"{row.label} holds at most {row.max_side} pixels a side, the result has {width}x{height}; write png."
        )
    if row.name == "bmp" and width * height * 4 > _BMP_BYTES:
        raise PhotoError(f"BMP holds at most 4 GB, the result has {width}x{height} pixels; write png.")


def _metadata_for(row: Format, photo: Photo, size: tuple[int, int]) -> tuple[Metadata, tuple[str, ...]]:
    source = photo.metadata
    if not row.exif:
        had = any((source.exif, source.xmp, source.icc))
        warning = f"{row.label} cannot hold date, camera, place or colour profile; they were left out."
        return Metadata(dpi=source.dpi), (warning,) if had else ()
    exif, warnings = exif_for_output(source.exif, size=size)
    metadata = replace(
        source, exif=exif, xmp=xmp_for_output(source.xmp, size=size, made_from=source.digest, captions=source.captions)
    )
    if row.name == "jpg" and len(exif) + len(EXIF_PREFIX) > _JPEG_SEGMENT_BYTES:
        metadata = replace(metadata, exif=exif_for_output(None, size=size)[0])
        warnings += ("the EXIF data is larger than a JPEG can hold (64 KB) and was left out; write png to keep it.",)
    if row.name == "jpg" and len(metadata.xmp or b"") > _JPEG_XMP_BYTES:
        metadata = replace(metadata, xmp=xmp_for_output(None, size=size, made_from=source.digest))
        warnings += ("the XMP data is larger than a JPEG can hold (64 KB) and was left out; write png to keep it.",)
    return metadata, warnings


def _samples_for(
    row: Format, pixels: PhotoPixels, alpha: PhotoPixels | None, *, gray: bool
) -> tuple[PhotoPixels, tuple[str, ...]]:
    """(uH, uW, C) samples the format can hold, and what was lost."""
    warnings: tuple[str, ...] = ()
    if pixels.dtype == np.uint16 and not row.deep:
        pixels, alpha = eight_bit(pixels), None if alpha is None else eight_bit(alpha)
        warnings += (f"{row.label} holds 8 bits a channel; 16 bits were rounded to 8.",)
    if alpha is not None and not row.alpha:
        if (alpha != np.iinfo(alpha.dtype).max).any():
            pixels = _over_white(pixels, alpha)
            warnings += (f"{row.label} holds no transparency; the picture was put on white.",)
        alpha = None
    colours = _folded(pixels) if gray else pixels
    samples = colours if alpha is None else np.concatenate([colours, alpha[..., None]], axis=2)
    return samples, warnings


def _over_white(pixels: PhotoPixels, alpha: PhotoPixels) -> PhotoPixels:
    white = int(np.iinfo(pixels.dtype).max)
    share = alpha[..., None].astype(np.float32) / white
    return np.rint(pixels * share + white * (1 - share)).astype(pixels.dtype)


def _folded(pixels: PhotoPixels) -> PhotoPixels:
    """(H, W, 3) to (H, W, 1): the channel itself where the three agree, else their luma (Rec. 601, as JPEG's)."""
    if (pixels[..., 0] == pixels[..., 1]).all() and (pixels[..., 1] == pixels[..., 2]).all():
        return np.ascontiguousarray(pixels[..., :1])
    luma = pixels.astype(np.float32) @ np.array([0.299, 0.587, 0.114], np.float32)
    return np.rint(luma).astype(pixels.dtype)[..., None]


def _with_pillow(
    row: Format, samples: PhotoPixels, metadata: Metadata, quality: int | None, tables: dict[int, list[int]] | None
) -> bytes:
    picture = Image.fromarray(np.ascontiguousarray(samples[..., 0] if samples.shape[2] == 1 else samples))
    options: dict[str, Any] = {}
    if metadata.dpi is not None:
        options["dpi"] = metadata.dpi
    if metadata.exif is not None:
        options["exif"] = EXIF_PREFIX + metadata.exif
    options.update({key: v for key, v in (("icc_profile", metadata.icc), ("xmp", metadata.xmp)) if v is not None})
    if row.name == "jpg":
        options["subsampling"] = "4:4:4"
        if quality is None and tables:
            options["qtables"] = [tables[key] for key in sorted(tables)]
        else:
            options["quality"] = quality or row.default_quality
    elif row.name == "webp":
        # exact: colours under transparent pixels are the photo's, not the encoder's.
        options |= {"quality": quality or row.default_quality, "exact": True}
    target = io.BytesIO()
    picture.save(target, {"jpg": "JPEG", "webp": "WEBP", "bmp": "BMP"}[row.name], **options)
    return target.getvalue()


def _coarseness(tables: Mapping[int, Sequence[int]]) -> float:
    """Mean step of a JPEG's finest table, its luma's."""
    return min(float(np.mean(table)) for table in tables.values())


@cache
def _default_tables() -> Mapping[int, Sequence[int]]:
    """Quantisation of a JPEG of our default quality."""
    stream = io.BytesIO()
    Image.new("RGB", (8, 8)).save(stream, "JPEG", quality=FORMATS["jpg"].default_quality)
    tables: Mapping[int, Sequence[int]] = Image.open(stream).quantization  # type: ignore[attr-defined]
    return tables


_BAD_NAMES = (errno.ENAMETOOLONG, errno.EINVAL, errno.EILSEQ)
_REASONS = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EFBIG: "the file is larger than the system allows",
    errno.EACCES: "writing there is not permitted",
    errno.EPERM: "writing there is not permitted",
    errno.EROFS: "the disk is read-only",
    errno.ENOENT: "the folder is gone",
    errno.ENOTDIR: "the folder is gone",
    errno.EIO: "the disk does not answer",
}


def write_atomically(target: Path, data: bytes, *, like: os.stat_result | None = None) -> None:
    """Puts ``data`` under ``target``: after a crash at any moment there is the old file, or the new one, whole.

    Written under a short temporary name in the same folder with the permissions the umask gives (or owner and permissions
    of ``like``, as far as we may give them), flushed to the disk, renamed. Raises ``OutputError`` when the folder cannot be
    written, ``PhotoError`` when only this name cannot; the temporary file is then gone.
    """
    temporary = temporary_beside(target)
    renamed = False
    try:
        if is_dir(target):
            raise PhotoError(f"{target} is a folder, not a file that can be written; give another name.")
        with temporary.open("xb") as file:
            if like is not None:
                _make_like(file.fileno(), like)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)  # noqa: PTH105 (the test suite fails it by this name)
        renamed = True
    except OSError as error:
        raise _write_error(target, error) from error
    finally:
        if not renamed:  # also after Ctrl-C
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
    _flush_folder(target.parent)


def _make_like(handle: int, like: os.stat_result) -> None:
    """Permissions and, for who may give files away, owner and group: before there is anything in the file to be read."""
    if os.name != "posix":
        return
    os.fchmod(handle, stat.S_IMODE(like.st_mode) & 0o700)
    with contextlib.suppress(OSError):
        os.fchown(handle, like.st_uid, like.st_gid)
    os.fchmod(handle, stat.S_IMODE(like.st_mode) & 0o777)


def make_folder(folder: Path) -> None:
    """Makes a folder for results, and those above it. Raises OutputError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"The folder {folder} cannot be made: {error.strerror or error}; name another.") from error


def _write_error(target: Path, error: OSError) -> OutputError | PhotoError:
    if error.errno in _BAD_NAMES:
        return PhotoError(f"{target} is no name this disk can hold ({error.strerror}); give another one.")
    reason = _REASONS.get(error.errno or 0, error.strerror or str(error))
    return OutputError(f"{target} cannot be written: {reason}; free or choose another folder, then run again.")


def _flush_folder(folder: Path) -> None:
    """Makes the rename itself survive a power cut, where the system lets a folder be flushed (Windows does not)."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
