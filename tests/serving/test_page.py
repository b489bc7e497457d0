"""The page in a real browser: what is shown, by whom it can be changed, and what the keyboard does."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

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
CONVERSATION = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
TALKS = PromptFormat("chat", ChatTemplate(CONVERSATION))
needs_chromium = pytest.mark.skipif(chromium.PROGRAM is None, reason="needs Chromium (Debian: apt install chromium)")

CARDS = """[...document.querySelectorAll('#PANE .card')].map((card) => ({
    state: card.dataset.state, title: card.querySelector('h3').textContent,
    verdict: card.querySelector('.verdict').textContent,
    tests: [...card.querySelectorAll('.verdicts li')].map((each) => each.textContent),
    text: [...card.querySelectorAll('.line')].map((each) => each.textContent).join('\\n') + '\\n',
    finding: card.querySelector('.line.found + .finding')?.textContent,
    copies: [...card.querySelectorAll('.copy')].filter((each) => !each.hidden).map((each) => each.textContent),
}))"""
# What a pane and its cards come to show, one after the other.
RECORD = """window.seen = {states: [], status: [], cards: []};
const pane = document.getElementById('PANE'), note = (list, value) => list.at(-1) === value || list.push(value);
new MutationObserver(() => {
    note(seen.states, pane.dataset.state);
    note(seen.status, pane.querySelector('.status').textContent);
    note(seen.cards, [...pane.querySelectorAll('.card')].map((card) =>
        card.dataset.state + ' ' + card.querySelector('.verdict').textContent).join('; '));
}).observe(pane, {subtree: true, childList: true, characterData: true, attributes: true}); 0"""


@pytest.fixture
def tab() -> Iterator[chromium.Page]:
    with chromium.browser() as page:
        yield page


def open_page(tab: chromium.Page, served: Served, n: int = 1) -> None:
    tab.open(f"http://127.0.0.1:{served.port}/")
    tab.wait_for("document.getElementById('model').textContent !== 'no model yet'")
    tab.run(f"document.getElementById('n').value = {n}; 0")
    change(tab, ".test .input", "3\\n")
    change(tab, ".test .output", "6\\n")


def change(tab: chromium.Page, selector: str, value: str) -> None:
    """Change a field as a user does."""
    tab.run(f"{{ const field = document.querySelector({selector!r}); field.value = '{value}'; "
            "field.dispatchEvent(new Event('input', {bubbles: true})); }")  # fmt: skip


def ask(tab: chromium.Page, pane: str, message: str | None = None) -> None:
    """Press Ctrl+Enter in a pane."""
    if message is not None:
        change(tab, f"#{pane}-prompt", message)
    tab.run(f"document.getElementById('{pane}-prompt').focus(); 0")
    tab.press("Enter", ctrl=True)


def wait(tab: chromium.Page, pane: str, state: str = "done") -> None:
    tab.wait_for(f"document.getElementById('{pane}').dataset.state === '{state}'")


def status(tab: chromium.Page, pane: str) -> str:
    return str(tab.run(f"document.querySelector('#{pane} .status').textContent"))


def cards(tab: chromium.Page, pane: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = tab.run(CARDS.replace("PANE", pane))
    return found


def programs(*texts: str) -> EchoRuntime:
    return EchoRuntime(lambda task: texts[task.sample % len(texts)])


def talking(scorer: Scorer, write: Callable[[DecodingTask], str], **more: Any) -> AbstractContextManager[Served]:
    """A server whose model has a chat template."""
    return serving(scorer, EchoRuntime(write), format=TALKS, max_tokens=200, **more)


@needs_chromium
def test_programs_are_shown_with_verdicts_findings_colors_and_tokens(tab: chromium.Page, scorer: Scorer) -> None:
    with serving(scorer, programs(*PROGRAMS)) as served:
        open_page(tab, served, 5)
        assert tab.run("document.getElementById('model').textContent") == "echo"
        ask(tab, "task")
        wait(tab, "task")
        found = cards(tab, "task")
        assert [card["state"] for card in found] == ["failed", "passed", "failed", "failed", "failed"]
        assert [card["text"] for card in found] == list(PROGRAMS)
        assert [card["tests"] for card in found] == [
            [f"test 1: {word}"] for word in ("wrong", "pass", "not run", "pass", "wrong")
        ]
        assert (found[1]["title"], found[1]["verdict"]) == (
            "Program 2: passed", "passed 1/1 tests, Bandit: no findings"
        )  # fmt: skip
        assert found[3]["finding"] == "▲ medium security finding: B307 (CWE-78)"
        names = "[...document.querySelectorAll('.card .builtin')].slice(0, 3).map((each) => each.textContent)"
        assert tab.run(names) == ["print", "int", "input"]
        assert re.fullmatch(r"1 of 5 passed; \d+ tokens in [\d.]+ s, checks included", status(tab, "task"))
        # Markup in a program is text; nothing was loaded from elsewhere, and no script broke.
        assert tab.run("document.querySelectorAll('img, .card script').length") == 0
        assert tab.run("document.title") == "sce: tested and scanned programs"
        assert tab.complaints() == []
        assert {url.split("/")[2] for url in tab.requests() if not url.startswith("data:")} == {
            f"127.0.0.1:{served.port}"
        }


@needs_chromium
def test_a_verdict_comes_after_its_program_and_leaves_before_the_next_request(
    tab: chromium.Page, scorer: Scorer
) -> None:
    texts = [RIGHT, WRONG]
    with serving(scorer, EchoRuntime(lambda task: texts[0] if task.sampling.seed == 1 else texts[1])) as served:
        open_page(tab, served)
        tab.run(RECORD.replace("PANE", "task"))
        for seed in (1, 2):
            tab.run(f"document.getElementById('seed').value = {seed}; 0")
            ask(tab, "task")
            tab.wait_for(f"seen.states.filter((state) => state === 'done').length === {seed}")
        seen = tab.run("seen")
    states = ["generating", "checking", "done"]
    assert [state for state in seen["states"] if state != "idle"] == states * 2
    # Nothing is read to a user of a screen reader for every token or second.
    assert [re.sub(";.*", "", line) for line in seen["status"] if line] == [
        "generating", "checking", "1 of 1 passed", "generating", "checking", "0 of 1 passed"
    ]  # fmt: skip
    assert [line.strip() for line in seen["cards"]] == [
        "", "generating", "checking", "passed passed 1/1 tests, Bandit: no findings",
        "", "generating", "checking", "failed passed 0/1 tests (1 wrong), Bandit: no findings",
    ]  # fmt: skip


@needs_chromium
def test_a_changed_task_says_that_its_verdicts_are_old(tab: chromium.Page, scorer: Scorer) -> None:
    runtime = programs(RIGHT)
    with serving(scorer, runtime) as served:
        open_page(tab, served)
        change(tab, ".test .output", "7\\n")
        assert status(tab, "task") == ""
        ask(tab, "task")
        wait(tab, "task")
        before = status(tab, "task")
        for selector, new, old in ((".test .output", "6\\n", "7\\n"), ("#task-prompt", "Else.", "P")):
            if old == "P":
                old = tab.run("document.getElementById('task-prompt').value")
            change(tab, selector, new)
            wait(tab, "task", "changed")
            assert status(tab, "task").startswith("The task has changed")
            change(tab, selector, old)
            wait(tab, "task")
            assert status(tab, "task") == before
        tab.run("document.querySelector('.remove').click(); 0")
        wait(tab, "task", "changed")
        # A change while the model writes is one as well.
        runtime.may_step.clear()
        ask(tab, "task")
        wait(tab, "task", "generating")
        tab.run("document.getElementById('add-test').click(); 0")
        change(tab, ".test .output", "6\\n")
        assert tab.run("document.getElementById('task').dataset.state") == "generating"
        runtime.may_step.set()
        wait(tab, "task", "changed")
        assert [card["state"] for card in cards(tab, "task")] == ["untested"]


@needs_chromium
def test_the_keyboard_stops_a_request_and_goes_through_programs(tab: chromium.Page, scorer: Scorer) -> None:
    runtime, pause = programs("x = 1\n" * 2000), threading.Event()
    runtime.before_step = lambda: pause.wait(0.01) and None
    with serving(scorer, runtime) as served:
        open_page(tab, served, 3)
        tab.run("document.getElementById('max_tokens').value = 1000; 0")
        ask(tab, "task")
        tab.wait_for("document.querySelectorAll('.card').length === 3")
        assert tab.run("document.querySelector('#task .stop').ariaDisabled") == "false"
        assert [card["copies"] for card in cards(tab, "task")] == [[]] * 3
        tab.press("Escape")
        wait(tab, "task", "stopped")
        served.wait_for(lambda: served.server.engine.busy_rows == 0)
        assert status(tab, "task") == "stopped"
        found = cards(tab, "task")
        assert {(card["state"], card["title"][9:], card["verdict"]) for card in found} == {
            ("stopped", ": stopped, not checked", "")
        }
        assert [card["copies"] for card in found] == [["Copy, not checked"]] * 3
        place = "[...document.querySelectorAll('.card')].indexOf(document.activeElement)"
        places = []
        for key in ("ArrowDown", "ArrowDown", "ArrowDown", "ArrowDown", "ArrowUp"):
            tab.press(key, alt=True)
            places.append(tab.run(place))
        assert places == [0, 1, 2, 2, 1]


@needs_chromium
def test_a_check_that_was_stopped_leaves_no_verdict(tab: chromium.Page, scorer: Scorer) -> None:
    with serving(scorer, programs("while True:\n    pass\n")) as served:
        open_page(tab, served)
        ask(tab, "task")
        wait(tab, "task", "checking")
        (card,) = cards(tab, "task")
        assert (card["state"], card["verdict"], card["copies"]) == ("checking", "", [])
        tab.press("Escape")
        wait(tab, "task", "stopped")
        (card,) = cards(tab, "task")
        assert (card["state"], card["verdict"], card["tests"]) == ("stopped", "", [])
        assert card["copies"] == ["Copy, not checked"]
        served.wait_for(lambda: b"sce_requests_running 0" in served.ask("GET", "/metrics").body)


BOX = """[...document.querySelectorAll('#task, #chat, .prompt, .generate, .stop')].map((each) => {
    const {left, top, right, bottom} = each.getBoundingClientRect();
    return [each.id || each.closest('.pane').id + ' ' + each.className, [left, top, right, bottom]]; })"""


@needs_chromium
def test_panes_are_side_by_side_with_their_buttons_in_view_or_stacked(tab: chromium.Page, scorer: Scorer) -> None:
    with serving(scorer, programs(RIGHT * 30), rows=8) as served:
        tab.resize(1280, 720)
        open_page(tab, served, 4)
        for _ in range(2):  # also with programs that are longer than the window, at their end
            boxes = dict(tab.run(BOX))
            task, chat = boxes.pop("task"), boxes.pop("chat")
            assert (task[1], task[3]) == (chat[1], chat[3])
            assert task[2] <= chat[0]
            for name, (left, top, right, bottom) in boxes.items():
                assert name == "task-prompt" or (0 <= left < right <= 1280 and 0 <= top < bottom <= 720), name
            assert tab.run("document.documentElement.scrollHeight") == 720
            ask(tab, "task")
            wait(tab, "task")
            tab.run("document.getElementById('task').scrollTop = 1e6; 0")
        for width in (375, 320):
            tab.resize(width, 667)
            tab.run("scrollTo(0, 0); 0")
            boxes = dict(tab.run(BOX))
            assert boxes["task"][3] <= boxes["chat"][1]
            assert max(box[2] for box in boxes.values()) <= width
            assert width < 375 or boxes["task generate"][3] < 667
            assert tab.run("document.documentElement.scrollWidth - document.documentElement.clientWidth") == 0
            tab.run("document.querySelector('nav a[href=\"#chat\"]').click(); 0")
            tab.wait_for("document.getElementById('chat').getBoundingClientRect().top < 600")


@needs_chromium
def test_every_control_has_a_name_and_the_verdict_is_in_a_live_region(tab: chromium.Page, scorer: Scorer) -> None:
    with talking(scorer, lambda task: f"Look:\n```python\n{RIGHT}```\n") as served:
        open_page(tab, served, 2)
        for pane in ("task", "chat"):
            ask(tab, pane, "Double it.")
            wait(tab, pane)
        nodes = tab.call("Accessibility.getFullAXTree")["nodes"]
        shown = [node for node in nodes if not node["ignored"]]
        named = [(node["role"]["value"], node.get("name", {}).get("value", "")) for node in shown]
        roles = ("button", "textbox", "spinbutton", "radio", "link", "region", "heading", "list", "group")
        assert [(role, name) for role, name in named if role in roles and not name.strip()] == []
        assert {("region", "Task a program, tested and scanned"), ("heading", "Program 2: passed"),
                ("heading", "Answer: not tested"), ("textbox", "Expected output"), ("button", "Remove this test"),
                ("group", "Tests"), ("textbox", "Message")} <= set(named)  # fmt: skip
        live = "[...document.querySelectorAll('[role=status]')].map((each) => each.closest('.pane')?.id || each.id)"
        assert tab.run(live) == ["model", "task", "chat"]
        # Every control can be reached, and shows that it has the focus.
        tab.run("document.activeElement.blur(); window.outlines = new Map(); 0")
        for _ in range(40):
            tab.press("Tab")
            tab.run("outlines.set(document.activeElement, getComputedStyle(document.activeElement).outlineStyle); 0")
        missed = """[...document.querySelectorAll('button, input, textarea, .card')]
            .filter((each) => each.checkVisibility() && each.type !== 'radio' && outlines.get(each) !== 'solid')"""
        assert tab.run(f"{missed}.map((each) => each.outerHTML)") == []


@needs_chromium
def test_a_program_shows_no_fence_and_can_be_copied_once_it_is_checked(tab: chromium.Page, scorer: Scorer) -> None:
    runtime = programs(f"Here it is:\n```python\n{RIGHT}```\n", f"```python\n{RIGHT}```\n" + "x" * 60)
    may_end = threading.Event()
    runtime.before_step = lambda: None if len(runtime.batches[0].tasks) > 1 else may_end.wait(30) and None
    with serving(scorer, runtime) as served:
        open_page(tab, served, 2)
        tab.run("navigator.clipboard.writeText = async (text) => { window.copied = text; }; 0")
        ask(tab, "task")
        tab.wait_for("document.querySelector('.card')?.dataset.state === 'checking'")
        found = cards(tab, "task")
        assert [card["state"] for card in found] == ["checking", "generating"]
        assert [card["copies"] for card in found] == [[], []]
        assert found[0]["text"].strip() == RIGHT.strip()
        assert status(tab, "task") == "generating"
        may_end.set()
        wait(tab, "task")
        assert [card["copies"] for card in cards(tab, "task")] == [["Copy"], ["Copy"]]
        tab.run("document.querySelector('.card .copy').click(); 0")
        tab.wait_for("document.querySelector('.card .copy').textContent === 'Copied'")
        assert tab.run("copied") == RIGHT


@needs_chromium
def test_assertions_are_tests_of_a_function_and_only_the_chosen_kind_counts(tab: chromium.Page, scorer: Scorer) -> None:
    half = "def half(n):\n    return n // 2\n"
    with serving(scorer, programs(half)) as served:
        open_page(tab, served)
        change(tab, "#assertions", "half(4) == 2\\n\\nhalf(5) == 3")
        visible = "['.of-tests', '.of-assertions'].map((each) => document.querySelector(each).checkVisibility())"
        assert tab.run(visible) == [True, False]
        ask(tab, "task")
        wait(tab, "task")
        assert cards(tab, "task")[0]["tests"] == ["test 1: silent"]
        tab.run("document.querySelector('input[value=assertions]').click(); 0")
        assert tab.run(visible) == [False, True]
        wait(tab, "task", "changed")
        ask(tab, "task")
        wait(tab, "task")
        assert cards(tab, "task")[0]["tests"] == ["test 1: pass", "test 2: wrong"]


@needs_chromium
def test_a_program_without_tests_is_not_tested_and_words_are_nothing_to_check(
    tab: chromium.Page, scorer: Scorer
) -> None:
    with talking(scorer, lambda task: RIGHT if task.facts else "Just words.") as served:
        open_page(tab, served, 2)
        tab.run("document.querySelector('.remove').click(); 0")
        ask(tab, "task")
        wait(tab, "task")
        assert status(tab, "task").startswith("2 not tested, without findings; 0 of 2 passed; ")
        assert [(card["state"], card["title"]) for card in cards(tab, "task")] == [
            ("untested", f"Program {number}: not tested") for number in (1, 2)
        ]
        ask(tab, "chat", "Hello?")
        wait(tab, "chat")
        assert [(card["state"], card["title"]) for card in cards(tab, "chat")] == [
            ("unchecked", "Answer: nothing to check")
        ]
        assert status(tab, "chat").startswith("nothing to check: no program; ")


@needs_chromium
def test_a_chat_goes_on_with_verdicts_below_its_blocks(tab: chromium.Page, scorer: Scorer) -> None:
    # A fence in a docstring, and characters that are two units of UTF-16, move no block.
    documented = f'"""Example:\n```\n>>> 1\n```\n"""\n{UNSAFE}'
    answer = f"It is <b>so</b> 🙂🙂:\n\n```python\n{documented}```\nor\n- a list:\n  ~~~sh\n  ls\n  ~~~\nBye."
    prompts: list[str] = []

    def write(task: DecodingTask) -> str:
        prompts.append(str(task.prompt))
        return answer if len(prompts) == 1 else "Just words."

    with talking(scorer, write) as served:
        open_page(tab, served)
        for message in ("Why?", "And then?"):
            ask(tab, "chat", message)
            wait(tab, "chat")
        found = cards(tab, "chat")
        assert [card["title"] for card in found] == ["Answer: failed", "Answer: nothing to check"]
        assert found[0]["verdict"] == "not tested, parses, Bandit: B307 in line 6"
        assert status(tab, "chat").startswith("nothing to check: no program; ")
        assert found[0]["copies"] == ["Copy", "Copy, not checked", "Copy the answer"]
        checks = tab.run("[...document.querySelectorAll('.check')].map((each) => each.textContent)")
        assert checks == ["python: failed: not tested, parses, Bandit: B307 in line 6", "sh: not checked"]
        codes = "[...document.querySelectorAll('pre')].map((each) => " \
                "[...each.querySelectorAll('.line')].map((line) => line.textContent).join('\\n'))"  # fmt: skip
        assert tab.run(codes) == [documented.rstrip("\n"), "ls"]
        words = tab.run("[...document.querySelectorAll('.words')].map((each) => each.textContent)")
        assert words == ["It is <b>so</b> 🙂🙂:", "or\n- a list:", "Bye.", "Just words."]
        assert tab.run("document.querySelectorAll('.card b').length") == 0
        assert found[0]["finding"].startswith("▲ medium")
        assert prompts == ["[user]Why?", f"[user]Why?[assistant]{answer}[user]And then?"]
        tab.run("document.getElementById('new-chat').click(); 0")
        assert tab.run("document.querySelectorAll('#chat .card, .message').length") == 0
        assert status(tab, "chat") == ""
        assert tab.complaints() == []


@needs_chromium
def test_a_stopped_answer_stays_in_the_chat_and_a_message_without_one_can_be_sent_again(
    tab: chromium.Page, scorer: Scorer
) -> None:
    prompts: list[str] = []

    def write(task: DecodingTask) -> str:
        prompts.append(str(task.prompt))
        return "```python\n" + "x = 1\n" * 500

    with talking(scorer, write) as served:
        open_page(tab, served)
        served.runtime.before_step = lambda: threading.Event().wait(0.01) and None
        ask(tab, "chat", "First")
        tab.wait_for("document.querySelectorAll('#chat .line').length > 3")
        tab.run("document.querySelector('#chat .stop').click(); 0")
        wait(tab, "chat", "stopped")
        (card,) = cards(tab, "chat")
        assert (card["title"], card["copies"][0]) == ("Answer: stopped, not checked", "Copy, not checked")
        assert tab.run("document.querySelector('#chat .check').textContent") == "code: not checked"
        ask(tab, "chat", "x" * 70000)
        wait(tab, "chat", "error")
        assert "context length is 2048 tokens" in status(tab, "chat")
        assert tab.run("document.getElementById('chat-prompt').value.length") == 70000
        assert tab.run("document.querySelectorAll('.message, #chat .card').length") == 2
        tab.run("document.getElementById('max_tokens').value = 3; 0")
        ask(tab, "chat", "Second")
        wait(tab, "chat")
        assert cards(tab, "chat")[1]["verdict"].endswith(", cut off at the maximum of tokens")
    assert re.fullmatch(r"\[user\]First\[assistant\]```python\n(x = 1\n)+[x =1]*\[user\]Second", prompts[-1])


@needs_chromium
def test_both_panes_work_at_the_same_time_with_the_same_settings(tab: chromium.Page, scorer: Scorer) -> None:
    tasks: list[DecodingTask] = []

    def write(task: DecodingTask) -> str:
        tasks.append(task)
        return RIGHT + "#" * 500

    with talking(scorer, write) as served:
        open_page(tab, served)
        served.runtime.before_step = lambda: threading.Event().wait(0.02) and None
        tab.run("document.getElementById('seed').value = 12; document.getElementById('temperature').value = 0.3; 0")
        ask(tab, "task")
        ask(tab, "chat", "Hello")
        for pane in ("task", "chat"):
            wait(tab, pane, "generating")
            ask(tab, pane)  # a second request waits for the end of the first one
        for pane in ("task", "chat"):
            wait(tab, pane)
        assert served.runtime.batches[0].most == 2
        assert [(task.sampling.seed, task.sampling.temperature) for task in tasks] == [(12, 0.3)] * 2
        # What is no number is not taken for the default.
        tab.run("document.getElementById('temperature').value = ''; 0")
        ask(tab, "chat", "Again")
        assert tab.run("document.activeElement.id") == "temperature"
        assert len(tasks) == 2


@needs_chromium
def test_a_model_without_a_template_gets_messages_as_tasks(tab: chromium.Page, scorer: Scorer) -> None:
    with serving(scorer, programs(UNSAFE)) as served:
        open_page(tab, served)
        ask(tab, "chat", "Double it.")
        wait(tab, "chat")
        (card,) = cards(tab, "chat")
        assert (card["title"], card["text"]) == ("Answer: failed", UNSAFE)
        assert card["finding"] == "▲ medium security finding: B307 (CWE-78)"


@needs_chromium
def test_errors_and_a_missing_key_are_said(tab: chromium.Page, scorer: Scorer) -> None:
    runtime = programs(RIGHT)
    with serving(scorer, runtime, key=KEY) as served:
        open_page(tab, served)
        assert "needs a key" in tab.run("document.getElementById('model').textContent")
        ask(tab, "task")
        wait(tab, "task", "error")
        assert "missing or wrong key" in status(tab, "task")
        tab.run(f"document.getElementById('key').value = '{KEY}'; document.getElementById('n').value = 99; 0")
        ask(tab, "task")
        tab.wait_for("document.querySelector('#task .status').textContent.includes('n must be')")
        assert cards(tab, "task") == []
        tab.run("document.getElementById('n').value = 2; 0")
        # The model fails in the middle of an answer.
        steps = iter(range(3))
        runtime.before_step = lambda: next(steps) and None
        ask(tab, "task")
        tab.wait_for("document.querySelector('#task .status').textContent.includes('the model failed')")
        assert {(card["state"], card["verdict"]) for card in cards(tab, "task")} <= {("error", "")}
        runtime.before_step = lambda: None
        ask(tab, "task")
        wait(tab, "task")
        assert [card["state"] for card in cards(tab, "task")] == ["passed", "passed"]


@needs_chromium
def test_the_policy_stops_what_a_page_of_ours_would_never_do(tab: chromium.Page, scorer: Scorer) -> None:
    with serving(scorer, programs(RIGHT)) as served:
        open_page(tab, served)
        tab.run("document.body.insertAdjacentHTML('beforeend', '<img src=/health onerror=document.title=1>'); 0")
        blocked = tab.run("fetch('https://example.com/').then(() => 'sent', () => 'blocked')")
        assert blocked == "blocked"
        assert any("Content Security Policy" in line for line in tab.complaints())
        assert tab.run("document.title") == "sce: tested and scanned programs"


def test_the_page_has_no_markup_from_text_and_nothing_from_elsewhere() -> None:
    unsafe = ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "setAttribute")
    for file in PAGE.iterdir():
        text = file.read_text(encoding="utf-8")
        assert [word for word in (*unsafe, "http:", "https:") if word in text.replace("eval exec", "")] == []
    imports = re.findall(r"""(?:from|import)\s*\(?["'](.*?)["']""", (PAGE / "page.js").read_text(encoding="utf-8"))
    assert imports == ["/show.js"]
    page = (PAGE / "index.html").read_text(encoding="utf-8")
    assert re.findall(r'(?:src|href)="([^"]*)"', page) == ["data:,", "/page.css", "/page.js", "#task", "#chat"]
    assert not re.search(r"<style|style=|\son\w+=|<script>", page)
