"""A net of twice the size from a trained one: inner layers carried over, the outer level made so that little changes.

The small net's first stage, a 1×1 convolution at its full size, has no place in the larger one, where its level is reached
through a new stage and a strided convolution. These two are set so that they hand on what the small net's first stage made
of the shrunk crop: the new stage keeps the crop as it is (a channel for +x and one for −x: the difference of their leaky
ReLUs is 1.2·x), the strided convolution's middle tap does the rest, and its low-pass filter shrinks. The new decoder level
starts with next to nothing to add to the enlarged picture. Everything else of the new level is drawn.
"""

from __future__ import annotations

import math
import re
from pathlib import Path

import torch
from torch import Tensor, nn

from gpen_cli.errors import UsageError
from gpen_cli.models.gpen import Gpen, GpenConfig
from gpen_cli.models.stylegan2 import ACTIVATION_GAIN, LEAKY_SLOPE, NoiseConcat, draw_start

NOISE_START = 0.5
"""Start of the weight of the encoder's features. At the papers' 0 the net would first have to find out that it has an input."""

LAST_RGB_START = 0.02
"""Of a drawn weight: how much the new level's RGB says at first. Not 0, so that the level's other layers learn at once."""

_ENCODER = re.compile(r"ecd(\d+)\.(.*)")


def drawn_generator(config: GpenConfig) -> Gpen:
    """A generator drawn from torch's random state."""
    net = Gpen(config)
    draw_start(net)
    for module in net.modules():
        if isinstance(module, NoiseConcat):
            nn.init.constant_(module.weight, NOISE_START)
    return net


@torch.no_grad()
def grow(small: Gpen, config: GpenConfig, source: Path) -> Gpen:
    """A net of ``config``, twice as large as ``small``; draws from torch's random state. Raises UsageError where they don't fit.

    source: the small net's file, for the message.
    """
    _require_fit(small.config, config, source)
    net = drawn_generator(config)
    state = net.state_dict()
    state.update({_grown_name(name): value for name, value in small.state_dict().items() if _carries_over(name)})
    _pass_the_crop_on(state, small.state_dict())
    state[f"generator.to_rgbs.{len(config.sides) - 2}.conv.weight"] *= LAST_RGB_START
    net.load_state_dict(state)
    return net


def _require_fit(small: GpenConfig, large: GpenConfig, source: Path) -> None:
    if large.size != 2 * small.size:
        raise UsageError(
            f"--grow-from {source} is a net of {small.size} px; it can grow to {2 * small.size} px, not to {large.size}."
        )
    same = (small.style_width, small.mapping_depth) == (large.style_width, large.mapping_depth)
    if not same or any(small.channels(side) != large.channels(side) for side in small.sides):
        raise UsageError(
            f"--grow-from {source} has other inner layers ({small}); give --narrow, --channel-multiplier as it has."
        )


def _carries_over(name: str) -> bool:
    return not name.startswith("ecd0.")


def _grown_name(name: str) -> str:
    """Encoder stages count from the outside, decoder levels from the inside."""
    stage = _ENCODER.fullmatch(name)
    return f"ecd{int(stage[1]) + 1}.{stage[2]}" if stage else name


def _pass_the_crop_on(state: dict[str, Tensor], small: dict[str, Tensor]) -> None:
    """Sets the new first stage and the strided convolution behind it (see the module's text)."""
    first, second = state["ecd0.0.0.weight"], state["ecd1.0.1.weight"]  # (C, 3, 1, 1), (D, C, 3, 3)
    if first.shape[0] < 6:
        return  # too narrow to keep the crop: drawn
    for colour in range(3):
        for sign in (0, 1):
            channel = 2 * colour + sign
            first[channel] = 0
            first[channel, colour] = math.sqrt(3) * (1 - 2 * sign)  # the equalised rate divides it again
            state["ecd0.0.1.bias"][channel] = 0
    gain = (1 + LEAKY_SLOPE) * ACTIVATION_GAIN  # of the difference of the two channels
    scale = math.sqrt(second[0].numel())
    wanted = small["ecd0.0.0.weight"][:, :, 0, 0] / math.sqrt(3)  # (D, 3)
    second.zero_()
    for colour in range(3):
        second[:, 2 * colour, 1, 1] = wanted[:, colour] / gain * scale
        second[:, 2 * colour + 1, 1, 1] = -wanted[:, colour] / gain * scale
    state["ecd1.0.2.bias"] = small["ecd0.0.1.bias"].clone()
