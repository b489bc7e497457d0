"""Problems with the same task in other words: the same function by name, or the same reference but for its names.

Two programs have the same *form* if their syntax trees agree once names, constants, annotations and docstrings are left
out; regular expressions count, since they are programs. Small trees agree by chance, so only those of at least
`LEAST_NODES` nodes count.

Does not detect: the same task with a reference of another structure and a function of another name.
"""

from __future__ import annotations

import ast
import builtins
import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

from securecoderl_edge.languages.language import PYTHON
from securecoderl_edge.languages.python_source import UNREADABLE, parse
from securecoderl_edge.problems.problem import Problem

LEAST_NODES = 25
# Names that say nothing of the task.
_ANY_TASK = frozenset(
    re.findall(
        r"\w+",
        "add answer check compare count decode decrypt encode encrypt find func function get main match process result "
        "run search simplify solution solve sort test",
    )
)
_EXPRESSION = re.compile(r"[\\^$|?*+]|\[.*\]")

By = Literal["name", "code"]


def same_tasks(first: Sequence[Problem], second: Sequence[Problem]) -> Iterator[tuple[int, int, By]]:
    """Yield ``(index in first, index in second, by what)`` for problems with the same name or the same form of code."""
    by_name, by_form = dict[str, list[int]](), dict[str, list[int]]()
    for index, problem in enumerate(second):
        for name in _names(problem):
            by_name.setdefault(name, []).append(index)
        for form in _forms(problem):
            by_form.setdefault(form, []).append(index)
    for index, problem in enumerate(first):
        yield from ((index, other, "code") for other in _found(by_form, _forms(problem)))
        yield from ((index, other, "name") for other in _found(by_name, _names(problem)))


def _found(places: dict[str, list[int]], keys: Iterable[str]) -> list[int]:
    return sorted({place for key in keys for place in places.get(key, ())})


def _names(problem: Problem) -> set[str]:
    """The name of the function, without case and underscores, so that ``is_prime`` is ``isPrime``."""
    name = re.sub(r"[\W_]", "", problem.entry_point or "").casefold()
    return set() if not name or name in _ANY_TASK or len(name) < 3 else {name}


def _forms(problem: Problem) -> set[str]:
    if problem.language != PYTHON.name:
        return set()
    return set(filter(None, map(code_form, problem.solutions)))


def code_form(program: str) -> str:
    """A hash that is equal for programs of the same form; empty for a text that does not parse, or a small program."""
    try:
        tree = parse(program)
        parts = list(_parts(tree)) if tree else []
    except UNREADABLE:
        return ""
    if len(parts) < LEAST_NODES:
        return ""
    return hashlib.sha256(" ".join(parts).encode("utf-8", "surrogatepass")).hexdigest()


def _parts(node: ast.AST) -> Iterator[str]:
    """The nodes in order, with the names of builtins, modules and attributes, which belong to what a program does."""
    label = type(node).__name__
    match node:
        case ast.Name(id=name) if hasattr(builtins, name):
            label = name
        case ast.Attribute(attr=name):
            label = f".{name}"
        case ast.Constant(value=value):
            label = repr(value) if isinstance(value, str) and _EXPRESSION.search(value) else type(value).__name__
        case ast.Import() | ast.ImportFrom():
            return
        case ast.Expr(value=ast.Constant(value=str())):
            return
        case ast.Load() | ast.Store() | ast.Del():
            return
    yield f"({label}"
    for field, value in ast.iter_fields(node):
        if field not in ("annotation", "returns", "type_params", "type_comment"):
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from _parts(child)
    yield ")"
