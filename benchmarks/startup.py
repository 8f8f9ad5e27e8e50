"""From the command to the first picture: python benchmarks/startup.py [--repeats 5] [--json FILE]

Whole commands, each in a fresh process, medians; then where the time goes. The first round of each is thrown away (files come
from the disk then). The compiled row needs a warm cache, which the thrown-away round fills (a minute the first time).
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from generator import drawn_weights

ROOT = Path(__file__).resolve().parent.parent
SHORT = 13
"""Photos: the longest run that takes the ONNX form by itself."""
PHOTO = ROOT / "examples" / "astronaut.jpg"

FIRST_FACE = """
import sys, time
from pathlib import Path
from gpen_cli.options import NetOptions, Options, RunOptions
from gpen_cli.engine import build_engine
import numpy as np
engine = build_engine(Options(net=NetOptions(weights=Path({weights!r}), **{flags!r}), run=RunOptions(aligned=True)))
net = engine.net(engine.choices[0].name)
net.run(np.zeros((1, net.crop_size, net.crop_size, 3), np.uint8))
"""

LEAVE = "os._exit(0)"
OWN_END = "from gpen_cli.cli.main import run; run()"
"""As ``python -m gpen_cli``, without ``gpen_cli.ending``."""

STAGES = """
import time
begin = time.perf_counter()
def lap(name):
    global begin
    now = time.perf_counter()
    print(name, now - begin)
    begin = time.perf_counter()
import numpy
lap("numpy")
import cv2
lap("cv2")
import PIL.Image
import gpen_cli.pipeline
lap("gpen")
import torch
lap("torch")
from gpen_cli.engine import build_engine
from gpen_cli.options import Options
engine = build_engine(Options())
lap("detector (onnxruntime), net found")
net = engine.net(engine.choices[0].name)
lap("net loaded")
net.run(numpy.zeros((1, 256, 256, 3), numpy.uint8))
lap("first pass")
net.run(numpy.zeros((1, 256, 256, 3), numpy.uint8))
lap("second pass")
"""


def timed(command: list[str], repeats: int) -> list[float]:
    times = []
    for _ in range(repeats + 1):
        begin = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        times.append(time.perf_counter() - begin)
    return times[1:]


def commands(folder: Path) -> dict[str, list[str]]:
    gpen = [sys.executable, "-m", "gpen_cli"]
    out = str(folder / "out.png")
    enhance = [*gpen, "enhance", str(PHOTO), "-o", out, "--overwrite"]
    large = str(drawn_weights(512, folder).path)
    found = {
        "gpen --help": [*gpen, "--help"],
        "python -c 'import torch'": [sys.executable, "-c", "import torch"],
        "the same, left at once": [sys.executable, "-c", f"import os, torch; {LEAVE}"],
        "and imported without the garbage collector": [
            sys.executable,
            "-c",
            f"import gc, os; gc.disable(); import torch; {LEAVE}",
        ],
        "gpen enhance (onnx: a short run)": enhance,
        "gpen enhance --runtime eager": [*enhance, "--runtime", "eager"],
        "the same, with Python's own end": [sys.executable, "-c", OWN_END, *enhance[3:], "--runtime", "eager"],
    }
    photos = folder / "photos"
    photos.mkdir()
    for number in range(SHORT):
        shutil.copy(PHOTO, photos / f"{number:02}.jpg")
    batch = [*gpen, "batch", str(photos), str(folder / "restored"), "--overwrite", "--quiet"]
    found[f"gpen batch, {SHORT} small photos (onnx: a short run)"] = batch
    found[f"gpen batch, {SHORT} small photos, --runtime eager"] = [*batch, "--runtime", "eager"]
    for name, flags in (("eager", {"runtime": "eager"}), ("compiled, warm cache", {"compile": "always"})):
        code = FIRST_FACE.format(weights=large, flags=flags)
        found[f"first face of a 512 px net, {name}"] = [sys.executable, "-c", code]
    return found


def stages(repeats: int) -> dict[str, float]:
    """Name -> median seconds, in the order they happen."""
    runs: list[dict[str, float]] = []
    for _ in range(repeats + 1):
        done = subprocess.run([sys.executable, "-c", STAGES], check=True, capture_output=True, text=True)
        pairs = [line.rsplit(" ", 1) for line in done.stdout.splitlines()]
        runs.append({name: float(value) for name, value in pairs})
    return {name: float(np.median([run[name] for run in runs[1:]])) for name in runs[0]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    print("| command | s, median (lowest to highest) |\n|---|---|")
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, command in commands(Path(folder)).items():
            times = timed(command, given.repeats)
            results[name] = times
            print(f"| {name} | {np.median(times):.2f} ({min(times):.2f} to {max(times):.2f}) |", flush=True)
    parts = stages(given.repeats)
    print("\n| `gpen enhance`, embedded net, eager | s |\n|---|---|")
    for name, seconds in parts.items():
        print(f"| {name} | {seconds:.2f} |")
    if given.json:
        given.json.write_text(json.dumps({"commands": results, "stages": parts}, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
