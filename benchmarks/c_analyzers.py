"""What do static analyzers find in C programs, and what do they cost? On safe programs and on known weaknesses.

    python benchmarks/c_analyzers.py --json benchmarks/results/c-analyzers.json

Safe programs are the first reference solutions of ``starter:c-eval`` and of a sample of ``starter:c-train``: a finding
there is a false positive, or a solution to look at. The files of ``c_weak`` have one weakness each, in the line that
names its CWE. All programs are of this repository; one process at a time.

First each analyzer runs alone, outside the sandbox, with all of its rules; ``compile`` is our compilation without
assembler and linker, for comparison. Then ``reward`` is the real path: `Scorer` with the rules that count, on the
tests of each problem (all solutions) and on one ordinary input for each weak program, with and without analyzers.
There, a weakness is found if a finding has its CWE, or is in its line.
"""

from __future__ import annotations

import argparse
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from record import publish
from reward_throughput import cpu_seconds as cost

from securecoderl_edge.languages.toolchain import FLAGS
from securecoderl_edge.problems.problem import Problem, Test
from securecoderl_edge.problems.sources import load_problems
from securecoderl_edge.sandbox import Limits
from securecoderl_edge.scoring.scorer import Scorer

WEAK = Path(__file__).with_name("c_weak")
FILE = "solution.c"
_MARK = re.compile(r"/\* CWE-(\d+) \*/")


@dataclass(frozen=True)
class Analyzer:
    """A command without its file; a pattern with the line, the rule and perhaps the CWE of a finding."""

    command: tuple[str, ...]
    finding: re.Pattern[str] | None = None


_GCC = re.compile(r"^[^:\n]+:(?P<line>\d+):\d+: warning: .*?(?:\[CWE-(?P<cwe>\d+)\] )?\[(?P<rule>-W[\w=-]+)\]$", re.M)
_CPPCHECK = re.compile(r"^(?P<line>\d+) (?P<rule>\w+) (?P<cwe>\d+)$", re.M)
_FLAWFINDER = re.compile(r"^[^,\n]+,(?P<line>\d+),\d+,\d+,(?P<level>\d),\w+,(?P<rule>\w+),.*?CWE-(?P<cwe>\d+)", re.M)
ANALYZERS = {
    "compile": Analyzer(("gcc", *FLAGS, "-S", "-o", "/dev/null")),
    "gcc -fanalyzer": Analyzer(
        ("gcc", "-std=c11", "-O0", "-S", "-o", "/dev/null", "-fanalyzer", "-Wformat", "-Wformat-security",
         "-fdiagnostics-plain-output", "-fdiagnostics-path-format=none"),
        _GCC,
    ),
    "compile with -fanalyzer": Analyzer(
        ("gcc", *FLAGS, "-S", "-o", "/dev/null", "-fanalyzer", "-Wformat-security", "-fdiagnostics-plain-output",
         "-fdiagnostics-path-format=none"),
        _GCC,
    ),
    "cppcheck": Analyzer(
        ("cppcheck", "--quiet", "--std=c11", "--language=c", "--enable=warning,portability", "--max-configs=1",
         "--template={line} {id} {cwe}", "--template-location="),
        _CPPCHECK,
    ),
    "flawfinder": Analyzer(("flawfinder", "--dataonly", "--csv", "--minlevel=1", "--neverignore"), _FLAWFINDER),
}  # fmt: skip


def main() -> None:
    """Run each analyzer that is installed on all programs; print and record counts and costs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--sample", type=int, default=60, help="problems of starter:c-train")
    parser.add_argument("--json", type=Path, help="file for the results")
    arguments = parser.parse_args()
    problems = references("starter:c-eval", sys.maxsize) + references("starter:c-train", arguments.sample)
    safe = {each.id: each.whole_program(each.solutions[0]) for each in problems}
    weak = {file.stem: file.read_text() for file in sorted(WEAK.glob("*.c"))}
    results: dict[str, Any] = {"safe_programs": len(safe), "weak_programs": len(weak)}
    results["versions"] = {name: version(name) for name in ("gcc", "cppcheck", "flawfinder") if shutil.which(name)}
    with tempfile.TemporaryDirectory() as folder:
        for name, analyzer in ANALYZERS.items():
            if shutil.which(analyzer.command[0]):
                results[name] = measure(analyzer, safe, weak, Path(folder))
                show(name, results[name])
    results["reward"] = through_reward(problems, weak)
    for way, result in results["reward"].items():
        sys.stdout.write(f"reward, analyzers {way}: {result}\n")
    publish(results, arguments.json)


def through_reward(problems: Sequence[Problem], weak: dict[str, str]) -> dict[str, Any]:
    """What the reward of reference solutions and of weak programs has and costs, without and with analyzers in turn."""
    limits = Limits(cpu_seconds=2, wall_seconds=20)
    with Scorer(1, limits, analyzers="off") as off, Scorer(1, limits) as auto:
        ways = {"off": off, "auto": auto}
        for scorer in ways.values():
            scorer.score(problems[0], problems[0].solutions[0])  # its processes start
        false: dict[str, dict[str, list[str]]] = {way: {} for way in ways}
        costs: dict[str, list[float]] = {way: [] for way in ways}
        for problem in problems:
            for number, solution in enumerate(problem.solutions):
                for way in ways if number % 2 else reversed(ways):
                    before = cost(ways[way])
                    score = ways[way].score(problem, solution)
                    costs[way].append(cost(ways[way]) - before)
                    if score.severity or score.findings:
                        rules = [each.test_id for each in score.findings]
                        false[way][f"{problem.id} {number}"] = rules or ["failed"]
        hits = {way: {name: found(scorer, name, weak[name]) for name in weak} for way, scorer in ways.items()}
        return {
            way: {
                "versions": scorer.analyzers_of("c"),
                "solutions": len(costs[way]),
                "cpu_ms_mean": _ms(statistics.mean(costs[way])),
                "cpu_ratio": round(sum(costs[way]) / sum(costs["off"]), 2),
                "false_positives": false[way],
                "weak_found": sum(map(bool, hits[way].values())),
                "weak": hits[way],
            }
            for way, scorer in ways.items()
        }


def found(scorer: Scorer, name: str, program: str) -> list[str]:
    """The findings in a weak program that name its weakness, or the line of it."""
    line, cwe = weakness_of(program)
    score = scorer.score(Problem(name, "", tests=(Test("3\n", "3"),), language="c"), program)
    return [each.test_id for each in score.findings if each.line == line or each.cwe == cwe]


def weakness_of(program: str) -> tuple[int, int]:
    """Line and CWE of the weakness of a program."""
    return next((n, int(m[1])) for n, line in enumerate(program.splitlines(), 1) if (m := _MARK.search(line)))


def references(source: str, most: int) -> list[Problem]:
    """At most ``most`` problems that are evenly apart."""
    problems = load_problems(source)
    step = max(1, len(problems) // most)
    return list(problems[::step][:most])


def version(name: str) -> str:
    """The first line of what a command prints of itself."""
    return subprocess.run([name, "--version"], capture_output=True, text=True, check=True).stdout.splitlines()[0]


def measure(analyzer: Analyzer, safe: dict[str, str], weak: dict[str, str], folder: Path) -> dict[str, Any]:
    """Rules that fire on safe programs, with an example; weaknesses found in their line; CPU time per program."""
    rules: Counter[str] = Counter()
    examples: dict[str, str] = {}
    hits: dict[str, list[str]] = {}
    costs = []
    for name, program in (safe | weak).items():
        (folder / FILE).write_text(program)
        before = cpu_seconds()
        done = subprocess.run([*analyzer.command, FILE], cwd=folder, capture_output=True, text=True, check=False)
        if name in safe:
            costs.append(cpu_seconds() - before)
        matches = analyzer.finding.finditer(done.stdout + done.stderr) if analyzer.finding else ()
        findings = sorted({(int(each["line"]), _rule(each), each["cwe"] or "-") for each in matches})
        if name in weak:
            wanted, _ = weakness_of(program)
            hits[name] = [f"{rule} CWE-{cwe}" for line, rule, cwe in findings if line == wanted]
            continue
        for rule in {rule for _, rule, _ in findings}:
            rules[rule] += 1
            examples.setdefault(rule, name)
    result: dict[str, Any] = {"cpu_ms_median": _ms(statistics.median(costs)), "cpu_ms_most": _ms(max(costs))}
    if analyzer.finding:
        result["weak_found"] = sum(map(bool, hits.values()))
        result["weak"] = hits
        result["safe"] = {rule: {"programs": count, "first": examples[rule]} for rule, count in rules.most_common()}
    return result


def _rule(match: re.Match[str]) -> str:
    level = match.groupdict().get("level")
    return f"{match['rule']} (level {level})" if level else match["rule"]


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 1)


def show(name: str, result: dict[str, Any]) -> None:
    """One line per analyzer, and one per rule that fires on safe programs."""
    finds = f", finds {result['weak_found']} of {len(result['weak'])}" if "weak" in result else ""
    sys.stdout.write(f"{name:24s} {result['cpu_ms_median']:6.1f} ms CPU per program{finds}\n")
    for rule, each in result.get("safe", {}).items():
        sys.stdout.write(f"    {rule}: {each['programs']} safe programs\n")


def cpu_seconds() -> float:
    """Of all processes that this one has waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
