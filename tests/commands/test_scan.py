"""`sce scan` from the command line: what is found, in which format, and with which exit code."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path

import jsonschema
import pytest
from c_compiler import why_no_c
from cli_runs import run_sce
from sarif_schema import validate

from securecoderl_edge.languages import analyzers
from securecoderl_edge.languages.language import PYTHON
from securecoderl_edge.sandbox import file_scan, levels
from securecoderl_edge.sandbox.bandit_config import ScanRules
from securecoderl_edge.sandbox.file_scan import FileFinding, FileScanner, not_scanned
from securecoderl_edge.sandbox.source_files import SourceFile, kinds_in_words
from securecoderl_edge.scoring.baseline import VERSION
from securecoderl_edge.system.folders import config_file

SHELL = "import os\nos.system(input())\n"
EVAL = "print(eval(input()))\n"
LOW = "assert input()\n"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a finding of each severity, in which the command runs."""
    monkeypatch.chdir(tmp_path)
    for name, text in {"src/high.py": SHELL, "src/deep/medium.py": EVAL, "src/low.py": LOW, "src/clean.py": ""}.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "src" / "notes.md").write_text("eval(input())")
    return tmp_path


def scan(*words: str, code: int | None = None, stdin: str = "") -> str:
    """Standard output; fails if the exit code is another."""
    found, out, err = run_sce("scan", *words, stdin=stdin)
    assert code is None or found == code, out + err
    return out


def ids(*words: str) -> list[str]:
    """``file:line:id`` of each finding."""
    found = json.loads(scan(*words, "--format", "json"))["findings"]
    return [f"{each['path']}:{each['line']}:{each['id']}" for each in found]


def test_text_has_place_severity_check_weakness_message_and_page(project: Path) -> None:
    lines = scan("src/high.py", code=1).splitlines()
    assert lines[0].startswith("src/high.py:2:1: high B605 (CWE-78): Starting a process with a shell")
    assert lines[1].startswith("  https://bandit.readthedocs.io/")


def test_files_come_in_the_order_of_their_names_however_many_processes_scan(project: Path) -> None:
    expected = ["src/deep/medium.py:1:B307", "src/high.py:2:B605", "src/low.py:1:B101"]
    assert ids("src") == ids("src", "--workers", "3") == ids("src/low.py", "src", "./src/high.py") == expected


@pytest.mark.parametrize(
    ("flags", "code"),
    [
        ((), 1),
        (("--exit-zero",), 0),
        (("--fail-on", "high"), 1),
        (("--exclude", "high.py", "--fail-on", "medium"), 1),
        (("--exclude", "high.py,deep", "--fail-on", "medium"), 0),
        (("--severity", "high", "--exclude", "src/high.py"), 0),
        (("--severity", "high", "--exclude", "./src/high.py"), 0),
        (("--severity", "high", "--exclude", ".//src//hi*.py"), 0),
        (("--select", "B101", "--fail-on", "medium"), 0),
        (("--skip", "B101,B307,B605"), 0),
        (("--skip", "b101,b307", "--fail-on", "High"), 1),
        (("--skip", "b605", "--fail-on", "High"), 0),
    ],
)
def test_the_exit_code_says_whether_something_fails_and_the_last_line_why(
    project: Path, flags: tuple[str, ...], code: int
) -> None:
    found, _, err = run_sce("scan", "src", *flags)
    assert found == code
    start = "passed by --exit-zero: " if flags == ("--exit-zero",) else "failed: " if code else "passed"
    assert err.splitlines()[-1].startswith(start)


@pytest.mark.parametrize("config", [False, True])
@pytest.mark.parametrize("name", ["src/high.py", "./src/high.py"])
def test_files_that_are_named_and_all_excluded_are_no_error(project: Path, name: str, config: bool) -> None:
    """As a hook of a commit names them."""
    if config:
        Path("pyproject.toml").write_text('[tool.bandit]\nexclude_dirs = ["src"]\n')
    code, out, err = run_sce("scan", name, *(() if config else ("--exclude", "./src/")))
    assert (code, out) == (0, "")
    assert err.splitlines()[-2:] == ["scanned 0 files, ran none: no findings; left out: 1 excluded", "passed"]


def test_no_error_advises_to_run_without_isolation(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(levels, "has_seccomp", lambda: False)
    code, _, err = run_sce("scan", "src")
    assert code == 2
    assert "no seccomp (CONFIG_SECCOMP_FILTER); see `sce doctor`\n" in err


def test_other_files_are_counted_in_words(project: Path) -> None:
    Path("src/out.py").symlink_to("/etc/hostname")
    os.mkfifo("src/pipe.py")
    for number in range(5):
        Path(f"src/x.k{number}").touch()
    expected = "left out: 1 .k0, 1 .k1, 1 .k2, 1 .k3, 1 .k4, 1 .md, and 2 more kinds"
    assert expected in run_sce("scan", "src")[2]
    for number in range(4):
        Path(f"src/x.k{number}").unlink()
    assert "1 link to elsewhere, 1 not regular file" in run_sce("scan", "src")[2]
    assert kinds_in_words(Counter("ab"), 1) == "1 a, and 1 more kind"


def test_a_configuration_may_not_hide_what_fails(project: Path) -> None:
    Path(".bandit").write_text("[bandit]\nlevel = 3\n")
    code, _, err = run_sce("scan", "src", "--exclude", "high.py", "--fail-on", "medium")
    assert code == 2
    assert "--fail-on medium: severity high in .bandit does not report such findings" in err
    assert run_sce("scan", "src", "--exclude", "high.py", "--fail-on", "medium", "--severity", "low")[0] == 1
    assert run_sce("scan", "src", "--exclude", "high.py", "--fail-on", "high")[0] == 0


@pytest.mark.parametrize("command", ["scan", "score"])
def test_the_users_defaults_of_a_gate_are_named_and_ignored_if_isolated(
    project: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(project / "settings"))
    defaults = {"scan": 'skip = "B307,B605"\nseverity = "high"', "score": "fail_under = 0.0"}
    config_file().parent.mkdir(parents=True)
    config_file().write_text("".join(f"[{name}]\n{text}\n" for name, text in defaults.items()))
    Path("src/high.out").write_text("never")
    Path("src/low.py").unlink()
    shutil.rmtree("src/deep")
    Path("src/clean.py").unlink()
    code, _, err = run_sce(command, "src")
    options = {"scan": "skip, severity", "score": "fail-under"}[command]
    assert (code, err.splitlines()[0]) == (0, f"defaults: {config_file()} ({options})")
    code, _, err = run_sce(command, "src", "--isolated")
    assert code == 1
    assert "defaults: " not in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("nothing",), "nothing: no such file or folder"),
        (("src/notes.md",), "src/notes.md: neither .py nor .c"),
        (("src", "--exclude", "*.md", "--language", "c"), "src: no files in Python or C to scan. Left out: 4 .py"),
        (("src", "--exclude", "*.py"), "src: no files in Python or C to scan. Left out: 4 excluded"),
        (("src", "--select", "B999"), "--select B999: no such check"),
        (("src", "--skip", "eval"), "--skip eval: no such check"),
        (("src", "--skip", "SCE001"), "--skip SCE001: files that are not scanned in full (SCE001) are always reported"),
        (("src", "--select", "SCE001"), "--select SCE001: files that are not scanned"),
        (("src", "--select", "-Wanalyzer-double-free"), "No check is left to run on these files"),
        (("src", "--select", "B101", "--skip", "B101"), "No check is left to run on these files"),
        (("src", "--baseline", "known.json"), "known.json: no such file. Write it with --write-baseline"),
        (("src", "--baseline", "src/high.py"), "src/high.py: not a baseline"),
        (("src", "--baseline", "a", "--write-baseline", "b"), "exclude each other"),
        (("src", "--config", "none.toml"), "none.toml: no such file"),
        (("src", "--severity", "high", "--fail-on", "low"), "--fail-on low: --severity high does not report"),
        (("src", "--isolated", "--respect-nosec"), "--isolated obeys no file"),
        (("src/high.py", "--out", "src/high.py"), "src/high.py is also an input file"),
        (("src", "--out", "src"), "src"),
        (("src", "--out", "src/high.py"), "src/high.py is also an input file"),
        (("src", "--write-baseline", "src/deep/../high.py"), "is also an input file"),
        (("src", "--exclude", "high.py", "--out", "src/high.py"), "--out src/high.py: it exists"),
        (("src", "--baseline", "k.json", "--out", "k.json"), "k.json is also an input file"),
        (("src", "--write-baseline", "new.json", "--out", "./new.json"), "makes no report"),
        (("src", "--write-baseline", "new.json", "--format", "sarif"), "makes no report, and fails nothing"),
        (("src", "--write-baseline", "new.json", "--fail-on", "high"), "Leave out --fail-on"),
        (("src", "--workers", "100000"), "100000 is not in the range"),
        (("",), "an empty text is not a path"),
        (("book.ipynb",), "book.ipynb: a notebook, not a program"),
        (("x.c", "--analyzers", "off"), "Left out: 1 .c without an analyzer (--analyzers off)"),
        (("src", "--config", "setup.cfg", "--out", "setup.cfg"), "setup.cfg is also an input file"),
        (("/dev/null",), "/dev/null: not a regular file"),
        (("src", "--format", "xml"), "is not one of"),
        ((), "Missing argument"),
    ],
)
def test_a_wrong_use_is_exit_code_two_and_says_what_is_wrong(
    project: Path, words: tuple[str, ...], message: str
) -> None:
    known = json.dumps({"version": VERSION, "findings": []})
    (project / "k.json").write_text(known)
    (project / "setup.cfg").write_text("[bandit]\n")
    (project / "book.ipynb").write_text("{}")
    (project / "x.c").write_text("int main(void) { return 0; }\n")
    code, out, err = run_sce("scan", *words)
    assert (code, out) == (2, "")
    assert message in err
    assert (project / "k.json").read_text() == known
    assert "Traceback" not in err
    assert (project / "src" / "high.py").read_text() == SHELL


def test_no_more_processes_scan_than_there_are_files(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started, scanner = [], file_scan.SecurityScanner
    monkeypatch.setattr(file_scan, "SecurityScanner", lambda rules: started.append(rules) or scanner(rules))
    scan("src/high.py", "src/low.py", "--workers", "500", code=1)
    assert len(started) == 2


def test_a_file_that_takes_long_keeps_no_later_one_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    files, is_last = [SourceFile(f"{number:03}.py", PYTHON) for number in range(100)], threading.Event()

    def scan_one(_: FileScanner, file: SourceFile) -> list[FileFinding]:
        if file == files[-1]:
            is_last.set()
        assert file != files[0] or is_last.wait(20), "the last file waits for the first"
        return [not_scanned(file.name, "")]

    monkeypatch.setattr(FileScanner, "_scan", scan_one)
    with FileScanner(ScanRules(), len(files), 2) as scanner:
        assert [each.path for found in scanner.scan(files) for each in found] == [file.path for file in files]


def test_standard_input_is_scanned(project: Path) -> None:
    assert "<stdin>:1:7: medium B307" in scan("-", stdin=EVAL, code=1)


def test_a_pipe_is_not_waited_for(project: Path) -> None:
    os.mkfifo(project / "src" / "pipe.py")
    scanning = threading.Thread(target=scan, args=("src", "--exit-zero"), daemon=True)
    scanning.start()
    scanning.join(60)
    assert not scanning.is_alive()


HOSTILE = {
    "null byte": b"print(1)\0",
    "not UTF-8": b"x = '\xff'\n",
    "unknown encoding": b"# coding: nonsense\n",
    "no syntax": b"def f(:\n",
    "too deep": b"x = " + b"(" * 5000 + b")" * 5000,
    "too long": b"#" * (8 << 20) + b"\nprint(1)",
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_file_that_cannot_be_scanned_is_a_high_finding(project: Path, kind: str) -> None:
    (project / "a.py").write_bytes(HOSTILE[kind])
    (finding,) = json.loads(scan("a.py", "--format", "json", code=1))["findings"]
    assert (finding["id"], finding["severity"]) == ("SCE001", "high")
    for flags in (("--select", "B602"), ("--severity", "high", "--confidence", "high")):
        assert "SCE001" in scan("a.py", *flags, code=1)
    for line in ("skips: [SCE001]", "tests: [B602]", "tests: [SCE001, B602]"):
        (project / "bandit.yaml").write_text(line)
        assert "SCE001" in scan("a.py", code=1)


@pytest.mark.parametrize(
    ("data", "column"),
    [
        (b"print(eval(input()))\n", 7),
        ("x = 'é😀'; eval(x)\n".encode(), 11),
        ("\ufeffx = 'é'; eval(x)\n".encode(), 10),
        (b"# coding: latin-1\nx = '\xe9'; eval(x)\n", 10),
    ],
)
def test_columns_count_characters(project: Path, data: bytes, column: int) -> None:
    (project / "a.py").write_bytes(data)
    (finding,) = json.loads(scan("a.py", "--format", "json"))["findings"]
    assert (finding["id"], finding["column"]) == ("B307", column)


def test_code_behind_a_coding_cookie_is_found_as_python_would_run_it(project: Path) -> None:
    (project / "a.py").write_bytes(b"# coding: utf-7\n# +AAoAZQB2AGEAbAAoACIAMQAiACk-\n")
    assert [each.rpartition(":")[2] for each in ids("a.py")] == ["B307"]


def test_what_bandit_would_not_find_is_marked(project: Path) -> None:
    (project / "a.py").write_text("e = eval\nprint(e(input()))\n")
    (finding,) = json.loads(scan("a.py", "--format", "json"))["findings"]
    assert finding["tool"].startswith("sce")
    assert "(in addition to Bandit)" in scan("a.py")


def test_names_of_files_neither_end_a_line_nor_reach_the_terminal_nor_command_a_runner(project: Path) -> None:
    hostile = (" ::error::h.py", "  ##x.py", "::stop.py", "##[group]c.py")
    for name in (*hostile, "a\n::error::b.py", "\x1b]0;x\x07.py", "d\udcff.py", "e,f%0A:g.py"):
        (project / name).write_text(EVAL)
    text = scan(".", "--exclude", "src", code=1)
    assert text.count("\n") == 16
    assert not any(line.strip().startswith(("::", "##")) or "##[" in line for line in text.splitlines())
    assert "\x1b" not in text
    commands = scan(".", "--exclude", "src", "--format", "github", code=1).splitlines()
    assert len(commands) == 8
    assert all(line.startswith("::warning file=") and line.count("::") == 2 for line in commands)
    assert "file=e%2Cf%250A%3Ag.py,line=1,col=7,title=B307 (CWE-78)::" in "\n".join(commands)
    ElementTree.fromstring(scan(".", "--format", "junit"))
    validate(json.loads(scan(".", "--format", "sarif")))


def test_links_are_followed_within_the_folder_only(project: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    outside = tmp_path_factory.mktemp("outside") / "secret.py"
    outside.write_text(EVAL)
    (project / "src" / "out.py").symlink_to(outside)
    (project / "src" / "in.py").symlink_to("low.py")
    (project / "src" / "broken.py").symlink_to("nothing.py")
    (project / "src" / "loop").symlink_to(".")
    assert ids("src", "--skip", "B605,B307") == ["src/in.py:1:B101", "src/low.py:1:B101"]
    assert "1 link to elsewhere" in run_sce("scan", "src")[2]


def test_folders_of_tools_are_left_out_as_by_bandit_unless_named(project: Path) -> None:
    constants = pytest.importorskip("bandit.core.constants")
    for name in (".venv", "venv", "node_modules", "a.egg", ".nox", *constants.EXCLUDE):
        folder = project / "lib" / name.replace("*", "b")
        folder.mkdir(parents=True)
        (folder / "x.py").write_text(EVAL)
    command = [sys.executable, "-m", "bandit", "-r", "lib", "-f", "json", "-q", "--exit-zero"]
    reported = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)["results"]
    expected = sorted(f"{each['filename']}:{each['line_number']}:{each['test_id']}" for each in reported)
    assert "lib/b.egg/x.py:1:B307" in expected
    assert sorted(ids("lib")) == expected
    assert ids("lib/.git") == ["lib/.git/x.py:1:B307"]


def test_patterns_are_compared_below_the_folder_that_is_scanned(project: Path) -> None:
    root = project / "build" / "p"
    root.mkdir(parents=True)
    for name in ("a.py", "build.py"):
        (root / name).write_text(LOW)
    (root / "build").mkdir()
    (root / "build" / "c.py").write_text(LOW)
    for named in (str(root), "build/p"):
        found = ids(named, "--exclude", "build,*/p/build.py")
        assert [os.path.relpath(each) for each in found] == ["build/p/a.py:1:B101"] + (
            ["build/p/build.py:1:B101"] if named == str(root) else []
        )
    assert len(ids(str(root), "--exclude", f"{root}/*.py", "build/p/build/c.py")) == 1


def test_a_file_is_scanned_once_by_whichever_paths_it_is_named(
    project: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    (project / "src" / "link").symlink_to(tmp_path_factory.mktemp("elsewhere") / "below", target_is_directory=True)
    below = (project / "src" / "link").resolve()
    below.mkdir()
    (below.parent / "low.py").write_text(EVAL)
    assert ids("src/low.py", "src/link/../low.py") == ["src/link/../low.py:1:B307", "src/low.py:1:B101"]
    assert ids("src/low.py", str(project / "src"), "src/deep/../low.py", "--select", "B101") == ["src/low.py:1:B101"]


def test_a_link_to_itself_is_named_and_the_others_are_scanned(project: Path) -> None:
    (project / "src" / "a.py").symlink_to("a.py")
    assert [each.rpartition(":")[2] for each in ids("src")] == ["SCE001", "B307", "B605", "B101"]


def test_a_report_is_valid_text_whatever_files_contain(project: Path) -> None:
    (project / "src" / "low.py").write_text('password = "\\ud800"\n')
    (project / "src" / os.fsdecode(b"x.\xff")).write_text("")
    for kind in ("json", "sarif"):
        json.dumps(json.loads(scan("src", "--format", kind)), ensure_ascii=False).encode()


def test_sarif_is_valid_and_has_what_the_viewer_of_github_needs(project: Path) -> None:
    (project / "src" / "broken ä.py").write_text("def f(:")
    log = json.loads(scan("src", "--format", "sarif", code=1))
    validate(log)
    (run,) = log["runs"]
    rules = [each["id"] for each in run["tool"]["driver"]["rules"]]
    for result in run["results"]:
        assert rules[result["ruleIndex"]] == result["ruleId"]
        assert result["message"]["text"]
        place = result["locations"][0]["physicalLocation"]
        assert not place["artifactLocation"]["uri"].startswith(("/", "file:"))
        assert place["region"]["startLine"] >= 1
        assert result["partialFingerprints"]["primaryLocationLineHash"]
    assert [each["level"] for each in run["results"]] == ["error", "warning", "error", "note"]
    assert "src/broken%20%C3%A4.py" in json.dumps(log)
    assert run["invocations"] == [{"executionSuccessful": False}]
    with pytest.raises(jsonschema.ValidationError):
        validate({**log, "version": "2.0"})


def test_sarif_names_no_file_by_a_way_out_of_its_root(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project / "src" / "deep")
    (run,) = json.loads(scan("../deep/medium.py", "../low.py", "--format", "sarif", code=1))["runs"]
    places = [each["locations"][0]["physicalLocation"]["artifactLocation"] for each in run["results"]]
    elsewhere = (project.resolve() / "src" / "low.py").as_uri()
    assert places == [{"uri": "medium.py", "uriBaseId": "%SRCROOT%"}, {"uri": elsewhere}]


@pytest.mark.parametrize("names", [("a.py", "b.py"), ("b.py", "a.py")])
def test_sarif_gives_a_check_the_highest_severity_of_its_findings(project: Path, names: tuple[str, str]) -> None:
    texts = ("subprocess.call('ls', shell=True)", "subprocess.call(input(), shell=True)")
    for name, text in zip(names, texts, strict=True):
        (project / name).write_text(f"import subprocess\n{text}\n")
    (run,) = json.loads(scan("a.py", "b.py", "--select", "B602", "--format", "sarif"))["runs"]
    assert sorted(each["level"] for each in run["results"]) == ["error", "note"]
    (rule,) = run["tool"]["driver"]["rules"]
    assert (rule["properties"]["security-severity"], rule["defaultConfiguration"]["level"]) == ("8.0", "error")


def test_numbers_of_findings_are_counted_in_words(project: Path) -> None:
    (project / "src" / "low.py").write_text(LOW * 2)
    root = ElementTree.fromstring(scan("src", "--format", "junit"))
    assert [each.attrib["message"] for each in root.iter("failure")] == ["1 finding", "1 finding", "2 findings"]


def test_a_long_line_is_read_once_and_not_for_each_of_its_findings(project: Path) -> None:
    (project / "long.py").write_text(f"{'eval(a);' * 9_999}#{'x' * 4_000_000}")
    started = time.process_time()  # of this process, not of the one that scans
    found = json.loads(scan("long.py", "--select", "B307", "--format", "sarif"))["runs"][0]["results"]
    assert time.process_time() - started < 15  # once for each: a minute
    assert len({each["partialFingerprints"]["primaryLocationLineHash"] for each in found}) == len(found) > 0


def test_junit_has_a_case_per_file_and_a_failure_for_each_that_fails(project: Path) -> None:
    root = ElementTree.fromstring(scan("src", "--format", "junit", "--fail-on", "medium"))
    assert root.attrib["tests"] == "4"
    assert [case.attrib["name"] for case in root.iter("testcase") if case.find("failure") is not None] == [
        "src/deep/medium.py", "src/high.py"
    ]  # fmt: skip


def test_a_report_goes_to_a_file_whole_or_not_at_all(project: Path) -> None:
    assert scan("src", "--format", "json", "--out", "report.json", code=1) == ""
    assert json.loads((project / "report.json").read_text())["passed"] is False
    assert scan("src", "--out", "report.txt", code=1) == ""
    assert (project / "report.txt").read_text() == scan("src")


def test_only_what_a_baseline_does_not_know_is_reported(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scan("src", "--write-baseline", "known.json", code=0)
    assert scan("src", "--baseline", "known.json", code=0) == ""
    assert "input" not in (project / "known.json").read_text()  # nor any other text of the files
    file = project / "src" / "high.py"
    file.write_text("import os\n\n\nif True:\n    os.system(input())\n")  # moved and indented
    assert ids("src", "--baseline", "known.json") == []
    file.write_text("import os\nos.system(input())\nos.system(input())\n")
    assert ids("src", "--baseline", "known.json") == ["src/high.py:3:B605"]
    monkeypatch.chdir(project / "src")  # paths are relative to the baseline
    assert ids(".", "--baseline", "../known.json") == ["high.py:3:B605"]
    file.write_text("")
    assert "1 of the baseline not found any more" in run_sce("scan", ".", "--baseline", "../known.json")[2]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('os.popen(\n"ls")', "os.popen(\ninput())"),
        ("subprocess.call('ls', shell=True)", "subprocess.call(input(), shell=True)"),
        ("print(eval(\ninput(),\n{}))", "print(eval(\ninput(),\nglobals()))"),
        ("subprocess.call(\n'ls',\nshell=True)", "subprocess.call(\ninput(),\nshell=True)"),
    ],
)
def test_a_baseline_does_not_know_a_finding_whose_arguments_changed_on_another_line(
    project: Path, before: str, after: str
) -> None:
    file = project / "a.py"
    file.write_text(f"import os, subprocess\n{before}\n")
    scan("a.py", "--write-baseline", "known.json", code=0)
    file.write_text(f"import os, subprocess\n\nif 1:\n  {before}\n")
    assert ids("a.py", "--baseline", "known.json") == []
    file.write_text(f"import os, subprocess\n{after}\n")
    assert ids("a.py", "--baseline", "known.json") != []


def test_a_baseline_knows_a_function_by_its_head(project: Path) -> None:
    (project / "a.py").write_text("def f(password='secret'):\n    return 1\n")
    scan("a.py", "--write-baseline", "known.json", code=0)
    (project / "a.py").write_text("def f(password='secret'):\n    return 2\n")
    assert scan("a.py", "--baseline", "known.json", code=0) == ""


def test_a_file_that_cannot_be_scanned_is_never_known(project: Path) -> None:
    (project / "a.py").write_bytes(HOSTILE["too long"])
    code, _, err = run_sce("scan", "a.py", "--write-baseline", "known.json")
    assert code == 0
    assert err.startswith("not in the baseline: a.py: too long")
    assert "wrote 0 findings" in err
    assert "too long" in scan("a.py", "--baseline", "known.json", code=1)


def bomb(form: str) -> str:
    """A short text in YAML that stands for 9 ** 9 values."""
    lines = [f"{name}: &{name} {form.format(f'*{chr(ord(name) - 1)}, ' * 9)}" for name in "bcdefghij"]
    return "\n".join(["a: &a {x: 1}", *lines])


CONFIGURATIONS = {
    "pyproject.toml": '[tool.bandit]\nskips = ["B605"]\nexclude_dirs = ["deep"]\n[tool.bandit.assert_used]\n'
    "skips = ['*/low.py']\n",
    "bandit.yaml": "skips: [B605]\nexclude_dirs: [deep]\nassert_used: {skips: ['*/low.py']}\n",
    ".bandit": "[bandit]\nskips = B605,B101\nexclude = deep\n",
}


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_bandits_configuration_of_the_current_folder_is_obeyed_and_named_unless_isolated(
    project: Path, name: str
) -> None:
    (project / name).write_text(CONFIGURATIONS[name])
    code, _, err = run_sce("scan", ".")
    assert code == 0, err
    assert err.startswith(f"configuration: {name}\n")
    assert len(ids(".", "--isolated")) == 3
    (project / name).rename(project / "src" / name)  # what lies in the scanned folder says nothing
    assert len(ids("src")) == 3
    assert ids(".", "--config", f"src/{name}") == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("pyproject.toml", "[tool.bandit\n"),
        ("pyproject.toml", f"[tool.bandit]\n{'a.' * 200}a = 1\n"),
        ("pyproject.toml", "[tool.bandit]\nskips = 'B605'\n"),
        ("bandit.yaml", "skips: [\n"),
        ("bandit.yaml", "- a\n"),
        ("bandit.yaml", "profiles: {a: {include: [B101]}}\n"),
        (".bandit", "skips = B101\n"),
        (".bandit", "[bandit]\nlevel = all\n"),
        (".bandit", "[bandit]\nconfigfile = .bandit\n"),
        (".bandit", "[bandit]\nconfigfile = ../bandit.yaml\n"),
        (".bandit", "[bandit]\nconfigfile = src\n"),
        ("pyproject.toml", "[tool.bandit.assert_used]\nsince = 1979-05-27\n"),
        ("bandit.yaml", "assert_used: &a {skips: *a}\n"),
        ("bandit.yaml", "assert_used: {? [1, 2] : 3}\n"),
        ("bandit.yaml", "assert_used: {since: 1979-05-27}\n"),
        ("bandit.yaml", bomb("[{}]")),
        ("bandit.yaml", bomb("{{<<: [{}]}}")),
        ("bandit.yaml", f"assert_used: {'[' * 900}{']' * 900}\n"),
        ("bandit.yaml", f"assert_used: {{skips: {'x' * (1 << 17)}}}\n"),
    ],
)
def test_a_configuration_that_means_nothing_is_an_error(project: Path, name: str, text: str) -> None:
    (project / name).write_text(text)
    code, out, err = run_sce("scan", "src")
    assert (code, out) == (2, "")
    assert err.startswith(f"sce: {name}: ")


@pytest.mark.parametrize(
    "text", ["tests: [B999]", "tests: [SCE001]", "tests: [B301]\nskips: [B001]", "tests: [B602]\nskips: [B602]"]
)
def test_a_configuration_that_leaves_no_check_is_an_error(project: Path, text: str) -> None:
    (project / "bandit.yaml").write_text(text)
    code, out, err = run_sce("scan", "src")
    assert (code, out) == (2, "")
    assert "No check is left to run" in err


def test_the_old_id_of_bandits_lists_still_chooses_them(project: Path) -> None:
    (project / "bandit.yaml").write_text("tests: [B001]")
    assert ids("src") == ["src/deep/medium.py:1:B307"]


def test_options_may_be_longer_than_an_argument_of_a_command(project: Path) -> None:
    options = json.dumps([f"*/{number}{'é' * 50}.py" for number in range(1800)] + ["*/low.py"], ensure_ascii=False)
    (project / "pyproject.toml").write_text(f"[tool.bandit.assert_used]\nskips = {options}\n")
    assert ids("src") == ["src/deep/medium.py:1:B307", "src/high.py:2:B605"]


@pytest.mark.parametrize(
    ("comment", "is_silent"),
    [
        ("# nosec", True), ("#nosec: B605", True), ("# nosec start_process_with_a_shell", True),
        ("# nosec B101", False),
        ("# nosec B605,B101", True), ("# nosec b605 - read it", True), ("# nosec: it is our own", True),
        ("# noqa: S605 # nosec", True), ("# nosec B9605", False), ("# nosecrets are in it", False),
    ],
)  # fmt: skip
def test_comments_silence_what_they_name_if_they_are_respected(project: Path, comment: str, is_silent: bool) -> None:
    (project / "a.py").write_text(f"import os\nos.system(\n    input()\n)  {comment}\n")
    assert ids("a.py") == ["a.py:2:B605"]
    assert ids("a.py", "--respect-nosec") == ([] if is_silent else ["a.py:2:B605"])


@pytest.mark.skipif(bool(why_no_c()), reason=why_no_c() or "-")
def test_programs_in_c_are_analyzed_and_those_that_need_other_files_are_named(project: Path) -> None:
    (project / "a.c").write_text(
        "#include <stdlib.h>\nint main(void) {\n  char *p = malloc(3);\n  free(p);\n  free(p);\n}\n"
    )
    (project / "b.c").write_text('#include "own.h"\n')
    (project / "c.c").write_text("int main(void) {\n  return none;\n}\n")
    (project / "d.c").write_text("int other(void);\nint half(int *p) {\n  p = 0;\n  return *p / other();\n}\n")
    (project / "e.c").write_text("int other(void);\nint twice(void) {\n  return 2 * other();\n}\n")
    (project / "f.c").write_text('void none(void) {\n  __asm__("nop");\n}\n')
    names = [f"{letter}.c" for letter in "abcdef"]
    found = json.loads(scan(*names, "--format", "json", code=1))["findings"]
    assert {("a.c", 415), ("d.c", 476)} <= {(each["path"], each["cwe"]) for each in found}
    assert "e.c" not in {each["path"] for each in found}
    said = {each["path"]: each["text"] for each in found}
    assert said["b.c"].startswith("does not compile alone: b.c:1:")
    assert said["c.c"].startswith("does not compile alone: c.c:2:10: error: ")
    assert "inline assembly" in said["f.c"]


def test_programs_in_c_that_no_analyzer_reads_fail(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_scan, "find_analyzers", tuple)
    (project / "a.c").write_text("int main(void) {}\n")
    (project / "a.py").write_text("print(1)\n")
    assert ids("a.c", "a.py") == ["a.c:None:SCE001"]
    assert scan("a.c", "a.py", "--analyzers", "off", code=0) == ""


def test_an_analyzer_that_is_not_installed_is_named(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    others = tuple(each for each in analyzers.find_analyzers() if each.name != analyzers.CPPCHECK)
    monkeypatch.setattr(analyzers, "find_analyzers", lambda: others)
    (project / "a.c").write_text("int main(void) {}\n")
    assert "cppcheck (apt-get install cppcheck)" in run_sce("scan", "a.c")[2]
    assert "cppcheck" not in run_sce("scan", "src")[2]


def test_a_call_that_two_names_reach_is_reported_once(project: Path) -> None:
    (project / "a.py").write_text("import hashlib\nmade = {1: hashlib.md5, 2: hashlib.md5}\nprint(made[2](b''))\n")
    found = ids("a.py")
    assert len(found) == len({*found}) >= 1


def test_colors_are_for_terminals_that_want_them(project: Path) -> None:
    words = [sys.executable, "-m", "securecoderl_edge", "scan", "src"]
    for variables, is_colored in (
        ({"FORCE_COLOR": "1"}, True),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        ({}, False),
    ):
        environment = {name: each for name, each in os.environ.items() if name not in ("FORCE_COLOR", "NO_COLOR")}
        path = os.pathsep.join(sys.path)
        done = subprocess.run(
            words, env={**environment, **variables, "PYTHONPATH": path}, capture_output=True, text=True
        )
        assert done.returncode == 1
        assert ("\x1b[31m" in done.stdout or "\x1b[1;31m" in done.stdout) is is_colored
