"""The settings of a training run: shared by recipe files, the flags of ``sce train`` and ``config.toml``."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any

from securecoderl_edge.config import MAX_SEED, setting
from securecoderl_edge.models.adapters import LoraSettings
from securecoderl_edge.models.gpus import device_setting
from securecoderl_edge.prompts.extraction import EXTRACT_MODES
from securecoderl_edge.prompts.styles import TRAINED_STYLES
from securecoderl_edge.sandbox.levels import sandbox_setting
from securecoderl_edge.sandbox.limits import MAX_MEMORY_MIB, MAX_WALL_SECONDS, TRAINING_LIMITS
from securecoderl_edge.sandbox.sanitizers import analyzers_setting
from securecoderl_edge.sandbox.severity import severity_setting
from securecoderl_edge.scoring.reward import COMBINATIONS, credit_rule_setting, security_rule_setting
from securecoderl_edge.training.phase_settings import (
    DISTILL,
    PHASES,
    RL_PHASES,
    WITHOUT_REWARD,
    DistillSettings,
    PhaseSettings,
    PpoSettings,
    PromptSamplingSettings,
    RftSettings,
    SelfTrainingSettings,
    SftSettings,
    SsdSettings,
)

CURRICULUM = ("sft", "binary", "partial")
LARGEST_SHARE = 0.1  # of the problems that are held out
# May change when a run is resumed: they affect time, memory, rounding and reports, not what is trained.
_CHANGEABLE = (
    "checkpoint_every",
    "gradient_checkpointing",
    "memory_gib",
    "ppo.micro_batch_tokens",
    "ppo.rollout_sequences",
    "readiness_problems",
)


@dataclass(frozen=True)
class PromptSettings:
    """The prompt format, for training and for later use of the policy."""

    style: str = setting(
        "stdin",
        "stdin: built-in sections; paper: function stub between ### Instruction and ### Response; chat: chat template; "
        "prefilled: chat template with the beginning of the answer.",
        choices=TRAINED_STYLES,
    )
    max_tokens: int | None = setting(
        None, "Longest prompt in tokens; by default all that the context has room for.", minimum=1
    )
    overlong: str = setting(
        "drop",
        "Longer prompts. drop: leave the problem out; truncate: cut the end of its statement.",
        choices=("drop", "truncate"),
    )


@dataclass(frozen=True)
class SelectionSettings:
    """Checkpoint selection: the policy is evaluated on held-out training problems, with fixed seeds."""

    every: int = setting(25, "Updates between evaluations.", minimum=1)
    problems: int = setting(
        32,
        "Training problems to hold out, at most a tenth of all. 0: no evaluation, keep the last step.",
        minimum=0,
    )
    samples: int = setting(2, "Completions per held-out problem.", minimum=1)
    hold_out: str = setting(
        "groups",
        "groups: no variant of a held-out problem is trained on; problems: choose single problems, variants or not.",
        choices=("groups", "problems"),
    )
    metric: str = setting(
        "all_tests",
        "Select by the rate of programs that pass all tests, or by the reward. none: evaluate, keep the last step.",
        choices=("all_tests", "reward", "none"),
    )
    standard_errors: float = setting(
        2.0,
        "Keep an earlier step only if it is better than the last one by more than this many standard errors of the "
        "paired difference.",
        minimum=0,
    )


@dataclass(frozen=True)
class RewardSettings:
    """The parts of the reward (Eq. 1-2 and Table 1 of the paper)."""

    unparsable: str = setting(
        "zero", "Reward of a completion that does not parse. zero: 0; paper: 0.40.", choices=("zero", "paper")
    )
    security_weight: float = setting(
        0.4,
        "beta in R = (1 - beta) * R_func + beta * R_sec, for training; tables report R at 0.4.",
        minimum=0,
        maximum=1,
    )
    combine: str = setting(
        "sum",
        "sum: R above; gate: R_sec counts only for programs that pass all of their tests.",
        choices=COMBINATIONS,
    )
    ignored_input: str = setting(
        "zero",
        "Programs that do not read their arguments, or standard input, where every reference solution does. zero: they "
        "count as programs that pass no test, with R_func = 0; keep: as all others.",
        choices=("zero", "keep"),
    )
    extract: str = setting(
        "auto",
        "The program in a completion. auto: the code block or the function in it; raw: the whole text.",
        choices=EXTRACT_MODES,
    )
    credit_rule: str = credit_rule_setting()
    security: str = security_rule_setting()
    severity: str = severity_setting()
    analyzers: str = analyzers_setting()
    visible_tests: str = setting(
        "keep",
        "Tests that the statement shows. drop: leave them out if at least two other tests remain; drop-one: only the "
        "first of them.",
        choices=("keep", "drop", "drop-one"),
    )
    function: str | None = setting(
        None, "Your own reward function in a Python file, with the signature of TRL's.", metavar="FILE.py:NAME"
    )
    function_weight: float = setting(
        0.5,
        "w in (1 - w) * R + w * f, where f is what reward.function returns. 1: f takes the place of R.",
        minimum=0,
        maximum=1,
    )
    random: float | None = setting(
        None,
        "A baseline in place of R: reward 1 with this probability, else 0, whatever the program (arXiv:2506.10947).",
        minimum=0,
        maximum=1,
    )
    subtract_constant_baseline: bool = setting(
        False, "Subtract the score of the best constant output from partial credit."
    )
    sandbox: str = sandbox_setting()
    cpu_seconds: float = setting(TRAINING_LIMITS.cpu_seconds, "CPU time of one test.", minimum=0.1)
    wall_seconds: float = setting(
        TRAINING_LIMITS.wall_seconds, "Wall time of one test.", minimum=0.1, maximum=MAX_WALL_SECONDS
    )
    memory_mib: int = setting(TRAINING_LIMITS.memory_mib, "Memory of one test.", minimum=128, maximum=MAX_MEMORY_MIB)

    @property
    def weight_of_own(self) -> float:
        """The weight of numbers that are not R: those of ``function``, or random ones, which take the place of R."""
        return self.function_weight if self.random is None else 1.0


@dataclass(frozen=True)
class TrainSettings:
    """All settings of a training run."""

    model: str = setting(
        "nano",
        "Base model: a name that sce models lists, a folder, a GGUF file, or a Hugging Face repo id.",
        metavar="MODEL",
        short="-m",
    )
    problems: str = setting(
        "starter:train", "Training problems: starter[:SPLIT], mbpp:clean or a JSONL file.", metavar="FILE"
    )
    reformat_solutions: bool = setting(
        False, "Write Python solutions in one format before training on them: four spaces, no comments (ast.unparse)."
    )
    init: str | None = setting(
        None, "Start from the policy of another run or of one of its phases.", metavar="RUN[:PHASE]"
    )
    phases: tuple[str, ...] = setting(CURRICULUM, "Phases in order, comma-separated.", choices=PHASES)
    seed: int = setting(42, "Random seed.", minimum=0, maximum=MAX_SEED)
    device: str = device_setting()
    base_precision: str = setting(
        "auto",
        "dtype of the frozen base. auto: int8 on a GPU, fp32 on a CPU; int8-bnb: LLM.int8 of bitsandbytes.",
        choices=("auto", "int8", "int8-bnb", "fp16", "bf16", "fp32"),
    )
    optimizer: str = setting(
        "adamw",
        "AdamW with float32 states, or the 8-bit version of bitsandbytes.",
        choices=("adamw", "adamw8bit"),
    )
    gradient_checkpointing: bool = setting(
        False, "Recompute activations in the backward pass: about a third slower, much less memory."
    )
    memory_gib: float | None = setting(
        None, "Memory budget in GiB (default: all device memory). Enforced on a GPU.", minimum=0.1
    )
    warmup_steps: int = setting(
        5, "Linear warmup of the learning rate at the start of each phase, in updates.", minimum=0
    )
    lr_schedule: str = setting(
        "constant",
        "Learning rate after warmup. constant, or linear: decays towards 0, reached at the end of SFT and of the run.",
        choices=("constant", "linear"),
    )
    checkpoint_every: int = setting(10, "Updates between checkpoints.", minimum=1)
    snapshot_every: int | None = setting(
        None, "Updates between intermediate checkpoints to keep, for learning curves (default: none).", minimum=1
    )
    readiness_problems: int = setting(
        32, "Training problems to sample for the readiness report before RL. 0: no report.", minimum=0
    )
    prompt: PromptSettings = field(default_factory=PromptSettings)
    lora: LoraSettings = field(default_factory=LoraSettings)
    sft: SftSettings = field(default_factory=SftSettings)
    ppo: PpoSettings = field(default_factory=PpoSettings)
    sampling: PromptSamplingSettings = field(default_factory=PromptSamplingSettings)
    binary: PhaseSettings = field(default_factory=PhaseSettings)
    scheduled: PhaseSettings = field(default_factory=PhaseSettings)
    partial: PhaseSettings = field(default_factory=PhaseSettings)
    rft: RftSettings = field(default_factory=RftSettings)
    ssd: SsdSettings = field(default_factory=SsdSettings)
    distill: DistillSettings = field(default_factory=DistillSettings)
    selection: SelectionSettings = field(default_factory=SelectionSettings)
    reward: RewardSettings = field(default_factory=RewardSettings)

    def phase(self, name: str) -> SftSettings | PhaseSettings | SelfTrainingSettings:
        """The table of one phase."""
        table: SftSettings | PhaseSettings | SelfTrainingSettings = getattr(self, name)
        return table

    def measures_kl(self, phase: str) -> bool:
        """Whether updates of a phase compute the KL to the reference."""
        return phase == DISTILL or (phase in RL_PHASES and self.ppo.kl_coefficient > 0)

    def teacher_of(self, *phases: str) -> str | None:
        """The model in place of the frozen reference, if an update of one of the phases asks it."""
        return self.ppo.reference if any(map(self.measures_kl, phases)) else None

    @property
    def runs_programs(self) -> bool:
        """Whether the run scores programs, so that its problems need tests."""
        filters = "sft" in self.phases and self.sft.filter == "security"
        return self.selection.problems > 0 or filters or not set(self.phases) <= set(WITHOUT_REWARD)

    def prompt_room(self, context: int) -> int:
        """Tokens that a prompt may have in a model of this context."""
        room = context - self.ppo.max_tokens
        return room if self.prompt.max_tokens is None else min(room, self.prompt.max_tokens)


def with_own_r(reward: RewardSettings) -> RewardSettings:
    """The same tests and scan, combined to R as reported."""
    plain = RewardSettings()
    return replace(
        reward,
        unparsable=plain.unparsable,
        security_weight=plain.security_weight,
        combine=plain.combine,
        ignored_input="keep",
        function=plain.function,
        function_weight=plain.function_weight,
        random=plain.random,
        subtract_constant_baseline=plain.subtract_constant_baseline,
    )


def without_changeable(table: dict[str, Any]) -> dict[str, Any]:
    """A table of settings without those that are `_CHANGEABLE`."""
    return without(table, _CHANGEABLE)


def without(table: dict[str, Any], names: Collection[str]) -> dict[str, Any]:
    """A table of settings without some, of which those in inner tables have names such as ``ppo.epochs``."""
    kept: dict[str, Any] = {}
    for name, value in table.items():
        if isinstance(value, dict):
            kept[name] = {inner: each for inner, each in value.items() if f"{name}.{inner}" not in names}
        elif name not in names:
            kept[name] = value
    return kept


def cap_steps(settings: TrainSettings, max_steps: int) -> TrainSettings:
    """The same run with at most ``max_steps`` updates in each phase."""
    tables: dict[str, Any] = {name: settings.phase(name) for name in PHASES}
    return replace(settings, **{n: replace(t, steps=min(t.steps, max_steps)) for n, t in tables.items()})
