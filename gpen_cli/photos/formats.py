"""The picture formats this tool knows: told apart by their first bytes, and what each can hold.

Content decides, never the suffix. Nothing heavy is imported here: planning names and `gpen --help` need these tables.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpen_cli.errors import UsageError

if TYPE_CHECKING:  # data.py imports numpy
    from gpen_cli.data import SourceFormat

HEAD_BYTES = 32
"""How many first bytes ``sniff`` looks at."""


@dataclass(frozen=True)
class Format:
    """A format we write. deep: 16 bits a channel; max_side: pixels; default_quality: None when it is lossless."""

    name: str
    label: str
    suffixes: tuple[str, ...]
    alpha: bool
    deep: bool
    gray: bool
    icc: bool
    exif: bool
    xmp: bool
    max_side: int
    default_quality: int | None = None


# One row a format. Sides: JPEG and WebP by their bit streams (16 and 14 bits), PNG and TIFF by their headers (31 bits
# and more), BMP by the 32-bit size of its file, which the writer checks by area.
FORMATS: dict[str, Format] = {
    "png": Format("png", "PNG", (".png",), True, True, True, True, True, True, 2**31 - 1),
    "jpg": Format("jpg", "JPEG", (".jpg", ".jpeg", ".jpe", ".jfif"), False, False, True, True, True, True, 65535, 95),
    "webp": Format("webp", "WebP", (".webp",), True, False, False, True, True, True, 16383, 95),
    "bmp": Format("bmp", "BMP", (".bmp", ".dib"), False, False, True, False, False, False, 2**31 - 1),
    "tiff": Format("tiff", "TIFF", (".tiff", ".tif"), True, True, True, True, True, True, 2**31 - 1),
}

READ_ONLY_SUFFIXES = (".gif", ".avif", ".avifs", ".heic", ".heif", ".hif", ".mpo", ".apng")

IMAGE_SUFFIXES: frozenset[str] = frozenset(READ_ONLY_SUFFIXES).union(*(row.suffixes for row in FORMATS.values()))
"""Lower-case suffixes of pictures we read; a file with another suffix is still a photo when its content is one."""

# ``--format same`` by the source's name (Pillow's): what cannot be written again becomes PNG, which loses nothing.
_SAME = {"JPEG": "jpg", "PNG": "png", "WEBP": "webp", "BMP": "bmp", "TIFF": "tiff"}

_AVIF_BRANDS = (b"avif", b"avis")
_HEIF_BRANDS = (b"heic", b"heix", b"hevc", b"hevx", b"heim", b"heis", b"hevm", b"hevs", b"mif1", b"mif2", b"msf1")
_BMP_HEADER_SIZES = (12, 16, 40, 52, 56, 64, 108, 124)

# Files people take for photos, or that hold one we must not guess at: named so that the message helps.
_FOREIGN: tuple[tuple[bytes, str], ...] = (
    (b"%PDF", "a PDF document"),
    (b"8BPS", "a Photoshop file"),
    (b"\x00\x00\x00\x0cJXL ", "a JPEG XL picture"),
    (b"\xff\x0a", "a JPEG XL picture"),
    (b"\x00\x00\x00\x0cjP  ", "a JPEG 2000 picture"),
    (b"\xff\x4f\xff\x51", "a JPEG 2000 picture"),
    (b"FUJIFILMCCD-RAW", "a camera raw file"),
    (b"II*\x00\x10\x00\x00\x00CR", "a camera raw file"),
    (b"IIU\x00", "a camera raw file"),
    (b"IIRO", "a camera raw file"),
    (b"\x1aE\xdf\xa3", "a video"),
    (b"PK\x03\x04", "a ZIP archive"),
    (b"<svg", "an SVG drawing"),
)


def sniff(head: bytes) -> str | None:
    """The format of a file by its first ``HEAD_BYTES`` bytes, under Pillow's name (``HEIF`` for HEIC), or None."""
    if foreign(head) is not None:
        return None
    if head.startswith(b"\xff\xd8\xff"):
        return "JPEG"
    if head.startswith(b"\x89PNG\r\n\x1a\n"):
        return "PNG"
    if head.startswith((b"GIF87a", b"GIF89a")):
        return "GIF"
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "WEBP"
    if head[:4] in (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"):
        return "TIFF"
    if head[:2] == b"BM" and int.from_bytes(head[14:18], "little") in _BMP_HEADER_SIZES:
        return "BMP"
    return _sniff_boxes(head) if head[4:8] == b"ftyp" else None


def _sniff_boxes(head: bytes) -> str | None:
    """AVIF and HEIC share one container; AVIF files may name the general brand first and their own later."""
    brands = [head[8:12], *(head[at : at + 4] for at in range(16, len(head), 4))]
    if any(brand in _AVIF_BRANDS for brand in brands):
        return "AVIF"
    return "HEIF" if any(brand in _HEIF_BRANDS for brand in brands) else None


def foreign(head: bytes) -> str | None:
    """What a file is that we know and do not read (``a PDF document``), or None."""
    if head[4:12] in (b"ftypcrx ", b"ftypisom", b"ftypmp42", b"ftypqt  "):
        return "a camera raw file" if head[8:12] == b"crx " else "a video"
    return next((what for magic, what in _FOREIGN if head.startswith(magic)), None)


def looks_like_image(head: bytes) -> bool:
    """Whether a file that begins with ``head`` (32 bytes are enough) is a picture of a format we know."""
    return sniff(head[:HEAD_BYTES]) is not None


def is_format(suffix: str) -> bool:
    """Whether a file's suffix (``.jpeg``) names a format we write."""
    return any(suffix.lower() in row.suffixes for row in FORMATS.values())


def resolve_format(suffix_or_option: str, source_format: SourceFormat | None) -> str:
    """Key into ``FORMATS`` for a target's suffix (``.jpeg``), an option (``jpg``) or ``same`` (the source's own).

    ``same`` for a source that we only read (GIF, AVIF, HEIC) is png. Raises ``UsageError`` for anything else.
    """
    asked = suffix_or_option.lower()
    if asked == "same":
        return _SAME.get(source_format.name, "png") if source_format is not None else "png"
    dotted = asked if asked.startswith(".") else f".{asked}"
    for row in FORMATS.values():
        if dotted in row.suffixes:
            return row.name
    allowed = ", ".join(row.suffixes[0] for row in FORMATS.values())
    what = f"the suffix {suffix_or_option!r}" if suffix_or_option else "a name without a suffix"
    raise UsageError(f"{what} names no format that can be written; use one of {allowed}, or give --format.")
