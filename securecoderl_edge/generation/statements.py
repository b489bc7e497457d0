"""The statements of a module or of a class with their lines, and what a definition of an answer is like."""

from __future__ import annotations

import ast
import io
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from securecoderl_edge.languages.python_source import names_imported, parse

DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
MAIN = "__main__"
_HEADER = re.compile(r"^[ \t]*(?:async[ \t]+)?(?:def|class)[ \t]+(\w+)", re.MULTILINE)


@dataclass(frozen=True)
class Statement:
    """A statement of a module or of a class.

    Attributes:
        key: what it defines; empty for another statement.
        start, end: its lines, decorators included.
        is_shared: whether another statement begins or ends on the same line.
    """

    node: ast.stmt
    key: str
    start: int
    end: int
    is_shared: bool = False

    @property
    def is_definition(self) -> bool:
        return isinstance(self.node, DEFINITIONS)


def lines_of(text: str) -> list[str]:
    """The lines with their ends, as the parser counts them; `str.splitlines` knows more ends."""
    return io.StringIO(text, newline="").readlines()


def newline_of(text: str) -> str:
    found = re.search(r"\r\n|\r|\n", text)
    return found[0] if found else "\n"


def statements(body: Sequence[ast.stmt]) -> list[Statement]:
    found: list[Statement] = []
    for number, node in enumerate(body):
        first = min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", []))])
        found.append(Statement(node, _key(node, number), first - 1, node.end_lineno or node.lineno))
    shared = {id(unit.node) for one, other in pairwise(found) if one.end > other.start for unit in (one, other)}
    return [replace(each, is_shared=id(each.node) in shared) for each in found]


def _key(node: ast.stmt, number: int) -> str:
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            accessors = [each.attr for each in node.decorator_list if isinstance(each, ast.Attribute)]
            return "@".join([node.name, *(each for each in accessors if each in ("setter", "getter", "deleter"))])
        case ast.ClassDef():
            return node.name
        case ast.Assign(targets=targets):
            return f"={', '.join(map(ast.unparse, targets))}"
        case ast.AnnAssign(target=target):
            return f"={ast.unparse(target)}"
        case ast.Expr(value=ast.Constant(value=str())) if number == 0:
            return '"""'
        case ast.If(test=ast.Compare(left=ast.Name(id="__name__"))):
            return MAIN
    return ""


def is_stub(node: ast.stmt) -> bool:
    """Whether a definition has no code: a model left out what it did not change."""
    return isinstance(node, DEFINITIONS) and all(
        isinstance(each, ast.Pass) or (isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant))
        for each in node.body
    )


def is_loose(unit: Statement) -> bool:
    return not unit.key and not isinstance(unit.node, (ast.Import, ast.ImportFrom))


def looks_like_method(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    first = [*node.args.posonlyargs, *node.args.args][:1]
    names = {each.id for each in node.decorator_list if isinstance(each, ast.Name)}
    return bool(first and first[0].arg in ("self", "cls")) or bool(names & {"staticmethod", "classmethod", "property"})


def decorated_as(old: ast.stmt, new: ast.stmt) -> ast.stmt:
    fields = {**dict(ast.iter_fields(new)), "decorator_list": getattr(old, "decorator_list", [])}
    return type(new)(**fields)


def lines_in_strings(node: ast.stmt) -> set[int]:
    """The lines that begin within a string whose value matters, so not within a docstring."""
    docstrings = {
        id(each.body[0].value)
        for each in ast.walk(node)
        if isinstance(each, DEFINITIONS) and isinstance(each.body[0], ast.Expr)
    }
    return {
        line
        for each in ast.walk(node)
        if isinstance(each, (ast.Constant, ast.JoinedStr)) and id(each) not in docstrings
        for line in range(each.lineno + 1, (each.end_lineno or each.lineno) + 1)
    }


def names_in_imports(text: str) -> set[str]:
    tree = parse(text)
    return {name for node in ast.walk(tree) for name in names_imported(node)} if tree else set()


def defined_in(text: str) -> list[str]:
    """The functions and classes of a file, methods as ``Class.method``; by their headers if it does not parse."""
    tree = parse(text)
    if tree is None:
        return list(dict.fromkeys(_HEADER.findall(text)))
    names = []
    for node in tree.body:
        if isinstance(node, DEFINITIONS):
            names.append(node.name)
            if isinstance(node, ast.ClassDef):
                names += [f"{node.name}.{each.name}" for each in node.body if isinstance(each, DEFINITIONS)]
    return list(dict.fromkeys(names))


def free_names(node: ast.stmt) -> set[str]:
    """The names that a definition uses and does not bind anywhere in it."""
    names = [each for each in ast.walk(node) if isinstance(each, ast.Name)]
    bound = {each.id for each in names if not isinstance(each.ctx, ast.Load)}
    bound |= {each.arg for each in ast.walk(node) if isinstance(each, ast.arg)}
    return {each.id for each in names} - bound


def has_new_lines(new: Iterable[str], old: Iterable[str]) -> bool:
    """Whether there is more than comments and blank lines that were left out."""
    known = [line.strip() for line in old]
    return any(not any(each.startswith(line.strip()) for each in known) for line in new if line.strip())
