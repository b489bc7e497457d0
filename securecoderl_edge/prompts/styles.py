"""Problem -> prompt, in one of several styles.

SFT, RL, evaluation and generation use the same `PromptFormat`: a model must be evaluated with the prompts that it was
trained on.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, replace

from securecoderl_edge.errors import UsageError
from securecoderl_edge.languages.language import LANGUAGES, PYTHON, Language
from securecoderl_edge.languages.targets import TARGETS
from securecoderl_edge.problems.problem import Problem
from securecoderl_edge.prompts.chat import ChatTemplate
from securecoderl_edge.prompts.shown_tests import with_tests_shown
from securecoderl_edge.text import replace_surrogates

PROBLEM_HEADING, SOLUTION_HEADING = "### Problem", "### Solution"
INSTRUCTION_HEADING, RESPONSE_HEADING = "### Instruction:", "### Response:"
# A line with one of these opens a section of a template, so the program ends before it.
STOP_MARKERS = (PROBLEM_HEADING, SOLUTION_HEADING, INSTRUCTION_HEADING, RESPONSE_HEADING)

# Styles for training; ``code`` prompts for the rest of a file, and reference solutions are whole files.
TRAINED_STYLES = ("stdin", "paper", "chat", "prefilled")
STYLES = (*TRAINED_STYLES, "code")
CHAT_STYLES = ("chat", "prefilled")
# The key for the prompt style in the metadata of an export.
STYLE_KEY = "securecoderl_edge.prompt_style"

_HEADER = re.compile(r"Write the function `(?P<header>[^`]+)`")
# A statement of this kind repeats the given code.
_COMPLETION_TASK = "Complete the function `"
_TASK_OF_PROGRAM = "program that reads standard input and prints the answer to standard output."
# EvalPlus' own words, so that results can be compared: evalplus/codegen.py, version 0.3.1.
_REQUEST = "Please provide a self-contained Python script that solves the following problem in a markdown code block:"
_REPLY = (
    "Below is a Python script with a self-contained function that solves the problem and passes corresponding tests:"
)


@dataclass(frozen=True)
class PromptFormat:
    """The prompt format.

    Attributes:
        style: ``stdin``, the sections of the built-in template; ``paper``, SecureCodeRL's function stub between
            "### Instruction" and "### Response"; ``chat``, a question in the model's chat template; ``prefilled``, the
            request of EvalPlus in that template, with the beginning of the answer up to its code block; ``code``, the
            beginning of a file, for base models that were trained on files only.
        chat: the template, for `CHAT_STYLES`.
        is_as_typed: the question is the statement alone.
        shows_tests: the statement has the tests of the problem, see `with_tests_shown`.
    """

    style: str = "stdin"
    chat: ChatTemplate | None = None
    is_as_typed: bool = False
    shows_tests: bool = False

    def __post_init__(self) -> None:
        if self.style not in STYLES:
            raise UsageError(f"unknown prompt style {self.style!r}; choose from {', '.join(STYLES)}")
        if self.style in CHAT_STYLES and self.chat is None:
            raise UsageError(f"prompt style {self.style}: the model has no chat template; choose another style")

    def prompt(self, problem: Problem) -> str:
        """The text that a model continues; the answer follows it directly."""
        problem = _with_task(with_tests_shown(problem) if self.shows_tests else problem)
        if self.style == "paper":
            text = f"{INSTRUCTION_HEADING}\nComplete the following code:\n\n{_stub(problem)}\n\n{RESPONSE_HEADING}\n"
        elif self.style == "code":
            text = _file_to_continue(problem)
        elif self.style == "prefilled" and self.chat is not None:
            text = self.chat.ask(_request(problem)) + self.prefill(problem)
        elif self.chat is not None:
            text = self.chat.ask(problem.statement if self.is_as_typed else question(problem))
        else:
            text = format_statement(problem.statement, problem.starter_code, LANGUAGES[problem.language])
        return replace_surrogates(text)

    def prefill(self, problem: Problem) -> str:
        """The beginning of the answer with which a prompt ends; empty in most styles."""
        return prefill(problem) if self.style == "prefilled" else ""

    def answer(self, program: str, language: str = PYTHON.name) -> str:
        """The answer that SFT teaches for ``program``, without `prefill`; `extraction` finds it again."""
        if self.style == "prefilled":
            return f"{program.strip(chr(10))}\n```"
        fence = LANGUAGES[language].fence
        return f"```{fence}\n{program.strip(chr(10))}\n```" if self.style == "chat" else program


OURS = PromptFormat()


def choose_format(asked: str, trained: str | None, chat: ChatTemplate | None, thinks: bool = False) -> PromptFormat:
    """The format for a model.

    Args:
        asked: a style, or ``auto``: the one that `sce` trained the model with; else ``chat`` for a model that was
            trained to chat, and ``code`` for others. ``evalplus``: ``prefilled`` for the former, ``code`` for others.
        trained: the style that `sce` trained the model with, if it did.
        chat: the model's chat template, if it has one.
        thinks: see `ChatTemplate`.

    Raises:
        UsageError: an unknown style, or ``chat`` without a template.
        SceError, MissingExtra: ``auto``, and the template cannot be rendered.
    """
    style = asked
    if asked == "evalplus" or (asked == "auto" and not trained):
        of_chat = "prefilled" if asked == "evalplus" else "chat"
        style = of_chat if chat is not None and chat.ends_answers() else "code"
    elif asked == "auto" and trained:
        style = trained
    # A prefilled answer leaves no room for a thought.
    template = replace(chat, thinks=thinks and style == "chat") if style in CHAT_STYLES and chat is not None else None
    return PromptFormat(style, template)


def format_statement(statement: str, starter_code: str = "", language: Language = PYTHON) -> str:
    """The prompt in the built-in style for a statement without a problem record."""
    given_code = starter_code.rstrip().lstrip("\r\n")
    given = f"\n\n### Given code\n{given_code}" if given_code else ""
    if language != PYTHON:
        given += f"\n\n### Language\n{language.title}"
    return replace_surrogates(f"{PROBLEM_HEADING}\n{statement.strip()}{given}\n\n{SOLUTION_HEADING}\n")


def _with_task(problem: Problem) -> Problem:
    """Add to the statement the target and its limits, and the function to write if nothing else names it."""
    name = problem.entry_point
    if problem.target:
        limits = f": {problem.budget}" if str(problem.budget) else ""
        statement = f"{problem.statement.rstrip()}\n\nTarget: {TARGETS[problem.target].title}{limits}."
        problem = replace(problem, statement=statement)
    if name is None or re.search(rf"\b{re.escape(name)}\b", f"{problem.statement}\n{problem.starter_code}"):
        return problem
    return replace(problem, statement=f"{problem.statement.rstrip()}\n\nWrite the function `{name}`.")


def _stub(problem: Problem) -> str:
    """The function stub of the paper: the statement as its docstring, its name from the statement's first letters."""
    if problem.statement.startswith(_COMPLETION_TASK):
        return f"{problem.starter_code.rstrip()}\n"
    if problem.language != PYTHON.name:
        return _file_to_continue(problem)
    if problem.kind == "call":
        named = _HEADER.search(problem.statement)
        header = named["header"] if named and "(" in named["header"] else f"{problem.entry_point}(...)"
    else:
        start = problem.statement[:50].encode("utf-8", "surrogatepass")
        header = f"solve_{hashlib.md5(start, usedforsecurity=False).hexdigest()[:5]}()"
    return f'def {header}:\n    """{_in_docstring(problem.statement.strip())}\n    """\n'


def messages(problem: Problem, style: str) -> list[dict[str, str]]:
    """The messages of `CHAT_STYLES`, for libraries that apply the template; the last may begin the answer."""
    if style == "chat":
        return [{"role": "user", "content": question(problem)}]
    reply = prefill(problem)
    return [{"role": "user", "content": _request(problem)}, {"role": "assistant", "content": reply}]


def prefill(problem: Problem) -> str:
    """The beginning of the answer in the style ``prefilled``: a sentence, and the opening fence."""
    return f"{_in_language(_REPLY, problem)}\n```{LANGUAGES[problem.language].fence}\n"


def question(problem: Problem) -> str:
    """The message to a chat model; its template makes the prompt of it."""
    problem, language = _with_task(problem), LANGUAGES[problem.language]
    parts = [problem.statement.strip()]
    if problem.starter_code.strip():
        parts.append(f"Given code:\n```{language.fence}\n{problem.starter_code.rstrip()}\n```")
    if problem.driver:
        parts.append(f"Write the function `{problem.entry_point}` in {language.title}, without `main`.")
    elif problem.kind == "stdin" and not _is_about_a_function(problem):
        parts.append(f"Write a {language.title} {_TASK_OF_PROGRAM}")
    parts.append("Answer with the whole program in one code block.")
    return replace_surrogates("\n\n".join(parts))


def _request(problem: Problem) -> str:
    """The message of the style ``prefilled``."""
    task = _file_to_continue(_with_the_kind(problem)).strip()
    return replace_surrogates(f"{_in_language(_REQUEST, problem)}\n```\n{task}\n```\n")


def _with_the_kind(problem: Problem) -> Problem:
    if problem.kind != "stdin" or problem.driver or _is_about_a_function(problem):
        return problem
    kind = f"Write a {LANGUAGES[problem.language].title} {_TASK_OF_PROGRAM}"
    return replace(problem, statement=f"{problem.statement.rstrip()}\n\n{kind}")


def _in_language(words: str, problem: Problem) -> str:
    """EvalPlus' words for a problem: they name Python, and in the reply a function."""
    if problem.kind == "stdin" and not problem.driver:
        words = words.replace(" with a self-contained function", "")
    if problem.language == PYTHON.name:
        return words
    return words.replace("Python script", f"{LANGUAGES[problem.language].title} program")


def _is_about_a_function(problem: Problem) -> bool:
    """Whether a prompt that somebody typed, without tests, asks for a Python function: it reads and prints nothing."""
    is_typed = problem.language == PYTHON.name and not problem.tests
    return is_typed and re.search(r"\bfunctions?\b", problem.statement, re.IGNORECASE) is not None


def _file_to_continue(problem: Problem) -> str:
    given = f"{problem.starter_code.rstrip()}\n" if problem.starter_code.strip() else ""
    if problem.statement.startswith(_COMPLETION_TASK):
        return given
    if problem.language == PYTHON.name:
        return f'"""\n{_in_docstring(problem.statement.strip())}\n"""\n{given}'
    return f"/*\n{problem.statement.strip().replace('*/', '* /')}\n*/\n{given}"


def _in_docstring(text: str) -> str:
    return text.replace('"""', "'''")
