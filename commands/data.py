"""`sce data`: commands that start, import, check, measure, augment, show, count, split and wrap problem files."""

from __future__ import annotations

import importlib

import click

# The modules that define them: each is imported when it is called.
_MODULES = {
    "augment": "data_augment",
    "check": "data_check",
    "difficulty": "data_difficulty",
    "import": "data_import",
    "leaks": "data_split",
    "new": "data_new",
    "show": "data_show",
    "split": "data_split",
    "stats": "data_show",
    "wrap": "data_wrap",
}


class _Group(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_MODULES)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name in _MODULES:
            return _load(name)
        self.commands = {each: _load(each) for each in _MODULES}  # click suggests one of these
        return None


def _load(name: str) -> click.Command:
    module = importlib.import_module(f"securecoderl_edge.commands.{_MODULES[name]}")
    command: click.Command = getattr(module, "import_" if name == "import" else name)
    return command


@click.group(cls=_Group)
def data() -> None:
    """Start, import, check, measure, show, count, split and wrap problem files."""
