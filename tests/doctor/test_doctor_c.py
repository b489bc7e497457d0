"""What `sce doctor` says of programs in C."""

from __future__ import annotations

import pytest

from securecoderl_edge.doctor import isolation
from securecoderl_edge.doctor import isolation as doctor_analyzers
from securecoderl_edge.doctor.isolation import examine_analyzers
from securecoderl_edge.errors import SceError
from securecoderl_edge.languages import targets
from securecoderl_edge.languages.analyzers import CPPCHECK, GCC
from securecoderl_edge.languages.targets import CORTEX_M3
from securecoderl_edge.sandbox import selftest


def test_c_programs_are_tried_with_a_fault_and_attacks(c_compiler: None) -> None:
    facts, finding = isolation._c_programs("auto")
    assert facts["passed"]
    assert finding.state == "ok"
    assert "4 of 4 attacks contained" in finding.found


def test_attacks_in_c_succeed_without_a_sandbox_and_the_report_says_so(c_compiler: None) -> None:
    facts, finding = isolation._c_programs("off")
    # This compiler message is no program, so nothing was read by one.
    assert set(facts["succeeded"]) == set(selftest.ATTACKS_IN_C) - {"include /etc/passwd"}
    assert finding.state == "bad"


def test_a_machine_without_a_c_compiler_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise SceError("cannot run C programs: gcc is missing; install gcc")

    monkeypatch.setattr(isolation, "find_toolchain", refuse)
    _, finding = isolation._c_programs("auto")
    assert (finding.state, finding.found) == ("missing", "cannot run C programs: gcc is missing")
    assert finding.next_step == "install gcc"


def test_each_analyzer_is_tried_with_a_fault(analyzers: None) -> None:
    facts, finding = examine_analyzers()
    assert facts["passed"]
    assert list(facts["versions"]) == [GCC, CPPCHECK]
    assert (finding.state, finding.found.endswith("each finds a known fault")) == ("ok", True)


def test_a_missing_analyzer_is_no_fault_and_is_told_with_what_to_install(
    c_compiler: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("securecoderl_edge.languages.analyzers.find_analyzers", tuple)
    _, finding = examine_analyzers()
    assert finding.state == "missing"
    assert "missing gcc -fanalyzer, cppcheck (optional)" in finding.found
    assert "apt-get install cppcheck" in finding.next_step


def test_an_analyzer_that_sees_no_fault_is_bad_news(analyzers: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_analyzers, "FAULTY", "int main(void) { return 0; }")
    facts, finding = examine_analyzers()
    assert (facts["passed"], finding.state) == (False, "bad")


def test_a_target_is_tried_with_a_program_and_attacks(cortex_m3: None) -> None:
    facts, finding = isolation._target_programs(CORTEX_M3, "auto")
    assert facts["passed"]
    assert (finding.state, finding.name) == ("ok", "C for cortex-m3")
    assert "2 attacks contained" in finding.found


def test_missing_tools_for_a_target_are_no_fault_and_are_told_with_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(targets.shutil, "which", lambda name: None)
    targets.find_target_toolchain.cache_clear()
    _, finding = isolation._target_programs(CORTEX_M3, "auto")
    targets.find_target_toolchain.cache_clear()
    assert finding.state == "missing"
    assert "missing" in finding.found
    assert "apt-get install" in finding.next_step
