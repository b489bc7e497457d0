"""The study of Qwen2.5-Coder-0.5B-Instruct, whose plan is `study-reliable.md`; `study.py` runs it."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from study_engine.arms import Arm, Split, Study
from study_engine.run_log import evaluation_problems

# Made by study_data/make.py. Relative, so that steps are the same on every machine.
PROBLEMS = Path("benchmarks/gpu_queue/problems")
TOKENS = 800_000  # that a training samples at most


def reliable(folder: Path) -> Study:
    """RL on the problems of the pilot and on a larger pool, and RFT on that pool, at equal sampled tokens."""
    tests = str(PROBLEMS / "functions-eval.jsonl")
    clean = Split("functions", "mbpp:clean", tests)
    pool = Split("functions-pool", str(PROBLEMS / "functions-train.jsonl"), tests)

    def limited(phase: str) -> tuple[str, ...]:
        return f"{phase}.steps=200", f"{phase}.max_tokens_sampled={TOKENS}"

    # As recipes/functions.toml of the queue.
    adaptive = ("sampling.method=adaptive", "sampling.resample=4")
    rounds = ("rft.updates_per_round=16", "rft.epochs=3", "rft.batch_size=32")
    arm = partial(Arm, measured_on=(clean,))
    arms = (
        arm("reliable-binary", "RL", clean, ("binary",), limited("binary")),
        arm("reliable-pool", "RL, larger pool", pool, ("binary",), (*adaptive, *limited("binary"))),
        arm("reliable-rft", "RFT, larger pool", pool, ("rft",), (*rounds, *limited("rft"))),
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


def benchmarks_of_reliable(study: Study) -> dict[str, set[str]]:
    """The ids to leave out for one benchmark at a time."""
    problems = [each for split in study.splits for each in evaluation_problems(split.eval)]
    sources = {each.source for each in problems}
    return {str(name): {each.id for each in problems if each.source != name} for name in sorted(map(str, sources))}
