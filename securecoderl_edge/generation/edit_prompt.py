"""What a model is asked for an edit: the file or its outline, the instruction, and the form of the answer."""

from __future__ import annotations

import ast

from securecoderl_edge.generation.instruction import is_named
from securecoderl_edge.generation.statements import lines_of, newline_of, statements
from securecoderl_edge.languages.python_source import parse
from securecoderl_edge.text import replace_surrogates

# Files of at most as many lines are asked for as a whole.
_SHORT_FILE = 40
_WHOLE = "Answer with the whole changed file in one code block."
_PARTS = (
    "Answer with one code block that has each function or method that you change, as a whole, and the imports that it "
    "needs. Leave out all that does not change."
)


def question(name: str, shown: str, is_whole: bool, instruction: str) -> str:
    """The message to a chat model.

    Args:
        name: of the file.
        shown: its text, or the `outline`.
        is_whole: whether it is the text.
    """
    tree = parse(shown)
    has_definitions = tree is None or any(each.is_definition for each in statements(tree.body))
    is_short = is_whole and len(lines_of(shown)) <= _SHORT_FILE
    fence = "````" if "```" in shown else "```"
    code = shown.replace(newline_of(shown), "\n").rstrip("\n")
    return replace_surrogates(
        f"This is {'the file' if is_whole else 'an outline of the file'} {name}:\n\n"
        f"{fence}python\n{code}\n{fence}\n\n"
        f"Change it: {instruction.strip()}\n\n{_WHOLE if is_short or not has_definitions else _PARTS}"
    )


def outline(text: str, instruction: str) -> str:
    """A file with ``...`` for the body of each function that the instruction does not name; else unchanged."""
    tree = parse(text)
    lines = lines_of(text)
    for unit in reversed(statements(tree.body) if tree else []):
        is_class = isinstance(unit.node, ast.ClassDef)
        for each in reversed(statements(unit.node.body) if isinstance(unit.node, ast.ClassDef) else [unit]):
            body = getattr(each.node, "body", [])
            is_open = each.is_definition and body[0].lineno > each.node.lineno
            if is_open and not is_named(f"{unit.key}.{each.key}" if is_class else each.key, instruction):
                first = lines[body[0].lineno - 1]
                indent = first[: len(first) - len(first.lstrip())]
                lines[statements(body)[0].start : each.end] = [f"{indent}...{newline_of(text)}"]
    return "".join(lines)
