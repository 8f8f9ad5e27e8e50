"""Runs that meet themselves again: results without our mark, results among the photos, full disks, folders that are watched."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections import namedtuple
from pathlib import Path

import pytest
from PIL import Image
from stand_ins import StandInNet, engine_of
from test_pipeline import OneFaceEach, brighter
from typer.testing import CliRunner

from gpen_cli import delivery, space
from gpen_cli.cli.main import app
from gpen_cli.data import Job
from gpen_cli.errors import OutputError
from gpen_cli.ledger import Ledger
from gpen_cli.options import ComposeOptions, Options, RunOptions
from gpen_cli.photos.metadata import digest_of, made_from
from gpen_cli.space import bytes_needed, space_warning
from gpen_cli.watch import PATIENCE, Watcher

TESTS = Path(__file__).resolve().parent


@pytest.fixture(autouse=True)
def stand_in_engine(monkeypatch):
    """The whole command with a net and a detector that cost nothing."""
    monkeypatch.setattr(
        "gpen_cli.engine.build_engine",
        lambda options, **how: engine_of(StandInNet(brighter), detector=OneFaceEach()),
    )
    monkeypatch.setattr("gpen_cli.engine.engine_mark", lambda engine: "stand-in")


def gpen(*arguments: object):
    return CliRunner().invoke(app, ["batch", *map(str, arguments)])


@pytest.fixture
def photos(tmp_path) -> Path:
    folder = tmp_path / "in"
    folder.mkdir()
    for index in range(3):
        Image.new("RGB", (90 + index, 80), (60 * index, 90, 120)).save(folder / f"{index}.png")
    return folder


class TestResultsWithoutOurMark:
    """BMP holds no metadata, --strip-metadata leaves it out: the manifest knows those results."""

    @pytest.mark.parametrize("flags", [("--format", "bmp"), ("--strip-metadata",)])
    def test_a_second_run_replaces_them(self, photos, tmp_path, flags):
        out = tmp_path / "out"
        assert gpen(photos, out, *flags).exit_code == 0
        again = gpen(photos, out, *flags)
        assert again.exit_code == 0, again.stderr
        assert len(again.stdout.splitlines()) == 3

    def test_resume_does_what_changed(self, photos, tmp_path):
        out = tmp_path / "out"
        assert gpen(photos, out, "--strip-metadata").exit_code == 0
        Image.new("RGB", (50, 50), "red").save(photos / "1.png")
        again = gpen(photos, out, "--strip-metadata", "--resume")
        assert again.exit_code == 0, again.stderr
        assert [Path(line).name for line in again.stdout.splitlines()] == ["1_enhanced.png"]

    def test_one_that_was_edited_since_stays(self, photos, tmp_path):
        out = tmp_path / "out"
        assert gpen(photos, out, "--strip-metadata").exit_code == 0
        Image.new("RGB", (9, 9), "green").save(out / "1_enhanced.png")
        edited = (out / "1_enhanced.png").read_bytes()
        again = gpen(photos, out, "--strip-metadata")
        assert again.exit_code == 7
        assert "1_enhanced.png exists and is not known to be gpen's" in again.stderr
        assert (out / "1_enhanced.png").read_bytes() == edited

    def test_known_from_before_it_takes_its_name(self, tmp_path):
        """A run killed between the result's rename and its line in the manifest."""
        job = Job(str(tmp_path / "a.jpg"), tmp_path / "a.bmp", "a.jpg")
        with Ledger(tmp_path) as ledger:
            ledger.announce(job, hashlib.sha256(b"result").hexdigest())
            assert not ledger.made(job), "it is not there yet"
        (tmp_path / "a.bmp").write_bytes(b"result")
        with Ledger(tmp_path) as ledger:
            assert ledger.made(job)
            assert not ledger.made(Job(str(tmp_path / "other" / "a.jpg"), tmp_path / "a.bmp", "a.jpg"))
            assert not ledger.made(Job(str(tmp_path / "a.jpg"), tmp_path / "b.bmp", "a.jpg"))
        (tmp_path / "a.bmp").write_bytes(b"edited")
        with Ledger(tmp_path) as ledger:
            assert not ledger.made(job)


class TestOurOwnResults:
    def test_among_the_photos_are_left_out_and_told(self, photos, tmp_path):
        assert gpen(photos, tmp_path / "first").exit_code == 0
        shutil.copy(tmp_path / "first" / "1_enhanced.png", photos / "holiday.png")
        result = gpen(photos, tmp_path / "out")
        assert result.exit_code == 0
        assert "holiday.png was made by gpen, so it is left out" in result.stderr
        assert "skipped 1" in result.stderr
        assert sorted(path.name for path in (tmp_path / "out").glob("*.png")) == [
            "0_enhanced.png", "1_enhanced.png", "2_enhanced.png",
        ]  # fmt: skip

    def test_are_taken_when_asked_for(self, photos, tmp_path):
        assert gpen(photos, tmp_path / "first").exit_code == 0
        result = gpen(tmp_path / "first", tmp_path / "out", "--include-results")
        assert result.exit_code == 0
        assert len(result.stdout.splitlines()) == 3


class TestWhatCannotBeSeen:
    @pytest.mark.parametrize("more", [[], ["-q"]])
    def test_a_run_that_may_miss_photos_does_not_end_with_0(self, photos, tmp_path, more):
        (photos / "lost.jpg").symlink_to(tmp_path / "nowhere.jpg")
        result = gpen(photos, tmp_path / "out", *more)
        assert result.exit_code == 7
        assert len(result.stdout.splitlines()) == 3, "the others are done"
        assert "lost.jpg is a link to what cannot be read" in result.stderr
        assert "1 folder(s) or link(s)" in result.stderr.splitlines()[-1]

    def test_nor_does_the_old_script(self, photos, tmp_path, monkeypatch):
        from gpen_cli.cli.old_script import main

        monkeypatch.chdir(tmp_path)
        (photos / "lost.jpg").symlink_to(tmp_path / "nowhere.jpg")
        assert main(["-i", str(photos), "-o", str(tmp_path / "out")]) == 7
        assert main(["-i", str(photos), "-o", str(photos)]) == 2


class TestFullDisk:
    def test_the_photo_that_met_it_has_its_line(self, photos, tmp_path, monkeypatch):
        write = delivery.write_atomically

        def full(target, data, **_):
            if target.name.startswith("1"):
                raise OutputError(f"{target} cannot be written: No space left on device; free some space.")
            write(target, data)

        monkeypatch.setattr(delivery, "write_atomically", full)
        report = tmp_path / "r.jsonl"
        result = gpen(photos, tmp_path / "out", "--report", report, "--workers", 1)
        assert result.exit_code == 6
        assert result.stderr.count("No space left") == 2  # the summary's list, and the sentence the run ends with
        lines = {Path(line["source"]).name: line for line in map(json.loads, report.read_text().splitlines())}
        assert lines["0.png"]["status"] == "done"
        assert lines["1.png"]["status"] == "failed"
        assert "No space left" in lines["1.png"]["error"]

    def test_is_foreseen(self, photos, tmp_path, monkeypatch):
        usage = namedtuple("usage", "total used free")
        monkeypatch.setattr(space.shutil, "disk_usage", lambda path: usage(10**9, 10**9, 1000))
        result = gpen(photos, tmp_path / "out")
        assert result.exit_code == 0
        assert "will be written to" in result.stderr
        assert "0.0 MB are free" in result.stderr


class TestSpace:
    def jobs(self, photos, suffix=".png", count=3):
        return [Job(str(photos / f"{i % 3}.png"), photos / f"{i}{suffix}", f"{i}.png") for i in range(count)]

    def test_the_guess_grows_with_scale_and_number(self, photos):
        once = bytes_needed(self.jobs(photos), Options(compose=ComposeOptions(upscale=1.0)))
        twice = bytes_needed(self.jobs(photos), Options(compose=ComposeOptions(upscale=2.0)))
        assert once is not None
        assert twice == pytest.approx(4 * once)
        assert once == pytest.approx(1.3 * 80 * (90 + 91 + 92))
        many = bytes_needed(self.jobs(photos, count=300), Options(compose=ComposeOptions(upscale=1.0)))
        assert many == pytest.approx(100 * once, rel=0.02)

    def test_formats_and_comparisons_count(self, photos):
        plain = bytes_needed(self.jobs(photos), Options())
        assert bytes_needed(self.jobs(photos, ".jpg"), Options()) < plain / 3
        assert bytes_needed(self.jobs(photos), Options(run=RunOptions(compare=True))) == pytest.approx(3 * plain)

    def test_what_cannot_be_read_is_no_reason_to_stop(self, tmp_path):
        jobs = [Job(str(tmp_path / "gone.png"), tmp_path / "x.png", "gone.png"), Job("https://x.example/a", None, "a")]
        assert bytes_needed(jobs, Options()) is None
        assert space_warning(jobs, Options()) is None


class TestWatcher:
    @pytest.fixture
    def folder(self, tmp_path) -> Path:
        folder = tmp_path / "watched"
        folder.mkdir()
        return folder

    def whole(self, path: Path, colour="red") -> bytes:
        Image.new("RGB", (40, 30), colour).save(path)
        return path.read_bytes()

    def test_a_file_is_taken_once_when_it_has_come_to_rest(self, folder):
        watcher = Watcher(folder)
        self.whole(folder / "a.png")
        assert watcher.look() == []
        assert watcher.look() == [Path("a.png")]
        assert watcher.look() == []

    def test_again_when_it_changes(self, folder):
        watcher = Watcher(folder)
        self.whole(folder / "a.png")
        watcher.look(), watcher.look()
        self.whole(folder / "a.png", "blue")
        os.utime(folder / "a.png", (10**9, 10**9))
        assert [watcher.look(), watcher.look(), watcher.look()] == [[], [Path("a.png")], []]

    def test_a_copy_that_pauses_is_waited_for(self, folder):
        now = [0.0]
        watcher = Watcher(folder, clock=lambda: now[0])
        data = self.whole(folder / "a.png")
        (folder / "a.png").write_bytes(data[: len(data) // 2])
        for _ in range(5):
            now[0] += 1
            assert watcher.look() == []
        (folder / "a.png").write_bytes(data)
        now[0] += 1
        assert watcher.look() == []
        now[0] += 1
        assert watcher.look() == [Path("a.png")]

    def test_but_not_for_ever(self, folder):
        now = [0.0]
        watcher = Watcher(folder, clock=lambda: now[0])
        data = self.whole(folder / "a.png")
        (folder / "a.png").write_bytes(data[:-30])
        assert watcher.look() == []
        now[0] += PATIENCE
        assert watcher.look() == [Path("a.png")]

    def test_what_is_waited_for_can_be_told(self, folder):
        watcher = Watcher(folder)
        data = self.whole(folder / "a.png")
        (folder / "cut.png").write_bytes(data[:-30])
        assert watcher.waiting() == []
        watcher.look()
        watcher.look()
        assert watcher.waiting() == [Path("cut.png")]

    def test_a_file_that_goes_away_is_forgotten(self, folder):
        watcher = Watcher(folder)
        self.whole(folder / "a.png")
        watcher.look()
        (folder / "a.png").unlink()
        assert watcher.look() == []
        self.whole(folder / "a.png")
        assert [watcher.look(), watcher.look()] == [[], [Path("a.png")]]


class TestWatch:
    def test_photos_are_restored_as_they_come_until_ctrl_c(self, tmp_path):
        """The real command in a child: two photos there, one more later, of a name that collides; then Ctrl-C."""
        program = tmp_path / "run.py"
        program.write_text(
            textwrap.dedent(
                f"""
                import sys
                sys.path.insert(0, {str(TESTS)!r})
                import gpen_cli.engine as engine
                import gpen_cli.watch as watch
                from stand_ins import StandInNet, engine_of
                from test_pipeline import OneFaceEach, brighter
                watch.INTERVAL = 0.05
                engine.build_engine = lambda options, **how: engine_of(StandInNet(brighter), detector=OneFaceEach())
                engine.engine_mark = lambda engine: "stand-in"
                from gpen_cli.cli.main import run
                run()
                """
            )
        )
        photos, out = tmp_path / "in", tmp_path / "out"
        photos.mkdir()
        (photos / "half.png").write_bytes(b"\x89PNG\r\n\x1a\n half of it")
        Image.new("RGB", (90, 80), "gray").save(photos / "a.jpg")
        Image.new("RGB", (90, 80), "gray").save(photos / "b.jpg")
        arguments = [sys.executable, str(program), "batch", str(photos), str(out), "--watch"]
        process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            self.wait_for(out / "b_enhanced.png")
            Image.new("RGB", (90, 80), "blue").save(photos / "a.png")
            self.wait_for(out / "a.png_enhanced.png")
        finally:
            process.send_signal(signal.SIGINT)
            told, errors = process.communicate(timeout=30)
        assert process.returncode == 130, errors
        assert sorted(path.name for path in out.glob("*.png")) == [
            "a.png_enhanced.png", "a_enhanced.png", "b_enhanced.png",
        ]  # fmt: skip
        assert "watching" in errors
        assert "done 3" in errors
        assert "1 file(s) were not complete yet and are not done: half.png" in errors
        assert len(told.splitlines()) == 3

    def test_an_output_folder_that_is_gone_is_told(self, photos, tmp_path, monkeypatch):
        out = tmp_path / "out"
        monkeypatch.setattr("gpen_cli.watch.INTERVAL", 0.01)
        look = Watcher.look

        def look_and_remove(watcher):
            ready = look(watcher)
            if (out / "2_enhanced.png").exists():
                shutil.rmtree(out)
            return ready

        monkeypatch.setattr(Watcher, "look", look_and_remove)
        result = gpen(photos, out, "--watch")
        assert result.exit_code == 6
        assert "is gone" in result.stderr

    def test_two_runs_into_one_folder_are_told(self, tmp_path, caplog):
        job = Job(str(tmp_path / "a.jpg"), tmp_path / "a.bmp", "a.jpg")
        with Ledger(tmp_path) as first, Ledger(tmp_path) as second:
            first.announce(job, "0" * 64)
            assert "another gpen" not in caplog.text
            second.announce(job, "1" * 64)
            assert "another gpen is writing into" in caplog.text

    def wait_for(self, path: Path) -> None:
        deadline = time.monotonic() + 30
        while not path.exists():
            assert time.monotonic() < deadline, f"{path} did not come"
            time.sleep(0.05)

    def test_it_does_not_go_with_in_place_or_dry_run(self, photos, tmp_path):
        for flags in (("--in-place",), (tmp_path / "out", "--dry-run")):
            result = gpen(photos, *flags, "--watch")
            assert result.exit_code == 2
            assert "--watch needs an OUTPUT folder" in result.stderr

    def test_no_thread_is_left(self):
        assert not [thread for thread in threading.enumerate() if thread.name.startswith("gpen-")]


class TestResultsOfOtherPhotos:
    """A result is replaced by a result of the same photo, and by no other's."""

    @pytest.fixture
    def twins(self, tmp_path) -> tuple[Path, Path]:
        paths = tmp_path / "x" / "img.jpg", tmp_path / "y" / "img.jpg"
        for path, colour in zip(paths, ("red", "blue"), strict=True):
            path.parent.mkdir()
            Image.new("RGB", (90, 80), colour).save(path)
        return paths

    def enhance(self, *arguments: object):
        return CliRunner().invoke(app, ["enhance", *map(str, arguments)])

    def test_of_the_same_name_in_one_folder_stays(self, twins, tmp_path):
        out = tmp_path / "out"
        assert self.enhance(twins[0], "--output-dir", out).exit_code == 0
        first = (out / "img_enhanced.png").read_bytes()
        second = self.enhance(twins[1], "--output-dir", out)
        assert second.exit_code == 3
        assert "is the result of another photo" in second.stderr
        assert (out / "img_enhanced.png").read_bytes() == first
        assert self.enhance(twins[1], "--output-dir", out, "--overwrite").exit_code == 0
        assert (out / "img_enhanced.png").read_bytes() != first

    @pytest.mark.parametrize("suffix", ["png", "jpg", "webp", "tiff"])
    def test_the_same_photo_is_done_again_wherever_it_lies(self, twins, tmp_path, suffix):
        out = tmp_path / "out"
        flags = ("--output-dir", out, "--format", suffix)
        assert self.enhance(twins[0], *flags).exit_code == 0
        shutil.copy(twins[0], twins[1])
        assert self.enhance(twins[1], *flags).exit_code == 0

    def test_beside_its_photo_a_result_follows_the_photos_changes(self, twins):
        assert self.enhance(twins[0]).exit_code == 0
        Image.new("RGB", (90, 80), "green").save(twins[0])
        assert self.enhance(twins[0]).exit_code == 0

    def test_so_it_does_in_the_folder_of_a_batch(self, photos, tmp_path):
        assert gpen(photos, tmp_path / "out").exit_code == 0
        Image.new("RGB", (50, 50), "red").save(photos / "1.png")
        assert gpen(photos, tmp_path / "out").exit_code == 0

    def test_two_batches_into_one_folder_keep_both_results_or_say_so(self, twins, tmp_path):
        out = tmp_path / "out"
        assert gpen(twins[0].parent, out).exit_code == 0
        first = (out / "img_enhanced.png").read_bytes()
        second = gpen(twins[1].parent, out)
        assert second.exit_code == 3
        assert "is the result of another photo" in second.stderr
        assert (out / "img_enhanced.png").read_bytes() == first

    def test_stripped_results_carry_no_mark_and_are_not_taken_for_this_photos(self, twins, tmp_path):
        flags = ("-o", tmp_path / "e.png", "--strip-metadata")
        assert self.enhance(twins[0], *flags).exit_code == 0
        first = (tmp_path / "e.png").read_bytes()
        assert b"gpen" not in first
        second = self.enhance(twins[1], *flags)
        assert second.exit_code == 3
        assert "is not known to be gpen's result" in second.stderr
        assert (tmp_path / "e.png").read_bytes() == first

    def test_a_result_of_a_result_names_its_own_photo_once(self, twins, tmp_path):
        assert self.enhance(twins[0], "-o", tmp_path / "one.png").exit_code == 0
        assert self.enhance(tmp_path / "one.png", "-o", tmp_path / "two.png").exit_code == 0
        data = (tmp_path / "two.png").read_bytes()
        assert data.count(b"gpen:MadeFrom") == 1
        assert made_from(data) == digest_of((tmp_path / "one.png").read_bytes())
