"""A baseline: findings of a project that are known, so that only new ones fail a pipeline.

A finding is known by its file, its check, its severity and the text of its expression or statement, so it may move
within the file. Of equal ones as many are known as the baseline has. Paths are relative to the folder of the baseline.
That a file was not scanned in full is never known: what it hides may have changed.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from securecoderl_edge.errors import SceError, UsageError, not_utf8
from securecoderl_edge.sandbox.file_scan import NOT_SCANNED, FileFinding
from securecoderl_edge.sandbox.source_files import place_of
from securecoderl_edge.system.files import write_atomically

VERSION = 2
_Key = tuple[str, str, str, str]


class Baseline:
    """The known findings that are still to be met.

    Raises:
        UsageError: no such file.
        SceError: it is not a baseline.
    """

    def __init__(self, file: Path) -> None:
        self._folder = _real(file.parent)
        try:
            record = json.loads(file.read_text(encoding="utf-8"))
            if record["version"] != VERSION:
                raise SceError(f"{file}: a baseline of version {record['version']!r}; write it again")
            self._left = Counter(_key_of(each) for each in record["findings"])
        except FileNotFoundError:
            raise UsageError(f"{file}: no such file. Write it with --write-baseline {file}.") from None
        except UnicodeDecodeError as error:
            raise not_utf8(file, error) from None
        except OSError as error:
            raise SceError(f"{file}: {error.strerror}") from None
        except (ValueError, LookupError, TypeError, RecursionError):
            raise SceError(f"{file}: not a baseline, as --write-baseline writes it") from None

    def knows(self, finding: FileFinding) -> bool:
        """Whether a finding is known; each is asked about once."""
        key = (_relative(finding.path, self._folder), finding.test_id, finding.severity.lower(), finding.digest)
        if finding.test_id == NOT_SCANNED or self._left[key] <= 0:
            return False
        self._left[key] -= 1
        return True

    @property
    def gone(self) -> int:
        """How many known findings were not met."""
        return self._left.total()


def write_baseline(file: Path, findings: Sequence[FileFinding]) -> None:
    """Write findings as a baseline. Lines are for people; the text of a program is not stored."""
    folder = _real(file.parent)
    rows: list[dict[str, Any]] = [
        {
            "path": _relative(each.path, folder),
            "id": each.test_id,
            "line": each.line,
            "severity": each.severity.lower(),
            "digest": each.digest,
        }
        for each in findings
        if each.test_id != NOT_SCANNED
    ]
    lines = ",\n".join(json.dumps(row) for row in rows)
    with write_atomically(file) as out:
        out.write(f'{{"version": {VERSION}, "findings": [\n{lines}\n]}}\n')


def _key_of(row: dict[str, Any]) -> _Key:
    key = (row["path"], row["id"], row["severity"], row["digest"])
    if not all(isinstance(each, str) for each in key):
        raise TypeError("not a finding")
    return key


def _real(folder: Path) -> str:
    return os.path.realpath(folder)


def _relative(path: str, folder: str) -> str:
    if path == "<stdin>":
        return path
    return os.fsencode(os.path.relpath(place_of(path), folder)).decode("utf-8", "backslashreplace")
