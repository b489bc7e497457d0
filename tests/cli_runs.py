"""A command of sce, as a process would run it."""

from __future__ import annotations

from click.testing import CliRunner

from securecoderl_edge.cli import main


def run_sce(*args: str, stdin: str = "") -> tuple[int, str, str]:
    """Exit code, stdout and stderr."""
    with CliRunner().isolation(input=stdin) as (out, err, _):
        try:
            main(list(args))
            code = 0
        except SystemExit as leave:
            code = int(leave.code or 0)
        return code, out.getvalue().decode(), err.getvalue().decode()
