"""The studies behind docs/study.md and docs/study-tables.md, each one a resumable command.

    python benchmarks/study.py table3 --json benchmarks/results/study-table3.json
    python benchmarks/study.py recipe --json benchmarks/results/study-recipe.json
    python benchmarks/study.py confirm --json benchmarks/results/study-confirm.json
    python benchmarks/study.py security --json benchmarks/results/study-security.json
    python benchmarks/study.py security-rules --json benchmarks/results/study-security-rules.json
    python benchmarks/study.py ablations --json benchmarks/results/study-ablations.json
    python benchmarks/study.py half --json benchmarks/results/study-half.json
    python benchmarks/study.py hacking --json benchmarks/results/study-hacking.json
    python benchmarks/study.py paper-mbpp --json benchmarks/results/study-paper-mbpp.json
    python benchmarks/study.py mbpp --json benchmarks/results/study-mbpp.json

``table3`` has the variants of ``sce reproduce table3`` and some more. All studies share one folder, so a variant of two
studies is trained once. Finished arms are not repeated. Their figures and the log of
steps are committed, so a study resumes on another machine. ``--record`` runs nothing and writes the results that exist.
``--only`` runs single variants; the column "reproduce with" of docs/study-tables.md names them.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from record import publish

from securecoderl_edge.evaluation.study.arms import FIRST_SEED, Arm, Base, Split, Study
from securecoderl_edge.evaluation.study.record import study_record
from securecoderl_edge.evaluation.study.run_log import Step, evaluation_problems
from securecoderl_edge.evaluation.study.steps import all_steps, run_study
from securecoderl_edge.evaluation.study.table3 import NANO_HARD, PPO_VARIANTS, VARIANTS, table3
from securecoderl_edge.evaluation.study.tables import study_tables
from securecoderl_edge.evaluation.tables import to_markdown
from securecoderl_edge.problems.leakage import constant_passes
from securecoderl_edge.training.settings import CURRICULUM

# The SFT of the recipe before today's, and its learning rate of RL.
WEAK_SFT = ("sft.steps=10", "sft.learning_rate=3e-4", "sft.solutions=any")
RATE_BEFORE = "ppo.learning_rate=1e-3"
NO_BETA = 0.0
PAPERS_BETA = 0.4
# The shortest solution of a security problem is often the unsafe one.
ANY_SOLUTION = ("sft.solutions=any",)
# Updates of SFT that take SmolLM2 about as long as SFT and 40 updates of RL.
LONG_SFT = 150
# Problems of mbpp:test up to this one were seen in trials before the study.
LAST_OF_TRIALS = 110
OVERLAPS = Path(__file__).with_name("results") / "mbpp-overlap.json"  # mbpp_overlap.py
ALL_P = "all_tests_rate"
# Arms whose setting was removed, and a commit with it. Their results stay in the record of their study.
REMOVED_ARMS = {
    "half-refill": "335ab42",
    "half-by-rate": "020c0b3",
    "hard-maxrl-32": "a18fbf1",
    "security-separate": "b67c9b8",
}

# Only 2 % of nano's programs for the security problems pass all tests, so being safe would cost it nothing. After more
# pretraining, with two fifths of the text about other security problems (half of the solutions unsafe), 33 % pass.
NANO_SECURITY = Base(
    "nano-security",
    1200,
    (
        *("--documents", "20000", "--security-share", "2/5"),
        *("--learning-rate", "1e-3", "--seed", "1", "--compiled"),
    ),
)
SECURITY = Split("security", "starter:security-train", "starter:security", NANO_SECURITY)
# Trained on code injection alone; the other weaknesses are held out.
CODE = Split("code", "starter:code-train", "starter:code", NANO_SECURITY)
NOT_CODE = Split("not-code", "starter:code-train", "starter:not-code", NANO_SECURITY)
# One test in five can be copied from the statement; `hard` has the same problems without such tests.
SHOWN = Split("shown", "starter:shown-train", "starter:shown", NANO_HARD)
HIDDEN = Split("hard", "starter:hard-train", "starter:hard", NANO_HARD)
# The same training problems; only about half of them have solutions.
HALF = Split("half", "starter:half-train", "starter:hard", NANO_HARD)


def main_table(folder: Path) -> Study:
    """The variants of `sce reproduce table3`, SFT of about equal time, and references inside RL.

    All but SFT have 40 updates after the same SFT policy. 40 of RL, which sample 64 programs each, take about as long
    as 30 to 40 of SFT, which read 32 references each.
    """
    preset = table3("starter", folder, quants=())
    arms, pairs = [], []
    for split in preset.splits:
        known = {arm.name: replace(arm, measured_on=(split,), snapshot_every=None) for arm in preset.arms}
        sft, simple, *others = (arm for arm in known.values() if arm.split == split)
        # Before the variants, which can then reuse the finished SFT.
        longer = _changed(sft, f"{split.name}-sft-190", "SFT, 190 updates", ("sft.steps=190",))
        relift = ("references.relift_batch_size=16", "references.relift_learning_rate=1e-3")
        variants = [
            simple,
            *others,
            _changed(simple, f"{split.name}-hints", "PPO-simple, hints", ("references.hints=0.75",)),
            _changed(simple, f"{split.name}-relift", "PPO-simple, ReLIFT", relift),
        ]
        arms += [sft, longer, *variants]
        papers = [arm for arm in variants if arm.name.removeprefix(f"{split.name}-") in PPO_VARIANTS]
        pairs += [(sft, longer), *itertools.product((sft, longer), variants), *itertools.combinations(papers, 2)]
    return _study("table3", folder, arms, [(first.name, second.name) for first, second in pairs], seeds=5)


def recipe(folder: Path) -> Study:
    """The recipe `starter`, its warm start, SFT of about equal time, and the recipe before it."""
    sft, longer = main_table(folder).arms[:2]
    plain = replace(sft.split, name="plain", train="starter:plain-train")
    before = (*WEAK_SFT, "binary.steps=125", "partial.steps=10", RATE_BEFORE)
    arm = partial(Arm, phases=CURRICULUM, measured_on=(sft.split,))
    arms = [
        sft,
        # Before `recipe`, which can then reuse the finished SFT.
        arm("recipe-before", "recipe before", plain, settings=before),
        longer,
        arm("recipe", "recipe starter", sft.split, settings=()),
    ]
    pairs = [(each.name, "recipe") for each in arms[:3]]
    return _study("recipe", folder, arms, [*pairs, ("recipe-before", sft.name)], seeds=5)


def security(folder: Path) -> Study:
    """R_sec from security tests and Bandit, or no R_sec; also on weaknesses that training lacks."""
    arms: list[Arm] = []
    pairs: list[tuple[str, str]] = []
    for split, measured_on in ((SECURITY, (SECURITY,)), (CODE, (CODE, NOT_CODE))):
        three = [
            _security_sft(split, measured_on),
            _security_rl(f"beta-{NO_BETA}", "tests alone", split, measured_on, beta=NO_BETA),
            _security_rl(f"beta-{PAPERS_BETA}", f"R_sec at {PAPERS_BETA}", split, measured_on),
        ]
        arms += three
        pairs += itertools.combinations([arm.name for arm in three], 2)
    return _study("security", folder, arms, pairs, seeds=5)


def security_rules(folder: Path) -> Study:
    """What R_sec is made of: security tests, Bandit, or both."""
    rl = partial(_security_rl, split=SECURITY, measured_on=(SECURITY,))
    sft, without, papers = security(folder).arms[:3]
    changed = [rl("tests", "R_sec of security tests", rule="tests"), rl("bandit", "R_sec of Bandit", rule="bandit")]
    pairs = [(reference.name, each.name) for reference in (without, papers) for each in changed]
    pairs.append((changed[1].name, changed[0].name))
    return _study("security-rules", folder, [sft, without, papers, *changed], pairs, seeds=5)


def _security_sft(split: Split, measured_on: tuple[Split, ...]) -> Arm:
    return Arm(f"{split.name}-sft", "SFT", split, phases=("sft",), measured_on=measured_on, settings=ANY_SOLUTION)


def _security_rl(
    name: str,
    title: str,
    split: Split,
    measured_on: tuple[Split, ...],
    beta: float = PAPERS_BETA,
    rule: str = "both",
) -> Arm:
    reward = (f"reward.security_weight={beta}", f"reward.security={rule}")
    return Arm(
        f"{split.name}-{name}",
        title,
        split,
        phases=("sft", "partial"),
        measured_on=measured_on,
        settings=(*ANY_SOLUTION, "partial.steps=40", *reward),
    )


def ablations(folder: Path) -> Study:
    """Two settings of SFT; methods and settings of RL after a weak SFT, which leaves RL something to learn."""
    main = main_table(folder)
    known = {"eval-sft": main.arms[0]}
    pairs: list[tuple[str, str]] = []
    # The paper's curriculum where it has little to start from.
    methods = {
        "eval": ("sft", "simple", "fresh", "hints", "relift"),
        "hard": ("sft", "simple", "fresh", "cont", "sched", "hints", "relift"),
    }
    for split, names in methods.items():
        weak = [
            _changed(arm, f"weak-{arm.name}", f"{arm.title}, weak SFT", (*WEAK_SFT, RATE_BEFORE))
            for arm in main.arms
            if arm.name in [f"{split}-{name}" for name in names]
        ]
        # About as long as the variants: here RL drops few groups, so that 40 updates take longer.
        weak.insert(1, _changed(weak[0], f"{weak[0].name}-100", "SFT, 100 updates, weak SFT", ("sft.steps=100",)))
        known |= {arm.name: arm for arm in weak}
        pairs += itertools.combinations([arm.name for arm in weak], 2)
    with_values = (
        *("ppo.advantage=gae", "ppo.samples_per_prompt=1"),
        *("ppo.drop_zero_variance_groups=false", "ppo.value_warmup_steps=10"),
    )
    changed = (
        ("eval-sft", "sft-any", "SFT on any solution", ("sft.solutions=any",)),
        ("eval-sft", "sft-rate-1e-3", "SFT, learning rate 1e-3", ("sft.learning_rate=1e-3",)),
        ("weak-eval-simple", "gae", "GAE and a value head", with_values),
        ("weak-eval-simple", "groups-4", "4 samples per prompt", ("ppo.samples_per_prompt=4",)),
        ("weak-eval-simple", "rate-2e-4", "learning rate 2e-4", ("ppo.learning_rate=2e-4",)),
        # The clip acts with more than one optimizer step on a batch.
        ("weak-eval-simple", "minibatches-2", "2 minibatches", ("ppo.minibatches=2",)),
        ("weak-eval-simple", "epochs-2", "2 epochs", ("ppo.epochs=2",)),
        ("weak-eval-simple", "kl-0", "no KL penalty", ("ppo.kl_coefficient=0",)),
        ("weak-hard-simple", "hard-minibatches-2", "2 minibatches", ("ppo.minibatches=2",)),
        ("weak-hard-simple", "hard-epochs-2", "2 epochs", ("ppo.epochs=2",)),
        ("weak-hard-simple", "hard-groups-32", "32 samples per prompt", ("ppo.samples_per_prompt=32",)),
        ("weak-hard-simple", "hard-simple-paper", "binary, 0.40 if unparsable", ("reward.unparsable=paper",)),
        ("weak-hard-fresh", "hard-fresh-paper", "partial, 0.40 if unparsable", ("reward.unparsable=paper",)),
    )  # fmt: skip
    arms = list(known.values())
    for reference, name, title, settings in changed:
        arms.append(_changed(known[reference], name, title, settings))
        pairs.append((reference, name))
    # If unparsable output is rewarded, which reward teaches syntax?
    pairs += [("weak-hard-sft", "hard-simple-paper"), ("weak-hard-sft", "hard-fresh-paper")]
    pairs.append(("hard-simple-paper", "hard-fresh-paper"))
    return _study("ablations", folder, arms, pairs, seeds=3)


def half(folder: Path) -> Study:
    """RL on problems that SFT has not seen: half of the training problems have tests but no solution."""
    known = {arm.name: arm for arm in main_table(folder).arms}
    with_all, rewarded = known["hard-sft"], ("simple", "fresh", "rft")
    arms = [
        replace(known[f"hard-{name}"], name=f"half-{name}", split=HALF, measured_on=(HIDDEN,), quants=())
        for name in ("sft", "sft-190", *rewarded)
    ]
    pairs = [("half-sft", "half-sft-190")]
    pairs += [(f"half-{first}", f"half-{second}") for first in ("sft", "sft-190") for second in rewarded]
    pairs.append(("half-sft", with_all.name))
    return _study("half", folder, [with_all, *arms], pairs, seeds=3)


def confirm(folder: Path) -> Study:
    """Some variants of table3 for `eval`, evaluated again: 8 programs per problem, another seed for each run."""
    main = main_table(folder)
    names = [f"eval-{name}" for name in ("sft", "sft-190", "simple", "relift")]
    arms = tuple(arm for arm in main.arms if arm.name in names)
    pairs = tuple(pair for pair in main.comparisons if set(pair) <= set(names))
    return replace(main, name="confirm", arms=arms, samples=8, comparisons=pairs, own_draws=True)


def hacking(folder: Path) -> Study:
    """A reward that can be gamed, and ours, after a weak SFT; the statement shows one test in five."""
    gameable = ("reward.credit_rule=published", "reward.unparsable=paper")
    rewards = (("published", "reward of the published code", gameable), ("plain", "our reward", ()))
    arm = partial(Arm, split=SHOWN, measured_on=(SHOWN, HIDDEN), snapshot_every=40)
    weak = (*WEAK_SFT, RATE_BEFORE)
    arms = [arm("shown-sft", "SFT", phases=("sft",), settings=weak)]
    for name, title, settings in rewards:
        settings = (*weak, "partial.steps=80", *settings)
        arms.append(arm(f"shown-{name}", title, phases=("sft", "partial"), settings=settings))
    pairs = itertools.combinations([each.name for each in arms], 2)
    return _study("hacking", folder, arms, list(pairs), seeds=3)


def paper_mbpp(folder: Path) -> Study:
    """The recipe paper-exact with SmolLM2-135M on MBPP, as much of it as a CPU can do: one epoch, 40 updates.

    At 100 times the paper's learning rate: with 1e-6, 500 updates of `nano` made no difference.
    """
    overrides = (
        *("model=smollm2", "base_precision=fp32", "gradient_checkpointing=false", "sft.epochs=1"),
        *("sft.max_tokens=256", "prompt.max_tokens=512", "ppo.max_tokens=160", "reward.cpu_seconds=2"),
        *("binary.steps=40", "partial.steps=40"),
    )
    split = Split("mbpp", "mbpp:train", "mbpp:test")
    arm = partial(Arm, split=split, measured_on=(split,))
    arms = [arm("paper-sft", "SFT", phases=("sft",), settings=())]
    for variant in ("simple", "fresh", "cont"):
        title, phases = VARIANTS[variant]
        arms.append(arm(f"paper-{variant}-1e-4", title, phases=phases, settings=("ppo.learning_rate=1e-4",)))
    names = [each.name for each in arms[1:]]
    pairs = [("paper-sft", each) for each in names] + [(each, names[-1]) for each in names[:-1]]
    study = _study("paper-mbpp", folder / "paper-mbpp", arms, pairs, seeds=3)
    return replace(study, recipe="paper-exact", samples=1, limit=100, overrides=overrides, device="cpu")


def mbpp(folder: Path) -> Study:
    """The variants of `sce reproduce table3 --recipe smollm2`, SFT of about equal time, and RL after a longer SFT.

    The primary comparison: pass@1 on mbpp:test, PPO-cont minus SFT of equal time. All others are exploratory. It was
    chosen before any RL, and again, with the constant baseline subtracted, after one seed without it (`cont-plain`) and
    before any RL with it.
    """
    preset = table3("smollm2", folder / "mbpp", seeds=3, quants=(), threads=1, overrides=("readiness_problems=0",))
    known = {arm.name.removeprefix("mbpp-"): replace(arm, quants=()) for arm in preset.arms}

    def changed(name: str, variant: str, title: str, *settings: str) -> Arm:
        arm = known[variant]
        return replace(arm, name=f"mbpp-{name}", title=title, settings=_merged(arm, settings))

    def steps(factor: int = 1) -> str:
        return f"sft.steps={factor * LONG_SFT}"

    sft, longer = known["sft"], changed(f"sft-{LONG_SFT}", "sft", f"SFT, {LONG_SFT} updates", steps())
    # References of the problems that the policy never solves, which are most of them.
    relift = ("references.relift_batch_size=16", "references.relift_learning_rate=3e-4")
    # The first ones are run first: the paper's curriculum and the reward that it starts with.
    variants = [
        *(known[name] for name in ("cont", "simple")),
        changed("relift", "simple", "PPO-simple, ReLIFT", *relift),
        *(known[name] for name in ("rft", "fresh", "sched")),
    ]
    late = changed("late", "cont", f"PPO-cont after {LONG_SFT} updates of SFT", steps())
    longest = changed(f"sft-{2 * LONG_SFT}", "sft", f"SFT, {2 * LONG_SFT} updates", steps(2))
    plain = changed("cont-plain", "cont", "PPO-cont, constants rewarded", "reward.subtract_constant_baseline=false")
    papers = [arm for arm in variants if arm.name not in ("mbpp-rft", "mbpp-relift")]
    pairs = [(sft, longer), *itertools.product((sft, longer), variants), *itertools.combinations(papers, 2)]
    pairs += [(longer, late), (longer, longest), (longest, late), (longer, plain), (plain, known["cont"])]
    names = tuple((first.name, second.name) for first, second in pairs)
    return replace(preset, name="mbpp", arms=(sft, longer, *variants, late, longest, plain), comparisons=names)


STUDIES: dict[str, Callable[[Path], Study]] = {
    "table3": main_table,
    "recipe": recipe,
    "confirm": confirm,
    "security": security,
    "security-rules": security_rules,
    "ablations": ablations,
    "half": half,
    "hacking": hacking,
    "paper-mbpp": paper_mbpp,
    "mbpp": mbpp,
}


def _study(name: str, folder: Path, arms: list[Arm], pairs: list[tuple[str, str]], seeds: int) -> Study:
    return Study(
        name, "starter", folder, tuple(arms), tuple(range(FIRST_SEED, FIRST_SEED + seeds)), 2, comparisons=tuple(pairs)
    )


def _changed(arm: Arm, name: str, title: str, settings: tuple[str, ...]) -> Arm:
    """The arm with other settings, evaluated on its own split, without exports; later settings replace earlier ones."""
    return replace(arm, name=name, title=title, settings=_merged(arm, settings), measured_on=(arm.split,), quants=())


def _merged(arm: Arm, settings: tuple[str, ...]) -> tuple[str, ...]:
    keys = {setting.partition("=")[0] for setting in settings}
    return (*(setting for setting in arm.settings if setting.partition("=")[0] not in keys), *settings)


def smaller(study: Study) -> Study:
    """A smoke test of a few minutes: one seed, two updates, 10 problems."""
    phases = ("sft", "binary", "partial", "scheduled", "rft", "ssd")
    steps = (*(f"{phase}.steps=2" for phase in phases), "ppo.value_warmup_steps=0")

    def quick(arm: Arm) -> Arm:
        base, settings = replace(arm.split, base=None), _merged(arm, steps)
        return replace(arm, settings=settings, split=base, measured_on=(base,), quants=(), snapshot_every=None)

    arms = tuple(quick(arm) for arm in study.arms)
    return replace(study, arms=arms, seeds=study.seeds[:1], samples=1, limit=10, folder=study.folder / "quick")


def with_subsets(record: dict[str, Any], study: Study, jobs: int) -> dict[str, Any]:
    """The record with All-P of each arm on the problems of MBPP that training, or we ourselves, know less about."""
    overlaps = json.loads(OVERLAPS.read_text(encoding="utf-8"))["overlaps"]
    problems = {each.id: each for split in study.splits for each in evaluation_problems(split.eval)}
    left_out = {
        "without overlaps": {name for of_source in overlaps.values() for name in of_source},
        "without the first 100": {f"mbpp/{number}" for number in range(LAST_OF_TRIALS + 1)},
        # A function that returns one constant passes their tests.
        "without constant answers": {
            name for name, each in problems.items() if constant_passes(each) == each.test_count
        },
    }
    found = {}
    for name, ids in left_out.items():
        part = study_record(study, jobs, lambda problem, ids=ids: None if problem in ids else problem)  # type: ignore[misc]
        found[name] = {
            "splits": [only_all_p(each) for each in part["splits"]],
            "arms": [only_all_p(each) | {"results": [*map(only_all_p, each["results"])]} for each in part["arms"]],
            "comparisons": [*map(only_all_p, part["comparisons"])],
        }
    return {**record, "subsets": found}


def only_all_p(part: dict[str, Any]) -> dict[str, Any]:
    """The names and numbers of a part of a record, and of its metrics All-P alone."""
    metrics = {key: {ALL_P: part[key].get(ALL_P)} for key in ("metrics", "base", "minus_base") if key in part}
    names = ("name", "split", "model", "first", "second", "problems", "seeds")
    return {name: part[name] for name in names if name in part} | metrics


def with_removed_arms(record: dict[str, Any], file: Path | None) -> dict[str, Any]:
    """The record with the arms of `REMOVED_ARMS` that the earlier one in ``file`` has, and their comparisons."""
    if file is None or not file.is_file():
        return record
    before = json.loads(file.read_text(encoding="utf-8"))
    arms = [*record["arms"], *(arm for arm in before["arms"] if arm["name"] in REMOVED_ARMS)]
    names = {arm["name"] for arm in arms}
    pairs = [*record["comparisons"]]
    for pair in before["comparisons"]:
        ends = {pair["first"], pair["second"]}
        if ends & REMOVED_ARMS.keys() and ends <= names:
            pairs.append(pair)
    return {**record, "arms": arms, "comparisons": pairs}


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
    record = with_removed_arms(study_record(study, arguments.jobs), arguments.json)
    if arguments.study == "mbpp":
        record = with_subsets(record, study, arguments.jobs)
    for title, table in study_tables(record):
        sys.stdout.write(f"{title}\n\n{to_markdown(table)}\n")
    publish(record, arguments.json, shown=key_figures(record))


if __name__ == "__main__":
    main()
