"""Fetching weights, against a server on this machine that misbehaves in every way real ones do."""

from __future__ import annotations

import dataclasses
import hashlib
import shutil
import subprocess
import sys
import threading
from collections import namedtuple
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from gpen_cli.errors import OutputError, UsageError, WeightsError
from gpen_cli.weights import download as module
from gpen_cli.weights.download import PART_SUFFIX, download, downloadable
from gpen_cli.weights.find import find_model
from gpen_cli.weights.table import MODELS, Model

CONTENT = bytes(range(256)) * 4000  # about 1 MB


class Handler(BaseHTTPRequestHandler):
    requests: list[tuple[str, str | None]] = []  # noqa: RUF012  one server a test, cleared by the fixture

    def log_message(self, *_):
        pass

    def do_GET(self):
        range_header = self.headers.get("Range")
        self.requests.append((self.path, range_header))
        if self.path == "/404":
            self.send_error(404)
        elif self.path == "/html":
            self.answer(b"<html>sign in</html>", kind="text/html")
        elif self.path == "/loop":
            self.send_response(302)
            self.send_header("Location", "/loop")
            self.end_headers()
        elif self.path == "/wrong":
            self.answer(b"x" + CONTENT[1:])
        elif self.path == "/long":
            self.answer(CONTENT + b"more")
        elif self.path == "/short":
            self.answer(CONTENT[:5000])
        elif self.path == "/breaks":
            self.answer(CONTENT[:300_000], announce=len(CONTENT))
        elif self.path == "/no-ranges" or range_header is None:
            self.answer(CONTENT)
        else:
            start = int(range_header.removeprefix("bytes=").removesuffix("-"))
            self.answer(CONTENT[start:], status=206)

    def answer(
        self, body: bytes, *, status: int = 200, kind: str = "application/octet-stream", announce: int | None = None
    ):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(announce or len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.close_connection = True


@pytest.fixture
def server(monkeypatch, tmp_path):
    Handler.requests.clear()
    instance = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=instance.serve_forever, daemon=True).start()
    monkeypatch.setenv("GPEN_WEIGHTS_DIR", str(tmp_path / "weights"))
    monkeypatch.setenv("GPEN_CACHE_DIR", str(tmp_path / "cache"))
    yield f"http://127.0.0.1:{instance.server_port}"
    instance.shutdown()
    instance.server_close()


def row(server: str, *paths: str) -> Model:
    return dataclasses.replace(
        MODELS["gpen-bfr-512"],
        files=("test.pth",),
        bytes=len(CONTENT),
        sha256=hashlib.sha256(CONTENT).hexdigest(),
        mirrors=tuple(server + path for path in paths),
        modelscope=None,
    )


def folder(tmp_path: Path) -> list[str]:
    return sorted(path.name for path in (tmp_path / "weights").iterdir() if not path.name.endswith(".lock"))


def test_a_file_arrives_whole_and_is_then_found(server, tmp_path):
    model = row(server, "/good")
    seen: list[tuple[int, int | None]] = []
    path = download(model, on_progress=lambda done, total: seen.append((done, total)))
    assert path.read_bytes() == CONTENT
    assert seen[-1] == (len(CONTENT), len(CONTENT))
    assert folder(tmp_path) == ["test.pth"]
    found = find_model(model)
    assert found is not None
    assert found.placed_by_user
    assert download(model) == path
    assert len(Handler.requests) == 1


def test_an_interrupted_download_goes_on_where_it_stopped(server, tmp_path):
    with pytest.raises(WeightsError, match="after 300,000"):
        download(row(server, "/breaks"))
    assert folder(tmp_path) == ["test.pth" + PART_SUFFIX]
    assert download(row(server, "/good")).read_bytes() == CONTENT
    assert Handler.requests[-1] == ("/good", "bytes=300000-")


def test_a_server_without_ranges_starts_over(server, tmp_path):
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights" / f"test.pth{PART_SUFFIX}").write_bytes(CONTENT[:1000])
    assert download(row(server, "/no-ranges")).read_bytes() == CONTENT


@pytest.mark.parametrize("path", ["/404", "/html", "/loop", "/wrong", "/long", "/short", "/breaks"])
def test_the_next_mirror_makes_up_for_a_bad_one(server, path):
    assert download(row(server, path, "/good")).read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/404", "answered 404"), ("/html", "web page"), ("/loop", "redirect"), ("/wrong", "SHA-256"),
        ("/long", "more than"), ("/short", "cut off after 5,000"),
    ],
)  # fmt: skip
def test_a_bad_answer_is_one_sentence_and_leaves_no_false_file(server, tmp_path, path, words):
    with pytest.raises(WeightsError) as caught:
        download(row(server, path))
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "weights" / "test.pth").exists()
    if path in ("/wrong", "/long"):
        assert folder(tmp_path) == []  # nothing there to go on from


def test_no_server(server, tmp_path):
    with pytest.raises(WeightsError, match="refused"):
        download(row("http://127.0.0.1:9", "/x"))


def test_offline_opens_no_connection(server):
    with pytest.raises(WeightsError, match="--offline"):
        download(row(server, "/good"), offline=True)
    assert Handler.requests == []


def test_a_full_disk_is_said_before_the_download(server, monkeypatch):
    usage = namedtuple("usage", "total used free")(10, 9, 1)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with pytest.raises(OutputError, match="are free"):
        download(row(server, "/good"))
    assert Handler.requests == []


def test_a_folder_that_cannot_be_made(server, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("GPEN_WEIGHTS_DIR", str(tmp_path / "file" / "w"))
    with pytest.raises(OutputError, match="cannot be written"):
        download(row(server, "/good"))


def test_two_at_once_fetch_once(server):
    results: list[Path] = []
    threads = [threading.Thread(target=lambda: results.append(download(row(server, "/good")))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(set(results)) == 1
    assert len(results) == 4
    assert len(Handler.requests) == 1


@pytest.mark.parametrize(("name", "words"), [("nix", "no net gpen knows"), ("gpen-open-256", "comes with gpen")])
def test_what_cannot_be_downloaded(name, words):
    with pytest.raises(UsageError, match=words):
        downloadable(name)


class TestCommand:
    def run(self, *arguments: str, stdin: str = ""):
        from typer.testing import CliRunner

        from gpen_cli.cli.main import app

        return CliRunner().invoke(app, ["models", *arguments], input=stdin)

    @pytest.fixture
    def known(self, server, monkeypatch):
        monkeypatch.setitem(MODELS, "gpen-bfr-512", row(server, "/good"))

    def test_the_licence_is_shown_and_asked_for(self, known, tmp_path):
        refused = self.run("download", "gpen-bfr-512", stdin="n\n")
        assert refused.exit_code == 2
        assert "non-commercial" in refused.stderr
        assert Handler.requests == []
        agreed = self.run("download", "gpen-bfr-512", stdin="y\n")
        assert agreed.exit_code == 0
        assert agreed.stdout.splitlines()[-1] == str(tmp_path / "weights" / "test.pth")

    def test_no_answer_is_no(self, known):
        assert self.run("download", "gpen-bfr-512").exit_code == 2
        assert Handler.requests == []

    def test_yes(self, known):
        assert self.run("download", "gpen-bfr-512", "--yes").exit_code == 0

    def test_verify_reads_anew(self, known, tmp_path):
        assert self.run("download", "gpen-bfr-512", "--yes").exit_code == 0
        assert "whole" in self.run("verify").stdout
        path = tmp_path / "weights" / "test.pth"
        stat = path.stat()
        path.write_bytes(b"x" + CONTENT[1:])
        import os

        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))  # the remembered hash would still be believed
        damaged = self.run("verify")
        assert damaged.exit_code == 4
        assert str(path) in damaged.stderr.replace("\n", "")

    def test_path_names_the_folders(self, server, tmp_path):
        lines = self.run("path").stdout.splitlines()
        assert f"{tmp_path / 'weights'}\tdownloads go here" in lines


def test_it_needs_no_torch():
    code = "import sys, gpen_cli.weights.download; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    assert module.PART_SUFFIX == ".part"
