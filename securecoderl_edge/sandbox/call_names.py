"""What a called name can mean in a program, where Bandit's own table of imports can be misled.

Bandit keeps one table for the whole program, and the last import of a name wins, even one that never runs. So calls are
looked at again with every other meaning that their name has: of imports elsewhere, also of all names of a module, of
the builtin if an import of that name may not have run, of assignments such as ``e = eval``, loops and ``match``,
of either branch of a condition, of what a list or dictionary holds, of base classes, of ``builtins``, ``sys.modules``,
``vars``, namespaces of functions and frames, `getattr` and `__import__` with texts joined of constants. A function that
is given to another one, returned or used as a decorator counts as called. `call_arguments` looks at arguments.

Not seen: names that are computed in another way, and functions that leave a container through a further call. This file
is loaded by path in a process without the package, so it imports the standard library only.
"""

from __future__ import annotations

import ast
import builtins
import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import islice

_MOST_MEANINGS = 16
# Of a name with them, before those of builtins are shortened: as many as make a difference.
_MOST_NAMES = 4 * _MOST_MEANINGS
_DEEPEST = 64  # names that are assigned to each other, and parts of expressions within each other
_OF_BUILTINS = frozenset(("builtins", "__builtins__", "__builtin__", "bltns"))  # the last one is that of `enum`
_THERE = frozenset(("__builtins__", *dir(builtins)))  # names that need no import, and no statement that gives them one
_BUILTINS = tuple(f"{each}." for each in _OF_BUILTINS)
# Without one of these in it, a program has no names with another meaning. Some tests define `sys` and `random` for it.
ODD_WORDS = ("import", "eval", "exec", "__", "globals", "vars", "locals", "sys", "_os", "getattr", "builtins", "bltns")
_ALL = "*"  # in place of a name, the names of modules of which all names are imported
_IMPORTING = frozenset(("__import__", "importlib.import_module", "importlib.__import__"))
# Calls that find a function by its name; Bandit has no name for a call of what another call gave.
_FINDING = _IMPORTING | {"getattr", "vars", ""}
# Calls that can remove or replace a name in any scope.
_UNBINDING = frozenset(("globals", "locals", "vars", "setattr", "delattr", "exec"))
# The same functions under the names of the modules that they are written in.
_WRITTEN_IN = {"posix": "os", "nt": "os"} | {f"_{each}": each for each in ("os", "pickle", "random")}
_WRITTEN_IN |= {f"_{each}": "hashlib" for each in ("md5", "sha1")}
# Calls that look at a function or class, and do not call it.
_LOOKING = frozenset(("isinstance", "issubclass", "callable", "hasattr", "id", "repr", "super"))
_TAKING = frozenset(("get", "pop", "setdefault", "__getitem__"))  # out of a container
_GIVING = frozenset(("import_module", "__import__", "join", "getattr", "vars", "globals", "locals", "__getattribute__"))
_NAMESPACE = ".__dict__"
_OF_ANY = dict.fromkeys(("__builtins__", "f_builtins"), ("builtins",)) | {"__call__": (), "__self__": ()}  # attributes
_OF_ANY |= dict.fromkeys(("__globals__", "f_globals"), (_NAMESPACE,))
_RUNNING = frozenset(("eval", "exec"))
_MODULES = _OF_BUILTINS | sys.stdlib_module_names | {"__main__"}
_NAMES = _RUNNING | _UNBINDING | _FINDING | {"__builtins__", *sys.stdlib_module_names}
_COMPREHENSION = (ast.ListComp, ast.SetComp, ast.GeneratorExp)
_HOLDING = (ast.Tuple, ast.List, ast.Set, ast.Dict, ast.Starred, ast.DictComp, *_COMPREHENSION)
_MEANINGFUL = (ast.Name, ast.Attribute, ast.Call, ast.NamedExpr, ast.IfExp, ast.BoolOp, ast.Subscript)
_TEXTS = (ast.Constant, ast.BinOp, ast.JoinedStr)


class Meanings:
    """The meanings of names, collected while a program is visited; the functions are those of `call_arguments`."""

    def __init__(self, joined_texts: Callable[..., Iterator[str]], is_hmac: Callable[..., bool]) -> None:
        self._joined_texts, self._is_hmac = joined_texts, is_hmac
        self._imported: dict[str, set[str]] = {}
        self._roots = set[str]()  # the first names of all that is imported
        self._assigned: dict[str, list[ast.expr]] = {}
        self._attributes: dict[str, list[ast.expr]] = {}
        self._unsure: set[str] = set()  # names whose import may not run, or may be undone
        self.is_open = self._is_computed = False
        self._known: dict[tuple[str | int, str, int], tuple[str, ...]] = {}
        self._given: list[tuple[ast.expr, ast.Call | None]] = []

    def collect(self, node: ast.AST, parent: ast.AST) -> None:
        """Note what a statement binds or deletes; at the top level it runs before what follows."""
        match node:
            case ast.Return(value=value) | ast.Yield(value=value) | ast.YieldFrom(value=value) | ast.Lambda(body=value):
                self._give(value)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                for value in (*node.decorator_list, *(each.value for each in getattr(node, "keywords", ()))):
                    self._give(value)
                for base in getattr(node, "bases", ()):
                    self._bind(node, base)
            case ast.Import() | ast.ImportFrom():
                self._import(node, parent)
            case ast.Delete(targets=targets):
                self._unsure.update(each.id for each in targets if isinstance(each, ast.Name))
            case ast.Assign(value=value) | ast.AnnAssign(value=ast.expr() as value) | ast.NamedExpr(value=value):
                for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                    self._bind(target, value, isinstance(parent, ast.ClassDef))
            case ast.AugAssign(target=target, value=value) if not isinstance(value, ast.Constant):
                self._bind(target, value)
            case ast.For() | ast.comprehension():
                for each in getattr(node.iter, "elts", [node.iter]):
                    self._bind(node.target, each)
            case ast.Match(subject=value):
                for part in (part for each in node.cases for part in ast.walk(each.pattern)):
                    if name := getattr(part, "name", None) or getattr(part, "rest", None):
                        self._bind(ast.Name(name), value)
                    if isinstance(part, ast.MatchClass):
                        for attribute, inner in zip(part.kwd_attrs, part.kwd_patterns, strict=True):
                            self._bind(ast.Name(getattr(inner, "name", None) or ""), ast.Attribute(value, attribute))
            case ast.arguments():
                positional = [*node.posonlyargs, *node.args]
                self._defaults(positional[len(positional) - len(node.defaults) :], node.defaults)
                self._defaults(node.kwonlyargs, node.kw_defaults)

    def note_call(self, node: ast.Call, name: str) -> None:
        """Note a called function: some can unbind any name, some find a function by its name."""
        self.is_open = self.is_open or name in _UNBINDING
        is_computed = name in _FINDING or name.startswith(_BUILTINS) or name.endswith(".__call__")
        self._is_computed = self._is_computed or is_computed or name.count(".") > 1 or not _is_named(node.func)
        if not (name in _LOOKING or (name == "type" and len(node.args) == 1)):
            for value in (*node.args, *(each.value for each in node.keywords)):
                self._give(value, node)

    @property
    def is_plain(self) -> bool:
        """Whether every name means what Bandit takes it for."""
        has_others = any([*self._plain_names(each)] != [each] for known in self._imported.values() for each in known)
        is_bound = self._assigned or self._attributes or has_others or _ALL in self._imported
        return not (is_bound or self._unsure or self.is_open or self._is_computed)

    def of(self, function: ast.expr) -> set[str]:
        """The qualified names that a called expression can have, without local ones: these can be anything."""
        found: set[str] = set()
        for name in () if self._is_local(function) else self._resolve(function, 0):
            found.update(each for each in self._plain_names(name) if self._is_global(each))
            if len(found) >= _MOST_MEANINGS:
                break
        return found

    def given(self) -> Iterator[ast.Call]:
        """Calls, as whoever is given a function could make them, with the other arguments that come with it."""
        for value, call in self._given:
            if not self.of(value):
                continue
            if call is None:
                yield ast.copy_location(ast.Call(value, [_something(value)], []), value)
                continue
            if self._is_hmac(call, self) and all(each.startswith("hashlib.") for each in self.of(value)):
                continue
            place = next((place for place, each in enumerate(call.args, 1) if each is value), len(call.args))
            arguments: list[ast.expr] = [*call.args[place:]]
            keywords = []
            for each in call.keywords:
                if each.arg == "args":
                    arguments.append(ast.Starred(each.value))
                elif each.value is not value:
                    keywords.append(ast.keyword(None, each.value) if each.arg == "kwargs" else each)
            yield ast.copy_location(ast.Call(value, arguments or [_something(call)], keywords), call)

    def _is_global(self, name: str) -> bool:
        """Whether a name is of something in a module, or of a builtin that matters; a local name can be anything."""
        first, _, rest = name.partition(".")
        return name in _RUNNING if not rest else first in sys.stdlib_module_names or first in self._roots

    def texts(self, node: ast.AST, depth: int = 0) -> tuple[str, ...]:
        """The texts that an expression of constants can have, the first few."""
        if depth > _DEEPEST:
            return ()
        place = node.id if isinstance(node, ast.Name) else id(node)
        return self.kept((place, "text", depth), lambda: self._texts_of(node, depth + 1))[:_MOST_MEANINGS]

    def _texts_of(self, node: ast.AST, depth: int) -> Iterator[str]:
        if isinstance(node, ast.Name):
            return (text for value in self._assigned.get(node.id, ()) for text in self.texts(value, depth))
        return self._joined_texts(node, lambda part: self.texts(part, depth))

    def literals(self, node: ast.expr) -> list[ast.expr]:
        """The lists or dictionaries that a name is assigned, if there are any; else the expression itself."""
        return list(islice((each for each in self._values(node) if isinstance(each, _HOLDING)), _MOST_NAMES)) or [node]

    def _values(self, node: ast.expr) -> list[ast.expr]:
        """What a name or an attribute is assigned; another expression itself."""
        match node:
            case ast.Name(id=name):
                return self._assigned.get(name, [])
            case ast.Attribute(attr=attribute):
                return self._attributes.get(attribute, [])
            case ast.NamedExpr(value=value):
                return [value]
        return [node]

    def _is_local(self, node: ast.expr) -> bool:
        """Whether an expression is a name of which nothing is known, or an attribute of one."""
        while isinstance(node, ast.Attribute) and node.attr not in self._attributes and node.attr not in _OF_ANY:
            node = node.value
        name = getattr(node, "id", None)
        is_known = name in self._imported or name in self._assigned or name in _NAMES or _ALL in self._imported
        return name is not None and not is_known

    def _import(self, node: ast.Import | ast.ImportFrom, parent: ast.AST) -> None:
        module = f"{node.module}." if isinstance(node, ast.ImportFrom) and node.module else ""
        for each in node.names:
            self._roots.add((module or each.name).partition(".")[0])
            bound = each.asname or (each.name if module else each.name.partition(".")[0])
            if each.name == _ALL:
                self._imported.setdefault(_ALL, set()).add(module)
                continue
            meaning = f"{module}{each.name}" if each.asname or module else bound
            known = self._imported.setdefault(bound, set())
            if not isinstance(parent, ast.Module) or (known and meaning not in known):
                self._unsure.add(bound)
            if isinstance(parent, ast.ClassDef):
                self._attributes.setdefault(bound, []).append(ast.Name(bound))
            known.add(meaning)

    def _bind(self, target: ast.AST, value: ast.expr, is_in_class: bool = False) -> None:
        """Note what is bound to a name, an attribute, or something in what they hold."""
        if isinstance(target, (ast.Tuple, ast.List)):
            values = value.elts if isinstance(value, (ast.Tuple, ast.List)) else []
            if len(values) != len(target.elts) or any(isinstance(each, ast.Starred) for each in target.elts + values):
                values = [value] * len(target.elts)  # each can have any of them
            for each in zip(target.elts, values, strict=True):
                self._bind(*each, is_in_class)
            return
        match target:
            case ast.Subscript(value=ast.Call() | ast.Attribute(), slice=ast.Constant(value=str(key))):
                self._bind(ast.Name(key), value, True)  # in a namespace, such as `globals()`
            case ast.Subscript(value=ast.Name(), slice=ast.Constant(value=str()) as key):
                value = ast.Dict([key], [value])
        while isinstance(target, (ast.Subscript, ast.Starred)):
            target = target.value
        name = target.id if isinstance(target, ast.Name) else getattr(target, "name", "")
        is_held = len(_held(value)) <= _MOST_NAMES or any(map(_is_meaningful, _held(value)))
        if not (is_held if isinstance(value, _HOLDING) else isinstance(value, _TEXTS) or _is_meaningful(value)):
            return
        if name and not (isinstance(value, ast.Name) and value.id == name):
            self._assigned.setdefault(name, []).append(value)
        if isinstance(target, ast.Attribute) or (is_in_class and name):
            attribute = name or getattr(target, "attr", "")
            self._attributes.setdefault(attribute, []).append(value)
            if attribute.startswith("__") and (name or attribute.endswith("__")):
                self._give(value)  # Python calls it

    def _defaults(self, arguments: Iterable[ast.arg], values: Iterable[ast.expr | None]) -> None:
        for argument, value in zip(arguments, values, strict=True):
            if value is not None:
                self._bind(ast.Name(argument.arg), value)

    def _give(self, value: ast.expr | None, call: ast.Call | None = None) -> None:
        if isinstance(value, (*_MEANINGFUL, *_HOLDING)):
            self._given.append((value, call))

    def _resolve(self, node: ast.expr, depth: int) -> tuple[str, ...]:
        """Distinct names, the nearest first."""
        if depth > _DEEPEST:
            return ()
        place = node.id if isinstance(node, ast.Name) else id(node)
        return self.kept((place, "", depth), lambda: self._names_of(node, depth))

    def kept(self, key: tuple[str | int, str, int], names: Callable[[], Iterator[str]]) -> tuple[str, ...]:
        """What a name means at a depth is asked for at every call, and large programs have thousands of both."""
        if key not in self._known:
            self._known[key] = _first(names())
        return self._known[key]

    def _names_of(self, node: ast.expr, depth: int) -> Iterator[str]:
        match node:
            case ast.Name(id=name):
                yield from sorted(self._imported.get(name, ()))
                if name not in self._imported or name in self._unsure or self.is_open:
                    # A name on the way to others is not a meaning of its own.
                    yield from [name] if not depth or name not in self._assigned or name in _THERE else ()
                    if name not in _THERE:
                        yield from (f"{module}{name}" for module in sorted(self._imported.get(_ALL, ())))
                for value in self._assigned.get(name, ()):
                    yield from self._resolve(value, depth + 1)
            case ast.Attribute(value=value, attr=attribute):
                yield from (f"{name}.{attribute}" for name in self._resolve(value, depth + 1))
                yield from self.kept(("", attribute, depth), lambda: self._assigned_to_attribute(attribute, depth))
                yield from self._resolve(value, depth + 1) if attribute == "__call__" else _OF_ANY.get(attribute, ())
            case ast.NamedExpr(value=value):
                yield from self._resolve(value, depth + 1)
            case ast.IfExp(body=one, orelse=other) | ast.BinOp(left=one, right=other):  # or two lists or dictionaries
                yield from (*self._resolve(one, depth + 1), *self._resolve(other, depth + 1))
            case ast.BoolOp(values=values):
                for value in values[:_MOST_MEANINGS]:
                    yield from self._resolve(value, depth + 1)
            case ast.Subscript(value=value, slice=key):
                yield from self._taken(value, key, depth)
            case ast.Call(func=ast.Attribute(value=value, attr=attribute), args=arguments) if attribute in _TAKING:
                yield from self._taken(value, arguments[0] if arguments else value, depth)
                for other in arguments[1:]:
                    yield from self._resolve(other, depth + 1)
            case ast.Call(func=function) if not self._is_local(function):
                arguments = node.args or [each.value for each in node.keywords if each.arg == "name"]
                for name in self._resolve(function, depth + 1):
                    yield from self._found_by(_without_builtins(name), arguments, depth)
            case _:
                for value in _held(node):
                    if _is_meaningful(value):
                        yield from self._resolve(value, depth + 1)

    def _found_by(self, function: str, arguments: list[ast.expr], depth: int) -> Iterator[str]:
        """What a call means that finds a module, an attribute or the names of one."""
        match function, arguments:
            case "getattr", [value, key, *rest]:
                for text in self.texts(key):
                    yield from self._names_of(ast.Attribute(value, text), depth)
                for other in rest:
                    yield from self._resolve(other, depth + 1)
            case "vars", [value]:
                yield from (f"{name}{_NAMESPACE}" for name in self._resolve(value, depth + 1))
            case (("vars" | "globals" | "locals"), []):
                yield _NAMESPACE
            case _, [key, *_] if function in _IMPORTING:
                yield from self.texts(key)
            case _, [key] if function.endswith(".__getattribute__"):
                yield from (function.replace("__getattribute__", text) for text in self.texts(key))

    def _taken(self, container: ast.expr, key: ast.expr, depth: int) -> Iterator[str]:
        """What is in a container: by its key if that is known, else anything."""
        texts = self.texts(key)
        for name in self._resolve(container, depth + 1):
            if name.endswith("sys.modules"):  # also of another module
                yield from texts
            elif name == _NAMESPACE:
                for text in texts:
                    yield from self._resolve(ast.Name(text), depth + 1)
            elif name.endswith(_NAMESPACE) or name.rpartition(".")[2] in _OF_BUILTINS:
                for text in texts:
                    yield f"{name.removesuffix(_NAMESPACE)}.{text}"
                    yield from self._assigned_to_attribute(text, depth)
            elif not isinstance(container, (ast.Name, ast.Attribute, *_HOLDING)):
                yield name
        for held in self._values(container):
            if isinstance(held, ast.Dict) and texts:
                values = [value for each, value in zip(held.keys, held.values, strict=True) if _can_be(each, texts)]
            elif (
                isinstance(held, (ast.Tuple, ast.List)) and isinstance(key, ast.Constant) and isinstance(key.value, int)
            ):
                values = held.elts[key.value :][:1]
            else:
                values = _held(held) or [held]
            for value in (each for each in values if each is not container and _is_meaningful(each)):
                yield from self._resolve(value, depth + 1)

    def _assigned_to_attribute(self, attribute: str, depth: int) -> Iterator[str]:
        for each in self._attributes.get(attribute, ()):
            yield from self._resolve(each, depth + 1)

    @staticmethod
    def _plain_names(name: str) -> Iterator[str]:
        """A name by its usual module, and without another one before it: ``os.system`` of ``shutil.os.system``."""
        first, *parts = _without_builtins(name).split(".")
        first = _WRITTEN_IN.get(first, first)
        yield ".".join((first, *parts))
        known = _MODULES if first in _MODULES else {"__builtins__"}
        for place, part in enumerate(parts[:-1], 1):
            for module in {part, part.removeprefix("_")} & known:  # such as `tempfile._os`
                yield _without_builtins(".".join((module, *parts[place:])))


def _first(names: Iterator[str]) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for name in names:
        found[name] = None
        if len(found) >= _MOST_NAMES:
            break
    return tuple(found)


def _without_builtins(name: str) -> str:
    function, _, rest = name.partition(".__self__.")
    name = rest if rest and function in _THERE else name
    return name[len(next((each for each in _BUILTINS if name.startswith(each)), "")) :]


def _held(node: ast.AST) -> list[ast.expr]:
    """The expressions whose values a literal holds; none for another expression."""
    match node:
        case ast.Tuple(elts=values) | ast.List(elts=values) | ast.Set(elts=values) | ast.Dict(values=values):
            return values
        case ast.Starred(value=value) | ast.DictComp(value=value):
            return [value]
    return [node.elt] if isinstance(node, _COMPREHENSION) else []


def _is_meaningful(node: ast.expr) -> bool:
    """Whether a value can be a function or a module that has a name, or hold one."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr in _TAKING or node.func.attr in _GIVING
    return isinstance(node, (*_MEANINGFUL, *_HOLDING, ast.BinOp))


def _is_named(function: ast.expr) -> bool:
    """Whether a called expression begins with a name, a text, or a call that takes nothing out of a container."""
    while isinstance(function, ast.Attribute):
        function = function.value
    if isinstance(function, ast.Call):
        return getattr(function.func, "attr", "") not in _TAKING
    return isinstance(function, (ast.Name, ast.Constant, ast.JoinedStr))


def _can_be(key: ast.expr | None, texts: tuple[str, ...]) -> bool:
    return not isinstance(key, ast.Constant) or key.value in texts


def _something(place: ast.expr) -> ast.expr:
    """An argument of which nothing is known."""
    return ast.copy_location(ast.Name("argument", ast.Load()), place)
