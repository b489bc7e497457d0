"""The reports of ``sce score`` for a pipeline, and what fails it: programs that do not pass, and findings."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from securecoderl_edge.commands.gate import at_or_above, in_words, is_passed
from securecoderl_edge.commands.score_options import ScoreConfig
from securecoderl_edge.text import counted, document, on_one_line, without_commands

if TYPE_CHECKING:
    from securecoderl_edge.sandbox.file_scan import FileFinding
    from securecoderl_edge.scoring.reports import Case
    from securecoderl_edge.scoring.score import Score

_MISSING = "fails: no program"
_UNSEEN = "nobody took notes of what"  # not at all levels, nor in all containers


def check_gate(
    scores: Mapping[str, Score],
    config: ScoreConfig,
    fail_under: float | None,
    is_shown: bool = False,
    missing: Collection[str] = (),
) -> bool:
    """Write the reports, print the last line if the user asked for a gate, and return whether it is passed.

    Args:
        scores: by what a report calls the program, such as its path.
        fail_under: if the user gives no ``--fail-under``; None: programs that do not pass fail nothing.
        is_shown: print the last line in any case.
        missing: names of problems without a program, which count as programs that fail for ``--fail-under``.
    """
    from securecoderl_edge.scoring.reports import Case, junit, sarif
    from securecoderl_edge.system.files import write_atomically

    fail_under = fail_under if config.fail_under is None else config.fail_under
    missing = missing if fail_under is not None else ()
    passing = sum(each.passes_all_tests for each in scores.values())
    counts = Counter(severity for each in scores.values() for severity in _severities(each))
    reasons = []
    # As the number was written: 0.56 * 25 is above 14 in binary.
    share = Fraction(str(fail_under)) if fail_under is not None else Fraction(0)
    if passing < share * (total := len(scores) + len(missing)):
        absent = f" ({len(missing)} missing)" if missing else ""
        reasons.append(f"{passing} of {total} programs pass all tests{absent}, under {float(100 * share):.10g}%")
    if config.fail_on is not None and at_or_above(counts, config.fail_on):
        reasons.append(f"{in_words(counts)} among findings and security tests")
    if config.fail_on_denied:
        trying = sum(bool(each.denied) for each in scores.values())
        unseen = sum(each.denied is None for each in scores.values())
        reasons += [f"{trying} of {len(scores)} programs tried what the sandbox refuses"] if trying else []
        reasons += [f"{_UNSEEN} {unseen} of {len(scores)} programs tried: see sce doctor"] if unseen else []
    if config.junit is not None:
        with write_atomically(Path(config.junit)) as file:
            absent_cases = [Case(name, _MISSING, _MISSING) for name in missing]
            file.write(
                junit("sce score", [*(_case(name, each, config) for name, each in scores.items()), *absent_cases])
            )
    if config.sarif is not None:
        found = [finding for name, each in scores.items() for finding in _findings(name, each)]
        with write_atomically(Path(config.sarif)) as file:
            file.write(json.dumps(sarif(found), indent=1) + "\n")
    if config.json and config.expect is None:
        click.echo(document(json.dumps(_document(scores, passing, counts, reasons), indent=1)))
    is_asked = is_shown or config.fail_under is not None or config.fail_on is not None or config.fail_on_denied
    failed = sum(len(each.failed_security) for each in scores.values()) if config.fail_on is None else 0
    note = f"; {counted(failed, 'security test')} failed, which --fail-on counts" if failed else ""
    return is_passed(reasons, note) if is_asked else not reasons


def verdict(score: Score) -> str:
    """Whether a program passes, in a few words: the same in every report."""
    if not score.parses:
        return "fails: not a program"
    words = f"{score.passed} of {counted(score.total, 'test')}"
    if score.passes_all_tests:
        return f"passes {words}"
    kinds = dict.fromkeys(each for each in score.verdicts if each != "pass")
    return f"fails: passes {words} ({', '.join(kinds)})"


def _severities(score: Score) -> list[str]:
    """Of what counts against a program's security; a failed scan and a failed security test are high."""
    found = [each.severity.lower() for each in score.findings] + ["high"] * len(score.failed_security)
    return found + ["high"] * score.scan_failed


def _case(name: str, score: Score, config: ScoreConfig) -> Case:
    from securecoderl_edge.scoring.explain import about_security
    from securecoderl_edge.scoring.reports import Case

    is_unsafe = config.fail_on is not None and at_or_above(Counter(_severities(score)), config.fail_on) > 0
    reasons = [] if score.passes_all_tests else [verdict(score)]
    reasons += about_security(score)[:1] if is_unsafe else []
    if config.fail_on_denied:
        reasons += [f"{_UNSEEN} it tried"] if score.denied is None else [f"it {score.tried}"] if score.tried else []
    return Case(name, reasons[0] if reasons else "", "\n".join([verdict(score), *_against(score)]))


def _against(score: Score) -> list[str]:
    """What speaks against the security of a program, as lines."""
    from securecoderl_edge.scoring.explain import about_security

    return [*([f"it {score.tried}"] if score.tried else []), *about_security(score)]


def _findings(name: str, score: Score) -> list[FileFinding]:
    from securecoderl_edge.scoring.reports import findings_of_score

    return findings_of_score(name, score, "" if score.passes_all_tests else verdict(score))


def _document(
    scores: Mapping[str, Score], passing: int, counts: Counter[str], reasons: Sequence[str]
) -> dict[str, Any]:
    from securecoderl_edge.scoring.metrics import mean_of_scores
    from securecoderl_edge.scoring.reports import plain_path

    return {
        "version": 1,
        "programs": len(scores),
        "passing": passing,
        "counts": counts,
        "passed": not reasons,
        "reasons": list(reasons),
        "metrics": mean_of_scores(scores.values()),
        "scores": [
            {"name": plain_path(name), "passes": each.passes_all_tests, **each.to_record()}
            for name, each in scores.items()
        ],
    }


def show_program(name: str, score: Score) -> None:
    """Print the verdict on a program, and what speaks against its security."""
    click.echo(without_commands(f"{on_one_line(name)}: {verdict(score)}"))
    for line in _against(score):
        click.echo(f"  {without_commands(on_one_line(line))}")
