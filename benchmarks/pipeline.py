"""A folder through ``gpen batch``: python benchmarks/pipeline.py [--photos 40] [--size 256|512] [--json FILE]

Photos of two megapixels with one to four faces are made from the two portraits that come with scikit-image and matplotlib. Rows:
the run itself (``--upscale 1 --format jpg``, guard on) against the net alone on as many crops, in this process; with ``--upscale
2``; with one reader and writer; one process a photo. Then ``--growth N``: a photo's cost and the memory at N/10 and at N photos.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
from generator import drawn_weights, face
from PIL import Image
from portraits import files_of

from gpen_cli.device import cpu_count
from gpen_cli.engine import build_engine
from gpen_cli.options import NetOptions, Options, RunOptions
from gpen_cli.runtime.choice import LANES_FROM

WIDTH, HEIGHT = 1632, 1224
SEED = 5
GPEN = [sys.executable, "-m", "gpen_cli"]
ALONE = 12
"""Passes of the net alone, of which the median counts."""


@dataclass(frozen=True)
class Run:
    """seconds: wall time; cpu: of all cores together; peak: resident bytes; faces: found; waits: the log's table of stages."""

    seconds: float
    cpu: float
    peak: int
    faces: int
    waits: str

    @property
    def busy(self) -> float:
        """Share of the cores' time that was used."""
        return self.cpu / (self.seconds * cpu_count())


def make_photos(folder: Path, count: int) -> None:
    """Photos of two megapixels, each with one to four blurred, compressed faces in front of a soft background."""
    dice = np.random.RandomState(SEED)
    portraits = [np.asarray(Image.open(path).convert("RGB"))[:480] for path in files_of(None)]
    for index in range(count):
        canvas = cv2.resize(
            dice.randint(60, 200, (6, 8, 3)).astype(np.uint8), (WIDTH, HEIGHT), interpolation=cv2.INTER_CUBIC
        )
        faces = 1 + index % 4
        for place in range(faces):
            portrait = portraits[dice.randint(len(portraits))]
            scale = dice.uniform(0.55, 0.8)
            small = cv2.resize(portrait, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)
            small = cv2.GaussianBlur(small, (0, 0), dice.uniform(1.0, 2.0))
            left, top = 10 + place * 405, dice.randint(10, HEIGHT - small.shape[0] - 10)
            canvas[top : top + small.shape[0], left : left + min(small.shape[1], 400)] = small[:, :400]
        Image.fromarray(canvas).save(folder / f"{index:05d}.jpg", quality=70)


def gpen(arguments: list[str], report: Path | None = None) -> Run:
    """Runs a command to its end and measures it. Its children's time counts."""
    extra = ["--report", str(report)] if report else []
    with tempfile.TemporaryFile("w+") as log:
        begin = time.perf_counter()
        process = subprocess.Popen([*GPEN, *arguments, *extra], stdout=subprocess.DEVNULL, stderr=log)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - begin
        log.seek(0)
        text = log.read()
    if status != 0:
        raise SystemExit(f"gpen failed: {text[-2000:]}")
    found = re.search(
        r"(\d+) faces restored, (\d+) left as they were", text
    )  # the guard keeps most faces from drawn weights
    table = "\n".join(line for line in text.splitlines() if re.match(r"^(stage|\w[\w ]*\s+\d)", line))
    return Run(
        seconds,
        usage.ru_utime + usage.ru_stime,
        usage.ru_maxrss * 1024,
        int(found[1]) + int(found[2]) if found else 0,
        table,
    )


def alone(net_flags: dict[str, object], faces: int) -> float:
    """Seconds that the net alone needs for so many faces, from the median of a few."""
    engine = build_engine(Options(net=NetOptions(**net_flags), run=RunOptions(aligned=True)))  # type: ignore[arg-type]
    net = engine.net(engine.choices[0].name)
    crops = face(net.crop_size, 1)
    times = []
    for _ in range(ALONE + 2):
        begin = time.perf_counter()
        net.run(crops)
        times.append(time.perf_counter() - begin)
    return faces * float(np.median(times[2:]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--photos", type=int, default=40)
    parser.add_argument(
        "--size", type=int, choices=(256, 512), default=256, help="256: the embedded net; 512: drawn weights"
    )
    parser.add_argument(
        "--compile", choices=("auto", "always", "never"), default="always", help="as gpen batch takes it"
    )
    parser.add_argument("--only-first", action="store_true", help="only the run itself and the net alone")
    parser.add_argument("--growth", type=int, help="also runs of N/10 and N photos (embedded net)")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        results = measure(Path(name), given)
    if given.json:
        given.json.write_text(json.dumps(results, indent=1), encoding="utf-8")


def fill_cache(photos: Path, few: Path, command: list[str]) -> None:
    """Compiles, where the run to be measured would, for as many photos as go in lanes: what is measured finds a warm cache."""
    few.mkdir()
    for path in sorted(photos.iterdir())[:LANES_FROM]:
        shutil.copy(path, few)
    gpen([command[0], str(few), str(few.with_name("few_out")), *command[3:]])


def measure(folder: Path, given: argparse.Namespace) -> dict[str, dict[str, float]]:
    photos, out = folder / "in", folder / "out"
    photos.mkdir()
    make_photos(photos, given.photos)
    net_flags: dict[str, object] = {"compile": given.compile}
    weights = []
    if given.size == 512:
        path = drawn_weights(512, folder).path
        net_flags["weights"], weights = path, ["--weights", str(path)]
    base = ["batch", str(photos), str(out), "--format", "jpg", "--overwrite", "--log-level", "debug", *weights]
    base += ["--compile", given.compile, "--guard", "on"]
    if given.size == 512:
        base += ["--sharp-faces", "restore"]
    results: dict[str, dict[str, float]] = {}
    if given.compile != "never":
        fill_cache(photos, folder / "few", base)

    def tell(what: str, run: Run, count: int) -> None:
        results[what] = {"seconds": run.seconds, "cpu": run.cpu, "peak": run.peak, "faces": run.faces}
        print(
            f"| {what} | {run.seconds:.1f} | {count / run.seconds:.2f} | {run.faces / run.seconds:.2f} | "
            f"{100 * run.busy:.0f} % | {run.peak / 2**20:.0f} |",
            flush=True,
        )

    print(
        f"{given.photos} photos of {WIDTH}x{HEIGHT}, {given.size} px net, --compile {given.compile}, {cpu_count()} cores\n"
    )
    gpen([*base[:2], str(out), "--dry-run"])  # files into memory
    if given.compile == "always":
        gpen(["enhance", str(next(photos.iterdir())), "-o", str(folder / "x.jpg"), "--compile", "always", *weights])
    print("| run | s | photos a second | faces a second | cores busy | peak MB |\n|---|---|---|---|---|---|")
    first = gpen([*base, "--upscale", "1"])
    tell("gpen batch --upscale 1", first, given.photos)
    net_alone = alone(net_flags, first.faces)
    results["net alone"] = {"seconds": net_alone}
    print(f"| the net alone on {first.faces} crops | {net_alone:.1f} | | {first.faces / net_alone:.2f} | | |")
    if not given.only_first:
        tell("gpen batch --upscale 2", gpen([*base, "--upscale", "2"]), given.photos)
        tell("gpen batch --upscale 1 --workers 1", gpen([*base, "--upscale", "1", "--workers", "1"]), given.photos)
        tell("one process a photo (4 photos)", one_by_one(photos, folder, weights, given.compile), 4)
    if given.growth:
        shutil.rmtree(photos)
        photos.mkdir()
        for count in (given.growth // 10, given.growth):
            make_photos(photos, count)
            tell(f"{count} photos", gpen([*base, "--upscale", "1"]), count)
    print(f"\nthe run over the net alone: {first.seconds / net_alone:.2f}\n\n{first.waits}")
    return results


def one_by_one(photos: Path, folder: Path, weights: list[str], compile_flag: str) -> Run:
    """What a shell loop over ``gpen enhance`` costs."""
    runs = [
        gpen(["enhance", str(path), "-o", str(folder / f"{path.stem}-one.jpg"), "--compile", compile_flag, *weights])
        for path in sorted(photos.iterdir())[:4]
    ]
    faces = sum(1 + index % 4 for index in range(4))
    return Run(sum(run.seconds for run in runs), sum(run.cpu for run in runs), max(run.peak for run in runs), faces, "")


if __name__ == "__main__":
    main()
