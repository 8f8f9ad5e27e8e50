"""One configuration of benchmarks/generator.py in a process of its own, so that its peak of memory is its own.

generator.py runs it: a ``Task`` as JSON on the command line, a ``Figures`` as its last line. PyTorch is imported only where the
task needs it: onnxruntime's rows are those of a process without it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from gpu_meter import GpuMeter

from gpen_cli.device import Setup, cpu_count, settle_process

settle_process()  # as gpen does, before torch is imported; for every row

Work = Callable[[], object]
LOAD, MEMORY = "utilization.gpu", "memory.used"


@dataclasses.dataclass(frozen=True)
class Task:
    """kind: ``textbook``, ``gpen``, or ``onnxruntime`` (its own defaults on the CPU, gpen's ``OnnxGpen`` on a GPU).

    file: the weights or the .onnx file; crops: an .npy file of ``batch`` faces.
    """

    name: str
    kind: str
    precision: str
    batch: int
    file: str
    crops: str
    threads: int
    repeats: int
    device: str = "cpu"
    runtime: str = "eager"
    compiled: bool = False
    provider: str = "cpu"


@dataclasses.dataclass(frozen=True)
class Figures:
    """seconds: of each pass (all faces of a batch); ready: until the net could be called; first: the first pass after that.

    peak: MB above what the process, or the GPU, held before the net was loaded, libraries imported; used: share of the cores, or
    of the GPU's time. Each None where this machine does not tell.
    """

    seconds: list[float]
    ready: float
    first: float
    peak: float | None
    used: float | None


def textbook(task: Task) -> Callable[[], Work]:
    import torch

    from gpen_cli.models.textbook import textbook_gpen
    from gpen_cli.weights.load import load_gpen

    torch.set_num_threads(task.threads)
    planes = torch.from_numpy(planes_of(task))

    def make() -> Work:
        state = load_gpen(Path(task.file)).state_dict()

        def work() -> object:
            with torch.inference_mode():
                return textbook_gpen(state, planes)

        return work

    return make


def gpen(task: Task) -> Callable[[], Work]:
    """gpen's own runtime, from uint8 to uint8 as a run calls it."""
    from gpen_cli.runtime import make_net
    from gpen_cli.weights.find import from_path

    if task.kind == "gpen":
        import gpen_cli.runtime.torch_gpen  # noqa: F401  before memory is read
    weights, crops = from_path(Path(task.file)), np.load(task.crops)
    provider = task.provider if task.kind == "onnxruntime" else ""
    setup = Setup(
        task.device, task.precision, task.batch, task.threads, task.runtime, compiled=task.compiled, provider=provider
    )

    def make() -> Work:
        net = make_net(weights, setup)
        return lambda: net.run(crops)

    return make


def onnxruntime_alone(task: Task) -> Callable[[], Work]:
    """onnxruntime with its own defaults but for the number of threads: what any other program gets from the file."""
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    import onnxruntime

    planes = planes_of(task)

    def make() -> Work:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = task.threads
        options.log_severity_level = 3
        session = onnxruntime.InferenceSession(task.file, options, providers=["CPUExecutionProvider"])
        return lambda: session.run(None, {"input": planes})

    return make


def planes_of(task: Task) -> np.ndarray:
    """(N, 3, S, S) float32 in [-1, 1]."""
    return np.ascontiguousarray(np.load(task.crops).transpose(0, 3, 1, 2).astype(np.float32) / 127.5 - 1)


def resident(field: str) -> float | None:
    """MB of this process, as Linux counts them: ``VmRSS`` now, ``VmHWM`` at the peak."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith(field)), None)


def forget_peak() -> None:
    """The peak counts from here on: importing a library must not hide that of a small net."""
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        return  # a peak that was higher before stays: more is told than was needed, never less


def measure(task: Task) -> Figures:
    makers = {"textbook": textbook, "gpen": gpen, "onnxruntime": onnxruntime_alone if task.device == "cpu" else gpen}
    make = makers[task.kind](task)
    forget_peak()
    before = resident("VmRSS")
    with GpuMeter(LOAD, MEMORY) if task.device != "cpu" else contextlib.nullcontext() as gpu:
        if gpu is not None:
            time.sleep(0.5)  # its first sample is of the time before
        begin = time.perf_counter()
        work = make()
        ready = time.perf_counter() - begin
        first, *_ = timed(work, 1)
        quiet = 0 if gpu is None else len(gpu)
        cpu = time.process_time()
        seconds = timed(work, task.repeats)
        cpu = time.process_time() - cpu
    if gpu is not None:
        loads, memory = gpu.of(LOAD, since=quiet), gpu.of(MEMORY)
        peak = max(memory) - memory[0] if memory else None
        return Figures(seconds, ready, first, peak, sum(loads) / len(loads) / 100 if loads else None)
    after = resident("VmHWM")
    peak = None if before is None or after is None else after - before
    return Figures(seconds, ready, first, peak, cpu / (sum(seconds) * cpu_count()))


def timed(work: Work, repeats: int) -> list[float]:
    """Seconds of each call."""
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        work()
        times.append(time.perf_counter() - begin)
    return times


if __name__ == "__main__":
    print(json.dumps(dataclasses.asdict(measure(Task(**json.loads(sys.argv[1]))))))
