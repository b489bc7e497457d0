"""A measurement of `gpu_fit.py`, in a process of its own: peaks of memory and seconds of loading, or of one update.

python benchmarks/gpu_fit_worker.py WHAT FOLDER [--quick]      prints the results as JSON
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from array import array
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from securecoderl_edge.models.sizes import GIB, HAS_BF16, HAS_INT8_UNITS

LIMIT_GIB = 16.0
PROMPT_TOKENS, NEW_TOKENS, BATCH = 1024, 512, 2
ROLLOUT_SEQUENCES, ROLLOUT_NEW_TOKENS = 32, 32


def work(what: str, folder: Path, quick: bool) -> dict[str, Any]:
    """What a worker process does."""
    import torch

    from securecoderl_edge.system.heap import return_large_blocks

    return_large_blocks()
    kind, _, precision = what.partition("-")  # rollout8-int8: eight sequences
    if torch.cuda.is_available():
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, LIMIT_GIB * GIB / total))
        capability = torch.cuda.get_device_capability()
        if (precision == "bf16" and capability < HAS_BF16) or (precision == "int8-bnb" and capability < HAS_INT8_UNITS):
            return {}
    elif precision == "int8-bnb":
        return {}
    if kind == "load":
        return measure_load(folder, precision)
    if kind == "seed":
        return measure_seed(folder, quick)
    return measure_training(kind, folder, precision, quick)


class Peak:
    """The most memory since it was asked last: allocated on the GPU, or resident."""

    def __init__(self) -> None:
        import torch

        self.cuda = torch.cuda.is_available()
        self.reset()

    def reset(self) -> None:
        """Forget what was before."""
        import torch

        if self.cuda:
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
        else:
            Path("/proc/self/clear_refs").write_text("5")

    def now(self) -> float:
        """GiB at this moment."""
        import torch

        return float(torch.cuda.memory_allocated()) / GIB if self.cuda else self._status("VmRSS")

    def read(self) -> float:
        """GiB at the peak."""
        import torch

        return float(torch.cuda.max_memory_allocated()) / GIB if self.cuda else self._status("VmHWM")

    def _status(self, key: str) -> float:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith(key)) / (1 << 20)


def device_name() -> str:
    """The GPU's name, or the processor's."""
    import torch

    from securecoderl_edge.system.machine import cpu_count, cpu_model

    return torch.cuda.get_device_name() if torch.cuda.is_available() else f"{cpu_model()}, {cpu_count()} cores"


def measure_load(folder: Path, precision: str) -> dict[str, Any]:
    """Peak over what stays, both without what Python and torch need."""
    from securecoderl_edge.models.device import choose_compute
    from securecoderl_edge.models.loading import load_base
    from securecoderl_edge.models.packages import require_torch

    require_torch()
    compute = choose_compute("auto", precision)
    load_base(base_of_nano(), precision, compute.device)  # everything imported, the device initialised
    peak = Peak()
    before, started = peak.now(), time.monotonic()
    model = load_base(folder, precision, compute.device, compute.products)
    seconds, after = time.monotonic() - started, peak.now()
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return {
        "device": device_name(),
        "parameters": parameters,
        "resident_gib": round(after - before, 3),
        "load_peak_ratio": round((peak.read() - before) / (after - before), 3),
        "seconds": round(seconds, 1),
    }


def base_of_nano() -> Path:
    """The built-in model's folder."""
    from securecoderl_edge.models.files import NANO, base_folder

    return base_folder(NANO)


class ConstantScorer:
    """Stands in for `Scorer`: rewards that differ, no program run."""

    def score_async(self, problem: Any, program: str, extract: str = "raw") -> Future[Any]:
        """A score that depends on the program."""
        from securecoderl_edge.sandbox.security import Scan
        from securecoderl_edge.scoring.score import CheckedProgram, make_score

        score = make_score(CheckedProgram(problem.id, 0, program, [], 1, Scan()))
        future: Future[Any] = Future()
        future.set_result(replace(score, extract=extract, reward_paper=len(program) % 7 / 7))
        return future


def settings_for(precision: str, quick: bool) -> Any:
    """The recipe, at this benchmark's sizes."""
    import torch

    from securecoderl_edge.training.recipe import resolve

    cuda = torch.cuda.is_available()
    share = 8 if quick else 1
    overrides = (
        f"ppo.max_tokens={NEW_TOKENS // share}", f"prompt.max_tokens={PROMPT_TOKENS // share}",
        f"sft.max_tokens={NEW_TOKENS // share}", f"sft.batch_size={BATCH}", "selection.problems=0",
        "ppo.value_warmup_steps=0", f"ppo.epochs={4 if cuda else 1}", f"device='{'cuda' if cuda else 'cpu'}'",
    )  # fmt: skip
    return resolve("paper-v100", overrides, {"base_precision": precision})


def measure_training(kind: str, folder: Path, precision: str, quick: bool) -> dict[str, Any]:
    """One update of a kind, its peaks and its seconds, with what the plan says."""
    import torch

    from securecoderl_edge.models.adapters import POLICY_ADAPTER, adapter_parameters, add_adapters
    from securecoderl_edge.models.architecture import read_architecture
    from securecoderl_edge.models.decoder import Decoder
    from securecoderl_edge.models.device import choose_compute
    from securecoderl_edge.models.loading import load_base
    from securecoderl_edge.models.tokenizer import read_tokenizer
    from securecoderl_edge.problems.problem import Problem, Test
    from securecoderl_edge.training.memory import plan_memory
    from securecoderl_edge.training.update import ppo_update, prompt_sampling
    from securecoderl_edge.training.update.learner import Learner, Update, make_optimizer, make_value_head
    from securecoderl_edge.training.update.rollout import collect
    from securecoderl_edge.training.update.supervised import sft_update

    settings = settings_for(precision, quick)
    compute = choose_compute(settings.device, precision, recompute=True)
    shape = read_architecture(folder)
    cuda = compute.device == "cuda"
    model = add_adapters(load_base(folder, precision, compute.device, compute.products), settings.lora, 0)
    groups: list[dict[str, Any]] = [{"params": list(adapter_parameters(model, POLICY_ADAPTER).values()), "lr": 1e-6}]
    head = None
    if kind != "sft":
        head = make_value_head(shape.hidden, 0).to(compute.device)
        groups.append({"params": list(head.parameters()), "lr": 1e-3})
    decoder = Decoder(model, compute.rollout_dtype)
    learner = Learner(model, read_tokenizer(folder), compute, make_optimizer("adamw", groups), decoder, head)
    ppo, count, prompt_tokens = settings.ppo, BATCH, settings.prompt.max_tokens or 0
    if kind.startswith("rollout"):
        # The same length at the end, most of it prompt, so that it does not take an hour.
        prompt_tokens += ppo.max_tokens - 32
        count, ppo = int(kind.removeprefix("rollout") or ROLLOUT_SEQUENCES), replace(ppo, max_tokens=ROLLOUT_NEW_TOKENS)
        settings = replace(settings, ppo=replace(ppo, batch_size=count))
    problems = [Problem(str(n), "s", tests=(Test("", "1"),), solutions=("pass",)) for n in range(count)]
    generator = torch.Generator().manual_seed(2)
    size = min(shape.vocabulary, 30_000)
    for problem in problems:
        ids = torch.randint(10, size, (prompt_tokens,), generator=generator)
        learner.prompts[problem.id, ""] = array("i", ids.tolist())

    def planned(phase: str) -> Any:
        framework = 0 if cuda else round(baseline * GIB)
        return plan_memory(shape, settings, compute.formats(), prompt_tokens, phase, framework)

    baseline = 0.0 if cuda else imported_gib()
    facts: dict[str, Any] = {
        "device": device_name(), "base": precision, "products": str(compute.products),
        "before_gib": round(baseline, 3),
    }  # fmt: skip
    settings, scorer, peak = replace(settings, seed=0), ConstantScorer(), Peak()
    if kind.startswith("rollout"):
        started = time.monotonic()
        collect(learner, scorer, problems, 1, ppo, 0, "rollout")  # type: ignore[arg-type]
        plan = planned("binary")
        facts |= {
            "sequences": count, "sampling_gib": round(peak.read(), 3),
            "sampling_planned_gib": round(sum((*plan.always.values(), *plan.sampling.values())) / GIB, 3),
            "seconds": round(time.monotonic() - started, 1),
        }  # fmt: skip
        return facts
    if kind == "sft":
        solution = torch.randint(10, size, (settings.sft.max_tokens - 1,), generator=generator).tolist()
        end = learner.tokenizer.eos_token_id
        learner.solution_tokens = lambda *_: [*solution, end]  # type: ignore[method-assign]
        row, _ = sft_update(learner, Update(settings, "sft", problems, 1, scorer))  # type: ignore[arg-type]
        plan = planned("sft")
        facts |= {
            "sft_gib": round(peak.read(), 3),
            "sft_planned_gib": round(sum((*plan.always.values(), *plan.update.values())) / GIB, 3),
            "seconds": round(row["seconds"], 1), "tokens_per_second": round(row["tokens_per_second"], 1),
        }  # fmt: skip
        return facts
    with between_sampling_and_learning(prompt_sampling, peak, facts):
        row, _ = ppo_update.ppo_update(
            learner, Update(settings, "partial", problems, 1, scorer)  # type: ignore[arg-type]
        )  # fmt: skip
    plan = planned("partial")
    always = sum(plan.always.values())
    facts |= {
        "learning_gib": round(peak.read(), 3),
        "learning_planned_gib": round((always + sum(plan.update.values())) / GIB, 3),
        "sampling_planned_gib": round((always + sum(plan.sampling.values())) / GIB, 3),
        "tokens": row["tokens"], "epochs": ppo.epochs, "first_ratio_error": row["val/first_ratio_error"],
        "seconds_sampling": round(row["seconds_sample"], 1), "seconds_learning": round(row["seconds_update"], 1),
        "tokens_per_second": round(row["tokens_per_second"], 1),
    }  # fmt: skip
    return facts


def imported_gib() -> float:
    """Resident memory of a process that has imported everything and loaded the smallest model."""
    code = (
        "import sys; sys.path[:0] = sys.argv[1:]; import gpu_fit_worker; "
        "from securecoderl_edge.models.adapters import LoraSettings, add_adapters; "
        "from securecoderl_edge.models.files import base_folder; "
        "from securecoderl_edge.models.loading import load_base; "
        "from securecoderl_edge.models.tokenizer import read_tokenizer; read_tokenizer(base_folder('nano')); "
        "import securecoderl_edge.training.update.ppo_update, securecoderl_edge.training.update.supervised; "
        "add_adapters(load_base(base_folder('nano')), LoraSettings(), 0); print(gpu_fit_worker.Peak().now())"
    )
    paths = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run([sys.executable, "-c", code, *paths], env=environment, capture_output=True, text=True)
    return float(done.stdout.split()[-1])


@contextmanager
def between_sampling_and_learning(module: Any, peak: Peak, facts: dict[str, Any]) -> Iterator[None]:
    """Read the peak when an update has collected its completions, and start anew."""
    real: Callable[..., Any] = module.collect

    def collect(*arguments: Any, **named: Any) -> Any:
        found = real(*arguments, **named)
        facts["sampling_gib"] = round(peak.read(), 3)
        peak.reset()
        return found

    module.collect = collect
    try:
        yield
    finally:
        module.collect = real


def measure_seed(folder: Path, quick: bool) -> dict[str, Any]:
    """Peak of one update as the paper's published code makes it, on the same batch."""
    import torch

    from securecoderl_edge.models.adapters import LoraSettings, add_adapters
    from securecoderl_edge.models.device import choose_compute
    from securecoderl_edge.models.loading import load_base
    from securecoderl_edge.models.packages import require_torch
    from securecoderl_edge.system.heap import bound_free_memory

    require_torch()
    cuda = torch.cuda.is_available()
    compute = choose_compute("auto", "fp16" if cuda else "bf16")
    device, dtype = compute.device, compute.products
    share = 8 if quick else 1
    model = add_adapters(load_base(folder, "fp16" if cuda else "bf16", device), LoraSettings(), 0)
    # On a GPU without int8 units bitsandbytes does not compute; ours takes the same memory.
    reference = load_base(folder, "int8", device, dtype)
    for layer in (*model.get_base_model().model.layers, *reference.model.layers):
        layer.register_forward_pre_hook(lambda *_: bound_free_memory())  # as in our own layers
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-6)
    width = (PROMPT_TOKENS + NEW_TOKENS) // share
    tokens = torch.randint(10, 30_000, (BATCH, width), generator=torch.Generator().manual_seed(2)).to(device)
    peak, started = Peak(), time.monotonic()

    def log_probs(which: Any) -> Any:
        with torch.autocast(device, dtype):
            logits = which(tokens[:, :-1]).logits
        whole = logits.float().log_softmax(-1)
        return whole.gather(-1, tokens[:, 1:, None])[..., 0]

    with torch.no_grad():
        before, told = log_probs(model), log_probs(reference)
    ratio = (log_probs(model) - before).exp().mean(1)
    loss = -(ratio * torch.tensor([1.0, -1.0], device=device)).mean() + 0.1 * (log_probs(model) - told).mean()
    loss.backward()
    optimizer.step()
    return {
        "device": device_name(), "learning_gib": round(peak.read(), 3),
        "seconds_learning": round(time.monotonic() - started, 1), "epochs": 1,
    }  # fmt: skip


if __name__ == "__main__":
    sys.stdout.write(f"{json.dumps(work(sys.argv[1], Path(sys.argv[2]), '--quick' in sys.argv))}\n")
