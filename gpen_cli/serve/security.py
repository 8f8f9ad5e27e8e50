"""Who may ask, and what browsers may do with the answers. Nothing here is asked of other machines or written down."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from http.cookies import CookieError, SimpleCookie

from gpen_cli.serve.problems import Problem
from gpen_cli.serve.settings import ServeSettings, is_loopback

COOKIE = "gpen_pass"
OPEN_PATHS = ("/healthz",)
"""Asked by health checks, which hold no token; they tell nothing but yes or no."""

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Doorkeeper:
    """Decides from a request's head. Compares in constant time; a link's token becomes a cookie that is not the token."""

    def __init__(self, settings: ServeSettings) -> None:
        self._token = settings.token.encode() if settings.token is not None else None
        self._pass = hmac.new(self._token or b"", b"gpen serve cookie", hashlib.sha256).hexdigest()
        # Without a token, another site's name that is made to point at this machine (DNS rebinding) must not get in.
        self._hosts = None if settings.token or settings.allow_open else _own_names(settings.host)

    def check(self, path: str, headers: Mapping[str, str]) -> None:
        """headers: lower-case names. Raises Problem 401 or 403."""
        host = headers.get("host", "")
        if self._hosts is not None and _without_port(host) not in self._hosts:
            raise Problem(403, "foreign-page", "This server answers under its own name only; open the link it printed.")
        origin = headers.get("origin")
        if origin is not None and origin.partition("://")[2] != host:
            raise Problem(403, "foreign-page", "Pages of other sites may not use this server.")
        if self._token is None or path in OPEN_PATHS:
            return
        if not (self._is_token(_bearer(headers)) or self._has_pass(headers)):
            sentence = "Send the token as Authorization: Bearer TOKEN, or open the link that the server printed."
            raise Problem(401, "token-needed", sentence, {"WWW-Authenticate": 'Bearer realm="gpen"'})

    def cookie_for(self, token: str, *, secure: bool) -> str | None:
        """The Set-Cookie header for who comes by the link; None when its token is wrong or none is needed."""
        if self._token is None or not self._is_token(token):
            return None
        return f"{COOKIE}={self._pass}; Path=/; HttpOnly; SameSite=Lax" + ("; Secure" if secure else "")

    def _is_token(self, given: str) -> bool:
        return self._token is not None and hmac.compare_digest(given.encode("utf-8", "replace"), self._token)

    def _has_pass(self, headers: Mapping[str, str]) -> bool:
        try:
            cookie = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
        except CookieError:
            return False
        return cookie is not None and hmac.compare_digest(cookie.value.encode(), self._pass.encode())


def _bearer(headers: Mapping[str, str]) -> str:
    kind, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if kind.lower() == "bearer" else ""


def _own_names(host: str) -> frozenset[str]:
    return frozenset({host, "localhost", "127.0.0.1", "::1"}) if is_loopback(host) else frozenset({host})


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.rpartition(":")[0] if host.count(":") == 1 else host
