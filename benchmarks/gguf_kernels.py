"""How fast llama.cpp computes GGUF files of one model in different types, and how much of it is not llama.cpp.

    sce export qwen-0.5b --quant q4_0 --out half-q4_0.gguf
    python benchmarks/gguf_kernels.py qwen-0.5b.gguf half-q4_0.gguf --json benchmarks/results/gguf-kernels.json

Tokens per second of CPU time on one thread, with the batches of `sce bench`: prompts of HumanEval, then greedy steps of
all rows. Rounds alternate between the files; each has a process of its own. ``LLAMA_CPP_LIB_PATH`` names a
folder with other builds of llama.cpp's libraries, for example without AVX-512.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from record import publish, worker

ROWS, PROMPTS, NEW_TOKENS = 32, 2, 6


def main() -> None:
    """Measure each file, print and save the medians."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="GGUF files")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="one round with few rows")
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--json", type=Path, help="file for the results")
    arguments = parser.parse_args()
    if arguments.measure:
        sys.stdout.write(json.dumps(measured(arguments.files[0], 4 if arguments.quick else ROWS)))
        return
    found: dict[str, list[dict[str, float]]] = {file.name: [] for file in arguments.files}
    for _ in range(1 if arguments.quick else arguments.rounds):
        for file in arguments.files:
            words = [file, "--measure", *(["--quick"] if arguments.quick else [])]
            found[file.name].append(worker(__file__, *words, OMP_NUM_THREADS="1"))
    rows = {
        name: {key: round(statistics.median(each[key] for each in rounds), 3) for key in rounds[0]}
        for name, rounds in found.items()
    }
    publish({"files": rows, "rounds": found, "features": features()}, arguments.json, shown=rows)


def measured(file: Path, rows: int) -> dict[str, float]:
    """Speeds of one file, and the share of CPU time in decoding steps that llama.cpp does not take."""
    from securecoderl_edge.problems.sources import open_problems
    from securecoderl_edge.prompts.chat import ChatTemplate
    from securecoderl_edge.prompts.styles import PromptFormat
    from securecoderl_edge.runtimes.gguf.batching import BatchDecoder, GgufTask
    from securecoderl_edge.runtimes.gguf.llama import LlamaModel
    from securecoderl_edge.runtimes.protocol import Sampling

    with closing(LlamaModel(file)) as model:
        template = model.chat_template()
        chat = ChatTemplate(template, model.special_tokens(), file.name) if template else None
        format = PromptFormat("chat" if chat else "code", chat)
        problems = open_problems("humaneval", sys.maxsize)[:PROMPTS]
        prompts = [model.tokenize(format.prompt(problem)) for problem in problems]
        sampling = Sampling(0.0, NEW_TOKENS)
        tasks = [GgufTask(row, prompts[row * PROMPTS // rows], sampling, (row,)) for row in range(rows)]
        with closing(model.open_context(rows, max(map(len, prompts)) + NEW_TOKENS, 1, float32_cache=False)) as context:
            decoder, inside = BatchDecoder(model, context), Stopwatch()
            context.decode = inside.timed(context.decode)  # type: ignore[method-assign]
            decoder.add(tasks)
            prompt_seconds, inside.seconds = inside.seconds, 0.0
            started = time.process_time()
            for _ in range(NEW_TOKENS):
                decoder.step()
            step_seconds = time.process_time() - started
        spent = decoder.spent
        return {
            "prompt_tokens_per_cpu_second": spent.prompt_tokens / prompt_seconds,
            "decode_tokens_per_cpu_second": spent.decode_tokens / step_seconds,
            "share_outside_llama_cpp": 1 - inside.seconds / step_seconds,
            "bytes": file.stat().st_size,
        }


class Stopwatch:
    """CPU seconds in calls of a function."""

    seconds = 0.0

    def timed(self, function: Any) -> Any:
        """The function, with its time added."""

        def call(*arguments: Any, **named: Any) -> Any:
            started = time.process_time()
            try:
                return function(*arguments, **named)
            finally:
                self.seconds += time.process_time() - started

        return call


def features() -> str:
    """What the kernels of this build of llama.cpp may use."""
    import llama_cpp

    return str(llama_cpp.llama_print_system_info().decode())


if __name__ == "__main__":
    main()
