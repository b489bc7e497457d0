"""The paper's settings next to the two recipes that follow it: a part of docs/reference/settings.md.

Every setting of `paper-exact` is in `ROWS` or in `WITHOUT_EFFECT`; a test compares the values with the recipe's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

EXACT, IMPROVED = "paper-exact", "paper-v100"


@dataclass(frozen=True)
class Row:
    """One setting.

    Attributes:
        paper: the paper's value; empty if it does not give one.
        ours: why `EXACT` has its value; empty if it is the paper's.
        improved: why `IMPROVED` has another value; empty if it has the same.
    """

    paper: str = ""
    ours: str = ""
    improved: str = ""


_CODE = "as in the published code"
_DATA = 6  # of the paper's values are about model, data and SFT

# By section and table of the final PDF.
ROWS = {
    "model": Row("DeepSeek-Coder-1.3B-Instruct"),
    "problems": Row("APPS+, stdin problems, at most 5 tests"),
    "phases": Row("PPO-cont: SFT, binary, partial"),
    "base_precision": Row(ours=f"{_CODE}, but with bitsandbytes, whose LLM.int8 needs units that a V100 lacks"),
    "lora.rank": Row("16"),
    "lora.alpha": Row("32"),
    "lora.targets": Row(ours="these four give the paper's 6.3 M trained parameters"),
    "optimizer": Row(ours="it is usual (betas 0.9 and 0.95); without weight decay, which would pull LoRA to 0"),
    "lr_schedule": Row(ours="the paper gives one rate"),
    "warmup_steps": Row(ours="the paper gives none", improved="Adam's first steps are large"),
    "sft.epochs": Row("3", improved="two passes, as 600 updates, are enough for the format"),
    "sft.steps": Row(ours="three epochs end before it", improved="it is two passes over 5,000 problems"),
    "sft.batch_size": Row(ours="it fits into 16 GiB"),
    "sft.learning_rate": Row(ours="it is usual for LoRA; the paper's 1e-6 is that of PPO"),
    "sft.max_tokens": Row(ours="completions may be as long"),
    "sft.solutions": Row(ours="APPS+ has several solutions of a problem"),
    "sft.filter": Row(ours="the paper trains on all solutions"),
    "reformat_solutions": Row(ours="the paper does not name a format"),
    "binary.steps": Row("500 episodes"),
    "partial.steps": Row("500 episodes"),
    "ppo.batch_size": Row("2"),
    "ppo.samples_per_prompt": Row(ours=f"{_CODE}; 1,000 prompts in 500 episodes of 2 agree"),
    "ppo.advantage": Row(
        ours=f"{_CODE}; it keeps only the order of two rewards",
        improved="a value head keeps the size of rewards",
    ),
    "ppo.drop_zero_variance_groups": Row(ours="a prompt has one completion"),
    "ppo.mask_truncated": Row(ours="the paper does not name these"),
    "ppo.end_with_program": Row(ours="the paper does not name these"),
    "ppo.epochs": Row("4"),
    "ppo.minibatches": Row(ours="the paper has no minibatches"),
    "sampling.method": Row(ours="the paper does not name one"),
    "sampling.resample": Row(ours="a prompt has one completion"),
    "ppo.learning_rate": Row("1e-6"),
    "ppo.clip_range": Row("0.2"),
    "ppo.kl_coefficient": Row("0.1"),
    "ppo.temperature": Row("0.7"),
    "ppo.max_tokens": Row(ours=f"{_CODE}, in training"),
    "ppo.max_grad_norm": Row(ours="it is a common bound"),
    "ppo.value_warmup_steps": Row(
        ours="batch advantages need no value head", improved="an untrained head would guide the policy"
    ),
    "prompt.style": Row(ours=_CODE),
    "prompt.max_tokens": Row(ours="few prompts are longer, and memory grows with it"),
    "prompt.overlong": Row(ours=_CODE),
    "selection.problems": Row(
        ours="the paper reports the policy after 500 episodes", improved="a late policy can be worse than an early one"
    ),
    "selection.every": Row(ours="selection is off", improved="ten evaluations of a phase are enough"),
    "reward.unparsable": Row("0.40", improved="a reward for any text hides which parses"),
    "reward.extract": Row(
        ours=f"{_CODE}; the PDF does not say", improved="a sentence before a program is not a syntax error"
    ),
    "reward.security_weight": Row("0.4"),
    "reward.combine": Row("sum"),
    "reward.ignored_input": Row(ours="the paper has no such rule"),
    "reward.security": Row("Bandit", improved="security tests find what patterns miss"),
    "reward.severity": Row("high 1.0, medium 0.5"),
    "reward.credit_rule": Row(ours="Table 1 does not say how many tests must run"),
    "reward.subtract_constant_baseline": Row(ours="the paper has no such correction"),
    "reward.visible_tests": Row(ours="the paper uses all tests"),
    "reward.cpu_seconds": Row(ours="a reference solution needs far less"),
    "reward.wall_seconds": Row(ours="a program that waits must end, too"),
    "reward.memory_mib": Row(ours="a reference solution needs far less"),
    "seed": Row(ours="the paper reports one seed, and not which"),
}
# They decide where and how fast a run computes, or belong to a part that it does not have.
WITHOUT_EFFECT = {
    "checkpoint_every", "device", "distill.steps", "gradient_checkpointing", "memory_gib",
    "ppo.micro_batch_tokens", "ppo.rollout_sequences",
    "readiness_problems", "reward.analyzers", "reward.function_weight", "reward.sandbox",
    "rft.steps", "rft.filter", "rft.updates_per_round", "rft.epochs",
    "ssd.steps", "ssd.temperature", "ssd.top_k", "ssd.top_p",
    "scheduled.steps", "selection.samples", "selection.hold_out", "selection.metric", "selection.standard_errors",
}  # fmt: skip

# Not settings.
_FIXED = (
    ("programs per evaluation prompt", "1", "2", "more programs give narrower intervals"),
    ("seeds", "1", "5", "another run can give another order"),
    ("place of the KL penalty", "", "in the reward", "as a loss it ignores the reference"),
    ("probability ratio", "", "of each token", "a mean over tokens rarely leaves the clip range"),
    ("dropout", "", "off", "the ratio of an unchanged policy must be 1"),
    ("sampling", "", "temperature alone", "filters sample another distribution than the one trained"),
)  # fmt: skip


def in_words(exact: Mapping[str, Any], improved: Mapping[str, Any], shown: Callable[[object], str]) -> str:
    """The paper's values, those that it does not give, and those that `IMPROVED` changes, in Markdown.

    Args:
        exact, improved: the resolved settings of the two recipes, by dotted name.
        shown: a value as text.
    """
    given = [
        f"`{key}={row.paper}`" if row.paper[0].isdigit() and " " not in row.paper else f"`{key}` {row.paper}"
        for key, row in ROWS.items()
        if row.paper
    ]
    reasons: dict[str, list[str]] = {}
    for key, row in ROWS.items():
        if row.ours:
            reasons.setdefault(row.ours, []).append(f"`{key}={shown(exact.get(key))}`")
    changed = [
        f"* `{key}={shown(improved[key])}`: {row.improved}\n" if key in improved else f"* no `{key}`: {row.improved}\n"
        for key, row in ROWS.items()
        if row.improved
    ]
    fixed = [
        f"* {name}: {ours}{f' (the paper: {paper})' if paper else ''}: {reason}\n"
        for name, paper, ours, reason in _FIXED
    ]
    return "".join(
        [
            f"The paper's values, of its section 4 and its tables: {'; '.join(given[:_DATA])}. "
            f"Of RL: {'; '.join(given[_DATA:])}. An episode is one update.\n\n",
            f"It does not give these. They have our values in `{EXACT}`, for a reason:\n\n",
            *(f"* {', '.join(keys)}: {reason}\n" for reason, keys in reasons.items()),
            f"\n`{IMPROVED}` changes:\n\n",
            *changed,
            "\nFixed in both:\n\n",
            *fixed,
        ]
    )
