"""The log: levels and file as asked for, any name in it, no bar torn, and a run never ends because of its log."""

from __future__ import annotations

import io
import logging
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gpen_cli import log
from gpen_cli.errors import UsageError
from gpen_cli.log import RunSummary, StageClock, bar_shown, set_up, write_above_bar

ODD_NAME = "caf\udce9 日本 😀.png"


@pytest.fixture(autouse=True)
def restored():
    """Puts the project's logger back as it was."""
    logger = logging.getLogger("gpen_cli")
    before = list(logger.handlers), logger.level, logger.propagate
    yield
    for handler in set(logger.handlers) - set(before[0]):
        handler.close()
    logger.handlers, logger.level, logger.propagate = before
    bar_shown(False)


def say() -> None:
    logger = logging.getLogger("gpen_cli.some.module")
    for level in ("debug", "info", "warning", "error"):
        getattr(logger, level)("a %s", level)


@pytest.mark.parametrize(
    ("level", "lines"),
    [
        ("error", ["error: a error"]),
        ("warning", ["warning: a warning", "error: a error"]),
        ("info", ["a info", "warning: a warning", "error: a error"]),
        ("debug", ["a debug", "a info", "warning: a warning", "error: a error"]),
    ],
)
def test_a_level_shows_its_own_and_what_is_graver_on_stderr_alone(capsys, level, lines):
    set_up(level, None)
    say()
    captured = capsys.readouterr()
    assert captured.err.splitlines() == lines
    assert captured.out == ""


def test_a_level_that_is_not_known_is_refused():
    with pytest.raises(
        UsageError, match="--log-level 'loud' is not known; choose one of: auto, error, warning, info, debug"
    ):
        set_up("loud", None)


def test_setting_up_twice_says_things_once(capsys):
    set_up("info", None)
    set_up("info", None)
    say()
    assert capsys.readouterr().err.count("a info") == 1


def test_the_file_has_the_same_lines_with_times_and_grows(tmp_path, capsys):
    for _ in range(2):
        set_up("info", tmp_path / "run.log")
        say()
    lines = (tmp_path / "run.log").read_text(encoding="utf-8").splitlines()
    assert [line.split(" ", 2)[2] for line in lines] == ["INFO a info", "WARNING a warning", "ERROR a error"] * 2
    set_up("info", tmp_path / "run.log", append=False)
    assert (tmp_path / "run.log").read_text() == ""


def test_a_file_that_cannot_be_written_is_one_sentence(tmp_path):
    for path in (tmp_path, tmp_path / "no" / "run.log"):
        with pytest.raises(UsageError, match=r"--log-file .* cannot be written: .*; name another\."):
            set_up("info", path)


def test_any_name_can_be_logged_in_any_encoding(tmp_path, monkeypatch):
    for encoding in ("utf-8", "ascii", "latin-1"):
        stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding, write_through=True)
        monkeypatch.setattr(sys, "stderr", stream)
        set_up("info", tmp_path / "run.log")
        logging.getLogger("gpen_cli").info("photo: %s", ODD_NAME)
        line = stream.buffer.getvalue().decode(encoding)
        assert line.startswith("photo: caf\\udce9 ")
        assert line.endswith(".png\n")
    assert (tmp_path / "run.log").read_bytes().count(b"caf\\udce9 ") == 3


@pytest.mark.parametrize("shown", [False, True])
@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "latin-1"])
def test_a_result_path_on_stdout_keeps_its_own_bytes(monkeypatch, encoding, shown):
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    monkeypatch.setattr(sys, "stdout", stream)
    bar_shown(shown)
    for line in ("plain.png", ODD_NAME, "end.png"):
        write_above_bar(line)
    expected = "plain.png\n" + ODD_NAME + "\nend.png\n"
    assert stream.buffer.getvalue() == expected.encode("utf-8", "surrogateescape")


def test_a_line_appears_at_once_and_is_not_torn_by_the_bar(monkeypatch):
    from tqdm import tqdm

    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    bar_shown(True)
    with tqdm(total=2, file=stream, ascii=True, mininterval=0):
        write_above_bar("warning: look", error=True)
    lines = stream.getvalue().replace("\r", "\n").splitlines()
    assert "warning: look" in [line.strip() for line in lines]


def test_colours_are_for_terminals_only(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    for kind, coloured in ((Terminal, True), (io.StringIO, False)):
        stream = kind()
        monkeypatch.setattr(sys, "stderr", stream)
        set_up("info", None)
        say()
        assert ("\x1b[33mwarning: a warning\x1b[0m" in stream.getvalue()) is coloured
        assert "a info\n" in stream.getvalue()


@pytest.mark.parametrize("shown", [False, True])
def test_a_run_goes_on_when_nobody_reads_its_log(shown):
    """stderr closed, or a pipe whose reader has gone: the log is lost, the run is not."""
    code = (
        "import logging, sys, os; from gpen_cli.log import set_up, bar_shown; "
        f"set_up('info', None); bar_shown({shown}); os.close(2); "
        "[logging.getLogger('gpen_cli').info('x') for _ in range(3)]; print('done'); sys.stdout.flush(); os._exit(0)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert result.stdout == "done\n"


# -- clocks ------------------------------------------------------------------------------------------------------------


def test_a_clock_adds_up_what_a_stage_takes_also_when_it_fails():
    clock = StageClock({"decode": 1.0})
    for _ in range(2):
        with clock.stage("detect"):
            time.sleep(0.01)
    with pytest.raises(ZeroDivisionError), clock.stage("align"):
        raise ZeroDivisionError
    clock.add("decode", 0.5)
    assert clock.seconds["decode"] == 1.5
    assert 0.02 <= clock.seconds["detect"] < 1
    assert "align" in clock.seconds


def test_a_clock_does_not_write_into_what_it_was_given():
    start = {"decode": 1.0}
    StageClock(start).add("decode", 1.0)
    assert start == {"decode": 1.0}


def test_the_closing_table_has_total_mean_p95_and_share_by_stage_and_waits_apart():
    summary = RunSummary()
    for number in range(1, 101):
        summary.add({"decode": 0.01 * number, "restore": 0.03 * number, "wait for restore": 2.0})
    table = summary.table()
    assert table[0].split() == ["stage", "total", "s", "mean", "s", "p95", "s", "share"]
    assert table[1].split() == ["decode", "50.50", "0.505", "0.951", "25", "%"]
    assert table[2].split() == ["restore", "151.50", "1.515", "2.852", "75", "%"]
    assert table[3].split() == ["wait", "for", "restore", "200.00", "2.000", "2.000"]
    assert len(table) == 4


def test_an_empty_run_has_an_empty_table():
    assert len(RunSummary().table()) == 1


def test_every_stage_of_the_issue_has_its_row():
    assert log.STAGES == ("decode", "detect", "align", "restore", "compose", "encode")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a full disk")
def test_a_log_file_on_a_full_disk_is_told_once_and_stops_nothing(capsys):
    log.set_up("info", Path("/dev/full"))
    for number in range(3):
        logging.getLogger("gpen_cli.test").info("line %d", number)
    errors = capsys.readouterr().err.splitlines()
    assert errors.count("warning: the log file /dev/full cannot be written; it is not whole.") == 1
    assert errors[-1] == "line 2"
    log.set_up("info", None)
