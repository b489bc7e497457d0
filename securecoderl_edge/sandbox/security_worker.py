"""A process that scans programs with Bandit: one JSON object per line in, one out.

Run as ``python -s -B security_worker.py SYS_PATH_AS_JSON [rules]``; with ``rules``, its first line has those of
`bandit_scan`, and it scans files of people. It parses untrusted text, so it is separate from the
process that trains, its memory is limited, and a signal kills it when a scan takes too long. With seccomp it cannot
write files, open connections or start processes. The only code of the package that it loads is `bandit_scan` and the
sandbox's filter, by path.
"""

from __future__ import annotations

import gc
import importlib.machinery
import io
import json
import os
import resource
import signal
import sys
import threading
import tokenize
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

MEMORY_BYTES = 2 << 30
SCAN_CPU_SECONDS = 10.0
FILE_CPU_SECONDS = 60.0  # of a file of people, which can be long
# Of objects, and of bytes of messages: trees that hold each other are garbage until somebody looks for it. They are few
# objects where the strings in a program are long.
GARBAGE_OBJECTS, GARBAGE_BYTES = 1_000_000, 1 << 20
# Of a number. Python's own limit is below what honest programs have; without one, reading takes quadratic time.
MOST_DIGITS = 100_000
# Enough for a sum of 10,000 terms; deeper programs end in an error, which counts as the worst severity.
RECURSION_LIMIT = 50_000
STACK_BYTES = 512 << 20


def serve(replies: int, rules: dict[str, Any] | None) -> None:
    """Answer each line on stdin until it ends: programs, or files of people if there are ``rules`` for these."""
    bandit_scan = _module(Path(__file__).with_name("bandit_scan.py"))
    scan = bandit_scan.make_scanner(rules)
    # What is loaded stays. A tree is garbage when its scan ends; looking for garbage while it grows finds none.
    gc.freeze()
    gc.set_threshold(GARBAGE_OBJECTS, 10, 10)
    _write(replies, {"ready": True, "checks": bandit_scan.checks(rules) if rules is not None else {}})
    seen = 0
    for line in sys.stdin.buffer:
        seen += len(line)
        if seen > GARBAGE_BYTES:
            seen = len(line)
            gc.collect()
        asked = json.loads(line)
        # By CPU time, so that a busy machine changes no score; the signal kills this process.
        signal.setitimer(signal.ITIMER_PROF, SCAN_CPU_SECONDS if rules is None else FILE_CPU_SECONDS)
        answer: dict[str, Any]
        try:
            if rules is None:
                answer = {"findings": [row[:5] for row in scan(asked["program"]).rows]}
            else:
                data = asked["data"].encode("latin-1")
                found = scan(data, asked["path"], "kept")
                answer = found._replace(rows=_in_characters(found.rows, data))._asdict()
        except Exception as error:  # any error that untrusted text causes is a failed scan, the worst severity
            answer = {"failed": type(error).__name__, "line": getattr(error, "lineno", None) or 0}
        signal.setitimer(signal.ITIMER_PROF, 0)
        _write(replies, answer)


def _in_characters(rows: list[Any], data: bytes) -> list[Any]:
    """Rows whose columns count characters: Python counts bytes of UTF-8."""
    columns = {each.line: b"" for each in rows if each.column > 1}
    if data.isascii() or not columns:
        return rows
    encoding = tokenize.detect_encoding(io.BytesIO(data).readline)[0]
    for number, line in enumerate(data.splitlines(), 1):
        if number in columns:
            columns[number] = line.decode(encoding, "replace").encode("utf-8", "replace")
    return [
        row._replace(column=len(columns[row.line][: row.column - 1].decode("utf-8", "ignore")) + 1)
        if row.column > 1
        else row
        for row in rows
    ]


def _write(replies: int, answer: dict[str, Any]) -> None:
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
    core = int(resource.getrlimit(resource.RLIMIT_CORE)[1] != 0)  # as in `zygote`
    resource.setrlimit(resource.RLIMIT_CORE, (core, core))
    lock_down()
    sys.setrecursionlimit(RECURSION_LIMIT)
    sys.set_int_max_str_digits(MOST_DIGITS)
    threading.stack_size(STACK_BYTES)
    rules = json.loads(sys.stdin.buffer.readline()) if len(sys.argv) > 2 else None
    thread = threading.Thread(target=serve, args=(replies, rules))
    thread.start()
    thread.join()


if __name__ == "__main__":
    main()
