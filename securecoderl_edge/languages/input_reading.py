"""Whether a Python program reads its input: the arguments of a function, or standard input.

By the syntax tree alone: nothing runs. A name counts as read if something depends on it that can be observed: a value
that is returned, an exception, a call of an unknown function, or a condition that decides about one of these. So
``del n``, ``_ = n``, ``print(n)`` in a function, code after ``return``, and branches that all return the same constant
read nothing.

When in doubt, a program reads: a read without effect (``n + 0 * m``, a call of a helper that ignores its argument, a
variable that has the same value in all branches) counts, and so does anything that `_REFLECTION` names. One argument is
enough.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator, Sequence

from securecoderl_edge.languages.python_source import parse

_INPUT = "<input>"  # among names: standard input, or anything else that a program may find by reflection
_REFLECTION = {"eval", "exec", "compile", "globals", "locals", "vars", "getattr", "__import__", "_getframe", "inspect"}
_STDIN_NAMES = {"input", "stdin", "__stdin__", "open", "fileinput"}
_STDIN_ATTRIBUTES = {"input", "stdin", "__stdin__", "read", "readv", "readline", "readlines", "fdopen", "open"}
# Calls without an effect that a test can observe, whatever their arguments.
_HARMLESS = {"bool", "id", "isinstance", "len", "repr", "str", "type"}
_READING = {"float", "input", "int", "list", "map", "read", "readline", "readlines", "split", "splitlines", "strip"}
_CACHES = {"cache", "lru_cache", "staticmethod", "classmethod"}
_DISPLAYS = (ast.List, ast.Set, ast.Dict, ast.ListComp, ast.SetComp, ast.DictComp)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_NAMELESS = {"ctx", "op", "ops"}
_BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")
_MOST_CHARACTERS = 20_000
_MOST_PASSES = 20

_Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


class _Unclear(Exception):
    """The program is too large, or its function cannot be found."""


def reads_input(source: str, function: str | None) -> bool | None:
    """Whether a program reads an argument of its ``function``, or standard input if None; None if that is unclear."""
    tree = parse(source) if len(source) <= _MOST_CHARACTERS else None
    if tree is None:
        return None
    try:
        _drop_dead_code(tree)
        if function is None:
            aliases = {
                alias.asname
                for node in _statements(tree.body)
                if isinstance(node, ast.ImportFrom | ast.Import)
                for alias in node.names
                if alias.asname and alias.name in _STDIN_NAMES | _REFLECTION
            }
            return _INPUT in _Reads(aliases, is_program=True).of_body(tree.body, {_INPUT})
        found, has_self = _definition(tree.body, function)
        body = found.body if isinstance(found.body, list) else [ast.Return(found.body)]
        parameters = _parameters(found.args)
        if has_self:
            parameters = parameters[1:]
        reads = _Reads()
        wanted = reads.without_overwritten(body, set(parameters)) | {_INPUT}
        return not wanted.isdisjoint(reads.of_body(body, wanted))
    except (_Unclear, RecursionError):
        return None


def _definition(body: Sequence[ast.stmt], name: str) -> tuple[_Function, bool]:
    """What a name is bound to at the end of a module, and whether its first parameter is ``self``."""
    for statement in reversed(body):
        match statement:
            case ast.FunctionDef() | ast.AsyncFunctionDef() if statement.name == name:
                return _plain(statement), False
            case ast.Assign(targets=[ast.Name(id=bound)], value=value) if bound == name:
                if isinstance(value, ast.Lambda):
                    return value, False
                if isinstance(value, ast.Name) and value.id != name:
                    return _definition(body[: body.index(statement)], value.id)
                raise _Unclear
    for statement in reversed(body):
        if isinstance(statement, ast.ClassDef) and statement.name == "Solution":
            for member in statement.body:
                if isinstance(member, ast.FunctionDef) and member.name == name:
                    return _plain(member), "staticmethod" not in map(ast.unparse, member.decorator_list)
    raise _Unclear


def _plain(function: ast.FunctionDef | ast.AsyncFunctionDef) -> _Function:
    """A function that no decorator of the program's own replaces."""
    names = {part.id for each in function.decorator_list for part in ast.walk(each) if isinstance(part, ast.Name)}
    if names - _CACHES - {"functools"}:
        raise _Unclear
    return function


class _Reads:
    """The names that pieces of a program read with an effect.

    Args:
        aliases: names of standard input beside its own.
        is_program: what the code prints is observed, and names of standard input are read.
    """

    def __init__(self, aliases: Iterable[str] = (), is_program: bool = False) -> None:
        self._inputs = _REFLECTION | ({*_STDIN_NAMES, *aliases} if is_program else set())
        self._attributes = _REFLECTION | (_STDIN_ATTRIBUTES if is_program else set())
        self._is_program = is_program
        self._harmless = _HARMLESS | (_READING if is_program else {"print"})
        self._known: dict[_Function, set[str]] = {}  # names that a nested function reads from outside
        # Of an expression: its names, and whether it has an effect. Each pass over a body asks again, a comprehension
        # asks twice for the names of its first iterable, and of many within each other that is exponential.
        self._names_in: dict[ast.AST, set[str]] = {}
        self._effects: dict[ast.expr, bool] = {}

    def of_body(self, body: Sequence[ast.stmt], wanted: Collection[str] = ()) -> set[str]:
        """The names that a body reads, its own and others; as soon as one is ``wanted``, perhaps not all."""
        live: set[str] = set()
        block = _Block(body)
        for _ in range(_MOST_PASSES):
            found = live | self._of_block(body, live, block)[0]
            if found == live or not found.isdisjoint(wanted):
                return found
            live = found
        raise _Unclear

    def without_overwritten(self, body: Sequence[ast.stmt], parameters: set[str]) -> set[str]:
        """The parameters, less those that get another value before anything reads one."""
        for statement in body:
            names = [node for node in ast.walk(statement) if isinstance(node, ast.Name)]
            if any(node.id in parameters and isinstance(node.ctx, ast.Load) for node in names):
                break
            if isinstance(statement, ast.Assign):
                parameters = parameters.difference(*map(_stored_in, statement.targets))
        return parameters

    def _of_block(self, block: Sequence[ast.stmt], live: set[str], own: _Block) -> tuple[set[str], bool]:
        """The names that a block reads if those in ``live`` are read, and whether it does anything."""
        names: set[str] = set()
        acts = False
        for statement in block:
            more, does = self._of_statement(statement, live, own)
            names, acts = names | more, acts or does
        return names, acts

    def _of_statement(self, statement: ast.stmt, live: set[str], own: _Block) -> tuple[set[str], bool]:
        match statement:
            case ast.Return(value=value):
                return (set(), False) if own.is_constant else (self._names(value), True)
            case ast.Expr(value=value):
                return (self._names(value), True) if self._has_effect(value) else (set(), False)
            case ast.Assign() | ast.AnnAssign() | ast.AugAssign():
                targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
                value = statement.value
                extends = isinstance(statement, ast.AugAssign) and isinstance(value, _DISPLAYS)
                if self._stores(targets, live, own, extends) or (value is not None and self._has_effect(value)):
                    return self._names(value).union(*map(self._names, targets)), True
            case ast.If(test=test, body=body, orelse=orelse) | ast.While(test=test, body=body, orelse=orelse):
                return self._branches(test, (body, orelse), live, own)
            case ast.For(target=target, iter=values, body=body, orelse=orelse):
                if self._stores([target], live, own):
                    return self._names(values).union(*(self._of_block(b, live, own)[0] for b in (body, orelse))), True
                return self._branches(values, (body, orelse), live, own)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                if name in live or statement.decorator_list:
                    return self._names(statement), True
            case ast.Delete(targets=targets) if all(isinstance(each, ast.Name) for each in targets):
                pass
            case ast.Pass() | ast.Import() | ast.ImportFrom() | ast.Global() | ast.Nonlocal():
                pass
            case _:  # also all of a try, where an expression without effect may raise
                return self._names(statement), True
        return set(), False

    def _branches(
        self, test: ast.expr, blocks: Iterable[Sequence[ast.stmt]], live: set[str], own: _Block
    ) -> tuple[set[str], bool]:
        """Blocks that an expression decides about: it is read if one of them does anything."""
        names, acts = set[str](), self._has_effect(test)
        for block in blocks:
            more, does = self._of_block(block, live, own)
            names, acts = names | more, acts or does
        return (names | self._names(test) if acts else names), acts

    def _stores(self, targets: Iterable[ast.expr], live: set[str], own: _Block, in_place: bool = False) -> bool:
        """Whether what an assignment changes is read, or may be by others."""
        its_own = own.stored if self._is_program else own.made
        for target in targets:
            base: ast.expr = target
            while isinstance(base, ast.Attribute | ast.Subscript | ast.Starred):
                base = base.value
            if isinstance(base, ast.Tuple | ast.List):
                if self._stores(base.elts, live, own):
                    return True
            elif not isinstance(base, ast.Name) or base.id in live or base.id in own.shared:
                return True
            elif (in_place or base is not target) and base.id not in its_own:
                return True  # an argument or a part of one, or a variable of the module, changes in place
        return False

    def _has_effect(self, expression: ast.expr) -> bool:
        if expression not in self._effects:
            self._effects[expression] = self._finds_effect(expression)
        return self._effects[expression]

    def _finds_effect(self, expression: ast.expr) -> bool:
        for node in _nodes([expression]):
            if isinstance(node, ast.Await | ast.Yield | ast.YieldFrom | ast.NamedExpr):
                return True
            if isinstance(node, ast.Call):
                name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
                if name not in self._harmless:
                    return True
        return False

    def _names(self, node: ast.AST | None) -> set[str]:
        """The names from outside that an expression or definition reads."""
        if node is None:
            return set()
        if node not in self._names_in:
            self._names_in[node] = self._find_names(node)
        return self._names_in[node]

    def _find_names(self, node: ast.AST) -> set[str]:
        match node:
            case ast.Name(id=name):
                return {name, _INPUT} if name in self._inputs else {name}
            case ast.Constant():
                return set()
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                defaults = [*node.args.defaults, *node.args.kw_defaults, *getattr(node, "decorator_list", ())]
                return self._free(node).union(*map(self._names, defaults))
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
                bound = {name for each in node.generators for name in _stored_in(each.target)}
                inner = set[str]().union(*map(self._names, _children(node)))
                return inner - bound | self._names(node.generators[0].iter)
        names = set[str]().union(*map(self._names, _children(node)))
        is_input = isinstance(node, ast.Attribute) and node.attr in self._attributes
        return names | {_INPUT} if is_input else names

    def _free(self, function: _Function) -> set[str]:
        """The names from outside that a nested function reads."""
        if function not in self._known:
            parameters = set(_parameters(function.args))
            if isinstance(function, ast.Lambda):
                self._known[function] = self._names(function.body) - parameters
            else:
                block = _Block(function.body)
                self._known[function] = self.of_body(function.body) - parameters - (block.stored - block.shared)
        return self._known[function]


class _Block:
    """The body of a function or module.

    Attributes:
        stored: the names that it assigns to. shared: those of them that are not its own.
        made: those with values that it makes itself, which are a part of nothing else.
        is_constant: it returns the same constant wherever it ends, so no condition in it matters.
    """

    def __init__(self, body: Sequence[ast.stmt]) -> None:
        nodes = [*_nodes(body, (*_FUNCTIONS, ast.ClassDef))]  # not those of functions and classes in it
        self.shared = {name for node in nodes if isinstance(node, ast.Global | ast.Nonlocal) for name in node.names}
        self.stored = set[str]().union(*map(_stored_in, nodes))
        assigned = [node for node in nodes if isinstance(node, ast.Assign | ast.AnnAssign) and _is_made(node.value)]
        targets = [
            each for node in assigned for each in (node.targets if isinstance(node, ast.Assign) else [node.target])
        ]
        extended = [node.target for node in nodes if isinstance(node, ast.AugAssign)]
        known = {part for target in (*targets, *extended) for part in ast.walk(target)}
        self.made = set[str]().union(*map(_stored_in, targets)).difference(*map(_stored_in, set(nodes) - known))
        returned = [node.value for node in nodes if isinstance(node, ast.Return)]
        constants = {ast.dump(value) for value in returned if isinstance(value, ast.Constant)}
        only = len(constants) == 1 and all(isinstance(value, ast.Constant) for value in returned)
        self.is_constant = only and any(map(_ends, body))


def _is_made(value: ast.AST | None) -> bool:
    """Whether an expression makes a value that has no part of another one."""
    match value:
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            return _is_made(left) or _is_made(right)
        case ast.ListComp(elt=part) | ast.SetComp(elt=part) | ast.DictComp(value=part):
            return _is_made(part)
        case ast.List() | ast.Tuple() | ast.Set() | ast.Dict() | ast.Call(func=ast.Name("dict" | "list" | "set")):
            return all(_is_made(part) for part in _children(value) if part is not getattr(value, "func", None))
    return isinstance(value, ast.Constant | ast.Compare | ast.JoinedStr)


def _children(node: ast.AST) -> list[ast.AST]:
    """The parts of a node, without those that have no name: operators and contexts."""
    found: list[ast.AST] = []
    for field in node._fields:
        if field not in _NAMELESS:
            part = getattr(node, field, None)
            if isinstance(part, ast.AST):
                found.append(part)
            elif isinstance(part, list):
                found += [each for each in part if isinstance(each, ast.AST)]
    return found


def _nodes(roots: Iterable[ast.AST], closed: tuple[type[ast.AST], ...] = ()) -> Iterator[ast.AST]:
    """The nodes of trees, in no order, without the parts of nodes of some types."""
    waiting = list(roots)
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, closed):
            waiting += _children(node)


def _statements(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Statements, those inside of them, and what has statements (handlers and cases), in no order."""
    waiting = list(body)
    while waiting:
        node = waiting.pop()
        yield node
        for name in _BLOCKS:
            if isinstance(block := getattr(node, name, None), list):
                waiting += block


def _drop_dead_code(tree: ast.Module) -> None:
    """Remove from a tree what never runs: behind a ``return``, and branches of a constant."""
    tree.body = _alive(tree.body)
    for node in _statements(tree.body):
        for name in ("body", "orelse", "finalbody"):
            if isinstance(block := getattr(node, name, None), list):
                setattr(node, name, _alive(block))


def _alive(block: Sequence[ast.stmt]) -> list[ast.stmt]:
    alive: list[ast.stmt] = []
    for statement in block:
        match statement:
            case ast.If(test=ast.Constant(value=value), body=body, orelse=orelse):
                alive += _alive(body if value else orelse)
            case ast.While(test=ast.Constant(value=value), orelse=orelse) if not value:
                alive += _alive(orelse)
            case _:
                alive.append(statement)
        if alive and _ends(alive[-1]):
            break
    return alive


def _stored_in(node: ast.AST) -> set[str]:
    """The names that a node binds by itself, or a target in its parts."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {node.name}
    if isinstance(node, ast.Tuple | ast.List | ast.Starred):
        return set[str]().union(*map(_stored_in, _children(node)))
    return {node.id} if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) else set()


def _parameters(arguments: ast.arguments) -> list[str]:
    every = [*arguments.posonlyargs, *arguments.args, arguments.vararg, *arguments.kwonlyargs, arguments.kwarg]
    return [each.arg for each in every if each is not None]


def _ends(statement: ast.stmt) -> bool:
    """Whether nothing behind a statement runs."""
    match statement:
        case ast.Return() | ast.Raise() | ast.Break() | ast.Continue():
            return True
        case ast.If(body=body, orelse=orelse):
            return any(map(_ends, body)) and any(map(_ends, orelse))
        case ast.With(body=body):
            return any(map(_ends, body))
    return False
