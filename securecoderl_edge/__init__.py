"""Reinforcement learning from execution for small code models, and the way from there to a laptop."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("securecoderl-edge")
except PackageNotFoundError:  # a checkout that was never installed
    __version__ = "0+unknown"
