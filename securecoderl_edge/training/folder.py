"""Checks that a folder is of the requested run, before anything is loaded; without torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from securecoderl_edge.config import read_toml, to_table
from securecoderl_edge.errors import SceError, UsageError
from securecoderl_edge.runs import ENVIRONMENT, LATEST, RUNS, Run
from securecoderl_edge.system.files import locked, read_json
from securecoderl_edge.training.settings import TrainSettings, without_changeable

_MOST_DIFFERENCES = 4  # in a message


def check_folder(run: Run, settings: TrainSettings, *, resume: bool) -> None:
    """Check what can be told of a run folder without its inputs; training checks it again, with them.

    Args:
        resume: False if the run in it is going to be deleted.

    Raises:
        UsageError: it holds something else, or a run with other settings.
        SceError: another process is using it, or its settings are damaged.
    """
    refuse_other_things(run)
    if not run.path.is_dir():
        return
    with locked(run.path):
        before = earlier_settings(run) if resume else None
    if before is not None:
        refuse_other_settings(run, before, settings)


def earlier_settings(run: Run) -> dict[str, Any] | None:
    """The settings of the run in a folder; None if it has none, or was rejected before it started.

    Raises:
        UsageError: its settings are missing.
        SceError: they are damaged.
    """
    config = run.path / "config.toml"
    if not config.is_file() and (run.path / "phases").exists():
        raise UsageError(
            f"{config} is missing, so the run cannot resume. Choose another --out, or start again with --no-resume"
        )
    # Settings that led to a rejection (too little memory, for example) may be replaced.
    has_begun = any((run.path / name).exists() for name in ("phases", "policy", "metrics.jsonl"))
    return read_toml(config) if config.is_file() and has_begun else None


def refuse_other_settings(run: Run, before: Mapping[str, Any], settings: TrainSettings) -> None:
    """Check that a run resumes with the settings that it had.

    Raises:
        UsageError: a setting that may not change is another one.
    """
    changed = differences(without_changeable(dict(before)), without_changeable(to_table(settings)))
    if changed:
        ways = "" if run.policy.exists() else f"resume it with: {run.command}; or "
        raise UsageError(
            f"{run.path} was made with other settings ({changed}): {ways}choose another --out, or delete it with "
            "--no-resume"
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
