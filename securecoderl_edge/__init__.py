"""Reinforcement learning from execution for small code models, and the way from there to a laptop."""

import sys

if sys.version_info < (3, 11):  # noqa: UP036  # a clone can be run without pip, which reads the same in pyproject.toml
    sys.exit(f"sce needs Python 3.11 or newer, and this is {sys.version.split()[0]}. Make a new environment with it")

# Data sets have longer integers than the 4,300 digits that Python reads by default; so many take a tenth of a second.
MOST_DIGITS = 100_000
if 0 < sys.get_int_max_str_digits() < MOST_DIGITS:
    sys.set_int_max_str_digits(MOST_DIGITS)


def __getattr__(name: str) -> str:
    """``__version__``, looked up on demand: its modules would take a third of the time of ``sce --help`` to load."""
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("securecoderl-edge")
    except PackageNotFoundError:  # a checkout that was never installed
        return "0+unknown"
