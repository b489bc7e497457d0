"""A contender of `ppo_step.py`, in a process of its own: the same updates by us or by TRL, their costs.

python benchmarks/ppo_step_worker.py MODEL WAY FOLDER UPDATES      prints the results as JSON

MODEL is smollm2, random, or random-HIDDEN-LAYERS: of other sizes, with the dtypes that training chooses; for
`qwen_step.py` qwen-0.5b:COMPLETIONS:TOKENS.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import resource
import statistics
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from securecoderl_edge.models.tokenizer import Tokenizer, read_tokenizer
from securecoderl_edge.problems.problem import Problem, Test
from securecoderl_edge.prompts.styles import OURS, PromptFormat
from securecoderl_edge.sandbox.security import Scan
from securecoderl_edge.scoring.score import CheckedProgram, Score, make_score
from securecoderl_edge.system.machine import peak_rss_bytes

if TYPE_CHECKING:
    from securecoderl_edge.models.adapters import LoraSettings
    from securecoderl_edge.training.phase_settings import PpoSettings

VOCABULARY, PROMPT_TOKENS, NEW_TOKENS = 4096, 64, 128
BATCH, SAMPLES, EPOCHS = 8, 2, 4
RATE, KL, TEMPERATURE, CLIP, NORM = 1e-4, 0.05, 0.7, 0.2, 1.0
# Ends a completion. Its id is the first that a model's output layer lacks, so nobody can draw it.
END = "<eos>"


def as_in_training() -> None:
    """Set up the memory of this process as `sce train` does."""
    from securecoderl_edge.system.heap import return_large_blocks

    return_large_blocks()


def work(model: str, way: str, folder: Path, updates: int) -> None:
    """What a worker process does; its results are its last line."""
    import torch

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    torch.manual_seed(0)
    if way == "make":
        if model.startswith("random"):
            make_model(folder, *map(int, model.split("-")[1:]))
        return
    size = int(way.removeprefix("batch-")) if way.startswith("batch-") else BATCH
    if model == "smollm2":
        setup = recipe_setup(model, updates, 32, 160, 0.02)
    elif model.startswith("qwen"):
        name, completions, tokens = model.split(":")
        setup = recipe_setup(name, updates, int(completions), int(tokens), 0.0)
        # At the recipe's temperature some completions would be equal.
        setup = replace(setup, ppo=replace(setup.ppo, temperature=1.2), auto=not way.endswith("-fp32"))
    else:
        setup = replace(random_setup(folder, updates, size), auto=model != "random")
    if way.startswith("trl-"):
        results = run_trl(setup, updates, way)
    elif model.startswith("qwen"):
        as_in_training()
        results = {**with_parts(setup, updates), "peaks": peaks(setup)}
    elif way == "parts":
        results = {"seconds_by_part": with_parts(setup, updates)["seconds_by_part"]}
    elif way.startswith("batch-"):
        found = run_ours(setup, updates, "own")
        each = statistics.median(found["cpu_seconds"]) / size
        peak = found["peak_rss_mib"]
        results = {"scaling": {"cpu_seconds_a_completion": round(each, 4), "peak_rss_mib": peak}}
    else:
        results = run_ours(setup, updates, way)
    sys.stdout.write(f"{json.dumps(results)}\n")


@dataclass(frozen=True)
class Setup:
    """Updates of ours, of which TRL's are a copy. ``end`` is the id of `END`; ``auto``: each chooses its dtypes."""

    base: Path
    end: int
    problems: list[Problem]
    format: PromptFormat
    lora: LoraSettings
    ppo: PpoSettings
    auto: bool


def random_setup(folder: Path, updates: int, batch: int) -> Setup:
    """The small random Llama of `make_model`, in float32."""
    from securecoderl_edge.models.adapters import LoraSettings
    from securecoderl_edge.training.phase_settings import PpoSettings

    ppo = PpoSettings(
        batch_size=batch, samples_per_prompt=SAMPLES, advantage="rloo", drop_zero_variance_groups=False, epochs=EPOCHS,
        learning_rate=RATE, clip_range=CLIP, kl_coefficient=KL, temperature=TEMPERATURE, max_tokens=NEW_TOKENS,
        max_grad_norm=NORM,
    )  # fmt: skip
    problems = make_problems(read_tokenizer(folder), (updates + 1) * batch // SAMPLES)
    return Setup(folder, VOCABULARY, problems, OURS, LoraSettings(rank=16, alpha=32), ppo, auto=False)


def recipe_setup(name: str, updates: int, completions: int, tokens: int, kl: float) -> Setup:
    """A model that has a recipe of its name, trained with that on MBPP, but for the sizes of a batch and the penalty.

    Args:
        tokens: of each completion.
    """
    from securecoderl_edge.models.architecture import read_architecture
    from securecoderl_edge.models.files import base_folder
    from securecoderl_edge.problems.sources import load_problems
    from securecoderl_edge.training.recipe import resolve
    from securecoderl_edge.training.resources import training_format

    settings = resolve(name, (), {})
    base = base_folder(settings.model)
    ppo = replace(
        settings.ppo, batch_size=completions, rollout_sequences=completions, kl_coefficient=kl, max_tokens=tokens,
        drop_zero_variance_groups=False, end_with_program=False,
    )  # fmt: skip
    ppo = replace(ppo, learning_rate=ppo.learning_rate if isinstance(ppo.learning_rate, float) else RATE)
    problems = load_problems(settings.problems)[: (updates + 1) * ppo.batch_size // ppo.samples_per_prompt]
    format = training_format(settings, base)
    # Rows of the output layer that no token has are not drawn either, in practice.
    end = min(read_architecture(base).vocabulary, read_tokenizer(base).backend.get_vocab_size())
    return Setup(base, end, problems, format, settings.lora, ppo, auto=True)


def make_model(folder: Path, hidden: int = 256, layers: int = 4) -> None:
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
    tokenizer.add_special_tokens([END])
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": "<pad>", "eos_token": "<pad>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=hidden, intermediate_size=hidden * 43 // 16, num_hidden_layers=layers,
        num_attention_heads=hidden // 64, num_key_value_heads=hidden // 64, max_position_embeddings=512,
        tie_word_embeddings=True, bos_token_id=None, eos_token_id=None, pad_token_id=0,
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
        score = make_score(CheckedProgram(problem.id, 0, program, [], 1, Scan()))
        future: Future[Score] = Future()
        future.set_result(replace(score, extract=extract, reward_paper=reward_of(program)))
        return future


class Clock:
    """CPU and wall seconds of each update, and its seconds in the system and page faults."""

    def __init__(self) -> None:
        self.cpu: list[float] = []
        self.wall: list[float] = []
        self.system: list[list[float]] = []
        self.start()

    def start(self) -> None:
        """The next update begins."""
        self._started = time.process_time(), time.monotonic(), *_system()

    def stop(self) -> None:
        """It has ended."""
        self.cpu.append(time.process_time() - self._started[0])
        self.wall.append(time.monotonic() - self._started[1])
        self.system.append([now - then for now, then in zip(_system(), self._started[2:], strict=True)])

    def results(self, rss_before: float, prompt_tokens: int, sampled_tokens: int) -> dict[str, Any]:
        """What `compare` reads; the first update warmed up."""
        return {
            "cpu_seconds": self.cpu[1:],
            "wall_seconds": self.wall[1:],
            "system_seconds_and_faults": self.system[1:],
            "peak_rss_mib": round(peak_rss_bytes() / 2**20, 1),
            "rss_before_mib": rss_before,
            "prompt_tokens": prompt_tokens,
            "sampled_tokens": sampled_tokens,
        }


def _system() -> tuple[float, float]:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_stime, used.ru_minflt


def run_ours(setup: Setup, updates: int, rollout: str, warmed_up: Callable[[], None] = lambda: None) -> dict[str, Any]:
    """Our updates; the sampler is our own or Hugging Face's. ``warmed_up`` is called after the first update."""
    import torch

    from securecoderl_edge.models.adapters import POLICY_ADAPTER, adapter_parameters, add_adapters
    from securecoderl_edge.models.decoder import Decoder
    from securecoderl_edge.models.device import Compute, compute_on_cpu
    from securecoderl_edge.models.loading import load_base
    from securecoderl_edge.training.settings import RewardSettings, TrainSettings
    from securecoderl_edge.training.update.learner import Learner, Update
    from securecoderl_edge.training.update.ppo_update import ppo_update

    compute = compute_on_cpu("auto") if setup.auto else Compute("cpu", "fp32", torch.float32)
    base = load_base(setup.base, compute.base_precision, compute.device, compute.products)
    model = add_adapters(base, setup.lora, 0)
    rate = setup.ppo.learning_rate
    optimizer = torch.optim.AdamW(adapter_parameters(model, POLICY_ADAPTER).values(), lr=rate, weight_decay=0.0)
    decoder = Decoder(model, compute.rollout_dtype) if rollout == "own" else None
    tokenizer = replace(read_tokenizer(setup.base), ends=frozenset({setup.end}))
    learner = Learner(model, tokenizer, compute, optimizer, decoder, format=setup.format)
    learner.measures_kl = setup.ppo.kl_coefficient > 0
    before = round(peak_rss_bytes() / 2**20, 1)
    scorer: Any = ChecksumScorer()
    settings = TrainSettings(ppo=setup.ppo, reward=RewardSettings(unparsable="paper"), seed=0)
    clock, prompts, tokens = Clock(), 0, 0
    for step in range(1, updates + 2):
        clock.start()
        metrics, sampled = ppo_update(learner, Update(settings, "partial", setup.problems, step, scorer))
        clock.stop()
        if step == 1:
            warmed_up()
        if len({done.token_ids for done in sampled.completions}) < setup.ppo.batch_size:
            raise SystemExit("equal completions, which ours processes once")
        lengths = [len(learner.prompt_tokens(problem)) for problem in sampled.problems]
        prompts = setup.ppo.samples_per_prompt * sum(lengths)
        tokens = metrics["tokens"]
    return clock.results(before, prompts, tokens)


def with_parts(setup: Setup, updates: int) -> dict[str, Any]:
    """As `run_ours`, with CPU seconds of the parts of an update, around its functions; indented ones are in others."""
    from securecoderl_edge.models import running_batch, sampling
    from securecoderl_edge.models.decoder import Decoder
    from securecoderl_edge.training.update import minibatches, ppo_update, prompt_sampling, sequences
    from securecoderl_edge.training.update.learner import Learner

    parts: list[tuple[str, Any, str]] = [
        ("sampling", prompt_sampling, "collect"),
        ("  merging adapters", Decoder, "refresh"),
        ("  reading prompts", running_batch, "_prefill"),
        ("  drawing tokens", sampling, "draw_tokens"),
        ("reference and old log-probabilities", ppo_update, "_evaluate"),
        ("forward passes", minibatches, "completion_log_probs"),
        ("backward passes", Learner, "backward"),
        ("optimizer", Learner, "step"),
        ("  of all passes: output layer", sequences._ChunkedLogProbs, "forward"),
    ]
    spent = dict.fromkeys([title for title, _, _ in parts], 0.0)

    def timed(function: Callable[..., Any], title: str) -> Callable[..., Any]:
        def inner(*arguments: Any, **named: Any) -> Any:
            started = time.process_time()
            try:
                return function(*arguments, **named)
            finally:
                spent[title] += time.process_time() - started

        return inner

    for title, owner, name in parts:
        wrapped = timed(getattr(owner, name), title)
        setattr(owner, name, staticmethod(wrapped) if owner is sequences._ChunkedLogProbs else wrapped)
    found = run_ours(setup, updates, "own", lambda: spent.update(dict.fromkeys(spent, 0.0)))
    every = {**spent, "all": sum(found["cpu_seconds"])}
    return {**found, "seconds_by_part": {name: round(seconds / updates, 3) for name, seconds in every.items()}}


def peaks(setup: Setup) -> dict[str, float]:
    """GFLOP per CPU second of products of the MLP's first weight, in the dtypes of an update: of a large product, and
    of one with as many rows as are decoded.
    """
    import torch

    from securecoderl_edge.models.architecture import read_architecture
    from securecoderl_edge.models.device import Compute, compute_on_cpu

    compute = compute_on_cpu("auto") if setup.auto else Compute("cpu", "fp32", torch.float32)
    shape, found = read_architecture(setup.base), {}
    for name, rows, dtype in (
        ("learning", 2048, compute.products),
        ("sampling", setup.ppo.batch_size, compute.rollout_dtype),
    ):
        inputs = torch.ones(rows, shape.hidden, dtype=dtype)
        weight = torch.ones(2 * shape.intermediate, shape.hidden, dtype=dtype)
        # The order that a library reads fastest, whatever ours does.
        reordered = torch.ops.mkldnn._reorder_linear_weight(weight, rows)
        ways = (
            lambda inputs=inputs, weight=weight: torch.nn.functional.linear(inputs, weight),
            lambda inputs=inputs, weight=reordered: torch.ops.mkldnn._linear_pointwise(
                inputs, weight, None, "none", [], ""
            ),
        )
        best = float("inf")
        for _ in range(20):
            for way in ways:
                started = time.process_time()
                way()
                best = min(best, time.process_time() - started)
        found[name] = round(2 * rows * weight.numel() / best / 1e9, 1)
    return found


def run_trl(setup: Setup, updates: int, way: str) -> dict[str, Any]:
    """The same updates by TRL's trainer; one of ours is as many of its steps as it has epochs.

    Args:
        way: ``trl-rloo`` or ``trl-grpo``, in float32, or with ``-bf16`` in its mixed precision.
    """
    import trl
    from datasets import Dataset
    from peft import LoraConfig
    from transformers import AutoTokenizer, TrainerCallback

    from securecoderl_edge.models.loading import load_base

    ppo, name = setup.ppo, way.split("-")[1].upper()
    pieces = ppo.batch_size // BATCH  # with 32 sequences in one, SmolLM2 took more than 21 GB
    tokenizer = AutoTokenizer.from_pretrained(setup.base, padding_side="left", eos_token=END)
    if tokenizer.eos_token_id != setup.end:
        raise SystemExit(f"the end of sequence is {tokenizer.eos_token_id}, not {setup.end}")
    model = load_base(setup.base)
    model.generation_config.eos_token_id = None  # TRL would end completions at the model's own, too
    prompts = [setup.format.prompt(problem) for problem in setup.problems]
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
            if state.global_step % ppo.epochs == 0:
                clock.stop()
                clock.start()

    with tempfile.TemporaryDirectory() as out, contextlib.redirect_stdout(sys.stderr):
        settings = getattr(trl, f"{name}Config")(
            output_dir=out, per_device_train_batch_size=BATCH, num_generations=ppo.samples_per_prompt,
            steps_per_generation=pieces, gradient_accumulation_steps=pieces, num_iterations=ppo.epochs,
            max_steps=(updates + 1) * ppo.epochs, max_completion_length=ppo.max_tokens,
            learning_rate=ppo.learning_rate, lr_scheduler_type="constant", epsilon=ppo.clip_range,
            beta=ppo.kl_coefficient, temperature=ppo.temperature, max_grad_norm=ppo.max_grad_norm, weight_decay=0.0,
            gradient_checkpointing=False, bf16=way.endswith("-bf16"), use_cpu=True, report_to=[], save_strategy="no",
            logging_steps=10_000, disable_tqdm=True,
        )  # fmt: skip
        trainer = getattr(trl, f"{name}Trainer")(
            model=model,
            reward_funcs=reward,
            args=settings,
            train_dataset=Dataset.from_dict({"prompt": prompts}),
            processing_class=tokenizer,
            peft_config=LoraConfig(
                r=setup.lora.rank,
                lora_alpha=setup.lora.alpha,
                target_modules=list(setup.lora.targets),
                task_type="CAUSAL_LM",
            ),
            callbacks=[Watch()],
        )
        formats = {str(parameter.dtype) for parameter in trainer.model.parameters()}
        if formats != {"torch.float32"}:
            raise SystemExit(f"TRL's weights are not in float32 alone: {sorted(formats)}")
        before = round(peak_rss_bytes() / 2**20, 1)
        clock.start()
        trainer.train()
    return clock.results(before, seen["prompt"], seen["sampled"])


if __name__ == "__main__":
    work(sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]))
