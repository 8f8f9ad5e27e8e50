"""The socket and uvicorn around the application."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable

import uvicorn
from fastapi import FastAPI

from gpen_cli.errors import UsageError
from gpen_cli.serve.settings import ServeSettings

_BACKLOG = 1024
_EVERYWHERE = ("0.0.0.0", "::", "")


def open_socket(host: str, port: int) -> socket.socket:
    """A listening socket, so that a taken port is known before nets are loaded. Raises UsageError."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (socket.gaierror, UnicodeError) as error:
        raise UsageError(f"--host {host} is no address of this machine; give 127.0.0.1, or 0.0.0.0 for all.") from error
    listener = socket.socket(family, kind, protocol)
    try:
        if hasattr(socket, "SO_REUSEADDR") and hasattr(socket, "AF_UNIX"):  # on Windows it would share a taken port
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise UsageError(f"Port {port} on {host} is taken by another program; give --port another.") from error
        if error.errno == errno.EACCES:
            raise UsageError(f"Port {port} may not be used by this user; give --port 7860 or another.") from error
        raise UsageError(f"--host {host} --port {port} cannot be used: {error.strerror or error}.") from error
    return listener


def link(listener: socket.socket, settings: ServeSettings) -> str:
    """What opens the page on this machine, token and all."""
    port = listener.getsockname()[1]
    host = "localhost" if settings.host in _EVERYWHERE else settings.host
    host = f"[{host}]" if ":" in host else host
    return f"http://{host}:{port}/" + (f"?token={settings.token}" if settings.token else "")


def run_server(app: FastAPI, listener: socket.socket, settings: ServeSettings, started: Callable[[], None]) -> None:
    """Answers until Ctrl-C or SIGTERM, then finishes what runs and hands the signal on to who listened before."""
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="on",
        ws="none",
        timeout_graceful_shutdown=int(settings.timeout) + 1,
        h11_max_incomplete_event_size=65536,
    )
    server = _Server(config, started)
    server.run(sockets=[listener])


class _Server(uvicorn.Server):
    """uvicorn's, saying when it has begun."""

    def __init__(self, config: uvicorn.Config, started: Callable[[], None]) -> None:
        super().__init__(config)
        self._say_started = started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        if self.started:
            self._say_started()
