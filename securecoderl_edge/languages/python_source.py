"""Static analysis of Python source: signatures, entry points, missing imports."""

from __future__ import annotations

import ast
import builtins
import codecs
import keyword
import re
import threading
import tokenize
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import lru_cache
from typing import Any

from securecoderl_edge.languages.hash_floods import without_floods
from securecoderl_edge.text import has_endless_marks

# What `ast.literal_eval` and work with its value raise for text that is no usable literal.
UNREADABLE = (ValueError, TypeError, SyntaxError, RecursionError, MemoryError, OverflowError)
# Imports that the APPS and LiveCodeBench graders add to every program for a call problem.
_NAMES_OF_MODULES = {
    "typing": "Any Callable Dict FrozenSet Iterable Iterator List Optional Sequence Set Tuple Union",
    "collections": "Counter OrderedDict defaultdict deque namedtuple",
    "functools": "cache cmp_to_key lru_cache partial reduce",
    "heapq": "heapify heappop heappush heappushpop heapreplace nlargest nsmallest",
    "bisect": "bisect_left bisect_right insort",
    "itertools": "accumulate chain combinations groupby permutations product zip_longest",
    "math": "ceil comb factorial floor gcd inf sqrt",
}
_MODULES = "bisect collections copy datetime fractions functools heapq itertools math operator random re string sys"
_IMPORT_OF_NAME = {module: f"import {module}" for module in _MODULES.split()} | {
    name: f"from {module} import {name}" for module, names in _NAMES_OF_MODULES.items() for name in names.split()
}


# Expressions that hold, or do not, whatever a program does.
_ALWAYS_ONE_WAY = (ast.Constant, ast.Tuple, ast.List, ast.Dict, ast.Set, ast.Lambda, ast.GeneratorExp)

# A tree takes two hundred times the memory of its text.
_LONGEST_SOURCE = 1 << 22

# For a dotted name in an import Python takes quadratic memory, and for the values in a formatted string quadratic time.
_DOTTED = re.compile(r"(?:\.[\s\\]*+[\w\u0080-\U0010ffff]++[\s\\]*+)++")
_MOST_PARTS = 100
_FORMATTED = re.compile(r"[fF][rR]?['\"]")
_MOST_VALUES = 1 << 32  # braces times characters
_LONG_NUMBER = re.compile(r"\b0[xXoObB][\da-fA-F_]{83049}")  # which may have more than `MOST_DIGITS` as a decimal

# A line as it is in other languages and in markup, and in no Python; or the name of a token around a hole.
_FOREIGN_LINES = (
    r"#[ \t]*include ?[<\"]",
    r"package [\w.]+;?\s*$",
    r"(?:pub )?(?:fn|struct|enum|impl|mod|trait|use) [\w<:]",
    r"func (?:\w+\(|\(\w+ )",
    r"type \w+ (?:struct|interface)\b",
    r"(?:export )?(?:const|let|var|function|interface) [\w{[]",
    r"(?:public|private|protected|namespace|template|using)\b[ <]",
    r"(?:if|for|switch|while|else|unsafe|loop)\b.*\{[ \t\r]*$",
    r"<[!?/a-zA-Z]",
    r".*(?:;|\) ?\{)[ \t\r]*$",
)
_FOREIGN = re.compile(rf"^[ \t]*+(?:{'|'.join(_FOREIGN_LINES)})|<[|｜]?fim[▁_]", re.MULTILINE)

# Of host names. To decode a long text takes quadratic time, outside of the sandbox.
_NOT_FOR_PROGRAMS = frozenset(("idna", "punycode"))

# Python 3.11 raises SystemError if two threads take turns within one tree.
_parsing = threading.Lock()


def syntax_tree(source: str, mode: str = "exec") -> Any:
    """`ast.parse`, for any thread; a text that would take far too much memory or time is a ValueError."""
    if len(source) > _LONGEST_SOURCE or has_endless_marks(source) or _is_endless(source):
        raise ValueError("too long to be parsed")
    return without_floods(source, tree_of(source, mode))


def tree_of(source: str, mode: str = "exec") -> Any:
    """`ast.parse` of a text of ours, for any thread."""
    with _parsing:
        return ast.parse(source, mode=mode)


def literal(text: str) -> Any:
    """`ast.literal_eval` of a text, for any thread; errors as of `syntax_tree`."""
    return ast.literal_eval(syntax_tree(text.lstrip(" \t"), "eval"))


def _is_endless(source: str) -> bool:
    if _LONG_NUMBER.search(source) or any(run[0].count(".") > _MOST_PARTS for run in _DOTTED.finditer(source)):
        return True
    return source.count("{") * len(source) > _MOST_VALUES and _FORMATTED.search(source) is not None


def declared_encoding(readline: Callable[[], bytes]) -> str:
    """The encoding that a Python file declares, from the function that reads its lines.

    Raises:
        SyntaxError: it is unknown, none of texts, or none for programs (`_NOT_FOR_PROGRAMS`).
    """
    name = tokenize.detect_encoding(readline)[0]
    try:
        "".encode(name)
    except (LookupError, UnicodeError):  # such as rot13 and undefined
        raise SyntaxError(f"not an encoding of texts: {name}") from None
    if codecs.lookup(name).name in _NOT_FOR_PROGRAMS:
        raise SyntaxError(f"not an encoding of programs: {name}")
    return name


def parse(source: str) -> ast.Module | None:
    """The syntax tree, or None when the text is not Python; never raises and never warns."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # invalid escapes in old programs
        try:
            tree: ast.Module = syntax_tree(source)
            return tree
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None


def has_foreign_line(source: str) -> bool:
    """Whether a text that does not parse has a sign that it is in another language."""
    return _FOREIGN.search(source) is not None


def reformatted(source: str) -> str:
    """The same program as `ast.unparse` writes it: four spaces, one statement a line, no comments.

    A text that does not parse, or whose syntax tree would change, is returned as it is.
    """
    tree = parse(source)
    if tree is None:
        return source
    with suppress(RecursionError):
        text = ast.unparse(tree) + "\n"
        again = parse(text)
        return text if again is not None and ast.dump(again) == ast.dump(tree) else source
    return source


def parse_stub(source: str) -> ast.Module | None:
    """`parse` for starter code, whose last function often has no body."""
    text = source.rstrip()
    last = text.rsplit("\n", 1)[-1]
    indent = last[: len(last) - len(last.lstrip())]
    return parse(text) or parse(f"{text}\n{indent}    pass") or parse(f"{text} pass")


def functions(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    """Functions at the top level and methods of top-level classes, in source order."""
    for node in tree.body:
        members = node.body if isinstance(node, ast.ClassDef) else [node]
        yield from (member for member in members if isinstance(member, ast.FunctionDef))


def signature(source: str, name: str) -> str | None:
    """``name(arguments) -> type`` as the source (complete or a stub) defines it, without ``self``."""
    function = find_function(source, name)
    if function is None:
        return None
    arguments = function.args
    if arguments.args and arguments.args[0].arg == "self":
        arguments = ast.arguments(**{**dict(ast.iter_fields(arguments)), "args": arguments.args[1:]})
    returns = f" -> {ast.unparse(function.returns)}" if function.returns else ""
    return f"{name}({ast.unparse(arguments)}){returns}"


def find_function(source: str, name: str) -> ast.FunctionDef | None:
    """The definition of ``name`` in a program or stub, if it has one."""
    tree = parse_stub(source)
    return next((found for found in functions(tree) if found.name == name), None) if tree else None


def called_function(assertion: str, program: str) -> str | None:
    """The function under test: the first called one that ``program`` defines, else the first that is not a builtin."""
    tree = parse(assertion)
    if tree is None:
        return None
    called = [node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
    defined = _defined_in(program) if called else frozenset[str]()
    known = [name for name in called if name in defined] or [name for name in called if not hasattr(builtins, name)]
    return known[0] if known else None


@lru_cache(maxsize=1)  # a program can have thousands of tests
def _defined_in(program: str) -> frozenset[str]:
    tree = parse(program)
    return frozenset(function.name for function in functions(tree)) if tree else frozenset()


def add_missing_imports(source: str) -> str:
    """Insert missing imports of the standard library before the first statement of a program or stub.

    Programs for call problems of APPS were written for a grader that imports these names.
    """
    tree = parse_stub(source)
    if tree is None:
        return source
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    bound = {name.id for name in names if not isinstance(name.ctx, ast.Load)} | _bound_by_statements(tree)
    missing = sorted(
        {_IMPORT_OF_NAME[name.id] for name in names if name.id in _IMPORT_OF_NAME and name.id not in bound}
    )
    if not missing:
        return source
    return _with_lines(source, tree, missing)


def with_typing_names(source: str) -> str:
    """A program with all names of ``typing``, which the sandbox defines for programs of call problems."""
    return with_first_lines(source, ["from typing import *"])


def with_first_lines(source: str, lines: list[str]) -> str:
    """A program with statements before its first one; a text that does not parse as it is."""
    tree = parse(source)
    return source if tree is None else _with_lines(source, tree, lines)


def _with_lines(source: str, tree: ast.Module, lines: list[str]) -> str:
    """The source with lines inserted before its first statement."""
    own = source.splitlines(keepends=True)
    future = [node for node in tree.body if isinstance(node, ast.ImportFrom) and node.module == "__future__"]
    begin = max((node.end_lineno or 0 for node in future), default=0)
    return "".join([*own[:begin], "\n".join([*lines, "", ""]), *own[begin:]])


def _bound_by_statements(tree: ast.Module) -> set[str]:
    bound: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            bound.add(node.name)
        elif isinstance(node, ast.arg):
            bound.add(node.arg)
        bound |= names_imported(node)
    return bound | _IMPORT_OF_NAME.keys() if "*" in bound else bound  # import *: the names are unknown


def names_imported(node: ast.AST) -> set[str]:
    """The names that an import binds, ``*`` if it is unknown which; none of another node."""
    if not isinstance(node, (ast.Import, ast.ImportFrom)):
        return set()
    return {(alias.asname or alias.name).partition(".")[0] for alias in node.names}


def returns_at_top_level(source: str) -> bool:
    """Whether a text is Python except for a ``return`` outside of functions, which some graders permit."""
    tree = parse(source)
    return tree is not None and any(isinstance(node, ast.Return) for node in _outside_of_functions(tree.body))


def wrap_in_function(source: str) -> str:
    """The program as the body of a function that is called at once, so that it may return; comments are lost.

    All names that the program binds stay global, so that its functions, ``eval`` and ``globals`` find them. Imports
    that a function cannot contain stay outside.
    """
    body = tree_of(source).body
    outside: list[ast.stmt] = [node for node in body if isinstance(node, ast.ImportFrom) and _stays_outside(node)]
    inside = [_Unannotated().visit(node) for node in body if node not in outside]
    inner = [node for statement in inside for node in ast.walk(statement)]
    shared = {name for node in inner if isinstance(node, ast.Global) for name in node.names}
    shared |= _bound_at_top_level(inside)
    program = tree_of("def program(): pass\n\nprogram()\n")
    function = program.body[0]
    assert isinstance(function, ast.FunctionDef)
    function.body = [*([ast.Global(sorted(shared))] if shared else []), *inside]
    program.body = [*outside, *program.body]
    return ast.unparse(ast.fix_missing_locations(program)) + "\n"


def is_function_name(name: str) -> bool:
    """Whether ``name`` is a valid name of a function."""
    return name.isidentifier() and not keyword.iskeyword(name)


def only_function(source: str) -> str | None:
    """The name of the only function, or method of a class, that a stub defines; None if it has none or several."""
    tree = parse_stub(source) if source.strip() else None
    names = [function.name for function in functions(tree) if not function.name.startswith("__")] if tree else []
    return names[0] if len(names) == 1 else None


def fault_of_assertion(text: str) -> str | None:
    """The reason if a test in Python cannot fail, or cannot hold; else None."""
    tree = parse(text)
    if tree is None:
        return "test is not Python"
    asserted = [node.test for node in ast.walk(tree) if isinstance(node, ast.Assert)]
    if all(isinstance(test, _ALWAYS_ONE_WAY) for test in asserted):
        return "test asserts nothing"
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    raising = [call for call in calls if isinstance(call.func, ast.Name) and call.func.id == "raises"]
    if all(call in asserted[-1:] and expected_errors(call) for call in raising):
        return None
    return "test needs raises(CALL, ERROR) in its last assert, with the name of a class or a tuple of names"


def only_compares(text: str) -> bool:
    """Whether a text is nothing but expressions whose values are lost, such as ``f(1) == 2``."""
    tree = parse(text)
    lost = [isinstance(node, ast.Expr) and not isinstance(node.value, ast.Call) for node in tree.body] if tree else []
    return bool(lost) and all(lost)


def compared_value(assertion: str) -> str | None:
    """The expression X of ``assert X == Y``; None for other assertions, and for a sum of many hundred terms."""
    match parse(assertion):
        case ast.Module(body=[ast.Assert(test=ast.Compare(left=left, ops=[ast.Eq()]))]):
            with suppress(RecursionError):
                return ast.unparse(left)
    return None


def is_literal(node: ast.expr) -> bool:
    """Whether `ast.literal_eval` reads it."""
    with suppress(*UNREADABLE):
        ast.literal_eval(node)
        return True
    return False


def expected_errors(asserted: ast.expr) -> tuple[str, ...]:
    """The names of the classes in ``raises(CALL, ERROR)``, without their modules; empty for another expression."""
    match asserted:
        case ast.Call(func=ast.Name(id="raises"), args=[tried, kinds], keywords=[]) if _calls(tried):
            found = [_name_of(kind) for kind in (kinds.elts if isinstance(kinds, ast.Tuple) else [kinds])]
            return tuple(found) if all(found) else ()
    return ()


def _calls(expression: ast.expr) -> bool:
    return any(isinstance(node, ast.Call) for node in ast.walk(expression))


def _name_of(kind: ast.expr) -> str:
    match kind:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def _bound_at_top_level(statements: list[ast.stmt]) -> set[str]:
    bound: set[str] = set()
    for node in _outside_of_functions(statements, with_definitions=True):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            bound.add(node.name)
            continue
        if isinstance(node, ast.ExceptHandler) and node.name:
            bound.add(node.name)
        bound |= (names_imported(node) - {"*"}) | _names_stored(node)
    return bound


def _names_stored(node: ast.AST) -> set[str]:
    """Names that a statement itself stores, without those of comprehensions and of nested statements."""
    found: set[str] = set()
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.stmt, ast.ExceptHandler, ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp)):
            continue
        if isinstance(child, ast.GeneratorExp):
            continue
        if isinstance(child, ast.Name) and isinstance(child.ctx, (ast.Store, ast.Del)):
            found.add(child.id)
        found |= _names_stored(child)
    return found


class _Unannotated(ast.NodeTransformer):
    """Removes annotations of assignments, which global names cannot have; functions and classes stay unchanged."""

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.stmt:
        if node.value is None:
            return ast.copy_location(ast.Pass(), node)
        return ast.copy_location(ast.Assign([node.target], node.value), node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.stmt:
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.stmt:
        return node


def _outside_of_functions(statements: list[ast.stmt], *, with_definitions: bool = False) -> Iterator[ast.AST]:
    for statement in statements:
        is_definition = isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
        if with_definitions or not is_definition:
            yield statement
        if not is_definition:
            for field in ("body", "orelse", "finalbody", "handlers", "cases"):
                inner = getattr(statement, field, [])
                yield from _outside_of_functions(inner, with_definitions=with_definitions)


def _stays_outside(node: ast.ImportFrom) -> bool:
    return node.module == "__future__" or any(alias.name == "*" for alias in node.names)
