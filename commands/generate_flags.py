"""The flags of ``sce generate`` that are no settings of the model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class GenerateFlags:
    """What is asked for, and how it is shown."""

    prompt: str | None
    model: str | None
    adapter: str | None
    n: int
    language: str | None
    tests_file: Path | None
    tests: tuple[str, ...]
    assertions: tuple[str, ...]
    hides_tests: bool
    stops: tuple[str, ...]
    repairs: int
    code_only: bool | None
    jsonl: Path | None
    edit: Path | None
    write: bool
