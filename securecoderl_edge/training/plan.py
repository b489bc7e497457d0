"""Plan of a training run: its steps, memory and time, from sizes alone. Nothing is loaded, written or downloaded.

It takes seconds and needs no torch, unless transformers computes the model or the memory of a GPU that is here counts.
`measured_plan` times one update of each kind; for a GPU that is not here, `estimate` gives the time.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path

from securecoderl_edge.errors import SceError, UsageError
from securecoderl_edge.models.adapters import check_targets
from securecoderl_edge.models.architecture import Architecture
from securecoderl_edge.models.gpus import GPUS, PAPERS_GPU, Gpu
from securecoderl_edge.models.other import OtherArchitecture
from securecoderl_edge.models.sizes import Precision, precision_on_cpu, precision_on_cuda
from securecoderl_edge.problems.difficulty import Difficulty, difficulty_of
from securecoderl_edge.problems.problem import Problem
from securecoderl_edge.problems.sources import is_built_in, load_problems
from securecoderl_edge.system.files import sha256_of
from securecoderl_edge.system.machine import cpu_has_bf16, cpu_has_matrix_units, visible_gpus
from securecoderl_edge.training.base import BaseModel, describe_base
from securecoderl_edge.training.estimate import seconds_of_evaluation, seconds_of_readiness, seconds_per_update
from securecoderl_edge.training.inputs import find_start
from securecoderl_edge.training.memory import MemoryPlan, fitting_plan, memory_limit
from securecoderl_edge.training.phase_settings import WITHOUT_REWARD
from securecoderl_edge.training.readiness import Readiness, first_rl_phase
from securecoderl_edge.training.recipe import most_completions, no_solutions, peak_rate, phase_steps, with_sft_epochs
from securecoderl_edge.training.settings import LARGEST_SHARE, TrainSettings

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
    """Numbers of problems: for training, those of them that fit, truncated ones among these; and held-out ones.

    ``usable`` and ``cut`` are None if no prompt was tokenized.
    """

    problems: int
    usable: int | None
    cut: int | None
    held_out: int


@dataclass(frozen=True)
class Plan:
    """A whole run.

    Attributes:
        counts: None if the problems are missing.
        limit_bytes: the available memory, or the memory to plan for.
        missing: sentences about missing inputs.
        teacher: the model in place of the reference, and its parameters; empty without one.
        gpu: the GPU whose data sheet gave the times; None if they were measured, or missing.
        readiness: the report on the model that RL would start from, as far as it exists; None if nothing was sampled.
        readiness_seconds: time of the report; 0 without one, None if unknown.
        difficulty: which problems are asked, by their pass rates; empty without these.
        reward: the user's own function, its weight and the phases that use it; empty without one.
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
    teacher: str = ""
    difficulty: str = ""
    reward: str = ""

    @property
    def seconds(self) -> float | None:
        """Time of all phases and of the readiness report; None if it is not known of all."""
        every = [self.readiness_seconds, *(phase.seconds for phase in self.phases)]
        return None if None in every else sum(seconds for seconds in every if seconds is not None)


def make_plan(settings: TrainSettings, gpu: Gpu | None = None) -> Plan:
    """The plan from sizes alone.

    Args:
        gpu: plan for this GPU, which need not be here.

    Raises:
        UsageError: the run is not possible.
    """
    missing: list[str] = []
    try:
        find_start(settings)
        base = describe_base(settings.model)
        asked = settings.teacher_of(*settings.phases)
        teacher = None if asked is None else describe_base(asked)
        missing += [each.missing for each in (base, teacher) if each is not None and each.missing]
        precision, gpu = _precision(settings, gpu, missing)
        problems = _problems(settings, missing)
        return _from_sizes(settings, precision, base, problems, missing, gpu, teacher)
    except SceError as error:
        raise error if isinstance(error, UsageError) else UsageError(str(error)) from None


def _precision(settings: TrainSettings, gpu: Gpu | None, missing: list[str]) -> tuple[Precision, Gpu | None]:
    """The dtypes, and the GPU to plan for if it is not that of this machine."""
    if gpu is not None:
        return precision_on_cuda(gpu.capability, settings.base_precision), gpu
    if settings.device != "cpu" and visible_gpus() and find_spec("torch") is not None:
        from securecoderl_edge.models.device import choose_compute, gpu_trouble

        if gpu_trouble() is None:
            return choose_compute("cuda", settings.base_precision).precision(), None
    if settings.device == "cuda":
        gpu = GPUS[PAPERS_GPU]
        missing.append(f"this machine has no GPU that torch can use; planned for a {gpu.name} (--gpu)")
        return precision_on_cuda(gpu.capability, settings.base_precision), gpu
    # Without matrix units training measures whether updates are faster in bfloat16; float32 needs more memory.
    return precision_on_cpu(settings.base_precision, cpu_has_matrix_units(), cpu_has_bf16()), None


def _problems(settings: TrainSettings, missing: list[str]) -> list[Problem] | None:
    """The problems; None if they are not here, and are not needed for the plan."""
    if is_built_in(settings.problems) or Path(settings.problems).is_file():
        return load_problems(settings.problems, needs_tests=settings.runs_programs)
    if settings.prompt.max_tokens is None:
        raise UsageError(f"{settings.problems}: no such file; make one with: sce data import")
    missing.append(f"{settings.problems} is missing; make it with: sce data import")
    return None


def _from_sizes(
    settings: TrainSettings,
    precision: Precision,
    base: BaseModel,
    problems: list[Problem] | None,
    missing: list[str],
    gpu: Gpu | None,
    teacher: BaseModel | None,
) -> Plan:
    shape, taught = base.architecture, None if teacher is None else teacher.architecture
    check_targets(settings.lora, shape.lora_sizes())
    context = min(each.context for each in (shape, taught) if each is not None)
    room = settings.prompt_room(context)
    if settings.prompt.max_tokens is None and room > _ASSUMED_PROMPT:
        room = _ASSUMED_PROMPT
        missing.append(
            f"prompt lengths are unknown; planned for {room} tokens, set prompt.max_tokens for another length"
        )
    if room < 1:
        raise UsageError(f"ppo.max_tokens leaves no room for a prompt in a context of {context} tokens")
    if "sft" in settings.phases and problems is not None and not any(each.solutions for each in problems):
        raise no_solutions(settings, "reference solution")
    if "sft" in settings.phases and settings.sft.epochs is not None:
        settings = with_sft_epochs(settings, _count_solved(problems, missing))
    formats, counts, held_out = precision.formats(), None, settings.selection.problems
    if problems is not None:
        held_out = min(held_out, int(len(problems) * LARGEST_SHARE))
        counts = ProblemCounts(len(problems) - held_out, None, None, held_out)
    phases = []
    for name in settings.phases:
        seconds = None
        if gpu is not None and isinstance(shape, Architecture) and not isinstance(taught, OtherArchitecture):
            update = seconds_per_update(shape, settings, formats, gpu, name, room, taught)
            seconds = update, seconds_of_evaluation(shape, settings, formats, gpu, room)
        phases.append(plan_phase(settings, precision, shape, name, room, seconds, bool(held_out), gpu, taught))
    plan = assemble(settings, precision, shape, counts, room, tuple(phases), tuple(missing), gpu, taught)
    plan = replace(plan, difficulty=difficulty_in_words(settings, problems))
    if first_rl_phase(settings) is None or not settings.readiness_problems:
        return plan
    if gpu is None or not isinstance(shape, Architecture):
        return replace(plan, readiness_seconds=None)
    return replace(plan, readiness_seconds=seconds_of_readiness(shape, settings, formats, gpu, room))


def difficulty_in_words(settings: TrainSettings, problems: list[Problem] | None) -> str:
    """The file with the pass rates, and how many of all problems are in the range to train on.

    Args:
        problems: None if they are not here.

    Raises:
        UsageError, SceError: see `difficulty_of`; or no problem is in the range.
    """
    sampling = settings.sampling
    if sampling.difficulty is None or problems is None:
        return ""
    path = Path(sampling.difficulty)
    known = difficulty_of(problems, path).values()
    text = f"{path}, sha256 {sha256_of(path)[:12]}{_asked_otherwise(settings, known)}"
    if sampling.pass_rate is None:
        return text
    (low, high), count = sampling.pass_rate, sum(each.is_in(sampling.pass_rate) for each in known)
    found = f"{count} of {len(known)} problems have a pass rate from {low:g} to {high:g}"
    if not count:
        raise UsageError(f"{path}: {found}; set sampling.pass_rate")
    return f"{found}; {text}"


def _asked_otherwise(settings: TrainSettings, known: Iterable[Difficulty]) -> str:
    """How the prompts of the pass rates differ from those of the training; empty if they do not."""
    asked = {(each.temperature, each.prompt_style) for each in known}
    differences = {
        f"temperature {temperature:g} (training: {settings.ppo.temperature:g})"
        for temperature, _ in asked
        if temperature != settings.ppo.temperature
    } | {
        f"prompt style {style} (training: {settings.prompt.style})"
        for _, style in asked
        if style not in ("auto", settings.prompt.style)
    }
    return f"; measured with {' and '.join(sorted(differences, reverse=True))}" if differences else ""


def _count_solved(problems: list[Problem] | None, missing: list[str]) -> int:
    """The number of problems with a solution; the paper's if they are not here."""
    if problems is not None:
        return sum(bool(problem.solutions) for problem in problems)
    missing.append(f"the number of problems is unknown; planned for {_ASSUMED_PROBLEMS:,}, as in the paper")
    return _ASSUMED_PROBLEMS


def plan_phase(
    settings: TrainSettings,
    precision: Precision,
    shape: Architecture | OtherArchitecture,
    name: str,
    longest_prompt: int,
    seconds: tuple[float, float] | None = None,
    evaluates: bool = True,
    gpu: Gpu | None = None,
    teacher: Architecture | OtherArchitecture | None = None,
    sampled: int = 0,
) -> PhasePlan:
    """The plan of one phase.

    Args:
        seconds: of an update, and of an evaluation.
        evaluates: whether problems are held out, as far as the settings demand it.
        sampled: tokens that the update of these seconds sampled; 0: completions have the maximum length.
    """
    ppo, steps, is_sft = settings.ppo, phase_steps(settings)[name], name == "sft"
    of_update = 0 if is_sft else most_completions(settings, name) * ppo.max_tokens
    budget: int | None = getattr(settings.phase(name), "max_tokens_sampled", None)
    updates, most = steps, steps * of_update
    if budget is not None:
        updates, most = min(steps, -(-budget // (sampled or of_update))), min(most, budget + of_update - 1)
    evaluations = 1 + -(-updates // settings.selection.every) if evaluates and settings.selection.problems else 0
    return PhasePlan(
        name=name,
        steps=steps,
        learning_rate=peak_rate(settings, name),
        sequences=settings.sft.batch_size if is_sft else ppo.batch_size,
        prompts=settings.sft.batch_size if is_sft else ppo.batch_size // ppo.samples_per_prompt,
        most_tokens=None if is_sft else most,
        evaluations=evaluations,
        memory=fitting_plan(
            shape,
            settings,
            precision.formats(),
            longest_prompt,
            name,
            memory_limit(settings, precision.device, gpu=gpu),
            teacher,
        ),
        seconds_per_update=seconds[0] if seconds else None,
        seconds=updates * seconds[0] + evaluations * seconds[1] if seconds else None,
    )


def assemble(
    settings: TrainSettings,
    precision: Precision,
    shape: Architecture | OtherArchitecture,
    counts: ProblemCounts | None,
    longest_prompt: int,
    phases: tuple[PhasePlan, ...],
    missing: tuple[str, ...] = (),
    gpu: Gpu | None = None,
    teacher: Architecture | OtherArchitecture | None = None,
) -> Plan:
    """The plan of a run from those of its phases."""
    sizes = shape.lora_sizes()
    if isinstance(shape, OtherArchitecture):
        missing = (*missing, f"{shape.note}. The memory is a lower bound")
    return Plan(
        model=settings.model,
        device=precision.device,
        base_precision=precision.base,
        products_in=precision.products,
        parameters=shape.parameters(),
        trained_parameters=settings.lora.rank * sum(sizes.get(name, 0) for name in settings.lora.targets),
        counts=counts,
        longest_prompt=longest_prompt,
        context=shape.context,
        limit_bytes=memory_limit(settings, precision.device, gpu=gpu),
        phases=phases,
        missing=missing,
        gpu=gpu,
        teacher="" if teacher is None else _teacher_in_words(settings, shape, teacher),
        reward=_reward_in_words(settings),
    )


def _reward_in_words(settings: TrainSettings) -> str:
    function, weight = settings.reward.function, settings.reward.function_weight
    phases = ", ".join(name for name in settings.phases if name not in WITHOUT_REWARD)
    return "" if function is None else f"{1 - weight:g} R + {weight:g} f in {phases}; f is {function}"


def _teacher_in_words(
    settings: TrainSettings, shape: Architecture | OtherArchitecture, teacher: Architecture | OtherArchitecture
) -> str:
    words = f"{settings.ppo.reference}, {teacher.parameters() / 1e6:.1f} M parameters"
    rows = [each.vocabulary for each in (shape, teacher) if isinstance(each, Architecture)]
    if len(set(rows)) > 1:
        words += f"; {rows[1]} rows of tokens, the policy {rows[0]}: training refuses it if the tokens differ"
    return words
