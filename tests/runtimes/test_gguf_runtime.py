"""A GGUF file completed through llama.cpp in a child process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import asdict
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the train extra")
pytest.importorskip("llama_cpp", reason="needs the gguf extra")

from securecoderl_edge.errors import SceError, UsageError
from securecoderl_edge.export.gguf import write_gguf
from securecoderl_edge.export.verify import PROMPTS
from securecoderl_edge.runtimes.extras import Extras
from securecoderl_edge.runtimes.gguf import llama_worker
from securecoderl_edge.runtimes.gguf.llama import LlamaModel
from securecoderl_edge.runtimes.gguf.runtime import GgufRuntime
from securecoderl_edge.runtimes.protocol import Completion, DecodingTask, Part, Sampling

GREEDY = Sampling(temperature=0.0, max_tokens=24)
RAGGED = PROMPTS[:19]


@pytest.fixture(scope="module")
def runtime(tiny_gguf: Path) -> Iterator[GgufRuntime]:
    with closing(GgufRuntime(tiny_gguf, threads=1, parallel=8)) as opened:
        yield opened


@pytest.fixture(scope="module")
def tuned(tiny_model: Path, tiny_adapter: Path) -> Any:
    """The model that `tiny_gguf` was made from, in transformers."""
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    return PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(tiny_model), str(tiny_adapter)).eval()


def token_ids(rows: Sequence[Sequence[Completion]]) -> list[list[tuple[int, ...]]]:
    return [[completion.token_ids for completion in row] for row in rows]


def test_logprobs_are_those_of_the_model_at_temperature_one(runtime: GgufRuntime, tuned: Any, tiny_model: Path) -> None:
    import torch
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    prompt = "def add(a, b):\n"
    ((completion,),) = runtime.generate([prompt], 1, Sampling(temperature=1.7, max_tokens=12))
    start = tokenizer(prompt).input_ids
    with torch.inference_mode():
        logits = tuned(torch.tensor([[*start, *completion.token_ids]])).logits[0]
    expected = logits.log_softmax(-1)[len(start) - 1 : -1].gather(1, torch.tensor(completion.token_ids)[:, None])[:, 0]
    assert completion.logprobs == pytest.approx(expected.tolist(), abs=1e-3)


def test_a_batch_of_ragged_prompts_equals_single_runs(runtime: GgufRuntime) -> None:
    single = [runtime.generate([prompt], 1, GREEDY)[0] for prompt in RAGGED]
    assert token_ids(runtime.generate(RAGGED, 1, GREEDY)) == token_ids(single)


def test_what_all_prompts_begin_with_is_computed_once_with_the_same_tokens(tiny_gguf: Path) -> None:
    header = "# A program that reads numbers and prints what they add up to, and nothing else.\n"
    prompts = [header + prompt for prompt in (*RAGGED, "")]
    with closing(GgufRuntime(tiny_gguf, threads=1, parallel=4)) as runtime:
        shared, lengths = runtime.count_tokens(header), list(map(runtime.count_tokens, prompts))
        before = runtime.usage()
        together = runtime.generate(prompts, 2, Sampling(max_tokens=12))
        spent = runtime.usage() - before
        # The last tokens of prompts are computed by the first steps.
        assert spent.prompt_tokens == sum(lengths) - len(prompts) - (len(prompts) - 1) * (shared - 1)
        alone = [
            runtime.generate([prompt], 2, Sampling(max_tokens=12), part=Part([(42, number)]))[0]
            for number, prompt in enumerate(prompts)
        ]
    assert token_ids(together) == token_ids(alone)


def test_the_first_samples_do_not_wait_for_the_prompts_of_the_others(tiny_gguf: Path) -> None:
    computed: list[int] = []
    prompts = [f"{number} {PROMPTS[19][:400]}" for number in range(8)]
    with closing(GgufRuntime(tiny_gguf, threads=1, parallel=8)) as runtime:

        def note(*_: object) -> None:
            computed.append(runtime.usage().prompt_tokens)

        runtime.generate(prompts, 2, Sampling(max_tokens=1), part=Part(on_done=note))
        assert computed[1] == runtime.count_tokens(prompts[0]) - 1
    assert computed[-1] > 7 * computed[0]


def test_the_same_seed_repeats_and_another_differs(runtime: GgufRuntime) -> None:
    first, again, other = (
        token_ids(runtime.generate(RAGGED, 3, Sampling(max_tokens=12, seed=seed))) for seed in (1, 1, 2)
    )
    assert first == again
    assert all(left != right for left, right in zip(first, other, strict=True))


def test_samples_of_one_prompt_differ_from_each_other(runtime: GgufRuntime) -> None:
    (samples,) = runtime.generate(["x = "], 12, Sampling(temperature=1.0, max_tokens=12))
    assert len({completion.token_ids for completion in samples}) == 12


def test_samples_do_not_depend_on_how_many_are_decoded_together(tiny_gguf: Path, runtime: GgufRuntime) -> None:
    sampling = Sampling(max_tokens=10)
    with closing(GgufRuntime(tiny_gguf, threads=1, parallel=3)) as narrow:
        assert token_ids(narrow.generate(RAGGED, 4, sampling)) == token_ids(runtime.generate(RAGGED, 4, sampling))


def test_the_frequencies_of_first_tokens_are_the_models_probabilities(runtime: GgufRuntime) -> None:
    (samples,) = runtime.generate(["for i in "], 400, Sampling(temperature=1.0, max_tokens=1))
    counts: dict[int, int] = {}
    probabilities = {}
    for completion in samples:
        counts[completion.token_ids[0]] = counts.get(completion.token_ids[0], 0) + 1
        probabilities[completion.token_ids[0]] = 2.718281828459045 ** completion.logprobs[0]
    for token, probability in probabilities.items():
        # Five standard deviations of a binomial count, and room for the discreteness of small ones.
        assert abs(counts[token] - 400 * probability) < 5 * (400 * probability * (1 - probability)) ** 0.5 + 3


def test_streamed_pieces_make_up_the_text(runtime: GgufRuntime) -> None:
    streamed: dict[tuple[int, int], str] = {}

    def collect(prompt: int, sample: int, text: str) -> None:
        streamed[prompt, sample] = streamed.get((prompt, sample), "") + text

    rows = runtime.generate(RAGGED[:4], 2, Sampling(max_tokens=16), collect)
    for prompt, row in enumerate(rows):
        for sample, completion in enumerate(row):
            assert streamed.get((prompt, sample), "") == completion.text


def test_max_tokens_and_the_end_token_end_a_completion(runtime: GgufRuntime) -> None:
    rows = runtime.generate(RAGGED, 20, Sampling(temperature=1.5, max_tokens=40))
    finishes = {completion.finish for row in rows for completion in row}
    assert finishes == {"stop", "length"}
    for row in rows:
        for completion in row:
            ended = completion.token_ids[-1] == 1
            assert completion.finish == ("stop" if ended else "length")
            assert 1 not in completion.token_ids[:-1]
            assert len(completion.token_ids) == 40 or ended
            assert "<eos>" not in completion.text or not ended


def test_usage_adds_up(tiny_gguf: Path) -> None:
    with closing(GgufRuntime(tiny_gguf, threads=1)) as runtime:
        rows = runtime.generate(RAGGED[:3], 2, Sampling(max_tokens=8))
        usage = runtime.usage()
        assert usage.decode_tokens == sum(len(completion.token_ids) for row in rows for completion in row)
        assert usage.prompt_tokens == sum(row[0].prompt_tokens - 1 for row in rows)
        assert usage.peak_rss_bytes > 1 << 20
        times = rows[0][0].token_seconds
        assert times[0] > 0
        assert list(times) == sorted(times)
        assert len(times) == len(rows[0][0].token_ids)


def test_no_prompts_give_no_completions(runtime: GgufRuntime) -> None:
    assert runtime.generate([], 3, GREEDY) == []


def test_an_empty_prompt_is_refused(runtime: GgufRuntime) -> None:
    with pytest.raises(SceError, match="prompt 2 is empty"):
        runtime.generate(["a", ""], 1, GREEDY)


def test_a_prompt_over_the_context_is_refused_with_both_numbers(runtime: GgufRuntime) -> None:
    with pytest.raises(SceError, match=r"prompt 1 is too long: \d+ tokens.*1024"):
        runtime.generate(["x = 1\n" * 500], 1, GREEDY)


def test_the_runtime_goes_on_after_a_refused_prompt(tiny_gguf: Path) -> None:
    with closing(GgufRuntime(tiny_gguf, threads=1)) as runtime:
        child = runtime.process_id
        with pytest.raises(SceError, match="context of 1024"):
            runtime.generate(["a"], 1, Sampling(max_tokens=1024))
        assert runtime.process_id == child  # the model was not loaded again for it
        assert len(runtime.generate(["a"], 1, GREEDY)[0][0].token_ids) >= 1


def test_a_prompt_that_is_not_unicode_is_refused(runtime: GgufRuntime) -> None:
    with pytest.raises(SceError, match="Unicode"):
        runtime.generate(["\ud800"], 1, GREEDY)


def test_a_file_that_is_no_gguf_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"PK\x03\x04" + bytes(100))
    with pytest.raises(SceError, match="not a GGUF file"):
        GgufRuntime(path)


@pytest.mark.parametrize("kept", [0, 3, 20, 1000, 200_000])
def test_a_truncated_file_is_refused(tiny_gguf: Path, tmp_path: Path, kept: int) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(tiny_gguf.read_bytes()[:kept])
    with pytest.raises(SceError, match=r"model\.gguf"):
        GgufRuntime(path)


def test_the_reason_that_llama_cpp_gives_is_quoted(tiny_gguf: Path, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(tiny_gguf.read_bytes()[:-1])
    with pytest.raises(SceError, match="corrupted or incomplete"):
        GgufRuntime(path)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        GgufRuntime(tmp_path / "model.gguf")


def test_a_killed_child_is_replaced_and_the_answer_is_the_same(tiny_gguf: Path, runtime: GgufRuntime) -> None:
    sampling = Sampling(max_tokens=30)
    expected = token_ids(runtime.generate(RAGGED, 2, sampling))
    streamed: dict[tuple[int, int], str] = {}
    with closing(GgufRuntime(tiny_gguf, threads=1, parallel=8)) as victim:

        def kill_once(prompt: int, sample: int, text: str) -> None:
            if not streamed:
                os.kill(victim.process_id, signal.SIGKILL)
            streamed[prompt, sample] = streamed.get((prompt, sample), "") + text

        rows = victim.generate(RAGGED, 2, sampling, kill_once)
    assert token_ids(rows) == expected
    for (prompt, sample), text in streamed.items():
        assert rows[prompt][sample].text == text


def test_a_killed_child_ends_its_batch_and_another_batch_can_be_opened(tiny_gguf: Path) -> None:
    with closing(GgufRuntime(tiny_gguf, threads=1)) as runtime:
        expected = runtime.generate(["def"], 1, Sampling(0.0, 5))[0][0].token_ids
        batch = runtime.open_batch(2, 200)
        batch.add([DecodingTask(0, "def", Sampling(0.0, 50))])
        batch.step()
        os.kill(runtime.process_id, signal.SIGKILL)
        with pytest.raises(SceError, match="SIGKILL"):
            batch.step()
        with pytest.raises(SceError, match="SIGKILL"):
            runtime.count_tokens("def")
        again = runtime.open_batch(2, 200)
        again.add([DecodingTask(1, "def", Sampling(0.0, 5))])
        news = [each for _ in range(5) for each in again.step()]
        assert news[-1].completion is not None
        assert news[-1].completion.token_ids == expected


def test_a_batch_that_is_opened_again_takes_nothing_of_one_that_failed(tiny_gguf: Path) -> None:
    worker = llama_worker.GgufWorker(
        BytesIO(), tiny_gguf, None, threads=1, parallel=2, reuses_prefixes=False, gpu_layers=0
    )
    task = DecodingTask(0, "print(1)\n" * 20, GREEDY, extras=Extras(reuses_prefix=True))

    def decoded() -> tuple[int, ...]:
        worker.open_batch({"rows": 2, "length": 200})
        worker.use_batch({"type": "add", "tasks": [asdict(task)]})
        assert worker._batch is not None
        completion = None
        while completion is None:
            completion = next((each.completion for each in worker._batch.step()), None)
        return completion.token_ids

    expected = decoded()
    assert worker._context is not None
    del worker._context._held[0][20:]  # as when llama.cpp fails in the middle of tokens
    assert decoded() == expected


def test_a_child_that_dies_twice_is_reported_with_its_signal(tiny_gguf: Path) -> None:
    with closing(GgufRuntime(tiny_gguf, threads=1)) as victim:

        def kill(prompt: int, sample: int, text: str) -> None:
            os.kill(victim.process_id, signal.SIGKILL)

        with pytest.raises(SceError, match="SIGKILL"):
            victim.generate(["a"] * 40, 4, Sampling(max_tokens=200), kill)


def test_an_interrupted_generation_leaves_a_runtime_that_works(tiny_gguf: Path) -> None:
    def interrupt(prompt: int, sample: int, text: str) -> None:
        raise KeyboardInterrupt

    with closing(GgufRuntime(tiny_gguf, threads=1)) as runtime:
        expected = runtime.generate(["a"], 1, GREEDY)
        with pytest.raises(KeyboardInterrupt):
            runtime.generate(RAGGED, 1, GREEDY, interrupt)
        assert token_ids(runtime.generate(["a"], 1, GREEDY)) == token_ids(expected)


def test_an_error_of_the_callers_leaves_no_rest_of_an_answer(tiny_gguf: Path) -> None:
    def give_up(prompt: int, sample: int, text: str) -> None:
        raise SceError("out of time")

    with closing(GgufRuntime(tiny_gguf, threads=1)) as runtime:
        expected = runtime.generate(["a"], 1, GREEDY)
        with pytest.raises(SceError, match="out of time"):
            runtime.generate(RAGGED, 1, GREEDY, give_up)
        assert token_ids(runtime.generate(["a"], 1, GREEDY)) == token_ids(expected)


def test_closing_ends_the_child(tiny_gguf: Path) -> None:
    runtime = GgufRuntime(tiny_gguf, threads=1)
    process_id = runtime.process_id
    runtime.close()
    with pytest.raises(ProcessLookupError):
        os.kill(process_id, 0)


def test_a_child_ends_when_its_parent_is_killed(tiny_gguf: Path) -> None:
    script = (
        "import os, pathlib, sys; sys.path[:0] = sys.argv[2].split(os.pathsep)\n"
        "from securecoderl_edge.runtimes.gguf.runtime import GgufRuntime\n"
        "runtime = GgufRuntime(pathlib.Path(sys.argv[1]), threads=1)\n"
        "print(runtime.process_id, flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    command = [sys.executable, "-c", script, str(tiny_gguf), os.pathsep.join(filter(None, sys.path))]
    parent = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    child = int(parent.stdout)
    for _ in range(500):
        if not Path(f"/proc/{child}").exists() or "State:\tZ" in Path(f"/proc/{child}/status").read_text():
            return
        time.sleep(0.02)
    pytest.fail("the child outlived its parent by ten seconds")


def test_more_samples_than_one_context_holds_are_decoded_in_turn(tiny_gguf: Path) -> None:
    with closing(GgufRuntime(tiny_gguf, threads=1, parallel=1000)) as runtime:
        (samples,) = runtime.generate(["x = "], 300, Sampling(max_tokens=2))
    assert all(1 <= len(completion.token_ids) <= 2 for completion in samples)


def test_a_context_with_fewer_sequences_than_wanted_is_kept(tiny_gguf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[int] = []
    open_context = LlamaModel.open_context

    def record(model: LlamaModel, sequences: int, *rest: Any) -> Any:
        opened.append(sequences)
        return open_context(model, sequences, *rest)

    monkeypatch.setattr(LlamaModel, "open_context", record)
    monkeypatch.setattr(llama_worker, "affordable_sequences", lambda wanted, *_: min(wanted, 2))
    found = llama_worker.GgufWorker(
        BytesIO(), tiny_gguf, None, threads=1, parallel=8, reuses_prefixes=True, gpu_layers=0
    )
    request = {"sampling": asdict(GREEDY), "prompts": ["x = "], "facts": None, "stream": False}
    for samples in (5, 5, 3, 6):
        found.generate({**request, "tasks": [((0, sample), (1, 0, sample)) for sample in range(samples)]})
    assert opened == [2, 2]  # the second one when six were wanted


def test_a_prompt_is_computed_from_where_it_parts_from_an_earlier_one(tiny_gguf: Path, runtime: GgufRuntime) -> None:
    long = PROMPTS[19][:500]
    others = [long + "a", long + "b = 1", long[:300] + "x", "another"]
    expected = [runtime.generate([prompt], 2, GREEDY) for prompt in others]
    with closing(GgufRuntime(tiny_gguf, threads=1, parallel=3, reuses_prefixes=True)) as reusing:
        computed = []
        for prompt, answers in zip(others, expected, strict=True):
            before = reusing.usage().prompt_tokens
            found = reusing.generate([prompt], 2, GREEDY)
            computed.append(reusing.usage().prompt_tokens - before)
            assert token_ids(found) == token_ids(answers)
            assert found[0][0].prompt_tokens == answers[0][0].prompt_tokens
        counted = [reusing.count_tokens(prompt) - 1 for prompt in others]
    assert computed[0] == counted[0]
    assert 0 < computed[1] < 10
    assert computed[2] < 10
    assert computed[3] == counted[3]
    # In one request too, and with more prompts than places.
    with closing(GgufRuntime(tiny_gguf, threads=1, parallel=2, reuses_prefixes=True)) as reusing:
        assert token_ids(reusing.generate(others, 2, GREEDY)) == [token_ids(answers)[0] for answers in expected]
        assert reusing.usage().prompt_tokens < 0.7 * sum(counted)


def test_without_being_asked_every_prompt_is_computed_anew(runtime: GgufRuntime) -> None:
    before = runtime.usage().prompt_tokens
    for _ in range(2):
        runtime.generate([PROMPTS[19][:500]], 3, GREEDY)
    each = runtime.count_tokens(PROMPTS[19][:500]) - 1
    assert runtime.usage().prompt_tokens - before == 2 * each


@pytest.mark.parametrize("name", ["tekken", "deepseek-coder", "viking", "smollm"])
def test_no_run_of_one_kind_of_characters_ends_the_process(tiny_model: Path, tmp_path: Path, name: str) -> None:
    write_gguf(tiny_model, None, "f32", tmp_path / "m.gguf", "m", pre_tokenizer=name)
    with closing(GgufRuntime(tmp_path / "m.gguf", threads=1)) as opened:
        for kind in ("a", "A", " ", "\n", ".", "é", "中", "1"):
            for length in (4096, 1 << 17):
                assert opened.count_tokens(kind * length) > 0  # a child that ends is an error
