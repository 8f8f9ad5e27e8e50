"""The device of a training, and how it computes there."""

from __future__ import annotations

import dataclasses
import logging
import os

import torch

from gpen_cli.device import cpu_count, cpu_has_bf16, keep_freed_memory, resolve_precision, resolve_setup
from gpen_cli.options import NetOptions
from gpen_cli.train.config import TrainConfig

log = logging.getLogger(__name__)


def prepare_device(config: TrainConfig) -> torch.device:
    """The device asked for; with torchrun, this process's own. Raises DeviceError, UsageError."""
    setup = resolve_setup(NetOptions(device=config.device, runtime="eager", threads=config.threads))
    name = setup.only_device("name one, or start a process for each with torchrun (docs/training.md)")
    local = int(os.environ.get("LOCAL_RANK", "0"))
    if name.startswith("cuda"):
        device = torch.device("cuda", local) if "LOCAL_RANK" in os.environ else torch.device(name)
        torch.cuda.set_device(device)
        torch.backends.cuda.matmul.allow_tf32 = True  # the few float32 layers; bf16 elsewhere is coarser anyway
        torch.backends.cudnn.benchmark = True
        return device
    keep_freed_memory(large=True)
    processes = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    torch.set_num_threads(config.threads or max(1, cpu_count() // processes))
    return torch.device(name)


def settle_precision(config: TrainConfig, device: torch.device) -> TrainConfig:
    """``config`` with bf16 or fp32 in place of auto: a checkpoint says what was computed, whatever machine goes on with it."""
    if config.precision == "auto":
        found, _ = resolve_precision("auto", str(device))
        return dataclasses.replace(config, precision="bf16" if found == "bf16" else "fp32")
    if config.precision == "bf16" and device.type == "cpu" and not cpu_has_bf16():
        log.warning("--precision bf16: this CPU has no bf16 instructions; fp32 is several times faster")
    return config
