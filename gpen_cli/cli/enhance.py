"""``gpen enhance``: one photo or a few, each named."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from gpen_cli.cli.exits import exit_codes
from gpen_cli.cli.flags import SharedFlags, build_options, with_shared_flags
from gpen_cli.errors import OutputError, UsageError
from gpen_cli.photos.formats import resolve_format
from gpen_cli.sources import STDIN, is_url


@with_shared_flags
def enhance(
    photos: Annotated[
        list[str] | None, typer.Argument(metavar="[PHOTO]...", help="Photos: files, http(s) URLs, or - for stdin.")
    ] = None,
    input: Annotated[
        list[str] | None, typer.Option("--input", "-i", metavar="PHOTO", help="A photo; may be given several times.")
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            "--output", "-o", metavar="OUT", help="The result: a file, - for stdout, or a folder for several."
        ),
    ] = None,
    output_dir: Annotated[
        Path | None, typer.Option("--output-dir", metavar="DIR", help="A folder for auto-named results.")
    ] = None,
    auto_name: Annotated[
        bool,
        typer.Option("--auto-name", help="Name the result <photo>_enhanced.png (this is also so without the flag)."),
    ] = False,
    debug_mask: Annotated[
        Path | None,
        typer.Option("--debug-mask", metavar="FILE", help="Also a picture of where faces were replaced."),
    ] = None,
    *,
    shared: SharedFlags,
) -> None:
    """Restore the faces of one photo, or of several.

    The result is <photo>_enhanced.png beside the photo unless -o says otherwise; the photo itself is never changed.
    """
    from gpen_cli import log
    from gpen_cli.cli.run import refuse_binary_on_terminal, run_jobs
    from gpen_cli.naming import plan_enhance

    with exit_codes():
        log.set_up(log_level(shared, "info"), shared.log_file)
        sources = [*(photos or []), *(input or [])]
        options = build_options(shared, debug_mask=debug_mask)
        file, folder = _where(sources, output, output_dir, auto_name=auto_name)
        _check(sources, shared, debug_mask)
        if file is not None:
            _check_format(file, options.write.format)
        jobs = plan_enhance(
            sources, output=file, output_dir=folder, suffix=shared.suffix, format_name=options.write.format
        )
        if output == STDIN:
            jobs = [type(job)(job.source, None, job.name, job.label) for job in jobs]
        refuse_binary_on_terminal(jobs)
        if folder is not None:
            make_folder(folder)
        several = len(jobs) > 1
        code = run_jobs(
            jobs, options, report=shared.report, detail=True, progress=several and not shared.quiet, summary=several
        )
        raise typer.Exit(code)


def log_level(shared: SharedFlags, auto: str) -> str:
    """The level the flags ask for; ``auto`` is the command's own."""
    if shared.quiet:
        return "error"
    return auto if shared.log_level == "auto" else shared.log_level


def make_folder(folder: Path) -> None:
    """Makes the output folder. Raises OutputError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(
            f"The output folder {folder} cannot be made: {error.strerror or error}; name another folder."
        ) from error


def _check(sources: list[str], shared: SharedFlags, debug_mask: Path | None) -> None:
    from gpen_cli.naming import check_suffix

    if not sources:
        raise UsageError("No photo is named; give one: gpen enhance photo.jpg (or -i photo.jpg).")
    if not check_suffix(shared.suffix):
        raise UsageError(f"--suffix {shared.suffix!r} cannot be part of a file name; give one like _enhanced.")
    if sources.count(STDIN) and len(sources) > 1:
        raise UsageError("Standard input (-) can only be the one input.")
    if debug_mask is not None and len(set(sources)) > 1:
        raise UsageError("--debug-mask is one file; give one photo with it.")
    if len(sources) == 1 and not is_url(sources[0]) and sources[0] != STDIN and Path(sources[0]).is_dir():
        raise UsageError(f"{sources[0]} is a folder; to restore the photos in it: gpen batch {sources[0]} OUTPUT")


def _where(
    sources: list[str], output: str | None, output_dir: Path | None, *, auto_name: bool
) -> tuple[Path | None, Path | None]:
    """(the one result's file, the folder of auto-named results), from -o and --output-dir."""
    if output is None or output == STDIN:
        if output == STDIN and len(set(sources)) > 1:
            raise UsageError("-o - takes one photo; give a folder for several.")
        return None, output_dir
    if output_dir is not None:
        raise UsageError("-o and --output-dir exclude each other; give one of them.")
    path = Path(output)
    if path.is_dir() or output.endswith(("/", os.sep)) or len(set(sources)) > 1:
        if path.is_file():
            raise UsageError(f"-o {output} is a file, but there are several photos; give a folder.")
        return None, path
    if auto_name:
        raise UsageError(f"-o {output} names the result and --auto-name asks for a name; give one of them.")
    return path, None


def _check_format(file: Path, format_name: str | None) -> None:
    """Raises UsageError, before any work, when -o's suffix names no format, or another than --format."""
    by_suffix = resolve_format(file.suffix, None)
    if format_name is not None and format_name != "same" and resolve_format(format_name, None) != by_suffix:
        raise UsageError(f"-o {file} and --format {format_name} name two formats; leave --format out or rename.")
