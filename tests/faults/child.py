"""The process that gets hurt: the real ``gpen`` with a stand-in net and detector, so that it starts fast and needs no torch.

``python -m faults.child batch in out`` is one run in a process of its own. Without arguments it is a nursery: it imports
everything once and then forks a run for each request (a JSON line on stdin), so that a thousand runs cost milliseconds of
start-up each. It forks before any thread exists; a forked run goes the whole way from ``gpen_cli.cli`` to the interpreter's
own end.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import resource
import signal
import sys
import threading
import time
import weakref
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from stand_ins import StandInNet, engine_of, face_at
from typer.testing import CliRunner

import gpen_cli.engine
from gpen_cli.data import Face, Photo
from gpen_cli.engine import Engine
from gpen_cli.options import Options
from gpen_cli.weights.find import FoundWeights

CROP_SIZE = 64
"""Small, because the suite is about files: a crop of 256 px costs ten times as much."""
HEAVY = ("torch", "onnxruntime")
SAMPLE_EVERY = 100
STOPS = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
GRACE_SECONDS = 1.0
WARM = ("cli.main", "cli.run", "cli.files", "pipeline", "ledger", "report", "naming")


class OneFace:
    """A detector that finds a face in the middle of every picture."""

    name = "one face"

    def detect(self, pixels: np.ndarray, threshold: float) -> list[Face]:
        height, width = pixels.shape[:2]
        return [face_at(width / 2, height / 2, 0.6 * min(width, height))]


class SlowNet(StandInNet):
    """Brightens each crop after ``pause`` seconds; every hundred crops it notes memory and living photos in ``samples``."""

    def __init__(self, pause: float, samples: Path | None) -> None:
        super().__init__(lambda crop: np.where(crop > 225, 255, crop + 30).astype(np.uint8), crop_size=CROP_SIZE)
        self._pause = pause
        self._samples = samples
        self._alive = PhotoCount()
        if samples is not None:
            self._alive.watch()

    def run(self, crops: np.ndarray) -> np.ndarray:
        time.sleep(self._pause)
        if self._samples is not None and self.crops % SAMPLE_EVERY == 0:
            with self._samples.open("a") as file:
                file.write(json.dumps({"photo": self.crops, "rss": resident_bytes(), "alive": self._alive()}) + "\n")
        return super().run(crops)


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


class PhotoCount:
    """How many photos live. Not by ``gc.get_objects``: from another thread, that breaks a ``tuple(…)`` that is being built."""

    def __init__(self) -> None:
        self._born: list[None] = []
        self._dead: list[None] = []

    def __call__(self) -> int:
        return len(self._born) - len(self._dead)

    def watch(self) -> None:
        """Counts every Photo from its making on, also the copies that ``dataclasses.replace`` makes."""
        make = Photo.__init__

        def counted(photo: Photo, *arguments: Any, **named: Any) -> None:
            make(photo, *arguments, **named)
            self._born.append(None)
            weakref.finalize(photo, self._dead.append, None)

        Photo.__init__ = counted  # type: ignore[method-assign]


def enter_stand_ins(pause: float = 0.0, samples: Path | None = None) -> None:
    """Through the one door real engines come from; nothing else of gpen is changed."""

    def build_engine(options: Options, **_: object) -> Engine:
        engine = engine_of(detector=OneFace())  # type: ignore[arg-type]
        engine.add_net(SlowNet(pause, samples), FoundWeights(Path(__file__), None))
        return engine

    gpen_cli.engine.build_engine = build_engine


def warm_up() -> None:
    """Imports what a run will import, so that forks find it done."""
    for name in WARM:
        importlib.import_module(f"gpen_cli.{name}")
    refused = CliRunner().invoke(sys.modules["gpen_cli.cli.main"].app, ["batch", "/no such folder", "/no such output"])
    assert refused.exit_code == 2, refused.output
    Image.init()
    for name in ("numpy.ma", "encodings.ascii"):  # another user may not be able to read Python's folder
        importlib.import_module(name)
    gc.freeze()
    assert len(os.listdir("/proc/self/task")) == 1, "a fork would lose a thread's locks"  # noqa: PTH208


def fork_on_request() -> dict[str, Any] | None:
    """In the nursery: None, when nobody asks any more. In a forked child: the request it was made for."""
    living: set[int] = set()
    for line in sys.stdin:
        request = json.loads(line)
        if "wait" in request:
            code = _wait(request["wait"], request["seconds"])
            living -= {request["wait"]} if code is not None else set()
            answer: dict[str, Any] = {"code": code}
        else:
            sys.stdout.flush()
            signal.pthread_sigmask(
                signal.SIG_BLOCK, STOPS
            )  # until ``become``: Python's own steps after a fork are not gpen's
            process = os.fork()
            if process == 0:
                return request
            signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)
            living.add(process)
            answer = {"process": process}
        print(json.dumps(answer), flush=True)  # noqa: T201
    for process in living:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    return None


def _wait(process: int, seconds: float) -> int | None:
    """The exit code, minus the signal's number for a killed process, or None when it still runs after ``seconds``."""
    deadline = time.monotonic() + seconds
    while True:
        ended, status = os.waitpid(process, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > deadline:
            return None
        time.sleep(0.0005)


def become(request: dict[str, Any]) -> None:
    """Turns this forked child into the run that was asked for; leaves by SystemExit, as ``gpen`` does."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job has it ignored
    facts = os.open(request["facts"], os.O_WRONLY | os.O_CREAT, 0o600)
    for number, path in ((0, os.devnull), (1, request["out"]), (2, request["err"])):
        os.dup2(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), number)
    if request.get("file_bytes"):
        resource.setrlimit(resource.RLIMIT_FSIZE, (request["file_bytes"],) * 2)
    if request.get("memory_bytes"):
        resource.setrlimit(resource.RLIMIT_AS, (request["memory_bytes"],) * 2)
    if request.get("user"):
        os.setgroups([])
        os.setgid(request["user"])
        os.setuid(request["user"])
    os.umask(0o022)
    samples = request.get("samples")
    enter_stand_ins(request.get("pause", 0.0), Path(samples) if samples else None)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)
    try:
        if "fuzz" in request:
            from faults.reading import read_all

            read_all(request["fuzz"])
        else:
            run_gpen(request["arguments"])
    finally:
        os.write(facts, json.dumps(facts_at_the_end()).encode())


def run_gpen(arguments: list[str]) -> None:
    from gpen_cli.__main__ import run

    sys.argv = ["gpen", *arguments]
    run()


def facts_at_the_end() -> dict[str, Any]:
    """What a run that ended by itself leaves in its process: heavy modules, child processes, threads beside this one.

    late: threads that were still there as ``gpen`` returned; threads: those of them that were there a second later.
    """
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    late = [thread for thread in threading.enumerate() if thread is not threading.main_thread()]
    for thread in late:
        thread.join(GRACE_SECONDS)
    return {
        "heavy": [name for name in HEAVY if name in sys.modules],
        "late": [thread.name for thread in late],
        "threads": [thread.name for thread in late if thread.is_alive()],
        "children": children.read_text().split() if children.exists() else [],
    }


def main() -> None:
    if len(sys.argv) > 1:
        enter_stand_ins()
        try:
            run_gpen(sys.argv[1:])
        finally:
            assert not facts_at_the_end()["heavy"]
    warm_up()
    request = fork_on_request()
    if request is not None:
        become(request)


if __name__ == "__main__":
    main()
