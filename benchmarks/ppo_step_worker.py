"""A contender of `ppo_step.py`, in a process of its own: the same updates by us or by TRL, their costs.

python benchmarks/ppo_step_worker.py WAY FOLDER UPDATES      prints the results as JSON
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import statistics
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

from securecoderl_edge.models.tokenizer import Tokenizer, read_tokenizer
from securecoderl_edge.problems.problem import Problem, Test
from securecoderl_edge.prompts.styles import OURS
from securecoderl_edge.sandbox.security import Scan
from securecoderl_edge.scoring.score import Score, make_score
from securecoderl_edge.system.machine import peak_rss_bytes

VOCABULARY, PROMPT_TOKENS, NEW_TOKENS = 4096, 64, 128
BATCH, SAMPLES, EPOCHS = 8, 2, 4
RATE, KL, TEMPERATURE, CLIP, NORM = 1e-4, 0.05, 0.7, 0.2, 1.0


def work(way: str, folder: Path, updates: int) -> None:
    """What a worker process does; its results are its last line."""
    import torch

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    torch.manual_seed(0)
    if way == "make":
        make_model(folder)
        results: dict[str, Any] = {}
    elif way == "trl":
        results = run_trl(folder, updates)
    elif way == "parts":
        results = {"seconds_by_part": seconds_by_part(folder, updates)}
    elif way.startswith("batch-"):
        size = int(way.removeprefix("batch-"))
        found = run_ours(folder, updates, "own", size)
        each = statistics.median(found["cpu_seconds"]) / size
        peak = found["peak_rss_mib"]
        results = {"scaling": {"cpu_seconds_a_completion": round(each, 4), "peak_rss_mib": peak}}
    else:
        results = run_ours(folder, updates, way, BATCH)
    sys.stdout.write(f"{json.dumps(results)}\n")


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
    # TRL's EOS token: its id is the first that the model cannot draw.
    tokenizer.add_special_tokens(["<eos>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": "<pad>", "eos_token": "<pad>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=256, intermediate_size=688, num_hidden_layers=4, num_attention_heads=4,
        num_key_value_heads=4, max_position_embeddings=512, tie_word_embeddings=True, bos_token_id=None,
        eos_token_id=None, pad_token_id=0,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(folder)


def make_problems(tokenizer: Tokenizer, count: int) -> list[Problem]:
    """Problems of random words whose prompts have exactly `PROMPT_TOKENS` tokens."""
    words = sorted(word[1:] for word in tokenizer.backend.get_vocab() if word[:1] == "Ġ" and word[1:].isalpha())
    rng = random.Random(1)
    problems: list[Problem] = []
    while len(problems) < count:
        problem, size = Problem("", ""), 0
        for _ in range(PROMPT_TOKENS):
            statement = f"{problem.statement} {rng.choice(words)}".strip()
            problem = Problem(f"random/{len(problems)}", statement, tests=(Test("", "1"),))
            size = len(tokenizer.encode_prompt(OURS.prompt(problem)))
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

    def results(self, rss_before: float, prompt_tokens: int, sampled_tokens: int) -> dict[str, Any]:
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

    from securecoderl_edge.models.adapters import POLICY_ADAPTER, LoraSettings, adapter_parameters, add_adapters
    from securecoderl_edge.models.decoder import Decoder
    from securecoderl_edge.models.device import Compute
    from securecoderl_edge.models.loading import load_base
    from securecoderl_edge.training.settings import PpoSettings, RewardSettings
    from securecoderl_edge.training.update.learner import Learner
    from securecoderl_edge.training.update.ppo_update import ppo_update

    compute = Compute("cpu", "fp32", torch.float32, torch.float32)
    model = add_adapters(load_base(folder), LoraSettings(rank=16, alpha=32), 0)
    optimizer = torch.optim.AdamW(adapter_parameters(model, POLICY_ADAPTER).values(), lr=RATE, weight_decay=0.0)
    decoder = Decoder(model, torch.float32) if rollout == "own" else None
    tokenizer = replace(read_tokenizer(folder), ends=frozenset({VOCABULARY}))
    learner = Learner(model, tokenizer, compute, optimizer, decoder)
    ppo = PpoSettings(
        batch_size=batch, samples_per_prompt=SAMPLES, advantage="rloo", drop_zero_variance_groups=False, epochs=EPOCHS,
        learning_rate=RATE, clip_range=CLIP, kl_coefficient=KL, temperature=TEMPERATURE, max_tokens=NEW_TOKENS,
        max_grad_norm=NORM, rollout=rollout,
    )  # fmt: skip
    problems = make_problems(learner.tokenizer, (updates + 1) * batch // SAMPLES)
    before = round(peak_rss_bytes() / 2**20, 1)
    scorer: Any = ChecksumScorer()
    clock, prompts, tokens = Clock(), 0, 0
    for step in range(1, updates + 2):
        clock.start()
        metrics, sampled = ppo_update(
            learner, scorer, problems, ppo, RewardSettings(unparsable="paper"), 1.0, "partial", step, 0
        )
        clock.stop()
        if len({done.token_ids for done in sampled.completions}) < batch:
            raise SystemExit("equal completions, which ours processes once")
        prompts = SAMPLES * sum(len(learner.prompt_tokens(problem)) for problem in sampled.problems)
        tokens = metrics["tokens"]
    return clock.results(before, prompts, tokens)


def seconds_by_part(folder: Path, updates: int) -> dict[str, float]:
    """CPU seconds of the parts of an update of ours, measured around its functions."""
    from securecoderl_edge.training.update import ppo_update as module

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

    tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left", eos_token="<eos>")
    model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="sdpa")
    prompts = [
        OURS.prompt(problem) for problem in make_problems(read_tokenizer(folder), (updates + 1) * BATCH // SAMPLES)
    ]
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
    return clock.results(before, seen["prompt"], seen["sampled"])


if __name__ == "__main__":
    work(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
