"""The settings of the phases of a training run: supervised, by reward, and on their own completions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from securecoderl_edge.config import setting

RL_PHASES = ("binary", "scheduled", "partial")
SELF_TRAINING = ("rft", "ssd")
DISTILL = "distill"
# Their updates are those of PPO.
BY_PPO = (*RL_PHASES, DISTILL)
# These have no reward; their policies are evaluated by R itself.
WITHOUT_REWARD = ("sft", "ssd", DISTILL)
PHASES = ("sft", *RL_PHASES, *SELF_TRAINING, DISTILL)
# Advantages that compare the completions of one prompt; two of them have their own loss, see `update.ppo`.
GRPO = ("grpo", "dr-grpo")
OF_GROUPS = ("rloo", *GRPO)
# Distinct correct programs of a problem that a round of rft trains on, so that easy problems do not outweigh others.
MOST_PER_PROBLEM = 4


def _most_sampled() -> Any:
    return setting(
        None,
        "End the phase with the update that reaches this many sampled tokens; schedules still count to steps.",
        minimum=1,
    )


def _most_trained() -> Any:
    return setting(
        None, "The same for tokens of completions or solutions that were trained on, in all epochs.", minimum=1
    )


@dataclass(frozen=True)
class SftSettings:
    """SFT warm start on reference solutions."""

    steps: int = setting(40, "Updates, at most.", minimum=1)
    epochs: int | None = setting(None, "Passes over the solutions, at most.", minimum=1)
    batch_size: int = setting(32, "Sequences per update.", minimum=1)
    learning_rate: float = setting(3e-4, "Learning rate of AdamW.", minimum=0)
    max_tokens: int = setting(512, "Longest solution in tokens; longer ones are left out.", minimum=1)
    solutions: str = setting(
        "any",
        "Which solution of a problem to train on. any: a random one; shortest: in characters, for one style.",
        choices=("any", "shortest"),
    )
    filter: str = setting(
        "none",
        "security: run and scan the solutions, and train on those alone that pass all tests and have R_sec = 1.",
        choices=("none", "security"),
    )
    max_tokens_trained: int | None = _most_trained()


@dataclass(frozen=True)
class PhaseSettings:
    """Length and learning rate of one RL phase."""

    steps: int = setting(25, "Updates.", minimum=1)
    learning_rate: float | None = setting(None, "Learning rate of the adapter; default: ppo.learning_rate.", minimum=0)
    max_tokens_sampled: int | None = _most_sampled()
    max_tokens_trained: int | None = _most_trained()


@dataclass(frozen=True)
class DistillSettings(PhaseSettings):
    """On-policy distillation: steps towards the teacher `ppo.reference` on the policy's own completions, reward 0."""


@dataclass(frozen=True)
class SelfTrainingSettings:
    """A phase that samples as many completions as PPO (`ppo.batch_size`), and takes supervised steps on some."""

    steps: int = setting(25, "Updates.", minimum=1)
    learning_rate: float | None = setting(None, "Learning rate of the adapter; default: sft.learning_rate.", minimum=0)
    max_tokens_sampled: int | None = _most_sampled()
    max_tokens_trained: int | None = _most_trained()


@dataclass(frozen=True)
class RftSettings(SelfTrainingSettings):
    """Rejection-sampling fine-tuning: supervised steps on the policy's own completions that pass all tests.

    A round samples a pool with one policy, in ``updates_per_round`` updates, and trains on it at the end of the last.
    """

    filter: str = setting(
        "tests",
        "Programs to train on. tests: those that pass all tests; security: of these, those with R_sec = 1.",
        choices=("tests", "security"),
    )
    updates_per_round: int = setting(
        1, "Updates that sample with the same policy before it is trained on what they kept.", minimum=1
    )
    epochs: int = setting(1, "Passes over the kept completions of a round.", minimum=1)
    batch_size: int | None = setting(
        None, "Completions per optimizer step, in random order; default: all of a round in one step.", minimum=1
    )


@dataclass(frozen=True)
class SsdSettings(SelfTrainingSettings):
    """Simple self-distillation: supervised steps on unverified completions of the policy that the phase starts from."""

    temperature: float = setting(1.6, "Sampling temperature.", minimum=0.01)
    top_k: int = setting(20, "Sample from the K most likely tokens; 0: from all.", minimum=0)
    top_p: float = setting(
        0.8, "Sample from the fewest most likely tokens with this probability together.", minimum=0, maximum=1
    )


@dataclass(frozen=True)
class PromptSamplingSettings:
    """Which problems an update of RL samples completions of."""

    method: str = setting(
        "uniform",
        "uniform: all in turn; adaptive: those that the policy passes about half of the time, by Thompson sampling of "
        "their running pass rates.",
        choices=("uniform", "adaptive"),
    )
    resample: int = setting(
        0,
        "With ppo.drop_zero_variance_groups: sample at most this many more prompts per update in place of those whose "
        "completions all got the same reward.",
        minimum=0,
        maximum=1000,
    )
    difficulty: str | None = setting(
        None, "Pass rates before training, from sce data difficulty; `adaptive` starts from them.", metavar="FILE"
    )
    pass_rate: tuple[float, float] | None = setting(
        None,
        "Sample completions only of problems with a pass rate in this range in the difficulty file, such as "
        "[0.1, 0.9]; not in sft.",
        minimum=0,
        maximum=1,
    )


@dataclass(frozen=True)
class PpoSettings:
    """Proximal policy optimization, in the RL phases."""

    batch_size: int = setting(64, "Completions per update.", minimum=1)
    samples_per_prompt: int = setting(
        8, "Completions per prompt; `rloo`, `grpo` and `dr-grpo` need at least 2.", minimum=1
    )
    advantage: str = setting(
        "rloo",
        "Baseline. rloo: leave-one-out mean of the prompt's other completions; gae: value head; batch: mean of the "
        "batch, whatever the prompts, divided by its standard deviation; grpo (arXiv:2402.03300) and dr-grpo "
        "(arXiv:2503.20783): mean of the prompt's completions, with the KL in the loss.",
        choices=("gae", *OF_GROUPS, "batch"),
    )
    drop_zero_variance_groups: bool = setting(
        False,
        "With `rloo`, `grpo` and `dr-grpo`: skip prompts whose completions all got the same reward; only the KL "
        "penalty would act on them.",
    )
    mask_truncated: bool = setting(
        False,
        "Completions that ppo.max_tokens cut off leave no gradient (overlong filtering of DAPO, arXiv:2503.14476); "
        "their rewards stay in the baseline.",
    )
    epochs: int = setting(
        2,
        "Passes over a batch. With one epoch of one minibatch every ratio is 1 and the clip never acts.",
        minimum=1,
    )
    minibatches: int = setting(
        1, "Minibatches per epoch, of whole groups, shuffled in each epoch; one optimizer step each.", minimum=1
    )
    target_kl: float | None = setting(
        None,
        "Stop the optimizer steps on a batch when KL to the sampling policy exceeds this (nats per token).",
        minimum=0,
    )
    learning_rate: float = setting(1e-3, "Learning rate of AdamW for the adapter.", minimum=0)
    value_warmup_steps: int = setting(
        0, "With `gae`: updates at the start of a phase that train the value head alone.", minimum=0
    )
    clip_range: float | tuple[float, float] = setting(
        0.2,
        "PPO clips the probability ratio of each token to 1 +- this; two numbers, such as [0.2, 0.28]: to 1 - the "
        "first and 1 + the second (clip-higher of DAPO).",
        minimum=0,
    )
    kl_coefficient: float = setting(
        0.02,
        "KL penalty coefficient, applied to the reward; of `grpo` and `dr-grpo` to the loss. The reference is the SFT "
        "policy, or the teacher of the last `ssd`. 0: KL is not computed.",
        minimum=0,
    )
    reference: str | None = setting(
        None,
        "A teacher in place of that reference, named as `model` is: a model, usually larger, with the same tokens. "
        "The phase `distill` needs it.",
        metavar="MODEL",
    )
    temperature: float = setting(0.7, "Sampling temperature.", minimum=0.01)
    max_tokens: int = setting(192, "Longest completion in tokens.", minimum=1)
    hint: str | None = setting(
        None,
        "In the phases of RL and rft: a sentence behind the statement while half of the completions of each prompt are "
        'sampled, such as "Write secure code." All are trained under the prompt without it.',
        metavar="TEXT",
    )
    end_with_program: bool = setting(
        False,
        "A completion ends with its program, as in sce bench, and counts as complete: behind the block of code that a "
        "prompt of the style prefilled began, or before the next section. In the style chat another block may follow.",
    )
    rollout_sequences: int = setting(
        64, "Completions sampled in parallel, at least those of one prompt; bounds memory.", minimum=1
    )
    micro_batch_tokens: int = setting(2048, "Tokens per forward and backward pass; bounds memory.", minimum=1)
    max_grad_norm: float = setting(1.0, "Clip the gradient to this norm.", minimum=0)
