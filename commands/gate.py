"""What fails a pipeline: conditions on findings and programs, and the last line that says which one failed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

import click
from click.core import ParameterSource

from securecoderl_edge.commands.console import say
from securecoderl_edge.config import setting
from securecoderl_edge.errors import UsageError
from securecoderl_edge.sandbox import security as severities
from securecoderl_edge.system.folders import config_file


class _Gate(Protocol):
    @property
    def isolated(self) -> bool: ...


G = TypeVar("G", bound=_Gate)

LEVELS = tuple(each.lower() for each in severities.LEVELS)


def fail_on_setting(default: str, levels: Sequence[str] = LEVELS) -> Any:
    """The setting for the lowest severity that fails."""
    return setting(None, f"Fail if a finding has this severity or a higher one.  [default: {default}]", choices=levels)


def isolated_setting() -> Any:
    """The setting that keeps the files of a project and of the user from changing a gate."""
    return setting(
        False, "Obey no configuration file, nor your defaults of sce config: for programs that a model wrote."
    )


def without_defaults(config: G) -> G:
    """The flags of a gate, without the user's defaults if it is isolated; else the file of defaults is named."""
    context = click.get_current_context()
    names = [each.name for each in fields(config) if each.name != "isolated"]  # type: ignore[arg-type]
    filed = [each for each in names if context.get_parameter_source(each) is ParameterSource.DEFAULT_MAP]
    if filed and not config.isolated:
        say(f"defaults: {config_file()} ({', '.join(filed).replace('_', '-')})")
        return config
    plain = type(config)()
    return replace(config, **{each: getattr(plain, each) for each in filed})  # type: ignore[type-var]


def at_or_above(counts: Mapping[str, int], level: str) -> int:
    """How many findings, counted by severity in lower case, have this severity or a higher one."""
    return sum(number for severity, number in counts.items() if severities.rank(severity) >= severities.rank(level))


def check_level(level: str, reported: str, configuration: Path | None) -> None:
    """Refuse a gate that passes findings because they are not reported.

    Args:
        level: the lowest severity that fails.
        reported: the lowest severity that is reported, which ``configuration`` sets; None: a flag.

    Raises:
        UsageError: the gate is such.
    """
    if severities.rank(reported) > severities.rank(level):
        source = f"severity {reported} in {configuration}" if configuration else f"--severity {reported}"
        raise UsageError(f"--fail-on {level}: {source} does not report such findings. Give one severity to both.")


def in_words(counts: Mapping[str, int]) -> str:
    """Such as ``1 high, 2 low``; ``no findings``."""
    shown = [f"{counts[level]} {level}" for level in reversed(LEVELS) if counts.get(level)]
    return ", ".join(shown) or "no findings"


def is_passed(reasons: Sequence[str], note: str = "", is_zero: bool = False) -> bool:
    """Print the last line of a gate on stderr, and return whether it is passed: nothing speaks against it.

    Args:
        note: what a gate that is passed leaves out, behind its word.
        is_zero: pass in any case.
    """
    start = "passed by --exit-zero" if is_zero else "failed"
    say(f"{start}: {'; '.join(reasons)}" if reasons else f"passed{note}", "red" if reasons else "green")
    return not reasons or is_zero
