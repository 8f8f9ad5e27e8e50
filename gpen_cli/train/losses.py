"""The terms of the loss. Faces are (N, 3, S, S) RGB in [-1, 1]; each term is a scalar, float32.

Sources: smooth L1 content and feature matching in the discriminator, arXiv:2105.06070 (section 3.2); the non-saturating loss,
arXiv:1406.2661; R1, arXiv:1801.04406; its estimate from one small step of noise, arXiv:1705.07215 (a Taylor expansion of it).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

Judge = Callable[[Tensor], tuple[Tensor, list[Tensor]]]

SMOOTH = 0.02
"""Below this difference (2.5 levels of 255) the content loss is quadratic: noise of that size is no error to chase."""

LEAST_ERROR = 1e-5
"""Mean square that the PSNR term takes an error for at least (0.4 levels of 255): below it there is nothing left to gain."""

SSIM_WINDOW, SSIM_SCALES = 8, 3

DETAIL_SHARE = 1 / 28
"""Of a crop's side: 9 px of 256, the height of an open eye."""

NOISE_STEP = 0.02  # of [-1, 1]: how far the estimated gradient penalty looks


def content(restored: Tensor, original: Tensor, weight: Tensor) -> Tensor:
    """Smooth L1 over the pixels whose ``weight`` (N, 1, S, S) is 1."""
    each = F.smooth_l1_loss(restored, original, beta=SMOOTH, reduction="none")
    return (each * weight).sum() / (weight.sum() * 3).clamp(min=1)


def psnr(restored: Tensor, original: Tensor, weight: Tensor) -> Tensor:
    """Minus the mean PSNR of the faces, dB, over the pixels whose ``weight`` (N, 1, S, S) is 1.

    A decibel is worth the same in every face: in a lightly damaged one, whose whole error is small, it is not drowned by the
    errors of badly damaged ones that nothing can repair, as it is in ``content``.
    """
    square = ((restored.float() - original).square() * weight).sum(dim=(1, 2, 3))
    mean = square / (weight.sum(dim=(1, 2, 3)) * 3).clamp(min=1)
    return 10 * (mean.clamp(min=LEAST_ERROR) / 4).log10().mean()  # the range [-1, 1] is 2 wide


@torch.no_grad()
def known(restored: Tensor, original: Tensor, agreement: tuple[float, float]) -> Tensor:
    """(N,) how far the net knows each face: 0 up to the first ``agreement`` of its detail with the original's, 1 from the second.

    The agreement is the correlation of what is finer than DETAIL_SHARE, in the middle of the crop. Where it is small the
    degradation left too little, and what judges would have the net draw there is another face's eyes and teeth. Not in decibels:
    a ruined face in soft light has more of them than a good one full of contrast.
    """
    low, high = agreement
    ours, theirs = _detail(restored), _detail(original)
    both = (ours * theirs).mean(dim=(1, 2, 3))
    sizes = (ours.square().mean(dim=(1, 2, 3)) * theirs.square().mean(dim=(1, 2, 3))).sqrt()
    return ((both / sizes.clamp(min=1e-8) - low) / max(high - low, 1e-6)).clamp(0, 1)


def _detail(faces: Tensor) -> Tensor:
    """What is finer than DETAIL_SHARE in the gray middle of the crops."""
    size = faces.shape[-1]
    window = 2 * max(1, round(DETAIL_SHARE * size / 2)) + 1
    gray = faces.float().mean(dim=1, keepdim=True)
    fine = gray - F.avg_pool2d(gray, window, stride=1, padding=window // 2, count_include_pad=False)
    return fine[:, :, size // 4 : -(size // 8), size // 5 : -(size // 5)]


def structure(restored: Tensor, original: Tensor) -> Tensor:
    """One minus the mean SSIM of 8 px windows, over SSIM_SCALES octaves; 0 for equal faces.

    Blurred detail costs more here than in pixels, and the same in a dim, flat face as in a bright one. Source: SSIM with flat
    windows, Wang et al. 2004; as a loss over scales, arXiv:1511.08861.
    """
    ours, theirs = restored.float(), original.float()
    parts = []
    for scale in range(SSIM_SCALES):
        if scale:
            ours, theirs = F.avg_pool2d(ours, 2), F.avg_pool2d(theirs, 2)
        parts.append(_ssim(ours, theirs).mean())
    return 1 - torch.stack(parts).mean()


def _ssim(x: Tensor, y: Tensor) -> Tensor:
    """SSIM of the windows, each half over its neighbour."""
    mean_x, mean_y, mean_xx, mean_yy, mean_xy = (_window_mean(each) for each in (x, y, x * x, y * y, x * y))
    light, contrast = (0.01 * 2) ** 2, (0.03 * 2) ** 2  # the usual constants, for a range 2 wide
    across = mean_x * mean_y
    squares = mean_x.square() + mean_y.square()
    spread = (mean_xx + mean_yy - squares).clamp(min=0)
    return (2 * across + light) / (squares + light) * (2 * (mean_xy - across) + contrast) / (spread + contrast)


def _window_mean(x: Tensor) -> Tensor:
    """Means of the windows; of their quarters first, which neighbours share."""
    return F.avg_pool2d(F.avg_pool2d(x, SSIM_WINDOW // 2), 2, stride=1)


def map_distance(ours: Sequence[Tensor], theirs: Sequence[Tensor]) -> Tensor:
    """Mean over the maps of their L1 distance, relative to the size of ``theirs``: no map outweighs another."""
    parts = [
        (a.float() - b.float()).abs().mean() / b.float().abs().mean().clamp(min=1e-6)
        for a, b in zip(ours, theirs, strict=True)
    ]
    return torch.stack(parts).mean()


def descriptor_distance(ours: Tensor, theirs: Tensor) -> Tensor:
    """Mean Euclidean distance of (N, 128) descriptors; two photos of one person are under about 0.6 apart."""
    return (ours - theirs).square().sum(dim=1).add(1e-8).sqrt().mean()


def fooling(scores: Tensor, share: Tensor) -> Tensor:
    """The generator's non-saturating loss, from the scores (N, 1) of its faces. share: (N,), what each counts, see ``known``."""
    return (F.softplus(-scores.float())[:, 0] * share).mean()


def judging(real: Tensor, restored: Tensor, share: Tensor) -> Tensor:
    """The discriminator's logistic loss, from the scores of originals and of restored faces, which count by their ``share``."""
    false = F.softplus(restored.float())[:, 0] * share
    return F.softplus(-real.float()).mean() + false.sum() / share.sum().clamp(min=1e-6)


def exact_r1(judge: Judge, faces: Tensor) -> Tensor:
    """Half the mean squared gradient of the scores by the pixels; needs second derivatives, so an uncompiled judge."""
    faces = faces.detach().requires_grad_()
    scores, _ = judge(faces)
    (gradient,) = torch.autograd.grad(scores.float().sum(), faces, create_graph=True)
    return gradient.float().square().sum(dim=(1, 2, 3)).mean() / 2


def estimated_r1(scores: Tensor, moved: Tensor) -> Tensor:
    """The same from the scores of faces and of the faces plus NOISE_STEP of noise: E[(D(x+σn) − D(x))²] ≈ σ²·|∇D|²."""
    return (moved.float() - scores.float()).square().mean() / (2 * NOISE_STEP**2)
