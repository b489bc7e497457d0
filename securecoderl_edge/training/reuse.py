"""Reuse of finished phases of other runs with the same inputs, so that nothing is trained twice.

The paper's three variants share the SFT policy, and two of them a binary phase. If they train with one seed in one
folder of runs, each phase is trained once.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from securecoderl_edge import __version__
from securecoderl_edge.config import to_table
from securecoderl_edge.errors import SceError
from securecoderl_edge.models.adapters import ADAPTER_WEIGHTS
from securecoderl_edge.runs import DONE_FILE, EVALUATIONS, SNAPSHOTS, Run
from securecoderl_edge.system.files import read_json, sha256_of, temporary_beside
from securecoderl_edge.system.rows import RowFile
from securecoderl_edge.training.inputs import DIFFICULTY_HASH, FUNCTION_HASH, TEACHER_HASH
from securecoderl_edge.training.phase_settings import BY_PPO, PHASES, RL_PHASES, SELF_TRAINING
from securecoderl_edge.training.recipe import peak_rate, phase_steps
from securecoderl_edge.training.settings import TrainSettings, with_own_r, without, without_changeable

# Names of inputs whose content is hashed instead, and settings without effect on the result.
_WITHOUT_EFFECT = ("init", "model", "problems", "phases", "device")
# The settings of [ppo] that SFT uses: for fitting prompts, and for evaluations on held-out problems; then RFT and SSD.
_PPO_IN_SFT = ("max_tokens", "temperature")
_PPO_IN_SELF_TRAINING = (*_PPO_IN_SFT, "batch_size", "samples_per_prompt")
# Inputs that SFT does not use.
_NOT_IN_SFT = (FUNCTION_HASH, DIFFICULTY_HASH)
# Settings that earlier versions did not have, with what those did. So they leave no trace in a key.
_LATER: dict[str, Any] = {
    "sft.filter": "none",
    "rft.filter": "tests",
    "rft.updates_per_round": 1,
    "rft.epochs": 1,
    "ppo.end_with_program": False,
    "sampling.method": "uniform",
    "sampling.resample": 0,
}


def phase_keys(settings: TrainSettings, inputs: Mapping[str, str]) -> dict[str, str]:
    """A hash for each phase of everything that its result depends on: inputs, settings, earlier phases.

    Args:
        inputs: hashes of base model, problems and initial adapter, and the compute dtypes.
    """
    keys: dict[str, str] = {}
    before: list[str] = []
    table = without_changeable(to_table(settings))
    as_before = [name for name, value in _LATER.items() if _value(table, name) == value]
    table = without(table, ("ppo.reference", "sampling.difficulty", *as_before))  # files are among the inputs
    for phase in settings.phases:
        before.append(phase)
        used = {name: value for name, value in table.items() if name not in (*_WITHOUT_EFFECT, *PHASES)}
        used |= {name: table[name] for name in before}
        if not set(before) & set(BY_PPO):
            names = _PPO_IN_SFT if phase == "sft" else _PPO_IN_SELF_TRAINING
            used["ppo"] = {name: table["ppo"].get(name) for name in names}
            if settings.ppo.end_with_program:  # also in evaluations
                used["ppo"]["end_with_program"] = True
            if settings.ppo.hint and phase == "rft":
                used["ppo"]["hint"] = settings.ppo.hint
        if phase == "sft":
            used["reward"] = to_table(with_own_r(settings.reward))
        elif settings.lr_schedule == "linear":
            # The learning rate falls over all phases after SFT, so later phases matter too.
            used["updates"] = {name: count for name, count in phase_steps(settings).items() if name != "sft"}
        if phase in SELF_TRAINING:
            used["learning_rate"] = peak_rate(settings, phase)  # by default that of SFT, which may not be a phase
        if settings.reward.function is not None and phase != "sft":
            # Its file is among the inputs, wherever it is.
            used["reward"] = {**used["reward"], "function": settings.reward.function.rpartition(":")[2]}
        if not set(before) & set(RL_PHASES):  # the only ones that choose by pass rates
            used["sampling"] = {name: each for name, each in used["sampling"].items() if name == "pass_rate"}
        if phase == "sft" or not used["sampling"]:
            del used["sampling"]
        unused = set(_NOT_IN_SFT) if phase == "sft" else set[str]()
        unused |= {TEACHER_HASH} if settings.teacher_of(*before) is None else set()
        relevant = {name: value for name, value in inputs.items() if name not in unused}
        parts = {"version": __version__, "inputs": relevant, "phases": before, "settings": used}
        keys[phase] = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
    return keys


def _value(table: Mapping[str, Any], name: str) -> Any:
    outer, inner = name.split(".")
    return table[outer][inner]


def reuse_phase(run: Run, number: int, phase: str, key: str) -> str:
    """Copy the result of a phase from another run in the same folder that trained it from the same inputs.

    Returns:
        the name of that run; empty if no run has it.
    """
    own = run.phase_folder(number, phase)
    if (own / "adapter" / DONE_FILE).is_file() or (own / "checkpoints").exists():
        return ""
    adapter = find_adapter(run, phase, key)
    if adapter is None:
        return ""
    other = Run(adapter.parents[2])
    _copy(other, adapter, run, own, phase)
    return other.name


def find_adapter(run: Run, phase: str, key: str) -> Path | None:
    """The result of a phase that the run, or another run in the same folder, has trained from the inputs of ``key``."""
    for done_file in sorted(run.path.resolve().parent.glob(f"*/phases/*-{phase}/adapter/{DONE_FILE}")):
        if _made_with(done_file, key):
            return done_file.parent
    return None


def _made_with(done_file: Path, key: str) -> bool:
    """Whether an adapter was made from the inputs of ``key`` and is complete."""
    try:
        facts = read_json(done_file)
        return facts.get("key") == key and facts.get("sha256") == sha256_of(done_file.with_name(ADAPTER_WEIGHTS))
    except SceError:
        return False  # train the phase if the result of the other run is damaged


def _copy(other: Run, adapter: Path, run: Run, own: Path, phase: str) -> None:
    files = [(other.path / name, run.path / name) for name in ("metrics.jsonl", "samples.jsonl")]
    for source, file in (*files, (adapter.with_name(EVALUATIONS), own / EVALUATIONS)):
        try:
            rows: list[dict[str, Any]] = RowFile(source).read()
        except SceError:
            continue
        target = RowFile(file)
        target.rewind(phase, -1)  # rows of an interrupted copy
        target.append(row for row in rows if row.get("phase") == phase)
    snapshots = adapter.with_name(SNAPSHOTS)
    if snapshots.is_dir():
        with temporary_beside(own / SNAPSHOTS, replace_folder=True) as temporary:
            shutil.copytree(snapshots, temporary, symlinks=True)
    with temporary_beside(own / "adapter") as temporary:
        shutil.copytree(adapter, temporary, symlinks=True)
