"""Reading: every kind of picture comes in upright, at its depth, with its alpha, profile and metadata."""

from __future__ import annotations

import io
import struct
import sys
import zlib

import cv2
import numpy as np
import pytest
from pictures import saved
from PIL import Image, ImageCms, features
from test_colour import P3, lcms

from gpen_cli.data import Photo
from gpen_cli.errors import PhotoError
from gpen_cli.options import ReadOptions
from gpen_cli.photos.read import read_photo

OPTIONS = ReadOptions()
HAS_AVIF = features.check("avif")


def read(data: bytes, options: ReadOptions = OPTIONS) -> Photo:
    return read_photo(data, "photo", options)


def refusal(data: bytes, options: ReadOptions = OPTIONS) -> str:
    with pytest.raises(PhotoError) as caught:
        read(data, options)
    sentence = str(caught.value)
    assert sentence.startswith("photo ")
    assert sentence.endswith((".", "]'"))
    assert "\n" not in sentence
    return sentence


# -- files no library writes for us --


def png_chunk(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))


def deep_png(samples: np.ndarray, *, key: tuple[int, ...] | None = None) -> bytes:
    height, width, channels = samples.shape
    rows = np.zeros((height, 1 + width * channels * 2), np.uint8)
    rows[:, 1:] = samples.astype(">u2").reshape(height, -1).view(np.uint8)
    head = struct.pack(">IIBBBBB", width, height, 16, {1: 0, 2: 4, 3: 2, 4: 6}[channels], 0, 0, 0)
    trns = b"" if key is None else png_chunk(b"tRNS", struct.pack(f">{len(key)}H", *key))
    body = png_chunk(b"IHDR", head) + trns + png_chunk(b"IDAT", zlib.compress(rows.tobytes()))
    return b"\x89PNG\r\n\x1a\n" + body + png_chunk(b"IEND", b"")


def interlaced_png(gray: np.ndarray) -> bytes:
    """Adam7: seven passes, each a small picture of its own (PNG specification, 8.2)."""
    height, width = gray.shape
    data = b""
    for top, left, down, right in (
        (0, 0, 8, 8),
        (0, 4, 8, 8),
        (4, 0, 8, 4),
        (0, 2, 4, 4),
        (2, 0, 4, 2),
        (0, 1, 2, 2),
        (1, 0, 2, 1),
    ):
        for row in gray[top::down, left::right]:
            data += b"\0" + row.tobytes() if row.size else b""
    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 1)
    return (
        b"\x89PNG\r\n\x1a\n"
        + png_chunk(b"IHDR", head)
        + png_chunk(b"IDAT", zlib.compress(data))
        + png_chunk(b"IEND", b"")
    )


def tiff(samples: np.ndarray, **options) -> bytes:
    tifffile = pytest.importorskip("tifffile")
    target = io.BytesIO()
    tifffile.imwrite(target, samples, metadata=None, **options)
    return target.getvalue()


def turned_back(upright: np.ndarray, orientation: int) -> np.ndarray:
    """The pixels a camera would store under this orientation, from Pillow's own table of turns."""
    turn = Image.Transpose
    back = {
        1: None,
        2: turn.FLIP_LEFT_RIGHT,
        3: turn.ROTATE_180,
        4: turn.FLIP_TOP_BOTTOM,
        5: turn.TRANSPOSE,
        6: turn.ROTATE_90,
        7: turn.TRANSVERSE,
        8: turn.ROTATE_270,
    }[orientation]
    picture = Image.fromarray(upright)
    return np.asarray(picture if back is None else picture.transpose(back))


# -- orientation --


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("JPEG", {"quality": 98, "subsampling": 0}),
        ("PNG", {}),
        ("WEBP", {"lossless": True}),
        ("TIFF", {}),
        ("TIFF", {"compression": "tiff_lzw"}),
        pytest.param("AVIF", {"quality": 95}, marks=pytest.mark.skipif(not HAS_AVIF, reason="Pillow without AVIF")),
    ],
    ids=["jpeg", "png", "webp", "tiff", "tiff-lzw", "avif"],
)
def test_all_eight_orientations_are_applied_once(small, kind, options, orientation):
    stored = Image.fromarray(turned_back(small, orientation))
    exif = Image.Exif()
    exif[274] = orientation
    photo = read(saved(stored, kind, exif=exif, **options))
    assert photo.pixels.shape == small.shape
    allowed = {"JPEG": 3, "AVIF": 6}.get(kind, 0.001)
    assert np.abs(photo.pixels.astype(int) - small).mean() < allowed


@pytest.mark.parametrize("orientation", range(1, 9))
def test_sixteen_bit_tiffs_are_turned_once_too(deep, orientation):
    upright = deep[..., :3]
    stored = np.stack([turned_back(upright[..., c].copy(), orientation) for c in range(3)], axis=2)
    data = tiff(np.ascontiguousarray(stored), photometric="rgb", extratags=[(274, 3, 1, orientation, True)])
    assert np.array_equal(read(data).pixels, upright)


@pytest.mark.parametrize("bad", [0, 9, 65535])
def test_an_impossible_orientation_is_ignored(small, bad):
    exif = Image.Exif()
    exif[274] = bad
    assert read(saved(Image.fromarray(small), "PNG", exif=exif)).pixels.shape == small.shape


# -- kinds of pixels --


def test_eight_bit_colour_is_exact_and_shown_as_it_is(small):
    for kind, options in (
        ("PNG", {}),
        ("BMP", {}),
        ("WEBP", {"lossless": True}),
        ("TIFF", {"compression": "tiff_deflate"}),
    ):
        photo = read(saved(Image.fromarray(small), kind, **options))
        assert np.array_equal(photo.pixels, small)
        assert photo.shown is photo.pixels
        assert photo.alpha is None
        assert not photo.gray
        assert photo.source_format.name == kind
        assert photo.pixels.flags.c_contiguous


def test_progressive_jpegs_keep_their_tables_for_the_writer(small):
    data = saved(Image.fromarray(small), "JPEG", progressive=True, quality=61)
    photo = read(data)
    assert photo.source_format.quantization == Image.open(io.BytesIO(data)).quantization
    assert np.array_equal(photo.pixels, np.asarray(Image.open(io.BytesIO(data))))


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "TIFF", "BMP"])
def test_gray_stays_gray(small, kind):
    gray = Image.fromarray(small).convert("L")
    photo = read(saved(gray, kind))
    assert photo.gray
    assert photo.pixels.shape == small.shape
    assert np.array_equal(photo.pixels[..., 0], photo.pixels[..., 2])


def test_bilevel_becomes_gray(small):
    photo = read(saved(Image.fromarray(small).convert("1"), "PNG"))
    assert photo.gray
    assert set(np.unique(photo.pixels)) == {0, 255}


def test_gray_with_alpha(small):
    alpha = np.tile(np.arange(140, dtype=np.uint8), (100, 1))
    gray = np.asarray(Image.fromarray(small).convert("L"))
    photo = read(saved(Image.fromarray(np.dstack([gray, alpha])), "PNG"))
    assert photo.gray
    assert np.array_equal(photo.alpha, alpha)
    assert np.array_equal(photo.pixels[..., 1], gray)


def test_a_palette_with_transparency_becomes_colour_with_alpha(small):
    picture = Image.fromarray(small).quantize(16)
    photo = read(saved(picture, "PNG", transparency=3))
    assert not photo.gray
    assert np.array_equal(photo.alpha == 0, np.asarray(picture) == 3)
    assert np.array_equal(photo.pixels, np.asarray(picture.convert("RGB")))
    assert read(saved(picture, "PNG")).alpha is None
    assert read(saved(picture, "GIF")).pixels.shape == small.shape


def test_interlaced_png():
    gray = np.random.default_rng(1).integers(0, 256, (13, 21), dtype=np.uint8)
    assert np.array_equal(read(interlaced_png(gray)).pixels[..., 0], gray)


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_sixteen_bit_png_is_exact(deep, channels):
    samples = deep[..., -channels:]
    photo = read(deep_png(samples))
    colours = samples[..., :1].repeat(3, axis=2) if channels <= 2 else samples[..., :3]
    assert photo.pixels.dtype == np.uint16
    assert np.array_equal(photo.pixels, colours)
    assert photo.gray == (channels <= 2)
    assert (photo.alpha is None) == (channels in (1, 3))
    if photo.alpha is not None:
        assert np.array_equal(photo.alpha, samples[..., -1])
    seen = photo.shown if photo.alpha is None else photo.shown[photo.alpha > 0]
    wanted = colours if photo.alpha is None else colours[photo.alpha > 0]
    assert np.array_equal(seen, np.rint(wanted / 257).astype(np.uint8))


@pytest.mark.parametrize("channels", [1, 3])
def test_a_sixteen_bit_colour_key_is_transparency(deep, channels):
    samples = deep[..., :channels]
    photo = read(deep_png(samples, key=tuple(int(v) for v in samples[2, 5])))
    assert np.array_equal(photo.alpha == 0, (samples == samples[2, 5]).all(axis=2))
    assert set(np.unique(photo.alpha)) == {0, 65535}


@pytest.mark.parametrize("byteorder", ["<", ">"])
@pytest.mark.parametrize(
    "layout",
    [
        {},
        {"compression": "adobe_deflate"},
        {"compression": "adobe_deflate", "predictor": True},
        {"tile": (16, 16), "compression": "adobe_deflate", "predictor": True},
    ],
    ids=["raw", "deflate", "deflate-differences", "tiles"],
)
@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_sixteen_bit_tiff_is_exact(deep, byteorder, layout, channels):
    samples = np.ascontiguousarray(deep[..., :channels])
    photometric = "minisblack" if channels <= 2 else "rgb"
    extra = {"extrasamples": ["unassalpha"], "planarconfig": "contig"} if channels in (2, 4) else {}
    stored = samples[..., 0] if channels == 1 else samples
    photo = read(tiff(stored, byteorder=byteorder, photometric=photometric, **layout, **extra))
    colours = samples[..., :1].repeat(3, axis=2) if channels <= 2 else samples[..., :3]
    assert photo.pixels.dtype == np.uint16
    assert np.array_equal(photo.pixels, colours)
    assert photo.gray == (channels <= 2)
    if channels in (2, 4):
        assert np.array_equal(photo.alpha, samples[..., -1])


def test_sixteen_bit_tiff_with_lzw_from_opencv(deep):
    bgr = np.ascontiguousarray(deep[..., 2::-1])
    encoded = cv2.imencode(".tiff", bgr, [cv2.IMWRITE_TIFF_COMPRESSION, 5])[1]
    assert np.array_equal(read(encoded.tobytes()).pixels, deep[..., :3])


def test_sixteen_bit_tiff_of_odd_meanings(deep):
    rgb = np.ascontiguousarray(deep[..., :3])
    planes = tiff(np.moveaxis(rgb, 2, 0).copy(), photometric="rgb", planarconfig="separate")
    assert np.array_equal(read(planes).pixels, rgb)
    negative = tiff(deep[..., 0].copy(), photometric="miniswhite")
    assert np.array_equal(read(negative).pixels[..., 0], 65535 - deep[..., 0])
    alpha = np.maximum(deep[..., 3], 1000)
    premultiplied = np.rint(rgb * (alpha[..., None] / 65535)).astype(np.uint16)
    stored = np.dstack([premultiplied, alpha])
    photo = read(tiff(stored, photometric="rgb", extrasamples=["assocalpha"]))
    assert np.abs(photo.pixels.astype(int) - rgb).max() <= 34  # half a level of 65535 over an alpha of 1000


def test_big_tiff_in_colour_says_that_it_lost_depth(deep):
    photo = read(tiff(np.ascontiguousarray(deep[..., :3]), photometric="rgb", bigtiff=True))
    assert photo.pixels.dtype == np.uint8
    assert "16-bit" in photo.warnings[0]


def test_hidden_colours_stay_in_the_pixels_and_out_of_sight(small):
    alpha = np.zeros((100, 140), np.uint8)
    alpha[20:80, 20:120] = 255
    junk = small.copy()
    junk[alpha == 0] = (255, 0, 255)
    for kind, options in (("PNG", {}), ("WEBP", {"lossless": True, "exact": True}), ("TIFF", {})):
        photo = read(saved(Image.fromarray(np.dstack([junk, alpha])), kind, **options))
        assert np.array_equal(photo.pixels, junk)
        assert np.array_equal(photo.alpha, alpha)
        assert (photo.shown[alpha == 0] == 128).all()
        assert np.array_equal(photo.shown[alpha > 0], small[alpha > 0])


def test_bgr_swaps_red_and_blue(small):
    data = saved(Image.fromarray(small), "PNG")
    photo = read(data, ReadOptions(channel_order="bgr"))
    assert np.array_equal(photo.pixels, small[..., ::-1])
    assert np.array_equal(photo.shown, small[..., ::-1])


# -- colour --


def test_cmyk_jpegs_inverted_as_adobe_does_look_right(small):
    data = saved(Image.fromarray(small).convert("CMYK"), "JPEG", quality=98)
    assert b"Adobe" in data[:1000]
    photo = read(data)
    assert np.abs(photo.pixels.astype(int) - small).mean() < 4
    assert photo.metadata.icc is None
    raw = saved(Image.fromarray(small).convert("CMYK"), "TIFF")
    assert np.abs(read(raw).pixels.astype(int) - small).mean() < 1


def test_a_p3_photo_keeps_its_pixels_and_profile_and_is_shown_in_srgb(small):
    own = lcms(P3, small)
    for kind, options in (("PNG", {}), ("WEBP", {"lossless": True}), ("TIFF", {})):
        photo = read(saved(Image.fromarray(own), kind, icc_profile=P3, **options))
        assert np.array_equal(photo.pixels, own)
        assert photo.metadata.icc == P3
        assert np.abs(photo.shown.astype(int) - small).mean() < 1
    jpeg = read(saved(Image.fromarray(own), "JPEG", quality=98, icc_profile=P3))
    assert jpeg.metadata.icc == P3
    assert np.abs(jpeg.shown.astype(int) - small).mean() < 4


def test_a_damaged_profile_is_a_warning(small):
    photo = read(saved(Image.fromarray(small), "PNG", icc_profile=P3[:150]))
    assert photo.metadata.icc is None
    assert "profile" in photo.warnings[0]
    assert np.array_equal(photo.shown, small)


def test_srgb_profile_and_resolution_are_kept(small):
    srgb = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    photo = read(saved(Image.fromarray(small), "JPEG", icc_profile=srgb, dpi=(300, 300)))
    assert photo.metadata.icc == srgb
    assert photo.metadata.dpi == pytest.approx((300, 300))
    assert photo.shown is photo.pixels


# -- other containers --


@pytest.mark.skipif(not HAS_AVIF, reason="Pillow without AVIF")
def test_avif(small):
    photo = read(saved(Image.fromarray(small), "AVIF", quality=95))
    assert np.abs(photo.pixels.astype(int) - small).mean() < 6


def test_heic_upright_and_unregistered(small):
    heif = pytest.importorskip("pillow_heif")
    registered = "HEIF" in Image.OPEN
    exif = Image.Exif()
    exif[274], exif[271] = 6, "ACME"
    target = io.BytesIO()
    stored = Image.fromarray(turned_back(small, 6))
    heif.from_pillow(stored).save(target, quality=95, exif=exif.tobytes())
    photo = read(target.getvalue())
    assert photo.pixels.shape == small.shape
    assert np.abs(photo.pixels.astype(int) - small).mean() < 6
    assert b"ACME" in photo.metadata.exif
    assert ("HEIF" in Image.OPEN) == registered
    assert "cut off" in refusal(target.getvalue()[:-200])


def test_heic_without_its_package_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    assert "pip install 'gpen-cli[heif]'" in refusal(b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + bytes(64))


def test_mpo_is_its_first_picture(small):
    second = Image.fromarray(small[::-1])
    data = saved(Image.fromarray(small), "MPO", save_all=True, append_images=[second], quality=98)
    photo = read(data)
    assert np.abs(photo.pixels.astype(int) - small).mean() < 4
    assert photo.source_format.name == "JPEG"
    assert "more than one picture" in photo.warnings[0]


def test_a_gain_map_is_dropped_and_reported(small):
    xmp = b'<x:xmpmeta><rdf:RDF><rdf:Description hdrgm:Version="1.0"/></rdf:RDF></x:xmpmeta>'
    second = Image.fromarray(small).convert("L")
    data = saved(Image.fromarray(small), "MPO", save_all=True, append_images=[second], xmp=xmp)
    assert "gain map" in read(data).warnings[0]


def test_tiff_with_a_thumbnail_is_one_photo(small):
    pages = [np.ascontiguousarray(small[::8, ::8])]
    tifffile = pytest.importorskip("tifffile")
    target = io.BytesIO()
    with tifffile.TiffWriter(target) as writer:
        writer.write(small, photometric="rgb", metadata=None)
        writer.write(pages[0], photometric="rgb", subfiletype=1, metadata=None)
    assert np.array_equal(read(target.getvalue()).pixels, small)
