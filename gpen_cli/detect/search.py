"""The faces of a photo: at which scales the net is shown the photo, and photos that lie on their side.

The net sees faces of about 24 to 600 pixels, and places landmarks best on 100 to 400 (measured, docs/detection.md). So
the photo is shown twice: large, for the small faces of a crowd, and at a quarter of that inside a wide margin, for a
face that fills or leaves the frame. Both scales are continuous in the photo's size: one pixel more changes no plan.
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass, replace

import cv2
import numpy as np

from gpen_cli.data import Face, Float32Array, UInt8Image
from gpen_cli.detect.limits import apply_limits, clip, reading_order
from gpen_cli.detect.merge import IDEAL_SIDE, MAX_FACES, Sighting, covered, distinct
from gpen_cli.detect.plausible import landmark_fault, tilt
from gpen_cli.detect.protocol import Detector
from gpen_cli.detect.region import Region, lies_in, window
from gpen_cli.detect.retinaface import MEAN_RGB
from gpen_cli.options import FaceOptions

log = logging.getLogger(__name__)

MAX_ENLARGEMENT = 2.0
"""A small photo is enlarged at most so much: beyond, there is nothing more to see."""

ASPECT = 4 / 3
"""``det_size`` is the long side of a photo of this shape; others are scaled to as many pixels, so that a panorama's
faces keep their size and every photo costs the same."""

MAX_LONG_SIDE = 4
"""In units of ``det_size``: what bounds the work for photos a few pixels high and very wide."""

COARSE = 4
"""The second pass is so many times smaller: a face too large for the first has 100 to 400 px in the second."""

FINE_MARGIN = 32
"""Least pixels of mean colour on each side: what lets a small face at the very edge be seen."""

TILE_OVERLAP = 320
"""Pixels of the canvas that both halves see when memory is short; a larger face on the line is found by the coarse pass."""

COARSE_MARGIN = 0.25
"""Margin of the second pass, of its long side: a face that fills the frame needs air on all sides."""

CLOSE_ENLARGEMENT = 8.0
"""Where a user points at a face, a small one is enlarged so much: it adds no detail, but nets see little below 24 px."""

SURE_UPRIGHT = 0.999
"""Score from which an upright face settles which way up the photo is. Nets also see faces in faces upside down: of the
53 photos of shared/faces (whole, old), 44 reach this score as they are, and none of the 159 turned ones does."""

UPRIGHT_TILT = 45.0
"""Degrees; a face that leans more stands more upright in a turned photo."""


@dataclass(frozen=True)
class Found:
    """Faces of one photo, in the photo's frame, boxes clipped to its pixels, from left to right.

    faces: to be restored. rejected: seen but not to be restored, each with the reason (duplicates and parts of another
    face are no faces and do not appear). turned: degrees clockwise the photo had to be turned for these to be found, 0
    unless ``--try-rotations`` helped; coordinates are those of the photo as given all the same.
    """

    faces: tuple[Face, ...]
    rejected: tuple[tuple[Face, str], ...] = ()
    turned: int = 0


def find_faces(detector: Detector, shown: UInt8Image, options: FaceOptions) -> Found:
    """The faces of ``shown`` ((H, W, 3) uint8 sRGB, any size from 1x1) that ``options`` asks for.

    Deterministic; keeps no state. Two forward passes of ``detector``; with ``options.try_rotations`` six more when no
    face is surely upright.
    """
    found = _find_upright(detector, shown, options)
    if not options.try_rotations or any(face.score >= SURE_UPRIGHT for face in _standing(found)):
        return found
    ways = [found] + [_find_turned(detector, shown, options, quarters) for quarters in (1, 2, 3)]
    best = max(range(4), key=lambda quarters: _evidence(ways[quarters], quarters))  # of equals the least turned
    return ways[best] if ways[best].faces else found


def _standing(found: Found, quarters: int = 0) -> list[Face]:
    """The faces that stand upright once the photo is turned clockwise by ``quarters`` of a circle."""
    off = [(tilt(face) + 90 * quarters + 180) % 360 - 180 for face in found.faces]
    return [face for face, angle in zip(found.faces, off, strict=True) if abs(angle) <= UPRIGHT_TILT]


def _evidence(found: Found, quarters: int) -> tuple[float, int]:
    """How much speaks for this way up: its upright faces' odds, each times its area, then all it found.

    The odds are the logarithm of how much less doubt a face leaves than one of score 0.9: they tell 0.9999 (a face) from
    0.99 (perhaps one upside down), which scores do not. In a face upside down nets see several, smaller ones: so areas.
    """
    odds = [math.log(0.1 / min(max(1 - face.score, 1e-5), 0.1)) for face in _standing(found, quarters)]
    areas = [face.side**2 for face in _standing(found, quarters)]
    return sum(odd * area for odd, area in zip(odds, areas, strict=True)), len(found.faces)


def _find_turned(detector: Detector, shown: UInt8Image, options: FaceOptions, quarters: int) -> Found:
    """Turn the photo clockwise by ``quarters`` of a circle, look, and bring what is found back to the photo's frame.

    Landmarks keep their order (the left eye of the turned picture stays first): aligning on them puts the face upright.
    """
    found = _find_upright(detector, np.ascontiguousarray(np.rot90(shown, -quarters)), options)
    height, width = shown.shape[:2]

    def back(face: Face) -> Face:
        return _turn_back(face, (width, height), quarters)

    return Found(
        faces=tuple(sorted((back(face) for face in found.faces), key=reading_order)),
        rejected=tuple((back(face), reason) for face, reason in found.rejected),
        turned=90 * quarters,
    )


def _turn_back(face: Face, size: tuple[int, int], quarters: int) -> Face:
    """A face of the photo turned clockwise by ``quarters``, in the frame of the photo itself, of ``size``."""
    right, bottom = size[0] - 1, size[1] - 1

    def back(points: Float32Array) -> Float32Array:
        x, y = points[:, 0], points[:, 1]
        unturned = {1: (y, bottom - x), 2: (right - x, bottom - y), 3: (right - y, x)}[quarters]
        return np.stack(unturned, axis=1).astype(np.float32)

    corners = back(face.box.reshape(2, 2))
    box = np.concatenate([corners.min(axis=0), corners.max(axis=0)])
    return replace(face, box=box, landmarks=back(face.landmarks))


def _find_upright(detector: Detector, shown: UInt8Image, options: FaceOptions) -> Found:
    """Both passes over the photo as it lies, merged and limited."""
    size = shown.shape[1], shown.shape[0]
    sightings = _look_twice(detector, shown, options)
    sound = distinct([sighting for sighting in sightings if sighting.fault is None])
    faulty = distinct([sighting for sighting in sightings if sighting.fault is not None])
    rejected = [(clip(s.face, size), s.fault) for s in faulty if s.fault is not None and not covered(s, sound)]
    faces, limited = apply_limits([sighting.face for sighting in sound], size, options)
    return Found(
        faces=tuple(sorted(faces, key=reading_order)),
        rejected=tuple(sorted(rejected + limited, key=lambda pair: reading_order(pair[0]))),
    )


def _look_twice(detector: Detector, shown: UInt8Image, options: FaceOptions) -> list[Sighting]:
    scale = _scale(shown, options.det_size)
    fine = _scaled(shown, _size(shown, scale))
    sightings = _look(detector, fine, photo=shown, margin=FINE_MARGIN, threshold=options.det_threshold)
    # from the shrunk picture when there is one: averages of averages are as good, and a large photo is read once
    coarse = _scaled(fine if scale < 1 else shown, _size(shown, _scale(shown, options.det_size / COARSE)))
    margin = max(FINE_MARGIN, math.ceil(COARSE_MARGIN * max(coarse.shape)))
    return sightings + _look(detector, coarse, photo=shown, margin=margin, threshold=options.det_threshold)


def find_in_region(detector: Detector, shown: UInt8Image, region: Region, options: FaceOptions) -> tuple[Face, ...]:
    """The usable faces of ``region`` that a look at it and its surroundings alone shows, as those of ``find_faces``.

    Two passes: one in which the region is as large as nets like a face to be, one as fine as ``find_faces`` looks at a
    photo, for a region that was drawn wide. Deterministic; empty when the region lies outside the photo.
    """
    size = shown.shape[1], shown.shape[0]
    part = window(region, size)
    if part is None:
        return ()
    rows, columns = part
    near = np.ascontiguousarray(shown[rows, columns])
    corner = np.array([columns.start, rows.start], np.float32)
    scales = {min(CLOSE_ENLARGEMENT, IDEAL_SIDE / region.side), _scale(near, options.det_size)}
    sightings = []
    for view in [_scaled(near, _size(near, scale)) for scale in sorted(scales)]:
        margin = max(FINE_MARGIN, math.ceil(COARSE_MARGIN * IDEAL_SIDE))
        sightings += _look(detector, view, photo=near, margin=margin, threshold=options.det_threshold)
    sound = [replace(seen, face=_moved(seen.face, corner)) for seen in sightings if seen.fault is None]
    there = [seen.face for seen in distinct(sound) if lies_in(seen.face, region)]
    return tuple(sorted(apply_limits(there, size, options)[0], key=reading_order))


def _moved(face: Face, by: Float32Array) -> Face:
    """The face in a frame whose origin lies ``by`` (x, y) before that of its own."""
    return replace(face, box=face.box + np.tile(by, 2), landmarks=face.landmarks + by)


def _scale(shown: UInt8Image, det_size: float) -> float:
    """Factor that brings the photo to as many pixels as a 4:3 photo of long side ``det_size`` has."""
    height, width = shown.shape[:2]
    by_area = det_size / math.sqrt(ASPECT * width * height)
    return min(MAX_ENLARGEMENT, by_area, MAX_LONG_SIDE * det_size / max(width, height))


def _size(shown: UInt8Image, scale: float) -> tuple[int, int]:
    """(width, height) of the photo times ``scale``, in whole pixels."""
    return max(1, round(shown.shape[1] * scale)), max(1, round(shown.shape[0] * scale))


def _scaled(picture: UInt8Image, size: tuple[int, int]) -> UInt8Image:
    """``picture`` at ``size`` (width, height): averaged over what a pixel covers when it shrinks: no aliasing."""
    shrinks = size[0] < picture.shape[1] or size[1] < picture.shape[0]
    scaled: UInt8Image = cv2.resize(picture, size, interpolation=cv2.INTER_AREA if shrinks else cv2.INTER_LINEAR)
    return scaled


def _look(detector: Detector, view: UInt8Image, *, photo: UInt8Image, margin: int, threshold: float) -> list[Sighting]:
    """One pass over ``view``, the scaled ``photo``, inside ``margin`` pixels of mean colour.

    Returns the best MAX_FACES answers in photo pixels.
    """
    height, width = view.shape[:2]
    canvas = np.empty((height + 2 * margin, width + 2 * margin, 3), np.uint8)
    canvas[:] = MEAN_RGB
    canvas[margin : margin + height, margin : margin + width] = view
    answers = sorted(_detect(detector, canvas, threshold), key=lambda face: -face.score)[:MAX_FACES]
    # a view's sides are whole pixels, so its true scale differs a little from the one asked for, and per axis
    factor = np.array([width / photo.shape[1], height / photo.shape[0]], np.float32)
    return [_sighting(answer, margin=margin, factor=factor) for answer in answers]


def _detect(detector: Detector, canvas: UInt8Image, threshold: float) -> list[Face]:
    """The detector's answers; where the memory does not hold the whole canvas, those to its four quarters, which overlap.

    Duplicates in the overlap go where those of the two passes go (``distinct``). Raises MemoryError when that is too much, too.
    """
    try:
        return detector.detect(canvas, threshold)
    except MemoryError:
        log.warning("not enough memory to look for faces in the whole photo at once; looking in four parts")
    found = []
    for rows in _halves(canvas.shape[0]):
        for columns in _halves(canvas.shape[1]):
            shift = np.array([columns.start, rows.start], np.float32)
            tile = np.ascontiguousarray(canvas[rows, columns])
            found += [_moved(face, shift) for face in detector.detect(tile, threshold)]
    return found


def _halves(side: int) -> tuple[slice, slice]:
    middle, reach = side // 2, TILE_OVERLAP // 2
    return slice(0, min(side, middle + reach)), slice(max(0, middle - reach), side)


def _sighting(answer: Face, *, margin: int, factor: Float32Array) -> Sighting:
    """A detector's answer brought from the canvas to the photo: margin off, then pixel centres scaled by 1 / factor."""
    canvas_points = np.concatenate([answer.box.reshape(2, 2), answer.landmarks])
    points = ((canvas_points - margin + 0.5) / factor - 0.5).astype(np.float32)
    face = replace(answer, box=points[:2].reshape(4), landmarks=points[2:])
    fault = landmark_fault(face)
    finite = np.nan_to_num(points)  # a report can be written of a face with a fault, too
    return Sighting(replace(face, box=finite[:2].reshape(4), landmarks=finite[2:]), net_side=answer.side, fault=fault)
