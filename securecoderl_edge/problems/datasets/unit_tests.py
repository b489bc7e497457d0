"""BigCodeBench and KodCode: tests as a module, one assertion per test method or test function.

    bigcodebench  task_id, complete_prompt, instruct_prompt, canonical_solution, entry_point, test (unittest)
    kodcode       question, solution, test (pytest functions with ``from solution import f``)

The module runs in the sandbox, which has the standard library only: what needs more is dropped.
Sources: https://github.com/bigcode-project/bigcodebench, https://huggingface.co/datasets/KodCode/KodCode-V1
"""

from __future__ import annotations

import ast
from typing import Any, TypeGuard

from securecoderl_edge.languages.python_source import is_function_name, parse, signature
from securecoderl_edge.problems.datasets.record_files import given_id
from securecoderl_edge.problems.datasets.secodeplt import check_needs
from securecoderl_edge.problems.datasets.tally import DropRecord, Tally, usable_tests, with_setup
from securecoderl_edge.problems.problem import Problem
from securecoderl_edge.problems.problem_file import text

_ONE_METHOD = """
_result = unittest.TestResult()
unittest.TestSuite([{name}({method!r})]).run(_result)
assert _result.wasSuccessful()"""


def bigcodebench_problem_from(record: dict[str, Any], name: str, _tally: Tally) -> Problem:
    """The problem in a record of BigCodeBench; errors as `humaneval.problem_from`."""
    prompt, solution, entry_point = (text(record, f) for f in ("complete_prompt", "canonical_solution", "entry_point"))
    module = _parsed(text(record, "test"), "test")
    if not is_function_name(entry_point):
        raise DropRecord("entry_point is not a function name")
    check_needs(_parsed(prompt + solution, "canonical_solution"), module)
    body = [node for node in module.body if not isinstance(node, ast.If)]  # __name__ == "__main__"
    code = "import unittest\n" + ast.unparse(ast.Module(body, []))
    cases = [node for node in body if isinstance(node, ast.ClassDef) and "TestCase" in ast.unparse(node)]
    methods = [(case.name, each.name) for case in cases for each in case.body if _is_test(each)]
    if not methods:
        raise DropRecord("no tests")
    return Problem(
        id=f"bigcodebench/{(given_id(record, ('task_id',)) or name).rpartition('/')[2]}",
        statement=text(record, "instruct_prompt").strip() or "Complete the given code, and write the whole program.",
        kind="call",
        entry_point=entry_point,
        assertions=with_setup(code, [_ONE_METHOD.format(name=case, method=method) for case, method in methods]),
        starter_code=(text(record, "code_prompt") or prompt).rstrip(),
        solutions=(prompt + solution,) if solution.strip() else (),
        source="bigcodebench",
    )


def kodcode_problem_from(record: dict[str, Any], name: str, tally: Tally) -> Problem:
    """The problem in a record of KodCode; errors as `humaneval.problem_from`."""
    question, solution = text(record, "question").strip(), text(record, "solution")
    body = _parsed(text(record, "test"), "test").body
    imports = [node for node in body if isinstance(node, ast.ImportFrom) and node.module == "solution"]
    aliases = [alias for node in imports for alias in node.names if alias.name != "*"]
    if not question or not aliases:
        raise DropRecord("test imports no name from solution" if question else "no statement")
    own = set[ast.stmt](imports)
    rest = [node for node in body if node not in own]
    check_needs(_parsed(solution, "solution"), ast.Module(rest, []))
    tests = [node for node in rest if _is_test(node)]
    others = [f"{alias.asname} = {alias.name}" for alias in aliases if alias.asname]
    others += [ast.unparse(node) for node in rest if not _is_test(node)]
    identifier = f"kodcode/{given_id(record, ('question_id', 'conversation_id')) or name}"
    usable = usable_tests(tests, _fault_of, identifier, tally)
    return Problem(
        id=identifier,
        statement=f"{question}\n\nWrite `{signature(solution, aliases[0].name) or aliases[0].name}`.",
        kind="call",
        entry_point=aliases[0].name,
        assertions=with_setup(
            "".join(f"{each}\n" for each in others),
            [f"{ast.unparse(test)}\nassert {test.name}() is None" for test in usable],
        ),
        solutions=(solution,) if solution.strip() else (),
        source="kodcode",
    )


def _fault_of(test: ast.FunctionDef) -> str | None:
    if test.decorator_list or test.args.args:
        return "needs pytest"
    return None if any(isinstance(node, ast.Assert) for node in ast.walk(test)) else "test asserts nothing"


def _parsed(code: str, name: str) -> ast.Module:
    tree = parse(code)
    if tree is None:
        raise DropRecord(f"{name} is not Python")
    return tree


def _is_test(node: ast.stmt) -> TypeGuard[ast.FunctionDef]:
    return isinstance(node, ast.FunctionDef) and node.name.startswith("test")
