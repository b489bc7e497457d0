"""A training run: phases in order, each resumed where it was left.

sft      supervised warm start on reference solutions; its result becomes the KL reference
binary   PPO, R_func = 1 if all tests pass, else 0
partial  PPO, R_func in stages (Table 1)
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from securecoderl_edge.checkpoint import load_latest, save_checkpoint
from securecoderl_edge.config import read_toml, to_table, to_toml
from securecoderl_edge.device import Compute, choose_compute
from securecoderl_edge.errors import SceError, UsageError
from securecoderl_edge.files import read_json, sha256_of, temporary_beside, write_atomically
from securecoderl_edge.machine import describe_machine
from securecoderl_edge.metrics import RowFile
from securecoderl_edge.model import (
    POLICY,
    REFERENCE,
    adapter_parameters,
    add_adapters,
    base_folder,
    copy_adapter,
    lasting_name,
    load_adapter,
    load_base,
    load_tokenizer,
    make_value_head,
    save_adapter,
)
from securecoderl_edge.problems import Problem, digest_of_problems, load_problems
from securecoderl_edge.resources import return_large_blocks
from securecoderl_edge.rollout import Decoder
from securecoderl_edge.runs import LATEST, RUNS, Run, mark_latest
from securecoderl_edge.sandbox import Limits, as_choice, describe_layers
from securecoderl_edge.scorer import Scorer
from securecoderl_edge.settings import TrainSettings
from securecoderl_edge.updates import Learner, Rollout, ppo_update, sft_update

DONE_FILE = "done.json"
_OWN_NAMES = (
    "config.toml",
    "environment.json",
    "metrics.jsonl",
    "samples.jsonl",
    "phases",
    "policy",
    "exports",
    "bench",
)

Log = Callable[[dict[str, Any]], None]


class Stopped(Exception):
    """Training was asked to stop and did so after a checkpoint."""


def train(
    settings: TrainSettings,
    out: Path,
    *,
    resume: bool = True,
    log: Log = lambda row: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> Run:
    """Train a policy in ``out``; phases and updates that are already there are not repeated.

    Args:
        log: called with each row of metrics.jsonl; ``step`` of ``steps`` in ``phase``.
        should_stop: asked after each update; on True a checkpoint is written and `Stopped` raised.

    Raises:
        UsageError: ``out`` is something else than a run with these settings.
        SceError: unusable model or problems, no disk space, a gradient that is not finite.
        Stopped: see ``should_stop``.
    """
    return_large_blocks()
    run = Run(out)
    folder = base_folder(settings.model)
    problems = load_problems(settings.problems)
    compute = choose_compute(settings.device, settings.base_precision)
    _prepare_folder(run, settings, folder, problems, compute, resume)
    if (run.policy / DONE_FILE).is_file():
        mark_latest(run)
        return run

    tokenizer = load_tokenizer(folder)
    model = add_adapters(load_base(folder, compute.base_precision, compute.device), settings.lora, settings.seed)
    limits = Limits(
        cpu_seconds=settings.reward.cpu_seconds,
        wall_seconds=settings.reward.wall_seconds,
        memory_mib=settings.reward.memory_mib,
    )
    reward = settings.reward
    with Scorer(None, limits, reward.stage_rule, reward.severity, reward.sandbox) as scorer:
        for number, phase in enumerate(settings.phases, 1):
            _Phase(run, settings, phase, number, model, tokenizer, compute, problems, scorer, log, should_stop).run()
            if phase == "sft":
                copy_adapter(model, POLICY, REFERENCE)
    _publish(run.policy, model, lasting_name(settings.model), {"phases": list(settings.phases)})
    mark_latest(run)
    return run


class _Phase:
    """One phase of one run: its folder, its loop, its checkpoints."""

    def __init__(
        self,
        run: Run,
        settings: TrainSettings,
        name: str,
        number: int,
        model: Any,
        tokenizer: Any,
        compute: Compute,
        problems: list[Problem],
        scorer: Scorer,
        log: Log,
        should_stop: Callable[[], bool],
    ) -> None:
        self.settings, self.name, self.model = settings, name, model
        self.folder = run.path / "phases" / f"{number}-{name}"
        self.metrics, self.samples = RowFile(run.path / "metrics.jsonl"), RowFile(run.path / "samples.jsonl")
        self.tokenizer, self.compute, self.scorer = tokenizer, compute, scorer
        self.problems = problems
        self.log, self.should_stop = log, should_stop
        self.seed, self.base_name = settings.seed, lasting_name(settings.model)
        self.steps = phase_steps(settings)[name]

    def run(self) -> None:
        """Go on to the phase's last update, or load its result if it is there already."""
        if (self.folder / "adapter" / DONE_FILE).is_file():
            load_adapter(self.model, self.folder / "adapter")
            return
        learner = self._learner()
        usable = self._usable_problems(learner)
        facts = {"phase": self.name, "settings": _digest(to_table(self.settings))}
        checkpoints = self.folder / "checkpoints"
        done = load_latest(checkpoints, self.model, learner.optimizer, learner.value_head, facts)
        self.metrics.rewind(self.name, done)
        self.samples.rewind(self.name, done)
        decoder = None if self.name == "sft" else Decoder(self.model, self.compute.rollout_dtype)

        for step in range(done + 1, self.steps + 1):
            rollout: Rollout | None = None
            for group in learner.optimizer.param_groups:
                group["lr"] = group["peak_lr"] * rate_share(self.settings, self.name, step)
            if decoder is None:
                sft, micro_tokens = self.settings.sft, self.settings.ppo.micro_batch_tokens
                row = sft_update(learner, usable, sft, step, self.seed, micro_tokens)
            else:
                ppo, reward = self.settings.ppo, self.settings.reward
                row, rollout = ppo_update(
                    learner, decoder, self.scorer, usable, ppo, reward, self.name, step, self.seed
                )
            row = {"phase": self.name, "step": step, "steps": self.steps, **row}
            self.metrics.append([row])
            if rollout is not None:
                self.samples.append(_sample_rows(self.name, step, rollout))
            self.log(row)
            stop = self.should_stop()
            if stop or step % self.settings.checkpoint_every == 0 or step == self.steps:
                head = learner.value_head
                save_checkpoint(checkpoints, step, self.model, self.base_name, learner.optimizer, head, facts)
            if stop and step < self.steps:
                raise Stopped(f"{self.name} stopped after update {step} of {self.steps}")
        _publish(self.folder / "adapter", self.model, self.base_name, {"phase": self.name, "steps": self.steps})

    def _learner(self) -> Learner:
        ppo = self.settings.ppo
        rate = self.settings.sft.learning_rate if self.name == "sft" else ppo.learning_rate
        groups: list[dict[str, Any]] = [
            {"params": list(adapter_parameters(self.model, POLICY).values()), "peak_lr": rate}
        ]
        head = None
        if self.name != "sft" and ppo.advantage == "gae":
            head = make_value_head(self.model.config.hidden_size, self.seed).to(self.compute.device)
            groups.append({"params": list(head.parameters()), "peak_lr": ppo.value_learning_rate})
        optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.95), weight_decay=0.0)
        return Learner(self.model, self.tokenizer, self.compute, optimizer, head)

    def _usable_problems(self, learner: Learner) -> list[Problem]:
        """Problems whose prompt leaves room in the context; for sft, those with a reference solution."""
        room = int(self.model.config.max_position_embeddings) - self.settings.ppo.max_tokens
        usable = [problem for problem in self.problems if len(learner.prompt_tokens(problem)) <= room]
        if self.name == "sft":
            usable = [problem for problem in usable if problem.solutions]
            if not usable:
                raise SceError(
                    f"{self.settings.problems}: no problem has a reference solution, so the sft phase cannot run; "
                    "leave it out with --phases binary,partial"
                )
        if not usable:
            raise SceError(f"{self.settings.problems}: no prompt leaves {self.settings.ppo.max_tokens} tokens of room")
        return usable


def phase_steps(settings: TrainSettings) -> dict[str, int]:
    """Updates of each phase that the run has, in order."""
    ppo = settings.ppo
    steps = {"sft": settings.sft.steps, "binary": ppo.binary_steps, "partial": ppo.partial_steps}
    return {phase: steps[phase] for phase in settings.phases}


def rate_share(settings: TrainSettings, phase: str, step: int) -> float:
    """The share of its peak that the learning rate has at update ``step`` (from 1) of a phase.

    It rises in every phase, whose optimizer starts anew. With a linear schedule it falls over sft, and once over all
    updates of reinforcement learning: the noise of late batches then averages out instead of ending in the policy.
    """
    share = min(1.0, step / max(1, settings.warmup_steps))
    if settings.rate_schedule == "linear":
        steps = phase_steps(settings)
        together = [name for name in steps if (name == "sft") == (phase == "sft")]
        before = sum(steps[name] for name in together[: together.index(phase)])
        share = min(share, 1 - (before + step - 1) / sum(steps[name] for name in together))
    return share


def _prepare_folder(
    run: Run, settings: TrainSettings, base: Path, problems: list[Problem], compute: Compute, resume: bool
) -> None:
    """Create the run folder, or make sure that the one there is this run.

    Raises:
        UsageError: it holds other settings, other problems, another base model, or something that is no run.
        SceError: its record is damaged.
    """
    config = run.path / "config.toml"
    table = to_table(settings)
    if run.path.resolve() == (RUNS / LATEST).resolve():
        raise UsageError(f"{run.path} names the last run; give another --out")
    if run.path.exists() and not run.path.is_dir():
        raise UsageError(f"{run.path} is a file; give another --out")
    if run.path.is_dir() and any(run.path.iterdir()) and not (run.path / "environment.json").is_file():
        raise UsageError(f"{run.path} holds something that is not a training run; give another --out")
    if not resume:
        for name in _OWN_NAMES:
            path = run.path / name
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    inputs = {"base_sha256": sha256_of_folder(base), "problems_sha256": digest_of_problems(problems)}
    if not config.is_file() and (run.path / "phases").exists():
        raise UsageError(f"{config} is gone, so the run cannot go on; give another --out, or --no-resume to start anew")
    if config.is_file():
        changed = first_difference(read_toml(config), table)
        if changed:
            raise UsageError(
                f"{run.path} was made with other settings ({changed}); "
                "give another --out, or --no-resume to throw it away and start again"
            )
        record = read_json(run.path / "environment.json")
        for key, named in (("base_sha256", f"weights of {settings.model}"), ("problems_sha256", settings.problems)):
            if record.get(key) != inputs[key]:
                raise UsageError(f"{run.path} was made from other {named}; give another --out")
        return
    environment = {
        "base_model": lasting_name(settings.model),
        **inputs,
        "machine": describe_machine(),
        "device": torch.cuda.get_device_name() if compute.device == "cuda" else "cpu",
        "base_precision": compute.base_precision,
        "autocast": str(compute.autocast_dtype or "none"),
        "threads": torch.get_num_threads(),
        "seed": settings.seed,
        "sandbox": describe_layers(as_choice(settings.reward.sandbox)),
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "command": [os.path.basename(sys.argv[0]), *sys.argv[1:]],
    }
    with write_atomically(run.path / "environment.json") as out:
        out.write(json.dumps(environment, indent=1) + "\n")
    with write_atomically(config) as out:
        out.write(to_toml(table))


def first_difference(old: dict[str, Any], new: dict[str, Any], prefix: str = "") -> str:
    """The first setting in which two tables differ, as ``name: old -> new``; empty when they are equal."""
    for key in sorted(old.keys() | new.keys()):
        before, after = old.get(key), new.get(key)
        if isinstance(before, dict) and isinstance(after, dict):
            found = first_difference(before, after, f"{prefix}{key}.")
            if found:
                return found
        elif before != after:
            return f"{prefix}{key}: {before} -> {after}"
    return ""


def sha256_of_folder(folder: Path) -> str:
    """One digest over the weight files of a model folder, so that a run knows its base again."""
    digest = hashlib.sha256()
    for path in sorted(folder.glob("*.safetensors")):
        digest.update(f"{path.name} {sha256_of(path)}\n".encode())
    return digest.hexdigest()


def _publish(folder: Path, model: Any, base_name: str, facts: dict[str, Any]) -> None:
    """Save the policy adapter, with `DONE_FILE` beside it, as ``folder``, which appears when it is whole."""
    try:
        with temporary_beside(folder) as temporary:
            save_adapter(model, temporary, base_name)
            (temporary / DONE_FILE).write_text(json.dumps(facts) + "\n", encoding="utf-8")
            shutil.rmtree(folder, ignore_errors=True)
    except SafetensorError as error:
        raise SceError(f"cannot write {folder}: {error}") from error


def _sample_rows(phase: str, step: int, rollout: Rollout) -> list[dict[str, Any]]:
    """The first completion of each prompt, with its score."""
    rows = []
    for completion, score in zip(rollout.completions, rollout.scores, strict=True):
        if completion.sample == 0:
            facts = asdict(score)
            kept = {name: facts[name] for name in ("id", "stage", "passed", "total", "reward", "severity", "program")}
            rows.append({"phase": phase, "step": step, **kept})
    return rows


def _digest(table: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(table, sort_keys=True).encode()).hexdigest()
