"""Files of completions and of scores: what is to be scored, and what of it has been."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from securecoderl_edge.errors import SceError, UsageError
from securecoderl_edge.extraction import extract_program
from securecoderl_edge.files import write_atomically
from securecoderl_edge.problems import Problem, problem_digest, read_jsonl
from securecoderl_edge.reward import Score
from securecoderl_edge.security import Finding

Key = tuple[str, int]


@dataclass(frozen=True)
class Candidate:
    """One completion of one problem and the program in it."""

    problem: Problem
    sample: int
    program: str

    @property
    def key(self) -> Key:
        """What identifies it in files."""
        return self.problem.id, self.sample


def read_candidates(path: Path, problems: Sequence[Problem], extract: str) -> list[Candidate]:
    """The completions in a JSONL file: ``{"id", "sample": 0, "completion"}``, other fields ignored.

    Raises:
        UsageError: no such file.
        SceError: it is empty; or a line, which the message names, is malformed, names an unknown problem, or
            repeats an (id, sample).
    """
    known = {problem.id: problem for problem in problems}
    seen: dict[Key, int] = {}
    candidates = []
    for number, record in read_jsonl(path):
        where = f"{path}:{number}"
        if not isinstance(record, dict):
            raise SceError(f"{where}: expected a JSON object, found {type(record).__name__}")
        name, sample, completion = record.get("id"), record.get("sample", 0), record.get("completion")
        if not isinstance(name, str) or not isinstance(completion, str):
            raise SceError(f'{where}: needs the strings "id" and "completion"')
        if isinstance(sample, bool) or not isinstance(sample, int) or sample < 0:
            raise SceError(f'{where}: "sample" must be a whole number from 0, found {sample!r}')
        if name not in known:
            raise SceError(f"{where}: no problem has the id {name!r}; is this the right --problems file?")
        if (name, sample) in seen:
            raise SceError(f"{where}: sample {sample} of {name!r} was already in line {seen[name, sample]}")
        seen[name, sample] = number
        candidates.append(Candidate(known[name], sample, extract_program(completion, extract, known[name])))
    if not candidates:
        raise SceError(f"{path}: the file holds no completions")
    return candidates


def read_scores(path: Path, candidates: Iterable[Candidate], switches: Mapping[str, str]) -> dict[Key, Score]:
    """The scores that a file already holds, so that scoring can go on; a last line cut short is taken off it.

    Args:
        switches: fields of `Score` that all rows must agree in, such as ``stage_rule``.

    Raises:
        UsageError: ``path`` is a folder or a device.
        SceError: a line is no score, repeats one, was made with other switches, or scores another program or
            problem than the candidate of its key.
    """
    if not path.exists():
        return {}
    if not path.is_file():
        raise UsageError(f"{path} is no regular file; name another --out")
    _drop_torn_line(path)
    wanted = {candidate.key: candidate for candidate in candidates}
    scores: dict[Key, Score] = {}
    for number, record in read_jsonl(path):
        where = f"{path}:{number}"
        try:
            score = score_from_record(record)
        except (TypeError, KeyError, ValueError):
            raise SceError(f"{where}: not a score; name another --out, or remove this file") from None
        key = score.id, score.sample
        if key in scores:
            raise SceError(f"{where}: sample {score.sample} of {score.id!r} is there twice; remove one line")
        for name, value in switches.items():
            if getattr(score, name) != value:
                was = getattr(score, name)
                raise SceError(f"{where}: was scored with {name} = {was}, not {value}; name another --out")
        if key in wanted and score.program != wanted[key].program:
            raise SceError(f"{where}: scores another program as {score.id!r}, {score.sample}; name another --out")
        if key in wanted and score.problem_hash != problem_digest(wanted[key].problem):
            raise SceError(f"{where}: the problem {score.id!r} was another then; name another --out")
        scores[key] = score
    return scores


def score_from_record(record: Mapping[str, Any]) -> Score:
    """The `Score` of a JSON object that `Score.to_record` made; unknown fields are ignored.

    Raises:
        TypeError, KeyError, ValueError: it is none.
    """
    fields = {name: record[name] for name in Score.__dataclass_fields__ if name in record}
    if not isinstance(fields["id"], str) or not isinstance(fields["sample"], int):
        raise ValueError("id or sample")
    fields["findings"] = tuple(Finding(**finding) for finding in fields["findings"])
    for name in ("verdicts", "signs"):
        fields[name] = tuple(fields.get(name, ()))
    return Score(**fields)


def score_line(score: Score) -> str:
    """One line of a score file."""
    return json.dumps(score.to_record()) + "\n"


def append_scores(path: Path, scores: Iterable[Score]) -> None:
    """Add lines to a score file.

    Raises:
        SceError: it cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as out:
            out.writelines(score_line(score) for score in scores)
    except OSError as error:
        raise SceError(f"cannot write {path}: {error.strerror}") from None


def read_text_argument(option: str, value: str) -> str:
    r"""The text of an option that names a file or is the text itself, where ``\n`` is a line break.

    Raises:
        UsageError: the file is no UTF-8 text.
    """
    path = Path(value)
    try:
        if value and len(value) < 4096 and "\n" not in value and path.is_file():
            return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise UsageError(f"{option} {value}: cannot be read ({error})") from None
    return value.replace("\\n", "\n")


def _drop_torn_line(path: Path) -> None:
    content = path.read_bytes()
    if content and not content.endswith(b"\n"):
        kept = content[: content.rfind(b"\n") + 1]
        with write_atomically(path) as out:
            out.write(kept.decode("utf-8", "replace"))
