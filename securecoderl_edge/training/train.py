"""A training run: phases in order, each resumed at its last checkpoint.

sft        SFT warm start on reference solutions; its result becomes the KL reference
binary     PPO, R_func = 1 if all tests pass, else 0
scheduled  PPO on a mixture that goes from the binary to the partial reward
partial    PPO, R_func by reward levels (Table 1)
rft        supervised steps on the policy's own programs that pass all tests, in rounds
ssd        supervised steps on unverified completions of the policy that the phase starts from
distill    PPO with reward 0, towards a larger model

One phase's loop is in `phase`. The numbered algorithm of one update is in `update.ppo_update`, the formulas are in
`update.ppo`; updates of sft, rft and ssd are in `update.supervised`, those of distill
in `update.distill`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from contextlib import nullcontext
from dataclasses import asdict, replace
from pathlib import Path

from securecoderl_edge.errors import UsageError
from securecoderl_edge.models.adapters import POLICY_ADAPTER, REFERENCE_ADAPTER, copy_adapter
from securecoderl_edge.models.device import Compute, choose_compute
from securecoderl_edge.models.files import lasting_name
from securecoderl_edge.models.other import OtherArchitecture, find_architecture
from securecoderl_edge.prompts.styles import STYLE_KEY
from securecoderl_edge.runs import DONE_FILE, ENVIRONMENT, READINESS, Run, mark_latest
from securecoderl_edge.system.files import locked, write_atomically
from securecoderl_edge.system.heap import return_large_blocks
from securecoderl_edge.training.checkpoint import check_published, publish
from securecoderl_edge.training.curves import check_trackers, curves_of
from securecoderl_edge.training.folder import refuse_other_things
from securecoderl_edge.training.inputs import Inputs, find_inputs
from securecoderl_edge.training.parallel import Team, is_restarted, join
from securecoderl_edge.training.phase import Stopped, train_phase
from securecoderl_edge.training.readiness import (
    first_rl_phase,
    measure_readiness,
    read_readiness,
    start_in_words,
)
from securecoderl_edge.training.record import check_equal, check_shared, prepare_folder, with_recorded_dtypes
from securecoderl_edge.training.resources import Log, Resources, open_resources, prepare_phase
from securecoderl_edge.training.reuse import phase_keys, reuse_phase
from securecoderl_edge.training.settings import TrainSettings
from securecoderl_edge.training.update.meter import Meter, Stage


def train(
    settings: TrainSettings,
    out: Path,
    *,
    resume: bool = True,
    log: Log = lambda row: None,
    say: Callable[[str], None] = lambda message: None,
    should_stop: Callable[[], bool] = lambda: False,
    on_stage: Callable[[Stage], None] = lambda stage: None,
    trackers: Collection[str] = (),
) -> Run:
    """Train a policy in ``out``; existing phases and updates are not repeated.

    In a process of a launcher such as torchrun, train together with its other processes. ``log``, ``say`` and
    ``on_stage`` are called in the first one only.

    Args:
        resume: resume the run in ``out``, and reuse finished phases of other runs in the same folder. If False, delete
            the run in ``out`` once the new one is known to be possible; a restart by a launcher resumes all the same.
        log: called with each row of metrics.jsonl; ``step`` of ``steps`` in ``phase``.
        say: called with messages for the user, for example about a reused phase.
        should_stop: called after each update; on True a checkpoint is written and `Stopped` raised.
        on_stage: called with what is being done, and how far it is: at its beginning, then up to ten times a second.
        trackers: of `curves.TRACKERS`, which get the numbers of each row as well.

    Raises:
        UsageError: ``out`` is not a run with these settings.
        SceError: unusable model or problems, a tracker that is not installed, no disk space, no memory, NaN or Inf,
            another process has ended.
        Stopped: see ``should_stop``.
        KeyboardInterrupt: a signal came, in any stage; the last finished update is saved.
    """
    check_trackers(trackers)
    return_large_blocks()
    run = Run(out)
    team = join(settings.device)
    if not team.is_writer:
        log, say, on_stage = _nobody, _nobody, _nobody
    resume = resume or is_restarted()
    refuse_other_things(run)
    # Before the inputs, which may have to be downloaded.
    compute = choose_compute(
        settings.device, settings.base_precision, recompute=settings.gradient_checkpointing, tell=say
    )
    if resume:
        compute = with_recorded_dtypes(compute, run)
    inputs = find_inputs(settings, tell=say)
    identity = inputs.identity(compute)
    if not resume and any(out.resolve() in path.resolve().parents for path in inputs.paths()):
        raise UsageError(f"--no-resume would delete the run that {out} starts from. Choose another --out")
    check_equal(settings, {**identity, "device": compute.device}, team)
    if team.is_writer:
        out.mkdir(parents=True, exist_ok=True)
    with locked(out) if team.is_writer else nullcontext():
        check_shared(out, team)
        if not resume and (out / ENVIRONMENT).is_file():
            # If the new run is rejected, this must happen before the old one is deleted.
            _try_out(run, settings, inputs, compute, team)
            team.wait()
        if team.is_writer:
            languages = {problem.language for problem in inputs.problems}
            prepare_folder(run, settings, inputs.hashes, languages, compute, team.count, resume)
        team.wait()
        if (run.policy / DONE_FILE).is_file():
            check_published(run.policy)
            if team.is_writer:
                mark_latest(run)
            return run
        _announce(settings, inputs, team, say)
        keys = phase_keys(settings, identity)
        with (
            curves_of(run, log, trackers, say, enabled=team.is_writer) as drawn,
            open_resources(run, settings, inputs, compute, team, drawn, say, should_stop, Meter(on_stage)) as resources,
        ):
            for number, name in enumerate(settings.phases, 1):
                if resume and team.is_writer and (other := reuse_phase(run, number, name, keys[name])):
                    say(f"{name}: reused from run {other}, which trained it from the same inputs")
                team.wait()
                if settings.readiness_problems and name == first_rl_phase(settings):
                    _report_readiness(resources, number, name, keys[name])
                if name == "ssd":
                    copy_adapter(resources.model, POLICY_ADAPTER, REFERENCE_ADAPTER)  # its teacher
                train_phase(resources, number, name, keys[name])
                if name == "sft":
                    copy_adapter(resources.model, POLICY_ADAPTER, REFERENCE_ADAPTER)
                if number < len(settings.phases) and team.agree(should_stop()):
                    raise Stopped(f"stopped at the end of {name}")
        if team.is_writer:
            facts = {"phases": list(settings.phases), STYLE_KEY: settings.prompt.style}
            publish(run.policy, resources.model, lasting_name(settings.model), facts)
        team.wait()
        if team.is_writer:
            mark_latest(run)
    return run


def _nobody(_: object) -> None:
    """Take a row or a message that another process passes on."""


def _announce(settings: TrainSettings, inputs: Inputs, team: Team, say: Callable[[str], None]) -> None:
    """Tell what a user may not expect of this model, these processes and these settings."""
    if settings.reward.random is not None:
        say(f"the reward is random (reward.random = {settings.reward.random:g}), whatever the programs: a baseline")
    prompts = settings.ppo.batch_size // settings.ppo.samples_per_prompt // settings.ppo.minibatches
    if team.count > prompts and first_rl_phase(settings) is not None:
        say(f"{team.count} processes share {prompts} prompts per RL step: {team.count - prompts} of them wait")
    shape = find_architecture(inputs.base)
    if isinstance(shape, OtherArchitecture):
        say(shape.note)
    elif not shape.rope_exports:
        unknown = f"sce export does not support rope type {shape.rope_type}"
        say(f"{unknown}: the policy will run here, not in llama.cpp")


def _try_out(run: Run, settings: TrainSettings, inputs: Inputs, compute: Compute, team: Team) -> None:
    """Prepare every phase as `train` does, and write nothing; errors are those of `train`."""
    with open_resources(run, settings, inputs, compute, team) as resources:
        for name in settings.phases:
            prepare_phase(resources, name)


def _report_readiness(resources: Resources, number: int, phase: str, key: str) -> None:
    """Print the readiness report of the model that the phase starts from; it is made once.

    Raises:
        Stopped: on request, after the report.
    """
    run, team, settings, say = resources.run, resources.team, resources.settings, resources.say
    if team.agree((run.phase_folder(number, phase) / "adapter" / DONE_FILE).is_file()):
        return
    report = read_readiness(run)
    wanted = min(settings.readiness_problems, len(resources.asked()))
    if team.agree(report is None or report.key != key or len(report.passed) != wanted):
        learner, problems = prepare_phase(replace(resources, say=_nobody), phase)
        start = start_in_words(settings, settings.phases[: number - 1])
        report = measure_readiness(learner, resources.scorer, problems, settings, phase, start, key, say)
        if team.is_writer:
            with write_atomically(run.path / READINESS) as out:
                out.write(json.dumps(asdict(report)) + "\n")
        if team.agree(resources.should_stop()):
            raise Stopped(f"stopped before {phase}")
    if report is not None:
        for name, fact in report.facts().items():
            say(f"{name:15} {fact}")
