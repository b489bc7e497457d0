"""One phase of a run: its updates, evaluations and checkpoints, from where it was left to the policy it publishes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from safetensors.torch import save_file

from securecoderl_edge.checkpoint import (
    KEEP,
    Progress,
    checkpoints,
    load_latest,
    load_step,
    point_to_best,
    save_checkpoint,
)
from securecoderl_edge.collect import Rollout
from securecoderl_edge.errors import SceError
from securecoderl_edge.learner import Learner, NotFiniteError, make_optimizer, make_value_head
from securecoderl_edge.memory import fitting_plan, memory_limit
from securecoderl_edge.models.adapters import POLICY_ADAPTER, adapter_parameters, load_adapter
from securecoderl_edge.models.architecture import Architecture
from securecoderl_edge.models.decoder import Decoder
from securecoderl_edge.models.device import Compute
from securecoderl_edge.models.files import lasting_name
from securecoderl_edge.parallel import Team
from securecoderl_edge.problems.problem import Problem
from securecoderl_edge.prompts.fitting import Fitted
from securecoderl_edge.prompts.styles import STYLE_KEY, PromptFormat
from securecoderl_edge.published import check_published, publish
from securecoderl_edge.runs import DONE_FILE, SNAPSHOTS, Run, step_name
from securecoderl_edge.schedules import peak_rate, phase_steps, rate_share
from securecoderl_edge.scoring.scorer import Scorer
from securecoderl_edge.selection import (
    HeldOutResult,
    best_of,
    choose,
    evaluate_policy,
    result_from_record,
    updates_without_progress,
)
from securecoderl_edge.settings import PhaseSettings, TrainSettings
from securecoderl_edge.sft import sft_update
from securecoderl_edge.system.files import remove_leftovers, temporary_beside
from securecoderl_edge.system.machine import return_free_memory
from securecoderl_edge.system.rows import RowFile
from securecoderl_edge.update_rewards import partial_weight, running_pass_rate
from securecoderl_edge.updates import ppo_update

Log = Callable[[dict[str, Any]], None]


class Stopped(Exception):
    """Training was asked to stop and did so after a checkpoint."""


@dataclass(frozen=True)
class Workplace:
    """What all phases of a run work with.

    Attributes:
        inputs: hashes of base model and problems.
        architecture: of the base model.
        end_tokens: ids that end a completion, by the base model's files.
        fitted: the problems to learn from. held_out: those to choose by. Their prompts fit.
        say: called with what a user wants to know once.
    """

    run: Run
    settings: TrainSettings
    inputs: Mapping[str, str]
    architecture: Architecture
    model: Any
    tokenizer: Any
    end_tokens: frozenset[int]
    compute: Compute
    team: Team
    fitted: Fitted
    held_out: list[Problem]
    format: PromptFormat
    scorer: Scorer
    log: Log
    say: Callable[[str], None]
    should_stop: Callable[[], bool]


class Phase:
    """The phase ``name``, whose folder has its ``number`` in front; ``key`` tells its inputs, see `reuse`."""

    def __init__(self, place: Workplace, number: int, name: str, key: str) -> None:
        self.place, self.name, self.key = place, name, key
        self.is_trial = False  # of a plan, which writes nothing
        self.folder = place.run.phase_folder(number, name)
        self.checkpoints = self.folder / "checkpoints"
        self.metrics, self.samples = (
            RowFile(place.run.path / "metrics.jsonl"),
            RowFile(place.run.path / "samples.jsonl"),
        )
        self.evaluations = RowFile(self.folder / "evaluations.jsonl")
        self.steps = phase_steps(place.settings)[name]
        self.facts = {"phase": name, "base_model": place.inputs["base_sha256"], "settings": key}

    def run(self) -> None:
        """Go on to the phase's last update, or load its result if it is there already.

        Raises:
            SceError: a checkpoint that cannot be gone on from, no usable problem, a number that is not finite.
            Stopped: it was asked to, and has saved a checkpoint.
        """
        place = self.place
        if (self.folder / "adapter" / DONE_FILE).is_file():
            check_published(self.folder / "adapter")
            load_adapter(place.model, self.folder / "adapter")
            return
        learner, usable = self.prepare()
        progress = self._resume(learner)
        done = self._evaluations_so_far(progress)
        if place.held_out and not done:
            self._evaluate(learner, progress, done, {})
            self._save(learner, progress, done)
        while progress.step < self.steps and not progress.ended:
            progress.step += 1
            row, rollout = self._update(learner, usable, progress)
            progress.ended = self._reason_to_end(row)
            is_last = progress.step == self.steps or bool(progress.ended)
            evaluates = bool(place.held_out) and (progress.step % place.settings.selection.every == 0 or is_last)
            if evaluates:
                self._evaluate(learner, progress, done, row)
                is_last = is_last or bool(progress.ended)
            self._write_rows(row, rollout, progress.step)
            self._take_snapshot(progress.step)
            stop = place.team.agree(place.should_stop())
            if stop or evaluates or is_last or progress.step % place.settings.checkpoint_every == 0:
                self._save(learner, progress, done)
            if stop and not is_last:
                raise Stopped(f"{self.name} stopped after update {progress.step} of {self.steps}")
        self._publish(learner, progress, done)

    def prepare(self) -> tuple[Learner, list[Problem]]:
        """The learner as it is before the first update, and the problems that it can learn from.

        Raises:
            SceError: there are none.
            UsageError: there is not enough memory.
        """
        learner = self._learner()
        usable = self._usable_problems(learner)
        place = self.place
        longest = max(len(learner.prompt_tokens(problem)) for problem in [*usable, *place.held_out])
        limit = memory_limit(place.settings, place.compute.device, place.team.local_count)
        learner.memory = fitting_plan(
            place.architecture, place.settings, place.compute.formats(), longest, self.name, limit
        )
        return learner, usable

    def time_one(self, learner: Learner, usable: list[Problem]) -> tuple[float, float]:
        """Seconds of one update at learning rate 0, and of one evaluation (0.0 if there are none); writes nothing."""
        # An untrained policy may have nothing but flat groups, from which nothing would be learnt, and no time taken.
        settings = self.place.settings
        settings = replace(settings, ppo=replace(settings.ppo, skip_flat_groups=False))
        self.place, self.is_trial = replace(self.place, settings=settings), True
        for group in learner.optimizer.param_groups:
            group["peak_lr"] = 0.0
        self._update(learner, usable, Progress(1))  # the first one of a process is slower
        started = time.monotonic()
        self._update(learner, usable, Progress(2))
        updated = time.monotonic()
        if not self.place.held_out:
            return updated - started, 0.0
        evaluate_policy(learner, self.place.scorer, self.place.held_out, self.place.settings, 0, self.name)
        return updated - started, time.monotonic() - updated

    def _learner(self) -> Learner:
        place, ppo = self.place, self.place.settings.ppo
        groups: list[dict[str, Any]] = [
            {
                "params": list(adapter_parameters(place.model, POLICY_ADAPTER).values()),
                "peak_lr": peak_rate(place.settings, self.name),
            }
        ]
        head = None
        if self.name != "sft" and ppo.advantage == "gae":
            head = make_value_head(place.model.config.hidden_size, place.settings.seed).to(place.compute.device)
            groups.append({"params": list(head.parameters()), "peak_lr": ppo.value_learning_rate})
        optimizer = make_optimizer(place.settings.optimizer, groups)
        samples = self.name != "sft" or place.held_out
        decoder = Decoder(place.model, place.compute.rollout_dtype) if samples else None
        return Learner(
            place.model, place.tokenizer, place.compute, optimizer, decoder, head, place.team, format=place.format,
            end_tokens=place.end_tokens,
        )  # fmt: skip

    def _usable_problems(self, learner: Learner) -> list[Problem]:
        """Those that can be learnt from: for sft, the ones with a reference solution that is not too long."""
        settings, usable = self.place.settings, list(self.place.fitted.problems)
        if self.name != "sft":
            return usable
        longest = settings.sft.max_tokens
        with_short_ones = (
            replace(
                problem, solutions=tuple(s for s in problem.solutions if len(learner.solution_tokens(s)) <= longest)
            )
            for problem in usable
        )
        solved = [problem for problem in with_short_ones if problem.solutions]
        if not solved:
            raise SceError(
                f"{settings.problems}: no problem has a reference solution of at most {longest} tokens, "
                "so the sft phase cannot run; "
                "leave it out with --phases binary,partial"
            )
        if len(solved) < len(usable) and not self.is_trial:
            self.place.say(f"sft: {len(solved)} of {len(usable)} problems have a solution of at most {longest} tokens")
        return solved

    def _resume(self, learner: Learner) -> Progress:
        if self.place.team.is_writer:
            for folder in (self.folder, self.checkpoints, self.folder / SNAPSHOTS):
                remove_leftovers(folder)
        progress = load_latest(self.checkpoints, learner, self.facts)
        if self.place.team.is_writer:
            for rows in (self.metrics, self.samples, self.evaluations):
                # What was evaluated before the first checkpoint is evaluated again, and saved this time.
                rows.rewind(self.name, progress.step if checkpoints(self.checkpoints) else -1)
        self.place.team.wait()
        return progress

    def _evaluations_so_far(self, progress: Progress) -> list[HeldOutResult]:
        try:
            done = [result_from_record(row) for row in self.evaluations.read()]
            if len(done) != progress.evaluations or len({len(each.rewards) for each in done}) > 1:
                raise ValueError(f"{progress.evaluations} evaluations of equal length were made")
        except (SceError, KeyError, TypeError, ValueError) as error:
            raise SceError(f"{self.evaluations.path} is damaged ({error}); start again with --no-resume") from None
        return done

    def _update(
        self, learner: Learner, usable: list[Problem], progress: Progress
    ) -> tuple[dict[str, Any], Rollout | None]:
        settings, step = self.place.settings, progress.step
        share = rate_share(settings, self.name, step)
        for group in learner.optimizer.param_groups:
            group["lr"] = group["peak_lr"] * share
        rollout: Rollout | None = None
        try:
            if self.name == "sft":
                tokens = settings.ppo.micro_batch_tokens
                facts = sft_update(learner, usable, settings.sft, step, settings.seed, tokens)
            else:
                weight = partial_weight(settings.scheduled, self.name, step, progress.pass_rate or 0.0)
                facts, rollout = ppo_update(
                    learner, self.place.scorer, usable, settings.ppo, settings.reward, weight, self.name, step,
                    settings.seed,
                )  # fmt: skip
                progress.pass_rate = running_pass_rate(progress.pass_rate, facts["all_tests_rate"])
        except NotFiniteError as error:
            if self.is_trial:
                raise
            raise SceError(self._keep_for_inspection(error, step)) from None
        return_free_memory()
        rate = learner.optimizer.param_groups[0]["lr"]
        return {"phase": self.name, "step": step, "steps": self.steps, "lr": rate, **facts}, rollout

    def _keep_for_inspection(self, error: NotFiniteError, step: int) -> str:
        """Save the numbers that led to it; what to tell the user."""
        file = self.folder / f"not-finite-{step:06d}.safetensors"
        if self.place.team.is_writer:
            with temporary_beside(file) as temporary:
                tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in error.tensors.items()}
                save_file(tensors, temporary)
        return (
            f"{error.what} of {self.name} update {step} is not finite; what led to it is in {file}. "
            "The last checkpoint is intact: give another --out with --init and a lower learning rate"
        )

    def _reason_to_end(self, row: Mapping[str, Any]) -> str:
        table = self.place.settings.phase(self.name)
        limit = table.stop_kl if isinstance(table, PhaseSettings) else None
        kl = row.get("objective/kl")
        if limit is not None and kl is not None and kl > limit:
            return f"a completion was {kl:.2f} nats from the reference at step {row['step']}, over stop_kl = {limit:g}"
        return ""

    def _evaluate(self, learner: Learner, progress: Progress, done: list[HeldOutResult], row: dict[str, Any]) -> None:
        """Evaluate, add it to ``done`` and to the row, and end the phase if it makes no progress."""
        settings = self.place.settings
        place, step = self.place, progress.step
        evaluation = evaluate_policy(learner, place.scorer, place.held_out, settings, step, self.name)
        done.append(evaluation)
        progress.evaluations = len(done)
        row |= {
            "eval/reward": evaluation.reward,
            "eval/all_tests_rate": evaluation.all_tests_rate,
            "eval/syntax_rate": evaluation.syntax_rate,
        }
        if self.place.team.is_writer:
            self.evaluations.append([evaluation.to_record(self.name)])
        patience, idle = settings.phase(self.name).patience, updates_without_progress(done)
        if patience is not None and idle >= patience and not progress.ended:
            progress.ended = f"{idle} evaluations brought no progress since step {best_of(done).step}"

    def _write_rows(self, row: dict[str, Any], rollout: Rollout | None, step: int) -> None:
        if self.place.team.is_writer:
            self.metrics.append([row])
            if rollout is not None:
                self.samples.append(_sample_rows(self.name, step, rollout))
            self.place.log(row)

    def _save(self, learner: Learner, progress: Progress, done: list[HeldOutResult]) -> None:
        if self.place.team.is_writer:
            # Also what was best at the checkpoints before this one: they are gone on from if this one is damaged.
            recent = [int(path.name.partition("-")[2]) for path in checkpoints(self.checkpoints)[-KEEP:]]
            seen = [[each for each in done if each.step <= step] for step in (*recent, progress.step)]
            best = [best_of(evaluations).step for evaluations in seen if evaluations]
            base_name = lasting_name(self.place.settings.model)
            save_checkpoint(self.checkpoints, learner, progress, base_name, self.facts, best)
            if best:
                point_to_best(self.folder, best[-1])
        self.place.team.wait()

    def _take_snapshot(self, step: int) -> None:
        every = self.place.settings.snapshot_every
        if every is not None and step % every == 0 and self.place.team.is_writer:
            facts = {"phase": self.name, "key": self.key, "step": step, STYLE_KEY: self.place.format.style}
            folder = self.folder / SNAPSHOTS / step_name(step)
            publish(folder, self.place.model, lasting_name(self.place.settings.model), facts)

    def _publish(self, learner: Learner, progress: Progress, done: list[HeldOutResult]) -> None:
        """Put the policy of the chosen step into ``adapter/``, with the reasons beside it."""
        chosen, why = progress.step, "the last step; no problems were held out to choose by"
        if done:
            evaluation, why = choose(done, self.place.settings.selection.samples)
            chosen = evaluation.step
            if chosen != progress.step:
                load_step(self.checkpoints, chosen, learner)
        facts = {
            "phase": self.name,
            "key": self.key,
            "steps": progress.step,
            "ended": progress.ended or "all updates made",
            "chosen_step": chosen,
            "why": why,
            "held_out": [
                {"step": each.step, "reward": each.reward, "all_tests_rate": each.all_tests_rate} for each in done
            ],
        }
        if self.place.team.is_writer:
            facts[STYLE_KEY] = self.place.format.style
            publish(self.folder / "adapter", self.place.model, lasting_name(self.place.settings.model), facts)
        self.place.team.wait()


def _sample_rows(phase: str, step: int, rollout: Rollout) -> list[dict[str, Any]]:
    """The first completion of each prompt, with its score."""
    rows = []
    for completion, score in zip(rollout.completions, rollout.scores, strict=True):
        if completion.sample == 0:
            facts = asdict(score)
            kept = {name: facts[name] for name in ("id", "stage", "passed", "total", "reward", "severity", "program")}
            rows.append({"phase": phase, "step": step, **kept})
    return rows
