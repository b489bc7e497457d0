"""Programs of an evaluation in the format of EvalPlus, which can grade them itself: ``{"task_id", "solution"}``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from securecoderl_edge.errors import UsageError
from securecoderl_edge.evaluation.evaluate import Evaluation
from securecoderl_edge.evaluation.log import file_name
from securecoderl_edge.languages.python_source import with_typing_names
from securecoderl_edge.problems.problem import Problem
from securecoderl_edge.system.files import write_atomically

# The name of a data set in the ids of EvalPlus, and its number of problems, by `Problem.source`.
_DATA_SETS = {
    "humaneval": ("HumanEval", 164),
    "humaneval-plus": ("HumanEval", 164),
    "mbpp": ("Mbpp", 974),
    "mbpp-plus": ("Mbpp", 378),
}


def data_set_of(problems: Sequence[Problem]) -> str:
    """``humaneval`` or ``mbpp``, as EvalPlus names the data set of these problems.

    Raises:
        UsageError: they are of another data set, or of both.
    """
    data_sets = {_DATA_SETS.get(problem.source, ("", 0))[0] for problem in problems}
    if len(data_sets) != 1 or "" in data_sets or not all(_number(problem.id).isdecimal() for problem in problems):
        raise UsageError("--evalplus needs problems of HumanEval or MBPP. Use --problems humaneval or mbpp:all.")
    return data_sets.pop().lower()


def is_whole(problems: Sequence[Problem]) -> bool:
    """Whether there is a problem for each one of EvalPlus, which does not grade parts of a data set."""
    return len(problems) >= max(_DATA_SETS[problem.source][1] for problem in problems)


def write_samples(folder: Path, problems: Sequence[Problem], evaluations: Sequence[Evaluation]) -> list[Path]:
    """Write one file per model, with a line per program; returns their paths.

    The names that the sandbox defines for a program, those of ``typing``, are imported at its beginning.

    Raises:
        SceError: a file cannot be written.
    """
    tasks = {problem.id: f"{_DATA_SETS[problem.source][0]}/{_number(problem.id)}" for problem in problems}
    paths: list[Path] = []
    for number, evaluation in enumerate(evaluations, 1):
        path = folder / f"{file_name(evaluation.label)}.jsonl"
        path = path.with_stem(f"{path.stem}-{number}") if path in paths else path
        with write_atomically(path) as out:
            for row in evaluation.rows:
                sample = {"task_id": tasks[row["id"]], "solution": with_typing_names(row["program"])}
                out.write(json.dumps(sample) + "\n")
        paths.append(path)
    return paths


def _number(identifier: str) -> str:
    return identifier.rpartition("/")[2]
