"""What all phases of a run share: model, tokenizer, problems that fit, scorer; and the learner of each phase."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from securecoderl_edge.errors import SceError, UsageError
from securecoderl_edge.languages.language import PYTHON
from securecoderl_edge.languages.python_source import reformatted
from securecoderl_edge.models.adapters import (
    POLICY_ADAPTER,
    REFERENCE_ADAPTER,
    adapter_parameters,
    add_adapters,
    check_targets,
    load_adapter,
)
from securecoderl_edge.models.architecture import Architecture
from securecoderl_edge.models.decoder import Decoder
from securecoderl_edge.models.device import Compute
from securecoderl_edge.models.loading import load_base
from securecoderl_edge.models.other import OtherArchitecture, find_architecture
from securecoderl_edge.models.sizes import GIB
from securecoderl_edge.models.tokenizer import Tokenizer, read_tokenizer
from securecoderl_edge.problems.difficulty import Difficulty
from securecoderl_edge.problems.leakage import without_visible_tests
from securecoderl_edge.problems.problem import Problem
from securecoderl_edge.prompts.chat import read_chat_template
from securecoderl_edge.prompts.fitting import Fitted, fit_problems
from securecoderl_edge.prompts.styles import CHAT_STYLES, PromptFormat
from securecoderl_edge.runs import Run
from securecoderl_edge.sandbox import Limits
from securecoderl_edge.scoring.own_reward import OwnReward, own_function
from securecoderl_edge.scoring.scorer import Scorer, Submission
from securecoderl_edge.system.machine import cpu_count
from securecoderl_edge.training.inputs import FUNCTION_HASH, Inputs
from securecoderl_edge.training.memory import fitting_plan, memory_limit, require_free_memory
from securecoderl_edge.training.parallel import Team
from securecoderl_edge.training.phase_settings import RL_PHASES, WITHOUT_REWARD
from securecoderl_edge.training.recipe import no_solutions, peak_rate
from securecoderl_edge.training.selection import hold_out
from securecoderl_edge.training.settings import TrainSettings
from securecoderl_edge.training.teacher import check_teacher, load_teacher
from securecoderl_edge.training.update.learner import VALUE_LEARNING_RATE, Learner, make_optimizer, make_value_head
from securecoderl_edge.training.update.meter import PROGRAMS, Meter
from securecoderl_edge.training.update.pass_rates import PassRates, rates_before

Log = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class Resources:
    """What all phases of a run share.

    Attributes:
        hashes: of the inputs.
        architecture: of the base model. teacher_shape: of the teacher.
        teacher: the frozen model in place of the reference, if a phase asks it.
        fitted: the training problems. held_out: those for checkpoint selection. Their prompts fit.
        own_reward: the user's own reward function, if there is one.
        log: called with each row of metrics. say: called with messages for the user.
        meter: of all phases.
        difficulties: see `Inputs`.
    """

    run: Run
    settings: TrainSettings
    hashes: Mapping[str, str]
    architecture: Architecture | OtherArchitecture
    teacher_shape: Architecture | OtherArchitecture | None
    model: Any
    teacher: Any
    tokenizer: Tokenizer
    compute: Compute
    team: Team
    fitted: Fitted
    held_out: list[Problem]
    format: PromptFormat
    scorer: Scorer
    own_reward: OwnReward | None
    log: Log
    say: Callable[[str], None]
    should_stop: Callable[[], bool]
    meter: Meter
    difficulties: Mapping[str, Difficulty]

    def asked(self) -> list[Problem]:
        """The training problems that completions are sampled of."""
        bounds = self.settings.sampling.pass_rate
        every = self.fitted.problems
        return [each for each in every if bounds is None or self.difficulties[each.id].is_in(bounds)]


@contextmanager
def open_resources(
    run: Run,
    settings: TrainSettings,
    inputs: Inputs,
    compute: Compute,
    team: Team,
    log: Log = lambda row: None,
    say: Callable[[str], None] = lambda message: None,
    should_stop: Callable[[], bool] = lambda: False,
    meter: Meter | None = None,
) -> Iterator[Resources]:
    """Load the model and the problems, and open a scorer for the duration of the block."""
    if compute.is_accelerator and settings.memory_gib is not None:
        total = torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, settings.memory_gib * GIB / total))
    meter = meter or Meter()
    meter.begin("loading the model")
    architecture = find_architecture(inputs.base)
    taught = None if inputs.teacher is None else find_architecture(inputs.teacher)
    check_targets(settings.lora, architecture.lora_sizes())
    if isinstance(architecture, OtherArchitecture) and settings.gradient_checkpointing:
        raise UsageError(f"--gradient-checkpointing is not supported for {architecture.name}. Leave it out")
    # Check a lower bound before anything is loaded; `prepare_phase` checks again with the prompts.
    limit = memory_limit(settings, compute.device, team.sharing(compute.device))
    least = fitting_plan(architecture, settings, compute.formats(), 1, settings.phases[-1], limit, taught)
    require_free_memory(least, compute.device)
    reward, own_reward = settings.reward, None
    with ExitStack() as stack:
        if reward.function is not None:  # before the model: its file may fail
            own = OwnReward(own_function(reward.function), inputs.hashes[FUNCTION_HASH], say)
            own_reward = stack.enter_context(own)
        tokenizer, format = read_tokenizer(inputs.base), training_format(settings, inputs.base)
        teacher = None
        if inputs.teacher is not None:
            check_teacher(str(settings.ppo.reference), inputs.teacher, inputs.base, tokenizer, say)
            teacher = load_teacher(inputs.teacher, compute)
        model = _load_model(settings, inputs, compute)
        context = min(each.context for each in (architecture, taught) if each is not None)  # the teacher reads all
        fitted, held_out = _fitting_problems(settings, inputs, context, tokenizer, format)
        room, total = settings.prompt_room(context), len(fitted.problems) + fitted.left_out
        if fitted.left_out:
            say(f"{fitted.left_out} of {total} problems dropped: their prompts have more than {room} tokens")
        if fitted.cut:
            say(f"{fitted.cut} of {total} statements truncated to fit into {room} tokens")
        limits = Limits(reward.cpu_seconds, reward.wall_seconds, reward.memory_mib)
        workers = None if team.local_count == 1 else max(1, cpu_count() // team.local_count)
        scorer = Scorer(
            workers,
            limits,
            reward.credit_rule,
            reward.severity,
            reward.sandbox,
            security=reward.security,
            analyzers=reward.analyzers,
        )
        yield Resources(
            run, settings, inputs.hashes, architecture, taught, model, teacher, tokenizer, compute, team, fitted,
            held_out, format, stack.enter_context(scorer), own_reward, log, say, should_stop, meter,
            inputs.difficulties,
        )  # fmt: skip


def _load_model(settings: TrainSettings, inputs: Inputs, compute: Compute) -> Any:
    """The base model with its adapters, in their state before the first phase."""
    base = load_base(inputs.base, compute.base_precision, compute.device, compute.products)
    model = add_adapters(base, settings.lora, settings.seed)
    for adapter, name in ((inputs.policy, POLICY_ADAPTER), (inputs.reference, REFERENCE_ADAPTER)):
        if adapter is not None:
            load_adapter(model, adapter, name)
    return model


def training_format(settings: TrainSettings, base: Path) -> PromptFormat:
    """The prompt format for the model in ``base``.

    Raises:
        UsageError: the style is ``chat``, and the model has no chat template.
    """
    style = settings.prompt.style
    return PromptFormat(style, read_chat_template(base) if style in CHAT_STYLES else None)


def _fitting_problems(
    settings: TrainSettings, inputs: Inputs, context: int, tokenizer: Tokenizer, format: PromptFormat
) -> tuple[Fitted, list[Problem]]:
    """Training and held-out problems whose prompts leave room for the completion, truncated if necessary.

    Args:
        context: of the model, in tokens.

    Raises:
        SceError: no training problem is left.
    """
    every = inputs.problems
    if settings.reward.visible_tests != "keep":
        most = 1 if settings.reward.visible_tests == "drop-one" else None
        every = [without_visible_tests(problem, most) for problem in every]
    if settings.reformat_solutions:
        every = [
            replace(each, solutions=tuple(map(reformatted, each.solutions))) if each.language == PYTHON.name else each
            for each in every
        ]
    room, overlong = settings.prompt_room(context), settings.prompt.overlong
    fitted, held_out = (
        fit_problems(part, format, lambda text: len(tokenizer.encode_prompt(text)), room, overlong)
        for part in hold_out(every, settings.selection, inputs.hold_out_seed)
    )
    if not fitted.problems:
        raise SceError(
            f"{settings.problems}: every prompt exceeds prompt.max_tokens, or leaves less than "
            f"{settings.ppo.max_tokens} of {context} context tokens for the completion. Set prompt.overlong = truncate"
        )
    return fitted, list(held_out.problems)


def prepare_phase(resources: Resources, phase: str) -> tuple[Learner, list[Problem]]:
    """The learner in its state before the first update of a phase, and the problems that the phase can train on.

    Raises:
        SceError: no usable problem.
        UsageError: not enough memory.
    """
    learner = _make_learner(resources, phase)
    problems = _solved_problems(resources, learner) if phase == "sft" else _asked_problems(resources, phase)
    longest = longest_prompt_of(resources, learner, problems)
    device, settings = resources.compute.device, resources.settings
    limit = memory_limit(settings, device, resources.team.sharing(device))
    formats = resources.compute.formats()
    learner.memory = fitting_plan(
        resources.architecture, settings, formats, longest, phase, limit, resources.teacher_shape
    )
    require_free_memory(learner.memory, device)
    return learner, problems


def longest_prompt_of(resources: Resources, learner: Learner, problems: Sequence[Problem]) -> int:
    """Tokens of the longest prompt of a phase."""
    return max(len(learner.prompt_tokens(problem)) for problem in [*problems, *resources.held_out])


def _make_learner(resources: Resources, phase: str) -> Learner:
    settings, compute = resources.settings, resources.compute
    trained = list(adapter_parameters(resources.model, POLICY_ADAPTER).values())
    groups: list[dict[str, Any]] = [{"params": trained, "peak_lr": peak_rate(settings, phase)}]
    head = None
    if phase in RL_PHASES and settings.ppo.advantage == "gae":
        head = make_value_head(resources.model.config.hidden_size, settings.seed).to(compute.device)
        groups.append({"params": list(head.parameters()), "peak_lr": VALUE_LEARNING_RATE})
    samples = phase != "sft" or resources.held_out
    is_ours = isinstance(resources.architecture, Architecture)
    return Learner(
        resources.model,
        resources.tokenizer,
        compute,
        make_optimizer(settings.optimizer, groups),
        Decoder(resources.model, compute.rollout_dtype) if samples and is_ours else None,
        head,
        resources.team,
        pass_rates=_first_rates(resources),
        format=resources.format,
        extract=settings.reward.extract,
        own_reward=None if phase in WITHOUT_REWARD else resources.own_reward,
        measures_kl=settings.measures_kl(phase),
        teacher=resources.teacher if settings.teacher_of(phase) is not None else None,
        meter=resources.meter,
    )


def _first_rates(resources: Resources) -> PassRates:
    """What the adaptive choice of a phase begins with."""
    if resources.settings.sampling.method == "uniform":
        return PassRates()
    return rates_before({name: (each.samples, each.passed) for name, each in resources.difficulties.items()})


def _asked_problems(resources: Resources, phase: str) -> list[Problem]:
    problems, bounds, total = resources.asked(), resources.settings.sampling.pass_rate, len(resources.fitted.problems)
    if bounds is None:
        return problems
    span = f"have a pass rate from {bounds[0]:g} to {bounds[1]:g} in {resources.settings.sampling.difficulty}"
    if not problems:
        source = resources.settings.problems
        raise SceError(f"{source}: none of {total} training problems {span}; set sampling.pass_rate")
    resources.say(f"{phase}: {len(problems)} of {total} training problems {span}")
    return problems


def _solved_problems(resources: Resources, learner: Learner) -> list[Problem]:
    """The problems with a reference solution that is not too long, and without the others of their solutions."""
    problems, longest = resources.fitted.problems, resources.settings.sft.max_tokens
    kind = ""
    with_short_ones = [
        replace(
            problem,
            solutions=tuple(
                each for each in problem.solutions if len(learner.solution_tokens(each, problem.language)) <= longest
            ),
        )
        for problem in problems
    ]
    if resources.settings.sft.filter == "security":
        with_short_ones, kind = _with_secure_solutions(resources, with_short_ones), "secure "
    solved = [problem for problem in with_short_ones if problem.solutions]
    if not solved:
        raise no_solutions(resources.settings, f"{kind}reference solution of at most {longest} tokens")
    if len(solved) < len(problems):
        resources.say(
            f"sft: {len(solved)} of {len(problems)} problems have a {kind}solution of at most {longest} tokens"
        )
    return solved


def _with_secure_solutions(resources: Resources, problems: Sequence[Problem]) -> list[Problem]:
    """The problems with those of their solutions that pass all tests and are `Score.is_secure`.

    Each process runs a part of them, and all take the same ones: near a time limit two runs of a program may differ.
    """
    asked = [(row, index) for row, problem in enumerate(problems) for index in range(len(problem.solutions))]
    own = resources.team.share(asked)
    resources.meter.begin("scoring solutions", len(own), PROGRAMS)
    secure = []
    submissions = (Submission(problems[row], problems[row].solutions[index]) for row, index in own)
    scores = (score for batch in resources.scorer.in_batches(submissions) for score, _ in batch)
    for place, score in zip(own, scores, strict=True):
        resources.meter.advance()
        if score.passes_all_tests and score.is_secure:
            secure.append(list(place))
    taken = {(row, index) for row, index in resources.team.collect(secure)}
    return [
        replace(problem, solutions=tuple(each for index, each in enumerate(problem.solutions) if (row, index) in taken))
        for row, problem in enumerate(problems)
    ]
