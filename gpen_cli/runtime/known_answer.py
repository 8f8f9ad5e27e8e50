"""Does a net that nobody knows (``--weights FILE``) answer a face with a face? One pass over a drawn one, before any photo.

A net that gives other values than [-1, 1], or is no restorer at all, would leave white or gray faces everywhere (or, with the
guard on, restore none), and the log would say nothing of the cause.
"""

from __future__ import annotations

import functools

import cv2
import numpy as np

from gpen_cli.data import UInt8Image
from gpen_cli.runtime.protocol import CropNet, NonFiniteOutputError

_COARSE = 16
"""Side at which question and answer are compared: light and shape, whatever detail the net draws."""
_FARTHEST = 45.0
"""Mean difference of levels there, from which an answer is no restoration. The embedded net: 1.3; an answer in [0, 1]: 73."""
_FLATTEST = 6.0
"""Standard deviation of levels below which an answer shows nothing. The drawn face: 39."""


def doubt(net: CropNet) -> str | None:
    """What is wrong with the net's answer, as part of a sentence; None when it looks like a restored face."""
    question = drawn_face(net.crop_size)
    try:
        answer = net.run(question[None])[0]
    except NonFiniteOutputError:
        return "it gives no finite numbers"
    before, after = (_coarse(picture) for picture in (question, answer))
    if float(answer.std()) < _FLATTEST:
        return "it gives one flat colour"
    difference = float(np.abs(before - after).mean())
    if difference > _FARTHEST:
        levels = f"{float(answer.mean()):.0f} of 255 on average instead of {float(question.mean()):.0f}"
        return f"its answer is another picture ({levels})"
    return None


def _coarse(picture: UInt8Image) -> np.ndarray:
    return cv2.resize(picture, (_COARSE, _COARSE), interpolation=cv2.INTER_AREA).astype(np.float32)


@functools.cache
def drawn_face(size: int) -> UInt8Image:
    """(S, S, 3) uint8: hair, a face's oval, eyes, nose and mouth where GPEN's template has them, a little blurred."""
    picture = np.full((size, size, 3), (92, 100, 112), np.uint8)

    def oval(centre: tuple[float, float], radii: tuple[float, float], colour: tuple[int, int, int]) -> None:
        points = [(round(x * size), round(y * size)) for x, y in (centre, radii)]
        cv2.ellipse(picture, points[0], points[1], 0, 0, 360, colour, -1, cv2.LINE_AA)

    oval((0.50, 0.42), (0.30, 0.36), (58, 44, 38))
    oval((0.50, 0.56), (0.23, 0.31), (205, 168, 146))
    for x in (0.39, 0.61):
        oval((x, 0.41), (0.07, 0.012), (74, 56, 48))
        oval((x, 0.46), (0.05, 0.024), (238, 234, 230))
        oval((x, 0.46), (0.022, 0.024), (52, 40, 36))
    oval((0.50, 0.60), (0.035, 0.02), (170, 128, 110))
    oval((0.50, 0.705), (0.085, 0.026), (168, 86, 84))
    blurred: UInt8Image = cv2.GaussianBlur(picture, (0, 0), size / 128)
    return blurred
