"""Learning-rate schedules, and the numbers of updates of the phases."""

from __future__ import annotations

from dataclasses import replace

from securecoderl_edge.training.settings import SELF_TRAINING, TrainSettings


def phase_steps(settings: TrainSettings) -> dict[str, int]:
    """Number of updates of each phase of the run, in order."""
    return {phase: settings.phase(phase).steps for phase in settings.phases}


def with_sft_epochs(settings: TrainSettings, problems: int) -> TrainSettings:
    """The settings with ``sft.steps`` lowered to ``sft.epochs`` passes over this number of problems."""
    sft = settings.sft
    if sft.epochs is None:
        return settings
    steps = -(-sft.epochs * problems // sft.batch_size)
    return replace(settings, sft=replace(sft, steps=min(sft.steps, steps)))


def peak_rate(settings: TrainSettings, phase: str) -> float:
    """The highest learning rate of a phase."""
    own = settings.phase(phase).learning_rate
    if own is not None:
        return own
    return settings.sft.learning_rate if phase in SELF_TRAINING else settings.ppo.learning_rate


def rate_share(settings: TrainSettings, phase: str, step: int) -> float:
    """The learning rate at update ``step`` (from 1) of a phase, as a fraction of its peak.

    It warms up in every phase, since each has a new optimizer. With a linear schedule it falls over sft, and once over
    all later updates: the noise of late batches then averages out instead of remaining in the policy.
    """
    share = min(1.0, step / max(1, settings.warmup_steps))
    if settings.lr_schedule == "linear":
        steps = phase_steps(settings)
        together = [name for name in steps if (name == "sft") == (phase == "sft")]
        before = sum(steps[name] for name in together[: together.index(phase)])
        share = min(share, 1 - (before + step - 1) / sum(steps[name] for name in together))
    return share
