"""``gpen models``: which nets there are, and which are here."""

from __future__ import annotations

import sys
from typing import Any

import typer

from gpen_cli.cli.exits import exit_codes
from gpen_cli.errors import WeightsError
from gpen_cli.weights.find import find_model
from gpen_cli.weights.table import MODELS, Model

app = typer.Typer(help="The nets: which there are, which are on this machine.", no_args_is_help=True)

_COLUMNS = ("name", "present", "size", "licence", "where")


@app.callback()
def models() -> None:
    """The nets: which there are, which are on this machine."""


@app.command("list")
def list_models() -> None:
    """Name, whether it is here, size, licence, and where it is or can be had."""
    with exit_codes():
        rows = [_row(model) for model in MODELS.values()]
        if sys.stdout.isatty():
            _draw(rows)
        else:
            for row in (_COLUMNS, *rows):
                print("\t".join(row))


def _row(model: Model) -> tuple[str, str, str, str, str]:
    size = f"{model.bytes / 1e6:.1f} MB" if model.bytes else "-"
    if model.package is not None:
        return model.name, "yes", size, model.licence, f"in the package {model.package}"
    try:
        found = find_model(model)
    except WeightsError as error:
        return model.name, "damaged", size, model.licence, str(error)
    where = str(found.path) if found else model.mirrors[0] if model.mirrors else "-"
    present = "no" if found is None else "yes" if found.placed_by_user else "in another cache"
    return model.name, present, size, model.licence, where


def _draw(rows: list[tuple[str, str, str, str, str]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table: Any = Table(*_COLUMNS, title=None)
    for row in rows:
        table.add_row(*row)
    Console().print(table)
