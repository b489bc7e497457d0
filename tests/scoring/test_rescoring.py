"""Files of completions: what sce bench writes, and samples of human-eval and EvalPlus, have the same programs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from chat_templates import TEMPLATES
from fake_runtime import FakeRuntime
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from securecoderl_edge.errors import SceError
from securecoderl_edge.evaluation.evaluate import Evaluation, EvaluationPlan, evaluate
from securecoderl_edge.evaluation.log import EvaluationLog
from securecoderl_edge.evaluation.samples import write_samples
from securecoderl_edge.problems.problem import Problem, Test
from securecoderl_edge.problems.sources import load_problems
from securecoderl_edge.prompts.chat import ChatTemplate
from securecoderl_edge.prompts.extraction import extract_program, prompt_facts, recorded_format
from securecoderl_edge.prompts.styles import CHAT_STYLES, STYLES, PromptFormat
from securecoderl_edge.runtimes.protocol import Usage
from securecoderl_edge.scoring.score_files import read_submissions
from securecoderl_edge.scoring.scorer import Scorer

STUB = 'import math\n\n\ndef area(r: float) -> float:\n    """The area of a circle."""\n'
BODY = "    return math.pi * r * r\n"
PROBLEMS = [
    Problem("circle", f"Complete the function `area`.\n\n{STUB}", "call", entry_point="area",
            assertions=("assert area(0) == 0",), starter_code=STUB),
    Problem("begun", STUB.strip(), "call", entry_point="area", assertions=("assert area(0) == 0",)),
    Problem("double", "Read n. Print 2n.", tests=(Test("2\n", "4\n"),)),
    Problem("add", "Return a + b.", "call", entry_point="add", assertions=("assert add(1, 2) == 3",)),
    Problem("c", "Read n. Print 2n.", tests=(Test("2\n", "4\n"),), language="c"),
]  # fmt: skip
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}
FORMATS = {style: PromptFormat(style) for style in STYLES if style not in CHAT_STYLES} | {
    f"{style} {name} {thinks}": PromptFormat(style, ChatTemplate(source, TOKENS, thinks=thinks))
    for style in CHAT_STYLES
    for name, source in TEMPLATES.items()
    for thinks in (False, True)
}
PIECES = st.sampled_from(
    ["```python\n", "```\n", "```", "~~~\n", "</think>\n", "<think>\n", "<think>", "[DONE]", "<answer>", "</answer>",
     "print(2 * int(input()))\n", "def add(a, b):\n    return a + b\n", BODY, STUB, "return 0\n", "    return 0\n",
     "Here is the program:\n", "### Solution\n", "### Problem\n", '"""\n', "'''", "# note\n", "<|im_end|>", "\n\n",
     "assert add(1, 2) == 3\n", "int main(void) { return 0; }\n", "assistant\n", "Note: it is right.\n", "\ufeff", "x"]
)  # fmt: skip
COMPLETIONS = st.lists(PIECES, max_size=8).map("".join) | st.text(max_size=40)


@hypothesis_settings(max_examples=300)
@given(
    st.sampled_from([*FORMATS.values()]),
    st.sampled_from(PROBLEMS),
    COMPLETIONS,
    st.sampled_from(["", "prompt", "statement"]),
)
def test_a_row_of_a_bench_has_the_program_of_the_evaluation(
    format: PromptFormat, problem: Problem, text: str, repeated: str
) -> None:
    echo = {"": "", "prompt": format.prompt(problem), "statement": problem.statement + "\n"}[repeated]
    facts = prompt_facts(problem, format)
    assert facts is not None
    recorded = prompt_facts(problem, recorded_format(format.style, facts.is_thinking))
    assert recorded == facts
    assert extract_program(echo + text, recorded) == extract_program(echo + text, facts)


@pytest.mark.parametrize("name", FORMATS)
def test_rows_that_a_bench_wrote_are_read_with_the_same_programs(name: str, scorer: Scorer) -> None:
    format = FORMATS[name]
    texts = [
        "return 0\n",
        BODY,
        f"```python\n{STUB}{BODY}```\n",
        f"{STUB}{BODY}",
        f"Hm.\n</think>\n{STUB}{BODY}",
        "Sorry.",
        f"{format.prompt(PROBLEMS[0])}{BODY}",
        f"<think>\nx = 1\n</think>\n```\n{BODY}```\nDone.",
    ]
    problems = [replace(PROBLEMS[0], id=str(number)) for number in range(len(texts))]
    with TemporaryDirectory() as folder:
        log = EvaluationLog(Path(folder))
        answers = iter(texts)
        runtime = FakeRuntime(lambda *_: next(answers))
        rows = evaluate(runtime, problems, scorer, EvaluationPlan(format=format), log).rows
        read = read_submissions(Path(folder) / "rows.jsonl", problems, "auto")
    assert [each.program for each in read] == [row["program"] for row in rows]
    assert any(row["stage"] == 4 for row in rows)


def lines(folder: Path, *records: dict[str, Any]) -> Path:
    path = folder / "samples.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def test_samples_of_human_eval_and_evalplus_are_read(tmp_path: Path, scorer: Scorer) -> None:
    problems = [*load_problems("humaneval")[:4], *load_problems("mbpp:all")[10:11]]
    third, eleventh = problems[3], problems[4]
    body = third.solutions[0].removeprefix(third.starter_code.rstrip() + "\n")
    assert body[0].isspace()
    path = lines(
        tmp_path,
        {"task_id": "HumanEval/3", "completion": body},
        {"task_id": "HumanEval/3", "completion": third.solutions[0]},
        {"task_id": "HumanEval/3", "solution": third.solutions[0], "completion": "ignored, as EvalPlus does"},
        {"task_id": "Mbpp/11", "solution": eleventh.solutions[0]},
        {"id": "humaneval/0", "sample": 7, "completion": problems[0].solutions[0], "task_id": "HumanEval/1"},
        {"task_id": "HumanEval/3", "sample": 9, "completion": "    return False\n"},
    )
    read = read_submissions(path, problems, "auto")
    third_ones = [("humaneval/3", sample) for sample in (0, 1, 2, 9)]
    assert [each.key for each in read] == [*third_ones[:3], ("mbpp/11", 0), ("humaneval/0", 7), third_ones[3]]
    passing = [score.passes_all_tests for score in scorer.score_all(read)]
    assert passing == [True, True, True, True, True, False]


def test_samples_of_the_plus_sets_and_those_that_a_bench_wrote_are_read(tmp_path: Path) -> None:
    plus = Problem("mbpp-plus/2", "s", "call", entry_point="f", assertions=("assert f(1) == 1",), source="mbpp-plus")
    programs = [f"def f(x):\n    return {sample}\n" for sample in range(3)]
    rows = tuple({"id": plus.id, "sample": sample, "program": text} for sample, text in enumerate(programs))
    (path,) = write_samples(tmp_path, [plus], [Evaluation("m", rows, Usage())])
    read = read_submissions(path, [plus], "auto")
    assert [each.key for each in read] == [("mbpp-plus/2", sample) for sample in range(3)]
    assert [each.program for each in read] == [f"from typing import *\n\n{program}" for program in programs]


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"task_id": "HumanEval/999", "completion": ""}, "unknown problem id 'HumanEval/999'"),
        ({"task_id": 3, "completion": ""}, 'expected the strings "id" and "completion", or "task_id"'),
        ({"task_id": "double", "solution": None}, 'expected the strings "id" and "completion", or "task_id"'),
        ({"id": "double", "solution": "x"}, 'expected the strings "id" and "completion", or "task_id"'),
        ({"id": "double", "completion": "x", "prompt_style": "poem"}, "unknown prompt style 'poem'"),
        ({"id": "double", "completion": "x", "prompt_style": ["chat"]}, "unknown prompt style"),
    ],
)
def test_lines_that_name_no_program_are_refused(tmp_path: Path, record: dict[str, Any], message: str) -> None:
    with pytest.raises(SceError, match=f"samples.jsonl:1: {message}"):
        read_submissions(lines(tmp_path, record), PROBLEMS, "auto")
