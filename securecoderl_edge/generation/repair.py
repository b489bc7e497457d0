"""Self-repair: programs that failed their check go back to the model with a description of the failure.

See Olausson et al., "Is self-repair a silver bullet for code generation?", ICLR 2024: the alternative for the same
tokens is more samples, and small models gain little from repair.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from securecoderl_edge.generation.answers import Answer, Candidate, answer, ranked
from securecoderl_edge.problems.problem import Problem
from securecoderl_edge.prompts.fitting import fits
from securecoderl_edge.prompts.styles import OURS, PromptFormat
from securecoderl_edge.runtimes.protocol import Generator, OnToken, Sampling, batch_seed
from securecoderl_edge.scoring.explain import about_failure, about_security

if TYPE_CHECKING:
    from securecoderl_edge.scoring.scorer import Scorer


def answer_and_repair(
    runtime: Generator,
    scorer: Scorer,
    problems: Sequence[Problem],
    n: int,
    sampling: Sampling,
    rounds: int,
    on_token: OnToken | None = None,
    format: PromptFormat = OURS,
) -> list[Answer]:
    """`answers.answer`, then up to ``rounds`` more for problems without an accepted program.

    The new prompt has the best program so far, the first test that it fails, and its security findings. A problem whose
    prompt would exceed the context is not repaired. Repair changes the prompt, never the tests.

    Raises:
        SceError: see `answers.answer`.
    """
    answers = answer(runtime, scorer, problems, n, sampling, on_token, format)
    room = runtime.context - sampling.max_tokens
    for number in range(rounds):
        attempts = {}
        for place, found in enumerate(answers):
            # Start from the original problem: attempts would accumulate otherwise.
            attempt = None if found.accepted else _attempt(scorer, problems[place], found.best)
            if attempt is not None and fits(format.prompt(attempt), runtime.count_tokens, room):
                attempts[place] = attempt
        if not attempts:
            break
        # Other random numbers than before: a prompt that changed little would get the same tokens again.
        anew = replace(sampling, seed=batch_seed(sampling.seed, number))
        again = answer(runtime, scorer, list(attempts.values()), n, anew, on_token, format)
        for place, found in zip(attempts, again, strict=True):
            both = (*answers[place].candidates, *found.candidates)
            answers[place] = Answer(problems[place], ranked(both), answers[place].rounds + 1)
    return answers


def _attempt(scorer: Scorer, problem: Problem, candidate: Candidate) -> Problem:
    """The problem with a wrong program and its faults in the statement."""
    faults = "\n".join([*about_failure(scorer, problem, candidate.score), *about_security(candidate.score)])
    statement = (
        f"{problem.statement.rstrip()}\n\n"
        f"This program is wrong:\n\n{candidate.score.program.strip()}\n\n"
        f"What is wrong with it:\n{faults}\n\n"
        "Write a program that is right."
    )
    return replace(problem, statement=statement)
