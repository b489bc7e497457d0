"""What may stand in ``{{...}}`` on a page of the studies: `study_report.py` calls `DIRECTIVES` by name."""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Mapping
from dataclasses import replace
from fnmatch import fnmatch
from math import isfinite
from pathlib import Path
from typing import Any

from smollm2_studies import LONG_SFT
from study import REMOVED_ARMS, STUDIES
from study_engine.arms import Arm
from study_engine.figures import STUDY_METRICS
from study_engine.study_tables import (
    difference_table,
    gain_table,
    interval_of,
    metric_cells,
    result_rows,
    result_table,
    split_of,
    transfer_difference_table,
    transfer_table,
)

from securecoderl_edge.evaluation.tables import Table, interval_cell, to_markdown
from securecoderl_edge.scoring.intervals import Interval
from securecoderl_edge.scoring.metrics import Metric

RESULTS = Path(__file__).resolve().parent / "results"
PLOTS = "plots"  # the folder of plots, next to the pages
HIGHER, LOWER, NO_DIFFERENCE = "higher", "lower", "no_difference"

Records = Mapping[str, Mapping[str, Any]]
TITLES = {"sample_copy": "Hard-coded example %"}
METRIC = {each.name: replace(each, title=TITLES.get(each.name, each.title)) for each in STUDY_METRICS}
MAIN = "syntax_rate,any_test_rate,all_tests_rate,reward,reward_paper,r_tests,secure_rate"
ALL_TESTS = "all_tests_rate"
UNITS = {"tokens": " tokens"}  # of differences; those of rates are points


def arms_of(study: str) -> tuple[Arm, ...]:
    return STUDIES[study](Path()).arms


def read_result(file: Path) -> Any:
    return json.loads(file.read_text(encoding="utf-8"))


def arm_record(records: Records, study: str, name: str) -> Mapping[str, Any]:
    """What the record of a study says of an arm."""
    found: Mapping[str, Any] = next(each for each in records[study]["arms"] if each["name"] == name)
    return found


def policy_result(arm: Mapping[str, Any], split: str) -> Mapping[str, Any]:
    """The results of an arm's final policy on a split."""
    wanted = (split, "policy")
    found: Mapping[str, Any] = next(each for each in arm["results"] if (each["split"], each["model"]) == wanted)
    return found


def value(records: Records, study: str, arm: str, name: str = ALL_TESTS, split: str = "") -> str:
    """One result without its interval. The arm ``base`` is the base model of ``split``."""
    return _value_and_bounds(records, study, arm, name, split)[0]


def interval(records: Records, study: str, arm: str, name: str = ALL_TESTS, split: str = "") -> str:
    """One result with its interval."""
    return " ".join(_value_and_bounds(records, study, arm, name, split))


def higher(records: Records, study: str, second: str, first: str, name: str = ALL_TESTS, split: str = "") -> str:
    """The paired difference ``second`` minus ``first``, which must be significant and positive."""
    return _claim(_difference(records, study, second, first, name, split), name, HIGHER)


def lower(records: Records, study: str, second: str, first: str, name: str = ALL_TESTS, split: str = "") -> str:
    """The paired difference ``second`` minus ``first``, which must be significant and negative."""
    return _claim(_difference(records, study, second, first, name, split), name, LOWER)


def no_difference(records: Records, study: str, second: str, first: str, name: str = ALL_TESTS, split: str = "") -> str:
    """The paired difference ``second`` minus ``first``, which must not be significant."""
    return _claim(_difference(records, study, second, first, name, split), name, NO_DIFFERENCE)


def over_base(records: Records, claim: str, study: str, arm: str, name: str = ALL_TESTS, split: str = "") -> str:
    """The paired difference between an arm's policy and the base model; see `higher`."""
    found = arm_record(records, study, arm)
    return _claim(interval_of(policy_result(found, split or found["split"])["minus_base"][name]), name, claim)


def bench(records: Records, claim: str, file: str, name: str = ALL_TESTS, second: str = "") -> str:
    """A paired difference that ``sce bench --compare --json`` wrote to ``results/FILE.json``; see `higher`.

    ``second`` is the end of the name of the second model, if there are several.
    """
    compared = read_result(RESULTS / f"{file}.json")["comparisons"]
    found = next(each for each in compared if each["second"].endswith(second))
    return _claim(interval_of(found["differences"][name]), name, claim)


def laptop(_: Records, claim: str, problems: str, metric: str) -> str:
    """Base, policy and their paired difference as cells of a table, from `laptop_quality.py compare`; see `higher`."""
    found = read_result(RESULTS / "laptop-compare.json")[problems][metric]
    rates = [f"{100 * found[each]:.1f} %" for each in ("base", "policy")]
    return " | ".join((*rates, _claim(interval_of(found["difference"]), ALL_TESTS, claim)))


def count(records: Records, claim: str, study: str, second: str, first: str, names: str = MAIN, split: str = "") -> str:
    """In how many of the differences ``second`` minus ``first`` a claim is right.

    With ``*``, which stands for any name, ``second`` means arms with more than SFT.
    """
    found = []
    for each in records[study]["comparisons"]:
        arm = arm_record(records, study, each["second"])
        is_meant = fnmatch(arm["name"], second) and ("*" not in second or arm["phases"] != ["sft"])
        if each["split"] == (split or arm["split"]) and is_meant and fnmatch(each["first"], first):
            found += [_verdict(interval_of(each["metrics"][name])) == claim for name in names.split(",")]
    return _of(found)


def unchanged(records: Records, study: str, *names: str) -> str:
    """That no column of Table 3 differs significantly, in any comparison of these arms with another one on RL.

    Raises:
        ValueError: one does.
    """
    compared = [
        each
        for each in records[study]["comparisons"]
        if each["second"] in names and arm_record(records, study, each["first"])["phases"] != ["sft"]
    ]
    if {each["second"] for each in compared} != {*names}:
        raise KeyError("no such comparison")
    for each in compared:
        for name in MAIN.split(","):
            if (found := _verdict(interval_of(each["metrics"].get(name)))) != NO_DIFFERENCE:
                raise ValueError(f"{each['second']} minus {each['first']}: {name} is {found}")
    return "no rate and no reward significantly"


def chance(records: Records) -> str:
    """How many differences of the studies, in the columns of Table 3, are significant, and would be by chance."""
    compared = [each["metrics"] for record in records.values() for each in record["comparisons"]]
    found = [interval_of(metrics.get(name)) for metrics in compared for name in MAIN.split(",")]
    certain = [each for each in found if each is not None and isfinite(each.low)]
    significant = sum(_verdict(each) != NO_DIFFERENCE for each in certain)
    return f"of {len(certain):,} differences {significant} are significant, and {len(certain) / 20:.0f} would be"


def _of(found: list[bool]) -> str:
    if not found:
        raise KeyError("no such comparison")
    return f"{sum(found)} of {len(found)}"


def seeds(records: Records, study: str) -> str:
    """The number of seeds, as a word."""
    return ("no", "one", "two", "three", "four", "five")[len(records[study]["seeds"])]


def by_seed(records: Records, study: str, arm: str, rate: str = "all_tests", split: str = "") -> str:
    """The rate of programs that pass all tests, or with ``syntax`` of those that parse, of each seed, in percent."""
    found = arm_record(records, study, arm)
    return ", ".join(f"{100 * each:.1f}" for each in policy_result(found, split or found["split"])[f"{rate}_by_seed"])


def kept(records: Records, study: str, arm: str, phase: str) -> str:
    """The selected step of a phase, of each seed."""
    return ", ".join(str(seed[phase]) for seed in arm_record(records, study, arm)["kept"])


def minutes(records: Records, study: str, arm: str) -> str:
    """The mean time of one training, with the phases that it reused from another."""
    return _minutes(arm_record(records, study, arm))


def over_training(records: Records, study: str, arm: str, name: str, first: str, last: str) -> str:
    """The mean of a rate in updates ``first`` to ``last``, over the seeds, in percent."""
    return f"{100 * _mean_in_training(records, study, arm, name, first, last):.1f} %"


def _mean_in_training(records: Records, study: str, arm: str, name: str, first: str, last: str) -> float:
    training = arm_record(records, study, arm)["training"]
    updates = zip(training["updates"], training[name]["mean"], strict=True)
    means = [mean for update, mean in updates if int(first) <= update <= int(last)]
    return float(sum(means) / len(means))


def kl(records: Records, study: str, arm: str, first: str, last: str) -> str:
    """The mean KL to the SFT policy in updates ``first`` to ``last``, in nats per completion."""
    return f"{_mean_in_training(records, study, arm, 'objective/kl', first, last):.2f} nats"


def results(records: Records, study: str, split: str, names: str = MAIN, weights: str = "") -> str:
    """The results on a split, of the base model and of every arm that was trained for it.

    ``names`` of metrics; ``weights`` picks rows by that column: ``float`` leaves out exported files.
    """
    record, known = records[study], {arm.name for arm in arms_of(study)}
    table = result_table(record, split, _columns(record, names))
    arms = [None] * (len(table.rows) - len(result_rows(record, split))) + [arm for arm, _ in result_rows(record, split)]
    rows = [
        (*row, str(len(arm["seeds"])), _minutes(arm), _arguments(study, arm["name"], known))
        if arm
        else (*row, "", "", "")
        for row, arm in zip(table.rows, arms, strict=True)
        if arm is None or weights in ("", row[1])
    ]
    return _markdown(Table((*table.columns, "seeds", "training", "reproduce with"), tuple(rows)))


def _arguments(study: str, arm: str, known: Container[str]) -> str:
    """What `study.py` needs to train and evaluate one arm again."""
    if arm in known:
        return f"`{study} --only {arm}`"
    return f"`{study} --only {arm}`, commit {REMOVED_ARMS[arm]}" if arm in REMOVED_ARMS else "an earlier commit"


def equal_cost(records: Records, study: str, split: str, names: str = MAIN, arms: str = "*") -> str:
    """The results on a split with the cost of a training: updates, samples, tokens of references, and time.

    The column "SFT kept" says in how many seeds selection kept no step of the phases after SFT. ``arms`` is a pattern
    of names.
    """
    columns, rows = _columns(records[study], names), []
    for arm in records[study]["arms"]:
        if fnmatch(arm["name"], arms) and any(result["split"] == split for result in arm["results"]):
            title = arm["title"] if arm["split"] == split else f"{arm['title']}, trained on {arm['split']}"
            used = (f"{arm['cost'][name]:,}" for name in ("updates", "completions", "reference_tokens"))
            cells = metric_cells(policy_result(arm, split)["metrics"], columns, lines=1)
            rows.append((title, str(len(arm["seeds"])), *used, _minutes(arm), _kept_sft(arm), *cells))
    titles = ("Variant", "seeds", "updates", "samples", "reference tokens", "training", "SFT kept")
    return _markdown(Table((*titles, *(each.title for each in columns)), tuple(rows)))


def _kept_sft(arm: Mapping[str, Any]) -> str:
    if arm["phases"] == ["sft"]:
        return ""
    return _of([not any(step for phase, step in seed.items() if phase != "sft") for seed in arm["kept"]])


def differences(records: Records, study: str, split: str, names: str = MAIN, first: str = "") -> str:
    """Paired differences on a split; ``first`` picks those from one arm."""
    return _markdown(difference_table(records[study], split, _columns(records[study], names), first=first or None))


def gains(records: Records, study: str, split: str, names: str = MAIN) -> str:
    """Paired differences on a split between each policy and the base model."""
    return _markdown(gain_table(records[study], split, _columns(records[study], names)))


def subsets(records: Records, study: str, split: str, first: str) -> str:
    """All-P of each arm on a split and on its subsets, and the difference from the arm ``first`` below it."""
    record = records[study]
    parts = {"all": record, **record["subsets"]}
    counts = [split_of(part, split)["problems"] for part in parts.values()]
    rows = [("base model", *(_all_p(split_of(part, split)["base"]) for part in parts.values()))]
    for arm in record["arms"]:
        if not arm["results"]:
            continue
        cells = [
            _all_p(policy_result(arm_record({study: part}, study, arm["name"]), split)["metrics"])
            for part in parts.values()
        ]
        rows.append((arm["title"], *cells))
        pair = (first, arm["name"], split)
        below = [
            _all_p(each["metrics"], signed=True)
            for part in parts.values()
            for each in part["comparisons"]
            if (each["first"], each["second"], each["split"]) == pair
        ]
        if below:
            rows.append((f"{arm['title']} − {arm_record(records, study, first)['title']}", *below))
    titles = (f"{name}: {count}" for name, count in zip(parts, counts, strict=True))
    return _markdown(Table(("All-P %, on problems", *titles), tuple(rows)))


def _all_p(metrics: Mapping[str, Any], signed: bool = False) -> str:
    return metric_cells(metrics, [METRIC[ALL_TESTS]], lines=1, signed=signed)[0]


def transfer(records: Records, study: str, split: str, names: str = MAIN) -> str:
    """Results on a split of arms that were trained for another one."""
    return _markdown(transfer_table(records[study], split, _columns(records[study], names)))


def transfer_differences(records: Records, study: str, split: str, names: str = MAIN) -> str:
    """Paired differences on a split between arms that were trained for another one."""
    return _markdown(
        transfer_difference_table(records[study], split, _columns(records[study], names), from_first=False)
    )


def costs(records: Records) -> str:
    """Size, time and machine of each study, and its command."""
    rows = []
    for name, record in records.items():
        trained = sum(seconds for arm in record["arms"] for seconds in arm["train_seconds"])
        rows.append((
            f"`python benchmarks/study.py {name}`", str(len(record["arms"])), str(len(record["seeds"])),
            f"{record['steps_done']} of {record['steps']}", _duration(record["wall_seconds"]), _duration(trained),
            machine(records, name),
        ))  # fmt: skip
    columns = ("command", "variants", "seeds", "finished steps", "wall time", "sum of training times", "record made on")
    return _markdown(Table(columns, tuple(rows)))


def base_model_time(records: Records, study: str, split: str) -> str:
    """The time that the base model of a split took to make."""
    return _duration(split_of(records[study], split)["prepare_seconds"])


def problems(records: Records, study: str, split: str, unit: str = "problems") -> str:
    """The number of problems of a split, or of their ``groups``."""
    return str(split_of(records[study], split)[unit])


def footprints(_: Records) -> str:
    """Code and stack of the right programs of each variant for C, and the differences between variants."""
    found, titles = read_result(RESULTS / "c-footprints.json"), {arm.name: arm.title for arm in arms_of("c")}
    rows = [(titles[name], *_in_bytes(sizes, signed=False)) for name, sizes in found["arms"].items()]
    for pair, sizes in found["differences"].items():
        second, first = pair.split(" minus ")
        rows.append((f"{titles[second]} − {titles[first]}", *_in_bytes(sizes, signed=True)))
    return _markdown(Table(("Variant", "bytes of code", "bytes of stack"), tuple(rows)))


def _in_bytes(sizes: Mapping[str, Any], signed: bool) -> list[str]:
    size = Metric("bytes", "bytes", False, lambda row: None, 0)
    return [interval_cell(interval_of(sizes[kind]), size, signed=signed) for kind in ("code_bytes", "stack_bytes")]


def long_sft(_: Records) -> str:
    """The updates of SFT that take SmolLM2 as long as SFT and RL."""
    return str(LONG_SFT)


def figure(records: Records, name: str, docs: str = "") -> str:
    """A plot of `study_plots`, with the description of its finding; ``docs`` leads to the folder of the pages."""
    from study_plots import alt_text

    return f"![{alt_text(name, records)}]({docs}{PLOTS}/{name}.svg)"


def machine(records: Records, study: str) -> str:
    """The machine of a study's results."""
    found = records[study]["machine"]
    return f"{found['cores']} cores of an {found['cpu']}"


DIRECTIVES: dict[str, Callable[..., str]] = {
    each.__name__: each
    for each in (
        value, interval, higher, lower, no_difference, over_base, bench, laptop, count, unchanged, chance, seeds,
        by_seed, kept, minutes, over_training, kl, results, equal_cost, gains, subsets, differences,
        transfer, transfer_differences, costs,
        base_model_time, problems, footprints, long_sft, figure,
    )
}  # fmt: skip


def _value_and_bounds(records: Records, study: str, arm: str, name: str, split: str) -> tuple[str, str]:
    if arm == "base":
        metrics = split_of(records[study], split)["base"]
    else:
        found = arm_record(records, study, arm)
        metrics = policy_result(found, split or found["split"])["metrics"]
    number, _, interval = interval_cell(interval_of(metrics[name]), METRIC[name]).partition(" ")
    return f"{number} %" if METRIC[name].is_rate else number, interval


def _difference(records: Records, study: str, second: str, first: str, name: str, split: str) -> Interval | None:
    wanted = (first, second, split or arm_record(records, study, second)["split"])
    found = next(
        each for each in records[study]["comparisons"] if (each["first"], each["second"], each["split"]) == wanted
    )
    return interval_of(found["metrics"][name])


def _verdict(difference: Interval | None) -> str:
    if difference is None or not difference.excludes_zero:
        return NO_DIFFERENCE
    return HIGHER if difference.value > 0 else LOWER


def _claim(difference: Interval | None, name: str, claim: str) -> str:
    """The difference in words, if it is as claimed."""
    if claim != _verdict(difference):
        raise ValueError(f"the text claims {claim}, the results show {_verdict(difference)}")
    number, _, interval = interval_cell(difference, METRIC[name], signed=True).partition(" ")
    unit = " points" if METRIC[name].is_rate else UNITS.get(name, "")
    return f"{number}{unit} {interval}".strip()


def _columns(record: Mapping[str, Any], names: str) -> list[Metric]:
    solved = replace(METRIC["solved_rate"], title=f"pass@{record['samples']} %")
    return [solved if name == "solved_rate" else METRIC[name] for name in names.split(",")]


def _markdown(table: Table) -> str:
    return to_markdown(table).strip()


def _minutes(arm: Mapping[str, Any]) -> str:
    """The mean time of a training: of all its updates, or in older results of what it trained itself."""
    trained = arm["train_seconds"]
    return f"{arm.get('cost', {}).get('seconds', sum(trained) / len(trained)) / 60:.1f} min"


def _duration(seconds: float) -> str:
    minutes = seconds / 60
    return f"{minutes:.1f} min" if minutes < 90 else f"{minutes / 60:.1f} h"
