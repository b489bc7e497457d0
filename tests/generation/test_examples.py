"""Examples in prompts: read in the notations that people use, and not where a text only looks like one."""

from __future__ import annotations

import time

import pytest

from securecoderl_edge.generation.examples import Examples, examples_in, function_asked
from securecoderl_edge.problems.problem import Test


@pytest.mark.parametrize(
    "text",
    [
        "f(2) -> 4", "f(2) => 4", "f(2) ==> 4", "f(2) ➞ 4", "f(2) == 4", "f(2) = 4", "f(2) returns 4", "f(2) is 4",
        "f(2) should return 4.", "`f(2)` -> `4`", "For example, f(2) must be 4, since 2 + 2 is 4.", "f(2) # 4",
        "f(2) # returns 4", "f(2) -> 2 + 2 = 4", "assert f(2) == 4", ">>> f(2)\n4", ">>> f(2)\n4\n", ">>> f(2) == 4",
        ">>>f(2)\n4", "  >>> f(2)\n  4\n  \"\"\"", ">>> f(2) -> 4", "- f(2) -> 4", "1. f(2) -> 4", "*f(2) -> 4*",
    ],
)  # fmt: skip
def test_a_call_with_its_result_is_an_assertion(text: str) -> None:
    assert examples_in(f"Write a function f.\n\n{text}") == Examples((), ("assert f(2) == 4",), "f")


@pytest.mark.parametrize(
    "text",
    [
        "Examples:\n[1, 2] -> 3", "e.g. [1, 2] -> 3", "Examples:\nFor lst = [1, 2] the output should be 3",
        "Example:\nInput: lst = [1, 2]\nOutput: 3",
        "Example 1:\n\n    Input: [1, 2]\n    Output: 3\n    Explanation:\n    1 + 2", "Examples:\n[1, 2] => 3",
        "Example input:\n[1, 2]\nExample output:\n3", "Example:\nWith lst = [1, 2], it should be 3.",
    ],
)  # fmt: skip
def test_a_value_with_its_result_is_the_argument_of_the_function(text: str) -> None:
    assert examples_in(f"Write a function f(lst).\n\n{text}").assertions == ("assert f([1, 2]) == 3",)


@pytest.mark.parametrize(
    ("text", "assertion"),
    [
        (">>> f('a b')\n'b a'", "assert f('a b') == 'b a'"),
        (">>> f(0)\nTraceback (most recent call last):\n  ...\nValueError: no", "assert raises(f(0), ValueError)"),
        (">>> print(f(2))\n4", "assert str(f(2)) == '4'"),
        (">>> f(2)\nFraction(4, 1)", "assert repr(f(2)) == 'Fraction(4, 1)'"),
        (">>> f(2) == 4\nTrue", "assert (f(2) == 4) == True"),
        ("f(-1) raises ValueError", "assert raises(f(-1), ValueError)"),
        (">>> x = [1]\n>>> f(x)\n[1]", "x = [1]\nassert f(x) == [1]"),
        (">>> f([1,\n...     2])\n3", "assert f([1, 2]) == 3"),
        ("f('a(') -> ')'", "assert f('a(') == ')'"),
        ('f("->") -> "=="', 'assert f("->") == "=="'),
        ("f(1, (2, [3])) -> {'a': (4,)}", "assert f(1, (2, [3])) == {'a': (4,)}"),
        ("f(x=1) -> true", "assert f(x=1) == True"),
        ("f() == -1.5e3", "assert f() == -1.5e3"),
        ("assert abs(f(2) - 1.5) < 1e-6", "assert abs(f(2) - 1.5) < 1e-6"),
        ("assert not f(2)", "assert not f(2)"),
    ],
)
def test_other_values_and_forms_are_read(text: str, assertion: str) -> None:
    assert examples_in(f"Write a function f.\n{text}").assertions == (assertion,)


@pytest.mark.parametrize(
    "text",
    [
        "f(n) = f(n-1) + f(n-2)", "f(2) -> x", "f(x) -> 4", "f(2) -> 4 * n", "f(2)", "if f(2) then 4", "f(2) == 4x",
        "f(2 -> 4", "range(2) -> 4", "f(2) -> [1, 2", "f(2) -> ", ">>> f(2)", ">>> f(2)\n...",
    ],
)  # fmt: skip
def test_what_only_looks_like_a_result_is_none(text: str) -> None:
    assert examples_in(f"Write a function f.\n\n{text}").assertions == ()


@pytest.mark.parametrize(
    ("text", "tests"),
    [
        ("Sum.\n\nExample: 3 4 -> 7", [("3 4\n", "7")]),
        ("Reverse.\n\nExamples:\nabc -> cba\nde -> ed\n\nDone -> not an example", [("abc\n", "cba"), ("de\n", "ed")]),
        ('Reverse.\nExample:\n"abc" => "cba"', [("abc\n", "cba")]),
        ("A graph:\n1 -> 2\n2 -> 3\nPrint its nodes.", []),
        ("Print the root. Hint: math.sqrt(16) is 4.", []),
        ("Print C(n, k), e.g. C(5, 2) = 10.", []),
        ("Sum.\nSample Input 1:\n3 4\nSample Output 1:\n7\n", [("3 4\n", "7")]),
        ("Sum.\nExample:\nInput: 3 4\nOutput: 7", [("3 4\n", "7")]),
        ("Input: two numbers\nOutput: their sum", []),
        ("Example input:\n```\n3\n```\nExample output:\n```\n6\n```\nThanks.", [("3\n", "6")]),
        ("Example input:\n\n```text\n3\n\n4\n```\n\nExample output:\n\n```\n\n6\n```\n", [("3\n\n4\n", "\n6")]),
        ("```\nExample input:\n3\nExample output:\n6\n```\nThanks.", [("3\n", "6")]),
        ("```\nExample input:\n3\n```\nIt prints:\n```\nExample output:\n6\n```\nThanks.", [("3\n", "6")]),
        ("### Example 1:\nInput: `3`\nOutput: `6`\nInput: `\nOutput: ``", [("3\n", "6"), ("`\n", "``")]),
        ('"""Double.\n\nExample input:\n3\nExample output:\n6\n"""\nx = 1', [("3\n", "6")]),
        ("Example input:\n```\n3\nExample output:\n6", []),
        ("Example input: 3\nExample output: 6\n```python\nx = 1\n```", []),
        ("```python\nx = 1\n```\nExample input: 3\nExample output:\nIt prints:\n```\n6\n```", []),
        ("```python {.a}\nx = 1\n```\nExample input: 3\nExample output:\n```\n6\n```", [("3\n", "6")]),
        ("Convert a list -> a tuple", []),
        ("Give an example.\nA -> B", []),
        ("Say hello.", []),
    ],
)
def test_inputs_and_outputs_of_a_program_are_tests(text: str, tests: list[tuple[str, str]]) -> None:
    assert examples_in(text) == Examples(tuple(Test(*pair) for pair in tests))


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Write a function is_prime(n) that tells whether n is prime", "is_prime"),
        ("Write a function that returns a list", None),
        ("Write a function `gcd` of two numbers", "gcd"),
        ("Write a Python function called fib", "fib"),
        ("Implement fib(n).", "fib"),
        ("Write print(1)", None),
        ('def helper(x):\n    return x\n\ndef main_one(y):\n    """Doc.', "main_one"),
        ("Print the sum.", None),
    ],
)
def test_the_function_asked_for_is_named(text: str, name: str | None) -> None:
    assert function_asked(text) == name


def test_a_function_without_a_name_has_that_of_its_examples() -> None:
    assert examples_in("Double a number.\n>>> twice(2)\n4").entry_point == "twice"


@pytest.mark.parametrize(
    "text",
    [
        "Use math.gcd(4, 6) = 2.", 'Here g("a") returns 3.', 're.sub("a", "b", "a") == "b"', "lst.f(0) returns 1",
        "Unlike f(2) == 3", "It is wrong that f(2) == 3", "Currently f(4) returns 6. Fix the bug",
        "Fix this: f(4) returns 6 instead of 5", "If f(4) == 6 then it fails", "The length of f(4) is 6",
        "not f(4) == 5", "2 * f(4) == 6", "f(2) * f(4) == 6", "1 + f(4) = 6", "-f(4) = 6",
        "f(2) = f(1) + f(0) = 1 + 0 = 1", "f(4) = 4*3*2*1 = 24 and 5*f(4) = 120", "f(2) -> 3 or 4",
        "f(2) -> True if prime", "f(2) -> -1 or None on failure", "f(2) returns 2 values", "f(2) -> 1 to 6",
        "f(2) == 3 plus 2", "f(2) -> [1] in any order", "f(2) = 1.41...", "f(2) = 1,000", "f(2) = 12:30", "f(2) = 2^2",
        "f(2) = 1..6", "f(2) -> 1.2.3", "f(2) == 'a'.upper()", "f(2) is about 1.41", "f(2) = 50%", "f(2) -> 12.57 cm",
        "f(2) < 5", "f('abc') # 3 calls", "def f() -> None:", "f() -> None or int", ">>> f(3)\n3\n2\n1",
        ">>> f('Bob')\nHello, Bob!", ">>> f(3)\n<generator object f at 0x7f>", ">>> f(3)\n3.14...",
        ">>> f(3)\n[1, 2, ..., 9]", ">>> print(f('x'), 2)\nhi 2", "a -> b", "[1, 2] -> 3", '"a" -> 1',
        "assert f(x) == 3", ">>> random.seed(3)\n>>> f(2)\n5",
        ">>> f(3)\n1.73 (about)", "Example:\nInput: n = 3\nOutput: [0,1] or [1,0]",
        "f(2) = 6 (wrong)", "This prints n.\n>>> f(3)\n3",
    ],
)  # fmt: skip
def test_what_is_no_example_of_the_function_is_none(text: str) -> None:
    assert examples_in(f"Write a function f.\n{text}").assertions == ()


def test_a_session_keeps_its_state() -> None:
    text = ">>> c = f()\n>>> f(c)\n1\n>>> f(c)\n2"
    first, second = examples_in(f"Write a function f.\n{text}").assertions
    assert first == "c = f()\nassert f(c) == 1"
    assert second == "c = f()\nf(c)\nassert f(c) == 2"


@pytest.mark.parametrize(
    ("stub", "given", "assertion"),
    [
        ("def f(target, nums):", "nums = [1, 2], target = 3", "assert f(nums=[1, 2], target=3) == 7"),
        ("def f(a, b):", "nums = [1, 2], target = 3", None),
        ("def f(a):", "nums = [1, 2]", "assert f([1, 2]) == 7"),
        ("def f(root: TreeNode):", "root = [1, 2]", None),
    ],
)
def test_named_arguments_go_to_their_parameters(stub: str, given: str, assertion: str | None) -> None:
    text = f"{stub}\n    pass\n\nExample 1:\nInput: {given}\nOutput: 7\n"
    assert examples_in(text).assertions == ((assertion,) if assertion else ())


@pytest.mark.parametrize(
    "text",
    [
        "f(" * 100_000,
        ">>> " * 50_000,
        ">>> f(\n" * 50_000,
        "[" * 100_000 + " -> 1",
        "-> " * 50_000,
        ">>> f(" + "1+" * 900 + "1)\n3",
        ">>> x = 1\n>>> f(x)\n" * 3_000,
        "\n" * 500_000,
        f"-{' ' * 1_998}x\n" * 50,
        f"{'-' * 1_999}x\n" * 50,
        "function a1 " * 100_000,
        f"for a{' ' * 1_990}x\n" * 200,
        f"{'f(1) ' * 390}\n" * 400,
        f"Examples:\na{'-' * 1_998}\n" * 5_000,
        "Examples:\n" + "y -> 1\n" * 30_000,
    ],
)
def test_long_texts_take_linear_time(text: str) -> None:
    started = time.process_time()
    assert not examples_in(f"Write a function f.\n{text}").assertions
    assert time.process_time() - started < 20  # with backtracking: half a minute, or hours
