"""What a called name can mean in a program, where Bandit's own table of imports can be misled.

Bandit keeps one table for the whole program, and the last import of a name wins, even one that never runs. So calls are
looked at again with every other meaning that their name has: of imports elsewhere, also of all names of a module, of
the builtin if an import of that name may not have run, of assignments such as ``e = eval`` and loops over such names,
of either branch of a condition, and of ``builtins``, ``sys.modules``, `getattr` and `__import__` with constants. Not
seen: names that are computed.

This file is loaded by path in a process without the package, so it imports the standard library only.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Iterator

_MOST_MEANINGS = 16
# Of a name with them, before those of builtins are shortened: as many as make a difference.
_MOST_NAMES = 4 * _MOST_MEANINGS
_BUILTINS = ("builtins.", "__builtins__.", "__builtin__.")
_ALL = "*"  # in place of a name, the names of modules of which all names are imported
# Calls that find a function by its name; Bandit has no name for a call of what another call gave.
_FINDING = frozenset(("getattr", "__import__", "importlib.import_module", ""))
# Calls that can remove or replace a name in any scope.
_UNBINDING = frozenset(("globals", "locals", "vars", "setattr", "delattr", "exec"))


class Meanings:
    """The meanings of names, collected while a program is visited."""

    def __init__(self) -> None:
        self._imported: dict[str, set[str]] = {}
        self._assigned: dict[str, list[ast.expr]] = {}
        self._attributes: dict[str, list[ast.expr]] = {}
        self._unsure: set[str] = set()  # names whose import may not run, or may be undone
        self._is_open = self._is_computed = False
        self._known: dict[tuple[str, str, int], tuple[str, ...]] = {}

    def collect(self, node: ast.AST, parent: ast.AST) -> None:
        """Note what a statement binds or deletes; at the top level it runs before what follows."""
        is_sure = isinstance(parent, ast.Module)
        if isinstance(node, (ast.For, ast.comprehension)) and not getattr(node.iter, "elts", ()):
            return
        self._known.clear()
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            module = f"{node.module}." if isinstance(node, ast.ImportFrom) and node.module else ""
            for each in node.names:
                bound = each.asname or (each.name if module else each.name.partition(".")[0])
                if each.name == _ALL:
                    self._imported.setdefault(_ALL, set()).add(module)
                    continue
                meaning = f"{module}{each.name}" if each.asname or module else bound
                known = self._imported.setdefault(bound, set())
                if not is_sure or (known and meaning not in known):
                    self._unsure.add(bound)
                known.add(meaning)
        elif isinstance(node, ast.Delete):
            self._unsure.update(each.id for each in node.targets if isinstance(each, ast.Name))
        elif isinstance(node, (ast.Assign, ast.AnnAssign, ast.NamedExpr)) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                for name, value in _pairs(target, node.value):
                    self._assigned.setdefault(name, []).append(value)
                    if isinstance(parent, ast.ClassDef):
                        self._attributes.setdefault(name, []).append(value)
                if isinstance(target, ast.Attribute):
                    self._attributes.setdefault(target.attr, []).append(node.value)
        elif isinstance(node, (ast.For, ast.comprehension)):
            for each in node.iter.elts:  # type: ignore[attr-defined]
                for name, value in _pairs(node.target, each):
                    self._assigned.setdefault(name, []).append(value)
        elif isinstance(node, ast.arguments):
            positional = [*node.posonlyargs, *node.args]
            defaults = [*zip(positional[len(positional) - len(node.defaults) :], node.defaults, strict=True)]
            defaults += [(name, value) for name, value in zip(node.kwonlyargs, node.kw_defaults, strict=True) if value]
            for argument, value in defaults:
                self._assigned.setdefault(argument.arg, []).append(value)

    def note_call(self, name: str) -> None:
        """Note a called function: some can unbind any name, some find a function by its name."""
        self._is_open = self._is_open or name in _UNBINDING
        is_computed = name in _FINDING or name.startswith(_BUILTINS) or name.endswith(".__call__")
        self._is_computed = self._is_computed or is_computed

    @property
    def is_plain(self) -> bool:
        """Whether every name means what Bandit takes it for."""
        has_builtins = any(f"{each}.".startswith(_BUILTINS) for known in self._imported.values() for each in known)
        is_bound = self._assigned or self._attributes or has_builtins or _ALL in self._imported
        return not (is_bound or self._unsure or self._is_open or self._is_computed)

    def of(self, function: ast.expr) -> set[str]:
        """The qualified names that a called expression can have."""
        found = set()
        for name in self._resolve(function, 0):
            prefix = next((each for each in _BUILTINS if name.startswith(each)), "")
            found.add(name[len(prefix) :])
            if len(found) >= _MOST_MEANINGS:
                break
        return found

    def _resolve(self, node: ast.expr, depth: int) -> tuple[str, ...]:
        """Distinct names, the nearest first."""
        if depth > 8:  # names that are assigned to each other
            return ()
        if isinstance(node, ast.Name):
            return self._kept((node.id, "", depth), lambda: self._names_of(node, depth))
        return _first(self._names_of(node, depth))

    def _kept(self, key: tuple[str, str, int], names: Callable[[], Iterator[str]]) -> tuple[str, ...]:
        """What a name means at a depth is asked for at every call, and large programs have thousands of both."""
        if key not in self._known:
            self._known[key] = _first(names())
        return self._known[key]

    def _names_of(self, node: ast.expr, depth: int) -> Iterator[str]:
        match node:
            case ast.Name(id=name):
                yield from sorted(self._imported.get(name, ()))
                if name not in self._imported or name in self._unsure or self._is_open:
                    yield name
                    if not hasattr(builtins, name):
                        yield from (f"{module}{name}" for module in sorted(self._imported.get(_ALL, ())))
                for value in self._assigned.get(name, ()):
                    if not (isinstance(value, ast.Name) and value.id == name):
                        yield from self._resolve(value, depth + 1)
            case ast.Attribute(value=value, attr=attribute):
                yield from (f"{name}.{attribute}" for name in self._resolve(value, depth + 1))
                yield from self._kept(("", attribute, depth), lambda: self._assigned_to_attribute(attribute, depth))
                if attribute == "__call__":
                    yield from self._resolve(value, depth + 1)
            case ast.NamedExpr(value=value):
                yield from self._resolve(value, depth + 1)
            case ast.IfExp(body=one, orelse=other):
                yield from (*self._resolve(one, depth + 1), *self._resolve(other, depth + 1))
            case ast.BoolOp(values=values):
                for value in values[:_MOST_MEANINGS]:
                    yield from self._resolve(value, depth + 1)
            case ast.Subscript(value=value, slice=ast.Constant(value=str(key))):
                for name in self._resolve(value, depth + 1):
                    if name == "sys.modules" or f"{name}.".startswith(_BUILTINS):
                        yield key if name == "sys.modules" else f"{name}.{key}"
            case ast.Call(func=ast.Name(id="getattr"), args=[value, ast.Constant(value=str(attribute)), *_]):
                yield from (f"{name}.{attribute}" for name in self._resolve(value, depth + 1))
            case ast.Call(func=ast.Name(id="__import__"), args=[ast.Constant(value=str(name)), *_]):
                yield name
            case ast.Call(func=ast.Attribute(attr="import_module"), args=[ast.Constant(value=str(name)), *_]):
                yield name

    def _assigned_to_attribute(self, attribute: str, depth: int) -> Iterator[str]:
        for each in self._attributes.get(attribute, ()):
            yield from self._resolve(each, depth + 1)


def _first(names: Iterator[str]) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for name in names:
        found[name] = None
        if len(found) >= _MOST_NAMES:
            break
    return tuple(found)


def _pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    """Names and what they are bound to, where that is a name itself or a part of a module."""
    match target, value:
        case ast.Name(id=name), (
            ast.Name() | ast.Attribute() | ast.Call() | ast.NamedExpr() | ast.IfExp() | ast.BoolOp() | ast.Subscript()
        ):
            yield name, value
        case ((ast.Tuple(elts=names) | ast.List(elts=names)), (ast.Tuple(elts=values) | ast.List(elts=values))):
            for each in zip(names, values, strict=False):
                yield from _pairs(*each)
