"""``sce train``: training runs from recipes; a flag wins over ``--set``, then the recipe, then the default."""

from __future__ import annotations

import json
import math
import os
import signal
import stat
import time
from pathlib import Path
from types import FrameType
from typing import Any

import click

from securecoderl_edge.commands.console import say, track, warn_of_level, write_nowhere
from securecoderl_edge.commands.names import PATH, RECIPE
from securecoderl_edge.commands.options import FiniteFloat, Integer, examples, options_from
from securecoderl_edge.commands.train_plan import print_plan
from securecoderl_edge.errors import UsageError
from securecoderl_edge.models.gpus import GPUS
from securecoderl_edge.problems.sources import check_exists, is_for_evaluation
from securecoderl_edge.runs import DONE_FILE, Run, default_folder, is_found_by_default
from securecoderl_edge.system.processes import is_first_process, on_ending_signals
from securecoderl_edge.training.curves import TRACKERS
from securecoderl_edge.training.folder import check_folder
from securecoderl_edge.training.phase_settings import DISTILL, PpoSettings
from securecoderl_edge.training.recipe import PPO_FLAGS, REWARD_FLAGS, check_ppo, choose_recipe, phase_steps, resolve
from securecoderl_edge.training.settings import RewardSettings, TrainSettings, cap_steps

# The exit code of EX_TEMPFAIL in sysexits.h: try again later.
TIME_IS_UP = 75


@click.command(
    epilog=examples(
        "sce train",
        "sce train -m qwen-0.5b --dry-run",
        "sce train -m qwen-0.5b --problems mbpp:clean --max-minutes 60",
        "sce train --recipe instruct -m MODEL.gguf --problems mine.jsonl --reward-function reward.py:shorter",
    )
)
@click.option(
    "--recipe",
    type=RECIPE,
    metavar="NAME|FILE",
    help="Built-in recipe or TOML file.  [default: the one that fits the model; starter for the built-in one]",
)
@options_from(TrainSettings, keep_unset=True)
@options_from(PpoSettings, keep_unset=True, only=PPO_FLAGS)
@options_from(RewardSettings, keep_unset=True, only=REWARD_FLAGS)
@click.option("--dry-run", is_flag=True, help="Print a plan with phases and memory by part, and stop.")
@click.option(
    "--reward-function",
    metavar="FILE.py:NAME",
    help="Your own reward function, with the signature of TRL's; its weight is reward.function_weight.",
)
@click.option(
    "--measure",
    is_flag=True,
    help="With --dry-run: load the model, make the readiness report, and time one update of each phase.",
)
@click.option(
    "--gpu",
    type=click.Choice(list(GPUS)),
    help="With --dry-run: plan for this GPU, which need not be here. Times are estimated from its data sheet.",
)
@click.option(
    "--max-minutes",
    type=FiniteFloat(0.001),
    metavar="N",
    help=f"End after N minutes with a checkpoint and exit code {TIME_IS_UP}; the same command resumes.",
)
@click.option("--max-steps", type=Integer(1), help="Maximum number of updates per phase.")
@click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help="Change a setting of the recipe, such as ppo.epochs=4; may be repeated.",
)
@click.option("--out", type=PATH, help="Run folder.  [default: runs/RECIPE, or runs/MODEL without --recipe]")
@click.option(
    "--resume/--no-resume", default=True, help="Resume the run in --out, or delete it first.  [default: resume]"
)
@click.option(
    "--track",
    "trackers",
    type=click.Choice(TRACKERS),
    multiple=True,
    help="Pass the numbers of each update on to this package, too; may be repeated. Without it nothing leaves the "
    "machine.",
)
def train(
    recipe: str | None,
    overrides: tuple[str, ...],
    out: Path | None,
    resume: bool,
    dry_run: bool,
    measure: bool,
    max_minutes: float | None,
    max_steps: int | None,
    gpu: str | None,
    trackers: tuple[str, ...],
    reward_function: str | None,
    given: dict[str, Any],
) -> None:
    """Train a model: SFT, then PPO with rewards from running its programs.

    Without arguments it trains the built-in model nano on built-in problems, in about three minutes on two CPU cores.
    The result is a LoRA adapter. The same command again resumes an interrupted run. Flags override the recipe.
    """
    if (gpu is not None or measure) and not dry_run:
        raise UsageError(f"--{'measure' if measure else 'gpu'} belongs to a plan. Add --dry-run")
    if gpu is not None and measure:
        raise UsageError("--gpu plans for a GPU that need not be here, so nothing can be measured. Leave one out")
    started = time.monotonic()
    if reward_function is not None:
        overrides = (*overrides, f"reward.function={json.dumps(reward_function)}")
    choice = choose_recipe(recipe, overrides, given, download=not dry_run)
    settings = resolve(choice.name, overrides, given, download=not dry_run)
    if settings.reward.function is not None:
        from securecoderl_edge.scoring.own_reward import own_function

        own_function(settings.reward.function).check()
    if is_for_evaluation(settings.problems):
        say(f"{settings.problems} is for evaluation: a result on it means nothing after this. To train: mbpp:clean")
    if max_steps:
        settings = cap_steps(settings, max_steps)
        check_ppo(settings)
    folder = out or default_folder(choice.run_name)
    if dry_run and not measure:
        from securecoderl_edge.training.plan import make_plan

        print_plan(make_plan(settings, None if gpu is None else GPUS[gpu]), choice)
        return
    check_exists(settings.problems)
    if measure:
        from securecoderl_edge.models.packages import require_torch

        require_torch()
        from securecoderl_edge.training.measured_plan import measure_plan

        print_plan(measure_plan(settings, Run(folder), say), choice)
        return
    if is_first_process():
        check_folder(Run(folder), settings, resume=resume)
        if recipe is None:
            say(f"recipe {choice.name}: {choice.why}")
        warn_of_level(settings.reward.sandbox)
    seconds = None if max_minutes is None else max(0.001, 60 * max_minutes - (time.monotonic() - started))
    _train_until(seconds, settings, folder, resume, trackers)


def _train_until(
    seconds: float | None, settings: TrainSettings, folder: Path, resume: bool, trackers: tuple[str, ...]
) -> None:
    """Train until the end, a signal, or for these seconds; says what is saved."""
    ending = _Ending()
    try:
        with on_ending_signals(ending, seconds):
            _train(settings, folder, resume, ending, is_first_process(), trackers)
    except KeyboardInterrupt:
        is_late = ending.first == signal.SIGALRM
        if is_first_process():
            why = "the time of --max-minutes is over" if is_late else "stopped"
            say(f"{why}: {Run(folder).progress()}; run the same command to resume")
        if is_late:
            click.get_current_context().exit(TIME_IS_UP)
        raise


def _train(
    settings: TrainSettings, folder: Path, resume: bool, ending: _Ending, talks: bool, trackers: tuple[str, ...]
) -> None:
    """Train, with progress on stderr if ``talks``: of several processes one prints."""
    from securecoderl_edge.models.packages import require_torch

    require_torch()  # takes seconds, so mistakes are told before
    from securecoderl_edge.training.parallel import leave
    from securecoderl_edge.training.phase import Stopped
    from securecoderl_edge.training.train import train as run_training

    steps = phase_steps(settings)
    if "sft" in steps and settings.sft.epochs is not None:
        steps["sft"] = 0  # its first update knows
    is_finished = resume and (Run(folder).policy / DONE_FILE).is_file()

    def updates(phase: str, step: int | None) -> int:
        """The updates of the run up to one of a phase, or to its end."""
        names = list(steps)
        return sum(steps[name] for name in names[: names.index(phase)]) + (steps[phase] if step is None else step)

    saved = Run(folder).saved() if resume else None
    done = updates(*saved) if saved is not None and saved[0] in steps else 0
    with track(sum(steps.values()), "training", done=done, shown=talks) as progress:

        def log(row: dict[str, Any]) -> None:
            steps[row["phase"]] = _expected_updates(row, settings)
            progress.reach(updates(row["phase"], row["step"]), _describe(row), sum(steps.values()))

        try:
            run = run_training(
                settings,
                folder,
                resume=resume,
                log=log,
                say=say,
                should_stop=lambda: ending.first is not None,
                on_stage=lambda now: progress.show_stage(now.name, now.done, now.total, now.unit),
                trackers=trackers,
            )
        except Stopped:
            raise KeyboardInterrupt from None
        finally:
            leave()
    if talks:
        if is_finished:
            say(f"{folder} is finished: nothing was trained")
        for phase, facts in run.outcomes():
            say(f"{phase}: selected step {facts.get('chosen_step')} of {facts.get('steps')}: {facts.get('why')}")
        say(f"the policy is in {run.policy}; next: sce export{'' if is_found_by_default(run) else f' {run.path}'}")


def _expected_updates(row: dict[str, Any], settings: TrainSettings) -> int:
    """The updates of a phase after one of them: fewer than its settings say if a budget of tokens ends it."""
    budget = getattr(settings.phase(row["phase"]), "max_tokens_sampled", None)
    step, most = int(row["step"]), int(row["steps"])
    return most if budget is None else min(most, max(step, math.ceil(step * budget / row["tokens_sampled"])))


def _describe(row: dict[str, Any]) -> str:
    """Describe one update in one line."""
    position = f"{row['phase']} {row['step']}/{row['steps']}"
    if row["phase"] == "sft":
        return f"{position}  loss {row['loss/sft']:.3f}"
    if "kept_rate" in row:
        loss = f"{row['loss/sft']:.3f}" if "loss/sft" in row else "-"  # missing if no completion was kept
        tests = f"  all tests {row['all_tests_rate']:.0%}" if "all_tests_rate" in row else ""
        return f"{position}  loss {loss}  kept {row['kept_rate']:.0%}{tests}"
    kl = f"{row['objective/kl']:z.2f}" if "objective/kl" in row else "-"  # missing if no group had a gradient
    if row["phase"] == DISTILL:
        return f"{position}  KL {kl}  truncated {row['truncated_rate']:.0%}"
    rates = f"all tests {row['all_tests_rate']:.0%}  syntax {row['syntax_rate']:.0%}"
    varied = f"  varied {1 - row['zero_variance_rate']:.0%}" if "zero_variance_rate" in row else ""
    return f"{position}  reward {row['objective/reward']:.3f}  {rates}{varied}  KL {kl}"


class _Ending:
    """Handler of signals: the first one ends training at once, which saves the last finished update.

    During that only Ctrl-C counts, and loses it. Batch systems send SIGTERM before the end, however often.

    Attributes:
        first: the first signal. Training asks for it too: the exception of a handler can be lost in a destructor, until
            it comes again.
    """

    first: int | None = None

    def __call__(self, number: int, _frame: FrameType | None) -> None:
        is_first, self.first = self.first is None, self.first or number
        if number == signal.SIGHUP:
            _leave_terminal()
        if is_first or number == signal.SIGINT:
            raise KeyboardInterrupt


def _leave_terminal() -> None:
    """Discard output to a closed terminal: a failed write must not prevent the checkpoint."""
    for stream in (1, 2):
        if stat.S_ISCHR(os.fstat(stream).st_mode):  # not isatty, which is false for a closed terminal
            write_nowhere(stream)
