"""Faces out of a Hugging Face data set: local Parquet, read as it comes."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest
from pictures import saved
from PIL import Image

from gpen_cli.errors import DeviceError, PhotoError, UsageError
from gpen_cli.train import streaming
from gpen_cli.train.config import DataConfig, DegradationConfig
from gpen_cli.train.streaming import Streamed

CLEAN = DegradationConfig(clean_chance=1.0)


@pytest.fixture
def parquet(tmp_path: Path, astronaut: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two shards of 10 pictures of 64 px in all, one of them too small, one not square, one no picture."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")  # read at import: without it each opening waits for the Hub
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    monkeypatch.setattr(
        datasets.config, "SLEEP_TIME_ON_THREADS_SHUTDOWN", 0, raising=False
    )  # 5 s at the end of every epoch
    folder = tmp_path / "set"
    folder.mkdir()

    whole = [astronaut[20 * n : 20 * n + 64, :64] for n in range(10)]
    pictures = [saved(Image.fromarray(pixels), "PNG") for pixels in (*whole, astronaut[:32, :32], astronaut[:64, :80])]
    pictures.append(b"no picture")
    rows = [{"bytes": data, "path": f"{number}.png"} for number, data in enumerate(pictures)]
    table = datasets.Dataset.from_dict({"image": rows}).cast_column("image", datasets.Image(decode=False))
    for shard in range(2):
        table.shard(2, shard).to_parquet(folder / f"train-{shard}.parquet")
    return folder


def opened(source: Path | str, *, size: int = 64, seed: int = 3, column: str = "image") -> Streamed:
    return Streamed(DataConfig(dataset=str(source), dataset_column=column), CLEAN, size, seed)


@pytest.mark.skipif(importlib.util.find_spec("basicsr") is None, reason="basicsr is not installed")
def test_stream_is_the_same_again_resumed_and_backwards(parquet: Path, caplog: pytest.LogCaptureFixture) -> None:
    stream = opened(parquet)
    first = [stream.sample(number) for number in range(25)]
    assert {sample.original.shape for sample in first} == {(64, 64, 3)}
    assert "3 of 13 pictures are left out" in caplog.text
    epochs = [[sample.name for sample in first[10 * epoch : 10 * epoch + 10]] for epoch in range(2)]
    assert sorted(epochs[0]) == sorted(epochs[1]) == [f"{number}.png" for number in range(10)]
    assert epochs[0] != epochs[1]
    resumed = opened(parquet)
    for number in (17, 24, 2):  # on from the middle, and back
        assert np.array_equal(resumed.sample(number).degraded, first[number].degraded)
    assert [opened(parquet, seed=4).sample(number).name for number in range(10)] != epochs[0]


def test_nothing_usable_is_said_not_waited_for(parquet: Path) -> None:
    with pytest.raises(UsageError, match="None of the 13 pictures"):
        opened(parquet, size=128).sample(0)


def test_data_sets_that_cannot_be_opened(parquet: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no column 'photo'; choose one of: image"):
        opened(parquet, column="photo")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="cannot be opened"):
        opened(tmp_path / "empty")


def test_stream_that_breaks_off_is_a_photo_error_and_can_be_taken_up(
    parquet: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = opened(parquet)
    with monkeypatch.context() as patch:
        patch.setattr(stream, "_picture", lambda row, name: (_ for _ in ()).throw(ConnectionError("no network")))
        for _ in range(2):
            with pytest.raises(PhotoError, match="broke off: no network"):
                stream.sample(0)
    assert next(stream._from_start()).name.endswith(".png")


def test_absent_package_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "has_package", lambda name: False)
    with pytest.raises(DeviceError, match="pip install"):
        opened("any/set")
