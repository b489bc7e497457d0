"""A training run: phases in order, each resumed where it was left.

sft        supervised warm start on reference solutions; its result becomes the KL reference
binary     PPO, R_func = 1 if all tests pass, else 0
scheduled  PPO on a mixture that goes from the binary to the partial reward
partial    PPO, R_func in stages (Table 1)

The numbered algorithm of one update is in `updates`, the formulas are in `ppo`, one phase's loop is in `phase`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from securecoderl_edge.errors import UsageError
from securecoderl_edge.memory import fitting_plan, memory_limit
from securecoderl_edge.models.adapters import (
    ADAPTER_WEIGHTS,
    POLICY_ADAPTER,
    REFERENCE_ADAPTER,
    add_adapters,
    copy_adapter,
    load_adapter,
    read_lora_config,
)
from securecoderl_edge.models.architecture import read_architecture
from securecoderl_edge.models.device import Compute, choose_compute
from securecoderl_edge.models.files import base_folder, lasting_name, sha256_of_folder
from securecoderl_edge.models.loading import load_base
from securecoderl_edge.models.sizes import GIB
from securecoderl_edge.models.tokenizer import end_tokens, load_tokenizer
from securecoderl_edge.parallel import Team, join
from securecoderl_edge.phase import Log, Phase, Stopped, Workplace
from securecoderl_edge.problems.giveaways import without_shown_tests
from securecoderl_edge.problems.problem import Problem, digest_of_problems
from securecoderl_edge.problems.sources import load_problems
from securecoderl_edge.prompts.styles import STYLE_KEY
from securecoderl_edge.published import check_published, publish
from securecoderl_edge.reuse import phase_keys, take_over
from securecoderl_edge.run_record import prepare_folder, refuse_other_things
from securecoderl_edge.runs import DONE_FILE, ENVIRONMENT, Run, find_run, mark_latest
from securecoderl_edge.sandbox import Limits
from securecoderl_edge.scoring.scorer import Scorer
from securecoderl_edge.selection import hold_out
from securecoderl_edge.settings import TrainSettings
from securecoderl_edge.system.files import locked, read_json, sha256_of
from securecoderl_edge.system.machine import cpu_count, return_large_blocks
from securecoderl_edge.training_prompts import fit_for_training, fitted_in_words, training_format


def train(
    settings: TrainSettings,
    out: Path,
    *,
    resume: bool = True,
    log: Log = lambda row: None,
    say: Callable[[str], None] = lambda message: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> Run:
    """Train a policy in ``out``; phases and updates that are already there are not repeated.

    Args:
        resume: go on with what is in ``out``, and take over finished phases of runs beside it. If not, what is there is
            deleted, once it is known that the new run can begin.
        log: called with each row of metrics.jsonl; ``step`` of ``steps`` in ``phase``.
        say: called with what a user wants to know once, such as a phase that was taken over.
        should_stop: asked after each update; on True a checkpoint is written and `Stopped` raised.

    Raises:
        UsageError: ``out`` is something else than a run with these settings.
        SceError: unusable model or problems, no disk space, no memory, a number that is not finite.
        Stopped: see ``should_stop``.
    """
    return_large_blocks()
    run = Run(out)
    # Before the sources, which may have to be downloaded.
    compute = choose_compute(settings.device, settings.base_precision, recompute=settings.gradient_checkpointing)
    sources = find_sources(settings)
    team = join(compute.device)
    _check_team(settings, team)
    refuse_other_things(run)
    if not resume and any(out.resolve() in path.resolve().parents for path in sources.paths()):
        raise UsageError(f"--no-resume would throw away what {out} is to start from; give another --out")
    if team.is_writer:
        out.mkdir(parents=True, exist_ok=True)
    with locked(out) if team.is_writer else nullcontext():
        if not resume and (out / ENVIRONMENT).is_file():
            # What refuses the new run has to do so while the old one is still there.
            _try_out(run, settings, sources, compute, team)
            team.wait()
        if team.is_writer:
            prepare_folder(run, settings, sources.inputs, compute, team.count, resume)
        team.wait()
        if (run.policy / DONE_FILE).is_file():
            check_published(run.policy)
        else:
            _train_phases(run, settings, sources, compute, team, resume, log, say, should_stop)
        if team.is_writer:
            mark_latest(run)
    return run


@dataclass(frozen=True)
class Sources:
    """What a run is made from: base model, problems, the adapters that policy and reference start as, their hashes.

    Attributes:
        hold_out_seed: which problems are held out. A run that starts from another holds out what that one did, since
            it would otherwise choose by problems that its policy has learnt from.
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


def find_sources(settings: TrainSettings, download: bool = True) -> Sources:
    """Find and hash what the settings name.

    Args:
        download: whether a model that is named by its hub id and not on this disk is fetched.

    Raises:
        UsageError: something is not there, or the run to start from has another base model.
        SceError: unusable problems.
    """
    base, problems = base_folder(settings.model, download=download), load_problems(settings.problems)
    inputs = {"base_sha256": sha256_of_folder(base), "problems_sha256": digest_of_problems(problems)}
    if settings.init is None:
        return Sources(base, problems, inputs, settings.seed)
    run, phase = find_run(settings.init), ""
    if run is None and ":" in settings.init:
        name, _, phase = settings.init.rpartition(":")
        run = find_run(name)
    if run is None:
        raise UsageError(f"--init {settings.init}: no such run; give a run's folder, or its name under runs/")
    adapter = run.adapter(phase or None)
    record = read_json(run.path / ENVIRONMENT)
    if record.get("base_sha256") != inputs["base_sha256"]:
        raise UsageError(f"--init {settings.init}: that run trained another base model than {settings.model}")
    # The KL penalty is measured against that run's supervised policy, if it has one.
    supervised = [folder / "adapter" for folder in run.phase_folders() if folder.name.endswith("-sft")]
    reference = next((folder for folder in supervised if (folder / DONE_FILE).is_file()), adapter)
    config, lora = read_lora_config(adapter), settings.lora
    if (config.get("r"), config.get("lora_alpha")) != (lora.rank, lora.alpha) or set(lora.targets) != set(
        config.get("target_modules") or ()
    ):
        raise UsageError(f"--init {settings.init}: its adapter has another rank, alpha or targets than [lora] says")
    inputs["init_sha256"] = sha256_of(adapter / ADAPTER_WEIGHTS)
    inputs["reference_sha256"] = sha256_of(reference / ADAPTER_WEIGHTS)
    inputs["hold_out_seed"] = str(record.get("hold_out_seed", record.get("seed", settings.seed)))
    return Sources(base, problems, inputs, int(inputs["hold_out_seed"]), adapter, reference)


def _check_team(settings: TrainSettings, team: Team) -> None:
    prompts = settings.ppo.batch_size // settings.ppo.samples_per_prompt
    if prompts % team.count:
        raise UsageError(
            f"{prompts} prompts an update cannot be shared by {team.count} processes; change ppo.batch_size"
        )


def _train_phases(
    run: Run,
    settings: TrainSettings,
    sources: Sources,
    compute: Compute,
    team: Team,
    resume: bool,
    log: Log,
    say: Callable[[str], None],
    should_stop: Callable[[], bool],
) -> None:
    formats = {
        "base_precision": compute.base_precision,
        "products": str(compute.products),
        "rollout": str(compute.rollout_dtype),
    }
    keys = phase_keys(settings, {**sources.inputs, **formats, "processes": str(team.count)})
    rope = read_architecture(sources.base).rope_type
    if rope not in ("default", "linear", "llama3"):
        say(f"sce export does not write models of rope type {rope} yet: the policy will run here, not in llama.cpp")
    with (
        mirror_to_tensorboard(run.path / "tensorboard", log, enabled=team.is_writer) as mirrored,
        workplace(run, settings, sources, compute, team, mirrored, say, should_stop) as place,
    ):
        for number, phase in enumerate(settings.phases, 1):
            if resume and team.is_writer:
                other = take_over(run, number, phase, keys[phase])
                if other:
                    say(f"{phase}: taken over from the run {other}, which made it from the same inputs")
            team.wait()
            Phase(place, number, phase, keys[phase]).run()
            if phase == "sft":
                copy_adapter(place.model, POLICY_ADAPTER, REFERENCE_ADAPTER)
            if number < len(settings.phases) and team.agree(should_stop()):
                raise Stopped(f"stopped at the end of {phase}")
    if team.is_writer:
        facts = {"phases": list(settings.phases), STYLE_KEY: settings.prompt.style}
        publish(run.policy, place.model, lasting_name(settings.model), facts)
    team.wait()


def _try_out(run: Run, settings: TrainSettings, sources: Sources, compute: Compute, team: Team) -> None:
    """Prepare every phase as `_train_phases` would, and write nothing; errors are those of `train`."""
    with workplace(run, settings, sources, compute, team) as place:
        for number, phase in enumerate(settings.phases, 1):
            Phase(place, number, phase, "").prepare()


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
    """What the phases work with: model and problems loaded, a scorer that lives as long as the block."""
    if compute.device == "cuda" and settings.memory_gib is not None:
        total = torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, settings.memory_gib * GIB / total))
    architecture = read_architecture(sources.base)
    # The least that a phase can need, before anything is loaded; `Phase.prepare` knows the prompts.
    limit = memory_limit(settings, compute.device, team.local_count)
    fitting_plan(architecture, settings, compute.formats(), 1, settings.phases[-1], limit)
    tokenizer = load_tokenizer(sources.base)
    ends = end_tokens(sources.base, tokenizer.eos_token_id)
    model = load_model(settings, sources, compute)
    every = sources.problems
    if settings.reward.shown_tests == "drop":
        every = [without_shown_tests(problem) for problem in every]
    problems, held_out = hold_out(every, settings.selection.problems, sources.hold_out_seed)
    format = training_format(settings, sources.base)
    fitted, held_out = fit_for_training(settings, architecture.context, tokenizer, format, problems, held_out)
    for line in fitted_in_words(settings, architecture.context, fitted):
        say(line)
    reward = settings.reward
    limits = Limits(reward.cpu_seconds, reward.wall_seconds, reward.memory_mib)
    workers = None if team.local_count == 1 else max(1, cpu_count() // team.local_count)
    with Scorer(workers, limits, reward.stage_rule, reward.severity, reward.sandbox) as scorer:
        yield Workplace(
            run, settings, sources.inputs, architecture, model, tokenizer, ends, compute, team, fitted, held_out,
            format, scorer, log, say, should_stop,
        )  # fmt: skip


def load_model(settings: TrainSettings, sources: Sources, compute: Compute) -> Any:
    """The base model with its adapters as they are before the first phase."""
    base = load_base(sources.base, compute.base_precision, compute.device, compute.products)
    model = add_adapters(base, settings.lora, settings.seed)
    for adapter, name in ((sources.policy, POLICY_ADAPTER), (sources.reference, REFERENCE_ADAPTER)):
        if adapter is not None:
            load_adapter(model, adapter, name)
    return model


@contextmanager
def mirror_to_tensorboard(
    folder: Path, log: Callable[[dict[str, Any]], None], *, enabled: bool = True
) -> Iterator[Callable[[dict[str, Any]], None]]:
    """A ``log`` that also writes the numbers of a row for TensorBoard, where that is installed, one run a phase."""
    if not enabled or find_spec("tensorboard") is None:
        yield log
        return
    from torch.utils.tensorboard import SummaryWriter

    writers: dict[str, Any] = {}

    def log_both(row: dict[str, Any]) -> None:
        phase, step = row["phase"], row["step"]
        if phase not in writers:
            # What a crash left of later steps is hidden by the first event of this writer.
            writers[phase] = SummaryWriter(str(folder / phase), purge_step=step)
        for name, value in row.items():
            if isinstance(value, (int, float)) and not isinstance(value, bool) and name not in ("step", "steps"):
                writers[phase].add_scalar(name, value, step)
        log(row)

    try:
        yield log_both
    finally:
        for writer in writers.values():
            writer.close()
