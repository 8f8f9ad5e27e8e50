"""The training itself: batches in, steps, averages, checkpoints, figures out."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gpen_cli.cache import cache_dir
from gpen_cli.errors import OutputError
from gpen_cli.train import checkpoint
from gpen_cli.train.config import TrainConfig
from gpen_cli.train.config_file import as_mapping
from gpen_cli.train.crops import open_samples
from gpen_cli.train.face_net import draw_window
from gpen_cli.train.feed import Feed, to_device
from gpen_cli.train.journal import Journal
from gpen_cli.train.nets import Nets, build_nets, save_weights, update_average
from gpen_cli.train.processes import Processes
from gpen_cli.train.schedule import judge_strength, keep_factor, rate_factor, set_rate
from gpen_cli.train.setup import settle_precision
from gpen_cli.train.sheet import validate, validation_samples
from gpen_cli.train.steps import Batch, Drawn, Steps, clip_and_apply
from gpen_cli.train.views import draw_squares

log = logging.getLogger(__name__)

GENERATOR_BETAS = (0.5, 0.99)
JUDGE_BETAS = (0.0, 0.99)  # StyleGAN2's: momentum makes judges chase what is gone

Stop = Callable[[], bool]


@dataclass(frozen=True)
class Trained:
    """What a training left. step: steps done in all; waiting: share of this run's time spent waiting for data."""

    step: int
    weights: Path
    seconds: float
    images: int
    waiting: float
    finished: bool


def run_folder(config: TrainConfig) -> Path:
    """Where a training keeps its files."""
    return config.output.folder or cache_dir() / "training" / config.name


class Trainer:
    """One process of one training."""

    def __init__(self, config: TrainConfig, device: torch.device, processes: Processes, *, resume: bool) -> None:
        """Raises UsageError, WeightsError, DeviceError, PhotoError, OutputError; nothing is written before all is well."""
        config = settle_precision(config, device)
        self.config, self.device, self.processes = config, device, processes
        self.folder = run_folder(config)
        self.samples = open_samples(config.data, config.degradation, config.net.size, config.schedule.seed)
        self.validation = validation_samples(config) if processes.writes else []
        self.nets: Nets = build_nets(config, device)
        self.steps = Steps(self.nets, config, device)
        fused = device.type in ("cpu", "cuda")
        schedule = config.schedule
        self.optimiser = torch.optim.Adam(self.nets.generator.parameters(), schedule.rate, GENERATOR_BETAS, fused=fused)
        self.parts: dict[str, checkpoint.Stateful] = {**self.nets.trained(), "generator_optimiser": self.optimiser}
        self.judge_optimiser: torch.optim.Optimizer | None = None
        if self.nets.judges:
            self.judge_optimiser = torch.optim.Adam(
                self.nets.judges.parameters(), schedule.discriminator_rate, JUDGE_BETAS, fused=fused
            )
            self.parts["judge_optimiser"] = self.judge_optimiser
        self.step = 0
        if resume:
            content = checkpoint.read(self.folder)
            self.step = checkpoint.restore(content, self.folder, self.parts)
            _tell_changes(content["config"], as_mapping(config))
        self._prepare_folder()

    def _prepare_folder(self) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OutputError(
                f"The folder {self.folder} cannot be made ({error.strerror}); name another with --output."
            ) from error

    def run(self, stop: Stop, *, until: int | None = None) -> Trained:
        """Trains to the last step, to step ``until``, or until ``stop``. What was reached is saved, whatever ends it."""
        schedule, begun, first = self.config.schedule, time.perf_counter(), self.step
        end = min(schedule.steps, until if until is not None else schedule.steps)
        feed = Feed(self.samples, self.config, start=self.step, rank=self.processes.rank, world=self.processes.world)
        saved = time.monotonic()
        with contextlib.closing(Journal(self.folder, writes=self.processes.writes)) as journal:
            batches = iter(feed)
            while self.step < end and not self.processes.any(stop(), self.device):
                figures = self._one_step(batches)
                self.step += 1
                journal.step(self.step, figures, every=self.config.output.log_every)
                if self.step % self.config.output.validate_every == 0 or self.step == end:
                    self._validate(journal)
                if time.monotonic() - saved > self.config.output.checkpoint_minutes * 60:
                    self._save()
                    saved = time.monotonic()
        self._save()
        seconds = time.perf_counter() - begun
        done = self.step - first
        return Trained(
            step=self.step,
            weights=self.folder / f"{self.config.name}.safetensors",
            seconds=seconds,
            images=done * schedule.batch * schedule.accumulate * self.processes.world,
            waiting=feed.waited / seconds if seconds else 0.0,
            finished=self.step >= schedule.steps,
        )

    def _one_step(self, batches: Iterator[Batch]) -> dict[str, float]:
        schedule = self.config.schedule
        factor = rate_factor(schedule, self.step)
        set_rate(self.optimiser, schedule.rate * factor)
        strength = judge_strength(schedule, self.step) if self.nets.judges else 0.0
        figures: dict[str, float] = {"rate": schedule.rate * factor}
        shown: list[tuple[Batch, Tensor, Drawn]] = []
        for part in range(schedule.accumulate):
            batch = to_device(next(batches), self.device)
            drawn = self._draw(part, batch)
            terms, restored = self.steps.generator_step(batch, strength, drawn)
            shown.append((batch, restored, drawn))
            _add(figures, terms, schedule.accumulate)
        _divide_gradients(self.nets.generator, schedule.accumulate)
        self.processes.average_gradients(self.nets.generator)
        figures["gradient"] = clip_and_apply(self.optimiser, self.nets.generator, schedule.clip)
        if self.judge_optimiser is not None:
            set_rate(self.judge_optimiser, schedule.discriminator_rate * factor)
            for batch, restored, drawn in shown:
                _add(figures, self._teach_judges(batch, restored, drawn), schedule.accumulate)
            _divide_gradients(self.nets.judges, schedule.accumulate)
            self.processes.average_gradients(self.nets.judges)
            clip_and_apply(self.judge_optimiser, self.nets.judges, schedule.clip)
        update_average(self.nets.average, self.nets.generator, keep_factor(schedule, self.step))
        return figures

    def _teach_judges(self, batch: Batch, restored: Tensor, drawn: Drawn) -> dict[str, float]:
        terms = self.steps.judge_step(restored, batch.original, drawn)
        loss = self.config.loss
        if loss.r1_form == "exact" and loss.r1 > 0 and self.step % loss.r1_every == 0:
            terms |= self.steps.penalty_step(batch.original, drawn.squares)
        return terms

    def _draw(self, part: int, batch: Batch) -> Drawn:
        """From the seed and the step alone, so that a resumed training draws the same."""
        rng = np.random.default_rng([self.config.schedule.seed, self.step, part, self.processes.rank])
        side = self.config.discriminator.size
        squares, window = draw_squares(batch.original.shape[-1], side, rng), draw_window(rng)
        noise = None
        if self.config.loss.r1_form == "difference" and self.nets.judges:
            drawn = rng.standard_normal((batch.original.shape[0], 3, side, side), np.float32)
            noise = torch.from_numpy(drawn).to(self.device)
        return Drawn(squares=squares, window=window, noise=noise)

    def _validate(self, journal: Journal) -> None:
        if not self.validation:
            return
        path = self.folder / "sheets" / f"step_{self.step:06d}.png"
        seen = validate(self.nets.average, self.validation, path, device=self.device, dtype=self.steps.dtype)
        journal.validated(self.step, seen)

    def _save(self) -> None:
        """Checkpoint, the average as a weight file that gpen enhance --weights takes, the judges. Raises OutputError."""
        if not self.processes.writes:
            return
        checkpoint.save(self.folder, self.step, as_mapping(self.config), self.parts)
        try:
            save_weights(self.nets.average, self.folder / f"{self.config.name}.safetensors", torch.float16)
            if self.nets.judges:
                save_weights(self.nets.judges, self.folder / f"{self.config.name}.judges.safetensors", torch.float16)
        except OSError as error:
            raise OutputError(f"The weights cannot be written to {self.folder}: {error.strerror or error}.") from error


def _add(figures: dict[str, float], terms: dict[str, float], parts: int) -> None:
    for name, value in terms.items():
        figures[name] = figures.get(name, 0.0) + value / parts


def _divide_gradients(net: torch.nn.Module, parts: int) -> None:
    if parts > 1:
        torch._foreach_div_([p.grad for p in net.parameters() if p.grad is not None], parts)


def _tell_changes(before: dict[str, Any], now: dict[str, Any], place: str = "") -> None:
    """Logs every setting that differs from the checkpoint's."""
    for key in sorted(set(before) | set(now)):
        old, new = before.get(key), now.get(key)
        if isinstance(old, dict) and isinstance(new, dict):
            _tell_changes(old, new, f"{place}{key}.")
        elif old != new:
            log.warning("changed since the checkpoint: %s%s %s -> %s", place, key, old, new)
