"""The studies of nano, with the recipe `starter`; `study.py` runs them."""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import partial
from pathlib import Path

from study_engine.arms import FIRST_SEED, Arm, Base, Split, Study
from study_engine.table3 import NANO_HARD, PPO_VARIANTS, Table3Settings, table3

from securecoderl_edge.training.settings import CURRICULUM

# The SFT of the recipe before today's, and its learning rate of RL.
WEAK_SFT = ("sft.steps=10", "sft.learning_rate=3e-4", "sft.solutions=any")
RATE_BEFORE = "ppo.learning_rate=1e-3"
NO_BETA = 0.0
PAPERS_BETA = 0.4
# The shortest solution of a security problem is often the unsafe one.
ANY_SOLUTION = ("sft.solutions=any",)
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
    """The variants of `sce reproduce table3`, and SFT of about equal time.

    All but SFT have 40 updates after the same SFT policy. 40 of RL, which sample 64 programs each, take about as long
    as 30 to 40 of SFT, which read 32 references each.
    """
    preset = table3(Table3Settings("starter", out=str(folder), quant=()))
    arms, pairs = [], []
    for split in preset.splits:
        known = {arm.name: replace(arm, measured_on=(split,), snapshot_every=None) for arm in preset.arms}
        sft, simple, *others = (arm for arm in known.values() if arm.split == split)
        # Before the variants, which can then reuse the finished SFT.
        longer = _changed(sft, f"{split.name}-sft-190", "SFT, 190 updates", ("sft.steps=190",))
        variants = [simple, *others]
        arms += [sft, longer, *variants]
        papers = [arm for arm in variants if arm.name.removeprefix(f"{split.name}-") in PPO_VARIANTS]
        pairs += [(sft, longer), *itertools.product((sft, longer), variants), *itertools.combinations(papers, 2)]
    return made("table3", folder, arms, [(first.name, second.name) for first, second in pairs], seeds=5)


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
    return made("recipe", folder, arms, [*pairs, ("recipe-before", sft.name)], seeds=5)


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
    return made("security", folder, arms, pairs, seeds=5)


def security_rules(folder: Path) -> Study:
    """What R_sec is made of: security tests, Bandit, or both."""
    rl = partial(_security_rl, split=SECURITY, measured_on=(SECURITY,))
    sft, without, papers = security(folder).arms[:3]
    changed = [rl("tests", "R_sec of security tests", rule="tests"), rl("bandit", "R_sec of Bandit", rule="bandit")]
    pairs = [(reference.name, each.name) for reference in (without, papers) for each in changed]
    pairs.append((changed[1].name, changed[0].name))
    return made("security-rules", folder, [sft, without, papers, *changed], pairs, seeds=5)


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
        "eval": ("sft", "simple", "fresh"),
        "hard": ("sft", "simple", "fresh", "cont", "sched"),
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
    return made("ablations", folder, arms, pairs, seeds=3)


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
    return made("half", folder, [with_all, *arms], pairs, seeds=3)


def confirm(folder: Path) -> Study:
    """Some variants of table3 for `eval`, evaluated again: 8 programs per problem, another seed for each run."""
    main = main_table(folder)
    names = [f"eval-{name}" for name in ("sft", "sft-190", "simple")]
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
    return made("hacking", folder, arms, list(pairs), seeds=3)


def c(folder: Path) -> Study:
    """Programs in C, from nano-c with the recipe `starter-c`: SFT, SFT of about equal time, binary reward, curriculum.

    RL has 40 updates, as in `main_table`.
    """
    split = Split("c", "starter:c-train", "starter:c-eval")
    arm = partial(Arm, split=split, measured_on=(split,))
    arms = [
        arm("c-sft", "SFT", phases=("sft",), settings=()),
        arm("c-sft-190", "SFT, 190 updates", phases=("sft",), settings=("sft.steps=190",)),
        arm("c-simple", "PPO-simple", phases=("sft", "binary"), settings=("binary.steps=40",)),
        arm("c-cont", "PPO-cont", phases=CURRICULUM, settings=("binary.steps=20", "partial.steps=20")),
    ]
    pairs = itertools.combinations([each.name for each in arms], 2)
    return replace(made("c", folder, arms, list(pairs), seeds=3), recipe="starter-c")


def made(name: str, folder: Path, arms: list[Arm], pairs: list[tuple[str, str]], seeds: int) -> Study:
    return Study(
        name, "starter", folder, tuple(arms), tuple(range(FIRST_SEED, FIRST_SEED + seeds)), 2, comparisons=tuple(pairs)
    )


def _changed(arm: Arm, name: str, title: str, settings: tuple[str, ...]) -> Arm:
    """The arm with other settings, evaluated on its own split, without exports; later settings replace earlier ones."""
    return replace(arm, name=name, title=title, settings=merged(arm, settings), measured_on=(arm.split,), quants=())


def merged(arm: Arm, settings: tuple[str, ...]) -> tuple[str, ...]:
    keys = {setting.partition("=")[0] for setting in settings}
    return (*(setting for setting in arm.settings if setting.partition("=")[0] not in keys), *settings)
