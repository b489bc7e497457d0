"""What processes compute together, in threads of one process: whatever their number, the update of one process."""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the train extra")

import torch
from quick import few
from small_runs import an_update
from torch import Tensor

from securecoderl_edge.errors import UsageError
from securecoderl_edge.models.adapters import POLICY_ADAPTER, LoraSettings, adapter_parameters, add_adapters
from securecoderl_edge.models.decoder import Decoder
from securecoderl_edge.models.device import Compute
from securecoderl_edge.models.loading import load_base
from securecoderl_edge.models.sampling import TokenCompletion
from securecoderl_edge.models.tokenizer import read_tokenizer
from securecoderl_edge.problems.problem import Problem, Test
from securecoderl_edge.scoring.scorer import Scorer
from securecoderl_edge.training import record
from securecoderl_edge.training.parallel import Team
from securecoderl_edge.training.phase import UPDATES
from securecoderl_edge.training.phase_settings import PpoSettings, SftSettings
from securecoderl_edge.training.recipe import resolve
from securecoderl_edge.training.selection import evaluate_policy
from securecoderl_edge.training.update import rollout, supervised
from securecoderl_edge.training.update.learner import (
    Learner,
    NotFiniteError,
    make_value_head,
    next_problems,
    seed_of,
    shuffled,
)
from securecoderl_edge.training.update.ppo_update import ppo_update
from securecoderl_edge.training.update.rollout import Rollout, collect, own_completions
from securecoderl_edge.training.update.sequences import make_batch, micro_batches
from securecoderl_edge.training.update.supervised import sft_update

pytestmark = pytest.mark.usefixtures("varied_reward")

PROBLEMS = [
    Problem(f"p{n}", f"Add {n} to a number." * (1 + n % 3), tests=(Test("1\n", f"{n}\n"),), solutions=(f"print({n})",))
    for n in range(9)
]
PPO = PpoSettings(samples_per_prompt=2, max_tokens=10, epochs=2, micro_batch_tokens=200, kl_coefficient=0.1)
# Everything that a run records but times and memory.
MEASURED = ("seconds", "seconds_sample", "seconds_score", "seconds_update", "tokens_per_second", "peak_rss_mib")


class Meeting:
    """Where threads exchange values; all must ask for the same things in the same order."""

    def __init__(self, count: int) -> None:
        self.count, self._is_over, self._changed = count, False, threading.Condition()
        self._rounds: defaultdict[int, dict[int, tuple[str, Any]]] = defaultdict(dict)
        self._round_of = [0] * count

    def exchange(self, index: int, what: str, value: Any) -> list[Any]:
        with self._changed:
            brought = self._rounds[self._round_of[index]]
            self._round_of[index] += 1
            brought[index] = (what, value)
            self._changed.notify_all()
            self._changed.wait_for(lambda: len(brought) == self.count or self._is_over, timeout=60)
        if len(brought) < self.count:
            raise ConnectionError("another one has ended")
        assert {name for name, _ in brought.values()} == {what}
        return [brought[each][1] for each in range(self.count)]

    def leave(self) -> None:
        with self._changed:
            self._is_over = True
            self._changed.notify_all()


class Member(Team):
    """A thread that takes the place of a process."""

    def __init__(self, index: int, count: int, meeting: Meeting) -> None:
        self.index, self.count, self.local_count, self.meeting = index, count, count, meeting

    def add_up(self, tensors: Iterable[Tensor]) -> None:
        own = list(tensors)
        shapes = str([tensor.shape for tensor in own])
        every = self.meeting.exchange(self.index, shapes, [tensor.detach().clone() for tensor in own])
        for tensor, parts in zip(own, zip(*every, strict=True), strict=True):
            tensor.detach().copy_(sum(parts))

    def collect(self, records: list[Any]) -> list[Any]:
        texts = self.meeting.exchange(self.index, "records", json.dumps(records))
        return [each for text in texts for each in json.loads(text)]


def together(count: int, work: Callable[[Team], Any]) -> list[Any]:
    """What ``work`` returns, or the exception that it raises, in each of ``count`` threads."""
    meeting = Meeting(count)

    def run(index: int) -> Any:
        try:
            return work(Member(index, count, meeting))
        except Exception as error:
            meeting.leave()
            return error

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, range(count)))


@pytest.fixture
def make_learners(tiny_model: Path) -> Callable[..., list[Learner]]:
    """Equal learners; with plain gradient descent, in which a rounding error of a gradient stays one."""

    def make(count: int, value_head: bool = False) -> list[Learner]:
        made = []
        for _ in range(count):
            model = add_adapters(load_base(tiny_model), LoraSettings(rank=4), seed=3)
            head = make_value_head(model.config.hidden_size, 3) if value_head else None
            groups = [{"params": list(adapter_parameters(model, POLICY_ADAPTER).values())}]
            groups += [{"params": list(head.parameters())}] if head is not None else []
            optimizer = torch.optim.SGD(groups, lr=0.1)
            compute = Compute("cpu", "fp32", torch.float32)
            decoder = Decoder(model, torch.float32)
            made.append(Learner(model, read_tokenizer(tiny_model), compute, optimizer, decoder, head))
        return made

    return make


def trained(learner: Learner) -> Tensor:
    """All that an update has changed."""
    return torch.cat([p.detach().flatten() for group in learner.optimizer.param_groups for p in group["params"]])


def assert_like_one(
    learners: list[Learner], update: Callable[[Learner], dict[str, Any]], alone: Learner
) -> list[dict[str, Any]]:
    """Several processes make the same update, and it is that of one; returns their metrics."""
    before, expected = trained(alone), update(alone)
    assert not torch.equal(trained(alone), before)

    def work(team: Team) -> dict[str, Any]:
        learner = learners[team.index]
        learner.team = team
        return update(learner)

    rows: list[dict[str, Any]] = together(len(learners), work)
    for learner, row in zip(learners, rows, strict=True):
        assert isinstance(row, dict), row
        assert torch.equal(trained(learner), trained(learners[0]))
        torch.testing.assert_close(trained(learner) - before, trained(alone) - before, rtol=1e-3, atol=1e-6)
        assert row.keys() == expected.keys()
        for name in row.keys() - {*MEASURED}:
            known = expected[name]
            assert row[name] == (known if known is None else pytest.approx(known, rel=1e-3, abs=1e-5)), name
    return rows


@pytest.mark.parametrize(
    ("count", "prompts"), [(3, 8), (2, 1), (5, 2)], ids=["3 on 8", "2 on 1 prompt", "more than prompts"]
)
@pytest.mark.parametrize("advantage", few(["rloo", "gae", "batch", "grpo"], "gae"))
def test_processes_that_cannot_share_evenly_make_the_ppo_update_of_one(
    count: int, prompts: int, advantage: str, make_learners: Callable[..., list[Learner]], scorer: Scorer
) -> None:
    ppo = replace(PPO, advantage=advantage, batch_size=2 * prompts)
    *learners, alone = make_learners(count + 1, advantage == "gae")

    def update(learner: Learner) -> dict[str, Any]:
        return ppo_update(learner, an_update(PROBLEMS, scorer, ppo=ppo))[0]

    assert_like_one(learners, update, alone)


STEPS = replace(PPO, batch_size=16, epochs=2)


@pytest.mark.parametrize("count", few([2, 3], 3))
@pytest.mark.parametrize(
    "ppo",
    [
        replace(STEPS, advantage="gae", minibatches=4),
        replace(STEPS, minibatches=2, drop_zero_variance_groups=True),
    ],
    ids=["gae", "dropped"],
)
def test_processes_make_the_steps_of_one_in_minibatches(
    count: int, ppo: PpoSettings, make_learners: Callable[..., list[Learner]], scorer: Scorer
) -> None:
    *learners, alone = make_learners(count + 1, ppo.advantage == "gae")

    def update(learner: Learner) -> dict[str, Any]:
        return ppo_update(learner, an_update(PROBLEMS, scorer, ppo=ppo))[0]

    rows = assert_like_one(learners, update, alone)
    assert rows[0]["val/steps"] == 2 * ppo.minibatches


def test_a_process_without_a_part_of_the_first_minibatch_computes_the_later_ones_anew(
    make_learners: Callable[..., list[Learner]], scorer: Scorer
) -> None:
    """Its last evaluation would be of the policy before the first step."""
    ppo, problems = replace(STEPS, minibatches=4, epochs=1), PROBLEMS[:3]
    *learners, alone = make_learners(3)
    chosen = [problem.id for problem in next_problems(problems, 8, 1, seed_of(1, "partial"))]
    order = shuffled(8, seed_of(1, "partial", "minibatches", 1, 0))
    prompts = [len({chosen[group] for group in order[number::4]}) for number in range(4)]
    assert prompts[0] == 1
    assert 2 in prompts

    def update(learner: Learner) -> dict[str, Any]:
        return ppo_update(learner, an_update(problems, scorer, ppo=ppo, seed=1))[0]

    assert_like_one(learners, update, alone)


@pytest.mark.parametrize(("count", "solutions"), [(3, 4), (3, 1)])
def test_processes_that_cannot_share_evenly_make_the_sft_update_of_one(
    count: int, solutions: int, make_learners: Callable[..., list[Learner]]
) -> None:
    *learners, alone = make_learners(count + 1)
    made = an_update(PROBLEMS, None, "sft", seed=1, ppo=PPO, sft=SftSettings(batch_size=solutions))
    assert_like_one(learners, lambda learner: sft_update(learner, made)[0], alone)


@pytest.mark.parametrize("phase", ["rft", "ssd"])
@pytest.mark.parametrize(("count", "prompts"), [(3, 8), (3, 2)], ids=["3 on 8 prompts", "more than prompts"])
def test_processes_make_the_self_training_update_of_one(
    count: int,
    prompts: int,
    phase: str,
    make_learners: Callable[..., list[Learner]],
    scorer: Scorer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def half_correct(*arguments: Any, **options: Any) -> Rollout:
        made = collect(*arguments, **options)
        scores = [replace(score, passed=score.total if score.sample == 0 else 0) for score in made.scores]
        return replace(made, scores=scores)

    def half_finished(*arguments: Any, **options: Any) -> list[TokenCompletion]:
        return [replace(done, finished=done.sample == 0) for done in own_completions(*arguments, **options)]

    monkeypatch.setattr(supervised, "collect", half_correct)
    for module in (rollout, supervised):
        monkeypatch.setattr(module, "own_completions", half_finished)
    *learners, alone = make_learners(count + 1)
    ppo = replace(PPO, batch_size=2 * prompts)

    def update(learner: Learner) -> dict[str, Any]:
        learner.end_tokens = frozenset(range(0, 400, 6))
        return UPDATES[phase](learner, an_update(PROBLEMS, scorer, phase, ppo=ppo))[0]

    (row, *_) = assert_like_one(learners, update, alone)
    assert row["kept_rate"] == 0.5


@pytest.mark.parametrize(("count", "prompts"), [(3, 8), (3, 2)], ids=["3 on 8 prompts", "more than prompts"])
def test_processes_make_the_distillation_of_one(
    count: int, prompts: int, tiny_model: Path, make_learners: Callable[..., list[Learner]]
) -> None:
    *learners, alone = make_learners(count + 1)
    teacher = load_base(tiny_model)
    with torch.no_grad():
        for parameter in teacher.parameters():
            parameter += (
                0.1 * parameter.std() * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1))
            )
    ppo = replace(PPO, batch_size=2 * prompts, reference="teacher")

    def update(learner: Learner) -> dict[str, Any]:
        learner.teacher = teacher
        return UPDATES["distill"](learner, an_update(PROBLEMS, None, "distill", ppo=ppo))[0]

    (row, *_) = assert_like_one(learners, update, alone)
    assert row["objective/kl"] > 0.1


def test_every_process_learns_even_if_one_could_hold_the_whole_batch() -> None:
    batch = make_batch([([1, 2], [3]), ([1, 2], [4]), ([5], [6])], 0, "cpu")
    assert list(micro_batches(batch, 1000)) == [[2, 0, 1]]
    parts = [list(micro_batches(batch, 1000, Member(index, 3, Meeting(3)))) for index in range(3)]
    assert parts == [[[2]], [[0, 1]], []]


def test_more_processes_than_held_out_problems_find_what_one_finds(
    make_learners: Callable[..., list[Learner]], scorer: Scorer
) -> None:
    settings = resolve("starter", ("ppo.max_tokens=10", "selection.samples=2"), {})
    learners = make_learners(3)

    def evaluate(team: Team) -> Any:
        learner = learners[team.index]
        learner.team = team
        return evaluate_policy(learner, scorer, PROBLEMS[:2], settings, 0, "partial")

    (expected,) = together(1, evaluate)
    assert len(expected.rewards) == 4
    assert together(3, evaluate) == [expected] * 3


@pytest.mark.parametrize("broken", [0, 2])
def test_a_loss_that_is_no_number_in_one_process_is_the_same_error_in_all(
    broken: int, make_learners: Callable[..., list[Learner]], scorer: Scorer
) -> None:
    learners = make_learners(3)
    backward = learners[broken].backward
    learners[broken].backward = lambda loss: backward(loss * float("nan"))  # type: ignore[method-assign]
    before = trained(learners[0])

    def work(team: Team) -> None:
        learners[team.index].team = team
        ppo = replace(PPO, batch_size=8)
        ppo_update(learners[team.index], an_update(PROBLEMS, scorer, ppo=ppo))

    errors = together(3, work)
    for error, learner in zip(errors, learners, strict=True):
        assert isinstance(error, NotFiniteError)
        assert error.what == "the loss"
        assert torch.equal(trained(learner), before)
        for name in ("tokens", "rewards", "log_probs"):
            assert torch.equal(error.tensors[name], errors[0].tensors[name])


def test_processes_with_other_settings_or_files_are_refused_by_name() -> None:
    def check(team: Team) -> None:
        overrides = ("ppo.epochs=3",) if team.index == 1 else ()
        record.check_equal(resolve("starter", overrides, {}), {"base_sha256": "one"}, team)

    for error in together(3, check):
        assert isinstance(error, UsageError)
        assert "process 1 differs from process 0 (ppo.epochs: 1 -> 3)" in str(error)

    def check_files(team: Team) -> None:
        record.check_equal(resolve("starter", (), {"model": f"/{team.index}"}), {"base_sha256": str(team.index)}, team)

    assert "(base_sha256: 0 -> 1)" in str(together(2, check_files)[0])


def test_machines_may_keep_a_model_in_different_places() -> None:
    def check(team: Team) -> None:
        record.check_equal(resolve("starter", (), {"model": f"/{team.index}/model"}), {"base_sha256": "one"}, team)

    assert together(2, check) == [None, None]


def test_a_run_folder_that_another_machine_does_not_see_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record, "_VISIBLE_SECONDS", 0.3)

    def check(team: Team) -> None:
        record.check_shared(tmp_path if team.index < 2 else tmp_path / "elsewhere", team)

    assert together(2, check) == [None, None]
    for error in together(3, check):
        assert isinstance(error, UsageError)
        assert str(error).startswith("process 2 on ")
        assert "a disk that all machines share" in str(error)
    assert list(tmp_path.iterdir()) == []
