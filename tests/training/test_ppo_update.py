"""One update: what it does to the policy, and what it must not do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the train extra")

import torch
from small_runs import an_update

from securecoderl_edge.models.adapters import POLICY_ADAPTER, LoraSettings, adapter_parameters, add_adapters
from securecoderl_edge.models.decoder import Decoder
from securecoderl_edge.models.device import Compute
from securecoderl_edge.models.int8 import Int8Weight
from securecoderl_edge.models.loading import load_base
from securecoderl_edge.models.tokenizer import read_tokenizer
from securecoderl_edge.problems.problem import Problem, Test
from securecoderl_edge.prompts.extraction import PromptFacts, extract_program
from securecoderl_edge.scoring.scorer import Scorer
from securecoderl_edge.training.checkpoint import PhaseProgress, load_latest, save_checkpoint
from securecoderl_edge.training.phase_settings import PpoSettings
from securecoderl_edge.training.update import ppo_update
from securecoderl_edge.training.update.learner import Learner, make_value_head
from securecoderl_edge.training.update.rollout import collect

pytestmark = pytest.mark.usefixtures("varied_reward")

PROBLEMS = [
    Problem(f"p{n}", f"Add {n} to a number.", tests=(Test("1\n", f"{n}\n"),), solutions=("print(1)",)) for n in range(4)
]
PPO = PpoSettings(
    batch_size=8, samples_per_prompt=4, max_tokens=10, epochs=1, micro_batch_tokens=300, learning_rate=0.01
)
FP32 = Compute("cpu", "fp32", torch.float32)


@pytest.fixture
def make_learner(tiny_model: Path) -> Callable[..., Learner]:
    def make(compute: Compute = FP32, value_head: bool = False) -> Learner:
        model = add_adapters(load_base(tiny_model, compute.base_precision), LoraSettings(rank=4), seed=3)
        head = make_value_head(model.config.hidden_size, 3) if value_head else None
        groups = [{"params": list(adapter_parameters(model, POLICY_ADAPTER).values()), "lr": 0.01}]
        groups += [{"params": list(head.parameters()), "lr": 0.01}] if head is not None else []
        optimizer = torch.optim.AdamW(groups, weight_decay=0.0)
        decoder = Decoder(model, compute.rollout_dtype)
        return Learner(model, read_tokenizer(tiny_model), compute, optimizer, decoder, head)

    return make


def update(learner: Learner, scorer: Scorer, ppo: PpoSettings, step: int = 1) -> dict[str, Any]:
    return ppo_update.ppo_update(learner, an_update(PROBLEMS, scorer, ppo=ppo, step=step))[0]


def policy(learner: Learner) -> torch.Tensor:
    return torch.cat(
        [value.detach().flatten().clone() for value in adapter_parameters(learner.model, POLICY_ADAPTER).values()]
    )


def plain(learner: Learner) -> Learner:
    """The same with the sampler of architectures that are not ours: generate() of transformers."""
    return replace(learner, decoder=None)


def test_an_update_moves_the_policy_and_says_how_far(make_learner: Callable[..., Learner], scorer: Scorer) -> None:
    learner = make_learner()
    before = policy(learner)
    row = update(learner, scorer, replace(PPO, epochs=2))
    assert not torch.equal(policy(learner), before)
    assert row["val/first_ratio_error"] == 0
    assert row["val/ratio"] != 1
    assert row["val/ratio_var"] > 0
    assert row["policy/approxkl"] > 0
    assert row["objective/non_score_reward"] == pytest.approx(-PPO.kl_coefficient * row["objective/kl"])
    assert row["episode"] == 8
    assert row["val/num_eos_tokens"] + round(row["truncated_rate"] * 8) == 8
    for name in ("tokens_per_second", "seconds_sample", "seconds_update", "peak_rss_mib"):
        assert row[name] > 0


DRIFT = "sampling/sampling_logp_difference"


@pytest.mark.parametrize("is_ours", [True, False])
def test_sampler_and_learner_agree_on_the_probability_of_each_token(
    make_learner: Callable[..., Learner], scorer: Scorer, is_ours: bool
) -> None:
    learner = make_learner() if is_ours else plain(make_learner())
    for step in (1, 2):  # the second one with an adapter that does something, merged by the sampler
        row = update(learner, scorer, PPO, step)
        assert 0 <= row[f"{DRIFT}/mean"] <= row[f"{DRIFT}/max"] < 1e-4


def test_a_sampler_that_reads_int8_weights_in_another_format_shows_in_the_drift(
    make_learner: Callable[..., Learner], scorer: Scorer, monkeypatch: pytest.MonkeyPatch
) -> None:
    eight_bit = Compute("cpu", "int8", torch.float32)
    same = update(make_learner(eight_bit), scorer, PPO)
    real = Int8Weight.product

    def rounded(weight: Int8Weight, inputs: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        return real(replace(weight, scale=weight.scale.bfloat16().float()), inputs, bias)

    monkeypatch.setattr(Int8Weight, "product", rounded)
    other = update(make_learner(eight_bit), scorer, PPO)
    assert same[f"{DRIFT}/max"] < 1e-4
    assert other[f"{DRIFT}/mean"] > 100 * same[f"{DRIFT}/mean"]


def test_a_sampler_with_an_older_policy_than_the_learner_shows_in_the_drift(
    make_learner: Callable[..., Learner], scorer: Scorer, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = make_learner()
    assert learner.decoder is not None
    learner.decoder.refresh()
    monkeypatch.setattr(learner.decoder, "refresh", lambda: None)
    monkeypatch.setattr(learner.decoder, "release", lambda: None)
    fresh, stale = (update(learner, scorer, PPO, step) for step in (1, 2))
    assert fresh[f"{DRIFT}/max"] < 1e-4
    assert stale[f"{DRIFT}/mean"] > 0.01


@pytest.mark.parametrize("is_ours", [True, False])
def test_fewer_completions_at_a_time_are_the_same_completions(
    make_learner: Callable[..., Learner], scorer: Scorer, is_ours: bool
) -> None:
    learner = make_learner() if is_ours else plain(make_learner())
    made = [
        collect(learner, scorer, PROBLEMS, 4, replace(PPO, rollout_sequences=rows), 7).completions
        for rows in (64, 11, 8, 5, 1)  # the last three: two prompts, one, and all samples of one in any case
    ]
    assert [(done.prompt, done.sample) for done in made[0]] == [(prompt, n) for prompt in range(4) for n in range(4)]
    for others in made[1:]:
        assert [done.token_ids for done in others] == [done.token_ids for done in made[0]]


def test_passes_over_a_batch_stop_once_the_policy_has_moved_too_far(
    make_learner: Callable[..., Learner], scorer: Scorer
) -> None:
    assert update(make_learner(), scorer, replace(PPO, epochs=6))["val/epochs"] == 6
    assert update(make_learner(), scorer, replace(PPO, epochs=6, target_kl=1e-9))["val/epochs"] == 2


def test_only_the_value_head_learns_while_it_warms_up(make_learner: Callable[..., Learner], scorer: Scorer) -> None:
    ppo = replace(PPO, advantage="gae", samples_per_prompt=1, value_warmup_steps=1)
    learner = make_learner(value_head=True)
    before = policy(learner)
    head = [value.detach().clone() for value in learner.value_head.parameters()]  # type: ignore[union-attr]
    update(learner, scorer, ppo)
    assert torch.equal(policy(learner), before)
    assert any(
        not torch.equal(old, new)
        for old, new in zip(head, learner.value_head.parameters(), strict=True)  # type: ignore[union-attr]
    )
    row = update(learner, scorer, ppo, step=2)
    assert not torch.equal(policy(learner), before)
    assert row["val/explained_variance"] <= 1


def test_a_batch_of_two_keeps_the_size_of_its_rewards(make_learner: Callable[..., Learner], scorer: Scorer) -> None:
    """Divided by their own spread, (0.40, 0.42) and (0, 1) would make the same step."""
    ppo = replace(PPO, batch_size=2, samples_per_prompt=2, kl_coefficient=0.0)
    gradients = []
    for low, high in ((0.0, 1.0), (0.40, 0.42)):
        learner = make_learner()
        update(learner, scorer, ppo)  # the scale of earlier updates
        learner.running = {"advantage_sum": 1.0, "advantage_weight": 1.0}
        with pytest.MonkeyPatch.context() as patch:
            answers = iter((low, high))
            patch.setattr(
                "securecoderl_edge.training.update.rollout.training_reward", lambda *_, answers=answers: next(answers)
            )
            gradients.append(update(learner, scorer, replace(ppo, max_grad_norm=1e9), step=2)["grad_norm"])
    assert gradients[1] == pytest.approx(0.02 * gradients[0], rel=0.05)


def test_batch_advantages_make_the_same_step_of_all_sizes_of_rewards(
    make_learner: Callable[..., Learner], scorer: Scorer
) -> None:
    ppo = replace(PPO, batch_size=2, samples_per_prompt=1, kl_coefficient=0.0, advantage="batch", max_grad_norm=1e9)
    norms = []
    for low, high in ((0.0, 1.0), (0.40, 0.42), (0.40, 0.40)):
        answers = iter((low, high))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                "securecoderl_edge.training.update.rollout.training_reward", lambda *_, answers=answers: next(answers)
            )
            norms.append(update(make_learner(), scorer, ppo)["grad_norm"])
    assert norms[1] == pytest.approx(norms[0], rel=1e-4)
    assert norms[0] > norms[2] == 0


def test_the_whole_completion_is_the_program_if_nothing_is_extracted(
    make_learner: Callable[..., Learner], scorer: Scorer, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = make_learner()
    monkeypatch.setattr(type(learner.tokenizer), "decode", lambda self, ids: "Here it is:\n```python\nprint(1)\n```\n")
    found = {}
    for learner.extract in ("raw", "auto"):
        (score,) = collect(learner, scorer, PROBLEMS[:1], 1, PPO, "x").scores
        found[learner.extract] = score.program, score.parses
    assert found == {"raw": (learner.tokenizer.decode([]), False), "auto": ("print(1)\n", True)}


def test_the_plain_sampler_draws_what_ours_draws(make_learner: Callable[..., Learner], scorer: Scorer) -> None:
    learner = make_learner()
    greedy = [
        collect(each, scorer, PROBLEMS, 2, replace(PPO, temperature=0.01), 1) for each in (learner, plain(learner))
    ]
    ours, theirs = (
        [(done.prompt, done.sample, done.token_ids, done.finished) for done in each.completions] for each in greedy
    )
    assert ours == theirs
    assert [score.reward for score in greedy[0].scores] == [score.reward for score in greedy[1].scores]
    for own, other in zip(greedy[0].completions, greedy[1].completions, strict=True):
        assert own.log_probs == pytest.approx(other.log_probs, abs=1e-3)
    drawn = [collect(plain(learner), scorer, PROBLEMS, 4, replace(PPO, temperature=1.0), seed) for seed in (1, 1, 2)]
    tokens = [[done.token_ids for done in each.completions] for each in drawn]
    assert tokens[0] == tokens[1] != tokens[2]


@pytest.mark.parametrize("is_ours", [True, False])
def test_a_completion_ends_at_every_token_that_ends_an_answer(
    make_learner: Callable[..., Learner], scorer: Scorer, is_ours: bool
) -> None:
    learner, ppo = make_learner() if is_ours else plain(make_learner()), replace(PPO, temperature=1.0)
    unended = collect(learner, scorer, PROBLEMS, 4, ppo, 1).completions
    learner.end_tokens |= {done.token_ids[2] for done in unended}
    drawn = collect(learner, scorer, PROBLEMS, 4, ppo, 1)
    done = drawn.completions
    answers = [each.token_ids[:-1] if each.finished else each.token_ids for each in done]
    texts = [learner.tokenizer.decode(ids) for ids in answers]
    programs = [
        extract_program(text, PromptFacts.of(PROBLEMS[each.prompt])) for text, each in zip(texts, done, strict=True)
    ]
    assert [score.program for score in drawn.scores] == programs
    assert all(token not in learner.end_tokens for each in done for token in each.token_ids[:-1])
    assert all(each.finished == (each.token_ids[-1] in learner.end_tokens) for each in done)
    assert max(len(each.token_ids) for each in done) <= 3


def test_an_update_on_the_plain_sampler_has_a_ratio_of_one_too(
    make_learner: Callable[..., Learner], scorer: Scorer
) -> None:
    assert update(plain(make_learner()), scorer, PPO)["val/first_ratio_error"] == 0


def test_float16_skips_a_step_whose_gradients_overflow_and_lowers_the_scale(
    make_learner: Callable[..., Learner], scorer: Scorer, tmp_path: Path
) -> None:
    learner = make_learner(Compute("cpu", "fp32", torch.float16))
    before = policy(learner)
    parameter = next(iter(adapter_parameters(learner.model, POLICY_ADAPTER).values()))
    learner.backward(parameter.sum())
    parameter.grad.fill_(float("inf"))  # type: ignore[union-attr]
    learner.step(1.0, {})
    assert torch.equal(policy(learner), before)
    assert learner.scaler.get_scale() == 2.0**15
    save_checkpoint(tmp_path / "c", learner, PhaseProgress(1), "base", {}, ())
    again = make_learner(Compute("cpu", "fp32", torch.float16))
    load_latest(tmp_path / "c", again, {})
    assert again.scaler.get_scale() == 2.0**15


class Nested(torch.optim.SGD):
    """Keeps part of its state a level deeper, as bitsandbytes does for 8-bit moments."""

    def step(self, closure: Any = None) -> None:
        super().step(closure)
        for group in self.param_groups:
            for number, parameter in enumerate(group["params"]):
                shared = torch.arange(4, dtype=torch.uint8)
                self.state[parameter] = {"step": number, "quant": {"state1": shared, "map": shared, "deep": {"x": 1.5}}}


def test_nested_optimizer_states_come_back_from_a_checkpoint(
    make_learner: Callable[..., Learner], tmp_path: Path
) -> None:
    def nested() -> Learner:
        learner = make_learner()
        return replace(learner, optimizer=Nested(adapter_parameters(learner.model, POLICY_ADAPTER).values(), lr=0.1))

    learner, again = nested(), nested()
    learner.optimizer.step()
    save_checkpoint(tmp_path / "c", learner, PhaseProgress(3, 2), "base", {"phase": "x"}, ())
    progress = load_latest(tmp_path / "c", again, {"phase": "x"})
    assert (progress.step, progress.evaluations) == (3, 2)
    first, second = (each.optimizer.state_dict()["state"] for each in (learner, again))
    assert first.keys() == second.keys()
    for one, two in ((first[key], second[key]) for key in first):
        assert (one["step"], one["quant"]["deep"]) == (two["step"], two["quant"]["deep"])
        assert torch.equal(one["quant"]["state1"], two["quant"]["state1"])
