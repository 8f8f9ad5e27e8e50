"""Parity and speed on a CUDA GPU, within a time budget: benchmarks/gpu_check.sh runs this. Prints tables and writes JSON.

Nets of the public architectures at 256, 512 and 1024 px with drawn weights. Each runtime is held against eager fp32 on the same
crops (PSNR), then timed: percentiles, first call, faces a second, peak memory, kernel launches a pass, the GPU's load and power
meanwhile, and the share of what a bf16 matrix product of this GPU reaches. What the budget does not allow is said to be skipped.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import torch
from generator import drawn_weights, face, flops_of
from gpu_meter import GpuMeter
from portraits import psnr

from gpen_cli.device import Setup
from gpen_cli.runtime.torch_gpen import TorchGpen
from gpen_cli.weights.find import FoundWeights

SIZES = (256, 512, 1024)
BATCHES = (1, 4, 8)
COMPILED_BATCH = 4
"""The one batch size that is compiled: a minute a net."""
PASSES = 30
STEADY = 100
SAME = 99.0
"""PSNR, in dB, of equal answers: JSON has no infinity."""
LOAD, POWER = "utilization.gpu", "power.draw"
LAUNCHES = ("cudaLaunchKernel", "cuLaunchKernel", "cudaLaunchKernelExC", "cudaGraphLaunch")


@dataclass(frozen=True)
class Result:
    """One net by one runtime. Times in ms a pass; psnr: dB against eager fp32, None for that itself."""

    size: int
    batch: int
    runtime: str
    precision: str
    psnr: float | None = None
    p50: float = 0.0
    p90: float = 0.0
    p99: float = 0.0
    first: float = 0.0
    hundredth: float = 0.0
    ready: float = 0.0
    faces: float = 0.0
    peak_mb: float = 0.0
    launches: int = 0
    load_mean: float = 0.0
    load_peak: float = 0.0
    power_mean: float = 0.0
    power_peak: float = 0.0
    share: float = 0.0
    stream: float = 0.0
    """Faces a second when each pass begins before the last one's answer is taken, as in a folder's run."""
    note: str = ""


def setups(batch: int) -> list[Setup]:
    plain = Setup("cuda:0", "fp32", batch, 1)
    fast = replace(plain, precision="bf16")
    found = [plain, fast, replace(fast, runtime="cuda-graph")]
    if batch == COMPILED_BATCH:
        found += [
            replace(fast, runtime="compiled", compiled=True),
            replace(fast, runtime="cuda-graph", compiled=True),
        ]
    return found


def name_of(setup: Setup) -> str:
    return setup.runtime + (" (compiled)" if setup.compiled and setup.runtime == "cuda-graph" else "")


def measure(
    weights: FoundWeights, setup: Setup, exact: np.ndarray | None, flops: float, rate: float
) -> tuple[Result, np.ndarray]:
    size = int(weights.name.rsplit("-", 1)[1])
    crops = face(size, setup.micro_batch)
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    begin = time.perf_counter()
    net = TorchGpen(weights, setup)
    ready = time.perf_counter() - begin
    begin = time.perf_counter()
    answer = net.run(crops)
    first = time.perf_counter() - begin
    times = []
    with GpuMeter(LOAD, POWER) as meter:
        for _ in range(PASSES if size > 512 else STEADY):
            begin = time.perf_counter()
            net.run(crops)
            times.append(time.perf_counter() - begin)
    median = float(np.median(times))
    loads, powers = meter.of(LOAD), meter.of(POWER)
    result = Result(
        size, setup.micro_batch, name_of(setup), setup.precision,
        psnr=None if exact is None else min(SAME, psnr(answer, exact)),
        p50=1e3 * median, p90=1e3 * float(np.percentile(times, 90)), p99=1e3 * float(np.percentile(times, 99)),
        first=1e3 * first, hundredth=1e3 * times[-1], ready=ready, faces=setup.micro_batch / median,
        peak_mb=torch.cuda.max_memory_allocated() / 2**20, launches=launches(net, crops),
        load_mean=mean(loads), load_peak=max(loads, default=0.0),
        power_mean=mean(powers), power_peak=max(powers, default=0.0),
        share=flops * setup.micro_batch / median / rate,
        stream=setup.micro_batch / chained(net, crops),
    )  # fmt: skip
    return result, answer


def chained(net: TorchGpen, crops: np.ndarray) -> float:
    """Seconds a pass in a chain of PASSES."""
    begin, before = time.perf_counter(), net.begin(crops)
    for _ in range(PASSES - 1):
        after = net.begin(crops)
        before()
        before = after
    before()
    return (time.perf_counter() - begin) / PASSES


def mean(values: list[float]) -> float:
    return float(np.mean(values)) if values else 0.0


def launches(net: TorchGpen, crops: np.ndarray) -> int:
    """Launches that the host makes in one pass; a graph is one."""
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        net.run(crops)
    return sum(event.count for event in profile.key_averages() if event.key in LAUNCHES)


def matrix_rate() -> float:
    """Floating point operations a second of a bf16 matrix product on this GPU."""
    a, b = (torch.rand(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    for _ in range(3):
        a @ b
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(20):
        a @ b
    torch.cuda.synchronize()
    return 20 * 2 * 8192**3 / (time.perf_counter() - begin)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budget", type=float, default=330.0, help="seconds after which nothing new is begun")
    parser.add_argument("--json", type=Path, default=Path("gpu_check.json"))
    given = parser.parse_args()
    begin = time.monotonic()
    rate = matrix_rate()
    print(
        f"{torch.cuda.get_device_name()}, torch {torch.__version__}, CUDA {torch.version.cuda}; bf16 product {rate / 1e12:.0f} TFLOP/s"
    )
    print(
        "| net | batch | runtime | precision | PSNR to eager fp32, dB | ms p50 / p90 / p99 | first, 100th, ms | ready, s | faces a second: alone, in a chain | "
        "peak MB | launches | load mean / peak, % | power mean / peak, W | share of the product |\n" + "|---" * 14 + "|"
    )
    results: list[Result] = []
    with tempfile.TemporaryDirectory() as folder:
        for size in SIZES:
            weights = drawn_weights(size, Path(folder))
            flops = flops_of(weights, size)
            for batch in BATCHES:
                exact: np.ndarray | None = None
                for setup in setups(batch):
                    if time.monotonic() - begin > given.budget:
                        results.append(
                            Result(size, batch, name_of(setup), setup.precision, note="skipped: out of time")
                        )
                    else:
                        try:
                            result, answer = measure(weights, setup, exact, flops, rate)
                            exact = answer if exact is None else exact
                            results.append(result)
                        except Exception as error:  # noqa: BLE001  one row that fails must not cost the others
                            results.append(
                                Result(size, batch, name_of(setup), setup.precision, note=f"failed: {error}"[:200])
                            )
                    print(line(results[-1]), flush=True)
                    given.json.write_text(json.dumps([asdict(item) for item in results], indent=1), encoding="utf-8")


def line(item: Result) -> str:
    head = f"| {item.size} | {item.batch} | {item.runtime} | {item.precision} |"
    if item.note:
        return f"{head} {item.note} |" + " |" * 9
    exactness = "–" if item.psnr is None else f"{item.psnr:.1f}"
    return (
        f"{head} {exactness} | {item.p50:.2f} / {item.p90:.2f} / {item.p99:.2f} | {item.first:.1f}, {item.hundredth:.2f} | "
        f"{item.ready:.1f} | {item.faces:.0f}, {item.stream:.0f} | {item.peak_mb:.0f} | {item.launches} | {item.load_mean:.0f} / {item.load_peak:.0f} | "
        f"{item.power_mean:.0f} / {item.power_peak:.0f} | {100 * item.share:.0f} % |"
    )


if __name__ == "__main__":
    main()
