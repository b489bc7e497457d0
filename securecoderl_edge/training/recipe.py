"""From a model, a recipe, ``--set`` and flags to the settings of a run, and what follows from these alone.

That is: which recipe fits a model, which combinations are impossible, how many updates a phase has, and the learning
rate of each.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from securecoderl_edge.config import apply_overrides, build, read_toml
from securecoderl_edge.errors import UsageError
from securecoderl_edge.models.files import BUILT_IN, NANO, SMOLLM2
from securecoderl_edge.training.base import describe_base, learning_rate
from securecoderl_edge.training.phase_settings import (
    DISTILL,
    OF_GROUPS,
    PHASES,
    RL_PHASES,
    SELF_TRAINING,
    WITHOUT_REWARD,
)
from securecoderl_edge.training.settings import TrainSettings

# Settings of a table that have flags of their own.
PPO_FLAGS = ("batch_size", "learning_rate")
REWARD_FLAGS = ("sandbox",)
_RECIPES = Path(__file__).parent / "recipes"
# In a recipe, the name of another one: settings that are not in the first are those of the second.
BUILT_ON = "recipe"
# Values that stand for what a model's header says.
BY_SIZE, ALL_LAYERS = "by size", ["all"]
# Of models that have a recipe of their own.
_OWN = {NANO: "starter", "nano-c": "starter-c", SMOLLM2: "smollm2", "qwen-0.5b": "qwen-0.5b"}
INSTRUCT, BASE = "instruct", "base"


@dataclass(frozen=True)
class RecipeChoice:
    """A recipe, in one clause why it was chosen, and the default name of its run."""

    name: str
    why: str
    run_name: str


def choose_recipe(
    recipe: str | None, overrides: tuple[str, ...], flags: dict[str, Any], *, download: bool = False
) -> RecipeChoice:
    """The recipe that was asked for, or the one that fits the model that was.

    Args:
        download: whether to download a repo of the hub, to read its chat template.

    Raises:
        UsageError: the model is unknown, or not here.
        SceError, MissingExtra: see `describe_base`.
    """
    if recipe is not None:
        return RecipeChoice(recipe, "you named it", recipe)
    model = flags.get("model") or apply_overrides({}, overrides).get("model")
    name = NANO if model is None else str(model)
    if name in _OWN:
        return RecipeChoice(_OWN[name], f"it is made for {name}", _OWN[name])
    base = describe_base(name, download=download)
    if base.is_chat is None:
        raise UsageError(f"{base.missing}. Without it no recipe can be chosen: name one with --recipe")
    run_name = Path(name).resolve().name.removesuffix(".gguf")
    if base.is_chat:
        return RecipeChoice(INSTRUCT, "the model was trained to answer in its chat template", run_name)
    why = "the model was not trained to answer in a chat template, so SFT comes first"
    return RecipeChoice(BASE, why, run_name)


def load_recipe(name: str) -> dict[str, Any]:
    """The decoded table of a built-in recipe or of a TOML file, on top of the recipes that it is built on.

    Raises:
        UsageError: no such recipe or file, or one is built on itself.
        SceError: not TOML.
    """
    table: dict[str, Any] = {}
    names = [name]
    while True:
        found = _read_recipe(names[-1])
        below = found.pop(BUILT_ON, None)
        table = _merged(found, table)
        if below is None:
            return table
        if not isinstance(below, str) or below in names:
            raise UsageError(f"recipe {names[-1]}: {BUILT_ON} must be the name of another recipe, found {below!r}")
        names.append(below)


def recipe_names() -> list[str]:
    """The built-in recipes."""
    return sorted(path.stem for path in _RECIPES.glob("*.toml"))


def _read_recipe(name: str) -> dict[str, Any]:
    builtin = _RECIPES / f"{name}.toml"
    if "/" not in name and builtin.is_file():
        return read_toml(builtin)
    if not name.endswith(".toml"):
        raise UsageError(f"unknown recipe {name!r}. Choose from {', '.join(recipe_names())}, or give a .toml file")
    return read_toml(Path(name))


def _merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    merged = {**below, **above}
    for name, value in above.items():
        if isinstance(value, dict) and isinstance(below.get(name), dict):
            merged[name] = _merged(below[name], value)
    return merged


def resolve(recipe: str, overrides: tuple[str, ...], flags: dict[str, Any], *, download: bool = False) -> TrainSettings:
    """Merge recipe, ``--set`` overrides and typed flags, and check what only the whole can tell.

    Args:
        download: as in `choose_recipe`, for a recipe with settings that depend on the model.

    Raises:
        UsageError: an unknown or impossible setting.
        SceError, MissingExtra: see `describe_base`.
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
    _fit_to_model(table, recipe, download)
    settings = build(TrainSettings, table, f"recipe {recipe}")
    if not settings.phases:
        raise UsageError(f"--phases is empty; give at least one of {', '.join(PHASES)}")
    if len(set(settings.phases)) != len(settings.phases):
        raise UsageError("--phases lists a phase twice")
    if "sft" in settings.phases and settings.phases[0] != "sft":
        raise UsageError("--phases: sft must come first. The KL penalty uses its result as the reference")
    reward = settings.reward
    if set(settings.phases) <= set(WITHOUT_REWARD):
        for name in ("random", "function"):
            if getattr(reward, name) is not None:
                raise UsageError(f"reward.{name} has no effect: no phase has a reward ({', '.join(settings.phases)})")
    if reward.subtract_constant_baseline and reward.credit_rule not in ("any", "fraction"):
        raise UsageError("reward.subtract_constant_baseline needs reward.credit_rule = any or fraction")
    if reward.random is not None and reward.function is not None:
        raise UsageError("reward.random takes the place of every reward. Leave out reward.function")
    check_ppo(settings)
    check_sampling(settings)
    return settings


def _fit_to_model(table: dict[str, Any], recipe: str, download: bool) -> None:
    """Replace the values that stand for what the model's header says."""
    places = {"ppo": ("learning_rate", BY_SIZE), "sft": ("learning_rate", BY_SIZE), "lora": ("targets", ALL_LAYERS)}
    asked = {
        name: key
        for name, (key, value) in places.items()
        if isinstance(table.get(name), dict) and table[name].get(key) == value
    }
    if not asked:
        return
    model = str(table.get("model", NANO))
    if model in BUILT_IN and recipe in (INSTRUCT, BASE):
        raise UsageError(f"recipe {recipe} is for models that are not built in. Give one with --model")
    base = describe_base(model, download=download)
    fitting: dict[str, Any] = {
        "ppo": learning_rate(base.size),
        "sft": 2 * learning_rate(base.size),
        "lora": list(base.architecture.lora_sizes()),
    }
    for name, key in asked.items():
        table[name] = {**table[name], key: fitting[name]}


def check_ppo(settings: TrainSettings) -> None:
    """Check the settings of the RL phases together; `UsageError` if they contradict each other."""
    ppo = settings.ppo
    of_groups = ppo.advantage in OF_GROUPS
    if of_groups and ppo.samples_per_prompt < 2 and set(settings.phases) & set(RL_PHASES):
        raise UsageError(
            f"ppo.advantage = {ppo.advantage} needs ppo.samples_per_prompt of at least 2. Or set ppo.advantage = gae"
        )
    if not of_groups and ppo.drop_zero_variance_groups:
        raise UsageError(
            f"ppo.advantage = {ppo.advantage} uses every completion. Set ppo.drop_zero_variance_groups = false"
        )
    if ppo.advantage != "gae" and ppo.value_warmup_steps:
        raise UsageError(f"ppo.value_warmup_steps needs ppo.advantage = gae: {ppo.advantage} has no value head")
    _check_teacher(settings)
    for name in settings.phases:
        if name in RL_PHASES and ppo.value_warmup_steps >= settings.phase(name).steps:
            raise UsageError(f"ppo.value_warmup_steps leaves no update of {name} that trains the policy")
    if ppo.batch_size % ppo.samples_per_prompt:
        raise UsageError(
            f"ppo.batch_size {ppo.batch_size} is not a multiple of ppo.samples_per_prompt {ppo.samples_per_prompt}"
        )
    if ppo.hint and ppo.samples_per_prompt % 2:
        raise UsageError(f"ppo.hint is for half of each prompt's completions; {ppo.samples_per_prompt} have no half")
    if ppo.hint and not {*RL_PHASES, "rft"} & set(settings.phases):
        raise UsageError(f"ppo.hint is for phases of RL and rft, and this run has {', '.join(settings.phases)}")
    if (prompts := ppo.batch_size // ppo.samples_per_prompt) % ppo.minibatches:
        raise UsageError(f"a batch has {prompts} prompts, which ppo.minibatches {ppo.minibatches} does not divide")


def _check_teacher(settings: TrainSettings) -> None:
    """Check that a phase that needs a teacher has one, and that a teacher is heard."""
    ppo, in_rl = settings.ppo, [name for name in settings.phases if name in RL_PHASES]
    if ppo.reference is None:
        if DISTILL in settings.phases:
            raise UsageError("the phase distill needs a teacher. Name a model: --set ppo.reference=MODEL")
    elif in_rl and not ppo.kl_coefficient and DISTILL not in settings.phases:
        raise UsageError(f"{in_rl[0]} asks ppo.reference nothing at ppo.kl_coefficient = 0. Set it above 0")
    elif in_rl and ppo.kl_coefficient and ppo.drop_zero_variance_groups:
        raise UsageError(
            f"ppo.reference teaches {in_rl[0]} on groups with equal rewards, too. Set ppo.drop_zero_variance_groups = "
            "false, or ppo.kl_coefficient = 0 if the teacher is only for distill"
        )


def check_sampling(settings: TrainSettings) -> None:
    """Check the settings that choose problems together; `UsageError` if one contradicts another, or has no effect."""
    sampling, bounds = settings.sampling, settings.sampling.pass_rate
    if sampling.resample and not settings.ppo.drop_zero_variance_groups:
        raise UsageError("sampling.resample needs ppo.drop_zero_variance_groups = true")
    if bounds is not None and sampling.difficulty is None:
        raise UsageError("sampling.pass_rate needs sampling.difficulty, a file that sce data difficulty writes")
    if bounds is not None and bounds[0] > bounds[1]:
        raise UsageError(f"sampling.pass_rate begins at {bounds[0]:g}, above its end {bounds[1]:g}")
    if sampling.difficulty is not None and bounds is None and sampling.method == "uniform":
        raise UsageError("sampling.difficulty has no effect. Set sampling.pass_rate, or sampling.method = adaptive")


def phase_steps(settings: TrainSettings) -> dict[str, int]:
    """Number of updates of each phase of the run, in order."""
    return {phase: settings.phase(phase).steps for phase in settings.phases}


def most_completions(settings: TrainSettings, phase: str) -> int:
    """Completions that an update of a phase samples, those in place of others included."""
    ppo = settings.ppo
    return ppo.batch_size + (settings.sampling.resample * ppo.samples_per_prompt if phase in RL_PHASES else 0)


def with_sft_epochs(settings: TrainSettings, problems: int) -> TrainSettings:
    """The settings with ``sft.steps`` lowered to ``sft.epochs`` passes over this number of problems."""
    sft = settings.sft
    if sft.epochs is None:
        return settings
    steps = -(-sft.epochs * problems // sft.batch_size)
    return replace(settings, sft=replace(sft, steps=min(sft.steps, steps)))


def no_solutions(settings: TrainSettings, wanted: str) -> UsageError:
    """The error of SFT on problems without what it trains on."""
    others = ",".join(each for each in settings.phases if each != "sft") or "binary"
    return UsageError(
        f"{settings.problems}: no problem has a {wanted}, so SFT cannot run. Leave it out with --phases {others}"
    )


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
        if phase == "rft":  # a round trains at its end, with the rate of its beginning
            step -= (step - 1) % settings.rft.updates_per_round
        steps = phase_steps(settings)
        together = [name for name in steps if (name == "sft") == (phase == "sft")]
        before = sum(steps[name] for name in together[: together.index(phase)])
        share = min(share, 1 - (before + step - 1) / sum(steps[name] for name in together))
    return share
