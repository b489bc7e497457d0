"""Programs that do not solve a problem: good tests fail all of them, and training finds those that pass.

* constants: each expected value, ``True``, ``False``, ``None``, the empty value of each type and what the reference
  returns for the given tests; of a ``stdin`` problem each expected output, and none;
* an exception for every input, where a test expects one;
* copies: an argument returned as it is, or the input printed.

In C the same outputs are printed, and a function returns the numbers in the expected outputs or a parameter, or does
nothing. Programs that the expected values rule out are not made. Not tried: objects that equal everything, which an
assertion in the sandbox (``whole``) would accept, and programs that tell the tests apart.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any

from securecoderl_edge.languages.language import C
from securecoderl_edge.languages.python_source import UNREADABLE, is_literal, literal, parse, tree_of, with_first_lines
from securecoderl_edge.problems.assertions import Assertion, assertions_of, satisfies
from securecoderl_edge.problems.comparison import same_output
from securecoderl_edge.problems.problem import Problem

_CONSTANTS = ("True", "False", "None", "0", "1", "-1", "''", "[]", "{}", "()", "set()")
_OUTPUTS = ("", "0", "1", "-1", "Yes", "No", "YES", "NO")
_MOST, _MOST_TRIED = 24, 500  # constants of a problem that the expected values do not rule out; that are looked at
_MOST_COPIED = 4  # arguments
_LONGEST = 10_000  # characters of a constant
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class CheapProgram:
    """A program that does not solve its problem; ``name`` is what it does, such as ``return True``."""

    name: str
    program: str


def cheap_programs(problem: Problem, reference: str = "", returned: Sequence[str] = ()) -> list[CheapProgram]:
    """The cheap programs that may pass all tests of a problem.

    Args:
        reference: a program that passes; the cheap ones get its helpers, and the classes and methods that tests use.
        returned: further constants, as Python literals: what the reference returns.
    """
    if problem.kind == "call":
        found = list(_of_function(problem, reference, returned))
    elif problem.driver:
        found = list(_with_driver(problem))
    else:
        found = list(_of_stdin(problem))
    return list({each.program: each for each in found}.values())


def _of_stdin(problem: Problem) -> Iterator[CheapProgram]:
    is_c = problem.language == C.name
    outputs = list({each.rstrip(): each for each in (*_OUTPUTS, *(test.output for test in problem.tests))}.values())
    may_pass = [
        output
        for output in outputs
        if problem.checker or all(same_output(output, test.output, problem.rule) for test in problem.tests)
    ]
    for output in may_pass[:_MOST]:
        name = f"print {output.strip()!r:.60}" if output else "print nothing"
        if is_c:
            text = "".join(f"\\{byte:03o}" for byte in output.encode("utf-8", "replace"))
            program = f'#include <stdio.h>\nint main(void) {{ fputs("{text}", stdout); return 0; }}\n'
            yield CheapProgram(name, program)
        else:
            yield CheapProgram(name, f"print({output!r}, end='')\n")
    if is_c:
        copying = "#include <stdio.h>\nint main(void) { int c; while ((c = getchar()) != EOF) putchar(c); return 0; }\n"
    else:
        copying = "import sys\nprint(sys.stdin.read(), end='')\n"
    yield CheapProgram("print the input", copying)


def _with_driver(problem: Problem) -> Iterator[CheapProgram]:
    """Functions in C, made from the prototype in the given code; none if it has another form."""
    name = re.escape(problem.entry_point or "")
    prototype = re.search(
        rf"(?P<type>\w[\w \t]{{0,99}}[\s*]{{1,20}}){name}\s*\((?P<parameters>[^()]*)\)\s*(?P<end>;)",
        problem.starter_code,
    )
    if prototype is None:
        return
    before, after = problem.starter_code[: prototype.start("end")], problem.starter_code[prototype.end("end") :]
    if prototype["type"].split()[-1] == "void":
        bodies = [("do nothing", "")]
    else:
        outputs = " ".join(test.output for test in problem.tests)
        numbers = list(dict.fromkeys(["0", "1", "-1", *re.findall(r"-?\b\d{1,18}\b", outputs)]))
        names = [re.findall(r"\w+", each)[-1] for each in prototype["parameters"].split(",") if " " in each.strip()]
        bodies = [(f"return {each}", f"return {each};") for each in [*numbers[:_MOST], *names[:_MOST_COPIED]]]
    for words, body in bodies:
        yield CheapProgram(words, f"{before} {{ {body} }}{after}\n")


def _of_function(problem: Problem, reference: str, returned: Sequence[str]) -> Iterator[CheapProgram]:
    name, assertions = problem.entry_point or "", assertions_of(problem)
    tree = parse(reference) if reference else None
    judged = _judged(assertions, name)
    tried = islice(_constants(assertions, returned), 0 if judged is None else _MOST_TRIED)
    may_pass = (text for text in tried if _may_pass(literal(text), judged or []))
    statements = [f"return {text}" for text in islice(may_pass, _MOST)]
    errors = list(dict.fromkeys(error for each in assertions if each.comparison == "raises" for error in each.expected))
    statements += [f"raise {error}" for error in errors]
    if len(errors) > 1:
        statements.append(f"raise type('Error', ({', '.join(errors)}), {{}})")
    own = [f"class {error}(Exception): pass" for error in errors if not hasattr(builtins, error)]
    named = [(f"{each:.60}", each) for each in statements]
    named += [
        (f"return argument {place}", f"return {copied}") for place, copied in enumerate(_parameters(tree, name), 1)
    ]
    for words, statement in named:
        for program in _programs(tree, name, statement, "\n".join(problem.assertions)):
            yield CheapProgram(words, with_first_lines(program, own) if own else program)


def _constants(assertions: Iterable[Assertion], returned: Iterable[str]) -> Iterator[str]:
    """Literals of values that an assertion may accept, and of the usual ones; each once."""
    values: list[Any] = []
    contained, near = [], []
    for each in assertions:
        expected = each.expected
        match each.comparison:
            case "equal" | "identical":
                # Also of ``[f(1)] == [2]``.
                values += [expected, *(expected[:_MOST_COPIED] if isinstance(expected, (list, tuple)) else ())]
            case "near":
                near.append(expected)
            case "among":
                values += list(expected)
            case "contains":
                contained.append(expected)
            case "each":
                values += expected
            case "whole":
                values += _literals_compared(each.expression)
    if near:
        values += near
        with suppress(OverflowError):  # an integer beyond all floats
            values.append((min(near) + max(near)) / 2)
    if contained:
        values += ["\n".join(contained)] if all(isinstance(each, str) for each in contained) else []
        values.append(contained)
    # The most frequent first: one that passes all tests is among them. By text, since True is not 1 to `is`.
    texts = [*_CONSTANTS, *(text for text, _ in Counter(map(repr, values)).most_common()), *returned]
    yield from (text for text in dict.fromkeys(texts) if len(text) <= _LONGEST and _is_literal(text))


def _is_literal(text: str) -> bool:
    match parse(text):
        case ast.Module(body=[ast.Expr(value=value)]):
            return is_literal(value)
    return False


def _literals_compared(assertion: str) -> Iterator[Any]:
    """The literals that comparisons in an assertion have on one side."""
    tree = parse(assertion)
    for node in ast.walk(tree) if tree else ():
        for side in [node.left, *node.comparators] if isinstance(node, ast.Compare) else ():
            try:
                yield ast.literal_eval(side)
            except UNREADABLE:
                continue


def _judged(assertions: Sequence[Assertion], name: str) -> list[tuple[Assertion, int | None]] | None:
    """The assertions on what the function returns and nothing else, with the number of values in a list of them.

    None if one expects an exception, so that no constant passes.
    """
    found: list[tuple[Assertion, int | None]] = []
    for each in assertions:
        if each.comparison == "raises":
            return None
        if each.comparison == "whole" or name in each.setup:
            continue
        match parse(each.expression):
            case ast.Module(body=[ast.Expr(value=ast.List(elts=calls))]) if each.comparison == "each":
                found += [(each, len(calls))] if all(_is_call(call, name) for call in calls) else []
            case ast.Module(body=[ast.Expr(value=call)]) if _is_call(call, name):
                found.append((each, None))
    return found


def _may_pass(value: Any, judged: Sequence[tuple[Assertion, int | None]]) -> bool:
    """Whether no assertion rules a constant out."""
    return all(satisfies(value if count is None else [value] * count, each) for each, count in judged)


def _is_call(node: ast.expr, name: str) -> bool:
    """Whether it is a call of the function, and nothing else."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name


def _programs(tree: ast.Module | None, name: str, statement: str, assertions: str) -> Iterator[str]:
    """The reference with this statement as the body of the function under test, or of each method of the class.

    Without a reference, a function that accepts all arguments; and a class, if tests may use an object of it.
    """
    if tree is not None and any(True for _ in _tested(tree, name)):
        # A fresh copy: the tree itself is used again.
        changed = tree_of(ast.unparse(tree))
        for node in _tested(changed, name):
            node.body = tree_of("pass" if node.name == "__init__" else statement).body
        kept = (ast.Import, ast.ImportFrom, *_DEFINITIONS, ast.ClassDef, ast.Assign, ast.AnnAssign)
        changed.body = [node for node in changed.body if isinstance(node, kept)]
        yield f"{ast.unparse(changed)}\n"
        return
    function = f"def {name}(*arguments, **keywords):\n    {statement}\n"
    yield f"{function}class Solution:\n    {name} = staticmethod({name})\n" if "Solution()" in assertions else function
    called = rf"{re.escape(name)}\("
    behind = [rest for line in assertions.split("\n") for rest in re.split(rf"\b{called}", line, maxsplit=1)[1:]]
    if any(re.search(r"\)\.\w", rest) for rest in behind) or re.search(rf"=\s*{called}", assertions):
        yield (
            f"def constant(*arguments, **keywords):\n    {statement}\n"
            f"class {name}:\n    def __init__(self, *arguments, **keywords):\n        pass\n"
            "    def __getattr__(self, name):\n        return constant\n"
        )


def _tested(tree: ast.Module, name: str) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """The functions and methods of this name, and the methods of a class of this name."""
    for node in tree.body:
        if isinstance(node, _DEFINITIONS) and node.name == name:
            yield node
        elif isinstance(node, ast.ClassDef):
            methods = [each for each in node.body if isinstance(each, _DEFINITIONS)]
            yield from (each for each in methods if name in (node.name, each.name))


def _parameters(tree: ast.Module | None, name: str) -> list[str]:
    """The first parameters of the function, without that of the object; of an unknown one, those that it may have."""
    if tree is None:
        return [f"[*arguments, *keywords.values()][{place}]" for place in range(_MOST_COPIED - 1)]
    functions = [each for each in _tested(tree, name) if each.name == name]
    arguments = functions[0].args if functions else ast.arguments([], [], None, [], [], None, [])
    named = [each.arg for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    return [each for each in named if each != "self"][:_MOST_COPIED]
