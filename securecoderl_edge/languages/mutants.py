"""Mutants of a Python program: copies with one small fault each, which its tests should notice.

The faults are those of mutation testing (DeMillo, Lipton and Sayward, "Hints on test data selection", 1978): another
operator, a comparison with another boundary or the opposite one, a condition negated, a constant changed, a statement
left out. Some mutants compute the same as the program (*equivalent*), so a good set of tests does not kill all.
"""

from __future__ import annotations

import ast
import copy
import random
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from securecoderl_edge.languages.python_source import UNREADABLE, parse

_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitAnd,
}
_COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
}
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
# Statements whose absence changes nothing, or makes a text that is not Python.
_KEPT = (*_DEFINITIONS, ast.Global, ast.Nonlocal, ast.Pass)
_LEFT_OUT = "statement"
_MOST_NODES = 20_000  # of a program that is mutated

_Edit = tuple[str, str, Callable[[Any], None]]  # kind, what changes, and the change of a node


@dataclass(frozen=True)
class Mutant:
    """A program with one fault; ``change`` says which, with its line in the original."""

    program: str
    change: str


def mutants(source: str, entry_point: str = "", most: int = 20, seed: int = 0) -> list[Mutant]:
    """At most ``most`` different mutants, the same for the same arguments; about as many of each kind of fault.

    Args:
        entry_point: the function, method or class that tests use: only what it needs is mutated. Without one, only what
            the statements of the program need.
    """
    try:
        tree = parse(source)
        if tree is None:
            return []
        nodes = list(ast.walk(tree))
        if len(nodes) > _MOST_NODES:
            return []
        used = {id(tree), *(id(node) for each in _used(tree, entry_point) for node in _mutable(each))}
        edits = [(at, edit) for at, node in enumerate(nodes) if id(node) in used for edit in _edits(node, used)]
        found = {ast.unparse(tree): ""}
        for at, (kind, change, apply) in _in_turn(edits, random.Random(seed)):
            if len(found) > most:
                break
            mutated = copy.deepcopy(tree)
            apply(list(ast.walk(mutated))[at])
            line = "" if kind == _LEFT_OUT else f"line {getattr(nodes[at], 'lineno', 0)}: "
            found.setdefault(ast.unparse(ast.fix_missing_locations(mutated)), f"{line}{change}")
    except UNREADABLE:  # a deeply nested program, or a string that cannot be written
        return []
    return [Mutant(f"{program}\n", change) for program, change in found.items() if change]


def _used(tree: ast.Module, entry_point: str) -> Iterator[ast.stmt]:
    """The statements at the top level that the entry point needs, or that the program needs as a whole."""
    bound: dict[str, list[ast.stmt]] = {}
    for node in tree.body:
        for name in _names_bound(node):
            bound.setdefault(name, []).append(node)
    roots: list[ast.stmt] = bound.pop(entry_point, [])
    if not roots:
        roots = [node for node in tree.body if not isinstance(node, _DEFINITIONS)]
    seen = set[ast.stmt]()
    while roots:
        node = roots.pop()
        if node not in seen:
            seen.add(node)
            yield node
            named = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
            named |= {each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute)}
            # Once for each name: thousands of statements may all bind and name the same one.
            roots += [other for name in named for other in bound.pop(name, [])]


def _names_bound(node: ast.stmt) -> Iterator[str]:
    """The names that a statement at the top level defines, and those of the methods of a class."""
    if isinstance(node, _DEFINITIONS):
        yield node.name
    if isinstance(node, ast.ClassDef):
        yield from (each.name for each in node.body if isinstance(each, _DEFINITIONS))
    elif not isinstance(node, _DEFINITIONS):
        yield from (
            each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
        )


def _mutable(node: ast.AST) -> Iterator[ast.AST]:
    """A node and those below it, without docstrings, annotations, decorators and imports."""
    yield node
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list", "type_params", "format_spec"):
            continue
        for child in value if isinstance(value, list) else [value]:
            is_text = isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant)
            if isinstance(child, ast.AST) and not is_text and not isinstance(child, (ast.Import, ast.ImportFrom)):
                yield from _mutable(child)


def _edits(node: ast.AST, used: Container[int]) -> Iterator[_Edit]:
    """The changes of a node; of the statements in it, those are left out whose ids are in ``used``."""
    match node:
        case ast.Compare(ops=operators):
            for place, operator in enumerate(operators):
                for other in _COMPARISONS[type(operator)]:
                    yield "comparison", f"{_sign(operator)} becomes {_sign(other())}", _set_item("ops", place, other())
        case ast.BinOp(op=operator) | ast.AugAssign(op=operator) if type(operator) in _OPERATORS:
            changed = _OPERATORS[type(operator)]()
            yield "operator", f"{_sign(operator)} becomes {_sign(changed)}", _set("op", changed)
        case ast.BoolOp(op=operator):
            changed_to = ast.Or() if isinstance(operator, ast.And) else ast.And()
            yield "operator", f"{_sign(operator)} becomes {_sign(changed_to)}", _set("op", changed_to)
        case ast.UnaryOp(op=ast.USub()):
            yield "operator", "a minus is left out", _set("op", ast.UAdd())
        case ast.Constant(value=value):
            for constant in _other_constants(value):
                yield "constant", f"{value!r:.40} becomes {constant!r:.40}", _set("value", constant)
        case ast.If(test=test) | ast.IfExp(test=test):
            yield "condition", "a condition is negated", _set("test", ast.UnaryOp(ast.Not(), test))
        case ast.Call(func=ast.Name(id="range"), args=[*_, _]):
            yield "constant", "a range ends one earlier", _end_earlier
    for field in ("body", "orelse", "finalbody"):
        statements = getattr(node, field, None)
        for place, statement in enumerate(statements if isinstance(statements, list) else ()):
            if id(statement) in used and isinstance(statement, ast.stmt) and not isinstance(statement, _KEPT):
                yield _LEFT_OUT, f"line {statement.lineno}: left out", _set_item(field, place, ast.Pass())


def _set(field: str, value: Any) -> Callable[[Any], None]:
    return lambda node: setattr(node, field, value)


def _set_item(field: str, place: int, value: Any) -> Callable[[Any], None]:
    return lambda node: getattr(node, field).__setitem__(place, value)


def _end_earlier(call: ast.Call) -> None:
    place = 0 if len(call.args) == 1 else 1
    call.args[place] = ast.BinOp(call.args[place], ast.Sub(), ast.Constant(1))


def _sign(operator: ast.AST) -> str:
    """An operator as Python writes it."""
    one, two = ast.Name("a", ast.Load()), ast.Name("b", ast.Load())
    made: ast.expr
    if isinstance(operator, ast.cmpop):
        made = ast.Compare(one, [operator], [two])
    elif isinstance(operator, ast.boolop):
        made = ast.BoolOp(operator, [one, two])
    else:
        made = ast.BinOp(one, operator, two)  # type: ignore[arg-type]
    return ast.unparse(made)[2:-2]


def _other_constants(value: object) -> tuple[object, ...]:
    if isinstance(value, bool):
        return (not value,)
    if isinstance(value, int):
        return (value + 1, value - 1) if value > 0 else (value + 1,)
    if isinstance(value, float):
        return (value + 1.0,)
    if isinstance(value, str):
        return (f"{value}x",)
    return ()


def _in_turn(edits: Iterable[tuple[int, _Edit]], generator: random.Random) -> Iterator[tuple[int, _Edit]]:
    """The edits in a random order, one of each kind after the other."""
    kinds: dict[str, list[tuple[int, _Edit]]] = {}
    for each in edits:
        kinds.setdefault(each[1][0], []).append(each)
    for found in kinds.values():
        generator.shuffle(found)
    while any(kinds.values()):
        yield from [found.pop() for found in kinds.values() if found]
