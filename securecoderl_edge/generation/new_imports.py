"""The imports of an answer that its new code uses and the file lacks, and where they go."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from securecoderl_edge.generation.losses import NoEdit, bound
from securecoderl_edge.generation.statements import Statement

_Import = ast.Import | ast.ImportFrom


def missing_imports(given: ast.Module, tree: ast.Module, new: str, module: str) -> list[str]:
    """The lines to add.

    Args:
        given, tree: of the file and of the answer.
        new: the code that uses them.
        module: the file's own name.

    Raises:
        NoEdit: the file imports something else by such a name.
    """
    here: dict[str, set[str]] = {}
    whole: set[str] = set()  # imported as they are, such as os.path
    for node in _imports(given.body):
        for alias in node.names:
            here.setdefault(_name(alias), set()).add(_origin(node, alias))
            whole |= {alias.name} if not alias.asname else set()
    others = set(bound(_without_checking(given.body))) - here.keys()
    wanted = []
    for node in _imports(tree.body):
        # What has to stand first, and the file itself.
        if isinstance(node, ast.ImportFrom) and node.module in (module, "__future__"):
            continue
        missing = []
        for alias in node.names:
            name, origin = _name(alias), _origin(node, alias)
            is_used = name == "*" or re.search(rf"\b{re.escape(name)}\b", new)
            if not is_used or name in others:
                continue
            if name in here and origin not in here[name]:
                raise NoEdit(f"the answer imports {name} as {origin}, and the file as {min(here[name])}")
            if name not in here or ("." in alias.name and not alias.asname and alias.name not in whole):
                missing.append(alias)
                here.setdefault(name, set()).add(origin)
                whole.add(alias.name)
        if missing:
            node.names = missing
            wanted.append(ast.unparse(node))
    return wanted


def end_of_imports(lines: Sequence[str], body: Sequence[Statement]) -> int:
    """The line behind the imports and the docstring at the top, else the first that is not about the whole file."""
    line = 0
    for unit in body:
        if unit.is_definition:
            break
        if unit.key == '"""' or isinstance(unit.node, (ast.Import, ast.ImportFrom)):
            line = unit.end
    if line or not body:
        return line
    first = 0
    while first < body[0].start and lines[first].startswith("#"):
        first += 1
    if first < body[0].start and not lines[first].strip():
        return first + 1
    about_file = [number for number in (0, 1) if re.match(r"#!|#.*coding[:=]", "".join(lines[number : number + 1]))]
    return max(about_file, default=-1) + 1


def _imports(body: Sequence[ast.AST]) -> Iterator[_Import]:
    """Those of a module that run when it is imported."""
    for node in _without_checking(body):
        if isinstance(node, _Import):
            yield node
        elif isinstance(node, (ast.If, ast.Try, ast.With, ast.ExceptHandler)):
            for field in ("body", "orelse", "finalbody", "handlers"):
                yield from _imports(getattr(node, field, []))


def _without_checking(body: Sequence[ast.AST]) -> list[ast.AST]:
    """Without what only type checkers see."""
    return [
        each for each in body if not (isinstance(each, ast.If) and ast.unparse(each.test).endswith("TYPE_CHECKING"))
    ]


def _name(alias: ast.alias) -> str:
    return alias.asname or alias.name.partition(".")[0]


def _origin(node: _Import, alias: ast.alias) -> str:
    if isinstance(node, ast.ImportFrom):
        return f"{'.' * node.level}{node.module or ''}.{alias.name}"
    return alias.name if alias.asname else alias.name.partition(".")[0]
