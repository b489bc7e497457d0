"""Decoding on a CPU at 1.3 B: one sequence and eight at once, compared with other runtimes on the same files.

    python benchmarks/decode.py --tokenizer DIR --json benchmarks/results/decode.json

Random weights of DeepSeek-Coder-1.3B's shape as GGUF (q8_0, q4_k_m) and ONNX (int8, int4), all on one thread. A
measurement is a process of its own; ours and theirs take turns, and a ratio is the median over the turns. Speeds are
tokens per second of CPU time (``cpu``), which other users of the machine disturb least, and of wall time
(``wall``).

    ours-1, ours-8    our runtimes: 32 tokens of one sample; of 8 samples of one prompt
    loop-8            GGUF: 8 calls of llama-cpp-python's Llama.create_completion, whose own cache holds the prompt
                      ONNX: our runtime, asked for one sample 8 times
    raw-1             GGUF: llama_decode and a sampler in a loop, as llama.cpp's simplest example
    genai-1, genai-8  ONNX: the same graph in onnxruntime-genai, if that is installed

Also: the time to the first token of a prompt of 400 tokens whose beginning was computed before, over that of the first
time; and the peak resident memory over what the file, the keys and values, and 300 MB take.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from random_model import make_model
from record import publish, worker

PROMPT = "Write a program that reads n numbers and prints the largest of them, then their sum.\n"
TOKENS, SAMPLES, TURNS = 32, 8, 3
LONG_PROMPT = "".join(f"x{number} = int(input())\n" for number in range(100))
GGUF, ONNX = ("q8_0", "q4_k_m"), ("int8", "int4")


class Clock:
    """CPU time of this process and of a child, and wall time."""

    def __init__(self, child: int | None = None) -> None:
        self._child = child
        self._started = self._now()

    def spent(self) -> tuple[float, float]:
        """Processor and wall seconds since the beginning."""
        return tuple(b - a for a, b in zip(self._started, self._now(), strict=True))  # type: ignore[return-value]

    def _now(self) -> tuple[float, float]:
        cpu = time.process_time()
        if self._child is not None:
            fields = Path(f"/proc/{self._child}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
            cpu += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        return cpu, time.monotonic()


def timed(run: Callable[[], int], child: int | None = None) -> dict[str, float]:
    """Tokens per second of what ``run`` makes."""
    clock = Clock(child)
    tokens = run()
    cpu, wall = clock.spent()
    return {"tokens": tokens, "cpu": round(tokens / cpu, 3), "wall": round(tokens / wall, 3)}


def open_ours(path: Path) -> Any:
    """Our runtime for a file or a folder, with places for `SAMPLES`."""
    if path.is_dir():
        from securecoderl_edge.runtimes.onnx.runtime import OnnxRuntime

        return OnnxRuntime(path, threads=1, parallel=SAMPLES)
    from securecoderl_edge.runtimes.gguf.runtime import GgufRuntime

    return GgufRuntime(path, threads=1, parallel=SAMPLES, reuses_prefixes=True)


def ours(path: Path, samples: int, calls: int) -> dict[str, float]:
    """``calls`` requests for ``samples`` samples each."""
    from securecoderl_edge.runtimes.protocol import Sampling

    runtime = open_ours(path)
    # As in the others, the prompt has been computed and the caches are there before the clock starts.
    runtime.generate([PROMPT], samples, Sampling(0.8, 4))

    def run() -> int:
        answers = [runtime.generate([PROMPT], samples, Sampling(0.8, TOKENS, seed))[0] for seed in range(calls)]
        return sum(len(answer.token_ids) for row in answers for answer in row)

    found = timed(run, getattr(runtime, "process_id", None))
    runtime.close()
    return found


def llama_loop(path: Path) -> dict[str, float]:
    """`SAMPLES` calls of llama-cpp-python's own interface."""
    import llama_cpp
    from llama_cpp import Llama

    # The stock kernels crash on some processors; ours leave them out too where they do.
    defaults = llama_cpp.llama_cpp.llama_model_default_params

    def without_repacking() -> Any:
        parameters = defaults()
        parameters.use_extra_bufts = b"AMX_INT8 = 1" not in llama_cpp.llama_print_system_info()
        return parameters

    llama_cpp.llama_cpp.llama_model_default_params = without_repacking
    model = Llama(str(path), n_ctx=512, n_threads=1, n_threads_batch=1, verbose=False)
    options: dict[str, Any] = {"temperature": 0.8, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "repeat_penalty": 1.0}
    model.create_completion(PROMPT, max_tokens=4, seed=0, **options)

    def run() -> int:
        tokens = 0
        for seed in range(SAMPLES):
            answer: Any = model.create_completion(PROMPT, max_tokens=TOKENS, seed=seed, **options)
            tokens += answer["usage"]["completion_tokens"]
        return tokens

    return timed(run)


def llama_raw(path: Path) -> dict[str, float]:
    """One sequence by llama_decode alone."""
    import llama_cpp

    from securecoderl_edge.runtimes.gguf.llama import LlamaModel

    model = LlamaModel(path)
    prompt = model.tokenize(PROMPT)
    parameters = llama_cpp.llama_context_default_params()
    parameters.n_ctx, parameters.n_threads, parameters.n_threads_batch = 512, 1, 1
    parameters.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED
    context = llama_cpp.llama_init_from_model(model._model, parameters)
    sampler = llama_cpp.llama_sampler_chain_init(llama_cpp.llama_sampler_chain_default_params())
    llama_cpp.llama_sampler_chain_add(sampler, llama_cpp.llama_sampler_init_temp(0.8))
    llama_cpp.llama_sampler_chain_add(sampler, llama_cpp.llama_sampler_init_dist(1))

    def feed(tokens: list[int]) -> None:
        array = (llama_cpp.llama_token * len(tokens))(*tokens)
        if llama_cpp.llama_decode(context, llama_cpp.llama_batch_get_one(array, len(tokens))):
            raise SystemExit("llama_decode failed")

    feed(prompt[:-1])
    token = prompt[-1]

    def run() -> int:
        nonlocal token
        for _ in range(TOKENS):
            feed([token])
            token = llama_cpp.llama_sampler_sample(sampler, context, -1)
        return TOKENS

    return timed(run)


def genai(path: Path, rows: int) -> dict[str, float]:
    """The same graph, driven by onnxruntime-genai."""
    import onnxruntime_genai

    from securecoderl_edge.models.tokenizer import read_tokenizer

    model = onnxruntime_genai.Model(str(path))
    # Its own tokenizer does not understand the regular expressions of this one.
    prompt = read_tokenizer(path).encode_prompt(PROMPT)
    parameters = onnxruntime_genai.GeneratorParams(model)
    parameters.set_search_options(
        max_length=len(prompt) + TOKENS, batch_size=rows, do_sample=True, temperature=0.8, top_k=0, top_p=1.0
    )
    generator = onnxruntime_genai.Generator(model, parameters)
    generator.append_tokens([prompt] * rows if rows > 1 else prompt)

    def run() -> int:
        steps = 0
        while not generator.is_done():
            generator.generate_next_token()
            steps += 1
        return steps * rows

    return timed(run)


def write_genai_config(folder: Path) -> None:
    """The configuration that onnxruntime-genai needs for one of our folders."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    names = {"past_key_names": "past_key_values.%d.key", "past_value_names": "past_key_values.%d.value"}
    presents = {"present_key_names": "present.%d.key", "present_value_names": "present.%d.value"}
    decoder = {
        "session_options": {"intra_op_num_threads": 1, "log_severity_level": 3, "provider_options": []},
        "filename": "model.onnx",
        "head_size": config["hidden_size"] // config["num_attention_heads"],
        "hidden_size": config["hidden_size"],
        "inputs": {"input_ids": "input_ids", "attention_mask": "attention_mask", **names},
        "outputs": {"logits": "logits", **presents},
        "num_attention_heads": config["num_attention_heads"],
        "num_hidden_layers": config["num_hidden_layers"],
        "num_key_value_heads": config["num_key_value_heads"],
    }
    model = {
        "bos_token_id": config.get("bos_token_id") or 0,
        "eos_token_id": config["vocab_size"] - 1,  # one that is never drawn
        "pad_token_id": 0,
        "context_length": config["max_position_embeddings"],
        "vocab_size": config["vocab_size"],
        "type": "llama",
        "decoder": decoder,
    }
    search = {"past_present_share_buffer": True, "max_length": 512}
    (folder / "genai_config.json").write_text(json.dumps({"model": model, "search": search}), encoding="utf-8")


def first_token(path: Path) -> dict[str, float]:
    """Seconds to the first token of a long prompt, and of another that begins as it did."""
    from securecoderl_edge.runtimes.protocol import Sampling

    runtime = open_ours(path)
    runtime.generate([PROMPT], 1, Sampling(0.8, 4))
    seconds = [
        runtime.generate([LONG_PROMPT + end], 1, Sampling(0.8, 1))[0][0].token_seconds[0]
        for end in ("print(x1)", "print(x2 + x3)")
    ]
    tokens = runtime.count_tokens(LONG_PROMPT)
    runtime.close()
    return {"prompt_tokens": tokens, "cold": round(seconds[0], 3), "cached": round(seconds[1], 3)}


def memory(path: Path) -> dict[str, float]:
    """Peak resident memory of eight samples, and what is to be expected."""
    from securecoderl_edge.models.architecture import read_architecture
    from securecoderl_edge.runtimes.protocol import Sampling

    runtime = open_ours(path)
    runtime.generate([PROMPT], SAMPLES, Sampling(0.8, TOKENS))
    peak = runtime.usage().peak_rss_bytes
    length = runtime.count_tokens(PROMPT) + TOKENS
    runtime.close()
    shape = read_architecture(path if path.is_dir() else path.parent / "base")
    if path.is_dir():
        size, numbers = sum(file.stat().st_size for file in path.iterdir()), 4
    else:
        size, numbers, length = path.stat().st_size, 2, -(-length // 256) * 256
    cache = 2 * shape.layers * shape.key_value_heads * shape.head_size * numbers * length * SAMPLES
    return {"peak_mb": round(peak / 1e6), "file_mb": round(size / 1e6), "cache_mb": round(cache / 1e6)}


WORKERS: dict[str, Callable[[Path], dict[str, float]]] = {
    "ours-1": lambda path: ours(path, 1, 1),
    "ours-8": lambda path: ours(path, SAMPLES, 1),
    "loop-8": lambda path: ours(path, 1, SAMPLES) if path.is_dir() else llama_loop(path),
    "raw-1": llama_raw,
    "genai-1": lambda path: genai(path, 1),
    "genai-8": lambda path: genai(path, SAMPLES),
    "first-token": first_token,
    "memory": memory,
}


def measure(what: str, path: Path) -> dict[str, float]:
    """One measurement, in a process of its own."""
    found: dict[str, float] = worker(__file__, "--worker", what, path, OMP_NUM_THREADS="1")
    sys.stdout.write(f"{path.name:12s} {what:12s} {found}\n")
    sys.stdout.flush()
    return found


def make_files(folder: Path, tokenizer: Path | None, layers: int | None) -> dict[str, Path]:
    """The model in every format, by the name of its type."""
    from securecoderl_edge.export.gguf import write_gguf
    from securecoderl_edge.export.merge import copy_companions
    from securecoderl_edge.export.onnx import write_onnx
    from securecoderl_edge.export.quantize import quantize

    base = folder / "base"
    make_model(base, tokenizer, layers)
    files = {quant: folder / f"{quant}.gguf" for quant in GGUF}
    write_gguf(base, None, "f16", folder / "f16.gguf", "model")
    write_gguf(base, None, "q8_0", files["q8_0"], "model")
    quantize(folder / "f16.gguf", files["q4_k_m"], "q4_k_m")
    (folder / "f16.gguf").unlink()
    for quant in ONNX:
        files[quant] = folder / f"onnx-{quant}"
        files[quant].mkdir()
        write_onnx(base, None, quant, files[quant])
        copy_companions(base, files[quant], None)
        write_genai_config(files[quant])
    return files


def median_ratio(turns: list[dict[str, dict[str, float]]], ours: str, theirs: str, clock: str) -> float:
    """Over the turns, how much faster one was than the other."""
    return round(statistics.median(turn[ours][clock] / turn[theirs][clock] for turn in turns), 3)


def main() -> None:
    """Make the files, let ours and theirs take turns, publish."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--tokenizer", type=Path, help="folder with the tokenizer of the model; else the built-in one")
    parser.add_argument("--quick", action="store_true", help="two layers, one turn")
    parser.add_argument("--json", type=Path, help="file for the results")
    parser.add_argument("--worker", nargs=2, metavar=("WHAT", "PATH"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        what, path = arguments.worker
        sys.stdout.write(f"{json.dumps(WORKERS[what](Path(path)))}\n")
        return
    has_genai = importlib.util.find_spec("onnxruntime_genai") is not None
    turns: dict[str, list[dict[str, dict[str, float]]]] = {}
    extra: dict[str, dict[str, dict[str, float]]] = {}
    with tempfile.TemporaryDirectory() as name:
        files = make_files(Path(name), arguments.tokenizer, 2 if arguments.quick else None)
        for quant, path in files.items():
            others = ("raw-1",) if quant in GGUF else ("genai-1", "genai-8") if has_genai else ()
            turns[quant] = [
                {what: measure(what, path) for what in ("loop-8", "ours-8", "ours-1", *others)}
                for _ in range(1 if arguments.quick else TURNS)
            ]
            extra[quant] = {
                what: measure(what, path) for what in ("memory", *(["first-token"] if quant in GGUF else []))
            }
    over = {
        quant: found["memory"]["peak_mb"] / (found["memory"]["file_mb"] + found["memory"]["cache_mb"] + 300)
        for quant, found in extra.items()
    }
    cached = [extra[quant]["first-token"] for quant in GGUF]
    measured: dict[str, Any] = {
        **{f"batch8_ratio_{quant}": median_ratio(turns[quant], "ours-8", "loop-8", "cpu") for quant in GGUF},
        **{f"onnx_{quant}_batch8_ratio": median_ratio(turns[quant], "ours-8", "loop-8", "cpu") for quant in ONNX},
        **{f"single_ratio_{quant}": median_ratio(turns[quant], "ours-1", "raw-1", "cpu") for quant in GGUF},
        "ttft_cached_ratio": round(max(found["cached"] / found["cold"] for found in cached), 3),
        "rss_over_expected": round(max(over.values()), 3),
    }
    if has_genai:
        for rows in (1, 8):
            measured |= {
                f"onnx_{quant}_genai_ratio_{rows}": median_ratio(turns[quant], f"ours-{rows}", f"genai-{rows}", "cpu")
                for quant in ONNX
            }
    publish({**measured, "turns": turns, "extra": extra}, arguments.json)


if __name__ == "__main__":
    main()
