"""HumanEval, one JSON object per line: task_id, prompt, canonical_solution, entry_point, test; and sets made like it.

    leetcode   newfacade/LeetCodeDataset: task_id, prompt, completion, entry_point (``Solution().f``), test, meta; what
               the tests use of the prompt, such as ``ListNode``, is put before each of them
    multipl-e  nuprl/MultiPL-E: name, language, prompt, tests

``check(candidate)`` is split: each independent assertion is one test; the rest of its body (assignments, loops and
statements that depend on them) is another. Assertions that always hold (``assert True``) are dropped. The prompt
becomes the given code. Source: Chen et al., 2021, https://github.com/openai/human-eval
"""

from __future__ import annotations

import ast
import re
from typing import Any

from securecoderl_edge.languages.python_source import (
    add_missing_imports,
    functions,
    is_function_name,
    names_imported,
    parse,
    parse_stub,
    signature,
)
from securecoderl_edge.problems.datasets.record_files import first_of
from securecoderl_edge.problems.datasets.secodeplt import check_needs
from securecoderl_edge.problems.datasets.tally import DropRecord, Tally, with_setup
from securecoderl_edge.problems.problem import Problem
from securecoderl_edge.problems.problem_file import ProblemError, text

_CALLED = re.compile(r"(?<!\w)(\w++)\(")

SOURCE = "humaneval"


def problem_from(record: dict[str, Any], _name: str, tally: Tally, source: str = SOURCE) -> Problem:
    """The problem in a record.

    Raises:
        ProblemError: it cannot be used.
    """
    for name in ("task_id", "prompt", "entry_point"):
        if not text(record, name):
            raise ProblemError(f'"{name}" is missing')
    identifier = f"{source}/{text(record, 'task_id').rpartition('/')[2]}"
    prompt, name, solution = (text(record, field) for field in ("prompt", "entry_point", "canonical_solution"))
    if not is_function_name(name):
        raise DropRecord("entry_point is not a function name")
    header = signature(prompt, name) or name
    return Problem(
        id=identifier,
        statement=f"Complete the function `{header}` of the given code, and write the whole program.",
        kind="call",
        entry_point=name,
        assertions=split_check(text(record, "test"), name, prompt, identifier, tally),
        starter_code=prompt.rstrip(),
        solutions=(prompt + solution,) if solution.strip() else (),
        source=source,
    )


def multiple_problem_from(record: dict[str, Any], name: str, tally: Tally) -> Problem:
    """The problem in a record of MultiPL-E; errors as `problem_from`."""
    if text(record, "language") not in ("", "py", "python"):
        raise DropRecord("not Python")
    stub = parse_stub(text(record, "prompt"))
    defined = [function.name for function in functions(stub)] if stub else []
    if not defined:
        raise DropRecord("prompt does not define a function")
    check = text(record, "tests").partition("\ndef test_check")[0]
    of_humaneval = {
        "task_id": record.get("name"),
        "prompt": record.get("prompt"),
        "entry_point": defined[-1],
        "test": check,
    }
    return problem_from(of_humaneval, name, tally, "multipl-e")


def leetcode_problem_from(record: dict[str, Any], _name: str, tally: Tally) -> Problem:
    """The problem in a record of LeetCodeDataset; errors as `problem_from`."""
    meta = record["meta"] if isinstance(record.get("meta"), dict) else {}
    known = {**meta, **record}
    statement = first_of(known, ("problem_description", "question_title", "query"))
    name, prompt, completion = (text(record, field) for field in ("entry_point", "prompt", "completion"))
    name, identifier = name.removeprefix("Solution()."), f"leetcode/{text(record, 'task_id')}"
    if not is_function_name(name):
        raise DropRecord("entry_point is not a method of Solution")
    if not isinstance(statement, str):
        raise DropRecord("no statement")
    stub, tree = text(known, "starter_code") or text(known, "lang_code"), parse(prompt)
    given = [node for node in (tree.body if tree else []) if isinstance(node, (ast.ClassDef, ast.FunctionDef))]
    helpers, names = "".join(f"{ast.unparse(node)}\n\n" for node in given), {node.name for node in given}
    shown = [ast.unparse(node) for node in given if isinstance(node, ast.ClassDef) and node.name in stub]
    program = parse(f"{prompt}\n{completion}")
    try:
        check_needs(*([program] if program else []))
    except DropRecord as reason:
        tally.drop_solution(identifier, str(reason))
        completion = ""
    tests, header = split_check(text(record, "test"), name, "", identifier, tally), signature(stub, name) or name
    return Problem(
        id=identifier,
        statement=f"{statement.strip()}\n\nWrite the class `Solution` with the method `{header}`.",
        kind="call",
        entry_point=name,
        assertions=tuple(
            whole if names.intersection(_CALLED.findall(test)) else test
            for whole, test in zip(with_setup(helpers, tests), tests, strict=True)
        ),
        starter_code=add_missing_imports("\n\n".join([*shown, stub])).rstrip(),
        solutions=(f"{prompt}\n{completion}",) if completion.strip() else (),
        difficulty=text(known, "difficulty"),
        source="leetcode",
    )


def split_check(test: str, entry_point: str, prompt: str, where: str, tally: Tally) -> tuple[str, ...]:
    """The tests inside a module that defines ``check(candidate)``.

    Raises:
        DropRecord: no such function, or it has no usable tests.
    """
    if not test.strip():
        raise DropRecord("no tests")
    module = parse(test)
    check = next((node for node in module.body if _defines(node, "check")), None) if module else None
    if module is None or not isinstance(check, ast.FunctionDef) or len(check.args.args) != 1:
        raise DropRecord("test does not define check(candidate)")
    others = [node for node in module.body if node is not check and _names_defined(node) != {"METADATA"}]
    candidate = check.args.args[0].arg
    local = {name for node in (*check.body, *others) for name in _names_defined(node)}
    brings_anything_in = "*" in local  # import *: the used names are unknown
    assertions, rest = [], []
    for node in check.body:
        if isinstance(node, ast.Expr) and isinstance(node.value, (ast.Name, ast.Constant)):
            continue  # a docstring, or a name left behind
        if isinstance(node, ast.Assert) and isinstance(node.test, ast.Constant) and node.test.value:
            tally.filter_tests(where, "assertion that always holds", 1)
        elif isinstance(node, ast.Assert) and not brings_anything_in and not _names_used(node) & local:
            standalone = _Rename(candidate, entry_point).visit(ast.Assert(test=node.test, msg=None))
            assertions.append(ast.unparse(standalone))
        else:
            rest.append(node)
    if any(isinstance(inner, ast.Assert) for node in rest for inner in ast.walk(node)):
        check.body = rest
        # Definitions in the prompt other than the requested function; a program need not repeat them.
        stub = parse_stub(prompt)
        given = [node for node in stub.body if not _defines(node, entry_point)] if stub else []
        assertions.append("\n\n".join([*map(ast.unparse, [*given, *others, check]), f"check({entry_point})"]))
    if not assertions:
        raise DropRecord("no usable tests")
    return tuple(assertions)


def _defines(node: ast.stmt, name: str) -> bool:
    return isinstance(node, ast.FunctionDef) and node.name == name


def _names_defined(node: ast.stmt) -> set[str]:
    """Names that a statement in or next to ``check`` binds, including those inside of definitions."""
    names: set[str] = set()
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
            names.add(inner.id)
        elif isinstance(inner, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.ExceptHandler)):
            names.add(inner.name or "")
        names |= names_imported(inner)
    return names


def _names_used(node: ast.stmt) -> set[str]:
    return {name.id for name in ast.walk(node) if isinstance(name, ast.Name)}


class _Rename(ast.NodeTransformer):
    """Renames the candidate in an expression, except in a lambda that has a parameter of that name."""

    def __init__(self, old: str, new: str) -> None:
        self.old, self.new = old, new

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.copy_location(ast.Name(self.new, node.ctx), node) if node.id == self.old else node

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        parameters = {inner.arg for inner in ast.walk(node.args) if isinstance(inner, ast.arg)}
        return node if self.old in parameters else self.generic_visit(node)
