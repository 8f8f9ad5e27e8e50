"""What changes with the step: learning rates, the average's memory, the strength of the judges."""

from __future__ import annotations

import math

import torch

from gpen_cli.train.config import ScheduleConfig


def rate_factor(schedule: ScheduleConfig, step: int) -> float:
    """Of the highest rate, at ``step`` (from 0): a straight rise over the warm-up, then a cosine down to ``last_rate``."""
    if step < schedule.warm_up:
        return (step + 1) / schedule.warm_up
    done = (step - schedule.warm_up) / max(1, schedule.steps - schedule.warm_up)
    return schedule.last_rate + (1 - schedule.last_rate) * (1 + math.cos(math.pi * min(done, 1.0))) / 2


def set_rate(optimiser: torch.optim.Optimizer, rate: float) -> None:
    """Gives every group of ``optimiser`` the learning rate ``rate``."""
    for group in optimiser.param_groups:
        group["lr"] = rate


def keep_factor(schedule: ScheduleConfig, step: int) -> float:
    """How much of the average stays: little at first, when the net is still far from anything."""
    return min(schedule.average, 1 - 10 / (step + 20))


def judge_strength(schedule: ScheduleConfig, step: int) -> float:
    """0 to 1 over the ramp: judges that know nothing yet should not be listened to."""
    return min(1.0, step / max(1, schedule.ramp))
