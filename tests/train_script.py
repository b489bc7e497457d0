"""A small training run as a process of its own, for tests that kill it or start it several times at once.

    python tests/train_script.py MODEL PROBLEMS OUT [KEY=VALUE|--FLAG...]
    python tests/train_script.py serve     a line of those arguments in JSON starts one; answers its process id, and
                                           then how it ended; loading torch once makes twenty starts bearable

A random tiny model never solves anything, so rewards depend on the problem and the sample instead; and all is computed
in float32, whose rounding hardly depends on what else is in the batch.

With FAULT="RANK PHASE STEP KIND" in the environment, that process fails in the middle of that update, unless it was
restarted: it gets a signal (SIGKILL), an exception (bug, memory), or a loss that is not a number (nan).
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from itertools import chain
from typing import Any

from securecoderl_edge.models.packages import require_torch

SETTINGS = (
    "lora.rank=4",
    "sft.steps=3",
    "readiness_problems=3",
    "sft.batch_size=4",
    "binary.steps=3",
    "partial.steps=3",
    "ppo.batch_size=8",
    "ppo.epochs=2",
    "ppo.samples_per_prompt=4",
    "ppo.max_tokens=12",
    "ppo.micro_batch_tokens=200",
    "selection.every=2",
    "checkpoint_every=2",
    "lr_schedule=constant",
    "ppo.drop_zero_variance_groups=false",
    "reward.cpu_seconds=2",
)


def main() -> None:
    """Train as the command line says, or serve."""
    require_torch()

    if sys.argv[1:] != ["serve"]:
        run(sys.argv[1:])
        return
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                os.setpgid(0, 0)
                run(json.loads(line))
                status = 0
            finally:
                os._exit(status)
        with contextlib.suppress(OSError):  # the child does it too; whoever is first
            os.setpgid(pid, pid)
        print(pid, flush=True)
        print(os.waitpid(pid, 0)[1], flush=True)


def run(arguments: list[str]) -> None:
    """One training run in this process."""
    from small_runs import varied_pass, varied_reward

    from securecoderl_edge.cli import main as sce
    from securecoderl_edge.models import device
    from securecoderl_edge.training import parallel
    from securecoderl_edge.training.update import prompt_sampling, rollout

    model, problems, out, *overrides = arguments
    device.cpu_has_bf16 = lambda: False
    rollout.training_reward = varied_reward
    prompt_sampling.is_correct = varied_pass
    if (fault := os.environ.get("FAULT")) and not parallel.is_restarted():
        plant(*fault.split())
    words = [[each] if each.startswith("--") else ["--set", each] for each in (*SETTINGS, *overrides)]
    sce(
        [
            "train",
            "--recipe",
            "starter",
            "--model",
            model,
            "--problems",
            problems,
            "--device",
            "cpu",
            "--out",
            out,
            *chain(*words),
        ]
    )


def plant(rank: str, phase: str, step: str, kind: str) -> None:
    """Let one process fail at the end of the first backward pass of an update."""
    import torch

    from securecoderl_edge.training.phase import UPDATES
    from securecoderl_edge.training.update.learner import Learner, Update

    updates, backward, now = dict(UPDATES), Learner.backward, [""]

    def noted(learner: Learner, update: Update) -> Any:
        now[0] = f"{update.phase} {update.step}"
        return updates[update.phase](learner, update)

    def failing(self: Learner, loss: torch.Tensor) -> None:
        is_now = now[0] == f"{phase} {step}" and os.environ.get("RANK", "0") == rank
        backward(self, loss * float("nan") if is_now and kind == "nan" else loss)
        if is_now and kind == "bug":
            raise ZeroDivisionError("a bug")
        if is_now and kind == "memory":
            raise torch.OutOfMemoryError
        if is_now and kind.startswith("SIG"):
            time.sleep(0.5)  # so that the others wait for this process, and see its end before the launcher ends them
            os.kill(os.getpid(), signal.Signals[kind])

    UPDATES.update(dict.fromkeys(UPDATES, noted))
    Learner.backward = failing  # type: ignore[method-assign]


if __name__ == "__main__":
    main()
