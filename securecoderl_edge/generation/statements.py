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
# Comments in place of code.
_ELISION = re.compile(
    r"^#\s*(?:\.\.\.|…)|(?:\.\.\.|…)$|\bexisting code\b"
    r"|\brest of (?:the|this|your) (?:code|file|function|method|class|module|implementation)\b",
    re.IGNORECASE,
)
_MAYBE_ELISION = re.compile(r"\b(?:rest of|unchanged|same as (?:before|above)|remains? the same)\b", re.IGNORECASE)
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
            names = [ast.unparse(each).partition("(")[0].rpartition(".")[2] for each in node.decorator_list]
            kinds = [each for each in names if each in ("setter", "getter", "deleter")]
            if "overload" in names or "register" in names:  # one of several, which its parameters tell apart
                kinds = [*map(ast.unparse, node.decorator_list), ast.unparse(node.args)]
            return "@".join([node.name, *kinds])
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


def is_stub(node: ast.AST) -> bool:
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


def parameters_of(node: ast.stmt) -> list[str]:
    """The names of a function's parameters; none of another statement."""
    if not isinstance(node, FUNCTIONS):
        return []
    every = node.args
    return [each.arg for each in (*every.posonlyargs, *every.args, *every.kwonlyargs)]


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


def end_of_header(lines: Sequence[str], node: ast.ClassDef) -> int:
    """The line behind the header of a class whose members are on lines below it."""
    line = statements(node.body)[0].start
    while not lines[line - 1].strip() or lines[line - 1].lstrip().startswith("#"):
        line -= 1
    return line


def has_open_body(node: ast.stmt) -> bool:
    """Whether it is a class whose members are on lines below its header."""
    return isinstance(node, ast.ClassDef) and node.body[0].lineno > node.lineno


def header_of(node: ast.stmt) -> str:
    """The bases, keywords and decorators of a class, for a comparison."""
    parts = (getattr(node, name) for name in ("bases", "keywords", "decorator_list"))
    return " ".join(str([ast.dump(each) for each in part]) for part in parts)


def named_as(line: str, node: ast.ClassDef, name: str) -> str:
    """The line with the name of a class, with another name."""
    return re.sub(rf"\b{node.name}\b", name, line, count=1)


def trailing_comment(line: str, column: int) -> str:
    """The comment behind a column, which `ast` counts in bytes; empty if something else is there."""
    rest = line.encode("utf-8", "surrogatepass")[column:].decode("utf-8", "surrogatepass").strip()
    return rest if rest.startswith("#") else ""


def nested_in(body: Sequence[Statement], depth: int) -> set[str]:
    """The definitions within the statements of a module, without the methods of its classes; at depth 1, of a class."""
    own = {id(each.node) for each in body}
    if not depth:
        members = [each for unit in body if isinstance(unit.node, ast.ClassDef) for each in unit.node.body]
        own |= {id(each) for each in members if isinstance(each, FUNCTIONS)}
    inner = [each for unit in body for each in ast.walk(unit.node) if id(each) not in own]
    return {each.name for each in inner if isinstance(each, DEFINITIONS)}


def elision(answer: str, original: str) -> str:
    """What stands in an answer for code that it leaves out: dots or a comment; empty if nothing does.

    Such a comment has a line of its own, and dots or clear words; or less clear ones at the end of its block.
    """
    tree = parse(answer)
    for node in ast.walk(tree) if tree and "..." not in original else []:
        body = getattr(node, "body", None)
        # Between definitions dots are harmless: those that an answer lacks stay.
        is_part = isinstance(body, list) and len(body) > 1 and not isinstance(node, (ast.Module, ast.ClassDef))
        is_part = is_part and not is_stub(node)
        if is_part and any(isinstance(each, ast.Expr) and ast.unparse(each) == "..." for each in body or []):
            return "..."
    lines = answer.split("\n")
    for number, line in enumerate(lines):
        comment = line.strip()
        if not comment.startswith("#") or comment in original:
            continue
        following = next((each for each in lines[number + 1 :] if each.strip()), "")
        is_last = len(following) - len(following.lstrip()) < len(line) - len(line.lstrip()) or not following
        if _ELISION.search(comment) or (is_last and _MAYBE_ELISION.search(comment)):
            return comment
    return ""
