"""Where things stand in a checkout."""

from __future__ import annotations

from pathlib import Path

TESTS = Path(__file__).resolve().parent
ROOT = TESTS.parent
# Data that only developers have: tests that read it are skipped elsewhere.
SHARED = ROOT.parent / "shared" / "data"
