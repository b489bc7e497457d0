"""The study of Qwen2.5-Coder-0.5B-Instruct, whose plan is `study-reliable.md`; `study.py` runs it."""

from __future__ import annotations

import json
import tomllib
from functools import partial
from pathlib import Path

from study_engine.arms import Arm, Split, Study
from study_engine.run_log import evaluation_problems

# Made by study_data/make.py. Relative, so that steps are the same on every machine.
PROBLEMS = Path("benchmarks/gpu_queue/problems")
TOKENS = 800_000  # that a training samples at most
RECIPE_OF_POOL = Path(__file__).with_name("gpu_queue") / "recipes" / "functions.toml"


def reliable(folder: Path) -> Study:
    """RL on the problems of the pilot and on a larger pool, and RFT on that pool, at equal sampled tokens."""
    tests = str(PROBLEMS / "functions-eval.jsonl")
    clean = Split("functions", "mbpp:clean", tests)
    pool = Split("functions-pool", str(PROBLEMS / "functions-train.jsonl"), tests)

    arm, of_pool = partial(Arm, measured_on=(clean,)), settings_of_pool()
    arms = (
        arm("reliable-binary", "RL", clean, ("binary",), ("binary.steps=200", f"binary.max_tokens_sampled={TOKENS}")),
        arm("reliable-pool", "RL, larger pool", pool, ("binary",), of_pool),
        arm("reliable-rft", "RFT, larger pool", pool, ("rft",), of_pool),
    )
    return Study(
        "reliable",
        "instruct",
        folder,
        arms,
        (1, 2, 3),
        samples=4,
        comparisons=(("reliable-rft", "reliable-pool"),),
        overrides=("model=qwen-0.5b", "base_precision=bf16"),
        base_precision="bf16",
        base_run=(arms[0], 1),
        evaluation=("--protocol", "evalplus", "--temperature", "0.2", "--max-tokens", "512", "--parallel", "128"),
    )


def settings_of_pool() -> tuple[str, ...]:
    """What the queue's recipe for the pool changes of the recipe `instruct`, with this study's number of tokens."""
    tables = tomllib.loads(RECIPE_OF_POOL.read_text(encoding="utf-8"))
    del tables["recipe"]
    values = {f"{name}.{key}": each for name, table in tables.items() for key, each in table.items()}
    limits = {key: TOKENS for key in values if key.endswith(".max_tokens_sampled")}
    return tuple(f"{key}={json.dumps(each)}" for key, each in (values | limits).items())


def benchmarks_of_reliable(study: Study) -> dict[str, set[str]]:
    """The ids to leave out for one benchmark at a time."""
    sources = {each.id: str(each.source) for split in study.splits for each in evaluation_problems(split.eval)}
    return {name: {id for id, source in sources.items() if source != name} for name in sorted({*sources.values()})}
