"""Rows of the studies, chosen at random, trained and evaluated again by the present code and compared with the record.

    python benchmarks/rerun_rows.py table3 recipe --json benchmarks/results/rerun-rows.json
    python benchmarks/rerun_rows.py mbpp:mbpp-sft:42 --json benchmarks/results/rerun-rows.json

A row is a variant with one of its seeds; STUDY:VARIANT:SEED names one that is not chosen at random. Rows that the file
has are kept and not run again. Another processor rounds differently, so single programs change, and selection may keep
another update: a row agrees if both rates are within three standard errors of each other, with every program counted as
independent.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from record import publish
from study import REMOVED_ARMS, STUDIES, say
from study_directives import RESULTS, arm_record, policy_result
from study_engine.steps import run_study
from study_engine.study_record import study_record

from securecoderl_edge.system.files import read_json

RATES = {"all_tests_rate": "all_tests_by_seed", "syntax_rate": "syntax_by_seed"}


def rerun(study_name: str, record: dict[str, Any], arm: str, seed: int, runs: Path) -> list[dict[str, Any]]:
    """Run a row and set each of its rates beside those of the committed record."""
    study = STUDIES[study_name](runs)
    arms = tuple(each for each in study.arms if each.name == arm)
    study = replace(study, arms=arms, comparisons=(), seeds=(seed,))
    run_study(study, 1, say)
    records = {"recorded": record, "again": study_record(study, 1)}
    recorded, again = (arm_record(records, each, arm) for each in records)
    place = recorded["seeds"].index(seed)
    rows = []
    for split in dict.fromkeys(result["split"] for result in recorded["results"]):
        before, after = policy_result(recorded, split), policy_result(again, split)
        programs = after["metrics"]["syntax_rate"]["n"]
        for rate, by_seed in RATES.items():
            old, new = before[by_seed][place], after[by_seed][0]
            mean = (old + new) / 2
            error = math.sqrt(2 * max(mean * (1 - mean), 1 / programs) / programs)
            rows.append({
                "study": study_name, "arm": arm, "seed": seed, "split": split, "rate": rate, "programs": programs,
                "recorded": old, "again": round(new, 4), "agrees": abs(new - old) <= 3 * error,
                "selected": {"recorded": recorded["kept"][place], "again": again["kept"][0]},
            })  # fmt: skip
    return rows


def main() -> None:
    """Choose, run, compare and save after each row."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("studies", nargs="+", metavar="STUDY[:VARIANT:SEED]")
    parser.add_argument("--rows", type=int, default=3, help="of each study")
    parser.add_argument("--seed", type=int, default=0, help="of the choice")
    parser.add_argument("--runs", type=Path, default=Path("runs/rerun"), help="folder for the runs")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results to FILE")
    arguments = parser.parse_args()
    found = read_json(arguments.json)["rows"] if arguments.json and arguments.json.is_file() else []
    known = {(row["study"], row["arm"], row["seed"]) for row in found}
    for words in arguments.studies:
        name, *row = words.split(":")
        if name not in STUDIES or (row and not (len(row) == 2 and row[1].isdecimal())):
            parser.error(f"{words}: not STUDY or STUDY:VARIANT:SEED; studies: {', '.join(STUDIES)}")
        record = read_json(RESULTS / f"study-{name}.json")
        arms = [arm for arm in record["arms"] if arm["name"] not in REMOVED_ARMS]
        every = [(arm["name"], seed) for arm in arms for seed in arm["seeds"]]
        chosen = random.Random(f"{arguments.seed} {name}").sample(every, arguments.rows)
        for arm, seed in [(row[0], int(row[1]))] if row else chosen:
            if (name, arm, seed) in known:
                continue
            found += rerun(name, record, arm, seed, arguments.runs)
            publish({"rows": found}, arguments.json, shown={"rows": len(found), "last": found[-1]})
    if not all(row["agrees"] for row in found):
        sys.exit(1)


if __name__ == "__main__":
    main()
