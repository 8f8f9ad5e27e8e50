"""The command ``gpen``. Importing this imports nothing heavy: each command fetches what it needs when it runs."""

from __future__ import annotations

from typing import Annotated

import typer

from gpen_cli import __version__
from gpen_cli.cli.batch import batch
from gpen_cli.cli.bench import bench
from gpen_cli.cli.enhance import enhance
from gpen_cli.cli.exits import text_may_go_unread
from gpen_cli.cli.export import export
from gpen_cli.cli.help import Command, Group
from gpen_cli.cli.models import app as models_app
from gpen_cli.cli.quantize import quantize
from gpen_cli.cli.serve import serve
from gpen_cli.cli.train import app as train_app

app = typer.Typer(
    name="gpen",
    cls=Group,
    help="Restore the faces in blurred, small, scanned or badly compressed portraits.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("enhance", cls=Command)(enhance)
app.command("batch", cls=Command)(batch)
app.command("export", cls=Command)(export)
app.command("quantize", cls=Command)(quantize)
app.command("serve", cls=Command)(serve)
app.command("bench", cls=Command)(bench)
app.add_typer(models_app, name="models")
app.add_typer(train_app, name="train")


def _print_version(asked: bool) -> None:
    if asked:
        with text_may_go_unread():
            print(f"gpen {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version.")
    ] = False,
) -> None:
    """Restore the faces in blurred, small, scanned or badly compressed portraits."""


def run() -> None:
    """Entry point of the console script."""
    app()
