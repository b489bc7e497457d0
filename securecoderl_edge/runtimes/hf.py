"""The Hugging Face runtime: a base model, with or without an adapter, computed by torch in float32."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from securecoderl_edge.errors import SceError
from securecoderl_edge.models.adapters import load_adapter, read_lora_config
from securecoderl_edge.models.files import base_folder
from securecoderl_edge.models.loading import load_base, require_torch
from securecoderl_edge.models.tokenizer import encode_prompt, end_tokens, load_tokenizer
from securecoderl_edge.prompts.chat import read_chat_template
from securecoderl_edge.prompts.extraction import Asked
from securecoderl_edge.runtimes.protocol import Completion, OnToken, Sampling, Usage
from securecoderl_edge.runtimes.room import affordable_sequences, encode_prompts
from securecoderl_edge.runtimes.text_writer import TextWriter, TokenText, open_writer
from securecoderl_edge.runtimes.truncation import truncated
from securecoderl_edge.system.machine import peak_rss_bytes

if TYPE_CHECKING:
    import torch


class HfRuntime:
    """Implements `protocol.Runtime` with the same decoder that training samples with."""

    def __init__(
        self,
        base: str,
        adapter: Path | None = None,
        threads: int | None = None,
        parallel: int = 64,
        prompt_style: str | None = None,
    ) -> None:
        """Load ``base`` (``nano``, a folder, a Hugging Face repo id) and merge ``adapter`` into it.

        Args:
            parallel: sequences decoded at a time.
            prompt_style: the style that `sce` trained the model with, if known.

        Raises:
            SceError: a model or adapter that cannot be loaded.
        """
        require_torch()
        import torch

        from securecoderl_edge.models.decoder import Decoder

        if threads:
            torch.set_num_threads(threads)
        folder = base_folder(base)
        self.name = f"{base} + {adapter}" if adapter else base
        self._tokenizer = load_tokenizer(folder)
        model = load_base(folder)
        if adapter is not None:
            model = _with_adapter(model, adapter)
        self._decoder = Decoder(model, torch.float32)
        self.context = self._decoder.context
        self.prompt_style = prompt_style
        self.chat_template = read_chat_template(folder)
        self._ends = end_tokens(folder, self._tokenizer.eos_token_id)
        self._parallel = max(1, parallel)
        self._spent = Usage()

    def generate(
        self,
        prompts: Sequence[str],
        n: int,
        sampling: Sampling,
        on_token: OnToken | None = None,
        asked: Sequence[Asked] | None = None,
    ) -> list[list[Completion]]:
        """See `protocol.Runtime.generate`."""
        encoded = encode_prompts(prompts, self._encode, sampling.max_tokens, self.context)
        longest = max(map(len, encoded), default=0) + sampling.max_tokens
        rows = affordable_sequences(max(n, self._parallel), longest, self._decoder.cache_bytes_per_token)
        width, together = max(1, rows // n), min(n, rows)
        completions: list[list[Completion]] = []

        def decode(ids: list[int]) -> str:
            return str(self._tokenizer.decode(ids, skip_special_tokens=True))

        for start in range(0, len(encoded), width):
            batch = encoded[start : start + width]
            found: list[list[Completion]] = [[] for _ in batch]
            for first in range(0, n, together):
                samples = range(first, min(first + together, n))
                texts = {
                    (prompt, index - first): (
                        TokenText(decode),
                        open_writer(sampling, (start + prompt, index), on_token, asked),
                    )
                    for prompt in range(len(batch))
                    for index in samples
                }
                draws = _draws(len(batch), n, sampling, start)[:, samples.start : samples.stop]
                for row, more in zip(found, self._generate_batch(batch, draws, sampling, texts), strict=True):
                    row += more
            completions += found
        return completions

    def count_tokens(self, prompt: str) -> int:
        """See `protocol.Runtime.count_tokens`."""
        return len(self._encode(prompt))

    def usage(self) -> Usage:
        """Totals since opening; the memory is that of the whole process."""
        return self._spent + Usage(peak_rss_bytes=peak_rss_bytes())

    def close(self) -> None:
        """Free the weights."""
        del self._decoder

    def _encode(self, prompt: str) -> list[int]:
        return encode_prompt(self._tokenizer, prompt)

    def _generate_batch(
        self,
        prompts: list[list[int]],
        draws: torch.Tensor,
        sampling: Sampling,
        texts: dict[tuple[int, int], tuple[TokenText, TextWriter]],
    ) -> list[list[Completion]]:
        import torch

        from securecoderl_edge.models.sampling import Sampled, sample

        started = time.monotonic()
        times: dict[tuple[int, int], list[float]] = {key: [] for key in texts}

        def token_drawn(prompt: int, index: int, token: int) -> bool:
            times[prompt, index].append(time.monotonic() - started)
            pieces, writer = texts[prompt, index]
            return token not in self._ends and writer.add(pieces.add(token))

        def ended(done: Sampled) -> None:
            pieces, writer = texts[done.prompt, done.sample]
            writer.add(pieces.end())
            writer.end()

        def truncate(scores: torch.Tensor) -> torch.Tensor:
            return torch.from_numpy(truncated(scores.numpy(), sampling))

        sampled = sample(
            self._decoder,
            prompts,
            draws.shape[1],
            0.0 if sampling.is_greedy else sampling.temperature,
            sampling.max_tokens,
            self._ends,
            draws.flatten(0, 1),
            ended,
            token_drawn,
            None if sampling.draws_from_all else truncate,
        )
        seconds = time.monotonic() - started
        first = min(each[0] for each in times.values())
        decoded = sum(len(done.token_ids) for done in sampled)
        self._spent += Usage(sum(map(len, prompts)), first, decoded, seconds - first)
        grouped: list[list[Completion]] = [[] for _ in prompts]
        for done in sampled:
            grouped[done.prompt].append(
                Completion(
                    text=texts[done.prompt, done.sample][1].text,
                    token_ids=done.token_ids,
                    logprobs=done.log_probs,
                    finish="stop" if done.finished else "length",
                    prompt_tokens=len(prompts[done.prompt]),
                    token_seconds=tuple(times[done.prompt, done.sample]),
                )
            )
        return grouped


def _draws(prompts: int, n: int, sampling: Sampling, offset: int) -> torch.Tensor:
    """(prompts, n, max_tokens) uniform random numbers for sampling; they do not depend on the batch size."""
    import torch

    generator = torch.Generator().manual_seed(sampling.seed + offset)
    return torch.rand(prompts, n, sampling.max_tokens, generator=generator)


def _with_adapter(model: object, adapter: Path) -> object:
    """The model with the adapter at ``adapter`` active, scaled and placed as its configuration requires.

    Raises:
        SceError: the adapter cannot be read or does not fit.
    """
    read_lora_config(adapter)
    from peft import LoraConfig, get_peft_model

    try:
        config = LoraConfig.from_pretrained(str(adapter))
        config.base_model_name_or_path = None  # PEFT would warn if the base model has moved
        wrapped = get_peft_model(model, config)
    except (TypeError, ValueError) as error:
        raise SceError(f"{adapter}: the adapter does not match the base model ({error})") from None
    load_adapter(wrapped, adapter)
    return wrapped.eval()
