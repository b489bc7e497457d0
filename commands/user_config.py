"""The user's defaults of options, a TOML file with a table per command: ``generate.max_tokens = 512``."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import Any

import click

from securecoderl_edge.config import read_toml, to_toml
from securecoderl_edge.errors import UsageError
from securecoderl_edge.system.files import write_atomically
from securecoderl_edge.system.folders import config_file

_WITHOUT = {"train": " Its settings belong into a recipe: sce train --recipe FILE.toml", "config": "", "models": ""}


def read_defaults() -> dict[str, Any]:
    """The tables of the file; empty without one. Errors as in `read_toml`."""
    path = config_file()
    return read_toml(path) if path.is_file() else {}


def write_defaults(table: Mapping[str, Any]) -> None:
    """Write the file, without tables that have become empty."""
    with write_atomically(config_file()) as out:
        out.write(to_toml(_without_empty(table)))


def defaults_of(root: click.Group, name: str) -> dict[str, Any]:
    """click's ``default_map`` for the command ``name``, with every key and value checked.

    Raises:
        UsageError: an unknown key, or a value that the option does not take.
    """
    table = read_defaults()
    for key in table:
        if key not in root.list_commands(click.Context(root)):
            raise UsageError(f"{config_file()}: {_unknown(root, key)}")
    found: dict[str, Any] = {}
    for words, value in _leaves(table.get(name, {}), (name,)):
        try:
            option, value = checked(root, ".".join(words), value)
        except UsageError as error:
            raise UsageError(f"{config_file()}: {error}") from None
        inner = found
        for word in words[1:-1]:
            inner = inner.setdefault(word, {})
        inner[str(option.name)] = value
    return found


def checked(root: click.Group, key: str, value: Any = None) -> tuple[click.Option, Any]:
    """The option that a key is for, and the value in the form that it takes; None is not checked.

    Raises:
        UsageError: an unknown key (near ones are named), or a value that the option does not take.
    """
    *words, name = key.split(".")
    if words and words[0] in _WITHOUT:
        raise UsageError(f"sce {words[0]} takes no defaults.{_WITHOUT[words[0]]}")
    option = dict(_options(root, words)).get(name.replace("-", "_"))
    if option is None:
        raise UsageError(_unknown(root, key))
    value = tuple(value) if isinstance(value, list) else value
    try:
        if value is not None:
            option.type_cast_value(click.Context(click.Command("sce")), value)
    except click.UsageError as error:
        raise UsageError(f"{key} = {value}: {error.message}") from None
    return option, value


def _options(root: click.Group, words: list[str]) -> Iterator[tuple[str, click.Option]]:
    """Name and option of everything of one command that a single value can be set for."""
    command: click.Command | None = root
    for word in words:
        command = command.get_command(click.Context(command), word) if isinstance(command, click.Group) else None
    for option in command.params if command is not None and command is not root else ():
        single = isinstance(option, click.Option) and not option.multiple and not option.count and option.expose_value
        if single and option.name:
            yield max(option.opts, key=len).lstrip("-").replace("-", "_"), option  # type: ignore[misc]


def _unknown(root: click.Group, key: str) -> str:
    context = click.Context(root)
    names: list[str] = []
    for word in set(root.list_commands(context)) - set(_WITHOUT):
        command = root.get_command(context, word)
        inner = [[word, each] for each in command.commands] if isinstance(command, click.Group) else [[word]]
        names += [".".join([*words, name]) for words in inner for name, _ in _options(root, words)]
    last = key.split(".")[-1]
    near = difflib.get_close_matches(key, names, 3) or [name for name in sorted(names) if name.endswith(f".{last}")][:3]
    return f"unknown key {key!r}." + (f" Did you mean {', '.join(near)}?" if near else " Keys are COMMAND.OPTION")


def _leaves(table: Any, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    if isinstance(table, Mapping):
        for key, value in table.items():
            yield from _leaves(value, (*words, key))
    else:
        yield words, table


def all_defaults() -> dict[str, Any]:
    """Every value of the file by its dotted key."""
    return {".".join(words): value for words, value in _leaves(read_defaults(), ())}


def _without_empty(table: Mapping[str, Any]) -> dict[str, Any]:
    kept = {key: _without_empty(value) if isinstance(value, Mapping) else value for key, value in table.items()}
    return {key: value for key, value in kept.items() if value != {}}
