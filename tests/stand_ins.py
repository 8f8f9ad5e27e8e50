"""Stand-ins for nets and detectors, entering through the same doors as the real ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from gpen_cli.data import Face
from gpen_cli.device import Setup
from gpen_cli.engine import Engine
from gpen_cli.geometry import apply, invert, similarity, template_points
from gpen_cli.weights.find import FoundWeights

CPU = Setup(device="cpu", precision="fp32", micro_batch=1, threads=1, precision_reason="test")


class StandInNet:
    """A ``CropNet`` that answers ``change(crop)`` for each crop, and counts its passes."""

    def __init__(
        self, change: Callable[[np.ndarray], np.ndarray], *, crop_size: int = 256, micro_batch: int = 1
    ) -> None:
        self.name = f"stand-in-{crop_size}"
        self.crop_size = crop_size
        self.micro_batch = micro_batch
        self.passes = 0
        self.crops = 0
        self._change = change

    def run(self, crops: np.ndarray) -> np.ndarray:
        self.passes += 1
        self.crops += len(crops)
        return np.stack([self._change(crop) for crop in crops])

    def halve(self) -> bool:
        self.micro_batch, before = max(1, self.micro_batch // 2), self.micro_batch
        return before > 1


class StandInDetector:
    """Answers the same faces for every picture of a known size; nothing for others."""

    name = "stand-in detector"

    def __init__(self, faces: list[Face]) -> None:
        self._faces = faces

    def detect(self, pixels: np.ndarray, threshold: float) -> list[Face]:
        return [face for face in self._faces if face.score >= threshold]


def face_at(x: float, y: float, side: float, *, angle: float = 0.0, score: float = 0.99) -> Face:
    """A face whose GPEN crop is ``side`` px wide and centred on (x, y), turned by ``angle`` radians."""
    template = template_points("gpen", 256)
    scale = side / 256
    a, b = scale * np.cos(angle), scale * np.sin(angle)
    centre = 127.5
    matrix = np.array([[a, -b, x - a * centre + b * centre], [b, a, y - b * centre - a * centre]])
    points = apply(matrix, template)
    low, high = points.min(axis=0) - 0.15 * side, points.max(axis=0) + 0.15 * side
    box = np.array([*low, *high], np.float32)
    return Face(box, points.astype(np.float32), score)


def photo_from_crop(face: Face, size: int) -> np.ndarray:
    """(2, 3): where the crop's pixels lie in the photo."""
    return invert(similarity(face.landmarks, template_points("gpen", size)))


def engine_of(*nets: StandInNet, detector: StandInDetector | None = None) -> Engine:
    """An engine around stand-ins."""
    engine = Engine(detector=detector, choices=[], parser=None, setup=CPU)
    for net in nets:
        engine.add_net(net, FoundWeights(Path("stand-in"), None))
    return engine
