"""``--in-place``: the photo's name gets the result, the original stays as ``<name>.orig``, and nothing is ever lost."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from PIL import Image
from typer.testing import CliRunner

from gpen_cli import delivery
from gpen_cli.cli.main import app
from gpen_cli.errors import OutputError


def gpen(*arguments: object):
    return CliRunner().invoke(app, ["batch", *map(str, arguments)])


def names(photo: Path) -> list[str]:
    return sorted(path.name for path in photo.parent.iterdir())


def test_the_original_is_kept_and_format_and_size_stay(photo):
    before = photo.read_bytes()
    result = gpen(photo.parent, "--in-place")
    assert result.exit_code == 0, result.stderr
    assert result.stdout.strip() == str(photo)
    assert (photo.parent / "photo.jpg.orig").read_bytes() == before
    assert photo.read_bytes() != before
    with Image.open(photo) as picture:
        assert (picture.format, picture.size) == ("JPEG", (240, 240))
    assert names(photo) == ["photo.jpg", "photo.jpg.orig"]


@pytest.mark.skipif(os.name != "posix", reason="modes are POSIX's")
@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664])
def test_the_result_is_as_private_as_the_photo(photo, mode):
    photo.chmod(mode)
    assert gpen(photo.parent, "--in-place").exit_code == 0
    assert stat.S_IMODE(photo.stat().st_mode) == mode
    assert stat.S_IMODE((photo.parent / "photo.jpg.orig").stat().st_mode) == mode


@pytest.mark.skipif(os.name != "posix" or os.getuid() != 0, reason="only root gives files away")
def test_the_result_stays_its_owners(photo):
    os.chown(photo, 1234, 2345)
    assert gpen(photo.parent, "--in-place").exit_code == 0
    assert (photo.stat().st_uid, photo.stat().st_gid) == (1234, 2345)


def test_a_second_run_changes_nothing(photo):
    gpen(photo.parent, photo.parent, "--in-place")
    first = {path.name: path.read_bytes() for path in photo.parent.iterdir()}
    again = gpen(photo.parent, "--in-place")
    assert again.exit_code == 0
    assert "skipped 1" in again.stderr
    assert {path.name: path.read_bytes() for path in photo.parent.iterdir()} == first


def test_another_original_is_never_written_over(photo):
    (photo.parent / "photo.jpg.orig").write_bytes(b"the only copy of something else")
    before = photo.read_bytes()
    result = gpen(photo.parent, "--in-place")
    assert result.exit_code == 3
    assert "never written over" in result.stderr
    assert photo.read_bytes() == before
    assert (photo.parent / "photo.jpg.orig").read_bytes() == b"the only copy of something else"


def test_a_run_stopped_between_the_two_steps_is_completed(photo):
    before = photo.read_bytes()
    (photo.parent / "photo.jpg.orig").write_bytes(before)
    assert gpen(photo.parent, "--in-place").exit_code == 0
    assert (photo.parent / "photo.jpg.orig").read_bytes() == before
    assert photo.read_bytes() != before


def test_a_failing_write_leaves_the_photo(photo, monkeypatch):
    before = photo.read_bytes()

    def full(*_, **__):
        raise OutputError("the disk is full")

    monkeypatch.setattr(delivery, "write_atomically", full)
    assert gpen(photo.parent, "--in-place").exit_code == 6
    assert photo.read_bytes() == before


@pytest.mark.skipif(os.name != "posix", reason="links are POSIX's")
@pytest.mark.parametrize("more", [[], ["--strip-metadata"]])
def test_a_linked_photo_is_done_once_and_what_it_points_to_stays(photo, tmp_path, more):
    real = tmp_path / "real.jpg"
    before = photo.read_bytes()
    photo.rename(real)
    photo.symlink_to(real)
    assert gpen(photo.parent, "--in-place", *more).exit_code == 0
    assert real.read_bytes() == before
    assert (photo.parent / "photo.jpg.orig").read_bytes() == before
    first = photo.read_bytes()
    again = gpen(photo.parent, "--in-place", *more)
    assert again.exit_code == 0, again.stderr
    assert "skipped 1" in again.stderr
    assert photo.read_bytes() == first


def test_without_links_a_copy_is_kept(photo, monkeypatch):
    before = photo.read_bytes()

    def no_links(*_):
        raise OSError("not supported")

    monkeypatch.setattr(delivery.os, "link", no_links)
    assert gpen(photo.parent, "--in-place").exit_code == 0
    assert (photo.parent / "photo.jpg.orig").read_bytes() == before
    assert names(photo) == ["photo.jpg", "photo.jpg.orig"]


def test_a_photo_without_a_face_is_left_untouched(photo):
    """Writing a JPEG again would only cost quality."""
    plain = photo.parent / "wall.jpg"
    Image.new("RGB", (120, 90), "green").save(plain, quality=60)
    before = plain.read_bytes()
    assert gpen(photo.parent, "--in-place").exit_code == 0
    assert plain.read_bytes() == before
    assert "wall.jpg.orig" not in names(photo)


@pytest.mark.parametrize("extra", [["--format", "png"], ["--upscale", "2"]])
def test_what_contradicts_it_is_refused(photo, extra):
    before = names(photo)
    result = gpen(photo.parent, "--in-place", *extra)
    assert result.exit_code == 2
    assert names(photo) == before


def test_another_output_folder_contradicts_it(photo, tmp_path):
    assert gpen(photo.parent, tmp_path / "out", "--in-place").exit_code == 2
    assert not (tmp_path / "out").exists()


def test_the_same_folder_twice_names_the_flag(photo):
    result = gpen(photo.parent, photo.parent)
    assert result.exit_code == 2
    assert "--in-place" in result.stderr


def test_no_output_folder(photo):
    result = gpen(photo.parent)
    assert result.exit_code == 2
    assert "No output folder" in result.stderr


def test_no_face_fail_holds_here_too(photo):
    Image.new("RGB", (120, 90), "green").save(photo.parent / "wall.jpg")
    result = gpen(photo.parent, "--in-place", "--no-face", "fail")
    assert result.exit_code == 7
    assert "wall.jpg" in result.stderr
