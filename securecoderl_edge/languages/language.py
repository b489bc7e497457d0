"""The programming languages of problems, as values in one table."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Language:
    """One language.

    Attributes:
        name: in records of problems and in settings.
        noun: in sentences. title: with its version, in prompts.
        success, fault: what a text does that is a program, or none.
        suffix: of a file that holds a program.
        fence: the label of a block of code in a chat answer. labels: of all blocks that are taken for such code.
        comment: what begins a line that is only a comment.
        built_in_model: the name of the base model that this package contains for it.
        security_tool: where findings come from. has_text_scan: whether from the text of a program alone; else it is
            compiled, and its runs are watched.
    """

    name: str
    noun: str
    title: str
    success: str
    fault: str
    suffix: str
    fence: str
    labels: frozenset[str]
    comment: str
    built_in_model: str
    security_tool: str
    has_text_scan: bool


PYTHON = Language(
    name="python",
    noun="Python",
    title="Python 3",
    success="parses",
    fault="does not parse",
    suffix=".py",
    fence="python",
    labels=frozenset(("", "py", "py3", "python", "python2", "python3")),
    comment="#",
    built_in_model="nano",
    security_tool="Bandit",
    has_text_scan=True,
)
C = Language(
    name="c",
    noun="C",
    title="C11",
    success="compiles",
    fault="does not compile",
    suffix=".c",
    fence="c",
    labels=frozenset(("", "c", "h", "c11", "c99", "gnu11", "cpp", "c++")),
    comment="//",
    built_in_model="nano-c",
    security_tool="analyzers and sanitizers",
    has_text_scan=False,
)
LANGUAGES = {language.name: language for language in (PYTHON, C)}

LANGUAGE_NAMES = tuple(LANGUAGES)


def language_of_file(path: Path) -> Language:
    """The language that a file's suffix stands for; Python if it stands for none."""
    return next((each for each in LANGUAGES.values() if each.suffix == path.suffix.lower()), PYTHON)
