"""Where things stand in a checkout."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

TESTS = Path(__file__).resolve().parent
ROOT = TESTS.parent
# Data that only developers have: tests that read it are skipped elsewhere.
SHARED = ROOT.parent / "shared" / "data"


def own_temporary_folder() -> Path:
    """A folder for temporary files of this user's test runs, which other users can read.

    Raises:
        RuntimeError: somebody else has made it.
    """
    folder = Path(tempfile.gettempdir()) / f"securecoderl-tests-{os.getuid()}"
    if folder.parent.name == folder.name:
        return folder.parent  # a worker's, whose controller has set it
    folder.mkdir(mode=0o755, exist_ok=True)
    if folder.is_symlink() or folder.stat().st_uid != os.getuid():
        raise RuntimeError(f"{folder} is not ours")
    return folder
