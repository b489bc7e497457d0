"""The flags of ``sce score``, and the scorer that they describe."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from securecoderl_edge.commands.console import warn_of_level
from securecoderl_edge.commands.gate import fail_on_setting, isolated_setting
from securecoderl_edge.config import setting
from securecoderl_edge.errors import UsageError
from securecoderl_edge.evaluation.shards import engine_setting
from securecoderl_edge.languages.language import LANGUAGE_NAMES
from securecoderl_edge.languages.targets import TARGET_NAMES
from securecoderl_edge.prompts.extraction import EXTRACT_MODES
from securecoderl_edge.sandbox.levels import sandbox_setting
from securecoderl_edge.sandbox.limits import MAX_MEMORY_MIB, MAX_WALL_SECONDS, workers_setting
from securecoderl_edge.sandbox.sanitizers import analyzers_setting
from securecoderl_edge.sandbox.severity import severity_setting
from securecoderl_edge.scoring.reward import credit_rule_setting, security_rule_setting

if TYPE_CHECKING:
    from securecoderl_edge.sandbox import Limits
    from securecoderl_edge.scoring.scorer import Scorer


@dataclass(frozen=True)
class ScoreConfig:
    """Flags of `sce score`."""

    problems: str | None = setting(None, "Problems: JSONL, starter[:SPLIT], humaneval or mbpp[:SPLIT].", metavar="FILE")
    completions: str | None = setting(
        None,
        'Completions: JSONL of {"id", "sample", "completion"}, rows of sce bench, or samples of EvalPlus; '
        "- is standard input.",
        metavar="FILE",
    )
    out: str | None = setting(
        None, "File for the scores; if it exists, only missing scores are computed.", metavar="FILE"
    )
    extract: str = setting(
        "auto",
        "auto: extract the code from the completion; definitions: without tests and examples next to its functions; "
        "raw: score the text unchanged.",
        choices=EXTRACT_MODES,
    )
    input: str | None = setting(
        None, "With FILE: standard input of the program, as text or a file name.", metavar="TEXT"
    )
    expect: str | None = setting(None, "With FILE: expected output, as text or a file name.", metavar="TEXT")
    language: str = setting(
        "auto",
        "With FILE: language of the program; auto: C for FILE.c, else Python.",
        choices=("auto", *LANGUAGE_NAMES),
    )
    target: str | None = setting(
        None, "With FILE in C: build it for this target too, and run it on an emulated board.", choices=TARGET_NAMES
    )
    budget: str | None = setting(
        None, 'With --target: its limits, as in a problem: {"code_bytes": 512, "heap": false}.', metavar="JSON"
    )
    workers: int | None = workers_setting("Programs to run")
    cpu_seconds: float = setting(5.0, "CPU time limit per test.", minimum=0.01, metavar="S")
    wall_seconds: float = setting(
        10.0, "Wall time limit per test.", minimum=0.01, maximum=MAX_WALL_SECONDS, metavar="S"
    )
    memory_mib: int = setting(1024, "Memory limit per test, in MiB.", minimum=128, maximum=MAX_MEMORY_MIB, metavar="N")
    credit_rule: str = credit_rule_setting()
    security: str = security_rule_setting()
    severity: str = severity_setting()
    analyzers: str = analyzers_setting()
    sandbox: str = sandbox_setting()
    engine: str = engine_setting()
    json: bool = setting(False, "Print one JSON document: the score of FILE, else all scores and their summary.")
    junit: str | None = setting(None, "Write a report in JUnit's format.", metavar="FILE")
    sarif: str | None = setting(None, "Write findings and failed programs as SARIF.", metavar="FILE")
    fail_under: float | None = setting(
        None,
        "Fail if a smaller fraction of the programs passes all tests.  [default: 1 for files and folders]",
        minimum=0.0,
        maximum=1.0,
        metavar="X",
    )
    fail_on: str | None = fail_on_setting("findings fail nothing", ("medium", "high"))
    fail_on_denied: bool = setting(
        False,
        "Fail if a note names an attempt to open or change a file, to open a socket or to start a process. Signals, "
        "ptrace and other refused calls leave no note.",
    )
    isolated: bool = isolated_setting()

    def refuse(self, names: Sequence[str], what: str) -> None:
        """Refuse flags that have no effect on ``what`` is scored.

        Raises:
            UsageError: one is given.
        """
        defaults = {each.name: each.default for each in fields(self)}
        for name in names:
            if getattr(self, name) != defaults[name]:
                raise UsageError(f"--{name} cannot be combined with {what}. Leave one of them out.")

    def limits(self) -> Limits:
        """Of a test."""
        from securecoderl_edge.sandbox import Limits

        return Limits(self.cpu_seconds, self.wall_seconds, self.memory_mib)


def opened_scorer(config: ScoreConfig) -> Scorer:
    """The scorer; warns of weak isolation."""
    from securecoderl_edge.scoring.cluster_scorer import open_scorer

    warn_of_level(config.sandbox)
    return open_scorer(
        config.engine,
        config.workers,
        config.limits(),
        config.credit_rule,
        config.severity,
        config.sandbox,
        security=config.security,
        analyzers=config.analyzers,
    )
