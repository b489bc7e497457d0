"""Writes docs/serve-page.png: the page of a running `sce serve` in Chromium, with answers of its model.

python tests/page_screenshot.py URL [FILE]
"""

from __future__ import annotations

import sys
from pathlib import Path

import chromium
from places import ROOT

TASK = "Read a line of integers. Print their sum."
MESSAGE = "Write a Python function of two lines that evaluates a formula with eval. Show only code."
SETTINGS = {"temperature": "0.7", "seed": "1", "max_tokens": "256", "n": "3"}


def main() -> None:
    """Ask in both panes, and take the picture."""
    url, *rest = sys.argv[1:]
    target = Path(rest[0]) if rest else ROOT / "docs" / "serve-page.png"
    with chromium.browser() as tab:
        tab.resize(1200, 800)
        tab.open(url)
        tab.wait_for("document.getElementById('model').textContent !== 'no model yet'")
        for name, value in SETTINGS.items():
            tab.run(f"document.getElementById('{name}').value = '{value}'; 0")
        for pane, text in (("task", TASK), ("chat", MESSAGE)):
            tab.run(f"{{ const prompt = document.getElementById('{pane}-prompt'); prompt.value = {text!r}; "
                    "prompt.focus(); }")  # fmt: skip
            tab.press("Enter", ctrl=True)
        for pane in ("task", "chat"):
            while tab.run(f"document.getElementById('{pane}').dataset.state") in ("generating", "checking"):
                tab.run("new Promise((done) => setTimeout(done, 1000))")
        tab.run("document.activeElement.blur(); document.querySelector('#chat .results').scrollTop = 0")
        tab.screenshot(target)
    sys.stdout.write(f"{target}\n")


if __name__ == "__main__":
    main()
