"""Extraction of the program from a completion, by one grammar for all prompt styles.

    [prefilled beginning] completion = [prompt] [role] [thoughts] answer [end of turn ...]
    answer     = text between <answer>, <code>, [PYTHON] or [BEGIN] and their ends, or all of it
    program    = the best block of `answer`, behind the blocks of helpers and imports before it
    block      = fenced code, or the text outside of fences without the prose before and behind it

The best block is whole and has what the problem needs, the function or a program that reads and prints; then a labelled
one beats a bare one, and of equal ones the last counts, since models correct themselves (as LiveCodeBench has it). A
body continues the given code. Where the prompt has the beginning of a block or a file, an answer that begins with code
continues it. A program is never repaired: one that breaks off in the middle of a statement stays so and does not parse,
since a repair would overrate the model.

Nothing here compiles the text, which could crash a parser. It is scanned by lines, in time proportional to its length.
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass, replace

from securecoderl_edge.languages.language import LANGUAGES, PYTHON
from securecoderl_edge.problems.problem import Problem
from securecoderl_edge.prompts.blocks import Block, begins_block, find_blocks
from securecoderl_edge.prompts.chat import Untemplated
from securecoderl_edge.prompts.helpers import bound_by, bound_in, definitions_in, has_needed, with_helpers
from securecoderl_edge.prompts.source_lines import (
    end_of_preamble,
    first_line,
    first_statement,
    has_code,
    is_prose,
    is_set_off,
    line_at,
    looks_complete,
    source_lines,
    without_epilogue,
)
from securecoderl_edge.prompts.styles import (
    CHAT_STYLES,
    INSTRUCTION_HEADING,
    OURS,
    PROBLEM_HEADING,
    RESPONSE_HEADING,
    SOLUTION_HEADING,
    STOP_MARKERS,
    PromptFormat,
)
from securecoderl_edge.prompts.tags import begins_with_tag, is_tag, without_tags
from securecoderl_edge.prompts.thoughts import CLOSINGS, open_thought, without_later_thoughts, without_thoughts
from securecoderl_edge.prompts.turns import end_of_turn, without_header

DEFINITIONS = "definitions"
EXTRACT_MODES = ("auto", DEFINITIONS, "raw")

_BYTE_ORDER_MARK = re.compile(r"\A(?:\ufeff(?!\ufeff)|\s*\u200b+)")  # Python accepts one, but no other mark
_STYLES_WITH_SECTIONS = ("stdin", "paper")
_SECTION = re.compile(rf"^(?:{'|'.join(map(re.escape, STOP_MARKERS))})[ \t]*$", re.MULTILINE)
# A prompt in a built-in template, or its end: of another problem, or not repeated exactly.
_PROMPT = re.compile(
    rf"(?:(?:{PROBLEM_HEADING}|{INSTRUCTION_HEADING})[ \t]*\n.*?\n)?(?:{SOLUTION_HEADING}|{RESPONSE_HEADING})[ \t]*\n",
    re.DOTALL,
)

# The end of a continued file: given code is an open function, and the next definition is not part of the answer.
_UNINDENTED = re.compile(r"\S")
# What an open function may use that follows it, a constant among it: other assignments are examples.
_MAY_BE_USED = re.compile(r"(?:async def|def|class|import|from) |[A-Z][A-Z\d_]* *(?::[^=\n]+)?=(?!=)")
_WORD = re.compile(r"\w+")
_NEXT_PROBLEM = re.compile(r"\"\"\"|'''|```")
_NEXT_STEP = re.compile(r"\"\"\"|'''|```|assert\b|print\b")
_NEXT_BLOCK = re.compile(r"```")  # in C, where neither indentation nor text between quotes tells more

# Closes a block within a longer one, then that.
_RISING = "\n".join("`" * length for length in range(3, 8))
_OUTPUT = re.compile(r"^(?:Example )?(?:Output|Result):\n\Z", re.MULTILINE)
_OPEN_STUB = re.compile(r"(?:from |import |@|(?:async )?def |class )")


@dataclass(frozen=True)
class PromptFacts:
    """Facts about a prompt that decide where the program in a completion begins and ends.

    Attributes:
        style: of the prompt, see `PromptFormat`.
        kind: of the problem.
        given_code: the beginning of the program, without trailing white space.
        echoes: texts that models repeat before they answer.
        is_thinking: whether the prompt ends with the beginning of a thought.
        language: of the program, a name in `LANGUAGES`.
        entry_point: the function that the problem needs; empty for a program that reads and prints.
        prefill: the beginning of the answer, which the prompt has and the completion has not.
        definitions_only: tests and examples beside the definitions are left out, see `definitions_in`.
    """

    style: str = OURS.style
    kind: str = "stdin"
    given_code: str = ""
    echoes: tuple[str, ...] = ()
    is_thinking: bool = False
    language: str = PYTHON.name
    entry_point: str = ""
    prefill: str = ""
    definitions_only: bool = False

    @classmethod
    def of(cls, problem: Problem, format: PromptFormat = OURS) -> PromptFacts:
        """The facts for a problem in this prompt format; renders the prompt, so it is called once for each problem."""
        prompt, statement = format.prompt(problem), problem.statement.strip()
        # Models repeat the question, not the tokens of the template around it.
        asked = replace(format, chat=Untemplated("")).prompt(problem) if format.style in CHAT_STYLES else prompt
        given_code = problem.starter_code.rstrip()
        if not given_code and problem.language == PYTHON.name and _OPEN_STUB.match(statement):
            given_code = statement  # a stub to complete
        return cls(
            format.style,
            problem.kind,
            given_code,
            tuple(filter(None, (asked.strip(), statement))),
            bool(open_thought(prompt)),
            problem.language,
            problem.entry_point or "",
            format.prefill(problem),
        )


def recorded_format(style: str, is_thinking: bool = False) -> PromptFormat:
    """The format of a prompt of which only the style is known, and whether it ended with the beginning of a thought.

    Raises:
        UsageError: unknown style.
    """
    return PromptFormat(style, Untemplated("", thinks=is_thinking) if style in CHAT_STYLES else None)


def prompt_facts(problem: Problem, format: PromptFormat = OURS, extract: str = "auto") -> PromptFacts | None:
    """`PromptFacts.of`; None for ``raw``, where the whole completion is the program.

    With ``definitions``, a program in Python that is to define a function is left with its definitions only.

    Raises:
        ValueError: unknown mode.
    """
    if extract not in EXTRACT_MODES:
        raise ValueError(f"extract mode must be one of {', '.join(EXTRACT_MODES)}, not {extract!r}")
    if extract == "raw":
        return None
    is_function = (problem.language, problem.kind) == (PYTHON.name, "call")
    return replace(PromptFacts.of(problem, format), definitions_only=extract == DEFINITIONS and is_function)


def extract_program(completion: str, facts: PromptFacts | None) -> str:
    """The program in a completion, see above; without ``facts`` all of it.

    A completion without code is returned whole: an empty text runs clean, and other text must not count as one.
    """
    if facts is None:
        return completion
    program = _program_in(_answer_in(completion, facts), facts)
    if facts.definitions_only:
        program = definitions_in(program)
    if has_code(program, facts.language):
        return program
    return f"<think>{completion}" if facts.is_thinking else completion


def is_over(completion: str, facts: PromptFacts) -> bool:
    """Whether the program in a completion has ended: more text would not change the extracted program.

    Considers whole lines only, and is False while the end is uncertain: behind a block of code another may follow, but
    not behind one that the prompt began.
    """
    lines = completion[: completion.rfind("\n") + 1]
    start = lines.lstrip()
    if any(echo.startswith(start.rstrip()) for echo in facts.echoes) or (
        _SECTION.match(start) and not _PROMPT.match(start)
    ):
        return False  # a prompt is being repeated
    answer = _answer_in(lines, facts)
    if not answer.strip():
        return False  # nothing yet, or a thought that goes on
    has_end = _is_continued(answer, facts) and _end_of_continuation(answer, facts)[1]
    has_end = has_end and not _begins_in_words(_turn_in(lines, facts), facts.language)  # a later tag may replace it
    # An answer is cut if it does not change with more text, even when that closes what may be open.
    more = f"<answer>\nprint(input())\n</answer>\n{'~' * 99}\n{'`' * 99}\nprint(input())\n"
    ends = (f"{lines}{CLOSINGS}\n{first}\n{more}" for first in ("", '"""', "'''", _RISING))
    is_cut = has_end or all(_answer_in(end, facts) == answer for end in ends)
    return is_cut and has_code(_program_in(answer, facts), facts.language)


def _answer_in(completion: str, facts: PromptFacts) -> str:
    """Strip all but the answer: what is around the turn, other sections, and the tags of an answer."""
    text = _turn_in(completion, facts)
    if facts.prefill and not _begins_in_words(text, facts.language):
        text = facts.prefill + text
        return text[: find_blocks(text, facts.language)[0].end]
    text = text[: _end_of_section(text, facts)]
    is_file = facts.style == "code" and not _begins_in_words(text, facts.language)  # which has no tags
    return without_tags(text, facts.language, up_to_end=is_file)


def _turn_in(completion: str, facts: PromptFacts) -> str:
    """Strip repeated prompt, role, thoughts and what follows the end of the turn."""
    text = _without_echo(completion, facts)
    text = without_header(without_thoughts(without_header(text), facts.is_thinking))
    return without_later_thoughts(text[: end_of_turn(text, facts.language)], facts.language)


def _without_echo(completion: str, facts: PromptFacts) -> str:
    text = _BYTE_ORDER_MARK.sub("", completion)
    start = text.lstrip()
    for echo in facts.echoes:
        rest = start[len(echo) :]
        if start.startswith(echo) and not rest.split("\n", 1)[0].strip():
            is_completed = facts.given_code and echo.endswith(facts.given_code) and first_line(rest)[:1].isspace()
            return start[len(echo) - len(facts.given_code) :] if is_completed else rest.removeprefix("\n")
    if (heading := _PROMPT.match(start)) is not None:
        return start[heading.end() :]
    return text


def _end_of_section(text: str, facts: PromptFacts) -> int:
    """Where another section of the built-in templates begins, for the styles that have them; code stands before it."""
    if facts.style not in _STYLES_WITH_SECTIONS:
        return len(text)
    sections = list(_SECTION.finditer(text))
    if not sections:
        return len(text)
    code = _start_of_code(text, facts.language)
    closed = [(block.start, block.end) for block in find_blocks(text, facts.language) if block.is_closed]
    for section in sections:
        start = section.start()
        while closed and closed[0][1] <= start:
            closed.pop(0)
        if code < start and not (closed and closed[0][0] < start):
            return start - 1
    return len(text)


def _start_of_code(text: str, language: str) -> int:
    """The offset of the first line that is neither blank nor prose nor a comment nor a tag."""
    offset = 0
    for line in text.split("\n"):
        if line.strip() and not is_tag(line) and not line.startswith("#") and not is_prose(line, language):
            return offset
        offset += len(line) + 1
    return offset


@dataclass(frozen=True)
class _Candidate:
    """A piece of an answer that may be its program.

    Attributes:
        program: its text.
        rank: 3 for a labelled block of the language, 2 for a bare one, 1 for text outside of blocks, 0 for another.
        level: how much it has of what the problem needs, see `has_needed`.
        is_whole: whether it is not broken off.
    """

    program: str
    rank: int
    level: int
    is_whole: bool

    @property
    def order(self) -> tuple[int, ...]:
        """The greatest is the best."""
        return self.level * self.is_whole, self.rank, self.level, self.is_whole


def _program_in(answer: str, facts: PromptFacts) -> str:
    """The best candidate of an answer with its helpers, behind the given code if it is a body."""
    if _is_continued(answer, facts):
        continued = answer[: _end_of_continuation(answer, facts)[0]]
        return f"{facts.given_code}\n{continued}" if facts.given_code else continued
    candidates = _candidates(answer, facts)
    if not candidates:
        return ""
    best = max(range(len(candidates)), key=lambda number: (candidates[number].order, number))
    program = candidates[best].program
    if first_statement(program, facts.language)[:1].isspace():
        return _body_or_program(program, facts)
    most = 0 if facts.entry_point else 1  # a program may be in two blocks, of which the first reads
    before = [
        block.program for block in candidates[:best] if block.rank >= 2 and block.is_whole and block.level <= most
    ]
    return with_helpers(program, before, facts.language, facts.entry_point)


def _candidates(answer: str, facts: PromptFacts) -> list[_Candidate]:
    language = facts.language
    found, outside = [], 0
    for block in find_blocks(answer, language):
        found.append((answer[outside : block.start], 1))
        is_ended = block.is_closed and not _OUTPUT.search(block.program)  # the fence of the output may be next
        program = block.program if is_ended else without_epilogue(block.program, language)
        if first_line(program).startswith(">>> "):  # a session
            typed = [line[4:] for line in program.split("\n") if line.startswith((">>>", "..."))]
            program = "\n".join(typed)
        found.append((program, _rank(block, language)))
        outside = block.end
    found.append((answer[outside:], 1))
    candidates = []
    for text, rank in found:
        program = without_epilogue(text[end_of_preamble(text, language) :], language) if rank == 1 else text
        if has_code(program, language) and not (rank in (1, 2) and is_prose(first_line(program), language)):
            whole = textwrap.dedent(program)
            candidates.append(
                _Candidate(
                    program, rank, has_needed(whole, facts.language, facts.entry_point), looks_complete(whole, language)
                )
            )
    return candidates


def _rank(block: Block, language: str) -> int:
    if not block.label:
        return 2
    return 3 if block.label in LANGUAGES[language].labels else 0


def _body_or_program(program: str, facts: PromptFacts) -> str:
    """An indented text: the body of the given code, or a program without the indentation of what stood around it."""
    whole = textwrap.dedent(program)
    if not facts.given_code:
        return whole
    first = first_statement(program, facts.language)
    bodies = tuple(first[: -len(first.lstrip())] + word for word in ("return", "if "))
    lines = (line_at(program, line.start) for line in source_lines(program, 0, facts.language))
    is_body = first.startswith(bodies) or any(line.startswith(bodies[0]) for line in lines)
    if facts.entry_point and not is_body and has_needed(whole, facts.language, facts.entry_point):
        return whole
    return f"{facts.given_code}\n{program[: _end_of_continuation(program, facts)[0]]}"


def _is_continued(answer: str, facts: PromptFacts) -> bool:
    """Whether an answer in the style ``code`` continues the given code, and does not begin again from its start.

    Models that were trained to chat write the whole program.
    """
    if facts.style != "code" or _begins_in_words(answer, facts.language):
        return False
    first = first_statement(answer, facts.language) or first_line(answer)
    return not (facts.given_code and first and not first[0].isspace())


def _begins_in_words(answer: str, language: str) -> bool:
    """Whether prose, a fence or a tag is before any code: models that were trained to chat do not continue a text."""
    first = first_statement(answer, language)
    return is_prose(first, language) or begins_block(first) or begins_with_tag(first)


def _end_of_continuation(answer: str, facts: PromptFacts) -> tuple[int, bool]:
    """Find the end of a continuation, and whether other text is there: then it stays the end, whatever follows.

    Given code ends in an open function, which ends with the first line that is not indented, but for comments within it
    and for what it uses: functions with their decorators, constants, imports. Without given code a file ends at a
    paragraph of prose or the text of another problem; for a call problem also at the first assertion or print.
    """
    stop = _UNINDENTED if facts.given_code else _NEXT_PROBLEM if facts.kind == "stdin" else _NEXT_STEP
    if facts.language != PYTHON.name:
        stop = _NEXT_BLOCK
    begun, seen, comments = False, 0, -1
    used: set[str] = set()
    bound = {facts.entry_point, *bound_in(facts.given_code, facts.language)}
    for line in source_lines(answer, 0, facts.language):
        text = line_at(answer, line.start)
        if stop is _UNINDENTED and line.is_statement and text.startswith(("#", "@")):
            comments = line.start if comments < 0 else comments
            continue
        is_other = line.is_statement and (
            stop.match(text) or (is_set_off(answer, line.start) and is_prose(text, facts.language))
        )
        if is_other and stop is _UNINDENTED and _MAY_BE_USED.match(text):
            before, seen = answer[seen : line.start], line.start
            used.update(_WORD.findall(before))
            bound |= bound_in(before, facts.language)
            is_other = not bound_by(text) & (used - bound)
        if begun and is_other:
            return (line.start if comments < 0 else comments), True
        if text.strip():
            begun, comments = True, -1
    return (len(answer) if comments < 0 or not begun else comments), False
