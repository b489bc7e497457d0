"""``sce generate --edit`` with a model that answers from a table."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from cli_runs import run_sce
from fake_runtime import FakeRuntime
from rich.console import Console

from securecoderl_edge.prompts.chat import ChatTemplate

FILE = "def double(x):\n    return x\n"
RIGHT = "```python\ndef double(x):\n    return 2 * x\n```"
WRONG = "```python\ndef double(x):\n    return 3 * x\n```"
TESTS = "from calc import double\n\n\ndef test_two():\n    assert double(2) == 4\n"
DIFF = "--- a/calc.py\n+++ b/calc.py\n@@ -1,2 +1,2 @@\n def double(x):\n-    return x\n+    return 2 * x\n"
EDIT = ("--edit", "calc.py", "Double it.")

Use = Callable[..., FakeRuntime]

pytestmark = pytest.mark.usefixtures("one_sandbox")


def run(*args: str, stdin: str = "") -> tuple[int, str, str]:
    """Exit code, stdout and stderr of ``sce generate``."""
    return run_sce("generate", *args, stdin=stdin)


@pytest.fixture
def use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Use:
    """Makes a model that writes given texts, one a sample; and the files."""
    monkeypatch.chdir(tmp_path)
    Path("calc.py").write_text(FILE)
    Path("test_calc.py").write_text(TESTS)

    def prepare(*texts: str) -> FakeRuntime:
        runtime = FakeRuntime(lambda _prompt, sample, _rng: texts[sample % len(texts)])
        runtime.prompt_style = None
        runtime.chat_template = ChatTemplate(
            "{% for each in messages %}{{ each.content }}{% if each.role == 'assistant' %}<end>{% endif %}{% endfor %}",
            {"eos_token": "<end>"},
        )
        monkeypatch.setattr("securecoderl_edge.runtimes.opening.open_runtime", lambda spec, **_: runtime)
        return runtime

    return prepare


def test_a_diff_is_printed_and_nothing_written(use: Use) -> None:
    use(WRONG, RIGHT)
    code, out, err = run(*EDIT, "--tests", "test_calc.py", "-n", "2", "--prompt-style", "chat")
    assert (code, out) == (0, DIFF)
    assert err.splitlines()[0] == "before the edit: passed 0/1 tests"
    assert err.splitlines()[1].startswith("best of 2 (1 passed): passed 1/1 tests, Bandit: no findings, seed 42, ")
    assert Path("calc.py").read_text() == FILE


def test_an_edit_that_passes_is_written(use: Use) -> None:
    use(RIGHT)
    Path("link.py").symlink_to("calc.py")
    code, _, err = run(*EDIT, "--tests", "test_calc.py", "--write", "--prompt-style", "chat")
    assert (code, Path("calc.py").read_text()) == (0, FILE.replace("return x", "return 2 * x"))
    assert err.endswith("/calc.py\n")
    Path("calc.py").write_text(FILE)
    code, _, err = run("--edit", "link.py", "Double it.", "--write", "--prompt-style", "chat")
    assert (code, Path("calc.py").read_text()) == (0, FILE.replace("return x", "return 2 * x"))
    assert err.endswith("/calc.py, which link.py leads to\n")
    assert err.startswith("not tested, parses")
    assert Path("link.py").is_symlink()


def test_an_edit_that_fails_is_shown_with_its_failing_test_and_not_written(use: Use) -> None:
    use(WRONG)
    code, out, err = run(*EDIT, "--tests", "test_calc.py", "--write", "--prompt-style", "chat")
    assert code == 1
    assert out == DIFF.replace("2 * x", "3 * x")
    assert "failed: passed 0/1 tests (1 wrong), Bandit: no findings" in err
    assert (
        "  wrong: test_two\n    test_calc.py:5: assert double(2) == 4\n    AssertionError: 6 is not as expected: 4\n"
        in err
    )
    assert err.endswith("nothing was written\n")
    assert Path("calc.py").read_text() == FILE


@pytest.mark.parametrize(("text", "reason"), [
    ("I cannot do that.", "failed: the answer does not parse, "),
    ("```python\ndef double(x):\n    return x\n```", "failed: the answer changes nothing, "),
])  # fmt: skip
def test_what_is_no_edit_is_one_sentence(use: Use, text: str, reason: str) -> None:
    use(text)
    code, out, err = run(*EDIT, "--write", "--prompt-style", "chat")
    assert (code, out, Path("calc.py").read_text()) == (1, "", FILE)
    assert err.startswith(reason)
    assert err.endswith("nothing was written\n")


def test_a_file_that_does_not_parse_is_named_before_its_edit(use: Use) -> None:
    use("I cannot do that.")
    Path("calc.py").write_text("def double(x)\n")
    assert run(*EDIT, "--tests", "test_calc.py", "--prompt-style", "chat")[2].startswith(
        "before the edit: calc.py does not parse\n"
    )


def test_a_repair_is_an_edit_as_well(use: Use) -> None:
    runtime = use(WRONG)
    runtime.write = lambda prompt, _sample, _rng: RIGHT if "What is wrong" in prompt else WRONG
    code, out, err = run(*EDIT, "--tests", "test_calc.py", "--repair", "--prompt-style", "chat")
    assert (code, out) == (0, DIFF)
    assert "best of 2 in 2 rounds (1 passed)" in err


def test_a_terminal_gets_colors_and_visible_controls(use: Use, monkeypatch: pytest.MonkeyPatch) -> None:
    use(RIGHT.replace("2 * x", "2 * x  # \x1b]0;title\x07"))
    for no_color in (False, True):
        screen = Console(
            force_terminal=True, no_color=no_color, width=200, markup=False, highlight=False, color_system="standard"
        )
        monkeypatch.setattr("securecoderl_edge.commands.generate_edit.data", screen)
        with screen.capture() as shown:
            run(*EDIT, "--prompt-style", "chat")
        text = shown.get()
        assert "\\x1b]0;title\\x07" in text
        assert ("\x1b[32m+    return" in text) is not no_color


@pytest.mark.parametrize(("args", "reason"), [
    (("--edit", "calc.py", " "), "empty prompt (argument); describe the change of calc.py"),
    (("--edit", "none.py", "x"), "--edit none.py: no such file"),
    (("--edit", ".", "x"), "--edit .: a folder, not a file"),
    (("--edit", "calc.py", "x", "--language", "c"), "--edit changes Python files only."),
    (("--edit", "calc.py", "--jsonl", "x"), "--edit prints the diff of one file."),
    (("--edit", "calc.py", "x", "--raw"), "--edit prints the diff of one file."),
    (("x", "--write"), "--write needs --edit FILE."),
    (("--edit", "calc.py", "x", "--tests", "none.py"), "none.py: No such file or directory"),
    (("--edit", "calc.py", "x", "--hide-tests"), "Leave out --hide-tests"),
    (("--edit", "calc.py", "x", "--tests", "test_calc.py", "--test", "in=1,out=2"), "have no effect with the tests of"),
])  # fmt: skip
def test_requests_that_cannot_be_served_are_usage_errors(use: Use, args: tuple[str, ...], reason: str) -> None:
    runtime = use(RIGHT)
    code, out, err = run(*args)
    assert (code, out) == (2, "")
    assert reason in err
    assert runtime.prompts == []


def test_a_model_that_does_not_chat_is_refused(use: Use) -> None:
    use(RIGHT)
    code, _, err = run(*EDIT, "--prompt-style", "stdin")
    assert code == 2
    assert "--edit needs a model that was trained to chat" in err
