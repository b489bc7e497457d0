"""Reference solutions inside RL: hints that a rollout continues, and supervised steps on problems that failed (ReLIFT).

Hints: arXiv:2506.18110, 2508.13023 and 2601.18779. ReLIFT: arXiv:2506.07527.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from securecoderl_edge.errors import SceError
from securecoderl_edge.problems.problem import Problem
from securecoderl_edge.training.settings import ReferenceSettings
from securecoderl_edge.training.update.history import Group, History
from securecoderl_edge.training.update.learner import Learner
from securecoderl_edge.training.update.rollout import Rollout
from securecoderl_edge.training.update.sequences import TokenIds, make_batch
from securecoderl_edge.training.update.sft_update import supervised_step


def reference_tokens(learner: Learner, problems: Sequence[Problem], longest: int) -> dict[str, TokenIds]:
    """By problem id the token ids of its shortest solution, end of sequence included.

    Problems without a solution of at most ``longest`` tokens are left out: the policy could not write one either.
    """
    references = {}
    for problem in problems:
        answers = [tuple(learner.solution_tokens(program, problem.language)) for program in problem.solutions]
        if answers and len(shortest := min(answers, key=len)) <= longest:
            references[problem.id] = shortest
    return references


@dataclass(frozen=True)
class Hints:
    """The hints of one update.

    Attributes:
        longest: share of a reference, see `history.longest_hint`.
        room: tokens that a prompt and its hint may have together.
    """

    history: History
    longest: float
    room: int

    def of(self, learner: Learner, problem: Problem) -> TokenIds:
        """The beginning of the problem's reference that its completions continue; empty for none."""
        share = min(self.history.hint_of(problem.id), self.longest)
        most = self.room - len(learner.prompt_tokens(problem))
        return first_lines(learner, learner.references.get(problem.id, ()), share, most)


def first_lines(learner: Learner, reference: TokenIds, share: float, most: int) -> TokenIds:
    """The longest beginning of a reference that ends where a line ends and has at most the share of its tokens.

    It ends between two tokens of the whole reference, so that the policy continues a text tokenized as SFT taught it;
    the last of them may hold the indentation of the next line too. The last line is always left for the policy.

    Args:
        most: tokens, at most.
    """
    answer = reference[:-1]
    # Shares are sums of steps, so that a whole number of tokens may come out a little below itself.
    for length in range(min(int(share * len(answer) + 1e-9), most), 0, -1):
        ends_line = "\n" in learner.tokenizer.decode(answer[length - 1 : length])
        if ends_line and learner.tokenizer.decode(answer[length:]).strip(" \t\r\n`"):
            return answer[:length]
    return ()


def groups_of(rollout: Rollout, references: Mapping[str, TokenIds]) -> list[Group]:
    """What a rollout shows of its problems, in order."""
    groups = []
    for number, problem in enumerate(rollout.problems):
        passes = [
            score.passes_all_tests
            for done, score in zip(rollout.completions, rollout.scores, strict=True)
            if done.prompt == number
        ]
        groups.append(Group(problem.id, sum(passes) / len(passes), problem.id in references))
    return groups


def relift(
    learner: Learner,
    problems: Sequence[Problem],
    history: History,
    settings: ReferenceSettings,
    rate: float,
    tokens: int,
) -> tuple[dict[str, Any], History]:
    """One supervised step on the references of all problems that failed, once they are a batch; empties their list.

    It uses the optimizer of the phase, so that a checkpoint has its state; a value head is left alone.

    Args:
        rate: learning rate of the step.
        tokens: per forward and backward pass.

    Returns:
        metrics, with ``relift/seconds`` and ``relift/loss`` only if there was a step; and the history after it.

    Raises:
        SceError: the history, from a checkpoint, names a problem that is not trained on.
    """
    facts: dict[str, Any] = {}
    if len(history.failed) >= settings.relift_batch_size:
        started = time.monotonic()
        by_id = {problem.id: problem for problem in problems if problem.id in learner.references}
        if unknown := sorted(set(history.failed) - by_id.keys()):
            raise SceError(f"the checkpoint names the problem {unknown[0]!r}, which is not trained on; use --no-resume")
        pairs = [(learner.prompt_tokens(by_id[each]), learner.references[each]) for each in history.failed]
        batch = make_batch(pairs, learner.tokenizer.pad_token_id, learner.compute.device)
        of_policy = learner.optimizer.param_groups[0]
        usual, of_policy["lr"] = of_policy["lr"], rate
        loss, _ = supervised_step(learner, batch, tokens)
        of_policy["lr"] = usual
        history = replace(
            history,
            failed=(),
            relift_steps=history.relift_steps + 1,
            relift_tokens=history.relift_tokens + sum(batch.lengths),
        )
        facts = {"relift/loss": loss, "relift/seconds": time.monotonic() - started}
    facts |= {"relift/steps": history.relift_steps, "relift/tokens": history.relift_tokens}
    return facts, history
