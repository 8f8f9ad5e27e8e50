"""How the process ends: its code, its last words and its exit functions are what they are without the hurry."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpen_cli.errors import OutputError

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


REPOSITORY = Path(__file__).resolve().parents[1]
GPEN = [sys.executable, "-m", "gpen_cli"]
OLD_SCRIPT = [sys.executable, str(REPOSITORY / "inference_gpen.py")]


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
