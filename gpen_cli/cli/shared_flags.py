"""From the shared flags to a command's parameters, as Typer wants them, and to the options of a run."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection
from dataclasses import fields
from pathlib import Path
from typing import Any, get_type_hints

from gpen_cli.cli.flags import SharedFlags
from gpen_cli.errors import UsageError
from gpen_cli.options import (
    ComposeOptions,
    FaceOptions,
    NetOptions,
    Options,
    ReadOptions,
    RunOptions,
    WriteOptions,
    parse_number,
)


def with_shared_flags(command: Callable[..., None], *, only: Collection[str] | None = None) -> Callable[..., None]:
    """Gives a command that takes ``shared: SharedFlags`` one parameter for each of its fields, as Typer wants them.

    only: the fields that the command has a use for; the others keep their defaults.
    """
    hints = get_type_hints(SharedFlags, include_extras=True)
    shared = [
        inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=hints[field.name]
        )
        for field in fields(SharedFlags)
        if only is None or field.name in only
    ]
    own_hints = get_type_hints(command, include_extras=True)
    own = [
        parameter.replace(annotation=own_hints[name], kind=inspect.Parameter.KEYWORD_ONLY)
        for name, parameter in inspect.signature(command).parameters.items()
        if name != "shared"
    ]

    @functools.wraps(command)
    def wrapper(**values: Any) -> None:
        flags = SharedFlags(**{parameter.name: values.pop(parameter.name) for parameter in shared})
        command(**values, shared=flags)

    wrapper.__signature__ = inspect.Signature([*own, *shared])  # type: ignore[attr-defined]
    wrapper.__annotations__ = {parameter.name: parameter.annotation for parameter in (*own, *shared)}
    return wrapper


def parse_upscale(text: str) -> float | None:
    """``auto`` -> None, a number -> itself. Raises UsageError."""
    if text.lower() == "auto":
        return None
    try:
        return parse_number(text)
    except ValueError:
        raise UsageError(f"--upscale {text!r} is no number; give auto or a number from 1 to 4.") from None


def build_options(
    flags: SharedFlags,
    *,
    debug_mask: Path | None = None,
    channel_order: str = "rgb",
    in_place: bool = False,
    leave_results: bool = False,
) -> Options:
    """All options of a run, checked. Raises UsageError."""
    return Options(
        faces=FaceOptions(
            detector=flags.detector,
            det_threshold=flags.det_threshold,
            det_size=flags.det_size,
            min_face=flags.min_face,
            max_face=flags.max_face,
            max_faces=flags.max_faces,
            only_center=flags.only_center,
            only_largest=flags.only_largest,
            try_rotations=flags.try_rotations,
            template=flags.template,
        ),
        net=NetOptions(
            model=flags.model,
            weights=flags.weights,
            device=flags.device,
            precision=flags.precision,
            runtime=flags.runtime,
            compile=flags.compile,
            provider=flags.provider,
            batch_size=flags.batch_size,
            threads=flags.threads,
        ),
        compose=ComposeOptions(
            fidelity_weight=flags.fidelity_weight,
            mask=flags.mask,
            color_fix=flags.color_fix,
            sharpen=flags.sharpen,
            sharp_faces=flags.sharp_faces,
            guard=flags.guard,
            upscale=parse_upscale(flags.upscale),
        ),
        read=ReadOptions(
            max_pixels=flags.max_pixels,
            channel_order=channel_order,
            allow_private_urls=flags.allow_private_urls,
            allow_truncated=flags.allow_truncated,
        ),
        write=WriteOptions(
            format=flags.format,
            quality=flags.quality,
            strip_metadata=flags.strip_metadata,
            keep_mtime=flags.keep_mtime,
        ),
        run=RunOptions(
            aligned=flags.aligned,
            no_face=flags.no_face,
            overwrite=flags.overwrite,
            skip_existing=flags.skip_existing,
            workers=flags.workers,
            compare=flags.compare,
            save_faces=flags.save_faces,
            debug_mask=debug_mask,
            dry_run=flags.dry_run,
            in_place=in_place,
            leave_results=leave_results,
        ),
    )
