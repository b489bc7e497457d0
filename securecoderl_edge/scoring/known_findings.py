"""Scores of edited files: findings that the file had before the edit are nobody's news."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import cast

from securecoderl_edge.sandbox.security import SERIOUS, Scan
from securecoderl_edge.sandbox.severity import SeverityScale, severity
from securecoderl_edge.scoring.reward import combine
from securecoderl_edge.scoring.score import Score


def without_known(score: Score, original: Score) -> Score:
    """The score of an edited file without the findings that the original file has, by kind and number, or worse ones.

    An edited line with the finding that it had counts as before. Of several findings of one kind, those in lines that
    the original does not have are the new ones.
    """
    if not score.findings or score.scan_failed:
        return score
    known = Counter((each.test_id, each.severity) for each in original.findings)
    before = {line.strip() for line in original.program.splitlines()}
    is_new = {number: line.strip() not in before for number, line in enumerate(score.program.splitlines(), 1)}
    new = []
    for each in sorted(score.findings, key=lambda each: is_new.get(each.line, "" not in before)):
        as_bad = ((each.test_id, level) for level in SERIOUS[SERIOUS.index(each.severity) :])
        if (found := next(filter(known.__getitem__, as_bad), None)) is not None:
            known[found] -= 1
        else:
            new.append(each)
    danger = severity(Scan(tuple(new)), cast(SeverityScale, score.severity_scale))
    r_sec = score.r_sec * (1 - danger) / (1 - score.severity) if score.severity < 1 else 1 - danger
    reward = combine(score.r_func, r_sec)
    return replace(score, findings=tuple(new), severity=danger, r_sec=r_sec, reward=reward, reward_paper=reward)
