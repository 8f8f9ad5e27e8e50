"""Through the whole program, ``--aligned --precision fp32`` gives the textbook net's picture, within one level."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from drawn_weights import drawn_gpen
from PIL import Image
from safetensors.torch import save_file
from typer.testing import CliRunner

from gpen_cli.cli.main import app
from gpen_cli.models.gpen import GpenConfig
from gpen_cli.models.textbook import textbook_gpen

NETS = {
    "the public 256": GpenConfig(256, channel_multiplier=1, narrow=0.5),
    "a 512": GpenConfig(512, channel_multiplier=2, narrow=0.25),
}


@pytest.mark.parametrize("name", NETS)
def test_every_pixel_is_within_one_level_of_the_textbook_net(tmp_path: Path, astronaut: np.ndarray, name: str):
    config = NETS[name]
    net = drawn_gpen(config, seed=11)
    save_file({key: value.contiguous() for key, value in net.state_dict().items()}, tmp_path / "net.safetensors")
    crop = np.ascontiguousarray(astronaut[: config.size, : config.size])
    Image.fromarray(crop).save(tmp_path / "crop.png")

    arguments = ["enhance", tmp_path / "crop.png", "--aligned", "--precision", "fp32", "-o", tmp_path / "out.png"]
    result = CliRunner().invoke(app, [*map(str, arguments), "--weights", str(tmp_path / "net.safetensors")])
    assert result.exit_code == 0, result.output

    with torch.inference_mode():
        face = torch.from_numpy(crop).permute(2, 0, 1)[None].float() / 127.5 - 1
        expected = textbook_gpen(net.state_dict(), face)[0].permute(1, 2, 0).clamp(-1, 1).add(1).mul(127.5).numpy()
    output = np.asarray(Image.open(tmp_path / "out.png")).astype(np.float64)
    assert output.shape == crop.shape
    assert np.abs(output - expected).max() <= 1.0
    assert output.std() > 10  # a real picture, not clamped to one value
