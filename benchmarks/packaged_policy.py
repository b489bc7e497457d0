"""Makes the packaged policy `smollm2-rl` of a run on `smollm2`: adapter, record, results and model card.

    python benchmarks/packaged_policy.py runs/smollm2-run       (15 minutes of CPU time, most of it evaluation)
    python benchmarks/packaged_policy.py --quick RUN            (3 minutes; on 64 problems of MBPP only)
    python benchmarks/packaged_policy.py --card                 only the card, of the record that exists

The adapter is exported and verified as by ``sce export --format adapter``. What is evaluated is the packaged file on
its quantized base in llama.cpp, greedily, next to that base. Evaluations that the run already has, in torch, are also
listed. Rows are in RUN/bench, so the same command resumes. The card is `pages/smollm2-rl.md` with the numbers put in.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from record import fill_page
from study_engine.study_tables import interval_of

from securecoderl_edge import api
from securecoderl_edge.config import read_toml
from securecoderl_edge.errors import UsageError
from securecoderl_edge.evaluation.tables import Table, interval_cell, to_markdown
from securecoderl_edge.models.files import SMOLLM2, SMOLLM2_RL, SMOLLM2_RL_ADAPTER
from securecoderl_edge.problems.sources import load_problems
from securecoderl_edge.runs import ENVIRONMENT, Run, find_run
from securecoderl_edge.runtimes.manifests import manifest_path
from securecoderl_edge.scoring.intervals import rate_interval
from securecoderl_edge.scoring.metrics import METRICS, by_problem, passes_all_tests
from securecoderl_edge.system.files import read_json, write_atomically
from securecoderl_edge.system.rows import RowFile

FOLDER = SMOLLM2_RL_ADAPTER.parent
OVERLAPS = Path(__file__).with_name("results") / "mbpp-overlap.json"  # mbpp_overlap.py
RECORD, CARD, SETTINGS = "record.json", "MODEL_CARD.md", "config.toml"
PROBLEMS = ("mbpp:test", "humaneval:test")
QUICK = ("--limit", "64")
MOST_BYTES = 12 * 10**6
SHOWN = {each.name: each for each in METRICS if each.name in ("syntax_rate", "any_test_rate", "all_tests_rate")}
COMPUTED_BY = {"gguf": "llama.cpp", "hf": "torch"}
PHASES = {
    "sft": "SFT on reference solutions",
    "binary": "RL on the binary reward",
    "scheduled": "RL on a mixture of rewards",
    "partial": "RL on partial credit",
    "rft": "SFT on its own passing programs",
    "ssd": "SFT on its own programs",
}
SUPERVISED = ("sft", "rft", "ssd")
WITHOUT_RL = "It is a supervised policy: {}. No update used RL, in spite of its name."


def package(run: Run, is_quick: bool) -> None:
    """Write the adapter and the record of ``run`` into the package; ``is_quick`` evaluates it on fewer problems.

    Raises:
        UsageError: the run is not one on `smollm2`, or the file is too large.
        SceError: the adapter does not agree with the run.
    """
    if run.base_model != SMOLLM2:
        raise UsageError(f"{run.path}: a run on {run.base_model}. Give one on {SMOLLM2}.")
    exported = api.export(str(run.path), "adapter", "f16", out=SMOLLM2_RL_ADAPTER, force=True)
    if exported.manifest.bytes > MOST_BYTES:
        raise UsageError(f"{exported.path}: {exported.manifest.bytes} bytes; at most {MOST_BYTES} belong into a wheel.")
    for name in (SETTINGS, ENVIRONMENT):
        shutil.copyfile(run.path / name, FOLDER / name)
    write_record(training_of(run))  # the policy can be opened from here on, and is evaluated
    names, limit = (PROBLEMS[:1], QUICK) if is_quick else (PROBLEMS, ())
    results = [evaluated(run, name, *limit) for name in names]
    write_record({**training_of(run), "results": [*results, *other_results(run)]})


def training_of(run: Run) -> dict[str, Any]:
    """The record of the training: its phases, and the cost of the updates that this run made itself."""
    rows = RowFile(run.path / "metrics.jsonl").read()
    names = ("steps", "chosen_step", "why", "held_out")
    return {
        "run": run.name,
        "phases": [{"phase": phase, **{name: facts.get(name) for name in names}} for phase, facts in run.outcomes()],
        "updates": len(rows),
        "seconds": round(sum(row["seconds"] for row in rows)),
        "peak_rss_mib": max(row["peak_rss_mib"] for row in rows),
    }


def evaluated(run: Run, problems: str, *limit: str) -> dict[str, Any]:
    """Results of the packaged policy and its base, with their paired differences."""
    folder = run.path / "bench" / f"packaged-{problems.partition(':')[0]}"
    words = ("bench", SMOLLM2, SMOLLM2_RL, "--problems", problems, "--temperature", "0", "--compare", "--threads", "1")
    command = [sys.executable, "-m", "securecoderl_edge", *words, *limit, "--out", str(folder)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return result_of(folder / "bench.json")


def other_results(run: Run) -> Iterator[dict[str, Any]]:
    """Evaluations of the run itself that are in its folder, if they were greedy and complete."""
    for file in sorted((run.path / "bench").glob("*/bench.json")):
        document = read_json(file)
        asked, (first, *_) = document["settings"], document["models"]
        is_whole = asked["limit"] is None and asked["shard"] is None and not asked["temperature"]
        if is_whole and first["kind"] == "hf" and asked["problems"] in PROBLEMS:
            yield result_of(file)


def result_of(file: Path) -> dict[str, Any]:
    """What the card needs of a bench.json and its rows: nothing of its machine's folders."""
    document = read_json(file)
    overlaps = read_json(OVERLAPS)["overlaps"][document["settings"]["problems"]]
    kept = ("model", "kind", "samples", *SHOWN, "secure_rate", "completion_tokens_mean", "truncated_rate")
    asked = ("problems", "limit", "temperature", "max_tokens", "max_prompt_tokens", "seed", "base_precision")
    return {
        "models": [
            {
                **{name: model[name] for name in kept},
                "without_overlaps": rate_without(overlaps, RowFile(file.parent / model["log"] / "rows.jsonl").read()),
            }
            for model in document["models"]
        ],
        "differences": [each["differences"]["all_tests_rate"] for each in document["comparisons"]],
        "settings": {name: document["settings"][name] for name in asked},
        "machine": document["machine"],
    }


def rate_without(overlaps: Container[str], rows: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """The rate of programs that pass all tests of problems that are not in ``overlaps``."""
    kept = by_problem([row for row in rows if row["id"] not in overlaps])
    return asdict(rate_interval([[*map(passes_all_tests, group)] for group in kept.values()]))


def write_record(record: Mapping[str, Any]) -> None:
    """Write the record into the package."""
    with write_atomically(FOLDER / RECORD) as out:
        out.write(f"{json.dumps(record, indent=1)}\n")


def card() -> str:
    """The model card of what is in the package."""
    record, settings = read_json(FOLDER / RECORD), read_toml(FOLDER / SETTINGS)
    manifest, environment = read_json(manifest_path(SMOLLM2_RL_ADAPTER)), read_json(FOLDER / ENVIRONMENT)
    machine, phases = environment["machine"], [each["phase"] for each in record["phases"]]
    in_words = ", then ".join(f"{PHASES[each['phase']]} ({each['steps']} updates)" for each in record["phases"])
    packaged = record["results"][0]
    count = settings["selection"]["problems"]
    return fill_page(
        "smollm2-rl.md",
        kind=WITHOUT_RL.format(in_words) if {*phases} <= {*SUPERVISED} else f"It was trained by {in_words}.",
        file=SMOLLM2_RL_ADAPTER.name,
        megabytes=f"{manifest['bytes'] / 1e6:.1f}",
        sha256=manifest["sha256"],
        rank=manifest["rank"],
        tensors=manifest["tensors"],
        quant=manifest["quant"],
        layers=", ".join(f"`{name}`" for name in settings["lora"]["targets"]),
        style=manifest["prompt_style"],
        kl=f"{manifest['agreement']['mean_kl']:.2g}",
        top1=f"{100 * manifest['agreement']['top1']:.1f} %",
        problems=settings["problems"],
        problem_count=len(load_problems(settings["problems"])),
        reformatted=", reformatted" if settings["reformat_solutions"] else "",
        overlap="No statement is a near-duplicate of one of `mbpp:test` or `humaneval`."
        if settings["problems"] == "mbpp:clean"
        else "Some are near-duplicates of problems of `mbpp:test`: its results are too good.",
        training=_training_table(record, settings),
        seed=settings["seed"],
        updates=record["updates"],
        minutes=round(record["seconds"] / 60),
        memory=f"{record['peak_rss_mib'] / 1024:.1f}",
        threads=environment["sessions"][0]["threads"],
        cores=machine["cores"],
        load=machine["load_average"][0],
        cpu=machine["cpu"],
        held_out=count,
        command=" ".join(["sce", *environment["command"][1:]]),
        max_tokens=packaged["settings"]["max_tokens"],
        results=_results_table(record["results"]),
        differences="\n".join(f"* {_difference(each)}" for each in record["results"] if each["differences"]),
        failing=f"{100 - 100 * packaged['models'][1]['all_tests_rate']['value']:.0f} %",
    )


def _training_table(record: Mapping[str, Any], settings: Mapping[str, Any]) -> str:
    rows = []
    for phase in record["phases"]:
        rewards = {each["step"]: f"{each['reward']:.3f}" for each in phase["held_out"]}
        name = phase["phase"]
        method = settings["sft" if name in SUPERVISED else "ppo"]
        rate, size = settings[name].get("learning_rate", method["learning_rate"]), method["batch_size"]
        before, after = rewards.get(0, "–"), rewards.get(phase["chosen_step"], "–")
        chosen = f"{phase['chosen_step']} of {phase['steps']}"
        rows.append((PHASES[name], chosen, str(size), f"{rate:g}", before, after))
    columns = ("phase", "selected update", "batch", "learning rate", "reward before", "after")
    return to_markdown(Table(columns, tuple(rows))).strip()


def _results_table(results: list[dict[str, Any]]) -> str:
    rows = []
    for result in sorted(results, key=lambda each: PROBLEMS.index(each["settings"]["problems"])):
        for model in result["models"]:
            label = model["model"] if model["kind"] == "gguf" else f"the run, {result['settings']['base_precision']}"
            kinds = [*SHOWN.items(), ("without_overlaps", SHOWN["all_tests_rate"])]
            cells = (interval_cell(interval_of(model[name]), metric) for name, metric in kinds)
            first = "first " if result["settings"]["limit"] else ""
            asked = f"`{result['settings']['problems']}`, {first}{model['samples']}"
            rows.append((asked, label, COMPUTED_BY[model["kind"]], *cells))
    columns = ("problems", "model", "computed by", *(metric.title for metric in SHOWN.values()), "without overlaps")
    return to_markdown(Table(columns, tuple(rows))).strip()


def _difference(result: Mapping[str, Any]) -> str:
    (found,) = result["differences"]
    value, _, bounds = interval_cell(interval_of(found), SHOWN["all_tests_rate"], signed=True).partition(" ")
    verdict = "significant" if found["distinguishable"] else "not significant"
    problems = result["settings"]["problems"]
    return f"`{problems}`: {value} points {bounds}, {verdict}"


def main() -> None:
    """Make the folder, or its card alone."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("run", nargs="?", help="as for sce export")
    parser.add_argument("--quick", action="store_true", help="evaluate it on 64 problems of MBPP only")
    parser.add_argument("--card", action="store_true", help="write the card alone, of the record in the package")
    arguments = parser.parse_args()
    if not arguments.card:
        run = find_run(arguments.run or "latest")
        if run is None:
            parser.error(f"not a run: {arguments.run or 'latest'}")
        package(run, arguments.quick)
    with write_atomically(FOLDER / CARD) as out:
        out.write(card())


if __name__ == "__main__":
    main()
