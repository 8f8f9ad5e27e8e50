"""``gpen batch``: every photo under a folder."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpen_cli.cli.enhance import log_level
from gpen_cli.cli.exits import exit_codes
from gpen_cli.cli.flags import SharedFlags
from gpen_cli.cli.shared_flags import build_options, with_shared_flags
from gpen_cli.errors import OutputError, UsageError
from gpen_cli.paths import is_dir, is_file, same_file

if TYPE_CHECKING:  # numpy: not for --help
    from gpen_cli.data import Job
    from gpen_cli.watch import Watcher

MOST_NAMED = 20


@with_shared_flags
def batch(
    input: Annotated[Path, typer.Argument(metavar="INPUT", help="Folder of photos; its sub-folders too.")],
    output: Annotated[
        Path | None, typer.Argument(metavar="OUTPUT", help="Folder for the results; made if it is not there.")
    ] = None,
    exclude: Annotated[
        list[str] | None,
        typer.Option("--exclude", metavar="GLOB", help="Leave out what matches, e.g. 'thumbs/*'; may be repeated."),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume", help="Leave out what an earlier run into OUTPUT finished; do again what changed or broke."
        ),
    ] = False,
    in_place: Annotated[
        bool,
        typer.Option(
            "--in-place",
            help="Put results under the photos' own names; each original stays beside it as <name>.orig.",
        ),
    ] = False,
    include_results: Annotated[
        bool,
        typer.Option(
            "--include-results", help="Also take pictures that gpen itself made; they are left out otherwise."
        ),
    ] = False,
    watch: Annotated[
        bool,
        typer.Option(
            "--watch",
            help="Stay, and restore photos as they become complete in INPUT, until Ctrl-C; a file whose end is missing is waited "
            "for a minute. What OUTPUT has already is kept.",
        ),
    ] = False,
    fail_fast: Annotated[bool, typer.Option("--fail-fast", help="Stop at the first photo that fails.")] = False,
    max_failures: Annotated[
        int | None, typer.Option("--max-failures", metavar="N", min=1, help="Stop after N photos that failed.")
    ] = None,
    *,
    shared: SharedFlags,
) -> None:
    """Restore the faces of every photo under a folder.

    Results keep the folders' structure: OUTPUT/<folder>/<photo>_enhanced.png. One bad photo never stops the others.
    """
    from gpen_cli import log
    from gpen_cli.cli.contradictions import refuse_contradictions
    from gpen_cli.cli.files import require_log_file, require_suffix, tell_unseen, whole_code
    from gpen_cli.cli.run import RunFlags, run_jobs, run_rounds
    from gpen_cli.naming import plan_batch, plan_in_place
    from gpen_cli.sources import find_photos, require_photo_folder

    with exit_codes("what was finished stays; the same command with --resume does the rest"):
        refuse_contradictions(shared, in_place=in_place)
        if fail_fast and max_failures is not None:
            raise UsageError("--fail-fast and --max-failures both say when to stop; give one of them.")
        require_log_file(shared.log_file)
        log.set_up(log_level(shared, "info"), shared.log_file)
        options = build_options(shared, in_place=in_place, leave_results=not include_results)
        require_suffix(shared.suffix)
        require_photo_folder(input)
        output = _output_folder(input, output, shared, in_place=in_place)
        flags = RunFlags(
            report=shared.report,
            detail=shared.log_level == "info" or shared.dry_run,
            progress=not shared.quiet,
            summary=True,
            manifest=None if shared.dry_run else output,
            resume=resume or watch,
            most_failures=1 if fail_fast else max_failures,
        )
        if watch:
            if in_place or shared.dry_run:
                raise UsageError("--watch needs an OUTPUT folder and real work; leave --in-place and --dry-run out.")
            _prepare_folders(output, [])
            rounds = _watched(input, output, exclude or (), shared, format_name=options.write.format)
            raise typer.Exit(run_rounds(rounds, options, flags, total=None))
        found = find_photos(input, exclude=exclude or (), leave_out=None if in_place else output)
        tell_unseen(found.unseen)
        ignored = f"({found.ignored} files ignored)"
        if not found.photos:
            raise UsageError(f"No photo found in {input} {ignored}; check the folder and --exclude.")
        logging.getLogger(__name__).info("found %d photos %s", len(found.photos), ignored)
        if in_place:
            jobs = plan_in_place(found.photos, input)
        else:
            jobs = plan_batch(found.photos, input, output, suffix=shared.suffix, format_name=options.write.format)
        if not shared.dry_run:
            _prepare_folders(output, jobs)
        raise typer.Exit(whole_code(run_jobs(jobs, options, flags), found.unseen))


def _prepare_folders(output: Path, jobs: Sequence[Job]) -> None:
    """Makes the folders of results and removes what a killed run left in them. Raises OutputError."""
    from gpen_cli.cli.files import make_folders
    from gpen_cli.photos.temporary import remove_leftovers
    from gpen_cli.photos.write import make_folder

    make_folder(output)
    make_folders(jobs)
    left = remove_leftovers({output, *(job.target.parent for job in jobs if job.target is not None)})
    if left:
        logging.getLogger(__name__).info("removed %d half-written file(s) of a run that was killed", left)


def _watched(
    source: Path, output: Path, exclude: Sequence[str], shared: SharedFlags, *, format_name: str | None
) -> Iterator[list[Job]]:
    """Rounds of jobs, for ever: the photos of ``source`` that became complete. A photo that changes keeps its target."""
    from gpen_cli.watch import Watcher

    watcher = Watcher(source, exclude=exclude, leave_out=output)
    logging.getLogger(__name__).info("watching %s; Ctrl-C ends it", source)
    known: dict[str, Job] = {}
    try:
        yield from _rounds(watcher, known, source, output, shared, format_name=format_name)
    finally:
        waiting = watcher.waiting()
        if waiting:
            names = ", ".join(str(path) for path in waiting[:MOST_NAMED]) + (", …" if len(waiting) > MOST_NAMED else "")
            logging.getLogger(__name__).warning(
                "%d file(s) were not complete yet and are not done: %s", len(waiting), names
            )


def _rounds(
    watcher: Watcher, known: dict[str, Job], source: Path, output: Path, shared: SharedFlags, *, format_name: str | None
) -> Iterator[list[Job]]:
    from gpen_cli.naming import plan_batch
    from gpen_cli.watch import INTERVAL

    while True:
        ready = watcher.look()
        if known and not is_dir(output):
            raise OutputError(f"The output folder {output} is gone; what was restored went with it. Start again.")
        if not ready:
            time.sleep(INTERVAL)
            continue
        new = [path for path in ready if str(path) not in known]
        planned = plan_batch(
            new, source, output, suffix=shared.suffix, format_name=format_name, earlier=list(known.values())
        )
        known.update((job.name, job) for job in planned)
        jobs = [known[str(path)] for path in ready]
        _prepare_folders(output, jobs)
        yield jobs


def _output_folder(source: Path, output: Path | None, shared: SharedFlags, *, in_place: bool) -> Path:
    """Where results go: OUTPUT, or with --in-place the input itself. Raises UsageError for what cannot be meant."""
    same = output is not None and is_dir(output) and same_file(output, source)
    if in_place:
        if output is not None and not same:
            raise UsageError(f"--in-place writes into {source} itself; leave OUTPUT {output} out.")
        if shared.format is not None or shared.upscale not in ("auto", "1"):
            raise UsageError("--in-place keeps each photo's format and size; leave --format and --upscale out.")
        return source
    if output is None:
        raise UsageError(f"No output folder is named; give one: gpen batch {source} OUTPUT")
    if is_file(output):
        raise UsageError(f"The output {output} is a file; name a folder.")
    if same:
        raise UsageError(
            f"Input and output are the same folder, {source}; name another folder, or give --in-place "
            "(each original is then kept as <name>.orig)."
        )
    return output
