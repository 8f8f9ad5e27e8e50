"""GPEN's generator: an encoder whose features feed a StyleGAN2 decoder. Read from top to bottom.

Source: Yang et al., "GAN Prior Embedded Network for Blind Face Restoration in the Wild", CVPR 2021 (arXiv:2105.06070).
Parameter names and shapes are those of the public files, so that they load as they are.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from gpen_cli.models.stylegan2 import (
    Blur,
    ConstantInput,
    EqualConv2d,
    EqualLinear,
    FusedLeakyReLU,
    PixelNorm,
    StyledConv,
    ToRGB,
)

SMALLEST = 4
"""Side of the decoder's first map, in pixels."""

BASE_CHANNELS = {4: 512, 8: 512, 16: 512, 32: 512, 64: 256, 128: 128, 256: 64, 512: 32, 1024: 16, 2048: 8}
"""Channels at each side length, before ``narrow``; from 64 px on also times the channel multiplier."""


@dataclass(frozen=True)
class GpenConfig:
    """What the shapes of a weight file say. size: side of the crop in pixels, a power of two from 64 to 2048."""

    size: int
    style_width: int = 512
    mapping_depth: int = 8
    channel_multiplier: int = 2
    narrow: float = 1.0

    def channels(self, side: int) -> int:
        """Channels of the maps that are ``side`` pixels wide."""
        multiplier = self.channel_multiplier if side >= 64 else 1
        return int(BASE_CHANNELS[side] * multiplier * self.narrow)

    @property
    def sides(self) -> list[int]:
        """4, 8, … size."""
        return [1 << power for power in range(2, self.size.bit_length())]


class Encoder1x1(nn.Sequential):
    """The first encoder stage: RGB to features at full size."""

    def __init__(self, outputs: int) -> None:
        super().__init__(EqualConv2d(3, outputs, 1), FusedLeakyReLU(outputs))


class EncoderDown(nn.Sequential):
    """Low-pass, 3×3 convolution with stride 2, activation: half the side."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(Blur((2, 2), gain=1.0), EqualConv2d(inputs, outputs, 3, stride=2), FusedLeakyReLU(outputs))


class Decoder(nn.Module):
    """StyleGAN2's synthesis network with skip RGB outputs; its "noise" is the encoder's features."""

    def __init__(self, config: GpenConfig) -> None:
        super().__init__()
        width = config.style_width
        first = config.channels(SMALLEST)
        layers = [EqualLinear(width, width, lr_multiplier=0.01, activate=True) for _ in range(config.mapping_depth)]
        self.style = nn.Sequential(PixelNorm(), *layers)
        self.input = ConstantInput(first, SMALLEST)
        self.conv1 = StyledConv(first, first, width)
        self.to_rgb1 = ToRGB(2 * first, width, has_skip=False)
        self.convs = nn.ModuleList()
        self.to_rgbs = nn.ModuleList()
        inputs = 2 * first  # concatenated features double every map's channels
        for side in config.sides[1:]:
            outputs = config.channels(side)
            self.convs.append(StyledConv(inputs, outputs, width, double=True))
            self.convs.append(StyledConv(2 * outputs, outputs, width))
            self.to_rgbs.append(ToRGB(2 * outputs, width, has_skip=True))
            inputs = 2 * outputs

    def forward(self, code: Tensor, features: list[Tensor]) -> Tensor:
        """code: (N, D); features: (N, C_side, side, side) for side = 4, 8, … size -> RGB (N, 3, size, size), float32."""
        style = self.style(code)
        x = self.input.input.to(features[0].dtype).expand(code.shape[0], -1, -1, -1)
        x = self.conv1(x, style, features[0])
        rgb = self.to_rgb1(x, style, None)
        for level, to_rgb in enumerate(self.to_rgbs):
            x = self.convs[2 * level](x, style, features[level + 1])
            x = self.convs[2 * level + 1](x, style, features[level + 1])
            rgb = to_rgb(x, style, rgb)
        return rgb


class Gpen(nn.Module):
    """Restores aligned faces: (N, 3, size, size) RGB in [-1, 1] -> the same, float32, about [-1, 1] (not clamped)."""

    def __init__(self, config: GpenConfig) -> None:
        super().__init__()
        self.config = config
        sides = config.sides[::-1]  # size … 4
        self.depth = len(sides)
        self.ecd0 = nn.Sequential(Encoder1x1(config.channels(config.size)))
        for stage, side in enumerate(sides[1:], start=1):
            self.add_module(f"ecd{stage}", nn.Sequential(EncoderDown(config.channels(2 * side), config.channels(side))))
        flat = config.channels(SMALLEST) * SMALLEST * SMALLEST
        self.final_linear = nn.Sequential(EqualLinear(flat, config.style_width, activate=True))
        self.generator = Decoder(config)

    def forward(self, faces: Tensor) -> Tensor:
        features: list[Tensor] = []
        x = faces
        for stage in range(self.depth):
            x = self.get_submodule(f"ecd{stage}")(x)
            features.append(x)
        code = self.final_linear(x.reshape(x.shape[0], -1))
        return self.generator(code, features[::-1])
