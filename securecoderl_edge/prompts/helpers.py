"""What a block of an answer has: the function or program that a problem needs, or helpers that another block lacks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from securecoderl_edge.languages.language import PYTHON, C
from securecoderl_edge.prompts.source_lines import line_at, source_lines

_READS = re.compile(r"\b(?:input\s*\(|stdin|open\s*\(\s*0|fileinput|read\s*\(|scanf|getchar|fgets|getline|fread)")
_PRINTS = re.compile(r"\b(?:print|write|writelines|printf|puts|putchar|fputs|fwrite)\b")
# A line of a definition that does nothing.
_EMPTY_LINE = re.compile(
    r"\s*(?:$|#|@|[\"']|\.\.\.|pass\b|import\s|from\s|raise NotImplementedError"
    r"|(?:async\s+)?(?:def|class)\s[^#]*(?:[:(,]|\.\.\.|\bpass)\s*(?:$|#))"
)
_WORDS = re.compile(r"\w+")
_DEFINITION = re.compile(r"(?:async\s+)?(?:def|class)\s+(\w+)")
_PARAMETER = re.compile(r"[(,]\s*\**(\w+)")
_COMPOUND = re.compile(r"(?:try|except|else|finally|if|with)\b")
_BEGINS_STATEMENT = re.compile(r"[\w@#\"'(\[{*)\]}]")


def has_needed(program: str, language: str, entry_point: str) -> int:
    """How much of what the problem needs a text has.

    2: it defines the function, or reads and prints. 1: it imports the function as a test does, or defines a stub of it,
    or prints. 0: none of these.
    """
    if language == C.name:
        return 2 * _has_header(program, entry_point or "main")
    if not entry_point:
        return (1 + bool(_READS.search(program))) if _PRINTS.search(program) else 0
    name = re.escape(entry_point)
    defined = rf"[ \t]*(?:async[ \t]+)?(?:def|class)[ \t]+{name}\b"
    bound = rf"{name}[ \t]*(?::[^=\n]+)?=(?!=|[ \t]*{name}[ \t]*$)"
    if re.search(rf"^(?:{defined}|{bound})", program, re.MULTILINE):
        return 1 if _is_stub(program, language) else 2
    return 1 if re.search(rf"^from .*\b{name}\b", program, re.MULTILINE) else 0


def _has_header(program: str, name: str) -> bool:
    """Whether a program in C has ``name(...) {``."""
    called = re.compile(rf"\b{re.escape(name)}\s*\(")
    # In pieces that each end once: to look for the end behind each name takes quadratic time.
    pieces = (each[0] for each in re.finditer(r"[^;{}]*+[;{}]", f"{program};"))
    return any(each[-1] == "{" and each[:-1].rstrip().endswith(")") and called.search(each) for each in pieces)


def _is_stub(program: str, language: str) -> bool:
    """Whether nothing in a program does anything: headers, docstrings, ``pass`` and ``...`` alone."""
    lines = (line_at(program, line.start) for line in source_lines(program, 0, language) if line.is_statement)
    return all(_EMPTY_LINE.match(line) for line in lines)


def with_helpers(program: str, blocks: Sequence[str], language: str, entry_point: str) -> str:
    """A program behind those of the blocks before it that bind a name which it uses and does not have.

    What else is in such a block stays: a limit that it sets, or an example of its own.
    """
    kept, own, used = [program], _own(program, language), set(_WORDS.findall(program))
    for block in reversed(blocks):
        names = _offered(block, language, entry_point)
        if "*" in names or (names - own) & used:
            kept.append(block.rstrip("\n"))
            own |= _own(block, language)
            used.update(_WORDS.findall(block))
    return "\n\n".join(reversed(kept))


def _offered(block: str, language: str, entry_point: str) -> set[str]:
    """The names that a block binds; none if it is not Python or calls the entry point, as examples do."""
    if language == C.name:
        return {"*"} if "main" not in block and "{" in block else set()
    calls = rf"(?<![\w.]){re.escape(entry_point)}\s*\("
    if entry_point and re.search(calls, re.sub("#.*", "", block)):
        return set()
    names: set[str] = set()
    is_compound = False
    for statement in _statements(block, language):
        is_inner = statement[0].isspace()
        if not is_inner and not _BEGINS_STATEMENT.match(statement):
            return set()
        if not is_inner or is_compound:
            names |= _bound(statement.strip())
        is_compound = is_compound if is_inner else _COMPOUND.match(statement) is not None
    return names


def _own(program: str, language: str) -> set[str]:
    """The names that a program binds anywhere, parameters among them."""
    statements = [statement.strip() for statement in _statements(program, language)]
    headers = [statement for statement in statements if _DEFINITION.match(statement)]
    return set().union(*map(_bound, statements), *map(_PARAMETER.findall, headers))


def _statements(program: str, language: str) -> Iterator[str]:
    """The statements of a program, each with its lines and its indentation, but not those of a compound one.

    Blank lines are statements as well: together they are the program.
    """
    starts = [line.start for line in source_lines(program, 0, language) if line.is_statement]
    for start, end in zip(starts, [*starts[1:], len(program)], strict=True):
        if start < end:
            yield program[start:end]


def _bound(statement: str) -> set[str]:
    """The names that a statement binds; ``*`` for all of a module."""
    if statement.startswith(("import ", "from ")):
        imported = re.sub(r"#.*|[()\\]", "", statement.rpartition("import ")[2])
        return {part.split()[-1].partition(".")[0] for part in imported.split(",") if part.strip()}
    if found := _DEFINITION.match(statement):
        return {found[1]}
    left, sign, right = statement.partition("=")
    targets = [target.strip(" *()") for target in left.partition(":")[0].split(",")]
    is_binding = sign and right[:1] != "=" and all(target.isidentifier() for target in targets)
    return set(targets) if is_binding else set()


# Whatever else stands at the left edge is an example or a test.
_KEPT = re.compile(
    r"(?:async\s+def|def|class|import|from)\b|[@#)\]}]|[A-Za-z_][\w.]*(?:\s*,\s*\w+)*\s*(?::[^=]+)?=(?!=)"
)


def definitions_in(program: str) -> str:
    """The imports, definitions and assignments of a program in Python, as EvalPlus' sanitizer leaves them."""
    kept, is_kept = [], True
    for statement in _statements(program, PYTHON.name):
        if not statement[0].isspace():
            is_kept = _KEPT.match(statement) is not None
        if is_kept:
            kept.append(statement)
    return "".join(kept)
