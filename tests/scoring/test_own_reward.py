"""A reward function of the user's: what it is given, and that each way to fail is one sentence that names it."""

from __future__ import annotations

import math
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from securecoderl_edge.errors import SceError, UsageError
from securecoderl_edge.integrations.trl import Reward
from securecoderl_edge.problems.problem import Problem, Test
from securecoderl_edge.problems.problem_file import write_problems
from securecoderl_edge.scoring import own_reward
from securecoderl_edge.scoring.own_reward import OwnReward, OwnRewardError, columns_of, mixed, own_function
from securecoderl_edge.scoring.scorer import Scorer, Submission

PROBLEM = Problem("a", "Double it.", tests=(Test("4\n", "8\n"),), solutions=("print(int(input()) * 2)",))
PROGRAMS = ["print(int(input()) * 2)\n", "print(1)\n", "print(\n"]
COLUMNS: dict[str, Any] = {"prompts": ["p"] * 3, "completions": ["a", "bb", ""], "problem_id": ["x"] * 3}


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """Writes a file, and names its function ``f``."""
    monkeypatch.setattr(sys, "path", [*sys.path])

    def write(text: str) -> str:
        file = tmp_path / "mine.py"
        file.write_text(dedent(text))
        return f"{file}:f"

    return write


@contextmanager
def running(name: str, said: list[str] | None = None) -> Iterator[OwnReward]:
    function = own_function(name)
    with OwnReward(function, function.sha256(), ([] if said is None else said).append) as reward:
        yield reward


def test_a_function_gets_what_trl_gives_and_our_scores(written: Callable[[str], str], scorer: Scorer) -> None:
    name = written("""
        def f(prompts, completions, problem_id, problems, scores, **columns):
            assert not columns
            assert problem_id == ["a"] * 3 and problems[0]["statement"] == "Double it."
            assert [each["stage"] for each in scores] == [4, 3, 0] and scores[2]["passed"] == 0
            assert scores[0]["program"] == completions[0] and prompts[1] == "Double it."
            pairs = zip(scores, completions)
            return [None if not each["stage"] else each["r_func"] - len(text) for each, text in pairs]
    """)
    scores = scorer.score_all([Submission(PROBLEM, each) for each in PROGRAMS])
    with running(name) as reward:
        numbers = reward.numbers(columns_of(["Double it."] * 3, PROGRAMS, [PROBLEM] * 3, scores))
    assert numbers == [1.0 - len(PROGRAMS[0]), scores[1].r_func - len(PROGRAMS[1]), None]


def test_the_same_file_gives_trl_the_same_numbers(written: Callable[[str], str], tmp_path: Path) -> None:
    name = written("""
        from collections import Counter
        from helper import bonus  # next to the file
        def f(completions, scores, log_metric=None, **columns):
            return [len(text) * bonus * each["r_tests"] for text, each in zip(completions, scores)]
    """)
    (tmp_path / "helper.py").write_text("bonus = 2\n")
    source = tmp_path / "problems.jsonl"
    write_problems(source, [PROBLEM])
    messages = [[{"role": "assistant", "content": program}] for program in PROGRAMS]
    plain = Reward(str(source), workers=2)
    scores = plain.scores(zip("aaa", PROGRAMS, strict=True))
    with running(name) as reward:
        numbers = reward.numbers(columns_of([""] * 3, PROGRAMS, [PROBLEM] * 3, scores))
    assert numbers == [2.0 * len(PROGRAMS[0]), 0.0, 0.0]
    for weight in (0.0, 0.3, 1.0):
        trl = Reward(str(source), workers=2, function=name, function_weight=weight)
        found = trl(prompts=[""] * 3, completions=messages, problem_id=list("aaa"), log_metric=print)
        ours = plain([""] * 3, messages, list("aaa"))
        assert found == [mixed(*pair, weight) for pair in zip(ours, numbers, strict=True)]


@given(st.floats(-9, 9), st.none() | st.floats(-9, 9), st.floats(0, 1))
def test_the_weight_leads_from_our_reward_to_the_own_one(ours: float, own: float | None, weight: float) -> None:
    number = 0.0 if own is None else own
    assert mixed(ours, own, 0) == ours
    assert mixed(ours, own, 1) == number
    assert mixed(ours, own, weight) == pytest.approx(ours + weight * (number - ours))


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("return [1, True, 0.5]", [1.0, 1.0, 0.5]),
        ("return (1, None, -2)", [1.0, None, -2.0]),
        ("import numpy; return numpy.arange(3)", [0.0, 1.0, 2.0]),
        ("import numpy; return [numpy.float32(0.5)] * 3", [0.5] * 3),
        ("from fractions import Fraction; return [Fraction(1, 2)] * 3", [0.5] * 3),
        ("async def later(): return [1, 2, 3]\n    return later()", [1.0, 2.0, 3.0]),
    ],
)
def test_numbers_of_many_kinds_are_numbers(
    body: str, expected: list[float | None], written: Callable[[str], str]
) -> None:
    function = own_function(written(f"def f(completions, **columns):\n    {body}\n"))
    loaded = function.load()
    assert function.call(loaded, COLUMNS) == function.call(loaded, COLUMNS) == expected


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("return [1, 2]", "returned 2 numbers for 3 completions"),
        ("return [1] * 4", "returned 4 numbers for 3 completions"),
        ("return 1.0", "returned a value of type float, not a list of numbers"),
        ("return None", "returned a value of type NoneType, not a list"),
        ("return (each for each in completions)", "returned a value of type generator, not a list"),
        ("return {0: 1}", "returned a value of type dict, not a list"),
        ("return [1, '2', 3]", "returned a value of type str for completion 1, not a number or None"),
        ("return [1, 2, [3]]", "returned a value of type list for completion 2"),
        ("return [1, 2, 3j]", "returned a value of type complex for completion 2"),
        ("return [1, float('nan'), 3]", "returned nan for completion 1. Return a finite number, or None"),
        ("return [1, 2, -float('inf')]", "returned -inf for completion 2"),
        ("return [10 ** 400, 2, 3]", "returned inf for completion 0"),
        ("return 1 / 0", "failed: ZeroDivisionError: division by zero (line 2)"),
        ("raise ValueError", "failed: ValueError (line 2)"),
        ("raise ValueError('a\\nb \\x1b[31m' + 'x' * 999)", "failed: ValueError: a b \\x1b[31mxxx"),
        ("return helper(completions)", "failed: RecursionError"),
        ("exit(3)", "failed: SystemExit: 3 (line 2)"),
    ],
)
def test_an_answer_that_is_no_reward_is_one_sentence_that_names_the_function(
    body: str, words: str, written: Callable[[str], str]
) -> None:
    function = own_function(
        written(f"def f(completions, **columns):\n    {body}\ndef helper(x):\n    return helper(x)\n")
    )
    with pytest.raises(OwnRewardError) as caught:
        function.call(function.load(), COLUMNS)
    check_sentence(str(caught.value), f"{function} {words}")


def check_sentence(text: str, words: str) -> None:
    assert text.startswith(words)
    assert "\n" not in text
    assert len(text) < 500


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("return 1 / 0", "failed: ZeroDivisionError: division by zero (line 2)"),
        ("import os; os._exit(3)", "ended its process with exit status 3"),
        ("import os; print('bye'); os._exit(0)", "ended its process with exit status 0 after 'bye'"),
        ("import os; os.kill(os.getpid(), 11)", "ended its process with signal SIGSEGV"),
        ("import os; os.close(1); os.closerange(3, 99); return [1] * 3", "ended its process with"),
    ],
)
def test_a_process_that_fails_is_one_sentence_that_names_the_function(
    body: str, words: str, written: Callable[[str], str]
) -> None:
    name = written(f"def f(completions, **columns):\n    {body}\n")
    with running(name) as reward, pytest.raises(OwnRewardError) as caught:
        reward.numbers(COLUMNS)
    check_sentence(str(caught.value), f"reward function f of {name[:-2]} {words}")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("def f(:", "cannot be loaded: SyntaxError"),
        ("import nowhere\ndef f(**columns): pass", "cannot be loaded: ModuleNotFoundError: No module named 'nowhere'"),
        ("raise SystemExit(2)", "cannot be loaded: SystemExit: 2 (line 1)"),
        ("def g(**columns): pass", "has no function f. Name one: reward.function = FILE.py:NAME"),
        ("f = 3", "has no function f"),
        ("\0", "cannot be loaded"),
        ("import os; os._exit(1)", "ended its process with exit status 1"),
    ],
)
def test_a_file_that_cannot_be_loaded_is_one_sentence(text: str, words: str, written: Callable[[str], str]) -> None:
    name = written(text)
    with pytest.raises(OwnRewardError) as caught:
        own_function(name).load() if "_exit" not in text else OwnReward(own_function(name), "", print)
    assert words in str(caught.value)
    assert "mine.py" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("def f(**columns): exit(1)", ""), ("f = make()", ""), ("from x import g as f", ""), ("from x import *", ""),
        ("if a:\n    def f(): ...", ""), ("def g(): ...\ndef h(): ...", "mine.py has no function f, but g, h."),
        ("print(1)", "mine.py has no function f, but none at all."),
        ("def f(:", "mine.py cannot be loaded: SyntaxError"),
    ],
)  # fmt: skip
def test_a_plan_refuses_a_file_that_cannot_have_the_function_and_executes_none(
    text: str, words: str, written: Callable[[str], str]
) -> None:
    function = own_function(written(text))
    with pytest.raises(UsageError, match=re.escape(words)) if words else nullcontext():
        function.check()


@pytest.mark.parametrize(
    ("head", "words"),
    [
        ("def f(completions, **columns)", ""), ("async def f(prompts, completions, problem_id, problems, scores)", ""),
        ("def f(*, scores, **rest)", ""), ("def f(completions, weight=2, **rest)", ""),
        ("def f(prompts, completions, problem_id)", "does not take problems, scores. It is called with"),
        ("def f(completions, answer, **rest)", "f of {} needs answer, which sce does not give."),
        ("def f(completions, *, answer, **rest)", "needs answer"),
        ("def f(completions, /, **rest)", "needs completions"),
        ("@made\ndef f(prompts)", ""), ("class A:\n    def f(self): ...\ndef f(**rest)", ""),
    ],
)  # fmt: skip
def test_a_plan_refuses_a_function_that_cannot_be_called_with_our_columns(
    head: str, words: str, written: Callable[[str], str]
) -> None:
    function = own_function(written(f"{head}: ..."))
    with pytest.raises(UsageError, match=re.escape(words.format(function.file))) if words else nullcontext():
        function.check()


@pytest.mark.parametrize("text", ["mine.py", "mine.py:", "mine:f", ":f", "mine.py:f()", "mine.py:a.b"])
def test_another_form_than_file_and_name_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"expected FILE.py:NAME, such as rewards.py:brevity"):
        own_function(text)


def test_a_missing_file_and_a_changed_one_are_refused(written: Callable[[str], str], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"missing.py: No such file"):
        own_function(str(tmp_path / "missing.py:f")).sha256()
    function = own_function(written("def f(**columns): return []"))
    before = function.sha256()
    written("def f(**columns): return [1]")
    with pytest.raises(OwnRewardError, match=r"mine.py has changed since the training began"):
        OwnReward(function, before, print)


def test_a_call_that_never_ends_is_stopped(written: Callable[[str], str], monkeypatch: pytest.MonkeyPatch) -> None:
    name = written("import time\ndef f(**columns):\n    while True: time.sleep(9)")
    with running(name) as reward:
        monkeypatch.setattr(own_reward, "SECONDS", 0.7)
        with pytest.raises(OwnRewardError, match=r"reward function f of .*mine.py has given no answer within 0.7 s"):
            reward.numbers(COLUMNS)
    assert reward._process.returncode == -signal.SIGKILL


def test_what_it_prints_is_told_once_and_stays_off_our_output(
    written: Callable[[str], str], capfd: pytest.CaptureFixture[str]
) -> None:
    name = written("""
        import os, sys
        print("loading")
        def f(completions, **columns):
            print("hello \\x1b[31m there")
            print("x" * 100_000, file=sys.stderr)
            os.write(1, b"raw")
            assert sys.stdin.read() == ""
            return [1.0] * len(completions)
    """)
    said: list[str] = []
    with running(name, said) as reward:
        assert reward.numbers(COLUMNS) == reward.numbers(COLUMNS) == [1.0] * 3
        assert os.fstat(reward._output.fileno()).st_size == 0, "a long training must not fill the disk"
    assert said == [f"reward function f of {name[:-2]} prints 'loading'; its output is not shown"]
    assert capfd.readouterr() == ("", "")


def test_it_keeps_its_state_between_calls_and_gets_no_signal_of_the_terminal(written: Callable[[str], str]) -> None:
    name = written("calls = []\ndef f(completions, **columns):\n    calls.append(1)\n    return [len(calls)] * 3")
    with running(name) as reward:
        assert reward.numbers(COLUMNS) == [1.0] * 3
        assert os.getpgid(reward._process.pid) != os.getpgid(0)
        os.kill(reward._process.pid, signal.SIGTERM)
        assert reward.numbers(COLUMNS) == [2.0] * 3


def test_the_order_of_sets_is_the_same_in_each_process(written: Callable[[str], str]) -> None:
    name = written("def f(completions, **columns):\n    return [hash('a'), hash('b'), hash('c')]")
    found = []
    for _ in range(2):
        with running(name) as reward:
            found.append(reward.numbers(COLUMNS))
    assert found[0] == found[1]
    assert all(number is not None and math.isfinite(number) for number in found[0])


def test_it_ends_with_a_training_that_is_killed_in_a_call(written: Callable[[str], str], tmp_path: Path) -> None:
    name = written(f"""
        import os, pathlib
        def f(**columns):
            pathlib.Path({str(tmp_path / "pid")!r}).write_text(str(os.getpid()))
            while True: pass
    """)
    code = (
        "import sys\nfrom securecoderl_edge.scoring.own_reward import OwnReward, own_function\n"
        "function = own_function(sys.argv[1])\nreward = OwnReward(function, function.sha256(), print)\n"
        "reward.numbers({'completions': ['a']})"
    )
    training = subprocess.Popen([sys.executable, "-c", code, name])
    deadline = time.monotonic() + 60
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    pid = int((tmp_path / "pid").read_text())
    training.kill()
    training.wait()
    while Path(f"/proc/{pid}/stat").exists() and Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z":
        assert time.monotonic() < deadline, "the process of the function goes on for ever"
        time.sleep(0.05)


def test_a_failure_in_trl_is_the_same_sentence(written: Callable[[str], str], tmp_path: Path) -> None:
    source = tmp_path / "problems.jsonl"
    write_problems(source, [PROBLEM])
    reward = Reward(str(source), workers=2, function=written("def f(completions, **columns):\n    return []"))
    with pytest.raises(SceError, match=r"reward function f of .*mine.py returned 0 numbers for 1 completions"):
        reward([""], ["print(1)"], ["a"])
