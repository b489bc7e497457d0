"""Refilled batches: other problems in the place of groups without variance."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the train extra")

import torch

from securecoderl_edge.models.adapters import POLICY_ADAPTER, LoraSettings, adapter_parameters, add_adapters
from securecoderl_edge.models.decoder import Decoder
from securecoderl_edge.models.device import Compute
from securecoderl_edge.models.loading import load_base
from securecoderl_edge.models.tokenizer import read_tokenizer
from securecoderl_edge.problems.problem import Problem, Test
from securecoderl_edge.scoring.score import Score
from securecoderl_edge.scoring.scorer import Scorer
from securecoderl_edge.training.settings import PpoSettings, ReferenceSettings, RewardSettings
from securecoderl_edge.training.update import rollout
from securecoderl_edge.training.update.history import NO_HISTORY, History, Shown
from securecoderl_edge.training.update.learner import Learner, draw_problems, next_problems, seed_of
from securecoderl_edge.training.update.ppo_update import ppo_update
from securecoderl_edge.training.update.references import Hints, groups_of, reference_tokens
from securecoderl_edge.training.update.rollout import Rollout

PROGRAM = "n = int(input())\nn = n + 1\nprint(n)\n"
PROBLEMS = [
    Problem(f"p{n}", f"Add {n} to a number.", tests=(Test("1\n", f"{n}\n"),), solutions=(PROGRAM,)) for n in range(9)
]
PPO = PpoSettings(
    batch_size=16, samples_per_prompt=4, max_tokens=24, epochs=1, drop_zero_variance_groups=True, refill=2
)


@pytest.fixture
def flat(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Problems whose completions all get the same reward; those of the others all get different ones."""
    names: set[str] = set()

    def reward(score: Score, *_: Any) -> float:
        return 0.5 if score.id in names else score.sample / 4

    monkeypatch.setattr(rollout, "training_reward", reward)
    return names


@pytest.fixture
def learner(tiny_model: Path) -> Learner:
    model = add_adapters(load_base(tiny_model), LoraSettings(rank=4), seed=3)
    optimizer = torch.optim.SGD(adapter_parameters(model, POLICY_ADAPTER).values(), lr=0.1)
    compute = Compute("cpu", "fp32", torch.float32)
    return Learner(model, read_tokenizer(tiny_model), compute, optimizer, Decoder(model, torch.float32))


@pytest.fixture
def update(learner: Learner, scorer: Scorer) -> Callable[..., tuple[dict[str, Any], Rollout]]:
    def make(ppo: PpoSettings = PPO, step: int = 1, *more: Any) -> tuple[dict[str, Any], Rollout]:
        return ppo_update(learner, scorer, PROBLEMS, ppo, RewardSettings(), 1.0, "partial", step, 5, *more)

    return make


Update = Callable[..., tuple[dict[str, Any], Rollout]]
FIRST = [problem.id for problem in next_problems(PROBLEMS, 4, 1, seed_of(5, "partial"))]


def test_a_batch_is_refilled_with_other_problems_until_it_is_full(update: Update, flat: set[str]) -> None:
    flat |= set(FIRST[:2])
    row, made = update()
    names = [problem.id for problem in made.problems]
    assert names[:4] == FIRST
    assert len(set(names)) == len(names) == 6
    assert (row["groups_used"], row["groups_refilled"]) == (4, 2)


def test_rounds_and_problems_are_limits(update: Update, flat: set[str]) -> None:
    flat |= {problem.id for problem in PROBLEMS} - {FIRST[0]}
    found = [update(replace(PPO, refill=rounds))[0] for rounds in (0, 1, 2, 3)]
    assert [row.get("groups_refilled") for row in found] == [None, 3, 5, 5]
    assert {row["groups_used"] for row in found} == {1}


def test_a_round_samples_as_many_problems_as_are_still_missing(update: Update, flat: set[str]) -> None:
    _, made = update()
    assert len(made.problems) == 4, "nothing is missing"
    flat |= set(FIRST[:2])
    _, made = update(replace(PPO, refill=1))
    flat |= {made.problems[4].id}
    row, made = update()
    assert (row["groups_used"], row["groups_refilled"]) == (4, 3)


def test_every_refilled_sample_counts_in_rates_tokens_and_episodes(update: Update, flat: set[str]) -> None:
    flat |= set(FIRST[:2])
    row, made = update()
    assert row["scores"] == len(made.completions) == 24
    assert row["tokens"] == sum(len(done.token_ids) for done in made.completions)
    assert row["objective/reward"] == pytest.approx((2 * 0.5 + 4 * 0.375) / 6)
    assert row["episode"] == 24
    flat.clear()
    assert update(PPO, 2)[0]["episode"] == 24 + 16


def test_a_refilled_rollout_stays_aligned_with_its_problems_prompts_and_hints(
    update: Update, flat: set[str], learner: Learner
) -> None:
    learner.references = reference_tokens(learner, PROBLEMS, PPO.max_tokens)
    failed = History({f"p{n}": Shown(0.0, hint=0.6) for n in range(0, 9, 2)})
    flat |= set(FIRST[:3])
    _, made = update(PPO, 1, failed, Hints(failed, 1.0, 1000))
    assert len(made.problems) == len(made.prompts) == len(made.hints) == 7
    assert [done.prompt for done in made.completions] == [place // 4 for place in range(28)]
    for done, score in zip(made.completions, made.scores, strict=True):
        problem, hint = made.problems[done.prompt], made.hints[done.prompt]
        assert (score.id, score.sample) == (problem.id, done.sample)
        assert bool(hint) == (int(problem.id[1]) % 2 == 0)
        assert made.prompts[done.prompt] == (*learner.prompt_tokens(problem), *hint)
        assert score.program.startswith(learner.tokenizer.decode(hint).rstrip())
    assert {bool(made.hints[place]) for place in range(4, 7)} == {True, False}
    groups = groups_of(made, learner.references)
    assert [group.problem for group in groups] == [problem.id for problem in made.problems]
    history = NO_HISTORY.after(groups, ReferenceSettings(hints=0.5), 0.5)
    assert history.problems.keys() == {problem.id for problem in made.problems}


def test_refilling_repeats_itself_and_changes_no_later_choice(update: Update, flat: set[str]) -> None:
    flat |= set(FIRST[:2])
    one, two = ([problem.id for problem in update()[1].problems] for _ in range(2))
    assert one == two
    later = [problem.id for problem in update(PPO, 2)[1].problems][:4]
    assert later == [problem.id for problem in next_problems(PROBLEMS, 4, 2, seed_of(5, "partial"))]


def test_a_curriculum_refills_in_the_order_of_its_draw(update: Update, flat: set[str]) -> None:
    history = History({f"p{n}": Shown(n / 8, n / 8) for n in range(9)})
    weights = [history.of(problem.id).weight for problem in PROBLEMS]
    order = [each.id for each in draw_problems(PROBLEMS, weights, 9, seed_of(5, "partial", "order", 1))]
    flat |= set(order[:3])
    _, made = update(replace(PPO, prompts="pass-rate"), 1, history)
    assert [problem.id for problem in made.problems] == order[:7]


def test_a_batch_without_variance_after_all_rounds_changes_nothing(
    update: Update, flat: set[str], learner: Learner
) -> None:
    flat |= {problem.id for problem in PROBLEMS}
    before = [each.clone() for each in adapter_parameters(learner.model, POLICY_ADAPTER).values()]
    row, made = update()
    assert (row["groups_used"], row["groups_refilled"], len(made.completions)) == (0, 5, 36)
    after = adapter_parameters(learner.model, POLICY_ADAPTER).values()
    assert all(torch.equal(one, two) for one, two in zip(before, after, strict=True))
