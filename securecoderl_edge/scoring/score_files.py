"""Files of completions to score, and files of scores, which resume an interrupted scoring."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from securecoderl_edge.errors import SceError, UsageError
from securecoderl_edge.problems.problem import Problem
from securecoderl_edge.problems.problem_file import problem_digest
from securecoderl_edge.prompts.extraction import (
    DEFINITIONS,
    PromptFacts,
    extract_program,
    prompt_facts,
    recorded_format,
)
from securecoderl_edge.scoring.score import Score, is_count, score_from_record
from securecoderl_edge.scoring.scorer import Submission
from securecoderl_edge.system.files import take_lock, writing
from securecoderl_edge.system.rows import decode_line, read_jsonl

Key = tuple[str, int]
_BEGINNING = b'{"id": '  # of every line that `score_line` writes


def read_submissions(path: Path, problems: Sequence[Problem], extract: str) -> list[Submission]:
    """The completions in a JSONL file: ``{"id", "sample": 0, "completion"}``, and rows of `sce bench`.

    Or as human-eval and EvalPlus have them: ``{"task_id", "completion" | "solution"}``; several lines are samples.

    Raises:
        UsageError: no such file.
        SceError: it is empty; or a line, which the message names, is malformed, names an unknown problem, or
            repeats an (id, sample).
    """
    known = {problem.id: problem for problem in problems}
    facts: dict[tuple[str, str, str, bool], PromptFacts | None] = {}
    seen: dict[Key, int] = {}
    lines = Counter[str]()
    submissions = []
    for number, record in read_jsonl(path):
        where = f"{path}:{number}"
        if not isinstance(record, dict):
            raise SceError(f"{where}: expected a JSON object, found {type(record).__name__}")
        name, completion = _submitted(record, known)
        if not isinstance(name, str) or not isinstance(completion, str):
            raise SceError(
                f'{where}: expected the strings "id" and "completion", or "task_id" and "completion" or "solution"'
            )
        sample = record.get("sample", 0 if "id" in record else lines[name])
        lines[name] += 1
        if not is_count(sample):
            raise SceError(f'{where}: "sample" must be a whole number from 0, found {sample!r:.100}')
        if name not in known:
            raise SceError(f"{where}: unknown problem id {name!r}; check --problems")
        if (name, sample) in seen:
            raise SceError(f"{where}: duplicate sample {sample} of {name!r}, already in line {seen[name, sample]}")
        seen[name, sample] = number
        mode = DEFINITIONS if extract == "auto" and record.get("extract") == DEFINITIONS else extract
        asked = name, mode, str(record.get("prompt_style") or PromptFacts.style), record.get("is_thinking") is True
        try:
            if asked not in facts:
                facts[asked] = prompt_facts(known[name], recorded_format(*asked[2:]), mode)
        except UsageError as error:
            raise SceError(f"{where}: {error}") from None
        submissions.append(Submission(known[name], extract_program(completion, facts[asked]), sample, extract))
    if not submissions:
        raise SceError(f'{path}: the file is empty; expected one object with "id" and "completion" per line')
    return submissions


def _submitted(record: Mapping[str, Any], known: Container[str]) -> tuple[Any, Any]:
    """The problem id and the completion in a record; our id of a task of HumanEval and MBPP, or of their plus sets."""
    if "id" in record:
        return record["id"], record.get("completion")
    name, completion = record.get("task_id"), record.get("solution", record.get("completion"))
    if isinstance(name, str):
        data_set, _, number = name.lower().rpartition("/")
        ours = (name, f"{data_set}/{number}", f"{data_set}-plus/{number}")
        name = next((each for each in ours if each in known), name)
    return name, completion


@contextmanager
def open_scores(path: Path) -> Iterator[Callable[[str], None]]:
    """Open a score file, locked while the block runs; yields a function that appends lines to it.

    Raises:
        UsageError: it is a folder or a device, or another process is appending to it.
        SceError: it cannot be written; also from the function.
    """
    if path.exists() and not path.is_file():
        raise UsageError(f"{path}: not a regular file; choose another --out")
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        out = path.open("ab", buffering=0)  # closing it then has nothing left to write

    def append(text: str) -> None:
        data = text.encode("utf-8")
        with writing(path):
            while data:
                data = data[out.write(data) :]

    with out:
        if not take_lock(out):
            raise UsageError(f"{path}: another process is adding scores; wait, or choose another --out")
        yield append


def read_scores(
    path: Path,
    submissions: Iterable[Submission],
    switches: Mapping[str, Any],
    analyzers_of: Callable[[str], Mapping[str, str]] = lambda language: {},
) -> dict[Key, Score]:
    """The scores that a file already has, to resume scoring.

    A truncated last line is removed from the file if it begins like a score.

    Args:
        switches: fields of `Score` that all rows must agree in, such as ``credit_rule``.
        analyzers_of: the field ``analyzers`` of all rows in a language.

    Raises:
        SceError: a line is not a score, repeats one, was made with other settings, or scores another program or
            problem than the submission of its key. The file is then unchanged.
    """
    try:
        content = path.read_bytes() if path.exists() else b""
    except OSError as error:
        raise SceError(f"{path}: {error.strerror}") from None
    whole = content[: content.rfind(b"\n") + 1]
    truncated = content[len(whole) :]
    if _is_json(truncated):  # only its line end is missing
        whole, truncated = content, b""
    if not _BEGINNING.startswith(truncated[: len(_BEGINNING)]):
        raise SceError(f"{path}: the last line is not a score; choose another --out")
    wanted = {submission.key: submission for submission in submissions}
    scores: dict[Key, Score] = {}
    for number, line in enumerate(whole.split(b"\n"), 1):
        if line.strip():
            where = f"{path}:{number}"
            score = _checked(decode_line(line, where), where, switches)
            submission = wanted.get((score.id, score.sample))
            if submission is not None:
                _check_submission(score, submission, where, analyzers_of)
            if (score.id, score.sample) in scores:
                raise SceError(f"{where}: duplicate sample {score.sample} of {score.id!r}; remove one line")
            scores[score.id, score.sample] = score
    with writing(path):
        if truncated:
            os.truncate(path, len(whole))
        elif whole and not whole.endswith(b"\n"):
            with path.open("ab") as out:
                out.write(b"\n")
    return scores


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def _checked(record: Any, where: str, switches: Mapping[str, Any]) -> Score:
    try:
        score = score_from_record(record)
    except ValueError:
        raise SceError(f"{where}: not a score; choose another --out, or remove this file") from None
    for name, value in switches.items():
        if (was := getattr(score, name)) != value:
            raise SceError(f"{where}: scored with {name} = {was}, not {value}; choose another --out")
    return score


def _check_submission(
    score: Score, submission: Submission, where: str, analyzers_of: Callable[[str], Mapping[str, str]]
) -> None:
    if score.program != submission.program:
        raise SceError(
            f"{where}: the completion of {score.id!r}, sample {score.sample}, has changed; choose another --out"
        )
    if score.problem_hash != problem_digest(submission.problem):
        raise SceError(f"{where}: the problem {score.id!r} has changed; choose another --out")
    analyzers = dict(analyzers_of(submission.problem.language))
    if score.analyzers != analyzers:
        raise SceError(
            f"{where}: scored with {_named(score.analyzers)}, not with {_named(analyzers)}; choose another --out"
        )


def _named(analyzers: Mapping[str, str]) -> str:
    return ", ".join(f"{name} ({version})" for name, version in analyzers.items()) or "no analyzers"
