"""Photos from the web: limited in size and time, only over http(s), and not from inside the user's own network.

A list of addresses may come from strangers. What answers on this machine or the local network (a router's page, a cloud's
metadata service) is none of their business, so the address really connected to is looked at, after names are resolved and
again at each redirect.
"""

from __future__ import annotations

import http.client
import ipaddress
import socket
import threading
import time
import urllib.error
import urllib.request
from concurrent.futures import Future, wait
from typing import Any
from urllib.parse import quote

from gpen_cli.errors import PhotoError

URL_LIMIT_BYTES = 200 * 1024 * 1024
URL_SILENCE_SECONDS = 30.0
URL_TOTAL_SECONDS = 300.0
_BLOCK = 1 << 20
_WEB = frozenset({"http", "https", "all"})  # the keys of urllib's proxy settings that concern us
_REASON_LENGTH = 200
_RESERVED_IN_URLS = "%/:=&?~#+!$,;'@()*[]"  # RFC 3986, section 2.2, and what is escaped already


def is_url(source: str) -> bool:
    return source.lower().startswith(("http://", "https://"))


class _PrivateAddressError(OSError):
    """The server answers on an address of this machine or of a private network."""


def _connect_publicly(address: tuple[str, int], *arguments: Any, **options: Any) -> socket.socket:
    """``socket.create_connection``, hung up again at once when the other end is no public address."""
    connection = socket.create_connection(address, *arguments, **options)
    other_end = ipaddress.ip_address(connection.getpeername()[0].partition("%")[0])
    mapped = getattr(other_end, "ipv4_mapped", None)
    if not (mapped or other_end).is_global:
        connection.close()
        raise _PrivateAddressError(f"{address[0]} is {other_end}")
    return connection


class _PublicHTTP(http.client.HTTPConnection):
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._create_connection = _connect_publicly


class _PublicHTTPS(http.client.HTTPSConnection):
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._create_connection = _connect_publicly


class _PublicHTTPHandler(urllib.request.HTTPHandler):
    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_PublicHTTP, req)


class _PublicHTTPSHandler(urllib.request.HTTPSHandler):
    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_PublicHTTPS, req)


def _opener(allow_private: bool) -> urllib.request.OpenerDirector:
    if allow_private or not _WEB.isdisjoint(urllib.request.getproxies()):
        # Through a proxy, the proxy is the one that connects, and the one to forbid things.
        return urllib.request.build_opener(_WebRedirects)
    return urllib.request.build_opener(_WebRedirects, _PublicHTTPHandler, _PublicHTTPSHandler)


def _private(url: str, error: _PrivateAddressError) -> PhotoError:
    return PhotoError(
        f"{url} cannot be fetched: {error}, an address of this machine or a private network; "
        "give --allow-private-urls if that is meant."
    )


class _WebRedirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects from web address to web address only; urllib would also go on to ftp."""

    def redirect_request(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        if not is_url(newurl):
            raise urllib.error.URLError(f"it sends on to {newurl}, which is no http(s) address")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def fetch_url(url: str, *, allow_private: bool = False) -> bytes:
    """Fetches at most 200 MB, within 30 s of silence and 5 minutes in all. What came is checked by the reader, like any
    file. allow_private: also from this machine's own and private addresses. Raises PhotoError."""
    answer: Future[bytes] = Future()
    deadline = time.monotonic() + URL_TOTAL_SECONDS

    def fetch() -> None:
        try:
            answer.set_result(_fetch(url, deadline, allow_private))
        except BaseException as error:  # noqa: BLE001  raised where the answer is waited for
            answer.set_exception(error)

    # On a thread of its own, left behind at the deadline: a socket's timeout does not bound a server that drips headers.
    threading.Thread(target=fetch, name="gpen-fetch", daemon=True).start()
    if not wait([answer], timeout=URL_TOTAL_SECONDS).done:
        raise _too_slow(url)
    return answer.result()


def _fetch(url: str, deadline: float, allow_private: bool) -> bytes:
    opener = _opener(allow_private)
    try:
        request = urllib.request.Request(quote(url, safe=_RESERVED_IN_URLS), headers={"User-Agent": "gpen"})
        with opener.open(request, timeout=URL_SILENCE_SECONDS) as response:
            return _read_limited(response, url, deadline)
    except _PrivateAddressError as error:
        raise _private(url, error) from error
    except urllib.error.HTTPError as error:
        answer = f"the server answered {error.code} {_one_line(error.reason)}"
        raise PhotoError(f"{url} cannot be fetched: {answer}; check the address.") from error
    except (OSError, ValueError, http.client.HTTPException) as error:  # URLError is an OSError
        if isinstance(reason := getattr(error, "reason", None), _PrivateAddressError):
            raise _private(url, reason) from error
        reason = _one_line(getattr(error, "reason", error))
        raise PhotoError(f"{url} cannot be fetched: {reason}; check the address and the network.") from error


def _one_line(reason: object) -> str:
    """What a server or a library says, fit for one sentence."""
    return " ".join(str(reason).split())[:_REASON_LENGTH] or type(reason).__name__


def _read_limited(response: http.client.HTTPResponse, url: str, deadline: float) -> bytes:
    announced = int(response.headers.get("Content-Length") or 0)
    blocks: list[bytes] = []
    total = 0
    while announced <= URL_LIMIT_BYTES and (block := response.read1(_BLOCK)):
        blocks.append(block)
        total += len(block)
        if total > URL_LIMIT_BYTES:
            break
        if time.monotonic() > deadline:
            raise _too_slow(url)
    if max(announced, total) > URL_LIMIT_BYTES:
        raise PhotoError(f"{url} is larger than {URL_LIMIT_BYTES / 2**20:g} MB; download it and name the file.")
    if total < announced:
        raise PhotoError(f"{url} was cut off after {total:,} of {announced:,} bytes; try again.")
    return b"".join(blocks)


def _too_slow(url: str) -> PhotoError:
    return PhotoError(f"{url} did not arrive within {URL_TOTAL_SECONDS:g} s; download it and name the file.")
