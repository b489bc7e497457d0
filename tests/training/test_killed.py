"""A run that is killed again and again, at any moment, ends as if nothing had happened."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from places import TESTS

pytest.importorskip("torch", reason="needs the train extra")

import torch
from safetensors.torch import load_file
from small_runs import write_additions

from securecoderl_edge.system.rows import RowFile

SCRIPT = TESTS / "train_script.py"
KILLS = 20
MEASURED = ("seconds", "seconds_sample", "seconds_score", "seconds_update", "tokens_per_second", "peak_rss_mib")


@pytest.fixture(scope="module")
def problems(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_additions(tmp_path_factory.mktemp("problems") / "problems.jsonl")


# With a value head, pass rates, a checkpoint an update, evaluations and epochs: everything that could be forgotten.
OVERRIDES = (
    "ppo.advantage=gae",
    "sampling.method=adaptive",
    "checkpoint_every=1",
    "binary.steps=15",
    "partial.steps=15",
)


class Server:
    """Starts training runs from a process that has loaded torch."""

    def __init__(self) -> None:
        command = [sys.executable, "-W", "ignore", str(SCRIPT), "serve"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def start(self, model: Path, problems: Path, out: Path) -> int:
        """The process id of a new run."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([str(model), str(problems), str(out), *OVERRIDES]) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def wait(self) -> int:
        """How the run ended, as ``os.waitpid`` says it."""
        return self._answer()

    def close(self) -> None:
        self._process.communicate()

    def _answer(self) -> int:
        assert self._process.stdout is not None
        return int(self._process.stdout.readline())


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    opened = Server()
    yield opened
    opened.close()


def wait_for_more(out: Path) -> None:
    """Until something of this run has been written."""
    metrics, deadline = out / "metrics.jsonl", time.monotonic() + 60
    before = metrics.stat().st_size if metrics.exists() else 0
    while time.monotonic() < deadline and not (out / "policy").exists():
        if metrics.exists() and metrics.stat().st_size > before:
            return
        time.sleep(0.01)


def untimed(run: Path, name: str) -> list[dict[str, Any]]:
    return [{key: row[key] for key in row if key not in MEASURED} for row in RowFile(run / name).read()]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_run_killed_at_twenty_random_moments_equals_an_uninterrupted_one_bit_for_bit(
    server: Server, tiny_model: Path, problems: Path, tmp_path: Path
) -> None:
    whole, killed = tmp_path / "a" / "whole", tmp_path / "b" / "killed"
    server.start(tiny_model, problems, whole)
    assert server.wait() == 0
    one_update = max(row["seconds"] for row in RowFile(whole / "metrics.jsonl").read())
    chooser = random.Random(time.time_ns())  # other moments each time; a failure shows which
    moments: list[float] = []
    # Two busy processes besides: what comes out must not depend on who gets the processor.
    load = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    try:
        while len(moments) < KILLS:
            pid = server.start(tiny_model, problems, killed)
            is_learning = chooser.random() < 0.7  # else wherever it is then, loading included
            if is_learning:
                wait_for_more(killed)
            moments.append(round(chooser.uniform(0, one_update if is_learning else 1), 3))
            time.sleep(moments[-1])
            with contextlib.suppress(ProcessLookupError):  # it was done
                os.killpg(pid, signal.SIGKILL)
            if server.wait() == 0:
                break  # it was done before it could be killed
    finally:
        for each in load:
            each.kill()
            each.wait()
    assert len(moments) >= KILLS // 2
    server.start(tiny_model, problems, killed)
    assert server.wait() == 0
    for name in ("metrics.jsonl", "samples.jsonl"):
        assert untimed(killed, name) == untimed(whole, name), moments
    for file in ("policy/adapter_model.safetensors", *value_heads(whole)):
        one, two = load_file(whole / file), load_file(killed / file)
        assert one.keys() == two.keys()
        assert all(torch.equal(value, two[key]) for key, value in one.items()), moments
    assert not [path for path in killed.rglob("*.tmp-*") if path.parent.name == "checkpoints"]


def value_heads(run: Path) -> list[str]:
    found = [str(path.relative_to(run)) for path in run.glob("phases/3-partial/checkpoints/*/value_head.safetensors")]
    assert found
    return found
