"""One test of a Python test file, in the process of the module that it tests.

Its text is a request to a test process (`file_tests`), so it is executed there, never imported. The tested program
shares the interpreter and can change all of this, as with any assertion that runs as a whole: a program can cheat such
tests, if it is made to. There is as much of pytest as `_pytest` has; parameters are not tests of their own.

This file is executed in an interpreter without the package, so it imports the standard library only.
"""

from __future__ import annotations

import linecache
import math
import re
import sys
import traceback
from collections.abc import Callable, Sequence
from types import ModuleType, SimpleNamespace, TracebackType
from typing import Any

_MOST_FRAMES = 4


class _Raises:
    def __init__(self, expected_exception: Any, match: Any = None) -> None:
        self._kinds, self._match = expected_exception, match
        self.value: BaseException | None = None

    def __enter__(self) -> _Raises:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> bool:
        if kind is None or error is None:
            raise AssertionError(f"did not raise {self._kinds}")
        if not issubclass(kind, self._kinds):
            return False
        self.type, self.value = kind, error
        if self._match is not None and not re.search(self._match, str(error)):
            raise AssertionError(f"{str(error)!r} does not match {self._match!r}")
        return True

    def match(self, pattern: Any) -> bool:
        assert re.search(pattern, str(self.value)), f"{str(self.value)!r} does not match {pattern!r}"
        return True


def _raises(expected_exception: Any, *call: Any, match: Any = None, **named: Any) -> _Raises:
    raises = _Raises(expected_exception, match)
    if call:
        with raises:
            call[0](*call[1:], **named)
    return raises


class _Approx:
    def __init__(self, expected: Any, rel: float | None = None, abs: float | None = None) -> None:
        self.expected, self._bounds = expected, (rel, abs)

    def __eq__(self, got: Any) -> bool:
        wanted, (rel, least) = self.expected, self._bounds
        if isinstance(wanted, dict) and isinstance(got, dict):
            return wanted.keys() == got.keys() and all(got[key] == self._of(wanted[key]) for key in wanted)
        if isinstance(wanted, (list, tuple)):
            is_alike = isinstance(got, (list, tuple)) and len(got) == len(wanted)
            return is_alike and all(one == self._of(other) for one, other in zip(got, wanted, strict=True))
        try:
            relative = abs(float(wanted)) * (rel if rel is not None else 0.0 if least is not None else 1e-6)
            if not math.isfinite(float(wanted)):
                return bool(got == wanted)
            distance = abs(float(got) - float(wanted))
            return bool(got == wanted or distance <= max(relative, 1e-12 if least is None else least))
        except (TypeError, ValueError):
            return bool(got == wanted)

    def _of(self, value: Any) -> _Approx:
        return _Approx(value, *self._bounds)

    def __repr__(self) -> str:
        return f"approx({self.expected!r})"


class _Parameters(tuple):  # type: ignore[type-arg]
    """The values of ``pytest.param``."""


def _parametrize(argnames: Any, argvalues: Any, ids: Any = None) -> Callable[[Any], Any]:
    is_text = isinstance(argnames, str)
    words = [each.strip() for each in argnames.split(",") if each.strip()] if is_text else list(argnames)

    def decorate(function: Any) -> Any:
        is_single = is_text and len(words) == 1
        rows = [(row,) if is_single and not isinstance(row, _Parameters) else row for row in argvalues]
        inner = function.__dict__.get("cases_of_test", [{}])
        function.cases_of_test = [{**dict(zip(words, row, strict=True)), **each} for row in rows for each in inner]
        return function

    return decorate


def _fail(reason: str = "") -> None:
    raise AssertionError(reason)


def _pytest() -> ModuleType:
    module = ModuleType("pytest")
    mark = SimpleNamespace(parametrize=_parametrize)
    module.__dict__.update(raises=_raises, approx=_Approx, mark=mark, fail=_fail)
    module.__dict__["param"] = lambda *values, id=None, marks=(): _Parameters(values)
    return module


def _lend(module: ModuleType, names: Sequence[str]) -> None:
    """Let a module be imported by these dotted names."""
    for name in names:
        parts = name.split(".")
        sys.modules[name], child = module, module
        for end in range(len(parts) - 1, 0, -1):
            package = sys.modules.setdefault(".".join(parts[:end]), ModuleType(".".join(parts[:end])))
            package.__dict__.setdefault("__path__", [])
            setattr(package, parts[end], child)
            child = package


def run(module: ModuleType, names: Sequence[str], file: str, source: str, test: str) -> None:
    """Run one test; print why it fails.

    Args:
        module: under test. names: by which the test file imports it.
        file, source: of the test file. test: ``name`` or ``Class.name``.

    Raises:
        AssertionError: an assertion does not hold. SystemExit: it fails otherwise.
    """
    _lend(module, names)
    own_name, module.__name__ = module.__name__, names[0]
    sys.modules["pytest"] = _pytest()
    tests = sys.modules[file.removesuffix(".py")] = ModuleType(file.removesuffix(".py"))
    tests.__file__ = f"/tests/{file}"  # many test files put its folder on the path
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    case: dict[str, Any] = {}
    failure: BaseException | None = None
    try:
        exec(compile(source, file, "exec", dont_inherit=True), tests.__dict__)
        owner_name, _, name = test.rpartition(".")
        owner: Any = tests.__dict__[owner_name] if owner_name else tests
        is_unittest = hasattr(owner, "assertEqual")
        if is_unittest:
            failure = _run_unittest(owner, name)
        for case in [] if is_unittest else _cases(owner, name):
            instance = owner() if owner_name else owner
            getattr(instance, "setup_method", lambda: None)()
            try:
                getattr(instance, name)(**case)
            finally:
                getattr(instance, "teardown_method", lambda: None)()
    except MemoryError:
        raise
    except Exception as error:
        _report(error, file, case)
        failure = AssertionError() if isinstance(error, AssertionError) else SystemExit(1)
    finally:
        module.__name__ = own_name  # as it is known to the process
    if failure is not None:
        raise failure


def _cases(owner: Any, name: str) -> list[dict[str, Any]]:
    of_class = owner.__dict__.get("cases_of_test", [{}])
    return [{**each, **case} for each in of_class for case in getattr(getattr(owner, name), "cases_of_test", [{}])]


def _run_unittest(owner: Any, name: str) -> BaseException | None:
    import unittest

    result = unittest.TestResult()
    unittest.TestSuite([owner(name)]).run(result)
    if result.wasSuccessful():
        return None
    texts = [text for _, text in (*result.failures, *result.errors)]
    sys.stderr.write((texts or ["unexpected success"])[0])
    return SystemExit(1) if result.errors else AssertionError()


def _report(error: Exception, file: str, case: dict[str, Any]) -> None:
    """Print an error with its place; of a plain assertion also what its sides are."""
    trace, last = error.__traceback__, None
    while trace is not None and trace.tb_frame.f_code.co_filename != file:
        trace = trace.tb_next
    start = trace
    while trace is not None:
        last = trace if trace.tb_frame.f_code.co_filename == file else last
        trace = trace.tb_next
    if case:
        sys.stderr.write(f"with {', '.join(f'{name}={value!r}' for name, value in case.items())}\n"[:500])
    if not isinstance(error, AssertionError) or start is None or last is None:
        traceback.print_exception(type(error), error.with_traceback(start), start, limit=-_MOST_FRAMES)
        return
    line = linecache.getline(file, last.tb_lineno).strip()
    sys.stderr.write(f"{file}:{last.tb_lineno}: {line}\n")
    if what := str(error) or _sides(last, file):
        sys.stderr.write(f"AssertionError: {what}\n"[:1000])


def _sides(trace: TracebackType, file: str) -> str:
    """The values of both sides of the comparison that failed; evaluated again, so they may differ."""
    try:
        import ast

        tree = ast.parse("".join(linecache.getlines(file)))
        for node in ast.walk(tree):
            if isinstance(node, ast.Assert) and node.lineno <= trace.tb_lineno <= (node.end_lineno or 0):
                frame = trace.tb_frame
                nodes = [node.test.left, *node.test.comparators] if isinstance(node.test, ast.Compare) else [node.test]
                codes = [compile(ast.Expression(each), file, "eval") for each in nodes]
                values = [repr(eval(code, frame.f_globals, frame.f_locals))[:200] for code in codes]
                return f"{values[0]} is not as expected: {values[1]}" if len(values) == 2 else f"it is {values[0]}"
    except Exception:
        return ""
    return ""
