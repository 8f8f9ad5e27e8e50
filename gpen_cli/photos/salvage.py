"""What is there of a file whose end is missing (``--allow-truncated``): an end is put on, so that the strict decoder takes it.

Nothing tolerant is switched on anywhere: Pillow's own setting for this is process-wide, and would hide the truncation of every
other photo. The pixels that are missing come out flat (JPEG) or black; they are never taken for the photo's own.
"""

from __future__ import annotations

import hashlib
import io
import struct
import zlib

from PIL import Image

from gpen_cli.photos.ifd import Block

SALVAGEABLE = ("JPEG", "PNG", "BMP", "TIFF")
"""Formats whose beginning can be read without their end (TIFF when it is not compressed)."""

_OTHER_BITS = (b"\x55" * 512, b"\xaa" * 512)
"""libjpeg reads zeros behind the end: of these each differs from them, or from the other, in the first bit that is wanting."""
_PNG_HEAD = 8
_LEAST_SCAN = 100
"""Bytes of a JPEG's picture data below which nothing of the photo is there: its header alone would come out as a flat picture."""
_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}  # samples a pixel by PNG colour type
# Adam7's passes: first column, first row, column step, row step (PNG specification, 8.2)
_ADAM7 = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))
_COMPRESSION, _STRIPS, _STRIP_BYTES, _TILES, _TILE_BYTES = 259, 273, 279, 324, 325
_BYTES_A_PIXEL = 8
"""Of the largest pixel we read: RGB and alpha, 16 bits each."""
_HEADERS = 1 << 20


def completed(data: bytes, kind: str, *, pixels: int) -> bytes | None:
    """``data``, a cut-off picture of ``kind`` (Pillow's name), with an end; None where its beginning is of no use alone.

    pixels: how many the header tells of; an end longer than they need is a damaged header's and not made.
    """
    most = _BYTES_A_PIXEL * pixels + _HEADERS
    try:
        if kind == "JPEG":
            kept = data.rstrip(b"\0")  # zeros: the space a download tool reserved
            return kept + b"\xff\xd9" if len(kept) - kept.rfind(b"\xff\xda") >= _LEAST_SCAN else None
        if kind == "PNG":
            return _completed_png(data)
        if kind == "BMP":
            return _padded(data, int.from_bytes(data[2:6], "little"), most)
        if kind == "TIFF":
            return _completed_tiff(data, most)
    except (ValueError, struct.error, zlib.error, KeyError):
        return None  # the header itself is not whole
    return None


def only_end_missing(data: bytes) -> bytes | None:
    """A JPEG that lacks nothing but its last two bytes, with them; None for any other.

    Some cameras and tools leave the end marker out. Where picture data is missing too, what stands in their place shows in the
    picture: with other bytes there it is another. Of several scans a whole one could be missing, which would not show.
    """
    if not _has_one_scan(data):
        return None
    finished = data + b"\xff\xd9"
    try:
        pictures = {_pixels(finished), *(_pixels(data + bits + b"\xff\xd9") for bits in _OTHER_BITS)}
    except (OSError, ValueError, SyntaxError):
        return None
    return finished if len(pictures) == 1 else None


def _pixels(data: bytes) -> bytes:
    with Image.open(io.BytesIO(data)) as picture:
        return hashlib.sha256(picture.tobytes()).digest()


def _has_one_scan(data: bytes) -> bool:
    """Whether a JPEG is sequential, and its first scan holds all its components."""
    at, components = 2, 0
    while at + 10 <= len(data) and data[at] == 0xFF:
        marker, length = data[at + 1], int.from_bytes(data[at + 2 : at + 4], "big")
        if marker in (0xC0, 0xC1):
            components = data[at + 9]
        if marker == 0xDA:
            return components > 0 and data[at + 4] == components
        at += 2 + length
    return False


def _padded(data: bytes, length: int, most: int) -> bytes | None:
    return data + bytes(length - len(data)) if len(data) < length <= most else None


def _completed_png(data: bytes) -> bytes:
    """The chunks before the picture as they are, then the picture's rows that can be unpacked, then rows of zeros."""
    head, packed, at = [], [], _PNG_HEAD
    while at + 8 <= len(data):
        length, name = struct.unpack_from(">I4s", data, at)
        content = data[at + 8 : at + 8 + length]
        if name == b"IDAT":
            packed.append(content)
        elif len(content) == length and not packed and name != b"IEND":
            head.append(data[at : at + 12 + length])
        at += 12 + length
    unpacker = zlib.decompressobj()
    rows = bytearray()
    try:
        for piece in packed:
            rows += unpacker.decompress(piece)
    except zlib.error:
        pass  # the last bytes of a broken download can be anything; what came before them stands
    length = _png_bytes(data)
    if not rows:
        raise ValueError("no row is there")
    rows = rows[:length] + bytes(max(0, length - len(rows)))
    picture = _chunk(b"IDAT", zlib.compress(bytes(rows), 1))
    return data[:_PNG_HEAD] + b"".join(head) + picture + _chunk(b"IEND", b"")


def _png_bytes(data: bytes) -> int:
    """Bytes of the unpacked picture: each row of each pass, with its filter byte."""
    width, height, depth, colour, _, _, interlaced = struct.unpack_from(">IIBBBBB", data, 16)
    bits = depth * _CHANNELS[colour]
    passes = _ADAM7 if interlaced else ((0, 0, 1, 1),)
    total = 0
    for x, y, step_x, step_y in passes:
        columns, rows = max(0, -(-(width - x) // step_x)), max(0, -(-(height - y) // step_y))
        total += rows * (1 + (columns * bits + 7) // 8) if columns else 0
    return total


def _chunk(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))


def _completed_tiff(data: bytes, most: int) -> bytes | None:
    """An uncompressed TIFF whose directory comes first: its missing strips are zeros."""
    block = Block(data)
    entries, _ = block.read_directory(block.first)
    if _COMPRESSION in entries and block.numbers(entries[_COMPRESSION])[0] != 1:
        return None
    where, length = (_STRIPS, _STRIP_BYTES) if _STRIPS in entries else (_TILES, _TILE_BYTES)
    pieces = zip(block.numbers(entries[where]), block.numbers(entries[length]), strict=True)
    return _padded(data, max(start + count for start, count in pieces), most)
