"""How many samples does a policy gradient on the starter problems need before it points anywhere?

    python benchmarks/gradient_noise.py --json benchmarks/results/gradient-noise.json

Draws independent batches with the untrained adapter, takes the gradient of each reward on each, and estimates the
simple noise scale tr(covariance) / |mean gradient|^2 in samples (McCandlish et al. 2018, arXiv:1812.06162): a training
run that sees far fewer samples than that mostly walks at random. |mean|^2 is estimated without bias, from products of
different batches.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import pstdev
from typing import Any

import torch
from record import publish
from torch import Tensor

from securecoderl_edge.models.adapters import POLICY_ADAPTER, adapter_parameters, add_adapters
from securecoderl_edge.models.decoder import Decoder
from securecoderl_edge.models.device import choose_compute
from securecoderl_edge.models.files import base_folder
from securecoderl_edge.models.loading import load_base
from securecoderl_edge.models.tokenizer import read_tokenizer
from securecoderl_edge.problems.problem import Problem
from securecoderl_edge.problems.sources import load_problems
from securecoderl_edge.sandbox import Limits
from securecoderl_edge.scoring.intervals import student_95
from securecoderl_edge.scoring.metrics import mean_of_scores
from securecoderl_edge.scoring.scorer import Scorer
from securecoderl_edge.training.phase_settings import PpoSettings
from securecoderl_edge.training.recipe import resolve
from securecoderl_edge.training.settings import RewardSettings
from securecoderl_edge.training.update.learner import Learner, next_problems, seed_of
from securecoderl_edge.training.update.ppo import leave_one_out_advantages
from securecoderl_edge.training.update.rollout import Rollout, collect
from securecoderl_edge.training.update.sequences import completion_log_probs, make_batch, micro_batches

MODES = {"binary": 0.0, "partial": 1.0}  # weights of partial credit


def gradient(learner: Learner, rollout: Rollout, mode: str, settings: PpoSettings, reward: RewardSettings) -> Tensor:
    """The gradient of one batch's mean surrogate with respect to the adapter, flat."""
    prompts = [learner.prompt_tokens(problem) for problem in rollout.problems]
    pairs = [(prompts[done.prompt], done.token_ids) for done in rollout.completions]
    batch = make_batch(pairs, learner.tokenizer.pad_token_id, learner.compute.device)
    rewards = torch.tensor(rollout.rewards(MODES[mode], reward))
    paid = torch.zeros_like(batch.mask)
    paid[torch.arange(len(rewards)), batch.mask.argmax(1)] = rewards
    advantages = leave_one_out_advantages(paid, batch.mask, settings.samples_per_prompt)
    for rows in micro_batches(batch, settings.micro_batch_tokens):
        piece = batch.rows(rows)
        log_probs, _ = completion_log_probs(learner.model, piece, settings.temperature, learner.compute)
        (-(log_probs * advantages[rows, : piece.mask.shape[1]]).sum() / len(rewards)).backward()
    parameters = adapter_parameters(learner.model, POLICY_ADAPTER).values()
    flat = torch.cat([parameter.grad.flatten() for parameter in parameters if parameter.grad is not None])
    for parameter in parameters:
        parameter.grad = None
    return flat


def signal_rate(products: Tensor) -> float:
    """|mean gradient|^2 over the mean |gradient|^2 of a batch, from the products of all pairs of batches."""
    count, own = len(products), float(products.diagonal().sum())
    return (float(products.sum()) - own) / (count - 1) / own


def noise_scale(gradients: Sequence[Tensor], samples: int) -> dict[str, int | None]:
    """Samples at which noise and signal are equally large, with a 95 % interval by the jackknife over batches.

    None where the signal drowns altogether.
    """
    stacked = torch.stack(list(gradients)).double()
    products, count = stacked @ stacked.T, len(stacked)
    left_out = [signal_rate(products[rest][:, rest]) for rest in ~torch.eye(count, dtype=torch.bool)]
    half = student_95(count - 1) * math.sqrt(count - 1) * pstdev(left_out)
    rate = signal_rate(products)
    bounds = {"value": rate, "low": rate + half, "high": rate - half}
    return {name: max(0, round(samples * (1 / each - 1))) if each > 0 else None for name, each in bounds.items()}


def chosen_problems(source: str, families: Sequence[str]) -> list[Problem]:
    """The problems, or those of families whose names start with one of the given words."""
    problems = load_problems(source)
    if families:
        problems = [problem for problem in problems if problem.tags and problem.tags[0].startswith(tuple(families))]
    if not problems:
        raise SystemExit("no problem of these families")
    return problems


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """All results of one model on one set of problems."""
    settings = resolve("starter", tuple(arguments.overrides), {"model": arguments.model})
    compute = choose_compute(settings.device, settings.base_precision)
    folder = base_folder(settings.model)
    model = add_adapters(load_base(folder, compute.base_precision), settings.lora, settings.seed)
    optimizer = torch.optim.AdamW(adapter_parameters(model, POLICY_ADAPTER).values())
    learner = Learner(model, read_tokenizer(folder), compute, optimizer, Decoder(model, compute.rollout_dtype))
    ppo = settings.ppo
    problems = chosen_problems(arguments.problems, arguments.family)
    gradients: dict[str, list[Tensor]] = {mode: [] for mode in MODES}
    scores = []
    with Scorer(limits=Limits(cpu_seconds=settings.reward.cpu_seconds)) as scorer:
        for step in range(1, arguments.batches + 1):
            chosen = next_problems(problems, ppo.batch_size // ppo.samples_per_prompt, step, seed_of(settings.seed))
            rollout = collect(learner, scorer, chosen, ppo.samples_per_prompt, ppo, settings.seed, "noise", step)
            scores += rollout.scores
            for mode in MODES:
                gradients[mode].append(gradient(learner, rollout, mode, settings.ppo, settings.reward))
    rates = mean_of_scores(scores)
    return {
        "model": settings.model,
        "problems": arguments.problems,
        "families": arguments.family or "all",
        "problem_count": len(problems),
        "batches": arguments.batches,
        "batch_size": settings.ppo.batch_size,
        "temperature": settings.ppo.temperature,
        **{f"noise_scale_{mode}": noise_scale(gradients[mode], settings.ppo.batch_size) for mode in MODES},
        "all_tests_rate": round(rates["all_tests_rate"], 4),
        "syntax_rate": round(rates["syntax_rate"], 4),
    }


def main() -> None:
    """Parse the command line, measure, print and save."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--model", default="nano")
    parser.add_argument("--problems", default="starter:train")
    parser.add_argument("--family", action="append", default=[], metavar="PREFIX", help="only these families")
    parser.add_argument("--batches", type=int, default=16)
    parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--quick", action="store_true", help="3 batches of 16")
    parser.add_argument("--json", type=Path, help="file for the results; those of earlier calls are kept in it")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.batches = 3
        arguments.overrides = [*arguments.overrides, "ppo.batch_size=16"]
    result = measure(arguments)
    for name, value in result.items():
        sys.stdout.write(f"{name:22s} {value}\n")
    publish(result, arguments.json, keep_earlier=True)


if __name__ == "__main__":
    main()
