"""The console script ``sce``, which is ``python -m securecoderl_edge`` too."""

import sys

_ROOT = __file__.rpartition("/")[0].rpartition("/")[0]
if __name__ == "__main__" and not sys.flags.safe_path and sys.path[0] not in ("", _ROOT):
    # `python -m` searches the current folder first, where a program of a model may be named json.py.
    del sys.path[0]


def main() -> None:
    """Run ``sce``; Ctrl-C ends it in one line even while it is still being loaded."""
    try:
        from securecoderl_edge.cli import main as run
    except KeyboardInterrupt:
        sys.stderr.write("sce: interrupted\n")
        sys.exit(130)
    run()


if __name__ == "__main__":
    main()
