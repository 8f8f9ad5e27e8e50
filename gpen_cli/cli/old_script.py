"""The old script's flags, mapped onto the same run as ``gpen enhance`` and ``gpen batch``.

``python inference_gpen.py`` without arguments restores an example. New work is better served by ``gpen``; this stays so that
scripts written for the old flags go on working.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import typer

from gpen_cli import log
from gpen_cli.cli.exits import exit_codes, text_may_go_unread
from gpen_cli.cli.flags import SharedFlags
from gpen_cli.cli.help import refuse_empty
from gpen_cli.cli.shared_flags import build_options
from gpen_cli.data import Job
from gpen_cli.errors import UsageError, WeightsError
from gpen_cli.paths import is_dir, same_file

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "astronaut.jpg"
DEFAULT_LOG = "inference.log"
SIZES = (256, 512, 1024)
OUTPUT_PREFIX = "output_"


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Restore faces with GPEN (the old flags; see also: gpen --help).",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("-i", "--input", help="a photo, a folder or a URL; without it an example is restored")
    add("-o", "--output", help="the result's file (or folder, for a folder); output_<name>.png if not said")
    add("--batch_size", type=int, default=4, help="faces in one forward pass")
    add("--size", type=int, choices=SIZES, help="the net of this crop size; if not said, the nets that are here")
    add("--face_size", type=int, default=16, help="smallest face, longer side of its box in px (gpen's --min-face)")
    add("--fidelity_weight", type=float, default=1.0, help="strength, 0 to 2; larger reconstructs more")
    add("--upscale", default="auto", help="auto, or a number from 1 to 4")
    add("--fp16", action="store_true", help="run the net in fp16")
    add("--compile", action="store_true", help="compile the net first (about a minute, then faster for many faces)")
    add("--channel", choices=("auto", "rgb", "bgr"), default="auto", help="bgr swaps red and blue on reading")
    add("--auto-name", action="store_true", help="<name>_enhanced.png beside the photo")
    add("--allow-truncated", action="store_true", help="restore what is there of a file that is cut off")
    add("--log-level", choices=tuple(log.LEVELS), default="info")
    add("--log-file", default=DEFAULT_LOG, help="the log is appended to it; none for no file")
    try:
        return parser.parse_args(arguments)
    finally:
        with text_may_go_unread():  # the help, which argparse leaves to the end of the process
            pass


def flags_of(given: argparse.Namespace) -> SharedFlags:
    """The old flags under their new names."""
    return replace(
        SharedFlags(),
        batch_size=given.batch_size,
        min_face=given.face_size,
        fidelity_weight=given.fidelity_weight,
        upscale=given.upscale,
        precision="fp16" if given.fp16 else "auto",
        runtime="compiled" if given.compile else "auto",
        model=_net_of_size(given.size) if given.size else "auto",
        overwrite=False,
        allow_truncated=given.allow_truncated,
    )


def _net_of_size(size: int) -> str:
    """Name of a net of this crop size that is here. Raises WeightsError with where to get one."""
    from gpen_cli.weights.find import find_model, missing_sentence
    from gpen_cli.weights.table import MODELS

    fitting = [model for model in MODELS.values() if model.kind == "restorer" and model.crop_size == size]
    for model in reversed(fitting):  # the public net, if the user has it, before the embedded one
        if find_model(model) is not None:
            return model.name
    raise WeightsError(f"--size {size}: {missing_sentence(fitting[-1])}")


def plan(given: argparse.Namespace) -> tuple[list[Job], tuple[str, ...]]:
    """The jobs, one photo's or those of every photo of a folder, and what of the folder could not be seen. Raises UsageError."""
    from gpen_cli.naming import plan_batch, plan_enhance
    from gpen_cli.sources import find_photos, is_url, stem_of

    source = given.input or str(EXAMPLE)
    if not is_url(source) and is_dir(Path(source)):
        folder = Path(source)
        output = Path(given.output) if given.output else Path(f"{OUTPUT_PREFIX}{folder.resolve().name}")
        if same_file(folder, output):
            raise UsageError(f"-o {output} is the folder of the photos itself; name another one.")
        found = find_photos(folder, leave_out=output)
        if not found.photos:
            raise UsageError(f"No photo found in {folder} ({found.ignored} files ignored); check the folder.")
        return plan_batch(found.photos, folder, output, suffix="_enhanced", format_name=None), found.unseen
    if given.auto_name and given.output:
        raise UsageError("--output names the result and --auto-name asks for a name; give one of them.")
    if given.auto_name:
        return plan_enhance([source], output=None, output_dir=None, suffix="_enhanced", format_name=None), ()
    output = Path(given.output) if given.output else Path(f"{OUTPUT_PREFIX}{stem_of(source)}.png")
    if is_dir(output):
        output = output / f"{OUTPUT_PREFIX}{stem_of(source)}.png"
    return plan_enhance([source], output=output, output_dir=None, suffix="", format_name=None), ()


def _set_up_log(given: argparse.Namespace) -> None:
    """The old script always wrote a log here; where that cannot be, the run goes on without, unless the file was asked for."""
    file = None if given.log_file == "none" else Path(given.log_file)
    try:
        log.set_up(given.log_level, file)
    except UsageError:
        if given.log_file != DEFAULT_LOG:
            raise
        log.set_up(given.log_level, None)


def main(arguments: Sequence[str]) -> int:
    given = parse(arguments)
    try:
        with exit_codes():
            refuse_empty(arguments)
            _set_up_log(given)
            options = build_options(flags_of(given), channel_order="bgr" if given.channel == "bgr" else "rgb")
            jobs, unseen = plan(given)
            from gpen_cli.cli.files import make_folders, tell_unseen, whole_code
            from gpen_cli.cli.run import RunFlags, run_jobs

            make_folders(jobs)
            several = len(jobs) > 1
            tell_unseen(unseen)
            return whole_code(run_jobs(jobs, options, RunFlags(progress=several, summary=several)), unseen)
    except typer.Exit as exit_:
        return exit_.exit_code
    return 0
