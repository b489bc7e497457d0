"""Problems whose answers tests take programs out of: the beginning of a file, a function, a program."""

from __future__ import annotations

from dataclasses import replace

from securecoderl_edge.problems.problem import Problem, Test
from securecoderl_edge.prompts.styles import PromptFormat

CODE = PromptFormat("code")
GIVEN = 'from typing import List\n\n\ndef double(numbers: List[int]) -> List[int]:\n    """Twice each."""'
BEGUN = Problem(
    "h",
    "Complete the function `double(numbers)` of the given code, and write the whole program.",
    kind="call",
    entry_point="double",
    assertions=("assert double([1]) == [2]",),
    starter_code=GIVEN,
)
CALL = replace(BEGUN, statement="Double.\n\nWrite the function `double(numbers)`.", starter_code="")
STDIN = Problem("s", "Double a number.", tests=(Test("1", "2"),))
BODY = "    return [2 * number for number in numbers]\n"
