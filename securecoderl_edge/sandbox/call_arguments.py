"""Arguments of a call, written as Bandit's checks expect them.

Bandit reads ``subprocess.run(command, shell=True)``, but not what Python takes for the same: arguments in a list or
dictionary with stars, the command by its keyword, ``shell`` by its place, and texts that are put together.

This file is loaded by path in a process without the package, so it imports the standard library only.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

_LONGEST_TEXT, _MOST_TEXTS = 200, 64  # of texts that are compared with names, and of those that one can be
SHELL_PLACE = 8  # of the parameter of `subprocess.Popen`, and of functions that pass theirs on
# In a form, where a text stands.
_PERCENT, _BRACES = re.compile(r"%(?:\((\w+)\))?s"), re.compile(r"\{(\w*)\}")
_HMAC = frozenset(("hmac.new", "hmac.HMAC", "hmac.digest"))
_STARTING = frozenset(f"subprocess.{each}" for each in ("Popen", "run", "call", "check_call", "check_output"))


def joined_texts(node: ast.AST, texts: Callable[[ast.AST], tuple[str, ...]]) -> Iterator[str]:
    """The texts that an expression can have whose parts are texts; ``texts`` gives those of a part."""
    match node:
        case ast.Constant(value=str(text)):
            yield text[:_LONGEST_TEXT]
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            ends = texts(right)
            yield from ((start + end)[:_LONGEST_TEXT] for start in texts(left) for end in ends)
        case ast.FormattedValue(value=value):
            yield from texts(value)
        case ast.JoinedStr(values=parts):
            yield from _between("", parts, texts)
        case ast.Call(
            func=ast.Attribute(value=middle, attr="join"), args=[ast.Tuple(elts=parts) | ast.List(elts=parts)]
        ):
            for text in texts(middle):
                yield from _between(text, parts, texts)
        case ast.BinOp(left=left, op=ast.Mod(), right=right):
            parts = right.elts if isinstance(right, ast.Tuple) else [right]
            pairs = zip(right.keys, right.values, strict=True) if isinstance(right, ast.Dict) else ()
            named = {str(key.value): value for key, value in pairs if isinstance(key, ast.Constant)}
            for form in texts(left):
                yield from _filled(_PERCENT, form, parts, named, texts)
        case ast.Call(func=ast.Attribute(value=left, attr="format"), args=parts, keywords=keywords):
            for form in texts(left):
                yield from _filled(_BRACES, form, parts, {each.arg: each.value for each in keywords}, texts)
        case ast.Subscript(
            value=value, slice=ast.Slice(lower=None, upper=None, step=ast.UnaryOp(operand=ast.Constant()))
        ):
            yield from (text[::-1] for text in texts(value))


def _between(middle: str, parts: list[ast.expr], texts: Callable[[ast.AST], tuple[str, ...]]) -> Iterator[str]:
    yield from (middle.join(each)[:_LONGEST_TEXT] for each in _one_of_each(parts, texts))


def _filled(
    place: re.Pattern[str],
    form: str,
    parts: list[ast.expr],
    named: Mapping[Any, ast.expr],
    texts: Callable[[ast.AST], tuple[str, ...]],
) -> Iterator[str]:
    """The texts of a form with parts in its places: the next one, or that of a number or a name."""
    following = itertools.chain(parts, itertools.repeat(None))
    by_key = {str(number): part for number, part in enumerate(parts[:_LONGEST_TEXT])} | {**named}
    chosen = [by_key.get(key) if key else next(following) for key in place.findall(form)]
    found = [part for part in chosen if part is not None]
    if not found or len(found) < len(chosen):  # no form, or a place without a part
        return
    for each in _one_of_each(found, texts):
        pairs = zip(place.split(form)[::2], (*each, ""), strict=True)
        yield "".join(start + text for start, text in pairs)[:_LONGEST_TEXT]


def _one_of_each(parts: list[ast.expr], texts: Callable[[ast.AST], tuple[str, ...]]) -> Iterator[tuple[str, ...]]:
    """A text of each part, in all combinations, the first few."""
    return itertools.islice(itertools.product(*(texts(part) for part in parts[:_LONGEST_TEXT])), _MOST_TEXTS)


def is_hmac(call: ast.Call, meanings: Any) -> bool:
    """Whether a call can only be one of `hmac`, which does not rest on what weak hashes lack."""
    first: Any = call.func
    while isinstance(first, ast.Attribute):
        first = first.value
    names = meanings.of(call.func)
    if not (names and names <= _HMAC and isinstance(first, ast.Name)) or meanings.is_open:
        return False
    program: Any = call
    while hasattr(program, "_bandit_parent"):
        program = program._bandit_parent
    return not meanings.kept((first.id, "rebound", 0), lambda: _rebound(program, first.id, meanings))


def _rebound(program: ast.AST, name: str, meanings: Any) -> Iterator[str]:
    """The name, for each statement but imports that binds it, and what can change `hmac` itself."""
    for node in ast.walk(program):
        is_read = isinstance(getattr(node, "ctx", None), ast.Load)
        if isinstance(node, ast.Attribute):
            known = meanings.of(node)
            is_changed = (not is_read or "__" in node.attr) and any(each.startswith("hmac.") for each in known)
            yield from [name] if is_changed or "sys.modules" in known else ()
        elif not is_read and not isinstance(node, (ast.alias, ast.keyword)):
            yield from [name] if name in [getattr(node, field, "") for field in ("id", "name", "arg", "rest")] else ()


def other_calls(node: ast.Call, given: dict[str, Any], names: set[str], meanings: Any) -> Iterator[dict[str, Any]]:
    """The contexts of a call in Bandit's words, under other names and with plain arguments; ``given`` is its own."""
    for name in sorted(names | {given["qualname"]}):
        context = {**given, "qualname": name, "name": name.rpartition(".")[2]}
        if not given["qualname"] and name not in _STARTING:  # a call by another one, whose shell this may be
            node = ast.copy_location(
                ast.Call(node.func, node.args, [each for each in node.keywords if each.arg != "shell"]), node
            )
            context |= {"node": node, "call": node}
        if name != given["qualname"]:
            yield context
        plain = respelled(node, name, meanings) if "." in name else None
        if plain is not None:
            yield {**context, "node": plain, "call": plain}


def respelled(call: ast.Call, name: str, meanings: Any) -> ast.Call | None:
    """A call of ``name`` with plain arguments, or None if it has these; ``meanings`` are of `call_names`."""
    arguments: list[ast.expr] = []
    keywords: list[ast.keyword] = []
    for argument in call.args:
        held = meanings.literals(argument.value)[0] if isinstance(argument, ast.Starred) else None
        arguments += held.elts if isinstance(held, (ast.Tuple, ast.List)) else [_folded(argument, meanings)]
    for each in call.keywords:
        keywords += [each] if each.arg is not None else _keywords(each.value, meanings) or [each]
    if not arguments and keywords and keywords[0].arg is not None:
        arguments = [next((each.value for each in keywords if each.arg == "args"), keywords[0].value)]
    if name in _STARTING and len(arguments) > SHELL_PLACE:
        keywords.append(ast.copy_location(ast.keyword("shell", arguments[SHELL_PLACE]), call))
    if arguments == call.args and keywords == call.keywords:
        return None
    return ast.copy_location(ast.Call(call.func, arguments, keywords), call)


def _keywords(mapping: ast.expr, meanings: Any) -> list[ast.keyword]:
    found: list[ast.keyword] = []
    for held in meanings.literals(mapping):
        match held:
            case ast.Call(func=ast.Name(id="dict"), args=[], keywords=keywords):
                found += keywords
            case ast.Dict(keys=keys, values=values):
                found += [
                    ast.copy_location(ast.keyword(name, value), value)
                    for key, value in zip(keys, values, strict=True)
                    for name in meanings.texts(key)
                ]
    return found


def _folded(argument: ast.expr, meanings: Any) -> ast.expr:
    texts = [] if isinstance(argument, ast.Constant) else meanings.texts(argument)
    return ast.copy_location(ast.Constant(texts[0]), argument) if len(texts) == 1 else argument
