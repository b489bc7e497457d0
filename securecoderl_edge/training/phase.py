"""One phase of a run: its updates, evaluations and checkpoints, from the last checkpoint to the saved adapter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from securecoderl_edge.errors import SceError, first_line, is_device_failure
from securecoderl_edge.models.adapters import load_adapter
from securecoderl_edge.models.files import lasting_name
from securecoderl_edge.prompts.styles import STYLE_KEY
from securecoderl_edge.runs import DONE_FILE, EVALUATIONS, SNAPSHOTS, step_name
from securecoderl_edge.scoring.own_reward import OwnRewardError
from securecoderl_edge.system.files import remove_leftovers
from securecoderl_edge.system.heap import return_free_memory
from securecoderl_edge.system.rows import RowFile
from securecoderl_edge.training.checkpoint import (
    KEEP,
    PhaseProgress,
    check_published,
    checkpoints,
    keep_for_inspection,
    load_latest,
    load_step,
    point_to_best,
    publish,
    save_checkpoint,
)
from securecoderl_edge.training.parallel import ProcessLostError
from securecoderl_edge.training.recipe import rate_share, with_sft_epochs
from securecoderl_edge.training.resources import Resources, prepare_phase
from securecoderl_edge.training.selection import HeldOutResult, best_of, choose, evaluate_policy, result_from_record
from securecoderl_edge.training.update.distill import distill_update
from securecoderl_edge.training.update.learner import Learner, NotFiniteError, Update
from securecoderl_edge.training.update.ppo_update import ppo_update
from securecoderl_edge.training.update.rollout import Rollout
from securecoderl_edge.training.update.supervised import rft_update, sft_update, ssd_update
from securecoderl_edge.training.warning_signs import Watch

# Of an evaluation: the same problems each time, so that a report can show how their programs change.
HELD_OUT_SAMPLES = 5
# What makes an update of each phase: it returns metrics, and the rollout if its programs were scored.
UPDATES: dict[str, Callable[[Learner, Update], tuple[dict[str, Any], Rollout | None]]] = {
    "sft": sft_update,
    "binary": ppo_update,
    "scheduled": ppo_update,
    "partial": ppo_update,
    "rft": rft_update,
    "ssd": ssd_update,
    "distill": distill_update,
}


class Stopped(Exception):
    """Training stopped on request, after a checkpoint."""


def train_phase(resources: Resources, number: int, name: str, key: str) -> None:
    """Train to the phase's last update, or load its result if it is finished.

    Args:
        number: of the phase in the run; its folder begins with it.
        key: identifies the inputs of the phase, see `reuse`.

    Raises:
        SceError: a checkpoint that cannot be resumed from, no usable problem, NaN or Inf, a GPU that failed.
        Stopped: on request, after a checkpoint.
        KeyboardInterrupt, ProcessLostError: in the phase; the update in work is discarded, and the one before it saved.
    """
    settings, team, held_out = resources.settings, resources.team, resources.held_out
    files = PhaseFiles(resources, number, name, key)
    learner: Learner | None = None
    try:
        if files.load_result():
            return
        learner, problems = prepare_phase(resources, name)
        if name == "sft":
            settings = with_sft_epochs(settings, len(problems))
        steps = files.steps = settings.phase(name).steps
        files.resume(learner)
        if held_out and not files.done:
            files.add(evaluate_policy(learner, resources.scorer, held_out, settings, 0, name, files.keep_samples))
            files.save(learner)
        learner.finish(files.step)
        for step in range(files.step + 1, steps + 1):
            if learner.has_spent(settings.phase(name)):
                break
            files.step = step
            share = rate_share(settings, name, step)
            for group in learner.optimizer.param_groups:
                group["lr"] = group["peak_lr"] * share
            metrics, rollout = UPDATES[name](learner, Update(settings, name, problems, step, resources.scorer))
            return_free_memory()
            rate = learner.optimizer.param_groups[0]["lr"]
            is_last = step == steps or learner.has_spent(settings.phase(name))
            last = step if is_last else steps
            row = {"phase": name, "step": step, "steps": last, "lr": rate, **metrics, **learner.counted()}
            evaluates = bool(held_out) and (step % settings.selection.every == 0 or is_last)
            if evaluates:
                evaluation = evaluate_policy(
                    learner, resources.scorer, held_out, settings, step, name, files.keep_samples
                )
                row |= files.add(evaluation)
            files.write_rows(row, rollout)
            files.take_snapshot()
            learner.finish(step)
            files.tell(row)
            stop = team.agree(resources.should_stop())
            if stop or evaluates or is_last or step % settings.checkpoint_every == 0:
                files.save(learner)
            if stop and not is_last:
                raise Stopped(f"{name} stopped after update {step} of {steps}")
        files.publish(learner)
    except KeyboardInterrupt:
        if learner is not None:
            files.save_finished(learner)
        raise
    except ProcessLostError:
        if learner is not None:
            try:
                files.save_finished(learner)
            except KeyboardInterrupt:  # late, of the launcher, which ends this process too and waits for it
                files.save_finished(learner)
        raise
    except NotFiniteError as error:
        raise SceError(files.not_finite(error)) from None
    except OwnRewardError as error:
        raise SceError(f"{error}. {files.intact()}: run the same command to resume") from None
    except RuntimeError as error:
        if not is_device_failure(error):
            raise
        raise SceError(files.failed(error)) from error


class PhaseFiles:
    """What a phase has written, and where.

    Attributes:
        step: the update that is being made, or was made last. steps: number of updates.
        done: evaluations so far.
    """

    def __init__(self, resources: Resources, number: int, name: str, key: str) -> None:
        self.resources, self.name, self.key = resources, name, key
        self.is_writer, self.base_name = resources.team.is_writer, lasting_name(resources.settings.model)
        self.folder = resources.run.phase_folder(number, name)
        self.checkpoints = self.folder / "checkpoints"
        self.metrics = RowFile(resources.run.path / "metrics.jsonl")
        self.samples = RowFile(resources.run.path / "samples.jsonl")
        self.evaluations = RowFile(self.folder / EVALUATIONS)
        self.facts = {"phase": name, "base_model": resources.hashes["base_sha256"], "settings": key}
        self.step, self.steps = 0, resources.settings.phase(name).steps
        self.done: list[HeldOutResult] = []
        self.watch = Watch()

    def load_result(self) -> bool:
        """Load the phase's adapter; False if the phase is not finished."""
        adapter = self.folder / "adapter"
        if not self.resources.team.agree((adapter / DONE_FILE).is_file()):
            return False
        check_published(adapter)
        load_adapter(self.resources.model, adapter)
        return True

    def resume(self, learner: Learner) -> None:
        """Load the last checkpoint, if there is one, and forget what was written after it."""
        if self.is_writer:
            for folder in (self.folder, self.checkpoints, self.folder / SNAPSHOTS):
                remove_leftovers(folder)
        progress = load_latest(self.checkpoints, learner, self.facts)
        self.step = progress.step
        if self.is_writer:
            for rows in (self.metrics, self.samples, self.evaluations):
                # An evaluation before the first checkpoint is repeated.
                rows.rewind(self.name, self.step if checkpoints(self.checkpoints) else -1)
            for row in self.metrics.read():
                if row.get("phase") == self.name:
                    self.watch.after(row)
        steps = self.resources.team.collect([self.step])
        if len(set(steps)) > 1:
            raise SceError(
                f"the processes found different checkpoints in {self.checkpoints} (of steps {steps}). Run the same "
                "command again when all machines show the same files"
            )
        try:
            self.done = [result_from_record(row) for row in self.evaluations.read()]
            if len(self.done) != progress.evaluations or len({len(each.rewards) for each in self.done}) > 1:
                raise ValueError(f"{progress.evaluations} evaluations of equal length were made")
        except (SceError, KeyError, TypeError, ValueError) as error:
            raise SceError(f"{self.evaluations.path} is damaged ({error}); start again with --no-resume") from None

    def add(self, evaluation: HeldOutResult) -> dict[str, float]:
        """Write an evaluation; returns its part of the row of metrics."""
        self.done.append(evaluation)
        if self.is_writer:
            self.evaluations.append([evaluation.to_record(self.name)])
        return {
            "eval/reward": evaluation.reward,
            "eval/all_tests_rate": evaluation.all_tests_rate,
            "eval/syntax_rate": evaluation.syntax_rate,
        }

    def write_rows(self, row: dict[str, Any], rollout: Rollout | None) -> None:
        """Write the row of metrics and the samples of an update."""
        if self.is_writer:
            self.metrics.append([row])
            if rollout is not None:
                self.keep_samples(self.step, rollout, is_held_out=False)

    def tell(self, row: dict[str, Any]) -> None:
        """Log the row of metrics of an update, and warn."""
        if self.is_writer:
            self.resources.log(row)
            for line in self.watch.after(row):
                self.resources.say(line)

    def keep_samples(self, step: int, rollout: Rollout, is_held_out: bool = True) -> None:
        """Write the first completion of each prompt; of held-out problems, those of the first `HELD_OUT_SAMPLES`."""
        if self.is_writer:
            most = HELD_OUT_SAMPLES if is_held_out else len(rollout.problems)
            rows = _sample_rows(rollout)[:most]
            self.samples.append({"phase": self.name, "step": step, "held_out": is_held_out, **row} for row in rows)

    def save(self, learner: Learner) -> None:
        """Write a checkpoint."""
        self.resources.meter.begin("saving a checkpoint")
        self._write(learner)
        self.resources.team.wait()

    def save_finished(self, learner: Learner) -> None:
        """Write a checkpoint of the last finished update, unless there is one; other processes may be gone."""
        saved, finished = checkpoints(self.checkpoints), learner.undo()
        if finished and (not saved or saved[-1].name < step_name(finished)):
            self.step = finished
            self.done = [each for each in self.done if each.step <= finished]
            self._write(learner)

    def _write(self, learner: Learner) -> None:
        if self.is_writer:
            # Also keep the best steps at earlier checkpoints: training resumes from them if this one is damaged.
            recent = [int(path.name.partition("-")[2]) for path in checkpoints(self.checkpoints)[-KEEP:]]
            seen = [[each for each in self.done if each.step <= step] for step in (*recent, self.step)]
            metric = self.resources.settings.selection.metric
            best = [best_of(evaluations, metric).step for evaluations in seen if evaluations and metric != "none"]
            progress = PhaseProgress(self.step, len(self.done))
            save_checkpoint(self.checkpoints, learner, progress, self.base_name, self.facts, best)
            if best:
                point_to_best(self.folder, best[-1])

    def take_snapshot(self) -> None:
        """Publish the policy of this step, if it is one of those to keep."""
        every = self.resources.settings.snapshot_every
        if every is not None and self.step % every == 0 and self.is_writer:
            facts = {"phase": self.name, "key": self.key, "step": self.step, STYLE_KEY: self.resources.format.style}
            publish(self.folder / SNAPSHOTS / step_name(self.step), self.resources.model, self.base_name, facts)

    def publish(self, learner: Learner) -> None:
        """Save the policy of the selected step in ``adapter/``, with the reasons next to it."""
        chosen, why = self.step, "the last step; no problems were held out for selection"
        if self.done:
            evaluation, why = choose(self.done, self.resources.settings.selection, self.resources.held_out)
            chosen = evaluation.step
            if chosen != self.step:
                load_step(self.checkpoints, chosen, learner)
        counts = learner.counted()
        facts = {"phase": self.name, "key": self.key, "steps": self.step, "chosen_step": chosen, "why": why, **counts}
        if self.is_writer:
            facts[STYLE_KEY] = self.resources.format.style
            publish(self.folder / "adapter", self.resources.model, self.base_name, facts)
        self.resources.team.wait()

    def not_finite(self, error: NotFiniteError) -> str:
        """What to do after NaN or Inf in an update, whose tensors are saved."""
        file = self.folder / f"not-finite-{self.step:06d}.safetensors"
        if self.is_writer:
            keep_for_inspection(file, error)
        self.resources.team.wait()
        return (
            f"NaN or Inf in {error.what} of {self.name} update {self.step}; its tensors are in {file}. "
            "The last checkpoint is intact: give another --out with --init and a lower learning rate"
        )

    def intact(self) -> str:
        """What is left after a failure."""
        saved = checkpoints(self.checkpoints)
        return f"{saved[-1]} is intact" if saved else f"{self.name} has no checkpoint yet"

    def failed(self, error: RuntimeError) -> str:
        """What to do after the failure of a GPU. Nothing is saved: that would have to read from it."""
        where = f"before the first update of {self.name}"
        if self.step:
            where = f"in {self.name} update {self.step} of {self.steps}"
        return f"the GPU failed {where} ({first_line(error)}). {self.intact()}: run the same command to resume"


def _sample_rows(rollout: Rollout) -> list[dict[str, Any]]:
    """The first completion of each prompt, with its score and the statement of the problem."""
    rows = []
    own = rollout.own or [None] * len(rollout.scores)
    for completion, score, number in zip(rollout.completions, rollout.scores, own, strict=True):
        if completion.sample == 0:
            facts = asdict(score)
            kept = {name: facts[name] for name in ("id", "stage", "passed", "total", "reward", "severity", "program")}
            if number is not None:
                kept[rollout.own_name] = number
            rows.append({**kept, "statement": rollout.problems[completion.prompt].statement})
    return rows
