"""Refusing: whatever is no single, whole picture is one sentence; damage never becomes a picture or a traceback."""

from __future__ import annotations

import random
import struct
import subprocess
import sys
import threading
import warnings
import zlib

import numpy as np
import pytest
from pictures import saved
from PIL import Image
from test_colour import P3
from test_photos_read import HAS_AVIF, OPTIONS, deep_png, png_chunk, read, refusal, tiff

from gpen_cli.errors import PhotoError
from gpen_cli.options import ReadOptions
from gpen_cli.photos.formats import IMAGE_SUFFIXES, looks_like_image, sniff
from gpen_cli.photos.opening import open_picture
from gpen_cli.photos.read import read_photo

# -- refusals --


@pytest.mark.parametrize("kind", ["GIF", "WEBP", "PNG", "TIFF", "AVIF"])
def test_animations_and_pages_are_refused(small, kind):
    if kind == "AVIF" and not HAS_AVIF:
        pytest.skip("Pillow without AVIF")
    frames = [Image.fromarray(np.roll(small, 20 * k, axis=1)) for k in range(3)]
    data = saved(frames[0], kind, save_all=True, append_images=frames[1:])
    assert ("3 pages" if kind == "TIFF" else "animated (3 frames)") in refusal(data)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.98])
@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("JPEG", {}),
        ("JPEG", {"progressive": True}),
        ("PNG", {}),
        ("WEBP", {}),
        ("TIFF", {}),
        ("TIFF", {"compression": "tiff_lzw"}),
        ("BMP", {}),
        ("GIF", {}),
    ],
    ids=["jpeg", "progressive", "png", "webp", "tiff", "tiff-lzw", "bmp", "gif"],
)
def test_half_a_file_is_never_a_picture(small, kind, options, share):
    data = saved(Image.fromarray(small), kind, **options)
    assert "cut off" in refusal(data[: int(len(data) * share)])


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF", "BMP", "GIF"])
def test_cut_at_any_byte_it_is_the_whole_picture_or_none(small, kind):
    data = saved(Image.fromarray(np.ascontiguousarray(small[:24, :40])), kind)
    whole = read(data).pixels
    for length in range(0, len(data), 1 + len(data) // 150):
        try:
            pixels = read(data[:length]).pixels
        except PhotoError:
            continue
        assert np.array_equal(pixels, whole)


@pytest.mark.parametrize("share", [0.5, 0.9])
def test_half_a_sixteen_bit_file_is_never_a_picture(deep, share):
    for data in (deep_png(deep), tiff(deep, photometric="rgb", extrasamples=["unassalpha"])):
        assert "cut off" in refusal(data[: int(len(data) * share)])


def test_a_jpeg_whose_end_was_never_written_is_cut_off(small):
    data = saved(Image.fromarray(small), "JPEG")
    half = data[: len(data) // 2]
    assert "cut off" in refusal(half + bytes(len(data) - len(half)))
    assert read(data + bytes(1000)).pixels.shape == small.shape  # padding behind a whole picture is harmless


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (b"", "empty"),
        (b"I am text", "a text file"),
        ("Grüße, 日本".encode(), "a text file"),
        (bytes(64), "not a picture"),
        (b"\xff\xd8\xff", "cut off"),
        (b"\x89PNG\r\n\x1a\n", "cut off"),
        (b"%PDF-1.7 ...", "a PDF document"),
        (b"II*\0\x10\0\0\0CR\2\0" + bytes(50), "a camera raw file"),
        (b"<html><body>404</body></html>", "a text file"),
    ],
    ids=["empty", "text", "utf-8", "zeros", "jpeg head", "png head", "pdf", "raw", "html"],
)
def test_what_is_no_picture_says_what_it_is(data, word):
    assert word in refusal(data)


def test_the_content_decides_not_the_name(small):
    assert read_photo(saved(Image.fromarray(small), "JPEG"), "really.png", OPTIONS).source_format.name == "JPEG"


def test_too_many_pixels_are_refused_before_they_are_decoded(small):
    for kind in ("PNG", "JPEG", "WEBP", "TIFF", "BMP", "GIF"):
        sentence = refusal(saved(Image.fromarray(small), kind), ReadOptions(max_pixels=100 * 140 - 1))
        assert "140x100" in sentence
        assert "--max-pixels" in sentence
        assert read(saved(Image.fromarray(small), kind), ReadOptions(max_pixels=100 * 140)).size == (140, 100)


def test_a_header_that_promises_gigapixels_costs_nothing():
    head = struct.pack(">IIBBBBB", 2**30, 2**30, 8, 2, 0, 0, 0)
    bomb = (
        b"\x89PNG\r\n\x1a\n"
        + png_chunk(b"IHDR", head)
        + png_chunk(b"IDAT", zlib.compress(b"\0"))
        + png_chunk(b"IEND", b"")
    )
    assert "--max-pixels" in refusal(bomb)


@pytest.mark.parametrize(("kind", "options"), [("PNG", {}), ("TIFF", {"compression": "tiff_deflate"}), ("TIFF", {})])
def test_pillows_own_limit_neither_warns_nor_stops_us(kind, options):
    """200 megapixels, which Pillow would refuse: bilevel, so that the test stays small and quick."""
    data = saved(Image.new("1", (20_000, 10_000), 1), kind, **options)
    before = Image.MAX_IMAGE_PIXELS
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sentence = refusal(data, ReadOptions(max_pixels=199_999_999))
        assert "--max-pixels" in sentence
        picture = open_picture(data, kind)
        picture.load()
    assert picture.size == (20_000, 10_000)
    assert before == Image.MAX_IMAGE_PIXELS


@pytest.mark.parametrize("size", [(1, 1), (1, 5000), (33000, 64), (2, 1)])
def test_extreme_sizes_pass(size):
    picture = Image.new("RGB", size, (10, 200, 30))
    for kind in ("PNG", "TIFF", "BMP", "JPEG"):
        assert read(saved(picture, kind)).size == size


def test_threads_read_the_same_as_one(small):
    files = [
        saved(Image.fromarray(np.roll(small, k, axis=0)), kind) for k in range(4) for kind in ("PNG", "JPEG", "TIFF")
    ]
    alone = [read(data).pixels for data in files]
    wrong = []

    def work() -> None:
        for data, pixels in zip(files * 3, alone * 3, strict=True):
            if not np.array_equal(read(data).pixels, pixels):
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


# -- sniffing --


def test_sniffing_agrees_with_what_is_read(small):
    for kind in ("PNG", "JPEG", "WEBP", "TIFF", "BMP", "GIF") + (("AVIF",) if HAS_AVIF else ()):
        data = saved(Image.fromarray(small), kind)
        assert sniff(data[:32]) == kind
        assert looks_like_image(data)
    assert looks_like_image(b"\0\0\0\x18ftypheic" + bytes(20))
    assert sniff(b"\0\0\0\x20ftypmif1\0\0\0\0mif1avifmiaf" + bytes(8)) == "AVIF"
    for other in (b"", b"BMW is a car maker, not a bitmap", b"\0\0\0\x20ftypisom" + bytes(20), b"GIF", b"RIFF....WAVE"):
        assert not looks_like_image(other)
    assert {".jpg", ".heic", ".tif", ".jfif", ".avif"} <= IMAGE_SUFFIXES
    assert all(suffix == suffix.lower() for suffix in IMAGE_SUFFIXES)


def test_the_format_table_imports_nothing_heavy():
    code = "import sys, gpen_cli.photos.formats; print([m for m in ('PIL', 'cv2', 'numpy') if m in sys.modules])"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"


# -- fuzz --


def mutated(data: bytes, rng: random.Random) -> bytes:
    """A few bytes changed, a piece cut out, doubled or zeroed, or the end cut off; the headers get most of it."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 8, 64))):
        at = rng.randrange(min(len(changed), rng.choice((64, 512, 10**9))))
        span = rng.choice((1, 4, 32))
        action = rng.randrange(5)
        if action == 0:
            changed[at] = rng.randrange(256)
        elif action == 1:
            changed[at] ^= 1 << rng.randrange(8)
        elif action == 2:
            del changed[at : at + span]
        elif action == 3:
            changed[at:at] = changed[at : at + span]
        else:
            changed[at : at + span] = bytes((rng.choice((0, 255)),)) * min(span, len(changed) - at)
        if len(changed) < 16:
            break
    return bytes(changed[: rng.randrange(1, len(changed) + 1)] if rng.random() < 0.1 else changed)


@pytest.mark.filterwarnings("ignore::UserWarning")  # Pillow's, about what it repaired
def test_mutated_files_are_a_picture_or_a_sentence(small, deep):
    tiny = np.ascontiguousarray(small[:24, :40])
    picture = Image.fromarray(tiny)
    exif = Image.Exif()
    exif[274], exif[271] = 6, "ACME"
    seeds = [
        saved(picture, "JPEG", exif=exif, icc_profile=P3),
        saved(picture, "JPEG", progressive=True),
        saved(picture.convert("CMYK"), "JPEG"),
        saved(picture, "PNG", exif=exif, icc_profile=P3),
        saved(picture.quantize(8), "PNG", transparency=1),
        saved(picture, "WEBP", exif=exif),
        saved(picture, "BMP"),
        saved(picture, "GIF"),
        saved(picture, "TIFF", exif=exif, compression="tiff_lzw"),
        saved(picture, "TIFF"),
        deep_png(deep[:10, :10]),
        tiff(np.ascontiguousarray(deep[:10, :10, :3]), photometric="rgb", compression="adobe_deflate", predictor=True),
        saved(picture, "MPO", save_all=True, append_images=[picture]),
    ] + ([saved(picture, "AVIF", exif=exif)] if HAS_AVIF else [])
    rng = random.Random(20261130)
    options = ReadOptions(max_pixels=10**6)
    pictures, sentences = 0, []
    for round_number in range(420):
        data = mutated(seeds[round_number % len(seeds)], rng)
        try:
            photo = read(data, options)
        except PhotoError as error:
            sentences.append(str(error))
        else:
            assert photo.pixels.shape == photo.shown.shape
            pictures += 1
    assert not [sentence for sentence in sentences if "\n" in sentence]
    assert min(pictures, len(sentences)) > 40  # both kinds of answer were really met
