"""Nets made ready to run: uint8 RGB in, uint8 RGB out. Which runtime carries a net is chosen here, once."""

from __future__ import annotations

from gpen_cli.device import Setup, has_package, import_torch
from gpen_cli.errors import DeviceError
from gpen_cli.runtime.protocol import CropNet
from gpen_cli.weights.find import FoundWeights


def settle_thread(setup: Setup) -> None:
    """Tells PyTorch how many threads a pass may take that is asked for on this thread; every thread has its own number."""
    if setup.runtime != "onnx":
        import torch

        torch.set_num_threads(setup.threads)


def make_net(weights: FoundWeights, setup: Setup, *, parser: bool = False) -> CropNet:
    """A loaded net (or the face parser) on the setup's device. Raises WeightsError, DeviceError."""
    if setup.runtime == "onnx" and not parser:
        from gpen_cli.runtime.onnx import OnnxGpen

        return OnnxGpen(weights, setup)
    if not has_package("torch"):
        raise DeviceError(
            f"{weights.name} needs PyTorch, which is not installed; install it (python -m pip install torch torchvision), or "
            "run an ONNX net (--weights FILE.onnx)."
        )
    import_torch()
    settle_thread(setup)
    if parser:
        from gpen_cli.runtime.parsenet import FaceParser

        return FaceParser(weights, setup)
    from gpen_cli.runtime.torch_gpen import TorchGpen

    return TorchGpen(weights, setup)
