"""Extraction of the program from a completion.

Removes everything around a program: the prompt that some runtimes repeat, fences, sentences before and after, complete
or truncated special tokens of a chat format. Never repairs a program: one that breaks off in the middle of a statement
stays so and does not parse, since a repair would overrate the model. A text that is a program is returned unchanged.

Nothing here compiles the text, because untrusted text can crash a parser. The text is scanned line by line, in time
proportional to its length.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from securecoderl_edge.languages.language import LANGUAGES, PYTHON, C
from securecoderl_edge.problems.problem import Problem
from securecoderl_edge.prompts.styles import (
    INSTRUCTION_HEADING,
    OURS,
    PROBLEM_HEADING,
    RESPONSE_HEADING,
    SOLUTION_HEADING,
    STOP_MARKERS,
    PromptFormat,
)
from securecoderl_edge.prompts.thoughts import open_thought, without_thought

EXTRACT_MODES = ("auto", "raw")

# The first lookahead makes the rest match at once: without it a long line takes quadratic time.
_FENCE = re.compile(
    r"^(?P<indent>[ \t]*)(?P<mark>`{3,}(?!`)|~{3,}(?!~))(?=[^`\n]*$)[ \t]*(?P<label>[\w+.#-]*)[^`\n]*$", re.MULTILINE
)
_PARTIAL_FENCE = re.compile(r"\n[ \t]*(?:`{1,2}|~{1,2})\Z")
# Special tokens that were decoded as text, the last one possibly truncated. Programs have them only in strings, within
# lines.
_TOKEN = r"(?:<\|[\w▁]+\|>|<｜[\w▁]+｜>|</?s>)"
_FIRST_TOKENS = re.compile(rf"(?:\s*{_TOKEN})+(?=\s|\Z|\w)")
_LAST_TOKEN = re.compile(rf"{_TOKEN}[ \t]*$|<[|｜][\w▁]*[|｜]?\Z", re.MULTILINE)
_SECTION = re.compile(rf"^(?:{'|'.join(map(re.escape, STOP_MARKERS))})[ \t]*$", re.MULTILINE)
# A prompt in a built-in template, or its end: of another problem, or not repeated exactly.
_PROMPT = re.compile(
    rf"(?:(?:{PROBLEM_HEADING}|{INSTRUCTION_HEADING})[ \t]*\n.*?\n)?(?:{SOLUTION_HEADING}|{RESPONSE_HEADING})[ \t]*\n",
    re.DOTALL,
)

# The parts of a language that decide where a statement begins: comments, strings, brackets, line ends.
_COMMON_LEXEMES = r""" | "(?:\\.|[^"\\\n])*"? | '(?:\\.|[^'\\\n])*'? | [()\[\]{}] | \\\r?\n | \n"""
_OWN_LEXEMES = {PYTHON.name: r"""\#[^\n]* | \'\'\' | \"\"\" """, C.name: r"//[^\n]* | /\*.*?(?:\*/|\Z)"}
_LEXEMES = {name: re.compile(own + _COMMON_LEXEMES, re.DOTALL | re.VERBOSE) for name, own in _OWN_LEXEMES.items()}
_REST_OF_STRING = {quotes: re.compile(rf"(?:\\.|[^\\])*?(?:{quotes}|\Z)", re.DOTALL) for quotes in (3 * "'", 3 * '"')}

# The end of a continued file: given code is an open function, and the next definition is not part of the answer.
_UNINDENTED = re.compile(r"\S")
_NEXT_PROBLEM = re.compile(r"\"\"\"|'''|```")
_NEXT_STEP = re.compile(r"\"\"\"|'''|```|assert\b|print\b")
_NEXT_BLOCK = re.compile(r"```")  # in C, where neither indentation nor text between quotes tells more

_ENDS_OF_C = (";", "{", "}", ",", "(", ")", "\\", "*/", "]", "=")
_BULLET = re.compile(r"(?:\d+[.)]|[-*•])[ \t]+")
_HEADING = re.compile(r"[A-Z][A-Za-z ]*:\s*\Z")
_END_OF_WORDS = re.compile(r"[=(\[{`:\"]")
_WORD = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")
# Words that may be next to a name in an expression.
_OPERATORS = frozenset(("and", "as", "else", "for", "from", "if", "import", "in", "is", "lambda", "not", "or"))


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
    """

    style: str = OURS.style
    kind: str = "stdin"
    given_code: str = ""
    echoes: tuple[str, ...] = ()
    is_thinking: bool = False
    language: str = PYTHON.name

    @classmethod
    def of(cls, problem: Problem, format: PromptFormat = OURS) -> PromptFacts:
        """The facts for a problem in this prompt format; renders the prompt, so it is called once for each problem."""
        prompt = format.prompt(problem)
        echoes = tuple(filter(None, (prompt.strip(), problem.statement.strip())))
        is_thinking = bool(open_thought(prompt))
        return cls(format.style, problem.kind, problem.starter_code.rstrip(), echoes, is_thinking, problem.language)


def prompt_facts(problem: Problem, format: PromptFormat = OURS, extract: str = "auto") -> PromptFacts | None:
    """`PromptFacts.of`, or None for ``raw``: the whole completion is the program.

    Raises:
        ValueError: unknown mode.
    """
    if extract not in EXTRACT_MODES:
        raise ValueError(f"extract mode must be one of {', '.join(EXTRACT_MODES)}, not {extract!r}")
    return PromptFacts.of(problem, format) if extract == "auto" else None


def extract_program(completion: str, facts: PromptFacts | None) -> str:
    """The program in a completion; without ``facts`` all of it.

    Takes, in this order: the text after the repeated prompt and the model's thoughts; the text before a special token
    or a heading of the built-in template; the first fenced block in the problem's language, up to the end of the text
    if its fence is never closed; and, without fences, the text between the sentences before and after the program. A
    completion of given code (style ``code``) is appended to that code and ends where something else begins.
    """
    if facts is None:
        return completion
    answer, _ = _answer_in(completion, facts)
    if facts.style == "code":
        if _is_whole_program(answer, facts):
            program, _ = _program_in(answer, facts.language)
            if not _has_code(program, facts.language):
                return completion
            # A fence, too, may contain only the body, which continues the given code.
            is_body = facts.given_code and _first_line(program)[:1].isspace()
            return f"{facts.given_code}\n{program}" if is_body else program
        continued = answer[: _end_of_continuation(answer, facts)]
        return f"{facts.given_code}\n{continued}" if facts.given_code else continued
    program, _ = _program_in(answer, facts.language)
    if _has_code(program, facts.language):
        return program
    # An empty text is a program that runs clean; a completion with other text, or a thought, must not count as one.
    return f"<think>{completion}" if facts.is_thinking else completion


def is_over(completion: str, facts: PromptFacts) -> bool:
    """Whether the program in a completion has ended: more text would not change the extracted program.

    Considers whole lines only, and is False while the end is uncertain. A program without fences or headings ends with
    its text.
    """
    lines = completion[: completion.rfind("\n") + 1]
    start = lines.lstrip()
    if any(echo.startswith(start.rstrip()) for echo in facts.echoes) or (
        _SECTION.match(start) and not _PROMPT.match(start)
    ):
        return False  # a prompt is being repeated
    answer, is_cut = _answer_in(lines, facts)
    if facts.style == "code" and not _is_whole_program(answer, facts):
        return is_cut or _end_of_continuation(answer, facts) is not None
    program, is_certain = _program_in(answer, facts.language)
    return (is_cut or is_certain) and _has_code(program, facts.language)


def _has_code(program: str, language: str) -> bool:
    """Whether there is a line that is neither blank nor a comment."""
    comment = LANGUAGES[language].comment
    return any(line.strip() and not line.lstrip().startswith(comment) for line in program.split("\n"))


def _is_whole_program(answer: str, facts: PromptFacts) -> bool:
    """Whether the model rewrote the given code from its start, as models that were trained to chat do."""
    first = _first_line(answer)
    is_begun_again = bool(facts.given_code and first and not first[0].isspace())
    return is_begun_again or _FENCE.match(answer.lstrip("\n")) is not None


def _end_of_continuation(answer: str, facts: PromptFacts) -> int | None:
    """Find the end of a continuation: the place where other text begins in a completion of given code.

    Given code ends in an open function, which ends with the first line that is not indented. Without given code a file
    ends at a paragraph of prose or the text of another problem; for a call problem also at the first assertion or
    print.
    """
    stop = _UNINDENTED if facts.given_code else _NEXT_PROBLEM if facts.kind == "stdin" else _NEXT_STEP
    if facts.language != PYTHON.name:
        stop = _NEXT_BLOCK
    begun = False
    for place, is_statement in _lines(answer, 0, facts.language):
        line = _line(answer, place)
        is_prose = is_statement and _is_set_off(answer, place) and _is_sentence(line, facts.language)
        if begun and (is_prose or (is_statement and stop.match(line))):
            return place
        begun = begun or bool(line.strip())
    return None


def _first_line(text: str) -> str:
    return next((line for line in text.split("\n") if line.strip()), "")


def _answer_in(completion: str, facts: PromptFacts) -> tuple[str, bool]:
    """Strip repeated prompt, thoughts, special tokens and further sections; also returns whether the end was cut."""
    text, start = completion, completion.lstrip()
    echo = next((each for each in facts.echoes if start.startswith(each)), None)
    if echo is not None:
        text = start[len(echo) :].removeprefix("\n")
    elif (heading := _PROMPT.match(start)) is not None:
        text = start[heading.end() :]
    text = text[found.end() :] if (found := _FIRST_TOKENS.match(text)) else text
    text = without_thought(text, facts.is_thinking)
    whole = text
    text = text[: end.start()] if (end := _LAST_TOKEN.search(text)) else text
    end = _SECTION.search(text)
    text = text[: max(end.start() - 1, 0)] if end else text
    return text, len(text) < len(whole)


def _program_in(text: str, language: str) -> tuple[str, bool]:
    """The first fenced block, or the text between sentences; also returns whether more text cannot change it."""
    start, epilogue = _end_of_sentences(text, language), _start_of_epilogue(text, language)
    for place, is_statement in _lines(text, start, language):
        if _FENCE.match(text, place):
            fences = list(_FENCE.finditer(text, place))
            is_certain = bool(fences[0]["label"]) or place == start
            # After code a bare fence closes the block that the prompt had opened, unless its partner follows.
            if not is_certain and len(fences) % 2:
                return text[start:place], False
            program, is_closed = _block(text, fences, LANGUAGES[language].labels)
            return program, is_certain and is_closed
        # A line of prose among statements is a fault of the program.
        is_set_off = _is_set_off(text, place)
        may_be_cut = is_statement and place > start and (place >= epilogue or is_set_off)
        if may_be_cut and _is_sentence(_line(text, place), language):
            # If only prose came before, the program may follow.
            return text[start:place], is_set_off and not _is_sentence(_first_line(text[start:]), language)
    return text[start:], False


def _is_set_off(text: str, place: int) -> bool:
    """Whether the line at ``place`` begins a paragraph or is a heading."""
    is_paragraph = text.startswith("\n\n", place - 2) or text.startswith("\n\r\n", place - 3)
    return is_paragraph or _HEADING.match(_line(text, place)) is not None


def _start_of_epilogue(text: str, language: str) -> int:
    """The offset of the trailing lines that are only prose."""
    end = len(text)
    while end > 0:
        start = text.rfind("\n", 0, end - 1) + 1
        line = text[start:end]
        if line.strip() and not _is_sentence(line, language):
            break
        end = start
    return end


def _end_of_sentences(text: str, language: str) -> int:
    """The offset of the first line that is neither prose nor blank; 0 if no prose precedes it, or nothing follows."""
    start, is_after_prose = 0, False
    while start < len(text):
        line = _line(text, start)
        if _is_sentence(line, language):
            is_after_prose = True
        elif line.strip():
            return start if is_after_prose else 0
        start += len(line) + 1
    return 0


def _block(text: str, fences: Sequence[re.Match[str]], labels: frozenset[str]) -> tuple[str, bool]:
    """The body of the first block with one of these labels, else of the first; whether it is the former and closed."""
    bodies: list[str] = []
    opening: re.Match[str] | None = None
    for fence in fences:
        if opening is None:
            opening = fence
        elif fence["mark"].startswith(opening["mark"]) and not fence["label"]:
            bodies.append(_body(text[opening.end() + 1 : fence.start()], opening))
            if opening["label"].lower() in labels:
                return bodies[-1], True
            opening = None
    if opening is not None and (not bodies or opening["label"].lower() in labels):
        return _body(_PARTIAL_FENCE.sub("\n", text[opening.end() + 1 :]), opening), False
    return bodies[0], False


def _body(text: str, opening: re.Match[str]) -> str:
    """The lines of a block without the indentation of its fence."""
    indent = opening["indent"]
    return "\n".join(line.removeprefix(indent) for line in text.split("\n")) if indent else text


def _line(text: str, place: int) -> str:
    end = text.find("\n", place)
    return text[place:] if end < 0 else text[place:end]


def _lines(text: str, start: int, language: str) -> Iterator[tuple[int, bool]]:
    """The offset of each line from ``start`` that begins outside of strings, and whether a statement can start."""
    yield start, True
    depth, place, lexemes = 0, start, _LEXEMES[language]
    while (lexeme := lexemes.search(text, place)) is not None:
        token, place = lexeme.group(), lexeme.end()
        if token in _REST_OF_STRING:
            rest = _REST_OF_STRING[token].match(text, place)
            place = rest.end() if rest else len(text)
        elif token in "([{":
            depth += 1
        elif token in ")]}":
            depth = max(0, depth - 1)
        elif token[0] in "\\\n":
            yield place, depth == 0 and token == "\n"


def _is_sentence(line: str, language: str) -> bool:
    """Whether a line is English and cannot be a statement: it has two adjacent words that are not operators.

    In C a type may stand before a name, so there a line that ends like a statement or a declaration is none.
    Only lines that begin like sentences, headings or list items count: a mistyped statement stays in its program.
    """
    text = line.rstrip()
    if language == C.name and text.endswith(_ENDS_OF_C):
        return False
    bullet = _BULLET.match(text)
    if bullet is not None:
        text = text[bullet.end() :]
    elif not text[:1].isupper():
        return False
    if _HEADING.match(text):
        return True
    words = _END_OF_WORDS.split(text, maxsplit=1)[0].split()
    if words and words[0].endswith("!"):
        return True
    names = [_WORD.match(word) is not None and word.rstrip(",.!?;") not in _OPERATORS for word in words]
    ends_clause = [word.endswith((",", ";")) for word in words]
    return any(a and b and not c for a, b, c in zip(names, names[1:], ends_clause, strict=False))
