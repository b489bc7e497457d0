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

from securecoderl_edge.prompts.chat import ChatTemplate
from securecoderl_edge.prompts.styles import PromptFormat
from securecoderl_edge.runtimes.protocol import DecodingTask
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
def test_the_button_is_in_view_in_a_small_window(tab: chromium.Page, scorer: Scorer) -> None:
    with serving(scorer, programs(RIGHT)) as served:
        tab.resize(1280, 720)
        tab.open(f"http://127.0.0.1:{served.port}/")
        for mode in ("chat", "task"):
            tab.run(f"document.querySelector('input[value={mode}]').click(); 0")
            for name in ("generate", "stop", "prompt"):
                assert tab.run(f"document.getElementById('{name}').getBoundingClientRect().bottom") < 720


@needs_chromium
def test_a_program_shows_no_fence_and_can_be_copied_once_it_is_checked(tab: chromium.Page, scorer: Scorer) -> None:
    runtime = programs(f"Here it is:\n```python\n{RIGHT}```\n", f"```python\n{RIGHT}```\n" + "x" * 60)
    may_end = threading.Event()
    runtime.before_step = lambda: None if len(runtime.batches[0].tasks) > 1 else may_end.wait(30) and None
    states = "[...document.querySelectorAll('.program h2')].map((each) => each.textContent)"
    copies = "[...document.querySelectorAll('.program .copy')].map((each) => each.hidden)"
    with serving(scorer, runtime) as served:
        open_page(tab, served, 2)
        tab.press("Enter", ctrl=True)
        tab.wait_for(f"{states}.includes('1: being checked')")
        assert tab.run(states) == ["1: being checked", "2: being written"]
        assert tab.run(copies) == [True, True]
        code = tab.run("document.querySelector('.program code').innerText")
        assert code.strip() == RIGHT.strip()
        may_end.set()
        tab.wait_for("document.body.dataset.state === 'done'")
        assert tab.run(copies) == [False, False]


@needs_chromium
def test_assertions_are_tests_of_a_function(tab: chromium.Page, scorer: Scorer) -> None:
    half = "def half(n):\n    return n // 2\n"
    with serving(scorer, programs(half)) as served:
        open_page(tab, served, 1)
        tab.run("document.getElementById('assertions').value = 'half(4) == 2\\n\\nhalf(5) == 3'; 0")
        tab.press("Enter", ctrl=True)
        tab.wait_for("document.body.dataset.state === 'done'")
        found = tab.run("[...document.querySelectorAll('.verdicts li')].map((each) => each.textContent)")
        assert found == ["test 1: pass", "test 2: wrong"]


CONVERSATION = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"


@needs_chromium
def test_a_chat_goes_on_with_verdicts_below_its_blocks(tab: chromium.Page, scorer: Scorer) -> None:
    answer = f"It is <b>so</b>:\n\n```python\n{UNSAFE}```\nor\n```sh\nls\n```\nBye."
    prompts: list[str] = []

    def write(task: DecodingTask) -> str:
        prompts.append(str(task.prompt))
        return answer if len(prompts) == 1 else "Just words."

    format = PromptFormat("chat", ChatTemplate(CONVERSATION))
    with serving(scorer, EchoRuntime(write), format=format, max_tokens=100) as served:
        tab.open(f"http://127.0.0.1:{served.port}/")
        tab.run("document.querySelector('input[value=chat]').click(); 0")
        for number, message in enumerate(("Why?", "And then?"), 1):
            tab.run(f"document.getElementById('prompt').value = '{message}'; 0")
            tab.press("Enter", ctrl=True)
            tab.wait_for(f"document.querySelectorAll('.answer[data-state=checked]').length === {number}")
            tab.wait_for("!document.getElementById('generate').disabled")
        titles = tab.run("[...document.querySelectorAll('.answer h2')].map((each) => each.textContent)")
        assert titles == ["failed: not tested, parses, Bandit: B307 in line 1", "answer"]
        checks = tab.run("[...document.querySelectorAll('.check')].map((each) => each.textContent)")
        assert checks == ["python: not tested, parses, Bandit: B307 in line 1", "sh: not checked"]
        words = tab.run(
            "[...document.querySelectorAll('.answer .text > p:not(.check)')].map((each) => each.textContent)"
        )
        assert words == ["It is <b>so</b>:", "or", "Bye.", "Just words."]
        assert tab.run("document.querySelectorAll('.answer b').length") == 0
        assert tab.run("document.querySelector('.answer .finding').textContent").startswith("▲ medium")
        assert prompts == ["[user]Why?", f"[user]Why?[assistant]{answer}[user]And then?"]
        tab.run("document.getElementById('forget').click(); 0")
        assert tab.run("document.querySelectorAll('.answer, .message').length") == 0
        assert tab.complaints() == []


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
