"""The paper's Table 3 as a study: SFT, and policies trained from it with the binary, the partial, and both rewards.

Two baselines that a user might take instead of RL have as many updates, of as many samples: RFT and SSD.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from securecoderl_edge.config import setting
from securecoderl_edge.errors import UsageError
from securecoderl_edge.evaluation.shards import engine_setting, shard_of, shard_setting
from securecoderl_edge.models.gpus import device_setting
from securecoderl_edge.runs import RUNS
from securecoderl_edge.runtimes.protocol import MAX_THREADS
from securecoderl_edge.system.machine import cpu_count
from securecoderl_edge.training.recipe import load_recipe, phase_steps, resolve
from study_engine.arms import FIRST_SEED, Arm, Base, Split, Study

SFT = "sft"
_QUICK_BASE_UPDATES, _QUICK_SFT_UPDATES = 20, 10
# The paper's names for: binary reward, partial credit, one after the other; and `sched`, a gradual transition between
# them.
VARIANTS = {
    SFT: ("SFT", ("sft",)),
    "simple": ("PPO-simple", ("sft", "binary")),
    "fresh": ("PPO-fresh", ("sft", "partial")),
    "cont": ("PPO-cont", ("sft", "binary", "partial")),
    "sched": ("PPO-sched", ("sft", "scheduled")),
    "rft": ("RFT", ("sft", "rft")),
    "ssd": ("SSD", ("sft", "ssd")),
}
PPO_VARIANTS = (SFT, "simple", "fresh", "cont", "sched")


# Nano solves none of the hard problems, so a reward for success would always be 0. After pretraining on a little text
# about other hard problems it solves a few percent.
NANO_HARD = Base(
    "nano-hard",
    160,
    (
        *("--documents", "8000", "--security-share", "0", "--hard-share", "1/2"),
        *("--learning-rate", "1e-3", "--seed", "1", "--compiled"),
    ),
)

_MBPP_CLEAN = "mbpp:clean"
_APPS_PLUS = Split("eval", "apps-plus-train.jsonl", "apps-plus-eval.jsonl")


@dataclass(frozen=True)
class Preset:
    """Splits and sizes of a recipe's study.

    Attributes:
        updates: number of updates after SFT in every variant; None: as in each phase of the recipe. Those of the paper
            follow the paper: its curriculum has twice the updates of the others.
        snapshot_every: see `Arm`.
        variants: those that are trained unless others are chosen.
        measured_on: more splits for evaluation. is_greedy: greedy decoding, one sample per problem, instead of two.
        threads: of an evaluation; by default each job's share of the cores. base_precision: of an evaluation.
    """

    splits: tuple[Split, ...]
    updates: int | None = None
    snapshot_every: int | None = None
    variants: tuple[str, ...] = PPO_VARIANTS
    measured_on: tuple[Split, ...] = ()
    is_greedy: bool = False
    threads: int | None = None
    base_precision: str = "fp32"


PRESETS = {
    "starter": Preset(
        (
            Split("eval", "starter:general-train", "starter:eval"),
            Split("hard", "starter:hard-train", "starter:hard", NANO_HARD),
        ),
        updates=40,
        snapshot_every=20,
        variants=tuple(VARIANTS),
        threads=1,
    ),
    "smollm2": Preset(
        (Split("mbpp", _MBPP_CLEAN, "mbpp:test"),),
        updates=40,
        variants=(SFT, "simple", "fresh", "cont", "sched", "rft"),
        measured_on=(Split("humaneval", _MBPP_CLEAN, "humaneval:test"), Split("eval", _MBPP_CLEAN, "starter:eval")),
        is_greedy=True,
        base_precision="bf16",  # less than half of the time of fp32, where the processor multiplies bfloat16
    ),
    "paper-exact": Preset((_APPS_PLUS,), variants=(SFT, "simple", "fresh", "cont")),
    "paper-v100": Preset((_APPS_PLUS,), snapshot_every=100),
}


@dataclass(frozen=True)
class Table3Settings:
    """The settings of ``sce reproduce table3``."""

    recipe: str = setting("starter", "Built-in recipe or TOML file.", metavar="NAME|FILE")
    train: str | None = setting(None, "Training problems instead of the recipe's; needs --eval.", metavar="FILE")
    eval: str | None = setting(None, "Evaluation problems, which are not in --train; needs --train.", metavar="FILE")
    splits: tuple[str, ...] = setting((), "Use only these splits of the recipe, for example eval,hard.")
    variants: tuple[str, ...] = setting(
        (),
        "Training variants, comma-separated.  [default: sft and PPO; rft for starter and smollm2; ssd for starter]",
        choices=tuple(VARIANTS),
    )
    seeds: int = setting(5, "Training runs per variant, with seeds 42, 43, ...", minimum=1)
    samples: int | None = setting(
        None,
        "Completions per evaluation problem.  [default: 2; for smollm2 one, by greedy decoding]",
        minimum=1,
        metavar="N",
    )
    updates: int | None = setting(
        None,
        "Updates of each variant after SFT.  [default: 40 for starter and smollm2, else those of the recipe]",
        minimum=2,
        metavar="N",
    )
    quant: tuple[str, ...] = setting(("q8_0",), "GGUF types to export and evaluate, comma-separated; '' for none.")
    jobs: int | None = setting(
        None,
        "Training runs at the same time; they share the cores.  [default: 1; 2 with --quick]",
        minimum=1,
        metavar="N",
    )
    device: str = device_setting()
    threads: int | None = setting(
        None,
        "CPU threads of an evaluation.  [default: 1 for starter, else all cores over --jobs]",
        minimum=1,
        maximum=MAX_THREADS,
        metavar="N",
    )
    quick: bool = setting(
        False, "Small test: one seed, 10 updates of SFT, 4 of RL, 30 problems. Its results mean nothing."
    )
    out: str | None = setting(None, "Folder for runs and results.  [default: runs/table3]", metavar="DIR")
    engine: str = engine_setting()
    shard: str | None = shard_setting("Train only part I of N of the seeds, for N machines. Join them with --merge.")

    @property
    def jobs_at_once(self) -> int:
        """``jobs``; by default one, since a training fills a GPU, but those of a quick study do not fill two cores."""
        return self.jobs or (min(2, cpu_count()) if self.quick else 1)

    def chosen_splits(self) -> tuple[Split, ...]:
        """The problems to train and evaluate on.

        Raises:
            UsageError: the settings cannot be combined, or name no problems.
        """
        if (self.train is None) != (self.eval is None):
            raise UsageError("--train and --eval need each other: give training problems and evaluation problems.")
        own = () if self.train is None or self.eval is None else (Split("own", self.train, self.eval),)
        known = own or (PRESETS[self.recipe].splits if self.recipe in PRESETS else ())
        missing = [name for name in self.splits if name not in {each.name for each in known}]
        if missing:
            there = ", ".join(each.name for each in known) or "none"
            raise UsageError(f"--splits: unknown split {missing[0]!r} of recipe {self.recipe}; choose from {there}")
        if not known:
            load_recipe(self.recipe)  # raises an error for an unknown recipe
            raise UsageError(f"recipe {self.recipe}: missing evaluation problems. Give them with --eval FILE")
        return tuple(each for each in known if not self.splits or each.name in self.splits)


def refuse_with_quick(settings: Any, *names: str) -> None:
    """Refuse a size next to ``--quick``, which sets all sizes.

    Raises:
        UsageError: both were given.
    """
    changed = [name for name in names if getattr(settings, name) != getattr(type(settings)(), name)]
    if settings.quick and changed:
        raise UsageError(f"--quick sets --{changed[0]} itself. Leave one of them out.")


def table3(settings: Table3Settings, overrides: tuple[str, ...] = ()) -> Study:
    """The study that the settings describe.

    Args:
        overrides: see `Study`.

    Raises:
        UsageError: settings that cannot be combined, a recipe without a preset and without problems, an unknown
            variant, too few updates, or an override that the study itself decides.
    """
    refuse_with_quick(settings, "seeds", "samples", "updates")
    recipe, preset = settings.recipe, PRESETS.get(settings.recipe, Preset(()))
    splits, variants = settings.chosen_splits(), settings.variants or preset.variants
    count = preset.updates if settings.updates is None else settings.updates
    seeds, samples, snapshot_every = settings.seeds, settings.samples or 2, preset.snapshot_every
    is_greedy = settings.samples is None and preset.is_greedy
    if settings.quick:
        seeds, samples, count, snapshot_every = 1, 1, 4, None
        splits = tuple(
            each if each.base is None else replace(each, base=replace(each.base, updates=_QUICK_BASE_UPDATES))
            for each in splits
        )
        if resolve(recipe, overrides, {}).sft.steps > _QUICK_SFT_UPDATES:
            overrides = (f"sft.steps={_QUICK_SFT_UPDATES}", *overrides)
    unknown = [name for name in variants if name not in VARIANTS]
    if unknown:
        raise UsageError(f"unknown variant {unknown[0]!r}; choose from {', '.join(VARIANTS)}")
    if count is not None and count < 2:
        raise UsageError("--updates must be at least 2: the curriculum has two phases")
    measured_on = splits if settings.train else (*splits, *preset.measured_on)
    arms = tuple(
        Arm(
            f"{split.name}-{name}",
            title,
            split,
            phases,
            _steps(recipe, name, count, overrides),
            measured_on,
            tuple(dict.fromkeys(settings.quant)),
            snapshot_every,
        )
        for split in splits
        for name, (title, phases) in VARIANTS.items()
        if name in variants
    )
    _refuse_decided(overrides, arms, snapshot_every)
    pairs = (itertools.combinations([arm.name for arm in arms if arm.split == split], 2) for split in splits)
    return Study(
        "table3",
        recipe,
        Path(settings.out) if settings.out else RUNS / ("table3-quick" if settings.quick else "table3"),
        arms,
        tuple(shard_of(settings.shard).of(range(FIRST_SEED, FIRST_SEED + seeds), "seeds")),
        1 if is_greedy else samples,
        30 if settings.quick else None,
        tuple(itertools.chain.from_iterable(pairs)),
        overrides=overrides,
        device=settings.device,
        threads=settings.threads or preset.threads or max(1, cpu_count() // settings.jobs_at_once),
        is_greedy=is_greedy,
        base_precision=preset.base_precision,
        base_run=(arms[0], FIRST_SEED) if arms else None,  # of whatever seeds
    )


def _refuse_decided(overrides: Sequence[str], arms: Sequence[Arm], snapshot_every: int | None) -> None:
    """Refuse overrides that the study itself decides: an arm's setting would replace them."""
    decided = {setting.partition("=")[0]: "--updates" for arm in arms for setting in arm.settings}
    decided |= dict.fromkeys(("problems",), "--train and --eval") | {"phases": "--variants", "seed": "--seeds"}
    decided |= {"device": "--device"} | ({} if snapshot_every is None else {"snapshot_every": "your own recipe"})
    for override in overrides:
        name = override.partition("=")[0].strip()
        if name in decided:
            raise UsageError(f"--set {name}: the study decides this. Use {decided[name]}")


def _steps(recipe: str, variant: str, updates: int | None, overrides: tuple[str, ...]) -> tuple[str, ...]:
    """The numbers of updates of a variant's phases, as settings."""
    phases = VARIANTS[variant][1][1:]
    if updates is None:
        if variant not in ("sched", "rft", "ssd"):
            return ()
        steps = phase_steps(resolve(recipe, overrides, {"phases": ("binary", "partial")}))
        updates = sum(steps.values()) if variant == "sched" else steps["binary"]
    first = updates // 2
    lengths = [first, updates - first] if len(phases) == 2 else [updates]
    return tuple(f"{phase}.steps={length}" for phase, length in zip(phases, lengths, strict=False))
