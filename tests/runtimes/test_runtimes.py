"""What is the same in all runtimes: greedy tokens, what is drawn, log-probabilities, where an answer ends."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs the train extra")

from exports import export_gguf, export_onnx
from once import Once
from other_models import build_other

from securecoderl_edge.errors import SceError
from securecoderl_edge.export.verify import PROMPTS
from securecoderl_edge.models import sampling
from securecoderl_edge.models.sizes import CACHE_GROWTH
from securecoderl_edge.prompts.extraction import PromptFacts, is_over
from securecoderl_edge.runtimes import room
from securecoderl_edge.runtimes.hf import HfRuntime
from securecoderl_edge.runtimes.manifests import manifest_path
from securecoderl_edge.runtimes.opening import RuntimeSettings, open_runtime
from securecoderl_edge.runtimes.protocol import Completion, DecodingBatch, DecodingTask, Part, Runtime, Sampling
from securecoderl_edge.runtimes.spec import resolve_model

pytestmark = pytest.mark.usefixtures("known_references")

TWENTY = (*PROMPTS[:19], PROMPTS[19][:700])


@pytest.fixture(scope="module", params=["hf", "gguf", "onnx"])
def runtime(
    request: pytest.FixtureRequest, tiny_model: Path, tiny_adapter: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Runtime]:
    """One model in each runtime."""
    folder = tmp_path_factory.mktemp("exported")
    if request.param == "gguf":
        pytest.importorskip("llama_cpp")
        from securecoderl_edge.export.gguf import write_gguf
        from securecoderl_edge.runtimes.gguf.runtime import GgufRuntime

        write_gguf(tiny_model, tiny_adapter, "f32", folder / "m.gguf", "m")
        opened: Runtime = GgufRuntime(folder / "m.gguf", threads=1)
    elif request.param == "onnx":
        pytest.importorskip("onnxruntime")
        from securecoderl_edge.export.merge import copy_companions
        from securecoderl_edge.export.onnx import write_onnx
        from securecoderl_edge.runtimes.onnx.runtime import OnnxRuntime

        write_onnx(tiny_model, tiny_adapter, "f32", folder)
        copy_companions(tiny_model, folder, None)
        opened = OnnxRuntime(folder, threads=1)
    else:
        from securecoderl_edge.runtimes.hf import HfRuntime

        opened = HfRuntime(str(tiny_model), tiny_adapter, threads=1)
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def first_logits(tiny_model: Path, tiny_adapter: Path) -> Any:
    """Of the token after `PROMPT`, by transformers."""
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(tiny_model), str(tiny_adapter)).eval()
    ids = AutoTokenizer.from_pretrained(tiny_model)(PROMPT, return_tensors="pt").input_ids
    with torch.inference_mode():
        return model(ids).logits[0, -1].double().numpy()


PROMPT = "for i in "
DRAWS = 500


def test_greedy_tokens_and_text_are_the_same_in_all_runtimes(
    runtime: Runtime, tiny_model: Path, tiny_adapter: Path
) -> None:
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(tiny_model), str(tiny_adapter)).eval()
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    answers = runtime.generate(TWENTY, 1, Sampling(0.0, 24))
    assert len(answers) == 20
    for prompt, (answer,) in zip(TWENTY, answers, strict=True):
        ids = tokenizer(prompt, return_tensors="pt").input_ids
        with torch.inference_mode():
            expected = model.generate(input_ids=ids, do_sample=False, max_new_tokens=24)[0, ids.shape[1] :].tolist()
        assert list(answer.token_ids) == expected
        assert answer.text == tokenizer.decode(expected, skip_special_tokens=True)
        assert answer.prompt_tokens == ids.shape[1]


@pytest.mark.parametrize("settings", [{"top_k": 5}, {"top_p": 0.6}, {"min_p": 0.3}, {"top_k": 8, "top_p": 0.7}])
def test_tokens_are_drawn_from_those_that_are_kept_as_often_as_they_are_likely(
    runtime: Runtime, first_logits: Any, settings: dict[str, Any]
) -> None:
    sampling = Sampling(1.3, 1, 3, **settings)
    assert sampling.truncate is not None
    kept = sampling.truncate(first_logits / 1.3)
    expected = np.exp(kept - kept.max())
    expected /= expected.sum()
    assert 1 < np.isfinite(kept).sum() < len(kept) / 4
    drawn = [each.token_ids[0] for each in runtime.generate([PROMPT], DRAWS, sampling)[0]]
    shares = np.bincount(drawn, minlength=len(kept)) / DRAWS
    assert shares[expected == 0].sum() == 0
    # Five standard deviations, and room for the discreteness of small counts.
    assert (abs(shares - expected) < 5 * np.sqrt(expected * (1 - expected) / DRAWS) + 3 / DRAWS).all()


def test_every_runtime_takes_the_same_random_numbers(runtime: Runtime, tiny_model: Path, tiny_adapter: Path) -> None:
    # A quantized file must differ from its source by its probabilities, not by luck.
    sampling = Sampling(temperature=1.0, max_tokens=24, seed=7)
    reference = HfRuntime(str(tiny_model), tiny_adapter, threads=1)
    wanted, found = (
        [done.token_ids for group in each.generate(TWENTY, 2, sampling) for done in group]
        for each in (reference, runtime)
    )
    reference.close()
    assert len(set(wanted)) == len(wanted), "samples must differ"
    # Rounding moves a boundary between two tokens now and then.
    assert sum(one == other for one, other in zip(wanted, found, strict=True)) >= 0.9 * len(wanted)


@pytest.mark.parametrize(
    "settings", [{"temperature": 1e-45}, {"temperature": 5e-324}, {"temperature": 0.7, "top_p": 1e-50}]
)
def test_settings_that_leave_one_token_are_greedy(runtime: Runtime, settings: dict[str, float]) -> None:
    expected = runtime.generate([PROMPT], 2, Sampling(0.0, 12))
    found = runtime.generate([PROMPT], 2, Sampling(**settings, max_tokens=12))
    assert [each.token_ids for each in found[0]] == [each.token_ids for each in expected[0]]


def test_a_part_of_a_request_has_the_samples_that_the_whole_has_and_tells_each_that_ends(runtime: Runtime) -> None:
    """An interrupted evaluation continues so."""
    sampling, prompts = Sampling(temperature=1.0, max_tokens=8, seed=3), TWENTY[:4]
    whole = runtime.generate(prompts, 3, sampling)
    skip = {(0, 0), (0, 2), (2, 0), (2, 1), (2, 2), (3, 1)}
    told: dict[tuple[int, int], Completion] = {}

    def note(prompt: int, sample: int, completion: Completion) -> None:
        told[prompt, sample] = completion

    order = [3, 0, 2, 1]
    part = Part([(3, number) for number in order], {(order.index(prompt), sample) for prompt, sample in skip}, note)
    found = runtime.generate([prompts[number] for number in order], 3, sampling, part=part)
    kept = [[sample for sample in range(3) if (number, sample) not in skip] for number in order]
    assert [[each.token_ids for each in row] for row in found] == [
        [whole[number][sample].token_ids for sample in samples] for number, samples in zip(order, kept, strict=True)
    ]
    assert {key: each.token_ids for key, each in told.items()} == {
        (at, sample): found[at][row].token_ids for at, samples in enumerate(kept) for row, sample in enumerate(samples)
    }


def test_log_probabilities_are_those_of_the_whole_distribution(runtime: Runtime, first_logits: Any) -> None:
    (answer,) = runtime.generate([PROMPT], 1, Sampling(1.0, 1, top_k=2))[0]
    whole = first_logits - first_logits.max()
    expected = whole[answer.token_ids[0]] - np.log(np.exp(whole).sum())
    assert answer.logprobs[0] == pytest.approx(expected, abs=1e-3)


def test_an_answer_ends_before_a_stop_string_and_is_the_same_up_to_there(runtime: Runtime) -> None:
    pieces: dict[tuple[int, int], str] = {}

    def collect(prompt: int, sample: int, text: str) -> None:
        pieces[prompt, sample] = pieces.get((prompt, sample), "") + text

    free = runtime.generate([PROMPT, "x = "], 4, Sampling(1.0, 40))
    # A text that some samples have and others do not.
    texts = [answer.text for row in free for answer in row]
    stop = next(
        text[3:6] for text in texts if len(text) > 6 and 0 < sum(text[3:6] in other for other in texts) < len(texts)
    )
    stopped = runtime.generate([PROMPT, "x = "], 4, Sampling(1.0, 40, stop=(stop, "never there")), collect)
    for prompt, (left, right) in enumerate(zip(free, stopped, strict=True)):
        for sample, (whole, cut) in enumerate(zip(left, right, strict=True)):
            assert cut.text == whole.text.split(stop)[0]
            assert cut.token_ids == whole.token_ids[: len(cut.token_ids)]
            assert cut.finish == ("stop" if stop in whole.text else whole.finish)
            assert pieces.get((prompt, sample), "") == cut.text


def test_an_answer_ends_with_the_line_after_its_program(runtime: Runtime) -> None:
    facts = PromptFacts("code", "call", "def double(n):")
    sampling = Sampling(1.2, 60)
    free = runtime.generate(["def double(n):\n"], 120, sampling)[0]
    stopped = runtime.generate(["def double(n):\n"], 120, sampling, facts=[facts])[0]
    for whole, cut in zip(free, stopped, strict=True):
        assert whole.text.startswith(cut.text)
        assert cut.token_ids == whole.token_ids[: len(cut.token_ids)]
        lines = [end + 1 for end, character in enumerate(cut.text) if character == "\n"]
        ended = [is_over(cut.text[:end], facts) for end in lines]
        assert not any(ended[:-1])
        if len(cut.token_ids) < len(whole.token_ids):
            assert ended[-1]
            assert cut.finish == "stop"
    assert sum(len(cut.token_ids) for cut in stopped) < sum(len(whole.token_ids) for whole in free)


@pytest.mark.parametrize("kind", ["gguf", "onnx"])
def test_a_file_with_a_flipped_bit_is_not_opened(tiny_model: Path, tmp_path: Path, kind: str) -> None:
    pytest.importorskip("llama_cpp")
    pytest.importorskip("onnxruntime")
    out = tmp_path / ("m.gguf" if kind == "gguf" else "m")
    if kind == "gguf":
        export_gguf(tiny_model, None, "q8_0", out, force=False)
    else:
        export_onnx(tiny_model, None, "int8", out, force=False)
    spec = resolve_model(str(out))
    assert 8 < (spec.bits_per_weight() or 0) < 10
    open_runtime(spec, RuntimeSettings("cpu", threads=1)).close()
    weights = out if kind == "gguf" else out / "model.onnx.data"
    content = bytearray(weights.read_bytes())
    content[-100] ^= 4
    weights.write_bytes(content)
    with pytest.raises(SceError, match="has changed since its export"):
        open_runtime(spec, RuntimeSettings("cpu", threads=1))
    manifest_path(out).write_text("{")
    with pytest.raises(SceError, match="not valid JSON"):
        open_runtime(spec, RuntimeSettings("cpu", threads=1))
    for manifest in ("{}", '{"files": {}}', '{"sha256": 5, "files": 5}', '{"sha256": true, "files": {"..": "0"}}'):
        manifest_path(out).write_text(manifest)
        with pytest.raises(SceError, match="the list of exported files is missing"):
            open_runtime(spec, RuntimeSettings("cpu", threads=1))
    for bits in ("NaN", "1e999", "1" + 400 * "0", "true", "-1", '"x"', "null"):
        manifest_path(out).write_text(f'{{"bits_per_weight": {bits}}}')
        assert spec.bits_per_weight() is None
    manifest_path(out).unlink()
    open_runtime(spec, RuntimeSettings("cpu", threads=1)).close()  # without a manifest nobody can tell


def test_a_cache_that_memory_has_no_room_for_is_refused_before_it_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "available_memory_bytes", lambda: 2 * 100_000)
    assert [room.affordable_sequences(wanted, 100, 10) for wanted in (1, 50, 100, 500)] == [1, 50, 100, 100]
    assert room.affordable_sequences(8, 1000, 100) == 1
    with pytest.raises(SceError, match="a context of 1001 tokens needs 0 MiB;"):
        room.affordable_sequences(8, 1001, 100)


def test_a_runtime_decodes_fewer_at_once_where_memory_is_short(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    if runtime.name.endswith(".gguf"):
        pytest.skip("its memory is that of another process")
    expected = runtime.generate(TWENTY[:3], 2, Sampling(0.0, 8))
    drawn = runtime.generate(TWENTY[:1], 5, Sampling(1.0, 8))
    with monkeypatch.context() as patch:
        patch.setattr(f"{type(runtime).__module__}.affordable_sequences", lambda *_: 2)
        together = []
        if isinstance(runtime, HfRuntime):
            sample = sampling.sample
            patch.setattr(sampling, "sample", lambda *args: together.append(args[4]) or sample(*args))
        # Five samples of one prompt, two at a time: the same ones.
        again = runtime.generate(TWENTY[:1], 5, Sampling(1.0, 8))
        assert [each.token_ids for each in again[0]] == [each.token_ids for each in drawn[0]]
        assert together in ([], [2])
    monkeypatch.setattr(room, "available_memory_bytes", lambda: 3_000_000)
    assert [[each.token_ids for each in row] for row in runtime.generate(TWENTY[:3], 2, Sampling(0.0, 8))] == [
        [each.token_ids for each in row] for row in expected
    ]
    monkeypatch.setattr(room, "available_memory_bytes", lambda: 1000)
    with pytest.raises(SceError, match="not enough free memory"):
        runtime.generate(TWENTY[:3], 2, Sampling(0.0, 8))


def decode_all(
    batch: DecodingBatch, tasks: list[DecodingTask], at_a_time: int = 1
) -> tuple[dict[int, Completion], dict[int, str]]:
    """Completions and streamed texts of tasks that join whenever rows are free, ``at_a_time`` per step."""
    waiting, running = list(tasks), 0
    found: dict[int, Completion] = {}
    texts: defaultdict[int, str] = defaultdict(str)
    while waiting or len(found) < len(tasks):
        count = min(at_a_time, batch.rows - running, len(waiting))
        batch.add(waiting[:count])
        waiting, running = waiting[count:], running + count
        for progress in batch.step():
            texts[progress.key] += progress.text
            if progress.completion is not None:
                found[progress.key], running = progress.completion, running - 1
    return found, texts


VARIED = (
    Sampling(0.0, 12),
    Sampling(1.0, 30, seed=7),
    Sampling(0.8, 5, seed=1, top_k=20),
    Sampling(1.2, 40, seed=3, top_p=0.8, stop=("e",)),
    Sampling(0.7, 21, seed=9, min_p=0.05),
)


@pytest.mark.parametrize("at_a_time", [1, 3])
def test_tasks_of_an_open_batch_have_the_tokens_that_each_has_alone(runtime: Runtime, at_a_time: int) -> None:
    tasks = [
        DecodingTask(10 * number + sample, prompt, sampling, sample)
        for number, (prompt, sampling) in enumerate(zip(PROMPTS[:5], VARIED, strict=True))
        for sample in range(2)
    ]
    alone = {
        10 * number + sample: completion
        for number, (prompt, sampling) in enumerate(zip(PROMPTS[:5], VARIED, strict=True))
        for sample, completion in enumerate(runtime.generate([prompt], 2, sampling)[0])
    }
    with contextlib.closing(runtime.open_batch(4, 400)) as batch:
        assert batch.rows == 4
        found, texts = decode_all(batch, tasks, at_a_time)
    for key, completion in alone.items():
        assert (key, found[key].text, found[key].token_ids) == (key, completion.text, completion.token_ids)
        assert (found[key].finish, found[key].prompt_tokens) == (completion.finish, completion.prompt_tokens)
        assert found[key].logprobs == pytest.approx(completion.logprobs, abs=1e-3)
        assert len(found[key].token_seconds) == len(completion.token_ids)
        assert texts[key] == completion.text


def test_a_dropped_task_frees_its_row_and_leaves_the_others_as_they_are(runtime: Runtime) -> None:
    greedy = Sampling(0.0, 25)
    expected = runtime.generate(PROMPTS[:4], 1, greedy)
    with contextlib.closing(runtime.open_batch(3, 300)) as batch:
        batch.add([DecodingTask(key, PROMPTS[key], greedy) for key in (0, 1, 2)])
        batch.step()
        batch.drop([0, 2, 99])
        batch.step()
        found, _ = decode_all(batch, [DecodingTask(3, PROMPTS[3], greedy), DecodingTask(4, PROMPTS[0], greedy)])
        while len(found) < 3:
            found |= {each.key: each.completion for each in batch.step() if each.completion is not None}
        assert batch.step() == []
    assert sorted(found) == [1, 3, 4]
    assert [found[key].token_ids for key in (1, 3, 4)] == [expected[place][0].token_ids for place in (1, 3, 0)]


def test_a_task_of_an_open_batch_ends_with_the_program_that_its_prompt_requests(runtime: Runtime) -> None:
    everything = PromptFacts(echoes=())
    alone = runtime.generate([PROMPTS[0]], 1, Sampling(1.0, 60, seed=4), facts=[everything])[0][0]
    with contextlib.closing(runtime.open_batch(2, 300)) as batch:
        found, _ = decode_all(batch, [DecodingTask(0, PROMPTS[0], Sampling(1.0, 60, seed=4), facts=everything)])
        with pytest.raises(SceError, match="Unicode"):
            batch.add([DecodingTask(1, "\ud800", Sampling())])
        assert batch.step() == []
    assert found[0].token_ids == alone.token_ids


def test_a_model_that_only_transformers_computes_cannot_be_served(once: Once) -> None:
    folder = once("other-GPT-2", lambda made: build_other(made, "GPT-2"))
    with contextlib.closing(HfRuntime(str(folder), threads=1)) as opened, pytest.raises(SceError, match="GGUF file"):
        opened.open_batch(2, 100)


def test_the_cache_of_a_batch_that_never_empties_does_not_grow(tiny_model: Path) -> None:
    with contextlib.closing(HfRuntime(str(tiny_model), threads=1)) as opened:
        batch = opened.open_batch(3, 200)
        widths, running, begun = [], 0, 0
        while begun < 60:
            if running < 3:
                batch.add([DecodingTask(begun, PROMPTS[begun % 5], Sampling(1.0, 20 + begun % 7, seed=begun))])
                running, begun = running + 1, begun + 1
            running -= sum(progress.completion is not None for progress in batch.step())
            widths.append(batch._batch._bias.shape[1])
        assert max(widths[len(widths) // 2 :]) <= max(widths[: len(widths) // 2]) + CACHE_GROWTH
        assert max(widths) < 200 + 2 * CACHE_GROWTH
