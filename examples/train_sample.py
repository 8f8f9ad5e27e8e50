"""A small training from pairs: python examples/train_sample.py --hr_dir DIR --lr_dir DIR

hr_dir holds sharp faces, lr_dir the same faces degraded, under equal names; one pair is enough to see it work. All are square
crops of one face. A 64 px net learns in a minute or two on a laptop: its loss falls, and the sheet (degraded, restored,
true) gets better. For real nets: gpen train (docs/training.md).
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from gpen_cli.errors import GpenError
from gpen_cli.train.config import DataConfig, LossConfig, NetConfig, OutputConfig, ScheduleConfig, TrainConfig


def settings(arguments: argparse.Namespace) -> TrainConfig:
    """A net of 0.4 million parameters that has seen enough after a few hundred steps."""
    return TrainConfig(
        name="sample",
        precision="fp32",
        compile=False,
        net=NetConfig(size=64, narrow=0.0625, style_width=64, mapping_depth=2),
        data=DataConfig(hr_dir=arguments.hr_dir, lr_dir=arguments.lr_dir, workers=0),
        loss=LossConfig(perceptual=0.0),
        schedule=ScheduleConfig(steps=arguments.steps, batch=4, warm_up=10, average=0.9),
        output=OutputConfig(
            folder=arguments.output,
            validation=arguments.hr_dir,
            validation_degraded=arguments.lr_dir,
            validate_every=max(1, arguments.steps // 4),
            log_every=max(1, arguments.steps // 10),
        ),
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hr_dir", type=Path, required=True)
    parser.add_argument("--lr_dir", type=Path, required=True)
    parser.add_argument("--output", type=Path, default=Path("train_sample"))
    parser.add_argument("--steps", type=int, default=200)
    arguments = parser.parse_args()
    try:
        done = train(settings(arguments))
    except GpenError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    print(f"the net: {done}")
    print(f"try it: gpen enhance -i PHOTO --weights {done}")
    return 0


def train(config: TrainConfig) -> Path:
    """Trains, and tells the loss as it goes; returns the weight file."""
    import torch

    from gpen_cli.train.processes import Processes
    from gpen_cli.train.trainer import Trainer

    trainer = Trainer(config, torch.device("cpu"), Processes(), resume=False)
    done = trainer.run(lambda: False)
    for line in (trainer.folder / "log.jsonl").read_text(encoding="utf-8").splitlines():
        figures = json.loads(line)
        if "l1" in figures:
            print(f"step {figures['step']:4d}  loss {figures['l1']:.4f}")
        elif "sheet" in figures:
            print(f"step {figures['step']:4d}  PSNR {figures['validation PSNR']:.2f}  {figures['sheet']}")
    return done.weights


if __name__ == "__main__":
    sys.exit(main())
