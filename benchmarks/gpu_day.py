"""Everything that only a GPU can show, in steps of at most eight minutes, the most valuable first.

    python benchmarks/gpu_day.py
    python benchmarks/gpu_day.py --rehearse     every step with a tiny model on the CPU

The results are in --out after every part. Run the command again to go on: what was measured or skipped is kept, what
failed is tried again. Weights of the 1.3 B shape are random; those of `smollm2`, too, if its package is missing.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from gpu_day_steps import ROOT, STEPS, Day, Failed, Skipped, Step, name_of_device
from record import command, commit

from securecoderl_edge.system.files import write_atomically
from securecoderl_edge.system.machine import describe_machine

OUT = Path(__file__).parent / "results" / "gpu-day.json"
REHEARSED = Path(__file__).parents[1] / "runs" / "gpu-day-rehearsal.json"


def main() -> None:
    """Run the steps that are asked for and fit into the budget; print the table of all results."""
    arguments = parse()
    if (ROOT / "cache").is_dir():  # where `gpu_queue/pack.py` put the models
        os.environ["XDG_CACHE_HOME"] = str(ROOT / "cache")
    with tempfile.TemporaryDirectory() as name:
        folder = arguments.folder or Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        day = Day(folder.resolve(), arguments.rehearse)
        record = read_record(arguments.out, day)
        started = time.monotonic()
        for step in [step for step in STEPS if not arguments.only or step.name in arguments.only]:
            left = arguments.minutes * 60 - (time.monotonic() - started)
            if not arguments.rehearse and step.seconds > left:
                click.echo(f"{step.name}: not started, takes up to {step.seconds} s of the {max(0, left):.0f} s left")
                continue
            run_step(step, day, record, arguments.out)
    click.echo(table(record))


def parse() -> argparse.Namespace:
    """The command line."""
    names = [step.name for step in STEPS]
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rehearse", action="store_true", help="every step on the CPU with a tiny model")
    parser.add_argument("--minutes", type=float, default=90.0, help="start no step that does not fit into them")
    parser.add_argument("--only", type=lambda text: text.split(","), help=f"of {','.join(names)}")
    parser.add_argument("--out", type=Path, help=f"file of the results (default: {OUT.name}; of a rehearsal in runs/)")
    parser.add_argument("--folder", type=Path, help="keep random models and runs here (default: a temporary folder)")
    arguments = parser.parse_args()
    unknown = set(arguments.only or ()) - set(names)
    if unknown:
        parser.error(f"no step {sorted(unknown)[0]}; there are {', '.join(names)}")
    if arguments.out is None:  # a rehearsal never touches the record of a GPU
        arguments.out = REHEARSED if arguments.rehearse else OUT
        arguments.out.parent.mkdir(exist_ok=True)
    return arguments


def read_record(file: Path, day: Day) -> dict[str, Any]:
    """The results so far, or those of a day that begins.

    Raises:
        SystemExit: the file is of another device.
    """
    device = name_of_device(day)
    if not file.is_file():
        known = {"device": device, "rehearsal": day.rehearse, "machine": describe_machine()}
        return {**known, "command": command(), "commit": commit(), "steps": {}}
    record: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    if (record["device"], record["rehearsal"]) != (device, day.rehearse):
        raise SystemExit(f"{file} has results of {record['device']}; choose another --out")
    return record


def run_step(step: Step, day: Day, record: dict[str, Any], file: Path) -> None:
    """Do the parts that have neither a result nor a reason to skip them; write the record after each."""
    found = record["steps"].setdefault(step.name, {})
    if not day.rehearse:
        day = replace(day, deadline=time.monotonic() + step.seconds)
    for name, measure in step.parts(day):
        if name in found and "error" not in found[name]:
            continue
        started = time.monotonic()
        try:
            result = measure()
        except Skipped as skipped:
            result = {"skipped": str(skipped)}
        except Failed as failed:
            result = {"error": str(failed)}
        found[name] = {**result, "wall_seconds": round(time.monotonic() - started, 1)}
        with write_atomically(file) as out:
            out.write(json.dumps(record, indent=1) + "\n")
        click.echo(line(step.name, name, found[name]))


def table(record: dict[str, Any]) -> str:
    """All results, a line for each part."""
    lines = [line(step, part, found) for step, parts in record["steps"].items() for part, found in parts.items()]
    return "\n".join([f"== {record['device']}", *lines])


def line(step: str, part: str, found: dict[str, Any]) -> str:
    """One part's result; of an error its last line."""
    if "error" in found:
        said = f"FAILED  {(found['error'].splitlines() or ['without a word'])[-1]}"
    elif "skipped" in found:
        said = f"skipped  {found['skipped']}"
    else:
        said = "  ".join(f"{key} {value}" for key, value in found.items() if isinstance(value, (int, float, str)))
    return f"{step:12s} {part:14s} {said}"


if __name__ == "__main__":
    main()
