"""The reward for other trainers: its values, its processes, and the signatures that TRL and verl call."""

from __future__ import annotations

import inspect
import json
import multiprocessing
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from quick import few

from securecoderl_edge.errors import SceError, UsageError
from securecoderl_edge.integrations import problem_reward as shared
from securecoderl_edge.integrations import verl
from securecoderl_edge.integrations.problem_reward import PARTS, ProblemReward, text_of
from securecoderl_edge.integrations.trl import Reward
from securecoderl_edge.problems.problem import Problem, Test
from securecoderl_edge.problems.problem_file import write_problems
from securecoderl_edge.prompts.styles import PromptFormat
from securecoderl_edge.scoring.score import Score

RIGHT, WRONG, UNSAFE = "print(int(input()) * 2)\n", "print(1)\n", "print(eval(input()) * 2)\n"
FENCED = f"Here it is:\n```python\n{RIGHT}```\nDone."
IDS, COMPLETIONS = ["a", "b", "a", "b"], [RIGHT, WRONG, FENCED, UNSAFE]
EXPECTED = [1.0, 0.6 * 0.6 + 0.4, 1.0, 0.8]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("problems") / "problems.jsonl"
    write_problems(path, [Problem(name, f"Double it ({name}).", tests=(Test("4\n", "8\n"),)) for name in ("a", "b")])
    return str(path)


def message(text: str) -> list[dict[str, Any]]:
    return [{"role": "assistant", "content": text}]


@pytest.mark.parametrize("completions", [COMPLETIONS, list(map(message, COMPLETIONS))], ids=["text", "messages"])
def test_trl_gets_a_reward_per_completion_in_order(source: str, completions: list[Any]) -> None:
    columns = {"completion_ids": [[1]] * 4, "trainer_state": None, "log_extra": print, "log_metric": print}
    found = Reward(source, workers=2)(prompts=[""] * 4, completions=completions, problem_id=IDS, **columns)
    assert found == pytest.approx(EXPECTED)
    assert all(type(value) is float for value in found)


def test_a_part_of_the_score_can_be_the_reward_and_names_the_metric(source: str) -> None:
    reward = Reward(source, part="r_func", workers=2)
    assert reward([], [UNSAFE], ["a"]) == [1.0]
    assert Reward(source, part="r_sec", workers=2)([], [UNSAFE], ["a"]) == [0.5]
    assert reward.__name__ == "sce_r_func"
    assert set(PARTS) <= set(Score.__dataclass_fields__)
    for wrong in ({"part": "id"}, {"style": "verse"}):
        with pytest.raises(UsageError, match="choose from"):
            Reward(source, **wrong)  # type: ignore[arg-type]


def test_rows_hold_a_chat_message_or_the_prompt_in_another_style(source: str) -> None:
    (row, _) = Reward(source).rows()
    assert row["problem_id"] == "a"
    assert row["prompt"][0]["role"] == "user"
    assert row["prompt"][0]["content"].startswith("Double it (a).\n\nWrite a Python 3 program")
    problem = Problem("a", "Double it (a).", tests=(Test("4\n", "8\n"),))
    (row, _) = Reward(source, style="code").rows()
    assert row["prompt"] == PromptFormat("code").prompt(problem)


def test_a_completion_of_a_code_prompt_ends_where_other_text_begins(source: str) -> None:
    text = f'{RIGHT}"""\nAnother problem.\n"""\nprint(0)\n'
    assert Reward(source, style="code", workers=2)([], [text], ["a"]) == [1.0]


def test_messages_without_text_are_an_empty_completion() -> None:
    assert [text_of(each) for each in ([], message(""), [{"role": "assistant", "content": None}])] == [""] * 3
    parts = [{"type": "text", "text": "a"}, {"type": "image"}, {"type": "text", "text": "b"}]
    assert text_of([{"role": "user", "content": "x"}, {"role": "assistant", "content": parts}]) == "ab"


def test_what_a_tool_has_returned_is_no_completion() -> None:
    result = {"role": "tool", "name": "search", "content": RIGHT}
    assert text_of([*message(WRONG), result]) == WRONG
    assert text_of([*message(WRONG), result, *message(RIGHT)]) == RIGHT
    assert text_of([result]) == ""


def test_an_unknown_problem_is_an_error(source: str) -> None:
    with pytest.raises(UsageError, match="unknown problem id 'c'"):
        Reward(source)([], [RIGHT], ["c"])


def test_a_sandbox_that_fails_is_an_error_and_never_a_reward(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise SceError("cannot start the sandbox")

    monkeypatch.setattr(shared, "_scorers", {})
    monkeypatch.setattr("securecoderl_edge.scoring.scorer.SandboxPool", refuse)
    with pytest.raises(SceError, match="cannot start the sandbox"):
        Reward(source)([], [RIGHT], ["a"])
    monkeypatch.undo()
    monkeypatch.setattr("securecoderl_edge.sandbox.pool.SandboxPool.run", refuse)
    with pytest.raises(SceError, match="cannot start the sandbox"):
        verl.compute_score(source, RIGHT, "a", workers=2)


def test_verl_calls_compute_score_from_many_threads(source: str) -> None:
    def score(place: int) -> float:
        return verl.compute_score(
            data_source=source, solution_str=COMPLETIONS[place], ground_truth=IDS[place], extra_info={},
            workers=2, reward_router_address=None,
        )  # fmt: skip

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(score, [0, 1, 2, 3] * 4)) == pytest.approx(EXPECTED * 4)
    assert list(inspect.signature(verl.compute_score).parameters)[:4] == [
        "data_source", "solution_str", "ground_truth", "extra_info"
    ]  # fmt: skip


def test_rows_for_verl_name_the_set_and_the_problem(source: str) -> None:
    (row, _) = verl.rows(source)
    assert (row["data_source"], row["reward_model"]) == (source, {"style": "rule", "ground_truth": "a"})
    assert row["prompt"] == Reward(source).rows()[0]["prompt"]


@pytest.mark.parametrize("method", few(["fork", "spawn", "forkserver"], "fork", "spawn"))
def test_each_process_has_a_sandbox_of_its_own(source: str, method: str) -> None:
    reward = pickle.loads(pickle.dumps(ProblemReward(source, workers=1)))
    pairs = list(zip(IDS, COMPLETIONS, strict=True))
    assert reward.rewards(pairs) == pytest.approx(EXPECTED)  # the parent has one when it forks
    with multiprocessing.get_context(method).Pool(2) as processes:
        results = [processes.apply_async(reward.rewards, (pairs,)) for _ in range(4)]
        assert [result.get(60) for result in results] == [pytest.approx(EXPECTED)] * 4
    assert reward.rewards(pairs) == pytest.approx(EXPECTED)


def test_a_process_that_ends_leaves_no_sandbox(source: str) -> None:
    code = (
        "import json, sys\nfrom securecoderl_edge.integrations import problem_reward\n"
        "print(problem_reward.ProblemReward(sys.argv[1], workers=1).rewards([('a', 'print(8)')])[0])\n"
        "print(json.dumps([pid for each in problem_reward._scorers.values() for pid in each.pids()]))"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code, source], capture_output=True, text=True, check=True
    )
    value, pids = done.stdout.splitlines()
    assert (value, done.stderr) == ("1.0", "")
    assert len(json.loads(pids)) == 2
    for pid in json.loads(pids):
        assert not Path(f"/proc/{pid}").exists() or Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z"
