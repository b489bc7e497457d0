"""``sce train``: training runs from recipes; a flag wins over ``--set``, then the recipe, then the default."""

from __future__ import annotations

import json
import os
import signal
import stat
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from securecoderl_edge.commands.console import say, track, warn_of_level, write_nowhere
from securecoderl_edge.commands.options import options_from
from securecoderl_edge.commands.train_plan import print_plan
from securecoderl_edge.errors import UsageError
from securecoderl_edge.models.gpus import GPUS
from securecoderl_edge.problems.sources import check_exists, is_for_evaluation
from securecoderl_edge.runs import DONE_FILE, Run, default_folder, is_found_by_default
from securecoderl_edge.system.processes import on_ending_signals
from securecoderl_edge.training.recipe import PPO_FLAGS, REWARD_FLAGS, check_ppo, phase_steps, resolve
from securecoderl_edge.training.settings import PpoSettings, RewardSettings, TrainSettings, cap_steps

if TYPE_CHECKING:
    pass


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
@click.option(
    "--reward-function",
    metavar="FILE.py:NAME",
    help="Your own reward function, with the signature of TRL's; its weight is reward.function_weight.",
)
@click.option(
    "--dry-run", is_flag=True, help="Print a plan with memory by part and a time estimate from one update per phase."
)
@click.option(
    "--gpu",
    type=click.Choice(list(GPUS)),
    help="With --dry-run: plan for this GPU, which need not be here. Times are estimated from its data sheet.",
)
@click.option("--max-steps", type=click.IntRange(1), help="Maximum number of updates per phase.")
@click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help="Change a setting of the recipe, such as ppo.epochs=4; may be repeated.",
)
@click.option("--out", type=click.Path(path_type=Path), help="Run folder.  [default: runs/RECIPE]")
@click.option(
    "--resume/--no-resume", default=True, help="Resume the run in --out, or delete it first.  [default: resume]"
)
def train(
    recipe: str,
    overrides: tuple[str, ...],
    out: Path | None,
    resume: bool,
    dry_run: bool,
    max_steps: int | None,
    gpu: str | None,
    reward_function: str | None,
    given: dict[str, Any],
) -> None:
    """Train a model: SFT, then PPO with rewards from running its programs.

    Without arguments it trains the built-in model nano on built-in problems, in about three minutes on two CPU cores.
    The result is a LoRA adapter. The same command again resumes an interrupted run. Flags override the recipe.
    """
    if gpu is not None and not dry_run:
        raise UsageError("--gpu plans for a GPU that need not be here. Add --dry-run")
    if reward_function is not None:
        overrides = (*overrides, f"reward.function={json.dumps(reward_function)}")
    settings = resolve(recipe, overrides, given)
    if settings.reward.function is not None:
        from securecoderl_edge.scoring.own_reward import own_function

        own_function(settings.reward.function).sha256()
    if is_for_evaluation(settings.problems):
        say(f"{settings.problems} is for evaluation: a result on it means nothing after this. To train: mbpp:clean")
    if max_steps:
        settings = cap_steps(settings, max_steps)
        check_ppo(settings)
    if not dry_run:
        check_exists(settings.problems)
    from securecoderl_edge.models.packages import require_torch

    require_torch()  # takes seconds, so mistakes are told before
    from securecoderl_edge.training.parallel import is_first_process

    folder = out or default_folder(recipe)
    if dry_run:
        from securecoderl_edge.training.plan import make_plan

        print_plan(make_plan(settings, Run(folder), None if gpu is None else GPUS[gpu], say))
        return
    if is_first_process():
        warn_of_level(settings.reward.sandbox)
    steps = phase_steps(settings)
    if "sft" in steps and settings.sft.epochs is not None:
        steps["sft"] = 0  # its first update knows
    _train(settings, folder, resume, steps, is_first_process())


def _train(settings: TrainSettings, folder: Path, resume: bool, steps: dict[str, int], talks: bool) -> None:
    """Train, with progress on stderr if ``talks``: of several processes one prints."""
    from securecoderl_edge.training.parallel import leave
    from securecoderl_edge.training.phase import Stopped
    from securecoderl_edge.training.train import train as run_training

    is_finished = resume and (Run(folder).policy / DONE_FILE).is_file()
    interrupt = _Interrupt(talks)
    with track(sum(steps.values()), "training", shown=talks) as progress, on_ending_signals(interrupt):

        def log(row: dict[str, Any]) -> None:
            steps[row["phase"]] = row["steps"]
            names = list(steps)
            done = sum(steps[name] for name in names[: names.index(row["phase"])]) + row["step"]
            progress.reach(done, _describe(row), sum(steps.values()))

        try:
            run = run_training(settings, folder, resume=resume, log=log, say=say, should_stop=lambda: interrupt.asked)
        except Stopped as stopped:
            if talks:
                say(f"{stopped}; run the same command to resume")
            raise KeyboardInterrupt from None
        finally:
            leave()
    if talks:
        if is_finished:
            say(f"{folder} is finished: nothing was trained")
        for phase, facts in run.outcomes():
            say(f"{phase}: selected step {facts.get('chosen_step')} of {facts.get('steps')}: {facts.get('why')}")
        say(f"the policy is in {run.policy}; next: sce export{'' if is_found_by_default(run) else f' {run.path}'}")


def _describe(row: dict[str, Any]) -> str:
    """Describe one update in one line."""
    position = f"{row['phase']} {row['step']}/{row['steps']}"
    if row["phase"] == "sft":
        return f"{position}  loss {row['loss/sft']:.3f}"
    if "kept_rate" in row:
        loss = f"{row['loss/sft']:.3f}" if "loss/sft" in row else "-"  # missing if no completion was kept
        tests = f"  all tests {row['all_tests_rate']:.0%}" if "all_tests_rate" in row else ""
        return f"{position}  loss {loss}  kept {row['kept_rate']:.0%}{tests}"
    kl = f"{row['objective/kl']:.2f}" if "objective/kl" in row else "-"  # missing if no group had a gradient
    rates = f"syntax {row['syntax_rate']:.0%}  all tests {row['all_tests_rate']:.0%}"
    return f"{position}  reward {row['objective/reward']:.3f}  {rates}  KL {kl}"


class _Interrupt:
    """Handler of signals: Ctrl-C once asks for a checkpoint after the current update; twice stops at once.

    SIGTERM, which batch systems send before the end, and a closed terminal ask for a checkpoint too, however often.
    """

    asked = False

    def __init__(self, talks: bool) -> None:
        self._talks = talks

    def __call__(self, number: int, _frame: FrameType | None) -> None:
        if self.asked and number == signal.SIGINT:
            raise KeyboardInterrupt
        is_first, self.asked = not self.asked, True
        if number == signal.SIGHUP:
            _leave_terminal()
        if self._talks and is_first:
            say("stopping after this update; press Ctrl-C again to stop now and lose it")


def _leave_terminal() -> None:
    """Discard output to a closed terminal: a failed write must not prevent the checkpoint."""
    for stream in (1, 2):
        if stat.S_ISCHR(os.fstat(stream).st_mode):  # not isatty, which is false for a closed terminal
            write_nowhere(stream)
