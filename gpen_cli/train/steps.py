"""One step of training: the generator's loss, the judges' loss, and the gradients of both.

Forward passes run compiled where asked. The generator and the judges compute in the type of what they are given (bfloat16 by
default), the frozen nets under autocast. Parameters, gradients, optimisers and the average stay float32.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from gpen_cli.train import losses
from gpen_cli.train.config import TrainConfig
from gpen_cli.train.face_net import Window, chips
from gpen_cli.train.nets import Nets
from gpen_cli.train.views import Square, look


@dataclass(frozen=True)
class Batch:
    """degraded, original: (N, 3, S, S) float32 RGB in [-1, 1]. weight: (N, 1, S, S) float32, 0 outside the photo."""

    degraded: Tensor
    original: Tensor
    weight: Tensor


@dataclass(frozen=True)
class Drawn:
    """What a step draws. squares: what the judges see, by view. window: of the face net.

    noise: (N, 3, size, size) standard normal, for the estimated R1; None: that is not taken.
    """

    squares: dict[str, Square]
    window: Window
    noise: Tensor | None


class Steps:
    """Losses and gradients of one training; holds no state of its own but the compiled passes."""

    def __init__(self, nets: Nets, config: TrainConfig, device: torch.device) -> None:
        self.nets = nets
        self.loss = config.loss
        self.judge_size = config.discriminator.size
        self.device = device
        self.dtype = torch.bfloat16 if config.precision == "bf16" else torch.float32
        wrap: Callable[[Any], Any] = (
            (lambda net: torch.compile(net, dynamic=False)) if config.compile else (lambda net: net)
        )
        self.restore = wrap(nets.generator)
        self.judges: dict[str, losses.Judge] = {view: wrap(judge) for view, judge in nets.judges.items()}
        self.face = wrap(nets.face) if nets.face is not None else None
        self.perceptual = wrap(nets.perceptual) if nets.perceptual is not None else None

    def _autocast(self) -> AbstractContextManager[Any]:
        """For the frozen nets; the generator and the judges follow the type of what they are given."""
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.dtype == torch.bfloat16)

    def generator_step(self, batch: Batch, strength: float, drawn: Drawn) -> tuple[dict[str, float], Tensor]:
        """Adds the generator's gradients of one batch; returns the terms, unweighted, and the restored faces, detached.

        strength: 0 to 1, how much of the adversarial terms.
        """
        restored = self.restore(batch.degraded.to(self.dtype))
        terms = {"l1": losses.content(restored, batch.original, batch.weight)}
        if self.loss.psnr > 0:
            terms["psnr"] = losses.psnr(restored, batch.original, batch.weight)
        # Outside the photo the net may draw what it likes: no term sees it.
        shown = restored * batch.weight + batch.original * (1 - batch.weight)
        if self.loss.ssim > 0:
            terms["ssim"] = losses.structure(shown, batch.original)
        terms |= self._likeness(shown, batch.original, drawn)
        total = sum((getattr(self.loss, name) * value for name, value in terms.items()), restored.new_zeros(()))
        if strength > 0:
            adversarial, matching = self._judged(shown, batch.original, drawn.squares)
            terms |= {"adversarial": adversarial, "matching": matching}
            total = total + strength * (self.loss.adversarial * adversarial + self.loss.matching * matching)
        total.backward()
        return {name: value.item() for name, value in terms.items()}, shown.detach()

    def _likeness(self, restored: Tensor, original: Tensor, drawn: Drawn) -> dict[str, Tensor]:
        terms: dict[str, Tensor] = {}
        if self.face is not None:
            with self._autocast():
                with torch.no_grad():
                    true_maps, true_descriptor = self.face(chips(original, drawn.window))
                maps, descriptor = self.face(chips(restored, drawn.window))
            terms["features"] = losses.map_distance(maps, true_maps)
            terms["identity"] = losses.descriptor_distance(descriptor, true_descriptor)
        if self.perceptual is not None:
            with self._autocast():
                with torch.no_grad():
                    true_maps = self.perceptual(original)
                terms["perceptual"] = losses.map_distance(self.perceptual(restored), true_maps)
        return terms

    def _judged(self, restored: Tensor, original: Tensor, squares: dict[str, Square]) -> tuple[Tensor, Tensor]:
        share = losses.known(restored, original, self.loss.known)
        adversarial, matching = restored.new_zeros(()), restored.new_zeros(())
        self.nets.judges.requires_grad_(False)
        for view, judge in self.judges.items():
            with torch.no_grad():
                _, true_maps = judge(self._look(original, squares[view]))
            scores, maps = judge(self._look(restored, squares[view]))
            adversarial = adversarial + losses.fooling(scores, share)
            matching = matching + losses.map_distance(maps, true_maps)
        self.nets.judges.requires_grad_(True)
        return adversarial / len(self.judges), matching / len(self.judges)

    def judge_step(self, restored: Tensor, original: Tensor, drawn: Drawn) -> dict[str, float]:
        """Adds the judges' gradients of one batch."""
        squares, noise = drawn.squares, drawn.noise
        share = losses.known(restored, original, self.loss.known)
        terms: dict[str, float] = {}
        for view, judge in self.judges.items():
            real = self._look(original, squares[view])
            scores, _ = judge(real)
            loss = losses.judging(scores, judge(self._look(restored, squares[view]))[0], share)
            terms[f"judge {view}"] = loss.item()
            if noise is not None:
                moved, _ = judge(real + losses.NOISE_STEP * noise.to(real.dtype))
                penalty = losses.estimated_r1(scores, moved)
                terms[f"r1 {view}"] = penalty.item()
                loss = loss + self.loss.r1 * penalty
            loss.backward()
        return terms

    def penalty_step(self, original: Tensor, squares: dict[str, Square]) -> dict[str, float]:
        """Adds the gradients of the exact R1, as much as for the steps between two of them. Eager, float32."""
        terms: dict[str, float] = {}
        for view, judge in self.nets.judges.items():
            penalty = losses.exact_r1(judge, self._look(original, squares[view]).float())
            (self.loss.r1 * self.loss.r1_every * penalty).backward()
            terms[f"r1 {view}"] = penalty.item()
        return terms

    def _look(self, faces: Tensor, square: Square) -> Tensor:
        """(N, 3, size, size), in the type that judges compute in."""
        return look(faces, square, self.judge_size).to(self.dtype, memory_format=torch.channels_last)


def clip_and_apply(optimiser: torch.optim.Optimizer, net: nn.Module, largest: float) -> float:
    """Scales the gradients down to norm ``largest``, steps, forgets them; returns the norm before."""
    norm = nn.utils.clip_grad_norm_(net.parameters(), largest)
    optimiser.step()
    optimiser.zero_grad(set_to_none=True)
    return float(norm)
