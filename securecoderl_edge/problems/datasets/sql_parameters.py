"""A program whose SQL is built from texts, rewritten with parameters: what goes into a query cannot change its form.

Queries are followed through f-strings, ``+``, ``%``, ``str.format`` and variables that are assigned once. Each value in
one becomes ``?``, with the quotes and the ``%`` of LIKE around it, and goes to ``execute`` as a parameter. Names of
columns or other parts of a query cannot be parameters: such a program then fails its tests, which decide at the import.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Collection, Iterable

from securecoderl_edge.languages.python_source import parse

_SQL = re.compile(r"\s*(?:SELECT|INSERT|UPDATE|DELETE|WITH|REPLACE)\b", re.IGNORECASE)
_FIELD = re.compile(r"\{(\w*)\}|%[sd]")
_LONGEST = 1 << 17
_MOST_PARTS, _LONGEST_PART, _MOST_PASSES = 200, 10_000, 20
_Part = str | ast.expr
_Texts = dict[str, ast.expr | list[_Part]]  # the values of variables, once they were looked at their parts


def with_parameters(program: str) -> str:
    """The program with parameters in its queries; empty if there is nothing to change, or it is not understood."""
    tree = parse(program) if len(program) <= _LONGEST else None
    if tree is None:
        return ""
    texts = _assigned_once(tree)
    changed = False
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(attr="execute"), args=[query], keywords=[]):
                parts = _parts(query, texts)
                if not parts or not isinstance(parts[0], str) or not _SQL.match(parts[0]):
                    continue
                if any(not isinstance(part, str) for part in parts):
                    text, values = _split(parts)
                    node.args = [ast.Constant(text), ast.Tuple(values, ast.Load())]
                    changed = True
    if not changed:
        return ""
    for _ in range(_MOST_PASSES):  # a query of parts leaves its parts behind
        if not (unused := texts.keys() - _loaded(tree)):
            break
        tree = _Without(unused).visit(tree)
        texts = {name: value for name, value in texts.items() if name not in unused}
    return f"{ast.unparse(ast.fix_missing_locations(tree))}\n"


def _loaded(tree: ast.Module) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}


class _Without(ast.NodeTransformer):
    """Removes the assignments of some variables."""

    def __init__(self, names: Collection[str]) -> None:
        self._names = names

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        match node.targets:
            case [ast.Name(id=name)] if name in self._names:
                return ast.Pass()
        return node


def _assigned_once(tree: ast.Module) -> _Texts:
    """The value of each variable that has only one, if it is a text that is put together."""
    stored = Counter(
        node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    )
    found: _Texts = {}
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if stored[name] == 1 and _is_text(value):
                found[name] = value
    return found


def _is_text(value: ast.expr) -> bool:
    match value:
        case ast.JoinedStr() | ast.Constant(value=str()):
            return True
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _is_text(left) or _is_text(right)
        case ast.BinOp(left=left, op=ast.Mod()):
            return _is_text(left)
        case ast.Call(func=ast.Attribute(value=ast.Constant(value=str()), attr="format")):
            return True
    return False


def _parts(value: ast.expr, texts: _Texts) -> list[_Part]:
    """A text as literals and values, in order."""
    match value:
        case ast.Constant(value=str() as text):
            return [text]
        case ast.JoinedStr(values=values):
            return _joined(part for each in values for part in _parts(each, texts))
        case ast.FormattedValue(value=inner, conversion=-1, format_spec=None):
            return _parts(inner, texts)
        case ast.Name(id=name) if name in texts:
            known = texts[name]
            if isinstance(known, ast.expr):
                texts[name] = [value]  # no variable is in itself
                known = texts[name] = _parts(known, texts)
            return known
        case ast.BinOp(left=left, op=ast.Add(), right=right) if _is_text(left) or _is_text(right):
            return _joined([*_parts(left, texts), *_parts(right, texts)])
        case ast.BinOp(left=ast.Constant(value=str() as text), op=ast.Mod(), right=right):
            return _filled(text, right.elts if isinstance(right, ast.Tuple) else [right], {}, texts) or [value]
        case ast.Call(func=ast.Attribute(value=ast.Constant(value=str() as text), attr="format"), args=args):
            named = {each.arg: each.value for each in value.keywords if each.arg}
            return _filled(text, args, named, texts) or [value]
        case ast.Call(func=ast.Name(id="str"), args=[inner], keywords=[]):
            return _parts(inner, texts)
    return [value]


def _filled(text: str, values: list[ast.expr], named: dict[str, ast.expr], texts: _Texts) -> list[_Part]:
    """The parts of a text with fields; none if a field has no value."""
    parts: list[_Part] = []
    last, left = 0, list(values)
    for field in _FIELD.finditer(text):
        name = field[1] or ""
        if name and not name.isdigit():
            given = named.get(name)
        elif name:
            given = values[int(name)] if int(name) < len(values) else None
        else:
            given = left.pop(0) if left else None
        if given is None:
            return []
        parts += [text[last : field.start()], *_parts(given, texts)]
        last = field.end()
    return _joined([*parts, text[last:]])


def _joined(parts: Iterable[_Part]) -> list[_Part]:
    """The parts with neighboring literals as one."""
    found: list[_Part] = []
    for part in parts:
        if isinstance(part, str) and found and isinstance(found[-1], str):
            found[-1] = (found[-1] + part)[:_LONGEST_PART]
        elif part != "" and len(found) < _MOST_PARTS:
            found.append(part)
    return found


def _split(parts: list[_Part]) -> tuple[str, list[ast.expr]]:
    """The query with question marks, and the values in their order."""
    text, values = "", list[ast.expr]()
    left = list(parts)
    while left:
        part = left.pop(0)
        if isinstance(part, str):
            text += part
            continue
        before = re.search(r"(['\"])(%?)$", text)
        after = left[0] if left and isinstance(left[0], str) else ""
        ending = re.match(rf"(%?){before[1]}", after) if before else None
        if before and ending:
            text, left[0] = text[: before.start()], after[ending.end() :]
            around = [ast.Constant(before[2]), part, ast.Constant(ending[1])]
            if before[2] or ending[1]:
                part = ast.JoinedStr([each if isinstance(each, ast.Constant) else _field(each) for each in around])
        text += "?"
        values.append(part)
    return text, values


def _field(value: ast.expr) -> ast.FormattedValue:
    return ast.FormattedValue(value, -1, None)
