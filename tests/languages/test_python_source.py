"""Python source read without running it, and recorded calls as assertions."""

from __future__ import annotations

import ast
import gc
import sys
import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import pytest

from securecoderl_edge.languages.python_source import (
    add_missing_imports,
    called_function,
    has_foreign_line,
    parse,
    reformatted,
    signature,
)
from securecoderl_edge.problems.datasets.calls import call_assertion


@pytest.mark.parametrize(
    ("assertion", "program", "name"),
    [
        ("assert f(1) == 2", "def f(x): pass", "f"),
        ("assert set(g(1)) == {2}", "def g(x): pass", "g"),
        ("assert (g(h(1))) == 2", "def h(x): pass", "h"),
        ("assert isclose(g(1), 2)", "def g(x): pass", "g"),
        ("assert sum(x) == 2", "def sum(x): pass", "sum"),
        ("assert abs(g(1)) == 2", "this is no Python", "g"),
        ("assert True", "def f(): pass", None),
        ("assert (", "def f(): pass", None),
    ],
)
def test_the_function_under_test_is_found_in_an_assertion(assertion: str, program: str, name: str | None) -> None:
    assert called_function(assertion, program) == name


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("def f(a, b=1, *c, **d):\n    pass", "f(a, b=1, *c, **d)"),
        ("def f(a: int) -> str:", "f(a: int) -> str"),
        ("class Solution:\n    def f(self, a):\n        ", "f(a)"),
        ("def g(a):\n\treturn 1\n\ndef f(x):\n\t", "f(x)"),
        ("def g(): pass", None),
        ("not python at all", None),
        ("", None),
    ],
)
def test_a_signature_is_read_from_programs_and_stubs(source: str, expected: str | None) -> None:
    assert signature(source, "f") == expected


def test_imports_are_added_only_for_names_that_are_never_bound() -> None:
    program = "def f(a: List[int]):\n    gcd = 1\n    return gcd, Counter(a), math.pi\n"
    added = "from collections import Counter\nfrom typing import List\nimport math\n\n"
    assert add_missing_imports(program) == added + program


@pytest.mark.parametrize(
    "program", ["import math\nmath.pi\n", "from math import *\ngcd(1, 2)\n", "def f(:", "print(1)\n"]
)
def test_a_program_that_needs_no_import_stays_as_it_is(program: str) -> None:
    assert add_missing_imports(program) == program


def test_a_call_assertion_holds_for_a_function_that_returns_the_value() -> None:
    value = {"a": [1, 2.5, None, True], 3: "quote ' and \\ and \n"}
    assertion = call_assertion("f", [value, "x"], value)
    exec(assertion, {"f": lambda given, _: given})
    with pytest.raises(AssertionError):
        exec(assertion, {"f": lambda given, _: 0})


def test_added_imports_follow_those_from_the_future() -> None:
    program = '"""Text."""\nfrom __future__ import division\n\n\ndef f(a: List[int]):\n    return ceil(a[0])\n'
    added = add_missing_imports(program)
    assert added.startswith(
        '"""Text."""\nfrom __future__ import division\nfrom math import ceil\nfrom typing import List\n'
    )
    exec(compile(added, "added", "exec"), {})
    assert add_missing_imports(added) == added


def test_programs_are_reformatted_alike() -> None:
    texts = (
        "def f( a ):\n\tif a :\n\t\treturn(a)\n",
        "# doubles\ndef f(a):\n  if a: return a",
        "def f(a):\n if a:\n   return a;",
    )
    assert {reformatted(text) for text in texts} == {"def f(a):\n    if a:\n        return a\n"}


@pytest.mark.parametrize("text", ["def f(:\n", "", "f" + "(" * 5000 + ")" * 5000, "-" * 3000 + "1", "x = 1\0"])
def test_a_text_that_cannot_be_reformatted_stays_as_it_is(text: str) -> None:
    assert reformatted(text) in (text, "\n")


def test_threads_parse_at_the_same_time() -> None:
    source = f"f([{'[1, 2], ' * 400}])"
    between, let_another_run = sys.getswitchinterval(), lambda *_: sum(range(50))
    sys.setswitchinterval(1e-6)
    gc.callbacks.append(let_another_run)
    try:
        with ThreadPoolExecutor(4) as threads:
            trees = list(threads.map(parse, [source] * 150))
    finally:
        gc.callbacks.remove(let_another_run)
        sys.setswitchinterval(between)
    assert None not in trees


@pytest.mark.parametrize(
    "source",
    [
        "package main\n\nfunc main() {\n\tfmt.", "\tif err != nil {\n\t\treturn err", "func (s *S) Get() int\n",
        "type P struct {\n\tX int\n", "fn main() {\n    let x", "use std::io;\n\nimpl F", "pub struct A {\n    x: i32",
        "#include <stdio.h>\nint main(void) {\n    ", "for (i = 0; i < n; i++) {\n  s += a[i]", "const x = () =>",
        "export interface A {\n  x: number\n", "function f(a, b) {\n  return", "public class A {\n    int x",
        "<div>\n  <p>", "<?xml version='1.0'?>\n<a>", "namespace a {\ntemplate <class T>\nT f(", "using System;\n",
        "fun main() {\n    println(", "<?php\necho 1;", "a {\n  color: red;\n", "<|fim_prefix|>def f():<|fim_suffix|>",
        "<fim_prefix>def f", "<｜fim▁begin｜>def f",
    ],
)  # fmt: skip
def test_a_line_of_another_language_is_known(source: str) -> None:
    for text in (source, source.replace("\n", "\r\n")):
        assert parse(text) is None
        assert has_foreign_line(text)


@pytest.mark.parametrize(
    "source",
    [
        "", "def add(a, b):\n    retrn a b", "x = {\n 'a': 1,\n", "class A:\n    def f(self", "import os\nos.path.",
        "use = 1\nuse(", "let = 1 +\n", "for i in range(3)\n    print(i)", "lambda x: {\n", "# include this\ndef f(",
        "print(f'{x};')\n)", "s = 'a;b'\nx = (", "func = 1\nfunc.", "type X = int\ntype(", "a < b\n<", "struct.pack(",
        "package = 1\npackage.", "def f(): {", "mod = 5\nmod %", "x = (\n{\n}\n",
    ],
)  # fmt: skip
def test_python_that_is_broken_has_no_line_of_another_language(source: str) -> None:
    assert not has_foreign_line(source)


@pytest.mark.parametrize("unit", [" ", "\n", "; ", ") ", "<", "<|fim", "pub ", "\t;", "# ", "type a ", "func "])
def test_a_long_text_is_searched_in_one_pass(unit: str) -> None:
    started = time.process_time()
    has_foreign_line(unit * (1_000_000 // len(unit)) + "x")
    assert time.process_time() - started < 10  # with backtracking: hours


def test_a_name_of_endless_marks_is_no_python() -> None:
    started = time.process_time()
    assert parse("x" + "\u0315\u0316" * 100_000) is None
    assert time.process_time() - started < 5  # when Python sorts them: minutes
    assert parse("x" + "\u0315\u0316" * 100) is not None


@pytest.mark.parametrize("words", ["import {}", "from {} import b", "x = 1; import {}"])
@pytest.mark.parametrize("part", ["a.", "a . ", "a.\\\n", "\u00b5.", "a\u0301."])
def test_a_dotted_name_without_end_is_no_python(words: str, part: str) -> None:
    tracemalloc.start()
    try:
        assert parse(words.format(part * 5_000 + "a")) is None
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < 4 << 20  # with the names that Python makes of it: 30 MiB, and of a megabyte more than a machine has
    assert parse(words.format(part * 50 + "a")) is not None
    assert parse("x = " + "a.b(c.d)" + ".e(f.g)" * 200) is not None


@pytest.mark.parametrize("digits", ["0xf", "0XF", "0b1", "0o7", "0x_f"])
def test_a_number_that_python_reads_but_does_not_write_is_no_python(digits: str) -> None:
    assert parse(f"x = {digits + digits[-1] * 100_000}") is None
    tree = parse(f"x = 0x{'f' * 83_048}")
    assert tree is not None
    assert ast.unparse(tree)


def test_a_word_of_beginnings_of_numbers_is_read_once() -> None:
    started = time.process_time()
    assert parse(f"x = '{' '.join(['0b' * 41_000] * 4)}'") is not None
    assert time.process_time() - started < 10  # from each beginning: a minute


@pytest.mark.parametrize("prefix", ["f", "F", "rf", "fR"])
def test_a_formatted_string_with_values_without_end_is_no_python(prefix: str) -> None:
    started = time.process_time()
    assert parse(f"{prefix}'{'{a}' * 300_000}'") is None
    assert time.process_time() - started < 5  # when Python looks for the place of each: minutes
    assert parse(f"{prefix}'{'{a}' * 300}'") is not None
    assert parse(f"x = [{'{1: 2}, ' * 30_000}]") is not None
