"""One example in the statement, and only tests that it does not show: what is rewarded cannot be copied."""

from __future__ import annotations

import ast
from contextlib import suppress
from dataclasses import replace

from securecoderl_edge.languages.python_source import parse
from securecoderl_edge.problems.assertions import assertions_of
from securecoderl_edge.problems.leakage import is_visible
from securecoderl_edge.problems.problem import Problem, Test


def with_one_example(problem: Problem) -> Problem:
    """The problem without the tests that its statement shows; if it shows none, with the first one as an example there.

    Without tests, if there are no others.
    """
    every = problem.tests if problem.kind == "stdin" else problem.assertions
    hidden = [test for test in every if not is_visible(problem, test)]
    statement = problem.statement
    if len(hidden) == len(every):
        statement, hidden = f"{statement.rstrip()}{_example(problem)}", hidden[1:]
    if problem.kind == "stdin":
        return replace(problem, statement=statement, tests=tuple(hidden))  # type: ignore[arg-type]
    return replace(problem, statement=statement, assertions=tuple(hidden))  # type: ignore[arg-type]


def _example(problem: Problem) -> str:
    return shown_example(problem.tests[0]) if problem.kind == "stdin" else f" For example:\n{_assertion(problem, 0)}"


def shown_example(test: Test) -> str:
    """The end of a statement that shows a test."""
    return f"\n\nExample input:\n{test.input.rstrip()}\n\nExample output:\n{test.output.rstrip()}"


def _assertion(problem: Problem, place: int) -> str:
    """An assertion as people write it: arguments by name, and ``==`` for values that agree nearly."""
    assertion = assertions_of(problem)[place]
    text = problem.assertions[place]
    tree = parse(assertion.expression)
    match tree.body if tree else []:
        case [ast.Expr(value=ast.List(elts=[call]))] if assertion.comparison == "each" and len(assertion.expected) == 1:
            text = f"assert {ast.unparse(call)} == {assertion.expected[0]!r}"
    with suppress(RecursionError):
        shown = parse(text)
        return text if shown is None else ast.unparse(ast.fix_missing_locations(_Named().visit(shown)))
    return text


class _Named(ast.NodeTransformer):
    """``f(**{'a': 1})`` becomes ``f(a=1)``."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        keywords: list[ast.keyword] = []
        for each in node.keywords:
            match each:
                case ast.keyword(arg=None, value=ast.Dict(keys=keys, values=values)) if all(map(_is_name, keys)):
                    keywords += [ast.keyword(key.value, item) for key, item in zip(keys, values, strict=True)]  # type: ignore[union-attr]
                case _:
                    keywords.append(each)
        node.keywords = keywords
        return node


def _is_name(key: ast.expr | None) -> bool:
    return isinstance(key, ast.Constant) and isinstance(key.value, str) and key.value.isidentifier()
