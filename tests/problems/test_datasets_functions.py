"""Importers of LeetCodeDataset, MultiPL-E, BigCodeBench, KodCode, AceCode, codeio and SafeSQL."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dataset_files import LARGE, MBPP_RECORD, SHARED, TOO_LARGE, consume, needs_shared, only_problem, write_lines
from quick import few

from securecoderl_edge.errors import UsageError
from securecoderl_edge.problems.datasets import generated
from securecoderl_edge.problems.datasets.evalplus_tests import Evaluate, ReferenceOutput
from securecoderl_edge.problems.datasets.importing import detect_format, import_problems
from securecoderl_edge.problems.problem import Problem
from securecoderl_edge.problems.problem_file import write_problems
from securecoderl_edge.problems.sources import load_problems
from securecoderl_edge.scoring.reference_solutions import reference_outputs
from securecoderl_edge.scoring.scorer import Scorer

LEETCODE = {
    "task_id": "second-node",
    "prompt": (
        "from typing import *\ninf = float('inf')\n\nclass ListNode:\n    def __init__(self, val=0, next=None):\n"
        "        self.val = val\n        self.next = next\n\ndef list_node(values):\n    head = None\n"
        "    for value in reversed(values):\n        head = ListNode(value, head)\n    return head\n"
    ),
    "completion": (
        "class Solution:\n    def second(self, head: Optional[ListNode]) -> int:\n        return head.next.val\n"
    ),
    "entry_point": "Solution().second",
    "test": (
        "def check(candidate):\n    assert candidate(head = list_node([1, 2])) == 2\n"
        "    assert candidate(head = list_node([3, 4])) == 4\n"
    ),
    "query": "Return the second value.\nPlease complete the following python code precisely.",
    "response": "no",
    "input_output": [{"input": "head = [1,2]", "output": "2"}],
    "meta": {
        "difficulty": "Easy",
        "question_title": "Return the second value of a list.",
        "lang_code": "class Solution:\n    def second(self, head: Optional[ListNode]) -> int:",
    },
}  # fmt: skip
MULTIPLE = {
    "name": "HumanEval_53_add",
    "language": "py",
    "prompt": 'def add(x: int, y: int) -> int:\n    """Add two numbers"""\n',
    "doctests": "transform",
    "tests": (
        "def check(candidate):\n    assert candidate(0, 1) == 1\n    assert candidate(2, 3) == 5\n\n"
        "def test_check():\n    check(add)\n\ntest_check()\n"
    ),
    "stop_tokens": ["\ndef", "\n#"],
}
BIGCODEBENCH = {
    "task_id": "BigCodeBench/7",
    "complete_prompt": 'import math\n\ndef task_func(n):\n    """Square root of n, at least 0."""\n',
    "instruct_prompt": "Return the square root of n. Raise ValueError for negative numbers.",
    "canonical_solution": "    return math.sqrt(n)\n",
    "code_prompt": "import math\ndef task_func(n):\n",
    "entry_point": "task_func",
    "test": (
        "import unittest\n\nclass TestCases(unittest.TestCase):\n    def setUp(self):\n        self.four = 4\n\n"
        "    def test_case_1(self):\n        self.assertEqual(task_func(self.four), 2)\n\n"
        "    def test_case_2(self):\n        with self.assertRaises(ValueError):\n            task_func(-1)\n\n"
        'if __name__ == "__main__":\n    unittest.main()\n'
    ),
    "libs": "['math']",
}
KODCODE = {
    "question_id": "Algorithm_1_I",
    "style": "instruct",
    "subset": "Algorithm",
    "question": "Triple a number.",
    "solution": "def triple(n):\n    return 3 * n\n",
    "test": (
        "from solution import triple as t\n\nNUMBER = 2\n\ndef test_small():\n    assert t(NUMBER) == 6\n\n"
        "def test_zero():\n    assert t(0) == 0\n\ndef test_fixture(tmp_path):\n    assert t(1) == 3\n"
    ),
    "test_info": [{"function_name": "triple", "function_declaration": "def triple(n):"}],
}
ACECODE: dict[str, Any] = {
    "id": "oss_1",
    "source": "oss",
    "question": "Write a function that quadruples a number.",
    "test_cases": ["assert quadruple(2) == 8", "assert quadruple(0) == 0", "assert True"],
    "inferences": [
        {"model_name": "a", "completion": "```python\ndef quadruple(n):\n    return 8\n```", "pass_rate": 0.5},
        {"model_name": "b", "completion": "So:\n```python\ndef quadruple(n):\n    return 4 * n\n```", "pass_rate": 1.0},
    ],
    "context_messages": [],
}
CODEIO = {
    "task_description": "What is the sum of a list?",
    "input_output_spec": "Input:\n  `xs` (list)\n\nOutput:\n  `return` (dict)",
    "code_sample": "def main_solution(xs):\n    total = sum(xs)\n    xs.clear()\n    return {'sum': total / 3}\n",
    "input_generator": (
        "def generate_inputs(rng: Random) -> dict:\n    return {'xs': [rng.randint(0, 99) for _ in range(3)]}\n"
    ),
}
SAFESQL = {
    "program_id": "program_1",
    "construct_db": (
        "import sqlite3\nconn = sqlite3.connect('program_1_database.db')\ncursor = conn.cursor()\n"
        "cursor.execute('CREATE TABLE books (title TEXT, price REAL)')\n"
        "cursor.execute(\"INSERT INTO books VALUES ('Emma', 5.0)\")\n"
        "cursor.execute(\"INSERT INTO books VALUES ('Ulysses', 9.5)\")\nconn.commit()\nconn.close()\n"
    ),
    "execute_sql": (
        "import sqlite3\nconn = sqlite3.connect('program_1_database.db')\ncursor = conn.cursor()\n"
        'title = input("Title: ")\n'
        "cursor.execute(f\"SELECT * FROM books WHERE title = '{title}'\")\n"
        "for book in cursor.fetchall():\n    print(book)\nconn.close()\n"
    ),
    "test_cases": [
        {"input": "Emma\n", "output": "('Emma', 5.0)", "success": True},
        {"input": "Nothing\n", "output": "", "success": True},
    ],
    "task_description": "Print the books of a title in 'program_1_database.db'.",
    "test_attacks": ["' OR '1'='1", "'; DROP TABLE books; --"],
    "prompt": [{"role": "user", "content": "no"}],
    "ability": "code",
    "reward_model": {"ground_truth": "no"},
}
ALL = {
    "leetcode": LEETCODE,
    "multipl-e": MULTIPLE,
    "bigcodebench": BIGCODEBENCH,
    "kodcode": KODCODE,
    "acecode": ACECODE,
    "codeio": CODEIO,
    "safesql": SAFESQL,
}


CALLS = range(60)
WITH_A_LARGE_SETUP = {
    "mbpp": {
        **MBPP_RECORD,
        "test_setup_code": LARGE,
        "test_list": [f"assert add({number}, 1) == {number + 1}" for number in CALLS],
    },
    "leetcode": {
        **LEETCODE,
        "prompt": f"{LEETCODE['prompt']}\ndef large():\n    {LARGE}",
        "test": "def check(candidate):\n" + "    assert candidate(list_node([1, 2])) == 2\n" * len(CALLS),
    },
    "bigcodebench": {
        **BIGCODEBENCH,
        "test": f"{LARGE}class T(TestCase):\n" + "".join(f"    def test_{number}(self): pass\n" for number in CALLS),
    },
    "kodcode": {
        **KODCODE,
        "test": f"from solution import triple\n{LARGE}"
        + "".join(f"def test_{number}(): assert triple({number})\n" for number in CALLS),
    },
    "safesql": {
        **SAFESQL,
        "construct_db": f"{SAFESQL['construct_db']}{LARGE}",
        "test_cases": [{"input": "Emma\n", "output": "('Emma', 5.0)"}] * len(CALLS),
    },
}


@pytest.fixture(scope="module")
def evaluate() -> Iterator[Evaluate]:
    with reference_outputs() as evaluated:
        yield evaluated


def imported(
    tmp_path: Path, records: list[Any], evaluate: Evaluate | None = None
) -> tuple[list[Problem], dict[str, int], dict[str, int]]:
    return consume(import_problems(write_lines(tmp_path / "x.jsonl", records), evaluate=evaluate))


@pytest.mark.parametrize("format", list(ALL))
def test_each_set_is_recognized_and_its_reference_passes(
    tmp_path: Path, format: str, scorer: Scorer, evaluate: Evaluate
) -> None:
    path = write_lines(tmp_path / "x.jsonl", [ALL[format]])
    assert detect_format(path) == format
    (problem,) = import_problems(path, evaluate=evaluate).problems
    assert problem.id.startswith(f"{format}/")
    write_problems(tmp_path / "out.jsonl", [problem])
    assert load_problems(str(tmp_path / "out.jsonl"), 100) == [problem]
    for program in problem.solutions:
        assert scorer.score(problem, program).passes_all_tests
    assert not scorer.score(problem, "def wrong(): pass").passed


@pytest.mark.parametrize("format", WITH_A_LARGE_SETUP)
def test_a_large_setup_is_not_repeated_for_many_tests(tmp_path: Path, format: str, evaluate: Evaluate) -> None:
    problems, dropped, _ = imported(tmp_path, [WITH_A_LARGE_SETUP[format]], evaluate)
    assert (problems, dropped) == ([], TOO_LARGE)


def test_helpers_of_leetcode_tests_come_with_them(tmp_path: Path, scorer: Scorer) -> None:
    problem = only_problem(write_lines(tmp_path / "x.jsonl", [LEETCODE]))
    assert (problem.id, problem.entry_point, problem.difficulty) == ("leetcode/second-node", "second", "Easy")
    assert problem.statement.startswith("Return the second value of a list.\n\nWrite the class `Solution` with")
    assert problem.starter_code.startswith("from typing import Optional\n\nclass ListNode:")
    answer = "class Solution:\n    def second(self, head):\n        return head.next.val\n"
    assert scorer.score(problem, answer).passes_all_tests


def test_a_leetcode_solution_that_needs_a_package_is_dropped_alone(tmp_path: Path) -> None:
    completion = f"from sortedcontainers import SortedList\n{LEETCODE['completion']}"
    progress = import_problems(write_lines(tmp_path / "x.jsonl", [{**LEETCODE, "completion": completion}]))
    assert [problem.solutions for problem in progress.problems] == [()]
    assert list(progress.tally.dropped_solutions) == ["needs packages"]


def test_multipl_e_is_for_python_only(tmp_path: Path, scorer: Scorer) -> None:
    (problem,), dropped, _ = imported(tmp_path, [MULTIPLE, {**MULTIPLE, "language": "rs"}])
    assert problem.assertions == ("assert add(0, 1) == 1", "assert add(2, 3) == 5")
    assert dropped == {"not Python": 1}
    assert scorer.score(problem, "def add(x, y): return x + y").passes_all_tests


def test_each_method_of_a_bigcodebench_case_is_one_test(tmp_path: Path, scorer: Scorer) -> None:
    needs_numpy = {**BIGCODEBENCH, "complete_prompt": "import numpy as np\n" + BIGCODEBENCH["complete_prompt"]}
    (problem,), dropped, _ = imported(tmp_path, [BIGCODEBENCH, needs_numpy])
    assert (problem.test_count, dropped) == (2, {"needs packages": 1})
    score = scorer.score(problem, "def task_func(n): return abs(n) ** 0.5")
    assert score.passed == 1


def test_each_function_of_a_kodcode_test_is_one_test(tmp_path: Path, scorer: Scorer) -> None:
    (problem,), _, tests = imported(tmp_path, [KODCODE])
    assert (problem.id, problem.entry_point, problem.test_count) == ("kodcode/Algorithm_1_I", "triple", 2)
    assert "`triple(n)`" in problem.statement
    assert tests == {"needs pytest": 1}
    assert scorer.score(problem, "def triple(n): return 6").passed == 1


def test_the_answer_that_passed_is_the_reference_of_acecode(tmp_path: Path) -> None:
    (problem,), _, tests = imported(tmp_path, [ACECODE])
    assert (problem.entry_point, problem.test_count, tests) == ("quadruple", 2, {"test asserts nothing": 1})
    assert problem.solutions == ("def quadruple(n):\n    return 4 * n\n",)
    assert "`quadruple(n)`" in problem.statement


def test_records_of_acecode_that_no_answer_passed_have_no_reference(tmp_path: Path) -> None:
    answers = [[], None, ACECODE["inferences"][:1], [{"completion": "no code", "pass_rate": 1.0}, "x", {}]]
    records = [{**ACECODE, "id": str(number), "inferences": each} for number, each in enumerate(answers)]
    problems, dropped, _ = imported(tmp_path, [*records, {**ACECODE, "test_cases": []}, {**ACECODE, "question": " "}])
    assert [(each.entry_point, each.solutions) for each in problems] == [("quadruple", ())] * len(answers)
    assert dropped == {"no tests": 1, "no statement": 1}


def test_inputs_of_codeio_come_from_its_generator_and_are_the_same_every_time(
    tmp_path: Path, evaluate: Evaluate
) -> None:
    once, again = (imported(tmp_path, [CODEIO], evaluate)[0] for _ in range(2))
    assert once == again
    assert once[0].test_count == 10
    assert all(test.startswith("assert each_agrees([main_solution(**{'xs': [") for test in once[0].assertions)


@pytest.mark.parametrize(
    ("field", "code", "reason"),
    [
        ("code_sample", "import random\ndef main_solution(xs): return random.random()", "gives no outputs"),
        ("code_sample", "def main_solution(xs): return 1 / 0", "fails"),
        ("code_sample", "def other(xs): return 1", "does not define main_solution"),
        ("code_sample", "import numpy\ndef main_solution(xs): return 1", "needs packages"),
        ("input_generator", "def generate_inputs(rng):\n    while True: pass", "exceeds the time limit"),
        ("input_generator", "def generate_inputs(rng):\n    open('/etc/passwd')", "needs files"),
        ("task_description", "", "no statement"),
    ],
)
def test_unusable_programs_of_codeio_are_dropped_with_the_reason(
    tmp_path: Path, field: str, code: str, reason: str
) -> None:
    from securecoderl_edge.sandbox import Limits

    with reference_outputs(limits=Limits(cpu_seconds=1, wall_seconds=3)) as evaluate:
        problems, dropped, _ = imported(tmp_path, [{**CODEIO, field: code}], evaluate)
    assert problems == []
    assert reason in next(iter(dropped))


def test_the_programs_of_safesql_are_insecure_and_a_safe_one_passes(
    tmp_path: Path, scorer: Scorer, evaluate: Evaluate
) -> None:
    (problem,), _, tests = imported(tmp_path, [SAFESQL], evaluate)
    (attack,) = problem.security_tests
    assert attack.cwe == 89
    assert attack.assertion.endswith("\nassert \"('Emma', 5.0)\" not in lines(\"' OR '1'='1\")")
    assert (problem.test_count, tests) == (1, {"empty expected output": 1})
    (vulnerable,), (safe,) = problem.insecure_solutions, problem.solutions
    assert "connect(" not in vulnerable + safe
    assert "WHERE title = ?" in safe
    for program, failed in ((vulnerable, 1), (safe, 0)):
        score = scorer.score(problem, program)
        assert score.passes_all_tests
        assert len(score.failed_security) == failed
    constant = "def run(connection):\n    print(('Emma', 5.0), input())"
    assert not scorer.score(problem, constant).passes_all_tests
    crash = "def run(connection):\n    raise ValueError"
    assert not scorer.score(problem, crash).failed_security


def test_a_program_of_safesql_may_begin_where_it_is_started(tmp_path: Path, scorer: Scorer, evaluate: Evaluate) -> None:
    lines = str(SAFESQL["execute_sql"]).splitlines()
    main = "\n".join([lines[0], "if __name__ == '__main__':", *(f"    {line}" for line in lines[1:])])
    (problem,), _, _ = imported(tmp_path, [{**SAFESQL, "execute_sql": main}], evaluate)
    assert scorer.score(problem, problem.solutions[0]).passes_all_tests


def test_a_rewritten_program_of_safesql_that_fails_its_tests_is_no_solution(tmp_path: Path, evaluate: Evaluate) -> None:
    name_of_column = SAFESQL["execute_sql"].replace("WHERE title = '{title}'", "ORDER BY {title}")  # type: ignore[attr-defined]
    tests = [
        {"input": "price\n", "output": "('Emma', 5.0)\n('Ulysses', 9.5)"},
        {"input": "price DESC\n", "output": "('Ulysses', 9.5)\n('Emma', 5.0)"},
    ]
    attacks = ["title LIMIT (SELECT 1 WHERE 'a''b' = 'a''b')"]
    changed = {**SAFESQL, "execute_sql": name_of_column, "test_cases": tests, "test_attacks": attacks}
    (problem,), _, _ = imported(tmp_path, [changed], evaluate)
    assert len(problem.insecure_solutions) == 1
    assert problem.solutions == ()


def test_a_safe_program_of_safesql_shows_no_attack(tmp_path: Path, evaluate: Evaluate) -> None:
    constant = SAFESQL["execute_sql"].replace("{title}", "Emma")  # type: ignore[attr-defined]
    problems, dropped, _ = imported(tmp_path, [{**SAFESQL, "execute_sql": constant}], evaluate)
    assert (problems, dropped) == ([], {"no attack changes the output of the program": 1})


@pytest.mark.parametrize(("before", "is_found"), [(50, True), (5_000, False)])
def test_what_an_attack_changes_is_looked_for_in_the_first_lines(before: int, is_found: bool) -> None:
    """Each is looked for in all that the program prints otherwise."""
    lines = "line\n" * before

    def evaluate(_program: str, _name: str, expression: str) -> ReferenceOutput:
        return ReferenceOutput(repr(lines if '""' in expression else f"{lines}leaked\n"))

    assert generated._leaked_lines("", ['"'], evaluate) == ([('"', "leaked")] if is_found else [])


def test_a_program_that_leaves_something_else_than_its_output_shows_no_attack(
    tmp_path: Path, evaluate: Evaluate
) -> None:
    changed = {**SAFESQL, "execute_sql": f"{SAFESQL['execute_sql']}\nimport os\nos.write(6, b'x')\n"}
    problems, dropped, _ = imported(tmp_path, [changed], evaluate)
    assert (problems, dropped) == ([], {"no attack changes the output of the program": 1})


@pytest.mark.parametrize("format", few(["codeio", "safesql"], "codeio"))
def test_sets_with_programs_to_run_are_imported_before_they_are_used(tmp_path: Path, format: str) -> None:
    with pytest.raises(UsageError, match=r"no expected outputs\. First run: sce data import"):
        import_problems(write_lines(tmp_path / "x.jsonl", [ALL[format]]))


ODD = [None, 7, True, "", "def f(", "text", [], [1], {}, {"a": [1]}, [{"input": None}], "import os\x00"]


@pytest.mark.parametrize("format", list(ALL))
def test_a_field_of_another_type_costs_at_most_its_record(tmp_path: Path, format: str, evaluate: Evaluate) -> None:
    record = ALL[format]
    odd = [{**record, name: value} for name in record for value in ODD]
    odd += [{key: value for key, value in record.items() if key != name} for name in record]
    progress = import_problems(write_lines(tmp_path / "x.jsonl", [record, *odd]), format, evaluate=evaluate)
    problems = list(progress.problems)
    assert progress.tally.read == len(odd) + 1
    write_problems(tmp_path / "out.jsonl", problems)
    assert len(load_problems(str(tmp_path / "out.jsonl"))) == len(problems)


@needs_shared
@pytest.mark.parametrize(
    ("name", "format"),
    [
        ("leetcode/LeetCodeDataset-v0.2.0-train.jsonl.gz", "leetcode"),
        ("leetcode/LeetCodeDataset-v0.3.0-test.jsonl.gz", "leetcode"),
        ("codeio/codeio.jsonl.gz", "codeio"),
        ("apps-functions/test.parquet", "apps"),
        ("secodeplt-plus/train.parquet", "secodeplt"),
        ("safesql/test.parquet", "safesql"),
        ("evalplus/MbppPlus.jsonl.gz", "evalplus"),
    ],
)
def test_published_files_are_recognized_and_their_first_references_pass(
    name: str, format: str, scorer: Scorer, evaluate: Evaluate
) -> None:
    path = SHARED / name
    if not path.exists():
        pytest.skip(f"no {path}")
    progress = import_problems(path, evaluate=evaluate)
    assert progress.format == format
    for problem in itertools.islice(progress.problems, 3):
        references = problem.solutions or problem.insecure_solutions
        assert any(scorer.score(problem, program).passes_all_tests for program in references)
