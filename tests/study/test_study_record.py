"""The figures of a study: rates and differences over seeds and problems, and what is missing."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from study_engine import steps
from study_engine.arms import Arm, Base, Split, Study
from study_engine.figures import save_figures
from study_engine.run_log import STEPS, RunLog
from study_engine.steps import chains, preparations, take_finished
from study_engine.study_record import study_record, training_curves
from study_engine.study_tables import (
    difference_table,
    gain_table,
    result_table,
    study_tables,
    transfer_difference_table,
)
from study_engine.table3 import Table3Settings, table3

from securecoderl_edge.errors import SceError
from securecoderl_edge.runs import DONE_FILE
from securecoderl_edge.scoring.cluster_intervals import difference_over_seeds, rate_over_seeds

EVAL, HARD = Split("eval", "starter:plain-train", "starter:eval"), Split("hard", "starter:hard-train", "starter:hard")
PROBLEMS = 20


def small_study(folder: Path) -> Study:
    arms = (
        Arm("eval-sft", "SFT", EVAL, ("sft",), (), (EVAL,), ("q8_0",)),
        Arm("eval-simple", "PPO-simple", EVAL, ("sft", "binary"), ("binary.steps=4",), (EVAL, HARD), (), 2),
    )
    return Study("small", "starter", folder, arms, (42, 43), 2, comparisons=(("eval-sft", "eval-simple"),))


def row(problem: int, sample: int, passed: bool) -> dict[str, Any]:
    return {
        "id": f"p{problem:02}", "sample": sample, "stage": 4 if passed else 3 * (sample == 0), "passed": 5 * passed,
        "total": 5, "reward": 1.0 if passed else 0.4, "reward_paper": 1.0 if passed else 0.4, "r_tests": float(passed),
        "severity": 0.5 * (problem == 0), "findings": [{}] * (problem == 0), "completion_tokens": 10 + problem,
        "signs": ["constant_output"] if problem == 1 else [],
    }  # fmt: skip


def passes(seed: int, skill: int) -> list[list[bool]]:
    return [[(problem * 7 + sample * 3 + seed) % 10 < skill for sample in range(2)] for problem in range(PROBLEMS)]


def write_bench(folder: Path, tables: list[list[list[bool]]]) -> None:
    models = []
    for number, table in enumerate(tables):
        log = folder / f"model-{number}"
        log.mkdir(parents=True)
        rows = [row(problem, sample, ok) for problem, each in enumerate(table) for sample, ok in enumerate(each)]
        # Batches come in any order, and what was interrupted may be there twice.
        text = [json.dumps(each) + "\n" for each in (*reversed(rows), rows[0])]
        (log / "rows.jsonl").write_text("".join(text))
        models.append({"log": log.name, "samples": len(rows)})
    settings = {"problems": f"starter:{folder.name.partition('-')[0]}", "samples": 2, "limit": None}
    (folder / "bench.json").write_text(json.dumps({"models": models, "settings": settings}))


SKILLS = {("eval-sft", "eval"): (3, 3), ("eval-simple", "eval"): (5, 4), ("eval-simple", "hard"): (0, 0)}


@pytest.fixture
def finished(tmp_path: Path) -> Study:
    study = small_study(tmp_path)
    for split in study.splits:
        write_bench(study.base_folder(split), [passes(0, 2)])
    for arm in study.arms:
        for seed in study.seeds:
            run = study.run_folder(arm, seed)
            (run / "policy").mkdir(parents=True)
            for quant in arm.quants:
                (run / "exports").mkdir()
                study.export_file(arm, seed, quant).touch()
            for number, phase in enumerate(arm.phases, 1):
                adapter = run / "phases" / f"{number}-{phase}" / "adapter"
                adapter.mkdir(parents=True)
                (adapter / DONE_FILE).write_text(json.dumps({"chosen_step": number}))
            updates = [
                {"phase": "binary", "step": step, "all_tests_rate": step / 10 + seed}
                | {"tokens": 500, "episode": 64 * step, "seconds": 2.5}
                for step in range(1, 5)
            ]
            rows = [
                {"phase": "sft", "step": 1, "tokens": 700, "seconds": 3.0},
                {"phase": "sft", "step": 2, "tokens": 301, "seconds": 4.0},
                *(updates if "binary" in arm.phases else []),
            ]
            (run / "metrics.jsonl").write_text("".join(json.dumps(each) + "\n" for each in rows))
            if arm.snapshot_every:
                (run / "phases/2-binary/snapshots/step-000002").mkdir(parents=True)
            for split in arm.measured_on:
                skills = [SKILLS[arm.name, split.name][seed == 43]] * len(study.measured(arm, seed, split))
                write_bench(study.bench_folder(arm, seed, split), [passes(seed, skill) for skill in skills])
    run_log = RunLog(tmp_path)
    for number, step in enumerate(steps.all_steps(study, 1)):
        run_log.add(step, 10.0 * number, 5.0, True)
    return study


def collect(study: Study) -> None:
    """Write the figures of everything, as at the end of each arm."""
    run_log = RunLog(study.folder)
    for chain in steps.chains(study, 1):
        save_figures(chain.collect(chain.keys(run_log)), chain.file)


def figures_record(study: Study) -> dict[str, Any]:
    collect(study)
    return study_record(study, 1)


def results(record: dict[str, Any], arm: str) -> dict[tuple[str, str], dict[str, Any]]:
    (found,) = (each for each in record["arms"] if each["name"] == arm)
    return {(each["split"], each["model"]): each for each in found["results"]}


def test_rates_are_over_all_seeds_and_problems(finished: Study) -> None:
    record = figures_record(finished)
    found = results(record, "eval-simple")["eval", "policy"]
    values = [[[float(ok) for ok in problem] for problem in passes(seed, skill)] for seed, skill in ((42, 5), (43, 4))]
    interval = rate_over_seeds(values)
    rate = found["metrics"]["all_tests_rate"]
    assert (rate["value"], rate["low"], rate["high"]) == pytest.approx(
        (interval.value, interval.low, interval.high), abs=5e-5
    )
    assert rate["n"] == 2 * 2 * PROBLEMS
    assert sum(found["syntax_by_seed"]) / 2 == pytest.approx(found["metrics"]["syntax_rate"]["value"], abs=1e-4)
    assert found["all_tests_by_seed"] == [pytest.approx(sum(map(sum, each)) / 40, abs=5e-5) for each in values]
    assert found["metrics"]["findings"]["value"] == pytest.approx(100 / PROBLEMS)
    # Only programs of the first problem have a finding.
    clean = sum(ok for seed in values for problem in seed[1:] for ok in problem) / (2 * 2 * PROBLEMS)
    assert found["metrics"]["secure_all_tests_rate"]["value"] == pytest.approx(clean, abs=5e-5)
    assert rate["value"] > clean
    assert found["metrics"]["constant_output"]["value"] == pytest.approx(1 / PROBLEMS)
    # A problem counts once, however many of its samples solve it.
    solved = sum(any(problem) for seed in values for problem in seed) / (2 * PROBLEMS)
    assert found["metrics"]["solved_rate"]["value"] == pytest.approx(solved, abs=5e-5)
    assert found["metrics"]["solved_rate"]["n"] == 2 * PROBLEMS
    assert solved > rate["value"]
    assert record["steps"] == record["steps_done"]
    assert record["wall_seconds"] == 5 * record["steps"]


def test_a_policy_is_compared_with_the_base_problem_by_problem(finished: Study) -> None:
    record = figures_record(finished)
    for (split, model), found in results(record, "eval-simple").items():
        assert ("minus_base" in found) == (model == "policy")
        if model == "policy":
            base, policy = (
                next(each for each in record["splits"] if each["name"] == split)["base"], found["metrics"]
            )  # fmt: skip
            gain = found["minus_base"]["all_tests_rate"]
            assert gain["value"] == pytest.approx(
                policy["all_tests_rate"]["value"] - base["all_tests_rate"]["value"], abs=1e-4
            )
            assert gain["low"] < gain["value"] < gain["high"]
    (row, _) = gain_table(record, "eval").rows
    assert row[0] == "SFT"


def test_a_record_of_some_problems_counts_no_others(finished: Study) -> None:
    whole, part = figures_record(finished), study_record(finished, 1, ["p00"])
    for arm in ("eval-sft", "eval-simple"):
        for place, found in results(part, arm).items():
            assert found["metrics"]["solved_rate"]["n"] < results(whole, arm)[place]["metrics"]["solved_rate"]["n"]
    # Only programs of the first problem have a finding.
    assert results(part, "eval-simple")["eval", "policy"]["metrics"]["findings"]["value"] == 0
    assert [each["problems"] for each in part["splits"]] == [PROBLEMS - 1] * len(finished.splits)


def test_problems_of_a_group_count_as_one_for_the_width_of_an_interval(
    finished: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = figures_record(finished)
    fives = {f"p{number:02}": f"g{number // 5}" for number in range(PROBLEMS)}
    monkeypatch.setattr("study_engine.study_record.groups_by_id", lambda problems: fives)
    grouped = study_record(finished, 1)
    assert [(each["problems"], each["groups"]) for each in grouped["splits"]] == [(PROBLEMS, 4)] * len(finished.splits)
    assert "groups" in grouped["intervals"]
    values = [
        [[float(ok) for problem in each[start : start + 5] for ok in problem] for start in range(0, PROBLEMS, 5)]
        for each in (passes(42, 5), passes(43, 4))
    ]
    expected = rate_over_seeds(values)
    single, rate = (
        results(each, "eval-simple")["eval", "policy"]["metrics"]["all_tests_rate"] for each in (whole, grouped)
    )
    assert (rate["value"], rate["n"]) == (single["value"], single["n"])
    assert (rate["low"], rate["high"]) == pytest.approx((expected.low, expected.high), abs=5e-5)
    assert (rate["low"], rate["high"]) != (single["low"], single["high"])


def test_an_arm_that_was_removed_keeps_its_facts_and_gets_new_intervals(finished: Study) -> None:
    whole = figures_record(finished)
    old = {"name": "eval-simple", "title": "gone", "split": "eval", "seeds": [42, 43], "results": ["of before"]}
    fewer = replace(finished, arms=finished.arms[:1], comparisons=())
    record = study_record(fewer, 1, removed=[old], pairs=[("eval-sft", "eval-simple")])
    assert record["arms"][1]["title"] == "gone"
    found, wanted = (
        [each for each in results(made, "eval-simple").values() if each["split"] == "eval"] for made in (record, whole)
    )
    assert [each["metrics"] for each in found] == [each["metrics"] for each in wanted]
    assert record["comparisons"] == whole["comparisons"]


def test_differences_are_paired_by_seed_and_problem(finished: Study) -> None:
    (found,) = figures_record(finished)["comparisons"]
    first, second = (
        [
            [[float(ok) for ok in problem] for problem in passes(seed, skill)]
            for seed, skill in zip((42, 43), skills, strict=True)
        ]
        for skills in ((3, 3), (5, 4))
    )
    expected = difference_over_seeds(first, second)
    interval = found["metrics"]["all_tests_rate"]
    assert (found["first"], found["second"], found["split"]) == ("eval-sft", "eval-simple", "eval")
    assert (interval["value"], interval["low"], interval["high"]) == pytest.approx(
        (expected.value, expected.low, expected.high), abs=5e-5
    )


def test_what_is_not_done_is_missing_and_nothing_else(finished: Study) -> None:
    arm = finished.arms[1]
    collect(finished)
    finished.figures_file(arm, 43).unlink()
    for split in arm.measured_on:
        (finished.bench_folder(arm, 43, split) / "bench.json").unlink()
    record = study_record(finished, 1)
    assert record["steps_done"] == record["steps"] - 2
    assert results(record, "eval-simple")["eval", "policy"]["metrics"]["all_tests_rate"]["n"] == 2 * PROBLEMS
    assert record["comparisons"][0]["metrics"]["seeds"] == [42]


def test_a_record_needs_no_runs_once_there_are_figures(finished: Study) -> None:
    before = figures_record(finished)
    for folder in finished.folder.iterdir():
        if folder.is_dir():
            for inner in folder.iterdir():
                if inner.is_dir():
                    shutil.rmtree(inner)
    after = study_record(finished, 1)
    assert after | {"machine": before["machine"]} == before  # its load changes
    assert before["steps_done"] == before["steps"]


def without_figures(folder: str, names: list[str]) -> list[str]:
    return [name for name in names if not name.endswith(".json.gz")]


def test_seeds_of_two_machines_are_one_record(finished: Study, tmp_path: Path) -> None:
    whole = figures_record(finished)
    folders = [tmp_path / "machines" / str(seed) for seed in finished.seeds]
    for seed, folder in zip(finished.seeds, folders, strict=True):
        for name in (f"seed-{seed}", "base"):
            shutil.copytree(finished.folder / name, folder / name, ignore=without_figures)
        lines = (finished.folder / STEPS).read_text().splitlines(keepends=True)
        other = finished.seeds[0] + finished.seeds[1] - seed
        (folder / STEPS).write_text("".join(line for line in lines if f"seed-{other}" not in line))
    joined = replace(finished, folder=tmp_path / "joined")
    take_finished(joined, folders[:1], 1)
    assert study_record(joined, 1)["steps_done"] < whole["steps_done"]
    for _ in range(2):  # a second time adds nothing
        take_finished(joined, folders, 1)
    record = study_record(joined, 1)
    commands = [arm.pop("command") for arm in (*record["arms"], *whole["arms"])]
    assert len(commands) == 4
    assert record | {"machine": whole["machine"]} == whole


def test_a_folder_without_results_of_the_study_is_refused(finished: Study, tmp_path: Path) -> None:
    collect(finished)
    other = replace(finished, samples=3, folder=tmp_path / "joined")
    with pytest.raises(SceError, match=r"no finished results of this study\. Give the options"):
        take_finished(other, [finished.folder], 1)


def test_figures_of_the_same_rows_are_the_same_bytes(finished: Study) -> None:
    collect(finished)
    file = finished.figures_file(finished.arms[1], 42)
    first = file.read_bytes()
    collect(finished)
    assert file.read_bytes() == first
    assert finished.figures_file(finished.arms[1], 42) != replace(finished, own_draws=True).figures_file(
        finished.arms[1], 42
    )


def test_snapshots_that_a_run_did_not_get_to_are_not_measured(finished: Study) -> None:
    arm = finished.arms[1]
    assert [each.name for each in finished.measured(arm, 42, EVAL)] == ["policy", "step-2"]
    (finished.run_folder(arm, 42) / "phases/2-binary/snapshots/step-000002").rmdir()
    assert [each.name for each in finished.measured(arm, 42, EVAL)] == ["policy"]


def test_rows_that_are_missing_are_noticed(finished: Study) -> None:
    (log,) = finished.bench_folder(finished.arms[1], 42, HARD).glob("model-0/rows.jsonl")
    log.write_text("".join(log.read_text().splitlines(keepends=True)[:-2]))
    with pytest.raises(SceError, match="39 of 40 rows are left; delete it"):
        figures_record(finished)


@pytest.mark.parametrize("name", ["samples", "limit", "problems"])
def test_a_bench_of_another_study_is_not_taken_for_ones_own(finished: Study, name: str) -> None:
    file = finished.bench_folder(finished.arms[1], 42, HARD) / "bench.json"
    document = json.loads(file.read_text())
    document["settings"][name] = 7
    file.write_text(json.dumps(document))
    with pytest.raises(SceError, match="not an evaluation of this study"):
        figures_record(finished)


@pytest.mark.parametrize("text", ["[]", '{"models": []}', '{"settings": {}, "models": [{}]}'])
def test_a_damaged_bench_is_reported_with_what_to_do(finished: Study, text: str) -> None:
    (finished.bench_folder(finished.arms[1], 42, HARD) / "bench.json").write_text(text)
    with pytest.raises(SceError):
        figures_record(finished)


def test_rows_are_not_read_from_elsewhere(finished: Study) -> None:
    file = finished.bench_folder(finished.arms[1], 42, HARD) / "bench.json"
    document = json.loads(file.read_text())
    document["models"][0]["log"] = "../eval-x2/model-0"
    file.write_text(json.dumps(document))
    with pytest.raises(SceError, match=r"damaged .*not the name of a folder in it.*; delete it"):
        figures_record(finished)


def test_arms_that_were_measured_on_other_problems_are_not_compared(finished: Study) -> None:
    for file in finished.bench_folder(finished.arms[1], 43, EVAL).glob("*/rows.jsonl"):
        file.write_text(file.read_text().replace('"p07"', '"q07"'))
    with pytest.raises(SceError, match="different problems"):
        figures_record(finished)


def test_a_study_of_some_arms_measures_the_base_models_of_all(tmp_path: Path) -> None:
    whole = table3(Table3Settings("starter", out=str(tmp_path)))
    part = replace(whole, arms=whole.arms[:1])
    assert [part.base_command(split) for split in part.splits] == [whole.base_command(split) for split in whole.splits]
    hard = part.base_command(part.splits[1])
    assert str(tmp_path / "bases/nano-hard") in hard
    assert hard[hard.index("--prompt-style") + 1] == "stdin"


def test_a_second_look_trains_nothing_anew_and_draws_by_seed(tmp_path: Path) -> None:
    first = small_study(tmp_path)
    again = replace(first, own_draws=True)
    arm, split = first.arms[1], first.splits[0]
    assert again.train_command(arm, 43) == first.train_command(arm, 43)
    assert [each.name for each in again.measured(arm, 43, split)] == ["policy"]
    assert "--seed" not in first.bench_command(arm, 43, split)
    seeds = [command[command.index("--seed") + 1] for command in (
        again.bench_command(arm, 42, split), again.bench_command(arm, 43, split), again.base_command(split),
    )]  # fmt: skip
    assert seeds == ["42", "43", "0"]
    assert again.bench_folder(arm, 43, split) != first.bench_folder(arm, 43, split)


def test_transfer_is_compared_with_the_warm_start_that_trained_there(finished: Study) -> None:
    record = figures_record(finished)
    rows = [dict(each, split="hard") for each in record["comparisons"] if each["split"] == "eval"]
    table = transfer_difference_table({**record, "comparisons": [*record["comparisons"], *rows]}, "hard")
    assert [row[0] for row in table.rows] == ["simple − SFT, trained on eval"]
    assert transfer_difference_table(record, "eval").rows == ()


def test_other_numbers_of_samples_and_problems_are_other_folders(tmp_path: Path) -> None:
    study = table3(Table3Settings("starter", out=str(tmp_path)))
    others = (study, replace(study, samples=4), replace(study, limit=5))
    assert len({each.base_folder(study.splits[0]) for each in others}) == 3


def test_learning_curves_are_means_of_updates_and_bounds_of_runs(finished: Study) -> None:
    record = figures_record(finished)
    (curve,) = (each["training"] for each in record["arms"] if "training" in each)
    assert curve["updates"] == [1, 2, 3, 4]
    assert curve["all_tests_rate"]["low"] == pytest.approx([42.1, 42.2, 42.3, 42.4])
    assert curve["all_tests_rate"]["mean"] == pytest.approx([42.6, 42.7, 42.8, 42.9])
    points = [each for key, each in results(record, "eval-simple").items() if "updates" in each]
    assert [(each["split"], each["updates"]) for each in points] == [("eval", 2)]
    assert training_curves([]) == {}


def test_the_cost_of_a_training_counts_every_phase_and_the_tokens_of_references(finished: Study) -> None:
    sft, simple = (each["cost"] for each in figures_record(finished)["arms"])
    assert sft == {"updates": 2, "completions": 0, "reference_tokens": 1001, "seconds": 7}
    assert simple == {"updates": 6, "completions": 256, "reference_tokens": 1001, "seconds": 17}


def test_tables_have_the_papers_columns_and_a_row_for_every_model(finished: Study) -> None:
    record = figures_record(finished)
    table = result_table(record, "eval")
    names = [("base model", ""), ("SFT", "float"), ("SFT", "q8_0"), ("PPO-simple", "float")]
    assert [row[:2] for row in table.rows] == names
    for title in ("Syn. %", "≥1-P %", "All-P %", "R", "R tests", "Sec.Clean %"):
        assert title in table.columns
    (difference,) = difference_table(record, "eval").rows
    assert difference[0] == "simple − SFT"
    titles = [title for title, _ in study_tables(record)]
    assert sum(title.startswith("Trained on other problems") for title in titles) == 1


def test_a_record_can_be_written_before_anything_is_done(tmp_path: Path) -> None:
    record = study_record(small_study(tmp_path), 1)
    assert (record["steps_done"], record["comparisons"]) == (0, [])
    assert study_tables(record) == []


def test_a_base_is_only_made_where_a_slice_has_one(tmp_path: Path) -> None:
    assert preparations(list(chains(small_study(tmp_path), 1))) == []
    own = Split("own", "a.jsonl", "b.jsonl", Base("mine", 3, ()))
    study = Study("s", "starter", tmp_path, (Arm("x", "X", own, ("sft",), (), (own,)),), (42,), 1)
    (step,) = preparations(list(chains(study, 1)))
    assert step.words[-2:] == ("--out", str(tmp_path / "bases/mine"))
    assert sys.executable not in step.command
