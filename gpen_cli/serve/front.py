"""The outermost layer: numbers each request, lets it in or not, sets the headers that browsers heed, counts and logs."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Collection
from urllib.parse import parse_qs

from fastapi.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gpen_cli.serve.metrics import Metrics
from gpen_cli.serve.problems import Problem
from gpen_cli.serve.security import HEADERS, Doorkeeper

log = logging.getLogger(__name__)

_CLIENT_GONE = 499
"""Counted, never sent: nobody was there to be answered (nginx's number)."""
_LOCKED_PAGE = (
    '<!doctype html><html lang="en"><meta charset="utf-8"><title>gpen</title>'
    "<p>This page is opened by its link: the one with ?token= that the server printed when it was started.</p>"
    '<p lang="zh">请使用服务器启动时打印的带有 ?token= 的链接打开本页。</p></html>'
)


class Front:
    """An ASGI application around another. paths: those that are counted under their own name."""

    def __init__(self, app: ASGIApp, *, doorkeeper: Doorkeeper, metrics: Metrics, paths: Collection[str]) -> None:
        self._app = app
        self._doorkeeper = doorkeeper
        self._metrics = metrics
        self._paths = frozenset(paths)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = secrets.token_hex(6)
        scope.setdefault("state", {})["request_id"] = request_id
        begin = time.perf_counter()
        status = _CLIENT_GONE

        async def send_on(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                given = {name.lower() for name, _ in message["headers"]}
                own = {**HEADERS, "X-Request-Id": request_id}
                message["headers"] = [
                    *message["headers"],
                    *(
                        (name.encode(), value.encode())
                        for name, value in own.items()
                        if name.lower().encode() not in given
                    ),
                ]
            await send(message)

        try:
            refusal = self._refusal(scope, request_id)
            await (refusal or self._app)(scope, receive, send_on)
        finally:
            seconds = time.perf_counter() - begin
            path = scope["path"] if scope["path"] in self._paths else "other"
            self._metrics.add_request(path, status, seconds)
            level = logging.DEBUG if path in ("/healthz", "/metrics", "/status") else logging.INFO
            log.log(level, "%s: %s %s %d, %.2f s", request_id, scope["method"], path, status, seconds)

    def _refusal(self, scope: Scope, request_id: str) -> Response | None:
        """What is answered at once, without the application: a link's cookie, or who may not come in."""
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        path, method = scope["path"], scope["method"]
        if path == "/" and method == "GET" and b"token=" in scope["query_string"]:
            token = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
            cookie = self._doorkeeper.cookie_for(token, secure=scope["scheme"] == "https")
            home = {"Location": "./"}  # the token leaves the address bar, and with it the history
            return Response(status_code=303, headers={**home, "Set-Cookie": cookie} if cookie else home)
        try:
            self._doorkeeper.check(path, headers)
        except Problem as problem:
            if path == "/" and problem.status == 401 and "text/html" in headers.get("accept", ""):
                return Response(_LOCKED_PAGE, 401, headers=problem.headers, media_type="text/html")
            return problem.response(request_id)
        return None
