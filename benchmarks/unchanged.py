"""Does a change leave everything that users see as it was? The same commands on an earlier commit and on this tree.

    python benchmarks/unchanged.py --against COMMIT --json unchanged.json

Compares, byte for byte: the adapter of a short training, its q8_0 GGUF and int8 ONNX exports, what ``sce score`` says
of programs that people and models wrote, the rows of a bench without its timings, and every ``--help``. Paths
are left out. Each side runs from its own folder, with the packages of this environment.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
from record import publish

from securecoderl_edge.cli import sce
from securecoderl_edge.sandbox.calibration import CALIBRATION_FILE
from securecoderl_edge.system.machine import cpu_model

ROOT = Path(__file__).parents[1]
APPS = ROOT.parent / "shared" / "data" / "apps" / "train"
# What no two runs of one program agree in.
TIMINGS = (
    *("seconds", "first_token", "between_tokens", "generation_seconds", "machine", "command"),
    *("prompt_tokens_per_second", "decode_tokens_per_second", "peak_rss_bytes"),
)


class Side:
    """One tree, and a folder that its commands run in."""

    def __init__(self, tree: Path, folder: Path) -> None:
        self.tree, self.folder = tree, folder
        folder.mkdir()

    def sce(self, *words: str) -> str:
        """Standard output of a command.

        Raises:
            SystemExit: it fails.
        """
        # PEFT writes sets into its files, in the order of their hashes.
        environment = {**os.environ, "PYTHONPATH": str(self.tree), "COLUMNS": "100", "PYTHONHASHSEED": "0"}
        done = subprocess.run(
            [sys.executable, "-m", "securecoderl_edge", *words],
            cwd=self.folder, env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode != 0:
            raise SystemExit(f"{self.tree}: sce {' '.join(words)}: {done.stderr[-500:]}")
        return done.stdout.replace(str(self.folder), "FOLDER").replace(str(self.tree), "TREE")

    def files(self, pattern: str) -> dict[str, str]:
        """SHA-256 of the files of a pattern."""
        found = sorted(self.folder.glob(pattern))
        if not found:
            raise SystemExit(f"{self.tree}: nothing was written as {pattern}")
        return {str(file.relative_to(self.folder)): hashlib.sha256(file.read_bytes()).hexdigest() for file in found}


def adapter(side: Side) -> Any:
    side.sce("train", "--max-steps", "5", "--seed", "7", "--out", "runs/short")
    return side.files("runs/short/policy/*.safetensors")


def gguf(side: Side) -> Any:
    side.sce("export", "runs/short", "--format", "gguf", "--quant", "q8_0")
    return side.files("runs/short/exports/*.gguf")


def onnx(side: Side) -> Any:
    side.sce("export", "runs/short", "--format", "onnx", "--quant", "int8")
    return side.files("runs/short/exports/*/*.onnx*")


def scores(side: Side) -> Any:
    """The published solutions of two APPS problems and what a model wrote for them."""
    found = {}
    for folder in sorted(APPS.iterdir()):
        problems = side.folder / f"{folder.name}.jsonl"
        side.sce("data", "import", str(folder.parent), "--format", "apps", "--out", str(problems))
        problem = next(p for p in map(json.loads, problems.read_text().splitlines()) if p["id"].endswith(folder.name))
        programs = json.loads((folder / "solutions.json").read_text(encoding="utf-8"))
        programs += [each["code"] for each in json.loads((folder / "gen_solutions.json").read_text(encoding="utf-8"))]
        lines = [
            json.dumps({"id": problem["id"], "sample": number, "completion": program})
            for number, program in enumerate(programs)
        ]
        (side.folder / "completions.jsonl").write_text("\n".join(lines))
        out = side.folder / f"{folder.name}-scores.jsonl"
        side.sce("score", "--problems", str(problems), "--completions", "completions.jsonl", "--out", str(out))
        found[folder.name] = [without_timings(json.loads(line)) for line in out.read_text().splitlines()]
    return found


def bench(side: Side) -> Any:
    # Time limits follow the speed of the processor, which is found out anew by each bench.
    (side.folder / "bench").mkdir()
    (side.folder / "bench" / CALIBRATION_FILE).write_text(json.dumps({cpu_model(): 1.0}), encoding="utf-8")
    document = json.loads(side.sce("bench", "--limit", "20", "--json", "--out", "bench"))
    logs = {
        file.parent.name.rpartition("-")[0]: [without_timings(json.loads(line)) for line in file.open(encoding="utf-8")]
        for file in sorted((side.folder / "bench").glob("*/rows.jsonl"))
    }
    return {"rows": logs, **{name: without_timings(document[name]) for name in ("models", "comparisons", "settings")}}


def helps(side: Side) -> Any:
    return {" ".join(words): side.sce(*words, "--help") for words in commands(sce, click.Context(sce), ())}


def commands(group: click.Command, context: click.Context, words: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """The words of every command, those of groups included."""
    yield words
    if isinstance(group, click.Group):
        for name in group.list_commands(context):
            command = group.get_command(context, name)
            assert command is not None
            yield from commands(command, context, (*words, name))


CHECKS: dict[str, Callable[[Side], Any]] = {
    "adapter": adapter, "gguf": gguf, "onnx": onnx, "scores": scores, "bench": bench, "help": helps,
}  # fmt: skip


def without_timings(value: Any) -> Any:
    """A JSON value without what the clock decides."""
    if isinstance(value, dict):
        return {name: without_timings(each) for name, each in value.items() if not name.startswith(TIMINGS)}
    return [without_timings(each) for each in value] if isinstance(value, list) else value


def main() -> None:
    """Check out the commit, run both sides, and say what differs; exit status 1 if anything does."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", required=True, metavar="COMMIT")
    parser.add_argument("--quick", action="store_true", help="the help texts and the scores alone")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    checks = {name: CHECKS[name] for name in (("scores", "help") if options.quick else CHECKS)}
    of = subprocess.run(
        ["git", "-C", ROOT, "describe", "--always", "--dirty"], check=True, capture_output=True, text=True
    )
    results: dict[str, Any] = {"against": options.against, "of": of.stdout.strip(), "equal": {}, "sha256": {}}
    with tempfile.TemporaryDirectory(prefix="unchanged-") as name:
        before, folder = Path(name) / "before", Path(name)
        subprocess.run(["git", "-C", ROOT, "worktree", "add", "--detach", before, options.against], check=True)
        try:
            sides = [Side(before, folder / "old"), Side(ROOT, folder / "new")]
            for what, check in checks.items():
                found = [json.dumps(check(side), sort_keys=True) for side in sides]
                results["equal"][what] = found[0] == found[1]
                results["sha256"][what] = hashlib.sha256(found[1].encode()).hexdigest()
                sys.stdout.write(f"{what:8} {'equal' if found[0] == found[1] else 'DIFFERS'}\n")
                if found[0] != found[1]:
                    for side, text in zip(("old", "new"), found, strict=True):
                        file = Path(f"{what}-{side}.json")
                        file.write_text(text, encoding="utf-8")
                        sys.stdout.write(f"         see {file}\n")
        finally:
            subprocess.run(["git", "-C", ROOT, "worktree", "remove", "--force", before], check=True)
    publish(results, options.json)
    sys.exit(0 if all(results["equal"].values()) else 1)


if __name__ == "__main__":
    main()
