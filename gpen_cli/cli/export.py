"""``gpen export``: a net as one .onnx file, for every other runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gpen_cli.cli.exits import exit_codes, text_may_go_unread
from gpen_cli.errors import UsageError
from gpen_cli.options import EXPORT_IO, EXPORT_PRECISIONS, ExportOptions, parse_whole


def export(
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE.onnx", help="The file that is written.")],
    model: Annotated[str | None, typer.Option("--model", "-m", help="Net by name (gpen models list).")] = None,
    weights: Annotated[Path | None, typer.Option("--weights", metavar="FILE", help="A GPEN weight file.")] = None,
    precision: Annotated[
        str,
        typer.Option(
            "--precision",
            metavar="|".join(EXPORT_PRECISIONS),
            help="fp16: for GPUs; input and output stay.",
        ),
    ] = "fp32",
    io: Annotated[
        str,
        typer.Option(
            "--io",
            metavar="|".join(EXPORT_IO),
            help="float: NCHW RGB in [-1, 1], as the public GPEN-BFR-*.onnx. uint8: NHWC RGB pixels in and out.",
        ),
    ] = "float",
    batch: Annotated[
        str, typer.Option("--batch", metavar="N|dynamic", help="Faces in one pass; dynamic takes any number.")
    ] = "dynamic",
    linked: Annotated[
        bool,
        typer.Option(
            "--linked", help="The graph alone, 0.2 MB: it needs the .safetensors file, which has to lie beside it."
        ),
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace an existing file that gpen export did not make.")
    ] = False,
) -> None:
    """Write a net as an .onnx file, after proving on real faces that it answers as in PyTorch.

    Needs PyTorch and the package onnx (pip install 'gpen-cli\\[onnx]'). How to use the file elsewhere: docs/deployment.md.
    """
    from gpen_cli import log

    with exit_codes():
        log.set_up("info", None)
        options = ExportOptions(
            precision=precision, io=io, batch=_parse_batch(batch), overwrite=overwrite, linked=linked
        )
        if (model is None) == (weights is None):
            raise UsageError("Which net? Give one of --model NAME (gpen models list) and --weights FILE.")
        _export(output, model, weights=weights, options=options)
        with text_may_go_unread():
            print(output)


def _export(output: Path, model: str | None, *, weights: Path | None, options: ExportOptions) -> None:
    import logging

    from gpen_cli.device import has_package
    from gpen_cli.errors import DeviceError
    from gpen_cli.weights.find import from_path, require_model

    log = logging.getLogger(__name__)
    if not has_package("torch"):
        raise DeviceError("gpen export needs PyTorch, which is not installed: python -m pip install torch torchvision")
    source = require_model(model) if model is not None else from_path(weights or Path())
    from gpen_cli.export import export_net

    log.info("%s, licence: %s", source.path, source.licence)
    for figures in export_net(source, output, options):
        log.info("%s", figures.sentence())
    log.info("%s: %s bytes", output, f"{output.stat().st_size:,}")


def _parse_batch(text: str) -> int | None:
    """``dynamic`` -> None, a number -> itself. Raises UsageError."""
    if text.lower() == "dynamic":
        return None
    try:
        return parse_whole(text)
    except ValueError:
        raise UsageError(f"--batch {text!r} is no number; give dynamic, or a number from 1 to 256.") from None
