"""Scans of files that nobody runs: Bandit and the analyzers of C, on all cores, with the findings in a fixed order.

Files are as untrusted as programs of a model. Each is parsed in a worker of `security_worker` (limits of memory and
CPU time, no writing, no network) or in the sandbox. A file that cannot be scanned in full has a finding that says so.
"""

from __future__ import annotations

import hashlib
import queue
import re
import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any

from securecoderl_edge.errors import SceError
from securecoderl_edge.languages.analyzers import CPPCHECK, GCC, find_analyzers
from securecoderl_edge.languages.language import C, Language
from securecoderl_edge.languages.weaknesses import ANALYZERS
from securecoderl_edge.sandbox.bandit_config import ScanRules
from securecoderl_edge.sandbox.pool import SandboxPool
from securecoderl_edge.sandbox.security import Finding, SecurityScanner, rank
from securecoderl_edge.sandbox.security_worker import FILE_CPU_SECONDS, MEMORY_BYTES
from securecoderl_edge.sandbox.source_files import SourceFile, read_source
from securecoderl_edge.system.machine import cpu_count
from securecoderl_edge.system.processes import in_order
from securecoderl_edge.text import on_one_line

# The id of our own finding: a file that was not scanned, or not in full.
NOT_SCANNED, _NOT_SCANNED = "SCE001", "not scanned in full"
_NO_ANALYZER = "no analyzer of C is installed: sce doctor has the command, --analyzers off leaves C out"
BANDIT, ADDED, OURS = "bandit", "sce, from another meaning of a name", "sce"
# Files that are read and waiting per worker: enough to keep all busy. Files whose findings wait for an earlier one.
_AHEAD, _KEPT = 8, 256
_FILES_PER_WORKER = 8
_WORD = re.compile(r"(?<=[a-z])(?=[A-Z])|-")


@dataclass(frozen=True)
class FileFinding(Finding):
    """A finding in a file.

    Attributes:
        path: of the file, as in reports.
        column: from 1, in characters; 0 if unknown.
        text: the message.
        name: of the check, in words. page: its address, empty if there is none.
        tool: what found it; for Bandit's checks, `BANDIT` or, for an addition to what Bandit finds, `ADDED`.
        digest: of the check and of the text from `first_line` to `end_line`, without white space at the ends of lines:
            the same if these move.
        first_line, end_line: of the expression or statement; 0 if unknown.
    """

    path: str = ""
    column: int = 0
    text: str = ""
    name: str = ""
    page: str = ""
    tool: str = BANDIT
    digest: str = ""
    first_line: int = 0
    end_line: int = 0


def not_scanned(path: str, why: str, line: int = 0) -> FileFinding:
    """The finding for a file that was not scanned in full."""
    return FileFinding(NOT_SCANNED, 0, "HIGH", "HIGH", line, path, text=why, name=_NOT_SCANNED, tool=OURS)


class FileScanner:
    """Scans files in parallel.

    Args:
        workers: processes that scan, at most one per file; one per core, but no more than the files need, if None.
        files: how many there will be.
        level, has_analyzers: of the sandbox, for programs in C.

    Raises:
        SceError: Bandit cannot be started.
    """

    def __init__(
        self, rules: ScanRules, files: int, workers: int | None = None, level: str = "auto", has_analyzers: bool = True
    ) -> None:
        self._rules, self._level, self._has_analyzers = rules, level, has_analyzers
        self._workers = max(1, min(files, workers or min(cpu_count(), -(-files // _FILES_PER_WORKER))))
        self._all = [SecurityScanner(rules.for_worker()) for _ in range(self._workers)]
        self._idle: queue.SimpleQueue[SecurityScanner] = queue.SimpleQueue()
        for each in self._all:
            self._idle.put(each)
        self._threads = ThreadPoolExecutor(self._workers, "scan")
        self._lock = threading.Lock()
        self._sandbox: SandboxPool | None = None

    def checks(self, language: Language) -> dict[str, bool]:
        """Whether the rules choose a check of a language, by its id."""
        if language == C:
            return {rule: self._is_chosen(rule) for rule in ANALYZERS}
        return {test_id: is_chosen for test_id, (_, _, is_chosen) in self._all[0].checks().items()}

    def scan(self, files: Iterable[SourceFile]) -> Iterator[list[FileFinding]]:
        """The findings of each file, in the order of the files; those of one file by line, column and id."""
        running = _AHEAD * self._workers
        kept = max(running, _KEPT)
        for found in in_order(lambda file: self._threads.submit(self._scan, file), files, running, kept):
            yield from found

    def _scan(self, file: SourceFile) -> list[FileFinding]:
        try:
            data = read_source(file)
        except SceError as error:
            found, data = [not_scanned(file.name, str(error))], b""
        else:
            found = self._scan_c(file, data) if file.language == C else self._scan_python(file, data)
        lines = data.splitlines() if found else []
        # A call that two names reach is found twice.
        kept = dict.fromkeys(_with_digests(list(filter(self._is_wanted, found)), lines))
        return sorted(kept, key=lambda each: (each.line, each.column, each.test_id, each.text))

    def _is_wanted(self, each: FileFinding) -> bool:
        """Bandit's checks are chosen in its process; that a file was not scanned in full is never left out."""
        rules = self._rules
        if each.tool not in (BANDIT, ADDED, OURS) and not self._is_chosen(each.test_id):
            return False
        return rank(each.severity) >= rank(rules.severity) and rank(each.confidence) >= rank(rules.confidence)

    def _is_chosen(self, rule: str) -> bool:
        return rule not in self._rules.skips and rule in (self._rules.tests or (rule,))

    def _scan_python(self, file: SourceFile, data: bytes) -> list[FileFinding]:
        if not data:
            return []
        scanner = self._idle.get()
        try:
            answer = scanner.ask_about({"data": data.decode("latin-1"), "path": on_one_line(file.path)})
            checks = scanner.checks()
        finally:
            self._idle.put(scanner)
        if answer is None:
            limits = f"{FILE_CPU_SECONDS:g} s of CPU time, {MEMORY_BYTES >> 30} GiB"
            return [not_scanned(file.name, f"the scan did not finish within its limits ({limits})")]
        if "failed" in answer:
            is_limit = answer["failed"] in ("MemoryError", "RecursionError")
            why = "too large or too deep for the scan" if is_limit else "does not parse"
            return [not_scanned(file.name, f"{why} ({answer['failed']})", answer["line"])]
        found = [self._of_bandit(file, row, checks) for row in answer["rows"]]
        for test_id, line, kind in answer["failures"]:
            found.append(not_scanned(file.name, f"the check {test_id} failed here ({kind})", line))
        if answer["is_cut"]:
            found.append(not_scanned(file.name, f"more than {len(found):,} findings: the others are not listed"))
        return found

    def _of_bandit(self, file: SourceFile, row: list[Any], checks: dict[str, list[Any]]) -> FileFinding:
        test_id, cwe, severity, confidence, line, column, text, is_addition, first, end = row
        text = text.encode("utf-8", "backslashreplace").decode()  # halves of surrogate pairs are not valid in reports
        name, page, _ = checks.get(test_id, ["", "", True])
        tool = ADDED if is_addition else BANDIT
        return FileFinding(
            test_id, cwe, severity, confidence, line, file.name, column, text, name, page, tool, "", first, end
        )

    def _scan_c(self, file: SourceFile, data: bytes) -> list[FileFinding]:
        try:
            program = data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            return [not_scanned(file.name, f"not UTF-8 text (byte {error.start})")]
        if not find_analyzers():
            return [not_scanned(file.name, _NO_ANALYZER)]
        run = self._opened_sandbox().run(program, language=C.name, is_part=True)
        if not run.parses or run.analysis is None:
            said = run.error.replace(f"solution{C.suffix}", file.name).splitlines() or [""]
            why = next((line for line in said if "error:" in line), said[0])
            return [not_scanned(file.name, f"does not compile alone: {why}")]
        found = [self._of_analyzer(file, each) for each in run.analysis.findings]
        if run.analysis.failed:
            found.append(not_scanned(file.name, "a static analyzer could not read all of it"))
        return found

    def _of_analyzer(self, file: SourceFile, each: Finding) -> FileFinding:
        rule, tool = each.test_id, GCC if each.test_id.startswith("-") else CPPCHECK
        text = f"{_name(rule)}, reported by {tool}"
        return FileFinding(
            rule,
            each.cwe,
            each.severity,
            each.confidence,
            each.line,
            file.name,
            0,
            text,
            _name(rule),
            _page(rule),
            tool,
        )

    def _opened_sandbox(self) -> SandboxPool:
        with self._lock:
            if self._sandbox is None:
                self._sandbox = SandboxPool(self._workers, None, self._level, self._has_analyzers)
            return self._sandbox

    def close(self) -> None:
        """End all processes, also those that scan; scans that wait are not begun."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        if self._sandbox is not None:
            self._sandbox.close()
        for each in self._all:
            each.stop()
        for each in self._all:
            each.close()

    def __enter__(self) -> FileScanner:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _with_digests(found: Sequence[FileFinding], lines: list[bytes]) -> Iterator[FileFinding]:
    """Findings with their digests. Each reads on from the one before that begins in the same line: of ten thousand in
    a long line, or in a chain of calls, every one would take the time of all.
    """
    states: dict[tuple[str, int], tuple[Any, int]] = {}
    digests: dict[tuple[str, int, int], str] = {}
    for test_id, first, end in sorted(set(map(_span, found)), key=itemgetter(2)):
        state, read = states.get((test_id, first), (hashlib.sha256(test_id.encode() + b"\0"), first))
        for number in range(read, min(end, len(lines))):
            state.update(b"\n" * (number > first) + lines[number].strip())
        states[test_id, first] = state, max(read, end)
        digests[test_id, first, end] = state.hexdigest()[:16]
    return (replace(each, digest=digests[_span(each)]) for each in found)


def _span(each: FileFinding) -> tuple[str, int, int]:
    """The check of a finding, and the slice of the lines that it is about."""
    return each.test_id, max((each.first_line or each.line) - 1, 0), max(each.line, each.end_line)


def _name(rule: str) -> str:
    """The name of an analyzer's rule in words: ``double free`` of ``-Wanalyzer-double-free`` or ``doubleFree``."""
    return _WORD.sub(" ", rule.removeprefix("-Wanalyzer-").removeprefix("-W").rstrip("=")).lower()


def _page(rule: str) -> str:
    options = "Static-Analyzer-Options" if rule.startswith("-Wanalyzer-") else "Warning-Options"
    page = f"https://gcc.gnu.org/onlinedocs/gcc/{options}.html#index-{rule[1:].rstrip('=')}"
    return page if rule.startswith("-") else ""
