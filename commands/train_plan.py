"""The plan of ``sce train --dry-run`` on a terminal: model, problems, phases, memory and time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table

from securecoderl_edge.commands.console import data, duration, show_table
from securecoderl_edge.text import escape_controls
from securecoderl_edge.training.phase_settings import RL_PHASES

if TYPE_CHECKING:
    from securecoderl_edge.training.plan import Plan
    from securecoderl_edge.training.recipe import RecipeChoice


def print_plan(plan: Plan, choice: RecipeChoice) -> None:
    """Print the plan on stdout: model, recipe, problems, phases, memory and time."""
    trained, device = plan.trained_parameters / 1e6, plan.gpu.name if plan.gpu else plan.device
    facts = {
        "model": f"{plan.model}, {plan.parameters / 1e6:.1f} M parameters, {trained:.2f} M trained",
        "recipe": f"{choice.name}: {choice.why}",
        "device": f"{device}, base weights in {plan.base_precision}, computation in {plan.products_in}",
        "longest prompt": f"{plan.longest_prompt} of {plan.context} tokens",
    }
    if plan.teacher:
        facts["teacher"] = plan.teacher
    if counts := plan.counts:
        cut = f" ({counts.cut} with a shortened prompt)" if counts.cut else ""
        fitting = "for training" if counts.usable is None else "fit the context"
        number = f"{counts.problems}" if counts.usable is None else f"{counts.usable} of {counts.problems}"
        more = f"{counts.held_out} more for validation"
        trained_on = counts.problems if counts.usable is None else counts.usable
        if repeated := [each.name for each in plan.phases if each.prompts > trained_on]:
            more += f"; fewer than an update of {', '.join(repeated)} takes: problems repeat in it"
        facts["problems"] = f"{number} {fitting}{cut}; {more}"
    if plan.difficulty:
        facts["difficulty"] = plan.difficulty
    if plan.reward:
        facts["reward"] = plan.reward
    for name, fact in [*facts.items(), *(("missing", line) for line in plan.missing)]:
        data.print(escape_controls(f"{name:15} {fact}"), soft_wrap=True)
    _print_phases(plan)
    _print_memory(plan)
    if plan.readiness is not None:
        for name, fact in plan.readiness.facts().items():
            data.print(escape_controls(f"{name:15} {fact}"), soft_wrap=True)
    elif plan.readiness_seconds:
        data.print(f"{'readiness':15} not measured; about {duration(plan.readiness_seconds)} before RL")
    tokens = sum(phase.most_tokens or 0 for phase in plan.phases)
    if tokens:
        data.print(f"at most {tokens:,} sampled tokens, if every completion has the maximum length")
    if plan.seconds is not None and plan.gpu is not None:
        data.print(
            f"about {duration(plan.seconds)} in all if every completion has the maximum length, without running "
            f"programs; estimated from the data sheet of a {plan.gpu.name}, not measured",
            soft_wrap=True,
        )
    elif plan.seconds is None:
        data.print("no time estimate; --measure loads the model and times one update of each phase")
    else:
        data.print(f"about {duration(plan.seconds)} in all, estimated from one update and one evaluation of each phase")


def _print_phases(plan: Plan) -> None:
    table = Table(box=None)
    for column in ("phase", "updates", "learning rate", "batch", "evaluations", "s/update", "time"):
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
    show_table(table, data)


def _print_memory(plan: Plan) -> None:
    """Print memory by part: one column for all PPO phases, which need the same, and one for each other phase."""
    columns = {"ppo" if phase.name in RL_PHASES else phase.name: phase.memory for phase in plan.phases}
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
    show_table(table, data)
    without = "" if all(memory.is_whole for memory in plans) else ", without the memory of sampling"
    data.print(f"fits in {plan.limit_bytes / 2**30:.3g} GiB{without}")
