"""Values written in running text."""

from __future__ import annotations

import ast
import builtins
import re
from functools import lru_cache

from securecoderl_edge.languages.python_source import is_literal, names_imported, parse

_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|(?:[Tt]rue|[Ff]alse|[Nn]one|null)\b")
_CONSTANTS = {"true": "True", "false": "False", "none": "None", "null": "None"}
_NAME = re.compile(r"^\s*(\w+)\s*[:=](?!=)", re.MULTILINE)
_STUB = re.compile(r"^(?:async )?def \w+\((.*)\)", re.MULTILINE)
_KNOWN = {*dir(builtins), "raises"}


def literal_at(text: str, start: int) -> str:
    """The literal that begins at an offset of a line; empty if none does."""
    if text[start : start + 1] in tuple("[({'\""):
        found = balanced(text, start)
    else:
        number = _NUMBER.match(text, start)
        found = number[0].removesuffix(".") if number else ""  # of a sentence
        if re.match(r"\w", text[start + len(found) :]):
            return ""
    return found if _is_value(_CONSTANTS.get(found.lower(), found)) else ""


def python_literal(found: str) -> str:
    """A literal of `literal_at` in Python: other languages write ``true``."""
    return _CONSTANTS.get(found.lower(), found)


def _is_value(text: str) -> bool:
    match parse(text):
        case ast.Module(body=[ast.Expr(value=value)]):
            return "..." not in text and is_literal(value)
    return False


def balanced(text: str, start: int) -> str:
    """The text from an offset to where its brackets and quotes close; empty if they do not."""
    depth, quote, is_escaped = 0, "", False
    for offset in range(start, len(text)):
        character = text[offset]
        if quote:
            if character == quote and not is_escaped:
                quote = ""
            is_escaped = character == "\\" and not is_escaped
        elif character in "'\"":
            quote = character
        elif character in "([{":
            depth += 1
        elif character in ")]}":
            depth -= 1
        else:
            continue
        if depth == 0 and not quote and not is_escaped:
            return text[start : offset + 1]
    return ""


def arguments_in(given: str, text: str = "") -> str:
    """The arguments in an input: literals, with or without names; empty if it is something else.

    Names become keywords if the stub in ``text`` has such parameters; if it has others, the order is unknown, and the
    input is nothing.
    """
    named = ", ".join(_NAME.sub(r"\1=", line) for line in given.strip().split("\n"))
    match parse(f"f({named})"):
        case ast.Module(body=[ast.Expr(value=ast.Call(args=args, keywords=keywords))]):
            values = [*args, *(each.value for each in keywords)]
            if not all(map(is_literal, values)) or "..." in given:
                return ""
            names, parameters = [each.arg for each in keywords], _parameters(text)
            if parameters and names and not all(name in parameters for name in names):
                return ", ".join(map(ast.unparse, values)) if len(names) == 1 == len(parameters) else ""
            shown = [*map(ast.unparse, args)]
            return ", ".join(
                [*shown, *((f"{each.arg}=" if parameters else "") + ast.unparse(each.value) for each in keywords)]
            )
    return ""


@lru_cache(maxsize=1)  # a text can have thousands of examples
def _parameters(text: str) -> list[str]:
    """The parameters of the last function that a text begins to define, without that of the object."""
    defined = _STUB.findall(text)
    return [each for each in re.findall(r"(?:^|,)\s*\*{0,2}(\w+)", defined[-1]) if each != "self"] if defined else []


def has_free_names(assertion: str, name: str) -> bool:
    """Whether an assertion uses names that neither it nor Python defines, except for that of the function."""
    tree = parse(assertion)
    nodes = list(ast.walk(tree)) if tree else []
    bound = {each.id for each in nodes if isinstance(each, ast.Name) and not isinstance(each.ctx, ast.Load)}
    bound |= {each.arg for each in nodes if isinstance(each, ast.arg)}
    bound |= {imported for each in nodes for imported in names_imported(each)}
    bound |= {each.name for each in nodes if isinstance(each, (ast.FunctionDef, ast.ClassDef))}
    used = {each.id for each in nodes if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load)}
    errors = {each for each in used if re.fullmatch(r"\w*(?:Error|Exception)", each)}  # the second of ``raises``
    return bool(used - bound - errors - _KNOWN - {name})
