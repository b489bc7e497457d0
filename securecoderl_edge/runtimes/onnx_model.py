"""An exported ONNX folder in plain onnxruntime: a batch of sequences whose keys and values stay where they are.

Rows of different lengths are padded on the right, the only way that the attention operator understands: it takes the
number of ones in a row's mask for its length, and padding on the left would silently give wrong rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from securecoderl_edge.errors import MissingExtra, SceError

MODEL = "model.onnx"
_PAST, _PRESENT = "past_key_values", "present"
_ONLY_ERRORS = 3

Floats = np.ndarray[Any, np.dtype[np.float32]]


class OnnxModel:
    """A graph, loaded.

    Args:
        threads: of onnxruntime; 0 leaves the choice to it.

    Raises:
        SceError: no such file, or one that onnxruntime cannot load; the message quotes its reason.
        MissingExtra: onnxruntime is not installed.
    """

    def __init__(self, folder: Path, threads: int = 0) -> None:
        try:
            import onnxruntime
        except ImportError:
            raise MissingExtra("onnxruntime", "onnx") from None
        self._runtime = onnxruntime
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        options.log_severity_level = _ONLY_ERRORS
        try:
            self._session = onnxruntime.InferenceSession(folder / MODEL, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # each kind of damage has an exception of its own
            reason = " ".join(str(error).split())[:160]
            raise SceError(f"{folder / MODEL}: onnxruntime cannot load it ({reason}); export it again") from None
        inputs = {each.name: each.shape for each in self._session.get_inputs()}
        self._past = [name for name in inputs if name.startswith(_PAST)]
        if not self._past or "attention_mask" not in inputs:
            raise SceError(f"{folder / MODEL} is no graph that sce export writes")
        _, self._heads, _, self._head_size = inputs[self._past[0]]
        self.vocabulary_size = int(self._session.get_outputs()[0].shape[2])

    def open_batch(self, rows: int, length: int) -> OnnxBatch:
        """Room for ``rows`` sequences of up to ``length`` tokens each.

        Raises:
            ValueError: no rows, which would kill the process.
        """
        if rows < 1 or length < 1:
            raise ValueError(f"a batch of {rows} rows of {length} tokens")
        return OnnxBatch(self, rows, length)

    def run(self, binding: Any) -> None:
        """Compute what is bound.

        Raises:
            SceError: onnxruntime refuses.
        """
        try:
            self._session.run_with_iobinding(binding)
        except Exception as error:
            raise SceError(f"onnxruntime could not compute a batch ({' '.join(str(error).split())[:160]})") from None

    def bind(self, rows: int, length: int) -> tuple[Any, list[Any]]:
        """A binding whose keys and values are read and written in place, and those buffers."""
        binding, buffers = self._session.io_binding(), []
        for name in self._past:
            zeros = np.zeros((rows, self._heads, length, self._head_size), np.float32)
            buffer = self._runtime.OrtValue.ortvalue_from_numpy(zeros)
            binding.bind_ortvalue_input(name, buffer)
            binding.bind_ortvalue_output(name.replace(_PAST, _PRESENT), buffer)
            buffers.append(buffer)
        return binding, buffers


class OnnxBatch:
    """Sequences that are computed together; ``lengths`` counts the tokens of each so far."""

    def __init__(self, model: OnnxModel, rows: int, length: int) -> None:
        self._model, self._limit = model, length
        self._binding, self._buffers = model.bind(rows, length)
        self.lengths = np.zeros(rows, dtype=np.int64)

    def prefill(self, prompts: Sequence[Sequence[int]]) -> list[Floats]:
        """Feed the prompts, one for each row; the logits at all positions of each (T, vocabulary).

        Raises:
            ValueError: not one prompt a row, an empty one, one that is too long, or a token that there is not.
        """
        lengths = np.array([len(prompt) for prompt in prompts])
        if len(prompts) != len(self.lengths) or self.lengths.any() or lengths.min() < 1:
            raise ValueError("a batch is filled once, with a prompt of at least one token for each row")
        tokens = np.zeros((len(prompts), lengths.max()), np.int64)
        for row, prompt in enumerate(prompts):
            tokens[row, : len(prompt)] = prompt
        logits = self._feed(tokens, lengths)
        return [logits[row, :length] for row, length in enumerate(lengths)]

    def step(self, tokens: Sequence[int]) -> Floats:
        """Feed one token to each row; the logits after it (rows, vocabulary). Errors as in `prefill`."""
        if len(tokens) != len(self.lengths) or not self.lengths.all():
            raise ValueError("one token for each row, after its prompt")
        return self._feed(np.array(tokens, np.int64)[:, None], np.ones(len(tokens), np.int64))[:, -1]

    def choose(self, rows: Sequence[int], length: int | None = None) -> OnnxBatch:
        """A batch of copies of some rows, in any number and order, with room for ``length`` tokens each."""
        length = self._limit if length is None else length
        chosen = OnnxBatch(self._model, len(rows), length)
        kept = min(int(self.lengths.max()), length)
        for own, other in zip(chosen._buffers, self._buffers, strict=True):
            values = np.zeros((len(rows), *own.shape()[1:]), np.float32)
            values[:, :, :kept] = other.numpy()[list(rows), :, :kept]
            own.update_inplace(values)
        chosen.lengths = self.lengths[list(rows)]
        return chosen

    def _feed(self, tokens: np.ndarray[Any, np.dtype[np.int64]], counts: np.ndarray[Any, Any]) -> Floats:
        # Negative ids would wrap around without a word.
        if tokens.min() < 0 or tokens.max() >= self._model.vocabulary_size:
            raise ValueError("a token that the model does not have")
        lengths = self.lengths + counts
        if lengths.max() > self._limit:
            raise ValueError(f"a sequence of {lengths.max()} tokens in room for {self._limit}")
        mask = (np.arange(lengths.max())[None, :] < lengths[:, None]).astype(np.int64)
        self._binding.bind_cpu_input("input_ids", tokens)
        self._binding.bind_cpu_input("attention_mask", mask)
        self._binding.bind_output("logits", "cpu")
        self._model.run(self._binding)
        self.lengths = lengths
        names = self._binding.get_outputs()
        logits: Floats = names[len(self._buffers)].numpy()
        return logits
