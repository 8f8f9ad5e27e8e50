"""What our commands do otherwise than Typer's own: their help, and arguments that are empty.

``--help`` is Typer's table where it has room, else every flag on a line of its own, above what it does.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperCommand, TyperGroup

from gpen_cli.cli.exits import text_may_go_unread
from gpen_cli.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console

TABLE_WIDTH = 100
"""Columns from which Typer's table has every flag whole. In fewer it shortens names with …, whatever they are."""
_MAY_BE_EMPTY = ("--source", "--licence", "--confidence")
"""Options of ``train prepare`` that are text for its index."""
_NAME_INDENT, _TEXT_INDENT = 2, 6


class Command(TyperCommand):
    """A command whose help shows flag names whole, however narrow the terminal is."""

    def format_help(self, ctx: typer.Context, formatter: Any) -> None:  # type: ignore[override]
        with text_may_go_unread():
            if not _print_stacked(self, ctx):
                super().format_help(ctx, formatter)


class Group(TyperGroup):
    """The same for a command with commands below it, which refuses empty arguments for all of them."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        try:
            refuse_empty(args)
        except UsageError as error:
            raise typer.BadParameter(str(error), ctx=ctx) from error
        return super().parse_args(ctx, args)

    def format_help(self, ctx: typer.Context, formatter: Any) -> None:  # type: ignore[override]
        with text_may_go_unread():
            if not _print_stacked(self, ctx):
                super().format_help(ctx, formatter)


def refuse_empty(arguments: Sequence[str]) -> None:
    """Raises UsageError for an argument without a character. As a path it would mean the working folder, which is never what a
    script with a variable that is not set was to restore, or to write into."""
    for before, argument in zip(["", *arguments], arguments, strict=False):
        if before in _MAY_BE_EMPTY:
            continue
        if argument == "" or (argument.startswith("--") and argument.endswith("=")):
            where = argument.rstrip("=") or before
            after = f" (at {where})" if where.startswith("-") else ""
            raise UsageError(
                f"An argument is empty{after}; is a variable of the script not set? The working folder is called . here."
            )


def _print_stacked(command: TyperCommand | TyperGroup, context: typer.Context) -> bool:
    """Prints the help for a narrow terminal; False, and nothing is printed, where the table has room."""
    from rich.console import Console

    console = Console(highlight=False)
    if console.width >= TABLE_WIDTH:
        return False
    console.print(command.get_usage(context), markup=False, style="bold")
    for paragraph in _paragraphs(command.help):
        console.print("\n" + paragraph)
    for title, rows in _parameters(command, context).items():
        console.print(f"\n{title}", style="bold")
        for name, text in rows:
            _print_row(console, name, text)
    if isinstance(command, TyperGroup):
        _print_commands(console, command, context)
    return True


def _parameters(command: TyperCommand | TyperGroup, context: typer.Context) -> dict[str, list[tuple[str, str]]]:
    """Title -> rows of (name, what it does), under the titles and in the order of Typer's table; hidden ones are left out."""
    sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
    for parameter in command.get_params(context):
        row = parameter.get_help_record(context)
        usual = "Arguments" if parameter.param_type_name == "argument" else "Options"
        if row is not None:
            sections.setdefault(getattr(parameter, "rich_help_panel", None) or usual, []).append(row)
    return {title: rows for title, rows in sections.items() if rows}


def _print_row(console: Console, name: str, text: str) -> None:
    from rich.padding import Padding
    from rich.text import Text

    console.print(Padding(Text(name, style="cyan"), (0, 0, 0, _NAME_INDENT)))
    if text:
        console.print(Padding(Text(text), (0, 0, 0, _TEXT_INDENT)))


def _print_commands(console: Console, group: TyperGroup, context: typer.Context) -> None:
    """Their names are short enough to stand beside what they do."""
    from rich.padding import Padding
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    table.add_column(style="cyan", no_wrap=True)
    table.add_column()
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is not None and not command.hidden:
            table.add_row(name, _paragraphs(command.help)[0])
    console.print("\nCommands", style="bold")
    console.print(Padding(table, (0, 0, 0, _NAME_INDENT)))


def _paragraphs(text: str | None) -> Sequence[str]:
    """The paragraphs of a docstring, each as one line: the terminal breaks them. Rich's markup, as Typer takes it."""
    return [" ".join(part.split()) for part in inspect.cleandoc(text or "").split("\n\n")]
