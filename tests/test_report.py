"""The report: one JSON object a photo, as the issue spells it, on disk as soon as the photo is done."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from gpen_cli.data import Face, FaceReport, Job, Outcome
from gpen_cli.device import Setup
from gpen_cli.errors import OutputError
from gpen_cli.report import ReportWriter, report_line

SETUP = Setup(device="cuda:0", precision="bf16", micro_batch=4, threads=2, runtime="eager")
FACE = Face(np.array([1.234, 2, 3, 4], np.float32), np.arange(10, dtype=np.float32).reshape(5, 2), np.float32(0.98761))
DONE = Outcome(
    job=Job("in/a.jpg", Path("out/a_enhanced.png"), "a.jpg"),
    status="done",
    faces=(
        FaceReport(FACE, "restored", net="gpen-open-256", warnings=("near the border",)),
        FaceReport(FACE, "skipped", reason="smaller than --min-face 16"),
    ),
    size=(640, 480),
    scale=2.0,
    output_bytes=1234,
    output_size=(1280, 960),
    seconds={"decode": 0.0123456, "restore": 1.5},
    warnings=("a gain map was dropped",),
)
FAILED = Outcome(job=Job("b.jpg", Path("out/b.png"), "b.jpg"), status="failed", error="b.jpg is empty.", error_code=3)


def written(path: Path, *outcomes: Outcome) -> list[dict]:
    with ReportWriter(path, SETUP, "gpen-open-256") as report:
        for outcome in outcomes:
            report.write(outcome)
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def test_a_line_has_every_key_of_the_issue(tmp_path):
    (line,) = written(tmp_path / "r.jsonl", DONE)
    status = line.pop("status")
    assert status == "done"
    assert line == {
        "version": 1,
        "source": "in/a.jpg",
        "target": "out/a_enhanced.png",
        "size": [640, 480],
        "scale": 2.0,
        "model": "gpen-open-256",
        "device": "cuda:0",
        "precision": "bf16",
        "runtime": "eager",
        "faces": [
            {
                "box": [1.23, 2.0, 3.0, 4.0],
                "landmarks": [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0], [6.0, 7.0], [8.0, 9.0]],
                "score": 0.9876,
                "net": "gpen-open-256",
                "decision": "restored",
                "reason": None,
                "warnings": ["near the border"],
            },
            {
                "box": [1.23, 2.0, 3.0, 4.0],
                "landmarks": [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0], [6.0, 7.0], [8.0, 9.0]],
                "score": 0.9876,
                "net": None,
                "decision": "skipped",
                "reason": "smaller than --min-face 16",
                "warnings": [],
            },
        ],
        "seconds": {"decode": 0.0123, "restore": 1.5},
        "error": None,
        "warnings": ["a gain map was dropped"],
    }


def test_a_failed_photo_has_the_same_keys_its_error_and_no_target(tmp_path):
    done, failed = written(tmp_path / "r.jsonl", DONE, FAILED)
    assert list(failed) == list(done)
    assert failed["error"] == "b.jpg is empty."
    assert (failed["target"], failed["size"], failed["scale"], failed["faces"]) == (None, None, None, [])


def test_a_picture_sent_to_standard_output_has_no_target():
    line = report_line(Outcome(Job("-", None, "-"), "done", output_bytes=10), SETUP, "m")
    assert (line["source"], line["target"]) == ("-", None)


@pytest.mark.parametrize(
    "name", ["日本 語 😀.jpg", "caf\udce9.jpg", 'quo"te\\.jpg', "line\nbreak.jpg", "tab\t\x01.jpg"]
)
def test_any_name_is_one_line_of_ascii_and_comes_back_as_it_was(tmp_path, name):
    job = Job(f"in/{name}", Path("out") / name, name)
    outcome = Outcome(job, "done", output_bytes=1, error=None, warnings=(f"{name}: odd",))
    (line,) = written(tmp_path / "r.jsonl", outcome)
    assert (tmp_path / "r.jsonl").read_bytes().isascii()
    assert (line["source"], line["target"], line["warnings"]) == (f"in/{name}", f"out/{name}", [f"{name}: odd"])


def test_a_line_is_on_disk_before_the_next_photo(tmp_path):
    path = tmp_path / "r.jsonl"
    with ReportWriter(path, SETUP, "m") as report:
        for count in (1, 2, 3):
            report.write(DONE)
            assert len(path.read_bytes().splitlines()) == count
            assert path.read_bytes().endswith(b"\n")


def test_its_folder_is_made_and_an_old_report_replaced(tmp_path):
    path = tmp_path / "new" / "folder" / "r.jsonl"
    written(path, DONE, DONE)
    assert len(written(path, FAILED)) == 1


def test_a_report_that_cannot_be_opened_is_one_sentence(tmp_path):
    (tmp_path / "file").touch()
    for path in (tmp_path, tmp_path / "file" / "r.jsonl", tmp_path / ("x" * 300)):
        with pytest.raises(OutputError, match=r"^--report .* cannot be written: .*; name another\.$"):
            ReportWriter(path, SETUP, "m")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a full disk")
def test_a_full_disk_is_one_sentence_also_while_closing():
    with (
        pytest.raises(OutputError, match="--report /dev/full cannot be written: No space left"),
        ReportWriter(Path("/dev/full"), SETUP, "m") as report,
    ):
        report.write(DONE)
