"""Pictures of every kind gpen reads, small, and the ways their bytes come to harm."""

from __future__ import annotations

import io
import random
import struct
from collections.abc import Callable

import numpy as np
from pictures import saved
from PIL import Image, ImageCms, features
from test_photos_read import deep_png, tiff

SIDES = (28, 44)
"""Height and width: neither is a multiple of a block."""


def seeds() -> dict[str, bytes]:
    """Kind -> a whole file of it."""
    rng = np.random.default_rng(11)
    noise = rng.integers(0, 40, (*SIDES, 4)) + np.linspace(0, 200, SIDES[1])[None, :, None]
    rgba = Image.fromarray(noise.astype(np.uint8))
    rgb, gray = rgba.convert("RGB"), rgba.convert("L")
    deep = rng.integers(0, 65536, (*SIDES, 4), dtype=np.uint16)
    exif = Image.Exif()
    exif[274], exif[271], exif[306] = 6, "ACME", "2026:11:30 12:00:00"
    icc = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    made = {
        "jpeg": saved(rgb, "JPEG", exif=exif, icc_profile=icc, dpi=(300, 300)),
        "jpeg-progressive": saved(rgb, "JPEG", progressive=True, quality=92),
        "jpeg-gray": saved(gray, "JPEG"),
        "jpeg-cmyk": saved(rgb.convert("CMYK"), "JPEG"),
        "jpeg-restarts": saved(rgb, "JPEG", restart_marker_blocks=2, subsampling="4:2:0"),
        "mpo": saved(rgb, "MPO", save_all=True, append_images=[rgb]),
        "png": saved(rgb, "PNG", exif=exif, icc_profile=icc),
        "png-alpha": saved(rgba, "PNG"),
        "png-palette": saved(rgb.quantize(16), "PNG", transparency=1),
        "png-bilevel": saved(gray.convert("1"), "PNG"),
        "png-16": deep_png(deep[..., :3]),
        "png-16-alpha": deep_png(deep),
        "png-interlaced": _interlaced(rgb),
        "webp": saved(rgb, "WEBP", exif=exif, icc_profile=icc),
        "webp-lossless": saved(rgba, "WEBP", lossless=True),
        "bmp": saved(rgb, "BMP"),
        "bmp-palette": saved(rgb.quantize(16), "BMP"),
        "gif": saved(rgb.quantize(32), "GIF"),
        "tiff": saved(rgb, "TIFF", exif=exif, icc_profile=icc),
        "tiff-lzw": saved(rgb, "TIFF", compression="tiff_lzw"),
        "tiff-jpeg": saved(rgb, "TIFF", compression="jpeg"),
        "tiff-packbits": saved(rgba, "TIFF", compression="packbits"),
        "tiff-fax": saved(gray.convert("1"), "TIFF", compression="group4"),
        "tiff-16": tiff(deep[..., :3].copy(), photometric="rgb", compression="adobe_deflate", predictor=True),
        "tiff-16-big-endian": tiff(deep[..., :3].copy(), photometric="rgb", byteorder=">"),
        "tiff-16-tiled": tiff(deep[..., :3].copy(), photometric="rgb", tile=(16, 16)),
        "tiff-cmyk": saved(rgb.convert("CMYK"), "TIFF", compression="tiff_deflate"),
    }
    if features.check("avif"):
        made["avif"] = saved(rgb, "AVIF", exif=exif)
        made["avif-alpha"] = saved(rgba, "AVIF")
    return made | _heif(rgb)


def _heif(rgb: Image.Image) -> dict[str, bytes]:
    try:
        import pillow_heif
    except ImportError:
        return {}
    target = io.BytesIO()
    pillow_heif.from_pillow(rgb.resize((64, 64))).save(target, quality=80)
    return {"heic": target.getvalue()}


def _interlaced(rgb: Image.Image) -> bytes:
    """Adam7, which Pillow cannot write: the seven passes as libpng defines them."""
    import zlib

    pixels = np.asarray(rgb)
    passes = ((0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1))
    rows = [
        b"\0" + row.tobytes() for top, left, down, right in passes for row in pixels[top::down, left::right] if row.size
    ]

    def chunk(name: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", rgb.width, rgb.height, 8, 2, 0, 0, 1))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(b"".join(rows))) + chunk(b"IEND", b"")


# -- harm: each takes the bytes, another file's, and the generator of chance --


def _at(data: bytes, rng: random.Random) -> int:
    """A place; the headers, where the meaning is, get two thirds of them."""
    return rng.randrange(min(len(data), rng.choice((64, 512, len(data)))))


def bits_flipped(data: bytes, other: bytes, rng: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 2, 8, 64))):
        changed[_at(data, rng)] ^= 1 << rng.randrange(8)
    return bytes(changed)


def cut_off(data: bytes, other: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data))]


def piece_doubled(data: bytes, other: bytes, rng: random.Random) -> bytes:
    at, span = _at(data, rng), rng.choice((1, 4, 16, 200))
    return data[: at + span] * 1 + data[at : at + span] * rng.choice((1, 1, 50)) + data[at + span :]


def piece_removed(data: bytes, other: bytes, rng: random.Random) -> bytes:
    at = _at(data, rng)
    return data[:at] + data[at + rng.choice((1, 4, 16, 200)) :]


def length_edited(data: bytes, other: bytes, rng: random.Random) -> bytes:
    """A two- or four-byte number becomes an extreme one, or one off: lengths, sides, offsets and counts are such."""
    width = rng.choice((2, 4))
    at = max(0, min(_at(data, rng), len(data) - width))
    kind = rng.choice((">H", "<H")) if width == 2 else rng.choice((">I", "<I"))
    (value,) = struct.unpack(kind, data[at : at + width])
    top = 2 ** (8 * width) - 1
    new = rng.choice((0, 1, top, top // 2, top // 2 + 1, value + 1, value - 1, value * 2, len(data))) & top
    return data[:at] + struct.pack(kind, new) + data[at + width :]


def zeros_run(data: bytes, other: bytes, rng: random.Random) -> bytes:
    at, span = _at(data, rng), rng.choice((4, 64, 1000))
    return data[:at] + bytes(min(span, len(data) - at)) + data[at + span :]


def spliced(data: bytes, other: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data))] + other[rng.randrange(len(other)) :]


def twice(data: bytes, other: bytes, rng: random.Random) -> bytes:
    """Two harms at once."""
    for _ in range(2):
        data = rng.choice(HARMS[:-1])(data, other, rng) or b"\0"
    return data


Harm = Callable[[bytes, bytes, random.Random], bytes]
HARMS: tuple[Harm, ...] = (
    bits_flipped, cut_off, piece_doubled, piece_removed, length_edited, zeros_run, spliced, twice,
)  # fmt: skip


def mutated(number: int, whole: dict[str, bytes]) -> tuple[str, bytes]:
    """The ``number``-th damaged file, the same whenever it is asked for: its name (kind and harm in it) and bytes.

    Kinds and harms are gone through in turn, so that 2000 files meet every pair several times.
    """
    rng = random.Random(number)
    kinds = list(whole)
    kind = kinds[number % len(kinds)]
    harm = HARMS[number // len(kinds) % len(HARMS)]
    data = harm(whole[kind], whole[rng.choice(kinds)], rng)
    return f"{number:05d}-{kind}-{harm.__name__}", data
