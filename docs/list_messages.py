"""Rewrites the list of every sentence in docs/errors.md from the sources: python docs/list_messages.py [--check]

Each error of gpen is raised with its sentence where it is born, so the sources are the list. ``…`` stands for what is filled in.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from gpen_cli import errors

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "errors.md"
BEGIN = "<!-- every sentence: made by python docs/list_messages.py -->\n"
OWN_CLASSES = {
    "CutOffError": "PhotoError",
    "NetMemoryError": "PhotoError",
    "TooManyPixelsError": "PhotoError",
    "_CannotMakeError": "WeightsError",
}
"""Kinds of the classes in errors.py that are born beside their use."""
TITLES = {
    "PhotoError": "a photo (3; 7 among several)",
    "UsageError": "the command (2)",
    "WeightsError": "weights (4)",
    "DeviceError": "device, runtime, packages (5)",
    "OutputError": "where results go (6)",
}


def sentences() -> dict[str, set[tuple[str, str]]]:
    """Class name -> {(sentence, module)}, for every error raised with a sentence of its own."""
    found: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for path in sorted((ROOT / "gpen_cli").rglob("*.py")):
        module = path.relative_to(ROOT / "gpen_cli").as_posix()
        for name, call in _raised(ast.parse(path.read_text(encoding="utf-8"))):
            kind = OWN_CLASSES.get(name, name)
            if kind in TITLES and call.args and (text := _text(call.args[0])):
                found[kind].add((" ".join(text.split()), module))
    return found


def _raised(tree: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    """(class, call) of ``raise Class(…)`` and of ``super().__init__(…)`` in a class of OWN_CLASSES."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            yield getattr(node.exc.func, "id", getattr(node.exc.func, "attr", "")), node.exc
        if isinstance(node, ast.ClassDef) and node.name in OWN_CLASSES:
            for call in ast.walk(node):
                if isinstance(call, ast.Call) and getattr(call.func, "attr", "") == "__init__":
                    yield node.name, call


def _text(node: ast.expr) -> str | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values)
    return None


def page(before: str) -> str:
    """The page with a fresh list behind BEGIN."""
    lines = []
    found = sentences()
    for kind, title in TITLES.items():
        assert inspect.isclass(getattr(errors, kind))
        lines += [f"\n### {title[0].upper()}{title[1:]}\n", "| sentence | from |", "|---|---|"]
        lines += [f"| {text.replace('|', chr(92) + '|')} | `{module}` |" for text, module in sorted(found[kind])]
    return before[: before.index(BEGIN) + len(BEGIN)] + "\n".join(lines) + "\n"


def main() -> int:
    before = PAGE.read_text(encoding="utf-8")
    after = page(before)
    if "--check" in sys.argv:
        return int(before != after)
    PAGE.write_text(after, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
