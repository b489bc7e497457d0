"""A plan with measured times: the model is loaded, RL's start is sampled, one update of each kind is timed.

Nothing is written, but for the folder of a GGUF file in the user's cache.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from securecoderl_edge.errors import SceError, UsageError
from securecoderl_edge.models.adapters import load_adapter
from securecoderl_edge.models.device import choose_compute
from securecoderl_edge.models.other import find_architecture
from securecoderl_edge.problems.problem import Problem
from securecoderl_edge.runs import Run
from securecoderl_edge.system.heap import return_free_memory
from securecoderl_edge.training.inputs import find_inputs
from securecoderl_edge.training.parallel import Team
from securecoderl_edge.training.phase import UPDATES
from securecoderl_edge.training.phase_settings import MOST_PER_PROBLEM
from securecoderl_edge.training.plan import Plan, ProblemCounts, assemble, difficulty_in_words, plan_phase
from securecoderl_edge.training.readiness import first_rl_phase, measure_readiness, start_in_words
from securecoderl_edge.training.recipe import with_sft_epochs
from securecoderl_edge.training.resources import Resources, longest_prompt_of, open_resources, prepare_phase
from securecoderl_edge.training.reuse import find_adapter, phase_keys
from securecoderl_edge.training.selection import evaluate_policy
from securecoderl_edge.training.settings import TrainSettings
from securecoderl_edge.training.update.learner import SAMPLED, Learner, Update
from securecoderl_edge.training.update.supervised import step_on

# Of a phase, the last of which is timed: the first one of a process is slower.
_UPDATES = 2


def measure_plan(settings: TrainSettings, run: Run, say: Callable[[str], None] = lambda message: None) -> Plan:
    """Resolve all settings; load the model, make the readiness report, and time one update and one evaluation of each
    kind.

    Args:
        say: called with a message before the check of a GGUF file, and before the report, which takes as long as some
            updates.

    Raises:
        UsageError: the run is not possible, or not here.
    """
    try:
        return _measured(settings, run, say)
    except SceError as error:
        raise error if isinstance(error, UsageError) else UsageError(str(error)) from None


def _measured(settings: TrainSettings, run: Run, say: Callable[[str], None]) -> Plan:
    compute = choose_compute(settings.device, settings.base_precision, recompute=settings.gradient_checkpointing)
    precision = compute.precision()
    inputs = find_inputs(settings, download=False, tell=say)
    shape = find_architecture(inputs.base)
    keys = phase_keys(settings, inputs.identity(compute))
    readiness = None
    with open_resources(run, settings, inputs, compute, Team()) as resources:
        phases, longest, usable, teacher = [], 0, 0, resources.teacher_shape
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
            seconds, sampled = _time_one(resources, name, learner, problems), learner.counted()[SAMPLED] // _UPDATES
            holds_out = bool(resources.held_out)
            phases.append(
                plan_phase(
                    settings, precision, shape, name, prompt, seconds, holds_out, teacher=teacher, sampled=sampled
                )
            )
        total = len(resources.fitted.problems) + resources.fitted.left_out
        counts = ProblemCounts(total, usable, resources.fitted.cut, len(resources.held_out))
    plan = assemble(settings, precision, shape, counts, longest, tuple(phases), teacher=teacher)
    plan = replace(plan, difficulty=difficulty_in_words(settings, inputs.problems))
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
    # A round of rft is timed as one update; on average its updates take as long.
    rft = replace(resources.settings.rft, updates_per_round=1)
    sampling = replace(resources.settings.sampling, resample=0)
    settings, scorer = replace(resources.settings, ppo=ppo, rft=rft, sampling=sampling), resources.scorer
    for group in learner.optimizer.param_groups:
        group["lr"] = 0.0
    for step in range(1, _UPDATES + 1):
        started = time.monotonic()
        row, rollout = UPDATES[phase](learner, Update(settings, phase, problems, step, scorer))
        return_free_memory()
    if phase == "rft" and rollout is not None and "loss/sft" not in row:
        # No program was correct. Later ones will be: time the largest step that the phase can make.
        largest = [done for done in rollout.completions if done.sample < MOST_PER_PROBLEM]
        pairs = [(rollout.prompts[done.prompt], done.token_ids) for done in largest]
        for _ in range(settings.rft.epochs):
            step_on(learner, pairs, ppo.micro_batch_tokens)
    updated = time.monotonic()
    if not resources.held_out:
        return updated - started, 0.0
    evaluate_policy(learner, scorer, resources.held_out, settings, 0, phase)
    return updated - started, time.monotonic() - updated
