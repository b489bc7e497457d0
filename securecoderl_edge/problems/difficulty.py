"""Pass rates of problems, as ``sce data difficulty`` measures them with a model: a JSON line per problem."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from securecoderl_edge.errors import SceError
from securecoderl_edge.problems.problem import Problem
from securecoderl_edge.problems.problem_file import problem_digest
from securecoderl_edge.system.files import write_atomically
from securecoderl_edge.system.rows import read_jsonl

_AGAIN = "measure these problems with: sce data difficulty"


@dataclass(frozen=True)
class Difficulty:
    """How often a model solves a problem.

    Attributes:
        id, problem_hash: of the problem, see `problem_digest`.
        samples: completions. passed: those that pass all tests.
        model: its label. temperature, prompt_style: how it was asked, as the options of ``sce data difficulty`` say.
    """

    id: str
    problem_hash: str
    samples: int
    passed: int
    model: str
    temperature: float
    prompt_style: str

    @property
    def pass_rate(self) -> float:
        """The fraction of completions that pass all tests."""
        return self.passed / self.samples

    def is_in(self, bounds: tuple[float, float]) -> bool:
        """Whether the pass rate is in a range that includes its ends."""
        return bounds[0] <= self.pass_rate <= bounds[1]


def write_difficulty(path: Path, difficulties: Iterable[Difficulty]) -> None:
    """Write a file that `read_difficulty` reads; ``pass_rate`` in it is for people, and must agree.

    Raises:
        SceError: the file cannot be written.
    """
    with write_atomically(path) as out:
        out.writelines(json.dumps({**asdict(each), "pass_rate": each.pass_rate}) + "\n" for each in difficulties)


def read_difficulty(path: Path) -> dict[str, Difficulty]:
    """The lines of a file by problem id.

    Raises:
        UsageError: no such file.
        SceError: a line is something else, or a problem has two.
    """
    found: dict[str, Difficulty] = {}
    for number, record in read_jsonl(path):
        fault = _fault_of(record)
        if fault or record["id"] in found:
            raise SceError(f"{path}:{number}: {fault or 'a second line for this problem'}")
        found[record["id"]] = Difficulty(*(record[name] for name in _TYPES))
    if not found:
        raise SceError(f"{path}: the file is empty; {_AGAIN}")
    return found


def difficulty_of(problems: Sequence[Problem], path: Path) -> dict[str, Difficulty]:
    """What a file says of these problems, by their ids.

    Raises:
        UsageError, SceError: see `read_difficulty`; or a problem is missing, or has changed since it was measured.
    """
    found: Mapping[str, Difficulty] = read_difficulty(path)
    for problem in problems:
        if problem.id not in found:
            raise SceError(f"{path}: problem {problem.id!r} is missing; {_AGAIN}")
        if found[problem.id].problem_hash != problem_digest(problem):
            raise SceError(f"{path}: problem {problem.id!r} has changed since; {_AGAIN}")
    return {problem.id: found[problem.id] for problem in problems}


# As `sce data difficulty --samples` takes at most.
_MOST_SAMPLES = 10_000
_TYPES = {
    "id": str, "problem_hash": str, "samples": int, "passed": int, "model": str, "temperature": float,
    "prompt_style": str,
}  # fmt: skip


def _fault_of(record: object) -> str:
    if not isinstance(record, dict):
        return "not the pass rate of a problem"
    for name, kind in _TYPES.items():
        if type(record.get(name)) is not kind:
            return f'not the pass rate of a problem: "{name}" is missing or wrong'
    if not 0 < record["samples"] <= _MOST_SAMPLES:
        return f'"samples" is not from 1 to {_MOST_SAMPLES:,}'
    if not 0 <= record["passed"] <= record["samples"]:
        return '"passed" is not from 0 to "samples"'
    rate = record.get("pass_rate", record["passed"] / record["samples"])
    is_same = type(rate) in (int, float) and abs(rate - record["passed"] / record["samples"]) < 1e-6
    return "" if is_same else '"pass_rate" is not "passed" / "samples"'
