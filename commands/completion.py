"""``sce completion``: shell scripts that complete commands, flags and model names."""

from __future__ import annotations

import click
from click.shell_completion import BashComplete, FishComplete, ZshComplete

_SHELLS = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}
_VARIABLE = "_SCE_COMPLETE"


@click.command()
@click.argument("shell", type=click.Choice(tuple(_SHELLS)))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print a shell script that completes commands and model names.

    \b
    bash, in ~/.bashrc:                  eval "$(sce completion bash)"
    zsh, in ~/.zshrc:                    eval "$(sce completion zsh)"
    fish, in ~/.config/fish/config.fish: sce completion fish | source
    """
    # From the class itself: click's own method fails without bash here, although the script may be for elsewhere.
    made = _SHELLS[shell](ctx.find_root().command, {}, "sce", _VARIABLE)
    click.echo(made.source_template % made.source_vars())
