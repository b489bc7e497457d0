"""Resources of a run, set up once for all phases: base model, problems, scorer; and the learner of each phase.

Also the prompt format of a run, and the selection of problems that fit into the context.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from securecoderl_edge.errors import SceError, UsageError
from securecoderl_edge.languages.language import PYTHON
from securecoderl_edge.languages.python_source import reformatted
from securecoderl_edge.models.adapters import (
    ADAPTER_WEIGHTS,
    POLICY_ADAPTER,
    REFERENCE_ADAPTER,
    adapter_parameters,
    add_adapters,
    check_targets,
    load_adapter,
    read_lora_config,
)
from securecoderl_edge.models.architecture import Architecture
from securecoderl_edge.models.decoder import Decoder
from securecoderl_edge.models.device import Compute
from securecoderl_edge.models.files import base_folder, sha256_of_folder
from securecoderl_edge.models.from_gguf import gguf_source
from securecoderl_edge.models.loading import load_base
from securecoderl_edge.models.other import OtherArchitecture, find_architecture
from securecoderl_edge.models.sizes import GIB
from securecoderl_edge.models.tokenizer import Tokenizer, read_tokenizer
from securecoderl_edge.problems.leakage import without_visible_tests
from securecoderl_edge.problems.problem import Problem
from securecoderl_edge.problems.records import digest_of_problems
from securecoderl_edge.problems.sources import load_problems
from securecoderl_edge.prompts.chat import read_chat_template
from securecoderl_edge.prompts.fitting import Fitted, fit_problems
from securecoderl_edge.prompts.styles import PromptFormat
from securecoderl_edge.runs import DONE_FILE, ENVIRONMENT, Run, find_run, phase_of
from securecoderl_edge.sandbox import Limits
from securecoderl_edge.scoring.scorer import Scorer
from securecoderl_edge.system.files import read_json, sha256_of
from securecoderl_edge.system.machine import cpu_count
from securecoderl_edge.training.memory import fitting_plan, memory_limit, require_free_memory
from securecoderl_edge.training.parallel import Team
from securecoderl_edge.training.schedules import peak_rate
from securecoderl_edge.training.selection import hold_out
from securecoderl_edge.training.settings import RL_PHASES, TrainSettings
from securecoderl_edge.training.update.learner import VALUE_LEARNING_RATE, Learner, make_optimizer, make_value_head

Log = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class Sources:
    """Inputs of a run: base model, problems, the initial adapters of policy and reference, and their hashes.

    Attributes:
        hold_out_seed: decides which problems are held out. A run that starts from another run holds out the same ones,
            since it would otherwise select checkpoints on problems that its policy was trained on.
    """

    base: Path
    problems: list[Problem]
    inputs: dict[str, str]
    hold_out_seed: int
    policy: Path | None = None
    reference: Path | None = None

    def paths(self) -> list[Path]:
        """The folders that a run reads."""
        return [path for path in (self.base, self.policy, self.reference) if path is not None]


@dataclass(frozen=True)
class Workplace:
    """Resources that all phases of a run share.

    Attributes:
        inputs: hashes of base model and problems.
        architecture: of the base model.
        fitted: the training problems. held_out: those for checkpoint selection. Their prompts fit.
        say: called with messages for the user.
    """

    run: Run
    settings: TrainSettings
    inputs: Mapping[str, str]
    architecture: Architecture | OtherArchitecture
    model: Any
    tokenizer: Tokenizer
    compute: Compute
    team: Team
    fitted: Fitted
    held_out: list[Problem]
    format: PromptFormat
    scorer: Scorer
    log: Log
    say: Callable[[str], None]
    should_stop: Callable[[], bool]


def find_sources(settings: TrainSettings, download: bool = True) -> Sources:
    """Find and hash the inputs in the settings.

    Args:
        download: whether to download a model that is given by its Hugging Face repo id.

    Raises:
        UsageError: an input is missing, or the run to start from has another base model.
        SceError: unusable problems.
    """
    base, problems = base_folder(settings.model, download=download), load_problems(settings.problems)
    inputs = {"base_sha256": sha256_of_folder(base), "problems_sha256": digest_of_problems(problems)}
    if source := gguf_source(base):
        inputs["base_gguf_sha256"] = str(source["sha256"])
    if settings.init is None:
        return Sources(base, problems, inputs, settings.seed)
    run, phase = find_run(settings.init), ""
    if run is None and ":" in settings.init:
        name, _, phase = settings.init.rpartition(":")
        run = find_run(name)
    if run is None:
        raise UsageError(f"--init {settings.init}: unknown run. Give a run folder, or its name under runs/")
    adapter = run.adapter(phase or None)
    record = read_json(run.path / ENVIRONMENT)
    if record.get("base_sha256") != inputs["base_sha256"]:
        raise UsageError(f"--init {settings.init}: that run has another base model than {settings.model}")
    # The reference of the KL penalty is that run's SFT policy, if it has one.
    supervised = [folder / "adapter" for folder in run.phase_folders() if phase_of(folder) == "sft"]
    reference = next((folder for folder in supervised if (folder / DONE_FILE).is_file()), adapter)
    config, lora = read_lora_config(adapter), settings.lora
    targets = config.get("target_modules")
    same_layers = isinstance(targets, list) and sorted(map(str, targets)) == sorted(set(lora.targets))
    if (config.get("r"), config.get("lora_alpha")) != (lora.rank, lora.alpha) or not same_layers:
        raise UsageError(f"--init {settings.init}: its adapter differs from [lora] in rank, alpha or targets")
    inputs["init_sha256"] = sha256_of(adapter / ADAPTER_WEIGHTS)
    inputs["reference_sha256"] = sha256_of(reference / ADAPTER_WEIGHTS)
    seed = record.get("hold_out_seed", record.get("seed", settings.seed))
    if not str(seed).isdecimal():
        raise SceError(f"{run.path / ENVIRONMENT}: damaged (its seed is not a number)")
    inputs["hold_out_seed"] = str(seed)
    return Sources(base, problems, inputs, int(seed), adapter, reference)


def formats_of(sources: Sources, compute: Compute) -> dict[str, str]:
    """How a model is computed and read, as far as results depend on it."""
    formats = {
        "base_precision": compute.base_precision,
        "products": str(compute.products),
        "rollout": str(compute.rollout_dtype),
    }
    if before := read_tokenizer(sources.base).before:
        formats["start"] = str(before)  # earlier versions trained some models without their start token
    return formats


@contextmanager
def workplace(
    run: Run,
    settings: TrainSettings,
    sources: Sources,
    compute: Compute,
    team: Team,
    log: Log = lambda row: None,
    say: Callable[[str], None] = lambda message: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> Iterator[Workplace]:
    """Set up the resources: load the model and the problems, and open a scorer for the duration of the block."""
    if compute.is_accelerator and settings.memory_gib is not None:
        total = torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, settings.memory_gib * GIB / total))
    architecture = find_architecture(sources.base)
    check_targets(settings.lora, architecture.lora_sizes())
    if isinstance(architecture, OtherArchitecture) and settings.gradient_checkpointing:
        raise UsageError(f"--gradient-checkpointing is not supported for {architecture.name}. Leave it out")
    # Check a lower bound before anything is loaded; `prepare_phase` checks again with the prompts.
    limit = memory_limit(settings, compute.device, team.sharing(compute.device))
    least = fitting_plan(architecture, settings, compute.formats(), 1, settings.phases[-1], limit)
    require_free_memory(least, compute.device)
    tokenizer = read_tokenizer(sources.base)
    model = load_model(settings, sources, compute)
    every = sources.problems
    if settings.reward.visible_tests == "drop":
        every = [without_visible_tests(problem) for problem in every]
    if settings.reformat_solutions:
        every = [_reformatted(problem) for problem in every]
    problems, held_out = hold_out(every, settings.selection.problems, sources.hold_out_seed)
    format = training_format(settings, sources.base)
    fitted, held_out = _fit_for_training(settings, architecture.context, tokenizer, format, problems, held_out)
    room, total = settings.prompt_room(architecture.context), len(fitted.problems) + fitted.left_out
    if fitted.left_out:
        say(f"{fitted.left_out} of {total} problems dropped: their prompts have more than {room} tokens")
    if fitted.cut:
        say(f"{fitted.cut} of {total} statements truncated to fit into {room} tokens")
    reward = settings.reward
    limits = Limits(reward.cpu_seconds, reward.wall_seconds, reward.memory_mib)
    workers = None if team.local_count == 1 else max(1, cpu_count() // team.local_count)
    with Scorer(
        workers,
        limits,
        reward.credit_rule,
        reward.severity,
        reward.sandbox,
        security=reward.security,
        analyzers=reward.analyzers,
    ) as scorer:
        yield Workplace(
            run, settings, sources.inputs, architecture, model, tokenizer, compute, team, fitted, held_out,
            format, scorer, log, say, should_stop,
        )  # fmt: skip


def _reformatted(problem: Problem) -> Problem:
    if problem.language != PYTHON.name:
        return problem
    return replace(problem, solutions=tuple(map(reformatted, problem.solutions)))


def load_model(settings: TrainSettings, sources: Sources, compute: Compute) -> Any:
    """The base model with its adapters, in their state before the first phase."""
    base = load_base(sources.base, compute.base_precision, compute.device, compute.products)
    model = add_adapters(base, settings.lora, settings.seed)
    for adapter, name in ((sources.policy, POLICY_ADAPTER), (sources.reference, REFERENCE_ADAPTER)):
        if adapter is not None:
            load_adapter(model, adapter, name)
    return model


def training_format(settings: TrainSettings, base: Path) -> PromptFormat:
    """The prompt format for the model in ``base``.

    Raises:
        UsageError: the style is ``chat``, and the model has no chat template.
    """
    style = settings.prompt.style
    return PromptFormat(style, read_chat_template(base) if style == "chat" else None)


def _fit_for_training(
    settings: TrainSettings,
    context: int,
    tokenizer: Tokenizer,
    format: PromptFormat,
    problems: Sequence[Problem],
    held_out: Sequence[Problem],
) -> tuple[Fitted, list[Problem]]:
    """Training and held-out problems whose prompts leave room for the completion, truncated if necessary.

    Args:
        context: of the model, in tokens.

    Raises:
        SceError: no training problem is left.
    """
    room, overlong = settings.prompt_room(context), settings.prompt.overlong
    fitted, chosen_by = (
        fit_problems(part, format, lambda text: len(tokenizer.encode_prompt(text)), room, overlong)
        for part in (problems, held_out)
    )
    if not fitted.problems:
        raise SceError(
            f"{settings.problems}: every prompt exceeds prompt.max_tokens, or leaves less than "
            f"{settings.ppo.max_tokens} of {context} context tokens for the completion. Set prompt.overlong = truncate"
        )
    return fitted, list(chosen_by.problems)


def prepare_phase(place: Workplace, phase: str) -> tuple[Learner, list[Problem]]:
    """The learner in its state before the first update of a phase, and the problems that the phase can train on.

    Raises:
        SceError: no usable problem.
        UsageError: not enough memory.
    """
    learner = _make_learner(place, phase)
    usable = _usable_problems(place, phase, learner)
    longest = longest_prompt_of(place, learner, usable)
    device = place.compute.device
    limit = memory_limit(place.settings, device, place.team.sharing(device))
    learner.memory = fitting_plan(place.architecture, place.settings, place.compute.formats(), longest, phase, limit)
    require_free_memory(learner.memory, place.compute.device)
    return learner, usable


def longest_prompt_of(place: Workplace, learner: Learner, usable: Sequence[Problem]) -> int:
    """Tokens of the longest prompt of a phase."""
    return max(len(learner.prompt_tokens(problem)) for problem in [*usable, *place.held_out])


def _make_learner(place: Workplace, phase: str) -> Learner:
    ppo = place.settings.ppo
    trained = list(adapter_parameters(place.model, POLICY_ADAPTER).values())
    groups: list[dict[str, Any]] = [{"params": trained, "peak_lr": peak_rate(place.settings, phase)}]
    head = None
    if phase in RL_PHASES and ppo.advantage == "gae":
        head = make_value_head(place.model.config.hidden_size, place.settings.seed).to(place.compute.device)
        groups.append({"params": list(head.parameters()), "peak_lr": VALUE_LEARNING_RATE})
    optimizer = make_optimizer(place.settings.optimizer, groups)
    samples = phase != "sft" or place.held_out
    is_ours = isinstance(place.architecture, Architecture)
    decoder = Decoder(place.model, place.compute.rollout_dtype) if samples and is_ours else None
    return Learner(
        place.model, place.tokenizer, place.compute, optimizer, decoder, head, place.team, format=place.format,
        extract=place.settings.reward.extract, measures_kl=place.settings.measures_kl(phase),
    )  # fmt: skip


def _usable_problems(place: Workplace, phase: str, learner: Learner) -> list[Problem]:
    """The problems that a phase can train on: for sft, those with a reference solution that is not too long."""
    settings, usable = place.settings, list(place.fitted.problems)
    if phase != "sft":
        return usable
    longest = settings.sft.max_tokens
    with_short_ones = (
        replace(
            problem,
            solutions=tuple(
                each for each in problem.solutions if len(learner.solution_tokens(each, problem.language)) <= longest
            ),
        )
        for problem in usable
    )
    solved = [problem for problem in with_short_ones if problem.solutions]
    if not solved:
        raise SceError(
            f"{settings.problems}: no problem has a reference solution of at most {longest} tokens, so SFT "
            "cannot run. Leave it out with --phases binary,partial"
        )
    if len(solved) < len(usable):
        place.say(f"sft: {len(solved)} of {len(usable)} problems have a solution of at most {longest} tokens")
    return solved
