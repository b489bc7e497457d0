"""One phase of a run: its updates, evaluations and checkpoints, from the last checkpoint to the saved adapter."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from securecoderl_edge.errors import SceError, first_line, is_device_failure
from securecoderl_edge.models.adapters import load_adapter
from securecoderl_edge.models.files import lasting_name
from securecoderl_edge.problems.problem import Problem
from securecoderl_edge.prompts.styles import STYLE_KEY
from securecoderl_edge.runs import DONE_FILE, EVALUATIONS, SNAPSHOTS, step_name
from securecoderl_edge.system.files import remove_leftovers
from securecoderl_edge.system.heap import return_free_memory
from securecoderl_edge.system.rows import RowFile
from securecoderl_edge.training.checkpoint import (
    KEEP,
    Progress,
    check_published,
    checkpoints,
    keep_for_inspection,
    load_latest,
    load_step,
    point_to_best,
    publish,
    save_checkpoint,
)
from securecoderl_edge.training.schedules import phase_steps, rate_share, with_sft_epochs
from securecoderl_edge.training.selection import (
    HeldOutResult,
    best_of,
    choose,
    evaluate_policy,
    result_from_record,
)
from securecoderl_edge.training.update.learner import Learner, NotFiniteError
from securecoderl_edge.training.update.ppo_update import ppo_update
from securecoderl_edge.training.update.rewards import partial_weight
from securecoderl_edge.training.update.rollout import Rollout
from securecoderl_edge.training.update.self_training import rft_update, ssd_update
from securecoderl_edge.training.update.sft_update import sft_update
from securecoderl_edge.training.warning_signs import Watch
from securecoderl_edge.training.workplace import Workplace, prepare_phase


class Stopped(Exception):
    """Training stopped on request, after a checkpoint."""


class Phase:
    """The phase ``name``, whose folder begins with its ``number``; ``key`` identifies its inputs, see `reuse`."""

    def __init__(self, place: Workplace, number: int, name: str, key: str) -> None:
        self.place, self.name, self.key = place, name, key
        self.folder = place.run.phase_folder(number, name)
        self.checkpoints = self.folder / "checkpoints"
        self.metrics = RowFile(place.run.path / "metrics.jsonl")
        self.samples = RowFile(place.run.path / "samples.jsonl")
        self.evaluations = RowFile(self.folder / EVALUATIONS)
        self.steps = phase_steps(place.settings)[name]
        self.facts = {"phase": name, "base_model": place.inputs["base_sha256"], "settings": key}
        self.progress = Progress()
        self.done: list[HeldOutResult] = []
        self.watch = Watch()

    def run(self) -> None:
        """Train to the phase's last update, or load its result if it is finished.

        Raises:
            SceError: a checkpoint that cannot be resumed from, no usable problem, NaN or Inf, a GPU that failed.
            Stopped: on request, after a checkpoint.
        """
        try:
            self._run()
        except RuntimeError as error:
            if not is_device_failure(error):
                raise
            raise SceError(self._failed(error)) from error

    def _failed(self, error: RuntimeError) -> str:
        """What to do after the failure of a GPU. Nothing is saved: that would have to read from it."""
        step, saved = self.progress.step, checkpoints(self.checkpoints)
        where = f"in {self.name} update {step} of {self.steps}" if step else f"before the first update of {self.name}"
        intact = f"{saved[-1]} is intact" if saved else f"{self.name} has no checkpoint yet"
        return f"the GPU failed {where} ({first_line(error)}). {intact}: run the same command to resume"

    def _run(self) -> None:
        place = self.place
        if place.team.agree((self.folder / "adapter" / DONE_FILE).is_file()):
            check_published(self.folder / "adapter")
            load_adapter(place.model, self.folder / "adapter")
            return
        learner, usable = prepare_phase(place, self.name)
        if self.name == "sft":
            place = self.place = replace(place, settings=with_sft_epochs(place.settings, len(usable)))
            self.steps = place.settings.sft.steps
        progress = self.progress = self._resume(learner)
        self.done = self._evaluations_so_far()
        if place.held_out and not self.done:
            self._evaluate(learner, {})
            self._save(learner)
        while progress.step < self.steps:
            progress.step += 1
            row, rollout = self._update(learner, usable)
            is_last = progress.step == self.steps
            evaluates = bool(place.held_out) and (progress.step % place.settings.selection.every == 0 or is_last)
            if evaluates:
                self._evaluate(learner, row)
            self._write_rows(row, rollout, progress.step)
            self._take_snapshot(progress.step)
            stop = place.team.agree(place.should_stop())
            if stop or evaluates or is_last or progress.step % place.settings.checkpoint_every == 0:
                self._save(learner)
            if stop and not is_last:
                raise Stopped(f"{self.name} stopped after update {progress.step} of {self.steps}")
        self._publish(learner)

    def _resume(self, learner: Learner) -> Progress:
        if self.place.team.is_writer:
            for folder in (self.folder, self.checkpoints, self.folder / SNAPSHOTS):
                remove_leftovers(folder)
        progress = load_latest(self.checkpoints, learner, self.facts)
        if self.place.team.is_writer:
            for rows in (self.metrics, self.samples, self.evaluations):
                # An evaluation before the first checkpoint is repeated.
                rows.rewind(self.name, progress.step if checkpoints(self.checkpoints) else -1)
            for row in self.metrics.read():
                if row.get("phase") == self.name:
                    self.watch.after(row)
        steps = self.place.team.collect([progress.step])
        if len(set(steps)) > 1:
            raise SceError(
                f"the processes found different checkpoints in {self.checkpoints} (of steps {steps}). Run the same "
                "command again when all machines show the same files"
            )
        return progress

    def _evaluations_so_far(self) -> list[HeldOutResult]:
        made = self.progress.evaluations
        try:
            done = [result_from_record(row) for row in self.evaluations.read()]
            if len(done) != made or len({len(each.rewards) for each in done}) > 1:
                raise ValueError(f"{made} evaluations of equal length were made")
        except (SceError, KeyError, TypeError, ValueError) as error:
            raise SceError(f"{self.evaluations.path} is damaged ({error}); start again with --no-resume") from None
        return done

    def _update(self, learner: Learner, usable: list[Problem]) -> tuple[dict[str, Any], Rollout | None]:
        try:
            return make_update(self.place, self.name, learner, usable, self.progress)
        except NotFiniteError as error:
            file = self.folder / f"not-finite-{self.progress.step:06d}.safetensors"
            if self.place.team.is_writer:
                keep_for_inspection(file, error)
            self.place.team.wait()
            raise SceError(
                f"NaN or Inf in {error.what} of {self.name} update {self.progress.step}; its tensors are in {file}. "
                "The last checkpoint is intact: give another --out with --init and a lower learning rate"
            ) from None

    def _evaluate(self, learner: Learner, row: dict[str, Any]) -> None:
        """Evaluate, and add the result to ``done`` and to the row."""
        place, progress, settings = self.place, self.progress, self.place.settings
        evaluation = evaluate_policy(learner, place.scorer, place.held_out, settings, progress.step, self.name)
        self.done.append(evaluation)
        progress.evaluations = len(self.done)
        row |= {
            "eval/reward": evaluation.reward,
            "eval/all_tests_rate": evaluation.all_tests_rate,
            "eval/syntax_rate": evaluation.syntax_rate,
        }
        if self.place.team.is_writer:
            self.evaluations.append([evaluation.to_record(self.name)])

    def _write_rows(self, row: dict[str, Any], rollout: Rollout | None, step: int) -> None:
        if self.place.team.is_writer:
            self.metrics.append([row])
            if rollout is not None:
                self.samples.append(_sample_rows(self.name, step, rollout))
            self.place.log(row)
            for line in self.watch.after(row):
                self.place.say(line)

    def _save(self, learner: Learner) -> None:
        if self.place.team.is_writer:
            # Also keep the best steps at earlier checkpoints: training resumes from them if this one is damaged.
            recent = [int(path.name.partition("-")[2]) for path in checkpoints(self.checkpoints)[-KEEP:]]
            seen = [[each for each in self.done if each.step <= step] for step in (*recent, self.progress.step)]
            best = [best_of(evaluations).step for evaluations in seen if evaluations]
            base_name = lasting_name(self.place.settings.model)
            save_checkpoint(self.checkpoints, learner, self.progress, base_name, self.facts, best)
            if best:
                point_to_best(self.folder, best[-1])
        self.place.team.wait()

    def _take_snapshot(self, step: int) -> None:
        every = self.place.settings.snapshot_every
        if every is not None and step % every == 0 and self.place.team.is_writer:
            facts = {"phase": self.name, "key": self.key, "step": step, STYLE_KEY: self.place.format.style}
            folder = self.folder / SNAPSHOTS / step_name(step)
            publish(folder, self.place.model, lasting_name(self.place.settings.model), facts)

    def _publish(self, learner: Learner) -> None:
        """Save the policy of the selected step in ``adapter/``, with the reasons next to it."""
        progress = self.progress
        chosen, why = progress.step, "the last step; no problems were held out for selection"
        if self.done:
            evaluation, why = choose(self.done, self.place.settings.selection.samples)
            chosen = evaluation.step
            if chosen != progress.step:
                load_step(self.checkpoints, chosen, learner)
        facts = {
            "phase": self.name,
            "key": self.key,
            "steps": progress.step,
            "chosen_step": chosen,
            "why": why,
        }
        if self.place.team.is_writer:
            facts[STYLE_KEY] = self.place.format.style
            publish(self.folder / "adapter", self.place.model, lasting_name(self.place.settings.model), facts)
        self.place.team.wait()


def make_update(
    place: Workplace, name: str, learner: Learner, usable: list[Problem], progress: Progress
) -> tuple[dict[str, Any], Rollout | None]:
    """Make the update ``progress.step`` of the phase ``name``; returns its row of metrics and its rollout.

    Raises:
        NotFiniteError: NaN or Inf in the update.
    """
    settings, step = place.settings, progress.step
    share = rate_share(settings, name, step)
    for group in learner.optimizer.param_groups:
        group["lr"] = group["peak_lr"] * share
    rollout: Rollout | None = None
    if name == "sft":
        tokens = settings.ppo.micro_batch_tokens
        facts = sft_update(learner, usable, settings.sft, step, settings.seed, tokens)
    elif name == "rft":
        facts, rollout = rft_update(learner, place.scorer, usable, settings.ppo, step, settings.seed)
    elif name == "ssd":
        facts = ssd_update(learner, usable, settings.ssd, settings.ppo, step, settings.seed)
    else:
        weight = partial_weight(name, step, phase_steps(settings)[name])
        facts, rollout = ppo_update(
            learner, place.scorer, usable, settings.ppo, settings.reward, weight, name, step, settings.seed
        )
    return_free_memory()
    rate = learner.optimizer.param_groups[0]["lr"]
    return {"phase": name, "step": step, "steps": phase_steps(settings)[name], "lr": rate, **facts}, rollout


def _sample_rows(phase: str, step: int, rollout: Rollout) -> list[dict[str, Any]]:
    """The first completion of each prompt, with its score."""
    rows = []
    for completion, score in zip(rollout.completions, rollout.scores, strict=True):
        if completion.sample == 0:
            facts = asdict(score)
            kept = {name: facts[name] for name in ("id", "stage", "passed", "total", "reward", "severity", "program")}
            rows.append({"phase": phase, "step": step, **kept})
    return rows
