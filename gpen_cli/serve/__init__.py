"""``gpen serve``: an HTTP API and a page on one loaded engine. Needs the extra ``serve`` (FastAPI, uvicorn)."""
