"""The ``sce`` group: commands are imported when they are called, errors become exit codes."""

from __future__ import annotations

import importlib
import sys
import traceback
import warnings
from typing import Any

import click

from securecoderl_edge.errors import SceError
from securecoderl_edge.text import escape_controls

# Each command's one-line help stands here too, so that `sce --help` imports no command.
COMMANDS = {
    "train": "Train a policy: supervised warm start, then PPO on execution rewards.",
    "export": "Write a trained policy as verified files for a laptop CPU.",
    "bench": "Measure quality, speed and memory of models on problems.",
    "generate": "Write a program for a prompt, checked before it is shown.",
    "score": "Score programs against problems in the sandbox.",
    "data": "Import, check, show, count and split problem files.",
    "reproduce": "Make the paper's tables again, with seeds and intervals.",
    "report": "Show a training run as one page: what was kept, curves, programs.",
    "doctor": "Check this machine: processor, sandbox, extras, llama.cpp and torch.",
    "completion": "Print a script that completes commands and models in your shell.",
}


class LazyGroup(click.Group):
    """A group whose commands live in ``securecoderl_edge.commands.<name>`` under the same name."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        module = importlib.import_module(f"securecoderl_edge.commands.{name}")
        command: click.Command = getattr(module, name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            import difflib

            close = difflib.get_close_matches(args[0], COMMANDS, n=1)
            hint = f" Did you mean '{close[0]}'?" if close else ""
            raise click.UsageError(f"{error.message}{hint}", error.ctx) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


def _print_version(ctx: click.Context, _parameter: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        from securecoderl_edge import __version__

        click.echo(f"sce {__version__}")
        ctx.exit()


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_print_version,
    help="Show the version.",
)
def sce(debug: bool) -> None:  # which `main` looks for before there are commands
    """Make small code models reliable, and run them on a laptop.

    Without arguments, in this order, on a machine with no GPU and no network:

    \b
      sce train       a small model learns from running code
      sce export      the result becomes one verified file
      sce bench       before and after, side by side
      sce generate    a program, checked before it is shown
    """


def main(args: list[str] | None = None) -> Any:
    """Entry point: run ``sce`` and exit with 0, 1 (failure), 2 (usage) or 130 (interrupted)."""
    args = sys.argv[1:] if args is None else args
    debug = "--debug" in args
    if not debug:
        # Deprecations inside the libraries that we call are ours to read, not the user's.
        warnings.simplefilter("ignore")
    try:
        # Outside standalone mode click returns the code of `ctx.exit` instead of raising it.
        exit_code = sce.main(args=args, prog_name="sce", standalone_mode=False)
        if exit_code:
            sys.exit(exit_code)
    except click.ClickException as error:
        if isinstance(error, click.NoSuchOption):
            from securecoderl_edge.config import OLD_FLAGS

            if new := OLD_FLAGS.get(error.option_name):
                error = click.UsageError(f"{error.option_name} was renamed; use {new}", error.ctx)
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        _say("interrupted", debug)
        sys.exit(130)
    except SceError as error:
        _say(str(error), debug)
        sys.exit(error.exit_code)
    except BrokenPipeError:
        # The reader of our output (head, say) has left: nothing is wrong, and nobody is there to tell.
        sys.stderr.close()
        sys.exit(1)
    except OSError as error:
        # A file or a stream that the system refuses: no space, no permission.
        place = f"{error.filename}: " if error.filename is not None else ""
        _say(f"{place}{error.strerror or error}", debug)
        sys.exit(1)
    except Exception as error:
        _say(f"{type(error).__name__}: {error} (a bug in sce; --debug shows where)", debug)
        sys.exit(1)


def _say(message: str, debug: bool) -> None:
    if debug:
        traceback.print_exc()
    click.echo(f"sce: {escape_controls(message)}", err=True)  # it may quote a file of somebody else's


if __name__ == "__main__":
    main()
