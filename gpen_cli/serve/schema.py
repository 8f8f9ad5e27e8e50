"""What /openapi.json says of requests and answers. Bodies are read by ``requests.py`` as they come, so this is written out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpen_cli.options import COLOR_FIXES, FORMATS
from gpen_cli.serve.problems import PROBLEM_TYPE

_TEXT = "string"

_FIELDS: dict[str, dict[str, Any]] = {
    "fidelity_weight": {
        "type": "number", "minimum": 0, "maximum": 2,
        "description": "Strength: 0 leaves the photo's own face, 1 is the net's; 0.7 looks natural.",
    },
    "upscale": {
        "description": "auto, or 1 to 4: how much larger the result is.",
        "anyOf": [{"type": "number", "minimum": 1, "maximum": 4}, {"type": _TEXT, "enum": ["auto"]}],
    },
    "color_fix": {
        "type": _TEXT, "enum": list(COLOR_FIXES),
        "description": "lab keeps the photo's skin tone; tint keeps gray and sepia so; none lets the net's colours through.",
    },
    "sharpen": {"type": "number", "minimum": 0, "maximum": 1, "description": "Sharpens restored faces."},
    "format": {"type": _TEXT, "enum": list(FORMATS), "description": "Of the result; png when not said."},
    "quality": {"type": "integer", "minimum": 1, "maximum": 100, "description": "Of JPEG and WebP (95)."},
    "allow_truncated": {
        "type": _TEXT, "enum": ["true", "false", "1", "0"],
        "description": "true: restore what is there of a file that is cut off.",
    },
    "model": {"type": _TEXT, "description": "One of the loaded nets, or auto."},
    "faces": {
        "type": _TEXT, "pattern": r"^(-?\d{1,6}(\.\d{1,3})?,){2}[1-9]\d{0,5}(\.\d{1,3})?,[1-9]\d{0,5}(\.\d{1,3})?$",
        "description": "x,y,width,height in pixels of the upright photo: only faces in this region are restored.",
    },
    "no_face": {
        "type": _TEXT, "enum": ["copy", "fail"],
        "description": "A photo without a face: answer it all the same, or 422.",
    },
}  # fmt: skip

PROBLEM_SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["type", "title", "status", "detail", "instance"],
    "properties": {
        "type": {"type": _TEXT},
        "title": {"type": _TEXT},
        "status": {"type": "integer"},
        "detail": {"type": _TEXT},
        "instance": {"type": _TEXT},
    },
}

_PROBLEMS = {
    400: "No image, or not a picture.",
    401: "A token is needed.",
    403: "Another site's page asked.",
    408: "The upload took too long.",
    413: "The file, or the picture in it, is too large.",
    415: "The body is no multipart/form-data.",
    422: "A value is not allowed; or no face, with no_face=fail.",
    429: "The queue is full; see Retry-After.",
    500: "An error inside gpen.",
    503: "The server cannot do this now.",
    504: "It took too long.",
}
_REPORT = {"type": "object", "description": "As a line of --report (docs/report.md)."}

Responses = dict[int | str, dict[str, Any]]


def problems(*statuses: int) -> Responses:
    """Answers of an endpoint that are problem details."""
    wanted = statuses or tuple(_PROBLEMS)
    return {
        status: {"description": _PROBLEMS[status], "content": {PROBLEM_TYPE: {"schema": PROBLEM_SCHEMA}}}
        for status in wanted
    }


def enhance_answers() -> Responses:
    headers = {
        name: {"description": text, "schema": {"type": kind}}
        for name, kind, text in (
            ("X-Gpen-Faces", "integer", "Faces seen."),
            ("X-Gpen-Restored", "integer", "Faces restored."),
            ("X-Gpen-Seconds", "number", "Time at work, without the upload."),
            ("X-Gpen-Net", _TEXT, "Nets that restored faces, joined by +; none without a face."),
            ("X-Gpen-Scale", "number", "How much larger the result is."),
            ("X-Request-Id", _TEXT, "The request's name in the server's log."),
        )
    }
    as_json = {
        "type": "object",
        "required": ["report", "name", "media_type", "image"],
        "properties": {
            "report": _REPORT,
            "name": {"type": _TEXT},
            "media_type": {"type": _TEXT},
            "image": {"type": _TEXT, "contentEncoding": "base64"},
        },
    }
    content: dict[str, Any] = {"image/*": {"schema": {"type": _TEXT, "format": "binary"}}}
    content["application/json"] = {"schema": as_json}
    return {200: {"description": "The restored picture.", "content": content, "headers": headers}, **problems()}


def json_answer(text: str, *statuses: int) -> Responses:
    """An endpoint that answers an object, and its problems."""
    return {
        200: {"description": text, "content": {"application/json": {"schema": {"type": "object"}}}},
        **problems(*statuses),
    }


def takes_picture(models: Sequence[str]) -> dict[str, Any]:
    """The operation's body and query. models: the names of the loaded nets."""
    fields = {**_FIELDS, "model": {**_FIELDS["model"], "enum": ["auto", *models]}}
    properties = {"image": {"type": _TEXT, "format": "binary", "description": "The picture's file."}, **fields}
    form = {"type": "object", "required": ["image"], "properties": properties, "additionalProperties": False}
    body = {"required": True, "content": {"multipart/form-data": {"schema": form}}}
    query = [
        {"name": name, "in": "query", "required": False, "schema": schema, "description": schema["description"]}
        for name, schema in fields.items()
    ]
    return {"requestBody": body, "parameters": query}
