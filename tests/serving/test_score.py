"""The reward over HTTP: scores in order, bounded work, and no score where the sandbox fails."""

from __future__ import annotations

import json
import random
import threading
import urllib.error
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("uvicorn", reason="needs the serve extra")

from fake_runtime import BROKEN, RIGHT, UNSAFE, WRONG
from places import ROOT
from served import CHAT, KEY, SCORE, Answer, Served, serving

from securecoderl_edge.errors import SceError, UsageError
from securecoderl_edge.problems.problem import Problem, Test
from securecoderl_edge.problems.problem_file import problem_to_record
from securecoderl_edge.scoring.score import Score, score_from_record
from securecoderl_edge.scoring.scorer import Scorer, Submission
from securecoderl_edge.serving.serve_settings import LONGEST_ASSERTION, MAX_PROGRAMS, RETRY_SECONDS, ServeSettings

DOUBLE = Problem("double", "Double it.", tests=(Test("3\n", "6\n"), Test("4\n", "8\n")))
ABSOLUTE = {"id": "f", "statement": "x", "kind": "call", "entry_point": "f", "assertions": ["assert f(-2) == 2"]}
LONG = f"assert f(1) == {'1' * LONGEST_ASSERTION}"
ITEM = {"problem_id": "double", "program": RIGHT}


class HeldScorer:
    """A scorer whose scores come when a test sets them."""

    workers = 4

    def __init__(self) -> None:
        self.futures: list[Future[Score]] = []

    def until(self, _: Any) -> HeldScorer:
        return self

    def score_async(self, *_: Any) -> Future[Score]:
        self.futures.append(Future())
        return self.futures[-1]


@pytest.fixture(scope="module")
def server(scorer: Scorer) -> Iterator[Served]:
    """A server without a model."""
    with serving(scorer, has_model=False, problems=[DOUBLE]) as served:
        yield served


def post(served: Served, *items: Any, **headers: str) -> Answer:
    return served.ask("POST", SCORE, {"items": list(items)}, **headers)


def scores_of(answer: Answer) -> list[Score]:
    assert (answer.status, answer.record["object"]) == (200, "list")
    return [score_from_record(record) for record in answer.record["data"]]


def test_a_batch_gets_its_scores_in_order_and_they_are_those_of_the_scorer(server: Served, scorer: Scorer) -> None:
    programs = [WRONG, RIGHT, BROKEN, UNSAFE] * 10
    found = scores_of(post(server, *({"problem_id": "double", "program": each} for each in programs)))
    expected = scorer.score_all(Submission(DOUBLE, program, place) for place, program in enumerate(programs))
    assert [each.sample for each in found] == list(range(40))
    for name in ("program", "stage", "verdicts", "findings", "reward", "r_func", "r_sec", "problem_hash", "extract"):
        assert [getattr(each, name) for each in found] == [getattr(each, name) for each in expected]


def test_an_item_has_a_problem_or_an_id_and_a_completion_or_a_program(server: Served) -> None:
    fenced = f"Sure:\n```python\n{RIGHT}```\n"
    absolute = "def f(x):\n    return abs(x)\n"
    found = scores_of(
        post(
            server,
            {"problem_id": "double", "completion": fenced},
            {"problem_id": "double", "program": fenced},
            {"problem": problem_to_record(DOUBLE), "program": RIGHT},
            {"problem": ABSOLUTE, "completion": absolute},
        )
    )
    assert [(each.id, each.stage, each.extract) for each in found] == [
        ("double", 4, "auto"), ("double", 0, "raw"), ("double", 4, "raw"), ("f", 4, "auto"),
    ]  # fmt: skip
    assert found[0].program == RIGHT


def test_fields_that_are_null_are_left_out(server: Served) -> None:
    item = {"problem_id": "double", "problem": None, "program": RIGHT, "completion": None}
    assert scores_of(server.ask("POST", SCORE, {"items": [item], "max_tests": None}))[0].stage == 4


def test_a_client_says_how_many_tests_of_its_problem_count(server: Served) -> None:
    tests = [{"input": f"{number}\n", "output": f"{2 * number}\n"} for number in range(6)]
    problem = {"id": "six", "statement": "x", "tests": [*tests, {"input": "9\n", "output": "0\n"}]}
    body = {"items": [{"problem": problem, "program": RIGHT}]}
    usual, every = (scores_of(server.ask("POST", SCORE, each))[0] for each in (body, {**body, "max_tests": 20}))
    assert (usual.verdicts, every.verdicts) == (("pass",) * 5, (*("pass",) * 6, "wrong"))


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"items": [ITEM], "max_tests": 0}, "max_tests"), ({"items": [ITEM], "max_tests": 21}, "max_tests"),
        ({}, "items"), ({"items": []}, "items"), ({"items": "x"}, "items"), ({"items": [ITEM] * 257}, "items"),
        ({"items": [ITEM], "model": "nano"}, "model"), ({"items": [ITEM, 5]}, "items[1]"),
        ({"items": [{"problem_id": "double"}]}, "items[0]"), ({"items": [{"program": RIGHT}]}, "items[0]"),
        ({"items": [{**ITEM, "completion": RIGHT}]}, "items[0]"), ({"items": [{**ITEM, "problem": {}}]}, "items[0]"),
        ({"items": [{**ITEM, "more": 1}]}, "items[0]"),
        ({"items": [{**ITEM, "program": 5}]}, "items[0].program"),
        ({"items": [{**ITEM, "problem_id": "other"}]}, "items[0].problem_id"),
        ({"items": [{**ITEM, "problem_id": ["double"]}]}, "items[0].problem_id"),
        ({"items": [{"problem": {"id": "x"}, "program": ""}]}, "items[0].problem"),
        ({"items": [{"problem": {**ABSOLUTE, "time_limit_s": 60}, "program": ""}]}, "items[0].problem"),
        ({"items": [{"problem": {**ABSOLUTE, "assertions": [LONG]}, "program": ""}]}, "items[0].problem"),
        (
            {"items": [{"problem": {**ABSOLUTE, "security_tests": [
                {"name": "n", "cwe": 1, "assertion": LONG}]}, "program": ""}]},
            "items[0].problem",
        ),
        (
            {"items": [{"problem": {**ABSOLUTE, "security_tests": [
                {"name": "n", "cwe": 1, "assertion": "assert f(1)"}] * 21}, "program": ""}]},
            "items[0].problem",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_a_wrong_body_is_refused_and_the_field_named(server: Served, body: dict[str, Any], param: str) -> None:
    answer = server.ask("POST", SCORE, body)
    assert (answer.status, answer.error["param"]) == (400, param)
    assert ("assertions of at most" in answer.error["message"]) == (LONG in json.dumps(body))
    assert MAX_PROGRAMS == 256


def test_no_body_makes_the_server_fail(server: Served) -> None:
    rng = random.Random(5)
    values = (None, True, -1, 10**30, "", "\0", "def f(:", [], {}, [None], {"id": "x"}, ABSOLUTE, "(" * 5000, [[]])
    names = ("problem", "problem_id", "completion", "program", "items")
    places = ("assertions", "security_tests", "tests", "kind", "entry_point", "time_limit_s", "starter_code", "id")
    statuses = set()
    for _ in range(150):
        problem = {
            **ABSOLUTE,
            rng.choice(places): rng.choice((*values, ["assert f(-1) == " + "[" * 200], ["-" * 9999])),
        }
        item = {"problem": problem, "completion": RIGHT} if rng.random() < 0.7 else dict(ITEM)
        if rng.random() < 0.4:
            item[rng.choice(names)] = rng.choice(values)
        body = bytearray(json.dumps({"items": [item]}).encode())
        if rng.random() < 0.2:
            body[rng.randrange(len(body))] = rng.randrange(256)
        statuses.add(server.ask("POST", SCORE, bytes(body)).status)
    assert statuses == {200, 400}
    assert server.log == []


def test_without_a_model_there_is_only_the_reward(server: Served) -> None:
    assert server.ask("GET", "/health").record == {"status": "ok"}
    for method, path in (("POST", CHAT), ("GET", "/v1/models"), ("GET", "/")):
        assert server.ask(method, path, {} if method == "POST" else None).status == 404
    before = server.ask("GET", "/metrics").body.decode()
    post(server, ITEM, ITEM)
    values = dict(line.rsplit(" ", 1) for line in server.ask("GET", "/metrics").body.decode().splitlines())
    scored = next(int(line.split()[1]) for line in before.splitlines() if line.startswith("sce_scores_total"))
    assert int(values["sce_scores_total"]) == scored + 2
    assert int(values['sce_requests_total{path="/v1/score",status="200"}']) > 0
    assert "sce_rows" not in values


def test_a_model_and_the_reward_can_be_served_together(scorer: Scorer) -> None:
    with serving(scorer, problems=[]) as served:
        assert served.chat("x").status == 200
        (score,) = scores_of(post(served, {"problem": problem_to_record(DOUBLE), "program": RIGHT}))
        assert score.reward == 1.0
        assert post(served, ITEM).error["code"] == "unknown_problem"
    with serving(scorer) as served:
        assert post(served, ITEM).status == 404


def test_the_reward_has_the_guards_of_the_other_paths(scorer: Scorer) -> None:
    with serving(scorer, has_model=False, problems=[DOUBLE], key=KEY) as served:
        assert post(served, ITEM).error["code"] == "invalid_api_key"
        right = {"Authorization": f"Bearer {KEY}"}
        assert post(served, ITEM, **right).status == 200
        assert post(served, ITEM, Origin="https://evil.example", **right).status == 403
        assert post(served, ITEM, Host="evil.example", **right).status == 403
        assert served.ask("POST", SCORE, b"{}", Content_Type="text/plain", **right).status == 415
        assert served.ask("POST", SCORE, b'{"items": "' + b"x" * (1 << 21) + b'"}', **right).status == 413
        assert served.ask("GET", SCORE, **right).status == 405


def test_a_full_queue_answers_429_with_the_time_to_wait_and_is_served_later(scorer: Scorer) -> None:
    slow = HeldScorer()
    ready = scorer.score(DOUBLE, RIGHT)
    with serving(slow, has_model=False, problems=[DOUBLE], max_requests=2) as served, ThreadPoolExecutor(2) as threads:
        waiting = [threads.submit(post, served, ITEM, ITEM) for _ in range(2)]
        served.wait_for(lambda: len(slow.futures) == 4)
        refused = post(served, ITEM)
        assert (refused.status, refused.error["code"]) == (429, "too_many_requests")
        assert int(refused.headers["retry-after"]) >= 1
        for future in slow.futures:
            future.set_result(ready)
        assert [len(scores_of(answer.result())) for answer in waiting] == [2, 2]
        later = threads.submit(post, served, ITEM)
        served.wait_for(lambda: len(slow.futures) == 5)
        slow.futures[4].set_result(ready)
        assert later.result().status == 200


def test_the_trainer_of_the_docs_waits_while_the_queue_is_full_and_raises_other_errors(scorer: Scorer) -> None:
    page = (ROOT / "docs" / "guides" / "integrations.md").read_text(encoding="utf-8")
    (block,) = [each for each in page.split("```python\n") if "def reward(" in each]
    slow = HeldScorer()
    with serving(slow, has_model=False, problems=[DOUBLE], max_requests=1) as served, ThreadPoolExecutor(1) as threads:
        scope: dict[str, Any] = {}
        exec(block.partition("```")[0].replace("8080", str(served.port)), scope)
        waits: list[float] = []

        def let_the_first_one_end(seconds: float) -> None:
            waits.append(seconds)
            slow.futures[0].set_result(scorer.score(DOUBLE, WRONG))
            assert first.result().status == 200

        scope["time"] = SimpleNamespace(sleep=let_the_first_one_end)
        first = threads.submit(post, served, ITEM)
        served.wait_for(lambda: len(slow.futures) == 1)
        slow.score_async = scorer.score_async  # type: ignore[method-assign]
        completions = [RIGHT, [{"role": "assistant", "content": f"```python\n{RIGHT}```"}]]
        assert scope["reward"]([], completions, ["double"] * 2) == [1.0, 1.0]
        assert waits == [RETRY_SECONDS]
        with pytest.raises(urllib.error.HTTPError, match="400"):
            scope["reward"]([], [RIGHT], ["other"])


def test_what_a_client_that_hangs_up_no_longer_needs_is_not_begun() -> None:
    slow = HeldScorer()
    with serving(slow, has_model=False, problems=[DOUBLE]) as served:
        connection = served.connect()
        connection.request("POST", SCORE, json.dumps({"items": [ITEM] * 3}), {"Content-Type": "application/json"})
        served.wait_for(lambda: len(slow.futures) == 3)
        connection.close()
        served.wait_for(lambda: all(future.cancelled() for future in slow.futures))
        served.wait_for(lambda: b"sce_requests_running 0" in served.ask("GET", "/metrics").body)


def test_programs_of_a_batch_that_takes_too_long_stop(scorer: Scorer) -> None:
    problem = {"id": "slow", "statement": "x", "tests": [{"input": str(place), "output": "1"} for place in range(5)]}
    with serving(scorer, has_model=False, problems=[DOUBLE], timeout=1.0) as served:
        item = {"problem": problem, "program": "import time\ntime.sleep(600)"}
        assert post(served, *[item] * 16).status == 504
    assert scorer.score(DOUBLE, RIGHT).passed == 2


def test_a_batch_that_takes_too_long_ends_with_504() -> None:
    slow = HeldScorer()
    with serving(slow, has_model=False, problems=[DOUBLE], timeout=1.0) as served:
        answer = post(served, ITEM)
        assert (answer.status, answer.error["code"]) == (504, "timeout")
        served.wait_for(slow.futures[0].cancelled)


def test_writing_many_findings_keeps_no_other_client_waiting() -> None:
    slow, begun, is_answered = HeldScorer(), threading.Event(), threading.Event()
    waited = []

    def written() -> dict[str, Any]:
        begun.set()
        waited.append(is_answered.wait(30))
        return {}

    with serving(slow, has_model=False, problems=[DOUBLE]) as served, ThreadPoolExecutor(1) as threads:
        asked = threads.submit(post, served, ITEM)
        served.wait_for(lambda: len(slow.futures) == 1)
        slow.futures[0].set_result(SimpleNamespace(to_record=written))  # type: ignore[arg-type]
        assert begun.wait(30)
        assert served.ask("GET", "/health").status == 200
        is_answered.set()
        assert asked.result().status == 200
    assert waited == [True]


def test_programs_of_a_large_batch_leave_room_for_those_of_others(scorer: Scorer) -> None:
    slow, score = HeldScorer(), scorer.score(DOUBLE, RIGHT)
    with serving(slow, has_model=False, problems=[DOUBLE]) as served, ThreadPoolExecutor(2) as threads:
        many = threads.submit(post, served, *[ITEM] * MAX_PROGRAMS)
        served.wait_for(lambda: len(slow.futures) == 2 * slow.workers)
        few = threads.submit(post, served, ITEM)
        served.wait_for(lambda: len(slow.futures) == 2 * slow.workers + 1)
        slow.futures[-1].set_result(score)
        assert len(scores_of(few.result())) == 1
        for place in range(MAX_PROGRAMS + 1):
            served.wait_for(lambda place=place: len(slow.futures) > place)
            if not slow.futures[place].done():
                slow.futures[place].set_result(score)
        assert len(scores_of(many.result())) == MAX_PROGRAMS


@pytest.mark.parametrize("more", [{}, {"target": "cortex-m3"}])
def test_programs_that_the_machine_cannot_run_are_refused_without_its_paths(
    scorer: Scorer, monkeypatch: pytest.MonkeyPatch, more: dict[str, str]
) -> None:
    def refuse(language: str) -> None:
        raise SceError(f"cannot run {language}: /secret/gcc is missing")

    problem = {"id": "c", "statement": "x", "language": "c", "tests": [{"input": "1", "output": "1"}], **more}
    with serving(scorer, has_model=False, problems=[DOUBLE]) as served, monkeypatch.context() as patch:
        patch.setattr(scorer, "prepare", refuse)
        answer = post(served, ITEM, {"problem": problem, "program": "int main(void) {}"})
        assert (answer.status, answer.error["code"]) == (400, "unsupported_language")
        assert b"secret" not in answer.body
        assert post(served, ITEM).status == 200


def test_batches_that_wait_for_the_sandbox_of_a_language_keep_nobody_else_waiting() -> None:
    slow, begun, is_free = HeldScorer(), threading.Event(), threading.Event()

    def prepare(language: str) -> None:
        begun.set()
        assert is_free.wait(30)

    slow.prepare = prepare  # type: ignore[attr-defined]
    problem = {"id": "c", "statement": "x", "language": "c", "tests": [{"input": "1", "output": "1"}]}
    item = {"problem": problem, "program": "int main(void) {}"}
    most = 32  # threads that an event loop of Python has
    with serving(slow, has_model=False, problems=[DOUBLE]) as served, ThreadPoolExecutor(most) as threads:
        asked = [threads.submit(post, served, item) for _ in range(most)]
        assert begun.wait(30)
        served.wait_for(lambda: f"sce_requests_running {most}".encode() in served.ask("GET", "/metrics").body)
        assert post(served).status == 400  # it has been read
        is_free.set()
        served.wait_for(lambda: len(slow.futures) == most)
        for future in slow.futures:
            future.set_exception(SceError("enough"))
        assert {each.result().status for each in asked} == {500}


def test_a_sandbox_that_fails_is_an_error_of_the_server_and_never_a_score() -> None:
    slow = HeldScorer()
    with serving(slow, has_model=False, problems=[DOUBLE]) as served, ThreadPoolExecutor(1) as threads:
        asked = threads.submit(post, served, ITEM, ITEM)
        served.wait_for(lambda: len(slow.futures) == 2)
        slow.futures[0].set_exception(SceError("sandbox workers keep dying"))
        answer = asked.result()
        assert (answer.status, answer.error["type"]) == (500, "server_error")
        assert slow.futures[1].cancelled()
        assert served.log == ["a request failed: SceError: sandbox workers keep dying"]


def test_a_server_that_stops_ends_late_batches_with_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("securecoderl_edge.serving.server.STOP_SECONDS", 0.2)
    slow = HeldScorer()
    with ThreadPoolExecutor(1) as threads:
        with serving(slow, has_model=False, problems=[DOUBLE]) as served:
            asked = threads.submit(post, served, ITEM)
            served.wait_for(lambda: len(slow.futures) == 1)
        assert (asked.result().status, asked.result().error["code"]) == (503, "cancelled")


def test_problems_are_for_the_reward() -> None:
    with pytest.raises(UsageError, match="--problems needs --reward"):
        ServeSettings(problems="starter:eval")
