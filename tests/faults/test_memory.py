"""Memory is flat: a run of thousands holds no more photos, and no more bytes, than a run of hundreds."""

from __future__ import annotations

import json

from faults.child import SAMPLE_EVERY
from faults.folders import files_of, make_photos
from faults.table import LONG, Table, times

DISTINCT = 50
WORKERS = 2
MOST_ALIVE = 3 * WORKERS + WORKERS
"""Three for each worker (``pipeline.ALIVE_PER_WORKER``), and for a moment the copy a reader makes with its digest in it."""
GROWTH = 0.05 if LONG else 0.10
"""From photo 500 to the last of 5000; the short run compares photo 100, before all pools are warm, with 300."""


def test_memory_is_flat(nursery, tmp_path, table: Table):
    count, base = times(300, 5000), times(100, 500)
    distinct = files_of(make_photos(tmp_path / "distinct", tuple(f"{number}.png" for number in range(DISTINCT))))
    photos, samples, out = tmp_path / "in", tmp_path / "samples", tmp_path / "out"
    photos.mkdir()
    for number in range(count):
        (photos / f"p{number:04d}.png").write_bytes(distinct[f"{number % DISTINCT}.png"])
    run = nursery.start("batch", photos, out, "--workers", WORKERS, "--log-level", "error", samples=str(samples))
    ended = run.wait(540)
    assert ended.code == 0, ended.err
    assert len(files_of(out)) == count
    lines = [json.loads(line) for line in samples.read_text().splitlines()]
    resident = {line["photo"]: line["rss"] for line in lines}
    alive = max(line["alive"] for line in lines)
    at_base, at_end = resident[base], resident[count - SAMPLE_EVERY]
    top = max(rss for photo, rss in resident.items() if photo >= base)
    table.row(
        f"{count} small photos in one run",
        1,
        holds=f"resident memory at the end within 5 % of that at photo {base}; at most {MOST_ALIVE} photos alive",
        result=f"{at_base / 2**20:.1f} MiB at photo {base}, {at_end / 2**20:.1f} MiB at the end "
        f"({at_end / at_base - 1:+.1%}), {top / 2**20:.1f} MiB at most; {alive} photos alive at most",
    )
    assert alive <= MOST_ALIVE
    assert alive >= WORKERS or not LONG  # fewer: the count has lost sight of them
    assert abs(at_end / at_base - 1) <= GROWTH
