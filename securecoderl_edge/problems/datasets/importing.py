"""Import of problems from other dataset formats, in constant memory, with detection of the format."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from securecoderl_edge.errors import SceError, UsageError
from securecoderl_edge.problems.datasets import (
    acecode,
    apps,
    code_contests,
    evalplus,
    generated,
    humaneval,
    jsonl,
    mbpp,
    secodeplt,
    securecoderl,
    unit_tests,
    verified,
)
from securecoderl_edge.problems.datasets.evalplus_tests import Evaluate
from securecoderl_edge.problems.datasets.record_files import form_of, read_records
from securecoderl_edge.problems.datasets.records import Record, Unreadable
from securecoderl_edge.problems.datasets.tally import DropRecord, FilterRecord, Tally
from securecoderl_edge.problems.datasets.variants import Variants
from securecoderl_edge.problems.problem import Problem, with_few_tests
from securecoderl_edge.problems.problem_file import ProblemError, refuse_misspelled
from securecoderl_edge.system.hub import choose_files
from securecoderl_edge.system.machine import cpu_count
from securecoderl_edge.system.processes import in_order

# (record, its name in the file, tally) -> problem; `DropRecord` if it is unusable, `FilterRecord` if it is not about
# programs, `ProblemError` if it does not have the format. `mbpp` is a short one.
_Reader = Callable[[dict[str, Any], str, Tally], Problem]
# A record, what became of it, and what was dropped of it.
_Made = tuple[Record, Problem | ProblemError | RecursionError | OverflowError, Tally]
# Problems that wait for one whose program takes long, and about the characters of their records.
_MOST_KEPT, _MOST_CHARACTERS = 256, 1 << 28

# Formats that `import_problems` needs or may have ``evaluate`` for.
NEED_EVALUATION = ("evalplus", "codeio", "safesql", "secodeplt")
KINDS = ("stdin", "call", "all")
# Some data sets have thousands of tests per problem; training and evaluation use the first few.
MAX_TESTS_KEPT = 100

# The keys that identify a record of each format, the most specific format first, and its reader.
_FORMATS: dict[str, tuple[set[str], Callable[..., Problem]]] = {
    "livecodebench": ({"question_content", "public_test_cases"}, verified.livecodebench_problem_from),
    "mbpp": ({"task_id", "test_list"}, mbpp.problem_from),
    "leetcode": ({"task_id", "prompt", "completion", "entry_point", "test"}, humaneval.leetcode_problem_from),
    "humaneval": ({"task_id", "prompt", "entry_point", "test"}, humaneval.problem_from),
    "bigcodebench": ({"task_id", "complete_prompt", "entry_point", "test"}, unit_tests.bigcodebench_problem_from),
    "kodcode": ({"question", "solution", "test"}, unit_tests.kodcode_problem_from),
    "acecode": ({"question", "test_cases"}, acecode.problem_from),
    "multipl-e": ({"name", "prompt", "tests", "stop_tokens"}, humaneval.multiple_problem_from),
    "code-contests": ({"name", "description", "public_tests"}, code_contests.problem_from),
    "codeforces": ({"description", "official_tests"}, verified.codeforces_problem_from),
    "codeio": ({"code_sample", "input_generator"}, generated.codeio_problem_from),
    "safesql": ({"construct_db", "execute_sql", "test_cases"}, generated.safesql_problem_from),
    "secodeplt": (secodeplt.KEYS, secodeplt.problem_from),
    "open-r1": ({"verification_info"}, partial(verified.problem_from, source="open-r1")),
    "securecoderl": ({"prompt", "test_cases"}, securecoderl.problem_from),
    "jsonl": ({"id", "statement"}, jsonl.problem_from),
    "apps": ({"question", "input_output"}, apps.problem_from),
    "deepcoder": ({"problem", "tests"}, partial(verified.problem_from, source="deepcoder")),
    "eurus": ({"prompt", "ability", "reward_model"}, partial(verified.problem_from, source="eurus")),
    # These have no fixed keys: their modules recognize them.
    "apps-plus": (set(), partial(apps.problem_from, source="apps-plus")),
    "evalplus": (set(), evalplus.problem_from),
}
FORMATS = tuple(_FORMATS)
# A problem file with an example of each kind.
TEMPLATE = Path(__file__).with_name("template.jsonl")
# Keys by which a record has tests; a pair of prompt and completion has none.
_TESTS = re.compile(r"test|input|output|assert|verif|reward")


@dataclass(frozen=True)
class Imported:
    """An import in progress.

    Attributes:
        format: one of `FORMATS`.
        problems: the problems, read as they are consumed.
        tally: counts of kept and dropped records so far; final when ``problems`` is exhausted.
    """

    format: str
    problems: Iterator[Problem]
    tally: Tally


def import_problems(
    source: Path | Sequence[Path],
    format: str = "auto",
    kind: str = "all",
    max_tests: int = MAX_TESTS_KEPT,
    strict: bool = False,
    evaluate: Evaluate | None = None,
    with_policy: bool = True,
) -> Imported:
    """Read problems in another dataset format, in constant memory.

    Unusable records, tests and solutions are dropped and counted in the tally.

    Args:
        source: a file, the parts of one, or a folder of them; for APPS a folder of problems.
        format: one of `FORMATS`, or ``auto`` to detect it.
        kind: ``stdin``, ``call`` or ``all``: the kind of problems to keep.
        max_tests: keep at most this many tests per problem, the first ones.
        strict: an unusable record, test or solution is an error.
        evaluate: runs code in the sandbox for `NEED_EVALUATION`: reference solutions of EvalPlus, which has no expected
            outputs; expressions in SecCodePLT's tests, which stay as they are without it.
        with_policy: SecCodePLT: statements name the security policy.

    Raises:
        UsageError: unknown file, format or kind, a format that cannot be detected, or one that needs ``evaluate``.
        SceError: while problems are consumed: the file cannot be read or has another format, or ``strict`` found an
            unusable record.
    """
    if kind not in KINDS:
        raise UsageError(f"unknown --kind {kind!r}; choose from {', '.join(KINDS)}")
    if format != "auto" and format not in FORMATS:
        raise UsageError(f"unknown --format {format!r}; choose from {', '.join(FORMATS)}")
    paths = [part for each in ([source] if isinstance(source, Path) else source) for part in parts_of(each)]
    format = detect_format(paths[0]) if format == "auto" else format
    for path in paths:
        if not path.exists():
            raise UsageError(f"{path}: no such file or folder")
        if path.is_dir() and format != "apps":
            raise UsageError(f"{path}: expected a file for --format {format}, found a folder of APPS")
    if format in NEED_EVALUATION[:-1] and evaluate is None:
        raise UsageError(f"{paths[0]}: {format} files have no expected outputs. First run: sce data import {paths[0]}")
    tally = Tally()
    problems = (each for path in paths for each in _read(path, format, tally, evaluate, with_policy))
    return Imported(format, _filtered(problems, kind, max_tests, tally, strict), tally)


def import_loaded(
    problems: Sequence[Problem], name: str, kind: str = "all", max_tests: int = MAX_TESTS_KEPT, strict: bool = False
) -> Imported:
    """An import of problems that are loaded already, such as a built-in set; arguments as in `import_problems`."""
    tally = Tally()
    return Imported(name, _filtered(((each.id, each) for each in problems), kind, max_tests, tally, strict), tally)


def detect_format(path: Path) -> str:
    """The format of a file or folder, by the keys of its first readable record or by its folders.

    Raises:
        UsageError: it does not exist, or has none of `FORMATS`.
        SceError: it cannot be read.
    """
    path = parts_of(path)[0]
    if path.is_dir():
        return "apps"
    if form_of(path) == "prompts":
        return "securecoderl"
    unreadable = None
    for record in read_records(path):
        if isinstance(record.value, Unreadable):
            unreadable = unreadable or f"{path}:{record.location}: {record.value.reason}"
        elif not isinstance(record.value, dict):
            kind = type(record.value).__name__
            raise UsageError(f"{path}:{record.location}: expected a JSON object, found {kind}")
        else:
            return _format_of(record.value) or _refuse(path, record.value)
    raise SceError(unreadable or f"{path}: the file is empty")


def parts_of(path: Path, pattern: str | None = None) -> list[Path]:
    """The path itself, or the data files of a folder, unless it has folders of APPS problems.

    Args:
        pattern: as in `choose_files`, whose errors are raised.
    """
    if not path.is_dir() or (pattern is None and next(apps.problem_folders(path), None) is not None):
        return [path]
    names = sorted(each.relative_to(path).as_posix() for each in path.rglob("*") if each.is_file())
    return [path / name for name in choose_files(names, pattern, str(path))]


def _format_of(record: dict[str, Any]) -> str | None:
    if evalplus.looks_like_one(record):
        return "evalplus"
    found = next((name for name, (keys, _) in _FORMATS.items() if keys and keys <= record.keys()), None)
    if found in (None, "deepcoder", "eurus") and apps.looks_like_one(record):  # whose copies have keys of these
        return "apps" if "input_output" in record else "apps-plus"
    return found


def _refuse(path: Path, record: dict[str, Any]) -> str:
    try:
        refuse_misspelled(record)
    except ProblemError as error:
        raise UsageError(f"{path}: {error} (in the first record)") from None
    keys = ", ".join(sorted(map(repr, record))[:12]) or "none"
    fault = "unknown format" if any(map(_TESTS.search, record)) else "unknown format: records without tests"
    raise UsageError(
        f"{path}: {fault} (keys of the first record: {keys}). A record that works, one per line:\n"
        f"{TEMPLATE.read_text(encoding='utf-8').splitlines()[0]}\nMore examples: sce data new"
    )


def _reader(format: str, path: Path, evaluate: Evaluate | None, with_policy: bool) -> _Reader:
    more: dict[str, Any] = {"evaluate": evaluate} if format in NEED_EVALUATION else {}
    if format == "secodeplt":
        more |= {"variants": Variants(), "with_policy": with_policy}
    elif format == "securecoderl":
        more["drawn"] = securecoderl.drawn_by_the_paper(path)
    return partial(_FORMATS[format][1], **more)


def _read(
    path: Path, format: str, tally: Tally, evaluate: Evaluate | None, with_policy: bool
) -> Iterator[tuple[str, Problem]]:
    """The problems of one file or folder, each with its place; dropped ones are counted in the tally."""
    if path.is_dir():
        yield from ((problem.id, problem) for problem in apps.read(path, tally))
        return
    reader = _reader(format, path, evaluate, with_policy)
    before, others = tally.kept, None
    is_alone = format in NEED_EVALUATION and format != "secodeplt"  # whose groups depend on the records before
    made = (_in_parallel if is_alone else map)(partial(_problem_of, reader), read_records(path))
    for record, problem, counts in made:
        where = f"{path.name}:{record.location}"
        tally.add_parts(counts)
        if isinstance(problem, Problem):
            yield where, problem
        elif isinstance(problem, FilterRecord):
            tally.filter(where, str(problem))
        elif isinstance(problem, ProblemError):
            if not isinstance(problem, DropRecord) and isinstance(record.value, dict):
                others = others or _format_of(record.value)
            tally.drop(where, problem)
        else:  # JSON allows values that Python cannot process
            tally.drop(where, "a value is nested too deeply or too large")
    if tally.kept == before and tally.malformed == tally.read and others not in (None, format):
        raise UsageError(f"{path}: no {format} records; it looks like {others}, so use --format {others}")


def _problem_of(reader: _Reader, record: Record) -> _Made:
    tally = Tally()
    try:
        if isinstance(record.value, Unreadable):
            raise DropRecord(record.value.reason)
        if not isinstance(record.value, dict):
            raise ProblemError(f"expected a JSON object, found {type(record.value).__name__}")
        return record, reader(record.value, record.name, tally), tally
    except (ProblemError, RecursionError, OverflowError) as reason:
        return record, reason, tally


def _in_parallel(make: Callable[[Record], _Made], records: Iterator[Record]) -> Iterator[_Made]:
    """What becomes of records whose programs run, each in a process of its own."""
    threads = ThreadPoolExecutor(cpu_count(), thread_name_prefix="import")
    sizes = deque[int]()

    def begin(record: Record) -> Future[_Made]:
        sizes.append(_size(record.value))
        return threads.submit(make, record)

    def has_room() -> bool:
        return sum(sizes) < _MOST_CHARACTERS

    try:
        for made in in_order(begin, records, 2 * cpu_count(), _MOST_KEPT, has_room):
            for each in made:
                sizes.popleft()
                yield each
    finally:
        threads.shutdown(wait=False, cancel_futures=True)


def _size(value: Any) -> int:
    """About the characters of a decoded JSON value."""
    size, parts = 0, [value]
    while parts:
        part = parts.pop()
        size += len(part) if isinstance(part, (str, list, dict)) else 1
        parts += part if isinstance(part, list) else part.values() if isinstance(part, dict) else ()
    return size


def _filtered(
    problems: Iterator[tuple[str, Problem]], kind: str, max_tests: int, tally: Tally, strict: bool
) -> Iterator[Problem]:
    seen: set[str] = set()
    for where, problem in problems:
        if problem.id in seen:
            tally.drop(where, "duplicate id")
        elif kind not in ("all", problem.kind):
            tally.filter(problem.id, f"{problem.kind} problem, not {kind}")
        else:
            seen.add(problem.id)
            tally.kept += 1
            yield _limited(problem, max_tests, tally)
        if strict:
            _check_strictly(tally)
    if strict:
        _check_strictly(tally)


def _limited(problem: Problem, max_tests: int, tally: Tally) -> Problem:
    surplus = problem.test_count - max_tests
    if surplus <= 0:
        return problem
    tally.filter_tests(problem.id, f"beyond the first {max_tests} of a problem", surplus)
    return with_few_tests(problem, max_tests)


def _check_strictly(tally: Tally) -> None:
    kinds = (("record", tally.dropped), ("test", tally.dropped_tests), ("solution", tally.dropped_solutions))
    for what, counts in kinds:
        for reason, entry in counts.items():
            raise SceError(f"{entry.first}: unusable {what}: {reason} (--strict)")
