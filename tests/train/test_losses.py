"""Terms of the loss that are not nets: what they are worth, and where they look."""

from __future__ import annotations

import pytest
import torch

from gpen_cli.train import losses


def faces(*errors: float) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Restored, original, weight: one face for each constant error."""
    original = torch.zeros(len(errors), 3, 8, 8)
    restored = original + torch.tensor(errors)[:, None, None, None]
    return restored, original, torch.ones(len(errors), 1, 8, 8)


def test_psnr_is_the_decibels_of_the_benchmark():
    restored, original, weight = faces(2 / 10)  # a tenth of the range [-1, 1]
    assert losses.psnr(restored, original, weight).item() == pytest.approx(-20, abs=1e-4)


def test_halving_an_error_is_worth_the_same_in_a_good_and_a_ruined_face():
    whole = losses.psnr(*faces(0.02, 0.4))
    good = losses.psnr(*faces(0.01, 0.4))
    ruined = losses.psnr(*faces(0.02, 0.2))
    assert (whole - good).item() == pytest.approx((whole - ruined).item(), abs=1e-4)
    assert (whole - good).item() == pytest.approx(20 * 0.30103 / 2, abs=1e-3)


def test_psnr_does_not_see_padding_and_ends_at_the_least_error():
    restored, original, weight = faces(0.1, 0.1)
    restored[1, :, :4] = 1
    weight[1, :, :4] = 0
    assert losses.psnr(restored, original, weight).item() == pytest.approx(losses.psnr(*faces(0.1)).item(), abs=1e-4)
    perfect = losses.psnr(*faces(0.0))
    assert perfect.isfinite()
    empty = losses.psnr(restored, original, torch.zeros_like(weight))
    assert empty.isfinite()


def test_structure_is_ssim_for_one_window():
    """Against the formula written out, for faces of one value and one contrast."""
    generator = torch.Generator().manual_seed(5)
    x, y = (torch.rand(1, 1, 8, 8, generator=generator) for _ in range(2))
    light, contrast = (0.01 * 2) ** 2, (0.03 * 2) ** 2
    both = ((x - x.mean()) * (y - y.mean())).mean()
    expected = (2 * x.mean() * y.mean() + light) / (x.mean() ** 2 + y.mean() ** 2 + light)
    expected *= (2 * both + contrast) / (x.var(correction=0) + y.var(correction=0) + contrast)
    assert losses._ssim(x, y).item() == pytest.approx(expected.item(), abs=1e-5)


def test_structure_costs_blur_and_noise_and_not_equality():
    generator = torch.Generator().manual_seed(6)
    face = torch.rand(2, 3, 32, 32, generator=generator) * 2 - 1
    blurred = torch.nn.functional.avg_pool2d(face, 3, stride=1, padding=1)
    assert losses.structure(face, face).item() == pytest.approx(0, abs=1e-6)
    assert losses.structure(blurred, face) > losses.structure(face + 0.1 * (blurred - face), face) > 0


class TestKnown:
    """What the judges count."""

    @pytest.fixture
    def face(self) -> torch.Tensor:
        generator = torch.Generator().manual_seed(7)
        return torch.rand(1, 3, 64, 64, generator=generator) * 2 - 1

    def test_a_face_counts_by_how_much_of_its_detail_is_the_originals(self, face):
        other = torch.roll(face, 31, dims=3)
        faces = torch.cat([face, 0.5 * face + 0.3, (face + other) / 2, other])
        shares = losses.known(faces, face.expand(4, -1, -1, -1), (0.2, 0.9))
        assert shares[0] == shares[1] == 1, "contrast and brightness are no detail"
        assert 0.5 < shares[2] < 0.9  # a half of each: a correlation of 0.71
        assert shares[3] == 0

    def test_without_a_range_all_count_and_a_flat_face_divides_by_nothing(self, face):
        faces = torch.cat([torch.roll(face, 31, dims=3), torch.zeros_like(face)])
        assert losses.known(faces, face.expand(2, -1, -1, -1), (-1.0, -1.0)).tolist() == [1, 1]
        assert losses.known(faces, face.expand(2, -1, -1, -1), (0.35, 0.65)).tolist() == [0, 0]

    def test_a_face_that_does_not_count_gives_no_gradient_and_teaches_nothing(self):
        scores = torch.tensor([[1.0], [-2.0]], requires_grad=True)
        losses.fooling(scores, torch.tensor([1.0, 0.0])).backward()
        assert scores.grad is not None
        assert scores.grad[0] != 0
        assert scores.grad[1] == 0
        real = torch.zeros(2, 1)
        kept = losses.judging(real, scores[:1], torch.ones(1))
        assert losses.judging(real, scores, torch.tensor([1.0, 0.0])).item() == pytest.approx(kept.item())
        assert losses.judging(real, scores, torch.zeros(2)).item() == pytest.approx(0.6931, abs=1e-3)
