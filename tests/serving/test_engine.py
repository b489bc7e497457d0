"""The engine: whose tokens are whose, rows that become free, and a model that fails."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from served import EchoRuntime, echo

from securecoderl_edge.errors import SceError
from securecoderl_edge.runtimes.extras import NO_EXTRAS, Extras
from securecoderl_edge.runtimes.protocol import DecodingTask, Sampling
from securecoderl_edge.serving.engine import Cancelled, Client, Engine, EngineJob, ModelFailed, Unfit


@pytest.fixture
def runtime() -> EchoRuntime:
    return EchoRuntime()


@pytest.fixture
def engine(runtime: EchoRuntime) -> Iterator[Engine]:
    opened = Engine(runtime, rows=3, length=2000)
    yield opened
    runtime.may_step.set()
    opened.close()


def until(condition: Callable[[], bool]) -> None:
    pause = threading.Event()
    for _ in range(3000):
        if condition():
            return
        pause.wait(0.01)
    raise AssertionError("never came to this state")


def text_of(prompt: str, seed: int, sample: int) -> str:
    return echo(DecodingTask(0, prompt, Sampling(seed=seed), sample))


def test_concurrent_requests_each_get_their_own_samples_in_order(engine: Engine, runtime: EchoRuntime) -> None:
    rng = random.Random(0)
    wanted = [(f"prompt {number}", rng.randint(1, 5), rng.randint(0, 9)) for number in range(60)]

    def ask(prompt: str, n: int, seed: int) -> tuple[list[str], dict[int, str]]:
        pieces: dict[int, str] = {}

        def listen(_: int, sample: int, text: str) -> None:
            pieces[sample] = pieces.get(sample, "") + text

        found = Client(engine).generate([prompt], n, Sampling(seed=seed), listen)[0]
        return [completion.text for completion in found], pieces

    with ThreadPoolExecutor(16) as threads:
        answers = list(threads.map(lambda each: ask(*each), wanted))
    for (prompt, n, seed), (texts, pieces) in zip(wanted, answers, strict=True):
        assert texts == [text_of(prompt, seed, sample) for sample in range(n)]
        assert pieces == dict(enumerate(texts))
    assert runtime.batches[0].most == 3
    assert (engine.busy_rows, engine.waiting) == (0, 0)


def test_no_two_samples_of_a_request_have_the_same_random_numbers(engine: Engine) -> None:
    found = Client(engine).generate(["a", "b", "a"], 2, Sampling(seed=4))
    expected = [("a", 0), ("a", 1), ("b", 2), ("b", 3), ("a", 4), ("a", 5)]
    assert [each.text for own in found for each in own] == [text_of(prompt, 4, number) for prompt, number in expected]


def test_a_request_joins_while_others_are_decoded(engine: Engine, runtime: EchoRuntime) -> None:
    together, pause = [], threading.Event()

    def note() -> None:
        together.append(len(runtime.batches[0].tasks))
        if max(together) < 2:
            pause.wait(0.01)  # hundreds of these steps are left for the others to arrive

    runtime.before_step = note
    with ThreadPoolExecutor(3) as threads:
        asked = [threads.submit(Client(engine).generate, [name], 1, Sampling()) for name in ("a" * 3000, "b", "c")]
        assert all(future.result() for future in asked)
    assert max(together) > 1


def test_a_cancelled_request_frees_its_rows_and_those_that_wait_get_them(engine: Engine, runtime: EchoRuntime) -> None:
    leaving, pause = [Client(engine), Client(engine)], threading.Event()

    def leave() -> None:
        pause.wait(0.01)  # hundreds of steps are left for both to arrive
        if engine.waiting >= 4:
            for client in leaving:
                client.cancel()

    with ThreadPoolExecutor(2) as threads:
        runtime.before_step = leave
        futures = [threads.submit(client.generate, ["x" * 3000], 4, Sampling(max_tokens=900)) for client in leaving]
        for future in futures:
            with pytest.raises(Cancelled):
                future.result()
    assert (engine.busy_rows, engine.waiting, runtime.batches[0].tasks) == (0, 0, {})
    runtime.before_step = lambda: None
    found = Client(engine).generate(["next"], 3, Sampling(seed=1))[0]
    assert [each.text for each in found] == [text_of("next", 1, sample) for sample in range(3)]


def adds_of(runtime: EchoRuntime, monkeypatch: pytest.MonkeyPatch) -> list[list[DecodingTask]]:
    """The tasks of each addition to the batch, from now on."""
    added: list[list[DecodingTask]] = []
    batch = runtime.batches[0]
    add = batch.add

    def note(tasks: Sequence[DecodingTask]) -> None:
        added.append(list(tasks))
        add(tasks)

    monkeypatch.setattr(batch, "add", note)
    return added


@pytest.mark.parametrize("extras", [NO_EXTRAS, Extras(alternatives=0, reports_prompt=True)])
def test_few_long_prompts_join_between_two_steps(
    runtime: EchoRuntime, monkeypatch: pytest.MonkeyPatch, extras: Extras
) -> None:
    engine = Engine(runtime, rows=16, length=2000)
    added = adds_of(runtime, monkeypatch)
    prompts = [f"{number} " + "a " * size for number, size in enumerate((600, 600, 200, 200, 200, 200, 5, 5))]
    with ThreadPoolExecutor(8) as threads:
        asked = [threads.submit(Client(engine, extras).generate, [each], 2, Sampling()) for each in prompts]
        for future in asked:
            future.result()
    engine.close()
    assert sum(map(len, added)) == 16
    seen = set[str]()  # a sample of a prompt that is there copies it
    for tasks in added:
        texts = [str(task.prompt) for task in tasks]
        new = texts if extras.reports_prompt else [each for each in dict.fromkeys(texts) if each not in seen]
        seen.update(texts)
        assert sum(map(runtime.count_tokens, new[:-1])) < 512


def test_questions_that_follow_each_other_do_not_hold_up_the_samples(engine: Engine, runtime: EchoRuntime) -> None:
    steps, seen = [0], list[int]()

    def note() -> None:
        steps[0] += 1

    runtime.before_step = note
    runtime.may_step.clear()
    with ThreadPoolExecutor(4) as threads:
        asked = threads.submit(Client(engine).generate, ["x" * 3000], 1, Sampling(max_tokens=900))
        until(lambda: engine.busy_rows == 1)

        def ask(left: int) -> None:
            def answer(_: object) -> None:
                seen.append(steps[0])
                if left:  # the next one is there before this one is answered
                    threads.submit(ask, left - 1)
                    until(lambda: len(engine._questions) == 1)

            engine.ask(answer)

        threads.submit(ask, 9)
        until(lambda: len(engine._questions) == 1)
        runtime.may_step.set()
        assert asked.result()
    assert sorted(set(seen)) == seen
    assert len(seen) == 10


def test_a_client_that_was_cancelled_before_gets_nothing(engine: Engine) -> None:
    client = Client(engine)
    client.cancel()
    with pytest.raises(Cancelled):
        client.generate(["x"], 2, Sampling())
    assert engine.waiting == 0


def test_prompts_of_a_client_that_has_left_are_not_counted(
    engine: Engine, runtime: EchoRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, counted = Client(engine), list[str]()

    def count(prompt: str) -> int:
        counted.append(prompt)
        client.cancel()
        return 1

    monkeypatch.setattr(runtime, "count_tokens", count)
    with pytest.raises(Cancelled):
        client.generate(["x", "y", "z"], 1, Sampling())
    assert counted == ["x"]


def test_a_prompt_that_does_not_fit_is_refused_before_it_waits(engine: Engine) -> None:
    for prompt, words in (("a " * 2001, "2001 tokens, with 10"), ("a" * 64_001, "characters"), (" ", "no tokens")):
        with pytest.raises(Unfit, match=words):
            Client(engine).generate([prompt], 1, Sampling(max_tokens=10))
    assert engine.waiting == 0
    assert Client(engine).count_tokens("a b c") == 3
    assert Client(engine).context == 2000


def test_the_model_never_sees_a_prompt_that_cannot_fit_not_even_to_count_it(
    engine: Engine, runtime: EchoRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[int] = []
    monkeypatch.setattr(runtime, "count_tokens", lambda prompt: counted.append(len(prompt)) or 1)
    assert Client(engine).count_tokens("a" * 64_001) > engine.length
    assert counted == []
    assert Client(engine).count_tokens("a" * 64_000) == 1
    assert counted == [8_000, 16_000, 32_000, 64_000]


def test_of_a_prompt_with_far_too_many_tokens_only_the_beginning_is_counted(
    engine: Engine, runtime: EchoRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[int] = []
    monkeypatch.setattr(runtime, "count_tokens", lambda prompt: counted.append(len(prompt)) or len(prompt) // 3)
    with pytest.raises(Unfit, match="at least 5333 tokens"):
        Client(engine).generate(["a" * 64_000], 1, Sampling(max_tokens=10))
    assert counted == [8_000, 16_000]


def test_a_model_that_fails_once_fails_the_running_requests_only(engine: Engine, runtime: EchoRuntime) -> None:
    def fail() -> None:
        runtime.before_step = lambda: None
        raise SceError("a crash")

    runtime.before_step = fail
    with pytest.raises(ModelFailed, match="operator"):
        Client(engine).generate(["x"], 5, Sampling())
    assert Client(engine).generate(["y"], 1, Sampling(seed=2))[0][0].text == text_of("y", 2, 0)
    assert engine.failure is None
    assert [batch.is_closed for batch in runtime.batches] == [True, False]


def test_a_model_that_is_lost_while_it_waits_is_opened_again(
    engine: Engine, runtime: EchoRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(prompt: str) -> int:
        raise SceError("the process is gone")

    with monkeypatch.context() as patch:
        patch.setattr(runtime, "count_tokens", fail)
        with pytest.raises(SceError, match="gone"):
            Client(engine).generate(["x"], 1, Sampling())
    assert Client(engine).generate(["y"], 1, Sampling(seed=2))[0][0].text == text_of("y", 2, 0)
    assert [batch.is_closed for batch in runtime.batches] == [True, False]


def test_a_client_that_leaves_a_model_that_was_just_lost_is_not_kept(
    engine: Engine, runtime: EchoRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    has_left, pause = threading.Event(), threading.Event()
    leaving, other = (
        EngineJob("x" * 3000, 1, Sampling(), None, is_cancelled) for is_cancelled in (has_left.is_set, lambda: False)
    )

    def fail(keys: Collection[int]) -> None:
        raise SceError("the process is gone")

    def leave() -> None:
        pause.wait(0.01)  # hundreds of steps are left for both to arrive
        if engine.busy_rows == 2:
            monkeypatch.setattr(runtime.batches[0], "drop", fail)
            has_left.set()

    def end_of(job: EngineJob) -> Exception:
        while not isinstance(event := job.events.get(timeout=30), Exception):
            pass
        return event

    runtime.before_step = leave
    for job in (leaving, other):
        engine.submit(job)
    assert isinstance(end_of(leaving), Cancelled)
    assert isinstance(end_of(other), ModelFailed)
    assert Client(engine).generate(["y"], 1, Sampling(seed=2))[0][0].text == text_of("y", 2, 0)


def test_a_model_that_cannot_be_opened_again_ends_the_engine_and_every_request(runtime: EchoRuntime) -> None:
    ended, lines = threading.Event(), []
    engine = Engine(runtime, 3, 2000, lines.append, ended.set)

    def fail() -> None:
        runtime.fails_to_open = True
        raise SceError("a crash")

    runtime.before_step = fail
    with pytest.raises(ModelFailed):
        Client(engine).generate(["x"], 1, Sampling())
    assert ended.wait(30)
    with pytest.raises(ModelFailed, match="stops"):
        Client(engine).generate(["y"], 1, Sampling())
    assert lines == ["the model failed: a crash", "the model cannot be used any more: no device"]
    engine.close()


def test_closing_ends_running_and_waiting_requests(runtime: EchoRuntime) -> None:
    engine = Engine(runtime, 3, 2000)
    runtime.may_step.clear()
    with ThreadPoolExecutor(4) as threads:
        running = [threads.submit(Client(engine).generate, ["x" * 300], 2, Sampling()) for _ in range(3)]
        until(lambda: engine.busy_rows >= 2)
        closing = threads.submit(engine.close)
        until(lambda: engine._is_closing)
        runtime.may_step.set()
        closing.result()
        for future in running:
            with pytest.raises(Cancelled):
                future.result()
    assert runtime.batches[0].is_closed


def test_closing_does_not_wait_for_a_step_that_hangs_and_opens_nothing_afterwards(
    runtime: EchoRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("securecoderl_edge.serving.engine._LAST_STEP_SECONDS", 0.1)
    lines: list[str] = []
    engine = Engine(runtime, 3, 2000, lines.append)
    hanging, killed = threading.Event(), threading.Event()

    def hang() -> None:
        hanging.set()
        assert killed.wait(30)
        raise SceError("the process is gone")

    runtime.before_step = hang
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(Client(engine).generate, ["x"], 2, Sampling())
        assert hanging.wait(30)
        engine.close()
        assert not killed.is_set()
        with pytest.raises(Cancelled):
            running.result(30)
    killed.set()  # as when the runtime is closed
    engine._thread.join(30)
    assert not engine._thread.is_alive()
    assert (len(runtime.batches), lines) == (1, [])


def test_samples_of_a_real_model_are_those_that_it_gives_alone(tiny_model: Path) -> None:
    from securecoderl_edge.runtimes.hf import HfRuntime

    model = HfRuntime(str(tiny_model), threads=1)
    prompts = [f"### Problem\nPrint {number}.\n\n### Solution\n" for number in range(8)]
    settings = [Sampling(1.0, 10 + number, seed=number, top_k=number) for number in range(8)]
    alone = [model.generate([prompt], 2, sampling)[0] for prompt, sampling in zip(prompts, settings, strict=True)]
    engine = Engine(model, 5, 400)
    with ThreadPoolExecutor(8) as threads:
        together = list(
            threads.map(
                lambda pair: Client(engine).generate([pair[0]], 2, pair[1])[0], zip(prompts, settings, strict=True)
            )
        )
    engine.close()
    for one, other in zip(alone, together, strict=True):
        assert [each.token_ids for each in one] == [each.token_ids for each in other]
        assert [each.text for each in one] == [each.text for each in other]
