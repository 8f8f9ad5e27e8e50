"""How the server is reached and what it takes; what is done to photos is said in ``gpen_cli.options``."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

from gpen_cli.errors import UsageError

LEAST_TOKEN = 12
"""Characters of a token: below, guessing it over a fast network becomes thinkable."""


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches ``host``."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True)
class ServeSettings:
    """max_upload: bytes of a file; batch_window: seconds, see ``gpen_cli.batcher``; max_queue: requests taken in at once, those
    that wait included; timeout: seconds of a request; token: None lets everybody in, which on another host than this
    machine's own needs allow_open."""

    host: str = "127.0.0.1"
    port: int = 7860
    token: str | None = None
    allow_open: bool = False
    max_upload: int = 10_000_000
    batch_window: float = 0.3
    max_queue: int = 64
    timeout: float = 60.0

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise UsageError(f"--port {self.port} is out of range; give a value from 0 (any free one) to 65535.")
        if not 1 <= self.max_upload <= 2**31:
            raise UsageError(f"--max-upload {self.max_upload} is out of range; give bytes, from 1 to 2G.")
        if not 0 <= self.batch_window <= 0.3:  # also refuses NaN
            raise UsageError(
                f"--batch-window {self.batch_window:g} is out of range; give seconds, from 0 (never wait) to 0.3."
            )
        if not 1 <= self.max_queue <= 10_000:
            raise UsageError(f"--max-queue {self.max_queue} is out of range; give a value from 1 to 10000.")
        if not 0.1 <= self.timeout <= 86400:  # also refuses NaN
            raise UsageError(f"--timeout {self.timeout:g} is out of range; give seconds, from 0.1 to 86400.")
        if self.token is not None:
            _check_token(self.token)
        elif not is_loopback(self.host) and not self.allow_open:
            raise UsageError(
                f"--host {self.host} lets other machines in; give --token SECRET (auto makes one), or --allow-open to let "
                "everybody restore photos here."
            )


def _check_token(token: str) -> None:
    """The token itself is not repeated: messages end up in logs."""
    if len(token) < LEAST_TOKEN:
        raise UsageError(f"The token has fewer than {LEAST_TOKEN} characters; give a longer one, or --token auto.")
    if not all("!" <= letter <= "~" for letter in token) or any(letter in '"&%#+;,\\' for letter in token):
        raise UsageError("The token may hold letters, digits and signs like - _ . only: it becomes part of a link.")
