"""``sce reproduce``: the paper's tables, with several seeds and intervals; one resumable command per table."""

from __future__ import annotations

import click

from securecoderl_edge.commands.reproduce_table2 import table2
from securecoderl_edge.commands.reproduce_table3 import table3


@click.group()
def reproduce() -> None:
    """Reproduce the paper's tables, with several seeds and 95 % intervals.

    Existing results are reused, so rerun the same command to resume.
    """


for _command in (table2, table3):
    reproduce.add_command(_command)
