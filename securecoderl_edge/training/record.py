"""The record of a run in its folder, and checks that folder and processes belong to the requested run."""

from __future__ import annotations

import json
import os
import shutil
import socket
import sys
import time
import uuid
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from securecoderl_edge import __version__
from securecoderl_edge.config import to_table, to_toml
from securecoderl_edge.errors import UsageError
from securecoderl_edge.models.device import Compute
from securecoderl_edge.models.files import lasting_name
from securecoderl_edge.runs import ENVIRONMENT, READINESS, Run
from securecoderl_edge.sandbox import describe_levels
from securecoderl_edge.system.files import read_json, read_json_if_there, write_atomically
from securecoderl_edge.system.machine import describe_machine
from securecoderl_edge.training.folder import differences, earlier_settings, refuse_other_settings
from securecoderl_edge.training.inputs import DIFFICULTY_HASH, FUNCTION_HASH, TEACHER_HASH
from securecoderl_edge.training.parallel import Team
from securecoderl_edge.training.settings import TrainSettings, without

# In the order in which --no-resume deletes them: the file that marks the folder as a run is the last.
_OWN_NAMES = (
    "metrics.jsonl",
    READINESS,
    "samples.jsonl",
    "report.html",
    "comparison.html",
    "tensorboard",
    "wandb",
    "phases",
    "policy",
    "exports",
    "bench",
    "config.toml",
    ENVIRONMENT,
)
# The content of these inputs is compared instead, since machines may keep them in different places.
_PLACES = ("model", "problems", "init", "ppo.reference", "sampling.difficulty")
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
    config, table = run.path / "config.toml", to_table(settings)
    if not resume:
        for name in _OWN_NAMES:
            path = run.path / name
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)
    before = earlier_settings(run)
    if before is not None:
        refuse_other_settings(run, before, settings)
        record = read_json(run.path / ENVIRONMENT)
        named = {
            "base_sha256": settings.model,
            "problems_sha256": settings.problems,
            FUNCTION_HASH: settings.reward.function,
            TEACHER_HASH: settings.ppo.reference,
            DIFFICULTY_HASH: settings.sampling.difficulty,
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


def with_recorded_dtypes(compute: Compute, run: Run) -> Compute:
    """The dtypes with which a run on a CPU began: they were chosen by a stopwatch, which may run differently now."""
    record = read_json_if_there(run.path / ENVIRONMENT)
    names = (record.get("products"), record.get("rollout_dtype"))
    known = {str(dtype): dtype for dtype in (torch.float32, torch.bfloat16)}
    if compute.is_accelerator or record.get("device") != "cpu" or not all(name in known for name in names):
        return compute
    products, rollout = (known[str(name)] for name in names)
    return replace(compute, products=products, rollout_dtype=rollout)


def _session(processes: int) -> dict[str, Any]:
    """What may change when a run is resumed: results are equal up to rounding."""
    return {"started": time.strftime(_TIME_FORMAT), "processes": processes, "threads": torch.get_num_threads()}


def check_equal(settings: TrainSettings, inputs: Mapping[str, str], team: Team) -> None:
    """Check that all processes train the same: settings, inputs and versions.

    Raises:
        UsageError: a process differs from the first one.
    """
    table = without(to_table(settings), _PLACES)
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
