"""How fast a net is trained here: python benchmarks/training.py [--config NAME] --data DIR [--steps 10] [--adversarial]

Prints images a second, the share of the time that was spent waiting for the workers that degrade faces, and the share of the CPU
time that degrading takes. The first steps, in which the passes are compiled, are told apart. Nothing is kept.
"""

from __future__ import annotations

import argparse
import dataclasses
import tempfile
import time
from pathlib import Path

from gpen_cli.device import settle_process

settle_process()

DEGRADED = 48
"""Faces over which the cost of degrading is averaged: it varies with what is drawn."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", type=Path, default=Path("gpen-open-256"))
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--face-net", type=Path)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--adversarial", action="store_true", help="With judges, as in the second stage.")
    parser.add_argument("--no-compile", action="store_true")
    arguments = parser.parse_args()

    from gpen_cli.train.config_file import read_config
    from gpen_cli.train.processes import Processes
    from gpen_cli.train.setup import prepare_device
    from gpen_cli.train.trainer import Trainer

    warm_up = 3
    config = read_config(arguments.config)
    loss = dataclasses.replace(config.loss, face_net=arguments.face_net)
    if arguments.face_net is None:
        loss = dataclasses.replace(loss, features=0.0, identity=0.0)
    if arguments.adversarial:
        loss = dataclasses.replace(loss, adversarial=loss.adversarial or 0.1, r1_form="difference")
    with tempfile.TemporaryDirectory() as folder:
        config = dataclasses.replace(
            config,
            compile=not arguments.no_compile,
            loss=loss,
            data=dataclasses.replace(config.data, folders=(arguments.data,)),
            schedule=dataclasses.replace(config.schedule, steps=warm_up + arguments.steps),
            output=dataclasses.replace(config.output, folder=Path(folder)),
        )
        trainer = Trainer(config, prepare_device(config), Processes(), resume=False)
        first = trainer.run(lambda: False, until=warm_up)
        own = time.process_time()
        done = trainer.run(lambda: False)
        own = time.process_time() - own
        degrading = time.process_time()
        for number in range(DEGRADED):
            trainer.samples.sample(number)
        degrading = (time.process_time() - degrading) / DEGRADED
    print(f"first {warm_up} steps (compiling): {first.seconds:.1f} s")
    rate, step = done.images / done.seconds, done.seconds / arguments.steps
    print(f"{rate:.2f} images a second, {step:.2f} s a step of {config.schedule.batch}, {trainer.config.precision}")
    print(f"waiting for data: {done.waiting:.0%} of the time")
    share = degrading * done.images / (own + degrading * done.images)
    print(f"degrading: {1e3 * degrading:.0f} ms of a core a face, {share:.0%} of the CPU time")


if __name__ == "__main__":
    main()
