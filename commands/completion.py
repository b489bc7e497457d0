"""``sce completion``: shell scripts that complete commands, flags and model names."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from securecoderl_edge.errors import UsageError

_SHELLS = ("bash", "zsh", "fish")
_VARIABLE = "_SCE_COMPLETE"


@click.command()
@click.argument("shell", type=click.Choice(_SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print a shell script that completes commands and model names.

    \b
    bash, in ~/.bashrc:                  eval "$(sce completion bash)"
    zsh, in ~/.zshrc:                    eval "$(sce completion zsh)"
    fish, in ~/.config/fish/config.fish: sce completion fish | source
    """
    group, kind = ctx.find_root().command, get_completion_class(shell)
    if kind is None:
        raise UsageError(f"click cannot complete commands in {shell}. Use bash, zsh or fish.")
    # From the class itself: click's own method fails without bash here, although the script may be for elsewhere.
    made = kind(group, {}, "sce", _VARIABLE)
    click.echo(made.source_template % made.source_vars())
