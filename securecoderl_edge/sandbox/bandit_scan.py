"""Bandit's checks on one text: as Bandit's own visitor runs them, but faster, and with what it is misled about.

Faster, because contexts are built only for nodes that a check looks at, and a check that looked at nothing but the name
of a call, and found nothing, is not asked again about that name. `call_names` tells which other names a call can have;
what is found for these is an addition to Bandit's findings.

This file is loaded by path in a process without the package, so it imports the standard library and Bandit only.
"""

from __future__ import annotations

import ast
import importlib.machinery
import io
import logging
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

FILE_NAME = "solution.py"
# Of a check, with one severity: a hostile file can have millions, with texts that quote it, and none shall hide others.
MOST_FINDINGS, LONGEST_TEXT = 10_000, 500

# Nodes whose visit changes what later nodes are compared with.
STATEFUL = {"ClassDef", "FunctionDef", "Import", "ImportFrom", "Call"}
# Statements that give names a meaning; at the top level they are children of the module.
BINDING = STATEFUL - {"Call"} | {"Delete", "Assign", "AnnAssign", "NamedExpr", "arguments", "For", "comprehension"}
BINDING |= {"Return", "Yield", "YieldFrom", "Lambda", "AsyncFunctionDef", "Match", "AugAssign"}
# Fields without nodes, or with those that no check looks at.
_PLAIN_FIELDS = frozenset(("ctx", "op", "ops", "id", "attr", "arg", "kind", "level", "module", "type_comment"))
_PLAIN_NODES = (ast.expr_context, ast.boolop, ast.operator, ast.unaryop, ast.cmpop)
# What a check may look at to be asked about a name only once: in every file, and in a file until its next import.
_NAME, _IMPORTS = {"qualname", "name"}, {"imports"}
_MOST_NAMES = 20_000
# Modules whose checks ask whether they are imported, but not whether a part of them is.
_ASKED_FOR = {"tarfile", "torch", "yaml"}
# The check that looks for characters which are not ASCII, line by line and one by one.
_BIDI = "B613"
_place = attrgetter("test_id", "line", "column", "first_line", "end_line")  # another in its line may be slighter


class Row(NamedTuple):
    """One finding. ``column`` from 1 in bytes, 0 if unknown; ``is_addition`` to what Bandit finds.

    ``first_line`` and ``end_line`` are those of its expression or statement, without a block that belongs to it.
    """

    test_id: str
    cwe: int
    severity: str
    confidence: str
    line: int
    column: int
    text: str
    is_addition: bool
    first_line: int
    end_line: int


class Scanned(NamedTuple):
    """``failures`` are checks that raised an error: id, line and kind; ``is_cut`` if there are more findings."""

    rows: list[Row]
    failures: list[tuple[str, int, str]]
    is_cut: bool


class _Plan(NamedTuple):
    """How nodes of one kind are visited; a wanted one without ``fields`` is a constant."""

    fields: tuple[str, ...]
    is_binding: bool
    is_wanted: bool


class _PlainFile(io.BytesIO):
    """Source bytes for plugins that read the file; whoever looks for a coding cookie finds none."""

    def readline(self, size: int | None = -1, /) -> bytes:
        return b""


class _Watched(dict[str, Any]):
    """The raw context of a call, which notes what a check looks at."""

    def __init__(self, raw: dict[str, Any]) -> None:
        super().__init__(raw)
        self.seen: set[str] = set()

    def get(self, key: str, default: Any = None) -> Any:
        self.seen.add(key)
        return super().get(key, default)

    def __getitem__(self, key: str) -> Any:
        self.seen.add(key)
        return super().__getitem__(key)

    def __contains__(self, key: object) -> bool:
        self.seen.add(str(key))
        return super().__contains__(key)

    def __iter__(self) -> Iterator[str]:
        self.seen.add("everything")
        return super().__iter__()

    def items(self) -> Any:
        """All of them."""
        self.seen.add("everything")
        return super().items()


Scanner = Callable[..., Scanned]


def make_scanner(rules: dict[str, Any] | None = None) -> Scanner:
    """Load Bandit's plugins once; returns ``scan(source, path, errors)``.

    ``source`` as text is a program, whose coding cookie means nothing; as bytes it is a file as Python reads it.
    ``path`` is what options of checks are compared with. An error of a check is raised, unless ``errors`` is "kept".

    Args:
        rules: ids to run (``tests``, none for all) and not to run (``skips``), Bandit's ``options`` of checks, and
            ``nosec``, whether comments of this kind count.
    """
    from bandit.core import blacklisting, config, constants, context, metrics, node_visitor, test_set, tester, utils

    rules = rules or {}
    call_names = _module(Path(__file__).with_name("call_names.py"))
    call_arguments = _module(Path(__file__).with_name("call_arguments.py"))
    comments = _module(Path(__file__).with_name("nosec.py"))
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    settings = config.BanditConfig()
    settings.config.update(rules.get("options", {}))
    tests = test_set.BanditTestSet(settings, profile=_profile(rules))
    no_metrics = metrics.Metrics()
    no_metrics.begin(FILE_NAME)
    no_scores: dict[str, list[int]] = {"SEVERITY": [], "CONFIDENCE": []}
    plugins = {
        kind: tuple((test, (test._config,) if hasattr(test, "_config") else ()) for test in found)
        for kind, found in tests.tests.items()
    }
    wanted = (set(tests.tests) - {"File"}) | STATEFUL
    if wanted & {"Str", "Bytes"}:
        wanted.add("Constant")
    calls = plugins.get("Call", ())
    talkative: dict[tuple[str, bool], Any] = {}  # of a call's name, the checks that it is worth asking in every file

    class Tester(tester.BanditTester):  # type: ignore[misc]
        """Runs plugins on one node and collects their issues."""

        def __init__(self, nosec: dict[int, Any], is_plain: bool, keeps_errors: bool) -> None:
            super().__init__(None, False, nosec, no_metrics)
            self.is_plain = is_plain
            self.results: list[tuple[Any, int, int, int]] = []  # with columns, first and last lines
            self.failures: list[tuple[str, int, str]] = []
            self.counts, self.is_cut, self.keeps_errors = Counter[tuple[str, str]](), False, keeps_errors
            # Until the next import: as `talkative`, and what found nothing by a look at the imports.
            self.in_file: dict[tuple[str, bool], Any] = {}
            self.until_import: set[Any] = set()

        def run_tests(self, raw: dict[str, Any], kind: str) -> dict[str, list[int]]:
            if kind == "Call":
                self.run_on_call(raw)
            else:
                if kind.startswith("Import"):
                    self.in_file.clear()
                    self.until_import.clear()
                given = context.Context(raw)  # one for all plugins: none of Bandit's changes it
                for test, options in plugins.get(kind, ()):
                    if not (test._test_id == _BIDI and self.is_plain):
                        self.ask(test, options, given, raw, kind)
            return no_scores

        def run_on_call(self, raw: dict[str, Any]) -> None:
            # A call of the name `__import__` is looked at as one, whatever that name means.
            is_import = _is_import(raw["node"], raw["qualname"])
            name = (raw["qualname"], is_import)
            if (asked := self.in_file.get(name)) is not None:
                given = context.Context(raw)
                for test, options in asked:
                    self.ask(test, options, given, raw, "Call")
                return
            always, here = [], []
            watched = _Watched(raw)
            given = context.Context(watched)
            for test, options in talkative.get(name, calls):
                if test in self.until_import:
                    always.append((test, options))
                    continue
                watched.seen.clear()
                is_quiet = not self.ask(test, options, given, raw, "Call")
                if is_quiet and test is blacklisting.blacklist and not is_import:
                    watched.seen.discard("node")
                if not (is_quiet and watched.seen <= _NAME):
                    always.append((test, options))
                if is_quiet and watched.seen == _IMPORTS:
                    self.until_import.add(test)
                elif not (is_quiet and watched.seen <= _NAME | _IMPORTS):
                    here.append((test, options))
            if len(talkative) > _MOST_NAMES:
                talkative.clear()
            kept = talkative if len(raw["qualname"]) <= LONGEST_TEXT else {}
            kept[name], self.in_file[name] = always, here

        def ask(self, test: Any, options: Any, given: Any, raw: dict[str, Any], kind: str) -> bool:
            """Whether a check finds something, or fails."""
            try:
                issue = test(given, *options)
            except Exception as error:  # Bandit itself logs it and goes on
                if not self.keeps_errors:
                    raise
                self.failures.append((test._test_id, raw["lineno"], type(error).__name__))
                return True
            if issue is None:
                return False
            issue.lineno = raw["lineno"] if issue.lineno is None else issue.lineno
            issue.test_id = issue.test_id or test._test_id
            if self.nosec_lines:
                raw.setdefault("linerange", utils.linerange(raw["node"]))
                silenced = self._get_nosecs_from_contexts(raw, issue)
                if silenced is not None and (not silenced or issue.test_id in silenced):
                    return True
            self.counts[issue.test_id, issue.severity] += 1
            if self.counts[issue.test_id, issue.severity] > MOST_FINDINGS:
                self.is_cut = True
                return True
            # A plugin that reads the whole file counts from 1. The column of a node says nothing about another line.
            column, first, end = -1, issue.lineno, issue.lineno
            if kind == "File":
                column = issue.col_offset - 1
            else:
                column, node = raw["col_offset"] if first == raw["lineno"] else -1, raw["node"]
                if not isinstance(getattr(node, "body", None), list):
                    first, end = min(first, node.lineno), max(end, node.end_lineno)
            self.results.append((issue, column, first, end))
            return True

    class Visitor(node_visitor.BanditNodeVisitor):  # type: ignore[misc]
        meanings: Any
        calls: list[tuple[ast.Call, dict[str, Any]]]

        def visit_Call(self, node: ast.Call) -> None:
            super().visit_Call(node)
            if self.meanings is not None:
                self.meanings.note_call(node, self.context["qualname"])
                self.calls.append((node, self.context))

        def visit_Str(self, node: Any) -> None:
            if not isinstance(node._bandit_parent, ast.Expr):  # docstring
                self.context["str"] = node.value
                self.test_constant(node, "Str")

        def visit_Bytes(self, node: Any) -> None:
            if not isinstance(node._bandit_parent, ast.Expr):
                self.context["bytes"] = node.value
                self.test_constant(node, "Bytes")

        def test_constant(self, node: Any, kind: str) -> None:
            if self.nosec_lines:
                self.context["linerange"] = utils.linerange(node._bandit_parent)
            self.tester.run_tests(self.context, kind)

        def look_again(self) -> None:
            """Run the plugins on calls whose name or arguments can mean something else than Bandit took them for."""
            self.note_parts()
            is_plain = self.meanings.is_plain
            calls = [(node, given, set() if is_plain else self.meanings.of(node.func)) for node, given in self.calls]
            for node in self.meanings.given():
                self.pre_visit(node)
                calls.append((node, {**self.context, "call": node, "qualname": ""}, self.meanings.of(node.func)))
            for again in (each for call in calls for each in call_arguments.other_calls(*call, self.meanings)):
                self.tester.run_tests(again, "Call")

        def note_parts(self) -> None:
            """Ask again what is asked only where the whole of a module is imported, and a part of it is."""
            if whole := {each.partition(".")[0] for each in self.imports} & _ASKED_FOR - self.imports:
                self.imports |= whole  # of all contexts
                self.tester.in_file.clear()
                self.tester.until_import.clear()
                for _, given in self.calls:
                    self.tester.run_tests(given, "Call")

        def update_scores(self, scores: dict[str, list[int]]) -> None:
            """Scores are Bandit's own summary; we count issues."""

        def pre_visit(self, node: Any) -> bool:
            self.context = {
                "imports": self.imports,
                "import_aliases": self.import_aliases,
                "node": node,
                "filename": self.fname,
                "file_data": self.fdata,
            }
            if hasattr(node, "lineno"):
                self.context["lineno"] = node.lineno
                self.context["col_offset"] = node.col_offset
                self.context["end_col_offset"] = node.end_col_offset
            return True

        def post_visit(self, node: ast.AST) -> None:
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                self.namespace: str = utils.namespace_path_split(self.namespace)[0]

        def generic_visit(self, node: ast.AST) -> None:
            for name in plans[node.__class__][0]:
                value: Any = getattr(node, name, None)
                if value.__class__ is list:
                    siblings: Any = [*value[1:], None]
                else:
                    value, siblings = (value,), (None,)
                for child, sibling in zip(value, siblings, strict=False):
                    if not isinstance(child, ast.AST):
                        continue
                    child._bandit_parent, child._bandit_sibling = node, sibling  # type: ignore[attr-defined]
                    fields, is_binding, is_wanted = plans[child.__class__]
                    if is_binding and self.meanings is not None:
                        self.meanings.collect(child, node)
                    if is_wanted and (fields or child.value.__class__ in (str, bytes)):  # type: ignore[attr-defined]
                        self.pre_visit(child)
                        self.visit(child)
                        if fields:
                            self.generic_visit(child)
                        self.post_visit(child)
                    elif fields:
                        self.generic_visit(child)

    class Plans(dict[type[ast.AST], _Plan]):
        """Of each kind of node, made when the first one is met."""

        def __missing__(self, kind: type[ast.AST]) -> _Plan:
            fields = () if kind is ast.Constant else tuple(each for each in kind._fields if each not in plain)
            self[kind] = _Plan(fields, kind.__name__ in BINDING, kind.__name__ in wanted)
            return self[kind]

    plans = Plans()
    plain = _PLAIN_FIELDS if not any(issubclass(getattr(ast, kind, int), _PLAIN_NODES) for kind in wanted) else ()

    def scan(source: str | bytes, path: str = FILE_NAME, errors: str = "raised") -> Scanned:
        if isinstance(source, bytes):
            data = io.BytesIO(source)
            nosec = comments.silenced_by_line(source) if rules.get("nosec") else {}
            is_plain = source.isascii() and b"coding" not in b"".join(source.splitlines()[:2])
            text = source.decode("ascii", "replace")
        else:
            data, nosec = _PlainFile(source.encode("utf-8", "surrogatepass")), {}
            is_plain = source.isascii()
            # As text: in bytes a coding cookie could turn a comment into code that the sandbox would not run.
            source = text = source.removeprefix("\ufeff")
        visitor = Visitor(FILE_NAME, data, None, tests, False, nosec, no_metrics)
        visitor.fname, visitor.tester, visitor.calls = path, Tester(nosec, is_plain, errors == "kept"), []
        is_odd = not is_plain or any(map(text.__contains__, call_names.ODD_WORDS))
        visitor.meanings = call_names.Meanings(call_arguments.joined_texts, call_arguments.is_hmac) if is_odd else None
        visitor.process(source)
        rows = [_row(False, *each) for each in visitor.tester.results]
        rank = constants.RANKING.index
        found = {_place(each): rank(each.severity) for each in sorted(rows, key=lambda each: rank(each.severity))}
        visitor.tester.results, visitor.tester.counts = [], Counter()
        if is_odd:
            visitor.look_again()
        again = [_row(True, *each) for each in visitor.tester.results]
        rows += [each for each in again if rank(each.severity) > found.get(_place(each), -1)]
        return Scanned(rows, visitor.tester.failures, visitor.tester.is_cut)

    return scan


def _is_import(call: ast.Call, name: str) -> bool:
    """Whether Bandit's list of names is compared with an argument of the call instead of its name."""
    return getattr(call.func, "id", "") == "__import__" or name in ("importlib.import_module", "importlib.__import__")


def _row(is_addition: bool, issue: Any, column: int, first: int, end: int) -> Row:
    text, ranks = str(issue.text)[:LONGEST_TEXT], (issue.severity, issue.confidence)
    return Row(issue.test_id, issue.cwe.id, *ranks, issue.lineno, column + 1, text, is_addition, first, end)


def checks(rules: dict[str, Any]) -> dict[str, tuple[str, str, bool]]:
    """Name and page of each check of Bandit, and whether rules as in `make_scanner` choose it, by id."""
    from bandit.core import docs_utils, extension_loader, test_set

    names = {test_id: each.name for test_id, each in extension_loader.MANAGER.plugins_by_id.items()}
    names |= {test_id: each["name"] for test_id, each in extension_loader.MANAGER.blacklist_by_id.items()}
    chosen = test_set.BanditTestSet._get_filter(None, _profile(rules))
    return {each: (name, docs_utils.get_url(each), each in chosen) for each, name in sorted(names.items())}


def _profile(rules: dict[str, Any]) -> dict[str, set[str]]:
    return {"include": set(rules.get("tests", ())), "exclude": set(rules.get("skips", ()))}


def _module(path: Path) -> ModuleType:
    module = ModuleType(path.stem)
    module.__file__ = str(path)
    importlib.machinery.SourceFileLoader(path.stem, str(path)).exec_module(module)
    return module
