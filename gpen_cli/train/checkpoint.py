"""The whole state of a training in one file, replaced in one step: killed at any moment, the last one is whole."""

from __future__ import annotations

import os
import pickle
import zipfile
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import nn

from gpen_cli.errors import OutputError, WeightsError

FORMAT = 1
NAME = "checkpoint.pt"

Stateful: TypeAlias = "nn.Module | torch.optim.Optimizer"
State = dict[str, Any]


def save(folder: Path, step: int, config: State, parts: dict[str, Stateful]) -> Path:
    """Writes ``folder/checkpoint.pt``. config: ``config_file.as_mapping``. Raises OutputError; the last one then stays."""
    path = folder / NAME
    temporary = path.with_name(f".{NAME}.{os.getpid()}.tmp")
    content = {
        "format": FORMAT,
        "step": step,
        "config": config,
        "random": torch.get_rng_state(),
        **{name: part.state_dict() for name, part in parts.items()},
    }
    try:
        with temporary.open("wb") as file:
            torch.save(content, file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except (OSError, RuntimeError) as error:  # torch reports a full disk as a RuntimeError
        temporary.unlink(missing_ok=True)
        raise OutputError(f"The checkpoint {path} cannot be written ({error}); free space, then --resume.") from error
    return path


def read(folder: Path) -> State:
    """The content of ``folder/checkpoint.pt``, on the CPU. Raises WeightsError."""
    path = folder / NAME
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError as error:
        raise WeightsError(
            f"There is no checkpoint {path} to resume; leave out --resume, or name its folder with --output."
        ) from error
    except (OSError, RuntimeError, EOFError, pickle.UnpicklingError, zipfile.BadZipFile, ValueError) as error:
        raise WeightsError(
            f"The checkpoint {path} is damaged ({_first_line(error)}); start without --resume."
        ) from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise WeightsError(f"{path} is no checkpoint of this version of gpen train; start without --resume.")
    return content


def restore(content: State, folder: Path, parts: dict[str, Stateful]) -> int:
    """Puts a checkpoint's state into ``parts``; returns the number of steps it had done. Raises WeightsError."""
    try:
        for name, part in parts.items():
            part.load_state_dict(content[name])
    except (KeyError, RuntimeError, ValueError) as error:
        raise WeightsError(
            f"The checkpoint in {folder} is of another training ({_first_line(error)}); "
            f"resume with the settings it was made with, or start in another --output."
        ) from error
    torch.set_rng_state(content["random"])
    return int(content["step"])


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
