"""How long finding faces takes in a 12-megapixel photo: python benchmarks/detection.py [--det-size N]

Needs no file of ours: the photo is a crowd tiled from matplotlib's Grace Hopper, another one is her portrait enlarged.
Prints medians, and each part of the work: scaling, net, decoding, merging. Goal: at most 0.3 s a photo on two cores.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import cv2
import numpy as np
from PIL import Image

from gpen_cli.data import Face, UInt8Image
from gpen_cli.detect.bundled import BundledDetector, embedded_graph
from gpen_cli.detect.retinaface import decode, net_input, priors
from gpen_cli.detect.search import find_faces
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
    """(3000, 4000, 3) each: 99 faces of about 120 px; one face of about 1100 px."""
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--det-size", type=int, default=FaceOptions().det_size)
    parser.add_argument("--repeats", type=int, default=7)
    arguments = parser.parse_args()
    options = FaceOptions(det_size=arguments.det_size)

    print(f"{platform.processor() or platform.machine()}, OpenCV {cv2.__version__}, NumPy {np.__version__}")
    print(f"read the weights: {median_seconds(embedded_graph, 3):.3f} s")
    print(f"make the detector (weights, session): {median_seconds(BundledDetector, 3):.3f} s")
    print(f"priors of 1600x1216, uncached: {median_seconds(lambda: priors.__wrapped__(1600, 1216), 5):.4f} s")
    for name, photo in photos().items():
        for threads in (1, 2):
            report(photo, name, threads=threads, options=options, repeats=arguments.repeats)


if __name__ == "__main__":
    main()
