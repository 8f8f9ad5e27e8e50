"""Aligned crops to prove nets on, and to calibrate them with: of the example photos, or of the user's own."""

from __future__ import annotations

import functools
import logging
import math
from collections.abc import Iterable, Sequence
from pathlib import Path

import cv2
import numpy as np

from gpen_cli.data import UInt8Image
from gpen_cli.detect import make_detector
from gpen_cli.detect.protocol import Detector
from gpen_cli.detect.search import find_faces
from gpen_cli.errors import PhotoError, WeightsError
from gpen_cli.geometry import crop_from_photo, warp_crop
from gpen_cli.options import FaceOptions, ReadOptions
from gpen_cli.photos.read import read_photo
from gpen_cli.sources import read_source

log = logging.getLogger(__name__)

TEMPLATE = "gpen"
_EXAMPLES = ("hopper.jpg", "astronaut.jpg", "both.jpg")
_PACKAGE = Path(__file__).resolve().parent
_FACES = FaceOptions(detector="retinaface-mobile")
_LEAST_SIDE = 16
"""Pixels a crop is made as small as by ``worn``: a face that is hardly one any more."""


@functools.cache
def example_crops(size: int) -> UInt8Image:
    """(4, S, S, 3) uint8: the faces of the example photos, found and aligned as in any run. Raises WeightsError."""
    folders = (_PACKAGE / "examples", _PACKAGE.parent / "examples")  # a wheel, a checkout
    folder = next((item for item in folders if (item / _EXAMPLES[0]).is_file()), None)
    if folder is None:
        raise WeightsError(
            "The example photos that exports are checked with are missing from this installation; install gpen again."
        )
    detector = _detector(threads=1)
    return np.stack([crop for name in _EXAMPLES for crop in _crops_of(folder / name, size, detector)])


def photo_crops(photos: Sequence[Path], size: int, *, most: int, threads: int) -> UInt8Image:
    """(N, S, S, 3) uint8, N at most ``most``: faces of the photos, in their order, equally many of each where there are too many.

    A photo that cannot be read is told, and passed over.
    """
    share = math.ceil(most / max(1, len(photos)))
    detector = _detector(threads=threads)
    crops: list[UInt8Image] = []
    for path in photos:
        try:
            crops += _crops_of(path, size, detector)[:share]
        except PhotoError as error:
            log.warning("%s It is left out.", error)
        if len(crops) >= most:
            break
    return np.stack(crops[:most]) if crops else np.empty((0, size, size, 3), np.uint8)


def worn(crops: Iterable[UInt8Image], times: int, seed: int) -> UInt8Image:
    """Each crop ``times`` times: blurred, made small, with noise, as a poor JPEG, differently each time; equal for a seed.

    (N, S, S, 3) uint8 -> (N · times, S, S, 3) uint8.
    """
    rng = np.random.default_rng(seed)
    return np.stack([_worn(crop, rng) for crop in crops for _ in range(times)])


def _worn(crop: UInt8Image, rng: np.random.Generator) -> UInt8Image:
    side = len(crop)
    small = max(_LEAST_SIDE, int(side / rng.uniform(1.0, 6.0)))
    blurred = cv2.GaussianBlur(crop, (0, 0), rng.uniform(0.3, 2.5) * side / 256)
    shrunk = cv2.resize(blurred, (small, small), interpolation=cv2.INTER_AREA).astype(np.float32)
    noisy = shrunk + rng.normal(0.0, rng.uniform(0.0, 12.0), shrunk.shape)
    grown = cv2.resize(noisy.clip(0, 255).astype(np.uint8), (side, side), interpolation=cv2.INTER_LINEAR)
    _, packed = cv2.imencode(".jpg", grown[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, int(rng.integers(35, 96))])
    bgr = np.asarray(cv2.imdecode(packed, cv2.IMREAD_COLOR), np.uint8)
    return np.ascontiguousarray(bgr[..., ::-1])


def _detector(*, threads: int) -> Detector:
    return make_detector(_FACES, r50_weights=None, device="cpu", threads=threads)


def _crops_of(path: Path, size: int, detector: Detector) -> list[UInt8Image]:
    """Raises PhotoError."""
    photo = read_photo(read_source(str(path), path.name), path.name, ReadOptions())
    faces = find_faces(detector, photo.shown, _FACES).faces
    return [warp_crop(photo.shown, crop_from_photo(face.landmarks, TEMPLATE, size), size) for face in faces]
