"""What fuzzing found, made anew: files of a few kilobytes that cost gigabytes, or became pictures of what is not in them."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from test_photos_read import tiff

from faults.mutations import SIDES, seeds
from faults.test_fuzz import read_in_children

_HEIGHT_TAG, _LONG = 257, 4


def taller(data: bytes, height: int) -> bytes:
    """A little-endian TIFF that claims ``height`` rows and has the strips or tiles of what it was."""
    (directory,) = struct.unpack_from("<I", data, 4)
    (count,) = struct.unpack_from("<H", data, directory)
    for at in range(directory + 2, directory + 2 + 12 * count, 12):
        if struct.unpack_from("<H", data, at) == (_HEIGHT_TAG,):
            return data[:at] + struct.pack("<HHII", _HEIGHT_TAG, _LONG, 1, height) + data[at + 12 :]
    raise AssertionError("no height in this TIFF")


@pytest.mark.parametrize("height", [33, 2800])
@pytest.mark.parametrize("depth", [np.uint8, np.uint16])
@pytest.mark.parametrize("layout", [{}, {"rowsperstrip": 4}, {"tile": (16, 16)}], ids=["whole", "strips", "tiles"])
def test_a_tiff_without_all_its_rows_is_no_picture(nursery, tmp_path, layout, depth, height):
    """The missing rows came out black, with no word about it."""
    pixels = np.random.default_rng(1).integers(0, np.iinfo(depth).max, (*SIDES, 3), dtype=depth)
    path = tmp_path / "taller.tif"
    path.write_bytes(taller(tiff(pixels, photometric="rgb", **layout), height))
    answers = read_in_children(nursery, [path])
    assert answers.counts == {"refused": 1}, answers


@pytest.mark.parametrize("promised", [2**29, 2**31, 2**32 - 2**20])
def test_what_a_header_promises_is_not_made_up_in_memory(nursery, tmp_path, promised):
    """A BMP cut off after a kilobyte, read with --allow-truncated: its rest, gigabytes by its header, was filled with zeros."""
    data = seeds()["bmp"]
    path = tmp_path / "promise.bmp"
    path.write_bytes(data[:2] + struct.pack("<I", promised) + data[6:1000])
    answers = read_in_children(nursery, [path])
    assert not answers.broken, answers
    assert answers.slowest < 0.5
