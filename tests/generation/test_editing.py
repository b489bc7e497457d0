"""Edits: what is asked, how candidates are ranked and repaired, and the file that is read and written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from fake_runtime import FakeRuntime, Writer

from securecoderl_edge.errors import SceError, UsageError
from securecoderl_edge.generation.answering import Answerer
from securecoderl_edge.generation.answers import Answer
from securecoderl_edge.generation.edit_prompt import beginning, outline, question
from securecoderl_edge.generation.edited_file import read_edited_file
from securecoderl_edge.generation.editing import Edit, code_in, edit_and_repair, edit_task
from securecoderl_edge.problems.problem import Problem, Test
from securecoderl_edge.problems.test_file import read_test_file
from securecoderl_edge.prompts.chat import ChatTemplate
from securecoderl_edge.prompts.extraction import PromptFacts
from securecoderl_edge.prompts.styles import PromptFormat
from securecoderl_edge.runtimes.protocol import Sampling
from securecoderl_edge.scoring.scorer import Scorer

CHAT = PromptFormat("chat", ChatTemplate("{{ messages[0].content }}", {"eos_token": "<end>"}))
FILE = "def double(x):\n    return x\n\n\ndef other(x):\n    return x  # stays\n"
RIGHT = "```python\ndef double(x):\n    return 2 * x\n```"
WRONG = "```python\ndef double(x):\n    return 3 * x\n```"
SAME = "```python\ndef double(x):\n    return x\n```"
TESTS = (
    "from numbers_ import double\n\n\n"
    "def test_two():\n    assert double(2) == 4\n\n\n"
    "def test_zero():\n    assert double(0) == 0\n"
)


def texts(*answers: str) -> Writer:
    return lambda _prompt, sample, _rng: answers[sample % len(answers)]


def edited(
    scorer: Scorer,
    folder: Path,
    runtime: FakeRuntime,
    n: int = 1,
    rounds: int = 0,
    file: str = FILE,
    tested: bool = True,
) -> Answer:
    (folder / "numbers_.py").write_bytes(file.encode())
    (folder / "test_it.py").write_text(TESTS)
    source = read_edited_file(folder / "numbers_.py")
    problem = Problem("edit", "")
    if tested:
        tests = read_test_file(folder / "test_it.py", source.path)
        problem = Problem("edit", "", kind="call", assertions=tests.tests, test_file=tests)
    task = edit_task(scorer, source, "Let double double.", problem)
    return edit_and_repair(Answerer(runtime, scorer, n, Sampling(), CHAT), task, rounds)


def test_candidates_are_ranked_by_their_tests_and_what_is_no_edit_comes_last(scorer: Scorer, tmp_path: Path) -> None:
    answer = edited(scorer, tmp_path, FakeRuntime(texts(SAME, WRONG, RIGHT, "No.")), n=4)
    assert [each.is_accepted for each in answer.candidates] == [True, False, False, False]
    assert answer.best.score.program == FILE.replace("return x\n\n", "return 2 * x\n\n")
    assert answer.verdict() == "best of 4 (1 passed): passed 2/2 tests, Bandit: no findings"
    assert answer.candidates[1].verdict() == "passed 1/2 tests (1 wrong), Bandit: no findings"
    assert {each.verdict() for each in answer.candidates[2:]} == {
        "the answer changes nothing",
        "the answer does not parse",
    }


def test_an_edit_without_tests_is_accepted_and_named_so(scorer: Scorer, tmp_path: Path) -> None:
    answer = edited(scorer, tmp_path, FakeRuntime(texts(WRONG)), tested=False)
    assert (answer.accepted, answer.verdict()) == (1, "not tested, parses, Bandit: no findings")


def test_only_new_findings_reject_an_edit(scorer: Scorer, tmp_path: Path) -> None:
    file = FILE.replace("return x  # stays", "return eval(x)")
    answer = edited(scorer, tmp_path, FakeRuntime(texts(RIGHT)), file=file)
    assert (answer.accepted, answer.verdict()) == (1, "passed 2/2 tests, Bandit: no new findings, 1 before the edit")
    unsafe = RIGHT.replace("2 * x", "2 * eval(str(x))")
    answer = edited(scorer, tmp_path, FakeRuntime(texts(unsafe)), file=file)
    assert answer.verdict() == "failed: passed 2/2 tests, Bandit: B307 in line 2 (new), 1 before the edit"
    assert edited(
        scorer, tmp_path, FakeRuntime(texts(unsafe)), file=FILE.replace("    return x\n\n", "    return eval(x)\n\n")
    ).accepted


def test_a_finding_that_an_edit_makes_worse_is_new(scorer: Scorer, tmp_path: Path) -> None:
    def change(mode: int) -> str:
        return f"    if x < 0:\n        __import__('os').chmod('a', {mode:#o})\n    return"

    for before, after, is_accepted in ((0o755, 0o777, False), (0o755, 0o755, True), (0o777, 0o755, True)):
        file = FILE.replace("    return x\n\n", f"{change(before)} x\n\n")
        answer = edited(scorer, tmp_path, FakeRuntime(texts(RIGHT.replace("    return", change(after)))), file=file)
        assert (answer.accepted == 1) == is_accepted
        assert ("B103 in line 3 (new)" in answer.verdict()) != is_accepted


def test_a_repair_shows_the_failing_test_and_starts_from_the_file(scorer: Scorer, tmp_path: Path) -> None:
    runtime = FakeRuntime(lambda prompt, _sample, _rng: RIGHT if "What is wrong" in prompt else WRONG)
    answer = edited(scorer, tmp_path, runtime, rounds=2)
    assert (answer.accepted, answer.rounds) == (1, 2)
    first, second = runtime.prompts
    assert "test_two" not in first
    assert second.startswith(first.removesuffix("```python\ndef double(x):\n"))
    assert "    return 3 * x" in second
    assert "wrong: test_two\n  test_it.py:5: assert double(2) == 4\n  AssertionError: 6 is not as expected: 4" in second


def test_a_repair_of_what_is_no_edit_names_the_reason(scorer: Scorer, tmp_path: Path) -> None:
    runtime = FakeRuntime(texts(SAME))
    edited(scorer, tmp_path, runtime, rounds=1)
    assert "What is wrong with it:\nthe answer changes nothing\n" in runtime.prompts[1]


def test_tests_that_cannot_run_here_are_an_error_before_any_answer(scorer: Scorer, tmp_path: Path) -> None:
    runtime = FakeRuntime(texts(RIGHT))
    with pytest.raises(
        SceError, match="the tests cannot run in the sandbox: ModuleNotFoundError: No module named 'numpy'"
    ):
        edited(scorer, tmp_path, runtime, file=f"import numpy\n{FILE}")
    assert runtime.prompts == []
    new = FILE.replace("double", "triple")  # the test imports what is to be written
    assert edited(scorer, tmp_path, FakeRuntime(texts(RIGHT)), file=new).accepted


def test_tests_of_input_and_output_run_the_file_as_a_program(scorer: Scorer, tmp_path: Path) -> None:
    (tmp_path / "double.py").write_text("print(input())\n")
    problem = Problem("edit", "", tests=(Test("2\n", "4\n"),))
    task = edit_task(scorer, read_edited_file(tmp_path / "double.py"), "Double it.", problem)
    runtime = FakeRuntime(texts("```\nprint(2 * int(input()))\n```"))
    assert edit_and_repair(Answerer(runtime, scorer, 1, Sampling(), CHAT), task, 0).accepted


def test_a_model_that_does_not_chat_is_refused(scorer: Scorer, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(FILE)
    task = edit_task(scorer, read_edited_file(tmp_path / "a.py"), "x", Problem("edit", ""))
    with pytest.raises(UsageError, match="needs a model that was trained to chat"):
        edit_and_repair(Answerer(FakeRuntime(), scorer, 1, Sampling(), PromptFormat()), task, 0)


def test_a_file_that_does_not_fit_is_shown_as_its_outline_or_refused(scorer: Scorer, tmp_path: Path) -> None:
    long = FILE + "".join(f"\n\ndef f{number}(x):\n    return {' + '.join('x' * 99)}\n" for number in range(9))
    runtime = FakeRuntime(texts(RIGHT))
    runtime.context = 500
    assert edited(scorer, tmp_path, runtime, file=long).accepted
    assert "an outline of the file numbers_.py" in runtime.prompts[0]
    assert "def double(x):\n    return x\n\n\ndef other(x):\n    ...\n" in runtime.prompts[0]
    with pytest.raises(UsageError, match="name the functions to change"):
        edited(scorer, tmp_path, runtime, file=long.replace("double", "triple"))
    runtime.context = 100
    with pytest.raises(
        UsageError, match="too large for the model's context of 100 tokens; name the functions to change"
    ):
        edited(scorer, tmp_path, runtime, file=long)


def test_an_outline_has_the_named_functions_whole() -> None:
    text = (
        'import re\n\n\nclass A:\n    """Doc."""\n\n    x = 1\n\n    @p\n    def f(self):\n        """Doc."""\n'
        "        return 1\n\n    def g(self):\n        return 2\n\n\ndef h(): return 3\n\n\ndef i():\n    return 4\n"
    )
    shown = outline(text, "Let g be 5.")
    assert shown == text.replace('        """Doc."""\n        return 1', "        ...").replace(
        "    return 4", "    ..."
    )


def test_a_short_file_is_asked_for_whole_and_a_long_one_in_parts() -> None:
    assert "Answer with the whole changed file" in question("a.py", FILE, True, "x")
    assert "Answer with the whole changed file" in question("a.py", "x = 1\n" * 99, True, "x")
    assert "each function or method that you change" in question("a.py", FILE + "x = 1\n" * 99, True, "x")
    assert "Answer with the whole changed file" in question("a.py", f"def f(:\n{FILE * 30}", True, "Mend f.")
    assert "````python\nx = '```'\n````" in question("a.py", "x = '```'\r\n", True, "x")


@pytest.mark.parametrize(("instruction", "wanted"), [
    ("Let other be 3.", "the changed `other`, as a whole"),
    ("Let double() use other.", "the changed `double`, as a whole"),
    ("A.f and double must raise.", "the changed `double` and `A.f`, as a whole"),
    ("Let A have a method g.", "the changed `A`, as a whole"),
    ("Remove `other`.", "the whole changed file"),
    ("Speed it up.", "the whole changed file"),
])  # fmt: skip
def test_functions_that_the_instruction_names_are_asked_for_by_name(instruction: str, wanted: str) -> None:
    assert wanted in question("a.py", f"{FILE}\n\nclass A:\n    def f(self):\n        pass\n", True, instruction)


@pytest.mark.parametrize(("instruction", "begun"), [
    ("Let double() use other.", "```python\ndef double(x):\n"),
    ("Let other be 3.", "```python\ndef other(x):\n"),
    ("Let other have a parameter n.", "```python\ndef other("),
    ("Let other(x, n) be n.", "```python\ndef other("),
    ("A.f must raise.", "```python\nasync def f(\n    self,\n    x,  # in\n):\n"),
    ("A.g needs an argument.", "```python\ndef g(self"),
    ("Let double and other be 3.", ""),
    ("Add a function like double().", ""),
    ("Let A have more.", ""),
    ("Remove `other`.", ""),
])  # fmt: skip
def test_an_answer_begins_with_the_only_function_that_is_to_change(instruction: str, begun: str) -> None:
    methods = (
        "    async def f(\n        self,\n        x,  # in\n    ):\n        pass\n\n    @p\n    def g(self): pass\n"
    )
    assert beginning(f"{FILE}\n\nclass A:\n{methods}".replace("\n", "\r\n"), instruction) == begun


def test_a_prompt_ends_with_the_beginning_of_the_answer(scorer: Scorer, tmp_path: Path) -> None:
    for text in ("    return 2 * x\n```\nDone.", RIGHT):
        runtime = FakeRuntime(texts(text))
        assert edited(scorer, tmp_path, runtime).accepted
        assert runtime.prompts[0].endswith("```python\ndef double(x):\n")


def test_all_blocks_with_definitions_count_and_examples_do_not() -> None:
    text = (
        "First:\n```python\nimport re\ndef f():\n    return 1\n```\n"
        "Then:\n```python\ndef g():\n    return 2\n```\n```python\nprint(f())\n```\n"
    )
    assert code_in(text, PromptFacts("chat")) == "import re\ndef f():\n    return 1\n\n\n\ndef g():\n    return 2\n"


@pytest.mark.parametrize("head", [b"", b"\xef\xbb\xbf", b"# -*- coding: latin-1 -*-\r\n# \xe4\r\n"])
def test_a_file_keeps_its_encoding_its_line_ends_and_its_mode(tmp_path: Path, head: bytes) -> None:
    path = tmp_path / "a.py"
    path.write_bytes(head + b"x = 1\r\ny = 2")
    path.chmod(0o750)
    file = read_edited_file(path)
    assert file.write(file.text.replace("x = 1", "x = 3")) == path
    assert path.read_bytes() == head + b"x = 3\r\ny = 2"
    assert path.stat().st_mode & 0o777 == 0o750
    assert os.listdir(tmp_path) == ["a.py"]


def test_an_answer_that_the_encoding_lacks_is_no_edit(scorer: Scorer, tmp_path: Path) -> None:
    file = f"# coding: ascii\n{FILE}"
    answer = edited(scorer, tmp_path, FakeRuntime(texts(RIGHT.replace("2 * x", "2 * x  # \u00e4"))), file=file)
    assert answer.verdict() == "failed: the answer does not keep to the file's encoding (ascii)"
    assert isinstance(answer.best, Edit)


def test_an_encoding_that_is_declared_no_more_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_bytes(b"# coding: latin-1\nprint('\xe4')\n")
    with pytest.raises(UnicodeError, match="the file is not in iso-8859-1 any more"):
        read_edited_file(tmp_path / "a.py").encode("print('\u00c4')\n")


def test_a_link_stays_and_its_target_is_written(tmp_path: Path) -> None:
    (tmp_path / "real.py").write_text("x = 1\n")
    (tmp_path / "link.py").symlink_to("real.py")
    assert read_edited_file(tmp_path / "link.py").write("x = 2\n") == tmp_path / "real.py"
    assert (tmp_path / "link.py").is_symlink()
    assert (tmp_path / "real.py").read_text() == "x = 2\n"


def test_a_file_that_changed_meanwhile_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_text("x = 1\n")
    file = read_edited_file(path)
    path.write_text("x = 5\n")
    with pytest.raises(SceError, match="has changed since it was read, so nothing was written"):
        file.write("x = 2\n")
    path.unlink()
    with pytest.raises(SceError, match="has changed since it was read"):
        file.write("x = 2\n")
    assert os.listdir(tmp_path) == []


def test_a_diff_can_be_applied(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_text("x = 1\ny = 2")
    diff = read_edited_file(path).diff("x = 1\ny = 3")
    name = str(path).lstrip("/")
    end = "\\ No newline at end of file\n"
    assert diff == f"--- a/{name}\n+++ b/{name}\n@@ -1,2 +1,2 @@\n x = 1\n-y = 2\n{end}+y = 3\n{end}"


@pytest.mark.parametrize(("name", "content", "reason"), [
    ("none.py", None, "no such file"),
    ("", None, "a folder, not a file"),
    ("a.c", b"int main(void) {}", "only Python files are edited; a change in C cannot be checked for lost code"),
    ("a.txt", b"text", "only Python files are edited, and its name ends in .txt"),
    ("a.py", b"x = '\0'", "a binary file"),
    ("a.py", b"\xff\xfe", "not a text file, or not in the encoding that it declares"),
    ("a.py", b"# coding: rot13\n", "not a text file, or not in the encoding that it declares"),
    ("a.py", b"# coding: punycode\n", "not a text file, or not in the encoding that it declares"),
    ("a.py", b"# coding: zip\n", "not a text file, or not in the encoding that it declares"),
    ("a.py", b"# coding: nothing\n", "not a text file, or not in the encoding that it declares"),
])  # fmt: skip
def test_what_is_no_python_file_is_refused(tmp_path: Path, name: str, content: bytes | None, reason: str) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(UsageError) as refused:
        read_edited_file(tmp_path / name)
    assert str(refused.value) == f"--edit {tmp_path / name}: {reason}"
