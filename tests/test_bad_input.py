"""Whatever a model writes and whatever a test holds: a verdict, never an exception."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from securecoderl_edge.cli import sce
from securecoderl_edge.problems.problem import Problem, Test
from securecoderl_edge.prompts.extraction import PromptFacts, extract_program
from securecoderl_edge.sandbox import Limits
from securecoderl_edge.scoring.scorer import Scorer

DOUBLE = "print(int(input()) * 2)"
PROBLEM = Problem("p", "Double it.", tests=(Test("2\n", "4\n"), Test("3\n", "6\n")))


@pytest.fixture(scope="module")
def scorer() -> Iterator[Scorer]:
    with Scorer(1, Limits(cpu_seconds=2, wall_seconds=4)) as opened:
        yield opened


@pytest.mark.parametrize(
    ("program", "stage"),
    [
        pytest.param("", 2, id="nothing"),
        pytest.param("\ud800", 0, id="a lone surrogate"),
        pytest.param("x = '\udfff'", 0, id="a lone surrogate in a string"),
        pytest.param("print(1)\0", 0, id="NUL"),
        pytest.param("\ufeff" + DOUBLE, 4, id="BOM"),
        pytest.param("\ufeff\ufeff" + DOUBLE, 0, id="two BOMs"),
        pytest.param("# coding: rot13\n" + DOUBLE, 4, id="a coding cookie"),
        pytest.param("if 1:\r\n    " + DOUBLE + "\r\n", 4, id="CRLF"),
        pytest.param("if 1:\r    " + DOUBLE + "\r", 4, id="CR alone"),
        pytest.param("x = '" + "a" * 1_000_000 + "'\n" + DOUBLE, 4, id="a line of a megabyte"),
        pytest.param("#" * 10_000_000 + "\n" + DOUBLE, 4, id="ten megabytes"),
        pytest.param("x = 1\n" * 50_000 + DOUBLE, 4, id="many lines"),
        pytest.param("(" * 100_000, 0, id="deep brackets"),
        pytest.param("-" * 100_000 + "1", 0, id="deep operators"),
        pytest.param("x = " + "[" * 150 + "]" * 150, 2, id="brackets as deep as python permits"),
        pytest.param("".join(" " * n + "if 1:\n" for n in range(110)), 0, id="deep indentation"),
        pytest.param("lambda: " * 5_000 + "1", 0, id="deep lambdas"),
        pytest.param("é = 1\nprint('日本', '\U0001f600')", 3, id="unicode"),
        pytest.param("print('\x1b[2J\x07')", 3, id="control characters"),
    ],
)
def test_any_program_gets_a_verdict(program: str, stage: int, scorer: Scorer) -> None:
    score = scorer.score(PROBLEM, extract_program(program, PromptFacts.of(PROBLEM)))
    assert score.stage == stage
    assert json.loads(json.dumps(score.to_record()))["stage"] == stage


@pytest.mark.parametrize(
    ("stdin", "program", "expected"),
    [
        pytest.param("2\r\n3\r\n", "print(int(input()) + int(input()))", "5\r\n", id="CRLF on both sides"),
        pytest.param("\0\x01\xff", "print(len(input()))", "3", id="bytes that are no text"),
        pytest.param("\ud800", "import sys\nprint(len(sys.stdin.buffer.read()))", "3", id="a lone surrogate"),
        pytest.param("x" * 5_000_000, "print(len(input()))", "5000000", id="five megabytes"),
        pytest.param("", "import sys\nprint(len(sys.stdin.read()))", "0", id="nothing"),
        pytest.param("", "print('a\\x0bb')", "a\x0bb\n\n \n", id="a vertical tab, and blank lines expected"),
    ],
)
def test_any_test_can_be_passed(stdin: str, program: str, expected: str, scorer: Scorer) -> None:
    problem = Problem("p", "s", tests=(Test(stdin, expected),))
    assert scorer.score(problem, program).verdicts == ("pass",)


def test_a_file_of_such_completions_is_scored(tmp_path: Path) -> None:
    programs = ["\ud800", "\0", "\ufeff" + DOUBLE, "(" * 5000, "```python\n" + DOUBLE]
    problem = {"id": "p\ud800", "statement": "Double \ud800 it.", "tests": [{"input": "2\r\n", "output": "4\r\n"}]}
    (tmp_path / "problems.jsonl").write_text(json.dumps(problem))
    (tmp_path / "completions.jsonl").write_text(
        "\n".join(json.dumps({"id": "p\ud800", "sample": n, "completion": each}) for n, each in enumerate(programs))
    )
    files = ("--problems", str(tmp_path / "problems.jsonl"), "--completions", str(tmp_path / "completions.jsonl"))
    result = CliRunner().invoke(sce, ["score", *files])
    assert result.exit_code == 0, result.output
    assert [json.loads(line)["stage"] for line in result.stdout.splitlines()] == [0, 0, 4, 0, 4]
