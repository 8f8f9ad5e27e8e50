"""One training on several processes (torchrun): who we are, gradients averaged, decisions taken together.

Gradients are averaged by hand, in one flat tensor, because a wrapper round the net would break its compiled passes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn

from gpen_cli.errors import DeviceError


@dataclass(frozen=True)
class Processes:
    """rank: our number among ``world`` processes; 0 writes the files."""

    rank: int = 0
    world: int = 1

    @property
    def writes(self) -> bool:
        """Whether files are ours to write."""
        return self.rank == 0

    def average_gradients(self, net: nn.Module) -> None:
        """Every process ends with the mean of all processes' gradients."""
        if self.world == 1:
            return
        gradients = [p.grad for p in net.parameters() if p.grad is not None]
        flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
        dist.all_reduce(flat)
        flat /= self.world
        for gradient, part in zip(gradients, _parts(flat, gradients), strict=True):
            gradient.copy_(part.reshape(gradient.shape))

    def any(self, mine: bool, device: torch.device) -> bool:
        """Whether it is true of any process: all stop at the same step."""
        if self.world == 1:
            return mine
        flag = torch.tensor([float(mine)], device=device)
        dist.all_reduce(flag, op=dist.ReduceOp.MAX)
        return bool(flag.item())

    def close(self) -> None:
        """Leaves the group."""
        if self.world > 1:
            dist.destroy_process_group()


def _parts(flat: torch.Tensor, like: Iterable[torch.Tensor]) -> Iterable[torch.Tensor]:
    return flat.split([tensor.numel() for tensor in like])


def join(device: torch.device) -> Processes:
    """Joins torchrun's group, if torchrun started us. Raises DeviceError when the others cannot be reached."""
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world == 1:
        return Processes()
    try:
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    except (RuntimeError, ValueError) as error:
        raise DeviceError(f"The {world} processes of this training cannot reach each other: {error}") from error
    return Processes(rank=dist.get_rank(), world=world)
