"""Compiles and runs C programs of this repository's own, many in one process; nothing that a model wrote comes here."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from securecoderl_edge.problems.comparison import same_output

_FLAGS = (
    *("-std=c11", "-D_POSIX_C_SOURCE=200809L", "-Wall", "-Wextra", "-Werror", "-O1"),
    *("-fsanitize=address,undefined", "-fno-sanitize-recover=all"),
)
# Runs the programs, which are its functions, one after the other: each input in a child with its own stdin and stdout.
_DRIVER = """\
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

{prototypes}
static int (*programs[])(void) = {{{names}}};
static const int inputs[] = {{{sizes}}};

static int run(int program, int number)
{{
    char name[64];
    alarm(5);
    snprintf(name, sizeof name, "%d-%d.in", program, number);
    if (freopen(name, "r", stdin) == NULL)
        return 1;
    snprintf(name, sizeof name, "%d-%d.out", program, number);
    if (freopen(name, "w", stdout) == NULL)
        return 1;
    return programs[program]();
}}

int main(void)
{{
    for (int program = 0; program < (int)(sizeof inputs / sizeof *inputs); program++)
        for (int number = 0; number < inputs[program]; number++) {{
            pid_t child = fork();
            if (child == 0)
                exit(run(program, number));
            int status = 1;
            waitpid(child, &status, 0);
            if (status != 0)
                fprintf(stderr, "program %d failed on input %d\\n", program, number);
        }}
    return 0;
}}
"""

needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")


def outputs(folder: Path, programs: Sequence[str], inputs: Sequence[Sequence[str]]) -> list[list[str]]:
    """What each program prints for each of its inputs.

    A warning of the compiler, a report of a sanitizer and any other failure is an error.
    """
    names = [f"program_{number}" for number in range(len(programs))]
    for name, program in zip(names, programs, strict=True):
        (folder / f"{name}.c").write_text(f"#define main {name}\n{program}")
    prototypes = "".join(f"int {name}(void);\n" for name in names)
    sizes = ", ".join(str(len(given)) for given in inputs)
    (folder / "driver.c").write_text(_DRIVER.format(prototypes=prototypes, names=", ".join(names), sizes=sizes))
    run = {"cwd": folder, "capture_output": True, "text": True}
    built = subprocess.run(
        ["gcc", *_FLAGS, "driver.c", *(f"{name}.c" for name in names), "-o", "all"], **run, check=False
    )
    assert built.returncode == 0, built.stderr[:4000]
    for number, given in enumerate(inputs):
        for place, text in enumerate(given):
            (folder / f"{number}-{place}.in").write_text(text)
    environment = {"ASAN_OPTIONS": "detect_leaks=0"}
    done = subprocess.run(["./all"], **run, check=False, env=environment)
    assert done.returncode == 0, done.stderr[:4000]
    assert not done.stderr, done.stderr[:4000]
    return [
        [(folder / f"{number}-{place}.out").read_text() for place in range(len(given))]
        for number, given in enumerate(inputs)
    ]


def check(
    folder: Path, programs: Sequence[str], inputs: Sequence[Sequence[str]], expected: Sequence[Sequence[str]]
) -> None:
    """Assert that each program prints what is expected for each of its inputs."""
    for program, texts, wanted, found in zip(
        programs, inputs, expected, outputs(folder, programs, inputs), strict=True
    ):
        for text, output, actual in zip(texts, wanted, found, strict=True):
            assert same_output(actual, output), f"{program}\nprints {actual!r}, not {output!r}, for {text!r}"
