"""Which faces are sharper than a 256 px crop can hold: python benchmarks/sharpness.py [FOLDER] [--each]

For the largest face of each picture whose crop is larger than the net's, as the picture is and degraded: the steepness ratio and
the 0..1 of ``sharpness.own_detail`` that follows from it. Blur is given in pixels of the 256 px crop, as a blur hides the same
detail from the net whatever the photo's size. FOLDER: pictures with one face each (default: the two that come with
scikit-image and matplotlib; the astronaut's crop is smaller than the net's, so she is left out).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image
from portraits import Degradation, degraded, files_of

from gpen_cli import geometry, sharpness
from gpen_cli.data import Float64Array, UInt8Image
from gpen_cli.detect.bundled import BundledDetector
from gpen_cli.detect.search import find_faces
from gpen_cli.options import FaceOptions
from gpen_cli.restoration import SHARP_ENOUGH

NET = 256


DEGRADATIONS = (
    Degradation("as it is"),
    Degradation("noise 5", noise=5.0),
    Degradation("noise 15", noise=15.0),
    Degradation("JPEG 60", quality=60),
    Degradation("JPEG 30", quality=30),
    Degradation("blur 0.5", blur=0.5),
    Degradation("blur 0.7", blur=0.7),
    Degradation("blur 1", blur=1.0),
    Degradation("blur 1, noise 5", blur=1.0, noise=5.0),
    Degradation("blur 1, noise 15", blur=1.0, noise=15.0),
    Degradation("blur 1, JPEG 30", blur=1.0, quality=30),
    Degradation("blur 2", blur=2.0),
    Degradation("blur 2, noise 15", blur=2.0, noise=15.0),
    Degradation("blur 2, JPEG 30", blur=2.0, quality=30),
)


@dataclass(frozen=True)
class Portrait:
    """pixels: (H, W, 3) uint8; crop_from_photo: (2, 3), of the largest face, for a crop of NET px."""

    name: str
    pixels: UInt8Image
    crop_from_photo: Float64Array

    @property
    def shrink(self) -> float:
        """Photo pixels a crop pixel."""
        return 1.0 / geometry.scale_of(self.crop_from_photo)


def portraits(files: Iterable[Path]) -> list[Portrait]:
    """Faces larger than the net's crop by ``sharpness.LEAST_SHRINK`` or more; smaller ones are always restored."""
    detector, kept = BundledDetector(1), []
    for file in files:
        pixels = np.asarray(Image.open(file).convert("RGB"))
        for face in find_faces(detector, pixels, FaceOptions(only_largest=True)).faces:
            portrait = Portrait(file.name, pixels, geometry.crop_from_photo(face.landmarks, "gpen", NET))
            if portrait.shrink >= sharpness.LEAST_SHRINK:
                kept.append(portrait)
    return kept


def measure(portrait: Portrait, how: Degradation) -> tuple[float, float, float]:
    """The steepness ratio, the noise ratio, and ``own_detail``; (1, 1, 0) for a face without edges."""
    photo = degraded(portrait.pixels, how, unit=portrait.shrink)
    crop = geometry.warp_crop(photo, portrait.crop_from_photo, NET)
    ratios = sharpness.steepness_and_noise(photo, portrait.crop_from_photo, crop) or (1.0, 1.0)
    return *ratios, sharpness.own_detail(photo, portrait.crop_from_photo, crop)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--each", action="store_true", help="also each portrait's ratio and own_detail as it is")
    arguments = parser.parse_args()
    files = files_of(arguments.folder)
    faces = portraits(files)
    print(
        f"{len(faces)} of {len(files)} pictures have a face {sharpness.LEAST_SHRINK:g} times larger than a {NET} px crop"
    )
    if not faces:
        return
    if arguments.each:
        for face in faces:
            ratio, noise, detail = measure(face, DEGRADATIONS[0])
            print(
                f"  {face.name}: crop {face.shrink * NET:.0f} px, ratio {ratio:.3f}, noise {noise:.3f}, "
                f"own_detail {detail:.2f}"
            )
    print(
        f"ratio up to {sharpness.BLURRED:g}: own_detail 0; from {sharpness.SHARP:g}: 1; left alone from {SHARP_ENOUGH:g}"
    )
    print(f"{'photo':<18} {'ratio: low':>10} {'median':>7} {'high':>6} {'noise':>6}   restored  in part  left alone")
    for how in DEGRADATIONS:
        ratios, noises, details = np.array([measure(face, how) for face in faces]).T
        alone, whole = int((details >= SHARP_ENOUGH).sum()), int((details == 0).sum())
        print(
            f"{how.name:<18} {ratios.min():>10.2f} {np.median(ratios):>7.2f} {ratios.max():>6.2f}"
            f" {np.median(noises):>6.2f}"
            f"   {whole:>8}  {len(faces) - alone - whole:>7}  {alone:>10}"
        )


if __name__ == "__main__":
    main()
