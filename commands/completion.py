"""``sce completion``: a shell's script that completes commands, flags and the names of models."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from securecoderl_edge.errors import UsageError

SHELLS = ("bash", "zsh", "fish")
_VARIABLE = "_SCE_COMPLETE"


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print a script that completes commands and models in your shell.

    \b
    bash, in ~/.bashrc:                  eval "$(sce completion bash)"
    zsh, in ~/.zshrc:                    eval "$(sce completion zsh)"
    fish, in ~/.config/fish/config.fish: sce completion fish | source
    """
    group, kind = ctx.find_root().command, get_completion_class(shell)
    if kind is None:
        raise UsageError(f"there is no completion for {shell}")
    # Asked of the class itself: the bash of click refuses where no bash is, whose script may be for elsewhere.
    made = kind(group, {}, "sce", _VARIABLE)
    click.echo(made.source_template % made.source_vars())
