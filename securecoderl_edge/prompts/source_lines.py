"""The lines of a program in a text: where they begin outside of strings, and which of them are prose.

Nothing here compiles the text, because untrusted text can crash a parser. Texts are scanned in time proportional to
their length.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from securecoderl_edge.languages.language import LANGUAGES, PYTHON, C

# The parts of a language that decide where a statement begins: comments, strings, brackets, line ends.
_COMMON_LEXEMES = r""" | "(?:\\.|[^"\\\n])*"? | '(?:\\.|[^'\\\n])*'? | [()\[\]{}] | \\\r?\n | \n | `{3,}"""
_OWN_LEXEMES = {PYTHON.name: r"""\#[^\n]* | \'\'\' | \"\"\" """, C.name: r"//[^\n]* | /\*.*?(?:\*/|\Z)"}
_LEXEMES = {name: re.compile(own + _COMMON_LEXEMES, re.DOTALL | re.VERBOSE) for name, own in _OWN_LEXEMES.items()}
_REST_OF_STRING = {quotes: re.compile(rf"(?:\\.|[^\\])*?(?:{quotes}|\Z)", re.DOTALL) for quotes in (3 * "'", 3 * '"')}

_ENDS_OF_C = (";", "{", "}", ",", "(", ")", "\\", "*/", "]", "=")
_HEADER = re.compile(r"(?:async\s+)?(?:def|class|if|elif|else|for|while|with|try|except|finally)\b")
_KEYWORDS = re.compile(
    r"(?:and|as|assert|async|await|break|case|class|continue|def|del|elif|else|except|finally|for|from|global|if|import"
    r"|in|is|lambda|match|nonlocal|not|or|pass|print|raise|return|try|type|while|with|yield)\b"
)
# Marks of lists, quotations and emphasis, before a sentence.
_MARKS = re.compile(r"(?:(?:\d+[.)]|[-*•>])[ \t]+)?[*~¡¿«“(]*")
_RULE = re.compile(r"(?:-{3,}|\*{3,}|_{3,}|={3,}|\|.*\|)\Z|\*\*")
_HEADING = re.compile(r"[^\W\d_a-z][^\W\d_]*(?: [^\W\d_]+)*[*_]*\s*[:：][*_]*\s*\Z")
_END_OF_WORDS = re.compile(r"[=(\[{`\"]|:(?!\s+\w)|(?<!\w)'")
_WORD = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")
_STRING_OR_COMMENT = re.compile(r"\"[^\"]*\"|'[^']*'|#.*|//.*")
_ASIAN = re.compile(r"[\u0590-\u10ff\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_ASIAN_STOP = re.compile(r"[\u060c\u061f\u0964\u3001\u3002\uff01\uff0c\uff1a\uff1b\uff1f]")
# What no statement is: a symbol before words, a known heading, words with quoted code.
_SHORT = re.compile(
    "|".join(
        (
            r"(?i:python3?|py|copy code)\Z",  # what is left of a fence, as pages show it
            r"[\u2705\u2714\u274c\U0001f300-\U0001faff]",
            r"(?:OK|Okay|Answer|Solution|Explanation)\Z|(?:Certainly|Sure|Done)[.!]\Z",
            r"(?:[Cc]ode|[Ss]olution|[Aa]nswer|[Ee]xplanation|[Hh]ere(?:'s| is))\s*:\Z",
            r"(?:Solution|Explanation|Answer|Note) \([\w ,]+\):(?:\s|\Z)",
            r"(?:Call|Use|Run|See|Try|The|It|This) `[^`]+`",
            r"(?:def|class) \w+ (?:is|does|will|takes|returns)\s",
        )
    )
)
_SIGNS = re.compile(r"[=()\[\]{}]")
# Words that may be next to a name in an expression.
_OPERATORS = frozenset(("and", "as", "else", "for", "from", "if", "import", "in", "is", "lambda", "not", "or"))


@dataclass(frozen=True)
class SourceLine:
    """A line that begins outside of strings.

    Attributes:
        start: its offset.
        is_statement: whether a statement can begin there: no bracket is open.
    """

    start: int
    is_statement: bool


def source_lines(text: str, start: int, language: str) -> Iterator[SourceLine]:
    """The lines from ``start`` on that begin outside of strings."""
    yield SourceLine(start, True)
    depth = 0
    for token, _, end in lexemes(text, start, language):
        if token in "([{":
            depth += 1
        elif token in ")]}":
            depth = max(0, depth - 1)
        elif token[0] in "\\\n":
            yield SourceLine(end, depth == 0 and token == "\n")


def lexemes(text: str, start: int, language: str) -> Iterator[tuple[str, int, int]]:
    """Comments, strings, brackets, line ends, fences, with begin and end; of a string over several lines its quotes."""
    end, pattern = start, _LEXEMES[language]
    while (lexeme := pattern.search(text, end)) is not None:
        token, begin, end = lexeme.group(), lexeme.start(), lexeme.end()
        if token in _REST_OF_STRING:
            rest = _REST_OF_STRING[token].match(text, end) if end <= _last_end(text, token) else None
            end = rest.end() if rest else len(text)
        yield token, begin, end


@lru_cache(maxsize=4)
def _last_end(text: str, quotes: str) -> int:
    """Where the last quotes without a backslash begin, or -1: a text can have a string without an end in each block."""
    place = len(text)
    while (place := text.rfind(quotes, 0, place + len(quotes) - 1)) >= 0:
        before = place
        while before and text[before - 1] == "\\":
            before -= 1
        if (place - before) % 2 == 0:
            return place
    return -1


def is_unfinished_string(text: str, begin: int, end: int) -> bool:
    """Whether the lexeme there begins a string over several lines that never ends."""
    quotes = text[begin : min(begin + 3, end)]
    return quotes in _REST_OF_STRING and (end - begin < 6 or not text.endswith(quotes, begin, end))


def line_at(text: str, start: int) -> str:
    """The rest of a line, without its end."""
    end = text.find("\n", start)
    return text[start:] if end < 0 else text[start:end]


def first_line(text: str) -> str:
    """The first line that is not blank; empty without one."""
    return next((line for line in text.split("\n") if line.strip()), "")


def first_statement(text: str, language: str) -> str:
    """The first line that is neither blank nor a comment; empty without one."""
    comment = LANGUAGES[language].comment
    lines = text.split("\n")
    return next((line for line in lines if line.strip() and not line.lstrip().startswith(comment)), "")


def has_code(program: str, language: str) -> bool:
    """Whether there is a line that is neither blank nor a comment."""
    return bool(first_statement(program, language))


def looks_complete(program: str, language: str) -> bool:
    """Whether a text may be a whole program: brackets and strings are closed, headers of blocks have their colon."""
    depth, start, is_header = 0, 0, False
    text = f"{program}\n"
    for token, begin, end in lexemes(text, 0, language):
        depth += (token in "([{") - (token in ")]}")
        if depth < 0 or is_unfinished_string(text, begin, end):
            return False
        if depth == 0 and token == "\n":
            statement = program[start:end]
            is_header = language == PYTHON.name and _HEADER.match(statement.lstrip()) is not None
            if is_header and ":" not in statement:
                return False
            is_header = is_header and statement.rstrip().endswith(":")
            start = end
    return depth == 0 and not is_header and has_code(program, language)


def end_of_preamble(text: str, language: str) -> int:
    """The offset of the first line that is neither prose nor blank; 0 if no prose precedes it, or nothing follows."""
    start, is_after_prose = 0, False
    while start < len(text):
        line = line_at(text, start)
        if is_prose(line, language):
            is_after_prose = True
        elif line.strip():
            return start if is_after_prose else 0
        start += len(line) + 1
    return 0


def without_epilogue(text: str, language: str) -> str:
    """A program without the prose behind it; prose among statements is a fault of the program and stays."""
    epilogue = _start_of_epilogue(text, language)
    for line in source_lines(text, 0, language):
        is_behind = line.start and (line.start >= epilogue or is_set_off(text, line.start))
        if is_behind and line.is_statement and is_prose(line_at(text, line.start), language):
            return text[: line.start]
    return text


def is_set_off(text: str, start: int) -> bool:
    """Whether the line at ``start`` begins a paragraph or is a heading."""
    is_paragraph = text.startswith("\n\n", start - 2) or text.startswith("\n\r\n", start - 3)
    return is_paragraph or _HEADING.match(_unmarked(line_at(text, start))) is not None


def _start_of_epilogue(text: str, language: str) -> int:
    """The offset of the trailing lines that are only prose."""
    end = len(text)
    while end > 0:
        start = text.rfind("\n", 0, end - 1) + 1
        line = text[start:end]
        if line.strip() and not is_prose(line, language):
            break
        end = start
    return end


def _unmarked(line: str) -> str:
    marks = _MARKS.match(line)
    return line[marks.end() :] if marks else line


def is_prose(line: str, language: str) -> bool:
    """Whether a line is a sentence, a heading or an item of a list, and cannot be a statement.

    A sentence has two adjacent words that are not operators and begins with a capital, or a mark of a list or emphasis;
    one that begins with a small letter has three words, of which the first is no keyword. A mistyped statement stays in
    its program. In C a type may stand before a name, so there a line that ends like a declaration is none.
    """
    text = line.strip()
    if not text or text.startswith(LANGUAGES[language].comment):
        return False
    if language == C.name and (text.endswith(_ENDS_OF_C) or text.startswith("#")):
        return False
    if _RULE.match(text) or _SHORT.match(text):
        return True
    outside = _STRING_OR_COMMENT.sub("", text)
    if _ASIAN.search(outside) and (_ASIAN_STOP.search(outside) or not _SIGNS.search(outside)):
        return True
    plain = _unmarked(text)
    if _HEADING.match(plain):
        return True
    words = _END_OF_WORDS.split(plain, maxsplit=1)[0].split()
    if not words or (words[0].endswith(":") and len(words) < 3):
        return False  # a name and its type
    if words[0].endswith("!") and words[0][:-1].isalpha():
        return True
    run = _longest_run(words)
    if plain != text or plain[0].isupper():
        return run >= 2
    return run >= 3 and line[0] == text[0] and not _KEYWORDS.match(plain)


def _longest_run(words: Sequence[str]) -> int:
    """The most adjacent words that are no operators, of which only the last may end a clause."""
    longest = run = 0
    for word in words:
        bare = word.strip('*_~,.!?;:)"”»')
        run = run + 1 if _WORD.fullmatch(bare) and bare not in _OPERATORS else 0
        longest = max(longest, run)
        if word.endswith((",", ";")):
            run = 0
    return longest
