"""The sandbox: its level, the state of each layer in a running worker, the self-test, and what C programs need."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from securecoderl_edge.doctor.findings import Check, Section, State
from securecoderl_edge.errors import SceError
from securecoderl_edge.languages.analyzers import CPPCHECK, GCC, absent_analyzers, analyzer_versions
from securecoderl_edge.languages.language import C
from securecoderl_edge.languages.targets import TARGETS, Target, find_target_toolchain
from securecoderl_edge.languages.toolchain import find_toolchain
from securecoderl_edge.sandbox.levels import LEVELS, OFF_HINT, choose_level, has_seccomp, landlock_abi
from securecoderl_edge.sandbox.pool import SandboxPool
from securecoderl_edge.sandbox.selftest import (
    ATTACKS_IN_C,
    ATTACKS_ON_BOARD,
    SelfTest,
    run_c_selftest,
    run_selftest,
    run_target_selftest,
)

_ELSEWHERE = "use Linux on x86_64 or aarch64; a virtual machine is enough"
_REFUSED = "check whether a container or a security module blocks seccomp or Landlock"
_REPORT = "report it with the output of: sce doctor --json"
_LEAKS = f"do not run generated programs at this level; {_REPORT}"
_OFF = "use --sandbox off only for programs that you trust"
_SECCOMP_FILTERED = "2"  # /proc/PID/status
# The rule of each analyzer that fires on this program; it is not run.
FAULTY = """\
#include <stdlib.h>
int main(void) {
    int *p = malloc(sizeof *p), a[2] = {0};
    if (p == NULL) return 1;
    free(p);
    a[2] = *p;
    return a[0];
}
"""
RULES = {GCC: "-Wanalyzer-use-after-free", CPPCHECK: "arrayIndexOutOfBounds"}
_ANALYZERS_OFF = f"switch them off with --analyzers off (reward.analyzers), and {_REPORT}"


def examine_sandbox(choice: str = "auto") -> Section:
    """Choose the level as `sce` does, check its layers, and run the self-test."""
    section = Section("sandbox", {"level": None, "layers": {}, "self_test": None})
    try:
        level = choose_level(choice)
    except SceError as error:
        return _failed(section, "level", error, _ELSEWHERE if choice == "auto" else "")
    state: State = "ok" if level == "full" else "note"
    section.add("level", state, f"{level}: {LEVELS[level]}")
    section.facts["level"] = level
    try:
        test = run_selftest(choice)
    except (SceError, OSError) as error:
        return _failed(section, "self-test", error, _REFUSED)
    if sys.platform == "linux":
        layers = [*_layers(level, test.status), ("refused attempts", *_notes(test))]
        section.facts["layers"] = {name: shown for name, _, shown in layers}
        for layer in layers:
            section.add(*layer)
    section.facts["self_test"] = _record(test)
    section.findings += _judge(test)
    section.facts["c"], finding = _c_programs(choice)
    section.findings.append(finding)
    section.facts["analyzers"], finding = examine_analyzers(choice)
    section.findings.append(finding)
    section.facts["targets"] = {}
    for target in TARGETS.values():
        section.facts["targets"][target.name], finding = _target_programs(target, choice)
        section.findings.append(finding)
    return section


def _target_programs(target: Target, choice: str) -> tuple[dict[str, Any], Check]:
    """Whether programs can be built for a target at this level, and run on its emulated board."""
    name = f"C for {target.name}"
    try:
        toolchain = find_target_toolchain(target.name)
        test = run_target_selftest(target.name, choice)
    except SceError as error:
        why, step = _why_and_step(error)
        return {"passed": False, "error": why}, Check("sandbox", name, "missing", f"{why} (optional)", step)
    facts = asdict(test) | {"passed": test.passed, "compiler": toolchain.version, "emulator": toolchain.emulate[0]}
    if test.passed:
        sentence = f"{toolchain.version}, QEMU: a program ran on the board, {len(ATTACKS_ON_BOARD)} attacks contained"
        return facts, Check("sandbox", name, "ok", sentence)
    what = f"NOT contained: {', '.join(test.succeeded)}" if test.succeeded else "a program does not run on the board"
    return facts, Check("sandbox", name, "bad", what, _OFF if choice == "off" else _LEAKS)


def _c_programs(choice: str) -> tuple[dict[str, Any], Check]:
    """Whether programs in C can be compiled and run at this level."""
    try:
        toolchain = find_toolchain()
        test = run_c_selftest(choice)
    except SceError as error:
        why, step = _why_and_step(error)
        return {"passed": False, "error": why}, Check("sandbox", "C programs", "missing", why, step)
    facts = asdict(test) | {"passed": test.passed, "compiler": toolchain.version, "linker": toolchain.linker}
    by = f"{toolchain.version}, {toolchain.linker}"
    if test.passed:
        contained = f"{len(ATTACKS_IN_C)} of {len(ATTACKS_IN_C)} attacks contained"
        return facts, Check("sandbox", "C programs", "ok", f"{by}: sanitizers report, {contained}")
    what = f"NOT contained: {', '.join(test.succeeded)}" if test.succeeded else "programs or sanitizers do not work"
    return facts, Check("sandbox", "C programs", "bad", f"{by}: {what}", _OFF if choice == "off" else _LEAKS)


def _failed(section: Section, name: str, error: Exception, step: str) -> Section:
    why = str(error).removesuffix(f"; {OFF_HINT}")  # which points here
    section.facts["error"] = why
    section.add(name, "bad", why, step)
    return section


def _layers(level: str, status: dict[str, str]) -> list[tuple[str, State, str]]:
    """Name, state and description of each layer; the state of a worker is read from its ``/proc/PID/status``."""
    off = level == "off"
    abi = landlock_abi()
    covers = ["files", *(["TCP"] if abi >= 4 else []), *(["signals"] if abi >= 6 else [])]
    landlock: tuple[State, str]
    if abi == 0:
        landlock = "missing", "not available: needs Linux 5.13 or newer with the landlock security module enabled"
    elif level == "full":
        landlock = "ok", f"ABI {abi}: {', '.join(covers)}"
    else:
        landlock = "note", f"ABI {abi} is available, but not used at this level"
    seccomp = _seen(status, "Seccomp", _SECCOMP_FILTERED, off, "one filter in the worker, another in each test")
    if off and has_seccomp():
        seccomp = "note", "available, but not used at this level"
    capabilities = status.get("CapEff", "").lstrip("0")
    return [
        ("seccomp", *seccomp),
        ("Landlock", *landlock),
        ("no new privileges", *_seen(status, "NoNewPrivs", "1", off, "on in the worker")),
        ("capabilities", *_seen(status | {"CapEff": capabilities}, "CapEff", "", off, "none in the worker")),
        ("memfd", *_memory_files()),
        ("pidfd", *_pidfd()),
    ]


def _notes(test: SelfTest) -> tuple[State, str]:
    if test.takes_notes:
        return "ok", "noted for each program (denied)"
    if test.level == "off":
        return "note", "not noted at this level"
    return "note", "not noted: needs Linux 5.5, and a container that permits listeners of seccomp"


def _seen(status: dict[str, str], field: str, wanted: str, off: bool, shown: str) -> tuple[State, str]:
    if not status:
        return "note", "unknown: /proc does not show other processes"
    if status.get(field) == wanted:
        return "ok", shown
    sentence = f"the worker's {field} is {status.get(field, 'unknown')}"
    return ("note", f"{sentence}: not used at this level") if off else ("bad", sentence)


def _memory_files() -> tuple[State, str]:
    if hasattr(os, "memfd_create"):
        with suppress(OSError):
            os.close(os.memfd_create("doctor"))
            return "ok", "inputs and outputs of tests never touch a disk"
    return "note", "needs Linux 3.17: unnamed temporary files are used instead"


def _pidfd() -> tuple[State, str]:
    if hasattr(os, "pidfd_open"):
        with suppress(OSError):
            os.close(os.pidfd_open(os.getpid()))
            return "ok", "the end of a test is detected at once"
    return "note", "needs Linux 5.3: the end of a test is detected a little later"


def _judge(test: SelfTest) -> list[Check]:
    findings = [
        Check(
            "sandbox",
            outcome.attack,
            "ok" if outcome.contained else "bad",
            f"{'contained' if outcome.contained else 'NOT contained'} ({outcome.how})",
        )
        for outcome in test.outcomes
    ]
    contained = sum(outcome.contained for outcome in test.outcomes)
    benign = "the benign program ran" if test.benign_ran else "the benign program did not run"
    summary = f"{contained} of {len(test.outcomes)} attacks contained; {benign}"
    step = "" if test.passed else _OFF if test.level == "off" else _LEAKS
    return [Check("sandbox", "self-test", "ok" if test.passed else "bad", summary, step), *findings]


def _record(test: SelfTest) -> dict[str, Any]:
    return {
        "passed": test.passed,
        "benign_ran": test.benign_ran,
        "attacks": {outcome.attack: {"contained": outcome.contained, "how": outcome.how} for outcome in test.outcomes},
    }


def _why_and_step(error: SceError) -> tuple[str, str]:
    """The parts of an error's text: what is wrong, and what to do; without a hint that points to the doctor."""
    why, _, step = str(error).removesuffix(f"; {OFF_HINT}").partition("; ")
    return why, step


def examine_analyzers(choice: str = "auto") -> tuple[dict[str, Any], Check]:
    """What is installed, as facts and in words; a missing analyzer is no fault."""
    name, facts = "C analyzers", dict[str, Any](versions={}, passed=False)
    try:
        versions = facts["versions"] = analyzer_versions()
        with SandboxPool(1, level=choice, has_analyzers=True) as pool:
            analysis = pool.run(FAULTY, language=C.name).analysis
    except SceError as error:
        why, step = _why_and_step(error)
        return facts | {"error": why}, Check("sandbox", name, "missing", f"{why} (optional)", step)
    rules = {each.test_id for each in analysis.findings} if analysis is not None else set()
    blind = [each for each in versions if RULES[each] not in rules]
    facts["passed"] = not blind
    if blind:
        return facts, Check("sandbox", name, "bad", f"{', '.join(blind)}: does not find a known fault", _ANALYZERS_OFF)
    missing = absent_analyzers()
    working = ", ".join(versions.values()) or "none"
    if not missing:
        return facts, Check("sandbox", name, "ok", f"{working}: each finds a known fault")
    said = f"{working}; missing {', '.join(missing)} (optional)"
    return facts, Check("sandbox", name, "missing", said, "; ".join(missing.values()))
