"""The same generator as the papers write it: weights modulated and demodulated for each face. Slow, short, obviously right.

Tests and benchmarks hold ``gpen.py`` against it. It is a function of a state dict, so that nothing is shared with the fast net
but the parameter names. Source: arXiv:1912.04958 (equations 1 and 3), arXiv:2105.06070.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

Weights = Mapping[str, Tensor]


def textbook_gpen(weights: Weights, faces: Tensor) -> Tensor:
    """(N, 3, S, S) RGB in [-1, 1] -> (N, 3, S, S), with the weights of a ``Gpen`` of size S."""
    count = faces.shape[0]
    levels = int(math.log2(faces.shape[-1])) - 1  # maps of 4, 8, … S pixels

    x = _bias_act(_conv(faces, weights["ecd0.0.0.weight"]), weights["ecd0.0.1.bias"])
    features = [x]
    for stage in range(1, levels):
        x = _fir(x, weights[f"ecd{stage}.0.0.kernel"], up=1, pad=(2, 2))
        x = _bias_act(_conv(x, weights[f"ecd{stage}.0.1.weight"], stride=2), weights[f"ecd{stage}.0.2.bias"])
        features.insert(0, x)
    code = _linear(x.flatten(1), weights, "final_linear.0", activate=True)

    style = code / torch.sqrt((code**2).mean(1, keepdim=True) + 1e-8)
    depth = sum(name.startswith("generator.style.") and name.endswith(".weight") for name in weights)
    for layer in range(1, depth + 1):
        style = _linear(style, weights, f"generator.style.{layer}", activate=True, lr=0.01)

    x = weights["generator.input.input"].repeat(count, 1, 1, 1)
    x = _styled(x, style, features[0], weights, "generator.conv1")
    rgb = _to_rgb(x, style, None, weights, "generator.to_rgb1")
    for level in range(levels - 1):
        x = _styled(x, style, features[level + 1], weights, f"generator.convs.{2 * level}", double=True)
        x = _styled(x, style, features[level + 1], weights, f"generator.convs.{2 * level + 1}")
        rgb = _to_rgb(x, style, rgb, weights, f"generator.to_rgbs.{level}")
    return rgb


def _bias_act(x: Tensor, bias: Tensor) -> Tensor:
    return F.leaky_relu(x + bias.view(1, -1, *[1] * (x.ndim - 2)), 0.2) * math.sqrt(2)


def _conv(x: Tensor, weight: Tensor, stride: int = 1) -> Tensor:
    return F.conv2d(x, weight / math.sqrt(weight[0].numel()), stride=stride)


def _linear(x: Tensor, weights: Weights, name: str, *, activate: bool = False, lr: float = 1.0) -> Tensor:
    weight, bias = weights[f"{name}.weight"], weights[f"{name}.bias"]
    y = x @ (weight * (lr / math.sqrt(weight.shape[1]))).t()
    return _bias_act(y, bias * lr) if activate else y + bias * lr


def _fir(x: Tensor, kernel: Tensor, *, up: int, pad: tuple[int, int]) -> Tensor:
    """Zeros between samples (up = 2), zero padding, convolution with the flipped 2-D kernel."""
    count, channels, height, width = x.shape
    if up == 2:
        spread = torch.zeros(count, channels, 2 * height, 2 * width, dtype=x.dtype)
        spread[:, :, ::2, ::2] = x
        x = spread
    x = F.pad(x, (pad[0], pad[1], pad[0], pad[1])).reshape(count * channels, 1, x.shape[2] + sum(pad), -1)
    y = F.conv2d(x, kernel.flip(0, 1)[None, None])
    return y.view(count, channels, *y.shape[-2:])


def _modulated(
    x: Tensor, style: Tensor, weights: Weights, name: str, *, demodulate: bool = True, double: bool = False
) -> Tensor:
    weight = weights[f"{name}.weight"]
    _, outputs, inputs, taps, _ = weight.shape
    count, _, height, width = x.shape
    scales = _linear(style, weights, f"{name}.modulation")
    own = weight / math.sqrt(inputs * taps * taps) * scales.view(count, 1, inputs, 1, 1)
    if demodulate:
        own = own / torch.sqrt((own**2).sum((2, 3, 4), keepdim=True) + 1e-8)
    x = x.reshape(1, count * inputs, height, width)  # one group a face
    if double:
        own = own.transpose(1, 2).reshape(count * inputs, outputs, taps, taps)
        y = F.conv_transpose2d(x, own, stride=2, groups=count)
        y = y.view(count, outputs, *y.shape[-2:])
        return _fir(y, weights[f"{name}.blur.kernel"], up=1, pad=(1, 1))
    y = F.conv2d(x, own.reshape(count * outputs, inputs, taps, taps), padding=taps // 2, groups=count)
    return y.view(count, outputs, *y.shape[-2:])


def _styled(x: Tensor, style: Tensor, features: Tensor, weights: Weights, name: str, *, double: bool = False) -> Tensor:
    y = _modulated(x, style, weights, f"{name}.conv", double=double)
    y = torch.cat((y, weights[f"{name}.noise.weight"] * features), 1)
    return _bias_act(y, weights[f"{name}.activate.bias"])


def _to_rgb(x: Tensor, style: Tensor, skip: Tensor | None, weights: Weights, name: str) -> Tensor:
    y = _modulated(x, style, weights, f"{name}.conv", demodulate=False) + weights[f"{name}.bias"]
    if skip is None:
        return y
    return y + _fir(skip, weights[f"{name}.upsample.kernel"], up=2, pad=(2, 1))
