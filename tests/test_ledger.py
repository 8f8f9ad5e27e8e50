"""A run that was stopped anywhere is completed by ``--resume`` to the bytes of an undisturbed one; nothing is trusted unseen."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from stand_ins import CPU
from typer.testing import CliRunner

from gpen_cli.cli.main import app
from gpen_cli.data import Job, Outcome
from gpen_cli.ledger import MANIFEST, Ledger, fingerprint
from gpen_cli.options import ComposeOptions, NetOptions, Options, RunOptions
from gpen_cli.photos.temporary import remove_leftovers, temporary_beside

TESTS = Path(__file__).resolve().parent


@pytest.fixture
def done(tmp_path) -> tuple[Job, Outcome, Path]:
    """A finished photo in an output folder."""
    source, out = tmp_path / "in.jpg", tmp_path / "out"
    source.write_bytes(b"photo")
    out.mkdir()
    (out / "r.png").write_bytes(b"result")
    job = Job(str(source), out / "r.png", "in.jpg")
    info = source.stat()
    import hashlib

    digest = hashlib.sha256(b"result").hexdigest()
    outcome = Outcome(job, "done", output_bytes=6, output_sha256=digest, source_stamp=(info.st_size, info.st_mtime_ns))
    with Ledger(out) as ledger:
        ledger.begin(CPU)
        ledger.add(outcome, "mark")
    return job, outcome, out


def is_done(out: Path, job: Job, mark: str = "mark") -> bool:
    with Ledger(out) as ledger:
        return ledger.is_done(job, mark)


class TestIsDone:
    def test_what_was_finished(self, done):
        job, _, out = done
        assert is_done(out, job)

    def test_the_setup_is_remembered(self, done):
        with Ledger(done[2]) as ledger:
            assert ledger.setup == CPU

    def test_not_with_other_options(self, done):
        assert not is_done(done[2], done[0], "other")

    def test_not_when_the_result_is_gone_or_damaged(self, done):
        job, _, out = done
        assert job.target is not None
        job.target.write_bytes(b"resulT")
        assert not is_done(out, job)
        job.target.unlink()
        assert not is_done(out, job)

    def test_not_when_the_photo_changed(self, done):
        job, _, out = done
        Path(job.source).write_bytes(b"another")
        assert not is_done(out, job)

    def test_not_when_it_goes_elsewhere_now(self, done):
        job, _, out = done
        assert not is_done(out, dataclasses.replace(job, target=out / "other.png"))

    def test_failures_are_not_written_down(self, done):
        job, outcome, out = done
        with Ledger(out) as ledger:
            ledger.add(dataclasses.replace(outcome, status="failed", job=dataclasses.replace(job, name="x")), "mark")
        assert not is_done(out, dataclasses.replace(job, name="x"))

    @pytest.mark.parametrize("tail", [b'{"version": 1, "sour', b"\xff\xfe\x00", b"[1, 2]\n", b'{"version": 99}\n'])
    def test_a_torn_or_foreign_line_is_passed_over(self, done, tail):
        job, outcome, out = done
        with (out / MANIFEST).open("ab") as file:
            file.write(tail)
        assert is_done(out, job)
        with Ledger(out) as ledger:  # and the next line is not swallowed
            ledger.add(dataclasses.replace(outcome, job=dataclasses.replace(job, name="b.jpg")), "mark")
        assert is_done(out, dataclasses.replace(job, name="b.jpg"))

    def test_names_that_are_not_utf8_survive(self, tmp_path):
        job = Job(os.fsdecode(b"caf\xe9.jpg"), tmp_path / os.fsdecode(b"caf\xe9.png"), os.fsdecode(b"caf\xe9.jpg"))
        with Ledger(tmp_path) as ledger:
            ledger.add(Outcome(job, "done", output_bytes=1, output_sha256="x", source_stamp=(1, 1)), "m")
        with Ledger(tmp_path) as ledger:
            assert not ledger.is_done(job, "m")  # the file is not there, and that is found out without an error


class TestFingerprint:
    plain = Options()

    @pytest.mark.parametrize(
        "other",
        [
            Options(compose=ComposeOptions(fidelity_weight=0.5)),
            Options(compose=ComposeOptions(upscale=1.0)),
            Options(run=RunOptions(no_face="skip")),
            Options(run=RunOptions(aligned=True)),
        ],
    )
    def test_what_changes_the_bytes_changes_it(self, other):
        assert fingerprint(other, CPU, "net") != fingerprint(self.plain, CPU, "net")

    def test_so_do_setup_and_nets(self):
        assert fingerprint(self.plain, dataclasses.replace(CPU, precision="bf16"), "net") != fingerprint(
            self.plain, CPU, "net"
        )
        assert fingerprint(self.plain, CPU, "other") != fingerprint(self.plain, CPU, "net")

    @pytest.mark.parametrize(
        "other", [Options(run=RunOptions(workers=7, overwrite=True)), Options(net=NetOptions(batch_size=9))]
    )
    def test_what_only_says_how_the_run_goes_does_not(self, other):
        assert fingerprint(other, CPU, "net") == fingerprint(self.plain, CPU, "net")


class TestLeftovers:
    def test_a_killed_runs_are_removed_and_a_living_runs_stay(self, tmp_path):
        mine = temporary_beside(tmp_path / "a.png")
        mine.write_bytes(b"half")
        code = (
            "from pathlib import Path\nfrom gpen_cli.photos.temporary import temporary_beside\n"
            f"temporary_beside(Path({str(tmp_path / 'x')!r})).touch()"
        )
        subprocess.run([sys.executable, "-c", code], check=True)
        assert len(list(tmp_path.iterdir())) == 2
        assert remove_leftovers([tmp_path]) == 1
        assert list(tmp_path.iterdir()) == [mine]

    def test_another_machines_stay_for_a_day(self, tmp_path):
        path = tmp_path / ".gpen-01234567-1-89abcdef.tmp"
        path.touch()
        assert remove_leftovers([tmp_path]) == 0
        os.utime(path, (time.time() - 90_000,) * 2)
        assert remove_leftovers([tmp_path]) == 1

    def test_foreign_files_are_never_touched(self, tmp_path):
        for name in (".gpen-notes.tmp", "x.tmp", ".gpen-manifest.jsonl"):
            (tmp_path / name).touch()
        assert remove_leftovers([tmp_path]) == 0


class TestResume:
    def gpen(self, *arguments: object):
        return CliRunner().invoke(app, ["batch", *map(str, arguments)])

    @pytest.fixture
    def photos(self, tmp_path) -> Path:
        folder = tmp_path / "in"
        folder.mkdir()
        for index in range(6):
            Image.new("RGB", (50 + index, 40), (30 * index, 90, 120)).save(folder / f"{index}.png")
        return folder

    def test_only_what_is_missing_changed_or_broken_is_done_again(self, photos, tmp_path):
        out = tmp_path / "out"
        assert self.gpen(photos, out).exit_code == 0
        whole = {path.name: path.read_bytes() for path in out.glob("*.png")}
        (out / "1_enhanced.png").unlink()
        (out / "2_enhanced.png").write_bytes(whole["2_enhanced.png"][:-20])
        Image.new("RGB", (77, 40), "red").save(photos / "3.png")
        result = self.gpen(photos, out, "--resume")
        assert result.exit_code == 0, result.stderr
        assert "resuming: 3 of 6" in result.stderr
        assert "failed 0, done before 3;" in result.stderr
        assert sorted(Path(line).name[0] for line in result.stdout.splitlines()) == ["1", "2", "3"]
        now = {path.name: path.read_bytes() for path in out.glob("*.png")}
        assert now.pop("3_enhanced.png") != whole.pop("3_enhanced.png")
        assert now == whole

    def test_other_options_do_all_again(self, photos, tmp_path):
        assert self.gpen(photos, tmp_path / "out").exit_code == 0
        assert "resuming: 0 of 6" in self.gpen(photos, tmp_path / "out", "--resume", "--upscale", "3").stderr
        assert "resuming: 6 of 6" in self.gpen(photos, tmp_path / "out", "--resume", "--upscale", "3").stderr

    def test_fail_fast_and_max_failures(self, photos, tmp_path):
        for index in range(6):
            (photos / f"{index}.png").write_bytes(b"")
        fast = self.gpen(photos, tmp_path / "out", "--fail-fast", "--workers", 1)
        assert fast.exit_code == 7
        assert "stopped after 1" in fast.stderr
        some = self.gpen(photos, tmp_path / "out", "--max-failures", 3, "--workers", 1)
        assert some.exit_code == 7
        assert "stopped after 3" in some.stderr

    def test_keep_mtime_and_strip_metadata(self, photos, tmp_path):
        exif = Image.Exif()
        exif[271] = "ACME"
        Image.new("RGB", (50, 40)).save(photos / "0.jpg", exif=exif)
        os.utime(photos / "0.jpg", (10**9, 10**9))
        assert self.gpen(photos, tmp_path / "out", "--keep-mtime", "--strip-metadata", "--format", "jpg").exit_code == 0
        result = tmp_path / "out" / "0.jpg_enhanced.jpg"
        assert result.stat().st_mtime == 10**9
        with Image.open(result) as picture:
            assert not picture.getexif()
            assert "xmp" not in picture.info

    def test_a_run_killed_anywhere_is_completed_to_the_same_bytes(self, tmp_path):
        """SIGKILL at random moments, with a stand-in net so that a run starts fast; then one resume."""
        photos, whole, out = tmp_path / "in", tmp_path / "whole", tmp_path / "out"
        photos.mkdir()
        rng = np.random.RandomState(0)
        for index in range(24):
            Image.fromarray(rng.randint(0, 255, (90, 110, 3), np.uint8)).save(photos / f"{index}.png")
        program = tmp_path / "run.py"
        program.write_text(
            textwrap.dedent(
                f"""
                import sys
                sys.path.insert(0, {str(TESTS)!r})
                import gpen_cli.engine as engine
                from stand_ins import StandInNet, engine_of
                from test_pipeline import OneFaceEach, brighter
                engine.build_engine = lambda options, **how: engine_of(StandInNet(brighter), detector=OneFaceEach())
                engine.engine_mark = lambda engine: "stand-in"
                from gpen_cli.cli.main import run
                run()
                """
            )
        )

        def start(target: Path) -> subprocess.Popen:
            arguments = [sys.executable, str(program), "batch", str(photos), str(target), "--resume"]
            return subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

        begin = time.monotonic()
        assert start(whole).wait(60) == 0
        alone = time.monotonic() - begin
        for _ in range(8):
            process = start(out)
            time.sleep(alone * (0.3 + 0.6 * rng.rand()))
            process.kill()
            process.communicate()
            for path in out.glob("*.png") if out.exists() else ():
                Image.open(path).load()  # never torn
        last = start(out)
        _, errors = last.communicate(timeout=60)
        assert last.returncode == 0, errors
        results = [
            {path.name: path.read_bytes() for path in folder.iterdir() if path.name != MANIFEST}
            for folder in (whole, out)
        ]
        assert results[0] == results[1]
        lines = (out / MANIFEST).read_text().splitlines()
        assert len([line for line in lines if '"source"' in line and json.loads(line)["source"]]) >= 24
