"""Child process of `kernels`: runs a tiny random model through llama.cpp's quantized kernels, which may crash.

A batch of two tokens uses other kernels than the same tokens one by one, so the results are compared. The batch is also
compared with a float file of the same weights, in case all quantized kernels have the same error.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from securecoderl_edge.system import processes
from securecoderl_edge.system.processes import write_message

# Rows consist of whole blocks of every type, and their numbers suit the repacking kernels.
HIDDEN, INNER, HEADS, VOCABULARY = 256, 512, 4, 256
MATRICES = {
    "token_embd": (VOCABULARY, HIDDEN),
    "blk.0.attn_q": (HIDDEN, HIDDEN),
    "blk.0.attn_k": (HIDDEN, HIDDEN),
    "blk.0.attn_v": (HIDDEN, HIDDEN),
    "blk.0.attn_output": (HIDDEN, HIDDEN),
    "blk.0.ffn_gate": (INNER, HIDDEN),
    "blk.0.ffn_up": (INNER, HIDDEN),
    "blk.0.ffn_down": (HIDDEN, INNER),
    "output": (VOCABULARY, HIDDEN),
}
NORMS = ("blk.0.attn_norm", "blk.0.ffn_norm", "output_norm")
TOKENS = [17, 101]

Array = np.ndarray[Any, np.dtype[np.float32]]


def main() -> None:
    """Answer with the build and, if a type is requested, with the errors of its kernels."""
    request, answers = processes.request(), processes.answers()
    import llama_cpp

    from securecoderl_edge.runtimes.gguf.llama import has_sound_repacking

    system = llama_cpp.llama_print_system_info().decode("ascii", "replace")
    build = {"version": llama_cpp.__version__, "system_info": system, "sound_repacking": has_sound_repacking()}
    write_message(answers, build)
    if request["quant"] is None:
        return
    quantized, same = (Path(request["folder"]) / name for name in ("blocks.gguf", "float.gguf"))
    _write_models(quantized, same, request["quant"])
    batch = _logits(quantized, request["extra_buffers"], at_once=True)
    single = _logits(quantized, request["extra_buffers"], at_once=False)
    expected = _logits(same, extra_buffers=False, at_once=True)
    errors = {"batch_error": _relative_error(batch, single), "float_error": _relative_error(batch, expected)}
    write_message(answers, errors)


def _write_models(quantized: Path, same: Path, quant: str) -> None:
    """A Llama of one layer without a vocabulary, and its weights after rounding as float32."""
    import gguf

    kinds = gguf.GGMLQuantizationType
    kind = kinds[quant.upper()]
    generator = np.random.default_rng(7)
    writers = [gguf.GGUFWriter(path, "llama") for path in (quantized, same)]
    for writer in writers:
        writer.add_block_count(1)
        writer.add_context_length(256)
        writer.add_embedding_length(HIDDEN)
        writer.add_feed_forward_length(INNER)
        writer.add_head_count(HEADS)
        writer.add_head_count_kv(HEADS)
        writer.add_layer_norm_rms_eps(1e-5)
        writer.add_rope_dimension_count(HIDDEN // HEADS)
        writer.add_vocab_size(VOCABULARY)
        writer.add_tokenizer_model("no_vocab")
        for name in NORMS:
            writer.add_tensor(f"{name}.weight", np.ones(HIDDEN, np.float32))
    for name, shape in MATRICES.items():
        weight = generator.standard_normal(shape, np.float32) / np.float32(shape[1] ** 0.5)
        blocks = gguf.quants.quantize(weight, kind)
        writers[0].add_tensor(f"{name}.weight", blocks, raw_dtype=kind)
        writers[1].add_tensor(f"{name}.weight", gguf.quants.dequantize(blocks, kind))
    for writer in writers:
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()


def _logits(path: Path, extra_buffers: bool, at_once: bool) -> Array:
    """Logits after each of `TOKENS` (T, vocabulary)."""
    from securecoderl_edge.runtimes.gguf.llama import LlamaModel

    model = LlamaModel(path, extra_buffers)
    context = model.open_context(1, 256, 2, float32_cache=True)
    try:
        if at_once:
            context.decode(TOKENS, [0, 1], [0, 0], logits=True)
            return context.logits(2).copy()
        rows = []
        for position, token in enumerate(TOKENS):
            context.decode([token], [position], [0], logits=True)
            rows.append(context.logits(1).copy())
        return np.concatenate(rows)
    finally:
        context.close()
        model.close()


def _relative_error(logits: Array, expected: Array) -> float:
    error = float(np.abs(logits - expected).max() / np.abs(expected).max())
    return min(error, 1e30) if error == error else 1e30  # JSON and comparisons want a number


if __name__ == "__main__":
    main()
