"""Examples in a text, as tests: of a program what it prints, of a function assertions.

Read are: sections of input and output, as in `starter` and in contests; sessions of Python (``>>>``); assertions; and
calls with their result in the usual notations, ``f(2) -> 4``, ``f(2) == 4``, ``f(2) returns 4``. A value alone before
an arrow, ``[1, 2] -> 3``, is the input of a program, or the argument of the function that the text asks for.

Nothing here runs what is read. Texts are read by lines, in time proportional to their length.
"""

from __future__ import annotations

import ast
import builtins
import keyword
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from securecoderl_edge.languages.python_source import UNREADABLE, called_function, parse
from securecoderl_edge.problems.problem import Test

_LONGEST = 2_000  # characters of a line, or of a call

_ARROW = r"(?:[-=]+>|[➞→⇒⟶➔])"
_SAYS = (
    rf"(?:{_ARROW}|={{2,3}}|=|#\s*(?:{_ARROW}|==?|returns?)?|(?:should |must |will )?(?:returns?|be|equal|give)s?|is)"
)
_RESULT = re.compile(rf"[`'\"]?\s*{_SAYS}:?\s*[`]?\s*")
_CALL = re.compile(r"\b([A-Za-z_]\w*)\(")
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|(?:[Tt]rue|[Ff]alse|[Nn]one|null)\b")
_CONSTANTS = {"true": "True", "false": "False", "none": "None", "null": "None"}
_OPERATOR = re.compile(r"\s*[-+*/%([]+\s*[\w(\[\"']")
_CALCULATED = re.compile(r"\s*[-+*/%][-+*/%().\d\s]*=\s*([-+]?\d+(?:\.\d+)?)\s*$")  # 7 - 2 = 5
_BULLET = re.compile(r"\s*(?:[-*•]\s+|\d+[.)]\s+|(?:for )?(?:example|e\.g\.)s?[:,]?\s+)?", re.IGNORECASE)
_PAIR = re.compile(rf"(?P<left>.+?)\s*{_ARROW}\s*(?P<right>.+)")
_FOR = re.compile(
    r"\s*(?:for|with|if|when) (?P<left>.+?),?\s+(?:the |your )?(?:output|result|answer|function|return value|it) "
    r"(?:should |must |will )?(?:be|is|returns?|equals?):? *(?P<right>.+)",
    re.IGNORECASE,
)
_NAME = re.compile(r"^\s*(\w+)\s*[:=](?!=)", re.MULTILINE)
_DEFINITION = re.compile(r"^(?:async )?def (\w+)\(", re.MULTILINE)
_ASKED = re.compile(
    r"\bfunctions?\s+(?:(?:called|named)\s+[`'\"]?(?P<named>\w+)|[`'\"](?P<quoted>\w+)|(?P<called>\w+)\()"
    r"|\b(?:write|implement|define|create|complete|need)\s+[`'\"]?(?P<asked>\w+)\(",
    re.IGNORECASE,
)
_HEADING = re.compile(
    r"(?:.*\b(?:examples?|samples?)[\s\d.#]*:\s*|\s*(?:for )?(?:examples?|samples?)[\s\d.:#]*)$", re.IGNORECASE
)
_END_OF_OUTPUT = re.compile(rf"{_HEADING.pattern}|\s*(?:explanation|note|constraints?)\b", re.IGNORECASE)
_INPUT = re.compile(r"(?P<own>(?:example|sample) )?input(?: \d+)?:[ \t]*(?P<text>.*)$", re.IGNORECASE)
_OUTPUT = re.compile(r"(?:(?:example|sample) )?output(?: \d+)?:[ \t]*(?P<text>.*)$", re.IGNORECASE)


@dataclass(frozen=True)
class Examples:
    """The examples of a text: ``tests`` of a program, or ``assertions`` on the function ``entry_point``."""

    tests: tuple[Test, ...] = ()
    assertions: tuple[str, ...] = ()
    entry_point: str | None = None


def examples_in(text: str) -> Examples:
    """The examples in a text, and the function that it asks for, if it names one."""
    lines = _lines(text)
    asked = function_asked(text)
    sections = list(_sections(lines))
    assertions = list(dict.fromkeys(_assertions(lines, asked)))
    names = Counter(filter(None, (called_function(each, "") for each in assertions)))
    entry_point = asked or (names.most_common(1)[0][0] if names else None)
    if entry_point is None:
        return Examples(
            _tests([*sections, *((_unquoted(given), _unquoted(wanted)) for given, wanted in _pairs(lines))])
        )
    if assertions and entry_point not in names:  # the text calls its function by another name
        other = names.most_common(1)[0][0] if names else entry_point
        assertions = [re.sub(rf"\b{re.escape(other)}\(", f"{entry_point}(", each) for each in assertions]
    kept = [each for each in assertions if re.search(rf"\b{re.escape(entry_point)}\b", each)]
    for given, wanted in [] if kept else [*sections, *_pairs(lines)]:
        arguments, expected = _arguments(given), _literal_at(wanted.strip(), 0)
        if arguments and expected:
            kept.append(f"assert {entry_point}({arguments}) == {expected}")
    if sections and not kept:
        return Examples(_tests(sections))  # no arguments, so what a program reads
    return Examples(assertions=tuple(kept), entry_point=entry_point)


def example_sections(text: str) -> tuple[Test, ...]:
    """The examples in sections of input and output alone, for programs in any language."""
    return _tests(_sections(_lines(text)))


def _tests(pairs: Iterable[tuple[str, str]]) -> tuple[Test, ...]:
    return tuple(Test(with_newline(given), wanted) for given, wanted in pairs if wanted.strip())


def _lines(text: str) -> list[str]:
    return text.replace("\r\n", "\n").split("\n")


def function_asked(text: str) -> str | None:
    """The name of the function that a text asks for: the last one that it begins to define, or one that it names."""
    if defined := _DEFINITION.findall(text):
        return str(defined[-1])
    for match in _ASKED.finditer(text):
        name = match[match.lastgroup or 0]
        if name.isidentifier() and not keyword.iskeyword(name) and not hasattr(builtins, name):
            return name
    return None


def with_newline(text: str) -> str:
    """An input that ends with a line break, unless it is empty."""
    return text if not text or text.endswith("\n") else f"{text}\n"


def _sections(lines: list[str]) -> Iterator[tuple[str, str]]:
    """Inputs and outputs in sections. Of an example in general: headings such as "Input:" alone describe a format."""
    state, is_example, given, wanted = "", False, [""], [""]
    for line in [*lines, "Example input:"]:
        heading = line.strip()
        if (match := _INPUT.match(heading)) and (match["own"] or is_example):
            if state == "output":
                yield "\n".join(given), "\n".join(wanted)
            state, given, wanted = "input", [match["text"]] if match["text"] else [], []
        elif state == "input" and (match := _OUTPUT.match(heading)):
            state, wanted = "output", [match["text"]] if match["text"] else []
        elif state == "output" and (_END_OF_OUTPUT.match(line) or (not heading and wanted)):
            yield "\n".join(given), "\n".join(wanted)
            state = ""
        elif state:
            (given if state == "input" else wanted).append(line)
        is_example = is_example or _HEADING.match(line) is not None


def _pairs(lines: list[str]) -> Iterator[tuple[str, str]]:
    """What stands before and behind an arrow in lines that have nothing else, without quotes around a text."""
    is_listed, pair = False, None
    for line in lines:
        rest = line[_BULLET.match(line).end() :].strip()[:_LONGEST]  # type: ignore[union-attr]
        is_blank_before = not rest and pair is None
        pair = _PAIR.fullmatch(rest) or _FOR.fullmatch(line)
        if pair and (is_listed or _begins_value(pair["left"])):
            yield pair["left"], pair["right"]
        is_listed = (is_listed and (pair is not None or is_blank_before)) or _HEADING.match(line) is not None


def _begins_value(text: str) -> bool:
    text = _NAME.sub("", text).lstrip()
    return text[:1] in "`'\"[({" or _NUMBER.match(text) is not None


def _unquoted(text: str) -> str:
    text = text.strip().strip("`")
    is_text = len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" and text.count(text[0]) == 2
    return text[1:-1] if is_text else text


def _assertions(lines: list[str], asked: str | None) -> Iterator[str]:
    """The assertions of sessions, of lines that assert, and of calls with a result."""
    setup: list[str] = []
    number = 0
    while number < len(lines):
        line = lines[number].strip()[:_LONGEST]
        number += 1
        if not line.startswith(">>>"):
            setup = [] if line else setup
            yield from _asserted(line, asked)
            continue
        source = [line[3:].strip()]
        while number < len(lines) and re.match(r"\s*\.\.\.(?: |$)", lines[number]):
            source.append(re.sub(r"^\s*\.\.\. ?", "", lines[number]))
            number += 1
        wanted = []
        while number < len(lines) and lines[number].strip() and not _ends_result(lines[number]):
            wanted.append(lines[number].strip())
            number += 1
        text = "\n".join(source)
        tree = parse(text)
        if tree is None:
            yield from _asserted(source[0], asked)
        elif not wanted and not isinstance(tree.body[-1] if tree.body else None, ast.Expr):
            setup.append(text)
        elif asserted := _of_session(tree, wanted):
            yield "\n".join([*setup, asserted])


def _ends_result(line: str) -> bool:
    return line.strip().startswith((">>>", '"""', "'''", "```"))


def _of_session(tree: ast.Module, wanted: list[str]) -> str | None:
    """The assertion that an expression gives what a session shows; None for what cannot be compared."""
    match tree.body:
        case [ast.Expr(value=ast.Compare()) as compared] if not wanted:
            return f"assert {ast.unparse(compared)}"
        case [ast.Expr(value=ast.Call(func=ast.Name(id="print"), args=[shown], keywords=[]))]:
            return f"assert str({ast.unparse(shown)}) == {' '.join(wanted)!r}" if len(wanted) == 1 else None
        case [ast.Expr(value=value)] if wanted:
            pass
        case _:
            return None
    if wanted[0].startswith("Traceback"):
        name = wanted[-1].partition(":")[0].rpartition(".")[2]
        return f"assert raises({ast.unparse(value)}, {name})" if name.isidentifier() else None
    text = "\n".join(wanted)
    if _is_literal(text):
        return f"assert {ast.unparse(value)} == {text}"
    if (begun := _literal_at(wanted[0], 0)) and not _OPERATOR.match(wanted[0], len(begun)):
        return f"assert {ast.unparse(value)} == {begun}"  # a remark follows
    return None if "..." in text else f"assert repr({ast.unparse(value)}) == {text!r}"


def _asserted(line: str, asked: str | None) -> Iterator[str]:
    """The assertion that a line is, or those of the calls in it with their results."""
    if line.startswith("assert ") and (tree := parse(line)) and isinstance(tree.body[0], ast.Assert):
        yield line
        return
    end = 0
    for match in _CALL.finditer(line):
        name = match[1]
        if match.start() < end or (hasattr(builtins, name) and name != asked) or keyword.iskeyword(name):
            continue
        call = _balanced(line, match.start())
        result = _RESULT.match(line, match.start() + len(call)) if call else None
        expected = _literal_at(line, result.end()) if result else ""
        inside = call[len(name) + 1 : -1]
        if result is None or not expected or (inside and not _arguments(inside)):
            continue
        end = result.end() + len(expected)
        if calculated := _CALCULATED.match(line, end):
            yield f"assert {call} == {calculated[1]}"
        elif not _OPERATOR.match(line, end):
            yield f"assert {call} == {expected}"


def _arguments(given: str) -> str:
    """The arguments in an input: values, with or without names; empty if it is something else."""
    named = ", ".join(_NAME.sub(r"\1=", line) for line in given.strip().split("\n"))
    match parse(f"f({named})"):
        case ast.Module(body=[ast.Expr(value=ast.Call(args=args, keywords=keywords))]):
            values = [ast.unparse(each) for each in (*args, *(each.value for each in keywords))]
            return ", ".join(values) if all(map(_is_literal, values)) else ""
    return ""


def _literal_at(line: str, start: int) -> str:
    """The literal that begins at an offset of a line; empty if none does."""
    if line[start : start + 1] in tuple("[({'\""):
        found = _balanced(line, start)
    else:
        number = _NUMBER.match(line, start)
        found = number[0] if number else ""
        if line[start + len(found) : start + len(found) + 1].isalnum():
            return ""
        found = found.removesuffix(".")  # of a sentence
    found = _CONSTANTS.get(found.lower(), found)
    return found if found and _is_literal(found) else ""


def _balanced(line: str, start: int) -> str:
    """The text from an offset to where its brackets and quotes close; empty if they do not."""
    depth, quote, is_escaped = 0, "", False
    for offset in range(start, len(line)):
        character = line[offset]
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
            return line[start : offset + 1]
    return ""


def _is_literal(text: str) -> bool:
    tree = parse(text.strip())
    try:
        ast.literal_eval(tree.body[0].value) if tree else ast.literal_eval("?")  # type: ignore[attr-defined]
    except (*UNREADABLE, AttributeError, IndexError):
        return False
    return len(tree.body) == 1 if tree else False
