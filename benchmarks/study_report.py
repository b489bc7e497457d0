"""Writes the pages of the study, its plots and the results in README.md from the committed results: ``make study``.

    python benchmarks/study_report.py

``pages/`` has a template for each page. Every ``{{...}}`` in it is replaced by a number, a table or a plot, so that no
result is typed by hand; `DIRECTIVES` are their names. Sentences about differences use ``higher``, ``lower`` and
``no_difference``: they put in the difference, and fail if the results do not agree with the sentence.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import fill
from typing import Any

from study import STUDIES
from study_directives import DIRECTIVES, PLOTS, RESULTS, Records, arms_of, read_result

from securecoderl_edge.system.files import write_atomically

HERE = Path(__file__).resolve().parent
TEMPLATES = HERE / "pages"
DOCS, README = HERE.parent / "docs", HERE.parent / "README.md"
# By template.
PAGES = {
    **{name: DOCS / "concepts" / name for name in ("study.md", "paper-notes.md")},
    "results.md": RESULTS / "README.md",
}

WIDTH = 120

# A part of README.md, in README.md and in its template.
_PART = re.compile(r"^<!-- made by make study: (?P<name>[\w-]+) -->\n(?P<text>.*?)^<!-- end -->\n", re.M | re.S)


def read_records(folder: Path = RESULTS) -> dict[str, dict[str, Any]]:
    """The committed results of each study that has some; titles are those that ``study.py`` uses today."""
    records = {}
    for name in STUDIES:
        file = folder / f"study-{name}.json"
        if file.is_file():
            titles = {arm.name: arm.title for arm in arms_of(name)}
            records[name] = read_result(file)
            for arm in records[name]["arms"]:
                arm["title"] = titles.get(arm["name"], arm["title"])
    return records


def pages(records: Records) -> dict[Path, str]:
    """The text of each page of the study, by its path."""
    return {path: render((TEMPLATES / name).read_text(encoding="utf-8"), records, name) for name, path in PAGES.items()}


def render(text: str, records: Records, name: str = "template") -> str:
    """The text with its directives carried out.

    Raises:
        ValueError: an unknown directive, a result that does not exist, or a claim that the results contradict.
    """

    def put_in(match: re.Match[str]) -> str:
        directive, *words = match[1].split()
        try:
            return DIRECTIVES[directive](records, *words)
        except (KeyError, StopIteration, TypeError, ValueError) as error:
            raise ValueError(f"{name}: {match[0]}: {error!r}") from error

    return _wrapped(re.sub(r"\{\{(.+?)\}\}", put_in, text))


def _wrapped(text: str) -> str:
    """The text with its paragraphs and list items in lines of the house's length."""
    blocks = text.split("\n\n")
    for number, block in enumerate(blocks):
        if not block.startswith(("#", "|", "<!--", "```", "![", "\n")):
            items = re.split(r"\n(?=\* |\d+\. )", block.strip("\n"))
            blocks[number] = "\n".join(_wrapped_item(item) for item in items) + "\n" * block.endswith("\n")
    return "\n\n".join(blocks)


def _wrapped_item(item: str) -> str:
    marker = re.match(r"(\* |\d+\. )?", item)
    indent = " " * len(marker[0] if marker else "")
    # An interval is not broken.
    words = re.sub(r"(\[[-+\d.]+,) ", r"\1~", " ".join(item.split()))
    lines = fill(words, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return re.sub(r"(\[[-+\d.]+,)~", r"\1 ", lines)


def readme_parts(records: Records) -> dict[str, str]:
    """The text of each part of README.md that is made here, by its name."""
    template = (TEMPLATES / "readme.md").read_text(encoding="utf-8")
    return {part["name"]: render(part["text"], records, "readme.md").strip() for part in _PART.finditer(template)}


def in_readme(text: str, records: Records) -> str:
    """README with its parts, each between a mark with its name and an end mark.

    Raises:
        ValueError: the marks of a part are missing, or a mark has an unknown name.
    """
    parts = readme_parts(records)
    marked = [part["name"] for part in _PART.finditer(text)]
    if sorted(marked) != sorted(parts):
        marks = ", ".join(f"<!-- made by make study: {name} -->" for name in parts)
        raise ValueError(
            f"README.md: expected each of {marks} once, closed by <!-- end -->; found {', '.join(marked) or 'none'}"
        )
    mark = "<!-- made by make study: {} -->\n\n{}\n\n<!-- end -->\n"
    return _PART.sub(lambda part: mark.format(part["name"], parts[part["name"]]), text)


def made(records: Records) -> Iterator[tuple[Path, str]]:
    """Every file that is made here, with its text."""
    yield from pages(records).items()
    yield README, in_readme(README.read_text(encoding="utf-8"), records)


def main() -> None:
    """Parse the command line and write the pages."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--no-plots", action="store_true", help="write the text only")
    arguments = parser.parse_args()
    records = read_records()
    if not arguments.no_plots:
        from study_plots import draw_all

        draw_all(records, DOCS / PLOTS)
    for path, text in made(records):
        with write_atomically(path) as out:
            out.write(text)
        sys.stderr.write(f"{path.relative_to(HERE.parent)}: {len(text.split())} words\n")


if __name__ == "__main__":
    main()
