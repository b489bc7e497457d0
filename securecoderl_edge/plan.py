"""What a training run would do and how long it would take, from one timed update of each kind; nothing is written."""

from __future__ import annotations

from dataclasses import dataclass

from securecoderl_edge.device import choose_compute
from securecoderl_edge.errors import SceError, UsageError
from securecoderl_edge.model import POLICY, adapter_parameters
from securecoderl_edge.parallel import Team
from securecoderl_edge.phase import Phase, Workplace
from securecoderl_edge.runs import Run
from securecoderl_edge.schedules import peak_rate, phase_steps
from securecoderl_edge.settings import TrainSettings


@dataclass(frozen=True)
class PhasePlan:
    """One phase.

    Attributes:
        sequences: completions or solutions in one update. prompts: different ones among them.
        most_tokens: of all completions of the phase, were each as long as permitted; None for sft.
        seconds: for all updates and evaluations, from one timed one of each.
    """

    name: str
    steps: int
    learning_rate: float
    sequences: int
    prompts: int
    most_tokens: int | None
    evaluations: int
    seconds_per_update: float
    seconds: float


@dataclass(frozen=True)
class Plan:
    """A whole run."""

    model: str
    device: str
    base_precision: str
    products_in: str
    parameters: int
    trained_parameters: int
    problems: int
    held_out: int
    usable: int
    longest_prompt: int
    context: int
    phases: tuple[PhasePlan, ...]

    @property
    def seconds(self) -> float:
        """For all phases."""
        return sum(phase.seconds for phase in self.phases)


def make_plan(settings: TrainSettings, run: Run) -> Plan:
    """Resolve everything, load the model, time one update and one evaluation of each kind.

    Raises:
        UsageError: the run could not work.
    """
    # Imported late: train.py is the caller's other way.
    from securecoderl_edge.train import find_sources, workplace

    try:
        sources = find_sources(settings)
        compute = choose_compute(settings.device, settings.base_precision)
        with workplace(run, settings, sources, compute, Team()) as place:
            phases = [_timed(place, number, name) for number, name in enumerate(settings.phases, 1)]
            learner, usable = Phase(place, 1, settings.phases[-1], "").prepare()
    except SceError as error:
        raise error if isinstance(error, UsageError) else UsageError(str(error)) from None
    return Plan(
        model=settings.model,
        device=compute.device,
        base_precision=compute.base_precision,
        products_in=str(compute.products).removeprefix("torch."),
        parameters=sum(p.numel() for name, p in place.model.named_parameters() if "lora_" not in name),
        trained_parameters=sum(p.numel() for p in adapter_parameters(place.model, POLICY).values()),
        problems=len(place.problems),
        held_out=len(place.held_out),
        usable=len(usable),
        longest_prompt=max(len(learner.prompt_tokens(problem)) for problem in usable),
        context=int(place.model.config.max_position_embeddings),
        phases=tuple(phases),
    )


def _timed(place: Workplace, number: int, name: str) -> PhasePlan:
    settings, ppo = place.settings, place.settings.ppo
    steps = phase_steps(settings)[name]
    seconds, per_evaluation = Phase(place, number, name, "").time_one()
    evaluations = 1 + -(-steps // settings.selection.every) if place.held_out else 0
    is_sft = name == "sft"
    return PhasePlan(
        name=name,
        steps=steps,
        learning_rate=peak_rate(settings, name),
        sequences=settings.sft.batch_size if is_sft else ppo.batch_size,
        prompts=settings.sft.batch_size if is_sft else ppo.batch_size // ppo.samples_per_prompt,
        most_tokens=None if is_sft else steps * ppo.batch_size * ppo.max_tokens,
        evaluations=evaluations,
        seconds_per_update=seconds,
        seconds=steps * seconds + evaluations * per_evaluation,
    )
