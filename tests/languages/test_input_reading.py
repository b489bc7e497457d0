"""Programs that read their input, and those that only look so; by the syntax tree, nothing runs."""

from __future__ import annotations

import ast
import time
from textwrap import dedent, indent

import pytest
from hypothesis import given
from hypothesis import strategies as st

from securecoderl_edge.languages.input_reading import reads_input
from securecoderl_edge.problems.sources import load_problems

IGNORING = [
    "return True",
    "del n\nreturn True",
    "_ = n\nreturn True",
    "_ = m = n\nx, y = n, 1\nreturn True",
    "copy = n\nother = copy\nreturn True",
    "n\nreturn True",
    "n, m = 1, 2\nreturn n",
    "n = 5\nreturn n + 1",
    "return True\nreturn n",
    "raise ValueError\nprint(n)",
    "if False:\n    return n\nreturn True",
    "while 0:\n    return n\nreturn True",
    "if True:\n    return 1\nelse:\n    return n",
    "if n:\n    pass\nreturn True",
    "if n > 3:\n    return True\nreturn True",
    "if n:\n    return True\nelif m:\n    return True\nelse:\n    return True",
    "if isinstance(n, int) and len(str(m)) > 3:\n    x = n\nreturn True",
    "for each in n:\n    pass\nreturn True",
    "while n:\n    x = m\nreturn True",
    "def inner():\n    return n\nreturn True",
    "f = lambda: n\nreturn True",
    "return [n for n in range(3)]",
    "return [n for n in [n for n in [n for n in range(3)]] if n]",
    "return (lambda n: n)(3)",
    "def inner(n):\n    return n\nreturn inner(1)",
    "def inner():\n    n = 1\n    return n\nreturn inner()",
    "print(n, m)\nreturn True",
    "x = [0]\nx[0] = n\nreturn True",
    "x = [0] * (n + 1)\nx[0] = n\nreturn True",
    "x: dict = {}\nx[n] = m\nx |= {n: m}\nreturn True",
    "x, y = [[0] * 3 for _ in 'abc'], {1}\nx[0][1] = n\ny |= {n}\nreturn True",
    "try:\n    return True\nexcept Exception:\n    return False",
    '"""Returns n."""\nreturn True',
    "result = 0\nfor i in range(32):\n    result ^= i\nreturn result",
]
READING = [
    "return n",
    "return [n]",
    "x = n\nreturn x",
    "if n:\n    return True\nreturn False",
    "if n:\n    return True",
    "if n:\n    raise ValueError\nreturn True",
    "assert n\nreturn True",
    "x = 1\nif n:\n    x = 2\nreturn x",
    "x = 1\nwhile n > x:\n    x += 1\nreturn x",
    "total = 0\nfor each in n:\n    total += each\nreturn total",
    "total = 0\nfor total in n:\n    pass\nreturn total",
    "for each in n:\n    if each:\n        return 1\nreturn 2",
    "return [each for each in n]",
    "return [n for n in n]",
    "return {each: m for each in range(3)}",
    "return (lambda: n)()",
    "return (lambda x=n: x)()",
    "def inner():\n    return n\nreturn inner()",
    "def inner():\n    nonlocal n\n    n += 1\ninner()\nreturn n",
    "def inner(x=n):\n    return x\nreturn inner()",
    "class Box:\n    value = n\nreturn Box",
    "n.sort()",
    "n[0] = 1",
    "n.x = 1\nreturn True",
    "n += 1\nreturn n",
    "row = n[0]\nrow[0] = 1",
    "for row in n:\n    row[0] = 1",
    "for place, row in enumerate(n):\n    row[place] = 1",
    "x, y = n, m\nx[0] = 1",
    "x = [n]\nx[0][0] = 1",
    "x = [row for row in n]\nx[0][0] = 1",
    "node = n\nwhile True:\n    node.value = 0\n    node = node.next",
    "n += [1]",
    "other: dict = n\nother |= {1: 2}",
    "x = []\nx.append(n)\nreturn x",
    "x = [0]\nx[0] = n\nreturn x",
    "json.loads(n)\nreturn True",
    "_ = json.loads(n)\nreturn True",
    "yield n",
    "yield from n",
    "return await_me(m)",
    "with open(n):\n    pass\nreturn True",
    "try:\n    n + 1\nexcept TypeError:\n    return False\nreturn True",
    "match n:\n    case 1:\n        return True\nreturn False",
    "if (x := n):\n    pass\nreturn x",
    "global seen\nseen = n\nreturn True",
    "return eval('n')",
    "return locals()['n']",
    "import sys\nreturn sys._getframe().f_locals['n']",
    "x = n\ny = x\nz = y\nreturn f'{z}'",
    "if n:\n    return True\nelse:\n    return True\n",
]
# Read, but without effect on the result: no syntax tree shows that, so they count as reading.
IN_VAIN = [
    "return 1 + 0 * n",
    "return helper(n)",
    "x = True\nif n:\n    x = True\nreturn x",
    "if n:\n    return 'yes'\nreturn 'y' 'es' + ''",
]
READING.remove("if n:\n    return True\nelse:\n    return True\n")


def function(body: str, header: str = "def f(n, m):") -> str:
    return f"{header}\n{indent(body, '    ')}\n"


@pytest.mark.parametrize("body", IGNORING)
def test_a_function_that_uses_no_argument_ignores_them(body: str) -> None:
    compile(function(body), "", "exec")
    assert reads_input(function(body), "f") is False


@pytest.mark.parametrize("body", [*READING, *IN_VAIN])
def test_a_function_whose_result_may_depend_on_an_argument_reads_it(body: str) -> None:
    compile(function(body), "", "exec")
    assert reads_input(function(body), "f") is True


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("def f(*args):\n    return True\n", False),
        ("def f(*args, **named):\n    return args[0]\n", True),
        ("def f(*, key=None):\n    return key\n", True),
        ("def f():\n    return True\n", False),
        ("f = lambda n: True", False),
        ("f = lambda n: n", True),
        ("def g(n):\n    return True\nf = g\n", False),
        ("f = f", None),
        ("f = g = 1\nf = partial(pow, 2)", None),
        ("def f(n):\n    return n\ndef f(n):\n    return True\n", False),
        ("async def f(n):\n    return n\n", True),
        ("class Solution:\n    def f(self, n):\n        return self\n", False),
        ("class Solution:\n    def f(self, n):\n        return n\n", True),
        ("class Solution:\n    @staticmethod\n    def f(n):\n        return n\n", True),
        ("@cache\ndef f(n):\n    return True\n", False),
        ("@functools.lru_cache(maxsize=None)\ndef f(n):\n    return True\n", False),
        ("@checked\ndef f(n):\n    return True\n", None),
        ("n = 3\ndef f(m):\n    return n\n", False),
        ("def g(n):\n    return True\n", None),
        ("def f(n) return", None),
        ("", None),
    ],
)
def test_the_function_is_found_as_its_callers_find_it(source: str, expected: bool | None) -> None:
    assert reads_input(source, "f") is expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("print(input())", True),
        ("import sys\nfor line in sys.stdin:\n    print(line)", True),
        ("import builtins\nprint(builtins.input())", True),
        ("import sys\nprint(sum(map(int, sys.stdin.read().split())))", True),
        ("from sys import stdin as f\nprint(f.readline())", True),
        ("import os\nprint(os.read(0, 9))", True),
        ("import fileinput\nfor line in fileinput.input():\n    print(line)", True),
        ("print(open(0).read())", True),
        ("read = input\nprint(read())", True),
        ("def main():\n    n = int(input())\n    print(n)\nmain()", True),
        ("def main():\n    print(input())\nif __name__ == '__main__':\n    main()", True),
        ("import sys\ninput = sys.stdin.readline\nn = int(input())\nprint(n)", True),
        ("n = int(input())\nif n > 3:\n    print('YES')\nelse:\n    print('NO')", True),
        ("print('YES')", False),
        ("n = int(input())\nprint('YES')", False),
        ("a, b = map(int, input().split())\nprint(7)", False),
        ("import sys\ndata = sys.stdin.read()\nprint(7)", False),
        ("input()\nprint(7)", False),
        ("def main():\n    n = input()\n    print(7)\nmain()", False),
        ("def main():\n    print(input())\nprint(7)", False),
        ("if False:\n    print(input())\nprint(7)", False),
        ("for i in range(3):\n    print(i)", False),
        ("", False),
        ("print(", None),
    ],
)
def test_a_program_reads_standard_input_if_what_it_does_depends_on_it(source: str, expected: bool | None) -> None:
    assert reads_input(source, None) is expected


@given(st.sampled_from([*IGNORING, *READING]), st.sampled_from([*IGNORING, *READING]))
def test_code_that_never_runs_changes_nothing(body: str, dead: str) -> None:
    wrapped = f"if False:\n{indent(dead, '    ')}\n{body}"
    if not any(isinstance(node, ast.Nonlocal | ast.Global) for node in ast.walk(ast.parse(function(dead)))):
        assert reads_input(function(wrapped), "f") is reads_input(function(body), "f")


@pytest.mark.parametrize("source", ["starter:eval", "mbpp:test"])
def test_every_reference_reads_its_input(source: str) -> None:
    for problem in load_problems(source)[:200]:
        name = problem.entry_point if problem.kind == "call" else None
        assert all(reads_input(solution, name) for solution in problem.solutions), problem.id


HOSTILE = {
    "long": "x = 1\n" * 10_000,
    "chain": "".join(f"a{n} = a{n + 1}\n" for n in range(900)) + "while 1:\n    return a0",
    "deep": "\n".join(f"{'    ' * n}def f{n}():" for n in range(19)) + f"\n{'    ' * 19}return n\n",
    "nested": "return " + "(" * 80 + "n" + ")" * 80,
    "sum": "return n" + " + n" * 4_000,
    "elif": "if n:\n    return n\n" + "elif n:\n    return n\n" * 900,
    **{
        f"comprehensions {opened}": f"return {opened * 90}n{closed * 90}"
        for opened, closed in (
            ("[a for a in ", "]"),
            ("{a for a in ", "}"),
            ("(a for a in ", ")"),
            ("{a: 1 for a in ", "}"),
        )
    },
    "comprehensions in conditions": f"return {'[a for a in [1] if ' * 90}n{']' * 90}",
    "comprehensions of two": f"return {'[a for b in c for a in ' * 90}n{']' * 90}",
    "lambdas": f"return {'(lambda a=' * 90}n{': a)' * 90}",
}


@pytest.mark.parametrize("body", HOSTILE.values(), ids=HOSTILE)
def test_programs_made_to_be_slow_are_read_or_given_up_at_once(body: str) -> None:
    started = time.process_time()
    assert reads_input(function(dedent(body)), "f") in (True, False, None)
    assert time.process_time() - started < 2
