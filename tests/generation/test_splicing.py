"""Answers of models, put into files: what changes, and that all else stays byte for byte."""

from __future__ import annotations

import ast
import textwrap
import time
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from securecoderl_edge.generation.losses import NoEdit
from securecoderl_edge.generation.splicing import splice
from securecoderl_edge.generation.statements import lines_of

FILE = '''#!/usr/bin/env python
# License.

"""Money."""
import os
from typing import List

RATE = 0.2  # tax


# about total
@cache
def total(prices):
    # sum
    return sum(prices)   # odd   spacing


class Cart:
    """A cart."""

    limit = 3

    def __init__(self):
        self.items = []

    @property
    def size(self):
        return len(self.items)

    @size.setter
    def size(self, size):
        del self.items[size:]

    def add(self, item):
        self.items.append(item)


async def last(): return 1

if __name__ == "__main__":
    print(total([1]))
'''


def edited(answer: str, instruction: str = "Change it.", file: str = FILE) -> str:
    return splice(file, textwrap.dedent(answer), instruction, "money")


def why_not(answer: str, instruction: str = "Change it.", file: str = FILE) -> str:
    with pytest.raises(NoEdit) as none:
        edited(answer, instruction, file)
    return str(none.value)


def changed(old: str, new: str, file: str = FILE) -> str:
    assert file.count(old) == 1
    return file.replace(old, new)


THREE = "def f():\n    return 1\n\n\ndef g():\n    return 2\n\n\ndef h():\n    return 3\n"
OLD = "    # sum\n    return sum(prices)   # odd   spacing\n"


def test_a_function_is_replaced_and_the_example_behind_it_left_out() -> None:
    answer = (
        "def total(prices):\n    return max(prices)\n\nprices = [1]\nprint(total(prices))\nassert total([1]) == 1\n"
    )
    assert edited(answer) == changed(OLD, "    return max(prices)\n")


def test_a_decorator_that_an_answer_forgets_stays_and_one_that_it_has_replaces_it() -> None:
    assert "@cache\ndef total(prices, n):" in edited("def total(prices, n):\n    return 1\n")
    assert "about total\n@lru_cache(9)\ndef total(" in edited("@lru_cache(9)\ndef total(prices):\n    return 1\n")
    bare = edited("def total(prices):\n    return 1\n", "Remove the cache of total.")
    assert "# about total\ndef total(prices):\n" in bare


def test_async_belongs_to_a_definition() -> None:
    answer = "async def total(prices):\n    return sum(prices)\n"
    assert why_not("def last():\n    return 2\n").startswith("the answer changes whether last is async")
    assert why_not(answer).startswith("the answer changes whether total is async")
    assert "\ndef last():\n    return 2\n" in edited("def last():\n    return 2\n", "Let last be no coroutine.")
    assert "async def total(prices):" in edited(answer, "Make total async.")


@pytest.mark.parametrize("answer", [
    "class Cart:\n    def add(self, item):\n        self.items.insert(0, item)\n",
    "def add(self, item):\n    self.items.insert(0, item)\n",
    "class Cart:\n  def add(self, item):\n    self.items.insert(0, item)\n",
])  # fmt: skip
def test_one_method_replaces_its_namesake_and_the_others_stay(answer: str) -> None:
    result = edited(answer)
    assert ast.dump(ast.parse(result)) == ast.dump(ast.parse(changed("items.append(item)", "items.insert(0, item)")))
    assert result.partition("    def add")[0] == FILE.partition("    def add")[0]


def test_a_new_method_follows_the_one_before_it() -> None:
    answer = "class Cart:\n    def add(self, item):\n        self.items.append(item)\n\n"
    answer += "    def clear(self):\n        self.items = []\n"
    new = "        self.items.append(item)\n\n    def clear(self):\n        self.items = []\n"
    assert edited(answer) == changed("        self.items.append(item)\n", new)


def test_a_setter_and_its_property_are_two_definitions() -> None:
    answer = "class Cart:\n    @size.setter\n    def size(self, size):\n        pass; self.items = self.items[:size]\n"
    assert edited(answer) == changed(
        "        del self.items[size:]\n", "        pass; self.items = self.items[:size]\n"
    )


def test_a_bare_method_of_several_classes_needs_a_class_that_is_named() -> None:
    file = "class A:\n    def f(self):\n        return 1\n\n\nclass B:\n    def f(self):\n        return 2\n"
    answer = "def f(self):\n    return 3\n"
    assert why_not(answer, "Let f be 3.", file).startswith("several classes have a method f")
    assert edited(answer, "Let f of B be 3.", file) == file.replace("2", "3")


def test_a_function_in_place_of_a_method_is_no_edit() -> None:
    answer = "def add(cart, item):\n    cart.items.insert(0, item)\n"
    assert why_not(answer, "Cart.add must insert.") == "the answer has a function add, which is a method of Cart"
    assert edited(answer) == FILE.replace("if __name__", "\n\n" + answer + "\nif __name__").replace(
        "\n\n\n\ndef add", "\n\n\ndef add"
    )


def test_text_in_strings_keeps_its_lines_when_a_method_is_indented() -> None:
    answer = 'def add(self, item):\n    """Doc.\n\n    More.\n    """\n'
    answer += '    text = """a\nb\n  c"""\n    self.items.append(text)\n'
    result = edited(answer)
    assert '\n        """Doc.\n\n        More.\n        """\n        text = """a\nb\n  c"""\n' in result


def test_new_functions_constants_and_imports_are_added_where_they_are_found_before_use() -> None:
    answer = "import math\nimport json\nfrom money import total\nfrom typing import Dict, List\n\nBASE = 2\n\n\n"
    answer += "def helper(x: Dict) -> List:\n    return math.floor(x) * BASE\n\n\n"
    answer += "def total(prices):\n    return helper(prices)\n"
    result = edited(answer)
    assert "from typing import List\nimport math\nfrom typing import Dict\n" in result
    assert "json" not in result
    assert "import total" not in result
    assert result.index("BASE = 2") < result.index("def helper") < result.index("# about total\n@cache\ndef total")


def test_imports_of_a_file_without_any_follow_what_is_about_the_whole_file() -> None:
    answer = "import re\n\ndef f():\n    return re.I\n"
    old = "def f():\n    return 1\n"
    new = "import re\n\n\ndef f():\n    return re.I\n"
    for head in ("", "#!/usr/bin/python\n# coding: utf-8\n", "# License.\n# More.\n\n"):
        assert edited(answer, file=head + old) == head + new
    assert edited(answer, file=f'"""Doc."""\n\n\n{old}') == f'"""Doc."""\n\n{new}'


def test_a_whole_file_changes_only_the_functions_that_differ() -> None:
    answer = FILE.replace("sum(prices)", "max(prices)").replace("# about total\n", "").replace("  # tax", "")
    assert edited(answer) == changed("return sum(prices)", "return max(prices)")


def test_a_shortened_function_is_not_taken_for_an_empty_one() -> None:
    result = edited("def total(prices):\n    ...\n\nasync def last():\n    return 2\n")
    assert OLD in result
    assert "async def last():\n    return 2\n" in result
    assert why_not("def total(prices):\n    # ... existing code ...\n    return 3\n") == (
        "the answer leaves out code ('# ... existing code ...')"
    )


def test_nothing_is_deleted_that_the_instruction_does_not_remove_by_name() -> None:
    everything_else = FILE.replace(FILE[FILE.index("async def") : FILE.index("if __name__")], "").replace(
        "sum(", "max("
    )
    assert "async def last(): return 1\n" in edited(everything_else)
    assert "async def last(): return 1\n" in edited(everything_else, "Let total use max, remove the call of last.")
    assert "last" not in edited(everything_else, "Remove the unused function `last` and let total use max.")
    renamed = "def grand(prices):\n    return sum(prices)\n\nif __name__ == '__main__':\n    print(grand([1]))\n"
    assert "total" not in edited(renamed, "Rename total to grand, in the main guard too.").replace("# about total", "")
    assert why_not("def grand(prices):\n    return sum(prices)\n", "Rename total to grand.") == (
        "the answer has no total, which the file still uses"
    )


@pytest.mark.parametrize("kind", ["@cache\ndef {}(x):\n    return x", "{} = 3", "class {}(Base):\n    limit = 3"])
@pytest.mark.parametrize("before", ["", "import os\n\n\n", "def f(x):\n    return x\n\n\n"])
@pytest.mark.parametrize("behind", ["", "\n\n\nprint(1)"])
def test_what_is_renamed_stays_where_it_was(before: str, behind: str, kind: str) -> None:
    file, wanted = (f"{before}{kind.format(name)}{behind}\n" for name in ("total", "grand"))
    assert edited(f"{kind.format('grand')}\n", "Rename total to grand.", file) == wanted


def test_what_is_renamed_keeps_what_the_answer_forgets() -> None:
    assert "@cache\ndef grand(x):" in edited(
        "def grand(x):\n    pass; return x\n", "Rename f to grand.", "@cache\ndef f(x): return x\n"
    )
    members = FILE[FILE.index("    limit = 3") : FILE.index("    def add")]
    answer = "class Basket:\n    def add(self, item):\n        return item\n"
    assert f'class Basket:\n    """A cart."""\n\n{members}' in edited(answer, "Rename Cart to Basket.")


def test_what_is_removed_leaves_no_blank_lines_at_the_end() -> None:
    file = "def f(x):\n    return x\n\n\ndef g(x):\n    return x\n"
    assert edited("def f(x):\n    return 3\n", "Remove `g`, f is 3.", file) == "def f(x):\n    return 3\n"


@pytest.mark.parametrize("instruction", [
    "Remove `g`.", "remove the unused function `g`", "Delete g() from the file", "Remove `f` and `g`.",
    "Remove f(), and the old function g", "Drop `f()` and `g()`.", "Let h be 4, and remove the function g.",
    "Let h be 4. Then delete `g`", "Remove the function g, which is not used", "Remove\nthe function g",
])  # fmt: skip
def test_an_instruction_removes_what_it_names_as_code_or_by_its_kind(instruction: str) -> None:
    result = edited("def h():\n    return 4\n", instruction, THREE)
    assert "def g" not in result


@pytest.mark.parametrize("instruction", [
    "Remove g.", "Remove the call of g.", "Remove g from the output.", "Remove the check and g it", "Let f use g.",
    "Remove g's comment", "Remove the g_old", "Remove all but g", "Do not remove g.", "Do not remove `g`.",
    "Let h be 4, but never delete the function g", "Let h be 4 without dropping. Don't delete g()", "Remove `G`",
    "Remove `g` calls", "Remove g() call", "Let h() delete the function g", "h must be 4 and drop `g`",
    "Delete the functions of g", "Keep `f`, do not drop `g`", "Instead of h being 3, never remove `g`",
    "Remove the class of g", "Remove the method h.g",
])  # fmt: skip
def test_an_instruction_that_is_not_clear_removes_nothing(instruction: str) -> None:
    result = edited("def h():\n    return 4\n", instruction, THREE)
    assert "def g" in result


def test_a_class_gets_another_header_and_keeps_its_members() -> None:
    answer = "class Cart(\n    list,\n):\n    def add(self, item):\n        self.items += [item]\n"
    wanted = changed("class Cart:\n", "class Cart(\n    list,\n):\n")
    assert edited(answer, "Let Cart inherit from list.") == changed("items.append(item)", "items += [item]", wanted)


@pytest.mark.parametrize(("answer", "reason"), [
    ("", "the answer has no program"),
    ("def total(", "the answer does not parse"),
    ("def total(prices):\n    return sum(prices)\n", "the answer changes nothing"),
    (FILE, "the answer changes nothing"),
    (FILE.replace("    # sum\n", ""), "the answer changes nothing"),
    ("print(total([1]))", "the answer changes nothing"),
    ("(" * 5000, "the answer does not parse"),
])  # fmt: skip
def test_what_is_no_edit_is_named(answer: str, reason: str) -> None:
    assert why_not(answer) == reason


def test_a_deep_answer_is_no_crash() -> None:
    with suppress(NoEdit):  # too deep for some versions of Python
        edited("def total(prices):\n    return " + "-" * 3000 + "1\n")


def test_comments_count_when_nothing_else_differs() -> None:
    assert edited("def total(prices):\n    # adds all\n    return sum(prices)\n") == changed(
        OLD, "    # adds all\n    return sum(prices)\n"
    )


SCRIPT = "import sys\n\nfor line in sys.stdin:\n    line = line.strip()\n    print(line)\n"


def test_a_script_is_replaced_by_the_whole_answer_only() -> None:
    answer = SCRIPT.replace("print(line)", "print(line.upper())")
    assert edited(answer, file=SCRIPT) == answer
    assert edited(answer, file=SCRIPT.rstrip("\n")) == answer.rstrip("\n")
    assert why_not("print(line.upper())\n", file=SCRIPT).startswith("the answer has less than half of the file")
    assert why_not(answer.replace("import sys\n", ""), file=SCRIPT) == (
        "the answer has no sys, which the file still uses"
    )


def test_a_statement_of_a_script_is_removed_if_that_is_asked_for() -> None:
    file = "x = 1\nprint('debug')\nprint(x)\nprint(2)\n"
    answer = file.replace("print('debug')\n", "")
    assert edited(answer, "Remove the debug print", file) == answer
    assert why_not(answer, "Be quiet", file) == "the answer changes nothing"


def test_the_variables_of_a_script_may_be_read_in_another_way() -> None:
    file = "a = int(input())\nb = int(input())\nprint(a + b)\n"
    answer = "a, b = map(int, input().split())\nprint(a + b)\n"
    assert edited(answer, file=file) == answer
    assert edited("port = 2\n", file="host = 'a'\nport = 1\n") == "host = 'a'\nport = 2\n"


def test_code_outside_of_functions_changes_only_with_all_functions() -> None:
    file = f"{SCRIPT}\n\ndef f():\n    return 1\n"
    answer = SCRIPT.replace("print(line)", "print(line.upper())")
    assert why_not(answer, file=file) == "the answer would delete f, which the instruction does not remove"
    assert edited(answer, "Print in capitals, and remove the function f.", file) == answer


def test_a_file_that_does_not_parse_is_mended_by_the_whole_of_it() -> None:
    broken = "import re\n\n\ndef f(:\n    return 1\n\n\ndef g():\n    return 2\n"
    whole = broken.replace("(:", "():")
    assert edited(whole, file=broken) == whole
    assert why_not("def f():\n    return 1\n", file=broken) == (
        "the answer would delete g, re, which the instruction does not remove"
    )


def test_an_empty_file_becomes_the_answer() -> None:
    assert edited("def f():\n    return 1\n", file="") == "def f():\n    return 1\n"


def test_statements_that_share_a_line_are_left_alone() -> None:
    assert why_not("A = 3\ndef f():\n    return A\n", file="A = 1; B = 2\ndef f():\n    return A\n") == (
        "=A shares its line with another statement".removeprefix("=")
    )


def test_a_definition_within_another_statement_is_not_added_twice() -> None:
    file = "try:\n    from fast import f\nexcept ImportError:\n    def f():\n        return 1\n"
    assert why_not("def f():\n    return 2\n", file=file).startswith("f is defined within another statement")


def test_a_main_guard_is_replaced_only_if_it_is_asked_for() -> None:
    answer = 'def total(prices):\n    return 2\n\nif __name__ == "__main__":\n    print("example")\n'
    assert "print(total([1]))" in edited(answer)
    assert 'print("example")' in edited(answer, "Let total be 2, and the main guard an example.")


# Properties: files of random pieces, with any line ends, indentation and comments.
NAMES = ("alpha", "beta", "gamma", "delta")
_gap = st.sampled_from(
    ["", "\n", "\n\n", "# comment\n", "\n# two\n# comments\n\n", "X = 1  # x\n", "\x0c\n", "Y = '\u2028'\n"]
)
_indent = st.sampled_from(["  ", "    ", "\t"])


@st.composite
def files(draw: st.DrawFn) -> tuple[str, list[tuple[str, str]]]:
    """A file as pieces: the text before a definition, and the definition."""
    indent = draw(_indent)
    pieces = []
    for name in draw(st.permutations(NAMES)):
        gap = draw(_gap)
        decorator = draw(st.sampled_from(["", "@mark\n", "@mark(\n    1,\n)\n"]))
        body = draw(st.sampled_from(["return 1", "'''doc\n  two\n'''\n{}return 2", "# c\n{}return 3  # d"]))
        code = body.format(indent)
        pieces.append((gap, f"{decorator}def {name}(a, b=2):\n{indent}{code}\n"))
    return draw(_gap), pieces


@given(files(), st.sampled_from(NAMES), st.sampled_from(["\n", "\r\n", "\r"]), st.booleans())
def test_all_outside_of_the_replaced_definition_stays_byte_for_byte(
    file: tuple[str, list[tuple[str, str]]], name: str, newline: str, ends_open: bool
) -> None:
    end, pieces = file

    def joined(new: str) -> str:
        texts = [gap + (new if new and f"def {name}(" in code else code) for gap, code in pieces]
        text = ("".join(texts) + end).replace("\n", newline)
        return text.removesuffix(newline) if ends_open else text

    answer = f"@mark\ndef {name}(a):\n    return 'new'\n"
    is_tabbed = ":\n\t" in pieces[0][1]
    assert splice(joined(""), answer, "Change it.") == joined(answer.replace("    ", "\t") if is_tabbed else answer)


@given(st.text(alphabet="ab\n\r\x0b\x0c\x1c\x85\u2028 #"))
def test_lines_are_those_of_the_parser(text: str) -> None:
    commented = "".join(f"#{line}" for line in lines_of(text)) + "\nx = 1"
    assert "".join(lines_of(text)) == text
    assert ast.parse(commented).body[0].lineno == len(lines_of(commented))


def test_an_answer_of_very_many_statements_is_taken_in_linear_time() -> None:
    started = time.process_time()
    assert splice("def f(a):\n    return a\n", "def f(a):\n    return 2\n" + "a\n" * 30_000, "Rename g to h.")
    assert time.process_time() - started < 10  # with the names of all statements for each: a minute
