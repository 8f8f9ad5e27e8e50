"""What low precision and each runtime change: python benchmarks/precision.py DEGRADED ORIGINALS [--weights FILE] [--json FILE]

Folders of aligned faces with equal names (any sub-folders): ../shared/faces/val_mixed ../shared/faces/val. Each runtime restores
every degraded face; rows give the PSNR of its answers to eager fp32's (of all pixels, and of the worst face), the change of PSNR
to the sharp originals, and the mean shift of each channel in levels.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import torch
from PIL import Image
from portraits import SUFFIXES, psnr

from gpen_cli.device import Setup, cpu_count, settle_process
from gpen_cli.export import cached_export
from gpen_cli.runtime import make_net
from gpen_cli.runtime.packages import supported
from gpen_cli.runtime.protocol import CropNet
from gpen_cli.weights.find import FoundWeights, from_path

EMBEDDED = Path(__file__).resolve().parent.parent / "pretrained_models" / "gpen-open-256.safetensors"


def pairs(degraded: Path, originals: Path, size: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """(degraded, original), both (S, S, 3) uint8, matched by file stem."""
    known = {path.stem: path for path in sorted(originals.rglob("*")) if path.suffix.lower() in SUFFIXES}
    found = [path for path in sorted(degraded.rglob("*")) if path.suffix.lower() in SUFFIXES and path.stem in known]
    return [(_at(path, size), _at(known[path.stem], size)) for path in found]


def _at(path: Path, size: int) -> np.ndarray:
    pixels = np.asarray(Image.open(path).convert("RGB"))
    return pixels if pixels.shape[0] == size else cv2.resize(pixels, (size, size), interpolation=cv2.INTER_AREA)


def nets(weights: FoundWeights, device: str) -> dict[str, Callable[[], CropNet]]:
    """Name -> how to make it. The first is what the others are held against."""
    plain = Setup(device, "fp32", 1, cpu_count())
    setups = {"eager fp32": plain, "eager bf16": replace(plain, precision="bf16")}
    setups["eager fp16"] = replace(plain, precision="fp16")
    if device == "cpu" and supported():
        for precision in ("fp32", "bf16"):
            setups[f"compiled {precision}"] = replace(plain, precision=precision, runtime="compiled", compiled=True)
    if device.startswith("cuda"):
        setups["cuda-graph bf16"] = replace(plain, precision="bf16", runtime="cuda-graph")
    found: dict[str, Callable[[], CropNet]] = {
        name: (lambda setup=setup: make_net(weights, setup)) for name, setup in setups.items()
    }
    for precision in ("fp32", "fp16"):
        setup = replace(plain, runtime="onnx", provider="cpu", precision=precision)
        found[f"onnx {precision}"] = lambda setup=setup, kind=precision: make_net(cached_export(weights, kind), setup)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("degraded", type=Path)
    parser.add_argument("originals", type=Path)
    parser.add_argument("--weights", type=Path, default=EMBEDDED)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    settle_process()
    torch.set_num_threads(cpu_count())
    weights = from_path(given.weights)
    exact: list[np.ndarray] = []
    rows = {}
    print(
        "| runtime | PSNR to eager fp32: all, worst face, dB | PSNR to the original, change, dB | shift R, G, B, levels |"
    )
    print("|---" * 4 + "|")
    for name, make in nets(weights, given.device).items():
        net = make()
        faces = pairs(given.degraded, given.originals, net.crop_size)
        answers = [net.run(crop[None])[0] for crop, _ in faces]
        exact = exact or answers
        own = np.mean([psnr(answer, original) for answer, (_, original) in zip(answers, faces, strict=True)])
        base = np.mean([psnr(answer, original) for answer, (_, original) in zip(exact, faces, strict=True)])
        each = [psnr(answer, other) for answer, other in zip(answers, exact, strict=True)]
        whole = psnr(np.stack(answers), np.stack(exact))
        shift = (np.stack(answers).astype(float) - np.stack(exact).astype(float)).mean(axis=(0, 1, 2))
        rows[name] = {"psnr": whole, "worst": min(each), "change": own - base, "shift": shift.tolist()}
        print(
            f"| {name} | {whole:.1f}, {min(each):.1f} | {own:.2f}, {own - base:+.3f} | "
            f"{', '.join(f'{value:+.3f}' for value in shift)} |",
            flush=True,
        )
    print(f"\n{len(faces)} faces, {net.crop_size} px")
    if given.json:
        given.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
