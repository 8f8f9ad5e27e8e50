"""Faces to learn from, out of folders of aligned crops or of pairs. A sample is a pure function of settings, seed and number."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from gpen_cli.data import UInt8Image
from gpen_cli.errors import PhotoError, UsageError
from gpen_cli.paths import is_dir, is_file
from gpen_cli.train.basicsr_shim import require_basicsr
from gpen_cli.train.config import DataConfig, DegradationConfig
from gpen_cli.train.index import IndexRow, find_index, read_index
from gpen_cli.train.jitter import Pad, make_sample
from gpen_cli.train.sample import Sample, Samples

log = logging.getLogger(__name__)

SUFFIXES = (".jpg", ".jpeg", ".png", ".webp")


@dataclass(frozen=True)
class Crop:
    """One face on disk. side: pixels; degraded: the file of a pair's degraded side, or None: it is made."""

    file: Path
    side: int
    source: str
    pad: Pad = (0, 0, 0, 0)
    degraded: Path | None = None


def open_samples(data: DataConfig, degradation: DegradationConfig, size: int, seed: int) -> Samples:
    """The samples the settings name, ``size`` px wide. Raises UsageError (nothing there, bad index), DeviceError (no package)."""
    if (data.hr_dir is None) != (data.lr_dir is None):
        raise UsageError("--hr-dir and --lr-dir belong together: sharp and degraded crops of equal names.")
    kinds = [
        kind
        for kind, given in (("--data", data.folders), ("--hr-dir", data.hr_dir), ("a dataset", data.dataset))
        if given
    ]
    if len(kinds) > 1:
        raise UsageError(f"{' and '.join(kinds)} were given; faces come from one of them.")
    if data.hr_dir is not None and data.lr_dir is not None:
        return Crops(find_pairs(data.hr_dir, data.lr_dir), data, degradation, size, seed)
    require_basicsr()  # now, not at the first sample in a worker
    if data.dataset is not None:
        from gpen_cli.train.streaming import Streamed

        return Streamed(data, degradation, size, seed)
    return Crops(find_crops(data, size), data, degradation, size, seed)


def find_crops(data: DataConfig, size: int) -> list[Crop]:
    """Every square crop below the folders, in the order of their names; those under ``size`` only where there is no other.

    Raises UsageError when there is none.
    """
    if not data.folders:
        raise UsageError("No faces to learn from: give --data FOLDER, or --hr-dir and --lr-dir.")
    found: dict[Path, Crop] = {}
    for folder in data.folders:
        rows = _index_of(folder, data.index)
        for file in _pictures(folder):
            row = rows.get(file.resolve())
            if not data.confidence or (row is not None and row.confidence in data.confidence):
                crop = _measured(file, row, folder.name)
                if crop is not None:
                    found.setdefault(file.resolve(), crop)  # a folder named twice, or inside another
    where = ", ".join(map(str, data.folders))
    if not found:
        letters = f" with confidence {' or '.join(data.confidence)} in an index" if data.confidence else ""
        raise UsageError(f"No square crops{letters} under {where}; make some with gpen train prepare PHOTOS OUT.")
    return _large_enough(list(found.values()), size, where)


def _index_of(folder: Path, named: Path | None) -> Mapping[Path, IndexRow]:
    path = named or find_index(folder)
    return read_index(path) if path else {}


def _pictures(folder: Path) -> list[Path]:
    if not is_dir(folder):
        raise UsageError(f"{folder} is no folder; name one with aligned crops (gpen train prepare makes them).")
    return sorted(path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES and is_file(path))


def _measured(file: Path, row: IndexRow | None, source: str) -> Crop | None:
    """The crop with its side, from its header; None, with a warning, for what is no square picture."""
    try:
        with Image.open(file) as picture:
            width, height = picture.size
    except (OSError, ValueError, Image.DecompressionBombError) as error:
        log.warning("%s is left out: it cannot be read (%s).", file, error)
        return None
    if width != height:
        log.warning("%s is left out: %d×%d px is no aligned crop, which is square.", file, width, height)
        return None
    row = row or IndexRow()
    if max(row.pad[0] + row.pad[2], row.pad[1] + row.pad[3]) >= width:
        raise UsageError(
            f"The index says that {file} is padding from side to side ({row.pad}); correct its pad columns."
        )
    return Crop(file, width, row.source or source, row.pad)


def _large_enough(crops: list[Crop], size: int, where: str) -> list[Crop]:
    large = [crop for crop in crops if crop.side >= size]
    if not large:
        log.warning(
            "All %d crops under %s are smaller than %d px and are enlarged: results stay soft.", len(crops), where, size
        )
        return crops
    if len(large) < len(crops):
        log.info("%d of %d crops are smaller than %d px and are left out.", len(crops) - len(large), len(crops), size)
    return large


def find_pairs(hr_dir: Path, lr_dir: Path) -> list[Crop]:
    """Sharp and degraded crops of equal relative names (the suffix may differ). Raises UsageError when there is no pair."""
    degraded = {path.relative_to(lr_dir).with_suffix(""): path for path in _pictures(lr_dir)}
    pairs, alone = [], 0
    for file in _pictures(hr_dir):
        partner = degraded.get(file.relative_to(hr_dir).with_suffix(""))
        crop = _measured(file, None, hr_dir.name) if partner else None
        if crop is None:
            alone += 1
        else:
            pairs.append(replace(crop, degraded=partner))
    if not pairs:
        raise UsageError(
            f"No picture in {hr_dir} has one of the same name in {lr_dir}; pairs are found by equal names."
        )
    if alone:
        log.warning("%d pictures in %s have no partner in %s and are left out.", alone, hr_dir, lr_dir)
    return pairs


class Crops:
    """``Samples`` out of files. Nothing is kept in memory: the system's file cache holds what fits, and workers share it."""

    def __init__(
        self, crops: Sequence[Crop], data: DataConfig, degradation: DegradationConfig, size: int, seed: int
    ) -> None:
        """Raises UsageError when ``data.balance`` is out of range."""
        self._crops = list(crops)
        self._data = data
        self._degradation = degradation
        self._size = size
        self._seed = seed
        self._groups = repeats([crop.source for crop in self._crops], data.balance)
        self._order: tuple[int, NDArray[np.int64]] | None = None

    def __len__(self) -> int:
        return len(self._crops)

    @property
    def epoch_length(self) -> int:
        """Samples after which every photo has been met; those of small sources more than once."""
        return sum(count for _, count in self._groups)

    def sample(self, number: int) -> Sample:
        """See ``Samples``."""
        epoch, place = divmod(number, self.epoch_length)
        crop = self._crops[int(self._order_of(epoch)[place])]
        return make_sample(
            read_rgb(crop.file),
            crop.pad,
            str(crop.file),
            degraded=None if crop.degraded is None else read_rgb(crop.degraded),
            data=self._data,
            degradation=self._degradation,
            size=self._size,
            seed=(self._seed, number),
        )

    def _order_of(self, epoch: int) -> NDArray[np.int64]:
        """Which photo is met at each place of the epoch; the last epoch's is kept, as it costs a shuffle of all photos."""
        if self._order is None or self._order[0] != epoch:
            self._order = epoch, epoch_order(self._groups, np.random.default_rng([self._seed, epoch]))
        return self._order[1]


Groups = list[tuple[NDArray[np.int64], int]]
"""For each source its photos' numbers, and how many samples of an epoch are its own."""


def repeats(sources: Sequence[str], balance: float) -> Groups:
    """sources: that of each photo. One of n photos, where the largest has N, gets n·(N/n)^balance samples: n at 0, N at 1.

    Raises UsageError for a balance outside 0 to 1.
    """
    if not 0.0 <= balance <= 1.0:
        raise UsageError(f"data.balance is {balance}; it must lie between 0 and 1.")
    largest = max(Counter(sources).values())
    groups: Groups = []
    for source in sorted(set(sources)):
        members = np.array([number for number, own in enumerate(sources) if own == source], np.int64)
        groups.append((members, round(len(members) * (largest / len(members)) ** balance)))
    return groups


def epoch_order(groups: Groups, rng: np.random.Generator) -> NDArray[np.int64]:
    """Every photo as often as any other of its source, give or take one; in an order drawn from ``rng``."""
    met = []
    for members, count in groups:
        whole, rest = divmod(count, len(members))
        met.append(np.concatenate([np.tile(members, whole), rng.permutation(members)[:rest]]))
    return rng.permutation(np.concatenate(met))


def read_rgb(file: Path) -> UInt8Image:
    """(H, W, 3) uint8 RGB. Raises PhotoError."""
    try:
        return decode_rgb(file.read_bytes(), str(file))
    except OSError as error:
        raise PhotoError(f"{file} cannot be read any more: {error}; put it back, then --resume.") from error


def decode_rgb(encoded: bytes, name: str) -> UInt8Image:
    """(H, W, 3) uint8 RGB. Raises PhotoError."""
    try:
        pixels = cv2.imdecode(np.frombuffer(encoded, np.uint8), cv2.IMREAD_COLOR)
    except cv2.error:  # an empty file
        pixels = None
    if pixels is None:
        raise PhotoError(f"{name} is damaged and cannot be decoded; replace it with a whole copy, then --resume.")
    return np.asarray(cv2.cvtColor(pixels, cv2.COLOR_BGR2RGB), np.uint8)
