"""Figures as cells, CSV, markdown and JSON, and paired comparisons."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from securecoderl_edge.evaluation.conclusions import conclusions
from securecoderl_edge.evaluation.evaluate import Evaluation
from securecoderl_edge.evaluation.tables import (
    NOT_DISTINGUISHABLE,
    Difference,
    bench_markdown,
    byte_cell,
    compare,
    comparison_record,
    comparison_table,
    corrected,
    interval_cell,
    pass_table,
    problems_needed,
    quality_table,
    speed_table,
    stage_table,
    summary_record,
    to_csv,
    verdict,
)
from securecoderl_edge.runtimes.protocol import Usage
from securecoderl_edge.scoring.intervals import Interval, paired_difference
from securecoderl_edge.scoring.metrics import METRICS

RATE, MEAN = METRICS[0], METRICS[3]
USAGE = Usage(1000, 2.0, 5000, 4.0, 250_000_000)


def row(number: int, solved: bool, *, sample: int = 0, parses: bool = True) -> dict[str, Any]:
    return {
        "id": f"p{number}",
        "sample": sample,
        "stage": 0 if not parses else 4 if solved else 3,
        "passed": 5 * solved,
        "total": 5,
        "severity": 0.0,
        "reward": float(solved),
        "reward_paper": float(solved),
        "r_tests": float(solved),
        "completion_tokens": 20,
        "finish": "stop",
        "first_token_seconds": 0.01 * (number + 1),
        "between_tokens_ms": [2.0, 2.0],
    }


def evaluation(solved: Sequence[bool], label: str = "model") -> Evaluation:
    return Evaluation(
        label, tuple(row(number, right) for number, right in enumerate(solved)), USAGE, 15_200_000, bits_per_weight=8.5
    )


def test_a_rate_is_shown_in_percent_with_its_interval() -> None:
    assert interval_cell(Interval(0.44, 0.373, 0.509, 200), RATE) == "44.0 [37.3, 50.9]"


def test_a_mean_is_shown_with_three_decimals() -> None:
    assert interval_cell(Interval(0.5, 0.41234, 0.6, 200), MEAN) == "0.500 [0.412, 0.600]"


def test_two_lines_hold_the_value_and_below_it_the_interval() -> None:
    assert interval_cell(Interval(0.44, 0.373, 0.509, 200), RATE, lines=2) == "44.0\n37.3–50.9"


def test_a_difference_carries_its_sign_and_zero_is_never_negative() -> None:
    assert interval_cell(Interval(0.1, -0.0001, 0.2, 9), RATE, signed=True) == "+10.0 [0.0, +20.0]"


def test_a_figure_without_an_interval_stands_alone_and_a_missing_one_is_a_dash() -> None:
    assert interval_cell(Interval(0.5, math.nan, math.nan, 1), RATE) == "50.0"
    assert interval_cell(None, RATE) == "–"


@pytest.mark.parametrize(
    ("count", "cell"),
    [(None, "–"), (999, "999 B"), (15_200_000, "15.2 MB"), (1_366_000_000, "1.37 GB"), (4_096, "4.1 kB")],
)
def test_bytes_are_shown_in_powers_of_ten(count: int | None, cell: str) -> None:
    assert byte_cell(count) == cell


def test_every_table_has_a_row_a_model_and_a_cell_a_column() -> None:
    summaries = [evaluation([True, False], name).summary() for name in ("a", "b", "c")]
    for table in (quality_table(summaries), speed_table(summaries), stage_table(summaries)):
        assert [line[0] for line in table.rows] == ["a", "b", "c"]
        assert all(len(line) == len(table.columns) for line in table.rows)


def test_speed_is_tokens_over_the_seconds_they_took() -> None:
    summary = evaluation([True, False]).summary()
    assert speed_table([summary]).rows[0] == (
        *("model", "500", "1250", "15/19/20 ms", "2.0/2.0/2.0 ms", "250 MB", "15.2 MB", "8.50"),
    )


def test_the_stages_of_all_rows_are_counted() -> None:
    rows = (row(0, True), row(1, False), row(2, False, parses=False))
    summary = Evaluation("m", rows, USAGE).summary()
    assert summary.stages == (1, 0, 0, 1, 1)


def test_a_summary_is_strict_json() -> None:
    for solved in ([True], [True, False]):
        record = summary_record(evaluation(solved).summary())
        assert json.loads(json.dumps(record, allow_nan=False)) == record


def test_csv_has_one_line_a_model_with_the_bounds_of_every_metric() -> None:
    text = to_csv([evaluation([True, False], name).summary() for name in ("a", "b")])
    lines = list(csv.DictReader(io.StringIO(text)))
    assert [line["model"] for line in lines] == ["a", "b"]
    for metric in METRICS:
        assert float(lines[0][f"{metric.name}_low"]) <= float(lines[0][metric.name])
        assert lines[0][f"{metric.name}_n"] == "2"


def test_programs_that_were_denied_something_are_counted_where_somebody_took_notes() -> None:
    noted = tuple({**row(number, True), "denied": [{"kind": "read"}] * (number == 0)} for number in range(4))
    summaries = [Evaluation("a", noted, USAGE).summary(), evaluation([True], "b").summary()]
    table = stage_table(summaries)
    assert [line[table.columns.index("denied")] for line in table.rows] == ["1", "–"]
    assert [summary_record(each)["denied"] for each in summaries] == [1, None]


def test_a_metric_that_does_not_apply_is_empty_in_csv_and_null_in_json() -> None:
    summary = Evaluation("m", (row(0, False, parses=False),), USAGE).summary()
    assert summary_record(summary)["secure_rate"] is None
    line = next(csv.DictReader(io.StringIO(to_csv([summary]))))
    assert line["secure_rate"] == line["secure_rate_low"] == ""


def test_markdown_escapes_bars_in_names() -> None:
    text = bench_markdown([evaluation([True, False], "a|b").summary()])
    assert "| a\\|b |" in text


def test_equal_evaluations_are_not_distinguishable_in_anything() -> None:
    solved = [number % 3 == 0 for number in range(60)]
    comparison = compare(evaluation(solved, "a"), evaluation(solved, "b"))
    assert {verdict(difference) for difference in comparison.differences} == {NOT_DISTINGUISHABLE}


def test_a_model_that_solves_more_of_the_same_problems_is_higher() -> None:
    before, after = [number < 20 for number in range(100)], [number < 45 for number in range(100)]
    comparison = compare(evaluation(before, "a"), evaluation(after, "b"))
    found = {difference.metric.name: difference for difference in comparison.differences}
    assert verdict(found["all_tests_rate"]) == "higher"
    assert found["all_tests_rate"].interval.value == pytest.approx(0.25)
    assert found["all_tests_rate"].p_value == pytest.approx(2 / 2**25)
    assert verdict(found["syntax_rate"]) == NOT_DISTINGUISHABLE


def test_swapped_models_are_lower() -> None:
    before, after = [number < 20 for number in range(100)], [number < 45 for number in range(100)]
    comparison = compare(evaluation(after), evaluation(before))
    assert "lower" in {verdict(difference) for difference in comparison.differences}


def test_a_handful_of_problems_is_not_enough_although_the_bootstrap_leaves_out_zero() -> None:
    comparison = compare(evaluation([False] * 5), evaluation([True] * 5))
    rate = next(difference for difference in comparison.differences if difference.metric.name == "all_tests_rate")
    assert rate.interval.excludes_zero
    assert verdict(rate) == NOT_DISTINGUISHABLE


def test_only_samples_that_both_have_are_compared() -> None:
    first = Evaluation("a", tuple(row(number, True) for number in range(10)), USAGE)
    second = Evaluation("b", tuple(row(number, True) for number in range(5, 20)), USAGE)
    assert compare(first, second).problems == 5


def test_nothing_in_common_cannot_be_compared() -> None:
    first, second = Evaluation("a", (row(0, True),), USAGE), Evaluation("b", (row(1, True),), USAGE)
    with pytest.raises(ValueError, match="no samples in common"):
        compare(first, second)


def test_several_samples_of_a_problem_are_exchanged_together() -> None:
    # Twenty problems that agree with themselves are no more evidence with ten samples each.
    before, after = (
        Evaluation("m", tuple(row(n, n < most, sample=sample) for n in range(20) for sample in range(10)), USAGE)
        for most in (8, 12)
    )
    rate = next(each for each in compare(before, after).differences if each.metric.name == "all_tests_rate")
    assert rate.p_value == pytest.approx(2 / 2**4, abs=0.01)
    assert verdict(rate) == NOT_DISTINGUISHABLE


def test_verdicts_are_corrected_for_their_number() -> None:
    before, after = [number < 20 for number in range(100)], [number < 27 for number in range(100)]
    once = compare(evaluation(before, "a"), evaluation(after, "b"))
    assert "higher" in {verdict(each) for each in once.differences}
    assert {verdict(each) for each in corrected([once])[0].differences} == {NOT_DISTINGUISHABLE}
    noise = [once, *[compare(evaluation(before, "a"), evaluation(before, "c"))] * 3]
    p_values = [each.p_value for each in once.differences]
    assert all(new.p_value >= old for new, old in zip(corrected(noise)[0].differences, p_values, strict=True))


def test_the_conclusion_is_in_words_with_the_problems_that_it_would_take() -> None:
    before, after = [number < 20 for number in range(100)], [number % 10 < 3 for number in range(100)]
    first, second = evaluation(before, "a"), evaluation(after, "b")
    comparisons = corrected([compare(first, second)])
    lines = conclusions([first.summary(), second.summary()], comparisons, " of mbpp, protocol sce")
    assert lines[0] == "a: pass@1 20.0 [13.3, 28.9] % of 100 problems of mbpp, protocol sce"
    assert re.fullmatch(r"b against a: no difference shown \(\+10\.0 points\); about [\d,]+ problems .*", lines[2])
    clear = compare(evaluation([False] * 50, "a"), evaluation([True] * 50, "b"))
    assert conclusions([], corrected([clear])) == ["b against a: higher, +100.0 points"]


def test_the_problems_that_are_needed_show_such_a_difference_in_most_evaluations() -> None:
    random = np.random.default_rng(1)

    def solved(problems: int) -> tuple[list[bool], list[bool]]:
        easy = random.random(problems)
        return [bool(each) for each in random.random(problems) < easy], [
            bool(each) for each in random.random(problems) < np.minimum(1, easy + 0.08)
        ]

    def difference(problems: int) -> Interval:
        before, after = ([[float(each)] for each in side] for side in solved(problems))
        return paired_difference(before, after, resamples=400)

    first = difference(20_000)
    needed = problems_needed(first, 20_000)
    assert needed is not None
    shown = [difference(needed).excludes_zero for _ in range(60)]
    assert 0.65 < sum(shown) / 60 < 0.95


def test_more_verdicts_need_more_problems_for_the_same_power() -> None:
    """A normal estimate of 2.8 standard errors is beyond 1.96 in 80 % of evaluations, of 3.8 beyond 2.94, of 15."""
    alone = problems_needed(Interval(0.1, 0.1 - 0.196, 0.1 + 0.196, 100), 100)
    assert alone == pytest.approx(100 * 2.8016**2, abs=1)
    of_fifteen = problems_needed(Interval(0.1, 0.1 - 0.196, 0.1 + 0.196, 100), 100, 15)
    assert of_fifteen == pytest.approx(100 * (2.9352 + 0.8416) ** 2, abs=2)
    before, after = [number < 20 for number in range(100)], [number < 27 for number in range(100)]
    once = compare(evaluation(before, "a"), evaluation(after, "b"))
    one, three = (corrected([once] * count)[0].differences for count in (1, 3))
    for few, many in zip(one, three, strict=True):
        assert few.needed == problems_needed(few.interval, 100, len(one))
        assert few.needed is None or (many.needed or 0) > few.needed


def test_base_tests_are_a_metric_of_sets_that_have_them() -> None:
    rows = [{**row(n, False), "verdicts": ["pass" if n else "wrong", "wrong"], "has_base_tests": True} for n in (0, 1)]
    summary = Evaluation("m", tuple(rows), USAGE).summary()
    assert summary.metrics["base_tests_rate"].value == 0.5
    assert "with the base tests alone 50.0" in conclusions([summary], [])[0]


def test_a_comparison_is_strict_json_and_has_a_line_a_metric() -> None:
    comparison = compare(evaluation([True, False], "a"), evaluation([True, True], "b"))
    record = comparison_record(comparison)
    assert json.loads(json.dumps(record, allow_nan=False)) == record
    assert set(record["differences"]) == {metric.name for metric in METRICS}
    assert len(comparison_table(comparison).rows) == len(METRICS)


def test_columns_for_security_tests_are_shown_where_problems_have_some() -> None:
    def with_security(number: int, solved: bool, verdict: str, sample: int = 0) -> dict[str, Any]:
        verdicts = [{"name": "n", "cwe": 79, "verdict": verdict}] if verdict else []
        return row(number, solved, sample=sample) | {"security_verdicts": verdicts, "security_total": 1}

    rows = (
        with_security(1, True, "pass"), with_security(1, True, "wrong", 1),
        with_security(2, False, "pass"), with_security(2, True, "", 1),
    )  # fmt: skip
    summary = Evaluation("m", rows, USAGE).summary()
    table = quality_table([summary])
    assert table.columns[-2:] == ("Sec.Tests %", "All-P, secure %")
    assert [cell.partition(" ")[0] for cell in table.rows[0][-2:]] == ["66.7", "25.0"]
    passes = pass_table([summary])
    assert passes is not None
    assert passes.columns == ("Model", "pass@1 %", "pass@2 %", "func-sec@1 %", "func-sec@2 %")
    assert [cell.partition(" ")[0] for cell in passes.rows[0][1:]] == ["75.0", "100.0", "25.0", "50.0"]
    assert summary_record(summary)["func_sec_rate"]["value"] == 0.25
    assert "func_sec_at_2_low" in to_csv([summary])
    plain = evaluation([True, False], "a").summary()
    assert quality_table([plain]).columns == quality_table([plain]).columns[:8]
    assert summary_record(plain)["func_sec_rate"] is None


def test_an_interval_without_bounds_distinguishes_nothing() -> None:
    assert not Difference(MEAN, Interval(0.4, math.nan, math.nan, 1), None).distinguishable


def in_groups(solved: Sequence[bool], label: str, size: int) -> Evaluation:
    """Problems in groups of ``size`` variants."""
    plain = evaluation(solved, label)
    return replace(plain, groups={each["id"]: f"g{number // size}" for number, each in enumerate(plain.rows)})


def test_variants_widen_the_intervals_of_rates_means_and_pass_at_k() -> None:
    """Whole groups pass or fail: 100 problems in 10 groups are ten observations."""
    solved = [number % 20 < 10 for number in range(100)]
    plain, grouped = evaluation(solved).summary(), in_groups(solved, "model", 10).summary()
    assert (plain.groups, grouped.groups) == (100, 10)
    for name in ("all_tests_rate", "r_tests"):
        narrow, wide = (each.metrics[name] for each in (plain, grouped))
        assert wide.value == narrow.value
        assert wide.high - wide.low > 2.5 * (narrow.high - narrow.low)
    twice = tuple(row(n, right, sample=sample) for n, right in enumerate(solved) for sample in range(2))
    groups = {f"p{n}": f"g{n // 10}" for n in range(100)}
    narrow, wide = (Evaluation("m", twice, USAGE, groups=each).summary().pass_at[2] for each in ({}, groups))
    assert wide.n == narrow.n == 200
    assert wide.high - wide.low > 2.5 * (narrow.high - narrow.low)


def test_a_difference_in_one_group_alone_is_not_shown() -> None:
    """Eight of 40 problems improve: all of one group, or two of each."""
    before = [False] * 40
    in_one, spread = [number < 8 for number in range(40)], [number % 5 == 0 for number in range(40)]
    for after, size, shown in ((in_one, 1, True), (in_one, 8, False), (spread, 8, True)):
        comparison = compare(in_groups(before, "a", size), in_groups(after, "b", size))
        assert (comparison.problems, comparison.groups) == (40, 40 // size)
        found = next(each for each in comparison.differences if each.metric.name == "all_tests_rate")
        assert found.interval.value == pytest.approx(0.2)
        if size == 1:
            assert found.distinguishable
        else:
            assert found.interval.excludes_zero is shown


def test_what_is_printed_and_saved_names_the_unit_of_the_intervals() -> None:
    solved = [True, False] * 10
    first, second = in_groups(solved, "a", 4), in_groups(solved[::-1], "b", 4)
    comparison = compare(first, second)
    text = bench_markdown([first.summary()], [comparison], conclusions([first.summary()], [comparison]))
    assert "of 20 problems in 5 groups" in text
    assert "paired, 20 problems in 5 groups:" in text
    assert summary_record(first.summary())["groups"] == comparison_record(comparison)["groups"] == 5
    assert "groups" not in bench_markdown([evaluation(solved).summary()])


def test_equal_models_and_a_single_group_have_no_interval() -> None:
    same = compare(in_groups([True] * 9, "a", 3), in_groups([True] * 9, "b", 3))
    alone = compare(in_groups([True] * 9, "a", 9), in_groups([False] * 9, "b", 9))
    for comparison in (same, alone):
        found = next(each for each in comparison.differences if each.metric.name == "all_tests_rate")
        assert math.isnan(found.interval.low)
        assert not found.distinguishable
        assert found.needed is None
