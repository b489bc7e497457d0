"""More tests for a problem: inputs made from those of its tests, with what its reference gives for them.

An input is used only if the reference ends without an error, and if the other references and the insecure solutions
give the same: where those differ, the task leaves the answer open, or the input is an attack, which is for security
tests.
Inputs keep the traits of the given ones (`changed_values`), because nothing says which others a function accepts.

Not found: references whose results depend on the order of a set, which is the same in each run of the sandbox.
"""

from __future__ import annotations

import ast
import random
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from securecoderl_edge.languages.language import PYTHON
from securecoderl_edge.languages.python_source import is_literal, parse, tree_of, with_first_lines
from securecoderl_edge.problems.assertions import assertions_of
from securecoderl_edge.problems.changed_values import literal_arguments, new_inputs, text_of_values, values_of_text
from securecoderl_edge.problems.problem import Problem, Test
from securecoderl_edge.scoring.reward import prints
from securecoderl_edge.system.machine import cpu_count
from securecoderl_edge.system.processes import result_of

if TYPE_CHECKING:
    from securecoderl_edge.sandbox import Execution
    from securecoderl_edge.scoring.scorer import Scorer

NEW_TESTS = 5
LEAST_OUTPUTS = 3
TAG = "augmented-tests"  # of an augmented problem, with the number of tests: augmented-tests:5
_CANDIDATES, _COMPARED = 6, 3  # inputs that the reference, and that the other solutions try, for each new test
_MOST_REFERENCES = 4
_LONGEST = 2_000  # characters of an input, and of an output
_RESEED = ["import random", "random.seed(20)"]
_CLOCK = {"now", "today", "utcnow", "localtime", "gmtime"}
_TOLERANCE = 1e-6


class Refused(ValueError):
    """A problem gets no tests; the message is the reason, a part of a sentence."""


@dataclass(frozen=True)
class Augmented:
    """A problem after augmentation.

    Attributes:
        problem: with the new tests; as it was if it is refused.
        added: number of new tests.
        refusal: why there are none; else empty.
    """

    problem: Problem
    added: int = 0
    refusal: str = ""


def augment_all(
    problems: Sequence[Problem],
    scorer: Scorer,
    most: int = NEW_TESTS,
    seed: int = 0,
    threads: int | None = None,
    on_progress: Callable[[], None] = lambda: None,
) -> list[Augmented]:
    """`augment` each problem, several at the same time (``threads``, by default one per core)."""

    def one(problem: Problem) -> Augmented:
        done = augment(problem, scorer, most, seed)
        on_progress()
        return done

    with ThreadPoolExecutor(threads or cpu_count()) as pool:
        futures = [pool.submit(one, problem) for problem in problems]
        try:
            return list(map(result_of, futures))
        finally:
            pool.shutdown(cancel_futures=True)


def augment(problem: Problem, scorer: Scorer, most: int = NEW_TESTS, seed: int = 0) -> Augmented:
    """Add at most ``most`` tests to a problem, and order all by their outputs: each first test has another one.

    The problem keeps its id; a tag tells how many of its tests are new. It is refused if its reference fails the given
    tests, reads the clock, gives different results in two runs (random numbers get another seed), or if all tests
    together have fewer than `LEAST_OUTPUTS` outputs: two are enough where the new ones are constants in the reference.

    Args:
        seed: of the changes.
    """
    try:
        references = _references(problem, scorer)
        form = _form_of(problem)
        generator = random.Random(f"{seed}/{problem.id}")
        inputs = new_inputs(form.inputs, _constants_of(references[0]), _CANDIDATES * most, generator)
        made = [form.made(given) for given in inputs]
        if not made:
            raise Refused("no other input has the form of the given ones")
        _, run = scorer.inspect(_with_tests(problem, made), references[0])
        recorded = [form.recorded(test, execution) for test, execution in zip(made, run.executions, strict=False)]
        outputs = _outputs_of(problem)
        tests = _rarest(list(filter(None, recorded)), outputs, _COMPARED * most)
        chosen = _rarest(_agreed(problem, tests, references, scorer), outputs, most)
        _check_outputs(set(outputs), {output for _, output in chosen}, _constants_of(references[0]))
        return Augmented(_ordered(problem, chosen, outputs), len(chosen))
    except Refused as refused:
        return Augmented(problem, refusal=str(refused))


def _references(problem: Problem, scorer: Scorer) -> list[str]:
    """The solutions that pass all given tests, at least one."""
    if not problem.solutions:
        raise Refused("it has no reference solution")
    bare = replace(problem, security_tests=())
    scores = [scorer.score(bare, each) for each in problem.solutions[:_MOST_REFERENCES]]
    passing = [score.program for score in scores if score.passes_all_tests]
    if not passing:
        verdict = next((each for each in scores[0].verdicts if each != "pass"), "does not parse")
        raise Refused(f"its reference fails the given tests ({verdict})")
    tree = parse(passing[0]) if problem.language == PYTHON.name else None
    if any(isinstance(node, ast.Attribute) and node.attr in _CLOCK for node in (ast.walk(tree) if tree else ())):
        raise Refused("its reference reads the clock, so its results do not stay the same")
    return passing


def _agreed(
    problem: Problem, tests: Sequence[tuple[Any, str]], references: Sequence[str], scorer: Scorer
) -> list[tuple[Any, str]]:
    """The tests that the other references and the insecure solutions pass as well.

    Raises:
        Refused: none is left, or the first reference gives other results in a second run.
    """
    if not tests:
        raise Refused("its reference gives no literal result for other inputs")
    asked = _with_tests(problem, [test for test, _ in tests])
    is_python = problem.language == PYTHON.name
    again = with_first_lines(references[0], _RESEED) if is_python else references[0]
    given = scorer.score(replace(problem, security_tests=()), again)
    if not (given.passes_all_tests and scorer.score(asked, again).passes_all_tests):
        raise Refused("its reference gives different results in two runs")
    kept = list(range(len(tests)))
    for program in (*references[1:], *problem.insecure_solutions[:_MOST_REFERENCES]):
        verdicts = scorer.score(asked, program).verdicts
        kept = [place for place in kept if place < len(verdicts) and verdicts[place] == "pass"]
    if not kept:
        raise Refused("its solutions give different results for every other input")
    return [tests[place] for place in kept]


def _rarest(tests: Sequence[tuple[Any, str]], outputs: Sequence[str], most: int) -> list[tuple[Any, str]]:
    """The tests with the outputs that are rarest so far, those of the given tests included."""
    left, counts, chosen = list(tests), Counter(outputs), list[tuple[Any, str]]()
    while left and len(chosen) < most:
        place = min(range(len(left)), key=lambda each: (counts[left[each][1]], each))
        chosen.append(left.pop(place))
        counts[chosen[-1][1]] += 1
    return chosen


def _check_outputs(given: set[str], new: set[str], constants: Sequence[Any]) -> None:
    """Two outputs are enough where the new ones are constants in the reference: it may have no others.

    Raises:
        Refused: there are too few.
    """
    enough = 2 if new - given <= {"True", "False", "None", *map(repr, constants)} else LEAST_OUTPUTS
    if len(given | new) < enough:
        raise Refused(f"its reference gives {len(given | new)} outputs for all inputs, and {enough} are needed")


def _ordered(problem: Problem, chosen: Sequence[tuple[Any, str]], outputs: Sequence[str]) -> Problem:
    """The problem with all tests, ordered so that an output comes again after all others came once.

    Training uses the first tests only.
    """
    given = problem.tests if problem.kind == "stdin" else problem.assertions
    pairs = [*zip(given, outputs, strict=True), *chosen]
    counts: Counter[str] = Counter()
    rounds = []
    for test, output in pairs:
        rounds.append((counts[output], test))
        counts[output] += 1
    tests = tuple(test for _, test in sorted(rounds, key=lambda each: each[0]))
    tags = (*(each for each in problem.tags if not each.startswith(f"{TAG}:")), f"{TAG}:{len(chosen)}")
    return replace(_with_tests(problem, tests), security_tests=problem.security_tests, tags=tags)


def _with_tests(problem: Problem, tests: Sequence[Any]) -> Problem:
    """The problem with these tests, and without security tests."""
    if problem.kind == "stdin":
        return replace(problem, tests=tuple(tests), security_tests=())
    return replace(problem, assertions=tuple(tests), security_tests=())


def _outputs_of(problem: Problem) -> list[str]:
    """What each given test expects, as texts that are equal for equal outputs."""
    if problem.kind == "stdin":
        return [test.output.strip() for test in problem.tests]
    return [
        f"raises {each.expected}" if each.comparison == "raises" else repr(each.expected)
        for each in assertions_of(problem)
    ]


def _constants_of(program: str) -> list[Any]:
    """The texts and numbers in a program in Python."""
    tree = parse(program)
    values = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)] if tree else []
    return [each for each in values if type(each) in (int, float, str) and len(str(each)) <= _LONGEST]


class _Form(Protocol):
    """How the inputs of a problem are written as tests."""

    inputs: list[list[Any]]

    def made(self, values: Sequence[Any]) -> Any:
        """The test with an input, whose output is not known yet."""

    def recorded(self, test: Any, execution: Execution) -> tuple[Any, str] | None:
        """The test with the output of the reference, and this; None if it cannot be used."""


def _form_of(problem: Problem) -> _Form:
    return _Texts(problem) if problem.kind == "stdin" else _Calls(problem)


class _Texts:
    """The inputs of a program: those with the most frequent number of lines."""

    def __init__(self, problem: Problem) -> None:
        texts = [test.input for test in problem.tests if len(test.input) <= _LONGEST]
        values = [each for text in texts if text_of_values(each := values_of_text(text)).rstrip() == text.rstrip()]
        most = Counter(map(len, values)).most_common(1)
        self.inputs = [each for each in values if len(each) == most[0][0]] if any(texts) else []
        self._given = {text.rstrip() for text in texts}
        if not self.inputs:
            raise Refused("its tests have no input that can be changed")

    def made(self, values: Sequence[Any]) -> Test:
        return Test(text_of_values(values), "?")

    def recorded(self, test: Test, execution: Execution) -> tuple[Test, str] | None:
        output = execution.stdout
        if not execution.clean or not prints(output) or len(output) > _LONGEST or test.input.rstrip() in self._given:
            return None
        return Test(test.input, output), output.strip()


class _Calls:
    """Calls of a function with literals, in the most frequent kind of expression that the assertions look at."""

    def __init__(self, problem: Problem) -> None:
        self._name = problem.entry_point or ""
        kinds: dict[tuple[str, str, int], list[tuple[ast.expr, list[Any]]]] = {}
        for text, split in zip(problem.assertions, assertions_of(problem), strict=True):
            tree = parse(text)
            if tree is None or split.comparison in ("whole", "each") or len(text) > _LONGEST:
                continue
            setup = "\n".join(map(ast.unparse, tree.body[:-1]))
            expression = _looked_at(split.expression, is_asserted=split.comparison == "true")
            call = self._call_in(expression)
            values = None if call is None else literal_arguments(call)
            if expression is not None and values:
                names = ",".join(str(each.arg) for each in call.keywords) if call else ""
                blank = ast.unparse(_with_arguments(expression, self._name, []))
                kinds.setdefault((setup, f"{blank} {names}", len(values)), []).append((expression, values))
        if not kinds:
            raise Refused("no test calls the function with literal arguments")
        (self._setup, _, _), found = max(kinds.items(), key=lambda each: len(each[1]))
        self._expression = found[0][0]
        self.inputs = [values for _, values in found]

    def _call_in(self, expression: ast.expr | None) -> ast.Call | None:
        calls = [each for each in ast.walk(expression or ast.Constant(0)) if _is_call_of(each, self._name)]
        return calls[0] if len(calls) == 1 else None  # type: ignore[return-value]

    def made(self, values: Sequence[Any]) -> str:
        return self._asserted(values, "== None")

    def recorded(self, test: str, execution: Execution) -> tuple[str, str] | None:
        text = execution.value or ""
        if not execution.clean or execution.raised or len(text) > _LONGEST:
            return None
        match parse(text):
            case ast.Module(body=[ast.Expr(value=node)]) if is_literal(node):
                value = ast.literal_eval(node)
            case _:
                return None
        body = test.removesuffix(" == None")
        start = body.rindex("assert ") + len("assert ")
        before, expression = body[:start], body[start:]
        if isinstance(value, float):
            asserted = f"abs({expression} - {value!r}) < {_TOLERANCE * max(1.0, abs(value)):.3g}"
        elif _has_floats(value):
            asserted = f"each_agrees([{expression}], [{value!r}], {_TOLERANCE})"
        else:
            asserted = f"{expression} == {value!r}"
        return f"{before}{asserted}", repr(value)

    def _asserted(self, values: Sequence[Any], rest: str) -> str:
        changed = ast.unparse(_with_arguments(self._expression, self._name, values))
        return f"{self._setup}\nassert {changed} {rest}".lstrip()


def _looked_at(expression: str, *, is_asserted: bool) -> ast.expr | None:
    """The expression that an assertion looks at, without what `Assertion` wraps around a bare call."""
    match parse(expression):
        case ast.Module(body=[ast.Expr(value=ast.Call(func=ast.Lambda(), args=[call]))]) if is_asserted:
            return call
        case ast.Module(body=[ast.Expr(value=looked_at)]):
            return looked_at
    return None


def _is_call_of(node: ast.AST, name: str) -> bool:
    """Whether it is a call of the function, or of a method of this name."""
    match node:
        case ast.Call(func=ast.Name(id=called) | ast.Attribute(attr=called)):
            return called == name
    return False


def _with_arguments(expression: ast.expr, name: str, values: Sequence[Any]) -> ast.expr:
    """A copy of the expression in which the call of the function has other arguments."""
    copied: ast.expr = tree_of(ast.unparse(expression), "eval").body
    for node in ast.walk(copied):
        if isinstance(node, ast.Call) and _is_call_of(node, name):
            nodes = [tree_of(repr(value), "eval").body for value in values]
            count = len(node.args)
            node.args = nodes[:count]
            node.keywords = [ast.keyword(old.arg, new) for old, new in zip(node.keywords, nodes[count:], strict=False)]
    return copied


def _has_floats(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_has_floats, value.values()))
    return isinstance(value, float) or (isinstance(value, (list, tuple)) and any(map(_has_floats, value)))
