"""A teacher in place of the frozen reference: the gradient of its KL, its tokens, the phase distill, and whole runs."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the train extra")

import torch
from once import Once
from other_models import build_other
from places import TESTS
from quick import few
from safetensors.torch import load_file, save_file
from small_runs import SlowUpdate, Unrun, an_update, equal, policy_of, rows, sgd_learner, untimed
from torch import Tensor

from securecoderl_edge.commands.train import _describe
from securecoderl_edge.errors import SceError, UsageError
from securecoderl_edge.models.adapters import POLICY_ADAPTER, adapter_parameters
from securecoderl_edge.models.architecture import read_architecture
from securecoderl_edge.models.gpus import GPUS
from securecoderl_edge.models.loading import load_base
from securecoderl_edge.models.sizes import Formats
from securecoderl_edge.models.tokenizer import read_tokenizer
from securecoderl_edge.problems.problem import Problem
from securecoderl_edge.problems.problem_file import write_problems
from securecoderl_edge.runs import Run
from securecoderl_edge.scoring.scorer import Scorer
from securecoderl_edge.training import measured_plan
from securecoderl_edge.training.estimate import seconds_per_update
from securecoderl_edge.training.memory import plan_memory
from securecoderl_edge.training.phase import Stopped
from securecoderl_edge.training.phase_settings import PpoSettings
from securecoderl_edge.training.plan import make_plan
from securecoderl_edge.training.recipe import resolve
from securecoderl_edge.training.reuse import phase_keys
from securecoderl_edge.training.settings import SelectionSettings, TrainSettings
from securecoderl_edge.training.teacher import check_teacher
from securecoderl_edge.training.train import train
from securecoderl_edge.training.update import distill, ppo, rollout
from securecoderl_edge.training.update.distill import distill_update
from securecoderl_edge.training.update.learner import Learner
from securecoderl_edge.training.update.ppo import estimate_advantages, policy_loss
from securecoderl_edge.training.update.ppo_update import ppo_update
from securecoderl_edge.training.update.rollout import Rollout
from securecoderl_edge.training.update.sequences import make_batch
from securecoderl_edge.training.update.trajectory import Trajectory

WEIGHT, COEFFICIENT, TOKENS = "model.safetensors", 0.3, 3
PROBLEMS = [Problem(f"p{n}", f"Add {n} to a number. {'#' * n}") for n in range(4)]


@pytest.fixture(scope="module")
def teacher(tiny_model: Path, once: Once) -> Path:
    """The tiny model with other weights in its attention, near enough to be reached."""

    def make(folder: Path) -> None:
        shutil.copytree(tiny_model, folder)
        weights, chance = load_file(folder / WEIGHT), torch.Generator().manual_seed(2)
        for name, value in weights.items():
            if "self_attn" in name and "proj" in name:
                weights[name] = value + 0.2 * value.std() * torch.randn(value.shape, generator=chance)
        save_file(weights, folder / WEIGHT, {"format": "pt"})

    return once("teacher", make)


# The gradient, by enumeration of all completions of a policy that is a table of logits.


class Table:
    """A policy of completions of ``length`` tokens: its logits after each beginning, and those of a teacher."""

    def __init__(self, length: int) -> None:
        chance = torch.Generator().manual_seed(4)
        states = [state for part in range(length) for state in itertools.product(range(TOKENS), repeat=part)]
        self.number = {state: index for index, state in enumerate(states)}
        shape = (len(states), TOKENS)
        self.logits = torch.randn(shape, generator=chance, dtype=torch.double).requires_grad_()
        self.teacher = torch.randn(shape, generator=chance, dtype=torch.double).log_softmax(-1)
        self.every = [*itertools.product(range(TOKENS), repeat=length)]
        self.rewards = torch.rand(len(self.every), generator=chance, dtype=torch.double)

    def of(self, table: Tensor, tokens: tuple[int, ...]) -> Tensor:
        """(T,) what a table has at the tokens of a completion."""
        return torch.stack([table[self.number[tokens[:place]], token] for place, token in enumerate(tokens)])

    @property
    def log_probs(self) -> Tensor:
        return self.logits.log_softmax(-1)

    def chances(self) -> Tensor:
        """The probability of each completion."""
        return torch.stack([self.of(self.log_probs, each).sum().exp() for each in self.every])

    def expected_reward(self) -> Tensor:
        return (self.chances() * self.rewards).sum()

    def value(self, beginning: tuple[int, ...]) -> Tensor:
        """The expected reward after a beginning."""
        chosen = torch.tensor([each[: len(beginning)] == beginning for each in self.every])
        chances = self.chances().detach() * chosen
        return (chances * self.rewards).sum() / chances.sum()

    def kl(self, *, through_states: bool) -> Tensor:
        """The KL to the teacher over a completion; the states before a token are taken as given, or they count."""
        total, ours = torch.zeros((), dtype=torch.double), self.log_probs
        for state, row in self.number.items():
            reached = self.of(ours, state).sum().exp() if state else torch.ones((), dtype=torch.double)
            here = (ours[row].exp() * (ours[row] - self.teacher[row])).sum()
            total = total + (reached if through_states else reached.detach()) * here
        return total

    def gradient(self, of: Tensor) -> Tensor:
        (found,) = torch.autograd.grad(of, self.logits)
        return found

    def expected_step(self, settings: PpoSettings) -> Tensor:
        """Minus the expected gradient of the loss of all pairs of completions, in the sum over tokens."""
        total, length = torch.zeros_like(self.logits), len(self.every[0])
        mask = torch.ones(2, length, dtype=torch.double)
        for pair in itertools.product(range(len(self.every)), repeat=2):
            chosen = [self.every[index] for index in pair]
            ours = torch.stack([self.of(self.log_probs, each) for each in chosen])
            values = [[self.value(each[:place]) for place in range(length)] for each in chosen]
            trajectory = Trajectory(
                batch=make_batch([([1], each) for each in chosen], 0, "cpu"),
                rewards=self.rewards[list(pair)], weights=mask, sizes=(length,) * 2, share=1.0, sampled=ours.detach(),
                log_probs=ours.detach(), reference=torch.stack([self.of(self.teacher, each) for each in chosen]),
                values=torch.tensor(values, dtype=torch.double), advantages=mask, returns=mask,
            )  # fmt: skip
            advantages = estimate_advantages(trajectory, settings, {}).advantages
            loss = policy_loss(ours, ours.detach(), advantages, mask, 0.2).loss * length
            total -= ours.detach().sum().exp() * self.gradient(loss)
        return total


def of_pairs(advantage: str, coefficient: float = COEFFICIENT, reference: str | None = "teacher") -> PpoSettings:
    return PpoSettings(
        advantage=advantage, samples_per_prompt=2, batch_size=2, kl_coefficient=coefficient, reference=reference
    )


@pytest.fixture
def unscaled(monkeypatch: pytest.MonkeyPatch) -> None:
    """A positive factor for each batch, which is not the question here."""
    monkeypatch.setattr(ppo, "_scaled", lambda advantages, *_: advantages)


@pytest.mark.usefixtures("unscaled")
@pytest.mark.parametrize("length", [1, 2])
@pytest.mark.parametrize(("advantage", "share"), [("rloo", 1.0), ("gae", 1.0), ("dr-grpo", 0.5)])
def test_the_expected_update_is_the_gradient_of_the_reward_minus_the_kl_to_the_teacher(
    advantage: str, share: float, length: int
) -> None:
    """The value head is exact here; the baseline of Dr. GRPO has a share (n - 1) / n of the reward, as without one."""
    table = Table(length)
    objective = share * table.expected_reward() - COEFFICIENT * table.kl(through_states=False)
    torch.testing.assert_close(table.expected_step(of_pairs(advantage)), table.gradient(objective))


@pytest.mark.parametrize("advantage", ["batch", "grpo"])
def test_the_kl_to_the_teacher_is_not_divided_by_the_deviation_of_rewards(advantage: str) -> None:
    table = Table(2)
    with_it, without = (table.expected_step(of_pairs(advantage, each)) for each in (COEFFICIENT, 0.0))
    assert without.norm() > 0.01
    torch.testing.assert_close(with_it - without, -COEFFICIENT * table.gradient(table.kl(through_states=False)))


@pytest.mark.parametrize("advantage", ["rloo", "gae", "batch", "grpo", "dr-grpo"])
def test_of_one_token_it_is_the_kl_of_the_whole_completion_and_never_that_of_the_teacher_to_the_policy(
    advantage: str,
) -> None:
    table = Table(1)
    table.rewards = torch.zeros_like(table.rewards)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ppo, "_scaled", lambda advantages, *_: advantages)
        step = table.expected_step(of_pairs(advantage))
    whole = table.chances() * (
        table.chances().log() - torch.stack([table.of(table.teacher, e)[0] for e in table.every])
    )
    torch.testing.assert_close(step, -COEFFICIENT * table.gradient(whole.sum()))
    forward = (table.teacher.exp() * (table.teacher - table.log_probs)).sum()
    assert not torch.allclose(step, -COEFFICIENT * table.gradient(forward), rtol=0.1)


@pytest.mark.usefixtures("unscaled")
def test_the_kl_to_a_frozen_reference_counts_what_a_token_does_to_later_ones() -> None:
    """RLOO gives each token the KL of the whole completion: right on average, and noisier the longer it is."""
    table = Table(2)
    objective = table.expected_reward() - COEFFICIENT * table.kl(through_states=True)
    torch.testing.assert_close(table.expected_step(of_pairs("rloo", reference=None)), table.gradient(objective))
    parts = [table.gradient(table.kl(through_states=each)) for each in (True, False)]
    assert not torch.allclose(*parts, rtol=0.01)


def noise(table: Table, *, of_token: bool) -> float:
    """The variance of the gradient from one completion, by the part of each token in the KL, or by all of it.

    From the KL of a whole completion its mean is subtracted: the best that a group could estimate.
    """
    ours, chances = table.log_probs.detach(), table.chances().detach()
    ratios = torch.stack([table.of(ours - table.teacher, each) for each in table.every])
    whole = ratios.sum(1) - (chances * ratios.sum(1)).sum()
    made = []
    for row, tokens in enumerate(table.every):
        gradient = torch.zeros_like(ours)
        for place, token in enumerate(tokens):
            state = table.number[tokens[:place]]
            slope = -ours[state].exp()
            slope[token] += 1
            gradient[state] += slope * (ratios[row, place] if of_token else whole[row])
        made.append(gradient)
    every = torch.stack(made).flatten(1)
    mean = (chances[:, None] * every).sum(0)
    return float((chances[:, None] * (every - mean) ** 2).sum())


def test_the_estimate_is_less_noisy_than_that_of_whole_completions_and_more_so_the_longer_they_are() -> None:
    ratios = [noise(table, of_token=False) / noise(table, of_token=True) for table in map(Table, (2, 4, 6))]
    assert ratios[0] > 2
    assert ratios == sorted(ratios)


# One update of a tiny policy.

PPO = PpoSettings(
    batch_size=8, samples_per_prompt=2, max_tokens=12, epochs=1, micro_batch_tokens=150, max_grad_norm=1e9,
    temperature=0.7, reference="teacher",
)  # fmt: skip


@pytest.fixture
def make_learner(tiny_model: Path, teacher: Path) -> Callable[..., Learner]:
    """Equal learners with plain gradient descent; a sixteenth of the tokens end."""

    def make(moved: float = 0.05, of: Path = teacher) -> Learner:
        learner = sgd_learner(tiny_model, 0.1, moved=moved)
        learner.end_tokens |= frozenset(range(0, learner.model.config.vocab_size, 16))
        learner.teacher = load_base(of)
        return learner

    return make


class Slow(SlowUpdate):
    """Gradient ascent on (r + beta (log pi_teacher - log pi)) log pi of each token, completion by completion."""

    def of_teacher(self, row: int) -> Tensor:
        done = self.made.completions[row]
        before, last = len(self.made.prompts[done.prompt]), self.learner.teacher.config.vocab_size - 1
        tokens = torch.tensor([*self.made.prompts[done.prompt], *done.token_ids]).clamp(max=last)
        logits = self.learner.teacher(tokens[None]).logits[0] / self.ppo.temperature
        return logits.log_softmax(-1)[before - 1 : -1].gather(-1, tokens[before:, None])[:, 0]

    def update(self, rewards: Tensor, coefficient: float, count: float | None = None) -> float:
        """Returns the KL of a completion; the loss is divided by ``count``, by default the number of tokens."""
        tokens = sum(len(done.token_ids) for done in self.made.completions)
        objective, kl = torch.zeros(()), 0.0
        for row in range(len(self.made.completions)):
            ours = self.log_probs(row)
            with torch.no_grad():
                distance = ours - self.of_teacher(row)
            kl += float(distance.sum()) / len(self.made.completions)
            objective = objective + ((rewards[row] - coefficient * distance) * ours).sum() / (count or tokens)
        parameters = list(adapter_parameters(self.learner.model, POLICY_ADAPTER).values())
        for parameter, gradient in zip(parameters, torch.autograd.grad(objective, parameters), strict=True):
            parameter.grad = -gradient
        self.learner.optimizer.step()
        return kl


def distilled(learner: Learner, settings: PpoSettings = PPO, **given: Any) -> tuple[dict[str, Any], Rollout]:
    """The metrics of an update of the phase, and its rollout, of which nothing is scored."""
    seen: list[Rollout] = []
    real = distill.learn
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(distill, "learn", lambda *arguments: seen.append(arguments[2]) or real(*arguments))
        row, none = distill_update(learner, an_update(PROBLEMS, None, "distill", ppo=settings, **given))
    assert none is None
    return row, seen[0]


CASES = {
    "plain": PPO,
    # None of these compares, scales or drops anything here.
    "of RL": replace(PPO, advantage="grpo", drop_zero_variance_groups=True, kl_coefficient=0.0, value_warmup_steps=9),
    "one of each": replace(PPO, samples_per_prompt=1, batch_size=4, advantage="gae"),
}


@pytest.mark.parametrize("ends", [True, False])
def test_completions_of_distill_end_with_their_program_where_those_of_rl_do(
    ends: bool, make_learner: Callable[..., Learner], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[Any]] = []
    real = rollout.ProgramEnd
    monkeypatch.setattr(rollout, "ProgramEnd", lambda tokenizer, facts: seen.append(facts) or real(tokenizer, facts))
    distilled(make_learner(), replace(PPO, end_with_program=ends))
    assert seen
    assert all((each is not None) == ends for facts in seen for each in facts)


@pytest.mark.parametrize("case", CASES)
def test_an_update_of_distill_is_that_of_a_slow_reference(case: str, make_learner: Callable[..., Learner]) -> None:
    fast, slow = make_learner(), make_learner()
    before = policy_of(fast)
    row, made = distilled(fast, CASES[case])
    kl = Slow(slow, made, CASES[case]).update(torch.zeros(len(made.completions)), 1.0)
    moved, expected = policy_of(fast) - before, policy_of(slow) - before
    assert expected.norm() > 1e-3
    torch.testing.assert_close(moved, expected, rtol=1e-3, atol=1e-4 * float(expected.abs().max()))
    assert row["objective/kl"] == pytest.approx(kl, rel=1e-4)
    assert row["val/first_ratio_error"] == 0
    assert not {"objective/reward", "objective/non_score_reward", "loss/kl", "zero_variance_rate"} & row.keys()
    assert f"KL {kl:.2f}  truncated " in _describe({"phase": "distill", "step": 1, "steps": 2, **row})


def test_an_update_of_rl_adds_the_teacher_to_the_reward(
    make_learner: Callable[..., Learner], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rollout, "training_reward", lambda score, *_: float(score.sample))
    settings = replace(PPO, advantage="dr-grpo", kl_coefficient=0.2)
    fast, slow = make_learner(), make_learner()
    before = policy_of(fast)
    row, made = ppo_update(fast, an_update(PROBLEMS, Unrun(), "partial", ppo=settings))
    rewards = torch.tensor([done.sample - 0.5 for done in made.completions])
    kl = Slow(slow, made, settings).update(rewards, 0.2, settings.batch_size * settings.max_tokens)
    moved, expected = policy_of(fast) - before, policy_of(slow) - before
    torch.testing.assert_close(moved, expected, rtol=1e-3, atol=1e-4 * float(expected.abs().max()))
    assert row["objective/kl"] == pytest.approx(kl, rel=1e-4)
    assert not {"objective/non_score_reward", "loss/kl"} & row.keys()


def test_a_teacher_that_equals_the_policy_gives_no_kl_and_no_gradient(
    tiny_model: Path, make_learner: Callable[..., Learner]
) -> None:
    equal_one, other = make_learner(0.0, tiny_model), make_learner()
    row, far = distilled(equal_one)[0], distilled(other)[0]
    assert abs(row["objective/kl"]) < 1e-4 < 0.1 < far["objective/kl"]
    assert row["grad_norm"] < 1e-4 * far["grad_norm"]


@pytest.mark.slow
def test_distill_brings_the_policy_nearer_to_the_teacher(
    tiny_model: Path, make_learner: Callable[..., Learner]
) -> None:
    learner = make_learner(0.0)
    learner.teacher = sgd_learner(tiny_model, 0.1, moved=0.05).model  # with an adapter as the policy's, so reachable
    learner.optimizer = torch.optim.Adam(adapter_parameters(learner.model, POLICY_ADAPTER).values(), lr=0.003)
    settings = replace(PPO, batch_size=64, samples_per_prompt=16, micro_batch_tokens=4000, temperature=1.0)
    settings, distances = replace(settings, max_grad_norm=1.0), []
    for step in range(1, 31):
        row, _ = distilled(learner, settings, step=step)
        distances.append(row["objective/kl"] * settings.batch_size / row["tokens"])
    assert sum(distances[-5:]) < 0.85 * sum(distances[:5])


def test_a_token_that_the_teacher_has_no_row_for_is_taken_for_its_last_one() -> None:
    batch = make_batch([([1, 9], [3, 8]), ([2], [4])], 0, "cpu")
    assert batch.within(10) is batch
    cut = batch.within(8)
    assert (cut.sequences, cut.tokens.tolist()) == ((((1, 7), (3, 7)), ((2,), (4,))), [[3, 7], [4, 0]])
    assert cut.lengths == batch.lengths


def test_a_teacher_that_transformers_computes_teaches_too(
    tiny_model: Path, make_learner: Callable[..., Learner], once: Once
) -> None:
    folder = once("other-GPT-2", lambda made: build_other(made, "GPT-2"))
    check_teacher("gpt", folder, tiny_model, read_tokenizer(tiny_model))
    fast, slow = make_learner(of=folder), make_learner(of=folder)
    row, made = distilled(fast)
    rows = slow.teacher.config.vocab_size
    assert any(token >= rows for done in made.completions for token in done.token_ids), "it has fewer rows"
    assert row["objective/kl"] == pytest.approx(Slow(slow, made, PPO).update(torch.zeros(8), 1.0), rel=1e-4)
    torch.testing.assert_close(policy_of(fast), policy_of(slow), rtol=1e-3, atol=1e-6)


# Tokens.


def with_vocabulary(
    base: Path, folder: Path, change: Callable[[dict[str, Any]], None], rows: int | None = None
) -> Path:
    """A copy of a model without weights, with a changed tokenizer.json."""
    folder.mkdir()
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        shutil.copy(base / name, folder)
    document, config = (json.loads((folder / name).read_text()) for name in ("tokenizer.json", "config.json"))
    change(document)
    (folder / "tokenizer.json").write_text(json.dumps(document))
    (folder / "config.json").write_text(json.dumps({**config, "vocab_size": rows or config["vocab_size"]}))
    return folder


def swap(document: dict[str, Any]) -> None:
    vocabulary = document["model"]["vocab"]
    vocabulary["a"], vocabulary["b"] = vocabulary["b"], vocabulary["a"]


def rename_a_special_token(document: dict[str, Any]) -> None:
    vocabulary, added = document["model"]["vocab"], document["added_tokens"]
    (token,) = (token for token in added if token["content"] == "<pad>")
    vocabulary["<other>"], token["content"] = vocabulary.pop("<pad>"), "<other>"


def add_one(document: dict[str, Any]) -> None:
    document["model"]["vocab"]["~~~"] = max(document["model"]["vocab"].values()) + 1


@pytest.mark.parametrize(("change", "count"), [(swap, 2), (rename_a_special_token, 1)])
def test_a_teacher_with_other_tokens_is_refused_in_one_sentence(
    tiny_model: Path, tmp_path: Path, change: Callable[[dict[str, Any]], None], count: int
) -> None:
    other, own = with_vocabulary(tiny_model, tmp_path / "other", change), read_tokenizer(tiny_model)
    with pytest.raises(UsageError, match=rf"ppo.reference big: {count} of the policy's \d+ tokens are other ones") as e:
        check_teacher("big", other, tiny_model, own)
    assert len(str(e.value).splitlines()) == 1


def test_a_teacher_without_some_of_the_tokens_is_refused_and_one_with_more_is_not(
    tiny_model: Path, tmp_path: Path
) -> None:
    more = with_vocabulary(tiny_model, tmp_path / "more", add_one)
    said: list[str] = []
    check_teacher("more", more, tiny_model, read_tokenizer(tiny_model), said.append)
    assert said == []
    with pytest.raises(UsageError, match="1 of the policy's"):
        check_teacher("less", tiny_model, more, read_tokenizer(more))


def test_rows_that_no_text_uses_may_differ_with_a_warning(tiny_model: Path, tmp_path: Path) -> None:
    said: list[str] = []
    wider = with_vocabulary(tiny_model, tmp_path / "wider", lambda document: None, rows=512)
    check_teacher("wider", wider, tiny_model, read_tokenizer(tiny_model), said.append)
    assert len(said) == 1
    assert said[0].startswith("warning: wider has 512 rows of tokens, the policy ")


# Whole runs.

SMALL = ("distill.steps=4", "distill.learning_rate=0.01", "ppo.epochs=2", "checkpoint_every=2", "selection.metric=none")


@pytest.fixture(scope="module")
def make_settings(settings: Callable[..., TrainSettings], teacher: Path) -> Callable[..., TrainSettings]:
    def make(*overrides: str, of: Path = teacher, phases: tuple[str, ...] = ("sft", "distill")) -> TrainSettings:
        return settings(*SMALL, f"ppo.reference={of}", *overrides, phases=phases)

    return make


@pytest.fixture(scope="module")
def whole(make_settings: Callable[..., TrainSettings], once: Once) -> Run:
    """An uninterrupted run; read only."""
    return Run(once("distilled", lambda folder: train(make_settings(), folder / "run")) / "run")


def test_a_run_records_the_teacher_and_evaluates_by_r(whole: Run) -> None:
    made = [row for row in rows(whole) if row["phase"] == "distill"]
    assert [row["step"] for row in made] == [1, 2, 3, 4]
    assert all(row["objective/kl"] > 0 for row in made)
    record = json.loads((whole.path / "environment.json").read_text())
    assert len(record["teacher_sha256"]) == 64
    evaluations = [
        json.loads(line) for line in (whole.phase_folder(2, "distill") / "evaluations.jsonl").read_text().splitlines()
    ]
    assert [row["step"] for row in evaluations] == [0, 2, 4]
    assert not equal(whole.policy, whole.phase_folder(1, "sft") / "adapter")


@pytest.mark.parametrize("step", few([1, 2, 3], 3))
def test_a_run_that_was_stopped_and_resumed_equals_an_uninterrupted_one_bit_for_bit(
    step: int, make_settings: Callable[..., TrainSettings], whole: Run, tmp_path: Path
) -> None:
    last: dict[str, Any] = {}
    with pytest.raises(Stopped):
        train(
            make_settings(), tmp_path / "run", log=last.update,
            should_stop=lambda: (last["phase"], last["step"]) == ("distill", step),
        )  # fmt: skip
    run = train(make_settings(), tmp_path / "run")
    assert untimed(run) == untimed(whole)
    assert equal(run.policy, whole.policy)


@pytest.mark.parametrize("updates", few([1, 3], 3), ids=lambda updates: f"after {updates}")
def test_a_run_that_crashed_in_an_update_equals_an_uninterrupted_one_bit_for_bit(
    updates: int, make_settings: Callable[..., TrainSettings], whole: Run, tmp_path: Path
) -> None:
    real, calls = distill.learn, 0

    def crashing(*arguments: Any) -> dict[str, float]:
        nonlocal calls
        calls += 1
        made = real(*arguments)
        if calls > updates:
            raise ValueError("killed after the steps, before a checkpoint")
        return made

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(distill, "learn", crashing)
        with pytest.raises(ValueError, match="killed"):
            train(make_settings(), tmp_path / "run")
    run = train(make_settings(), tmp_path / "run")
    assert untimed(run) == untimed(whole)
    assert equal(run.policy, whole.policy)


def test_a_run_does_not_resume_with_a_teacher_that_has_changed(
    make_settings: Callable[..., TrainSettings], teacher: Path, tmp_path: Path
) -> None:
    shutil.copytree(teacher, own := tmp_path / "own")
    config = make_settings(of=own)
    with pytest.raises(Stopped):
        train(config, tmp_path / "run", should_stop=lambda: True)
    weights = load_file(own / WEIGHT)
    save_file({name: value + 0.01 for name, value in weights.items()}, own / WEIGHT, {"format": "pt"})
    with pytest.raises(UsageError, match=f"the content of {own} is not that of .*'s start"):
        train(config, tmp_path / "run")


def test_phases_depend_on_the_content_of_their_teacher_and_not_on_its_place(
    make_settings: Callable[..., TrainSettings],
) -> None:
    phases = ("sft", "rft", "distill", "binary")
    config = make_settings("ppo.drop_zero_variance_groups=false", phases=phases)
    plain, other = (phase_keys(config, {"base_sha256": "b", "teacher_sha256": each}) for each in ("1", "2"))
    assert [phase for phase in phases if plain[phase] != other[phase]] == ["distill", "binary"]
    moved = replace(config, ppo=replace(config.ppo, reference="elsewhere"))
    assert phase_keys(moved, {"base_sha256": "b", "teacher_sha256": "1"}) == plain
    without = replace(config, phases=("sft", "rft"), ppo=replace(config.ppo, reference=None))
    assert phase_keys(without, {"base_sha256": "b"}) == {name: plain[name] for name in ("sft", "rft")}


def test_distill_needs_no_tests_and_executes_nothing(
    make_settings: Callable[..., TrainSettings], tmp_path: Path
) -> None:
    write_problems(tmp_path / "problems.jsonl", PROBLEMS)
    config = replace(
        make_settings("selection.problems=0", phases=("distill",)), problems=str(tmp_path / "problems.jsonl")
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Scorer, "score_async", pytest.fail)
        run = train(config, tmp_path / "run")
    assert len(rows(run)) == 4
    assert not (run.path / "samples.jsonl").exists()
    filtered = replace(config, phases=("sft", "distill"), sft=replace(config.sft, filter="security"))
    for refused in (
        replace(config, phases=("distill", "rft")),
        replace(config, selection=SelectionSettings()),
        filtered,
    ):
        with pytest.raises(SceError, match="no tests"):
            train(refused, tmp_path / "other")


def test_a_teacher_that_no_phase_asks_is_not_looked_for(
    make_settings: Callable[..., TrainSettings], tmp_path: Path
) -> None:
    run = train(make_settings(of=Path("nothing"), phases=("sft",)), tmp_path / "run")
    assert "teacher_sha256" not in json.loads((run.path / "environment.json").read_text())


def test_a_teacher_that_is_not_there_is_named(make_settings: Callable[..., TrainSettings], tmp_path: Path) -> None:
    with pytest.raises(SceError, match="unknown model 'nothing'"):
        train(make_settings(of=Path("nothing")), tmp_path / "run")


@pytest.mark.parametrize(
    ("phases", "overrides", "message"),
    [
        (("distill",), (), r"the phase distill needs a teacher\. Name a model: --set ppo\.reference=MODEL"),
        (("binary",), ("ppo.reference=x", "ppo.kl_coefficient=0"), "binary asks ppo.reference nothing"),
        (
            ("binary",),
            ("ppo.reference=x", "ppo.drop_zero_variance_groups=true"),
            "teaches binary on groups with equal rewards",
        ),
    ],
)
def test_settings_with_which_a_teacher_is_missing_or_not_heard_are_refused(
    phases: tuple[str, ...], overrides: tuple[str, ...], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        resolve("starter", overrides, {"phases": phases})


def test_distill_alone_takes_one_completion_per_prompt() -> None:
    overrides = ("ppo.reference=x", "ppo.samples_per_prompt=1", "ppo.advantage=rloo")
    assert resolve("starter", overrides, {"phases": ("distill",)})
    with pytest.raises(UsageError, match="samples_per_prompt of at least 2"):
        resolve("starter", overrides, {"phases": ("distill", "binary")})


def test_distill_before_rl_without_a_kl_needs_no_other_settings() -> None:
    overrides = ("ppo.reference=x", "ppo.kl_coefficient=0", "ppo.drop_zero_variance_groups=true")
    settings = resolve("starter", overrides, {"phases": ("distill", "binary")})
    assert (settings.teacher_of("distill"), settings.teacher_of("binary")) == ("x", None)


# The plan.


def test_the_plan_has_the_teacher_s_weights_and_its_pass(tiny_model: Path, teacher: Path) -> None:
    shape, settings = (
        read_architecture(tiny_model),
        resolve("starter", (f"ppo.reference={teacher}",), {"phases": ("distill",)}),
    )
    formats = Formats.of("cuda", "int8", "float16", "float16")
    larger = replace(shape, layers=40, hidden=4096)
    plans = {
        name: plan_memory(shape, settings, formats, 50, phase, teacher=asked)
        for name, phase, asked in (
            ("none", "distill", None), ("equal", "distill", shape), ("large", "distill", larger), ("sft", "sft", larger)
        )
    }  # fmt: skip
    assert "teacher" not in plans["none"].always
    assert plans["equal"].always["teacher"] == plans["equal"].always["base weights"]
    # Its forward pass needs less than the policy's two, unless it is much larger.
    assert plans["equal"].update == plans["none"].update
    assert sum(plans["large"].update.values()) > 2 * sum(plans["equal"].update.values())
    assert any("teacher" in part for part in plans["large"].update)
    assert not any("teacher" in part for part in plans["sft"].update)
    assert plans["sft"].always["teacher"] == plans["large"].always["teacher"]


def test_prompts_fit_into_the_context_of_the_teacher(tiny_model: Path, teacher: Path, tmp_path: Path) -> None:
    shutil.copytree(teacher, tmp_path / "short")
    config = json.loads((tmp_path / "short" / "config.json").read_text())
    (tmp_path / "short" / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 64}))
    write_problems(tmp_path / "problems.jsonl", [*PROBLEMS, Problem("long", "Add 1 to a number. " * 40)])
    flags = {"model": str(tiny_model), "problems": str(tmp_path / "problems.jsonl"), "device": "cpu"}
    small = ("distill.steps=1", "ppo.max_tokens=8", "ppo.batch_size=8", "selection.problems=0", "lora.rank=2")
    settings = resolve("starter", (*small, f"ppo.reference={tmp_path / 'short'}"), {**flags, "phases": ["distill"]})
    assert make_plan(settings).longest_prompt == 64 - 8
    said: list[str] = []
    train(settings, tmp_path / "run", say=said.append)
    assert "1 of 5 problems dropped: their prompts have more than 56 tokens" in said


def test_a_larger_teacher_takes_longer(tiny_model: Path) -> None:
    shape, settings = read_architecture(tiny_model), resolve("starter", ("ppo.reference=x",), {"phases": ("distill",)})
    larger, formats = replace(shape, layers=400), Formats.of("cuda", "int8", "float16", "float16")
    own, taught = (
        seconds_per_update(shape, settings, formats, GPUS["t4-16"], "distill", 50, each) for each in (None, larger)
    )
    assert taught > 2 * own
    sft = {seconds_per_update(shape, settings, formats, GPUS["t4-16"], "sft", 50, each) for each in (None, larger)}
    assert len(sft) == 1


def test_a_plan_needs_the_headers_of_both_models_alone(
    tiny_model: Path, make_settings: Callable[..., TrainSettings], tmp_path: Path
) -> None:
    """Without weights, tokenizers and torch: nothing of them can have been read."""
    words = ["--recipe", "starter", "--problems", make_settings().problems, "--phases", "distill", "--dry-run"]
    for name in ("policy", "teacher"):
        (tmp_path / name).mkdir()
        shutil.copy(tiny_model / "config.json", tmp_path / name)
    words += ["--model", str(tmp_path / "policy"), "--set", f"ppo.reference={tmp_path / 'teacher'}"]
    script = (
        "import sys; sys.modules.update(dict.fromkeys(['torch', 'transformers', 'peft', 'tokenizers'])); "
        f"from securecoderl_edge.cli import main; main({['train', '--gpu', 't4-16', *words]!r})"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    lines = [line.split() for line in ended.stdout.splitlines()]
    named, weighed = (line[1:] for line in lines if line[:1] == ["teacher"])
    assert named[0] == f"{tmp_path / 'teacher'},"
    assert ["base", "weights", *weighed] in lines
    assert ["memory,", "GiB", "distill"] in lines


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_run_that_is_killed_in_an_update_of_distill_resumes_bit_for_bit(
    tiny_model: Path, make_settings: Callable[..., TrainSettings], teacher: Path, tmp_path: Path
) -> None:
    def run(name: str, fault: str = "") -> int:
        command = [sys.executable, "-W", "ignore", str(TESTS / "train_script.py"), str(tiny_model)]
        command += [make_settings().problems, str(tmp_path / name / "run"), "--phases=sft,distill"]
        command += [f"ppo.reference={teacher}", "distill.steps=4"]
        done = subprocess.run(command, env={**os.environ, "FAULT": fault}, capture_output=True, text=True, check=False)
        assert done.returncode in (0, -signal.SIGKILL), done.stderr
        return done.returncode

    assert run("whole") == 0
    assert run("killed", "0 distill 4 SIGKILL") == -signal.SIGKILL
    assert run("killed") == 0
    whole, killed = (Run(tmp_path / name / "run") for name in ("whole", "killed"))
    assert untimed(killed) == untimed(whole)
    assert equal(killed.policy, whole.policy)


def test_both_plans_name_the_teacher(
    make_settings: Callable[..., TrainSettings], teacher: Path, tmp_path: Path
) -> None:
    config = make_settings(phases=("distill",))
    for plan in (make_plan(config), measured_plan.measure_plan(config, Run(tmp_path / "run"))):
        assert plan.teacher.startswith(f"{teacher}, 0.")
        assert plan.phases[0].memory.always["teacher"] > 0
        assert "rows of tokens" not in plan.teacher
    assert plan.seconds is not None
    assert make_plan(make_settings(phases=("sft",))).teacher == ""


def test_a_plan_reports_a_teacher_with_another_number_of_tokens(
    tiny_model: Path, make_settings: Callable[..., TrainSettings], tmp_path: Path
) -> None:
    wider = with_vocabulary(tiny_model, tmp_path / "wider", lambda document: None, rows=512)
    plan = make_plan(make_settings(f"ppo.reference={wider}", phases=("distill",)))
    assert "; 512 rows of tokens, the policy " in plan.teacher
