"""``python -m securecoderl_edge`` is ``sce``."""

from securecoderl_edge.cli import main

main()
