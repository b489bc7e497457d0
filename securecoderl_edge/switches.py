"""The words that switch parts of the reward and the sandbox, with the flags that several commands share.

Apart from what they switch, so that ``--help`` need not import it.
"""

from __future__ import annotations

from typing import Any, Literal

from securecoderl_edge.config import setting

StageRule = Literal["any", "all", "fraction", "seed"]
SeverityScale = Literal["bandit", "cwe"]
SandboxChoice = Literal["auto", "full", "no-landlock", "off"]

STAGE_RULES = ("any", "all", "fraction", "seed")
SEVERITY_SCALES = ("bandit", "cwe")
SANDBOX_CHOICES = ("auto", "full", "no-landlock", "off")


def stage_rule_setting() -> Any:
    """How tests make the stages of Table 1."""
    return setting("any", "Tests that must run and print for a step of the reward.", choices=STAGE_RULES)


def severity_setting() -> Any:
    """What a security finding costs."""
    return setting("bandit", "What a finding costs: Bandit's severity, or CWE and confidence.", choices=SEVERITY_SCALES)


def sandbox_setting() -> Any:
    """How programs are isolated."""
    return setting(
        "auto", "Isolation of programs: the best there is, one level, or none (off).", choices=SANDBOX_CHOICES
    )
