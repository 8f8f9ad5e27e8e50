"""Is something over the face: dark glasses, a mask, a hand, hair over an eye? For a warning; it never changes a pixel.

Three simple looks at an aligned crop, told apart by what every uncovered face has: eyes lighter than a third of the cheeks,
a mouth with a quarter of the eyes' relief, a lower face of the upper face's colour. Limits lie in the gaps between uncovered
faces and faces with covers drawn over them: sharp, blurred, small, noisy, compressed (benchmarks/covered.py, docs/limits.md).
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import cv2
import numpy as np
import numpy.typing as npt

from gpen_cli.data import Float32Array, UInt8Image

SIDE = 64
"""Px at which crops are looked at."""
SMOOTH = 0.7
"""Blur before, px of SIDE: noise is no relief."""
DARK_EYES = 0.36
"""Lightness of the lighter eye over that of the cheeks, below which both lie behind dark glass. Uncovered: 0.52 and more."""
DARK_EYE = 0.34
"""The same of one eye. Uncovered: 0.43 and more (these four: in 99.5 % of the faces)."""
LOPSIDED = 0.5
"""Times the other eye's: deep-set eyes in hard light are dark together."""
FLAT_MOUTH = 0.25
"""Relief (standard deviation of lightness) of the mouth over the eyes'. Uncovered: 0.30 and more, 0.21 under heavy blur."""
FOREIGN_COLOUR = 16.0
"""Distance in a and b (CIELAB) between mouth and chin on one side, brow and nose on the other. Uncovered: to 15."""

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class _Oval:
    """centre, radii: (x, y) in shares of GPEN's crop."""

    centre: tuple[float, float]
    radii: tuple[float, float]


_EYES = (_Oval((0.39, 0.47), (0.085, 0.055)), _Oval((0.61, 0.47), (0.085, 0.055)))
_CHEEKS = (_Oval((0.36, 0.60), (0.05, 0.05)), _Oval((0.64, 0.60), (0.05, 0.05)))
_BROW, _NOSE = _Oval((0.50, 0.34), (0.12, 0.05)), _Oval((0.50, 0.55), (0.04, 0.05))
_MOUTH, _CHIN = _Oval((0.50, 0.70), (0.10, 0.05)), _Oval((0.50, 0.80), (0.08, 0.04))


def covering(crop: UInt8Image) -> str | None:
    """What seems covered in a crop ((S, S, 3) uint8 sRGB, GPEN template): ``both eyes``, ``an eye``, ``the mouth``; or None."""
    lab = _lab(crop)
    cheeks = max(1.0, float(np.median([_median(lab, part)[0] for part in (*_CHEEKS, _NOSE)])))
    eyes = [float(_median(lab, part)[0]) / cheeks for part in _EYES]
    if max(eyes) < DARK_EYES:
        return "both eyes"
    if min(eyes) < min(DARK_EYE, LOPSIDED * max(eyes)):
        return "an eye"
    relief = max(_relief(lab, part) for part in _EYES)
    if _relief(lab, _MOUTH) < FLAT_MOUTH * relief or _foreign(lab) > FOREIGN_COLOUR:
        return "the mouth"
    return None


def _lab(crop: UInt8Image) -> Float32Array:
    how = cv2.INTER_AREA if crop.shape[0] > SIDE else cv2.INTER_LINEAR
    small = cv2.resize(crop, (SIDE, SIDE), interpolation=how).astype(np.float32) / np.float32(255)
    return np.asarray(cv2.cvtColor(cv2.GaussianBlur(small, (0, 0), SMOOTH), cv2.COLOR_RGB2LAB), np.float32)


def _median(lab: Float32Array, part: _Oval) -> Float32Array:
    return np.asarray(np.median(lab[_mask(part)], axis=0), np.float32)


def _relief(lab: Float32Array, part: _Oval) -> float:
    return float(lab[..., 0][_mask(part)].std())


def _foreign(lab: Float32Array) -> float:
    skin = np.median([_median(lab, _BROW), _median(lab, _NOSE)], axis=0)[1:]
    return min(float(np.hypot(*(_median(lab, part)[1:] - skin))) for part in (_MOUTH, _CHIN))


@functools.cache
def _mask(part: _Oval) -> Mask:
    rows, columns = (np.mgrid[0:SIDE, 0:SIDE] + 0.5) / SIDE
    across, down = (columns - part.centre[0]) / part.radii[0], (rows - part.centre[1]) / part.radii[1]
    inside: Mask = across**2 + down**2 <= 1.0
    return inside
