"""Completions that are sampled under a hint, and trained under the prompt without it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs the train extra")

import torch
from small_runs import (
    PHASES,
    SlowUpdate,
    Unrun,
    equal,
    settings_maker,
    sgd_learner,
    untimed,
    varied_reward,
    write_additions,
)

from securecoderl_edge.errors import UsageError
from securecoderl_edge.models import device
from securecoderl_edge.problems.problem import Problem, Test
from securecoderl_edge.training.phase_settings import PpoSettings
from securecoderl_edge.training.recipe import resolve
from securecoderl_edge.training.settings import TrainSettings
from securecoderl_edge.training.train import train
from securecoderl_edge.training.update import rollout
from securecoderl_edge.training.update.learner import Learner
from securecoderl_edge.training.update.rollout import collect

HINT = "Write secure code."
PROBLEMS = [Problem(f"p{n}", f"Print {n}.", tests=(Test("", f"{n}"),)) for n in range(3)]
PPO = PpoSettings(batch_size=12, samples_per_prompt=4, max_tokens=6, temperature=1.0, rollout_sequences=8)


@pytest.fixture
def learner(tiny_model: Path) -> Learner:
    return sgd_learner(tiny_model, 0.1, moved=0.3)


def test_half_of_each_group_is_drawn_under_the_hint_and_all_continue_the_prompt_without(learner: Learner) -> None:
    made = collect(learner, Unrun(), PROBLEMS, 4, PPO, 1, hint=HINT)
    assert [(done.prompt, done.sample) for done in made.completions] == [(p, s) for p in range(3) for s in range(4)]
    assert [score.sample for score in made.scores] == [done.sample for done in made.completions]
    assert made.hinted == range(2, 4)
    asked = [replace(problem, statement=f"{problem.statement}\n\n{HINT}") for problem in PROBLEMS]
    plain, hinted = (
        [tuple(learner.tokenizer.encode_prompt(learner.format.prompt(each))) for each in some]
        for some in (PROBLEMS, asked)
    )
    assert made.prompts == plain
    for row, done in enumerate(made.completions):
        drawn_under = replace(made, prompts=hinted if done.sample in made.hinted else plain)
        expected = SlowUpdate(learner, drawn_under, PPO).log_probs(row).detach()
        torch.testing.assert_close(torch.tensor(done.log_probs), expected, atol=1e-4, rtol=1e-4)


def test_a_program_of_both_prompts_runs_once(learner: Learner) -> None:
    class Counting(Unrun):
        runs = 0

        def score_async(self, problem: Problem, program: str, **named: object) -> object:  # type: ignore[override]
            Counting.runs += 1
            return super().score_async(problem, program, **named)

    made = collect(learner, Counting(), PROBLEMS, 4, replace(PPO, temperature=0.01, max_tokens=1), 1, hint=HINT)
    assert Counting.runs == len({(done.prompt, done.token_ids) for done in made.completions}) < len(made.completions)


@pytest.fixture
def make(tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., TrainSettings]:
    monkeypatch.setattr(rollout, "training_reward", varied_reward)
    for name in ("cpu_has_bf16", "bf16_products_are_far_faster"):  # in float32, without rounding
        monkeypatch.setattr(device, name, lambda: False)
    return settings_maker(tiny_model, write_additions(tmp_path / "problems.jsonl"), PHASES)


def test_an_update_says_what_the_hint_gains_and_how_far_the_policy_is_from_it(
    make: Callable[..., TrainSettings], tmp_path: Path
) -> None:
    words = ('phases=["binary"]', "selection.problems=0")
    hinted = train(make(*words, f'ppo.hint="{HINT}"'), tmp_path / "one" / "hinted")
    plain = train(make(*words), tmp_path / "two" / "plain")
    for row in untimed(hinted):
        # Rewards depend on the problem and the number of the sample alone.
        assert abs(row["objective/hint_gain"]) > 0
        assert row["sampling/hint_log_ratio"] < 0  # what was drawn under the hint is less likely without it
        assert row["sampling/sampling_logp_difference/max"] < 1e-3
    assert not {"objective/hint_gain", "sampling/hint_log_ratio"} & set().union(*untimed(plain))
    assert not equal(hinted.policy, plain.policy)


def test_hinted_rounds_of_rft_train_on_prompts_without_it(
    make: Callable[..., TrainSettings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from securecoderl_edge.training.update import supervised

    pairs = []
    monkeypatch.setattr(supervised, "correct_rows", lambda made, *_, **__: list(range(2, 8, 4)))
    step = supervised.step_on
    monkeypatch.setattr(
        supervised, "step_on", lambda learner, some, tokens: pairs.extend(some) or step(learner, some, tokens)
    )
    prompts = []
    sampled = rollout.own_completions
    monkeypatch.setattr(
        rollout,
        "own_completions",
        lambda learner, asked, *given, **named: prompts.extend(asked) or sampled(learner, asked, *given, **named),
    )
    train(
        make('phases=["rft"]', "rft.steps=1", "selection.problems=0", f'ppo.hint="{HINT}"'),
        tmp_path / "run",
    )
    assert {prompt for prompt, _ in pairs} == set(prompts[::2]) != set(prompts[1::2])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("ppo.samples_per_prompt=1", "ppo.advantage=gae", "ppo.drop_zero_variance_groups=false"), "have no half"),
        (('phases=["sft"]',), "is for phases of RL and rft, and this run has sft"),
        (('phases=["ssd"]',), "is for phases of RL and rft, and this run has ssd"),
    ],
)
def test_a_hint_that_nothing_hears_is_refused(words: tuple[str, ...], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        resolve("starter", (f'ppo.hint="{HINT}"', *words), {})
