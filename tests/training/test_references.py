"""Reference solutions inside RL: what hints and ReLIFT do to an update, and that evaluations see neither."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the train extra")

import torch
from once import Once
from small_runs import EPOCHS, equal, rows, settings_maker

from securecoderl_edge.commands.train import _describe
from securecoderl_edge.errors import SceError
from securecoderl_edge.models.adapters import POLICY_ADAPTER, LoraSettings, adapter_parameters, add_adapters
from securecoderl_edge.models.decoder import Decoder
from securecoderl_edge.models.device import Compute
from securecoderl_edge.models.loading import load_base
from securecoderl_edge.models.tokenizer import read_tokenizer
from securecoderl_edge.problems.problem import Problem, Test
from securecoderl_edge.problems.problem_file import write_problems
from securecoderl_edge.prompts.chat import ChatTemplate
from securecoderl_edge.prompts.styles import PromptFormat
from securecoderl_edge.runs import Run
from securecoderl_edge.scoring.scorer import Scorer
from securecoderl_edge.training import plan, selection
from securecoderl_edge.training.checkpoint import Progress
from securecoderl_edge.training.phase import Stopped
from securecoderl_edge.training.settings import (
    PpoSettings,
    ReferenceSettings,
    RewardSettings,
    SftSettings,
    TrainSettings,
)
from securecoderl_edge.training.train import train
from securecoderl_edge.training.update import ppo_update, rollout
from securecoderl_edge.training.update.history import NO_HISTORY, Group, History
from securecoderl_edge.training.update.learner import Learner, make_value_head
from securecoderl_edge.training.update.references import Hints, first_lines, groups_of, reference_tokens, relift
from securecoderl_edge.training.update.sft_update import sft_update

pytestmark = pytest.mark.usefixtures("varied_reward")

PROGRAM = "n = int(input())\nif n > 3:\n    n = n - 1\n\nprint(n + 1)\n"
LONGER = f"import sys\n{PROGRAM}"
PROBLEMS = [
    Problem(f"p{n}", f"Add {n} to a number.", tests=(Test("1\n", f"{n + 7}\n"),), solutions=(LONGER, PROGRAM))
    for n in range(4)
]
PPO = PpoSettings(
    batch_size=8, samples_per_prompt=4, max_tokens=60, epochs=2, micro_batch_tokens=300, learning_rate=0.01
)
FP32 = Compute("cpu", "fp32", torch.float32)


@pytest.fixture
def make_learner(tiny_model: Path) -> Callable[..., Learner]:
    def make(value_head: bool = False) -> Learner:
        model = add_adapters(load_base(tiny_model), LoraSettings(rank=4), seed=3)
        head = make_value_head(model.config.hidden_size, 3) if value_head else None
        groups = [{"params": list(adapter_parameters(model, POLICY_ADAPTER).values()), "lr": 0.01}]
        groups += [{"params": list(head.parameters()), "lr": 0.01}] if head is not None else []
        optimizer = torch.optim.AdamW(groups, weight_decay=0.0)
        made = Learner(model, read_tokenizer(tiny_model), FP32, optimizer, Decoder(model, torch.float32), head)
        made.references = reference_tokens(made, PROBLEMS, PPO.max_tokens)
        return made

    return make


@pytest.fixture
def learner(make_learner: Callable[..., Learner]) -> Learner:
    return make_learner()


def policy(learner: Learner) -> torch.Tensor:
    return torch.cat([each.detach().flatten() for each in adapter_parameters(learner.model, POLICY_ADAPTER).values()])


def hints(share: float = 0.6, hinted: int = 4) -> Hints:
    return Hints(History({f"p{n}": share for n in range(hinted)}), 1.0, 1000)


def update(learner: Learner, scorer: Scorer, ppo: PpoSettings, hints: Hints | None) -> tuple[dict[str, Any], Any]:
    return ppo_update.ppo_update(learner, scorer, PROBLEMS, ppo, RewardSettings(), 1.0, "partial", 1, 5, hints)


def test_the_reference_is_the_shortest_solution_that_the_policy_could_write(learner: Learner) -> None:
    tokens = len(learner.solution_tokens(PROGRAM))
    found = reference_tokens(learner, [*PROBLEMS[:1], Problem("none", "No solution.")], tokens)
    assert {name: learner.tokenizer.decode(each) for name, each in found.items()} == {"p0": PROGRAM}
    assert found["p0"][-1] == learner.tokenizer.eos_token_id
    assert reference_tokens(learner, PROBLEMS, tokens - 1) == {}


def slow_first_lines(learner: Learner, answer: tuple[int, ...], share: float, most: int) -> tuple[int, ...]:
    best: tuple[int, ...] = ()
    for length in range(1, len(answer) + 1):
        text = learner.tokenizer.decode(answer[:length])
        last = learner.tokenizer.decode(answer[: length - 1])
        crosses = text.count("\n") > last.count("\n")
        leaves = PROGRAM.rstrip().removeprefix(text.rstrip()).strip()
        if crosses and leaves and length <= share * len(answer) and length <= most:
            best = answer[:length]
    return best


def test_a_hint_is_the_most_lines_within_its_share_and_never_the_last_one(learner: Learner) -> None:
    reference = learner.references["p0"]
    count, found = len(reference) - 1, set()
    for tokens in range(count + 1):
        for most in (1000, 9, 0, -5):
            hint = first_lines(learner, reference, tokens / count, most)
            assert hint == slow_first_lines(learner, reference[:-1], tokens / count, most)
            assert reference[: len(hint)] == hint
            found.add(learner.tokenizer.decode(hint).rstrip())
    assert found >= {"", "n = int(input())", "n = int(input())\nif n > 3:"}
    assert max(map(len, found)) < len(PROGRAM.rstrip())
    assert first_lines(learner, tuple(learner.solution_tokens("print(1)\n")), 1.0, 1000) == ()


def test_a_fence_is_no_line_of_a_program(learner: Learner) -> None:
    learner.format = PromptFormat("chat", ChatTemplate("{{ messages[0].content }}", {}))
    reference = tuple(learner.solution_tokens("a = 1\nprint(a)\n"))
    assert learner.tokenizer.decode(first_lines(learner, reference, 1.0, 1000)).rstrip() == "```python\na = 1"


def test_a_hint_leaves_room_in_the_context_and_is_bounded_by_the_schedule(learner: Learner) -> None:
    prompt, long = len(learner.prompt_tokens(PROBLEMS[0])), hints(0.9).of(learner, PROBLEMS[0])
    tight = replace(hints(0.9), room=prompt + len(long) - 1).of(learner, PROBLEMS[0])
    assert 0 < len(tight) < len(long)
    assert replace(hints(0.9), room=prompt).of(learner, PROBLEMS[0]) == ()
    assert replace(hints(0.9), longest=0.3).of(learner, PROBLEMS[0]) == hints(0.3).of(learner, PROBLEMS[0])
    assert replace(hints(0.9), longest=0.0).of(learner, PROBLEMS[0]) == ()
    assert hints(0.9).of(learner, Problem("bare", "No solution.")) == ()


@pytest.mark.parametrize("is_ours", [True, False])
def test_a_program_is_its_hint_and_what_the_policy_adds_within_the_limit_of_both(
    is_ours: bool, learner: Learner, scorer: Scorer
) -> None:
    learner = replace(learner, extract="raw", decoder=learner.decoder if is_ours else None)
    beginnings = [(), *(hints().of(learner, problem) for problem in PROBLEMS[1:])]
    made = rollout.collect(learner, scorer, PROBLEMS, 4, PPO, 5, hints=beginnings)
    plain = rollout.collect(learner, scorer, PROBLEMS, 4, PPO, 5)
    assert plain.hints == [()] * 4
    assert [done.token_ids for done in made.completions[:4]] == [done.token_ids for done in plain.completions[:4]]
    assert made.hints == beginnings
    assert len(beginnings[1]) > 5
    lengths = set()
    for done, score in zip(made.completions, made.scores, strict=True):
        hint = made.hints[done.prompt]
        own = done.token_ids[:-1] if done.finished else done.token_ids
        assert score.program == learner.tokenizer.decode((*hint, *own))
        assert made.prompts[done.prompt] == (*learner.prompt_tokens(PROBLEMS[done.prompt]), *hint)
        lengths.add((bool(hint), len(hint) + len(done.token_ids)))
    assert lengths >= {(False, 60), (True, 60)}
    assert max(length for _, length in lengths) == 60


def test_log_probabilities_after_a_hint_are_those_of_a_prompt_that_ends_with_it(
    learner: Learner, scorer: Scorer
) -> None:
    update(learner, scorer, PPO, None)  # from here on the adapter does something
    row, made = update(learner, scorer, PPO, hints())
    assert row["sampling/sampling_logp_difference/max"] < 1e-3
    assert row["val/first_ratio_error"] == 0
    learner.decoder.refresh()  # type: ignore[union-attr]
    made = rollout.collect(learner, scorer, made.problems, 1, PPO, 6, hints=made.hints)
    for done in made.completions:
        plain = learner.tokenizer.encode_prompt(learner.format.prompt(made.problems[done.prompt]))
        before = [*plain, *made.hints[done.prompt]]
        with torch.no_grad():
            logits = learner.model(torch.tensor([[*before, *done.token_ids]])).logits[0] / PPO.temperature
        scores = logits.log_softmax(-1)[len(before) - 1 : -1]
        expected = scores.gather(-1, torch.tensor(done.token_ids)[:, None])[:, 0]
        torch.testing.assert_close(torch.tensor(done.log_probs), expected, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("advantage", ["rloo", "gae", "batch"])
def test_the_tokens_of_a_hint_train_nothing_just_as_those_of_a_prompt(
    advantage: str, make_learner: Callable[..., Learner], scorer: Scorer, monkeypatch: pytest.MonkeyPatch
) -> None:
    ppo = replace(PPO, advantage=advantage)
    one, other = make_learner(advantage == "gae"), make_learner(advantage == "gae")
    _, made = update(one, scorer, ppo, hints())
    assert all(made.hints)
    within = replace(made, hints=[()] * len(made.hints))
    monkeypatch.setattr(ppo_update, "collect", lambda *_, **__: within)
    seen = []
    real = ppo_update.make_batch
    monkeypatch.setattr(ppo_update, "make_batch", lambda pairs, *rest: seen.append(pairs) or real(pairs, *rest))
    update(other, scorer, ppo, None)
    assert torch.equal(policy(one), policy(other))
    assert [ids for _, ids in seen[0]] == [done.token_ids for done in made.completions], "only what was sampled"


def test_the_main_rates_are_those_of_completions_without_a_hint(
    learner: Learner, scorer: Scorer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def solved(*arguments: Any, **options: Any) -> rollout.Rollout:
        made = rollout.collect(*arguments, **options)
        scores = [
            replace(score, passed=score.total if made.hints[done.prompt] else 0)
            for score, done in zip(made.scores, made.completions, strict=True)
        ]
        return replace(made, scores=scores)

    monkeypatch.setattr(ppo_update, "collect", solved)
    ppo = replace(PPO, batch_size=16)
    row, made = update(learner, scorer, ppo, hints(hinted=1))
    assert (row["all_tests_rate"], row["hints/all_tests_rate"], row["scores"]) == (0, 1, 12)
    assert row["hints/share_of_prompts"] == 0.25
    assert row["hints/mean_length"] == max(map(len, made.hints))
    passed = {group.problem: group.passed for group in groups_of(made, learner.references)}
    assert passed == {"p0": 1.0, "p1": 0.0, "p2": 0.0, "p3": 0.0}
    every, _ = update(learner, scorer, ppo, hints())
    assert "all_tests_rate" not in every
    assert every["hints/share_of_prompts"] == 1
    none, _ = update(learner, scorer, ppo, hints(share=0.0))
    assert none["hints/share_of_prompts"] == 0
    assert "hints/all_tests_rate" not in none


def test_a_relift_step_is_a_supervised_step_on_the_references_of_failed_problems(
    make_learner: Callable[..., Learner],
) -> None:
    one, other = make_learner(value_head=True), make_learner()
    settings = ReferenceSettings(relift_batch_size=2)
    waiting = NO_HISTORY.after([Group("p2", 0.0)], settings, 0.0)
    facts, same = relift(one, PROBLEMS, waiting, settings, 0.02, 300)
    assert (facts, same) == ({"relift/steps": 0, "relift/tokens": 0}, waiting)
    full = waiting.after([Group("p0", 0.0)], settings, 0.0)
    facts, after = relift(one, PROBLEMS, full, settings, 0.02, 300)
    of_sft = [replace(PROBLEMS[n], solutions=(PROGRAM,)) for n in (0, 2)]
    other.optimizer.param_groups[0]["lr"] = 0.02
    row = sft_update(other, of_sft, SftSettings(batch_size=2), 1, 1, 300)
    assert facts["relift/loss"] == pytest.approx(row["loss/sft"], rel=1e-5)
    torch.testing.assert_close(policy(one), policy(other))
    assert facts["relift/tokens"] == after.relift_tokens == row["tokens"]
    assert (after.failed, after.relift_steps) == ((), 1)
    assert [group["lr"] for group in one.optimizer.param_groups] == [0.01, 0.01]
    assert len(one.optimizer.state) == len(other.optimizer.state), "the value head was left alone"


def test_a_list_of_failed_problems_that_are_not_trained_on_is_refused(learner: Learner) -> None:
    with pytest.raises(SceError, match=r"the problem 'gone', which is not trained on"):
        relift(learner, PROBLEMS, History(failed=("gone",)), ReferenceSettings(relift_batch_size=1), 0.1, 300)


ALL = (
    "references.hints=0.9", "references.relift_batch_size=5",
    "ppo.samples_per_prompt=2", "ppo.max_tokens=60", "binary.steps=4", "partial.steps=2",
)  # fmt: skip


@pytest.fixture(scope="module")
def make_settings(tiny_model: Path, varied_reward: None, once: Once) -> Callable[..., TrainSettings]:
    def write(file: Path) -> None:
        tests = (Test("1\n", "nothing prints this\n"),)
        texts = {f"p{n}": f"Read n. Print n + 1. ({n})" for n in range(11)}
        write_problems(file, [Problem(name, text, tests=tests, solutions=(PROGRAM,)) for name, text in texts.items()])

    return settings_maker(tiny_model, once("lines.jsonl", write), EPOCHS)


@pytest.fixture(scope="module")
def whole(make_settings: Callable[..., TrainSettings], once: Once) -> Run:
    """An uninterrupted run with hints and ReLIFT; read only."""
    return Run(once("references", lambda folder: train(make_settings(*ALL), folder / "run")) / "run")


TIMES = ("seconds", "seconds_sample", "seconds_score", "seconds_update", "tokens_per_second", "peak_rss_mib")


def untimed(run: Run) -> list[dict[str, Any]]:
    return [{key: value for key, value in row.items() if key not in (*TIMES, "relift/seconds")} for row in rows(run)]


@pytest.mark.parametrize("step", [1, 2])
def test_a_run_with_references_resumes_bit_for_bit(
    step: int, make_settings: Callable[..., TrainSettings], whole: Run, tmp_path: Path
) -> None:
    last: dict[str, Any] = {}
    with pytest.raises(Stopped):
        train(
            make_settings(*ALL),
            tmp_path / "run",
            log=last.update,
            should_stop=lambda: (last["phase"], last["step"]) == ("binary", step),
        )
    file = max(tmp_path.glob("run/phases/2-binary/checkpoints/*/state.json"))
    history = json.loads(file.read_text())["history"]
    assert len(history["hints"]) >= 2
    assert bool(history["failed"]) == (step == 1), "the first stop is with problems that wait for ReLIFT"
    run = train(make_settings(*ALL), tmp_path / "run")
    assert untimed(run) == untimed(whole)
    assert equal(run.policy, whole.policy)


def test_a_run_with_references_uses_them_in_each_phase_anew(whole: Run) -> None:
    binary = [row for row in rows(whole) if row["phase"] == "binary"]
    partial = [row for row in rows(whole) if row["phase"] == "partial"]
    assert [row["relift/steps"] for row in binary] == sorted(row["relift/steps"] for row in binary)
    assert binary[-1]["relift/steps"] >= 1
    assert any(row["hints/share_of_prompts"] > 0 for row in binary)
    assert (partial[0]["relift/steps"], partial[0]["hints/share_of_prompts"]) == (0, 0)
    samples = rows(whole, "samples.jsonl")
    assert any(row.get("hint_tokens") and row["program"].startswith("n = int(input())") for row in samples)


def test_a_line_about_an_update_leaves_open_what_completions_without_a_hint_would_show() -> None:
    row = {"phase": "binary", "step": 3, "steps": 9, "objective/reward": 0.5}
    assert "all tests -" in _describe({**row, "hints/share_of_prompts": 1.0})
    assert _describe({**row, "hints/share_of_prompts": 1.0}).endswith("hints 100%")
    assert "hints" not in _describe({**row, "syntax_rate": 1.0, "all_tests_rate": 0.25})


def test_the_update_that_a_plan_times_moves_nothing(
    make_settings: Callable[..., TrainSettings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved = []
    real = plan.make_update

    def updating(place: Any, phase: str, learner: Learner, usable: list[Problem], progress: Progress) -> Any:
        before = policy(learner).clone()
        made = real(place, phase, learner, usable, progress)
        moved.append((made[0].get("relift/steps"), torch.equal(policy(learner), before)))
        return made

    monkeypatch.setattr(plan, "make_update", updating)
    settings = make_settings(*ALL, "references.relift_batch_size=1", phases=("binary",))
    plan.make_plan(settings, Run(tmp_path / "run"))
    assert moved == [(1, True)] * 2


def test_relift_waits_while_the_value_head_warms_up(
    make_settings: Callable[..., TrainSettings], tmp_path: Path
) -> None:
    with_values = ("ppo.advantage=gae", "ppo.samples_per_prompt=1", "ppo.value_warmup_steps=2")
    settings = make_settings(*ALL, *with_values, "references.relift_batch_size=1", phases=("binary",))
    found = [row for row in rows(train(settings, tmp_path / "run")) if row["phase"] == "binary"]
    assert ["relift/steps" in row for row in found] == [row["step"] > 2 for row in found]
    assert found[-1]["relift/steps"] >= 1


def test_evaluations_have_no_hints(
    make_settings: Callable[..., TrainSettings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    real = selection.collect

    def collecting(*arguments: Any, **options: Any) -> rollout.Rollout:
        found.append(real(*arguments, **options))
        return found[-1]

    monkeypatch.setattr(selection, "collect", collecting)
    train(make_settings(*ALL, "selection.every=2", phases=("binary",)), tmp_path / "run")
    assert len(found) == 3
    assert not any(hint for made in found for hint in made.hints)
    assert len({made.prompts[0] for made in found}) == 1


def test_problems_without_a_reference_are_said_and_too_few_are_an_error(
    make_settings: Callable[..., TrainSettings], tmp_path: Path
) -> None:
    few, none = tmp_path / "few.jsonl", tmp_path / "none.jsonl"
    bare = [replace(problem, solutions=()) for problem in PROBLEMS]
    write_problems(few, [PROBLEMS[0], *bare[1:]])
    write_problems(none, bare)
    said: list[str] = []
    settings = make_settings(*ALL, problems=str(few), phases=("binary",))
    with pytest.raises(SceError, match=r"never have a batch of 5\. Set references\.relift_batch_size = 1"):
        train(settings, tmp_path / "never")
    one = replace(settings, references=replace(settings.references, relift_batch_size=1))
    train(one, tmp_path / "a", say=said.append)
    assert any("binary: 1 of 4 problems have a reference of at most 60 tokens" in line for line in said)
    with pytest.raises(SceError, match="no problem has a reference solution of at most 60 tokens"):
        train(make_settings(*ALL, problems=str(none), phases=("binary",)), tmp_path / "b")


def test_settings_of_references_do_not_change_sft(
    make_settings: Callable[..., TrainSettings], whole: Run, tmp_path: Path
) -> None:
    copied = tmp_path / "first"
    copied.symlink_to(whole.path)
    said: list[str] = []
    train(make_settings("ppo.max_tokens=60", "references.hints=0.5", phases=("sft",)), tmp_path / "b", say=said.append)
    assert len(said) == 1
