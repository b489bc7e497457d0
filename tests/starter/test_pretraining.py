"""The text that `nano` and `nano-c` are pretrained on."""

from __future__ import annotations

from fractions import Fraction

import pytest

pytest.importorskip("torch", reason="needs the train extra")

from build import built_in
from pretrain import NO_SHARE, Pretraining, write_documents

from securecoderl_edge.languages.language import C
from securecoderl_edge.problems.problem import Problem, Test
from securecoderl_edge.problems.starter.splits import load_split
from securecoderl_edge.problems.train_eval_split import find_leaks


def task(statement: str) -> str:
    return " ".join(statement.partition("\n\nExample input")[0].lower().split())


@pytest.mark.slow
def test_the_training_text_of_nano_is_apart_from_every_evaluation_split() -> None:
    documents = write_documents(Pretraining(documents=2000, seed=5, hard_share=Fraction(1, 5)))
    statements = [prompt.removeprefix("### Problem\n").partition("\n\n### ")[0] for prompt, _ in documents]
    read = [
        Problem(f"document/{number}", statement, (Test("", "0"),), (program,))
        for number, (statement, (_, program)) in enumerate(zip(statements, documents, strict=True))
    ]
    assert all(built_in().allows(document) for document in read)
    assert find_leaks(read, load_split("train")), "the comparison itself must work"


@pytest.mark.slow
def test_the_training_text_of_nano_holds_no_task_of_an_evaluation_split() -> None:
    prompts = [prompt for prompt, _ in write_documents(Pretraining(documents=2000, seed=5))]
    written = {task(prompt.removeprefix("### Problem\n")) for prompt in prompts}
    assert written & {task(problem.statement) for problem in load_split("train")}, "the comparison itself must work"
    for split in ("eval", "hard", "hard-train", "security"):
        assert not written & {task(problem.statement) for problem in load_split(split)}


def test_documents_in_c_are_training_problems_with_programs_in_c() -> None:
    documents = write_documents(Pretraining(C.name, documents=60, seed=3, security_share=NO_SHARE))
    asked = {problem.statement for problem in load_split("c-eval")}
    assert all("int main(void)" in program for _, program in documents)
    assert not any(statement in prompt for prompt, _ in documents for statement in asked)
