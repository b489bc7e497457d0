"""Explanation of a score in words: why a program does not pass."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from securecoderl_edge.languages.language import LANGUAGES, PYTHON, Language
from securecoderl_edge.languages.python_source import compared_value
from securecoderl_edge.problems.comparison import first_difference
from securecoderl_edge.problems.problem import NO_TEST, Problem
from securecoderl_edge.sandbox import Execution, Limits, ProgramRun
from securecoderl_edge.sandbox.sanitizers import was_reported
from securecoderl_edge.sandbox.security import Scan
from securecoderl_edge.scoring.reward import SECURITY_WEIGHT, STAGE_NAMES
from securecoderl_edge.scoring.score import Score

if TYPE_CHECKING:
    from securecoderl_edge.scoring.scorer import Scorer

LONGEST_LINE = 200
_STDERR_LINES = 12
# Failing tests of a file that are shown with their messages.
_MOST_TESTS = 8
_PERMITTED = {
    "full": "no network, no processes, and only files of the Python library",
    "no-landlock": "no network, no processes and no files",
}


def explain(score: Score, run: ProgramRun, problem: Problem, limits: Limits) -> str:
    """Explain the score of a program on a problem of one test: verdict, reason, security findings, reward.

    The lines contain output of the program; escape control characters before showing them.
    """
    lines = _about_test(score, run, problem, limits)
    lines += [f"it {score.tried}"] if score.tried else []
    lines += about_security(score)
    lines.append(f"level {score.stage} ({STAGE_NAMES[score.stage]}), reward {score.reward:.2f}{_parts(score)}")
    return "\n".join(lines)


def _parts(score: Score) -> str:
    """What a reward between 0 and 1 is made of."""
    if not 0 < score.reward < 1:
        return ""
    of_tests = f"{1 - SECURITY_WEIGHT:g} x {score.r_func:.2f} (tests)"
    return f" = {of_tests} + {SECURITY_WEIGHT:g} x {score.r_sec:.2f} (security)"


def _about_test(score: Score, run: ProgramRun, problem: Problem, limits: Limits) -> list[str]:
    """Explain the result of the one test, as lines, with what was measured for a target."""
    language, target, budget = LANGUAGES[problem.language], problem.target, problem.budget
    if not run.parses:
        return [f"{language.fault}: not a {language.noun} program", *(f"  {line}" for line in run.error.split("\n"))]
    verdict = "pass" if score.verdicts[0] == "over_budget" else score.verdicts[0]
    lines = _about_run(verdict, run.executions[0], problem, limits)
    if score.verdicts[0] == "crash" and re.search("PermissionError|ModuleNotFoundError", run.executions[0].stderr):
        lines += [f"  (the sandbox allows {_PERMITTED[score.sandbox]})"] if score.sandbox in _PERMITTED else []
    if run.footprint is not None:
        if run.executions[0].on_target and score.verdicts[0] not in ("pass", "over_budget"):
            lines[0] += f" on {target} (natively it passes)"
        lines += [f"{target}: {run.footprint}", *map("over budget: {}".format, budget.broken_by(run.footprint))]
    return lines


def about_failure(scorer: Scorer, problem: Problem, score: Score) -> list[str]:
    """Explain why a program fails, as lines: the first failing test, run again to get its output, or the syntax error.

    The lines contain output of the program; escape control characters before showing them.
    """
    if not score.program.strip():
        return ["the answer has no program"]
    failed = next((number for number, verdict in enumerate(score.verdicts) if verdict != "pass"), None)
    if score.parses and failed is None:
        return []
    if problem.test_file is not None and score.parses:
        return _about_file_tests(scorer, problem, score)
    if problem.kind == "call" and score.parses:
        verdict, assertion = score.verdicts[failed or 0], problem.assertions[failed or 0]
        return [f"{verdict}: {assertion}", *_about_call(scorer, problem, score.program, verdict, assertion)]
    test = problem.tests[failed] if failed is not None and problem.tests else NO_TEST
    alone = replace(problem, kind="stdin", tests=(test,), assertions=(), security_tests=())
    result, run = scorer.inspect(alone, score.program)
    where = [f"with the input {test.input!r}"] if score.parses else []
    return [*where, *_about_test(result, run, alone, scorer.limits_of(alone))]


def _about_file_tests(scorer: Scorer, problem: Problem, score: Score) -> list[str]:
    """Name each failing test of a test file, with the message of what fails, by running it again."""
    file = problem.test_file
    failed = [pair for pair in zip(score.verdicts, problem.assertions, strict=True) if pair[0] != "pass"]
    shown = failed[:_MOST_TESTS]
    _, run = scorer.inspect(replace(problem, assertions=tuple(name for _, name in shown)), score.program)
    lines = []
    for (verdict, name), execution in zip(shown, run.executions, strict=False):
        lines += [f"{verdict}: {name}", *_stderr_lines(execution)]
    if len(failed) > len(shown):
        lines.append(f"and {len(failed) - len(shown)} more")
    return [line.replace("solution.py", file.edited) if file else line for line in lines]


def _about_call(scorer: Scorer, problem: Problem, program: str, verdict: str, assertion: str) -> list[str]:
    """Find out, as lines, what an assertion gets, or how it crashes, by running a program that ends in it."""
    if verdict not in ("wrong", "crash") or "__main__" in program:
        return []
    value = compared_value(assertion) if verdict == "wrong" else None
    alone = replace(problem, kind="stdin", tests=(NO_TEST,), assertions=(), security_tests=())
    _, run = scorer.inspect(alone, f"{program}\n\n{f'print(repr({value}))' if value else assertion}\n")
    if not run.parses:
        return [f"  {run.error}"]
    printed = run.executions[0].stdout.splitlines()
    return [f"  {value} is {_quoted(printed[-1])}"] if value and printed else _stderr_lines(run.executions[0])


def about_security(score: Score) -> list[str]:
    """List the failed security tests and the findings, as lines."""
    lines = [
        f"fails the security test {test.name!r} (CWE-{test.cwe}): {test.verdict}" for test in score.failed_security
    ]
    lines += [
        f"{finding.severity.lower()} security finding {finding.test_id} (CWE-{finding.cwe})"
        + (f" in line {finding.line}" if finding.line else "")
        for finding in score.findings
    ]
    if score.scan_failed:
        lines.append("the security scan failed, which counts as a high finding")
    return lines


def about_file(name: str, run: ProgramRun, scan: Scan, language: Language = PYTHON) -> list[str]:
    """List the faults of a file that is not run, as lines with its name; none if it is clean."""
    if not run.parses:
        where = run.error.replace(f"solution{language.suffix}", name)
        return [f"{name}: {language.fault}: {where}"]
    if scan.failed:
        return [f"{name}: the security scan failed, which counts as a high finding"]
    return [
        f"{name}:{each.line}: {each.severity.lower()} security finding {each.test_id} (CWE-{each.cwe})"
        for each in scan.serious
    ]


def _about_run(verdict: str, execution: Execution, problem: Problem, limits: Limits) -> list[str]:
    if verdict == "pass":
        return ["passes: it prints the expected output"]
    if verdict == "wrong":
        if problem.checker:
            return ["wrong: the checker does not accept its output"]
        return ["wrong: it prints a different output", *_first_difference(execution.stdout, problem)]
    if verdict == "silent":
        return ["silent: it prints nothing"]
    if verdict == "timeout":
        seconds = limits.cpu_seconds if execution.stopped_by == "cpu" else limits.wall_seconds
        used = f"of wall time, in which it used {execution.cpu_seconds:.1f} s of CPU time"
        kind = "of CPU time" if execution.stopped_by == "cpu" else used
        return [f"timeout: it was stopped after {seconds:g} s {kind}"]
    if verdict == "output_limit":
        return [f"output limit: it prints more than {limits.output_bytes} bytes"]
    if verdict == "memory":
        return [f"memory: it needs more than {limits.memory_mib} MiB", *_stderr_lines(execution)]
    if execution.stopped_by == "threads":
        return ["crash: it was stopped because it started hundreds of threads, or more than its memory allows"]
    if was_reported(execution):
        return ["crash: a sanitizer stopped it"]
    ending = f"signal {-execution.returncode}" if execution.returncode < 0 else f"exit status {execution.returncode}"
    return [f"crash: it ends with {ending}", *_stderr_lines(execution)]


def _stderr_lines(execution: Execution) -> list[str]:
    return [f"  {line}" for line in execution.stderr.rstrip().splitlines()[-_STDERR_LINES:]]


def _first_difference(stdout: str, problem: Problem) -> list[str]:
    """Show the first line or word that differs by the problem's answer rule."""
    found = first_difference(stdout, problem.tests[0].output, problem.rule)
    if found is None:
        return []
    place, printed, wanted = found
    return [f"  {place} is        {_quoted(printed)}", f"  {place} should be {_quoted(wanted)}"]


def _quoted(line: str | None) -> str:
    if line is None:
        return "(missing)"
    line = line.rstrip()
    return line if len(line) <= LONGEST_LINE else f"{line[:LONGEST_LINE]}... ({len(line)} characters)"
