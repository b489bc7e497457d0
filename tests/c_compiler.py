"""Programs in C for tests, which are skipped where none can be compiled and isolated."""

from __future__ import annotations

from functools import cache

from securecoderl_edge.errors import SceError
from securecoderl_edge.languages.analyzers import absent_analyzers
from securecoderl_edge.sandbox import SandboxPool


@cache
def why_no_c() -> str:
    """The reason why this machine cannot run C programs in the sandbox; empty if it can."""
    return _why_not("c")


@cache
def why_no_target() -> str:
    """The reason why this machine cannot run programs for Cortex-M3 on the emulated board; empty if it can."""
    return _why_not("cortex-m3")


@cache
def why_no_analyzers() -> str:
    """The reason why not all static analyzers can read programs in C on this machine; empty if they can."""
    missing = absent_analyzers()
    return why_no_c() or (f"needs {', '.join(missing)}" if missing else "")


def _why_not(language: str) -> str:
    try:
        with SandboxPool(1) as pool:
            pool.run("int main(void) { return 0; }", [""], language=language)
    except SceError as error:
        return str(error)
    return ""
