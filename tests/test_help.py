"""``--help`` as a person sees it: whole flag names on any terminal, and no complaint when nobody reads to the end."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from gpen_cli.cli.help import TABLE_WIDTH
from gpen_cli.cli.main import app

ROOT = Path(__file__).resolve().parent.parent


def commands(command: object, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], object]]:
    """(its words after ``gpen``, the command), for every command there is."""
    yield path, command
    for name, below in getattr(command, "commands", {}).items():
        yield from commands(below, (*path, name))


COMMANDS = dict(commands(typer.main.get_command(app)))


def flags_of(command) -> list[str]:
    return ["--help", *(flag for parameter in command.params for flag in (*parameter.opts, *parameter.secondary_opts))]


def help_at(path: tuple[str, ...], columns: int) -> str:
    result = CliRunner().invoke(app, [*path, "--help"], env={"COLUMNS": str(columns)})
    assert result.exit_code == 0
    return result.stdout


def test_every_command_is_met():
    assert {("enhance",), ("serve",), ("train",), ("train", "prepare"), ("models", "download")} < set(COMMANDS)


@pytest.mark.parametrize("columns", [40, 60, 80, TABLE_WIDTH - 1, TABLE_WIDTH, 120])
@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_flags_are_whole_and_lines_fit_the_terminal(path, columns):
    text = help_at(path, columns)
    for flag in flags_of(COMMANDS[path]):
        if flag.startswith("-"):
            assert re.search(rf"(?<![\w-]){re.escape(flag)}(?![\w…-])", text), f"{flag} is not whole"
    assert all(len(line) <= columns for line in text.splitlines())


@pytest.mark.parametrize("columns", [40, TABLE_WIDTH])
def test_both_forms_say_the_same(columns):
    text = " ".join(help_at(("enhance",), columns).replace("│", " ").split())
    for part in ("How the faces look", "0..2", "Which faces", "Arguments", "never changed", "[default: copy]"):
        assert part in text
    words = " ".join(help_at(("export",), columns).split())
    assert "'gpen-cli[onnx]'" in words, "the markup of the docstring is not shown"


def test_a_group_lists_its_commands_in_few_columns():
    lines = [line.split() for line in help_at(("models",), 40).splitlines()]
    assert {"list", "download", "verify", "path"} <= {line[0] for line in lines if line}


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(
    ("arguments", "columns"),
    [(["enhance", "--help"], 60), (["enhance", "--help"], 120), (["--version"], 80), (["models", "list"], 80)],
)
def test_text_that_nobody_reads_to_the_end_is_no_failure(arguments, columns, unbuffered):
    environment = {**os.environ, "COLUMNS": str(columns), "PYTHONUNBUFFERED": unbuffered}
    process = subprocess.Popen(
        [sys.executable, "-m", "gpen_cli", *arguments],
        cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    process.stdout.close()  # as | head does
    assert process.stderr.read() == b""
    assert process.wait(60) == 0
    process.stderr.close()
