"""From jobs to an exit code: builds the engine, drives the pipeline, and says what happened."""

from __future__ import annotations

import logging
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from gpen_cli.cli.exits import silence_stdout, stop_if_asked
from gpen_cli.cli.progress import Progress
from gpen_cli.data import Job, Outcome
from gpen_cli.errors import SOME_FAILED, DeviceError, OutputError, UsageError, WeightsError
from gpen_cli.log import RunSummary, write_above_bar
from gpen_cli.options import ComposeOptions, Options

log = logging.getLogger(__name__)

MOST_FAILURES_LISTED = 20
_SAID_AT_THE_END = (WeightsError.exit_code, DeviceError.exit_code, OutputError.exit_code)
"""Errors that end the run: one sentence when it ends, not one for each photo that met it."""


@dataclass
class Tally:
    """Counts of a run, and the sentences of its failures."""

    statuses: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    last_code: int = 0
    restored: int = 0
    """Faces; with --dry-run those that would be."""
    kept: int = 0

    def add(self, outcome: Outcome) -> None:
        self.statuses[outcome.status] += 1
        self.restored += sum(report.decision in ("restored", "planned") for report in outcome.faces)
        self.kept += sum(report.decision == "kept" for report in outcome.faces)
        if outcome.status == "failed":
            self.last_code = outcome.error_code
            self.failures.append(outcome.error or "unknown")


@dataclass(frozen=True)
class RunFlags:
    """What only says how the run goes. detail: each photo's lines at info, else at debug; manifest: the output folder whose
    manifest is kept (--in-place: only of results that cannot carry our mark); resume: leave out what it says is done;
    most_failures: stop after so many failed photos."""

    report: Path | None = None
    detail: bool = True
    progress: bool = False
    summary: bool = False
    manifest: Path | None = None
    resume: bool = False
    most_failures: int | None = None


def run_jobs(jobs: Sequence[Job], options: Options, flags: RunFlags) -> int:
    """Does every job and returns the exit code.

    Result paths, one a line, go to stdout as they are finished; a job without a target puts its picture there instead.
    """
    return run_rounds([jobs], options, flags, total=len(jobs))


def run_rounds(rounds: Iterable[Sequence[Job]], options: Options, flags: RunFlags, *, total: int | None) -> int:
    """Does the jobs of every round with one engine (--watch: a round is what became complete) and returns the exit code.

    total: how many jobs there are, None when nobody knows yet.
    """
    with ExitStack() as stack:
        run = _Run(options, flags, stack, total)
        try:
            for jobs in rounds:
                if not run.do(jobs):
                    break
        finally:
            if flags.summary:
                run.summarise()
    for line in run.stages.table():
        log.debug("%s", line)
    if not run.tally.failures:
        return 0
    return SOME_FAILED if run.begun > 1 or total is None else run.tally.last_code


class _Run:
    """What lives as long as a run: the engine, the manifest, the report, the bar, the counts."""

    def __init__(self, options: Options, flags: RunFlags, stack: ExitStack, total: int | None) -> None:
        # cv2, onnxruntime: not before there is work
        from gpen_cli.engine import build_engine, describe_choice, engine_mark
        from gpen_cli.ledger import Ledger, fingerprint
        from gpen_cli.report import ReportWriter

        self._options, self._flags = options, flags
        self._since = time.monotonic()
        self._is_watch = total is None
        self._ledger = ledger = stack.enter_context(Ledger(flags.manifest)) if flags.manifest else None
        earlier = ledger.setup if ledger and flags.resume else None
        self._engine = build_engine(options, earlier=earlier, photos=total, start_counts=True)
        for choice in self._engine.choices:
            log.info("%s", describe_choice(choice, self._engine))
        log.info("detector: %s", self._engine.detector_name or "none, the inputs are aligned crops")
        self._mark = fingerprint(options, self._engine.setup, engine_mark(self._engine))
        self._writes_down = ledger is not None and not options.run.in_place
        if ledger and self._writes_down:
            ledger.begin(self._engine.setup)
        names = "+".join(choice.name for choice in self._engine.choices)
        report = flags.report
        self._report = stack.enter_context(ReportWriter(report, self._engine.setup, names)) if report else None
        self._bar = stack.enter_context(Progress(total, shown=flags.progress))
        self.begun = 0
        """Jobs asked for, those of an earlier run included."""
        self._todo = 0
        self.tally, self.stages = Tally(), RunSummary()

    def do(self, jobs: Sequence[Job]) -> bool:
        """Does the jobs; False when the run is to stop after so many failures."""
        from gpen_cli.pipeline import restore_photos

        stop_if_asked()
        todo = self._not_done(jobs)
        if not self._options.run.dry_run:
            self._warn_of_space(todo)
        outcomes = restore_photos(todo, self._engine, self._options, record=self._ledger)
        most = self._flags.most_failures
        try:
            for outcome in outcomes:
                self._take(outcome)
                stop_if_asked()
                if most is not None and len(self.tally.failures) >= most:
                    log.error("stopped after %d failed photo(s), as asked", len(self.tally.failures))
                    return False
        finally:
            outcomes.close()  # also on Ctrl-C: what is being written is finished, and told
            for outcome in outcomes.leftover:
                self._take(outcome)
        return True

    def _not_done(self, jobs: Sequence[Job]) -> list[Job]:
        """The jobs that no earlier run has done (--resume), counted."""
        todo = list(jobs)
        ledger = self._ledger
        if ledger and self._flags.resume:
            todo = [job for job in jobs if not ledger.is_done(job, self._mark)]
            if len(todo) < len(jobs) or not self._is_watch:
                log.info("resuming: %d of %d photos are done already", len(jobs) - len(todo), len(jobs))
            self._bar.leave_out(len(jobs) - len(todo))
        self.begun += len(jobs)
        self._todo += len(todo)
        return todo

    def _warn_of_space(self, todo: Sequence[Job]) -> None:
        from gpen_cli.space import space_warning

        if len(todo) > 1 and (sentence := space_warning(todo, self._options)) is not None:
            log.warning("%s", sentence)

    def _take(self, outcome: Outcome) -> None:
        self.tally.add(outcome)
        self.stages.add(outcome.seconds)
        if self._report:
            try:
                self._report.write(outcome)
            except OutputError:
                self._report = None  # said once, by the run that ends with it; what is finished meanwhile still counts
                raise
        if self._ledger and self._writes_down:
            self._ledger.add(outcome, self._mark)
        _tell(outcome, self._options, detail=self._flags.detail)
        self._bar.step(len(self.tally.failures))

    def summarise(self) -> None:
        seconds = time.monotonic() - self._since
        _summarise(self.tally, self._todo, self.begun - self._todo, seconds, dry_run=self._options.run.dry_run)


def _tell(outcome: Outcome, options: Options, *, detail: bool) -> None:
    """The photo's lines in the log, and its result on stdout."""
    for warning in outcome.warnings:
        log.log(logging.INFO if outcome.status == "skipped" else logging.WARNING, "%s", warning)
    if outcome.error is not None and outcome.error_code not in _SAID_AT_THE_END:
        log.error("%s", outcome.error)
    if outcome.size is not None and (outcome.scale is not None or options.run.dry_run):
        for line in _lines(outcome, options.compose, dry_run=options.run.dry_run):
            log.log(logging.INFO if detail else logging.DEBUG, "%s", line)
        times = ", ".join(f"{stage} {seconds:.3f}" for stage, seconds in outcome.seconds.items())
        log.debug("times of %s in s: %s", outcome.job.name, times)
    if outcome.payload is not None:
        _pour(outcome.payload)
    elif outcome.output_bytes is not None and outcome.job.target is not None:
        try:
            write_above_bar(str(outcome.job.target))
        except (
            OSError
        ):  # | head, or a full disk behind stdout: the paths cannot be told, the photos are done all the same
            silence_stdout()


def _pour(picture: bytes) -> None:
    """The picture to standard output. Raises OutputError."""
    left = memoryview(picture)
    try:
        while left:  # an unbuffered stream may take a part, and say so only here
            left = left[sys.stdout.buffer.write(left) :]
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise
    except (OSError, AttributeError) as error:  # AttributeError: standard output is closed
        silence_stdout()
        reason = getattr(error, "strerror", None) or "it is closed"
        raise OutputError(f"Standard output cannot be written: {reason}; give -o FILE.") from error


def _lines(outcome: Outcome, compose: ComposeOptions, *, dry_run: bool) -> list[str]:
    assert outcome.size is not None
    lines = [f"photo: {outcome.job.name}, {outcome.size[0]}x{outcome.size[1]}"]
    asked = "planned" if dry_run else "restored"
    restored = [report for report in outcome.faces if report.decision == asked]
    others = Counter(report.reason or report.decision for report in outcome.faces if report.decision != asked)
    left = "".join(f"; {count} not: {reason}" for reason, count in others.items())
    lines.append(f"faces: {len(outcome.faces)} found, {len(restored)} {'to be ' if dry_run else ''}restored{left}")
    lines.extend(f"guard: {report.reason}" for report in restored if report.reason)
    for number, report in enumerate(outcome.faces, start=1):
        lines.extend(f"face {number}: {warning}" for warning in report.warnings)
    nets = Counter(report.net for report in restored)
    if nets:
        lines.append("crops: " + ", ".join(f"{count} by {net}" for net, count in nets.items()))
    if dry_run:
        lines.append(f"would write: {outcome.job.target or 'standard output'}")
    if outcome.scale is None:
        return lines
    strength = f"fidelity weight {compose.fidelity_weight:g}"
    scale = f"scale {outcome.scale:g}" + (" (auto)" if compose.upscale is None else "")
    lines.append(f"post-processing: {strength}, mask {compose.mask}, {scale}")
    if outcome.output_bytes is not None and outcome.output_size is not None:
        where = outcome.job.target or "standard output"
        width, height = outcome.output_size
        lines.append(f"output: {where}, {width}x{height}, {outcome.output_bytes:,} bytes")
    return lines


def _summarise(tally: Tally, total: int, before: int, seconds: float, *, dry_run: bool) -> None:
    counts = tally.statuses
    finished = sum(counts.values())
    earlier = f", done before {before}" if before else ""
    pending = f", not begun or dropped {total - finished}" if finished < total else ""
    title, done, to_be = (
        ("summary of the dry run, nothing was written", "to do", "to be ") if dry_run else ("summary", "done", "")
    )
    log.info(
        "%s: %s %d, no face %d, skipped %d, failed %d%s%s; %d faces %srestored, %d left as they were; %.1f s",
        title, done, counts["done"], counts["no_face"], counts["skipped"], counts["failed"], earlier, pending,
        tally.restored, to_be, tally.kept, seconds,
    )  # fmt: skip
    for sentence in tally.failures[:MOST_FAILURES_LISTED]:
        log.info("failed: %s", sentence)
    if len(tally.failures) > MOST_FAILURES_LISTED:
        log.info("… and %d more; --report has them all", len(tally.failures) - MOST_FAILURES_LISTED)


def refuse_binary_on_terminal(jobs: Sequence[Job]) -> None:
    """Raises UsageError when a picture would be poured onto a terminal, OutputError when it would go nowhere."""
    if not any(job.target is None for job in jobs):
        return
    if sys.stdout is None:
        raise OutputError("Standard output is closed, so the picture cannot go there; give -o FILE.")
    if sys.stdout.isatty():
        raise UsageError("The picture would go to this terminal; redirect it (> restored.png) or give -o FILE.")
