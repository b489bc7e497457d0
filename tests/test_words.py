"""The text that users read: the field's words, and no long sentences."""

from __future__ import annotations

from pathlib import Path

import docs_reference
import pytest
import words
from places import ROOT


def names(paths: list[Path]) -> list[str]:
    return [str(path.relative_to(ROOT)) for path in paths]


@pytest.mark.parametrize("page", names(words.pages()))
def test_pages_use_the_words_of_the_glossary(page: str) -> None:
    assert words.check(ROOT / page) == []


def test_messages_use_the_words_of_the_glossary() -> None:
    modules = words.modules()
    assert len(modules) > 150
    assert [finding for module in modules for finding in words.check(module)] == []


@pytest.mark.parametrize("command", list(docs_reference.commands()), ids=" ".join)
def test_help_uses_the_words_of_the_glossary(command: list[str]) -> None:
    assert list(words.findings_in_help(docs_reference.help_of(command))) == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("The gain could not be told from 0.", "no significant difference"),
        ("It is learnt slowly.", "learned"),
        ("It stands beside the file.", "next to"),
        ("nano has 4.8 M weights.", "parameters"),
        ("It takes 14 ms of processor time.", "CPU time"),
        ("There are two tests a problem.", "per"),
        ("What is kept is the last step.", "'What ...' clause"),
        ("The tokeniser has a vocabulary.", "-ize"),
        ("One " + "and one " * 20 + "more.", "words in a sentence"),
    ],
)
def test_words_that_the_glossary_replaces_are_found(text: str, problem: str) -> None:
    assert any(problem in finding for finding in words.findings_in(text))


@pytest.mark.parametrize(
    "text",
    [
        "No significant difference (95 % CI [-1.2, 3.7]).",
        "4.7 GiB were measured on a CPU.",
        "Is there a way? What does it do?",
        "The project has a stand-alone file.",
    ],
)
def test_plain_text_has_no_findings(text: str) -> None:
    assert list(words.findings_in(text)) == []


def test_code_comments_and_intervals_are_not_prose() -> None:
    page = "# A\n\n<!-- learnt -->\n\n```\nlearnt\n```\n\n* the `learnt` file [+0.6, +3.5]\n\n| learnt | b |\n"
    assert [(line, " ".join(text.split())) for line, text in words.paragraphs(page)] == [
        (1, "A"), (9, "the X file"), (11, "learnt"), (11, "b"),
    ]  # fmt: skip


def test_texts_of_a_module_are_its_strings_without_docstrings(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text('"""What is learnt."""\nx = f"so many {1} tests"\ny = "one"\nz = "two words"\n')
    assert list(words.messages(module)) == [(2, "so many X tests"), (4, "two words")]
