"""The page in a real browser: what is shown, by whom it can be changed, and what the keyboard does."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator

import chromium
import pytest

pytest.importorskip("uvicorn", reason="needs the serve extra")

from fake_runtime import BROKEN, RIGHT, UNSAFE, WRONG
from places import ROOT
from served import KEY, EchoRuntime, Served, serving

from securecoderl_edge.scoring.scorer import Scorer

PAGE = ROOT / "securecoderl_edge" / "serving" / "page"
HOSTILE = "print('</code><img src=x onerror=\"document.title=1\"><script>document.title=2</script>')\n"
PROGRAMS = (WRONG, RIGHT, BROKEN, UNSAFE, HOSTILE)
needs_chromium = pytest.mark.skipif(chromium.PROGRAM is None, reason="needs Chromium (Debian: apt install chromium)")


@pytest.fixture
def tab() -> Iterator[chromium.Page]:
    with chromium.browser() as page:
        yield page


def open_page(tab: chromium.Page, served: Served, n: int) -> None:
    tab.open(f"http://127.0.0.1:{served.port}/")
    tab.run(f"document.getElementById('n').value = {n}; document.querySelector('.test .input').value = '3\\n'; "
            "document.querySelector('.test .output').value = '6\\n'; 0")  # fmt: skip


def programs(*texts: str) -> EchoRuntime:
    return EchoRuntime(lambda task: texts[task.sample % len(texts)])


@needs_chromium
def test_candidates_are_shown_with_verdicts_findings_colors_and_speed(tab: chromium.Page, scorer: Scorer) -> None:
    with serving(scorer, programs(*PROGRAMS)) as served:
        open_page(tab, served, 5)
        tab.wait_for("document.getElementById('model').textContent === 'echo'")
        tab.press("Enter", ctrl=True)
        tab.wait_for("document.body.dataset.state === 'done'")
        cards = tab.run("""[...document.querySelectorAll('.program')].map((card) => ({
            kind: card.className, title: card.querySelector('h2').textContent,
            tests: [...card.querySelectorAll('.verdicts li')].map((each) => each.textContent),
            text: [...card.querySelectorAll('.line')].map((each) => each.textContent).join('\\n') + '\\n',
            finding: card.querySelector('.line.found + .finding')?.textContent,
        }))""")
        assert [card["kind"].split()[1] for card in cards] == ["failed", "accepted", "failed", "failed", "failed"]
        assert [card["text"] for card in cards] == list(PROGRAMS)
        assert [card["tests"] for card in cards] == [
            [f"test 1: {word}"] for word in ("wrong", "pass", "not run", "pass", "wrong")
        ]
        assert cards[1]["title"] == "2: accepted: passed 1/1 tests, Bandit: no findings"
        assert cards[3]["finding"] == "▲ medium security finding: Bandit B307 (CWE-78)"
        names = "[...document.querySelectorAll('.program .builtin')].slice(0, 3).map((each) => each.textContent)"
        assert tab.run(names) == ["print", "int", "input"]
        status = tab.run("document.getElementById('status').textContent")
        assert re.fullmatch(r"1 of 5 accepted; \d+ tokens in [\d.]+ s, tests included: \d+ tokens per second", status)
        # Markup in a program is text; nothing was loaded from elsewhere, and no script broke.
        assert tab.run("document.querySelectorAll('img, .program script').length") == 0
        assert tab.run("document.title") == "sce: tested and scanned programs"
        assert tab.complaints() == []
        assert {url.split("/")[2] for url in tab.requests() if not url.startswith("data:")} == {
            f"127.0.0.1:{served.port}"
        }


@needs_chromium
def test_the_keyboard_stops_a_request_and_goes_through_programs(tab: chromium.Page, scorer: Scorer) -> None:
    runtime, pause = programs("x = 1\n" * 2000), threading.Event()
    runtime.before_step = lambda: pause.wait(0.01) and None
    with serving(scorer, runtime) as served:
        open_page(tab, served, 3)
        tab.run("document.getElementById('max_tokens').value = 1000; 0")
        tab.press("Enter", ctrl=True)
        tab.wait_for("document.querySelectorAll('.program').length === 3")
        assert tab.run("document.getElementById('stop').disabled") is False
        tab.press("Escape")
        tab.wait_for("document.body.dataset.state === 'done'")
        served.wait_for(lambda: served.server.engine.busy_rows == 0)
        assert tab.run("document.getElementById('status').textContent") == "stopped"
        assert tab.run("document.querySelector('h2').textContent").endswith("unfinished and not checked")
        place = "[...document.querySelectorAll('.program')].indexOf(document.activeElement)"
        places = []
        for key in ("ArrowDown", "ArrowDown", "ArrowDown", "ArrowDown", "ArrowUp"):
            tab.press(key, alt=True)
            places.append(tab.run(place))
        assert places == [0, 1, 2, 2, 1]


@needs_chromium
def test_errors_and_a_missing_key_are_said(tab: chromium.Page, scorer: Scorer) -> None:
    with serving(scorer, programs(RIGHT), key=KEY) as served:
        open_page(tab, served, 1)
        tab.wait_for("document.getElementById('model').textContent.includes('needs a key')")
        tab.press("Enter", ctrl=True)
        tab.wait_for("document.getElementById('status').className === 'bad'")
        assert "missing or wrong key" in tab.run("document.getElementById('status').textContent")
        tab.run(f"document.getElementById('key').value = '{KEY}'; document.getElementById('n').value = 99; 0")
        tab.press("Enter", ctrl=True)
        tab.wait_for("document.getElementById('status').textContent.includes('n must be')")
        tab.run("document.getElementById('n').value = 1; 0")
        tab.press("Enter", ctrl=True)
        tab.wait_for("document.querySelectorAll('.accepted').length === 1")


@needs_chromium
def test_the_policy_stops_what_a_page_of_ours_would_never_do(tab: chromium.Page, scorer: Scorer) -> None:
    with serving(scorer, programs(RIGHT)) as served:
        open_page(tab, served, 1)
        tab.run("document.body.insertAdjacentHTML('beforeend', '<img src=/health onerror=document.title=1>'); 0")
        blocked = tab.run("fetch('https://example.com/').then(() => 'sent', () => 'blocked')")
        assert blocked == "blocked"
        assert any("Content Security Policy" in line for line in tab.complaints())
        assert tab.run("document.title") == "sce: tested and scanned programs"


def test_the_page_has_no_markup_from_text_and_nothing_from_elsewhere() -> None:
    script = (PAGE / "page.js").read_text(encoding="utf-8")
    for forbidden in (
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "new Function",
        "setAttribute",
    ):
        assert forbidden not in script.replace("eval exec", "")
    for name in ("index.html", "page.css", "page.js"):
        text = (PAGE / name).read_text(encoding="utf-8")
        assert "http:" not in text
        assert "https:" not in text
    page = (PAGE / "index.html").read_text(encoding="utf-8")
    assert re.findall(r'(?:src|href)="([^"]*)"', page) == ["data:,", "/page.css", "/page.js"]
    assert not re.search(r"<style|style=|\son\w+=|<script>", page)
