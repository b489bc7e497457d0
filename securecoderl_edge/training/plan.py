"""Plan of a training run: its steps, memory and time. Nothing is written and nothing downloaded.

If model, problems and device are available, one update of each kind is timed. If not, the plan uses sizes only and
lists what is missing, so that a run on another machine can be planned on a laptop: `estimate` then gives the time on a
GPU.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from securecoderl_edge.errors import SceError, UsageError
from securecoderl_edge.models.adapters import check_targets, load_adapter
from securecoderl_edge.models.architecture import Architecture, architecture_of
from securecoderl_edge.models.device import Compute, choose_compute, compute_on_cuda, gpu_trouble
from securecoderl_edge.models.files import base_folder
from securecoderl_edge.models.gpus import GPUS, PAPERS_GPU, Gpu
from securecoderl_edge.models.other import OtherArchitecture, find_architecture
from securecoderl_edge.problems.problem import Problem
from securecoderl_edge.problems.sources import is_built_in, load_problems
from securecoderl_edge.runs import Run
from securecoderl_edge.system.heap import return_free_memory
from securecoderl_edge.training.estimate import seconds_of_evaluation, seconds_of_readiness, seconds_per_update
from securecoderl_edge.training.inputs import find_inputs
from securecoderl_edge.training.memory import MemoryPlan, fitting_plan, memory_limit
from securecoderl_edge.training.parallel import Team
from securecoderl_edge.training.phase import UPDATES
from securecoderl_edge.training.readiness import Readiness, first_rl_phase, measure_readiness, start_in_words
from securecoderl_edge.training.recipe import known_shapes, peak_rate, phase_steps, with_sft_epochs
from securecoderl_edge.training.resources import Resources, longest_prompt_of, open_resources, prepare_phase
from securecoderl_edge.training.reuse import find_adapter, phase_keys
from securecoderl_edge.training.selection import evaluate_policy
from securecoderl_edge.training.settings import MOST_PER_PROBLEM, TrainSettings
from securecoderl_edge.training.update.learner import Learner, Update
from securecoderl_edge.training.update.supervised import step_on

# Assumed if neither the problems nor a setting give the length of prompts; few are longer.
_ASSUMED_PROMPT = 1024
# Those of the paper: 7,400 problems of APPS+ with standard input, without the 100 for evaluation.
_ASSUMED_PROBLEMS = 7_300


@dataclass(frozen=True)
class PhasePlan:
    """One phase.

    Attributes:
        sequences: completions or solutions per update. prompts: distinct prompts among them.
        most_tokens: upper limit for the tokens of all completions of the phase; None for sft.
        evaluations: their number.
        seconds_per_update, seconds: from one timed update and evaluation, or from a data sheet; None without either.
    """

    name: str
    steps: int
    learning_rate: float
    sequences: int
    prompts: int
    most_tokens: int | None
    evaluations: int
    memory: MemoryPlan
    seconds_per_update: float | None = None
    seconds: float | None = None


@dataclass(frozen=True)
class ProblemCounts:
    """Numbers of problems for training: all, those that fit, truncated ones among these; and held-out ones."""

    problems: int
    usable: int
    cut: int
    held_out: int


@dataclass(frozen=True)
class Plan:
    """A whole run.

    Attributes:
        counts: None if the problems are missing.
        limit_bytes: the available memory, or the memory to plan for.
        missing: sentences about missing inputs.
        gpu: the GPU whose data sheet gave the times; None if they were measured, or missing.
        readiness: the report on the model that RL would start from, as far as it exists; None if nothing was sampled.
        readiness_seconds: time of the report; 0 without one, None if unknown.
    """

    model: str
    device: str
    base_precision: str
    products_in: str
    parameters: int
    trained_parameters: int
    counts: ProblemCounts | None
    longest_prompt: int
    context: int
    limit_bytes: int
    phases: tuple[PhasePlan, ...]
    missing: tuple[str, ...] = field(default=())
    gpu: Gpu | None = None
    readiness: Readiness | None = None
    readiness_seconds: float | None = 0.0

    @property
    def seconds(self) -> float | None:
        """Time of all phases and of the readiness report; None if it is not known of all."""
        every = [self.readiness_seconds, *(phase.seconds for phase in self.phases)]
        return None if None in every else sum(seconds for seconds in every if seconds is not None)


def make_plan(
    settings: TrainSettings,
    run: Run,
    gpu: Gpu | None = None,
    say: Callable[[str], None] = lambda message: None,
) -> Plan:
    """Resolve all settings; load the model, make the readiness report, and time one update and one evaluation of each
    kind, if possible.

    Args:
        gpu: plan for this GPU, from sizes alone.
        say: called with a message before the report, which takes as long as some updates.

    Raises:
        UsageError: the run is not possible.
    """
    missing: list[str] = []
    try:
        if gpu is None and settings.device == "cuda" and gpu_trouble() is not None:
            gpu = GPUS[PAPERS_GPU]
            missing.append(f"this machine has no GPU that torch can use; planned for a {gpu.name} (--gpu)")
        recompute = settings.gradient_checkpointing
        if gpu is None:
            compute = choose_compute(settings.device, settings.base_precision, recompute=recompute)
        else:
            compute = compute_on_cuda(gpu.capability, settings.base_precision, recompute=recompute)
        shape = _shape(settings.model, missing)
        if not is_built_in(settings.problems) and not Path(settings.problems).is_file():
            if settings.prompt.max_tokens is None:
                raise UsageError(f"{settings.problems}: no such file; make one with: sce data import")
            missing.append(f"{settings.problems} is missing; make it with: sce data import")
        if missing or gpu is not None:
            return _from_sizes(settings, compute, shape, missing, gpu)
        return _timed(settings, compute, shape, run, say)
    except SceError as error:
        raise error if isinstance(error, UsageError) else UsageError(str(error)) from None


def _shape(name: str, missing: list[str]) -> Architecture | OtherArchitecture:
    try:
        return find_architecture(base_folder(name, download=False))
    except UsageError:
        if name not in known_shapes():
            raise
    missing.append(f"{name} is not downloaded yet; sce train downloads it")
    return architecture_of(known_shapes()[name], name)


def _from_sizes(
    settings: TrainSettings,
    compute: Compute,
    shape: Architecture | OtherArchitecture,
    missing: list[str],
    gpu: Gpu | None,
) -> Plan:
    check_targets(settings.lora, shape.lora_sizes())
    room = settings.prompt_room(shape.context)
    if settings.prompt.max_tokens is None and room > _ASSUMED_PROMPT:
        room = _ASSUMED_PROMPT
        missing.append(
            f"prompt lengths are unknown; planned for {room} tokens, set prompt.max_tokens for another length"
        )
    if room < 1:
        raise UsageError(f"ppo.max_tokens leaves no room for a prompt in a context of {shape.context} tokens")
    if "sft" in settings.phases and settings.sft.epochs is not None:
        settings = with_sft_epochs(settings, _count_solved(settings.problems, missing))
    phases = []
    for name in settings.phases:
        seconds = None
        if gpu is not None and isinstance(shape, Architecture):
            formats = compute.formats()
            update = seconds_per_update(shape, settings, formats, gpu, name, room)
            seconds = update, seconds_of_evaluation(shape, settings, formats, gpu, room)
        phases.append(_phase(settings, compute, shape, name, room, seconds, gpu=gpu))
    plan = _plan(settings, compute, shape, None, room, tuple(phases), tuple(missing), gpu)
    if first_rl_phase(settings) is None or not settings.readiness_problems:
        return plan
    if gpu is None or not isinstance(shape, Architecture):
        return replace(plan, readiness_seconds=None)
    return replace(plan, readiness_seconds=seconds_of_readiness(shape, settings, compute.formats(), gpu, room))


def _count_solved(problems: str, missing: list[str]) -> int:
    """The number of problems with a solution; the paper's if they are not here."""
    if is_built_in(problems) or Path(problems).is_file():
        return sum(bool(problem.solutions) for problem in load_problems(problems))
    missing.append(f"the number of problems is unknown; planned for {_ASSUMED_PROBLEMS:,}, as in the paper")
    return _ASSUMED_PROBLEMS


def _timed(
    settings: TrainSettings,
    compute: Compute,
    shape: Architecture | OtherArchitecture,
    run: Run,
    say: Callable[[str], None],
) -> Plan:
    inputs = find_inputs(settings, download=False)
    keys = phase_keys(settings, inputs.identity(compute))
    readiness = None
    with open_resources(run, settings, inputs, compute, Team()) as resources:
        phases, longest, usable = [], 0, 0
        for number, name in enumerate(settings.phases):
            learner, problems = prepare_phase(resources, name)
            usable = len(problems)
            if settings.readiness_problems and name == first_rl_phase(settings):
                trained = _load_latest(resources, settings.phases[:number], keys)
                start = start_in_words(settings, trained)
                readiness = measure_readiness(learner, resources.scorer, problems, settings, name, start, say=say)
            if name == "sft":
                settings = with_sft_epochs(settings, usable)
            prompt = longest_prompt_of(resources, learner, problems)
            longest = max(longest, prompt)
            each = _time_one(resources, name, learner, problems)
            phases.append(_phase(settings, compute, shape, name, prompt, each, evaluates=bool(resources.held_out)))
        total = len(resources.fitted.problems) + resources.fitted.left_out
        counts = ProblemCounts(total, usable, resources.fitted.cut, len(resources.held_out))
    plan = _plan(settings, compute, shape, counts, longest, tuple(phases))
    return plan if readiness is None else replace(plan, readiness=readiness, readiness_seconds=readiness.seconds)


def _load_latest(resources: Resources, before: Sequence[str], keys: Mapping[str, str]) -> Sequence[str]:
    """Load the result of the last phase before RL that is finished, here or in another run; returns those up to it."""
    for count in range(len(before), 0, -1):
        adapter = find_adapter(resources.run, before[count - 1], keys[before[count - 1]])
        if adapter is not None:
            load_adapter(resources.model, adapter)
            return before[:count]
    return ()


def _time_one(resources: Resources, phase: str, learner: Learner, problems: list[Problem]) -> tuple[float, float]:
    """Seconds of one update at learning rate 0, and of one evaluation (0.0 if there are none); writes nothing."""
    # An untrained policy may have only zero-variance groups; without them there would be no update to time.
    ppo = replace(resources.settings.ppo, drop_zero_variance_groups=False)
    settings, scorer = replace(resources.settings, ppo=ppo), resources.scorer
    for group in learner.optimizer.param_groups:
        group["lr"] = 0.0
    for step in (1, 2):  # the first one of a process is slower
        started = time.monotonic()
        row, rollout = UPDATES[phase](learner, Update(settings, phase, problems, step, scorer))
        return_free_memory()
    if phase == "rft" and rollout is not None and "loss/sft" not in row:
        # No program was correct. Later ones will be: time the largest step that the phase can make.
        largest = [done for done in rollout.completions if done.sample < MOST_PER_PROBLEM]
        step_on(learner, rollout.prompts, largest, ppo.micro_batch_tokens)
    updated = time.monotonic()
    if not resources.held_out:
        return updated - started, 0.0
    evaluate_policy(learner, scorer, resources.held_out, settings, 0, phase)
    return updated - started, time.monotonic() - updated


def _phase(
    settings: TrainSettings,
    compute: Compute,
    shape: Architecture | OtherArchitecture,
    name: str,
    longest_prompt: int,
    seconds: tuple[float, float] | None = None,
    evaluates: bool = True,
    gpu: Gpu | None = None,
) -> PhasePlan:
    ppo, steps, is_sft = settings.ppo, phase_steps(settings)[name], name == "sft"
    evaluations = 1 + -(-steps // settings.selection.every) if evaluates and settings.selection.problems else 0
    return PhasePlan(
        name=name,
        steps=steps,
        learning_rate=peak_rate(settings, name),
        sequences=settings.sft.batch_size if is_sft else ppo.batch_size,
        prompts=settings.sft.batch_size if is_sft else ppo.batch_size // ppo.samples_per_prompt,
        most_tokens=None if is_sft else steps * ppo.batch_size * ppo.max_tokens,
        evaluations=evaluations,
        memory=fitting_plan(
            shape, settings, compute.formats(), longest_prompt, name, memory_limit(settings, compute.device, gpu=gpu)
        ),
        seconds_per_update=seconds[0] if seconds else None,
        seconds=steps * seconds[0] + evaluations * seconds[1] if seconds else None,
    )


def _plan(
    settings: TrainSettings,
    compute: Compute,
    shape: Architecture | OtherArchitecture,
    counts: ProblemCounts | None,
    longest_prompt: int,
    phases: tuple[PhasePlan, ...],
    missing: tuple[str, ...] = (),
    gpu: Gpu | None = None,
) -> Plan:
    sizes = shape.lora_sizes()
    if isinstance(shape, OtherArchitecture):
        missing = (*missing, f"{shape.note}. The memory is a lower bound")
    return Plan(
        model=settings.model,
        device=compute.device,
        base_precision=compute.base_precision,
        products_in=str(compute.products).removeprefix("torch."),
        parameters=shape.parameters(),
        trained_parameters=settings.lora.rank * sum(sizes.get(name, 0) for name in settings.lora.targets),
        counts=counts,
        longest_prompt=longest_prompt,
        context=shape.context,
        limit_bytes=memory_limit(settings, compute.device, gpu=gpu),
        phases=phases,
        missing=missing,
        gpu=gpu,
    )
