"""`sce data`: commands that import, check, show, count and split problem files."""

from __future__ import annotations

import click

from securecoderl_edge.commands.data_check import check
from securecoderl_edge.commands.data_import import import_
from securecoderl_edge.commands.data_show import show, stats
from securecoderl_edge.commands.data_split import leaks, split


@click.group()
def data() -> None:
    """Import, check, show, count and split problem files."""


for _command in (import_, check, show, stats, split, leaks):
    data.add_command(_command)
