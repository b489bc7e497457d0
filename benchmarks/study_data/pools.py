"""The candidates of the pools: which records of which files, before references and mutants run."""

from __future__ import annotations

import ast
import gzip
import json
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from securecoderl_edge.languages.python_source import parse
from securecoderl_edge.problems.datasets.importing import import_problems
from securecoderl_edge.problems.near_duplicates import SimilarSets, word_pairs
from securecoderl_edge.problems.problem import Problem
from securecoderl_edge.problems.problem_file import read_problems, write_problems
from securecoderl_edge.problems.same_code import code_form, same_tasks
from securecoderl_edge.problems.sources import load_problems
from securecoderl_edge.scoring.reference_solutions import reference_outputs

APPS, CODEIO = "apps-functions/test.parquet", "codeio/codeio.jsonl.gz"
LEETCODE, LEETCODE_TEST = (f"leetcode/LeetCodeDataset-{part}.jsonl.gz" for part in ("v0.2.0-train", "v0.3.0-test"))
SECODEPLT, SAFESQL = "security/secodeplt.json.gz", ("safesql/train.parquet", "safesql/test.parquet")
PLUS = ("evalplus/HumanEvalPlus.jsonl.gz", "evalplus/MbppPlus.jsonl.gz")
FILES = (APPS, CODEIO, LEETCODE, LEETCODE_TEST, SECODEPLT, *SAFESQL, *PLUS)

EASY_ENOUGH = ("Easy", "Medium")
MOST_CODE_LINES = 30  # of a reference, as at the level of MBPP
LONGEST_STATEMENT = 2_000  # characters: a prompt has 768 tokens at most
MOST_SOLUTIONS = 3


def imported(data: Path, name: str, work: Path, with_policy: bool = True) -> list[Problem]:
    """The problems of a file, which are kept in ``work`` once they are imported."""
    stem = name.replace("/", "-") + ("" if with_policy else "-untold")
    file = work / f"{stem}.imported.jsonl"
    if not file.is_file():
        with reference_outputs() as evaluate:
            write_problems(file, import_problems(data / name, evaluate=evaluate, with_policy=with_policy).problems)
    return [problem for _, problem in read_problems(file, sys.maxsize)]


def evaluated(data: Path) -> list[Problem]:
    """The problems of HumanEval, MBPP's test set, and of EvalPlus in its own words: nothing like them is trained on."""
    found = [*load_problems("humaneval", sys.maxsize), *load_problems("mbpp:test", sys.maxsize)]
    numbers = set()
    for name in PLUS:
        with gzip.open(data / name, "rt", encoding="utf-8") as lines:
            for record in map(json.loads, lines):
                numbers.add(record["task_id"].replace("Mbpp/", "mbpp/"))
                solution = record["prompt"] + record["canonical_solution"]
                found.append(
                    Problem(
                        id=record["task_id"],
                        statement=record["prompt"],
                        kind="call",
                        entry_point=record["entry_point"],
                        solutions=(solution,),
                    )
                )
    # The same tasks in the words of MBPP itself.
    return [*found, *(each for each in load_problems("mbpp:all", sys.maxsize) if each.id in numbers)]


def function_candidates(
    data: Path, work: Path, away: Sequence[Problem], counts: dict[str, Any]
) -> dict[str, list[Problem]]:
    """Candidates for training by source, the preferred ones first; ``counts`` tells what is left out.

    Args:
        away: problems for evaluation, which no candidate may be like; LeetCode's later problems are added.
    """
    sources = {
        "mbpp": load_problems("mbpp:clean", sys.maxsize),
        "apps": imported(data, APPS, work),
        "codeio": imported(data, CODEIO, work),
        "leetcode": imported(data, LEETCODE, work),
    }
    away = [*away, *imported(data, LEETCODE_TEST, work)]
    pairs, tasks = SimilarSets(), set[str]()
    apart = SimilarSets(map(word_pairs, away))
    found: dict[str, list[Problem]] = {}
    for name, problems in sources.items():
        own, fitting = Counter(read=len(problems)), list[Problem]()
        for problem in problems:
            if fault := too_hard(problem):
                own[fault] += 1
            else:
                fitting.append(replace(problem, solutions=problem.solutions[:MOST_SOLUTIONS]))
        alike = {index for index, _, _ in same_tasks(fitting, away)}
        own["like an evaluation problem by name or code"] = len(alike)
        found[name] = []
        for index, problem in enumerate(fitting):
            if index in alike:
                continue
            forms, words = set(filter(None, map(code_form, problem.solutions))), word_pairs(problem)
            if apart.similar_to(words):
                own["like an evaluation problem by words"] += 1
            elif forms & tasks or pairs.similar_to(words):
                own["like another training problem"] += 1
            else:
                pairs.add(words)
                tasks |= forms
                found[name].append(problem)
        counts[f"{name}, candidates"] = {**own, "candidates": len(found[name])}
    return found


def too_hard(problem: Problem) -> str:
    """Why a problem is above the level of MBPP; nothing if it is not."""
    if not problem.solutions:
        return "no reference"
    if problem.source == "leetcode" and problem.difficulty not in EASY_ENOUGH:
        return "hard"
    if len(problem.statement) > LONGEST_STATEMENT:
        return f"more than {LONGEST_STATEMENT} characters"
    if problem.source == "codeio" and code_lines(problem.solutions[0]) > MOST_CODE_LINES:
        return f"more than {MOST_CODE_LINES} lines of code"
    return ""


def code_lines(program: str) -> int:
    """Lines without comments, docstrings and imports."""
    tree = parse(program)
    if tree is None:
        return 1 << 30
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(body=[ast.Expr(value=ast.Constant(value=str())), _, *_]):
                node.body = node.body[1:]
    tree.body = [node for node in tree.body if not isinstance(node, (ast.Import, ast.ImportFrom))]
    return sum(1 for line in ast.unparse(tree).splitlines() if line.strip())
