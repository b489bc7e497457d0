"""What all commands share in talking to people: two consoles, one line of talk, progress."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column

from securecoderl_edge.errors import UsageError
from securecoderl_edge.text import escape_controls


class _Talk(Console):
    """A console whose reader may leave: in ``sce train 2>&1 | tee log`` the Ctrl-C that asks us to save ends tee."""

    def on_broken_pipe(self) -> None:
        """Go on without a reader; what nobody reads is no reason to lose work."""
        write_nowhere(2)


def new_console(*, stderr: bool = False, width: int | None = None) -> Console:
    """A console without markup and highlighting: names and programs may hold brackets."""
    kind = _Talk if stderr else Console
    return kind(stderr=stderr, width=width, markup=False, highlight=False, emoji=False)


def write_nowhere(descriptor: int) -> None:
    """Let what is written to a descriptor from now on vanish."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)


# stdout is data, stderr is talk.
data = new_console()
talk = new_console(stderr=True)


def say(message: str) -> None:
    """One line on stderr."""
    talk.print(escape_controls(message), soft_wrap=True)


def warn_of_level(sandbox: str) -> None:
    """Say so when programs will run without isolation, or with one that was never tried.

    Raises:
        SceError: this system does not offer the level.
    """
    from securecoderl_edge.sandbox import choose_level

    level = choose_level(sandbox)
    if level == "off":
        say("--sandbox off: programs run without isolation and can do whatever you can")
    elif level == "macos":
        say("the sandbox for macOS was never tried on a Mac; sce doctor tries it")


def refuse_to_overwrite(out: Path, force: bool, *sources: str | Path) -> None:
    """Leave a file that is there alone unless ``--force`` was given, and one of ``sources`` in any case.

    Raises:
        UsageError: it is there.
    """
    if any(out.exists() and Path(source).exists() and out.samefile(source) for source in sources):
        raise UsageError(f"{out} is one of the files to read; name another to write")
    if out.exists() and not force:
        raise UsageError(f"{out} exists; overwrite it with --force or name another file")


class Tracker(Protocol):
    """Progress of one piece of work."""

    def update(self, advance: float = 1, note: str = "") -> None:
        """Some units are done; ``note`` is short, like ``reward 0.52 syntax 91 %``."""
        ...


@contextmanager
def track(total: int | None, description: str, *, lines: bool = True, shown: bool = True) -> Iterator[Tracker]:
    """Show progress on stderr: a bar with the time left on a terminal, else a line for each update.

    Args:
        total: units of work; None where nobody knows.
        lines: False shows nothing but the bar; off a terminal the caller says what is worth a line.
        shown: False shows nothing at all.
    """
    if not shown:
        yield _Silent()
    elif talk.is_terminal:
        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=16),
            MofNCompleteColumn(),
            TimeRemainingColumn(compact=True),
            TextColumn("left"),
            TextColumn("{task.fields[note]}", markup=False, table_column=Column(no_wrap=True, ratio=1)),
        )
        with Progress(*columns, console=talk, transient=True, expand=True) as progress:
            yield _Bar(progress, total, description)
    elif lines and total is not None:
        yield _Lines(total, description)
    else:
        yield _Silent()


def duration(seconds: float) -> str:
    """``1.2 s``, ``3 min 20 s``, ``2 h 05 min``."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


class _Bar:
    def __init__(self, progress: Progress, total: int | None, description: str) -> None:
        self._progress = progress
        self._task = progress.add_task(escape_controls(description), total=total, note="")

    def update(self, advance: float = 1, note: str = "") -> None:
        self._progress.update(self._task, advance=advance, note=escape_controls(note))


class _Lines:
    def __init__(self, total: int, description: str) -> None:
        self._total, self._description = total, description
        self._done = 0.0
        self._first: tuple[float, float] | None = None

    def update(self, advance: float = 1, note: str = "") -> None:
        self._done += advance
        place = f"{self._description} {self._done:.0f}/{self._total}"
        say("  ".join(part for part in (place, self._left(), note) if part))

    def _left(self) -> str:
        # The first update carries loading and, in a resumed run, all that was done before: it says no speed.
        now = time.monotonic()
        if self._first is None:
            self._first = (now, self._done)
        since, already = self._first
        if not already < self._done < self._total:
            return ""
        left = (now - since) / (self._done - already) * (self._total - self._done)
        return f"{duration(left)} left"


class _Silent:
    def update(self, advance: float = 1, note: str = "") -> None:
        pass
