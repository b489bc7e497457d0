"""One supervised update and one PPO update: the numbered algorithm over the pure functions of `ppo.py`."""

from __future__ import annotations

import hashlib
import random
import time
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from securecoderl_edge.device import Compute
from securecoderl_edge.errors import SceError
from securecoderl_edge.extraction import extract_program
from securecoderl_edge.meters import summarise
from securecoderl_edge.model import POLICY, adapter_parameters, reference_active
from securecoderl_edge.ppo import (
    generalised_advantages,
    kl_shaped_rewards,
    leave_one_out_advantages,
    masked_mean,
    policy_loss,
    value_loss,
    whiten,
)
from securecoderl_edge.problems import Problem
from securecoderl_edge.prompts import format_prompt
from securecoderl_edge.reward import Score, training_reward
from securecoderl_edge.rollout import Decoder, Sampled, sample
from securecoderl_edge.sequences import Batch, completion_log_probs, make_batch, micro_batches
from securecoderl_edge.settings import PpoSettings, RewardSettings, SftSettings
from securecoderl_edge.text import replace_surrogates

if TYPE_CHECKING:
    from securecoderl_edge.scorer import Scorer

# Below this many sequences a batch's own mean and spread say more about its prompts than about the policy.
_MIN_SEQUENCES_TO_WHITEN = 8


@dataclass
class Learner:
    """Everything that an update reads or changes.

    ``value_head`` is there with GAE only. ``prompts`` caches each problem's prompt tokens by problem id.
    """

    model: Any
    tokenizer: Any
    compute: Compute
    optimizer: torch.optim.Optimizer
    value_head: nn.Module | None = None
    prompts: dict[str, list[int]] = field(default_factory=dict)

    def prompt_tokens(self, problem: Problem) -> list[int]:
        """Token ids of the problem's prompt."""
        if problem.id not in self.prompts:
            self.prompts[problem.id] = list(self.tokenizer(format_prompt(problem))["input_ids"])
        return self.prompts[problem.id]


def seed_of(*parts: object) -> int:
    """A 63-bit seed from readable parts, so that no generator's state has to be stored to resume."""
    digest = hashlib.sha256("/".join(str(part) for part in parts).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def next_problems(problems: Sequence[Problem], count: int, step: int, seed: int) -> list[Problem]:
    """The problems of update ``step`` (from 1): consecutive pieces of one seeded shuffle an epoch."""
    chosen = []
    for position in range((step - 1) * count, step * count):
        epoch, index = divmod(position, len(problems))
        chosen.append(problems[_shuffled(len(problems), seed_of(seed, "order", epoch))[index]])
    return chosen


def sft_update(
    learner: Learner, problems: Sequence[Problem], settings: SftSettings, step: int, seed: int, micro_tokens: int
) -> dict[str, Any]:
    """One step of supervised training on reference solutions.

    The loss is the mean negative log-likelihood of the completion's tokens, end of sequence included; prompts and
    padding carry none.
    """
    started = time.monotonic()
    chooser = random.Random(seed_of(seed, "sft", step))
    pairs = []
    for problem in next_problems(problems, settings.batch_size, step, seed):
        shortest = settings.solutions == "shortest"
        program = min(problem.solutions, key=len) if shortest else chooser.choice(problem.solutions)
        # A start token would belong before the prompt, which has it already.
        solution = learner.tokenizer(replace_surrogates(program), add_special_tokens=False)["input_ids"]
        pairs.append((learner.prompt_tokens(problem), [*solution, learner.tokenizer.eos_token_id]))
    batch = make_batch(pairs, learner.tokenizer.pad_token_id, learner.compute.device)
    total = batch.mask.sum()
    loss_sum = 0.0
    for rows in micro_batches(batch, micro_tokens):
        piece = batch.rows(rows)
        log_probs, _ = completion_log_probs(learner.model, piece, 1.0, learner.compute.autocast())
        loss = -log_probs.sum() / total
        loss.backward()
        loss_sum += loss.item()
    gradient = _step(learner, max_norm=1.0)
    return {
        "loss/sft": loss_sum,
        "gradient_norm": gradient,
        "tokens": int(total),
        "seconds": time.monotonic() - started,
    }


@dataclass(frozen=True)
class Rollout:
    """The scored completions of one update, ordered by prompt, then by sample."""

    problems: list[Problem]
    completions: list[Sampled]
    scores: list[Score]


def ppo_update(
    learner: Learner,
    decoder: Decoder,
    scorer: Scorer,
    problems: Sequence[Problem],
    ppo: PpoSettings,
    reward: RewardSettings,
    phase: str,
    step: int,
    seed: int,
) -> tuple[dict[str, Any], Rollout]:
    """One PPO update on the ``binary`` or ``partial`` reward; returns its metrics and what was sampled.

    KL, entropy and ratios are those of the completions learnt from; where there were none, they are missing.
    """
    clock = [time.monotonic()]
    # 1 sample, 2 score
    rollout = collect(learner, decoder, scorer, problems, ppo, phase, step, seed)
    rewards = torch.tensor([training_reward(score, phase, reward.reading) for score in rollout.scores])
    clock.append(time.monotonic())
    rows = list(range(len(rewards)))
    if ppo.skip_flat_groups:
        rows = rows_of_varied_groups(rewards, ppo.samples_per_prompt)
    facts = _learn(learner, rollout, rows, rewards, ppo) if rows else {}
    clock.append(time.monotonic())
    metrics: dict[str, Any] = {
        "objective/reward": rewards.mean().item(),
        **facts,
        **summarise(rollout.scores),
        "learnt_from": len(rows),
        "truncated_rate": sum(not done.finished for done in rollout.completions) / len(rollout.completions),
        "tokens": sum(len(done.token_ids) for done in rollout.completions),
        "seconds": clock[2] - clock[0],
        "seconds_rollout": clock[1] - clock[0],
        "seconds_update": clock[2] - clock[1],
    }
    return metrics, rollout


def rows_of_varied_groups(rewards: Tensor, group_size: int) -> list[int]:
    """Indices of the completions whose prompt's other samples got other rewards.

    Where all samples of a prompt were rewarded alike, every leave-one-out advantage is 0 but for the KL penalty:
    nothing else is lost with them (the filter of DAPO, arXiv:2503.14476, section 3.2, without drawing anew).
    """
    groups = rewards.view(-1, group_size)
    varied = (groups != groups[:, :1]).any(1).repeat_interleave(group_size)
    rows: list[int] = varied.nonzero()[:, 0].tolist()
    return rows


def _learn(learner: Learner, rollout: Rollout, rows: list[int], rewards: Tensor, ppo: PpoSettings) -> dict[str, float]:
    """Steps 3 to 6 on some of the completions, in whole groups; returns their metrics.

    The others count in every mean as completions whose advantages are 0: a batch with one varied group is one eighth of
    the evidence of a batch with eight, and must not make as large a step.
    """
    prompts = [learner.prompt_tokens(problem) for problem in rollout.problems]
    completions = [rollout.completions[row] for row in rows]
    pairs = [(prompts[completion.prompt], completion.token_ids) for completion in completions]
    batch = make_batch(pairs, learner.tokenizer.pad_token_id, learner.compute.device)
    pieces = list(micro_batches(batch, ppo.micro_batch_tokens))
    with torch.no_grad():
        old, old_values = _evaluate(learner, batch, pieces, ppo.temperature)
        with reference_active(learner.model):
            reference, _ = _evaluate(learner, batch, pieces, ppo.temperature, values=False)

    # 3 KL-shape, 4 advantages, 5 whiten
    shaped = kl_shaped_rewards(rewards[rows].to(old.device), old, reference, batch.mask, ppo.kl_coefficient)
    if ppo.advantage == "gae":
        advantages, returns = generalised_advantages(shaped, old_values, batch.mask, ppo.discount, ppo.trace)
    else:
        advantages = leave_one_out_advantages(shaped, batch.mask, ppo.samples_per_prompt)
        returns = torch.zeros_like(advantages)
    share = float(batch.mask.sum()) / sum(len(completion.token_ids) for completion in rollout.completions)
    if len(rewards) >= _MIN_SEQUENCES_TO_WHITEN:
        # A leave-one-out advantage is centred by its construction; the zeros of the others lower its mean square.
        advantages = whiten(advantages, batch.mask, centre=ppo.advantage == "gae") / share**0.5

    # 6 update
    sums: defaultdict[str, float] = defaultdict(float)
    first_ratio_error = 0.0
    for epoch in range(ppo.epochs):
        for piece in pieces:
            loss, facts = _piece_loss(learner, batch, piece, old, old_values, advantages, returns, ppo)
            (share * loss).backward()
            for name, value in facts.items():
                sums[name] += value
            if epoch == 0:
                first_ratio_error = max(first_ratio_error, facts["ratio_max_error"])
        sums["gradient_norm"] += _step(learner, ppo.gradient_norm)
    return {
        "objective/kl": ((old - reference) * batch.mask).sum(1).mean().item(),
        "objective/entropy_estimate": masked_mean(-old, batch.mask).item(),
        "policy/clipfrac": sums["clip_fraction"] / ppo.epochs,
        "policy/approxkl": sums["approximate_kl"] / ppo.epochs,
        "loss/policy": sums["policy_loss"] / ppo.epochs,
        "loss/value": sums["value_loss"] / ppo.epochs,
        "val/ratio": sums["ratio"] / ppo.epochs,
        "val/first_ratio_error": first_ratio_error,
        "gradient_norm": sums["gradient_norm"] / ppo.epochs,
    }


def collect(
    learner: Learner,
    decoder: Decoder,
    scorer: Scorer,
    problems: Sequence[Problem],
    ppo: PpoSettings,
    phase: str,
    step: int,
    seed: int,
) -> Rollout:
    """Sample and score the completions of one update with the current policy."""
    chosen = next_problems(problems, ppo.batch_size // ppo.samples_per_prompt, step, seed_of(seed, phase))
    decoder.refresh()
    generator = torch.Generator(decoder.device).manual_seed(seed_of(seed, phase, "sample", step))
    pending: dict[tuple[int, tuple[int, ...]], Future[Score]] = {}

    def submit(done: Sampled) -> None:
        # A small model draws the same program again and again: it is run once.
        if (done.prompt, done.token_ids) not in pending:
            text = learner.tokenizer.decode(done.token_ids, skip_special_tokens=True)
            problem = chosen[done.prompt]
            score = scorer.score_async(problem, extract_program(text, "auto", problem), extract="auto")
            pending[done.prompt, done.token_ids] = score

    completions = sample(
        decoder,
        [learner.prompt_tokens(problem) for problem in chosen],
        ppo.samples_per_prompt,
        ppo.temperature,
        ppo.max_tokens,
        frozenset({learner.tokenizer.eos_token_id}),
        generator,
        # On a CPU the decoder's threads would wait for the cores that programs run on, once a layer.
        on_finished=None if decoder.device.type == "cpu" else submit,
    )
    for done in completions:
        submit(done)
    scores = [pending[done.prompt, done.token_ids].result() for done in completions]
    return Rollout(
        chosen,
        completions,
        [replace(score, sample=done.sample) for score, done in zip(scores, completions, strict=True)],
    )


def _evaluate(
    learner: Learner, batch: Batch, pieces: list[list[int]], temperature: float, values: bool = True
) -> tuple[Tensor, Tensor]:
    """(B, T) log-probabilities, and values where there is a value head (else zeros)."""
    log_probs, estimates = torch.zeros_like(batch.mask), torch.zeros_like(batch.mask)
    for rows in pieces:
        piece = batch.rows(rows)
        width = piece.mask.shape[1]
        part, hidden = completion_log_probs(learner.model, piece, temperature, learner.compute.autocast())
        log_probs[rows, :width] = part
        if values and learner.value_head is not None:
            estimates[rows, :width] = _values(learner.value_head, hidden, piece.mask)
    return log_probs, estimates


def _values(head: nn.Module, hidden: Tensor, mask: Tensor) -> Tensor:
    flat = head(hidden.detach().float())[:, 0]
    return torch.zeros_like(mask).masked_scatter(mask > 0, flat)


def _piece_loss(
    learner: Learner,
    batch: Batch,
    rows: list[int],
    old: Tensor,
    old_values: Tensor,
    advantages: Tensor,
    returns: Tensor,
    ppo: PpoSettings,
) -> tuple[Tensor, dict[str, float]]:
    """The loss of some rows, weighted by their share of the batch's tokens, and its parts for the metrics."""
    piece = batch.rows(rows)
    cut = (rows, slice(piece.mask.shape[1]))
    share = float(piece.mask.sum() / batch.mask.sum())
    log_probs, hidden = completion_log_probs(learner.model, piece, ppo.temperature, learner.compute.autocast())
    surrogate = policy_loss(log_probs, old[cut], advantages[cut], piece.mask, ppo.clip_range)
    loss = surrogate.loss
    value = torch.zeros(())
    if learner.value_head is not None:
        values = _values(learner.value_head, hidden, piece.mask)
        value = value_loss(values, old_values[cut], returns[cut], piece.mask, ppo.clip_range)
        loss = loss + ppo.value_coefficient * value
    facts = {
        "policy_loss": share * surrogate.loss.item(),
        "value_loss": share * value.item(),
        "clip_fraction": share * surrogate.clip_fraction.item(),
        "approximate_kl": share * surrogate.approximate_kl.item(),
        "ratio": share * surrogate.ratio_mean.item(),
        "ratio_max_error": surrogate.ratio_max_error.item(),
    }
    return share * loss, facts


def _step(learner: Learner, max_norm: float) -> float:
    """Clip the adapter's gradients, update, clear; returns the norm before clipping.

    Raises:
        SceError: the gradient is not finite; the parameters are left as they were.
    """
    norm = float(nn.utils.clip_grad_norm_(list(adapter_parameters(learner.model, POLICY).values()), max_norm))
    if norm != norm or norm == float("inf"):
        raise SceError("the gradient is not finite; the last checkpoint is intact: lower the learning rate and resume")
    learner.optimizer.step()
    learner.optimizer.zero_grad(set_to_none=True)
    return norm


def _shuffled(count: int, seed: int) -> list[int]:
    order = list(range(count))
    random.Random(seed).shuffle(order)
    return order
