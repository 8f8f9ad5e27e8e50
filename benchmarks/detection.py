"""How long finding faces takes, and how well it does: python benchmarks/detection.py [--det-size N]

Time needs no file of ours: a 12-megapixel crowd is tiled from matplotlib's Grace Hopper, another photo is her portrait
enlarged. Goal: at most 0.3 s a photo on two cores. The figures of docs/detection.md come from the other parts:

  --photos FOLDER [--draw FOLDER]   faces kept and rejected in each photo, drawn into PNGs
  --turned FOLDER                   photos turned three ways: does --try-rotations set them right?
  --sizes FOLDER                    portraits shown at many sizes and mirrored: where are landmarks exact?
"""

from __future__ import annotations

import argparse
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import cv2
import numpy as np
from PIL import Image

from gpen_cli.data import Face, UInt8Image
from gpen_cli.detect.bundled import BundledDetector, embedded_graph
from gpen_cli.detect.retinaface import MEAN_RGB, decode, net_input, priors
from gpen_cli.detect.search import Found, find_faces
from gpen_cli.options import FaceOptions

SIZE = (4000, 3000)
"""12 megapixels."""


class Stopwatch:
    """A detector that passes everything on and adds up the seconds spent in it."""

    name = "stopwatch"

    def __init__(self, detector: BundledDetector) -> None:
        self.detector = detector
        self.seconds = 0.0
        self.largest: UInt8Image = np.zeros((1, 1, 3), np.uint8)

    def detect(self, pixels: UInt8Image, threshold: float) -> list[Face]:
        begin = time.perf_counter()
        faces = self.detector.detect(pixels, threshold)
        self.seconds += time.perf_counter() - begin
        if pixels.size > self.largest.size:
            self.largest = pixels
        return faces


def portrait() -> UInt8Image:
    spec = find_spec("matplotlib")
    assert spec is not None
    assert spec.origin is not None
    return np.asarray(Image.open(Path(spec.origin).parent / "mpl-data/sample_data/grace_hopper.jpg").convert("RGB"))


def photos() -> dict[str, UInt8Image]:
    """(3000, 4000, 3) each: 77 faces of about 160 px; one face of about 1100 px."""
    face = portrait()
    small = cv2.resize(face, (364, 429), interpolation=cv2.INTER_AREA)
    crowd = np.tile(small, (7, 11, 1))[: SIZE[1], : SIZE[0]]
    large = cv2.resize(face, (2560, 3000), interpolation=cv2.INTER_CUBIC)
    return {"crowd": np.ascontiguousarray(crowd), "portrait": np.pad(large, ((0, 0), (720, 720), (0, 0)), mode="edge")}


def median_seconds(work: Callable[[], object], repeats: int) -> float:
    work()  # the first call fills caches and memory pools
    seconds = []
    for _ in range(repeats):
        begin = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds)


def report(photo: UInt8Image, name: str, *, threads: int, options: FaceOptions, repeats: int) -> None:
    cv2.setNumThreads(threads)
    watch = Stopwatch(BundledDetector(threads))
    found = find_faces(watch, photo, options)
    watch.seconds = 0.0
    total = median_seconds(lambda: find_faces(watch, photo, options), repeats)
    detect = watch.seconds / (repeats + 1)

    planes = net_input(watch.largest)
    size = planes.shape[3], planes.shape[2]
    answers = [answer[0] for answer in watch.detector._session.run(["loc", "conf", "landmarks"], {"input": planes})]
    decoding = median_seconds(lambda: decode(*answers, input_size=size, threshold=options.det_threshold), repeats)
    making = median_seconds(lambda: net_input(watch.largest), repeats)
    print(
        f"{name:9} {threads} thread(s): {total:.3f} s, {len(found.faces):3d} faces; "
        f"scaling and merging {total - detect:.3f}, net {detect - decoding - making:.3f}, "
        f"net input {making:.3f}, decode {decoding:.4f} ({100 * decoding / total:.1f} %)"
    )


def pictures(folder: Path) -> dict[str, UInt8Image]:
    return {file.name: np.asarray(Image.open(file).convert("RGB")) for file in sorted(folder.glob("*.jpg"))}


def count(folder: Path, target: Path | None, options: FaceOptions) -> None:
    """Faces a photo. Drawn: kept green, rejected red, scores under 0.98 written."""
    detector, total = BundledDetector(2), 0
    for name, photo in pictures(folder).items():
        found = find_faces(detector, photo, options)
        total += len(found.faces)
        print(f"{name}: {len(found.faces)} faces; rejected: {[reason for _, reason in found.rejected]}")
        if target is not None:
            target.mkdir(parents=True, exist_ok=True)
            Image.fromarray(drawn(photo, found)).save(target / f"{Path(name).stem}.png")
    print(f"{total} faces")


def drawn(photo: UInt8Image, found: Found) -> UInt8Image:
    canvas = photo.copy()
    for face, colour in [(f, (0, 255, 0)) for f in found.faces] + [(f, (255, 0, 0)) for f, _ in found.rejected]:
        x0, y0, x1, y1 = (round(float(side)) for side in face.box)
        cv2.rectangle(canvas, (x0, y0), (x1, y1), colour, 1)
        for x, y in face.landmarks:
            cv2.circle(canvas, (round(float(x)), round(float(y))), 1 + round(face.side / 60), (255, 255, 0), -1)
        if face.score < 0.98:
            cv2.putText(canvas, f"{face.score:.2f}", (x0, y0 - 2), 0, 0.4, (255, 0, 0), 1)
    return canvas


def turn(folder: Path, options: FaceOptions) -> None:
    """Each photo in four positions: how many come out the right way up, without and with ``--try-rotations``."""
    detector = BundledDetector(2)
    photos = pictures(folder)
    for quarters in range(4):
        right = [
            find_faces(detector, np.ascontiguousarray(np.rot90(photo, quarters)), replace(options, try_rotations=True))
            for photo in photos.values()
        ]
        good = sum(found.turned == 90 * quarters and bool(found.faces) for found in right)
        print(f"turned {90 * quarters:3d} degrees: {good} of {len(photos)} recognised")


def measure_sizes(folder: Path) -> None:
    """Root mean square deviation of landmarks from their median over good sizes, as a share of the box's side."""
    detector, random = BundledDetector(2), np.random.default_rng(0)
    sides = (24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 640)
    seen: dict[int, list[np.ndarray]] = {side: [] for side in sides}
    tries, shifts = 6, []
    for photo in pictures(folder).values():
        face = max(find_faces(detector, photo, FaceOptions()).faces, key=lambda one: one.side)
        views = {side: [glance(detector, photo, face, side, random) for _ in range(tries)] for side in sides}
        truth = np.median([one for side in (96, 128, 192, 256) for one in views[side] if one is not None], axis=0)
        for side in sides:
            seen[side] += [one - truth for one in views[side] if one is not None]
        even = np.ascontiguousarray(photo[:, : photo.shape[1] // 32 * 32])  # no padding: symmetric for the net
        shifts += mirror_shift(detector, even)
    for side in sides:
        rms = np.sqrt(np.mean(np.square(seen[side]))) if seen[side] else np.nan
        found = len(seen[side]) / (tries * len(pictures(folder)))
        print(f"{side:4d} px in the net: found {100 * found:3.0f} %, landmarks off by {100 * rms:.1f} % of the side")
    print(f"mirrored against unmirrored: landmarks shifted by {np.mean(shifts) / 2:+.2f} px to the right")


def glance(
    detector: BundledDetector, photo: UInt8Image, face: Face, side: int, random: np.random.Generator
) -> np.ndarray | None:
    """(5, 2) landmarks in units of the face's side, seen with its box ``side`` px large at a random place, or None."""
    factor = side / face.side
    size = round(photo.shape[1] * factor), round(photo.shape[0] * factor)
    view = cv2.resize(photo, size, interpolation=cv2.INTER_AREA if factor < 1 else cv2.INTER_LINEAR)
    x, y = (int(place) for place in random.integers(16, 64, 2))
    view = cv2.copyMakeBorder(view, y, 96 - y, x, 96 - x, cv2.BORDER_CONSTANT, value=MEAN_RGB)
    exact = np.array([size[0] / photo.shape[1], size[1] / photo.shape[0]])
    for one in detector.detect(view, 0.9):
        points = ((one.landmarks - [x, y] + 0.5) / exact - 0.5 - face.landmarks) / face.side
        if np.abs(points).max() < 0.3 and 0.5 < one.side / side < 2:
            return points
    return None


def mirror_shift(detector: BundledDetector, photo: UInt8Image) -> list[float]:
    """Sums of x in the photo and x in its mirror image, less what they are if a net's answers have no shift."""
    width = photo.shape[1]
    mirrored = detector.detect(np.ascontiguousarray(photo[:, ::-1]), 0.9)
    return [
        float((one.landmarks[:, 0] + other.landmarks[[1, 0, 2, 4, 3], 0]).mean()) - (width - 1)
        for one in detector.detect(photo, 0.9)
        for other in mirrored
        if np.hypot(*(one.landmarks[2] * [-1, 1] + [width, 0] - other.landmarks[2])) < 0.15 * one.side
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--det-size", type=int, default=FaceOptions().det_size)
    parser.add_argument("--repeats", type=int, default=7)
    for name in ("--photos", "--draw", "--turned", "--sizes"):
        parser.add_argument(name, type=Path)
    arguments = parser.parse_args()
    options = FaceOptions(det_size=arguments.det_size)
    if arguments.photos:
        count(arguments.photos, arguments.draw, options)
    elif arguments.turned:
        turn(arguments.turned, options)
    elif arguments.sizes:
        measure_sizes(arguments.sizes)
    else:
        measure_time(options, arguments.repeats)


def measure_time(options: FaceOptions, repeats: int) -> None:
    print(f"{platform.processor() or platform.machine()}, OpenCV {cv2.__version__}, NumPy {np.__version__}")
    print(f"read the weights: {median_seconds(embedded_graph, 3):.3f} s")
    print(f"make the detector (weights, session): {median_seconds(BundledDetector, 3):.3f} s")
    print(f"priors of 1600x1216, uncached: {median_seconds(lambda: priors.__wrapped__(1600, 1216), 5):.4f} s")
    for name, photo in photos().items():
        for threads in (1, 2):
            report(photo, name, threads=threads, options=options, repeats=repeats)


if __name__ == "__main__":
    main()
