"""An exported ONNX folder in plain onnxruntime: batches of sequences.

Graphs for onnxruntime update the KV cache in place. Rows of different lengths are padded on the right, because their
attention operator takes the number of ones in a row's mask for its length: padding on the left would silently give
wrong results. Portable graphs append to the KV cache: every row has a place for every token of any row, and the mask
marks its own ones.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from securecoderl_edge.errors import SceError, needs
from securecoderl_edge.runtimes.onnx.names import APPENDED, CACHE_KEY, MODEL

_PAST, _PRESENT = "past_key_values", "present"
_ONLY_ERRORS = 3
_PROVIDERS = {"cpu": ["CPUExecutionProvider"], "cuda": ["CUDAExecutionProvider", "CPUExecutionProvider"]}

Floats = np.ndarray[Any, np.dtype[np.float32]]
Integers = np.ndarray[Any, np.dtype[np.int64]]


class OnnxModel:
    """A graph, loaded.

    Args:
        threads: CPU threads of onnxruntime; with 0 it decides.
        device: with ``cuda`` a GPU computes what its provider has kernels for, the CPU the rest. KV caches stay in the
            memory of the CPU, where the attention of our float32 graphs is computed.

    Raises:
        SceError: no such file, one that onnxruntime cannot load, or a GPU that it cannot use; with its reason.
        MissingExtra: onnxruntime is not installed.
    """

    def __init__(self, folder: Path, threads: int = 0, device: str = "cpu") -> None:
        with needs("onnxruntime", "onnx"):
            import onnxruntime
        self._runtime = onnxruntime
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        options.log_severity_level = _ONLY_ERRORS
        try:
            self._session = onnxruntime.InferenceSession(folder / MODEL, options, providers=_PROVIDERS[device])
            inputs = {each.name: each.shape for each in self._session.get_inputs()}  # names may be no UTF-8
            facts = self._session.get_modelmeta().custom_metadata_map
        except Exception as error:  # each kind of damage has an exception of its own
            reason = " ".join(str(error).split())[:160]
            raise SceError(f"{folder / MODEL}: onnxruntime cannot load it ({reason}); export it again") from None
        if self._session.get_providers()[0] != _PROVIDERS[device][0]:
            raise SceError("onnxruntime cannot use the GPU; check its CUDA libraries, or use --device cpu")
        self._past = [name for name in inputs if name.startswith(_PAST)]
        cache = inputs[self._past[0]] if self._past else []
        sizes = [*cache[1::2], *self._session.get_outputs()[0].shape[2:]]  # heads, their size, words
        if [type(each) for each in sizes] != [int] * 3 or "attention_mask" not in inputs:
            raise SceError(f"{folder / MODEL}: not a graph of sce export; write one with: sce export --format onnx")
        self._heads, self._head_size, self.vocabulary_size = sizes
        self._outputs = ["logits", *(name.replace(_PAST, _PRESENT) for name in self._past)]
        is_half = any(each.type == "tensor(float16)" for each in self._session.get_inputs())
        self._number = np.dtype(np.float16 if is_half else np.float32)
        self._appends = facts.get(CACHE_KEY) == APPENDED
        self.cache_bytes_per_token = len(self._past) * self._heads * self._head_size * self._number.itemsize

    def open_sequences(self, rows: int, length: int) -> OnnxSequences:
        """Room for ``rows`` sequences of up to ``length`` tokens each.

        Raises:
            ValueError: no rows, which would kill the process.
        """
        if rows < 1 or length < 1:
            raise ValueError(f"cannot open a batch of {rows} rows of {length} tokens")
        return _AppendedSequences(self, rows, length) if self._appends else _InPlaceSequences(self, rows, length)

    def run(self, binding: Any) -> None:
        """Run the graph on the bound buffers.

        Raises:
            SceError: onnxruntime refuses.
        """
        try:
            self._session.run_with_iobinding(binding)
        except Exception as error:
            raise _failure(error) from None

    def append(self, tokens: Integers, mask: Integers, past: Sequence[Any]) -> tuple[Floats, list[Any]]:
        """Logits of new tokens, and the KV cache of all tokens. Errors as in `run`."""
        feeds = {"input_ids": tokens, "attention_mask": mask, **dict(zip(self._past, past, strict=True))}
        try:
            logits, *present = self._session.run(self._outputs, feeds)
        except Exception as error:
            raise _failure(error) from None
        return logits, present

    def empty_cache(self, rows: int) -> list[Any]:
        """An empty KV cache, for `append`."""
        return [np.zeros((rows, self._heads, 0, self._head_size), self._number) for _ in self._past]

    def bind(self, rows: int, length: int) -> tuple[Any, list[Any]]:
        """A binding whose KV cache is read and written in place, and the buffers of that cache."""
        binding, buffers = self._session.io_binding(), []
        for name in self._past:
            zeros = np.zeros((rows, self._heads, length, self._head_size), np.float32)
            buffer = self._runtime.OrtValue.ortvalue_from_numpy(zeros)
            binding.bind_ortvalue_input(name, buffer)
            binding.bind_ortvalue_output(name.replace(_PAST, _PRESENT), buffer)
            buffers.append(buffer)
        return binding, buffers


class OnnxSequences(ABC):
    """Sequences that are computed together; ``lengths`` counts the tokens of each so far."""

    def __init__(self, model: OnnxModel, rows: int, length: int) -> None:
        self._model, self._limit = model, length
        self.lengths = np.zeros(rows, dtype=np.int64)

    def prefill(self, prompts: Sequence[Sequence[int]]) -> list[Floats]:
        """Feed the prompts, one for each row; the logits at all positions of each (T, vocabulary).

        Raises:
            ValueError: not one prompt per row, an empty or too long prompt, or an unknown token.
        """
        lengths = np.array([len(prompt) for prompt in prompts])
        if len(prompts) != len(self.lengths) or self.lengths.any() or lengths.min() < 1:
            raise ValueError("a batch must be filled once, with a prompt of at least one token for each row")
        tokens = np.zeros((len(prompts), lengths.max()), np.int64)
        for row, prompt in enumerate(prompts):
            tokens[row, : len(prompt)] = prompt
        logits = self._feed(tokens, lengths)
        return [logits[row, :length] for row, length in enumerate(lengths)]

    def step(self, tokens: Sequence[int]) -> Floats:
        """Feed one token to each row; the logits after it (rows, vocabulary). Errors as in `prefill`."""
        if len(tokens) != len(self.lengths) or not self.lengths.all():
            raise ValueError("expected one token for each row, after its prompt")
        return self._feed(np.array(tokens, np.int64)[:, None], np.ones(len(tokens), np.int64))[:, -1]

    def choose(self, rows: Sequence[int], length: int | None = None) -> OnnxSequences:
        """Copies of some rows, in any number and order, with room for ``length`` tokens each."""
        return joined(self._model, [(self, row) for row in rows], self._limit if length is None else length)

    @abstractmethod
    def _copy(self, sources: Sequence[tuple[Any, int]]) -> None:
        """Take the KV cache of rows of other sequences of the same kind; ``lengths`` are set."""

    def _feed(self, tokens: Integers, counts: Integers) -> Floats:
        # Negative ids would wrap around without an error.
        if tokens.min() < 0 or tokens.max() >= self._model.vocabulary_size:
            raise ValueError("token id outside of the vocabulary")
        lengths = self.lengths + counts
        if lengths.max() > self._limit:
            raise ValueError(f"a sequence of {lengths.max()} tokens exceeds the limit of {self._limit}")
        logits = self._compute(tokens, counts)
        self.lengths = lengths
        return logits

    @abstractmethod
    def _compute(self, tokens: Integers, counts: Integers) -> Floats:
        """Logits of new tokens: each row has ``counts`` of them, the rest is padding."""


class _InPlaceSequences(OnnxSequences):
    def __init__(self, model: OnnxModel, rows: int, length: int) -> None:
        super().__init__(model, rows, length)
        self._binding, self._buffers = model.bind(rows, length)

    def _copy(self, sources: Sequence[tuple[_InPlaceSequences, int]]) -> None:
        for layer, own in enumerate(self._buffers):
            values = np.zeros(own.shape(), np.float32)
            read = {source: source._buffers[layer].numpy() for source in {source for source, _ in sources}}
            for row, (source, source_row) in enumerate(sources):
                values[row, :, : self.lengths[row]] = read[source][source_row, :, : self.lengths[row]]
            own.update_inplace(values)

    def _compute(self, tokens: Integers, counts: Integers) -> Floats:
        lengths = self.lengths + counts
        mask = (np.arange(lengths.max())[None, :] < lengths[:, None]).astype(np.int64)
        self._binding.bind_cpu_input("input_ids", tokens)
        self._binding.bind_cpu_input("attention_mask", mask)
        self._binding.bind_output("logits", "cpu")
        self._model.run(self._binding)
        names = self._binding.get_outputs()
        logits: Floats = names[len(self._buffers)].numpy()
        return logits


class _AppendedSequences(OnnxSequences):
    def __init__(self, model: OnnxModel, rows: int, length: int) -> None:
        super().__init__(model, rows, length)
        self._cache = model.empty_cache(rows)
        self._mask = np.zeros((rows, 0), np.int64)

    def _copy(self, sources: Sequence[tuple[_AppendedSequences, int]]) -> None:
        # Entries that no row sees are left out: they would add up where rows join and leave.
        width = int(self.lengths.max())
        self._mask = (np.arange(width) < self.lengths[:, None]).astype(np.int64)
        for layer, empty in enumerate(self._cache):
            values = np.zeros((len(sources), empty.shape[1], width, empty.shape[3]), empty.dtype)
            for row, (source, source_row) in enumerate(sources):
                own = source._cache[layer][source_row]
                values[row, :, : self.lengths[row]] = own[:, source._mask[source_row] == 1]
            self._cache[layer] = values

    def _compute(self, tokens: Integers, counts: Integers) -> Floats:
        added = np.arange(tokens.shape[1])[None, :] < counts[:, None]
        mask = np.concatenate([self._mask, added.astype(np.int64)], axis=1)
        logits, self._cache = self._model.append(tokens, mask, self._cache)
        self._mask = mask
        return logits


def joined(model: OnnxModel, sources: Sequence[tuple[OnnxSequences, int]], length: int) -> OnnxSequences:
    """Copies of rows of any sequences of the model, with room for ``length`` tokens each."""
    sequences = model.open_sequences(len(sources), length)
    sequences.lengths = np.array([source.lengths[row] for source, row in sources])
    sequences._copy(sources)
    return sequences


def _failure(error: Exception) -> SceError:
    return SceError(f"onnxruntime cannot compute a batch ({' '.join(str(error).split())[:160]})")
