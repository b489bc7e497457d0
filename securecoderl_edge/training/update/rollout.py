"""Steps 1 and 2 of an update: completions of the current policy, their scores and their rewards."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from securecoderl_edge.models.decoder import Decoder
from securecoderl_edge.models.other import sample_with_generate
from securecoderl_edge.models.sampling import Sampler, TokenCompletion, sample
from securecoderl_edge.problems.leakage import constant_passes
from securecoderl_edge.problems.problem import Problem
from securecoderl_edge.prompts.extraction import PromptFacts, extract_program, prompt_facts
from securecoderl_edge.scoring.metrics import mean_of_scores
from securecoderl_edge.scoring.own_reward import Numbers, columns_of, mixed
from securecoderl_edge.scoring.reward import PASSED_SHARE, PRINTING, beyond_constant, combine
from securecoderl_edge.scoring.score import Score, score_from_record
from securecoderl_edge.scoring.signs import IGNORES_INPUT
from securecoderl_edge.system.heap import return_free_memory
from securecoderl_edge.system.processes import result_of
from securecoderl_edge.training.phase_settings import PpoSettings
from securecoderl_edge.training.settings import RewardSettings
from securecoderl_edge.training.update.learner import Learner, Update, memory_for, seed_of
from securecoderl_edge.training.update.meter import PROGRAMS
from securecoderl_edge.training.update.program_end import ProgramEnd
from securecoderl_edge.training.update.sequences import TokenIds

if TYPE_CHECKING:
    from securecoderl_edge.scoring.scorer import Scorer


_SMALL_MODEL_BYTES = 64 << 20


@dataclass(frozen=True)
class Rollout:
    """Scored completions, ordered by prompt, then by sample; ``prompt`` of a completion is an index of ``problems``.

    ``prompts`` are what they continue in training, by problem. ``hinted`` are the samples of each that were drawn under
    the prompt with a hint. ``seconds_sample`` and ``seconds_score`` add up to the wall time; programs that ran during
    decoding take no extra time. ``own`` are numbers that are not R, called ``own_name`` in metrics: those of the user's
    own reward function, or random ones.
    """

    problems: list[Problem]
    completions: list[TokenCompletion]
    scores: list[Score]
    prompts: list[TokenIds]
    seconds_sample: float = 0.0
    seconds_score: float = 0.0
    own: Numbers | None = None
    own_name: str = "function_reward"
    hinted: range = range(0)

    def joined(self, other: Rollout) -> Rollout:
        """This rollout, and then another one."""
        moved = [replace(done, prompt=len(self.problems) + done.prompt) for done in other.completions]
        return Rollout(
            self.problems + other.problems,
            self.completions + moved,
            self.scores + other.scores,
            self.prompts + other.prompts,
            self.seconds_sample + other.seconds_sample,
            self.seconds_score + other.seconds_score,
            None if self.own is None or other.own is None else [*self.own, *other.own],
            self.own_name,
            self.hinted,
        )

    def group_of(self, row: int, size: int) -> list[TokenCompletion]:
        """The ``size`` completions of the prompt that the one at ``row`` continues."""
        first = row - row % size
        return self.completions[first : first + size]

    def rates(self) -> dict[str, Any]:
        """`mean_of_scores` of the completions, and the mean of their `own` numbers."""
        numbers = [number for number in self.own or () if number is not None]
        own = {self.own_name: sum(numbers) / len(numbers)} if numbers else {}
        return {**mean_of_scores(self.scores), **own}

    def rewards(self, partial_weight: float, reward: RewardSettings) -> list[float]:
        """The training reward of each completion, see `training_reward`; with numbers that are not R `mixed`."""
        passes = [constant_passes(problem) if reward.subtract_constant_baseline else 0 for problem in self.problems]
        ours = [
            training_reward(score, partial_weight, reward, passes[done.prompt])
            for score, done in zip(self.scores, self.completions, strict=True)
        ]
        if self.own is None:
            return ours
        return [mixed(*pair, reward.weight_of_own) for pair in zip(ours, self.own, strict=True)]


def with_coin_flips(rollout: Rollout, update: Update, *attempt: int) -> Rollout:
    """The rollout with a reward that says nothing of the programs, if ``reward.random`` asks for it.

    Each completion has a coin of its own, equal programs too. All processes flip the same ones, a resumed run as well.
    """
    share = update.settings.reward.random
    if share is None:
        return rollout
    coin = random.Random(seed_of(*update.seed("random reward"), *attempt))
    flips: Numbers = [float(coin.random() < share) for _ in rollout.completions]
    return replace(rollout, own=flips, own_name="random_reward")


def training_reward(score: Score, partial_weight: float, reward: RewardSettings, constant_passes: int = 0) -> float:
    """The reward for RL: (1 - w) binary + w partial.

    The partial reward is R; the binary one is R for a program that passes all tests, else 0. Unparsable output gets 0
    if ``reward.unparsable`` is ``zero``. With ``paper`` it keeps the security part of R, and so does the binary reward
    of a program that fails, except for problems with security tests.

    With ``reward.combine = "gate"``, R_sec is 0 for a program that does not pass all tests. One that ignores its input
    passes none, unless ``reward.ignored_input`` is ``keep``.

    Args:
        partial_weight: w, from 0 (the binary phase) to 1 (the partial phase).
        constant_passes: with ``reward.subtract_constant_baseline``, the tests that the best constant output passes.

    Raises:
        ValueError: w is outside its bounds.
    """
    if not 0 <= partial_weight <= 1:
        raise ValueError(f"partial weight must be from 0 to 1, found {partial_weight}")
    if not score.parses and reward.unparsable == "zero":
        return 0.0
    r_func = corrected(score, constant_passes) if reward.subtract_constant_baseline else score.r_func
    r_sec, solves = score.r_sec, solves_problem(score, reward)
    if pays_no_test(score, reward):
        r_func = 0.0
        # Security tests count only as far as the program solves the task, see `security_reward`.
        r_sec = 0.0 if score.security_total and reward.security != "bandit" else r_sec
    if reward.combine == "gate" and not solves:
        r_sec = 0.0
    keeps_security = reward.unparsable == "paper" and not score.security_total
    binary = combine(float(solves), r_sec, reward.security_weight) if solves or keeps_security else 0.0
    partial = combine(r_func, r_sec, reward.security_weight)
    return (1 - partial_weight) * binary + partial_weight * partial


def solves_problem(score: Score, reward: RewardSettings) -> bool:
    """Whether training pays a program for passing all tests."""
    return score.passes_all_tests and not pays_no_test(score, reward)


def is_correct(rollout: Rollout, row: int, reward: RewardSettings) -> bool:
    """Whether a completion solves its problem. With numbers in place of R: its own is above 0."""
    if rollout.own is not None and reward.weight_of_own == 1:
        return (rollout.own[row] or 0.0) > 0
    return solves_problem(rollout.scores[row], reward)


def pays_no_test(score: Score, reward: RewardSettings) -> bool:
    """Whether the tests that a program passes earn nothing, because it ignores its input."""
    return reward.ignored_input == "zero" and IGNORES_INPUT in score.signs


def corrected(score: Score, constant_passes: int) -> float:
    """R_func minus the constant baseline, see `beyond_constant`, of the credit for passed tests that it has."""
    has_credit = score.credit_rule in ("fraction", "published") or score.r_func >= PRINTING
    if not score.parses or not has_credit:
        return score.r_func
    share = beyond_constant(score.passed, score.total, constant_passes)
    return score.r_func - PASSED_SHARE * (score.passed / score.total - share)


def partial_weight(phase: str, step: int, steps: int) -> float:
    """w in the reward (1 - w) binary + w partial, at update ``step`` (from 1) of the ``steps`` of a phase."""
    return (step - 1) / max(1, steps - 1) if phase == "scheduled" else float(phase == "partial")


def collect(
    learner: Learner,
    scorer: Scorer,
    problems: Sequence[Problem],
    samples: int,
    ppo: PpoSettings,
    *seed: object,
    hint: str | None = None,
) -> Rollout:
    """Sample and score ``samples`` completions of each problem with the current policy.

    Each process of a team takes a part of the problems and gets the whole rollout back. The samples of a problem depend
    only on ``seed`` and its index.

    Args:
        hint: half of the completions are sampled under the prompt with it, see `PpoSettings`.
    """
    hints = ("", hint) if hint else ("",)
    share = samples // len(hints)
    asked = [tuple(learner.prompt_tokens(problem, each)) for problem in problems for each in hints]
    prompts = asked[:: len(hints)]
    facts = [prompt_facts(problem, learner.format, learner.extract) for problem in problems]
    clock = [time.monotonic()]
    pending: dict[tuple[int, tuple[int, ...]], Future[Score]] = {}
    texts: dict[tuple[int, tuple[int, ...]], str] = {}

    def of_problem(done: TokenCompletion) -> TokenCompletion:
        number, place = divmod(done.prompt, len(hints))
        return replace(done, prompt=number, sample=place * share + done.sample)

    def submit(done: TokenCompletion) -> None:
        # A small model often samples the same program: run it once.
        if (done.prompt, done.token_ids) not in pending:
            answer = done.token_ids[:-1] if done.token_ids[-1] in learner.end_tokens else done.token_ids
            text = texts[done.prompt, done.token_ids] = learner.tokenizer.decode(answer)
            program = extract_program(text, facts[done.prompt])
            pending[done.prompt, done.token_ids] = scorer.score_async(
                problems[done.prompt], program, extract=learner.extract
            )

    ends = [each for each in facts for _ in hints] if ppo.end_with_program else None
    sampled = own_completions(
        learner, asked, share, ppo, *seed, on_finished=lambda done: submit(of_problem(done)), facts=ends
    )
    completions = list(map(of_problem, sampled))
    clock.append(time.monotonic())
    for done in completions:
        submit(done)
    learner.meter.begin("scoring", len(completions), PROGRAMS)
    scores = []
    for done in completions:
        scores.append(replace(result_of(pending[done.prompt, done.token_ids]), sample=done.sample))
        learner.meter.advance()
    own = None
    if learner.own_reward is not None:
        scored = [problems[done.prompt] for done in completions]
        said = [texts[done.prompt, done.token_ids] for done in completions]
        own = learner.own_reward.numbers(columns_of(list(map(learner.format.prompt, scored)), said, scored, scores))
    clock.append(time.monotonic())
    if learner.team.count > 1:
        numbers = own or [None] * len(completions)
        records = [
            [done.prompt, done.sample, score.to_record(), number]
            for done, score, number in zip(completions, scores, numbers, strict=True)
        ]
        every = _in_order(learner.team.collect(records))
        scores = [score_from_record(record) for _, _, record, _ in every]
        own = None if own is None else [number for *_, number in every]
    completions = all_completions(learner, completions)
    return_free_memory()  # sampling's, before learning needs its own
    seconds = clock[1] - clock[0], clock[2] - clock[1]
    return Rollout(list(problems), completions, scores, prompts, *seconds, own, hinted=range(share, samples))


def own_completions(
    learner: Learner,
    prompts: Sequence[TokenIds],
    samples: int,
    ppo: PpoSettings,
    *seed: object,
    on_finished: Callable[[TokenCompletion], None] | None = None,
    truncate: Callable[[Tensor], Tensor] | None = None,
    facts: Sequence[PromptFacts | None] | None = None,
) -> list[TokenCompletion]:
    """This process's part of the completions, ``samples`` of each prompt, sampled with the adapter that is active.

    Args:
        on_finished: called with completions that end while others are being decoded, if that costs no time.
        truncate: see `Sampler`.
        facts: of the prompts, if completions end with their programs, see `ProgramEnd`.
    """
    own, completions = learner.team.share(range(len(prompts))), list[TokenCompletion]()
    learner.meter.begin("sampling", len(own) * samples * ppo.max_tokens)
    with memory_for("sampling", "ppo.rollout_sequences", learner.memory):
        if learner.decoder is not None and own:
            learner.decoder.refresh()
        together = max(1, ppo.rollout_sequences // samples)
        # Our sampler puts waiting completions in the places of finished ones.
        at_a_time = together if learner.decoder is None else max(1, len(own))
        for start in range(0, len(own), at_a_time):
            part = own[start : start + at_a_time]
            uniforms = torch.cat(
                [
                    torch.rand(samples, ppo.max_tokens, generator=torch.Generator().manual_seed(seed_of(*seed, number)))
                    for number in part
                ]
            )
            programs = ProgramEnd(learner.tokenizer, [None if facts is None else facts[number] for number in part])
            sampler = Sampler(
                ppo.temperature, ppo.max_tokens, learner.end_tokens, uniforms, truncate=truncate, tempered=True,
                on_token=learner.meter.counting(ppo.max_tokens, learner.end_tokens, programs.is_over),
            )  # fmt: skip
            completions += _sampled(learner, prompts, part, samples, sampler, together * samples, on_finished)
        if learner.decoder is not None:
            learner.decoder.release()  # the update needs the memory
    return completions


def _sampled(
    learner: Learner,
    prompts: Sequence[TokenIds],
    part: list[int],
    samples: int,
    sampler: Sampler,
    parallel: int,
    on_finished: Callable[[TokenCompletion], None] | None,
) -> list[TokenCompletion]:
    """Completions of a ``part`` of the prompts, decoded together, ``parallel`` at a time."""
    some = [prompts[number] for number in part]

    def renumbered(done: TokenCompletion) -> TokenCompletion:
        return replace(done, prompt=part[done.prompt])

    if learner.decoder is None:
        padding, autocast = learner.tokenizer.pad_token_id, learner.compute.autocast()
        drawn = sample_with_generate(learner.model, some, samples, sampler, padding, autocast=autocast)
        return [renumbered(done) for done in drawn]
    with _threads_for(learner.decoder) as leaves_a_core:
        if leaves_a_core and on_finished is not None:
            tell = on_finished
            sampler = replace(sampler, on_finished=lambda done: tell(renumbered(done)))
        drawn = sample(learner.decoder, some, samples, sampler, parallel)
    return [renumbered(done) for done in drawn]


@contextmanager
def _threads_for(decoder: Decoder) -> Iterator[bool]:
    """Set the number of threads for decoding; yields whether programs may run at the same time.

    A second thread does not speed up a small model: 64 completions of the built-in model took as long with one thread
    as with two, 8 took less. The other cores run the programs of finished completions. The threads of a large model
    would wait for those programs in every layer.
    """
    if decoder.device.type != "cpu":
        yield True
        return
    if decoder.weight_bytes > _SMALL_MODEL_BYTES:
        yield False
        return
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield before > 1
    finally:
        torch.set_num_threads(before)


def all_completions(learner: Learner, own: list[TokenCompletion]) -> list[TokenCompletion]:
    """The completions of all processes, ordered by prompt, then by sample."""
    if learner.team.count == 1:
        return own
    records = [[done.prompt, done.sample, done.token_ids, done.log_probs, done.finished] for done in own]
    return [
        TokenCompletion(prompt, index, tuple(ids), tuple(probs), whole)
        for prompt, index, ids, probs, whole in _in_order(learner.team.collect(records))
    ]


def _in_order(records: list[list[Any]]) -> list[list[Any]]:
    """Records that begin with a prompt and a sample, in their order."""
    return sorted(records, key=lambda record: record[:2])
