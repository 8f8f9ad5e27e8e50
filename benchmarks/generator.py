"""One face through the net, by every runtime, in one run: python benchmarks/generator.py [--quick] [--size 512] [--json FILE]

Rows: the textbook net in eager fp32 (the stand-in for the public code), onnxruntime on its export and on ours (fp32, fp16, int8),
gpen's own runtimes; on a machine with an NVIDIA GPU, its rows too. Weights are drawn (or --weights FILE). Each row is measured in
a process of its own (generator_child.py):

- s a face: median of --repeats passes after the first, and the spread; ratios are within this one run;
- first call: from loading the net (libraries imported) to its first answer; of a compiled net with the compiling, and after the
  slash with its package in the cache;
- peak memory: above that of the process before it loaded the net; on a GPU, of the GPU;
- utilisation during the passes: CPU seconds over seconds times cores; on a GPU what its driver tells.

The rate is held against a matrix product of the same precision, measured before and after. --quick: 256 px, compiled in bf16
only, meant to take under three minutes on two quiet cores. Needs: pip install onnx onnxscript.
"""

# ruff: noqa: E402  PyTorch is imported after the line that its threads depend on

from __future__ import annotations

import argparse
import io
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from gpen_cli.device import cpu_count, settle_process

settle_process()  # as gpen does, before torch is imported

import torch
from generator_child import Task, timed
from safetensors.torch import save_file
from torch.utils.flop_counter import FlopCounterMode

from gpen_cli.models.gpen import Gpen, GpenConfig
from gpen_cli.models.stylegan2 import draw_start
from gpen_cli.models.textbook import textbook_gpen
from gpen_cli.options import ExportOptions
from gpen_cli.weights.find import FoundWeights, from_path
from gpen_cli.weights.load import load_gpen

SEED = 1
MATRIX = 4096
CHILD = Path(__file__).resolve().with_name("generator_child.py")
TEXTBOOK, FOREIGN, EAGER = "textbook, eager", "onnxruntime, textbook export", "gpen, eager"


@dataclass(frozen=True)
class Row:
    """One way to restore one face. seconds: median a face; low, high: of the repeats; peak, used: see ``Figures``."""

    name: str
    precision: str
    batch: int
    device: str = "cpu"
    seconds: float = 0.0
    low: float = 0.0
    high: float = 0.0
    ready: float = 0.0
    """Seconds until the net could be called: load, compile."""
    first: float = 0.0
    """Seconds from loading to the first answer."""
    first_warm: float | None = None
    """The same where the compiled net lies in the cache already."""
    peak: float | None = None
    used: float | None = None
    note: str = ""
    """Why there are no figures."""


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
    _, *times = timed(lambda: a @ b, repeats + 1)
    return 2 * MATRIX**3 / float(np.median(times)) / 1e9


class Textbook(torch.nn.Module):
    """The textbook function as a module, for the exporter."""

    def __init__(self, state: dict[str, torch.Tensor]) -> None:
        super().__init__()
        self.state = state

    def forward(self, faces: torch.Tensor) -> torch.Tensor:
        return textbook_gpen(self.state, faces)


def textbook_export(weights: FoundWeights, size: int) -> bytes:
    """The textbook net as ONNX (one face a pass), as PyTorch's own exporter draws it. Needs onnxscript."""
    state = {name: value.clone() for name, value in load_gpen(weights.path).state_dict().items()}
    with torch.inference_mode():
        program = torch.onnx.export(
            Textbook(state).eval(), (torch.zeros(1, 3, size, size),), dynamo=True, verbose=False, input_names=["input"],
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


def onnx_files(weights: FoundWeights, size: int, folder: Path) -> dict[str, Path]:
    """``textbook``, ``fp32``, ``fp16``, ``int8`` -> the file. int8 is calibrated on two drawn pictures: the work is the same."""
    import onnx

    from gpen_cli.export import export_net
    from gpen_cli.runtime.onnx_int8 import quantized

    files = {name: folder / f"{name}.onnx" for name in ("textbook", "fp32", "fp16", "int8")}
    files["textbook"].write_bytes(textbook_export(weights, size))
    for precision in ("fp32", "fp16"):
        export_net(weights, files[precision], ExportOptions(precision=precision))
    planes = face(size, 2).transpose(0, 3, 1, 2).astype(np.float32) / 127.5 - 1
    onnx.save(quantized(onnx.load(files["fp32"]), list(np.split(planes, 2))), files["int8"])
    return files


def tasks(weights: FoundWeights, size: int, given: argparse.Namespace, folder: Path) -> Iterator[Task]:
    """What is measured, in the order of the table."""
    files = onnx_files(weights, size, folder)
    for batch in {1, *given.batch}:
        np.save(folder / f"crops-{batch}.npy", face(size, batch))

    def task(name: str, kind: str, precision: str, batch: int, file: Path, **more: object) -> Task:
        crops = str(folder / f"crops-{batch}.npy")
        return Task(name, kind, precision, batch, str(file), crops, given.threads, given.repeats, **more)

    yield task(TEXTBOOK, "textbook", "fp32", 1, weights.path)
    yield task(FOREIGN, "onnxruntime", "fp32", 1, files["textbook"])
    for batch in given.batch:
        for precision in ("fp32", "fp16", "int8"):
            yield task("onnxruntime, our export", "onnxruntime", precision, batch, files[precision])
        for precision in ("fp32", "bf16"):
            yield task(EAGER, "gpen", precision, batch, weights.path)
        for precision in ("bf16",) if given.quick else ("fp32", "bf16"):
            yield task("gpen, compiled", "gpen", precision, batch, weights.path, runtime="compiled", compiled=True)
        if not torch.cuda.is_available():
            continue
        for runtime, precision in (("eager", "fp32"), ("eager", "bf16"), ("cuda-graph", "bf16")):
            yield task(f"gpen, {runtime}", "gpen", precision, batch, weights.path, runtime=runtime, device="cuda:0")
        for provider, precision in gpu_providers():
            yield task(
                f"onnxruntime {provider}, our export", "onnxruntime", precision, batch,
                files["fp32" if provider == "tensorrt" else precision],  # TensorRT goes to fp16 by itself
                runtime="onnx", device="cuda:0", provider=provider,
            )  # fmt: skip


def gpu_providers() -> list[tuple[str, str]]:
    """(provider, precision) of what this machine's onnxruntime was built with."""
    import onnxruntime

    here = onnxruntime.get_available_providers()
    found = [("cuda", "fp32"), ("cuda", "fp16")] if "CUDAExecutionProvider" in here else []
    return found + ([("tensorrt", "fp16")] if "TensorrtExecutionProvider" in here else [])


def measured(task: Task, cache: Path, limit: float) -> Row:
    """The row of a task; one that fails, or takes longer than ``limit`` seconds, costs no other."""
    row = Row(task.name, task.precision, task.batch, task.device)
    try:
        cold = child(task, cache, limit) if task.compiled else None
        found = child(task, cache, limit)
    except subprocess.TimeoutExpired:
        return replace(row, note=f"took over {limit:.0f} s")
    except subprocess.CalledProcessError as error:
        return replace(row, note=f"failed: {(error.stderr.strip().splitlines() or ['?'])[-1][:150]}")
    a_face = [value / task.batch for value in found["seconds"]]
    begun = cold or found
    return replace(
        row, seconds=float(np.median(a_face)), low=min(a_face), high=max(a_face), peak=found["peak"], used=found["used"],
        ready=begun["ready"], first=begun["ready"] + begun["first"],
        first_warm=found["ready"] + found["first"] if cold else None,
    )  # fmt: skip


def child(task: Task, cache: Path, limit: float) -> dict:
    command = [sys.executable, str(CHILD), json.dumps(asdict(task))]
    environment = {**os.environ, "GPEN_CACHE_DIR": str(cache), "TORCHINDUCTOR_CACHE_DIR": str(cache / "inductor")}
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=limit, env=environment)
    return json.loads(done.stdout.splitlines()[-1])


def deployment_table(rows: list[Row]) -> list[str]:
    """For docs/deployment.md. Ratios: times as fast as gpen's and as the textbook net's eager fp32 on the CPU, in this run."""
    lines = [
        "| configuration | precision | batch | s a face (lowest to highest) | first call, s | peak memory, MB | utilisation | "
        "× gpen eager fp32 | × textbook eager fp32 |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for item in rows:
        where = "" if item.device == "cpu" else f" on {item.device}"
        head = f"| {item.name}{where} | {item.precision} | {item.batch} |"
        if item.note:
            lines.append(f"{head} {item.note} |" + " |" * 5)
            continue
        first = f"{item.first:.1f}" if item.first_warm is None else f"{item.first:.1f} / {item.first_warm:.1f}"
        lines.append(
            f"{head} {item.seconds:.3f} ({item.low:.3f} to {item.high:.3f}) | {first} | "
            f"{'–' if item.peak is None else f'{item.peak:.0f}'} | {'–' if item.used is None else f'{100 * item.used:.0f} %'} | "
            f"{times(rows, EAGER, item)} | {times(rows, TEXTBOOK, item)} |"
        )
    return lines


def times(rows: list[Row], name: str, item: Row) -> str:
    """How many times as fast ``item`` is as the fp32 row of that name on the CPU."""
    base = next((row.seconds for row in rows if (row.name, row.precision, row.device) == (name, "fp32", "cpu")), 0.0)
    return f"{base / item.seconds:.2f}" if base else "–"


def performance_table(rows: list[Row], flops: float, rates: dict[str, float]) -> list[str]:
    """For docs/performance.md: how much of what the CPU can. No product of matrices is measured in fp16 and int8."""
    lines = [
        "| net and runtime | precision | batch | s a face (lowest to highest) | ready after, s | GFLOP/s | "
        "share of the matrix product | × textbook | × onnxruntime on it |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for item in rows:
        if item.note or item.device != "cpu":
            continue
        rate = flops / item.seconds / 1e9
        share = f"{100 * rate / rates[item.precision]:.0f} %" if item.precision in rates else "–"
        lines.append(
            f"| {item.name} | {item.precision} | {item.batch} | {item.seconds:.3f} ({item.low:.3f} to {item.high:.3f}) | "
            f"{item.ready:.1f} | {rate:.0f} | {share} | {times(rows, TEXTBOOK, item)} | {times(rows, FOREIGN, item)} |"
        )
    return lines


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="256 px, compiled in bf16 only")
    parser.add_argument("--size", type=int, help="of the drawn net, px (default: 512, with --quick 256)")
    parser.add_argument("--weights", type=Path, help="a GPEN weight file instead of drawn weights")
    parser.add_argument("--batch", type=int, nargs="+", default=[1])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=cpu_count())
    parser.add_argument("--limit", type=float, default=600, help="seconds a row may take")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def main() -> None:
    given = parsed()
    begin = time.monotonic()
    torch.set_num_threads(given.threads)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        weights = from_path(given.weights) if given.weights else drawn_weights(
            given.size or (256 if given.quick else 512), folder
        )  # fmt: skip
        size = load_gpen(weights.path).config.size
        flops = flops_of(weights, size)
        dtypes = {"fp32": torch.float32, "bf16": torch.bfloat16}
        before = {name: matrix_rate(dtype, given.repeats) for name, dtype in dtypes.items()}
        rows = []
        for task in tasks(weights, size, given, folder):
            rows.append(measured(task, folder / "cache", given.limit))
            told = rows[-1].note or f"{rows[-1].seconds:.3f} s a face"
            print(f"  {task.name} {task.precision} batch {task.batch}: {told}", file=sys.stderr, flush=True)
        after = {name: matrix_rate(dtype, given.repeats) for name, dtype in dtypes.items()}
    rates = {name: max(before[name], after[name]) for name in dtypes}
    import onnxruntime

    print(
        f"{weights.name}: {size} px, {flops / 1e9:.0f} GFLOP a face, {given.threads} threads, torch {torch.__version__}, "
        f"onnxruntime {onnxruntime.__version__}, medians of {given.repeats}; {time.monotonic() - begin:.0f} s in all"
    )
    for name in dtypes:
        print(f"matrix product {MATRIX}², {name}: {before[name]:.0f} GFLOP/s before, {after[name]:.0f} after")
    print("\n" + "\n".join(deployment_table(rows)))
    print("\n" + "\n".join(performance_table(rows, flops, rates)))
    if given.json:
        content = {"flops": flops, "rates": rates, "rows": [asdict(item) for item in rows]}
        given.json.write_text(json.dumps(content, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
