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
    output: Annotated[Path, typer.Argument(metavar="OUTPUT", help="Folder for the results; made if it is not there.")],
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
    from gpen_cli.naming import plan_batch
    from gpen_cli.photos.temporary import remove_leftovers
    from gpen_cli.sources import find_photos, require_photo_folder

    with exit_codes():
        require_log_file(shared.log_file)
        log.set_up(log_level(shared, "info"), shared.log_file)
        options = build_options(shared)
        require_suffix(shared.suffix)
        require_photo_folder(input)
        if output.is_file():
            raise UsageError(f"The output {output} is a file; name a folder.")
        if output.is_dir() and output.samefile(input):
            raise UsageError(f"Input and output are the same folder, {input}; name another folder for the results.")
        found = find_photos(input, exclude=exclude or (), leave_out=output)
        ignored = f"({found.ignored} files ignored)"
        if not found.photos:
            raise UsageError(f"No photo found in {input} {ignored}; check the folder and --exclude.")
        logging.getLogger(__name__).info("found %d photos %s", len(found.photos), ignored)
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
            manifest=None if shared.dry_run else output,
            resume=resume,
            most_failures=1 if fail_fast else max_failures,
        )
        raise typer.Exit(run_jobs(jobs, options, flags))
