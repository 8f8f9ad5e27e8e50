"""What a training says of itself: a line of JSON every few steps, TensorBoard where it is installed, and the log."""

from __future__ import annotations

import importlib.util
import json
import logging
import time
from pathlib import Path
from typing import Any

from gpen_cli.train.sheet import Validated

log = logging.getLogger(__name__)

JSON_NAME = "log.jsonl"


class Journal:
    """Figures of the steps of one run, averaged between two lines."""

    def __init__(self, folder: Path, *, writes: bool) -> None:
        """``writes`` False: says nothing (another process of the training does). Raises OSError."""
        self._file = (folder / JSON_NAME).open("a", encoding="utf-8") if writes else None
        self._board: Any = None
        if writes and importlib.util.find_spec("tensorboard") is not None:
            from torch.utils.tensorboard import SummaryWriter

            self._board = SummaryWriter(str(folder / "tensorboard"))
        self._sums: dict[str, float] = {}
        self._count = 0
        self._since = time.perf_counter()

    def step(self, step: int, figures: dict[str, float], *, every: int) -> None:
        """Takes the figures of one step; writes the mean of the last ``every`` ones when their turn has come."""
        for name, value in figures.items():
            self._sums[name] = self._sums.get(name, 0.0) + value
        self._count += 1
        if step % every:
            return
        means = {name: value / self._count for name, value in self._sums.items()}
        means["seconds a step"] = (time.perf_counter() - self._since) / self._count
        self._write(step, means)
        self._sums, self._count, self._since = {}, 0, time.perf_counter()

    def validated(self, step: int, seen: Validated) -> None:
        """Takes the figures of a validation."""
        self._write(
            step, {"validation PSNR": seen.psnr, "validation input PSNR": seen.input_psnr}, sheet=str(seen.sheet)
        )
        self._since = time.perf_counter()

    def _write(self, step: int, figures: dict[str, float], **more: str) -> None:
        if self._file is None:
            return
        rounded = {name: float(f"{value:.5g}") for name, value in figures.items()}
        self._file.write(json.dumps({"step": step, "time": round(time.time(), 1), **rounded, **more}) + "\n")
        self._file.flush()
        shown = "  ".join(f"{name} {value:.4g}" for name, value in figures.items())
        log.info("step %d  %s%s", step, shown, "".join(f"  {value}" for value in more.values()))
        if self._board is not None:
            for name, value in figures.items():
                self._board.add_scalar(name.replace(" ", "_"), value, step)

    def close(self) -> None:
        """Closes the files."""
        if self._file is not None:
            self._file.close()
        if self._board is not None:
            self._board.close()
