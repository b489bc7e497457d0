"""The pages of the study: every number comes from a record, and the committed pages are what the records make."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import study
import study_report
from places import ROOT
from study_engine.study_record import study_record

BENCHMARKS = ROOT / "benchmarks"


@pytest.fixture(scope="module")
def committed() -> dict[str, Any]:
    found: dict[str, Any] = study_report.read_records()
    return found


def interval(value: float, low: float, high: float) -> dict[str, float]:
    return {"value": value, "low": low, "high": high, "n": 10}


def arm(name: str, rate: float) -> dict[str, Any]:
    metrics = {"all_tests_rate": interval(rate, rate - 0.1, rate + 0.1), "reward": interval(0.5, 0.4, 0.6)}
    result = {"split": "eval", "model": "policy", "metrics": metrics, "all_tests_by_seed": [rate, rate + 0.01]}
    return {
        "name": name, "title": name.upper(), "split": "eval", "seeds": [42, 43], "command": f"sce train {name}",
        "cost": {"updates": 120, "completions": 7680, "reference_tokens": 51000, "seconds": 150},
        "train_seconds": [60, 90], "results": [result], "kept": [{"sft": 0, "binary": 0}, {"sft": 10, "binary": 5}],
        "phases": ["sft"] if name == "a" else ["sft", "binary"],
        "training": {
            "updates": [20, 40, 60, 80], "sample_copy": {"mean": [0.01, 0.03, 0.04, 0.06]},
            "objective/kl": {"mean": [0.1, 0.2, 0.25, 0.35]},
        },
    }  # fmt: skip


def records(low: float = 0.05) -> dict[str, dict[str, Any]]:
    difference = {
        "all_tests_rate": interval(0.2, low, 0.35),
        "reward": interval(-0.1, -0.2, -0.05),
        "tokens": interval(2, -1, 5),
    }
    base = {"name": "eval", "train": "x", "eval": "y", "base": arm("n", 0.1)["results"][0]["metrics"]}
    exported = {"all_tests_rate": interval(0.0, -0.1, 0.1), "reward": interval(0.1, 0.05, 0.2)}
    arms = [arm("a", 0.3), arm("b", 0.5)]
    arms[1]["results"].append(arms[1]["results"][0] | {"model": "q8_0", "minus_policy": exported})
    return {
        "table3": {
            "arms": arms,
            "splits": [base | {"prepare_seconds": 90}],
            "comparisons": [{"first": "a", "second": "b", "split": "eval", "metrics": difference}],
            "samples": 2, "seeds": [42, 43], "steps": 9, "steps_done": 8, "wall_seconds": 5400,
            "machine": {"cores": 2, "cpu": "old processor"},
        }
    }  # fmt: skip


@pytest.mark.parametrize(
    ("directive", "expected"),
    [
        ("{{value table3 a}}", "30.0 %"),
        ("{{interval table3 a}}", "30.0 % [20.0, 40.0]"),
        ("{{interval table3 a reward}}", "0.500 [0.400, 0.600]"),
        ("{{value table3 base all_tests_rate eval}}", "10.0 %"),
        ("{{higher table3 b a}}", "+20.0 points [+5.0, +35.0]"),
        ("{{lower table3 b a reward}}", "-0.100 [-0.200, -0.050]"),
        ("{{chance}}", "of 2 differences 2 are significant, and 0 would be"),
        ("{{no_difference table3 b a tokens}}", "+2.0 tokens [-1.0, +5.0]"),
        ("{{count higher table3 b a all_tests_rate,reward}}", "1 of 2"),
        ("{{count lower table3 * * all_tests_rate,reward}}", "1 of 2"),
        ("{{seeds table3}}", "two"),
        ("{{by_seed table3 b}}", "50.0, 51.0"),
        ("{{kept table3 b sft}}", "0, 10"),
        ("{{minutes table3 b}}", "2.5 min"),
        ("{{over_training table3 b sample_copy 1 40}}", "2.0 %"),
        ("{{over_training table3 b sample_copy 41 80}}", "5.0 %"),
        ("{{kl table3 b 41 80}}", "0.30 nats"),
        ("{{base_model_time table3 eval}}", "1.5 min"),
    ],
)
def test_a_directive_is_a_number_of_a_record(directive: str, expected: str) -> None:
    assert study_report.render(f"({directive})", records()) == f"({expected})"


@pytest.mark.parametrize(
    ("directive", "low"),
    [
        ("{{lower table3 b a}}", 0.05),
        ("{{no_difference table3 b a}}", 0.05),
        ("{{higher table3 b a}}", -0.05),
        ("{{higher table3 b a reward}}", 0.05),
    ],
)
def test_a_sentence_that_the_results_contradict_is_an_error(directive: str, low: float) -> None:
    with pytest.raises(ValueError, match="the text claims"):
        study_report.render(directive, records(low))


def test_tables_have_a_row_for_each_arm_with_the_command_that_repeats_it(monkeypatch: pytest.MonkeyPatch) -> None:
    made = records()
    made["table3"]["arms"][0]["name"] = "eval-sft"
    shown = study_report.render("{{results table3 eval all_tests_rate}}", made)
    assert "| A | float | 30.0 [20.0, 40.0] | 2 | 2.5 min | `table3 --only eval-sft` |" in shown
    assert "| B | float | 50.0 [40.0, 60.0] | 2 | 2.5 min | an earlier commit |" in shown
    monkeypatch.setitem(study.REMOVED_ARMS, "b", "c0ffee1")
    shown = study_report.render("{{results table3 eval all_tests_rate}}", made)
    assert "| B | float | 50.0 [40.0, 60.0] | 2 | 2.5 min | `table3 --only b`, commit c0ffee1 |" in shown
    assert "8 of 9 | 1.5 h" in study_report.render("{{costs}}", records())


def test_a_table_at_equal_cost_says_what_each_training_used() -> None:
    shown = study_report.render("{{equal_cost table3 eval all_tests_rate}}", records())
    assert "| A | 2 | 120 | 7,680 | 51,000 | 2.5 min |  | 30.0 [20.0, 40.0] |" in shown
    assert "| B | 2 | 120 | 7,680 | 51,000 | 2.5 min | 1 of 2 | 50.0 [40.0, 60.0] |" in shown
    assert [
        row[:4]
        for row in study_report.render("{{equal_cost table3 eval all_tests_rate a*}}", records()).splitlines()[2:]
    ] == ["| A "]
    assert "q8_0" not in shown


def test_a_table_without_exported_files() -> None:
    assert "| B | q8_0 |" in study_report.render("{{results table3 eval all_tests_rate}}", records())
    shown = study_report.render("{{results table3 eval all_tests_rate float}}", records())
    assert "q8_0" not in shown
    assert [line[:12] for line in shown.splitlines()[2:]] == ["| base model", "| A | float ", "| B | float "]


def test_differences_without_an_interval_are_not_counted_as_compared() -> None:
    made = records(low=-0.1)
    made["table3"]["comparisons"] += [
        {"metrics": {"reward": None, "syntax_rate": {"value": 1, "low": None, "high": None, "n": 1}}}
    ]
    assert study_report.render("{{chance}}", made).strip() == "of 2 differences 1 are significant, and 0 would be"


def test_that_settings_change_nothing_is_checked_in_every_column_of_table_3() -> None:
    made = records(low=-0.1)
    (pair,) = made["table3"]["comparisons"]
    first, second = made["table3"]["arms"]
    first["phases"] = ["sft", "binary"]
    with pytest.raises(ValueError, match="reward is lower"):
        study_report.render("{{unchanged table3 b}}", made)
    pair["metrics"]["reward"] = interval(-0.1, -0.2, 0.05)
    assert study_report.render("{{unchanged table3 b}}", made) == "no rate and no reward significantly"
    with pytest.raises(ValueError, match="no such comparison"):
        study_report.render("{{unchanged table3 b a}}", made)
    first["phases"] = ["sft"]
    with pytest.raises(ValueError, match="no such comparison"):
        study_report.render("{{unchanged table3 b}}", made)
    assert second["phases"] == ["sft", "binary"]


def test_columns_have_the_names_of_the_field(committed: dict[str, Any]) -> None:
    shown = study_report.render("{{results hacking shown sample_copy,solved_rate}}", committed)
    assert "| Hard-coded example % | pass@2 % |" in shown, "two programs per problem"


def test_a_count_of_variants_leaves_out_those_without_rewards() -> None:
    made = records()
    pair = made["table3"]["comparisons"][0]
    made["table3"]["comparisons"].append({**pair, "first": "b", "second": "a"})
    assert study_report.render("{{count higher table3 * * all_tests_rate}}", made) == "1 of 1"
    assert study_report.render("{{count higher table3 a * all_tests_rate}}", made) == "1 of 1"


def test_arms_of_removed_settings_are_found_in_the_earlier_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study, "REMOVED_ARMS", {"b": "c0ffee1", "c": "c0ffee1"})
    before = records()["table3"]
    before["comparisons"] += [{"first": "a", "second": "a"}]
    arms, pairs = study.removed_arms(before)
    assert [each["name"] for each in arms] == ["b"]
    assert pairs == [("a", "b")]
    assert study.removed_arms({}) == ([], [])


def test_new_intervals_do_not_change_what_a_study_cost() -> None:
    costs = {"machine": {"cpu": "old"}, "commit": "old", "steps": 9, "steps_done": 8, "wall_seconds": 70}
    now = {"machine": {"cpu": "new"}, "steps": 7, "steps_done": 7, "wall_seconds": 60, "arms": []}
    assert study.with_costs_of(costs, now) == {**costs, "arms": []}
    assert study.with_costs_of({**costs, "steps_done": 6}, now) == study.with_costs_of({}, now) == now


@pytest.mark.parametrize(
    "directive",
    [
        "{{guess table3}}",
        "{{value table3 z}}",
        "{{value table3 a color}}",
        "{{value table4 a}}",
        "{{higher table3 a b}}",
        "{{count higher table3 z *}}",
        "{{figure guess}}",
        "{{bench higher quantised-policy color}}",
    ],
)
def test_a_result_that_no_record_has_is_an_error(directive: str) -> None:
    with pytest.raises(ValueError, match=r"^page\.md: \{\{"):
        study_report.render(directive, records(), "page.md")


def test_paragraphs_are_wrapped_and_nothing_else() -> None:
    long = "word " * 30
    made = study_report.render(f"# {long}\n\n* {long}\n  {long}\n* b\n\n| {long} |\n\n```\n{long}\n```\n", {})
    heading, *items, table, _, code, _ = [line for line in made.splitlines() if line]
    assert (heading, table, code) == (f"# {long}", f"| {long} |", long)
    assert [line[:6] for line in items] == ["* word", "  word", "  word", "* b"]
    assert max(map(len, items)) <= 120


def test_an_interval_is_not_broken_over_two_lines() -> None:
    made = study_report.render("word " * 23 + "[+1.0, +2.0]", {})
    assert "[+1.0, +2.0]" in made


def test_the_committed_pages_are_what_the_results_make(committed: dict[str, Any]) -> None:
    assert set(study_report.STUDIES) - {"reliable", "programs", "secure"} <= set(committed)  # which have no results yet
    made = study_report.pages(committed)
    others = {"readme.md"}  # parts of a page
    assert set(study_report.PAGES) == {path.name for path in study_report.TEMPLATES.glob("*.md")} - others
    for path, text in made.items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name}: make study"


def test_readme_has_the_results_that_the_records_make(committed: dict[str, Any]) -> None:
    text = study_report.README.read_text(encoding="utf-8")
    assert text == study_report.in_readme(text, committed), "make study"


def test_a_part_of_readme_is_put_between_its_marks(committed: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    parts = {"results": study_report.readme_parts(committed)["results"], "findings": "found"}
    monkeypatch.setattr(study_report, "readme_parts", lambda records: parts)
    marked = "".join(f"before\n\n<!-- made by make study: {name} -->\nold\n<!-- end -->\n" for name in parts)
    made = study_report.in_readme(f"{marked}after\n", committed)
    assert "old" not in made
    assert made.startswith(f"before\n\n<!-- made by make study: results -->\n\n{parts['results']}\n\n<!-- end")
    assert made.endswith("found\n\n<!-- end -->\nafter\n")
    assert study_report.in_readme(made, committed) == made
    mark = "<!-- made by make study: findings -->"
    for broken in (
        "# Readme\n",
        marked.replace(mark, ""),
        marked.replace("<!-- end -->", "", 1),
        marked.replace(mark, "<!-- made by make study: guess -->"),
        marked + f"{mark}\nagain\n<!-- end -->\n",
    ):
        with pytest.raises(ValueError, match="made by make study: results"):
            study_report.in_readme(broken, committed)


def test_titles_are_those_of_today_and_not_those_of_the_old_files(committed: dict[str, Any]) -> None:
    titles = {arm["name"]: arm["title"] for study in committed.values() for arm in study["arms"]}
    assert titles["groups-4"] == "4 samples per prompt"


@pytest.mark.parametrize("name", ["recipe", "security"])
def test_the_committed_intervals_are_those_of_the_committed_rows(name: str) -> None:
    """Of every arm, so no key of a step has changed: a new setting must not make finished trainings unknown."""
    made = study_record(study.STUDIES[name](study_report.RESULTS / "study"), 2)
    committed = study_report.read_result(study_report.RESULTS / f"study-{name}.json")
    assert made["steps"] == made["steps_done"]
    assert made["comparisons"] == committed["comparisons"]
    for part in ("arms", "splits"):
        for mine, theirs in zip(made[part], committed[part], strict=True):
            assert mine.get("results") == theirs.get("results")
            assert mine.get("base") == theirs.get("base")


def test_every_committed_result_names_its_command_commit_and_machine() -> None:
    for file in sorted((BENCHMARKS / "results").glob("*.json")):
        content = json.loads(file.read_text())
        for record in content if isinstance(content, list) else [content]:
            assert {"command", "commit", "machine"} <= record.keys(), file.name
            assert re.fullmatch(r"[0-9a-f]{12}\+?", record["commit"]), file.name


def test_the_record_of_a_command_has_what_it_printed_and_where_it_ran(tmp_path: Path) -> None:
    out, script = tmp_path / "result.json", BENCHMARKS / "record.py"
    words = [sys.executable, "-c", "print('{\"tokens\": 3}')"]
    subprocess.run([sys.executable, str(script), str(out), *words], check=True)
    record = json.loads(out.read_text())
    assert (record["tokens"], record["command"]) == (3, " ".join(words))
    assert {"commit", "machine"} <= record.keys()


def test_records_of_several_commands_share_a_file_whatever_their_exit_codes(tmp_path: Path) -> None:
    out, script = tmp_path / "result.json", BENCHMARKS / "record.py"
    for tokens in (1, 2):
        words = [sys.executable, "-c", f"print('{{\"tokens\": {tokens}}}'); raise SystemExit({tokens})"]
        subprocess.run([sys.executable, str(script), "--add", str(out), *words], check=True)
    silent = [sys.executable, str(script), "--add", str(out), sys.executable, "-c", ""]
    assert subprocess.run(silent, capture_output=True).returncode == 1
    assert [record["tokens"] for record in json.loads(out.read_text())] == [1, 2]
