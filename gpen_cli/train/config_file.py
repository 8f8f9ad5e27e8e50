"""Settings as TOML: read with every key and type checked, written back as what a checkpoint remembers."""

from __future__ import annotations

import dataclasses
import json
import sys
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from gpen_cli.errors import UsageError
from gpen_cli.paths import exists
from gpen_cli.train.config import TrainConfig

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Record = TypeVar("Record")

CONFIGS = Path(__file__).parent / "configs"
"""The settings of the shipped nets; ``--config NAME`` finds them without a path."""


def read_config(path: Path) -> TrainConfig:
    """The settings in a TOML file, or of a shipped net by its name. Relative paths in it start at the working folder.

    Raises UsageError: not there, no TOML, an unknown key, a value of another kind or out of range.
    """
    shipped = CONFIGS / f"{path.name}.toml"
    source = shipped if not exists(path) and path.name == str(path) and exists(shipped) else path
    try:
        content = tomllib.loads(source.read_text(encoding="utf-8"))
    except OSError as error:
        names = ", ".join(sorted(p.stem for p in CONFIGS.glob("*.toml")))
        raise UsageError(
            f"--config {path} cannot be read ({error.strerror or error}); name a TOML file, or one of: {names}."
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"--config {path} is no TOML file: {error}.") from error
    return from_mapping(content, str(path))


def from_mapping(content: Mapping[str, Any], source: str) -> TrainConfig:
    """Nested tables -> settings. Raises UsageError naming ``source`` and the key."""
    return _record(TrainConfig, content, source, "")


def as_mapping(config: TrainConfig) -> dict[str, Any]:
    """Nested plain values (paths as text), which ``from_mapping`` turns back into the same settings."""
    plain: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(config), default=str))
    return _without_none(plain)


def _without_none(table: dict[str, Any]) -> dict[str, Any]:
    return {k: _without_none(v) if isinstance(v, dict) else v for k, v in table.items() if v is not None}


def _record(kind: type[Record], content: Any, source: str, place: str) -> Record:
    if not isinstance(content, Mapping):
        raise UsageError(f"{source}: [{place}] must be a table of settings.")
    hints = typing.get_type_hints(kind)
    unknown = sorted(set(content) - set(hints))
    if unknown:
        raise UsageError(
            f"{source}: {place and place + '.'}{unknown[0]} is no setting; there are: {', '.join(sorted(hints))}."
        )
    values = {
        name: _value(hints[name], value, source, f"{place}.{name}" if place else name)
        for name, value in content.items()
    }
    return kind(**values)


def _value(hint: Any, value: Any, source: str, place: str) -> Any:
    """``value`` as the field's type. Raises UsageError."""
    if dataclasses.is_dataclass(hint):
        return _record(typing.cast("type[Any]", hint), value, source, place)
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):  # X | None; TOML has no None
        return _value(next(a for a in arguments if a is not type(None)), value, source, place)
    if origin is tuple:
        kinds = arguments if Ellipsis not in arguments else (arguments[0],) * len(value)
        if isinstance(value, list) and len(value) == len(kinds):
            return tuple(_value(k, v, source, place) for k, v in zip(kinds, value, strict=True))
        raise UsageError(f"{source}: {place} = {value!r} must be a list of {len(kinds)} values.")
    if hint is Path and isinstance(value, str):
        return Path(value).expanduser()
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, hint) and not (hint is int and isinstance(value, bool)):
        return value
    raise UsageError(f"{source}: {place} = {value!r} must be a {hint.__name__}.")
