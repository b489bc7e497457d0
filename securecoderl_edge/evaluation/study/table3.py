"""The paper's Table 3 as a study: SFT, and policies trained from it with the binary, the partial, and both rewards.

Two baselines that a user might take instead of RL have as many updates, of as many samples: RFT and SSD.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from securecoderl_edge.errors import UsageError
from securecoderl_edge.evaluation.study.arms import FIRST_SEED, Arm, Base, Split, Study
from securecoderl_edge.system.machine import cpu_count
from securecoderl_edge.training.recipe import load_recipe, phase_steps, resolve

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
    "qwen-0.5b": Preset((Split("eval", "problems-train.jsonl", "problems-eval.jsonl"),), snapshot_every=25),
}


def table3(
    recipe: str,
    folder: Path,
    *,
    splits: Sequence[Split] = (),
    variants: Sequence[str] | None = None,
    seeds: int = 5,
    samples: int | None = None,
    updates: int | None = None,
    quants: Sequence[str] = ("q8_0",),
    is_quick: bool = False,
    overrides: tuple[str, ...] = (),
    device: str = "auto",
    threads: int | None = None,
    jobs: int = 1,
) -> Study:
    """The study of a recipe.

    Args:
        splits: instead of the preset's; required for a recipe without a preset.
        variants: names in `VARIANTS`, instead of the preset's.
        samples: per problem and model, instead of the preset's way of decoding.
        updates: number of updates after SFT in every variant, instead of the preset's.
        overrides, device: see `Study`. threads: instead of the preset's.
        jobs: evaluations at the same time; without a number of threads they share the cores.
        is_quick: a small version: one seed, at most 10 updates of SFT, 4 of RL, 30 problems per split with one sample
            each, and base models with little training.

    Raises:
        UsageError: a recipe without a preset and without splits, an unknown variant, too few updates, or an override
            that the study itself decides.
    """
    preset = PRESETS.get(recipe, Preset(()))
    chosen = tuple(splits) or preset.splits
    if not chosen:
        load_recipe(recipe)  # raises an error for an unknown recipe
        raise UsageError(f"recipe {recipe}: missing evaluation problems. Give them with --eval FILE")
    if is_quick:
        chosen = tuple(
            each if each.base is None else replace(each, base=replace(each.base, updates=_QUICK_BASE_UPDATES))
            for each in chosen
        )
        if resolve(recipe, overrides, {}).sft.steps > _QUICK_SFT_UPDATES:
            overrides = (f"sft.steps={_QUICK_SFT_UPDATES}", *overrides)
    wanted = preset.variants if variants is None else variants
    unknown = [name for name in wanted if name not in VARIANTS]
    if unknown:
        raise UsageError(f"unknown variant {unknown[0]!r}; choose from {', '.join(VARIANTS)}")
    count = 4 if is_quick else preset.updates if updates is None else updates
    if count is not None and count < 2:
        raise UsageError("--updates must be at least 2: the curriculum has two phases")
    snapshot_every = None if is_quick else preset.snapshot_every
    measured_on = (*chosen, *preset.measured_on) if set(preset.splits) >= set(splits) else chosen
    is_greedy = samples is None and preset.is_greedy
    arms = tuple(
        Arm(
            f"{split.name}-{name}",
            VARIANTS[name][0],
            split,
            VARIANTS[name][1],
            _steps(recipe, name, count, overrides),
            measured_on,
            tuple(quants),
            snapshot_every,
        )
        for split in chosen
        for name in VARIANTS
        if name in wanted
    )
    _refuse_decided(overrides, arms, snapshot_every)
    pairs = (itertools.combinations([arm.name for arm in arms if arm.split == split], 2) for split in chosen)
    return Study(
        "table3",
        recipe,
        folder,
        arms,
        tuple(range(FIRST_SEED, FIRST_SEED + (1 if is_quick else seeds))),
        1 if is_quick or is_greedy else samples or 2,
        30 if is_quick else None,
        tuple(itertools.chain.from_iterable(pairs)),
        overrides=overrides,
        device=device,
        threads=threads or preset.threads or max(1, cpu_count() // jobs),
        is_greedy=is_greedy,
        base_precision=preset.base_precision,
        base_arm=next(iter(arms), None),
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
