"""How the process ends: its code, its last words and its exit functions are what they are without the hurry."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import signal
import subprocess
import sys
import time
import types
from pathlib import Path

import pytest
import typer

from gpen_cli.cli import run as run_module
from gpen_cli.cli.exits import TerminatedError, exit_codes, stop_if_asked
from gpen_cli.errors import OutputError

REPOSITORY = Path(__file__).resolve().parents[1]
GPEN = [sys.executable, "-m", "gpen_cli"]
OLD_SCRIPT = [sys.executable, str(REPOSITORY / "inference_gpen.py")]

ENDING = """
import atexit, sys, threading, time
from gpen_cli.ending import ending_at_once
class Slow:
    def __del__(self):
        print("taken apart", flush=True)
with ending_at_once():
    kept = Slow()
    atexit.register(lambda: print("exit function"))
    threading.Thread(target=lambda: (time.sleep(0.2), print("thread"))).start()
    print("said")
    BODY
"""


STARTED = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)  # until the program's own first line
import runpy
print("up", flush=True)
if sys.argv[1] == "-m":
    sys.argv[:2] = []
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
else:
    sys.argv[:1] = []
    runpy.run_path(sys.argv[0], run_name="__main__")
"""


def run(body: str, **how: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", ENDING.replace("BODY", body)], text=True, capture_output=True, timeout=60, **how
    )


@pytest.mark.parametrize(
    ("leaving", "code"), [("sys.exit(0)", 0), ("sys.exit()", 0), ("sys.exit(7)", 7), ("sys.exit(130)", 130)]
)
def test_threads_are_joined_exit_functions_run_and_nothing_is_taken_apart(leaving: str, code: int) -> None:
    done = run(leaving)
    assert (done.returncode, done.stdout, done.stderr) == (code, "said\nthread\nexit function\n", "")


@pytest.mark.parametrize(
    ("leaving", "code", "said"),
    [
        ("sys.exit('a sentence')", 1, "a sentence"),
        ("raise ValueError('a bug')", 1, "ValueError: a bug"),
        ("pass", 0, ""),
    ],
)
def test_every_other_end_is_pythons_own(leaving: str, code: int, said: str) -> None:
    done = run(leaving)
    assert done.returncode == code
    assert "taken apart" in done.stdout
    assert said in done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="/dev/full")
def test_what_cannot_be_written_last_is_no_success() -> None:
    done = subprocess.run(
        ["sh", "-c", f'{sys.executable} -c "$0" > /dev/full', ENDING.replace("BODY", "sys.exit(0)")],
        text=True,
        capture_output=True,
        timeout=60,
    )
    assert done.returncode != 0
    assert "No space left" in done.stderr


@pytest.mark.parametrize("after", [0.0, 0.05, 0.1, 0.2, 0.3])
@pytest.mark.parametrize("name", ["gpen", "inference_gpen.py"])
def test_ctrl_c_at_any_moment_is_one_sentence_at_most(name: str, after: float, tmp_path: Path) -> None:
    source = str(REPOSITORY / "examples" / "astronaut.jpg")
    command = (
        [*GPEN, "enhance", source, "-o", "x.png"] if name == "gpen" else [*OLD_SCRIPT, "-i", source, "-o", "x.png"]
    )
    process = subprocess.Popen(
        [sys.executable, "-c", STARTED, *command[1:]], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
    )  # fmt: skip
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(after)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode in (130, 0)  # 0: it was done already
    assert "Traceback" not in errors
    assert "cannot be imported" not in errors


def broken_import() -> None:
    try:
        signal.raise_signal(signal.SIGINT)
    except KeyboardInterrupt as broken:
        raise ImportError("initialization failed") from broken


def lost_stop() -> None:
    with contextlib.suppress(TerminatedError):
        signal.raise_signal(signal.SIGTERM)
    stop_if_asked()


def test_an_import_that_a_signal_broke_is_the_signals_doing() -> None:
    with pytest.raises(typer.Exit) as left, exit_codes():
        broken_import()
    assert left.value.exit_code == 130


def test_a_stop_that_was_lost_is_raised_again() -> None:
    with pytest.raises(typer.Exit) as left, exit_codes():
        lost_stop()
    assert left.value.exit_code == 143
    with exit_codes():
        stop_if_asked()  # the next command knows nothing of it


class Reluctant(io.RawIOBase):
    """Takes few bytes at a time, as an unbuffered pipe does when its reader is slow or goes."""

    def __init__(self) -> None:
        self.taken = b""

    def writable(self) -> bool:
        return True

    def write(self, data: memoryview) -> int:  # type: ignore[override]
        self.taken += bytes(data[:7])
        return min(7, len(data))


def test_a_picture_is_poured_to_its_last_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Reluctant()
    monkeypatch.setattr(sys, "stdout", types.SimpleNamespace(buffer=stream))
    run_module._pour(bytes(range(100)))
    assert stream.taken == bytes(range(100))


@pytest.mark.parametrize(
    ("shell", "code", "sentence"),
    [
        (
            "enhance PHOTO -o - >&-",
            6,
            "error: Standard output is closed, so the picture cannot go there; give -o FILE.",
        ),
        ("enhance - -o x.png <&-", 3, "error: Standard input is empty"),
        ("models list >&-", 0, ""),
        ("enhance PHOTO -o - | head -c 1 > /dev/null", 6, "so the picture was not delivered; give -o FILE."),
    ],
)
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_closed_streams(shell: str, code: int, sentence: str, unbuffered: str, tmp_path: Path) -> None:
    command = shell.replace("PHOTO", str(REPOSITORY / "examples" / "astronaut.jpg"))
    done = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m gpen_cli {command}; exit ${{PIPESTATUS[0]}}"], cwd=tmp_path, text=True,
        capture_output=True, timeout=60, env={**os.environ, "PYTHONUNBUFFERED": unbuffered, "PYTHONPATH": str(REPOSITORY)},
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="/dev/full")
@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["batch", "--help"], ["models", "list"]])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_help_on_a_full_disk_is_one_sentence(arguments: list[str], unbuffered: str) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*GPEN, *arguments], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        )  # fmt: skip
    assert done.returncode == OutputError.exit_code
    assert done.stderr == "error: what is printed cannot be written: the disk is full.\n"


@pytest.mark.parametrize("command", [GPEN, OLD_SCRIPT], ids=["gpen", "inference_gpen.py"])
def test_help_that_nobody_reads_is_no_failure(command: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run([*command, "--help"], stdout=writer, stderr=subprocess.PIPE, text=True, timeout=60)
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(sys.platform != "linux", reason="/dev/full")
def test_photos_that_are_finished_while_a_run_ends_are_counted(tmp_path: Path) -> None:
    photos = tmp_path / "in"
    photos.mkdir()
    for number in range(3):
        shutil.copy(REPOSITORY / "examples" / "astronaut.jpg", photos / f"{number}.jpg")
    done = subprocess.run(
        [*GPEN, "batch", str(photos), str(tmp_path / "out"), "--report", "/dev/full"], cwd=REPOSITORY, text=True,
        capture_output=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == OutputError.exit_code
    assert f"summary: done {len(list((tmp_path / 'out').glob('*.png')))}," in done.stderr
    assert done.stderr.count("--report /dev/full cannot be written") == 1
