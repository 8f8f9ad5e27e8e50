"""``gpen serve``: an HTTP API and a page for the browser on one loaded engine."""

from __future__ import annotations

import os
import re
import secrets
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from gpen_cli.cli.enhance import log_level
from gpen_cli.cli.exits import exit_codes, text_may_go_unread
from gpen_cli.cli.flags import SharedFlags
from gpen_cli.cli.shared_flags import build_options, with_shared_flags
from gpen_cli.errors import DeviceError, UsageError
from gpen_cli.options import Options

if TYPE_CHECKING:
    from gpen_cli.engine import Engine
    from gpen_cli.serve.settings import ServeSettings

TOKEN_VARIABLE = "GPEN_TOKEN"
MAKE_TOKEN = "auto"
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "kib": 2**10, "mib": 2**20, "gib": 2**30}
_SERVER = "Server"

ENGINE_FLAGS = (
    "fidelity_weight", "sharpen", "color_fix", "mask", "guard", "sharp_faces", "strip_metadata",
    "min_face", "max_face", "max_faces", "try_rotations", "det_threshold", "det_size", "detector", "template",
    "model", "weights", "device", "precision", "runtime", "compile", "provider", "batch_size", "threads", "workers",
    "log_level", "log_file", "quiet",
)  # fmt: skip
"""What is fixed when the server starts, or is what a request gets that does not say otherwise."""


def _serve(
    host: Annotated[
        str,
        typer.Option(
            "--host",
            rich_help_panel=_SERVER,
            help="Address to listen on. Any other than this machine's own needs --token or --allow-open.",
        ),
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", metavar="N", rich_help_panel=_SERVER, help="0 takes any free one.")
    ] = 7860,
    token: Annotated[
        str | None,
        typer.Option(
            "--token",
            metavar="SECRET|auto",
            rich_help_panel=_SERVER,
            help=f"Who asks must know it; {TOKEN_VARIABLE} in the environment is better hidden. auto: {TOKEN_VARIABLE}, or "
            "one made now.",
        ),
    ] = None,
    allow_open: Annotated[
        bool, typer.Option("--allow-open", rich_help_panel=_SERVER, help="Let everybody on the network in.")
    ] = False,
    max_upload: Annotated[
        str, typer.Option("--max-upload", metavar="BYTES", rich_help_panel=_SERVER, help="Largest file: 10MB, 2e7 …")
    ] = "10MB",
    max_pixels: Annotated[
        str,
        typer.Option("--max-pixels", metavar="N", rich_help_panel=_SERVER, help="Largest photo: 50M is 50 million."),
    ] = "50M",
    batch_window: Annotated[
        float,
        typer.Option(
            "--batch-window",
            metavar="SECONDS",
            rich_help_panel=_SERVER,
            help="Longest wait of a face for faces of photos that are being read, to share their pass; 0 to 0.3.",
        ),
    ] = 0.3,
    max_queue: Annotated[
        int, typer.Option("--max-queue", metavar="N", rich_help_panel=_SERVER, help="Requests taken in at once.")
    ] = 64,
    timeout: Annotated[
        float, typer.Option("--timeout", metavar="SECONDS", rich_help_panel=_SERVER, help="Longest wait of a request.")
    ] = 60.0,
    *,
    shared: SharedFlags,
) -> None:
    """Serve an HTTP API and a web page that restores photos dropped on it (docs/serve.md).

    Prints one link that opens the page. Nothing that is sent is written to disk. Ctrl-C ends it.
    """
    from gpen_cli import log
    from gpen_cli.cli.files import require_log_file

    with exit_codes("the server is closed"):
        require_log_file(shared.log_file)
        log.set_up(log_level(shared, "info"), shared.log_file)
        _require_extra()
        from gpen_cli.serve.settings import ServeSettings

        settings = ServeSettings(
            host=host,
            port=port,
            token=_token(token),
            allow_open=allow_open,
            max_upload=parse_amount("--max-upload", max_upload),
            batch_window=batch_window,
            max_queue=max_queue,
            timeout=timeout,
        )
        options = build_options(shared)
        pixels = parse_amount("--max-pixels", max_pixels)
        options = replace(options, read=replace(options.read, max_pixels=pixels))
        run(settings, options)


serve = with_shared_flags(_serve, only=ENGINE_FLAGS)


def run(settings: ServeSettings, options: Options, *, engine: Engine | None = None) -> None:
    """Listens, loads, warms up, then answers until it is told to stop. engine: a stand-in of a test."""
    import logging

    from gpen_cli.engine import build_engine, describe_choice
    from gpen_cli.serve.app import create_app
    from gpen_cli.serve.listen import link, open_socket, run_server
    from gpen_cli.serve.settings import is_loopback
    from gpen_cli.serve.work import Studio

    log = logging.getLogger(__name__)
    if settings.token is None and not is_loopback(settings.host):
        log.warning(
            "--allow-open: everybody who reaches %s can restore photos here, unencrypted and without a token.",
            settings.host,
        )
    with open_socket(settings.host, settings.port) as listener:
        engine = engine or build_engine(options, photos=None)
        for choice in engine.choices:
            log.info("%s", describe_choice(choice, engine))
        log.info("detector: %s", engine.detector_name)
        studio = Studio(engine, options, batch_window=settings.batch_window)
        try:
            studio.warm()
            app = create_app(studio, settings)
            run_server(app, listener, settings, lambda: _print_link(link(listener, settings)))
        finally:
            studio.close()


def _print_link(link: str) -> None:
    with text_may_go_unread():
        print(link)


def _require_extra() -> None:
    from gpen_cli.device import has_package

    missing = [name for name in ("fastapi", "uvicorn", "python_multipart") if not has_package(name)]
    if missing:
        raise DeviceError(
            "gpen serve needs FastAPI and uvicorn, which are not installed: pip install 'gpen-cli[serve]'"
        )


def _token(flag: str | None) -> str | None:
    """The flag's, else the environment's; ``auto``: the environment's, else a new one."""
    given = os.environ.get(TOKEN_VARIABLE) or None
    if flag == MAKE_TOKEN:
        return given or secrets.token_urlsafe(24)
    if flag == "":
        raise UsageError("--token is empty; give a secret, or auto.")
    return flag or given


def parse_amount(flag: str, text: str) -> int:
    """``10MB``, ``50M``, ``2e7``, ``1GiB`` -> a whole number. Raises UsageError."""
    found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?(?:e[0-9]{1,2})?)\s*([kmg](?:ib)?|)b?\s*", text.lower())
    if found is None:
        raise UsageError(f"{flag} {text!r} is no amount; give a number, with k, M or G if you like: 10MB, 50M.")
    return int(float(found[1]) * _UNITS[found[2]])
