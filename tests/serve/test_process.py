"""``gpen serve`` as a process: it starts, answers, finishes what runs when it is told to stop."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from PIL import Image

from gpen_cli.errors import INTERRUPTED, TERMINATED
from serve.kit import pixels_of, png

CHILD = Path(__file__).with_name("child.py")
LIMIT_SECONDS = 30.0
AS_DRAWN = ("--guard", "off", "--color-fix", "none", "--sharp-faces", "restore")
"""So that the stand-in's answer is seen in the result."""


@contextmanager
def gpen_serve(
    *flags: str, seconds: float = LIMIT_SECONDS, **environment: str
) -> Iterator[tuple[subprocess.Popen, str]]:
    """The process, and the link it printed."""
    command = [sys.executable, str(CHILD), "serve", "--port", "0", *AS_DRAWN, *flags]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **environment}
    )
    guard = threading.Timer(seconds, process.kill)
    guard.start()
    try:
        yield process, process.stdout.readline().strip()
    finally:
        guard.cancel()
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()


def post(link: str, data: bytes) -> bytes:
    body = (
        b'--xyz\r\nContent-Disposition: form-data; name="image"; filename="a.png"\r\n\r\n' + data + b"\r\n--xyz--\r\n"
    )
    head = {"Content-Type": "multipart/form-data; boundary=xyz"}
    request = urllib.request.Request(f"{link}enhance?upscale=1", body, head)
    with urllib.request.urlopen(request, timeout=LIMIT_SECONDS) as answer:
        return answer.read()


@pytest.mark.parametrize(("stop", "code"), [(signal.SIGTERM, TERMINATED), (signal.SIGINT, INTERRUPTED)])
def test_it_answers_and_finishes_what_runs_when_told_to_stop(stop, code):
    with gpen_serve() as (process, link):
        assert link.startswith("http://127.0.0.1:")
        assert urllib.request.urlopen(f"{link}healthz", timeout=LIMIT_SECONDS).read() == b"ready\n"
        assert b"<!doctype html>" in urllib.request.urlopen(link, timeout=LIMIT_SECONDS).read()
        assert pixels_of(post(link, png((40, 90, 160))))[64, 64].tolist() == [215, 165, 95]
        answers: list[bytes] = []
        working = threading.Thread(target=lambda: answers.append(post(link, png((20, 20, 20)))))
        working.start()
        time.sleep(0.25)
        process.send_signal(stop)
        working.join(LIMIT_SECONDS)
        assert process.wait(LIMIT_SECONDS) == code
        assert pixels_of(answers[0])[64, 64].tolist() == [235, 235, 235], "the request at work was finished"
        errors = process.stderr.read()
        assert "Traceback" not in errors
        assert "POST /enhance 200" in errors
        assert errors.rstrip().endswith("the server is closed."), "and nothing is said of files, which it has none of"
        with pytest.raises(OSError, match="refused"):
            urllib.request.urlopen(link, timeout=5)


def test_others_are_answered_whatever_some_send():
    """Half-sent heads and bodies, clients that vanish, a picture of 10,000 x 10,000, a zip: nobody else notices."""
    huge = io.BytesIO()
    Image.new("1", (10_000, 10_000)).save(huge, "PNG")
    with gpen_serve() as (_, link), contextlib.ExitStack() as stack:
        host, port = link.removeprefix("http://").rstrip("/").split(":")
        head = "POST /enhance HTTP/1.1\r\nHost: x\r\nContent-Type: multipart/form-data; boundary=xyz\r\n"
        for number in range(200):
            line = stack.enter_context(socket.create_connection((host, int(port)), timeout=LIMIT_SECONDS))
            line.sendall(f"{head}Content-Length: 5000\r\n\r\n--xyz\r\n".encode() if number % 2 else head.encode()[:30])
            if number % 10 == 0:
                line.close()
        expected = [215, 165, 95]
        assert pixels_of(post(link, png((40, 90, 160))))[64, 64].tolist() == expected
        for data, status in ((huge.getvalue(), 413), (b"PK\x03\x04" + bytes(100), 400), (png()[:200], 400)):
            with pytest.raises(urllib.error.HTTPError) as refused:
                post(link, data)
            assert refused.value.code == status
            refused.value.close()
        assert pixels_of(post(link, png((40, 90, 160))))[64, 64].tolist() == expected


def test_the_printed_link_opens_the_page_and_the_environment_gives_the_token():
    with gpen_serve("--host", "0.0.0.0", "--token", "auto", GPEN_TOKEN="from-the-environment") as (_, link):
        assert link.startswith("http://localhost:")
        assert link.endswith("/?token=from-the-environment")
        jar = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        assert b"<!doctype html>" in jar.open(link.replace("localhost", "127.0.0.1"), timeout=LIMIT_SECONDS).read()


def test_a_taken_port_is_one_sentence_and_code_2():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = _gpen("serve", "--port", str(port))
    assert done.returncode == 2
    assert done.stderr == f"error: Port {port} on 127.0.0.1 is taken by another program; give --port another.\n"


@pytest.mark.parametrize(
    ("flags", "part"),
    [
        (["--host", "0.0.0.0"], "--allow-open"),
        (["--host", "203.0.113.7", "--allow-open"], "203.0.113.7"),
        (["--max-upload", "much"], "--max-upload"),
        (["--token", "short"], "fewer than"),
    ],
)
def test_flags_that_cannot_be_are_one_sentence_and_code_2(flags, part):
    done = _gpen("serve", *flags)
    assert done.returncode == 2
    assert part in done.stderr
    assert "Traceback" not in done.stderr


def test_without_the_extra_it_says_how_to_get_it(monkeypatch, capsys):
    import typer

    from gpen_cli import device
    from gpen_cli.cli import main

    monkeypatch.setattr(device, "has_package", lambda name: name != "fastapi")
    with pytest.raises(SystemExit) as ended:
        typer.main.get_command(main.app)(["serve"])
    assert ended.value.code == 5
    assert "pip install 'gpen-cli[serve]'" in capsys.readouterr().err


def _gpen(*arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, str(CHILD), *arguments], capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False
    )
