"""Python test files, read without running them: their tests, and what is refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from securecoderl_edge.errors import SceError
from securecoderl_edge.problems.test_file import names_of_module, read_test_file


def read(tmp_path: Path, source: str, edited: str = "shop/money.py") -> tuple[tuple[str, ...], tuple[str, ...]]:
    (tmp_path / "test_it.py").write_text(source, encoding="utf-8")
    file = read_test_file(tmp_path / "test_it.py", tmp_path / edited)
    return file.modules, file.tests


def why_not(tmp_path: Path, source: str) -> str:
    with pytest.raises(SceError) as refused:
        read(tmp_path, source)
    return str(refused.value).removeprefix(f"{tmp_path}/test_it.py: ")


def test_functions_methods_and_testcases_are_tests(tmp_path: Path) -> None:
    source = (
        "import unittest\nfrom money import total\n"
        "def helper(): pass\ndef test_a(): pass\ndef test_a(): pass\n"
        "class TestB:\n    def test_c(self): pass\n    def other(self): pass\n"
        "class Base(unittest.TestCase):\n    def test_d(self): pass\n"
        "class Derived(Base):\n    def test_e(self): pass\n"
        "class Other:\n    def test_f(self): pass\n"
    )
    tests = ("test_a", "TestB.test_c", "Base.test_d", "Derived.test_d", "Derived.test_e")
    assert read(tmp_path, source) == (("money",), tests)


@pytest.mark.parametrize(("line", "modules"), [
    ("import money", ("money",)),
    ("import shop.money as m", ("shop.money",)),
    ("from shop import money", ("shop.money",)),
    ("from shop.money import total", ("shop.money",)),
    ("import importlib\nm = importlib.import_module('shop.money')", ("shop.money",)),
    ("import money\ntry:\n    import numpy\nexcept ImportError:\n    numpy = None", ("money",)),
    ("import money\ndef f():\n    yield 1", ("money",)),
    ("import money, shop.money", ("money", "shop.money")),
])  # fmt: skip
def test_the_module_is_imported_by_any_of_its_names(tmp_path: Path, line: str, modules: tuple[str, ...]) -> None:
    assert read(tmp_path, f"{line}\ndef test_a(): pass\n")[0] == modules


def test_a_package_is_named_by_its_folder(tmp_path: Path) -> None:
    assert names_of_module(tmp_path / "shop" / "__init__.py")[0] == "shop"
    assert read(tmp_path, "import shop\ndef test_a(): pass\n", "shop/__init__.py")[0] == ("shop",)


@pytest.mark.parametrize(("source", "reason"), [
    ("def test_a(:", "does not parse as Python"),
    ("import money\n", "no tests; expected functions test_* or classes Test*"),
    ("def test_a(): pass\n", "does not import money, so its tests do not test money.py"),
    ("import numpy\nimport money\n", "imports numpy, and the sandbox has only money.py and the standard library"),
    ("from shop import other\n", "imports shop, and the sandbox has only money.py and the standard library"),
    ("from .money import total\n", "relative imports are not supported; import money by its name"),
    ("import money\ndef test_a(tmp_path, x): pass\n", "fixtures are not supported, and test_a needs tmp_path, x"),
    ("import money\nclass TestA:\n def test_a(self, x): pass\n", "fixtures are not supported, and TestA.test_a needs "),
    ("import money, pytest\n@pytest.fixture\ndef f(): pass\n", "pytest.fixture is not supported; the sandbox has "),
    ("import money\nfrom pytest import fixture\n", "pytest.fixture is not supported; the sandbox has raises,"),
    ("import money, pytest\n@pytest.mark.asyncio\ndef test_a(): pass\n", "pytest.mark.asyncio is not supported; "),
    ("import money\nfrom pytest import mark\n@mark.skip\ndef test_a(): pass\n", "pytest.mark.skip is not supported; "),
    ("import money\nimport pytest as p\n", "import pytest by its own name"),
    ("import money\nasync def test_a(): pass\n", "test_a is async, which needs a plugin that the sandbox does not "),
    ("import money\ndef test_a(*, tmp_path, x=1): pass\n", "fixtures are not supported, and test_a needs tmp_path"),
    ("import money\ndef test_a():\n    if 1:\n        yield 1\n", "test_a yields, and such tests are not supported"),
    ("import money\nclass TestA:\n class TestB:\n  def test_a(self): pass\n", "TestB is a class within TestA, which "),
    ("import money\ntry:\n    import numpy\nexcept ValueError:\n    pass\n", "imports numpy, and the sandbox has "),
    ("import importlib\nm = importlib.import_module('other')\ndef test_a(): pass\n", "does not import money, so "),
    ("import money\ndef setup_module(): pass\n", "setup_module is not supported"),
])  # fmt: skip
def test_what_the_sandbox_does_not_have_is_named(tmp_path: Path, source: str, reason: str) -> None:
    assert why_not(tmp_path, source).startswith(reason)


def test_parameters_that_parametrize_gives_are_no_fixtures(tmp_path: Path) -> None:
    source = "import money, pytest\n@pytest.mark.parametrize('a, b', [])\n@pytest.mark.parametrize(['c'], [])\n"
    source += "def test_a(a, b, c, d=1): pass\n"
    source += "@pytest.mark.parametrize('e', [])\nclass TestB:\n    def test_f(self, e): pass\n"
    assert read(tmp_path, source)[1] == ("test_a", "TestB.test_f")


def test_a_link_may_be_imported_by_the_name_of_its_target(tmp_path: Path) -> None:
    (tmp_path / "geo.py").touch()
    (tmp_path / "link.py").symlink_to("geo.py")
    for name in ("geo", "link"):
        assert read(tmp_path, f"import {name}\ndef test_a(): pass\n", "link.py")[0] == (name,)


def test_a_file_that_is_no_text_or_missing_is_refused(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_bytes(b"\xff\xfe")
    for name, reason in (("test_it.py", "not UTF-8 text"), ("nothing.py", "No such file"), ("", "Is a directory")):
        with pytest.raises(SceError, match=reason):
            read_test_file(tmp_path / name, tmp_path / "money.py")


def test_many_ways_to_inherit_are_followed_once(tmp_path: Path) -> None:
    source = "import money\nclass A0:\n    def test_a(self): pass\n"
    source += "".join(f"class A{number + 1}(A{number}, A{number}): pass\n" for number in range(90))
    source += "class TestB(A90): pass\nclass A0(TestB): pass\nclass TestC(A0): pass\n"
    assert read(tmp_path, source)[1] == ("TestB.test_a", "TestC.test_a")


@pytest.mark.parametrize(("source", "reason"), [
    ("".join(f"class A{number + 1}(A{number}): pass\n" for number in range(5_000)), "A101 inherits from 100"),
    ("def test_a(): pass\n" * 10_001, "more than 10,000 tests are not supported"),
    (f"x{'.a()' * 450}\n", "no tests"),
    (f"@a{'.a()' * 900}\nclass TestA: pass\n", "nested too deeply"),
])  # fmt: skip
def test_a_file_that_would_take_too_long_is_refused(tmp_path: Path, source: str, reason: str) -> None:
    assert why_not(tmp_path, f"import money\n{source}").startswith(reason)


def test_of_a_file_without_end_only_a_part_is_read(tmp_path: Path) -> None:
    file = tmp_path / "test_it.py"
    file.touch()
    os.truncate(file, 1 << 40)
    with pytest.raises(SceError, match="too long; the limit is 4 MiB"):
        read_test_file(file, tmp_path / "money.py")
