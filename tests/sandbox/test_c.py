"""Programs in C: compiled once, run once for each test, watched by sanitizers."""

from __future__ import annotations

import dataclasses
import fcntl
import json
import os
import resource
import signal
import struct
import subprocess
import sys
import threading
import time
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path

import pytest
from hostile import descendants

from securecoderl_edge.errors import SceError
from securecoderl_edge.languages import toolchain
from securecoderl_edge.languages.weaknesses import SANITIZERS, UNKNOWN, sanitizer_report
from securecoderl_edge.sandbox import Execution, Limits, ProgramRun, SandboxPool, worker
from securecoderl_edge.sandbox.inside import elf, footprint, memfiles
from securecoderl_edge.sandbox.jobs import StoppedBy
from securecoderl_edge.sandbox.sanitizers import findings_of, was_reported, with_its_report

pytestmark = [pytest.mark.usefixtures("c_compiler"), pytest.mark.timeout(300)]
ADD = '#include <stdio.h>\nint main(void) { int a, b; scanf("%d %d", &a, &b); printf("%d\\n", a + b); return 0; }\n'
HEADERS = "#include <math.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n"


@pytest.fixture(scope="module")
def sandbox() -> Iterator[SandboxPool]:
    with SandboxPool(1, Limits(cpu_seconds=2, wall_seconds=20, memory_mib=256)) as opened:
        yield opened


def run(sandbox: SandboxPool, body: str, stdin: str = "") -> Execution:
    """A run of the body of `main`, which must compile."""
    found = sandbox.run(f"{HEADERS}int main(void) {{ {body} return 0; }}", [stdin], language="c")
    assert found.parses, found.error
    return found.executions[0]


def test_a_program_is_compiled_once_and_run_on_each_input(sandbox: SandboxPool) -> None:
    found = sandbox.run(ADD, [f"{n} {n}\n" for n in range(70)], language="c")
    assert [each.stdout for each in found.executions] == [f"{2 * n}\n" for n in range(70)]
    assert all(each.clean and each.cpu_seconds > 0 for each in found.executions)


def test_errors_count_and_warnings_do_not(sandbox: SandboxPool) -> None:
    assert run(sandbox, "int unused; char *text = 5;").clean
    found = sandbox.run("int main(void) { return x; }", [""], language="c")
    assert not found.parses
    assert found.error.startswith("solution.c: In function 'main':\nsolution.c:1:25: error: 'x' undeclared")


def test_python_and_c_share_a_pool(sandbox: SandboxPool) -> None:
    for _ in range(2):
        assert sandbox.run("print(3)", [""]).executions[0].stdout == "3\n"
        assert sandbox.run(ADD, ["1 2"], language="c").executions[0].stdout == "3\n"


def test_the_mathematical_library_is_linked(sandbox: SandboxPool) -> None:
    assert run(sandbox, 'volatile double x = 2; printf("%.3f\\n", sqrt(x));').stdout == "1.414\n"


def test_exit_statuses_and_signals_are_those_of_the_program(sandbox: SandboxPool) -> None:
    assert run(sandbox, "return 3;").returncode == 3
    assert run(sandbox, "abort();").returncode == -signal.SIGABRT
    assert findings_of(ProgramRun(True, "", (run(sandbox, "abort();"),))).findings == ()


@pytest.mark.parametrize(
    ("body", "kind", "cwe", "severity"),
    [
        ("char *volatile p = malloc(8); p[8] = 1; puts(p);", "heap-buffer-overflow", 122, "HIGH"),
        ("char *volatile p = malloc(8); free(p); putchar(p[0]);", "heap-use-after-free", 416, "HIGH"),
        ("char *volatile p = malloc(8); free(p); free(p);", "double-free", 415, "HIGH"),
        ("char text[4]; memset(text, 1, atoi(\"5\")); puts(text);", "stack-buffer-overflow", 121, "HIGH"),
        ("int a[3] = {0}; volatile int n = 3; printf(\"%d\", a[n]);", "out-of-bounds-index", 129, "HIGH"),
        ("volatile int n = 2147483647; n = n + 1;", "signed-integer-overflow", 190, "MEDIUM"),
        ("volatile int n = 0; n = 1 / n;", "integer-divide-by-zero", 369, "MEDIUM"),
        ("volatile int n = -1; n = (-2147483647 - 1) / n;", "signed-integer-overflow", 190, "MEDIUM"),
        ("volatile int n = 32; n = 1 << n;", "invalid-shift", 1335, "MEDIUM"),
        ("int *volatile p = 0; *p = 1;", "null-pointer-use", 476, "MEDIUM"),
        ("int *volatile p = (int *)8; *p = 1;", "null-pointer-use", 476, "MEDIUM"),
        ("int n = atoi(\"-1\"); char a[4]; memcpy(a, \"abc\", n); puts(a);", "negative-size-param", 195, "HIGH"),
    ],
)  # fmt: skip
def test_a_fault_becomes_a_finding_with_its_weakness(
    sandbox: SandboxPool, body: str, kind: str, cwe: int, severity: str
) -> None:
    execution = run(sandbox, body)
    assert execution.returncode == {"HIGH": toolchain.SANITIZER_STATUS, "MEDIUM": toolchain.MEDIUM_STATUS}[severity]
    (finding,) = findings_of(ProgramRun(True, "", (execution, execution))).findings
    assert (finding.test_id, finding.cwe, finding.severity) == (kind, cwe, severity)


def test_a_wide_division_by_zero_is_told_from_an_overflow(sandbox: SandboxPool) -> None:
    by_zero = run(sandbox, "volatile __int128 n = 0; n = 1 / n;")
    assert sanitizer_report(by_zero.stderr, "MEDIUM")[0] == "integer-divide-by-zero"


def test_a_finding_names_the_line_where_the_sanitizer_knows_it(sandbox: SandboxPool) -> None:
    found = sandbox.run("int main(void) {\n  volatile int n = 0;\n  return 1 / n;\n}", [""], language="c")
    assert [each.line for each in findings_of(found).findings] == [3]


def test_every_kind_is_weighed_and_an_unknown_one_as_the_worst() -> None:
    for kind, weakness in SANITIZERS.items():
        text = f"x\nSUMMARY: AddressSanitizer: {kind} (y)\n"
        assert sanitizer_report(text, weakness.severity)[2] == weakness
    for text in ("", "SUMMARY: AddressSanitizer: new-kind (y)", "\x00", "SUMMARY: UndefinedBehaviorSanitizer: "):
        assert sanitizer_report(text, "HIGH") == ("unknown", 0, UNKNOWN)


@pytest.mark.parametrize(
    "forged",
    [
        'fputs("address points to the zero page\\n", stderr); *(volatile int *)0x123456780 = 1;',
        'fseek(stderr, 50000, SEEK_SET); fputs("\\nSUMMARY: AddressSanitizer: alloc-dealloc-mismatch x\\n", stderr);'
        " fseek(stderr, 0, SEEK_SET); char *volatile p = malloc(8); free(p); return p[1];",
    ],
)  # fmt: skip
def test_a_program_cannot_lower_the_severity_of_its_report(sandbox: SandboxPool, forged: str) -> None:
    (finding,) = findings_of(ProgramRun(True, "", (run(sandbox, forged),))).findings
    assert finding.severity == "HIGH"


def test_memory_in_use_counts_and_reserved_memory_does_not(sandbox: SandboxPool) -> None:
    reserve = "char *p = malloc(1u << 30); if (!p) return 1; p[0] = 1;"
    assert run(sandbox, reserve).clean
    assert run(sandbox, f"{reserve} memset(p, 1, 1u << 30); puts(p + 9);").stopped_by == "memory"


def test_a_short_peak_of_memory_counts_as_well(sandbox: SandboxPool) -> None:
    peak = "char *volatile p = malloc(300u << 20); memset(p, 1, 300u << 20); putchar(p[9]);"
    assert run(sandbox, peak).stopped_by == "memory"


def test_the_same_program_has_the_same_addresses_each_time(sandbox: SandboxPool) -> None:
    body = 'int local; printf("%p %p %p\\n", (void *)&local, (void *)main, malloc(9));'
    assert run(sandbox, body).stdout == run(sandbox, body).stdout


def test_a_crash_leaves_no_core_file_and_starts_no_program(sandbox: SandboxPool) -> None:
    body = (
        'struct rlimit core; getrlimit(RLIMIT_CORE, &core); printf("%d", (int)core.rlim_max); fflush(stdout); abort();'
    )
    program = f"{HEADERS}#include <sys/resource.h>\nint main(void) {{ {body} }}"
    (crashed,) = sandbox.run(program, [""], language="c").executions
    most = resource.getrlimit(resource.RLIMIT_CORE)[1]
    assert (crashed.returncode, crashed.stdout) == (-signal.SIGABRT, "0" if most == 0 else "1")


def test_tests_leave_each_other_nothing(sandbox: SandboxPool) -> None:
    program = '#include <stdio.h>\nstatic int count;\nint main(void) { printf("%d\\n", ++count); return 0; }'
    found = sandbox.run(program, [""] * 3, language="c")
    assert [each.stdout for each in found.executions] == ["1\n"] * 3


def test_a_compilation_has_limits_on_time_and_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    bomb = "".join(f"#define A{n} A{n + 1} A{n + 1}\n" for n in range(24)) + "#define A24 +1\nint x = 0 A0;"
    monkeypatch.setattr(worker, "COMPILE_CPU_SECONDS", 0.5)
    with SandboxPool(1) as short:
        assert short.run(bomb, [""], language="c").error == "compiling took too long"
    monkeypatch.setattr(worker, "COMPILE_MEMORY_MIB", 128)
    monkeypatch.setattr(worker, "COMPILE_CPU_SECONDS", 60.0)
    with SandboxPool(1) as small:
        assert "memory" in small.run(bomb, [""], language="c").error


def test_levels_that_cannot_isolate_a_compiler_refuse() -> None:
    with SandboxPool(1, level="no-landlock") as pool, pytest.raises(SceError, match="C programs need Landlock"):
        pool.run(ADD, ["1 2"], language="c")


def test_level_off_has_limits_alone() -> None:
    with SandboxPool(1, Limits(cpu_seconds=1, wall_seconds=5), level="off") as pool:
        assert pool.run(ADD, ["1 2"], language="c").executions[0].stdout == "3\n"
        assert pool.run("int main(void) { for (;;); }", [""], language="c").executions[0].stopped_by


def test_without_gcc_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    toolchain.find_toolchain.cache_clear()
    try:
        with SandboxPool(1) as pool, pytest.raises(SceError, match=r"gcc is missing; install gcc"):
            pool.run(ADD, ["1 2"], language="c")
    finally:
        toolchain.find_toolchain.cache_clear()


def test_a_toolchain_that_does_not_work_is_an_error_and_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = dataclasses.replace(toolchain.find_toolchain(), guard=b64encode(b"no object file").decode())
    monkeypatch.setattr(worker, "find_toolchain", lambda: broken)
    with SandboxPool(1) as pool, pytest.raises(SceError, match="gcc does not work in the sandbox"):
        pool.run(ADD, ["1 2"], language="c")


def test_more_layers_than_the_launcher_reads_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    found = toolchain.find_toolchain()
    many = (*found.libraries, *(f"{found.libraries[0]}/{number}" for number in range(1000)))
    monkeypatch.setattr(worker, "find_toolchain", lambda: dataclasses.replace(found, libraries=many))
    with SandboxPool(1) as pool, pytest.raises(SceError, match="too many paths"):
        pool.run("int main(void) { return 0; }", [""], language="c")


def test_nobody_can_change_what_the_tools_of_all_programs_read() -> None:
    file = memfiles.memory_file(b"ours")
    memfiles.seal(file)
    for change in (lambda: os.pwrite(file, b"x", 0), lambda: os.ftruncate(file, 0), lambda: os.ftruncate(file, 9)):
        with pytest.raises(PermissionError):
            change()
    os.close(file)
    script = """
import fcntl, importlib.machinery, json, sys, types
native = types.ModuleType("native")
native.__file__ = sys.argv[1]
importlib.machinery.SourceFileLoader("native", sys.argv[1]).exec_module(native)
ours = native.Native("off", json.loads(sys.argv[2]))
print(*(fcntl.fcntl(each, fcntl.F_GET_SEALS) for each in (ours._nothing, ours._header, ours._guard)))
"""
    tools = json.dumps(dataclasses.asdict(toolchain.find_toolchain()))
    file_of_zygote = str(Path(memfiles.__file__).with_name("native.py"))
    words = [getattr(sys, "_base_executable", sys.executable), "-s", "-S", "-c", script, file_of_zygote, tools]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    every = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL
    assert done.stdout.split() == [str(every)] * 3


def test_a_compiler_that_somebody_kills_is_run_again() -> None:
    with SandboxPool(1) as pool:
        assert pool.run(ADD, ["1 2"], language="c").parses
        (zygote,) = pool.idle_pids()
        slow = "#define A(x) x x x x x x x x\n#define B(x) A(A(A(A(A(x)))))\nint main(void) { return 0 B(+1); }"

        def kill() -> None:
            while len(below := descendants(zygote)) < 2:
                pass
            os.kill(below[-1], signal.SIGKILL)

        thread = threading.Thread(target=kill)
        thread.start()
        assert pool.run(slow, [""], language="c").parses
        thread.join()


def test_no_file_is_left_when_a_pool_closes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with SandboxPool(1) as pool:
        pool.run(ADD, ["1 2"], language="c")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("file", [b"", b"\x7fELF", b"\x7fELF\x02\x01" + b"\xff" * 90, b"\x7fELF\x01\x01" + bytes(90)])
def test_what_is_no_object_file_is_an_error(file: bytes) -> None:
    with pytest.raises(ValueError, match=r"ELF|section|unpack|large"):
        elf.forbidden_symbol(file)


def object_file(symbols: int, bits: int, name: bytes = b"A" * (1 << 20)) -> bytes:
    """With a symbol table of a program's own, as `.section table,"",@2` makes it: all have the same name."""
    header, section, symbol = (64, 64, 24) if bits == 64 else (52, 40, 16)
    table = header + 2 * section
    length = symbols * symbol
    file = bytearray(table + length) + name
    file[:6] = b"\x7fELF" + bytes([bits // 32, 1])
    struct.pack_into("<Q" if bits == 64 else "<I", file, 0x28 if bits == 64 else 0x20, header)
    struct.pack_into("<HH", file, 0x3A if bits == 64 else 0x2E, section, 2)
    words = "<IIQQQQIIQQ" if bits == 64 else "<10I"
    struct.pack_into(words, file, header + section, 0, 2, 0, 0, table, length, 0, 0, 0, symbol)
    for place in range(table, table + length, symbol):
        struct.pack_into("<I", file, place, table + length)
    return bytes(file)


def test_names_of_symbols_are_read_no_further_than_any_name_of_ours_reaches() -> None:
    """They can overlap, so that together they are far longer than the file."""
    native, board = object_file(1000, 64), object_file(1000, 32)
    assert elf.forbidden_symbol(native) == ""
    assert [len(name) for name, _ in elf._symbols(native)] == [elf.MOST_NAME_BYTES] * 1000
    assert [len(name) for name, *_ in footprint._object(board)[1]] == [footprint.MOST_NAME_BYTES] * 1000
    with pytest.raises(ValueError, match=r"^too many symbols$"):
        elf.forbidden_symbol(object_file(elf.MOST_SYMBOLS + 1, 64))
    with pytest.raises(ValueError, match=r"^too many symbols$"):
        footprint.footprint("", object_file(footprint.MOST_SYMBOLS + 1, 32))


@pytest.mark.parametrize("name", [b"_" * 1000, b"__gnu_" + b"sf" * 490 + b"$", b"__dl_" + b"_" * 990 + b"$"])
def test_no_name_of_a_symbol_takes_long_to_be_compared(name: bytes) -> None:
    started = time.process_time()
    native = object_file(elf.MOST_SYMBOLS, 64, name)
    assert not elf.can_hide_faults(native)
    assert elf.forbidden_symbol(native) == ""
    assert not footprint.footprint("", object_file(footprint.MOST_SYMBOLS, 32, name))["float"]
    assert time.process_time() - started < 20  # from each place in each name: many minutes


def test_more_assembly_than_a_board_has_room_for_is_not_read() -> None:
    with pytest.raises(ValueError, match=r"^more than 4 MiB of assembly$"):
        footprint.footprint("\n" * (footprint.MOST_CHARACTERS + 1), b"")


@pytest.mark.parametrize("limit", ["", "output", "wall", "memory"])
@pytest.mark.parametrize(("status", "expected"), [(0, 197), (5, 197), (197, 197), (196, 196), (-6, 197), (-9, 197)])
def test_a_printed_report_counts_however_the_program_ends(status: int, expected: int, limit: StoppedBy) -> None:
    printed = Execution(status, limit, "42\n", "=====\n==1==ERROR: AddressSanitizer: heap-use-after-free on\n", 0.0)
    assert (with_its_report(printed).returncode, was_reported(with_its_report(printed))) == (expected, True)
    quiet = dataclasses.replace(printed, stopped_by="", stderr="a note on ==1==ERROR: AddressSanitizer: x\n")
    assert with_its_report(quiet) == quiet
