"""Find faces. One decode for every RetinaFace net; which net answers is chosen once, by ``make_detector``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from gpen_cli.errors import WeightsError

if TYPE_CHECKING:
    from gpen_cli.detect.protocol import Detector
    from gpen_cli.options import FaceOptions


def make_detector(options: FaceOptions, *, r50_weights: Path | None, device: str, threads: int) -> Detector:
    """The detector that ``options.detector`` names; ``auto`` takes the ResNet-50 when its weights are there.

    r50_weights: where the ResNet-50's weights lie, None when they are nowhere. device: of the ResNet-50; the bundled
    net runs on the CPU, with ``threads`` cores a call. Raises WeightsError or DeviceError.
    """
    if options.detector == "retinaface-r50" and r50_weights is None:
        raise WeightsError(
            "The weights of retinaface-r50 are not on this machine; see `gpen models list` for where to get them, "
            "or use --detector retinaface-mobile, which needs none."
        )
    # imported here: torch and onnxruntime take seconds, and only one of them is needed
    if options.detector != "retinaface-mobile" and r50_weights is not None:
        from gpen_cli.detect.facexlib_r50 import R50Detector

        return R50Detector(r50_weights, device)
    from gpen_cli.detect.bundled import BundledDetector

    return BundledDetector(threads)
