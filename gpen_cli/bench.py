"""Which settings are fastest on this machine: the short form of ``benchmarks/generator.py``, for users.

Each candidate restores the same drawn face, first once to warm up; the median of the others counts. Nothing is compiled unless
that is asked for: it takes a minute a candidate.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gpen_cli.device import Setup, cpu_count, cpu_has_bf16, has_package
from gpen_cli.errors import GpenError
from gpen_cli.onnx_nets import onnx_at_hand
from gpen_cli.options import NetOptions
from gpen_cli.runtime import make_net, packages
from gpen_cli.runtime.known_answer import drawn_face
from gpen_cli.weights.find import FoundWeights

REPEATS = 5
NEAR = 1.05
"""Within so much of the fastest, the plainer of two settings is recommended: the difference is noise."""


@dataclass(frozen=True)
class Candidate:
    """One way to run a net. flags: what the user gives to get it; weights: the net's form for it, where it is another."""

    setup: Setup
    flags: str
    weights: FoundWeights | None = None


@dataclass(frozen=True)
class Measured:
    """seconds: median a face; low, high: of the repeats; ready: seconds to load or compile the net; error: why it did not run."""

    candidate: Candidate
    seconds: float = float("inf")
    low: float = float("inf")
    high: float = float("inf")
    ready: float = 0.0
    error: str | None = None


def candidates(setup: Setup, options: NetOptions, weights: FoundWeights) -> list[Candidate]:
    """What is worth trying around the setup that ``auto`` finds here. The plainest come first."""
    if setup.runtime == "onnx":
        return [Candidate(setup, f"--runtime onnx --provider {setup.provider}")]
    found = [
        Candidate(replace(setup, runtime="eager", compiled=False), f"--runtime eager --precision {setup.precision}")
    ]
    if setup.device == "cpu":
        other = "fp32" if setup.precision != "fp32" else "bf16"
        if other == "fp32" or cpu_has_bf16():
            plain = replace(found[0].setup, precision=other)
            found.append(Candidate(plain, f"--runtime eager --precision {other}"))
        if cpu_count() > 1:
            found += [Candidate(replace(item.setup, threads=1), f"{item.flags} --threads 1") for item in found[:1]]
        found += _by_onnxruntime(setup, weights)
    if setup.device.startswith("cuda"):
        graph = replace(setup, runtime="cuda-graph", compiled=False)
        found += [
            Candidate(replace(graph, micro_batch=size), f"--runtime cuda-graph --batch-size {size}")
            for size in (1, 4, 8)
        ]
    ready = replace(found[0].setup, runtime="compiled", compiled=True)
    is_warm = setup.device == "cpu" and packages.supported() and packages.find_package(weights, ready) is not None
    if options.compile == "always" or is_warm:
        runtime = "cuda-graph" if setup.device.startswith("cuda") else "compiled"
        found.append(Candidate(replace(setup, runtime=runtime, compiled=True), "--compile always"))
    return found


def _by_onnxruntime(setup: Setup, weights: FoundWeights) -> list[Candidate]:
    """On a CPU, where the net is at hand as ONNX: its fp32 may beat PyTorch's, above all where there are no bf16 instructions."""
    onnx = onnx_at_hand(weights) if has_package("onnxruntime") else None
    if onnx is None:
        return []
    its_setup = replace(setup, runtime="onnx", precision="fp32", provider="cpu", compiled=False)
    return [Candidate(its_setup, "--runtime onnx", onnx)]


def measure(weights: FoundWeights, candidates: Sequence[Candidate]) -> Iterator[Measured]:
    """Each candidate's times, as they are measured; one that cannot run has its sentence."""
    for candidate in candidates:
        try:
            yield _measure(weights, candidate)
        except GpenError as error:
            yield Measured(candidate, error=str(error))


def _measure(weights: FoundWeights, candidate: Candidate) -> Measured:
    begin = time.perf_counter()
    net = make_net(candidate.weights or weights, candidate.setup)
    crops = np.repeat(drawn_face(net.crop_size)[None], net.micro_batch, axis=0)
    net.run(crops)
    ready = time.perf_counter() - begin
    times = []
    for _ in range(REPEATS):
        begin = time.perf_counter()
        net.run(crops)
        times.append((time.perf_counter() - begin) / len(crops))
    return Measured(candidate, statistics.median(times), min(times), max(times), ready)


def best(results: Sequence[Measured]) -> Measured | None:
    """The one to recommend: the first that is as fast as the fastest, give or take NEAR; None when nothing ran."""
    ran = [item for item in results if item.error is None]
    if not ran:
        return None
    fastest = min(item.seconds for item in ran)
    return next(item for item in ran if item.seconds <= NEAR * fastest)
