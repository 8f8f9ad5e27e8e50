"""The net gives the public implementation's numbers, loads the public names and shapes, and knows no neighbours."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from drawn_weights import SMALL, drawn_gpen

from gpen_cli.models import stylegan2
from gpen_cli.models.gpen import Gpen, GpenConfig
from gpen_cli.models.stylegan2 import draw_start, filter_by_convolution, fold_constants
from gpen_cli.models.textbook import textbook_gpen
from gpen_cli.runtime.torch_gpen import EVERY_MAP

DATA = Path(__file__).parent / "data"
GOLDEN = {
    "tiny64": (GpenConfig(64, channel_multiplier=2, narrow=0.0625), 1, 101),
    "small128": (GpenConfig(128, channel_multiplier=1, narrow=0.125), 2, 102),
}
PUBLIC = {
    "GPEN-BFR-256": GpenConfig(256, channel_multiplier=1, narrow=0.5),
    "GPEN-BFR-512": GpenConfig(512),
    "GPEN-BFR-1024": GpenConfig(1024),
    "GPEN-BFR-2048": GpenConfig(2048),
}


def golden_case(name: str) -> tuple[Gpen, torch.Tensor, torch.Tensor]:
    config, weight_seed, input_seed = GOLDEN[name]
    faces = np.random.RandomState(input_seed).uniform(-1, 1, (2, 3, config.size, config.size)).astype(np.float32)
    with np.load(DATA / "golden.npz") as golden:
        expected = torch.from_numpy(golden[f"{name}_output"])
    return drawn_gpen(config, weight_seed), torch.from_numpy(faces), expected


@pytest.mark.parametrize("name", GOLDEN)
def test_float32_output_is_the_public_implementations(name):
    net, faces, expected = golden_case(name)
    with torch.inference_mode():
        assert (net(faces) - expected).abs().max() < 2e-5


@pytest.mark.parametrize("name", GOLDEN)
def test_textbook_output_is_the_public_implementations(name):
    net, faces, expected = golden_case(name)
    with torch.inference_mode():
        assert (textbook_gpen(net.state_dict(), faces) - expected).abs().max() < 2e-5


@pytest.mark.parametrize("name", GOLDEN)
def test_bfloat16_output_is_close(name):
    net, faces, expected = golden_case(name)
    with torch.inference_mode():
        fold_constants(net, torch.bfloat16)
        output = net(faces.bfloat16())
    assert (output - expected).norm() / expected.norm() < 0.02


def test_a_face_alone_and_in_a_batch_of_five_agree():
    net, faces, _ = golden_case("tiny64")
    batch = torch.cat((faces, faces.flip(0), faces[:1] * 0.5))
    with torch.inference_mode():
        together = net(batch)
        for index in range(5):
            alone = net(batch[index : index + 1])
            assert (alone - together[index : index + 1]).abs().max() < 1e-5


@pytest.mark.parametrize("name", PUBLIC)
def test_names_and_shapes_are_those_of_the_public_files(name):
    public = json.loads((DATA / "state_dict_shapes.json").read_text())[name]
    with torch.device("meta"):
        ours = {key: list(value.shape) for key, value in Gpen(PUBLIC[name]).state_dict().items()}
    assert ours == public


@pytest.mark.parametrize("name", GOLDEN)
def test_folding_changes_nothing_in_float32(name):
    net, faces, expected = golden_case(name)
    fold_constants(net, torch.float32)
    with torch.inference_mode():
        assert (net(faces) - expected).abs().max() < 2e-5


def test_fir_buffers_hold_the_public_filter():
    net = Gpen(GpenConfig(64, narrow=0.0625))
    kernel = torch.outer(torch.tensor([1.0, 3, 3, 1]), torch.tensor([1.0, 3, 3, 1])) / 64
    assert torch.equal(net.state_dict()["ecd1.0.0.kernel"], kernel)
    assert torch.equal(net.state_dict()["generator.to_rgbs.0.upsample.kernel"], kernel * 4)


def test_gradients_flow_to_every_parameter():
    torch.manual_seed(5)
    net = Gpen(GpenConfig(64, narrow=0.0625))
    draw_start(net)
    net.generator.conv1.noise.weight.data.fill_(0.1)
    net(torch.randn(1, 3, 64, 64)).square().mean().backward()
    without = [name for name, parameter in net.named_parameters() if parameter.grad is None]
    assert without == []


@pytest.mark.parametrize("below", [8, EVERY_MAP])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_filtering_by_convolution_gives_the_same_picture(dtype: torch.dtype, below: int) -> None:
    faces = torch.from_numpy(np.random.RandomState(5).uniform(-1, 1, (2, 3, 64, 64)).astype(np.float32)).to(dtype)
    plain, filtered = drawn_gpen(SMALL, 3), drawn_gpen(SMALL, 3)
    for net in (plain, filtered):
        fold_constants(net, dtype)
    filter_by_convolution(filtered, below=below)
    with torch.inference_mode():
        ours, theirs = filtered(faces).float(), plain(faces).float()
    error = (ours - theirs).square().mean().sqrt() / theirs.square().mean().sqrt()
    assert error < (1e-6 if dtype == torch.float32 else 0.02)


def test_maps_of_fewer_channels_than_told_are_filtered_by_convolution(monkeypatch: pytest.MonkeyPatch) -> None:
    # 256 px, channel multiplier 1: the widest level has half the channels of the others.
    net, seen = drawn_gpen(GpenConfig(256, channel_multiplier=1, narrow=0.0625), 3), set()
    real = stylegan2._depthwise_fir
    monkeypatch.setattr(stylegan2, "_depthwise_fir", lambda x, *rest: (seen.add(x.shape[1]), real(x, *rest))[1])

    def filtered(below: int) -> set[int]:
        seen.clear()
        filter_by_convolution(net, below=below)
        with torch.inference_mode():
            net(torch.zeros(1, 3, 256, 256))
        return set(seen)

    every = filtered(EVERY_MAP)
    assert len(every) > 1
    assert filtered(max(every)) == every - {max(every)}
    assert filtered(0) == set()
