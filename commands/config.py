"""``sce config``: the user's defaults of options, a TOML file with a table per command."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import click

from securecoderl_edge.commands.console import say
from securecoderl_edge.commands.options import MODEL_VARIABLE, examples
from securecoderl_edge.config import apply_overrides, read_toml, to_toml
from securecoderl_edge.errors import UsageError
from securecoderl_edge.system.files import write_atomically
from securecoderl_edge.system.folders import config_file
from securecoderl_edge.text import escape_controls, nearest


@click.group(
    invoke_without_command=True,
    epilog=examples(
        "sce config set generate.model qwen-0.5b",
        "sce config set generate.max-tokens 512",
        "sce config unset generate.model",
    ),
)
@click.pass_context
def config(ctx: click.Context) -> None:
    """Show or change your defaults of options.

    A flag wins over an environment variable, which wins over this file, which wins over the default of the command.
    Without a command it shows the file and its values. A recipe has the settings of sce train.
    """
    if ctx.invoked_subcommand is None:
        click.echo(f"# {config_file()}")
        if name := os.environ.get(MODEL_VARIABLE):
            click.echo(f"# {MODEL_VARIABLE}={escape_controls(name)} wins over the models of this file")
        click.echo(escape_controls(to_toml(_read())).strip() or "# no defaults yet")


@config.command("set")
@click.argument("key")
@click.argument("value")
@click.pass_context
def set_value(ctx: click.Context, key: str, value: str) -> None:
    """Set a default: KEY is COMMAND.OPTION, such as generate.max-tokens. Comments in the file are lost."""
    key = key.replace("-", "_")
    _checked(ctx.find_root().command, key, apply_overrides({}, [f"value={value}"])["value"])
    _write(apply_overrides(_read(), [f"{key}={value}"]))
    say(f"{config_file()}: {key} = {value}")


@config.command()
@click.argument("key")
def unset(key: str) -> None:
    """Remove a default."""
    table = _read()
    command, _, name = key.replace("-", "_").partition(".")
    if not isinstance(table.get(command), dict) or name not in table[command]:
        raise UsageError(f"{key} is not set in {config_file()}")
    del table[command][name]
    _write({name: values for name, values in table.items() if values != {}})
    say(f"{config_file()}: {key} is no longer set")


def defaults_of(root: click.Command, command: str) -> dict[str, Any]:
    """click's ``default_map`` for one command.

    Raises:
        UsageError: a table without a command, a key without an option, or a value that the option does not take.
    """
    found: dict[str, Any] = {}
    for name, table in _read().items():
        values = table if isinstance(table, Mapping) else {"": table}
        for option, value in values.items() if name == command or name not in _commands(root) else ():
            try:
                found.update([_checked(root, f"{name}.{option}".rstrip("."), value)])
            except UsageError as error:
                raise UsageError(f"{config_file()}: {error}") from None
    return found


def _read() -> dict[str, Any]:
    return read_toml(config_file()) if config_file().is_file() else {}


def _write(table: Mapping[str, Any]) -> None:
    with write_atomically(config_file()) as out:
        out.write(to_toml(table))


def _checked(root: click.Command, key: str, value: Any) -> tuple[str, Any]:
    """The name of the parameter that a key sets, and its value."""
    command, _, name = key.partition(".")
    if command == "train":
        raise UsageError("sce train takes no defaults. Its settings belong into a recipe: sce train --recipe FILE.toml")
    option = _options(root, command).get(name.replace("-", "_"))
    if option is None:
        key = key.replace("_", "-")
        own = [command] if _options(root, command) else _commands(root)
        known = [f"{each}.{name.replace('_', '-')}" for each in own for name in _options(root, each)]
        near = ", ".join(each for each in known if each.endswith(f".{key}")) or nearest(key, known)
        raise UsageError(f"unknown key {key!r}. " + (f"Did you mean {near}?" if near else "See sce --help"))
    value = tuple(value) if isinstance(value, list) else value
    try:
        means = option.type_cast_value(click.Context(root), value)
    except click.UsageError as error:
        raise UsageError(f"{key.replace('_', '-')} = {value}: {error.message}") from None
    if option.name == "sandbox" and means == "off":
        raise UsageError(f"{key} = {value}: no default switches the isolation of programs off. Type --sandbox off.")
    return str(option.name), value


def _commands(root: click.Command) -> list[str]:
    names = root.list_commands(click.Context(root)) if isinstance(root, click.Group) else []
    return [name for name in names if name != "train"]


def _options(root: click.Command, command: str) -> dict[str, click.Option]:
    """The options of a command that take one value, by their long names."""
    found = root.get_command(click.Context(root), command) if isinstance(root, click.Group) else None
    options = [each for each in (found.params if found else ()) if isinstance(each, click.Option) and each.expose_value]
    single = [each for each in options if not each.multiple and not each.count]
    return {max(each.opts, key=len).lstrip("-").replace("-", "_"): each for each in single}
