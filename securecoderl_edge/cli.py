"""The ``sce`` group. Commands are imported when they are called; errors become exit codes."""

from __future__ import annotations

import importlib
import io
import os
import signal
import sys
import traceback
import warnings
from contextlib import suppress
from typing import Any, NoReturn

import click

from securecoderl_edge.errors import SceError, first_line, is_device_failure
from securecoderl_edge.text import without_commands

# A copy of each command's one-line help, so that `sce --help` imports no command.
COMMANDS = {
    "train": "Train a model: SFT, then PPO with rewards from running its programs.",
    "export": "Export a model to GGUF or ONNX files, verified against the original.",
    "bench": "Evaluate quality, speed and memory of models on problems.",
    "generate": "Generate a program for a prompt; test and scan it before printing it.",
    "serve": "Serve a model in OpenAI's format, with tested and scanned programs.",
    "models": "List, pull and remove models that have a name.",
    "scan": "Scan files and folders for security findings, without running them.",
    "score": "Score programs: run their tests in the sandbox, and scan them.",
    "data": "Start, import, check, measure, show, count, split and wrap problem files.",
    "reproduce": "Reproduce the paper's tables, with several seeds and 95 % intervals.",
    "report": "Write a training run as one HTML page, or compare several on one page.",
    "config": "Show or change your defaults of options.",
    "doctor": "Check this machine: CPU, sandbox, optional packages, llama.cpp, torch.",
    "completion": "Print a shell script that completes commands and model names.",
}


class LazyGroup(click.Group):
    """A group that loads the command ``NAME`` from the module ``securecoderl_edge.commands.NAME``."""

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
@click.pass_context
def sce(ctx: click.Context, debug: bool) -> None:  # `main` reads --debug before click does
    """Train small code models with rewards from running their programs; export and evaluate them on a CPU.

    Run these in this order. They need no GPU and no network, and only generate needs an argument:

    \b
      sce train       train the built-in model: SFT, then reinforcement learning
      sce export      export the result to one GGUF file, and verify it
      sce bench       compare the model before and after training
      sce generate    generate a program, test it and scan it
    """
    from securecoderl_edge.system.folders import config_file

    # `sce config` mends a file that cannot be read.
    if ctx.invoked_subcommand not in (None, "config") and config_file().is_file():
        defaults_of = importlib.import_module("securecoderl_edge.commands.config").defaults_of
        ctx.default_map = {ctx.invoked_subcommand: defaults_of(ctx.command, ctx.invoked_subcommand)}


def main(args: list[str] | None = None) -> Any:
    """Run ``sce`` and exit with 0, 1 (failure), 2 (usage) or 130 (interrupted)."""
    is_our_process = args is None
    args = sys.argv[1:] if args is None else args
    debug = "--debug" in args
    if not debug:
        # Deprecation warnings of libraries are for developers, not for users.
        warnings.simplefilter("ignore")
    with suppress(ValueError):  # outside the main thread
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that temporary files are removed
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # not every encoding has every character of our tables
            stream.reconfigure(errors="backslashreplace")
    try:
        # Outside standalone mode click returns the code of `ctx.exit` instead of raising it.
        exit_code = sce.main(args=args, prog_name="sce", standalone_mode=False)
        if exit_code:
            sys.exit(exit_code)
    except click.ClickException as error:
        shown = io.StringIO()
        error.show(shown)
        # An argument can be the name of a file from elsewhere.
        click.echo(without_commands(shown.getvalue()), err=True, nl=False)
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        if is_our_process:  # a second Ctrl-C ends it at once: an exception while libraries clean up is a traceback
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        _fail("interrupted", debug, 130)
    except SceError as error:
        _fail(str(error), debug, error.exit_code)
    except BrokenPipeError:
        # The reader of our output, such as `head`, has closed the pipe: no failure, and nobody reads a message.
        sys.stderr.close()
        sys.exit(1)
    except OSError as error:
        # The system rejected a file or a stream: no space, no permission.
        _fail(f"{_place(error)}{error.strerror or error}", debug)
    except MemoryError:
        _fail("the memory does not suffice: a file is too large, or other programs need it", debug)
    except Exception as error:
        if is_device_failure(error):
            _fail(f"the GPU failed ({first_line(error)}). Run the same command again, or add --device cpu", debug)
        _fail(f"{type(error).__name__}: {error} (a bug in sce; run with --debug for the traceback)", debug)


def _place(error: OSError) -> str:
    """The file that the system rejected. Of a stream it names none; those that write to ours are click and rich."""
    if error.filename is not None:
        return f"{error.filename}: "
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    writer = frames[-1].f_globals.get("__name__", "").partition(".")[0] if frames else ""
    if writer not in ("click", "rich"):
        return ""
    with suppress(OSError, ValueError), open(os.devnull, "w") as nothing:  # what is left is written when we exit
        os.dup2(nothing.fileno(), sys.stdout.fileno())
    return "standard output: "


def _fail(message: str, debug: bool, exit_code: int = 1) -> NoReturn:
    if debug:
        traceback.print_exc()
    click.echo(f"sce: {without_commands(message)}", err=True)  # it may quote an untrusted file
    sys.exit(exit_code)


if __name__ == "__main__":
    main()
