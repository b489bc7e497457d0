"""The settings of a training run: what a recipe file, the flags of ``sce train`` and ``config.toml`` have in common."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from securecoderl_edge.config import MAX_SEED, apply_overrides, build, read_toml, setting
from securecoderl_edge.errors import UsageError
from securecoderl_edge.models.adapters import LoraSettings
from securecoderl_edge.prompts.styles import TRAINED_STYLES
from securecoderl_edge.sandbox.levels import sandbox_setting
from securecoderl_edge.sandbox.limits import MAX_MEMORY_MIB, MAX_WALL_SECONDS
from securecoderl_edge.sandbox.severity import severity_setting
from securecoderl_edge.scoring.reward import stage_rule_setting

PHASES = ("sft", "binary", "scheduled", "partial")
CURRICULUM = ("sft", "binary", "partial")
# Settings of a table that have flags of their own.
PPO_FLAGS = ("batch_size", "learning_rate", "rollout")
REWARD_FLAGS = ("sandbox",)
RECIPES = Path(__file__).parent / "recipes"
# What may change while a run goes on: time, memory and rounding depend on it, not what is learnt.
CHANGEABLE = (
    "checkpoint_every",
    "gradient_checkpointing",
    "memory_gib",
    "ppo.micro_batch_tokens",
    "ppo.rollout_sequences",
)


@dataclass(frozen=True)
class PromptSettings:
    """How problems are put to the model, while it is trained and afterwards."""

    style: str = setting(
        "stdin",
        "Our own sections; the stub of the paper between ### Instruction and ### Response; the model's chat template.",
        choices=TRAINED_STYLES,
    )
    max_tokens: int | None = setting(None, "Longest prompt; by default as long as the context has room for.", minimum=1)
    overlong: str = setting(
        "drop", "Longer ones: leave the problem out, or cut the end of its statement off.", choices=("drop", "truncate")
    )


@dataclass(frozen=True)
class SftSettings:
    """Supervised warm start on reference solutions."""

    steps: int = setting(40, "Updates.", minimum=1)
    batch_size: int = setting(32, "Sequences an update.", minimum=1)
    learning_rate: float = setting(3e-4, "Step size of AdamW.", minimum=0)
    max_tokens: int = setting(512, "Longest solution; longer ones are not learnt from.", minimum=1)
    solutions: str = setting(
        "any",
        "Which solution of a problem: any at random, or the shortest, so that the policy writes in one style.",
        choices=("any", "shortest"),
    )
    patience: int | None = setting(None, "Stop after so many evaluations without progress.", minimum=1)


@dataclass(frozen=True)
class PhaseSettings:
    """Length, step size and stop rules of one phase of reinforcement learning."""

    steps: int = setting(25, "Updates.", minimum=1)
    learning_rate: float | None = setting(None, "Step size for the adapter; that of [ppo] without it.", minimum=0)
    stop_kl: float | None = setting(None, "Stop when a completion is so many nats from the reference.", minimum=0)
    patience: int | None = setting(None, "Stop after so many evaluations without progress.", minimum=1)


@dataclass(frozen=True)
class ScheduledSettings(PhaseSettings):
    """A phase whose reward goes from binary to partial credit: (1 - w) binary + w partial."""

    mixture: str = setting(
        "linear",
        "How w rises: linear over the phase; step, from 0 to 1; or pass-rate, with the share of programs that pass.",
        choices=("linear", "step", "pass-rate"),
    )
    switch_at: float = setting(0.5, "With `step`: the share of the updates after which w is 1.", minimum=0, maximum=1)
    full_pass_rate: float = setting(
        0.5,
        "With `pass-rate`: w is the running share of programs that pass all tests over this, at most 1.",
        minimum=0.01,
        maximum=1,
    )


@dataclass(frozen=True)
class SelectionSettings:
    """Which update of a phase is kept: held-out problems are answered at fixed seeds every so often."""

    every: int = setting(25, "Updates between evaluations.", minimum=1)
    problems: int = setting(
        32,
        "Training problems held out for it; never more than a tenth of all. 0: no evaluation, the last is kept.",
        minimum=0,
    )
    samples: int = setting(2, "Programs for each of them.", minimum=1)


@dataclass(frozen=True)
class PpoSettings:
    """Proximal policy optimisation, in the phases that learn from rewards."""

    batch_size: int = setting(64, "Completions an update.", minimum=1)
    samples_per_prompt: int = setting(
        8, "Completions of one prompt; the baseline of `group` needs at least 2.", minimum=1
    )
    advantage: str = setting("group", "gae: value head; group: leave-one-out baseline.", choices=("gae", "group"))
    skip_flat_groups: bool = setting(
        False,
        "With `group`: leave out prompts whose samples were all rewarded alike; only the KL penalty acts on them.",
    )
    epochs: int = setting(2, "Passes over each batch.", minimum=1)
    stop_epochs_kl: float | None = setting(
        None, "No further pass once the policy is so many nats a token from the one that sampled.", minimum=0
    )
    learning_rate: float = setting(1e-3, "Step size of AdamW for the adapter.", minimum=0)
    value_learning_rate: float = setting(1e-3, "Step size of AdamW for the value head.", minimum=0)
    value_warmup_steps: int = setting(
        0, "Updates of a phase in which only the value head learns; with `gae`.", minimum=0
    )
    value_coefficient: float = setting(0.5, "Weight of the value loss.", minimum=0)
    clip_range: float = setting(0.2, "PPO clips each token's probability ratio to 1 +- this.", minimum=0)
    kl_coefficient: float = setting(0.02, "Price of a nat of KL from the SFT policy, inside the reward.", minimum=0)
    discount: float = setting(1.0, "Gamma.", minimum=0, maximum=1)
    trace: float = setting(0.95, "Lambda of GAE.", minimum=0, maximum=1)
    temperature: float = setting(0.7, "Sampling temperature.", minimum=0.01)
    max_tokens: int = setting(192, "Longest completion.", minimum=1)
    rollout_sequences: int = setting(
        64, "Completions decoded at a time, at least those of one prompt; bounds memory.", minimum=1
    )
    micro_batch_tokens: int = setting(2048, "Tokens in one forward and backward pass; bounds memory.", minimum=1)
    gradient_norm: float = setting(1.0, "Gradients are scaled down to this norm.", minimum=0)
    rollout: str = setting("own", "Sampler: our own, or Hugging Face's generate.", choices=("own", "hf"))


@dataclass(frozen=True)
class RewardSettings:
    """What the reward is made of (the paper's Eq. 1-2 and Table 1)."""

    reading: str = setting(
        "gated", "What text that does not parse gets: gated 0, paper 0.40.", choices=("gated", "paper")
    )
    security_weight: float = setting(
        0.4,
        "Beta of R = (1 - beta) R_func + beta R_sec in training; tables show R at 0.4.",
        minimum=0,
        maximum=1,
    )
    stage_rule: str = stage_rule_setting()
    severity: str = severity_setting()
    shown_tests: str = setting(
        "keep",
        "Tests that the statement shows; drop: where two others remain.",
        choices=("keep", "drop"),
    )
    correct_constants: bool = setting(
        False, "Partial credit only for tests beyond those that the best constant answer passes."
    )
    sandbox: str = sandbox_setting()
    cpu_seconds: float = setting(2.0, "CPU time of one test.", minimum=0.1)
    wall_seconds: float = setting(10.0, "Wall time of one test.", minimum=0.1, maximum=MAX_WALL_SECONDS)
    memory_mib: int = setting(512, "Memory of one test.", minimum=128, maximum=MAX_MEMORY_MIB)


@dataclass(frozen=True)
class TrainSettings:
    """One training run, whole."""

    model: str = setting("nano", "Base model: nano, a folder, or a hub id.", metavar="MODEL")
    problems: str = setting("starter:train", "Training problems: starter[:SPLIT] or a JSONL file.", metavar="FILE")
    init: str | None = setting(
        None, "Start from the policy of another run, or of one of its phases.", metavar="RUN[:PHASE]"
    )
    phases: tuple[str, ...] = setting(CURRICULUM, "Phases in order, comma-separated.", choices=PHASES)
    seed: int = setting(42, "Seed of every random choice.", minimum=0, maximum=MAX_SEED)
    device: str = setting("auto", "Where the model computes.", choices=("auto", "cpu", "cuda"))
    base_precision: str = setting(
        "auto",
        "Number format of the frozen base; auto: int8 on a GPU, fp32 on a CPU. int8-bnb: LLM.int8 of bitsandbytes.",
        choices=("auto", "int8", "int8-bnb", "fp16", "bf16", "fp32"),
    )
    optimizer: str = setting(
        "adamw",
        "AdamW with states in float32, or by bitsandbytes in 8 bits, paged out to the host if need be.",
        choices=("adamw", "adamw8bit", "paged-adamw8bit"),
    )
    gradient_checkpointing: bool = setting(
        False, "Compute layers again in the backward pass: about a third slower, a fraction of the memory."
    )
    memory_gib: float | None = setting(
        None, "Memory to plan for, all of the device's by default; on a GPU the run is held to it.", minimum=0.1
    )
    warmup_steps: int = setting(5, "Updates over which a phase's learning rate rises from 0.", minimum=0)
    rate_schedule: str = setting(
        "constant",
        "Learning rate after that: constant, or linear, down towards 0 at the end of sft and at the end of the run.",
        choices=("constant", "linear"),
    )
    checkpoint_every: int = setting(10, "Updates between checkpoints.", minimum=1)
    snapshot_every: int | None = setting(
        None, "Updates between copies of the adapter that are kept, for learning curves; none by default.", minimum=1
    )
    prompt: PromptSettings = field(default_factory=PromptSettings)
    lora: LoraSettings = field(default_factory=LoraSettings)
    sft: SftSettings = field(default_factory=SftSettings)
    ppo: PpoSettings = field(default_factory=PpoSettings)
    binary: PhaseSettings = field(default_factory=PhaseSettings)
    scheduled: ScheduledSettings = field(default_factory=ScheduledSettings)
    partial: PhaseSettings = field(default_factory=PhaseSettings)
    selection: SelectionSettings = field(default_factory=SelectionSettings)
    reward: RewardSettings = field(default_factory=RewardSettings)

    def phase(self, name: str) -> SftSettings | PhaseSettings:
        """The table of one phase."""
        table: SftSettings | PhaseSettings = getattr(self, name)
        return table

    def prompt_room(self, context: int) -> int:
        """Tokens that a prompt may have in a model of this context."""
        room = context - self.ppo.max_tokens
        return room if self.prompt.max_tokens is None else min(room, self.prompt.max_tokens)


def load_recipe(name: str) -> dict[str, Any]:
    """The decoded table of a built-in recipe or of a TOML file.

    Raises:
        UsageError: no such recipe or file.
        SceError: not TOML.
    """
    builtin = RECIPES / f"{name}.toml"
    if "/" not in name and builtin.is_file():
        return read_toml(builtin)
    if not name.endswith(".toml"):
        known = ", ".join(sorted(path.stem for path in RECIPES.glob("*.toml")))
        raise UsageError(f"no recipe {name!r}; there are {known}, or give a .toml file")
    return read_toml(Path(name))


def known_shapes() -> dict[str, dict[str, object]]:
    """The config.json of the models that the built-in recipes name, by hub id."""
    shapes: dict[str, dict[str, object]] = json.loads((RECIPES / "shapes.json").read_text(encoding="utf-8"))
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
        raise UsageError("--phases is empty; give at least one of sft, binary, partial, scheduled")
    if len(set(settings.phases)) != len(settings.phases):
        raise UsageError("--phases names a phase twice")
    if "sft" in settings.phases and settings.phases[0] != "sft":
        raise UsageError("--phases: sft must come first, since the KL penalty is measured against its result")
    reward = settings.reward
    if reward.correct_constants and reward.stage_rule not in ("any", "fraction"):
        raise UsageError("reward.correct_constants needs reward.stage_rule any or fraction, which pay for k of T tests")
    ppo = settings.ppo
    if ppo.advantage == "group" and ppo.samples_per_prompt < 2:
        raise UsageError("ppo.advantage = group needs ppo.samples_per_prompt of at least 2; or use advantage = gae")
    if ppo.advantage != "group" and ppo.skip_flat_groups:
        raise UsageError("ppo.advantage = gae learns from every sample; set ppo.skip_flat_groups = false with it")
    if ppo.advantage != "gae" and ppo.value_warmup_steps:
        raise UsageError("ppo.value_warmup_steps: only advantage = gae has a value head")
    for name in settings.phases:
        if name != "sft" and ppo.value_warmup_steps >= settings.phase(name).steps:
            raise UsageError(f"ppo.value_warmup_steps leaves no update of {name} in which the policy learns")
    if ppo.batch_size % ppo.samples_per_prompt:
        raise UsageError(
            f"ppo.batch_size {ppo.batch_size} is no multiple of ppo.samples_per_prompt {ppo.samples_per_prompt}"
        )
    return settings


def without_changeable(table: dict[str, Any]) -> dict[str, Any]:
    """A table of settings without those that are `CHANGEABLE`."""
    # Hugging Face's sampler draws for all that it decodes together from one generator.
    of_hf = "ppo.rollout_sequences" if table.get("ppo", {}).get("rollout") == "hf" else None
    changeable = set(CHANGEABLE) - {of_hf}
    kept: dict[str, Any] = {}
    for name, value in table.items():
        if isinstance(value, dict):
            kept[name] = {inner: each for inner, each in value.items() if f"{name}.{inner}" not in changeable}
        elif name not in changeable:
            kept[name] = value
    return kept


def cap_steps(settings: TrainSettings, max_steps: int) -> TrainSettings:
    """The same run with at most ``max_steps`` updates in each phase."""
    tables: dict[str, Any] = {name: settings.phase(name) for name in PHASES}
    return replace(settings, **{n: replace(t, steps=min(t.steps, max_steps)) for n, t in tables.items()})
