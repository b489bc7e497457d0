"""The studies of Qwen2.5-Coder-0.5B-Instruct; their plans are `study-reliable.md`, `-programs.md` and `-secure.md`."""

from __future__ import annotations

import json
import tomllib
from functools import partial
from pathlib import Path

from study_engine.arms import Arm, Split, Study
from study_engine.run_log import evaluation_problems

# Made by study_data/make.py. Relative, so that steps are the same on every machine.
PROBLEMS = Path("benchmarks/gpu_queue/problems")
RECIPES = Path(__file__).with_name("gpu_queue") / "recipes"
TRAINED = ("sft", "binary", "partial", "rft")  # phases
OF_MODEL = ("model=qwen-0.5b", "base_precision=bf16")  # settings of all trainings
OF_RFT = ("rft.updates_per_round=16", "rft.epochs=3", "rft.batch_size=32")  # those of recipes/functions.toml


def reliable(folder: Path) -> Study:
    """RL on the problems of the pilot, and RFT on the same, at equal sampled tokens."""
    clean = Split("functions", "mbpp:clean", str(PROBLEMS / "functions-eval.jsonl"))
    arm = partial(Arm, measured_on=(clean,))
    arms = (
        arm("reliable-binary", "RL", clean, ("binary",), ("binary.steps=200", "binary.max_tokens_sampled=400000")),
        arm("reliable-rft", "RFT", clean, ("rft",), ("rft.steps=200", "rft.max_tokens_sampled=400000", *OF_RFT)),
    )
    return Study(
        "reliable",
        "instruct",
        folder,
        arms,
        (1, 2, 3),
        samples=4,
        comparisons=(("reliable-rft", "reliable-binary"),),
        base_run=(arms[0], 1),
        evaluation=("--protocol", "evalplus", "--temperature", "0.2", "--max-tokens", "512", "--parallel", "128"),
        overrides=OF_MODEL,
        base_precision="bf16",
    )


def programs(folder: Path) -> Study:
    """The paper's variants on programs that read standard input, after a short SFT; and a longer SFT."""
    plain = Split("programs", "starter:plain-train", "starter:eval")
    short = ("sft.steps=12",)

    def arm(name: str, title: str, phases: tuple[str, ...], *settings: str) -> Arm:
        return Arm(f"programs-{name}", title, plain, phases, settings, (plain,))

    def rl(name: str, title: str, *phases: str) -> Arm:
        tokens = 40_000 // len(phases)
        changed = (f"{phase}.{key}" for phase in phases for key in ("steps=200", f"max_tokens_sampled={tokens}"))
        return arm(name, title, ("sft", *phases), *short, *changed)

    arms = (
        arm("sft", "SFT, 12 updates", ("sft",), *short),
        rl("simple", "*simple*", "binary"),
        rl("fresh", "*fresh*", "partial"),
        rl("cont", "*cont*", "binary", "partial"),
        arm("longer-sft", "SFT, 45 updates", ("sft",), "sft.steps=45"),
    )
    pairs = (("simple", "cont"), ("fresh", "cont"), ("sft", "simple"), ("longer-sft", "simple"))
    return Study(
        "programs",
        "instruct",
        folder,
        arms,
        (1, 2, 3),
        samples=1,
        is_greedy=True,
        comparisons=tuple((f"programs-{first}", f"programs-{second}") for first, second in pairs),
        base_run=(arms[0], 1),
        evaluation=("--max-tokens", "512", "--prompt-style", "prefilled", "--max-prompt-tokens", "768"),
        overrides=(
            *("model=qwen-0.5b", "base_precision=fp32", "sft.solutions=shortest", "sft.batch_size=8"),
            *("ppo.batch_size=32", "ppo.max_tokens=160", "reward.visible_tests=keep"),
        ),
    )


def secure(folder: Path) -> Study:
    """Credit for security only with passed tests, against tests alone, the paper's sum, RFT and SFT."""
    train = str(PROBLEMS / "secure-train.jsonl")
    told = Split("told", train, str(PROBLEMS / "secure-told-test.jsonl"))
    untold = Split("untold", train, str(PROBLEMS / "secure-untold-test.jsonl"))
    sql = Split("sql", train, str(PROBLEMS / "safesql-test.jsonl"))
    functions = Split("functions", train, str(PROBLEMS / "functions-eval.jsonl"), samples=2)

    def arm(name: str, title: str, phase: str, *settings: str) -> Arm:
        changed = settings_in("secure", phase, 400_000, *settings)
        return Arm(f"secure-{name}", title, told, (phase,), changed, (told, untold, sql, functions))

    of_sum = ("reward.combine=sum", "reward.ignored_input=keep")
    arms = (
        arm("gate", "RL, security with passed tests only", "binary"),
        arm("tests", "RL, tests alone", "binary", "reward.combine=sum", "reward.security_weight=0"),
        arm("rft", "RFT, tests and attacks passed", "rft"),
        arm("sum", "RL, the paper's sum", "partial", *of_sum),
        arm("sft", "SFT on secure solutions", "sft", "sft.filter=security", "sft.epochs=3", "sft.steps=200"),
    )
    return Study(
        "secure",
        "instruct",
        folder,
        arms,
        (1, 2, 3),
        samples=8,
        comparisons=(("secure-tests", "secure-gate"), ("secure-rft", "secure-gate"), ("secure-tests", "secure-sum")),
        base_run=(arms[0], 1),
        evaluation=(
            *("--temperature", "0.7", "--max-tokens", "512", "--parallel", "128"),
            *("--prompt-style", "prefilled", "--max-prompt-tokens", "768"),
        ),
        overrides=OF_MODEL,
        base_precision="bf16",
    )


def settings_in(recipe: str, phase: str, tokens: int, *changes: str) -> tuple[str, ...]:
    """What a recipe of the queue changes of `instruct` for a phase, with a study's tokens and ``changes``."""
    tables = tomllib.loads((RECIPES / f"{recipe}.toml").read_text(encoding="utf-8"))
    named = {name: table for name, table in tables.items() if name == phase or name not in ("recipe", *TRAINED)}
    values = {f"{name}.{key}": json.dumps(each) for name, table in named.items() for key, each in table.items()}
    values |= {f"{phase}.max_tokens_sampled": str(tokens)} if phase != "sft" else {}
    values |= dict(each.split("=", 1) for each in changes)
    return tuple(f"{key}={each}" for key, each in values.items())


def benchmarks_of_reliable(study: Study) -> dict[str, set[str]]:
    """The ids to leave out for one benchmark at a time."""
    sources = {each.id: str(each.source) for split in study.splits for each in evaluation_problems(split.eval)}
    return {name: {id for id, source in sources.items() if source != name} for name in sorted({*sources.values()})}
