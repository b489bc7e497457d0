"""The words that switch parts of the reward and the sandbox, with the flags that several commands share.

Apart from what they switch, so that ``--help`` need not import it.
"""

from __future__ import annotations

from typing import Any, Literal

from securecoderl_edge.config import setting

StageRule = Literal["any", "all", "fraction", "seed"]

STAGE_RULES = ("any", "all", "fraction", "seed")


def stage_rule_setting() -> Any:
    """How tests make the stages of Table 1."""
    return setting("any", "Tests that must run and print for a step of the reward.", choices=STAGE_RULES)
