"""RetinaFace ResNet-50 as facexlib builds it (torch), with our decode. Takes weights that lie on disk; fetches nothing.

Only the nn.Module class of facexlib is used: its helpers download without a hash, keep state between calls, and build
priors in Python loops. Importing it sets nothing process-wide, but takes two seconds (torchvision) on top of torch's
two: so that happens when the detector is made and never before.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

from gpen_cli.data import Face, UInt8Image
from gpen_cli.detect.retinaface import decode, net_input
from gpen_cli.errors import DeviceError, WeightsError
from gpen_cli.paths import is_file

_SHOWN_KEYS = 3


class R50Detector:
    """RetinaFace ResNet-50 on ``device`` (``cpu``, ``cuda``, ``cuda:1``, ``mps``), eager, float32.

    weights_path: facexlib's ``detection_Resnet50_Final.pth`` or the same tensors in another file. Safe to call from
    several threads: the module is only read. Raises WeightsError when the file is missing, damaged or of another net,
    DeviceError when facexlib or the device cannot be used.
    """

    def __init__(self, weights_path: Path, device: str) -> None:
        state = _read_state(weights_path)
        self._device = device
        self._net = _build(device)
        _load(self._net, state, weights_path)
        self.name = f"retinaface-r50 ({weights_path}, torch, {device})"

    def detect(self, pixels: UInt8Image, threshold: float) -> list[Face]:
        """See ``Detector.detect``. Best score first."""
        import torch

        planes = net_input(pixels)
        try:
            with torch.inference_mode():
                outputs = self._net(torch.from_numpy(planes).to(self._device))
                offsets, probabilities, points = (output[0].float().cpu().numpy() for output in outputs)
        except torch.OutOfMemoryError as error:
            raise MemoryError("the GPU's memory is full") from error
        return decode(
            offsets, probabilities, points, input_size=(planes.shape[3], planes.shape[2]), threshold=threshold
        )


def _read_state(path: Path) -> dict[str, Any]:
    """The file's tensors by name, without the ``module.`` of nn.DataParallel. Code in the file is never run."""
    import pickle

    import torch

    if not is_file(path):
        raise WeightsError(
            f"The weights of retinaface-r50 are not at {path}; put the file there or choose another one."
        )
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, EOFError, pickle.UnpicklingError, ValueError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise WeightsError(f"The weights in {path} cannot be read ({reason}); fetch the file again.") from error
    if not isinstance(state, dict) or not all(isinstance(key, str) for key in state):
        raise WeightsError(f"{path} holds no table of weights; it is not a file for retinaface-r50.")
    return {key.removeprefix("module."): value for key, value in state.items()}


def _build(device: str) -> Any:
    """facexlib's module with random weights. ``device`` is always given: its default would take a GPU unasked."""
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", UserWarning
        )  # facexlib calls torchvision with ``pretrained=False``, which is deprecated
        try:
            from facexlib.detection.retinaface import RetinaFace
        except ImportError as error:
            raise DeviceError(
                f"retinaface-r50 needs facexlib, which cannot be imported ({error}); "
                "install it: python -m pip install facexlib==0.3.0"
            ) from None
        try:
            return RetinaFace(network_name="resnet50", half=False, phase="test", device=torch.device(device)).eval()
        except (RuntimeError, AssertionError) as error:
            reason = str(error).splitlines()[0]
            raise DeviceError(f"retinaface-r50 cannot run on {device} ({reason}); choose another --device.") from error


def _load(net: Any, state: dict[str, Any], path: Path) -> None:
    """Load strictly: a file that fits in part would leave the rest of the net random (as GPEN's own detector does)."""
    wanted = {key: tuple(value.shape) for key, value in net.state_dict().items()}
    given = {key: tuple(getattr(value, "shape", ())) for key, value in state.items()}
    wrong = sorted(key for key in wanted.keys() | given.keys() if wanted.get(key) != given.get(key))
    if wrong:
        shown = ", ".join(wrong[:_SHOWN_KEYS]) + (", …" if len(wrong) > _SHOWN_KEYS else "")
        raise WeightsError(
            f"{path} does not hold retinaface-r50: {len(wrong)} of {len(wanted)} weights differ ({shown}); "
            "give facexlib's detection_Resnet50_Final.pth."
        )
    net.load_state_dict(state, strict=True)
