"""The studies behind benchmarks/STUDY.md, each one resumable command.

    python benchmarks/study.py table3 --json benchmarks/results/study-table3.json
    python benchmarks/study.py confirm --json benchmarks/results/study-confirm.json
    python benchmarks/study.py security --json benchmarks/results/study-security.json
    python benchmarks/study.py ablations --json benchmarks/results/study-ablations.json
    python benchmarks/study.py hacking --json benchmarks/results/study-hacking.json

``table3`` is what ``sce reproduce table3 --jobs 2 --out runs/study`` does. All studies share one folder, so that an arm
that two of them have is trained once. What is done is not done again; ``--record`` writes the figures of what there is.
``--arm`` names the arms to run, and a table row names its arm.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from figures import publish

from securecoderl_edge.evaluation.study.arms import FIRST_SEED, Arm, Base, Split, Study
from securecoderl_edge.evaluation.study.ledger import Step
from securecoderl_edge.evaluation.study.record import study_record
from securecoderl_edge.evaluation.study.steps import all_steps, run_study
from securecoderl_edge.evaluation.study.table3 import NANO_HARD, table3
from securecoderl_edge.evaluation.study.tables import study_tables
from securecoderl_edge.evaluation.tables import to_markdown

BETAS = (0.0, 0.2, 0.4, 0.6, 0.8)
PAPERS_BETA = 0.4

# Of nano's programs for the security problems 2.5 % pass all tests: it has nothing to lose by being safe. After text of
# which two fifths are about other problems of the kind, answered unsafely as often as safely, 55 % do.
NANO_SECURITY = Base(
    "nano-security",
    1200,
    (
        *("--documents", "20000", "--security-share", "2/5"),
        *("--learning-rate", "1e-3", "--seed", "1", "--compiled"),
    ),
)
SECURITY = Split("security", "starter:security-train", "starter:security", NANO_SECURITY)
# Of these a fifth of the tests can be copied from the statement; of `hard`, the same problems, none.
SHOWN = Split("shown", "starter:shown-train", "starter:shown", NANO_HARD)
HIDDEN = Split("hard", "starter:hard-train", "starter:hard", NANO_HARD)


def main_table(folder: Path) -> Study:
    """SFT and the four PPO variants on both splits, before and after quantisation."""
    return table3("starter", folder)


def security(folder: Path) -> Study:
    """What the weight of R_sec moves, and by which scale of severities."""
    arm = partial(Arm, split=SECURITY, measured_on=(SECURITY,), snapshot_every=20)
    arms = [arm("security-sft", "SFT", phases=("sft",), settings=())]
    for beta in BETAS:
        settings: tuple[str, ...] = ("partial.steps=60", f"reward.security_weight={beta}")
        arms.append(arm(f"security-beta-{beta}", f"beta {beta}", phases=("sft", "partial"), settings=settings))
    settings = ("partial.steps=60", f"reward.security_weight={PAPERS_BETA}", "reward.severity=cwe")
    arms.append(arm("security-cwe", f"beta {PAPERS_BETA}, CWE", phases=("sft", "partial"), settings=settings))
    without, papers = "security-beta-0.0", f"security-beta-{PAPERS_BETA}"
    pairs = [("security-sft", each.name) for each in arms[1:]]
    pairs += [(without, each.name) for each in arms[2:]]
    return _study("security", folder, arms, [*pairs, (papers, "security-cwe")], seeds=5)


def ablations(folder: Path) -> Study:
    """One choice changed at a time; the arms of table3 are what it is changed from."""
    main = main_table(folder)
    known = {arm.name: arm for arm in main.arms}
    with_values = (
        *("ppo.advantage=gae", "ppo.samples_per_prompt=1"),
        *("ppo.drop_zero_variance_groups=false", "ppo.value_warmup_steps=10"),
    )
    changed = (
        ("eval-sft", "sft-130", "SFT, 130 updates", ("sft.steps=130",)),
        ("eval-simple", "gae", "GAE and a value head", with_values),
        ("eval-simple", "groups-4", "4 samples a prompt", ("ppo.samples_per_prompt=4",)),
        ("eval-simple", "groups-16", "16 samples a prompt", ("ppo.samples_per_prompt=16",)),
        ("eval-simple", "rate-3e-4", "learning rate 3e-4", ("ppo.learning_rate=3e-4",)),
        ("eval-simple", "rate-3e-3", "learning rate 3e-3", ("ppo.learning_rate=3e-3",)),
        ("eval-cont", "binary-30", "30 binary updates of 120", ("binary.steps=30", "partial.steps=90")),
        ("eval-cont", "binary-90", "90 binary updates of 120", ("binary.steps=90", "partial.steps=30")),
        ("eval-sched", "switch", "mixture: a hard switch", ("scheduled.mixture=step",)),
        ("eval-sched", "pass-rate", "mixture: by pass rate", ("scheduled.mixture=pass-rate",)),
        ("hard-sft", "hard-sft-130", "SFT, 130 updates", ("sft.steps=130",)),
        ("hard-simple", "hard-simple-paper", "binary, R of the paper", ("reward.unparsable=paper",)),
        ("hard-fresh", "hard-fresh-paper", "partial, R of the paper", ("reward.unparsable=paper",)),
    )  # fmt: skip
    arms = [known[name] for name in ("eval-sft", "eval-simple", "eval-fresh", "eval-cont", "eval-sched")]
    arms += [known[name] for name in ("hard-sft", "hard-simple", "hard-fresh")]
    pairs = []
    for reference, name, title, settings in changed:
        from_arm = known[reference]
        arms.append(_changed(from_arm, name, title, settings))
        pairs.append((reference, name))
    # Equally many updates, from solutions or from execution.
    pairs += [("sft-130", "eval-simple"), ("hard-sft-130", "hard-simple"), ("hard-sft-130", "hard-fresh")]
    # Where text that does not parse is paid, which reward teaches syntax?
    pairs += [("hard-sft", "hard-simple-paper"), ("hard-sft", "hard-fresh-paper")]
    pairs += [("hard-simple-paper", "hard-fresh-paper")]
    return _study("ablations", folder, arms, pairs, seeds=3)


def confirm(folder: Path) -> Study:
    """The policies of table3 that learnt from `eval`, measured again: eight programs for each problem, other draws."""
    main = main_table(folder)
    arms = tuple(replace(arm, measured_on=(arm.split,), quants=()) for arm in main.arms if arm.split.name == "eval")
    names = {arm.name for arm in arms}
    pairs = tuple(pair for pair in main.comparisons if set(pair) <= names)
    return replace(main, name="confirm", arms=arms, samples=8, comparisons=pairs, own_draws=True)


def hacking(folder: Path) -> Study:
    """What a reward that can be gamed teaches, and what guards cost: one test of five stands in the statement."""
    gameable = ("reward.credit_rule=published", "reward.unparsable=paper")
    rewards: tuple[tuple[str, str, tuple[str, ...]], ...] = (
        ("published", "reward of the published code", gameable),
        ("plain", "our reward", ()),
        ("dropped", "without shown tests", ("reward.visible_tests=drop",)),
        ("constants", "without constants", ("reward.subtract_constant_baseline=true",)),
        ("both", "without either", ("reward.visible_tests=drop", "reward.subtract_constant_baseline=true")),
    )
    arm = partial(Arm, split=SHOWN, measured_on=(SHOWN, HIDDEN), snapshot_every=40)
    arms = [arm("shown-sft", "SFT", phases=("sft",), settings=())]
    for name, title, settings in rewards:
        settings = ("partial.steps=80", *settings)
        arms.append(arm(f"shown-{name}", title, phases=("sft", "partial"), settings=settings))
    pairs = [("shown-sft", each.name) for each in arms[1:]]
    pairs += [("shown-plain", each.name) for each in arms[1:] if each.name != "shown-plain"]
    return _study("hacking", folder, arms, pairs, seeds=3)


STUDIES: dict[str, Callable[[Path], Study]] = {
    "table3": main_table,
    "confirm": confirm,
    "security": security,
    "ablations": ablations,
    "hacking": hacking,
}


def _study(name: str, folder: Path, arms: list[Arm], pairs: list[tuple[str, str]], seeds: int) -> Study:
    return Study(
        name, "starter", folder, tuple(arms), tuple(range(FIRST_SEED, FIRST_SEED + seeds)), 2, comparisons=tuple(pairs)
    )


def _changed(arm: Arm, name: str, title: str, settings: tuple[str, ...]) -> Arm:
    """The arm with other settings, measured on its own split, without exports; later settings replace earlier ones."""
    return replace(arm, name=name, title=title, settings=_merged(arm, settings), measured_on=(arm.split,), quants=())


def _merged(arm: Arm, settings: tuple[str, ...]) -> tuple[str, ...]:
    keys = {setting.partition("=")[0] for setting in settings}
    return (*(setting for setting in arm.settings if setting.partition("=")[0] not in keys), *settings)


def smaller(study: Study) -> Study:
    """The same in a few minutes, to see that it works: one seed, two updates, 10 problems."""
    steps = ("binary.steps=2", "partial.steps=2", "scheduled.steps=2", "ppo.value_warmup_steps=0", "sft.steps=2")

    def quick(arm: Arm) -> Arm:
        base, settings = replace(arm.split, base=None), _merged(arm, steps)
        return replace(arm, settings=settings, split=base, measured_on=(base,), quants=(), snapshot_every=None)

    arms = tuple(quick(arm) for arm in study.arms)
    return replace(study, arms=arms, seeds=study.seeds[:1], samples=1, limit=10, folder=study.folder / "quick")


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
    """A line for each step."""
    sys.stderr.write(f"[{done}/{total}] {step.title}, {seconds:.0f} s\n")
    sys.stderr.flush()


def main() -> None:
    """Parse the command line, run, print and save."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("study", choices=STUDIES)
    parser.add_argument("--runs", type=Path, default=Path("runs/study"), help="folder of the runs")
    parser.add_argument("--jobs", type=int, default=2, help="trainings side by side")
    parser.add_argument("--arm", action="append", help="only these (repeat it)")
    parser.add_argument("--seeds", type=int, help="only the first so many")
    parser.add_argument("--quick", action="store_true", help="a few updates, one seed, 10 problems")
    parser.add_argument("--record", action="store_true", help="run nothing; the figures of what is there")
    parser.add_argument("--dry-run", action="store_true", help="print the commands")
    parser.add_argument("--json", type=Path, help="file for the figures")
    arguments = parser.parse_args()

    study = STUDIES[arguments.study](arguments.runs)
    if arguments.seeds:
        study = replace(study, seeds=study.seeds[: arguments.seeds])
    if arguments.arm:
        known = {arm.name for arm in study.arms}
        if set(arguments.arm) - known:
            parser.error(f"--arm: there are {', '.join(sorted(known))}")
        pairs = tuple(pair for pair in study.comparisons if set(pair) <= set(arguments.arm))
        arms = tuple(arm for arm in study.arms if arm.name in arguments.arm)
        study = replace(study, arms=arms, comparisons=pairs)
    if arguments.quick:
        study = smaller(study)
    if arguments.dry_run:
        for step in all_steps(study, arguments.jobs):
            sys.stdout.write(f"{step.command}\n")
        return
    if not arguments.record:
        run_study(study, arguments.jobs, say)
    record = study_record(study, arguments.jobs)
    for title, table in study_tables(record):
        sys.stdout.write(f"{title}\n\n{to_markdown(table)}\n")
    publish(record, arguments.json, shown=key_figures(record))


if __name__ == "__main__":
    main()
