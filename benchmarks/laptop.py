"""What a laptop gives: memory, first token, speed of one and of eight answers, compared with llama-cpp-python.

    python benchmarks/laptop.py --json benchmarks/results/laptop.json

For each model, in turns, each measurement a process of its own, all cores, an idle machine:

    ours        the whole process of `sce generate`: one greedy answer to a prompt, from start to end
    theirs      the whole process of a script with llama-cpp-python: Llama(...).create_completion, the same prompt,
                greedy, as many tokens
    one, eight  our runtime with the model loaded: one answer, and eight answers at once, of 128 tokens each
    loop        the same model in llama-cpp-python: eight calls of create_completion, one after the other
    memory      eight answers of 512 tokens at once: the largest anonymous memory of all processes of `sce`, which is
                what is in memory next to the pages of the model's file

Quality is measured by `laptop_quality.py`, by the plan in `laptop.md`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from record import publish, worker

MODELS = ("smollm2", "qwen-0.5b", "qwen-1.5b")
PROMPT = "Write a function that returns the longest palindrome within a text, and explain how it works."
TOKENS, SAMPLES, TURNS = 128, 8, 3
LONG = 512
GREEDY: dict[str, Any] = {"temperature": 0.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "repeat_penalty": 1.0}


def prompt_of(model: str) -> tuple[Path, str]:
    """The file of a model, and the text that our runtime gives it for `PROMPT`."""
    from securecoderl_edge.generation.inputs import prompt_problem
    from securecoderl_edge.runtimes.opening import RuntimeSettings, opened
    from securecoderl_edge.runtimes.spec import resolve_model

    spec = resolve_model(model)
    with opened(spec, RuntimeSettings("cpu"), parallel=1) as (_, format):
        return Path(spec.source), format.prompt(prompt_problem(PROMPT))


def ours(model: str, tokens: int) -> dict[str, Any]:
    """Wall seconds of a whole `sce generate`, and its tokens."""
    command = [sys.executable, "-m", "securecoderl_edge", "generate", "--model", model, "--jsonl", "/dev/stdin"]
    flags = ["--temperature", "0", "--max-tokens", str(tokens)]
    started = time.perf_counter()
    done = subprocess.run(
        [*command, *flags], input=json.dumps({"prompt": PROMPT}), capture_output=True, text=True, check=False
    )
    seconds = time.perf_counter() - started
    row = json.loads(done.stdout)
    return {"seconds": seconds, "tokens": row["completion_tokens"]}


def theirs(file: str, prompt: str, tokens: int) -> dict[str, Any]:
    """Wall seconds of the same by llama-cpp-python, Python's start and the loading of the model included."""
    script = (
        "import sys, json, llama_cpp\n"
        "model = llama_cpp.Llama(sys.argv[1], n_ctx=2048, n_threads=int(sys.argv[4]), verbose=False)\n"
        "options = json.loads(sys.argv[5])\n"
        "answer = model.create_completion(json.loads(sys.argv[2]), max_tokens=int(sys.argv[3]), **options)\n"
        "print(answer['usage']['completion_tokens'])\n"
    )
    words = [file, json.dumps(prompt), str(tokens), str(cores()), json.dumps(GREEDY)]
    started = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", script, *words], capture_output=True, text=True, check=True)
    return {"seconds": time.perf_counter() - started, "tokens": int(done.stdout)}


def cores() -> int:
    """The cores that both sides use."""
    from securecoderl_edge.system.machine import cpu_count

    return cpu_count()


def batch(model: str) -> dict[str, Any]:
    """Speed of one and of eight answers, and the first token, of the loaded model."""
    from securecoderl_edge.runtimes.opening import RuntimeSettings, open_runtime
    from securecoderl_edge.runtimes.protocol import Sampling
    from securecoderl_edge.runtimes.spec import resolve_model

    _, prompt = prompt_of(model)
    runtime = open_runtime(resolve_model(model), RuntimeSettings("cpu"), parallel=SAMPLES)
    runtime.generate([prompt], SAMPLES, Sampling(0.8, 2))  # caches of the system, not of the prompt
    found = {}
    for name, samples in (("one", 1), ("eight", SAMPLES)):
        started = time.perf_counter()
        (answers,) = runtime.generate([prompt], samples, Sampling(0.8, TOKENS, seed=1))
        seconds = time.perf_counter() - started
        found[f"{name}_tokens_per_second"] = sum(len(each.token_ids) for each in answers) / seconds
        found[f"{name}_first_token_seconds"] = min(each.token_seconds[0] for each in answers)
    runtime.close()
    return found


def loop(model: str) -> dict[str, Any]:
    """Speed of eight answers in llama-cpp-python, one after the other; the prompt is in its cache after the first."""
    from llama_cpp import Llama

    file, prompt = prompt_of(model)
    llama = Llama(str(file), n_ctx=2048, n_threads=cores(), verbose=False)
    options = {**GREEDY, "temperature": 0.8}
    llama.create_completion(prompt, max_tokens=2, seed=0, **options)
    tokens, started = 0, time.perf_counter()
    for seed in range(SAMPLES):
        answer: Any = llama.create_completion(prompt, max_tokens=TOKENS, seed=seed, **options)
        tokens += answer["usage"]["completion_tokens"]
    return {"loop_tokens_per_second": tokens / (time.perf_counter() - started)}


def memory(model: str) -> dict[str, Any]:
    """The largest anonymous memory and the peak of all memory of eight answers of 512 tokens."""
    from securecoderl_edge.runtimes.opening import RuntimeSettings, open_runtime
    from securecoderl_edge.runtimes.protocol import Sampling
    from securecoderl_edge.runtimes.spec import resolve_model

    _, prompt = prompt_of(model)
    runtime: Any = open_runtime(resolve_model(model), RuntimeSettings("cpu"), parallel=SAMPLES)
    largest, is_done = [0], threading.Event()

    def watch() -> None:
        while not is_done.wait(0.05):
            largest[0] = max(largest[0], sum(map(anonymous, ("self", runtime.process_id))))

    watcher = threading.Thread(target=watch)
    watcher.start()
    runtime.generate([prompt], SAMPLES, Sampling(0.8, LONG, seed=1))
    is_done.set()
    watcher.join()
    peak = runtime.usage().peak_rss_bytes
    runtime.close()
    return {"anonymous_gib": largest[0] / 2**30, "peak_rss_gib": peak / 2**30}


def anonymous(process: object) -> int:
    """Anonymous resident bytes of a process."""
    lines = Path(f"/proc/{process}/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("RssAnon"))


def measured(model: str, turns: int) -> dict[str, Any]:
    """All figures of a model, medians of some turns; speeds and times as ratios to the peer as well."""
    file, prompt = prompt_of(model)
    rows: list[dict[str, Any]] = []
    for _ in range(turns):
        mine = ours(model, TOKENS)
        other = theirs(str(file), prompt, mine["tokens"])
        row = {"ours_seconds": mine["seconds"], "theirs_seconds": other["seconds"], "tokens": mine["tokens"]}
        row["their_tokens"] = other["tokens"]
        row |= worker(__file__, "--worker", "batch", model) | worker(__file__, "--worker", "loop", model)
        row["more_seconds"] = row["ours_seconds"] - 1.05 * row["theirs_seconds"]
        row["eight_over_loop"] = row["eight_tokens_per_second"] / row["loop_tokens_per_second"]
        rows.append(row)
    found = {name: round(statistics.median(row[name] for row in rows), 3) for name in rows[0]}
    found |= worker(__file__, "--worker", "memory", model)
    return found | {"file_gib": file.stat().st_size / 2**30}


WORKERS: dict[str, Callable[[str], dict[str, Any]]] = {"batch": batch, "loop": loop, "memory": memory}


def main() -> None:
    """Measure, print a table, publish."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--models", default=",".join(MODELS), help="names, with commas")
    parser.add_argument("--quick", action="store_true", help="the smallest model, one turn")
    parser.add_argument("--worker", nargs=2, metavar=("KIND", "MODEL"), help=argparse.SUPPRESS)
    parser.add_argument("--json", type=Path, help="file for the results")
    arguments = parser.parse_args()
    if arguments.worker:
        kind, model = arguments.worker
        sys.stdout.write(json.dumps(WORKERS[kind](model)) + "\n")
        return
    models = MODELS[:1] if arguments.quick else arguments.models.split(",")
    results = {}
    for model in models:
        results[model] = measured(model, 1 if arguments.quick else TURNS)
        sys.stdout.write(f"{model}: {json.dumps(results[model])}\n")
        sys.stdout.flush()
    publish({"prompt": PROMPT, "models": results}, arguments.json)


if __name__ == "__main__":
    main()
