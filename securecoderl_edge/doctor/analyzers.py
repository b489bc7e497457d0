"""The static analyzers of programs in C: which are installed, and whether each finds a fault in the sandbox."""

from __future__ import annotations

from typing import Any

from securecoderl_edge.doctor.findings import Check
from securecoderl_edge.errors import SceError
from securecoderl_edge.languages.analyzers import CPPCHECK, GCC, INSTALL_HINTS, analyzer_versions
from securecoderl_edge.languages.language import C
from securecoderl_edge.sandbox.levels import OFF_HINT
from securecoderl_edge.sandbox.pool import SandboxPool

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
_NAME = "C analyzers"
_OFF = "switch them off with --analyzers off (reward.analyzers), and report it with the output of: sce doctor --json"


def why_and_step(error: SceError) -> tuple[str, str]:
    """The parts of an error's text: what is wrong, and what to do; without a hint that points to the doctor."""
    why, _, step = str(error).removesuffix(f"; {OFF_HINT}").partition("; ")
    return why, step


def examine_analyzers(choice: str = "auto") -> tuple[dict[str, Any], Check]:
    """What is installed, as facts and in words; a missing analyzer is no fault."""
    facts: dict[str, Any] = {"versions": {}, "passed": False}
    try:
        versions = facts["versions"] = analyzer_versions()
        with SandboxPool(1, level=choice, has_analyzers=True) as pool:
            analysis = pool.run(FAULTY, language=C.name).analysis
    except SceError as error:
        why, step = why_and_step(error)
        return facts | {"error": why}, Check("sandbox", _NAME, "missing", f"{why} (optional)", step)
    found = {each.test_id for each in analysis.findings} if analysis is not None else set()
    blind = [name for name in versions if RULES[name] not in found]
    facts["passed"] = not blind
    if blind:
        return facts, Check("sandbox", _NAME, "bad", f"{', '.join(blind)}: does not find a known fault", _OFF)
    missing = [name for name in RULES if name not in versions]
    working = ", ".join(versions.values()) or "none"
    if not missing:
        return facts, Check("sandbox", _NAME, "ok", f"{working}: each finds a known fault")
    hints = "; ".join(INSTALL_HINTS[name] for name in missing)
    return facts, Check("sandbox", _NAME, "missing", f"{working}; missing {', '.join(missing)} (optional)", hints)
