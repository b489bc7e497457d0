"""The record of a run in its folder, and checks that folder and processes belong to the requested run."""

from __future__ import annotations

import json
import os
import shutil
import socket
import sys
import time
import uuid
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from securecoderl_edge import __version__
from securecoderl_edge.config import read_toml, to_table, to_toml
from securecoderl_edge.errors import SceError, UsageError
from securecoderl_edge.models.device import Compute
from securecoderl_edge.models.files import lasting_name
from securecoderl_edge.runs import ENVIRONMENT, LATEST, READINESS, RUNS, Run
from securecoderl_edge.sandbox import describe_levels
from securecoderl_edge.system.files import read_json, write_atomically
from securecoderl_edge.system.machine import describe_machine
from securecoderl_edge.training.inputs import FUNCTION_HASH
from securecoderl_edge.training.parallel import Team
from securecoderl_edge.training.settings import TrainSettings, without_changeable

# In the order in which --no-resume deletes them: the file that marks the folder as a run is the last.
_OWN_NAMES = (
    "metrics.jsonl",
    READINESS,
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
# The content of these inputs is compared instead, since machines may keep them in different places.
_PLACES = ("model", "problems", "init")
_MOST_DIFFERENCES = 4  # in a message
_TIME_FORMAT = "%Y-%m-%dT%H:%M:%S%z"
# Network disks show new files after some seconds.
_VISIBLE_SECONDS = 60.0


def prepare_folder(
    run: Run,
    settings: TrainSettings,
    inputs: Mapping[str, str],
    languages: Collection[str],
    compute: Compute,
    processes: int,
    resume: bool,
) -> None:
    """Create the run folder, or check that an existing one belongs to this run.

    Args:
        inputs: hashes of the inputs of the run, by name.
        languages: of its problems.

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
    before = read_toml(config) if config.is_file() else None
    if before is not None:
        changed = differences(without_changeable(before), without_changeable(table))
        if changed:
            ways = "" if run.policy.exists() else f"resume it with: {run.command}; or "
            raise UsageError(
                f"{run.path} was made with other settings ({changed}): {ways}choose another --out, or delete it with "
                "--no-resume"
            )
        record = read_json(run.path / ENVIRONMENT)
        named = {
            "base_sha256": settings.model,
            "problems_sha256": settings.problems,
            FUNCTION_HASH: settings.reward.function,
        }
        for key, value in inputs.items():
            if record.get(key) != value:
                raise UsageError(
                    f"the content of {named.get(key, key)} is not that of {run.path}'s start. Choose another --out, or "
                    "delete the run with --no-resume"
                )
        if run.policy.exists():
            return
        record["sessions"] = [*record.get("sessions", ()), _session(processes)]
    else:
        record = {
            "base_model": lasting_name(settings.model),
            **inputs,
            "languages": sorted(languages),
            "machine": describe_machine(),
            "device": torch.cuda.get_device_name() if compute.is_accelerator else "cpu",
            "base_precision": compute.base_precision,
            "products": str(compute.products),
            "rollout_dtype": str(compute.rollout_dtype),
            "seed": settings.seed,
            "sandbox": describe_levels(settings.reward.sandbox),
            "started": time.strftime(_TIME_FORMAT),
            "command": [os.path.basename(sys.argv[0]), *sys.argv[1:]],
            "sessions": [_session(processes)],
        }
    with write_atomically(run.path / ENVIRONMENT) as out:
        out.write(json.dumps(record, indent=1) + "\n")
    if before != table:
        with write_atomically(config) as out:
            out.write(to_toml(table))


def _session(processes: int) -> dict[str, Any]:
    """What may change when a run is resumed: results are equal up to rounding."""
    return {"started": time.strftime(_TIME_FORMAT), "processes": processes, "threads": torch.get_num_threads()}


def check_equal(settings: TrainSettings, inputs: Mapping[str, str], team: Team) -> None:
    """Check that all processes train the same: settings, inputs and versions.

    Raises:
        UsageError: a process differs from the first one.
    """
    table = {name: value for name, value in to_table(settings).items() if name not in _PLACES}
    own = {"sce": __version__, "torch": torch.__version__, **inputs, **table}
    first, *others = team.collect([own])
    for number, other in enumerate(others, 1):
        if changed := differences(first, other):
            raise UsageError(
                f"process {number} differs from process 0 ({changed}). Start all processes with the same versions, "
                "files and options"
            )


def check_shared(folder: Path, team: Team) -> None:
    """Check that all processes see what the first one writes to the run folder.

    Raises:
        UsageError: a process does not.
    """
    if team.count == 1:
        return
    token = folder / f".shared-{uuid.uuid4().hex}"
    if team.is_writer:
        token.touch()
    try:
        # Asked for only after it was made: network disks remember what was not there.
        (name,) = team.collect([token.name] if team.is_writer else [])
        deadline = time.monotonic() + _VISIBLE_SECONDS
        while not (is_seen := (folder / name).exists()) and time.monotonic() < deadline:
            time.sleep(0.1)
        blind = team.collect([] if is_seen else [f"process {team.index} on {socket.gethostname()}"])
    finally:
        if team.is_writer:
            token.unlink()
    if blind:
        raise UsageError(
            f"{blind[0]} does not see what process 0 writes to {folder}. Give --out a folder on a disk that all "
            "machines share"
        )


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


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """The first settings in which two tables differ, as ``name: old -> new``; empty if they are equal."""
    every = [*_differences(old, new)]
    return ", ".join(every[:_MOST_DIFFERENCES]) + ", ..." * (len(every) > _MOST_DIFFERENCES)


def _differences(old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for key in sorted(old.keys() | new.keys()):
        before, after = old.get(key), new.get(key)
        if isinstance(before, dict) and isinstance(after, dict):
            yield from _differences(before, after, f"{prefix}{key}.")
        elif before != after:
            yield f"{prefix}{key}: {before} -> {after}"
