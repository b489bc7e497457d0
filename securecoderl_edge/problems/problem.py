"""Programming problems.

A *stdin* problem is judged by what the program prints for each test input; a *call* problem by assertions on
a function, each assertion counting as one test.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from securecoderl_edge.languages.language import PYTHON
from securecoderl_edge.languages.targets import NO_BUDGET, TargetBudget
from securecoderl_edge.problems.comparison import Rule, rule_of_source
from securecoderl_edge.problems.test_file import TestFile

Kind = Literal["stdin", "call"]


@dataclass(frozen=True, slots=True)
class Test:
    """One stdin test: the text fed to the program and the text that it must print."""

    __test__ = False  # pytest would take the name for a test class

    input: str
    output: str


# Replaces the tests of a prompt that has none: the program is compiled and scanned, and its result on an empty input is
# ignored.
NO_TEST = Test("", "\0")
# The tag of problems whose first test has all of the original benchmark, and the others more: EvalPlus' base and plus.
BASE_TAG = "base-tests-first"


@dataclass(frozen=True)
class SecurityTest:
    """One test that a secure program passes and an insecure one fails, such as a malicious input.

    Attributes:
        name: what it tries, in a few words.
        cwe: the weakness that it looks for, a number of the Common Weakness Enumeration.
        input: of a stdin problem, with either the ``output`` that is expected or text that must not occur in the output
            (``forbidden``, see `contains`), such as what injected code would print. With the latter a program may
            reject the input in any way, also by a crash.
        assertion: of a call problem, instead of these.
    """

    name: str
    cwe: int
    input: str = ""
    output: str = ""
    forbidden: str = ""
    assertion: str = ""


@dataclass(frozen=True)
class Problem:
    """One programming problem (docs/reference/files.md).

    ``tests`` is empty for call problems, ``assertions`` is empty for stdin problems. ``solutions`` are
    reference programs; they are never shown to a model outside training. ``insecure_solutions`` pass the tests, but not
    all of ``security_tests``: they show that these tests can fail. Variants of one task have the same ``group``.

    A problem in C can ask for a function, ``entry_point``. Its ``driver`` is then compiled after the answer: C text
    that reads the input of a test, calls the function and prints what it returns; ``starter_code`` is the prototype.
    With a ``target``, a microcontroller, answers must pass there too, within a ``budget``.

    An output is compared by ``compare``, by default the rule of the grader that ``source`` stands for; or a ``checker``
    judges it, a program in Python that defines ``check(input, output, expected)`` and runs in the sandbox as well.
    With a ``test_file`` the assertions are the names of its tests; this is for edits, not in problem files.
    """

    id: str
    statement: str
    kind: Kind = "stdin"
    tests: tuple[Test, ...] = ()
    entry_point: str | None = None
    assertions: tuple[str, ...] = ()
    starter_code: str = ""
    security_tests: tuple[SecurityTest, ...] = ()
    solutions: tuple[str, ...] = ()
    insecure_solutions: tuple[str, ...] = ()
    difficulty: str = ""
    source: str = ""
    tags: tuple[str, ...] = ()
    group: str = ""
    time_limit_s: float | None = None
    language: str = PYTHON.name
    driver: str = ""
    target: str = ""
    budget: TargetBudget = NO_BUDGET
    compare: Rule | None = None
    checker: str = ""
    test_file: TestFile | None = None

    @property
    def rule(self) -> Rule:
        """How outputs are compared with the expected ones."""
        return self.compare or rule_of_source(self.source)

    @property
    def test_count(self) -> int:
        """T of the reward: the number of stdin tests or of assertions."""
        return len(self.tests) if self.kind == "stdin" else len(self.assertions)

    def whole_program(self, answer: str) -> str:
        """What is run for an answer: the answer itself, or with the driver behind it."""
        return f'{answer}\n#line 1 "driver.c"\n{self.driver}' if self.driver else answer

    @property
    def driver_apart(self) -> str:
        """The driver to be compiled without an answer: behind ``starter_code``, which declares the function."""
        return f'{self.starter_code}\n#line 1 "driver.c"\n{self.driver}' if self.driver else ""


def with_few_tests(problem: Problem, most: int) -> Problem:
    """The problem with the first ``most`` of its tests."""
    if problem.test_count <= most:
        return problem
    return replace(problem, tests=problem.tests[:most], assertions=problem.assertions[:most])


def with_sentence(problem: Problem, sentence: str) -> Problem:
    """The problem with one more paragraph in its statement; itself if that is empty."""
    return replace(problem, statement=f"{problem.statement}\n\n{sentence}") if sentence else problem


def contains(output: str, forbidden: str) -> bool:
    """Whether ``forbidden`` text occurs in an output; between newlines, only as whole lines."""
    return forbidden in f"\n{output}\n"
