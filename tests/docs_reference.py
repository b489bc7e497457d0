"""Writes docs/cli.md from the real ``--help`` of every command, and the table of settings from their dataclasses.

    python tests/docs_reference.py

A test compares the committed page with what this makes.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterator
from pathlib import Path

import click
from click.testing import CliRunner

from securecoderl_edge.cli import COMMANDS, sce
from securecoderl_edge.training.settings import TrainSettings

PAGE = Path(__file__).resolve().parent.parent / "docs" / "cli.md"
WIDTH = 100
_HEAD = """# Commands

Made from `--help` by `python tests/docs_reference.py`. Standard output is data, standard error is talk. Exit codes: 0
success, 1 failure, 2 usage, 130 interrupted, 143 terminated (`sce train` saves first: 130). `sce --debug COMMAND`
shows the traceback of an error.
"""
_SETTINGS = """## Settings of a training run

Keys of a recipe (TOML), and of `--set KEY=VALUE`; what `sce train` has flags for is in its help above. A default holds
where the recipe says nothing; without `--recipe` that is `starter`, which sets several.
"""


def page() -> str:
    """The whole page."""
    parts = [_HEAD, _block(help_of([]))]
    for words in _commands():
        parts += [f"## sce {' '.join(words)}\n", _block(help_of(words))]
    parts.append(_SETTINGS)
    for name, schema in _tables():
        title = f"### [{name}]\n" if name else ""
        doc = (schema.__doc__ or "").strip().split("\n")[0]
        rows = "".join(_row(field, f"{name}.{field.name}" if name else field.name) for field in _plain_fields(schema))
        parts.append(f"{title}\n{doc}\n\n| key | default | |\n|---|---|---|\n{rows}")
    return "\n".join(parts)


def help_of(words: list[str]) -> str:
    """What ``--help`` prints at a fixed width."""
    shown = CliRunner().invoke(sce, [*words, "--help"], prog_name="sce", terminal_width=WIDTH, max_content_width=WIDTH)
    return "\n".join(line.rstrip() for line in shown.output.splitlines())


def _commands() -> Iterator[list[str]]:
    context = click.Context(sce)
    for name in COMMANDS:
        command = sce.get_command(context, name)
        yield [name]
        if isinstance(command, click.Group):
            for inner in command.list_commands(context):
                yield [name, inner]


def _tables() -> Iterator[tuple[str, type]]:
    yield "", TrainSettings
    hints = typing.get_type_hints(TrainSettings)
    for field in dataclasses.fields(TrainSettings):
        if dataclasses.is_dataclass(hints[field.name]):
            yield field.name, hints[field.name]


def _plain_fields(schema: type) -> list[dataclasses.Field[typing.Any]]:
    hints = typing.get_type_hints(schema)
    return [field for field in dataclasses.fields(schema) if not dataclasses.is_dataclass(hints[field.name])]


def _row(field: dataclasses.Field[typing.Any], key: str) -> str:
    default = ",".join(field.default) if isinstance(field.default, tuple) else field.default
    shown = "" if default is None else f"`{str(default).lower() if isinstance(default, bool) else default}`"
    choices = field.metadata["choices"]
    words = f" One of {', '.join(f'`{each}`' for each in choices)}." if choices else ""
    return f"| `{key}` | {shown} | {field.metadata['help'].replace('|', chr(92) + '|')}{words} |\n"


def _block(text: str) -> str:
    return f"```text\n{text}\n```\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
