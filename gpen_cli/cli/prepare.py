"""``gpen train prepare``: from photos to the crops that a net learns from."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpen_cli.cli.exits import exit_codes, text_may_go_unread
from gpen_cli.errors import SOME_FAILED

if TYPE_CHECKING:
    from gpen_cli.train.prepare import PrepareReport
    from gpen_cli.train.prepared_face import PrepareOptions


def prepare(
    photos: Annotated[Path, typer.Argument(metavar="PHOTOS", help="Folder of photos; they stay as they are.")],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="Folder for the crops and their index.csv.")],
    size: Annotated[
        int, typer.Option("--size", help="Side of the crops; smaller faces go to half of it, down to 256.")
    ] = 512,
    min_sharpness: Annotated[
        float, typer.Option("--min-sharpness", help="Least variance of the Laplacian over the face.")
    ] = 40.0,
    max_roll: Annotated[float, typer.Option("--max-roll", help="Degrees a head may lean.")] = 25.0,
    max_yaw: Annotated[
        float, typer.Option("--max-yaw", help="How far a head may be turned; 0.42 is about 45°.")
    ] = 0.30,
    max_outside: Annotated[
        float, typer.Option("--max-outside", help="Share of the crop beyond the photo's edge.")
    ] = 0.35,
    format: Annotated[str, typer.Option("--format", metavar="jpg|png", help="jpg: quality 95.")] = "jpg",
    source: Annotated[
        str | None, typer.Option("--source", help="For the index; default: the first folder below PHOTOS.")
    ] = None,
    licence: Annotated[str, typer.Option("--licence", help="For the index.")] = "",
    confidence: Annotated[
        str, typer.Option("--confidence", help="How sure that licence is, e.g. A; for the index.")
    ] = "",
) -> None:
    """Find, align and choose faces to learn from. Exit code 7 when a photo could not be read; the others are done."""
    from gpen_cli import log

    with exit_codes():
        log.set_up("info", None)
        from gpen_cli.train.prepared_face import PrepareOptions

        options = PrepareOptions(
            size=size,
            min_sharpness=min_sharpness,
            max_roll=max_roll,
            max_yaw=max_yaw,
            max_outside=max_outside,
            format=format,
            source=source,
            licence=licence,
            confidence=confidence,
        )
        report = _prepare(photos, out, options)
        for line in report.lines():
            print(line, file=sys.stderr)
        with text_may_go_unread():
            print(report.index)
        if report.unreadable:
            raise typer.Exit(SOME_FAILED)


def _prepare(photos: Path, out: Path, options: PrepareOptions) -> PrepareReport:
    from gpen_cli.cli.progress import Progress
    from gpen_cli.train.prepare import prepare as prepare_photos

    with ExitStack() as stack:
        progress: Progress | None = None

        def on_photo(_: int, total: int) -> None:
            nonlocal progress
            progress = progress or stack.enter_context(Progress(total, shown=True))
            progress.step(0)

        return prepare_photos(photos, out, options, on_photo=on_photo)
