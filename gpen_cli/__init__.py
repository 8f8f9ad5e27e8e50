"""gpen: restores the faces in blurred, small, scanned or badly compressed portraits.

``from gpen_cli import Restorer, Options``; names are loaded on first use, so that ``gpen --help`` imports nothing heavy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpen_cli.options import Options
    from gpen_cli.restorer import Restored, Restorer

__version__ = "0.1.0"

_HOMES = {"Restorer": "gpen_cli.restorer", "Restored": "gpen_cli.restorer", "Options": "gpen_cli.options"}

__all__ = ["Options", "Restored", "Restorer", "__version__"]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
