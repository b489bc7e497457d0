"""Prompts: what each style shows, which one a model gets, and what becomes of prompts that are too long."""

from __future__ import annotations

import ast
from dataclasses import replace

import pytest

from securecoderl_edge.errors import UsageError
from securecoderl_edge.problems.problem import Problem, Test
from securecoderl_edge.prompts.chat import ChatTemplate
from securecoderl_edge.prompts.extraction import PromptFacts, extract_program, is_over
from securecoderl_edge.prompts.fitting import CUT, fit_problem, fit_problems
from securecoderl_edge.prompts.styles import CHAT_STYLES, OURS, STYLES, PromptFormat, choose_format, format_statement


def test_a_prompt_holds_the_statement_and_ends_where_the_program_begins() -> None:
    assert format_statement("  Add.\n") == "### Problem\nAdd.\n\n### Solution\n"


def test_given_code_stands_between_statement_and_solution() -> None:
    prompt = format_statement("Add.", "def add(a, b):\n    ")
    assert prompt == "### Problem\nAdd.\n\n### Given code\ndef add(a, b):\n\n### Solution\n"


def test_given_code_keeps_the_indentation_of_its_first_line() -> None:
    assert "### Given code\n    x = 1\n    y = 2\n\n" in format_statement("Add.", "\n    x = 1\n    y = 2\n")


def test_a_prompt_never_shows_tests_or_solutions() -> None:
    problem = Problem("a", "Add.", tests=(Test("secret input", "secret output"),), solutions=("secret program",))
    assert "secret" not in OURS.prompt(problem)


def test_a_problem_and_its_statement_give_the_same_prompt() -> None:
    problem = Problem("a", "Add.", tests=(Test("", "1"),), starter_code="x = 1")
    assert OURS.prompt(problem) == format_statement("Add.", "x = 1")


def test_half_of_a_surrogate_pair_becomes_a_question_mark_that_any_tokenizer_reads() -> None:
    prompt = format_statement("Print \ud83d.", "x = '\udc00'")
    assert prompt == format_statement("Print ?.", "x = '?'")
    assert format_statement("Print \U0001f600.") == format_statement("Print 😀.")


# The other styles

TEMPLATE = ChatTemplate("<user>{{ messages[0].content }}<assistant>", {"eos_token": "<end>"})
CHATTING = ChatTemplate("{% for m in messages %}{{ m.content }}<end>{% endfor %}", {"eos_token": "<end>"})
PREFILLED = PromptFormat("prefilled", TEMPLATE)
STDIN = Problem("a", 'Print "1".', tests=(Test("", "1"),))
CALL = Problem(
    "c",
    "Add.\n\nWrite the function `add(a, b)`. For example:\nassert add(1, 2) == 3",
    kind="call",
    entry_point="add",
    assertions=("assert add(1, 2) == 3",),
)
COMPLETION = replace(
    CALL,
    statement="Complete the function `add(a, b)` of the given code, and write the whole program.",
    starter_code='def add(a, b):\n    """The sum."""',
)


@pytest.mark.parametrize("style", STYLES)
def test_no_style_lets_half_of_a_surrogate_pair_through(style: str) -> None:
    # Rendering may stumble over it as much as a tokenizer, so a template is given none.
    strict = ChatTemplate("{% if messages[0].content | urlencode %}{{ messages[0].content }}{% endif %}")
    format = PromptFormat(style, strict if style in CHAT_STYLES else None)
    problem = replace(COMPLETION, statement="Print \ud83d.", starter_code="x = '\udc00'")
    prompt = format.prompt(problem)
    assert prompt.encode("utf-8")
    assert "?" in prompt


def test_the_paper_style_is_a_stub_between_two_headings() -> None:
    assert PromptFormat("paper").prompt(STDIN) == (
        "### Instruction:\nComplete the following code:\n\n"
        'def solve_c676f():\n    """Print "1".\n    """\n\n\n### Response:\n'
    )
    assert 'def add(a, b):\n    """Add.' in PromptFormat("paper").prompt(CALL)
    assert f"Complete the following code:\n\n{COMPLETION.starter_code}\n" in PromptFormat("paper").prompt(COMPLETION)


def test_the_chat_style_asks_for_a_program_in_the_model_s_own_template() -> None:
    prompt = PromptFormat("chat", TEMPLATE).prompt(STDIN)
    assert prompt.startswith('<user>Print "1".\n\nWrite a Python 3 program that reads standard input')
    assert prompt.endswith("in one code block.<assistant>")
    given = PromptFormat("chat", TEMPLATE).prompt(COMPLETION)
    assert f"```python\n{COMPLETION.starter_code}\n```" in given
    assert "standard input" not in given


@pytest.mark.parametrize(
    ("statement", "tests", "language", "is_program"),
    [
        ("Write a Function f(x) that returns its double.", (), "python", False),
        ("Print the number of functions.", STDIN.tests, "python", True),
        ("Read a number. Print its double.", (), "python", True),
        ("Write a function f(x) that returns its double.", (), "c", True),
    ],
)
def test_a_typed_prompt_for_a_python_function_asks_for_no_program_that_reads_input(
    statement: str, tests: tuple[Test, ...], language: str, is_program: bool
) -> None:
    problem = Problem("prompt", statement, tests=tests, language=language)
    assert ("reads standard input" in PromptFormat("chat", TEMPLATE).prompt(problem)) is is_program


def test_the_code_style_is_the_beginning_of_a_file() -> None:
    assert PromptFormat("code").prompt(COMPLETION) == f"{COMPLETION.starter_code}\n"
    prompt = PromptFormat("code").prompt(replace(STDIN, statement='Print """ and stop.'))
    assert prompt == '"""\nPrint \'\'\' and stop.\n"""\n'
    ast.parse(prompt)


@pytest.mark.parametrize("style", [style for style in STYLES if style != "code"])
@pytest.mark.parametrize("problem", [STDIN, CALL, COMPLETION])
def test_the_program_is_found_in_the_answer_that_is_taught(style: str, problem: Problem) -> None:
    format = PromptFormat(style, TEMPLATE if style in CHAT_STYLES else None)
    program = "def add(a, b):\n    return a + b\n\n\nprint(add(1, 2))\n"
    # A begun answer has no place for the prompt.
    repeated = () if style == "prefilled" else (format.prompt(problem) + format.answer(program),)
    for completion in (format.answer(program), *repeated):
        assert extract_program(completion, PromptFacts.of(problem, format)).strip() == program.strip()
        if style in ("stdin", "paper"):  # sce score does not know how a completion was asked for
            assert extract_program(completion, PromptFacts.of(problem)).strip() == program.strip()


@pytest.mark.parametrize("style", STYLES)
def test_no_style_shows_tests_or_solutions(style: str) -> None:
    problem = Problem("a", "Add.", tests=(Test("secret input", "secret output"),), solutions=("secret program",))
    assert "secret" not in PromptFormat(style, TEMPLATE if style in CHAT_STYLES else None).prompt(problem)


@pytest.mark.parametrize("style", STYLES)
def test_the_function_to_write_is_named_if_the_statement_does_not(style: str) -> None:
    format = PromptFormat(style, TEMPLATE if style in CHAT_STYLES else None)
    assert "Write the function `add`." in format.prompt(replace(CALL, statement="The sum of both."))
    assert "Write the function `add`." not in format.prompt(replace(CALL, statement="Let add return the sum."))
    assert format.prompt(COMPLETION).count("Write the function") == 0


def test_an_unknown_style_and_a_chat_without_template_are_usage_errors() -> None:
    with pytest.raises(UsageError, match="unknown prompt style 'poem'"):
        PromptFormat("poem")
    with pytest.raises(UsageError, match="has no chat template"):
        PromptFormat("chat")


@pytest.mark.parametrize(
    ("asked", "trained", "chat", "style"),
    [
        ("auto", "paper", None, "paper"),
        ("auto", None, None, "code"),
        ("auto", None, CHATTING, "chat"),
        ("auto", None, TEMPLATE, "code"),
        ("evalplus", None, TEMPLATE, "code"),
        ("evalplus", "paper", CHATTING, "prefilled"),
        ("auto", "stdin", TEMPLATE, "stdin"),
        ("stdin", "paper", None, "stdin"),
    ],
)
def test_a_model_is_asked_as_it_was_trained(
    asked: str, trained: str | None, chat: ChatTemplate | None, style: str
) -> None:
    assert choose_format(asked, trained, chat).style == style


# The beginning of the answer


def test_a_prefilled_prompt_is_that_of_evalplus_to_the_letter() -> None:
    request = (
        "Please provide a self-contained Python script that solves the following problem in a markdown code block:"
    )
    reply = "Below is a Python script with a self-contained function that solves the problem and passes"
    end = f"<assistant>{reply} corresponding tests:\n```python\n"
    stub = 'def add(a, b):\n    """The sum."""'
    assert PREFILLED.prompt(COMPLETION) == f"<user>{request}\n```\n{stub}\n```\n{end}"
    as_evalplus = replace(CALL, statement="Add.\nassert add(1, 2) == 3")
    task = '"""\nAdd.\nassert add(1, 2) == 3\n"""'
    assert PREFILLED.prompt(as_evalplus) == f"<user>{request}\n```\n{task}\n```\n{end}"


def test_a_prefilled_prompt_asks_for_what_the_problem_needs() -> None:
    assert "reads standard input" in PREFILLED.prompt(STDIN)
    assert "function" not in PREFILLED.prompt(STDIN)
    in_c = PREFILLED.prompt(replace(STDIN, language="c"))
    assert in_c.endswith(":\n```c\n")
    assert "Python" not in in_c


@pytest.mark.parametrize("problem", [STDIN, CALL, COMPLETION])
def test_the_answer_that_is_taught_continues_the_prefilled_block_and_ends_with_it(problem: Problem) -> None:
    program = "def add(a, b):\n    return a + b"
    facts = PromptFacts.of(problem, PREFILLED)
    answer = PREFILLED.answer(program)
    assert extract_program(answer, facts).strip() == program
    assert is_over(f"{answer}\n", facts)
    assert extract_program(f"{answer}\n\nIt adds.\n```python\nprint(add(1, 2))\n```", facts).strip() == program
    assert extract_program("```\nIt cannot be done.", facts) == "```\nIt cannot be done."


# The token budget


def words(text: str) -> int:
    return len(text.split())


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("room", range(1, 60))
def test_a_prompt_that_is_too_long_loses_the_end_of_its_statement_and_no_more_than_it_must(
    style: str, room: int
) -> None:
    statement = " ".join(f"word{number}" for number in range(40))
    problem = replace(STDIN, statement=statement)
    format = PromptFormat(style, TEMPLATE if style in CHAT_STYLES else None)
    fitting = fit_problem(problem, format, words, room)
    if words(format.prompt(problem)) <= room:
        assert fitting is problem
    elif fitting is None:
        assert words(format.prompt(replace(problem, statement=CUT))) > room
    else:
        assert words(format.prompt(fitting)) <= room
        kept = fitting.statement.removesuffix(CUT)
        assert statement.startswith(kept)
        one_more = replace(problem, statement=f"{kept}{statement[len(kept) :].split()[0]} {CUT}")
        assert words(format.prompt(one_more)) >= room


def test_a_prompt_of_few_bytes_is_not_even_counted() -> None:
    def refuse(text: str) -> int:
        raise AssertionError(text)

    assert fit_problem(STDIN, OURS, refuse, 1000) is STDIN


def test_problems_that_do_not_fit_are_left_out_or_cut_and_counted() -> None:
    long = replace(STDIN, id="long", statement="word " * 50)
    dropped = fit_problems([STDIN, long], OURS, words, 20, "drop")
    assert (dropped.problems, dropped.cut, dropped.left_out) == ((STDIN,), 0, 1)
    cut = fit_problems([STDIN, long], OURS, words, 20, "truncate")
    assert (len(cut.problems), cut.cut, cut.left_out) == (2, 1, 0)
    assert cut.problems[1].statement.endswith(CUT)
    assert fit_problems([STDIN, long], OURS, words, 3, "truncate").left_out == 2
