"""What is trained, and what the losses look through; drawn, started from a file, or grown from a smaller net."""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from gpen_cli.errors import UsageError
from gpen_cli.models.gpen import Gpen, GpenConfig
from gpen_cli.models.stylegan2 import draw_start
from gpen_cli.train.config import NetConfig, TrainConfig
from gpen_cli.train.discriminator import Discriminator
from gpen_cli.train.face_net import FaceNet, load_face_net
from gpen_cli.train.growth import drawn_generator, grow
from gpen_cli.train.lite0 import Lite0, load_lite0
from gpen_cli.weights.load import load_gpen, read_state

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Nets:
    """average: the EMA of ``generator``, which is what gets shipped. judges: by view. The last two judge likeness."""

    generator: Gpen
    average: Gpen
    judges: nn.ModuleDict
    face: FaceNet | None
    perceptual: Lite0 | None

    def trained(self) -> dict[str, nn.Module]:
        """By the names of a checkpoint."""
        return {"generator": self.generator, "average": self.average, "judges": self.judges}


def build_nets(config: TrainConfig, device: torch.device) -> Nets:
    """All nets of a training at step 0, on ``device``. Raises WeightsError, DeviceError, UsageError."""
    loss = config.loss
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.schedule.seed)
        generator = start_generator(config.net)
        judges = start_judges(config)
    face = None
    if loss.features > 0 or loss.identity > 0:
        if loss.face_net is None:
            raise UsageError(
                "loss.features and loss.identity look through a face recognition net: give --face-net FILE "
                "(docs/training.md says how to make it), or set both to 0."
            )
        face = load_face_net(loss.face_net)
    perceptual = load_lite0() if loss.perceptual > 0 else None
    for net in (generator, judges, face, perceptual):
        if net is not None:
            _channels_last(net.to(device))
    average = copy.deepcopy(generator).eval().requires_grad_(False)
    return Nets(generator=generator, average=average, judges=judges, face=face, perceptual=perceptual)


def start_generator(config: NetConfig) -> Gpen:
    """The generator at step 0, float32, trainable. Raises UsageError, WeightsError."""
    architecture = GpenConfig(
        size=config.size,
        style_width=config.style_width,
        mapping_depth=config.mapping_depth,
        channel_multiplier=config.channel_multiplier,
        narrow=config.narrow,
    )
    if config.start is not None:
        net = load_gpen(config.start)
        if net.config != architecture:
            raise UsageError(
                f"{config.start} is a net of another shape ({net.config}) than net asks for ({architecture})."
            )
    elif config.grow_from is not None:
        net = grow(load_gpen(config.grow_from), architecture, config.grow_from)
    else:
        net = drawn_generator(architecture)
    return net.train().requires_grad_(True)


def start_judges(config: TrainConfig) -> nn.ModuleDict:
    """By view, float32: drawn, or those of ``discriminator.start``. Raises UsageError, WeightsError."""
    judges, start = nn.ModuleDict(), config.discriminator.start
    for view in config.discriminator.views if config.loss.adversarial > 0 else ():
        judges[view] = _draw_judge(config)
    if start is None:
        return judges
    if not judges:
        raise UsageError("--start-judges: this training has no judges (loss.adversarial is 0); leave it out.")
    state = read_state(start)
    known = {view: _part(state, view) for view in judges}
    if not any(known.values()):
        raise UsageError(
            f"{start} holds no judges of {', '.join(judges)}; name the NAME.judges.safetensors that a training left."
        )
    for view, judge in judges.items():
        if not known[view]:
            log.warning("%s has no judge of the view %s; it starts from a drawn one", start, view)
            continue
        try:
            judge.load_state_dict(known[view])
        except RuntimeError as error:
            raise UsageError(
                f"The judge {view} of {start} is a net of another shape; set discriminator.size, narrow and "
                f"channel_multiplier as in the training that made it, or leave out --start-judges."
            ) from error
    return judges


def _part(state: Mapping[str, Any], name: str) -> dict[str, Tensor]:
    """The tensors of one net of several, under its own names."""
    return {key.removeprefix(f"{name}."): value for key, value in state.items() if key.startswith(f"{name}.")}


def _draw_judge(config: TrainConfig) -> Discriminator:
    options = config.discriminator
    judge = Discriminator(
        GpenConfig(options.size, channel_multiplier=options.channel_multiplier, narrow=options.narrow)
    )
    draw_start(judge)
    return judge


def _channels_last(net: nn.Module) -> None:
    """Lays (O, I, k, k) weights out as CPUs and tensor cores convolve fastest; ``Module.to`` refuses GPEN's 5-D ones."""
    for tensor in (*net.parameters(), *net.buffers()):
        if tensor.ndim == 4:
            tensor.data = tensor.data.contiguous(memory_format=torch.channels_last)


@torch.no_grad()
def update_average(average: nn.Module, net: nn.Module, keep: float) -> None:
    """average ← keep · average + (1 − keep) · net, over parameters."""
    torch._foreach_lerp_(_tensors(average.parameters()), _tensors(net.parameters()), 1 - keep)


def _tensors(parameters: Iterable[nn.Parameter]) -> list[Tensor]:
    return [parameter.detach() for parameter in parameters]


def save_weights(net: nn.Module, path: Path, dtype: torch.dtype) -> None:
    """Writes ``path`` (.safetensors) in one step, in ``dtype``. Raises OSError."""
    from safetensors.torch import save

    weights = {name: value.detach().to("cpu", dtype).contiguous() for name, value in net.state_dict().items()}
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_bytes(save(weights))  # its own save_file lets nobody else read the file
    temporary.replace(path)
