"""A process that scans programs with Bandit: one JSON object per line in, one out.

Run as ``python -s -B security_worker.py SYS_PATH_AS_JSON``. It parses untrusted text, so it is separate from the
process that trains, its memory is limited, and a signal kills it when a scan takes too long. With seccomp it cannot
write files, open connections or start processes. The only code of the package that it loads is the sandbox's filter,
by path.
"""

from __future__ import annotations

import ast
import importlib.machinery
import io
import json
import logging
import os
import resource
import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

MEMORY_BYTES = 2 << 30
SCAN_CPU_SECONDS = 10.0
# Enough for a sum of 10,000 terms; deeper programs end in an error, which counts as the worst severity.
RECURSION_LIMIT = 50_000
STACK_BYTES = 512 << 20
FILE_NAME = "solution.py"

# Statements that give names a meaning; at the top level they are children of the module.
BINDING = {"Import", "ImportFrom", "Delete", "Assign", "AnnAssign", "NamedExpr", "arguments"}
# Nodes whose visit changes what later nodes are compared with.
STATEFUL = {"ClassDef", "FunctionDef", "Import", "ImportFrom", "Call"}


class _PlainFile(io.BytesIO):
    """Source bytes for plugins that read the file; whoever looks for a coding cookie finds none."""

    def readline(self, size: int | None = -1, /) -> bytes:
        return b""


def make_scanner() -> Any:
    """Load Bandit's plugins once; returns a function from source text to its list of issues.

    The function visits as Bandit's own visitor does, but builds a context only for nodes that a plugin looks at,
    and lets errors of plugins out: Bandit itself logs them and reports no issue.
    """
    from bandit.core import config, context, metrics, node_visitor, test_set, utils

    call_names = _module(Path(__file__).with_name("call_names.py"))
    logging.disable(logging.CRITICAL)
    tests = test_set.BanditTestSet(config.BanditConfig(), profile={})
    no_metrics = metrics.Metrics()
    no_scores: dict[str, list[int]] = {"SEVERITY": [], "CONFIDENCE": []}
    plugins = {
        kind: [(test, (test._config,) if hasattr(test, "_config") else ()) for test in found]
        for kind, found in tests.tests.items()
    }
    wanted = (set(tests.tests) - {"File"}) | STATEFUL
    if wanted & {"Str", "Bytes"}:
        wanted.add("Constant")

    class Tester:
        """Runs plugins on one node and collects their issues; there is no nosec here."""

        def __init__(self) -> None:
            self.results: list[Any] = []

        def run_tests(self, raw: dict[str, Any], kind: str) -> dict[str, list[int]]:
            given = context.Context(raw)  # one for all plugins: none of Bandit's changes it
            for test, settings in plugins.get(kind, ()):
                issue = test(given, *settings)
                if issue is not None:
                    issue.lineno = raw["lineno"] if issue.lineno is None else issue.lineno
                    issue.test_id = issue.test_id or test._test_id
                    self.results.append(issue)
            return no_scores

    class Visitor(node_visitor.BanditNodeVisitor):  # type: ignore[misc]
        meanings: Any
        calls: list[tuple[ast.Call, dict[str, Any]]]

        def visit_Call(self, node: ast.Call) -> None:
            super().visit_Call(node)
            self.meanings.note_call(self.context["qualname"])
            self.calls.append((node, self.context))

        def look_again(self) -> None:
            """Run the plugins on calls whose name can mean something else than Bandit took it for."""
            if self.meanings.is_plain:
                return
            for node, given in self.calls:
                for qualname in sorted(self.meanings.of(node.func) - {given["qualname"]}):
                    name = qualname.rpartition(".")[2]
                    self.tester.run_tests({**given, "qualname": qualname, "name": name}, "Call")

        def update_scores(self, scores: dict[str, list[int]]) -> None:
            """Scores are Bandit's own summary; we count issues."""

        def pre_visit(self, node: ast.AST) -> bool:
            self.context = {
                "imports": self.imports,
                "import_aliases": self.import_aliases,
                "node": node,
                "linerange": utils.linerange(node),
                "filename": self.fname,
                "file_data": self.fdata,
            }
            for name in ("lineno", "col_offset", "end_col_offset"):
                if hasattr(node, name):
                    self.context[name] = getattr(node, name)
            return True

        def post_visit(self, node: ast.AST) -> None:
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                self.namespace: str = utils.namespace_path_split(self.namespace)[0]

        def generic_visit(self, node: ast.AST) -> None:
            for name in node._fields:
                value = getattr(node, name, None)
                if isinstance(value, ast.AST):
                    self._descend(value, node, None)
                elif isinstance(value, list):
                    for child, sibling in zip(value, [*value[1:], None], strict=False):
                        if isinstance(child, ast.AST):
                            self._descend(child, node, sibling)

        def _descend(self, node: Any, parent: ast.AST, sibling: ast.AST | None) -> None:
            node._bandit_parent, node._bandit_sibling = parent, sibling
            kind = node.__class__.__name__
            if kind in BINDING:
                self.meanings.collect(node, parent)
            if kind not in wanted:
                if node._fields:
                    self.generic_visit(node)
                return
            self.pre_visit(node)
            self.visit(node)
            self.generic_visit(node)
            self.post_visit(node)

    def scan(source: str) -> list[Any]:
        data = _PlainFile(source.encode("utf-8", "surrogatepass"))
        visitor = Visitor(FILE_NAME, data, None, tests, False, {}, no_metrics)
        visitor.tester = Tester()
        visitor.meanings, visitor.calls = call_names.Meanings(), []
        # As text: in bytes a coding cookie could turn a comment into code that the sandbox would not run.
        visitor.process(source.removeprefix("\ufeff"))
        found = {(issue.test_id, issue.lineno) for issue in visitor.tester.results}
        first = list(visitor.tester.results)
        visitor.tester.results.clear()
        visitor.look_again()
        return first + [issue for issue in visitor.tester.results if (issue.test_id, issue.lineno) not in found]

    return scan


def serve(replies: int) -> None:
    """Answer each line on stdin until it ends."""
    scan = make_scanner()
    os.write(replies, b'{"ready": true}\n')
    for line in sys.stdin.buffer:
        source = json.loads(line)["program"]
        # By CPU time, so that a busy machine changes no score; the signal kills this process.
        signal.setitimer(signal.ITIMER_PROF, SCAN_CPU_SECONDS)
        try:
            answer: dict[str, Any] = {
                "findings": [
                    [issue.test_id, issue.cwe.id, issue.severity, issue.confidence, issue.lineno]
                    for issue in scan(source)
                ]
            }
        except Exception as error:  # any error that untrusted text causes is a failed scan, the worst severity
            answer = {"failed": type(error).__name__}
        signal.setitimer(signal.ITIMER_PROF, 0)
        reply = json.dumps(answer).encode() + b"\n"
        while reply:
            reply = reply[os.write(replies, reply) :]


def lock_down() -> None:
    """Install the sandbox's first filter, if the system has seccomp, so that a bug in a parser does little harm."""
    folder = Path(__file__).parent / "inside"
    with suppress(OSError, KeyError):  # another system or CPU: programs run without it, or not at all
        lockdown, seccomp = (_module(folder / f"{name}.py") for name in ("lockdown", "seccomp"))
        lockdown.prctl(lockdown.PR_SET_NO_NEW_PRIVS, 1)
        lockdown.Filter(seccomp.supervisor_filter()).install()


def _module(path: Path) -> ModuleType:
    module = ModuleType(path.stem)
    module.__file__ = str(path)
    importlib.machinery.SourceFileLoader(path.stem, str(path)).exec_module(module)
    return module


def main() -> None:
    """Limit this process, keep stdout for replies, and serve in a thread whose stack suits deep programs."""
    sys.path[:] = json.loads(sys.argv[1])
    replies = os.dup(1)
    os.dup2(2, 1)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    lock_down()
    sys.setrecursionlimit(RECURSION_LIMIT)
    threading.stack_size(STACK_BYTES)
    thread = threading.Thread(target=serve, args=(replies,))
    thread.start()
    thread.join()


if __name__ == "__main__":
    main()
