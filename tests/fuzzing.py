"""Properties that must hold for any bytes at all; the suite tries some, and this script as many as there is time for:

python tests/fuzzing.py --minutes 10
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import os
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from securecoderl_edge.errors import SceError
from securecoderl_edge.problems.problem import Problem, Test
from securecoderl_edge.problems.problem_file import problem_from_record, problem_to_record
from securecoderl_edge.problems.sources import load_problems
from securecoderl_edge.prompts.extraction import PromptFacts, extract_program
from securecoderl_edge.sandbox import Limits, worker
from securecoderl_edge.sandbox.inside.messages import receive, send
from securecoderl_edge.sandbox.jobs import BoxLost, SandboxJob, WorkerLost
from securecoderl_edge.scoring.explain import explain
from securecoderl_edge.scoring.score import Score, score_from_record
from securecoderl_edge.scoring.score_files import read_scores, read_submissions
from securecoderl_edge.scoring.scorer import Scorer
from securecoderl_edge.text import escape_controls

LIMITS = Limits(cpu_seconds=0.5, wall_seconds=1, memory_mib=256)
PROBLEM = Problem("p", "Double it.", tests=(Test("2\n", "4\n"),))

# Text with what JSON can hold: lone surrogates, NUL, control characters.
TEXTS = st.text(st.characters(exclude_categories=()))
PIECES = st.sampled_from(
    ["print(", "input()", ")", "\n", "    ", "def f():", "x", "=", "1", "'", '"""', "\\", "#", "[", "]", "lambda:",
     "import os", "while 1:", "try:", "except:", "\0", "\ufeff", "# coding: utf-7\n",
     "-" * 300, "(" * 150, "é", "\ud800",
     "open(0)", "raise", "@", "*", ";", "if x:", "else:", "async ", "yield ", "match x:", "case _:", "f'{", "}",
     "1e999"]
)  # fmt: skip
PROGRAMS = st.lists(PIECES, max_size=30).map("".join) | TEXTS
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(("id", "tests", "input", "output")), inner)
    ),
    max_leaves=8,
)
FIELDS = ("id", "statement", "kind", "tests", "input", "output", "entry_point", "assertions", "sample", "completion",
          "solutions", "time_limit_s", "findings", "verdicts", "program", "stage", "reward")  # fmt: skip
RECORDS = st.dictionaries(
    st.sampled_from(FIELDS), JSON_VALUES | st.sampled_from(["p", "stdin", "call", [{"input": "", "output": "1"}]])
)
LINES = (
    RECORDS.map(lambda record: json.dumps(record).encode()) | JSON_VALUES.map(json.dumps).map(str.encode) | st.binary()
)
FILES = st.lists(LINES, max_size=6).map(b"\n".join)


@given(TEXTS | PROGRAMS)
def any_completion_has_a_program(completion: str) -> None:
    program = extract_program(completion, PromptFacts.of(PROBLEM))
    assert all(line in completion for line in program.split("\n"))


@given(FILES)
def a_problem_file_loads_or_is_refused_in_a_sentence(content: bytes) -> None:
    with file_of(content) as path, contextlib.suppress(SceError):
        for problem in load_problems(str(path)):
            assert problem_from_record(problem_to_record(problem)) == problem


@given(FILES)
def a_file_of_completions_loads_or_is_refused_in_a_sentence(content: bytes) -> None:
    with file_of(content) as path, contextlib.suppress(SceError):
        assert read_submissions(path, [PROBLEM], "auto")


@given(FILES)
def a_file_of_scores_loads_or_is_refused_in_a_sentence(content: bytes) -> None:
    with file_of(content) as path, contextlib.suppress(SceError):
        read_scores(path, [], {})


@given(PROGRAMS, TEXTS, TEXTS.filter(str.strip))
def any_program_with_any_test_gets_a_verdict(program: str, stdin: str, expected: str) -> None:
    problem = Problem("p", "s", tests=(Test(stdin, expected),))
    score, run = scorer().inspect(problem, program)
    assert 0 <= score.reward <= score.reward_paper <= 1 + 1e-12
    assert len(score.verdicts) == (1 if score.parses else 0)
    record: dict[str, Any] = json.loads(json.dumps(score.to_record()))
    assert score_from_record(record) == Score(
        **{**record, **{n: getattr(score, n) for n in ("findings", "verdicts", "security_verdicts", "signs", "denied")}}
    )
    assert escape_controls(explain(score, run, problem, LIMITS)).replace("\n", "").replace("\t", "").isprintable()


@given(PROGRAMS, PROGRAMS.filter(str.strip))
def any_assertion_on_any_program_gets_a_verdict(program: str, assertion: str) -> None:
    problem = Problem("p", "s", "call", entry_point="f", assertions=(assertion,))
    score = scorer().score(problem, program)
    assert len(score.verdicts) == (1 if score.parses else 0)


@given(st.lists(st.tuples(TEXTS.filter(lambda text: text.isprintable() and text != ""), st.integers(0, 9)), max_size=5))
def messages_arrive_as_they_were_sent(sent: list[tuple[str, int]]) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        for text, count in sent:
            files = [os.open(os.devnull, os.O_RDONLY) for _ in range(count)]
            send(ours, text, files)
            received, copies = receive(theirs)
            assert (received, len(copies)) == (text, count)
            for descriptor in (*files, *copies):
                os.close(descriptor)


@given(st.binary(max_size=200))
def any_bytes_are_a_message_an_error_or_the_end(data: bytes) -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        with ours:
            ours.sendall(data)
        with contextlib.suppress(OSError):
            while receive(theirs)[0]:
                pass


REPLIES = st.sampled_from(
    ["parses", "refused x", "gone 0", "gone 9", "gone x", "gone", " ",
     "endings 0 - 0.1", "endings 9 cpu 1e-05", "endings", "endings 0 - x",
     "endings 127 - 0", "endings 0 nonsense 1", "endings 0 - 1 0 - 1", "ready", "failed x"]
)  # fmt: skip


@given(st.lists(REPLIES | TEXTS.filter(bool), max_size=5))
def whatever_a_box_says_is_a_result_or_a_lost_worker(replies: list[str]) -> None:
    ours, theirs = socket.socketpair()
    spoken_to = worker.SandboxWorker.__new__(worker.SandboxWorker)
    spoken_to.programs, spoken_to._socket = 0, ours

    def answer() -> None:
        for reply in replies:
            send(theirs, reply.encode("utf-8", "replace").decode())
        theirs.shutdown(socket.SHUT_WR)

    with ours, theirs:
        thread = threading.Thread(target=answer)
        thread.start()
        try:
            run = spoken_to.run(SandboxJob("pass", ["1"]), LIMITS)
            assert len(run.executions) == run.parses
        except (WorkerLost, BoxLost):
            pass
        thread.join()


PROPERTIES = [value for value in list(globals().values()) if hasattr(value, "hypothesis")]


@functools.cache
def scorer() -> Scorer:
    """One for all examples; `close` ends it."""
    return Scorer(1, LIMITS)


def close() -> None:
    """End the scorer, if there is one."""
    if scorer.cache_info().currsize:
        scorer().close()
        scorer.cache_clear()


@contextlib.contextmanager
def file_of(content: bytes) -> Any:
    """A file for the length of a block."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file.jsonl"
        path.write_bytes(content)
        yield path


def limited(check: Callable[[], None], examples: int) -> Callable[[], None]:
    """The property with a number of examples; may be asked for once in a process."""
    options: dict[str, Any] = {"deadline": None, "database": None, "suppress_health_check": list(HealthCheck)}
    return settings(max_examples=examples, **options)(check)


def main() -> None:
    """Go through the properties again and again, each time with other examples."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    arguments = parser.parse_args()
    end, rounds = time.monotonic() + 60 * arguments.minutes, 0
    checks = [limited(check, 100) for check in PROPERTIES]
    while time.monotonic() < end:
        for check in checks:
            seed(arguments.seed + rounds)(check)()
        rounds += 1
    close()
    sys.stdout.write(
        f"{len(PROPERTIES)} properties held for {rounds * 100} examples each, from seed {arguments.seed} on\n"
    )


if __name__ == "__main__":
    main()
