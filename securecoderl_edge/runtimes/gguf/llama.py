"""llama.cpp through its low-level API: a model, and a context whose sequences each have their own KV cache.

Several mistakes end the interpreter here instead of raising (a null pointer, an object used after it was
freed), so this module is for child processes: `worker` and the verification of exports.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np

from securecoderl_edge.errors import SceError
from securecoderl_edge.models.gguf.header import read_header
from securecoderl_edge.prompts.thoughts import thought_tokens
from securecoderl_edge.runtimes.extras import InfillTokens
from securecoderl_edge.runtimes.gguf.cache import cache_size
from securecoderl_edge.runtimes.gguf.deep_stack import on_deep_stack
from securecoderl_edge.runtimes.gguf.grammar import Grammar
from securecoderl_edge.runtimes.gguf.repacking import repacked_weights
from securecoderl_edge.runtimes.manifests import manifest_path
from securecoderl_edge.text import NORMALIZER_KEY, SEAM, normalize

BATCH = 512
_LOG_ERROR = 4  # ggml's level; llama_cpp's own logger still maps it to DEBUG
_CACHE_F32, _CACHE_F16 = 0, 1
_GPU = 1  # of ggml's kinds of devices

_errors: list[str] = []


@llama_cpp.llama_log_callback  # type: ignore[untyped-decorator, unused-ignore]
def _collect_errors(level: int, text: bytes, _data: Any) -> None:
    if level == _LOG_ERROR:
        _errors.append(text.decode("utf-8", "replace").strip())


def quiet() -> None:
    """Keep llama.cpp's errors for our own messages, and drop all its other output."""
    llama_cpp.llama_log_set(_collect_errors, ctypes.c_void_p(0))


class LlamaModel:
    """A GGUF file, loaded.

    Args:
        extra_buffers: whether llama.cpp repacks weights for all faster kernels of its build; by default only if they
            are correct. Otherwise it repacks for some kernels, see `repacking`.
        gpu_layers: layers that a GPU computes; negative: all. With 0 no GPU is used for anything.

    Raises:
        SceError: llama.cpp cannot load it; the message quotes its reason.
    """

    def __init__(self, path: Path, extra_buffers: bool | None = None, gpu_layers: int = 0) -> None:
        quiet()
        llama_cpp.llama_backend_init()
        parameters = llama_cpp.llama_model_default_params()
        parameters.n_gpu_layers = gpu_layers
        self.is_on_gpu = gpu_layers != 0
        self._no_devices = (ctypes.c_void_p * 1)()
        if not self.is_on_gpu:
            # An empty list: builds for GPUs would use them for large products without any layer there.
            parameters.devices = ctypes.cast(self._no_devices, ctypes.c_void_p)
        parameters.use_extra_bufts = has_sound_repacking() if extra_buffers is None else extra_buffers
        # Repacked weights are the CPU's: they would keep layers from a GPU.
        keeps = parameters.use_extra_bufts or self.is_on_gpu
        self._overrides = None if keeps else repacked_weights(path)
        if self._overrides is not None:
            parameters.tensor_buft_overrides = ctypes.cast(self._overrides, ctypes.c_void_p)
            # Repacked weights are copies: with mmap the file would be in memory a second time.
            parameters.load_mode = llama_cpp.LLAMA_LOAD_MODE_NONE
        _errors.clear()
        self._model = llama_cpp.llama_model_load_from_file(str(path).encode(), parameters)
        if not self._model:
            reason = _reason()
            raise SceError(f"{path}: llama.cpp cannot load it ({reason}); {_advice(path, reason)}")
        self._vocabulary = llama_cpp.llama_model_get_vocab(self._model)
        self.vocabulary_size = int(llama_cpp.llama_vocab_n_tokens(self._vocabulary))
        self.context_length = int(llama_cpp.llama_model_n_ctx_train(self._model))
        self.is_float32 = self.metadata("general.file_type") == "0"
        self.cache_size = cache_size(read_header(path), self.is_float32)
        self._is_normalized = self.metadata(NORMALIZER_KEY) == "NFC"
        self._tags: dict[int, str] = {}
        # llama.cpp aborts when a file without a vocabulary is asked for tokens.
        if llama_cpp.llama_vocab_type(self._vocabulary) != llama_cpp.LLAMA_VOCAB_TYPE_NONE:
            self._tags = thought_tokens(self._id_of, self._text_of)

    def metadata(self, key: str) -> str | None:
        """A value of the file's header as text."""
        buffer = ctypes.create_string_buffer(256)
        length = llama_cpp.llama_model_meta_val_str(self._model, key.encode(), buffer, len(buffer))  # type: ignore[arg-type, unused-ignore]
        return buffer.value.decode("utf-8", "replace") if length >= 0 else None

    def chat_template(self) -> str | None:
        """The file's chat template, Jinja text."""
        template = llama_cpp.llama_model_chat_template(self._model, None)
        return template.decode("utf-8", "replace") if template else None

    def special_tokens(self) -> dict[str, str]:
        """Texts of the start and end tokens, by the names that chat templates use."""
        ids = {
            "bos_token": llama_cpp.llama_vocab_bos(self._vocabulary),
            "eos_token": llama_cpp.llama_vocab_eos(self._vocabulary),
        }
        texts = {
            name: llama_cpp.llama_vocab_get_text(self._vocabulary, token) for name, token in ids.items() if token >= 0
        }
        return {name: text.decode("utf-8", "replace") for name, text in texts.items() if text}

    def tokenize(self, text: str, is_plain: bool = False) -> list[int]:
        """Token ids, normalized and with special tokens as the file requires, but without a second start token.

        Args:
            text: see also `text.SEAM`.
            is_plain: the text alone, in which no special token is recognized.
        """
        first, *others = text.split(SEAM)
        ids = self._tokens(first, is_whole=not is_plain, has_names=not is_plain)
        for part in others:
            ids += self._tokens(part, is_whole=False, has_names=not is_plain)
        start = llama_cpp.llama_vocab_bos(self._vocabulary)
        return ids[1:] if ids[:2] == [start, start] else ids

    def _tokens(self, text: str, *, is_whole: bool, has_names: bool) -> list[int]:
        """Token ids; what is whole has the start token, and names of special tokens in it may stand for these."""
        encoded = (normalize(text, "NFC") if self._is_normalized else text).encode("utf-8")
        room = len(encoded) + 8
        tokens = (llama_cpp.llama_token * room)()
        arguments = (self._vocabulary, encoded, len(encoded), tokens, room, is_whole, has_names)
        count = on_deep_stack(len(encoded), lambda: llama_cpp.llama_tokenize(*arguments))
        if count < 0:
            raise SceError(f"llama.cpp cannot tokenize a text of {len(encoded)} bytes; shorten it")
        # Behind an end token nothing would follow.
        return list(tokens[: count - (is_whole and llama_cpp.llama_vocab_get_add_eos(self._vocabulary))])

    def controls(self) -> list[str]:
        """The names of tokens that are no text."""
        attributes = llama_cpp.LLAMA_TOKEN_ATTR_CONTROL | llama_cpp.LLAMA_TOKEN_ATTR_UNKNOWN
        found = range(self.vocabulary_size)
        named = (each for each in found if llama_cpp.llama_vocab_get_attr(self._vocabulary, each) & attributes)
        return [llama_cpp.llama_vocab_get_text(self._vocabulary, each).decode("utf-8", "replace") for each in named]

    def _id_of(self, text: str) -> int | None:
        """The id of a token by its text, if the text is one token."""
        token = (llama_cpp.llama_token * 1)()
        encoded = text.encode()
        count = llama_cpp.llama_tokenize(self._vocabulary, encoded, len(encoded), token, 1, False, True)
        return int(token[0]) if count == 1 else None

    def _text_of(self, tokens: list[int]) -> str:
        return b"".join(map(self.piece, tokens)).decode("utf-8", "replace")

    def infill_tokens(self) -> InfillTokens | None:
        """The tokens for filling in the middle, which llama.cpp finds in the header or by their names."""
        prefix, suffix, middle, repository, separator = (
            int(find(self._vocabulary))
            for find in (
                llama_cpp.llama_vocab_fim_pre,
                llama_cpp.llama_vocab_fim_suf,
                llama_cpp.llama_vocab_fim_mid,
                llama_cpp.llama_vocab_fim_rep,
                llama_cpp.llama_vocab_fim_sep,
            )
        )
        if min(prefix, suffix, middle) < 0:
            return None
        has_start = llama_cpp.llama_vocab_get_add_bos(self._vocabulary)
        start = (int(llama_cpp.llama_vocab_bos(self._vocabulary)),) if has_start else ()
        others = (None if token < 0 else token for token in (repository, separator))
        return InfillTokens(start, prefix, suffix, middle, *others)

    def open_grammar(self, text: str, rule: str = "root") -> Grammar:
        """A grammar for one completion, which begins with a rule of it.

        Raises:
            SceError: llama.cpp cannot read it.
        """
        return Grammar(self._vocabulary, self.vocabulary_size, text, rule)

    def end_token(self) -> int:
        """A token that ends an answer."""
        eot = int(llama_cpp.llama_vocab_eot(self._vocabulary))
        return eot if eot >= 0 else int(llama_cpp.llama_vocab_eos(self._vocabulary))

    def piece(self, token: int, names: bool = False) -> bytes:
        """The bytes of a token; control tokens have none, except for the tags of thoughts, or with ``names`` all."""
        if token in self._tags:
            return self._tags[token].encode()
        size = 256
        while True:
            buffer = ctypes.create_string_buffer(size)
            length = llama_cpp.llama_token_to_piece(self._vocabulary, token, buffer, size, 0, names)  # type: ignore[arg-type, unused-ignore]
            if length >= 0:
                return buffer.raw[:length]
            size = -length

    def is_end(self, token: int) -> bool:
        """Whether the token ends an answer."""
        return bool(llama_cpp.llama_vocab_is_eog(self._vocabulary, token))

    def open_context(self, sequences: int, length: int, threads: int, float32_cache: bool) -> LlamaContext:
        """A context for ``sequences`` texts of up to ``length`` tokens each.

        Raises:
            SceError: llama.cpp cannot allocate it.
        """
        parameters = llama_cpp.llama_context_default_params()
        parameters.n_ctx = sequences * length
        parameters.n_batch = parameters.n_ubatch = BATCH
        parameters.n_seq_max = sequences
        parameters.n_threads = parameters.n_threads_batch = threads
        # One cache per sequence: in a unified one every token would attend over the cells of all sequences.
        parameters.kv_unified = False
        parameters.type_k = parameters.type_v = _CACHE_F32 if float32_cache else _CACHE_F16
        parameters.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED
        # A smaller cache for sliding windows would have dropped tokens that a reused prefix needs.
        parameters.swa_full = True
        # Builds for GPUs would compute large batches there, without any layer on them.
        parameters.op_offload = parameters.offload_kqv = self.is_on_gpu
        parameters.no_perf = True
        _errors.clear()
        context = llama_cpp.llama_init_from_model(self._model, parameters)
        if not context:
            raise SceError(
                f"llama.cpp cannot open {sequences} contexts of {length} tokens ({_reason()}); lower --max-tokens"
            )
        return LlamaContext(context, self.vocabulary_size, sequences)

    def load_adapter(self, path: Path) -> Any:
        """A LoRA adapter for this model, to be given to contexts; it lives as long as the model.

        Raises:
            SceError: not an adapter, or one for another model.
        """
        _errors.clear()
        adapter = llama_cpp.llama_adapter_lora_init(self._model, str(path).encode())
        if not adapter:
            raise SceError(f"{path}: llama.cpp cannot apply this adapter to the model ({_reason()})")
        return adapter

    def close(self) -> None:
        """Free the model, after its contexts."""
        if self._model:
            llama_cpp.llama_model_free(self._model)
            self._model = None


class LlamaContext:
    """KV caches of several sequences over one model, and the tokens that each holds."""

    def __init__(self, context: Any, vocabulary_size: int, sequences: int) -> None:
        self._context = context
        self._memory = llama_cpp.llama_get_memory(context)
        self._vocabulary_size = vocabulary_size
        self._batch = llama_cpp.llama_batch_init(BATCH, 0, 1)
        self.sequences = sequences
        self._held: list[list[int]] = [[] for _ in range(sequences)]
        self._token, self._position, self._count, self._wanted = (
            np.ctypeslib.as_array(field, (BATCH,))
            for field in (self._batch.token, self._batch.pos, self._batch.n_seq_id, self._batch.logits)
        )
        self._count[:] = 1

    def decode(self, tokens: list[int], positions: list[int], sequences: list[int], logits: bool) -> None:
        """Feed at most `BATCH` tokens, each at its position of its sequence; ``logits`` for all or for none.

        Raises:
            SceError: llama.cpp refuses the batch.
        """
        size = len(tokens)
        self._token[:size] = tokens
        self._position[:size] = positions
        self._wanted[:size] = logits
        for row, sequence in enumerate(sequences):
            self._batch.seq_id[row][0] = sequence
        self._batch.n_tokens = size
        _errors.clear()
        status = llama_cpp.llama_decode(self._context, self._batch)
        if status != 0:
            raise SceError(f"llama.cpp cannot decode a batch of {size} tokens (status {status}; {_reason()})")
        llama_cpp.llama_synchronize(self._context)
        for token, position, sequence in zip(tokens, positions, sequences, strict=True):
            held = self._held[sequence]
            del held[position:]
            held.append(token)

    def logits(self, rows: int) -> np.ndarray[Any, np.dtype[np.float32]]:
        """Logits of the last batch (rows, vocabulary); valid until the next one."""
        pointer = llama_cpp.llama_get_logits(self._context)
        return np.ctypeslib.as_array(pointer, (rows, self._vocabulary_size))

    def copy(self, source: int, target: int, length: int) -> int:
        """Make ``target`` a copy of the first ``length`` tokens of ``source``; returns how many it holds, as `cut`."""
        self.clear(target)
        llama_cpp.llama_memory_seq_cp(self._memory, source, target, -1, -1)
        self._held[target] = list(self._held[source])
        return self.cut(target, length)

    def cut(self, sequence: int, length: int) -> int:
        """Keep the first ``length`` tokens of a sequence; returns how many it holds.

        That is 0 if llama.cpp cannot remove the others: the state of a recurrent layer is that after the last token.
        """
        if length < len(self._held[sequence]) and not llama_cpp.llama_memory_seq_rm(self._memory, sequence, length, -1):
            self.clear(sequence)
        del self._held[sequence][length:]
        return len(self._held[sequence])

    def held(self, sequence: int) -> int:
        """The number of tokens in a sequence."""
        return len(self._held[sequence])

    def longest_prefix(self, tokens: Sequence[int], order: Sequence[int]) -> tuple[int, int]:
        """The first of some sequences with the longest common prefix with ``tokens``, and its length."""
        lengths = {sequence: _common(self._held[sequence], tokens) for sequence in order}
        best = max(order, key=lengths.__getitem__)
        return best, lengths[best]

    def use_adapter(self, adapter: Any) -> None:
        """Apply a LoRA adapter of `LlamaModel.load_adapter` to all following computations.

        Raises:
            SceError: llama.cpp refuses.
        """
        adapters = (type(adapter) * 1)(adapter)
        scales = (ctypes.c_float * 1)(1.0)
        if llama_cpp.llama_set_adapters_lora(self._context, adapters, 1, scales) != 0:
            raise SceError(f"llama.cpp cannot apply the adapter ({_reason()})")

    def clear(self, sequence: int) -> int:
        """Forget a sequence; returns how many tokens it holds then, 0.

        Raises:
            SceError: llama.cpp refuses.
        """
        if not llama_cpp.llama_memory_seq_rm(self._memory, sequence, -1, -1):
            raise SceError(f"llama.cpp cannot clear sequence {sequence} of its cache")
        self._held[sequence].clear()
        return 0

    def close(self) -> None:
        """Free the caches."""
        if self._context:
            llama_cpp.llama_batch_free(self._batch)
            llama_cpp.llama_free(self._context)
            self._context = None


def has_sound_repacking() -> bool:
    """Whether this build's kernels for repacked weights are used: not with AMX.

    Compiled by gcc 12, those crash (llama.cpp issue 20824); `sce doctor` tests them.
    """
    return b"AMX_INT8 = 1" not in llama_cpp.llama_print_system_info()


def free_gpu_bytes(kind: int = _GPU) -> int | None:
    """Free memory of the first device of a kind of ggml's, by default a GPU; None without one."""
    from llama_cpp._ggml import libggml

    libggml.ggml_backend_dev_by_type.restype = ctypes.c_void_p
    device = libggml.ggml_backend_dev_by_type(kind)
    if not device:
        return None
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    libggml.ggml_backend_dev_memory(ctypes.c_void_p(device), ctypes.byref(free), ctypes.byref(total))
    return free.value


def max_sequences() -> int:
    """Maximum number of sequences in one context of this build."""
    return int(llama_cpp.llama_max_parallel_sequences())


def _common(first: Sequence[int], second: Sequence[int]) -> int:
    """Length of the common prefix."""
    for length, (left, right) in enumerate(zip(first, second, strict=False)):
        if left != right:
            return length
    return min(len(first), len(second))


def _advice(path: Path, reason: str) -> str:
    """What to do about a file that llama.cpp cannot load."""
    if unknown := re.search(r"unknown (?:model architecture|pre-tokenizer type): '([^']*)'", reason):
        other = "export it with --pre-tokenizer NAME" if "pre-tokenizer" in reason else "take another file"
        return f"this llama.cpp does not know {unknown[1]}: {other}, or take a newer llama-cpp-python"
    if re.search(r"unable to allocate|failed to allocate|out of memory", reason):
        return "the memory does not suffice: take a smaller model, or end other programs"
    return "export it again" if manifest_path(path).is_file() else "the file is cut or damaged: download it again"


def _reason() -> str:
    return "; ".join(_errors[:3]) or "no reason given"
