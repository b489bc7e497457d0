"""How large are the right programs of the study `c` on a microcontroller? Code and stack for a Cortex-M3, in bytes.

    python benchmarks/study.py c
    python benchmarks/c_footprints.py --json benchmarks/results/c-footprints.json

Reads the programs that the study's policies wrote for ``starter:c-eval``, so it needs the run folders, and builds those
that pass all tests (gcc ``-Os``). The models have seen no limits: this is the size of what they write by themselves.
Differences are paired by seed and problem. Programs with a stack that gcc cannot bound are left out of its mean.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from record import publish
from starter_studies import c
from study_engine.arms import Arm, Study

from securecoderl_edge.evaluation.tables import interval_record
from securecoderl_edge.languages.targets import CORTEX_M3
from securecoderl_edge.problems.problem import Problem
from securecoderl_edge.problems.sources import load_problems
from securecoderl_edge.scoring.cluster_intervals import Values, difference_over_seeds, mean_over_seeds
from securecoderl_edge.scoring.metrics import passes_all_tests
from securecoderl_edge.scoring.scorer import Scorer
from securecoderl_edge.system.rows import RowFile

KINDS = ("code_bytes", "stack_bytes")


def footprints(folder: Path, problems: dict[str, Problem], scorer: Scorer) -> Iterator[tuple[str, dict[str, Any]]]:
    """The problem and the footprint of each right program in an evaluation's folder."""
    (rows,) = folder.glob("*/rows.jsonl")
    for row in RowFile(rows).read():
        if passes_all_tests(row):
            score = scorer.score(problems[row["id"]], row["program"])
            if score.footprint:  # else it does not build without the functions of a larger system
                yield row["id"], dict(score.footprint)


def values_of(study: Study, arm: Arm, problems: dict[str, Problem], scorer: Scorer) -> dict[str, Values]:
    """Bytes of an arm's right programs, for each kind by seed, problem and sample."""
    found: dict[str, list[list[list[float]]]] = {kind: [] for kind in KINDS}
    for seed in study.seeds:
        made: dict[str, dict[str, list[float]]] = {kind: {name: [] for name in problems} for kind in KINDS}
        for name, footprint in footprints(study.bench_folder(arm, seed, arm.split), problems, scorer):
            for kind in KINDS:
                if footprint[kind] is not None:
                    made[kind][name].append(float(footprint[kind]))
        for kind in KINDS:
            found[kind].append(list(made[kind].values()))
    return dict(found)


def both(first: Values, second: Values) -> tuple[Values, Values]:
    """The values of the problems that both sides solve with the same seed."""
    pairs = [
        [(a, b) if a and b else ([], []) for a, b in zip(one, two, strict=True)]
        for one, two in zip(first, second, strict=True)
    ]
    return [[a for a, _ in row] for row in pairs], [[b for _, b in row] for row in pairs]


def main() -> None:
    """Parse the command line, measure and save."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "--runs", type=Path, default=Path("benchmarks/results/study"), help="folder of the study's runs"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results to FILE")
    arguments = parser.parse_args()
    study = c(arguments.runs)
    split = study.arms[0].split
    problems = {each.id: replace(each, target=CORTEX_M3.name) for each in load_problems(split.eval)}
    with Scorer(analyzers="off") as scorer:
        values = {arm.name: values_of(study, arm, problems, scorer) for arm in study.arms}
    results = {
        "arms": {
            name: {kind: interval_record(mean_over_seeds(of_arm[kind])) for kind in KINDS}
            for name, of_arm in values.items()
        },
        "differences": {
            f"{second} minus {first}": {
                kind: interval_record(difference_over_seeds(*both(values[first][kind], values[second][kind])))
                for kind in KINDS
            }
            for first, second in study.comparisons
        },
    }
    publish(results, arguments.json)


if __name__ == "__main__":
    main()
