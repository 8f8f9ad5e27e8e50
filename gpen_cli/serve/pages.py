"""The page's files: read once, served from memory, nothing fetched from elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files

PAGE = "index.html"
FILES = {
    PAGE: "text/html; charset=utf-8",
    "app.css": "text/css; charset=utf-8",
    "app.js": "text/javascript; charset=utf-8",
    "progress.js": "text/javascript; charset=utf-8",
    "server.js": "text/javascript; charset=utf-8",
    "viewer.js": "text/javascript; charset=utf-8",
    "words.js": "text/javascript; charset=utf-8",
    "zip.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}


@dataclass(frozen=True)
class PageFile:
    """One file, ready to be sent."""

    data: bytes
    media_type: str


def load_pages() -> dict[str, PageFile]:
    """By path: ``/`` and ``/app.js`` and so on."""
    folder = files("gpen_cli.serve") / "page"
    loaded = {name: PageFile((folder / name).read_bytes(), media_type) for name, media_type in FILES.items()}
    return {"/" if name == PAGE else f"/{name}": file for name, file in loaded.items()}
