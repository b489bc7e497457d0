"""Makes docs/gallery from real runs on Qwen2.5-Coder: the serve page, the report, the plot of `sce bench`, terminals.

    sce models pull qwen-0.5b && sce models pull qwen-1.5b
    python tests/docs_gallery.py RUN       RUN: of `sce train -m qwen-0.5b`, for the report; ten minutes, needs Chromium

Terminals are made by `docs_session`. Pages are shown in the dark and in the light scheme.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import sleep

import chromium
import docs_session

GALLERY = docs_session.GALLERY
SCE = (sys.executable, "-m", "securecoderl_edge")
MODELS = ("qwen-0.5b", "qwen-0.5b-coder")
BENCH = ("--problems", "mbpp:test", "--limit", "20", "--temperature", "0")
SCHEMES = ("dark", "light")
PORT = 8190
TASK = "Read a line of integers. Print their sum."
MESSAGE = "Write a Python function of two lines that evaluates a formula with eval. Show only code."
SETTINGS = {"temperature": "0.7", "seed": "1", "max_tokens": "256", "n": "3"}
SIZE = (1200, 800)


def serve_page(tab: chromium.Page) -> None:
    """Ask in both panes of the page."""
    with _server() as url:
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
        _shoot(tab, "serve")


def report(tab: chromium.Page, run: str) -> None:
    """The learning curves of a training."""
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "report.html"
        subprocess.run([*SCE, "report", run, "--out", str(page)], check=True)
        tab.open(page.as_uri())
        tab.run("[...document.querySelectorAll('h2')].find((each) => each.textContent === 'Learning curves')"
                ".scrollIntoView()")  # fmt: skip
        _shoot(tab, "report")


def bench_plot() -> None:
    """The model and our policy on it, before and after."""
    subprocess.run([*SCE, "bench", *MODELS, *BENCH, "--plot", str(GALLERY / "bench.svg")], check=True)


@contextmanager
def _server() -> Iterator[str]:
    url = f"http://127.0.0.1:{PORT}"
    process = subprocess.Popen([*SCE, "serve", "-m", MODELS[0], "--port", str(PORT)])
    try:
        for _ in range(300):
            with suppress(OSError), urllib.request.urlopen(f"{url}/health"):
                break
            sleep(0.2)
        yield url
    finally:
        process.terminate()
        process.wait()


def _shoot(tab: chromium.Page, name: str) -> None:
    for scheme in SCHEMES:
        tab.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        tab.screenshot(GALLERY / f"{name}-{scheme}.png")


def main() -> None:
    """Make all of them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("run")
    run = parser.parse_args().run
    GALLERY.mkdir(exist_ok=True)
    for name in docs_session.SESSIONS:
        docs_session.write(name)
    bench_plot()
    with chromium.browser() as tab:
        tab.resize(*SIZE)
        report(tab, run)
        serve_page(tab)


if __name__ == "__main__":
    main()
