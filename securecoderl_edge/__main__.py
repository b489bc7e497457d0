"""The console script ``sce``, which is ``python -m securecoderl_edge`` too."""

import sys


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
