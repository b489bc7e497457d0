"""Supervised steps on own completions: which are kept, the step itself, who samples them, and whole runs with both."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("torch", reason="needs the train extra")

import torch
from once import Once
from quick import few
from small_runs import an_update, equal, outcome, rows, weights

from securecoderl_edge.commands.train import _describe
from securecoderl_edge.errors import SceError
from securecoderl_edge.evaluation.report.contents import read_contents
from securecoderl_edge.models.adapters import (
    POLICY_ADAPTER,
    REFERENCE_ADAPTER,
    LoraSettings,
    adapter_parameters,
    add_adapters,
)
from securecoderl_edge.models.architecture import read_architecture
from securecoderl_edge.models.decoder import Decoder
from securecoderl_edge.models.device import Compute
from securecoderl_edge.models.loading import load_base
from securecoderl_edge.models.sampling import TokenCompletion
from securecoderl_edge.models.sizes import Formats
from securecoderl_edge.models.tokenizer import read_tokenizer
from securecoderl_edge.problems.problem import Problem, Test
from securecoderl_edge.runs import Run
from securecoderl_edge.scoring.score import Score
from securecoderl_edge.scoring.scorer import Scorer
from securecoderl_edge.training import measured_plan, selection
from securecoderl_edge.training.memory import plan_memory
from securecoderl_edge.training.phase import Stopped
from securecoderl_edge.training.phase_settings import MOST_PER_PROBLEM, PpoSettings, RftSettings, SsdSettings
from securecoderl_edge.training.recipe import peak_rate, rate_share, resolve
from securecoderl_edge.training.settings import RewardSettings, TrainSettings
from securecoderl_edge.training.train import train
from securecoderl_edge.training.update import rollout, supervised
from securecoderl_edge.training.update.learner import Kept, Learner, Update
from securecoderl_edge.training.update.rollout import Rollout, collect, own_completions, with_coin_flips
from securecoderl_edge.training.update.supervised import correct_rows, rft_update, ssd_update, train_on_pool

PROBLEMS = [Problem(f"p{n}", f"Add {n} to a number.", tests=(Test("1\n", f"{n + 7}\n"),)) for n in range(4)]
PPO = PpoSettings(batch_size=8, samples_per_prompt=4, max_tokens=12, micro_batch_tokens=100)
RATE = 0.02
TIMES = ("seconds", "seconds_sample", "seconds_score", "seconds_update", "tokens_per_second", "peak_rss_mib")


def some_are_correct(*arguments: Any, **options: Any) -> Rollout:
    """A rollout in which all programs but the first of each problem pass: a random tiny model never solves anything."""
    made = collect(*arguments, **options)
    scores = [replace(score, passed=score.total if score.sample else 0) for score in made.scores]
    return replace(made, scores=scores)


def most_finish(*arguments: Any, **options: Any) -> list[TokenCompletion]:
    """Completions of which all but the fourth of each problem count as finished, wherever they ended."""
    return [replace(done, finished=done.sample < 3) for done in own_completions(*arguments, **options)]


@pytest.fixture(autouse=True, scope="module")
def quick_ends() -> Iterator[None]:
    """Every sixth token ends a completion; some are finished and some programs correct, whatever is sampled."""
    real = Learner.__post_init__

    def with_more_ends(learner: Learner) -> None:
        real(learner)
        learner.end_tokens |= frozenset(range(0, 400, 6))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Learner, "__post_init__", with_more_ends)
        for module in (rollout, supervised):
            patch.setattr(module, "own_completions", most_finish)
        patch.setattr(supervised, "collect", some_are_correct)
        yield


@pytest.fixture
def make_learner(tiny_model: Path) -> Callable[[], Learner]:
    def make() -> Learner:
        model = add_adapters(load_base(tiny_model), LoraSettings(rank=4), seed=3)
        optimizer = torch.optim.AdamW(adapter_parameters(model, POLICY_ADAPTER).values(), lr=RATE, weight_decay=0.0)
        compute = Compute("cpu", "fp32", torch.float32)
        return Learner(model, read_tokenizer(tiny_model), compute, optimizer, Decoder(model, torch.float32))

    return make


@pytest.fixture
def learner(make_learner: Callable[[], Learner]) -> Learner:
    return make_learner()


def adapter(learner: Learner, name: str = POLICY_ADAPTER) -> torch.Tensor:
    return torch.cat([each.detach().flatten() for each in adapter_parameters(learner.model, name).values()])


def by_hand(learner: Learner, pairs: list[tuple[list[int], tuple[int, ...]]]) -> float:
    """One step on the mean negative log-likelihood of the completions' tokens, sequence by sequence."""
    total = sum(len(completion) for _, completion in pairs)
    loss = torch.zeros(())
    for prompt, completion in pairs:
        logits = learner.model(torch.tensor([[*prompt, *completion]])).logits[0].log_softmax(-1)
        places = torch.arange(len(completion)) + len(prompt) - 1
        loss = loss - logits[places, torch.tensor(completion)].sum() / total
    loss.backward()
    torch.nn.utils.clip_grad_norm_(list(adapter_parameters(learner.model, POLICY_ADAPTER).values()), 1.0)
    learner.optimizer.step()
    return float(loss.detach())


def slow_rows(rollout: Rollout, most: int) -> list[int]:
    kept = []
    for problem in {score.id for score in rollout.scores}:
        found: dict[str, int] = {}
        for row, score in enumerate(rollout.scores):
            passes = score.passed == score.total and score.total > 0
            if score.id == problem and passes and rollout.completions[row].finished:
                found.setdefault(score.program, row)
        kept += sorted(found.values())[:most]
    return sorted(kept)


@given(
    st.lists(st.tuples(st.integers(0, 2), st.sampled_from("abc"), st.integers(0, 2), st.booleans()), max_size=30),
    st.integers(1, 3),
    st.integers(0, 2),
)
def test_the_kept_completions_are_those_of_a_slow_loop(
    made: list[tuple[int, str, int, bool]], most: int, total: int
) -> None:
    scores = [
        Score(f"p{problem}", 0, 3, min(passed, total), total, 0, 1, 0, 0, 0, 0, (), (), program, 0)
        for problem, program, passed, _ in made
    ]
    completions = [TokenCompletion(0, 0, (1,), (0.0,), finished) for *_, finished in made]
    rollout = Rollout([], completions, scores, [])
    assert correct_rows(rollout, RewardSettings(), most) == slow_rows(rollout, most)
    blind = replace(rollout, scores=[replace(score, signs=("ignores_input",)) for score in scores])
    assert correct_rows(blind, RewardSettings(), most) == []
    assert correct_rows(blind, RewardSettings(ignored_input="keep"), most) == slow_rows(rollout, most)


def test_an_rft_update_is_a_supervised_step_on_the_correct_completions(
    make_learner: Callable[[], Learner], scorer: Scorer
) -> None:
    one, other = make_learner(), make_learner()
    row, rollout = rft_update(one, an_update(PROBLEMS, scorer, "rft", ppo=PPO))
    kept = slow_rows(rollout, MOST_PER_PROBLEM)
    pairs = [(rollout.prompts[done.prompt], done.token_ids) for done in (rollout.completions[each] for each in kept)]
    assert 0 < len(kept) < len(rollout.completions) == PPO.batch_size
    loss = by_hand(other, [(list(prompt), completion) for prompt, completion in pairs])
    assert row["loss/sft"] == pytest.approx(loss, rel=1e-5)
    torch.testing.assert_close(adapter(one), adapter(other))
    assert row["kept_rate"] == len(kept) / PPO.batch_size
    assert row["kept_tokens"] == sum(len(completion) for _, completion in pairs)
    assert row["tokens"] == sum(len(done.token_ids) for done in rollout.completions)
    assert row["all_tests_rate"] == sum(score.passed == score.total for score in rollout.scores) / PPO.batch_size


def test_without_a_correct_program_there_is_no_step(
    learner: Learner, scorer: Scorer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervised, "collect", collect)
    before = adapter(learner)
    row, _ = rft_update(learner, an_update(PROBLEMS, scorer, "rft", ppo=PPO))
    assert (row["all_tests_rate"], row["kept_rate"], row["kept_tokens"]) == (0, 0, 0)
    assert not {"loss/sft", "grad_norm"} & row.keys()
    assert torch.equal(adapter(learner), before)
    assert not learner.optimizer.state
    assert "loss -  kept 0%  all tests 0%" in _describe({"phase": "rft", "step": 1, "steps": 2, **row})


def pairs_of(rollout: Rollout, row: int) -> tuple[list[int], tuple[int, ...]]:
    done = rollout.completions[row]
    return list(rollout.prompts[done.prompt]), done.token_ids


def test_a_round_samples_with_one_policy_and_its_epochs_are_made_of_exactly_what_it_kept(
    learner: Learner, scorer: Scorer, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained: list[list[tuple[tuple[int, ...], tuple[int, ...]]]] = []
    real = supervised.step_on

    def step_on(learner: Learner, pairs: Any, tokens: int) -> dict[str, float]:
        trained.append(list(pairs))
        return real(learner, pairs, tokens)

    monkeypatch.setattr(supervised, "step_on", step_on)
    # Both updates of a round have the same four problems, of which no more than four programs each may be kept.
    ppo, rft = replace(PPO, batch_size=16), RftSettings(steps=5, updates_per_round=2, epochs=3, batch_size=4)
    start, made, policies = adapter(learner), [], []
    for step in range(1, 6):
        policies.append(adapter(learner))
        before = len(trained)
        row, rollout = rft_update(learner, an_update(PROBLEMS, scorer, "rft", ppo=ppo, rft=rft, step=step))
        made.append(rollout)
        assert row["kept_rate"] == len(slow_rows(rollout, MOST_PER_PROBLEM)) / ppo.batch_size > 0
        if step in (1, 3):
            assert torch.equal(adapter(learner), policies[-1])
            assert len(trained) == before
            assert not {"loss/sft", "optimizer_steps"} & row.keys()
            assert row["pool"] == len(learner.pool) == len(slow_rows(rollout, MOST_PER_PROBLEM))
            continue
        # The last round has one update, since the phase ends.
        together = made[-1:] if step == 5 else made[-2:]
        joined = Rollout(
            [],
            [done for each in together for done in each.completions],
            [s for each in together for s in each.scores],
            [],
        )
        owners = [(each, index) for each in together for index in range(len(each.completions))]
        pool = [pairs_of(*owners[index]) for index in slow_rows(joined, MOST_PER_PROBLEM)]
        wanted = sorted((tuple(prompt), completion) for prompt, completion in pool)
        batches, per_epoch = trained[before:], -(-len(pool) // 4)
        assert len(batches) == 3 * per_epoch == row["optimizer_steps"]
        epochs = [
            [pair for batch in batches[at : at + per_epoch] for pair in batch]
            for at in range(0, len(batches), per_epoch)
        ]
        assert [sorted(epoch) for epoch in epochs] == [wanted] * 3
        assert epochs[0] != epochs[1]
        assert row["pool"] == len(pool)
        assert learner.pool == ()
    assert torch.equal(policies[1], start)
    assert not torch.equal(policies[2], start)
    assert torch.equal(policies[3], policies[2])


def test_the_epochs_of_a_round_are_supervised_steps_one_after_another(
    make_learner: Callable[[], Learner], scorer: Scorer
) -> None:
    one, other = make_learner(), make_learner()
    update = an_update(PROBLEMS, scorer, "rft", ppo=PPO, rft=RftSettings(epochs=3))
    row, rollout = rft_update(one, update)
    pairs = [pairs_of(rollout, each) for each in slow_rows(rollout, MOST_PER_PROBLEM)]
    losses = []
    for _ in range(3):
        losses.append(by_hand(other, pairs))
        other.optimizer.zero_grad()
    assert row["loss/sft"] == pytest.approx(sum(losses) / 3, rel=1e-4)
    torch.testing.assert_close(adapter(one), adapter(other), rtol=1e-4, atol=1e-6)
    tokens = sum(len(completion) for _, completion in pairs)
    assert one.counted() == {"tokens_sampled": row["tokens"], "tokens_trained": 3 * tokens}


@given(st.lists(st.tuples(st.booleans(), st.sampled_from([0.0, 0.3, 1.0])), max_size=20))
def test_the_filter_of_security_leaves_the_programs_with_the_highest_security_reward(
    made: list[tuple[bool, float]],
) -> None:
    scores = [
        Score("p", 0, 4, int(passes), 1, 1, r_sec, 0, 0, 0, 0, (), (), f"program {number}", 0)
        for number, (passes, r_sec) in enumerate(made)
    ]
    rollout = Rollout(PROBLEMS[:1], [TokenCompletion(0, 0, (1,), (0.0,), True)] * len(made), scores, [])
    right = [row for row, (passes, _) in enumerate(made) if passes]
    secure = [row for row in right if made[row][1] == 1]
    assert correct_rows(rollout, RewardSettings(), 99) == right
    assert correct_rows(rollout, RewardSettings(), 99, only_secure=True) == secure
    # Numbers in place of R decide instead of the tests, but security still counts.
    all_paid = replace(rollout, own=[1.0] * len(made))
    assert correct_rows(all_paid, RewardSettings(random=0.5), 99) == list(range(len(made)))
    paid = [row for row, (_, r_sec) in enumerate(made) if r_sec == 1]
    assert correct_rows(all_paid, RewardSettings(random=0.5), 99, only_secure=True) == paid


def test_a_random_reward_decides_what_rft_keeps(learner: Learner, scorer: Scorer) -> None:
    reward = RewardSettings(random=0.5)
    row, rollout = rft_update(learner, an_update(PROBLEMS, scorer, "rft", ppo=PPO, reward=reward))
    assert rollout.own is not None
    paid = {done.token_ids for done, coin in zip(rollout.completions, rollout.own, strict=True) if coin}
    kept = correct_rows(rollout, reward)
    assert 0 < len(kept) < PPO.batch_size
    assert {rollout.completions[each].token_ids for each in kept} <= paid
    assert row["random_reward"] == sum(rollout.own) / PPO.batch_size
    again = with_coin_flips(rollout, an_update(PROBLEMS, scorer, "rft", ppo=PPO, reward=reward))
    assert again.own == rollout.own


def of_ssd(ssd: SsdSettings, step: int = 1) -> Update:
    return an_update(PROBLEMS, None, "ssd", ppo=PPO, ssd=ssd, step=step)


def sampled_by_ssd(learner: Learner, ssd: SsdSettings, steps: list[int]) -> tuple[list[Any], list[dict[str, Any]]]:
    """The completions of some updates, and their metrics."""
    seen: list[Any] = []
    real = supervised.own_completions
    with pytest.MonkeyPatch.context() as patch:

        def sampling(*arguments: Any, **options: Any) -> list[TokenCompletion]:
            seen.append(real(*arguments, **options))
            return list(seen[-1])

        patch.setattr(supervised, "own_completions", sampling)
        return seen, [ssd_update(learner, of_ssd(ssd, step))[0] for step in steps]


def test_an_ssd_update_is_a_supervised_step_on_what_the_start_policy_ended(
    make_learner: Callable[[], Learner],
) -> None:
    one, other, third = make_learner(), make_learner(), make_learner()
    seen, metrics = sampled_by_ssd(one, SsdSettings(), [1, 2, 3])
    kept = [done for done in seen[0] if done.finished]
    assert 0 < len(kept) < len(seen[0]) == PPO.batch_size
    assert metrics[0]["kept_rate"] == len(kept) / PPO.batch_size
    problems = [problem.id for problem in of_ssd(SsdSettings()).prompted()]
    prompts = [other.prompt_tokens(problem) for name in problems for problem in PROBLEMS if problem.id == name]
    loss = by_hand(other, [(prompts[done.prompt], done.token_ids) for done in kept])
    assert metrics[0]["loss/sft"] == pytest.approx(loss, rel=1e-5)
    # Two steps later the policy is another one; its samples are still those of the policy that it began as.
    assert not torch.equal(adapter(one), adapter(one, REFERENCE_ADAPTER))
    assert sampled_by_ssd(third, SsdSettings(), [3])[0] == seen[2:]


def test_ssd_samples_by_its_own_temperature_and_truncation(learner: Learner) -> None:
    (greedy,), _ = sampled_by_ssd(learner, SsdSettings(top_k=1), [1])
    assert len({(done.prompt, done.token_ids) for done in greedy}) == PPO.batch_size // PPO.samples_per_prompt
    (wide,), _ = sampled_by_ssd(learner, SsdSettings(top_k=0, top_p=1.0), [1])
    (narrow,), _ = sampled_by_ssd(learner, SsdSettings(top_k=0, top_p=1.0, temperature=0.01), [1])
    assert len({done.token_ids for done in wide}) > len({done.token_ids for done in narrow})


ONE_OF_EACH = ("rft.steps=3", "ssd.steps=3", "rft.learning_rate=0.01", "ssd.learning_rate=0.01", "checkpoint_every=1")
CHAINS = [("sft", "rft"), ("sft", "ssd"), ("binary", "ssd")]


@pytest.fixture(scope="module")
def whole(epoch_settings: Callable[..., TrainSettings], once: Once) -> Callable[[tuple[str, ...]], Run]:
    """Uninterrupted runs by their phases; read only."""

    def trained(phases: tuple[str, ...]) -> Run:
        def make(folder: Path) -> None:
            train(epoch_settings(*ONE_OF_EACH, phases=phases), folder / "run")

        return Run(once(f"self-training-{'-'.join(phases)}", make) / "run")

    return trained


def untimed(run: Run) -> list[dict[str, Any]]:
    return [{key: value for key, value in row.items() if key not in TIMES} for row in rows(run)]


@pytest.mark.parametrize("phases", few(CHAINS, ("sft", "rft"), ("binary", "ssd")))
def test_a_run_that_was_stopped_and_resumed_equals_an_uninterrupted_one_bit_for_bit(
    phases: tuple[str, ...],
    epoch_settings: Callable[..., TrainSettings],
    whole: Callable[[tuple[str, ...]], Run],
    tmp_path: Path,
) -> None:
    last: dict[str, Any] = {}
    config = epoch_settings(*ONE_OF_EACH, phases=phases)
    with pytest.raises(Stopped):
        train(
            config,
            tmp_path / "run",
            log=last.update,
            should_stop=lambda: (last["phase"], last["step"]) == (phases[1], 2),
        )
    run = train(config, tmp_path / "run")
    assert untimed(run) == untimed(whole(phases))
    assert equal(run.policy, whole(phases).policy)
    assert not equal(run.policy, run.phase_folder(1, phases[0]) / "adapter")


@pytest.mark.parametrize("phases", few(CHAINS, ("sft", "rft"), ("sft", "ssd")))
@pytest.mark.parametrize("updates", few([1, 2], 2), ids=["before its first checkpoint", "after one"])
def test_a_run_that_crashed_in_an_update_equals_an_uninterrupted_one_bit_for_bit(
    updates: int,
    phases: tuple[str, ...],
    epoch_settings: Callable[..., TrainSettings],
    once: Once,
    tmp_path: Path,
) -> None:
    config = epoch_settings(*ONE_OF_EACH, "checkpoint_every=2", "selection.every=9", phases=phases)
    alone = Run(once(f"not-crashed-{'-'.join(phases)}", lambda folder: train(config, folder / "run")) / "run")
    real, calls = supervised.step_on, 0

    def crashing(*arguments: Any) -> dict[str, float]:
        nonlocal calls
        calls += 1
        made = real(*arguments)
        if calls > updates:
            raise ValueError("killed after the step, before its checkpoint")
        return made

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(supervised, "step_on", crashing)
        with pytest.raises(ValueError, match="killed"):
            train(config, tmp_path / "run")
    steps = [path.name for path in (Run(tmp_path / "run").phase_folder(2, phases[1]) / "checkpoints").glob("step-*")]
    assert ("step-000002" in steps) == (updates == 2)
    run = train(config, tmp_path / "run")
    assert untimed(run) == untimed(alone)
    assert equal(run.policy, alone.policy)


ROUNDS = (
    *("rft.steps=5", "rft.updates_per_round=2", "rft.epochs=3", "rft.batch_size=2", "rft.learning_rate=0.01"),
    *("checkpoint_every=1", "selection.every=9"),
)


def is_at(last: dict[str, Any], step: int) -> bool:
    return (last["phase"], last["step"]) == ("rft", step)


@pytest.fixture(scope="module")
def in_rounds(epoch_settings: Callable[..., TrainSettings], once: Once) -> Run:
    """An uninterrupted run in rounds; read only."""
    config = epoch_settings(*ROUNDS, phases=("sft", "rft"))
    return Run(once("rft-in-rounds", lambda folder: train(config, folder / "run")) / "run")


@pytest.mark.parametrize("where", ["between two updates of a round", "between two steps of an epoch"])
def test_a_run_that_ended_in_the_middle_of_a_round_equals_an_uninterrupted_one_bit_for_bit(
    where: str, epoch_settings: Callable[..., TrainSettings], in_rounds: Run, tmp_path: Path
) -> None:
    config, last, calls = epoch_settings(*ROUNDS, phases=("sft", "rft")), dict[str, Any](), 0
    real = supervised.step_on

    def stopped(*arguments: Any) -> dict[str, float]:
        nonlocal calls
        calls += 1
        made = real(*arguments)
        if calls == 2:
            raise KeyboardInterrupt
        return made

    if where.startswith("between two updates"):
        with pytest.raises(Stopped):
            train(config, tmp_path / "run", log=last.update, should_stop=lambda: is_at(last, 3))
    else:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(supervised, "step_on", stopped)
            with pytest.raises(KeyboardInterrupt):
                train(config, tmp_path / "run")
    saved = sorted((Run(tmp_path / "run").phase_folder(2, "rft") / "checkpoints").glob("step-*"))[-1]
    assert saved.name == ("step-000003" if where.startswith("between two updates") else "step-000001")
    assert len(json.loads((saved / "pool.json").read_text())) > 0
    run = train(config, tmp_path / "run")
    assert untimed(run) == untimed(in_rounds)
    assert equal(run.policy, in_rounds.policy)


def test_a_damaged_pool_is_told(epoch_settings: Callable[..., TrainSettings], tmp_path: Path) -> None:
    config, last = epoch_settings(*ROUNDS, phases=("sft", "rft")), dict[str, Any]()
    with pytest.raises(Stopped):
        train(config, tmp_path / "run", log=last.update, should_stop=lambda: is_at(last, 1))
    saved = sorted((Run(tmp_path / "run").phase_folder(2, "rft") / "checkpoints").glob("step-*"))[-1]
    (saved / "pool.json").write_text("[]")
    with pytest.raises(SceError, match=r"pool.json is damaged"):
        train(config, tmp_path / "run")


def test_a_run_with_rft_records_what_it_sampled_and_kept(whole: Callable[[tuple[str, ...]], Run]) -> None:
    run = whole(("sft", "rft"))
    made = [row for row in rows(run) if row["phase"] == "rft"]
    assert [row["step"] for row in made] == [1, 2, 3]
    for row in made:
        assert 0 < row["kept_rate"] <= row["all_tests_rate"] < 1
        assert row["kept_tokens"] < row["tokens"] <= 8 * 12
        assert row["lr"] <= 0.01
        assert not {"objective/reward", "objective/kl", "loss/policy"} & row.keys()
    assert {row["phase"] for row in rows(run, "samples.jsonl") if not row["held_out"]} == {"rft"}
    assert outcome(run, "rft")["steps"] == 3
    assert "Completions kept by RFT or SSD" in [each.title for each in read_contents([run]).drawings]


def test_ssd_executes_nothing(epoch_settings: Callable[..., TrainSettings], tmp_path: Path) -> None:
    config = epoch_settings(*ONE_OF_EACH, "selection.problems=0", phases=("sft", "ssd"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Scorer, "score_async", pytest.fail)
        run = train(config, tmp_path / "run")
    made = [row for row in rows(run) if row["phase"] == "ssd"]
    assert len(made) == 3
    assert all(row["loss/sft"] > 0 and "all_tests_rate" not in row for row in made)
    assert not (run.path / "samples.jsonl").exists()


def test_the_teacher_of_ssd_is_the_policy_that_the_phase_starts_from_after_a_stop_too(
    epoch_settings: Callable[..., TrainSettings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    teachers = []
    real = supervised.own_completions

    def sampling(learner: Learner, *arguments: Any, **options: Any) -> list[TokenCompletion]:
        teachers.append({key: value.clone() for key, value in adapter_parameters(learner.model, "reference").items()})
        return real(learner, *arguments, **options)

    monkeypatch.setattr(supervised, "own_completions", sampling)
    config = epoch_settings(*ONE_OF_EACH, phases=("sft", "binary", "ssd"))
    last: dict[str, Any] = {}
    with pytest.raises(Stopped):
        train(config, tmp_path / "run", log=last.update, should_stop=lambda: last["phase"] == "ssd")
    run = train(config, tmp_path / "run")
    start, before = (weights(run.phase_folder(*phase) / "adapter") for phase in ((2, "binary"), (1, "sft")))
    assert any(not torch.equal(value, before[key]) for key, value in start.items())
    assert len(teachers) == 3
    for teacher in teachers:
        assert all(torch.equal(value, start[key.replace(".reference.", ".")]) for key, value in teacher.items())


def test_held_out_problems_are_scored_as_the_phase_chooses_its_programs(
    epoch_settings: Callable[..., TrainSettings], scorer: Scorer, learner: Learner, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, tuple[float, float]] = {}

    def scored(self: Rollout, weight: float, reward: Any) -> list[float]:
        asked[phase] = weight, reward.security_weight
        return [0.0] * len(self.scores)

    monkeypatch.setattr(Rollout, "rewards", scored)
    settings = epoch_settings("reward.security_weight=0.1")
    for phase in ("sft", "ssd", "binary", "rft", "partial"):
        selection.evaluate_policy(learner, scorer, PROBLEMS[:1], settings, 0, phase)
    assert asked == {"sft": (1, 0.4), "ssd": (1, 0.4), "binary": (0, 0.1), "rft": (0, 0.1), "partial": (1, 0.1)}


def test_the_learning_rate_is_that_of_sft_unless_the_phase_has_its_own() -> None:
    overrides = ("lr_schedule=linear", "warmup_steps=0", "rft.steps=4", "ssd.learning_rate=0.5")
    settings = resolve("smollm2", overrides, {"phases": ("sft", "rft")})
    assert [peak_rate(settings, phase) for phase in ("rft", "ssd")] == [settings.sft.learning_rate, 0.5]
    assert [rate_share(settings, "rft", step) for step in range(1, 5)] == [1, 0.75, 0.5, 0.25]


@pytest.mark.parametrize(
    ("override", "reused"),
    [
        *(pytest.param("rft.learning_rate=0.1", 0, marks=pytest.mark.slow), ("ppo.temperature=0.5", 0)),
        # The recipe has a rate for RFT alone.
        *(("sft.learning_rate=0.1", 1), pytest.param("ssd.top_k=3", 1, marks=pytest.mark.slow)),
    ],
)
def test_a_phase_is_reused_if_nothing_that_it_depends_on_changed(
    override: str, reused: int, epoch_settings: Callable[..., TrainSettings], tmp_path: Path
) -> None:
    base = ("rft.steps=1", "selection.problems=0")
    train(epoch_settings(*base, phases=("rft",)), tmp_path / "first")
    said: list[str] = []
    train(epoch_settings(*base, override, phases=("rft",)), tmp_path / "second", say=said.append)
    assert len(said) == reused


@pytest.mark.parametrize("correct", [True, False])
def test_a_plan_times_an_update_with_a_step_and_moves_nothing(
    correct: bool, epoch_settings: Callable[..., TrainSettings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps, moved = [], []
    real_step, updates = supervised.supervised_step, dict(measured_plan.UPDATES)

    def updating(learner: Learner, update: Update) -> Any:
        before = adapter(learner)
        made = updates[update.phase](learner, update)
        moved.append(not torch.equal(adapter(learner), before))
        return made

    def stepping(learner: Learner, batch: Any, tokens: int) -> tuple[float, float]:
        steps.append(len(batch.sequences))
        return real_step(learner, batch, tokens)

    for phase in ("rft", "ssd"):
        monkeypatch.setitem(measured_plan.UPDATES, phase, updating)
    monkeypatch.setattr(supervised, "supervised_step", stepping)
    if not correct:
        monkeypatch.setattr(supervised, "collect", collect)
    config = epoch_settings("ppo.batch_size=12", "ppo.samples_per_prompt=6", phases=("rft", "ssd"))
    made = measured_plan.measure_plan(config, Run(tmp_path / "run"))
    assert moved == [False] * 4
    if correct:
        assert len(steps) == 4
    else:
        assert steps[0] == 8, "four of each of the two problems"
    assert [(each.sequences, each.prompts, each.most_tokens) for each in made.phases] == [(12, 2, 25 * 12 * 12)] * 2
    assert made.seconds is not None
    assert not (tmp_path / "run").exists()


def test_rft_and_ssd_need_no_value_head(tiny_model: Path, epoch_settings: Callable[..., TrainSettings]) -> None:
    shape, settings = read_architecture(tiny_model), epoch_settings("ppo.advantage=gae")
    plans = {
        phase: plan_memory(shape, settings, Formats.of("cpu", "fp32", "float32", "float32"), 50, phase)
        for phase in ("binary", "rft", "ssd")
    }
    assert plans["rft"] == plans["ssd"]
    assert plans["rft"].always == {
        name: size if name not in ("gradients", "optimizer", "last update") else plans["rft"].always[name]
        for name, size in plans["binary"].always.items()
        if name != "value head"
    }
    assert plans["rft"].update == plans["binary"].update
    split = replace(settings, ppo=replace(settings.ppo, minibatches=2))  # which they do not take
    assert plan_memory(shape, split, Formats.of("cpu", "fp32", "float32", "float32"), 50, "rft") == plans["rft"]
    assert plans["rft"].sampling == plans["binary"].sampling


@pytest.mark.parametrize("overflows", [(), (0,), (1,), (0, 1, 2, 3)])
def test_the_means_of_a_round_leave_out_the_norms_of_skipped_steps(
    overflows: tuple[int, ...], make_learner: Callable[..., Learner], monkeypatch: pytest.MonkeyPatch
) -> None:
    learner, made = make_learner(), list[int]()
    learner.pool = tuple(Kept("p", str(number), 1.0, (1, 2), (3, 4)) for number in range(4))

    def step(*_: Any) -> dict[str, float]:
        made.append(len(made))
        if made[-1] in overflows:
            learner.skipped_steps += 1
            return {"loss/sft": 2.0}
        return {"loss/sft": 2.0, "grad_norm": 3.0}

    monkeypatch.setattr(supervised, "step_on", step)
    means = train_on_pool(learner, an_update([], None, "rft", rft=RftSettings(batch_size=1)))
    norm = {} if len(overflows) == 4 else {"grad_norm": 3.0}
    assert means == {"loss/sft": 2.0, **norm, "optimizer_steps": 4 - len(overflows)}
