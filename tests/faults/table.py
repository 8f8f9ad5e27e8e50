"""The table of docs/reliability.md: each test adds its row, the long run writes them down. No figure is typed by hand."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "reliability.md"
BEGIN, END = "<!-- table: begin (written by make faults) -->", "<!-- table: end -->"
LONG = os.environ.get("GPEN_FAULTS") == "long"


def times(short: int, long: int) -> int:
    """How often: in the test run, and under ``make faults``."""
    return long if LONG else short


class Table:
    """Rows in the order of the tests."""

    def __init__(self) -> None:
        self._rows: list[str] = []
        self._begin = time.monotonic()

    def row(self, fault: str, count: int, *, holds: str, result: str) -> None:
        """Called before a test asserts, so that a failure's figures are seen too."""
        self._rows.append(f"| {fault} | {count} | {holds} | {result} |")

    def text(self) -> str:
        seconds = time.monotonic() - self._begin
        where = f"{platform.system()}, Python {platform.python_version()}, {os.cpu_count()} cores"
        made = (
            f"Made by `make faults` on {time.strftime('%Y-%m-%d')} at commit {_commit()} in {seconds:.0f} s ({where})."
        )
        head = ["| fault | times | what must hold | result |", "|---|---|---|---|"]
        return "\n".join([made, "", *head, *self._rows])

    def write(self, tests: int) -> str:
        """Into the page, when every one of the ``tests`` has its row; says what was done."""
        if len(self._rows) != tests:
            return f"{len(self._rows)} of {tests} rows: docs/reliability.md is left as it was"
        before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
        _, _, after = rest.partition(END)
        PAGE.write_text(f"{before}{BEGIN}\n{self.text()}\n{END}{after}", encoding="utf-8")
        return f"written to {PAGE}"


def _commit() -> str:
    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()

    changed = " with changes" if git("status", "--porcelain", "--", "gpen_cli") else ""
    return (git("rev-parse", "--short", "HEAD") or "unknown") + changed
