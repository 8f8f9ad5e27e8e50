"""In the child: reads damaged files one after the other and says at once what each was; a hang ends the process."""

from __future__ import annotations

import faulthandler
import sys
import time
import warnings
from pathlib import Path

import numpy as np

from gpen_cli.data import Photo
from gpen_cli.errors import PhotoError
from gpen_cli.options import ReadOptions
from gpen_cli.photos.read import read_photo

HANG_SECONDS = 5.0


def read_all(paths: list[str]) -> None:
    """For each file a line when it begins and one when it ends, ``<seconds> <answer>``, on stdout.

    After HANG_SECONDS with one file a watchdog outside Python's own lock writes where it hangs to stderr and ends the process.
    """
    warnings.simplefilter("ignore")  # Pillow's, about what it repaired
    for path in map(Path, paths):
        print(f"begin {path.name}", flush=True)  # noqa: T201
        data = path.read_bytes()
        faulthandler.dump_traceback_later(HANG_SECONDS, exit=True, file=sys.stderr)
        begin = time.monotonic()
        answer = answer_to(data, path.name)
        seconds = time.monotonic() - begin
        faulthandler.cancel_dump_traceback_later()
        print(f"{seconds:.3f} {answer}", flush=True)  # noqa: T201
    sys.exit(0)


def answer_to(data: bytes, name: str) -> str:
    """The strict reader's answer, unless only the one of --allow-truncated is wrong."""
    strict, lenient = (reading(data, name, ReadOptions(allow_truncated=allow)) for allow in (False, True))
    if strict == "photo" and lenient == "refused":
        return "wrong: --allow-truncated refuses what is read without it"
    return lenient if lenient.startswith("wrong") and not strict.startswith("wrong") else strict


def reading(data: bytes, name: str, options: ReadOptions) -> str:
    """``photo``, ``refused`` or, for whatever else comes, ``wrong`` with what it is."""
    try:
        photo = read_photo(data, name, options)
    except PhotoError as error:
        sentence = str(error)
        whole = name in sentence and "\n" not in sentence and sentence.endswith(".") and len(sentence) < 300
        return "refused" if whole else f"wrong: no sentence: {sentence!r}"
    except BaseException as error:  # noqa: BLE001  that is the question
        return f"wrong: {type(error).__name__}: {error!r}"
    return "photo" if is_sound(photo) else "wrong: shapes or types of the photo do not fit"


def is_sound(photo: Photo) -> bool:
    width, height = photo.size
    return (
        photo.pixels.shape == photo.shown.shape == (height, width, 3)
        and photo.pixels.dtype in (np.uint8, np.uint16)
        and photo.shown.dtype == np.uint8
        and (photo.alpha is None or photo.alpha.shape == (height, width))
        and bool(np.isfinite(photo.shown).all())
    )
