"""/openapi.json against what the server does: requests that schemathesis draws from it, right ones and wrong ones."""

from __future__ import annotations

import re
from urllib.parse import parse_qsl, urlsplit

import pytest

pytest.importorskip("schemathesis")

import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pictures import saved
from PIL import Image
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import negative_data_rejection
from stand_ins import StandInNet

from gpen_cli.serve.app import create_app
from gpen_cli.serve.settings import ServeSettings
from serve.kit import negative, png, studio_of

PASS = {"Authorization": "Bearer only-for-this-test"}
RIGHT, WRONG = GenerationMode.POSITIVE, GenerationMode.NEGATIVE
FIGURES = [("get", path) for path in ("/models", "/status", "/metrics", "/healthz")]
PHOTOS = [("post", "/enhance"), ("post", "/detect")]
CASES = [(*operation, RIGHT, 1) for operation in FIGURES]
CASES += [(*operation, kind, 80) for operation in PHOTOS for kind in (RIGHT, WRONG)]
"""Method, path, kind of request, how many are drawn."""


def small(kind: str) -> bytes:
    return saved(Image.new("RGB", (40, 30), (90, 60, 30)), kind)


PICTURES = [png(size=(32, 24)), png((0, 0, 0), size=(8, 8)), small("JPEG"), small("TIFF"), small("WEBP")]


ACCEPTS = ["*/*", "application/json"]


def has_blank(request) -> bool:
    """Is a field sent without a value? Forms in browsers do that; it counts as not sent, which the document does not say."""
    parts = re.findall(rb"\r\n\r\n(.*?)\r\n--", request.body or b"", re.DOTALL)
    query = [value for _, value in parse_qsl(urlsplit(request.url).query, keep_blank_values=True)]
    return any(not value.strip() for value in [*(part.decode("utf-8", "replace") for part in parts), *query])


@pytest.fixture
def document():
    studio = studio_of(StandInNet(negative))
    studio.warm()
    app = create_app(studio, ServeSettings(token=PASS["Authorization"].partition(" ")[2]))
    yield schemathesis.openapi.from_asgi("/openapi.json", app, headers=PASS)
    studio.close()


def test_every_operation_of_the_document_is_drawn_from(document):
    described = {(one.ok().method, one.ok().path) for one in document.get_all_operations()}
    assert described == {*FIGURES, *PHOTOS}


@pytest.mark.parametrize(("method", "path", "kind", "examples"), CASES)
def test_answers_are_as_the_document_says(document, method, path, kind, examples):
    operation = document[path][method]
    statuses: list[int] = []

    @settings(
        max_examples=examples, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck)
    )
    @given(operation.as_strategy(generation_mode=kind), st.sampled_from(PICTURES), st.sampled_from(ACCEPTS))
    def ask(case, picture, accept):
        if method == "post" and kind is RIGHT:
            case.body = {**case.body, "image": picture}  # what a picture is, a document has no word for
        answer = case.call(headers={**PASS, "Accept": accept})
        statuses.append(answer.status_code)
        if kind is WRONG:
            case.validate_response(
                answer, excluded_checks=[negative_data_rejection] if has_blank(answer.request) else []
            )
            return
        case.validate_response(answer, excluded_checks=[negative_data_rejection])  # bytes are no string, to it
        no_face = answer.status_code == 422 and answer.json()["type"] == "urn:gpen:no-face"
        assert answer.status_code == 200 or no_face, answer.text

    ask()
    assert len(statuses) >= examples / 2
    assert kind is WRONG or 200 in statuses
