"""Checkpoints and finished adapters, written atomically, in safetensors and JSON.

    checkpoints/step-000020/
      adapter_model.safetensors adapter_config.json   the policy, PEFT format
      optimizer.safetensors                           the state of each trained tensor, 8-bit ones included
      value_head.safetensors                          with GAE only
      pool.json                                       within a round of rft only: completions to train on
      state.json                                      step, settings, running numbers and pass rates, sha256 of every
                                                      other file

The folder gets its name when all of it is on disk. The state of random generators, the data order and the learning rate
are not stored: all sampling is seeded from (seed, phase, step), and the rate follows from the step.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from securecoderl_edge.errors import SceError
from securecoderl_edge.models.adapters import ADAPTER_WEIGHTS, load_adapter, save_adapter
from securecoderl_edge.runs import DONE_FILE, step_name
from securecoderl_edge.system.files import read_json, sha256_of, temporary_beside
from securecoderl_edge.training.update.learner import Kept, Learner, NotFiniteError
from securecoderl_edge.training.update.pass_rates import rates_from_record

_STATE_FILE = "state.json"
KEEP = 2
_OPTIMIZER = "optimizer.safetensors"
_VALUE_HEAD = "value_head.safetensors"
_POOL = "pool.json"


@dataclass
class PhaseProgress:
    """How far a phase is.

    Attributes:
        step: number of updates.
        evaluations: rows of the phase's evaluations.jsonl up to this step.
    """

    step: int = 0
    evaluations: int = 0


def save_checkpoint(
    folder: Path,
    learner: Learner,
    progress: PhaseProgress,
    base_name: str,
    facts: Mapping[str, Any],
    keep: Collection[int],
) -> Path:
    """Write ``folder/step-N`` under a temporary name, sync it, rename it; delete all but the last `KEEP` others.

    Args:
        facts: the identity of the phase (its name, hashes of the settings and the base model); `load_latest` requires
            the same.
        keep: other steps whose checkpoints stay.

    Raises:
        SceError: the system cannot write it; earlier checkpoints stay.
    """
    final = folder / step_name(progress.step)
    try:
        with temporary_beside(final, replace_folder=True) as temporary:
            save_adapter(learner.model, temporary, base_name)
            tensors, scalars = _flatten(learner.optimizer.state_dict()["state"])
            save_file(tensors, temporary / _OPTIMIZER)
            if learner.value_head is not None:
                head = {name: tensor.cpu() for name, tensor in learner.value_head.state_dict().items()}
                save_file(head, temporary / _VALUE_HEAD)
            if learner.pool:
                pool = [asdict(kept) for kept in learner.pool]
                (temporary / _POOL).write_text(json.dumps(pool), encoding="utf-8")
            hashes = {path.name: sha256_of(path) for path in sorted(temporary.iterdir())}
            state = {
                **asdict(progress),
                "running": learner.running,
                "pass_rates": learner.pass_rates.to_record(),
                "scaler": learner.scaler.state_dict(),
                "facts": dict(facts),
                "optimizer": scalars,
                "sha256": hashes,
            }
            (temporary / _STATE_FILE).write_text(json.dumps(state, indent=1), encoding="utf-8")
    except SafetensorError as error:
        raise SceError(f"cannot write {final}: {error}") from error
    kept = {folder / step_name(step) for step in keep}
    for old in checkpoints(folder)[:-KEEP]:
        if old not in kept:
            shutil.rmtree(old)
    return final


def checkpoints(folder: Path) -> list[Path]:
    """The checkpoints in ``folder``, oldest first."""
    return sorted(folder.glob("step-*"))


def load_latest(folder: Path, learner: Learner, facts: Mapping[str, Any]) -> PhaseProgress:
    """Restore the newest checkpoint; without one, return the progress of a phase that has not started.

    Raises:
        SceError: it was made with other settings or of another base model, or a file of it is missing or damaged.
    """
    saved = checkpoints(folder)
    if not saved:
        return PhaseProgress()
    newest = saved[-1]
    advice = "start again with --no-resume, or choose another --out"
    older = f"delete it to resume from {saved[-2].name}" if len(saved) > 1 else advice
    if not (newest / _STATE_FILE).is_file():
        raise SceError(f"{newest} is not a complete checkpoint ({_STATE_FILE} is missing); {older}")
    try:
        state = read_json(newest / _STATE_FILE)
        stored, hashes, numbers = dict(state["facts"]), dict(state["sha256"]), dict(state["optimizer"])
        running = {str(name): float(value) for name, value in state["running"].items()}
        pass_rates = rates_from_record(state.get("pass_rates", {}))  # missing in checkpoints of earlier versions
        progress = _progress_of(state)
        scaler = dict(state["scaler"])
    except (SceError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise SceError(f"{newest / _STATE_FILE} is damaged ({error}); {older}") from None
    if folder / step_name(progress.step) != newest:
        raise SceError(f"{newest / _STATE_FILE} is damaged (it belongs to step {progress.step}); {older}")
    differing = [name for name, value in facts.items() if stored.get(name) != value]
    if differing:
        raise SceError(f"{newest} was made with other {differing[0].replace('_', ' ')}; {advice}")
    needed = {ADAPTER_WEIGHTS, _OPTIMIZER} | ({_VALUE_HEAD} if learner.value_head is not None else set())
    for name in sorted(needed - hashes.keys()):
        raise SceError(f"{newest / _STATE_FILE} is damaged (sha256 of {name} is missing); {older}")
    for name, expected in hashes.items():
        if not _is_whole(newest, name, expected):
            raise SceError(f"{newest}/{name} is damaged (wrong sha256); {older}")
    try:
        load_adapter(learner.model, newest)
        _unflatten(learner.optimizer, load_file(newest / _OPTIMIZER), numbers)
        if learner.value_head is not None:
            learner.value_head.load_state_dict(load_file(newest / _VALUE_HEAD))
        learner.scaler.load_state_dict(scaler)
        learner.pool = _pool_of(newest / _POOL) if _POOL in hashes else ()
    except (OSError, SafetensorError, AttributeError, KeyError, TypeError, ValueError, RuntimeError) as error:
        raise SceError(f"{newest} cannot be loaded ({error}); {older}") from None
    learner.running, learner.pass_rates = running, pass_rates
    return progress


def _progress_of(state: Mapping[str, Any]) -> PhaseProgress:
    """The `PhaseProgress` that `save_checkpoint` wrote.

    Raises:
        KeyError, TypeError, ValueError: not such a record.
    """
    step, evaluations = state["step"], state["evaluations"]
    if not all(type(number) is int and number >= 0 for number in (step, evaluations)):
        raise ValueError("step or evaluations has the wrong type")
    return PhaseProgress(step, evaluations)


def _pool_of(file: Path) -> tuple[Kept, ...]:
    """What `save_checkpoint` wrote; `ValueError`, `TypeError` or `OSError` if it is something else."""
    records = json.loads(file.read_text(encoding="utf-8"))
    token_ids = [{name: tuple(each[name]) for name in ("prompt", "completion")} for each in records]
    return tuple(Kept(**{**each, **ids}) for each, ids in zip(records, token_ids, strict=True))


def _is_whole(folder: Path, name: str, expected: Any) -> bool:
    file = folder / name
    return os.path.basename(name) == name and file.is_file() and sha256_of(file) == expected


def load_step(folder: Path, step: int, learner: Learner) -> None:
    """Load only the policy of one checkpoint.

    Raises:
        SceError: it is missing, damaged or unreadable.
    """
    checkpoint = folder / step_name(step)
    hashes = read_json(checkpoint / _STATE_FILE).get("sha256")
    expected = hashes.get(ADAPTER_WEIGHTS) if isinstance(hashes, dict) else None
    if not _is_whole(checkpoint, ADAPTER_WEIGHTS, expected):
        raise SceError(
            f"{checkpoint}/{ADAPTER_WEIGHTS}, the best checkpoint, is damaged (wrong sha256); train this phase again"
        )
    load_adapter(learner.model, checkpoint)


def point_to_best(phase_folder: Path, step: int) -> None:
    """Make ``best`` in the folder of a phase a link to the best checkpoint so far."""
    temporary = phase_folder / f".best.tmp-{os.getpid()}"
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(Path("checkpoints") / step_name(step))
    os.replace(temporary, phase_folder / "best")


def publish(folder: Path, model: Any, base_name: str, facts: dict[str, Any]) -> None:
    """Save the policy adapter and its `DONE_FILE` as ``folder``, atomically.

    Raises:
        SceError: the system cannot write it.
    """
    try:
        with temporary_beside(folder, replace_folder=True) as temporary:
            save_adapter(model, temporary, base_name)
            facts = {**facts, "sha256": sha256_of(temporary / ADAPTER_WEIGHTS)}
            (temporary / DONE_FILE).write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    except SafetensorError as error:
        raise SceError(f"cannot write {folder}: {error}") from error


def check_published(folder: Path) -> None:
    """Check that an adapter is unchanged since `publish`.

    Raises:
        SceError: it has changed.
    """
    if read_json(folder / DONE_FILE).get("sha256") != sha256_of(folder / ADAPTER_WEIGHTS):
        raise SceError(f"{folder / ADAPTER_WEIGHTS} is damaged (wrong sha256); delete {folder} to train it again")


def keep_for_inspection(file: Path, error: NotFiniteError) -> None:
    """Save the tensors with NaN or Inf, and those they were computed from."""
    with temporary_beside(file) as temporary:
        # Copies: tensors of a trajectory that are not computed yet are one, and safetensors may not share them.
        tensors = {name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in error.tensors.items()}
        save_file(tensors, temporary)


def _flatten(state: Mapping[Any, Any]) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """An optimizer's nested state as tensors and as numbers, both under ``<parameter>/<name>/...`` keys."""
    tensors: dict[str, torch.Tensor] = {}
    numbers: dict[str, Any] = {}
    for key, value in _leaves(state, ""):
        if isinstance(value, torch.Tensor):
            # A copy: 8-bit states share their tables; safetensors may not.
            tensors[key] = value.detach().to("cpu", copy=True).contiguous()
        else:
            numbers[key] = value
    return tensors, numbers


def _leaves(state: Mapping[Any, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for name, value in state.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{name}/")
        else:
            yield f"{prefix}{name}", value


def _unflatten(
    optimizer: torch.optim.Optimizer, tensors: Mapping[str, torch.Tensor], numbers: Mapping[str, Any]
) -> None:
    state: dict[Any, Any] = {}
    for key, value in {**tensors, **numbers}.items():
        parameter, *path, name = key.split("/")
        inner = state.setdefault(int(parameter), {})
        for part in path:
            inner = inner.setdefault(part, {})
        inner[name] = value
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
