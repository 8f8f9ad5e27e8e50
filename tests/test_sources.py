"""Where photos come from: everything that is a photo is found, nothing else is, and no source can hang or crash a run."""

from __future__ import annotations

import io
import os
import socket
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from pictures import saved
from PIL import Image

from gpen_cli import fetch as fetch_module
from gpen_cli.errors import PhotoError, UsageError
from gpen_cli.options import ReadOptions
from gpen_cli.photos.read import read_photo
from gpen_cli.sources import find_photos, read_source, require_photo_folder

NOBODY = 65534


def picture(kind: str = "JPEG") -> bytes:
    return saved(Image.new("RGB", (20, 10), "teal"), kind)


def put(folder: Path, *names: str, content: bytes | None = None) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(picture() if content is None else content)


def found(folder: Path, **options) -> list[str]:
    return [path.as_posix() for path in find_photos(folder, **options).photos]


# -- folders -----------------------------------------------------------------------------------------------------------


def test_photos_are_known_by_suffix_or_by_content_and_the_rest_is_counted(tmp_path):
    put(tmp_path, "a.jpg", "UPPER.JPG", "b.jfif", "c.heic", "noext", "wrong.txt")
    put(tmp_path, "Thumbs.db", "notes.txt", "empty", "text", content=b"hello")
    result = find_photos(tmp_path)
    assert [path.as_posix() for path in result.photos] == [
        "UPPER.JPG",
        "a.jpg",
        "b.jfif",
        "c.heic",
        "noext",
        "wrong.txt",
    ]
    assert result.ignored == 4


def test_a_damaged_photo_is_still_a_photo_so_that_its_failure_is_told(tmp_path):
    put(tmp_path, "zero.jpg", content=b"")
    put(tmp_path, "notes.jpg", content=b"hello")
    assert found(tmp_path) == ["notes.jpg", "zero.jpg"]


def test_hidden_files_and_folders_are_passed_over(tmp_path):
    put(tmp_path, "a.jpg", ".hidden.jpg", ".git/b.jpg", "._a.jpg")
    result = find_photos(tmp_path)
    assert (len(result.photos), result.ignored) == (1, 0)


def test_a_folder_whose_own_name_is_hidden_is_searched_when_it_is_the_one_asked_for(tmp_path):
    put(tmp_path, ".album/a.jpg")
    assert found(tmp_path / ".album") == ["a.jpg"]


@pytest.mark.parametrize("folder", ["photos [2020]", "100% {a,b}", "-rf", "日本 語 😀", "a*b?", "é", "e\u0301"])
def test_names_that_mean_something_to_a_shell_mean_themselves(tmp_path, folder):
    put(tmp_path, f"{folder}/a.jpg", f"{folder}/sub [x]/b.jpg")
    assert found(tmp_path / folder) == ["a.jpg", "sub [x]/b.jpg"]


def test_names_that_are_not_utf8_are_found_and_read(tmp_path):
    try:
        put(tmp_path, "caf\udce9.jpg")
    except OSError:
        pytest.skip("this file system takes UTF-8 names only")
    assert found(tmp_path) == ["caf\udce9.jpg"]
    assert read_source(str(tmp_path / "caf\udce9.jpg"), "x") == picture()


def test_the_order_is_that_of_the_names_not_of_the_disk(tmp_path):
    put(tmp_path, "b.jpg", "a/z.jpg", "a.jpg", "B.jpg", "c/a.jpg")
    assert found(tmp_path) == ["B.jpg", "a.jpg", "a/z.jpg", "b.jpg", "c/a.jpg"]


def test_links_are_followed_and_loops_end(tmp_path):
    put(tmp_path, "in/a.jpg", "in/sub/b.jpg", "elsewhere/c.jpg")
    folder = tmp_path / "in"
    (folder / "sub" / "up").symlink_to(folder)
    (folder / "sub" / "here").symlink_to(folder / "sub")
    (folder / "itself").symlink_to(folder / "itself")
    (folder / "itself.jpg").symlink_to(folder / "itself.jpg")
    (folder / "away").symlink_to(tmp_path / "elsewhere")
    (folder / "one.jpg").symlink_to(tmp_path / "elsewhere" / "c.jpg")
    assert found(folder) == ["a.jpg", "away/c.jpg", "one.jpg", "sub/b.jpg"]


def test_a_folder_met_by_its_own_name_and_by_a_link_keeps_its_own_name(tmp_path):
    put(tmp_path, "m/deep/a.jpg")
    for name in ("a-link", "z-link"):
        (tmp_path / name).symlink_to(tmp_path / "m" / "deep")
    assert found(tmp_path) == ["m/deep/a.jpg"]


def test_broken_links_are_named_where_a_photo_was_meant(tmp_path):
    put(tmp_path, "a.jpg")
    (tmp_path / "gone.jpg").symlink_to(tmp_path / "nowhere.jpg")
    (tmp_path / "notes").symlink_to(tmp_path / "nowhere")
    result = find_photos(tmp_path)
    assert (len(result.photos), result.ignored, len(result.unseen)) == (1, 1, 1)
    assert "gone.jpg is a link to what cannot be read (No such file" in result.unseen[0]
    assert find_photos(tmp_path, exclude=["gone.jpg"]).unseen == ()


def test_pipes_and_sockets_are_never_opened(tmp_path, monkeypatch):
    put(tmp_path, "a.jpg")
    os.mkfifo(tmp_path / "pipe.jpg")
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.chdir(tmp_path)  # a socket's path is limited to about 100 bytes
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind("socket.jpg")
        assert found(tmp_path) == ["a.jpg"]  # opening the pipe would wait for ever


@pytest.mark.parametrize(
    ("patterns", "left"),
    [
        (["thumbs/*"], ["a.jpg", "b [1].jpg", "sub/thumbs/d.jpg"]),
        (["*/thumbs/*", "thumbs/*"], ["a.jpg", "b [1].jpg"]),
        (["d.jpg"], ["a.jpg", "b [1].jpg", "thumbs/c.jpg"]),
        (["b [1].jpg"], ["a.jpg", "sub/thumbs/d.jpg", "thumbs/c.jpg"]),
        (["*.jpg"], []),
        (["nothing"], ["a.jpg", "b [1].jpg", "sub/thumbs/d.jpg", "thumbs/c.jpg"]),
    ],
)
def test_what_matches_an_exclude_is_left_out_and_counted(tmp_path, patterns, left):
    put(tmp_path, "a.jpg", "b [1].jpg", "thumbs/c.jpg", "sub/thumbs/d.jpg")
    result = find_photos(tmp_path, exclude=patterns)
    assert [path.as_posix() for path in result.photos] == left
    assert result.ignored == 4 - len(left)


def test_the_output_inside_the_input_is_not_read_again(tmp_path):
    put(tmp_path, "a.jpg", "out/a_enhanced.png", "out/sub/b.png", "other/c.jpg")
    (tmp_path / "link").symlink_to(tmp_path / "out")
    assert found(tmp_path, leave_out=tmp_path / "out") == ["a.jpg", "other/c.jpg"]
    assert found(tmp_path, leave_out=tmp_path / "other" / ".." / "out") == ["a.jpg", "other/c.jpg"]
    assert len(found(tmp_path, leave_out=tmp_path / "not-there")) == 4


def test_the_input_folder_must_be_one_that_can_be_listed(tmp_path):
    put(tmp_path, "a.jpg")
    require_photo_folder(tmp_path)
    for path, words in (
        (tmp_path / "no", "does not exist"),
        (tmp_path / "a.jpg", "gpen enhance"),
        ("x" * 300, "listed"),
    ):
        with pytest.raises(UsageError, match=words):
            require_photo_folder(Path(path))


def as_nobody(script: str) -> str:
    """Output of a Python script run by a user with no rights; skips where that cannot be."""
    drop = f"import os\nif os.getuid() == 0: os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})\n"
    code = (
        "import sys, gpen_cli.sources as s, gpen_cli.errors\nfrom pathlib import Path\n"
        + drop
        + textwrap.dedent(script)
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd="/", timeout=60)
    if "PermissionError: [Errno 1]" in result.stderr:
        pytest.skip("this machine does not let us become another user")
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


@pytest.fixture
def closed():
    """A folder that others may list, with a photo and a folder in it that nobody else may read."""
    with tempfile.TemporaryDirectory() as name:  # pytest's own folders are closed to others
        folder = Path(name)
        if not all(parent.stat().st_mode & 0o001 for parent in folder.parents):
            pytest.skip("the folder for temporary files is closed to other users")
        folder.chmod(0o755)
        put(folder, "open.jpg", "locked/secret.jpg", "mine.jpg", "mine")
        (folder / "into").symlink_to(folder / "locked" / "secret.jpg")
        for entry in ("locked", "mine.jpg", "mine"):
            (folder / entry).chmod(0)
        yield folder
        (folder / "locked").chmod(0o700)


def test_folders_and_files_without_permission_do_not_stop_the_search(closed):
    assert (
        as_nobody(f"print([str(p) for p in s.find_photos(Path({str(closed)!r})).photos])") == "['mine.jpg', 'open.jpg']"
    )


def test_a_folder_that_cannot_be_listed_is_told(closed):
    script = f"print(s.find_photos(Path({str(closed)!r})).unseen)"
    assert "locked cannot be listed (Permission denied); its photos are left out." in as_nobody(script)


@pytest.mark.parametrize("name", ["locked", "locked/sub"])
def test_an_input_folder_without_permission_is_one_sentence(closed, name):
    script = f"""
    try: s.require_photo_folder(Path({str(closed / name)!r}))
    except gpen_cli.errors.UsageError as error: print(error)
    """
    assert "cannot be listed: Permission denied" in as_nobody(script)


@pytest.mark.parametrize("name", ["mine.jpg", "locked/secret.jpg"])
def test_a_photo_without_permission_is_one_sentence(closed, name):
    script = f"""
    try: s.read_source({str(closed / name)!r}, "photo.jpg")
    except gpen_cli.errors.PhotoError as error: print(error)
    """
    assert as_nobody(script) == "photo.jpg cannot be read: Permission denied; check the file and its permissions."


# -- files and standard input ------------------------------------------------------------------------------------------


def test_a_files_bytes_are_given_as_they_are(tmp_path):
    put(tmp_path, "a.jpg")
    put(tmp_path, "empty.jpg", content=b"")
    assert read_source(str(tmp_path / "a.jpg"), "a.jpg") == picture()
    assert read_source(str(tmp_path / "empty.jpg"), "empty.jpg") == b""  # the reader refuses it


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("gone.jpg", "gone.jpg does not exist"),
        ("folder", "folder is a folder; .*gpen batch folder OUTPUT"),
        ("a.jpg/b.jpg", "cannot be read"),
        ("x" * 300, "cannot be read"),
        ("nul\0byte", "cannot be read"),
    ],
)
def test_what_is_no_file_is_one_sentence_with_the_name(tmp_path, monkeypatch, path, words):
    monkeypatch.chdir(tmp_path)
    put(tmp_path, "folder/a.jpg", "a.jpg")
    with pytest.raises(PhotoError, match=words) as caught:
        read_source(path, path)
    assert str(caught.value).startswith(path)


def test_standard_input_is_read_whole_and_empty_input_explained(monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(picture())))
    assert read_source("-", "-") == picture()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"")))
    with pytest.raises(PhotoError, match="Standard input is empty; pipe a picture"):
        read_source("-", "-")


# -- the web -----------------------------------------------------------------------------------------------------------


class Site(BaseHTTPRequestHandler):
    """A server with every fault that matters."""

    def do_GET(self):
        path, _, query = self.path.partition("?")
        if path.startswith("/to/"):
            return self.answer(302, Location=query)
        if path == "/loop":
            return self.answer(302, Location="/loop")
        if path == "/web-page":
            return self.answer(200, b"<!DOCTYPE html><html>not found, sorry</html>")
        if path == "/endless":
            return self.pour(b"x" * 65536, pause=0)
        if path == "/drip":
            return self.pour(b"x", pause=0.05)
        if path == "/drip-headers":
            return self.drip_headers()
        if path == "/silent":
            return self.server.stop.wait(20)
        if path == "/cut":
            return self.answer(200, picture()[:100], **{"Content-Length": "5000"})
        if path == "/cut-chunks":
            return self.answer(200, b"ffff\r\nonly this", **{"Transfer-Encoding": "chunked"})
        if path == "/huge":
            return self.answer(200, b"x", **{"Content-Length": str(10**12)})
        if path == "/nonsense":
            return self.wfile.write(b"what? " * 20 + b"\r\n\r\n")
        if path in ("/face.jpg", "/my%20face%20%E6%97%A5.jpg"):
            return self.answer(200, picture())
        return self.answer(404)

    def answer(self, code, body=b"", **headers):
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def pour(self, block, *, pause):
        self.answer(200)
        try:
            while not self.server.stop.wait(pause):
                self.wfile.write(block)
        except OSError:
            return  # the client had enough

    def drip_headers(self):
        try:
            self.wfile.write(b"HTTP/1.0 200 OK\r\nX: ")
            while not self.server.stop.wait(0.05):
                self.wfile.write(b"x")
        except OSError:
            return

    def log_message(self, *args):
        """Says nothing."""


@pytest.fixture(scope="module")
def site():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Site)
    server.daemon_threads = True
    server.stop = threading.Event()
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.stop.set()
    server.shutdown()
    server.server_close()


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1,localhost")


def fetch(url: str) -> bytes:
    """As with --allow-private-urls: the server of these tests is on this machine."""
    return read_source(url, "x", allow_private_urls=True)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]"])
def test_this_machines_own_addresses_are_refused_unless_allowed(site, host, monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    url = site.replace("127.0.0.1", host) + "/face.jpg"
    with pytest.raises(PhotoError, match=r"--allow-private-urls|cannot be fetched"):
        read_source(url, "x")
    if host == "127.0.0.1":
        with pytest.raises(PhotoError, match="private network; give --allow-private-urls"):
            read_source(url, "x")


def refused(url: str) -> str:
    """The sentence; and whatever goes wrong, it is one sentence that names the address."""
    with pytest.raises(PhotoError) as caught:
        fetch(url)
    sentence = str(caught.value)
    assert sentence.startswith(url)
    assert "\n" not in sentence
    return sentence


@pytest.mark.parametrize(
    "path", ["/face.jpg", "/face.jpg?size=2#part", "/my face 日.jpg", "/my%20face%20%E6%97%A5.jpg"]
)
def test_a_picture_is_fetched(site, path):
    assert fetch(site + path) == picture()


def test_a_redirect_on_the_web_is_followed(site):
    assert fetch(f"{site}/to/?{site}/face.jpg") == picture()


@pytest.mark.parametrize("where", ["file:///etc/passwd", "ftp://127.0.0.1:9/x.jpg", "data:image/png;base64,AAAA"])
def test_a_redirect_off_the_web_is_refused(site, where, tmp_path):
    sentence = refused(f"{site}/to/?{where}")
    assert any(words in sentence for words in ("which is no http(s) address", "is not allowed")), sentence


def test_redirects_in_a_circle_end(site):
    assert "302" in refused(site + "/loop")


def test_a_missing_page_is_told_with_its_number(site):
    assert "the server answered 404 Not Found; check the address" in refused(site + "/nothing.jpg")


def test_a_web_page_in_place_of_a_picture_is_fetched_and_refused_by_the_reader(site):
    data = fetch(site + "/web-page")
    with pytest.raises(PhotoError, match="x is a text file"):
        read_photo(data, "x", ReadOptions())


def test_a_body_without_end_is_stopped_at_the_limit(site, monkeypatch):
    monkeypatch.setattr(fetch_module, "URL_LIMIT_BYTES", 2**20)
    assert "is larger than 1 MB" in refused(site + "/endless")


def test_a_body_announced_too_large_is_not_begun(site):
    assert "is larger than 200 MB" in refused(site + "/huge")


def test_a_body_of_just_the_limit_is_taken(site, monkeypatch):
    monkeypatch.setattr(fetch_module, "URL_LIMIT_BYTES", len(picture()))
    assert fetch(site + "/face.jpg") == picture()
    monkeypatch.setattr(fetch_module, "URL_LIMIT_BYTES", len(picture()) - 1)
    refused(site + "/face.jpg")


def test_a_body_cut_off_is_told_not_passed_on(site):
    assert "was cut off after 100 of 5,000 bytes" in refused(site + "/cut")


@pytest.mark.parametrize("path", ["/cut-chunks", "/nonsense"])
def test_an_answer_that_breaks_the_protocol_is_one_sentence(site, path):
    assert "cannot be fetched" in refused(site + path)


def test_a_silent_server_is_given_up(site, monkeypatch):
    monkeypatch.setattr(fetch_module, "URL_SILENCE_SECONDS", 0.2)
    begin = time.monotonic()
    assert "timed out" in refused(site + "/silent")
    assert time.monotonic() - begin < 5


@pytest.mark.parametrize("path", ["/drip", "/drip-headers"])
def test_a_server_that_drips_is_given_up_though_it_is_never_silent(site, monkeypatch, path):
    monkeypatch.setattr(fetch_module, "URL_TOTAL_SECONDS", 0.4)
    begin = time.monotonic()
    assert "did not arrive within 0.4 s" in refused(site + path)
    assert time.monotonic() - begin < 5


def test_what_was_given_up_is_also_ended(site, monkeypatch):
    monkeypatch.setattr(fetch_module, "URL_TOTAL_SECONDS", 0.2)
    before = fetching()
    refused(site + "/drip")
    end = time.monotonic() + 5
    while fetching() > before and time.monotonic() < end:
        time.sleep(0.02)
    assert fetching() <= before


def fetching() -> int:
    return sum(thread.name == "gpen-fetch" for thread in threading.enumerate())


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:1/x.jpg",
        "http://127.0.0.1:port/x.jpg",
        "http://[::1/x.jpg",
        "http:///x.jpg",
        "http://",
        "http://127.0.0.1:1/\udcff.jpg",
        "http://a..b/x.jpg",
    ],
)
def test_an_address_that_leads_nowhere_is_one_sentence(url):
    assert "cannot be fetched" in refused(url)
