"""The flags that ``enhance`` and ``batch`` share, declared once."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from gpen_cli.options import (
    COLOR_FIXES,
    COMPILE,
    DETECTORS,
    FORMATS,
    GUARD,
    MASKS,
    NO_FACE,
    PRECISIONS,
    PROVIDER_CHOICES,
    RUNTIMES,
    SHARP_FACES,
    TEMPLATES,
)  # fmt: skip

_RESULT = "Result"
_LOOK = "How the faces look"
_FACES = "Which faces"
_NET = "Net and machine"
_OUTPUT = "What is written beside the result"
_LOG = "Log"


def _choice(names: tuple[str, ...]) -> str:
    return "|".join(names)


@dataclass(frozen=True)
class SharedFlags:
    """One field a flag; its annotation is what ``--help`` shows."""

    fidelity_weight: Annotated[
        float,
        typer.Option(
            "--fidelity-weight", "-w", metavar="0..2", rich_help_panel=_LOOK,
            help="Strength: 0 leaves the photo's own face, 1 is the net's face, above 1 draws stronger detail. "
            "Larger reconstructs more (other tools count the other way); 0.7 looks natural.",
        ),
    ] = 1.0  # fmt: skip
    upscale: Annotated[
        str,
        typer.Option(
            "--upscale", "-s", metavar="auto|1..4", rich_help_panel=_RESULT,
            help="Enlarge the whole picture. auto: 2 when its long side is at most 2000 px, else 1 (with --aligned: 1).",
        ),
    ] = "auto"  # fmt: skip
    format: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar=_choice(FORMATS),
            rich_help_panel=_RESULT,
            help="File format; png if not said. same: the photo's own.",
        ),
    ] = None
    quality: Annotated[
        int | None,
        typer.Option(
            "--quality", metavar="1..100", rich_help_panel=_RESULT,
            help="Quality of JPEG and WebP (95; a JPEG that stays one: its own where that is better).",
        ),
    ] = None  # fmt: skip
    strip_metadata: Annotated[
        bool,
        typer.Option(
            "--strip-metadata", rich_help_panel=_RESULT,
            help="Leave out date, camera, place, everything but the colour profile (gpen then cannot know its own results).",
        ),
    ] = False  # fmt: skip
    keep_mtime: Annotated[
        bool, typer.Option("--keep-mtime", rich_help_panel=_RESULT, help="Give results their photos' file times.")
    ] = False
    suffix: Annotated[
        str, typer.Option("--suffix", rich_help_panel=_RESULT, help="What auto-naming adds to the photo's name.")
    ] = "_enhanced"
    overwrite: Annotated[
        bool,
        typer.Option("--overwrite", rich_help_panel=_RESULT, help="Replace existing files that gpen did not make."),
    ] = False
    skip_existing: Annotated[
        bool, typer.Option("--skip-existing", rich_help_panel=_RESULT, help="Leave out photos whose result exists.")
    ] = False
    no_face: Annotated[
        str,
        typer.Option(
            "--no-face", metavar=_choice(NO_FACE), rich_help_panel=_RESULT,
            help="A photo without a face: write it all the same (with a warning), leave it out, or count it as failed.",
        ),
    ] = "copy"  # fmt: skip
    aligned: Annotated[
        bool,
        typer.Option(
            "--aligned", rich_help_panel=_FACES, help="Each input is one aligned face crop; look for no faces."
        ),
    ] = False
    mask: Annotated[
        str,
        typer.Option(
            "--mask", metavar=_choice(MASKS), rich_help_panel=_LOOK,
            help="Which part of the crop is replaced: all of it, fading out; the parsed face; or face and hair. "
            "auto: parse when ParseNet's weights are there.",
        ),
    ] = "auto"  # fmt: skip
    color_fix: Annotated[
        str | None,
        typer.Option(
            "--color-fix", metavar=_choice(COLOR_FIXES), rich_help_panel=_LOOK,
            help="lab keeps the photo's own skin tone (default); hues only lets no new hues in; tint only keeps gray and sepia "
            "pictures so (default with --aligned); none lets the net's colours through, for yellowed scans.",
        ),
    ] = None  # fmt: skip
    sharpen: Annotated[
        float, typer.Option("--sharpen", metavar="0..1", rich_help_panel=_LOOK, help="Sharpen restored faces.")
    ] = 0.0
    sharp_faces: Annotated[
        str,
        typer.Option(
            "--sharp-faces", metavar=_choice(SHARP_FACES), rich_help_panel=_LOOK,
            help="A face that is larger and sharper in the photo than the net's crop: leave it as it is, or restore it "
            "all the same.",
        ),
    ] = "keep"  # fmt: skip
    guard: Annotated[
        str | None,
        typer.Option(
            "--guard", metavar=_choice(GUARD), rich_help_panel=_LOOK,
            help="Blend a restored face back, or leave the photo's own, when it no longer is the same person "
            "(default on; with --aligned off).",
        ),
    ] = None  # fmt: skip
    min_face: Annotated[
        int,
        typer.Option("--min-face", metavar="PX", rich_help_panel=_FACES, help="Smallest face, longer side of its box."),
    ] = 16
    max_face: Annotated[
        int | None, typer.Option("--max-face", metavar="PX", rich_help_panel=_FACES, help="Largest face.")
    ] = None
    max_faces: Annotated[
        int | None,
        typer.Option(
            "--max-faces", metavar="N", rich_help_panel=_FACES, help="At most N faces a photo, largest first."
        ),
    ] = None
    only_center: Annotated[
        bool, typer.Option("--only-center", rich_help_panel=_FACES, help="Only the face nearest to the middle.")
    ] = False
    only_largest: Annotated[
        bool, typer.Option("--only-largest", rich_help_panel=_FACES, help="Only the largest face.")
    ] = False
    try_rotations: Annotated[
        bool,
        typer.Option(
            "--try-rotations", rich_help_panel=_FACES, help="Look for lying faces when no upright one is found."
        ),
    ] = False
    det_threshold: Annotated[
        float,
        typer.Option(
            "--det-threshold", metavar="0.05..1", rich_help_panel=_FACES, help="How sure the detector has to be."
        ),
    ] = 0.9
    det_size: Annotated[
        int,
        typer.Option("--det-size", metavar="PX", rich_help_panel=_FACES, help="Size at which faces are looked for."),
    ] = 1600
    detector: Annotated[
        str,
        typer.Option(
            "--detector", metavar=_choice(DETECTORS), rich_help_panel=_FACES,
            help="auto takes RetinaFace-R50 when its weights are there.",
        ),
    ] = "auto"  # fmt: skip
    template: Annotated[
        str,
        typer.Option(
            "--template", metavar=_choice(TEMPLATES), rich_help_panel=_FACES,
            help="How a face lies in its crop: as GPEN was trained, or the tighter FFHQ crop.",
        ),
    ] = "gpen"  # fmt: skip
    model: Annotated[
        str,
        typer.Option(
            "--model", "-m", rich_help_panel=_NET,
            help="Net by name (gpen models list); auto decides per face among those that are here.",
        ),
    ] = "auto"  # fmt: skip
    weights: Annotated[
        Path | None,
        typer.Option("--weights", metavar="FILE", rich_help_panel=_NET, help="A GPEN weight file, or .onnx."),
    ] = None
    device: Annotated[
        str,
        typer.Option(
            "--device",
            metavar="auto|cpu|cuda[:N]|mps",
            rich_help_panel=_NET,
            help="Where the net runs; several GPUs: cuda:0,cuda:1 or cuda:all.",
        ),
    ] = "auto"
    precision: Annotated[
        str,
        typer.Option(
            "--precision", metavar=_choice(PRECISIONS), rich_help_panel=_NET,
            help="auto: bf16 where the hardware has it, fp16 on older GPUs, else fp32.",
        ),
    ] = "auto"  # fmt: skip
    runtime: Annotated[
        str,
        typer.Option(
            "--runtime", metavar=_choice(RUNTIMES), rich_help_panel=_NET,
            help="auto: a CUDA graph on NVIDIA GPUs, onnx for an .onnx file, else eager, or compiled where that pays. "
            "onnx needs no PyTorch (docs/deployment.md).",
        ),
    ] = "auto"  # fmt: skip
    compile: Annotated[
        str,
        typer.Option(
            "--compile", metavar=_choice(COMPILE), rich_help_panel=_NET,
            help="PyTorch's compiler: a minute once, then faster for good. auto: when the run is long enough to gain by it, or "
            "an earlier one has done it and ten faces or so are to come.",
        ),
    ] = "auto"  # fmt: skip
    provider: Annotated[
        str,
        typer.Option(
            "--provider", metavar=_choice(PROVIDER_CHOICES) + "|NAME", rich_help_panel=_NET,
            help="Where ONNX nets run; auto takes the first of tensorrt, cuda, cpu that works here.",
        ),
    ] = "auto"  # fmt: skip
    batch_size: Annotated[
        int,
        typer.Option(
            "--batch-size", "-b", metavar="N", rich_help_panel=_NET,
            help="Faces in one forward pass, gathered across photos (a CPU runs one at a time, which is fastest there).",
        ),
    ] = 4  # fmt: skip
    threads: Annotated[
        int | None, typer.Option("--threads", metavar="N", rich_help_panel=_NET, help="CPU threads of the net.")
    ] = None
    workers: Annotated[
        int | None,
        typer.Option("--workers", metavar="N", rich_help_panel=_NET, help="Photos read, and written, at a time."),
    ] = None
    allow_private_urls: Annotated[
        bool,
        typer.Option(
            "--allow-private-urls", rich_help_panel=_NET,
            help="Also fetch photos from this machine's own and private addresses.",
        ),
    ] = False  # fmt: skip
    allow_truncated: Annotated[
        bool,
        typer.Option(
            "--allow-truncated", rich_help_panel=_RESULT,
            help="Restore what is there of a file that is cut off, and say so, instead of refusing it.",
        ),
    ] = False  # fmt: skip
    max_pixels: Annotated[
        int, typer.Option("--max-pixels", metavar="N", rich_help_panel=_NET, help="Refuse larger photos.")
    ] = 300_000_000
    compare: Annotated[
        bool,
        typer.Option(
            "--compare", rich_help_panel=_OUTPUT, help="Also <name>_compare.png: original and result side by side."
        ),
    ] = False
    save_faces: Annotated[
        Path | None,
        typer.Option(
            "--save-faces", metavar="DIR", rich_help_panel=_OUTPUT, help="Also each face's crop, before and after."
        ),
    ] = None
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", rich_help_panel=_OUTPUT, help="Find faces and plan; write nothing but the report."),
    ] = False
    report: Annotated[
        Path | None,
        typer.Option(
            "--report", metavar="FILE.jsonl", rich_help_panel=_OUTPUT, help="One JSON line a photo (docs/report.md)."
        ),
    ] = None
    log_level: Annotated[
        str,
        typer.Option(
            "--log-level", metavar="auto|error|warning|info|debug", rich_help_panel=_LOG,
            help="auto: info for enhance, a summary for batch. debug adds the time of each stage.",
        ),
    ] = "auto"  # fmt: skip
    log_file: Annotated[
        Path | None,
        typer.Option("--log-file", metavar="FILE", rich_help_panel=_LOG, help="Append the log to a file."),
    ] = None
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", rich_help_panel=_LOG, help="Only errors; result paths still go to stdout.")
    ] = False
