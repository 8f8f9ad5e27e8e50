"""Pillow's decoders behind one door: which one is asked, how strictly, and what their failures are called.

Decoders are constructed directly, not through ``Image.open``: that asks every format Pillow knows (also those that
start other programs) and checks sizes against ``Image.MAX_IMAGE_PIXELS``, a process-wide setting whose warning cannot
be silenced safely while other threads read. The limit that counts is ``ReadOptions.max_pixels``, which ``read`` checks.
"""

from __future__ import annotations

import importlib
import io
import re
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

import cv2
from PIL import AvifImagePlugin, BmpImagePlugin, GifImagePlugin, Image, ImageFile
from PIL.JpegImagePlugin import JpegImageFile
from PIL.PngImagePlugin import PngImageFile
from PIL.TiffImagePlugin import TiffImageFile
from PIL.WebPImagePlugin import WebPImageFile

from gpen_cli.errors import PhotoError
from gpen_cli.photos.formats import HEAD_BYTES, foreign, sniff
from gpen_cli.photos.ifd import Block
from gpen_cli.photos.salvage import SALVAGEABLE

KNOWN = "JPEG, PNG, WebP, TIFF, BMP, GIF, AVIF or HEIC"

DECODE_FAILURES = (
    OSError,  # Pillow's usual word for broken data; UnidentifiedImageError and SyntaxError's cousins are kinds of it
    SyntaxError,
    ValueError,
    EOFError,
    LookupError,
    TypeError,
    AttributeError,
    ArithmeticError,
    AssertionError,
    RuntimeError,
    struct.error,
    zlib.error,
    cv2.error,
)
"""What Pillow, libtiff's and libheif's wrappers and OpenCV have been seen to raise on damaged bytes."""


class _Tiff(TiffImageFile):
    """TIFF without the process-wide size limit, which Pillow would ask for again while decoding."""

    def load_prepare(self) -> None:
        if self._im is None:
            self.im = Image.core.new(self.mode, getattr(self, "_tile_size", self.size))
        super().load_prepare()


# JPEG: never MpoImageFile, so that the first picture of a phone's double picture is simply the photo.
_DECODERS: dict[str, type[ImageFile.ImageFile]] = {
    "JPEG": JpegImageFile,
    "PNG": PngImageFile,
    "WEBP": WebPImageFile,
    "BMP": BmpImagePlugin.BmpImageFile,
    "TIFF": _Tiff,
    "GIF": GifImagePlugin.GifImageFile,
    "AVIF": AvifImagePlugin.AvifImageFile,
}


def identify(data: bytes, name: str) -> str:
    """Pillow's name of the format the bytes hold (``HEIF`` for HEIC). Raises ``PhotoError`` when they hold none."""
    if not data:
        raise PhotoError(f"{name} is empty (0 bytes); get the file again from where it came from.")
    head = data[:HEAD_BYTES]
    kind = sniff(head)
    if kind is None:
        what = foreign(head)
        if what is None:
            what = "a text file" if _is_text(data[:4096]) else "not a picture of a known format"
        raise PhotoError(f"{name} is {what}, which cannot be restored; give a {KNOWN} file.")
    return kind


def _is_text(head: bytes) -> bool:
    if b"\0" in head:
        return False
    try:
        head.decode("utf-8", "strict")
    except UnicodeDecodeError as error:
        return error.start > len(head) - 4  # a character cut in two at the end of the sample
    return True


def open_picture(data: bytes, kind: str) -> ImageFile.ImageFile:
    """The lazily opened picture. Raises any of ``DECODE_FAILURES``; call inside ``explained``."""
    if kind == "AVIF" and not AvifImagePlugin.SUPPORTED:
        raise PhotoError("this Pillow was built without AVIF; install Pillow from PyPI, or convert the file to PNG.")
    return _DECODERS[kind](io.BytesIO(data))


def heif_library(name: str) -> ModuleType:
    """pillow_heif, used without its registration in Pillow. Raises ``PhotoError`` when it is not installed."""
    try:
        return importlib.import_module("pillow_heif")
    except ImportError as error:
        hint = "pip install 'gpen-cli[heif]'"
        raise PhotoError(f"{name} is a HEIC picture, which needs one more package; run: {hint}") from error


class CutOffError(PhotoError):
    """The file ends before its picture does. plain: the sentence for those who have no --allow-truncated."""

    def __init__(self, name: str, kind: str) -> None:
        hint = ", or give --allow-truncated to restore what is there" if kind in SALVAGEABLE else ""
        super().__init__(f"{name} is cut off: the file ends before the picture does; copy or download it again{hint}.")
        self.plain = str(self).replace(hint, "") if hint else str(self)


@contextmanager
def explained(data: bytes, kind: str, name: str) -> Iterator[None]:
    """Turns whatever a decoder raises into one ``PhotoError``: the file is cut off, or damaged."""
    try:
        yield
    except Image.DecompressionBombError as error:  # WebP and GIF, where Pillow's limit cannot be gone around
        raise PhotoError(f"{name} has more pixels than Pillow decodes in this format; save it as PNG.") from error
    except DECODE_FAILURES as error:
        if is_cut_off(data, kind) or re.search(r"truncat|end of (file|data)|EOF", str(error), re.IGNORECASE):
            raise CutOffError(name, kind) from error
        detail = " ".join(str(error).split())[:120] or type(error).__name__
        raise PhotoError(f"{name} is damaged or of an unusual kind ({detail}); save it again as PNG.") from error


def is_cut_off(data: bytes, kind: str) -> bool:
    """Whether the container itself says that bytes are missing at the end."""
    if kind == "PNG":
        return b"IEND\xae\x42\x60\x82" not in data  # the last chunk with its checksum
    if kind == "WEBP":
        return int.from_bytes(data[4:8], "little") + 8 > len(data)
    if kind == "JPEG":
        return b"\xff\xd9" not in data[-2:] and (_ends_in_zeros(data) or b"\xff\xd9" not in data[-65536:])
    if kind == "BMP":
        return int.from_bytes(data[2:6], "little") > len(data)
    if kind == "GIF":
        return not data.rstrip(b"\0").endswith(b";")
    if kind == "TIFF":
        return _tiff_end(data) > len(data)
    if kind in ("AVIF", "HEIF"):
        return _boxes_end(data) > len(data)
    return False


def _ends_in_zeros(data: bytes) -> bool:
    """A download tool reserved the space and never filled it: libjpeg would draw it as flat gray."""
    kept = data.rstrip(b"\0")
    return len(data) - len(kept) >= 16 and not kept.endswith(b"\xff\xd9")


def _tiff_end(data: bytes) -> int:
    """Where the strips or tiles of the first directory should end; behind the file when the directory itself is cut."""
    try:
        block = Block(data)
        entries, _ = block.read_directory(block.first)
        end = 0
        for where, length in ((273, 279), (324, 325)):
            if where in entries and length in entries:
                pieces = zip(block.numbers(entries[where]), block.numbers(entries[length]), strict=False)
                end = max([end, *(start + count for start, count in pieces)])
    except ValueError:  # the directory itself lies behind the end, or this is a BigTIFF
        return len(data) + (data[2:4] in (b"*\0", b"\0*"))
    return end


def _boxes_end(data: bytes) -> int:
    """Where the last top-level box of an ISO base media file (HEIC, AVIF) should end."""
    at = 0
    while at + 8 <= len(data):
        length = int.from_bytes(data[at : at + 4], "big")
        if length == 1:
            length = int.from_bytes(data[at + 8 : at + 16], "big")
        if length < 8:  # 0: to the end of the file; 2 to 7: nonsense
            return len(data)
        at += length
    return at


def webp_size(head: bytes) -> tuple[int, int] | None:
    """(width, height) from a WebP's first 30 bytes, or None; Pillow allocates the canvas before it tells."""
    if head[12:16] == b"VP8X" and len(head) >= 30:
        return 1 + int.from_bytes(head[24:27], "little"), 1 + int.from_bytes(head[27:30], "little")
    if head[12:16] == b"VP8L" and len(head) >= 25:
        bits = int.from_bytes(head[21:25], "little")
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    if head[12:16] == b"VP8 " and len(head) >= 30:
        width, height = struct.unpack_from("<HH", head, 26)
        return width & 0x3FFF, height & 0x3FFF
    return None


def is_zero_filled(data: bytes, kind: str) -> bool:
    """Whether a JPEG decodes without complaint although its end was never written."""
    return kind == "JPEG" and _ends_in_zeros(data)
