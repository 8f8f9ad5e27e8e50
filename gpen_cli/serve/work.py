"""What the server does to one photo, on a thread of its pool: the same steps as for files, through one batcher."""

from __future__ import annotations

import base64
import copy
import logging
import time
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from gpen_cli.batcher import Batcher
from gpen_cli.data import FaceReport, Job, Outcome, Photo
from gpen_cli.detect.region import Region
from gpen_cli.detect.search import find_faces
from gpen_cli.device import cpu_count
from gpen_cli.engine import PARSER, Engine
from gpen_cli.log import StageClock
from gpen_cli.options import Options
from gpen_cli.photos.formats import FORMATS, resolve_format
from gpen_cli.photos.read import read_photo
from gpen_cli.photos.write import encode_photo
from gpen_cli.report import report_line
from gpen_cli.restoration import Plan, no_face_sentence
from gpen_cli.restorer import restore_plan
from gpen_cli.serve.admission import Ticket
from gpen_cli.serve.metrics import Metrics
from gpen_cli.serve.problems import Problem, api_words, closing
from gpen_cli.serve.region import OUTSIDE, plan_region
from gpen_cli.serve.requests import Ask, Form

log = logging.getLogger(__name__)

T = TypeVar("T")

MAX_DEFAULT_WORKERS = 8
PREVIEW_QUALITY = 90
MEDIA_TYPES = {
    "png": "image/png", "jpg": "image/jpeg", "webp": "image/webp", "bmp": "image/bmp", "tiff": "image/tiff",
}  # fmt: skip
assert MEDIA_TYPES.keys() == FORMATS.keys()

NO_FACE_HINTS = (
    "Faces are found best when they look towards the camera; faces=x,y,width,height points at a small or faint one."
)


@dataclass(frozen=True)
class Answer:
    """A finished picture and what is told of it. name: for saving it; report: as a line of ``--report``."""

    data: bytes
    media_type: str
    name: str
    report: dict[str, Any]
    seconds: float

    def as_json(self) -> dict[str, Any]:
        """For ``Accept: application/json``."""
        picture = base64.b64encode(self.data).decode("ascii")
        return {"report": self.report, "name": self.name, "media_type": self.media_type, "image": picture}

    @property
    def restored(self) -> list[dict[str, Any]]:
        return [face for face in self.report["faces"] if face["decision"] == "restored"]


class Studio:
    """One loaded engine, its device thread, and the threads that read, find, put back and encode.

    Threads wait for the device; so there are some more of them than readers, for the batch that runs and the one that fills.
    """

    def __init__(self, engine: Engine, options: Options, *, batch_window: float = 0.0) -> None:
        """batch_window: seconds a face waits at most for those of photos that are being read, to share a pass with them."""
        self.engine = engine
        self.options = options
        self.metrics = Metrics()
        self.models = tuple(choice.name for choice in engine.choices)
        workers = options.run.workers or min(MAX_DEFAULT_WORKERS, cpu_count())
        self.threads = workers + engine.setup.crops_in_flight
        self.batcher = Batcher(*engine.lanes, window=batch_window)
        self._by_model = {name: _only(engine, name) for name in self.models}
        self._pool = ThreadPoolExecutor(self.threads, thread_name_prefix="gpen-serve")
        self._warm = False
        self._closed = False
        self._load_sample = (time.monotonic(), 0.0, 0.0)

    @property
    def ready(self) -> bool:
        """Nets loaded and run once, and not closing."""
        return self._warm and not self._closed

    def warm(self) -> None:
        """Loads every net and runs each once, and the detector. Raises WeightsError, DeviceError."""
        last = None
        for choice in self.engine.choices:
            gray = np.full((choice.crop_size, choice.crop_size, 3), 128, np.uint8)
            last = self.batcher.submit(gray, choice.name).result().pixels
        if self.engine.parser is not None and last is not None:
            self.batcher.submit(last, PARSER).result()
        find_faces(self.engine.detector, np.full((64, 64, 3), 128, np.uint8), self.options.faces)
        self._warm = True

    def close(self) -> None:
        """Lets what runs finish, drops what waits, ends all threads. Safe to call twice."""
        self._closed = True
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._pool.shutdown(wait=True)
        self.batcher.close(cancel=True)

    def load(self) -> float:
        """Share of the time that the device was at work lately, 0 to 1."""
        then, busy_then, share = self._load_sample
        now, busy = time.monotonic(), self.batcher.busy_seconds
        if now - then < 1.0:
            return share
        share = min(1.0, (busy - busy_then) / (now - then) / len(self.engine.lanes))
        self._load_sample = (now, busy, share)
        return share

    def start(self, work: Callable[[Ticket], T], ticket: Ticket) -> Future[T | None]:
        """Puts work on the pool. Its future holds None when the ticket was given up."""
        return self._pool.submit(_unless_gone, work, ticket)

    # -- on a thread of the pool ---------------------------------------------------------------------------------------

    def enhance(self, form: Form, ask: Ask, ticket: Ticket) -> Answer:
        """Raises GpenError, Problem, CancelledError (the ticket was given up)."""
        self.batcher.expect(ticket)
        try:
            return self._enhance(form, ask, ticket)
        finally:
            self.batcher.drop(ticket)

    def _enhance(self, form: Form, ask: Ask, ticket: Ticket) -> Answer:
        begin = time.perf_counter()
        clock = StageClock()
        engine = self._by_model[ask.model] if ask.model else self.engine
        photo = self._read(form, ask, clock)
        _go_on(ticket)
        plan = plan_region(photo, ask.region, engine, ask.options, clock)
        _go_on(ticket)
        if not plan.faces:
            self.batcher.drop(ticket)
        done = restore_plan(plan, engine, batcher=self.batcher, options=ask.options, clock=clock, owner=ticket)
        found = any(report.decision != "skipped" for report in done.reports)
        warnings = [api_words(f"{form.name}: {text}") for text in photo.warnings]
        if not found:
            sentence = _no_face(form.name, plan, ask.region)
            if ask.options.run.no_face == "fail":
                raise Problem(422, "no-face", sentence)
            warnings.append(sentence)
        _go_on(ticket)
        asked = ask.options.write
        name = resolve_format(asked.format or "png", photo.source_format)
        with clock.stage("encode"):
            encoded = encode_photo(
                photo,
                done.pixels,
                done.alpha,
                format_name="same" if asked.format == "same" else name,
                quality=asked.quality,
                strip_metadata=asked.strip_metadata,
            )
        outcome = Outcome(
            Job(form.name, None, form.name),
            "done" if found else "no_face",
            faces=done.reports,
            size=photo.size,
            scale=done.scale,
            output_bytes=len(encoded.data),
            output_size=(done.pixels.shape[1], done.pixels.shape[0]),
            seconds=clock.seconds,
            warnings=(*warnings, *(f"{form.name}: {text}" for text in encoded.warnings)),
        )
        self.metrics.add_photo(clock.seconds, [report.decision for report in done.reports])
        return Answer(
            encoded.data,
            MEDIA_TYPES[name],
            f"{_stem(form.name)}_enhanced{encoded.suffix}",
            self._report(outcome, engine),
            time.perf_counter() - begin,
        )

    def detect(self, form: Form, ask: Ask, ticket: Ticket) -> dict[str, Any]:
        """The report line of a photo whose faces are found and not restored (decision ``planned``)."""
        clock = StageClock()
        engine = self._by_model[ask.model] if ask.model else self.engine
        photo = self._read(form, ask, clock)
        _go_on(ticket)
        plan = plan_region(photo, ask.region, engine, ask.options, clock)
        faces = (*(FaceReport(face.face, "planned", net=face.net) for face in plan.faces), *plan.untouched)
        found = any(report.decision != "skipped" for report in faces)
        sentence = _no_face(form.name, plan, ask.region)
        if not found and ask.options.run.no_face == "fail":
            raise Problem(422, "no-face", sentence)
        job = Job(form.name, None, form.name)
        status = "done" if found else "no_face"
        warnings = () if found else (sentence,)
        outcome = Outcome(job, status, faces=faces, size=photo.size, seconds=clock.seconds, warnings=warnings)
        self.metrics.add_photo(clock.seconds, ())
        return self._report(outcome, engine)

    def preview(self, form: Form, ask: Ask, ticket: Ticket) -> bytes:
        """A JPEG of what browsers cannot show themselves (HEIC, TIFF), upright, at its own size."""
        photo = self._read(form, ask, StageClock())
        _go_on(ticket)
        shown = Photo(photo.shown, photo.shown)
        return encode_photo(
            shown, photo.shown, None, format_name="jpg", quality=PREVIEW_QUALITY, strip_metadata=True
        ).data

    def _read(self, form: Form, ask: Ask, clock: StageClock) -> Photo:
        with clock.stage("decode"):
            return read_photo(form.image, form.name, ask.options.read)

    def _report(self, outcome: Outcome, engine: Engine) -> dict[str, Any]:
        line = report_line(outcome, self.engine.setup, "+".join(choice.name for choice in engine.choices))
        for face in line["faces"]:
            face["reason"] = api_words(face["reason"]) if face["reason"] else None
        return line


def _unless_gone(work: Callable[[Ticket], T], ticket: Ticket) -> T | None:
    try:
        _go_on(ticket)
        return work(ticket)
    except CancelledError:
        if not ticket.gone:
            raise closing() from None
        return None


def _go_on(ticket: Ticket) -> None:
    """Between stages: raises CancelledError when nobody waits for the result any more."""
    if ticket.gone:
        raise CancelledError("nobody waits for this photo any more")


def _only(engine: Engine, name: str) -> Engine:
    """The same engine, for requests that name one of its nets."""
    one = copy.copy(engine)
    one.choices = [choice for choice in engine.choices if choice.name == name]
    return one


def _no_face(name: str, plan: Plan, region: Region | None) -> str:
    if region is not None and any(report.reason == OUTSIDE for report in plan.untouched):
        return f"{name}: no face lies in the region asked for, so nothing was restored."
    return api_words(no_face_sentence(name, plan, hints=NO_FACE_HINTS))


def _stem(name: str) -> str:
    stem, dot, _ = name.rpartition(".")
    return stem if dot and stem else name
