"""Figures of the server in Prometheus' text format (version 0.0.4)."""

from __future__ import annotations

import sys
import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

BUCKETS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Upper borders of the histogram of request seconds: from a small face on a GPU to the default time limit."""
TEXT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Metrics:
    """Counts that only grow; gauges are read when somebody asks. Threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: Counter[tuple[str, int]] = Counter()
        self._buckets: Counter[int] = Counter()
        self._seconds = 0.0
        self._faces: Counter[str] = Counter()
        self._stage_seconds: dict[str, float] = {}
        self._stage_counts: Counter[str] = Counter()

    def add_request(self, path: str, status: int, seconds: float) -> None:
        """path: one of the server's own, so that strangers' requests cannot make the list grow."""
        with self._lock:
            self._requests[path, status] += 1
            self._buckets[bisect_left(BUCKETS, seconds)] += 1
            self._seconds += seconds

    def add_photo(self, stages: Mapping[str, float], decisions: Iterable[str]) -> None:
        with self._lock:
            self._faces.update(decisions)
            for stage, seconds in stages.items():
                name = stage.replace(" ", "_")
                self._stage_seconds[name] = self._stage_seconds.get(name, 0.0) + seconds
                self._stage_counts[name] += 1

    def text(self, gauges: Mapping[str, tuple[str, str, float]]) -> str:
        """gauges: name -> (``gauge`` or ``counter``, help, value)."""
        lines: list[str] = []
        with self._lock:
            _head(lines, "gpen_requests_total", "counter", "Requests answered, by path and status.")
            for (path, status), count in sorted(self._requests.items()):
                lines.append(f'gpen_requests_total{{path="{path}",status="{status}"}} {count}')
            _head(lines, "gpen_request_seconds", "histogram", "Seconds from a request's head to its answer.")
            below = 0
            for index, border in enumerate((*BUCKETS, float("inf"))):
                below += self._buckets[index]
                name = "+Inf" if border == float("inf") else f"{border:g}"
                lines.append(f'gpen_request_seconds_bucket{{le="{name}"}} {below}')
            lines += [f"gpen_request_seconds_sum {self._seconds:.6f}", f"gpen_request_seconds_count {below}"]
            _head(lines, "gpen_stage_seconds", "summary", "Seconds of photos in each stage of the work.")
            for stage in sorted(self._stage_counts):
                lines.append(f'gpen_stage_seconds_sum{{stage="{stage}"}} {self._stage_seconds[stage]:.6f}')
                lines.append(f'gpen_stage_seconds_count{{stage="{stage}"}} {self._stage_counts[stage]}')
            _head(lines, "gpen_faces_total", "counter", "Faces seen, by what was decided.")
            for decision in sorted(self._faces):
                lines.append(f'gpen_faces_total{{decision="{decision}"}} {self._faces[decision]}')
        for name, (kind, help_text, value) in gauges.items():
            _head(lines, name, kind, help_text)
            lines.append(f"{name} {value:g}" if value != int(value) else f"{name} {int(value)}")
        return "\n".join(lines) + "\n"


def _head(lines: list[str], name: str, kind: str, help_text: str) -> None:
    lines += [f"# HELP {name} {help_text}", f"# TYPE {name} {kind}"]


def process_memory() -> int | None:
    """Bytes of memory this process holds now; None where the system does not say (no /proc)."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return None
    import resource  # not on Windows, which has no /proc either

    return pages * resource.getpagesize()


def device_memory(devices: Sequence[str]) -> tuple[int, int] | None:
    """(bytes in use, bytes there are) of CUDA devices together; None for others, or when torch is not loaded."""
    torch = sys.modules.get("torch")
    if torch is None or not devices[0].startswith("cuda"):
        return None
    free, total = (sum(part) for part in zip(*(torch.cuda.mem_get_info(device) for device in devices), strict=True))
    return int(total - free), int(total)
