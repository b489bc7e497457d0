"""``sce train``: a run from a recipe; flags over ``--set`` over file over defaults."""

from __future__ import annotations

import itertools
import signal
from pathlib import Path
from types import FrameType
from typing import Any

import click

from securecoderl_edge.commands.console import say, track, warn_of_level
from securecoderl_edge.commands.options import options_from
from securecoderl_edge.settings import PPO_FLAGS, REWARD_FLAGS, PpoSettings, RewardSettings, TrainSettings


@click.command()
@click.option(
    "--recipe",
    default="starter",
    metavar="NAME|FILE",
    help="Built-in recipe or TOML file.  [default: starter]",
)
@options_from(TrainSettings, keep_unset=True)
@options_from(PpoSettings, keep_unset=True, only=PPO_FLAGS)
@options_from(RewardSettings, keep_unset=True, only=REWARD_FLAGS)
@click.option("--max-steps", type=click.IntRange(1), help="Most updates in each phase.")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Any setting, such as ppo.epochs=4.")
@click.option("--out", type=click.Path(path_type=Path), help="Run folder.  [default: runs/RECIPE]")
@click.option("--resume/--no-resume", default=True, help="Go on with the run in --out, or throw it away first.")
def train(
    recipe: str,
    overrides: tuple[str, ...],
    out: Path | None,
    resume: bool,
    max_steps: int | None,
    given: dict[str, Any],
) -> None:
    """Train a policy: supervised warm start, then PPO on execution rewards.

    Without arguments the built-in model learns from the built-in problems, in minutes on a CPU. The same command
    again goes on where it stopped. What no flag sets is as the recipe says.
    """
    from securecoderl_edge.model import require_torch

    require_torch()
    from securecoderl_edge.runs import RUNS, is_found_by_default
    from securecoderl_edge.settings import cap_steps, resolve
    from securecoderl_edge.train import Stopped, phase_steps
    from securecoderl_edge.train import train as run_training

    settings = resolve(recipe, overrides, given)
    if max_steps:
        settings = cap_steps(settings, max_steps)
    warn_of_level(settings.reward.sandbox)
    folder = out or RUNS / Path(recipe).stem
    steps = phase_steps(settings)
    before = dict(zip(steps, itertools.accumulate(steps.values(), initial=0), strict=False))
    with track(sum(steps.values()), "training") as progress, _Interrupt() as interrupt:
        shown = 0

        def log(row: dict[str, Any]) -> None:
            nonlocal shown
            done = before[row["phase"]] + row["step"]
            progress.update(done - shown, _describe(row))
            shown = done

        try:
            run = run_training(settings, folder, resume=resume, log=log, should_stop=lambda: interrupt.asked)
        except Stopped as stopped:
            say(f"{stopped}; the same command goes on from there")
            raise KeyboardInterrupt from None
    say(f"the policy is in {run.policy}; next: sce export{'' if is_found_by_default(run) else f' {run.path}'}")


def _describe(row: dict[str, Any]) -> str:
    """One line about one update."""
    place = f"{row['phase']} {row['step']}/{row['steps']}"
    if row["phase"] == "sft":
        return f"{place}  loss {row['loss/sft']:.3f}"
    kl = f"{row['objective/kl']:.2f}" if "objective/kl" in row else "-"  # an update that learnt from nothing has none
    return (
        f"{place}  reward {row['objective/reward']:.3f}  syntax {row['syntax_rate']:.0%}  "
        f"all tests {row['all_tests_rate']:.0%}  KL {kl}"
    )


class _Interrupt:
    """Ctrl-C once asks for a checkpoint after the current update; twice stops at once."""

    asked = False

    def __enter__(self) -> _Interrupt:
        self._before = signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self._before)

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
        say("stopping after this update; Ctrl-C again stops at once and loses it")
