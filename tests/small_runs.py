"""Training runs of seconds: their problems, their rewards, and their results."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from securecoderl_edge.models.adapters import POLICY_ADAPTER, LoraSettings, adapter_parameters, add_adapters
from securecoderl_edge.models.decoder import Decoder
from securecoderl_edge.models.device import Compute
from securecoderl_edge.models.loading import load_base
from securecoderl_edge.models.tokenizer import read_tokenizer
from securecoderl_edge.problems.problem import Problem, Test
from securecoderl_edge.problems.problem_file import write_problems
from securecoderl_edge.runs import Run
from securecoderl_edge.scoring.score import Score
from securecoderl_edge.training.phase_settings import PpoSettings
from securecoderl_edge.training.recipe import resolve
from securecoderl_edge.training.selection import HeldOutResult
from securecoderl_edge.training.settings import TrainSettings
from securecoderl_edge.training.update.learner import Learner, Update
from securecoderl_edge.training.update.rollout import Rollout

# Of each phase a few updates; `PHASES` for tests of what happens between them, `EPOCHS` for what happens within.
PHASES = (
    "lora.rank=4", "sft.steps=2", "sft.batch_size=4", "binary.steps=4", "partial.steps=2", "scheduled.steps=3",
    "ppo.batch_size=8", "ppo.epochs=1", "ppo.samples_per_prompt=4", "ppo.max_tokens=10", "ppo.micro_batch_tokens=400",
    "checkpoint_every=1", "selection.every=2", "lr_schedule=constant", "ppo.drop_zero_variance_groups=false",
    "readiness_problems=0",
)  # fmt: skip
EPOCHS = (
    "lora.rank=4", "sft.steps=3", "sft.batch_size=4", "binary.steps=2", "partial.steps=3", "ppo.batch_size=8",
    "ppo.epochs=2", "ppo.samples_per_prompt=4", "ppo.max_tokens=12", "ppo.micro_batch_tokens=200", "checkpoint_every=2",
    "lr_schedule=constant", "ppo.drop_zero_variance_groups=false",
    "readiness_problems=0",
)  # fmt: skip


def varied_reward(score: Score, weight: float, *_: Any) -> float:
    """A random tiny model never solves anything: without differences in reward there would be nothing to learn.

    Rewards depend on the problem and on the number of the sample alone, not on what a model happens to sample: they
    differ within each group and between problems, and evaluations of all steps are equal, so a phase keeps its last.
    """
    return (7 * sum(score.id.encode()) + 11 * score.sample) % 31 / 31


def varied_pass(made: Rollout, row: int, *_: Any) -> bool:
    """As `varied_reward`: passes that depend on the problem and on the number of the sample alone."""
    return varied_reward(made.scores[row], 1.0) > 0.6


def an_update(problems: Sequence[Problem], scorer: Any = None, phase: str = "partial", **given: Any) -> Update:
    """The first update of a phase, or that of another ``step``; with other settings by name."""
    step = given.pop("step", 1)
    return Update(TrainSettings(**{"seed": 5, **given}), phase, problems, step, scorer)


def sgd_learner(model: Path, rate: float, moved: float = 0.0) -> Learner:
    """A learner with plain gradient descent, whose adapter is ``moved`` times random numbers from its start."""
    policy = add_adapters(load_base(model), LoraSettings(rank=4), seed=3)
    parameters = adapter_parameters(policy, POLICY_ADAPTER).values()
    with torch.no_grad():
        for parameter in parameters:
            parameter += moved * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1))
    decoder, compute = Decoder(policy, torch.float32), Compute("cpu", "fp32", torch.float32)
    return Learner(policy, read_tokenizer(model), compute, torch.optim.SGD(parameters, lr=rate), decoder)


def policy_of(learner: Learner) -> torch.Tensor:
    """All parameters of the adapter, one after the other."""
    return torch.cat([each.detach().flatten() for each in adapter_parameters(learner.model, POLICY_ADAPTER).values()])


class Unrun:
    """Runs no program: rewards depend on problem and sample alone."""

    def score_async(self, problem: Problem, program: str, **_: Any) -> Future[Score]:
        """The same score for every program."""
        done: Future[Score] = Future()
        done.set_result(Score(problem.id, 0, 0, 0, 1, *[0.0] * 6, (), (), program, 0.0))
        return done


class SlowUpdate:
    """What references of updates share: the completions one by one, through the model of transformers."""

    def __init__(self, learner: Learner, made: Rollout, ppo: PpoSettings) -> None:
        self.learner, self.made, self.ppo = learner, made, ppo

    def log_probs(self, row: int) -> torch.Tensor:
        """Of the tokens of one completion."""
        done = self.made.completions[row]
        before = [*self.made.prompts[done.prompt]]
        logits = self.learner.model(torch.tensor([[*before, *done.token_ids]])).logits[0] / self.ppo.temperature
        return logits.log_softmax(-1)[len(before) - 1 : -1].gather(-1, torch.tensor(done.token_ids)[:, None])[:, 0]


def write_additions(path: Path, tests: int = 1, count: int = 20) -> Path:
    """Problems that ask for one more than a number, each with two solutions."""
    cases = tuple(Test(f"{n}\n", f"{n + 1}\n") for n in range(1, tests + 1))
    solutions = ("print(int(input()) + 1)\n", "n = int(input())\nprint(n + 1)\n")
    statements = (f"Read n. Print n + 1. ({n})" for n in range(count))
    problems = [Problem(f"p{n}", text, tests=cases, solutions=solutions) for n, text in enumerate(statements)]
    write_problems(path, problems)
    return path


def settings_maker(model: Path, problems: Path, small: tuple[str, ...]) -> Callable[..., TrainSettings]:
    """Makes settings of a small run: overrides as ``--set`` takes them, flags by name."""

    def make(*overrides: str, **flags: Any) -> TrainSettings:
        values = {"model": str(model), "problems": str(problems), "device": "cpu", **flags}
        return resolve("starter", (*small, *overrides), values)

    return make


def rows(run: Run, name: str = "metrics.jsonl") -> list[dict[str, Any]]:
    """A run's rows."""
    return [json.loads(line) for line in (run.path / name).read_text().splitlines()]


def untimed(run: Run) -> list[dict[str, Any]]:
    """A run's rows without times and memory."""
    times = ("seconds", "seconds_sample", "seconds_score", "seconds_update", "tokens_per_second", "peak_rss_mib")
    return [{key: value for key, value in row.items() if key not in times} for row in rows(run)]


def weights(folder: Path) -> dict[str, torch.Tensor]:
    """An adapter's tensors by name."""
    tensors: dict[str, torch.Tensor] = load_file(folder / "adapter_model.safetensors")
    return tensors


def equal(one: Path, two: Path) -> bool:
    """Whether two adapters are the same, bit for bit."""
    first, second = weights(one), weights(two)
    return first.keys() == second.keys() and all(torch.equal(value, second[key]) for key, value in first.items())


def outcome(run: Run, name: str) -> dict[str, Any]:
    """What a finished phase of a run says of itself."""
    return dict(run.outcomes())[name]


def scripted(monkeypatch: pytest.MonkeyPatch, *rewards: float) -> None:
    """Evaluations that find the given rewards, one after the other."""
    answers = iter(rewards)

    def evaluate(
        learner: Any, scorer: Any, held_out: Any, settings: Any, step: int, phase: str, keep: Any
    ) -> HeldOutResult:
        reward = next(answers)
        return HeldOutResult(step, (reward,) * 4, (False,) * 4, 1.0)

    monkeypatch.setattr("securecoderl_edge.training.phase.evaluate_policy", evaluate)
