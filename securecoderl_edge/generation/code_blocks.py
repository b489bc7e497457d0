"""The blocks of code in an answer to a chat message, and the checks of those that can be checked."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from textwrap import dedent
from typing import TYPE_CHECKING

from securecoderl_edge.generation.answers import Candidate, check, worth
from securecoderl_edge.languages.language import LANGUAGES, PYTHON
from securecoderl_edge.languages.python_source import parse
from securecoderl_edge.problems.problem import Problem
from securecoderl_edge.prompts.blocks import find_blocks
from securecoderl_edge.prompts.extraction import PromptFacts, extract_program
from securecoderl_edge.prompts.source_lines import has_code
from securecoderl_edge.prompts.styles import PromptFormat
from securecoderl_edge.prompts.thoughts import without_thoughts
from securecoderl_edge.runtimes.protocol import Completion

if TYPE_CHECKING:
    from securecoderl_edge.scoring.scorer import Scorer

# Of one answer; further blocks are shown unchecked.
MOST_CHECKED = 8
_NOT_FOR_CHECKS = frozenset(("", "h", "cpp", "c++"))
_MAIN = re.compile(r"\bmain\s*\(")
# Of a program in C: comments and strings, which may tell that `main` calls it.
_WORDS = re.compile(r"//[^\n]*|/\*.*?(?:\*/|\Z)|([\"'])(?:\\.|(?!\1)[^\\\n])*\1?", re.DOTALL)
_ADDED_MAIN = "\nint main(void) { return 0; }\n"


@dataclass(frozen=True)
class CodeBlock:
    """One block.

    Attributes:
        language: its label; empty without one.
        start, end: offsets of the block, with its fences, in the answer's text.
        candidate: its check; None if it was not checked.
        is_thought: it is part of a thought before the answer.
    """

    language: str
    program: str
    start: int
    end: int
    candidate: Candidate | None = None
    is_thought: bool = False


@dataclass(frozen=True)
class ChatAnswer:
    """A completion with its blocks.

    Attributes:
        candidate: with tests, the program that was tested. Without, the first block that is not accepted, else the
            first that was checked. None if nothing was checked.
    """

    completion: Completion
    blocks: tuple[CodeBlock, ...] = ()
    candidate: Candidate | None = None


def check_answers(
    scorer: Scorer,
    problem: Problem,
    format: PromptFormat,
    answers: Sequence[tuple[Completion, str]],
    can_run: Callable[[str], bool],
    is_thinking: bool = False,
    needs_program: bool = True,
) -> list[ChatAnswer]:
    """Check the blocks of each answer, given with its text, in the same order.

    Blocks in Python and C that are no part of a thought are parsed or compiled, and scanned. If the problem has tests,
    they are run on the program that `extract_program` finds in the answer.

    Args:
        can_run: whether programs in a language, given by name, can be run here.
        is_thinking: whether the answers begin within a thought.
        needs_program: else an answer in words, or in other languages, passes and fails no test.

    Raises:
        SceError: the sandbox failed.
    """
    shown = [_blocks_of(text, problem.language, is_thinking) for _, text in answers]
    problems, programs, places = [], [], []
    for number, ((completion, text), blocks) in enumerate(zip(answers, shown, strict=True)):
        checked = 0
        for place, block in enumerate(blocks):
            language = _language_of(block)
            if language is not None and checked < MOST_CHECKED and can_run(language):
                checked += 1
                problems.append(
                    replace(problem, kind="stdin", language=language, tests=(), assertions=(), security_tests=())
                )
                programs.append([(completion, _compilable(block.program, language))])
                places.append((number, place))
        labels = {block.language for block in blocks if not block.is_thought}
        program = _tested_program(text, problem, format, bool(labels)) if problem.test_count else ""
        is_foreign = labels and not labels & LANGUAGES[problem.language].labels
        if problem.test_count and (needs_program or (program and not is_foreign)):
            problems.append(problem)
            programs.append([(completion, program)])
            places.append((number, -1))
    found: list[dict[int, Candidate]] = [{} for _ in answers]
    for (number, place), answer in zip(places, check(scorer, problems, programs), strict=True):
        found[number][place] = answer.best
    return [
        _answer(completion, blocks, checks)
        for (completion, _), blocks, checks in zip(answers, shown, found, strict=True)
    ]


def best_first(answers: Sequence[ChatAnswer]) -> list[ChatAnswer]:
    """Accepted answers, then those with nothing to check, then others; each by checks and probability."""
    return sorted(answers, key=_rank)


def _rank(answer: ChatAnswer) -> tuple[int, tuple[bool, bool, float], float]:
    logprobs = answer.completion.logprobs
    mean = sum(logprobs) / len(logprobs) if logprobs else float("-inf")
    if answer.candidate is None:
        return 1, (False, False, 0.0), -mean
    return 0 if answer.candidate.is_accepted else 2, worth(answer.candidate), -mean


def _answer(completion: Completion, blocks: Sequence[CodeBlock], checks: dict[int, Candidate]) -> ChatAnswer:
    shown = []
    for place, block in enumerate(blocks):
        candidate = checks.get(place)
        if candidate is not None and candidate.score.program != block.program:  # without the `main` that was added
            candidate = replace(candidate, score=replace(candidate.score, program=block.program))
        shown.append(replace(block, candidate=candidate))
    own = [block.candidate for block in shown if block.candidate is not None]
    judged = checks.get(-1) or next((each for each in own if not each.is_accepted), own[0] if own else None)
    return ChatAnswer(completion, tuple(shown), judged)


def _blocks_of(text: str, language: str, is_thinking: bool) -> list[CodeBlock]:
    start = len(text) - len(without_thoughts(text, is_thinking))
    return [
        # In a list, all is indented.
        CodeBlock(block.label, dedent(block.program), block.start, block.end, is_thought=block.start < start)
        for block in find_blocks(text, language)
    ]


def _language_of(block: CodeBlock) -> str | None:
    """The language in which a block can be checked."""
    if block.is_thought or block.language in _NOT_FOR_CHECKS:
        return None
    if not block.program.strip() or block.program.lstrip().startswith(">>>"):
        return None
    return next((name for name, language in LANGUAGES.items() if block.language in language.labels), None)


def _compilable(program: str, language: str) -> str:
    """A program of a block; functions in C alone get a `main`, behind them so that lines keep their numbers."""
    has_main = language == PYTHON.name or _MAIN.search(_WORDS.sub(" ", program))
    return program if has_main else program + _ADDED_MAIN


def _tested_program(text: str, problem: Problem, format: PromptFormat, has_blocks: bool) -> str:
    program = extract_program(text, PromptFacts.of(problem, format))
    is_words = not has_blocks and problem.language == PYTHON.name and parse(program) is None
    return "" if is_words or not has_code(program, problem.language) else program
