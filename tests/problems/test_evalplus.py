"""HumanEval+ and MBPP+: files in the format of EvalPlus, whose reference solutions run in the sandbox."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from dataset_files import HUMANEVAL_RECORD, MBPP_RECORD, consume, read_lines, write_lines

from securecoderl_edge.cli import sce
from securecoderl_edge.errors import SceError, UsageError
from securecoderl_edge.problems.assertions import translate
from securecoderl_edge.problems.datasets import importing
from securecoderl_edge.problems.datasets.evalplus_inputs import source_of, with_python_types
from securecoderl_edge.problems.datasets.evalplus_tests import Evaluate, ReferenceOutput
from securecoderl_edge.problems.datasets.importing import detect_format, import_problems
from securecoderl_edge.problems.datasets.tally import Dropped, DropRecord
from securecoderl_edge.problems.problem import Problem
from securecoderl_edge.problems.sources import load_problems, open_problems
from securecoderl_edge.sandbox import Limits
from securecoderl_edge.scoring.reference_solutions import reference_outputs
from securecoderl_edge.scoring.scorer import Scorer

DOUBLE = {
    "task_id": "HumanEval/7",
    "prompt": 'from typing import List\n\n\ndef double(numbers: List[float]) -> List[float]:\n    """Twice each."""\n',
    "entry_point": "double",
    "canonical_solution": "    return [2 * each for each in numbers]\n",
    "test": "def check(candidate):\n    assert candidate([1]) == [2]\n",
    "contract": "\n    assert all(type(x) in [int, float] for x in numbers)\n",
    "base_input": [[[1.5, 2.0]], [[]]],
    "plus_input": [[[number, 0.1]] for number in range(200)],
    "atol": 0,
}
SIMILAR = {
    "task_id": "Mbpp/2",
    "prompt": '"""\nWrite a function to find the shared elements from the given two lists.\n'
    'assert set(similar_elements((3, 4), (4, 5))) == set((4,))\n"""\n',
    "entry_point": "similar_elements",
    "canonical_solution": "\ndef similar_elements(a, b):\n  assert type(a) is tuple\n  return tuple(set(a) & set(b))\n",
    "base_input": [[[3, 4, 5, 6], [5, 7, 4, 10]]],
    "contract": "",
    "plus_input": [[[], []], [[1, 2, 3], [3, 2]]],
    "atol": 0,
    "assertion": "assert set(similar_elements((3, 4), (4, 5))) == set((4,))",
}
LIMITS = Limits(cpu_seconds=2, wall_seconds=4)


@pytest.fixture(scope="module")
def evaluate() -> Iterator[Evaluate]:
    with reference_outputs(limits=LIMITS) as opened:
        yield opened


@pytest.fixture(scope="module")
def scorer() -> Iterator[Scorer]:
    with Scorer(1, LIMITS) as opened:
        yield opened


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def imported(record: dict[str, Any], evaluate: Evaluate) -> Problem:
    (problem,) = import_problems(write_lines(Path("x.jsonl"), [record]), evaluate=evaluate).problems
    return problem


def passes(scorer: Scorer, problem: Problem, program: str) -> bool:
    score = scorer.score(problem, program)
    return score.passed == score.total


def mbpp(
    entry_point: str, solution: str, inputs: list[list[Any]], number: int = 900, atol: float = 0
) -> dict[str, Any]:
    return {
        **SIMILAR, "task_id": f"Mbpp/{number}", "entry_point": entry_point, "canonical_solution": solution,
        "base_input": inputs, "plus_input": [], "atol": atol,
    }  # fmt: skip


# What becomes of a record


def test_a_problem_keeps_its_prompt_and_runs_all_inputs_in_at_most_five_tests(evaluate: Evaluate) -> None:
    problem = imported(DOUBLE, evaluate)
    assert (problem.id, problem.source, problem.entry_point) == ("humaneval-plus/7", "humaneval-plus", "double")
    assert problem.starter_code == str(DOUBLE["prompt"]).rstrip()
    assert problem.test_count == 5
    found = [translate(text) for text in problem.assertions]
    assert [each.comparison for each in found] == ["each"] * 5
    outputs = [output for each in found for output in each.expected]
    assert outputs == [[3.0, 4.0], [], *([2 * number, 0.2] for number in range(200))]


def test_an_mbpp_problem_has_its_task_in_words_and_one_example(evaluate: Evaluate) -> None:
    assert imported(SIMILAR, evaluate).statement == (
        "Write a function to find the shared elements from the given two lists.\n\n"
        "Write the function `similar_elements(a, b)`. For example:\n"
        "assert set(similar_elements((3, 4), (4, 5))) == set((4,))"
    )


def test_the_reference_passes_and_one_wrong_output_of_hundreds_fails(evaluate: Evaluate, scorer: Scorer) -> None:
    problem = imported(DOUBLE, evaluate)
    assert passes(scorer, problem, problem.solutions[0])
    for number in (0, 57, 199):
        wrong = f"def double(numbers):\n    return [2 * each + (each == {number}) * 0.001 for each in numbers]\n"
        score = scorer.score(problem, wrong)
        assert score.passed < score.total


def test_reading_a_file_twice_gives_the_same_problems(evaluate: Evaluate) -> None:
    record = mbpp("Diff", "def Diff(a, b):\n  return set(a) ^ set(b)\n", [[["x", "y", "zz"], ["y", "w"]]])
    first, second = (imported(record, evaluate) for _ in range(2))
    assert first == second


def test_the_time_limit_is_that_of_the_reference_times_four_but_five_seconds_at_least() -> None:
    def evaluated(seconds: float) -> Problem:
        return imported(
            {**DOUBLE, "plus_input": []}, lambda *_: ReferenceOutput("[[3.0, 4.0], []]", cpu_seconds=seconds)
        )

    assert evaluated(0.01).time_limit_s == 5
    assert evaluated(2.5).time_limit_s == 10


# How outputs are compared


@pytest.mark.parametrize(
    ("returned", "accepted"),
    [
        ("0.30000000000000004", True),
        ("0.3", True),
        ("0.3 + 9e-7", True),
        ("0.3 + 2e-6", False),
        ("'0.3'", False),
        ("[0.3]", False),
        ("None", False),
        ("float('nan')", False),
        ("float('inf')", False),
    ],
)
def test_floats_agree_within_the_tolerance_of_evalplus(
    returned: str, accepted: bool, evaluate: Evaluate, scorer: Scorer
) -> None:
    problem = imported(mbpp("f", "def f(x):\n  return x + 0.1\n", [[0.2]]), evaluate)
    assert passes(scorer, problem, f"def f(x):\n    return {returned}\n") == accepted


def test_a_stated_tolerance_replaces_that_of_floats_and_the_type_must_be_the_same(
    evaluate: Evaluate, scorer: Scorer
) -> None:
    problem = imported(mbpp("f", "def f(x):\n  return [x, 1]\n", [[2.5]], atol=0.01), evaluate)
    for returned, accepted in (("[2.509, 1]", True), ("[2.52, 1]", False), ("(2.509, 1)", False), ("[2.5]", False)):
        assert passes(scorer, problem, f"def f(x):\n    return {returned}\n") == accepted


def test_only_an_infinite_number_is_near_an_infinite_one(evaluate: Evaluate, scorer: Scorer) -> None:
    for atol in (0.0, 1e-4):
        problem = imported(mbpp("f", "def f(x):\n  return [x, 1.0]\n", [[math.inf]], atol=atol), evaluate)
        for returned, accepted in (("[1e999, 1.0]", True), ("[0.0, 1.0]", False), ("[-1e999, 1.0]", False)):
            assert passes(scorer, problem, f"def f(x):\n    return {returned}\n") == accepted


def test_integers_beyond_all_floats_are_compared(evaluate: Evaluate, scorer: Scorer) -> None:
    problem = imported(mbpp("f", "def f(x):\n  return [10 ** 400, 1.0]\n", [[1]], atol=1e-4), evaluate)
    for returned, accepted in (
        ("[10 ** 400, 1.00001]", True),
        ("[10 ** 400 + 1, 1.0]", False),
        ("[1.0, 1.0]", False),
        ("[10 ** 400, 10 ** 400]", False),
    ):
        assert passes(scorer, problem, f"def f(x):\n    return {returned}\n") == accepted


def test_integers_and_text_must_be_equal(evaluate: Evaluate, scorer: Scorer) -> None:
    problem = imported(mbpp("f", "def f(x):\n  return 10 ** 9\n", [[1]]), evaluate)
    for returned, accepted in (("10 ** 9", True), ("1e9", True), ("10 ** 9 + 1", False), ("1e9 + 0.001", False)):
        assert passes(scorer, problem, f"def f(x):\n    return {returned}\n") == accepted


def test_a_list_where_order_does_not_count_is_compared_as_a_set(evaluate: Evaluate, scorer: Scorer) -> None:
    problem = imported(SIMILAR, evaluate)
    assert passes(scorer, problem, "def similar_elements(a, b):\n    return [x for x in reversed(b) if x in a] * 2\n")
    assert not passes(scorer, problem, "def similar_elements(a, b):\n    return [x for x in b if x in a][:1]\n")


def test_every_root_of_a_polynomial_is_accepted(evaluate: Evaluate, scorer: Scorer) -> None:
    record = {
        **DOUBLE, "task_id": "HumanEval/32", "entry_point": "find_zero", "prompt": "def find_zero(xs: list):\n",
        "canonical_solution": "    return 1.0\n", "base_input": [[[-1, 0, 1]]], "plus_input": [], "atol": 0.0001,
    }  # fmt: skip
    problem = imported(record, evaluate)
    for root, accepted in ((1, True), (-1.0, True), (-1.00001, True), (0.9, False), ("'1'", False)):
        assert passes(scorer, problem, f"def find_zero(xs):\n    return {root}\n") == accepted


@pytest.mark.parametrize(
    ("entry_point", "solution", "inputs", "program", "accepted"),
    [
        ("sum_div", "return 7", [[8]], "return 0", True),
        ("sum_div", "return 7", [[8]], "return 1", False),
        ("surface_Area", "return 33", [[3, 4]], "return 33", True),
        ("surface_Area", "return 33", [[3, 4]], "return 35", True),
        ("surface_Area", "return 33", [[3, 4]], "return 34", False),
        ("digit_distance_nums", "return 9", [[1, 23]], "return 4", True),
        ("digit_distance_nums", "return 9", [[1, 23]], "return 5", False),
        ("are_equivalent", "return True", [[1, 2]], "return 'whatever'", True),
        ("are_equivalent", "return True", [[1, 2]], "raise ValueError", False),
        ("check_str", "import re; return re.match('a', args[0])", [["a"], ["b"]], "return args[0] == 'a'", True),
        ("check_str", "import re; return re.match('a', args[0])", [["a"], ["b"]], "return True", False),
        ("check_str", "import re; return re.match('a', args[0])", [["a"]], "return 'x'", True),
    ],
)
def test_outputs_that_evalplus_accepts_as_well_are_accepted(
    entry_point: str,
    solution: str,
    inputs: list[list[Any]],
    program: str,
    accepted: bool,
    evaluate: Evaluate,
    scorer: Scorer,
) -> None:
    head = f"def {entry_point}(*args):\n  "
    assert passes(scorer, imported(mbpp(entry_point, head + solution, inputs), evaluate), head + program) == accepted


def test_an_exception_for_the_reading_of_one_data_set_is_none_in_the_other(evaluate: Evaluate, scorer: Scorer) -> None:
    record = {**DOUBLE, "entry_point": "sum_div", "prompt": "def sum_div(n):\n", "canonical_solution": "    return 7\n"}
    problem = imported({**record, "base_input": [[8]], "plus_input": []}, evaluate)
    assert not passes(scorer, problem, "def sum_div(n):\n    return 0\n")


# Types that JSON does not have


@pytest.mark.parametrize(
    ("number", "written", "meant"),
    [
        (2, [[1, 2], [3]], [(1, 2), (3,)]),
        (63, [[[1, 2], [3, 4]]], [[(1, 2), (3, 4)]]),
        (75, [[[1, 2]], 3], [[(1, 2)], 3]),
        (106, [[1], [2, 3]], [[1], (2, 3)]),
        (115, [[[1, 2], []]], [[{1, 2}, {}]]),
        (124, ["0.5", "1j"], [0.5, 1j]),
        (252, ["(1+2j)"], [1 + 2j]),
        (259, [[[1, 2]], [[3]]], [((1, 2),), ((3,),)]),
        (278, [[5, [6, 7]]], [(5, (6, 7))]),
        (307, [[1], 2, 3], [(1,), 2, 3]),
        (580, [[1, [2, [3]]]], [(1, (2, (3,)))]),
        (722, [{"a": [1, 2]}, 6], [{"a": (1, 2)}, 6]),
        (11, [[1, 2]], [[1, 2]]),
    ],
)
def test_inputs_get_the_types_of_the_published_tests(number: int, written: list[Any], meant: list[Any]) -> None:
    (found,) = with_python_types(str(number), [written])
    assert repr(found) == repr(meant)


def test_a_set_of_numbers_with_one_hash_is_no_input() -> None:
    with pytest.raises(DropRecord, match="another type"):
        with_python_types("115", [[[[number * (2**61 - 1) for number in range(1, 100)]]]])


def test_the_source_text_of_a_value_evaluates_to_the_value() -> None:
    for value in ([1, "a\n'", None, True], (1,), (), {2: (3, -1.5)}, {1, 2}, set(), 1j, math.inf, -math.inf, 10**5000):
        assert eval(source_of(value)) == value  # our own text
    assert math.isnan(eval(source_of(math.nan)))
    assert source_of({"b", "a", "c"}) == "{'a', 'b', 'c'}"


# The tables on Hugging Face

HELPERS = "import numpy as np\nfrom math import inf\n\ndef assertion(out, exp, atol):\n    assert out == exp\n\n"


def test_the_table_of_humaneval_plus_is_read_from_its_test(evaluate: Evaluate, scorer: Scorer) -> None:
    test = (
        f"{HELPERS}def check(candidate):\n    inputs = [[[1.0, inf]], [[2]]]\n    results = [[2.0, inf], [4]]\n"
        "    for i, (inp, exp) in enumerate(zip(inputs, results)):\n        assertion(candidate(*inp), exp, 1e-05)\n"
    )
    table = {name: DOUBLE[name] for name in ("task_id", "prompt", "entry_point", "canonical_solution")} | {"test": test}
    problem = imported(table, evaluate)
    (found,) = [each for text in problem.assertions[:1] for each in [translate(text)]]
    assert (found.expected, found.tolerance) == ([[2.0, math.inf]], 1e-5)
    assert passes(scorer, problem, problem.solutions[0])


def test_the_table_of_mbpp_plus_is_read_from_its_test(evaluate: Evaluate, scorer: Scorer) -> None:
    test = (
        f"{HELPERS}inputs = [[(3, 4, 5), (5, 4)], [(1,), ()]]\nresults = [(4, 5), ()]\n"
        "for i, (inp, exp) in enumerate(zip(inputs, results)):\n    assertion(similar_elements(*inp), exp, 0)\n"
    )
    table = {
        "task_id": 2, "code": SIMILAR["canonical_solution"], "prompt": "Write a function to find the shared elements.",
        "source_file": "x.ipynb", "test_imports": [], "test": test,
        "test_list": ["assert set(similar_elements((3, 4), (4, 5))) == set((4,))"],
    }  # fmt: skip
    problem = imported(table, evaluate)
    assert (problem.id, problem.entry_point) == ("mbpp-plus/2", "similar_elements")
    assert problem.statement.endswith("For example:\nassert set(similar_elements((3, 4), (4, 5))) == set((4,))")
    assert passes(scorer, problem, problem.solutions[0])


def test_the_plain_benchmarks_are_not_taken_for_those_of_evalplus() -> None:
    assert detect_format(write_lines(Path("x.jsonl"), [HUMANEVAL_RECORD])) == "humaneval"
    assert detect_format(write_lines(Path("x.jsonl"), [MBPP_RECORD])) == "mbpp"


# Files that are not as they should be


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"canonical_solution": "    while True: pass\n"}, "canonical_solution exceeds the time limit"),
        ({"canonical_solution": "    return open('/etc/passwd').read()\n"}, "canonical_solution fails"),
        ({"canonical_solution": "    import socket; socket.socket()\n"}, "canonical_solution fails"),
        ({"canonical_solution": "    raise SystemExit(0)\n"}, "canonical_solution fails"),
        ({"canonical_solution": "    print('[[3.0, 4.0], []]'); import os; os._exit(0)\n"}, "canonical_solution fails"),
        ({"canonical_solution": "    return (\n"}, "canonical_solution does not parse"),
        ({"canonical_solution": "    return [0] * 10 ** 11\n"}, "canonical_solution exceeds the memory limit"),
        ({"canonical_solution": "    return object()\n"}, "no usable tests"),
        ({"canonical_solution": "    return '(' * 100_000\n", "plus_input": []}, None),
        ({"canonical_solution": "    return 'x' * 10 ** 7\n"}, "no usable tests"),
        ({"canonical_solution": "    return float('nan')\n"}, "no usable tests"),
        ({"canonical_solution": ""}, "no canonical_solution"),
        ({"base_input": [], "plus_input": []}, "no tests"),
        ({"base_input": [1]}, '"base_input" must be a list of lists of arguments'),
        ({"plus_input": {"a": 1}}, '"plus_input" must be a list of lists of arguments'),
        ({"atol": "1e-6"}, '"atol" must be a number'),
        ({"atol": -1}, '"atol" must be a number'),
        ({"entry_point": "__import__('os').system"}, "entry_point is not a function name"),
        ({"entry_point": "missing"}, "canonical_solution fails"),
        ({"task_id": "HumanEval/x"}, '"task_id" does not end in a number'),
        ({"task_id": "Mbpp/252", "base_input": [["no number"]]}, "an input has another type than in MBPP+"),
    ],
)
def test_a_bad_record_is_harmless_and_counted_with_its_line(
    change: dict[str, Any], reason: str | None, evaluate: Evaluate
) -> None:
    record = {**DOUBLE, "plus_input": [[[1.0]]], **change}
    path = write_lines(Path("x.jsonl"), [{**DOUBLE, "task_id": "HumanEval/1", "plus_input": []}, record])
    found = import_problems(path, evaluate=evaluate)
    problems, dropped, _ = consume(found)
    if reason is None:
        assert len(problems) == 2
    else:
        assert (len(problems), dropped) == (1, {reason: 1})
        assert found.tally.dropped[reason].first == "x.jsonl:2"


def test_inputs_and_outputs_longer_than_a_test_are_left_out_and_counted(evaluate: Evaluate, scorer: Scorer) -> None:
    record = mbpp(
        "f", "def f(x):\n  return 'y' * (len(x) if len(x) < 10 else 10 ** 7)\n", [["abc"], ["x" * 20], ["ab"]]
    )
    found = import_problems(write_lines(Path("x.jsonl"), [record]), evaluate=evaluate)
    (problem,), _, tests = consume(found)
    assert tests == {"an output that is not a Python literal, or longer than a test can hold": 1}
    assert translate(problem.assertions[0]).expected == ["yyy", "yy"]
    assert passes(scorer, problem, problem.solutions[0])
    record = mbpp("f", "def f(x):\n  return len(x)\n", [["x" * 2_000_000], ["ab"]])
    _, _, tests = consume(import_problems(write_lines(Path("x.jsonl"), [record]), evaluate=evaluate))
    assert tests == {"inputs longer than a test can hold": 1}


def test_a_reference_that_takes_long_keeps_no_later_one_waiting(
    evaluate: Evaluate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importing, "cpu_count", lambda: 2)
    count, is_last = 20, threading.Event()

    def waiting(program: str, entry_point: str, expression: str) -> ReferenceOutput:
        if entry_point == f"f{count - 1}":
            is_last.set()
        assert entry_point != "f0" or is_last.wait(20), "the last reference waits for the first"
        return evaluate(program, entry_point, expression)

    long = [["x" * 1_100_000], ["x"]]
    records = [mbpp(f"f{n}", f"def f{n}(a): return a", long if n % 10 == 0 else [[n]], 900 + n) for n in range(count)]
    records[3]["canonical_solution"] = "def f3(a): return a[0]"
    found = import_problems(write_lines(Path("x.jsonl"), records), evaluate=waiting)
    assert [problem.id for problem in found.problems] == [f"mbpp-plus/{900 + n}" for n in range(count) if n != 3]
    assert [each.first for each in found.tally.dropped.values()] == ["x.jsonl:4"]
    ((reason, dropped),) = found.tally.dropped_tests.items()
    assert (reason, dropped) == ("inputs longer than a test can hold", Dropped(2, "mbpp-plus/900"))


def test_behind_a_reference_that_takes_long_few_large_records_wait(
    evaluate: Evaluate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importing, "cpu_count", lambda: 2)
    monkeypatch.setattr(importing, "_MOST_CHARACTERS", 100_000)
    begun = list[str]()

    def waiting(program: str, entry_point: str, expression: str) -> ReferenceOutput:
        begun.append(entry_point)
        if entry_point == "f0":
            threading.Event().wait(2)  # time for all others
            assert len(begun) < 6, "they are kept, however large"
        return evaluate(program, entry_point, expression)

    records = [{**mbpp(f"f{n}", f"def f{n}(a): return a", [[n]], 900 + n), "more": ["x" * 40_000]} for n in range(12)]
    found = import_problems(write_lines(Path("x.jsonl"), records), evaluate=waiting)
    assert [problem.id for problem in found.problems] == [f"mbpp-plus/{900 + n}" for n in range(12)]


def test_strict_stops_at_the_first_bad_record(evaluate: Evaluate) -> None:
    path = write_lines(Path("x.jsonl"), [{**DOUBLE, "canonical_solution": "    return (\n"}])
    with pytest.raises(SceError, match=r"x\.jsonl:1: unusable record: canonical_solution does not parse \(--strict\)"):
        list(import_problems(path, strict=True, evaluate=evaluate).problems)


def test_a_file_that_is_not_converted_yet_names_the_next_step() -> None:
    write_lines(Path("HumanEvalPlus.jsonl"), [DOUBLE])
    with pytest.raises(UsageError, match=r"no expected outputs\. First run: sce data import HumanEvalPlus\.jsonl"):
        open_problems("HumanEvalPlus.jsonl")
    with pytest.raises(SceError, match=r"looks like evalplus; convert it with: sce data import HumanEvalPlus\.jsonl"):
        load_problems("HumanEvalPlus.jsonl")


def test_an_import_from_the_command_line_can_be_checked_and_shown() -> None:
    write_lines(Path("MbppPlus.jsonl"), [SIMILAR, {**SIMILAR, "task_id": "Mbpp/3", "canonical_solution": "x = ("}])
    result = CliRunner().invoke(sce, ["data", "import", "MbppPlus.jsonl"])
    assert result.exit_code == 0, result.output
    assert "evalplus: read 2 problems, wrote 1 to evalplus-problems.jsonl" in result.stderr
    assert "1 canonical_solution does not parse (first: MbppPlus.jsonl:2)" in result.stderr
    (record,) = read_lines("evalplus-problems.jsonl")
    assert json.dumps(record).count("each_agrees") == len(record["assertions"]) == 3
    result = CliRunner().invoke(sce, ["data", "check", "evalplus-problems.jsonl"])
    assert (result.exit_code, "1 of 1 problems pass" in result.stderr) == (0, True)


def test_a_long_test_is_shown_in_part() -> None:
    write_lines(Path("HumanEvalPlus.jsonl"), [{**DOUBLE, "plus_input": [[[0.5] * 2000]]}])
    for arguments in (["import", "HumanEvalPlus.jsonl"], ["show", "evalplus-problems.jsonl", "humaneval-plus/7"]):
        result = CliRunner().invoke(sce, ["data", *arguments])
        assert result.exit_code == 0, result.output
    assert "more characters)" in result.stdout
    assert len(result.stdout) < 4000
