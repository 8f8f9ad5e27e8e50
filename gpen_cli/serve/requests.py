"""From a request's body to a picture's bytes and what is asked for. Bodies are read as they come, into memory, within limits."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from fastapi import Request
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from gpen_cli.detect.region import Region
from gpen_cli.errors import UsageError
from gpen_cli.options import Options, parse_number, parse_whole
from gpen_cli.serve.admission import Upload
from gpen_cli.serve.problems import Problem

if TYPE_CHECKING:  # there for type checkers only
    from python_multipart.multipart import MultipartCallbacks

# What it has to say stands in the answer, and in our log.
logging.getLogger("python_multipart").setLevel(logging.CRITICAL)

IMAGE = "image"
FIELDS = (
    "fidelity_weight", "upscale", "color_fix", "sharpen", "format", "quality", "model", "faces", "no_face",
    "allow_truncated",
)  # fmt: skip
_FIELD_BYTES = 256
_NAME_LENGTH = 80
_AROUND_BYTES = 65536
"""What boundaries, heads and fields of a form may take besides the picture."""


@dataclass(frozen=True)
class Ask:
    """What a request asks for. model: None for all that are loaded; region: None for the whole photo."""

    options: Options
    model: str | None = None
    region: Region | None = None


@dataclass(frozen=True)
class Form:
    """A body, taken apart. name: the file's own, without folders."""

    image: bytes
    name: str
    fields: Mapping[str, str] = field(default_factory=dict)


async def read_form(request: Request, upload: Upload, *, max_upload: int, seconds: float) -> Form:
    """Reads a multipart body within its limits. Raises Problem (400, 408, 413, 415, 429), ClientDisconnect."""
    kind, parameters = parse_options_header(request.headers.get("content-type"))
    boundary = parameters.get(b"boundary")
    if kind != b"multipart/form-data" or not boundary:
        raise Problem(415, "wrong-type", "Send the picture as multipart/form-data, in the field image.")
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length) > max_upload + _AROUND_BYTES:
        raise _too_large(max_upload)
    parts = _Parts(upload, max_upload)
    try:
        await asyncio.wait_for(_feed(request, boundary, parts, max_upload), seconds)
    except asyncio.TimeoutError:  # the built-in one only from Python 3.11 on
        raise Problem(408, "too-slow", f"The picture did not arrive within {seconds:g} s; try again.") from None
    except FormParserError:
        raise Problem(400, "bad-request", "The form cannot be read; send it as multipart/form-data.") from None
    return parts.form()


async def _feed(request: Request, boundary: bytes, parts: _Parts, max_upload: int) -> None:
    parser = MultipartParser(boundary, parts.callbacks())
    total = 0
    async for chunk in request.stream():
        total += len(chunk)
        if total > max_upload + _AROUND_BYTES:
            raise _too_large(max_upload)
        parser.write(chunk)
    parser.finalize()


def _too_large(limit: int) -> Problem:
    return Problem(413, "too-large", f"The file is larger than {limit / 1e6:g} MB, the limit here; send a smaller one.")


class _Parts:
    """Takes a form apart as the parser goes through it. Only the picture and short fields are kept."""

    def __init__(self, upload: Upload, max_upload: int) -> None:
        self._upload = upload
        self._max_upload = max_upload
        self._image: bytearray | None = None
        self._file_name = ""
        self._fields: dict[str, str] = {}
        self._header = [bytearray(), bytearray()]
        self._part: tuple[str, str] = ("", "")
        self._value = bytearray()
        self._done = False

    def callbacks(self) -> MultipartCallbacks:
        return {
            "on_part_begin": self._begin,
            "on_header_field": lambda data, start, end: self._header[0].extend(data[start:end]),
            "on_header_value": lambda data, start, end: self._header[1].extend(data[start:end]),
            "on_header_end": self._header_end,
            "on_headers_finished": self._headers_finished,
            "on_part_data": self._data,
            "on_part_end": self._end,
            "on_end": self._finish,
        }

    def form(self) -> Form:
        if not self._done:
            raise Problem(400, "bad-request", "The form ends too early; send it again.")
        if self._image is None:
            raise Problem(400, "no-image", "The form has no field image; send the picture in it: -F image=@photo.jpg.")
        return Form(bytes(self._image), _clean(self._file_name), self._fields)

    def _begin(self) -> None:
        self._part, self._value = ("", ""), bytearray()

    def _header_end(self) -> None:
        if bytes(self._header[0]).lower() == b"content-disposition":
            _, parameters = parse_options_header(bytes(self._header[1]))
            name = parameters.get(b"name", b"").decode("utf-8", "replace")
            self._part = (name, parameters.get(b"filename", b"").decode("utf-8", "replace"))
        self._header = [bytearray(), bytearray()]

    def _headers_finished(self) -> None:
        name, file_name = self._part
        if name == IMAGE:
            if self._image is not None:
                raise Problem(400, "bad-request", "The form has more than one image; send one picture a request.")
            self._image, self._file_name = bytearray(), file_name
        elif name not in FIELDS:
            raise _unknown(name)
        elif name in self._fields:
            raise _twice(name)

    def _data(self, data: bytes, start: int, end: int) -> None:
        if self._part[0] == IMAGE and self._image is not None:
            if len(self._image) + end - start > self._max_upload:
                raise _too_large(self._max_upload)
            self._upload.hold(end - start)
            self._image.extend(memoryview(data)[start:end])
        elif len(self._value) + end - start > _FIELD_BYTES:
            raise Problem(422, "bad-value", f"The value of {self._part[0]} is too long.")
        else:
            self._value.extend(data[start:end])

    def _end(self) -> None:
        if self._part[0] != IMAGE:
            self._fields[self._part[0]] = self._value.decode("utf-8", "replace")

    def _finish(self) -> None:
        self._done = True


def _unknown(name: str) -> Problem:
    shown = ascii(name[:40])
    return Problem(422, "bad-value", f"There is no field {shown}; there are image, {', '.join(FIELDS)}.")


def _clean(name: str) -> str:
    """The last part of a client's file name, printable: all that messages ever show of it."""
    last = name.replace("\\", "/").rsplit("/", 1)[-1]
    last = "".join(letter for letter in last if letter.isprintable())[:_NAME_LENGTH].strip()
    return last or "the picture"


def read_ask(request: Request, form: Form, options: Options, models: tuple[str, ...]) -> Ask:
    """What form and query ask for together; the form's fields win. Raises UsageError or Problem 422."""
    query: dict[str, str] = {}
    for name, value in request.query_params.multi_items():
        if name == "token":
            continue
        if name not in FIELDS:
            raise _unknown(name)
        if name in query:
            raise _twice(name)
        query[name] = value
    parse_ask(query, options, models)  # what the form overrides has to be right, too
    return parse_ask({**query, **form.fields}, options, models)


def _twice(name: str) -> Problem:
    return Problem(422, "bad-value", f"The field {name} is given more than once; give it once.")


def parse_ask(fields: Mapping[str, str], options: Options, models: tuple[str, ...]) -> Ask:
    """The server's options with what this request wants otherwise. Raises UsageError or Problem 422."""
    given = {name: value.strip() for name, value in fields.items() if value.strip()}
    look, write, run = options.compose, options.write, options.run
    if "fidelity_weight" in given:
        look = replace(look, fidelity_weight=_number("fidelity_weight", given["fidelity_weight"]))
    if "sharpen" in given:
        look = replace(look, sharpen=_number("sharpen", given["sharpen"]))
    if "color_fix" in given:
        look = replace(look, color_fix=given["color_fix"])
    if "upscale" in given:
        auto = given["upscale"].lower() == "auto"
        look = replace(look, upscale=None if auto else _number("upscale", given["upscale"]))
    if "format" in given:
        write = replace(write, format=given["format"].lower())
    if "quality" in given:
        write = replace(write, quality=_whole("quality", given["quality"]))
    if "no_face" in given:
        if given["no_face"] not in ("copy", "fail"):
            raise UsageError("no_face can be copy (answer the picture all the same) or fail.")
        run = replace(run, no_face=given["no_face"])
    read = options.read
    if "allow_truncated" in given:
        if given["allow_truncated"] not in ("true", "false", "1", "0"):
            raise UsageError("allow_truncated can be true (restore what is there of a file that is cut off) or false.")
        read = replace(read, allow_truncated=given["allow_truncated"] in ("true", "1"))
    model = given.get("model", "auto")
    if model != "auto" and model not in models:
        raise UsageError(f"model {model[:40]!a} is not loaded; there are auto, {', '.join(models)}.")
    region = _region(given["faces"]) if "faces" in given else None
    asked = replace(options, compose=look, write=write, run=run, read=read)
    return Ask(asked, None if model == "auto" else model, region)


def _number(name: str, text: str) -> float:
    try:
        return parse_number(text)
    except ValueError:
        raise UsageError(f"{name} {text[:40]!a} is no number.") from None


def _whole(name: str, text: str) -> int:
    try:
        return parse_whole(text)
    except ValueError:
        raise UsageError(f"{name} {text[:40]!a} is no whole number.") from None


def _region(text: str) -> Region:
    try:
        x, y, width, height = (parse_number(part) for part in text.split(","))
    except ValueError:
        raise UsageError("faces takes four numbers, x,y,width,height in pixels of the photo.") from None
    if not (0 < width < 1e6 and 0 < height < 1e6 and abs(x) < 1e6 and abs(y) < 1e6):  # also refuses NaN
        raise UsageError("faces takes a region of some size within the photo: x,y,width,height in pixels.")
    return Region(x, y, width, height)
