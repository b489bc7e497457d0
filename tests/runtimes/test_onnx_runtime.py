"""Sampling from ONNX folders: rows of a batch, samples, pieces, prompts that cannot be."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs the train extra")
pytest.importorskip("onnx", reason="needs the onnx extra")
pytest.importorskip("onnxruntime", reason="needs the onnx extra")

from onnx_sources import Sources

from securecoderl_edge.errors import SceError
from securecoderl_edge.export.verify import PROMPTS
from securecoderl_edge.runtimes.onnx.model import OnnxModel, OnnxSequences
from securecoderl_edge.runtimes.onnx.runtime import OnnxRuntime
from securecoderl_edge.runtimes.opening import RuntimeSettings, open_runtime
from securecoderl_edge.runtimes.protocol import Sampling
from securecoderl_edge.runtimes.spec import resolve_model


def test_rows_of_a_batch_are_those_of_single_runs(sources: Sources, tmp_path: Path) -> None:
    model = OnnxModel(sources("linear").write(tmp_path / "m"), 1)
    rng = np.random.default_rng(0)
    prompts = [rng.integers(2, 400, size).tolist() for size in (5, 17, 1, 30)]
    batch = model.open_sequences(4, 64)
    together = batch.prefill(prompts)
    singles = [model.open_sequences(1, 64) for _ in prompts]
    alone = [single.prefill([prompt])[0] for single, prompt in zip(singles, prompts, strict=True)]
    for first, second in zip(together, alone, strict=True):
        np.testing.assert_allclose(first, second, atol=1e-4)
    tokens = [int(logits[-1].argmax()) for logits in together]
    for _ in range(12):
        logits = batch.step(tokens)
        for row, single in enumerate(singles):
            np.testing.assert_allclose(single.step([tokens[row]])[0], logits[row], atol=1e-4)
        tokens = [int(row.argmax()) for row in logits]


def test_chosen_rows_go_on_as_they_were(sources: Sources, tmp_path: Path) -> None:
    model = OnnxModel(sources("tied").write(tmp_path / "m"), 1)
    batch = model.open_sequences(3, 20)
    batch.prefill([[5, 6, 7], [8], [9, 10, 11, 12]])
    chosen = batch.choose([2, 0, 2], 30)
    before = batch.step([20, 21, 22])
    after = chosen.step([22, 20, 22])
    np.testing.assert_allclose(after, before[[2, 0, 2]], atol=1e-5)


@pytest.mark.parametrize(
    "misuse",
    [
        lambda model: model.open_sequences(0, 5),
        lambda model: model.open_sequences(1, 5).prefill([[]]),
        lambda model: model.open_sequences(1, 5).prefill([[1], [2]]),
        lambda model: model.open_sequences(1, 2).prefill([[1, 2, 3]]),
        lambda model: model.open_sequences(1, 5).prefill([[-1]]),
        lambda model: model.open_sequences(1, 5).prefill([[10**6]]),
        lambda model: model.open_sequences(1, 5).step([1]),
    ],
)
def test_what_would_kill_the_process_or_give_wrong_rows_is_refused(
    sources: Sources, tmp_path: Path, misuse: Callable[[OnnxModel], object]
) -> None:
    model = OnnxModel(sources("tied").write(tmp_path / "m"), 1)
    with pytest.raises(ValueError):  # noqa: PT011 - each has words of its own
        misuse(model)


# Files


@pytest.fixture(scope="module")
def runtime(sources: Sources) -> Iterator[OnnxRuntime]:
    with tempfile.TemporaryDirectory() as folder:
        yield OnnxRuntime(sources("linear").write(Path(folder) / "m"), threads=1, parallel=5)


def test_samples_depend_on_the_seed_and_not_on_the_width_of_the_batch(
    sources: Sources, runtime: OnnxRuntime, tmp_path: Path
) -> None:
    wide = OnnxRuntime(sources("linear").write(tmp_path / "m"), threads=1, parallel=64)

    def ids(which: OnnxRuntime, seed: int) -> list[list[tuple[int, ...]]]:
        return [[each.token_ids for each in row] for row in which.generate(PROMPTS[:3], 4, Sampling(1.0, 12, seed))]

    assert ids(runtime, 1) == ids(wide, 1)
    assert ids(runtime, 1) != ids(runtime, 2)
    assert len({token_ids for row in ids(runtime, 1) for token_ids in row}) > 6


def test_no_more_prompts_are_computed_together_than_their_logits_fit_into_memory(
    runtime: OnnxRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts = [PROMPTS[0], *PROMPTS[4:7]]
    free = list[int]()
    rows, prefill = list[int](), OnnxSequences.prefill

    def counted(batch: OnnxSequences, given: Sequence[Sequence[int]]) -> list[Any]:
        rows.append(len(given))
        return prefill(batch, given)

    monkeypatch.setattr(OnnxSequences, "prefill", counted)
    longest = max(map(runtime.count_tokens, prompts))
    logits = 2 * 4 * longest * runtime._model.vocabulary_size
    monkeypatch.setattr("securecoderl_edge.runtimes.room.available_memory_bytes", lambda: free[-1])
    answers = []
    for fitting in (4, 2):
        free.append(2 * fitting * logits)  # half of it is for logits
        answers.append([row[0].token_ids for row in runtime.generate(prompts, 1, Sampling(0.0, 4))])
    assert answers[0] == answers[1]
    assert rows == [4, 2, 2]
    free.append(logits)
    with pytest.raises(SceError, match="not enough free memory"):
        runtime.generate(prompts, 1, Sampling(0.0, 4))


def test_pieces_add_up_to_the_text_and_usage_to_the_tokens(runtime: OnnxRuntime) -> None:
    before, pieces = runtime.usage(), dict[tuple[int, int], str]()

    def add(prompt: int, sample: int, text: str) -> None:
        pieces[prompt, sample] = pieces.get((prompt, sample), "") + text

    answers = runtime.generate(PROMPTS[4:6], 3, Sampling(1.0, 16), add)
    for prompt, row in enumerate(answers):
        for sample, completion in enumerate(row):
            assert completion.text.startswith(pieces.get((prompt, sample), "").rstrip("�"))
    after = runtime.usage()
    assert after.decode_tokens - before.decode_tokens == sum(len(each.token_ids) for row in answers for each in row)
    # Each prompt once for all of its samples, but for groups of five.
    assert after.prompt_tokens - before.prompt_tokens < 3 * sum(row[0].prompt_tokens for row in answers)


def test_prompts_that_cannot_be_are_sentences(runtime: OnnxRuntime) -> None:
    for prompt, words in (("", "empty"), ("x " * 3000, "exceed the context"), ("\ud800", "not valid Unicode")):
        with pytest.raises(SceError, match=words):
            runtime.generate([prompt], 1, Sampling(0.0, 4))


def test_an_onnx_folder_is_a_model_by_name(sources: Sources, tmp_path: Path) -> None:
    folder = sources("tied").write(tmp_path / "mine-onnx-f32")
    spec = resolve_model(str(folder))
    assert (spec.label, spec.kind, spec.prompt_style) == ("mine-onnx-f32", "onnx", "stdin")
    assert (spec.file_bytes() or 0) > (folder / "model.onnx.data").stat().st_size
    runtime = open_runtime(spec, RuntimeSettings("cpu", threads=1))
    assert (runtime.prompt_style, runtime.context) == ("stdin", 1024)
    assert runtime.count_tokens("print(1)") == runtime.generate(["print(1)"], 1, Sampling(0.0, 1))[0][0].prompt_tokens
    shutil.rmtree(folder)
