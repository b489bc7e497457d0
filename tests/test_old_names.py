"""Names that settings and metrics had before: an error where they are set, readable where they were written."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from cli_runs import run_sce
from places import ROOT

from securecoderl_edge.config import (
    OLD_FLAGS,
    OLD_KEYS,
    OLD_SETTINGS,
    OLD_VALUES,
    REMOVED_SETTINGS,
    apply_overrides,
    current_keys,
    current_settings,
    to_table,
)
from securecoderl_edge.errors import UsageError
from securecoderl_edge.training.recipe import resolve
from securecoderl_edge.training.settings import TrainSettings


def all_names(settings: object = TrainSettings(), prefix: str = "") -> set[str]:
    names: set[str] = set()
    for field in dataclasses.fields(settings):  # type: ignore[arg-type]
        value = getattr(settings, field.name)
        is_table = dataclasses.is_dataclass(value)
        names |= all_names(value, f"{field.name}.") if is_table else {f"{prefix}{field.name}"}
    return names


def test_every_new_name_is_a_setting_and_no_old_one_is() -> None:
    names = all_names()
    assert set(OLD_SETTINGS.values()) <= names
    assert not names & (OLD_SETTINGS.keys() | REMOVED_SETTINGS.keys())
    assert OLD_VALUES.keys() <= names


@pytest.mark.parametrize(("old", "new"), OLD_SETTINGS.items())
def test_an_old_setting_is_an_error_that_names_the_new_one(old: str, new: str) -> None:
    with pytest.raises(UsageError, match=f"{old} was renamed; use {new}$"):
        resolve("starter", (f"{old}=1",), {})


@pytest.mark.parametrize("name", REMOVED_SETTINGS)
def test_a_removed_setting_is_an_error_that_says_why_and_no_hindrance_in_an_old_run(name: str) -> None:
    with pytest.raises(UsageError, match=f"{name} was removed: .*[.] Leave it out$"):
        resolve("starter", (f"{name}=1",), {})
    today = to_table(resolve("starter", (), {}))
    assert current_settings(apply_overrides(today, (f"{name}=0.5",))) == today


@pytest.mark.parametrize(("name", "old", "new"), [(n, a, b) for n, each in OLD_VALUES.items() for a, b in each.items()])
def test_an_old_value_is_an_error_that_names_the_new_one(name: str, old: str, new: str) -> None:
    with pytest.raises(UsageError, match=f"{old} was renamed; use {new}$"):
        resolve("starter", (f"{name}={old}",), {})


@pytest.mark.parametrize(("old", "command"), [("--rate-schedule", "train"), ("--stage-rule", "score")])
def test_an_old_flag_is_an_error_that_names_the_new_one(old: str, command: str) -> None:
    code, _, message = run_sce(command, old, "any")
    assert code == 2
    assert message.endswith(f"{old} was renamed; use {OLD_FLAGS[old]}\n")


def test_the_settings_of_an_old_run_read_as_those_of_today() -> None:
    today = to_table(resolve("starter", ("reward.credit_rule=published", "binary.max_kl=1.5"), {}))
    back = {new: old for old, new in OLD_SETTINGS.items()}
    words = {new: {b: a for a, b in each.items()} for new, each in OLD_VALUES.items()}

    def as_before(table: dict[str, object], prefix: str = "") -> dict[str, object]:
        old: dict[str, object] = {}
        for key, value in table.items():
            name = f"{prefix}{key}"
            before = back.get(name, name).removeprefix(prefix)
            known = words.get(name, {})
            old[before] = (
                as_before(value, f"{name}.")
                if isinstance(value, dict)
                else known.get(value, value)
                if isinstance(value, str)
                else value
            )
        return old

    old = as_before(today)
    assert old != today
    assert current_settings(old) == today
    assert current_settings(today) == today


def test_keys_of_results_are_renamed_at_every_depth_and_values_stay() -> None:
    old = {"slices": [{"metrics": {"reward_gated": {"value": 0.5}}}], "slice": "eval", "stage_rule": "seed", "n": 1}
    assert current_keys(old) == {
        "splits": [{"metrics": {"reward": {"value": 0.5}}}], "split": "eval", "credit_rule": "published", "n": 1,
    }  # fmt: skip
    assert not set(OLD_KEYS.values()) & OLD_KEYS.keys()


@pytest.mark.parametrize("path", sorted((ROOT / "benchmarks" / "results").glob("study-*.json")), ids=lambda p: p.stem)
def test_committed_studies_are_readable(path: Path) -> None:
    record = current_keys(json.loads(path.read_text(encoding="utf-8")))
    assert {"splits", "arms", "comparisons"} <= record.keys()
    assert all("reward" in result["metrics"] for arm in record["arms"] for result in arm["results"])
