"""Security tasks: split by groups, with and without the policy in the statement."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from securecoderl_edge.problems.assertions import Assertion, security_assertions_of
from securecoderl_edge.problems.groups import disjoint_groups
from securecoderl_edge.problems.problem import Problem

# Weaknesses whose safe behavior follows from the task: injection, evaluation of input, markup, SQL, deserialization,
# redirects, slow patterns, weak hashes, paths. Of others, only the policy says what is safe.
UNTOLD = {f"CWE-{number}" for number in (22, 74, 77, 78, 79, 89, 94, 95, 327, 502, 601, 1333)}
PARTS = ("train", "dev", "test")
# Of every 20 groups, in the order of their hashes.
_OF_DEV, _OF_TEST, _OUT_OF = 3, 7, 20
MOST_MEASURED = 6  # variants of a task in dev and test


def in_turns(problems: Sequence[Problem]) -> list[Problem]:
    """First one variant of each task, then a second one, and so on: a part of the list has all tasks."""
    seen: Counter[str] = Counter()
    rounds = []
    for problem in problems:
        rounds.append(seen[problem.group])
        seen[problem.group] += 1
    return [problems[place] for place in sorted(range(len(rounds)), key=lambda place: rounds[place])]


def parts_of(problems: Sequence[Problem]) -> dict[str, list[Problem]]:
    """The tasks for training, development and the test: no group, and no near-duplicate, is in two of them.

    Groups of each weakness are dealt out apart, so that each part has about its share of them.
    """
    groups = [[problems[place] for place in group] for group in disjoint_groups(problems)]
    by_kind: dict[tuple[str, ...], list[list[Problem]]] = {}
    for group in groups:
        by_kind.setdefault(group[0].tags[:1], []).append(group)
    parts: dict[str, list[Problem]] = {part: [] for part in PARTS}
    place = 0
    for kind in sorted(by_kind):
        for group in sorted(by_kind[kind], key=_hash):
            # Far apart for neighbors, so that a kind with few groups is in several parts.
            turn = place * 7 % _OUT_OF
            place += 1
            part = "dev" if turn < _OF_DEV else "test" if turn < _OF_DEV + _OF_TEST else "train"
            parts[part] += group if part == "train" else group[:MOST_MEASURED]
    return parts


def _hash(group: Sequence[Problem]) -> str:
    return hashlib.sha256(min(each.id for each in group).encode()).hexdigest()


def untold(problem: Problem, statement: str) -> Problem | None:
    """The task without its policy; None if nothing is left that a program can know.

    A security test is kept if the statement names the exception or the words that it expects.
    """
    if not UNTOLD & set(problem.tags):
        return None
    assertions = security_assertions_of(problem)
    pairs = zip(problem.security_tests, assertions, strict=True)
    kept = tuple(test for test, assertion in pairs if _is_known(assertion, statement))
    if not kept:
        return None
    return replace(problem, id=f"{problem.id}/untold", statement=statement, security_tests=kept)


def _is_known(assertion: Assertion, statement: str) -> bool:
    if assertion.comparison == "raises":
        return any(name in statement for name in assertion.expected)
    if assertion.comparison == "whole":
        return True
    words = {word for text in _texts(assertion.expected) for word in re.findall(r"[A-Za-z]{4,}", text.lower())}
    known = f"{statement} {assertion.setup} {assertion.expression}".lower()
    return all(word in known for word in words)


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.items():
            yield from _texts(list(item))
    elif isinstance(value, (list, tuple, set, frozenset)):
        for each in value:
            yield from _texts(each)


def by_weakness(problems: Sequence[Problem]) -> dict[str, int]:
    """Numbers of tasks by CWE."""
    return dict(sorted(Counter(problem.tags[0] for problem in problems).items(), key=lambda item: int(item[0][4:])))
