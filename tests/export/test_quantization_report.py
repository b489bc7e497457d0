"""The quantization report: its verdicts are one family."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from securecoderl_edge.evaluation.evaluate import Evaluation
from securecoderl_edge.export import quantization_report
from securecoderl_edge.runtimes.protocol import Usage


def evaluation(label: str, solved: int) -> Evaluation:
    def row(number: int) -> dict[str, Any]:
        right = number < solved
        return {
            "id": f"p{number}", "sample": 0, "stage": 4 if right else 3, "passed": int(right), "total": 1,
            "severity": 0.0, "reward": float(right), "reward_paper": float(right), "r_tests": float(right),
        }  # fmt: skip

    return Evaluation(label, tuple(map(row, range(100))), Usage(0, 0.0, 0, 0.0, 0))


@pytest.mark.parametrize(("solved", "verdict"), [(33, "not distinguishable"), (20, "lower")])
def test_verdicts_are_corrected_for_the_number_of_files(
    monkeypatch: pytest.MonkeyPatch, solved: int, verdict: str
) -> None:
    """Seven more of 100 problems have p = 0.016 alone; no verdict of several files."""
    of_files = {"base": evaluation("base", 40)} | {name: evaluation(name, solved) for name in ("q8_0", "q4_0")}
    monkeypatch.setattr(quantization_report, "with_budgets", lambda settings, specs: settings)
    monkeypatch.setattr(quantization_report, "resolve_model", lambda name: name)
    monkeypatch.setattr(quantization_report, "measure", lambda spec, *_: of_files[spec])
    results: list[Any] = [
        SimpleNamespace(
            path=Path(name),
            manifest=SimpleNamespace(quant=name, bytes=1, agreement=SimpleNamespace(mean_kl=0.0, top1=1.0)),
        )
        for name in ("q8_0", "q4_0")
    ]
    spec, scorer = "base", None
    report = quantization_report.measure_quantization(spec, results, [], scorer)  # type: ignore[arg-type]
    for row in report.table.rows:
        assert row[6].endswith(f"] {verdict}"), row
