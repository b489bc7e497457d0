"""Make the problem files of the studies on reliable and on secure code from downloaded data sets.

    python benchmarks/study_data/make.py --data FOLDER --out DIR

FOLDER has the files that README.md names, DIR gets the problem files, and DIR/work what is finished so far: the same
command again resumes, and `--minutes N` begins nothing new after that time. All of it is deterministic but for
references near a time limit. Programs run in the sandbox only, one at a time.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from pools import (
    EASY_ENOUGH,
    FILES,
    LEETCODE_TEST,
    PLUS,
    SAFESQL,
    SECODEPLT,
    evaluated,
    function_candidates,
    imported,
)
from security import PARTS, by_weakness, in_turns, parts_of, untold
from strengthen import CHUNK, KEPT, Outcome, Rule, strengthened

from securecoderl_edge.errors import SceError
from securecoderl_edge.problems.near_duplicates import without_near_duplicates
from securecoderl_edge.problems.problem import Problem, with_sentence
from securecoderl_edge.problems.problem_file import write_problems
from securecoderl_edge.problems.sources import load_problems
from securecoderl_edge.problems.train_eval_split import find_leaks, find_leaks_in_other_words
from securecoderl_edge.problems.wrapping import all_wrapped
from securecoderl_edge.system.files import write_atomically
from securecoderl_edge.system.machine import describe_machine

sys.path.append(str(Path(__file__).resolve().parents[1]))
from record import command, commit

RESULT = Path(__file__).resolve().parents[1] / "results" / "study-data.json"
TRAINING = Rule()
TRANSFER = Rule(wanted=0, hidden=2, outputs=1, with_example=False, mutants=0)
PROGRAMS = replace(TRAINING, wanted=0, with_example=False, mutants=0)  # wrapped: their tests were looked at before
PROGRAMS_ELSEWHERE = replace(TRAINING, wanted=0, hidden=2, outputs=2, mutants=0)
SECURITY = Rule(hidden=2, outputs=2, with_example=False)
# That a connection is closed shows in no output, and each program has such statements.
SAFE_QUERIES = Rule(wanted=0, hidden=3, with_example=False, surviving=0.5)
RECHECKED = replace(SECURITY, wanted=0, mutants=0)
EVALUATION_PROGRAMS = 200
REQUEST = "Write secure code."
# Of EvalPlus. Their references take seconds, so the limits of an import depend on the machine.
SLOW = (
    *(f"humaneval-plus/{number}" for number in (15, 36, 130, 139)),
    *(f"mbpp-plus/{number}" for number in (123, 271, 389, 392)),
)


class Maker:
    """One call: where files are, until when work begins, and the counts so far."""

    def __init__(self, data: Path, out: Path, minutes: float, limit: int | None) -> None:
        self.data, self.out, self.work, self.limit = data, out, out / "work", limit
        self.deadline = time.monotonic() + 60 * minutes
        self.counts: dict[str, Any] = {}
        self.files: dict[str, Any] = {}
        self.is_finished = True
        self.work.mkdir(parents=True, exist_ok=True)

    def strong(self, name: str, problems: Sequence[Problem], rule: Rule) -> list[Problem]:
        """The problems that fulfil a rule; the counts are kept under a name."""
        problems = problems[: self.limit]
        outcome = self.look(problems, rule)
        self.is_finished &= outcome.finished
        self.counts[name] = {"looked at": len(problems), **outcome.to_record()}
        click.echo(f"{name}: {outcome.counts[KEPT]} of {len(problems)}{'' if outcome.finished else ', not finished'}")
        return outcome.problems

    def look(self, problems: Sequence[Problem], rule: Rule) -> Outcome:
        """What becomes of problems."""
        return strengthened(problems, rule, self.work / "strong", lambda: time.monotonic() < self.deadline)

    def write(self, name: str, problems: Sequence[Problem]) -> None:
        """Write a problem file, and note its size and sum."""
        file = self.out / f"{name}.jsonl"
        write_problems(file, problems)
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        self.files[file.name] = {"problems": len(problems), "bytes": file.stat().st_size, "sha256": digest}

    def in_turns(self, lists: Sequence[tuple[Sequence[Problem], Rule]]) -> None:
        """Look at a chunk of each list in turn, so that unfinished work has a part of each."""
        chunks = [
            [(problems[start : start + CHUNK], rule) for start in range(0, len(problems), CHUNK)]
            for problems, rule in ((each[: self.limit], rule) for each, rule in lists)
        ]
        for row in itertools.zip_longest(*chunks):
            for chunk in filter(None, row):
                self.look(*chunk)


def main() -> None:
    """Make all files and the record."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of the downloaded files")
    parser.add_argument("--out", type=Path, required=True, help="folder to write")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin nothing new after this time")
    parser.add_argument("--limit", type=int, metavar="N", help="a rehearsal with the first N candidates of each source")
    parser.add_argument("--json", type=Path, default=RESULT, help="file for the counts")
    arguments = parser.parse_args()
    if missing := [name for name in FILES if not (arguments.data / name).is_file()]:
        parser.error(f"{arguments.data}: missing {', '.join(missing)}; see README.md for where they come from")
    maker = Maker(arguments.data, arguments.out, arguments.minutes, arguments.limit)
    told, untold_statements = secure_candidates(maker)
    queries = safe_query_candidates(maker)
    away = evaluated(maker.data)
    functions = function_candidates(maker.data, maker.work, away, maker.counts)
    maker.in_turns([(told, SECURITY), (queries, SAFE_QUERIES), *((each, TRAINING) for each in functions.values())])
    make_security(maker, told, untold_statements, queries)
    train = make_functions(maker, functions, away)
    make_programs(maker, train, away)
    if arguments.limit is None:
        write_record(maker, arguments.json)
    for name, file in maker.files.items():
        click.echo(f"{name}: {file['problems']} problems")
    if arguments.limit is None and not maker.is_finished:
        sys.exit("not finished, so the files are not those of the study yet; run the same command again")


def write_record(maker: Maker, file: Path) -> None:
    """Write counts and sums."""
    record: dict[str, Any] = {"files": maker.files, "counts": maker.counts, "machine": describe_machine()}
    record |= {"command": command(), "commit": commit()}
    with write_atomically(file) as out:
        out.write(json.dumps(record, indent=1) + "\n")


def secure_candidates(maker: Maker) -> tuple[list[Problem], dict[str, str]]:
    """The tasks of SecCodePLT, and their statements without the policy."""
    statements = {each.id: each.statement for each in imported(maker.data, SECODEPLT, maker.work, with_policy=False)}
    return in_turns(imported(maker.data, SECODEPLT, maker.work)), statements


def safe_query_candidates(maker: Maker) -> list[Problem]:
    """The tasks of SafeSQL that could be rewritten with parameters; ids tell from which file they come."""
    found: list[Problem] = []
    for name in SAFESQL:
        part = Path(name).stem
        problems = imported(maker.data, name, maker.work)
        secure = [replace(each, id=f"{each.id}/{part}") for each in problems if each.solutions]
        maker.counts[f"safesql {part}"] = {"usable": len(problems), "with a reference of parameters": len(secure)}
        found += secure
    return found


def make_security(
    maker: Maker, told: Sequence[Problem], statements: dict[str, str], queries: Sequence[Problem]
) -> None:
    """The security files: told, untold and SQL, each for training, development and the test, and all for training."""
    strong = sorted(maker.strong("security, told", told, SECURITY), key=lambda each: each.id)
    parts = {"secure-told": parts_of(strong), "secure-untold": {}, "safesql": {}}
    for part in PARTS:
        bare = [found for each in parts["secure-told"][part] if (found := untold(each, statements[each.id]))]
        parts["secure-untold"][part] = maker.strong(f"security, untold, {part}", bare, RECHECKED)
    sql = sorted(maker.strong("safesql", queries, SAFE_QUERIES), key=lambda each: each.id)
    measured = [each for each in sql if each.id.endswith("/test")]
    others = without_near_duplicates([each for each in sql if not each.id.endswith("/test")], measured)
    split = parts_of([replace(each, tags=("CWE-89",)) for each in others])
    # SafeSQL's own test set is the test; what would be held out of its training set is for development.
    parts["safesql"] = {"train": split["train"], "dev": [*split["dev"], *split["test"]], "test": measured}
    for name, of_parts in parts.items():
        for part, problems in of_parts.items():
            maker.write(f"{name}-{part}", problems)
        for part in PARTS[1:]:
            maker.write(f"{name}-asked-{part}", [with_sentence(each, REQUEST) for each in of_parts[part]])
        maker.counts[f"{name} by weakness"] = {part: by_weakness(of_parts[part]) for part in PARTS}
    maker.write("secure-train", [problem for of_parts in parts.values() for problem in of_parts["train"]])


def make_functions(
    maker: Maker, functions: dict[str, list[Problem]], away: Sequence[Problem]
) -> dict[str, list[Problem]]:
    """The pool of functions, by source; for evaluation EvalPlus' problems, and LeetCode's later ones for transfer."""
    train = {name: maker.strong(name, problems, TRAINING) for name, problems in functions.items()}
    every = [problem for problems in train.values() for problem in problems]
    leaks = len(find_leaks(every, away)) + len(find_leaks_in_other_words(every, away))
    maker.counts["functions-train"] = {**{name: len(each) for name, each in train.items()}, "leaks": leaks}
    maker.write("functions-train", every)
    tested = {each.id for each in (*load_problems("humaneval", sys.maxsize), *load_problems("mbpp:test", sys.maxsize))}
    plus = [each for name in PLUS for each in imported(maker.data, name, maker.work)]
    plus = [each for each in plus if each.id.replace("-plus/", "/") in tested]
    maker.write("functions-eval", [replace(each, time_limit_s=40.0 if each.id in SLOW else 5.0) for each in plus])
    later = [each for each in imported(maker.data, LEETCODE_TEST, maker.work) if each.difficulty in EASY_ENOUGH]
    maker.write("functions-eval-leetcode", maker.strong("functions-eval-leetcode", later, TRANSFER))
    return train


def make_programs(maker: Maker, train: dict[str, list[Problem]], away: Sequence[Problem]) -> None:
    """The same pool as programs, and programs of HumanEval and MBPP, which it has nothing of, to evaluate."""
    every = [problem for name, problems in train.items() if name != "mbpp" for problem in problems]
    plain = load_problems("starter:plain-train", sys.maxsize)
    programs = maker.strong("stdin-train", wrapped_ones(maker, "stdin-train", every), PROGRAMS)
    maker.write("stdin-train", [*programs, *plain])
    sources = [load_problems("humaneval", sys.maxsize), load_problems("mbpp:test", sys.maxsize)]
    held_out = [each for pair in itertools.zip_longest(*sources) for each in pair if each]
    tried = wrapped_ones(maker, "stdin-eval", held_out)[: EVALUATION_PROGRAMS * 3 // 2]
    strong = maker.strong("stdin-eval", tried, PROGRAMS_ELSEWHERE)
    maker.write("stdin-eval", strong[:EVALUATION_PROGRAMS])


def wrapped_ones(maker: Maker, name: str, problems: Sequence[Problem]) -> list[Problem]:
    """The problems as programs; why others have no such form is counted."""
    found, left_out = all_wrapped(problems)
    maker.counts[f"{name}, wrapped"] = {"wrapped": len(found), **left_out}
    return found


if __name__ == "__main__":
    try:
        main()
    except (SceError, OSError) as error:
        sys.exit(str(error))
