"""Reinforcement learning from execution for small code models, and the way from there to a laptop."""


def __getattr__(name: str) -> str:
    """``__version__``, looked up on demand: its modules would take a third of the time of ``sce --help`` to load."""
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("securecoderl-edge")
    except PackageNotFoundError:  # a checkout that was never installed
        return "0+unknown"
