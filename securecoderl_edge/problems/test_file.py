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
from pathlib import Path

from securecoderl_edge.errors import SceError, UsageError, not_utf8
from securecoderl_edge.languages.python_source import parse

# What `sandbox/inside/filetest.py` has of pytest.
PYTEST = ("raises", "approx", "mark.parametrize", "param", "fail", "main")
# Functions that pytest calls around tests, and that do not run here.
_AROUND = ("setup_module", "teardown_module", "setup_function", "teardown_function", "setup_class", "teardown_class")
_OF_PYTEST = re.compile(r"(?:pytest\.)?(mark\.\w+)|pytest\.(\w+)")
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
        SceError: it is not Python, has no tests, or does not import the module.
    """
    try:
        source = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise not_utf8(path, error) from None
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    tree = parse(source)
    if tree is None:
        raise SceError(f"{path}: does not parse as Python")
    modules = _imported(tree, path, edited)
    if not modules:
        raise SceError(f"{path}: does not import {edited.stem}, so its tests do not test {edited.name}")
    _refuse_plugins(tree, path)
    found = dict(_tests(tree))
    if not found:
        raise SceError(f"{path}: no tests; expected functions test_* or classes Test*")
    for name, (function, given) in found.items():
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
    own = set(names_of_module(edited))
    found: dict[str, None] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            if node.level:
                raise UsageError(f"{path}: relative imports are not supported; import {edited.stem} by its name")
            names = [f"{node.module}.{alias.name}" for alias in node.names] + [str(node.module)]
            names = [name for name in names if name in own] or [str(node.module)]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        for name in names:
            if name in own:
                found[name] = None
            elif name.partition(".")[0] not in (*sys.stdlib_module_names, "pytest"):
                raise UsageError(
                    f"{path}: imports {name}, and the sandbox has only {edited.name} and the standard library"
                )
    return tuple(found)


def _refuse_plugins(tree: ast.Module, path: Path) -> None:
    used = []
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name in _AROUND:
            raise UsageError(f"{path}: {node.name} is not supported")
        if isinstance(node, ast.Import) and any(each.name == "pytest" and each.asname for each in node.names):
            raise UsageError(f"{path}: import pytest by its own name")
        if isinstance(node, ast.ImportFrom) and node.module == "pytest":
            used += [alias.name for alias in node.names]
        elif isinstance(node, ast.Attribute) and (found := _OF_PYTEST.fullmatch(ast.unparse(node))):
            used.append(found[1] or found[2])
    for name in used:
        if name not in (*PYTEST, "mark"):
            raise UsageError(f"{path}: pytest.{name} is not supported; the sandbox has {', '.join(PYTEST[:-1])}")


def _tests(tree: ast.Module) -> Iterator[tuple[str, tuple[_Function, set[str]]]]:
    """The tests by name, with the parameters that they get."""
    classes: dict[str, ast.ClassDef] = {}
    for node in tree.body:
        if isinstance(node, _Function) and node.name.startswith("test"):
            yield node.name, (node, _given(node))
        elif isinstance(node, ast.ClassDef):
            classes[node.name] = node
            line = _lineage(node, classes)
            bases = [ast.unparse(base) for each in line for base in each.bases]
            if node.name.startswith("Test") or any(base.endswith("TestCase") for base in bases):
                for each in line:
                    given = {"self"} | set().union(*map(_given, line))
                    for member in each.body:
                        if isinstance(member, _Function) and member.name.startswith("test"):
                            yield f"{node.name}.{member.name}", (member, given | _given(member))


def _lineage(node: ast.ClassDef, classes: dict[str, ast.ClassDef]) -> list[ast.ClassDef]:
    """The class behind those of this file that it inherits from."""
    bases = [base.id for base in node.bases if isinstance(base, ast.Name) and base.id != node.name]
    return [*(each for base in bases if base in classes for each in _lineage(classes[base], classes)), node]


def _parameters(function: _Function) -> list[str]:
    needed = [*function.args.posonlyargs, *function.args.args]
    return [each.arg for each in needed[: len(needed) - len(function.args.defaults)]]


def _given(node: _Function | ast.ClassDef) -> set[str]:
    """The parameters that ``parametrize`` gives."""
    names: set[str] = set()
    for call in node.decorator_list:
        if isinstance(call, ast.Call) and call.args and ast.unparse(call.func).endswith("mark.parametrize"):
            first = call.args[0]
            words = first.elts if isinstance(first, (ast.List, ast.Tuple)) else [first]
            texts = [word.value for word in words if isinstance(word, ast.Constant) and isinstance(word.value, str)]
            names |= {name.strip() for text in texts for name in text.split(",")}
    return names
