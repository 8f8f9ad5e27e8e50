"""The command line as a person and a script see it: words, streams, exit codes. Runs the real program."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from gpen_cli.cli.main import app

ROOT = Path(__file__).resolve().parent.parent
HEAVY = ("torch", "cv2", "onnxruntime", "numpy", "PIL", "facexlib")


class Result(NamedTuple):
    returncode: int
    stdout: bytes
    stderr: bytes


def gpen(*arguments: str | Path, stdin: bytes | None = None) -> Result:
    """The command in this process: what a new one would do, without its three seconds of imports."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], input=stdin)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Result(result.exit_code, result.stdout_bytes, result.stderr_bytes)


def gpen_process(*arguments: str | Path, stdin: bytes | None = None) -> Result:
    """The command as a person starts it."""
    done = subprocess.run(
        [sys.executable, "-m", "gpen_cli", *map(str, arguments)],
        cwd=ROOT, input=stdin, capture_output=True, timeout=120, check=False,
    )  # fmt: skip
    return Result(done.returncode, done.stdout, done.stderr)


def error_of(result: Result) -> str:
    text = result.stderr.decode()
    assert "Traceback" not in text, text
    return " ".join(text.split())


class TestHelp:
    def test_help_imports_nothing_heavy(self):
        code = (
            "import sys\nfrom typer.testing import CliRunner\nfrom gpen_cli.cli.main import app\n"
            "result = CliRunner().invoke(app, ['--help'])\nassert result.exit_code == 0, result.output\n"
            f"print([name for name in {HEAVY!r} if name in sys.modules])"
        )
        result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
        assert result.stdout.strip() == "[]"

    @pytest.mark.parametrize("command", [[], ["enhance"], ["batch"], ["models"], ["models", "list"]])
    def test_every_command_explains_itself(self, command):
        result = gpen(*command, "--help")
        assert result.returncode == 0
        assert b"Usage" in result.stdout

    def test_version(self):
        from gpen_cli import __version__

        assert gpen("--version").stdout.decode().strip() == f"gpen {__version__}"


class TestEnhance:
    def test_the_result_lies_beside_the_photo_and_its_path_alone_on_stdout(self, photo):
        before = photo.read_bytes()
        result = gpen("enhance", "-i", photo, "--auto-name")
        target = photo.with_name("photo_enhanced.png")
        assert result.returncode == 0, result.stderr
        assert result.stdout.decode() == f"{target}\n"
        assert Image.open(target).size == (480, 480)
        assert photo.read_bytes() == before

    def test_the_log_names_everything_in_order(self, photo):
        text = gpen("enhance", photo).stderr.decode()
        places = [
            text.index(part)
            for part in ("net:", "detector:", "photo:", "faces:", "crops:", "post-processing:", "output:")
        ]
        assert places == sorted(places)
        for part in (
            "gpen-open-256",
            "licence",
            "device cpu",
            "retinaface-mobile",
            "240x240",
            "1 restored",
            "480x480",
            "bytes",
        ):
            assert part in text

    def test_debug_adds_the_times_of_each_stage(self, photo):
        text = gpen("enhance", photo, "--log-level", "debug").stderr.decode()
        for stage in ("decode", "detect", "align", "restore", "compose", "encode"):
            assert f"{stage} " in text
        assert "p95" in text

    def test_the_log_file_has_it_too(self, photo, tmp_path):
        gpen("enhance", photo, "--log-file", tmp_path / "run.log", "--quiet")
        gpen("enhance", tmp_path / "none.jpg", "--log-file", tmp_path / "run.log", "--quiet")
        assert "does not exist" in (tmp_path / "run.log").read_text()

    def test_several_photos_go_to_a_folder(self, photo, tmp_path):
        other = photo.with_name("other.png")
        Image.open(photo).save(other)
        result = gpen("enhance", photo, "-i", other, "-o", tmp_path / "out")
        assert result.returncode == 0
        assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
            "other_enhanced.png",
            "photo_enhanced.png",
        ]

    @pytest.mark.parametrize("suffix", [".png", ".jpg", ".webp", ".bmp", ".tiff"])
    def test_the_results_suffix_decides_its_format(self, photo, tmp_path, suffix):
        target = tmp_path / f"r{suffix}"
        assert gpen("enhance", photo, "-o", target, "--upscale", "1").returncode == 0
        with Image.open(target) as picture:
            assert picture.size == (240, 240)
            assert picture.format == {".jpg": "JPEG"}.get(suffix, suffix[1:].upper())

    def test_pipes(self, photo):
        result = gpen_process("enhance", "-", stdin=photo.read_bytes())
        assert result.returncode == 0
        assert result.stdout.startswith(b"\x89PNG")
        assert result.stdout == gpen_process("enhance", photo, "-o", "-").stdout

    def test_enhance_and_batch_give_equal_bytes(self, photo, tmp_path):
        assert gpen("enhance", photo, "-o", tmp_path / "one.png").returncode == 0
        assert gpen("batch", photo.parent, tmp_path / "out").returncode == 0
        assert (tmp_path / "one.png").read_bytes() == (tmp_path / "out" / "photo_enhanced.png").read_bytes()

    def test_compare_faces_and_mask(self, photo, tmp_path):
        result = gpen(
            "enhance", photo, "-o", tmp_path / "r.png", "--compare", "--save-faces", tmp_path / "faces",
            "--debug-mask", tmp_path / "mask.png", "--report", tmp_path / "r.jsonl",
        )  # fmt: skip
        assert result.returncode == 0, result.stderr
        assert Image.open(tmp_path / "r_compare.png").width == 2 * 480 + 8
        names = sorted(path.name for path in (tmp_path / "faces").iterdir())
        assert names == ["photo_face01_crop.png", "photo_face01_restored.png"]
        mask = np.asarray(Image.open(tmp_path / "mask.png"))
        assert mask.shape == (480, 480)
        assert mask.max() == 255
        assert mask[0, 0] == 0
        (line,) = (tmp_path / "r.jsonl").read_text().splitlines()
        assert json.loads(line)["faces"][0]["decision"] == "restored"

    @pytest.mark.parametrize(
        ("flag", "one", "other"),
        [
            ("--fidelity-weight", "0", "2"), ("--upscale", "1", "3"), ("--color-fix", "lab", "none"), ("--sharpen", "0", "1"),
            ("--template", "gpen", "ffhq"), ("--precision", "fp32", "bf16"), ("--min-face", "1", "5000"),
            ("--max-face", "20", "5000"), ("--det-threshold", "0.5", "1"),
        ],
    )  # fmt: skip
    def test_each_flag_changes_the_result(self, photo, tmp_path, flag, one, other):
        results = []
        for value in (one, other):
            target = tmp_path / f"{value}.png"
            assert gpen("enhance", photo, "-o", target, flag, value, "--quiet").returncode == 0
            results.append(target.read_bytes())
        assert results[0] != results[1]


class TestErrors:
    """One sentence on stderr, the code of docs/errors.md, no traceback, nothing left behind."""

    @pytest.mark.parametrize(
        ("content", "word"), [(b"", "empty"), (b"I am text", "text file"), (None, "does not exist")]
    )
    def test_a_photo_that_cannot_be_read_is_3(self, tmp_path, content, word):
        path = tmp_path / "bad.jpg"
        if content is not None:
            path.write_bytes(content)
        result = gpen("enhance", path)
        assert result.returncode == 3
        assert word in error_of(result)
        assert "bad.jpg" in error_of(result)
        assert [item.name for item in tmp_path.iterdir()] == (["bad.jpg"] if content is not None else [])

    def test_truncated_is_3(self, photo, tmp_path):
        path = tmp_path / "cut.jpg"
        path.write_bytes(photo.read_bytes()[: photo.stat().st_size // 2])
        result = gpen("enhance", path)
        assert result.returncode == 3
        assert "cut off" in error_of(result)

    @pytest.mark.parametrize(
        "arguments",
        [
            [], ["--fidelity-weight", "3"], ["--fidelity-weight", "nan"], ["--upscale", "9"], ["--upscale", "big"],
            ["--upscale", "２"],
            ["--device", "tpu"], ["--mask", "round"], ["--model", "gpen-bfr-9000"], ["--det-threshold", "2"],
            ["--quality", "0"], ["--min-face", "50", "--max-face", "20"], ["--only-center", "--only-largest"],
            ["--overwrite", "--skip-existing"], ["-o", "x.xyz"], ["-o", "x.png", "--format", "jpg"],
            ["-o", "x.png", "--auto-name"], ["--suffix", "a/b"], ["--log-level", "loud"], ["--no-such-flag"],
        ],
    )  # fmt: skip
    def test_usage_is_2(self, photo, arguments):
        names = [] if not arguments else [str(photo)]
        result = gpen("enhance", *names, *arguments)
        assert result.returncode == 2, result.stderr
        assert len(error_of(result)) > 20
        assert list(photo.parent.iterdir()) == [photo]

    def test_a_folder_is_2_and_names_batch(self, photo):
        result = gpen("enhance", photo.parent)
        assert result.returncode == 2
        assert "gpen batch" in error_of(result)

    def test_missing_weights_are_4_and_say_where_to_get_them(self, photo):
        result = gpen("enhance", photo, "--model", "gpen-bfr-512")
        assert result.returncode == 4
        for part in ("https://", "284,085,738", "f1002c41", "non-commercial", "pretrained_models"):
            assert part in error_of(result)

    @pytest.mark.parametrize("content", [b"", b"<html>404</html>", b"PK\x03\x04 cut off"])
    def test_foreign_weights_are_4(self, photo, tmp_path, content):
        weights = tmp_path / "w.pth"
        weights.write_bytes(content)
        result = gpen("enhance", photo, "--weights", weights)
        assert result.returncode == 4
        assert "w.pth" in error_of(result)

    def test_no_cuda_is_5(self, photo, monkeypatch):
        import torch

        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
        result = gpen("enhance", photo, "--device", "cuda")
        assert result.returncode == 5
        assert "--device cpu" in error_of(result)

    @pytest.mark.skipif(os.name != "posix" or os.getuid() != 0, reason="needs another user to be refused")
    def test_an_unwritable_folder_is_6(self, photo, tmp_path):
        """As another user, since root may write anywhere: the pipeline's part, without starting a second interpreter."""
        locked = tmp_path / "locked"
        locked.mkdir(mode=0o555)
        code = (
            "import os, pathlib\nfrom gpen_cli.photos.write import write_atomically\nfrom gpen_cli.errors import OutputError\n"
            "os.setuid(65534)\ntry:\n"
            f"    write_atomically(pathlib.Path({str(locked / 'x.png')!r}), b'x')\n"
            "except OutputError as error:\n    print(error.exit_code, error)"
        )
        for parent in [locked, *locked.parents][:4]:
            parent.chmod(parent.stat().st_mode | 0o055)
        result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
        assert result.stdout.startswith("6 ")
        assert "x.png" in result.stdout
        assert list(locked.iterdir()) == []

    def test_an_output_folder_that_cannot_be_made_is_6(self, photo, tmp_path):
        (tmp_path / "file").write_text("in the way")
        result = gpen("enhance", photo, "--output-dir", tmp_path / "file" / "out")
        assert result.returncode == 6
        assert "cannot be made" in error_of(result)

    def test_one_failure_among_several_is_7_and_the_others_are_done(self, photo, tmp_path):
        bad = photo.with_name("bad.jpg")
        bad.write_bytes(b"")
        result = gpen("batch", photo.parent, tmp_path / "out")
        assert result.returncode == 7
        assert [path.name for path in (tmp_path / "out").glob("*.png")] == ["photo_enhanced.png"]
        assert "failed 1" in error_of(result)

    def test_no_face_fail_is_3(self, tmp_path):
        Image.new("RGB", (200, 150), "green").save(tmp_path / "g.png")
        assert gpen("enhance", tmp_path / "g.png", "--no-face", "fail").returncode == 3
        assert gpen("enhance", tmp_path / "g.png").returncode == 0


class TestBatch:
    @pytest.fixture
    def tree(self, tmp_path, photo) -> Path:
        root = tmp_path / "tree [2020]"
        for relative in (
            "a/img.jpg",
            "b/img.jpg",
            "same.jpg",
            "日本 語 😀.jpg",
            "UPPER.JPG",
            "-dash.jpg",
            "100%d.jpg",
            "noext",
        ):
            path = root / relative
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (60, 40), "gray").save(path, "JPEG")
        Image.new("RGB", (60, 40), "gray").save(root / "same.png")
        (root / "notes.txt").write_text("text")
        (root / ".hidden.jpg").write_bytes(b"x")
        return root

    def test_every_photo_has_its_own_result_in_its_own_folder(self, tree, tmp_path):
        out = tmp_path / "out"
        result = gpen("batch", tree, out, "--upscale", "1")
        assert result.returncode == 0, result.stderr
        names = {path.relative_to(out).as_posix() for path in out.rglob("*.png")}
        assert names == {
            "a/img_enhanced.png", "b/img_enhanced.png", "same.jpg_enhanced.png", "same.png_enhanced.png",
            "日本 語 😀_enhanced.png", "UPPER_enhanced.png", "-dash_enhanced.png", "100%d_enhanced.png", "noext_enhanced.png",
        }  # fmt: skip
        assert set(result.stdout.decode().splitlines()) == {str(out / name) for name in names}
        text = result.stderr.decode()
        assert "found 9 photos (1 files ignored)" in text
        assert "no face 9" in text
        assert "\r" not in text

    def test_exclude_and_report(self, tree, tmp_path):
        report = tmp_path / "r.jsonl"
        result = gpen("batch", tree, tmp_path / "out", "--exclude", "a/*", "--exclude", "*.png", "--report", report)
        assert result.returncode == 0
        sources = [json.loads(line)["source"] for line in report.read_text().splitlines()]
        assert len(sources) == 7
        assert not [source for source in sources if "/a/" in source or source.endswith(".png")]

    def test_a_second_run_replaces_its_own_results_and_skips_when_asked(self, tree, tmp_path):
        first = gpen("batch", tree, tmp_path / "out")
        again = gpen("batch", tree, tmp_path / "out")
        assert (first.returncode, again.returncode) == (0, 0)
        skipped = gpen("batch", tree, tmp_path / "out", "--skip-existing")
        assert "skipped 9" in skipped.stderr.decode()
        assert skipped.stdout == b""

    def test_an_output_folder_inside_the_input_is_not_an_input(self, tree):
        for _ in range(2):
            result = gpen("batch", tree, tree / "restored")
            assert result.returncode == 0
            assert "found 9 photos" in result.stderr.decode()

    @pytest.mark.parametrize(
        ("make", "word"),
        [("same", "same folder"), ("empty", "No photo"), ("file", "gpen enhance"), ("none", "not exist")],
    )
    def test_what_cannot_be_meant_is_2(self, tree, tmp_path, make, word):
        empty = tmp_path / "empty"
        empty.mkdir()
        source = {"same": tree, "empty": empty, "file": tree / "same.jpg", "none": tmp_path / "none"}[make]
        result = gpen("batch", source, tree if make == "same" else tmp_path / "out")
        assert result.returncode == 2
        assert word in error_of(result)
        assert not (tmp_path / "out").exists()

    @pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
    def test_stopping_leaves_no_half_file(self, tmp_path, number, code):
        source = tmp_path / "many"
        source.mkdir()
        for index in range(60):
            Image.fromarray(np.random.RandomState(index).randint(0, 255, (700, 900, 3), np.uint8)).save(
                source / f"{index}.png"
            )
        process = subprocess.Popen(
            [sys.executable, "-m", "gpen_cli", "batch", str(source), str(tmp_path / "out")],
            cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        assert process.stdout is not None
        process.stdout.readline()  # the first result is there
        time.sleep(0.2)
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)
        assert process.returncode == code, errors
        assert b"Traceback" not in errors
        left = sorted(path.name for path in (tmp_path / "out").iterdir() if not path.name.endswith(".png"))
        assert left == [".gpen-manifest.jsonl"]
        for path in (tmp_path / "out").glob("*.png"):
            Image.open(path).load()


def test_dry_run_writes_only_the_report(photo, tmp_path):
    result = gpen("batch", photo.parent, tmp_path / "out", "--dry-run", "--report", tmp_path / "r.jsonl")
    assert result.returncode == 0, result.stderr
    assert result.stdout == b""
    assert not (tmp_path / "out").exists()
    (line,) = (tmp_path / "r.jsonl").read_text().splitlines()
    assert [face["decision"] for face in json.loads(line)["faces"]] == ["planned"]
    told = result.stderr.decode()
    assert "faces: 1 found, 1 to be restored" in told
    assert f"would write: {tmp_path / 'out' / 'photo_enhanced.png'}" in told
    assert "nothing was written: to do 1, no face 0, skipped 0, failed 0; 1 faces to be restored" in told
    assert json.loads(line)["target"] is None


def test_dry_run_leaves_leftovers_where_they_are(photo, tmp_path):
    from gpen_cli.photos.temporary import temporary_beside

    (tmp_path / "out").mkdir()
    name = temporary_beside(tmp_path / "out" / "x.png").name
    old = tmp_path / "out" / name.replace(f"-{os.getpid()}-", "-999999999-")  # no such process
    old.touch()
    assert gpen("batch", photo.parent, tmp_path / "out", "--dry-run").returncode == 0
    assert old.exists()
    assert gpen("batch", photo.parent, tmp_path / "out").returncode == 0
    assert not old.exists()


def test_a_reader_that_goes_away_does_not_end_the_run(photo, tmp_path):
    for index in range(3):
        Image.open(photo).save(photo.with_name(f"{index}.png"))
    command = [sys.executable, "-m", "gpen_cli", "batch", str(photo.parent), str(tmp_path / "out"), "--upscale", "1"]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.close()  # as | head does
    errors = process.stderr.read() if process.stderr else b""
    assert process.wait(60) == 0, errors
    assert b"Traceback" not in errors
    assert len(list((tmp_path / "out").glob("*.png"))) == 4


def test_a_pipe_is_no_target(photo, tmp_path):
    os.mkfifo(tmp_path / "pipe.png")
    result = gpen("enhance", photo, "-o", tmp_path / "pipe.png")
    assert result.returncode == 3
    assert "pipe" in error_of(result)


def test_a_second_interrupt_ends_at_once_whatever_is_waited_for(tmp_path):
    os.mkfifo(tmp_path / "never.jpg")  # reading it waits for ever
    command = [sys.executable, "-m", "gpen_cli", "enhance", str(tmp_path / "never.jpg")]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stderr is not None
    while b"detector" not in process.stderr.readline():
        pass
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 130


class TestModels:
    def test_list_names_every_net(self):
        from gpen_cli.weights.table import MODELS

        lines = gpen("models", "list").stdout.decode().splitlines()
        assert [line.split("\t")[0] for line in lines[1:]] == list(MODELS)


class TestOldScript:
    def run(self, *arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess:
        return subprocess.run(
            [sys.executable, str(ROOT / "inference_gpen.py"), *map(str, arguments)],
            capture_output=True, cwd=cwd, timeout=120, check=False,
        )  # fmt: skip

    def test_without_arguments_it_restores_an_example(self, tmp_path):
        result = self.run(cwd=tmp_path)
        assert result.returncode == 0, result.stderr
        assert (tmp_path / "output_astronaut.png").exists()
        assert "output:" in (tmp_path / "inference.log").read_text()

    def test_the_old_flags(self, photo, tmp_path):
        result = self.run(
            "--input", photo, "--output", "r.png", "--batch_size", 2, "--size", 256, "--face_size", 20,
            "--fidelity_weight", 0.5, "--upscale", 1, "--channel", "auto", "--log-file", "none", cwd=tmp_path,
        )  # fmt: skip
        assert result.returncode == 0, result.stderr
        assert Image.open(tmp_path / "r.png").size == (240, 240)
        assert not (tmp_path / "inference.log").exists()

    def test_bgr_swaps_red_and_blue(self, tmp_path):
        Image.new("RGB", (50, 50), (200, 100, 10)).save(tmp_path / "red.png")
        self.run("-i", "red.png", "-o", "r.png", "--channel", "bgr", "--upscale", 1, cwd=tmp_path)
        assert Image.open(tmp_path / "r.png").convert("RGB").getpixel((9, 9)) == (10, 100, 200)

    def test_a_missing_net_is_4(self, photo, tmp_path):
        result = self.run("-i", photo, "--size", 512, cwd=tmp_path)
        assert result.returncode == 4
        assert b"GPEN-BFR-512" in result.stderr

    def test_a_folder(self, photo, tmp_path):
        result = self.run("-i", photo.parent, "-o", tmp_path / "out", cwd=tmp_path)
        assert result.returncode == 0
        assert (tmp_path / "out" / "photo_enhanced.png").exists()
