"""What the judges look at."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gpen_cli.geometry import template_points
from gpen_cli.train.config import VIEWS
from gpen_cli.train.views import draw_squares, look


@pytest.mark.parametrize("side", [256, 512, 1024])
def test_every_view_lies_in_the_face_and_shrinks_by_a_power_of_two(side: int) -> None:
    for seed in range(50):
        squares = draw_squares(side, 128, np.random.default_rng(seed))
        assert set(squares) == set(VIEWS)
        for row, column, width in squares.values():
            assert 0 <= row <= side - width
            assert 0 <= column <= side - width
            assert width / 128 in (1, 2, 4, 8)


def test_the_views_of_eyes_and_of_the_inner_face_hold_them() -> None:
    points = template_points("gpen", 512)
    eyes = set()
    for seed in range(50):
        squares = draw_squares(512, 128, np.random.default_rng(seed))
        row, column, width = squares["eye"]
        near = [number for number in (0, 1) if np.abs(points[number] - (column + 64, row + 64)).max() <= 17]
        assert len(near) == 1
        eyes.add(near[0])
        row, column, width = squares["inner"]
        assert np.all((points > (column, row)) & (points < (column + width, row + width)))
    assert eyes == {0, 1}


def test_faces_no_larger_than_the_judge_are_seen_whole() -> None:
    assert set(draw_squares(128, 128, np.random.default_rng(1)).values()) == {(0, 0, 128)}


def test_a_look_is_the_square_shrunk_by_averages() -> None:
    faces = torch.arange(64.0).reshape(1, 1, 8, 8).expand(2, 3, 8, 8)
    assert torch.equal(look(faces, (2, 4, 2), 2), faces[:, :, 2:4, 4:6])
    seen = look(faces, (4, 0, 4), 2)
    assert seen.shape == (2, 3, 2, 2)
    assert seen[0, 0, 0, 0] == faces[0, 0, 4:6, 0:2].mean()
