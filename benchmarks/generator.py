"""One face through the net, by every runtime, in one run: python benchmarks/generator.py [--size 512] [--json FILE]

Rows: the textbook net in eager fp32 (the stand-in for the public code), onnxruntime fp32 on the textbook net's export and on
ours, and gpen's own runtimes. Weights are drawn (or --weights FILE); times are medians of --repeats passes after one to warm up,
with the spread; the rate is held against a matrix product of the same precision, measured before and after. Ratios are within
this one run. Needs: pip install onnx onnxscript.
"""

# ruff: noqa: E402  PyTorch is imported after the line that its threads depend on

from __future__ import annotations

import argparse
import gc
import io
import json
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from gpen_cli.device import Setup, cpu_count, settle_process

settle_process()  # as gpen does, before torch is imported; for every row

import torch
from safetensors.torch import save_file
from torch.utils.flop_counter import FlopCounterMode

from gpen_cli.models.gpen import Gpen, GpenConfig
from gpen_cli.models.stylegan2 import draw_start
from gpen_cli.models.textbook import textbook_gpen
from gpen_cli.options import ExportOptions
from gpen_cli.runtime.torch_gpen import TorchGpen
from gpen_cli.weights.find import FoundWeights, from_path
from gpen_cli.weights.load import load_gpen

SEED = 1
MATRIX = 4096


@dataclass(frozen=True)
class Row:
    """One way to restore one face. seconds: median a face; low, high: of the repeats; first: the very first call."""

    name: str
    precision: str
    batch: int
    seconds: float
    low: float
    high: float
    first: float
    ready: float
    """Seconds until the net could be called: load, compile, or load what was compiled."""


def drawn_weights(size: int, folder: Path) -> FoundWeights:
    """A weight file of the public architecture with drawn weights."""
    torch.manual_seed(SEED)
    net = Gpen(GpenConfig(size, channel_multiplier=1 if size > 512 else 2))
    draw_start(net)
    state = {name: value.contiguous() for name, value in net.state_dict().items()}
    for name in state:
        if ".to_rgb" in name and name.endswith("conv.weight"):
            state[name] = state[name] * 0.1  # answers about [-1, 1], as a trained net's
    path = folder / f"drawn-{size}.safetensors"
    save_file(state, path)
    return from_path(path)


def face(size: int, count: int) -> np.ndarray:
    """(N, S, S, 3) uint8: any picture will do, the work does not depend on it."""
    noise = np.random.RandomState(SEED).rand(count, size // 16, size // 16, 3)
    planes = torch.from_numpy(noise).permute(0, 3, 1, 2)
    smooth = torch.nn.functional.interpolate(planes, size=(size, size), mode="bicubic").clamp(0, 1)
    return (smooth.permute(0, 2, 3, 1) * 255).to(torch.uint8).numpy()


def matrix_rate(dtype: torch.dtype, repeats: int) -> float:
    """GFLOP/s of a square matrix product."""
    a, b = (torch.rand(MATRIX, MATRIX).to(dtype) for _ in range(2))
    _, times = timed(lambda: a @ b, repeats)
    return 2 * MATRIX**3 / float(np.median(times)) / 1e9


def timed(work: Callable[[], object], repeats: int) -> tuple[float, list[float]]:
    """(seconds of the first call, seconds of each of the others)."""
    times = []
    for _ in range(repeats + 1):
        begin = time.perf_counter()
        work()
        times.append(time.perf_counter() - begin)
    return times[0], times[1:]


def row(name: str, precision: str, batch: int, make: Callable[[], Callable[[], object]], repeats: int) -> Row:
    begin = time.perf_counter()
    with torch.inference_mode():
        work = make()
        ready = time.perf_counter() - begin
        first, times = timed(work, repeats)
    del work
    gc.collect()
    per_face = [value / batch for value in times]
    result = Row(name, precision, batch, float(np.median(per_face)), min(per_face), max(per_face), first / batch, ready)
    print(f"  {name} {precision} batch {batch}: {result.seconds:.3f} s a face", flush=True)
    return result


def onnx_work(model: bytes | str, crops: np.ndarray, threads: int) -> Callable[[], object]:
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    planes = (crops.transpose(0, 3, 1, 2).astype(np.float32) / 127.5) - 1
    return lambda: session.run(None, {"input": np.ascontiguousarray(planes)})


class Textbook(torch.nn.Module):
    """The textbook function as a module, for the exporter."""

    def __init__(self, state: dict[str, torch.Tensor]) -> None:
        super().__init__()
        self.state = state

    def forward(self, faces: torch.Tensor) -> torch.Tensor:
        return textbook_gpen(self.state, faces)


def textbook_export(state: dict[str, torch.Tensor], size: int) -> bytes:
    """The textbook net as ONNX (one face a pass), as PyTorch's own exporter draws it. Needs onnxscript."""
    program = torch.onnx.export(
        Textbook(state), (torch.zeros(1, 3, size, size),), dynamo=True, verbose=False, input_names=["input"],
        output_names=["output"],
    )  # fmt: skip
    assert program is not None
    stream = io.BytesIO()
    program.save(stream)
    return stream.getvalue()


def flops_of(weights: FoundWeights, size: int) -> float:
    """Floating point operations of one face (a multiply-add counts two), as PyTorch counts them in our form of the net."""
    net = load_gpen(weights.path)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        net(torch.zeros(1, 3, size, size))
    return float(counter.get_total_flops())


def measure(weights: FoundWeights, size: int, given: argparse.Namespace) -> list[Row]:
    crops = face(size, 1)
    planes = torch.from_numpy(crops).permute(0, 3, 1, 2).float() / 127.5 - 1
    state = {name: value.clone() for name, value in load_gpen(weights.path).state_dict().items()}
    threads, repeats = given.threads, given.repeats
    rows = [row("textbook, eager", "fp32", 1, lambda: lambda: textbook_gpen(state, planes), repeats)]
    rows.append(
        row(
            "onnxruntime, textbook export", "fp32", 1,
            lambda: onnx_work(textbook_export(state, size), crops, threads), repeats,
        )
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        from gpen_cli.export import export_net

        path = Path(folder) / "ours.onnx"
        export_net(weights, path, ExportOptions())
        rows.append(row("onnxruntime, our export", "fp32", 1, lambda: onnx_work(str(path), crops, threads), repeats))
    for runtime in ("eager", "compiled"):
        for precision in ("fp32", "bf16"):
            for batch in given.batch:
                setup = Setup("cpu", precision, batch, threads, runtime=runtime, compiled=runtime == "compiled")
                many = np.repeat(crops, batch, axis=0)

                def make(setup: Setup = setup, many: np.ndarray = many) -> Callable[[], object]:
                    net = TorchGpen(weights, setup)
                    return lambda: net.run(many)

                rows.append(row(f"gpen, {runtime}", precision, batch, make, repeats))
    return rows


def table(rows: list[Row], flops: float, rates: dict[str, float]) -> list[str]:
    textbook, other = rows[0].seconds, rows[1].seconds
    lines = [
        "| net and runtime | precision | batch | s a face (lowest to highest) | first call, s | ready after, s | GFLOP/s | "
        "share of the matrix product | × textbook | × onnxruntime on it |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for item in rows:
        rate = flops / item.seconds / 1e9
        lines.append(
            f"| {item.name} | {item.precision} | {item.batch} | {item.seconds:.3f} ({item.low:.3f} to {item.high:.3f}) | "
            f"{item.first:.2f} | {item.ready:.1f} | {rate:.0f} | {100 * rate / rates[item.precision]:.0f} % | "
            f"{textbook / item.seconds:.2f} | {other / item.seconds:.2f} |"
        )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=512, help="of the drawn net, px")
    parser.add_argument("--weights", type=Path, help="a GPEN weight file instead of drawn weights")
    parser.add_argument("--batch", type=int, nargs="+", default=[1])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=cpu_count())
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    with tempfile.TemporaryDirectory() as folder:
        weights = from_path(given.weights) if given.weights else drawn_weights(given.size, Path(folder))
        size = load_gpen(weights.path).config.size
        flops = flops_of(weights, size)
        dtypes = {"fp32": torch.float32, "bf16": torch.bfloat16}
        before = {name: matrix_rate(dtype, given.repeats) for name, dtype in dtypes.items()}
        rows = measure(weights, size, given)
        after = {name: matrix_rate(dtype, given.repeats) for name, dtype in dtypes.items()}
    rates = {name: max(before[name], after[name]) for name in dtypes}
    print(
        f"\n{weights.name}: {size} px, {flops / 1e9:.0f} GFLOP a face, {given.threads} threads, torch {torch.__version__}"
    )
    for name in dtypes:
        print(f"matrix product {MATRIX}², {name}: {before[name]:.0f} GFLOP/s before, {after[name]:.0f} after")
    print("\n".join(table(rows, flops, rates)))
    if given.json:
        content = {"flops": flops, "rates": rates, "rows": [asdict(item) for item in rows]}
        given.json.write_text(json.dumps(content, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
