"""What each learned term of the loss buys: python benchmarks/terms.py --faces DIR --start WEIGHTS --face-net FILE --output DIR

One training a row, all from the same weights, with the same faces and seed: pixels alone (``l1``, ``psnr``, ``ssim``), then
with the maps of the face recognition net, its descriptor, both, the maps of EfficientNet-lite0, and everything. Prints seconds
a step; then ``benchmarks/quality`` judges all of them beside the start. A row whose weights are there is not trained again.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

ROWS: Mapping[str, Mapping[str, float]] = {
    "pixels": {},
    "features": {"features": 1.0},
    "identity": {"identity": 3.0},
    "face-net": {"features": 1.0, "identity": 3.0},
    "lite0": {"perceptual": 1.0},
    "all": {"features": 1.0, "identity": 3.0, "perceptual": 1.0},
}
"""The learned terms of a row and their weights, those of ``gpen-open-256``; a term that is not named has none."""

TERMS = ("features", "identity", "perceptual")


def settings(row: str) -> str:
    """The row's training as TOML: the shipped net's first stage with other terms of the loss."""
    stage = (ROOT / "gpen_cli" / "train" / "configs" / "gpen-open-256.toml").read_text()
    lines = [line for line in stage.splitlines() if line.split(" = ")[0] not in TERMS]
    terms = [f"{term} = {ROWS[row].get(term, 0.0)}" for term in TERMS]
    lines[lines.index("[loss]") + 1 : lines.index("[loss]") + 1] = terms
    return "\n".join(line.replace('name = "gpen-open-256"', f'name = "{row}"') for line in lines) + "\n"


def train(row: str, asked: argparse.Namespace) -> Path:
    """Trains a row, where its weights are not there yet; returns them."""
    folder = asked.output / row
    weights: Path = folder / f"{row}.safetensors"
    if weights.exists():
        return weights
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "settings.toml"
    config.write_text(settings(row))
    command = [sys.executable, "-m", "gpen_cli", "train", "--config", str(config), "--start", str(asked.start)]
    command += ["--data", str(asked.faces / "train"), "--face-net", str(asked.face_net), "--output", str(folder)]
    command += ["--steps", str(asked.steps), "--rate", str(asked.rate), "--validate-every", str(asked.steps)]
    subprocess.run(command, check=True, cwd=ROOT)
    return weights


def seconds_a_step(weights: Path) -> float:
    """Median over the log's lines, compiling left out."""
    lines = (json.loads(line) for line in (weights.parent / "log.jsonl").read_text().splitlines())
    return statistics.median([line["seconds a step"] for line in lines if "seconds a step" in line][1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faces", type=Path, required=True, help="Folder with train/, val/ and val_mixed/.")
    parser.add_argument("--start", type=Path, required=True, help="A 256 px net that all rows go on from.")
    parser.add_argument("--face-net", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--rows", nargs="+", choices=list(ROWS), default=list(ROWS), help="Only these trainings.")
    parser.add_argument("--count", type=int, default=60, help="Validation faces that are judged.")
    parser.add_argument("--set", nargs="+", default=["val_mixed", "clean"], help="The judged sets.")
    asked = parser.parse_args()
    for name in ("faces", "start", "face_net", "output"):
        setattr(asked, name, getattr(asked, name).resolve())
    trained = [train(row, asked) for row in asked.rows]
    print("| row | s a step |\n|---|---|")
    for weights in trained:
        print(f"| {weights.stem} | {seconds_a_step(weights):.2f} |", flush=True)
    command = [sys.executable, "-m", "benchmarks.quality", "--faces", str(asked.faces), "--count", str(asked.count)]
    command += ["--set", *asked.set, "--output", str(asked.output / "quality")]
    command += ["--weights", str(asked.start), *map(str, trained)]
    subprocess.run(command, check=True, cwd=ROOT)


if __name__ == "__main__":
    main()
