"""What a net of 256 px cannot hold of a larger face: python benchmarks/net_border.py [FOLDER] [--restore]

Finds the border between nets of 256 and 512 px (``engine.NET_BORDER``). Photos are made, by shrinking sharp portraits, in which
a face's aligned crop is s px wide; the crop is taken at a net's size and brought back. Three tables:

  seen     what is left of the photo after the way through the crop: what the net cannot see, a 512 px net could
  drawn    what is left of the *sharp* face, twice as large, as ``--upscale auto`` gives it out: what not even a perfect net
           of that size could draw into the result
  restore  (--restore) what the embedded 256 px net really gains on degraded photos, by the crop's side in the photo

PSNR: luma of the face (without hair and background), in dB. Energy: of the face's luma less its own blur (sigma 1 px), after
over before. Each figure is the mean over the faces. FOLDER: pictures with one sharp face each (default: the two that
come with scikit-image and matplotlib). A portrait is never enlarged: the column "faces" says how many are large enough.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
from PIL import Image
from portraits import Degradation, degraded, files_of, psnr

from gpen_cli import geometry
from gpen_cli.data import Face, Float32Array, Float64Array, UInt8Image
from gpen_cli.detect.bundled import BundledDetector
from gpen_cli.detect.search import find_faces
from gpen_cli.engine import NET_BORDER, crop_side
from gpen_cli.options import ComposeOptions, FaceOptions, NetOptions, Options
from gpen_cli.restore_crop import LUMA
from gpen_cli.restorer import Restorer

NETS = (256, 512)
SIDES = (128, 192, 256, 288, 320, 352, 384, 448, 512, 640, 768)
"""Sides of the face's crop in the photo, in photo pixels."""
UPSCALE = 2
BAND_SIGMA = 1.0
FACE_ROWS, FACE_COLUMNS = (0.20, 0.85), (0.22, 0.78)
"""Where the face lies in GPEN's crop, as shares of its side (as in gpen_cli/sharpness.py)."""
VISIBLE_DB = 40.0
"""PSNR under which a difference is commonly taken for visible."""
KEPT_ENERGY = 0.90

Rows = Sequence[tuple[int, list[list[tuple[float, float]]]]]
"""Crop side in the photo; for each net, for each face: PSNR and energy."""


SHARP = Degradation("sharp")
SEEN = (
    SHARP,
    Degradation("blur 0.7 px", blur=0.7),
    Degradation("blur 1 px", blur=1.0),
    Degradation("blur 1.5 px", blur=1.5),
    Degradation("JPEG 60", quality=60),
    Degradation("blur 1 px, JPEG 60", blur=1.0, quality=60),
)
RESTORED = (
    Degradation("noise 10, JPEG 60", noise=10.0, quality=60),
    Degradation("blur 1 px, noise 5, JPEG 60", blur=1.0, noise=5.0, quality=60),
    Degradation("blur 2 px, noise 5, JPEG 60", blur=2.0, noise=5.0, quality=60),
)


@dataclass(frozen=True)
class Portrait:
    """pixels: (H, W, 3) uint8; landmarks: (5, 2); side: of the face's crop in these pixels."""

    pixels: UInt8Image
    landmarks: Float64Array
    side: float

    def shrunk_to(self, side: float) -> Portrait:
        """The same portrait in which the crop is ``side`` px wide (to the rounding of the picture's size)."""
        factor = side / self.side
        height, width = self.pixels.shape[:2]
        size = round(width * factor), round(height * factor)
        if size == (width, height):
            return self
        moved = geometry.apply(geometry.scaling((width, height), size), self.landmarks)
        small = cv2.resize(self.pixels, size, interpolation=cv2.INTER_AREA)
        return Portrait(np.asarray(small, np.uint8), moved, side)


def portraits(files: Iterable[Path], most: int | None) -> list[Portrait]:
    """The largest face of each picture that has one."""
    detector, found = BundledDetector(1), []
    for file in files:
        pixels = np.asarray(Image.open(file).convert("RGB"))
        faces = find_faces(detector, pixels, FaceOptions(only_largest=True)).faces
        found += [Portrait(pixels, np.float64(face.landmarks), crop_side(face, "gpen")) for face in faces]
        if most is not None and len(found) >= most:
            break
    return found


def face_region(portrait: Portrait, scale: float = 1.0) -> tuple[slice, slice]:
    """The face's rectangle in the picture enlarged by ``scale``, without what the rotation of the head cuts off."""
    photo_from_crop = geometry.invert(geometry.crop_from_photo(portrait.landmarks, "gpen", 1000))
    (x0, x1), (y0, y1) = (np.array(share) * 1000 for share in (FACE_COLUMNS, FACE_ROWS))
    corners = geometry.apply(photo_from_crop, [(x0, y0), (x1, y0), (x0, y1), (x1, y1)]) * scale
    (left, top), (right, bottom) = corners.min(axis=0), corners.max(axis=0)
    height, width = (round(side * scale) for side in portrait.pixels.shape[:2])
    rows = slice(max(0, round(top)), min(height, round(bottom)))
    return rows, slice(max(0, round(left)), min(width, round(right)))


def through_crop(photo: UInt8Image, landmarks: Float64Array, net: int, canvas_size: tuple[int, int]) -> Float32Array:
    """(H, W, 3): the photo's crop at the net's size, brought onto a canvas as ``compose`` does."""
    crop_from_photo = geometry.crop_from_photo(landmarks, "gpen", net)
    crop = geometry.warp_crop(photo, crop_from_photo, net).astype(np.float32)
    size = photo.shape[1], photo.shape[0]
    canvas_from_crop = geometry.compose(geometry.scaling(size, canvas_size), geometry.invert(crop_from_photo))
    return geometry.warp_to_rect(crop, canvas_from_crop, (0, 0, *canvas_size))


def luma_psnr(one: Float32Array, other: Float32Array) -> float:
    return psnr(one @ LUMA, other @ LUMA)


def energy(image: Float32Array) -> float:
    luma = image @ LUMA
    return float(np.mean(np.square(luma - cv2.GaussianBlur(luma, (0, 0), BAND_SIGMA))))


def seen(portrait: Portrait, net: int, how: Degradation) -> tuple[float, float]:
    """PSNR and energy of the (degraded) photo after the way through the crop."""
    photo = degraded(portrait.pixels, how)
    back = through_crop(photo, portrait.landmarks, net, (photo.shape[1], photo.shape[0]))
    region = face_region(portrait)
    before, after = photo[region].astype(np.float32), back[region]
    return luma_psnr(before, after), energy(after) / energy(before)


def drawn(large: Portrait, net: int) -> tuple[float, float]:
    """As ``seen``, of the sharp face as large as in the output: what a perfect net would give back."""
    return seen(large, net, SHARP)


def table(title: str, rows: Rows) -> None:
    print(f"\n{title}")
    print(f"{'crop side':>9} {'/256':>5} {'faces':>6}" + "".join(f"  | {net:>4} px: PSNR  energy" for net in NETS))
    for side, nets in rows:
        cells = [np.mean(np.array(values), axis=0) for values in nets]
        text = "".join(f"  | {cell[0]:>13.1f}  {100 * cell[1]:>4.0f} %" for cell in cells)
        print(f"{side:>9} {side / 256:>5.2f} {len(nets[0]):>6}{text}")
    print(
        f"crop side over 256, interpolated: a 256 px crop falls under {VISIBLE_DB:g} dB at {_falls_under(rows, 0, VISIBLE_DB)}, "
        f"under {100 * KEPT_ENERGY:.0f} % of the energy at {_falls_under(rows, 1, KEPT_ENERGY)}; "
        f"a 512 px crop is the better one from {_overtaken(rows, 0)} by PSNR, {_overtaken(rows, 1)} by energy"
    )


def _falls_under(rows: Rows, column: int, limit: float) -> str:
    """The ratio at which the 256 px column comes under ``limit`` for good."""
    return _last_crossing([(side, _mean(nets[0], column) - limit) for side, nets in rows])


def _overtaken(rows: Rows, column: int) -> str:
    """The ratio from which the 512 px column is above the 256 px one."""
    return _last_crossing([(side, _mean(nets[0], column) - _mean(nets[1], column)) for side, nets in rows])


def _mean(values: list[tuple[float, float]], column: int) -> float:
    return float(np.mean([value[column] for value in values]))


def _last_crossing(points: Sequence[tuple[int, float]]) -> str:
    """Where a value turns from positive to negative for the last time, as a ratio of the side to 256."""
    for (low, before), (high, after) in reversed(list(itertools.pairwise(points))):
        if before >= 0 > after:
            return f"{(low + (high - low) * before / (before - after)) / NETS[0]:.2f}"
    return "no measured size" if points[-1][1] >= 0 else "every measured size"


def show_seen(faces: Sequence[Portrait]) -> None:
    for how in SEEN:
        rows = []
        for side in SIDES:
            fit = [face.shrunk_to(side) for face in faces if face.side >= side]
            if fit:
                rows.append((side, [[seen(face, net, how) for face in fit] for net in NETS]))
        table(f"seen: {how.name}", rows)


def show_drawn(faces: Sequence[Portrait]) -> None:
    rows = []
    for side in SIDES:
        fit = [face.shrunk_to(UPSCALE * side) for face in faces if face.side >= UPSCALE * side]
        if fit:
            rows.append((side, [[drawn(face, net) for face in fit] for net in NETS]))
    table(f"drawn: the sharp face at {UPSCALE} times its side in the photo", rows)


def show_restored(faces: Sequence[Portrait], weight: float) -> None:
    """PSNR against the sharp photo before and after the embedded net, and how often it rose."""
    compose = ComposeOptions(upscale=1.0, sharp_faces="restore", fidelity_weight=weight)
    options = Options(net=NetOptions(model="gpen-open-256"), compose=compose)
    with Restorer(options) as restorer:
        for how in RESTORED:
            print(f"\nrestore: {how.name}, gpen-open-256, scale 1, fidelity weight {weight:g}")
            print(f"{'crop side':>9} {'/256':>5} {'faces':>6}  before   after    gain   better")
            for side in SIDES:
                fit = [face.shrunk_to(side) for face in faces if face.side >= side]
                gains = [gain for face in fit if (gain := gained(restorer, face, how)) is not None]
                if gains:
                    before, after = np.mean(gains, axis=0)
                    better = sum(one[1] > one[0] for one in gains)
                    print(
                        f"{side:>9} {side / 256:>5.2f} {len(gains):>6} {before:>7.2f} {after:>7.2f} "
                        f"{after - before:>+7.2f}   {better} of {len(gains)}"
                    )


def gained(restorer: Restorer, portrait: Portrait, how: Degradation) -> tuple[float, float] | None:
    """PSNR before and after; None when the degraded face was not found."""
    photo = degraded(portrait.pixels, how)
    done = restorer.restore_with_faces(photo)
    if not any(report.decision == "restored" and _is(report.face, portrait) for report in done.faces):
        return None
    region = face_region(portrait)
    sharp, before, after = (image[region].astype(np.float32) for image in (portrait.pixels, photo, done.pixels))
    return luma_psnr(sharp, before), luma_psnr(sharp, after)


def _is(face: Face, portrait: Portrait) -> bool:
    return float(np.abs(face.landmarks - portrait.landmarks).max()) < portrait.side / 8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--faces", type=int, help="at most so many portraits")
    parser.add_argument("--restore", action="store_true", help="only the table of the embedded net's gains")
    parser.add_argument("--fidelity-weight", type=float, default=1.0, help="of that table")
    arguments = parser.parse_args()
    faces = portraits(files_of(arguments.folder), arguments.faces)
    sides = sorted(round(face.side) for face in faces)
    print(f"{len(faces)} portraits, crops of {sides[0]} to {sides[-1]} px; NET_BORDER is {NET_BORDER:g}")
    if arguments.restore:
        show_restored(faces, arguments.fidelity_weight)
    else:
        show_seen(faces)
        show_drawn(faces)


if __name__ == "__main__":
    main()
