"""Examples in a text, as tests: of a program what it prints, of a function assertions.

Read are: sections of input and output, as in `starter` and in contests; sessions of Python (``>>>``); assertions; and
calls with their result in the usual notations, ``f(2) -> 4``, ``f(2) == 4``, ``f(2) returns 4``. Behind a heading such
as "Examples:" a value alone before an arrow, ``[1, 2] -> 3``, is the input of a program or the argument of the function
that the text asks for.

A false test rejects right programs, and a missed one only tells less. So an example must stand on its own: nothing but
its result follows, no other words lead to it, and no word near it says that it is wrong. What is read is not run here.
"""

from __future__ import annotations

import ast
import builtins
import keyword
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from securecoderl_edge.generation.literals import arguments_in, balanced, has_free_names, literal_at, python_literal
from securecoderl_edge.languages.python_source import called_function, expected_errors, is_literal, parse
from securecoderl_edge.problems.problem import Test

_LONGEST = 2_000  # characters of a line, or of a call
_MOST_CALLS = 500  # that are looked at
_MOST_STATEMENTS = 20  # of a session before an assertion
_TRACEBACK = "Traceback (most recent call last):"

_ARROW = r"(?:(?<![-=])[-=]++>|[➞→⇒⟶➔])"
_VERB = r"(?:(?:should|must|will|would) )?(?:returns?|be|equals?|gives?|yields?|outputs?|evaluates? to)|is"
_RESULT = re.compile(rf"[`'\"]?\s*(?:#\s*)?(?:{_ARROW}|={{1,3}}|{_VERB}|(?<=#)|(?<=# )):?\s*`?")
_RAISES = re.compile(
    r"`?\s*(?:should |must |will )?(?:raises?|throws?)\s+(?:an? )?`?(?P<error>\w*(?:Error|Exception))\b"
)
_CALL = re.compile(r"(?<![\w.])([A-Za-z_]\w*)\(")
# What may stand before an example: a mark, or a word that introduces one.
_BEGUN = re.compile(r"\s*(?:[-*•>]\s+|\d+[.)]\s+)?[`*\"']{0,2}")
_BEFORE = re.compile(
    r"(?:[,;:(`]\s*|[.!?]\s+|\b(?:examples?|e\.g\.|i\.e\.|eg|ie|and|so|thus|hence|for|as)[,:]?\s+`?)$",
    re.IGNORECASE,
)
_NEAR = 64  # characters before a call that are looked at: a line can have hundreds of calls
# What may follow: the end of the line or sentence, a remark, or the next example.
_AFTER = re.compile(
    r"[`*\"']{0,2}\)?(?:[.;,]?\s*(?:#|$)|[.;]\s+\S|[,;]?\s+(?:since|because)\b|[,;]?\s+(?:and\s+)?`?[A-Za-z_]\w*\()"
)
_DOUBT = re.compile(
    r"\b(?:not|never|cannot|unlike|wrong(?:ly)?|incorrect(?:ly)?|broken|bugs?|fix|currently|used to|instead|if|suppose"
    r"|about|approximately|roughly)\b|n't\b",
    re.IGNORECASE,
)
_CALCULATED = re.compile(r"\s*[-+*/%][-+*/%().\d\s]*=\s*([-+]?\d+(?:\.\d+)?)\s*$")  # 7 - 2 = 5
_PAIR = re.compile(rf"[\s*•-]*+(?:\d+[.)]\s)?(?P<left>.+?){_ARROW}\s*(?P<right>.+)")
_LABEL = re.compile(r"[\s*•-]*(?:for )?(?:examples?|e\.g\.)[:,]?\s+", re.IGNORECASE)
_FOR = re.compile(
    r"[\s*•-]*(?:for|with) (?P<left>.*?[^\s,]),?\s++(?:the |your )?(?:output|result|answer|function|return value|it) "
    r"(?:should |must |will )?(?:be|is|returns?|equals?):? *(?P<right>.+)",
    re.IGNORECASE,
)
_DEFINITION = re.compile(r"^(?:async )?def (\w+)\(", re.MULTILINE)
_ASKED = re.compile(
    r"\bfunctions?\s+(?:(?:called|named)\s+[`'\"]?(?P<named>\w+)|[`'\"](?P<quoted>\w+)|(?P<called>\w+)\(|(?P<bare>\w+))"
    r"|\b(?:write|implement|define|create|complete|need)\s+(?!an?\b|the\b)[`'\"]?(?P<asked>\w+)(?P<open>\()?",
    re.IGNORECASE,
)
_HEADING = re.compile(
    r"(?:.*\b(?:examples?|samples?)[\s\d.#]*:\s*|\s*(?:for )?(?:examples?|samples?)[\s\d.:#]*)$", re.IGNORECASE
)
_END_OF_OUTPUT = re.compile(
    rf"{_HEADING.pattern}|\s*(?:explanation|note|constraints?)\b|\s*(?:\"\"\"|'''|\*/)\s*$", re.IGNORECASE
)
_INPUT = re.compile(r"(?P<own>(?:example|sample) )?input(?: \d+)?:[ \t]*(?P<text>.*)$", re.IGNORECASE)
_OUTPUT = re.compile(r"(?:(?:example|sample) )?output(?: \d+)?:[ \t]*(?P<text>.*)$", re.IGNORECASE)
# Functions whose result is not what their examples show: of arguments they change, of nodes, of what they print.
_NO_RESULT = re.compile(r"\bin[- ]place\b|\b(?:List|Tree)?Node\b", re.IGNORECASE)
_PRINTS, _RETURNS = re.compile(r"\bprints?\b", re.IGNORECASE), re.compile(r"\breturns?\b", re.IGNORECASE)


@dataclass(frozen=True)
class Examples:
    """The examples of a text: ``tests`` of a program, or ``assertions`` on the function ``entry_point``."""

    tests: tuple[Test, ...] = ()
    assertions: tuple[str, ...] = ()
    entry_point: str | None = None


def examples_in(text: str) -> Examples:
    """The examples in a text, and the function that it asks for, if it names one."""
    lines, asked = _lines(text), function_asked(text)
    try:
        assertions = list(dict.fromkeys([*_sessions(lines, text), *_asserted(lines)]))
        names = Counter(filter(None, (called_function(each, "") for each in assertions)))
        entry_point = asked or (names.most_common(1)[0][0] if names else None)
        if entry_point is None:
            pairs = ((_unquoted(given), _unquoted(wanted)) for given, wanted in _pairs(lines))
            return Examples(_tests([*_sections(lines), *pairs]))
        return _of_function(lines, text, entry_point, assertions)
    except RecursionError:  # a deeply nested expression
        return Examples(entry_point=asked)


def _of_function(lines: list[str], text: str, name: str, assertions: list[str]) -> Examples:
    """The examples of a function: those of the first kind that the text has."""
    found = list(dict.fromkeys([*assertions, *_calls(lines, name)]))
    kept = [
        each
        for each in found
        if called_function(each, f"def {name}(): pass") == name and not has_free_names(each, name)
    ]
    if not kept and not _NO_RESULT.search(text):
        for given, wanted in [*_sections(lines), *_pairs(lines)]:
            arguments, expected = arguments_in(given, text), literal_at(wanted.strip(), 0)
            if arguments and expected and _AFTER.match(wanted.strip(), len(expected)):
                kept.append(f"assert {name}({arguments}) == {python_literal(expected)}")
    return Examples(assertions=tuple(kept), entry_point=name)


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
    called = set(_CALL.findall(text))
    for match in _ASKED.finditer(text):
        sure = match["named"] or match["quoted"] or match["called"]
        name = sure or match["bare"] or match["asked"]
        is_called = sure or match["open"] or name in called
        if is_called and name.isidentifier() and not keyword.iskeyword(name) and not hasattr(builtins, name):
            return str(name)
    return None


def with_newline(text: str) -> str:
    """An input that ends with a line break, unless it is empty."""
    return text if not text or text.endswith("\n") else f"{text}\n"


def _sections(lines: list[str]) -> Iterator[tuple[str, str]]:
    """Inputs and outputs in sections. Of an example in general: headings such as "Input:" alone describe a format.

    The fences of Markdown around a text are no part of it. A text before them and one within them are no example.
    """
    state, is_example, given, wanted = "", False, [""], [""]
    is_open = is_fenced = False  # a block; one that is the text of a section
    for line in [*lines, "Example input:"]:
        heading, section = line.strip(), given if state == "input" else wanted
        is_fence = heading.startswith("```") and "`" not in heading.lstrip("`")
        is_open = is_open != is_fence
        if is_fence and state in ("input", "output"):
            if state == "output" and not is_open:
                yield "\n".join(given), "\n".join(wanted)
            is_fenced = is_open and not any(map(str.strip, section))
            if is_fenced:
                section.clear()
            else:
                state = "between" if state == "input" and not is_open else ""
        elif is_fenced:
            section.append(line)
        elif (match := _INPUT.match(heading)) and (match["own"] or is_example):
            if state == "output":
                yield "\n".join(given), "\n".join(wanted)
            state, given, wanted = "input", _begun(match["text"]), []
        elif state in ("input", "between") and (match := _OUTPUT.match(heading)):
            state, wanted = "output", _begun(match["text"])
        elif state == "output" and (_END_OF_OUTPUT.match(line) or (not heading and wanted)):
            yield "\n".join(given), "\n".join(wanted)
            state = ""
        elif state in ("input", "output"):
            section.append(line)
        is_example = is_example or _HEADING.match(line) is not None


def _begun(text: str) -> list[str]:
    """The lines of a section whose heading has text behind it, perhaps between backticks."""
    is_quoted = len(text) > 2 and text[0] == text[-1] == "`" and "`" not in text[1:-1]
    return [text[1:-1] if is_quoted else text] if text else []


def _pairs(lines: list[str]) -> Iterator[tuple[str, str]]:
    """What stands before and behind an arrow behind a heading of examples, in lines that have nothing else."""
    is_listed, pair = False, None
    for line in lines:
        is_blank_before = not line.strip() and pair is None
        label = _LABEL.match(line)
        rest = line[label.end() if label else 0 :].strip()[:_LONGEST]
        pair = _PAIR.fullmatch(rest) or _FOR.fullmatch(rest)
        if pair and (is_listed or label):
            yield pair["left"], pair["right"]
        is_listed = (is_listed and (pair is not None or is_blank_before)) or _HEADING.match(line) is not None


def _unquoted(text: str) -> str:
    text = text.strip().strip("`")
    is_text = len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" and text.count(text[0]) == 2
    return text[1:-1] if is_text else text


def _asserted(lines: list[str]) -> Iterator[str]:
    """The lines that are assertions."""
    for line in map(str.strip, lines):
        if line.startswith("assert ") and len(line) <= _LONGEST:
            tree = parse(line)
            if tree and len(tree.body) == 1 and isinstance(tree.body[0], ast.Assert):
                yield line


def _calls(lines: list[str], name: str) -> Iterator[str]:
    """The calls of a function in running text with their results, as assertions."""
    left = _MOST_CALLS
    for line in lines:
        if len(line) > _LONGEST or line.lstrip().startswith("def "):
            continue
        text, end = line.strip(), 0
        if text.startswith(">>>"):  # what a session cannot read may be a call with an arrow
            text = text[3:].strip()
            if parse(text):
                continue
        for match in _CALL.finditer(text) if f"{name}(" in text and not _DOUBT.search(_outside(text)) else ():
            if match.start() < end or match[1] != name or not _leads_to(text, match.start()):
                continue
            left -= 1
            if left < 0:
                return
            call = balanced(text, match.start())
            inside = call[len(name) + 1 : -1]
            if not call or (inside and not arguments_in(inside)):
                continue
            asserted, end = _result_of(text, call, match.start() + len(call))
            yield from [asserted] if asserted else []


def _leads_to(text: str, call: int) -> bool:
    """Whether what stands before a call in its line may stand before an example."""
    is_begun = _BEGUN.fullmatch(text, 0, call) is not None
    return is_begun or _BEFORE.search(text, max(0, call - _NEAR), call) is not None


def _result_of(text: str, call: str, start: int) -> tuple[str, int]:
    """The assertion about a call whose result stands at an offset, and where this ends; empty if there is none."""
    if error := _RAISES.match(text, start):
        return f"assert raises({call}, {error['error']})", error.end()
    result = _RESULT.match(text, start)
    expected = literal_at(text, result.end()) if result else ""
    if result is None or not expected or (call.endswith("()") and ("->" in result[0] or result[0].strip() == "=")):
        return "", start  # also of an annotation
    end = result.end() + len(expected)
    if calculated := _CALCULATED.match(text, end):
        return f"assert {call} == {calculated[1]}", len(text)
    return (f"assert {call} == {python_literal(expected)}", end) if _AFTER.match(text, end) else ("", start)


def _outside(text: str) -> str:
    """A line without what is between quotes."""
    return re.sub(r"\"[^\"]*\"|'[^']*'", "", text)


def _sessions(lines: list[str], text: str) -> Iterator[str]:
    """The assertions of sessions: each expression with its result, behind what was typed before it."""
    typed: list[str] = []
    told = re.sub(r"^[^\S\n]*>>>.*", "", text, flags=re.MULTILINE)
    prints = _PRINTS.search(told) is not None and _RETURNS.search(told) is None
    number = 0
    while number < len(lines):
        line = lines[number].strip()
        number += 1
        if not line.startswith(">>>") or len(line) > _LONGEST:
            continue
        source = [line[3:].strip()]
        while number < len(lines) and re.match(r"\s*\.\.\.(?: |$)", lines[number]):
            source.append(re.sub(r"^\s*\.\.\. ?", "", lines[number]))
            number += 1
        wanted = []
        while number < len(lines) and lines[number].strip() and not _ends_result(lines[number]):
            wanted.append(lines[number].strip())
            number += 1
        tree = parse("\n".join(source))
        if tree is None or not tree.body:
            continue
        asserted = None if prints else _of_session(tree, wanted)
        if asserted:
            yield "\n".join([*typed[-_MOST_STATEMENTS:], asserted])
        # A result without variables changes nothing for the next one, and what raises cannot be repeated.
        if (typed or not wanted or not isinstance(tree.body[-1], ast.Expr)) and wanted[:1] != [_TRACEBACK]:
            typed.append("\n".join(source))


def _ends_result(line: str) -> bool:
    return line.strip().startswith((">>>", '"""', "'''", "```"))


def _of_session(tree: ast.Module, wanted: list[str]) -> str | None:
    """The assertion that an expression gives what a session shows; None for what cannot be compared."""
    match tree.body:
        case [ast.Expr(value=ast.Compare()) as compared] if not wanted:
            return f"assert {ast.unparse(compared)}"
        case [ast.Expr(value=ast.Call(func=ast.Name(id="print"), args=arguments, keywords=keywords))]:
            is_plain = len(arguments) == len(wanted) == 1 and not keywords
            return f"assert str({ast.unparse(arguments[0])}) == {wanted[0]!r}" if is_plain else None
        case [ast.Expr(value=value)] if wanted:
            expression = ast.unparse(value)
        case _:
            return None
    if wanted[0].startswith("Traceback"):
        asserted = f"assert raises({expression}, {wanted[-1].partition(':')[0].rpartition('.')[2]})"
        raised = parse(asserted)
        return asserted if raised and expected_errors(raised.body[0].test) else None  # type: ignore[attr-defined]
    shown = "\n".join(wanted)
    if "..." in shown:
        return None
    if not isinstance(value, (ast.Call, ast.Name, ast.Subscript, ast.Attribute)):
        expression = f"({expression})"
    match parse(shown):
        case ast.Module(body=[ast.Expr(value=result)]) if is_literal(result):
            return f"assert {expression} == {shown}"
        case ast.Module(body=[ast.Expr(value=ast.Call(func=ast.Name() | ast.Attribute()))]):  # the text of an object
            return f"assert repr({expression}) == {shown!r}"
    begun = literal_at(wanted[0], 0)
    is_remarked = begun and len(wanted) == 1 and re.match(r"\s*#", wanted[0][len(begun) :])
    return f"assert {expression} == {begun}" if is_remarked else None
