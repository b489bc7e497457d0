"""The studies behind docs/concepts/study.md and results/README.md, each one a resumable command.

    python benchmarks/study.py table3 --json benchmarks/results/study-table3.json
    python benchmarks/study.py recipe --json benchmarks/results/study-recipe.json
    python benchmarks/study.py confirm --json benchmarks/results/study-confirm.json
    python benchmarks/study.py security --json benchmarks/results/study-security.json
    python benchmarks/study.py security-rules --json benchmarks/results/study-security-rules.json
    python benchmarks/study.py ablations --json benchmarks/results/study-ablations.json
    python benchmarks/study.py half --json benchmarks/results/study-half.json
    python benchmarks/study.py hacking --json benchmarks/results/study-hacking.json
    python benchmarks/study.py c --json benchmarks/results/study-c.json
    python benchmarks/study.py paper-mbpp --json benchmarks/results/study-paper-mbpp.json
    python benchmarks/study.py mbpp --json benchmarks/results/study-mbpp.json
    python benchmarks/study.py mbpp-x8 --json benchmarks/results/study-mbpp-x8.json
    python benchmarks/study.py mbpp-confirm --json benchmarks/results/study-mbpp-confirm.json
    python benchmarks/study.py secodeplt --json benchmarks/results/study-secodeplt.json
    python benchmarks/study.py reliable --json benchmarks/results/study-reliable.json
    python benchmarks/study.py programs --json benchmarks/results/study-programs.json
    python benchmarks/study.py secure --json benchmarks/results/study-secure.json

``table3`` has the variants of ``sce reproduce table3`` and some more. All studies share one folder, so a variant of two
studies is trained once. Finished arms are not repeated. Their figures and the log of
steps are committed, so a study resumes on another machine. ``--record`` runs nothing and writes the results that exist.
``--only`` runs single variants; the column "reproduce with" of results/README.md names them.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from qwen_studies import benchmarks_of_reliable, programs, reliable, secure
from record import publish
from smollm2_studies import mbpp, mbpp_confirm, mbpp_samples, paper_mbpp, parts_of_mbpp, secodeplt
from starter_studies import (
    ablations,
    c,
    confirm,
    hacking,
    half,
    main_table,
    merged,
    recipe,
    security,
    security_rules,
)
from study_engine.arms import Arm, Study
from study_engine.run_log import Step
from study_engine.steps import all_steps, run_study
from study_engine.study_record import on_parts, study_record
from study_engine.study_tables import study_tables

from securecoderl_edge.evaluation.tables import to_markdown

_SPLITS = ("eval", "hard", "weak-eval", "weak-hard")
# Arms whose setting was removed, and a commit with it. Their results stay in the record of their study.
REMOVED_ARMS = {
    "half-refill": "335ab42",
    "half-by-rate": "020c0b3",
    "hard-maxrl-32": "a18fbf1",
    "security-separate": "b67c9b8",
    **dict.fromkeys(
        (*(f"{split}-{name}" for split in _SPLITS for name in ("hints", "relift")), "mbpp-relift"), "a3d71ad"
    ),
}


STUDIES: dict[str, Callable[[Path], Study]] = {
    "table3": main_table,
    "recipe": recipe,
    "confirm": confirm,
    "security": security,
    "security-rules": security_rules,
    "ablations": ablations,
    "half": half,
    "hacking": hacking,
    "c": c,
    "paper-mbpp": paper_mbpp,
    "mbpp": mbpp,
    "mbpp-x8": mbpp_samples,
    "mbpp-confirm": mbpp_confirm,
    "secodeplt": secodeplt,
    "reliable": reliable,
    "programs": programs,
    "secure": secure,
}
# Of studies with results on parts of their problems: the ids that each part leaves out.
PARTS: dict[str, Callable[[Study], dict[str, set[str]]]] = {"mbpp": parts_of_mbpp, "reliable": benchmarks_of_reliable}


def smaller(study: Study) -> Study:
    """A smoke test of a few minutes: one seed, two updates, 10 problems."""
    phases = ("sft", "binary", "partial", "scheduled", "rft", "ssd")
    steps = (*(f"{phase}.steps=2" for phase in phases), "ppo.value_warmup_steps=0")

    def quick(arm: Arm) -> Arm:
        base, settings = replace(arm.split, base=None), merged(arm, steps)
        return replace(arm, settings=settings, split=base, measured_on=(base,), quants=(), snapshot_every=None)

    arms, base = tuple(quick(arm) for arm in study.arms), study.base_run and (quick(study.base_run[0]), study.seeds[0])
    return replace(
        study, arms=arms, base_run=base, seeds=study.seeds[:1], samples=1, limit=10, folder=study.folder / "quick"
    )


def removed_arms(before: dict[str, Any]) -> tuple[list[dict[str, Any]], list[tuple[str, str]]]:
    """Of an earlier record: the arms of `REMOVED_ARMS`, and the comparisons with them."""
    pairs = [(each["first"], each["second"]) for each in before.get("comparisons", ())]
    return (
        [arm for arm in before.get("arms", ()) if arm["name"] in REMOVED_ARMS],
        [pair for pair in dict.fromkeys(pairs) if REMOVED_ARMS.keys() & set(pair)],
    )


def with_costs_of(before: dict[str, Any], record: dict[str, Any]) -> dict[str, Any]:
    """The record with the machine and the costs of an earlier one, if nothing was trained or evaluated since."""
    if before.get("steps_done", 0) < record["steps_done"]:
        return record
    return record | {name: before[name] for name in ("machine", "commit", "steps", "steps_done", "wall_seconds")}


def key_figures(record: dict[str, Any]) -> dict[str, Any]:
    """All-P and Sec.Clean of each final policy, by arm and split."""
    return {
        f"{arm['name']} on {result['split']}": {
            name: (result["metrics"][name] or {}).get("value") for name in ("all_tests_rate", "secure_rate")
        }
        for arm in record["arms"]
        for result in arm["results"]
        if result["model"] == "policy"
    }


def say(step: Step, seconds: float, done: int, total: int) -> None:
    """One progress line per step."""
    sys.stderr.write(f"[{done}/{total}] {step.title}, {seconds:.0f} s\n")
    sys.stderr.flush()


def main() -> None:
    """Parse the command line, run, print and save."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("study", choices=STUDIES)
    parser.add_argument(
        "--runs", type=Path, default=Path("benchmarks/results/study"), help="folder for the runs and their results"
    )
    parser.add_argument("--jobs", type=int, default=2, help="trainings in parallel")
    parser.add_argument("--only", action="append", metavar="VARIANT", help="run only this variant (repeatable)")
    parser.add_argument("--seeds", type=int, metavar="N", help="run only the first N seeds")
    parser.add_argument("--quick", action="store_true", help="smoke test: two updates, one seed, 10 problems")
    parser.add_argument("--record", action="store_true", help="run nothing; write the results that exist")
    parser.add_argument("--dry-run", action="store_true", help="print the commands and run nothing")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results to FILE")
    arguments = parser.parse_args()
    results = Path(__file__).resolve().parent / "results"
    if (
        arguments.json
        and arguments.json.resolve().parent == results
        and (arguments.only or arguments.seeds or arguments.quick)
    ):
        parser.error("--json would replace the committed results of all variants by those of some")

    study = STUDIES[arguments.study](arguments.runs)
    if arguments.seeds:
        study = replace(study, seeds=study.seeds[: arguments.seeds])
    if arguments.only:
        known = {arm.name for arm in study.arms}
        unknown = sorted(set(arguments.only) - known)
        if unknown:
            parser.error(f"--only: unknown variant {unknown[0]}. Choose from {', '.join(sorted(known))}.")
        pairs = tuple(pair for pair in study.comparisons if set(pair) <= set(arguments.only))
        arms = tuple(arm for arm in study.arms if arm.name in arguments.only)
        study = replace(study, arms=arms, comparisons=pairs)
    if arguments.quick:
        study = smaller(study)
    if arguments.dry_run:
        for step in all_steps(study, arguments.jobs):
            sys.stdout.write(f"{step.command}\n")
        return
    if not arguments.record:
        run_study(study, arguments.jobs, say)
    is_there = arguments.json is not None and arguments.json.is_file()
    before = json.loads(arguments.json.read_text(encoding="utf-8")) if is_there else {}
    removed, of_removed = removed_arms(before)
    record = study_record(study, arguments.jobs, removed=removed, pairs=of_removed)
    if arguments.study in PARTS:
        left_out = PARTS[arguments.study](study)
        record |= {"subsets": on_parts(study, arguments.jobs, left_out, removed, of_removed)}
    record = with_costs_of(before, record)
    for title, table in study_tables(record):
        sys.stdout.write(f"{title}\n\n{to_markdown(table)}\n")
    publish(record, arguments.json, shown=key_figures(record))


if __name__ == "__main__":
    main()
