"""Hostile files in C, for the compiler and for the sandbox: the verdict of each, and nothing left behind by any.

Each file of `hostile_c/` names its verdict in its first line. "no compile" and "report" (a sanitizer stopped it) are
those of C; "crash" is any other end that is not clean. An attack prints 42, which would be a pass, only if it succeeds.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from other_users import SECRET, Target, as_whom, goes_on, open_house, python_for, target

from securecoderl_edge.sandbox import Execution, SandboxPool
from securecoderl_edge.sandbox.sanitizers import findings_of, was_reported
from securecoderl_edge.scoring.reward import outcome

__all__ = ["open_house", "target"]  # fixtures
pytestmark = [pytest.mark.usefixtures("c_compiler"), pytest.mark.timeout(900)]

HOSTILE = Path(__file__).with_name("hostile_c")
FILES = sorted(HOSTILE.glob("*.c"))
SUSPECT = sorted((HOSTILE / "suspect").glob("*.c"))
WALL = {"sleeping": [2]}  # whose limit of seconds is reached: it is no use to wait longer
VERDICT = re.compile(r"/\* expect: ([a-z ]+)\. ")


@dataclass(frozen=True)
class Aftermath:
    """What came of all programs, and what the surroundings looked like before and after."""

    verdicts: dict[str, str]
    texts: dict[str, str]
    served: int
    left: list[int]
    before: dict[str, Any]
    after: dict[str, Any]
    victim: subprocess.Popen[bytes]


@pytest.fixture(scope="module", params=as_whom(("full",), slow=("full, ordinary user",)))
def aftermath(request: pytest.FixtureRequest, target: Target, open_house: Path) -> Iterator[Aftermath]:
    level, user = request.param
    victim = subprocess.Popen([python_for(user), "-c", "import time; time.sleep(3600)"], user=user, group=user)
    for path in [target.folder, *target.folder.rglob("*")]:
        os.chown(path, user or os.getuid(), user or os.getgid())
    programs = [target.aim(text(file)).replace("VICTIM", str(victim.pid)) for file in FILES]
    before = surroundings(target)
    done = subprocess.run(
        [python_for(user), "-B", str(open_house / "hostile.py"), level, "c"],
        input=json.dumps(
            [[program, "", *WALL.get(file.stem, ())] for file, program in zip(FILES, programs, strict=True)]
        ),
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(open_house), "SECRET_TOKEN": SECRET, "PATH": os.environ["PATH"]},
        cwd="/",
        user=user,
        group=user,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    verdicts, texts = {}, {}
    for file, (parses, stdout, stderr, returncode, stopped_by) in zip(FILES, report["runs"], strict=True):
        execution = Execution(returncode, stopped_by, stdout, stderr, 0.0)
        verdict = outcome(execution, "42\n").verdict.replace("_", " ")
        verdicts[file.stem] = "no compile" if not parses else "report" if was_reported(execution) else verdict
        texts[file.stem] = f"{stdout}\n{stderr}"
    yield Aftermath(verdicts, texts, report["served"], report["left"], before, surroundings(target), victim)
    victim.kill()
    victim.wait()


def text(file: Path) -> str:
    return file.read_text(encoding="utf-8")


def surroundings(target: Target) -> dict[str, Any]:
    places = {place: {path.name for path in Path(place).iterdir()} for place in ("/", "/tmp", "/dev/shm")}
    return {"files": target.snapshot(), **places}


def test_each_file_gets_its_verdict(aftermath: Aftermath) -> None:
    expected = {file.stem: VERDICT.match(text(file))[1] for file in FILES}  # type: ignore[index]
    wrong = {
        name: (verdict, aftermath.texts[name][-300:])
        for name, verdict in aftermath.verdicts.items()
        if verdict != expected[name]
    }
    assert wrong == {}
    assert len(expected) > 100


def test_no_file_is_read_written_renamed_or_removed(aftermath: Aftermath) -> None:
    assert aftermath.after["files"] == aftermath.before["files"]
    assert [name for name, shown in aftermath.texts.items() if SECRET in shown or "root:x:" in shown] == []


@pytest.mark.parametrize("place", ["/", "/tmp", "/dev/shm"])
def test_no_file_appears(aftermath: Aftermath, place: str) -> None:
    new = aftermath.after[place] - aftermath.before[place]
    assert [name for name in new if re.fullmatch(r".*pwned.*|sce-\w{8}|cc\w{6}\..*|a\.out|solution.*", name)] == []


def test_no_other_process_is_signalled(aftermath: Aftermath) -> None:
    assert goes_on(aftermath.victim)


def test_no_worker_dies_and_no_process_is_left(aftermath: Aftermath) -> None:
    assert aftermath.served == len(FILES)
    assert aftermath.left == []


def test_nothing_is_sent_to_the_network(aftermath: Aftermath, target: Target) -> None:
    assert not target.was_reached()


@pytest.mark.parametrize("name", ["kill_parent", "kill_all", "kill_group", "trace_parent", "limits_of_parent"])
def test_an_attack_on_the_processes_above_hurts_none_of_them(name: str) -> None:
    program = text(HOSTILE / f"{name}.c")
    with SandboxPool(1) as pool:
        pool.run(program, [""], language="c")
        after = pool.run("int main(void) { return 7; }", [""], language="c")
        assert pool._idle.queue[-1]["c"].programs == 2
    assert after.executions[0].returncode == 7


@pytest.mark.parametrize("has_analyzers", [False, True])
def test_a_program_that_could_hide_its_faults_has_a_failed_scan(has_analyzers: bool) -> None:
    """They do hide one: each passes. What they need for it is not in C11."""
    with SandboxPool(1, has_analyzers=has_analyzers) as pool:
        runs = {file.stem: pool.run(text(file), [""], language="c") for file in SUSPECT}
        honest = pool.run("int main(void) { return 0; }", [""], language="c")
    assert [name for name, run in runs.items() if outcome(run.executions[0], "42\n").verdict != "pass"] == []
    assert [name for name, run in runs.items() if not findings_of(run).failed] == []
    assert not findings_of(honest).failed
    assert len(runs) >= 6


def test_no_name_of_a_program_is_too_long_for_the_reason_why_it_does_not_compile() -> None:
    """A message that is too long would end `sce`, and with it the training."""
    with SandboxPool(1) as pool:
        found = pool.run(text(HOSTILE / "long_name.c"), [""], language="c")
        assert (found.parses, len(found.error)) == (False, 500)
