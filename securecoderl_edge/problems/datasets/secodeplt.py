"""SecCodePLT: Python functions with a vulnerable and a patched version, and tests for both.

One JSON object per record: CWE_ID, task_description, ground_truth, unittest, install_requires. The ``capability`` tests
become assertions, the ``safety`` tests security tests, the patched version the solution and the vulnerable one an
insecure solution. Tests are text: nothing of a record runs here. Each call of a test starts from the record's set-up.

Records come in blocks of about ten variants of one task, which no field names. `Variants` groups them by their code, so
that `sce data split` keeps them together.
Source: Yang et al., 2024, arXiv:2410.11096, https://github.com/ucsb-mlsec/SeCodePLT
"""

from __future__ import annotations

import ast
import builtins
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from securecoderl_edge.languages.python_source import is_function_name, is_literal, names_imported, parse, signature
from securecoderl_edge.problems.datasets.evalplus_tests import Evaluate, ReferenceOutput
from securecoderl_edge.problems.datasets.record_files import given_id
from securecoderl_edge.problems.datasets.tally import DropRecord, Tally, with_setup
from securecoderl_edge.problems.datasets.variants import Variants
from securecoderl_edge.problems.problem import Problem, SecurityTest
from securecoderl_edge.problems.problem_file import ProblemError, text, texts

SOURCE = "secodeplt"
KEYS = {"CWE_ID", "task_description", "ground_truth", "unittest"}
# What a program in the sandbox cannot do, by the name of the call or module that shows it.
_NEEDS = {
    "files": ("open", "tempfile", "shutil", "pathlib", "glob", "zipfile", "tarfile"),
    "processes": ("subprocess", "os.system", "os.popen", "multiprocessing"),
    "the network": ("socket", "requests", "urllib.request", "http.client", "smtplib", "ftplib"),
}
_PARTS = (
    ("context", "Context"),
    ("arguments", "Arguments"),
    ("return", "Returns"),
    ("raise", "Raises"),
    ("security_policy", "Security policy"),
)


def problem_from(
    record: dict[str, Any],
    name: str,
    _tally: Tally,
    variants: Variants,
    evaluate: Evaluate | None = None,
    with_policy: bool = True,
) -> Problem:
    """The problem in a record.

    Args:
        variants: the groups of the records so far.
        evaluate: computes expected values that are expressions, in the sandbox, so that they stay outside of it later.
        with_policy: the statement names the security policy; otherwise the model has to know it.

    Raises:
        ProblemError: it cannot be used.
    """
    task, tests = _object(record, "task_description"), _object(record, "unittest")
    function, cwe = text(task, "function_name"), text(record, "CWE_ID")
    if not is_function_name(function) or not cwe.isdecimal():
        raise ProblemError('"function_name" or "CWE_ID" is missing')
    identifier = f"{SOURCE}/{given_id(record, ('index', 'id')) or name}"
    if texts(record, "install_requires"):
        raise DropRecord("needs packages")
    if not text(tests, "testcases").strip():
        raise DropRecord("no tests")
    patched, vulnerable = programs_of(record)
    code = parse(patched)
    if code is None or parse(vulnerable) is None:
        raise DropRecord("its code is not Python")
    setup, cases = _tests(text(tests, "setup"), text(tests, "testcases"))
    check_needs(code, *setup, *(part for of_kind in cases.values() for test in of_kind for part in test))
    compute = None if evaluate is None else partial(evaluate, "\n".join(map(ast.unparse, setup)), "")
    before = "".join(f"{ast.unparse(node)}\n" for node in setup)
    classes = {node.name for node in setup if isinstance(node, ast.ClassDef)}
    calls = {
        kind: with_setup(before, [_assertion(classes, function, case, compute) for case in of_kind])
        for kind, of_kind in cases.items()
    }
    if not calls["capability"] or not calls["safety"]:
        raise DropRecord("no capability tests" if not calls["capability"] else "no safety tests")
    safety = enumerate(calls["safety"], 1)
    return Problem(
        id=identifier,
        statement=_statement(task, signature(patched, function) or function, with_policy),
        kind="call",
        entry_point=function,
        assertions=calls["capability"],
        security_tests=tuple(SecurityTest(f"safety {number}", int(cwe), assertion=each) for number, each in safety),
        solutions=(patched.strip(),),
        insecure_solutions=(vulnerable.strip(),),
        source=SOURCE,
        tags=(f"CWE-{cwe}",),
        group=f"{SOURCE}/{cwe}/{variants.group_of(cwe, patched)}",
    )


def programs_of(record: dict[str, Any]) -> tuple[str, str]:
    """The patched and the vulnerable program of a record.

    Raises:
        ProblemError: it has none.
    """
    truth = _object(record, "ground_truth")
    before, after = text(truth, "code_before"), text(truth, "code_after")
    return before + text(truth, "patched_code") + after, before + text(truth, "vulnerable_code") + after


def _object(record: dict[str, Any], key: str) -> dict[str, Any]:
    value = record.get(key)
    if not isinstance(value, dict):
        raise ProblemError(f'"{key}" must be an object')
    return value


def _statement(task: dict[str, Any], header: str, with_policy: bool) -> str:
    parts = [text(task, "description").strip()]
    if not parts[0]:
        raise DropRecord("no statement")
    for key, title in _PARTS:
        words = text(task, key).strip()
        if words and (with_policy or key != "security_policy"):
            parts.append(f"{title}:\n{words}")
    return "\n\n".join([*parts, f"Write the function `{header}`."])


def _tests(setup: str, testcases: str) -> tuple[list[ast.stmt], dict[str, list[tuple[ast.expr, ast.expr]]]]:
    """The statements before every call, and (arguments, expected) of each test by kind.

    Raises:
        DropRecord: another form.
    """
    tree, preparation = parse(testcases), parse(setup)
    if tree is None or preparation is None:
        raise DropRecord("its tests are not Python")
    others: list[ast.stmt] = []
    cases: dict[str, list[tuple[ast.expr, ast.expr]]] = {"capability": [], "safety": []}
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id="testcases")], value=ast.Dict(keys=keys, values=values)):
                for key, value in zip(keys, values, strict=True):
                    if isinstance(key, ast.Constant) and key.value in cases and isinstance(value, ast.List):
                        cases[key.value] += [_pair(each) for each in value.elts]
            case _:
                others.append(node)
    own = [*preparation.body, *others]
    return [*_missing_imports(own, cases), *own], cases


def _pair(case: ast.expr) -> tuple[ast.expr, ast.expr]:
    match case:
        case ast.Tuple(elts=[arguments, expected]) | ast.List(elts=[arguments, expected]):
            return arguments, expected
    raise DropRecord("a test is not a pair of arguments and result")


def _missing_imports(own: list[ast.stmt], cases: dict[str, list[tuple[ast.expr, ast.expr]]]) -> list[ast.stmt]:
    """Imports of modules that the tests name: the original harness has what the program imports."""
    bound = {name for node in own for name in _bound(node)}
    pairs = [part for of_kind in cases.values() for case in of_kind for part in case]
    used = {node.id for part in [*own, *pairs] for node in ast.walk(part) if isinstance(node, ast.Name)}
    names = sorted((used - bound) & sys.stdlib_module_names - set(dir(builtins)))
    return [ast.Import([ast.alias(name)]) for name in names]


def _bound(node: ast.stmt) -> set[str]:
    names = {each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        names.add(node.name)
    return names | names_imported(node)


def _assertion(
    classes: set[str],
    function: str,
    case: tuple[ast.expr, ast.expr],
    compute: Callable[[str], ReferenceOutput] | None,
) -> str:
    arguments, expected = case
    call = ast.Call(ast.Name(function), [], _keywords(arguments))
    if _is_exception(expected, classes):
        asserted: ast.expr = ast.Call(ast.Name("raises"), [call, expected], [])
    else:
        asserted = ast.Compare(call, [ast.Eq()], [_literal(expected, compute) if compute else expected])
    return ast.unparse(ast.Assert(asserted))


def _literal(expected: ast.expr, compute: Callable[[str], ReferenceOutput]) -> ast.expr:
    """The value of an expression as a literal; the expression itself if it has no such value."""
    if is_literal(expected):
        return expected
    match parse(compute(ast.unparse(expected)).value or ""):
        case ast.Module(body=[ast.Expr(value=found)]) if is_literal(found):
            return found
    return expected


def _keywords(arguments: ast.expr) -> list[ast.keyword]:
    match arguments:
        case ast.Dict(keys=keys, values=values) if all(_is_name(key) for key in keys):
            return [ast.keyword(key.value, value) for key, value in zip(keys, values, strict=True)]  # type: ignore[union-attr]
    return [ast.keyword(None, arguments)]


def _is_name(key: ast.expr | None) -> bool:
    return isinstance(key, ast.Constant) and isinstance(key.value, str) and is_function_name(key.value)


def _is_exception(expected: ast.expr, classes: set[str]) -> bool:
    """Whether the expected value is a class of exceptions, of Python or one of those that the set-up defines."""
    if not isinstance(expected, ast.Name):
        return False
    known = getattr(builtins, expected.id, None)
    if known is not None:
        return isinstance(known, type) and issubclass(known, Exception)
    return expected.id in classes


def check_needs(*trees: ast.AST) -> None:
    """Check that a program and its tests need nothing that the sandbox does not have.

    Raises:
        DropRecord: they do.
    """
    nodes = [node for tree in trees for node in ast.walk(tree)]
    modules = {name for node in nodes for name in _imported(node)}
    if {name.partition(".")[0] for name in modules} - sys.stdlib_module_names:
        raise DropRecord("needs packages")
    used = modules | {_dotted(node.func) for node in nodes if isinstance(node, ast.Call)}
    for need, names in _NEEDS.items():
        if used & set(names):
            raise DropRecord(f"needs {need}")


def _dotted(node: ast.expr) -> str:
    """A name as it is written, such as ``os.system``; empty for another expression."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""


def _imported(node: ast.AST) -> set[str]:
    if isinstance(node, ast.Import):
        return {alias.name for alias in node.names}
    return {node.module or ""} if isinstance(node, ast.ImportFrom) else set()
