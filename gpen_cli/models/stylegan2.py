"""The pieces of StyleGAN2 that GPEN is built from, in the form that is fast for inference and training.

Source: Karras et al., "Analyzing and Improving the Image Quality of StyleGAN" (arXiv:1912.04958), and the parameter names
and shapes of the public GPEN weights. Tensors are NCHW; "scale" factors are the equalised learning rate of
Karras et al. 2018 (arXiv:1710.10196): a weight w drawn from N(0, 1) is used as w / sqrt(fan in).

Modulation scales the *activations* (x·s, one shared convolution, then ·d) instead of the weights. The two are equal because a
convolution is linear in its input channels; but no weight then depends on the sample, so one ordinary convolution serves the
whole batch and a face's result cannot depend on its neighbours. ``textbook.py`` holds the paper's form, for tests.

Every layer computes in the type of its input, with float32 parameters in training: a bfloat16 crop makes a bfloat16 pass whose
style, demodulation and RGB sums stay float32, the same arithmetic as ``fold_constants`` prepares for inference.

Constructors leave weights undrawn (drawing 71 million numbers that a file replaces costs a second): ``draw_start`` draws
them for training. ``fold_constants`` works out once what depends on no face.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

LEAKY_SLOPE = 0.2
ACTIVATION_GAIN = math.sqrt(2.0)  # keeps the variance after a leaky ReLU (StyleGAN2, section 2)
FIR_TAPS = (1.0, 3.0, 3.0, 1.0)  # the binomial low-pass of StyleGAN2, applied separably
DEMODULATION_EPSILON = 1e-8


def fir_kernel(gain: float) -> Tensor:
    """The (4, 4) filter [1,3,3,1] x [1,3,3,1] / 64 times ``gain``: kept as a buffer because the public files hold it."""
    taps = torch.tensor(FIR_TAPS)
    kernel = torch.outer(taps, taps)
    return kernel * (gain / kernel.sum())


def separable_fir(x: Tensor, pad: tuple[int, int], gain: float) -> Tensor:
    """[1,3,3,1]/8 along rows and columns, ``pad`` = (before, after) zeros on both axes, times ``gain``.

    Sums of shifted slices: 8 multiply-adds a pixel instead of 16, and the compiler fuses them with their neighbours.
    """
    if x.requires_grad and torch.is_grad_enabled():
        filtered: Tensor = _TrainedFir.apply(x, pad, gain)
        return filtered
    return _shifted_sums(x, pad, gain)


class _TrainedFir(torch.autograd.Function):
    """The same filter, with its gradient said outright: a symmetric filter's is itself, with the padding's complement.

    Left to autograd, each slice's gradient is a tensor of its own filled up with zeros: ten times the filter's time.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, pad: tuple[int, int], gain: float) -> Tensor:
        ctx.pad, ctx.gain = pad, gain
        return _depthwise_fir(x, pad, gain) if x.device.type == "cpu" else _shifted_sums(x, pad, gain)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        before, after = ctx.pad
        return separable_fir(gradient, (3 - before, 3 - after), ctx.gain), None, None


def _shifted_sums(x: Tensor, pad: tuple[int, int], gain: float) -> Tensor:
    before, after = pad
    x = F.pad(x, (before, after, before, after))
    outer, inner = (tap * math.sqrt(gain) / sum(FIR_TAPS) for tap in FIR_TAPS[:2])
    height, width = x.shape[2] - 3, x.shape[3] - 3
    x = (x[:, :, :height] + x[:, :, 3:]) * outer + (x[:, :, 1 : height + 1] + x[:, :, 2 : height + 2]) * inner
    return (x[..., :width] + x[..., 3:]) * outer + (x[..., 1 : width + 1] + x[..., 2 : width + 2]) * inner


def _depthwise_fir(x: Tensor, pad: tuple[int, int], gain: float) -> Tensor:
    """The same filter as one convolution a channel: on a CPU one pass over memory instead of eight (docs/performance.md)."""
    both = min(pad)
    before, after = (side - both for side in pad)
    if before or after:
        x = F.pad(x, (before, after, before, after))
    kernel = fir_kernel(gain).to(x).expand(x.shape[1], 1, 4, 4)
    return F.conv2d(x, kernel, padding=both, groups=x.shape[1])


def fused_leaky_relu(x: Tensor, bias: Tensor) -> Tensor:
    """sqrt(2) · leaky_relu(x + bias); ``bias`` (C,) runs along axis 1."""
    shape = (1, -1) + (1,) * (x.ndim - 2)
    return F.leaky_relu(x + bias.reshape(shape).to(x.dtype), LEAKY_SLOPE) * ACTIVATION_GAIN


class FusedLeakyReLU(nn.Module):
    """Bias and activation; its parameter is named ``bias`` in the public files."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(channels))

    def forward(self, x: Tensor) -> Tensor:
        return fused_leaky_relu(x, self.bias)


class ConstantInput(nn.Module):
    """The learned (1, C, side, side) map every face starts from."""

    def __init__(self, channels: int, side: int) -> None:
        super().__init__()
        self.input = nn.Parameter(torch.empty(1, channels, side, side))


class PixelNorm(nn.Module):
    """Scales each style vector (N, D) to unit mean square."""

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.square().mean(dim=1, keepdim=True) + 1e-8)


class EqualLinear(nn.Module):
    """Fully connected layer with equalised learning rate; ``lr_multiplier`` scales weight and bias alike.

    Always computes in float32: the style decides every pixel, and these layers cost next to nothing.
    """

    def __init__(
        self, inputs: int, outputs: int, *, bias_start: float = 0.0, lr_multiplier: float = 1.0, activate: bool = False
    ) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, inputs))
        self.bias = nn.Parameter(torch.empty(outputs))
        self.bias_start = bias_start
        self.scale = lr_multiplier / math.sqrt(inputs)
        self.lr_multiplier = lr_multiplier
        self.activate = activate

    def forward(self, x: Tensor) -> Tensor:
        weight, bias = self.weight * self.scale, self.bias * self.lr_multiplier
        if self.activate:
            return fused_leaky_relu(F.linear(x.float(), weight), bias)
        return F.linear(x.float(), weight, bias)


class EqualConv2d(nn.Module):
    """Convolution without bias, with equalised learning rate."""

    def __init__(self, inputs: int, outputs: int, kernel: int, *, stride: int = 1, padding: int = 0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, inputs, kernel, kernel))
        self.scale = 1.0 / math.sqrt(inputs * kernel * kernel)
        self.stride = stride
        self.padding = padding
        self.folded: Tensor | None = None

    def scaled_weight(self) -> Tensor:
        """(outputs, inputs, k, k), ready to convolve with."""
        return self.weight * self.scale

    def forward(self, x: Tensor) -> Tensor:
        weight = self.scaled_weight() if self.folded is None else self.folded
        return F.conv2d(x, weight.to(x.dtype), stride=self.stride, padding=self.padding)


class Blur(nn.Module):
    """The FIR low-pass before a strided convolution (gain 1) or after a transposed one (gain 4)."""

    kernel: Tensor

    def __init__(self, pad: tuple[int, int], gain: float) -> None:
        super().__init__()
        self.register_buffer("kernel", fir_kernel(gain))
        self.pad = pad
        self.gain = gain
        self.convolves_below = 0
        """Channels; maps of fewer are filtered by a convolution (``filter_by_convolution``)."""

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[1] < self.convolves_below:
            return _depthwise_fir(x, self.pad, self.gain)
        return separable_fir(x, self.pad, self.gain)


class Upsample(nn.Module):
    """Doubles an RGB image: zeros between the samples, then the FIR filter with gain 4."""

    kernel: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("kernel", fir_kernel(4.0))

    def forward(self, x: Tensor) -> Tensor:
        count, channels, height, width = x.shape
        spread = x.new_zeros(count, channels, height, 2, width, 2)
        spread[:, :, :, 0, :, 0] = x
        return separable_fir(spread.reshape(count, channels, 2 * height, 2 * width), (2, 1), 4.0)


class ModulatedConv2d(nn.Module):
    """Convolution whose input channels are scaled by a style (N, D), with optional demodulation and doubling."""

    def __init__(
        self, inputs: int, outputs: int, kernel: int, style_width: int, *, demodulate: bool = True, double: bool = False
    ) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(1, outputs, inputs, kernel, kernel))
        self.modulation = EqualLinear(style_width, inputs, bias_start=1.0)
        self.scale = 1.0 / math.sqrt(inputs * kernel * kernel)
        self.padding = kernel // 2
        self.demodulate = demodulate
        self.double = double
        if double:
            self.blur = Blur((1, 1), gain=4.0)
        self.folded: tuple[Tensor, Tensor] | None = None

    def scaled_weight(self) -> tuple[Tensor, Tensor]:
        """The weight, ready to convolve with, and (inputs, outputs) float32: its squares summed over the taps.

        A transposed convolution wants (inputs, outputs, k, k), a plain one (outputs, inputs, k, k).
        """
        weight = self.weight[0] * self.scale
        # float32, because a sum of thousands of squares loses its last digits in bfloat16.
        energy = weight.float().square().sum(dim=(2, 3)).t()
        return (weight.transpose(0, 1) if self.double else weight), energy

    def forward(self, x: Tensor, style: Tensor) -> Tensor:
        """x: (N, inputs, H, W), style: (N, D) -> (N, outputs, H, W), or twice the height and width when ``double``."""
        weight, energy = self.scaled_weight() if self.folded is None else self.folded
        scales = self.modulation(style)  # (N, inputs), float32
        x = x * scales.to(x.dtype)[:, :, None, None]
        if self.double:
            x = self.blur(F.conv_transpose2d(x, weight.to(x.dtype), stride=2))
        else:
            x = F.conv2d(x, weight.to(x.dtype), padding=self.padding)
        if not self.demodulate:
            return x
        # |w·s|² over inputs and taps = s² · (sum of w² over taps).
        norm = torch.rsqrt(scales.square() @ energy + DEMODULATION_EPSILON)
        return x * norm.to(x.dtype)[:, :, None, None]


class NoiseConcat(nn.Module):
    """GPEN's change to StyleGAN2: the encoder's features take the place of noise, and are concatenated, not added."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))

    def forward(self, x: Tensor, features: Tensor) -> Tensor:
        return torch.cat((x, features * self.weight.to(x.dtype)), dim=1)


class StyledConv(nn.Module):
    """Modulated convolution, features beside its output (channels double), bias and activation."""

    def __init__(self, inputs: int, outputs: int, style_width: int, *, double: bool = False) -> None:
        super().__init__()
        self.conv = ModulatedConv2d(inputs, outputs, 3, style_width, double=double)
        self.noise = NoiseConcat()
        self.activate = FusedLeakyReLU(2 * outputs)

    def forward(self, x: Tensor, style: Tensor, features: Tensor) -> Tensor:
        return self.activate(self.noise(self.conv(x, style), features))


class ToRGB(nn.Module):
    """1×1 modulated convolution to RGB, added to the doubled RGB of the level below."""

    def __init__(self, inputs: int, style_width: int, *, has_skip: bool) -> None:
        super().__init__()
        if has_skip:
            self.upsample = Upsample()
        self.conv = ModulatedConv2d(inputs, 3, 1, style_width, demodulate=False)
        self.bias = nn.Parameter(torch.zeros(1, 3, 1, 1))

    def forward(self, x: Tensor, style: Tensor, skip: Tensor | None) -> Tensor:
        # float32 from here on: the RGB sums of all levels decide the picture's last bit.
        rgb = self.conv(x, style).float() + self.bias.float()
        return rgb if skip is None else rgb + self.upsample(skip)


def draw_start(net: nn.Module) -> None:
    """Draws the weights training starts from: N(0, 1) under the equalised learning rate, biases at their start."""
    for module in net.modules():
        if isinstance(module, EqualLinear):
            nn.init.normal_(module.weight, std=1.0 / module.lr_multiplier)
            nn.init.constant_(module.bias, module.bias_start)
        elif isinstance(module, (EqualConv2d, ModulatedConv2d)):
            nn.init.normal_(module.weight)
        elif isinstance(module, ConstantInput):
            nn.init.normal_(module.input)


def filter_by_convolution(net: nn.Module, *, below: int) -> None:
    """Lets inference on a CPU filter maps of fewer than ``below`` channels by a convolution; the others, and every map of
    exported and trained nets, by shifted slices."""
    for module in net.modules():
        if isinstance(module, Blur):
            module.convolves_below = below


@torch.no_grad()
def fold_constants(net: nn.Module, dtype: torch.dtype) -> None:
    """Works out, once, what depends on no face, and takes the convolutions to ``dtype``; the net then only infers.

    Linear layers stay float32 (they decide the style, and cost next to nothing); convolution weights are laid out
    channels last, the form in which CPUs and tensor cores convolve fastest.
    """
    for module in net.modules():
        if isinstance(module, EqualConv2d):
            module.folded = module.scaled_weight().to(dtype).contiguous(memory_format=torch.channels_last)
            module.weight.data = module.weight.data.new_empty(0)
        elif isinstance(module, ModulatedConv2d):
            weight, energy = module.scaled_weight()
            module.folded = (weight.to(dtype).contiguous(memory_format=torch.channels_last), energy.contiguous())
            module.weight.data = module.weight.data.new_empty(0)
        elif isinstance(module, EqualLinear):
            module.weight.data.mul_(module.scale)
            module.bias.data.mul_(module.lr_multiplier)
            module.scale = module.lr_multiplier = 1.0
        elif isinstance(module, (FusedLeakyReLU, NoiseConcat, ConstantInput)):
            for parameter in module.parameters(recurse=False):
                parameter.data = parameter.data.to(dtype)
