"""What llama.cpp keeps of a sequence: its size, and the models that cannot forget the end of one."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the train extra")
pytest.importorskip("llama_cpp", reason="needs the gguf extra")

import llama_cpp
import numpy as np
from gguf_shapes import SHAPES, write_shape
from once import Once
from quick import few

from securecoderl_edge.models.gguf.header import GgufHeader, read_header
from securecoderl_edge.runtimes.gguf import llama
from securecoderl_edge.runtimes.gguf.cache import CacheSize, cache_size
from securecoderl_edge.runtimes.gguf.llama import LlamaContext, LlamaModel
from securecoderl_edge.runtimes.gguf.runtime import GgufRuntime
from securecoderl_edge.runtimes.protocol import Completion, Sampling
from securecoderl_edge.runtimes.room import affordable_sequences

GREEDY = Sampling(temperature=0.0, max_tokens=12)
TEXT = "def add(first, second): return the sum of first and second, of two numbers"
SEQUENCES, LENGTH = 64, 256
# The models whose layers, or some of them, keep a state instead of a cache.
RECURRENT = ["lfm2", "mamba"]


@pytest.fixture(scope="module")
def files(once: Once) -> Path:
    def make(folder: Path) -> None:
        folder.mkdir()
        for name in SHAPES:
            write_shape(folder / f"{name}.gguf", name)

    return once("shapes", make)


@contextmanager
def opened(path: Path, sequences: int = 2, length: int = 256, float32: bool = True) -> Iterator[LlamaContext]:
    model = LlamaModel(path)
    try:
        context = model.open_context(sequences, length, 1, float32)
        yield context
        context.close()
    finally:
        model.close()


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What llama.cpp says, at every level."""
    lines: list[str] = []

    @llama_cpp.llama_log_callback  # type: ignore[untyped-decorator, unused-ignore]
    def collect(_level: int, text: bytes, _data: Any) -> None:
        lines.append(text.decode())

    monkeypatch.setattr(llama, "quiet", lambda: llama_cpp.llama_log_set(collect, ctypes.c_void_p(0)))
    yield lines
    monkeypatch.undo()
    llama.quiet()


def mebibytes(lines: list[str], kind: str) -> float:
    sizes = re.findall(rf"{kind} buffer size =\s+([\d.]+) MiB", "".join(lines))
    return sum(map(float, sizes))


@pytest.mark.parametrize("float32", [True, False])
@pytest.mark.parametrize("name", SHAPES)
def test_the_estimate_is_what_llama_cpp_allocates(files: Path, log: list[str], name: str, float32: bool) -> None:
    estimate = cache_size(read_header(files / f"{name}.gguf"), float32)
    with opened(files / f"{name}.gguf", SEQUENCES, LENGTH, float32):
        pass
    kept, state = mebibytes(log, "KV"), mebibytes(log, "RS")
    assert kept + state > 0
    assert estimate.per_token * SEQUENCES * LENGTH / 2**20 == pytest.approx(kept, abs=0.006)
    assert estimate.per_sequence * SEQUENCES / 2**20 == pytest.approx(state, abs=0.006)


def test_a_head_is_not_taken_for_a_share_of_the_width(files: Path) -> None:
    values = {**read_header(files / "qwen3.gguf").values}
    del values["qwen3.attention.key_length"], values["qwen3.attention.value_length"]
    guessed, known = (
        cache_size(header, True) for header in (GgufHeader(values, (), {}), read_header(files / "qwen3.gguf"))
    )
    assert known.per_token == 2.5 * guessed.per_token


def header_of(**values: Any) -> GgufHeader:
    """A header of the architecture ``x`` with 6 layers of width 64 and 4 heads."""
    facts = {"block_count": 6, "embedding_length": 64, "attention.head_count": 4} | {
        name.replace("__", "."): value for name, value in values.items()
    }
    scalars = {f"x.{name}": value for name, value in facts.items() if not isinstance(value, tuple)}
    lists = {f"x.{name}": value for name, value in facts.items() if isinstance(value, tuple)}
    return GgufHeader({"general.architecture": "x"} | scalars, (), lists)


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (header_of(), CacheSize(2 * 6 * 64 * 2, 0)),
        (header_of(attention__head_count_kv=1), CacheSize(2 * 6 * 16 * 2, 0)),
        (header_of(attention__shared_kv_layers=2), CacheSize(2 * 4 * 64 * 2, 0)),
        (header_of(nextn_predict_layers=1), CacheSize(2 * 5 * 64 * 2, 0)),
        # The keys of three layers are half as wide; the values are padded to the widest.
        (
            header_of(
                attention__key_length_swa=8,
                attention__value_length_swa=8,
                attention__sliding_window_pattern=(True, False) * 3,
            ),
            CacheSize((3 * 32 + 3 * 64 + 6 * 64) * 2, 0),
        ),
        (header_of(attention__key_length_mla=24, attention__head_count_kv=1), CacheSize(6 * 16 * 2, 0)),
        # Every third layer has a cache, the others a state.
        (
            header_of(
                full_attention_interval=3,
                ssm__inner_size=32,
                ssm__state_size=8,
                ssm__conv_kernel=4,
                ssm__group_count=2,
            ),
            CacheSize(2 * 2 * 64 * 2, 4 * (3 * (32 + 2 * 2 * 8) + 8 * 32) * 4),
        ),
        (header_of(attention__head_count=0, wkv__head_size=16), CacheSize(0, 6 * 64 * (2 + 16) * 4)),
        (header_of(block_count="many", attention__head_count="x"), CacheSize(0, 0)),
    ],
)  # fmt: skip
def test_kinds_of_layers_that_llama_cpp_knows_are_counted(header: GgufHeader, expected: CacheSize) -> None:
    assert cache_size(header, float32=False) == expected


def test_a_state_of_fixed_size_counts_once_for_each_sequence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("securecoderl_edge.runtimes.room.available_memory_bytes", lambda: 2 * 1000)
    assert affordable_sequences(64, 10, 5, 50) == 10
    assert affordable_sequences(64, 10, 0, 0) == 64


def feed(context: LlamaContext, tokens: list[int], start: int, sequence: int = 0) -> Any:
    rest = tokens[start:]
    context.decode(rest, list(range(start, len(tokens))), [sequence] * len(rest), logits=True)
    return np.array(context.logits(len(rest))[-1])


@pytest.mark.parametrize("name", ["llama", "gemma3"])
def test_a_cache_is_cut_where_it_is_asked_to(files: Path, name: str) -> None:
    tokens = list(range(60, 100))
    with opened(files / f"{name}.gguf") as context:
        whole = feed(context, tokens, 0)
        assert context.cut(0, 25) == 25
        # 25 is more than the window: its tokens are still there.
        assert feed(context, tokens, 25) == pytest.approx(whole, abs=1e-3)
        assert context.copy(0, 1, 30) == 30
        assert feed(context, tokens, 30, 1) == pytest.approx(whole, abs=1e-3)


@pytest.mark.parametrize("name", RECURRENT)
def test_a_state_that_cannot_be_cut_is_dropped(files: Path, name: str) -> None:
    tokens = list(range(60, 100))
    with opened(files / f"{name}.gguf") as context:
        whole = feed(context, tokens, 0)
        assert context.copy(0, 1, len(tokens)) == len(tokens)
        assert context.copy(0, 1, 30) == 0
        assert context.longest_prefix(tokens, (0, 1)) == (0, len(tokens))
        assert context.cut(0, len(tokens)) == len(tokens)
        assert context.cut(0, 25) == 0
        assert feed(context, tokens, 0) == pytest.approx(whole, abs=1e-3)


def test_a_cache_is_dropped_if_llama_cpp_does_not_cut_it(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    remove: Callable[..., bool] = llama_cpp.llama_memory_seq_rm

    def refuse(memory: Any, sequence: int, start: int, end: int) -> bool:
        return start < 0 and remove(memory, sequence, start, end)

    monkeypatch.setattr(llama_cpp, "llama_memory_seq_rm", refuse)
    with opened(files / "llama.gguf") as context:
        feed(context, list(range(60, 80)), 0)
        assert context.cut(0, 5) == 0
        assert context.longest_prefix(list(range(60, 80)), (0, 1))[1] == 0


def token_ids(rows: list[list[Completion]]) -> list[list[tuple[int, ...]]]:
    return [[completion.token_ids for completion in row] for row in rows]


@pytest.mark.parametrize("name", few([*RECURRENT, "gemma3"], RECURRENT[0], "gemma3"))
def test_samples_are_the_same_however_prompts_share_their_beginning(files: Path, name: str) -> None:
    prompts = [TEXT, TEXT + " and more", TEXT[:40] + "other", TEXT]
    with closing(GgufRuntime(files / f"{name}.gguf", threads=1)) as runtime:
        single = [token_ids(runtime.generate([prompt], 1, GREEDY))[0] for prompt in prompts]
    expected = [[row[0]] * 5 for row in single]
    # Fewer places than samples: one begins while another of its prompt is under way.
    with closing(GgufRuntime(files / f"{name}.gguf", threads=1, parallel=3)) as narrow:
        assert token_ids(narrow.generate(prompts, 5, GREEDY)) == expected
    with closing(GgufRuntime(files / f"{name}.gguf", threads=1, parallel=3, reuses_prefixes=True)) as reusing:
        for prompt, row in zip(prompts, expected, strict=True):
            assert token_ids(reusing.generate([prompt], 5, GREEDY)) == [row]
        assert token_ids(reusing.generate(prompts, 5, GREEDY)) == expected


@pytest.mark.parametrize("name", few(RECURRENT, RECURRENT[-1]))
def test_samples_of_different_lengths_end_and_begin_in_any_order(files: Path, name: str) -> None:
    sampling = Sampling(temperature=1.0, max_tokens=12, stop=tuple("aeiou\n"))
    with closing(GgufRuntime(files / f"{name}.gguf", threads=1, parallel=1)) as alone:
        expected = token_ids(alone.generate([TEXT, "x"], 24, sampling))
    assert len({len(ids) for row in expected for ids in row}) > 3
    with closing(GgufRuntime(files / f"{name}.gguf", threads=1, parallel=4)) as together:
        assert token_ids(together.generate([TEXT, "x"], 24, sampling)) == expected


@pytest.mark.parametrize(("layers", "is_on_gpu"), [(0, False), (2, True)])
def test_the_cache_and_large_products_are_where_the_layers_are(
    files: Path, monkeypatch: pytest.MonkeyPatch, layers: int, is_on_gpu: bool
) -> None:
    asked: list[Any] = []
    initialize: Callable[..., Any] = llama_cpp.llama_init_from_model

    def record(model: Any, parameters: Any) -> Any:
        asked.append(parameters)
        return initialize(model, parameters)

    monkeypatch.setattr(llama_cpp, "llama_init_from_model", record)
    model = LlamaModel(files / "llama.gguf", gpu_layers=layers)
    model.open_context(1, 256, 1, float32_cache=True).close()
    model.close()
    assert [(each.op_offload, each.offload_kqv) for each in asked] == [(is_on_gpu, is_on_gpu)]
