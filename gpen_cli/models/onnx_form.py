"""The generator in the form an ONNX graph is drawn from: the same numbers, with no arithmetic on shapes and few, fast operators.

Three things differ from ``gpen.py``. The FIR filters are depthwise convolutions, because inference engines have those and would
run eight shifted slices as eight copies. RGB is doubled by one transposed convolution. And nothing asks for the batch's size:
the learned first map is spread over the batch by its product with the style. Weights are those ``fold_constants`` worked out.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gpen_cli.models.gpen import Gpen
from gpen_cli.models.stylegan2 import Blur, EqualConv2d, ModulatedConv2d, ToRGB, fir_kernel

HALF_RANGE = 127.5
"""uint8 0..255 and the net's [-1, 1]: x / 127.5 − 1 (as ``runtime/crops.py``)."""
UPSAMPLE_GAIN = 4.0


class DepthwiseFir(nn.Module):
    """``separable_fir`` as one 4×4 convolution a channel. pad: (before, after) zeros on both axes."""

    weight: Tensor

    def __init__(self, channels: int, *, pad: tuple[int, int], gain: float, dtype: torch.dtype) -> None:
        super().__init__()
        kernel = fir_kernel(gain).to(dtype)  # symmetric: flipping it, as the papers do, changes nothing
        self.register_buffer("weight", kernel[None, None].repeat(channels, 1, 1, 1))
        if pad[0] != pad[1]:
            raise ValueError("GPEN pads its low-pass alike on both sides")
        self.pad = pad[0]

    def forward(self, x: Tensor) -> Tensor:
        return F.conv2d(x, self.weight, padding=self.pad, groups=self.weight.shape[0])


class DoubledRgb(nn.Module):
    """``Upsample`` as one transposed convolution: (N, 3, H, W) -> (N, 3, 2H, 2W), float32.

    Its weight holds the filter on the diagonal, so that colours do not mix and no engine needs a grouped one.
    """

    weight: Tensor

    def __init__(self) -> None:
        super().__init__()
        weight = torch.zeros(3, 3, 4, 4)
        for colour in range(3):
            weight[colour, colour] = fir_kernel(UPSAMPLE_GAIN)
        self.register_buffer("weight", weight)

    def forward(self, rgb: Tensor) -> Tensor:
        return F.conv_transpose2d(rgb, self.weight, stride=2, padding=1)


class OnnxForm(nn.Module):
    """A folded ``Gpen`` to draw a graph from; it takes the net's modules over and changes them: make it, export it, drop it.

    float: (N, 3, S, S) RGB in [-1, 1] -> the same, float32, about [-1, 1]. uint8: (N, S, S, 3) -> (N, S, S, 3) uint8, and
    (N,) float32, the mean of each face before clamping: what is not finite there overflowed, which uint8 cannot tell.
    """

    def __init__(self, net: Gpen, dtype: torch.dtype, *, uint8: bool) -> None:
        super().__init__()
        self.net = net
        self.dtype = dtype
        self.uint8 = uint8
        for module in net.modules():
            _replace_filters(module, dtype)

    def forward(self, faces: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        if not self.uint8:
            return self._restore(faces)
        rgb = self._restore(faces.permute(0, 3, 1, 2).float() / HALF_RANGE - 1.0)
        levels = torch.round((rgb + 1.0) * HALF_RANGE).clamp(0.0, 255.0)  # halves go to the even level
        return levels.permute(0, 2, 3, 1).to(torch.uint8), rgb.mean(dim=(1, 2, 3))

    def _restore(self, faces: Tensor) -> Tensor:
        """``Gpen.forward`` and ``Decoder.forward``, without the batch's size."""
        x = faces.to(self.dtype)
        features: list[Tensor] = []
        for stage in range(self.net.depth):
            x = self.net.get_submodule(f"ecd{stage}")(x)
            features.insert(0, x)
        decoder = self.net.generator
        style = decoder.style(self.net.final_linear(x.flatten(1)))
        x = decoder.conv1(decoder.input.input, style, features[0])  # (1, C, 4, 4) times (N, C, 1, 1)
        rgb = decoder.to_rgb1(x, style, None)
        for level, to_rgb in enumerate(decoder.to_rgbs):
            x = decoder.convs[2 * level](x, style, features[level + 1])
            x = decoder.convs[2 * level + 1](x, style, features[level + 1])
            rgb = to_rgb(x, style, rgb)
        return rgb


def _replace_filters(module: nn.Module, dtype: torch.dtype) -> None:
    if isinstance(module, ToRGB) and hasattr(module, "upsample"):
        module.upsample = DoubledRgb()
    elif isinstance(module, ModulatedConv2d) and module.double:
        assert module.folded is not None
        outputs = module.folded[1].shape[1]
        module.blur = _fir(module.blur, outputs, dtype)
    elif isinstance(module, nn.Sequential) and len(module) and isinstance(module[0], Blur):
        convolution = module[1]
        assert isinstance(convolution, EqualConv2d)
        assert convolution.folded is not None
        module[0] = _fir(module[0], convolution.folded.shape[1], dtype)


def _fir(blur: Blur, channels: int, dtype: torch.dtype) -> DepthwiseFir:
    return DepthwiseFir(channels, pad=blur.pad, gain=blur.gain, dtype=dtype)
