"""``gpen batch``: every photo under a folder."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated

import typer

from gpen_cli.cli.enhance import log_level
from gpen_cli.cli.exits import exit_codes
from gpen_cli.cli.flags import SharedFlags, build_options, with_shared_flags
from gpen_cli.errors import UsageError


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
    from gpen_cli.cli.files import make_folder, make_folders, require_log_file, require_suffix
    from gpen_cli.cli.run import RunFlags, run_jobs
    from gpen_cli.naming import plan_batch, plan_in_place
    from gpen_cli.photos.temporary import remove_leftovers
    from gpen_cli.sources import find_photos, require_photo_folder

    with exit_codes():
        require_log_file(shared.log_file)
        log.set_up(log_level(shared, "info"), shared.log_file)
        options = build_options(shared, in_place=in_place)
        require_suffix(shared.suffix)
        require_photo_folder(input)
        output = _output_folder(input, output, shared, in_place=in_place)
        found = find_photos(input, exclude=exclude or (), leave_out=None if in_place else output)
        ignored = f"({found.ignored} files ignored)"
        if not found.photos:
            raise UsageError(f"No photo found in {input} {ignored}; check the folder and --exclude.")
        logging.getLogger(__name__).info("found %d photos %s", len(found.photos), ignored)
        if in_place:
            jobs = plan_in_place(found.photos, input)
        else:
            jobs = plan_batch(found.photos, input, output, suffix=shared.suffix, format_name=options.write.format)
        if not shared.dry_run:
            make_folder(output)
            make_folders(jobs)
            left = remove_leftovers({output, *(job.target.parent for job in jobs if job.target is not None)})
            if left:
                logging.getLogger(__name__).info("removed %d half-written file(s) of a run that was killed", left)
        flags = RunFlags(
            report=shared.report,
            detail=shared.log_level == "info",
            progress=not shared.quiet,
            summary=True,
            manifest=None if shared.dry_run or in_place else output,
            resume=resume,
            most_failures=1 if fail_fast else max_failures,
        )
        raise typer.Exit(run_jobs(jobs, options, flags))


def _output_folder(source: Path, output: Path | None, shared: SharedFlags, *, in_place: bool) -> Path:
    """Where results go: OUTPUT, or with --in-place the input itself. Raises UsageError for what cannot be meant."""
    same = output is not None and output.is_dir() and output.samefile(source)
    if in_place:
        if output is not None and not same:
            raise UsageError(f"--in-place writes into {source} itself; leave OUTPUT {output} out.")
        if shared.format is not None or shared.upscale not in ("auto", "1"):
            raise UsageError("--in-place keeps each photo's format and size; leave --format and --upscale out.")
        return source
    if output is None:
        raise UsageError(f"No output folder is named; give one: gpen batch {source} OUTPUT")
    if output.is_file():
        raise UsageError(f"The output {output} is a file; name a folder.")
    if same:
        raise UsageError(
            f"Input and output are the same folder, {source}; name another folder, or give --in-place "
            "(each original is then kept as <name>.orig)."
        )
    return output
