"""Records terminal sessions: runs their commands and renders the output as docs/gallery/NAME.svg, dark and light.

    python tests/docs_session.py [NAME...]       score: a few seconds; generate: pull qwen-1.5b first

The commands run in an empty folder, one after the other. Their output is shown in full and unchanged, with its colors;
what a terminal would overwrite, such as a bar, is not shown.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from io import StringIO
from pathlib import Path

from places import ROOT
from rich.console import Console
from rich.terminal_theme import DEFAULT_TERMINAL_THEME, MONOKAI, TerminalTheme
from rich.text import Text

GALLERY = ROOT / "docs" / "gallery"
WIDTH = 80
# The title of each session, and its commands. Each part is followed by an empty line.
SESSIONS = {
    "score": (
        "sce score on a program with eval, then on the same program with int",
        ("echo 'print(2 * eval(input()))' > double.py", "sce score double.py --input 21 --expect 42"),
        ("sed -i 's/eval/int/' double.py", "sce score double.py --input 21 --expect 42"),
    ),
    "generate": (
        "sce generate: a program that calls eval is rejected, the next one passes",
        (
            "sce generate -m qwen-1.5b --repair --assert \"calculate('1 + 2') == 3\" \\\n"
            "    \"Write a function calculate(text) for sums such as '1 + 2'.\"",
        ),
    ),
}
# Rich's own format loads a font from the network, which a page of ours must not.
FONTLESS = """<svg class="rich-terminal" width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img" \
xmlns="http://www.w3.org/2000/svg">
<title>Terminal session: {{title}}</title>
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; \
font-size: {char_height}px; line-height: {line_height}px; font-variant-east-asian: full-width; }}
.{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: sans-serif; }}
/* styles */
{styles}
/* end */
/* light */
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


_LIGHT = "@media (prefers-color-scheme: light) {{ .rich-terminal > rect {{ fill: {ground}; }} {styles} }}"


def record(folder: Path, name: str) -> str:
    """Run the session in ``folder``, and render it as SVG.

    Raises:
        CalledProcessError: a command failed.
    """
    title, *parts = SESSIONS[name]
    console = Console(record=True, width=WIDTH, file=StringIO(), force_terminal=True, color_system="truecolor")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    as_terminal = {"COLUMNS": str(WIDTH), "FORCE_COLOR": "1", "TTY_INTERACTIVE": "0"}
    environment = {**os.environ, **as_terminal, "PATH": path}
    for number, commands in enumerate(parts):
        if number:
            console.print()
        for command in commands:
            done = subprocess.run(
                ["bash", "-c", command], cwd=folder, env=environment, text=True, check=True,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
            )  # fmt: skip
            console.print(Text.assemble(("$ ", "bold green"), (command, "bold")))
            for line in done.stdout.splitlines():
                console.print(Text.from_ansi(line), overflow="fold")
    styles = re.search(r"/\* styles \*/(.*)/\* end \*/", _svg(console, DEFAULT_TERMINAL_THEME), re.DOTALL)
    assert styles is not None
    ground = "#{:02x}{:02x}{:02x}".format(*DEFAULT_TERMINAL_THEME.background_color)
    light = _LIGHT.format(ground=ground, styles=styles[1].strip())
    return _svg(console, MONOKAI).replace("/* light */", light).replace("{title}", title)


def write(name: str) -> None:
    """Record a session, and write its file."""
    with tempfile.TemporaryDirectory() as folder:
        svg = record(Path(folder), name)
    (GALLERY / f"{name}.svg").write_text(svg, encoding="utf-8")


def _svg(console: Console, theme: TerminalTheme) -> str:
    # A fixed id, so that the same session gives the same file.
    return console.export_svg(title="sce", theme=theme, clear=False, code_format=FONTLESS, unique_id="session")


def main() -> None:
    """Parse the command line, run, and write the files."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(SESSIONS)}; by default all")
    for name in parser.parse_args().names or SESSIONS:
        write(name)


if __name__ == "__main__":
    main()
