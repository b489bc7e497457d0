"""`sce data`: import, check and show."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from dataset_files import BAD, GOOD, UNCHECKED, read_lines, write_lines

from securecoderl_edge.cli import main, sce
from securecoderl_edge.errors import SceError, UsageError
from securecoderl_edge.prompts.styles import format_statement

MBPP = {
    "task_id": 1,
    "text": "Add.",
    "code": "def add(a, b): return a + b",
    "test_list": ["assert add(1, 2) == 3"],
}


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(sce, ["data", *arguments])


# new


def test_a_new_file_passes_its_own_check() -> None:
    result = run("new")
    assert (result.exit_code, result.stdout) == (0, "")
    lines = result.stderr.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["sum", "is-even", "evaluate", "next"]
    assert lines[-1] == "next: change problems.jsonl, then run: sce data check problems.jsonl"
    checked = run("check", "problems.jsonl")
    assert checked.exit_code == 0
    assert "3 of 3 problems pass" in checked.stderr


def test_a_new_file_replaces_no_other() -> None:
    Path("mine.jsonl").write_text("mine")
    assert isinstance(run("new", "mine.jsonl").exception, UsageError)
    assert Path("mine.jsonl").read_text() == "mine"
    assert run("new", "mine.jsonl", "--force").exit_code == 0


def test_a_file_of_an_unknown_format_is_answered_with_a_record_that_works() -> None:
    write_lines(Path("pairs.jsonl"), [{"prompt": "Add.", "completion": "print(1)"}])
    message = str(run("import", "pairs.jsonl").exception)
    assert "pairs.jsonl: unknown format: records without tests (keys of the first record: 'completion'" in message
    (example,) = [line for line in message.splitlines() if line.startswith("{")]
    Path("works.jsonl").write_text(example)
    assert run("import", "works.jsonl").exit_code == 0


def test_files_of_a_folder_are_chosen_by_a_pattern() -> None:
    for name in ("train", "test"):
        write_lines(Path(f"{name}.jsonl"), [{**GOOD, "id": name}])
    assert run("import", ".", "--files", "te*", "--out", "out.json").exit_code == 0
    assert [record["id"] for record in read_lines("out.json")] == ["test"]


# import


def test_an_import_writes_problems_and_names_the_next_command() -> None:
    write_lines(Path("source.jsonl"), [MBPP, {**MBPP, "task_id": 2, "test_list": []}])
    result = run("import", "source.jsonl", "--out", "my problems.jsonl")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr.splitlines() == [
        "mbpp: read 2 problems, wrote 1 to my problems.jsonl",
        "dropped 1 problem: 1 no tests (first: source.jsonl:2)",
        "next: sce data check 'my problems.jsonl'",
    ]
    assert [record["id"] for record in read_lines("my problems.jsonl")] == ["mbpp/1"]


def test_without_out_the_file_is_named_after_the_format() -> None:
    write_lines(Path("source.jsonl"), [MBPP])
    assert run("import", "source.jsonl").exit_code == 0
    assert len(read_lines("mbpp-problems.jsonl")) == 1


def test_a_file_is_overwritten_only_by_force() -> None:
    write_lines(Path("source.jsonl"), [MBPP])
    Path("out.jsonl").write_text("old")
    refused = run("import", "source.jsonl", "--out", "out.jsonl")
    assert isinstance(refused.exception, UsageError)
    assert "--force" in str(refused.exception)
    assert Path("out.jsonl").read_text() == "old"
    assert run("import", "source.jsonl", "--out", "out.jsonl", "--force").exit_code == 0
    assert len(read_lines("out.jsonl")) == 1


def test_the_source_is_never_overwritten() -> None:
    write_lines(Path("source.jsonl"), [MBPP])
    Path("link.jsonl").symlink_to("source.jsonl")
    for out in ("source.jsonl", "./source.jsonl", "link.jsonl"):
        refused = run("import", "source.jsonl", "--out", out, "--force")
        assert isinstance(refused.exception, UsageError)
        assert "is also an input file" in str(refused.exception)
    assert read_lines("source.jsonl") == [MBPP]


def test_the_kind_filter_is_reported() -> None:
    call = {"id": "c", "statement": "s", "kind": "call", "entry_point": "f", "assertions": ["assert f()"]}
    write_lines(Path("source.jsonl"), [GOOD, call])
    result = run("import", "source.jsonl", "--kind", "call", "--out", "out.jsonl")
    assert "filtered out 1 problem: 1 stdin problem, not call (first: good)" in result.stderr
    assert [record["id"] for record in read_lines("out.jsonl")] == ["c"]


def test_an_import_that_leaves_nothing_says_why_and_writes_nothing() -> None:
    write_lines(Path("source.jsonl"), [MBPP])
    result = run("import", "source.jsonl", "--kind", "stdin")
    assert isinstance(result.exception, SceError)
    assert str(result.exception) == "no problem to write: 1 call problem, not stdin (first: mbpp/1)"
    assert [path.name for path in Path().iterdir()] == ["source.jsonl"]


def test_a_malformed_line_is_counted_and_the_rest_goes_on() -> None:
    Path("source.jsonl").write_text(f"{json.dumps(MBPP)}\n{{\n")
    result = run("import", "source.jsonl")
    assert result.exit_code == 0
    assert "dropped 1 problem: 1 not valid JSON (first: source.jsonl:2)" in result.stderr
    assert len(read_lines("mbpp-problems.jsonl")) == 1


def test_a_strict_import_of_a_malformed_source_is_an_error_and_leaves_no_file() -> None:
    Path("source.jsonl").write_text(f"{json.dumps(MBPP)}\n{{\n")
    result = run("import", "source.jsonl", "--strict")
    assert isinstance(result.exception, SceError)
    assert str(result.exception) == "source.jsonl:2: unusable record: not valid JSON (--strict)"
    assert [path.name for path in Path().iterdir()] == ["source.jsonl"]


def test_left_out_tests_are_reported() -> None:
    tests = [{"input": "", "output": " "}, {"input": "", "output": "1"}]
    write_lines(Path("source.jsonl"), [{**GOOD, "tests": tests}])
    result = run("import", "source.jsonl", "--out", "out.jsonl")
    assert "dropped 1 test: 1 empty expected output (first: good)" in result.stderr


# check


def test_a_check_of_sound_problems_succeeds() -> None:
    write_lines(Path("p.jsonl"), [GOOD])
    result = run("check", "p.jsonl")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == "p.jsonl: 1 of 1 problems pass, 0 fail\n"


def test_a_check_lists_failing_problems_and_exits_with_1() -> None:
    write_lines(Path("p.jsonl"), [GOOD, BAD, UNCHECKED])
    result = run("check", "p.jsonl")
    assert result.exit_code == 1
    assert result.stdout == "bad: the solution passes 0 of 1 tests (1 wrong)\n"
    assert result.stderr.splitlines() == [
        "p.jsonl: 1 of 3 problems pass, 1 fail (1 wrong)",
        "1 of 2 solutions fail",
        "1 problem without a reference solution (first: unchecked)",
        "bad:",
        *(
            "  with the input ''",
            "  wrong: it prints a different output",
            "    line 1 is        2",
            "    line 1 should be 1",
        ),
    ]


def test_a_check_of_problems_commands_no_runner() -> None:
    write_lines(Path("p.jsonl"), [{**BAD, "id": "::error::a"}, {**BAD, "id": "b ##[error]"}])
    assert run("check", "p.jsonl").stdout.splitlines() == [
        "./::error::a: the solution passes 0 of 1 tests (1 wrong)",
        "b #\\#[error]: the solution passes 0 of 1 tests (1 wrong)",
    ]


def test_a_check_fails_security_tests_that_nothing_fails() -> None:
    test = {"name": "code", "cwe": 95, "input": "exit()", "output": "1"}
    both = {**GOOD, "security_tests": [test], "insecure_solutions": ["print(1 if input() else 2)"]}
    write_lines(
        Path("p.jsonl"),
        [both, {**both, "id": "other", "insecure_solutions": ["import sys\nprint(1)\nassert not sys.stdin.read()"]}],
    )
    result = run("check", "p.jsonl", "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["kinds"] == {"wrong insecure solution": 1}
    write_lines(
        Path("p.jsonl"),
        [
            {
                **both,
                "solutions": ["input()", "import sys\nprint(1)\nassert not sys.stdin.read()"],
                "insecure_solutions": [],
            }
        ],
    )
    listed = run("check", "p.jsonl").stdout
    assert listed == "good: the best of 2 solutions fails security tests: code (CWE-95): crash\n"


def test_the_exit_code_of_a_check_reaches_the_shell() -> None:
    write_lines(Path("p.jsonl"), [BAD])
    with pytest.raises(SystemExit) as left:
        main(["data", "check", "p.jsonl"])
    assert left.value.code == 1


def test_a_check_prints_one_json_document() -> None:
    write_lines(Path("p.jsonl"), [GOOD, BAD, UNCHECKED])
    result = run("check", "p.jsonl", "--json")
    record = json.loads(result.stdout)
    assert result.exit_code == 1
    assert (record["total"], record["passed"], record["unchecked"]) == (3, 1, ["unchecked"])
    assert record["failed"] == [{"id": "bad", "kind": "wrong", "reason": "the solution passes 0 of 1 tests (1 wrong)"}]


def test_failing_problems_are_dropped_and_the_others_keep_all_tests() -> None:
    many = {**GOOD, "tests": [{"input": str(number), "output": "1"} for number in range(8)]}
    write_lines(Path("p.jsonl"), [many, BAD, UNCHECKED])
    result = run("check", "p.jsonl", "--drop-failing", "out.jsonl")
    assert result.exit_code == 1
    kept = read_lines("out.jsonl")
    assert [record["id"] for record in kept] == ["good", "unchecked"]
    assert len(kept[0]["tests"]) == 8


def test_dropping_all_problems_is_an_error_without_a_file() -> None:
    write_lines(Path("p.jsonl"), [BAD])
    result = run("check", "p.jsonl", "--drop-failing", "out.jsonl")
    assert isinstance(result.exception, SceError)
    assert not Path("out.jsonl").exists()


def test_an_existing_file_stops_a_check_before_it_runs() -> None:
    write_lines(Path("p.jsonl"), [BAD])
    result = run("check", "p.jsonl", "--drop-failing", "p.jsonl")
    assert isinstance(result.exception, UsageError)
    assert result.stdout == ""


def test_failing_problems_can_be_dropped_in_place_by_force() -> None:
    write_lines(Path("p.jsonl"), [GOOD, BAD])
    assert run("check", "p.jsonl", "--drop-failing", "p.jsonl", "--force").exit_code == 1
    assert [record["id"] for record in read_lines("p.jsonl")] == ["good"]


# show


def test_a_problem_is_shown_as_the_model_sees_it() -> None:
    write_lines(Path("p.jsonl"), [{**GOOD, "starter_code": "x = 1", "difficulty": "easy"}])
    result = run("show", "p.jsonl", "good")
    assert result.exit_code == 0
    assert format_statement("Say 1.", "x = 1").rstrip() in result.stdout
    for expected in (
        "id: good",
        "kind: stdin",
        "difficulty: easy",
        "solutions: 1",
        "--- test 1: expected output\n1\n",
    ):
        assert expected in result.stdout
    assert "print(1)" not in result.stdout


def test_security_tests_are_shown_with_their_names() -> None:
    test = {"name": "no\x1b[31m text", "cwe": 20, "input": "3", "output": "4"}
    write_lines(Path("p.jsonl"), [{**GOOD, "security_tests": [test]}])
    shown = run("show", "p.jsonl", "good").stdout
    assert "\n--- security test 1 (CWE-20, no\\x1b[31m text): input\n3\n" in shown
    assert "\n--- security test 1: expected output\n4\n" in shown


def test_a_call_problem_is_shown_with_its_assertions() -> None:
    write_lines(Path("source.jsonl"), [MBPP])
    run("import", "source.jsonl", "--out", "p.jsonl")
    assert "--- test 1\nassert add(1, 2) == 3\n" in run("show", "p.jsonl", "mbpp/1").stdout


def test_a_hostile_problem_cannot_steer_the_terminal() -> None:
    evil = "\x1b[2J\x9b\u202e\r"
    record = {
        **GOOD,
        "statement": evil + "s",
        "tests": [{"input": evil, "output": evil + "1"}],
        "tags": [evil],
    }
    write_lines(Path("p.jsonl"), [record])
    output = run("show", "p.jsonl", "good").output
    assert all(character == "\n" or character.isprintable() for character in output)


def test_a_shown_problem_can_be_had_as_json() -> None:
    write_lines(Path("p.jsonl"), [GOOD])
    record = json.loads(run("show", "p.jsonl", "good", "--json").stdout)
    assert record["prompt"] == format_statement("Say 1.")
    assert record["tests"] == GOOD["tests"]


def test_an_unknown_id_is_a_usage_error_with_the_nearest() -> None:
    write_lines(Path("p.jsonl"), [GOOD, BAD])
    result = run("show", "p.jsonl", "goood")
    assert isinstance(result.exception, UsageError)
    assert str(result.exception) == "p.jsonl has no problem 'goood'. Did you mean 'good'?"


@pytest.mark.parametrize("command", [["check", "nowhere"], ["show", "nowhere", "id"], ["import", "nowhere"]])
def test_a_missing_file_is_a_usage_error(command: list[str]) -> None:
    result = run(*command)
    assert isinstance(result.exception, UsageError)
    assert str(result.exception).startswith("nowhere: no such file")


def test_built_in_problems_can_be_shown() -> None:
    from securecoderl_edge.problems.sources import load_problems

    problem = load_problems("starter:eval")[0]
    result = run("show", "starter:eval", problem.id)
    assert f"id: {problem.id}" in result.stdout
    assert "--- test 5: input" in result.stdout
