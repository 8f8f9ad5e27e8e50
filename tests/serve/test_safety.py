"""Who may come in, what browsers are told, and that nothing is written down."""

from __future__ import annotations

import io
import os
import re
import tempfile
from pathlib import Path

import pytest

from gpen_cli.cli.serve import parse_amount
from gpen_cli.errors import UsageError
from gpen_cli.serve.pages import FILES, load_pages
from gpen_cli.serve.settings import ServeSettings, is_loopback
from serve.kit import png, problem, upload

TOKEN = "correct-horse-battery"


@pytest.mark.parametrize("path", ["/", "/app.js", "/models", "/metrics", "/status", "/openapi.json", "/nothing"])
def test_with_a_token_nothing_answers_without_it(serve, path):
    client = serve(token=TOKEN).client
    problem(client.get(path), 401, "token-needed")
    assert client.get(path).headers["www-authenticate"].startswith("Bearer")
    for wrong in ("Bearer wrong", "Bearer", "Basic " + TOKEN, TOKEN, "Bearer " + TOKEN[:-1], "Bearer \xff"):
        assert client.get(path, headers={"Authorization": wrong.encode("latin-1")}).status_code == 401
    expected = 404 if path == "/nothing" else 200
    assert client.get(path, headers={"Authorization": f"Bearer {TOKEN}"}).status_code == expected


def test_health_needs_no_token(serve):
    assert serve(token=TOKEN).client.get("/healthz").status_code == 200


def test_the_link_becomes_a_cookie_that_is_not_the_token(serve):
    client = serve(token=TOKEN).client
    answer = client.get(f"/?token={TOKEN}")
    assert answer.status_code == 303
    assert answer.headers["location"] == "./", "the token leaves the address bar"
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite" in cookie
    assert TOKEN not in cookie
    assert client.get("/").status_code == 200
    assert client.post("/enhance", files=upload()).status_code == 200, "the client keeps the cookie, as a browser does"


def test_a_wrong_link_opens_nothing_and_says_so_to_people(serve):
    client = serve(token=TOKEN).client
    assert "set-cookie" not in client.get("/?token=wrong").headers
    assert "set-cookie" not in client.get("/?token=").headers
    page = client.get("/", headers={"Accept": "text/html"})
    assert page.status_code == 401
    assert "link" in page.text
    client.cookies.set("gpen_pass", "guess")
    assert client.get("/").status_code == 401


@pytest.mark.parametrize("path", ["/", "/app.js", "/enhance", "/nothing", "/healthz"])
def test_every_answer_carries_the_headers_that_browsers_heed(serve, path):
    headers = serve().client.get(path).headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert not [name for name in headers if name.startswith("access-control")], "no CORS"
    assert re.fullmatch("[0-9a-f]{12}", headers["x-request-id"])


def test_pages_of_other_sites_get_nothing(serve):
    client = serve().client
    foreign = {"Origin": "https://evil.example"}
    problem(client.post("/enhance", files=upload(), headers=foreign), 403, "foreign-page")
    problem(client.post("/enhance", files=upload(), headers={"Origin": "null"}), 403, "foreign-page")
    own = {"Origin": "http://127.0.0.1:7860"}
    assert client.post("/enhance", files=upload(), headers=own).status_code == 200
    rebound = {"Host": "evil.example:7860"}
    problem(client.get("/status", headers=rebound), 403, "foreign-page")
    assert client.get("/status", headers={"Host": "localhost:7860"}).status_code == 200
    assert client.get("/status", headers={"Host": "[::1]:7860"}).status_code == 200
    preflight = client.options("/enhance", headers={**foreign, "Access-Control-Request-Method": "POST"})
    assert preflight.status_code == 403


def test_another_host_needs_a_token_or_an_open_door():
    with pytest.raises(UsageError, match="--allow-open"):
        ServeSettings(host="0.0.0.0")
    assert ServeSettings(host="0.0.0.0", token=TOKEN).token == TOKEN
    assert ServeSettings(host="0.0.0.0", allow_open=True).allow_open
    assert is_loopback("127.0.0.2")
    assert is_loopback("::1")
    assert is_loopback("localhost")
    assert not is_loopback("localhost.example.org")
    assert not is_loopback("192.168.1.2")


@pytest.mark.parametrize(
    "token", ["short", "has a space in it", 'quote"quote"quote', "täglich-brot-heute", "a&b=c#d%efghij"]
)
def test_a_token_that_is_short_or_no_part_of_a_link_is_refused_without_repeating_it(token):
    with pytest.raises(UsageError) as caught:
        ServeSettings(token=token)
    assert token not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("10MB", 10_000_000),
        ("10m", 10_000_000),
        ("50M", 50_000_000),
        ("1GiB", 2**30),
        ("2e7", 20_000_000),
        ("1.5k", 1500),
    ],
)
def test_amounts(text, number):
    assert parse_amount("--max-upload", text) == number


@pytest.mark.parametrize("text", ["", "MB", "-1", "10 XB", "nan", "1e999"])
def test_what_is_no_amount(text):
    with pytest.raises(UsageError, match="--max-upload"):
        parse_amount("--max-upload", text)


def test_the_page_holds_nothing_inline_and_asks_no_other_host():
    pages = load_pages()
    page = pages["/"].data.decode()
    assert not re.search(r"<script(?![^>]*\bsrc=)", page)
    assert not re.search(r"<style|\sstyle=|\son[a-z]+=|javascript:", page)
    for path, file in pages.items():
        for address in re.findall(rb"https?://[^\s\"')]+", file.data):
            assert address.startswith(b"http://www.w3.org/"), (path, address)
    folder = Path(__file__).parents[2] / "gpen_cli" / "serve" / "page"
    assert {path.name for path in folder.iterdir()} == set(FILES), "what lies there is served, and nothing else"


def test_the_page_says_the_same_in_both_languages():
    words = load_pages()["/words.js"].data.decode()
    english, chinese = words.split("const CHINESE")
    keys = [set(re.findall(r"^  (\w+):", part.split("export const")[0], re.MULTILINE)) for part in (english, chinese)]
    assert keys[0] == keys[1]
    page = load_pages()["/"].data.decode()
    assert set(re.findall(r'data-(?:word|label)="(\w+)"', page)) <= keys[0]


def test_nothing_is_written_to_disk(serve, tmp_path, monkeypatch):
    """No file is opened for writing while pictures of every kind and size of answer go through."""
    server = serve()
    server.enhance()  # whatever is imported or cached on first use
    opened: list[str] = []

    def note(event, arguments):
        if event == "open" and watching and _writes(arguments[1], arguments[2]):
            opened.append(f"{arguments[0]!r} {arguments[1]!r}")
        if event in ("tempfile.mkstemp", "tempfile.mkdtemp") and watching:
            opened.append(str(arguments))

    watching = True
    import sys

    sys.addaudithook(note)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    noise = io.BytesIO()
    from PIL import Image

    Image.frombytes("RGB", (900, 900), os.urandom(900 * 900 * 3)).save(noise, "PNG")
    assert len(noise.getvalue()) > 2**21, "more than servers usually keep in memory"
    for fields in ({}, {"format": "tiff"}, {"format": "webp"}, {"format": "bmp", "upscale": "2"}):
        assert server.enhance(noise.getvalue(), **fields).status_code == 200
    server.client.post("/detect", files=upload(png()))
    server.client.post("/preview", files=upload(png()))
    server.enhance(b"no picture")
    watching = False
    assert opened == []
    assert list(tmp_path.iterdir()) == []


def _writes(mode, flags) -> bool:
    return (isinstance(mode, str) and any(letter in mode for letter in "wax+")) or bool(
        isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
    )


def test_metrics_count_requests_stages_faces_and_the_batch(serve):
    server = serve()
    for _ in range(3):
        server.enhance()
    server.client.get("/nothing")
    server.client.get("/another-nothing")
    text = server.client.get("/metrics").text
    figures = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert figures['gpen_requests_total{path="/enhance",status="200"}'] == "3"
    assert figures['gpen_requests_total{path="other",status="404"}'] == "2", "strangers' paths make no new rows"
    assert figures['gpen_faces_total{decision="restored"}'] == "3"
    assert figures["gpen_crops_total"] == "4", "three faces, and the one of warming up"
    assert figures["gpen_ready"] == "1"
    assert figures["gpen_requests_inside"] == "0"
    assert figures["gpen_upload_bytes"] == "0", "memory of uploads is given back"
    assert figures['gpen_request_seconds_bucket{le="+Inf"}'] == figures["gpen_request_seconds_count"] == "5"
    for stage in ("decode", "detect", "restore", "compose", "encode"):
        assert figures[f'gpen_stage_seconds_count{{stage="{stage}"}}'] == "3"
    for line in text.splitlines():
        assert re.fullmatch(r"# (HELP|TYPE) \w+ .+|\w+(\{[^}]*\})? [0-9.e+-]+", line), line


@pytest.mark.parametrize(
    ("setting", "value"), [("batch_window", 0.31), ("batch_window", float("nan")), ("max_queue", 0), ("timeout", 0)]
)
def test_settings_out_of_range_are_refused_in_one_sentence(setting, value):
    flag = "--" + setting.replace("_", "-")
    with pytest.raises(UsageError, match=f"^{flag} .* is out of range; give .*\\.$"):
        ServeSettings(**{setting: value})
