"""How hard families put one stage after another: inputs that are long enough, and the stages that would do nothing."""

from __future__ import annotations

from families._inputs import number_line
from families._pieces import idle

_PARITIES = ("even", "odd")
_THIRDS = ("thirds", "not-thirds")
_SIZES = ("positive", "negative", "above-five", "below-ten")
_TOO_FEW = (("square", "below-ten"), ("last-digit", "below-ten"), ("negate", "above-five"))  # or all
NEVER_NEGATIVE = ("square", "absolute", "last-digit")


def settled(keep: str, change: str, keep2: str) -> bool:
    """Whether a second condition is (nearly) decided by the first one and the change after it."""
    if keep2 in _PARITIES:
        return change == "double" or (keep in _PARITIES and change != "half")
    if (keep, change, keep2) == ("not-thirds", "half", "thirds"):
        return True  # the same as odd/half/thirds
    if keep2 in _THIRDS:
        return keep in _THIRDS and change not in ("half", "last-digit")
    if change in NEVER_NEGATIVE and keep2 in ("positive", "negative"):
        return True
    if (change, keep2) in _TOO_FEW:
        return True
    return keep in _SIZES


def undone(change: str, change2: str) -> bool:
    """Whether two changes in a row say no more than one of them."""
    if change == change2 and change in ("absolute", "negate", "last-digit"):
        return True
    if change2 == "absolute":
        return change in (*NEVER_NEGATIVE, "negate")
    if change2 in ("square", "last-digit"):
        return change in ("absolute", "negate")
    return (change, change2) == ("double", "half")


def idle_twice(keep: str, change: str, keep2: str, change2: str, fold: str = "") -> bool:
    """Whether one of two stages of keeping and changing does nothing new."""
    return settled(keep, change, keep2) or undone(change, change2) or idle(keep, change) or idle(keep2, change2, fold)


LONG_LINE = number_line(-12, 30, sizes=(7, 9))  # so many that some are left after two conditions
