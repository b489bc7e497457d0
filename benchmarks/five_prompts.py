"""Five prompts that a visitor may type, answered by `smollm2` and `smollm2-rl`, and judged by hidden tests.

    python benchmarks/five_prompts.py --json benchmarks/results/five-prompts.json     (a minute; writes the page, too)
    python benchmarks/five_prompts.py --page                                          only the page

The prompts in `prompts/five.jsonl` were committed before any model answered them, and none is a near-duplicate of a
problem of MBPP or HumanEval. A model gets the statement alone, as ``sce generate --temperature 0`` would ask it. The
assertions next to it are only for the verdict.
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from record import fill_page, publish

from securecoderl_edge.generation.answering import Answerer
from securecoderl_edge.models.files import SMOLLM2, SMOLLM2_RL
from securecoderl_edge.problems.problem import Problem
from securecoderl_edge.problems.sources import load_problems
from securecoderl_edge.prompts.styles import choose_format
from securecoderl_edge.runtimes.opening import RuntimeSettings, open_runtime
from securecoderl_edge.runtimes.protocol import MAX_TOKENS, Sampling
from securecoderl_edge.runtimes.spec import resolve_model
from securecoderl_edge.scoring.scorer import Scorer, Submission
from securecoderl_edge.system.files import read_json, write_atomically

HERE = Path(__file__).resolve().parent
PROMPTS, RESULT = HERE / "prompts" / "five.jsonl", HERE / "results" / "five-prompts.json"
PAGE = HERE / "results" / "five-prompts.md"
MODELS = (SMOLLM2, SMOLLM2_RL)
GREEDY = Sampling(temperature=0.0, max_tokens=MAX_TOKENS)


def answers(model: str, problems: Sequence[Problem], scorer: Scorer) -> list[dict[str, Any]]:
    """The greedy answer of a model to each statement, with its verdict on the hidden tests."""
    spec = resolve_model(model)
    asked = [Problem(problem.id, problem.statement) for problem in problems]
    with contextlib.closing(open_runtime(spec, RuntimeSettings("cpu", threads=1))) as runtime:
        style = choose_format("auto", spec.prompt_style or runtime.prompt_style, runtime.chat_template)
        # One by one, as a user asks: llama.cpp rounds differently in a batch.
        answerer = Answerer(runtime, scorer, 1, GREEDY, style)
        given = [answerer.answer([each])[0] for each in asked]
    programs = [Submission(problem, each.best.score.program) for problem, each in zip(problems, given, strict=True)]
    scores = scorer.score_all(programs)
    return [
        {
            "id": problem.id,
            "program": score.program,
            "completion": each.best.completion.text,
            "tokens": each.tokens,
            "shown_verdict": each.verdict(),
            "verdicts": list(score.verdicts),
            "is_right": score.passes_all_tests,
        }
        for problem, each, score in zip(problems, given, scores, strict=True)
    ]


def page(result: Mapping[str, Any]) -> str:
    """The page of a result."""
    parts, problems = [], load_problems(str(PROMPTS))
    for place, problem in enumerate(problems):
        parts += [f"## {problem.entry_point}", f"> {problem.statement}"]
        for model in MODELS:
            row = result["answers"][model][place]
            passed, total = row["verdicts"].count("pass"), len(problem.assertions)
            verdict = f"**{'right' if row['is_right'] else 'wrong'}**, {passed} of {total} hidden tests passed"
            # A fence longer than any in the answer.
            parts += [f"`{model}`: {verdict}.", f"`````text\n{row['program'].strip() or '(no program)'}\n`````"]
    names = {"base": result["right"][SMOLLM2], "policy": result["right"][SMOLLM2_RL]}
    return fill_page("five-prompts.md", **names, count=len(problems), answers="\n\n".join(parts), tokens=MAX_TOKENS)


def main() -> None:
    """Ask both models, or make the page alone."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--json", type=Path, help="file for the results")
    parser.add_argument("--page", action="store_true", help="write the page alone, of the committed results")
    arguments = parser.parse_args()
    if not arguments.page:
        problems = load_problems(str(PROMPTS))
        with Scorer() as scorer:
            found = {model: answers(model, problems, scorer) for model in MODELS}
        right = {model: sum(row["is_right"] for row in rows) for model, rows in found.items()}
        result = {"right": right, "answers": found}
        publish(result, arguments.json, shown={"right": right})
    else:
        result = read_json(RESULT)
    with write_atomically(PAGE) as out:
        out.write(page(result))


if __name__ == "__main__":
    main()
