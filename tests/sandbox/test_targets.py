"""Programs for a microcontroller on the emulated board: they run there, and malicious ones are contained."""

from __future__ import annotations

import dataclasses
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hostile import descendants

from securecoderl_edge.errors import SceError
from securecoderl_edge.languages import targets
from securecoderl_edge.sandbox import Execution, Limits, SandboxPool, worker

pytestmark = [pytest.mark.usefixtures("cortex_m3"), pytest.mark.timeout(600)]
M3 = "cortex-m3"
LIMITS = Limits(cpu_seconds=2, wall_seconds=60, memory_mib=256)
HEADERS = "#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n"
# Semihosting as a function: bkpt 0xab; bx lr. Operations are numbered as ARM does.
SEMIHOSTING = """
static const unsigned short code[] = {0xbeab, 0x4770};
static int host(int operation, void *block) { return ((int (*)(int, void *))((char *)code + 1))(operation, block); }
struct { const char *name; int mode, length; } file = {"PATH", MODE, sizeof "PATH" - 1};
"""
OPEN, WRITE, REMOVE, RENAME, SYSTEM = 1, 5, 14, 15, 18
HOST_ATTACKS = {
    "read": (0, f"return host({OPEN}, &file) < 0;"),
    "write": (4, f"return host({OPEN}, &file) < 0;"),
    "append": (8, f"return host({OPEN}, &file) < 0;"),
    "remove": (
        0,
        f'struct {{ const char *n; int l; }} b = {{"PATH", sizeof "PATH" - 1}}; return host({REMOVE}, &b) != 0;',
    ),
    "rename": (
        0,
        'struct { const char *a; int la; const char *b; int lb; } b = {"PATH", sizeof "PATH" - 1, "PATH2", '
        f'sizeof "PATH2" - 1}}; return host({RENAME}, &b) != 0;',
    ),
    "shell": (
        0,
        'struct { const char *c; int l; } b = {"rm -f PATH", sizeof "rm -f PATH" - 1}; '
        f"return host({SYSTEM}, &b) != 0;",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def board() -> Iterator[SandboxPool]:
    with SandboxPool(1, LIMITS) as opened:
        yield opened


@pytest.fixture(params=["without semihosting", "with semihosting"])
def attacked(request: pytest.FixtureRequest) -> Iterator[SandboxPool]:
    """The board as it is, and an emulator that does for a program whatever it asks: the sandbox has to hold it."""
    found = targets.find_target_toolchain(M3)
    more = ("-semihosting-config", "enable=on,target=native") if request.param == "with semihosting" else ()
    with pytest.MonkeyPatch.context() as patch, SandboxPool(1, LIMITS) as opened:
        patch.setattr(
            worker, "find_target_toolchain", lambda name: dataclasses.replace(found, emulate=(*found.emulate, *more))
        )
        yield opened


def run(board: SandboxPool, body: str, stdin: str = "") -> Execution:
    """A run of the body of `main`, which must build."""
    found = board.run(f"{HEADERS}int main(void) {{ {body} return 0; }}", [stdin], language=M3)
    assert found.parses, found.error
    return found.executions[0]


def attack(name: str, path: Path) -> str:
    mode, body = HOST_ATTACKS[name]
    text = f"{SEMIHOSTING}int main(void) {{ {body} }}\n"
    return text.replace("MODE", str(mode)).replace("PATH", str(path))


def test_a_program_reads_its_input_to_the_end_and_prints(board: SandboxPool) -> None:
    program = f'{HEADERS}int main(void) {{ int n; while (scanf("%d", &n) == 1) printf("%d %.1f\\n", 2 * n, n / 2.0); }}'
    found = board.run(program, ["1 2\n3", "", "4" * 5], language=M3)
    assert [each.stdout for each in found.executions] == ["2 0.5\n4 1.0\n6 1.5\n", "", "88888 22222.0\n"]
    assert all(each.clean and each.cpu_seconds > 0 for each in found.executions)


def test_input_is_passed_byte_for_byte(board: SandboxPool) -> None:
    text = "".join(map(chr, range(1, 256))) * 40
    body = 'int c, n = 0; unsigned sum = 0; while ((c = getchar()) != EOF) { n++; sum += c; } printf("%d %u", n, sum);'
    data = text.encode()
    assert run(board, body, text).stdout == f"{len(data)} {sum(data)}"


def test_the_exit_status_and_error_output_are_those_of_the_program(board: SandboxPool) -> None:
    found = run(board, 'fputs("why\\n", stderr); return 7;')
    assert (found.returncode, found.stderr, found.stdout) == (7, "why\n", "")


def test_ram_and_constructors_are_set_up(board: SandboxPool) -> None:
    program = (
        "#include <stdio.h>\nstatic int initial = 40, zero, made;\n"
        "__attribute__((constructor)) static void make(void) { made = 2; }\n"
        'int main(void) { printf("%d %d", initial + made, zero); }\n'
    )
    assert board.run(program, [""], language=M3).executions[0].stdout == "42 0"


@pytest.mark.parametrize(
    "body",
    [
        "*(volatile int *)0xdddddddd = 1;",
        "*(volatile int *)0xffffffff;",
        "__builtin_trap();",
        "((void (*)(void))0x60000001)();",
        "volatile char big[100000]; big[0] = 1; printf(\"%d\", big[0]);",
        "*(volatile int *)0xE000ED0C = 0x05FA0004; for (;;);",  # a reset without a status
        "*(volatile int *)0xE000ED08 = 0x30000000; __builtin_trap();",  # no vectors: the processor locks up
        "abort();",
    ],
)  # fmt: skip
def test_a_fault_is_a_crash(board: SandboxPool, body: str) -> None:
    found = run(board, body)
    assert not found.clean
    assert not found.stopped_by
    assert run(board, 'puts("well");').stdout == "well\n"


def test_a_stack_that_overflows_is_a_fault_and_overwrites_no_variable(board: SandboxPool) -> None:
    program = (
        "#include <stdio.h>\nint down(int n) { volatile char b[99]; b[0] = n; return n ? down(n - 1) + b[0] : 0; }\n"
        'int main(void) { printf("%d", down(100000)); }'
    )
    found = board.run(program, [""], language=M3).executions[0]
    assert (found.returncode, found.stdout) == (139, "")
    assert "fault" in found.stderr


@pytest.mark.parametrize(
    ("body", "stopped_by"),
    [
        ("for (;;);", "cpu"),
        ("for (;;) puts(\"on and on and on and on and on and on and on and on and on and on and on\");", "output"),
        ("for (;;) fputs(\"on and on\", stderr);", "output"),
    ],
)  # fmt: skip
def test_a_program_without_end_is_stopped_from_outside(board: SandboxPool, body: str, stopped_by: str) -> None:
    found = board.run(
        f"{HEADERS}int main(void) {{ {body} }}", [""], dataclasses.replace(LIMITS, output_bytes=1000), language=M3
    )
    assert found.executions[0].stopped_by == stopped_by


def test_a_board_that_sleeps_is_stopped_by_wall_time(board: SandboxPool) -> None:
    code = "static const unsigned short code[] = {0xbf30, 0xe7fd}; /* wfi; b . */\n"
    sleep = f"{code}int main(void) {{ ((void (*)(void))((char *)code + 1))(); }}"
    short = dataclasses.replace(LIMITS, cpu_seconds=60, wall_seconds=2)
    assert board.run(sleep, [""], short, language=M3).executions[0].stopped_by == "wall"


def test_code_that_changes_itself_without_end_keeps_the_emulator_within_its_memory(board: SandboxPool) -> None:
    # Every round is new code for the emulator, which keeps what it has translated.
    body = (
        "static unsigned short code[100000]; for (unsigned round = 0; round < 50; round++) {"
        " for (int n = 0; n < 99999; n++) code[n] = n % 8 == 7 ? 0xe7ff : 0x3001; /* b next; adds r0, #1 */"
        " code[99999] = 0x4770; ((void (*)(void))((char *)code + 1))(); }"
    )
    found = run(board, body)
    assert found.clean or found.stopped_by in ("cpu", "memory")


def test_a_program_can_use_no_more_memory_than_the_board_has(board: SandboxPool) -> None:
    assert run(board, "return malloc(8 << 20) != 0;").clean
    found = board.run("char big[5 << 20]; int main(void) { return big[9]; }", [""], language=M3)
    assert not found.parses
    assert "will not fit in region `RAM'" in found.error


@pytest.mark.parametrize("name", HOST_ATTACKS)
def test_no_file_of_this_machine_is_read_written_or_removed(attacked: SandboxPool, tmp_path: Path, name: str) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    before = victim.stat()
    found = attacked.run(attack(name, victim), [""], language=M3)
    assert found.parses, found.error
    assert not found.executions[0].clean
    assert (victim.read_text(), victim.stat().st_mtime_ns) == ("mine", before.st_mtime_ns)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["victim"]


@pytest.mark.parametrize("name", HOST_ATTACKS)
def test_these_attacks_succeed_without_a_sandbox_and_with_semihosting(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the test above would show nothing."""
    victim = tmp_path / "victim"
    victim.write_text("mine")
    found = targets.find_target_toolchain(M3)
    emulate = (*found.emulate, "-semihosting-config", "enable=on,target=native")
    monkeypatch.setattr(worker, "find_target_toolchain", lambda _: dataclasses.replace(found, emulate=emulate))
    with SandboxPool(1, LIMITS, "off") as pool:
        assert pool.run(attack(name, victim), [""], language=M3).executions[0].clean


def test_files_by_name_do_not_exist_on_the_board(board: SandboxPool) -> None:
    assert run(board, 'return fopen("/etc/passwd", "r") || fopen("/tmp/written", "w");').clean


@pytest.mark.parametrize("include", ["/etc/passwd", "/proc/self/environ", "/dev/stdin/../../etc/shadow"])
def test_the_cross_compiler_reads_no_file_of_this_machine(board: SandboxPool, include: str) -> None:
    found = board.run(f'#include "{include}"\nint main(void) {{ return 0; }}', [""], language=M3)
    assert not found.parses
    assert "root:" not in found.error


@pytest.mark.parametrize("path", ["/etc/passwd", "/proc/self/environ"])
def test_the_cross_assembler_reads_no_file_of_this_machine(board: SandboxPool, path: str) -> None:
    label = f'extern const char key[] __asm__("key\\n.incbin \\"{path}\\"\\n@");'
    found = board.run(f"#include <stdio.h>\n{label}\nint main(void) {{ puts(key); return 0; }}", [""], language=M3)
    assert not found.parses
    assert path in found.error  # it was tried


def test_a_flood_of_input_is_no_fault_of_the_sandbox(board: SandboxPool) -> None:
    body = 'int c, n = 0; while ((c = getchar()) != EOF) n++; printf("%d", n);'
    assert run(board, body, "x" * (1 << 20)).stdout == str(1 << 20)
    assert not run(board, body, "x" * (17 << 20)).clean  # more than the board has room for
    assert run(board, body, "x").stdout == "1"


def test_no_process_is_left(board: SandboxPool) -> None:
    run(board, "for (;;);")
    assert [name for name in map(_name, descendants(os.getpid())) if "qemu" in name] == []


def _name(pid: int) -> str:
    shown = subprocess.run(["ps", "-o", "comm=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return shown.stdout.strip()


@pytest.mark.parametrize("missing", ["qemu-system-arm", "arm-none-eabi-gcc", "arm-none-eabi-ld"])
def test_a_missing_tool_is_an_error_that_names_it_and_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    which = targets.shutil.which
    monkeypatch.setattr(targets.shutil, "which", lambda name: None if name == missing else which(name))
    targets.find_target_toolchain.cache_clear()
    try:
        with SandboxPool(1) as pool, pytest.raises(SceError, match=f"missing {missing}; install .* apt-get install"):
            pool.run("int main(void) { return 0; }", [""], language=M3)
    finally:
        targets.find_target_toolchain.cache_clear()


def test_an_emulator_that_does_not_work_is_an_error_and_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    found = targets.find_target_toolchain(M3)
    broken = dataclasses.replace(found, emulate=(*found.emulate, "-machine", "none"))
    monkeypatch.setattr(worker, "find_target_toolchain", lambda _: broken)
    with SandboxPool(1) as pool, pytest.raises(SceError, match="does not run in the sandbox"):
        pool.run("int main(void) { return 0; }", [""], language=M3)
