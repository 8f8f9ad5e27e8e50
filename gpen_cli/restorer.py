"""The Python API: ``from gpen_cli import Restorer; Restorer().restore(pixels)``."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from types import TracebackType

import numpy as np

from gpen_cli.batcher import Batcher
from gpen_cli.data import FaceReport, Photo, PhotoPixels
from gpen_cli.engine import Engine, build_engine
from gpen_cli.errors import PhotoError, UsageError
from gpen_cli.log import StageClock
from gpen_cli.options import Options
from gpen_cli.pipeline import collect_crops
from gpen_cli.restoration import Plan, Restoration, plan_photo, put_back


@dataclass(frozen=True)
class Restored:
    """pixels: (uH, uW, 3), of the input's type; faces: what was decided about each, in the input's pixels."""

    pixels: PhotoPixels
    faces: Sequence[FaceReport]
    scale: float


class Restorer:
    """Restores pictures in memory with what stays loaded between calls. Threads may share one; so may ``with`` blocks.

    Raises UsageError, WeightsError, DeviceError when it is made (see ``gpen_cli.errors``).
    """

    def __init__(self, options: Options | None = None, *, engine: Engine | None = None) -> None:
        self._options = options or Options()
        self._engine = engine or build_engine(self._options)
        self._closed = False
        self._batcher = Batcher(*self._engine.lanes, preload=self._engine.preload)
        self._batcher.start()

    def restore(self, pixels: PhotoPixels) -> PhotoPixels:
        """(H, W, 3) RGB, or (H, W) gray, uint8 or uint16 sRGB -> (uH, uW, 3), or (uH, uW), of the same type.

        The size is the input's times ``options.compose.upscale`` (auto: 2 up to 2000 px). Raises PhotoError.
        """
        return self.restore_with_faces(pixels).pixels

    def restore_with_faces(self, pixels: PhotoPixels) -> Restored:
        """Like ``restore``, with what was decided about each face."""
        if self._closed:
            raise UsageError("This Restorer is closed; make a new one.")
        photo = _photo(pixels)
        gray = pixels.ndim == 2
        clock = StageClock()
        plan = plan_photo(photo, self._engine, self._options, clock)
        done = restore_plan(plan, self._engine, batcher=self._batcher, options=self._options, clock=clock)
        return Restored(done.pixels[..., 0] if gray else done.pixels, done.reports, done.scale)

    def close(self) -> None:
        """Ends the device thread. Calls after this raise UsageError."""
        self._closed = True
        self._batcher.close()

    def __enter__(self) -> Restorer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def restore_plan(
    plan: Plan, engine: Engine, *, batcher: Batcher, options: Options, clock: StageClock, owner: Hashable = None
) -> Restoration:
    """Sends the plan's faces to the device, waits for them, puts them back. owner: see ``Batcher.submit``."""
    results = tuple(batcher.submit(face.pixels, face.net, owner=owner) for face in plan.faces)
    crops = collect_crops(plan, results, batcher, engine, clock)
    with clock.stage("compose"):
        return put_back(plan, crops, options)


def _photo(pixels: PhotoPixels) -> Photo:
    if not isinstance(pixels, np.ndarray):
        raise PhotoError(f"pixels are a {type(pixels).__name__}; give a NumPy array, (height, width, 3) RGB.")
    if pixels.dtype not in (np.uint8, np.uint16):
        raise PhotoError(f"pixels are {pixels.dtype}; give uint8 (0..255) or uint16 (0..65535).")
    gray = pixels.ndim == 2
    if gray:
        pixels = np.repeat(pixels[..., None], 3, axis=2)
    if pixels.ndim != 3 or pixels.shape[2] != 3 or 0 in pixels.shape:
        raise PhotoError(f"pixels have the shape {pixels.shape}; give (height, width, 3) RGB or (height, width) gray.")
    pixels = np.ascontiguousarray(pixels)
    shown = pixels if pixels.dtype == np.uint8 else np.rint(pixels / 257).astype(np.uint8)
    return Photo(pixels, shown, gray=gray)
