"""Is it the same person? Distance of dlib's face descriptors (King, 2017: a ResNet of 29 layers; the same person below 0.6)."""

from __future__ import annotations

import functools
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from gpen_cli.data import Float64Array, UInt8Image

Box = tuple[int, int, int, int]
"""Left, top, right, bottom, px of the crop."""

_FACE_IN_CROP = (0.26, 0.32, 0.765, 0.825)
"""dlib's box in GPEN's crop: the median over the 60 faces of val, as shares of its side. For faces dlib does not find."""
_PACKAGE = "face_recognition_models"
_FILES = ("shape_predictor_5_face_landmarks.dat", "dlib_face_recognition_resnet_model_v1.dat")


class Identity:
    """dlib's detector, its 5-point predictor (the 68-point one is for non-commercial use) and its descriptor. Loads in 0.4 s."""

    def __init__(self, models: Path) -> None:
        import dlib

        self._dlib = dlib
        self._detector = dlib.get_frontal_face_detector()
        self._points = dlib.shape_predictor(str(models / _FILES[0]))
        self._net = dlib.face_recognition_model_v1(str(models / _FILES[1]))

    def box(self, original: UInt8Image) -> Box:
        """The largest face that dlib sees in the original, else where a face lies in any GPEN crop.

        Taken from the original for every version of a face: they are aligned with it, and what dlib finds in a blurred one
        would measure dlib's detector.
        """
        found = list(self._detector(original, 1))
        if not found:
            left, top, right, bottom = (round(share * original.shape[0]) for share in _FACE_IN_CROP)
            return left, top, right, bottom
        face = max(found, key=lambda box: box.area())
        return face.left(), face.top(), face.right(), face.bottom()

    def window(self, picture: UInt8Image, box: Box) -> tuple[float, float, float, float]:
        """Top, bottom, left, right of what dlib cuts out for its net (before it turns it upright), px of the crop."""
        points = self._points(picture, self._dlib.rectangle(*box))
        cut = self._dlib.get_face_chip_details(points, 150, 0.25).rect  # the size and padding of its recognition net
        return cut.top(), cut.bottom(), cut.left(), cut.right()

    def descriptor(self, picture: UInt8Image, box: Box) -> Float64Array:
        """(128,) of an (S, S, 3) uint8 RGB crop; eyes and nose are looked for anew in the box."""
        points = self._points(picture, self._dlib.rectangle(*box))
        return np.array(self._net.compute_face_descriptor(picture, points))


@functools.cache
def identity() -> Identity | None:
    """The loaded models, or None where dlib-bin or face-recognition-models is not installed.

    The models' own package cannot be imported beside a current setuptools, so its files are found, never imported.
    """
    spec = find_spec(_PACKAGE)
    if find_spec("dlib") is None or spec is None or not spec.submodule_search_locations:
        return None
    models = Path(spec.submodule_search_locations[0]) / "models"
    return Identity(models) if all((models / name).is_file() for name in _FILES) else None


def distance(one: Float64Array, other: Float64Array) -> float:
    """Euclidean: 0 the same picture, about 0.6 dlib's own limit of the same person, about 0.8 strangers."""
    return float(np.linalg.norm(one - other))
