"""Answers that would lose something of a file: each is no edit, or an edit that keeps it."""

from __future__ import annotations

import re

import pytest

from securecoderl_edge.generation.losses import NoEdit
from securecoderl_edge.generation.splicing import splice

LICENSED = "#!/usr/bin/python\n# License.\ndef helper():\n    return 1\n\n\n# about f\ndef f():\n    return 2\n"
TWO = "def f(x):\n    return x\n\n\ndef g(x):\n    return f(x)\n"
MEMBERS = """class A:
    x = 1
    y = 2
    if True:
        z = 3

    # about f
    def f(self):
        return 1

    def g(self):
        return self.f()
"""
PROPERTY = """class A:
    @property
    def v(self):
        return self._v

    @v.setter
    def v(self, x):
        self._v = x
"""
CONSTANTS = """# Tuning, do not change
LIMIT = 3
RETRIES = 4

print("start")


def f():
    return LIMIT


print(f())
"""
REGISTERED = """@singledispatch
def f(x):
    return x


@f.register
def _(x: int):
    return 1


@f.register
def _(x: str):
    return 2
"""
OVERLOADED = """@overload
def f(x: int) -> int: ...
@overload
def f(x: str) -> str: ...
def f(x):
    return x
"""


def why_not(file: str, answer: str, instruction: str) -> str:
    with pytest.raises(NoEdit) as none:
        splice(file, answer, instruction)
    return str(none.value)


@pytest.mark.parametrize(("file", "instruction", "kept"), [
    ("class Users:\n    pass\n", "Let h() delete users older than 3 days, then drop Users of them", "class Users"),
    ("def comments():\n    pass\n", "Let h() remove comments too", "def comments"),
    ("def duplicates():\n    pass\n", "h() must drop duplicates, and sort", "def duplicates"),
    ("def print():\n    pass\n", "remove print statements", "def print"),
    ("def total():\n    pass\n",
     "Remove total argument, remove total() call, let the function drop items, total them", "def total"),
    ("def comments():\n    pass\n", "Inline comments should be kept", "def comments"),
    ("def f():\n    pass\n", "h() must log, delete `f`, and return 4", "def f"),
    (LICENSED, "Let h() be 4. Do not remove helper.", "def helper"),
    (LICENSED, "Let h() be 4. Do not\nremove the function helper.", "def helper"),
])  # fmt: skip
def test_words_that_are_no_order_to_remove_remove_nothing(file: str, instruction: str, kept: str) -> None:
    assert kept in splice(file + "\n\ndef h():\n    return 3\n", "def h():\n    return 4\n", instruction)


def test_a_removal_keeps_what_is_about_the_whole_file() -> None:
    answer = "def f():\n    return 3\n"
    head = "#!/usr/bin/python\n# License.\n"
    assert splice(LICENSED, answer, "Remove `helper`, let f be 3.") == f"{head}# about f\n{answer}"
    assert "# about f" not in splice(LICENSED, "def helper():\n    return 3\n", "Remove `f`.")


@pytest.mark.parametrize(("file", "answer", "instruction", "reason"), [
    (TWO, "def h(x):\n    return x\n", "Rename f to h", "the answer has no f, which g still uses"),
    (TWO, "def g(x):\n    return x\n", "Rename f to h", "the answer removes f, but has no h"),
    (TWO + "\n\ndef k(x):\n    return f(x)\n", "def g(x):\n    return x\n", "Inline `f` into g.",
     "the answer has no f, which k "),
    ("__all__ = ['f', 'g']\n" + TWO, "def g(x):\n    return x\n", "Remove `f`.",
     "the answer has no f, which __all__ still uses"),
    (MEMBERS, "class A:\n    y = 3\n", "Remove `A.f`.", "the answer has no A.f, which A still uses"),
    (PROPERTY + PROPERTY.replace("A", "B"), "class A:\n    w = 3\n", "Remove `v`.",
     "the file has several definitions of v"),
    (CONSTANTS, CONSTANTS.replace("RETRIES = 4\n", "").replace("start", "begin"), "Print begin.",
     "the answer would delete RETRIES, "),
    (CONSTANTS, CONSTANTS.replace("LIMIT = 3\n", "").replace("start", "begin"), "Print begin.",
     "the answer has no LIMIT, which f "),
    (CONSTANTS, CONSTANTS.replace("print(f())\n", "").replace("start", "begin"), "Print begin instead of start.",
     "the answer leaves out 'print(f())'"),
    ("x = 1\n# about y\nprint(x, 1)\n", "print(2, 3)\n", "x", "the answer leaves out the comment '# about y'"),
    ("print(1)\nprint(2)\nprint(3)\n", "print(1)\n...\nprint(4)\n", "x", "the answer leaves out code ('...')"),
    ("def f():\n    return 1\n", "def f():\n    x = 2\n    ...\n", "x", "the answer leaves out code ('...')"),
    (MEMBERS, "class A:\n    def f(self):\n        return 2\n\n\ndef f(self):\n    return 3\n", "x",
     "the answer has two versions of the same code"),
    (MEMBERS, "def g(self):\n    return 3\n", "Remove the class A.", "the answer has two versions of the same code"),
    ("x = 0\nprint('a')\ndef f():\n    global x\n    x = 1\n", "print('b')\ndef f():\n    global x\n    x = 1\n", "x",
     "the answer would delete x, "),
    ("x.setup()\nprint('start')\nx.run()\n", "print('begin')\nx.run()\n", "x", "the answer leaves out 'x.setup()'"),
    ("def f(:\n    pass\nimport os\n", "def f():\n    pass\n", "x", "the answer would delete os, "),
    (MEMBERS.replace("self.f()", "getattr(self, 'f')()"), "class A:\n    y = 3\n", "Remove `A.f`.",
     "the answer has no A.f, which A still uses"),
    ("def f(:\n    pass\nX = 1\n", "def f():\n    pass\n", "x", "the answer would delete X, "),
    ("def f(:\n    pass\n# end\n", "def f():\n    pass\n", "x", "the answer leaves out the comment '# end'"),
    (PROPERTY + "\n    @v.deleter\n    def v(self):\n        pass\n", "def v(self):\n    return 1\n", "x",
     "the file has several functions v"),
    ("@a\n@b\ndef f():\n    return 1\n", "@c\ndef f():\n    return 2\n", "x", "the answer leaves out the decorator @a"),
    ("def f():\n    def inner():\n        return 1\n    return inner()\n", "def inner():\n    return 2\n", "x",
     "inner is defined within"),
    ("class A:\n    class B:\n        def f(self):\n            return 1\n", "def f(self):\n    return 2\n", "x",
     "f is defined within"),
    ("class A:\n    class B:\n        def f(self):\n            return 1\n", "class B:\n    x = 1\n", "x",
     "B is defined within"),
    ("f = lambda x: 1\n", "def f(x):\n    return 2\n", "x", "the file binds f in another way"),
    ("from m import f\n", "def f(x):\n    return 2\n", "x", "the file binds f in another way"),
])  # fmt: skip
def test_a_loss_is_no_edit(file: str, answer: str, instruction: str, reason: str) -> None:
    assert why_not(file, answer, instruction).startswith(reason)


def test_a_class_attribute_stays_when_the_header_changes() -> None:
    wanted = MEMBERS.replace("A:", "A(B):").replace("return 1", "return 2")
    assert splice(MEMBERS, "class A(B):\n    def f(self):\n        return 2\n", "Let A inherit from B") == wanted
    decorated = "@dataclass\n" + MEMBERS
    assert splice(decorated, "class A(B):\n    x = 1\n", "Let A inherit from B") == decorated.replace("A:", "A(B):")


def test_a_whole_answer_keeps_constants_comments_and_functions_byte_for_byte() -> None:
    answer = CONSTANTS.replace("start", "begin").replace("# Tuning, do not change\n", "").replace("\n\n\n", "\n")
    assert splice(CONSTANTS, answer, "Print begin instead of start") == CONSTANTS.replace("start", "begin")


def test_an_accessor_without_its_decorator_is_found_by_its_parameters() -> None:
    setter = splice(PROPERTY, "def v(self, x):\n    self._v = 2 * x\n", "Change the setter of v")
    assert setter == PROPERTY.replace("= x", "= 2 * x")
    getter = splice(PROPERTY, "class A:\n    def v(self):\n        return 1\n", "Let the property v be 1")
    assert getter == PROPERTY.replace("return self._v", "return 1")


@pytest.mark.parametrize(("head", "answer", "added"), [
    ("def g():\n    import math\n", "import math\ndef f():\n    return math.pi\n", "import math\n"),
    ("if TYPE_CHECKING:\n    import math\n", "import math\ndef f():\n    return math.pi\n", "import math\n"),
    ("import xml\n", "import xml.dom\ndef f():\n    return xml.dom\n", "import xml\nimport xml.dom\n"),
    ("import os.path as path\n", "from os import path\ndef f():\n    return path\n", "import os.path as path\n"),
    ("try:\n    import a as m\nexcept E:\n    import b as m\n", "import b as m\ndef f():\n    return m\n",
     "    import b as m\n"),
    ("import os\n", "from __future__ import annotations\ndef f():\n    return 'annotations'\n", "import os\n"),
])  # fmt: skip
def test_an_import_is_added_if_the_module_lacks_it(head: str, answer: str, added: str) -> None:
    result = splice(f"{head}\n\ndef f():\n    return 1\n", answer, "x")
    assert added in result
    assert "__future__" not in result
    assert len(re.findall("^import", result, re.M)) == len(re.findall("^import", added, re.M))


@pytest.mark.parametrize(("head", "answer", "reason"), [
    ("import datetime", "from datetime import datetime\ndef f():\n    return datetime.now()\n",
     "datetime as datetime.datetime"),
    ("from datetime import datetime", "import datetime\ndef f():\n    return datetime.datetime\n",
     "datetime as datetime"),
    ("import numpy as np", "import foo as np\ndef f():\n    return np\n", "np as foo, and the file as numpy"),
])  # fmt: skip
def test_an_import_that_the_file_has_otherwise_is_no_edit(head: str, answer: str, reason: str) -> None:
    assert why_not(f"{head}\n\n\ndef f():\n    return 1\n", answer, "x").startswith(f"the answer imports {reason}")


@pytest.mark.parametrize(("file", "answer", "instruction", "old", "new"), [
    ("@a\n@b\ndef f():\n    return 1\n", "@b\ndef f():\n    return 2\n", "x", "1", "2"),
    ("class A:\n\t@property\n\tdef f(self):\n\t\treturn 1\n", "def f(self):\n    return 2\n",
     "Let the property f be 2", "1", "2"),
    ("x = 1\n\n\n\fdef f():\n    return 1\n", "def f():\n    if 1:\n        return 2\n", "x", "return 1",
     "if 1:\n        return 2"),
    ("def f():\n\treturn 1\n", "def f():\n    if 1:\n        return 2\n", "x", "return 1", "if 1:\n\t\treturn 2"),
    ("x = 1\n\n\ndef f():\r\n    return 1\r\n", "def f():\n    return 2\n", "x", "return 1", "return 2"),
    ("class A:\n    @staticmethod\n    def f(x):\n        return 1\n", "def f(x):\n    return 2\n", "A.f",
     "return 1", "return 2"),
    ("def f(a):\n    return 1\n", "def f(a):\n\tif a:\n\t\treturn 2\n", "x", "return 1", "if a:\n        return 2"),
    ("A = 'ä'  # tax\n", "A = 2\n", "Let A be 2", "'ä'", "2"),
    ("def f():\n    return 1\n", "def f():\n    return 2\n\n\n...\n", "x", "1", "2"),
    (OVERLOADED, "def f(x):\n    return 2\n", "x", "return x", "return 2"),
    (REGISTERED, "def f(x):\n    return 2 * x\n", "x", "return x", "return 2 * x"),
    (REGISTERED, "@f.register\ndef _(x: str):\n    return 3\n", "x", "return 2", "return 3"),
    ("def f():\n    # why\n    return 1\n\n\ndef g():\n    # why\n    return 2\n",
     "def f():\n    return 1\n\n\ndef g():\n    return 2\n", "Remove the comment in f.", "    # why\n    return 1",
     "    return 1"),
    ("def f():\n    return 1\n", "def f():\n    return 2\n\n\ndef test_f():\n    pass\n\n\nclass TestF:\n    pass\n",
     "x", "1", "2"),
    ("def f():\n    return 1\n", "def f():\n    # the rest of the list, unchanged\n    return 2\n", "x", "return 1",
     "# the rest of the list, unchanged\n    return 2"),
    ("if __name__ == '__main__':\n    main()\n\n\ndef main():\n    return 1\n",
     "def main():\n    return 2\n\nif __name__ == '__main__':\n    print(main())\n", "Let main() be 2.", "1", "2"),
])  # fmt: skip
def test_all_else_stays(file: str, answer: str, instruction: str, old: str, new: str) -> None:
    assert splice(file, answer, instruction) == file.replace(old, new, 1)


@pytest.mark.parametrize("comment", ["# ... (unchanged)", "# rest of the code", "# existing code", "# same as before"])
def test_a_comment_in_place_of_code_is_no_edit(comment: str) -> None:
    answer = f"def f():\n    x = 2\n    {comment}\n"
    assert why_not("def f():\n    x = 1\n    return x\n", answer, "x") == f"the answer leaves out code ({comment!r})"
