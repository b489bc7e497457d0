"""`sce score` of programs in C."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from securecoderl_edge.cli import sce
from securecoderl_edge.errors import UsageError


def write_jsonl(path: Path, records: list[Any]) -> str:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return str(path)


def score(*arguments: str) -> Result:
    return CliRunner().invoke(sce, ["score", *arguments])


def test_a_file_in_c_is_compiled_and_its_language_can_be_named(c_compiler: None, tmp_path: Path) -> None:
    program = '#include <stdio.h>\nint main(void) { int n; scanf("%d", &n); printf("%d\\n", 2 * n); return 0; }\n'
    for name, more in (("double.c", ()), ("double.txt", ("--language", "c"))):
        file = tmp_path / name
        file.write_text(program)
        result = score(str(file), "--input", "21", "--expect", "42", *more)
        assert result.exit_code == 0, result.output
        assert result.stdout == "passes: it prints the expected output\nlevel 4 (passes all tests), reward 1.00\n"


def test_findings_of_analyzers_are_shown_with_line_rule_and_weakness(analyzers: None, tmp_path: Path) -> None:
    file = tmp_path / "name.c"
    file.write_text(
        "#include <stdio.h>\nint main(void) {\n    char name[9];\n"
        '    scanf("%s", name);\n    puts(name);\n    return 0;\n}\n'
    )
    options = (str(file), "--input", "Ann", "--expect", "Ann")
    result = score(*options)
    assert result.exit_code == 0, result.output
    assert result.stdout == (
        "passes: it prints the expected output\n"
        "high security finding invalidscanf (CWE-120) in line 4\n"
        "level 4 (passes all tests), reward 0.60 = 0.6 x 1.00 (tests) + 0.4 x 0.00 (security)\n"
    )
    record = json.loads(score(*options, "--json").stdout)
    assert list(record["analyzers"]) == ["gcc -fanalyzer", "cppcheck"]
    assert "reward 1.00" in score(*options, "--analyzers", "off").stdout


def test_files_in_c_are_scanned_and_not_run(analyzers: None, tmp_path: Path) -> None:
    programs = {
        "endless.c": "int main(void) { for (;;); }\n",
        "unsafe.c": '#include <stdio.h>\nint main(void) {\n    char name[9];\n    return scanf("%s", name);\n}\n',
        "broken.c": "int main(void {\n",
        "unsafe.py": "eval(input())\n",
    }
    for name, text in programs.items():
        (tmp_path / name).write_text(text)
    result = score(*(str(tmp_path / name) for name in programs))
    lines = [line.removeprefix(f"{tmp_path}/") for line in result.stdout.splitlines()]
    assert lines[0] == "unsafe.c:4: high security finding invalidscanf (CWE-120)"
    assert lines[1].startswith(f"broken.c: does not compile: {tmp_path}/broken.c:1:15: error")
    assert lines[-1] == "unsafe.py:1: medium security finding B307 (CWE-78)"
    assert (result.exit_code, result.stderr) == (1, "scanned 4 files, ran none; 3 with findings\n")


@pytest.mark.parametrize("more", [["--analyzers", "off"], ["--target", "cortex-m3"], ["--json"]])
def test_a_file_in_c_is_scanned_by_analyzers_alone(tmp_path: Path, more: list[str]) -> None:
    file = tmp_path / "double.c"
    file.write_text("int main(void) { return 0; }\n")
    result = score(str(file), *more)
    assert isinstance(result.exception, UsageError)
    assert "--expect" in str(result.exception)


def test_completions_of_problems_in_c_are_scored(c_compiler: None, tmp_path: Path) -> None:
    tests = [{"input": "1\n", "output": "2\n"}, {"input": "4\n", "output": "8\n"}]
    problems = [{"id": "a", "statement": "Double it.", "tests": tests, "language": "c"}]
    program = '#include <stdio.h>\nint main(void) { int n; scanf("%d", &n); printf("%d\\n", 2 * n); return 0; }'
    completions = [{"id": "a", "completion": f"In C:\n```c\n{program}\n```\nDone."}]
    files = [write_jsonl(tmp_path / name, each) for name, each in (("p.jsonl", problems), ("c.jsonl", completions))]
    row = json.loads(score("--problems", files[0], "--completions", files[1]).stdout)
    assert (row["stage"], row["passed"], row["program"].strip()) == (4, 2, program)


CLAMP = """\
#include <stdio.h>
int main(void) { int v; scanf("%d", &v); printf("%d\\n", v > 255 ? 255 : v); return 0; }
"""


def test_a_file_is_built_for_a_target_measured_and_held_to_a_budget(
    c_compiler: None, cortex_m3: None, tmp_path: Path
) -> None:
    file = tmp_path / "clamp.c"
    file.write_text(CLAMP)
    options = (str(file), "--input", "300", "--expect", "255", "--target", "cortex-m3")
    result = score(*options)
    assert result.exit_code == 0, result.output
    verdict, measured, level = result.stdout.splitlines()
    assert (verdict, level) == ("passes: it prints the expected output", "level 4 (passes all tests), reward 1.00")
    assert re.fullmatch(r"cortex-m3: \d+ bytes of code, .*no heap, no floating point, no recursion", measured)
    over = score(*options, "--budget", '{"code_bytes": 9, "heap": false}')
    assert over.exit_code == 1
    assert re.search(r"^over budget: \d+ bytes of code, limit 9\nlevel 3 \(prints\), reward 0.76 = ", over.stdout, re.M)
    record = json.loads(score(*options, "--json").stdout)
    assert record["footprint"]["heap"] is False


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--budget", "{}"), "Missing option --target"),
        (("--target", "cortex-m3", "--budget", "{"), "--budget: "),
        (("--target", "cortex-m3", "--budget", '{"flash": 1}'), "must be an object of code_bytes"),
        (("--target", "cortex-m3", "--language", "python"), "--target is for programs in C"),
    ],
)
def test_a_target_and_a_budget_that_do_not_fit_are_usage_errors(
    tmp_path: Path, options: tuple[str, ...], message: str
) -> None:
    file = tmp_path / "clamp.c"
    file.write_text(CLAMP)
    result = score(str(file), "--expect", "1", *options)
    assert isinstance(result.exception, UsageError)
    assert message in str(result.exception)


def test_a_target_is_no_option_for_many_completions(tmp_path: Path) -> None:
    result = score("--problems", "p", "--completions", "c", "--target", "cortex-m3")
    assert isinstance(result.exception, UsageError)
    assert "--target and --budget need FILE" in str(result.exception)
