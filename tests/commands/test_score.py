"""`sce score` from the command line."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from places import ROOT
from sarif_schema import validate

from securecoderl_edge.cli import sce
from securecoderl_edge.commands.score_gate import check_gate
from securecoderl_edge.commands.score_options import ScoreConfig
from securecoderl_edge.errors import SceError, UsageError
from securecoderl_edge.sandbox.security import Finding, Scan
from securecoderl_edge.sandbox.severity import SEVERITY_SCALES, SeverityScale
from securecoderl_edge.scoring.explain import about_security
from securecoderl_edge.scoring.reports import findings_of_score
from securecoderl_edge.scoring.reward import Outcome
from securecoderl_edge.scoring.score import CheckedProgram, RewardRules, make_score, score_from_record
from securecoderl_edge.scoring.score_files import open_scores

RIGHT = "print(int(input()) * 2)"
FENCED = f"Here it is:\n```python\n{RIGHT}\n```\nDone."


def write_jsonl(path: Path, records: list[Any]) -> str:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return str(path)


@pytest.fixture
def problems(tmp_path: Path) -> str:
    tests = [{"input": "1\n", "output": "2\n"}, {"input": "4\n", "output": "8\n"}]
    records = [{"id": name, "statement": "Double it.", "tests": tests} for name in ("a", "b")]
    return write_jsonl(tmp_path / "problems.jsonl", records)


@pytest.fixture
def completions(tmp_path: Path) -> str:
    records = [
        {"id": "a", "completion": RIGHT},
        {"id": "a", "sample": 1, "completion": FENCED},
        {"id": "b", "completion": "print(2)", "model": "ignored"},
        {"id": "b", "sample": 7, "completion": "no python"},
    ]
    return write_jsonl(tmp_path / "completions.jsonl", records)


def score(*arguments: str) -> Result:
    return CliRunner().invoke(sce, ["score", *arguments])


def rows(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_scores_go_to_stdout_and_the_summary_to_stderr(problems: str, completions: str) -> None:
    result = score("--problems", problems, "--completions", completions)
    assert result.exit_code == 0, result.output
    found = [(row["id"], row["sample"], row["stage"], row["passed"], row["total"]) for row in rows(result.stdout)]
    assert found == [("a", 0, 4, 2, 2), ("a", 1, 4, 2, 2), ("b", 0, 3, 1, 2), ("b", 7, 0, 0, 2)]
    assert "All-P %" in result.stderr
    assert "level 4: passes all tests" in result.stderr


def test_problems_without_a_completion_are_counted(problems: str, completions: str, tmp_path: Path) -> None:
    some = write_jsonl(tmp_path / "some.jsonl", [{"id": "a", "completion": RIGHT}])
    assert "1 of 2 problems have no completion" in score("--problems", problems, "--completions", some).stderr
    assert "no completion" not in score("--problems", problems, "--completions", completions).stderr


def test_a_row_holds_the_fields_of_a_score(problems: str, completions: str) -> None:
    row = rows(score("--problems", problems, "--completions", completions).stdout)[2]
    assert row["verdicts"] == ["pass", "wrong"]
    assert row["reward"] == pytest.approx(0.6 * 0.8 + 0.4)
    assert row["r_tests"] == 0.5
    assert row["program"] == "print(2)"
    assert row["extract"] == "auto"
    assert row["findings"] == []


def test_completions_may_come_from_standard_input(problems: str, completions: str) -> None:
    words = [sys.executable, "-m", "securecoderl_edge", "score", "--problems", problems, "--completions", "-"]
    one = Path(completions).read_text().splitlines(keepends=True)[0]
    done = subprocess.run(words, input=one, capture_output=True, text=True, check=True)
    assert [row["id"] for row in rows(done.stdout)] == ["a"]
    assert "1 score\n" in done.stderr


def test_raw_takes_the_completion_as_it_is(problems: str, completions: str) -> None:
    result = score("--problems", problems, "--completions", completions, "--extract", "raw")
    assert [row["stage"] for row in rows(result.stdout)] == [4, 0, 3, 0]


def test_an_interrupted_run_goes_on_without_lost_or_doubled_rows(
    problems: str, completions: str, tmp_path: Path
) -> None:
    out = tmp_path / "scores" / "out.jsonl"
    arguments = ("--problems", problems, "--completions", completions, "--out", str(out))
    assert score(*arguments).exit_code == 0
    whole = out.read_text().splitlines(keepends=True)
    out.write_text("".join(whole[:2]) + whole[2][:40])
    result = score(*arguments)
    assert result.exit_code == 0, result.output
    assert "2 of 4 completions are already scored" in result.stderr
    again = out.read_text().splitlines(keepends=True)
    assert again[:2] == whole[:2]
    assert [(row["id"], row["sample"]) for row in rows("".join(again))] == [("a", 0), ("a", 1), ("b", 0), ("b", 7)]


@pytest.mark.parametrize(
    ("how", "status"),
    [
        (signal.SIGINT, 130),
        pytest.param(signal.SIGTERM, 130, marks=pytest.mark.slow),
        (signal.SIGKILL, -signal.SIGKILL),
    ],
)
def test_a_run_that_is_stopped_keeps_its_rows_and_leaves_no_process(
    how: signal.Signals, status: int, problems: str, tmp_path: Path
) -> None:
    quick = [{"id": "a", "sample": number, "completion": "print(2)"} for number in range(3)]
    slow = {"id": "b", "completion": "import time; time.sleep(50)"}
    completions = write_jsonl(tmp_path / "completions.jsonl", [*quick, slow])
    out = tmp_path / "out.jsonl"
    arguments = ["--problems", problems, "--completions", completions, "--out", str(out), "--wall-seconds", "60"]
    process = subprocess.Popen(
        [sys.executable, "-m", "securecoderl_edge", "score", *arguments],
        stderr=subprocess.PIPE,
        # A test run that was started in the background hands down an ignored SIGINT.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    with process:
        while not out.exists() or out.read_bytes().count(b"\n") < 3:
            time.sleep(0.01)
        family = descendants(process.pid)
        process.send_signal(how)
        process.communicate()
    assert process.returncode == status
    assert len(family) >= 2
    while any(Path(f"/proc/{pid}/cmdline").exists() and is_ours(pid) for pid in family):
        time.sleep(0.01)  # a test that hangs here says that a process stays
    write_jsonl(Path(completions), [*quick, {**slow, "completion": RIGHT}])
    assert score(*arguments).exit_code == 0
    found = [(row["id"], row["sample"]) for row in rows(out.read_text())]
    assert found == [*(("a", number) for number in range(3)), ("b", 0)]


def descendants(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").iterdir()
    children = [int(child) for task in tasks for child in (task / "children").read_text().split()]
    return children + [each for child in children for each in descendants(child)]


def is_ours(pid: int) -> bool:
    """Whether the process is alive and still the one that we saw."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z" and (b"zygote.py" in command or b"security_worker.py" in command)


def test_a_finished_run_does_nothing_more(problems: str, completions: str, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    arguments = ("--problems", problems, "--completions", completions, "--out", str(out))
    score(*arguments)
    before = out.read_bytes()
    result = score(*arguments)
    assert result.exit_code == 0
    assert out.read_bytes() == before
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("--extract", "raw"), r"out\.jsonl:1: scored with extract = auto, not raw"),
        (("--credit-rule", "all"), "credit_rule = any, not all"),
        (("--severity", "cwe"), "severity_scale = bandit, not cwe"),
        (("--sandbox", "off"), "sandbox = .*, not off"),
        (("--cpu-seconds", "1"), "limits = "),
    ],
)
def test_scores_under_other_switches_are_not_mixed_in(
    change: tuple[str, str], words: str, problems: str, completions: str, tmp_path: Path
) -> None:
    arguments = ("--problems", problems, "--completions", completions, "--out", str(tmp_path / "out.jsonl"))
    score(*arguments)
    with pytest.raises(SceError, match=words):
        CliRunner().invoke(sce, ["score", *arguments, *change], catch_exceptions=False)


def test_scores_of_other_programs_or_problems_are_not_mixed_in(problems: str, completions: str, tmp_path: Path) -> None:
    arguments = ("--problems", problems, "--completions", completions, "--out", str(tmp_path / "out.jsonl"))
    score(*arguments)
    Path(completions).write_text(Path(completions).read_text().replace("* 2", "* 3", 1))
    with pytest.raises(SceError, match=r"out\.jsonl:1: the completion of 'a', sample 0, has changed"):
        CliRunner().invoke(sce, ["score", *arguments], catch_exceptions=False)
    Path(completions).write_text(Path(completions).read_text().replace("* 3", "* 2", 1))
    Path(problems).write_text(Path(problems).read_text().replace("8", "9", 1))
    with pytest.raises(SceError, match="problem 'a' has changed"):
        CliRunner().invoke(sce, ["score", *arguments], catch_exceptions=False)


@pytest.mark.parametrize(
    "content", ["my precious notes", "a line\nand another, without end", '{"id": "a"}\n{"no', '{"id": "mine"}']
)
def test_a_file_that_holds_no_scores_stays_as_it_is(
    content: str, problems: str, completions: str, tmp_path: Path
) -> None:
    out = tmp_path / "notes.txt"
    out.write_text(content)
    with pytest.raises(SceError, match=r"not a score|not valid JSON"):
        CliRunner().invoke(
            sce,
            ["score", "--problems", problems, "--completions", completions, "--out", str(out)],
            catch_exceptions=False,
        )
    assert out.read_text() == content


def test_a_last_row_that_lacks_only_its_line_end_counts(problems: str, completions: str, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    arguments = ["--problems", problems, "--completions", completions, "--out", str(out)]
    score(*arguments)
    whole = out.read_text()
    out.write_text(whole[:-1])
    score(*arguments)
    assert out.read_text() == whole


def test_two_runs_do_not_add_to_one_file(problems: str, completions: str, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    arguments = ["score", "--problems", problems, "--completions", completions, "--out", str(out)]
    with open_scores(out), pytest.raises(UsageError, match="another process is adding"):
        CliRunner().invoke(sce, arguments, catch_exceptions=False)
    assert score(*arguments[1:]).exit_code == 0
    assert len(rows(out.read_text())) == 4


@pytest.mark.parametrize(
    "change",
    [
        {"stage": 99},
        {"seconds": float("nan")},
        {"total": 0, "passed": 0},
        {"verdicts": ["perfect"]},
        {"findings": [{"test_id": "B102", "cwe": "78", "severity": "HIGH", "confidence": "HIGH", "line": 1}]},
        {"program": 1},
        *(
            pytest.param(change, marks=pytest.mark.slow)
            for change in (
                {"reward": "x"},
                {"reward": None},
                {"seconds": 10**400},
                {"seconds": -1},
                {"passed": 9},
                {"verdicts": "pass"},
                {"signs": [1]},
                {"findings": {}},
                {"limits": []},
            )
        ),
    ],
)
def test_a_row_of_wrong_types_is_no_score(
    change: dict[str, Any], problems: str, completions: str, tmp_path: Path
) -> None:
    out = tmp_path / "out.jsonl"
    arguments = ["score", "--problems", problems, "--completions", completions, "--out", str(out)]
    score(*arguments[1:])
    first, *others = rows(out.read_text())
    write_jsonl(out, [first | change, *others])
    with pytest.raises(SceError, match=":1: not a score"):
        CliRunner().invoke(sce, arguments, catch_exceptions=False)


def test_a_row_says_how_it_was_made(problems: str, completions: str) -> None:
    result = score(
        "--problems", problems, "--completions", completions, "--severity", "cwe", "--sandbox", "no-landlock"
    )
    names = ("extract", "credit_rule", "severity_scale", "sandbox")
    assert {tuple(row[name] for name in names) for row in rows(result.stdout)} == {
        ("auto", "any", "cwe", "no-landlock")
    }


@pytest.mark.parametrize(
    ("records", "message"),
    [
        (
            [{"id": "a", "completion": ""}, {"id": "z", "completion": ""}],
            r"completions\.jsonl:2: unknown problem id 'z'",
        ),
        (
            [{"id": "a", "completion": ""}, {"id": "a", "sample": 0, "completion": ""}],
            r":2: duplicate sample 0 of 'a', already in line 1",
        ),
        ([{"id": "a"}], r':1: expected the strings "id" and "completion"'),
        ([{"id": "a", "sample": "1", "completion": ""}], r":1: \"sample\" must be"),
        ([{"id": "a", "sample": (1 << 61) - 1, "completion": ""}], r":1: \"sample\" must be"),  # its hash is that of 0
        ([["a"]], r":1: expected a JSON object"),
        ([], r"the file is empty"),
    ],
)
def test_what_is_wrong_with_a_completion_is_said_with_its_line(
    problems: str, tmp_path: Path, records: list[Any], message: str
) -> None:
    completions = write_jsonl(tmp_path / "completions.jsonl", records)
    with pytest.raises(SceError, match=message):
        CliRunner().invoke(sce, ["score", "--problems", problems, "--completions", completions], catch_exceptions=False)


def test_a_malformed_line_is_said_with_its_number(problems: str, tmp_path: Path) -> None:
    path = tmp_path / "completions.jsonl"
    path.write_text('{"id": "a", "completion": ""}\n{"id": \n')
    with pytest.raises(SceError, match=r"completions\.jsonl:2: not valid JSON"):
        CliRunner().invoke(sce, ["score", "--problems", problems, "--completions", str(path)], catch_exceptions=False)


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--problems", "starter"],
        ["--completions", "x"],
        ["missing.py", "--expect", "1"],
        ["FILE", "--input", "1"],
        ["FILE", "--json"],
        ["FILE", "--out", "x"],
        ["FILE", "FILE", "--expect", "1"],
        ["FILE", "--expect", " "],
        [".", "--expect", "1"],
        ["--problems", "starter", "--completions", "."],
        ["FILE", "--expect", "1", "--out", "x"],
        ["--problems", "starter", "--completions", "x", "--expect", "1"],
        ["--problems", "starter", "--completions", "x", "--language", "c"],
        ["FILE", "--expect", "1", "--extract", "raw"],
        ["FILE", "--extract", "raw"],
    ],
)
def test_flags_that_do_not_go_together_are_a_usage_error(arguments: list[str], tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(RIGHT)
    given = [str(program) if argument == "FILE" else argument for argument in arguments]
    with pytest.raises(UsageError):
        CliRunner().invoke(sce, ["score", *given], catch_exceptions=False)


@pytest.mark.parametrize(
    ("program", "words", "status"),
    [
        (RIGHT, "passes: it prints the expected output", 0),
        ("print(7)", "line 1 is        7\n  line 1 should be 8", 1),
        ("print(8)\nprint()\nprint(9)", "line 2 should be (missing)", 1),
        ("input()", "silent: it prints nothing", 1),
        ("print(1 // 0)", "ZeroDivisionError", 1),
        ("print(", "does not parse", 1),
        ("while True: pass", "timeout: it was stopped after 0.3 s of CPU time", 1),
        ("x = 'a' * 10**10", "memory: it needs more than 1024 MiB", 1),
        ("while True: print('x' * 9999)", "output limit", 1),
        ("import os\nos.fork()", "the sandbox allows no network", 1),
        ("import numpy", "only files of the Python library", 1),
        ("print(5)", "reward 0.76 = 0.6 x 0.60 (tests) + 0.4 x 1.00 (security)", 1),
        (f"import os\n{RIGHT}\nlambda: os.system(input())", "high security finding B605 (CWE-78) in line 3", 0),
    ],
)
def test_one_program_gets_its_verdict_in_words(program: str, words: str, status: int, tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text(program)
    result = score(str(file), "--input", r"4\n", "--expect", "8", "--cpu-seconds", "0.3")
    assert result.exit_code == status, result.output
    assert words in result.stdout


def test_input_and_expected_output_may_be_files(tmp_path: Path) -> None:
    for name, text in (("program.py", RIGHT), ("in.txt", "21\n"), ("out.txt", "42\n")):
        (tmp_path / name).write_text(text)
    names = [str(tmp_path / name) for name in ("program.py", "in.txt", "out.txt")]
    assert score(names[0], "--input", names[1], "--expect", names[2]).exit_code == 0
    assert score(names[0], "--input", f"@{names[1]}", "--expect", f"@{names[2]}").exit_code == 0


def test_a_mistyped_file_name_is_told_and_a_notebook_is_no_program(tmp_path: Path) -> None:
    program = tmp_path / "solution.py"
    program.write_text("print(1)\n")
    told = score(str(program), "--expect", "outt.txt")
    assert (told.exit_code, "--expect outt.txt: no such file, so it is taken as the text" in told.stderr) == (1, True)
    program.rename(tmp_path / "book.ipynb")
    assert "a notebook, not a program" in str(score(str(tmp_path / "book.ipynb")).exception)


@pytest.mark.parametrize("flags", [(), ("--expect", "1")])
def test_a_file_in_no_known_language_is_not_taken_for_python(tmp_path: Path, flags: tuple[str, ...]) -> None:
    program = tmp_path / "x.js"
    program.write_text("console.log(1)\n")  # also an expression in Python
    told = str(score(str(program), *flags).exception)
    assert told.endswith("x.js: neither .py nor .c. Read it as one of these with --language python or c.")
    program.write_text("print(1)\n")
    assert score(str(program), "--language", "python", *flags).exit_code == 0


def test_an_empty_argument_is_not_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(gate_folder(tmp_path))
    result = score("")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "an empty text is not a path" in result.stderr


def test_files_are_utf_8_with_or_without_its_mark(tmp_path: Path) -> None:
    program, expected = tmp_path / "program.py", tmp_path / "out.txt"
    program.write_text(RIGHT, encoding="utf-8-sig")
    expected.write_text("42\n", encoding="utf-8-sig")
    assert score(str(program), "--input", "21", "--expect", str(expected)).exit_code == 0
    for path in (program, expected):
        path.write_bytes("print('\xe9')\n".encode("latin-1"))
        error = score(str(program), "--input", "21", "--expect", str(expected)).exception
        assert isinstance(error, SceError)
        assert f"{path.name}: not UTF-8 text" in str(error)
        path.write_text(RIGHT)


def test_a_text_longer_than_any_file_name_is_a_text_with_the_escapes_of_generate(tmp_path: Path) -> None:
    numbers = " ".join(["1"] * 3000)
    (tmp_path / "program.py").write_text("print(input().count('1') - 3000, input() == '\\\\n\\t')")
    result = score(str(tmp_path / "program.py"), "--input", rf"{numbers}\n\\n\t", "--expect", "0 True")
    assert result.exit_code == 0, result.output


def test_one_score_as_json(tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text(RIGHT)
    result = score(str(file), "--input", "4", "--expect", "8", "--json")
    assert json.loads(result.stdout)["stage"] == 4


def test_control_characters_of_a_program_do_not_reach_the_terminal(tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text(r"print('\x1b]0;owned\x07\u202e')")
    result = score(str(file), "--expect", "8")
    assert "\x1b" not in result.stdout
    assert r"\x1b]0;owned\x07\u202e" in result.stdout


@pytest.mark.parametrize("out", ["/dev/full", "folder"])
def test_scores_go_to_no_device_and_no_folder(out: str, problems: str, completions: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(UsageError, match="not a regular file"):
        CliRunner().invoke(
            sce,
            ["score", "--problems", problems, "--completions", completions, "--out", str(tmp_path / out)],
            catch_exceptions=False,
        )


@pytest.mark.parametrize(("flag", "value"), [("--wall-seconds", "1e300"), ("--memory-mib", "99999999999999")])
def test_limits_that_the_system_cannot_set_are_a_usage_error(flag: str, value: str, tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text(RIGHT)
    assert score(str(file), "--expect", "8", flag, value).exit_code == 2


def test_running_without_isolation_is_said(problems: str, completions: str) -> None:
    files = ("--problems", problems, "--completions", completions)
    assert "without isolation" in score(*files, "--sandbox", "off").stderr
    assert "without isolation" not in score(*files, "--sandbox", "no-landlock").stderr


def test_files_are_scanned_and_not_run(tmp_path: Path) -> None:
    programs = {
        "clean.py": "import nothing_of_this_name\nwhile True:\n    pass\n",
        "unsafe.py": "import os\nos.system(input())\nprint(eval(input()))  # nosec\n",
        "broken.py": "print(1\n",
    }
    for name, text in programs.items():
        (tmp_path / name).write_text(text)
    result = score(*(str(tmp_path / name) for name in programs))
    lines = [line.removeprefix(f"{tmp_path}/") for line in result.stdout.splitlines()]
    assert lines[:2] == [
        "unsafe.py:2: high security finding B605 (CWE-78)", "unsafe.py:3: medium security finding B307 (CWE-78)"
    ]  # fmt: skip
    assert lines[2].startswith("broken.py: does not parse: SyntaxError")
    assert (result.exit_code, result.stderr) == (1, "scanned 3 files, ran none; 2 with findings\n")
    assert "broken.py, line 1)" in lines[2]
    result = score(str(tmp_path / "clean.py"))
    assert (result.exit_code, result.stdout) == (0, "")


def test_the_files_behind_an_unreadable_one_are_scanned(tmp_path: Path) -> None:
    declared, broken, unsafe = (tmp_path / name for name in ("declared.py", "broken.py", "unsafe.py"))
    declared.write_bytes(b"# -*- coding: latin-1 -*-\nprint('\xe4')\n")
    broken.write_bytes(b"print('\xe4')\n")
    unsafe.write_text("print(eval(input()))\n")
    result = score(str(declared), str(broken), str(unsafe))
    assert result.stdout.count("\n") == 2
    assert "broken.py: " in result.stdout.splitlines()[0]
    assert "B307" in result.stdout.splitlines()[1]
    assert (result.exit_code, result.stderr) == (1, "scanned 3 files, ran none; 2 with findings\n")


@pytest.mark.parametrize("encoding", ["punycode", "IDNA", "rot13", "base64", "undefined", "utf-16", "nothing"])
def test_a_program_in_no_encoding_of_programs_is_one_sentence(tmp_path: Path, encoding: str) -> None:
    """To decode some takes quadratic time, outside of the sandbox."""
    program = tmp_path / "x.py"
    program.write_bytes(f"# coding: {encoding}\n{'a' * 99}-{'b' * 99}\n".encode())
    result = score(str(program), "--input", "1", "--expect", "1")
    assert isinstance(result.exception, SceError)
    assert "x.py: not UTF-8 text" in str(result.exception)


def test_the_hook_of_the_docs_stops_a_commit_with_a_finding_in_its_staged_files(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "guides" / "ci.md").read_text(encoding="utf-8").partition("## Before a commit")[2]
    hook = tmp_path / ".git" / "hooks" / "pre-commit"
    environment = {
        "PATH": f"{tmp_path}:{os.environ['PATH']}", "HOME": str(tmp_path), "PYTHONPATH": str(ROOT),
        **{f"GIT_{who}_{what}": "a@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
    }  # fmt: skip
    command = tmp_path / "sce"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m securecoderl_edge "$@"\n')
    command.chmod(0o755)

    def git(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["git", *arguments], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )

    git("init", "-q")
    hook.write_text(page.partition("```sh\n")[2].partition("```")[0])
    hook.chmod(0o755)
    program = tmp_path / "a folder" / "-program.py"
    program.parent.mkdir()
    program.write_text("print(eval(input()))\n")
    git("add", str(program))
    program.write_text("print(int(input()))\n")  # what is staged counts
    refused = git("commit", "-q", "-m", "x")
    assert refused.returncode != 0
    assert "a folder/-program.py:1:7: medium B307 (CWE-78)" in refused.stdout + refused.stderr
    git("add", str(program))
    assert git("commit", "-q", "-m", "x").returncode == 0
    (tmp_path / "notes.txt").write_text("no Python")
    git("add", "notes.txt")
    assert git("commit", "-q", "-m", "y").returncode == 0
    (tmp_path / "link.py").symlink_to("nowhere.py")
    git("add", "link.py")
    assert git("commit", "-q", "-m", "z").returncode == 0
    (tmp_path / "link.py").unlink()
    (tmp_path / "link.py").write_text("print(eval(input()))\n")
    git("add", "link.py")
    assert git("commit", "-q", "-m", "a").returncode != 0


def test_the_recipe_for_pre_commit_scans_all_that_it_calls_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (ROOT / "docs" / "guides" / "ci.md").read_text(encoding="utf-8")
    entry = page.partition("entry: sce ")[2].partition(",")[0].split()
    monkeypatch.chdir(tmp_path)
    for name in ("a.pyi", "script", "b.py"):
        Path(name).write_text("#!/usr/bin/env python3\nprint(eval(input()))\n")
    found = CliRunner().invoke(sce, [*entry, "a.pyi", "script", "b.py"])
    assert [line.partition(":")[0] for line in found.stdout.splitlines()[::2]] == ["a.pyi", "b.py", "script"]


def test_what_a_program_tried_in_vain_is_told_and_cannot_reach_the_terminal(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    attempt = "import os\ntry:\n    os.mkdir('/\\x1b[31m')\nexcept OSError:\n    pass\nprint(4)\n"
    file.write_text(attempt)
    told = score(str(file), "--expect", "4")
    assert told.exit_code == 0
    assert told.stdout.splitlines()[1] == r"it tried to write /\x1b[31m: refused"
    (record,) = rows(score(str(file), "--expect", "4", "--json").stdout)
    assert record["denied"] == [{"kind": "write", "path": "/\x1b[31m", "count": 1}]


def gate_folder(folder: Path) -> Path:
    """Programs and their tests: two pass, one of them with a finding, one fails."""
    programs = folder / "programs"
    programs.mkdir()
    for name, text in {
        "double.py": RIGHT, "double.1.in": "2\n", "double.1.out": "4\n", "double.2.in": "5\n", "double.2.out": "10\n",
        "unsafe.py": "print(2 * eval(input()))", "unsafe.in": "2", "unsafe.out": "4",
        "wrong.py": "def add(a, b):\n    return a - b\n",
        "test_wrong.py": "from wrong import add\ndef test_add():\n    assert add(1, 2) == 3\n",
    }.items():  # fmt: skip
        (programs / name).write_text(text)
    return programs


@pytest.mark.parametrize(
    ("flags", "code", "reason"),
    [
        ((), 1, "failed: 2 of 3 programs pass all tests, under 100%"),
        (("--fail-under", "0.6"), 0, "passed"),
        (("--fail-under", "0.6", "--fail-on", "high"), 0, "passed"),
        (("--fail-under", "0.6", "--fail-on", "medium"), 1, "failed: 1 medium among findings and security tests"),
        (("--fail-under", "0.9", "--fail-on", "medium"), 1, "failed: 2 of 3 programs pass all tests, under 90%; 1 m"),
    ],
)
def test_a_folder_of_programs_is_a_gate_that_says_why_it_fails(
    tmp_path: Path, flags: tuple[str, ...], code: int, reason: str
) -> None:
    result = score(str(gate_folder(tmp_path)), *flags)
    assert result.exit_code == code
    summary, last = result.stderr.splitlines()
    assert summary.startswith("2 of 3 programs passed all tests; mean reward 0.")
    assert last.startswith(reason)
    assert [line.partition("programs/")[2] for line in result.stdout.splitlines() if "programs/" in line] == [
        "double.py: passes 2 of 2 tests", "unsafe.py: passes 1 of 1 test", "wrong.py: fails: passes 0 of 1 test (wrong)"
    ]  # fmt: skip


def test_the_reports_of_a_gate_have_every_program_and_what_fails(tmp_path: Path) -> None:
    files = {name: tmp_path / name for name in ("junit", "sarif")}
    flags = [word for name, file in files.items() for word in (f"--{name}", str(file))]
    result = score(str(gate_folder(tmp_path)), "--json", *flags)
    document = json.loads(result.stdout)
    assert [document[name] for name in ("programs", "passing", "passed")] == [3, 2, False]
    assert [each["passes"] for each in document["scores"]] == [True, True, False]
    cases = list(ElementTree.parse(files["junit"]).getroot().iter("testcase"))
    assert [len(case) for case in cases] == [0, 0, 1]
    log = json.loads(files["sarif"].read_text())
    validate(log)
    assert [each["ruleId"] for each in log["runs"][0]["results"]] == ["B307", "SCE002"]
    rules = [each["properties"] for each in log["runs"][0]["tool"]["driver"]["rules"]]
    assert ["security" in each["tags"] for each in rules] == [True, False]
    assert ["security-severity" in each for each in rules] == [True, False]


def test_a_gate_tells_what_a_program_tried_in_vain_and_fails_by_it_if_asked(tmp_path: Path) -> None:
    folder = tmp_path / "programs"
    folder.mkdir()
    hidden = "try:\n    open('/etc/shadow')\nexcept OSError:\n    pass\n"
    for name, before in (("nosy", hidden), ("plain", "")):
        (folder / f"{name}.py").write_text(f"{before}print(42)\n")
        (folder / f"{name}.out").write_text("42\n")
    assert "  it tried to read /etc/shadow: refused" in score(str(folder)).stdout.splitlines()
    assert score(str(folder)).exit_code == 0
    files = {name: tmp_path / name for name in ("junit", "sarif")}
    flags = [word for name, file in files.items() for word in (f"--{name}", str(file))]
    result = score(str(folder), "--fail-on-denied", *flags)
    assert result.exit_code == 1
    assert result.stderr.splitlines()[-1] == "failed: 1 of 2 programs tried what the sandbox refuses"
    cases = list(ElementTree.parse(files["junit"]).getroot().iter("testcase"))
    assert [case[0].get("message") if len(case) else "" for case in cases] == [
        "it tried to read /etc/shadow: refused",
        "",
    ]
    log = json.loads(files["sarif"].read_text())
    validate(log)
    (found,) = log["runs"][0]["results"]
    assert (found["ruleId"], found["message"]["text"]) == ("SCE004", "it tried to read /etc/shadow: refused")
    assert "partialFingerprints" not in found  # nothing to tell it by
    assert [each["name"] for each in log["runs"][0]["tool"]["driver"]["rules"]] == ["refused_attempt"]


@pytest.mark.parametrize("scale", SEVERITY_SCALES)
@pytest.mark.parametrize("has_failed", [False, True])
@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_failed_scan_fails_a_gate_and_is_told_also_beside_findings(
    scale: SeverityScale, has_failed: bool, count: int
) -> None:
    scan = Scan((Finding("memleak", 401, "MEDIUM", "MEDIUM", 3),) * count, has_failed)
    checked = CheckedProgram("a", 0, "", [Outcome("pass", True, True)], 1, scan)
    score = make_score(checked, RewardRules(severity_scale=scale))
    assert score_from_record(json.loads(json.dumps(score.to_record()))) == score
    assert check_gate({"a.c": score}, ScoreConfig(fail_on="high"), None) == (not has_failed)
    assert any("the security scan failed" in line for line in about_security(score)) == has_failed
    assert [each.text for each in findings_of_score("a.c", score, "")][count:] == [
        "the security scan failed"
    ] * has_failed


def test_a_gate_for_attempts_fails_where_nobody_notes_them(tmp_path: Path) -> None:
    folder = tmp_path / "programs"
    folder.mkdir()
    (folder / "a.py").write_text("print(1)")
    (folder / "a.out").write_text("1")
    assert score(str(folder), "--sandbox", "off").exit_code == 0
    result = score(str(folder), "--sandbox", "off", "--fail-on-denied", "--junit", str(tmp_path / "x.xml"))
    assert result.exit_code == 1
    assert "failed: nobody took notes of what 1 of 1 programs tried" in result.stderr
    (failure,) = ElementTree.parse(tmp_path / "x.xml").getroot().iter("failure")
    assert failure.get("message") == "nobody took notes of what it tried"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--junit", "double.py"), "--junit .*double.py: it exists"),
        (("--sarif", "double.1.in"), "--sarif .*double.1.in: it exists"),
        (("--sarif", "double.1.out"), "--sarif .*double.1.out: it exists"),
        (("--junit", "x.xml", "--sarif", "./x.xml"), "--junit and --sarif are the same file"),
        (("--problems", "p.jsonl", "--junit", "p.jsonl"), "p.jsonl is also an input file"),
    ],
)
def test_a_report_replaces_no_input(tmp_path: Path, words: tuple[str, ...], message: str) -> None:
    folder = gate_folder(tmp_path)
    (folder / "p.jsonl").write_text("{}")
    before = {each: each.read_bytes() for each in folder.iterdir()}
    places = [word if word.startswith("--") else f"{folder}/{word}" for word in words]
    with pytest.raises(UsageError, match=message):
        CliRunner().invoke(sce, ["score", str(folder), *places], catch_exceptions=False)
    assert before == {each: each.read_bytes() for each in folder.iterdir()}
    again = [str(folder), "--junit", str(folder / "report.xml")]
    assert score(*again).exit_code == score(*again).exit_code == 1


def test_completions_are_a_gate_if_asked(problems: str, completions: str) -> None:
    files = ("--problems", problems, "--completions", completions)
    assert score(*files).exit_code == 0
    failed = score(*files, "--fail-under", "1")
    assert failed.exit_code == 1
    assert failed.stderr.splitlines()[-1].startswith("failed: ")
    assert json.loads(score(*files, "--json").stdout)["programs"] == len(rows(score(*files).stdout))


def test_programs_of_a_folder_are_for_the_problems_of_their_names(tmp_path: Path, problems: str) -> None:
    folder = tmp_path / "answers"
    folder.mkdir()
    for name in ("a.py", "a.1.py"):
        (folder / name).write_text(RIGHT)
    assert "1 problem without a program" in score(str(folder), "--problems", problems).stderr
    (folder / "b.py").write_text(RIGHT)
    result = score(str(folder), "--problems", problems, "--json")
    assert result.exit_code == 0, result.stderr
    keys = [(each["id"], each["sample"]) for each in json.loads(result.stdout)["scores"]]
    assert sorted(keys) == [("a", 0), ("a", 1), ("b", 0)]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("alone.py", RIGHT, "alone.py: no tests. Expected alone.in and alone.out, or test_alone.py"),
        ("double.0.py", RIGHT, r"double.0.py: no tests"),
        ("wrong.out", " \n", "wrong.py: its tests are test_wrong.py and wrong.out. Keep one of the kinds"),
        ("double.3.in", "3", "double.3.in: an input without an output. Expected double.3.out"),
        ("unsafe.2.in", "3", "unsafe.2.in: an input without an output"),
        ("venv/a.py", RIGHT, "a.py: no tests"),
        ("double.3.out", " \n", "double.3.out: empty, so a program that prints nothing would pass"),
        ("double.3.out", b"\xff", "double.3.out: not UTF-8 text"),
        ("bad.c", "int main(void) { return 0; }", "bad.c: no tests"),
        ("test_gone.py", "", "test_gone.py: the tests of gone.py, which is missing"),
    ],
)
def test_a_program_without_tests_that_can_fail_is_an_error(
    tmp_path: Path, name: str, text: str | bytes, message: str
) -> None:
    folder = gate_folder(tmp_path)
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    result = score(str(folder))
    assert isinstance(result.exception, SceError)
    assert message in str(result.exception)


@pytest.mark.parametrize(("flags", "is_passed"), [((), False), (("--fail-under", "0.5"), True)])
@pytest.mark.parametrize("has_problems", [False, True])
def test_a_missing_program_counts_as_one_that_fails(
    tmp_path: Path, problems: str, has_problems: bool, flags: tuple[str, ...], is_passed: bool
) -> None:
    folder = tmp_path / "answers"
    for name, text in {"a.py": RIGHT, "a.1.in": "1", "a.1.out": "2", "deep/b.2.in": "1", "deep/b.2.out": "2"}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    report = tmp_path / "report.xml"
    sources = ("--problems", problems) if has_problems else ()
    result = score(str(folder), *sources, *flags, "--junit", str(report))
    name = "b" if has_problems else "deep/b"
    assert f"1 problem without a program: {name}" in result.stderr.splitlines()
    reason = "passed" if is_passed else "failed: 1 of 2 programs pass all tests (1 missing), under 100%"
    assert (result.exit_code, result.stderr.splitlines()[-1]) == (int(not is_passed), reason)
    cases = {each.get("name"): len(each) for each in ElementTree.parse(report).getroot().iter("testcase")}
    assert cases == {f"{folder}/a.py": 0, name: 1}


@pytest.mark.parametrize(("flags", "code"), [((), 0), (("--fail-under", "1"), 1), (("--fail-under", "0.5"), 0)])
def test_a_missing_completion_counts_if_there_is_a_gate(
    tmp_path: Path, problems: str, flags: tuple[str, ...], code: int
) -> None:
    completions = write_jsonl(tmp_path / "completions.jsonl", [{"id": "a", "completion": RIGHT}])
    assert score("--problems", problems, "--completions", completions, *flags).exit_code == code


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        ((), "passed; 1 security test failed, which --fail-on counts"),
        (("--fail-on", "high"), "failed: 1 high among findings and security tests"),
    ],
)
def test_a_gate_says_that_security_tests_failed(tmp_path: Path, flags: tuple[str, ...], reason: str) -> None:
    attack = {"name": "large", "cwe": 20, "input": "999", "output": "no"}
    record = {"id": "a", "statement": "Double it.", "tests": [{"input": "1", "output": "2"}]}
    problems = write_jsonl(tmp_path / "attacked.jsonl", [{**record, "security_tests": [attack]}])
    folder = tmp_path / "answers"
    folder.mkdir()
    (folder / "a.py").write_text(RIGHT)
    assert score(str(folder), "--problems", problems, *flags).stderr.splitlines()[-1] == reason


@pytest.mark.parametrize("suffix", [".c", ".pyw"])
def test_only_tests_in_python_are_left_out_of_programs(tmp_path: Path, suffix: str) -> None:
    for name in (f"a{suffix}", "a.out", f"test_a{suffix}"):
        (tmp_path / name).write_text("1")
    with pytest.raises(UsageError, match=f"test_a{suffix}: no tests"):
        CliRunner().invoke(sce, ["score", str(tmp_path)], catch_exceptions=False)


def test_a_program_elsewhere_is_an_error_and_other_files_are_named(tmp_path: Path) -> None:
    folder = gate_folder(tmp_path)
    for name in ("gone.out", "notes.md"):
        (folder / name).write_text("1")
    assert "left out: 1 .md, 1 .out" in score(str(folder)).stderr
    elsewhere = tmp_path / "elsewhere.py"
    elsewhere.write_text(RIGHT)
    (folder / "wrong.py").unlink()
    (folder / "wrong.py").symlink_to(elsewhere)
    with pytest.raises(UsageError, match="1 link to elsewhere, which sce does not run"):
        CliRunner().invoke(sce, ["score", str(folder)], catch_exceptions=False)


@pytest.mark.parametrize("suffix", [".in", ".out"])
@pytest.mark.parametrize("kind", ["link", "broken link", "link to a folder", "pipe", "folder"])
def test_a_test_elsewhere_is_an_error(tmp_path: Path, kind: str, suffix: str) -> None:
    """A program could print a file of the user, and a report would show it."""
    folder = gate_folder(tmp_path)
    (tmp_path / "key").write_text("4")
    test = folder / f"double.7{suffix}"
    (folder / "double.7.in").write_text("4")
    (folder / "double.7.out").write_text("8")
    test.unlink()
    match kind:
        case "link":
            test.symlink_to("../key")
        case "broken link":
            test.symlink_to("nowhere")
        case "link to a folder":
            test.symlink_to("..")
        case "pipe":
            os.mkfifo(test)
        case "folder":
            test.mkdir()
    with pytest.raises(UsageError, match=rf"double.7{suffix}: not a regular file of "):
        CliRunner().invoke(sce, ["score", str(folder)], catch_exceptions=False)


def test_a_test_may_be_a_link_within_the_folder(tmp_path: Path) -> None:
    folder = gate_folder(tmp_path)
    (folder / "tests").mkdir()
    (folder / "tests" / "four").write_text("4")
    (folder / "double.7.in").symlink_to("tests/four")
    (folder / "double.7.out").write_text("9")
    assert "double.py: fails: passes 2 of 3 tests" in score(str(folder)).output


@pytest.mark.parametrize("name", ["::error::x.py", " ::error::x.py", "##[error]x.py", "a ##VSO[error]x.py"])
def test_a_name_of_a_program_commands_no_runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    Path(name).write_text("print(eval('3'))  ###vso[error]##[error]")
    Path(name).with_suffix(".out").write_text("3")
    of_program = json.loads(score(name, "--expect", "3", "--json").stdout)
    assert of_program["program"] == Path(name).read_text()
    for words in ((".",), (name,), (name, "--expect", "4"), (name, "--expect", "3", "--json"), (".", "--json")):
        result = score(*words)
        assert "error" in result.stdout or words[1:]
        for line in (result.stdout + result.stderr).splitlines():
            assert not line.strip().startswith(("::", "##"))
            assert "##[" not in line
            assert "##vso[" not in line.lower()


@pytest.mark.parametrize(
    ("share", "passing", "total", "is_passed"),
    [("0.56", 14, 25, True), ("0.55", 55, 100, True), ("0.56", 13, 25, False), ("0.07", 7, 100, True)],
)
def test_a_share_is_compared_as_it_was_written(
    tmp_path: Path, share: str, passing: int, total: int, is_passed: bool
) -> None:
    rows = [{"id": "a", "sample": k, "completion": RIGHT if k < passing else "print(0)"} for k in range(total)]
    problem = {"id": "a", "statement": "Double it.", "tests": [{"input": "2", "output": "4"}]}
    files = (
        "--problems", write_jsonl(tmp_path / "p.jsonl", [problem]),
        "--completions", write_jsonl(tmp_path / "c.jsonl", rows),
    )  # fmt: skip
    result = score(*files, "--fail-under", share)
    assert (result.exit_code == 0) is is_passed, result.stderr
    assert is_passed or result.stderr.splitlines()[-1] == "failed: 13 of 25 programs pass all tests, under 56%"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("FOLDER", "FILE"), "a folder is scored alone"),
        (("FOLDER", "--completions", "x"), "--completions cannot be combined with a FOLDER"),
        (("FOLDER", "--expect", "x"), "--expect cannot be combined with a FOLDER"),
        (("FOLDER", "--language", "c"), "--language cannot be combined with a FOLDER"),
        (("FOLDER", "--extract", "raw"), "--extract cannot be combined with a FOLDER"),
        (("FOLDER", "--problems", "starter:eval"), "no problem 'double' in --problems"),
        (("FILE", "--fail-on", "medium"), "--fail-on needs --expect, or a FOLDER"),
    ],
)
def test_wrong_uses_of_the_gate_are_named(tmp_path: Path, words: tuple[str, ...], message: str) -> None:
    folder = gate_folder(tmp_path)
    places = {"FOLDER": str(folder), "FILE": str(folder / "double.py")}
    with pytest.raises(UsageError, match=message):
        CliRunner().invoke(sce, ["score", *(places.get(word, word) for word in words)], catch_exceptions=False)


def test_the_pipeline_of_the_page_passes_and_fails_as_it_should(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "guides" / "ci.md").read_text(encoding="utf-8")
    script = page.partition("```sh\n")[2].partition("```")[0]
    assert len(script.splitlines()) == 5
    command = tmp_path / "sce"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m securecoderl_edge "$@"\n')
    command.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}

    def run() -> subprocess.CompletedProcess[str]:
        words = ["sh", "-c", script]
        return subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    programs = gate_folder(tmp_path)
    for name in ("unsafe.py", "unsafe.in", "unsafe.out", "wrong.py", "test_wrong.py"):
        (programs / name).unlink()
    source = tmp_path / "src" / "a.py"
    source.parent.mkdir()
    source.write_text("assert input()\n")
    assert run().stdout == "programs/double.py: passes 2 of 2 tests\nboth gates passed\n"
    source.write_text("print(eval(input()))\n")
    done = run()
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "failed: 1 finding of severity medium or higher"
    assert json.loads((tmp_path / "findings.sarif").read_text())["runs"][0]["results"]
    source.write_text("")
    (programs / "double.2.out").write_text("11")
    assert run().stderr.splitlines()[-1] == "failed: 0 of 1 programs pass all tests, under 90%"
