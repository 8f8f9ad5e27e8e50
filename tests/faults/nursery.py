"""The test's side of the nursery: start a run of ``gpen``, hurt it, wait for its end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

TESTS = Path(__file__).resolve().parents[1]
WAIT_SECONDS = 60.0
"""No run of this suite takes a tenth of this; one that does is hung."""
COMMAND = [sys.executable, "-m", "faults.child"]
ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep),
    "OPENBLAS_NUM_THREADS": "1",  # its threads would start at import, before the fork
    "PYTHONUNBUFFERED": "",
}


@dataclass(frozen=True)
class Ended:
    """How a run ended. code: exit code, or minus the signal's number; facts: of ``child.facts_at_the_end``, None if killed."""

    code: int
    out: str
    err: str
    facts: dict[str, Any] | None


class Run:
    """A run that was started."""

    def __init__(self, nursery: Nursery, process: int, files: dict[str, str]) -> None:
        self.process = process
        self._nursery = nursery
        self._files = files

    def send(self, number: signal.Signals) -> None:
        """Nothing happens to a run that has ended: it stays a zombie, its number taken, until ``wait``."""
        os.kill(self.process, number)

    def wait(self, seconds: float = WAIT_SECONDS) -> Ended:
        """Fails when the run does not end in time, or left by itself with torch or onnxruntime loaded."""
        code = self._nursery.ask({"wait": self.process, "seconds": seconds})["code"]
        if code is None:
            self.send(signal.SIGKILL)
            self._nursery.ask({"wait": self.process, "seconds": seconds})
        paths = {name: Path(path) for name, path in self._files.items()}
        texts = {name: path.read_text(errors="replace") if path.exists() else "" for name, path in paths.items()}
        for path in paths.values():
            path.unlink(missing_ok=True)
        assert code is not None, f"still running after {seconds} s: {texts}"
        facts = json.loads(texts["facts"]) if texts["facts"] else None
        assert facts is None or facts["heavy"] == [], facts
        return Ended(code, texts["out"], texts["err"], facts)


class Nursery:
    """A context manager around the process that forks runs."""

    def __enter__(self) -> Nursery:
        self._folder = tempfile.TemporaryDirectory(prefix="gpen-faults-")
        self._count = 0
        self._process = subprocess.Popen(
            COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT, cwd=self._folder.name
        )
        return self

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def start(self, *arguments: object, **circumstances: Any) -> Run:
        """``gpen ARGUMENTS``. circumstances: pause, samples, file_bytes, memory_bytes, user, fuzz; see ``child.become``."""
        self._count += 1
        files = {name: f"{self._folder.name}/{self._count}.{name}" for name in ("out", "err", "facts")}
        request = {"arguments": [str(argument) for argument in arguments], **circumstances, **files}
        return Run(self, self.ask(request)["process"], files)

    def gpen(self, *arguments: object, **circumstances: Any) -> Ended:
        """A run that nobody hurts, to its end."""
        return self.start(*arguments, **circumstances).wait()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)
        self._folder.cleanup()
