"""Which faces are judged, and how they are degraded: the same inputs, to the bit, on every run."""

from __future__ import annotations

import csv
import io
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
from PIL import Image

from gpen_cli.data import Float32Array, UInt8Image

FACE_SHARE = 0.6
"""Longer side of a face's box as a share of GPEN's crop (as benchmarks/guard.py): a crop whose face is 32 px wide has 53."""
UNSHARP_SIGMA = 1.5 / 256
"""Of the baseline's mask, as a share of the crop's side; its amount is 1 (100 %)."""
LOOKS = Path(__file__).with_name("looks.csv")
"""What is seen of the 60 faces of shared/faces/val, written down by one pair of eyes: glasses, a beard or moustache, dark
skin, and who looks under thirty. It says what is in the picture, not who somebody is; it serves to find what a net does worse."""
SUFFIXES = (".jpg", ".jpeg", ".png", ".webp")


@dataclass(frozen=True)
class Portrait:
    """An aligned face. stem: its number, e.g. ``00085``; original, mixed: files (mixed None: not degraded for good).

    groups: name of a grouping -> the group, e.g. ``source`` -> ``frl-london``; padding: left, top, right, bottom px that lie
    outside the photo it was cut from.
    """

    stem: str
    original: Path
    mixed: Path | None
    groups: Mapping[str, str]
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)


@dataclass(frozen=True)
class Case:
    """A degradation. kind: mixed | clean | lowres | gaussian | motion | jpeg | face | noisy | blocky.

    strength is what the kind counts in. lowres: side of the shrunk crop; gaussian: sigma; motion: length (all px of the
    file); jpeg: qualities, one after the other; face: width of the face's box, px; noisy, blocky: that width, then sigma in
    levels, or a JPEG quality, at that size.
    """

    name: str
    kind: str
    strength: tuple[float, ...] = ()


SETS = {
    case.name: case
    for case in (
        Case("val_mixed", "mixed"),
        Case("lowres", "lowres", (128,)),
        Case("motion", "motion", (5,)),
        Case("jpeg", "jpeg", (90, 10)),
        Case("small", "face", (32,)),
        Case("clean", "clean"),
        Case("noisy", "noisy", (96, 15)),
        Case("blocky", "blocky", (96, 30)),
    )
}
USUAL = ("val_mixed", "lowres", "motion", "jpeg", "small", "clean")
"""The sets that are judged when none is named."""


def load_portraits(folder: Path, count: int | None = None) -> list[Portrait]:
    """The faces of ``folder``/val (val/256, val/512 or val itself), by size, then number; ``count``: so many, evenly spread.

    Groups come from ``folder``/index.csv where there is one, and from LOOKS for the faces that it lists. Raises SystemExit
    with a sentence when no face is there.
    """
    rows, looks = _index(folder / "index.csv", "file"), _index(LOOKS, "face")
    files = sorted(path for path in (folder / "val").rglob("*") if path.suffix.lower() in SUFFIXES)
    if not files:
        raise SystemExit(f"{folder / 'val'} holds no pictures; give the folder that holds val/ with --faces.")
    mixed = {path.stem: path for path in (folder / "val_mixed").rglob("*.png")}
    edges = _medians([rows[name] for name in rows if name.startswith("val/")])
    found = [_portrait(path, folder, mixed.get(path.stem), rows, edges, looks) for path in files]
    if count is not None and count < len(found):
        found = [found[index] for index in np.linspace(0, len(found) - 1, count).round().astype(int)]
    return found


def _index(file: Path, key: str) -> dict[str, dict[str, str]]:
    if not file.is_file():
        return {}
    with file.open(encoding="utf-8", newline="") as stream:
        return {row[key]: row for row in csv.DictReader(stream)}


def _medians(rows: Sequence[Mapping[str, str]]) -> dict[str, float]:
    """What parts turned from frontal and sharp from soft: the medians over val."""
    if not rows:
        return {}
    return {
        "yaw": float(np.median([abs(float(row["yaw"])) for row in rows])),
        "sharpness": float(np.median([float(row["sharpness"]) for row in rows])),
    }


def _portrait(
    path: Path,
    folder: Path,
    mixed: Path | None,
    rows: Mapping[str, Mapping[str, str]],
    edges: Mapping[str, float],
    looks: Mapping[str, Mapping[str, str]],
) -> Portrait:
    row = rows.get(path.relative_to(folder).as_posix())
    if row is None:
        return Portrait(path.stem, path, mixed, {})
    turned, sharp = abs(float(row["yaw"])) > edges["yaw"], float(row["sharpness"]) > edges["sharpness"]
    groups = {
        "source": row["source"],
        "yaw": f"|yaw| {'over' if turned else 'up to'} {edges['yaw']:.3f}",
        "confidence": row["confidence"],
        "original": f"sharpness {'over' if sharp else 'up to'} {edges['sharpness']:.0f}",
    }
    seen = looks.get(path.stem, {})
    groups |= {look.replace("_", " "): value for look, value in seen.items() if look != "face"}
    left, top, right, bottom = (int(row[f"pad_{side}"]) for side in "ltrb")
    return Portrait(path.stem, path, mixed, groups, (left, top, right, bottom))


def read(path: Path) -> UInt8Image:
    """(H, W, 3) uint8 RGB."""
    with Image.open(path) as picture:
        return np.asarray(picture.convert("RGB"))


def degraded(original: UInt8Image, case: Case, *, stem: str, mixed: Path | None = None) -> UInt8Image | None:
    """The input of ``case`` for an (S, S, 3) uint8 original, of the same size; None when there is none (no mixed file).

    Deterministic: what is drawn by chance (the direction of motion) depends on the case's kind and the face's number alone.
    """
    side = original.shape[0]
    match case.kind:
        case "clean":
            return original
        case "mixed":
            return None if mixed is None else read(mixed)
        case "lowres":
            return there_and_back(original, round(case.strength[0]))
        case "face":
            return there_and_back(original, min(side, round(case.strength[0] / FACE_SHARE)))
        case "gaussian":
            return np.asarray(cv2.GaussianBlur(original, (0, 0), case.strength[0]))
        case "motion":
            angle = np.random.default_rng(zlib.crc32(f"motion/{stem}".encode())).uniform(0.0, np.pi)
            return np.asarray(cv2.filter2D(original, -1, motion_kernel(case.strength[0], angle)))
        case "noisy":
            small = _shrunk(original, case.strength[0])
            noise = np.random.default_rng(zlib.crc32(f"noisy/{stem}".encode())).normal(
                0.0, case.strength[1], small.shape
            )
            return _enlarged(np.clip(np.rint(small + noise), 0, 255).astype(np.uint8), side)
        case "blocky":
            return _enlarged(_jpeg(_shrunk(original, case.strength[0]), round(case.strength[1])), side)
        case "jpeg":
            picture = original
            for quality in case.strength:
                picture = _jpeg(picture, round(quality))
            return picture
        case _:
            raise ValueError(f"unknown kind {case.kind!r}")


def there_and_back(picture: UInt8Image, side: int) -> UInt8Image:
    """Shrunk to ``side`` px by area, enlarged to its own size by bicubic interpolation."""
    small = np.asarray(cv2.resize(picture, (side, side), interpolation=cv2.INTER_AREA), np.uint8)
    return _enlarged(small, picture.shape[0])


def _shrunk(picture: UInt8Image, face: float) -> UInt8Image:
    """By area, to a crop whose face's box is ``face`` px wide."""
    side = min(picture.shape[0], round(face / FACE_SHARE))
    return np.asarray(cv2.resize(picture, (side, side), interpolation=cv2.INTER_AREA), np.uint8)


def _enlarged(picture: UInt8Image, side: int) -> UInt8Image:
    return np.asarray(cv2.resize(picture, (side, side), interpolation=cv2.INTER_CUBIC), np.uint8)


def motion_kernel(length: float, angle: float) -> Float32Array:
    """A straight line of ``length`` px at ``angle`` (radians), its weight shared among the four pixels around each point."""
    reach = int(np.ceil(length / 2)) + 1
    kernel = np.zeros((2 * reach + 1, 2 * reach + 1))
    along = (np.arange(64 * round(length)) + 0.5) / 64 - round(length) / 2
    x, y = reach + along * np.cos(angle), reach + along * np.sin(angle)
    left, top = np.floor(x).astype(int), np.floor(y).astype(int)
    for dx, dy in ((0, 0), (0, 1), (1, 0), (1, 1)):
        weight = (1 - abs(x - left - dx)) * (1 - abs(y - top - dy))
        np.add.at(kernel, (top + dy, left + dx), weight)
    return np.asarray(kernel / kernel.sum(), np.float32)


def _jpeg(picture: UInt8Image, quality: int) -> UInt8Image:
    file = io.BytesIO()
    Image.fromarray(picture).save(file, "JPEG", quality=quality)
    return np.asarray(Image.open(file).convert("RGB"))


def unsharp(picture: UInt8Image) -> UInt8Image:
    """The baseline: every set's input is at its full size by bicubic interpolation already; this adds an unsharp mask."""
    levels = picture.astype(np.float32)
    blurred = cv2.GaussianBlur(levels, (0, 0), UNSHARP_SIGMA * picture.shape[0])
    return np.clip(np.rint(2.0 * levels - blurred), 0, 255).astype(np.uint8)
