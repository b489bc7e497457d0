"""Whether an edit loses anything of a file: names that it binds or uses, and comments.

This looks at the texts before and after only, whatever made the edit.
"""

from __future__ import annotations

import ast
import re
import symtable
import warnings
from collections.abc import Iterator, Sequence

from securecoderl_edge.generation.instruction import is_removed, new_name
from securecoderl_edge.generation.statements import DEFINITIONS, Statement, defined_in, is_loose, lines_of, statements
from securecoderl_edge.languages.python_source import names_imported, parse

_IMPORT = re.compile(r"^(?:from|import)[ \t].*", re.MULTILINE)
_ASSIGNED = re.compile(r"^(\w+)[ \t]*(?::[^=\n]+)?=(?!=)", re.MULTILINE)


class NoEdit(Exception):
    """An answer cannot be applied; the message is one sentence without its full stop."""


def check_nothing_is_lost(original: str, edited: str, instruction: str) -> None:
    """Compare the names and the comments of a file before and after an edit.

    Names within functions do not count: the functions are what changes.

    Raises:
        NoEdit: a name is bound no more that the instruction does not remove; or one that is still used; or a comment
            between the statements is gone.
    """
    before, after = parse(original), parse(edited)
    now = bound_in(edited)
    used, stored = _globals(edited) if after else ({}, set())
    used_before, _ = _globals(original) if before else ({}, set())
    lost = [name for name in bound_in(original) if name not in now and name not in stored]
    has_definitions = before is None or any(isinstance(node, DEFINITIONS) for node in before.body)
    imported = {name for node in before.body for name in names_imported(node)} if before else set()
    for name in lost:
        last = name.rpartition(".")[2]
        users = used.get(name) if "." not in name else _users_of_attribute(after, last, now)
        if users:
            raise NoEdit(f"the answer has no {name}, which {users} still uses")
        # What only a script itself used is gone with its use.
        is_spare = name in used_before and (name in imported or not has_definitions)
        if not is_spare and not is_removed(name, instruction):
            names = ", ".join(each for each in lost if not is_removed(each, instruction))
            raise NoEdit(f"the answer would delete {names}, which the instruction does not remove")
        new = new_name(name, instruction)
        if new and not any(each.rpartition(".")[2] == new for each in now):
            raise NoEdit(f"the answer removes {name}, but has no {new}")
    kept = {line.strip() for line in lines_of(edited)}
    gone = [line for line in _comments(original, before, set(lost)) if line not in kept]
    if gone:
        raise NoEdit(f"the answer leaves out the comment {gone[0]!r}")


def bound_in(text: str) -> list[str]:
    """The names that a module and its classes bind, those of a class as ``Class.name``; of a broken file, a guess."""
    tree = parse(text)
    if tree:
        return list(dict.fromkeys(bound(tree.body)))
    imports = parse("\n".join(_IMPORT.findall(text)))
    names = [*defined_in(text), *_ASSIGNED.findall(text), *bound(imports.body if imports else [])]
    return list(dict.fromkeys(names))


def bound(body: Sequence[ast.AST], prefix: str = "") -> Iterator[str]:
    """The names that statements bind by a definition, an assignment or an import, at any depth outside of functions."""
    for node in body:
        if isinstance(node, DEFINITIONS):
            yield prefix + node.name
            if isinstance(node, ast.ClassDef):
                yield from bound(node.body, f"{prefix}{node.name}.")
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for each in (inner for target in targets for inner in ast.walk(target)):
                if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store):
                    yield prefix + each.id
        else:
            yield from (prefix + name for name in names_imported(node))
            for field in ("body", "orelse", "finalbody", "handlers", "cases"):
                yield from bound(getattr(node, field, []), prefix)


def _globals(text: str) -> tuple[dict[str, str], set[str]]:
    """The global names that a text uses, each with a user; and those that it binds outside of functions in any way."""
    used: dict[str, str] = {}
    bound_there: set[str] = set()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            tables = [symtable.symtable(text, "<file>", "exec")]
        except SyntaxError:  # such as a return outside of functions; a test will show it
            return used, bound_there
    while tables:
        table = tables.pop()
        is_module = table.get_type() == "module"
        for symbol in table.get_symbols():
            if is_module or symbol.is_global():
                if symbol.is_referenced():
                    used.setdefault(symbol.get_name(), "the file" if is_module else table.get_name())
                if is_module and (symbol.is_assigned() or symbol.is_imported()):
                    bound_there.add(symbol.get_name())
        tables += table.get_children()
    tree = parse(text)
    for node in tree.body if tree else []:
        match node:
            case ast.Assign(targets=[ast.Name(id="__all__")], value=ast.List(elts=items) | ast.Tuple(elts=items)):
                for item in items:
                    if isinstance(item, ast.Constant):
                        used.setdefault(str(item.value), "__all__")
    return used, bound_there


def _users_of_attribute(tree: ast.Module | None, name: str, now: Sequence[str]) -> str:
    """What uses an attribute that no class has any more; empty if nothing does."""
    if tree is None or any(each.endswith(f".{name}") for each in now):
        return ""
    for unit in tree.body:
        for node in ast.walk(unit):
            is_read = isinstance(node, ast.Attribute) and node.attr == name and isinstance(node.ctx, ast.Load)
            args = node.args if isinstance(node, ast.Call) and ast.unparse(node.func) in ("getattr", "hasattr") else []
            if is_read or any(getattr(each, "value", None) == name for each in args):
                return getattr(unit, "name", "the file")
    return ""


def _comments(text: str, tree: ast.Module | None, lost: set[str]) -> list[str]:
    """The lines that are comments between the statements of a module, without those right above what is lost."""
    lines = lines_of(text)
    if tree is None:
        return [line.strip() for line in lines if line.startswith("#")]
    inside: set[int] = set()
    for unit in statements(tree.body):
        inside.update(range(unit.start, unit.end))
        if unit.key.partition("@")[0] in lost:
            inside.update(range(start_of_comments(lines, unit.start), unit.start))
    return [line.strip() for number, line in enumerate(lines) if number not in inside and line.lstrip().startswith("#")]


def left_out(old: Sequence[Statement], new: Sequence[Statement], answer: ast.Module) -> list[Statement]:
    """The statements among ``old`` that nothing replaces: all, or calls of what the answer nowhere calls."""
    if not new:
        return [each for each in old if is_loose(each)]
    calls = [each for each in old if isinstance(each.node, ast.Expr)]
    if len(calls) <= sum(isinstance(each.node, ast.Expr) for each in new):
        return []
    called = {ast.unparse(node.func) for node in ast.walk(answer) if isinstance(node, ast.Call)}
    return [each for each in calls if ast.unparse(each.node).partition("(")[0] not in called]


def start_of_comments(lines: Sequence[str], line: int) -> int:
    """The first of the comment lines right above a line, else that line; what begins a file is about all of it."""
    first = line
    while first and lines[first - 1].lstrip().startswith("#"):
        first -= 1
    return first if first else line
