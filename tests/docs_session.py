"""Records a terminal session: runs its commands and renders their output as docs/session.svg.

    python tests/docs_session.py [--out FILE]        a few seconds

The commands run in an empty folder, one after the other. Their output is shown in full and unchanged.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

ROOT = Path(__file__).resolve().parent.parent
WIDTH = 72
# Each part is followed by an empty line. An unsafe program that passes its test, then its safe version.
SESSION = (
    ("echo 'print(2 * eval(input()))' > double.py", "sce score double.py --input 21 --expect 42"),
    ("sed -i 's/eval/int/' double.py", "sce score double.py --input 21 --expect 42"),
)
# Rich's own format loads a font from the network, which a page of ours must not.
FONTLESS = """<svg class="rich-terminal" width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img" \
xmlns="http://www.w3.org/2000/svg">
<title>Terminal session: sce score on a program with eval, then on the same program with int</title>
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


def record(folder: Path) -> str:
    """Run the session in ``folder``, and render it as SVG.

    Raises:
        CalledProcessError: a command failed.
    """
    console = Console(record=True, width=WIDTH, file=StringIO(), force_terminal=True, color_system="truecolor")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "COLUMNS": str(WIDTH), "PATH": path}
    for part, commands in enumerate(SESSION):
        if part:
            console.print()
        for command in commands:
            done = subprocess.run(
                ["bash", "-c", command], cwd=folder, env=environment, text=True, check=True,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
            )  # fmt: skip
            console.print(Text.assemble(("$ ", "bold green"), (command, "bold")))
            for line in done.stdout.splitlines():
                console.print(Text(line), overflow="fold")
    # A fixed id, so that the same session gives the same file.
    return console.export_svg(title="sce", theme=MONOKAI, code_format=FONTLESS, unique_id="session")


def main() -> None:
    """Parse the command line, run, and write the file."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "session.svg")
    out: Path = parser.parse_args().out
    with tempfile.TemporaryDirectory() as folder:
        svg = record(Path(folder))
    out.write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    main()
