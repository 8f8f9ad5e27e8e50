"""Writing: what went in comes out, at its depth; what a format cannot hold is said; a file is whole or not there."""

from __future__ import annotations

import errno
import io
import os
import stat
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pictures import saved
from PIL import Image
from test_colour import GRAY_22, P3, lcms
from test_photos_metadata import MAKER_NOTE, PACKET, camera_exif, parsed

from gpen_cli.data import Metadata, Photo, SourceFormat
from gpen_cli.errors import OutputError, PhotoError, UsageError
from gpen_cli.options import FORMATS as OPTION_FORMATS
from gpen_cli.options import ReadOptions
from gpen_cli.photos import lossless
from gpen_cli.photos.formats import FORMATS, resolve_format
from gpen_cli.photos.metadata import PROVENANCE, is_our_output
from gpen_cli.photos.read import read_photo
from gpen_cli.photos.write import Encoded, encode_photo, write_atomically

FULL = Metadata(exif=camera_exif(), xmp=PACKET, icc=P3, dpi=(300.0, 240.0))


def photo_of(pixels: np.ndarray, *, alpha: np.ndarray | None = None, gray: bool = False, **fields) -> Photo:
    shown = pixels if pixels.dtype == np.uint8 else (pixels // 257).astype(np.uint8)
    return Photo(pixels=pixels, shown=shown, alpha=alpha, gray=gray, **fields)


def encode(photo: Photo, format_name: str, quality: int | None = None) -> Encoded:
    return encode_photo(photo, photo.pixels, photo.alpha, format_name=format_name, quality=quality)


def read(data: bytes) -> Photo:
    return read_photo(data, "result", ReadOptions())


@pytest.fixture(scope="module")
def small(astronaut) -> np.ndarray:
    return np.ascontiguousarray(astronaut[60:160, 150:290])


# -- round trips --


@pytest.mark.parametrize("format_name", ["png", "tiff"])
@given(
    st.integers(1, 40),
    st.integers(1, 40),
    st.sampled_from([np.uint8, np.uint16]),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.integers(0, 2**31),
)
@settings(max_examples=60, deadline=None)
def test_lossless_formats_give_back_every_value(format_name, height, width, kind, gray, with_alpha, smooth, seed):
    rng, top = np.random.default_rng(seed), np.iinfo(kind).max
    pixels = rng.integers(0, top + 1, (height, width, 3), dtype=kind)
    if smooth:
        pixels = np.broadcast_to((np.arange(width) * (top // 64)).astype(kind)[None, :, None], pixels.shape).copy()
    if gray:
        pixels[...] = pixels[..., :1]
    alpha = rng.integers(0, top + 1, (height, width), dtype=kind) if with_alpha else None
    result = encode(photo_of(pixels, alpha=alpha, gray=gray, metadata=FULL if seed % 2 else Metadata()), format_name)
    back = read(result.data)
    assert back.pixels.dtype == kind
    assert np.array_equal(back.pixels, pixels)
    assert back.gray == gray
    assert (back.alpha is None) == (alpha is None)
    if alpha is not None:
        assert np.array_equal(back.alpha, alpha)
    assert not result.warnings


def test_files_of_several_bands_are_whole(monkeypatch, small):
    monkeypatch.setattr(lossless, "_BAND_BYTES", 1500)
    for format_name in ("png", "tiff"):
        assert np.array_equal(read(encode(photo_of(small), format_name).data).pixels, small)


def test_other_readers_agree_with_us(small):
    import cv2

    deep = small.astype(np.uint16) * 257 + 3
    for pixels in (small, deep):
        for format_name in ("png", "tiff"):
            data = encode(photo_of(pixels), format_name).data
            seen = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED)
            assert np.array_equal(seen[..., ::-1], pixels)
    tifffile = pytest.importorskip("tifffile")
    assert np.array_equal(tifffile.imread(io.BytesIO(encode(photo_of(deep, metadata=FULL), "tiff").data)), deep)


def test_eight_bit_files_open_in_pillow_with_all_that_belongs_to_them(small):
    for format_name in ("png", "tiff", "jpg", "webp"):
        picture = Image.open(io.BytesIO(encode(photo_of(small, metadata=FULL), format_name).data))
        picture.load()
        exif = picture.getexif()
        assert picture.info["icc_profile"] == P3
        assert (exif[271], exif[306]) == ("ACME", "1999:12:31 23:59:59")
        assert exif[305].startswith(PROVENANCE)
        assert exif.get_ifd(34853)[1] == "N"
        assert exif.get_ifd(34665)[0xA002] == 140
        if format_name != "webp":
            assert [float(v) for v in picture.info["dpi"]] == pytest.approx((300, 240), abs=0.1)


@pytest.mark.parametrize("format_name", ["png", "tiff", "jpg", "webp"])
def test_metadata_survives_and_is_true_in_every_format_that_holds_it(small, format_name):
    canvas = np.repeat(np.repeat(small, 2, axis=0), 2, axis=1)
    result = encode_photo(photo_of(small, metadata=FULL), canvas, None, format_name=format_name, quality=None)
    back = read(result.data)
    exif = parsed(back.metadata.exif)
    assert back.size == (280, 200)
    assert exif.get(274, 1) == 1
    assert exif[306] == "1999:12:31 23:59:59"
    details = exif.get_ifd(34665)
    assert (details[0xA002], details[0xA003]) == (280, 200)
    assert details[0x927C] == MAKER_NOTE
    assert exif.get_ifd(34853)[3] == "E"
    assert b"thumbnail" not in result.data
    assert b'xmp:Rating="5"' in back.metadata.xmp
    assert b'tiff:Orientation="1"' in back.metadata.xmp
    assert back.metadata.icc == P3
    assert is_our_output(result.data)
    assert not result.warnings


def test_bmp_says_what_it_cannot_hold(small):
    result = encode(photo_of(small, metadata=FULL), "bmp")
    assert np.array_equal(read(result.data).pixels, small)
    assert len(result.warnings) == 1
    assert not is_our_output(result.data)
    assert not encode(photo_of(small), "bmp").warnings


def test_a_file_written_twice_has_the_same_bytes(small):
    for format_name in FORMATS:
        photo = photo_of(small, metadata=FULL)
        assert encode(photo, format_name).data == encode(photo, format_name).data


# -- what formats cannot hold --


@pytest.mark.parametrize("format_name", ["jpg", "webp", "bmp"])
def test_sixteen_bits_are_rounded_with_a_warning(small, format_name):
    result = encode(photo_of(small.astype(np.uint16) * 257 + 120), format_name)
    assert "16 bits" in result.warnings[0]
    assert np.abs(read(result.data).pixels.astype(int) - small).mean() < 3


@pytest.mark.parametrize("format_name", ["jpg", "bmp"])
def test_transparency_goes_on_white_with_a_warning(small, format_name):
    alpha = np.full((100, 140), 255, np.uint8)
    alpha[:50] = 0
    junk = small.copy()
    junk[:50] = (255, 0, 255)
    result = encode(photo_of(junk, alpha=alpha), format_name, 100)
    pixels = read(result.data).pixels.astype(int)
    assert "white" in result.warnings[0]
    assert pixels[:40].min() > 250
    assert np.abs(pixels[50:] - small[50:]).mean() < 2
    opaque = encode(photo_of(small, alpha=np.full((100, 140), 255, np.uint8)), format_name)
    assert not opaque.warnings


def test_webp_keeps_alpha_and_hidden_colours_roughly(small):
    alpha = np.tile(np.arange(140, dtype=np.uint8), (100, 1))
    back = read(encode(photo_of(small, alpha=alpha), "webp").data)
    assert np.array_equal(back.alpha, alpha)
    assert np.abs(back.pixels.astype(int) - small).mean() < 4


@pytest.mark.parametrize(("format_name", "size"), [("jpg", (65536, 1)), ("webp", (1, 16384))])
def test_a_side_too_long_for_a_format_names_another(format_name, size):
    photo = photo_of(np.zeros((size[1], size[0], 3), np.uint8))
    with pytest.raises(PhotoError, match="write png"):
        encode(photo, format_name)
    assert read(encode(photo, "png").data).size == size


def test_exif_too_large_for_a_jpeg_is_left_out_with_a_warning(small):
    exif = camera_exif(thumbnail=b"x") + bytes(70_000)
    result = encode(photo_of(small, metadata=Metadata(exif=exif, xmp=PACKET[:-19] + b" " * 70_000)), "jpg")
    assert len(result.warnings) == 2
    assert is_our_output(result.data)
    assert not encode(photo_of(small, metadata=Metadata(exif=exif)), "png").warnings


def test_broken_exif_is_a_warning(small):
    result = encode(photo_of(small, metadata=Metadata(exif=b"junk")), "png")
    assert "EXIF" in result.warnings[0]
    assert is_our_output(result.data)


# -- gray, CMYK, profiles --


@pytest.mark.parametrize("format_name", ["png", "tiff", "jpg", "bmp"])
def test_gray_photos_stay_gray_whatever_a_net_did_to_them(small, format_name):
    gray = np.repeat(small[..., :1], 3, axis=2)
    tinted = gray.copy()
    tinted[40:60, 40:60, 0] //= 2
    photo = photo_of(gray, gray=True, metadata=Metadata(icc=GRAY_22))
    back = read(encode_photo(photo, tinted, None, format_name=format_name, quality=100).data)
    assert back.gray
    assert np.abs(back.pixels[:30].astype(int) - gray[:30]).max() <= (2 if format_name == "jpg" else 0)
    if format_name != "bmp":
        assert back.metadata.icc == GRAY_22


def test_gray_in_webp_looks_the_same_without_its_gray_profile(small):
    gray = np.repeat(small[..., :1], 3, axis=2)
    photo = replace(photo_of(gray, gray=True), metadata=Metadata(icc=GRAY_22))
    back = read(encode(photo, "webp").data)
    wanted = lcms(GRAY_22, gray[..., 0], mode="L", back=True)
    assert back.metadata.icc is None
    assert np.abs(back.shown.astype(int) - wanted).mean() < 3


def test_odd_inputs_make_the_whole_trip(small):
    """Bilevel, palette with transparency, gray with alpha and CMYK, read and written as PNG and read again."""
    picture = Image.fromarray(small)
    for data in (
        saved(picture.convert("1"), "PNG"),
        saved(picture.quantize(16), "PNG", transparency=3),
        saved(picture.convert("LA"), "PNG"),
        saved(picture.convert("CMYK"), "JPEG"),
        saved(picture.convert("CMYK"), "TIFF"),
        saved(picture, "GIF"),
    ):
        first = read(data)
        second = read(encode(first, "same").data)
        assert second.gray == first.gray
        assert (second.alpha is None) == (first.alpha is None)
        assert second.pixels.shape == first.pixels.shape
        assert np.abs(second.pixels.astype(int) - first.pixels).mean() < 3


# -- formats, quality --


def test_jpeg_quality_and_full_colour_resolution(small):
    sizes = [len(encode(photo_of(small), "jpg", quality).data) for quality in (60, 95, 100)]
    assert sizes == sorted(sizes)
    assert len(encode(photo_of(small), "jpg").data) == sizes[1]
    picture = Image.open(io.BytesIO(encode(photo_of(small), "jpg").data))
    assert [layer[1:3] for layer in picture.layer] == [(1, 1)] * 3


def jpeg_of(pixels, quality):
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "JPEG", quality=quality, subsampling="4:4:4")
    return stream.getvalue()


@pytest.mark.parametrize("quality", [96, 98, 100])
def test_same_keeps_a_fine_jpegs_quantisation_unless_a_quality_is_given(small, quality):
    data = jpeg_of(small, quality)
    tables = Image.open(io.BytesIO(data)).quantization
    same = Image.open(io.BytesIO(encode(read(data), "same").data))
    assert same.format == "JPEG"
    assert same.quantization == tables
    assert [layer[1:3] for layer in same.layer] == [(1, 1)] * 3
    assert Image.open(io.BytesIO(encode(read(data), "same", 50).data)).quantization != tables
    assert Image.open(io.BytesIO(encode(read(data), "jpg").data)).quantization != tables


@pytest.mark.parametrize("quality", [8, 30, 75, 90])
def test_same_does_not_carry_on_a_coarse_quantisation_that_would_undo_the_restoration(small, quality):
    photo = read(jpeg_of(small, quality))
    assert encode(photo, "same").data == encode(photo, "jpg").data
    ours = Image.open(io.BytesIO(encode(photo, "same").data)).quantization
    assert ours == Image.open(io.BytesIO(jpeg_of(small, 95))).quantization


def test_formats_are_named_by_suffix_option_or_source():
    for suffix, name in (
        (".JPG", "jpg"),
        (".jpeg", "jpg"),
        (".jfif", "jpg"),
        (".tif", "tiff"),
        ("tiff", "tiff"),
        (".png", "png"),
    ):
        assert resolve_format(suffix, None) == name
    for source, name in (("JPEG", "jpg"), ("WEBP", "webp"), ("GIF", "png"), ("HEIF", "png"), ("BMP", "bmp")):
        assert resolve_format("same", SourceFormat(source)) == name
    for option in OPTION_FORMATS:
        assert resolve_format(option, SourceFormat("PNG")) in FORMATS
    for unknown in ("", ".txt", ".heic", "gif"):
        with pytest.raises(UsageError, match="--format"):
            resolve_format(unknown, None)


@pytest.mark.parametrize("format_name", FORMATS)
def test_the_suffix_of_a_result_leads_back_to_its_format(small, format_name):
    result = encode(photo_of(small), format_name)
    assert resolve_format(result.suffix, None) == format_name


def test_png_is_not_slow(astronaut):
    """Pillow's level 6 needs about 0.27 s a megapixel on the machine where this file's writer needs 0.033."""
    canvas = np.tile(astronaut, (4, 4, 1))  # 4 megapixels
    start = time.perf_counter()
    encode(photo_of(canvas), "png")
    assert time.perf_counter() - start < 2.0  # 15 times the measured time: busy machines are no failure


# -- files --


def leftovers(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_written_file_is_whole_and_alone(tmp_path):
    target = tmp_path / "ein Bild [1] 日本.png"
    write_atomically(target, b"first")
    write_atomically(target, b"second")
    assert target.read_bytes() == b"second"
    assert leftovers(tmp_path) == [target.name]


@pytest.mark.skipif(os.name == "nt", reason="POSIX permissions")
@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_the_umask_decides_who_may_read(tmp_path, mask, mode):
    before = os.umask(mask)
    try:
        write_atomically(tmp_path / "a.png", b"x")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a.png").stat().st_mode) == mode


@pytest.mark.parametrize("step", ["fsync", "replace"])
@pytest.mark.parametrize(
    ("code", "word"),
    [
        (errno.ENOSPC, "full"),
        (errno.EROFS, "read-only"),
        (errno.EIO, "does not answer"),
        (errno.ENODEV, "No such device"),
    ],
)
def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, step, code, word):
    target = tmp_path / "a.png"
    target.write_bytes(b"old")

    def fail(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, step, fail)
    with pytest.raises(OutputError, match=word):
        write_atomically(target, b"new")
    assert target.read_bytes() == b"old"
    assert leftovers(tmp_path) == ["a.png"]


def test_ctrl_c_leaves_nothing_behind(tmp_path, monkeypatch):
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_atomically(tmp_path / "a.png", b"new")
    assert leftovers(tmp_path) == []


@pytest.mark.skipif(os.name == "nt", reason="needs RLIMIT_FSIZE")
def test_a_real_size_limit_is_one_sentence_and_no_file(tmp_path):
    code = (
        "import resource, sys\n"
        "from pathlib import Path\n"
        "from gpen_cli.errors import OutputError\n"
        "from gpen_cli.photos.write import write_atomically\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"
        "try:\n    write_atomically(Path(sys.argv[1]) / 'a.png', bytes(300_000))\n"
        "except OutputError as error:\n    print(error); sys.exit(error.exit_code)\n"
    )
    answer = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False)
    assert answer.returncode == 6, answer.stderr
    assert "larger than the system allows" in answer.stdout
    assert leftovers(tmp_path) == []


def test_folders_that_are_gone_or_no_folders(tmp_path):
    with pytest.raises(OutputError, match="gone"):
        write_atomically(tmp_path / "missing" / "a.png", b"x")
    (tmp_path / "file").write_bytes(b"x")
    with pytest.raises(OutputError):
        write_atomically(tmp_path / "file" / "a.png", b"x")
    (tmp_path / "folder").mkdir()
    with pytest.raises(PhotoError, match="is a folder"):
        write_atomically(tmp_path / "folder", b"x")


@pytest.mark.skipif(os.name == "nt", reason="POSIX name lengths")
def test_names_up_to_the_limit_can_be_written_and_longer_ones_are_this_photos_error(tmp_path):
    write_atomically(tmp_path / ("n" * 251 + ".png"), b"x")
    with pytest.raises(PhotoError, match="no name"):
        write_atomically(tmp_path / ("n" * 252 + ".png"), b"x")
    assert len(leftovers(tmp_path)) == 1


@pytest.mark.skipif(os.name == "nt", reason="POSIX permissions")
def test_a_folder_without_permission(tmp_path):
    """In a process of its own, which gives up root's rights first: root may write anywhere."""
    code = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from gpen_cli.photos.write import write_atomically\n"
        "from gpen_cli.errors import OutputError\n"
        "if os.geteuid() == 0:\n    os.seteuid(65534)\n"
        "try:\n    write_atomically(Path(sys.argv[1]) / 'a.png', b'x')\n"
        "except OutputError as error:\n    print(error); sys.exit(error.exit_code)\n"
    )
    tmp_path.chmod(0o555)
    try:
        answer = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False
        )
    finally:
        tmp_path.chmod(0o755)
    assert answer.returncode == 6, answer.stderr
    assert "not permitted" in answer.stdout
    assert leftovers(tmp_path) == []
