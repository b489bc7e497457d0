"""``sce train``: a run from a recipe; flags over ``--set`` over file over defaults."""

from __future__ import annotations

import itertools
import os
import signal
import stat
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import click
from rich.table import Table

from securecoderl_edge.commands.console import data, duration, say, track, warn_of_level, write_nowhere
from securecoderl_edge.commands.options import options_from
from securecoderl_edge.text import escape_controls
from securecoderl_edge.training.settings import PPO_FLAGS, REWARD_FLAGS, PpoSettings, RewardSettings, TrainSettings

if TYPE_CHECKING:
    from securecoderl_edge.training.plan import Plan


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
@click.option("--dry-run", is_flag=True, help="Print the plan, with the time from one update of each kind, and stop.")
@click.option("--max-steps", type=click.IntRange(1), help="Most updates in each phase.")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Any setting, such as ppo.epochs=4.")
@click.option("--out", type=click.Path(path_type=Path), help="Run folder.  [default: runs/RECIPE]")
@click.option("--resume/--no-resume", default=True, help="Go on with the run in --out, or throw it away first.")
def train(
    recipe: str,
    overrides: tuple[str, ...],
    out: Path | None,
    resume: bool,
    dry_run: bool,
    max_steps: int | None,
    given: dict[str, Any],
) -> None:
    """Train a policy: supervised warm start, then PPO on execution rewards.

    Without arguments the built-in model learns from the built-in problems, in minutes on a CPU. The same command
    again goes on where it stopped. What no flag sets is as the recipe says.
    """
    from securecoderl_edge.models.loading import require_torch

    require_torch()
    from securecoderl_edge.runs import Run, default_folder
    from securecoderl_edge.training.parallel import is_first_process
    from securecoderl_edge.training.schedules import phase_steps
    from securecoderl_edge.training.settings import cap_steps, resolve

    settings = resolve(recipe, overrides, given)
    if max_steps:
        settings = cap_steps(settings, max_steps)
    folder = out or default_folder(recipe)
    if dry_run:
        from securecoderl_edge.training.plan import make_plan

        _print_plan(make_plan(settings, Run(folder)))
        return
    if is_first_process():
        warn_of_level(settings.reward.sandbox)
    _train(settings, folder, resume, phase_steps(settings), is_first_process())


def _train(settings: TrainSettings, folder: Path, resume: bool, steps: dict[str, int], talks: bool) -> None:
    """Train with progress on stderr, if this process is the one that talks."""
    from securecoderl_edge.runs import is_found_by_default
    from securecoderl_edge.training.parallel import leave
    from securecoderl_edge.training.phase import Stopped
    from securecoderl_edge.training.train import train as run_training

    before = dict(zip(steps, itertools.accumulate(steps.values(), initial=0), strict=False))
    with track(sum(steps.values()), "training", shown=talks) as progress, _Interrupt(talks) as interrupt:
        shown = 0

        def log(row: dict[str, Any]) -> None:
            nonlocal shown
            done = before[row["phase"]] + row["step"]
            progress.update(done - shown, _describe(row))
            shown = done

        try:
            run = run_training(settings, folder, resume=resume, log=log, say=say, should_stop=lambda: interrupt.asked)
        except Stopped as stopped:
            if talks:
                say(f"{stopped}; the same command goes on from there")
            raise KeyboardInterrupt from None
        finally:
            leave()
    if talks:
        for phase, facts in run.outcomes():
            say(f"{phase}: kept step {facts.get('chosen_step')} of {facts.get('steps')}: {facts.get('why')}")
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


def _print_plan(plan: Plan) -> None:
    """The plan as a table on stdout, and what it rests on."""
    facts = {
        "model": f"{plan.model}, {plan.parameters / 1e6:.1f} M weights, {plan.trained_parameters / 1e6:.2f} M trained",
        "computed on": f"{plan.device}, base in {plan.base_precision}, products in {plan.products_in}",
        "longest prompt": f"{plan.longest_prompt} of {plan.context} tokens",
    }
    if plan.counts:
        counts = plan.counts
        cut = f", {counts.cut} of them cut to do so" if counts.cut else ""
        facts["problems"] = (
            f"{counts.usable} of {counts.problems} fit{cut}; {counts.held_out} more held out to choose by"
        )
    for name, fact in facts.items():
        data.print(escape_controls(f"{name:15} {fact}"))
    for line in plan.missing:
        data.print(escape_controls(f"{'not here':15} {line}"))
    _print_phases(plan)
    _print_memory(plan)
    tokens = sum(phase.most_tokens or 0 for phase in plan.phases)
    data.print(f"at most {tokens:,} tokens sampled, were each completion as long as permitted")
    if plan.seconds is None:
        data.print("no time guess: that takes one timed update, with the model, the problems and the device at hand")
    else:
        data.print(f"in all about {duration(plan.seconds)}, judged by one update and one evaluation of each phase")


def _print_phases(plan: Plan) -> None:
    table = Table(box=None)
    for column in ("phase", "updates", "rate", "batch", "evaluations", "s/update", "time"):
        table.add_column(column, justify="left" if column == "phase" else "right")
    for phase in plan.phases:
        samples = phase.sequences // phase.prompts
        table.add_row(
            phase.name, str(phase.steps), f"{phase.learning_rate:g}",
            str(phase.prompts) if samples == 1 else f"{phase.prompts} x {samples}",
            str(phase.evaluations),
            "-" if phase.seconds_per_update is None else f"{phase.seconds_per_update:.2f}",
            "-" if phase.seconds is None else duration(phase.seconds),
        )  # fmt: skip
    data.print(table)


def _print_memory(plan: Plan) -> None:
    """Memory by part: one column for the supervised phase, one for the others, which need the same."""
    columns = {phase.name if phase.name == "sft" else "ppo": phase.memory for phase in plan.phases}
    table = Table(box=None)
    table.add_column("memory, GiB")
    for name in columns:
        table.add_column(name, justify="right")

    def row(label: str, sizes: list[int | None]) -> None:
        table.add_row(label, *("-" if size is None else f"{size / 2**30:.3f}" for size in sizes))

    plans = list(columns.values())
    for group in ("always", "sampling", "update"):
        parts = dict.fromkeys(name for memory in plans for name in getattr(memory, group))
        for part in parts:
            label = part if group == "always" else f"{group}: {part}"
            row(label, [getattr(memory, group).get(part) for memory in plans])
    row("peak", [memory.peak for memory in plans])
    data.print(table)
    without = "" if all(memory.is_whole for memory in plans) else ", apart from what --rollout hf takes to sample"
    data.print(f"fits in {plan.limit_bytes / 2**30:.3g} GiB{without}")


class _Interrupt:
    """Ctrl-C once asks for a checkpoint after the current update; twice stops at once.

    SIGTERM, with which batch systems announce the end, and a closed terminal ask for it too, however often.
    """

    asked = False

    def __init__(self, talks: bool) -> None:
        self._talks = talks
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> _Interrupt:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if number is signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN:
                continue  # started by nohup: it is to go on without its terminal
            self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        if self.asked and number == signal.SIGINT:
            raise KeyboardInterrupt
        is_first, self.asked = not self.asked, True
        if number == signal.SIGHUP:
            _leave_terminal()
        if self._talks and is_first:
            say("stopping after this update; Ctrl-C again stops at once and loses it")


def _leave_terminal() -> None:
    """A line that cannot be written to a terminal that is gone must not keep the update from being saved."""
    for stream in (1, 2):
        if stat.S_ISCHR(os.fstat(stream).st_mode):  # no isatty: what is gone is none any more
            write_nowhere(stream)
