"""What the flags say twice, or in vain, is refused before any work; what fails beside a result is no half success."""

from __future__ import annotations

import io
import json

import pytest
from PIL import Image
from typer.testing import CliRunner

from gpen_cli.cli.main import app


def gpen(*arguments: object):
    return CliRunner().invoke(app, list(map(str, arguments)))


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["-q", "--log-level", "debug"], "exclude each other"),
        (["--model", "gpen-bfr-512", "--weights", "w.pth"], "both say which net"),
        (["-o", "-", "--compare"], "--compare has no place"),
        (["--aligned", "--only-largest", "--try-rotations"], "--only-largest and --try-rotations would do nothing"),
        (["--aligned", "--max-faces", "2"], "--max-faces would do nothing"),
        (["--quality", "30"], "the result is a PNG"),
        (["--quality", "30", "-o", "x.tif"], "the result is a TIFF"),
        (["--quality", "30", "--format", "bmp"], "the result is a BMP"),
        (["--report", "-"], "name a file"),
        (["--log-file", "-"], "name a file"),
        (["-o", "r.png", "--log-file", "r.png"], "the result's own name"),
        (["-o", "r.png", "--report", "r.png"], "the result's own name"),
        (["--debug-mask", "m.jpg"], "ends in .png"),
        (["-o", "x.png", "--format", "jpg"], "name two formats"),
        (["-o", "x.dat"], "or give --format"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_enhance_refuses(photo, flags, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    result = gpen("enhance", photo, *flags)
    assert result.exit_code == 2
    assert words in " ".join(result.stderr.split())
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    "flags",
    [
        ["--quality", "80", "-o", "x.jpg"],
        ["--quality", "80", "--format", "webp"],
        ["--quality", "80", "--format", "same"],
    ],
)
def test_a_quality_that_counts_is_taken(photo, flags, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert gpen("enhance", photo, *flags).exit_code == 0


def test_batch_refuses_two_limits(photo, tmp_path):
    result = gpen("batch", photo.parent, tmp_path / "out", "--fail-fast", "--max-failures", 3)
    assert result.exit_code == 2
    assert not (tmp_path / "out").exists()


def test_a_name_without_a_known_suffix_takes_the_format_that_is_given(photo, tmp_path):
    for name, format_name, wanted in (("x.dat", "png", "PNG"), ("x", "jpg", "JPEG"), ("y", "same", "JPEG")):
        assert gpen("enhance", photo, "-o", tmp_path / name, "--format", format_name).exit_code == 0
        with Image.open(tmp_path / name) as picture:
            assert picture.format == wanted


@pytest.mark.parametrize("flag", ["--save-faces", "--debug-mask"])
def test_what_fails_beside_the_result_leaves_none(photo, tmp_path, flag):
    """The report, the exit code and the disk say the same."""
    (tmp_path / "file").write_text("in the way")
    report = tmp_path / "r.jsonl"
    result = gpen("enhance", photo, "-o", tmp_path / "x.png", flag, tmp_path / "file" / "m.png", "--report", report)
    assert result.exit_code == 6
    line = json.loads(report.read_text())
    assert (line["status"], line["target"]) == ("failed", None)
    assert result.stdout == ""
    assert not (tmp_path / "x.png").exists()


def test_a_picture_too_wide_for_its_format_is_named(tmp_path):
    photo = tmp_path / "wide.png"
    Image.new("RGB", (16400, 8), "gray").save(photo)
    result = gpen("enhance", photo, "--format", "webp", "-s", "1")
    assert result.exit_code == 3
    assert "wide.png: WebP holds at most" in result.stderr


def test_a_face_left_out_by_a_flag_gets_no_advice_about_others(photo):
    result = gpen("enhance", photo, "--max-face", "20")
    assert "over --max-face 20" in result.stderr
    assert "--det-threshold" not in result.stderr


@pytest.mark.parametrize("dpi", [None, (300, 300)])
def test_a_tiff_that_names_no_resolution_gets_none(photo, tmp_path, dpi):
    stream = io.BytesIO()
    with Image.open(photo) as picture:
        picture.convert("RGB").save(stream, "TIFF", **({"dpi": dpi} if dpi else {}))
    (tmp_path / "a.tif").write_bytes(stream.getvalue())
    assert gpen("enhance", tmp_path / "a.tif", "-s", "1", "-o", tmp_path / "a.png").exit_code == 0
    with Image.open(tmp_path / "a.png") as picture:
        found = picture.info.get("dpi")
    assert found is None if dpi is None else found == pytest.approx(dpi, abs=0.1)
