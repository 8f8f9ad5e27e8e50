"""``gpen batch odd out``: a folder of every kind of file people have, good and bad, in one run."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from pictures import saved
from PIL import Image, ImageCms
from stand_ins import StandInNet, engine_of
from test_colour import P3
from test_photos_read import HAS_AVIF, deep_png, tiff
from test_pipeline import OneFaceEach
from typer.testing import CliRunner

from gpen_cli.cli.main import app
from gpen_cli.options import ReadOptions
from gpen_cli.photos.read import read_photo

TURNED = {
    1: None,
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_90,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_270,
}
"""EXIF orientation -> how an upright picture is turned to be stored so."""

REASONS = {
    "anim.gif": "animated (3 frames)",
    "anim.png": "animated (3 frames)",
    "anim.webp": "animated (3 frames)",
    "pages.tif": "3 pages",
    "cut.bmp": "cut off",
    "cut.jpg": "cut off",
    "cut.png": "cut off",
    "cut.tif": "cut off",
    "cut.webp": "cut off",
    "notes.jpg": "a text file",
    "pretends.jpg": "a PDF document",
    "zero.jpg": "empty",
}


@pytest.fixture(scope="module")
def base(astronaut) -> Image.Image:
    return Image.fromarray(astronaut[:256, 100:356]).resize((120, 90))


def write_good(folder: Path, base: Image.Image) -> dict[str, dict]:
    """Files that must be restored; name -> what is special: depth, alpha, gray, icc, shape."""
    good: dict[str, dict] = {}

    def put(name: str, data: bytes, **special) -> None:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        good[name] = special

    for orientation, turn in TURNED.items():
        stored = base if turn is None else base.transpose(turn)
        exif = Image.Exif()
        exif[274], exif[271] = orientation, "ACME"
        for kind in ("JPEG", "PNG", "WEBP", "TIFF"):
            put(f"exif{orientation}.{kind.lower()}", saved(stored, kind, exif=exif), upright=True)
    put("gray.png", saved(base.convert("L"), "PNG"), gray=True)
    put("bilevel.png", saved(base.convert("1"), "PNG"), gray=True)
    deep = (np.asarray(base).astype(np.uint16) * 257) | 3
    put("deep.png", deep_png(deep), depth=16)
    put("deep.tif", tiff(deep, photometric="rgb"), depth=16)
    gray16 = np.asarray(base.convert("L")).astype(np.uint16) * 257
    put("gray16.png", saved(Image.fromarray(gray16), "PNG"), depth=16, gray=True)
    alpha = Image.new("L", base.size, 0)
    alpha.paste(255, (10, 10, 100, 80))
    put("alpha.png", saved(Image.merge("RGBA", [*base.split(), alpha]), "PNG"), alpha=True)
    put("la.png", saved(Image.merge("LA", [base.convert("L"), alpha]), "PNG"), alpha=True, gray=True)
    put("palette.png", saved(base.quantize(32), "PNG", transparency=0), alpha=True)
    put("cmyk.jpg", saved(base.convert("CMYK"), "JPEG"))
    put("p3.jpg", saved(base, "JPEG", icc_profile=P3), icc=P3)
    srgb = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    put("srgb.jpg", saved(base, "JPEG", icc_profile=srgb, dpi=(300, 300)), icc=srgb)
    put("still.gif", saved(base, "GIF"))
    put("plain.bmp", saved(base, "BMP"))
    if HAS_AVIF:
        put("new.avif", saved(base, "AVIF"))
    jpeg = saved(base, "JPEG")
    for name in (
        "jpeg_inside.png", "photo.jfif", "UPPER.JPG", "noext", "same.jpg", "a/img.jpg", "b/img.jpg", "photos [2020]/x.jpg",
        "日本 語 😀.jpg", "-dash.jpg", "100%d.jpg", "line\nbreak.jpg", "x" * 240 + ".jpg",
    ):  # fmt: skip
        put(name, jpeg)
    put(os.fsdecode(b"not-utf8-\xff.jpg"), jpeg)
    put("same.png", saved(base, "PNG"))
    for side in (1, 2, 7):
        put(f"tiny{side}.png", saved(base.resize((side, side)), "PNG"), shape=(side, side))
    put("strip.png", saved(base.resize((1, 500)), "PNG"), shape=(500, 1))
    return good


def write_bad(folder: Path, base: Image.Image) -> None:
    frames = [base, base.rotate(10), base.rotate(20)]
    for name, kind in (("anim.gif", "GIF"), ("anim.png", "PNG"), ("anim.webp", "WEBP"), ("pages.tif", "TIFF")):
        (folder / name).write_bytes(saved(frames[0], kind, save_all=True, append_images=frames[1:]))
    for suffix, kind in (("jpg", "JPEG"), ("png", "PNG"), ("webp", "WEBP"), ("tif", "TIFF"), ("bmp", "BMP")):
        data = saved(base, kind)
        (folder / f"cut.{suffix}").write_bytes(data[: len(data) // 2])
    (folder / "zero.jpg").write_bytes(b"")
    (folder / "notes.jpg").write_text("I am text")
    (folder / "pretends.jpg").write_bytes(b"%PDF-1.7 ...")
    # no photos at all
    (folder / "Thumbs.db").write_bytes(bytes(64))
    (folder / ".hidden.png").write_bytes(b"x")
    os.mkfifo(folder / "pipe.jpg")
    (folder / "nowhere.jpg").symlink_to(folder / "gone.jpg")
    (folder / "loop").symlink_to(folder)


@pytest.fixture(scope="module")
def run(base, tmp_path_factory):
    """(good files, folder, out, result, report lines by source name) of the one run the tests look at."""
    folder, out = tmp_path_factory.mktemp("odd"), tmp_path_factory.mktemp("out")
    good = write_good(folder, base)
    write_bad(folder, base)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and not path.is_symlink()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "gpen_cli.engine.build_engine",
            lambda options, **how: engine_of(StandInNet(lambda crop: crop), detector=OneFaceEach()),
        )
        patch.setattr("gpen_cli.engine.engine_mark", lambda engine: "stand-in")
        report = tmp_path_factory.mktemp("report") / "r.jsonl"
        result = CliRunner().invoke(app, ["batch", str(folder), str(out), "--report", str(report)])
    lines = [json.loads(line) for line in report.read_text().splitlines()]
    by_name = {os.path.relpath(line["source"], folder): line for line in lines}
    assert {path: path.read_bytes() for path in before} == before, "originals are as they were"
    yield good, folder, out, result, by_name
    shutil.rmtree(folder)


def test_it_ends_with_7_and_a_line_for_each_photo(run):
    good, _, _, result, lines = run
    assert result.exit_code == 7
    assert set(lines) == set(good) | set(REASONS)


@pytest.mark.parametrize("name", REASONS)
def test_each_bad_file_is_named_with_its_reason(run, name):
    _, _, _, result, lines = run
    assert lines[name]["status"] == "failed"
    assert REASONS[name] in lines[name]["error"]
    assert name in lines[name]["error"]
    assert lines[name]["error"] in result.stderr
    assert lines[name]["target"] is None


def test_each_good_file_has_its_own_output(run):
    good, _, out, _, lines = run
    failed = {name: lines[name]["error"] for name in good if lines[name]["status"] == "failed"}
    assert failed == {}
    targets = [lines[name]["target"] for name in good]
    assert len(set(targets)) == len(good)
    written = {str(path) for path in out.rglob("*") if path.is_file() and path.name != ".gpen-manifest.jsonl"}
    assert written == set(targets), "nothing else lies there: no temporary file"


def test_outputs_have_the_right_size_orientation_depth_alpha_and_profile(run, base):
    good, _, _, _, lines = run
    upright = np.asarray(base.resize((240, 180), Image.Resampling.BICUBIC)).astype(float)
    for name, special in good.items():
        photo = read_photo(Path(lines[name]["target"]).read_bytes(), name, ReadOptions())
        height, width = special.get("shape", (90, 120))
        assert photo.size == (2 * width, 2 * height), name
        assert photo.pixels.dtype == (np.uint16 if special.get("depth") == 16 else np.uint8), name
        assert (photo.alpha is not None) == special.get("alpha", False), name
        assert photo.gray == special.get("gray", False), name
        if "icc" in special:
            assert photo.metadata.icc == special["icc"], name
        if special.get("upright"):
            assert np.abs(photo.pixels - upright).mean() < 12, name
            assert b"ACME" in (photo.metadata.exif or b""), name


def test_names_survive_stdout(run):
    good, _, _, result, lines = run
    told = result.stdout_bytes.decode("utf-8", "surrogateescape")
    for name in good:
        if "\n" not in name:
            assert lines[name]["target"] in told
