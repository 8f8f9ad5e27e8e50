"""``gpen models``: which nets there are, which are here; fetching and checking them."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from gpen_cli.cli.exits import exit_codes, text_may_go_unread
from gpen_cli.cli.help import Command, Group
from gpen_cli.errors import UsageError, WeightsError
from gpen_cli.weights.find import find_model
from gpen_cli.weights.table import MODELS, Model

app = typer.Typer(cls=Group, help="The nets: which there are, which are on this machine.", no_args_is_help=True)

_COLUMNS = ("name", "present", "size", "licence", "where")


@app.callback()
def models() -> None:
    """The nets: which there are, which are on this machine."""


@app.command("list", cls=Command)
def list_models() -> None:
    """Name, whether it is here, size, licence, and where it is or can be had."""
    with exit_codes():
        rows = [_row(model) for model in MODELS.values()]
        if sys.stdout is not None and sys.stdout.isatty():
            _draw(rows)
        else:
            with text_may_go_unread():
                for row in (_COLUMNS, *rows):
                    print("\t".join(row))


@app.command("download", cls=Command)
def download_models(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="Nets by name; gpen models list has them.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Agree to the licences without being asked.")] = False,
    offline: Annotated[
        bool, typer.Option("--offline", help="Never open a connection; only say what is missing.")
    ] = False,
) -> None:
    """Fetch nets from their mirrors, after showing their licence; nothing is ever fetched unasked."""
    from gpen_cli.weights.download import download, downloadable

    with exit_codes():
        for model in [downloadable(name) for name in names]:
            if find_model(model) is None and not offline and not yes:
                _ask(model)
            with _ProgressBar(model) as bar:
                path = download(model, offline=offline, on_progress=bar.show)
            with text_may_go_unread():
                print(path)


def _ask(model: Model) -> None:
    size = f"{model.bytes / 1e6:.0f} MB" if model.bytes else "size not known"
    print(f"{model.name} ({size}). Licence: {model.licence}. Paper: {model.paper}", file=sys.stderr)
    try:
        agreed = typer.confirm("Download it under this licence?", err=True)
    except typer.Abort:
        agreed = False
    if not agreed:
        raise UsageError(
            f"{model.name} was not downloaded: the licence was not agreed to (--yes agrees without asking)."
        )


class _ProgressBar:
    """Bytes so far, on a terminal."""

    def __init__(self, model: Model) -> None:
        self._name = model.name
        self._bar: Any = None

    def show(self, done: int, total: int | None) -> None:
        if self._bar is None:
            from tqdm import tqdm

            self._bar = tqdm(total=total, initial=done, desc=self._name, unit="B", unit_scale=True, disable=None)
        self._bar.update(done - self._bar.n)

    def __enter__(self) -> _ProgressBar:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()


@app.command("verify", cls=Command)
def verify_models() -> None:
    """Check every weight file on this machine against its known size and hash, reading it anew."""
    from gpen_cli.weights.find import find_onnx, forget_hashes

    with exit_codes():
        forget_hashes()
        damaged = []
        for model in MODELS.values():
            if model.package is not None:
                continue
            try:
                found = find_model(model)
                find_onnx(model)
            except WeightsError as error:
                damaged.append(str(error))
                continue
            if found is not None:
                known = "whole" if model.sha256 else "no known hash to hold it against"
                with text_may_go_unread():
                    print(f"{model.name}\t{known}\t{found.path}")
        if damaged:
            raise WeightsError(" ".join(damaged))


@app.command("path", cls=Command)
def models_path() -> None:
    """The folders weights are looked for in, in order; downloads go to the one marked."""
    from gpen_cli.weights.download import target_folder
    from gpen_cli.weights.find import all_folders

    with exit_codes(), text_may_go_unread():
        for folder in all_folders():
            mark = "\tdownloads go here" if folder == target_folder() else ""
            print(f"{folder}{mark}")


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
