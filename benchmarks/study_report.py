"""Writes benchmarks/STUDY.md, its plots and README's results from the figures of the studies: ``make study``.

    python benchmarks/study_report.py

``study_text.md`` is the text. Where it says ``{{...}}`` a table, a figure or a number is put in, so that no result of a
study was typed by hand. What can stand there is in `DIRECTIVES`. A line ``<!-- needs: STUDY -->`` begins a section
that is left out until that study has figures.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from securecoderl_edge.config import current_keys
from securecoderl_edge.evaluation.statistics import Interval
from securecoderl_edge.evaluation.study.record import STUDY_METRICS
from securecoderl_edge.evaluation.study.tables import (
    difference_table,
    interval_of,
    quantisation_table,
    result_rows,
    result_table,
    split_of,
    transfer_difference_table,
    transfer_table,
)
from securecoderl_edge.evaluation.tables import (
    NOT_DISTINGUISHABLE,
    Difference,
    Table,
    interval_cell,
    to_markdown,
    verdict,
)
from securecoderl_edge.problems.sources import load_problems
from securecoderl_edge.problems.splits import find_leaks
from securecoderl_edge.scoring.metrics import Metric
from securecoderl_edge.system.files import write_atomically

HERE = Path(__file__).parent
TEXT, REPORT, PLOTS = HERE / "study_text.md", HERE / "STUDY.md", HERE / "results" / "plots"
README = HERE.parent / "README.md"
NAMES = ("table3", "confirm", "security", "ablations", "hacking")

Records = Mapping[str, Mapping[str, Any]]
METRIC = {metric.name: metric for metric in STUDY_METRICS}
MAIN = "syntax_rate,any_test_rate,all_tests_rate,reward,reward_paper,r_tests,secure_rate"


def read_records(folder: Path = HERE / "results") -> dict[str, dict[str, Any]]:
    """The committed figures, by study; those that are there."""
    files = {name: folder / f"study-{name}.json" for name in NAMES}
    return {name: _read_result(file) for name, file in files.items() if file.is_file()}


def _read_result(file: Path) -> Any:
    return current_keys(json.loads(file.read_text(encoding="utf-8")))


def render(text: str, records: Records) -> str:
    """The text with its directives carried out.

    Raises:
        ValueError: a directive that nobody knows, or one about figures that are not there.
    """

    def put_in(match: re.Match[str]) -> str:
        name, *words = match[1].split()
        try:
            return DIRECTIVES[name](records, *words)
        except (KeyError, StopIteration, TypeError) as error:
            raise ValueError(f"study_text.md: {match[0]}: {error!r}") from error

    first, *parts = re.split(r"^<!-- needs:(.*?)-->\n", text, flags=re.MULTILINE)
    kept = (part for needs, part in zip(parts[::2], parts[1::2], strict=True) if set(needs.split()) <= records.keys())
    return re.sub(r"\{\{(.+?)\}\}", put_in, "".join([first, *kept]))


def results(records: Records, study: str, split: str, names: str = MAIN, weights: str = "") -> str:
    """What was measured on a split: the base model, and every arm that learnt there.

    ``names`` of metrics; ``weights`` picks rows by that column, so that ``float`` leaves out exported files.
    """
    record = records[study]
    table = result_table(record, split, _columns(names))
    arms = [None] * (len(table.rows) - len(result_rows(record, split))) + [arm for arm, _ in result_rows(record, split)]
    rows = [
        (*row, str(len(arm["seeds"])), f"`{study} --arm {arm['name']}`") if arm else (*row, "", "")
        for row, arm in zip(table.rows, arms, strict=True)
        if arm is None or weights in ("", row[1])
    ]
    return to_markdown(Table((*table.columns, "seeds", "again with"), tuple(rows)))


def differences(records: Records, study: str, split: str, names: str = MAIN, first: str = "") -> str:
    """Paired differences between arms on a split, those from the arm ``first`` alone if it is given."""
    return to_markdown(difference_table(records[study], split, _columns(names), first=first or None))


def transfer(records: Records, study: str, split: str, names: str = MAIN) -> str:
    """What arms that learnt from other problems do on a split."""
    return to_markdown(transfer_table(records[study], split, _columns(names)))


def transfer_differences(records: Records, study: str, split: str, names: str = MAIN) -> str:
    """Paired differences of arms that learnt from other problems from the warm start that learnt there."""
    return to_markdown(transfer_difference_table(records[study], split, _columns(names)))


def quantised(records: Records, study: str, split: str, names: str = MAIN) -> str:
    """Paired differences of each export from the policy that it was made from."""
    return to_markdown(quantisation_table(records[study], split, _columns(names)))


def _columns(names: str) -> list[Metric]:
    return [METRIC[name] for name in names.split(",")]


def value(records: Records, study: str, arm: str, split: str, name: str, model: str = "policy") -> str:
    """One figure with its interval; the arm ``base`` is the base model of the split."""
    record = records[study]
    if arm == "base":
        metrics = split_of(record, split)["base"]
    else:
        found = _arm(records, study, arm)["results"]
        metrics = next(each for each in found if (each["split"], each["model"]) == (split, model))["metrics"]
    return _in_words(interval_of(metrics[name]), name)


def difference(records: Records, study: str, first: str, second: str, split: str, name: str) -> str:
    """One paired difference, second minus first, with its interval."""
    return _in_words(_difference(records, study, first, second, split, name), name, signed=True)


def says(records: Records, study: str, first: str, second: str, split: str, name: str) -> str:
    """Whether the second arm is ``higher`` or ``lower`` than the first, or ``not distinguishable`` from it."""
    interval = _difference(records, study, first, second, split, name)
    return NOT_DISTINGUISHABLE if interval is None else verdict(Difference(METRIC[name], interval, None))


def bench_difference(records: Records, file: str, name: str) -> str:
    """One paired difference of what ``sce bench --compare --json`` wrote into ``results/FILE.json``."""
    document = _read_result(HERE / "results" / f"{file}.json")
    return _in_words(interval_of(document["comparisons"][0]["differences"][name]), name, signed=True)


def by_seed(records: Records, study: str, arm: str, split: str) -> str:
    """All-P of each seed, in percent."""
    found = _arm(records, study, arm)["results"]
    rates = next(each for each in found if (each["split"], each["model"]) == (split, "policy"))["all_tests_by_seed"]
    return ", ".join(f"{100 * rate:.1f}" for rate in rates)


def in_readme(text: str, records: Records) -> str:
    """README with what the studies say there, each part between a mark that names the study and the next end mark.

    Raises:
        ValueError: marks are not there.
    """
    for study, part in README_PARTS.items():
        begin, end = f"<!-- made by make study from {study} -->\n", "<!-- end -->\n"
        before, found, rest = text.partition(begin)
        _, closed, after = rest.partition(end)
        if not found or not closed:
            raise ValueError(f"README.md has no {begin.strip()} ... {end.strip()}")
        text = f"{before}{begin}\n{part(records).strip()}\n\n{end}{after}"
    return text


def main_table(records: Records) -> str:
    """The variants on both splits of table3, in a few columns."""
    record = records["table3"]
    rows = []
    for title in dict.fromkeys(arm["title"] for arm in record["arms"]):
        cells = [title]
        for split in ("eval", "hard"):
            names = {arm["title"]: arm["name"] for arm in record["arms"] if arm["split"] == split}
            arm, warm_start = names[title], names["SFT"]
            gain = "" if arm == warm_start else difference(records, "table3", warm_start, arm, split, "all_tests_rate")
            shown = (value(records, "table3", arm, split, name) for name in ("syntax_rate", "all_tests_rate", "reward"))
            cells += [*shown, gain]
        rows.append(tuple(cells))
    columns = [f"{split}: {title}" for split in ("eval", "hard") for title in ("Syn. %", "All-P %", "R", "All-P − SFT")]
    return to_markdown(Table(("", *columns), tuple(rows)))


def security_table(records: Records) -> str:
    """What the weight of R_sec does to tests and findings, in a few columns."""
    names = ("all_tests_rate", "secure_rate", "secure_all_tests_rate")
    warm_start = "security-sft"
    rows = []
    for arm in records["security"]["arms"]:
        tests, *security = (value(records, "security", arm["name"], "security", name) for name in names)
        is_first = arm["name"] == warm_start
        gain = "" if is_first else difference(records, "security", warm_start, arm["name"], "security", names[0])
        rows.append((arm["title"], tests, gain, *security))
    return to_markdown(Table(("", "All-P %", "All-P − SFT", "Sec.Clean %", "All-P and clean %"), tuple(rows)))


def measured_again(records: Records) -> str:
    """What is left of the gains on `eval` with more programs and other draws, and of those of the best of eight."""
    gain = {
        (arm, name): difference(records, "confirm", "eval-sft", f"eval-{arm}", "eval", name)
        for arm in ("simple", "sched")
        for name in ("all_tests_rate", "solved_rate")
    }
    return (
        "On `eval`, measured again with eight programs for each problem and other random numbers, *simple* is "
        f"{gain['simple', 'all_tests_rate']} points of All-P above SFT and *sched* {gain['sched', 'all_tests_rate']}. "
        "Problems that at least one of the eight solves cannot be told to be more than before "
        f"({gain['simple', 'solved_rate']} and {gain['sched', 'solved_rate']}): one program is worth more; that the "
        "best of eight is could not be seen."
    )


def solutions_or_rewards(records: Records) -> str:
    """SFT of as many updates as the others have in all, and rewards in its place, on both splits."""
    longer = {
        split: difference(records, "ablations", short, long, split, "all_tests_rate")
        for split, short, long in (("eval", "eval-sft", "sft-130"), ("hard", "hard-sft", "hard-sft-130"))
    }
    more = difference(records, "ablations", "sft-130", "eval-simple", "eval", "all_tests_rate")
    on_hard = {
        name: difference(records, "ablations", "hard-sft-130", "hard-simple", "hard", name)
        for name in ("all_tests_rate", "any_test_rate")
    }
    return (
        "SFT of as many updates as the others have in all (130 instead of 10, three seeds) raises All-P as well: on "
        f"`eval` by {longer['eval']} points, and *simple* is {more} above that. On `hard` it raises All-P by "
        f"{longer['hard']}, which no reward could be told to do; *simple* cannot be told to be below it in All-P "
        f"({on_hard['all_tests_rate']}), but passes a test less often ({on_hard['any_test_rate']})."
    )


README_PARTS: dict[str, Callable[[Records], str]] = {
    "table3": main_table,
    "confirm": measured_again,
    "ablations": solutions_or_rewards,
    "security": security_table,
}


def kept(records: Records, study: str, arm: str, phase: str) -> str:
    """The update whose weights a phase kept, of each seed."""
    found = _arm(records, study, arm)
    return ", ".join(str(seed[phase]) for seed in found["kept"])


def over_training(records: Records, study: str, arm: str, name: str, first: str, last: str) -> str:
    """Percent of the programs of updates ``first`` to ``last`` that have a sign of gaming, the mean of the seeds."""
    training = _arm(records, study, arm)["training"]
    updates = zip(training["updates"], training[name]["mean"], strict=True)
    means = [mean for update, mean in updates if int(first) <= update <= int(last)]
    return f"{100 * sum(means) / len(means):.1f}"


def alike(records: Records, measured: str, learnt: str) -> str:
    """How many problems of a built-in set are near-duplicates of one that is learnt from, by their wording."""
    problems = load_problems(measured)
    return f"{len(find_leaks(problems, load_problems(learnt)))} of {len(problems)} problems"


def same_solution(records: Records, measured: str, learnt: str) -> str:
    """How many problems of a built-in set have a reference solution that is also one of a problem learnt from."""
    known = {solution for problem in load_problems(learnt) for solution in problem.solutions}
    problems = load_problems(measured)
    return f"{sum(not known.isdisjoint(problem.solutions) for problem in problems)} of {len(problems)}"


def figure(records: Records, name: str, *caption: str) -> str:
    """A plot of `study_plots`."""
    return f"![{' '.join(caption)}](results/plots/{name}.svg)"


def costs(records: Records) -> str:
    """What each study took, and the command that makes it."""
    rows = []
    for name, record in records.items():
        trained = sum(seconds for arm in record["arms"] for seconds in arm["train_seconds"])
        rows.append((
            name, f"`python benchmarks/study.py {name}`", f"{len(record['arms'])}", f"{len(record['seeds'])}",
            f"{record['steps_done']} of {record['steps']}", _duration(record["wall_seconds"]), _duration(trained),
        ))  # fmt: skip
    columns = ("study", "command", "arms", "seeds", "steps done", "wall time", "training, summed over both")
    return to_markdown(Table(columns, tuple(rows)))


def commands(records: Records, study: str) -> str:
    """For each arm the command that trains its first seed, and how long each seed took."""
    rows = [
        (arm["title"], f"`{arm['command']}`", ", ".join(_duration(each) for each in arm["train_seconds"]))
        for arm in records[study]["arms"]
    ]
    made = [
        f"`{each['prepare']}` ({_duration(each['prepare_seconds'])})"
        for each in records[study]["splits"]
        if "prepare" in each
    ]
    before = f"The base model first: {'; '.join(dict.fromkeys(made))}\n\n" if made else ""
    return before + to_markdown(Table(("", "first seed", "time of each seed"), tuple(rows)))


def machine(records: Records) -> str:
    """What it ran on."""
    found = next(iter(records.values()))["machine"]
    return f"{found['cores']} cores of {found['cpu']}"


DIRECTIVES: dict[str, Callable[..., str]] = {
    each.__name__: each
    for each in (
        results, differences, transfer, transfer_differences, quantised, value, difference, bench_difference, says,
        by_seed, kept, over_training, alike, same_solution, figure, costs, commands, machine,
    )
}  # fmt: skip


def _arm(records: Records, study: str, name: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = next(each for each in records[study]["arms"] if each["name"] == name)
    return found


def _difference(records: Records, study: str, first: str, second: str, split: str, name: str) -> Interval | None:
    wanted = (first, second, split)
    found = next(
        each for each in records[study]["comparisons"] if (each["first"], each["second"], each["split"]) == wanted
    )
    return interval_of(found["metrics"][name])


def _in_words(interval: Interval | None, name: str, *, signed: bool = False) -> str:
    return interval_cell(interval, METRIC[name], signed=signed)


def _duration(seconds: float) -> str:
    minutes = seconds / 60
    return f"{minutes:.1f} min" if minutes < 90 else f"{minutes / 60:.1f} h"


def main() -> None:
    """Parse the command line and write the report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--no-plots", action="store_true", help="the text alone; needs no matplotlib")
    arguments = parser.parse_args()
    records = read_records()
    text = render(TEXT.read_text(encoding="utf-8"), records)
    if not arguments.no_plots:
        from study_plots import draw_all

        draw_all(records, PLOTS)
    with write_atomically(REPORT) as out:
        out.write(text)
    readme = in_readme(README.read_text(encoding="utf-8"), records)
    with write_atomically(README) as out:
        out.write(readme)
    sys.stderr.write(f"{REPORT}: {len(text.splitlines())} lines\n")


if __name__ == "__main__":
    main()
