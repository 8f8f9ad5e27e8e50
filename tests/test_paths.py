"""Paths that the system refuses: each is one sentence and a code of ours, wherever a command takes a path."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gpen_cli import paths
from gpen_cli.cli.main import app

ROOT = Path(__file__).resolve().parent.parent

COMMANDS = [
    ["enhance", "BAD"],
    ["enhance", "PHOTO", "-o", "BAD"],
    ["enhance", "PHOTO", "OTHER", "-o", "BAD/"],
    ["enhance", "PHOTO", "--output-dir", "BAD"],
    ["enhance", "PHOTO", "--log-file", "BAD"],
    ["enhance", "PHOTO", "--debug-mask", "BAD"],
    ["enhance", "PHOTO", "--report", "BAD"],
    ["enhance", "PHOTO", "--save-faces", "BAD"],
    ["enhance", "PHOTO", "--weights", "BAD"],
    ["batch", "BAD", "OUT"],
    ["batch", "FOLDER", "BAD"],
    ["batch", "FOLDER", "BAD", "--in-place"],
    ["export", "-o", "BAD", "--model", "gpen-open-256"],
    ["export", "-o", "OUT/x.onnx", "--weights", "BAD"],
    ["quantize", "BAD", "-o", "OUT/x.onnx"],
    ["train", "prepare", "BAD", "OUT"],
    ["train", "prepare", "FOLDER", "BAD"],
    ["train", "--data", "BAD"],
    ["train", "--config", "BAD"],
    ["train", "--config", "gpen-open-256", "--hr-dir", "BAD", "--lr-dir", "FOLDER"],
]
LONG = "x" * 300 + ".png"
CODES = (2, 3, 4, 5, 6, 7)


@pytest.fixture
def folder(photo: Path) -> Path:
    """A folder of two photos."""
    (photo.parent / "other.jpg").write_bytes(photo.read_bytes())
    return photo.parent


def filled(command: list[str], folder: Path, photo: Path, out: Path, bad: Path) -> list[str]:
    places = {
        "BAD": bad,
        "BAD/": f"{bad}/",
        "PHOTO": photo,
        "OTHER": folder / "other.jpg",
        "FOLDER": folder,
        "OUT": out,
    }
    return [str(out / "x.onnx") if word == "OUT/x.onnx" else str(places.get(word, word)) for word in command]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_name_longer_than_the_disk_takes_is_one_sentence(command, photo, folder, tmp_path):
    out = tmp_path / "out"
    result = CliRunner().invoke(app, filled(command, folder, photo, out, tmp_path / LONG))
    assert isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code in CODES, result.stderr
    assert "Traceback" not in result.stderr
    assert "xxxx" in result.stderr


@pytest.mark.skipif(
    os.name != "posix" or os.getuid() != 0 or shutil.which("setpriv") is None,
    reason="needs root without its right to look anywhere",
)
def test_a_folder_closed_to_us_is_one_sentence(photo, folder, tmp_path):
    """All commands in one process, which sees what a user sees."""
    closed, out = tmp_path / "closed", tmp_path / "out"
    closed.mkdir(mode=0o000)
    commands = [filled(command, folder, photo, out, closed / "a" / "b.png") for command in COMMANDS]
    code = (
        "import json, sys\nfrom typer.testing import CliRunner\nfrom gpen_cli.cli.main import app\n"
        "for command in json.loads(sys.argv[1]):\n    result = CliRunner().invoke(app, command)\n"
        "    print(json.dumps([command, result.exit_code, result.stderr, repr(result.exception)]))"
    )
    drop = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search"]
    done = subprocess.run(
        [*drop, sys.executable, "-c", code, json.dumps(commands)], capture_output=True, text=True, check=True, cwd=ROOT
    )
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(told) == len(COMMANDS)
    for command, exit_code, text, exception in told:
        assert "SystemExit" in exception, (command, exception)
        assert exit_code in CODES, (command, text)
        assert "Traceback" not in text, (command, text)
        assert "closed/a" in text, (command, text)


def test_no_folder_is_made_for_a_photo_that_is_not_there(tmp_path):
    result = CliRunner().invoke(app, ["enhance", str(tmp_path / "nowhere" / "a.jpg")])
    assert result.exit_code == 3
    assert "does not exist" in result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "command",
    [
        ["enhance", ""],
        ["enhance", "PHOTO", "-o", ""],
        ["enhance", "PHOTO", "--output-dir", ""],
        ["enhance", "PHOTO", "--output-dir="],
        ["enhance", "PHOTO", "--save-faces", ""],
        ["batch", "", "OUT"],
        ["batch", "FOLDER", ""],
        ["train", "prepare", "FOLDER", ""],
        ["train", "prepare", "FOLDER", "OUT", "--licence", "", "--confidence"],
    ],
    ids=" ".join,
)
def test_an_empty_argument_is_not_the_working_folder(command, photo, folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    result = CliRunner().invoke(app, filled(command, folder, photo, tmp_path / "out", tmp_path))
    assert result.exit_code == 2
    assert ("argument is empty" in " ".join(result.stderr.split())) == ("--licence" not in command)
    assert sorted(tmp_path.rglob("*")) == before


def test_nor_for_the_old_script(photo, tmp_path, monkeypatch, capsys):
    from gpen_cli.cli.old_script import main

    monkeypatch.chdir(tmp_path)
    assert main(["-i", str(photo), "-o", ""]) == 2
    assert "argument is empty (at -o)" in capsys.readouterr().err


def test_what_cannot_be_seen_is_not_there(tmp_path):
    for name in ("missing", LONG, "nul\0inside"):
        path = tmp_path / name
        assert not paths.exists(path)
        assert not paths.is_dir(path)
        assert not paths.is_file(path)
        assert not paths.same_file(path, tmp_path)


def test_what_is_there_is_seen(tmp_path):
    file = tmp_path / "a"
    file.write_text("a")
    (tmp_path / "b").hardlink_to(file)
    assert paths.exists(file)
    assert paths.is_file(file)
    assert paths.is_dir(tmp_path)
    assert not paths.is_dir(file)
    assert paths.same_file(file, tmp_path / "b")
    assert not paths.same_file(file, tmp_path)
