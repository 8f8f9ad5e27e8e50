"""Fixtures of the server's tests: servers around stand-ins."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

pytest.importorskip("fastapi")

from fastapi.testclient import TestClient
from stand_ins import StandInNet

from gpen_cli.detect.protocol import Detector
from gpen_cli.options import FaceOptions
from gpen_cli.serve.app import create_app
from gpen_cli.serve.settings import ServeSettings
from serve.kit import BASE, HeldNet, Server, negative, studio_of


@pytest.fixture
def serve() -> Iterator[Callable[..., Server]]:
    """Makes servers: serve(net, **settings)."""
    with ExitStack() as stack:

        def make(
            net: StandInNet | None = None,
            *,
            warm: bool = True,
            max_pixels: int = 1_000_000,
            batch_window: float = 0.0,
            detector: Detector | None = None,
            faces: FaceOptions | None = None,
            **settings,
        ) -> Server:
            net = net or StandInNet(negative)
            studio = studio_of(net, max_pixels=max_pixels, batch_window=batch_window, detector=detector, faces=faces)
            stack.callback(studio.close)
            if isinstance(net, HeldNet):
                stack.callback(net.gate.set)
            elif warm:
                studio.warm()
            app = create_app(studio, ServeSettings(**settings))
            client = stack.enter_context(TestClient(app, base_url=BASE, follow_redirects=False))
            return Server(client, studio, net)

        yield make
