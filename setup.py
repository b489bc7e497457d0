"""Refuses an older Python in one sentence; older pips would compare versions first, and report their conflicts."""

import sys

from setuptools import setup

if sys.version_info < (3, 11):  # noqa: UP036
    sys.exit(f"securecoderl-edge needs Python 3.11 or newer, and this is {sys.version.split()[0]}")
setup()
