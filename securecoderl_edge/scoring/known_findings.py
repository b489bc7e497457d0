"""Scores of edited files: findings that the file had before the edit are nobody's news."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from securecoderl_edge.sandbox.security import Scan
from securecoderl_edge.sandbox.severity import severity
from securecoderl_edge.scoring.reward import combine
from securecoderl_edge.scoring.score import Score


def without_known(score: Score, original: Score) -> Score:
    """The score of an edited file without the findings that the original file has, by kind and number.

    An edited line with the finding that it had counts as before. Of several findings of one kind, those in lines that
    the original does not have are the new ones.
    """
    if score.severity == 0 or not score.findings:
        return score
    known = Counter(each.test_id for each in original.findings)
    before = {line.strip() for line in original.program.splitlines()}
    lines = dict(enumerate(score.program.splitlines(), 1))
    new = []
    for each in sorted(score.findings, key=lambda each: lines.get(each.line, "").strip() not in before):
        if known[each.test_id]:
            known[each.test_id] -= 1
        else:
            new.append(each)
    danger = severity(Scan(tuple(new)))
    r_sec = score.r_sec * (1 - danger) / (1 - score.severity) if score.severity < 1 else 1 - danger
    reward = combine(score.r_func, r_sec)
    return replace(score, findings=tuple(new), severity=danger, r_sec=r_sec, reward=reward, reward_paper=reward)
