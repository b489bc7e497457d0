"""Security findings of a program, from Bandit.

Covers the patterns that Bandit's plugins find in the text, also under other names (`call_names`). Does not cover
names that are computed in other ways than joining constants; only the sandbox stops what they call. Nothing in a
program can silence a finding: ``# nosec`` and coding cookies are ignored, and a scan that fails counts as the worst
severity.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from securecoderl_edge.errors import SceError

WORKER = Path(__file__).with_name("security_worker.py")
START_SECONDS = 120.0
# The worker limits its own CPU time; this limit is for a machine so busy that the worker gets none.
ANSWER_SECONDS = 120.0
LEVELS = ("LOW", "MEDIUM", "HIGH")
SERIOUS = ("MEDIUM", "HIGH")
# B413 warns of pyCrypto, which has had no release since 2013; what is imported by its name today is PyCryptodome.
FALSE_ALARMS = ("B413",)
_PASSED_ON = ("PATH", "LD_LIBRARY_PATH", "PYTHONHOME")


@dataclass(frozen=True)
class Finding:
    """One issue that a scanner, an analyzer of C or a sanitizer reports.

    Attributes:
        test_id: its name of the check, such as ``B602`` of Bandit.
        cwe: number in the Common Weakness Enumeration; 0 if it gives none.
        severity: ``LOW``, ``MEDIUM`` or ``HIGH``.
        confidence: the same words.
        line: in the program, from 1.
    """

    test_id: str
    cwe: int
    severity: str
    confidence: str
    line: int


@dataclass(frozen=True)
class Scan:
    """All findings of one program; ``failed`` when a scanner could not finish."""

    findings: tuple[Finding, ...] = ()
    failed: bool = False

    @property
    def serious(self) -> tuple[Finding, ...]:
        """The findings that count for the reward: medium and high, without known false alarms."""
        return tuple(each for each in self.findings if each.severity in SERIOUS and each.test_id not in FALSE_ALARMS)


def rank(level: str) -> int:
    """The place of a severity or confidence in `LEVELS`, in either case; one that is unknown is above all."""
    return LEVELS.index(level.upper()) if level.upper() in LEVELS else len(LEVELS)


class SecurityScanner:
    """Bandit in one persistent process; may be used from several threads.

    Args:
        rules: of a scan of people's files, as in `bandit_scan`; then `ask_about` is called, not `scan`.

    Raises:
        SceError: Bandit cannot be started.
    """

    def __init__(self, rules: dict[str, Any] | None = None) -> None:
        self._lock = threading.Lock()
        self._rules = rules
        self._process: subprocess.Popen[bytes] | None = self._start()
        self._checks: dict[str, list[Any]] | None = None
        self._is_stopped = False

    def scan(self, program: str) -> Scan:
        """Scan one program.

        A worker that dies is replaced and the program is scanned again, once: something else may have killed it. If it
        dies twice, or takes too long, the program is the cause.
        """
        answer = self.ask_about({"program": program})
        if answer is None or "failed" in answer:
            return Scan(failed=True)
        # A program can have thousands of findings, with the same few words.
        shared = sys.intern
        return Scan(
            tuple(
                Finding(shared(test_id), cwe, shared(severity), shared(confidence), line)
                for test_id, cwe, severity, confidence, line in answer["findings"]
            )
        )

    def ask_about(self, text: dict[str, Any]) -> dict[str, Any] | None:
        """The worker's answer to a message, or None if it took too long or died of it; `scan` says when."""
        with self._lock:
            answer, was_killed = self._ask(text)
            return self._ask(text)[0] if was_killed and not self._is_stopped else answer

    def checks(self) -> dict[str, list[Any]]:
        """Name and page of each check of Bandit, and whether the rules choose it, by id; of a scanner with rules."""
        with self._lock:
            self._running()
            assert self._checks is not None
            return self._checks

    def _ask(self, text: dict[str, Any]) -> tuple[dict[str, Any] | None, bool]:
        """The worker's answer, or None; and whether it died for a reason other than its CPU time limit."""
        process = self._running()
        try:
            self._send(process, text)
            answer = self._receive(process, ANSWER_SECONDS)
        except BaseException:
            self._stop()  # whatever it was doing, its next answer would belong to this program
            raise
        if answer is not None:
            return answer, False
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=1)  # its output has ended, or it is silent
        returncode = process.returncode
        self._stop()
        return None, returncode not in (None, -signal.SIGPROF)

    def pids(self) -> list[int]:
        """Process id of the worker, if one is running."""
        return [self._process.pid] if self._process is not None else []

    def stop(self) -> None:
        """Kill the worker in the midst of a scan, of which there is then no answer."""
        self._is_stopped = True
        process = self._process
        if process is not None:
            process.kill()

    def close(self) -> None:
        """End the worker."""
        with self._lock:
            self._stop()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            self._process, self._checks = self._start(), None
        if self._checks is None:
            ready = self._receive(self._process, START_SECONDS)
            if ready is None:
                self._stop()
                raise SceError(f"cannot start bandit with {sys.executable}; check it with: python -m bandit --version")
            self._checks = ready["checks"]
        return self._process

    def _start(self) -> subprocess.Popen[bytes]:
        environment = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        has_rules = ["rules"] if self._rules is not None else []
        process = subprocess.Popen(
            [sys.executable, "-s", "-B", "-X", "utf8", str(WORKER), json.dumps(sys.path), *has_rules],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # a Ctrl-C at the terminal is for sce alone
        )
        if self._rules is not None:  # too long for an argument, if a configuration says so
            self._send(process, self._rules)
        return process

    def _stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()

    @staticmethod
    def _send(process: subprocess.Popen[bytes], message: dict[str, Any]) -> None:
        assert process.stdin is not None
        with suppress(BrokenPipeError):  # it died; the answer will be missing
            process.stdin.write(json.dumps(message).encode() + b"\n")
            process.stdin.flush()

    @staticmethod
    def _receive(process: subprocess.Popen[bytes], seconds: float) -> dict[str, Any] | None:
        assert process.stdout is not None
        waiting = select.poll()
        waiting.register(process.stdout, select.POLLIN)
        if not waiting.poll(seconds * 1000):
            return None
        line = process.stdout.readline()
        if not line.endswith(b"\n"):
            return None
        answer: dict[str, Any] = json.loads(line)
        return answer

    def __enter__(self) -> SecurityScanner:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
