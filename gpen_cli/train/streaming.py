"""Faces to learn from, out of a Hugging Face data set that is read as it comes: a name on the Hub, or a local folder (Parquet).

A stream knows no places, only what is next. So sample ``number`` is the ``number``-th usable picture of the shuffled stream, and
a resumed run passes over those it has had: nothing is decoded then but the headers, yet everything is read again.
"""

from __future__ import annotations

import io
import itertools
import logging
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from PIL import Image

from gpen_cli.device import has_package
from gpen_cli.errors import DeviceError, PhotoError, UsageError
from gpen_cli.train.config import DataConfig, DegradationConfig
from gpen_cli.train.crops import decode_rgb
from gpen_cli.train.jitter import make_sample
from gpen_cli.train.sample import Sample

log = logging.getLogger(__name__)

SHUFFLE_BUFFER = 1000
"""Pictures that wait, encoded, to be drawn from: about 0.1 GB of 512 px JPEGs. ``datasets``' own default."""
SPLIT = "train"


class _Picture(NamedTuple):
    """One row. encoded: the file's bytes; name: for messages."""

    encoded: bytes
    name: str


class Streamed:
    """``Samples`` out of a stream. Numbers that rise cost nothing; a smaller one than the last starts the stream anew."""

    def __init__(self, data: DataConfig, degradation: DegradationConfig, size: int, seed: int) -> None:
        """Raises DeviceError (``datasets`` is not installed), UsageError (no such data set, split or column)."""
        assert data.dataset is not None
        self._data = data
        self._degradation = degradation
        self._size = size
        self._seed = seed
        self._stream = _open_stream(data, seed)
        self._next = 0
        self._pictures: Iterator[_Picture] | None = None

    def __len__(self) -> int:
        """As the data set says of itself; 0: it does not."""
        splits = getattr(self._stream.info, "splits", None)
        return int(splits[SPLIT].num_examples or 0) if splits and SPLIT in splits else 0

    def sample(self, number: int) -> Sample:
        """See ``Samples``. Raises PhotoError as well when the stream breaks off (no network any more)."""
        picture = self._picture_at(number)
        return make_sample(
            decode_rgb(picture.encoded, picture.name),
            (0, 0, 0, 0),
            picture.name,
            degraded=None,
            data=self._data,
            degradation=self._degradation,
            size=self._size,
            seed=(self._seed, number),
        )

    def _picture_at(self, number: int) -> _Picture:
        if self._pictures is None or number < self._next:
            self._next, self._pictures = 0, self._from_start()
        try:
            picture = next(itertools.islice(self._pictures, number - self._next, None))
        except PhotoError:
            self._pictures = None  # it broke off: the next call starts anew
            raise
        self._next = number + 1
        return picture

    def _from_start(self) -> Iterator[_Picture]:
        """Every usable picture, epoch after epoch without end, each in an order of its own. Raises UsageError, PhotoError."""
        for epoch in itertools.count():
            self._stream.set_epoch(epoch)
            usable = passed = 0
            for picture in self._epoch(f"{self._data.dataset}, epoch {epoch}"):
                if picture is None:
                    passed += 1
                else:
                    usable += 1
                    yield picture
            if not usable:
                raise UsageError(
                    f"None of the {passed} pictures of {self._data.dataset} is square and at least {self._size} px wide: "
                    "choose a smaller --size, or make crops with gpen train prepare."
                )
            if epoch == 0 and passed:
                log.warning("%d of %d pictures are left out: not square, or too small.", passed, passed + usable)

    def _epoch(self, name: str) -> Iterator[_Picture | None]:
        """Each row's picture, or None when it cannot be used. Raises PhotoError when the stream breaks off."""
        try:
            for number, row in enumerate(self._stream):
                yield self._picture(row, f"{name}, row {number}")
        except (OSError, ValueError) as error:  # what datasets, fsspec and pyarrow raise for networks and damaged files
            raise PhotoError(
                f"The stream of {self._data.dataset} broke off: {error}; try again with --resume."
            ) from error

    def _picture(self, row: Mapping[str, Any], name: str) -> _Picture | None:
        """The row's picture, when its header says that it can be used. Raises OSError where it lies in a file that is gone."""
        value = row[self._data.dataset_column]
        if not isinstance(value, Mapping):
            return None
        path = value.get("path")
        encoded: bytes = value.get("bytes") or b""
        if not encoded and path:  # a folder of pictures, not a table
            encoded = _read(path)
        try:
            with Image.open(io.BytesIO(encoded)) as picture:
                width, height = picture.size
        except (OSError, ValueError, Image.DecompressionBombError):
            return None
        return _Picture(encoded, path or name) if width == height >= self._size else None


def _read(path: str) -> bytes:
    """A file of the data set, wherever it lies. Raises OSError."""
    import fsspec  # type: ignore[import-untyped]  # comes with datasets

    with fsspec.open(path, "rb") as stream:
        return bytes(stream.read())


def _open_stream(data: DataConfig, seed: int) -> Any:
    """An IterableDataset whose pictures stay encoded, shuffled by ``seed``. Raises DeviceError, UsageError."""
    if not has_package("datasets"):
        raise DeviceError(
            "Reading a Hugging Face data set needs the package datasets, which is not installed: "
            "python -m pip install 'gpen-cli[train-stream]', or give --data FOLDER."
        )
    import datasets  # type: ignore[import-untyped]  # seconds, and only this front door needs it

    try:
        stream = datasets.load_dataset(data.dataset, split=SPLIT, streaming=True)
        columns = list(stream.features or ())
        if columns and data.dataset_column not in columns:
            raise UsageError(
                f"{data.dataset} has no column {data.dataset_column!r}; choose one of: {', '.join(columns)}."
            )
        stream = stream.cast_column(data.dataset_column, datasets.Image(decode=False))
    except (OSError, ValueError, RuntimeError) as error:
        raise UsageError(
            f"The data set {data.dataset} cannot be opened: {error}; name a folder with Parquet files and a split "
            f"{SPLIT!r}, or a data set on the Hub that this machine can reach."
        ) from error
    return stream.shuffle(seed=seed, buffer_size=SHUFFLE_BUFFER)
