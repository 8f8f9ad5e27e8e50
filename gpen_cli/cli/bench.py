"""``gpen bench``: which settings are fastest on this machine."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpen_cli.cli.exits import exit_codes, text_may_go_unread
from gpen_cli.options import COMPILE, NetOptions, Options, RunOptions

if TYPE_CHECKING:
    from gpen_cli.bench import Measured


def bench(
    model: Annotated[
        str, typer.Option("--model", "-m", help="Net by name; auto takes the first that is here.")
    ] = "auto",
    weights: Annotated[Path | None, typer.Option("--weights", metavar="FILE", help="A GPEN weight file.")] = None,
    device: Annotated[
        str, typer.Option("--device", metavar="auto|cpu|cuda[:N]|mps", help="Where the net runs.")
    ] = "auto",
    compile: Annotated[
        str,
        typer.Option("--compile", metavar="|".join(COMPILE), help="always: try PyTorch's compiler too (a minute)."),
    ] = "auto",
) -> None:
    """Measure a face by each runtime that works here, and say which flags are fastest. Close other programs first."""
    from gpen_cli import log

    with exit_codes():
        log.set_up("warning", None)
        options = NetOptions(model=model, weights=weights, device=device, compile=compile)
        _measure(options)


def _measure(options: NetOptions) -> None:
    from rich.console import Console
    from rich.table import Column, Table

    from gpen_cli.bench import best, candidates, measure
    from gpen_cli.engine import build_engine

    plain = NetOptions(model=options.model, weights=options.weights, device=options.device, compile="never")
    engine = build_engine(Options(net=plain, run=RunOptions(aligned=True)))
    choice, setup = engine.choices[0], engine.setup
    device = setup.only_device("name the one to measure")
    with text_may_go_unread():
        print(f"{choice.name}, {choice.crop_size} px, {device}, {setup.threads} thread(s): seconds a face")
    table = Table("flags", *(Column(name, no_wrap=True) for name in ("s a face", "range", "ready, s")))
    results: list[Measured] = []
    console = Console()
    with console.status("measuring") if console.is_terminal else contextlib.nullcontext():
        for item in measure(choice.weights, candidates(setup, options, choice.weights)):
            results.append(item)
            if item.error is None:
                spread = f"{item.low:.3f}–{item.high:.3f}"
                table.add_row(item.candidate.flags, f"{item.seconds:.3f}", spread, f"{item.ready:.1f}")
            else:
                table.add_row(item.candidate.flags, "–", item.error, "")
    fastest = best(results)
    with text_may_go_unread():
        console.print(table)
        if fastest is not None:
            print(f"fastest here: {fastest.candidate.flags}")
