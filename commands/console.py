"""Terminal output of all commands: consoles for stdout and stderr, messages, progress."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Column, Table

from securecoderl_edge.errors import SceError, UsageError
from securecoderl_edge.text import escape_controls, without_commands


class _Diagnostics(Console):
    """The stderr console; it survives a closed pipe: in ``sce train 2>&1 | tee log``, Ctrl-C ends tee as well."""

    def on_broken_pipe(self) -> None:
        """Discard further messages; a missing reader must not end the work."""
        write_nowhere(2)


def new_console(*, stderr: bool = False, width: int | None = None) -> Console:
    """A console without markup and highlighting: names and programs may contain brackets."""
    kind = _Diagnostics if stderr else Console
    return kind(stderr=stderr, width=width, markup=False, highlight=False, emoji=False)


def show_table(table: Table, console: Console) -> None:
    """Print a table; its lines end in no blanks, except on a terminal."""
    if console.is_terminal:
        console.print(table)
        return
    with console.capture() as shown:
        console.print(table)
    console.print("\n".join(line.rstrip() for line in shown.get().splitlines()), soft_wrap=True)


def write_nowhere(descriptor: int) -> None:
    """Discard everything that is written to a descriptor from now on."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)


QUIET_SECONDS = 30.0
_LONGEST_LINE = 100

# Results go to stdout, messages to stderr.
data = new_console()
talk = new_console(stderr=True)


def say(message: str, style: str = "") -> None:
    """Print one line on stderr, on a terminal in a style such as ``green``."""
    talk.print(without_commands(message), soft_wrap=True, style=style or None)


def warn_of_level(sandbox: str) -> None:
    """Warn if programs will run without isolation, or with an untested one.

    Raises:
        SceError: this system does not support the level.
    """
    from securecoderl_edge.sandbox import choose_level

    level = choose_level(sandbox)
    if level == "off":
        say("--sandbox off: programs run without isolation, with all your permissions")
    elif level == "macos":
        say("the macOS sandbox is untested on a Mac; run sce doctor to test it")


def refuse_to_overwrite(out: Path, force: bool, *sources: str | Path) -> None:
    """Refuse to overwrite a file without ``--force``, and one of ``sources`` in any case, before any work is done.

    Raises:
        UsageError: it exists.
        SceError: it cannot be written.
    """
    if any(out.exists() and Path(source).exists() and out.samefile(source) for source in sources):
        raise UsageError(f"{out} is also an input file. Choose another output file.")
    if out.exists() and not force:
        raise UsageError(f"{out} exists. Overwrite it with --force, or choose another file.")
    if not os.access(next(folder for folder in out.absolute().parents if folder.exists()), os.W_OK):
        raise SceError(f"cannot write {out}: its folder is not writable")


def check_outputs(
    outputs: Mapping[str, str | None], sources: Iterable[str | Path | None], kept: Collection[str] = ()
) -> None:
    """Refuse, before any work is done, to write over inputs, or twice to one file.

    Args:
        outputs: files by their flags, which are replaced if they exist.
        kept: suffixes of files that are not replaced, whether they are among ``sources`` or not.

    Raises:
        UsageError: a file would be lost.
        SceError: one cannot be written.
    """
    inputs = [each for each in sources if each is not None]
    places: dict[str, str] = {}
    for flag, name in outputs.items():
        if name is None:
            continue
        place = os.path.realpath(name)
        if place in places:
            raise UsageError(f"{places[place]} and {flag} are the same file. Choose another output file.")
        places[place] = flag
        refuse_to_overwrite(Path(name), True, *(inputs if os.path.exists(name) else ()))
        if os.path.isfile(place) and os.path.splitext(place)[1].lower() in kept:
            raise UsageError(f"{flag} {name}: it exists, and is not a report by its name. Choose another file.")


class _Tracker:
    """Progress of one task, of which ``done`` units are finished; this one shows nothing."""

    def __init__(self, done: int = 0) -> None:
        self._done: float = done

    def update(self, advance: float = 1, note: str = "") -> None:
        """Report finished units; ``note`` is short, like ``reward 0.52 syntax 91 %``."""
        self.reach(self._done + advance, note)

    def reach(self, done: float, note: str = "", total: float | None = None) -> None:
        """As `update`, with all units that are finished; ``total`` is the new total."""
        self._done = done

    def show_stage(self, name: str, done: int, total: int, unit: str) -> None:
        """Show what is being done: ``done`` of ``total`` units of the stage ``name``; without a count if both are 0.

        A stage begins with ``done = 0``.
        """


@contextmanager
def track(
    total: int | None, description: str, *, done: int = 0, lines: bool = True, shown: bool = True
) -> Iterator[_Tracker]:
    """Show progress on stderr: on a terminal a bar with the time left, else one line per update.

    Stages are a second bar. Elsewhere one is named if nothing was printed for `QUIET_SECONDS`.

    Args:
        total: units of work; None if unknown.
        done: units that are finished at the start, of work that is resumed.
        lines: False shows only the bar; without a terminal, the caller prints its own lines.
        shown: False shows nothing.
    """
    if shown and talk.is_terminal and not talk.is_dumb_terminal:
        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=_bar_width()),
            MofNCompleteColumn(),
            TimeRemainingColumn(compact=True),
            TextColumn("left"),
            TextColumn("{task.fields[note]}", markup=False, table_column=Column(no_wrap=True, ratio=1)),
        )
        whole = Progress(*columns, console=talk, expand=True)
        stage = Progress(
            TextColumn("{task.description}", markup=False), BarColumn(bar_width=_bar_width()), console=talk
        )
        with Live(Group(whole, stage), console=talk, transient=True, refresh_per_second=10):
            yield _Bar(whole, stage, total, description, done)
    elif shown and lines and total is not None:
        yield _Lines(total, description, done)
    else:
        yield _Tracker()


def duration(seconds: float) -> str:
    """``1.2 s``, ``3 min 20 s``, ``2 h 05 min``."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def _bar_width() -> int:
    return 16 if talk.width >= 100 else 6


def _in_words(name: str, done: int, total: int, unit: str, seconds: float, most: int) -> str:
    """A stage after ``seconds`` in ``most`` characters at most: speed and unit are left out, then the name is cut."""
    count = f" {done:,}/{total:,}" if total else ""
    longer = f"{count} {unit}" if total else ""
    speed = f"{longer}, {done / seconds:.0f}/s" if done and seconds >= 1 else longer
    fitting = (name + each for each in (speed, longer, count) if len(name + each) <= most)
    return next(fitting, f"{name[: max(0, most - len(count) - 1)]}…{count}")


class _Bar(_Tracker):
    def __init__(self, progress: Progress, stages: Progress, total: int | None, description: str, done: int) -> None:
        super().__init__(done)
        self._progress, self._stages = progress, stages
        self._task = progress.add_task(escape_controls(description), total=total, completed=done, note="")
        self._stage: TaskID | None = None
        self._began = 0.0

    def reach(self, done: float, note: str = "", total: float | None = None) -> None:
        super().reach(done)
        self._progress.update(self._task, completed=done, note=escape_controls(note), total=total)

    def show_stage(self, name: str, done: int, total: int, unit: str) -> None:
        if self._stage is None:
            self._stage = self._stages.add_task("")
        if not done:
            self._began = time.monotonic()
            self._stages.reset(self._stage)
        most = talk.width - _bar_width() - 1
        text = _in_words(escape_controls(name), done, total, unit, time.monotonic() - self._began, most)
        # Without a count the bar pulses.
        self._stages.update(self._stage, description=text, completed=done, total=total or None)


class _Lines(_Tracker):
    def __init__(self, total: float, description: str, done: int) -> None:
        super().__init__(done)
        self._total, self._description = total, description
        self._first: tuple[float, float] | None = None
        self._began = self._printed = time.monotonic()

    def reach(self, done: float, note: str = "", total: float | None = None) -> None:
        super().reach(done)
        self._total = total or self._total
        self._print(self._left(), note)

    def show_stage(self, name: str, done: int, total: int, unit: str) -> None:
        now = time.monotonic()
        self._began = self._began if done else now
        if now - self._printed >= QUIET_SECONDS:
            self._print(_in_words(name, done, total, unit, now - self._began, _LONGEST_LINE))

    def _print(self, *parts: str) -> None:
        self._printed = time.monotonic()
        position = f"{self._description} {self._done:.0f}/{self._total:.0f}"
        say("  ".join(part for part in (position, *parts) if part))

    def _left(self) -> str:
        # The first update includes loading and, in a resumed run, all earlier updates: it gives no speed.
        now = time.monotonic()
        if self._first is None:
            self._first = (now, self._done)
        since, already = self._first
        if not already < self._done < self._total:
            return ""
        left = (now - since) / (self._done - already) * (self._total - self._done)
        return f"{duration(left)} left"
