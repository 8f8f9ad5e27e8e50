"""``gpen quantize``: an exported net in int8."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gpen_cli.cli.exits import exit_codes, text_may_go_unread
from gpen_cli.options import QuantizeOptions


def quantize(
    file: Annotated[Path, typer.Argument(metavar="FILE.onnx", help="A file of gpen export, in fp32.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="OUT.onnx", help="The file that is written.")],
    calibration: Annotated[
        Path | None,
        typer.Option(
            "--calibration",
            metavar="PHOTOS",
            help="A folder of photos like those it shall restore, or one photo of many; without it the example photos.",
        ),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace an existing file that gpen did not make.")
    ] = False,
) -> None:
    """Write an exported net in int8, after holding it against the fp32 file on faces that did not calibrate it.

    Needs the package onnx (pip install 'gpen-cli\\[onnx]'), not PyTorch. What it gains: docs/deployment.md.
    """
    import logging

    from gpen_cli import log

    with exit_codes():
        log.set_up("info", None)
        from gpen_cli.quantize import quantize_file

        told = logging.getLogger(__name__)
        result = quantize_file(file, output, QuantizeOptions(calibration=calibration, overwrite=overwrite))
        for sentence in result.sentences():
            told.info("%s", sentence)
        told.info("%s: %s bytes", output, f"{output.stat().st_size:,}")
        with text_may_go_unread():
            print(output)
