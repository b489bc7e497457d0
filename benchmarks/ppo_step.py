"""What does an update cost, in CPU time and memory? Against ourselves with Hugging Face's generate, and TRL's RLOO.

    python benchmarks/ppo_step.py --json benchmarks/results/ppo-step.json

The peer is an optional dependency of this script alone: ``pip install -c constraints.txt trl==1.16.0``.

All three take a small random Llama (hidden size 256, 4 layers, 4,096 words, float32), LoRA of rank 16 on q, k, v, o,
4 prompts of 64 tokens with 2 completions of exactly 128 tokens each, and 4 passes over those 8 with a KL penalty. The
end of sequence is an id past the model's vocabulary: nobody can draw it, so all have the same work. The reward is a
checksum of the completion's text, no program runs. Every measurement is a process of its own, by turns, with the same
environment; its CPU seconds are counted after one update to warm up. Completions differ, so that ours finds none to
process once, and all 8 fit into one piece.

What differs still:

* Ours processes a prompt once for its two completions, TRL each sequence whole: 1,280 tokens a pass against 1,536.
* Ours samples from merged weights; `hf` and TRL generate with the adapters beside the weights.
* The reference of ours is a second adapter, TRL's is the model without one, which is cheaper.
* TRL computes the exact entropy for its log, ours estimates it from the tokens drawn; ours logs more of the ratios, and
  looks for a program in each completion.
* RLOO takes one ratio a sequence, ours one a token. Neither has a value head: ours has none with advantage = group.
* TRL's process also holds what it imports (datasets, pandas, pyarrow); memory before the first update is told apart.

Gradient checkpointing and bfloat16, defaults of TRL, are off: the first costs time, the second is off in ours too.
What `sce train` does besides, returning large blocks to the system to save memory, is left out.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from figures import publish

from securecoderl_edge.files import write_atomically
from securecoderl_edge.problems import Problem, Test
from securecoderl_edge.prompts import OURS
from securecoderl_edge.resources import peak_rss_bytes
from securecoderl_edge.reward import Score, make_score
from securecoderl_edge.security import Scan

# torch is imported by the workers alone: a child's peak memory begins with that of the process that started it.

TRL_VERSION = "1.16.0"
TRL_MISSING = f"no TRL {TRL_VERSION}, so no figures of it: pip install -c constraints.txt trl=={TRL_VERSION}\n"
WAYS = {"ours": "own", "ours, HF generate": "hf", "TRL RLOO": "trl"}
VOCABULARY, PROMPT_TOKENS, NEW_TOKENS = 4096, 64, 128
BATCH, SAMPLES, EPOCHS = 8, 2, 4
RATE, KL, TEMPERATURE, CLIP, NORM = 1e-4, 0.05, 0.7, 0.2, 1.0
SCALING = (8, 16, 32, 64)
WORKER_SECONDS = 400


def main() -> None:
    """Make the model, run the workers by turns, print costs and ratios."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=3, help="processes of each contender and number of threads")
    parser.add_argument("--updates", type=int, default=2, help="timed updates of a process, after one to warm up")
    parser.add_argument("--quick", action="store_true", help="one round of one update, one thread, no scaling")
    parser.add_argument("--folder", type=Path, help="keep what each process found here; a stopped run goes on from it")
    parser.add_argument("--json", type=Path, help="file for the figures")
    parser.add_argument("--worker", nargs=2, metavar=("WAY", "FOLDER"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        work(arguments.worker[0], Path(arguments.worker[1]), arguments.updates)
        return
    rounds, updates = (1, 1) if arguments.quick else (arguments.rounds, arguments.updates)
    ways = {name: way for name, way in WAYS.items() if way != "trl" or trl_version() == TRL_VERSION}
    if len(ways) < len(WAYS):
        sys.stderr.write(TRL_MISSING)
    result: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = arguments.folder or Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        run("make", folder, 0, 1)
        for threads, suffix in ((1, ""), (2, "_2_threads")) if not arguments.quick else ((1, ""),):
            runs: dict[str, list[dict[str, Any]]] = {name: [] for name in ways}
            for turn in range(rounds):
                for name in ways if turn % 2 == 0 else reversed(ways):
                    runs[name].append(run(ways[name], folder, updates, threads, turn))
            result |= compare(runs, threads, suffix)
        result["seconds_by_part"] = run("parts", folder, updates, 1)["seconds_by_part"]
        sizes = () if arguments.quick else SCALING
        result["scaling"] = [{"batch": size, **run(f"batch-{size}", folder, 1, 1)["scaling"]} for size in sizes]
    for part, seconds in result["seconds_by_part"].items():
        sys.stdout.write(f"of ours, {part:28s} {seconds:6.2f} s CPU an update\n")
    for row in result["scaling"]:
        sys.stdout.write("ours  " + "  ".join(f"{name} {value}" for name, value in row.items()) + "\n")
    facts = {"rounds": rounds, "updates": updates, "samples_per_prompt": SAMPLES, "trl": trl_version() or None}
    publish({**result, **facts}, arguments.json)


def run(way: str, folder: Path, updates: int, threads: int, turn: int = 0) -> dict[str, Any]:
    """One worker's figures, from a process of its own, or from the same one of a run that was stopped."""
    file = folder / f"figures-{way}-{updates}-{threads}-{turn}.json"
    if file.is_file():
        return dict(json.loads(file.read_text(encoding="utf-8")))
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        "GOMP_SPINCOUNT": "1000",  # threads that wait would otherwise count as work
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_OFFLINE": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "TRL_EXPERIMENTAL_SILENCE": "1",
    }
    command = [sys.executable, __file__, "--worker", way, str(folder), "--updates", str(updates)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=WORKER_SECONDS)
    if done.returncode:
        raise SystemExit(f"the worker {way} failed:\n{done.stderr}")
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    with write_atomically(file) as out:
        out.write(json.dumps(figures))
    return figures


def compare(runs: dict[str, list[dict[str, Any]]], threads: int, suffix: str) -> dict[str, Any]:
    """Print and return the costs of the contenders at one number of threads, and the ratios of their medians."""
    table: dict[str, dict[str, float]] = {}
    for name, figures in runs.items():
        cpu = [seconds for each in figures for seconds in each["cpu_seconds"]]
        table[name] = {
            "cpu_seconds_min": round(min(cpu), 3),
            "cpu_seconds_median": round(statistics.median(cpu), 3),
            "wall_seconds_median": round(statistics.median(s for each in figures for s in each["wall_seconds"]), 3),
            "peak_rss_mib": round(statistics.median(each["peak_rss_mib"] for each in figures), 1),
            "rss_before_updates_mib": round(statistics.median(each["rss_before_mib"] for each in figures), 1),
            "prompt_tokens_an_update": figures[0]["prompt_tokens"],
            "sampled_tokens_an_update": figures[0]["sampled_tokens"],
        }
        row = table[name]
        sys.stdout.write(
            f"{threads} thread{'s' * (threads > 1)}  {name:18s} {row['cpu_seconds_median']:6.2f} s CPU an update (best "
            f"{row['cpu_seconds_min']:.2f})  {row['wall_seconds_median']:6.2f} s wall  {row['peak_rss_mib']:7.1f} MiB "
            f"(before {row['rss_before_updates_mib']:.1f})  {row['sampled_tokens_an_update']} tokens sampled\n"
        )
        if any(each["sampled_tokens"] != BATCH * NEW_TOKENS for each in figures):
            raise SystemExit(f"{name} sampled another number of tokens: {[each['sampled_tokens'] for each in figures]}")

    def ratio(key: str, peer: str) -> float:
        return round(table["ours"][key] / table[peer][key], 3)

    ratios = {"cpu_ratio_vs_hf_generate": ratio("cpu_seconds_median", "ours, HF generate")}
    if "TRL RLOO" in table:
        ratios["cpu_ratio_vs_trl_rloo"] = ratio("cpu_seconds_median", "TRL RLOO")
        ratios["rss_ratio_vs_trl_rloo"] = ratio("peak_rss_mib", "TRL RLOO")
    return {**{name + suffix: value for name, value in ratios.items()}, f"contenders{suffix}": table}


def trl_version() -> str:
    """The installed version, or nothing."""
    try:
        return version("trl")
    except PackageNotFoundError:
        return ""


def work(way: str, folder: Path, updates: int) -> None:
    """What a worker process does; its figures are its last line."""
    import torch

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    torch.manual_seed(0)
    if way == "make":
        make_model(folder)
        figures: dict[str, Any] = {}
    elif way == "trl":
        figures = run_trl(folder, updates)
    elif way == "parts":
        figures = {"seconds_by_part": seconds_by_part(folder, updates)}
    elif way.startswith("batch-"):
        size = int(way.removeprefix("batch-"))
        found = run_ours(folder, updates, "own", size)
        each = statistics.median(found["cpu_seconds"]) / size
        peak = found["peak_rss_mib"]
        figures = {"scaling": {"cpu_seconds_a_completion": round(each, 4), "peak_rss_mib": peak}}
    else:
        figures = run_ours(folder, updates, way, BATCH)
    sys.stdout.write(f"{json.dumps(figures)}\n")


def make_model(folder: Path) -> None:
    """Write the random Llama, and a byte-level tokenizer trained on the sources of this package."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=["<pad>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    sources = sorted(Path(__file__).parents[1].glob("securecoderl_edge/**/*.py"))
    tokenizer.train_from_iterator((path.read_text(encoding="utf-8") for path in sources), trainer)
    tokenizer.add_tokens([f"<unused{number}>" for number in range(VOCABULARY - tokenizer.get_vocab_size())])
    tokenizer.add_special_tokens(["<eos>"])  # its id is the first that the model cannot draw
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": "<pad>", "eos_token": "<eos>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=256, intermediate_size=688, num_hidden_layers=4, num_attention_heads=4,
        num_key_value_heads=4, max_position_embeddings=512, tie_word_embeddings=True, bos_token_id=None,
        eos_token_id=None, pad_token_id=0,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(folder)


def make_problems(tokenizer: Any, count: int) -> list[Problem]:
    """Problems of random words whose prompts have exactly `PROMPT_TOKENS` tokens."""
    words = sorted(word[1:] for word in tokenizer.get_vocab() if word[:1] == "Ġ" and word[1:].isalpha())
    rng = random.Random(1)
    problems: list[Problem] = []
    while len(problems) < count:
        problem, size = Problem("", ""), 0
        for _ in range(PROMPT_TOKENS):
            statement = f"{problem.statement} {rng.choice(words)}".strip()
            problem = Problem(f"random/{len(problems)}", statement, tests=(Test("", "1"),))
            size = len(tokenizer(OURS.prompt(problem))["input_ids"])
            if size >= PROMPT_TOKENS:
                break
        if size == PROMPT_TOKENS:
            problems.append(problem)
    return problems


def reward_of(text: str) -> float:
    """A number from [0, 1) that depends on the whole text."""
    return zlib.crc32(text.encode()) / 2**32


class ChecksumScorer:
    """Stands in for `Scorer`: no process, no program run."""

    def score_async(self, problem: Problem, program: str, extract: str = "raw") -> Future[Score]:
        """A score whose reward is the program's checksum."""
        score = make_score(problem.id, 0, program, [], 1, Scan(), extract=extract)
        future: Future[Score] = Future()
        future.set_result(replace(score, reward_paper=reward_of(program)))
        return future


class Clock:
    """CPU and wall seconds of each update."""

    def __init__(self) -> None:
        self.cpu: list[float] = []
        self.wall: list[float] = []
        self.start()

    def start(self) -> None:
        """The next update begins."""
        self._started = time.process_time(), time.monotonic()

    def stop(self) -> None:
        """It has ended."""
        self.cpu.append(time.process_time() - self._started[0])
        self.wall.append(time.monotonic() - self._started[1])

    def figures(self, rss_before: float, prompt_tokens: int, sampled_tokens: int) -> dict[str, Any]:
        """What `compare` reads; the first update warmed up."""
        return {
            "cpu_seconds": self.cpu[1:],
            "wall_seconds": self.wall[1:],
            "peak_rss_mib": round(peak_rss_bytes() / 2**20, 1),
            "rss_before_mib": rss_before,
            "prompt_tokens": prompt_tokens,
            "sampled_tokens": sampled_tokens,
        }


def run_ours(folder: Path, updates: int, rollout: str, batch: int) -> dict[str, Any]:
    """Our updates; the sampler is our own or Hugging Face's."""
    import torch

    from securecoderl_edge.device import Compute
    from securecoderl_edge.learner import Learner
    from securecoderl_edge.model import (
        POLICY,
        LoraSettings,
        adapter_parameters,
        add_adapters,
        load_base,
        load_tokenizer,
    )
    from securecoderl_edge.rollout import Decoder
    from securecoderl_edge.settings import PpoSettings, RewardSettings
    from securecoderl_edge.updates import ppo_update

    compute = Compute("cpu", "fp32", torch.float32, torch.float32)
    model = add_adapters(load_base(folder), LoraSettings(rank=16, alpha=32), 0)
    optimizer = torch.optim.AdamW(adapter_parameters(model, POLICY).values(), lr=RATE, weight_decay=0.0)
    decoder = Decoder(model, torch.float32) if rollout == "own" else None
    learner = Learner(model, load_tokenizer(folder), compute, optimizer, decoder)
    ppo = PpoSettings(
        batch_size=batch, samples_per_prompt=SAMPLES, advantage="group", skip_flat_groups=False, epochs=EPOCHS,
        learning_rate=RATE, clip_range=CLIP, kl_coefficient=KL, temperature=TEMPERATURE, max_tokens=NEW_TOKENS,
        gradient_norm=NORM, rollout=rollout,
    )  # fmt: skip
    problems = make_problems(learner.tokenizer, (updates + 1) * batch // SAMPLES)
    before = round(peak_rss_bytes() / 2**20, 1)
    scorer: Any = ChecksumScorer()
    clock, prompts, tokens = Clock(), 0, 0
    for step in range(1, updates + 2):
        clock.start()
        metrics, sampled = ppo_update(
            learner, scorer, problems, ppo, RewardSettings(reading="paper"), 1.0, "partial", step, 0
        )
        clock.stop()
        if len({done.token_ids for done in sampled.completions}) < batch:
            raise SystemExit("equal completions, which ours processes once")
        prompts = SAMPLES * sum(len(learner.prompt_tokens(problem)) for problem in sampled.problems)
        tokens = metrics["tokens"]
    return clock.figures(before, prompts, tokens)


def seconds_by_part(folder: Path, updates: int) -> dict[str, float]:
    """CPU seconds of the parts of an update of ours, measured around its functions."""
    from securecoderl_edge import updates as module

    spent = {"collect": [0.0], "_evaluate": [0.0]}

    def timed(function: Callable[..., Any], seconds: list[float]) -> Callable[..., Any]:
        def inner(*arguments: Any, **named: Any) -> Any:
            started = time.process_time()
            try:
                return function(*arguments, **named)
            finally:
                seconds.append(time.process_time() - started)

        return inner

    for name, seconds in spent.items():
        setattr(module, name, timed(getattr(module, name), seconds))
    whole = sum(run_ours(folder, updates, "own", BATCH)["cpu_seconds"])
    # Calls of the updates after the first: one to collect, two to evaluate.
    sample = sum(spent["collect"][-updates:])
    evaluate = sum(spent["_evaluate"][-2 * updates :])
    parts = {
        "sample": sample,
        "reference_and_old_log_probs": evaluate,
        "update": whole - sample - evaluate,
        "all": whole,
    }
    return {name: round(seconds / updates, 3) for name, seconds in parts.items()}


def run_trl(folder: Path, updates: int) -> dict[str, Any]:
    """The same updates by TRL's trainer; one of ours is `EPOCHS` of its steps."""
    import torch
    from datasets import Dataset
    from peft import LoraConfig
    from transformers import AutoTokenizer, LlamaForCausalLM, TrainerCallback
    from trl import RLOOConfig, RLOOTrainer

    tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left")
    model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="sdpa")
    prompts = [OURS.prompt(problem) for problem in make_problems(tokenizer, (updates + 1) * BATCH // SAMPLES)]
    clock = Clock()
    seen = {"prompt": 0, "sampled": 0}

    def reward(
        prompts: list[str], completions: list[str], completion_ids: Sequence[list[int]], **_: Any
    ) -> list[float]:
        seen["prompt"] = sum(len(tokenizer(prompt)["input_ids"]) for prompt in prompts)
        seen["sampled"] = sum(map(len, completion_ids))
        return [reward_of(text) for text in completions]

    class Watch(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.global_step % EPOCHS == 0:
                clock.stop()
                clock.start()

    with tempfile.TemporaryDirectory() as out, contextlib.redirect_stdout(sys.stderr):
        settings = RLOOConfig(
            output_dir=out, per_device_train_batch_size=BATCH, num_generations=SAMPLES, steps_per_generation=1,
            gradient_accumulation_steps=1, num_iterations=EPOCHS, max_steps=(updates + 1) * EPOCHS,
            max_completion_length=NEW_TOKENS, learning_rate=RATE, lr_scheduler_type="constant", epsilon=CLIP, beta=KL,
            temperature=TEMPERATURE, max_grad_norm=NORM, weight_decay=0.0, gradient_checkpointing=False, bf16=False,
            use_cpu=True, report_to=[], save_strategy="no", logging_steps=10_000, disable_tqdm=True,
        )  # fmt: skip
        trainer = RLOOTrainer(
            model=model,
            reward_funcs=reward,
            args=settings,
            train_dataset=Dataset.from_dict({"prompt": prompts}),
            processing_class=tokenizer,
            peft_config=LoraConfig(
                r=16, lora_alpha=32, target_modules=["q_proj", "k_proj", "v_proj", "o_proj"], task_type="CAUSAL_LM"
            ),
            callbacks=[Watch()],
        )
        formats = {str(parameter.dtype) for parameter in trainer.model.parameters()}
        if formats != {"torch.float32"}:
            raise SystemExit(f"TRL does not compute in float32 alone: {sorted(formats)}")
        before = round(peak_rss_bytes() / 2**20, 1)
        clock.start()
        trainer.train()
    return clock.figures(before, seen["prompt"], seen["sampled"])


if __name__ == "__main__":
    main()
