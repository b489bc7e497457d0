"""Problems through a fake runtime and the real sandbox."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_runtime import BROKEN, RIGHT, UNSAFE, WRONG, FakeRuntime, always, by_problem, problem

from securecoderl_edge.errors import SceError
from securecoderl_edge.evaluation.evaluate import (
    Collected,
    Evaluation,
    EvaluationPlan,
    EvaluationProgress,
    evaluate,
)
from securecoderl_edge.evaluation.log import EvaluationLog
from securecoderl_edge.problems.problem import Test
from securecoderl_edge.runtimes.protocol import Sampling, batch_seed
from securecoderl_edge.scoring.scorer import Scorer

PROBLEMS = [problem(number) for number in range(12)]
SETTINGS = {"label": "fake", "seed": 42}


def outcomes(evaluation: Evaluation) -> list[object]:
    """What rows say, in a form that survives JSON."""
    return json.loads(json.dumps([{**row, "seconds": 0} for row in evaluation.rows]))  # type: ignore[no-any-return]


def open_log(out: Path, label: str, settings: dict[str, Any]) -> EvaluationLog:
    """A log that nobody holds."""
    with EvaluationLog.held(out, label, settings) as log:
        return log


def test_each_kind_of_program_is_counted_where_it_belongs(scorer: Scorer) -> None:
    texts = dict(zip(PROBLEMS[:4], (RIGHT, WRONG, BROKEN, UNSAFE), strict=True))
    summary = evaluate(FakeRuntime(by_problem(texts)), PROBLEMS[:4], scorer).summary()
    assert summary.stages == (1, 0, 0, 1, 2)
    assert summary.metrics["syntax_rate"].value == 0.75
    assert summary.metrics["all_tests_rate"].value == 0.5
    assert summary.metrics["any_test_rate"].value == 0.5
    assert summary.metrics["r_tests"].value == 0.5


def test_security_is_counted_among_the_programs_that_parse(scorer: Scorer) -> None:
    texts = dict(zip(PROBLEMS[:4], (RIGHT, WRONG, BROKEN, UNSAFE), strict=True))
    secure = evaluate(FakeRuntime(by_problem(texts)), PROBLEMS[:4], scorer).summary().metrics["secure_rate"]
    assert secure.value == pytest.approx(2 / 3)
    assert secure.n == 3


def test_where_nothing_parses_security_has_no_figure(scorer: Scorer) -> None:
    summary = evaluate(FakeRuntime(always(BROKEN)), PROBLEMS[:2], scorer).summary()
    assert "secure_rate" not in summary.metrics
    assert summary.metrics["reward"].value == 0
    assert summary.metrics["reward_paper"].value == pytest.approx(0.4)


def test_raw_extraction_scores_the_whole_text_and_lets_it_run_to_its_end(
    scorer: Scorer, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = FakeRuntime(always(f"Here it is:\n```python\n{RIGHT}```\n"))
    ends, generate = [], runtime.generate

    def noting(*args: Any, facts: Any, part: Any) -> Any:
        ends.append(facts)
        return generate(*args, facts=facts, part=part)

    monkeypatch.setattr(runtime, "generate", noting)
    plans = {each: EvaluationPlan(extract=each) for each in ("auto", "raw")}
    found = {each: evaluate(runtime, PROBLEMS[:1], scorer, plan).rows[0]["stage"] for each, plan in plans.items()}
    assert found == {"auto": 4, "raw": 0}
    assert [None in facts for facts in ends] == [False, True]


def test_rows_come_in_the_order_of_problems_and_samples(scorer: Scorer) -> None:
    rows = evaluate(FakeRuntime(), PROBLEMS[:3], scorer, EvaluationPlan(samples=2)).rows
    assert [(row["id"], row["sample"]) for row in rows] == [
        (f"p{number}", sample) for number in range(3) for sample in range(2)
    ]


def test_a_row_holds_the_score_and_how_the_program_was_made(scorer: Scorer) -> None:
    row = evaluate(FakeRuntime(always(f"```python\n{RIGHT}```\n")), PROBLEMS[:1], scorer).rows[0]
    assert row["program"] == RIGHT
    assert row["completion"].startswith("```python")
    assert row["completion_tokens"] == 5
    assert row["finish"] == "stop"
    assert row["mean_logprob"] == pytest.approx(-0.1)
    assert row["passed"] == row["total"] == 5


def test_batches_hold_as_many_completions_as_asked_for_and_have_seeds_of_their_own(scorer: Scorer) -> None:
    runtime = FakeRuntime()
    evaluate(runtime, PROBLEMS, scorer, EvaluationPlan(2, Sampling(seed=7), batch=10))
    assert [count for count, _ in runtime.calls] == [24]  # a free place goes to the next batch
    batches = [(batch_seed(7, start), count) for start, count in ((0, 5), (5, 5), (10, 2))]
    assert len({seed for seed, _ in batches}) == 3
    expected = [(seed, number, sample) for seed, count in batches for number in range(count) for sample in range(2)]
    assert runtime.seeds == expected


def test_programs_run_after_some_hundred_completions(scorer: Scorer) -> None:
    runtime = FakeRuntime(always(BROKEN))
    seen: list[EvaluationProgress] = []
    plan = EvaluationPlan(samples=30, batch=60)
    evaluate(runtime, PROBLEMS, scorer, plan, on_progress=seen.append)
    assert [count for count, _ in runtime.calls] == [300, 60]
    assert seen[300].completed == 300
    assert seen[300].done == 1


def test_the_same_seed_gives_the_same_rows_and_another_seed_others(scorer: Scorer) -> None:
    plans = (EvaluationPlan(sampling=Sampling(seed=seed)) for seed in (1, 1, 2))
    first, same, other = (evaluate(FakeRuntime(), PROBLEMS, scorer, plan) for plan in plans)
    assert outcomes(first) == outcomes(same) != outcomes(other)


def test_progress_ends_with_every_row(scorer: Scorer) -> None:
    seen: list[EvaluationProgress] = []
    evaluate(FakeRuntime(always(RIGHT)), PROBLEMS[:5], scorer, EvaluationPlan(batch=2), on_progress=seen.append)
    assert [progress.completed for progress in seen] == [1, 2, 3, 4, 5, 5, 5, 5, 5, 5]
    assert [progress.done for progress in seen] == [0, 0, 0, 0, 0, 1, 2, 3, 4, 5]
    assert (seen[-1].total, seen[-1].reward, seen[-1].syntax_rate) == (5, 1.0, 1.0)


def test_the_pieces_of_text_are_counted_while_it_is_decoded(scorer: Scorer) -> None:
    """A program that takes minutes to end would otherwise look like one that hangs."""
    told: list[tuple[int, int]] = []
    plan = EvaluationPlan(samples=2, sampling=Sampling(max_tokens=7), batch=4)
    evaluate(FakeRuntime(always(RIGHT)), PROBLEMS[:3], scorer, plan, on_text=lambda *now: told.append(now))
    assert told == [(count, 42) for count in range(19)]


def test_speed_is_what_the_runtime_spent_on_this_evaluation(scorer: Scorer) -> None:
    runtime = FakeRuntime(always(RIGHT))
    evaluate(runtime, PROBLEMS, scorer)
    usage = evaluate(runtime, PROBLEMS[:3], scorer).usage
    assert (usage.prompt_tokens, usage.decode_tokens) == (30, 9)


def test_an_interrupted_evaluation_resumes_where_it_stopped_with_the_same_rows(scorer: Scorer, tmp_path: Path) -> None:
    whole = evaluate(FakeRuntime(), PROBLEMS, scorer, EvaluationPlan(batch=4))
    log = open_log(tmp_path, "fake", SETTINGS)
    first, second = FakeRuntime(fail_after=6), FakeRuntime()
    with pytest.raises(KeyboardInterrupt):
        evaluate(first, PROBLEMS, scorer, EvaluationPlan(batch=4), log=log)
    assert len(log.completions()) == 6  # each was saved when it ended, in the middle of a batch
    log = open_log(tmp_path, "fake", SETTINGS)
    continued = evaluate(second, PROBLEMS, scorer, EvaluationPlan(batch=4), log=log)
    assert [count for count, _ in second.calls] == [6]
    assert len({*first.seeds, *second.seeds}) == 12
    assert outcomes(continued) == outcomes(whole)
    assert log.completions() == {}
    assert continued.usage.decode_tokens == sum(row["completion_tokens"] for row in whole.rows)


def test_a_log_waits_for_the_disk_as_often_for_many_programs_as_for_few(
    scorer: Scorer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk takes milliseconds each time, and a small model writes a program in that time."""
    waits, fsync = [], os.fsync
    monkeypatch.setattr(os, "fsync", lambda file: waits.append(file) or fsync(file))
    counts = []
    for number, problems in enumerate((PROBLEMS[:1], PROBLEMS)):
        log = open_log(tmp_path / str(number), "fake", SETTINGS)
        waits.clear()
        evaluate(FakeRuntime(always(RIGHT)), problems, scorer, log=log)
        counts.append(len(waits))
    assert counts[0] == counts[1] > 0


def test_the_means_of_the_progress_read_each_row_once(scorer: Scorer) -> None:
    read = []

    class Noted(dict[str, Any]):
        def __getitem__(self, name: str) -> Any:
            read.append(name)
            return super().__getitem__(name)

    seen: list[EvaluationProgress] = []
    collected = Collected([PROBLEMS], 1, None, seen.append)
    rows = [Noted(id=each.id, sample=0, reward=number, stage=number % 2) for number, each in enumerate(PROBLEMS)]
    for row in rows:
        collected.add([row])
    assert (seen[-1].done, seen[-1].reward, seen[-1].syntax_rate) == (12, 5.5, 0.5)
    assert read.count("reward") == read.count("stage") == len(rows)


def test_completions_whose_programs_did_not_run_are_scored_and_not_sampled_again(
    scorer: Scorer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(tmp_path, "fake", SETTINGS)
    with monkeypatch.context() as patch:
        patch.setattr(Scorer, "score_async", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            evaluate(FakeRuntime(), PROBLEMS, scorer, log=log)
    runtime = FakeRuntime()
    again = evaluate(runtime, PROBLEMS, scorer, log=log)
    assert runtime.calls == []
    assert outcomes(again) == outcomes(evaluate(FakeRuntime(), PROBLEMS, scorer))


def test_completions_of_other_problems_stay_in_the_log(scorer: Scorer, tmp_path: Path) -> None:
    log = open_log(tmp_path, "fake", SETTINGS)
    with pytest.raises(KeyboardInterrupt):
        evaluate(FakeRuntime(fail_after=5), PROBLEMS, scorer, EvaluationPlan(batch=4), log=log)
    evaluate(FakeRuntime(), PROBLEMS[:4], scorer, EvaluationPlan(batch=4), log=log)
    assert list(log.completions()) == [("p4", 0)]
    assert len(log.rows()) == 4


def test_a_finished_evaluation_is_read_back_without_generating(scorer: Scorer, tmp_path: Path) -> None:
    first = evaluate(FakeRuntime(), PROBLEMS[:4], scorer, log=open_log(tmp_path, "fake", SETTINGS))
    runtime = FakeRuntime()
    again = evaluate(runtime, PROBLEMS[:4], scorer, log=open_log(tmp_path, "fake", SETTINGS))
    assert runtime.calls == []
    assert outcomes(again) == outcomes(first)
    assert again.usage == first.usage
    assert not (again.log or tmp_path).joinpath("completions.jsonl").exists()


def test_a_line_cut_short_by_a_crash_is_made_again(scorer: Scorer, tmp_path: Path) -> None:
    log = open_log(tmp_path, "fake", SETTINGS)
    whole = evaluate(FakeRuntime(), PROBLEMS[:4], scorer, log=log)
    path = log.folder / "rows.jsonl"
    path.write_bytes(path.read_bytes()[:-40])
    log = open_log(tmp_path, "fake", SETTINGS)
    assert len(log.rows()) == 3
    again = evaluate(FakeRuntime(), PROBLEMS[:4], scorer, log=log)
    assert outcomes(again) == outcomes(whole)
    assert len(path.read_text().splitlines()) == 4


def test_a_problem_that_changed_under_its_id_is_measured_again(scorer: Scorer, tmp_path: Path) -> None:
    log = open_log(tmp_path, "fake", SETTINGS)
    evaluate(FakeRuntime(always(RIGHT)), PROBLEMS[:1], scorer, log=log)
    changed = replace(PROBLEMS[0], tests=(Test("1\n", "3\n"),))
    row = evaluate(FakeRuntime(always(RIGHT)), [changed], scorer, log=log).rows[0]
    assert (row["passed"], row["total"]) == (0, 1)


def test_rows_of_a_smaller_batch_are_made_again_since_draws_depend_on_it(scorer: Scorer, tmp_path: Path) -> None:
    log = open_log(tmp_path, "fake", SETTINGS)
    evaluate(FakeRuntime(always(RIGHT)), PROBLEMS[:1], scorer, log=log)
    runtime = FakeRuntime(always(RIGHT))
    evaluate(runtime, PROBLEMS[:2], scorer, log=log)
    assert len(runtime.prompts) == 2


def test_other_settings_are_another_log(tmp_path: Path) -> None:
    folders = {
        open_log(tmp_path, label, {"label": label, "seed": seed}).folder
        for label in ("a", "b", "../c d")
        for seed in (1, 2)
    }
    assert len(folders) == 6
    assert all(folder.parent == tmp_path for folder in folders)


def test_the_rows_of_a_log_can_be_scored_again_as_completions(scorer: Scorer, tmp_path: Path) -> None:
    log = open_log(tmp_path, "fake", SETTINGS)
    evaluate(FakeRuntime(), PROBLEMS[:2], scorer, log=log)
    records = [json.loads(line) for line in (log.folder / "rows.jsonl").read_text().splitlines()]
    assert all({"id", "sample", "completion"} <= set(record) for record in records)


def test_two_evaluations_do_not_write_one_log(tmp_path: Path, scorer: Scorer) -> None:
    row = scorer.score(replace(PROBLEMS[0], id="a"), RIGHT).to_record()
    with EvaluationLog.held(tmp_path, "fake", SETTINGS) as log:
        log.append([row])
        with pytest.raises(SceError, match="another process"), EvaluationLog.held(tmp_path, "fake", SETTINGS):
            pass
    with EvaluationLog.held(tmp_path, "fake", SETTINGS) as again:
        assert list(again.rows()) == [("a", 0)]
