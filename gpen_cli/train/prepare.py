"""Photos -> aligned crops to learn from, and an index of them. What would teach the net something wrong is left out.

The same detector, template and warp as when a photo is restored: the net meets in training what it will meet in use.
"""

from __future__ import annotations

import hashlib
import io
import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath

from PIL import Image

from gpen_cli.data import UInt8Image
from gpen_cli.detect import make_detector
from gpen_cli.detect.protocol import Detector
from gpen_cli.detect.search import find_faces
from gpen_cli.errors import PhotoError, UsageError
from gpen_cli.options import FaceOptions
from gpen_cli.photos.metadata import is_our_output
from gpen_cli.photos.opening import CutOffError
from gpen_cli.photos.read import read_photo
from gpen_cli.photos.write import make_folder, write_atomically
from gpen_cli.sources import find_photos, read_source, require_photo_folder
from gpen_cli.train.duplicates import SeenFaces, face_mark
from gpen_cli.train.index import INDEX_NAME, files_of_own_index, write_index
from gpen_cli.train.prepared_face import PreparedFace, PrepareOptions, prepared_face
from gpen_cli.weights.find import find_model
from gpen_cli.weights.table import MODELS

log = logging.getLogger(__name__)

JPEG_QUALITY = 95
DUPLICATE = "seen already: the same photo again, in another size or compression"
_NAME_DIGITS = 12


@dataclass(frozen=True)
class PrepareReport:
    """What came of it. kept: size -> crops; left_out: reason -> faces; unreadable: (photo, sentence).

    own_results: photos that gpen restored; a net must not learn from what a net drew.
    """

    photos: int
    faces: int
    kept: Mapping[int, int]
    left_out: Mapping[str, int]
    no_face: int
    own_results: int
    unreadable: tuple[tuple[str, str], ...]
    index: Path

    def lines(self) -> list[str]:
        """For the terminal, one sentence each."""
        sizes = ", ".join(f"{count} of {size} px" for size, count in self.kept.items()) or "none"
        lines = [f"{self.photos} photos, {self.faces} faces; crops kept: {sizes}."]
        lines += [f"Left out: {count} {reason}." for reason, count in self.left_out.items()]
        if self.no_face:
            lines.append(f"Photos without a face: {self.no_face}.")
        if self.own_results:
            lines.append(f"Photos that are results of gpen, which no net should learn from: {self.own_results}.")
        lines += [f"Not read: {sentence}" for _, sentence in self.unreadable]
        if not self.kept:
            lines.append(self._why_none())
        return lines

    def _why_none(self) -> str:
        if not self.left_out:
            return "No crop was kept, because no photo that can be learnt from shows a face; name a folder of other photos."
        most = max(self.left_out, key=lambda reason: self.left_out[reason])
        return (
            f"No crop was kept, most often because faces are {most}; add photos with large, sharp, upright faces, or loosen "
            "the limit (--size, --min-sharpness, --max-roll, --max-yaw, --max-outside; docs/training_data.md)."
        )


def prepare(
    photos: Path,
    out: Path,
    options: PrepareOptions,
    *,
    detector: Detector | None = None,
    on_photo: Callable[[int, int], None] | None = None,
) -> PrepareReport:
    """Files the faces of every photo under ``photos`` as ``out/SIZE/….jpg`` and writes ``out/index.csv``.

    Photos are only read. Crops of an earlier run into ``out`` that are not made any more are removed; nothing else is.
    detector: None for the best that is here. on_photo: told (how many are done, of how many). Raises UsageError: no folder,
    no photos, crops that would lie among them, a foreign index in ``out``; OutputError: ``out`` cannot be written;
    WeightsError, DeviceError.
    """
    require_photo_folder(photos)
    _require_apart(photos, [out, *(out / str(size) for size in options.classes)])
    earlier = files_of_own_index(out / INDEX_NAME)
    found = find_photos(photos, leave_out=out)
    names = found.photos
    if not names:
        raise UsageError(f"There are no photos under {photos}.")
    make_folder(out)
    run = _Run(photos, out, options, detector or best_detector(options.faces), found.unseen)
    for done, name in enumerate(names, start=1):
        run.take(name)
        if on_photo is not None:
            on_photo(done, len(names))
    return run.finish(len(names), earlier)


def _require_apart(photos: Path, places: Sequence[Path]) -> None:
    """Raises UsageError for crops below ``photos``: unlike results of ``gpen batch`` they carry no mark of gpen."""
    for place in places:
        if place.resolve().is_relative_to(photos.resolve()):
            raise UsageError(
                f"Crops in {place} would lie among the photos of {photos}, and a later run would take them for photos; "
                "name a folder outside it."
            )


def best_detector(options: FaceOptions) -> Detector:
    """The detector that ``options`` names, on the CPU; ``auto`` as in ``gpen enhance``. Raises WeightsError, DeviceError."""
    r50 = None if options.detector == "retinaface-mobile" else find_model(MODELS["retinaface-r50"])
    return make_detector(options, r50_weights=r50.path if r50 else None, device="cpu", threads=1)


@dataclass(frozen=True)
class _Filed:
    """A crop on disk. file: relative to the output folder; side: pixels of the photo it shows; row: of the index."""

    file: str
    side: float
    size: int
    row: Mapping[str, str]


class _Run:
    """What one run has kept and left out so far."""

    def __init__(
        self, photos: Path, out: Path, options: PrepareOptions, detector: Detector, unseen: Sequence[str]
    ) -> None:
        self._photos = photos
        self._out = out
        self._options = options
        self._detector = detector
        self._filed: list[_Filed] = []  # numbered as in _seen
        self._seen = SeenFaces()
        self._left_out: Counter[str] = Counter()
        self._unreadable = [(str(photos), sentence) for sentence in unseen]
        self._faces = self._no_face = self._own_results = 0

    def take(self, name: Path) -> None:
        """Files the faces of one photo, its path below the folder; counts what cannot be."""
        try:
            data = read_source(str(self._photos / name), str(name))
            if is_our_output(data):
                self._own_results += 1
            else:
                self._take_faces(name, data)
        except PhotoError as error:
            sentence = error.plain if isinstance(error, CutOffError) else str(error)
            log.warning("%s", sentence)
            self._unreadable.append((str(name), sentence))

    def _take_faces(self, name: Path, data: bytes) -> None:
        shown = read_photo(data, str(name), self._options.read).shown
        faces = find_faces(self._detector, shown, self._options.faces).faces
        self._faces += len(faces)
        self._no_face += not faces
        digest = hashlib.sha256(data).hexdigest()[:_NAME_DIGITS]  # a name that more photos do not shift
        for number, face in enumerate(faces, start=1):
            prepared = prepared_face(shown, face, self._options)
            if isinstance(prepared, str):
                self._left_out[prepared] += 1
            else:
                self._take_face(name, f"{digest}_{number}", prepared)

    def _take_face(self, photo: Path, stem: str, face: PreparedFace) -> None:
        """Files the crop, unless a copy at least as large was filed; a smaller copy makes room for it."""
        mark = face_mark(face.pixels)
        twin = self._seen.find(mark, self._options.min_likeness)
        if twin is not None:
            self._left_out[DUPLICATE] += 1
            if self._filed[twin].side >= face.side:
                return
            (self._out / self._filed[twin].file).unlink(missing_ok=True)
            self._filed[twin] = self._write(photo, stem, face)
        else:
            self._filed.append(self._write(photo, stem, face))
            self._seen.add(mark)

    def _write(self, photo: Path, stem: str, face: PreparedFace) -> _Filed:
        options, size = self._options, face.pixels.shape[0]
        file = f"{size}/{stem}.{options.format}"
        make_folder(self._out / str(size))
        write_atomically(self._out / file, _encoded(face.pixels, options.format))
        row = {
            **face.measures,
            "file": file,
            "source": options.source or (photo.parts[0] if len(photo.parts) > 1 else self._photos.resolve().name),
            "split": options.split,
            "licence": options.licence,
            "confidence": options.confidence,
            "photo": photo.as_posix(),
        }
        return _Filed(file, face.side, size, row)

    def finish(self, photos: int, earlier: Sequence[str]) -> PrepareReport:
        """Writes the index, then removes what the index before it listed and this one does not."""
        index = self._out / INDEX_NAME
        write_index(index, [filed.row for filed in self._filed])
        for file in set(earlier) - {filed.file for filed in self._filed}:
            if _is_ours(PurePath(file)):
                (self._out / file).unlink(missing_ok=True)
        sizes = Counter(filed.size for filed in self._filed)
        return PrepareReport(
            photos,
            self._faces,
            dict(sorted(sizes.items(), reverse=True)),
            dict(self._left_out.most_common()),
            self._no_face,
            self._own_results,
            tuple(self._unreadable),
            index,
        )


def _is_ours(file: PurePath) -> bool:
    """Whether a row of an index names a file where crops are filed: SIZE/NAME, nothing that leads elsewhere."""
    return len(file.parts) == 2 and file.parts[0].isdecimal() and file.suffix in (".jpg", ".png")


def _encoded(pixels: UInt8Image, kind: str) -> bytes:
    stream = io.BytesIO()
    if kind == "png":
        Image.fromarray(pixels).save(stream, "PNG", compress_level=3)
    else:
        Image.fromarray(pixels).save(stream, "JPEG", quality=JPEG_QUALITY, subsampling="4:4:4")
    return stream.getvalue()
