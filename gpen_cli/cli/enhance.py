"""``gpen enhance``: one photo or a few, each named."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from gpen_cli.cli.exits import exit_codes
from gpen_cli.cli.flags import SharedFlags
from gpen_cli.cli.shared_flags import build_options, with_shared_flags
from gpen_cli.errors import UsageError
from gpen_cli.paths import is_dir, is_file


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
    from gpen_cli.cli.contradictions import refuse_contradictions
    from gpen_cli.cli.files import make_folders, require_format, require_log_file, require_suffix
    from gpen_cli.cli.run import RunFlags, refuse_binary_on_terminal, run_jobs
    from gpen_cli.naming import plan_enhance
    from gpen_cli.sources import STDIN

    with exit_codes():
        refuse_contradictions(shared, file=output)
        require_log_file(shared.log_file)
        log.set_up(log_level(shared, "info"), shared.log_file)
        sources = _each_once([*(photos or []), *(input or [])])
        options = build_options(shared, debug_mask=debug_mask)
        file, folder = _where(sources, output, output_dir, auto_name=auto_name)
        _check(sources, debug_mask)
        require_suffix(shared.suffix)
        if file is not None:
            require_format(file, options.write.format)
        jobs = plan_enhance(
            sources, output=file, output_dir=folder, suffix=shared.suffix, format_name=options.write.format
        )
        if output == STDIN:
            jobs = [replace(job, target=None) for job in jobs]
        refuse_binary_on_terminal(jobs)
        if not shared.dry_run:
            make_folders(jobs)
        several = len(jobs) > 1
        flags = RunFlags(report=shared.report, progress=several and not shared.quiet, summary=several)
        raise typer.Exit(run_jobs(jobs, options, flags))


def log_level(shared: SharedFlags, auto: str) -> str:
    """The level the flags ask for; ``auto`` is the command's own."""
    if shared.quiet:
        return "error"
    return auto if shared.log_level == "auto" else shared.log_level


def _each_once(sources: list[str]) -> list[str]:
    """The sources, each photo under the first name it was given."""
    from gpen_cli.sources import STDIN, is_url

    seen: dict[str, str] = {}
    for source in sources:
        seen.setdefault(source if source == STDIN or is_url(source) else os.path.realpath(source), source)
    return list(seen.values())


def _check(sources: list[str], debug_mask: Path | None) -> None:
    from gpen_cli.sources import STDIN, is_url

    if not sources:
        raise UsageError("No photo is named; give one: gpen enhance photo.jpg (or -i photo.jpg).")
    if sources.count(STDIN) and len(sources) > 1:
        raise UsageError("Standard input (-) can only be the one input.")
    if debug_mask is not None and len(set(sources)) > 1:
        raise UsageError("--debug-mask is one file; give one photo with it.")
    if debug_mask is not None and debug_mask.suffix.lower() != ".png":
        raise UsageError(f"--debug-mask {debug_mask} is written as PNG; give a name that ends in .png.")
    if len(sources) == 1 and not is_url(sources[0]) and sources[0] != STDIN and is_dir(Path(sources[0])):
        raise UsageError(f"{sources[0]} is a folder; to restore the photos in it: gpen batch {sources[0]} OUTPUT")


def _where(
    sources: list[str], output: str | None, output_dir: Path | None, *, auto_name: bool
) -> tuple[Path | None, Path | None]:
    """(the one result's file, the folder of auto-named results), from -o and --output-dir."""
    to_stdout = output == "-"
    if output is None or to_stdout:
        if to_stdout and len(set(sources)) > 1:
            raise UsageError("-o - takes one photo; give a folder for several.")
        return None, output_dir
    if output_dir is not None:
        raise UsageError("-o and --output-dir exclude each other; give one of them.")
    path = Path(output)
    if is_dir(path) or output.endswith(("/", os.sep)) or len(set(sources)) > 1:
        if is_file(path):
            raise UsageError(f"-o {output} is a file, but there are several photos; give a folder.")
        if not is_dir(path) and not output.endswith(("/", os.sep)) and path.suffix:
            raise UsageError(f"-o {output} looks like a file, but there are several photos; give a folder ({output}/).")
        return None, path
    if auto_name:
        raise UsageError(f"-o {output} names the result and --auto-name asks for a name; give one of them.")
    return path, None
