"""The studies of SmolLM2-135M, a public model; `study.py` runs them."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from functools import partial
from pathlib import Path

from starter_studies import NO_BETA, PAPERS_BETA, made, merged
from study_engine.arms import FIRST_SEED, Arm, Split, Study
from study_engine.run_log import evaluation_problems
from study_engine.table3 import VARIANTS, Table3Settings, table3

from securecoderl_edge.problems.leakage import constant_passes, without_visible_tests
from securecoderl_edge.problems.problem import Problem

# Updates of SFT that take SmolLM2 about as long as SFT and 40 updates of RL.
LONG_SFT = 150
# Problems of mbpp:test up to this one were seen in trials before the study.
LAST_OF_TRIALS = 110
OVERLAPS = Path(__file__).with_name("results") / "mbpp-overlap.json"  # mbpp_overlap.py


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
    study = made("paper-mbpp", folder / "paper-mbpp", arms, pairs, seeds=3)
    return replace(study, recipe="paper-exact", samples=1, limit=100, overrides=overrides, device="cpu")


def mbpp(folder: Path) -> Study:
    """The variants of table 3 with the recipe smollm2 and its first reward, SFT of equal time, and RL after longer SFT.

    The primary comparison: pass@1 on mbpp:test, PPO-cont minus SFT of about equal time. All others are exploratory. It
    was chosen before this study's RL, though after pilots and `paper_mbpp`, and again, with the constant baseline
    subtracted, after one seed without it on mbpp:test (`cont-plain`) and before any RL with it.
    """
    # The recipe took the reward of `simple-paper` over after these variants.
    before = ("readiness_problems=0", "reward.unparsable=zero")
    preset = table3(Table3Settings("smollm2", seeds=3, quant=(), threads=1, out=str(folder / "mbpp")), before)
    known = {arm.name.removeprefix("mbpp-"): replace(arm, quants=()) for arm in preset.arms}

    def changed(name: str, variant: str, title: str, *settings: str) -> Arm:
        arm = known[variant]
        return replace(arm, name=f"mbpp-{name}", title=title, settings=merged(arm, settings))

    def steps(factor: int = 1) -> str:
        return f"sft.steps={factor * LONG_SFT}"

    sft, longer = known["sft"], changed(f"sft-{LONG_SFT}", "sft", f"SFT-{LONG_SFT}", steps())
    # The first ones are run first: the paper's curriculum and the reward that it starts with.
    variants = [known[name] for name in ("cont", "simple", "rft", "fresh", "sched")]
    # After the variants above, the longer SFT had the best pass rate and PPO-simple the best syntax.
    late = changed("late", "simple", f"PPO-simple after SFT-{LONG_SFT}", steps())
    longest = changed(f"sft-{2 * LONG_SFT}", "sft", f"SFT-{2 * LONG_SFT}", steps(2))
    # Does the binary reward teach programs that parse, if it gives nothing for that?
    flat = changed("simple-paper", "simple", "PPO-simple, parsing unrewarded", "reward.unparsable=paper")
    # It kept the solutions and added some, up to its last update. So: from the better start, for longer.
    late_flat = changed(
        "late-paper",
        "simple",
        f"PPO-simple, parsing unrewarded, 80 updates after SFT-{LONG_SFT}",
        *(steps(), "binary.steps=80", "reward.unparsable=paper"),
    )
    plain = changed("cont-plain", "cont", "PPO-cont, constants rewarded", "reward.subtract_constant_baseline=false")
    papers = [arm for arm in variants if arm.name != "mbpp-rft"]
    pairs = [(sft, longer), *itertools.product((sft, longer), variants), *itertools.combinations(papers, 2)]
    pairs += [(longer, late), (longer, longest), (longest, late), (longer, plain), (plain, known["cont"])]
    pairs += [(sft, flat), (longer, flat), (flat, known["simple"])]
    pairs += [(longer, late_flat), (longest, late_flat), (late, late_flat)]
    names = tuple((first.name, second.name) for first, second in pairs)
    arms = (sft, longer, *variants, flat, late, late_flat, longest, plain)
    return replace(preset, name="mbpp", arms=arms, comparisons=names)


def mbpp_samples(folder: Path) -> Study:
    """The base, SFT of 150 updates and the variant of `mbpp` with the highest pass@1: 8 programs per problem.

    The variant was chosen by its results on the same problems.
    """
    whole = mbpp(folder)
    names = (f"mbpp-sft-{LONG_SFT}", "mbpp-simple-paper")
    arms = tuple(replace(arm, measured_on=arm.measured_on[:1]) for arm in whole.arms if arm.name in names)
    return replace(whole, name="mbpp-x8", arms=arms, comparisons=(names,), samples=8, is_greedy=False)


def mbpp_confirm(folder: Path) -> Study:
    """The variants of `mbpp_samples` with three other seeds.

    The primary comparison, chosen before any run with these seeds: All-P on mbpp:test, the best variant minus SFT of
    about equal time, 8 programs per problem.
    """
    return replace(mbpp_samples(folder), name="mbpp-confirm", seeds=(45, 46, 47))


def secodeplt(folder: Path) -> Study:
    """R_sec from security tests and Bandit, or no R_sec, on SecCodePLT, which docs/guides/security-tests.md prepares.

    The 30 evaluation problems are of other tasks than the training problems; some of the same weaknesses.
    """
    split = Split("secodeplt", "secodeplt-checked-train.jsonl", "secodeplt-checked-eval.jsonl")
    arm = partial(Arm, split=split, measured_on=(split,))
    sft = arm("secodeplt-sft", "SFT", phases=("sft",), settings=())
    rl = [
        arm(f"secodeplt-beta-{beta}", title, phases=("sft", "binary"), settings=(f"reward.security_weight={beta}",))
        for beta, title in ((PAPERS_BETA, f"R_sec at {PAPERS_BETA}"), (NO_BETA, "tests alone"))
    ]
    # Programs are longer than MBPP's.
    overrides = (
        *("readiness_problems=0", "sft.max_tokens=512", "ppo.max_tokens=256"),
        *("sft.steps=48", "binary.steps=20"),
    )
    arms = [sft, *rl]
    pairs = list(itertools.combinations([each.name for each in arms], 2))
    study = made("secodeplt", folder / "secodeplt", arms, pairs, seeds=2)
    return replace(
        study,
        recipe="smollm2",
        samples=8,
        overrides=overrides,
        device="cpu",
        base_precision="bf16",
        base_run=(sft, FIRST_SEED),
    )


def parts_of_mbpp(study: Study) -> dict[str, set[str]]:
    """The ids to leave out for problems of MBPP that training, or we ourselves, know less about."""
    overlaps = json.loads(OVERLAPS.read_text(encoding="utf-8"))["overlaps"]
    problems = {each.id: each for split in study.splits for each in evaluation_problems(split.eval)}
    return {
        "without overlaps": {name for of_source in overlaps.values() for name in of_source},
        "without the first 100": {f"mbpp/{number}" for number in range(LAST_OF_TRIALS + 1)},
        "without lookups": {name for name, each in problems.items() if is_solved_by_lookup(each)},
    }


def is_solved_by_lookup(problem: Problem) -> bool:
    """Whether a function passes all tests that knows the visible ones, and returns one constant for others."""
    hidden = without_visible_tests(problem)
    return constant_passes(hidden) == hidden.test_count
