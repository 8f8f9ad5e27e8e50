"""Weights drawn from a seed, as the golden outputs in tests/data were made: nothing trained, nothing downloaded."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from gpen_cli.models.gpen import Gpen, GpenConfig

SMALL = GpenConfig(64, style_width=64, mapping_depth=4, channel_multiplier=2, narrow=0.0625)
"""A net of 0.3 million parameters."""


def draw_weights(module: torch.nn.Module, seed: int) -> dict[str, torch.Tensor]:
    """A state dict for ``module``, drawn in plain string order of the names (see tests/data/README.md)."""
    rng = np.random.RandomState(seed)
    drawn: dict[str, torch.Tensor] = {}
    for name, tensor in sorted(module.state_dict().items()):
        if name.endswith("kernel"):
            drawn[name] = tensor.clone()
            continue
        values = rng.standard_normal(tuple(tensor.shape))
        if name.endswith("noise.weight"):
            values = 0.3 * values
        elif name.endswith("modulation.bias"):
            values = 1 + 0.1 * values
        elif name.endswith("bias"):
            values = 0.1 * values
        elif name.startswith("generator.style."):
            values = 100 * values
        drawn[name] = torch.from_numpy(values.astype(np.float32))
    return drawn


def drawn_gpen(config: GpenConfig, seed: int) -> Gpen:
    """A generator with drawn weights, ready for inference."""
    net = Gpen(config)
    net.load_state_dict(draw_weights(net, seed))
    return net.eval().requires_grad_(False)


def save_small_net(path: Path) -> Path:
    """Writes a ``SMALL`` net whose answers lie about [-1, 1], as a trained net's do."""
    state = drawn_gpen(SMALL, 5).state_dict()
    for name in state:
        if ".to_rgb" in name and name.endswith("conv.weight"):
            state[name] *= 0.2
    torch.save(state, path)
    return path
