"""``sce config``: the user's defaults of options."""

from __future__ import annotations

import os

import click

from securecoderl_edge.commands.console import say
from securecoderl_edge.commands.options import MODEL_VARIABLE
from securecoderl_edge.commands.user_config import all_defaults, checked, read_defaults, write_defaults
from securecoderl_edge.config import apply_overrides, to_toml
from securecoderl_edge.errors import UsageError
from securecoderl_edge.system.folders import config_file
from securecoderl_edge.text import escape_controls


@click.group(invoke_without_command=True)
@click.pass_context
def config(ctx: click.Context) -> None:
    """Show or change your defaults of options.

    A flag wins over an environment variable, which wins over this file, which wins over the default of the command.
    Without a command it shows the file and its values. A recipe has the settings of sce train.

    \b
    sce config set generate.model qwen-0.5b
    sce config set generate.max-tokens 512
    sce config unset generate.model
    """
    if ctx.invoked_subcommand is not None:
        return
    click.echo(f"# {config_file()}")
    if name := os.environ.get(MODEL_VARIABLE):
        click.echo(f"# {MODEL_VARIABLE}={escape_controls(name)} wins over the models below")
    for key, value in all_defaults().items():
        click.echo(f"{escape_controls(key)} = {escape_controls(to_toml({'x': value}).strip()[4:])}")


@config.command("set")
@click.argument("key")
@click.argument("value")
@click.pass_context
def set_value(ctx: click.Context, key: str, value: str) -> None:
    """Set a default: KEY is COMMAND.OPTION, such as generate.max-tokens. Comments in the file are lost."""
    root = ctx.find_root().command
    assert isinstance(root, click.Group)
    key = key.replace("-", "_")
    given = apply_overrides({}, [f"x={value}"])["x"]
    checked(root, key, given)
    write_defaults(apply_overrides(read_defaults(), [f"{key}={value}"]))
    say(f"{config_file()}: {key} = {value}")


@config.command()
@click.argument("key")
def unset(key: str) -> None:
    """Remove a default."""
    table = read_defaults()
    *words, name = key.replace("-", "_").split(".")
    inner = table
    for word in words:
        inner = inner.get(word, {})
    if not isinstance(inner, dict) or name not in inner:
        known = ", ".join(all_defaults()) or "nothing"
        raise UsageError(f"{key} is not set in {config_file()}. Set there: {known}")
    del inner[name]
    write_defaults(table)
    say(f"{config_file()}: {key} is no longer set")
