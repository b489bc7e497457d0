"""Calls of a function in an assertion, rewritten so that a test process notes which of them return None.

A program that returns nothing has printed nothing, whatever the assertion makes of it: ``not f(1)``, ``str(f(1))``,
``f(1) == f(2)``. The rewriting is done here, outside; `testprocess` has the function that notes.
"""

from __future__ import annotations

import ast
from functools import lru_cache

from securecoderl_edge.languages.python_source import UNREADABLE, syntax_tree
from securecoderl_edge.sandbox.inside.testprocess import NOTE

# Rewriting takes a few microseconds per character, and is done once for each assertion.
_LONGEST = 1 << 12


def noting(expression: str, entry_point: str, is_assertion: bool) -> str:
    """The text with the calls of ``entry_point`` noted; of an assertion, those in what is asserted.

    A text that is long, or that has no such call, stays as it is.
    """
    # Before it is kept: a call of a checker has all that a program printed in it.
    if not entry_point or len(expression) > _LONGEST or entry_point not in expression:
        return expression
    return _noted(expression, entry_point, is_assertion)


@lru_cache(maxsize=1 << 12)
def _noted(expression: str, entry_point: str, is_assertion: bool) -> str:
    noter = _Noter(entry_point, not is_assertion)
    try:
        tree = noter.visit(syntax_tree(expression, "exec" if is_assertion else "eval"))
        return ast.unparse(ast.fix_missing_locations(tree)) if noter.noted else expression
    except UNREADABLE:
        return expression


class _Noter(ast.NodeTransformer):
    def __init__(self, entry_point: str, is_asserted: bool) -> None:
        self._entry_point, self._is_asserted = entry_point, is_asserted
        self.noted = 0

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        before, self._is_asserted = self._is_asserted, True
        node.test = self.visit(node.test)
        self._is_asserted = before
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        match node.func:
            case ast.Name(id=name) | ast.Attribute(attr=name) if name == self._entry_point and self._is_asserted:
                self.noted += 1
                return ast.Call(ast.Name(NOTE, ast.Load()), [node], [])
        return node
