"""Compares a GGUF file, run by llama.cpp, with its source, run by transformers: the child of `verify`.

The source is put together from base and adapter by PEFT, not by our merging, so an error there shows too.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from securecoderl_edge.errors import SceError
from securecoderl_edge.export.verify import Agreement
from securecoderl_edge.runtimes.llama import BATCH, LlamaContext, LlamaModel
from securecoderl_edge.token_counts import read_tokenizer

# Of two logits this close either may be taken for the larger one.
_TIE = 1e-3

Array = np.ndarray[Any, np.dtype[np.float32]]


@dataclass(frozen=True)
class _Trace:
    """A prompt with its greedy continuation by llama.cpp, and the logits at each position (T, vocabulary)."""

    tokens: list[int]
    prompt_length: int
    logits: Array


def measure(
    path: Path,
    base: Path,
    adapter: Path | None,
    prompts: Sequence[str],
    texts: Sequence[str],
    new_tokens: int,
) -> Agreement:
    """Run ``prompts`` through both models, and ``texts`` through both tokenizers.

    Raises:
        SceError: the file cannot be loaded, or the vocabularies differ in size.
    """
    tokenizer = read_tokenizer(base)
    model = LlamaModel(path)
    try:
        equal = sum(model.tokenize(text) == tokenizer.encode(text).ids for text in texts)
        budget = min(model.context_length, BATCH) - new_tokens
        encoded = [tokenizer.encode(text).ids[: max(1, budget)] for text in prompts]
        traces = _trace_all(model, [ids for ids in encoded if ids], new_tokens)
    finally:
        model.close()
    return _compare(traces, _load_source(base, adapter), len(texts), equal)


def _trace_all(model: LlamaModel, prompts: list[list[int]], new_tokens: int) -> list[_Trace]:
    length = max(len(prompt) for prompt in prompts) + new_tokens
    threads = len(os.sched_getaffinity(0))
    context = model.open_context(1, -(-length // 256) * 256, threads, float32_cache=True)
    try:
        return [_trace(context, prompt, new_tokens) for prompt in prompts]
    finally:
        context.close()


def _trace(context: LlamaContext, prompt: list[int], new_tokens: int) -> _Trace:
    context.clear(0)
    tokens = list(prompt)
    context.decode(tokens, list(range(len(tokens))), [0] * len(tokens), logits=True)
    rows = [context.logits(len(tokens)).copy()]
    for _ in range(new_tokens):
        tokens.append(int(rows[-1][-1].argmax()))
        context.decode(tokens[-1:], [len(tokens) - 1], [0], logits=True)
        rows.append(context.logits(1).copy())
    return _Trace(tokens, len(prompt), np.concatenate(rows))


def _load_source(base: Path, adapter: Path | None) -> Any:
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32, local_files_only=True)
    if adapter:
        from peft import PeftModel

        model = PeftModel.from_pretrained(model, str(adapter))
    return model.eval()


def _compare(traces: list[_Trace], source: Any, texts: int, tokenised_equal: int) -> Agreement:
    import torch

    differences, divergences, agreements, greedy_equal = [], [], [], 0
    for trace in traces:
        with torch.inference_mode():
            expected = source(torch.tensor([trace.tokens])).logits[0].float().numpy()
        if expected.shape != trace.logits.shape:
            sizes = f"{trace.logits.shape[1]} tokens, its source {expected.shape[1]}"
            raise SceError(f"the vocabulary of the file has {sizes}")
        differences.append(float(np.abs(expected - trace.logits).max()))
        divergences.append(_divergence(expected, trace.logits))
        agreements.append(expected.argmax(axis=1) == trace.logits.argmax(axis=1))
        # Greedy texts are equal when the source too prefers each token of the continuation.
        continuation = trace.tokens[trace.prompt_length :]
        judged = expected[trace.prompt_length - 1 : -1]
        margins = judged.max(axis=1) - judged[np.arange(len(continuation)), continuation]
        greedy_equal += bool((margins < _TIE).all())
    worst = max(differences)
    return Agreement(
        texts=texts,
        tokenised_equal=tokenised_equal,
        prompts=len(traces),
        positions=sum(len(trace.tokens) for trace in traces),
        # Not a number means that nothing agrees; JSON and comparisons both want a number.
        max_abs_difference=worst if math.isfinite(worst) else 1e30,
        mean_kl=float(np.nan_to_num(np.concatenate(divergences), nan=1e30, posinf=1e30).mean()),
        top1=float(np.concatenate(agreements).mean()),
        greedy_equal=greedy_equal,
    )


def _divergence(expected: Array, found: Array) -> Array:
    """KL(expected || found) of the distributions at each position."""
    left, right = _log_softmax(expected), _log_softmax(found)
    divergence: Array = (np.exp(left) * (left - right)).sum(axis=1)
    return divergence


def _log_softmax(logits: Array) -> Array:
    shifted = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
    result: Array = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return result


def main() -> None:
    """Read a request from standard input, write the agreement or an error to standard output."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    request = json.load(sys.stdin)
    adapter = Path(request["adapter"]) if request["adapter"] else None
    try:
        agreement = measure(
            Path(request["path"]),
            Path(request["base"]),
            adapter,
            request["prompts"],
            request["texts"],
            request["new_tokens"],
        )
        json.dump(asdict(agreement), answers)
    except SceError as error:
        json.dump({"error": str(error)}, answers)
    answers.flush()


if __name__ == "__main__":
    main()
