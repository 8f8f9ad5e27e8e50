"""What NVIDIA's driver tells of its first GPU while something runs."""

from __future__ import annotations

import subprocess
import threading

EVERY_MS = 50


class GpuMeter:
    """Samples the named figures while it is open, by nvidia-smi (``--help-query-gpu`` lists them); without it, nothing.

    ``utilization.gpu`` %, ``memory.used`` MB, ``power.draw`` W. A sample that lacks one of the figures is left out.
    """

    def __init__(self, *figures: str) -> None:
        self._figures = figures
        self._samples: list[list[float]] = []
        self._process: subprocess.Popen[str] | None = None

    def of(self, figure: str, *, since: int = 0) -> list[float]:
        """Its samples, from number ``since`` on."""
        place = self._figures.index(figure)
        return [sample[place] for sample in self._samples[since:]]

    def __len__(self) -> int:
        return len(self._samples)

    def __enter__(self) -> GpuMeter:
        query = [
            f"--query-gpu={','.join(self._figures)}",
            "--format=csv,noheader,nounits",
            "-lms",
            str(EVERY_MS),
            "--id=0",
        ]
        try:
            self._process = subprocess.Popen(
                ["nvidia-smi", *query], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
            )
        except FileNotFoundError:
            return self
        self._thread = threading.Thread(target=self._read, args=(self._process,), daemon=True)
        self._thread.start()
        return self

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            try:
                sample = [float(value) for value in line.split(",")]
            except ValueError:  # [N/A], or a line that was cut off
                continue
            if len(sample) == len(self._figures):
                self._samples.append(sample)

    def __exit__(self, *given: object) -> None:
        if self._process is not None:
            self._process.terminate()
            self._thread.join(timeout=2)
