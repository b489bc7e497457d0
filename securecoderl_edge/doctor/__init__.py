"""Checks of this machine for `sce doctor`: facts, and a trial run where a fact alone is not enough.

Whatever may crash or takes seconds to import (llama.cpp, torch) is tried in child processes.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

from securecoderl_edge.doctor.extras import examine_extras
from securecoderl_edge.doctor.findings import Check, Section
from securecoderl_edge.doctor.host import examine_host
from securecoderl_edge.doctor.isolation import examine_sandbox
from securecoderl_edge.doctor.kernels import examine_llama_cpp
from securecoderl_edge.doctor.torch_facts import examine_torch

__all__ = ["Check", "Report", "Section", "examine"]


@dataclass(frozen=True)
class Report:
    """The sections by name: machine, sandbox, extras, llama_cpp, torch."""

    sections: dict[str, Section]

    @property
    def findings(self) -> list[Check]:
        """The findings of all sections, in order."""
        return [finding for section in self.sections.values() for finding in section.findings]

    @property
    def ok(self) -> bool:
        """Nothing is bad; a missing optional package does not count."""
        return all(finding.state != "bad" for finding in self.findings)

    def to_record(self) -> dict[str, Any]:
        """One JSON object: ``ok``, the facts of each section under its name, all findings."""
        facts = {name: section.facts for name, section in self.sections.items()}
        return {"ok": self.ok, **facts, "findings": [asdict(finding) for finding in self.findings]}


def examine(sandbox: str = "auto") -> Report:
    """Look at everything; takes a few seconds, most of which torch needs to be imported."""
    host, isolation = examine_host(), examine_sandbox(sandbox)
    # After the self-test: it changes the environment for a moment, which children of other threads would inherit.
    with ThreadPoolExecutor(2) as threads:
        torch, llama = threads.submit(examine_torch), threads.submit(examine_llama_cpp)
        sections = {
            "machine": host,
            "sandbox": isolation,
            "extras": examine_extras(),
            "llama_cpp": llama.result(),
            "torch": torch.result(),
        }
    return Report(sections)
