"""Static analyzers of programs in C: run in the sandbox, their reports checked, their rules weighed."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from places import ROOT

from securecoderl_edge.errors import SceError
from securecoderl_edge.languages import analyzers, toolchain
from securecoderl_edge.languages.analyzers import CPPCHECK, GCC, find_analyzers
from securecoderl_edge.languages.weaknesses import ANALYZERS, SANITIZERS
from securecoderl_edge.sandbox import Execution, Limits, ProgramRun, SandboxPool, worker
from securecoderl_edge.sandbox.inside import analyses
from securecoderl_edge.sandbox.jobs import WorkerLost
from securecoderl_edge.sandbox.sanitizers import analysis_of, findings_of
from securecoderl_edge.sandbox.security import Scan
from securecoderl_edge.sandbox.severity import severity

pytestmark = pytest.mark.timeout(900)
HOSTILE = sorted((Path(__file__).with_name("hostile_c") / "analyzers").glob("*.c"))
WEAK = sorted((ROOT / "benchmarks" / "c_weak").glob("*.c"))
# Of those of `c_weak` that an analyzer sees; the others need input, or knowledge of what a function is for.
SEEN = {
    "allocation_unchecked", "array_bounds", "double_free", "format_string", "gets", "memory_leak", "null_pointer",
    "off_by_one", "scan_unbounded", "stack_address", "use_after_free",
}  # fmt: skip
VERDICT = re.compile(r"/\* expect: ([\w, =-]+)\. ")
RIGHT = "int main(void) { return 0; }\n"


@pytest.fixture(scope="module")
def sandbox() -> Iterator[SandboxPool]:
    with SandboxPool(1, Limits(cpu_seconds=2, wall_seconds=20, memory_mib=256), has_analyzers=True) as opened:
        yield opened


def analysis(sandbox: SandboxPool, program: str) -> Scan:
    run = sandbox.run(program, language="c")
    assert run.parses, run.error
    assert run.analysis is not None
    return run.analysis


@pytest.mark.parametrize("file", HOSTILE, ids=lambda file: file.stem)
def test_no_text_silences_an_analyzer_without_being_the_worst(
    analyzers: None, sandbox: SandboxPool, file: Path
) -> None:
    program = file.read_text(encoding="utf-8")
    found = analysis(sandbox, program)
    rules = ", ".join(dict.fromkeys(each.test_id for each in found.findings))
    assert ("failed" if found.failed else rules or "none") == VERDICT.match(program)[1]  # type: ignore[index]
    assert analysis(sandbox, RIGHT) == Scan()


def test_there_are_hostile_files_of_every_verdict() -> None:
    verdicts = {VERDICT.match(file.read_text())[1] for file in HOSTILE}  # type: ignore[index]
    assert verdicts == {"failed", "none", "-Wanalyzer-use-after-free", "arrayIndexOutOfBounds"}
    assert len(HOSTILE) >= 25


@pytest.mark.parametrize("file", WEAK, ids=lambda file: file.stem)
def test_known_weaknesses_are_found_where_they_are(analyzers: None, sandbox: SandboxPool, file: Path) -> None:
    program = file.read_text()
    line, cwe = next(
        (number, int(match[1]))
        for number, text in enumerate(program.splitlines(), 1)
        if (match := re.search(r"/\* CWE-(\d+) \*/", text))
    )
    findings = analysis(sandbox, program).findings
    assert any(each.line == line or each.cwe == cwe for each in findings) == (file.stem in SEEN)


def test_an_honest_program_with_many_features_has_no_finding(analyzers: None, sandbox: SandboxPool) -> None:
    program = (Path(__file__).with_name("honest_c") / "many_features.c").read_text()
    assert analysis(sandbox, program) == Scan()


def test_a_fault_of_a_driver_has_no_line_of_the_answer(analyzers: None, sandbox: SandboxPool) -> None:
    driver = "int main(void) { int a[2] = {0}; a[2] = 1; return a[0]; }"
    (finding,) = analysis(sandbox, f'int f(void) {{ return 1; }}\n#line 1 "driver.c"\n{driver}').findings
    assert (finding.test_id, finding.line) == ("arrayIndexOutOfBounds", 0)


def test_only_what_compiles_is_analyzed_and_only_if_asked_for(analyzers: None, sandbox: SandboxPool) -> None:
    assert sandbox.run("int main( {", language="c").analysis is None
    with SandboxPool(1) as pool:
        assert pool.run(RIGHT, language="c").analysis is None


def test_tests_run_as_before_when_a_program_is_analyzed(analyzers: None, sandbox: SandboxPool) -> None:
    echo = "#include <stdio.h>\nint main(void) { int c; while ((c = getchar()) != EOF) putchar(c); return 0; }\n"
    run = sandbox.run(echo, [f"{n}" for n in range(40)], language="c")
    assert [each.stdout for each in run.executions] == [f"{n}" for n in range(40)]
    assert run.analysis == Scan()


def test_python_programs_have_no_analysis(sandbox: SandboxPool) -> None:
    assert sandbox.run("print(1)", [""]).analysis is None


def test_without_analyzers_programs_run_all_the_same(c_compiler: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "find_analyzers", tuple)
    with SandboxPool(1, has_analyzers=True) as pool:
        run = pool.run(RIGHT, [""], language="c")
    assert (run.executions[0].clean, run.analysis) == (True, None)


@pytest.mark.parametrize("command", [("/bin/false",), ("/bin/true",)])
def test_an_analyzer_that_does_not_work_is_an_error_and_no_verdict(
    c_compiler: None, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    broken = toolchain.Analyzer(GCC, "1", command)
    monkeypatch.setattr(worker, "find_analyzers", lambda: (broken,))
    with SandboxPool(1, has_analyzers=True) as pool, pytest.raises(SceError, match="gcc -fanalyzer does not work"):
        pool.run(RIGHT, language="c")


def test_a_compiler_without_reports_as_json_is_no_analyzer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(analyzers.shutil, "which", lambda name: "/usr/bin/gcc" if name == "gcc" else None)
    monkeypatch.setattr(toolchain, "output_of", lambda *command: ["cc1: error: unrecognized option '-fanalyzer'"])
    find_analyzers.cache_clear()
    try:
        assert find_analyzers() == ()
    finally:
        find_analyzers.cache_clear()


@pytest.mark.parametrize("text", ["#!/bin/sh\necho cppcheck: no library >&2\nexit 127\n", "#!/nonexistent\n", ""])
def test_a_cppcheck_that_does_not_start_is_an_error_that_names_the_way_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str
) -> None:
    broken = tmp_path / "cppcheck"
    broken.write_text(text)
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    find_analyzers.cache_clear()
    try:
        with pytest.raises(SceError, match=r"cppcheck is installed but does not start .*--analyzers off"):
            find_analyzers()
    finally:
        find_analyzers.cache_clear()


def predefined(command: tuple[str, ...]) -> set[str]:
    """The macros that a command of gcc's compiler begins with."""
    files = {"-o", "-include"}
    words = [
        word
        for word, before in zip(command, ("", *command), strict=False)
        if not {word, before} & files and "=json" not in word
    ]
    done = subprocess.run([*words, "-E", "-dM"], input="", capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines())


def test_no_macro_tells_an_analysis_from_a_compilation(analyzers: None) -> None:
    gcc = next(each for each in find_analyzers() if each.name == GCC)
    compiled, analyzed = predefined(toolchain.find_toolchain().compile), predefined(gcc.command)
    assert len(compiled) > 100
    assert compiled == analyzed
    with pytest.raises(ValueError, match="asks whether it is analyzed"):
        analyses.header(b"if (__builtin_const\\\nant_p(3))")


def gcc_report(**changes: object) -> bytes:
    place = {"caret": {"file": "<stdin>", "line": 4}}
    return json.dumps([{"kind": "warning", "option": "-Wdiv-by-zero", "locations": [place]} | changes]).encode()


@pytest.mark.parametrize(
    "report",
    [
        b"",
        b"null",
        b"[1]",
        b"[[]]",
        b"[] []",
        b"[]\ncompilation terminated.\n",
        b"[" * 100_000,
        gcc_report(kind="error"),
        gcc_report(kind="fatal error"),
        gcc_report(kind=None),
        gcc_report(locations=3),
        gcc_report(locations=[{}]),
        b" " * (analyses.MOST_REPORT_BYTES + 1),
    ],
)
def test_a_report_of_gcc_that_is_not_as_expected_is_a_failure(report: bytes) -> None:
    with pytest.raises(ValueError, match=r"report|whole program"):
        analyses.findings(GCC, report)


@pytest.mark.parametrize(
    "report", [b"nullPointer", b"nullPointer x y", b"syntaxError 3 a", b"x 3 a\n\ny 4 a", b"toomanyconfigs 0 a"]
)
def test_a_report_of_cppcheck_that_is_not_as_expected_is_a_failure(report: bytes) -> None:
    with pytest.raises(ValueError, match="whole program"):
        analyses.findings(CPPCHECK, report)


def test_reports_become_rules_and_lines_each_once() -> None:
    assert analyses.findings(GCC, gcc_report()) == [("-Wdiv-by-zero", 4)]
    elsewhere = [{"caret": {"file": "stdio.h", "line": 4}}]
    assert analyses.findings(GCC, gcc_report(locations=elsewhere)) == [("-Wdiv-by-zero", 0)]
    assert analyses.findings(GCC, gcc_report(locations=[])) == [("-Wdiv-by-zero", 0)]
    own = b"/proc/self/fd/0\n"
    report = b"nullPointer 3 " + own + b"zerodiv 4 driver.c\n" + b"nullPointer 3 " + own
    assert analyses.findings(CPPCHECK, report) == [("nullPointer", 3), ("zerodiv", 0)]


def test_an_identifier_of_an_honest_program_is_no_switch() -> None:
    assert analyses.header(b"int diagnostic, optimize;") == b""
    assert b"poison diagnostic" in analyses.header(b"#pra\\\ngma pack(1)\nint diagnostic;")


@pytest.mark.parametrize("text", [b"/* *\\ \n/", b'"??/""'])
def test_a_text_that_analyzers_read_in_different_ways_is_a_failure(text: bytes) -> None:
    with pytest.raises(ValueError, match="differ"):
        analyses.header(text)
    assert analyses.header(b"#define A /* x */ \\\r\n    /* y */ 1\r\n") == b""


@pytest.mark.parametrize("reported", [None, {}, [3], [[3]], [["x"]], [[["x", "y"]]], [[["x", 1, 2]]], [[["x", True]]]])
def test_a_box_cannot_tell_anything_else(reported: object) -> None:
    with pytest.raises(ValueError, match="not"):
        analysis_of(reported)


def test_an_invalid_report_of_a_box_counts_as_a_lost_worker() -> None:
    for text in ("", "{", "[[3]]"):
        with pytest.raises(WorkerLost, match="invalid reply"):
            worker.SandboxWorker._keep(object.__new__(worker.SandboxWorker), "analyzed", text)


def test_rules_that_are_not_in_the_table_do_not_count_and_failures_are_kept() -> None:
    scan = analysis_of([[["-Wanalyzer-use-of-uninitialized-value", 3], ["uninitvar", 3], ["style", 4]], None])
    assert scan == Scan((), failed=True)


def test_a_weakness_that_several_tools_report_counts_as_the_first_one_reports_it() -> None:
    scan = analysis_of([[["-Wanalyzer-malloc-leak", 7]], [["memleak", 8], ["zerodiv", 9], ["zerodiv", 12]]])
    assert [(each.test_id, each.line) for each in scan.findings] == [
        ("-Wanalyzer-malloc-leak", 7),
        ("zerodiv", 9),
        ("zerodiv", 12),
    ]
    report = "SUMMARY: UndefinedBehaviorSanitizer: integer-divide-by-zero solution.c:9"
    stopped = Execution(toolchain.MEDIUM_STATUS, "", "", report, 0.0)
    run = ProgramRun(True, "", (stopped,), analysis=dataclasses.replace(scan, failed=True))
    found = findings_of(run)
    assert [each.test_id for each in found.findings] == ["integer-divide-by-zero", "-Wanalyzer-malloc-leak"]
    assert found.failed


@pytest.mark.parametrize("kind", [*SANITIZERS, "of its own", ""])
def test_a_program_that_reports_itself_hides_no_finding_that_is_more_severe(kind: str) -> None:
    report = f"SUMMARY: UndefinedBehaviorSanitizer: {kind} solution.c:9" if kind else ""
    for status in (toolchain.MEDIUM_STATUS, toolchain.SANITIZER_STATUS):
        stopped = Execution(status, "", "", report, 0.0)
        for rule in ANALYZERS:
            scan = analysis_of([[[rule, 3]]])
            assert severity(findings_of(ProgramRun(True, "", (stopped,), analysis=scan))) >= severity(scan)


def test_every_rule_has_a_weakness_and_a_severity_that_counts() -> None:
    assert {each.severity for each in ANALYZERS.values()} == {"HIGH", "MEDIUM"}
    assert all(each.cwe > 0 for each in ANALYZERS.values())
