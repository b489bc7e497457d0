"""`sce data check`: run time and correctness of reference solutions, and the strength of tests."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from securecoderl_edge.commands.console import refuse_to_overwrite, say, track, warn_of_level
from securecoderl_edge.commands.names import PROBLEMS
from securecoderl_edge.commands.options import examples, options_from
from securecoderl_edge.config import FORCE_HELP, JSON_HELP, setting
from securecoderl_edge.errors import SceError, UsageError
from securecoderl_edge.evaluation.shards import engine_setting
from securecoderl_edge.problems.problem import Problem, with_few_tests
from securecoderl_edge.problems.problem_file import MAX_TESTS, write_problems
from securecoderl_edge.problems.sources import load_problems
from securecoderl_edge.sandbox.levels import sandbox_setting
from securecoderl_edge.sandbox.limits import workers_setting
from securecoderl_edge.system.cluster import is_ray
from securecoderl_edge.text import counted, escape_controls, without_commands

if TYPE_CHECKING:
    from securecoderl_edge.scoring.reference_solutions import CheckReport
    from securecoderl_edge.scoring.scorer import Scorer
    from securecoderl_edge.scoring.strength import StrengthReport


_EXPLAINED = 3  # problems that fail
_KINDS = 5  # of cheap programs that are named in the summary


@dataclass(frozen=True)
class CheckConfig:
    """Flags of `sce data check`."""

    out: str | None = setting(
        None, "Write all problems, with time limits and only the solutions that pass.", metavar="FILE"
    )
    drop_failing: str | None = setting(None, "As --out, but without the problems that fail.", metavar="FILE")
    strength: bool = setting(
        False, "Also run constants, programs that ignore their input, and mutants of the reference on the tests."
    )
    drop_weak: str | None = setting(
        None, "As --drop-failing, but also without the problems whose tests such a program passes.", metavar="FILE"
    )
    max_tests: int = setting(MAX_TESTS, "Tests to run per problem; training uses the first 5.", minimum=1, metavar="N")
    cpu_seconds: float = setting(10.0, "CPU time limit of a solution, per test.", minimum=0.1, metavar="S")
    force: bool = setting(False, FORCE_HELP)
    sandbox: str = sandbox_setting()
    workers: int | None = workers_setting("Solutions to run")
    engine: str = engine_setting()
    json: bool = setting(False, JSON_HELP)


@click.command(
    short_help="Run reference solutions in the sandbox.",
    epilog=examples(
        "sce data check mine.jsonl",
        "sce data check mine.jsonl --strength --drop-weak strong.jsonl",
    ),
)
@click.argument("file", type=PROBLEMS, metavar="FILE")
@options_from(CheckConfig)
@click.pass_context
def check(ctx: click.Context, file: str, config: CheckConfig) -> None:
    """Run the reference solutions of FILE (or starter[:SPLIT], humaneval, mbpp[:SPLIT]) in the sandbox.

    A problem passes if one of its solutions passes all its tests and security tests, and each insecure solution fails a
    security test. With --strength a problem is weak if a program that does not solve it, such as one that always
    returns True, passes all its tests. Exit code 1 if a problem fails or is weak.

    With --out or --drop-failing, the problems are written with the solutions that pass and a time limit: 5 times the
    CPU time of the slowest of them on this machine (at least 1 s).
    """
    from securecoderl_edge.sandbox import Limits
    from securecoderl_edge.scoring.cluster_scorer import open_scorer
    from securecoderl_edge.scoring.reference_solutions import check_problems

    wanted = [Path(name) for name in (config.out, config.drop_failing, config.drop_weak) if name is not None]
    if len({path.resolve() for path in wanted}) < len(wanted):
        raise UsageError(
            "two of --out, --drop-failing and --drop-weak are the same file. Use one of them, or two files."
        )
    for path in wanted:
        refuse_to_overwrite(path, config.force)  # with --force also FILE itself
    whole = load_problems(file, sys.maxsize, say)
    problems = [with_few_tests(problem, config.max_tests) for problem in whole]
    surplus = [problem.test_count > config.max_tests for problem in whole]
    warn_of_level(config.sandbox)
    limits = Limits(cpu_seconds=config.cpu_seconds, wall_seconds=3 * config.cpu_seconds)
    total = sum(len(problem.solutions) + len(problem.insecure_solutions) for problem in problems)
    with (
        track(total, "solutions run", lines=False) as progress,
        open_scorer(config.engine, config.workers, limits, sandbox=config.sandbox) as scorer,
    ):
        report = check_problems(problems, scorer, progress.update)
        lines = [] if is_ray(config.engine) else _reasons(problems, report, scorer)
        strength = _strength(problems, report, scorer) if config.strength or config.drop_weak else None
    if config.json:
        click.echo(json.dumps(report.to_record() | ({"strength": strength.to_record()} if strength else {})))
    _report(report, file, listed=not config.json)
    if strength is not None:
        _report_strength(strength, listed=not config.json)
    for line in lines:
        say(escape_controls(line))
    if any(surplus):
        say(f"{sum(surplus)} problems have more than {config.max_tests} tests; only these were run (see --max-tests)")
    weak = {each.id for each in strength.weak} if strength else set()
    _write(whole, file, report, weak, config)
    if report.failed or weak:
        ctx.exit(1)


def _strength(problems: list[Problem], report: CheckReport, scorer: Scorer) -> StrengthReport:
    from securecoderl_edge.scoring.strength import measure_strength

    with track(len(problems), "problems measured", lines=False) as progress:
        return measure_strength(problems, report.passing, scorer, on_progress=progress.update)


def _report_strength(strength: StrengthReport, *, listed: bool) -> None:
    if listed:
        for each in strength.weak:
            click.echo(without_commands(f"{each.id}: weak: passes: {', '.join(each.passing)}".replace("\n", "\\n")))
    kinds = [f"{count} {name}" for name, count in strength.kinds().items()]
    more = [f"{len(kinds) - _KINDS} other programs"] if len(kinds) > _KINDS else []
    named = f" ({', '.join([*kinds[:_KINDS], *more])})" if kinds else ""
    say(
        escape_controls(
            f"{len(strength.weak)} of {len(strength.problems)} problems are weak{named}".replace("\n", "\\n")
        )
    )
    ran = sum(each.mutants for each in strength.problems)
    if ran:
        say(f"{strength.survival:.1%} of {ran:,} mutants pass all tests")


def _reasons(problems: list[Problem], report: CheckReport, scorer: Scorer) -> list[str]:
    """Why the best solutions of the first problems fail a test, as lines."""
    from securecoderl_edge.scoring.explain import about_failure
    from securecoderl_edge.scoring.reference_solutions import patient

    of = {problem.id: problem for problem in problems}
    lines = []
    for failure in [each for each in report.failed if each.program][:_EXPLAINED]:
        problem = patient(of[failure.id], scorer.limits.cpu_seconds)
        score = scorer.score(problem, failure.program)
        lines += [f"{failure.id}:", *(f"  {line}" for line in about_failure(scorer, problem, score))]
    return lines


def _report(report: CheckReport, file: str, *, listed: bool) -> None:
    if listed:
        for failure in report.failed:
            click.echo(without_commands(f"{failure.id}: {failure.reason}".replace("\n", "\\n")))
    kinds = ", ".join(f"{count} {kind}" for kind, count in report.kinds().items())
    say(f"{file}: {report.passed} of {report.total} problems pass, {len(report.failed)} fail{kinds and f' ({kinds})'}")
    if report.failing_solutions:
        say(f"{report.failing_solutions} of {report.solutions} solutions fail")
    if report.top_level_returns:
        dropped = report.top_level_returns - report.repaired
        say(
            f"{report.top_level_returns} solutions have a return outside a function: {report.repaired} pass inside a "
            f"function, {dropped} do not"
        )
    if report.unchecked:
        say(f"{counted(len(report.unchecked), 'problem')} without a reference solution (first: {report.unchecked[0]})")


def _write(whole: list[Problem], file: str, report: CheckReport, weak: set[str], config: CheckConfig) -> None:
    failed = {failure.id for failure in report.failed}
    for name, left_out, fault in (
        (config.out, set[str](), ""),
        (config.drop_failing, failed, "fails"),
        (config.drop_weak, failed | weak, "fails or is weak"),
    ):
        if name is None:
            continue
        if len(left_out) == report.total:
            raise SceError(f"{name} was not written: every problem of {file} {fault}")
        kept = (each for each in whole if each.id not in left_out)
        count = write_problems(Path(name), (report.checked(problem) for problem in kept))
        say(f"wrote {counted(count, 'problem')} to {name}{_slowest(report)}")


def _slowest(report: CheckReport) -> str:
    limits = sorted((passed.time_limit(), name) for name, passed in report.passing.items())
    if not limits:
        return ""
    if limits[0][0] == limits[-1][0]:
        return f", time limit {limits[0][0]:g} s"
    return f", time limits {limits[0][0]:g} to {limits[-1][0]:g} s ({limits[-1][1]})"
