"""The Hugging Face runtime: a base model, with or without an adapter, computed by torch.

Families that `models` computes keep one copy of their weights, with the adapter, and finished completions make
room for waiting ones. Other models run through the ``generate`` of transformers.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from securecoderl_edge.errors import SceError, UsageError
from securecoderl_edge.models.adapters import load_adapter, peft_config
from securecoderl_edge.models.architecture import Architecture
from securecoderl_edge.models.files import base_folder
from securecoderl_edge.models.loading import load_base
from securecoderl_edge.models.other import OtherArchitecture, find_architecture
from securecoderl_edge.models.packages import hidden_bitsandbytes, require_torch
from securecoderl_edge.models.sizes import BYTES, CACHE_GROWTH, GIB
from securecoderl_edge.models.tokenizer import read_tokenizer
from securecoderl_edge.prompts.chat import read_chat_template
from securecoderl_edge.prompts.extraction import PromptFacts
from securecoderl_edge.prompts.thoughts import thought_tokens
from securecoderl_edge.runtimes.extras import TEXT_ONLY
from securecoderl_edge.runtimes.protocol import (
    BASE_PRECISIONS,
    WHOLE_REQUEST,
    Completion,
    DecodingTask,
    OnToken,
    Part,
    Sampling,
    Usage,
)
from securecoderl_edge.runtimes.room import affordable_sequences, encode_prompts
from securecoderl_edge.runtimes.text_writer import PartialCompletion, TextWriter, TokenText, end_of_program, open_writer
from securecoderl_edge.system.machine import available_memory_bytes, peak_rss_bytes

if TYPE_CHECKING:
    from securecoderl_edge.models.sampling import TokenCompletion
    from securecoderl_edge.runtimes.hf_batch import HfBatch

_NAMES = {"torch.bfloat16": "bf16", "torch.float16": "fp16", "torch.float32": "fp32"}


class HfRuntime:
    """Implements `protocol.Runtime` with the same decoder that training samples with."""

    abilities = TEXT_ONLY

    def __init__(
        self,
        base: str,
        adapter: Path | None = None,
        threads: int | None = None,
        parallel: int = 64,
        prompt_style: str | None = None,
        base_precision: str = "fp32",
        device: str = "cpu",
    ) -> None:
        """Load ``base`` (``nano``, a folder, a Hugging Face repo id), with ``adapter`` on it.

        Args:
            parallel: sequences decoded at a time.
            prompt_style: the style that `sce` trained the model with, if known.
            base_precision: one of `BASE_PRECISIONS`, see `choose_precision`.
            device: ``cpu`` or ``cuda``.

        Raises:
            SceError: a model or adapter that cannot be loaded, or too little memory for it.
        """
        require_torch()
        import torch

        if threads:
            torch.set_num_threads(threads)
        folder = base_folder(base)
        self.name = f"{base} + {adapter}" if adapter else base
        self._tokenizer = read_tokenizer(folder)
        shape = find_architecture(folder)
        self.base_precision = choose_precision(base_precision, shape, device)
        products = self.base_precision
        if products == "int8":
            products = choose_precision("auto", shape, device)
        dtype = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}[products]
        self._device = device
        _require_memory(self.name, shape, self.base_precision, dtype.itemsize, self._free_gpu_bytes())
        model = load_base(folder, self.base_precision, device, products=dtype)
        if adapter is not None:
            model = _with_adapter(model, adapter, is_ours=isinstance(shape, Architecture))
        self._model, self._decoder = model, None
        if isinstance(shape, Architecture):
            from securecoderl_edge.models.decoder import Decoder

            self._decoder = Decoder(model, dtype, int8=self.base_precision == "int8")
            self._decoder.refresh(take=True)
            self._cache_bytes_per_token = self._decoder.cache_bytes_per_token
        else:
            # Unknown; four times the hidden state of each layer is more than any cache of attention takes.
            text = model.config.get_text_config()
            self._cache_bytes_per_token = 4 * int(text.num_hidden_layers * text.hidden_size * 4)
        self.context = shape.context
        self.prompt_style = prompt_style
        self.chat_template = read_chat_template(folder)
        self._tags = thought_tokens(self._tokenizer.id_of, self._tokenizer.decode)
        self._parallel = max(1, parallel)
        self._spent = Usage()

    def generate(
        self,
        prompts: Sequence[str],
        n: int,
        sampling: Sampling,
        on_token: OnToken | None = None,
        facts: Sequence[PromptFacts | None] | None = None,
        part: Part = WHOLE_REQUEST,
    ) -> list[list[Completion]]:
        """See `protocol.Runtime.generate`."""
        encoded = encode_prompts(prompts, self._tokenizer.encode_prompt, sampling.max_tokens, self.context)
        keys = part.keys(len(encoded), n)
        if not keys:
            return [[] for _ in encoded]
        longest = max(map(len, encoded)) + sampling.max_tokens + CACHE_GROWTH
        rows = affordable_sequences(
            max(n, self._parallel), longest, self._cache_bytes_per_token, 0, self._free_gpu_bytes()
        )
        partial = {key: self._begin(sampling, open_writer(sampling, key, on_token, facts)) for key in keys}
        started = told = time.monotonic()
        for each in partial.values():
            each.started = started

        def ended(key: tuple[int, int], done: TokenCompletion) -> None:
            nonlocal told
            completion = replace(partial[key].completion(len(encoded[key[0]])), logprobs=done.log_probs)
            grouped[key[0]].append((key[1], completion))
            now = time.monotonic()
            spent = self._usage_of(completion, now - told)
            if self._decoder is None and told == started:
                # The time to the first token is that of the prompts.
                first = completion.token_seconds[0]
                spent += Usage(sum(len(encoded[prompt]) for prompt, _ in keys), first, decode_seconds=-first)
            self._spent, told = self._spent + spent, now
            part.done(key, completion)

        grouped: list[list[tuple[int, Completion]]] = [[] for _ in encoded]
        self._sample(encoded, part, sampling, rows, partial, ended)
        return [[completion for _, completion in sorted(group, key=lambda each: each[0])] for group in grouped]

    def open_batch(self, rows: int, length: int) -> HfBatch:
        """See `protocol.Runtime.open_batch`; models outside of `families` cannot.

        Raises:
            SceError: transformers computes the model, or memory is insufficient.
        """
        from securecoderl_edge.runtimes.hf_batch import HfBatch

        if self._decoder is None:
            raise SceError(
                f"{self.name}: transformers computes this model, one group of prompts after the other. It cannot be "
                "served; use a GGUF file of it"
            )
        longest = length + CACHE_GROWTH
        rows = affordable_sequences(rows, longest, self._cache_bytes_per_token, 0, self._free_gpu_bytes())

        def begin(task: DecodingTask, show: Callable[[str], None]) -> PartialCompletion:
            return self._begin(task.sampling, TextWriter(task.sampling.stop, show, end_of_program(task.facts)))

        def encode(task: DecodingTask) -> list[int]:
            return encode_prompts([task.prompt], self._tokenizer.encode_prompt, task.sampling.max_tokens, length)[0]

        return HfBatch(self._decoder, rows, encode, begin)

    def controls(self) -> tuple[str, ...]:
        """See `protocol.Runtime`."""
        return self._tokenizer.controls()

    def count_tokens(self, prompt: str) -> int:
        """See `protocol.Runtime.count_tokens`."""
        return len(self._tokenizer.encode_prompt(prompt))

    def usage(self) -> Usage:
        """Totals since opening; the memory is that of the whole process."""
        gpu = 0
        if self._device != "cpu":
            import torch

            gpu = torch.cuda.max_memory_allocated()
        return self._spent + Usage(peak_rss_bytes=peak_rss_bytes(), peak_gpu_bytes=gpu)

    def close(self) -> None:
        """Free the weights."""
        del self._decoder, self._model

    def _begin(self, sampling: Sampling, writer: TextWriter) -> PartialCompletion:
        pieces = TokenText(self._tokenizer.decode, self._tags)
        return PartialCompletion(sampling, self._tokenizer.ends.__contains__, pieces, writer)

    def _usage_of(self, ended: Completion, seconds: float) -> Usage:
        """The usage of the ``seconds`` before a completion ended, with the prompts that were computed in them."""
        tokens = first = 0.0
        if self._decoder is not None:
            tokens, first = self._decoder.prompt_tokens, self._decoder.prompt_seconds
            self._decoder.prompt_tokens, self._decoder.prompt_seconds = 0, 0.0
        return Usage(int(tokens), first, len(ended.token_ids), seconds - first)

    def _free_gpu_bytes(self) -> int | None:
        """Free memory of the GPU, with what torch holds there for reuse; None on the CPU."""
        if self._device == "cpu":
            return None
        import torch

        held = torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
        return int(torch.cuda.mem_get_info()[0] + held)

    def _sample(
        self,
        prompts: list[list[int]],
        part: Part,
        sampling: Sampling,
        rows: int,
        partial: dict[tuple[int, int], PartialCompletion],
        ended: Callable[[tuple[int, int], TokenCompletion], None],
    ) -> None:
        """Sample the completions in ``partial``; ``prompts`` are all."""
        import torch

        from securecoderl_edge.models.drawing import uniforms_of
        from securecoderl_edge.models.other import sample_with_generate
        from securecoderl_edge.models.sampling import Sampler, sample

        def token_drawn(number: int, _sample: int, token: int) -> bool:
            partial[keys[number]].add(token)
            return partial[keys[number]].is_done

        # Each sample is a prompt with one sample: some may be missing. Equal neighbors are computed once.
        keys, each = list(partial), [prompts[prompt] for prompt, _ in partial]
        sampler = Sampler(
            sampling.temperature,
            sampling.max_tokens,
            self._tokenizer.ends,
            torch.stack([uniforms_of(part.seed_of(key, sampling), sampling.max_tokens) for key in keys]),
            on_finished=lambda done: ended(keys[done.prompt], done),
            on_token=token_drawn,
            truncate=sampling.truncate,
        )
        if self._decoder is not None:
            sample(self._decoder, each, 1, sampler, rows)
        else:
            sample_with_generate(self._model, each, 1, sampler, self._tokenizer.pad_token_id, rows)


def choose_precision(precision: str, shape: Architecture | OtherArchitecture, device: str = "cpu") -> str:
    """Resolve ``auto``: on a GPU bf16, or else fp16; on a CPU bf16 if a measurement shows that it is faster, else fp32.

    Raises:
        UsageError: not one of `BASE_PRECISIONS`, or one that the device does not support.
    """
    if precision not in BASE_PRECISIONS:
        raise UsageError(f"unknown base precision {precision!r}; choose from {', '.join(BASE_PRECISIONS)}")
    from securecoderl_edge.models.device import bf16_is_faster, choose_compute

    if device != "cpu":
        compute = choose_compute(device, precision)
        return _NAMES[str(compute.products)] if precision == "auto" else precision
    if precision == "fp16":
        raise UsageError("fp16 is for GPUs, CPUs are slow with it; use --base-precision bf16, fp32 or int8")
    if precision != "auto":
        return precision

    sizes = (shape.hidden, shape.intermediate) if isinstance(shape, Architecture) else _usual_sizes(shape)
    return "bf16" if bf16_is_faster(*sizes) else "fp32"


def _usual_sizes(shape: OtherArchitecture) -> tuple[int, int]:
    """Sizes of a layer of a model of this many parameters, roughly."""
    hidden = max(64, int((shape.weights / 300) ** 0.5) // 64 * 64)
    return hidden, 4 * hidden


def _require_memory(
    name: str, shape: Architecture | OtherArchitecture, precision: str, other: int, free_on_gpu: int | None
) -> None:
    """Check before loading that the weights fit, with one layer being merged and a small KV cache.

    Raises:
        SceError: they do not.
    """
    total = shape.parameters()
    if isinstance(shape, Architecture):
        layer = sum(math.prod(sizes) for sizes in shape.linears().values())
        linears = shape.layers * layer
        weights = linears * BYTES.get(precision, 1) + (total - linears) * other + 2 * 4 * layer
    else:
        weights = total * max(BYTES.get(precision, 4), other)
    free = available_memory_bytes() if free_on_gpu is None else free_on_gpu
    if weights > free:
        smaller = " or ".join(f"--base-precision {each}" for each in ("bf16", "int8") if each != precision)
        raise SceError(
            f"{name} needs {weights / GIB:.1f} GiB of memory in {precision}, and {free / GIB:.1f} GiB are free. Use "
            f"{smaller}, or a GGUF file of it"
        )


def _with_adapter(model: object, adapter: Path, *, is_ours: bool) -> object:
    """The model with the adapter at ``adapter`` active, scaled and placed as its configuration requires.

    Args:
        is_ours: `Decoder` computes the model, whose output layer gets no adapter.

    Raises:
        UsageError: a layer that gets none has one.
        SceError: the adapter cannot be read or does not fit.
    """
    config = peft_config(adapter)
    if is_ours and (others := sorted(name for name in config.target_modules if ".layers." not in name)):
        raise UsageError(f"{adapter}: an adapter of {others[0]} is not supported, only of linear layers within layers")
    from peft import get_peft_model

    try:
        with hidden_bitsandbytes():
            wrapped = get_peft_model(model, config)
    except (TypeError, ValueError) as error:
        raise SceError(f"{adapter}: the adapter does not match the base model ({error})") from None
    load_adapter(wrapped, adapter)
    return wrapped.eval()
