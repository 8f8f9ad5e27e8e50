"""How photos move: read and find faces (readers), restore (the batcher), put back and write (writers), in order.

``enhance`` is this on one job. Errors of a photo come back as values in its ``Outcome``; errors of the run (weights, device,
output folder) are raised. At most a fixed number of photos is alive, whatever the run's length.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from dataclasses import dataclass, replace

from gpen_cli.batcher import Batcher, CropResult
from gpen_cli.data import FaceReport, Job, Outcome
from gpen_cli.delivery import Record, check_target, deliver
from gpen_cli.device import cpu_count
from gpen_cli.engine import PARSER, Engine
from gpen_cli.errors import DeviceError, GpenError, OutputError, PhotoError, UsageError, WeightsError
from gpen_cli.log import StageClock
from gpen_cli.options import Options
from gpen_cli.photos.metadata import digest_of, is_our_output
from gpen_cli.photos.read import read_photo
from gpen_cli.restoration import Crop, Plan, no_face_sentence, plan_photo, put_back
from gpen_cli.runtime.protocol import NetMemoryError, NonFiniteOutputError
from gpen_cli.sources import read_source, stamp_of

log = logging.getLogger(__name__)

MAX_DEFAULT_WORKERS = 8
ALIVE_PER_WORKER = 3
"""Photos alive for each reader: one being read, one at the device, one being written."""
_RUN_ERRORS = (WeightsError, DeviceError, OutputError, UsageError, CancelledError)
"""What ends the run, or comes from its ending (CancelledError); all else is one photo's."""
_TOLD_ERRORS = (WeightsError, DeviceError, OutputError)
"""Those of them that a photo met: its line in the report says so."""


@dataclass(frozen=True)
class _Prepared:
    """A photo on its way: its plan and the crops at the device; or an outcome that is already known."""

    job: Job
    seconds: dict[str, float]
    plan: Plan | None = None
    results: tuple[Future[CropResult], ...] = ()
    stamp: tuple[int, int] | None = None
    outcome: Outcome | None = None


def restore_photos(jobs: Iterable[Job], engine: Engine, options: Options, *, record: Record | None = None) -> PhotoRun:
    """Restores every job; iterate over the answer for the outcomes, in the order of the jobs.

    record: remembers results that cannot carry our mark. Raises (while iterating) WeightsError, DeviceError, OutputError:
    what is done stays done.
    """
    return PhotoRun(jobs, engine, options, record)


class PhotoRun:
    """Outcomes in order. ``close`` (Ctrl-C; it also happens after an error or the last photo) lets what is being written
    finish, drops the rest and leaves no thread behind; ``leftover`` then has the outcomes of photos that were finished and
    not yet handed out, and of those that met an error of the run (a full disk)."""

    def __init__(self, jobs: Iterable[Job], engine: Engine, options: Options, record: Record | None) -> None:
        self._engine = engine
        self._options = options
        self._record = record
        workers = options.run.workers or min(MAX_DEFAULT_WORKERS, cpu_count())
        self._most_alive = max(
            ALIVE_PER_WORKER * workers, engine.setup.crops_in_flight
        )  # photos of one face fill it, too
        self._batcher = Batcher(*engine.lanes, preload=() if options.run.dry_run else engine.preload)
        self._readers = ThreadPoolExecutor(workers, thread_name_prefix="gpen-read")
        self._writers = ThreadPoolExecutor(workers, thread_name_prefix="gpen-write")
        self._jobs = iter(jobs)
        self._alive: deque[tuple[Job, Future[Outcome]]] = deque()
        self._closed = False
        self.leftover: list[Outcome] = []

    def __iter__(self) -> PhotoRun:
        return self

    def __next__(self) -> Outcome:
        try:
            for job in self._jobs:
                self._alive.append((job, self._start(job)))
                if len(self._alive) >= self._most_alive:
                    break
            if not self._alive:
                raise StopIteration
            outcome = self._alive[0][1].result()  # taken off only when it is there: an interruption must not lose it
            self._alive.popleft()
            return outcome
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Ends all threads. Safe to call twice, also when the first call was interrupted: each step may be done again."""
        if self._closed:
            return
        self._readers.shutdown(wait=False, cancel_futures=True)
        self._batcher.close(cancel=True)
        self._readers.shutdown(wait=True)
        self._writers.shutdown(wait=True, cancel_futures=True)
        self.leftover = [outcome for job, future in self._alive if (outcome := _left(job, future)) is not None]
        self._closed = True

    def _start(self, job: Job) -> Future[Outcome]:
        """Sends the job to the readers; what they have read goes on to the writers by itself."""
        outcome: Future[Outcome] = Future()

        def hand_on(reading: Future[_Prepared]) -> None:
            try:
                self._writers.submit(self._finish_into, reading.result(), outcome)
            except BaseException as error:  # noqa: BLE001  cancelled, an error of the run, or pools that are closing
                outcome.set_exception(error)

        self._readers.submit(self._prepare, job).add_done_callback(hand_on)
        return outcome

    def _finish_into(self, prepared: _Prepared, outcome: Future[Outcome]) -> None:
        try:
            outcome.set_result(self._finish(prepared))
        except BaseException as error:  # noqa: BLE001  the consumer raises it
            outcome.set_exception(error)

    # -- one photo, first half: on a reader thread ---------------------------------------------------------------------

    def _prepare(self, job: Job) -> _Prepared:
        clock = StageClock()
        try:
            self._batcher.start()  # here, on a thread that no signal interrupts
            skipped = check_target(job, self._options, self._record)
            if skipped is not None:
                return _Prepared(job, clock.seconds, outcome=skipped)
            stamp = stamp_of(job.source)
            with clock.stage("decode"):
                read = self._options.read
                data = read_source(job.source, job.name, allow_private_urls=read.allow_private_urls)
                if self._options.run.leave_results and is_our_output(data):
                    return _Prepared(job, clock.seconds, outcome=_own_result(job))
                photo = read_photo(data, job.name, read)
                photo = replace(photo, metadata=replace(photo.metadata, digest=digest_of(data)))
            plan = plan_photo(photo, self._engine, self._options, clock)
            if self._options.run.dry_run:
                return _Prepared(job, clock.seconds, outcome=_planned(job, plan, clock))
            results = tuple(self._batcher.submit(face.pixels, face.net) for face in plan.faces)
            return _Prepared(job, clock.seconds, plan=plan, results=results, stamp=stamp)
        except _RUN_ERRORS:
            raise
        except Exception as error:  # noqa: BLE001  one photo's fault, even a bug of ours, must not stop the others
            return _Prepared(job, clock.seconds, outcome=failed(job, error, clock.seconds))

    # -- one photo, second half: on a writer thread --------------------------------------------------------------------

    def _finish(self, prepared: _Prepared) -> Outcome:
        job, plan = prepared.job, prepared.plan
        if prepared.outcome is not None or plan is None:
            assert prepared.outcome is not None
            return prepared.outcome
        clock = StageClock(prepared.seconds)
        try:
            crops = collect_crops(plan, prepared.results, self._batcher, self._engine, clock)
            outcome = self._compose_and_write(job, plan, crops, clock, prepared.stamp)
            return replace(outcome, source_stamp=prepared.stamp)
        except _RUN_ERRORS:
            raise
        except Exception as error:  # noqa: BLE001  as in _prepare
            return replace(failed(job, error, clock.seconds), size=plan.photo.size)

    def _compose_and_write(
        self, job: Job, plan: Plan, crops: list[Crop], clock: StageClock, stamp: tuple[int, int] | None
    ) -> Outcome:
        with clock.stage("compose"):
            done = put_back(plan, crops, self._options)
        photo = plan.photo
        found = any(report.decision != "skipped" for report in done.reports)
        warnings = [f"{job.name}: {text}" for text in photo.warnings]
        if not found:
            warnings.append(no_face_sentence(job.name, plan))
        outcome = Outcome(
            job,
            "done" if found else "no_face",
            faces=done.reports,
            size=photo.size,
            scale=done.scale,
            output_size=(done.pixels.shape[1], done.pixels.shape[0]),
            warnings=tuple(warnings),
        )
        run = self._options.run
        restored = any(report.decision == "restored" for report in done.reports)
        if not found and run.no_face == "fail":
            sentence = warnings.pop()
            return replace(
                outcome, status="failed", error=sentence, error_code=PhotoError.exit_code, warnings=tuple(warnings)
            )
        if (not found and run.no_face == "skip") or (run.in_place and not restored):
            return replace(outcome, seconds=clock.seconds, output_size=None)
        with clock.stage("encode"):
            delivered = deliver(job, photo, crops, done, self._options, stamp=stamp, record=self._record)
        return replace(
            outcome,
            seconds=clock.seconds,
            output_bytes=delivered.size,
            output_sha256=delivered.sha256,
            warnings=(*outcome.warnings, *delivered.warnings),
            payload=delivered.payload,
        )


def _left(job: Job, future: Future[Outcome]) -> Outcome | None:
    """What a run that is being closed knows of a photo it has not handed out."""
    if not future.done() or future.cancelled():
        return None
    error = future.exception()
    if error is None:
        return future.result()
    return failed(job, error, {}) if isinstance(error, _TOLD_ERRORS) else None


def collect_crops(
    plan: Plan, results: Sequence[Future[CropResult]], batcher: Batcher, engine: Engine, clock: StageClock
) -> list[Crop]:
    """Waits for the nets' answers. Where a parsed mask is wanted, restored faces go on to the parser."""
    crops = []
    with clock.stage("wait for restore"):
        for face, result in zip(plan.faces, results, strict=True):
            try:
                answer = result.result()
            except NonFiniteOutputError as error:
                crops.append(Crop(face, None, reason=str(error)))
                continue
            clock.add("restore", answer.seconds)
            crops.append(Crop(face, answer.pixels))
        if engine.parser is None:
            return crops
        return [_parse(crop, batcher, clock) for crop in crops]


def _parse(crop: Crop, batcher: Batcher, clock: StageClock) -> Crop:
    if crop.restored is None:
        return crop
    answer = batcher.submit(crop.restored, PARSER).result()
    clock.add("restore", answer.seconds)
    return replace(crop, labels=answer.pixels)


def _own_result(job: Job) -> Outcome:
    """A result of an earlier run that lies among the photos: restoring it again would only draw over what was drawn."""
    sentence = f"{job.name} was made by gpen, so it is left out; --include-results takes such files too."
    return Outcome(job, "skipped", warnings=(sentence,))


def _planned(job: Job, plan: Plan, clock: StageClock) -> Outcome:
    """--dry-run: what would be done, with nothing restored or written."""
    planned = tuple(FaceReport(face.face, "planned", net=face.net) for face in plan.faces)
    found = planned or any(report.decision != "skipped" for report in plan.untouched)
    return Outcome(
        job,
        "done" if found else "no_face",
        faces=(*planned, *plan.untouched),
        size=plan.photo.size,
        seconds=clock.seconds,
        warnings=() if found else (no_face_sentence(job.name, plan),),
    )


def failed(job: Job, error: BaseException, seconds: dict[str, float]) -> Outcome:
    """The outcome of a photo that could not be done, with its one sentence; a bug of ours is logged with its traceback."""
    if isinstance(error, NetMemoryError):
        sentence = f"{job.name}: {error}, even with one face a pass; close other programs on it, or give --device cpu."
        return Outcome(job, "failed", seconds=seconds, error=sentence, error_code=error.exit_code)
    if isinstance(error, GpenError):
        return Outcome(job, "failed", seconds=seconds, error=str(error), error_code=error.exit_code)
    if isinstance(error, MemoryError):
        sentence = f"{job.name} does not fit into memory; close other programs, or give --upscale 1."
        return Outcome(job, "failed", seconds=seconds, error=sentence, error_code=PhotoError.exit_code)
    log.error("%s: an error inside gpen; please report it with the lines below.", job.name, exc_info=error)
    sentence = f"{job.name}: an error inside gpen ({type(error).__name__}: {error}); please report it."
    return Outcome(job, "failed", seconds=seconds, error=sentence, error_code=1)
