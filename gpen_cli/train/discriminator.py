"""GPEN's discriminator: StyleGAN2's, with the parameter names and shapes of the public files.

Source: arXiv:1912.04958, and ``GPEN-BFR-*-D`` in the shapes that the public files have. It says how real a face looks:
(N, 3, size, size) RGB in [-1, 1] -> (N, 1), unbounded, higher is more real.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gpen_cli.models.gpen import SMALLEST, GpenConfig
from gpen_cli.models.stylegan2 import Blur, EqualConv2d, EqualLinear, FusedLeakyReLU

SPREAD_GROUP = 4
"""Faces whose spread is compared at a time (StyleGAN2's minibatch standard deviation)."""


class ConvLayer(nn.Sequential):
    """Low-pass when it halves the side, convolution, then bias and activation unless ``activate`` is False."""

    def __init__(self, inputs: int, outputs: int, kernel: int, *, halve: bool = False, activate: bool = True) -> None:
        layers: list[nn.Module] = []
        if halve:
            # The pad makes the strided convolution's output exactly half the side.
            pad = 2 + (kernel - 1)
            layers.append(Blur(((pad + 1) // 2, pad // 2), gain=1.0))
        padding = 0 if halve else kernel // 2
        layers.append(EqualConv2d(inputs, outputs, kernel, stride=2 if halve else 1, padding=padding))
        if activate:
            layers.append(FusedLeakyReLU(outputs))
        super().__init__(*layers)


class ResidualBlock(nn.Module):
    """Two convolutions beside a linear short cut, half the side; the sum keeps its variance."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.conv1 = ConvLayer(inputs, inputs, 3)
        self.conv2 = ConvLayer(inputs, outputs, 3, halve=True)
        self.skip = ConvLayer(inputs, outputs, 1, halve=True, activate=False)

    def forward(self, x: Tensor) -> Tensor:
        return (self.conv2(self.conv1(x)) + self.skip(x)) / math.sqrt(2)


class Discriminator(nn.Module):
    """Judges faces of one size. ``forward`` also returns the maps between blocks, for feature matching."""

    def __init__(self, config: GpenConfig) -> None:
        super().__init__()
        sides = config.sides[::-1]  # size … 4
        blocks = [ResidualBlock(config.channels(s), config.channels(s // 2)) for s in sides[:-1]]
        self.convs = nn.Sequential(ConvLayer(3, config.channels(config.size), 1), *blocks)
        last = config.channels(SMALLEST)
        self.final_conv = ConvLayer(last + 1, last, 3)
        self.final_linear = nn.Sequential(
            EqualLinear(last * SMALLEST * SMALLEST, last, activate=True), EqualLinear(last, 1)
        )

    def forward(self, faces: Tensor) -> tuple[Tensor, list[Tensor]]:
        maps: list[Tensor] = []
        x = faces
        for block in self.convs:
            x = block(x)
            maps.append(x)
        x = self.final_conv(torch.cat((x, _spread(x)), dim=1))
        return self.final_linear(x.flatten(1)), maps[1:]


def _spread(x: Tensor) -> Tensor:
    """(N, C, H, W) -> (N, 1, H, W): how much the faces of a group differ, so that a collapsed generator is seen."""
    count, channels, height, width = x.shape
    group = min(count, SPREAD_GROUP)
    while count % group:
        group -= 1
    spread = x.float().reshape(group, count // group, channels, height, width)
    spread = torch.sqrt(spread.var(dim=0, unbiased=False) + 1e-8).mean(dim=(1, 2, 3), keepdim=True)
    return spread.to(x.dtype).repeat(group, 1, height, width)


def shrink(faces: Tensor, size: int) -> Tensor:
    """(N, 3, S, S) -> (N, 3, size, size), by averages of whole squares of pixels. S is ``size`` times a power of two."""
    return F.avg_pool2d(faces, faces.shape[-1] // size)
