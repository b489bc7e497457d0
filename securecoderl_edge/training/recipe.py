"""From a recipe, ``--set`` and flags to the settings of a run, and what follows from these alone.

That is: which combinations are impossible, how many updates a phase has, and the learning rate of each.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from securecoderl_edge.config import apply_overrides, build, read_toml
from securecoderl_edge.errors import UsageError
from securecoderl_edge.training.settings import OF_GROUPS, PHASES, RL_PHASES, SELF_TRAINING, TrainSettings

# Settings of a table that have flags of their own.
PPO_FLAGS = ("batch_size", "learning_rate")
REWARD_FLAGS = ("sandbox",)
_RECIPES = Path(__file__).parent / "recipes"


def load_recipe(name: str) -> dict[str, Any]:
    """The decoded table of a built-in recipe or of a TOML file.

    Raises:
        UsageError: no such recipe or file.
        SceError: not TOML.
    """
    builtin = _RECIPES / f"{name}.toml"
    if "/" not in name and builtin.is_file():
        return read_toml(builtin)
    if not name.endswith(".toml"):
        known = ", ".join(sorted(path.stem for path in _RECIPES.glob("*.toml")))
        raise UsageError(f"unknown recipe {name!r}. Choose from {known}, or give a .toml file")
    return read_toml(Path(name))


def known_shapes() -> dict[str, dict[str, object]]:
    """The config.json of the models that the built-in recipes name, by repo id."""
    shapes: dict[str, dict[str, object]] = json.loads((_RECIPES / "shapes.json").read_text(encoding="utf-8"))
    return shapes


def resolve(recipe: str, overrides: tuple[str, ...], flags: dict[str, Any]) -> TrainSettings:
    """Merge recipe, ``--set`` overrides and typed flags, and check what only the whole can tell.

    Raises:
        UsageError: an unknown or impossible setting.
    """
    table = apply_overrides(load_recipe(recipe), overrides)
    for name, value in flags.items():
        if name in (*PPO_FLAGS, *REWARD_FLAGS):
            inner = "ppo" if name in PPO_FLAGS else "reward"
            if not isinstance(table.get(inner, {}), dict):
                raise UsageError(f"recipe {recipe}: {inner} must be a table of settings")
            table[inner] = {**table.get(inner, {}), name: value}
        else:
            table[name] = value
    settings = build(TrainSettings, table, f"recipe {recipe}")
    if not settings.phases:
        raise UsageError(f"--phases is empty; give at least one of {', '.join(PHASES)}")
    if len(set(settings.phases)) != len(settings.phases):
        raise UsageError("--phases lists a phase twice")
    if "sft" in settings.phases and settings.phases[0] != "sft":
        raise UsageError("--phases: sft must come first. The KL penalty uses its result as the reference")
    reward = settings.reward
    if reward.subtract_constant_baseline and reward.credit_rule not in ("any", "fraction"):
        raise UsageError("reward.subtract_constant_baseline needs reward.credit_rule = any or fraction")
    check_ppo(settings)
    return settings


def check_ppo(settings: TrainSettings) -> None:
    """Check the settings of the RL phases together; `UsageError` if they contradict each other."""
    ppo = settings.ppo
    of_groups = ppo.advantage in OF_GROUPS
    if of_groups and ppo.samples_per_prompt < 2:
        raise UsageError(
            f"ppo.advantage = {ppo.advantage} needs ppo.samples_per_prompt of at least 2. Or set ppo.advantage = gae"
        )
    if not of_groups and ppo.drop_zero_variance_groups:
        raise UsageError(
            f"ppo.advantage = {ppo.advantage} uses every completion. Set ppo.drop_zero_variance_groups = false"
        )
    if ppo.advantage != "gae" and ppo.value_warmup_steps:
        raise UsageError(f"ppo.value_warmup_steps needs ppo.advantage = gae: {ppo.advantage} has no value head")
    for name in settings.phases:
        if name in RL_PHASES and ppo.value_warmup_steps >= settings.phase(name).steps:
            raise UsageError(f"ppo.value_warmup_steps leaves no update of {name} that trains the policy")
    if ppo.batch_size % ppo.samples_per_prompt:
        raise UsageError(
            f"ppo.batch_size {ppo.batch_size} is not a multiple of ppo.samples_per_prompt {ppo.samples_per_prompt}"
        )
    if (prompts := ppo.batch_size // ppo.samples_per_prompt) % ppo.minibatches:
        raise UsageError(f"a batch has {prompts} prompts, which ppo.minibatches {ppo.minibatches} does not divide")


def phase_steps(settings: TrainSettings) -> dict[str, int]:
    """Number of updates of each phase of the run, in order."""
    return {phase: settings.phase(phase).steps for phase in settings.phases}


def with_sft_epochs(settings: TrainSettings, problems: int) -> TrainSettings:
    """The settings with ``sft.steps`` lowered to ``sft.epochs`` passes over this number of problems."""
    sft = settings.sft
    if sft.epochs is None:
        return settings
    steps = -(-sft.epochs * problems // sft.batch_size)
    return replace(settings, sft=replace(sft, steps=min(sft.steps, steps)))


def peak_rate(settings: TrainSettings, phase: str) -> float:
    """The highest learning rate of a phase."""
    own = settings.phase(phase).learning_rate
    if own is not None:
        return own
    return settings.sft.learning_rate if phase in SELF_TRAINING else settings.ppo.learning_rate


def rate_share(settings: TrainSettings, phase: str, step: int) -> float:
    """The learning rate at update ``step`` (from 1) of a phase, as a fraction of its peak.

    It warms up in every phase, since each has a new optimizer. With a linear schedule it falls over sft, and once over
    all later updates: the noise of late batches then averages out instead of remaining in the policy.
    """
    share = min(1.0, step / max(1, settings.warmup_steps))
    if settings.lr_schedule == "linear":
        steps = phase_steps(settings)
        together = [name for name in steps if (name == "sft") == (phase == "sft")]
        before = sum(steps[name] for name in together[: together.index(phase)])
        share = min(share, 1 - (before + step - 1) / sum(steps[name] for name in together))
    return share
