"""The report of the studies: every number comes from a record, and the committed page is what the records make."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from places import ROOT

BENCHMARKS = ROOT / "benchmarks"


@pytest.fixture(scope="module")
def report() -> Any:
    sys.path.insert(0, str(BENCHMARKS))
    try:
        import study_report

        return study_report
    finally:
        sys.path.remove(str(BENCHMARKS))


def interval(value: float, low: float, high: float) -> dict[str, float]:
    return {"value": value, "low": low, "high": high, "n": 10}


def arm(name: str, rate: float) -> dict[str, Any]:
    metrics = {"all_tests_rate": interval(rate, rate - 0.1, rate + 0.1), "reward": interval(0.5, 0.4, 0.6)}
    result = {"split": "eval", "model": "policy", "metrics": metrics, "all_tests_by_seed": [rate, rate + 0.01]}
    return {
        "name": name, "title": name.upper(), "split": "eval", "seeds": [42, 43], "command": f"sce train {name}",
        "train_seconds": [60, 90], "results": [result],
        "training": {"updates": [20, 40, 60, 80], "sample_copy": {"mean": [0.01, 0.03, 0.04, 0.06]}},
    }  # fmt: skip


def records(low: float = 0.05) -> dict[str, dict[str, Any]]:
    difference = {"all_tests_rate": interval(0.2, low, 0.35)}
    return {
        "table3": {
            "arms": [arm("a", 0.3), arm("b", 0.5)],
            "splits": [{"name": "eval", "train": "x", "eval": "y", "base": arm("n", 0.1)["results"][0]["metrics"]}],
            "comparisons": [{"first": "a", "second": "b", "split": "eval", "metrics": difference}],
            "seeds": [42, 43], "steps": 9, "steps_done": 8, "wall_seconds": 5400,
            "machine": {"cores": 2, "cpu": "a processor"},
        }
    }  # fmt: skip


@pytest.mark.parametrize(
    ("directive", "expected"),
    [
        ("{{value table3 a eval all_tests_rate}}", "30.0 [20.0, 40.0]"),
        ("{{value table3 base eval all_tests_rate}}", "10.0 [0.0, 20.0]"),
        ("{{difference table3 a b eval all_tests_rate}}", "+20.0 [+5.0, +35.0]"),
        ("{{says table3 a b eval all_tests_rate}}", "higher"),
        ("{{by_seed table3 b eval}}", "50.0, 51.0"),
        ("{{over_training table3 b sample_copy 1 40}}", "2.0"),
        ("{{over_training table3 b sample_copy 41 80}}", "5.0"),
        ("{{alike starter:eval starter:eval}}", "200 of 200 problems"),
        ("{{same_solution starter:eval starter:eval}}", "200 of 200"),
        ("{{same_solution starter:eval starter:plain-train}}", "0 of 200"),
        ("{{machine}}", "2 cores of a processor"),
        ("{{figure name What it shows}}", "![What it shows](results/plots/name.svg)"),
    ],
)
def test_a_directive_is_a_figure_of_a_record(report: Any, directive: str, expected: str) -> None:
    assert report.render(f"({directive})", records()) == f"({expected})"


def test_a_difference_whose_interval_holds_zero_is_none(report: Any) -> None:
    assert report.render("{{says table3 a b eval all_tests_rate}}", records(-0.05)) == "not distinguishable"


def test_tables_have_a_row_for_each_arm_with_the_command_that_repeats_it(report: Any) -> None:
    shown = report.render("{{results table3 eval all_tests_rate}}", records())
    assert "| B | float | 50.0 [40.0, 60.0] | 2 | `table3 --arm b` |" in shown
    assert "8 of 9 | 1.5 h" in report.render("{{costs}}", records())
    assert "| A | `sce train a` | 1.0 min, 1.5 min |" in report.render("{{commands table3}}", records())


def test_a_table_without_exported_files(report: Any) -> None:
    made = records()
    trained = made["table3"]["arms"][0]["results"]
    trained.append(trained[0] | {"model": "q8_0"})
    assert "| A | q8_0 |" in report.render("{{results table3 eval all_tests_rate}}", made)
    shown = report.render("{{results table3 eval all_tests_rate float}}", made)
    assert "q8_0" not in shown
    assert [line[:12] for line in shown.splitlines()[2:]] == ["| base model", "| A | float ", "| B | float "]


def test_a_section_waits_for_its_figures(report: Any) -> None:
    text = "always\n<!-- needs: table3 -->\nfirst\n<!-- needs: table3 security -->\nsecond\n<!-- needs: -->\nlast\n"
    assert report.render(text, records()) == "always\nfirst\nlast\n"


@pytest.mark.parametrize(
    "directive", ["{{guess table3}}", "{{value table3 z eval all_tests_rate}}", "{{value table3 a eval colour}}"]
)
def test_what_no_record_has_is_an_error(report: Any, directive: str) -> None:
    with pytest.raises(ValueError, match=r"study_text\.md"):
        report.render(directive, records())


def test_the_committed_page_is_what_its_figures_make(report: Any) -> None:
    found = report.read_records()
    assert report.REPORT.read_text(encoding="utf-8") == report.render(report.TEXT.read_text(encoding="utf-8"), found), (
        "make study"
    )
    for name in found:
        assert name in report.NAMES


def test_readme_has_the_results_that_the_figures_make(report: Any) -> None:
    text = report.README.read_text(encoding="utf-8")
    assert text == report.in_readme(text, report.read_records()), "make study"


def test_a_readme_without_the_marks_is_refused(report: Any) -> None:
    with pytest.raises(ValueError, match="made by make study"):
        report.in_readme("# Readme\n", records())
