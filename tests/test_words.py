"""The checks of ``make lint-text`` find what they look for, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
import words


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
