"""Batches, made by worker processes while the net computes. Batch ``step`` is the same in every run, resumed or not."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from typing import Any

import cv2
import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from gpen_cli.train.config import TrainConfig
from gpen_cli.train.sample import Sample, Samples
from gpen_cli.train.steps import Batch


class Feed:
    """The micro-batches of one process from step ``start`` on. ``waited``: seconds spent waiting for the workers."""

    def __init__(self, samples: Samples, config: TrainConfig, *, start: int, rank: int, world: int) -> None:
        schedule = config.schedule
        numbers = _Numbers(start, schedule.steps, (schedule.accumulate, world, schedule.batch), rank)
        workers = config.data.workers
        # spawn: a forked child would inherit locks of threads that it does not have
        self._loader: DataLoader[Any] = DataLoader(
            _Numbered(samples),
            batch_sampler=numbers,
            num_workers=workers,
            collate_fn=collate,
            worker_init_fn=_start_worker if workers else None,
            multiprocessing_context="spawn" if workers else None,
            prefetch_factor=4 if workers else None,
            persistent_workers=False,
        )
        self.waited = 0.0

    def __iter__(self) -> Iterator[Batch]:
        batches = iter(self._loader)
        while True:
            begun = time.perf_counter()
            try:
                batch = next(batches)
            except StopIteration:
                return
            self.waited += time.perf_counter() - begun
            yield batch


class _Numbers:
    """Sample numbers of each micro-batch: step by step, and within a step part by part, process by process."""

    def __init__(self, start: int, end: int, shape: tuple[int, int, int], rank: int) -> None:
        self.start, self.end, self.shape, self.rank = start, end, shape, rank

    def __iter__(self) -> Iterator[list[int]]:
        accumulate, world, batch = self.shape
        for step in range(self.start, self.end):
            for part in range(accumulate):
                first = ((step * accumulate + part) * world + self.rank) * batch
                yield list(range(first, first + batch))

    def __len__(self) -> int:
        return (self.end - self.start) * self.shape[0]


class _Numbered(Dataset[Sample]):
    """``Samples`` as the loader wants them."""

    def __init__(self, samples: Samples) -> None:
        self._samples = samples

    def __getitem__(self, number: int) -> Sample:
        return self._samples.sample(number)


def _start_worker(_: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle: it saves first
    cv2.setNumThreads(1)


def collate(samples: list[Sample]) -> Batch:
    """Samples -> one batch, as bytes (the device makes numbers of them: ``to_device``)."""
    return Batch(
        degraded=_stack([sample.degraded for sample in samples]),
        original=_stack([sample.original for sample in samples]),
        weight=_stack([sample.weight[..., None] for sample in samples]),
    )


def _stack(pictures: list[Any]) -> Tensor:
    """(S, S, C) uint8 arrays -> (N, C, S, S) uint8, channels last in memory."""
    return torch.from_numpy(np.stack(pictures)).permute(0, 3, 1, 2)


def to_device(batch: Batch, device: torch.device) -> Batch:
    """Bytes -> what ``Batch`` promises, on ``device``."""
    degraded, original, weight = (
        part.to(device, non_blocking=True).float() for part in (batch.degraded, batch.original, batch.weight)
    )
    return Batch(degraded=degraded / 127.5 - 1, original=original / 127.5 - 1, weight=weight)
