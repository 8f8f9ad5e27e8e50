"""What goes wrong with a request, as problem details (RFC 9457): a status, a kind, one sentence. Never a path or traceback."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping

from fastapi.responses import Response

from gpen_cli.errors import DeviceError, PhotoError, TooManyPixelsError, UsageError, WeightsError
from gpen_cli.runtime.protocol import NetMemoryError

log = logging.getLogger(__name__)

PROBLEM_TYPE = "application/problem+json"
TITLES = {
    "bad-request": "The request cannot be read",
    "no-image": "No picture came along",
    "not-a-picture": "The file is no picture that can be read",
    "token-needed": "A token is needed",
    "foreign-page": "Another site asks",
    "not-found": "There is nothing here",
    "method-not-allowed": "This is asked for in another way",
    "too-slow": "The upload took too long",
    "too-large": "The picture is too large",
    "wrong-type": "The body is no form",
    "bad-value": "A value is not allowed",
    "no-face": "No face was restored",
    "queue-full": "Too many requests",
    "bug": "An error inside gpen",
    "not-ready": "The server cannot do this now",
    "timeout": "It took too long",
}


class Problem(Exception):  # noqa: N818  named as RFC 9457 names it
    """An answer that is no picture. kind: a key of ``TITLES``; detail: one sentence for the one who asked."""

    def __init__(self, status: int, kind: str, detail: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.kind = kind
        self.detail = detail
        self.headers = dict(headers or {})

    def response(self, request_id: str) -> Response:
        """The answer, as application/problem+json."""
        body = {
            "type": f"urn:gpen:{self.kind}",
            "title": TITLES[self.kind],
            "status": self.status,
            "detail": self.detail,
            "instance": f"urn:gpen:request:{request_id}",
        }
        return Response(json.dumps(body), self.status, headers=self.headers, media_type=PROBLEM_TYPE)


def closing() -> Problem:
    """For requests that were not begun when the server was told to stop."""
    return Problem(503, "not-ready", "The server is closing; ask again in a moment.")


def problem_of(error: Exception, request_id: str) -> Problem:
    """What a client hears of an error. Whatever is not the photo's or the request's fault is logged, not told."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, UsageError):
        return Problem(422, "bad-value", api_words(str(error)))
    if isinstance(error, NetMemoryError | MemoryError):
        log.error("%s: %s", request_id, error or "out of memory")
        return Problem(503, "not-ready", "The memory of the server does not hold this picture; try a smaller size.")
    if isinstance(error, TooManyPixelsError):
        return Problem(413, "too-large", api_words(str(error)))
    if isinstance(error, PhotoError):
        return Problem(400, "not-a-picture", api_words(str(error)))
    if isinstance(error, WeightsError | DeviceError):
        log.error("%s: %s", request_id, error)
        return Problem(
            503, "not-ready", "The server's net or device failed; whoever runs it finds the reason in its log."
        )
    log.error("%s: an error inside gpen; please report it with the lines below.", request_id, exc_info=error)
    sentence = f"An error inside gpen; whoever runs this server finds it in the log under {request_id}."
    return Problem(500, "bug", sentence)


def api_words(sentence: str) -> str:
    """A sentence made for the command line, with the names of form fields in place of flags."""
    sentence = sentence.replace(", or raise --max-pixels", "").replace(" (--sharp-faces restore overrides)", "")
    return re.sub(r"--([a-z][a-z-]*)", lambda found: found[1].replace("-", "_"), sentence)
