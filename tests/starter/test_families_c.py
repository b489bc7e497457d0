"""The families of built-in problems in C: programs in C print what the reference in Python does."""

from __future__ import annotations

import random
from pathlib import Path

import c_programs
import pytest
from families.catalogue import FIRMWARE, GENERAL
from family import Family
from generate import build_problem, run_reference

from securecoderl_edge.languages.language import C

WITH_C = tuple(family for family in (*GENERAL, *FIRMWARE) if family.has_c)
MORE_INPUTS = 20
COMPOSITIONS = 3


@pytest.mark.slow
@c_programs.needs_gcc
@pytest.mark.parametrize("family", WITH_C, ids=lambda family: family.name)
def test_solutions_in_c_print_what_the_reference_in_python_prints(family: Family, tmp_path: Path) -> None:
    programs, inputs, expected = [], [], []
    for key in random.Random(family.name).sample(family.compositions, min(COMPOSITIONS, len(family.compositions))):
        problem = build_problem(family, key, language=C.name)
        rng = random.Random(key)
        draft = family.draft(key, rng, 0.0)
        drawn = [draft.draw_input(rng) for _ in range(MORE_INPUTS)]
        given = [*(test.input for test in problem.tests), *drawn]
        printed = [
            *(test.output for test in problem.tests),
            *(run_reference(draft.solutions[0], text) for text in drawn),
        ]
        for program in problem.solutions:
            programs.append(program)
            inputs.append(given)
            expected.append(printed)
    c_programs.check(tmp_path, programs, inputs, expected)


@c_programs.needs_gcc
def test_a_warning_a_crash_and_undefined_behavior_of_a_program_are_found(tmp_path: Path) -> None:
    begin = "#include <stdio.h>\n\nint main(void)\n{\n    int x = 0;\n"
    end = '    printf("%d\\n", x);\n    return 0;\n}\n'
    read = '    if (scanf("%d", &x) != 1)\n        return 1;\n'
    assert c_programs.outputs(tmp_path, [begin + read + end], [["7\n"]]) == [["7\n"]]
    faults = ("    int unused;\n", f"{read}    return x;\n", f"{read}    x += 2147483647;\n")
    for fault in faults:
        with pytest.raises(AssertionError):
            c_programs.outputs(tmp_path, [begin + fault + end], [["7\n"]])
