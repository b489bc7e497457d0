"""The plots of the study: alt texts and titles state what the committed results hold."""

from __future__ import annotations

import html
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import study_plots
from places import ROOT
from quick import few

BENCHMARKS = ROOT / "benchmarks"
NAMES = ("variants", "security", "ablations")


@pytest.fixture
def records() -> Any:
    files = {name: BENCHMARKS / "results" / f"study-{name}.json" for name in ("table3", "security", "ablations")}
    return {name: json.loads(file.read_text(encoding="utf-8")) for name, file in files.items()}


def set_difference(record: Any, first: str, second: str, metric: str, *bounds: float) -> None:
    for each in record["comparisons"]:
        if (each["first"], each["second"]) == (first, second):
            each["metrics"][metric] = dict(zip(("low", "value", "high", "n"), (*bounds, 10), strict=True))


def test_alt_texts_need_no_matplotlib(records: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert tuple(study_plots.PLOTS) == NAMES
    assert all(study_plots.alt_text(name, records) for name in NAMES)


def test_an_alt_text_states_the_differences_from_sft_and_their_significance(records: Any) -> None:
    table = records["table3"]
    variants = [arm["name"] for arm in table["arms"] if arm["split"] == "eval" and arm["phases"] != ["sft"]]
    for first in ("eval-sft", "eval-sft-225"):
        set_difference(table, "eval-sft", "eval-sft-225", "all_tests_rate", -0.1, 0.0, 0.1)
        for variant in variants:
            low = 0.01 if (first, variant) == ("eval-sft", "eval-simple") else -0.01
            set_difference(table, first, variant, "all_tests_rate", low, 0.055, 0.1)
    text = study_plots.alt_text("variants", records)
    assert f"1 of {2 * len(variants) + 1} differences are significant: simple minus SFT +5.5 [1.0, 10.0]" in text
    assert "200 held-out problems in 111 groups, 2 samples per problem" in text


def test_the_title_counts_what_is_significant(records: Any) -> None:
    plot, record = study_plots.PLOTS["security"], records["security"]
    for each in record["comparisons"]:
        each["metrics"]["func_sec_rate"] = {"value": 0.1, "low": -0.1, "high": 0.3, "n": 10}
    total = len(record["comparisons"])
    assert plot.title(record).startswith(f"Security: 0 of {total} differences in programs that pass all tests and")
    set_difference(record, "security-sft", "security-beta-0.0", "func_sec_rate", 0.05, 0.1, 0.15)
    assert plot.title(record).startswith(f"Security: 1 of {total}")


def test_every_ablation_has_a_name_in_plain_words(records: Any) -> None:
    compared = records["ablations"]["comparisons"]
    assert {(each["second"], each["first"]) for each in compared} >= set(study_plots._ABLATIONS)
    assert {each["second"] for each in compared} == {second for second, _ in study_plots._ABLATIONS}


def test_an_unknown_plot_is_an_error(records: Any) -> None:
    with pytest.raises(KeyError):
        study_plots.alt_text("hacking", records)


@pytest.mark.parametrize("again", few(["security", "all"], "security"))
def test_the_same_records_give_the_same_files(records: Any, tmp_path: Path, again: str) -> None:
    pytest.importorskip("matplotlib")
    study_plots.draw_all(records, tmp_path / "one")
    made = {file.stem: file.read_bytes() for file in (tmp_path / "one").iterdir()}
    assert set(made) == set(NAMES)
    study_plots.draw_all(records if again == "all" else {again: records[again]}, tmp_path / "two")
    twice = {file.stem: file.read_bytes() for file in (tmp_path / "two").iterdir()}
    assert twice == (made if again == "all" else {again: made[again]})


@pytest.mark.parametrize("name", NAMES)
def test_a_committed_plot_describes_the_committed_results(records: Any, name: str) -> None:
    svg = (ROOT / "docs" / "plots" / f"{name}.svg").read_text(encoding="utf-8")
    (text,) = re.findall("<desc>(.*?)</desc>", svg)
    assert html.unescape(text) == study_plots.alt_text(name, records), "run: make study"
    (title,) = re.findall("<title>(.*?)</title>", svg)
    assert html.unescape(title) == study_plots.PLOTS[name].title(records[study_plots.PLOTS[name].study]), (
        "run: make study"
    )
