"""--allow-truncated: what is there of a file that is cut off is the photo's own, and the photo says that it is not whole."""

from __future__ import annotations

import io
import threading

import numpy as np
import pytest
from pictures import saved
from PIL import Image, ImageFile
from test_photos_read import deep_png, png_chunk

from gpen_cli.errors import PhotoError
from gpen_cli.options import ReadOptions
from gpen_cli.photos.read import TRUNCATED, read_photo

TOLERANT = ReadOptions(allow_truncated=True)
KINDS = {
    "jpeg": ("JPEG", {"quality": 95}),
    "gray-jpeg": ("JPEG", {"quality": 95}),
    "png": ("PNG", {}),
    "palette-png": ("PNG", {}),
    "bmp": ("BMP", {}),
    "tiff": ("TIFF", {}),
}


def picture_of(small, kind):
    picture = Image.fromarray(small)
    return picture.quantize(64) if kind == "palette-png" else picture.convert("L") if kind == "gray-jpeg" else picture


def cut(data, share):
    return data[: int(len(data) * share)]


@pytest.mark.parametrize("kind", KINDS)
def test_the_part_that_is_there_is_the_photos_own(small, kind):
    data = saved(picture_of(small, kind), KINDS[kind][0], **KINDS[kind][1])
    whole, half = read_photo(data, "x", TOLERANT), read_photo(cut(data, 0.6), "x", TOLERANT)
    assert half.size == whole.size
    same = (half.pixels == whole.pixels).all(axis=(1, 2))
    if kind == "bmp":  # stored from the bottom up
        same = same[::-1]
    assert same[: int(0.4 * len(same))].all()
    assert not same.all()
    assert TRUNCATED in half.warnings
    assert TRUNCATED not in whole.warnings


def test_a_progressive_jpeg_keeps_the_passes_that_came(small):
    data = saved(Image.fromarray(small), "JPEG", progressive=True, quality=95)
    whole, part = (read_photo(item, "x", TOLERANT).pixels.astype(float) for item in (data, cut(data, 0.6)))
    assert 0 < np.abs(whole - part).mean() < 20


@pytest.mark.parametrize(
    "how", [{}, {"subsampling": "4:2:0"}, {"quality": 30, "optimize": True}, {"restart_marker_rows": 1}]
)
def test_a_jpeg_that_lacks_its_end_marker_alone_is_whole(small, how):
    data = saved(Image.fromarray(small), "JPEG", **how)
    photo = read_photo(data[:-2], "x", ReadOptions())
    assert (photo.pixels == read_photo(data, "x", ReadOptions()).pixels).all()
    assert TRUNCATED not in photo.warnings
    for missing in (3, 4, 10, 100, len(data) // 2):
        with pytest.raises(PhotoError, match="cut off"):
            read_photo(data[:-missing], "x", ReadOptions())


def test_a_scan_may_be_missing_where_there_are_several(small):
    data = saved(Image.fromarray(small), "JPEG", progressive=True)
    last_scan = data.rfind(b"\xff\xda")
    start = data.rfind(b"\xff\xc4", 0, last_scan)
    for cut_off in (data[:-2], data[:start]):
        with pytest.raises(PhotoError, match="cut off"):
            read_photo(cut_off, "x", ReadOptions())


def test_a_deep_png_stays_deep(deep):
    data = deep_png(deep)
    whole, half = read_photo(data, "x", TOLERANT), read_photo(cut(data, 0.6), "x", TOLERANT)
    assert half.pixels.dtype == np.uint16
    rows = len(whole.pixels) // 3
    assert np.array_equal(half.pixels[:rows], whole.pixels[:rows])


def test_an_interlaced_png_has_its_first_passes(small):
    stream = io.BytesIO()
    height, width = small.shape[:2]
    rows = b"".join(
        b"".join(b"\0" + small[y, x0::dx].tobytes() for y in range(y0, height, dy))
        for x0, y0, dx, dy in (
            (0, 0, 8, 8),
            (4, 0, 8, 8),
            (0, 4, 4, 8),
            (2, 0, 4, 4),
            (0, 2, 2, 4),
            (1, 0, 2, 2),
            (0, 1, 1, 2),
        )
    )
    import struct
    import zlib

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 1)
    stream.write(b"\x89PNG\r\n\x1a\n" + png_chunk(b"IHDR", header) + png_chunk(b"IDAT", zlib.compress(rows)))
    stream.write(png_chunk(b"IEND", b""))
    data = stream.getvalue()
    assert np.array_equal(read_photo(data, "x", TOLERANT).pixels, small)
    part = read_photo(cut(data, 0.5), "x", TOLERANT)
    assert np.array_equal(part.pixels[::8, ::8], small[::8, ::8])  # the first pass
    assert TRUNCATED in part.warnings


def test_a_jpeg_whose_end_was_never_written(small):
    data = saved(Image.fromarray(small), "JPEG")
    half = cut(data, 0.5)
    assert TRUNCATED in read_photo(half + bytes(len(data) - len(half)), "x", TOLERANT).warnings


@pytest.mark.parametrize(("kind", "options"), [("WEBP", {}), ("GIF", {}), ("TIFF", {"compression": "tiff_lzw"})])
def test_formats_that_need_their_end_say_so(small, kind, options):
    data = saved(Image.fromarray(small), kind, **options)
    with pytest.raises(PhotoError, match="nothing of it can be read without its end"):
        read_photo(cut(data, 0.5), "x", TOLERANT)


@pytest.mark.parametrize("kind", ["GIF", "WEBP"])
def test_the_flag_is_not_advised_where_it_cannot_help(small, kind):
    data = saved(Image.fromarray(small), kind)
    with pytest.raises(PhotoError, match="is cut off") as caught:
        read_photo(cut(data, 0.5), "x", ReadOptions())
    assert "--allow-truncated" not in str(caught.value)


def test_a_jpegs_header_alone_is_no_picture(small):
    data = saved(Image.fromarray(small), "JPEG")
    with pytest.raises(PhotoError, match="nothing of it can be read"):
        read_photo(data[: data.rfind(b"\xff\xda") + 40], "x", TOLERANT)


def test_without_the_flag_the_sentence_names_it(small):
    data = saved(Image.fromarray(small), "JPEG")
    with pytest.raises(PhotoError, match="give --allow-truncated"):
        read_photo(cut(data, 0.5), "x", ReadOptions())


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "BMP", "TIFF"])
def test_cut_at_any_byte_it_is_a_picture_or_a_sentence(small, kind):
    data = saved(Image.fromarray(np.ascontiguousarray(small[:24, :40])), kind)
    for length in range(1, len(data), 1 + len(data) // 200):
        try:
            photo = read_photo(data[:length], "x", TOLERANT)
        except PhotoError:
            continue
        assert photo.size == (40, 24)


def test_a_strict_reader_beside_it_stays_strict(small):
    data = cut(saved(Image.fromarray(small), "JPEG"), 0.5)
    stop, wrong = threading.Event(), []

    def strict():
        while not stop.is_set():
            try:
                read_photo(data, "x", ReadOptions())
                wrong.append("read")
            except PhotoError:
                pass

    thread = threading.Thread(target=strict)
    thread.start()
    for _ in range(50):
        read_photo(data, "x", TOLERANT)
    stop.set()
    thread.join()
    assert not wrong
    assert not ImageFile.LOAD_TRUNCATED_IMAGES
