"""Runs the commands of README.md and docs/, and compares what they print with what the page says they print.

    python tests/docs_blocks.py [--slow] [PAGE...]   what `make docs-test` calls; by default all pages

A block that begins with ``$ `` is a session: each such line is a command (a line that ends in a backslash, or opens a
quote or a here-document, goes on), what follows is its output, standard error included. The blocks of a page run one
after the other, in an empty folder of the page's own. A line of three dots stands for any lines,
three dots in a line for anything in it. A comment before a block changes what is done with it:

    <!-- run: before COMMAND -->     something to do first that the page does not show
    <!-- run: no, REASON -->         this block is not run; it is counted, and named at the end with the reason
    <!-- run: needs PROGRAM -->      without this program it is not run, counted, and named at the end
    <!-- run: other numbers -->      numbers may differ: times, and what a training run of this machine ends in
    <!-- run: another program -->    of an output only the first line is compared: training elsewhere ends in others
    <!-- run: any output -->         it has to succeed, whatever it prints
    <!-- run: slow, REASON -->       it takes many minutes: run with --slow alone, else named at the end with the reason
    <!-- run: in a clone -->         in a fresh clone of the repository, not in the page's folder
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROMPT = "$ "
_BLOCK = re.compile(
    r"(?P<before>(?:^<!-- run: .*? -->\n+)*)^```(?P<language>[a-z]*)[^\n]*\n(?P<body>.*?)^```$", re.M | re.S
)
_DIRECTIVE = re.compile(r"^<!-- run: (.*?) -->", re.M | re.S)
_NUMBER = re.compile(r"[-+±]?\d[\d,.]*")
_HERE_DOCUMENT = re.compile(r"<<-?\s*'?(\w+)'?")


@dataclass(frozen=True)
class Command:
    """One command of a page and what it prints there."""

    text: str
    output: str


@dataclass
class Block:
    """A session. ``skipped``: why it is not run; empty if it is. ``slow``: why it is run when asked for alone."""

    line: int
    commands: list[Command]
    before: list[str] = field(default_factory=list)
    skipped: str = ""
    slow: str = ""
    any_output: bool = False
    other_numbers: bool = False
    another_program: bool = False
    in_a_clone: bool = False


def read_blocks(text: str) -> list[Block]:
    """The sessions of a page, in order."""
    found = []
    for match in _BLOCK.finditer(text):
        if not match["body"].startswith(PROMPT):
            continue
        block = Block(text.count("\n", 0, match.start("body")), read_commands(match["body"]))
        for directive in _DIRECTIVE.findall(match["before"]):
            kind, _, rest = directive.partition(" ")
            if kind == "before":
                block.before.append(rest)
            elif kind == "no,":
                block.skipped = rest
            elif kind == "needs":
                block.skipped = "" if shutil.which(rest) else f"{rest} is not installed"
            elif kind == "slow,":
                block.slow = rest
            elif directive == "any output":
                block.any_output = True
            elif directive == "other numbers":
                block.other_numbers = True
            elif directive == "another program":
                block.another_program = True
            elif directive == "in a clone":
                block.in_a_clone = True
            else:
                raise ValueError(f"line {block.line}: no such directive: {directive}")
        found.append(block)
    return found


def read_commands(body: str) -> list[Command]:
    """Commands and outputs of one session."""
    commands: list[Command] = []
    lines = body.splitlines()
    while lines:
        text = [lines.pop(0).removeprefix(PROMPT)]
        while lines and _goes_on("\n".join(text)):
            text.append(lines.pop(0))
        output = []
        while lines and not lines[0].startswith(PROMPT):
            output.append(lines.pop(0))
        commands.append(Command("\n".join(text), "\n".join(output)))
    return commands


def _goes_on(text: str) -> bool:
    here = _HERE_DOCUMENT.search(text)
    if here:
        return text.splitlines()[-1].strip() != here[1] or "\n" not in text
    return text.endswith("\\") or text.count("'") % 2 == 1


def matches(found: str, expected: str, other_numbers: bool = False) -> bool:
    """Whether a program printed what a page says, white space aside; ``...`` is anything in a line, alone any lines."""
    said, printed = (_plain(text, other_numbers) for text in (expected, found))
    pattern = "".join(
        r"(?:.*\n)*?" if line == "..." else re.escape(line).replace(r"\.\.\.", ".*") + r"\n" for line in said
    )
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in printed)) is not None


def _plain(text: str, other_numbers: bool) -> list[str]:
    """Lines without the widths of columns and, if asked for, without the numbers that set them."""
    lines = (_NUMBER.sub("0", line) if other_numbers else line for line in text.splitlines())
    plain = (re.sub(r"\s+", " ", re.sub(r"[─━]+", "─", line)).strip() for line in lines)
    return [line for line in plain if line]


def run_block(block: Block, folder: Path, environment: dict[str, str]) -> str:
    """Run a session; what went wrong, or nothing."""
    where = folder
    if block.in_a_clone:
        where = folder / f"clone-{block.line}"
        subprocess.run(["git", "clone", "-q", str(ROOT), str(where)], check=True)
    for text in block.before:
        done = _run(text, where, environment)
        if done.returncode:
            return f"before it: {text}\n{done.stdout}"
    for command in block.commands:
        done = _run(command.text, where, environment)
        if done.returncode and not command.output:
            return f"{PROMPT}{command.text}\nexit status {done.returncode}:\n{done.stdout}"
        expected = command.output.partition("\n")[0] + "\n..." if block.another_program else command.output
        if not block.any_output and not matches(done.stdout, expected, block.other_numbers):
            return f"{PROMPT}{command.text}\nsaid:\n{done.stdout}\nbut the page says:\n{command.output}"
    return ""


def _run(text: str, where: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", text], cwd=where, env=environment, text=True, errors="replace",
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, timeout=7200, check=False,
    )  # fmt: skip


def run_page(page: Path, slow_too: bool = False) -> tuple[int, list[str], list[str]]:
    """Run a page's sessions: how many ran, what was left out, what went wrong."""
    ran, skipped, failures = 0, [], []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        environment = {
            **os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "COLUMNS": "100",
            "REPOSITORY": str(ROOT), "HOME": str(folder), "XDG_CACHE_HOME": "", "XDG_CONFIG_HOME": "",
        }  # fmt: skip
        for block in read_blocks(page.read_text(encoding="utf-8")):
            place = f"{page.name}:{block.line}"
            reason = block.skipped or ("" if slow_too else block.slow)
            if reason:
                skipped.append(f"{place}: {reason}")
                continue
            started = time.monotonic()
            failure = run_block(block, folder, environment)
            ran += 1
            sys.stderr.write(f"{place}: {'FAILED' if failure else 'ok'}, {time.monotonic() - started:.0f} s\n")
            if failure:
                failures.append(f"{place}\n{failure}")
    return ran, skipped, failures


def main() -> None:
    """Parse the command line, run, and say how it went."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("pages", nargs="*", type=Path, help="by default README.md and all of docs/")
    parser.add_argument("--slow", action="store_true", help="what takes many minutes too")
    arguments = parser.parse_args()
    pages = arguments.pages or [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    ran, skipped, failures = 0, [], []
    for page in pages:
        counts = run_page(page, arguments.slow)
        ran += counts[0]
        skipped += counts[1]
        failures += counts[2]
    for line in skipped:
        sys.stdout.write(f"not run: {line}\n")
    for text in failures:
        sys.stdout.write(f"\n{text}\n")
    sys.stdout.write(f"{ran} blocks ran, {len(failures)} failed, {len(skipped)} were not run\n")
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
