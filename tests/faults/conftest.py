"""One nursery and one table for the whole suite."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from faults.folders import files_of, make_photos
from faults.nursery import Nursery
from faults.table import LONG, Table

if sys.platform != "linux":  # fork, /proc, tmpfs, setuid
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    with Nursery() as started:
        yield started


@pytest.fixture(scope="session")
def _table(request) -> Iterator[Table]:
    table = Table()
    yield table
    if LONG:
        items = [item for item in request.session.items if "table" in item.fixturenames]
        files = {item.path for item in request.session.items}
        complete = not request.config.option.keyword and files >= set(Path(__file__).parent.glob("test_*.py"))
        done = table.write(len(items)) if complete else "a part of the suite: docs/reliability.md is left as it was"
        with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
            sys.stdout.write(f"\n{table.text()}\n{done}\n")


@pytest.fixture
def table(_table: Table) -> Table:
    return _table


@pytest.fixture(scope="session")
def photos(tmp_path_factory) -> Path:
    """Eight small photos in three folders; tests do not change them."""
    return make_photos(tmp_path_factory.mktemp("faults") / "in")


@pytest.fixture(scope="session")
def whole(nursery: Nursery, photos: Path) -> dict[str, bytes]:
    """What an undisturbed run makes of ``photos``."""
    out = photos.parent / "whole"
    ended = nursery.gpen("batch", photos, out)
    assert ended.code == 0, ended.err
    results = files_of(out)
    assert len(results) == len(files_of(photos))
    return results


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder other users can enter, as ``tmp_path`` is not."""
    with tempfile.TemporaryDirectory(prefix="gpen-faults-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder
