"""Writes docs/serve-page.png: the page of `sce serve` in Chromium, with programs written by hand.

python tests/page_screenshot.py [FILE]
"""

from __future__ import annotations

import sys
from pathlib import Path

import chromium
from places import ROOT
from served import EchoRuntime, serving

from securecoderl_edge.scoring.scorer import Scorer

PROGRAMS = (
    "# Sum of the values in one line\nvalues = input().split()\nprint(sum(eval(value) for value in values))\n",
    "numbers = list(map(int, input().split()))\ntotal = 0\nfor number in numbers:\n    total += number\nprint(total)\n",
    "n = int(input())\nprint(n)\n",
)


def main() -> None:
    """Start a server, ask it, and take the picture."""
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "serve-page.png"
    runtime = EchoRuntime(lambda task: PROGRAMS[task.sample])
    with Scorer(workers=1) as scorer, serving(scorer, runtime) as served, chromium.browser() as tab:
        tab.resize(1200, 960)
        tab.open(f"http://127.0.0.1:{served.port}/")
        tab.run("document.getElementById('n').value = 3; document.getElementById('add-test').click(); 0")
        for name, text in (("input", "7\\n"), ("output", "7\\n")):
            tab.run(f"[...document.querySelectorAll('.test .{name}')].at(-1).value = '{text}'; 0")
        tab.press("Enter", ctrl=True)
        tab.wait_for("document.body.dataset.state === 'done'")
        tab.press("ArrowDown", alt=True)
        tab.run("scrollTo(0, 0)")
        tab.screenshot(target)
    sys.stdout.write(f"{target}\n")


if __name__ == "__main__":
    main()
