"""What a batch of a GGUF file does beyond sampling: token ids, penalties, reports, grammars, reused prefixes."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

pytest.importorskip("llama_cpp", reason="needs the gguf extra")

from securecoderl_edge.runtimes.extras import NO_EXTRAS, Extras, Prompt
from securecoderl_edge.runtimes.gguf.batching import PROMPT_TOKENS, BatchDecoder, GgufTask
from securecoderl_edge.runtimes.gguf.grammar import Constraint
from securecoderl_edge.runtimes.gguf.llama import LlamaModel
from securecoderl_edge.runtimes.gguf.runtime import GgufRuntime
from securecoderl_edge.runtimes.protocol import Completion, DecodingTask, Sampling
from securecoderl_edge.serving.json_grammar import json_grammar, literal
from securecoderl_edge.text import SEAM, with_seams

PROMPT = "def add(a, b):\n"
GREEDY = Sampling(0.0, 12)


@pytest.fixture(scope="module")
def runtime(tiny_gguf: Path) -> Iterator[GgufRuntime]:
    runtime = GgufRuntime(tiny_gguf, threads=1, parallel=4)
    yield runtime
    runtime.close()


def decode(runtime: GgufRuntime, *tasks: tuple[Prompt, Sampling, Extras]) -> list[Completion]:
    batch = runtime.open_batch(4, 128)
    batch.add(
        [DecodingTask(key, prompt, sampling, 0, None, extras) for key, (prompt, sampling, extras) in enumerate(tasks)]
    )
    done: dict[int, Completion] = {}
    while len(done) < len(tasks):
        done |= {each.key: each.completion for each in batch.step() if each.completion is not None}
    return [done[key] for key in range(len(tasks))]


def test_a_prompt_may_be_the_tokens_of_its_text(runtime: GgufRuntime) -> None:
    tokens = tuple(runtime.encode(PROMPT))
    assert runtime.decode(tokens) == PROMPT
    text, ids = decode(runtime, (PROMPT, GREEDY, NO_EXTRAS), (tokens, GREEDY, NO_EXTRAS))
    assert text.token_ids == ids.token_ids


def test_names_of_special_tokens_in_a_text_are_only_text(runtime: GgufRuntime) -> None:
    end = next(token for token in range(runtime.abilities.vocabulary) if runtime.decode([token]) == "<eos>")
    assert end not in runtime.encode("a<eos>b")
    assert runtime.decode(runtime.encode("a<eos>b")) == "a<eos>b"


def test_a_name_with_a_seam_in_a_prompt_is_only_text(runtime: GgufRuntime) -> None:
    controls, extras = runtime.controls(), Extras(alternatives=0, reports_prompt=True)
    assert "<eos>" in controls
    assert "def" not in controls
    for name in controls:
        special, seamed = decode(
            runtime,
            (f"a{name}b", Sampling(0.0, 1), extras),
            (with_seams(f"a{name}b", controls), Sampling(0.0, 1), extras),
        )
        assert name in [each.raw for each in special.prompt_reports]
        assert name not in [each.raw for each in seamed.prompt_reports]
        assert "".join(each.raw for each in seamed.prompt_reports) == f"a{name}b"
    assert runtime.count_tokens(SEAM + PROMPT + SEAM) == runtime.count_tokens(PROMPT)


def test_reports_have_the_probabilities_of_prompt_and_completion(runtime: GgufRuntime) -> None:
    extras = Extras(alternatives=3, reports_prompt=True)
    completion, other = decode(runtime, (PROMPT, GREEDY, extras), (PROMPT, GREEDY, NO_EXTRAS))
    assert completion.token_ids == other.token_ids
    assert (other.reports, other.prompt_reports) == ((), ())
    assert [each.logprob for each in completion.reports] == pytest.approx(list(completion.logprobs), abs=1e-5)
    assert "".join(each.raw for each in completion.prompt_reports) == PROMPT
    first, *later = completion.prompt_reports
    assert (first.logprob, first.top) == (None, ())
    for report in (*later, *completion.reports):
        values = [logprob for _, logprob in report.top]
        assert len(values) == 3
        assert values == sorted(values, reverse=True)
        assert report.logprob is not None
        assert report.logprob <= values[0] <= 0
        assert sum(map(math.exp, values)) <= 1 + 1e-6
    for report in completion.reports:  # greedy
        assert report.logprob == report.top[0][1]
    # What a prompt's tokens are reported with is what they have as a completion.
    (again,) = decode(
        runtime, (PROMPT + completion.text, Sampling(0.0, 1), Extras(alternatives=1, reports_prompt=True))
    )
    place = len(completion.prompt_reports)
    if runtime.encode(PROMPT + completion.text)[:place] == runtime.encode(PROMPT):
        assert again.prompt_reports[place].logprob == pytest.approx(completion.reports[0].logprob, abs=1e-3)


def test_a_completion_names_the_stop_string_that_ended_it(runtime: GgufRuntime) -> None:
    (plain,) = decode(runtime, (PROMPT, GREEDY, NO_EXTRAS))
    stop = plain.text[3:6]
    (stopped,) = decode(runtime, (PROMPT, replace(GREEDY, stop=("never there", stop)), NO_EXTRAS))
    assert (plain.stop, stopped.stop, stopped.finish) == ("", stop, "stop")
    assert stopped.text == plain.text[: plain.text.index(stop)]


def test_a_prompt_longer_than_a_reported_part_is_reported_whole(runtime: GgufRuntime) -> None:
    prompt = "print(1)\n" * 20
    (completion,) = decode(runtime, (prompt, Sampling(0.0, 1), Extras(alternatives=0, reports_prompt=True)))
    assert len(completion.prompt_reports) == len(runtime.encode(prompt)) > 64
    assert "".join(each.raw for each in completion.prompt_reports) == prompt


@pytest.mark.parametrize("length", [1, 2, 3])
def test_a_prompt_shorter_than_any_part_is_reported_whole(runtime: GgufRuntime, length: int) -> None:
    tokens = tuple(runtime.encode(PROMPT)[:length])
    (completion,) = decode(runtime, (tokens, Sampling(0.0, 1), Extras(alternatives=1, reports_prompt=True)))
    assert "".join(each.raw for each in completion.prompt_reports) == runtime.decode(tokens)
    assert [each.logprob is None for each in completion.prompt_reports] == [True] + [False] * (length - 1)
    assert len(completion.prompt_reports) == completion.prompt_tokens == length


def test_penalties_keep_a_model_from_repeating_tokens(runtime: GgufRuntime) -> None:
    sampling = Sampling(0.0, 40)
    plain, frequent, present, negative = decode(
        runtime,
        (PROMPT, sampling, NO_EXTRAS),
        (PROMPT, sampling, Extras(frequency_penalty=1000.0)),
        (PROMPT, sampling, Extras(presence_penalty=1000.0)),
        (PROMPT, sampling, Extras(presence_penalty=-1000.0)),
    )
    for completion in (frequent, present):
        assert len(set(completion.token_ids)) == len(completion.token_ids)
    assert frequent.token_ids == present.token_ids
    assert len(set(plain.token_ids)) < len(plain.token_ids)
    assert len(set(negative.token_ids)) == 1
    assert frequent.logprobs[0] == plain.logprobs[0]
    assert max(frequent.logprobs) <= 0  # those of the model, without the penalty


@pytest.mark.parametrize("seed", range(4))
def test_a_completion_follows_its_grammar_and_the_others_none(runtime: GgufRuntime, seed: int) -> None:
    schema = {"properties": {"a": {"type": "integer"}, "b": {"enum": ["x", "yz"]}}, "required": ["a", "b"]}
    extras = Extras(grammar=json_grammar(schema))
    free, bound = decode(
        runtime, (PROMPT, Sampling(1.0, 20, seed), NO_EXTRAS), (PROMPT, Sampling(1.0, 100, seed), extras)
    )
    (alone,) = decode(runtime, (PROMPT, Sampling(1.0, 20, seed), NO_EXTRAS))
    assert free.token_ids == alone.token_ids
    assert bound.finish == "stop"
    found = json.loads(bound.text)
    assert isinstance(found["a"], int)
    assert found["b"] in ("x", "yz")


@pytest.mark.parametrize(
    ("extras", "drawn", "text"),
    [
        (NO_EXTRAS, "<pad>|a", "a"),
        (Extras(grammar='root ::= "<pad>a"\n'), "<pad>|a", "<pad>a"),
        (Extras(grammar='root ::= "<pad>a"\n'), "<|p|a|d|>|a", "<pad>a"),
        (Extras(grammar='root ::= "1<pad>"\n', grammar_after="<pad>"), "a|<pad>|1|<pad>", "a<pad>1<pad>"),
        (Extras(grammar='root ::= "1"\n', grammar_after="#"), "<pad>|#|1", "#1"),
    ],
    ids=["no grammar", "a token", "characters", "from a sign on", "before a sign"],
)
def test_a_text_has_the_names_of_control_tokens_that_a_grammar_reads(
    tiny_gguf: Path, monkeypatch: pytest.MonkeyPatch, extras: Extras, drawn: str, text: str
) -> None:
    model = LlamaModel(tiny_gguf)
    context = model.open_context(1, 256, 1, True)
    decoder = BatchDecoder(model, context)
    tokens = [model.tokenize(each, is_plain=each != "<pad>")[-1] for each in drawn.split("|")]
    assert "|".join(model.piece(token, names=True).decode() for token in tokens) == drawn
    given = iter(tokens)
    monkeypatch.setattr(decoder, "_draw", lambda sequence, logits: (next(given), 0.0))
    prompt = model.tokenize(PROMPT)
    reported = replace(extras, alternatives=0)
    (*_, last) = decoder.run([GgufTask("task", prompt, Sampling(0.0, len(tokens)), (0,), None, reported)])
    assert last.completion is not None
    assert last.completion.text == "".join(report.raw for report in last.completion.reports) == text
    context.close()
    model.close()


def test_a_grammar_may_hold_from_the_end_of_a_text_on(runtime: GgufRuntime) -> None:
    (plain,) = decode(runtime, (PROMPT, Sampling(0.0, 30), NO_EXTRAS))
    sign = plain.text[4:8]
    extras = Extras(grammar='root ::= "[" [0-9]{3} "]"\n', grammar_after=sign)
    (bound,) = decode(runtime, (PROMPT, Sampling(0.0, 40), extras))
    before, _, after = bound.text.partition(sign)
    assert plain.text.startswith(before + sign)
    # A token may hold the sign and more; then nothing can be demanded of the rest.
    assert (len(after) == 5 and after[1:4].isdigit()) or plain.text.startswith(
        bound.text[: len(before) + len(sign) + 1]
    )


@pytest.mark.parametrize("rest", ["", "[", "\n", " \n["])
def test_spaces_behind_the_text_before_a_grammar_do_not_end_it(tiny_gguf: Path, rest: str) -> None:
    model = LlamaModel(tiny_gguf)
    extras = Extras(grammar='root ::= "[" "1"\n', grammar_after="#")
    constraint = Constraint(extras, partial(model.open_grammar, extras.grammar), partial(model.tokenize, is_plain=True))
    constraint.add(0, f"#{rest}")
    right, wrong = (model.tokenize(each, is_plain=True)[0] for each in ("12" if "[" in rest else "[1"))
    assert not constraint.forbids(right)
    assert constraint.forbids(wrong)
    model.close()


def test_a_text_that_has_followed_a_grammar_may_have_to_go_on_with_it(runtime: GgufRuntime) -> None:
    (plain,) = decode(runtime, (PROMPT, Sampling(0.0, 30), NO_EXTRAS))
    begun = runtime.decode(plain.token_ids[:6])
    assert plain.text.startswith(begun)
    rest = '"[" [0-9]{3} "]"'
    root = 'root ::= "never"\n'
    sampling = Sampling(0.0, 30)
    bound, other, later = decode(
        runtime,
        (PROMPT, sampling, Extras(grammar=f"{root}whole ::= {literal(begun)} {rest}\n", grammar_within=begun)),
        (PROMPT, sampling, Extras(grammar=f'{root}whole ::= "#" {rest}\n', grammar_within=begun)),
        (PROMPT, sampling, Extras(grammar=f"{root}whole ::= {literal(begun)} {rest}\n", grammar_within="#never")),
    )
    assert bound.text.startswith(f"{begun}[")
    assert bound.text.endswith("]")
    assert len(bound.text) == len(begun) + 5
    assert other.text == later.text == plain.text


def test_a_grammar_that_cannot_be_read_is_known_beforehand(runtime: GgufRuntime) -> None:
    assert runtime.knows_grammar('root ::= "a"\n')
    for wrong in ("root ::= (((", "root ::= root", "other ::= [a]", "root ::= missing"):
        assert not runtime.knows_grammar(wrong)
    assert decode(runtime, (PROMPT, GREEDY, NO_EXTRAS))[0].text


def test_long_prompts_keep_a_short_one_waiting_for_one_step_only(runtime: GgufRuntime) -> None:
    reports = Extras(alternatives=0, reports_prompt=True)
    long = [
        DecodingTask(key, f"# {key}\n" + "print(1)\n" * 100, GREEDY, sample, None, extras)
        for key, (sample, extras) in enumerate(((0, NO_EXTRAS), (0, reports)))
    ]
    sizes = [len(runtime.encode(str(task.prompt))) for task in long]
    assert min(sizes) > 2 * PROMPT_TOKENS
    sibling = replace(long[0], key=2)
    batch = runtime.open_batch(4, max(sizes) + 20)
    batch.add([*long, sibling])
    assert batch.step() == []
    batch.add([DecodingTask(9, PROMPT, replace(GREEDY, max_tokens=1))])
    (short,) = batch.step()
    assert (short.key, short.completion is None) == (9, False)
    steps, done = 2, dict[int, Completion]()
    while len(done) < 3:
        steps += 1
        done |= {each.key: each.completion for each in batch.step() if each.completion is not None}
    assert steps >= sum(sizes) // PROMPT_TOKENS  # the sibling's prompt is copied
    for task in (*long, sibling):
        batch = runtime.open_batch(4, max(sizes) + 20)
        batch.add([task])
        alone = None
        while alone is None:
            alone = next((each.completion for each in batch.step()), None)
        assert alone.token_ids == done[task.key].token_ids
        assert [each.raw for each in alone.prompt_reports] == [each.raw for each in done[task.key].prompt_reports]
    assert "".join(each.raw for each in done[1].prompt_reports) == long[1].prompt


@pytest.mark.parametrize("gone", [(), (0,), (0, 1), (1,)])
def test_a_sample_whose_prompt_another_one_was_computing_gets_the_same_tokens(
    runtime: GgufRuntime, gone: tuple[int, ...]
) -> None:
    prompt = "print(1)\n" * 100
    batch = runtime.open_batch(4, 1000)
    batch.add([DecodingTask(key, prompt, GREEDY) for key in range(3)])
    batch.step()
    batch.drop(gone)
    found: dict[int, Completion] = {}
    while len(found) < 3 - len(gone):
        found |= {each.key: each.completion for each in batch.step() if each.completion is not None}
    assert {each.token_ids for each in found.values()} == {runtime.generate([prompt], 1, GREEDY)[0][0].token_ids}


def test_a_reused_prefix_changes_no_token(runtime: GgufRuntime) -> None:
    batch = runtime.open_batch(2, 128)
    long = PROMPT * 8
    texts = []
    for key, (prompt, extras) in enumerate(
        ((long, NO_EXTRAS), (long + "x", Extras(reuses_prefix=True)), (long + "x", NO_EXTRAS))
    ):
        batch.add([DecodingTask(key, prompt, GREEDY, 0, None, extras)])
        completion = None
        while completion is None:
            completion = next((each.completion for each in batch.step()), None)
        texts.append(completion.token_ids)
    assert texts[1] == texts[2]
