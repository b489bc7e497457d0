"""Records the terminal session of README.md: runs its commands and draws what they print, as docs/session.svg.

    python tests/docs_session.py [--out FILE]        about seven minutes on two cores, most of them training

The commands run in an empty folder, one after the other, each to its end. Long outputs are shortened where
the session says so, by lines that are left out, never changed.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

ROOT = Path(__file__).resolve().parent.parent
WIDTH = 108
# A command, and what of its output is shown: from the first line that contains a text, so many lines.
SESSION = (
    ("sce train", (("training", 2), (": kept", 4))),
    ("sce export", (("bits per weight", 2),)),
    ("sce bench", (("Syn. %", 10), (" minus ", 6))),
    (
        "sce generate -n 8 --test 'in=3 8 5 2 9\\n,out=68\\n' \\\n"
        '    "Read a line of integers. Print the sum of the even numbers, each squared."',
        (("", 20),),
    ),
)
# Rich's own page fetches a font from the network; a README must not.
FONTLESS = """<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; \
font-size: {char_height}px; line-height: {line_height}px; font-variant-east-asian: full-width; }}
.{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: sans-serif; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">\
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" /></clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix" xml:space="preserve">
{matrix}
</g>
</g>
</svg>
"""


def shorten(lines: list[str], shown: Iterable[tuple[str, int]]) -> list[str]:
    """What is shown of an output, with three dots where lines are left out.

    Raises:
        ValueError: no line contains a text that something shown begins with.
    """
    kept, end = [], 0
    for text, count in shown:
        start = next((number for number in range(end, len(lines)) if text in lines[number]), None)
        if start is None:
            raise ValueError(f"no line with {text!r} in:\n" + "\n".join(lines))
        kept += ["..."] * (start > end) + lines[start : start + count]
        end = start + count
    return kept + ["..."] * (end < len(lines))


def record(folder: Path) -> Console:
    """Run the session in ``folder``.

    Raises:
        CalledProcessError: a command failed.
    """
    console = Console(record=True, width=WIDTH, file=StringIO(), force_terminal=True, color_system="truecolor")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "COLUMNS": str(WIDTH), "PYTHONUNBUFFERED": "1", "PATH": path}
    for command, shown in SESSION:
        sys.stderr.write(f"$ {command}\n")
        done = subprocess.run(
            ["bash", "-c", command], cwd=folder, env=environment, text=True, check=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        console.print(Text("$ ", "bold green") + Text(command, "bold"))
        for line in shorten(done.stdout.splitlines(), shown):
            console.print(Text(line), overflow="fold")
        console.print()
    return console


def main() -> None:
    """Parse the command line, run, and write the picture."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "session.svg")
    out: Path = parser.parse_args().out
    with tempfile.TemporaryDirectory() as folder:
        console = record(Path(folder))
    # A fixed id, so that the same session is the same file.
    out.write_text(console.export_svg(title="sce", theme=MONOKAI, code_format=FONTLESS, unique_id="session"))


if __name__ == "__main__":
    main()
