"""Sixteen-bit samples, which Pillow reads but hands out as eight bits (or not at all).

PNG goes through OpenCV, after Pillow has decoded the same bytes strictly: OpenCV would deliver half a picture. TIFF
does not: OpenCV turns some orientations itself and silently garbles separate planes. There Pillow's libtiff is shown
the same strips as one wide gray picture, which it hands out whole, and the samples are sorted here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import cv2
import numpy as np
import numpy.typing as npt

from gpen_cli.photos.ifd import LONG, ORIENTATION, SHORT, Block, Entry

UInt16Array = npt.NDArray[np.uint16]

_WIDTH, _HEIGHT, _BITS, _PHOTOMETRIC, _SAMPLES, _PLANAR, _PREDICTOR = 256, 257, 258, 262, 277, 284, 317
_ROWS_PER_STRIP, _TILE_WIDTH, _TILE_HEIGHT, _EXTRA_SAMPLES, _SAMPLE_FORMAT = 278, 322, 323, 338, 339
_WHITE_IS_ZERO, _BLACK_IS_ZERO, _RGB = 0, 1, 2
_PREMULTIPLIED = 1
_MOST_SAMPLES = 8  # RGB, alpha and a few unnamed ones; files with more are measurements, not photos


def png_is_deep(data: bytes) -> bool:
    """Whether a PNG holds 16 bits a sample (the depth byte of its header)."""
    return len(data) > 24 and data[24] == 16


def decode_deep_png(data: bytes, *, transparent: int | tuple[int, int, int] | None) -> UInt16Array:
    """(H, W, C) uint16 of a PNG already known to be whole; C: 1 gray, 2 gray + alpha, 3 RGB, 4 RGB + alpha.

    transparent: the colour key of its tRNS chunk, if any; it becomes an alpha channel.
    """
    stored = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED)
    if stored is None or stored.dtype != np.uint16:
        raise ValueError("the 16-bit decoder does not take it")
    samples = stored[..., None] if stored.ndim == 2 else stored
    colour_type = data[25]  # 0 gray, 2 RGB, 4 gray + alpha, 6 RGB + alpha
    if colour_type == 4:
        return cast(UInt16Array, samples[..., [0, 3]])
    if colour_type == 6:
        return cast(UInt16Array, samples[..., [2, 1, 0, 3]])
    # OpenCV adds an alpha channel for a key in RGB and none in gray: it is made here for both.
    opaque = samples[..., [2, 1, 0]] if colour_type == 2 else samples[..., :1]
    if transparent is None:
        return cast(UInt16Array, np.ascontiguousarray(opaque))
    key = np.atleast_1d(np.asarray(transparent, np.uint16))
    alpha = np.where((opaque == key).all(axis=2), 0, 65535).astype(np.uint16)
    return cast(UInt16Array, np.concatenate([opaque, alpha[..., None]], axis=2))


@dataclass(frozen=True)
class DeepTiff:
    """A TIFF with unsigned 16-bit gray or RGB samples.

    as_gray: the file with a directory that calls its samples one gray picture, for Pillow to decode; size: (width,
    height) as stored; orientation: the tag, not applied.
    """

    tags: _Tags
    as_gray: bytes
    size: tuple[int, int]
    orientation: int

    def samples(self, decoded: npt.NDArray[Any]) -> UInt16Array:
        """(H, W, C) uint16 as stored, from the decoded gray picture; C as in ``decode_deep_png``."""
        (width, height), samples = self.size, self.tags.one(_SAMPLES, 1)
        flat = decoded.astype(np.uint16)  # big-endian files come as >u2
        if self.tags.separate:
            stacked = np.ascontiguousarray(np.moveaxis(flat.reshape(samples, height, width), 0, 2))
        else:
            stacked = flat.reshape(height, width, samples)
        if self.tags.one(_PREDICTOR, 1) == 2:
            step = self.tags.one(_TILE_WIDTH, width)
            for left in range(0, width, step):  # each tile counts from its own left edge; sums wrap at 16 bits
                tile = stacked[:, left : left + step]
                np.cumsum(tile, axis=1, dtype=np.uint16, out=tile)
        return _meaning(stacked, self.tags)


def deep_tiff(data: bytes) -> DeepTiff | None:
    """The 16-bit reading of a TIFF, or None for any other TIFF. Raises ``ValueError`` for a layout not taken."""
    try:
        tags = _Tags(data)
    except ValueError:  # a BigTIFF, or broken: Pillow says which
        return None
    known = tags.one(_PHOTOMETRIC, -1) in (_WHITE_IS_ZERO, _BLACK_IS_ZERO, _RGB)
    colours = 3 if tags.one(_PHOTOMETRIC, -1) == _RGB else 1
    plain = set(tags.all(_BITS, 1)) == {16} and set(tags.all(_SAMPLE_FORMAT, 1)) == {1}
    if not (known and plain and colours <= tags.one(_SAMPLES, 1) <= _MOST_SAMPLES):
        return None
    size = tags.one(_WIDTH, 0), tags.one(_HEIGHT, 0)
    return DeepTiff(tags, _as_gray(data, tags), size, tags.one(ORIENTATION, 1))


def _as_gray(data: bytes, tags: _Tags) -> bytes:
    block, entries, samples = Block(data), dict(tags.entries), tags.one(_SAMPLES, 1)
    across, down = (1, samples) if tags.separate else (samples, 1)
    height, rows = tags.one(_HEIGHT, 0), tags.one(_ROWS_PER_STRIP, 2**32 - 1)
    if tags.separate:
        if _TILE_WIDTH in entries or (rows < height and height % rows):
            raise ValueError("separate planes in uneven pieces")
        entries[_ROWS_PER_STRIP] = block.entry(_ROWS_PER_STRIP, LONG, [min(rows, height)])
    sides = {_WIDTH: tags.one(_WIDTH, 0) * across, _HEIGHT: height * down}
    if _TILE_WIDTH in entries:
        sides[_TILE_WIDTH] = tags.one(_TILE_WIDTH, 0) * across
    if max(sides.values()) >= 2**31:
        raise ValueError("too wide for a 16-bit TIFF")
    for tag, value in sides.items():
        entries[tag] = block.entry(tag, LONG, [value])
    for tag, value in ((_BITS, 16), (_SAMPLES, 1), (_PHOTOMETRIC, _BLACK_IS_ZERO), (_PLANAR, 1), (_PREDICTOR, 1)):
        entries[tag] = block.entry(tag, SHORT, [value])
    for tag in (ORIENTATION, _EXTRA_SAMPLES, _SAMPLE_FORMAT):
        entries.pop(tag, None)
    block.link_first(block.append_directory(entries, follower=tags.follower))
    return block.tobytes()


def _meaning(stored: UInt16Array, tags: _Tags) -> UInt16Array:
    """Stored samples to gray or RGB with straight alpha."""
    photometric = tags.one(_PHOTOMETRIC, _BLACK_IS_ZERO)
    colours = 3 if photometric == _RGB else 1
    extra = tags.all(_EXTRA_SAMPLES, 0)[0]
    # Kind 0 is "unspecified": alpha when a program forgot to say so, yet often something else; Pillow drops it too.
    has_alpha = stored.shape[2] > colours and (extra in (1, 2) or _EXTRA_SAMPLES not in tags.entries)
    samples = stored[..., : colours + has_alpha]
    if photometric == _WHITE_IS_ZERO:
        samples = samples.copy()
        samples[..., 0] = 65535 - samples[..., 0]
    if has_alpha and extra == _PREMULTIPLIED:
        alpha = samples[..., -1:].astype(np.float64)
        straight = samples[..., :-1] * (65535 / np.maximum(alpha, 1))
        samples = np.concatenate([np.clip(np.rint(straight), 0, 65535), alpha], axis=2).astype(np.uint16)
    return samples


class _Tags:
    """First directory of a TIFF, its numbers with defaults. Raises ``ValueError`` when it is broken or a BigTIFF."""

    def __init__(self, data: bytes) -> None:
        self.block = Block(data)
        self.entries: dict[int, Entry]
        self.entries, self.follower = self.block.read_directory(self.block.first)

    def all(self, tag: int, default: int) -> tuple[int, ...]:
        """The tag's numbers; ``(default,)`` when it is missing."""
        return (self.block.numbers(self.entries[tag]) if tag in self.entries else ()) or (default,)

    def one(self, tag: int, default: int) -> int:
        """The tag's first number."""
        return self.all(tag, default)[0]

    @property
    def separate(self) -> bool:
        """Whether each sample has a plane of its own."""
        return self.one(_PLANAR, 1) == 2 and self.one(_SAMPLES, 1) > 1
