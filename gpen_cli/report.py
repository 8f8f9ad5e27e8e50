"""The report: one JSON object a line, one line a photo, written as the run goes.

Everything is ASCII: names that are not UTF-8 are spelt with the escapes \\udc80…\\udcff, as Python does, and can be undone.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from types import TracebackType
from typing import Any

from gpen_cli.data import FaceReport, Outcome
from gpen_cli.device import Setup
from gpen_cli.errors import OutputError, UsageError
from gpen_cli.paths import is_file

REPORT_VERSION = 1
_COORDINATE_DIGITS = 2


def report_line(outcome: Outcome, setup: Setup, model: str) -> dict[str, Any]:
    """The record of one photo. Coordinates are pixels of the upright source; see docs/report.md for every key."""
    target = outcome.job.target
    return {
        "version": REPORT_VERSION,
        "source": outcome.job.source,
        "target": os.fspath(target) if target is not None and outcome.output_bytes is not None else None,
        "status": outcome.status,
        "size": list(outcome.size) if outcome.size else None,
        "scale": outcome.scale,
        "model": model,
        "device": setup.device_names,
        "precision": setup.precision,
        "runtime": setup.runtime,
        "faces": [_face(report) for report in outcome.faces],
        "seconds": {stage: round(seconds, 4) for stage, seconds in outcome.seconds.items()},
        "error": outcome.error,
        "warnings": list(outcome.warnings),
    }


def _face(report: FaceReport) -> dict[str, Any]:
    face = report.face
    return {
        "box": [round(float(value), _COORDINATE_DIGITS) for value in face.box],
        "landmarks": [[round(float(value), _COORDINATE_DIGITS) for value in point] for point in face.landmarks],
        "score": round(float(face.score), 4),
        "net": report.net,
        "decision": report.decision,
        "reason": report.reason,
        "warnings": list(report.warnings),
    }


def _refuse_foreign(path: Path) -> None:
    """Raises UsageError for an existing file that is no report: a slip of the pen must not cost a photo."""
    try:
        if not is_file(path):
            return
        with path.open("rb") as file:
            first = file.read(1)
    except OSError:
        return  # not there, or not readable: writing it will say what is wrong
    if first not in (b"", b"{"):
        raise UsageError(f"--report {path} exists and is no report of gpen; name another file.")


class ReportWriter:
    """Writes lines to ``path``, each flushed. A context manager. Raises OutputError when it cannot be written."""

    def __init__(self, path: Path, setup: Setup, model: str) -> None:
        self._path = path
        _refuse_foreign(path)
        self._setup = setup
        self._model = model
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("w", encoding="ascii")
        except OSError as error:
            raise OutputError(f"--report {path} cannot be written: {error.strerror or error}; name another.") from error

    def write(self, outcome: Outcome) -> None:
        line = json.dumps(report_line(outcome, self._setup, self._model), ensure_ascii=True)
        try:
            self._file.write(line + "\n")
            self._file.flush()
        except OSError as error:
            raise OutputError(f"--report {self._path} cannot be written: {error.strerror or error}.") from error

    def __enter__(self) -> ReportWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):  # each line was flushed, or its failure raised; nothing new to say here
            self._file.close()
