"""Which row of a batch a prompt gets, and what stays cached for the next one."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

pytest.importorskip("torch", reason="needs the train extra")
pytest.importorskip("llama_cpp", reason="needs the gguf extra")

from gguf_shapes import write_shape
from once import Once
from quick import few

from securecoderl_edge.runtimes.extras import NO_EXTRAS, Extras
from securecoderl_edge.runtimes.gguf.batching import BatchDecoder, GgufTask
from securecoderl_edge.runtimes.gguf.llama import LlamaContext, LlamaModel
from securecoderl_edge.runtimes.gguf.rows import LEAST_PREFIX, Rows
from securecoderl_edge.runtimes.protocol import Sampling

EDITOR = Extras(reuses_prefix=True)
GREEDY = Sampling(temperature=0.0, max_tokens=6)
MODELS = ("llama", "gemma3")


def common(first: Sequence[int], second: Sequence[int]) -> int:
    pairs = enumerate(zip(first, second, strict=False))
    return next((at for at, (one, other) in pairs if one != other), min(len(first), len(second)))


class PretendContext:
    """The part of a context that rows use, with texts instead of caches."""

    def __init__(self, sequences: int) -> None:
        self.sequences = sequences
        self.texts: list[list[int]] = [[] for _ in range(sequences)]
        self.copies = 0

    def held(self, sequence: int) -> int:
        return len(self.texts[sequence])

    def copy(self, source: int, target: int, length: int) -> int:
        assert source != target
        self.copies += 1
        self.texts[target] = self.texts[source][:length]
        return len(self.texts[target])

    def longest_prefix(self, tokens: Sequence[int], order: Sequence[int]) -> tuple[int, int]:
        best = max(order, key=lambda each: common(self.texts[each], tokens))
        return best, common(self.texts[best], tokens)


def texts_of(chance: random.Random) -> Iterator[list[int]]:
    """Texts that begin alike, go on differently, and are edited."""
    heads = [[chance.randrange(9) for _ in range(chance.choice((0, 20, 200)))] for _ in range(3)]
    texts = [chance.choice(heads) + [chance.randrange(9) for _ in range(chance.choice((1, 30, 300)))] for _ in range(5)]
    while True:
        number = chance.randrange(len(texts))
        kept = chance.randrange(len(texts[number]) + 1)
        texts[number] = [*texts[number][:kept], *(chance.randrange(9) for _ in range(chance.choice((1, 5, 80))))]
        yield texts[number]


@pytest.mark.parametrize("seed", range(20))
def test_a_prompt_begins_with_the_longest_cached_prefix_and_busy_rows_keep_their_own(seed: int) -> None:
    chance = random.Random(seed)
    context = PretendContext(chance.choice((1, 2, 3, 5, 9)))
    rows = Rows(cast(LlamaContext, context))
    texts, busy = texts_of(chance), dict[int, list[int]]()
    for _ in range(300):
        if rows.free and chance.random() < 0.55:
            text = next(texts)
            free = [context.texts[row] for row in range(context.sequences) if row not in busy]
            longest = max(common(each, text) for each in free)
            source, length = rows.longest_prefix(text)
            assert length >= longest or (length == 0 and longest < LEAST_PREFIX)
            row = rows.take(source, length)
            assert row not in busy
            assert source is None or context.texts[source][:length] == text[:length]
            context.texts[row] = busy[row] = text
        elif busy:
            row = chance.choice(list(busy))
            del busy[row]
            rows.release(row, keeps=chance.random() < 0.5)
        if chance.random() < 0.7:
            for old, new in rows.close_gaps():
                busy[new] = busy.pop(old)
            assert not busy or max(busy) - min(busy) == len(busy) - 1
        assert rows.free == context.sequences - len(busy)
        assert all(context.texts[row] == text for row, text in busy.items())


@pytest.mark.parametrize("seed", range(20))
def test_kept_caches_outlive_any_number_of_other_requests(seed: int) -> None:
    chance = random.Random(seed)
    editors, others = chance.randint(1, 4), chance.randint(0, 6)
    context = PretendContext(editors + others + 2)
    rows = Rows(cast(LlamaContext, context))
    # Every editor has a text of its own, from the first token on.
    latest = {editor: [editor] * 40 for editor in range(editors)}
    busy: dict[int, int | None] = {}  # the editor of each row
    for editor, text in latest.items():
        row = rows.take()
        context.texts[row], busy[row] = text, editor
    for _ in range(400):
        waiting = [editor for editor in latest if editor not in busy.values()]
        if waiting and chance.random() < 0.3:
            editor = chance.choice(waiting)
            text = latest[editor] = latest[editor][: chance.randint(30, 60)] + [editor] * chance.randint(1, 9)
            source, length = rows.longest_prefix(text)
            assert source is not None
            assert common(context.texts[source], text) == length >= 30
            row = rows.take(source, length)
            context.texts[row], busy[row] = list(text), editor
        elif list(busy.values()).count(None) < others and chance.random() < 0.5:
            row = rows.take()
            context.texts[row], busy[row] = [99] * 50, None
        elif busy:
            row = chance.choice(list(busy))
            rows.release(row, keeps=busy.pop(row) is not None)
        for old, new in rows.close_gaps():
            busy[new] = busy.pop(old)
        assert all(text in context.texts for text in latest.values())


def test_of_caches_that_no_row_is_left_for_the_least_recently_used_one_goes() -> None:
    context = PretendContext(3)
    rows = Rows(cast(LlamaContext, context))
    for editor in (1, 2, 3, 1, 4):
        source, length = rows.longest_prefix([editor] * 20)
        row = rows.take(source, length)
        context.texts[row] = [editor] * 20
        rows.release(row, keeps=True)
    assert sorted(context.texts) == [[1] * 20, [3] * 20, [4] * 20]


def test_prompts_get_rows_next_to_busy_ones_so_that_nothing_has_to_be_moved() -> None:
    context = PretendContext(8)
    rows = Rows(cast(LlamaContext, context))
    for editor in (1, 2, 3):
        context.texts[rows.take()] = [editor] * 20
    for row in range(3):
        rows.release(row, keeps=True)
    source, length = rows.longest_prefix([3] * 30)
    context.copies = 0
    assert [rows.take(source, length), *(rows.take() for _ in range(3))] == [2, 3, 4, 5]
    assert (rows.close_gaps(), context.copies) == ([], 0)


def test_a_short_common_head_costs_a_long_cache_nothing() -> None:
    context = PretendContext(2)
    rows = Rows(cast(LlamaContext, context))
    context.texts[rows.take()] = [1] * 20 + [2] * 1000
    rows.release(0, keeps=True)
    source, length = rows.longest_prefix([1] * 20 + [3] * 50)
    assert (source, length, rows.take(source, length)) == (0, 20, 1)
    # An edit of the long one takes its place.
    source, length = rows.longest_prefix([1] * 20 + [2] * 500 + [3] * 50)
    assert (source, length, rows.take(source, length)) == (0, 520, 0)


@pytest.fixture(scope="module")
def files(once: Once) -> Path:
    def make(folder: Path) -> None:
        folder.mkdir()
        for name in (*MODELS, "lfm2"):
            write_shape(folder / f"{name}.gguf", name)

    return once("shapes-of-rows", make)


def decode_alone(decoder: BatchDecoder, task: GgufTask) -> tuple[int, ...]:
    decoder.add([task])
    while True:
        for progress in decoder.step():
            if progress.completion is not None:
                return progress.completion.token_ids


def fresh(task: GgufTask) -> GgufTask:
    """The same task, which takes no cache."""
    return replace(task, extras=NO_EXTRAS)


def random_tasks(chance: random.Random) -> Iterator[list[GgufTask]]:
    """Requests of two editors, of chats that ask for no cache, and of several samples."""
    texts = [[chance.randrange(60, 100) for _ in range(60)] for _ in range(2)]
    key = 0
    while True:
        if chance.random() < 0.6:
            editor = chance.randrange(2)
            text = texts[editor]
            place = chance.randint(len(text) - 10, len(text))
            texts[editor] = [*text[:place], *(chance.randrange(60, 100) for _ in range(chance.randint(1, 8)))][:120]
            prompt, extras = texts[editor], EDITOR
        else:
            prompt, extras = [chance.randrange(60, 100) for _ in range(chance.randint(2, 80))], NO_EXTRAS
        n = chance.choice((1, 1, 1, 2, 3))
        yield [GgufTask(key + each, prompt, GREEDY, (1, 0, each), None, extras) for each in range(n)]
        key += n


@pytest.mark.parametrize("portion", [None, 16])
@pytest.mark.parametrize(("name", "seed"), [(name, seed) for name in (*MODELS, "lfm2") for seed in range(2)])
def test_answers_are_those_of_a_fresh_decoder_whatever_came_before(
    files: Path, name: str, seed: int, portion: int | None
) -> None:
    chance = random.Random(seed)
    model = LlamaModel(files / f"{name}.gguf")
    context = model.open_context(4, 256, 1, float32_cache=True)
    alone = model.open_context(1, 256, 1, float32_cache=True)
    decoder = BatchDecoder(model, context, portion=portion)
    requests, running, done = random_tasks(chance), dict[Any, GgufTask](), 0
    try:
        for _ in range(300):
            if chance.random() < 0.3:
                tasks = next(requests)
                if len(tasks) <= context.sequences - len(running):
                    decoder.add(tasks)
                    running |= {task.key: task for task in tasks}
            if running and chance.random() < 0.05:
                key = chance.choice(list(running))
                decoder.drop({key})
                del running[key]
            for progress in decoder.step():
                if progress.completion is not None:
                    task = running.pop(progress.key)
                    assert progress.completion.token_ids == decode_alone(BatchDecoder(model, alone), fresh(task))
                    done += 1
        assert done > 40
    finally:
        context.close()
        alone.close()
        model.close()


@pytest.mark.parametrize("name", few(MODELS, MODELS[0]))
def test_an_editor_keeps_its_cache_beside_chats(files: Path, name: str) -> None:
    chance = random.Random(7)
    model = LlamaModel(files / f"{name}.gguf")
    context = model.open_context(5, 256, 1, float32_cache=True)
    decoder = BatchDecoder(model, context, portion=128)
    text = [chance.randrange(60, 100) for _ in range(100)]
    key = 0
    try:
        for number in range(30):
            chats = []
            for _ in range(chance.randrange(3)):
                key += 1
                prompt = [chance.randrange(60, 100) for _ in range(40)]
                chats.append(GgufTask(key, prompt, Sampling(0.0, chance.randint(2, 9)), (1, 0, 0)))
            decoder.add(chats)
            decoder.step()
            before, key = decoder.spent.prompt_tokens, key + 1
            decode_alone(decoder, GgufTask(key, text, GREEDY, (1, 0, 0), None, EDITOR))
            # The last token is decoded by the first step.
            assert decoder.spent.prompt_tokens - before <= (len(text) - 1 if number == 0 else 1)
            text = [*text[:-1], *(chance.randrange(60, 100) for _ in range(2))]
            while decoder.step():
                pass
    finally:
        context.close()
        model.close()


@pytest.mark.parametrize("leaves", [False, True])
def test_prompts_that_arrive_together_compute_what_they_share_once(files: Path, leaves: bool) -> None:
    model = LlamaModel(files / "llama.gguf")
    context = model.open_context(6, 256, 1, float32_cache=True)
    decoder = BatchDecoder(model, context, portion=16)
    heads = [[60 + at % 40 for at in range(start, start + 150)] for start in (0, 7)]
    prompts = [[*heads[number % 2], 60 + number, 99] for number in range(6)]
    running = set(range(6))
    try:
        decoder.add([GgufTask(key, prompts[key], GREEDY, (1, 0, 0), None, EDITOR) for key in running])
        for _ in range(200):
            if leaves and decoder.spent.prompt_tokens > 100:  # the first one, which the others wait for
                decoder.drop({0})
                running.discard(0)
            running -= {progress.key for progress in decoder.step() if progress.completion is not None}
        assert not running
        assert decoder.spent.prompt_tokens <= 2 * 150 + 6 * (LEAST_PREFIX + 1)
    finally:
        context.close()
        model.close()


@pytest.mark.parametrize("longs", [1, 2])
def test_long_prompts_are_computed_though_short_ones_keep_coming(files: Path, longs: int) -> None:
    model = LlamaModel(files / "llama.gguf")
    context = model.open_context(6, 512, 1, float32_cache=True)
    decoder = BatchDecoder(model, context, portion=16)
    keys, begun = itertools.count(), 0
    waiting = {("long", number) for number in range(longs)}

    def task(key: Any, size: int) -> GgufTask:
        return GgufTask(key, [60 + (begun + at) % 40 for at in range(size)], Sampling(0.0, 1), (1, 0, 0))

    def ask_briefly() -> None:
        nonlocal begun
        begun += 1
        decoder.add([task(next(keys), 30)])

    try:
        decoder.add([task(key, 400 + key[1]) for key in sorted(waiting)])
        for _ in range(4):
            ask_briefly()
        # Each step gives half of its 16 tokens to the prompt that has waited longest, whatever else there is.
        for _ in range(longs * 400 // 8 + 60):
            for progress in decoder.step():
                if progress.completion is not None and progress.key in waiting:
                    waiting.remove(progress.key)
                elif progress.completion is not None:
                    ask_briefly()
        assert not waiting
        assert begun > longs * 400 * 7 // 8 // 30  # the short ones got the other half meanwhile
    finally:
        context.close()
        model.close()
