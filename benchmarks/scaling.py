"""How the cost of an update grows with the size of the model and the number of cores.

    python benchmarks/scaling.py --json benchmarks/results/scaling.json

The updates are those of ppo_step.py: 4 prompts of 64 tokens with 2 completions of 128 tokens each, and 4 passes over
them. The models are random Llamas with 4,096 words and LoRA on q, k, v, o, in the dtypes that training chooses. A row
is one model: CPU milliseconds per token of sampling, of a forward pass and of a backward pass; and the wall time of an
update on one thread and on two. ``exponents`` are the slopes of a line through the logarithms of CPU time and
parameters: 1 means proportional.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from ppo_step import run
from ppo_step_worker import BATCH, EPOCHS, NEW_TOKENS, PROMPT_TOKENS, SAMPLES, VOCABULARY
from record import publish

SIZES = ((256, 4), (384, 12), (576, 24), (960, 32))
UPDATES = 2
SAMPLED = BATCH * NEW_TOKENS
# The last token of a completion predicts nothing; a prompt is read once for its completions.
PASSED = BATCH // SAMPLES * PROMPT_TOKENS + BATCH * (NEW_TOKENS - 1)
# Forwards: the reference, the old log-probabilities, which are also the first pass, and those of the other epochs.
FORWARDS = 2 + EPOCHS - 1
COSTS = ("sampling", "forward", "backward")


def main() -> None:
    """Measure each size in processes of their own, print and save."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="the two smallest models")
    parser.add_argument("--json", type=Path, help="file for the results")
    arguments = parser.parse_args()
    rows = []
    for hidden, layers in SIZES[:2] if arguments.quick else SIZES:
        rows.append(measure(hidden, layers))
        sys.stdout.write("  ".join(f"{name} {value}" for name, value in rows[-1].items()) + "\n")
        sys.stdout.flush()
    exponents = {
        cost: slope([(row["million_parameters"], row[f"{cost}_ms_per_token"]) for row in rows]) for cost in COSTS
    }
    publish({"rows": rows, "exponents": exponents, "updates": UPDATES}, arguments.json)


def measure(hidden: int, layers: int) -> dict[str, Any]:
    """The costs of one model."""
    model = f"random-{hidden}-{layers}"
    # Embedding, which is the output layer too; attention; MLP.
    size = (VOCABULARY * hidden + layers * (4 * hidden**2 + 3 * hidden * (hidden * 43 // 16))) / 1e6
    with tempfile.TemporaryDirectory() as folder:
        run(model, "make", Path(folder), 0, 1)
        parts = run(model, "parts", Path(folder), UPDATES, 1)["seconds_by_part"]
        walls = [statistics.median(run(model, "own", Path(folder), UPDATES, n)["wall_seconds"]) for n in (1, 2)]
    forward = parts["reference and old log-probabilities"] + parts["forward passes"]
    seconds = (
        parts["sampling"] / SAMPLED,
        forward / (FORWARDS * PASSED),
        parts["backward passes"] / (EPOCHS * PASSED),
    )
    row = {"million_parameters": round(size, 1)}
    row |= {f"{cost}_ms_per_token": round(1e3 * each, 3) for cost, each in zip(COSTS, seconds, strict=True)}
    row |= {
        "cpu_seconds": parts["all"],
        "wall_seconds": round(walls[0], 2),
        "wall_seconds_2_threads": round(walls[1], 2),
    }
    return row


def slope(points: list[tuple[float, float]]) -> float:
    """Of the line of least squares through the logarithms."""
    found = statistics.linear_regression([math.log(x) for x, _ in points], [math.log(y) for _, y in points])
    return round(found.slope, 2)


if __name__ == "__main__":
    main()
