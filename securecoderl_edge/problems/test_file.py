"""Python test files in the style of pytest, read without running them.

A file tests one module, the edited file, and runs in the sandbox, which has neither pytest nor other packages: plain
``assert``, ``unittest`` and a few names of pytest work, fixtures and plugins do not. Functions ``test*``, methods
``test*`` of classes ``Test*``, and those of ``unittest.TestCase`` are one test each, whatever parameters they have.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from securecoderl_edge.errors import SceError, UsageError, not_utf8
from securecoderl_edge.languages.python_source import parse

# What `sandbox/inside/filetest.py` has of pytest.
PYTEST = ("raises", "approx", "mark.parametrize", "param", "fail", "main")
_IMPORTING = ("import_module", "__import__")
# Functions that pytest calls around tests, and that do not run here.
_AROUND = ("setup_module", "teardown_module", "setup_function", "teardown_function", "setup_class", "teardown_class")
_LONGEST = 1 << 22  # characters, as many as are parsed
_MOST_TESTS = 10_000
_MOST_CLASSES = 100  # that one inherits from, and itself
_Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class TestFile:
    """A test file for a module.

    Attributes:
        name: of the file, without its folder.
        modules: the dotted names by which it imports the module.
        tests: ``test_name`` or ``Class.test_name``.
        edited: the name of the module's file.
    """

    __test__ = False  # pytest would take the name for a test class

    name: str
    source: str
    modules: tuple[str, ...]
    tests: tuple[str, ...]
    edited: str


def read_test_file(path: Path, edited: Path) -> TestFile:
    """The tests in a file for the module ``edited``.

    Raises:
        UsageError: no such file, or it needs what the sandbox does not have, which the message names.
        SceError: it is too long, is not Python, has no tests, or does not import the module.
    """
    try:
        with path.open(encoding="utf-8-sig") as file:
            source = file.read(_LONGEST + 1)
    except UnicodeDecodeError as error:
        raise not_utf8(path, error) from None
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    if len(source) > _LONGEST:
        raise SceError(f"{path}: too long; the limit is {_LONGEST >> 20} MiB")
    tree = parse(source)
    if tree is None:
        raise SceError(f"{path}: does not parse as Python")
    try:
        return _file_of(tree, source, path, edited)
    except RecursionError:
        raise SceError(f"{path}: nested too deeply") from None


def _file_of(tree: ast.Module, source: str, path: Path, edited: Path) -> TestFile:
    modules = _imported(tree, path, edited)
    if not modules:
        raise SceError(f"{path}: does not import {edited.stem}, so its tests do not test {edited.name}")
    _refuse_plugins(tree, path)
    every = list(islice(_tests(tree, path), _MOST_TESTS + 1))
    if not every:
        raise SceError(f"{path}: no tests; expected functions test_* or classes Test*")
    if len(every) > _MOST_TESTS:
        raise UsageError(f"{path}: more than {_MOST_TESTS:,} tests are not supported")
    found, seen = dict(every), set[_Function]()
    for name, (function, given) in found.items():
        if function not in seen and any(isinstance(node, (ast.Yield, ast.YieldFrom)) for node in _inside(function)):
            raise UsageError(f"{path}: {name} yields, and such tests are not supported")
        seen.add(function)  # that of a class is a test of many
        if isinstance(function, ast.AsyncFunctionDef):
            raise UsageError(f"{path}: {name} is async, which needs a plugin that the sandbox does not have")
        if missing := [each for each in _parameters(function) if each not in given]:
            raise UsageError(f"{path}: fixtures are not supported, and {name} needs {', '.join(missing)}")
    return TestFile(path.name, source, modules, tuple(found), edited.name)


def names_of_module(path: Path) -> list[str]:
    """The dotted names that a file may have: ``shop.money`` if its folder is ``shop``."""
    parts = [*path.absolute().parent.parts, *([] if path.stem == "__init__" else [path.stem])]
    return [".".join(parts[start:]) for start in range(len(parts) - 1, 0, -1)]


def _imported(tree: ast.Module, path: Path, edited: Path) -> tuple[str, ...]:
    """The names of the edited module among the imports.

    Raises:
        UsageError: another one is not in the sandbox.
    """
    # Through a symbolic link, the tests may import the target by its name.
    own = {*names_of_module(edited), *names_of_module(edited.resolve())}
    optional = {id(node) for node in _optional(tree)}
    found: dict[str, None] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            if node.level:
                raise UsageError(f"{path}: relative imports are not supported; import {edited.stem} by its name")
            names = [f"{node.module}.{alias.name}" for alias in node.names] + [str(node.module)]
            names = [name for name in names if name in own] or [str(node.module)]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) in _IMPORTING:
            names = [each.value for each in node.args[:1] if isinstance(each, ast.Constant) and each.value in own]
        else:
            continue
        for name in names:
            if name in own:
                found[name] = None
            elif id(node) not in optional and name.partition(".")[0] not in (*sys.stdlib_module_names, "pytest"):
                raise UsageError(
                    f"{path}: imports {name}, and the sandbox has only {edited.name} and the standard library"
                )
    return tuple(found)


def _optional(tree: ast.Module) -> Iterator[ast.AST]:
    """What stands in a ``try`` that goes on without a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Try):
            caught = " ".join(ast.unparse(each.type) if each.type else "Exception" for each in node.handlers)
            if re.search(r"\b(?:ImportError|ModuleNotFoundError|Exception)\b", caught):
                yield from (inner for each in node.body for inner in ast.walk(each))


def _inside(function: _Function) -> Iterator[ast.AST]:
    """The nodes of a function without those of functions in it."""
    rest: list[ast.AST] = [*function.body]
    while rest:
        node = rest.pop()
        yield node
        if not isinstance(node, (*_Function.__args__, ast.Lambda)):
            rest += ast.iter_child_nodes(node)


def _refuse_plugins(tree: ast.Module, path: Path) -> None:
    used = []
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name in _AROUND:
            raise UsageError(f"{path}: {node.name} is not supported")
        if isinstance(node, ast.ClassDef):
            for each in node.body:
                if isinstance(each, ast.ClassDef) and each.name.startswith("Test"):
                    raise UsageError(f"{path}: {each.name} is a class within {node.name}, which is not supported")
        if isinstance(node, ast.Import) and any(each.name == "pytest" and each.asname for each in node.names):
            raise UsageError(f"{path}: import pytest by its own name")
        match node:
            case ast.ImportFrom(module="pytest", names=names):
                used += [alias.name for alias in names]
            case ast.Attribute(ast.Name("mark") | ast.Attribute(ast.Name("pytest"), "mark"), name):
                used.append(f"mark.{name}")
            case ast.Attribute(ast.Name("pytest"), name):
                used.append(name)
    for name in used:
        if name not in (*PYTEST, "mark"):
            raise UsageError(f"{path}: pytest.{name} is not supported; the sandbox has {', '.join(PYTEST[:-1])}")


def _tests(tree: ast.Module, path: Path) -> Iterator[tuple[str, tuple[_Function, set[str]]]]:
    """The tests by name, with the parameters that they get."""
    # By name: the class behind those of this file that it inherits from, and whether one of them is a test case.
    classes: dict[str, tuple[dict[ast.ClassDef, None], bool]] = {}
    for node in tree.body:
        if isinstance(node, _Function) and node.name.startswith("test"):
            yield node.name, (node, _given(node))
        elif isinstance(node, ast.ClassDef):
            line, is_case = dict[ast.ClassDef, None](), False
            for base in dict.fromkeys(map(ast.unparse, node.bases)):
                inherited, is_one = classes.get(base, ({}, False))
                line |= inherited
                is_case = is_case or is_one or base.endswith("TestCase")
            line[node] = None
            if len(line) > _MOST_CLASSES:
                raise UsageError(f"{path}: {node.name} inherits from {_MOST_CLASSES} classes or more: not supported")
            classes[node.name] = line, is_case
            if is_case or node.name.startswith("Test"):
                given = {"self"}.union(*map(_given, line))
                for each in line:
                    for member in each.body:
                        if isinstance(member, _Function) and member.name.startswith("test"):
                            yield f"{node.name}.{member.name}", (member, given | _given(member))


def _parameters(function: _Function) -> list[str]:
    needed = [*function.args.posonlyargs, *function.args.args]
    required = needed[: len(needed) - len(function.args.defaults)]
    by_name = zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True)
    return [each.arg for each in (*required, *(named for named, default in by_name if default is None))]


def _given(node: _Function | ast.ClassDef) -> set[str]:
    """The parameters that ``parametrize`` gives."""
    names: set[str] = set()
    for call in node.decorator_list:
        if isinstance(call, ast.Call) and ast.unparse(call.func).endswith("mark.parametrize"):
            named = [each.value for each in call.keywords if each.arg == "argnames"]
            first = [*call.args[:1], *named, ast.Constant("")][0]
            words = first.elts if isinstance(first, (ast.List, ast.Tuple)) else [first]
            texts = [word.value for word in words if isinstance(word, ast.Constant) and isinstance(word.value, str)]
            names |= {name.strip() for text in texts for name in text.split(",")}
    return names
