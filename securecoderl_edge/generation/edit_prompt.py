"""What a model is asked for an edit: the file or its outline, the instruction, and the form of the answer."""

from __future__ import annotations

import ast
import re
import textwrap

from securecoderl_edge.generation.instruction import is_named, is_removed
from securecoderl_edge.generation.statements import FUNCTIONS, defined_in, lines_of, newline_of, statements
from securecoderl_edge.languages.language import PYTHON
from securecoderl_edge.languages.python_source import parse
from securecoderl_edge.text import replace_surrogates

# Files of at most as many lines are asked for as a whole.
_SHORT_FILE = 40
_WHOLE = "Answer with the whole changed file in one code block."
_PARTS = (
    "Answer with one code block that has {parts}, as a whole, and the imports that it needs. Do not repeat the rest of "
    "the file."
)
_ADDS = re.compile(
    r"\b(?:add|write|create|insert|new|split|extract)\b.*\b(?:function|method|class)\b", re.IGNORECASE | re.DOTALL
)
_PARAMETERS = re.compile(
    r"parameter|argument|signature|rename|annotat|\btypes?\b|\bhints?\b|default|optional|keyword|async|\w\([^)]",
    re.IGNORECASE,
)
_ANY_PART = "each function or method that you change"


def question(name: str, shown: str, is_whole: bool, instruction: str) -> str:
    """The message to a chat model.

    Args:
        name: of the file.
        shown: its text, or the `outline`.
        is_whole: whether it is the text.
    """
    tree = parse(shown)
    has_definitions = tree is not None and any(each.is_definition for each in statements(tree.body))
    is_short = is_whole and len(lines_of(shown)) <= _SHORT_FILE
    named = _to_change(shown, instruction) if tree else []
    parts = _PARTS.format(parts=f"the changed {' and '.join(named)}" if named else _ANY_PART)
    wanted = parts if named or (has_definitions and not is_short) else _WHOLE
    fence = "````" if "```" in shown else "```"
    code = shown.replace(newline_of(shown), "\n").rstrip("\n")
    return replace_surrogates(
        f"This is {'the file' if is_whole else 'an outline of the file'} {name}:\n\n"
        f"{fence}python\n{code}\n{fence}\n\n"
        f"Change it: {instruction.strip()}\n\n{wanted}"
    )


def beginning(text: str, instruction: str) -> str:
    """How the answer begins if the instruction names one function, to change it: with its header; else empty.

    Small models would rather repeat the whole file, and lose their way in it; or change the parameters. The header has
    none of them if the instruction is about parameters.
    """
    named = [each.strip("`") for each in _to_change(text, instruction)]
    tree = parse(text)
    if tree is None or len(named) != 1 or _ADDS.search(instruction):
        return ""
    owner, _, name = named[0].rpartition(".")
    bodies = [node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == owner]
    for each in statements(bodies[0] if bodies else tree.body):
        if each.key == name and isinstance(each.node, FUNCTIONS):
            end = max(each.node.lineno, statements(each.node.body)[0].start)
            lines = lines_of(text)[each.node.lineno - 1 : end]
            header = textwrap.dedent("".join(lines)).replace(newline_of(text), "\n")
            opening = header.partition("(")[0] + ("(self" if owner and "(self" in header else "(")
            has_end = header.rstrip().endswith(":") and not _PARAMETERS.search(instruction)
            return f"```{PYTHON.fence}\n{header if has_end else opening}"
    return ""


def _to_change(text: str, instruction: str) -> list[str]:
    """The functions, methods and classes that an instruction names; as code, if it names any so."""
    known = defined_in(text)
    named = [each for each in known if is_named(each.rpartition(".")[2], instruction)]
    as_code = [each for each in named if re.search(rf"`{each}\b|\b{each.rpartition('.')[2]}(?:\(|`)", instruction)]
    chosen = [each for each in as_code or named if not is_removed(each, instruction)]
    return [f"`{each}`" for each in chosen if not any(other.startswith(f"{each}.") for other in chosen)]


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
