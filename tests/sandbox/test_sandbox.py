"""One program in the sandbox: what comes back, and what is stopped."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from hostile import execute

from securecoderl_edge.sandbox import FunctionCall, Limits, SandboxPool, worker
from securecoderl_edge.sandbox.inside import testprocess
from securecoderl_edge.sandbox.inside.confinement import _import_statements
from securecoderl_edge.sandbox.limits import OUTPUTS_OF_A_PROGRAM

QUICK = Limits(cpu_seconds=0.3, wall_seconds=3)


@pytest.fixture(scope="module")
def sandbox() -> Iterator[SandboxPool]:
    with SandboxPool(workers=1) as opened:
        yield opened


def test_a_program_reads_its_stdin_and_its_output_comes_back(sandbox: SandboxPool) -> None:
    run = sandbox.run("print(input()[::-1])", ["abc\n", "xyz\n"])
    assert [execution.stdout for execution in run.executions] == ["cba\n", "zyx\n"]
    assert all(execution.clean for execution in run.executions)


def test_text_that_is_no_python_does_not_parse(sandbox: SandboxPool) -> None:
    run = sandbox.run("def f(:", ["1"])
    assert not run.parses
    assert run.executions == ()
    assert run.error.startswith("SyntaxError")


def test_a_return_outside_a_function_does_not_parse(sandbox: SandboxPool) -> None:
    assert not sandbox.run("return 1", [""]).parses


def test_a_byte_order_mark_is_dropped_and_a_coding_cookie_ignored(sandbox: SandboxPool) -> None:
    assert execute(sandbox, "\ufeff# coding: utf-7\n# +AAoAcAByAGkAbgB0ACgAMQAp-\nprint(2)").stdout == "2\n"


def test_a_compiler_that_does_not_end_means_that_the_text_does_not_parse(
    sandbox: SandboxPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "COMPILE_CPU_SECONDS", 0.05)
    run = sandbox.run("x = " + "+".join(["a"] * 900) + "\n" + "y = [" + "1+1," * 400_000 + "]", [""])
    assert not run.parses
    assert "took more than" in run.error


def test_lone_surrogates_in_program_and_stdin_harm_nobody(sandbox: SandboxPool) -> None:
    assert not sandbox.run("print('\ud800')", [""]).parses
    assert execute(sandbox, "print(len(input()))", "\ud800\n").returncode == 0


def test_the_exit_status_is_that_of_the_program(sandbox: SandboxPool) -> None:
    assert execute(sandbox, "raise SystemExit(7)").returncode == 7
    assert execute(sandbox, "import os; os._exit(0)").returncode == 0
    assert execute(sandbox, "import sys; sys.exit('sorry')").stderr == "sorry\n"


def test_a_program_that_loops_is_stopped_by_its_processor_time(sandbox: SandboxPool) -> None:
    assert execute(sandbox, "while True: pass", limits=QUICK).stopped_by == "cpu"


def test_a_program_that_sleeps_is_stopped_by_the_clock(sandbox: SandboxPool) -> None:
    limits = Limits(cpu_seconds=5, wall_seconds=0.3)
    assert execute(sandbox, "import time; time.sleep(60)", limits=limits).stopped_by == "wall"


def test_a_program_that_starts_thousands_of_threads_is_stopped(sandbox: SandboxPool) -> None:
    program = """
        import threading, time
        threading.stack_size(65536)
        while True:
            threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
    """
    assert execute(sandbox, program).stopped_by == "threads"
    assert execute(sandbox, "print(1)").stdout == "1\n"


def test_a_program_that_is_refused_a_thread_is_recognized_though_few_run(sandbox: SandboxPool) -> None:
    """Between two looks of the supervisor a program can take all the address space that threads would need."""
    program = """
        import threading
        threading.stack_size(2**34)
        threading.Thread(target=print).start()
    """
    execution = execute(sandbox, program)
    assert execution.stopped_by == "threads"
    assert "can't start new thread" in execution.stderr


def test_a_program_that_takes_too_much_memory_is_recognized(sandbox: SandboxPool) -> None:
    execution = execute(sandbox, "x = 'a' * 10**10")
    assert execution.stopped_by == "memory"
    assert "MemoryError" in execution.stderr


def test_output_beyond_the_limit_is_cut_and_recognized(sandbox: SandboxPool) -> None:
    limits = Limits(output_bytes=1000)
    execution = execute(sandbox, "while True: print('x' * 99)", limits=limits)
    assert execution.stopped_by == "output"
    assert len(execution.stdout) == 1000


@pytest.mark.parametrize("is_call", [False, True], ids=["stdin", "value"])
def test_outputs_of_all_tests_together_are_bounded_and_small_ones_stay(sandbox: SandboxPool, is_call: bool) -> None:
    limits = Limits(output_bytes=10_000)
    count = OUTPUTS_OF_A_PROGRAM + 20
    if is_call:
        program = "def f(n): return 'x' * n"
        calls = [FunctionCall(f"f({9_000 if number % 8 else 1})", entry_point="f") for number in range(count)]
        run = sandbox.run(program, (), limits, calls)
        kept = [len(execution.value or "") for execution in run.executions]
    else:
        stdins = ["9000" if number % 8 else "1" for number in range(count)]
        run = sandbox.run("print('x' * int(input()))", stdins, limits)
        kept = [len(execution.stdout) for execution in run.executions]
    assert sum(kept) <= OUTPUTS_OF_A_PROGRAM * limits.output_bytes
    stopped = [execution.stopped_by for execution in run.executions]
    assert set(stopped[::8]) == {""}
    assert stopped[:40] == [""] * 40
    assert {"output"} == {each for number, each in enumerate(stopped) if number % 8 and not kept[number]}
    assert "output" in stopped


def test_output_that_fills_the_limit_exactly_is_no_offence(sandbox: SandboxPool) -> None:
    execution = execute(sandbox, "print('x' * 999)", limits=Limits(output_bytes=1000))
    assert execution.clean
    assert len(execution.stdout) == 1000


def test_a_traceback_shows_the_program_and_hides_the_harness(sandbox: SandboxPool) -> None:
    stderr = execute(sandbox, "def f():\n    return 1 // 0\nf()").stderr
    assert 'File "solution.py", line 2, in f' in stderr
    assert "return 1 // 0" in stderr
    assert "testprocess" not in stderr


def test_only_the_tail_of_stderr_is_kept(sandbox: SandboxPool) -> None:
    stderr = execute(sandbox, "import sys\nsys.stderr.write('x' * 9999 + 'end')").stderr
    assert len(stderr) == 2048
    assert stderr.endswith("end")


def test_a_program_cannot_leave_anything_for_the_next_test(sandbox: SandboxPool) -> None:
    program = "import builtins\nprint(hasattr(builtins, 'left'))\nbuiltins.left = 1"
    run = sandbox.run(program, ["", ""])
    assert [execution.stdout for execution in run.executions] == ["False\n", "False\n"]


def test_more_tests_than_fit_into_one_message_keep_their_order(sandbox: SandboxPool) -> None:
    count = 2 * worker.TESTS_AT_ONCE + 1
    run = sandbox.run("print(input())", [str(number) for number in range(count)])
    assert [execution.stdout for execution in run.executions] == [f"{number}\n" for number in range(count)]
    run = sandbox.run("def f(x): return x", calls=[FunctionCall(f"f({number})") for number in range(count)])
    assert [execution.value for execution in run.executions] == [str(number) for number in range(count)]


def test_a_program_without_tests_is_only_compiled(sandbox: SandboxPool) -> None:
    assert sandbox.run("while True: pass", []).executions == ()


def test_inputs_of_other_tests_are_not_in_a_programs_memory(sandbox: SandboxPool) -> None:
    program = """
        import gc, sys
        secret = "".join(map(chr, [110, 101, 101, 100, 108, 101] * 4))
        frame, seen = sys._getframe(), []
        while frame:
            own = (seen, secret)
            others = [value for value in frame.f_locals.values() if not any(value is mine for mine in own)]
            seen += [repr(value) for value in others]
            frame = frame.f_back
        things = [thing for thing in gc.get_objects() if type(thing) in (dict, list, tuple)]
        seen += [repr(thing) for thing in things if thing is not seen and thing is not own]
        print(sum(secret in text.replace(repr(secret), "") for text in seen))
    """
    run = sandbox.run(textwrap.dedent(program), ["needle" * 4, "1", "needle" * 4])
    assert [execution.stdout for execution in run.executions] == ["0\n"] * 3


def test_random_numbers_and_the_order_of_sets_are_reproducible(sandbox: SandboxPool) -> None:
    program = "import random\nprint(random.random(), {'a', 'b', 'c', 'd', 'e'})"
    first = execute(sandbox, program).stdout
    with SandboxPool(workers=1) as other:
        assert execute(other, program).stdout == first


def test_secrets_in_our_environment_do_not_reach_a_program(
    sandbox: SandboxPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "xyzzy")
    with SandboxPool(workers=1) as fresh:
        assert "xyzzy" not in execute(fresh, "import os\nprint(dict(os.environ))").stdout


def test_the_zygote_has_nothing_of_ours_in_its_environment(sandbox: SandboxPool) -> None:
    sandbox.run("", [""])
    used = sandbox._idle.queue[-1]["python"]
    # Not dumpable, so that not even root's /proc shows more than the names that we passed.
    environment = Path(f"/proc/{used.pid}/environ")
    try:
        names = {entry.partition(b"=")[0] for entry in environment.read_bytes().split(b"\0") if entry}
    except PermissionError:
        return
    assert names <= {b"PYTHONHASHSEED", b"LD_BIND_NOW", b"LD_LIBRARY_PATH"}


def test_a_call_gives_its_value_as_a_literal(sandbox: SandboxPool) -> None:
    program = "from collections import Counter, namedtuple\nP = namedtuple('P', 'x y')"
    expressions = {
        "Counter('aab')": "{'a': 2, 'b': 1}",
        "P(1, (2,))": "(1, (2,))",
        "[float('inf'), True, None, b'x', set()]": "[1e999, True, None, b'x', set()]",
        "object": """other("<class 'object'>")""",
        "[{frozenset([1])}, {frozenset(): 0}, float('nan')]": "[{frozenset({1})}, {frozenset(set()): 0}, nan()]",
    }
    run = sandbox.run(program, calls=[FunctionCall(expression) for expression in expressions])
    assert [execution.value for execution in run.executions] == list(expressions.values())


def test_what_a_program_prints_does_not_mix_with_the_value(sandbox: SandboxPool) -> None:
    execution = sandbox.run("def f():\n    print(7)\n    return 8", calls=[FunctionCall("f()")]).executions[0]
    assert (execution.stdout, execution.value) == ("7\n", "8")


def test_the_main_part_of_a_program_does_not_run_for_calls(sandbox: SandboxPool) -> None:
    program = "def f(): return __name__\nif __name__ == '__main__': raise SystemExit(1)"
    assert sandbox.run(program, calls=[FunctionCall("f()")]).executions[0].value == "'solution'"


def test_a_method_of_class_solution_answers_for_its_function(sandbox: SandboxPool) -> None:
    program = "class Solution:\n    def double(self, x: List[int]): return 2 * x"
    run = sandbox.run(program, calls=[FunctionCall("double([1])", entry_point="double")])
    assert run.executions[0].value == "[1, 1]"
    for line in ("from heapq import *", "def merge(): return 6"):
        program = f"{line}\nclass Solution:\n    def merge(self): return 5"
        run = sandbox.run(program, calls=[FunctionCall("merge()", entry_point="merge", prelude="contest")])
        assert run.executions[0].value == ("6" if "def" in line else "5")


def test_an_assertion_holds_only_if_its_nonce_came_back(sandbox: SandboxPool) -> None:
    calls = [FunctionCall("assert f() == 1", True), FunctionCall("assert f() == 2", True)]
    run = sandbox.run("def f(): return 1", calls=calls)
    assert [execution.value for execution in run.executions] == ["True", "False"]


def test_a_program_that_leaves_early_gives_no_value(sandbox: SandboxPool) -> None:
    calls = [FunctionCall("f()"), FunctionCall("assert f() == 1", True)]
    run = sandbox.run("import os\ndef f(): os._exit(0)", calls=calls)
    assert [execution.value for execution in run.executions] == [None, None]


@pytest.mark.parametrize("text", ["", "f(1)", "1 2 3\n4", "a\0b\r\n", "\ud800", "é" * 300])
def test_a_request_arrives_as_it_was_sent(text: str) -> None:
    sent = testprocess.request_text(text, True, f"{text}1", f"{text}22").encode("utf-8", "surrogatepass")
    parts = {"is_assertion": True, "setup": f"{text}1", "entry_point": f"{text}22", "expression": text}
    assert testprocess._request(sent) == parts


def test_long_values_come_back_whole(sandbox: SandboxPool) -> None:
    execution = sandbox.run("", calls=[FunctionCall("10**20000"), FunctionCall("'x' * 500_000")]).executions
    assert execution[0].value == hex(10**20000)
    assert len(execution[1].value or "") == 500_002


def test_importing_without_end_costs_the_program_its_verdict_and_nobody_else(sandbox: SandboxPool) -> None:
    packages = ["json", "xml", "xml.dom", "email", "concurrent", "ctypes", "logging", "unittest", "urllib", "http"]
    program = f"import {', '.join(packages)}\nprint(42)\ndef f():\n" + "".join(f"    a{n}\n" for n in range(40_000))
    assert execute(sandbox, program).stdout == "42\n"


def test_naming_modules_that_do_not_exist_costs_nothing_but_the_first_time(sandbox: SandboxPool) -> None:
    assert execute(sandbox, "print(42)\nif 0:\n" + "    import xml.nothing\n" * 300_000).stdout == "42\n"


def test_an_import_into_a_closure_is_seen_ahead() -> None:
    source = "def f():\n    from concurrent import futures\n    return lambda: futures\n"
    assert list(_import_statements(compile(source, "p", "exec"))) == [("concurrent", ["futures"])]


def test_a_program_may_name_the_whole_standard_library(sandbox: SandboxPool) -> None:
    names = sorted(sys.stdlib_module_names - {"__future__"})
    lines = [f"    import {name}\n    from {name} import tool, test, pool\n" for name in names]
    assert execute(sandbox, "print(42)\nif 0:\n" + "".join(lines)).stdout == "42\n"


def test_a_long_limit_of_processor_time_reaches_the_program(sandbox: SandboxPool) -> None:
    limits = Limits(cpu_seconds=300, wall_seconds=400)
    program = "import resource\nprint(resource.getrlimit(resource.RLIMIT_CPU)[0] >= 300)"
    assert execute(sandbox, program, limits=limits).stdout == "True\n"
