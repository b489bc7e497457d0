"""The record of a run in its folder, and checks that a folder belongs to the requested run."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Mapping
from typing import Any

import torch

from securecoderl_edge.config import current_settings, read_toml, to_table, to_toml
from securecoderl_edge.errors import SceError, UsageError
from securecoderl_edge.models.device import Compute
from securecoderl_edge.models.files import lasting_name
from securecoderl_edge.runs import ENVIRONMENT, LATEST, RUNS, Run
from securecoderl_edge.sandbox import describe_levels
from securecoderl_edge.system.files import read_json, write_atomically
from securecoderl_edge.system.machine import describe_machine
from securecoderl_edge.training.settings import TrainSettings, without_changeable

# In the order in which --no-resume deletes them: the file that marks the folder as a run is the last.
_OWN_NAMES = (
    "metrics.jsonl",
    "samples.jsonl",
    "report.html",
    "tensorboard",
    "phases",
    "policy",
    "exports",
    "bench",
    "config.toml",
    ENVIRONMENT,
)


def prepare_folder(
    run: Run, settings: TrainSettings, inputs: Mapping[str, str], compute: Compute, processes: int, resume: bool
) -> None:
    """Create the run folder, or check that an existing one belongs to this run.

    Args:
        inputs: hashes of the inputs of the run, by name.

    Raises:
        UsageError: it has other settings, or other problems or another base model.
        SceError: its record is damaged.
    """
    config = run.path / "config.toml"
    table = to_table(settings)
    if not resume:
        for name in _OWN_NAMES:
            path = run.path / name
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)
    if not config.is_file() and (run.path / "phases").exists():
        raise UsageError(
            f"{config} is missing, so the run cannot resume. Choose another --out, or start again with --no-resume"
        )
    if config.is_file() and not any((run.path / name).exists() for name in ("phases", "policy", "metrics.jsonl")):
        # The run was rejected before it started (too little memory, for example), so new settings replace the old ones.
        config.unlink()
    if config.is_file():
        before = current_settings(read_toml(config))
        changed = first_difference(without_changeable(before), without_changeable(table))
        if changed:
            raise UsageError(
                f"{run.path} was made with other settings ({changed}). Resume it with: {run.command}; "
                "or choose another --out, or delete it with --no-resume"
            )
        record = read_json(run.path / ENVIRONMENT)
        named = {"base_sha256": f"weights of {settings.model}", "problems_sha256": settings.problems}
        for key, value in inputs.items():
            if record.get(key) != value:
                raise UsageError(f"{run.path} was made from other {named.get(key, key)}. Choose another --out")
        if before != table and not run.policy.exists():
            with write_atomically(config) as out:
                out.write(to_toml(table))
        return
    environment = {
        "base_model": lasting_name(settings.model),
        **inputs,
        "machine": describe_machine(),
        "device": torch.cuda.get_device_name() if compute.is_accelerator else "cpu",
        "processes": processes,
        "base_precision": compute.base_precision,
        "products": str(compute.products),
        "rollout_dtype": str(compute.rollout_dtype),
        "threads": torch.get_num_threads(),
        "seed": settings.seed,
        "sandbox": describe_levels(settings.reward.sandbox),
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "command": [os.path.basename(sys.argv[0]), *sys.argv[1:]],
    }
    with write_atomically(run.path / ENVIRONMENT) as out:
        out.write(json.dumps(environment, indent=1) + "\n")
    with write_atomically(config) as out:
        out.write(to_toml(table))


def refuse_other_things(run: Run) -> None:
    """Check that a run may be started or resumed at its path.

    Raises:
        UsageError: the path holds something else.
    """
    if run.path.resolve() == (RUNS / LATEST).resolve():
        raise UsageError(f"--out {run.path} is the link to the latest run. Choose another folder")
    if run.path.exists() and not run.path.is_dir():
        raise UsageError(f"{run.path} is a file. Choose another --out")
    is_run = _has_record(run)
    if run.path.is_dir() and not is_run and any(path.name != ".lock" for path in run.path.iterdir()):
        raise UsageError(f"{run.path} is not a training run. Choose another --out")


def _has_record(run: Run) -> bool:
    """Whether the folder's environment.json is one that `prepare_folder` wrote; a damaged one of a run counts."""
    record = run.path / ENVIRONMENT
    if not record.is_file():
        return False
    try:
        if "base_sha256" in read_json(record):
            return True
    except SceError:
        pass
    return (run.path / "config.toml").is_file() and (run.path / "phases").is_dir()


def first_difference(old: dict[str, Any], new: dict[str, Any], prefix: str = "") -> str:
    """The first setting in which two tables differ, as ``name: old -> new``; empty if they are equal."""
    for key in sorted(old.keys() | new.keys()):
        before, after = old.get(key), new.get(key)
        if isinstance(before, dict) and isinstance(after, dict):
            found = first_difference(before, after, f"{prefix}{key}.")
            if found:
                return found
        elif before != after:
            return f"{prefix}{key}: {before} -> {after}"
    return ""
