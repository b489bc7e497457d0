"""``sce generate`` with runtimes that need no model, and once with a real file."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli_runs import run_sce
from fake_runtime import BROKEN, RIGHT, UNSAFE, WRONG, FakeRuntime, Writer, always
from rich.console import Console

from securecoderl_edge.cli import main
from securecoderl_edge.prompts.chat import ChatTemplate
from securecoderl_edge.prompts.styles import format_statement
from securecoderl_edge.runtimes.protocol import Sampling

PROMPT = "Read a number and print its double."
EXAMPLE = f"{PROMPT}\n\nExample input:\n4\nExample output:\n8"
TEST = ("--test", "in=4,out=8")

Use = Callable[..., FakeRuntime]

pytestmark = pytest.mark.usefixtures("one_sandbox")


def run(*args: str, stdin: str = "") -> tuple[int, str, str]:
    """Exit code, stdout and stderr of ``sce generate``."""
    return run_sce("generate", *args, stdin=stdin)


@pytest.fixture
def use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Use:
    """Makes a model that writes given texts, one a sample, the one that ``sce generate`` opens."""
    monkeypatch.chdir(tmp_path)

    def prepare(*texts: str, write: Writer | None = None) -> FakeRuntime:
        runtime = FakeRuntime(write or (lambda _prompt, sample, _rng: texts[sample % len(texts)]))
        monkeypatch.setattr("securecoderl_edge.runtimes.opening.open_runtime", lambda spec, **_: runtime)
        return runtime

    return prepare


def test_a_program_that_passes_is_printed_and_its_verdict_said(use: Use) -> None:
    use(RIGHT)
    code, out, err = run(PROMPT, *TEST, "--test", "in=5,out=10")
    assert (code, out) == (0, RIGHT)
    assert err.startswith("passed 2/2 tests, Bandit: no findings, seed 42, 3 tokens in ")
    assert len(err.splitlines()) == 1


def test_a_program_that_fails_its_tests_is_an_exit_code_of_1(use: Use) -> None:
    use(WRONG)
    code, out, err = run(PROMPT, *TEST)
    assert (code, out) == (1, WRONG)
    assert err.startswith("failed: passed 0/1 tests (1 wrong), Bandit: no findings")


def test_a_program_that_fails_a_security_test_is_named_with_it(use: Use, tmp_path: Path) -> None:
    record = {"tests": [{"input": "4", "output": "8"}]}
    record["security_tests"] = [{"name": "a letter", "cwe": 20, "input": "x", "output": "no"}]
    (tmp_path / "tests.json").write_text(json.dumps(record))
    checks = "text = input()\nprint(2 * int(text) if text.isdigit() else 'no')\n"
    use(RIGHT)
    code, _, err = run(PROMPT, "--tests", "tests.json")
    assert code == 1
    assert err.startswith("failed: passed 1/1 tests, failed security tests: a letter (CWE-20), Bandit: no findings")
    use(RIGHT, checks)
    code, out, err = run(PROMPT, "--tests", "tests.json", "-n", "2")
    assert (code, out) == (0, checks)
    assert "passed 1/1 tests, passed 1/1 security tests, Bandit: no findings" in err
    record["security_tests"] = [{"name": "a letter"}]
    (tmp_path / "tests.json").write_text(json.dumps(record))
    code, _, err = run(PROMPT, "--tests", "tests.json")
    assert code == 1
    assert 'tests.json: security test 1: "cwe" must be the number of a weakness' in err


def test_text_that_is_no_python_fails(use: Use) -> None:
    use(BROKEN)
    code, _, err = run(PROMPT)
    assert code == 1
    assert err.startswith("failed: does not parse")


def test_nothing_written_fails(use: Use) -> None:
    use("")
    code, out, err = run(PROMPT)
    assert (code, out) == (1, "")
    assert err.startswith("failed: no program")


def test_a_security_finding_fails_although_the_tests_pass(use: Use) -> None:
    use(UNSAFE)
    code, _, err = run(PROMPT, *TEST)
    assert code == 1
    assert err.startswith("failed: passed 1/1 tests, Bandit: B307 in line 1")


def test_without_tests_a_program_is_parsed_and_scanned(use: Use) -> None:
    use("import nowhere\n")
    code, _, err = run(PROMPT)
    assert code == 0
    assert err.startswith("not tested, parses, Bandit: no findings")


def test_the_example_in_a_prompt_is_a_test_and_the_verdict_says_so(use: Use) -> None:
    use(RIGHT)
    assert run(EXAMPLE)[2].startswith("passed 1/1 examples in the prompt")
    use(WRONG)
    assert run(EXAMPLE)[0] == 1


@pytest.mark.usefixtures("c_compiler")
@pytest.mark.parametrize(
    ("args", "is_right"), [((), False), (("--model", "nano-c"), True), (("--language", "c"), True)]
)
def test_the_language_is_that_of_the_model_or_of_the_flag(use: Use, args: tuple[str, ...], is_right: bool) -> None:
    use('#include <stdio.h>\nint main(void) { puts("8"); return 0; }')
    code, _, err = run(*args, "Print 8.", "--test", "in=,out=8")
    assert (code == 0) is is_right
    assert ("with --language c" in err) is not is_right


def test_given_tests_take_the_place_of_the_example(use: Use) -> None:
    use(WRONG)
    assert run(EXAMPLE, "--test", "in=4,out=4")[0] == 0


def test_tests_may_come_from_a_file(use: Use, tmp_path: Path) -> None:
    use(RIGHT)
    (tmp_path / "tests.json").write_text('[{"input": "4", "output": "8"}, {"input": "5", "output": "10"}]')
    assert run(PROMPT, "--tests", "tests.json", *TEST)[2].startswith("passed 3/3 tests")


def test_of_several_samples_the_best_is_shown(use: Use) -> None:
    runtime = use(BROKEN, WRONG, UNSAFE, RIGHT)
    code, out, err = run(PROMPT, "-n", "4", *TEST)
    assert (code, out) == (0, RIGHT)
    assert err.startswith("best of 4 (1 passed): passed 1/1 tests")
    assert len(runtime.calls) == 1


def test_nothing_is_never_the_best_of_several(use: Use) -> None:
    use("", BROKEN)
    code, out, err = run(PROMPT, "-n", "2", *TEST)
    assert (code, out) == (1, BROKEN)
    assert "does not parse" in err


def test_a_clean_program_that_fails_is_not_preferred_to_one_that_passes(use: Use) -> None:
    use(UNSAFE, WRONG)
    code, out, _ = run(PROMPT, "-n", "2", *TEST)
    assert (code, out) == (1, UNSAFE)


@pytest.mark.parametrize("args", [("-",), ()])
def test_the_prompt_may_come_from_stdin(use: Use, args: tuple[str, ...]) -> None:
    runtime = use(RIGHT)
    assert run(*args, stdin=PROMPT)[0] == 0
    assert runtime.prompts == [format_statement(PROMPT)]


def test_the_prompt_may_come_from_a_file(use: Use, tmp_path: Path) -> None:
    runtime = use(RIGHT)
    (tmp_path / "prompt.txt").write_text(PROMPT)
    assert run("@prompt.txt")[0] == 0
    assert runtime.prompts == [format_statement(PROMPT)]
    assert "for its text write @prompt.txt" in run("prompt.txt")[2]


def test_only_the_program_is_printed_unless_raw_is_asked_for(use: Use) -> None:
    completion = f"Here you are:\n```python\n{RIGHT}```\nEnjoy."
    use(completion)
    assert run(PROMPT)[1] == RIGHT
    assert run(PROMPT, "--raw")[1] == f"{completion}\n"


def test_flags_reach_the_sampling(use: Use) -> None:
    runtime = use(RIGHT)
    run(PROMPT, "--seed", "7", "--max-tokens", "33", "--temperature", "0")
    _, sampling = runtime.calls[0]
    assert (sampling.seed, sampling.max_tokens, sampling.temperature) == (7, 33, 0)


def test_the_runtime_is_closed(use: Use) -> None:
    runtime = use(RIGHT)
    run(PROMPT)
    assert runtime.is_closed


def test_on_a_terminal_control_characters_are_shown_not_obeyed(use: Use, monkeypatch: pytest.MonkeyPatch) -> None:
    use("print('\x1b[2J')\n")
    assert "\x1b" in run(PROMPT)[1]
    monkeypatch.setattr(
        "securecoderl_edge.commands.generate_output.data", Console(force_terminal=True, color_system=None)
    )
    out = run(PROMPT)[1]
    assert "\x1b" not in out
    assert "\\x1b[2J" in out


def test_a_program_is_streamed_only_when_both_streams_are_terminals(use: Use, monkeypatch: pytest.MonkeyPatch) -> None:
    use(RIGHT)
    assert "print" not in run(PROMPT)[2]
    for name, is_stderr in (("data", False), ("talk", True)):
        terminal = Console(force_terminal=True, color_system=None, stderr=is_stderr)
        monkeypatch.setattr(f"securecoderl_edge.commands.generate_output.{name}", terminal)
    _, out, err = run(PROMPT)
    assert out.endswith(RIGHT)
    assert "print(int(input()))" not in out
    assert "print(int(input())" in err


def test_many_prompts_are_answered_a_json_line_each(use: Use, tmp_path: Path) -> None:
    use(RIGHT)
    records = [{"prompt": PROMPT}, {"id": "x", "prompt": EXAMPLE}]
    (tmp_path / "prompts.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    code, out, err = run("--jsonl", "prompts.jsonl", "-n", "2")
    lines: list[dict[str, Any]] = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert [(line["id"], line["accepted"], line["total"]) for line in lines] == [
        ("1", True, 0),
        ("x", True, 1),
    ]
    assert lines[0]["program"] == RIGHT
    assert lines[0]["seed"] == 42
    assert "2 of 2 prompts" in err


def test_prompts_may_come_from_standard_input(use: Use) -> None:
    use(RIGHT)
    code, out, _ = run("--jsonl", "-", stdin=json.dumps({"id": "x", "prompt": EXAMPLE}))
    assert (code, json.loads(out)["id"]) == (0, "x")
    assert "stdin:2: not valid JSON" in run("--jsonl", "-", stdin='{"prompt": "a"}\nb')[2]


def test_one_prompt_of_many_without_a_program_is_an_exit_code_of_1(use: Use, tmp_path: Path) -> None:
    use(WRONG)
    records = [{"prompt": PROMPT}, {"prompt": EXAMPLE}]
    (tmp_path / "prompts.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    code, out, err = run("--jsonl", "prompts.jsonl")
    assert (code, len(out.splitlines())) == (1, 2)
    assert "1 of 2 prompts" in err


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (("",), 2, "empty prompt"),
        (("@missing.txt",), 2, "No such file"),
        ((PROMPT, "--model", "nonsense"), 2, "unknown model 'nonsense'"),
        ((PROMPT, "--test", "4=8"), 2, "expected in=...,out=..."),
        ((PROMPT, "--tests", "missing.json"), 2, "missing.json: no such file"),
        ((PROMPT, "-n", "0"), 2, "-n"),
        ((PROMPT, "--jsonl", "prompts.jsonl"), 2, "Leave out PROMPT"),
        (("--jsonl", "missing.jsonl"), 2, "missing.jsonl: no such file"),
        (("--jsonl", "."), 2, ".: a folder, not a file"),
        (("--jsonl", "missing.jsonl", "--raw"), 2, "--code-only and --raw have no effect with --jsonl"),
        (("--jsonl", "missing.jsonl", "--code-only"), 2, "--code-only and --raw have no effect with --jsonl"),
        ((PROMPT, "--temperature", "nan"), 2, "not a finite number"),
        ((PROMPT, "--threads", "99999999999"), 2, "not in the range"),
        ((PROMPT, "--seed", str(2**64)), 2, "not in the range"),
        ((PROMPT, "-n", "999999999"), 2, "not in the range"),
    ],
)
def test_bad_input_is_one_sentence_and_opens_no_model(use: Use, args: tuple[str, ...], code: int, message: str) -> None:
    runtime = use(write=always(RIGHT))
    found, out, err = run(*args)
    assert (found, out, runtime.calls) == (code, "", [])
    assert message in err
    assert "Traceback" not in err


def test_a_real_gguf_file_answers_the_same_for_the_same_seed(tiny_gguf: Path) -> None:
    args = (PROMPT, "--model", str(tiny_gguf), "--max-tokens", "12", "--threads", "1", "--raw")
    first, same, other = (run(*args, "--seed", seed) for seed in ("5", "5", "6"))
    assert first[1] == same[1] != other[1]
    assert "12 tokens" in first[2]


def test_a_base_and_its_adapter_are_one_model(
    tiny_model: Path, tiny_adapter: Path, tiny_gguf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("llama_cpp")
    from securecoderl_edge.export.gguf import write_adapter, write_gguf

    monkeypatch.chdir(tmp_path)
    write_gguf(tiny_model, None, "f32", Path("base.gguf"), "base")
    write_adapter(tiny_model, tiny_adapter, "f32", Path("lora.gguf"), "lora")
    words = ("--temperature", "0", "--max-tokens", "8", "--threads", "1", "--raw", PROMPT)
    merged, pair, base = (
        run("--model", name, *words)[1] for name in (str(tiny_gguf), "base.gguf+lora.gguf", "base.gguf")
    )
    assert pair == merged != base
    code, out, err = run("--model", "lora.gguf", PROMPT)
    assert (code, out) == (2, "")
    assert "lora.gguf: a LoRA adapter, not a model; name its base, too: BASE.gguf+lora.gguf" in err
    code, _, err = run_sce(
        "bench", "base.gguf+lora.gguf", "--limit", "2", "--max-tokens", "8", "--threads", "1", "--json"
    )
    assert code == 0, err


def test_thinking_is_the_template_s_and_the_answer_comes_after_it(use: Use) -> None:
    runtime = use(f"Hm.\n{WRONG}</think>\n\n{RIGHT}")
    runtime.chat_template = ChatTemplate("{{ messages[0].content }}<think>", {"eos_token": "<end>"})
    chat = (PROMPT, *TEST, "--prompt-style", "chat")
    assert run(*chat, "--thinking")[0] == 0
    assert runtime.prompts[-1].endswith("<think>")
    assert run(*chat)[0] == 1
    assert runtime.prompts[-1].endswith("<think>\n\n</think>\n\n")


def test_the_command_loads_no_heavy_package_before_it_runs() -> None:
    code = (
        "import sys, securecoderl_edge.commands.generate, securecoderl_edge.commands.bench;"
        "print(sorted({'torch', 'transformers', 'llama_cpp', 'bandit', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_process_without_standard_streams_is_served(use: Use, monkeypatch: pytest.MonkeyPatch) -> None:
    use(write=always(RIGHT))
    for name in ("stdin", "stdout"):
        monkeypatch.setattr(sys, name, None)
    with pytest.raises(SystemExit) as left:
        main(["generate", " "])
    assert left.value.code == 2
    main(["generate", PROMPT])


# Sampling and repair


def test_the_flags_of_sampling_reach_the_model(use: Use) -> None:
    runtime = use(RIGHT)
    flags = ("--top-k", "5", "--top-p", "0.9", "--min-p", "0.1", "--stop", "\\n###", "--stop", "END", "--seed", "3")
    assert run(PROMPT, *flags, "--temperature", "1.5", "--max-tokens", "99")[0] == 0
    assert runtime.calls[0][1] == Sampling(1.5, 99, 3, 5, 0.9, 0.1, ("\n###", "END"))


def test_a_program_that_failed_goes_back_with_what_is_wrong_with_it(use: Use) -> None:
    runtime = use(write=lambda prompt, _sample, _rng: RIGHT if "This program is wrong" in prompt else WRONG)
    code, out, err = run(PROMPT, *TEST, "--repair")
    assert (code, out) == (0, RIGHT)
    rejected, _, reason = err.partition("\n")
    assert rejected == "rejected; the model is asked to repair it"
    assert reason.startswith("  with the input '4\\n'\n  wrong: it prints a different output\n    line 1 is        4\n")
    assert "\nbest of 2 in 2 rounds (1 passed): passed 1/1 tests" in err
    assert len(runtime.calls) == 2
    shown = runtime.prompts[1]
    assert shown.startswith(format_statement(PROMPT).partition("\n\n### Solution")[0])
    verdict = "wrong: it prints a different output"
    for part in (WRONG.strip(), "with the input '4\\n'", verdict, "line 1 is        4", "line 1 should be 8"):
        assert part in shown


def test_what_does_not_parse_and_what_is_unsafe_is_said_to_the_model(use: Use) -> None:
    runtime = use(BROKEN)
    assert run(PROMPT, "--repair")[0] == 1
    assert "does not parse" in runtime.prompts[1]
    assert "was never closed" in runtime.prompts[1]
    runtime = use(UNSAFE)
    assert run(PROMPT, *TEST, "--repair")[0] == 1
    assert "medium security finding B307 (CWE-78) in line 1" in runtime.prompts[1]
    assert "with the input" not in runtime.prompts[1]


def test_each_repair_is_a_round_and_starts_from_the_problem(use: Use) -> None:
    rounds = iter(range(100))
    runtime = use(write=lambda _prompt, _sample, _rng: f"print({next(rounds)} * 100)\n")
    code, _, err = run(PROMPT, *TEST, "--repair", "--repair", "--repair", "-n", "2")
    assert (code, len(runtime.calls)) == (1, 4)
    assert "\nbest of 8 in 4 rounds (0 passed)" in err
    assert all(prompt.count("This program is wrong") == 1 for prompt in runtime.prompts[1:])
    assert all(prompt.count("Example input:") == 1 for prompt in runtime.prompts)


def test_repair_ends_when_the_model_repeats_its_program(use: Use) -> None:
    runtime = use(WRONG)
    code, _, err = run(PROMPT, *TEST, "--repair", "--repair", "--repair")
    assert (code, len(runtime.calls)) == (1, 2)
    assert "\nbest of 2 in 2 rounds, in which the model repeated its program (0 passed): failed" in err


def test_a_function_is_tested_with_assertions(use: Use) -> None:
    asked = "Write a function half(n)."
    use("def half(n):\n    return n // 2\n")
    assert run(asked, "--assert", "half(4) == 2", "--assert", "half(2)")[2].startswith("passed 2/2 tests")
    code, _, err = run(asked, "--assert", "half(3) == 1.5")
    assert code == 1
    assert "wrong: assert half(3) == 1.5\n    half(3) is 1\n" in err
    assert run(f"{asked} half(4) -> 2")[2].startswith("passed 1/1 examples in the prompt")
    code, _, err = run(asked)
    assert (code, err.split(",")[0]) == (0, "not tested")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--assert", "half(4) =="), "the test is not Python"),
        (("--assert", "2 == 2"), "the test calls no function"),
        (("--assert", "assert (half(4) == 2, 'no')"), "the test asserts nothing"),
        (("--assert", ""), "the test"),
        (("--assert", "[half(4)]"), "the test asserts nothing"),
        (("--assert", "lambda: half(4)"), "the test asserts nothing"),
        (("--tests", "test_half.py"), "test functions run with --edit only"),
        (("--assert", "half(4) == 2", *TEST), "a prompt can have one of them"),
        (("--assert", "half(4) == 2", "--language", "c"), "assertions are for Python"),
    ],
)
def test_what_is_no_test_of_a_function_is_refused(use: Use, args: tuple[str, ...], message: str) -> None:
    runtime = use(RIGHT)
    Path("test_half.py").write_text("def test_half(): assert half(4) == 2\n")
    code, out, err = run("Write a function half(n).", *args)
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert message in err
    assert not runtime.prompts


def test_the_model_sees_the_tests_unless_they_are_hidden(use: Use) -> None:
    runtime = use(RIGHT)
    run(PROMPT, *TEST)
    assert "Example input:\n4\nExample output:\n8" in runtime.prompts[0]
    run("Write half(n).", "--assert", "half(4) == 2")
    assert "It must pass these tests:\nassert half(4) == 2" in runtime.prompts[1]
    run(PROMPT, *TEST, "--hide-tests")
    assert "Example" not in runtime.prompts[2]
    run(EXAMPLE)
    assert runtime.prompts[3].count("Example input:") == 1


def test_of_programs_that_nothing_tells_apart_the_one_is_chosen_that_agrees_with_others(use: Use) -> None:
    right, also = "def half(n):\n    return n // 2\n", "def half(n):\n    return int(n / 2)\n"
    use("def half(n):\n    return 2\n", right, also)
    code, out, err = run("Write a function half(n). half(4) -> 2", "-n", "3")
    assert (code, out in (right, also)) == (0, True)
    assert "best of 3 (3 passed, agrees with " in err


def test_a_model_is_told_of_a_time_limit_that_is_the_problem_s(use: Use, tmp_path: Path) -> None:
    slow = (
        "import time\nend = time.process_time() + 0.6\nwhile time.process_time() < end: pass\nprint(int(input()) * 2)\n"
    )
    runtime = use(slow)
    row = {"id": "p", "statement": PROMPT, "tests": [{"input": "4\n", "output": "8\n"}], "time_limit_s": 0.2}
    (tmp_path / "one.jsonl").write_text(json.dumps(row) + "\n")
    assert run("--jsonl", "one.jsonl", "--repair")[0] == 1
    assert "timeout: " in runtime.prompts[1]
    assert "0.2 s" in runtime.prompts[1]
    assert "passes" not in runtime.prompts[1]


def test_nothing_is_repaired_that_passes_or_does_not_fit(use: Use) -> None:
    runtime = use(RIGHT)
    assert run(PROMPT, *TEST, "--repair")[0] == 0
    assert len(runtime.calls) == 1
    runtime = use(WRONG)
    runtime.context = 300  # room for the problem, not for the problem and a program
    assert run("Double. " * 12, *TEST, "--repair")[0] == 1
    assert len(runtime.calls) == 1


def test_of_many_prompts_only_those_that_failed_are_repaired(use: Use, tmp_path: Path) -> None:
    runtime = use(write=lambda prompt, _sample, _rng: WRONG if "second" in prompt else RIGHT)
    rows = [
        {"prompt": EXAMPLE},
        {"prompt": f"The second. {EXAMPLE}"},
        {"prompt": EXAMPLE.replace("4", "6").replace("8", "12")},
    ]
    (tmp_path / "many.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    code, out, _ = run("--jsonl", "many.jsonl", "--repair")
    answers = [json.loads(line) for line in out.splitlines()]
    assert (code, [answer["rounds"] for answer in answers]) == (1, [1, 2, 1])
    assert [count for count, _ in runtime.calls] == [3, 1]


def test_a_function_that_fails_is_shown_its_assertion(use: Use, tmp_path: Path) -> None:
    runtime = use("def double(n):\n    return n\n")
    record = {
        "id": "f",
        "statement": "Double.",
        "kind": "call",
        "entry_point": "double",
        "assertions": ["assert double(2) == 4"],
    }
    (tmp_path / "calls.jsonl").write_text(json.dumps(record))
    assert run("--jsonl", "calls.jsonl", "--repair")[0] == 1
    assert "wrong: assert double(2) == 4" in runtime.prompts[1]
