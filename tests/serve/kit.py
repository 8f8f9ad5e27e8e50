"""A server around stand-ins: real decoding, aligning, composing and encoding; a net that answers the negative."""

from __future__ import annotations

import io
import threading
from dataclasses import dataclass, replace

import numpy as np
import pytest

pytest.importorskip("fastapi")

from fastapi.testclient import TestClient
from pictures import saved
from PIL import Image
from stand_ins import StandInNet, engine_of, face_at

from gpen_cli.data import Face
from gpen_cli.detect.protocol import Detector
from gpen_cli.detect.search import MEAN_RGB
from gpen_cli.options import ComposeOptions, FaceOptions, Options, ReadOptions, RunOptions
from gpen_cli.serve.work import Studio

BASE = "http://127.0.0.1:7860"
PLAIN = ComposeOptions(guard="off", sharp_faces="restore", color_fix="none", upscale=1.0)
FACE = face_at(64, 64, 80)
SECOND = face_at(190, 64, 80)
LIMIT_SECONDS = 20.0


class SeeingDetector:
    """Sees a face in the left half of every picture that is not black, and one in the right half of a wide one."""

    name = "stand-in detector"

    def detect(self, pixels, threshold):
        inside = (pixels != MEAN_RGB).any(axis=2)  # the picture; around it lies the search's margin
        rows, columns = np.flatnonzero(inside.any(axis=1)), np.flatnonzero(inside.any(axis=0))
        corner = np.array([columns[0], rows[0]], np.float32)
        height, width = len(rows), len(columns)
        if pixels[rows[0] + height // 2, columns[0] + width // 2].max() == 0:
            return []
        scale = height / 128
        faces = [FACE] if width < 1.5 * height else [FACE, SECOND]
        return [
            Face(face.box * scale + np.tile(corner, 2), face.landmarks * scale + corner, face.score) for face in faces
        ]


def negative(crop: np.ndarray) -> np.ndarray:
    return 255 - crop


class HeldNet(StandInNet):
    """Waits for ``gate`` in each pass; ``begun`` tells that it is in one."""

    def __init__(self, *, micro_batch: int = 1) -> None:
        super().__init__(negative, micro_batch=micro_batch)
        self.gate = threading.Event()
        self.begun = threading.Event()

    def run(self, crops):
        self.begun.set()
        assert self.gate.wait(LIMIT_SECONDS)
        return super().run(crops)


def png(colour=(40, 90, 160), size=(128, 128)) -> bytes:
    """A flat picture's file."""
    return saved(Image.new("RGB", size, colour), "PNG")


def pixels_of(data: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))


def upload(data: bytes | None = None, name: str = "me.png"):
    return {"image": (name, png() if data is None else data)}


@dataclass
class Server:
    """An application, its studio, and a client that talks to it within this process."""

    client: TestClient
    studio: Studio
    net: StandInNet

    def enhance(self, data: bytes | None = None, *, name: str = "me.png", headers=None, query="", **fields):
        return self.client.post(f"/enhance{query}", files=upload(data, name), data=fields, headers=headers)


def studio_of(
    net: StandInNet,
    *,
    max_pixels: int = 1_000_000,
    workers: int = 2,
    batch_window: float = 0.0,
    detector: Detector | None = None,
    faces: FaceOptions | None = None,
) -> Studio:
    options = Options(
        faces=faces or FaceOptions(),
        compose=PLAIN,
        read=ReadOptions(max_pixels=max_pixels),
        run=RunOptions(workers=workers),
    )
    engine = engine_of(net, detector=detector or SeeingDetector())
    engine.setup = replace(engine.setup, micro_batch=net.micro_batch)
    return Studio(engine, options, batch_window=batch_window)


def problem(answer, status: int, kind: str) -> str:
    """Asserts problem details and returns their sentence."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    body = answer.json()
    assert body["status"] == status
    assert body["type"] == f"urn:gpen:{kind}"
    assert body["title"]
    assert body["instance"] == f"urn:gpen:request:{answer.headers['x-request-id']}"
    sentence = body["detail"]
    assert sentence.endswith(".")
    for leak in ("/work", "/home", "/tmp", "Traceback", ".py", "--"):
        assert leak not in sentence
    return sentence
