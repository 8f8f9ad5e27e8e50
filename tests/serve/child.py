"""``gpen`` with its arguments, around a stand-in engine: what the tests start as a process of its own."""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from stand_ins import StandInNet, engine_of

from gpen_cli import engine
from gpen_cli.__main__ import run
from serve.kit import SeeingDetector, negative


def slowly(crop):
    """Half a second for a dark crop, so that a test can stop the server meanwhile."""
    if crop.max() < 30:
        time.sleep(0.5)
    return negative(crop)


engine.build_engine = lambda options, **_: engine_of(StandInNet(slowly), detector=SeeingDetector())
if __name__ == "__main__":
    run()
