"""The footprint of programs for ARM: what gcc itself reports of frames, and what programs do to hide."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from securecoderl_edge.languages.targets import CORTEX_M3, Footprint
from securecoderl_edge.problems.starter.splits import load_split
from securecoderl_edge.sandbox import Limits, SandboxPool
from securecoderl_edge.sandbox.inside import footprint

pytestmark = [pytest.mark.usefixtures("cortex_m3"), pytest.mark.timeout(600)]
MAIN = "\nint main(void) { return 0; }\n"
RECURSIVE = {
    "direct": "int f(int n) { volatile char b[9]; b[0] = n; return n ? f(n - 1) + b[0] : 0; }",
    "mutual": "int g(int); int f(int n) { return n ? g(n - 1) + 1 : 0; } int g(int n) { return n ? f(n - 1) * 2 : 1; }",
    "through a variable": "int f(int); int (*volatile p)(int) = f; int f(int n) { return n ? p(n - 1) + 1 : 0; }",
    "through a table": "int f(int); int (*const table[])(int) = {f, f}; int at;\n"
    "int f(int n) { return n ? table[at](n - 1) + 1 : 0; }",
    "through an argument": "int f(int n, int (*g)(int, void *)) { return n ? g(n - 1, (void *)g) + 1 : 0; }\n"
    "int h(int n, void *p) { return f(n, (int (*)(int, void *))p) + 1; } int s(void) { return f(3, h); }",
    "through an alias": "int g(int) __attribute__((alias(\"f\")));\n"
    "int f(int n) { volatile char b[9]; b[0] = n; return n ? g(n - 1) + b[0] : 0; }",
    "through the library": "#include <stdlib.h>\nstatic int a[9]; int less(const void *x, const void *y);\n"
    "void sort(void) { qsort(a, 9, sizeof *a, less); }\n"
    "int less(const void *x, const void *y) { if (a[0]) sort(); return x < y; }",
    "through a routine of the compiler": "void _call_via_r0(void (*)(void)); int left;\n"
    "void f(void) { volatile int b[4]; b[0] = left; if (left-- > 0) _call_via_r0(f); left += b[0]; }",
    "of a weak function": "__attribute__((weak, noinline)) int f(int n) { volatile char b[9]; b[0] = n;"
    " return n ? f(n - 1) + b[0] : 0; }",
}  # fmt: skip
NOT_RECURSIVE = {
    "a loop that is written as a call": "int f(int n, int sum) { return n ? f(n - 1, sum + n) : sum; }",
    "a table of functions": "static int a(int n) { return n + 1; } static int b(int n) { return n * 2; }\n"
    "static int (*const table[])(int) = {a, b}; int f(int n) { return table[n & 1](n) + 1; }",
    "a handler that prints": "#include <stdio.h>\nstatic void a(void) { puts(\"a\"); }\n"
    "void (*volatile handler)(void) = a; void f(void) { handler(); puts(\"f\"); }",
    "names in texts": "#include <stdio.h>\nvoid f(void); void (*volatile p)(void);\n"
    "void f(void) { puts(\"f\"); puts(\"  bl f\"); } void g(void) { p(); puts(\"g\"); }",
}  # fmt: skip
HEAP = {
    "malloc": "#include <stdlib.h>\nvoid *f(void) { return malloc(9); }",
    "malloc by another name": "void *room(unsigned) __asm__(\"malloc\"); void *f(void) { return room(9); }",
    "malloc through a pointer": "#include <stdlib.h>\n"
    "void *(*volatile p)(size_t) = malloc; void *f(void) { return p(9); }",
    "its own declaration": "void *calloc(unsigned, unsigned); void *f(void) { return calloc(3, 3); }",
    "strdup": "char *strdup(const char *); char *f(void) { return strdup(\"text\"); }",
    "sbrk": "void *_sbrk(int); void *f(void) { return _sbrk(9); }",
    "one for texts of numbers": "int asiprintf(char **, const char *, ...);\n"
    "char *f(int n) { char *text; return asiprintf(&text, \"%d\", n) < 0 ? 0 : text; }",
    "one that sorts": "void *tsearch(const void *, void **, int (*)(const void *, const void *));\n"
    "int less(const void *, const void *); void *f(void **root, void *key) { return tsearch(key, root, less); }",
    "the reentrant one": "void *_malloc_r(void *, unsigned); extern void *_impure_ptr;\n"
    "void *f(void) { return _malloc_r(_impure_ptr, 9); }",
}  # fmt: skip
FLOAT = {
    "a product": "double f(double x) { return x * 1.5; }",
    "a literal of type double": "int f(int n) { return n * 0.5; }",
    "a single": "float f(float x, float y) { return x / y; }",
    "a conversion": "int f(float x) { return x; }",
    "of 64 bits": "float f(long long n) { return n; }",
    "a comparison": "int f(double x, double y) { return x < y; }",
    "mathematics": "#include <math.h>\ndouble f(double x) { return sqrt(x); }",
    "mathematics by another name": "double root(double) __asm__(\"sqrt\"); double f(double x) { return root(x); }",
    "mathematics by its name inside": "double __ieee754_sqrt(double); double f(double x) { return __ieee754_sqrt(x); }",
    "mathematics of complex numbers": "double cabs(_Complex double); double f(_Complex double x) { return cabs(x); }",
    "a random number": "double drand48(void); double f(void) { return drand48(); }",
    "a square root of the builtin kind": "float f(float x) { return __builtin_sinf(x); }",
    "a text": "#include <stdlib.h>\ndouble f(const char *text) { return strtod(text, 0); }",
    "a complex number": "_Complex double f(_Complex double x) { return x * x; }",
    "a long double": "long double f(long double x) { return x + 1; }",
}  # fmt: skip
NEITHER = {
    "integers": "int f(int a, int b) { return a / b + a % b; }",
    "wide integers": "long long f(long long a, long long b) { return a / b * 3 + a % b + (a << b); }",
    "a constant": "int f(void) { return (int)(1.5 * 2); }",
    "fixed point": "#include <stdint.h>\nint32_t f(int32_t a, int32_t b) { return (int32_t)(((int64_t)a * b) >> 16); }",
    "copies": "#include <string.h>\nstruct s { int x[99]; }; struct s f(struct s *a) { return *a; }",
    "its own pool": "static char pool[99]; void *allocate(int n) { return pool + n; }",
}  # fmt: skip


@pytest.fixture(scope="module")
def board() -> Iterator[SandboxPool]:
    with SandboxPool(1, Limits(cpu_seconds=2, wall_seconds=60, memory_mib=256)) as opened:
        yield opened


def measured(board: SandboxPool, text: str, driver: str = MAIN, entry_point: str = "") -> Footprint:
    """The footprint of an answer with a driver."""
    found = board.run(text, [], language="cortex-m3", driver=driver, entry_point=entry_point)
    assert found.parses, found.error
    assert found.footprint is not None
    return found.footprint


@pytest.mark.parametrize("name", RECURSIVE)
def test_recursion_is_found_also_where_pointers_hide_it(board: SandboxPool, name: str) -> None:
    found = measured(board, RECURSIVE[name])
    assert (found.recursion, found.stack_bytes) == (True, None)


@pytest.mark.parametrize("name", NOT_RECURSIVE)
def test_calls_without_a_cycle_are_not_recursion(board: SandboxPool, name: str) -> None:
    found = measured(board, NOT_RECURSIVE[name])
    assert (found.recursion, found.stack_bytes is None) == (False, False)


@pytest.mark.parametrize("name", HEAP)
def test_a_heap_is_found_under_any_name(board: SandboxPool, name: str) -> None:
    assert measured(board, HEAP[name]).heap


@pytest.mark.parametrize("name", FLOAT)
def test_floating_point_is_found(board: SandboxPool, name: str) -> None:
    assert measured(board, FLOAT[name]).float


@pytest.mark.parametrize("name", NEITHER)
def test_integers_and_own_memory_are_neither_heap_nor_floating_point(board: SandboxPool, name: str) -> None:
    found = measured(board, NEITHER[name])
    assert (found.heap, found.float, found.recursion) == (False, False, False)


def test_the_stack_is_that_of_the_deepest_chain_of_calls(board: SandboxPool) -> None:
    text = (
        "__attribute__((noinline)) int c(int n) { volatile char b[200]; b[n] = 1; return b[0]; }\n"
        "__attribute__((noinline)) int b(int n) { volatile char b[100]; b[n] = 1; return c(n) + b[0]; }\n"
        "int a(int n) { volatile char b_[50]; b_[n] = 1; return b(n) + c(n) + b_[0]; }\n"
    )
    one = measured(board, text.splitlines()[0]).stack_bytes
    two = measured(board, "\n".join(text.splitlines()[:2])).stack_bytes
    three = measured(board, text).stack_bytes
    assert one is not None
    assert two is not None
    assert three is not None
    assert 200 <= one < two - 100 < three - 150 < 400


@pytest.mark.parametrize("room", ["char b[n]", "char *b = __builtin_alloca(n)"])
def test_an_array_of_variable_size_has_no_bound(board: SandboxPool, room: str) -> None:
    text = f"int use(char *); int f(int n) {{ {room}; return use(b); }}\n"
    assert measured(board, text + "__attribute__((noinline)) int use(char *b) { return b[0]; }").stack_bytes is None


def test_code_data_and_constants_count_and_zeros_and_the_driver_do_not(board: SandboxPool) -> None:
    assert measured(board, "char zeros[1000];").code_bytes == 0
    assert measured(board, "char data[1000] = {1};").code_bytes == 1000
    assert measured(board, "const char constants[1000] = {1};").code_bytes == 1000
    assert (
        measured(board, '__attribute__((section(".comment"), used)) const char moved[1000] = {1};').code_bytes >= 1000
    )
    small = measured(board, "int f(int n) { return n; }")
    assert 0 < small.code_bytes <= 4
    body = '{ int n; scanf("%d", &n); printf("%.1f", n * f(n) / 2.0); }'
    driver = f"int f(int n);\n#include <stdio.h>\nint main(void) {body}\n"
    assert measured(board, "int f(int n) { return n; }", driver) == small


@pytest.mark.parametrize(
    "text", ["static int f(int n) { return n; }", "#define f(n) (n)", "int g(int n) { return n; }", "int f;",
             "inline int f(int n) { return n; }"],
)  # fmt: skip
def test_the_function_that_is_asked_for_must_be_one_that_is_measured(board: SandboxPool, text: str) -> None:
    found = board.run(text, [], language="cortex-m3", driver=MAIN, entry_point="f")
    assert (found.parses, found.error) == (False, "it must define f as a function that other files can call")


@pytest.mark.parametrize("text", ["/*", "#if 1", "int f(int n) {"])
def test_an_answer_that_is_complete_only_with_its_driver_does_not_compile(board: SandboxPool, text: str) -> None:
    driver = f"\n*/\n#endif\n}}\n{MAIN}"
    assert not board.run(text, [], language="cortex-m3", driver=driver, entry_point="f").parses


BIG = "{ for (int k = 1; k < n; k++) { n ^= n << k; n += n / k; n *= 7; } return n; }"


@pytest.mark.parametrize(
    "text",
    [
        f"int f(int n) {{ return n; }}\n#define f(n) ({{ int big(int n) {BIG} big(n); }})",
        f"int f(int n) {{ return n; }}\nstatic inline int big(int n) {BIG}\n#define printf(t, n) puts(big(n) ? t : 0)",
        f"int small(int) __asm__(\"f\"); int small(int n) {{ return n; }}\n"
        f"static inline int f(int) __asm__(\"g\"); static inline int f(int n) {BIG}",
    ],
    ids=["macro", "macro for the library", "inline function under another name"],
)  # fmt: skip
def test_no_code_of_an_answer_hides_in_its_driver(board: SandboxPool, text: str) -> None:
    driver = '#include <stdio.h>\nint f(int n);\nint main(void) { printf("%d\\n", f(42)); return 0; }'
    found = board.run(text, [""], language="cortex-m3", driver=driver, entry_point="f")
    assert found.footprint is not None
    assert found.footprint.code_bytes < 10
    assert found.executions[0].stdout == "42\n"  # the driver has called what was measured


@pytest.mark.parametrize("body", ['__asm__ volatile("nop");', '__asm__("bl main" ::: "lr");'])
def test_inline_assembly_does_not_compile(board: SandboxPool, body: str) -> None:
    found = board.run(f"int main(void) {{ {body} return 0; }}", [], language="cortex-m3")
    assert "inline assembly" in found.error


def test_frames_are_those_that_gcc_reports(tmp_path: Path) -> None:
    gcc = shutil.which("arm-none-eabi-gcc")
    assert gcc is not None
    compared = 0
    for problem in load_split("firmware")[::3]:
        (tmp_path / "s.c").write_text(problem.solutions[0])
        options = [*CORTEX_M3.compiler, "-std=c11", "-Os", "-g1", "-ffunction-sections", "-fstack-usage", "-S"]
        subprocess.run([gcc, *options, "s.c", "-o", "s.s"], cwd=tmp_path, check=True)
        functions = footprint._functions((tmp_path / "s.s").read_text())
        for name, size in re.findall(r":(\w+)\t(\d+)\tstatic", (tmp_path / "s.su").read_text()):
            assert functions[name].stack == int(size), (problem.id, name)
            compared += 1
    assert compared > 10


def _output_of(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_every_function_of_the_mathematical_library_is_floating_point() -> None:
    gcc, names = shutil.which("arm-none-eabi-gcc"), shutil.which("arm-none-eabi-nm")
    assert gcc is not None
    assert names is not None
    library = _output_of(gcc, *CORTEX_M3.compiler, "-print-file-name=libm.a").strip()
    functions = set(re.findall(r" [TW] (\w+)", _output_of(names, library)))
    assert len(functions) > 300
    other = {each for each in functions if not footprint.FLOAT.fullmatch(each)}
    assert {each for each in other if not each.startswith("fe")} == set()  # those are about rounding and exceptions


def test_many_functions_and_pointers_take_no_quadratic_time() -> None:
    names = [f"f{number}" for number in range(50_000)]
    body = "\t.type\t{0}, %function\n{0}:\n\t.cfi_def_cfa_offset 8\n\tblx\tr3\n\tbl\t{1}\n"
    text = "".join(map(body.format, names, [*names[1:], "puts"])) + "".join(f"\t.word\t{name}\n" for name in names)
    functions = footprint._functions(text)
    assert footprint._deepest(functions) == (True, None)
    straight = footprint._functions(text.replace("\tblx\tr3\n", ""))
    assert footprint._deepest(straight) == (False, 8 * len(names))


@pytest.mark.parametrize(
    "content", [b"", b"\x7fELF", b"\x7fELF\x01\x01" + b"\xff" * 100, b"\x7fELF\x02\x01" + bytes(99)]
)
def test_an_object_file_that_does_not_fit_is_an_error(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        footprint.footprint("", content)
