"""Supervised updates: the tokens that are trained on, and that the prompt is the one of PPO and bench."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the train extra")

import torch
from fake_runtime import FakeRuntime
from small_runs import an_update, policy_of, sgd_learner

from securecoderl_edge.evaluation import evaluate
from securecoderl_edge.models.adapters import POLICY_ADAPTER, LoraSettings, adapter_parameters, add_adapters
from securecoderl_edge.models.device import Compute
from securecoderl_edge.models.loading import load_base
from securecoderl_edge.models.tokenizer import read_tokenizer
from securecoderl_edge.problems.problem import Problem, Test
from securecoderl_edge.prompts.styles import OURS
from securecoderl_edge.scoring.scorer import Scorer
from securecoderl_edge.training.phase_settings import PpoSettings, SftSettings
from securecoderl_edge.training.update import learner as learners
from securecoderl_edge.training.update import supervised
from securecoderl_edge.training.update.learner import Learner
from securecoderl_edge.training.update.supervised import sft_update, solution_batch

PROBLEMS = [
    Problem("long", "Say hello to a name.", tests=(Test("a", "b"),), solutions=("print('hello', input())\n" * 3,)),
    Problem("short", "Add.", tests=(Test("1", "2"),), solutions=("print(1)\n",)),
]
SETTINGS = {"seed": 1, "sft": SftSettings(batch_size=2)}


@pytest.fixture
def learner(tiny_model: Path) -> Learner:
    model = add_adapters(load_base(tiny_model), LoraSettings(rank=4), seed=3)
    optimizer = torch.optim.AdamW(adapter_parameters(model, POLICY_ADAPTER).values(), lr=0.0)
    return Learner(model, read_tokenizer(tiny_model), Compute("cpu", "fp32", torch.float32), optimizer)


def test_solutions_end_with_the_end_token_and_padding_is_masked(learner: Learner) -> None:
    batch = solution_batch(learner, an_update(PROBLEMS, **SETTINGS))
    lengths = batch.mask.sum(1).long().tolist()
    assert lengths[0] != lengths[1]
    for row, length in enumerate(lengths):
        assert batch.tokens[row, length - 1] == learner.tokenizer.eos_token_id
        text = learner.tokenizer.decode(batch.tokens[row, : length - 1].tolist())
        assert text in {problem.solutions[0] for problem in PROBLEMS}
        assert not batch.mask[row, length:].any()


def test_the_tokens_of_a_prompt_are_kept_in_four_bytes_each(learner: Learner) -> None:
    """A set has a hundred thousand prompts; a list of numbers takes 36 bytes each."""
    tokens = learner.prompt_tokens(PROBLEMS[0])
    assert list(tokens) == learner.tokenizer.encode_prompt(OURS.prompt(PROBLEMS[0]))
    (kept,) = learner.prompts.values()
    assert memoryview(kept).nbytes == 4 * len(tokens)


def test_the_loss_is_the_mean_over_solution_tokens_alone(learner: Learner) -> None:
    total, count = 0.0, 0
    for problem in PROBLEMS:
        prompt = learner.tokenizer.encode_prompt(OURS.prompt(problem))
        solution = [*learner.tokenizer.encode(problem.solutions[0]), learner.tokenizer.eos_token_id]
        with torch.no_grad():
            logits = learner.model(torch.tensor([[*prompt, *solution]])).logits[0].log_softmax(-1)
        total -= sum(float(logits[len(prompt) - 1 + place, token]) for place, token in enumerate(solution))
        count += len(solution)
    row, _ = sft_update(learner, an_update(PROBLEMS, **SETTINGS))
    assert row["loss/sft"] == pytest.approx(total / count, rel=1e-5)
    assert row["tokens"] == count


@pytest.mark.parametrize("rate", [0.1, 1e-4])
def test_an_update_is_a_step_down_the_gradient_of_that_mean(
    tiny_model: Path, rate: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sequence by sequence, through the model of transformers."""
    monkeypatch.setattr(supervised, "_MAX_GRADIENT_NORM", 0.05)
    learner, losses = sgd_learner(tiny_model, rate, moved=0.05), []
    for problem in PROBLEMS:
        prompt = learner.tokenizer.encode_prompt(OURS.prompt(problem))
        solution = [*learner.tokenizer.encode(problem.solutions[0]), learner.tokenizer.eos_token_id]
        logits = learner.model(torch.tensor([[*prompt, *solution]])).logits[0].log_softmax(-1)
        losses += [-logits[len(prompt) - 1 + place, token] for place, token in enumerate(solution)]
    parameters = list(adapter_parameters(learner.model, POLICY_ADAPTER).values())
    every = torch.autograd.grad(torch.stack(losses).mean(), parameters)
    gradient = torch.cat([each.flatten() for each in every])
    before = policy_of(learner)
    row, _ = sft_update(learner, an_update(PROBLEMS, **SETTINGS))
    norm = float(gradient.norm())
    assert row["grad_norm"] == pytest.approx(norm, rel=1e-4)
    assert norm > 0.05, "it is clipped"
    torch.testing.assert_close(policy_of(learner) - before, -rate * gradient * 0.05 / norm, rtol=1e-2, atol=1e-7)


def test_the_size_of_micro_batches_changes_no_gradient(learner: Learner) -> None:
    norms = [
        sft_update(learner, an_update(PROBLEMS, ppo=PpoSettings(micro_batch_tokens=tokens), **SETTINGS))[0]["grad_norm"]
        for tokens in (1, 10_000)
    ]
    assert norms[0] == pytest.approx(norms[1], rel=1e-5)


def test_supervised_training_reinforcement_learning_and_bench_use_one_prompt(learner: Learner) -> None:
    prompts = {
        learner.tokenizer.decode(prompt)
        for prompt, _ in solution_batch(learner, an_update(PROBLEMS, **SETTINGS)).sequences
    }
    assert prompts == {OURS.prompt(problem) for problem in PROBLEMS}
    assert prompts == {learner.tokenizer.decode(learner.prompt_tokens(problem)) for problem in PROBLEMS}
    runtime = FakeRuntime()
    with Scorer(workers=1) as scorer:
        evaluate.evaluate(runtime, PROBLEMS, scorer)
    assert set(runtime.prompts) == prompts


def test_updates_take_consecutive_parts_of_one_shuffle_an_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    problems = [Problem(f"p{n}", "", tests=()) for n in range(7)]
    shuffles: list[int] = []

    def counted(count: int, seed: int, real: Any = learners.shuffled) -> list[int]:
        shuffles.append(seed)
        order: list[int] = real(count, seed)
        return order

    monkeypatch.setattr(learners, "shuffled", counted)
    updates = [learners.next_problems(problems, 5, step, 3) for step in range(1, 8)]
    taken = [problem.id for each in updates for problem in each]
    epochs = [taken[start : start + 7] for start in range(0, 35, 7)]
    assert all(sorted(epoch) == [problem.id for problem in problems] for epoch in epochs)
    assert len(set(map(tuple, epochs))) == 5
    assert len(shuffles) <= 2 * len(updates)
    shuffles.clear()
    assert len(learners.next_problems(problems, 16, 1, 3)) == 16
    assert len(shuffles) == 3
