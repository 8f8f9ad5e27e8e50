"""TIFFs that are no single, whole photo: pages, camera raws, and files whose pieces do not cover the picture."""

from __future__ import annotations

from typing import Any

from gpen_cli.errors import PhotoError
from gpen_cli.photos.opening import CutOffError

_WIDTH, _HEIGHT, _BITS, _COMPRESSION, _SAMPLES, _PLANAR = 256, 257, 258, 259, 277, 284
_STRIP_OFFSETS, _ROWS_A_STRIP, _STRIP_BYTES = 273, 278, 279
_TILE_WIDTH, _TILE_HEIGHT, _TILE_OFFSETS, _TILE_BYTES = 322, 323, 324, 325
_PHOTOMETRIC, _YCBCR = 262, 6
_SUBFILE, _SUB_DIRECTORIES, _DNG_VERSION = 254, 330, 50706
_REDUCED_OR_MASK = 0b101  # NewSubfileType: a smaller copy (1) or a mask (4), not a page


def check_tiff(picture: Any, name: str) -> None:
    """Refuses pages, camera raws (whose first directory is often a small preview) and pieces that are not all there.

    picture: Pillow's, opened, not yet loaded. Raises PhotoError, CutOffError.
    """
    first = picture.tag_v2
    reduced = int(first.get(_SUBFILE, 0)) & _REDUCED_OR_MASK
    if _DNG_VERSION in first or (reduced and _SUB_DIRECTORIES in first):
        raise PhotoError(f"{name} is a camera raw file; develop it to JPEG, PNG or TIFF first.")
    pages = 1
    for page in range(1, picture.n_frames):
        picture.seek(page)
        pages += not int(picture.tag_v2.get(_SUBFILE, 0)) & _REDUCED_OR_MASK
    picture.seek(0)
    if pages > 1:
        raise PhotoError(f"{name} has {pages} pages; save the page you want as a picture of its own.")
    if _lacks_rows(first):
        raise CutOffError(name, "TIFF")


def _lacks_rows(tags: Any) -> bool:
    """Whether the strips or tiles of a TIFF do not cover its height: libtiff would draw the rest black, without a word."""
    width, height = int(tags.get(_WIDTH, 0)), int(tags.get(_HEIGHT, 0))
    bits = [int(value) for value in tags.get(_BITS, (1,))]
    planes = int(tags.get(_SAMPLES, 1)) if int(tags.get(_PLANAR, 1)) == 2 else 1
    if _TILE_OFFSETS in tags:
        across, down = int(tags.get(_TILE_WIDTH, width)) or 1, int(tags.get(_TILE_HEIGHT, height)) or 1
        pieces, counts = -(-width // across) * -(-height // down), tags.get(_TILE_BYTES, ())
        rows, columns = down, across
    else:
        rows = min(int(tags.get(_ROWS_A_STRIP, height)) or height, height)
        pieces, counts, columns = -(-height // rows), tags.get(_STRIP_BYTES, ()), width
    if len(tags.get(_TILE_OFFSETS, tags.get(_STRIP_OFFSETS, ()))) < pieces * planes:
        return True
    if int(tags.get(_COMPRESSION, 1)) != 1 or int(tags.get(_PHOTOMETRIC, 2)) == _YCBCR or not counts:
        return False  # how many bytes those take only their decoder knows
    a_row = (columns * (bits[0] if planes > 1 else sum(bits)) + 7) // 8
    last = rows if _TILE_OFFSETS in tags else height - rows * (pieces - 1)
    return any(
        int(count) < a_row * (last if index % pieces == pieces - 1 else rows) for index, count in enumerate(counts)
    )
